//! The order of the calls of one reply: each waits for the earlier ones that its effect conflicts with.
use crate::{event::CommitId, tools::Effect};
use std::sync::OnceLock;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// One lane a call. A call only ever waits for earlier ones, until it is known what they touch or they are over, and for the
/// beginning of later ones that wait for nothing after it, so nothing waits in a circle.
#[derive(Debug)]
pub(super) struct Lanes(Vec<Way>);

#[derive(Debug)]
struct Way {
    /// What the call may touch as the model made it.
    effect: Effect,
    /// What it may touch as it is run, known once nothing can change it any more.
    settled: OnceLock<Effect>,
    known: CancellationToken,
    begun: CancellationToken,
    done: CancellationToken,
    /// What sub-agents start from, kept by the first of those that start from the same files.
    base: OnceCell<CommitId>,
}

/// The lane of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane<'a> {
    lanes: &'a Lanes,
    at: usize,
}

impl Lanes {
    /// Takes the effects in the order of the reply.
    pub(super) fn new(effects: Vec<Effect>) -> Lanes {
        let token = CancellationToken::new;
        let way = |effect| Way { effect, settled: OnceLock::new(), known: token(), begun: token(), done: token(), base: OnceCell::new() };
        Lanes(effects.into_iter().map(way).collect())
    }

    /// Returns the lane of call `at`.
    pub(super) fn lane(&self, at: usize) -> Lane<'_> {
        Lane { lanes: self, at }
    }

    /// Returns the calls that start from the same files as call `at`: sub-agents with nothing between them that must keep
    /// its order.
    fn abreast(&self, at: usize) -> std::ops::Range<usize> {
        let breaks = |way: &Way| way.effect != Effect::Delegated && way.effect.conflicts(&Effect::Delegated);
        let first = self.0[..at].iter().rposition(breaks).map_or(0, |before| before + 1);
        let end = self.0[at..].iter().position(breaks).map_or(self.0.len(), |after| at + after);
        first..end
    }
}

impl<'a> Lane<'a> {
    /// Waits until no earlier call is under way that conflicts with this one, as the model made them.
    pub(super) async fn wait(self) {
        let own = &self.lanes.0[self.at].effect;
        for earlier in self.lanes.0[..self.at].iter().filter(|earlier| earlier.effect.conflicts(own)) {
            earlier.done.cancelled().await;
        }
    }

    /// Waits until no earlier call is under way that conflicts with this effect, as they are run: a hook may have rewritten one.
    pub(super) async fn wait_as(self, effect: &Effect) {
        for earlier in &self.lanes.0[..self.at] {
            earlier.known.cancelled().await;
            if earlier.settled.get().unwrap_or(&earlier.effect).conflicts(effect) {
                earlier.done.cancelled().await;
            }
        }
    }

    /// Says what the call may touch, which nothing changes any more.
    pub(super) fn settle(self, effect: &Effect) {
        let way = &self.lanes.0[self.at];
        way.settled.get_or_init(|| effect.clone());
        way.known.cancel();
    }

    /// Returns where what sub-agents start from is kept: the same for all that start from the same files.
    pub(super) fn base(self) -> &'a OnceCell<CommitId> {
        &self.lanes.0[self.lanes.abreast(self.at).start].base
    }

    /// Says that it is recorded what the call will do.
    pub(super) fn begin(self) {
        self.lanes.0[self.at].begun.cancel();
    }

    /// Waits until it is the turn of a sub-agent's work: the others that start from the same files have begun, and those
    /// before it are over.
    pub(super) async fn turn(self) {
        for at in self.lanes.abreast(self.at) {
            let way = &self.lanes.0[at];
            if way.effect == Effect::Delegated && at != self.at {
                let wait = if at < self.at { &way.done } else { &way.begun };
                wait.cancelled().await;
            }
        }
    }

    /// Says that the call is over.
    pub(super) fn finish(self) {
        self.begin();
        let way = &self.lanes.0[self.at];
        way.known.cancel();
        way.done.cancel();
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
        let free = |at: usize| lanes.lane(at).wait().now_or_never().is_some();
        assert_eq!([free(0), free(1), free(2), free(3), free(4)], [true, false, false, false, false]);
        lanes.lane(0).finish();
        assert_eq!([free(1), free(2), free(3), free(4)], [true, true, false, false]);
        lanes.lane(1).finish();
        assert!(free(3) && !free(4));
        lanes.lane(2).finish();
        lanes.lane(3).finish();
        assert!(free(4));
    }

    #[test]
    fn what_a_call_touches_in_the_end_is_what_later_ones_wait_for() {
        let lanes = Lanes::new(vec![writes("a"), writes("b"), writes("c")]);
        let free = |at: usize, path: &str| lanes.lane(at).wait_as(&writes(path)).now_or_never().is_some();
        assert!(!free(1, "b"), "it is not known what the first touches");
        lanes.lane(0).settle(&writes("b"));
        assert!(!free(1, "b") && free(1, "a"));
        lanes.lane(1).settle(&Effect::Exclusive);
        assert!(!free(2, "c"), "the second may do anything");
        lanes.lane(1).finish();
        assert!(free(2, "c") && !free(2, "b"));
        lanes.lane(0).finish();
        assert!(free(2, "b"));
    }

    #[test]
    fn sub_agents_work_abreast_and_deliver_in_order() {
        let lanes = Lanes::new(vec![writes("a"), Effect::Delegated, Effect::Recorded, Effect::Delegated, Effect::Exclusive, Effect::Delegated]);
        let free = |at: usize| lanes.lane(at).wait().now_or_never().is_some();
        let turn = |at: usize| lanes.lane(at).turn().now_or_never().is_some();
        assert_eq!([1, 3, 5].map(free), [false, false, false]);
        lanes.lane(0).finish();
        assert_eq!([1, 3, 4, 5].map(free), [true, true, false, false]);
        assert!(std::ptr::eq(lanes.lane(1).base(), lanes.lane(3).base()) && !std::ptr::eq(lanes.lane(1).base(), lanes.lane(5).base()));
        assert_eq!([turn(1), turn(3)], [false, false], "the other has not begun");
        lanes.lane(3).begin();
        assert_eq!([turn(1), turn(3)], [true, false], "the one before is not over");
        lanes.lane(1).finish();
        assert!(turn(3) && !free(4));
        lanes.lane(3).finish();
        lanes.lane(4).finish();
        assert!(free(5) && turn(5));
    }
}
