//! Hook files: JSON in Claude Code's shape, read into handlers in the order in which they stand.
//!
//! An imported file never fails to load as a whole because of one entry: what is not understood is reported. A handler of a gate
//! that cannot work (`strict`, or `onFailure: block`) still stands in the list and blocks, and a file of our own with an entry
//! that would never run is taken for broken, since a gate that is silently absent is worse than one that is loudly shut.
use super::{condition::Condition, lint, matcher::Matcher, on::On, reply::Manner};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// What a handler without `timeout` gets.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);
/// More handlers than this in one file are not taken.
const MAX_HANDLERS: usize = 500;

/// A hook file as it was found.
#[derive(Debug, Clone)]
pub struct HookFile {
    /// The name by which workflows and agents ask for it.
    pub name: String,
    /// Where it stands, for people.
    pub path: String,
    /// Its whole text.
    pub text: String,
    /// The folder that holds its scripts.
    pub dir: PathBuf,
    /// Whether it may run.
    pub trusted: bool,
    /// Whether failures of its handlers block unless they say otherwise, and whether it fires only where it is named
    /// unless it says `always`. True for hooks of our own libraries, false for imported settings of other clients.
    pub strict: bool,
}

/// One handler: what to run, when, and how its words count.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    pub(super) hook: String,
    pub(super) on: On,
    pub(super) matcher: Matcher,
    pub(super) condition: Option<Condition>,
    pub(super) action: Action,
    pub(super) timeout: Duration,
    pub(super) manner: Manner,
    pub(super) rolls_back: bool,
    pub(super) always: bool,
    pub(super) dir: PathBuf,
}

/// What a handler does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A shell command.
    Shell(String),
    /// A program and its arguments, without a shell.
    Exec { program: String, args: Vec<String> },
    /// A POST of the question; the answer's body is what a command prints. Values of headers may hold `$NAME` of `allowed`
    /// until [`Action::lend`] puts them in.
    Http { url: String, headers: Vec<(String, String)>, allowed: Vec<String> },
    /// Nothing that this program can do; the text says what.
    Unsupported(String),
}

/// A file that was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) handlers: Vec<Handler>,
    /// The JSON of each handler with its event and matcher, to find repeated ones.
    pub(super) texts: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// Whether the file is no hook file at all, or one of our own that does not hold all it was written to hold.
    pub(super) broken: bool,
    /// Whether it says that it holds for every agent.
    pub(super) always: bool,
}

impl Read {
    /// Reads one file; warnings name the file and the place in it.
    pub(super) fn of(file: &HookFile) -> Read {
        let mut read = Read::default();
        let root = match serde_json::from_str::<Value>(file.text.trim_start_matches('\u{feff}')) {
            Ok(Value::Object(root)) => root,
            Ok(_) => return read.broken(file, "it is not a JSON object"),
            Err(error) => return read.broken(file, &error.to_string()),
        };
        if file.strict {
            for key in root.keys().filter(|key| !["hooks", "always", "description", "onBlock", "$schema"].contains(&key.as_str())) {
                read.warn(file, "", &format!("unknown key `{key}`"));
            }
        }
        if root.get("disableAllHooks").and_then(Value::as_bool) == Some(true) && !file.strict {
            read.warn(file, "", "`disableAllHooks` is set: none of its hooks are run");
            return read;
        }
        let Some(events) = root.get("hooks") else {
            if file.strict {
                read.flaw(file, "", "it has no `hooks`");
            }
            return read;
        };
        let Some(events) = events.as_object() else { return read.broken(file, "`hooks` is not an object") };
        let shared = Shared {
            always: root.get("always").and_then(Value::as_bool).unwrap_or(!file.strict),
            rolls_back: root.get("onBlock").is_some_and(|value| read.rollback(file, "", value)),
        };
        read.always = shared.always;
        for (name, groups) in events {
            read.event(file, &shared, name, groups);
        }
        read
    }

    fn event(&mut self, file: &HookFile, shared: &Shared, name: &str, groups: &Value) {
        let Some(on) = On::named(name) else {
            return match crate::source::nearest(name, On::ALL.iter().map(|on| on.name())).filter(|_| name.starts_with(char::is_alphabetic)) {
                Some(near) => self.flaw(file, name, &format!("unknown event (is `{near}` meant?); its hooks never run")),
                // It may be a comment, or of a later version of somebody else.
                None => self.warn(file, name, "unknown event; its hooks never run"),
            };
        };
        if !on.is_asked() {
            return self.warn(file, name, "this event does not happen in this version; its hooks never run");
        }
        let Some(groups) = groups.as_array() else { return self.flaw(file, name, "it is not a list; its hooks never run") };
        for (at, group) in groups.iter().enumerate() {
            let place = format!("{name}[{at}]");
            let Some(group) = group.as_object() else {
                self.flaw(file, &place, "it is not an object");
                continue;
            };
            for key in group.keys().filter(|key| !["matcher", "hooks", "description"].contains(&key.as_str())) {
                self.warn(file, &place, &format!("unknown key `{key}`"));
            }
            let matcher = self.matcher(file, on, &place, group);
            let Some(handlers) = group.get("hooks").and_then(Value::as_array) else {
                self.flaw(file, &place, "it has no list `hooks`");
                continue;
            };
            for (at, handler) in handlers.iter().enumerate() {
                let place = format!("{place}.hooks[{at}]");
                if self.handlers.len() >= MAX_HANDLERS {
                    return self.flaw(file, &place, "too many handlers; this one and those after it never run");
                }
                let Some(fields) = handler.as_object() else {
                    self.flaw(file, &place, "it is not an object");
                    continue;
                };
                let made = self.handler(&Site { file, shared, on, place: &place }, fields, matcher.clone());
                self.texts.push(format!("{name} {} {handler}", group.get("matcher").unwrap_or(&Value::Null)));
                self.handlers.push(made);
            }
        }
    }

    /// A matcher that cannot be read holds for everything in a strict file, and for nothing elsewhere.
    fn matcher(&mut self, file: &HookFile, on: On, place: &str, group: &Map<String, Value>) -> Matcher {
        let text = match group.get("matcher") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.as_str()),
            Some(_) => {
                self.warn(file, place, "`matcher` is not text; it is taken as absent");
                None
            }
        };
        match Matcher::parse(on, text) {
            Ok(matcher) => {
                for warning in text.into_iter().flat_map(|text| lint::matcher(on, text)) {
                    self.warn(file, place, &warning);
                }
                matcher
            }
            Err(error) => {
                let effect = if file.strict { "its hooks run for everything" } else { "its hooks never run" };
                self.warn(file, place, &format!("cannot {error}; {effect}"));
                if file.strict { Matcher::All } else { Matcher::Names(Vec::new()) }
            }
        }
    }

    fn handler(&mut self, site: &Site<'_>, fields: &Map<String, Value>, matcher: Matcher) -> Handler {
        let Site { file, shared, on, place } = *site;
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or(false);
        let action = action(fields);
        if let Action::Unsupported(what) = &action {
            self.warn(file, place, &format!("{what} is not in this version"));
        }
        let mut unread = Vec::new();
        let condition = text("if").map(|rule| Condition::parse(rule, &file.dir, &mut unread));
        for warning in unread {
            self.warn(file, place, &format!("`if`: {warning}"));
        }
        let fails_closed = match text("onFailure") {
            Some("block") => true,
            Some("continue") => false,
            None => file.strict,
            Some(other) => {
                self.warn(file, place, &format!("`onFailure` is `{other}`, not `block` or `continue`; `block` is taken"));
                true
            }
        };
        let rolls_back = fields.get("onBlock").map_or(shared.rolls_back, |value| self.rollback(file, place, value));
        let timeout = self.timeout(file, place, fields);
        for warning in lint::handler(on, fields, &file.dir, fails_closed) {
            self.warn(file, place, &warning);
        }
        Handler {
            hook: file.name.clone(),
            on,
            matcher,
            condition,
            action,
            timeout,
            manner: Manner { fails_closed, only_tells: flag("async") || flag("asyncRewake") },
            rolls_back,
            always: shared.always,
            dir: file.dir.clone(),
        }
    }

    fn timeout(&mut self, file: &HookFile, place: &str, fields: &Map<String, Value>) -> Duration {
        match fields.get("timeout").map(Value::as_f64) {
            None => DEFAULT_TIMEOUT,
            Some(Some(seconds)) if seconds > 0.0 && seconds <= 1e9 => Duration::from_secs_f64(seconds),
            Some(_) => {
                self.warn(file, place, "`timeout` is not a number of seconds above 0; 600 is taken");
                DEFAULT_TIMEOUT
            }
        }
    }

    fn rollback(&mut self, file: &HookFile, place: &str, value: &Value) -> bool {
        match value.as_str() {
            Some("rollback") => true,
            Some("keep") => false,
            _ => {
                self.warn(file, place, "`onBlock` is not `rollback` or `keep`");
                false
            }
        }
    }

    fn warn(&mut self, file: &HookFile, place: &str, text: &str) {
        let place = if place.is_empty() { String::new() } else { format!(" {place}:") };
        self.warnings.push(format!("{}:{place} {text}", file.path));
    }

    /// Notes handlers that would never run. A gate that is partly absent is shut: a file of our own is no hook file then.
    fn flaw(&mut self, file: &HookFile, place: &str, text: &str) {
        self.broken |= file.strict;
        self.warn(file, place, text);
    }

    fn broken(mut self, file: &HookFile, why: &str) -> Read {
        self.broken = true;
        self.warn(file, "", &format!("it cannot be read as a hook file: {why}"));
        self
    }
}

/// What a file says for all its handlers.
struct Shared {
    always: bool,
    rolls_back: bool,
}

/// Where a handler stands.
#[derive(Clone, Copy)]
struct Site<'a> {
    file: &'a HookFile,
    shared: &'a Shared,
    on: On,
    place: &'a str,
}

fn action(fields: &Map<String, Value>) -> Action {
    let unsupported = |what: &str| Action::Unsupported(what.to_owned());
    match fields.get("type").and_then(Value::as_str) {
        Some("command") => {}
        Some("http") => return http(fields),
        Some(other) => return Action::Unsupported(format!("a handler of type `{other}`")),
        None => return unsupported("a handler without `type`"),
    }
    let Some(command) = fields.get("command").and_then(Value::as_str).filter(|command| !command.trim().is_empty()) else {
        return unsupported("a handler without `command`");
    };
    match (fields.get("args"), fields.get("shell").and_then(Value::as_str)) {
        (None, None | Some("bash")) => Action::Shell(command.to_owned()),
        (None, Some(shell)) => Action::Unsupported(format!("the shell `{shell}`")),
        (Some(Value::Array(args)), _) => match args.iter().map(|arg| arg.as_str().map(str::to_owned)).collect() {
            Some(args) => Action::Exec { program: command.to_owned(), args },
            None => unsupported("an argument that is not text"),
        },
        (Some(_), _) => unsupported("an `args` that is not a list"),
    }
}

fn http(fields: &Map<String, Value>) -> Action {
    let unsupported = |what: &str| Action::Unsupported(what.to_owned());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let Some(url) = fields.get("url").and_then(text).filter(|url| url.starts_with("http://") || url.starts_with("https://")) else {
        return unsupported("a handler without an `url` of http or https");
    };
    let headers = match fields.get("headers") {
        None => Some(Vec::new()),
        Some(Value::Object(headers)) => headers.iter().map(|(name, value)| Some((name.to_lowercase(), text(value)?))).collect(),
        Some(_) => None,
    };
    let allowed = match fields.get("allowedEnvVars") {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(text).collect(),
        Some(_) => None,
    };
    match (headers, allowed) {
        (Some(headers), Some(allowed)) => Action::Http { url, headers, allowed },
        _ => unsupported("a handler whose `headers` or `allowedEnvVars` are not text"),
    }
}

impl Action {
    /// Puts the variables that its file allows into the headers of a request; all others are empty there.
    pub(super) fn lend(&mut self, environment: &BTreeMap<String, String>) {
        let Action::Http { headers, allowed, .. } = self else { return };
        for (_, value) in headers {
            *value = expanded(value, &|name| environment.get(name).filter(|_| allowed.iter().any(|allowed| allowed == name)).cloned().unwrap_or_default());
        }
    }
}

/// Puts values in place of `$NAME` and `${NAME}`.
fn expanded(text: &str, value: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (body, braced) = after.strip_prefix('{').map_or((after, false), |body| (body, true));
        let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
        let (name, tail) = body.split_at(end);
        let tail = if braced { tail.strip_prefix('}') } else { Some(tail) };
        if let Some(tail) = tail.filter(|_| !name.is_empty()) {
            out.push_str(&value(name));
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn headers_hold_only_the_variables_that_are_allowed() {
        let fields =
            json!({"type": "http", "url": "http://127.0.0.1:1/", "headers": {"Authorization": "Bearer ${A}-$B $", "X": "${A"}, "allowedEnvVars": ["A"]});
        let mut action = action(fields.as_object().unwrap());
        action.lend(&[("A", "one"), ("B", "two")].map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let headers = vec![("authorization".to_owned(), "Bearer one- $".to_owned()), ("x".to_owned(), "${A".to_owned())];
        assert_eq!(action, Action::Http { url: "http://127.0.0.1:1/".to_owned(), headers, allowed: vec!["A".to_owned()] });
        let bad = json!({"type": "http", "url": "file:///etc/passwd"});
        assert!(matches!(super::action(bad.as_object().unwrap()), Action::Unsupported(_)));
    }
}
