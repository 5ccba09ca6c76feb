//! Records made by hand, and what is read from them; never files.
use super::*;
use crate::{
    event::{BlobId, Brief, Failure, FailureKind, Form, HookVerdict, Item, Recovery, RunId, SkipCause, Success, Why},
    message::{Block, Message, Reply, StopReason, ToolCall, ToolResult, Usage},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Numbers events, one a second.
pub(in crate::cli) fn records(events: Vec<Event>) -> Vec<Record> {
    (0..).zip(events).map(|(seq, event)| Record { seq, at: Timestamp(1_764_000_000_000 + seq * 1000), event }).collect()
}

pub(in crate::cli) fn node(step: &str) -> NodeId {
    NodeId::step(&step.into())
}

pub(in crate::cli) fn started() -> Event {
    Event::RunStarted(Box::new(RunStarted {
        run: RunId::from("fix-abc234"),
        workflow: "fix".to_owned(),
        file: ".spinney/workflows/fix.yaml".to_owned(),
        inputs: Map::from_iter([("goal".to_owned(), json!("mend\u{1b}[2J it"))]),
        base: "1111111111111111".into(),
        head: Some("refs/heads/main".to_owned()),
        pins: BTreeMap::new(),
        script: None,
        replays: false,
        steps: BTreeMap::new(),
        origin: None,
        given: crate::event::Given::default(),
    }))
}

pub(in crate::cli) fn begins(node: &NodeId, attempt: u32) -> Event {
    Event::StepStarted { node: node.clone(), attempt }
}

pub(in crate::cli) fn briefed(node: &NodeId) -> Event {
    let message = Message::user("<workspace>\nYou stand in /w\n</workspace>\n\nMend the parser.");
    Event::AgentBriefed {
        node: node.clone(),
        brief: Arc::new(Brief {
            agent: "coder".to_owned(),
            models: vec!["a/b".to_owned()],
            system: String::new(),
            tools: Vec::new(),
            provider_tools: Vec::new(),
            output_schema: None,
            message,
        }),
    }
}

pub(in crate::cli) fn replied(node: &NodeId, text: &str, calls: &[(&str, &str, Value)]) -> Event {
    let calls = calls.iter().map(|(id, name, input)| Block::tool_call(&ToolCall { id: (*id).to_owned(), name: (*name).to_owned(), input: input.clone() }));
    let blocks: Vec<Block> = std::iter::once(Block::text(text)).chain(calls).collect();
    let stop = if blocks.len() > 1 { StopReason::ToolUse } else { StopReason::EndTurn };
    let usage = Usage { input: 100, output: 20, cache_read: 900, ..Usage::default() };
    Event::ModelReplied {
        node: node.clone(),
        reply: Box::new(Reply { model: "a/b".to_owned(), blocks, stop, usage, usd: Some(0.5), usd_is_part: false, container: None }),
        prefix: Vec::new(),
    }
}

pub(in crate::cli) fn passes(node: &NodeId, call: &str, input: Option<Value>) -> Event {
    Event::ToolStarted { node: node.clone(), call: call.to_owned(), input, recovery: Recovery::Again }
}

pub(in crate::cli) fn answered(node: &NodeId, call: &str, text: &str, error: bool) -> Event {
    let result = ToolResult::new(call, text, error);
    Event::ToolFinished {
        node: node.clone(),
        result,
        tool: "T".to_owned(),
        verdict: "denied by a rule".to_owned(),
        context: Vec::new(),
        output: None,
        seen: Vec::new(),
        took_ms: 2300,
    }
}

pub(in crate::cli) fn ends(node: &NodeId, outcome: Outcome) -> Event {
    Event::StepFinished { node: node.clone(), outcome }
}

pub(in crate::cli) fn succeeded(output: Value, commit: Option<&str>) -> Outcome {
    Outcome::Succeeded(Success { output: output.into(), commit: commit.map(CommitId::from) })
}

pub(in crate::cli) fn failed(message: &str) -> Outcome {
    Failure::new(FailureKind::Verify, message).into()
}

fn item(key: &str) -> Item {
    Item { key: key.to_owned(), value: Value::Null, matrix: Map::new(), needs: Vec::new() }
}

#[test]
fn nodes_stand_below_what_they_belong_to() {
    let (plan, build, land, watch) = (node("plan"), node("build"), node("land"), node("orchestrator"));
    let (a, b) = (NodeId::item(&build.step, "b/x"), NodeId::item(&build.step, "a"));
    let report = Report::of(&records(vec![
        started(),
        Event::OrchestratorWoken { node: watch.clone(), reasons: vec![crate::event::Wake::Start], message: Message::user("x") },
        begins(&plan, 1),
        ends(&plan, succeeded(Value::Null, None)),
        Event::ItemsAdded { step: build.clone(), items: vec![item("b/x"), item("a")], by: build.clone(), max_parallel: None },
        begins(&b, 1),
        begins(&a, 1),
        begins(&land, 1),
        replied(&land.helper("resolver-1"), "x", &[]),
        replied(&a.helper("sub-1"), "x", &[]),
        Event::OrchestratorRested { node: watch, text: "Goes well".to_owned(), failure: None },
    ]));
    let names: Vec<String> = report.nodes().iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(names, ["plan", "build", "build/b/x", "build/b/x:sub-1", "build/a", "land", "land:resolver-1", "orchestrator"]);
    assert_eq!(report.steps(), (1, 3));
    assert_eq!(report.last_words.as_deref(), Some("Goes well"));
    assert_eq!((report.spent.turns, report.spent.usage.total()), (2, 2040));
    assert!(report.named("build/b/x").is_some() && report.named("build/x").is_none());
}

#[test]
fn a_new_attempt_forgets_what_was_the_old_one_s_and_keeps_what_was_used() {
    let step = node("a");
    let workspace = |path: &str| Event::WorkspaceMade {
        node: step.clone(),
        base: "11".into(),
        isolation: crate::event::Isolation::Linked,
        path: path.to_owned(),
        command: None,
    };
    let report = Report::of(&records(vec![
        started(),
        begins(&step, 1),
        workspace("/one"),
        replied(&step, "x", &[]),
        Event::WorkCaptured { node: step.clone(), commit: "22".into(), paths: vec!["p".to_owned()] },
        Event::RetryScheduled {
            node: step.clone(),
            due: Timestamp(0),
            failure: Failure::new(FailureKind::Model, "no answer"),
            handed_over: false,
            lost: false,
        },
        Event::TimerFired { node: step.clone() },
        begins(&step, 2),
        replied(&step, "y", &[]),
        ends(&step, succeeded(Value::Null, Some("33"))),
    ]));
    let (_, seen) = report.named("a").unwrap();
    assert_eq!((seen.attempts, seen.spent.turns, seen.workspace.is_none(), seen.captured.is_none(), seen.retry.is_none()), (2, 2, true, true, true));
    assert_eq!(seen.commit().unwrap().0, "33");
    assert_eq!(seen.took().unwrap().as_secs(), 8);
}

#[test]
fn a_run_stands_as_its_last_records_and_its_owner_say() {
    let step = node("a");
    let open = vec![started(), begins(&step, 1)];
    let asks = Event::QuestionAsked { node: step.clone(), call: "c".to_owned(), question: "May I?".to_owned(), form: Form::default() };
    let answers = Event::QuestionAnswered { node: step.clone(), call: "c".to_owned(), allowed: true, by: "x".to_owned(), note: None };
    let held = LeaseError::Held { pid: 7, since: Timestamp(0), elsewhere: String::new() };
    let of = |more: Vec<Event>| Report::of(&records([open.clone(), more].concat()));
    assert_eq!(of(vec![]).standing(None), Standing::Interrupted);
    assert_eq!(of(vec![asks.clone()]).standing(None), Standing::Parked);
    assert_eq!(of(vec![asks.clone()]).standing(Some(&held)), Standing::Running(Some(7)));
    assert_eq!(of(vec![asks.clone(), answers]).standing(None), Standing::Interrupted);
    let end = |outcome| Event::RunFinished { outcome };
    assert_eq!(of(vec![asks, end(failed("x"))]).standing(None), Standing::Failed);
    assert_eq!(of(vec![end(succeeded(Value::Null, None))]).standing(Some(&held)), Standing::Succeeded, "its process may still be ending");
    assert_eq!(of(vec![Event::LimitReached { limit: Limit::Money }, end(succeeded(Value::Null, None))]).standing(None), Standing::Partial);
    assert_eq!(of(vec![end(Outcome::Skipped(SkipCause::Stopped))]).standing(None), Standing::Skipped);
}

#[test]
fn prices_are_said_only_where_they_are_known() {
    let report = Report::of(&records(vec![started()]));
    let spent = |turns, usd, unpriced| Spent { turns, usd, unpriced, ..Spent::default() };
    let said: Vec<String> =
        [spent(0, 0.0, false), spent(1, 0.25, false), spent(2, 0.25, true), spent(1, 0.0, true)].iter().map(|spent| report.price(spent)).collect();
    assert_eq!(said, ["-", "$0.2500", ">$0.2500", "?"]);
    let mut scripted = report;
    scripted.started.as_mut().unwrap().script = Some(BlobId::of(b"x"));
    assert_eq!(scripted.price(&spent(1, 0.0, true)), "-");
    scripted.started.as_mut().unwrap().replays = true;
    assert_eq!(scripted.price(&spent(1, 0.0, true)), "?", "what was recorded of a real model had a price");
}

#[test]
fn any_records_are_read_whatever_their_order() {
    let step = node("never begun");
    let report = Report::of(&records(vec![
        answered(&step, "no such call", "x", false),
        passes(&step, "no such call", None),
        Event::MessageAdded { node: step.clone(), message: Message::user("x"), why: Why::Continue },
        ends(&step, failed("x")),
        ends(&step, failed("y")),
        Event::BranchMade { name: "refs/heads/x".to_owned(), commit: "1".into() },
    ]));
    assert_eq!((report.run().as_str(), report.steps()), ("", (1, 1)));
    assert_eq!(Report::of(&[]).standing(None), Standing::Interrupted);
}

#[test]
fn results_and_hooks_are_put_to_their_calls() {
    let step = node("a");
    let records = records(vec![
        started(),
        begins(&step, 1),
        replied(&step, "x", &[("c1", "Read", json!({})), ("c2", "Bash", json!({"command": "ls"}))]),
        passes(&step, "c1", None),
        Event::HookRan {
            node: step.clone(),
            hook: "h".to_owned(),
            on: "PreToolUse".to_owned(),
            call: Some("c2".to_owned()),
            verdict: HookVerdict::Allow,
            reason: String::new(),
        },
        passes(&step, "c2", Some(json!({"command": "ls -a"}))),
        answered(&step, "c2", "two", false),
        answered(&step, "c1", "one", true),
        answered(&step, "c9", "of nobody", true),
        begins(&node("b"), 1),
        Event::HookRan { node: step.clone(), hook: "s".to_owned(), on: "Stop".to_owned(), call: None, verdict: HookVerdict::Block, reason: "more".to_owned() },
    ]);
    let entries = entries(&records, &step);
    let [Entry::Began { attempt: 1 }, Entry::Turn(turn), Entry::Hook(HookSaid { hook: "s", .. })] = &entries[..] else { panic!("{entries:?}") };
    let told: Vec<_> = turn.calls.iter().map(|call| (call.id, call.started, call.result.map(|result| result.text.as_str()), call.hooks.len())).collect();
    assert_eq!(told, [("c1", true, Some("one"), 0), ("c2", true, Some("two"), 1)]);
    assert_eq!(turn.calls[1].rewritten, Some(&json!({"command": "ls -a"})));
}

/// The records that hold were made at the times of the other run.
#[test]
fn what_holds_of_another_run_is_told_apart_in_time_and_in_what_was_used() {
    let build = node("build");
    let (a, b) = (build.with_item("a"), build.with_item("b"));
    let mut first = started();
    if let Event::RunStarted(started) = &mut first {
        started.origin = Some(Origin { run: "old-aaaaaa".into(), wish: Wish::Failed, held: 4 });
    }
    let added = Event::ItemsAdded { step: build.clone(), items: vec![item("a"), item("b")], by: build.clone(), max_parallel: None };
    let held = [added, begins(&a, 1), replied(&a, "x", &[]), ends(&a, succeeded(Value::Null, None))];
    let own = [begins(&b, 1), replied(&b, "y", &[]), ends(&b, succeeded(Value::Null, None)), ends(&build, succeeded(Value::Null, None))];
    let mut log = records([vec![first], held.into(), own.into()].concat());
    log[1..=4].iter_mut().for_each(|record| record.at = Timestamp(record.at.0 - 3_600_000));
    let report = Report::of(&log);
    let of = |id: &NodeId| report.named(&id.to_string()).map(|(_, node)| (node.took().map(|took| took.as_secs()), node.is_held));
    assert_eq!((of(&a), of(&b), of(&build)), (Some((Some(2), true)), Some((Some(2), false)), Some((Some(3), false))));
    assert_eq!((report.spent.turns, report.held.turns, report.spent.since(&report.held).turns), (2, 1, 1));
    assert_eq!(report.origin().map(wished).as_deref(), Some("retry of old-aaaaaa"));
}
