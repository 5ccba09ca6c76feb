//! The providers themselves, where a key is in the environment: one small run each, which costs a little. `.ci/live` runs these;
//! nothing else does.
use crate::fixture::{Bench, outcome, results};

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
#[ignore = "asks whatever server LIVE_CHAT_URL names"]
fn openai_chat() {
    let config = "providers: { live: { protocol: openai_chat, base_url: \"$LIVE_CHAT_URL\" } }\n";
    live("live/$LIVE_CHAT_MODEL", &["LIVE_CHAT_URL", "LIVE_CHAT_MODEL"], config);
}
