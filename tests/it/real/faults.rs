//! The ways in which servers fail: the run ends right, and nothing is done twice.
use super::{
    drive::{Drive, carry_on, inputs},
    feature::{CHECK, check_run},
    mind::{self, Wire, bench, check_requests, heard},
};
use crate::server::{Answer, Asked, Delivery, Hosted, Said};
use serde_json::json;
use spinney::{engine::Ended, event::Outcome};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Which fault meets the first attempt at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    RateLimit,
    Overload,
    Reset,
    Cut,
    Stall,
    NoEnd,
    Crumbs,
}

/// Says what goes wrong with the first attempt at a request.
fn fault(asked: &Asked) -> Option<Fault> {
    let first = heard(asked).first;
    let who = ["Plan this", "left part", "right part"].into_iter().find(|words| first.contains(words))?;
    Some(match (who, asked.turn()) {
        ("Plan this", 0) => Fault::RateLimit,
        ("left part", 0) => Fault::Overload,
        ("left part", 1) => Fault::Stall,
        ("left part", _) => Fault::Crumbs,
        ("right part", 0) => Fault::NoEnd,
        ("right part", 1) => Fault::Reset,
        (_, _) => Fault::Cut,
    })
}

/// Breaks an answer.
fn broken(fault: Fault, asked: &Asked) -> (Answer, Delivery) {
    let said = mind::feature(asked);
    let whole = said.bytes(asked);
    let text = String::from_utf8(whole.clone()).unwrap();
    // Behind the last call's arguments: everything is there but the end.
    let begun = ["event: message_delta", "event: response.completed"].iter().find_map(|mark| text.find(mark));
    let within = || [r#""finish_reason":""#, r#""finishReason":""#].iter().find_map(|mark| text.find(mark)).map(|at| text[..at].rfind("data: ").unwrap());
    let end = begun.or_else(within).unwrap();
    let plain = Delivery::default();
    match fault {
        Fault::RateLimit => (Answer::wait(429, "rate_limit_error", "7"), plain),
        Fault::Overload => (Answer::error(529, "overloaded_error"), plain),
        Fault::Reset => (Answer::Say(said), Delivery { cut_at: Some(end), ..plain }),
        Fault::Cut => (Answer::Say(said), Delivery { cut_at: Some(whole.len() / 2), ..plain }),
        Fault::Stall => (Answer::Say(said), Delivery { stall_at: Some(end), ..plain }),
        Fault::NoEnd => (Answer::Say(said), Delivery { cut_at: Some(end), is_clean: true, ..plain }),
        Fault::Crumbs => (Answer::Say(said), Delivery { chunk: Some(1), ..plain }),
    }
}

fn every_fault_once(wire: Wire) {
    let attempts: Arc<Mutex<BTreeMap<Vec<u8>, usize>>> = Arc::default();
    let counted = attempts.clone();
    let server = Hosted::start(move |asked| {
        let mut attempts = counted.lock().unwrap();
        let attempt = attempts.entry(asked.body.clone()).or_default();
        *attempt += 1;
        match fault(asked).filter(|_| *attempt == 1) {
            Some(fault) => broken(fault, asked),
            None => (Answer::Say(mind::feature(asked)), Delivery::default()),
        }
    });
    let bench = bench(wire, &server);
    let drive = Drive::new(&bench, "feature");
    let prepared = drive.start(inputs(CHECK));
    let ended = carry_on(prepared, usize::MAX);
    assert!(matches!(ended, Some(Ended::Finished(Outcome::Succeeded(_)))), "{ended:?}");
    check_run(&bench, &bench.records(&bench.newest()));
    check_requests(&server);
    for asked in server.asked() {
        let met = fault(&asked).is_some_and(|fault| fault != Fault::Crumbs);
        let attempts = attempts.lock().unwrap()[&asked.body];
        assert!(attempts == if met { 2 } else { 1 }, "turn {} of {}: {attempts} attempts", asked.turn(), heard(&asked).first);
    }
}

#[test]
fn every_fault_of_a_messages_server_is_survived() {
    every_fault_once(Wire::Messages);
}

#[test]
fn every_fault_of_a_chat_server_is_survived() {
    every_fault_once(Wire::Chat);
}

#[test]
fn every_fault_of_a_responses_server_is_survived() {
    every_fault_once(Wire::Responses);
}

#[test]
fn every_fault_of_a_gemini_server_is_survived() {
    every_fault_once(Wire::Gemini);
}

/// Gives all calls of all turns one id.
fn same_ids(said: Said) -> Said {
    Said { calls: said.calls.into_iter().map(|(_, name, input)| ("twice".to_owned(), name, input)).collect(), ..said }
}

fn ids_twice(wire: Wire) {
    let server = Hosted::start(|asked| (Answer::Say(same_ids(mind::feature(asked))), Delivery::default()));
    let bench = bench(wire, &server);
    let check = format!("check={CHECK}");
    bench.spinney(&["run", "feature", "--unconfined", "--input", "goal=Two parts", "--input", "ask=false", "--input", &check]).code(0);
    check_run(&bench, &bench.records(&bench.newest()));
    check_requests(&server);
}

#[test]
fn ids_that_a_messages_server_gives_twice_are_told_apart() {
    ids_twice(Wire::Messages);
}

#[test]
fn ids_that_a_chat_server_gives_twice_are_told_apart() {
    ids_twice(Wire::Chat);
}

const EACH: &str = "version: 1\nname: each\nagents: { reader: { system: \"You read.\", model: anthropic/claude-opus-5-5 } }\nsteps:\n  each: { for_each: { items: [a, b, c, d, e], as: it, max_parallel: 5 }, agent: reader, prompt: \"{{ it }}\" }\n";

#[test]
fn a_provider_that_stays_down_parks_all_its_agents_and_they_go_on_once_it_is_up() {
    let is_up = Arc::new(AtomicBool::new(false));
    let came_up = is_up.clone();
    let server = Hosted::start(move |_| {
        let up = came_up.load(Ordering::SeqCst);
        (if up { Answer::Say(Said::text("done")) } else { Answer::error(529, "overloaded_error") }, Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("each", EACH);
    let prepared = Drive::new(&bench, "each").start(json!({}));
    let run = prepared.run.clone();
    let Some(Ended::Parked(waits)) = carry_on(prepared, usize::MAX) else { panic!("it is not parked") };
    assert_eq!(waits.len(), 5, "{waits:?}");
    // Some have come to the end of their attempts, the others are let to ask no more.
    for (node, why) in &waits {
        assert!(why.contains("after 10 attempts") || why.contains("every request has failed for"), "{node}: {why}");
    }
    assert!(server.asked().len() <= 5 * 10, "{}", server.asked().len());
    is_up.store(true, Ordering::SeqCst);
    let ended = carry_on(Drive::new(&bench, "each").resume(&run), usize::MAX);
    assert!(matches!(ended, Some(Ended::Finished(Outcome::Succeeded(_)))), "{ended:?}");
}
