//! Accounts: what may be used of turns, tokens and money, and by whom.
//!
//! They nest: the run's is around those of called workflows and of steps with a `budget`, these around an agent's own, and
//! that around its sub-agents'. Before a request, what it is expected to use is set aside in all of them or in none; after
//! it, what it used is charged to all. What would fit but for requests that are in flight waits until those are settled.
//!
//! Invariant: what is used and what is set aside stay within an account's limits together. So a limit is passed by no more
//! than what the requests in flight, when it is reached, use beyond what was expected of them. The worst that a request can
//! cost is not set aside: with a long output limit no small budget would ever do.
use super::Trouble;
use crate::{
    clock::{Clock, seconds},
    event::{Failure, FailureKind, Limit},
    journal::{Allowance, Spent},
    llm::Booking,
    plan::Limits,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// What a request is expected to use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Dollars; a price that is not known sets nothing aside.
    pub usd: Option<f64>,
}

/// How often a budget is raised by one answer.
const MOST_AT_ONCE: u32 = 1_000_000;
const RUN: &str = "the run's budget";
const RUN_HINT: &str = "raise the workflow's `budget`, then `spinney retry` keeps what was done; with `on_exceed: finish` the run ends with what there is";

/// Says that a limit of the whole run is reached.
pub fn out_of_budget(limit: Limit) -> Failure {
    Failure::new(FailureKind::Limit(limit), format!("{RUN} is used up")).hint(RUN_HINT)
}

/// An account, within another one where it is not the run's.
pub struct Account {
    name: String,
    hint: &'static str,
    limits: Limits,
    around: Option<Arc<Account>>,
    /// Holds the account to its time as well.
    clock: Option<Clock>,
    ledger: Mutex<Ledger>,
    /// What all accounts of a run share.
    books: Arc<Books>,
}

/// What all accounts of a run share.
#[derive(Default)]
struct Books {
    /// Told whenever something is given back or allowed.
    changed: Notify,
    /// Held while something is set aside or charged and told of, so that it is told in the order in which it happens.
    order: Mutex<()>,
}

#[derive(Debug, Clone, Copy)]
struct Ledger {
    used: Sum,
    /// Set aside for what is in flight.
    held: Sum,
    /// How often the limits hold: once, and once more for each time a person allowed as much again.
    times: u32,
    /// Whether a person is asked for more.
    asks: bool,
    /// The limit that refused a request last.
    reached: Option<Limit>,
    /// What that request was expected to use.
    refused: Sum,
}

/// An amount of each of what is limited; money in millionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    turns: u64,
    tokens: u64,
    micro_usd: u64,
}

impl Sum {
    fn of(spent: &Spent) -> Sum {
        Sum { turns: spent.turns.into(), tokens: spent.usage.total(), micro_usd: micro(spent.usd) }
    }

    fn plus(self, other: Sum) -> Sum {
        Sum {
            turns: self.turns.saturating_add(other.turns),
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }

    fn less(self, other: Sum) -> Sum {
        Sum { turns: self.turns - other.turns, tokens: self.tokens - other.tokens, micro_usd: self.micro_usd - other.micro_usd }
    }

    /// Returns the first limit that this passes.
    fn beyond(self, most: Sum) -> Option<Limit> {
        let passed = [(Limit::Turns, self.turns > most.turns), (Limit::Tokens, self.tokens > most.tokens), (Limit::Money, self.micro_usd > most.micro_usd)];
        passed.iter().find(|(_, is_passed)| *is_passed).map(|(limit, _)| *limit)
    }
}

/// Dollars in millionths, rounded up, so that many small sums do not vanish.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn micro(usd: f64) -> u64 {
    (usd * 1e6 - 1e-6).ceil().clamp(0.0, 9e15) as u64
}

#[expect(clippy::cast_precision_loss, reason = "shown in cents")]
fn dollars(micro_usd: u64) -> f64 {
    micro_usd as f64 / 1e6
}

impl Books {
    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nothing was set aside.
enum Refusal<'a> {
    /// There is not so much left in this account.
    Spent(&'a Account, Limit, Sum),
    /// There may be, once what is in flight is settled.
    Busy(&'a Account, Limit, Sum),
}

impl Account {
    /// Opens the account of a run, which holds it to its time by the clock, with what was used before.
    pub fn of_run(limits: Limits, spent: &Spent, clock: Clock) -> Account {
        Account { clock: Some(clock), ..Account::open(RUN.to_owned(), RUN_HINT, limits, None, spent) }
    }

    /// Opens an account within another, with what was used of it before; `name` and `hint` are for whoever is refused.
    pub fn within(around: &Arc<Account>, (name, hint): (String, &'static str), limits: Limits, spent: &Spent) -> Account {
        Account::open(name, hint, limits, Some(around.clone()), spent)
    }

    /// Has the limits hold as often as people have said, and, where they have not said that it is enough, a person asked at the end
    /// of that where one is to be.
    #[must_use]
    pub fn allowed(self, said: Allowance, asks: bool) -> Account {
        self.change(|ledger| (ledger.times, ledger.asks) = (said.raises.saturating_add(1), asks && !said.is_refused));
        self
    }

    fn open(name: String, hint: &'static str, limits: Limits, around: Option<Arc<Account>>, spent: &Spent) -> Account {
        let ledger = Ledger { used: Sum::of(spent), held: Sum::default(), times: 1, asks: false, reached: None, refused: Sum::default() };
        let books = around.as_ref().map(|around| around.books.clone()).unwrap_or_default();
        Account { name, hint, limits, around, clock: None, ledger: Mutex::new(ledger), books }
    }

    /// Sets aside what a request is expected to use, here and in every account around; waits while only what is in flight
    /// stands in the way. `booked` is told what became of it, in the order in which that is so.
    ///
    /// # Errors
    /// The limit that is used up, and whose it is, the outermost first: within it nothing can go on. Or that a person is
    /// asked for more. Nothing is set aside then.
    pub async fn reserve(self: &Arc<Self>, expected: Expected, booked: &(dyn Fn(Booking) + Send + Sync)) -> Result<Reservation, Trouble> {
        let wanted = Account::wanted(expected);
        loop {
            let changed = self.books.changed.notified();
            match self.take_and_tell(wanted, booked) {
                Ok(()) => return Ok(self.reserved(wanted)),
                Err(Refusal::Busy(..)) => changed.await,
                Err(Refusal::Spent(account, limit, used)) => return Err(account.refuse(limit, used, wanted)),
            }
        }
    }

    fn take_and_tell(&self, wanted: Sum, booked: &dyn Fn(Booking)) -> Result<(), Refusal<'_>> {
        let _order = self.books.order();
        let taken = self.take(wanted);
        match &taken {
            Ok(()) => booked(Booking::Admitted),
            Err(Refusal::Spent(..)) => booked(Booking::Refused),
            Err(Refusal::Busy(..)) => {}
        }
        taken
    }

    /// Does the same at once: what is in flight is taken for used, as where it is known to be.
    ///
    /// # Errors
    /// As `reserve`.
    pub fn reserve_now(self: &Arc<Self>, expected: Expected) -> Result<Reservation, Trouble> {
        let wanted = Account::wanted(expected);
        match self.take(wanted) {
            Ok(()) => Ok(self.reserved(wanted)),
            Err(Refusal::Busy(account, limit, used) | Refusal::Spent(account, limit, used)) => Err(account.refuse(limit, used, wanted)),
        }
    }

    fn wanted(expected: Expected) -> Sum {
        Sum { turns: 1, tokens: expected.tokens, micro_usd: micro(expected.usd.unwrap_or(0.0)) }
    }

    fn reserved(self: &Arc<Self>, held: Sum) -> Reservation {
        Reservation { account: self.clone(), held: Some(held) }
    }

    /// Returns the accounts from the run's to this one.
    fn levels(&self) -> Vec<&Account> {
        let mut levels: Vec<&Account> = std::iter::successors(Some(self), |account| account.around.as_deref()).collect();
        levels.reverse();
        levels
    }

    /// Sets something aside in every account, or in none.
    fn take(&self, wanted: Sum) -> Result<(), Refusal<'_>> {
        let levels = self.levels();
        for (at, level) in levels.iter().enumerate() {
            if let Err(refusal) = level.hold_back(wanted) {
                for taken in &levels[..at] {
                    taken.change(|ledger| ledger.held = ledger.held.less(wanted));
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn hold_back(&self, wanted: Sum) -> Result<(), Refusal<'_>> {
        let late = self.clock.as_ref().is_some_and(|clock| clock.elapsed() >= self.time(self.times()));
        let mut ledger = self.ledger();
        let most = self.most(ledger.times);
        // What a price that is not known leaves out must not let a request pass a limit that is used up to the last cent.
        let wanted_at_least = Sum { micro_usd: wanted.micro_usd.max(1), ..wanted };
        let spent = ledger.used.plus(wanted_at_least).beyond(most).or(late.then_some(Limit::Time));
        if let Some(limit) = spent {
            (ledger.reached, ledger.refused) = (Some(limit), wanted);
            return Err(Refusal::Spent(self, limit, ledger.used));
        }
        if let Some(limit) = ledger.used.plus(ledger.held).plus(wanted_at_least).beyond(most) {
            return Err(Refusal::Busy(self, limit, ledger.used.plus(ledger.held)));
        }
        ledger.held = ledger.held.plus(wanted);
        Ok(())
    }

    fn most(&self, times: u32) -> Sum {
        Sum {
            turns: u64::from(self.limits.turns).saturating_mul(times.into()),
            tokens: self.limits.tokens.saturating_mul(times.into()),
            micro_usd: self.limits.usd.map_or(u64::MAX, |usd| micro(usd * f64::from(times))),
        }
    }

    fn time(&self, times: u32) -> Duration {
        self.limits.time.max(Duration::from_millis(1)).saturating_mul(times)
    }

    fn refuse(&self, limit: Limit, used: Sum, wanted: Sum) -> Trouble {
        self.change(|ledger| (ledger.reached, ledger.refused) = (Some(limit), wanted));
        if self.asks() {
            return Trouble::Parked;
        }
        let most = self.most(self.times());
        let how = match limit {
            Limit::Turns => format!("{} of {} turns", used.turns, most.turns),
            Limit::Tokens => format!("{} of {} tokens, and a request of about {} is next", used.tokens, most.tokens, wanted.tokens),
            Limit::Money => {
                let next = if wanted.micro_usd > 0 { format!(", and a request of about ${:.2} is next", dollars(wanted.micro_usd)) } else { String::new() };
                format!("${:.2} of ${:.2}{next}", dollars(used.micro_usd), dollars(most.micro_usd))
            }
            Limit::Time | Limit::Repeats => return self.used_up(limit, "its time is over").into(),
        };
        self.used_up(limit, &how).into()
    }

    /// Asks, for people, whether as much again may be used, as often as the next request needs it: what is asked, and how often.
    pub fn question(&self, limit: Limit) -> (String, u32) {
        let Ledger { used, refused, times, .. } = *self.ledger();
        let (own, needed) = (self.most(1), used.plus(refused));
        let by = match limit {
            Limit::Tokens => needed.tokens.div_ceil(own.tokens.max(1)),
            Limit::Money => needed.micro_usd.div_ceil(own.micro_usd.max(1)),
            Limit::Turns | Limit::Time | Limit::Repeats => 0,
        };
        let by = u32::try_from(by).unwrap_or(u32::MAX).saturating_sub(times).clamp(1, MOST_AT_ONCE);
        let (used, most, next) = match limit {
            Limit::Turns => (format!("{} {}", used.turns, if used.turns == 1 { "turn" } else { "turns" }), self.limits.turns.to_string(), String::new()),
            Limit::Tokens => (format!("{} tokens", used.tokens), (self.limits.tokens.saturating_mul(by.into())).to_string(), refused.tokens.to_string()),
            Limit::Money => {
                let most = self.limits.usd.unwrap_or_default() * f64::from(by);
                (format!("${:.2}", dollars(used.micro_usd)), format!("${most:.2}"), format!("${:.2}", dollars(refused.micro_usd)))
            }
            Limit::Time | Limit::Repeats => ("its time".to_owned(), seconds(self.limits.time), String::new()),
        };
        let asked = if by > 1 {
            format!("may it use {by} times as much again, {most} more, since a request of about {next} is next?")
        } else {
            format!("may it use as much again, {most} more?")
        };
        (format!("{} is used up ({used} so far): {asked}", self.name), by)
    }

    fn used_up(&self, limit: Limit, how: &str) -> Failure {
        Failure::new(FailureKind::Limit(limit), format!("{} is used up: {how}", self.name)).hint(self.hint)
    }

    /// Returns the limit that refused a request, once one did.
    pub fn reached(&self) -> Option<Limit> {
        self.ledger().reached
    }

    /// Returns how much of the account's time is left to this process, by the clock it was opened with.
    pub fn time_left(&self) -> Duration {
        let elapsed = self.clock.as_ref().map(Clock::elapsed).unwrap_or_default();
        self.limits.time.saturating_mul(self.times()).saturating_sub(elapsed)
    }

    /// Notes that the account's time is over.
    pub fn expire(&self) {
        self.change(|ledger| ledger.reached = Some(Limit::Time));
    }

    /// Allows as much again as the limits say, so many times.
    pub fn raise(&self, by: u32) {
        self.change(|ledger| (ledger.times, ledger.reached) = (ledger.times.saturating_add(by), None));
        self.books.changed.notify_waiters();
    }

    /// Returns whether a person is asked for more at a limit.
    pub fn asks(&self) -> bool {
        self.ledger().asks
    }

    /// Lets nobody wait for a person any more: the limits hold.
    pub fn hold(&self) {
        self.change(|ledger| ledger.asks = false);
    }

    fn times(&self) -> u32 {
        self.ledger().times
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // No line that holds it panics half-way: its numbers are sound at every line.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger());
    }
}

/// What is set aside for one request. Dropped, it is given back and nothing is charged.
#[must_use]
pub struct Reservation {
    account: Arc<Account>,
    held: Option<Sum>,
}

impl Reservation {
    /// Gives back what was set aside and charges what was used; `booked` is told of it as `reserve` does.
    pub fn settle(mut self, used: &Spent, booked: &dyn Fn(Booking)) {
        let account = self.account.clone();
        let _order = account.books.order();
        self.end(Sum::of(used));
        booked(Booking::Settled);
    }

    fn end(&mut self, used: Sum) {
        let Some(held) = self.held.take() else { return };
        for level in self.account.levels() {
            level.change(|ledger| (ledger.held, ledger.used) = (ledger.held.less(held), ledger.used.plus(used)));
        }
        self.account.books.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end(Sum::default());
    }
}

#[cfg(test)]
mod tests;
