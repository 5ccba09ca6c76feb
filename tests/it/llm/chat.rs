//! Chat Completions streams, and the many ways servers have of speaking them.
use super::{Talk, decode};
use serde_json::{Value, json};
use spinney::{
    llm::{ModelError, ModelErrorKind, Protocol, script},
    message::{Reply, StopReason, View},
};

fn chunk(delta: Value, finish: Option<&str>) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

fn calls(fragments: Value) -> String {
    chunk(json!({"tool_calls": fragments}), None)
}

fn read(chunks: &[String]) -> Result<Reply, ModelError> {
    let events: Vec<(&str, &str)> = chunks.iter().map(|chunk| ("", chunk.as_str())).collect();
    decode(Protocol::OpenAiChat, &Talk::new("p/m", "hi"), &events)
}

/// Reads calls that end in the given finish reason, as `id name input`.
fn read_calls(chunks: &[Value], finish: &str) -> Vec<String> {
    let mut texts: Vec<String> = chunks.iter().map(|fragments| calls(fragments.clone())).collect();
    texts.push(chunk(json!({}), Some(finish)));
    let reply = read(&texts).unwrap();
    assert_eq!(reply.stop, StopReason::ToolUse);
    reply.calls().map(|call| format!("{} {} {}", call.id, call.name, call.input)).collect()
}

fn f(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: Option<&str>) -> Value {
    let mut fragment = json!({"function": {}});
    for (key, value) in [("index", index.map(Value::from)), ("id", id.map(Value::from))] {
        if let Some(value) = value {
            fragment[key] = value;
        }
    }
    for (key, value) in [("name", name), ("arguments", arguments)] {
        if let Some(value) = value {
            fragment["function"][key] = value.into();
        }
    }
    fragment
}

#[test]
fn a_stop_with_calls_is_a_tool_use() {
    let whole = json!([f(Some(0), Some("a"), Some("Read"), Some("{\"x\":1}"))]);
    for finish in ["stop", "tool_calls", "function_call"] {
        assert_eq!(read_calls(std::slice::from_ref(&whole), finish), [r#"a Read {"x":1}"#]);
    }
}

#[test]
fn calls_that_share_an_index_are_told_apart_by_their_ids() {
    let fragments = [
        json!([f(Some(0), Some("a"), Some("Read"), Some("{}"))]),
        json!([f(Some(0), Some("b"), Some("Read"), Some("{\"x\":"))]),
        json!([f(Some(0), None, None, Some("2}"))]),
    ];
    assert_eq!(read_calls(&fragments, "tool_calls"), ["a Read {}", r#"b Read {"x":2}"#]);
    // Added both, then the pieces of each by its id.
    let fragments = [
        json!([f(Some(0), Some("a"), Some("Read"), None)]),
        json!([f(Some(0), Some("b"), Some("Grep"), None)]),
        json!([f(Some(0), Some("b"), None, Some("{\"b\":1}"))]),
        json!([f(Some(0), Some("a"), None, Some("{\"a\":1}"))]),
    ];
    assert_eq!(read_calls(&fragments, "tool_calls"), [r#"a Read {"a":1}"#, r#"b Grep {"b":1}"#]);
}

#[test]
fn calls_without_any_mark_between_them_are_split() {
    // The same index, no id, the arguments run together.
    let fragments = [json!([f(Some(0), None, Some("Read"), Some("{\"a\":1}"))]), json!([f(Some(0), None, None, Some("{\"a\":2}"))])];
    assert_eq!(read_calls(&fragments, "stop"), [r#"call_0_1 Read {"a":1}"#, r#"call_0_2 Read {"a":2}"#]);
    // The same index and the same id, with the name and without it.
    let fragments = [json!([f(Some(0), Some("x"), Some("Read"), Some("{\"a\":1}"))]), json!([f(Some(0), Some("x"), None, Some("{\"a\":2}"))])];
    assert_eq!(read_calls(&fragments, "stop"), [r#"x Read {"a":1}"#, r#"call_0_2 Read {"a":2}"#]);
    let fragments = [json!([f(Some(0), Some("x"), Some("Read"), Some("{\"a\":1}"))]), json!([f(Some(0), Some("x"), Some("Grep"), Some("{\"a\":2}"))])];
    assert_eq!(read_calls(&fragments, "stop"), [r#"x Read {"a":1}"#, r#"x-2 Grep {"a":2}"#]);
}

#[test]
fn a_missing_index_is_the_place_in_the_list() {
    let fragments = [
        json!([f(None, Some("a"), Some("Read"), Some("{\"a\"")), f(None, Some("b"), Some("Grep"), Some("{\"b\""))]),
        json!([f(None, None, None, Some(":1}")), f(None, None, None, Some(":2}"))]),
    ];
    assert_eq!(read_calls(&fragments, "tool_calls"), [r#"a Read {"a":1}"#, r#"b Grep {"b":2}"#]);
}

#[test]
fn an_index_that_comes_first_and_an_id_that_comes_later_are_one_call() {
    let fragments = [
        json!([f(Some(0), None, Some("Read"), None)]),
        json!([f(None, Some("a"), None, Some("{\"a\""))]),
        json!([f(None, Some("a"), None, Some(":1}"))]),
        json!([f(Some(1), None, Some("Grep"), None)]),
        json!([f(None, Some("b"), None, Some("{}"))]),
    ];
    assert_eq!(read_calls(&fragments, "tool_calls"), [r#"a Read {"a":1}"#, "b Grep {}"]);
    let fragments = [json!([f(Some(0), None, Some("Read"), Some("{"))]), json!([f(Some(0), Some("late"), None, Some("}"))])];
    assert_eq!(read_calls(&fragments, "tool_calls"), ["late Read {}"]);
}

#[test]
fn fragments_without_any_label_go_to_the_last_call() {
    let fragments = [
        json!([f(None, Some("a"), Some("Read"), Some("{}"))]),
        json!([f(None, Some("b"), Some("Grep"), Some("{\"b\":"))]),
        json!([f(None, None, None, Some("1}"))]),
    ];
    assert_eq!(read_calls(&fragments, "tool_calls"), ["a Read {}", r#"b Grep {"b":1}"#]);
}

#[test]
fn empty_and_repeated_ids_become_unique() {
    let mut talk = Talk::new("p/m", "hi");
    talk.answer(&script::reply("", &[("Read", json!({}))]), "ok");
    let chunks = [
        calls(json!([f(Some(0), Some("call_0_0"), Some("Read"), Some("{}")), f(Some(1), Some(""), Some("Read"), Some("{}"))])),
        calls(json!([f(Some(2), Some("z"), Some("Read"), Some("{}")), f(Some(3), Some("z"), Some("Read"), Some("{}"))])),
        chunk(json!({}), Some("tool_calls")),
    ];
    let events: Vec<(&str, &str)> = chunks.iter().map(|chunk| ("", chunk.as_str())).collect();
    let reply = decode(Protocol::OpenAiChat, &talk, &events).unwrap();
    assert_eq!(reply.calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_0_0-2", "call_1_2", "z", "z-2"]);
    assert_eq!(decode(Protocol::OpenAiChat, &talk, &events).unwrap(), reply);
}

#[test]
fn a_name_is_taken_once() {
    let again = [
        json!([f(Some(0), Some("a"), Some("search"), Some("{\"q\""))]),
        json!([f(Some(0), Some("a"), Some("search"), Some(":1"))]),
        json!([f(Some(0), Some("a"), Some("search"), Some("}"))]),
    ];
    assert_eq!(read_calls(&again, "tool_calls"), [r#"a search {"q":1}"#]);
    let growing =
        [json!([f(Some(0), Some("a"), Some("sea"), None)]), json!([f(Some(0), None, Some("rch"), None)]), json!([f(Some(0), None, None, Some("{}"))])];
    assert_eq!(read_calls(&growing, "tool_calls"), ["a search {}"]);
}

#[test]
fn arguments_come_in_every_type() {
    for (arguments, wanted) in
        [(json!(null), "{}"), (json!(""), "{}"), (json!("null"), "{}"), (json!({"a": [1]}), r#"{"a":[1]}"#), (json!(" {\"a\":1} \n"), r#"{"a":1}"#)]
    {
        let fragments = [json!([{"index": 0, "id": "a", "function": {"name": "Read", "arguments": arguments}}])];
        assert_eq!(read_calls(&fragments, "tool_calls"), [format!("a Read {wanted}")], "{arguments}");
    }
}

#[test]
fn arguments_that_are_not_an_object_are_told_to_the_model() {
    for arguments in ["{\"a\":", "[1]", "{}{", "nonsense"] {
        let chunks = [calls(json!([f(Some(0), Some("a"), Some("Read"), Some(arguments))])), chunk(json!({}), Some("tool_calls"))];
        let reply = read(&chunks).unwrap();
        assert_eq!(reply.calls().next().unwrap().invalid_input(), Some(arguments));
    }
}

#[test]
fn the_end_is_a_finish_reason_or_done() {
    let done = || "[DONE]".to_owned();
    let call = |arguments| calls(json!([f(Some(0), Some("a"), Some("Read"), Some(arguments))]));
    assert_eq!(read(&[chunk(json!({"content": "x"}), Some("stop"))]).unwrap().stop, StopReason::EndTurn);
    assert_eq!(read(&[chunk(json!({"content": "x"}), None), done()]).unwrap().stop, StopReason::EndTurn);
    assert_eq!(read(&[call("{}"), done()]).unwrap().stop, StopReason::ToolUse);
    for chunks in [vec![], vec![chunk(json!({"content": "x"}), None)], vec![call("{}")], vec![call("{\"a\":"), done()], vec![done()]] {
        assert_eq!(read(&chunks).unwrap_err().kind, ModelErrorKind::Cut, "{chunks:?}");
    }
}

#[test]
fn every_finish_reason_has_its_meaning() {
    for (word, wanted) in [
        ("stop", StopReason::EndTurn),
        ("length", StopReason::MaxTokens),
        ("content_filter", StopReason::Refusal { category: "content_filter".to_owned() }),
        ("tool_calls", StopReason::EndTurn),
        ("novelty", StopReason::Unknown("novelty".to_owned())),
    ] {
        assert_eq!(read(&[chunk(json!({"content": "x"}), Some(word))]).unwrap().stop, wanted, "{word}");
    }
    let refused = read(&[chunk(json!({"refusal": "I will not"}), None), chunk(json!({}), Some("stop"))]).unwrap();
    assert_eq!((refused.stop, refused.blocks[0].view().clone()), (StopReason::Refusal { category: "refusal".to_owned() }, View::Text("I will not".to_owned())));
    // Cut at the limit: valid or not, the agent sees that the reply was cut.
    let cut = read(&[calls(json!([f(Some(0), Some("a"), Some("Read"), Some("{\"a\":1}"))])), chunk(json!({}), Some("length"))]).unwrap();
    assert_eq!(cut.stop, StopReason::MaxTokens);
}

#[test]
fn an_error_object_ends_the_attempt() {
    for (error, wanted) in [
        (json!({"error": {"code": 502, "message": "Provider returned error"}}), ModelErrorKind::Overloaded),
        (json!({"error": {"type": "rate_limit_exceeded", "message": "x"}, "choices": []}), ModelErrorKind::Overloaded),
        (json!({"error": {"code": 401, "message": "x"}}), ModelErrorKind::Unauthorized),
        (json!({"error": "out of memory"}), ModelErrorKind::Overloaded),
    ] {
        assert_eq!(read(&[chunk(json!({"content": "partial"}), None), error.to_string()]).unwrap_err().kind, wanted, "{error}");
    }
    assert!(read(&[json!({"error": null, "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}).to_string()]).is_ok());
}

#[test]
fn reasoning_is_kept_as_thinking_and_usage_counts_cached_tokens_apart() {
    for key in ["reasoning_content", "reasoning"] {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}}).to_string();
        let reply = read(&[chunk(json!({key: "hm"}), None), chunk(json!({"content": "x"}), Some("stop")), usage]).unwrap();
        assert_eq!(reply.blocks[0].view(), &View::Thinking("hm".to_owned()));
        assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (40, 60, 7));
    }
    let lying = json!({"choices": [], "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 600}}}).to_string();
    let reply = read(&[chunk(json!({"content": "x"}), Some("stop")), lying]).unwrap();
    assert_eq!((reply.usage.input, reply.usage.cache_read), (0, 5));
}

#[test]
fn too_many_calls_are_refused() {
    let fragments: Vec<Value> = (0..600).map(|n| f(Some(n), Some(&format!("c{n}")), Some("Read"), Some("{}"))).collect();
    assert_eq!(read(&[calls(Value::Array(fragments))]).unwrap_err().kind, ModelErrorKind::Cut);
    let run_together = "{}".repeat(600);
    let chunks = [calls(json!([f(Some(0), Some("a"), Some("Read"), Some(&run_together))])), chunk(json!({}), Some("stop"))];
    assert_eq!(read(&chunks).unwrap().calls().count(), 1, "kept as text, answered as an error");
}
