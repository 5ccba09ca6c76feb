//! One permission rule as written: `Tool` or `Tool(what)`.
//!
//! A rule that makes no sense is ignored where it would allow, and widened where it would forbid: a slip of the pen must
//! not open anything. Either way it is reported.
use super::{paths::PathRule, pattern::Pattern};
use crate::hooks::names;
use std::path::Path;

/// The list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hooks) enum List {
    Allow,
    Ask,
    Deny,
}

/// A rule.
#[derive(Debug, Clone)]
pub(in crate::hooks) struct Rule {
    /// As written.
    pub(super) text: String,
    pub(super) tools: Tools,
    pub(super) what: What,
}

/// The tools that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tools {
    /// One tool, or the family that it leads: `Edit` and whatever edits files, `Read` and whatever reads them.
    Named(String),
    /// All tools of an MCP server; the text ends in `__`.
    Server(String),
    /// All tools whose name meets a pattern.
    Like(Pattern),
}

/// What a rule says about calls of its tools.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// Every call.
    Whole,
    /// Commands.
    Command(Pattern),
    /// Paths.
    Path(PathRule),
    /// Hosts.
    Domain(String),
    /// The name of a sub-agent or skill.
    Name(Pattern),
    /// The value of a field of the input.
    Field(String, Pattern),
}

/// Fields of the input by which `Tool(field:value)` may go, and those it may not, since rules of another form are for
/// them.
const FIELDS: &[(&str, &[&str], &[&str])] = &[
    ("Agent", &["description", "effort", "isolation", "model", "name", "prompt", "run_in_background", "subagent_type"], &[]),
    ("Bash", &["description", "run_in_background", "timeout"], &["command"]),
    ("Edit", &["new_string", "old_string", "replace_all"], &["file_path"]),
    ("Glob", &["pattern"], &["path"]),
    ("Grep", &["glob", "head_limit", "multiline", "output_mode", "pattern", "type"], &["path"]),
    ("NotebookEdit", &["cell_id", "cell_type", "edit_mode", "new_source"], &["notebook_path"]),
    ("Read", &["limit", "offset", "pages"], &["file_path"]),
    ("Skill", &["args", "skill"], &[]),
    ("WebFetch", &["prompt"], &["url"]),
    ("Write", &["content"], &["file_path"]),
];

/// Tools that a rule named `Edit` covers besides `Edit`.
pub(super) const EDITORS: &[&str] = &["Edit", "MultiEdit", "NotebookEdit", "Write"];
/// Tools that a rule named `Read` covers besides `Read`.
pub(super) const READERS: &[&str] = &["Glob", "Grep", "LS", "NotebookRead", "Read"];

impl Rule {
    /// Reads a rule; gives nothing for one that is ignored. Warnings are pushed either way.
    pub(in crate::hooks) fn parse(text: &str, list: List, anchor: &Path, warnings: &mut Vec<String>) -> Option<Rule> {
        Reader { text: text.trim(), list, anchor, warnings }.read()
    }

    /// Returns whether the rule is about a tool, by its present name.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        match &self.tools {
            Tools::Named(name) if name == tool => true,
            Tools::Named(name) => match name.as_str() {
                "Edit" => EDITORS.contains(&tool),
                // What may not be read may not be edited either: an edit shows what was there.
                "Read" => READERS.contains(&tool) || (matches!(self.what, What::Path(_)) && EDITORS.contains(&tool)),
                _ => false,
            },
            Tools::Server(prefix) => tool.starts_with(prefix),
            Tools::Like(pattern) => pattern.matches(tool),
        }
    }

    /// Returns whether every call of a tool is meant.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.what, What::Whole)
    }
}

fn tools(name: &str, list: List) -> Option<Tools> {
    let server = |name: &str| {
        let rest = name.strip_prefix("mcp__")?;
        let server = rest.split_once("__").map_or(rest, |(server, _)| server);
        (!server.is_empty() && !server.contains('*')).then(|| server.to_owned())
    };
    if name.contains('*') {
        let anchored = server(name).is_some_and(|server| name.starts_with(&format!("mcp__{server}__")));
        return (list != List::Allow || anchored).then(|| Tools::Like(Pattern::plain(name)));
    }
    let sound = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.:".contains(c));
    if !sound {
        return None;
    }
    match server(name) {
        Some(server) if name == format!("mcp__{server}") => Some(Tools::Server(format!("{name}__"))),
        _ => Some(Tools::Named(names::current(name).to_owned())),
    }
}

/// Splits `field:value` where the field is one that is meant.
fn field(spec: &str, is_meant: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    let (name, value) = spec.split_once(':')?;
    let sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (sound && is_meant(name)).then_some((name, value))
}

/// A rule while it is read.
struct Reader<'a> {
    text: &'a str,
    list: List,
    anchor: &'a Path,
    warnings: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn read(mut self) -> Option<Rule> {
        let (name, spec) = match self.text.split_once('(') {
            None => (self.text, None),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(spec) => (name.trim(), Some(spec.trim()).filter(|spec| !spec.is_empty())),
                None => return self.widened(name.trim(), "its parenthesis is not closed"),
            },
        };
        let Some(tools) = tools(name, self.list) else {
            let allows = self.list == List::Allow;
            return self.ignored(if allows { "a pattern of tool names allows nothing unless it begins with `mcp__SERVER__`" } else { "it names no tool" });
        };
        match (spec, &tools) {
            (Some(spec), Tools::Named(tool)) => self.about(tool, spec),
            (None | Some("*"), _) => Some(self.rule(tools, What::Whole)),
            (Some(spec), _) => match field(spec, |_| true) {
                Some((field, value)) if self.list != List::Allow => Some(self.rule(tools, What::Field(field.to_owned(), Pattern::plain(value)))),
                _ => self.widened(name, "this tool has no such form of rule"),
            },
        }
    }

    /// Reads what stands in the parentheses after the name of one tool.
    fn about(&mut self, tool: &str, spec: &str) -> Option<Rule> {
        let (fields, primary) = FIELDS.iter().find(|(name, ..)| *name == tool).map_or((None, &[][..]), |(_, fields, primary)| (Some(*fields), *primary));
        if field(spec, |name| primary.contains(&name)).is_some() {
            return self.ignored("this field has a form of rule of its own");
        }
        // A tool that is not known here may have any field.
        let may_be_any = fields.is_none() && tool != "Cd";
        if let Some((field, value)) = field(spec, |name| may_be_any || fields.is_some_and(|fields| fields.contains(&name))) {
            if self.list == List::Allow {
                return self.ignored("a rule about a field may only ask or deny");
            }
            return Some(self.rule(Tools::Named(tool.to_owned()), What::Field(field.to_owned(), Pattern::plain(value))));
        }
        let what = match tool {
            "Bash" if matches!(spec, "*" | ":*") => What::Whole,
            "Bash" => What::Command(Pattern::command(spec)),
            "Read" | "Edit" | "Cd" => match PathRule::parse(spec, self.list, self.anchor) {
                Ok(path) => What::Path(path),
                Err(error) => return self.widened(tool, &format!("failed to {error}")),
            },
            "Agent" => What::Name(Pattern::plain(spec)),
            "Skill" => What::Name(Pattern::command(spec)),
            "WebFetch" => match spec.strip_prefix("domain:") {
                Some(domain) => What::Domain(domain.trim().trim_end_matches('.').to_ascii_lowercase()),
                None => return self.widened(tool, "it is not of the form `WebFetch(domain:HOST)`"),
            },
            _ if EDITORS.contains(&tool) => return self.led_by("Edit", spec),
            _ if READERS.contains(&tool) => return self.led_by("Read", spec),
            _ if spec == "*" => What::Whole,
            _ => return self.widened(tool, "this tool has no such form of rule"),
        };
        Some(self.rule(Tools::Named(tool.to_owned()), what))
    }

    /// Rules about paths are looked up under one name for all tools that read, and one for all that write.
    fn led_by(&mut self, leader: &str, spec: &str) -> Option<Rule> {
        if self.list == List::Allow {
            return self.ignored(&format!("rules about paths are written for `{leader}`"));
        }
        self.warnings.push(format!("rule `{}`: rules about paths are written for `{leader}`; it is taken as `{leader}({spec})`", self.text));
        self.about(leader, spec)
    }

    fn rule(&self, tools: Tools, what: What) -> Rule {
        Rule { text: self.text.to_owned(), tools, what }
    }

    fn ignored(&mut self, why: &str) -> Option<Rule> {
        self.warnings.push(format!("rule `{}` is ignored: {why}", self.text));
        None
    }

    /// A rule that cannot be read forbids or asks about every call of its tool.
    fn widened(&mut self, name: &str, why: &str) -> Option<Rule> {
        match tools(name, self.list).filter(|_| self.list != List::Allow) {
            None => self.ignored(why),
            Some(tools) => {
                self.warnings.push(format!("rule `{}` holds for every call of `{name}`: {why}", self.text));
                Some(self.rule(tools, What::Whole))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, list: List) -> (Option<Rule>, Vec<String>) {
        let mut warnings = Vec::new();
        let rule = Rule::parse(text, list, Path::new("/p"), &mut warnings);
        (rule, warnings)
    }

    #[test]
    fn rules_in_the_wild_are_read_without_a_word() {
        for text in [
            "Bash",
            "Bash(npm run test:*)",
            "Bash(git add *)",
            "Bash(npm:*)",
            "Bash(curl -s http://localhost:8080/*)",
            "mcp__github",
            "mcp__github__*",
            "mcp__github__get_issue",
            "WebFetch(domain:docs.rs)",
            "Read(//etc/**)",
            "Read(~/.ssh/**)",
            "Edit(/src/**)",
            "Skill(pdf)",
            "Skill(team:pdf *)",
            "Agent(Explore)",
            "WebSearch",
        ] {
            let (rule, warnings) = parse(text, List::Allow);
            assert!(rule.is_some() && warnings.is_empty(), "{text}: {warnings:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_never_allows_and_never_stops_forbidding() {
        for text in ["Bash(rm *", "WebFetch(example.com)", "TodoWrite(x)", "mcp__a__b(c)"] {
            let (allow, warnings) = parse(text, List::Allow);
            assert!(allow.is_none() && warnings.len() == 1, "{text}");
            let (deny, warnings) = parse(text, List::Deny);
            assert!(deny.is_some_and(|rule| rule.is_whole()) && warnings.len() == 1, "{text}");
        }
        assert!(parse("", List::Deny).0.is_none());
        assert!(parse("*", List::Allow).0.is_none());
        assert!(parse("*", List::Deny).0.is_some_and(|rule| rule.is_about("Edit")));
        assert!(parse("mcp__*__get", List::Allow).0.is_none());
    }

    #[test]
    fn paths_written_for_the_wrong_tool_still_forbid() {
        let (rule, warnings) = parse("Write(secrets/**)", List::Deny);
        assert!(rule.is_some_and(|rule| rule.is_about("Edit")) && warnings.len() == 1);
        assert!(parse("Write(secrets/**)", List::Allow).0.is_none());
    }

    #[test]
    fn old_names_and_families_are_covered() {
        assert!(parse("Task(Explore)", List::Deny).0.unwrap().is_about("Agent"));
        assert!(parse("Edit", List::Deny).0.unwrap().is_about("Write"));
        assert!(!parse("Write", List::Deny).0.unwrap().is_about("Edit"));
        assert!(!parse("Read", List::Deny).0.unwrap().is_about("Write"));
        assert!(parse("Read(.env)", List::Deny).0.unwrap().is_about("Write"));
        assert!(!parse("mcp__git", List::Allow).0.unwrap().is_about("mcp__github__x"));
    }
}
