//! `spinney cancel`: calls a run off, in whatever process it is carried out.
//!
//! It is a letter like a person's other words. A process that has the run takes it up within a moment; where there is none,
//! this one takes the run, ends what had begun and does what belongs to its end.
use super::{
    Context, Failed, answer, args,
    report::{FoundRun, line, load_run, put},
    run::resume,
};
use crate::{
    clock::Clock,
    engine::{Inbox, InboxError},
    event::{Event, FailureKind, Outcome},
    journal::{self, Lease},
};
use std::time::Duration;

/// How often it is looked whether a living process has ended the run, and how long apart.
const LOOKS: usize = 400;
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(args: &args::Cancel, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { dir, run, records, .. } = load_run(context, &args.run)?;
    if let Some(Event::RunFinished { outcome }) = records.last().map(|record| &record.event) {
        let word = if is_cancelled(outcome) { "cancelled" } else { outcome.word() };
        return Err(Failed::usage(format!("cancel the run `{run}`: it is over, and {word}")).hint(format!("`spinney show {run}` shows what it did")));
    }
    let inbox = Inbox::of(dir.path());
    let by = answer::by(args.by.as_ref(), context);
    let name = match inbox.post(&Inbox::cancel(&by, Clock::system().now())) {
        Ok(name) => Some(name),
        // Somebody has said so already.
        Err(InboxError::Answered { .. }) => None,
        Err(error) => return Err(Failed::of(&error)),
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
        return if is_over { Ok(0) } else { done };
    }
    put(context, &format!("Run {run} is being cancelled: what belongs to its end is not done yet. `spinney watch {run}` shows it.\n"))?;
    Ok(0)
}

fn is_cancelled(outcome: &Outcome) -> bool {
    outcome.failure().is_some_and(|failure| failure.kind == FailureKind::Cancelled)
}
