//! `spinney show`: what a run did, or one of its steps turn by turn, from the run's records alone.
mod cache;
mod session;

use super::{
    args,
    context::{Context, Failed},
    report::{Cell, FoundRun, Node, Report, Standing, Table, WIDTH, block, duration, indent, json_text, line, load_run, plain, put, wished},
    screen::{Tone, failure_text, paint, plural, short, skip_word, thousands},
};
use crate::{
    engine::{Project, Says, checkpoint_ref, doctor::Check, health},
    event::{Event, Given, Isolation, MergeProgress, NodeId, Outcome, Record, Repeated, RunStarted, SelectProgress},
    git::short_name,
    journal::{FINALLY, Lease, ON_FAILURE, Spent},
    source,
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _, path::Path};

/// Characters of an input's value.
const VALUE: usize = 70;
/// Characters of a node's name.
const NAME: usize = 72;
/// Paths and names in one line.
const LISTED: usize = 8;

pub(super) fn run(args: &args::Show, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { repo, run, dir, records } = load_run(context, &args.run)?;
    let report = Report::of(&records).with_letters(&dir);
    let node = args.step.as_deref().map(|step| require_node(&report, &run.0, step)).transpose()?;
    let text = if args.artifacts {
        artefacts(&records, dir.path(), node.map(|(id, _)| id))
    } else if args.cache {
        // What the configuration says of a model holds here too; where it cannot be read, what is known of it.
        let endpoints = Project::open(context.settings.clone()).map(|project| project.endpoints()).unwrap_or_default();
        let minimum = |model: &str| endpoints.capabilities(model).cache_minimum;
        cache::screen(&records, &report, node.map(|(id, _)| id), &minimum, context.color)
    } else if args.json {
        let chosen = records.iter().filter(|record| node.is_none_or(|(id, _)| record.event.node() == Some(id)));
        chosen.map(|record| Ok(json_text(record)? + "\n")).collect::<Result<String, serde_json::Error>>().map_err(std::io::Error::from)?
    } else if let Some((id, node)) = node {
        session::screen(&records, &report, (id, node), context.color)
    } else {
        let owner = Lease::owner(dir.path()).unwrap_or_else(Some);
        let standing = report.standing(owner.as_ref());
        // What a process is at work on moves.
        let faults = if owner.is_none() { health::faults_of(&repo, &run, dir.path(), &records) } else { Vec::new() };
        screen(&report, standing, &|path| Path::new(path).is_dir(), context.color) + &damages(&faults, context.color)
    };
    put(context, &text)?;
    Ok(0)
}

/// Says what is not as the records say.
fn damages(faults: &[Check], color: bool) -> String {
    let said = |fault: &Check| {
        let hint = fault.hint.as_ref().map(|hint| format!("\n    hint: {}", line(hint, 200))).unwrap_or_default();
        format!("  {}{hint}\n", line(&fault.detail, 400))
    };
    let said: String = faults.iter().map(said).collect();
    if said.is_empty() { said } else { format!("\n{}\n{said}", paint(color, Tone::Bad, "Not as the records say")) }
}

/// Lists the files that were kept, each once, the last of a name.
fn artefacts(records: &[Record], dir: &Path, of: Option<&NodeId>) -> String {
    let mut kept = BTreeMap::new();
    for record in records {
        if let Event::ArtefactKept { node, name, bytes, .. } = &record.event {
            kept.insert(name, (node, bytes));
        }
    }
    let mut text = String::new();
    for (name, (node, bytes)) in kept.into_iter().filter(|(_, (node, _))| of.is_none_or(|of| of == *node)) {
        let path = dir.join("artifacts").join(name);
        let missing = if path.is_file() { "" } else { ", not there any more" };
        let _ =
            writeln!(text, "{}  {bytes} bytes, of {}{missing}\n  {}", line(name, 200), line(&node.to_string(), 100), line(&path.display().to_string(), 500));
    }
    if text.is_empty() { "No output of this run was kept as a file.\n".to_owned() } else { text }
}

/// Finds the node that people write like this.
pub(super) fn require_node<'r>(report: &'r Report, run: &str, name: &str) -> Result<(&'r NodeId, &'r Node), Failed> {
    report.named(name).ok_or_else(|| {
        let names: Vec<String> = report.nodes().iter().map(|(id, _)| id.to_string()).collect();
        let hint = match source::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{}`?", line(near, 80)),
            None => format!("`spinney show {run}` lists them; an item is written step/key, a helper session step/key:name"),
        };
        Failed::usage(format!("find `{}` in the run `{run}`: no record speaks of it", line(name, 60))).hint(hint)
    })
}

/// Writes a whole run; `is_there` says whether a worktree still stands at a path.
fn screen(report: &Report, standing: Standing, is_there: &dyn Fn(&str) -> bool, color: bool) -> String {
    let mut text = head(report, standing, color);
    if let Some(failure) = report.outcome.as_ref().and_then(Outcome::failure) {
        let _ = write!(text, "\n{}", indent(&ending(&failure_text(failure)), 2));
    }
    text.push_str(&nodes(report, color));
    text.push_str(&reasons(report, color));
    text.push_str(&how_to_answer(report, &report.run()));
    text.push_str(&letters(report));
    text.push_str(&merges(report, color));
    text.push_str(&choices(report, color));
    text.push_str(&kept(report, color));
    text.push_str(&worktrees(report, is_there, color));
    text.push_str(&again(report, color));
    if matches!(standing, Standing::Failed | Standing::Cancelled) {
        let _ = write!(text, "\nDo again what did not work out, and keep the rest, with\n  spinney retry {}\n", line(&report.run(), 100));
    }
    if let Some(words) = &report.last_words {
        let _ = write!(text, "\n{}\n{}", title(color, "The orchestrator's last words"), indent(block(words).trim(), 2));
    }
    text
}

fn head(report: &Report, standing: Standing, color: bool) -> String {
    let state = match standing {
        Standing::Running(Some(pid)) => format!("running, process {pid}"),
        Standing::Answered => format!("answered, waits for `spinney resume {}`", line(&report.run(), 100)),
        Standing::Interrupted => format!("interrupted; `spinney resume {}` goes on", line(&report.run(), 100)),
        other => other.word().to_owned(),
    };
    let mut text = format!("Run {}: {}\n", line(&report.run(), 100), paint(color, standing.tone(), &state));
    let mut say = |name: &str, value: &str| {
        let _ = writeln!(text, "  {}  {value}", paint(color, Tone::Dim, &format!("{name:<8}")));
    };
    if let Some(started) = &report.started {
        say("workflow", &format!("{}, from {}", line(&started.workflow, 64), line(&started.file, 200)));
        if let Some(origin) = &started.origin {
            say("origin", &format!("{}, of which {} records hold", wished(origin), origin.held));
        }
        for (at, input) in inputs(started).iter().enumerate() {
            say(if at == 0 { "inputs" } else { "" }, input);
        }
        let head = started.head.as_deref().map_or_else(|| "no branch".to_owned(), |head| line(short_name(head), 80));
        say("base", &format!("{} of {head}", short(&started.base.0)));
        if !report.given.is_nothing() {
            say("given", &given(&report.given));
        }
        if started.script.is_some() {
            say("model", "scripted: every reply came from a file, nothing was sent anywhere");
        }
    }
    let resumed = if report.resumed == 0 { String::new() } else { format!(", taken up again {}", times(report.resumed)) };
    say("began", &format!("{}, {} in all{resumed}", report.began, duration(report.last.since(report.began))));
    let spent = &report.spent;
    let (turns, calls) = (spent.turns as usize, spent.calls as usize);
    say(
        "used",
        &format!(
            "{turns} {}, {calls} {}, {} tokens, {}",
            plural(turns, "turn"),
            plural(calls, "tool call"),
            thousands(spent.usage.total()),
            cost(report, spent)
        ),
    );
    if !report.held.is_nothing() {
        say("", &format!("of that in what holds: {} tokens, {}", thousands(report.held.usage.total()), cost(report, &report.held)));
    }
    if let Some(branch) = &report.branch {
        let made = if branch.made { "" } else { ", not made yet" };
        say("result", &format!("{} at {}{made}", paint(color, Tone::Good, &line(short_name(&branch.name), 120)), short(&branch.commit.0)));
    } else if standing == Standing::Succeeded {
        say("result", "nothing differs from the base");
    }
    text
}

/// Writes what was said of how a run is carried out as it is said on the command line.
fn given(given: &Given) -> String {
    let models = given.models.iter().map(|word| format!("--model {}", line(word, 100)));
    let flags = [(given.unconfined, "--unconfined"), (given.no_cache, "--no-cache")].into_iter().filter(|(said, _)| *said).map(|(_, flag)| flag.to_owned());
    let on_ask = given.on_ask.iter().map(|word| format!("--on-ask {}", line(word, 20)));
    models.chain(flags).chain(on_ask).collect::<Vec<_>>().join(" ")
}

fn inputs(started: &RunStarted) -> Vec<String> {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    started.inputs.iter().map(|(name, value)| format!("{} = {}", line(name, 64), line(&shown(value), VALUE))).collect()
}

fn nodes(report: &Report, color: bool) -> String {
    // A name is shown whole, so that it can be copied.
    let mut table = Table::new(&[2, 3, 4, 5, 6, 7], usize::MAX);
    table.row(["STEP", "OUTCOME", "TRIES", "TIME", "TURNS", "CALLS", "TOKENS", "COST", "COMMIT"].map(|title| Cell::new(title, Tone::Dim)).to_vec());
    for (id, node) in report.nodes() {
        let (word, tone) = state(report, id, node);
        // Of a sub-agent there is no outcome.
        let word = match (node.is_held, word) {
            (true, "") => "kept".to_owned(),
            (true, word) => format!("{word}, kept"),
            (false, word) => word.to_owned(),
        };
        let spoke = !node.spent.is_nothing();
        let number = |number: u32| if spoke { number.to_string() } else { String::new() };
        table.row(vec![
            Cell::new(format!("{}{}", "  ".repeat(report.depth(id)), line(&id.to_string(), NAME)), if id.helper.is_some() { Tone::Dim } else { Tone::Name }),
            Cell::new(word, tone),
            Cell::plain(if node.attempts == 0 { String::new() } else { node.attempts.to_string() }),
            Cell::plain(node.took().map(duration).unwrap_or_default()),
            Cell::plain(number(node.spent.turns)),
            Cell::plain(number(node.spent.calls)),
            Cell::plain(if spoke { thousands(node.spent.usage.total()) } else { String::new() }),
            Cell::plain(if spoke { report.price(&node.spent) } else { String::new() }),
            Cell::new(node.commit().map(|commit| short(&commit.0)).unwrap_or_default(), Tone::Dim),
        ]);
    }
    format!("\n{}", table.render(color, 0, WIDTH))
}

/// Returns the word for how a node stands.
fn state(report: &Report, id: &NodeId, node: &Node) -> (&'static str, Tone) {
    match &node.outcome {
        Some(Outcome::Succeeded(_)) => ("succeeded", Tone::Good),
        Some(Outcome::Failed(_)) => ("failed", Tone::Bad),
        Some(Outcome::Skipped(_)) => ("skipped", Tone::Dim),
        None if node.questions().any(|question| report.answered_by(id, question).is_none()) => ("asks", Tone::Warn),
        None if node.questions().next().is_some() => ("answered", Tone::Warn),
        None if node.parked.is_some() => ("parked", Tone::Warn),
        None if node.retry.is_some() => ("waits to retry", Tone::Warn),
        None if [ON_FAILURE, FINALLY].contains(&id.step.0.as_str()) => ("begun", Tone::Warn),
        None if id.helper.is_some() || node.began.is_none() || node.attempts == 0 => ("", Tone::Plain),
        None => ("begun", Tone::Warn),
    }
}

/// Says why nodes ended as they did, where it was not well.
fn reasons(report: &Report, color: bool) -> String {
    let mut text = String::new();
    for (id, node) in report.nodes() {
        let name = paint(color, Tone::Name, &line(&id.to_string(), 60));
        match &node.outcome {
            // Why what is inside of it failed is said below.
            Some(Outcome::Failed(failure)) if report.is_said_below(id, failure) => {}
            Some(Outcome::Failed(failure)) => {
                let _ = write!(text, "\n{name} failed\n{}", indent(&ending(&failure_text(failure)), 2));
            }
            Some(Outcome::Skipped(cause)) => {
                let _ = write!(text, "\n{name} was skipped: {}\n", line(&skip_word(cause), 200));
            }
            Some(Outcome::Succeeded(_)) => {}
            None => {
                for question in node.questions().filter(|question| report.answered_by(id, question).is_none()) {
                    let called = paint(color, Tone::Name, &line(&report.called(id, question), 60));
                    let _ = write!(text, "\n{called} asks\n{}", indent(block(&question.text).trim_end(), 2));
                    if !question.form.choices.is_empty() {
                        let _ = writeln!(text, "  one of: {}", line(&question.form.choices.join(", "), 200));
                    }
                    if let Some(shown) = &question.form.shown {
                        let _ = write!(text, "\n{}", indent(block(shown).trim_end(), 4));
                    }
                }
                if let Some(failure) = &node.parked {
                    let _ = write!(text, "\n{name} waits for its model\n{}", indent(&ending(&failure_text(failure)), 2));
                }
                if let Some(failure) = &node.retry {
                    let _ = write!(text, "\n{name} will be tried again, since it failed\n{}", indent(&ending(&failure_text(failure)), 2));
                }
            }
        }
    }
    text
}

/// Says by which command each question of a run is answered, and how one goes on that waits for a model; empty where nothing
/// waits.
pub(super) fn how_to_answer(report: &Report, run: &str) -> String {
    let open = report.questions();
    let mut text = String::new();
    if report.nodes().iter().any(|(_, node)| node.parked.is_some()) {
        let _ = write!(text, "\nGo on once the model can be had again with\n  spinney resume {run}\n");
    }
    for id in report.held_open() {
        let name = plain(&id.to_string());
        let _ = write!(text, "\n`{name}` stays open: the orchestrator, which may add items or try them again, waits for an answer\n");
    }
    if !open.is_empty() {
        text.push_str("\nAnswer with\n");
    }
    for (id, question) in &open {
        let name = plain(&id.to_string());
        // A number needs no quotes of its own.
        let number = report.called(id, question).strip_prefix(&name).unwrap_or_default().to_owned();
        let of = if open.len() == 1 { String::new() } else { format!(" {}{number}", shell_words::quote(&name)) };
        let _ = if question.form.open {
            writeln!(text, "  spinney answer {run}{of} TEXT")
        } else {
            writeln!(text, "  spinney approve {run}{of}    # or: spinney reject {run}{of} --note WHY")
        };
        if let Some(deadline) = question.form.deadline {
            let _ = writeln!(text, "    before {}; then it counts as {}", deadline.at, if deadline.allows { "approved" } else { "rejected" });
        }
    }
    text
}

/// Says what people have said and nobody has taken up.
fn letters(report: &Report) -> String {
    if report.letters.is_empty() || report.outcome.is_some() {
        return String::new();
    }
    let mut text = "\nSaid, and waits for `spinney resume`\n".to_owned();
    for letter in &report.letters {
        let said = match &letter.says {
            Says::Answer { allowed, note, .. } => {
                let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
                let asked = report.asked(letter).map(|question| format!(" to: {}", line(&question.text, 60))).unwrap_or_default();
                format!("answered by {}, {}{asked}{note}", letter.by, if *allowed { "yes" } else { "no" })
            }
            Says::Cancel => format!("cancelled by {}", letter.by),
            Says::Word(word) => format!("told by {}: {word}", letter.by),
        };
        let _ = writeln!(text, "  {}", line(&if letter.says == Says::Cancel { format!("run {said}") } else { format!("{} {said}", letter.node) }, WIDTH - 2));
    }
    text
}

fn merges(report: &Report, color: bool) -> String {
    let mut text = String::new();
    for (id, node) in report.nodes().into_iter().filter(|(_, node)| !node.merged.is_empty()) {
        let _ = writeln!(text, "\n{}", title(color, &format!("Merge {}", line(&id.to_string(), 60))));
        for progress in &node.merged {
            let (word, said, tone) = merged(progress);
            let _ = writeln!(text, "  {}", paint(color, tone, &format!("{word:<8}  {said}")));
        }
    }
    text
}

/// Says one step of a merge: a word for it, and the rest of its line.
fn merged(progress: &MergeProgress) -> (&'static str, String, Tone) {
    match progress {
        MergeProgress::Joined { from, commit, settled } => {
            let mut how: Vec<String> = settled.iter().take(LISTED).map(|(path, by)| format!("{path} settled by {by}")).collect();
            if settled.len() > LISTED {
                how.push(format!("and {} more", settled.len() - LISTED));
            }
            let how = if how.is_empty() { "cleanly".to_owned() } else { how.join(", ") };
            ("joined", line(&format!("{from} as {}, {how}", short(&commit.0)), 400), Tone::Plain)
        }
        MergeProgress::Conflicted { from, paths } => ("conflict", line(&format!("{from} in {}", listed(paths)), 400), Tone::Warn),
        MergeProgress::Ejected { from, reason } => ("ejected", line(&format!("{from}: {reason}"), 400), Tone::Bad),
        MergeProgress::Verified { commit, passed: true, .. } => ("green", short(&commit.0).to_owned(), Tone::Good),
        MergeProgress::Verified { commit, tail, .. } => ("red", format!("{}: {}", short(&commit.0), line(last_line(tail), 200)), Tone::Bad),
    }
}

fn choices(report: &Report, color: bool) -> String {
    let mut text = String::new();
    for (id, node) in report.nodes().into_iter().filter(|(_, node)| !node.selected.is_empty()) {
        let _ = writeln!(text, "\n{}", title(color, &format!("Choice {}", line(&id.to_string(), 60))));
        for progress in &node.selected {
            let (word, said, tone) = selected(progress);
            let _ = writeln!(text, "  {}", paint(color, tone, &format!("{word:<8}  {said}")));
        }
    }
    text
}

/// Says one step of a choice: a word for it, and the rest of its line.
fn selected(progress: &SelectProgress) -> (&'static str, String, Tone) {
    match progress {
        SelectProgress::Gated { candidate, passed: true, .. } => ("green", line(&candidate.to_string(), 100), Tone::Plain),
        SelectProgress::Gated { candidate, tail, .. } => ("red", line(&format!("{candidate}: {}", last_line(tail)), 300), Tone::Warn),
        SelectProgress::Voted { vote, winner, why, .. } => ("vote", line(&format!("{vote} for {winner}: {why}"), 400), Tone::Plain),
        SelectProgress::Abstained { vote, reason, .. } => ("no vote", line(&format!("{vote}: {reason}"), 400), Tone::Warn),
        SelectProgress::Chosen { winner, losers, kept_until } => {
            let others = if losers.is_empty() { String::new() } else { format!(", {} put aside", losers.len()) };
            let kept = kept_until.filter(|_| !losers.is_empty()).map(|until| format!(", kept until {until}")).unwrap_or_default();
            ("chosen", line(&format!("{winner}{others}{kept}"), 300), Tone::Good)
        }
    }
}

/// Names what keeps the files of attempts that came to no result.
fn kept(report: &Report, color: bool) -> String {
    let Some(started) = report.started.as_ref().filter(|_| !report.kept.is_empty()) else { return String::new() };
    let mut table = Table::new(&[], usize::MAX);
    for ((id, attempt), commit) in &report.kept {
        let name = checkpoint_ref(&started.run, id, *attempt);
        table.row(vec![Cell::new(line(&id.to_string(), NAME), Tone::Name), Cell::new(short(&commit.0), Tone::Dim), Cell::plain(line(&name, 300))]);
    }
    format!("\n{}\n{}", title(color, "Files of attempts without a result"), table.render(color, 2, usize::MAX))
}

fn worktrees(report: &Report, is_there: &dyn Fn(&str) -> bool, color: bool) -> String {
    let mut table = Table::new(&[], 0);
    for (id, node) in report.nodes() {
        let own = node.workspace.as_ref().filter(|_| !node.is_held);
        if let Some(workspace) = own.filter(|workspace| workspace.isolation != Isolation::View && is_there(&workspace.path)) {
            table.row(vec![
                Cell::new(line(&id.to_string(), 40), Tone::Name),
                Cell::new(format!("from {}", short(&workspace.base.0)), Tone::Dim),
                Cell::plain(&workspace.path),
            ]);
        }
    }
    if table.is_empty() { String::new() } else { format!("\n{}\n{}", title(color, "Worktrees"), table.render(color, 2, usize::MAX)) }
}

/// Lists what was begun twice, for a process ended over it.
fn again(report: &Report, color: bool) -> String {
    let mut table = Table::new(&[], 0);
    for Repeated { node, what } in &report.again {
        table.row(vec![Cell::new(line(&node.to_string(), 40), Tone::Name), Cell::plain(line(what, 200))]);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("\n{}\n{}", title(color, "Begun before a process ended, and done again"), table.render(color, 2, usize::MAX))
    }
}

fn title(color: bool, text: &str) -> String {
    paint(color, Tone::Name, text)
}

fn cost(report: &Report, spent: &Spent) -> String {
    match report.price(spent).as_str() {
        "-" => "nothing paid".to_owned(),
        "?" => "price unknown".to_owned(),
        price => price.to_owned(),
    }
}

/// Returns a long text's first line and its last ones.
fn ending(text: &str) -> String {
    const LAST: usize = 10;
    let text = block(text.trim());
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= LAST + 2 {
        return text;
    }
    let skipped = lines.len() - LAST - 1;
    format!("{}\n… {skipped} lines\n{}", lines[0], lines[lines.len() - LAST..].join("\n"))
}

fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

/// Writes a list on one line, cut where it is long.
fn listed(paths: &[String]) -> String {
    let mut shown: Vec<&str> = paths.iter().take(LISTED).map(String::as_str).collect();
    let more = format!("and {} more", paths.len().saturating_sub(LISTED));
    if paths.len() > LISTED {
        shown.push(&more);
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests;
