//! `spinney list`: the workflows, agents, skills and hooks that are found here, where each is from and what it hides.
use super::{
    args,
    context::{Context, Failed},
    report::{Cell, Table, WIDTH, json_text, line, put, wrapped},
    screen::{Tone, paint},
};
use crate::{
    engine::Project,
    library::{Found, Kind, RootKind},
    skills,
    source::Source,
    workflow::{Input, InputKind, Workflow},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

/// Characters of a description.
const DESCRIPTION: usize = 400;

/// One thing that was found.
struct Entry {
    name: String,
    description: String,
    path: String,
    root: &'static str,
    hides: Vec<String>,
    inputs: Vec<Shown>,
    /// Short words on its state: `always`, `not trusted`.
    notes: Vec<&'static str>,
}

/// An input as people read it.
struct Shown {
    name: String,
    kind: &'static str,
    required: bool,
    default: Option<Value>,
    description: String,
}

pub(super) fn run(args: &args::List, context: &mut Context) -> Result<u8, Failed> {
    let project = Project::open(context.settings.clone())?;
    let sections = [("workflows", workflows(&project)), ("agents", agents(&project)), ("skills", of_shelf(&project)), ("hooks", hooks(&project))];
    let text = if args.json {
        let mut all: serde_json::Map<String, Value> =
            sections.iter().map(|(name, entries)| ((*name).to_owned(), entries.iter().map(of_json).collect())).collect();
        all.insert("warnings".to_owned(), project.warnings.clone().into());
        json_text(&Value::Object(all)).map_err(std::io::Error::from)? + "\n"
    } else {
        screen(&sections, &project.warnings, context.color)
    };
    put(context, &text)?;
    Ok(0)
}

impl Entry {
    fn of(found: &Found) -> Entry {
        let root = match found.root {
            RootKind::Project => "repository",
            RootKind::User => "user",
            RootKind::BuiltIn => "built in",
        };
        Entry {
            name: found.name.clone(),
            description: String::new(),
            path: found.path.clone(),
            root,
            hides: found.shadowed.clone(),
            inputs: Vec::new(),
            notes: Vec::new(),
        }
    }
}

fn workflows(project: &Project) -> Vec<Entry> {
    let one = |found: &Found| {
        let mut entry = Entry::of(found);
        match Workflow::load(&Arc::new(Source { name: found.path.clone(), text: found.text.clone() })) {
            Ok(workflow) => {
                let has_rules = !workflow.permissions.allow.is_empty() || workflow.agents.iter().any(|(_, agent)| !agent.permissions.allow.is_empty());
                let opens = workflow.sandboxes().any(|(_, sandbox)| !sandbox.opens().is_empty());
                let acts = [
                    (has_rules, "its allow rules are not trusted"),
                    (workflow.written_hooks().next().is_some(), "its hooks are not trusted"),
                    (workflow.written_servers().next().is_some(), "its servers are not trusted"),
                    (opens, "what its sandboxes open is not trusted"),
                ];
                if !project.trust.covers(found) {
                    entry.notes.extend(acts.iter().filter(|(is_there, _)| *is_there).map(|(_, note)| *note));
                }
                entry.inputs = workflow.inputs.iter().map(|(name, input)| shown(&name.value, input)).collect();
                entry.description = workflow.description.unwrap_or_default();
            }
            Err(_) => entry.notes.push("does not load: see `spinney validate`"),
        }
        entry
    };
    project.library.all(Kind::Workflow).into_iter().map(one).collect()
}

fn shown(name: &str, input: &Input) -> Shown {
    let kind = match input.kind.value {
        InputKind::String => "string",
        InputKind::Integer => "integer",
        InputKind::Number => "number",
        InputKind::Boolean => "boolean",
        InputKind::Array => "array",
        InputKind::Object => "object",
    };
    Shown {
        name: name.to_owned(),
        kind,
        required: input.required,
        default: input.default.as_ref().map(|default| default.value.clone()),
        description: input.description.clone().unwrap_or_default(),
    }
}

/// Agents go by the names that their files give, so that a file may be hidden by one of another name.
fn agents(project: &Project) -> Vec<Entry> {
    let (agents, _) = skills::agents(&project.library);
    let named = agents.iter().map(|(name, (file, found))| {
        let description = file.agent.description.clone().unwrap_or_default();
        Entry { name: name.clone(), description, ..Entry::of(found) }
    });
    let known: BTreeSet<&String> = agents.values().flat_map(|(_, found)| std::iter::once(&found.path).chain(&found.shadowed)).collect();
    let broken = project.library.all(Kind::Agent).into_iter().filter(|found| !known.contains(&found.path)).map(|found| {
        let mut entry = Entry::of(found);
        entry.notes.push("does not load");
        entry
    });
    named.chain(broken).collect()
}

fn of_shelf(project: &Project) -> Vec<Entry> {
    let one = |found: &Found| {
        let mut entry = Entry::of(found);
        match project.shelf.get(&found.name) {
            Some(skill) => entry.description.clone_from(&skill.description),
            None => entry.notes.push("does not load"),
        }
        entry
    };
    project.library.all(Kind::Skill).into_iter().map(one).collect()
}

fn hooks(project: &Project) -> Vec<Entry> {
    let one = |found: &Found| {
        let mut entry = Entry::of(found);
        let root: Value = serde_json::from_str(found.text.trim_start_matches('\u{feff}')).unwrap_or_default();
        root.get("description").and_then(Value::as_str).unwrap_or_default().clone_into(&mut entry.description);
        entry.notes.push(if root.get("always").and_then(Value::as_bool) == Some(true) { "always" } else { "where it is named" });
        if !root.is_object() {
            entry.notes.push("does not load");
        }
        if !project.trust.covers(found) {
            entry.notes.push("not trusted: see `spinney trust`");
        }
        entry
    };
    project.library.all(Kind::Hook).into_iter().map(one).collect()
}

fn screen(sections: &[(&str, Vec<Entry>)], warnings: &[String], color: bool) -> String {
    let mut text = String::new();
    for (name, entries) in sections {
        let mut title = (*name).to_owned();
        title[..1].make_ascii_uppercase();
        let none = if entries.is_empty() { ": none" } else { "" };
        let _ = writeln!(text, "{}{none}", paint(color, Tone::Name, &title));
        for entry in entries {
            one(&mut text, entry, color);
        }
        text.push('\n');
    }
    if !warnings.is_empty() {
        let _ = writeln!(text, "{}", paint(color, Tone::Warn, "Warnings"));
        for warning in warnings {
            let _ = writeln!(text, "  {}", line(warning, 1000));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn one(text: &mut String, entry: &Entry, color: bool) {
    let mut from = line(&entry.path, 300);
    if !entry.hides.is_empty() {
        let hides: Vec<String> = entry.hides.iter().map(|path| line(path, 300)).collect();
        let _ = write!(from, ", hides {}", hides.join(", "));
    }
    let notes = if entry.notes.is_empty() { String::new() } else { format!("  {}", paint(color, Tone::Warn, &entry.notes.join(", "))) };
    let _ = writeln!(text, "  {}  {}{notes}", paint(color, Tone::Name, &line(&entry.name, 64)), paint(color, Tone::Dim, &from));
    if !entry.description.trim().is_empty() {
        for part in wrapped(&line(&entry.description, DESCRIPTION), WIDTH - 6) {
            let _ = writeln!(text, "    {part}");
        }
    }
    let mut table = Table::new(&[], 2);
    for input in &entry.inputs {
        let given = match (&input.default, input.required) {
            (_, true) => "required".to_owned(),
            (Some(default), false) => format!("default {default}"),
            (None, false) => "optional".to_owned(),
        };
        table.row(vec![
            Cell::plain(format!("--input {}={}", input.name, input.kind)),
            Cell::new(line(&given, 28), Tone::Dim),
            Cell::plain(line(&input.description, WIDTH)),
        ]);
    }
    text.push_str(&table.render(color, 4, WIDTH));
}

fn of_json(entry: &Entry) -> Value {
    let inputs: Vec<Value> = entry
        .inputs
        .iter()
        .map(|input| json!({"name": input.name, "type": input.kind, "required": input.required, "default": input.default, "description": input.description}))
        .collect();
    json!({
        "name": entry.name, "description": entry.description, "path": entry.path, "root": entry.root, "hides": entry.hides,
        "notes": entry.notes, "inputs": inputs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_where_it_is_from_what_it_hides_and_what_it_takes() {
        let entry = Entry {
            name: "feature".to_owned(),
            description: "Builds\u{1b}[2J it".to_owned(),
            path: ".spinney/workflows/feature.yaml".to_owned(),
            root: "repository",
            hides: vec!["<built-in>/workflows/feature.yaml".to_owned()],
            inputs: vec![
                Shown { name: "goal".to_owned(), kind: "string", required: true, default: None, description: "What to build".to_owned() },
                Shown { name: "max".to_owned(), kind: "integer", required: false, default: Some(json!(4)), description: String::new() },
            ],
            notes: vec!["its allow rules are not trusted"],
        };
        let text = screen(&[("workflows", vec![entry]), ("hooks", Vec::new())], &["odd\u{7}".to_owned()], false);
        assert_eq!(
            text,
            "Workflows\n\
             \x20 feature  .spinney/workflows/feature.yaml, hides <built-in>/workflows/feature.yaml  its allow rules are not trusted\n\
             \x20   Builds [2J it\n\
             \x20   --input goal=string  required   What to build\n\
             \x20   --input max=integer  default 4\n\
             \nHooks: none\n\
             \nWarnings\n  odd\n"
        );
    }
}
