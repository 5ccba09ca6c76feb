//! `spinney cancel`: calls a run off, in whatever process it is carried out.
//!
//! It is a letter like a person's other words. A process that has the run takes it up within a moment; where there is none,
//! this one takes the run, ends what had begun and does what belongs to its end. Where it cannot, nothing is left of the word: a
//! run is not called off later by what has failed before.
use super::{
    Context, Failed, answer, args,
    report::{FoundRun, line, load_run, put},
    run::resume,
};
use crate::{
    clock::Clock,
    engine::{Files, Inbox, InboxError, SetupError, give_up},
    event::{Event, FailureKind, Outcome, Record, RunId},
    journal::{self, Lease},
};
use std::time::Duration;

/// How often it is looked whether a living process has ended the run, and how long apart.
const LOOKS: usize = 400;
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(args: &args::Cancel, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { repo, dir, run, records } = load_run(context, &args.run)?;
    if let Some(Event::RunFinished { outcome }) = records.last().map(|record| &record.event) {
        let word = if is_cancelled(outcome) { "cancelled" } else { outcome.word() };
        return Err(Failed::usage(format!("cancel the run `{run}`: it is over, and {word}")).hint(format!("`spinney show {run}` shows what it did")));
    }
    dir.require_sound().map_err(SetupError::from)?;
    let inbox = Inbox::of(dir.path());
    let by = answer::by(args.by.as_ref(), context);
    if args.as_it_stands {
        let files = Files { repo: &repo, cache: &context.settings.cache, environment: &context.settings.environment };
        let unkept = give_up(&dir, files, &by, &Clock::system());
        let unkept = unkept.map_err(|error| Failed::of(&error).hint(format!("`spinney cancel {run}` ends one that is carried out")))?;
        for why in &unkept {
            context.note(&format!("warning: {}", line(why, 500)));
        }
        put(context, &format!("Run {run} is cancelled as it stood, without its `finally`. `spinney show {run}` shows what it did.\n"))?;
        return Ok(0);
    }
    let name = match inbox.post(&Inbox::cancel(&by, Clock::system().now())) {
        Ok(name) => Some(name),
        // Somebody has said so already.
        Err(InboxError::Answered { .. }) => None,
        Err(error) => return Err(Failed::of(&error).hinted(error.hint())),
    };
    for _ in 0..LOOKS {
        if let Some(why) = name.as_deref().and_then(|name| inbox.refusal(name)) {
            return Err(Failed::new(format!("cancel the run `{run}`: {}", line(&why, 300))).hint(format!("`spinney show {run}` shows how it stands")));
        }
        let records = journal::read(dir.path()).map_err(|error| Failed::of(&error))?;
        if let Some(Event::RunFinished { outcome }) = records.last().map(|record| &record.event) {
            let said = if is_cancelled(outcome) { "is cancelled" } else { "was over before" };
            put(context, &format!("Run {run} {said}. `spinney show {run}` shows what it did.\n"))?;
            return Ok(0);
        }
        if Lease::owner(dir.path()).map_err(|error| Failed::of(&error))?.is_some() {
            std::thread::sleep(LOOK);
            continue;
        }
        let resumed = args::Resume { run: Some(run.0.clone()), accept_changes: true, how: args.how.clone() };
        let done = resume(&resumed, context);
        // Whoever else took the run up a moment before takes the letter up too.
        if done.is_err() && !matches!(Lease::owner(dir.path()), Ok(None)) {
            continue;
        }
        let records = journal::read(dir.path()).map_err(|error| Failed::of(&error))?;
        let is_over = matches!(records.last().map(|record| &record.event), Some(Event::RunFinished { outcome }) if is_cancelled(outcome));
        return if is_over { Ok(0) } else { done.map_err(|failed| not_cancelled(failed, (&inbox, name.is_some()), &run, &records)) };
    }
    put(context, &format!("Run {run} is being cancelled: what belongs to its end is not done yet. `spinney watch {run}` shows it.\n"))?;
    Ok(0)
}

/// Says what becomes of a word that could not be carried out. It is taken back, unless somebody else has said it before.
fn not_cancelled(failed: Failed, (inbox, is_ours): (&Inbox, bool), run: &RunId, records: &[Record]) -> Failed {
    if records.iter().any(|record| matches!(record.event, Event::RunCancelled { .. })) {
        return failed;
    }
    let stands = if is_ours && inbox.take_cancel_back() {
        "the run is as it was, and is not called off"
    } else {
        "somebody has called it off before, and whoever takes it up ends it"
    };
    let mended = failed.hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
    let message = if failed.report { failed.message } else { format!("cancel the run `{run}`: failed to {}", failed.message) };
    Failed {
        message,
        hint: Some(format!("{mended}{stands}; `spinney cancel {run} --as-it-stands` ends it without its workflow, its secrets and `finally`")),
        ..failed
    }
}

fn is_cancelled(outcome: &Outcome) -> bool {
    outcome.failure().is_some_and(|failure| failure.kind == FailureKind::Cancelled)
}
