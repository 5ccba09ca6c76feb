//! `spinney doctor`: what it finds of the machine, the configuration and the providers, and that it spends nothing.
use crate::{
    fixture::Bench,
    server::{Answer, Delivery, Hosted},
};
use serde_json::Value;
use std::fs;

const KEY: &str = "sk-good-1234567890";
const WORKFLOW: &str =
    "version: 1\nname: w\nagents: { reader: { system: \"You read.\", model: anthropic/MODEL } }\nsteps:\n  read: { agent: reader, prompt: \"go\" }\n";

/// A provider that takes one key and lists two models, on two pages.
fn server() -> Hosted {
    Hosted::start(|asked| {
        let body = match (asked.headers.get("x-api-key").map(String::as_str), asked.path.contains("after_id")) {
            (Some(KEY), false) => r#"{"data":[{"id":"claude-opus-5-5-20261001"}],"has_more":true,"last_id":"a"}"#,
            (Some(KEY), true) => r#"{"data":[{"id":"claude-mini-1"}],"has_more":false,"last_id":"b"}"#,
            _ => {
                return (
                    Answer::Status(401, Vec::new(), format!(r#"{{"error":{{"type":"authentication_error","message":"bad key {KEY}x"}}}}"#)),
                    Delivery::default(),
                );
            }
        };
        (Answer::Status(200, Vec::new(), body.to_owned()), Delivery::default())
    })
}

fn bench(url: &str, key: &str, model: &str) -> Bench {
    Bench::new()
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", key)
        .env("SPINNEY_MODEL", "anthropic/claude-opus-5-5")
        .workflow("w", &WORKFLOW.replace("MODEL", model))
}

/// Returns the verdict and the details of the checks of this name.
fn of(bench: &Bench, name: &str) -> Vec<(String, String)> {
    let all: Value = serde_json::from_str(&bench.spinney(&["doctor", "--json"]).out).unwrap();
    let found = all["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name);
    found.map(|check| (check["verdict"].as_str().unwrap().to_owned(), format!("{} {}", check["detail"], check["hint"]))).collect()
}

#[test]
fn a_good_key_and_models_that_are_there_are_fine_and_nothing_is_spent() {
    let server = server();
    let bench = bench(&server.anthropic_url(), KEY, "claude-mini-1");
    let before = bench.git(&["status", "--porcelain", "--ignored"]);
    let said = bench.spinney(&["doctor"]).code(0);
    assert!(said.out.contains("has 2 models, and it takes the key") && !said.out.contains(KEY), "{}", said.out);
    for name in ["git", "repository", "configuration", "state folder", "cache folder", "anthropic", "anthropic/claude-opus-5-5"] {
        let found = of(&bench, name);
        assert!(found.len() == 1 && found[0].0 == "fine", "{name}: {found:?}");
    }
    let [(verdict, detail)] = &of(&bench, "anthropic/claude-mini-1")[..] else { panic!("it is not looked at") };
    assert!(verdict == "warn" && detail.contains("workflow `w`") && detail.contains("price is not known"), "{detail}");
    assert!(server.asked().iter().all(|asked| asked.path.starts_with("/v1/models") && asked.body.is_empty()), "only lists are asked for");
    assert_eq!(bench.git(&["status", "--porcelain", "--ignored"]), before, "nothing is left behind");
}

#[test]
fn a_bad_key_a_missing_model_and_a_host_that_is_not_there_are_broken() {
    let server = server();
    let wrong = bench(&server.anthropic_url(), &format!("{KEY}x"), "claude-mini-1");
    let said = wrong.spinney(&["doctor"]).code(1);
    assert!(said.out.contains("HTTP 401") && said.out.contains("check the key") && !said.out.contains(KEY), "{}", said.out);

    let missing = bench(&server.anthropic_url(), KEY, "claude-mini-2");
    missing.spinney(&["doctor"]).code(1);
    let [(verdict, detail)] = &of(&missing, "anthropic/claude-mini-2")[..] else { panic!("it is not looked at") };
    assert!(verdict == "broken" && detail.contains("does not have it") && detail.contains("did you mean `anthropic/claude-mini-1`"), "{detail}");

    let gone = bench("http://127.0.0.1:1", KEY, "claude-mini-1");
    gone.spinney(&["doctor"]).code(1);
    let [(verdict, detail)] = &of(&gone, "anthropic")[..] else { panic!("it is not looked at") };
    assert!(verdict == "broken" && detail.contains("reach 127.0.0.1"), "{detail}");
}

#[test]
fn every_protocol_has_its_list_and_a_gateway_without_one_is_no_failure() {
    let server = Hosted::start(|asked| {
        let (has_key, body) = match asked.path.as_str() {
            path if path.starts_with("/gemini/models") => (asked.headers.contains_key("x-goog-api-key"), r#"{"models":[{"name":"models/m"}]}"#),
            path if path.starts_with("/bare") => return (Answer::error(404, "not_found_error"), Delivery::default()),
            _ => (asked.headers.contains_key("authorization"), r#"{"data":[{"id":"m"}]}"#),
        };
        let status = if has_key && asked.headers.get("x-team").is_some_and(|team| team == "core") { 200 } else { 401 };
        (Answer::Status(status, Vec::new(), body.to_owned()), Delivery::default())
    });
    let mut config = "providers:\n".to_owned();
    for (name, protocol) in [("gemini2", "gemini"), ("chat", "openai_chat"), ("responses", "openai_responses"), ("bare", "openai_chat")] {
        let path = name.trim_end_matches('2');
        config += &format!(
            "  {name}: {{ protocol: {protocol}, base_url: \"{}/{path}\", key_env: HOUSE_KEY, headers: {{ x-team: core }} }}\n",
            server.anthropic_url()
        );
    }
    config += "models: { all: { use: [gemini2/m, chat/m, responses/m, bare/m] } }\n";
    let bench = Bench::new().env("HOUSE_KEY", KEY);
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), config).unwrap();
    bench.spinney(&["doctor"]).code(0);
    for name in ["gemini2", "chat", "responses"] {
        assert_eq!(of(&bench, name)[0].0, "fine", "{:?}", of(&bench, name));
    }
    assert!(of(&bench, "bare")[0].0 == "warn" && of(&bench, "bare")[0].1.contains("no list of models"), "{:?}", of(&bench, "bare"));
}

#[test]
fn a_folder_that_is_no_repository_and_a_configuration_that_is_wrong_are_said() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), "modles: {}\n").unwrap();
    let said = bench.spinney(&["doctor"]).code(1);
    assert!(said.out.contains("modles") && said.out.contains("spinney config"), "{}", said.out);
    let outside = bench.spinney(&["-C", "/", "doctor"]).code(1);
    assert!(outside.out.contains("repository") && outside.out.contains("git"), "{}", outside.out);
}

#[test]
fn a_key_is_wrong_though_the_status_is_400_or_the_list_is_for_everybody() {
    let server = Hosted::start(|asked| {
        let key = asked.headers.get("authorization").or(asked.headers.get("x-goog-api-key")).map(|key| key.trim_start_matches("Bearer "));
        let google = r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#;
        let (status, body) = match (asked.path.split('?').next().unwrap(), key) {
            ("/google/models", Some(KEY)) => (200, r#"{"models":[{"name":"models/m"}]}"#),
            ("/google/models", Some(_)) => (400, google),
            ("/router/models" | "/open/models", _) => (200, r#"{"data":[{"id":"m"}]}"#),
            ("/router/key", Some(KEY)) => (200, r#"{"data":{"label":"mine","limit":null}}"#),
            ("/open/key", _) => (404, "{}"),
            _ => (401, r#"{"error":{"code":401,"message":"No auth credentials found"}}"#),
        };
        (Answer::Status(status, Vec::new(), body.to_owned()), Delivery::default())
    });
    let config: String = [("google", "gemini"), ("router", "openai_chat"), ("open", "openai_chat")]
        .iter()
        .map(|(name, protocol)| format!("  {name}_x: {{ protocol: {protocol}, base_url: \"{}/{name}\", key_env: HOUSE_KEY }}\n", server.anthropic_url()))
        .collect();
    let with = |key: &str| {
        let bench = Bench::new().env("HOUSE_KEY", key);
        fs::create_dir_all(bench.path("config/spinney")).unwrap();
        fs::write(bench.path("config/spinney/config.yaml"), format!("providers:\n{config}")).unwrap();
        bench
    };
    for (key, code, verdict) in [(KEY, 0, "fine"), ("sk-wrong-1234567890", 1, "broken")] {
        let bench = with(key);
        bench.spinney(&["doctor"]).code(code);
        for name in ["google_x", "router_x"] {
            let found = of(&bench, name);
            let hint = if verdict == "broken" { "check the key" } else { "takes the key" };
            assert!(found[0].0 == verdict && found[0].1.contains(hint), "{name}: {found:?}");
        }
        let open = of(&bench, "open_x");
        assert!(open[0].0 == "warn" && open[0].1.contains("the key is not checked"), "{open:?}");
    }
    assert!(server.asked().iter().all(|asked| asked.body.is_empty()), "nothing is spent");
}
