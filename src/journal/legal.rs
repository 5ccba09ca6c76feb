//! What may follow what: an event that cannot have happened is refused before it is stored.
use super::{Call, Ending, Next, Phase, Question, RunState, Todo, Watch, account};
use crate::event::{Event, Item, NodeId, Outcome, SelectProgress, Why};
use std::collections::HashSet;

impl RunState {
    pub(super) fn objection(&self, event: &Event) -> Option<&'static str> {
        let no = |legal: bool, why: &'static str| if legal { None } else { Some(why) };
        match event {
            Event::RunStarted(_) | Event::RunResumed { .. } | Event::LimitReached { .. } => None,
            Event::RunCancelled { .. } => no(self.cancelled.is_none(), "the run is called off already"),
            Event::ConditionEvaluated { node, .. } => no(self.todo.get(node) == Some(&Todo::Evaluate), "the node waits for no condition"),
            Event::FrameOpened { node, round, .. } => self.frame_objection(node, *round),
            Event::ItemsAdded { step, items, by, .. } => self.items_objection(step, items, by),
            Event::StepStarted { node, attempt } => no(
                self.nodes.get(node).is_some_and(|state| state.phase == Phase::Ready && state.attempts + 1 == *attempt),
                "the node is not ready for this attempt",
            ),
            Event::HookRan { node, .. } | Event::QuestionAsked { node, .. } if *node == account() => None,
            Event::WorkspaceMade { node, .. }
            | Event::VerifyRan { node, .. }
            | Event::WorkCaptured { node, .. }
            | Event::CheckpointKept { node, .. }
            | Event::CacheHit { node, .. }
            | Event::ArtefactKept { node, .. }
            | Event::MergeAdvanced { node, .. }
            | Event::HookRan { node, .. }
            | Event::Parked { node, .. }
            | Event::QuestionAsked { node, .. } => no(self.is_active(node), "the node is not running"),
            Event::QuestionAnswered { node, call, .. } => no(self.open_question(node, call).is_some(), "no such question is open"),
            Event::Told { node, letter, .. } => no(
                (self.ahead(node).is_some() || self.is_orchestrator(node))
                    && self.words.get(node).is_none_or(|said| said.iter().all(|word| word.letter != *letter)),
                "the node has ended, or it has this word already",
            ),
            Event::SelectAdvanced { node, progress } => {
                no(self.is_active(node) && self.may_select(node, progress), "the choice has come further, or its node is not running")
            }
            Event::WorkDelivered { node, .. } => no(
                self.is_active(node)
                    && node.helper.is_some()
                    && self.nodes.get(node).is_some_and(|state| state.deeds.captured.is_some() && state.deeds.delivered.is_none()),
                "no sub-agent has work to deliver here",
            ),
            Event::AgentBriefed { node, .. } => {
                let fresh = self.nodes.get(node).is_none_or(|state| state.conversation.brief().is_none());
                no(fresh && (self.is_active(node) || self.is_orchestrator(node)), "the agent is briefed already, or its node is not running")
            }
            Event::MessageAdded { node, why, .. } => {
                let may = |next| matches!(next, Next::End(_)) || (*why == Why::Told && next == Next::Ask);
                no(self.is_active(node) && self.next(node).is_some_and(may), "the agent has not stopped")
            }
            Event::FellBack { node, .. } => {
                let next = self.next(node);
                let fresh = self.nodes.get(node).is_some_and(|state| state.conversation.is_fresh());
                let may = fresh && matches!(next, Some(Next::Ask | Next::End(Ending::Refused { .. })));
                no(self.is_active(node) && may, "a model has answered already, or nothing was asked")
            }
            Event::AttemptsLost { node, .. } => no(self.is_active(node) && self.next(node).is_some(), "no agent asks a model there"),
            // Room that was not made is no reason not to read what came of it.
            Event::ModelReplied { node, .. } => {
                no(self.is_active(node) && matches!(self.next(node), Some(Next::Ask | Next::Shorten)), "nothing was asked of the model")
            }
            Event::ToolStarted { node, call, .. } => no(
                self.is_active(node) && self.open_call(node, call).is_some_and(|open| open.started.is_none()),
                "no such call is open, or it was started already",
            ),
            Event::ToolFinished { node, result, .. } => no(self.is_active(node) && self.open_call(node, &result.call).is_some(), "no such call is open"),
            Event::Compacted { node, cut, .. } => {
                no(self.is_active(node) && self.nodes.get(node).is_some_and(|state| *cut <= state.conversation.messages().len()), "there is less to compact")
            }
            Event::RetryScheduled { node, .. } => no(self.may_retry(node), "the node cannot be tried again"),
            Event::TimerFired { node } => no(self.timers.contains_key(node), "the node waits for no time"),
            Event::OrchestratorWoken { node, .. } => {
                no(self.watch_of(node).is_some_and(|watch| !watch.is_awake() && !watch.is_broken()), "the orchestrator cannot be woken")
            }
            Event::OrchestratorRested { node, .. } => no(self.watch_of(node).is_some_and(Watch::is_awake), "the orchestrator is not awake"),
            Event::StepFinished { node, outcome } => self.end_objection(node, outcome),
            Event::BranchIntended { .. } => no(self.open_steps() == 0 && self.branch.is_none(), "the run has open steps, or a branch"),
            Event::BranchMade { name, commit } => {
                no(self.branch.as_ref().is_some_and(|branch| branch.name == *name && branch.commit == *commit), "another branch was intended")
            }
            Event::RunFinished { .. } => no(self.open_steps() == 0 && self.running.is_empty(), "the run has open steps"),
        }
    }

    fn frame_objection(&self, node: &NodeId, round: u32) -> Option<&'static str> {
        let Some(plan) = self.inner_plan(node) else { return Some("there are no steps inside the node") };
        if plan.order().is_empty() {
            return Some("there are no steps inside the node");
        }
        let legal = match self.nodes.get(node) {
            // An ending begins once, when every step around it has ended.
            None => round == 1 && self.step(node).is_none() && self.frames.get(&node.within).is_some_and(|frame| frame.open_steps == 0),
            Some(state) if state.round == 0 => round == 1 && self.is_running(node),
            Some(state) => round == state.round + 1 && self.todo.get(node) == Some(&Todo::Turn),
        };
        if legal { None } else { Some("the node does not wait for this iteration") }
    }

    fn items_objection(&self, step: &NodeId, items: &[Item], by: &NodeId) -> Option<&'static str> {
        let node = step;
        let first = by == node;
        let fan = self.fans.get(step);
        if self.step(step).is_none_or(|step| !step.is_fan()) || self.outcome(node).is_some() {
            return Some("the step takes no items");
        }
        if first && self.todo.get(node) != Some(&Todo::Expand) || !first && (fan.is_none() || !self.is_orchestrator(by)) {
            return Some("the step does not wait for these items");
        }
        let mut keys: HashSet<&str> = fan.map(|fan| fan.keys().collect()).unwrap_or_default();
        if !items.iter().all(|item| keys.insert(&item.key)) {
            return Some("an item's key is taken");
        }
        if !items.iter().flat_map(|item| &item.needs).all(|need| keys.contains(need.as_str())) {
            return Some("an item needs an unknown one");
        }
        None
    }

    fn end_objection(&self, node: &NodeId, outcome: &Outcome) -> Option<&'static str> {
        let Some(state) = self.nodes.get(node) else { return Some("there is no such node") };
        if state.phase == Phase::Ended || node.helper.is_some() {
            return Some("the node has ended");
        }
        if node.item.is_none() && self.fans.get(node).is_some_and(|fan| fan.open > 0) {
            return Some("the step has open items");
        }
        let waited = self.todo.contains_key(node) || matches!(state.phase, Phase::Retrying | Phase::Ready);
        let legal = self.is_running(node) || self.open.contains(node) || waited || (state.phase == Phase::Waiting && matches!(outcome, Outcome::Skipped(_)));
        if legal { None } else { Some("the node was never begun") }
    }

    /// Each candidate is tried once and each vote given once, and nothing follows the choice.
    fn may_select(&self, node: &NodeId, progress: &SelectProgress) -> bool {
        let done = self.nodes.get(node).map(|state| state.deeds.selected.as_slice()).unwrap_or_default();
        let vote_of = |progress: &SelectProgress| match progress {
            SelectProgress::Voted { vote, .. } | SelectProgress::Abstained { vote, .. } => Some(*vote),
            SelectProgress::Gated { .. } | SelectProgress::Chosen { .. } => None,
        };
        done.iter().all(|earlier| match (earlier, progress) {
            (SelectProgress::Chosen { .. }, _) => false,
            (SelectProgress::Gated { candidate: earlier, .. }, SelectProgress::Gated { candidate, .. }) => earlier != candidate,
            _ => vote_of(progress).is_none() || vote_of(earlier) != vote_of(progress),
        })
    }

    fn may_retry(&self, node: &NodeId) -> bool {
        let ended_item = node.item.is_some() && self.outcome(node).is_some_and(|outcome| outcome.failure().is_some()) && self.outcome(&node.whole()).is_none();
        self.is_running(node) || self.open.contains(node) || ended_item
    }

    fn open_question(&self, node: &NodeId, call: &str) -> Option<&Question> {
        self.asking.get(node).and_then(|node| self.nodes.get(node)?.conversation.open_questions().find(|open| open.call == call))
    }

    fn next(&self, node: &NodeId) -> Option<Next> {
        Some(self.nodes.get(node)?.conversation.next())
    }

    fn open_call(&self, node: &NodeId, call: &str) -> Option<&Call> {
        self.nodes.get(node)?.conversation.open_calls().find(|open| open.call.id == call)
    }
}
