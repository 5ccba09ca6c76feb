//! One place to wait for everybody who asks the same model with the same key: providers count by models, and what is too much for
//! one says nothing of the others. Only a limit of money closes all that the key is for.
//!
//! Whoever finds no place waits: an orchestrator before those who have begun, those before the ones who come anew, and first
//! come first served among equals. How many requests run at once follows what the provider bears (`window`), how fast they
//! follow each other that too (`pace`), and what its headers say is left (`buckets`). While it asks everybody to wait, nobody starts; while it only
//! fails, one asks for all. The first request with a prefix that a cache can hold goes alone until its reply begins, since
//! only then can the others read what it wrote. Nobody is refused, unless waiting does not help.
mod buckets;
mod budget;
mod pace;
mod window;

use super::ModelError;
use crate::clock::{Clock, seconds};
pub(super) use buckets::Limits;
use buckets::{Buckets, Need};
use budget::Budget;
use dashmap::DashMap;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use window::{Admission, Held, Rejection, Window};

/// How long a prefix stays in a provider's cache after its last use.
const WARM: Duration = Duration::from_mins(5);
/// Others wait no longer than this for the first request with their prefix.
const WARM_UP: Duration = Duration::from_secs(20);
/// Prefixes that are remembered at most, before those that have gone cold are forgotten.
const PREFIXES: usize = 256;
/// Nobody waits longer than this for what a provider says is used up.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// Nobody begins for so long after one was turned away without a word on when to come again.
const PAUSE: Duration = Duration::from_millis(500);

/// Who is paid: a provider and a name for its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub(super) provider: String,
    pub(super) credential: String,
}

/// Who shares a limit: an account and a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) account: Account,
    pub(super) model: String,
}

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// Others wait for its word.
    Orchestrator,
    /// It has begun, or was turned away before.
    Begun,
    /// It comes anew.
    New,
}

/// One request that wants a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    /// Input tokens, as far as the provider is expected to count them.
    pub(super) tokens: u64,
    pub(super) priority: Priority,
    /// What it shares with others and a cache can hold, where that is worth waiting for.
    pub(super) prefix: Option<u64>,
}

/// Why there is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shut {
    /// The provider takes nothing more, for this reason.
    Closed(ModelError),
    /// It has only failed for this long.
    Outage(Duration),
    /// What it bears is used up for this long.
    UsedUp(Duration),
}

/// The shared limits. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Limiter {
    lanes: Arc<DashMap<LaneKey, Arc<Mutex<Line>>>>,
    closed: Arc<DashMap<Account, ModelError>>,
    clock: Clock,
    max: u32,
}

impl Limiter {
    /// Makes limits that never let more than `max` requests run at once per key and model.
    pub fn new(clock: Clock, max: u32) -> Limiter {
        Limiter { lanes: Arc::default(), closed: Arc::default(), clock, max: max.max(1) }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// Where waiting does not help.
    pub(super) async fn enter(&self, key: &LaneKey, ask: Ask) -> Result<Permit, Shut> {
        let lane = Arc::clone(&self.lanes.entry(key.clone()).or_insert_with(|| Arc::new(Mutex::new(Line::new(self.max)))));
        // After the lane is there: whoever closes the account either was seen here or sees the lane.
        if let Some(error) = self.closed.get(&key.account) {
            return Err(Shut::Closed(error.clone()));
        }
        let turn = Arc::new(Notify::new());
        let place = line(&lane).join(ask, turn.clone());
        // From here on the place in the line is given back wherever this is dropped.
        let permit = Permit { lane, clock: self.clock.clone(), place, ask };
        loop {
            let standing = permit.line().stand(place, self.clock.elapsed());
            match standing {
                Standing::In => return Ok(permit),
                Standing::Out(shut) => return Err(shut),
                Standing::Waits(None) => turn.notified().await,
                Standing::Waits(Some(wait)) => {
                    // The clock's moments are whole milliseconds: a wait cut down to one would end before the gate opens, again and again.
                    let due = self.clock.now().after(wait.saturating_add(Duration::from_millis(1)));
                    tokio::select! {
                        () = turn.notified() => {}
                        () = self.clock.sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Says what the first of a line waits for.
    pub(super) fn held_by(&self, key: &LaneKey) -> String {
        self.lanes.get(key).map(|lane| line(&lane).held_by(self.clock.elapsed())).unwrap_or_default()
    }

    /// Sends everybody away who waits or comes with this account, for good.
    pub(super) fn close(&self, account: &Account, error: &ModelError) {
        self.closed.insert(account.clone(), error.clone());
        for lane in self.lanes.iter().filter(|lane| lane.key().account == *account) {
            line(&lane).close(Closed { error: error.clone(), until: None });
        }
    }
}

fn line(lane: &Mutex<Line>) -> MutexGuard<'_, Line> {
    // Nothing in the line's methods panics, and its numbers are sound at every line.
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place among those who may ask. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Permit {
    lane: Arc<Mutex<Line>>,
    clock: Clock,
    place: Place,
    ask: Ask,
}

impl Permit {
    fn line(&self) -> MutexGuard<'_, Line> {
        line(&self.lane)
    }

    /// Takes note of what an answer says of the limits.
    pub(super) fn heard(&self, limits: &Limits) {
        self.line().buckets.hear(limits, self.clock.elapsed());
    }

    /// Takes note that the reply has begun: its prefix can be read from the cache from now on.
    pub(super) fn began(&self) {
        self.line().began(self.place, self.clock.elapsed());
    }

    /// Takes note of a good answer, for which so many tokens were counted, in and out.
    pub(super) fn succeeded(&self, counted: (u64, u64)) {
        self.line().succeeded(self.place, self.ask.tokens, counted, self.clock.elapsed());
    }

    /// Takes note that the provider has too much to do, and asks everybody to wait where `wait` is given; whether it is us who ask
    /// too much.
    pub(super) fn rejected(&self, wait: Option<Duration>, is_ours: bool) {
        self.line().rejected(self.place, self.clock.elapsed(), (wait.unwrap_or(PAUSE), is_ours));
    }

    /// Takes note of a failure that is the provider's or the way's.
    pub(super) fn failed(&self) {
        self.line().window.failed(self.clock.elapsed());
    }

    /// Sends everybody away for so long who wants the same model.
    pub(super) fn close(&self, error: &ModelError, wait: Duration) {
        let until = self.clock.elapsed().saturating_add(wait);
        self.line().close(Closed { error: error.clone(), until: Some(until) });
    }

    /// Returns how long it is until one more failed request may be made again, where anybody waits for that: an outage must not
    /// multiply what is asked.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        self.line().budget.take(self.clock.elapsed(), PATIENCE)
    }

    /// Returns how many good answers there were so far to whomever.
    pub(super) fn successes(&self) -> u64 {
        self.line().successes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.clock.elapsed();
        self.line().leave(self.place, now);
    }
}

/// A place in the line: who goes first, then who came first.
type Place = (Priority, u64);

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    turn: Arc<Notify>,
}

/// What one who has a place has taken.
#[derive(Debug, Clone, Copy)]
struct Taken {
    began: Duration,
    need: Need,
    prefix: Option<u64>,
    is_settled: bool,
}

#[derive(Debug, Clone, Copy)]
enum Warmth {
    /// The one at this place goes first, since then.
    WarmingUp(Place, Duration),
    /// It can be read until then.
    Until(Duration),
}

/// Why nobody is let in, and until when.
#[derive(Debug)]
struct Closed {
    error: ModelError,
    until: Option<Duration>,
}

#[derive(Debug, PartialEq)]
enum Standing {
    In,
    Out(Shut),
    /// For others; or, where it is the first, at most so long.
    Waits(Option<Duration>),
}

/// Everybody who waits for one provider or asks it. Time is handed in.
#[derive(Debug)]
struct Line {
    window: Window,
    buckets: Buckets,
    waiting: BTreeMap<Place, Waiting>,
    inside: BTreeMap<Place, Taken>,
    joined: u64,
    prefixes: HashMap<u64, Warmth>,
    closed: Vec<Closed>,
    successes: u64,
    budget: Budget,
}

impl Line {
    fn new(max: u32) -> Line {
        Line {
            window: Window::new(max),
            buckets: Buckets::new(),
            waiting: BTreeMap::new(),
            inside: BTreeMap::new(),
            joined: 0,
            prefixes: HashMap::new(),
            closed: Vec::new(),
            successes: 0,
            budget: Budget::default(),
        }
    }

    fn join(&mut self, ask: Ask, turn: Arc<Notify>) -> Place {
        self.joined += 1;
        let place = (ask.priority, self.joined);
        self.waiting.insert(place, Waiting { ask, turn });
        place
    }

    /// Lets in whoever may come in, and says how the one at this place stands.
    fn stand(&mut self, place: Place, now: Duration) -> Standing {
        let wait = self.let_in(now);
        if self.inside.contains_key(&place) {
            return Standing::In;
        }
        if let Some(closed) = self.closed.first() {
            return Standing::Out(Shut::Closed(closed.error.clone()));
        }
        match wait {
            Err(shut) => Standing::Out(shut),
            Ok(wait) if self.waiting.first_key_value().is_some_and(|(first, _)| *first == place) => Standing::Waits(wait),
            Ok(wait) => {
                if wait.is_some() {
                    self.call_first();
                }
                Standing::Waits(None)
            }
        }
    }

    /// Has the first of the line look again: it is the one that waits for time to pass.
    fn call_first(&self) {
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.turn.notify_one();
        }
    }

    /// Lets in whoever may come in, in order; returns how long it is until somebody may for whom it is only a matter of time.
    ///
    /// # Errors
    /// Why nobody is to wait for it.
    fn let_in(&mut self, now: Duration) -> Result<Option<Duration>, Shut> {
        self.closed.retain(|closed| closed.until.is_none_or(|until| until > now));
        if !self.closed.is_empty() {
            return Ok(None);
        }
        let mut wait: Option<Duration> = None;
        let mut behind = Bound::Unbounded;
        while let Some((place, ask)) = self.waiting.range((behind, Bound::Unbounded)).next().map(|(place, waiting)| (*place, waiting.ask)) {
            behind = Bound::Excluded(place);
            if let Some(warm_in) = self.warms_up(&ask, now) {
                wait = Some(sooner(wait, warm_in));
                continue;
            }
            match self.window.admits(now) {
                Admission::Now => {}
                Admission::Full => return Ok(wait),
                Admission::After(open_in, _) => return Ok(Some(sooner(wait, open_in))),
                Admission::Outage(lasts) => return Err(Shut::Outage(lasts)),
            }
            let need = self.buckets.need(ask.tokens);
            if let Err(filled_in) = self.buckets.take(need, now) {
                if filled_in > PATIENCE {
                    return Err(Shut::UsedUp(filled_in));
                }
                return Ok(Some(sooner(wait, filled_in)));
            }
            self.window.enter(now);
            self.inside.insert(place, Taken { began: now, need, prefix: ask.prefix, is_settled: false });
            self.note_prefix(place, ask.prefix, now);
            if let Some(waiting) = self.waiting.remove(&place) {
                waiting.turn.notify_one();
            }
        }
        Ok(wait)
    }

    /// Returns how long one who comes anew waits at most for the first with its prefix.
    fn warms_up(&self, ask: &Ask, now: Duration) -> Option<Duration> {
        match self.prefixes.get(&ask.prefix?)? {
            Warmth::WarmingUp(_, since) if ask.priority == Priority::New => (*since + WARM_UP).checked_sub(now).filter(|wait| !wait.is_zero()),
            Warmth::WarmingUp(..) | Warmth::Until(_) => None,
        }
    }

    /// Notes that a prefix is being written to the cache, where it is not there already.
    fn note_prefix(&mut self, place: Place, prefix: Option<u64>, now: Duration) {
        let Some(prefix) = prefix else { return };
        if self.prefixes.len() >= PREFIXES {
            self.prefixes.retain(|_, warmth| matches!(warmth, Warmth::Until(until) if *until > now) || matches!(warmth, Warmth::WarmingUp(..)));
        }
        let is_cold = self.prefixes.get(&prefix).is_none_or(|warmth| matches!(warmth, Warmth::Until(until) if *until <= now));
        if is_cold {
            self.prefixes.insert(prefix, Warmth::WarmingUp(place, now));
        }
    }

    fn began(&mut self, place: Place, now: Duration) {
        if let Some(prefix) = self.inside.get(&place).and_then(|taken| taken.prefix) {
            self.prefixes.insert(prefix, Warmth::Until(now + WARM));
            self.call_first();
        }
    }

    fn succeeded(&mut self, place: Place, tokens: u64, counted: (u64, u64), now: Duration) {
        self.window.succeeded(now);
        self.successes += 1;
        self.budget.succeeded();
        if let Some(taken) = self.inside.get_mut(&place).filter(|taken| !taken.is_settled) {
            taken.is_settled = true;
            self.buckets.settle(taken.need, tokens, counted);
        }
    }

    fn rejected(&mut self, place: Place, now: Duration, (wait, is_ours): (Duration, bool)) {
        let began = self.inside.get(&place).map_or(now, |taken| taken.began);
        self.window.rejected(Rejection { began, wait, is_ours }, now);
        if let Some(taken) = self.inside.get_mut(&place).filter(|taken| !taken.is_settled) {
            taken.is_settled = true;
            self.buckets.give_back(taken.need, true);
        }
    }

    /// Takes one out, from wherever it stands, and lets in whoever may come in for it.
    fn leave(&mut self, place: Place, now: Duration) {
        if let Some(taken) = self.inside.remove(&place) {
            self.window.leave();
            if !taken.is_settled {
                // It reached the provider, which counted the request at least.
                self.buckets.give_back(taken.need, false);
            }
            if let Some(prefix) = taken.prefix.filter(|prefix| matches!(self.prefixes.get(prefix), Some(Warmth::WarmingUp(by, _)) if *by == place)) {
                self.prefixes.remove(&prefix);
            }
        }
        self.waiting.remove(&place);
        if !matches!(self.let_in(now), Ok(None)) {
            self.call_first();
        }
    }

    fn held_by(&mut self, now: Duration) -> String {
        let left = |wait: Duration| seconds(Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        match self.window.admits(now) {
            Admission::Now => {}
            Admission::Full => return format!("as many ask as may at once: {}", self.window.running()),
            Admission::After(wait, Held::Outage) => return format!("every request has failed of late, so one asks for all in {}", left(wait)),
            Admission::After(wait, Held::Told) => return format!("it said that it has too much to do, so nobody asks for {}", left(wait)),
            Admission::After(wait, Held::Pace) => return format!("it bears one request at a time, the next in {}", left(wait)),
            Admission::Outage(lasts) => return format!("every request has failed for {}", left(lasts)),
        }
        let need = self.waiting.values().next().map(|waiting| self.buckets.need(waiting.ask.tokens)).unwrap_or_default();
        match self.buckets.wait(need, now) {
            Duration::ZERO => "others go first".to_owned(),
            wait => format!("its limit is used up for {}", left(wait)),
        }
    }

    fn close(&mut self, closed: Closed) {
        self.closed.push(closed);
        self.waiting.values().for_each(|waiting| waiting.turn.notify_one());
    }
}

fn sooner(wait: Option<Duration>, other: Duration) -> Duration {
    wait.map_or(other, |wait| wait.min(other))
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
