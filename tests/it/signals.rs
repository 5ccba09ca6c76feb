//! The real program and whoever ends it: an interrupt, two, the request to terminate, a kill; a second process; a question
//! that nobody answers.
use crate::{
    fixture::{Bench, outcome, results},
    invariants,
};
use rustix::process::{Pid, Signal, kill_process};
use spinney::event::Event;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
};

const WORKFLOW: &str = r#"
version: 1
name: slow
agents: { coder: { system: "You code.", access: write } }
steps:
  wait: { agent: coder, prompt: "Wait." }
outputs: { said: "{{ steps.wait.output }}" }
"#;

/// A program of the run that says by a pipe that it runs, then does not end; once there is a file `quick` it ends at once.
fn slow(trap: &str) -> (Bench, Child) {
    let wait = format!("echo once >> count.txt\nif [ ! -e \"$HOME/quick\" ]; then\n{trap}\necho up > \"$HOME/up\"\nsleep 30\nsleep 30\nfi\n");
    let bench = Bench::new().file("wait.sh", &wait).commit("wait").workflow("slow", WORKFLOW);
    let up = bench.path("home/up");
    assert!(Command::new("mkfifo").arg(&up).status().unwrap().success());
    let script = bench.script("conversations: [{ agent: coder, turns: [{ calls: [{ tool: Bash, input: { command: sh wait.sh } }] }, { say: done }] }]");
    let mut program = bench.program(&["run", "slow", "--json", "--script", &script]);
    // Whoever opens the pipe waits for its other end, so that it is not opened before the command is sure to run.
    let mut seen = Vec::new();
    for line in BufReader::new(program.stdout.take().unwrap()).lines() {
        seen.push(line.unwrap());
        if seen.last().unwrap().contains("tool_started") {
            break;
        }
    }
    assert!(seen.last().unwrap().contains("tool_started"), "it ended: {seen:#?}");
    assert_eq!(fs::read_to_string(&up).unwrap(), "up\n");
    (bench, program)
}

fn send(program: &Child, signal: Signal) {
    kill_process(Pid::from_child(program), signal).unwrap();
}

/// Asserts that no process of the bench runs.
#[track_caller]
fn nobody_runs(bench: &Bench) {
    let home = format!("HOME={}\0", bench.path("home").display());
    let ours = |entry: &fs::DirEntry| fs::read(entry.path().join("environ")).is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(&home));
    let running: Vec<_> = fs::read_dir("/proc").unwrap().flatten().filter(ours).map(|entry| entry.file_name()).collect();
    assert!(running.is_empty(), "these processes still run: {running:?}");
}

/// Resumes the run without the wait and asserts that the interrupted command had its effect once.
#[track_caller]
fn goes_on(bench: &Bench) {
    fs::write(bench.path("home/quick"), "").unwrap();
    let said = bench.spinney(&["resume"]).code(0);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "done", "{}", said.out);
    assert_eq!(bench.git(&["show", &format!("spinney/{}:count.txt", bench.newest())]), "once\n");
    nobody_runs(bench);
}

#[test]
fn an_interrupt_stops_the_run_cleanly_and_it_goes_on_from_there() {
    let (bench, mut program) = slow("");
    send(&program, Signal::INT);
    assert_eq!(program.wait().unwrap().code(), Some(130));
    nobody_runs(&bench);
    let records = bench.records(&bench.newest());
    assert!(matches!(records.last().unwrap().event, Event::ToolStarted { .. }), "{:?}", records.last());
    goes_on(&bench);
}

#[test]
fn a_second_interrupt_ends_it_now() {
    let (bench, mut program) = slow("trap '' TERM");
    let mut err = program.stderr.take().unwrap();
    send(&program, Signal::INT);
    let mut word = [0; 9];
    err.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"\nstopping");
    send(&program, Signal::INT);
    assert_eq!(program.wait().unwrap().code(), Some(130));
    nobody_runs(&bench);
    goes_on(&bench);
}

#[test]
fn a_request_to_terminate_is_an_interrupt_with_its_own_code() {
    let (bench, mut program) = slow("");
    send(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(143));
    nobody_runs(&bench);
    goes_on(&bench);
}

#[test]
fn what_a_killed_process_left_running_is_ended_by_the_next() {
    let (bench, mut program) = slow("");
    program.kill().unwrap();
    program.wait().unwrap();
    goes_on(&bench);
}

/// A run that has said more than a pipe holds, which nobody has read, and that waits in its last step.
fn loud() -> (Bench, Child) {
    let steps: Vec<String> = (0..8).map(|number| format!("  loud{number}: {{ run: \"yes | head -c 60000\" }}\n")).collect();
    let last = "  last: { needs: [loud0, loud1, loud2, loud3, loud4, loud5, loud6, loud7], run: 'echo up > \"$HOME/up\"; read line < \"$HOME/go\"' }\n";
    let bench = Bench::new().workflow("loud", &format!("version: 1\nname: loud\nsteps:\n{}{last}", steps.concat()));
    for pipe in ["up", "go"] {
        assert!(Command::new("mkfifo").arg(bench.path("home").join(pipe)).status().unwrap().success());
    }
    let program = bench.program(&["run", "loud", "--json"]);
    assert_eq!(fs::read_to_string(bench.path("home/up")).unwrap(), "up\n", "the run came to its last step");
    (bench, program)
}

#[test]
fn a_reader_that_reads_late_holds_up_no_run_and_gets_everything() {
    let (bench, mut program) = loud();
    fs::write(bench.path("home/go"), "\n").unwrap();
    let lines: Vec<String> = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(program.wait().unwrap().code(), Some(0));
    let records = bench.records(&bench.newest());
    assert!(lines.iter().map(String::len).sum::<usize>() > 300_000, "more than any pipe holds");
    assert_eq!(lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<spinney::event::Record>>(), records);
}

#[test]
fn a_reader_that_does_not_read_keeps_no_signal_from_the_run() {
    let (bench, mut program) = loud();
    send(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(143));
    nobody_runs(&bench);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert!(!records.iter().any(|record| matches!(record.event, Event::RunFinished { .. })));
}

/// In a container that joined its PID namespace from outside, session and group of this program have the number 0.
#[test]
fn a_program_whose_session_is_outside_of_its_pid_namespace_runs() {
    let inside = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--"];
    if !Command::new("unshare").args(inside).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return; // This machine lets nobody make one.
    }
    let bench = Bench::new().workflow("shell", "version: 1\nname: shell\nsteps:\n  look: { run: pwd }\noutputs: { said: \"{{ steps.look.stdout }}\" }\n");
    let output = Command::new("unshare")
        .args(inside)
        .args([env!("CARGO_BIN_EXE_spinney"), "run", "shell"])
        .current_dir(bench.repo())
        .env_clear()
        .envs(bench.environment())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert!(outcome(&records, "run")["succeeded"]["output"]["said"].as_str().unwrap().starts_with('/'), "{:?}", records.last());
}

#[test]
fn a_second_process_is_told_who_has_the_run() {
    let (bench, mut program) = slow("");
    let said = bench.spinney(&["resume"]).code(1);
    assert!(said.err.contains(&format!("process {} has it", program.id())), "{}", said.err);
    send(&program, Signal::INT);
    assert_eq!(program.wait().unwrap().code(), Some(130));
    goes_on(&bench);
}

const ASKS: &str = r#"
version: 1
name: asks
agents: { coder: { system: "You code.", access: write } }
permissions: { ask: ["Bash(touch:*)"] }
steps:
  work: { agent: coder, prompt: "Work." }
outputs: { said: "{{ steps.work.output }}" }
"#;
const ASKED: &str = r#"
conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Bash, input: { command: "touch new.txt" } }, { tool: Write, input: { file_path: other.txt, content: "other\n" } }]
      - - when: "refused by --on-ask deny"
          say: "then not"
        - say: "made"
"#;

#[test]
fn a_question_that_nobody_answers_parks_the_run() {
    for (answer, said, is_error) in [("allow", "made", false), ("deny", "then not", true)] {
        let bench = Bench::new().workflow("asks", ASKS);
        let (parked, records) = bench.run("asks", ASKED, &[]);
        let parked = parked.code(3);
        assert!(parked.out.contains("waits for a person") && parked.out.contains("touch new.txt"), "{}", parked.out);
        assert!(matches!(
            records.iter().rev().find(|record| record.event.node().is_some()).unwrap().event,
            Event::QuestionAsked { .. } | Event::ToolFinished { .. }
        ));
        // Without an answer it waits again.
        bench.spinney(&["resume"]).code(3);
        bench.spinney(&["resume", "--on-ask", answer]).code(0);
        let records = bench.records(&bench.newest());
        invariants::check(&records, &bench.repo());
        assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], said);
        let bash = results(&records, "work").into_iter().find(|(tool, ..)| *tool == "Bash").unwrap();
        assert_eq!(bash.1, is_error, "{}", bash.2);
        let files = bench.git(&["ls-tree", "--name-only", &format!("spinney/{}", bench.newest())]);
        assert_eq!(files.contains("new.txt"), !is_error, "{files}");
        assert!(files.contains("other.txt"), "{files}");
    }
}
