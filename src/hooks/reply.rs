//! What a hook's process said, by its exit code, stdout and stderr. Pure.
//!
//! Exit 2 blocks. JSON on stdout decides where it is valid, whatever the other exit codes say. Everything else is a
//! failure of the hook, which leaves the question undecided unless its file says `onFailure: block`.
use super::on::{Blocking, On};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Texts from hooks are cut at this many characters.
const MAX_TEXT_CHARS: usize = 10_000;

/// How a hook's process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended<'a> {
    /// Its exit code; `None` where it was killed by a signal.
    pub(super) code: Option<i32>,
    pub(super) stdout: &'a str,
    pub(super) stderr: &'a str,
}

/// How a handler's words are taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    /// `onFailure: block`: a failure counts as exit 2.
    pub(super) fails_closed: bool,
    /// `async: true`: it may add context and messages, and decides nothing.
    pub(super) only_tells: bool,
}

/// What one hook said about the question.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Effect {
    /// Nothing.
    #[default]
    Nothing,
    /// Go ahead without asking.
    Allow,
    /// A person is to be asked.
    Ask(String),
    /// The call waits, durably.
    Park(String),
    /// Not like this; what that means depends on the event.
    Block(String),
    /// The agent ends.
    Stop(String),
    /// Only the user is told.
    User(String),
    /// The hook failed and nothing follows from it.
    Failed(String),
}

/// Everything one hook said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) effect: Effect,
    /// The call's input as the hook wants it.
    pub(super) input: Option<Value>,
    /// The call's output as the hook wants it.
    pub(super) output: Option<Value>,
    /// What the model is to know besides.
    pub(super) context: Vec<String>,
    /// What the user is to know.
    pub(super) message: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spoken {
    r#continue: Option<bool>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    decision: Option<Old>,
    reason: Option<String>,
    r#async: Option<bool>,
    hook_specific_output: Option<Specific>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Old {
    Approve,
    Block,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specific {
    hook_event_name: String,
    permission_decision: Option<Permission>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Map<String, Value>>,
    additional_context: Option<String>,
    updated_tool_output: Option<Value>,
    #[serde(rename = "updatedMCPToolOutput")]
    updated_mcp_tool_output: Option<Value>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    Deny,
    Ask,
    Defer,
}

enum Stdout {
    Json(Box<Spoken>),
    Text,
    Broken(String),
}

impl Reply {
    /// Reads what a process said at `on`.
    pub(super) fn read(on: On, ended: Ended<'_>, manner: Manner) -> Reply {
        let fails_closed = manner.fails_closed && on.may_fail_closed() && !manner.only_tells;
        let spoken = stdout(on, ended.stdout);
        if on.blocking() == Blocking::Creation {
            return creation(ended);
        }
        let blocks = ended.code == Some(2) || (fails_closed && (ended.code != Some(0) || matches!(spoken, Stdout::Broken(_))));
        let failure = match (&spoken, ended.code) {
            (Stdout::Broken(why), Some(0)) => why.clone(),
            (_, code) => exit_text(code, ended.stderr),
        };
        let mut reply = match spoken {
            Stdout::Json(spoken) => fields(on, *spoken),
            Stdout::Text if ended.code == Some(0) => plain(on, ended.stdout),
            Stdout::Broken(_) | Stdout::Text => Reply { effect: Effect::Failed(failure.clone()), ..Reply::default() },
        };
        if blocks && !matches!(reply.effect, Effect::Stop(_)) {
            let stderr = ended.stderr.trim();
            let reason = if ended.code == Some(2) { clip(stderr) } else { failure };
            reply.effect = blocked(on, reply.effect, reason);
        }
        if manner.only_tells && !matches!(reply.effect, Effect::Failed(_)) {
            reply = Reply { context: reply.context, message: reply.message, ..Reply::default() };
        }
        reply
    }

    /// Makes the reply of a hook that could not be heard at all: not started, timed out, of a kind not known here.
    pub(super) fn failed(on: On, why: &str, manner: Manner) -> Reply {
        let why = clip(why);
        let fails_closed = manner.fails_closed && on.may_fail_closed() && !manner.only_tells;
        let effect = if fails_closed { blocked(on, Effect::Nothing, why) } else { Effect::Failed(why) };
        Reply { effect, ..Reply::default() }
    }
}

/// Exit code 2, or what counts as it: a reason given in JSON is better than stderr.
fn blocked(on: On, said: Effect, reason: String) -> Effect {
    match (on.blocking(), said) {
        (Blocking::Ignored, Effect::Failed(_)) => Effect::Nothing,
        (Blocking::Ignored, said) => said,
        (Blocking::User, _) => Effect::User(reason),
        (_, Effect::Block(given)) if !given.is_empty() => Effect::Block(given),
        _ => Effect::Block(reason),
    }
}

fn stdout(on: On, text: &str) -> Stdout {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
    if !text.starts_with('{') {
        return Stdout::Text;
    }
    // An asynchronous hook says so on its first line, and may say more after it.
    let first = text.lines().next().unwrap_or_default();
    let parsed = serde_json::from_str::<Spoken>(text).or_else(|error| match serde_json::from_str::<Spoken>(first) {
        Ok(spoken) if spoken.r#async == Some(true) => Ok(spoken),
        _ => Err(error),
    });
    match parsed {
        Ok(spoken) => match spoken.hook_specific_output.as_ref().map(|specific| specific.hook_event_name.as_str()) {
            Some(name) if name != on.name() => Stdout::Broken(format!("its `hookEventName` is `{}`, not `{}`", clip(name), on.name())),
            _ => Stdout::Json(Box::new(spoken)),
        },
        Err(error) => Stdout::Broken(format!("its output is not valid hook JSON: {error}")),
    }
}

/// What the fields of a valid object say.
fn fields(on: On, spoken: Spoken) -> Reply {
    let message = spoken.system_message.as_deref().map(clip);
    let specific = spoken.hook_specific_output;
    let context = specific.iter().filter_map(|specific| specific.additional_context.as_deref()).map(clip).collect();
    if spoken.r#async == Some(true) {
        return Reply { context, message, ..Reply::default() };
    }
    let reason = spoken.reason.as_deref().map(clip).unwrap_or_default();
    let old = match (spoken.decision, on.blocking()) {
        (Some(Old::Block), Blocking::Ignored | Blocking::User) => Effect::Nothing,
        (Some(Old::Block), _) => Effect::Block(reason),
        (Some(Old::Approve), Blocking::Call) => Effect::Allow,
        (Some(Old::Approve) | None, _) => Effect::Nothing,
    };
    let mut reply = Reply { effect: old, context, message, ..Reply::default() };
    if let Some(specific) = specific {
        let why = specific.permission_decision_reason.as_deref().map(clip).unwrap_or_default();
        match specific.permission_decision.filter(|_| on.blocking() == Blocking::Call) {
            Some(Permission::Allow) => reply.effect = Effect::Allow,
            Some(Permission::Deny) => reply.effect = Effect::Block(why),
            Some(Permission::Ask) => reply.effect = Effect::Ask(why),
            Some(Permission::Defer) => reply.effect = Effect::Park(why),
            None => {}
        }
        if on == On::PreToolUse {
            reply.input = specific.updated_input.map(Value::Object);
        }
        if on == On::PostToolUse {
            reply.output = specific.updated_tool_output.or(specific.updated_mcp_tool_output);
        }
    }
    if spoken.r#continue == Some(false) && on != On::TaskCreated {
        reply.effect = Effect::Stop(spoken.stop_reason.as_deref().map(clip).unwrap_or_default());
    }
    reply
}

fn plain(on: On, text: &str) -> Reply {
    let context = if on.takes_plain_text() && !text.trim().is_empty() { vec![clip(text.trim())] } else { Vec::new() };
    Reply { context, ..Reply::default() }
}

/// A worktree is made by a command that prints where it is; whatever else happens is a failure.
fn creation(ended: Ended<'_>) -> Reply {
    let path = ended.stdout.lines().rev().map(str::trim).find(|line| !line.is_empty());
    match (ended.code, path) {
        (Some(0), Some(path)) => Reply { output: Some(Value::String(path.to_owned())), ..Reply::default() },
        (Some(0), None) => Reply { effect: Effect::Block("it printed no path".to_owned()), ..Reply::default() },
        (code, _) => Reply { effect: Effect::Block(exit_text(code, ended.stderr)), ..Reply::default() },
    }
}

fn exit_text(code: Option<i32>, stderr: &str) -> String {
    let ending = code.map_or_else(|| "it was killed by a signal".to_owned(), |code| format!("exit code {code}"));
    let stderr = stderr.trim();
    if stderr.is_empty() { ending } else { format!("{ending}: {}", clip(stderr)) }
}

/// Cuts a text that is too long, and says so.
pub(super) fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n[cut: {} characters in all, the first {MAX_TEXT_CHARS} shown]", &text[..at], text.chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Manner = Manner { fails_closed: true, only_tells: false };
    const OPEN: Manner = Manner { fails_closed: false, only_tells: false };

    fn read(on: On, code: i32, stdout: &str, manner: Manner) -> Reply {
        Reply::read(on, Ended { code: Some(code), stdout, stderr: "E" }, manner)
    }

    /// Writes a reply in the words of the cases.
    fn words(on: On, reply: &Reply) -> String {
        if let [context] = reply.context.as_slice() {
            return format!("context:{context}");
        }
        match (&reply.effect, on.blocking()) {
            (Effect::Nothing, _) => "none".to_owned(),
            (Effect::Allow, _) => "allow".to_owned(),
            (Effect::Ask(reason), _) => format!("ask:{reason}"),
            (Effect::Park(reason), _) => format!("defer:{reason}"),
            (Effect::Stop(reason), _) => format!("stop:{reason}"),
            (Effect::User(text), _) => format!("user_only:{text}"),
            (Effect::Failed(_), _) => "nonblocking_error".to_owned(),
            (Effect::Block(_), Blocking::Creation) => "fail".to_owned(),
            (Effect::Block(_), Blocking::Compaction) => "block_compaction".to_owned(),
            (Effect::Block(reason), Blocking::Feedback) => format!("tool_feedback:{reason}"),
            (Effect::Block(reason), Blocking::Prompt) => format!("block_prompt:{reason}"),
            (Effect::Block(reason), Blocking::GoOn) => format!("continue:{reason}"),
            (Effect::Block(reason), _) => format!("block:{reason}"),
        }
    }

    #[test]
    fn the_known_cases_hold() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/cases/hook_result.json")).unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let on = On::named(case["event"].as_str().unwrap()).unwrap();
            let code = i32::try_from(case["exit"].as_i64().unwrap()).ok();
            let ended = Ended { code, stdout: case["stdout"].as_str().unwrap(), stderr: case["stderr"].as_str().unwrap() };
            assert_eq!(words(on, &Reply::read(on, ended, OPEN)), case["expect"].as_str().unwrap(), "{case}");
        }
    }

    #[test]
    fn a_gate_that_fails_closed_blocks_on_every_failure() {
        let allow = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}"#;
        for (code, stdout) in [(1, ""), (127, ""), (1, allow), (0, "{bad"), (0, r#"{"continue":"no"}"#), (137, "text")] {
            let reply = read(On::PreToolUse, code, stdout, CLOSED);
            assert!(matches!(&reply.effect, Effect::Block(reason) if !reason.is_empty()), "{code} {stdout}: {reply:?}");
        }
        assert_eq!(read(On::PreToolUse, 0, "fine", CLOSED).effect, Effect::Nothing);
        assert_eq!(read(On::PreToolUse, 0, allow, CLOSED).effect, Effect::Allow);
        let killed = Reply::read(On::PreToolUse, Ended { code: None, stdout: "", stderr: "" }, CLOSED);
        assert_eq!(killed.effect, Effect::Block("it was killed by a signal".to_owned()));
        assert!(matches!(Reply::failed(On::PreToolUse, "it timed out", CLOSED).effect, Effect::Block(_)));
        assert!(matches!(Reply::failed(On::PreToolUse, "it timed out", OPEN).effect, Effect::Failed(_)));
    }

    #[test]
    fn a_hook_that_fails_does_not_keep_an_agent_going() {
        assert!(matches!(read(On::Stop, 1, "", CLOSED).effect, Effect::Failed(_)));
        assert!(matches!(Reply::failed(On::SubagentStop, "it timed out", CLOSED).effect, Effect::Failed(_)));
    }

    #[test]
    fn another_events_name_or_raw_control_characters_are_failures() {
        let other = r#"{"hookSpecificOutput":{"hookEventName":"PostToolUse","permissionDecision":"allow"}}"#;
        assert!(matches!(read(On::PreToolUse, 0, other, OPEN).effect, Effect::Failed(_)));
        let nameless = r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#;
        assert!(matches!(read(On::PreToolUse, 0, nameless, OPEN).effect, Effect::Failed(_)));
        assert!(matches!(read(On::PreToolUse, 0, "{\"reason\":\"\u{1b}[31mred\"}", OPEN).effect, Effect::Failed(_)));
        let unknown = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"maybe"}}"#;
        assert!(matches!(read(On::PreToolUse, 0, unknown, OPEN).effect, Effect::Failed(_)));
        assert_eq!(read(On::PreToolUse, 2, unknown, OPEN).effect, Effect::Block("E".to_owned()));
    }

    #[test]
    fn exit_2_still_reads_the_other_fields_and_stop_beats_it() {
        let rewrite = r#"{"systemMessage":"m","hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"a":1},"additionalContext":"c"}}"#;
        let reply = read(On::PreToolUse, 2, rewrite, OPEN);
        assert_eq!(reply.effect, Effect::Block("E".to_owned()));
        assert_eq!((reply.context.len(), reply.message.as_deref()), (1, Some("m")));
        assert_eq!(read(On::PreToolUse, 2, r#"{"continue":false,"stopReason":"S"}"#, OPEN).effect, Effect::Stop("S".to_owned()));
    }

    #[test]
    fn an_asynchronous_hook_only_tells() {
        let block = r#"{"decision":"block","reason":"r","systemMessage":"m"}"#;
        let told = read(On::PreToolUse, 0, block, Manner { only_tells: true, fails_closed: true });
        assert_eq!(told, Reply { message: Some("m".to_owned()), ..Reply::default() });
        assert_eq!(read(On::PreToolUse, 2, "", Manner { only_tells: true, fails_closed: true }).effect, Effect::Nothing);
        assert_eq!(read(On::PostToolUse, 0, "{\"async\":true}\nand more", OPEN), Reply::default());
    }

    #[test]
    fn long_texts_are_cut_by_characters_and_say_so() {
        let long = "é".repeat(MAX_TEXT_CHARS + 1);
        let cut = clip(&long);
        assert!(cut.starts_with('é') && cut.contains("[cut: 10001 characters in all"));
        assert_eq!(clip(&"é".repeat(MAX_TEXT_CHARS)).chars().count(), MAX_TEXT_CHARS);
    }
}
