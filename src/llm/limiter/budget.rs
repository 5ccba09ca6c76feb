//! How much may be made again because of failures. Values in, values out: time is handed in.
use std::time::Duration;

/// Requests that may be made again at once, whatever became of the others.
const MOST: f64 = 50.0;
/// What time alone gives back.
const PER_SECOND: f64 = 0.5;

/// What is left: each good answer and each while gives back what a failure takes, so that a provider of whom each second answer
/// breaks is still used, and one that only breaks is not asked many times as much as one that works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    left: f64,
    at: Duration,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: MOST, at: Duration::ZERO }
    }
}

impl Budget {
    /// Takes one, and returns how long it is until it is there; takes none where that is longer than `patience`.
    pub(super) fn take(&mut self, now: Duration, patience: Duration) -> Option<Duration> {
        self.left = (self.left + now.saturating_sub(self.at).as_secs_f64() * PER_SECOND).min(MOST);
        self.at = self.at.max(now);
        let wait = Duration::from_secs_f64(((1.0 - self.left) / PER_SECOND).max(0.0));
        let is_there = wait <= patience;
        self.left -= if is_there { 1.0 } else { 0.0 };
        is_there.then_some(wait)
    }

    /// Notes a good answer.
    pub(super) fn succeeded(&mut self) {
        self.left = (self.left + 1.0).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn good_answers_and_time_give_back_what_failures_take() {
        let mut budget = Budget::default();
        let patience = S(100);
        assert_eq!((0..50).filter(|_| budget.take(S(0), patience) == Some(S(0))).count(), 50);
        assert_eq!([budget.take(S(0), patience), budget.take(S(0), patience)], [Some(S(2)), Some(S(4))], "each further one waits for its own");
        assert_eq!((0..1_000).filter(|_| budget.take(S(0), patience).is_some()).count(), 48, "not for longer than anybody waits");
        assert_eq!(budget.take(S(200), patience), Some(S(0)), "time gives back");
        for _ in 0..1_000 {
            budget.succeeded();
            assert!(budget.take(S(200), patience).is_some_and(|wait| wait <= S(2)), "one failure for each good answer is borne for ever");
        }
        (0..1_000).for_each(|_| budget.succeeded());
        assert_eq!((0..60).filter(|_| budget.take(S(200), patience) == Some(S(0))).count(), 50, "never more than that at once");
    }
}
