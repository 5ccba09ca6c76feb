//! Limits that are no accounts, asked from beside the loop before each request.
use crate::{
    clock::seconds,
    event::{Failure, FailureKind, Limit},
    journal::Conversation,
    plan::Limits,
};
use std::time::Duration;

/// Says whether a session may make one more request. What it may use its account says.
///
/// # Errors
/// The limit that is reached, with what to do.
pub(super) fn admit(limits: &Limits, talk: &Conversation, elapsed: Duration) -> Result<(), Failure> {
    let repeats = talk.tally().repeats;
    if elapsed >= limits.time {
        return Err(out_of_time(elapsed));
    }
    if repeats >= limits.repeats {
        return Err(reached_limit(Limit::Repeats, format!("the agent made the same calls {repeats} times in a row")));
    }
    Ok(())
}

/// Says that a session's time is over.
pub(super) fn out_of_time(time: Duration) -> Failure {
    reached_limit(Limit::Time, format!("the agent was not done after {}", seconds(time)))
}

fn reached_limit(limit: Limit, message: String) -> Failure {
    Failure::new(FailureKind::Limit(limit), message).hint("raise the agent's `max_turns` or `budget`, or split its task")
}
