//! Keys: missing, wrong, and never seen.
use super::{
    drive::assert_no_key_below,
    mind::{self, KEY, Wire, bench, call, done, heard},
};
use crate::{
    fixture::{Bench, outcome, results},
    invariants,
    server::{Answer, Delivery, Hosted},
};
use serde_json::json;
use spinney::journal::RunDir;

/// One agent with a shell, a hook on it, and checks.
pub(super) const ONE: &str = r#"
version: 1
name: one
agents:
  coder: { system: "You code.", access: write }
steps:
  work:
    agent: coder
    prompt: "Do it."
    verify: { run: ["! env | grep -e sk-test -e API_KEY"], attempts: 1 }
"#;

fn runs(bench: &Bench) -> usize {
    RunDir::list(&RunDir::state(&bench.repo())).unwrap_or_default().len()
}

#[test]
fn without_a_key_one_error_names_the_choices_and_nothing_begins() {
    let bench = Bench::new();
    let said = bench.spinney(&["run", "feature", "--input", "goal=x"]).code(2);
    for choice in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "--model", "ollama/"] {
        assert!(said.err.contains(choice), "{choice}: {}", said.err);
    }
    assert_eq!(said.err.matches("error: ").count(), 1, "{}", said.err);
    assert_eq!(said.out, "");
    assert_eq!(runs(&bench), 0);
    assert!(!bench.repo().join(".spinney").exists(), "nothing was written");
}

#[test]
fn a_provider_that_is_not_known_is_said_before_anything_begins() {
    for (model, words) in [("nobody/model", "there is no provider `nobody`"), ("mo/del", "there is no provider `mo`")] {
        let bench = Bench::new().env("ANTHROPIC_API_KEY", KEY).workflow("one", ONE);
        let said = bench.spinney(&["run", "one", "--model", model]).code(2);
        assert!(said.err.contains(words) && said.err.contains("anthropic") && said.err.contains("ollama"), "{}", said.err);
        assert_eq!(runs(&bench), 0);
        assert!(!said.err.contains(KEY));
    }
}

/// A failure that waiting does not mend: told once, and not tried again, although the step has `retry`.
fn is_not_retried(wire: Wire, status: u16, kind: &'static str, words: &str) {
    let server = Hosted::start(move |_| {
        let body = json!({"type": "error", "error": {"type": kind, "message": format!("told so: {KEY}")}});
        (Answer::Status(status, Vec::new(), body.to_string()), Delivery::default())
    });
    let yaml = ONE.replace("prompt: \"Do it.\"", "prompt: \"Do it.\"\n    retry: { max: 2, on: [transient], delay: 1s }");
    let bench = bench(wire, &server).workflow("one", &yaml);
    let model = if wire == Wire::Messages { "anthropic/claude-sonnet-5-5" } else { "openai/any" };
    let said = bench.spinney(&["run", "one", "--model", model]).code(1);
    assert_eq!(server.asked().len(), 1, "asked again\n{}", said.out);
    assert!(said.out.contains(words) && said.out.contains("told so: ***"), "{}", said.out);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert!(!said.out.contains(KEY) && !said.err.contains(KEY));
    assert_no_key_below(&bench.path(""));
}

#[test]
fn a_wrong_key_is_said_and_not_tried_again() {
    is_not_retried(Wire::Messages, 401, "authentication_error", "401");
    is_not_retried(Wire::Chat, 401, "invalid_api_key", "401");
}

#[test]
fn a_model_that_is_not_there_is_said_and_not_tried_again() {
    is_not_retried(Wire::Messages, 404, "not_found_error", "404");
}

#[test]
fn a_step_is_tried_again_where_waiting_may_mend_it() {
    let server = Hosted::start(|asked| match asked.number {
        // The server's own word: the same request makes no sense now, and this was no fault of the request's.
        0 => (Answer::Status(500, vec![("x-should-retry", "false".to_owned())], "{}".to_owned()), Delivery::default()),
        _ => (Answer::Say(done("Done.")), Delivery::default()),
    });
    let yaml = ONE.replace("prompt: \"Do it.\"", "prompt: \"Do it.\"\n    retry: { max: 1, on: [transient], delay: 1ms }");
    let bench = bench(Wire::Messages, &server).workflow("one", &yaml);
    bench.spinney(&["run", "one"]).code(0);
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn the_second_choice_answers_the_whole_conversation() {
    // `feature` names Anthropic's models first; here only the other provider has a key.
    let server = Hosted::start(|asked| (Answer::Say(mind::feature(asked)), Delivery::default()));
    let bench = bench(Wire::Chat, &server);
    let said = bench.spinney(&["run", "feature", "--input", "goal=x", "--input", "ask=false", "--input", "check=true"]).code(0);
    assert!(server.asked().iter().all(|asked| asked.json["model"] == "gpt-6-sol"), "{}", said.out);
}

#[test]
fn a_key_is_nowhere_to_be_seen() {
    const LOOK: &str = "env; cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n' | grep -e sk-test; true";
    const HOOK: &str =
        r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "env | grep -e sk-test -e API_KEY && exit 2; exit 0"}]}]}}"#;
    for wire in [Wire::Messages, Wire::Chat] {
        let server = Hosted::start(|asked| match asked.turn() {
            0 => (Answer::Say(call(asked, "Bash", json!({"command": LOOK}))), Delivery::default()),
            _ => (Answer::Say(done(&format!("It says {}.", heard(asked).last.len()))), Delivery::default()),
        });
        let bench = bench(wire, &server).workflow("one", ONE).file(".spinney/hooks/look.json", HOOK);
        bench.spinney(&["trust", "--yes"]).code(0);
        let model = if wire == Wire::Messages { "anthropic/claude-sonnet-5-5" } else { "openai/any" };
        let said = bench.spinney(&["run", "one", "--model", model, "--unconfined"]).code(0);
        let run = bench.newest();
        let records = bench.records(&run);
        invariants::check(&records, &bench.repo());
        let [(_, false, shown)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
        assert!(shown.contains("PATH=") && !shown.contains(KEY), "{shown}");
        assert!(outcome(&records, "run")["succeeded"].is_object());
        let mut texts = vec![said.out, said.err];
        for command in [
            &["show", &run.0][..],
            &["show", &run.0, "--json"],
            &["show", &run.0, "work"],
            &["runs"],
            &["runs", "--json"],
            &["list", "--json"],
            &["diff", &run.0],
        ] {
            let said = bench.spinney(command);
            texts.extend([said.out, said.err]);
        }
        let sent = if wire == Wire::Messages { "x-api-key" } else { "authorization" };
        assert!(server.asked().iter().all(|asked| asked.headers[sent].ends_with(KEY)), "it was used");
        assert!(server.asked().iter().all(|asked| !String::from_utf8_lossy(&asked.body).contains(KEY)));
        for text in texts {
            assert!(!text.contains(KEY), "{text}");
        }
        assert_no_key_below(&bench.path(""));
    }
}

#[test]
fn a_key_that_a_tool_reads_or_a_gateway_repeats_is_masked_wherever_it_would_stand() {
    const GATEWAY: &str = "gw-topsecret-987654";
    let server = Hosted::start(|asked| {
        let (begin, end) = KEY.split_at(9);
        let said = match asked.turn() {
            0 => call(asked, "Bash", json!({"command": format!("printf '%s%s\\n' {begin} {end} gw-topsecret -987654; printf %s%s {begin} {end} | base64")})),
            1 => call(asked, "Write", json!({"file_path": "key.txt", "content": format!("{KEY} and {GATEWAY}\n")})),
            _ => done(&format!("It is {KEY}, behind {GATEWAY}.")),
        };
        (Answer::Say(said), Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("one", ONE);
    std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
    std::fs::write(
        bench.path("config/spinney/config.yaml"),
        format!("providers: {{ anthropic: {{ headers: {{ x-gw-key: {GATEWAY}, x-title: \"You code.\" }} }} }}\n"),
    )
    .unwrap();
    let recording = bench.path("rec.jsonl").display().to_string();
    let said = bench.spinney(&["run", "one", "--model", "anthropic/claude-sonnet-5-5", "--unconfined", "--record", &recording, "--json"]).code(0);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    let [(_, false, shown), ..] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(shown.starts_with("***anthropic key***\n***anthropic x-gw-key***\n***anthropic key***"), "{shown}");
    assert_no_key_below(&bench.path(""));
    let objects = bench.git(&["cat-file", "--batch", "--batch-all-objects", "--unordered"]);
    let recorded = std::fs::read_to_string(bench.path("rec.jsonl")).unwrap();
    let journal = serde_json::to_string(&records).unwrap();
    let asked = server.asked();
    let sent = asked.iter().map(|asked| String::from_utf8_lossy(&asked.body).into_owned());
    for text in [said.out, said.err, objects, recorded, journal].into_iter().chain(sent) {
        assert!(!text.contains(KEY) && !text.contains(GATEWAY), "{text}");
    }
    assert!(asked.len() == 3 && asked.iter().all(|asked| asked.headers["x-api-key"] == KEY && asked.headers["x-gw-key"] == GATEWAY), "they are used");
    assert!(asked[0].json.to_string().contains("You code."), "what a header says that is no key is left alone");
}
