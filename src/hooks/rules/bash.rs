//! Rules about shell commands.
use super::{
    Permissions, Rule, RuleContext, RuleVerdict, asked_by, critical, expand, meets_field,
    paths::{self, Place},
    pattern::{Glyph, Meet, Pattern},
    protected,
    rule::What,
    survey::{Survey, glyphs, shown},
    wrappers,
};
use crate::tools::shell::{self, Part, Redirect, RedirectKind, Script, Simple, Unparsable, Word};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Programs whose arguments are files that they read, sorted.
const READERS: &[&str] = &[
    ".",
    "awk",
    "base64",
    "bat",
    "cat",
    "cmp",
    "cp",
    "cut",
    "diff",
    "egrep",
    "fgrep",
    "file",
    "fold",
    "grep",
    "gzip",
    "head",
    "hexdump",
    "less",
    "ln",
    "more",
    "mv",
    "nl",
    "od",
    "paste",
    "rev",
    "rg",
    "scp",
    "sed",
    "sha256sum",
    "sort",
    "source",
    "split",
    "strings",
    "tac",
    "tail",
    "tar",
    "tee",
    "uniq",
    "vi",
    "vim",
    "wc",
    "xxd",
    "zip",
];
/// Programs whose arguments are files that they write or remove, sorted.
const WRITERS: &[&str] =
    &["chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "patch", "rm", "rmdir", "rsync", "sed", "shred", "tee", "touch", "truncate", "unlink"];
/// Of those, the programs that write to their last argument only.
const INTO_THE_LAST: &[&str] = &["cp", "install", "ln", "rsync"];

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

    /// A rule about paths meets the files that redirects and known programs name.
    fn meets_path(&self, rule: &Rule) -> Meet {
        let What::Path(path) = &rule.what else { return Meet::No };
        if self.parsed.is_err() {
            return Meet::Maybe;
        }
        let froms = self.folders();
        let touched = |word: &str| froms.iter().flat_map(|from| expand::files(word, from)).any(|file| path.touches(&Place::of(&file, self.cx.cwd), self.cx));
        let (reads, edits, moves) = (rule.is_about("Read"), rule.is_about("Edit"), rule.is_about("Cd"));
        for redirect in &self.survey.redirects {
            let meant = if is_output(redirect) { edits } else { reads && redirect.kind == RedirectKind::Read };
            if meant && expand::texts(&redirect.target, self.cx).iter().any(|target| touched(target)) {
                return Meet::Yes;
            }
        }
        let named = |run: &super::survey::Run| -> bool {
            let Some(name) = run.words.first().and_then(super::survey::base_name) else { return false };
            let name = name.as_str();
            let files = match name {
                "cd" | "pushd" => return moves && run.words[1..].iter().flat_map(|word| expand::texts(word, self.cx)).any(|word| touched(&word)),
                // A rule that forbids reading forbids writing as well, so its arguments all count.
                _ if reads && (READERS.binary_search(&name).is_ok() || WRITERS.contains(&name)) => &run.words[1..],
                _ if edits && WRITERS.contains(&name) => written(name, &run.words[1..]),
                _ => return false,
            };
            files.iter().flat_map(|word| named_files(word, self.cx)).any(|word| touched(&word))
        };
        match (self.survey.runs.iter().any(named), self.survey.doubts.is_empty()) {
            (true, _) => Meet::Yes,
            (false, false) => Meet::Maybe,
            (false, true) => Meet::No,
        }
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
                    let name = run.words.first().and_then(super::survey::base_name).filter(|name| WRITERS.contains(&name.as_str()))?;
                    let files = written(&name, &run.words[1..]).iter().flat_map(|word| named_files(word, cx));
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

/// Returns the arguments that a program writes to.
fn written<'a>(name: &str, arguments: &'a [Word]) -> &'a [Word] {
    let into_folder = arguments.iter().any(|word| word.literal().is_some_and(|text| text.starts_with("-t") || text.starts_with("--target")));
    if INTO_THE_LAST.contains(&name) && !into_folder { &arguments[arguments.len().saturating_sub(1)..] } else { arguments }
}

/// Returns the files that an argument may name: itself, and what stands after `=` or an option's letter.
fn named_files(word: &Word, cx: &RuleContext<'_>) -> Vec<String> {
    let mut files = Vec::new();
    for text in expand::texts(word, cx) {
        if let Some((_, value)) = text.split_once('=') {
            files.push(value.to_owned());
        }
        match text.strip_prefix('-') {
            Some(option) => files.extend(option.get(1..).filter(|rest| !rest.is_empty()).map(str::to_owned)),
            None => files.push(text),
        }
    }
    files
}
