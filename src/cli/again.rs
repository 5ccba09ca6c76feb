//! `retry`, `rerun` and `fork`: a new run that keeps what holds of an earlier one; and `plan RUN`, which shows what that is.
use super::{
    Context, Failed,
    args::{self, How},
    outlet::Outlet,
    report::{json_text, line, pick, put},
    run,
    screen::{Tone, paint, plural, price, short, thousands},
};
use crate::{
    engine::{Again, Models, Moved, Project, Reason, Reset, SetupError, Whence},
    event::{Given, NodeId, RunId, StepId},
    git::short_name,
    journal::{self, RunDir},
    plan::{ORCHESTRATOR, Plan},
};
use serde_json::{Value, json};
use std::{fmt::Write as _, io, sync::Arc};

/// Columns for the name of a step.
const NAME_WIDTH: usize = 24;

pub(super) fn retry(args: &args::Retry, context: &mut Context) -> Result<u8, Failed> {
    begin(&args.run, &Whence::Failures, &[], &args.how, context)
}

pub(super) fn rerun(args: &args::Rerun, context: &mut Context) -> Result<u8, Failed> {
    let from = args.from.clone().map_or(Whence::Changes, Whence::Named);
    begin(&args.run, &from, &[], &args.how, context)
}

pub(super) fn fork(args: &args::Fork, context: &mut Context) -> Result<u8, Failed> {
    let (run, from) = match args.run.split_once('@') {
        Some((run, step)) => (run, Whence::Named(step.to_owned())),
        None => (args.run.as_str(), Whence::Changes),
    };
    if args.inputs.is_empty() && from == Whence::Changes {
        return Err(Failed::usage(format!("fork the run `{}`: neither a step nor an input is named", line(run, 60)))
            .hint(format!("`spinney fork {0}@STEP --input NAME=VALUE`; `spinney rerun {0}` does again what has changed in the files", line(run, 60))));
    }
    begin(run, &from, &args.inputs, &args.how, context)
}

/// Shows what of a run would hold and what would be done again; nothing is begun.
pub(super) fn plan(args: &args::Plan, run: &RunId, context: &mut Context) -> Result<u8, Failed> {
    let how = How { models: args.models.clone(), ..How::default() };
    let from = match &args.from {
        Some(step) => Whence::Named(step.clone()),
        None if args.retry => Whence::Failures,
        None => Whence::Changes,
    };
    let project = run::open(context)?;
    let Wished { reset, plan, models, .. } = wished(&project, &run.0, (&from, &args.inputs), &how, context)?;
    let text = if args.json {
        json_text(&of_json(&reset, &plan)).map_err(io::Error::from)? + "\n"
    } else {
        page(&reset, &plan, models.model.is_scripted(), context.color)
    };
    put(context, &text)?;
    Ok(0)
}

/// A wish that was understood, and what it is carried out with.
struct Wished {
    reset: Reset,
    plan: Arc<Plan>,
    models: Models,
    how: How,
}

fn wished(project: &Project, run: &str, (from, inputs): (&Whence, &[String]), how: &How, context: &mut Context) -> Result<Wished, Failed> {
    let state = RunDir::state(project.checkout());
    let run = pick(&RunDir::list(&state).map_err(|error| Failed::of(&error))?, run)?;
    let dir = RunDir::open(&state, &run).map_err(|error| Failed::of(&error))?;
    let records = journal::read(dir.path()).map_err(|error| Failed::of(&error))?;
    let how = how.after(Given::of(&records));
    let (models, name) = run::began(project, &dir, &records, &how, context)?;
    let plan = run::compile(project, &name, &models, context)?;
    let inputs = run::inputs(&plan, inputs, false)?;
    let reset = project.reset(&run, &plan, &Again { from: from.clone(), inputs })?;
    Ok(Wished { reset, plan, models, how })
}

fn begin(run: &str, from: &Whence, inputs: &[String], how: &How, context: &mut Context) -> Result<u8, Failed> {
    let project = run::open(context)?;
    let Wished { reset, plan, models, how } = wished(&project, run, (from, inputs), how, context)?;
    let how = &how;
    if models.script.is_none() {
        run::check_models(&plan, how, &project)?;
    }
    let recording = run::recording(how, None, context)?;
    let outlet = Outlet::default();
    let options = crate::engine::RunOptions { recording: recording.clone(), ..run::options(how, &outlet, context) };
    let (said, of) = (summary(&reset, &plan), reset.run().clone());
    let prepared = project.begin_again(reset, plan.clone(), &models, options).map_err(|error| match error {
        SetupError::Lease(_) => Failed::from(error).hint(format!("`spinney watch {of}` shows what it does; `spinney cancel {of}` ends it")),
        error => error.into(),
    })?;
    if !how.json {
        put(context, &said)?;
    }
    let code = run::carry_out(prepared, (&plan, &models), (outlet, how.json), context);
    run::say_recorded(recording.as_deref(), code.as_ref().ok(), context);
    code
}

/// Says in a few lines what a new run keeps of the one it follows from.
fn summary(reset: &Reset, plan: &Plan) -> String {
    let in_part = |id: &StepId| match reset.again().get(&NodeId::step(id)) {
        Some(Reason::Items(again, all)) if again < all => Some(format!("{} of {all} items of {id}", all - again)),
        Some(_) => None,
        None => Some(id.0.clone()),
    };
    let holds: Vec<String> = plan.order().iter().filter_map(in_part).collect();
    let holds = if holds.is_empty() { "nothing holds".to_owned() } else { format!("{} hold{}", holds.join(", "), if holds.len() == 1 { "s" } else { "" }) };
    let again = plan.order().iter().filter_map(|id| Some(format!("{id} ({})", reset.again().get(&NodeId::step(id))?)));
    let again = again.collect::<Vec<_>>().join(", ");
    let again = if again.is_empty() { "only the end is done again".to_owned() } else { format!("again: {again}") };
    let failed = failures(reset).map(|said| said + "\n").unwrap_or_default();
    format!("Of run {}: {}\n{}\n{failed}{}\n\n", reset.run(), line(&holds, 2_000), line(&again, 2_000), begins(reset, plan))
}

/// Says where a new run begins, and what to do where the branch has moved on since.
fn begins(reset: &Reset, plan: &Plan) -> String {
    let base = short(&reset.base().0);
    let Some(head) = reset.head().map(short_name) else { return format!("Begins at {base}.") };
    let new = format!("`spinney run {}` begins at what it has now", plan.name);
    match reset.moved() {
        Moved::Unknown | Moved::Further(0) => format!("Begins at {base} of {head}."),
        Moved::Further(count) => {
            format!("Begins at {base}: {head} is {count} {} further, {new}.", plural(usize::try_from(count).unwrap_or(usize::MAX), "commit"))
        }
        Moved::Away => format!("Begins at {base}, which {head} does not have any more: {new}."),
    }
}

/// Says that failures are among what holds, where they are.
fn failures(reset: &Reset) -> Option<String> {
    let failed: Vec<&str> = reset.holds_failed().into_iter().map(|id| id.0.as_str()).collect();
    (!failed.is_empty()).then(|| format!("Holds as failed: {}; `spinney retry {}` does that again", line(&failed.join(", "), 400), reset.run()))
}

/// Returns the steps in the order of the graph, and the orchestrator where it begins anew.
fn rows(reset: &Reset, plan: &Plan) -> Vec<StepId> {
    let watcher = StepId::from(ORCHESTRATOR);
    let anew = reset.again().contains_key(&NodeId::step(&watcher)).then_some(watcher);
    plan.order().iter().cloned().chain(anew).collect()
}

fn items<'r>(reset: &'r Reset, step: &'r StepId) -> impl Iterator<Item = (&'r NodeId, String)> {
    let of_step = reset.again().iter().filter(move |(node, _)| node.step == *step && node.item.is_some());
    of_step.map(|(node, reason)| (node, reason.to_string()))
}

fn page(reset: &Reset, plan: &Plan, scripted: bool, color: bool) -> String {
    let mut text = format!("{}  as it would be done again, in a new run\n\n", paint(color, Tone::Name, &reset.run().0));
    let mut row = |depth: usize, name: &str, why: Option<String>| {
        let name = format!("{}{}", " ".repeat(depth), line(name, 80));
        let (said, tone) = why.map_or(("holds".to_owned(), Tone::Good), |why| (format!("again: {why}"), Tone::Warn));
        let _ = writeln!(text, "  {}  {}", paint(color, Tone::Name, &format!("{name:<NAME_WIDTH$}")), paint(color, tone, &line(&said, 200)));
    };
    for id in rows(reset, plan) {
        row(0, &id.0, reset.again().get(&NodeId::step(&id)).map(ToString::to_string));
        for (node, why) in items(reset, &id) {
            row(2, &node.to_string(), Some(why));
        }
    }
    let _ = writeln!(text, "\n{}", begins(reset, plan));
    if let Some(failed) = failures(reset) {
        let _ = writeln!(text, "{failed}.");
    }
    let spent = reset.spent();
    if spent.turns > 0 {
        let (turns, tokens) = (spent.turns, thousands(spent.usage.total()));
        let _ = writeln!(
            text,
            "What holds has used {turns} {}, {tokens} tokens and {}, which counts as used.",
            plural(turns as usize, "turn"),
            price(&spent, scripted)
        );
    }
    text
}

fn of_json(reset: &Reset, plan: &Plan) -> Value {
    let step = |id: &StepId| {
        let why = reset.again().get(&NodeId::step(id)).map(ToString::to_string);
        let items: Vec<Value> = items(reset, id).map(|(node, why)| json!({"item": node.item, "why": why})).collect();
        json!({"step": id, "holds": why.is_none(), "why": why, "items_again": items})
    };
    let spent = reset.spent();
    json!({
        "run": reset.run(),
        "workflow": plan.name,
        "inputs": reset.inputs(),
        "base": reset.base(),
        "head": reset.head(),
        "commits_behind": match reset.moved() { Moved::Further(count) => Some(count), Moved::Unknown | Moved::Away => None },
        "holds_failed": reset.holds_failed(),
        "steps": rows(reset, plan).iter().map(step).collect::<Value>(),
        "spent": {"turns": spent.turns, "tool_calls": spent.calls, "tokens": spent.usage.total(), "usd": spent.known_usd()},
    })
}
