//! People around a run: answers and words from other terminals, tokens carried by hooks, the orchestrator's questions, the
//! budget's, and watching.
use crate::{
    fixture::{Bench, outcome, results},
    invariants,
};
use serde_json::{Value, json};
use spinney::event::{Event, Record, RunId, Why};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

const GATE: &str = r#"
version: 1
name: gate
steps:
  gate: { approve: { message: "Go on?" } }
  other: { approve: { message: "And here?" } }
outputs: { by: "{{ steps.gate.output.by }}" }
"#;
const NOTHING: &str = "conversations: []";

pub(crate) fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Reads the program's records until one of this kind; what comes after is read to its end beside the test.
pub(crate) fn until(program: &mut Child, kind: &str) {
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let seen = lines.by_ref().map(Result::unwrap).find(|line| line.contains(kind));
    if seen.is_none() {
        let mut said = String::new();
        program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("it ended before {kind}: {said}");
    }
    std::thread::spawn(move || lines.for_each(drop));
}

#[track_caller]
fn ended(mut program: Child, code: i32) {
    let status = program.wait().unwrap();
    let mut said = String::new();
    if let Some(mut err) = program.stderr.take() {
        err.read_to_string(&mut said).unwrap();
    }
    assert_eq!(status.code(), Some(code), "{said}");
}

#[test]
fn of_two_answers_the_first_counts_and_mistakes_are_told_with_what_waits() {
    let bench = Bench::new().workflow("gate", GATE);
    bench.run("gate", NOTHING, &[]).0.code(3);
    let run = bench.newest();
    let run = run.0.as_str();
    let said = bench.spinney(&["approve", run]).code(2);
    assert!(said.err.contains("2 steps wait") && said.err.contains("gate (Go on?), other (And here?)"), "{}", said.err);
    let said = bench.spinney(&["approve", run, "gat"]).code(2);
    assert!(said.err.contains("`gat`") && said.err.contains("it asks nothing") && said.err.contains("gate (Go on?)"), "{}", said.err);
    let said = bench.spinney(&["answer", run, "gate", "perhaps"]).code(2);
    assert!(said.err.contains("yes or no"), "{}", said.err);
    bench.spinney(&["approve", "nothing"]).code(2);
    let said = bench.spinney(&["approve", run, "gate", "--by", "ann", "--no-resume"]).code(0);
    assert!(said.out.contains(&format!("spinney resume {run}")), "{}", said.out);
    let said = bench.spinney(&["reject", run, "gate", "--by", "bob", "--no-resume"]).code(1);
    assert!(said.err.contains("ann has answered it already"), "{}", said.err);
    bench.spinney(&["answer", run, "other", "yes"]).code(0);
    let records = bench.records(&run.into());
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["by"], "ann");
    let said = bench.spinney(&["reject", run, "gate"]).code(2);
    assert!(said.err.contains("it is over"), "{}", said.err);
    let waiting = bench.repo().join(format!(".spinney/state/runs/{run}/inbox"));
    assert_eq!(fs::read_dir(waiting).unwrap().count(), 0, "a letter was left behind");
}

const HELD: &str = r#"
version: 1
name: held
steps:
  hold: { run: "read line < $HOME/go" }
  gate: { approve: { message: "Go on?" } }
  after: { needs: [gate], run: "echo on > $HOME/go" }
"#;

/// The run holds itself up, by a pipe in the home, until what follows the approval frees it: only a process that takes an answer up while it lives
/// can come to its end.
#[test]
fn a_process_that_lives_takes_an_answer_up() {
    let bench = Bench::new().workflow("held", HELD);
    mkfifo(&bench.path("home/go"));
    let mut held = bench.program(&["run", "held", "--unconfined", "--json", "--script", &bench.script(NOTHING)]);
    until(&mut held, "question_asked");
    let run = bench.newest();
    assert!(bench.spinney(&["runs"]).code(0).out.contains("asks 1"));
    let said = bench.spinney(&["approve", &run.0]).code(0);
    assert!(said.out.contains("gate of run") && said.out.contains("goes on"), "{}", said.out);
    ended(held, 0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert!(!records.iter().any(|record| matches!(record.event, Event::RunResumed { .. })));
}

const TOLD: &str = r#"
version: 1
name: told
agents: { coder: { system: "You code." } }
steps:
  work: { agent: coder, prompt: "Work." }
  gate: { needs: [work], approve: { message: "Go on?" } }
  late: { needs: [gate], agent: coder, prompt: "Later." }
outputs: { work: "{{ steps.work.output }}", late: "{{ steps.late.output }}" }
"#;
const HEARS: &str = r#"
conversations:
  - agent: coder
    told: "Work"
    turns:
      - calls: [{ tool: Bash, input: { command: "head -n 1 HOME/go" } }]
      - - when: "be (?<how>[a-z]+)"
          say: "I was ${how}"
        - say: "nobody told me"
  - agent: coder
    told: "Later[\\s\\S]*be (?<how>[a-z]+)"
    turns: [{ say: "I was ${how} too" }]
"#;

#[test]
fn a_word_is_heard_at_the_next_turn_and_never_between_a_call_and_its_result() {
    let bench = Bench::new().workflow("told", TOLD);
    mkfifo(&bench.path("home/go"));
    let script = bench.script(&HEARS.replace("HOME", &bench.path("home").display().to_string()));
    let mut live = bench.program(&["run", "told", "--unconfined", "--json", "--script", &script]);
    until(&mut live, "tool_started");
    let run = bench.newest();
    let said = bench.spinney(&["tell", &run.0, "work", "be brief", "--by", "ann"]).code(0);
    assert!(said.out.contains("hears that at its next turn"), "{}", said.out);
    for (step, why) in [("wrok", "no such step"), ("gate", "")] {
        let said = bench.spinney(&["tell", &run.0, step, "x"]);
        assert!(said.code != 0 && said.err.contains(why), "{}", said.err);
    }
    fs::write(bench.path("home/go"), "on\n").unwrap();
    ended(live, 3);
    // A step that has not begun hears it when it begins.
    bench.spinney(&["tell", &run.0, "late", "be kind", "--no-resume"]).code(0);
    assert!(bench.spinney(&["tell", &run.0, "work", "too late"]).code(2).err.contains("it has ended"));
    bench.spinney(&["approve", &run.0]).code(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], json!({"work": "I was brief", "late": "I was kind too"}));
    let place = |what: &dyn Fn(&Event) -> bool| records.iter().position(|record| what(&record.event)).unwrap();
    let finished = place(&|event| matches!(event, Event::ToolFinished { .. }));
    let added = place(&|event| matches!(event, Event::MessageAdded { why: Why::Told, .. }));
    assert!(place(&|event| matches!(event, Event::Told { .. })) < finished && finished < added, "{records:#?}");
    let shown = bench.spinney(&["show", &run.0, "work"]).code(0).out;
    assert!(shown.contains("a person: be brief"), "{shown}");
}

const ASKS: &str = r#"
version: 1
name: asks
agents: { worker: { system: "You work.", access: write, HOOKS permissions: { ask: ["Bash(echo:*)"] } } }
steps:
  work: { agent: worker, prompt: "Do it." }
"#;
const ASKED: &str = r#"
conversations:
  - turns:
      - calls:
          - { tool: Bash, input: { command: "echo x > one.txt" } }
          - { tool: Bash, input: { command: "echo x > two.txt" } }
      - say: "done"
"#;

#[test]
fn calls_of_one_reply_are_answered_one_by_one_and_the_model_is_told_why_not() {
    let bench = Bench::new().workflow("asks", &ASKS.replace("HOOKS", ""));
    let asked = bench.run("asks", ASKED, &[]).0.code(3).out;
    let run = bench.newest();
    // Which of the two is meant has to be said, and every place that tells of them has the words for it.
    for words in [&["reject", &run.0] as &[&str], &["approve", &run.0, "work"]] {
        let said = bench.spinney(words).code(2).err;
        assert!(said.contains("work asks 2 things") && said.contains("work#1 (") && said.contains("work#2 ("), "{said}");
    }
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    for name in ["work#1", "work#2"] {
        assert!(asked.contains(&format!("  {name}: ")) && asked.contains(&format!("spinney approve {run} {name} ")), "{asked}");
        assert!(shown.contains(&format!("{name} asks\n")) && shown.contains(&format!("spinney approve {run} {name} ")), "{shown}");
    }
    bench.spinney(&["approve", &run.0, "work#3"]).code(2);
    // The first answer alone is not enough.
    let said = bench.spinney(&["reject", &run.0, "work#1", "--note", "use the other", "--by", "ann", "--no-resume"]).code(0).err;
    assert!(said.contains("no to work#1: Bash {\"command\":\"echo x > one.txt\"}"), "{said}");
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(shown.contains("work answered by ann, no to: Bash {\"command\":\"echo x > one.txt\"}"), "{shown}");
    let said = bench.spinney(&["approve", &run.0, "work#1", "--by", "bob"]).code(1).err;
    assert!(said.contains("ann has answered it already"), "{said}");
    // What a letter answers waits for nobody any more.
    let said = bench.spinney(&["approve", &run.0, "--note", "but only once", "--by", "bob"]).code(0).err;
    assert!(said.contains("yes to work#2: Bash {\"command\":\"echo x > two.txt\"}"), "{said}");
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    let all = results(&records, "work");
    assert!(all.iter().any(|(_, is_error, text)| *is_error && text.contains("refused by ann: use the other")), "{all:?}");
    assert!(
        records.iter().any(|record| matches!(&record.event, Event::ToolFinished { context, .. } if context.iter().any(|said| said.contains("but only once"))))
    );
    assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]), "two.txt\n");
    assert_eq!(records.iter().filter(|record| matches!(record.event, Event::QuestionAsked { .. })).count(), 2, "what was asked was asked again");
}

fn hooked(bench: Bench, handler: &Value) -> Bench {
    let bench = bench.file(".gitignore", ".spinney/\n").commit("ignore");
    let hook = json!({"always": true, "hooks": {"Notification": [{"matcher": "permission_prompt", "hooks": [handler]}]}});
    let bench = bench.file(".spinney/hooks/carry.json", &hook.to_string());
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

/// Asserts that nothing in a folder holds a text.
fn nowhere_in(folder: &Path, text: &str) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            nowhere_in(&entry.path(), text);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{} holds it", entry.path().display());
        }
    }
}

const LAND: &str = "version: 1\nname: land\nsteps:\n  gate: { approve: { message: \"Land it?\" } }\noutputs: { said: \"{{ steps.gate.output.note }}\" }\n";

#[test]
fn a_hook_carries_a_question_and_a_token_answers_it_from_anywhere() {
    let command = "sed -n 's/.*\"token\":\"\\([0-9a-f]*\\)\".*/\\1/p' | tee \"$HOME/token\" > \"$HOME/chat\"";
    let bench = hooked(Bench::new().workflow("land", LAND), &json!({"type": "command", "command": command}));
    mkfifo(&bench.path("home/chat"));
    // Another process, elsewhere, that hears of the question by the hook and answers it; whether the run lives by then or
    // not is not for it to know.
    let chat = format!("read -r token < \"$HOME/chat\"; cd /; exec {} answer --token \"$token\" yes --by chat --note 'by chat'", env!("CARGO_BIN_EXE_spinney"));
    let other = Command::new("sh").args(["-c", &chat]).env_clear().envs(bench.environment()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = bench.spinney(&["run", "land", "--script", &bench.script(NOTHING)]);
    assert!([0, 3].contains(&said.code), "{}\n{}", said.out, said.err);
    ended(other, 0);
    let run = bench.newest();
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "by chat");
    let token = fs::read_to_string(bench.path("home/token")).unwrap();
    let said = bench.spinney(&["answer", "--token", token.trim(), "yes"]).code(2);
    assert!(said.err.contains("used up"), "{}", said.err);
    nowhere_in(&bench.repo().join(".spinney/state"), token.trim());
    nowhere_in(&bench.path("cache"), token.trim());
}

fn carried(records: &[Record]) -> Vec<(&str, &str)> {
    records
        .iter()
        .filter_map(|record| match &record.event {
            Event::HookRan { on, verdict, reason, .. } if on == "Notification" => Some((verdict.word(), reason.as_str())),
            _ => None,
        })
        .collect()
}

/// A server that answers one request a connection, with these statuses in turn; sends on each request's head and body.
fn tickets(statuses: &'static [u16]) -> (String, std::sync::mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ticket", listener.local_addr().unwrap());
    let (sender, posts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            sender.send((head, serde_json::from_slice(&body).unwrap())).unwrap();
            write!(stream, "HTTP/1.1 {status} Status\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
        }
    });
    (url, posts)
}

#[test]
fn a_hook_of_type_http_is_posted_the_question_until_it_has_arrived() {
    let (url, posts) = tickets(&[500, 200]);
    let handler = json!({"type": "http", "url": url, "headers": {"Authorization": "Bearer $CHAT_KEY $HOME"}, "allowedEnvVars": ["CHAT_KEY"]});
    let bench = hooked(Bench::new().workflow("land", LAND).env("CHAT_KEY", "s3cret-key"), &handler);
    bench.run("land", NOTHING, &[]).0.code(3);
    let run = bench.newest();
    let records = bench.records(&run);
    assert!(carried(&records)[0].1.contains("status 500"), "{records:#?}");
    // It did not arrive, so the next process sends it again; then it has.
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["resume", &run.0]).code(3);
    let records = bench.records(&run);
    let verdicts: Vec<&str> = carried(&records).into_iter().map(|(verdict, _)| verdict).collect();
    assert_eq!(verdicts, ["error", "told"]);
    let (head, post) = posts.iter().nth(1).unwrap();
    assert!(head.contains("authorization: Bearer s3cret-key \r\n"), "{head}");
    assert_eq!(
        (&post["hook_event_name"], &post["notification_type"], &post["run"], &post["step"], &post["question"]),
        (&json!("Notification"), &json!("permission_prompt"), &json!(run.0), &json!("gate"), &json!("Land it?"))
    );
    let token = post["token"].as_str().unwrap();
    bench.spinney(&["answer", "--token", token, "no", "--note", "not today"]).code(1);
    assert_eq!(outcome(&bench.records(&run), "gate")["failed"]["output"]["note"], "not today");
}

const WATCHED: &str = r#"
version: 1
name: watched
agents: { boss: { system: "You watch." }, worker: { system: "You work." } }
orchestrator: { agent: boss, may: [ask], wake: [start] }
steps:
  fan: { for_each: { items: [a], as: it }, agent: worker, prompt: "Work on {{ it }}." }
"#;
const BOSS: &str = r#"
conversations:
  - agent: boss
    turns:
      - calls: [{ tool: AskPerson, input: { question: "Left or right?", choices: [left, right] } }]
      - - when: "ann answers: right"
          say: "right it is"
        - say: "nobody said right"
      - say: "all done"
  - agent: worker
    turns: [{ say: done }]
"#;

#[test]
fn the_orchestrator_asks_a_person_and_others_go_on_meanwhile() {
    let bench = Bench::new().workflow("watched", WATCHED);
    let (said, records) = bench.run("watched", BOSS, &[]);
    let said = said.code(3);
    let run = bench.newest();
    assert!(said.out.contains("Left or right?") && said.out.contains(&format!("spinney answer {run} TEXT")), "{}", said.out);
    assert!(outcome(&records, "fan/a")["succeeded"].is_object());
    assert!(outcome(&records, "fan")["succeeded"].is_object(), "who may only ask holds no step open");
    let said = bench.spinney(&["answer", &run.0, "orchestrator", "up"]).code(2);
    assert!(said.err.contains("left, right"), "{}", said.err);
    let said = bench.spinney(&["answer", &run.0, "right", "--by", "ann"]).code(0);
    assert!(said.out.contains("answered by ann: right") && !said.out.contains("allowed"), "{}", said.out);
    assert!(bench.spinney(&["show", &run.0, "orchestrator"]).code(0).out.contains("answered by ann: right"));
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert!(records.iter().any(|record| matches!(&record.event, Event::OrchestratorRested { text, .. } if text == "right it is")), "{records:#?}");
    assert!(!records.iter().any(|record| matches!(&record.event, Event::ToolStarted { .. })), "a question is no call that could be made twice");
}

#[test]
fn a_step_that_stays_open_for_an_orchestrator_who_waits_says_so() {
    for (may, is_open) in [("add_items, ask", true), ("retry, ask", false), ("stop, ask", false)] {
        let bench = Bench::new().workflow("watched", &WATCHED.replace("may: [ask]", &format!("may: [{may}]")));
        let (said, records) = bench.run("watched", BOSS, &[]);
        let run = bench.newest();
        let shown = bench.spinney(&["show", &run.0]).code(0).out;
        for out in [said.code(3).out, shown] {
            assert_eq!(out.contains("`fan` stays open: the orchestrator"), is_open, "{may}: {out}");
        }
        assert_eq!(outcome(&records, "fan").is_null(), is_open, "{may}");
        bench.spinney(&["answer", &run.0, "right", "--by", "ann"]).code(0);
        assert!(outcome(&bench.records(&run), "fan")["succeeded"].is_object(), "{may}");
    }
}

#[test]
fn an_orchestrator_is_woken_again_only_when_something_has_changed() {
    let steps = "  gate: { needs: [fan], approve: { message: \"Go on?\" } }\n  other: { needs: [fan], approve: { message: \"Here too?\" } }\n  late: { needs: [gate], agent: worker, prompt: \"Later.\" }\n";
    let bench = Bench::new().workflow("watched", &(WATCHED.replace("wake: [start]", "wake: [idle]") + steps));
    let script = "conversations:\n  - { agent: boss, turns: [{ say: one }, { say: two }, { say: three }, { say: four }, { say: five }] }\n  - { agent: worker, turns: [{ say: done }] }\n";
    bench.run("watched", script, &[]).0.code(3);
    let run = bench.newest();
    let run = run.0.as_str();
    let woken = || bench.records(&run.into()).iter().filter(|record| matches!(record.event, Event::OrchestratorWoken { .. })).count();
    assert_eq!(woken(), 1);
    bench.spinney(&["resume", run]).code(3);
    bench.spinney(&["tell", run, "late", "be kind"]).code(3);
    assert_eq!(woken(), 1, "nothing that it steers has changed");
    bench.spinney(&["tell", run, "orchestrator", "be brief"]).code(3);
    assert_eq!(woken(), 2, "a word to it is a change");
    bench.spinney(&["resume", run]).code(3);
    assert_eq!(woken(), 2, "and it has heard that");
    bench.spinney(&["approve", run, "gate"]).code(3);
    assert_eq!(woken(), 3, "an answer is a change");
    bench.spinney(&["approve", run, "other"]).code(0);
    let records = bench.records(&run.into());
    invariants::check(&records, &bench.repo());
    assert_eq!(woken(), 4, "the end is told");
}

/// Something was at work beside the question when the process died.
#[test]
fn a_run_that_was_killed_beside_a_question_is_interrupted_and_tells_both() {
    let bench = Bench::new().workflow("held", HELD);
    mkfifo(&bench.path("home/go"));
    let mut held = bench.program(&["run", "held", "--unconfined", "--json", "--script", &bench.script(NOTHING)]);
    until(&mut held, "question_asked");
    held.kill().unwrap();
    held.wait().unwrap();
    let run = bench.newest();
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(shown.contains(&format!("interrupted; `spinney resume {run}` goes on")), "{shown}");
    assert!(shown.contains("gate asks") && shown.contains(&format!("spinney approve {run}")), "{shown}");
    assert!(bench.spinney(&["runs"]).code(0).out.contains("interrupted"));
}

const DEAR: &str = r#"
version: 1
name: dear
budget: { turns: 1, on_exceed: ask }
agents: { worker: { system: "You work." } }
steps:
  work: { agent: worker, prompt: "Do it." }
  next: { needs: [work], agent: worker, prompt: "Then this." }
outputs: { said: "{{ steps.next.output }}" }
"#;
const SPENDS: &str = r#"
conversations:
  - told: "Do it"
    turns:
      - calls: [{ tool: Bash, input: { command: "ls" } }]
      - say: "done"
  - told: "Then this"
    turns: [{ say: "this too" }]
"#;

#[test]
fn a_run_asks_whether_it_may_spend_as_much_again() {
    let bench = Bench::new().workflow("dear", DEAR);
    let (said, _) = bench.run("dear", SPENDS, &[]);
    let said = said.code(3);
    let run = bench.newest();
    assert!(said.out.contains("1 turn so far") && said.out.contains(&format!("spinney approve {run}")), "{}", said.out);
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["approve", &run.0]).code(3);
    bench.spinney(&["approve", &run.0]).code(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "this too");
    assert_eq!(records.iter().filter(|record| matches!(record.event, Event::QuestionAsked { .. })).count(), 2);
    assert!(!records.iter().any(|record| matches!(record.event, Event::LimitReached { .. })));
}

#[test]
fn a_run_that_may_not_spend_more_ends_as_at_its_limit() {
    let bench = Bench::new().workflow("dear", DEAR);
    bench.run("dear", SPENDS, &[]).0.code(3);
    let run = bench.newest();
    let said = bench.spinney(&["reject", &run.0]).code(1);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "work")["failed"]["kind"], json!({"limit": "turns"}), "{}", said.out);
    assert!(records.iter().any(|record| matches!(record.event, Event::LimitReached { .. })));
    assert!(bench.run("dear", SPENDS, &["--on-ask", "allow"]).0.code == 0, "an answer beforehand is one");
}

#[test]
fn a_run_is_watched_from_another_terminal_until_its_end() {
    let bench = Bench::new().workflow("held", HELD);
    mkfifo(&bench.path("home/go"));
    let mut held = bench.program(&["run", "held", "--unconfined", "--json", "--script", &bench.script(NOTHING)]);
    until(&mut held, "question_asked");
    let run = bench.newest();
    let mut watching = bench.program(&["watch", &run.0, "--json"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut seen: Vec<String> = Vec::new();
    while !seen.last().is_some_and(|line| line.contains("question_asked")) {
        seen.push(lines.next().expect("the run lives, so the watching does"));
    }
    bench.spinney(&["approve", &run.0]).code(0);
    ended(held, 0);
    seen.extend(lines);
    ended(watching, 0);
    let all = bench.spinney(&["show", &run.0, "--json"]).code(0).out;
    assert_eq!(seen, all.lines().collect::<Vec<_>>());
    // An ended run is told from its beginning, or from a record on.
    let tail = bench.spinney(&["watch", &run.0, "--json", "--from", "3"]).code(0).out;
    assert_eq!(tail.lines().collect::<Vec<_>>(), all.lines().skip(3).collect::<Vec<_>>());
    assert!(bench.spinney(&["watch", &run.0]).code(0).out.contains("succeeded"));
}

#[test]
fn who_stops_watching_stops_nothing_else() {
    let bench = Bench::new().workflow("held", HELD);
    mkfifo(&bench.path("home/go"));
    let mut held = bench.program(&["run", "held", "--unconfined", "--json", "--script", &bench.script(NOTHING)]);
    until(&mut held, "question_asked");
    let run: RunId = bench.newest();
    let mut watching = bench.program(&["watch", &run.0]);
    until(&mut watching, "gate");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watching), rustix::process::Signal::INT).unwrap();
    ended(watching, 0);
    bench.spinney(&["approve", &run.0]).code(0);
    ended(held, 0);
}

#[test]
fn a_letter_that_cannot_be_taken_away_holds_nobody_up() {
    let yaml = "version: 1\nname: gated\nsteps:\n  gate: { approve: { message: \"Go?\" } }\n";
    let bench = Bench::new().workflow("gated", yaml);
    bench.run("gated", "conversations: []", &[]).0.code(3);
    let run = bench.newest();
    let inbox = bench.repo().join(format!(".spinney/state/runs/{run}/inbox"));
    fs::create_dir_all(inbox.join("bad.refused")).unwrap();
    fs::write(inbox.join("bad.json"), "{").unwrap();
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["approve", &run.0]).code(0);
    assert!(inbox.join("bad.json").exists());
}
