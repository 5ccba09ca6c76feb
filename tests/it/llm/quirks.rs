//! Streams as the servers send them that speak like OpenAI, one a server: what each is known for, and what goes back to it.
use super::{Talk, decode, sent};
use spinney::{
    llm::{Endpoint, Protocol},
    message::{Reply, StopReason, View},
};

/// Reads a server's stream, answers its calls, and returns the reply with the model's side of the next request.
fn goes_back(server: &str, model: &str, events: &[&str]) -> (Reply, String) {
    let endpoint = Endpoint::new(server, Protocol::OpenAiChat, "http://127.0.0.1:1/v1");
    let mut talk = Talk::new(&format!("{server}/{model}"), "hi");
    let events: Vec<(&str, &str)> = events.iter().map(|event| ("", *event)).collect();
    let reply = decode(Protocol::OpenAiChat, &talk, &events).unwrap();
    talk.answer(&reply, "ok");
    let body = sent(&endpoint, model, &talk);
    let (_, said) = body.split_once(r#"{"role":"assistant","#).unwrap();
    (reply, said.to_owned())
}

fn calls(reply: &Reply) -> Vec<String> {
    reply.calls().map(|call| format!("{} {} {}", call.id, call.name, call.input)).collect()
}

#[test]
fn ollama_numbers_every_call_0_and_stops_with_stop() {
    let (reply, back) = goes_back(
        "ollama",
        "qwen3:8b",
        &[
            r#"{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","tool_calls":[{"id":"call_a","index":0,"type":"function","function":{"name":"Read","arguments":"{\"n\":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","tool_calls":[{"id":"call_b","index":0,"type":"function","function":{"name":"Read","arguments":"{\"n\":2}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}"#,
            "[DONE]",
        ],
    );
    assert_eq!((calls(&reply), &reply.stop), (vec![r#"call_a Read {"n":1}"#.to_owned(), r#"call_b Read {"n":2}"#.to_owned()], &StopReason::ToolUse));
    assert_eq!(reply.blocks[0].view(), &View::Thinking("hm".to_owned()));
    assert!(back.contains(r#"{"role":"tool","tool_call_id":"call_a","content":"ok"},{"role":"tool","tool_call_id":"call_b","content":"ok"}"#), "{back}");
}

#[test]
fn vllm_says_the_name_first_and_the_arguments_without_any_id() {
    let (reply, _) = goes_back(
        "vllm",
        "qwen3-coder",
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"Read"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\": "}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3,"prompt_tokens_details":null}}"#,
            "[DONE]",
        ],
    );
    assert_eq!(calls(&reply), [r#"chatcmpl-tool-1 Read {"n":1}"#]);
    assert_eq!((reply.usage.input, reply.usage.output), (5, 3));
}

#[test]
fn llama_cpp_sends_arguments_as_an_object_and_ids_that_are_empty() {
    let (reply, back) = goes_back(
        "local",
        "m",
        &[
            r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"Read","arguments":{"n":1}}}]}}]}"#,
            r#"{"choices":[{"finish_reason":"tool_calls","index":0,"delta":{}}],"usage":{"completion_tokens":3,"prompt_tokens":5},"timings":{"prompt_n":5}}"#,
            "[DONE]",
        ],
    );
    assert_eq!(calls(&reply), [r#"call_0_1 Read {"n":1}"#]);
    assert!(back.contains(r#""arguments":"{\"n\":1}""#) && back.contains(r#""tool_call_id":"call_0_1""#), "{back}");
}

#[test]
fn openrouter_gives_reasoning_in_pieces_and_gets_it_back_whole() {
    let (reply, back) = goes_back(
        "openrouter",
        "anthropic/claude-sonnet-5-5",
        &[
            r#"{"provider":"Anthropic","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","format":"anthropic-claude-v1","index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","reasoning_details":[{"type":"reasoning.text","signature":"c2ln","text":null,"index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","reasoning_details":[{"type":"reasoning.encrypted","data":"ZW5j","index":1}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"toolu_1","type":"function","function":{"name":"Read","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls","native_finish_reason":"tool_use"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#,
            "[DONE]",
        ],
    );
    assert_eq!(reply.blocks[0].view(), &View::Thinking("hm".to_owned()));
    let details = r#""reasoning_details":[{"type":"reasoning.text","text":"hm","format":"anthropic-claude-v1","index":0,"signature":"c2ln"},{"type":"reasoning.encrypted","data":"ZW5j","index":1}]"#;
    assert!(back.contains(details), "{back}");
    assert_eq!((reply.usage.input, reply.usage.cache_read), (3, 2));
}

#[test]
fn deepseek_wants_its_reasoning_back_with_calls() {
    let (reply, back) = goes_back(
        "deepseek",
        "deepseek-v4",
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"h"},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"m"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_00_x","type":"function","function":{"name":"Read","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":4}}"#,
            "[DONE]",
        ],
    );
    assert_eq!(reply.blocks[0].view(), &View::Thinking("hm".to_owned()));
    assert!(back.contains(r#""content":null,"reasoning_content":"hm","tool_calls":["#), "{back}");
    assert_eq!((reply.usage.input, reply.usage.cache_read), (5, 4));
}

#[test]
fn litellm_stops_with_stop_and_repeats_the_name() {
    let (reply, _) = goes_back(
        "litellm",
        "proxied",
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"arguments":"","name":"Read"},"type":"function","index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"{\"n\":","name":"Read"},"type":"function","index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"1}","name":"Read"},"type":"function","index":0}]}}]}"#,
            r#"{"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}"#,
            "[DONE]",
        ],
    );
    assert_eq!((calls(&reply), &reply.stop), (vec![r#"c Read {"n":1}"#.to_owned()], &StopReason::ToolUse));
    // The answer to a plain question ends the turn.
    let (reply, _) = goes_back("litellm", "proxied", &[r#"{"choices":[{"finish_reason":"stop","index":0,"delta":{"content":"x"}}]}"#]);
    assert_eq!((reply.text().as_str(), &reply.stop), ("x", &StopReason::EndTurn));
}
