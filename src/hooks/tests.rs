//! Hooks through the front door: files in, real processes, decisions out.
use super::*;
use crate::{
    clock::Clock,
    event::HookVerdict,
    sandbox::{Options, Sandbox},
};
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use tokio_util::sync::CancellationToken;

/// Everything that asking needs, in a folder of its own.
struct Stage {
    dir: tempfile::TempDir,
    sandbox: Sandbox,
    clock: Clock,
    cancel: CancellationToken,
    env: BTreeMap<String, String>,
    hooks: Hooks,
    warnings: Vec<String>,
}

impl Stage {
    fn new(files: &[(&str, bool, Value)]) -> Stage {
        let dir = tempfile::Builder::new().prefix("a b").tempdir().unwrap();
        let files: Vec<HookFile> = files.iter().map(|(name, strict, json)| file(name, *strict, &json.to_string(), dir.path())).collect();
        Stage::of(dir, &files)
    }

    fn of(dir: tempfile::TempDir, files: &[HookFile]) -> Stage {
        let (hooks, warnings) = Hooks::load(files);
        let env =
            BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()), ("OTEL_EXPORTER_OTLP_HEADERS".to_owned(), "secret".to_owned())]);
        Stage { dir, sandbox: Sandbox::new(Options::default()).unwrap(), clock: Clock::system(), cancel: CancellationToken::new(), env, hooks, warnings }
    }

    fn runner(&self) -> HookRunner<'_> {
        let max_timeout = Duration::from_mins(1);
        HookRunner {
            sandbox: &self.sandbox,
            clock: &self.clock,
            cancel: &self.cancel,
            env: &self.env,
            traceparent: Some("00-a-b-01"),
            max_timeout,
            noted: None,
        }
    }

    fn session(&self) -> Session<'_> {
        Session {
            session_id: "s1",
            transcript_path: Path::new("/t.jsonl"),
            cwd: self.dir.path(),
            root: self.dir.path(),
            project_dir: Path::new("/main checkout"),
            agent_id: None,
            agent_type: Some("coder"),
            permission_mode: "acceptEdits",
        }
    }

    fn before(&self, names: &[&str], tool: &str, input: &Value) -> Decision {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let ask = Ask { session: self.session(), tool_name: tool, tool_input: input, tool_use_id: "c1" };
        block_on(self.hooks.before(&names, &ask, &self.runner()))
    }

    fn after(&self, tool: &str, answered: &Answered<'_>) -> Decision {
        let input = json!({"file_path": "/a"});
        let ask = Ask { session: self.session(), tool_name: tool, tool_input: &input, tool_use_id: "c1" };
        block_on(self.hooks.after(&[], &ask, answered, &self.runner()))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn file(name: &str, strict: bool, text: &str, dir: &Path) -> HookFile {
    HookFile { name: name.to_owned(), path: format!("hooks/{name}.json"), text: text.to_owned(), dir: dir.to_owned(), trusted: true, strict }
}

fn on(event: &str, matcher: &str, handlers: &Value) -> Value {
    json!({"always": true, "hooks": {event: [{"matcher": matcher, "hooks": handlers}]}})
}

fn shell(command: &str) -> Value {
    json!([{"type": "command", "command": command}])
}

fn denial(decision: &Decision) -> &str {
    if let Verdict::Deny { reason } = &decision.verdict { reason } else { panic!("not denied: {decision:?}") }
}

#[test]
fn a_gate_denies_with_its_reason_and_leaves_other_tools_alone() {
    let stage = Stage::new(&[("gate", true, on("PreToolUse", "Bash", &shell("echo 'not that' >&2; exit 2")))]);
    let decision = stage.before(&[], "Bash", &json!({"command": "rm x"}));
    assert_eq!(denial(&decision), "not that");
    assert_eq!((decision.ran.len(), decision.ran[0].verdict, decision.ran[0].hook.as_str()), (1, HookVerdict::Deny, "gate"));
    assert_eq!(stage.before(&[], "Edit", &json!({"file_path": "a"})), Decision::default());
}

#[test]
fn every_hook_reads_the_whole_question_on_its_own_stdin() {
    let command = "cat > \"$CLAUDE_PLUGIN_ROOT\"/seen-$N";
    let handlers = json!([1, 2, 3].map(|n| json!({"type": "command", "command": command.replace("$N", &n.to_string())})));
    let stage = Stage::new(&[("three", true, on("PreToolUse", "", &handlers))]);
    let input = json!({"command": format!("echo '{}'", "x'\"\u{1b}\n".repeat(50_000))});
    assert_eq!(stage.before(&[], "Bash", &input).verdict, Verdict::Undecided);
    for n in 1..=3 {
        let seen: Value = serde_json::from_slice(&std::fs::read(stage.dir.path().join(format!("seen-{n}"))).unwrap()).unwrap();
        assert_eq!(seen["tool_input"], input);
        for (key, expected) in [
            ("session_id", "s1"),
            ("hook_event_name", "PreToolUse"),
            ("tool_name", "Bash"),
            ("tool_use_id", "c1"),
            ("agent_type", "coder"),
            ("permission_mode", "acceptEdits"),
        ] {
            assert_eq!(seen[key], expected, "{key}");
        }
        assert_eq!(seen["cwd"], stage.dir.path().to_str().unwrap());
        assert!(seen.get("agent_id").is_none());
    }
}

#[test]
fn hooks_overlap_and_are_applied_in_the_order_of_registration() {
    // The first hook waits for the second to have run: only hooks that run side by side get through.
    let rewrite = |command: &str| format!(r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","updatedInput":{{"command":"{command}"}}}}}}"#);
    let first = format!("read -r line < \"$CLAUDE_PLUGIN_ROOT\"/meet; echo '{}'", rewrite("first"));
    let second = format!("echo go > \"$CLAUDE_PLUGIN_ROOT\"/meet; echo '{}'", rewrite("second"));
    let third = "cat >/dev/null; echo '{}'";
    let handlers = json!([first, second, third.to_owned()].map(|command| json!({"type": "command", "command": command, "timeout": 20})));
    let stage = Stage::new(&[("pair", true, on("PreToolUse", "Bash", &handlers))]);
    rustix::fs::mknodat(rustix::fs::CWD, stage.dir.path().join("meet"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let decision = stage.before(&[], "Bash", &json!({"command": "original"}));
    assert_eq!(decision.verdict, Verdict::Undecided, "{decision:?}");
    assert_eq!(decision.input, Some(json!({"command": "second"})));
    assert_eq!(decision.notices.len(), 1);
    assert_eq!(decision.ran.len(), 3);
}

#[test]
fn folders_and_the_call_are_in_the_environment_and_secrets_are_not() {
    let command = "printf '%s|' \"$CLAUDE_PROJECT_DIR\" ${CLAUDE_PROJECT_DIR} \"$CLAUDE_TOOL_NAME\" \"$CLAUDE_TOOL_INPUT\" \"$TOOL_INPUT\" \"$CLAUDE_FILE_PATHS\" \"$TRACEPARENT\" \"$OTEL_EXPORTER_OTLP_HEADERS\" >&2; exit 2";
    let stage = Stage::new(&[("env", true, on("PreToolUse", "Edit", &shell(command)))]);
    let decision = stage.before(&[], "Edit", &json!({"file_path": "/a"}));
    assert_eq!(denial(&decision), r#"/main checkout|/main checkout|Edit|{"file_path":"/a"}|{"file_path":"/a"}|/a|00-a-b-01||"#);
}

#[test]
fn a_call_too_large_for_a_variable_does_not_slip_past_the_hook_that_reads_it() {
    let stage = Stage::new(&[("old", true, on("PreToolUse", "Write", &shell("echo \"$CLAUDE_TOOL_INPUT\" | grep -q secret && exit 2; exit 0")))]);
    let large = json!({"file_path": "a", "content": "secret ".repeat(100_000)});
    assert!(denial(&stage.before(&[], "Write", &large)).contains("too large"));
    assert_eq!(stage.before(&[], "Write", &json!({"file_path": "a", "content": "x"})).verdict, Verdict::Undecided);
}

#[test]
fn the_exec_form_has_no_shell() {
    let handlers = json!([{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/gate.sh", "args": ["$(x)", "${CLAUDE_PROJECT_DIR}/y"]}]);
    let stage = Stage::new(&[("exec", true, on("PreToolUse", "Bash", &handlers))]);
    let script = stage.dir.path().join("gate.sh");
    std::fs::write(&script, "#!/bin/sh\nprintf '%s|' \"$@\" >&2\nexit 2\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(denial(&stage.before(&[], "Bash", &json!({"command": "a"}))), "$(x)|/main checkout/y|");
}

#[test]
fn our_gates_fail_closed_and_imported_ones_fail_open() {
    let broken = [
        shell("exit 1"),
        shell("no-such-program-anywhere"),
        shell("echo '{bad'"),
        shell("kill -9 $$"),
        json!([{"type": "command", "command": "no-such-program-anywhere", "args": []}]),
        json!([{"type": "command", "command": "sleep 30", "timeout": 0.1}]),
        json!([{"type": "http", "url": "http://127.0.0.1:1/"}]),
        json!([{"type": "prompt", "prompt": "is it safe?"}]),
        json!([{"command": "true"}]),
        json!([{"type": "command", "command": "true", "shell": "powershell"}]),
    ];
    for handlers in broken {
        let ours = Stage::new(&[("ours", true, on("PreToolUse", "Bash", &handlers))]);
        let decision = ours.before(&[], "Bash", &json!({"command": "a"}));
        assert!(!denial(&decision).is_empty(), "{handlers}");
        let imported = Stage::new(&[("imported", false, on("PreToolUse", "Bash", &handlers))]);
        let decision = imported.before(&[], "Bash", &json!({"command": "a"}));
        assert_eq!((&decision.verdict, decision.ran[0].verdict), (&Verdict::Undecided, HookVerdict::Error), "{handlers}");
        let mut switched = handlers.clone();
        switched[0]["onFailure"] = json!("block");
        let switched = Stage::new(&[("imported", false, on("PreToolUse", "Bash", &switched))]);
        denial(&switched.before(&[], "Bash", &json!({"command": "a"})));
    }
}

#[test]
fn a_hook_that_reads_nothing_or_leaves_children_behind_is_heard_all_the_same() {
    let stage = Stage::new(&[("deaf", true, on("PreToolUse", "Bash", &shell("exec <&-; sleep 60 & echo '{\"decision\":\"approve\"}'")))]);
    let decision = stage.before(&[], "Bash", &json!({"command": "x".repeat(500_000)}));
    assert_eq!(decision.verdict, Verdict::Allow, "{decision:?}");
    assert!(decision.ran[0].took_ms < 30_000);
}

#[test]
fn hooks_hold_where_they_are_named_or_always() {
    let gate = |always: Value| json!({"always": always, "hooks": {"PreToolUse": [{"hooks": shell("exit 2")[0].as_object().map(|handler| json!([handler])).unwrap()}]}});
    let stage = Stage::new(&[("named", true, gate(json!(false))), ("other", true, gate(json!(null)))]);
    let input = json!({"command": "a"});
    assert_eq!(stage.before(&[], "Bash", &input).verdict, Verdict::Undecided);
    assert_eq!(denial(&stage.before(&["named"], "Bash", &input)), "hook `named` objects");
    assert_eq!(stage.before(&["named", "other"], "Bash", &input).ran.len(), 2);
    assert!(denial(&stage.before(&["gone"], "Bash", &input)).contains("there is no hook `gone`"));
    let imported = Stage::new(&[("settings", false, json!({"hooks": {"PreToolUse": [{"hooks": shell("exit 2")}]}}))]);
    denial(&imported.before(&[], "Bash", &input));
}

#[test]
fn what_is_not_trusted_is_listed_and_never_run() {
    let dir = tempfile::tempdir().unwrap();
    let text = on("PreToolUse", "", &shell("touch \"$CLAUDE_PLUGIN_ROOT\"/ran; exit 2")).to_string();
    let mut untrusted = file("strange", true, &text, dir.path());
    untrusted.trusted = false;
    let broken = file("broken", true, "{", dir.path());
    let stage = Stage::of(dir, &[untrusted, broken]);
    let input = json!({"command": "a"});
    assert_eq!(stage.before(&[], "Bash", &input).verdict, Verdict::Undecided);
    assert_eq!(denial(&stage.before(&["strange", "broken"], "Bash", &input)), "hook `strange` is not trusted\nhook `broken` cannot be read");
    assert!(!stage.dir.path().join("ran").exists());
    assert_eq!(stage.hooks.untrusted().collect::<Vec<_>>(), ["strange"]);
    assert_eq!(stage.hooks.names().collect::<Vec<_>>(), ["broken", "strange"]);
}

#[test]
fn an_if_narrows_a_hook_and_means_nothing_at_the_end() {
    let handlers = json!([{"type": "command", "command": "exit 2", "if": "Bash(git push *)"}]);
    let stage = Stage::new(&[("push", true, on("PreToolUse", "Bash", &handlers))]);
    assert_eq!(stage.before(&[], "Bash", &json!({"command": "git status"})).verdict, Verdict::Undecided);
    denial(&stage.before(&[], "Bash", &json!({"command": "cd x && git push -f"})));
    let stop = Stage::new(&[("push", true, on("Stop", "", &handlers))]);
    let ending = Ending { session: stop.session(), is_sub_agent: false, stop_hook_active: false, last_assistant_message: None };
    assert_eq!(block_on(stop.hooks.stop(&[], &ending, &stop.runner())), Decision::default());
}

#[test]
fn after_a_call_a_block_is_feedback_and_may_roll_back() {
    let check = json!({"always": true, "onBlock": "rollback", "hooks": {
        "PostToolUse": [{"matcher": "Edit|Write", "hooks": [
            {"type": "command", "command": "jq -e '.tool_response.filePath' >/dev/null; echo red >&2; exit 2"},
            {"type": "command", "command": "echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PostToolUse\",\"additionalContext\":\"seen\",\"updatedToolOutput\":{\"a\":1}}}'", "onBlock": "keep"}]}],
        "PostToolUseFailure": [{"hooks": [{"type": "command", "command": "cat >&2; exit 2", "onBlock": "keep"}]}],
    }});
    let stage = Stage::new(&[("check", true, check)]);
    let response = json!({"filePath": "/a"});
    let decision = stage.after("Edit", &Answered { tool_response: &response, error: None, is_interrupt: false, duration_ms: 7 });
    assert_eq!(denial(&decision), "red");
    assert!(decision.rollback);
    assert_eq!((decision.context, decision.output), (vec!["seen".to_owned()], Some(json!({"a": 1}))));
    assert_eq!(decision.ran[0].verdict, HookVerdict::Block);
    let decision = stage.after("Bash", &Answered { tool_response: &Value::Null, error: Some("Exit code 1"), is_interrupt: false, duration_ms: 7 });
    let seen: Value = serde_json::from_str(denial(&decision)).unwrap();
    assert_eq!((&seen["error"], &seen["hook_event_name"], &seen["duration_ms"]), (&json!("Exit code 1"), &json!("PostToolUseFailure"), &json!(7)));
    assert!(!decision.rollback);
}

#[test]
fn an_agent_is_kept_going_for_a_reason_but_not_for_ever() {
    let hooks =
        json!({"always": true, "hooks": {"Stop": [{"hooks": shell("cat >&2; exit 2")}], "SubagentStop": [{"matcher": "coder", "hooks": shell("exit 1")}]}});
    let stage = Stage::new(&[("more", true, hooks)]);
    let ending = Ending { session: stage.session(), is_sub_agent: false, stop_hook_active: true, last_assistant_message: Some("done") };
    let decision = block_on(stage.hooks.stop(&[], &ending, &stage.runner()));
    let seen: Value = serde_json::from_str(denial(&decision)).unwrap();
    assert_eq!((&seen["stop_hook_active"], &seen["last_assistant_message"]), (&json!(true), &json!("done")));
    let child = Ending { session: Session { agent_id: Some("a1"), ..stage.session() }, is_sub_agent: true, ..ending };
    let decision = block_on(stage.hooks.stop(&[], &child, &stage.runner()));
    assert_eq!((decision.verdict, decision.ran[0].verdict), (Verdict::Undecided, HookVerdict::Error), "a hook that fails keeps nobody going");
}

#[test]
fn a_cancelled_hook_lets_nothing_through() {
    let stage = Stage::new(&[("slow", true, on("PreToolUse", "", &shell("sleep 30")))]);
    stage.cancel.cancel();
    assert_eq!(denial(&stage.before(&[], "Bash", &json!({"command": "a"}))), "it was cancelled");
}

#[test]
fn files_load_whatever_is_in_them() {
    let dir = PathBuf::from("/no/such/dir");
    let texts = [
        "",
        "[]",
        "{\"hooks\": []}",
        "{\"hooks\": {\"// PostToolUse\": [], \"PreToolUs\": [], \"SessionStart\": [{}], \"Stop\": {}}}",
        "{\"hooks\": {\"PreToolUse\": [1, {}, {\"hooks\": {}}, {\"matcher\": 7, \"hooks\": [2]}, {\"matcher\": \"(\", \"x\": 1, \"hooks\": [{}]}]}, \"alwys\": true}",
        "{\"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"true\", \"timeout\": -1, \"onFailure\": \"x\", \"onBlock\": 3, \"if\": \"(\"}]}]}}",
        "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"(\", \"hooks\": [{}]}]}}",
        "{\"hooks\": {\"// PostToolUse\": [], \"SessionStart\": [{}], \"Unheard\": [], \"Stop\": []}}",
    ];
    let files: Vec<HookFile> = texts.iter().enumerate().map(|(at, text)| file(&at.to_string(), true, text, &dir)).collect();
    let (hooks, warnings) = Hooks::load(&files);
    let text = warnings.join("\n");
    for expected in [
        "hooks/0.json: it cannot be read",
        "hooks/1.json: it cannot be read",
        "hooks/2.json: it cannot be read",
        "hooks/3.json: PreToolUs: unknown event (is `PreToolUse` meant?)",
        "hooks/3.json: // PostToolUse: unknown event",
        "hooks/3.json: SessionStart: this event does not happen in this version",
        "hooks/4.json: unknown key `alwys`",
        "hooks/4.json: PreToolUse[4]: cannot read matcher `(`",
        "hooks/4.json: PreToolUse[4].hooks[0]: a handler without `type` is not in this version",
        "hooks/5.json: PreToolUse[0].hooks[0]: `timeout` is not a number",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    let names = ["0", "1", "2", "3", "4", "5", "6", "7"].map(str::to_owned);
    let broken = ["0", "1", "2", "3", "4"].map(|name| format!("hook `{name}` cannot be read"));
    assert_eq!(hooks.unavailable(&names), broken, "what would never run shuts the gate");
    assert_eq!(hooks.handlers.len(), 2);
    assert!(hooks.handlers[1].matcher.matches("Anything"), "a gate with a broken matcher holds for everything");
}

#[test]
fn a_gate_for_all_that_is_partly_absent_is_shut_for_all() {
    let (hooks, _) = Hooks::load(&[file("gate", true, "{\"always\": true, \"hooks\": {\"PreTooluse\": []}}", Path::new("/no"))]);
    assert_eq!(hooks.unavailable(&[]), ["hook `gate` cannot be read"]);
    assert_eq!(hooks.unavailable(&["gate".to_owned()]), ["hook `gate` cannot be read"]);
}

#[test]
fn the_same_handler_in_several_settings_files_runs_once() {
    let settings = json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": shell("true")}]}, "model": "x"});
    let stage = Stage::new(&[("user", false, settings.clone()), ("project", false, settings.clone())]);
    assert_eq!(stage.before(&[], "Bash", &json!({"command": "a"})).ran.len(), 1);
    assert!(stage.warnings.is_empty(), "{:?}", stage.warnings);
    let mut off = settings;
    off["disableAllHooks"] = json!(true);
    let stage = Stage::new(&[("user", false, off)]);
    assert_eq!(stage.before(&[], "Bash", &json!({"command": "a"})).ran.len(), 0);
    assert_eq!(stage.warnings.len(), 1);
}

/// Keeps the names and fields of spans.
#[derive(Clone, Default)]
struct Spans(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Spans {
    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: tracing_subscriber::layer::Context<'_, S>) {
        if attributes.metadata().target() == crate::trace::TARGET {
            self.0.lock().unwrap().push(format!("{} {}", attributes.metadata().name(), attributes.values()));
        }
    }

    fn on_record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        self.0.lock().unwrap().push(format!("{values:?}"));
    }
}

#[test]
fn every_handler_has_a_span_that_says_what_it_decided() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let spans = Spans::default();
    let stage = Stage::new(&[("gate", true, on("PreToolUse", "", &shell("exit 2")))]);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(spans.clone()), || stage.before(&[], "Bash", &json!({"command": "a"})));
    let seen = spans.0.lock().unwrap().join("\n");
    assert!(seen.starts_with(crate::trace::HOOK), "{seen}");
    for attribute in ["spinney.hook.name", "spinney.hook.event", "spinney.hook.verdict"] {
        assert!(seen.contains(attribute) && crate::trace::ATTRIBUTES.contains(&attribute), "{attribute}: {seen}");
    }
    assert!(seen.contains("gate") && seen.contains("PreToolUse") && seen.contains("deny"), "{seen}");
}
