//! Streams are cut, stalled and chunked, and only a whole one gives a reply.
use super::*;
use crate::{
    clock::Timestamp,
    event::{NodeId, StepId},
    llm::{Endpoint, ModelCall, Ordinal, Protocol, Silent, provider},
};
use futures_util::{FutureExt as _, stream};
use proptest::prelude::*;

/// A Messages stream with thinking that is kept back, a call whose input comes in pieces, and an event of the future.
const MESSAGES: &str = concat!(
    "\u{feff}event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],",
    "\"stop_reason\":null,\"usage\":{\"input_tokens\":12,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":2048,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n: a comment\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2ln\"}}\n\n",
    "event: content_block_stop\r\ndata: {\"type\":\"content_block_stop\",\"index\":0}\r\n\r\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"Read\",",
    "\"input\":{},\"caller\":{\"type\":\"direct\"}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"path\\\":\\\"sr\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"c/é😀.rs\\\"}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: some_future_event\ndata: {\"type\":\"some_future_event\",\"x\":1}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":57}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const CHAT: &str = concat!(
    ": PROCESSING\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm é\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a 😀\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"Read\",\"arguments\":\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"path\\\":\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"é\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
    "data: [DONE]\n\n",
);

const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"output\":[]}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]}}\n\n",
    "event: response.reasoning_summary_text.delta\ndata: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"delta\":\"hm é\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",",
    "\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm é\"}],\"encrypted_content\":\"gAAA\\/b==\"}}\n\n",
    ": keep-alive\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"a 😀\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"id\":\"m_1\",\"type\":\"message\",\"role\":\"assistant\",",
    "\"phase\":\"final_answer\",\"content\":[{\"type\":\"output_text\",\"text\":\"a 😀\",\"annotations\":[]}]}}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":2,\"delta\":\"{\\\"path\\\":\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",",
    "\"status\":\"completed\",\"call_id\":\"c1\",\"name\":\"Read\",\"arguments\":\"{\\\"path\\\":\\\"é\\\"}\"}}\n\n",
    "event: response.of_tomorrow\ndata: {\"type\":\"response.of_tomorrow\",\"x\":1}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"usage\":{\"input_tokens\":20,",
    "\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":5}}}\n\n",
);

const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hm é\",\"thought\":true}]},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":20}}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"a \"}]},\"index\":0}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"😀\"}]},\"index\":0}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"functionCall\":{\"name\":\"Read\",\"args\":{\"path\":\"é\"}},\"thoughtSignature\":\"c2ln\"}]},\"index\":0}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[]},\"finishReason\":\"STOP\",\"index\":0}],",
    "\"usageMetadata\":{\"promptTokenCount\":20,\"cachedContentTokenCount\":8,\"candidatesTokenCount\":3,\"thoughtsTokenCount\":2}}\n\n",
);

/// Each protocol with a stream and the end of the event after which its reply is whole.
const RECORDED: [(Protocol, &str, &str); 4] = [
    (Protocol::Anthropic, MESSAGES, "\"output_tokens\":57}}\n\n"),
    (Protocol::OpenAiResponses, RESPONSES, "\"output_tokens\":5}}}\n\n"),
    (Protocol::OpenAiChat, CHAT, "\"tool_calls\"}]}\n\n"),
    (Protocol::Gemini, GEMINI, "\"thoughtsTokenCount\":2}}\n\n"),
];

fn read(protocol: Protocol, pieces: Vec<Result<Bytes, HttpError>>) -> Result<Reply, Fault> {
    let node = NodeId::step(&StepId::from("s"));
    let models = ["a/m".to_owned()];
    let call = ModelCall {
        node: &node,
        ordinal: Ordinal::default(),
        agent: "a",
        models: &models,
        effort: None,
        max_output_tokens: None,
        is_longest: false,
        prompt_tokens: 0,
        system: "",
        tools: &[],
        provider_tools: &[],
        output_schema: None,
        must_answer: false,
        is_paused: false,
        container: None,
        messages: &[],
    };
    let endpoint = Endpoint::new("a", protocol, "http://127.0.0.1");
    let target = Target { endpoint: &endpoint, model: "m" };
    let clock = Clock::fake(Timestamp(0));
    let decoder = provider(protocol).decoder(&call, target);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(decode(stream::iter(pieces), decoder, Watch { target, sink: &Silent, clock: &clock, began: Duration::ZERO }))
}

fn whole(protocol: Protocol, text: &str) -> Result<Reply, Fault> {
    read(protocol, vec![Ok(Bytes::copy_from_slice(text.as_bytes()))])
}

#[test]
fn recorded_streams_give_their_replies() {
    let reply = whole(Protocol::Anthropic, MESSAGES).unwrap();
    assert_eq!(reply.blocks[0].raw().as_str(), r#"{"type":"thinking","thinking":"","signature":"c2ln"}"#);
    assert_eq!(reply.blocks[1].raw().as_str(), r#"{"type":"tool_use","id":"toolu_1","name":"Read","input":{"path":"src/é😀.rs"},"caller":{"type":"direct"}}"#);
    assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (12, 2048, 57));
    let reply = whole(Protocol::OpenAiChat, CHAT).unwrap();
    assert_eq!((reply.text().as_str(), reply.calls().count(), reply.blocks.len()), ("a 😀", 1, 3));
    assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (12, 8, 5));
    for (protocol, text, kept) in [
        (
            Protocol::OpenAiResponses,
            RESPONSES,
            r#""item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm é"}],"encrypted_content":"gAAA\/b=="}}"#,
        ),
        (Protocol::Gemini, GEMINI, r#"{"type":"thinking","thinking":"hm é"}"#),
    ] {
        let reply = whole(protocol, text).unwrap();
        assert_eq!((reply.text().as_str(), reply.calls().count(), reply.blocks.len()), ("a 😀", 1, 3));
        assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (12, 8, 5));
        assert!(reply.blocks[0].raw().as_str().ends_with(kept), "{:?}", reply.blocks[0]);
    }
}

proptest! {
    #[test]
    fn any_chunking_of_a_stream_gives_the_same_reply(sizes in prop::collection::vec(1_usize..40, 1..80), which in 0..RECORDED.len()) {
        let (protocol, text, _) = RECORDED[which];
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(Ok(Bytes::copy_from_slice(piece)));
            rest = after;
        }
        prop_assert_eq!(read(protocol, pieces).unwrap(), whole(protocol, text).unwrap());
    }
}

#[test]
fn no_prefix_that_lacks_the_terminal_event_gives_a_reply() {
    for (protocol, text, terminal) in RECORDED {
        let known = text.find(terminal).unwrap() + terminal.len();
        let wanted = whole(protocol, text).unwrap();
        for end in 0..text.len() {
            let prefix = Bytes::copy_from_slice(&text.as_bytes()[..end]);
            let broken = || HttpError::Idle { host: "h".to_owned(), after: Duration::from_secs(1) };
            for pieces in [vec![Ok(prefix.clone())], vec![Ok(prefix.clone()), Err(broken())]] {
                match read(protocol, pieces) {
                    Ok(reply) => {
                        assert!(end >= known, "{end}");
                        // The reason to stop is known: what is missing is the end mark, or the count.
                        assert_eq!((&reply.blocks, &reply.stop), (&wanted.blocks, &wanted.stop));
                    }
                    Err(fault) => {
                        assert!(end < known, "{end}: {fault:?}");
                        assert_eq!((fault.error.kind, fault.retry), (ModelErrorKind::Cut, true));
                    }
                }
            }
        }
    }
}

#[test]
fn signs_of_life_alone_are_a_stall() {
    let pieces = |bytes: &'static [u8]| stream::repeat(bytes).then(|bytes| tokio::time::sleep(Duration::from_secs(20)).map(|()| Ok(Bytes::from_static(bytes))));
    for bytes in [&b": ping\n\n"[..], b"event: ping\ndata: {\"type\":\"ping\"}\n\n"] {
        let endpoint = Endpoint::new("a", Protocol::Anthropic, "http://127.0.0.1");
        let target = Target { endpoint: &endpoint, model: "m" };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let fault = runtime.block_on(async {
            let clock = Clock::fake(Timestamp(0));
            // The clock that measures moves with the sleeps of the stream.
            let ticking = pieces(bytes).inspect(|_| clock.advance(Duration::from_secs(20)));
            let node = NodeId::step(&StepId::from("s"));
            let call = ModelCall {
                node: &node,
                ordinal: Ordinal::default(),
                agent: "a",
                models: &[],
                effort: None,
                max_output_tokens: None,
                is_longest: false,
                prompt_tokens: 0,
                system: "",
                tools: &[],
                provider_tools: &[],
                output_schema: None,
                must_answer: false,
                is_paused: false,
                container: None,
                messages: &[],
            };
            let decoder = provider(Protocol::Anthropic).decoder(&call, target);
            decode(ticking, decoder, Watch { target, sink: &Silent, clock: &clock, began: Duration::ZERO }).await.unwrap_err()
        });
        assert_eq!(fault.error.kind, ModelErrorKind::Cut);
        assert!(fault.error.message.contains("signs of life for 300 s"), "{}", fault.error.message);
    }
}

#[test]
fn what_is_not_text_is_a_failed_attempt() {
    for bytes in [&b"data: {\"choices\":\xff}\n\n"[..], b"data: {]\n\n", b"data: [1]\n\ndata: {}\n\n", b""] {
        let fault = read(Protocol::OpenAiChat, vec![Ok(Bytes::from_static(bytes))]).unwrap_err();
        assert_eq!(fault.error.kind, ModelErrorKind::Cut, "{bytes:?}");
    }
}
