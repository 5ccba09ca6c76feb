//! What an event changes. Legality is settled before.
use super::{NodeState, Phase, RunState, Todo, Workspace, state::Branch};
use crate::{
    clock::Timestamp,
    event::{Event, Item, NodeId, Outcome, RunStarted, SkipCause, StepId},
    workflow::On,
};

impl RunState {
    pub(super) fn fold(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.run_started(started),
            Event::RunResumed { .. } => self.watch.something_moved(),
            Event::ConditionEvaluated { node, holds } => self.condition_evaluated(node, *holds),
            Event::ItemsAdded { step, items, by, max_parallel } => self.items_added(step, items, by, *max_parallel),
            Event::StepStarted { node, attempt } => self.step_started(node, *attempt, at),
            Event::WorkspaceMade { node, base, isolation, path } => {
                self.node_mut(node).workspace = Some(Workspace { base: base.clone(), isolation: isolation.clone(), path: path.clone() });
            }
            Event::AgentBriefed { node, .. } if node.helper.is_some() => {
                self.helpers.entry(node.owner()).or_default().extend(node.helper.clone());
                self.node_mut(node).conversation.apply(event);
            }
            Event::AgentBriefed { node, .. } | Event::MessageAdded { node, .. } | Event::ToolStarted { node, .. } | Event::Compacted { node, .. } => {
                self.node_mut(node).conversation.apply(event);
            }
            Event::ModelReplied { node, .. } | Event::ToolFinished { node, .. } => self.conversed(node, event),
            Event::WorkCaptured { node, commit, paths } => self.node_mut(node).captured = Some((commit.clone(), paths.clone())),
            Event::MergeAdvanced { node, progress } => self.node_mut(node).merged.push(progress.clone()),
            Event::QuestionAsked { node, call, question } => self.node_mut(node).question = Some((call.clone(), question.clone())),
            Event::QuestionAnswered { node, .. } => self.node_mut(node).question = None,
            Event::RetryScheduled { node, due, .. } => self.retry_scheduled(node, *due),
            Event::TimerFired { node } => {
                self.timers.remove(node);
                self.make_ready(node);
            }
            Event::OrchestratorWoken { node, reasons, .. } => {
                self.watch.woken(self.open_steps == 0, reasons.iter().any(|reason| reason == "idle"));
                self.node_mut(node).conversation.apply(event);
            }
            Event::OrchestratorRested { text, failure, .. } => self.watch.rested(text, failure.is_some()),
            Event::LimitReached { limit } => self.limit = Some(*limit),
            Event::StepFinished { node, outcome } => self.step_finished(node, outcome, at),
            Event::BranchIntended { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: false }),
            Event::BranchMade { .. } => {
                if let Some(branch) = &mut self.branch {
                    branch.made = true;
                }
            }
            Event::RunFinished { outcome } => self.finished = Some(outcome.clone()),
            Event::HookRan { .. } | Event::VerifyRan { .. } => {}
        }
    }

    fn node_mut(&mut self, id: &NodeId) -> &mut NodeState {
        self.nodes.entry(id.clone()).or_default()
    }

    fn run_started(&mut self, started: &RunStarted) {
        self.started = Some(started.clone());
        if let Some(spec) = self.plan.clone().orchestrator.as_ref() {
            self.watch.run_started(spec);
        }
        for id in self.plan.clone().order() {
            let node = NodeId::step(id);
            if self.nodes.get(&node).is_some_and(|state| state.unmet == 0) {
                self.settle(&node);
            }
        }
    }

    /// Moves a node whose needs are all met to what it waits for next.
    fn settle(&mut self, id: &NodeId) {
        let Some(step) = self.plan.step(&id.step) else { return };
        let state = self.nodes.entry(id.clone()).or_default();
        if id.item.is_none() && step.condition.is_some() && state.condition.is_none() {
            self.todo.insert(id.clone(), Todo::Evaluate);
        } else if id.item.is_none() && step.for_each.is_some() {
            self.todo.insert(id.clone(), Todo::Expand);
        } else {
            self.make_ready(id);
        }
    }

    fn make_ready(&mut self, id: &NodeId) {
        let state = self.node_mut(id);
        state.phase = Phase::Ready;
        let place = state.place;
        self.ready.insert(place, id.clone());
    }

    fn condition_evaluated(&mut self, id: &NodeId, holds: bool) {
        self.todo.remove(id);
        self.node_mut(id).condition = Some(holds);
        if holds {
            self.settle(id);
        } else {
            self.todo.insert(id.clone(), Todo::Skip(SkipCause::Condition));
        }
    }

    fn items_added(&mut self, step: &StepId, items: &[Item], by: &NodeId, max_parallel: Option<u32>) {
        let node = NodeId::step(step);
        self.todo.remove(&node);
        if *by != node {
            self.watch.items_added(step, items);
        }
        let step_place = self.place(&node);
        let fan = self.fans.entry(step.clone()).or_default();
        let first = fan.keys.len() + 1;
        fan.max_parallel = max_parallel.or(fan.max_parallel);
        fan.open += items.len();
        for item in items {
            fan.keys.push(item.key.clone());
            for need in &item.needs {
                fan.waiting_for.entry(need.clone()).or_default().push(item.key.clone());
            }
        }
        if fan.open == 0 {
            self.todo.insert(node, Todo::Join);
        }
        for (at, item) in items.iter().enumerate() {
            let id = NodeId::item(step, &item.key);
            self.nodes.insert(id, NodeState { place: (step_place, first + at), item: Some(item.clone()), ..NodeState::default() });
        }
        for item in items {
            self.item_needs(&NodeId::item(step, &item.key));
        }
    }

    /// Counts an item's needs anew and moves it on accordingly.
    fn item_needs(&mut self, id: &NodeId) {
        let needs = self.nodes.get(id).and_then(|state| state.item.as_ref()).map(|item| item.needs.clone()).unwrap_or_default();
        let mut unmet = 0;
        for need in needs {
            let needed = NodeId::item(&id.step, &need);
            match self.outcome(&needed) {
                None => unmet += 1,
                Some(Outcome::Succeeded(_)) => {}
                Some(Outcome::Failed(_) | Outcome::Skipped(_)) => {
                    self.todo.insert(id.clone(), Todo::Skip(SkipCause::Upstream(needed)));
                }
            }
        }
        self.node_mut(id).unmet = unmet;
        if unmet == 0 && !self.todo.contains_key(id) {
            self.settle(id);
        }
    }

    fn step_started(&mut self, id: &NodeId, attempt: u32, at: Timestamp) {
        self.watch.something_moved();
        self.running.insert(id.clone());
        if id.item.is_some()
            && let Some(fan) = self.fans.get_mut(&id.step)
        {
            fan.running += 1;
        }
        // An attempt starts afresh: its helpers' sessions belong to the attempt before.
        for name in self.helpers.remove(id).unwrap_or_default() {
            self.nodes.remove(&id.helper(&name));
        }
        let state = self.nodes.entry(id.clone()).or_default();
        let spent = state.spent;
        let (item, condition, unmet, place) = (state.item.take(), state.condition, state.unmet, state.place);
        self.ready.remove(&place);
        *state = NodeState { phase: Phase::Running, attempts: attempt, began: Some(at), item, place, condition, unmet, spent, ..NodeState::default() };
    }

    fn conversed(&mut self, id: &NodeId, event: &Event) {
        let state = self.nodes.entry(id.clone()).or_default();
        let before = *state.conversation.spent();
        if matches!(event, Event::ModelReplied { .. }) && self.plan.orchestrator.as_ref().is_some_and(|spec| spec.node == *id) {
            self.watch.replied();
        }
        state.conversation.apply(event);
        let delta = state.conversation.spent().since(&before);
        state.spent += delta;
        self.spent += delta;
        if id.helper.is_some() {
            self.node_mut(&id.owner()).spent += delta;
        }
    }

    fn retry_scheduled(&mut self, id: &NodeId, due: Timestamp) {
        let ended = self.nodes.get(id).is_some_and(|state| state.phase == Phase::Ended);
        self.running.remove(id);
        if let Some(fan) = self.fans.get_mut(&id.step).filter(|_| id.item.is_some()) {
            if ended {
                fan.open += 1;
            } else {
                fan.running = fan.running.saturating_sub(1);
            }
        }
        let state = self.node_mut(id);
        state.phase = Phase::Retrying;
        state.outcome = None;
        self.timers.insert(id.clone(), due);
        if ended {
            // Only the orchestrator has items tried again that have ended.
            self.watch.item_retried(id);
            self.todo.remove(&NodeId::step(&id.step));
            self.revive_dependents(id);
        }
    }

    /// Items that were skipped because of one that is tried again wait for it again.
    fn revive_dependents(&mut self, id: &NodeId) {
        let waiting = self.fans.get(&id.step).and_then(|fan| fan.waiting_for.get(id.item.as_deref().unwrap_or_default())).cloned().unwrap_or_default();
        for key in waiting {
            let dependent = NodeId::item(&id.step, &key);
            if matches!(self.outcome(&dependent), Some(Outcome::Skipped(SkipCause::Upstream(_)))) {
                let state = self.node_mut(&dependent);
                state.phase = Phase::Waiting;
                state.outcome = None;
                if let Some(fan) = self.fans.get_mut(&id.step) {
                    fan.open += 1;
                }
                self.item_needs(&dependent);
                self.revive_dependents(&dependent);
            } else if self.todo.get(&dependent).is_some_and(|todo| matches!(todo, Todo::Skip(_))) {
                self.todo.remove(&dependent);
                self.item_needs(&dependent);
            }
        }
    }

    fn step_finished(&mut self, id: &NodeId, outcome: &Outcome, at: Timestamp) {
        self.todo.remove(id);
        self.timers.remove(id);
        let was_running = self.running.remove(id);
        let place = self.node_mut(id).place;
        self.ready.remove(&place);
        let state = self.node_mut(id);
        state.phase = Phase::Ended;
        state.ended = Some(at);
        state.question = None;
        state.outcome = Some(outcome.clone());
        if id.item.is_some() {
            self.item_ended(id, outcome, was_running);
        } else {
            self.open_steps = self.open_steps.saturating_sub(1);
            self.tell_dependents(id, outcome);
        }
    }

    fn item_ended(&mut self, id: &NodeId, outcome: &Outcome, was_running: bool) {
        let fan = self.fans.entry(id.step.clone()).or_default();
        fan.open = fan.open.saturating_sub(1);
        fan.running = fan.running.saturating_sub(u32::from(was_running));
        let waiting = fan.waiting_for.get(id.item.as_deref().unwrap_or_default()).cloned().unwrap_or_default();
        if fan.open == 0 {
            self.todo.insert(NodeId::step(&id.step), Todo::Join);
        }
        if let Some(spec) = self.plan.clone().orchestrator.as_ref().filter(|spec| spec.supervises.contains(&id.step)) {
            self.watch.item_ended(spec, id, outcome);
        }
        for key in waiting {
            let dependent = NodeId::item(&id.step, &key);
            if self.nodes.get(&dependent).is_some_and(|state| state.phase == Phase::Waiting) {
                self.met(&dependent, id, outcome.success().is_some());
            }
        }
    }

    fn tell_dependents(&mut self, id: &NodeId, outcome: &Outcome) {
        let plan = self.plan.clone();
        let dependents: Vec<(StepId, On)> = plan.dependents(&id.step).map(|(step, on)| (step.id.clone(), on)).collect();
        for (step, on) in dependents {
            let dependent = NodeId::step(&step);
            if self.nodes.get(&dependent).is_some_and(|state| state.phase == Phase::Waiting) {
                self.met(&dependent, id, plan.satisfied(&id.step, on, outcome));
            }
        }
    }

    fn met(&mut self, dependent: &NodeId, upstream: &NodeId, satisfied: bool) {
        if !satisfied {
            self.todo.insert(dependent.clone(), Todo::Skip(SkipCause::Upstream(upstream.clone())));
            return;
        }
        let state = self.node_mut(dependent);
        state.unmet = state.unmet.saturating_sub(1);
        if state.unmet == 0 && !self.todo.contains_key(dependent) {
            self.settle(dependent);
        }
    }
}
