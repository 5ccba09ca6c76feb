//! Permission rules in Claude Code's syntax, compiled and judged.
//!
//! Deny rules come first, then ask rules, then allow rules; the first list with a match has the word and no rule is
//! better than another for being narrower. Whatever must be asked whoever allows it (writing where configuration lives,
//! removing what is not to be removed) comes after the deny rules and before the allow rules. A call that nothing is
//! said about is left to the mode of the agent.
//!
//! Forbidding looks at everything a command may start, allowing at what it certainly is: what cannot be read is never
//! allowed, and is asked about where a rule might forbid it. Nothing here is ever run; the file system is looked at for
//! links only.
mod bash;
mod critical;
mod expand;
mod paths;
mod pattern;
mod programs;
mod rule;
mod survey;
mod wrappers;

use crate::plan::{RuleFlaws, Rules};
pub(super) use bash::fires;
pub(super) use rule::{List, Rule};

use paths::Place;
use reqwest::Url;
use rule::{EDITORS, READERS, What};
use serde_json::Value;
use std::path::{Path, PathBuf};

use super::names;

/// More rules than this in one list are not taken.
const MAX_RULES: usize = 2_000;

/// The compiled rules of an agent, those of its ancestors included.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    /// One list for each ancestor that allows anything; a call must be allowed by all of them.
    allow: Vec<Vec<Rule>>,
}

/// Where a call is made.
#[derive(Debug, Clone, Copy)]
pub struct RuleContext<'a> {
    /// Where the agent stands, absolute.
    pub cwd: &'a Path,
    /// The root of its workspace, absolute.
    pub root: &'a Path,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// Folders besides the workspace that it may write to: a private temporary folder, say.
    pub writable: &'a [PathBuf],
}

/// What the rules say about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleVerdict {
    /// It may go ahead.
    Allow {
        /// The rule that allows it, or its first part.
        rule: String,
    },
    /// It must be asked about, even where a hook or a mode would let it through.
    Ask {
        /// Why, for the one who is asked.
        reason: String,
    },
    /// It must not be made.
    Deny {
        /// The rule that forbids it.
        rule: String,
    },
    /// No rule decides; the agent's mode does.
    None {
        /// The part of a command that no rule allows, where it is only a part.
        part: Option<String>,
    },
}

/// Says what is wrong with a rule as it is written; `list` is `allow`, `ask` or `deny`.
pub fn lint(text: &str, list: &str) -> RuleFlaws {
    let list = match list {
        "allow" => List::Allow,
        "ask" => List::Ask,
        _ => List::Deny,
    };
    let mut odd = Vec::new();
    let is_ignored = Rule::parse(text, list, Path::new("/"), &mut odd).is_none();
    let tool = text.split('(').next().unwrap_or(text).trim();
    let is_pattern = tool.is_empty() || tool.contains('*') || tool.starts_with("mcp__");
    RuleFlaws { odd, is_ignored, unknown_tool: (!is_pattern && !names::KNOWN.contains(&tool)).then(|| tool.to_owned()) }
}

impl Permissions {
    /// Compiles rules; `anchor` is the folder that a pattern like `/src/**` is relative to. What is ignored or taken in
    /// another sense is said in the warnings.
    pub fn compile(rules: &Rules, anchor: &Path) -> (Permissions, Vec<String>) {
        let mut warnings = Vec::new();
        let mut compile = |texts: &[String], list: List| -> Vec<Rule> {
            if texts.len() > MAX_RULES {
                warnings.push(format!("more than {MAX_RULES} rules in one list: those after them are ignored"));
            }
            texts.iter().take(MAX_RULES).filter_map(|text| Rule::parse(text, list, anchor, &mut warnings)).collect()
        };
        let deny = compile(&rules.deny, List::Deny);
        let ask = compile(&rules.ask, List::Ask);
        let allow = compile(&rules.allow, List::Allow);
        (Permissions { deny, ask, allow: if allow.is_empty() { Vec::new() } else { vec![allow] } }, warnings)
    }

    /// Returns the rules that forbid one thing.
    pub(super) fn denying(rule: &Rule) -> Permissions {
        Permissions { deny: vec![rule.clone()], ..Permissions::default() }
    }

    /// Returns the rules of a child: what this agent must not do or must ask about, its child must not either, and what
    /// the child's own rules allow must be allowed by this agent's, too, where those allow anything. Who has no allow
    /// rules of its own has those of its parent.
    #[must_use]
    pub fn narrow(&self, own: &Permissions) -> Permissions {
        let join = |a: &[Rule], b: &[Rule]| a.iter().chain(b).cloned().collect();
        Permissions { deny: join(&self.deny, &own.deny), ask: join(&self.ask, &own.ask), allow: self.allow.iter().chain(&own.allow).cloned().collect() }
    }

    /// Returns whether a rule forbids calls of a tool or asks about them, all or some.
    pub fn restricts(&self, tool: &str) -> bool {
        self.deny.iter().chain(&self.ask).any(|rule| rule.is_about(tool))
    }

    /// Returns whether some file may be kept from reading, so that [`Permissions::hides`] need be asked at all.
    pub fn hides_files(&self) -> bool {
        self.deny.iter().any(|rule| rule.is_about("Read") && matches!(rule.what, What::Path(_)))
    }

    /// Returns whether a file must not be read, and so not be found by a search either.
    pub fn hides(&self, path: &Path, cx: &RuleContext<'_>) -> bool {
        let place = Place::of(path, cx.cwd);
        self.deny.iter().any(|rule| rule.is_about("Read") && matches!(&rule.what, What::Path(path) if path.touches(&place, cx)))
    }

    /// Judges a call.
    pub fn judge(&self, tool: &str, input: &Value, cx: &RuleContext<'_>) -> RuleVerdict {
        let tool = names::current(tool);
        if tool == "Bash" {
            return bash::judge(self, input, cx);
        }
        let call = Call::of(tool, input, cx);
        if let Some(rule) = self.deny.iter().find(|rule| call.is_met(rule, cx)) {
            return RuleVerdict::Deny { rule: rule.text.clone() };
        }
        if let Some(rule) = self.ask.iter().find(|rule| call.is_met(rule, cx)) {
            return RuleVerdict::Ask { reason: asked_by(rule) };
        }
        if EDITORS.contains(&tool)
            && let Some(place) = call.places.iter().find(|place| paths::is_protected(place, cx))
        {
            return RuleVerdict::Ask { reason: protected(place) };
        }
        self.allowing(|rule| call.is_permitted(rule, cx)).map_or(RuleVerdict::None { part: None }, |rule| RuleVerdict::Allow { rule: rule.text.clone() })
    }

    /// Returns the first rule by which a call is allowed, where every list of allow rules has one.
    fn allowing(&self, allows: impl Fn(&Rule) -> bool) -> Option<&Rule> {
        let found: Option<Vec<&Rule>> = self.allow.iter().map(|list| list.iter().find(|rule| allows(rule))).collect();
        found.and_then(|rules| rules.last().copied())
    }
}

/// The name of a file that no rule means in particular: one that forbids it forbids all that is in its folder.
const ANY_FILE: &str = "\u{1}";

/// A call of any tool but the shell.
struct Call<'a> {
    tool: &'a str,
    input: &'a Value,
    places: Vec<Place>,
    /// Of a search: what stands for any file in the folder that it looks through.
    within: Option<Place>,
}

impl Call<'_> {
    fn of<'a>(tool: &'a str, input: &'a Value, cx: &RuleContext<'_>) -> Call<'a> {
        let field = |name: &str| input.get(name).and_then(Value::as_str);
        let mut places = Vec::new();
        let mut within = None;
        if EDITORS.contains(&tool) || READERS.contains(&tool) {
            let named = ["file_path", "notebook_path", "path"].into_iter().filter_map(field).collect::<Vec<_>>();
            places.extend(named.iter().map(|path| Place::of(Path::new(path), cx.cwd)));
            if matches!(tool, "Glob" | "Grep" | "LS") {
                let from = named.first().map_or_else(|| cx.cwd.to_owned(), |path| cx.cwd.join(path));
                if named.is_empty() {
                    places.push(Place::of(&from, cx.cwd));
                }
                within = Some(Place::of(&from.join(ANY_FILE), cx.cwd));
                // A search for exactly one file reads it.
                let pattern = if tool == "Glob" { field("pattern") } else { field("glob") };
                places.extend(pattern.filter(|pattern| !pattern.contains(['*', '?', '[', '{'])).map(|pattern| Place::of(Path::new(pattern), &from)));
            }
        }
        Call { tool, input, places, within }
    }

    /// Returns whether a rule forbids the call or asks about it.
    fn is_met(&self, rule: &Rule, cx: &RuleContext<'_>) -> bool {
        rule.is_about(self.tool)
            && match &rule.what {
                What::Path(path) => self.places.iter().chain(&self.within).any(|place| path.touches(place, cx)),
                other => self.meets(other, true),
            }
    }

    /// Returns whether a rule allows the call.
    fn is_permitted(&self, rule: &Rule, cx: &RuleContext<'_>) -> bool {
        rule.is_about(self.tool)
            && match &rule.what {
                What::Path(path) => !self.places.is_empty() && self.places.iter().all(|place| path.permits(place, cx)),
                other => self.meets(other, false),
            }
    }

    fn meets(&self, what: &What, widely: bool) -> bool {
        let field = |name: &str| self.input.get(name).and_then(Value::as_str);
        match what {
            What::Whole => true,
            What::Command(_) | What::Path(_) => false,
            What::Domain(pattern) => field("url").and_then(host).is_some_and(|host| meets_domain(pattern, &host)),
            What::Field(name, pattern) => self.input.get(name).and_then(scalar).is_some_and(|value| pattern.matches(&value)),
            What::Name(pattern) if self.tool == "Agent" => pattern.matches(field("subagent_type").unwrap_or("general-purpose")),
            What::Name(pattern) => {
                let name = field("skill").unwrap_or_default().trim_start_matches('/');
                let call = format!("{name} {}", field("args").unwrap_or_default());
                pattern.matches(call.trim_end()) || (widely && pattern.matches(name))
            }
        }
    }
}

/// Returns whether the input's field meets a rule about it.
fn meets_field(rule: &Rule, input: &Value) -> bool {
    matches!(&rule.what, What::Field(name, pattern) if input.get(name).and_then(scalar).is_some_and(|value| pattern.matches(&value)))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn host(url: &str) -> Option<String> {
    let url = if url.contains("://") { Url::parse(url) } else { Url::parse(&format!("https://{url}")) };
    url.ok()?.host_str().map(|host| host.trim_end_matches('.').to_ascii_lowercase())
}

/// A leading `*.` is any number of labels, but at least one; any other `*` stays within a label.
fn meets_domain(pattern: &str, host: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let (labels, wanted): (Vec<&str>, Vec<&str>) = match pattern.strip_prefix("*.") {
        Some(apex) => {
            let wanted: Vec<&str> = apex.split('.').collect();
            let labels: Vec<&str> = host.split('.').collect();
            if labels.len() <= wanted.len() {
                return false;
            }
            (labels[labels.len() - wanted.len()..].to_vec(), wanted)
        }
        None => (host.split('.').collect(), pattern.split('.').collect()),
    };
    labels.len() == wanted.len() && wanted.iter().zip(labels).all(|(wanted, label)| pattern::Pattern::plain(wanted).matches(label))
}

fn asked_by(rule: &Rule) -> String {
    format!("rule `{}` asks", rule.text)
}

fn protected(place: &Place) -> String {
    format!("`{}` may change what runs later", place.link.display())
}

#[cfg(test)]
mod spellings;
#[cfg(test)]
mod tests;
