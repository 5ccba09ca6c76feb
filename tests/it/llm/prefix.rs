//! One request begins as the one before it did, in every protocol.
#[path = "../../../benches/prefix.rs"]
mod bench;

use spinney::llm::Protocol;

const PROTOCOLS: &[(Protocol, &str)] = &[
    (Protocol::Anthropic, "claude-sonnet-5-5"),
    (Protocol::OpenAiResponses, "gpt-6-sol"),
    (Protocol::OpenAiChat, "qwen3"),
    (Protocol::Gemini, "gemini-3.7-flash"),
];

#[test]
fn a_request_begins_with_999_thousandths_of_the_prompt_before_it() {
    for (protocol, model) in PROTOCOLS {
        let shares = bench::shares(*protocol, model, 60).unwrap();
        for (turn, share) in shares.iter().enumerate() {
            assert!(share.prompt >= 0.999 && share.sent >= 0.5, "{protocol:?}, turn {turn}: {share:?}");
        }
    }
}
