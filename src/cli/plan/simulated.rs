//! A simulated run on the screen: what began and ended when, the longest way through it, and what it would have used.
use super::WIDTH;
use crate::{
    cli::{
        context::{Context, Failed},
        report::{self, Cell, Table, json_text, line, put, wrapped},
        screen::{self, Tone, paint, thousands},
        validate,
    },
    engine::{self, Leg, SetupError, SimulateError, Simulated},
    event::{Outcome, SkipCause},
    library::{FILE_BYTES, read_text},
    plan::Plan,
    source::Source,
    workflow::Stub,
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt::Write as _, io, path::Path, sync::Arc, time::Duration};

pub(super) fn run(plan: &Arc<Plan>, inputs: &Map<String, Value>, stub: &Path, json: bool, context: &mut Context) -> Result<u8, Failed> {
    let path = context.settings.directory.join(stub);
    let text = read_text(&path, FILE_BYTES).map_err(|error| Failed::usage(format!("read the stub `{}`: {error}", stub.display())))?;
    let source = Source { name: stub.display().to_string(), text };
    let stub = Stub::load(&Arc::new(source)).map_err(|found| validate::refused(&found, context.color))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failed::new(format!("start: {error}")))?;
    let simulated = runtime.block_on(engine::simulate(plan.clone(), inputs, stub)).map_err(|error| match error {
        SimulateError::Stub(found) => validate::refused(&found, context.color),
        SimulateError::Inputs(problems) => SetupError::Inputs(problems).into(),
        SimulateError::Engine(error) => Failed::of(&error),
    })?;
    let text = if json { json_text(&of_json(plan, &simulated)).map_err(io::Error::from)? + "\n" } else { page(plan, &simulated, context.color) };
    put(context, &text)?;
    Ok(match &simulated.outcome {
        Some(Outcome::Failed(_)) => 1,
        None => 3,
        Some(Outcome::Succeeded(_) | Outcome::Skipped(_)) => 0,
    })
}

fn page(plan: &Plan, run: &Simulated, color: bool) -> String {
    let mut text = format!("{} simulated: nothing is asked, started or written\n\n", paint(color, Tone::Name, &plan.name));
    let mut table = Table::of_names(&[0, 1, 2], 3, 4);
    table.row(["begins", "ends", "takes", "step", ""].map(|word| Cell::new(word, Tone::Dim)).to_vec());
    for (at, leg) in run.legs.iter().enumerate() {
        let mark = if run.critical.contains(&at) { Tone::Name } else { Tone::Plain };
        let (end, tone) = match &leg.failure {
            None => (used(leg), Tone::Dim),
            Some(why) => (format!("failed: {}", line(why, 200)), Tone::Bad),
        };
        let node = if leg.attempt > 1 { format!("{} (try {})", leg.node, leg.attempt) } else { leg.node.to_string() };
        table.row(vec![
            Cell::plain(clock(leg.began)),
            Cell::plain(clock(leg.ended)),
            Cell::plain(report::duration(leg.ended.saturating_sub(leg.began))),
            Cell::new(line(&node, 200), mark),
            Cell::new(end, tone),
        ]);
    }
    text.push_str(&table.render(color, 2, WIDTH));
    if !run.skipped.is_empty() {
        text.push_str("\nNot begun\n");
        for (node, cause) in &run.skipped {
            let _ = writeln!(text, "  {}: {}", line(&node.to_string(), 60), screen::skip_word(cause));
        }
    }
    if !run.left_over.is_empty() {
        let _ = writeln!(text, "\nWork that would stand on no branch, since what is to join it does not");
        for part in wrapped(&run.left_over.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), WIDTH - 2) {
            let _ = writeln!(text, "  {part}");
        }
    }
    let made_up: BTreeSet<&str> = run.legs.iter().filter(|leg| leg.is_made_up).map(|leg| leg.node.step.0.as_str()).collect();
    if !made_up.is_empty() {
        let _ = writeln!(text, "\nMade up, since the stub says nothing of the output of");
        for part in wrapped(&made_up.into_iter().collect::<Vec<_>>().join(", "), WIDTH - 2) {
            let _ = writeln!(text, "  {part}");
        }
    }
    let _ = writeln!(text, "\nLongest way  {}", way(run));
    let (tokens, usd) = totals(run);
    let (sessions, steps) = (run.legs.iter().filter(|leg| leg.tokens > 0 || leg.usd > 0.0).count(), run.legs.len());
    let _ = writeln!(text, "Takes        {} with {} at once at most, of {}", report::duration(run.took), run.peak, plan.max_parallel);
    let _ = writeln!(
        text,
        "Uses         ${usd:.2} and {} tokens in {steps} {}, {sessions} of them with a cost",
        thousands(tokens),
        if steps == 1 { "try" } else { "tries" }
    );
    if run.raises > 0 {
        let times = if run.raises == 1 { "once".to_owned() } else { format!("{} times", run.raises) };
        let _ = writeln!(text, "Asks         {times} for as much again of its budget, which is given");
    }
    let (tone, end) = match &run.outcome {
        Some(Outcome::Succeeded(_)) if run.limit.is_some() || run.skipped.iter().any(|(_, cause)| matches!(cause, SkipCause::Budget(_))) => {
            (Tone::Warn, "succeeded, in part: a limit was reached".to_owned())
        }
        Some(Outcome::Succeeded(success)) if success.output.as_object().is_some_and(|outputs| !outputs.is_empty()) => {
            (Tone::Good, format!("succeeded: {}", line(&success.output.to_string(), 400)))
        }
        Some(Outcome::Succeeded(_) | Outcome::Skipped(_)) => (Tone::Good, "succeeded".to_owned()),
        Some(Outcome::Failed(failure)) => (Tone::Bad, format!("failed: {}", line(&screen::failure_text(failure), 400))),
        None => (Tone::Warn, "waits for a person".to_owned()),
    };
    let _ = writeln!(text, "Ends         {}", paint(color, tone, &end));
    text
}

/// Nodes of the longest way that are named.
const SHOWN: usize = 12;

fn way(run: &Simulated) -> String {
    let names: Vec<String> = run.critical.iter().filter_map(|at| run.legs.get(*at)).map(|leg| line(&leg.node.to_string(), 60)).collect();
    if names.len() <= SHOWN {
        return names.join(" > ");
    }
    format!("{} > … {} more … > {}", names[..SHOWN / 2].join(" > "), names.len() - SHOWN, names[names.len() - SHOWN / 2..].join(" > "))
}

fn totals(run: &Simulated) -> (u64, f64) {
    run.legs.iter().fold((0, 0.0), |(tokens, usd), leg| (tokens + leg.tokens, usd + leg.usd))
}

fn used(leg: &Leg) -> String {
    let parts = [(leg.usd > 0.0).then(|| format!("${:.2}", leg.usd)), (leg.tokens > 0).then(|| format!("{} tokens", thousands(leg.tokens)))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Writes a moment from the start of the run.
fn clock(at: Duration) -> String {
    let seconds = at.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds % 3_600 / 60, seconds % 60)
}

fn of_json(plan: &Plan, run: &Simulated) -> Value {
    let (tokens, usd) = totals(run);
    let leg = |leg: &Leg| {
        json!({
            "node": leg.node.to_string(), "attempt": leg.attempt, "began_ms": ms(leg.began), "ended_ms": ms(leg.ended),
            "failure": leg.failure, "usd": leg.usd, "tokens": leg.tokens, "made_up": leg.is_made_up,
        })
    };
    json!({
        "workflow": plan.name,
        "outcome": run.outcome,
        "limit": run.limit,
        "raises": run.raises,
        "took_ms": ms(run.took),
        "peak": run.peak,
        "max_parallel": plan.max_parallel,
        "usd": usd,
        "tokens": tokens,
        "records": run.records,
        "tries": run.legs.iter().map(leg).collect::<Vec<_>>(),
        "critical": run.critical,
        "left_over": run.left_over.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "skipped": run.skipped.iter().map(|(node, cause)| json!({"node": node.to_string(), "cause": cause})).collect::<Vec<_>>(),
    })
}

fn ms(duration: Duration) -> u64 {
    crate::clock::millis(duration)
}
