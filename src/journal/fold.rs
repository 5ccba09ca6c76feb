//! What an event changes. Legality is settled before.
use super::{
    NodeState, Phase, RunState, Todo, Word, Workspace,
    state::{Branch, FINALLY, FrameState, ON_FAILURE, account},
};
use crate::{
    clock::Timestamp,
    event::{Event, Frame, Item, NodeId, Outcome, RunStarted, SkipCause, Wake},
    plan::PlannedStep,
    workflow::OnItemFailure,
};
use std::sync::Arc;

impl RunState {
    pub(super) fn fold(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.run_started(started),
            Event::RunResumed { .. } => {
                self.parked.clear();
            }
            Event::ConditionEvaluated { node, holds } => self.condition_evaluated(node, *holds),
            Event::FrameOpened { node, round, base, inputs } => {
                self.round_began(node, *round);
                if let Some(plan) = self.inner_plan(node) {
                    let attempt = self.nodes.get(node).map_or(1, |state| state.attempts);
                    let within = node.frame(attempt, *round);
                    self.add_frame(within.clone(), plan, Some(base.clone()), inputs.clone());
                    self.begin_frame(&within);
                }
            }
            Event::ItemsAdded { step, items, by, max_parallel } => self.items_added(step, items, by, *max_parallel),
            Event::StepStarted { node, attempt } => self.step_started(node, *attempt, at),
            Event::WorkspaceMade { node, base, isolation, path, .. } => {
                self.note_helper(node);
                self.node_mut(node).workspace = Some(Workspace { base: base.clone(), isolation: *isolation, path: path.clone() });
            }
            Event::AgentBriefed { node, .. } => {
                self.note_helper(node);
                self.node_mut(node).conversation.apply(event);
            }
            Event::Parked { node, failure } => {
                self.parked.insert(node.clone(), failure.message.clone());
                self.node_mut(node).conversation.apply(event);
            }
            Event::MessageAdded { node, .. } | Event::FellBack { node, .. } | Event::ToolStarted { node, .. } | Event::Compacted { node, .. } => {
                self.node_mut(node).conversation.apply(event);
            }
            Event::ModelReplied { node, .. } | Event::AttemptsLost { node, .. } | Event::ToolFinished { node, .. } => self.conversed(node, event),
            Event::WorkCaptured { node, commit, paths } => self.node_mut(node).captured = Some((commit.clone(), paths.clone())),
            Event::MergeAdvanced { node, progress } => self.node_mut(node).merged.push(progress.clone()),
            Event::SelectAdvanced { node, progress } => self.node_mut(node).selected.push(progress.clone()),
            Event::WorkDelivered { node, delivery } => self.node_mut(node).delivered = Some(delivery.clone()),
            Event::QuestionAsked { node, .. } | Event::QuestionAnswered { node, .. } | Event::HookRan { node, .. } => self.questioned(node, event),
            Event::Told { node, text, letter, .. } => {
                self.words.entry(node.clone()).or_default().push(Word { text: text.clone(), letter: letter.clone() });
                self.orchestrator_told(node);
            }
            Event::RetryScheduled { node, due, handed_over, .. } => self.retry_scheduled(node, *due, *handed_over),
            Event::TimerFired { node } => {
                self.timers.remove(node);
                self.make_ready(node);
            }
            Event::OrchestratorWoken { node, reasons, .. } => {
                if let Some(frame) = self.frame_mut(&node.within) {
                    frame.watch.woken(frame.open_steps == 0, reasons.contains(&Wake::Idle));
                }
                self.node_mut(node).conversation.apply(event);
            }
            Event::OrchestratorRested { node, text, failure } => {
                if let Some(frame) = self.frame_mut(&node.within) {
                    frame.watch.rested(text, failure.is_some());
                }
                self.orchestrator_told(node);
            }
            Event::RunCancelled { by } => {
                self.cancelled = Some(by.clone());
                // Nobody is waited for any more but by what belongs to the end.
                self.asking.retain(|node| node.within.first().is_some_and(|frame| frame.step.0 == FINALLY));
                self.parked.retain(|node, _| node.within.first().is_some_and(|frame| frame.step.0 == FINALLY));
            }
            Event::LimitReached { limit } => self.limit = Some(*limit),
            Event::StepFinished { node, outcome } => self.step_finished(node, outcome, at),
            Event::BranchIntended { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: false }),
            Event::BranchMade { .. } => {
                if let Some(branch) = &mut self.branch {
                    branch.made = true;
                }
            }
            Event::RunFinished { outcome } => self.finished = Some(outcome.clone()),
            Event::CheckpointKept { node, commit } => self.node_mut(node).checkpoint = Some(commit.clone()),
            Event::VerifyRan { .. } | Event::CacheHit { .. } | Event::ArtefactKept { .. } => {}
        }
    }

    fn node_mut(&mut self, id: &NodeId) -> &mut NodeState {
        self.nodes.entry(id.clone()).or_default()
    }

    /// Notes whose session a helper's is, when it is first spoken of.
    fn note_helper(&mut self, node: &NodeId) {
        if let Some(name) = &node.helper {
            self.helpers.entry(node.owner()).or_default().insert(name.clone());
        }
    }

    fn frame_mut(&mut self, within: &[Frame]) -> Option<&mut FrameState> {
        self.frames.get_mut(within)
    }

    fn run_started(&mut self, started: &RunStarted) {
        self.started = Some(Arc::new(started.clone()));
        self.begin_frame(&[]);
    }

    /// Wakes a frame's orchestrator and moves on the steps that wait for nothing.
    fn begin_frame(&mut self, within: &[Frame]) {
        let Some(frame) = self.frames.get_mut(within) else { return };
        let plan = frame.plan.clone();
        if let Some(spec) = &plan.orchestrator {
            frame.watch.run_started(spec);
        }
        for id in plan.order() {
            let node = NodeId::inside(within, id);
            if self.nodes.get(&node).is_some_and(|state| state.unmet == 0) {
                self.settle(&node);
            }
        }
    }

    fn round_began(&mut self, node: &NodeId, round: u32) {
        self.something_moved();
        self.todo.remove(node);
        self.running.remove(node);
        self.open.insert(node.clone());
        let state = self.node_mut(node);
        state.phase = Phase::Running;
        state.attempts = state.attempts.max(1);
        state.round = round;
    }

    /// Lets an orchestrator that rests, and has not heard all that was said to it, be woken again although nothing else has changed.
    fn orchestrator_told(&mut self, node: &NodeId) {
        let heard = self.nodes.get(node).map_or(0, |state| state.conversation.told());
        let rests = self.watch_of(node).is_some_and(|watch| !watch.is_awake());
        if rests
            && self.words.get(node).is_some_and(|said| said.len() > heard)
            && let Some(frame) = self.frame_mut(&node.within)
        {
            frame.watch.something_moved();
        }
    }

    fn something_moved(&mut self) {
        for within in &self.watched {
            if let Some(frame) = self.frames.get_mut(within) {
                frame.watch.something_moved();
            }
        }
    }

    /// Moves a node whose needs are all met to what it waits for next.
    fn settle(&mut self, id: &NodeId) {
        let Some(step) = self.step(id) else { return };
        let (conditional, fan) = (step.condition.is_some(), step.is_fan());
        let state = self.nodes.entry(id.clone()).or_default();
        if id.item.is_none() && conditional && state.condition.is_none() {
            self.todo.insert(id.clone(), Todo::Evaluate);
        } else if id.item.is_none() && fan {
            self.todo.insert(id.clone(), Todo::Expand);
        } else {
            self.make_ready(id);
        }
    }

    fn make_ready(&mut self, id: &NodeId) {
        let takes_a_place = self.step(id).is_none_or(PlannedStep::takes_a_place);
        let state = self.node_mut(id);
        state.phase = Phase::Ready;
        let place = state.place;
        if takes_a_place { &mut self.ready } else { &mut self.free }.insert(place, id.clone());
    }

    /// Forgets what a node and its helpers wait for outside of the run.
    fn no_longer_waits(&mut self, id: &NodeId) {
        self.asking.retain(|asking| asking.owner() != *id);
        self.parked.retain(|parked, _| parked.owner() != *id);
    }

    fn no_longer_ready(&mut self, id: &NodeId) {
        let place = self.node_mut(id).place;
        self.ready.remove(&place);
        self.free.remove(&place);
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

    fn items_added(&mut self, step: &NodeId, items: &[Item], by: &NodeId, max_parallel: Option<u32>) {
        self.todo.remove(step);
        if by != step
            && let Some(frame) = self.frame_mut(&step.within)
        {
            frame.watch.items_added(&step.step, items);
        }
        let (frame_place, step_place, _) = self.node_mut(step).place;
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
        let halted_by = fan.halted_by.clone();
        if fan.open == 0 {
            self.todo.insert(step.clone(), Todo::Join);
        }
        for (at, item) in items.iter().enumerate() {
            let state = NodeState { place: (frame_place, step_place, first + at), item: Some(Arc::new(item.clone())), ..NodeState::default() };
            self.nodes.insert(step.with_item(&item.key), state);
        }
        for item in items {
            let id = step.with_item(&item.key);
            match &halted_by {
                Some(by) => drop(self.todo.insert(id, Todo::Skip(SkipCause::Sibling(by.clone())))),
                None => self.item_needs(&id),
            }
        }
    }

    /// Counts an item's needs anew and moves it on accordingly.
    fn item_needs(&mut self, id: &NodeId) {
        let needs = self.nodes.get(id).and_then(|state| state.item.as_ref()).map(|item| item.needs.clone()).unwrap_or_default();
        let mut unmet = 0;
        for need in needs {
            let needed = id.with_item(&need);
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
        self.something_moved();
        self.running.insert(id.clone());
        if id.item.is_some()
            && let Some(fan) = self.fans.get_mut(&id.whole())
        {
            fan.running += 1;
        }
        // An attempt starts afresh: its helpers' sessions belong to the attempt before.
        for name in self.helpers.remove(id).unwrap_or_default() {
            self.nodes.remove(&id.helper(&name));
        }
        self.no_longer_waits(id);
        if let Some(time) = self.step(id).filter(|step| step.inner().is_some()).map(|step| step.timeout) {
            self.deadlines.insert(id.clone(), at.after(time));
        }
        self.no_longer_ready(id);
        let state = self.nodes.entry(id.clone()).or_default();
        let before = std::mem::take(state);
        *state = NodeState {
            phase: Phase::Running,
            attempts: attempt,
            began: Some(at),
            item: before.item,
            place: before.place,
            condition: before.condition,
            unmet: before.unmet,
            spent: before.spent,
            handed_over: before.handed_over,
            ..NodeState::default()
        };
    }

    fn questioned(&mut self, id: &NodeId, event: &Event) {
        if matches!(event, Event::QuestionAnswered { .. }) && !self.is_orchestrator(id) {
            self.something_moved();
        }
        self.raises += u32::from(matches!(event, Event::QuestionAnswered { allowed: true, .. }) && *id == account());
        let state = self.node_mut(id);
        state.conversation.apply(event);
        if state.conversation.open_questions().next().is_some() {
            self.asking.insert(id.clone());
        } else {
            self.asking.remove(id);
        }
    }

    fn conversed(&mut self, id: &NodeId, event: &Event) {
        if matches!(event, Event::ModelReplied { .. })
            && self.is_orchestrator(id)
            && let Some(frame) = self.frame_mut(&id.within)
        {
            frame.watch.replied();
        }
        self.parked.remove(id);
        let state = self.nodes.entry(id.clone()).or_default();
        let before = *state.conversation.spent();
        state.conversation.apply(event);
        let delta = state.conversation.spent().since(&before);
        if state.conversation.open_questions().next().is_none() {
            self.asking.remove(id);
        }
        state.spent += delta;
        self.spent += delta;
        if id.helper.is_some() {
            self.node_mut(&id.owner()).spent += delta;
        }
    }

    fn retry_scheduled(&mut self, id: &NodeId, due: Timestamp, handed_over: bool) {
        let ended = self.nodes.get(id).is_some_and(|state| state.phase == Phase::Ended);
        self.todo.remove(id);
        self.running.remove(id);
        self.doomed.remove(id);
        self.close_frames_of(id);
        if let Some(fan) = self.fans.get_mut(&id.whole()).filter(|_| id.item.is_some()) {
            if ended {
                fan.open += 1;
                fan.halted_by = None;
            } else {
                fan.running = fan.running.saturating_sub(1);
            }
        }
        self.no_longer_waits(id);
        let state = self.node_mut(id);
        state.phase = Phase::Retrying;
        state.outcome = None;
        state.handed_over |= handed_over;
        self.timers.insert(id.clone(), due);
        if ended {
            // Only the orchestrator has items tried again that have ended.
            if let Some(frame) = self.frame_mut(&id.within) {
                frame.watch.item_retried(id);
            }
            self.todo.remove(&id.whole());
            self.revive_dependents(id);
        }
    }

    /// Items that were skipped because of one that is tried again wait for it again.
    fn revive_dependents(&mut self, id: &NodeId) {
        let waiting = self.waiting_for(id);
        for key in waiting {
            let dependent = id.with_item(&key);
            if matches!(self.outcome(&dependent), Some(Outcome::Skipped(SkipCause::Upstream(_)))) {
                let state = self.node_mut(&dependent);
                state.phase = Phase::Waiting;
                state.outcome = None;
                if let Some(fan) = self.fans.get_mut(&id.whole()) {
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

    /// Returns the keys of the items that need an item.
    fn waiting_for(&self, id: &NodeId) -> Vec<String> {
        self.fans.get(&id.whole()).and_then(|fan| fan.waiting_for.get(id.item.as_deref().unwrap_or_default())).cloned().unwrap_or_default()
    }

    fn step_finished(&mut self, id: &NodeId, outcome: &Outcome, at: Timestamp) {
        self.todo.remove(id);
        self.timers.remove(id);
        self.no_longer_waits(id);
        self.doomed.remove(id);
        let had_begun = self.running.remove(id) | self.open.contains(id);
        self.close_frames_of(id);
        self.no_longer_ready(id);
        let state = self.node_mut(id);
        state.phase = Phase::Ended;
        state.ended = Some(at);
        state.outcome = Some(outcome.clone());
        if id.item.is_some() {
            self.item_ended(id, outcome, had_begun);
        } else {
            self.whole_step_ended(id, outcome);
        }
    }

    fn whole_step_ended(&mut self, id: &NodeId, outcome: &Outcome) {
        let counts = outcome.failure().is_some() && self.step(id).is_some_and(|step| !step.allow_failure);
        let Some(frame) = self.frame_mut(&id.within) else { return };
        frame.open_steps = frame.open_steps.saturating_sub(1);
        if counts && frame.failed.is_none() {
            frame.failed = Some(id.step.clone());
        }
        if frame.open_steps == 0 {
            // The end of an ending is the business of what it is the ending of.
            let is_ending = |node: &NodeId| matches!(node.step.0.as_str(), ON_FAILURE | FINALLY);
            let opener = id.opener().and_then(|opener| if is_ending(&opener) { opener.opener() } else { Some(opener) });
            if let Some(opener) = opener.filter(|opener| self.open.contains(opener)) {
                self.todo.insert(opener, Todo::Turn);
            }
        }
        self.tell_dependents(id, outcome);
    }

    /// Drops what was to happen inside of a node that has ended or begins anew.
    fn close_frames_of(&mut self, owner: &NodeId) {
        self.deadlines.remove(owner);
        if !self.open.remove(owner) {
            return;
        }
        let outside = |node: &NodeId| !node.is_inside(owner);
        self.todo.retain(|node, _| outside(node));
        self.ready.retain(|_, node| outside(node));
        self.free.retain(|_, node| outside(node));
        self.running.retain(outside);
        self.asking.retain(outside);
        self.parked.retain(|node, _| outside(node));
        self.open.retain(outside);
        self.doomed.retain(|node, _| outside(node));
        self.timers.retain(|node, _| outside(node));
        self.deadlines.retain(|node, _| outside(node));
        self.watched.retain(|within| !NodeId::inside(within, &owner.step).is_inside(owner));
    }

    fn item_ended(&mut self, id: &NodeId, outcome: &Outcome, had_begun: bool) {
        let step = id.whole();
        let fan = self.fans.entry(step.clone()).or_default();
        fan.open = fan.open.saturating_sub(1);
        fan.running = fan.running.saturating_sub(u32::from(had_begun));
        let last = fan.open == 0;
        if last {
            self.todo.insert(step.clone(), Todo::Join);
        }
        if let Some(frame) = self.frames.get_mut(id.within.as_slice())
            && let Some(spec) = frame.plan.clone().orchestrator.as_ref().filter(|spec| spec.supervises.contains(&id.step))
        {
            frame.watch.item_ended(spec, id, outcome);
        }
        if outcome.failure().is_some() {
            self.halt_siblings(id);
        }
        for key in self.waiting_for(id) {
            let dependent = id.with_item(&key);
            if self.nodes.get(&dependent).is_some_and(|state| state.phase == Phase::Waiting) {
                self.met(&dependent, id, outcome.success().is_some());
            }
        }
    }

    /// Keeps the other items of a step from beginning, and has those that run stopped, where the step says so.
    fn halt_siblings(&mut self, id: &NodeId) {
        let Some(step) = self.step(id) else { return };
        let fail_fast = step.for_each.as_ref().is_some_and(|fan| fan.fail_fast) || step.matrix.as_ref().is_some_and(|fan| fan.fail_fast);
        let stops = step.for_each.as_ref().is_some_and(|fan| fan.on_item_failure == OnItemFailure::Stop);
        let Some(fan) = self.fans.get_mut(&id.whole()).filter(|fan| (fail_fast || stops) && fan.halted_by.is_none()) else { return };
        fan.halted_by = Some(id.clone());
        for key in fan.keys.clone() {
            let sibling = id.with_item(&key);
            match self.nodes.get(&sibling).map(|state| state.phase) {
                Some(Phase::Running) if fail_fast => drop(self.doomed.insert(sibling, id.clone())),
                Some(Phase::Running | Phase::Ended) | None => {}
                Some(Phase::Waiting | Phase::Ready | Phase::Retrying) => {
                    self.no_longer_ready(&sibling);
                    self.timers.remove(&sibling);
                    self.todo.insert(sibling, Todo::Skip(SkipCause::Sibling(id.clone())));
                }
            }
        }
    }

    fn tell_dependents(&mut self, id: &NodeId, outcome: &Outcome) {
        let Some(plan) = self.frames.get(id.within.as_slice()).map(|frame| frame.plan.clone()) else { return };
        for (step, on) in plan.dependents(&id.step) {
            let dependent = id.beside(&step.id);
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
