//! `spinney watch`: what a run did so far and what it does, from its records alone, until nobody carries it out any more.
use super::{
    Context, Failed, args,
    outlet::{Form, Outlet},
    report::{FoundRun, Report, Standing, load_run},
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

/// What ended the watching.
enum Watched {
    /// The run is over, or nobody carries it out.
    End(Vec<Record>, Option<journal::LeaseError>),
    /// An interrupt.
    Interrupted,
    /// Nobody reads what is shown.
    Unread,
}

pub(super) fn run(args: &args::Watch, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { run, dir, records, .. } = load_run(context, &args.run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failed::new(format!("start: {error}")))?;
    let outlet = Outlet::default();
    let form = if args.json { Form::Json } else { Form::Lines(Screen::new(context.color)) };
    let writer = outlet.open(context, (form, args.from), dir.path().to_owned())?;
    let watched = runtime.block_on(async {
        // Heard from the first record on.
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            watched = follow(&dir, records, &outlet) => watched,
            _ = interrupt.recv() => Ok(Watched::Interrupted),
        }
    });
    let code = match &watched {
        Ok(Watched::End(records, owner)) => {
            let report = Report::of(records);
            let standing = report.standing(owner.as_ref());
            if !args.json {
                outlet.text(format!("\nRun {run}: {}\n{}", standing.word(), super::show::how_to_answer(&report, &run.0)));
            }
            code(standing)
        }
        Ok(Watched::Interrupted) => {
            outlet.note(&format!("\nno longer watching; the run goes on, and `spinney watch {run}` looks again"));
            0
        }
        Ok(Watched::Unread) | Err(_) => 0,
    };
    let lost = outlet.close(writer, matches!(watched, Ok(Watched::Interrupted)), context);
    watched?;
    lost.map_or(Ok(code), |error| Err(error.into()))
}

fn code(standing: Standing) -> u8 {
    match standing {
        Standing::Succeeded | Standing::Partial | Standing::Skipped | Standing::Running(_) => 0,
        Standing::Failed | Standing::Cancelled | Standing::Interrupted => 1,
        Standing::Parked | Standing::Answered => 3,
    }
}

/// Shows records as they come, until the run is over or nobody has it; returns all of them.
async fn follow(dir: &RunDir, mut records: Vec<Record>, outlet: &Outlet) -> Result<Watched, Failed> {
    for record in &records {
        outlet.record(record);
    }
    loop {
        // Who has it is asked first: what it writes until it ends is read after that.
        let owner = Lease::owner(dir.path()).unwrap_or_else(Some);
        let new = journal::read_from(dir.path(), records.len() as u64).map_err(|error| Failed::of(&error))?;
        for record in &new {
            outlet.record(record);
        }
        records.extend(new);
        let is_over = records.last().is_some_and(|record| matches!(record.event, crate::event::Event::RunFinished { .. }));
        if is_over || owner.is_none() {
            return Ok(Watched::End(records, owner));
        }
        if outlet.is_lost() {
            return Ok(Watched::Unread);
        }
        tokio::time::sleep(LOOK).await;
    }
}
