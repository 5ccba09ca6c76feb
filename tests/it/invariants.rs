//! What holds of every log, whatever the workflow: each test hands its log here. It knows nothing of the fold.
use spinney::{
    event::{CommitId, Event, NodeId, Outcome, Record, SkipCause},
    plan::Plan,
    workflow::On,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// Panics where a log says what cannot be.
#[track_caller]
pub(crate) fn check(records: &[Record], repo: &Path) {
    of_log(records);
    commits_are_kept(records, repo);
}

/// Panics where a log alone, whatever became of the repository, says what cannot be.
#[track_caller]
pub(crate) fn of_log(records: &[Record]) {
    numbered(records);
    calls_have_one_result(records);
    nodes_start_and_end(records);
}

fn numbered(records: &[Record]) {
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record.seq, at as u64, "a gap in the log");
        assert_eq!(matches!(record.event, Event::RunStarted(_)), at == 0, "a run starts once, first");
        if matches!(record.event, Event::RunFinished { .. }) {
            assert_eq!(at + 1, records.len(), "something happened after the end");
        }
    }
    // What holds of an earlier run was recorded before this one began.
    let held = held(records);
    for pair in records.windows(2).filter(|pair| pair[0].seq != 0 || held == 0) {
        assert!(pair[0].at <= pair[1].at, "time went back at record {}", pair[1].seq);
    }
    let began = records.first().map(|record| record.at);
    assert!(records.iter().filter(|record| record.seq > held).all(|record| Some(record.at) >= began), "something happened before the beginning");
}

/// Returns how many records hold of an earlier run: they follow the first.
pub(crate) fn held(records: &[Record]) -> u64 {
    match records.first().map(|record| &record.event) {
        Some(Event::RunStarted(started)) => started.origin.as_ref().map_or(0, |origin| origin.held),
        _ => 0,
    }
}

fn calls_have_one_result(records: &[Record]) {
    let mut open: BTreeMap<&NodeId, BTreeSet<String>> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::StepStarted { node, .. } => {
                open.retain(|other, _| other.owner() != *node);
            }
            Event::ModelReplied { node, reply, .. } => {
                let open = open.entry(node).or_default();
                assert!(open.is_empty(), "{node} was asked while calls were open: {open:?}");
                for call in reply.calls() {
                    assert!(!call.id.is_empty() && open.insert(call.id.clone()), "{node}: an id twice in one reply");
                }
            }
            Event::ToolStarted { node, call, .. } => {
                assert!(open.get(node).is_some_and(|open| open.contains(call)), "{node}: {call} started and is not open");
            }
            Event::ToolFinished { node, result, .. } => {
                assert!(open.get_mut(node).is_some_and(|open| open.remove(&result.call)), "{node}: {} has a result too many", result.call);
                assert!(!result.text.is_empty(), "{node}: an empty result");
            }
            Event::MessageAdded { node, .. } => {
                assert!(open.get(node).is_none_or(BTreeSet::is_empty), "{node} was told something while calls were open");
            }
            Event::StepFinished { node, outcome: Outcome::Succeeded(_) } => {
                assert!(open.get(node).is_none_or(BTreeSet::is_empty), "{node} succeeded with open calls");
            }
            _ => {}
        }
    }
}

fn nodes_start_and_end(records: &[Record]) {
    let mut running: BTreeSet<&NodeId> = BTreeSet::new();
    let mut ended: BTreeMap<&NodeId, &Outcome> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::StepStarted { node, .. } => {
                assert!(running.insert(node), "{node} started twice");
                assert!(!ended.contains_key(node), "{node} started after its end");
            }
            Event::RetryScheduled { node, .. } => {
                running.remove(node);
                // What was stopped inside of a node has no end of its own.
                running.retain(|inner| !inner.is_inside(node));
                revive(node, &mut ended);
            }
            Event::StepFinished { node, outcome } => {
                running.remove(node);
                assert!(outcome.success().is_none() || !running.iter().any(|inner| inner.is_inside(node)), "{node} succeeded over what ran in it");
                running.retain(|inner| !inner.is_inside(node));
                assert!(ended.insert(node, outcome).is_none(), "{node} ended twice");
            }
            Event::RunFinished { .. } => assert!(running.is_empty(), "the run ended while these ran: {running:?}"),
            _ => {}
        }
    }
}

/// A node that is tried again has not ended, nor have those that were skipped because of it.
fn revive(node: &NodeId, ended: &mut BTreeMap<&NodeId, &Outcome>) {
    ended.remove(node);
    let because = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(SkipCause::Upstream(upstream)) if upstream == node);
    let skipped: Vec<NodeId> = ended.iter().filter(|(_, outcome)| because(outcome)).map(|(id, _)| (*id).clone()).collect();
    for id in &skipped {
        revive(id, ended);
    }
}

fn commits_are_kept(records: &[Record], repo: &Path) {
    if !matches!(records.last().map(|record| &record.event), Some(Event::RunFinished { .. })) {
        return;
    }
    let repo = git2::Repository::open(repo).unwrap();
    let mut walk = repo.revwalk().unwrap();
    walk.push_glob("refs/*").unwrap();
    let kept: BTreeSet<String> = walk.map(|commit| commit.unwrap().to_string()).collect();
    let is_kept = |node: &NodeId, commit: &CommitId| assert!(kept.contains(&commit.0), "no ref keeps {commit}, the work of {node}");
    let mut attempts: BTreeMap<&NodeId, u32> = BTreeMap::new();
    let mut checkpoints: Vec<(&NodeId, u32, &CommitId)> = Vec::new();
    for record in records {
        let attempt = |node: &NodeId| attempts.get(&node.owner()).copied().unwrap_or(1);
        match &record.event {
            Event::StepStarted { node, attempt } => drop(attempts.insert(node, *attempt)),
            Event::CheckpointKept { node, commit } => {
                // An attempt that a death kept from its end goes on, and its files with it.
                let attempt = attempt(node);
                checkpoints.retain(|(whose, of, _)| (*whose, *of) != (node, attempt));
                checkpoints.push((node, attempt, commit));
            }
            Event::WorkCaptured { node, commit, .. } => {
                is_kept(node, commit);
                // The checkpoint of an attempt ends with its result.
                let attempt = attempt(node);
                checkpoints.retain(|(whose, of, _)| (*whose, *of) != (node, attempt));
            }
            _ => {}
        }
    }
    for (node, _, commit) in checkpoints {
        is_kept(node, commit);
    }
}

/// Panics where a log says what its plan does not allow: something began before what it needs, or more was used than there is.
#[track_caller]
pub(crate) fn of_plan(plan: &Arc<Plan>, records: &[Record]) {
    let mut ended: BTreeMap<NodeId, Outcome> = BTreeMap::new();
    let mut needs: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    let (mut turns, mut allowed) = (0, 1);
    for record in records {
        match &record.event {
            Event::ItemsAdded { step, items, .. } => needs.extend(items.iter().map(|item| (step.with_item(&item.key), item.needs.clone()))),
            Event::StepFinished { node, outcome } => drop(ended.insert(node.clone(), outcome.clone())),
            Event::RetryScheduled { node, .. } => drop(ended.remove(node)),
            Event::QuestionAnswered { node, allowed: true, .. } if node.step.0 == "(run)" => allowed += 1,
            Event::ModelReplied { .. } => {
                turns += 1;
                let most = plan.limits.turns.saturating_mul(allowed);
                assert!(turns <= most, "{turns} turns of {most} at record {}", record.seq);
            }
            Event::StepStarted { node, .. } => {
                for (need, on) in plan_of(plan, node).needs(&node.step).map(|(need, on)| (node.beside(&need.id), on)) {
                    let allows = plan_of(plan, &need).step(&need.step).is_some_and(|step| step.allow_failure);
                    let met = match ended.get(&need) {
                        Some(Outcome::Succeeded(_)) => on != On::Failure,
                        Some(Outcome::Failed(_)) => on != On::Success || allows,
                        Some(Outcome::Skipped(_)) | None => false,
                    };
                    assert!(met, "{node} started before {need}, which it needs ({on:?})");
                }
                for need in needs.get(node).into_iter().flatten().map(|key| node.with_item(key)) {
                    assert!(matches!(ended.get(&need), Some(Outcome::Succeeded(_))), "{node} started before {need}, which it needs");
                }
            }
            _ => {}
        }
    }
}

/// Returns the plan of what a node stands inside of.
fn plan_of<'p>(plan: &'p Arc<Plan>, node: &NodeId) -> &'p Arc<Plan> {
    node.within.iter().fold(plan, |plan, frame| match frame.step.0.as_str() {
        "on_failure" => plan.on_failure.as_ref().unwrap(),
        "finally" => plan.finally.as_ref().unwrap(),
        _ => plan.step(&frame.step).and_then(|step| step.inner()).unwrap(),
    })
}
