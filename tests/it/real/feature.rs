//! The workflow `feature`, whole, in every protocol, and killed again and again.
use super::{
    drive::{self, Drive, carry_on, inputs},
    mind::{self, Wire, bench, check_requests},
};
use crate::{
    fixture::{Bench, outcome, results},
    invariants,
    server::{Answer, Asked, Delivery, Hosted},
};
use serde_json::json;
use spinney::{
    engine::Ended,
    event::{Event, MergeProgress, Outcome, Record},
};

/// Red until the part that was worked on is as it should be.
pub(super) const CHECK: &str = "cat *.txt && ! grep -v '^once [a-z]*$' *.txt";

/// A server that plays `feature`, whose coders are only answered once both are there.
pub(super) fn parallel(asked: &Asked) -> (Answer, Delivery) {
    let meet = if mind::is_coder_under_way(asked) { 2 } else { 0 };
    (Answer::Say(mind::feature(asked)), Delivery { meet, ..Delivery::default() })
}

/// Asserts that a run of `feature` did everything once, and right.
#[track_caller]
pub(super) fn check_run(bench: &Bench, records: &[Record]) {
    invariants::check(records, &bench.repo());
    let run = bench.newest();
    for part in ["left", "right"] {
        assert_eq!(bench.git(&["show", &format!("spinney/{run}:{part}.txt")]), format!("once {part}\n"));
        let of = results(records, &format!("build/{part}"));
        assert_eq!(of.iter().map(|(tool, is_error, _)| (*tool, *is_error)).collect::<Vec<_>>(), ["Read", "Write", "Edit", "Read"].map(|tool| (tool, false)));
        let passed = |record: &&Record| matches!(&record.event, Event::VerifyRan { node, passed: true, .. } if node.to_string() == format!("build/{part}"));
        // A check whose end was recorded and whose commit was not runs again after a kill: it changes nothing.
        assert!(records.iter().any(|record| passed(&record)));
    }
    let merges = |wanted: fn(&MergeProgress) -> bool| {
        records.iter().filter(|record| matches!(&record.event, Event::MergeAdvanced { progress, .. } if wanted(progress))).count()
    };
    assert_eq!(merges(|progress| matches!(progress, MergeProgress::Joined { .. })), 2);
    assert!(merges(|progress| matches!(progress, MergeProgress::Verified { passed: true, .. })) >= 1);
    let output = &outcome(records, "run")["succeeded"]["output"];
    assert_eq!(output["landed"], json!(["build/left", "build/right"]));
    assert_eq!(output["branch"], json!(format!("spinney/{run}")));
    assert_eq!(bench.git(&["status", "--porcelain"]), "", "the user's checkout is as it was");
}

fn plans_builds_in_parallel_merges_and_verifies(wire: Wire) {
    let server = Hosted::start(parallel);
    let bench = bench(wire, &server);
    let check = format!("check={CHECK}");
    let models: Vec<String> = mind::overrides(&bench).into_iter().map(|alias| format!("--model={alias}={}", mind::GEMINI)).collect();
    let mut arguments = vec!["run", "feature", "--input", "goal=Two parts", "--input", "ask=false", "--input", &check];
    arguments.extend(models.iter().map(String::as_str));
    let said = bench.spinney(&arguments).code(0);
    check_run(&bench, &bench.records(&bench.newest()));
    check_requests(&server);
    assert!(said.out.contains(&format!("spinney/{}", bench.newest())), "{}", said.out);
    let cache = bench.spinney(&["show", &bench.newest().0, "--cache"]).code(0);
    assert!(cache.out.contains("prompt tokens were read from the cache") && cache.out.contains("the conversation begins"), "{}", cache.out);
    let thought = server.asked().into_iter().filter(|asked| String::from_utf8_lossy(&asked.body).contains("I wonder")).count();
    match wire {
        Wire::Messages | Wire::Responses | Wire::Gemini => assert!(thought >= 7, "thinking goes back: {thought}"),
        Wire::Chat => assert_eq!(thought, 0, "this protocol does not want it back"),
    }
}

#[test]
fn a_feature_over_anthropic_messages() {
    plans_builds_in_parallel_merges_and_verifies(Wire::Messages);
}

#[test]
fn a_feature_over_chat_completions() {
    plans_builds_in_parallel_merges_and_verifies(Wire::Chat);
}

#[test]
fn a_feature_over_responses() {
    plans_builds_in_parallel_merges_and_verifies(Wire::Responses);
}

#[test]
fn a_feature_over_gemini() {
    plans_builds_in_parallel_merges_and_verifies(Wire::Gemini);
}

fn killed_every(records: usize, wire: Wire) {
    let server = Hosted::start(|asked| (Answer::Say(mind::feature(asked)), Delivery::default()));
    let bench = bench(wire, &server);
    let drive = Drive::new(&bench, "feature");
    let prepared = drive.start(inputs(CHECK));
    let run = prepared.run.clone();
    let mut ended = carry_on(prepared, records);
    let mut kills = 0;
    while ended.is_none() {
        kills += 1;
        assert!(kills < 100, "it never ends");
        // The first record of each life says that it began.
        ended = carry_on(drive.resume(&run), records + 1);
    }
    assert!(matches!(ended, Some(Ended::Finished(Outcome::Succeeded(_)))), "{ended:?}");
    assert!(kills > 5, "{kills}");
    check_run(&bench, &bench.records(&run));
    check_requests(&server);
    drive::assert_no_key_below(&bench.path(""));
}

#[test]
fn thinking_goes_back_byte_for_byte_after_every_kill() {
    killed_every(5, Wire::Messages);
}

#[test]
fn encrypted_reasoning_goes_back_byte_for_byte_after_every_kill() {
    killed_every(7, Wire::Responses);
}

#[test]
fn signed_parts_go_back_byte_for_byte_after_every_kill() {
    killed_every(8, Wire::Gemini);
}

#[test]
fn chat_conversations_go_on_after_every_kill() {
    killed_every(6, Wire::Chat);
}
