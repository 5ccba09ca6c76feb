//! Runs that were recorded and are run again from the recording.
use super::{
    drive::{Drive, carry_on},
    feature::{CHECK, check_run, parallel},
    mind::{KEY, Wire, bench, call, done, heard},
};
use crate::{
    fixture::{Bench, outcome},
    invariants,
    server::{Answer, Delivery, Hosted},
};
use serde_json::{Value, json};
use spinney::event::{Event, Record, RunId};
use std::{collections::BTreeMap, fs, time::Duration};

/// Records a `feature` and returns its bench, whose server is gone.
fn recorded(wire: Wire) -> Bench {
    let server = Hosted::start(parallel);
    let bench = bench(wire, &server);
    let check = format!("check={CHECK}");
    let tape = bench.path("tape.jsonl").display().to_string();
    bench.spinney(&["run", "feature", "--input", "goal=Two parts", "--input", "ask=false", "--input", &check, "--record", &tape]).code(0);
    bench
}

fn again(bench: &Bench, goal: &str) -> crate::fixture::Said {
    let tape = bench.path("tape.jsonl").display().to_string();
    let check = format!("check={CHECK}");
    bench.spinney(&["run", "feature", "--input", &format!("goal={goal}"), "--input", "ask=false", "--input", &check, "--replay", &tape])
}

fn gives_the_same_without_a_server(wire: Wire) {
    let bench = recorded(wire);
    let first = bench.newest();
    let bench = bench.env("ANTHROPIC_API_KEY", "").env("OPENAI_API_KEY", "");
    let said = again(&bench, "Two parts").code(0);
    assert!(said.out.contains("replayed from a recording"), "{}", said.out);
    let second = bench.newest();
    assert_ne!(first, second);
    check_run(&bench, &bench.records(&second));
    let tree = |run: &RunId| bench.git(&["rev-parse", &format!("spinney/{run}^{{tree}}")]);
    assert_eq!(tree(&first), tree(&second));
    let text = fs::read_to_string(bench.path("tape.jsonl")).unwrap();
    assert!(!text.contains(KEY));
}

#[test]
fn a_recorded_feature_runs_again_without_a_server_over_messages() {
    gives_the_same_without_a_server(Wire::Messages);
}

#[test]
fn a_recorded_feature_runs_again_without_a_server_over_chat() {
    gives_the_same_without_a_server(Wire::Chat);
}

#[test]
fn another_request_is_an_error_that_shows_the_difference() {
    let bench = recorded(Wire::Messages);
    let said = again(&bench, "Three parts").code(1);
    for words in ["is not the recorded one", "message 1", "recorded: ", "Two parts", "now: ", "Three parts", "--record"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    invariants::check(&bench.records(&bench.newest()), &bench.repo());
}

fn said(bench: &Bench) -> Value {
    outcome(&bench.records(&bench.newest()), "run")["succeeded"]["output"].clone()
}

const ONE: &str = "version: 1\nname: one\nsecrets: [TOKEN]\nagents: { coder: { system: You code., access: write } }\nsteps:\n  work: { agent: coder, prompt: Do it., env: { TOKEN: \"{{ secrets.TOKEN }}\" } }\noutputs: { said: \"{{ steps.work.output }}\" }\n";

#[test]
fn a_recording_holds_no_secret_and_replays_where_the_secret_is_another() {
    let server = Hosted::start(|asked| {
        let last = heard(asked).last;
        let said = if last.contains("Do it.") { call(asked, "Bash", json!({"command": "echo it is $TOKEN"})) } else { done(&format!("heard {last}")) };
        (Answer::Say(said), Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("one", ONE).env("TOKEN", "s3cr3t-value-one");
    let tape = bench.path("tape.jsonl").display().to_string();
    bench.spinney(&["run", "one", "--unconfined", "--record", &tape]).code(0);
    let first = outcome(&bench.records(&bench.newest()), "run");
    assert!(!fs::read_to_string(&tape).unwrap().contains("s3cr3t"));
    // A second run may not be recorded over it.
    let said = bench.spinney(&["run", "one", "--unconfined", "--record", &tape]).code(2);
    assert!(said.err.contains("it exists"), "{}", said.err);
    drop(server);
    let bench = bench.env("TOKEN", "an0ther-value");
    bench.spinney(&["run", "one", "--unconfined", "--replay", &tape]).code(0);
    assert_eq!(outcome(&bench.records(&bench.newest()), "run"), first);
}

/// Two writers of one file with a resolver, and a choice between them by judges that see no names.
const MEETS: &str = r#"
version: 1
name: meets
agents: { coder: { system: You code., access: write }, judge: { system: You judge. } }
steps:
  left: { agent: coder, prompt: write left }
  right: { agent: coder, prompt: write right }
  land: { needs: [left, right], merge: { from: [left, right], on_conflict: { agent: coder } } }
  alpha: { needs: [land], agent: coder, prompt: write alpha }
  beta: { needs: [land], agent: coder, prompt: write beta }
  pick: { needs: [alpha, beta], select: { from: [alpha, beta], judge: { agent: judge, blind: true, votes: 3 } } }
outputs: { why: "{{ steps.pick.output.why }}" }
"#;

#[test]
fn resolvers_and_blind_judges_are_found_again() {
    let script = r#"
conversations:
  - agent: coder
    told: "write (?<side>\\w+)"
    turns: [{ calls: [{ tool: Write, input: { file_path: same.txt, content: "${side}\n" } }] }, { say: done }]
  - agent: coder
    turns: [{ calls: [{ tool: Write, input: { file_path: same.txt, content: "both\n" } }] }, { say: settled }]
  - agent: judge
    turns: [{ say: '{"winner": "A", "why": "it is first", "scores": {"A": {}, "B": {}}}' }]
"#;
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("begin").workflow("meets", MEETS);
    let (script, tape) = (bench.script(script), bench.path("tape.jsonl").display().to_string());
    bench.spinney(&["run", "meets", "--script", &script, "--record", &tape]).code(0);
    let end = |bench: &Bench| (said(bench), bench.git(&["rev-parse", &format!("spinney/{}^{{tree}}", bench.newest())]));
    let first = end(&bench);
    for _ in 0..3 {
        let again = bench.spinney(&["run", "meets", "--replay", &tape]).code(0);
        assert!(again.out.contains("settled by coder"), "{}", again.out);
        assert_eq!(end(&bench), first);
    }
}

#[test]
fn a_device_is_no_recording_and_absurd_counts_do_no_harm() {
    let bench = recorded(Wire::Messages);
    let said = bench.spinney(&["run", "feature", "--input", "goal=x", "--record", "/dev/zero"]).code(2);
    assert!(said.err.contains("it exists"), "{}", said.err);
    let tape = bench.path("tape.jsonl");
    let text = fs::read_to_string(&tape).unwrap().replace("\"input\":12,", "\"input\":18446744073709551615,");
    assert!(text.contains("18446744073709551615"), "the server counts otherwise");
    fs::write(&tape, text).unwrap();
    let said = again(&bench, "Two parts");
    assert!(!said.out.contains("panicked") && !said.err.contains("panicked"), "{}{}", said.out, said.err);
}

#[test]
fn recordings_that_are_none_or_are_cut_short_say_so() {
    let bench = recorded(Wire::Messages);
    let tape = bench.path("tape.jsonl");
    let text = fs::read_to_string(&tape).unwrap();
    let cut = text[..text.len() / 2].to_owned();
    let without_text = text.lines().filter(|line| !line.contains("\"system\"") || line.contains("exchange")).collect::<Vec<_>>();
    let without_text = without_text.iter().filter(|line| !line.starts_with("{\"text\":")).map(|line| format!("{line}\n")).collect::<String>();
    for (text, code, words) in [
        ("", 2, "it is empty"),
        ("{\"a\": 1}\n", 2, "does not begin as a recording does"),
        (&*text.replacen("\"recording\":4", "\"recording\":5", 1), 2, "its format is 5"),
        (&*format!("{text}nothing\n"), 2, "line "),
        (&*without_text, 2, "is missing"),
        (&*cut, 1, "the recording"),
    ] {
        fs::write(&tape, text).unwrap();
        let said = again(&bench, "Two parts").code(code);
        assert!(said.err.contains(words) || said.out.contains(words), "{words}: {}{}", said.out, said.err);
    }
}

#[test]
fn a_run_that_was_taken_up_again_goes_on_recording_and_replaying() {
    let server = Hosted::start(|asked| {
        let last = heard(asked).last;
        let said = if last.contains("Do it.") { call(asked, "Bash", json!({"command": "touch made"})) } else { done(&format!("heard {last}")) };
        (Answer::Say(said), Delivery::default())
    });
    let asks = ONE.replace("secrets: [TOKEN]\n", "permissions: { ask: [\"Bash(touch:*)\"] }\n").replace(", env: { TOKEN: \"{{ secrets.TOKEN }}\" }", "");
    let bench = bench(Wire::Messages, &server).workflow("one", &asks);
    let tape = bench.path("tape.jsonl").display().to_string();
    bench.spinney(&["run", "one", "--unconfined", "--record", &tape]).code(3);
    // A line that a kill cut short is no part of it.
    fs::write(&tape, format!("{}{{\"exch", fs::read_to_string(&tape).unwrap())).unwrap();
    bench.spinney(&["resume", "--unconfined", "--on-ask", "allow", "--record", &tape]).code(0);
    let first = said(&bench);
    drop(server);
    bench.spinney(&["run", "one", "--unconfined", "--replay", &tape]).code(3);
    // The recording is kept with the run.
    fs::remove_file(&tape).unwrap();
    bench.spinney(&["resume", "--unconfined", "--on-ask", "allow"]).code(0);
    assert_eq!(said(&bench), first);
}

#[test]
fn a_recording_of_a_run_that_waits_is_said_not_to_be_whole() {
    let server = Hosted::start(|_| (Answer::Say(done("Done.")), Delivery::default()));
    let asks = "version: 1\nname: asks\nagents: { coder: { system: You code. } }\nsteps:\n  work: { agent: coder, prompt: Do it. }\n  gate: { needs: [work], approve: { message: \"Go on?\" } }\n";
    let bench = bench(Wire::Messages, &server).workflow("asks", asks);
    let tape = bench.path("tape.jsonl").display().to_string();
    let said = bench.spinney(&["run", "asks", "--record", &tape]).code(3);
    assert!(said.err.contains("the recording is not whole yet") && said.err.contains("--no-resume"), "{}", said.err);
    let run = bench.newest();
    bench.spinney(&["approve", &run.0, "--no-resume"]).code(0);
    let said = bench.spinney(&["resume", &run.0, "--record", &tape]).code(0);
    assert!(!said.err.contains("not whole"), "{}", said.err);
}

#[test]
fn a_replay_costs_what_the_run_did_with_what_was_lost_on_the_way() {
    let workflow = "version: 1\nname: one\nagents: { reader: { system: You read. } }\nsteps: { work: { agent: reader, prompt: Do it. } }\n";
    for (wire, model) in [(Wire::Messages, "anthropic/claude-sonnet-5-5"), (Wire::Gemini, "gemini/gemini-3.7-flash")] {
        // Two attempts break off, one of them after it said what it had used.
        let server = Hosted::start(|asked| {
            let cut_at = [Some(900), Some(60)].get(asked.number).copied().flatten();
            (Answer::Say(done("It is all well here. ".repeat(9).as_str())), Delivery { cut_at, ..Delivery::default() })
        });
        let bench = bench(wire, &server).workflow("one", workflow);
        let tape = bench.path("tape.jsonl").display().to_string();
        let spent = |records: &[Record]| {
            let of = |record: &Record| match &record.event {
                Event::AttemptsLost { usage, usd, .. } => Some(("lost", *usage, *usd)),
                Event::ModelReplied { reply, .. } => Some(("used", reply.usage, reply.usd)),
                _ => None,
            };
            records.iter().filter_map(of).collect::<Vec<_>>()
        };
        bench.spinney(&["run", "one", "--model", model, "--record", &tape]).code(0);
        let then = spent(&bench.records(&bench.newest()));
        assert_eq!(server.asked().len(), 3);
        bench.spinney(&["run", "one", "--replay", &tape]).code(0);
        let records = bench.records(&bench.newest());
        invariants::check(&records, &bench.repo());
        assert_eq!(server.asked().len(), 3, "nothing is sent");
        assert_eq!(spent(&records), then);
        assert_eq!(then.iter().map(|(what, ..)| *what).collect::<Vec<_>>(), ["lost", "used"], "{then:?}");
        assert!(then[0].1.total() > 0 && then[0].2.is_some_and(|usd| usd > 0.0), "{then:?}");
    }
}

/// A bench with one agent that reads for ever, whose model costs $10 for a million tokens, and where it is recorded to.
fn reader(budget: &str, server: &Hosted) -> (Bench, String) {
    let workflow = format!(
        "version: 1\nname: one\n{budget}agents: {{ reader: {{ system: You read., model: anthropic/claude-opus-5-5 }} }}\nsteps: {{ work: {{ agent: reader, prompt: Do it. }} }}\n"
    );
    let bench = bench(Wire::Messages, server).workflow("one", &workflow);
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), "prices: { anthropic/claude-opus-5-5: { input: 10, output: 10 } }\n").unwrap();
    let tape = bench.path("tape.jsonl").display().to_string();
    (bench, tape)
}

/// Returns how a run ended, where it did, and what each of its replies used.
fn came_to(bench: &Bench) -> Value {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    let of = |record: &Record| match &record.event {
        Event::ModelReplied { reply, .. } => Some(json!([reply.usage, reply.usd])),
        Event::RunFinished { outcome } => Some(json!(outcome.word())),
        Event::StepFinished { outcome, .. } => Some(json!(outcome)),
        Event::Parked { failure, .. } => Some(json!(failure)),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

#[test]
fn a_replay_is_held_to_a_budget_as_the_run_was() {
    // Seven replies of 2557 tokens, $0.02557, fit; the eighth would but for what is expected of it.
    for (limit, exceed, code) in [
        ("usd: 0.2", "stop", 1),
        ("usd: 0.2", "finish", 0),
        ("usd: 0.2", "ask", 3),
        ("usd: 0.00001", "stop", 1),
        ("tokens: 20000, usd: 99", "stop", 1),
        ("usd: 99", "stop", 0),
    ] {
        let server = Hosted::start(|asked| {
            let said = if asked.turn() < 12 { call(asked, "Read", json!({"file_path": format!("{}.txt", asked.turn())})) } else { done("Read.") };
            (Answer::Say(crate::server::Said { prompt: Some(2_500), ..said }), Delivery::default())
        });
        let (bench, tape) = reader(&format!("budget: {{ {limit}, on_exceed: {exceed} }}\n"), &server);
        bench.spinney(&["run", "one", "--record", &tape]).code(code);
        let then = came_to(&bench);
        let replies = then.as_array().unwrap().iter().filter(|told| told.is_array()).count();
        assert_eq!(replies == 13, limit == "usd: 99", "{limit}: {replies}");
        drop(server);
        bench.spinney(&["run", "one", "--replay", &tape]).code(code);
        assert_eq!(came_to(&bench), then, "{limit} {exceed}");
    }
}

#[test]
fn a_replay_goes_on_where_the_journal_stands_after_its_account_was_used_up() {
    let spent = r#"{"error":{"type":"rate_limit_error","message":"spent","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    let server = Hosted::start(move |asked| {
        let answer = match asked.number {
            1 | 2 => Answer::Status(429, Vec::new(), spent.to_owned()),
            _ if asked.turn() == 0 => Answer::Say(call(asked, "Read", json!({"file_path": "README.md"}))),
            _ => Answer::Say(done("Read.")),
        };
        (answer, Delivery::default())
    });
    let (bench, tape) = reader("", &server);
    bench.spinney(&["run", "one", "--record", &tape]).code(3);
    bench.spinney(&["resume", "--record", &tape]).code(3);
    bench.spinney(&["resume", "--record", &tape]).code(0);
    assert_eq!(server.asked().len(), 4);
    let then = came_to(&bench);
    drop(server);
    bench.spinney(&["run", "one", "--replay", &tape]).code(3);
    bench.spinney(&["resume", "--replay", &tape]).code(3);
    bench.spinney(&["resume"]).code(0);
    assert_eq!(came_to(&bench), then);
}

#[test]
fn a_reply_that_was_lost_with_its_process_is_not_replayed() {
    let server = Hosted::start(|asked| {
        let said = if asked.turn() == 0 { call(asked, "Read", json!({"file_path": "README.md"})) } else { done("Read.") };
        (Answer::Say(said), Delivery::default())
    });
    let (bench, tape) = reader("", &server);
    bench.spinney(&["run", "one", "--record", &tape]).code(0);
    let then = came_to(&bench);
    // As a process leaves it that dies between a reply and its record: the next one asks again and is told something else.
    let text = fs::read_to_string(&tape).unwrap();
    let kept = text.lines().find(|line| line.starts_with("{\"exchange\"")).unwrap();
    let lost = kept.replace("README.md", "OTHER.md");
    assert_ne!(lost, kept);
    fs::write(&tape, text.replacen(kept, &format!("{lost}\n{kept}"), 1)).unwrap();
    bench.spinney(&["run", "one", "--replay", &tape]).code(0);
    assert_eq!(came_to(&bench), then);
}

#[test]
fn what_was_under_way_in_a_process_that_died_and_refused_by_the_next_is_refused_in_a_replay() {
    let server = Hosted::start(|asked| {
        let read = call(asked, "Read", json!({"file_path": format!("{}.txt", asked.turn())}));
        (Answer::Say(crate::server::Said { prompt: Some(2_500), ..read }), Delivery::default())
    });
    let (bench, tape) = reader("budget: { tokens: 20000, usd: 99 }\n", &server);
    bench.spinney(&["run", "one", "--record", &tape]).code(1);
    let then = came_to(&bench);
    drop(server);
    // As a process leaves it that dies after it was admitted, before others used the budget up.
    let text = fs::read_to_string(&tape).unwrap();
    let refused = text.lines().find(|line| line.contains("\"refused\"")).unwrap();
    let admitted = refused.replace("refused", "admitted");
    fs::write(&tape, text.replacen(refused, &format!("{admitted}\n{{\"resumed\":{{}}}}\n{refused}"), 1)).unwrap();
    bench.spinney(&["run", "one", "--replay", &tape]).code(1);
    assert_eq!(came_to(&bench), then);
}

/// The second request hangs after it said what it has used, and the time of the step ends it.
#[test]
fn a_step_that_ran_out_of_time_does_so_in_a_replay() {
    for (retry, code) in [("", 1), (", retry: { max: 1, on: [timeout], delay: 0s }", 0)] {
        let server = Hosted::start(|asked| {
            let stall_at = (asked.number == 1).then_some(900);
            let said =
                if asked.turn() == 0 { call(asked, "Read", json!({"file_path": "README.md"})) } else { done("It is all well here. ".repeat(40).as_str()) };
            (Answer::Say(said), Delivery { stall_at, ..Delivery::default() })
        });
        let (bench, tape) = reader("", &server);
        let workflow = "version: 1\nname: one\nagents: { reader: { system: You read., model: anthropic/claude-opus-5-5 } }\nsteps: { work: { agent: reader, prompt: Do it., timeout: 2sRETRY } }\n";
        let bench = bench.workflow("one", &workflow.replace("RETRY", retry));
        bench.spinney(&["run", "one", "--record", &tape]).code(code);
        let then = came_to_each(&bench);
        let lost = then["work"].iter().filter(|told| told[0] == "lost").count();
        assert_eq!(lost, 1, "{then:?}");
        drop(server);
        bench.spinney(&["run", "one", "--replay", &tape]).code(code);
        assert_eq!(came_to_each(&bench), then);
        // One that ends there says so at once.
        let text = fs::read_to_string(&tape).unwrap();
        let stopped = text.lines().position(|line| line.starts_with("{\"stopped\"")).unwrap();
        let cut: String = text.lines().take(stopped).map(|line| format!("{line}\n")).collect();
        fs::write(&tape, cut).unwrap();
        let said = bench.spinney(&["run", "one", "--replay", &tape]).code(1);
        assert!(said.out.contains("it ends before this request of `work` was answered"), "{}", said.out);
    }
}

#[test]
fn a_recording_of_a_format_before_is_read() {
    for format in [1, 2, 3] {
        let bench = recorded(Wire::Messages);
        let tape = bench.path("tape.jsonl");
        let mut lines = Vec::new();
        for line in fs::read_to_string(&tape).unwrap().lines() {
            let news = ["{\"finished\"", "{\"booked\"", "{\"price\""];
            let is_old = news.iter().take(4 - format).all(|new| !line.starts_with(new));
            let mut line: Value = serde_json::from_str(line).unwrap();
            if let Some(exchange) = line.get_mut("exchange").and_then(|exchange| exchange.as_object_mut()).filter(|_| format == 1) {
                assert!(exchange.remove("ordinal").is_some());
            }
            if line["recording"] == 4 {
                line["recording"] = json!(format);
                // It is known by how it begins.
                let rest = line.to_string().replace(&format!("\"recording\":{format},"), "");
                lines.push(format!("{{\"recording\":{format},{}", &rest[1..]));
            } else if is_old {
                lines.push(line.to_string());
            }
        }
        fs::write(&tape, lines.join("\n") + "\n").unwrap();
        again(&bench, "Two parts").code(0);
        check_run(&bench, &bench.records(&bench.newest()));
    }
}

/// Returns of each node what came of it: its replies, and how it ended, with all that is said of that.
fn came_to_each(bench: &Bench) -> BTreeMap<String, Vec<Value>> {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    let mut each: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in &records {
        let told = match &record.event {
            Event::ModelReplied { node, reply, .. } => (node, json!([reply.usage, reply.usd])),
            Event::AttemptsLost { node, usage, usd, .. } => (node, json!(["lost", usage, usd])),
            Event::StepFinished { node, outcome } => (node, json!(outcome)),
            _ => continue,
        };
        each.entry(told.0.to_string()).or_default().push(told.1);
    }
    each
}

/// Six agents that read for ever, of one budget.
const SIX: &str = "version: 1\nname: one\nbudget: { BUDGET }\ndefaults: { max_parallel: 6 }\nagents: { reader: { system: You read., model: anthropic/claude-opus-5-5 } }\nsteps:\n  each: { for_each: { items: [0, 1, 2, 3, 4, 5], as: it, max_parallel: 6, join: all_done }, agent: reader, prompt: \"Look at {{ it }}.\" }\n";

/// Who is admitted by a budget hangs on who comes first, and here that is another one each time: each answer takes another while.
#[test]
fn a_budget_that_agents_share_admits_the_same_of_them_in_a_replay() {
    for (budget, code, resumed) in
        [("usd: 0.35, on_exceed: stop", 1, None), ("tokens: 34000, usd: 99, on_exceed: finish", 0, None), ("usd: 0.2, on_exceed: ask", 3, Some(3))]
    {
        let server = Hosted::start(|asked| {
            let item = asked.dialogue()[0].1.chars().find(char::is_ascii_digit).and_then(|digit| digit.to_digit(10)).unwrap();
            let read = call(asked, "Read", json!({"file_path": format!("{}.txt", asked.turn())}));
            let after = Duration::from_millis((u64::from(item) * 37 + asked.turn() as u64 * 53) % 90);
            let prompt = 2_000 + u64::from(item) * 333;
            (Answer::Say(crate::server::Said { prompt: Some(prompt), ..read }), Delivery { after, ..Delivery::default() })
        });
        let (bench, tape) = reader("", &server);
        let bench = bench.workflow("one", &SIX.replace("BUDGET", budget));
        bench.spinney(&["run", "one", "--record", &tape]).code(code);
        // A person allows as much again, and the run goes on to where that is used up.
        let go_on = |bench: &Bench, more: &[&str]| {
            let run = bench.newest();
            bench.spinney(&["approve", &run.0, "--no-resume"]).code(0);
            bench.spinney(&[&["resume", run.0.as_str()], more].concat())
        };
        if let Some(code) = resumed {
            go_on(&bench, &["--record", &tape]).code(code);
        }
        let then = came_to_each(&bench);
        drop(server);
        for _ in 0..2 {
            bench.spinney(&["run", "one", "--replay", &tape]).code(code);
            if let Some(code) = resumed {
                go_on(&bench, &[]).code(code);
            }
            assert_eq!(came_to_each(&bench), then, "{budget}");
        }
    }
}

/// A replay may die too, after it has charged what an attempt used that gave no reply, and before the reply.
#[test]
fn a_replay_that_dies_charges_no_lost_attempt_twice() {
    let server = Hosted::start(|asked| {
        let cut_at = (asked.number == 0).then_some(900);
        (Answer::Say(done("It is all well here. ".repeat(9).as_str())), Delivery { cut_at, ..Delivery::default() })
    });
    let (bench, tape) = reader("", &server);
    bench.spinney(&["run", "one", "--record", &tape]).code(0);
    let then = came_to_each(&bench);
    assert_eq!(then["work"].iter().filter(|told| told[0] == "lost").count(), 1, "{then:?}");
    drop(server);
    let text = fs::read_to_string(&tape).unwrap();
    for records in 1_usize.. {
        carry_on(Drive::replaying(&bench, "one", &text).start(json!({})), records);
        let is_over = bench.records(&bench.newest()).iter().any(|record| matches!(record.event, Event::RunFinished { .. }));
        if !is_over {
            carry_on(Drive::replaying(&bench, "one", &text).resume(&bench.newest()), usize::MAX).unwrap();
        }
        assert_eq!(came_to_each(&bench), then, "killed after record {records}");
        if is_over {
            break;
        }
    }
}
