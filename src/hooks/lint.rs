//! What is worth saying about a hook before it runs: mistakes that were seen in the wild, each of which leaves a gate
//! open without a sound.
use super::{names, on::On};
use serde_json::{Map, Value};
use std::{fs, io::Read as _, path::Path};

/// Every key that a handler may have, of any type, sorted.
const KEYS: &[&str] = &[
    "allowedEnvVars",
    "args",
    "async",
    "asyncRewake",
    "command",
    "continueOnBlock",
    "headers",
    "if",
    "input",
    "model",
    "onBlock",
    "onFailure",
    "once",
    "prompt",
    "server",
    "shell",
    "statusMessage",
    "timeout",
    "tool",
    "type",
    "url",
];
/// Above this many seconds a timeout is taken for milliseconds.
const LONG_TIMEOUT_S: f64 = 1000.0;
/// As much of a script is looked at.
const MAX_SCRIPT_BYTES: u64 = 256 * 1024;

/// Looks at a matcher that parses.
pub(super) fn matcher(on: On, text: &str) -> Vec<String> {
    if !on.is_about_a_call() || text.is_empty() || text == "*" {
        return Vec::new();
    }
    if text.split_once('(').is_some_and(|(tool, rest)| names::KNOWN.contains(&tool) && rest.ends_with(')')) {
        return vec![format!("matcher `{text}` is a permission rule and matches no tool; put the tool's name here and the rule under `if`")];
    }
    let is_set = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_- ,|".contains(&b));
    if !is_set {
        return Vec::new();
    }
    let dead = |name: &&str| !(names::KNOWN.contains(name) || (name.starts_with("mcp__") && name.matches("__").count() >= 2));
    let set = text.split(['|', ',']).map(str::trim).filter(|name| !name.is_empty());
    set.filter(dead)
        .map(|name| {
            let hint = match (name.starts_with("mcp__"), crate::source::nearest(name, names::KNOWN.iter().copied())) {
                (true, _) => format!(" (a whole server is `{name}__.*`)"),
                (false, Some(near)) => format!(" (is `{near}` meant?)"),
                (false, None) => String::new(),
            };
            format!("matcher name `{name}` is no tool that is known here{hint}")
        })
        .collect()
}

/// Looks at a handler.
pub(super) fn handler(on: On, fields: &Map<String, Value>, dir: &Path, fails_closed: bool) -> Vec<String> {
    let mut found = Vec::new();
    for key in fields.keys().filter(|key| KEYS.binary_search(&key.as_str()).is_err()) {
        found.push(format!("unknown key `{key}`"));
    }
    if let Some(seconds) = fields.get("timeout").and_then(Value::as_f64).filter(|seconds| *seconds >= LONG_TIMEOUT_S) {
        found.push(format!("`timeout` is in seconds: {seconds} is more than {} minutes", (seconds / 60.0).floor()));
    }
    if fields.contains_key("if") && !on.is_about_a_call() {
        found.push(format!("`if` means nothing on {}: the hook never runs", on.name()));
    }
    if ["async", "asyncRewake"].iter().any(|key| fields.get(*key).and_then(Value::as_bool) == Some(true)) {
        found.push("an asynchronous hook is waited for here; it decides nothing".to_owned());
    }
    if let Some(command) = fields.get("command").and_then(Value::as_str) {
        command_line(on, command, dir, fails_closed, &mut found);
    }
    found
}

fn command_line(on: On, command: &str, dir: &Path, fails_closed: bool, found: &mut Vec<String>) {
    for dead in ["CLAUDE_TOOL_INPUT", "TOOL_INPUT", "CLAUDE_TOOL_NAME", "CLAUDE_FILE_PATHS"] {
        let used = [format!("${dead}"), format!("${{{dead}}}")].iter().any(|form| command.contains(form.as_str()));
        if used {
            found.push(format!("`${dead}` is set here, but not by other clients; the JSON on stdin is everywhere"));
        }
    }
    let words = shell_words::split(command).unwrap_or_default();
    let script = words.iter().find(|word| is_script(word));
    let text = script.and_then(|word| {
        let word = word.replace("${CLAUDE_PLUGIN_ROOT}", &dir.to_string_lossy()).replace("$CLAUDE_PLUGIN_ROOT", &dir.to_string_lossy());
        if word.contains('$') {
            return None;
        }
        let path = dir.join(&word);
        if !word.starts_with(['/', '~']) {
            found.push(format!("`{word}` is relative to wherever the agent works; write `${{CLAUDE_PLUGIN_ROOT}}/` or `${{CLAUDE_PROJECT_DIR}}/` before it"));
        }
        read_script(&path).map_err(|error| found.push(format!("script {} cannot be read: {error}", path.display()))).ok().inspect(|_| {
            if words.first() == script && !is_executable(&path) {
                found.push(format!("script {} is not executable", path.display()));
            }
        })
    });
    let code = text.as_deref().unwrap_or(command);
    let denies = ["exit 2", "exit(2)", "permissionDecision", "\"decision\"", "'decision'"].iter().any(|way| code.contains(way));
    let exits_1 = ["exit 1", "exit(1)"].iter().any(|way| code.contains(way));
    if on == On::PreToolUse && exits_1 && !denies && !fails_closed {
        found.push("it exits with 1 where it objects, which lets the call through: exit with 2, or say `\"onFailure\": \"block\"`".to_owned());
    }
}

fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["sh", "bash", "py", "js", "mjs", "ts", "rb", "pl"].contains(&extension) && !word.starts_with('-') && !word.contains([' ', '*', '(', ';'])
}

fn read_script(path: &Path) -> std::io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_SCRIPT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(on: On, fields: &Value, dir: &Path) -> String {
        handler(on, fields.as_object().unwrap(), dir, false).join("\n")
    }

    #[test]
    fn matchers_that_never_fire_are_named() {
        assert!(matcher(On::PreToolUse, "Bash(git commit:*)")[0].contains("permission rule"));
        assert!(matcher(On::PreToolUse, "Write|Edti")[0].contains("is `Edit` meant?"));
        assert!(matcher(On::PreToolUse, "mcp__memory")[0].contains("`mcp__memory__.*`"));
        assert!(matcher(On::PreToolUse, "Task|MultiEdit|mcp__a__b").is_empty());
        assert!(matcher(On::PreToolUse, "^Notebook").is_empty());
        assert!(KEYS.is_sorted());
    }

    #[test]
    fn slips_in_handlers_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("gate.sh"), "#!/bin/sh\ngrep -q x && exit 1\n").unwrap();
        let text = found(On::PreToolUse, &json!({"type": "command", "command": "gate.sh", "timeout": 5000, "environment": {}}), dir.path());
        for expected in ["`timeout` is in seconds", "unknown key `environment`", "is relative to", "is not executable", "exits with 1"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(found(On::Stop, &json!({"type": "command", "command": "true", "if": "Bash(rm *)"}), dir.path()).contains("never runs"));
        assert!(found(On::PreToolUse, &json!({"command": "\"${CLAUDE_PLUGIN_ROOT}/gone.py\""}), dir.path()).contains("cannot be read"));
        assert!(found(On::PreToolUse, &json!({"command": "echo \"$TOOL_INPUT\" | jq ."}), dir.path()).contains("stdin"));
        assert_eq!(found(On::PreToolUse, &json!({"type": "command", "command": "jq -e . >/dev/null || exit 2", "timeout": 5}), dir.path()), "");
    }
}
