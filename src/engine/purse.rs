//! The account of a whole run: reserved before each request, settled after.
use crate::{
    agent::{Purse, Trouble, out_of_budget},
    clock::Clock,
    event::Limit,
    journal::Spent,
    message::Reply,
    plan::Limits,
};
use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// Limits of a run and what is used and set aside of them.
#[derive(Debug)]
pub(super) struct RunPurse {
    limits: Limits,
    clock: Clock,
    tokens: AtomicU64,
    reserved: AtomicU64,
    turns: AtomicU32,
    micro_usd: AtomicU64,
    reached: AtomicU8,
    /// How often the limits hold: once, and once more for each time a person allowed as much again.
    times: AtomicU32,
    asks: AtomicBool,
}

impl RunPurse {
    /// Begins with what the run has used already.
    pub(super) fn new(limits: Limits, spent: &Spent, clock: Clock) -> RunPurse {
        RunPurse {
            limits,
            clock,
            tokens: AtomicU64::new(spent.usage.total()),
            reserved: AtomicU64::new(0),
            turns: AtomicU32::new(spent.turns),
            micro_usd: AtomicU64::new(micro(spent.usd)),
            reached: AtomicU8::new(0),
            times: AtomicU32::new(1),
            asks: AtomicBool::new(false),
        }
    }

    /// Lets whoever is refused wait for a person, who has allowed as much again this often.
    #[must_use]
    pub(super) fn asking(self, raises: u32) -> RunPurse {
        RunPurse { times: AtomicU32::new(1 + raises), asks: AtomicBool::new(true), ..self }
    }

    /// Allows as much again as the limits say.
    pub(super) fn raise(&self) {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.reached.store(0, Ordering::SeqCst);
    }

    /// Lets nobody wait any more: the limits hold.
    pub(super) fn hold(&self) {
        self.asks.store(false, Ordering::SeqCst);
    }

    fn times(&self) -> u32 {
        self.times.load(Ordering::SeqCst)
    }

    /// Returns the limit that refused a request, once one did.
    pub(super) fn reached(&self) -> Option<Limit> {
        match self.reached.load(Ordering::SeqCst) {
            1 => Some(Limit::Turns),
            2 => Some(Limit::Tokens),
            3 => Some(Limit::Money),
            4 => Some(Limit::Time),
            _ => None,
        }
    }

    /// Returns how much of the run's time is left to this process.
    pub(super) fn time_left(&self) -> Duration {
        self.limits.time.saturating_mul(self.times()).saturating_sub(self.clock.elapsed())
    }

    /// Notes that the run's time is over.
    pub(super) fn expire(&self) {
        let _ = self.refuse(Limit::Time);
    }

    fn refuse(&self, limit: Limit) -> Result<(), Limit> {
        let number = match limit {
            Limit::Turns => 1,
            Limit::Tokens => 2,
            Limit::Money => 3,
            Limit::Time => 4,
            Limit::Repeats => 0,
        };
        self.reached.store(number, Ordering::SeqCst);
        Err(limit)
    }

    fn take(&self, tokens: u64) -> Result<(), Limit> {
        let used = self.tokens.load(Ordering::SeqCst) + self.reserved.load(Ordering::SeqCst);
        if used.saturating_add(tokens) > self.limits.tokens.saturating_mul(u64::from(self.times())) {
            return self.refuse(Limit::Tokens);
        }
        if self.limits.usd.is_some_and(|most| self.micro_usd.load(Ordering::SeqCst) >= micro(most * f64::from(self.times()))) {
            return self.refuse(Limit::Money);
        }
        if self.clock.elapsed() >= self.limits.time.max(Duration::from_millis(1)).saturating_mul(self.times()) {
            return self.refuse(Limit::Time);
        }
        // Agents ask from one thread, so that looking and taking is one step; the counters are atomic for `Sync` only.
        if self.turns.load(Ordering::SeqCst) >= self.limits.turns.saturating_mul(self.times()) {
            return self.refuse(Limit::Turns);
        }
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.reserved.fetch_add(tokens, Ordering::SeqCst);
        Ok(())
    }
}

impl RunPurse {
    /// Returns whether a person is asked for more at the limit.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::SeqCst)
    }
}

impl Purse for RunPurse {
    fn reserve(&self, tokens: u64) -> Result<(), Trouble> {
        self.take(tokens).map_err(|limit| if self.asks() { Trouble::Parked } else { out_of_budget(limit).into() })
    }

    fn settle(&self, reserved: u64, reply: Option<&Reply>) {
        self.reserved.fetch_sub(reserved, Ordering::SeqCst);
        match reply {
            Some(reply) => {
                self.tokens.fetch_add(reply.usage.total(), Ordering::SeqCst);
                self.micro_usd.fetch_add(micro(reply.usd.unwrap_or(0.0)), Ordering::SeqCst);
            }
            None => {
                self.turns.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

/// Dollars in millionths, rounded up, so that many small sums do not vanish.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn micro(usd: f64) -> u64 {
    (usd * 1e6).ceil().clamp(0.0, 9e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, llm::script::reply, message::Usage};
    use std::collections::VecDeque;

    #[test]
    fn what_is_in_flight_counts_and_a_refusal_is_remembered() {
        let limits = Limits { tokens: 100, turns: 3, usd: Some(1.0), ..Limits::RUN };
        let purse = RunPurse::new(limits, &Spent::default(), Clock::system());
        assert_eq!(purse.take(60), Ok(()));
        assert_eq!(purse.take(60), Err(Limit::Tokens));
        assert_eq!(purse.reached(), Some(Limit::Tokens));
        purse.settle(60, None);
        assert_eq!(purse.take(60), Ok(()));
        purse.settle(60, Some(&Reply { usage: Usage { input: 10, output: 10, ..Usage::default() }, usd: Some(1.5), ..reply("", &[]) }));
        assert_eq!(purse.take(10), Err(Limit::Money));
    }

    #[test]
    fn fifty_agents_pass_a_budget_by_no_more_than_what_was_in_flight() {
        const EACH: f64 = 0.05;
        for limits in [Limits { usd: Some(10.0), ..Limits::RUN }, Limits { tokens: 400_000, ..Limits::RUN }] {
            let purse = RunPurse::new(limits, &Spent::default(), Clock::system());
            let mut in_flight: VecDeque<Usage> = VecDeque::new();
            let (mut usd, mut tokens, mut at_the_limit) = (0.0, 0, None);
            for request in 0.. {
                while in_flight.len() < 50 && purse.take(1_000).is_ok() {
                    in_flight.push_back(Usage { input: 700, output: 100 + request % 150, ..Usage::default() });
                }
                let Some(usage) = in_flight.pop_front() else { break };
                purse.settle(1_000, Some(&Reply { usage, usd: Some(EACH), ..reply("", &[]) }));
                (usd, tokens) = (usd + EACH, tokens + usage.total());
                if limits.usd.is_some_and(|most| usd >= most - 1e-9) && at_the_limit.is_none() {
                    at_the_limit = Some(in_flight.len());
                }
            }
            let over = u32::try_from(at_the_limit.unwrap_or_default()).unwrap();
            assert!(usd <= limits.usd.unwrap_or_default() + EACH * f64::from(over) + 1e-6, "{usd} with {over} in flight");
            assert!(tokens <= limits.tokens, "what is expected of a prompt is set aside: {tokens}");
            assert!(purse.reached().is_some());
        }
    }
}
