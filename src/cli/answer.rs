//! `spinney approve`, `reject`, `answer` and `tell`: a person's word to a run that may live or not.
//!
//! What is said is checked against what the run waits for, written as a letter into its folder, and taken up by the process
//! that carries the run out, or by this one where there is none.
use super::{
    Context, Failed, args,
    report::{FoundRun, Report, line, load_run, plain, put},
    run,
};
use crate::{
    clock::Clock,
    engine::{Inbox, InboxError, Letter, Project, Says, Tokens},
    event::{Form, NodeId, RunId},
    journal::{self, Lease, Question, RunDir},
    source,
};
use std::{collections::BTreeSet, time::Duration};

/// How often it is looked whether a living process has taken a letter up, and how long apart.
const LOOKS: usize = 400;
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn approve(args: &args::Approve, context: &mut Context) -> Result<u8, Failed> {
    to_run(&args.run, args.step.as_deref(), &said(true, args.note.as_ref()), &args.then, context)
}

pub(super) fn reject(args: &args::Approve, context: &mut Context) -> Result<u8, Failed> {
    to_run(&args.run, args.step.as_deref(), &said(false, args.note.as_ref()), &args.then, context)
}

pub(super) fn answer(args: &args::Answer, context: &mut Context) -> Result<u8, Failed> {
    let said = Said { text: args.words.last().cloned().unwrap_or_default(), note: args.note.clone() };
    match (&args.token, args.words.as_slice()) {
        (Some(token), [_]) => by_token(token, &said, &args.then, context),
        (None, [run, _]) => to_run(run, None, &said, &args.then, context),
        (None, [run, step, _]) => to_run(run, Some(step), &said, &args.then, context),
        (Some(_), _) => Err(Failed::usage("answer a question: a token needs an answer and nothing else").hint("`spinney answer --token TOKEN yes`")),
        (None, _) => Err(Failed::usage("answer a question: a run and an answer are needed").hint("`spinney answer RUN [STEP] yes|no|TEXT`")),
    }
}

pub(super) fn tell(args: &args::Tell, context: &mut Context) -> Result<u8, Failed> {
    let found = load_run(context, &args.run)?;
    let report = Report::of(&found.records);
    let node = listener(&found, &report, &args.step, context)?;
    if args.text.trim().is_empty() {
        return Err(Failed::usage(format!("tell `{node}` something: the text is empty")));
    }
    let letter = Letter { node, by: who(&args.then, context), at: Clock::system().now(), says: Says::Word(args.text.clone()) };
    send(&found.dir, &found.run, &letter, &args.then, context)
}

/// What somebody answers.
struct Said {
    text: String,
    note: Option<String>,
}

fn said(yes: bool, note: Option<&String>) -> Said {
    Said { text: if yes { "yes" } else { "no" }.to_owned(), note: note.cloned() }
}

fn to_run(run: &str, step: Option<&str>, said: &Said, then: &args::Then, context: &mut Context) -> Result<u8, Failed> {
    let found = load_run(context, run)?;
    let report = Report::of(&found.records);
    let asked = require_question(&report, &found.run, step)?;
    let letter = letter(&found.run, asked, said, then, context)?;
    send(&found.dir, &found.run, &letter, then, context)
}

fn by_token(token: &str, said: &Said, then: &args::Then, context: &mut Context) -> Result<u8, Failed> {
    let cache = context.settings.cache.clone();
    let unknown = || {
        Failed::usage("answer by this token: it is not known here, or it is used up")
            .hint("a token answers one question, once, on the machine and for the user that made it")
    };
    let (path, claim) = Tokens::find(&cache, token).ok_or_else(unknown)?;
    // RUN stands in `.spinney/state/runs` of a main checkout; whoever answers need not stand there.
    let (Some(state), Some(run)) = (path.ancestors().nth(2), path.file_name()) else { return Err(unknown()) };
    let run = RunId(run.to_string_lossy().into_owned());
    let checkout = state.ancestors().nth(2).unwrap_or(state).to_owned();
    let dir = RunDir::open(state, &run).map_err(|error| Failed::of(&error))?;
    let records = journal::read(dir.path()).map_err(|error| Failed::of(&error))?;
    let report = Report::of(&records);
    let asked =
        report.nodes().into_iter().find(|(id, _)| **id == claim.node).and_then(|(id, node)| Some((id, node.questions().find(|open| open.call == claim.call)?)));
    let tokens = Tokens::new(dir.path(), &cache);
    let Some(asked) = asked else {
        tokens.spend(token);
        return Err(Failed::new(format!("answer `{}` of run `{run}`: it does not wait for this answer any more", claim.node)));
    };
    context.settings.directory = checkout;
    let letter = letter(&run, asked, said, then, context)?;
    tokens.spend(token);
    send(&dir, &run, &letter, then, context)
}

/// Reads an answer as its question wants it.
fn letter(run: &RunId, (node, question): (&NodeId, &Question), said: &Said, then: &args::Then, context: &Context) -> Result<Letter, Failed> {
    let now = Clock::system().now();
    let form = &question.form;
    if let Some(deadline) = form.deadline.filter(|deadline| deadline.at < now) {
        let word = if deadline.allows { "approved" } else { "rejected" };
        let late = format!("answer `{node}` of run `{run}`: the time for it was over at {}, and it counts as {word}", deadline.at);
        return Err(Failed::new(late).hint(format!("`spinney resume {run}` goes on")));
    }
    let says = if form.open { text(form, said) } else { yes_or_no(said) };
    let (allowed, note) = says.map_err(|wants| {
        let failed = Failed::usage(format!("answer `{node}` of run `{run}` by `{}`", line(&said.text, 60)));
        failed.hint(wants)
    })?;
    Ok(Letter { node: node.clone(), by: who(then, context), at: now, says: Says::Answer { call: question.call.clone(), allowed, note } })
}

fn yes_or_no(said: &Said) -> Result<(bool, Option<String>), String> {
    match said.text.trim().to_lowercase().as_str() {
        "yes" | "y" => Ok((true, said.note.clone())),
        "no" | "n" => Ok((false, said.note.clone())),
        _ => Err("it asks for yes or no; what is said besides goes with `--note`".to_owned()),
    }
}

fn text(form: &Form, said: &Said) -> Result<(bool, Option<String>), String> {
    let text = said.text.trim();
    if text.is_empty() {
        return Err("it asks for a text".to_owned());
    }
    if !form.choices.is_empty() && !form.choices.iter().any(|choice| choice == text) {
        return Err(format!("it asks for one of: {}", line(&form.choices.join(", "), 200)));
    }
    Ok((true, Some(said.note.as_ref().map_or_else(|| text.to_owned(), |note| format!("{text}\n{note}")))))
}

fn who(then: &args::Then, context: &Context) -> String {
    let of = |name: &str| context.settings.environment.get(name).filter(|name| !name.is_empty()).cloned();
    then.by.clone().or_else(|| of("USER")).or_else(|| of("LOGNAME")).unwrap_or_else(|| "somebody".to_owned())
}

/// Finds the question that is meant; an error says what waits.
fn require_question<'r>(report: &'r Report, run: &RunId, step: Option<&str>) -> Result<(&'r NodeId, &'r Question), Failed> {
    let open: Vec<(&NodeId, &Question)> = report.questions();
    let meant: Vec<_> = match step {
        None => open.clone(),
        Some(step) => open.iter().copied().filter(|(id, _)| id.to_string() == step || id.owner().to_string() == step).collect(),
    };
    let names: BTreeSet<String> = meant.iter().map(|(id, _)| id.to_string()).collect();
    match meant.first() {
        Some(first) if names.len() == 1 => Ok(*first),
        Some(_) => Err(Failed::usage(format!("answer the run `{run}`: {} steps wait for a person", names.len())).hint(format!("name one: {}", waiting(&open)))),
        None if report.outcome.is_some() => Err(Failed::usage(format!("answer the run `{run}`: it is over"))),
        None if open.is_empty() => Err(Failed::usage(format!("answer the run `{run}`: nothing in it waits for a person"))),
        None => {
            let name = line(step.unwrap_or_default(), 60);
            Err(Failed::usage(format!("answer `{name}` of the run `{run}`: it asks nothing")).hint(format!("these wait for a person: {}", waiting(&open))))
        }
    }
}

fn waiting(open: &[(&NodeId, &Question)]) -> String {
    let said: Vec<String> = open.iter().map(|(id, question)| format!("{} ({})", plain(&id.to_string()), line(&question.text, 60))).collect();
    said.join(", ")
}

/// Finds the node of an agent that can still hear a word.
fn listener(found: &FoundRun, report: &Report, step: &str, context: &Context) -> Result<NodeId, Failed> {
    let failed = |why: &str| Failed::usage(format!("tell `{}` of the run `{}` something: {why}", line(step, 60), found.run));
    if report.outcome.is_some() {
        return Err(failed("the run is over"));
    }
    if let Some((id, node)) = report.named(step) {
        return match &node.outcome {
            Some(_) => Err(failed("it has ended")),
            None if id.helper.is_some() => Err(failed("it is a helper session").hint(format!("tell its step, `{}`", id.owner()))),
            None if node.is_agent || node.attempts == 0 => Ok(id.clone()),
            None => Err(failed("no agent works there")),
        };
    }
    // A step that has not begun is known from the workflow alone.
    let project = Project::open(context.settings.clone())?;
    let workflow = report.started.as_ref().and_then(|started| project.workflow(&started.file).or_else(|_| project.workflow(&started.workflow)).ok());
    let ids: Vec<String> = workflow.iter().flat_map(|workflow| &workflow.steps).map(|step| step.id.value.clone()).collect();
    if ids.iter().any(|id| id == step) {
        return Ok(NodeId::step(&step.into()));
    }
    let hint = match source::nearest(step, ids.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`spinney show {}` lists its steps; an item is written step/key", found.run),
    };
    Err(failed("there is no such step").hint(hint))
}

/// Writes a letter and sees to it that it is taken up: by the process that has the run, or by this one.
fn send(dir: &RunDir, run: &RunId, letter: &Letter, then: &args::Then, context: &mut Context) -> Result<u8, Failed> {
    let inbox = Inbox::of(dir.path());
    let name = inbox.post(letter).map_err(|error| match &error {
        InboxError::Answered { .. } => Failed::of(&error).hint(format!("`spinney show {run}` shows how it stands")),
        InboxError::TooLong | InboxError::Io { .. } => Failed::of(&error),
    })?;
    let word = if matches!(letter.says, Says::Word(_)) { "told" } else { "answered" };
    for _ in 0..LOOKS {
        if !inbox.waits(&name) {
            return taken(&inbox, &name, letter, run, context);
        }
        match Lease::owner(dir.path()).map_err(|error| Failed::of(&error))? {
            Some(_) => std::thread::sleep(LOOK),
            None if then.no_resume => {
                put(context, &format!("{} is {word} by {}. `spinney resume {run}` goes on with it.\n", letter.node, letter.by))?;
                return Ok(0);
            }
            None => {
                let resume = args::Resume { run: Some(run.0.clone()), accept_changes: then.accept_changes, how: then.how.clone() };
                let done = run::resume(&resume, context);
                // Whoever else took the run up a moment before takes the letter up too.
                if done.is_err() && !matches!(Lease::owner(dir.path()), Ok(None)) {
                    continue;
                }
                return match inbox.refusal(&name) {
                    Some(why) => Err(refused(letter, run, &why)),
                    None => done,
                };
            }
        }
    }
    put(context, &format!("{} is {word} by {}. The process that has the run has not taken that up yet.\n", letter.node, letter.by))?;
    Ok(0)
}

fn taken(inbox: &Inbox, name: &str, letter: &Letter, run: &RunId, context: &mut Context) -> Result<u8, Failed> {
    if let Some(why) = inbox.refusal(name) {
        return Err(refused(letter, run, &why));
    }
    let word = if matches!(letter.says, Says::Word(_)) { "hears that at its next turn" } else { "goes on" };
    put(context, &format!("{} of run {run} {word}.\n", plain(&letter.node.to_string())))?;
    Ok(0)
}

fn refused(letter: &Letter, run: &RunId, why: &str) -> Failed {
    let what = if matches!(letter.says, Says::Word(_)) { "tell" } else { "answer" };
    Failed::new(format!("{what} `{}` of run `{run}`: {}", letter.node, line(why, 300))).hint(format!("`spinney show {run}` shows how it stands"))
}
