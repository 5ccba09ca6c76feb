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
    engine::{Inbox, InboxError, Letter, Says, SetupError, Tokens, Unheard, listeners, secrets_here, who_can_be_told},
    event::{Form, NodeId, RunId},
    journal::{self, Lease, Question, RunDir},
    source,
};
use std::{collections::BTreeSet, time::Duration};

/// How often it is looked whether a living process has taken a letter up, and how long apart.
const LOOKS: usize = 400;
const LOOK: Duration = Duration::from_millis(50);
/// Agents that a message lists.
const NAMED: usize = 8;

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
    if args.text.trim().is_empty() {
        return Err(Failed::usage(format!("tell `{}` something: the text is empty", line(&args.step, 60))));
    }
    let nodes = listening(&found, &report, &args.step, &args.then, context)?;
    let (by, at) = (who(&args.then, context), Clock::system().now());
    let letters: Vec<Letter> = nodes.into_iter().map(|node| Letter { node, by: by.clone(), at, says: Says::Word(args.text.clone()) }).collect();
    send(&found.dir, &found.run, (&letters, None), &args.then, context)
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
    let report = Report::of(&found.records).with_letters(&found.dir);
    let asked = require_question(&report, &found.run, step)?;
    let letter = letter(&found.run, asked, said, then, context)?;
    let back = named_back(&report, asked, &letter);
    send(&found.dir, &found.run, (&[letter], Some(&back)), then, context)
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
    let records = journal::read(dir.path())?;
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
    let back = named_back(&report, asked, &letter);
    send(&dir, &run, (&[letter], Some(&back)), then, context)
}

/// Says what was answered, and how.
fn named_back(report: &Report, (id, question): (&NodeId, &Question), letter: &Letter) -> String {
    let word = match &letter.says {
        Says::Answer { note: Some(text), .. } if question.form.open => format!("`{}`", line(text, 60)),
        Says::Answer { allowed: false, .. } => "no".to_owned(),
        Says::Answer { .. } | Says::Word(_) | Says::Cancel => "yes".to_owned(),
    };
    format!("{word} to {}: {}", plain(&report.called(id, question)), line(&question.text, 200))
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
    let (allowed, note) = says(form, &said.text, said.note.as_deref()).map_err(|wants| {
        let failed = Failed::usage(format!("answer `{node}` of run `{run}` by `{}`", line(&said.text, 60)));
        failed.hint(if form.open { wants } else { format!("{wants}; what is said besides goes with `--note`") })
    })?;
    Ok(Letter { node: node.clone(), by: who(then, context), at: now, says: Says::Answer { call: question.call.clone(), allowed, note } })
}

/// Reads an answer as a question wants it: whether it allows, and its text or what is said besides. An error says what is
/// wanted.
pub(super) fn says(form: &Form, said: &str, note: Option<&str>) -> Result<(bool, Option<String>), String> {
    let said = said.trim();
    if form.open {
        return match said {
            "" => Err("it asks for a text".to_owned()),
            _ if !form.choices.is_empty() && !form.choices.iter().any(|choice| choice == said) => {
                Err(format!("it asks for one of: {}", line(&form.choices.join(", "), 200)))
            }
            _ => Ok((true, Some(note.map_or_else(|| said.to_owned(), |note| format!("{said}\n{note}"))))),
        };
    }
    let note = note.map(str::to_owned);
    match said.to_lowercase().as_str() {
        "yes" | "y" => Ok((true, note)),
        "no" | "n" => Ok((false, note)),
        _ => Err("it asks for yes or no".to_owned()),
    }
}

fn who(then: &args::Then, context: &Context) -> String {
    by(then.by.as_ref(), context)
}

/// Returns whose word something is.
pub(super) fn by(named: Option<&String>, context: &Context) -> String {
    let of = |name: &str| context.settings.environment.get(name).filter(|name| !name.is_empty()).cloned();
    named.cloned().or_else(|| of("USER")).or_else(|| of("LOGNAME")).unwrap_or_else(|| "somebody".to_owned())
}

/// Finds the question that is meant, of those that nobody has answered; an error says what waits.
fn require_question<'r>(report: &'r Report, run: &RunId, step: Option<&str>) -> Result<(&'r NodeId, &'r Question), Failed> {
    let open: Vec<(&NodeId, &Question)> = report.questions();
    let among = |all: &[(&'r NodeId, &'r Question)]| -> Vec<(&'r NodeId, &'r Question)> {
        all.iter().copied().filter(|(id, question)| step.is_none_or(|step| is_meant(step, id, question))).collect()
    };
    let meant = among(&open);
    let steps: BTreeSet<&NodeId> = meant.iter().map(|(id, _)| *id).collect();
    match meant.as_slice() {
        [one] => Ok(*one),
        [] => {
            // Whoever comes second is told who was first.
            if let [one] = among(&report.answered()).as_slice() {
                return Ok(*one);
            }
            let failed = |why: &str| Failed::usage(format!("answer the run `{run}`: {why}"));
            if report.outcome.is_some() {
                return Err(failed("it is over"));
            }
            if open.is_empty() {
                return Err(failed("nothing in it waits for a person"));
            }
            let name = line(step.unwrap_or_default(), 60);
            Err(Failed::usage(format!("answer `{name}` of the run `{run}`: it asks nothing"))
                .hint(format!("these wait for a person: {}", waiting(report, &open))))
        }
        several => {
            let what = match steps.iter().next() {
                Some(id) if steps.len() == 1 => format!("{} asks {} things", plain(&id.to_string()), several.len()),
                Some(_) | None => format!("{} steps wait for a person", steps.len()),
            };
            Err(Failed::usage(format!("answer the run `{run}`: {what}")).hint(format!("name one: {}", waiting(report, several))))
        }
    }
}

/// Returns whether somebody means a question by the name of its node or of its step, with or without its number.
fn is_meant(name: &str, id: &NodeId, question: &Question) -> bool {
    let is = |of: String| name.strip_prefix(&of).is_some_and(|rest| rest.is_empty() || rest == format!("#{}", question.number));
    is(id.to_string()) || is(id.owner().to_string())
}

fn waiting(report: &Report, open: &[(&NodeId, &Question)]) -> String {
    let said: Vec<String> = open.iter().map(|(id, question)| format!("{} ({})", plain(&report.called(id, question)), line(&question.text, 60))).collect();
    said.join(", ")
}

/// Finds the agents that hear what is said to a step.
fn listening(found: &FoundRun, report: &Report, step: &str, then: &args::Then, context: &Context) -> Result<Vec<NodeId>, Failed> {
    let failed = |why: &str| Failed::usage(format!("tell `{}` of the run `{}` something: {why}", line(step, 60), found.run));
    if report.outcome.is_some() {
        return Err(failed("the run is over"));
    }
    let Ok(state) = run::state_of(&found.dir, &found.records, &then.how, context) else {
        // A run that goes on with what it began with can be told something all the same.
        return match report.named(step) {
            Some((id, node)) if node.is_agent && node.outcome.is_none() && id.helper.is_none() => Ok(vec![id.clone()]),
            _ => Err(failed("the workflow has changed since the run began, so that only agents at work can be told")),
        };
    };
    listeners(&state, step).map_err(|why| {
        let names: Vec<String> = who_can_be_told(&state, NAMED).iter().map(NodeId::to_string).collect();
        let near = source::nearest(step, names.iter().map(String::as_str));
        failed(&why.to_string()).hint(match (&why, near) {
            (Unheard::Unknown, Some(near)) => format!("did you mean `{}`?", plain(near)),
            (Unheard::Helper(owner), _) => format!("tell its step, `{owner}`"),
            _ if names.is_empty() => format!("no agent of the run works or will work; `spinney show {}` shows how it stands", found.run),
            _ => format!("these can be told: {}", plain(&names.join(", "))),
        })
    })
}

/// Writes letters and sees to it that they are taken up: by the process that has the run, or by this one.
/// What was answered is said back, beside what is put out for programs.
fn send(dir: &RunDir, run: &RunId, (letters, back): (&[Letter], Option<&str>), then: &args::Then, context: &mut Context) -> Result<u8, Failed> {
    dir.require_sound().map_err(SetupError::from)?;
    let records = journal::read(dir.path())?;
    let started = Report::of(&records).started;
    let secrets = started.map(|started| secrets_here(&started, &context.settings.environment)).unwrap_or_default();
    let inbox = Inbox::of(dir.path()).without(&secrets);
    let post = |letter| {
        inbox.post(letter).map_err(|error| match &error {
            InboxError::Answered { .. } => Failed::of(&error).hint(format!("`spinney show {run}` shows how it stands")),
            InboxError::TooLong | InboxError::Io { .. } => Failed::of(&error).hinted(error.hint()),
        })
    };
    let posted: Vec<(String, &Letter)> = letters.iter().map(|letter| Ok((post(letter)?, letter))).collect::<Result<_, Failed>>()?;
    if let Some(back) = back {
        context.note(back);
    }
    let refusal = || posted.iter().find_map(|(name, letter)| Some(refused(letter, run, &inbox.refusal(name)?)));
    let said = |so: &str| -> String {
        letters.iter().map(|letter| format!("{} is {} by {}. {so}\n", plain(&letter.node.to_string()), word(letter), letter.by)).collect()
    };
    for _ in 0..LOOKS {
        if !posted.iter().any(|(name, _)| inbox.waits(name)) {
            if let Some(refused) = refusal() {
                return Err(refused);
            }
            let taken: String = letters.iter().map(|letter| format!("{} of run {run} {}.\n", plain(&letter.node.to_string()), follows(letter))).collect();
            put(context, &taken)?;
            return Ok(0);
        }
        match Lease::owner(dir.path()).map_err(|error| Failed::of(&error))? {
            Some(_) => std::thread::sleep(LOOK),
            None if then.no_resume => {
                put(context, &said(&format!("`spinney resume {run}` goes on with it.")))?;
                return Ok(0);
            }
            None => {
                let resume = args::Resume { run: Some(run.0.clone()), accept_changes: then.accept_changes, how: then.how.clone() };
                let done = run::resume(&resume, context);
                // Whoever else took the run up a moment before takes the letters up too.
                if done.is_err() && !matches!(Lease::owner(dir.path()), Ok(None)) {
                    continue;
                }
                return refusal().map_or(done.map_err(|failed| kept(failed, run, posted.iter().any(|(name, _)| inbox.waits(name)))), Err);
            }
        }
    }
    put(context, &said("The process that has the run has not taken that up yet."))?;
    Ok(0)
}

/// Says that what was said is not lost where the run could not be gone on with.
fn kept(failed: Failed, run: &RunId, waits: bool) -> Failed {
    if !waits {
        return failed;
    }
    let hint = failed.hint.as_ref().map(|hint| format!("{hint}; ")).unwrap_or_default();
    failed.hint(format!("{hint}what was said is kept, and `spinney resume {run}` takes it up"))
}

fn word(letter: &Letter) -> &'static str {
    if matches!(letter.says, Says::Word(_)) { "told" } else { "answered" }
}

fn follows(letter: &Letter) -> &'static str {
    if matches!(letter.says, Says::Word(_)) { "hears that at its next turn" } else { "goes on" }
}

fn refused(letter: &Letter, run: &RunId, why: &str) -> Failed {
    let what = if matches!(letter.says, Says::Word(_)) { "tell" } else { "answer" };
    Failed::new(format!("{what} `{}` of run `{run}`: {}", letter.node, line(why, 300))).hint(format!("`spinney show {run}` shows how it stands"))
}
