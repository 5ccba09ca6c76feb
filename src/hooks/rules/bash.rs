//! Rules about shell commands.
use super::{
    Permissions, Rule, RuleContext, RuleVerdict, asked_by, critical, expand, meets_field,
    paths::{self, Looks, PathRule, Place},
    pattern::{Glyph, Meet, Pattern},
    programs, protected,
    rule::What,
    survey::{Survey, glyphs, shown},
    wrappers,
};
use crate::tools::shell::{self, Part, Redirect, RedirectKind, Script, Simple, Unparsable, Word};
use serde_json::Value;
use std::{
    cell::LazyCell,
    path::{Path, PathBuf},
};

/// Variables that may be set before an allowed command, sorted.
const SAFE_VARIABLES: &[&str] = &[
    "CARGO_TERM_COLOR",
    "CI",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "GOARCH",
    "GOOS",
    "LANG",
    "LANGUAGE",
    "LINES",
    "NODE_ENV",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TERM",
    "TZ",
];

/// Judges a call of the shell.
pub(super) fn judge(permissions: &Permissions, input: &Value, cx: &RuleContext<'_>) -> RuleVerdict {
    let command = input.get("command").and_then(Value::as_str).unwrap_or_default().trim();
    let parsed = shell::parse(command);
    let look = Look { command, input, survey: parsed.as_ref().map(Survey::of).unwrap_or_default(), parsed: &parsed, cx };
    if let Some(rule) = permissions.deny.iter().find(|rule| look.meets(rule) == Meet::Yes) {
        return RuleVerdict::Deny { rule: rule.text.clone() };
    }
    if let Some(rule) = permissions.ask.iter().find(|rule| look.meets(rule) == Meet::Yes) {
        return RuleVerdict::Ask { reason: asked_by(rule) };
    }
    if let Some(rule) = permissions.deny.iter().chain(&permissions.ask).find(|rule| look.meets(rule) == Meet::Maybe) {
        return RuleVerdict::Ask { reason: look.unsure(rule) };
    }
    let script = match &parsed {
        Ok(script) => script,
        Err(error) => return RuleVerdict::None { part: Some(error.to_string()) },
    };
    if let Some(reason) = look.must_ask(permissions) {
        return RuleVerdict::Ask { reason };
    }
    allow(permissions, script, command, cx)
}

/// Returns whether the rule of a hook's `if` lets the hook run: also where that cannot be told.
pub(in crate::hooks) fn fires(rule: &Rule, input: &Value, cx: &RuleContext<'_>) -> bool {
    let command = input.get("command").and_then(Value::as_str).unwrap_or_default().trim();
    let parsed = shell::parse(command);
    let look = Look { command, input, survey: parsed.as_ref().map(Survey::of).unwrap_or_default(), parsed: &parsed, cx };
    let longer = matches!(&rule.what, What::Command(pattern) if pattern.is_longer_than_a_name());
    look.meets(rule) != Meet::No || (longer && rule.is_about("Bash") && command.contains(['$', '`']))
}

/// A command looked at from all sides.
struct Look<'a> {
    command: &'a str,
    input: &'a Value,
    survey: Survey,
    parsed: &'a Result<Script, Unparsable>,
    cx: &'a RuleContext<'a>,
}

impl Look<'_> {
    /// Returns whether a rule that forbids or asks meets the command.
    fn meets(&self, rule: &Rule) -> Meet {
        match &rule.what {
            What::Whole if rule.is_about("Bash") => Meet::Yes,
            What::Field(..) if rule.is_about("Bash") && meets_field(rule, self.input) => Meet::Yes,
            What::Command(pattern) if rule.is_about("Bash") => self.meets_pattern(pattern),
            What::Path(_) => self.meets_path(rule),
            _ => Meet::No,
        }
    }

    fn meets_pattern(&self, pattern: &Pattern) -> Meet {
        if pattern.matches(self.command) || self.survey.sources.iter().any(|source| pattern.matches(source)) {
            return Meet::Yes;
        }
        let met = self.survey.runs.iter().flat_map(|run| &run.texts).map(|text| pattern.meets(text)).max().unwrap_or(Meet::No);
        if met == Meet::No && (self.parsed.is_err() || !self.survey.doubts.is_empty()) { Meet::Maybe } else { met }
    }

    /// A rule about paths meets the files that redirects and known programs name, and those in folders that they go through. What is
    /// only known when it runs may be any file of the workspace: where there is one that the rule is about, that is asked about.
    fn meets_path(&self, rule: &Rule) -> Meet {
        let What::Path(path) = &rule.what else { return Meet::No };
        if self.parsed.is_err() {
            return Meet::Maybe;
        }
        let froms = self.folders();
        let touches = |word: &str| froms.iter().flat_map(|from| expand::files(word, from)).any(|file| path.touches(&Place::of(&file, self.cx.cwd), self.cx));
        let is_there = LazyCell::new(|| path.within(&paths::followed(self.cx.root), Looks::Everything, self.cx) != Meet::No);
        let touched = |word: &Word| -> Meet {
            match self.texts(word) {
                None if *is_there => Meet::Maybe,
                Some(texts) if texts.iter().flat_map(|text| programs::named_files(text)).any(|file| touches(&file)) => Meet::Yes,
                None | Some(_) => Meet::No,
            }
        };
        let (reads, edits, moves) = (rule.is_about("Read"), rule.is_about("Edit"), rule.is_about("Cd"));
        let redirects = self.survey.redirects.iter().filter(|redirect| if is_output(redirect) { edits } else { reads && redirect.kind == RedirectKind::Read });
        let by_redirects = redirects.map(|redirect| touched(&redirect.target)).max().unwrap_or(Meet::No);
        let by = |run: &super::survey::Run| -> Meet {
            let Some(name) = run.words.first().and_then(super::survey::base_name) else { return Meet::No };
            if moves && matches!(name.as_str(), "cd" | "pushd") {
                let names = run.words[1..].iter().filter_map(|word| self.texts(word)).flatten();
                return if names.into_iter().any(|name| touches(&name)) { Meet::Yes } else { Meet::No };
            }
            let uses = programs::uses(&name, &run.words[1..], |word| self.texts(word));
            // A rule that forbids reading forbids writing as well, so what is written counts too.
            let files = uses.reads.iter().filter(|_| reads).chain(uses.writes.iter().filter(|_| reads || edits));
            let named = files.map(|word| touched(word)).max().unwrap_or(Meet::No);
            match uses.through.filter(|_| reads && named != Meet::Yes) {
                Some((looks, folders)) => named.max(self.goes_through(path, (looks, &folders), &froms)),
                None => named,
            }
        };
        let met = self.survey.runs.iter().map(by).max().unwrap_or(Meet::No).max(by_redirects);
        if met == Meet::No && !self.survey.doubts.is_empty() { Meet::Maybe } else { met }
    }

    /// Returns whether a program that goes through folders comes upon a file that a rule is about.
    fn goes_through(&self, path: &PathRule, (looks, folders): (Looks, &[&Word]), froms: &[PathBuf]) -> Meet {
        let named: Vec<PathBuf> = match folders {
            [] => froms.to_vec(),
            words => {
                let texts = words.iter().filter_map(|word| self.texts(word)).flatten();
                texts.flat_map(|text| froms.iter().flat_map(|from| expand::files(&text, from)).collect::<Vec<_>>()).collect()
            }
        };
        let meets = |folder: &PathBuf| {
            let any = Place::of(&folder.join(super::ANY_FILE), self.cx.cwd);
            if path.touches(&any, self.cx) { Meet::Yes } else { path.within(&paths::followed(folder), looks, self.cx) }
        };
        named.iter().filter(|folder| folder.is_dir()).map(meets).max().unwrap_or(Meet::No)
    }

    /// Returns the texts that a word may become, with what the script assigns put in; `None` where one is only known when it runs.
    fn texts(&self, word: &Word) -> Option<Vec<String>> {
        let words = expand::with_values(word, &self.survey.assigned);
        let texts: Vec<Vec<String>> = words.iter().map(|word| expand::texts(word, self.cx)).collect();
        texts.iter().all(|texts| !texts.is_empty()).then(|| texts.concat())
    }

    /// Returns every folder from which a relative path may be meant: where the agent stands, and wherever a `cd` leads.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.cx.cwd.to_owned()];
        for run in &self.survey.runs {
            if run.words.first().and_then(Word::literal).is_some_and(|name| matches!(name.as_str(), "cd" | "pushd"))
                && let Some(target) = run.words.last().and_then(|word| expand::only_text(word, self.cx))
                && folders.len() < 16
            {
                let next: Vec<PathBuf> = folders.iter().map(|folder| folder.join(&target)).filter(|folder| !folders.contains(folder)).collect();
                folders.extend(next.into_iter().take(16));
            }
        }
        folders
    }

    fn unsure(&self, rule: &Rule) -> String {
        let why = match self.parsed {
            Err(error) => error.to_string(),
            Ok(_) => self.survey.doubts.iter().next().cloned().unwrap_or_else(|| "a part of it is only known when it runs".to_owned()),
        };
        format!("rule `{}` may be meant: {why}", rule.text)
    }

    /// Returns why a person must be asked whatever the allow rules say.
    fn must_ask(&self, permissions: &Permissions) -> Option<String> {
        let cx = self.cx;
        let removal = self.survey.runs.iter().find_map(|run| critical::removal(run, cx));
        removal.or_else(|| self.survey.redirects.iter().filter(|redirect| is_output(redirect)).find_map(|redirect| self.output(redirect, permissions))).or_else(
            || {
                self.survey.runs.iter().find_map(|run| {
                    let name = run.words.first().and_then(super::survey::base_name).filter(|name| programs::writes(name))?;
                    let texts = programs::written(&name, &run.words[1..]).iter().flat_map(|word| expand::texts(word, cx));
                    let files = texts.flat_map(|text| programs::named_files(&text));
                    files.map(|file| Place::of(Path::new(&file), cx.cwd)).find(|place| paths::is_protected(place, cx)).map(|place| protected(&place))
                })
            },
        )
    }

    /// Returns why a redirect to a file must be asked about.
    fn output(&self, redirect: &Redirect, permissions: &Permissions) -> Option<String> {
        let target = &redirect.target;
        if target.has_tilde() || target.has_glob() || target.has_brace() {
            return Some("a redirect goes to a file that is only known when it runs".to_owned());
        }
        let target = expand::only_text(target, self.cx)?;
        if is_nowhere(&target) {
            return None;
        }
        if target.starts_with("/dev/") {
            return Some(format!("a redirect goes to `{target}`"));
        }
        let place = Place::of(Path::new(&target), self.cx.cwd);
        if paths::is_protected(&place, self.cx) {
            return Some(protected(&place));
        }
        let inside = place.is_inside(self.cx.root) || self.cx.writable.iter().any(|folder| place.is_inside(folder));
        (!inside && !may_edit(permissions, &place, self.cx)).then(|| format!("a redirect writes to `{}`, outside the workspace", place.link.display()))
    }
}

/// Judges a command that nothing speaks against: every part must be allowed.
fn allow(permissions: &Permissions, script: &Script, command: &str, cx: &RuleContext<'_>) -> RuleVerdict {
    let exact = |rule: &Rule| matches!(&rule.what, What::Command(pattern) if pattern.is_exact() && pattern.matches(command)) && rule.is_about("Bash");
    if let Some(rule) = permissions.allowing(exact) {
        return RuleVerdict::Allow { rule: rule.text.clone() };
    }
    let every = script.every();
    if every.is_empty() {
        return RuleVerdict::None { part: None };
    }
    let called = |wanted: &str| every.iter().any(|simple| simple.name().as_deref() == Some(wanted));
    // In another folder git obeys another configuration, and relative paths mean other files.
    let (strays, moves) = (called("cd") && called("git"), called("cd") || called("pushd"));
    let mut first = None;
    for simple in every {
        let Some(rule) = part(permissions, simple, strays) else { return RuleVerdict::None { part: Some(shown(simple)) } };
        let whole = permissions.allowing(|rule| rule.is_whole() && rule.is_about("Bash")).is_some();
        for redirect in simple.redirects.iter().filter(|redirect| is_output(redirect)) {
            let known = expand::only_text(&redirect.target, cx);
            let fine =
                known.is_some_and(|target| is_nowhere(&target) || whole || (!moves && may_edit(permissions, &Place::of(Path::new(&target), cx.cwd), cx)));
            if !fine {
                return RuleVerdict::None { part: Some(shown(simple)) };
            }
        }
        first = first.or(Some(rule).filter(|rule| rule != READ_ONLY));
    }
    RuleVerdict::Allow { rule: first.unwrap_or_else(|| READ_ONLY.to_owned()) }
}

/// What stands for a rule where a command only reads.
const READ_ONLY: &str = "read-only commands";

/// Returns the rule by which one simple command is allowed.
fn part(permissions: &Permissions, simple: &Simple, strays: bool) -> Option<String> {
    let safe_assignments = simple.assignments.iter().all(|assignment| is_safe(&assignment.name, simple.words.is_empty()));
    let is_git = simple.name().as_deref() == Some("git");
    let bare = without_substitutions(simple);
    let head = matches!(simple.words.as_slice(), [word, ..] if word.parts == [Part::Bare("for".to_owned())] && simple.text.starts_with("for"));
    let trivial =
        (simple.words.is_empty() && safe_assignments) || (head && simple.words.get(1).and_then(Word::literal).is_some_and(|name| is_safe(&name, true)));
    if trivial || (!(is_git && strays) && safe_assignments && bare.reads()) {
        return Some(READ_ONLY.to_owned());
    }
    let rule = permissions.allowing(|rule| {
        rule.is_about("Bash")
            && match &rule.what {
                What::Whole => true,
                What::Command(pattern) => covers(pattern, simple, safe_assignments),
                _ => false,
            }
    })?;
    Some(rule.text.clone())
}

/// Returns whether a pattern allows one simple command.
fn covers(pattern: &Pattern, simple: &Simple, safe_assignments: bool) -> bool {
    if pattern.is_exact() && pattern.matches(&simple.text) {
        return true;
    }
    if !safe_assignments {
        return false;
    }
    let certain = |words: &[Word]| {
        let Some(name) = words.first().and_then(Word::literal) else { return false };
        (pattern.is_exact() || !wrappers::is_opaque(&name, &words[1..])) && pattern.meets(&closed(words)) == Meet::Yes
    };
    certain(&simple.words) || wrappers::unwrapped(&simple.words).is_some_and(certain)
}

/// Writes words as text in which only words without blanks can be read: `npm "run build"` is not `npm run build`.
fn closed(words: &[Word]) -> Vec<Glyph> {
    let mut text = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(Glyph::Char(' '));
        }
        match word.literal() {
            Some(literal) if !literal.is_empty() && !literal.contains(char::is_whitespace) => text.extend(glyphs(std::slice::from_ref(word))),
            _ => text.push(Glyph::Words),
        }
    }
    text
}

/// Substitutions are judged on their own; for the command around them they are unknown text.
fn without_substitutions(simple: &Simple) -> Simple {
    let mut bare = simple.clone();
    bare.redirects.retain(|redirect| redirect.kind == RedirectKind::Read);
    bare.assignments.clear();
    bare.ended_by = shell::Operator::End;
    for part in bare.words.iter_mut().flat_map(|word| &mut word.parts) {
        if let Part::Substitution { quoted, .. } = part {
            *part = Part::Variable { name: "SUBSTITUTION".to_owned(), quoted: *quoted };
        }
    }
    bare
}

fn may_edit(permissions: &Permissions, place: &Place, cx: &RuleContext<'_>) -> bool {
    let edits = |rule: &Rule| {
        rule.is_about("Edit")
            && match &rule.what {
                What::Whole => true,
                What::Path(path) => path.permits(place, cx),
                _ => false,
            }
    };
    permissions.allowing(edits).is_some()
}

/// A variable that is only set for the script itself is safe unless programs look at it, which lower-case names are not.
fn is_safe(name: &str, only_here: bool) -> bool {
    let lower = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    SAFE_VARIABLES.binary_search(&name).is_ok() || name.starts_with("LC_") || (only_here && lower && !name.ends_with("_proxy"))
}

fn is_output(redirect: &Redirect) -> bool {
    matches!(redirect.kind, RedirectKind::Write | RedirectKind::Append | RedirectKind::ReadWrite)
}

fn is_nowhere(target: &str) -> bool {
    matches!(target, "/dev/null" | "/dev/stdout" | "/dev/stderr")
}
