//! Answers that are not what was asked for: no stream, no counts, a bad byte, thinking that led to nothing.
use super::{Talk, decode};
use crate::server::{Answer, Said, Server};
use serde_json::json;
use spinney::{
    clock::{Clock, Timestamp},
    http::Client,
    llm::{Endpoint, Endpoints, HttpModel, Limiter, Model, ModelError, ModelErrorKind, Protocol, Silent},
    message::{Message, Raw, Reply, Usage},
};
use std::sync::Arc;

const WIRES: [(Protocol, &str); 4] =
    [(Protocol::Anthropic, "claude-opus-5-5"), (Protocol::OpenAiResponses, "gpt-6-sol"), (Protocol::OpenAiChat, "any"), (Protocol::Gemini, "gemini-3.7-flash")];

fn model(server: &Server, protocol: Protocol) -> HttpModel {
    let url = if protocol == Protocol::Anthropic { server.anthropic_url() } else { server.openai_url() };
    let mut endpoints = Endpoints::default();
    endpoints.insert(Endpoint::new("p", protocol, &url).with_key(spinney::llm::Secret::new("sk-secret")));
    let clock = Clock::fake(Timestamp(1_796_000_000_000));
    HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 16), clock)
}

async fn ask(model: &HttpModel, talk: &Talk) -> Result<Reply, ModelError> {
    model.reply(&talk.call(), &Silent).await
}

#[tokio::test]
async fn a_good_answer_that_is_no_stream_is_named_and_not_asked_for_again() {
    let of = |kind: &str, body: &str| Answer::Status(200, vec![("content-type", kind.to_owned())], body.to_owned());
    let whole = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}"#;
    for (answer, kind, words, times) in [
        (of("text/html", "<!doctype html><title>Sign in</title>"), ModelErrorKind::Rejected, "a web page", 1),
        (of("application/json", whole), ModelErrorKind::Rejected, "in one piece", 1),
        (of("text/event-stream", whole), ModelErrorKind::Rejected, "in one piece", 1),
        (of("application/json", r#"{"choices":[{"message":{"content":"hi"}}]}"#), ModelErrorKind::Rejected, "in one piece", 1),
        (of("application/json", r#"{"error":{"type":"authentication_error","message":"who is sk-secret"}}"#), ModelErrorKind::Unauthorized, "who is ***", 1),
        (of("application/json", r#"{"error":{"code":402,"message":"no money"}}"#), ModelErrorKind::SpendLimit, "no money", 1),
        (of("application/json", r#"[{"error":{"status":"INTERNAL","code":500,"message":"oh"}}]"#), ModelErrorKind::Overloaded, "oh", 10),
        (of("application/json", r#"{"detail":"warming up"}"#), ModelErrorKind::Cut, "warming up", 10),
        (Answer::Status(200, vec![("content-encoding", "gzip".to_owned())], "\u{1f}packed".to_owned()), ModelErrorKind::Rejected, "compressed", 1),
    ] {
        let server = Server::start(move |_| answer.clone()).await;
        let error = ask(&model(&server, Protocol::Anthropic), &Talk::new("p/claude-opus-5-5", "x")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(words) && error.message.contains("HTTP 200"), "{words}: {error}");
        assert_eq!(server.asked().len(), times, "{error}");
    }
}

#[tokio::test]
async fn a_byte_that_is_no_text_is_a_bad_letter_and_not_a_lost_reply() {
    for (protocol, name) in WIRES {
        for chunk in [None, Some(1)] {
            let server = Server::start_with(move |asked| {
                let mut bytes = Said::text("agé?z").bytes(asked);
                bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
                (Answer::Stream(bytes), crate::server::Delivery { chunk, ..Default::default() })
            })
            .await;
            let reply = ask(&model(&server, protocol), &Talk::new(&format!("p/{name}"), "x")).await.unwrap();
            assert_eq!(reply.text(), "agé\u{FFFD}z", "{protocol:?}");
            assert_eq!(server.asked().len(), 1);
        }
    }
}

/// Decodes a whole reply of each protocol in which the counts stand as `usage` says.
fn counted(protocol: Protocol, usage: &str) -> Usage {
    let talk = Talk::new("p/m", &"x".repeat(3_200));
    let events = match protocol {
        Protocol::Anthropic => vec![
            format!(r#"{{"type":"message_start","message":{{"usage":{usage}}}}}"#),
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a long text of some sixty bytes, all in all"}}"#.to_owned(),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned(),
        ],
        Protocol::OpenAiResponses => vec![format!(
            r#"{{"type":"response.completed","response":{{"usage":{usage},"output":[{{"type":"message","content":[{{"type":"output_text","text":"hello"}}]}}]}}}}"#
        )],
        Protocol::OpenAiChat => {
            vec![format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"hello"}},"finish_reason":"stop"}}],"usage":{usage}}}"#), "[DONE]".to_owned()]
        }
        Protocol::Gemini => vec![format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"hello"}}]}},"finishReason":"STOP"}}],"usageMetadata":{usage}}}"#)],
    };
    let events: Vec<(&str, &str)> = events.iter().map(|data| ("", data.as_str())).collect();
    decode(protocol, &talk, &events).unwrap().usage
}

#[test]
fn counts_are_read_whatever_form_they_have_and_whatever_stands_beside_them() {
    for (protocol, words) in [
        (Protocol::Anthropic, ["input_tokens", "output_tokens", r#""server_tool_use":null,"cache_read_input_tokens":null,"iterations":[null]"#]),
        (Protocol::OpenAiResponses, ["input_tokens", "output_tokens", r#""input_tokens_details":null"#]),
        (Protocol::OpenAiChat, ["prompt_tokens", "completion_tokens", r#""prompt_tokens_details":{"cached_tokens":null}"#]),
        (Protocol::Gemini, ["promptTokenCount", "candidatesTokenCount", r#""cachedContentTokenCount":null"#]),
    ] {
        let [input, output, beside] = words;
        for (one, other) in [("100", "20"), ("100.0", "19.5"), ("\"100\"", "\"20\"")] {
            let usage = counted(protocol, &format!(r#"{{"{input}":{one},"{output}":{other},{beside}}}"#));
            assert_eq!(usage, Usage { input: 100, output: 20, ..Usage::default() }, "{protocol:?}: {one}");
        }
        for usage in [
            "null".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            format!(r#"{{"{input}":null,"{output}":null}}"#),
            format!(r#"{{"{input}":"many","{output}":-3}}"#),
            format!(r#"{{"{input}":0,"{output}":0}}"#),
        ] {
            let counted = counted(protocol, &usage);
            assert!(counted.estimated && counted.input >= 1_000 && counted.output > 0, "{protocol:?} {usage}: {counted:?}");
        }
        let half = counted(protocol, &format!(r#"{{"{input}":100,"{output}":null}}"#));
        assert!(half.estimated && half.input == 100 && half.output > 0, "{protocol:?}: {half:?}");
    }
}

#[test]
fn what_the_steps_at_the_provider_used_is_added_up_and_never_less_than_the_totals() {
    let usage = |iterations: &str| counted(Protocol::Anthropic, &format!(r#"{{"input_tokens":100,"output_tokens":20,"iterations":{iterations}}}"#));
    let both = usage(r#"[{"input_tokens":300,"output_tokens":null},null,{"input_tokens":50,"output_tokens":30,"server_tool_use":null}]"#);
    assert_eq!((both.input, both.output, both.estimated), (350, 30, false));
    for nothing in ["null", "[]", "[null]", "[{}]", "7"] {
        let usage = usage(nothing);
        assert_eq!((usage.input, usage.output), (100, 20), "{nothing}");
    }
}

#[tokio::test]
async fn thinking_that_led_to_nothing_is_not_sent_and_what_follows_stays_bound() {
    for (protocol, name) in WIRES {
        let server = Server::start(|asked| {
            let thinks = |stop: Option<&str>| Said { thinking: Some("hm".to_owned()), stop: stop.map(str::to_owned), ..Said::default() };
            Answer::Say(match asked.json.to_string().matches("Go on ").count() {
                0 => thinks(Some("max_tokens")),
                1 => Said { calls: vec![("c1".to_owned(), "Read".to_owned(), json!({}))], ..thinks(None) },
                2 => thinks(None),
                3 => Said { text: "so".to_owned(), ..thinks(None) },
                _ => Said::text("done"),
            })
        })
        .await;
        let model = model(&server, protocol);
        let mut talk = Talk::new(&format!("p/{name}"), "begin");
        for n in 0..5 {
            let reply = ask(&model, &talk).await.unwrap();
            talk.answer(&reply, &format!("Go on {n}."));
        }
        assert_eq!(server.problems(), Vec::<String>::new(), "{protocol:?}");
        assert_eq!(server.asked().len(), 5);
        let bodies: Vec<String> = server.asked().into_iter().map(|asked| asked.json["messages"].to_string()).collect();
        let unmarked = |body: &str| body.replace(r#","cache_control":{"type":"ephemeral"}"#, "").replace(r#"{"cache_control":{"type":"ephemeral"},"#, "{");
        for pair in bodies.windows(2).filter(|_| protocol == Protocol::Anthropic) {
            // Of the last turn only the brackets may move, where nothing was said before the next words.
            let before = unmarked(&pair[0]);
            let shared = before.trim_end_matches([']', '}']);
            assert!(unmarked(&pair[1]).starts_with(shared), "{} then {}", pair[0], pair[1]);
        }
    }
}

#[tokio::test]
async fn thinking_that_was_cut_before_it_was_signed_is_not_sent() {
    let server = Server::start(|_| Answer::Say(Said::text("done"))).await;
    let block = |raw: &str| spinney::message::Block::from_raw(Raw::parse(raw).unwrap());
    let mut talk = Talk::new("p/claude-opus-5-5", "begin");
    for cut in [r#"{"type":"thinking","thinking":"half","signature":""}"#, r#"{"type":"thinking","thinking":"half"}"#] {
        let blocks = vec![block(cut), block(r#"{"type":"text","text":"said"}"#), block(r#"{"type":"redacted_thinking","data":"x"}"#), block(cut)];
        talk.messages.push(Arc::new(Message { role: spinney::message::Role::Assistant, blocks }));
        talk.messages.push(Arc::new(Message::user("go on")));
    }
    assert_eq!(ask(&model(&server, Protocol::Anthropic), &talk).await.unwrap().text(), "done");
    assert_eq!(server.problems(), Vec::<String>::new());
    let body = String::from_utf8(server.asked()[0].body.clone()).unwrap();
    assert!(!body.contains("half") && !body.contains("redacted"), "{body}");
}

#[test]
fn chat_content_in_parts_is_read_and_a_reply_that_the_server_broke_off_is_none() {
    let talk = Talk::new("p/m", "x");
    let chunk = |delta: &str, finish: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#);
    let parts = r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"do"},{"type":"text","text":"ne"}]}"#;
    let reply = decode(Protocol::OpenAiChat, &talk, &[("", &chunk(parts, r#""stop""#))]).unwrap();
    assert_eq!((reply.text().as_str(), reply.blocks.len()), ("done", 2));
    let error = decode(Protocol::OpenAiChat, &talk, &[("", &chunk(r#"{"content":"half"}"#, r#""error""#))]).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Cut, "{error}");
    let told = r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"upstream is gone"}}]}"#;
    let error = decode(Protocol::OpenAiChat, &talk, &[("", told)]).unwrap_err();
    assert!(error.kind == ModelErrorKind::Overloaded && error.message.contains("upstream is gone"), "{error}");
}
