//! Responses streams: items, stop reasons, usage, errors, and what is sent back.
use super::{Talk, decode, sent};
use serde_json::{Value, json};
use spinney::{
    llm::{Endpoint, ModelError, ModelErrorKind, Protocol, script},
    message::{Block, Message, Reply, Role, StopReason, View},
};
use std::sync::Arc;

fn endpoint() -> Endpoint {
    Endpoint::new("openai", Protocol::OpenAiResponses, "https://api.openai.com/v1")
}

fn read(events: &[String]) -> Result<Reply, ModelError> {
    let events: Vec<(&str, &str)> = events.iter().map(|event| ("", event.as_str())).collect();
    decode(Protocol::OpenAiResponses, &Talk::new("p/m", "hi"), &events)
}

fn done(index: u64, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
}

fn completed() -> String {
    end("response.completed", &json!({"status": "completed"}))
}

fn incomplete(reason: &str) -> String {
    end("response.incomplete", &json!({"status": "incomplete", "incomplete_details": {"reason": reason}}))
}

fn end(kind: &str, response: &Value) -> String {
    json!({"type": kind, "response": response}).to_string()
}

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAA\/b+==","n":1.10}"#;
const CALL: &str = r#"{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"n\": 1.10}","call_id":"call_a","name":"Read"}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"final_answer","content":[{"type":"output_text","annotations":[],"text":"a\u2028b"}]}"#;
const SEARCH: &str = r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}"#;
const TOMORROW: &str = r#"{"type":"hologram","z":1,"a":[1e2,null]}"#;

#[test]
fn items_are_blocks_that_keep_their_bytes_and_go_back_in_them() {
    let items = [REASONING, SEARCH, TOMORROW, MESSAGE, CALL];
    let mut events: Vec<String> = (0..).zip(items).map(|(index, item)| done(index, item)).collect();
    events.push(completed());
    let reply = read(&events).unwrap();
    let views: Vec<&View> = reply.blocks.iter().map(Block::view).collect();
    assert_eq!(views[0], &View::Thinking("hm".to_owned()));
    assert_eq!((views[1], views[2]), (&View::Other("web_search_call".to_owned()), &View::Other("hologram".to_owned())));
    assert_eq!(views[3], &View::Text("a\u{2028}b".to_owned()));
    assert_eq!(reply.calls().map(|call| (call.id.as_str(), call.input.to_string())).collect::<Vec<_>>(), [("call_a", r#"{"n":1.1}"#.to_owned())]);
    assert_eq!(reply.stop, StopReason::ToolUse);
    let mut talk = Talk::new("openai/gpt-6-sol", "hi");
    talk.answer(&reply, "one");
    let wanted = format!(
        r#""input":[{{"role":"user","content":[{{"type":"input_text","text":"hi"}}]}},{},{{"type":"function_call_output","call_id":"call_a","output":"one"}}]}}"#,
        items.join(",")
    );
    assert!(sent(&endpoint(), "gpt-6-sol", &talk).ends_with(&wanted), "{}", sent(&endpoint(), "gpt-6-sol", &talk));
}

fn cache_key(body: &str) -> String {
    serde_json::from_str::<serde_json::Value>(body).unwrap()["prompt_cache_key"].as_str().unwrap().to_owned()
}

#[test]
fn a_request_is_these_bytes() {
    let mut talk = Talk::new("openai/gpt-6-sol", "Do \"it\".");
    talk.tools = vec![spinney::message::ToolSpec { name: "Read".to_owned(), description: "Reads".to_owned(), input_schema: json!({"type": "object", "b": 1}) }];
    talk.effort = Some("high".to_owned());
    talk.max_output_tokens = Some(100);
    talk.schema = Some(json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}));
    let wanted = [
        r#"{"model":"gpt-6-sol","stream":true,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high","summary":"auto"},"#,
        r#""text":{"format":{"type":"json_schema","name":"answer","strict":false,"schema":{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}}},"#,
        r#""tools":[{"type":"function","name":"Read","description":"Reads","parameters":{"type":"object","b":1},"strict":false}],"#,
        r#""instructions":"Be brief.","prompt_cache_key":"spinney-KEY","input":[{"role":"user","content":[{"type":"input_text","text":"Do \"it\"."}]}],"max_output_tokens":100}"#,
    ];
    let body = sent(&endpoint(), "gpt-6-sol", &talk);
    let key = cache_key(&body);
    assert_eq!(body.replace(&key, "spinney-KEY"), wanted.concat());
    // The key names what an agent's sessions begin with, and nothing of what they are told.
    assert!(key.len() <= 64);
    let mut other = Talk { messages: vec![Arc::new(Message::user("Do that."))], ..talk };
    assert_eq!(cache_key(&sent(&endpoint(), "gpt-6-sol", &other)), key);
    other.system.push('!');
    assert_ne!(cache_key(&sent(&endpoint(), "gpt-6-sol", &other)), key);
    // A model that does not reason is asked for none of it.
    let plain = sent(&endpoint(), "gpt-4.1", &Talk::new("openai/gpt-4.1", "hi"));
    assert!(!plain.contains("include") && !plain.contains("reasoning"), "{plain}");
}

#[test]
fn every_end_has_its_meaning() {
    let text = || done(0, MESSAGE);
    for (end, wanted) in [
        (completed(), StopReason::EndTurn),
        (incomplete("max_output_tokens"), StopReason::MaxTokens),
        (incomplete("content_filter"), StopReason::Refusal { category: "content_filter".to_owned() }),
        (incomplete("max_messages"), StopReason::Unknown("max_messages".to_owned())),
        (incomplete("steered"), StopReason::Unknown("steered".to_owned())),
        (incomplete("novelty"), StopReason::Unknown("novelty".to_owned())),
    ] {
        assert_eq!(read(&[text(), end.clone()]).unwrap().stop, wanted, "{end}");
    }
    let refusal = r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I will not"}]}"#;
    let refused = read(&[done(0, refusal), completed()]).unwrap();
    assert_eq!((refused.text().as_str(), refused.stop), ("I will not", StopReason::Refusal { category: "refusal".to_owned() }));
    // A call that was cut keeps the word, so that it is not run.
    assert_eq!(read(&[done(0, CALL), incomplete("max_output_tokens")]).unwrap().stop, StopReason::MaxTokens);
}

#[test]
fn what_is_said_on_the_way_is_no_answer() {
    let commentary = MESSAGE.replace("final_answer", "commentary");
    let reply = read(&[done(0, &commentary), done(1, MESSAGE), completed()]).unwrap();
    assert_eq!(reply.text(), "a\u{2028}b");
    assert_eq!(reply.blocks[0].view(), &View::Thinking("a\u{2028}b".to_owned()));
    // It was said all the same.
    let mut talk = Talk::new("openai/gpt-6-sol", "hi");
    talk.answer(&read(&[done(0, &commentary), completed()]).unwrap(), "go on");
    assert!(sent(&endpoint(), "gpt-6-sol", &talk).contains(&commentary));
}

#[test]
fn only_the_terminal_event_ends_a_reply() {
    for events in [
        vec![],
        vec![done(0, MESSAGE)],
        vec![done(0, CALL), "[DONE]".to_owned()],
        vec![done(0, r#"{"type":"function_call","call_id":"a","name":"","arguments":"{}"}"#), completed()],
        vec![r#"{"type":"response.output_item.done","item":{}}"#.to_owned()],
        vec![r#"{"type":"response.output_item.done","output_index":0}"#.to_owned()],
        vec!["[1]".to_owned()],
        vec![
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"Read","arguments":"{}"}}"#.to_owned(),
        ],
    ] {
        assert_eq!(read(&events).unwrap_err().kind, ModelErrorKind::Cut, "{events:?}");
    }
    let many: Vec<String> = (0..5_000).map(|index| done(index, &MESSAGE.replace("msg_1", &format!("msg_{index}")))).collect();
    assert_eq!(read(&many).unwrap_err().kind, ModelErrorKind::Cut);
}

#[test]
fn items_that_only_the_end_holds_are_taken_from_there() {
    // Also where the others are called otherwise there than they were before.
    let renamed = MESSAGE.replace("msg_1", "msg_other");
    let whole = format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{renamed},{CALL}]}}}}"#);
    let reply = read(&[done(0, MESSAGE), whole]).unwrap();
    assert_eq!((reply.text().as_str(), reply.blocks.len(), reply.calls().count(), &reply.stop), ("a\u{2028}b", 2, 1, &StopReason::ToolUse));
    let whole = format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{REASONING},{CALL}]}}}}"#);
    let reply = read(&[done(0, REASONING), whole]).unwrap();
    assert_eq!((reply.blocks.len(), reply.calls().count(), &reply.stop), (2, 1, &StopReason::ToolUse));
}

#[test]
fn errors_are_classed() {
    let failed = |code: &str| end("response.failed", &json!({"status": "failed", "error": {"code": code, "message": "sorry"}}));
    for (event, wanted) in [
        (failed("server_error"), ModelErrorKind::Overloaded),
        (failed("rate_limit_exceeded"), ModelErrorKind::Overloaded),
        (failed("context_length_exceeded"), ModelErrorKind::TooLong),
        (r#"{"type":"error","code":"insufficient_quota","message":"sorry","param":null}"#.to_owned(), ModelErrorKind::SpendLimit),
        (r#"{"type":"error","error":{"type":"invalid_request_error","message":"sorry"}}"#.to_owned(), ModelErrorKind::Rejected),
    ] {
        let error = read(&[done(0, MESSAGE), event.clone()]).unwrap_err();
        assert_eq!(error.kind, wanted, "{event}: {error}");
        assert!(error.message.contains("p/m") && error.message.contains("sorry"), "{error}");
    }
}

#[test]
fn usage_counts_cached_tokens_apart() {
    let usage =
        json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 5}});
    let reply = read(&[done(0, MESSAGE), end("response.completed", &json!({"usage": usage}))]).unwrap();
    assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (40, 60, 7));
}

#[test]
fn ids_that_were_used_are_replaced_in_the_item_too() {
    let mut talk = Talk::new("openai/gpt-6-sol", "hi");
    talk.answer(&script::reply("", &[("Read", json!({}))]), "ok");
    let again = CALL.replace("call_a", "call_0_0");
    let events = [done(0, &again), done(1, &CALL.replace("call_a", "")), completed()];
    let events: Vec<(&str, &str)> = events.iter().map(|event| ("", event.as_str())).collect();
    let reply = decode(Protocol::OpenAiResponses, &talk, &events).unwrap();
    assert_eq!(reply.calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_0_0-2", "call_1_2"]);
    talk.answer(&reply, "ok");
    let body = sent(&endpoint(), "gpt-6-sol", &talk);
    assert!(body.contains(&again.replace("call_0_0", "call_0_0-2")) && body.contains(r#""call_id":"call_1_2","output":"ok""#), "{body}");
}

#[test]
fn reasoning_that_cannot_be_taken_back_is_not_sent() {
    let bare = REASONING.replace(r#""encrypted_content":"gAAA\/b+==","#, "");
    let says = |items: &[&str]| {
        let mut events: Vec<String> = (0..).zip(items).map(|(index, item)| done(index, item)).collect();
        events.push(incomplete("max_output_tokens"));
        let mut talk = Talk::new("openai/gpt-6-sol", "hi");
        talk.answer(&read(&events).unwrap(), "go on");
        sent(&endpoint(), "gpt-6-sol", &talk)
    };
    assert!(!says(&[&bare, MESSAGE]).contains("rs_1"), "nothing was stored there");
    assert!(!says(&[MESSAGE, REASONING]).contains("rs_1"), "it led to nothing");
    assert!(says(&[REASONING, MESSAGE]).contains(REASONING));
}

#[test]
fn arguments_that_are_not_an_object_are_told_to_the_model() {
    for arguments in [r#"{\"a\":"#, "[1]", "nonsense"] {
        let reply = read(&[done(0, &CALL.replace(r#"{\"n\": 1.10}"#, arguments)), completed()]).unwrap();
        assert!(reply.calls().next().unwrap().invalid_input().is_some(), "{arguments}");
    }
    let none = read(&[done(0, &CALL.replace(r#"{\"n\": 1.10}"#, "")), completed()]).unwrap();
    assert_eq!(none.calls().next().unwrap().input, json!({}));
}

#[test]
fn what_another_protocol_kept_is_no_obstacle() {
    let mut talk = Talk::new("openai/m", "x");
    let block = |text: &str| Block::from_raw(spinney::message::Raw::parse(text).unwrap());
    let said = [
        r#"{"type":"hologram"}"#,
        r#"{"type":"thinking","thinking":"t"}"#,
        r#"{"type":"text","text":"a"}"#,
        r#"{"type":"tool_use","id":"c","name":"Read","input":{"a": 1}}"#,
    ];
    talk.messages.push(Arc::new(Message { role: Role::Assistant, blocks: said.map(block).to_vec() }));
    talk.messages.push(Arc::new(Message::results(&[spinney::message::ToolResult::new("c", "", true)], Some("Go on."))));
    let wanted = [
        r#"{"type":"message","role":"assistant","content":"a"},"#,
        r#"{"type":"function_call","call_id":"c","name":"Read","arguments":"{\"a\": 1}"},"#,
        r#"{"type":"function_call_output","call_id":"c","output":"(no output)"},{"role":"user","content":[{"type":"input_text","text":"Go on."}]}]}"#,
    ];
    assert!(sent(&endpoint(), "m", &talk).ends_with(&wanted.concat()), "{}", sent(&endpoint(), "m", &talk));
}

#[test]
fn two_calls_with_one_id_are_two() {
    let other = CALL.replace("fc_1", "fc_2").replace("1.10", "2");
    assert_ne!(other.replace("fc_2", "fc_1"), CALL);
    for ended in [completed(), format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{CALL},{other}]}}}}"#)] {
        let reply = read(&[done(0, CALL), done(1, &other), ended]).unwrap();
        let ids: Vec<&str> = reply.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_a", "call_a-2"]);
    }
}

#[test]
fn an_item_is_taken_once_wherever_its_gateway_says_that_it_stands() {
    let ended = |output: &str| format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{output}]}}}}"#);
    let bare = |item: &str| format!(r#"{{"type":"response.output_item.done","item":{item}}}"#);
    let renamed = CALL.replace("fc_1", "fc_x").replace("call_a", "call_x");
    for (events, blocks) in [
        // Elsewhere than in the whole response.
        (vec![done(1, CALL), ended(CALL)], 1),
        (vec![done(0, CALL), done(0, CALL), ended(CALL)], 1),
        // All with the same place, or with none.
        (vec![done(0, REASONING), done(0, CALL), ended(&format!("{REASONING},{CALL}"))], 2),
        (vec![bare(REASONING), bare(CALL), completed()], 2),
        // In the whole response by another name.
        (vec![done(0, CALL), ended(&renamed)], 1),
        (vec![done(0, REASONING), ended(&format!("{REASONING},{CALL}"))], 2),
    ] {
        let reply = read(&events).unwrap_or_else(|error| panic!("{error}: {events:?}"));
        assert_eq!((reply.blocks.len(), reply.calls().count()), (blocks, 1), "{events:?}");
        assert_eq!(reply.calls().next().unwrap().id, "call_a");
    }
}
