//! `spinney trust`: shows what came with this repository and would act by itself, and keeps what a person agrees to.
//!
//! Trust is by content: what is recorded is the hash of what was shown, so that a changed byte asks again.
use super::{
    args,
    context::{Context, Failed},
    report::{line, put},
    screen::{Tone, paint},
};
use crate::{
    engine::Project,
    library::{Found, Kind, RootKind},
    source::Source,
    workflow::{Reach, Workflow},
};
use serde_json::{Map, Value};
use std::{
    fmt::Write as _,
    io::{self, BufRead as _, Read as _, Write as _},
    sync::Arc,
};

/// Characters of a command; nothing of one is left out without a word.
const COMMAND: usize = 2000;
/// Digits of a hash that are shown.
const HASH: usize = 16;
/// The longest answer that is read, in bytes.
const ANSWER: u64 = 1024;

/// Something that acts only once it is trusted.
struct Asked {
    hash: String,
    what: String,
    shown: String,
}

pub(super) fn run(args: &args::Trust, context: &mut Context) -> Result<u8, Failed> {
    let mut project = Project::open(context.settings.clone())?;
    let (asked, known) = look(&project, context.color);
    let trusted = if known == 0 { String::new() } else { format!("{known} {} trusted already.\n", if known == 1 { "file is" } else { "files are" }) };
    if asked.is_empty() {
        put(context, &format!("{trusted}Nothing of this repository waits for trust.\n"))?;
        return Ok(0);
    }
    let shown: String = asked.iter().map(|asked| format!("{}\n", asked.shown)).collect();
    put(
        context,
        &format!(
            "{shown}{trusted}Hooks run on this machine as you, outside of any sandbox. Allow rules let agents act without asking, and what a sandbox opens is open to their commands.\n"
        ),
    )?;
    if !args.yes && !agreed(asked.len(), context)? {
        put(context, "Nothing was trusted.\n")?;
        return Ok(0);
    }
    for asked in &asked {
        project.trust.add(&asked.hash, &asked.what).map_err(|error| Failed::of(&error))?;
    }
    let names: Vec<&str> = asked.iter().map(|asked| asked.what.as_str()).collect();
    put(context, &format!("Trusted as now: {}; a change asks again.\n", names.join(", ")))?;
    Ok(0)
}

/// Gathers what of the repository is not trusted, and counts what is.
fn look(project: &Project, color: bool) -> (Vec<Asked>, usize) {
    let mut asked = Vec::new();
    let mut known = 0;
    let found = [Kind::Hook, Kind::Workflow].into_iter().flat_map(|kind| project.library.all(kind)).filter(|found| found.root == RootKind::Project);
    for found in found {
        let lines = if found.kind == Kind::Hook { hook_lines(found) } else { rule_lines(found) };
        if lines.is_empty() {
            continue;
        }
        if project.trust.covers(found) {
            known += 1;
            continue;
        }
        let hash = found.hash().to_owned();
        let mut shown = format!("{} {}  {}\n", capital(found.kind), paint(color, Tone::Name, &line(&found.name, 100)), line(&found.path, 300));
        let _ = writeln!(shown, "  {}  {}", paint(color, Tone::Dim, "hash   "), &hash[..hash.len().min(HASH)]);
        for (name, text) in lines {
            let _ = writeln!(shown, "  {}  {}", paint(color, Tone::Dim, &format!("{name:<7}")), text);
        }
        asked.push(Asked { hash, what: line(&format!("{} {}", found.kind, found.path), 300), shown });
    }
    for untrusted in project.configuration.untrusted() {
        let mut shown = format!("Configuration  {}\n", line(&untrusted.file, 300));
        let _ = writeln!(shown, "  {}  {}", paint(color, Tone::Dim, "hash   "), &untrusted.hash[..untrusted.hash.len().min(HASH)]);
        for provider in &untrusted.providers {
            let _ = writeln!(shown, "  {}  {}", paint(color, Tone::Dim, "sends  "), line(&format!("requests and keys to {provider}"), COMMAND));
        }
        asked.push(Asked { what: line(&format!("configuration {}", untrusted.file), 300), hash: untrusted.hash, shown });
    }
    (asked, known)
}

/// Says when a hook runs, what it runs, and which files that is.
fn hook_lines(found: &Found) -> Vec<(&'static str, String)> {
    let mut lines = vec![("files", found.covers.iter().map(|file| line(file, 200)).collect::<Vec<_>>().join(", "))];
    let Ok(Value::Object(root)) = serde_json::from_str::<Value>(found.text.trim_start_matches('\u{feff}')) else {
        lines.push(("runs", "nothing: it cannot be read as a hook file".to_owned()));
        return lines;
    };
    let always = root.get("always").and_then(Value::as_bool) == Some(true);
    lines.push(("holds", if always { "for every agent" } else { "where a workflow, a step or an agent names it" }.to_owned()));
    let no_events = Map::new();
    lines.extend(runs(root.get("hooks").and_then(Value::as_object).unwrap_or(&no_events)));
    lines
}

/// Says what handlers run, and when.
fn runs(events: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for (event, groups) in events {
        for group in groups.as_array().into_iter().flatten() {
            let matcher =
                group.get("matcher").and_then(Value::as_str).filter(|matcher| !matcher.is_empty()).map(|matcher| format!(" ({matcher})")).unwrap_or_default();
            for handler in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
                lines.push(("runs", line(&format!("at {event}{matcher}: {}", command(handler)), COMMAND)));
            }
        }
    }
    lines
}

/// Returns what a handler starts, or all of it where that is not plain.
fn command(handler: &Value) -> String {
    let args = handler.get("args").and_then(Value::as_array).map(|args| args.iter().map(|arg| format!(" {arg}")).collect::<String>()).unwrap_or_default();
    match handler.get("command").and_then(Value::as_str) {
        Some(command) => format!("{command}{args}"),
        None => handler.to_string(),
    }
}

/// Lists the allow rules of a workflow, what the sandboxes of its agents open, and the servers and hooks that stand in it. One that does not load
/// allows nothing.
fn rule_lines(found: &Found) -> Vec<(&'static str, String)> {
    let source = Source { name: found.path.clone(), text: found.text.clone() };
    let Ok(workflow) = Workflow::load(&Arc::new(source)) else { return Vec::new() };
    let of_all = workflow.permissions.allow.iter().map(|rule| line(&rule.value, COMMAND));
    let of_agents = workflow
        .agents
        .iter()
        .flat_map(|(name, agent)| agent.permissions.allow.iter().map(move |rule| line(&format!("{}  (agent {})", rule.value, name.value), COMMAND)));
    let rules = of_all.chain(of_agents).map(|rule| ("allows", rule));
    let opens = workflow.sandboxes().flat_map(|(name, sandbox)| sandbox.opens().into_iter().map(move |opened| format!("{opened} (agent {})", name.value)));
    rules
        .chain(workflow.written_servers().map(|(agent, name, server)| {
            let whose = agent.map(|agent| format!("  (agent {agent})")).unwrap_or_default();
            let does = if matches!(server.reach, Reach::Program { .. }) { "runs" } else { "reaches" };
            (does, line(&format!("server {}: {}{whose}", name.value, server.line()), COMMAND))
        }))
        .chain(opens.map(|opened| ("opens", line(&opened, COMMAND))))
        .chain(workflow.written_hooks().filter_map(|events| events.value.as_object()).flat_map(runs))
        .collect()
}

fn capital(kind: Kind) -> &'static str {
    if kind == Kind::Hook { "Hook" } else { "Workflow" }
}

/// Asks at the terminal.
fn agreed(count: usize, context: &mut Context) -> Result<bool, Failed> {
    if !context.interactive {
        return Err(Failed::usage("ask whether this is trusted: nobody is at the terminal").hint("look at what is shown, then give `--yes`"));
    }
    write!(context.err, "Trust {}? [y/N] ", if count == 1 { "this".to_owned() } else { format!("these {count}") })?;
    context.err.flush()?;
    let mut answer = String::new();
    io::BufReader::new(io::stdin().lock().take(ANSWER)).read_line(&mut answer).map_err(|error| Failed::new(format!("read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
