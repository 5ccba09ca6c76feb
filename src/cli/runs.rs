//! `spinney runs`: the runs of this repository, the newest first. One that cannot be read is named and spoils nothing.
use super::{
    args,
    context::{Context, Failed},
    report::{Cell, Report, Standing, Table, WIDTH, json_text, put, repository, wished},
    screen::{Tone, thousands},
};
use crate::{
    event::{BlobId, RunId, RunStarted, because},
    git::short_name,
    journal::{self, Lease, RunDir},
    library::{Kind, Library, Places},
    source::Source,
    workflow::Workflow,
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

/// One line of the list.
struct Row {
    run: RunId,
    read: Result<(Report, Standing), String>,
    /// How many steps its workflow has, where that is known.
    steps: Option<usize>,
}

pub(super) fn run(args: &args::Runs, context: &mut Context) -> Result<u8, Failed> {
    let repo = repository(context)?;
    let checkout = repo.main_checkout().to_owned();
    let state = RunDir::state(&checkout);
    let runs = RunDir::list(&state).map_err(|error| Failed::of(&error))?;
    let mut rows: Vec<Row> = runs.into_iter().map(|run| read(&state, run)).collect();
    count_steps(&mut rows, context, &checkout);
    let text =
        if args.json { json_text(&rows.iter().map(of_json).collect::<Value>()).map_err(std::io::Error::from)? + "\n" } else { screen(&rows, context.color) };
    put(context, &text)?;
    Ok(0)
}

fn read(state: &Path, run: RunId) -> Row {
    let read = || -> Result<(Report, Standing), String> {
        let dir = RunDir::open(state, &run).map_err(|error| because(&error))?;
        // Who has it is asked first: a run that ends in between is shown as ended and not as interrupted.
        let owner = Lease::owner(dir.path()).unwrap_or_else(Some);
        let records = journal::read(dir.path()).map_err(|error| because(&error))?;
        if records.is_empty() && owner.is_none() {
            return Err("it died before its first record".to_owned());
        }
        let report = Report::of(&records).with_letters(&dir);
        let standing = report.standing(owner.as_ref());
        Ok((report, standing))
    };
    Row { read: read(), run, steps: None }
}

/// A run that is over has spoken of every step. For one that is not, the number of steps is in its workflow, where that is
/// still what it was.
fn count_steps(rows: &mut [Row], context: &Context, checkout: &Path) {
    let mut library = None;
    for row in rows {
        let Ok((report, _)) = &row.read else { continue };
        row.steps = match (&report.outcome, &report.started) {
            (Some(_), _) => Some(report.steps().1),
            (None, Some(started)) => {
                let library = library.get_or_insert_with(|| {
                    let settings = &context.settings;
                    Library::discover(&Places {
                        project: Some(checkout.to_owned()),
                        user_config: settings.config.clone(),
                        home: settings.home.clone(),
                        cache: settings.cache.clone(),
                    })
                });
                steps_of(started, library, &context.settings.directory)
            }
            (None, None) => None,
        };
    }
}

fn steps_of(started: &RunStarted, library: &Library, directory: &Path) -> Option<usize> {
    let pin = started.pins.get(&format!("workflow:{}", started.workflow))?;
    let text = match library.all(Kind::Workflow).into_iter().find(|found| found.path == started.file) {
        Some(found) => found.text.clone(),
        None => std::fs::read_to_string(directory.join(&started.file)).ok()?,
    };
    let same = BlobId::of(text.as_bytes()).0 == *pin;
    let workflow = Workflow::load(&Arc::new(Source { name: started.file.clone(), text })).ok().filter(|_| same)?;
    Some(workflow.steps.len())
}

fn screen(rows: &[Row], color: bool) -> String {
    if rows.is_empty() {
        return "There are no runs yet; `spinney run WORKFLOW` begins one.\n".to_owned();
    }
    // The name of a run begins with that of its workflow, which needs no column of its own.
    let mut table = Table::new(&[3, 4, 5], 6);
    table.row(["RUN", "BEGAN (UTC)", "STATE", "STEPS", "TOKENS", "COST", "BRANCH"].map(|title| Cell::new(title, Tone::Dim)).to_vec());
    let mut broken = Table::new(&[], 1);
    for row in rows {
        match &row.read {
            Ok((report, standing)) => table.row(cells(row, report, *standing)),
            Err(why) => broken.row(vec![Cell::new(&row.run.0, Tone::Name), Cell::new(why, Tone::Bad)]),
        }
    }
    let mut text = table.render(color, 0, WIDTH);
    if !broken.is_empty() {
        text.push_str("\nThese cannot be read:\n");
        text.push_str(&broken.render(color, 2, usize::MAX));
    }
    text
}

fn cells(row: &Row, report: &Report, standing: Standing) -> Vec<Cell> {
    let began = report.began.to_string();
    let (ended, seen) = report.steps();
    let all = row.steps.map_or_else(|| format!("{seen}+"), |steps| steps.to_string());
    let branch = report.branch.as_ref().filter(|branch| branch.made).map(|branch| short_name(&branch.name)).unwrap_or_default();
    let state = match standing {
        Standing::Running(Some(pid)) => format!("running ({pid})"),
        Standing::Answered => "answered, waits for resume".to_owned(),
        other => other.word().to_owned(),
    };
    let state = match report.questions().len() {
        0 => state,
        asked => format!("{state}, asks {asked}"),
    };
    let state = report.called_off_by().map_or_else(|| state.clone(), |by| format!("{state}, to be cancelled by {by}"));
    let state = report.origin().map_or_else(|| state.clone(), |origin| format!("{state}, {}", wished(origin)));
    let own = report.spent.since(&report.held);
    vec![
        Cell::new(&row.run.0, Tone::Name),
        Cell::new(began.get(..16).unwrap_or(&began).replace('T', " "), Tone::Dim),
        Cell::new(state, standing.tone()),
        Cell::plain(format!("{ended}/{all}")),
        Cell::plain(thousands(own.usage.total())),
        Cell::plain(report.price(&own)),
        Cell::plain(branch),
    ]
}

fn of_json(row: &Row) -> Value {
    let (report, standing) = match &row.read {
        Ok(read) => read,
        Err(why) => return json!({"run": row.run, "state": "unreadable", "error": why}),
    };
    let own = report.spent.since(&report.held);
    let pid = if let Standing::Running(pid) = standing { *pid } else { None };
    json!({
        "run": row.run,
        "workflow": report.started.as_ref().map(|started| &started.workflow),
        "state": standing.word(),
        "pid": pid,
        "called_off_by": report.called_off_by(),
        "asks": report.questions().iter().map(|(id, question)| json!({"step": id.to_string(), "question": question.text})).collect::<Value>(),
        "began": report.began.to_string(),
        "last": report.last.to_string(),
        "steps_ended": report.steps().0,
        "steps": row.steps,
        "origin": report.origin(),
        "turns": own.turns,
        "tool_calls": own.calls,
        "tokens": own.usage.total(),
        "usd": own.known_usd(),
        "kept": {"turns": report.held.turns, "tokens": report.held.usage.total(), "usd": report.held.known_usd()},
        "all_priced": !report.spent.unpriced,
        "scripted": report.started.as_ref().is_some_and(|started| started.script.is_some()),
        "branch": report.branch.as_ref().filter(|branch| branch.made).map(|branch| &branch.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::tests::{begins, ends, failed, node, records, replied, started};

    fn row(run: &str, standing: Standing, steps: Option<usize>) -> Row {
        let (a, b) = (node("a"), node("b"));
        let report = Report::of(&records(vec![started(), begins(&a, 1), replied(&a, "x", &[]), ends(&a, failed("no")), begins(&b, 1)]));
        Row { run: run.into(), read: Ok((report, standing)), steps }
    }

    #[test]
    fn runs_stand_in_columns_and_broken_ones_below() {
        let broken = Row { run: "bad-222222".into(), read: Err("read the journal /x\u{1b}[2J: it is damaged".to_owned()), steps: None };
        let rows = [row("fix-abc234", Standing::Running(Some(4711)), Some(5)), broken, row("old-333333", Standing::Interrupted, None)];
        assert_eq!(
            screen(&rows, false),
            "\
RUN         BEGAN (UTC)       STATE           STEPS  TOKENS     COST  BRANCH
fix-abc234  2025-11-24 16:00  running (4711)    1/5    1020  $0.5000
old-333333  2025-11-24 16:00  interrupted      1/2+    1020  $0.5000

These cannot be read:
  bad-222222  read the journal /x [2J: it is damaged
"
        );
        let json: Value = rows.iter().map(of_json).collect();
        assert_eq!((&json[0]["pid"], &json[0]["steps"], &json[1]["state"], &json[2]["steps"]), (&4711.into(), &5.into(), &"unreadable".into(), &Value::Null));
    }
}
