//! One place to wait for everybody who asks the same provider with the same key.
//!
//! Nobody is refused; whoever finds no place waits, first come first served. How many requests run at once follows what
//! the provider bears: one more after a whole round of good answers, half as many after it said it has too much to do.
//! While it asks everybody to wait, nobody starts.
use crate::clock::Clock;
use dashmap::DashMap;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// How many requests run at once before anything is known.
const FIRST_LIMIT: f64 = 4.0;
/// The limit is halved at most once in this time: the answers that follow belong to the same crowd.
const CUT_EVERY: Duration = Duration::from_secs(5);

/// Who shares a limit: a provider and a name for its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) provider: String,
    pub(super) credential: String,
}

/// The shared limits. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Limiter {
    lanes: Arc<DashMap<LaneKey, Arc<Lane>>>,
    clock: Clock,
    max: u32,
}

#[derive(Debug)]
struct Lane {
    /// Held by whoever is first in the queue; tokio's mutex is fair, so its waiters are the queue.
    turnstile: tokio::sync::Mutex<()>,
    window: Mutex<Window>,
    freed: Notify,
}

impl Limiter {
    /// Makes limits that never let more than `max` requests run at once per provider and key.
    pub fn new(clock: Clock, max: u32) -> Limiter {
        Limiter { lanes: Arc::new(DashMap::new()), clock, max: max.max(1) }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self, key: &LaneKey) -> Permit {
        let lane = self.lane(key);
        lane.admit(&self.clock).await;
        Permit { lane, clock: self.clock.clone() }
    }

    fn lane(&self, key: &LaneKey) -> Arc<Lane> {
        let make = || Arc::new(Lane { turnstile: tokio::sync::Mutex::new(()), window: Mutex::new(Window::new(self.max)), freed: Notify::new() });
        Arc::clone(&self.lanes.entry(key.clone()).or_insert_with(make))
    }
}

impl Lane {
    async fn admit(&self, clock: &Clock) {
        let _first = self.turnstile.lock().await;
        loop {
            // Asked for before looking, so that a place freed in between is not missed.
            let freed = self.freed.notified();
            let admission = self.window().admit(clock.elapsed());
            match admission {
                Admission::Now => return,
                Admission::Full => freed.await,
                // The clock's moments are whole milliseconds: a wait cut down to one would end before the gate opens, again and again.
                Admission::After(wait) => clock.sleep_until(clock.now().after(wait.saturating_add(Duration::from_millis(1)))).await,
            }
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // Nothing in the window's methods panics, and its numbers are sound at every line.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those who may ask. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Permit {
    lane: Arc<Lane>,
    clock: Clock,
}

impl Permit {
    /// Takes note of a good answer.
    pub(super) fn succeeded(&self) {
        self.lane.window().succeeded();
    }

    /// Takes note that the provider has too much to do, and asks everybody to wait where `wait` is given.
    pub(super) fn rejected(&self, wait: Option<Duration>) {
        self.lane.window().rejected(self.clock.elapsed(), wait);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.lane.window().leave();
        self.lane.freed.notify_one();
    }
}

/// How many may run at once, and from when. Values in, values out: time is handed in.
#[derive(Debug, Clone)]
struct Window {
    limit: f64,
    max: f64,
    running: u32,
    /// Nobody starts before this.
    gate: Duration,
    cut: Option<Duration>,
}

/// Whether one more may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Now,
    Full,
    After(Duration),
}

impl Window {
    fn new(max: u32) -> Window {
        let max = f64::from(max);
        Window { limit: FIRST_LIMIT.min(max), max, running: 0, gate: Duration::ZERO, cut: None }
    }

    fn admit(&mut self, now: Duration) -> Admission {
        if let Some(wait) = self.gate.checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Admission::After(wait);
        }
        if f64::from(self.running) + 1.0 > self.limit {
            return Admission::Full;
        }
        self.running += 1;
        Admission::Now
    }

    fn leave(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    fn succeeded(&mut self) {
        self.limit = (self.limit + 1.0 / self.limit).min(self.max);
    }

    fn rejected(&mut self, now: Duration, wait: Option<Duration>) {
        if self.cut.is_none_or(|cut| now >= cut + CUT_EVERY) {
            self.limit = (self.limit / 2.0).max(1.0);
            self.cut = Some(now);
        }
        // Only ever extended: a shorter wait does not take back a longer one.
        self.gate = self.gate.max(now.saturating_add(wait.unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Timestamp, tasks::Tasks};
    use std::collections::{BTreeMap, VecDeque};

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_limit_grows_by_one_a_round_and_is_halved_once_a_crowd() {
        let mut window = Window::new(8);
        assert_eq!((0..5).map(|_| window.admit(S(0))).filter(|admission| *admission == Admission::Now).count(), 4);
        assert_eq!(window.admit(S(0)), Admission::Full);
        for _ in 0..100 {
            window.succeeded();
        }
        assert!((window.limit - 8.0).abs() < f64::EPSILON, "never beyond the maximum");
        for _ in 0..20 {
            window.rejected(S(10), None);
        }
        assert!((window.limit - 4.0).abs() < f64::EPSILON, "one crowd, one cut");
        for n in 0..20 {
            window.rejected(S(20 + 5 * n), None);
        }
        assert!((window.limit - 1.0).abs() < f64::EPSILON, "never below one");
    }

    #[test]
    fn the_gate_holds_everybody_and_is_only_extended() {
        let mut window = Window::new(8);
        window.rejected(S(100), Some(S(30)));
        window.rejected(S(110), Some(S(1)));
        assert_eq!(window.admit(S(110)), Admission::After(S(20)));
        window.rejected(S(120), Some(Duration::MAX));
        assert!(matches!(window.admit(S(130)), Admission::After(_)), "no overflow");
    }

    /// Fifty agents of twenty calls each at a provider that bears five requests a second and says when to come again.
    #[test]
    fn many_agents_at_one_limit_are_rarely_rejected_and_none_is_lost() {
        let mut window = Window::new(64);
        let mut queue: VecDeque<(usize, u32)> = (0..50).map(|agent| (agent, 1)).collect();
        let mut left = [20_u32; 50];
        // What ends when: the agent, its attempt, and whether it was rejected.
        let mut ends: BTreeMap<(u64, usize), (u32, bool)> = BTreeMap::new();
        let mut retries: BTreeMap<(u64, usize), u32> = BTreeMap::new();
        let (mut now, mut tokens, mut refilled) = (0_u64, 5.0_f64, 0_u64);
        let (mut successes, mut rejections, mut worst) = (0_u32, 0_u32, 0_u32);
        while successes < 1000 {
            assert!(now < 3_600_000, "it takes an hour and is not done");
            while let Some((agent, attempt)) = queue.front().copied() {
                if window.admit(Duration::from_millis(now)) != Admission::Now {
                    break;
                }
                queue.pop_front();
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let gained = (now - refilled) as f64 / 200.0;
                (tokens, refilled) = ((tokens + gained).min(5.0), now);
                let is_rejected = tokens < 1.0;
                tokens -= if is_rejected { 0.0 } else { 1.0 };
                let takes = if is_rejected { 50 } else { 1_500 + 97 * (agent as u64 % 10) };
                ends.insert((now + takes, agent), (attempt, is_rejected));
            }
            now += 10;
            while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, agent), (attempt, is_rejected)) = entry.remove_entry();
                window.leave();
                if is_rejected {
                    rejections += 1;
                    worst = worst.max(attempt);
                    window.rejected(Duration::from_millis(now), Some(S(1)));
                    retries.insert((now + 1_000, agent), attempt + 1);
                } else {
                    successes += 1;
                    window.succeeded();
                    left[agent] -= 1;
                    if left[agent] > 0 {
                        queue.push_back((agent, 1));
                    }
                }
            }
            while let Some(entry) = retries.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, agent), attempt) = entry.remove_entry();
                queue.push_back((agent, attempt));
            }
        }
        assert!(f64::from(rejections) < 0.1 * f64::from(successes), "{rejections} rejections");
        assert!(worst < 10, "an agent was rejected {worst} times in a row and would be lost");
        assert!(now < 400_000, "the floor is 200 s, it took {now} ms");
    }

    fn key(name: &str) -> LaneKey {
        LaneKey { provider: name.to_owned(), credential: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_no_place_waits_in_order_and_drops_give_places_back() {
        let limiter = Limiter::new(Clock::fake(Timestamp(0)), 1);
        let held = limiter.enter(&key("a")).await;
        let mut tasks = Tasks::default();
        for n in 0..20 {
            let limiter = limiter.clone();
            let enter = async move {
                let permit = limiter.enter(&key("a")).await;
                drop(permit);
                n
            };
            tasks.spawn(enter, |_| 99);
            // Let it take its place in the queue before the next one comes.
            tokio::task::yield_now().await;
        }
        // Somebody who gives up while waiting does not hold up the others.
        assert!(tokio::time::timeout(S(1), limiter.enter(&key("a"))).await.is_err());
        // Another key has places of its own.
        drop(limiter.enter(&key("b")).await);
        drop(held);
        let mut order = Vec::new();
        while let Some(n) = tasks.next().await {
            order.push(n);
        }
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_rejection_everybody_waits_for_the_gate() {
        let clock = Clock::fake(Timestamp(1_000));
        let limiter = Limiter::new(clock.clone(), 4);
        let permit = limiter.enter(&key("a")).await;
        permit.rejected(Some(S(30)));
        drop(permit);
        drop(limiter.enter(&key("a")).await);
        assert_eq!(clock.now(), Timestamp(31_001));
        let permit = limiter.enter(&key("a")).await;
        permit.rejected(Some(Duration::from_micros(1_500)));
        drop(permit);
        drop(limiter.enter(&key("a")).await);
        assert_eq!(clock.now(), Timestamp(31_003), "a part of a millisecond is waited for");
    }
}
