//! How what was decided begins: what is recorded of it first, and whom the work is given to.
use super::Engine;
use crate::{
    engine::{
        close,
        crew::Working,
        decide::Command,
        digest, fan, frames, powers, scope,
        steps::{self, End, Order},
    },
    event::{CommitId, Event, Failure, FailureKind, Frame, NodeId, Outcome, RunStarted},
    journal::Store,
    prompts,
    tasks::Panicked,
};
use std::sync::Arc;

impl<S: Store> Engine<'_, S> {
    /// Adds the events that a command is recorded by before it is carried out.
    pub(super) fn events_for(&self, command: &Command, events: &mut Vec<Event>) {
        let state = self.journal.state();
        match command {
            Command::Start { node, attempt } => events.push(Event::StepStarted { node: node.clone(), attempt: *attempt }),
            Command::Skip { node, cause } => events.push(Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(cause.clone()) }),
            Command::Evaluate { node } => events.push(self.evaluate(node)),
            Command::Expand { step } => events.push(self.expand(step)),
            Command::Join { step } => {
                let planned = state.step(step);
                let of_list = planned.and_then(|step| step.for_each.as_ref()).map(|fan| fan.join);
                let join = of_list.or_else(|| planned.and_then(|step| step.matrix.as_ref()).map(|fan| fan.join)).unwrap_or_default();
                events.push(Event::StepFinished { node: step.clone(), outcome: fan::join(state, step, join) });
            }
            Command::Wake { node, idle } => {
                let fresh = state.node(node).is_none_or(|node| node.conversation.brief().is_none());
                events.extend(if fresh { self.crew.brief(state, node) } else { None });
                events.extend(digest::woken(state, node, *idle));
            }
            Command::Continue { .. } | Command::Turn { .. } | Command::Ending { .. } | Command::Stop { .. } | Command::Close => {}
        }
    }

    fn evaluate(&self, node: &NodeId) -> Event {
        let state = self.journal.state();
        let Some(step) = state.step(node) else { return failed(node, FailureKind::Bug, "the plan has no such step") };
        let text = step.condition.as_ref().map_or("true", |condition| condition.value.as_str());
        match prompts::condition(text, &scope::scope(state, node, &step.reads)) {
            Ok(holds) => Event::ConditionEvaluated { node: node.clone(), holds },
            Err(error) => failed(node, FailureKind::Template, &format!("`if`: {error}")),
        }
    }

    fn expand(&self, node: &NodeId) -> Event {
        let state = self.journal.state();
        let Some(step) = state.step(node) else { return failed(node, FailureKind::Bug, "the plan has no such step") };
        match fan::expand(step, &scope::scope(state, node, &step.reads)) {
            Ok((items, max_parallel)) => Event::ItemsAdded { step: node.clone(), items, by: node.clone(), max_parallel },
            Err(failure) => Event::StepFinished { node: node.clone(), outcome: failure.into() },
        }
    }

    pub(super) fn spawn(&mut self, node: NodeId) {
        let state = self.journal.state();
        if state.is_orchestrator(&node) {
            return self.spawn_orchestrator(node);
        }
        let Some(step) = state.step(&node) else { return };
        if step.inner().is_some() {
            return self.spawn_join(node);
        }
        let Some(own) = state.node(&node) else { return };
        let order = Order { state, node: &node, own, step, accounts: &mut self.accounts, tips: &mut self.tips, recorder: &self.recorder };
        let work = self.crew.work(order);
        self.employ(node, work);
    }

    pub(super) fn spawn_orchestrator(&mut self, node: NodeId) {
        let state = self.journal.state();
        let watcher = powers::Watcher {
            plan: frames::plan_of(state, &node).unwrap_or_else(|| self.plan.clone()),
            base: self.base(&node.within),
            account: self.accounts.of(state, &node),
            recorder: self.recorder.clone(),
            desk: self.desk.clone(),
            helpers: steps::helpers(state, &node),
            talk: state.node(&node).map(|state| state.conversation.clone()).unwrap_or_default(),
            run: self.started().clone(),
            node: node.clone(),
        };
        let work = self.crew.watch(watcher);
        self.employ(node, work);
    }

    /// Joins what a frame is to start from, or what it has come to.
    pub(super) fn spawn_join(&mut self, node: NodeId) {
        let state = self.journal.state();
        let (base, tips) = match state.inner(&node) {
            Some((within, frame)) => (frame.base.clone().unwrap_or_else(|| self.base(&node.within)), self.tips.of_frame(state, &within)),
            // What ends a workflow stands on all its work where that worked out, and on its beginning where it did not.
            None if state.step(&node).is_none() && frames::has_failed(state, &node.within) => (self.base(&node.within), Vec::new()),
            None if state.step(&node).is_none() => (self.base(&node.within), self.tips.of_frame(state, &node.within)),
            None => (self.base(&node.within), self.tips.for_node(state, &node)),
        };
        self.live.turning.insert(node.clone());
        let work = self.crew.join(node.clone(), base, tips);
        self.employ(node, work);
    }

    pub(super) fn spawn_close(&mut self) {
        self.live.closing = true;
        let state = self.journal.state();
        let job = close::Close::new(state, self.tips.of_frame(state, &[]), &self.recorder);
        if let Working::Task(_, work) = self.crew.close(job) {
            let node = close::node();
            let panicked = node.clone();
            self.workers.spawn(async move { (node, work.await) }, move |panic| (panicked, End::Closed(Err(Failure::from(panic)))));
        }
    }

    pub(super) fn employ(&mut self, node: NodeId, work: Working) {
        let state = self.journal.state();
        if let Working::Task(token, work) = work {
            self.tokens.insert(node.clone(), token);
            let (panicked, watches) = (node.clone(), state.is_orchestrator(&node));
            let end = move |panic: Panicked| match Failure::from(panic) {
                failure if watches => End::Rested { text: String::new(), failure: Some(failure) },
                failure => End::Finished(failure.into()),
            };
            let worker = node.clone();
            self.workers.spawn(async move { (worker, work.await) }, move |panic| (panicked, end(panic)));
        }
        self.live.begin(state, node);
    }

    pub(super) fn started(&self) -> &Arc<RunStarted> {
        self.journal.state().started().expect("nothing is decided before the run has started")
    }

    /// Returns the commit that the steps of a frame start from.
    pub(super) fn base(&self, within: &[Frame]) -> CommitId {
        self.journal.state().frame(within).and_then(|frame| frame.base.clone()).unwrap_or_else(|| self.started().base.clone())
    }
}

fn failed(node: &NodeId, kind: FailureKind, message: &str) -> Event {
    Event::StepFinished { node: node.clone(), outcome: Failure::new(kind, message).into() }
}
