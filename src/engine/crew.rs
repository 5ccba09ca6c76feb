//! Who does the work that the loop begins: the steps themselves, or a stub that spends nothing.
//!
//! The loop says what begins and records how it ends; a crew never sees the journal. Real or not, the same loop, the same
//! `decide` and the same fold drive it. Work that takes time is done by tasks; a crew that knows how something ends when it
//! begins keeps it, and says so in its turn.
use super::{
    Services,
    close::{self, Close},
    powers::{self, Watcher},
    steps::{self, End, Order, Unkept},
};
use crate::{
    clock::{Clock, Timestamp},
    event::{CommitId, Event, NodeId},
    journal::{Recorder, RunState},
};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Who does a piece of work that was begun.
pub(super) enum Working {
    /// A task, which ends early where the token is cancelled.
    Task(CancellationToken, Pin<Box<dyn Future<Output = End> + Send>>),
    /// The crew by itself: `wait` gives the end, and `cancel` asks for an early one.
    Crew,
}

/// What the loop waits for besides work.
pub(super) struct Waits {
    /// The first timer.
    pub(super) timer: Option<Timestamp>,
    /// What is left of the run's time, where that is to end it.
    pub(super) time_left: Option<Duration>,
}

/// What comes next once the loop has done what it can.
pub(super) enum Turn {
    /// Some work that the crew does by itself has ended.
    Ended(NodeId, End),
    /// There is something to wait for.
    Wait(Waits),
}

/// Whoever stands behind the loop.
pub(super) trait Crew: Send + Sync {
    /// Returns the time that the run goes by.
    fn clock(&self) -> &Clock;

    /// Returns what the steps share, whose people the run may ask; a stub asks nobody.
    fn services(&self) -> Option<&Arc<Services>> {
        None
    }

    /// Begins a node's work, of which whatever happens is told to the recorder.
    fn work(&mut self, order: Order<'_>) -> Working;

    /// Begins to join commits into one; that is `base` where there are none.
    fn join(&mut self, node: NodeId, base: CommitId, tips: Vec<CommitId>) -> Working;

    /// Makes the event that begins an orchestrator's conversation.
    fn brief(&self, state: &RunState, orchestrator: &NodeId) -> Option<Event>;

    /// Begins one waking of an orchestrator.
    fn watch(&mut self, watcher: Watcher) -> Working;

    /// Begins to keep the files of attempts that were stopped, on behalf of the node that was.
    fn keep(&mut self, node: NodeId, unkept: Vec<Unkept>, recorder: &Recorder) -> Working;

    /// Begins the end of the run.
    fn close(&mut self, close: Close) -> Working;

    /// Is told that the loop has done what it can. Real time passes by itself; simulated time moves now to what is due
    /// first.
    fn turn(&mut self, waits: Waits) -> Turn {
        Turn::Wait(waits)
    }

    /// Asks for the early end of work that the crew does by itself.
    fn cancel(&mut self, _node: &NodeId) {}
}

/// The steps themselves.
pub(super) struct Hands {
    pub(super) services: Arc<Services>,
    /// Cancels all work.
    pub(super) cancel: CancellationToken,
}

impl Hands {
    /// Makes a task that can be cancelled by itself.
    fn task<F: Future<Output = End> + Send + 'static>(&self, work: impl FnOnce(Arc<Services>, CancellationToken) -> F) -> Working {
        let cancel = self.cancel.child_token();
        let work = work(self.services.clone(), cancel.clone());
        Working::Task(cancel, Box::pin(work))
    }
}

impl Crew for Hands {
    fn clock(&self) -> &Clock {
        &self.services.clock
    }

    fn services(&self) -> Option<&Arc<Services>> {
        Some(&self.services)
    }

    fn work(&mut self, order: Order<'_>) -> Working {
        let (recorder, job) = (order.recorder.clone(), order.job());
        self.task(|services, cancel| steps::run(job.with(&services, recorder, cancel)))
    }

    fn join(&mut self, _: NodeId, base: CommitId, tips: Vec<CommitId>) -> Working {
        self.task(|services, _| async move { End::Joined(close::join(&services, base, tips).await) })
    }

    fn brief(&self, state: &RunState, orchestrator: &NodeId) -> Option<Event> {
        powers::briefed(state, orchestrator, &self.services)
    }

    fn watch(&mut self, watcher: Watcher) -> Working {
        self.task(|services, cancel| async move { watcher.run(&services, &cancel).await })
    }

    fn keep(&mut self, _: NodeId, unkept: Vec<Unkept>, recorder: &Recorder) -> Working {
        let recorder = recorder.clone();
        self.task(|services, _| async move { steps::keep_all(&services, &recorder, unkept).await })
    }

    fn close(&mut self, close: Close) -> Working {
        self.task(|services, _| async move { End::Closed(close.run(&services).await) })
    }
}
