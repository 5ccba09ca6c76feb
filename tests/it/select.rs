//! What a choice promises: gates in each candidate's own tree, judges that see no names, votes that are counted once.
use crate::{
    driver::{Drive, Line, Sent},
    fixture::{Bench, outcome},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Record, SelectProgress},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// A fan of three candidates: what each writes to `answer.txt` is its key, so often.
fn bench(select: &str) -> Bench {
    let workflow = format!(
        r#"version: 1
name: pick
agents:
  fixer: {{ system: "You fix.", access: write }}
  judge: {{ system: "You judge.", access: read }}
steps:
  fix:
    for_each: {{ items: [longest, long, short], as: way, join: all_done }}
    agent: fixer
    prompt: "Fix it the {{{{ way }}}} way."
  pick:
    needs: [{{ step: fix, on: done }}]
    select: {{ from: fix, {select} }}
  after: {{ needs: [pick], run: "cat answer.txt" }}
outputs: {{ winner: "{{{{ steps.pick.output.winner }}}}", why: "{{{{ steps.pick.output.why }}}}" }}
"#
    );
    Bench::new().file(".gitignore", ".spinney/\n").commit("files").workflow("pick", &workflow)
}

/// The key of the candidate that is at work.
fn way(sent: &Sent) -> &str {
    sent.node.strip_prefix("fix/").unwrap_or_default()
}

fn lines(way: &str) -> String {
    let count = match way {
        "longest" => 9,
        "long" => 5,
        _ => 1,
    };
    format!("{way}\n").repeat(count)
}

fn fixer(sent: &Sent) -> Line {
    match sent.turn() {
        0 => Line::call(
            "Write",
            json!({"file_path": "answer.txt", "content": lines(way(sent)).replace("longest", "LLL").replace("long", "LL").replace("short", "S")}),
        ),
        _ => Line::say(&format!("I, fix/{} of fixer, did it well.", way(sent))),
    }
}

/// Returns the letter under which a judge sees the candidate whose diff holds a line.
fn label(sent: &Sent, line: &str) -> String {
    let section = |part: &&str| part.lines().any(|of| of == format!("+{line}"));
    let part = sent.messages[0].split("\n# Candidate ").skip(1).find(section).unwrap_or_else(|| panic!("no candidate has {line}"));
    part.lines().next().unwrap().to_owned()
}

fn labels(sent: &Sent) -> Vec<String> {
    sent.messages[0].split("\n# Candidate ").skip(1).map(|part| part.lines().next().unwrap().to_owned()).collect()
}

fn vote(sent: &Sent, line: &str, score: f64) -> Line {
    let winner = label(sent, line);
    let scores: BTreeMap<String, Value> =
        labels(sent).into_iter().map(|label| (label.clone(), json!({"risk": if label == winner { score } else { 1.0 }}))).collect();
    Line::say(&json!({"winner": winner, "scores": scores, "why": format!("Candidate {winner} is simple.")}).to_string())
}

fn judge_number(sent: &Sent) -> Option<u32> {
    sent.node.strip_prefix("pick:judge-")?.parse().ok()
}

fn progress(records: &[Record]) -> Vec<&SelectProgress> {
    records.iter().filter_map(|record| if let Event::SelectAdvanced { progress, .. } = &record.event { Some(progress) } else { None }).collect()
}

fn output(records: &[Record]) -> Value {
    outcome(records, "pick")["succeeded"]["output"].clone()
}

const JUDGE: &str = "judge: { agent: judge, votes: 3, blind: true, rubric: \"Prefer what is simple.\", criteria: [risk] }";

#[test]
fn the_majority_of_blind_judges_decides_and_the_winner_flows_on() {
    let bench = bench(&format!("gates: [\"test -s answer.txt\"], {JUDGE}, keep_losers: 7d"));
    let drive = bench.drive(|sent, _| match judge_number(sent) {
        None => fixer(sent),
        Some(2) => vote(sent, "S", 3.0),
        Some(number) => vote(sent, "LL", f64::from(number)),
    });
    let (ended, records) = drive.run("pick");
    assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
    let output = output(&records);
    assert_eq!(output["winner"], "long");
    assert_eq!(output["why"], "2 of 3 votes: Candidate `long` is simple. / Candidate `long` is simple.");
    let mean = |key: &str| output["scores"][key]["risk"].as_f64().unwrap();
    assert!((mean("long") - (1.0 + 1.0 + 3.0) / 3.0).abs() < 1e-9 && (mean("short") - (1.0 + 3.0 + 1.0) / 3.0).abs() < 1e-9, "{output}");
    assert_eq!(outcome(&records, "after")["succeeded"]["output"]["stdout"], "LL\n".repeat(5));
    let candidate = outcome(&records, "fix/long")["succeeded"]["commit"].clone();
    assert_eq!((&output["commit"], &outcome(&records, "pick")["succeeded"]["commit"]), (&candidate, &candidate), "the very commit flows on");
    let Some(SelectProgress::Chosen { losers, kept_until: Some(until), .. }) = progress(&records).last().copied() else { panic!("{:?}", progress(&records)) };
    let week = std::time::Duration::from_hours(168);
    assert!(until.since(records[0].at) >= week);
    assert_eq!(losers.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>(), ["fix/longest", "fix/short"]);
    for (_, commit) in losers {
        assert!(!bench.git(&["for-each-ref", "--contains", &commit.0]).is_empty(), "a ref keeps {commit}");
    }
    no_names_are_told(&drive);
    let shown = bench.spinney(&["show", &bench.newest().0]).code(0).out;
    assert!(shown.contains("Choice pick") && shown.contains("chosen") && shown.contains("2 put aside, kept until"), "{shown}");
}

/// What blind judges are told holds the work, and neither names nor models.
fn no_names_are_told(drive: &Drive<'_>) {
    let sent = drive.sent();
    let told: BTreeMap<u32, &Sent> = sent.iter().filter_map(|sent| Some((judge_number(sent)?, sent))).collect();
    assert_eq!(told.len(), 3);
    for sent in told.values() {
        let text = &sent.messages[0];
        assert!(
            text.contains("Prefer what is simple.") && text.contains("Green: test -s answer.txt") && text.contains("> I, […] of […], did it well."),
            "{text}"
        );
        for name in ["longest", "short", "fix/", "fixer", "scripted/"] {
            assert!(!text.contains(name), "{name} is told: {text}");
        }
        assert_eq!(labels(sent), ["A", "B", "C"]);
        assert!(sent.system.contains("\"enum\":[\"A\",\"B\",\"C\"]"), "{}", sent.system);
    }
}

#[test]
fn a_red_candidate_never_reaches_the_judge_and_one_left_needs_none() {
    let bench = bench(&format!("gates: [\"grep -q L answer.txt\", \"test $(wc -l < answer.txt) -lt 7\"], {JUDGE}"));
    let drive = bench.drive(|sent, _| fixer(sent));
    let (_, records) = drive.run("pick");
    assert_eq!(output(&records)["winner"], "long");
    assert_eq!(output(&records)["why"], "it is the only one of 3 candidates that passed the gates");
    assert!(drive.sent().iter().all(|sent| judge_number(sent).is_none()));
    let red: Vec<(String, bool)> = progress(&records)
        .iter()
        .filter_map(|done| {
            if let SelectProgress::Gated { candidate, passed, tail } = done {
                Some((format!("{candidate} {}", tail.lines().next().unwrap_or_default()), *passed))
            } else {
                None
            }
        })
        .collect();
    let red: BTreeSet<&str> = red.iter().filter(|(_, passed)| !passed).map(|(said, _)| said.as_str()).collect();
    assert_eq!(red, BTreeSet::from(["fix/longest $ test $(wc -l < answer.txt) -lt 7", "fix/short $ grep -q L answer.txt"]));
}

#[test]
fn none_left_fails_with_what_each_failed_on() {
    let bench = bench(&format!("gates: [\"test -e missing.txt\"], {JUDGE}"));
    let (_, records) = bench.drive(|sent, _| fixer(sent)).run("pick");
    let failure = &outcome(&records, "pick")["failed"];
    assert_eq!(failure["kind"], "verify");
    let message = failure["message"].as_str().unwrap();
    for key in ["longest", "long", "short"] {
        assert!(message.contains(&format!("\n{key}: $ test -e missing.txt")), "{message}");
        assert!(failure["output"]["gates"][key].as_str().unwrap().contains("exit code 1"));
    }
}

#[test]
fn a_tie_is_decided_as_the_file_says() {
    let three = |sent: &Sent, number: u32| vote(sent, ["LLL", "LL", "S"][number as usize - 1], 2.0);
    for (tie, winner) in [("smallest_diff", Some("short")), ("first", Some("longest")), ("fail", None)] {
        let bench = bench(&format!("{JUDGE}, tie: {tie}"));
        let drive = bench.drive(move |sent, _| judge_number(sent).map_or_else(|| fixer(sent), |number| three(sent, number)));
        let (_, records) = drive.run("pick");
        match winner {
            Some(winner) => assert_eq!(output(&records)["winner"], winner, "{tie}"),
            None => assert!(outcome(&records, "pick")["failed"]["message"].as_str().unwrap().contains("do not decide between longest, long, short")),
        }
    }
}

#[test]
fn without_a_judge_the_tie_rule_decides_at_once() {
    let bench = bench("gates: [\"grep -q L answer.txt\"]");
    let (_, records) = bench.drive(|sent, _| fixer(sent)).run("pick");
    assert_eq!(output(&records)["winner"], "long");
    assert!(output(&records)["why"].as_str().unwrap().contains("the fewest changed lines (5)"), "{}", output(&records));
}

#[test]
fn an_answer_that_is_no_vote_is_asked_for_again_and_a_judge_may_fail() {
    let bench = bench(JUDGE);
    let drive = bench.drive(|sent, _| match (judge_number(sent), sent.turn()) {
        (None, _) => fixer(sent),
        (Some(1), 0) => Line::say("{\"winner\": \"Z\"}"),
        (Some(2), _) => Line::say("I cannot say."),
        (Some(_), _) => vote(sent, "S", 2.0),
    });
    let (_, records) = drive.run("pick");
    assert_eq!(output(&records)["winner"], "short");
    assert!(output(&records)["why"].as_str().unwrap().starts_with("2 of 2 votes"));
    assert!(
        progress(&records).iter().any(|done| matches!(done, SelectProgress::Abstained { vote: 2, reason, .. } if reason.contains("does not fit its schema")))
    );
}

#[test]
fn a_judge_only_reads_and_long_changes_are_cut() {
    let bench = bench("judge: { agent: judge, votes: 1, blind: false }");
    let drive = bench.drive(|sent, _| match (judge_number(sent), sent.turn()) {
        (None, 0) => Line::call("Write", json!({"file_path": "answer.txt", "content": "x".repeat(99).add_line(2000)})),
        (None, _) => Line::say("done"),
        (Some(_), 0) => Line::Say(String::new(), vec![("Bash".into(), json!({"command": "ls; touch new.txt"})), ("Bash".into(), json!({"command": "ls"}))]),
        (Some(_), _) => Line::say("{\"winner\": \"long\", \"scores\": {\"longest\": {}, \"long\": {}, \"short\": {}}, \"why\": \"It is.\"}"),
    });
    let (_, records) = drive.run("pick");
    assert_eq!(output(&records)["winner"], "long");
    let told = drive.sent().into_iter().find(|sent| judge_number(sent).is_some()).unwrap();
    assert_eq!(labels(&told), ["longest", "long", "short"], "not blind: by key, in the order of the items");
    assert_eq!(told.messages[0].matches("more bytes of the changes are not shown]").count(), 3);
    assert!(told.messages[0].len() < 200_000, "{}", told.messages[0].len());
    let answers: Vec<(bool, &str)> = crate::driver::answers(&records, "pick:judge-1").iter().map(|(_, is_error, text)| (*is_error, *text)).collect();
    assert!(answers[0].0 && !answers[1].0 && !answers[1].1.contains("answer.txt") && answers[1].1.contains("README.md"), "{answers:?}");
}

trait AddLine {
    fn add_line(&self, times: usize) -> String;
}

impl AddLine for String {
    fn add_line(&self, times: usize) -> String {
        format!("{self}\n").repeat(times)
    }
}

#[test]
fn nothing_is_gated_or_voted_twice_whenever_the_process_ends() {
    let gates = "gates: [\"echo seen >> seen.txt && test $(wc -l < seen.txt) = 1 && test -s answer.txt\"]";
    let model = |sent: &Sent, _: &spinney::llm::ModelCall<'_>| {
        judge_number(sent).map_or_else(|| fixer(sent), |number| vote(sent, if number == 2 { "S" } else { "LLL" }, 2.0))
    };
    let whole = bench(&format!("{gates}, {JUDGE}"));
    let (_, records) = whole.drive(model).run("pick");
    let wanted = output(&records);
    assert_eq!(wanted["winner"], "longest");
    for stop_at in 0..progress(&records).len() {
        let bench = bench(&format!("{gates}, {JUDGE}"));
        let drive = bench.drive(model);
        let mut seen = 0;
        let (ended, _) = drive.run_until("pick", |record| {
            seen += usize::from(matches!(record.event, Event::SelectAdvanced { .. }));
            matches!(record.event, Event::SelectAdvanced { .. }) && seen == stop_at + 1
        });
        let records = if ended == Ended::Interrupted { drive.resume("pick").1 } else { bench.records(&bench.newest()) };
        let output = output(&records);
        assert_eq!((&output["winner"], &output["why"], &output["scores"]), (&wanted["winner"], &wanted["why"], &wanted["scores"]), "ended at {stop_at}");
        let replies = records.iter().filter(|record| matches!(&record.event, Event::ModelReplied { node, .. } if node.step.0 == "pick")).count();
        assert_eq!((replies, progress(&records).len()), (3, 7), "ended at {stop_at}");
        assert!(fs::read_dir(bench.repo()).unwrap().flatten().all(|entry| entry.file_name() != "seen.txt"));
    }
}
