//! The exact bytes of requests.
use super::{Talk, sent as body};
use serde_json::{Value, json};
use spinney::{
    http::HttpRequest,
    llm::{Endpoint, Endpoints, ModelErrorKind, Protocol, Secret, Target, provider},
    message::{Block, Message, Raw, Role, ToolCall, ToolResult, ToolSpec},
};
use std::sync::Arc;

fn anthropic() -> Endpoint {
    let mut endpoint = Endpoint::new("anthropic", Protocol::Anthropic, "https://api.anthropic.com/").with_key(Secret::new("sk-1"));
    // Marks stand where the prompt is long enough: here it always is.
    for model in ["claude-opus-5-5", "claude-haiku-4-5", "m"] {
        endpoint.models.insert(model.to_owned(), json!({"cache_minimum": 0}).as_object().unwrap().clone());
    }
    endpoint
}

fn request(endpoint: &Endpoint, model: &str, talk: &Talk) -> HttpRequest {
    provider(endpoint.protocol).request(&talk.call(), Target { endpoint, model }).unwrap()
}

fn raw(text: &str) -> Block {
    Block::from_raw(Raw::parse(text).unwrap())
}

/// A conversation of two turns with blocks whose bytes a JSON library would change.
fn long(model: &str) -> Talk {
    let mut talk = Talk::new(model, "Do \"it\".");
    talk.tools = ["Grep", "Read"]
        .map(|name| ToolSpec { name: name.to_owned(), description: format!("{name}s"), input_schema: json!({"type": "object", "b": 1, "a": 2}) })
        .to_vec();
    talk.messages.push(Arc::new(Message {
        role: Role::Assistant,
        blocks: vec![
            raw(r#"{"type":"thinking","thinking":"t\/t","signature":"sig"}"#),
            raw(r#"{"type":"text","text":"a\u2028b"}"#),
            raw(r#"{"type":"tool_use","id":"c1","name":"Read","input":{"n": 1.10},"arguments":"{\"n\": 1.10}"}"#),
            raw(r#"{"type":"tool_use","id":"c2","name":"Grep","input":{"INVALID_JSON":"{"}}"#),
        ],
    }));
    talk.messages.push(Arc::new(Message::results(&[ToolResult::new("c1", "one", false), ToolResult::new("c2", "not JSON", true)], Some("Go on."))));
    talk
}

#[test]
fn an_anthropic_request_is_these_bytes() {
    let mut talk = long("anthropic/claude-opus-5-5");
    talk.effort = Some("high".to_owned());
    talk.schema = Some(json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}));
    let request = request(&anthropic(), "claude-opus-5-5", &talk);
    assert_eq!(request.url, "https://api.anthropic.com/v1/messages");
    let headers: Vec<(&str, &str)> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("content-type", "application/json"), ("accept", "text/event-stream"), ("anthropic-version", "2026-10-21"), ("x-api-key", "sk-1")]);
    let wanted = [
        r#"{"model":"claude-opus-5-5","stream":true,"cache_control":{"type":"ephemeral"},"thinking":{"type":"adaptive","display":"summarized"},"#,
        r#""output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}},"#,
        r#""tools":[{"name":"Grep","description":"Greps","input_schema":{"type":"object","b":1,"a":2}},"#,
        r#"{"name":"Read","description":"Reads","input_schema":{"type":"object","b":1,"a":2},"cache_control":{"type":"ephemeral"}}],"#,
        r#""system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"Do \"it\".","cache_control":{"type":"ephemeral"}}]},"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t\/t","signature":"sig"},{"type":"text","text":"a\u2028b"},"#,
        r#"{"type":"tool_use","id":"c1","name":"Read","input":{"n": 1.10},"arguments":"{\"n\": 1.10}"},"#,
        r#"{"type":"tool_use","id":"c2","name":"Grep","input":{"INVALID_JSON":"{"}}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"one"},"#,
        r#"{"type":"tool_result","tool_use_id":"c2","content":"not JSON","is_error":true},"#,
        r#"{"type":"text","text":"Go on."}]}],"max_tokens":128000}"#,
    ];
    assert_eq!(String::from_utf8(request.body).unwrap(), wanted.concat());
}

#[test]
fn a_chat_request_is_these_bytes() {
    let mut talk = long("local/qwen3");
    talk.max_output_tokens = Some(100);
    talk.effort = Some("low".to_owned());
    talk.schema = Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
    let endpoint = Endpoint { takes_schema: true, ..Endpoint::new("local", Protocol::OpenAiChat, "http://127.0.0.1:8080/v1").with_key(Secret::new("k")) };
    let request = request(&endpoint, "qwen3", &talk);
    assert_eq!(request.url, "http://127.0.0.1:8080/v1/chat/completions");
    assert_eq!(request.headers.last().unwrap(), &("authorization".to_owned(), "Bearer k".to_owned()));
    let wanted = [
        r#"{"model":"qwen3","stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low","#,
        r#""response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}},"#,
        r#""tools":[{"type":"function","function":{"name":"Grep","description":"Greps","parameters":{"type":"object","b":1,"a":2}}},"#,
        r#"{"type":"function","function":{"name":"Read","description":"Reads","parameters":{"type":"object","b":1,"a":2}}}],"#,
        r#""messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Do \"it\"."},"#,
        r#"{"role":"assistant","content":"a\u2028b","tool_calls":[{"id":"c1","type":"function","function":{"name":"Read","arguments":"{\"n\": 1.10}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"Grep","arguments":"{\"INVALID_JSON\":\"{\"}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"not JSON"},{"role":"user","content":"Go on."}],"max_tokens":100}"#,
    ];
    assert_eq!(String::from_utf8(request.body).unwrap(), wanted.concat());
}

#[test]
fn reasoning_goes_back_only_to_models_that_want_it() {
    let endpoint = Endpoint::new("deepseek", Protocol::OpenAiChat, "https://api.deepseek.com/v1");
    let talk = long("deepseek/deepseek-v4");
    assert!(body(&endpoint, "deepseek-v4", &talk).contains(r#""content":"a\u2028b","reasoning_content":"t\/t","tool_calls""#));
    assert!(!body(&endpoint, "qwen3", &talk).contains("reasoning_content"));
}

#[test]
fn each_turn_repeats_the_bytes_of_the_one_before() {
    let talk = long("anthropic/claude-opus-5-5");
    let mut before = Talk::new("anthropic/claude-opus-5-5", "Do \"it\".");
    before.tools.clone_from(&talk.tools);
    let unmarked = |text: String| text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    let (first, second) = (unmarked(body(&anthropic(), "claude-opus-5-5", &before)), unmarked(body(&anthropic(), "claude-opus-5-5", &talk)));
    assert!(second.starts_with(first.rsplit_once(r#"],"max_tokens""#).unwrap().0), "{first}\n{second}");
    assert_eq!(body(&anthropic(), "claude-opus-5-5", &talk), body(&anthropic(), "claude-opus-5-5", &talk));
}

#[test]
fn a_transcript_that_was_stored_gives_the_same_bytes() {
    let talk = long("anthropic/claude-opus-5-5");
    let mut stored = long("anthropic/claude-opus-5-5");
    stored.messages = talk.messages.iter().map(|message| Arc::new(serde_json::from_str(&serde_json::to_string(message.as_ref()).unwrap()).unwrap())).collect();
    stored.tools = serde_json::from_str(&serde_json::to_string(&talk.tools).unwrap()).unwrap();
    for endpoint in [anthropic(), Endpoint::new("local", Protocol::OpenAiChat, "http://127.0.0.1/v1")] {
        assert_eq!(body(&endpoint, "m", &talk), body(&endpoint, "m", &stored));
    }
}

#[test]
fn consecutive_messages_of_one_side_become_one() {
    let mut talk = Talk::new("anthropic/m", "one");
    talk.messages.push(Arc::new(Message::user("two")));
    let sent: Value = serde_json::from_str(&body(&anthropic(), "m", &talk)).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 1);
    let chat = Endpoint::new("local", Protocol::OpenAiChat, "http://127.0.0.1/v1");
    assert!(body(&chat, "m", &talk).contains(r#"{"role":"user","content":"one\n\ntwo"}"#));
    // A turn that the provider paused is sent again as it is, the assistant last.
    talk.is_paused = true;
    talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: vec![raw(r#"{"type":"server_tool_use","id":"s","name":"w","input":{}}"#)] }));
    let paused = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"w","input":{}}]}],"max_tokens":"#;
    assert!(body(&anthropic(), "m", &talk).contains(paused));
}

#[test]
fn where_a_providers_tool_waits_for_ours_nothing_but_results_is_said() {
    let search = r#"{"type":"server_tool_use","id":"s1","name":"code_execution","input":{}}"#;
    let found = r#"{"type":"code_execution_tool_result","tool_use_id":"s1","content":[]}"#;
    let call = r#"{"type":"tool_use","id":"c1","name":"Read","input":{}}"#;
    let said = |blocks: &[&str]| {
        let mut talk = Talk::new("anthropic/m", "x");
        talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: blocks.iter().map(|block| raw(block)).collect() }));
        talk.messages.push(Arc::new(Message::results(&[ToolResult::new("c1", "one", true)], Some("A hook says so."))));
        let body = body(&Endpoint::new("anthropic", Protocol::Anthropic, "http://127.0.0.1"), "m", &talk);
        body.split_once(r#","max_tokens""#).unwrap().0.to_owned()
    };
    let hook = r#"{"type":"text","text":"A hook says so."}"#;
    let alone = format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1","content":[{{"type":"text","text":"one"}},{hook}],"is_error":true}}]}}]"#
    );
    assert!(said(&[search, call]).ends_with(&alone), "{}", said(&[search, call]));
    let apart = format!(r#"{{"type":"tool_result","tool_use_id":"c1","content":"one","is_error":true}},{hook}]}}]"#);
    assert!(said(&[search, found, call]).ends_with(&apart), "{}", said(&[search, found, call]));
}

#[test]
fn what_a_cut_reply_asked_a_tool_at_the_provider_is_not_sent_back() {
    let said = |blocks: &[&str], next: Message| {
        let mut talk = Talk::new("anthropic/m", "x");
        talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: blocks.iter().map(|block| raw(block)).collect() }));
        talk.messages.push(Arc::new(next));
        body(&Endpoint::new("anthropic", Protocol::Anthropic, "http://127.0.0.1"), "m", &talk)
    };
    let (text, call) = (r#"{"type":"text","text":"I look."}"#, r#"{"type":"tool_use","id":"c1","name":"Read","input":{}}"#);
    for (kind, result) in [("server_tool_use", "web_search_tool_result"), ("mcp_tool_use", "mcp_tool_result")] {
        let asks = format!(r#"{{"type":"{kind}","id":"s1","name":"web_search","input":{{}}}}"#);
        let found = format!(r#"{{"type":"{result}","tool_use_id":"s1","content":[]}}"#);
        let go_on = || Message::user("Go on.");
        assert!(said(&[text, &asks], go_on()).contains(&format!(r#"{{"role":"assistant","content":[{text}]}}"#)), "{kind}");
        assert!(said(&[&asks], go_on()).contains(r#"{"type":"text","text":"x"},{"type":"text","text":"Go on."}"#), "{kind}: nothing is left of it");
        assert!(said(&[text, &asks, &found], go_on()).contains(&format!("[{text},{asks},{found}]")), "{kind}: it was answered");
        // It waits for ours.
        let results = Message::results(&[ToolResult::new("c1", "one", false)], None);
        assert!(said(&[&asks, call], results).contains(&format!("[{asks},{call}]")), "{kind}");
    }
}

/// A conversation of the user's turns `more 0` to `more 5`, the last reply but one with so many calls.
fn in_turns(calls: usize) -> Talk {
    let mut talk = long("anthropic/claude-opus-5-5");
    for n in 0..6 {
        let ids: Vec<String> = (0..if n == 4 { calls } else { 1 }).map(|call| format!("call {n} {call}")).collect();
        let made = ids.iter().map(|id| Block::tool_call(&ToolCall { id: id.clone(), name: "Read".to_owned(), input: json!({}) })).collect();
        talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: made }));
        let results: Vec<ToolResult> = ids.iter().map(|id| ToolResult::new(id, "ok", false)).collect();
        talk.messages.push(Arc::new(Message::results(&results, Some(&format!("more {n}")))));
    }
    talk
}

#[test]
fn at_most_four_cache_marks_and_never_on_what_has_one() {
    // Anthropic itself sets the last one, and looks back from it: the other one stays, unless more came at once than it looks back over.
    let marked = |sent: &str| ["it\\\".", "Go on.", "more 3", "more 4", "more 5"].map(|text| sent.contains(&format!(r#"{text}","cache_control""#)));
    for (calls, wanted) in [(1, [true, false, false, false, false]), (9, [true, false, false, false, false]), (10, [false, false, true, false, false])] {
        let sent = body(&anthropic(), "claude-opus-5-5", &in_turns(calls));
        assert_eq!((sent.matches("cache_control").count(), marked(&sent)), (4, wanted), "{calls} calls");
        assert!(sent.starts_with(r#"{"model":"claude-opus-5-5","stream":true,"cache_control":{"type":"ephemeral"}"#));
    }
    // Others refuse the field that has it do so: both marks stand on the last two turns.
    let other = Endpoint { base_url: "https://gateway.example".to_owned(), ..anthropic() };
    let sent = body(&other, "claude-opus-5-5", &in_turns(1));
    assert_eq!((sent.matches("cache_control").count(), marked(&sent)), (4, [false, false, false, true, true]));
    let mut marked = Talk::new("anthropic/m", "x");
    let text = r#"{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}"#;
    marked.messages = vec![Arc::new(Message { role: Role::User, blocks: vec![raw(text), raw(r#"{"type":"document","x":1}"#)] })];
    assert!(body(&other, "m", &marked).contains(&format!(r#""messages":[{{"role":"user","content":[{text},{{"type":"document","x":1}}]}}],"#)));
}

#[test]
fn a_model_gets_only_what_it_takes() {
    let mut talk = Talk::new("anthropic/claude-haiku-4-5", "x");
    talk.effort = Some("high".to_owned());
    talk.system = " ".to_owned();
    talk.max_output_tokens = Some(10_000_000);
    assert_eq!(
        body(&anthropic(), "claude-haiku-4-5", &talk),
        r#"{"model":"claude-haiku-4-5","stream":true,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_tokens":64000}"#
    );
    talk.effort = Some("huge".to_owned());
    let endpoint = anthropic();
    let error = provider(Protocol::Anthropic).request(&talk.call(), Target { endpoint: &endpoint, model: "claude-opus-5-5" }).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Rejected);
    assert!(error.hint.unwrap().contains("low, medium, high, xhigh, max"));
    // A schema that cannot be said in the provider's terms is left out: the answer is checked anyway.
    talk.effort = None;
    talk.schema = Some(json!({"$ref": "#"}));
    assert!(!body(&anthropic(), "claude-opus-5-5", &talk).contains("output_config"));
}

#[test]
fn the_endpoints_headers_win() {
    let mut endpoint = anthropic();
    endpoint.headers = vec![("Anthropic-Version".to_owned(), "2023-06-01".to_owned()), ("anthropic-beta".to_owned(), "a,b".to_owned())];
    let headers = request(&endpoint, "m", &Talk::new("anthropic/m", "x")).headers;
    assert_eq!(headers.iter().filter(|(name, _)| name == "anthropic-version").count(), 1);
    assert!(headers.contains(&("anthropic-version".to_owned(), "2023-06-01".to_owned())) && headers.contains(&("anthropic-beta".to_owned(), "a,b".to_owned())));
}

#[test]
fn openai_itself_gets_its_own_words() {
    let endpoints = Endpoints::from_env(&|_| None);
    let mut talk = Talk::new("openai/gpt-6-sol", "x");
    talk.max_output_tokens = Some(5);
    let chat = |url: &str| Endpoint { base_url: url.to_owned(), protocol: Protocol::OpenAiChat, ..endpoints.get("openai").unwrap().clone() };
    for url in ["https://api.openai.com/v1", "http://127.0.0.1:4000/v1"] {
        // It is the model that counts its reasoning, wherever it is served.
        for (model, word) in [("gpt-6-sol", "max_completion_tokens"), ("openai/o3", "max_completion_tokens"), ("gpt-4o", "max_tokens"), ("qwen3", "max_tokens")]
        {
            assert!(body(&chat(url), model, &talk).contains(&format!(r#""{word}":5"#)), "{model} at {url}");
        }
    }
    let mut said = chat("http://127.0.0.1:4000/v1");
    said.models.insert("qwen3".to_owned(), json!({"max_completion_tokens": true}).as_object().unwrap().clone());
    assert!(body(&said, "qwen3", &talk).contains(r#""max_completion_tokens":5"#));
    let responses =
        |tokens| body(endpoints.get("openai").unwrap(), "gpt-6-sol", &Talk { max_output_tokens: Some(tokens), ..Talk::new("openai/gpt-6-sol", "x") });
    assert!(responses(5).ends_with(r#","max_output_tokens":16}"#) && responses(17).ends_with(r#","max_output_tokens":17}"#), "it takes none below 16");
    assert!(body(endpoints.get("ollama").unwrap(), "gpt-oss", &talk).contains(r#""max_tokens":5"#));
}

#[test]
fn what_another_protocol_kept_is_no_obstacle() {
    let mut talk = Talk::new("local/m", "x");
    let call = ToolCall { id: "c".to_owned(), name: "Read".to_owned(), input: json!({"a": 1}) };
    talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: vec![raw(r#"{"type":"hologram"}"#), Block::tool_call(&call)] }));
    talk.messages.push(Arc::new(Message::results(&[ToolResult::new("c", "", false)], None)));
    let chat = Endpoint::new("local", Protocol::OpenAiChat, "http://127.0.0.1/v1");
    assert!(body(&chat, "m", &talk).ends_with(
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"Read","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c","content":"(no output)"}]}"#
    ));
}
