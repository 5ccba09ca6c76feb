//! Steps inside of steps: when a frame is over, what follows it, and what a loop or a call makes of it. Pure.
use super::{accounts::Winding, close, scope};
use crate::{
    event::{CommitId, Event, Failure, FailureKind, Frame, Limit, NodeId, Outcome, SkipCause, StepId, Success},
    journal::{FINALLY, FrameState, ON_FAILURE, RunState},
    plan::{LoopSpec, Plan, PlannedStep, Work},
    prompts,
    workflow::OnExceed,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What follows the last step of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Steps, or the orchestrator, are still at work.
    Working,
    /// An ending of the workflow begins.
    Ending(NodeId),
    /// Nothing.
    Over,
}

/// Says where a frame stands.
pub(super) fn stage(state: &RunState, within: &[Frame]) -> Stage {
    let Some(frame) = state.frame(within) else { return Stage::Over };
    let called_off = state.is_called_off(within);
    if frame.open_steps > 0 || !(called_off || is_resting(frame)) {
        return Stage::Working;
    }
    let endings = [(ON_FAILURE, &frame.plan.on_failure, has_failed(state, within) && !called_off), (FINALLY, &frame.plan.finally, true)];
    for (id, plan, wanted) in endings {
        if plan.is_none() || !wanted {
            continue;
        }
        let node = NodeId::inside(within, &StepId::from(id));
        match state.inner(&node) {
            None => return Stage::Ending(node),
            Some((_, inner)) if inner.open_steps > 0 => return Stage::Working,
            Some(_) => {}
        }
    }
    Stage::Over
}

/// Returns whether the orchestrator of a frame, where it has one, has said its last words.
fn is_resting(frame: &FrameState) -> bool {
    frame.plan.orchestrator.is_none() || frame.watch.is_broken() || (frame.watch.is_closed() && !frame.watch.is_awake())
}

/// Returns whether a workflow has failed so far, its endings not counted.
pub(super) fn has_failed(state: &RunState, within: &[Frame]) -> bool {
    let stopped = within.is_empty() && state.limit().is_some() && state.plan().on_exceed != OnExceed::Finish;
    stopped || (within.is_empty() && state.cancelled().is_some()) || state.frame(within).is_some_and(|frame| frame.failed.is_some())
}

/// Returns whether a node belongs to the ending of a workflow: what it does is to happen whatever became of the rest.
pub(super) fn is_of_an_ending(node: &NodeId) -> bool {
    node.within.iter().any(|frame| matches!(frame.step.0.as_str(), ON_FAILURE | FINALLY))
}

/// Returns why a workflow whose steps and endings have all ended did not succeed.
pub(super) fn failure(state: &RunState, within: &[Frame]) -> Option<Failure> {
    let frame = state.frame(within)?;
    if let Some(by) = state.cancelled().filter(|_| within.is_empty()) {
        return Some(called_off(by));
    }
    let own = first_failure(state, within, frame);
    let last = || {
        let node = NodeId::inside(within, &StepId::from(FINALLY));
        let (within, frame) = state.inner(&node)?;
        let failure = first_failure(state, &within, frame)?;
        Some(Failure { message: format!("in `{FINALLY}`: {}", failure.message), ..failure })
    };
    own.or_else(last)
}

/// Says that a run was called off.
pub(super) fn called_off(by: &str) -> Failure {
    Failure::new(FailureKind::Cancelled, format!("cancelled by {by}"))
}

/// Returns what failed first in a frame.
pub(super) fn first_failure(state: &RunState, within: &[Frame], frame: &FrameState) -> Option<Failure> {
    let id = frame.failed.as_ref()?;
    let failure = state.outcome(&NodeId::inside(within, id)).and_then(Outcome::failure)?;
    Some(Failure { message: format!("step `{id}`: {}", failure.message), output: Value::Null, ..failure.clone() })
}

/// Makes the inputs of a called workflow; a loop has none.
///
/// # Errors
/// A template, or inputs that do not fit.
pub(super) fn inputs(state: &RunState, node: &NodeId, step: &PlannedStep) -> Result<Option<Map<String, Value>>, Failure> {
    let Work::Workflow(call) = &step.work else { return Ok(None) };
    let scope = scope::scope(state, node, &step.reads);
    let wrong = |name: &str, why: &dyn std::fmt::Display| Failure::new(FailureKind::Template, format!("`with.{name}`: {why}"));
    let mut given = Map::new();
    for (name, value) in &call.with {
        given.insert(name.clone(), prompts::evaluate_all(&value.value, &scope).map_err(|error| wrong(name, &error))?);
    }
    let fits = call.plan.check_inputs(&given);
    let why = |problems: &Vec<String>| problems.join("; ");
    fits.map(Some).map_err(|problems| Failure::new(FailureKind::Template, format!("the inputs of `{}`: {}", call.plan.name, why(&problems))))
}

/// Says what follows a frame that is over: another iteration, or the end of the node that opened it. `commit` is the
/// joined work of the frame; `winding` what the budgets below the run's say.
pub(super) fn turn(state: &RunState, node: &NodeId, commit: CommitId, winding: Winding) -> Event {
    let (Some(step), Some((within, frame))) = (state.step(node), state.inner(node)) else {
        return ended(node, Failure::new(FailureKind::Bug, "it has no steps that could end").into());
    };
    match &step.work {
        Work::Loop(spec) => again(state, node, spec, (commit, winding)),
        Work::Workflow(call) => {
            if let Some(failure) = failure(state, &within).or_else(|| cut_short(state, &within, frame, winding)) {
                let message = format!("workflow `{}`: {}", call.plan.name, failure.message);
                return ended(node, Failure { message, ..failure }.into());
            }
            let (output, _) = outputs(state, &within, frame);
            ended(node, Outcome::Succeeded(Success { output: output.into(), commit: written(state, node, commit) }))
        }
        Work::Agent { .. } | Work::Run { .. } | Work::Merge(_) | Work::Select(_) | Work::Approve(_) => {
            ended(node, Failure::new(FailureKind::Bug, "it is no loop and no call").into())
        }
    }
}

/// Returns why a called workflow did not come to its end: steps of it were left out when the run, or what is around it,
/// reached a limit.
fn cut_short(state: &RunState, within: &[Frame], frame: &FrameState, winding: Winding) -> Option<Failure> {
    let limit = limit_around(state, winding)?;
    let left_out = |id: &StepId| matches!(state.outcome(&NodeId::inside(within, id)), Some(Outcome::Skipped(SkipCause::RunEnding | SkipCause::Budget(_))));
    frame.plan.order().iter().any(left_out).then(|| crate::agent::out_of_budget(limit))
}

fn limit_around(state: &RunState, winding: Winding) -> Option<Limit> {
    let around = if let Winding::Around(limit) = winding { Some(limit) } else { None };
    state.limit().or(around)
}

fn again(state: &RunState, node: &NodeId, spec: &LoopSpec, (commit, winding): (CommitId, Winding)) -> Event {
    let round = state.node(node).map_or(1, |state| state.round);
    let Some((within, frame)) = state.inner(node) else { return ended(node, Failure::new(FailureKind::Bug, "the loop has no iteration").into()) };
    let output = iteration(state, &within, frame, round);
    if let Some(failure) = first_failure(state, &within, frame) {
        let message = format!("iteration {round}: {}", failure.message);
        return ended(node, Failure { message, output, ..failure }.into());
    }
    if let Some(limit) = limit_around(state, winding).filter(|_| !is_of_an_ending(node)) {
        return ended(node, Failure { output, ..crate::agent::out_of_budget(limit) }.into());
    }
    if winding == Winding::Own {
        return ended(node, Outcome::Succeeded(Success { output: output.into(), commit: written(state, node, commit) }));
    }
    let last = NodeId::inside(&within, &StepId::from("(until)"));
    match prompts::condition(&spec.until.value, &scope::scope(state, &last, &spec.reads)) {
        Err(error) => ended(node, Failure::new(FailureKind::Template, format!("`until`: {error}")).into()),
        Ok(true) => ended(node, Outcome::Succeeded(Success { output: output.into(), commit: written(state, node, commit) })),
        Ok(false) if round >= spec.max => {
            let failure = Failure::new(FailureKind::Exhausted, format!("`until` does not hold after {round} iterations"));
            ended(node, Failure { output, ..failure.hint("raise `max`, or look at what the last iteration left") }.into())
        }
        Ok(false) => Event::FrameOpened { node: node.clone(), round: round + 1, base: commit, inputs: None },
    }
}

/// Returns the commit of a node's work, where it differs from what the node started from.
fn written(state: &RunState, node: &NodeId, commit: CommitId) -> Option<CommitId> {
    let attempt = state.node(node)?.attempts;
    let first = state.frame(&node.frame(attempt, 1))?;
    (first.base.as_ref() != Some(&commit)).then_some(commit)
}

/// The output of a loop: what each step of the last iteration left, and how many there were.
fn iteration(state: &RunState, within: &[Frame], frame: &FrameState, round: u32) -> Value {
    let mut output = json!({"iterations": round});
    for id in frame.plan.order() {
        output[&id.0] = scope::result(state, &NodeId::inside(within, id));
    }
    output
}

/// Evaluates the outputs of a workflow. The work is done by then and paid for: one that cannot be made is null, and why is told
/// beside them, by their names.
pub(super) fn outputs(state: &RunState, within: &[Frame], frame: &FrameState) -> (Value, Vec<(String, String)>) {
    let scope = scope::scope(state, &NodeId::inside(within, &close::node().step), &frame.plan.reads);
    let (mut output, mut unmade) = (Map::new(), Vec::new());
    for (name, text) in &frame.plan.outputs {
        let value = prompts::evaluate(&text.value, &scope).unwrap_or_else(|error| {
            unmade.push((name.clone(), error.to_string()));
            Value::Null
        });
        output.insert(name.clone(), value);
    }
    (Value::Object(output), unmade)
}

/// Returns the outputs of a run that could not be made, by their names, and why.
pub fn unmade_outputs(state: &RunState) -> Vec<(String, String)> {
    state.frame(&[]).map(|frame| outputs(state, &[], frame).1).unwrap_or_default()
}

/// Returns the plan of a node's frame.
pub(super) fn plan_of(state: &RunState, node: &NodeId) -> Option<Arc<Plan>> {
    state.frame(&node.within).map(|frame| frame.plan.clone())
}

fn ended(node: &NodeId, outcome: Outcome) -> Event {
    Event::StepFinished { node: node.clone(), outcome }
}
