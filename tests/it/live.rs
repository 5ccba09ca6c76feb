//! The providers themselves, where a key is in the environment: one small run each, which costs a little. `.ci/live` runs these;
//! nothing else does.
use crate::{
    fixture::{Bench, outcome, results},
    server::{Answer, Delivery, Hosted, Said},
};
use serde_json::json;

const WORKFLOW: &str = "version: 1\nname: live\nagents: { reader: { system: \"You read files with your tools.\", max_turns: 6, budget: { tokens: 60000 } } }\nsteps:\n  read: { agent: reader, prompt: \"Read the file README.md with the Read tool, then answer with its first line and nothing else.\" }\n";

/// Runs an agent that has to call a tool, with the variables of the environment that are named; `.ci/live` asks for those that are there.
fn live(model: &str, names: &[&str], config: &str) {
    let mut bench = Bench::new().workflow("live", WORKFLOW);
    for name in names {
        let value = std::env::var(name).unwrap_or_default();
        assert!(!value.is_empty(), "{name} is not set");
        bench = bench.env(name, &value);
    }
    let config = names.iter().fold(config.to_owned(), |config, name| config.replace(&format!("${name}"), &std::env::var(name).unwrap()));
    std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
    std::fs::write(bench.path("config/spinney/config.yaml"), config).unwrap();
    let model = names.iter().fold(model.to_owned(), |model, name| model.replace(&format!("${name}"), &std::env::var(name).unwrap()));
    bench.spinney(&["run", "live", "--model", &model]).code(0);
    let records = bench.records(&bench.newest());
    crate::invariants::check(&records, &bench.repo());
    assert!(results(&records, "read").iter().any(|(tool, is_error, text)| *tool == "Read" && !is_error && text.contains("# A project")));
    assert!(outcome(&records, "read")["succeeded"]["output"].as_str().unwrap().contains("A project"));
}

#[test]
#[ignore = "asks Anthropic, which costs a little"]
fn anthropic() {
    live("anthropic/claude-haiku-5-5", &["ANTHROPIC_API_KEY"], "");
}

#[test]
#[ignore = "asks OpenAI, which costs a little"]
fn openai_responses() {
    live("openai/gpt-6-luna", &["OPENAI_API_KEY"], "");
}

#[test]
#[ignore = "asks Google, which costs a little"]
fn gemini() {
    live("gemini/gemini-3.7-flash", &["GEMINI_API_KEY"], "");
}

#[test]
#[ignore = "asks whatever server `.ci/live` has found"]
fn server() {
    let config = "providers: { local: { protocol: $LIVE_PROTOCOL, base_url: \"$LIVE_AT\", key_env: LIVE_KEY } }\n";
    live("local/$LIVE_NAME", &["LIVE_PROTOCOL", "LIVE_AT", "LIVE_NAME", "LIVE_KEY"], config);
}

/// A server that stands for all that the script finds: it has a file read, then says what was in it.
fn stand_in() -> Hosted {
    Hosted::start(|asked| {
        let answer = match asked.turn() {
            // What holds requests against a specification answers well, and with no stream.
            _ if !asked.json.to_string().contains("README.md") => {
                Answer::Status(200, vec![("content-type", "application/json".to_owned())], r#"{"choices":[],"output":[]}"#.to_owned())
            }
            0 => Answer::Say(Said::call("c1", "Read", json!({"file_path": "README.md"}))),
            _ => Answer::Say(Said::text("# A project")),
        };
        (answer, Delivery::default())
    })
}

/// Runs the script with stand-ins for the programs that are named, all of which are found on one port.
fn script(port: &str, programs: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let place = tempfile::tempdir().unwrap();
    for program in programs {
        let path = place.path().join(program);
        std::fs::write(&path, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.path().display());
    let home = place.path().display().to_string();
    let mut command = std::process::Command::new("bash");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/live")).env_clear();
    command.envs([("PATH", path.as_str()), ("HOME", &home), ("TMPDIR", &home), ("LIVE_PORT", port)]);
    command.env("LIVE_RUN", std::env::current_exe().unwrap()).env("LIVE_SPINNEY", env!("CARGO_BIN_EXE_spinney"));
    let done = command.envs(variables.iter().copied()).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

fn lines<'t>(said: &'t str, begin: &str) -> Vec<&'t str> {
    said.lines().filter_map(|line| line.strip_prefix(begin)).collect()
}

#[test]
fn the_script_says_what_is_not_at_hand_and_runs_what_is() {
    let (well, said) = script("1", &[], &[]);
    assert!(well && said.contains("Nothing was run"), "{said}");
    for what in ["anthropic: ANTHROPIC_API_KEY", "openai_responses: ", "gemini: ", "a server by its address", "llmock", "a gateway", "LIVE_GGUF", "steady"] {
        assert!(lines(&said, "skipped: ").iter().any(|line| line.contains(what)), "{what}: {said}");
    }
    let server = stand_in();
    let url = server.openai_url();
    let port = url.trim_end_matches("/v1").rsplit(':').next().unwrap().to_owned();
    let address = [("LIVE_URL", url.as_str()), ("LIVE_MODEL", "m"), ("LIVE_PROTOCOLS", "openai_chat anthropic openai_responses gemini")];
    let more = [("LIVE_GGUF", "/tmp/weights.gguf"), ("STEADY_SPEC", "openapi.yaml")];
    let (well, said) = script(&port, &["llmock", "litellm", "llama-server", "steady"], &[address.as_slice(), &more].concat());
    assert!(well, "{said}");
    let mut wanted: Vec<String> = ["openai_chat", "anthropic", "openai_responses", "gemini"].map(|protocol| format!("m at {url}: {protocol}")).into();
    wanted.extend(["openai_chat", "openai_responses", "anthropic", "gemini"].map(|protocol| format!("llmock: {protocol}")));
    wanted.extend(["openai_chat", "anthropic", "openai_responses"].map(|protocol| format!("litellm: {protocol}")));
    wanted.extend(["openai_chat", "anthropic", "openai_responses"].map(|protocol| format!("weights.gguf: {protocol}")));
    wanted.extend(["openai_chat", "openai_responses"].map(|protocol| format!("OpenAI's specification: {protocol}")));
    assert_eq!(lines(&said, "ran: "), wanted, "{said}");
    assert_eq!(lines(&said, "skipped: ").len(), 3, "the keys: {said}");
    // What is asked there: two turns each, and one of each protocol that is held against its specification.
    assert_eq!((server.asked().len(), server.problems()), (14 * 2 + 2, Vec::new()));
}

#[test]
fn the_script_fails_where_a_server_fails_or_a_request_does_not_fit() {
    let server = Hosted::start(|_| (Answer::error(400, "invalid_request_error"), Delivery::default()));
    let url = server.openai_url();
    let port = url.trim_end_matches("/v1").rsplit(':').next().unwrap().to_owned();
    let (well, said) = script(&port, &[], &[("LIVE_URL", &url), ("LIVE_MODEL", "m")]);
    assert!(!well && said.contains(&format!("failed: m at {url}: openai_chat")) && said.contains("HTTP 400"), "{said}");
    let (well, said) = script(&port, &["steady"], &[("STEADY_SPEC", "openapi.yaml")]);
    assert!(!well && said.contains("failed: OpenAI's specification: openai_chat") && said.contains("HTTP 400"), "{said}");
}
