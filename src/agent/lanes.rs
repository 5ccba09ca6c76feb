//! The order of the calls of one reply: each waits for the earlier ones that its effect conflicts with.
use crate::tools::Effect;
use tokio_util::sync::CancellationToken;

/// One lane a call. A call only ever waits for earlier ones, so nothing waits in a circle.
#[derive(Debug)]
pub(super) struct Lanes {
    effects: Vec<Effect>,
    done: Vec<CancellationToken>,
}

impl Lanes {
    /// Takes the effects in the order of the reply.
    pub(super) fn new(effects: Vec<Effect>) -> Lanes {
        let done = effects.iter().map(|_| CancellationToken::new()).collect();
        Lanes { effects, done }
    }

    /// Waits until no earlier call that conflicts with the effect of call `at` is under way.
    pub(super) async fn wait(&self, at: usize) {
        self.wait_as(at, &self.effects[at]).await;
    }

    /// Waits as call `at` would with another effect (a hook rewrote its input).
    pub(super) async fn wait_as(&self, at: usize, effect: &Effect) {
        for earlier in 0..at {
            if self.effects[earlier].conflicts(effect) {
                self.done[earlier].cancelled().await;
            }
        }
    }

    /// Says that call `at` is over.
    pub(super) fn finish(&self, at: usize) {
        self.done[at].cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn writes(path: &str) -> Effect {
        Effect::Writes(vec![path.to_owned()])
    }

    #[test]
    fn only_conflicting_calls_wait_and_only_for_earlier_ones() {
        let lanes = Lanes::new(vec![Effect::Reads(vec![]), writes("a"), writes("b"), Effect::Reads(vec!["a".to_owned()]), Effect::Exclusive]);
        let free = |at: usize| lanes.wait(at).now_or_never().is_some();
        assert_eq!([free(0), free(1), free(2), free(3), free(4)], [true, false, false, false, false]);
        lanes.finish(0);
        assert_eq!([free(1), free(2), free(3), free(4)], [true, true, false, false]);
        lanes.finish(1);
        assert!(free(3) && !free(4));
        lanes.finish(2);
        lanes.finish(3);
        assert!(free(4));
    }
}
