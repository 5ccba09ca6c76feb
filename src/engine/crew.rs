//! Who does the work that the loop begins: the steps themselves, or a stub that spends nothing.
//!
//! The loop says what begins and records how it ends; a crew never sees the journal. Real or not, the same loop, the same
//! `decide` and the same fold drive it.
use super::{
    Services,
    close::{self, Close},
    powers::{self, Watcher},
    steps::{self, End, Job, Unkept},
};
use crate::{
    clock::{Clock, Timestamp},
    event::{CommitId, Event, NodeId},
    journal::{Recorder, RunState},
};
use std::{pin::Pin, sync::Arc, time::Duration};

/// Work under way.
pub(super) type Working = Pin<Box<dyn Future<Output = End> + Send>>;

/// What the loop waits for besides work.
pub(super) struct Waits {
    /// The first timer.
    pub(super) timer: Option<Timestamp>,
    /// What is left of the run's time, where that is to end it.
    pub(super) time_left: Option<Duration>,
}

/// Whoever stands behind the loop.
pub(super) trait Crew: Send + Sync {
    /// Returns the time that the run goes by.
    fn clock(&self) -> &Clock;

    /// Returns what the steps share, whose people the run may ask; a stub asks nobody.
    fn services(&self) -> Option<&Arc<Services>> {
        None
    }

    /// Begins a node's work; it is done by the future.
    fn work(&self, job: Job) -> Working;

    /// Joins commits into one; that is `base` where there are none.
    fn join(&self, base: CommitId, tips: Vec<CommitId>) -> Working;

    /// Makes the event that begins an orchestrator's conversation.
    fn brief(&self, state: &RunState, orchestrator: &NodeId) -> Option<Event>;

    /// Begins one waking of an orchestrator.
    fn watch(&self, watcher: Watcher) -> Working;

    /// Keeps the files of attempts that were stopped; a stub has none.
    fn keep(&self, _unkept: Vec<Unkept>, _recorder: &Recorder) -> Working {
        Box::pin(async { End::Kept })
    }

    /// Begins the end of the run.
    fn close(&self, close: Close) -> Working;

    /// Is told that the loop has done what it can and waits. Real time passes by itself; simulated time moves now to what
    /// is due first. Returns what is to be waited for.
    fn wait(&self, waits: Waits) -> Waits {
        waits
    }

    /// Is told that the loop has heard of the end of some work.
    fn heard_of_an_end(&self) {}
}

/// The steps themselves.
pub(super) struct Hands(pub(super) Arc<Services>);

impl Crew for Hands {
    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn services(&self) -> Option<&Arc<Services>> {
        Some(&self.0)
    }

    fn work(&self, job: Job) -> Working {
        Box::pin(steps::run(job.with(&self.0)))
    }

    fn join(&self, base: CommitId, tips: Vec<CommitId>) -> Working {
        let services = self.0.clone();
        Box::pin(async move { End::Joined(close::join(&services, base, tips).await) })
    }

    fn brief(&self, state: &RunState, orchestrator: &NodeId) -> Option<Event> {
        powers::briefed(state, orchestrator, &self.0)
    }

    fn watch(&self, watcher: Watcher) -> Working {
        let services = self.0.clone();
        Box::pin(async move { watcher.run(&services).await })
    }

    fn keep(&self, unkept: Vec<Unkept>, recorder: &Recorder) -> Working {
        let (services, recorder) = (self.0.clone(), recorder.clone());
        Box::pin(async move { steps::keep_all(&services, &recorder, unkept).await })
    }

    fn close(&self, close: Close) -> Working {
        let services = self.0.clone();
        Box::pin(async move { End::Closed(close.run(&services).await) })
    }
}
