//! What an event changes. Legality is settled before.
use super::{
    Fan, NodeState, Phase, RunState, Todo, Word, Workspace,
    seats::Seat,
    state::{Branch, FINALLY, FrameState, ON_FAILURE, Place},
};
use crate::{
    clock::Timestamp,
    event::{Event, Frame, Item, NodeId, NodeName, Outcome, RunStarted, SkipCause, Wake},
    plan::Trait,
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
                self.node_mut(node).deeds.note().workspace = Some(Workspace { base: base.clone(), isolation: *isolation, path: path.clone() });
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
            Event::WorkCaptured { node, commit, paths } => self.node_mut(node).deeds.note().captured = Some((commit.clone(), paths.clone())),
            Event::MergeAdvanced { node, progress } => self.node_mut(node).deeds.note().merged.push(progress.clone()),
            Event::SelectAdvanced { node, progress } => self.node_mut(node).deeds.note().selected.push(progress.clone()),
            Event::WorkDelivered { node, delivery } => self.node_mut(node).deeds.note().delivered = Some(delivery.clone()),
            Event::QuestionAsked { node, .. } | Event::QuestionAnswered { node, .. } | Event::HookRan { node, .. } => self.questioned(node, event),
            Event::Told { node, text, letter, .. } => {
                self.words.entry(node.clone()).or_default().push(Word { text: text.clone(), letter: letter.clone() });
                self.orchestrator_told(node);
            }
            Event::RetryScheduled { node, due, handed_over, lost, .. } => self.retry_scheduled(node, *due, (*handed_over, *lost)),
            Event::TimerFired { node } => {
                self.timers.remove(node);
                let seat = self.nodes.seat_or_new(node);
                self.make_ready(seat);
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
            Event::CheckpointKept { node, commit } => self.node_mut(node).deeds.note().checkpoint = Some(commit.clone()),
            Event::VerifyRan { .. } | Event::CacheHit { .. } | Event::ArtefactKept { .. } => {}
        }
    }

    fn node_mut(&mut self, id: &NodeId) -> &mut NodeState {
        let seat = self.nodes.seat_or_new(id);
        &mut self.nodes[seat]
    }

    /// Notes whose session a helper's is, when it is first spoken of.
    fn note_helper(&mut self, node: &NodeId) {
        if let Some(name) = &node.helper {
            self.helpers.entry(node.owner()).or_default().insert(name.clone());
        }
    }

    /// Returns the items that whoever has a seat is one of.
    fn fan_mut(&mut self, seat: Seat) -> Option<&mut Fan> {
        let whole = self.whole(seat)?.clone();
        self.fans.get_mut(&whole)
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
        if let Some(spec) = &frame.plan.orchestrator {
            frame.watch.run_started(spec);
        }
        let steps = frame.first..frame.first + frame.plan.order().len();
        for seat in steps {
            if self.nodes[seat].unmet == 0 {
                self.settle(seat);
            }
        }
    }

    fn round_began(&mut self, node: &NodeId, round: u32) {
        self.something_moved();
        self.todo.remove(node);
        self.open.insert(node.clone());
        let seat = self.nodes.seat_or_new(node);
        let state = &mut self.nodes[seat];
        self.running.remove(&state.place);
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
    fn settle(&mut self, seat: Seat) {
        let (Some(conditional), Some(fan)) = (self.is(seat, Trait::Conditional), self.is(seat, Trait::Fan)) else { return };
        if !conditional && !fan {
            return self.make_ready(seat);
        }
        let (id, is_decided) = (self.nodes.name(seat).clone(), self.nodes[seat].condition.is_some());
        if id.item.is_none() && conditional && !is_decided {
            self.todo.insert(id, Todo::Evaluate);
        } else if id.item.is_none() && fan {
            self.todo.insert(id, Todo::Expand);
        } else {
            self.make_ready(seat);
        }
    }

    fn make_ready(&mut self, seat: Seat) {
        let takes_a_place = self.is(seat, Trait::TakesAPlace).unwrap_or(true);
        let id = self.nodes.name(seat).clone();
        let state = &mut self.nodes[seat];
        state.phase = Phase::Ready;
        if takes_a_place { &mut self.ready } else { &mut self.free }.insert(state.place, id);
    }

    /// Forgets what a node and its helpers wait for outside of the run.
    fn no_longer_waits(&mut self, id: &NodeId) {
        if !self.asking.is_empty() {
            self.asking.retain(|asking| asking.owner() != *id);
        }
        if !self.parked.is_empty() {
            self.parked.retain(|parked, _| parked.owner() != *id);
        }
    }

    fn no_longer_ready(&mut self, seat: Seat) {
        let state = &self.nodes[seat];
        if state.phase == Phase::Ready {
            self.ready.remove(&state.place);
            self.free.remove(&state.place);
        }
    }

    fn condition_evaluated(&mut self, id: &NodeId, holds: bool) {
        self.todo.remove(id);
        let seat = self.nodes.seat_or_new(id);
        self.nodes[seat].condition = Some(holds);
        if holds {
            self.settle(seat);
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
        let place = self.node_mut(step).place;
        let fan = self.fans.entry(step.clone()).or_default();
        let first = fan.items.len() + 1;
        fan.max_parallel = max_parallel.or(fan.max_parallel);
        fan.open += items.len();
        let mut seats = Vec::with_capacity(items.len());
        for (item, number) in items.iter().zip(first..) {
            let place = Place { item: u32::try_from(number).expect("a run has fewer items than that"), ..place };
            let state = NodeState { place, item: Some(Arc::new(item.clone())), ..NodeState::default() };
            let name = NodeName { within: step.within.clone(), step: step.step.clone(), item: Some(item.key.clone()), helper: None };
            let seat = self.nodes.add_last(name, state);
            fan.items.push(self.nodes.name(seat).clone());
            seats.push(seat);
            for need in &item.needs {
                fan.waiting_for.entry(need.clone()).or_default().push(item.key.clone());
            }
        }
        let halted_by = fan.halted_by.clone();
        if fan.open == 0 {
            self.todo.insert(step.clone(), Todo::Join);
        }
        for seat in seats {
            match &halted_by {
                Some(by) => drop(self.todo.insert(self.nodes.name(seat).clone(), Todo::Skip(SkipCause::Sibling(by.clone())))),
                None => self.item_needs(seat),
            }
        }
    }

    /// Counts an item's needs anew and moves it on accordingly.
    fn item_needs(&mut self, seat: Seat) {
        let Some(item) = self.nodes[seat].item.clone() else { return };
        let id = self.nodes.name(seat).clone();
        let mut unmet = 0;
        for need in &item.needs {
            let needed = id.with_item(need);
            match self.outcome(&needed) {
                None => unmet += 1,
                Some(Outcome::Succeeded(_)) => {}
                Some(Outcome::Failed(_) | Outcome::Skipped(_)) => {
                    self.todo.insert(id.clone(), Todo::Skip(SkipCause::Upstream(needed)));
                }
            }
        }
        self.nodes[seat].unmet = unmet;
        if unmet == 0 && !self.todo.contains_key(&id) {
            self.settle(seat);
        }
    }

    fn step_started(&mut self, id: &NodeId, attempt: u32, at: Timestamp) {
        self.something_moved();
        let seat = self.nodes.seat_or_new(id);
        self.running.insert(self.nodes[seat].place, id.clone());
        if id.item.is_some()
            && let Some(fan) = self.fan_mut(seat)
        {
            fan.running += 1;
        }
        // An attempt starts afresh: its helpers' sessions belong to the attempt before.
        for name in self.helpers.remove(id).unwrap_or_default() {
            self.nodes.remove(&id.helper(&name));
        }
        self.no_longer_waits(id);
        if self.is(seat, Trait::HasSteps) == Some(true)
            && let Some(time) = self.planned(seat).map(|step| step.timeout)
        {
            self.deadlines.insert(id.clone(), at.after(time));
        }
        self.no_longer_ready(seat);
        let state = &mut self.nodes[seat];
        if state.attempts > 0 {
            let before = std::mem::take(state);
            *state = NodeState {
                item: before.item,
                place: before.place,
                condition: before.condition,
                unmet: before.unmet,
                spent: before.spent,
                handed_over: before.handed_over,
                lost: before.lost,
                ..NodeState::default()
            };
        }
        (state.phase, state.attempts, state.began) = (Phase::Running, attempt, Some(at));
    }

    fn questioned(&mut self, id: &NodeId, event: &Event) {
        if matches!(event, Event::QuestionAnswered { .. }) && !self.is_orchestrator(id) {
            self.something_moved();
        }
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
        let seat = self.nodes.seat_or_new(id);
        let state = &mut self.nodes[seat];
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

    fn retry_scheduled(&mut self, id: &NodeId, due: Timestamp, (handed_over, lost): (bool, bool)) {
        let ended = self.nodes.get(id).is_some_and(|state| state.phase == Phase::Ended);
        self.todo.remove(id);
        let place = self.node_mut(id).place;
        self.running.remove(&place);
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
        state.lost += u32::from(lost);
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
                let seat = self.nodes.seat_or_new(&dependent);
                self.item_needs(seat);
                self.revive_dependents(&dependent);
            } else if self.todo.get(&dependent).is_some_and(|todo| matches!(todo, Todo::Skip(_))) {
                self.todo.remove(&dependent);
                let seat = self.nodes.seat_or_new(&dependent);
                self.item_needs(seat);
            }
        }
    }

    /// Returns the keys of the items that need an item.
    fn waiting_for(&self, id: &NodeId) -> Vec<String> {
        self.fan_of(id).and_then(|(_, fan)| fan.waiting_for.get(id.item.as_deref()?)).cloned().unwrap_or_default()
    }

    fn step_finished(&mut self, id: &NodeId, outcome: &Outcome, at: Timestamp) {
        self.todo.remove(id);
        self.timers.remove(id);
        self.no_longer_waits(id);
        self.doomed.remove(id);
        let seat = self.nodes.seat_or_new(id);
        let had_begun = self.running.remove(&self.nodes[seat].place).is_some() | self.open.contains(id);
        self.close_frames_of(id);
        self.no_longer_ready(seat);
        let state = &mut self.nodes[seat];
        state.phase = Phase::Ended;
        state.ended = Some(at);
        state.outcome = Some(outcome.clone());
        self.has_commits |= outcome.success().is_some_and(|success| success.commit.is_some());
        if id.item.is_some() {
            self.item_ended(id, seat, outcome, had_begun);
        } else {
            self.whole_step_ended(id, seat, outcome);
        }
    }

    fn whole_step_ended(&mut self, id: &NodeId, seat: Seat, outcome: &Outcome) {
        let counts = outcome.failure().is_some() && self.planned(seat).is_some_and(|step| !step.allow_failure);
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
        self.tell_dependents(seat, outcome);
    }

    /// Drops what was to happen inside of a node that has ended or begins anew.
    fn close_frames_of(&mut self, owner: &NodeId) {
        self.deadlines.remove(owner);
        if !self.open.remove(owner) {
            return;
        }
        let outside = |node: &NodeId| !node.is_inside(owner);
        self.todo.retain(|node, _| outside(node));
        self.ready.retain(outside);
        self.free.retain(outside);
        self.running.retain(outside);
        self.asking.retain(outside);
        self.parked.retain(|node, _| outside(node));
        self.open.retain(outside);
        self.doomed.retain(|node, _| outside(node));
        self.timers.retain(|node, _| outside(node));
        self.deadlines.retain(|node, _| outside(node));
        self.watched.retain(|within| !NodeId::inside(within, &owner.step).is_inside(owner));
    }

    fn item_ended(&mut self, id: &NodeId, seat: Seat, outcome: &Outcome, had_begun: bool) {
        let Some(fan) = self.fan_mut(seat) else { return };
        fan.open = fan.open.saturating_sub(1);
        fan.running = fan.running.saturating_sub(u32::from(had_begun));
        let last = fan.open == 0;
        if last {
            self.todo.insert(id.whole(), Todo::Join);
        }
        if let Some(frame) = self.frames.get_mut(&id.within)
            && let Some(spec) = frame.plan.clone().orchestrator.as_ref().filter(|spec| spec.supervises.contains(&id.step))
        {
            frame.watch.item_ended(spec, id, outcome);
        }
        if outcome.failure().is_some() {
            self.halt_siblings(id);
        }
        for key in self.waiting_for(id) {
            if let Some(dependent) = self.nodes.seat(&id.with_item(&key)) {
                self.met(dependent, id, outcome.success().is_some());
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
        for sibling in fan.items.clone() {
            let Some(seat) = self.nodes.seat(&sibling) else { continue };
            match self.nodes[seat].phase {
                Phase::Running if fail_fast => drop(self.doomed.insert(sibling, id.clone())),
                Phase::Running | Phase::Ended => {}
                Phase::Waiting | Phase::Ready | Phase::Retrying => {
                    self.no_longer_ready(seat);
                    self.timers.remove(&sibling);
                    self.todo.insert(sibling, Todo::Skip(SkipCause::Sibling(id.clone())));
                }
            }
        }
    }

    fn tell_dependents(&mut self, upstream: Seat, outcome: &Outcome) {
        let place = self.nodes[upstream].place;
        let Some((plan, first)) = self.frames.at(place.frame as usize).map(|frame| (frame.plan.clone(), frame.first)) else { return };
        let Some(from) = plan.at(place.step as usize) else { return };
        let id = self.nodes.name(upstream).clone();
        for (dependent, step, on) in plan.dependents_at(place.step as usize) {
            let satisfied = from.satisfies(on, outcome) || (matches!(outcome, Outcome::Skipped(_)) && step.goes_without(&from.id, on));
            self.met(first + dependent, &id, satisfied);
        }
    }

    /// Counts one need less of a node that waits, or keeps it from beginning.
    fn met(&mut self, dependent: Seat, upstream: &NodeId, satisfied: bool) {
        let state = &mut self.nodes[dependent];
        if state.phase != Phase::Waiting {
            return;
        }
        if satisfied {
            state.unmet = state.unmet.saturating_sub(1);
            if state.unmet == 0 && !self.todo.contains_key(self.nodes.name(dependent)) {
                match self.lacks_sources(dependent) {
                    Some(source) => drop(self.todo.insert(self.nodes.name(dependent).clone(), Todo::Skip(SkipCause::Upstream(source)))),
                    None => self.settle(dependent),
                }
            }
        } else {
            self.todo.insert(self.nodes.name(dependent).clone(), Todo::Skip(SkipCause::Upstream(upstream.clone())));
        }
    }
}
