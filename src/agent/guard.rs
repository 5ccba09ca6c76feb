//! Limits, asked from beside the loop before each request.
use super::Trouble;
use crate::{
    clock::seconds,
    event::{Failure, FailureKind, Limit},
    journal::{Conversation, Spent},
    message::Reply,
    plan::Limits,
};
use std::time::Duration;

/// An account that agents share: that of the whole run, or that of an agent and its sub-agents. It is asked before a request, settled after it, so that together they
/// pass its limit by no more than what was in flight.
pub trait Purse: Send + Sync {
    /// Sets a turn and tokens aside for a request.
    ///
    /// # Errors
    /// The limit that is used up, and whose it is; or that a person is asked for more, so that whoever wants it waits.
    fn reserve(&self, tokens: u64) -> Result<(), Trouble>;
    /// Gives the reservation back and charges what was used, if a reply came.
    fn settle(&self, reserved: u64, reply: Option<&Reply>);
}

/// Says whether a session may make one more request of `estimate` prompt tokens.
///
/// # Errors
/// The limit that is reached, with what to do.
pub(super) fn admit(limits: &Limits, talk: &Conversation, elapsed: Duration, estimate: u64) -> Result<(), Failure> {
    let spent = talk.spent();
    let Spent { turns, usage, usd, .. } = *spent;
    let reached = if turns >= limits.turns {
        Some((Limit::Turns, format!("the agent was not done after {turns} turns")))
    } else if usage.total().saturating_add(estimate) > limits.tokens {
        Some((Limit::Tokens, format!("the agent used {} of {} tokens and the next request would need about {estimate}", usage.total(), limits.tokens)))
    } else if limits.usd.is_some_and(|most| usd >= most) {
        Some((Limit::Money, format!("the agent used {} of ${:.2}", spent.dollars(), limits.usd.unwrap_or_default())))
    } else if elapsed >= limits.time {
        return Err(out_of_time(elapsed));
    } else if talk.tally().repeats >= limits.repeats {
        Some((Limit::Repeats, format!("the agent made the same calls {} times in a row", talk.tally().repeats)))
    } else {
        None
    };
    match reached {
        None => Ok(()),
        Some((limit, message)) => Err(reached_limit(limit, message)),
    }
}

/// Says that a limit of the whole run is reached.
pub fn out_of_budget(limit: Limit) -> Failure {
    let hint = "raise the workflow's `budget`; with `on_exceed: finish` the run ends with what there is";
    Failure::new(FailureKind::Limit(limit), "the run's budget is used up").hint(hint)
}

/// Says that a session's time is over.
pub(super) fn out_of_time(time: Duration) -> Failure {
    reached_limit(Limit::Time, format!("the agent was not done after {}", seconds(time)))
}

fn reached_limit(limit: Limit, message: String) -> Failure {
    Failure::new(FailureKind::Limit(limit), message).hint("raise the agent's `max_turns` or `budget`, or split its task")
}
