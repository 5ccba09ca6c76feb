//! What is known of a model has its effect on what is sent: nothing that it refuses, and what it alone takes.
use super::{Talk, sent};
use crate::{
    fixture::Bench,
    server::{Answer, Delivery, Hosted, Said, Server},
};
use serde_json::{Value, json};
use spinney::{
    clock::{Clock, Timestamp},
    http::Client,
    llm::{Endpoint, Endpoints, HttpModel, Limiter, Model, ModelErrorKind, Protocol, Silent, Target, provider},
    message::{Block, Message, Raw, Role},
};
use std::sync::Arc;

fn endpoint(protocol: Protocol) -> Endpoint {
    Endpoint::new("p", protocol, "http://127.0.0.1:1/v1")
}

/// Says something of a model.
fn said(protocol: Protocol, model: &str, said: Value) -> Endpoint {
    let mut endpoint = endpoint(protocol);
    endpoint.models.insert(model.to_owned(), said.as_object().unwrap().clone());
    endpoint
}

fn body(endpoint: &Endpoint, model: &str, talk: &Talk) -> Value {
    serde_json::from_str(&sent(endpoint, model, talk)).unwrap()
}

fn talk() -> Talk {
    Talk::new("p/m", "x")
}

#[test]
fn sampling_parameters_reach_only_models_that_take_them() {
    use Protocol::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
    let older = vec![("Anthropic-Version".to_owned(), "2023-06-01".to_owned())];
    for (protocol, headers, model, takes) in [
        (Anthropic, vec![], "claude-opus-5-5", false),
        // Under the present version of the API none does.
        (Anthropic, vec![], "claude-haiku-4-5", false),
        (Anthropic, older.clone(), "claude-haiku-4-5", true),
        (Anthropic, older, "claude-opus-5-5", false),
        (OpenAiResponses, vec![], "gpt-6-sol", false),
        (OpenAiResponses, vec![], "gpt-4o", true),
        (OpenAiChat, vec![], "o3", false),
        (OpenAiChat, vec![], "qwen3", true),
        (Gemini, vec![], "gemini-3.7-flash", false),
        (Gemini, vec![], "gemini-2.5-flash", true),
    ] {
        let extra = json!({"temperature": 0.2, "top_p": 0.5, "topK": 4, "seed": 7, "service_tier": {"a": "b"}});
        let endpoint = Endpoint { headers, extra: extra.as_object().unwrap().clone(), ..endpoint(protocol) };
        let sent = body(&endpoint, model, &talk());
        let place = if protocol == Gemini { &sent["generationConfig"] } else { &sent };
        assert_eq!((&place["seed"], &place["service_tier"]), (&json!(7), &json!({"a": "b"})), "{model}: {sent}");
        for word in ["temperature", "top_p", "topK"] {
            assert_eq!(place.get(word).is_some(), takes, "{protocol:?} {model} {word}");
        }
        // What somebody says of the model wins.
        let endpoint = Endpoint { extra: endpoint.extra, ..said(protocol, model, json!({"sampling": !takes})) };
        let sent = sent_in(&endpoint, model);
        assert_eq!(sent.contains("temperature"), !takes, "{protocol:?} {model}");
    }
}

fn sent_in(endpoint: &Endpoint, model: &str) -> String {
    sent(endpoint, model, &talk())
}

#[test]
fn what_requests_say_themselves_is_not_said_twice() {
    for (protocol, word) in
        [(Protocol::Anthropic, "max_tokens"), (Protocol::OpenAiResponses, "store"), (Protocol::OpenAiChat, "stream"), (Protocol::Gemini, "thinkingConfig")]
    {
        let extra = json!({word: "mine", "user": "u"}).as_object().unwrap().clone();
        let sent = sent(&Endpoint { extra, ..endpoint(protocol) }, "m", &talk());
        assert!(!sent.contains("mine") && sent.contains(r#""user":"u""#), "{sent}");
    }
}

#[test]
fn sampling_of_the_configuration_goes_where_the_table_lets_it() {
    let server = Hosted::start(|_| (Answer::Say(Said::text("done")), Delivery::default()));
    let workflow = "version: 1\nname: w\nagents: { big: { system: B., model: house/big }, small: { system: S., model: house/qwen } }\nsteps: { a: { agent: big, prompt: a }, b: { agent: small, prompt: b } }\n";
    let bench = Bench::new().workflow("w", workflow);
    std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
    let config = |extra: &str| {
        let text = format!(
            "providers:\n  house: {{ protocol: openai_chat, base_url: \"{}\", extra: {{ {extra} }}, models: {{ big: {{ sampling: false }} }} }}\n",
            server.openai_url()
        );
        std::fs::write(bench.path("config/spinney/config.yaml"), text).unwrap();
    };
    config("temperature: 0.1, top_p: 0.9, chat_template_kwargs: { enable_thinking: false }");
    bench.spinney(&["run", "w"]).code(0);
    assert_eq!(server.problems(), Vec::<String>::new());
    for asked in server.asked() {
        let takes = asked.json["model"] == "qwen";
        assert_eq!((asked.json["temperature"] == 0.1, asked.json["top_p"] == 0.9), (takes, takes), "{}", asked.json);
        assert_eq!(asked.json["chat_template_kwargs"]["enable_thinking"], false);
    }
    config("messages: []");
    let said = bench.spinney(&["run", "w"]).code(2);
    assert!(said.err.contains("`extra` may not say `messages`") && said.err.contains("config.yaml:2:"), "{}", said.err);
}

#[test]
fn thinking_is_only_switched_off_where_a_model_can_be_without() {
    let off = |protocol, model: &str| body(&said(protocol, model, json!({"thinking": "disabled"})), model, &talk());
    assert_eq!(off(Protocol::Anthropic, "claude-haiku-5-5")["thinking"], json!({"type": "disabled"}));
    for model in ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1"] {
        assert_eq!(off(Protocol::Anthropic, model)["thinking"], json!({"type": "adaptive", "display": "summarized"}), "{model}");
    }
    assert_eq!(off(Protocol::Gemini, "gemini-2.5-flash")["generationConfig"]["thinkingConfig"], json!({"thinkingBudget": 0}));
    assert_eq!(off(Protocol::Gemini, "gemini-3.7-flash")["generationConfig"]["thinkingConfig"], json!({"includeThoughts": true}));
    assert_eq!(off(Protocol::OpenAiResponses, "gpt-6-sol")["reasoning"], json!({"effort": "none"}));
    assert_eq!(off(Protocol::OpenAiResponses, "o3")["reasoning"], json!({"summary": "auto"}));
    assert_eq!(off(Protocol::OpenAiChat, "qwen3")["reasoning_effort"], "none");
    let both = said(Protocol::Anthropic, "claude-haiku-5-5", json!({"thinking": "disabled", "always_thinks": true}));
    assert_eq!(body(&both, "claude-haiku-5-5", &talk())["thinking"]["type"], "adaptive", "what somebody says wins");
    let much = Talk { effort: Some("max".to_owned()), ..talk() };
    let endpoint = said(Protocol::Anthropic, "claude-haiku-5-5", json!({"thinking": "disabled"}));
    let refused = provider(Protocol::Anthropic).request(&much.call(), Target { endpoint: &endpoint, model: "claude-haiku-5-5" }).unwrap_err();
    assert!(refused.kind == ModelErrorKind::Rejected && refused.message.contains("needs thinking"), "{refused}");
}

#[test]
fn an_answer_is_only_forced_of_a_model_that_can_be_and_only_when_it_is_asked_for_again() {
    let forced = |endpoint: &Endpoint, model: &str, must_answer: bool| {
        let talk = Talk { schema: Some(json!({"type": "object"})), must_answer, ..talk() };
        let body = body(endpoint, model, &talk);
        assert!(body["tools"].to_string().contains("StructuredOutput"), "{body}");
        body.get("tool_choice").or(body.get("toolConfig")).cloned().unwrap_or_default()
    };
    for (protocol, model, wanted) in [
        (Protocol::Anthropic, "claude-haiku-4-5", json!({"type": "tool", "name": "StructuredOutput"})),
        (Protocol::Anthropic, "claude-opus-5-5", Value::Null),
        // It thinks, and with thinking nothing is forced.
        (Protocol::Anthropic, "claude-opus-5", Value::Null),
        (Protocol::OpenAiResponses, "gpt-6-sol", json!({"type": "function", "name": "StructuredOutput"})),
        (Protocol::OpenAiChat, "gpt-6-sol", json!({"type": "function", "function": {"name": "StructuredOutput"}})),
        (Protocol::OpenAiChat, "who-knows", Value::Null),
        (Protocol::Gemini, "gemini-2.5-pro", json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["StructuredOutput"]}})),
    ] {
        let known = endpoint(protocol);
        assert_eq!(forced(&known, model, true), wanted, "{protocol:?} {model}");
        assert_eq!(forced(&known, model, false), Value::Null, "{protocol:?} {model}");
        assert_eq!(forced(&said(protocol, model, json!({"forced_tools": false})), model, true), Value::Null);
    }
    let quiet = said(Protocol::Anthropic, "claude-haiku-5-5", json!({"thinking": "disabled", "schema": false}));
    assert_eq!(forced(&quiet, "claude-haiku-5-5", true)["type"], "tool");
}

#[test]
fn a_reply_that_was_begun_is_sent_only_to_a_model_that_goes_on_with_it() {
    let begun = |raw: &str| {
        let mut talk = talk();
        talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: vec![Block::from_raw(Raw::parse(raw).unwrap())] }));
        talk
    };
    let text = begun(r#"{"type":"text","text":"It is"}"#);
    let last = |protocol, model: &str, talk: &Talk| {
        let body = body(&endpoint(protocol), model, talk);
        let all = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array().cloned()).unwrap();
        all.last().unwrap().to_string()
    };
    for (protocol, model) in [
        (Protocol::Anthropic, "claude-opus-5-5"),
        (Protocol::Anthropic, "claude-sonnet-4-6"),
        (Protocol::OpenAiResponses, "gpt-6-sol"),
        (Protocol::OpenAiChat, "qwen3"),
        (Protocol::Gemini, "gemini-3.7-flash"),
    ] {
        assert!(last(protocol, model, &text).contains("Go on."), "{model}");
    }
    assert!(last(Protocol::Anthropic, "claude-haiku-4-5", &text).contains("It is"));
    let takes = said(Protocol::OpenAiChat, "qwen3", json!({"prefill": true}));
    assert!(sent(&takes, "qwen3", &text).ends_with(r#"{"role":"assistant","content":"It is"}]}"#));
    // What the provider paused goes back as it came, whatever the model and whatever it is.
    for block in [r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#, r#"{"type":"text","text":"It is"}"#] {
        let paused = Talk { is_paused: true, ..begun(block) };
        let last = last(Protocol::Anthropic, "claude-opus-5-5", &paused);
        assert!(last.contains(r#""role":"assistant""#), "{last}");
    }
}

#[test]
fn no_cache_mark_stands_below_what_a_model_caches() {
    let marks = |model: &str, minimum: Option<u32>, system: usize| {
        let endpoint = minimum.map_or_else(|| endpoint(Protocol::Anthropic), |minimum| said(Protocol::Anthropic, model, json!({"cache_minimum": minimum})));
        let talk = Talk { system: "s".repeat(system), ..Talk::new("p/m", &"x".repeat(1_600)) };
        let body = body(&endpoint, model, &talk);
        [&body["system"][0], &body["messages"][0]["content"][0]].map(|block| block.get("cache_control").is_some())
    };
    // 3.2 bytes are taken for a token.
    assert_eq!(marks("claude-opus-5-5", None, 1_000), [false, true], "512 tokens with the first message");
    assert_eq!(marks("claude-opus-5-5", None, 1_640), [true, true]);
    assert_eq!(marks("claude-haiku-4-5", None, 1_640), [false, false], "4096");
    assert_eq!(marks("claude-haiku-4-5", None, 20_000), [true, true]);
    assert_eq!(marks("claude-haiku-4-5", Some(0), 10), [true, true]);
    assert_eq!(marks("claude-opus-5-5", Some(9_000), 20_000), [false, false]);
}

#[tokio::test]
async fn nobody_waits_for_a_prefix_that_is_too_short_to_be_cached() {
    // Both are answered only once both have come: where one waited for the other's reply to begin, none would be.
    let server = Server::start_with(|_| (Answer::Say(Said::text("done")), Delivery { meet: 2, ..Delivery::default() })).await;
    let mut endpoints = Endpoints::default();
    endpoints.insert(Endpoint::new("p", Protocol::OpenAiChat, &server.openai_url()));
    let clock = Clock::fake(Timestamp(1_796_000_000_000));
    let model = HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 16), clock.clone());
    let talk = |task: &str, system: usize| Talk { system: "s".repeat(system), ..Talk::new("p/m", task) };
    let (first, second) = (talk("a", 3_000), talk("b", 3_000));
    let before = clock.now();
    let (a, b) = (first.call(), second.call());
    let both = tokio::join!(model.reply(&a, &Silent), model.reply(&b, &Silent));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(clock.now(), before, "about 940 tokens of 1024: neither waits");
    // With a prefix that is worth it the second waits, until it is tired of that.
    let (first, second) = (talk("a", 4_000), talk("b", 4_000));
    let (a, b) = (first.call(), second.call());
    let both = tokio::join!(model.reply(&a, &Silent), model.reply(&b, &Silent));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert!(clock.now().since(before).as_secs() >= 20);
}

#[test]
fn what_the_configuration_says_of_the_cache_explains_what_was_not_read() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2000,"completion_tokens":1}}"#;
    let server = Hosted::start(move |_| (Answer::Stream(format!("data: {chunk}\n\ndata: [DONE]\n\n").into_bytes()), Delivery::default()));
    let bench = Bench::new().workflow("w", "version: 1\nname: w\nagents: { a: { system: B., model: local/m } }\nsteps: { a: { agent: a, prompt: a } }\n");
    let bench = bench.env("LOCAL_BASE_URL", &server.openai_url());
    std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
    bench.spinney(&["run", "w"]).code(0);
    let shown = || bench.spinney(&["show", &bench.newest().0, "--cache"]).code(0).out;
    assert!(shown().contains("the conversation begins"), "{}", shown());
    std::fs::write(bench.path("config/spinney/config.yaml"), "providers: { local: { models: { m: { cache_minimum: 2500 } } } }\n").unwrap();
    assert!(shown().contains("shorter than the 2500 tokens that this model caches"), "{}", shown());
}

#[tokio::test]
async fn a_container_that_is_gone_is_left_out_and_the_request_sent_once_more() {
    for status in [400, 404] {
        let server = Server::start(move |asked| match asked.json["container"].as_str() {
            Some("old") => {
                let kind = if status == 404 { "not_found_error" } else { "invalid_request_error" };
                let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"Container old has expired"}}}}"#);
                Answer::Status(status, Vec::new(), body)
            }
            _ => Answer::Say(Said::text("done")),
        })
        .await;
        let mut endpoints = Endpoints::default();
        endpoints.insert(Endpoint::new("p", Protocol::Anthropic, &server.anthropic_url()).with_key(spinney::llm::Secret::new("k")));
        let clock = Clock::fake(Timestamp(1_796_000_000_000));
        let model = HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 16), clock);
        let mut talk = Talk { container: Some("old".to_owned()), ..Talk::new("p/claude-opus-5-5", "x") };
        for (asked, words) in [(2, "go on"), (3, "and on")] {
            let reply = model.reply(&talk.call(), &Silent).await.unwrap();
            assert_eq!((reply.text().as_str(), server.asked().len()), ("done", asked), "it is refused once");
            talk.answer(&reply, words);
        }
        talk.container = Some("new".to_owned());
        model.reply(&talk.call(), &Silent).await.unwrap();
        assert_eq!(server.asked()[3].json["container"], "new");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

#[test]
fn a_reply_is_asked_for_no_longer_than_the_prompt_leaves_of_a_window_that_is_known() {
    let cap = |endpoint: &Endpoint, model: &str, wanted: Option<u32>, prompt_tokens: u64| {
        let talk = Talk { max_output_tokens: wanted, prompt_tokens, ..talk() };
        let body = body(endpoint, model, &talk);
        ["max_tokens", "max_completion_tokens", "max_output_tokens"].into_iter().find_map(|word| body[word].as_u64())
    };
    let claude = endpoint(Protocol::Anthropic);
    // Of 200 000, 3 % are kept for what estimates are wrong by.
    for (prompt, most) in [(0, 64_000), (130_000, 64_000), (150_000, 44_000), (193_500, 1_000), (500_000, 1_000)] {
        assert_eq!(cap(&claude, "claude-haiku-4-5", None, prompt), Some(most), "{prompt}");
    }
    assert_eq!(cap(&claude, "claude-haiku-4-5", Some(50_000), 150_000), Some(44_000));
    assert_eq!(cap(&claude, "claude-haiku-4-5", Some(500), 500_000), Some(500));
    let chat = endpoint(Protocol::OpenAiChat);
    assert_eq!(cap(&chat, "nobody-knows", Some(30_000), 120_000), Some(30_000), "its window is not known");
    assert_eq!(cap(&said(Protocol::OpenAiChat, "mine", json!({"window": 40_000})), "mine", Some(30_000), 20_000), Some(18_800));
    assert_eq!(cap(&chat, "nobody-knows", None, 120_000), None);
}
