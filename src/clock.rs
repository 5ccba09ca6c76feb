//! Time: the only place that reads the clock or sleeps.
//!
//! A `Clock` is handed down; tests hand down one that they move themselves. What is recorded is a `Timestamp`
//! (milliseconds since the Unix epoch); durations are measured on the monotonic side of the same clock.
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// Returns a duration in whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a word for this boot of the machine; none where the system has no such word.
pub fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.chars().filter(char::is_ascii_hexdigit).take(16).collect()
}

/// Writes a time that was waited for as people say it: `1 second`, `0.25 seconds`.
pub fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if duration == Duration::from_secs(1) { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

impl Timestamp {
    /// Returns the moment `duration` after this one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(millis(duration)))
    }

    /// Returns how long after `earlier` this is; zero where it is not after.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC, to the second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Days to civil date, with years that begin in March so that the leap day is last.
        let z = days + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest % 3600 / 60, rest % 60)
    }
}

/// The last sign of life of some work. Clones share it.
#[derive(Debug, Clone)]
pub struct Pulse {
    clock: Clock,
    last_ms: Arc<AtomicU64>,
    held: Arc<AtomicUsize>,
}

/// As long as this lives, silence is not counted: a person is waited for, say.
#[derive(Debug)]
pub struct Held(Pulse);

impl Pulse {
    /// Begins with a sign of life.
    pub fn new(clock: &Clock) -> Pulse {
        Pulse { clock: clock.clone(), last_ms: Arc::new(AtomicU64::new(millis(clock.elapsed()))), held: Arc::default() }
    }

    /// Notes a sign of life.
    pub fn beat(&self) {
        self.beat_until(Duration::ZERO);
    }

    /// Notes a sign of life, and that the next is not to be expected before `wait` is over.
    pub fn beat_until(&self, wait: Duration) {
        self.last_ms.fetch_max(millis(self.clock.elapsed().saturating_add(wait)), Ordering::SeqCst);
    }

    /// Stops counting silence.
    pub fn hold(&self) -> Held {
        self.held.fetch_add(1, Ordering::SeqCst);
        Held(self.clone())
    }

    /// Waits until there was no sign of life for `longest`.
    pub async fn silent_for(&self, longest: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::SeqCst));
            let due = last.saturating_add(longest);
            let is_held = self.held.load(Ordering::SeqCst) > 0;
            match due.checked_sub(self.clock.elapsed()) {
                Some(left) if left > Duration::ZERO => tokio::time::sleep(left).await,
                Some(_) | None if is_held => tokio::time::sleep(longest).await,
                Some(_) | None => return,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.beat();
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where time comes from.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
    /// What it said last, and when by the measure of `elapsed`, where it is steady.
    last: Option<Arc<Mutex<(Timestamp, Duration)>>>,
}

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant },
    Fake { now_ms: Arc<AtomicU64> },
    Runtime { start: tokio::time::Instant, start_ms: Arc<AtomicU64> },
}

impl Clock {
    /// The machine's clock.
    #[expect(clippy::disallowed_methods, reason = "this module is the one place that reads the clock")]
    pub fn system() -> Clock {
        Source::System { start: Instant::now() }.into()
    }

    /// A clock that stands still until `advance` moves it.
    pub fn fake(at: Timestamp) -> Clock {
        Source::Fake { now_ms: Arc::new(AtomicU64::new(at.0)) }.into()
    }

    /// A clock that goes with the time of the runtime it is made in, from `at` on: where that time is simulated, it stands
    /// still while there is work and then moves to what is due first.
    pub fn runtime(at: Timestamp) -> Clock {
        Source::Runtime { start: tokio::time::Instant::now(), start_ms: Arc::new(AtomicU64::new(at.0)) }.into()
    }

    /// Moves a fake clock; every other is left alone.
    pub fn advance(&self, by: Duration) {
        if let Source::Fake { now_ms } = &self.source {
            now_ms.fetch_add(millis(by), Ordering::SeqCst);
        }
    }

    /// Sets a runtime's clock as somebody sets the machine's, forwards or back; what is measured is not moved. Every other is
    /// left alone.
    pub fn set(&self, now: Timestamp) {
        if let Source::Runtime { start, start_ms } = &self.source {
            start_ms.store(now.0.saturating_sub(millis(start.elapsed())), Ordering::SeqCst);
        }
    }

    /// Returns the same clock, but as one that never goes back, and stands nowhere before `since`: where somebody sets the
    /// machine's clock back it goes on by what is measured, so that nothing that is waited for is waited for twice.
    #[must_use]
    pub fn steady(&self, since: Timestamp) -> Clock {
        Clock { last: Some(Arc::new(Mutex::new((since, self.elapsed())))), ..self.clone() }
    }

    /// Returns the present moment.
    pub fn now(&self) -> Timestamp {
        let now = self.source.now();
        let Some(last) = &self.last else { return now };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = self.elapsed();
        let now = now.max(last.0.after(measured.saturating_sub(last.1)));
        // Parts of a millisecond add up.
        if now > last.0 {
            *last = (now, measured);
        }
        now
    }

    /// Returns the time since this clock was made, unmoved by changes of the wall clock.
    pub fn elapsed(&self) -> Duration {
        match &self.source {
            Source::System { start } => start.elapsed(),
            Source::Fake { now_ms } => Duration::from_millis(now_ms.load(Ordering::SeqCst)),
            Source::Runtime { start, .. } => start.elapsed(),
        }
    }

    /// Waits until `due`. On a fake clock the wait ends at once and the clock stands at `due`.
    pub async fn sleep_until(&self, due: Timestamp) {
        match &self.source {
            Source::System { .. } | Source::Runtime { .. } => tokio::time::sleep(due.since(self.now())).await,
            Source::Fake { now_ms } => {
                now_ms.fetch_max(due.0, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    }
}

impl From<Source> for Clock {
    fn from(source: Source) -> Clock {
        Clock { source, last: None }
    }
}

impl Source {
    #[expect(clippy::disallowed_methods, reason = "this module is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        match self {
            Source::System { .. } => Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)),
            Source::Fake { now_ms } => Timestamp(now_ms.load(Ordering::SeqCst)),
            Source::Runtime { start, start_ms } => Timestamp(start_ms.load(Ordering::SeqCst)).after(start.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_goes_on_where_the_other_is_set_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::runtime(Timestamp(10_000));
            let steady = clock.steady(Timestamp(12_000));
            assert_eq!(steady.now(), Timestamp(12_000), "nowhere before what was recorded");
            steady.sleep_until(Timestamp(12_500)).await;
            assert_eq!((clock.now(), steady.now()), (Timestamp(10_500), Timestamp(12_500)));
            clock.set(Timestamp(20_000));
            assert_eq!(steady.now(), Timestamp(20_000), "forwards it goes along");
            clock.set(Timestamp(0));
            for due in [20_001, 20_400] {
                steady.sleep_until(Timestamp(due)).await;
                assert_eq!(steady.now(), Timestamp(due), "what is waited for is waited for once");
            }
        });
    }

    #[test]
    fn timestamps_read_as_dates() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp(951_782_400_000).to_string(), "2000-02-29T00:00:00Z");
        assert_eq!(Timestamp(1_796_083_199_999).to_string(), "2026-11-30T23:59:59Z");
    }
}
