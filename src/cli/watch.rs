//! `spinney watch`: what a run did so far and what it does, from its records alone, until nobody carries it out any more.
use super::{
    Context, Failed, args,
    report::{FoundRun, Report, Standing, json_text, load_run, put},
    screen::Screen,
};
use crate::{
    event::Record,
    journal::{self, Lease, RunDir},
};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often new records are looked for.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(args: &args::Watch, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { run, dir, records, .. } = load_run(context, &args.run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failed::new(format!("start: {error}")))?;
    let mut shown = Shown { json: args.json, from: args.from, screen: Screen::new(context.color) };
    let followed = runtime.block_on(async {
        // Heard from the first record on.
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            records = follow(&dir, records, &mut shown, context) => records.map(Some),
            _ = interrupt.recv() => Ok(None),
        }
    })?;
    let Some((records, owner)) = followed else {
        context.note(&format!("\nno longer watching; the run goes on, and `spinney watch {run}` looks again"));
        return Ok(0);
    };
    let report = Report::of(&records);
    let standing = report.standing(owner.as_ref());
    if !args.json {
        put(context, &format!("\nRun {run}: {}\n{}", standing.word(), super::show::how_to_answer(&report, &run.0)))?;
    }
    Ok(match standing {
        Standing::Succeeded | Standing::Partial | Standing::Skipped | Standing::Running(_) => 0,
        Standing::Failed | Standing::Cancelled | Standing::Interrupted => 1,
        Standing::Parked | Standing::Answered => 3,
    })
}

/// How records are shown.
struct Shown {
    json: bool,
    from: u64,
    screen: Screen,
}

impl Shown {
    fn put(&mut self, record: &Record, context: &mut Context) -> Result<(), Failed> {
        // What came before is only counted.
        let line = if self.json { Some(json_text(record).map_err(std::io::Error::from)?) } else { self.screen.line(record) };
        match line.filter(|_| record.seq >= self.from) {
            Some(line) => put(context, &(line + "\n")),
            None => Ok(()),
        }
    }
}

/// Shows records as they come, until the run is over or nobody has it; returns all of them.
async fn follow(
    dir: &RunDir,
    mut records: Vec<Record>,
    shown: &mut Shown,
    context: &mut Context,
) -> Result<(Vec<Record>, Option<journal::LeaseError>), Failed> {
    records.iter().try_for_each(|record| shown.put(record, context))?;
    loop {
        // Who has it is asked first: what it writes until it ends is read after that.
        let owner = Lease::owner(dir.path()).unwrap_or_else(Some);
        let new = journal::read_from(dir.path(), records.len() as u64).map_err(|error| Failed::of(&error))?;
        new.iter().try_for_each(|record| shown.put(record, context))?;
        records.extend(new);
        let is_over = records.last().is_some_and(|record| matches!(record.event, crate::event::Event::RunFinished { .. }));
        if is_over || owner.is_none() {
            return Ok((records, owner));
        }
        tokio::time::sleep(LOOK).await;
    }
}
