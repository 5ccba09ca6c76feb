//! Skills and agent files as data: read leniently, because most of those in the world are not quite what their format asks
//! for, and without running anything.
//!
//! A [`Skill`] is disclosed in three steps: its line in the catalogue ([`Shelf::listing`]), its body when it is called
//! ([`Skill::render`]), its further files when they are read. The bodies may ask for a shell command's output in their
//! text; that is never run here.
mod agent;
mod frontmatter;
mod listing;
mod substitute;

pub use agent::{AgentError, AgentFile, agent, agents};
pub use listing::Listing;
pub use substitute::Invocation;

use crate::library::{Found, Kind, Library};
use frontmatter::Front;
use std::{collections::BTreeMap, path::PathBuf};

/// The longest name of a skill that the format allows.
const MAX_NAME: usize = 64;

/// One skill.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// What it is called by: the name of its folder.
    pub name: String,
    /// What it is for, on one line; the first paragraph of the body where the file does not say.
    pub description: String,
    /// When to use it.
    pub when_to_use: Option<String>,
    /// The instructions, before anything is put in.
    pub body: String,
    /// Its folder; `None` for a built-in one, which [`Library::materialise`] gives a folder.
    pub dir: Option<PathBuf>,
    /// Its file, for people.
    pub path: String,
    /// Tool rules that hold without asking while it is followed: `Bash(git add *)`. The words of whoever wrote the skill;
    /// they count only where `trusted`, or once a person agreed.
    pub allowed_tools: Vec<String>,
    /// Tools that are out of reach while it is followed.
    pub disallowed_tools: Vec<String>,
    /// The names of its arguments, for `$name`.
    pub arguments: Vec<String>,
    /// How its arguments are shown to people.
    pub argument_hint: Option<String>,
    /// Whether only people call it: it is not in the catalogue.
    pub disable_model_invocation: bool,
    /// Whether people may call it.
    pub user_invocable: bool,
    /// The model it asks for.
    pub model: Option<String>,
    /// The effort it asks for.
    pub effort: Option<String>,
    /// Whether its body is the prompt of an agent of its own, and of which.
    pub fork: Option<String>,
    /// Globs of the files that it is about; none means any.
    pub paths: Vec<String>,
    /// Whether it is trusted by its place.
    pub trusted: bool,
}

/// The skills that are there.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    skills: BTreeMap<String, Skill>,
    /// Names that files give themselves and that no folder has.
    aliases: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Shelf {
    /// Reads all skills of a library.
    pub fn of(library: &Library) -> Shelf {
        Shelf::new(library.all(Kind::Skill))
    }

    /// Reads found skills.
    pub fn new<'a>(found: impl IntoIterator<Item = &'a Found>) -> Shelf {
        let mut shelf = Shelf::default();
        let mut own: Vec<(usize, String, String)> = Vec::new();
        for found in found {
            let (skill, declared, warnings) = read(found);
            shelf.warnings.extend(warnings.into_iter().map(|warning| format!("{}: {warning}", found.path)));
            own.extend(declared.map(|name| (found.rank(), name, skill.name.clone())));
            shelf.skills.insert(skill.name.clone(), skill);
        }
        own.sort();
        for (_, declared, folder) in own {
            if !shelf.skills.contains_key(&declared) {
                shelf.aliases.entry(declared).or_insert(folder);
            }
        }
        shelf
    }

    /// Returns a skill by the name of its folder, or else by the name that its file gives.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.skills.get(name).or_else(|| self.skills.get(self.aliases.get(name)?))
    }

    /// Returns all skills, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Skill> {
        self.skills.values()
    }

    /// Returns what is odd about the files.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the catalogue of the named skills for a system prompt, in at most `budget_chars` characters: sorted, the same
    /// bytes for the same skills, and what had to be cut is stated in it and returned.
    pub fn listing(&self, names: &[String], budget_chars: usize) -> Listing {
        listing::write(self, names, budget_chars)
    }
}

impl Skill {
    /// Returns the body with its arguments and places put in, in one pass: what is put in is not read again.
    pub fn render(&self, args: &str, invocation: &Invocation<'_>) -> String {
        substitute::render(&self.body, &self.arguments, args, invocation)
    }

    /// Returns what a model gets when it calls the skill: the rendered body, where the skill's folder is and which files
    /// it holds besides. `files` are the paths in that folder, as [`library::files`](crate::library::files) lists them.
    pub fn open(&self, args: &str, invocation: &Invocation<'_>, files: &[String]) -> String {
        let mut lines = vec![format!("<skill_content name=\"{}\">", self.name), self.render(args, invocation).trim_end().to_owned()];
        if let Some(dir) = invocation.dir {
            lines.push(format!("\nFolder of this skill: {}", dir.display()));
            lines.extend(files.iter().filter(|file| *file != "SKILL.md").take(listing::MAX_FILES).map(|file| format!("- {file}")));
            if files.len() > listing::MAX_FILES {
                lines.push("- …".to_owned());
            }
        }
        lines.push("</skill_content>".to_owned());
        lines.join("\n")
    }
}

/// Reads one file; gives also the name that the file itself gives, where that differs.
fn read(found: &Found) -> (Skill, Option<String>, Vec<String>) {
    let mut front = Front::read(&found.text, KEYS);
    let declared = front.text("name").filter(|name| *name != found.name);
    if let Some(name) = &declared {
        front.warn(format!("its name is `{name}`, but its folder `{}` is what it goes by", found.name));
    }
    let fit = |name: &str| !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    if found.name.chars().count() > MAX_NAME || !fit(&found.name) || found.name.chars().any(|c| c.is_uppercase() || !(c.is_alphanumeric() || c == '-')) {
        front.warn(format!("`{}` is not a name that every client takes: lowercase letters, digits and single hyphens, at most {MAX_NAME}", found.name));
    }
    let description = front.text("description").unwrap_or_default();
    let description = if description.trim().is_empty() {
        front.warn("it has no description; the first paragraph of its text stands in for it".to_owned());
        first_paragraph(&front.body)
    } else {
        description
    };
    let skill = Skill {
        name: found.name.clone(),
        description: one_line(&description),
        when_to_use: front.text("when_to_use").map(|text| one_line(&text)).filter(|text| !text.is_empty()),
        dir: found.dir.clone(),
        path: found.path.clone(),
        allowed_tools: front.list("allowed-tools"),
        disallowed_tools: front.list("disallowed-tools"),
        arguments: front.list("arguments"),
        argument_hint: front.text("argument-hint"),
        disable_model_invocation: front.flag("disable-model-invocation").unwrap_or(false),
        user_invocable: front.flag("user-invocable").unwrap_or(true),
        model: front.text("model"),
        effort: front.text("effort"),
        fork: (front.text("context").as_deref() == Some("fork")).then(|| front.text("agent").unwrap_or_else(|| "general-purpose".to_owned())),
        paths: front.list("paths"),
        trusted: found.trusted,
        body: front.body.clone(),
    };
    if front.has("hooks") {
        front.warn("hooks of a skill are not run; name them on the agent or step that uses it".to_owned());
    }
    (skill, declared, front.warnings)
}

/// Every key of a SKILL.md that some client reads.
const KEYS: &[&str] = &[
    "name",
    "description",
    "when_to_use",
    "argument-hint",
    "arguments",
    "disable-model-invocation",
    "user-invocable",
    "allowed-tools",
    "disallowed-tools",
    "model",
    "effort",
    "context",
    "agent",
    "background",
    "hooks",
    "paths",
    "shell",
    "metadata",
    "license",
    "compatibility",
    "version",
    "author",
    "tags",
];

/// Returns the first paragraph that is not a heading.
fn first_paragraph(body: &str) -> String {
    let lines = body.lines().map(str::trim).skip_while(|line| line.is_empty() || line.starts_with('#'));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Writes text on one line, with single spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
