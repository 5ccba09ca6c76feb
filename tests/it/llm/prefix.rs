//! One request begins as the one before it did, in every protocol.
#[path = "../../../benches/prefix.rs"]
mod bench;

use spinney::llm::{Endpoint, Protocol};

const PROTOCOLS: &[(Protocol, &str)] = &[
    (Protocol::Anthropic, "claude-sonnet-5-5"),
    (Protocol::OpenAiResponses, "gpt-6-sol"),
    (Protocol::OpenAiChat, "qwen3"),
    (Protocol::Gemini, "gemini-3.7-flash"),
];
const TURNS: usize = 60;

#[test]
fn a_request_begins_with_999_thousandths_of_the_prefix_of_the_one_before_it() {
    for (protocol, model) in PROTOCOLS {
        for (turn, share) in bench::shares(&bench::own(*protocol).unwrap(), model, TURNS, |_| 2).unwrap().iter().enumerate() {
            assert!(share.sent >= 0.999 && share.prompt >= 0.999, "{protocol:?}, turn {turn}: {share:?}");
        }
    }
}

/// A mark that moves is no other prompt: where it does, all but the mark is the same.
#[test]
fn only_where_a_mark_moves_it_is_the_prefix_without_its_marks() {
    let anthropic = bench::own(Protocol::Anthropic).unwrap();
    // One reply has more calls than are looked back over, and then another one.
    let shares = bench::shares(&anthropic, "claude-sonnet-5-5", TURNS, |turn| if matches!(turn, 20 | 40) { 12 } else { 2 }).unwrap();
    assert!(shares.iter().all(|share| share.prompt >= 0.999));
    let moves: Vec<usize> = (0..TURNS).filter(|turn| shares[*turn].sent < 0.999).collect();
    assert_eq!(moves, [20, 40]);
    // Another server is told every mark where it stands.
    let other = Endpoint { base_url: "https://gateway.example".to_owned(), ..anthropic };
    let shares = bench::shares(&other, "claude-sonnet-5-5", TURNS, |_| 2).unwrap();
    assert!(shares.iter().all(|share| share.prompt >= 0.999) && shares.iter().skip(2).all(|share| share.sent < 0.999));
}
