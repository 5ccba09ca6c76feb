//! Gemini streams: parts, signatures, finish reasons, usage, errors, and what is sent back.
use super::{Talk, decode, sent};
use serde_json::{Value, json};
use spinney::{
    llm::{Endpoint, ModelError, ModelErrorKind, Protocol, Secret, Target, provider},
    message::{Block, Reply, StopReason, ToolSpec, View},
};

fn endpoint() -> Endpoint {
    Endpoint::new("gemini", Protocol::Gemini, "https://generativelanguage.googleapis.com/v1beta").with_key(Secret::new("k"))
}

fn read(chunks: &[String]) -> Result<Reply, ModelError> {
    let events: Vec<(&str, &str)> = chunks.iter().map(|chunk| ("", chunk.as_str())).collect();
    decode(Protocol::Gemini, &Talk::new("p/m", "hi"), &events)
}

fn parts(parts: &[&str]) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{}]}},"index":0}}]}}"#, parts.join(","))
}

fn finish(word: &str) -> String {
    json!({"candidates": [{"content": {"parts": []}, "finishReason": word}]}).to_string()
}

const CALL: &str = r#"{"functionCall":{"name":"Read","args":{"n": 1.10},"id":"x1"},"thoughtSignature":"c2ln\/=="}"#;
const SECOND: &str = r#"{"functionCall":{"name":"Grep"}}"#;
const SIGNATURE: &str = r#"{"text":"","thoughtSignature":"bGFzdA=="}"#;
const CODE: &str = r#"{"executableCode":{"language":"PYTHON","code":"print(1)"}}"#;
const TOMORROW: &str = r#"{"hologram":{"z":1,"a":[1e2,null]}}"#;

#[test]
fn parts_are_blocks_and_what_is_more_than_text_goes_back_in_its_bytes() {
    let thought = r#"{"text":"h","thought":true}"#;
    let chunks = [
        parts(&[thought]),
        parts(&[r#"{"thought":true,"text":"m"}"#]),
        parts(&[r#"{"text":"a"}"#]),
        parts(&[r#"{"text":"\u2028b"}"#, CODE]),
        parts(&[TOMORROW, r#"{"text":"signed","thoughtSignature":"dGV4dA=="}"#, CALL]),
        parts(&[SECOND, SIGNATURE]),
        finish("STOP"),
    ];
    let reply = read(&chunks).unwrap();
    let views: Vec<&View> = reply.blocks.iter().map(Block::view).collect();
    assert_eq!(views[0], &View::Thinking("hm".to_owned()));
    assert_eq!(views[1], &View::Text("a\u{2028}b".to_owned()));
    assert_eq!((views[2], views[3]), (&View::Other("executableCode".to_owned()), &View::Other("hologram".to_owned())));
    assert_eq!((views[4], views[7]), (&View::Text("signed".to_owned()), &View::Other("signature".to_owned())));
    let calls: Vec<String> = reply.calls().map(|call| format!("{} {} {}", call.id, call.name, call.input)).collect();
    assert_eq!(calls, [r#"x1 Read {"n":1.1}"#, "call_0_2 Grep {}"]);
    assert_eq!(reply.stop, StopReason::ToolUse, "STOP with calls");
    let mut talk = Talk::new("gemini/gemini-3.7-flash", "hi");
    talk.answer(&reply, "one");
    let model = format!(
        r#"{{"role":"model","parts":[{{"text":"hm","thought":true}},{{"text":"a{}b"}},{CODE},{TOMORROW},{{"text":"signed","thoughtSignature":"dGV4dA=="}},{CALL},{SECOND},{SIGNATURE}]}}"#,
        '\u{2028}'
    );
    let user = r#"{"role":"user","parts":[{"functionResponse":{"name":"Read","id":"x1","response":{"output":"one"}}},{"functionResponse":{"name":"Grep","response":{"output":"one"}}}]}"#;
    let body = sent(&endpoint(), "gemini-3.7-flash", &talk);
    assert!(
        body.ends_with(&format!(
            r#""contents":[{{"role":"user","parts":[{{"text":"hi"}}]}},{model},{user}],"generationConfig":{{"thinkingConfig":{{"includeThoughts":true}}}}}}"#
        )),
        "{body}"
    );
}

#[test]
fn a_request_is_these_bytes() {
    let mut talk = Talk::new("gemini/gemini-3.7-flash", "Do \"it\".");
    talk.tools =
        vec![ToolSpec { name: "Read".to_owned(), description: "Reads".to_owned(), input_schema: json!({"type": "object", "properties": {"a": {"const": 1}}}) }];
    talk.effort = Some("low".to_owned());
    talk.max_output_tokens = Some(100);
    talk.schema = Some(json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}));
    let endpoint = endpoint();
    let request = provider(Protocol::Gemini).request(&talk.call(), Target { endpoint: &endpoint, model: "models/gemini-3.7-flash" }).unwrap();
    assert_eq!(request.url, "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.7-flash:streamGenerateContent?alt=sse");
    assert!(request.headers.contains(&("x-goog-api-key".to_owned(), "k".to_owned())));
    let wanted = [
        r#"{"tools":[{"functionDeclarations":[{"name":"Read","description":"Reads","parametersJsonSchema":{"type":"object","properties":{"a":{"enum":[1]}}}}]}],"#,
        r#""systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"Do \"it\"."}]}],"#,
        r#""generationConfig":{"maxOutputTokens":100,"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"LOW"},"responseMimeType":"application/json","#,
        r#""responseJsonSchema":{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}}}"#,
    ];
    assert_eq!(String::from_utf8(request.body).unwrap(), wanted.concat());
    // Behind a gateway the key may go as a bearer's.
    let behind = Endpoint { bearer: true, ..endpoint };
    let request = provider(Protocol::Gemini).request(&talk.call(), Target { endpoint: &behind, model: "m" }).unwrap();
    assert!(
        request.headers.contains(&("authorization".to_owned(), "Bearer k".to_owned())) && !request.headers.iter().any(|(name, _)| name == "x-goog-api-key")
    );
}

#[test]
fn every_finish_reason_has_its_meaning() {
    let text = || parts(&[r#"{"text":"x"}"#]);
    let refusal = |word: &str| StopReason::Refusal { category: word.to_ascii_lowercase() };
    for (word, wanted) in [
        ("STOP", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", refusal("SAFETY")),
        ("RECITATION", refusal("RECITATION")),
        ("LANGUAGE", refusal("LANGUAGE")),
        ("BLOCKLIST", refusal("BLOCKLIST")),
        ("PROHIBITED_CONTENT", refusal("PROHIBITED_CONTENT")),
        ("SPII", refusal("SPII")),
        ("TOO_MANY_TOOL_CALLS", StopReason::Unknown("TOO_MANY_TOOL_CALLS".to_owned())),
        ("OTHER", StopReason::Unknown("OTHER".to_owned())),
        ("NOVELTY", StopReason::Unknown("NOVELTY".to_owned())),
    ] {
        assert_eq!(read(&[text(), finish(word)]).unwrap().stop, wanted, "{word}");
    }
    for (word, kind) in [
        ("MALFORMED_FUNCTION_CALL", ModelErrorKind::Garbled),
        ("UNEXPECTED_TOOL_CALL", ModelErrorKind::Garbled),
        ("MALFORMED_RESPONSE", ModelErrorKind::Garbled),
        ("MISSING_THOUGHT_SIGNATURE", ModelErrorKind::Rejected),
    ] {
        assert_eq!(read(&[text(), finish(word)]).unwrap_err().kind, kind, "{word}");
    }
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}}).to_string();
    let reply = read(&[blocked]).unwrap();
    assert_eq!((reply.stop, reply.blocks.len(), reply.usage.input), (refusal("PROHIBITED_CONTENT"), 0, 4));
    for word in ["STOP", "FUNCTION_CALL", "TOOL_CALLS"] {
        assert_eq!(read(&[parts(&[CALL]), finish(word)]).unwrap().stop, StopReason::ToolUse, "{word}");
    }
    // A call in a reply that was cut keeps the word, so that it is not run.
    assert_eq!(read(&[parts(&[CALL]), finish("MAX_TOKENS")]).unwrap().stop, StopReason::MaxTokens);
}

#[test]
fn only_a_finish_reason_ends_a_reply() {
    for chunks in [
        vec![],
        vec![parts(&[r#"{"text":"x"}"#])],
        vec![parts(&[CALL])],
        vec![parts(&[r#"{"functionCall":{"name":""}}"#]), finish("STOP")],
        vec![parts(&["[1]"]), finish("STOP")],
        vec!["[1]".to_owned()],
    ] {
        assert_eq!(read(&chunks).unwrap_err().kind, ModelErrorKind::Cut, "{chunks:?}");
    }
    let many: Vec<String> = (0..5_000).map(|_| parts(&[CODE])).collect();
    assert_eq!(read(&many).unwrap_err().kind, ModelErrorKind::Cut);
}

#[test]
fn errors_are_classed() {
    for (code, status, wanted) in [
        (429, "RESOURCE_EXHAUSTED", ModelErrorKind::Overloaded),
        (503, "UNAVAILABLE", ModelErrorKind::Overloaded),
        (403, "PERMISSION_DENIED", ModelErrorKind::Unauthorized),
        (400, "INVALID_ARGUMENT", ModelErrorKind::Rejected),
    ] {
        let error = json!({"error": {"code": code, "message": "sorry", "status": status}}).to_string();
        let failed = read(&[parts(&[r#"{"text":"x"}"#]), error]).unwrap_err();
        assert_eq!(failed.kind, wanted, "{status}");
        assert!(failed.message.contains("sorry"), "{failed}");
    }
}

#[test]
fn thoughts_are_counted_as_output_and_cached_tokens_apart() {
    let usage: Value = json!({
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 9
    });
    let chunk = json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}], "usageMetadata": usage}).to_string();
    let reply = read(&[chunk]).unwrap();
    assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (49, 60, 37));
}

#[test]
fn arguments_nested_too_deeply_are_told_to_the_model() {
    let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let reply = read(&[parts(&[&format!(r#"{{"functionCall":{{"name":"Read","args":{{"a":{deep}}}}}}}"#)]), finish("STOP")]).unwrap();
    assert!(reply.calls().next().unwrap().invalid_input().is_some());
}

#[test]
fn what_failed_is_said_to_have_failed() {
    let mut talk = Talk::new("gemini/m", "hi");
    let reply = read(&[parts(&[CALL]), finish("STOP")]).unwrap();
    talk.messages.extend(reply.message().map(std::sync::Arc::new));
    talk.messages.push(std::sync::Arc::new(spinney::message::Message::results(&[spinney::message::ToolResult::new("x1", "no", true)], Some("Go on."))));
    assert!(sent(&endpoint(), "m", &talk).contains(r#"{"functionResponse":{"name":"Read","id":"x1","response":{"error":"no"}}},{"text":"Go on."}]}],"#));
}
