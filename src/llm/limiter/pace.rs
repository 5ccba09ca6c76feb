//! How far apart requests begin, where even one at a time is too many. Values in, values out: time is handed in.
//!
//! Most of the gap comes from the rejections: each that says something new widens it, each good answer narrows it a little. Near
//! the gap that was too short last it is narrowed slowly, so that a rejection is rare; far from it faster, so that a bad hour
//! is not paid for long.
use std::{collections::VecDeque, time::Duration};

/// What the gap is multiplied with by a rejection after a good answer, and by one after another.
const WIDER: (f64, f64) = (1.4, 2.0);
/// What a good answer takes off the gap, near the one that was too short and far from it.
const NARROWER: (f64, f64) = (0.01, 0.05);
/// How near is near: between so much and so much of the gap that was too short.
const NEAR: (f64, f64) = (0.75, 1.25);
/// The first gap, in seconds, is what it was by itself, within these bounds.
const FIRST: (f64, f64) = (0.02, 1.0);
/// Gaps shorter than this are none.
const NONE: f64 = 0.01;
/// The longest gap: who bears less than this says itself when to come again.
const LONGEST: f64 = 20.0;
/// How many beginnings are looked at for how far apart they are by themselves.
const SEEN: usize = 16;

/// The gap between the beginnings of requests, and what is known about it. In seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    gap: f64,
    too_short: f64,
    began: VecDeque<Duration>,
    /// Whether there was a good answer since it was widened.
    is_good: bool,
}

impl Pace {
    /// Returns whether there is a gap.
    pub(super) fn is_kept(&self) -> bool {
        self.gap > 0.0
    }

    /// Returns how long it is until the next may begin.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        self.began.back().map_or(Duration::ZERO, |last| last.saturating_add(Duration::from_secs_f64(self.gap)).saturating_sub(now))
    }

    /// Notes that one begins.
    pub(super) fn begins(&mut self, now: Duration) {
        if self.began.len() >= SEEN {
            self.began.pop_front();
        }
        self.began.push_back(now);
    }

    /// Widens the gap: one was turned away.
    pub(super) fn slow_down(&mut self, now: Duration) {
        let factor = if self.is_good { WIDER.0 } else { WIDER.1 };
        self.too_short = if self.is_kept() { self.gap } else { self.usual(now).clamp(FIRST.0, FIRST.1) };
        self.gap = (self.too_short * factor).min(LONGEST);
        self.is_good = false;
    }

    /// Narrows the gap: there was a good answer.
    pub(super) fn quicken(&mut self) {
        self.is_good = true;
        let is_near = (NEAR.0 * self.too_short..=NEAR.1 * self.too_short).contains(&self.gap);
        self.gap *= 1.0 - if is_near { NARROWER.0 } else { NARROWER.1 };
        if self.gap < NONE {
            self.gap = 0.0;
        }
    }

    /// Returns how far apart the last ones began, on average.
    fn usual(&self, now: Duration) -> f64 {
        let oldest = self.began.front().copied().unwrap_or(now);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let count = self.began.len().max(1) as f64;
        now.saturating_sub(oldest).as_secs_f64() / count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks one after the other, as fast as the pace lets it, a server that bears one in so many milliseconds and up to `burst` at
    /// once; returns the rejections for a good answer and the seconds it took.
    fn asks(wanted: u32, every_ms: f64, burst: f64) -> (f64, f64) {
        let (mut pace, mut now, mut level, mut filled) = (Pace::default(), Duration::ZERO, burst, Duration::ZERO);
        let (mut good, mut bad) = (0, 0);
        while good < wanted {
            now += pace.wait(now);
            pace.begins(now);
            level = f64::min(burst, level + now.saturating_sub(filled).as_secs_f64() * 1_000.0 / every_ms);
            filled = now;
            now += Duration::from_millis(20);
            if level >= 1.0 {
                level -= 1.0;
                good += 1;
                pace.quicken();
            } else {
                bad += 1;
                pace.slow_down(now);
            }
        }
        (f64::from(bad) / f64::from(good), now.as_secs_f64())
    }

    #[test]
    fn one_after_the_other_finds_the_pace_that_is_borne() {
        for (every_ms, burst) in [(50.0, 1.0), (500.0, 2.0), (1_667.0, 1.0), (5_000.0, 3.0)] {
            let (rejected, seconds) = asks(300, every_ms, burst);
            let least = 300.0 * every_ms / 1_000.0;
            assert!(rejected < 0.1 && seconds < 1.5 * least, "one in {every_ms} ms: {rejected} rejected a good answer, {seconds} s of {least}");
        }
    }

    #[test]
    fn a_bad_minute_is_made_good_again() {
        let mut pace = Pace::default();
        for n in 0..30 {
            pace.begins(Duration::from_secs(n));
            pace.slow_down(Duration::from_secs(n));
        }
        assert_eq!(pace.wait(Duration::from_secs(29)), Duration::from_secs(20), "never longer");
        (0..300).for_each(|_| pace.quicken());
        assert!(!pace.is_kept(), "{pace:?}");
    }
}
