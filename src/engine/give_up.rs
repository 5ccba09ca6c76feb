//! The end of a run as it stands, where it cannot be carried out to any other: its workflow is gone or wrong, a secret or a
//! commit is missing.
//!
//! Nothing is run, so that no plan is needed. What the records say is open ends as in a run that is called off, by the records
//! that would have told of it there; what belongs to the end, `finally`, is left out.
use super::{frames::called_off, inbox::Inbox, reset};
use crate::{
    clock::Clock,
    event::{Event, NodeId, Outcome, Record, SkipCause},
    journal::{FINALLY, Lease, LeaseError, ON_FAILURE, RunDir, SqliteStore, Store as _, StoreError},
    sandbox::{self, SandboxError},
};
use std::collections::{BTreeSet, HashSet};

/// Why a run could not be ended as it stands. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum GiveUpError {
    /// Somebody has it.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// Its journal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process that it left could not be ended.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Ends a run that nobody carries out, as called off by somebody, without its `finally`. One that is over stays as it is.
///
/// # Errors
/// Where a living process has it, or its journal cannot be read or written.
pub fn give_up(dir: &RunDir, by: &str, clock: &Clock) -> Result<(), GiveUpError> {
    let _lease = Lease::take(dir.path(), std::process::id(), clock.now())?;
    sandbox::reap(&dir.processes())?;
    let (mut store, records) = SqliteStore::open(dir.path())?;
    let last = records.last().map(|last| last.at).unwrap_or_default();
    let events = ending(&records, by);
    let at = clock.steady(last).now();
    let records: Vec<Record> = (records.len() as u64..).zip(events).map(|(seq, event)| Record { seq, at, event }).collect();
    store.append(&records, true)?;
    Inbox::of(dir.path()).take_cancel_back();
    Ok(())
}

/// Returns the records that end a run, after these.
fn ending(records: &[Record], by: &str) -> Vec<Event> {
    let (mut begun, mut in_endings, mut cancelled) = (HashSet::new(), BTreeSet::new(), None);
    for record in records {
        match &record.event {
            Event::RunFinished { .. } => return Vec::new(),
            Event::RunCancelled { by } => cancelled = Some(by.as_str()),
            Event::StepStarted { node, .. } if is_of_ending(node) => drop(in_endings.insert(node)),
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } if is_of_ending(node) => drop(in_endings.remove(node)),
            Event::StepStarted { node, .. } | Event::FrameOpened { node, .. } | Event::RetryScheduled { node, .. } => {
                begun.insert(node.clone());
                begun.insert(node.whole());
            }
            _ => {}
        }
    }
    let failure = called_off(cancelled.unwrap_or(by));
    let ends = |node: NodeId, begun: bool| {
        let outcome = if begun { failure.clone().into() } else { Outcome::Skipped(SkipCause::RunEnding) };
        Event::StepFinished { node, outcome }
    };
    let mut events: Vec<Event> = Vec::new();
    events.extend(cancelled.is_none().then(|| Event::RunCancelled { by: by.to_owned() }));
    // Items come before their steps, what has an outer step ends with that.
    events.extend(in_endings.into_iter().rev().map(|node| ends(node.clone(), true)));
    events.extend(reset::unended(records).into_iter().map(|node| (begun.contains(&node), node)).map(|(begun, node)| ends(node, begun)));
    events.push(Event::RunFinished { outcome: failure.into() });
    events
}

/// Returns whether a node is a step, or an item, of `on_failure` or `finally` itself.
fn is_of_ending(node: &NodeId) -> bool {
    matches!(node.within.as_slice(), [frame] if matches!(frame.step.0.as_str(), ON_FAILURE | FINALLY))
}
