//! Messages streams: assembly, stop reasons, usage, errors.
use super::{Talk, decode};
use serde_json::{Value, json};
use spinney::{
    llm::{ModelError, ModelErrorKind, Protocol, script},
    message::{Reply, StopReason, View},
};

fn read(events: &[Value]) -> Result<Reply, ModelError> {
    read_after(&Talk::new("p/m", "hi"), events)
}

fn read_after(talk: &Talk, events: &[Value]) -> Result<Reply, ModelError> {
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    let events: Vec<(&str, &str)> = texts.iter().map(|text| ("", text.as_str())).collect();
    decode(Protocol::Anthropic, talk, &events)
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
}

fn tool(index: u64, id: &str, json: &str) -> Vec<Value> {
    let head = json!({"type": "tool_use", "id": id, "name": "Read", "input": {}});
    vec![start(index, head), delta(index, json!({"type": "input_json_delta", "partial_json": json})), stop(index)]
}

fn text(index: u64, text: &str) -> Vec<Value> {
    vec![start(index, json!({"type": "text", "text": ""})), delta(index, json!({"type": "text_delta", "text": text})), stop(index)]
}

#[test]
fn every_stop_reason_has_its_meaning() {
    for (word, wanted) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("stop_sequence", StopReason::StopSequence),
        ("pause_turn", StopReason::PauseTurn),
        ("refusal", StopReason::Refusal { category: String::new() }),
        ("model_context_window_exceeded", StopReason::WindowExceeded),
        ("compaction", StopReason::Unknown("compaction".to_owned())),
        ("", StopReason::Unknown(String::new())),
        // No call, so nothing is waited for.
        ("tool_use", StopReason::EndTurn),
    ] {
        let events = [text(0, "a"), vec![end(word)]].concat();
        assert_eq!(read(&events).unwrap().stop, wanted, "{word}");
    }
    let refusal = json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "cyber"}}});
    assert_eq!(read(&[refusal]).unwrap().stop, StopReason::Refusal { category: "cyber".to_owned() });
    // A call is a call whatever the word; but not where the reply was cut or refused.
    for (word, wanted) in [
        ("tool_use", StopReason::ToolUse),
        ("end_turn", StopReason::ToolUse),
        ("stop_sequence", StopReason::ToolUse),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal { category: String::new() }),
        ("new_word", StopReason::Unknown("new_word".to_owned())),
    ] {
        let events = [tool(0, "a", "{}"), vec![end(word)]].concat();
        assert_eq!(read(&events).unwrap().stop, wanted, "{word}");
    }
}

#[test]
fn blocks_may_interleave_and_keep_their_order() {
    let events = [
        start(1, json!({"type": "text", "text": "b"})),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(1, json!({"type": "text_delta", "text": "c"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "t", "estimated_tokens": 3})),
        delta(0, json!({"type": "signature_delta", "signature": "one"})),
        delta(0, json!({"type": "signature_delta", "signature": "two"})),
        delta(0, json!({"type": "delta_of_tomorrow", "x": 1})),
        stop(1),
        stop(0),
        end("end_turn"),
    ];
    let reply = read(&events).unwrap();
    assert_eq!(reply.blocks[0].raw().as_str(), r#"{"type":"thinking","thinking":"t","signature":"two"}"#);
    assert_eq!(reply.blocks[1].raw().as_str(), r#"{"type":"text","text":"bc"}"#);
}

#[test]
fn unknown_blocks_keep_their_bytes() {
    let raw = r#"{"type":"hologram","n":123456789012345678901234567890,"f":1.10,"s":"a\/b","a":{"z":1,"y":[]},"a2":null}"#;
    let event = format!(r#"{{"type":"content_block_start","index":0,"content_block":{raw}}}"#);
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"type":"hologram_delta","x":1}}"#;
    let events = [
        ("", event.as_str()),
        ("", piece),
        ("", r#"{"type":"content_block_stop","index":0}"#),
        ("", r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#),
    ];
    let reply = decode(Protocol::Anthropic, &Talk::new("p/m", "hi"), &events).unwrap();
    assert_eq!(reply.blocks[0].raw().as_str(), raw);
    assert_eq!(reply.blocks[0].view(), &View::Other("hologram".to_owned()));
    // The input of a provider's own tool comes in pieces as well.
    let head = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}});
    let pieces = [start(0, head), delta(0, json!({"type": "input_json_delta", "partial_json": "{\"q\": 1.0}"})), stop(0), end("pause_turn")];
    assert_eq!(read(&pieces).unwrap().blocks[0].raw().as_str(), r#"{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"q": 1.0}}"#);
}

#[test]
fn citations_are_gathered() {
    let events = [
        start(0, json!({"type": "text", "text": "", "citations": []})),
        delta(0, json!({"type": "text_delta", "text": "x"})),
        delta(0, json!({"type": "citations_delta", "citation": {"url": "a"}})),
        delta(0, json!({"type": "citations_delta", "citation": {"url": "b"}})),
        stop(0),
        end("end_turn"),
    ];
    assert_eq!(read(&events).unwrap().blocks[0].raw().as_str(), r#"{"type":"text","text":"x","citations":[{"url":"a"},{"url":"b"}]}"#);
}

#[test]
fn arguments_are_an_object_or_are_kept_to_be_answered() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(126), "]".repeat(126));
    for (given, invalid) in [
        ("", None),
        ("{}", None),
        ("{\"a\": 1.10}", None),
        ("{\"a\":", Some("{\"a\":")),
        ("[1]", Some("[1]")),
        ("null", Some("null")),
        ("{} {}", Some("{} {}")),
        (deep.as_str(), Some(deep.as_str())),
    ] {
        let reply = read(&[tool(0, "a", given), vec![end("tool_use")]].concat()).unwrap();
        let call = reply.calls().next().unwrap();
        assert_eq!(call.invalid_input(), invalid, "{given}");
        assert_eq!(reply.stop, StopReason::ToolUse);
    }
    let reply = read(&[tool(0, "a", "{\"a\": 1.10, \"b\":1e400}"), vec![end("tool_use")]].concat()).unwrap();
    assert!(reply.calls().next().unwrap().invalid_input().is_some(), "a number that no parser takes");
    let reply = read(&[start(0, json!({"type": "tool_use", "id": "a", "name": "Read", "input": {"whole": true}})), stop(0), end("tool_use")]).unwrap();
    assert_eq!(reply.calls().next().unwrap().input, json!({"whole": true}));
}

#[test]
fn lone_surrogates_are_replaced_before_anything_is_kept() {
    let events = [
        ("", r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#),
        ("", r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}"#),
        ("", r#"{"type":"content_block_stop","index":0}"#),
        ("", r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"Write","input":{}}}"#),
        ("", r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"s\":\"\\ud8"}}"#),
        ("", r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"3d|\\ud83d\\ude00\"}"}}"#),
        ("", r#"{"type":"content_block_stop","index":1}"#),
        ("", r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#),
    ];
    let reply = decode(Protocol::Anthropic, &Talk::new("p/m", "hi"), &events).unwrap();
    assert_eq!(reply.text(), "a\u{fffd}");
    assert_eq!(reply.calls().next().unwrap().input, json!({"s": "\u{fffd}|😀"}));
}

#[test]
fn usage_is_overwritten_and_iterations_are_added_up() {
    let begin = json!({"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 7, "output_tokens": 1}}});
    let middle = json!({"type": "message_delta", "delta": {"stop_reason": null}, "usage": {"output_tokens": 5, "input_tokens": null}});
    let last = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 8, "cache_creation_input_tokens": 2}});
    let reply = read(&[begin.clone(), middle, last]).unwrap();
    assert_eq!((reply.usage.input, reply.usage.output, reply.usage.cache_read, reply.usage.cache_write), (10, 8, 7, 2));
    let iterations = json!([{"type": "compaction", "input_tokens": 100, "output_tokens": 20}, {"type": "message", "input_tokens": 10, "output_tokens": 8}]);
    let last = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 8, "iterations": iterations}});
    let reply = read(&[begin, last]).unwrap();
    assert_eq!((reply.usage.input, reply.usage.output), (110, 28));
}

#[test]
fn empty_text_is_dropped_and_repeated_ids_are_replaced() {
    let mut talk = Talk::new("p/m", "hi");
    talk.answer(&script::reply("", &[("Read", json!({}))]), "ok");
    let events = [text(0, " \n"), tool(1, "call_0_0", "{}"), tool(2, "", "{}"), tool(3, "b", "{}"), tool(4, "b", "{}"), vec![end("tool_use")]].concat();
    let ids = |reply: &Reply| reply.calls().map(|call| call.id.clone()).collect::<Vec<_>>();
    let reply = read_after(&talk, &events).unwrap();
    assert_eq!(ids(&reply), ["call_0_0-2", "call_1_2", "b", "b-2"]);
    assert_eq!(reply.blocks.len(), 4);
    assert_eq!(read_after(&talk, &events).unwrap(), reply, "the same again after a crash");
}

#[test]
fn what_breaks_the_grammar_is_a_failed_attempt() {
    let open = start(0, json!({"type": "text", "text": "a"}));
    for events in [
        vec![],
        text(0, "whole, but why did it stop?"),
        vec![open.clone(), end("end_turn")],
        vec![open.clone(), open.clone()],
        vec![delta(3, json!({"type": "text_delta", "text": "x"}))],
        vec![stop(0)],
        vec![json!({"type": "content_block_start", "content_block": {"type": "text"}})],
        vec![json!({"type": "content_block_start", "index": 0})],
        vec![json!({"type": "message_stop"})],
        vec![json!([1, 2])],
    ] {
        assert_eq!(read(&events).unwrap_err().kind, ModelErrorKind::Cut, "{events:?}");
    }
    // What came to its end and cannot be read is no broken stream; in the last block of a reply that was cut it does no harm.
    let nameless = vec![start(0, json!({"type": "tool_use", "id": "a", "name": "", "input": {}})), stop(0)];
    let head = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}});
    let half = |index| vec![start(index, head.clone()), delta(index, json!({"type": "input_json_delta", "partial_json": "{\"q\": \"a"})), stop(index)];
    for events in
        [[nameless, vec![end("tool_use")]].concat(), [half(0), vec![end("end_turn")]].concat(), [half(0), text(1, "a"), vec![end("max_tokens")]].concat()]
    {
        assert_eq!(read(&events).unwrap_err().kind, ModelErrorKind::Garbled, "{events:?}");
    }
    for word in ["max_tokens", "model_context_window_exceeded"] {
        let reply = read(&[text(0, "a"), half(1), vec![end(word)]].concat()).unwrap();
        assert_eq!((reply.blocks.len(), reply.text().as_str(), reply.stop.word()), (1, "a", word));
    }
    let many: Vec<Value> = (0..5_000).map(|index| start(index, json!({"type": "text", "text": ""}))).collect();
    assert_eq!(read(&many).unwrap_err().kind, ModelErrorKind::Cut);
}

#[test]
fn errors_inside_the_stream_are_classed() {
    for (kind, wanted) in [
        ("overloaded_error", ModelErrorKind::Overloaded),
        ("api_error", ModelErrorKind::Overloaded),
        ("rate_limit_error", ModelErrorKind::Overloaded),
        ("authentication_error", ModelErrorKind::Unauthorized),
        ("invalid_request_error", ModelErrorKind::Rejected),
        ("error_of_tomorrow", ModelErrorKind::Overloaded),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": "sorry"}, "request_id": "req_1"});
        let failed = read(&[text(0, "partial"), vec![error]].concat()).unwrap_err();
        assert_eq!(failed.kind, wanted, "{kind}");
        assert!(failed.message.contains("p/m") && failed.message.contains("sorry"), "{failed}");
    }
}
