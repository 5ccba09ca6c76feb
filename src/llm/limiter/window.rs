//! How many may run at once, from when, and how far apart they begin. Values in, values out: time is handed in.
use super::pace::Pace;
use std::time::Duration;

/// How many requests run at once before anything is known.
const FIRST_LIMIT: f64 = 4.0;
/// The limit grows by no more than so many in a second: providers refuse what comes too suddenly.
const RAMP_PER_SECOND: f64 = 1.0;
/// Where no more than so many run and it is still too much, it is how fast they follow each other that is.
const FEW: u32 = 4;
/// So many failures in a row, whosever they are, are taken for an outage.
const TRIP: u32 = 5;
/// How long nobody asks at the beginning of an outage; doubled with every failed probe.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two probes.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// An outage that lasts longer than this is not waited for.
const PATIENCE: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
pub(super) struct Window {
    limit: f64,
    max: f64,
    running: u32,
    /// Nobody starts before this.
    gate: Duration,
    /// When the limit was cut last.
    cut: Option<Duration>,
    /// When the limit began to grow, and from what.
    ramp: Option<(Duration, f64)>,
    pace: Pace,
    breaker: Breaker,
}

/// A request that was turned away because there are too many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rejection {
    /// When it began.
    pub(super) began: Duration,
    /// How long nobody is to begin.
    pub(super) wait: Duration,
    /// Whether it is us who ask too much (429), and not everybody.
    pub(super) is_ours: bool,
}

/// Keeps everybody from asking a provider that only fails.
#[derive(Debug, Clone, Copy, Default)]
struct Breaker {
    /// Failures since the last good answer, and when the first of them was.
    failures: u32,
    since: Duration,
    /// Set in an outage: when the next may try, and how long they waited for that.
    pause: Option<(Duration, Duration)>,
    is_probed: bool,
}

/// Whether one more may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    Full,
    After(Duration, Held),
    /// Nothing but failures for this long.
    Outage(Duration),
}

/// What keeps everybody from starting for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// There are only failures; then one asks for all.
    Outage,
    /// Everybody was asked to wait.
    Told,
    /// Requests are kept apart.
    Pace,
}

impl Window {
    pub(super) fn new(max: u32) -> Window {
        let max = f64::from(max);
        Window { limit: FIRST_LIMIT.min(max), max, running: 0, gate: Duration::ZERO, cut: None, ramp: None, pace: Pace::default(), breaker: Breaker::default() }
    }

    /// Says whether one more may start; it has not started yet.
    pub(super) fn admits(&self, now: Duration) -> Admission {
        if let Some((until, _)) = self.breaker.pause {
            let lasts = now.saturating_sub(self.breaker.since);
            if lasts > PATIENCE && (self.breaker.is_probed || until > now) {
                return Admission::Outage(lasts);
            }
            if self.breaker.is_probed {
                return Admission::Full;
            }
            if until > now {
                return Admission::After(until.saturating_sub(now), Held::Outage);
            }
        }
        if self.gate > now {
            return Admission::After(self.gate.saturating_sub(now), Held::Told);
        }
        if f64::from(self.running) + 1.0 > self.limit {
            return Admission::Full;
        }
        match self.pace.wait(now) {
            Duration::ZERO => Admission::Now,
            wait => Admission::After(wait, Held::Pace),
        }
    }

    /// Returns how many are running.
    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// Notes that one more starts.
    pub(super) fn enter(&mut self, now: Duration) {
        self.running += 1;
        self.pace.begins(now);
        self.breaker.is_probed = self.breaker.pause.is_some();
        self.ramp.get_or_insert((now, self.limit));
    }

    /// Notes that one has ended, however it did.
    pub(super) fn leave(&mut self) {
        self.running = self.running.saturating_sub(1);
        // A probe that ended without a word leaves its place to the next one.
        if self.running == 0 {
            self.breaker.is_probed = false;
        }
    }

    /// Doubles the limit with each round of good answers until it was too much once; after that it grows by one a round.
    pub(super) fn succeeded(&mut self, now: Duration) {
        self.breaker = Breaker::default();
        let (since, base) = *self.ramp.get_or_insert((now, self.limit));
        let ramp = base + RAMP_PER_SECOND * now.saturating_sub(since).as_secs_f64();
        let step = if self.cut.is_some() { 1.0 / self.limit } else { 1.0 };
        self.limit = (self.limit + step).min(ramp.max(self.limit)).min(self.max);
        self.pace.quicken();
    }

    /// Notes that the provider has too much to do. What was under way when the limit was cut last belongs to the same crowd, and
    /// says nothing new.
    pub(super) fn rejected(&mut self, rejection: Rejection, now: Duration) {
        if self.cut.is_none_or(|cut| rejection.began >= cut) {
            if rejection.is_ours && (self.running <= FEW || self.pace.is_kept()) {
                self.pace.slow_down(now);
            }
            // What was allowed and never used says nothing of what is borne.
            self.limit = (self.limit.min(f64::from(self.running)) / 2.0).max(1.0);
            self.cut = Some(now);
            self.ramp = Some((now, self.limit));
        }
        // Only ever extended: a shorter wait does not take back a longer one.
        self.gate = self.gate.max(now.saturating_add(rejection.wait));
    }

    /// Notes a failure of the provider's or of the way to it. After some in a row nobody asks for a while, and then one.
    pub(super) fn failed(&mut self, now: Duration) {
        let breaker = &mut self.breaker;
        if breaker.failures == 0 {
            breaker.since = now;
        }
        breaker.failures = breaker.failures.saturating_add(1);
        let pause = match breaker.pause {
            // What was under way when it began says nothing new.
            Some(_) if !breaker.is_probed => return,
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None if breaker.failures < TRIP => return,
            None => FIRST_PAUSE,
        };
        breaker.pause = Some((now.saturating_add(pause), pause));
        breaker.is_probed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn rejected(window: &mut Window, began: Duration, wait: Duration) {
        window.rejected(Rejection { began, wait, is_ours: false }, began);
    }

    fn enter(window: &mut Window, now: Duration) -> bool {
        let is_admitted = window.admits(now) == Admission::Now;
        if is_admitted {
            window.enter(now);
        }
        is_admitted
    }

    #[test]
    fn the_limit_grows_with_time_and_is_halved_once_a_crowd() {
        let mut window = Window::new(8);
        assert_eq!((0..5).filter(|_| enter(&mut window, S(0))).count(), 4);
        assert_eq!(window.admits(S(0)), Admission::Full);
        for _ in 0..100 {
            window.succeeded(S(2));
        }
        assert!((window.limit - 6.0).abs() < f64::EPSILON, "one more a second, however fast the answers are");
        for _ in 0..100 {
            window.succeeded(S(60));
        }
        assert!((window.limit - 8.0).abs() < f64::EPSILON, "never beyond the maximum");
        while enter(&mut window, S(60)) {}
        for _ in 0..20 {
            window.rejected(Rejection { began: S(60), wait: S(0), is_ours: true }, S(61));
        }
        assert!((window.limit - 4.0).abs() < f64::EPSILON, "one crowd, one cut");
        for _ in 0..4 {
            window.succeeded(S(120));
        }
        assert!(window.limit > 4.8 && window.limit < 5.0, "a round of answers, one more: {}", window.limit);
        for n in 0..20 {
            rejected(&mut window, S(200 + 5 * n), S(0));
        }
        assert!((window.limit - 1.0).abs() < f64::EPSILON, "never below one");
    }

    #[test]
    fn the_gate_holds_everybody_and_is_only_extended() {
        let mut window = Window::new(8);
        rejected(&mut window, S(100), S(30));
        rejected(&mut window, S(110), S(1));
        assert_eq!(window.admits(S(110)), Admission::After(S(20), Held::Told));
        rejected(&mut window, S(120), Duration::MAX);
        assert!(matches!(window.admits(S(130)), Admission::After(..)), "no overflow");
    }

    #[test]
    fn in_an_outage_one_asks_for_all_and_less_and_less_often() {
        let mut window = Window::new(8);
        assert!((0..4).all(|_| enter(&mut window, S(0))));
        for _ in 0..4 {
            window.failed(S(1));
            window.leave();
        }
        assert!(enter(&mut window, S(1)) && enter(&mut window, S(1)), "four may be chance");
        window.failed(S(1));
        window.leave();
        assert_eq!(window.admits(S(1)), Admission::After(S(2), Held::Outage));
        window.failed(S(2));
        window.leave();
        assert_eq!(window.admits(S(2)), Admission::After(S(1), Held::Outage), "what was under way already says nothing new");
        assert!(enter(&mut window, S(3)));
        assert_eq!(window.admits(S(3)), Admission::Full, "one asks, the others wait for what it hears");
        window.failed(S(4));
        window.leave();
        assert_eq!(window.admits(S(4)), Admission::After(S(4), Held::Outage));
        assert!(enter(&mut window, S(8)));
        window.leave();
        assert!(enter(&mut window, S(8)), "a probe that was given up leaves its place");
        window.succeeded(S(9));
        assert!(enter(&mut window, S(9)) && enter(&mut window, S(9)));
    }

    #[test]
    fn an_outage_is_not_waited_for_for_ever() {
        let mut window = Window::new(8);
        let mut now = S(0);
        for _ in 0..40 {
            match window.admits(now) {
                Admission::Now => {
                    window.enter(now);
                    window.failed(now);
                    window.leave();
                }
                Admission::After(wait, _) => now += wait,
                Admission::Outage(lasts) => return assert!(lasts > S(600) && lasts <= S(670), "{lasts:?}"),
                Admission::Full => unreachable!("nobody asks"),
            }
        }
        unreachable!("it waits for ever");
    }
}
