//! `config.yaml`, the user's and the project's: what wins, what waits for trust, and what is never shown.
use crate::fixture::Bench;
use serde_json::Value;
use std::fs;

const USER: &str = r#"
providers:
  house: { protocol: openai_chat, base_url: "https://models.example.com/v1", key_env: HOUSE_KEY, headers: { x-team: team-secret-word } }
models:
  large: { use: house/big, effort: high }
  small: { use: [house/tiny, ollama/tiny] }
defaults: { model: small, timeout: 10m, max_parallel: 3 }
"#;

const WORKFLOW: &str = "version: 1\nname: two\nmodels: { own: { use: anthropic/claude-opus-5-5 } }\nagents:\n  a: { system: A., model: large }\n  b: { system: B. }\n  c: { system: C., model: own }\nsteps:\n  one: { agent: a, prompt: x }\n  two: { agent: b, prompt: x }\n  three: { agent: c, prompt: x }\n";

/// A repository of a user with a configuration file.
fn bench(user: &str) -> Bench {
    let bench = Bench::new().workflow("two", WORKFLOW).env("HOUSE_KEY", "sk-very-secret-key");
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), user).unwrap();
    bench
}

fn settings(bench: &Bench) -> Value {
    serde_json::from_str(&bench.spinney(&["config", "--json"]).code(0).out).unwrap()
}

/// Returns a value and where it came from, with the user's folder shortened.
fn setting(bench: &Bench, key: &str) -> (String, String) {
    let all = settings(bench);
    let found = all["settings"].as_array().unwrap().iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("no {key} in {all}"));
    let value = found["value"].as_str().map_or_else(|| found["value"].to_string(), str::to_owned);
    (value, found["from"].as_str().unwrap().replace(&bench.path("config").display().to_string(), "CONFIG"))
}

/// Returns the models of each step and who named them.
fn models(bench: &Bench, more: &[&str]) -> Vec<(String, String)> {
    let mut arguments = vec!["plan", "two", "--json"];
    arguments.extend(more);
    let plan: Value = serde_json::from_str(&bench.spinney(&arguments).code(0).out).unwrap();
    let one = |step: &Value| {
        let from = step["agent"]["models_from"].as_str().unwrap().replace(&bench.path("config").display().to_string(), "CONFIG");
        (step["agent"]["models"][0].as_str().unwrap().to_owned(), from)
    };
    plan["steps"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn every_value_is_shown_with_where_it_came_from_and_no_key() {
    let bench = bench(USER).env("ANTHROPIC_API_KEY", "sk-another-secret").env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let said = bench.spinney(&["config"]).code(0);
    insta::assert_snapshot!("config", said.out.replace(&bench.path("config").display().to_string(), "CONFIG"));
    let all = said.out + &said.err + &settings(&bench).to_string();
    assert!(!all.contains("sk-very") && !all.contains("sk-another") && !all.contains("team-secret-word"), "{all}");
}

#[test]
fn what_is_nearer_wins() {
    let user = bench(USER);
    let from_user = "CONFIG/spinney/config.yaml".to_owned();
    assert_eq!(
        models(&user, &[]),
        [
            ("house/big".to_owned(), format!("the agent, as alias `large` of {from_user}")),
            ("house/tiny".to_owned(), format!("{from_user}, as alias `small` of {from_user}")),
            ("anthropic/claude-opus-5-5".to_owned(), "the agent, as alias `own` of the workflow".to_owned()),
        ]
    );
    let project =
        user.file(".spinney/config.yaml", "models: { large: { use: anthropic/claude-haiku-5-5 }, own: { use: house/never } }\ndefaults: { max_parallel: 5 }\n");
    let named = models(&project, &[]);
    assert_eq!(named[0], ("anthropic/claude-haiku-5-5".to_owned(), "the agent, as alias `large` of .spinney/config.yaml".to_owned()));
    assert_eq!(named[2].0, "anthropic/claude-opus-5-5", "the workflow's own alias comes before every file");
    assert_eq!(setting(&project, "defaults.max_parallel"), ("5".to_owned(), ".spinney/config.yaml".to_owned()));
    assert_eq!(setting(&project, "defaults.timeout"), ("600s".to_owned(), from_user));
    let environment = project.env("SPINNEY_MODEL", "ollama/from-env");
    assert_eq!(models(&environment, &[])[1], ("ollama/from-env".to_owned(), "SPINNEY_MODEL".to_owned()));
    assert_eq!(models(&environment, &["--model", "local/said"])[1], ("local/said".to_owned(), "`--model`".to_owned()));
    assert_eq!(models(&environment, &["--model", "large=local/said"])[0].1, "the agent, as alias `large` set from outside");
}

#[test]
fn the_environment_comes_before_a_file() {
    let user = "providers: { openai: { base_url: \"https://gateway.example.com/v1\", key_env: HOUSE_KEY } }\n";
    let file = bench(user);
    assert_eq!(setting(&file, "providers.openai.base_url").0, "https://gateway.example.com/v1");
    assert_eq!(setting(&file, "providers.openai.key"), ("in HOUSE_KEY, set".to_owned(), "CONFIG/spinney/config.yaml".to_owned()));
    let environment = file.env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").env("OPENAI_API_KEY", "k");
    assert_eq!(setting(&environment, "providers.openai.base_url"), ("http://127.0.0.1:9/v1".to_owned(), "OPENAI_BASE_URL".to_owned()));
    assert_eq!(setting(&environment, "providers.openai.key").0, "in OPENAI_API_KEY, set");
}

#[test]
fn defaults_reach_the_plan() {
    let plan: Value = serde_json::from_str(&bench(USER).spinney(&["plan", "two", "--json"]).code(0).out).unwrap();
    assert_eq!((&plan["max_parallel"], &plan["steps"][0]["timeout_ms"]), (&3.into(), &600_000.into()));
}

#[test]
fn a_project_sends_nothing_anywhere_until_it_is_trusted() {
    let project = "providers:\n  anthropic: { base_url: \"https://elsewhere.example.com\" }\n  theirs: { protocol: anthropic, base_url: \"https://elsewhere.example.com\", headers: { x-a: b } }\n";
    let bench = Bench::new().workflow("two", WORKFLOW).file(".spinney/config.yaml", project).env("ANTHROPIC_API_KEY", "k");
    let said = bench.spinney(&["config"]).code(0);
    assert!(!said.out.contains("elsewhere") && said.err.contains("not trusted") && said.err.contains("spinney trust"), "{said:?}");
    assert_eq!(setting(&bench, "providers.anthropic.base_url").0, "https://api.anthropic.com");
    assert!(bench.spinney(&["plan", "two", "--model", "theirs/x"]).code(2).err.contains("there is no provider `theirs`"));
    let shown = bench.spinney(&["trust"]);
    assert!(shown.out.contains(".spinney/config.yaml") && shown.out.contains("https://elsewhere.example.com") && shown.out.contains("x-a"), "{shown:?}");
    bench.spinney(&["trust", "--yes"]).code(0);
    assert_eq!(setting(&bench, "providers.anthropic.base_url"), ("https://elsewhere.example.com".to_owned(), ".spinney/config.yaml".to_owned()));
    let changed = bench.file(".spinney/config.yaml", &project.replace("elsewhere", "evil"));
    assert_eq!(setting(&changed, "providers.anthropic.base_url").0, "https://api.anthropic.com", "a changed byte asks again");
}

#[test]
fn every_error_of_both_files_is_told_with_its_place() {
    let user = "modles: {}\nproviders: { house: { base_url: \"https://k:v@example.com\" }, half: { protocol: anthropic } }\n";
    let bench = bench(user).file(".spinney/config.yaml", "models: { x: { use: nobody/x }, y: { use: gpt } }\ndefaults: { model: z, timeout: soon }\n");
    let said = bench.spinney(&["config"]).code(2);
    insta::assert_snapshot!("config_errors", said.err.replace(&bench.path("config").display().to_string(), "CONFIG"));
    assert!(bench.spinney(&["plan", "two"]).code(2).err.contains("modles"));
}

#[test]
fn a_run_goes_on_with_the_models_that_it_began_with() {
    let script = "conversations:\n  - agent: a\n    turns: [{ calls: [{ tool: Bash, input: { command: \"git push\" } }] }, { say: done }]\n";
    let workflow = "version: 1\nname: ask\nagents: { a: { system: A., access: write, permissions: { ask: [\"Bash(git push)\"] } } }\nsteps: { one: { agent: a, prompt: x } }\n";
    let bench = bench("models: { large: { use: ollama/one } }\n").workflow("ask", workflow);
    bench.run("ask", script, &[]).0.code(3);
    fs::write(bench.path("config/spinney/config.yaml"), "models: { large: { use: ollama/two } }\n").unwrap();
    assert!(bench.spinney(&["resume", "--on-ask", "deny"]).code(2).err.contains("configuration:config.yaml"));
    bench.spinney(&["resume", "--on-ask", "deny", "--accept-changes"]).code(0);
}

#[test]
fn a_run_does_not_go_on_with_other_steps_and_says_what_to_do() {
    let workflow = |step: &str| format!("version: 1\nname: ask\nsteps:\n  {step}: {{ run: ls }}\n  gate: {{ approve: {{ message: Well? }} }}\n");
    let bench = Bench::new().workflow("ask", &workflow("one"));
    bench.run("ask", "conversations: []", &[]).0.code(3);
    let bench = bench.workflow("ask", &workflow("other"));
    let said = bench.spinney(&["resume", "--on-ask", "deny", "--accept-changes"]).code(1);
    assert!(said.err.contains("cannot follow") && said.err.contains("put their names back"), "{}", said.err);
}

#[test]
fn defaults_lie_under_called_workflows_too() {
    let inner = "version: 1\nname: inner\nsteps:\n  one: { run: \"true\" }\n  two: { run: \"true\", timeout: 2m }\n";
    let bench = bench(USER).workflow("inner", inner).workflow("outer", "version: 1\nname: outer\nsteps:\n  call: { workflow: inner }\n");
    let said = bench.spinney(&["plan", "outer"]).code(0).out;
    let times: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("time ")).map(str::trim).collect();
    assert_eq!(times, ["10m a try", "2m a try"], "{said}");
}

#[test]
fn every_protocol_has_its_name_and_what_is_said_of_models_is_heard() {
    let protocols = spinney::llm::Protocol::NAMED.map(|(name, _)| name);
    for protocol in protocols {
        let user = format!(
            "providers:\n  house:\n    protocol: {protocol}\n    base_url: http://127.0.0.1:1/v1\n    auth: bearer\n    models: {{ \"a/b:1\": {{ window: 9000, effort: [few, many] }} }}\n"
        );
        let bench = bench(&format!("{user}models: {{ large: {{ use: house/x }} }}\ndefaults: {{ model: large }}\n"));
        assert_eq!(setting(&bench, "providers.house.protocol").0, protocol);
        assert_eq!(setting(&bench, "providers.house.auth").0, "bearer");
        assert_eq!(setting(&bench, "providers.house.models.a/b:1").0, r#"{"window":9000,"effort":["few","many"]}"#);
    }
    let wrong = bench("providers: { openai: { protocol: carrier, models: { x: { windows: 3, thinking: loud } } } }\n").spinney(&["config"]).code(2);
    for word in protocols.into_iter().chain(["windows", "loud"]) {
        assert!(wrong.err.contains(word), "{word}: {}", wrong.err);
    }
}
