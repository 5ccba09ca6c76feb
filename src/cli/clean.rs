//! `spinney clean`: removes what is left of runs whose work is elsewhere, and says for each what became of it.
use super::{
    args,
    context::{Context, Failed},
    report::{json_text, line, pick, put, repository},
    screen::{Tone, paint, plural},
};
use crate::{
    clock::Clock,
    engine::{Cleaning, Fate, clean, orphans},
    event::RunId,
    journal::RunDir,
    workflow,
};
use serde_json::{Value, json};
use std::{fmt::Write as _, io};

pub(super) fn run(args: &args::Clean, context: &mut Context) -> Result<u8, Failed> {
    let repo = repository(context)?;
    let older_than = workflow::parse_duration(&args.older_than)
        .ok_or_else(|| Failed::usage(format!("read `--older-than {}`", line(&args.older_than, 40))).hint("write a number and a unit: `90m`, `12h`, `14d`"))?;
    let mut runs = RunDir::list(&RunDir::state(repo.main_checkout())).map_err(|error| Failed::of(&error))?;
    runs.extend(orphans(&repo, &context.settings.cache).map_err(|error| Failed::of(&error))?);
    let drop = args.drop.iter().map(|run| pick(&runs, run)).collect::<Result<Vec<RunId>, Failed>>()?;
    let cleaning =
        Cleaning { cache: context.settings.cache.clone(), older_than, now: Clock::system().now(), dry_run: args.dry_run, ignored: args.ignored, drop };
    let fates = clean(&repo, &cleaning).map_err(|error| Failed::of(&error))?;
    let text = if args.json { json_text(&of_json(&fates, args.dry_run)).map_err(io::Error::from)? + "\n" } else { screen(&fates, args.dry_run, context.color) };
    put(context, &text)?;
    // Who names a run wants it gone.
    let stays = !cleaning.drop.is_empty() && fates.iter().any(|(_, fate)| matches!(fate, Fate::Kept(_)));
    Ok(u8::from(stays))
}

fn screen(fates: &[(RunId, Fate)], dry_run: bool, color: bool) -> String {
    let mut text = String::new();
    for (run, fate) in fates {
        let (word, why, tone) = match fate {
            Fate::Removed(why) => (if dry_run { "would go" } else { "removed" }, why, Tone::Good),
            Fate::Kept(why) => ("stays", why, Tone::Dim),
        };
        let _ = writeln!(text, "{}  {}  {}", paint(color, Tone::Name, &format!("{:<24}", run.0)), paint(color, tone, &format!("{word:<8}")), line(why, 600));
    }
    let gone = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Removed(_))).count();
    let word = if dry_run { "would be removed" } else { "removed" };
    let _ = writeln!(text, "{gone} {} {word}, {} {}.", plural(gone, "run"), fates.len() - gone, if fates.len() - gone == 1 { "stays" } else { "stay" });
    text
}

fn of_json(fates: &[(RunId, Fate)], dry_run: bool) -> Value {
    let one = |(run, fate): &(RunId, Fate)| {
        let (removed, why) = match fate {
            Fate::Removed(why) => (true, why),
            Fate::Kept(why) => (false, why),
        };
        json!({"run": run, "removed": removed && !dry_run, "would_be_removed": removed, "why": why})
    };
    fates.iter().map(one).collect()
}
