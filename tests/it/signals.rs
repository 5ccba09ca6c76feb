//! The real program and whoever ends it: an interrupt, two, the request to terminate, a kill; a second process; a question
//! that nobody answers.
use crate::{
    fixture::{Bench, outcome, possible, results},
    invariants,
    server::{Answer, Delivery, Hosted, Said},
};
use rustix::process::{Pid, Signal, kill_process};
use spinney::event::Event;
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    let mut program = bench.program(&["run", "slow", "--unconfined", "--json", "--script", &script]);
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
    let said = bench.spinney(&["resume", "--unconfined"]).code(0);
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
fn what_is_to_be_ignored_since_the_start_is_ignored() {
    let bench = Bench::new().workflow("held", "version: 1\nname: held\nsteps: { hold: { run: 'echo up > \"$HOME/up\"; read line < \"$HOME/go\"' } }\n");
    for pipe in ["up", "go"] {
        assert!(Command::new("mkfifo").arg(bench.path("home").join(pipe)).status().unwrap().success());
    }
    let mut program = Command::new("sh")
        .args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_spinney"), "run", "held", "--unconfined"])
        .current_dir(bench.repo())
        .env_clear()
        .envs(bench.environment())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(bench.path("home/up")).unwrap(), "up\n");
    send(&program, Signal::HUP);
    send(&program, Signal::INT);
    fs::write(bench.path("home/go"), "go\n").unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
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
    let program = bench.program(&["run", "loud", "--json", "--unconfined"]);
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

#[test]
fn a_reader_that_goes_away_ends_no_run_and_the_exit_code_is_the_runs() {
    for (command, code) in [("true", 0), ("exit 3", 1)] {
        let bench = Bench::new().workflow("one", &format!("version: 1\nname: one\nsteps: {{ one: {{ run: 'read line < \"$HOME/go\"; {command}' }} }}\n"));
        let go = bench.path("home/go");
        assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
        let mut program = bench.program(&["run", "one", "--unconfined"]);
        let mut first = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("Run one-"), "{first}");
        fs::write(&go, "\n").unwrap();
        assert_eq!(program.wait().unwrap().code(), Some(code));
        assert_eq!(std::io::read_to_string(program.stderr.take().unwrap()).unwrap(), "", "{command}");
        let ended = outcome(&bench.records(&bench.newest()), "run");
        assert_eq!(ended["succeeded"].is_object(), code == 0, "{ended}");
    }
}

#[test]
fn whoever_watches_without_reading_is_interrupted_all_the_same_and_the_run_does_not_feel_it() {
    let (bench, mut program) = loud();
    let run = bench.newest();
    let mut watching = bench.program(&["watch", &run.0, "--json"]);
    let mut first = String::new();
    let mut out = BufReader::with_capacity(64, watching.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert!(first.contains("run_started"), "{first}");
    send(&watching, Signal::INT);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    drop(out);
    let mut leaving = bench.program(&["watch", &run.0, "--json"]);
    BufReader::new(leaving.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(leaving.wait().unwrap().code(), Some(0), "nobody reads it any more, and the run goes on");
    assert!(!bench.records(&run).iter().any(|record| matches!(record.event, Event::RunFinished { .. })));
    fs::write(bench.path("home/go"), "\n").unwrap();
    std::io::copy(&mut program.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

/// Where the program is when it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A command of an agent runs, which does not hear the request to end.
    Command,
    /// A hook runs.
    Hook,
    /// Git runs, and in it a filter of the user's.
    Git,
    /// A check of a step runs.
    Check,
    /// The command of a step runs.
    Step,
}

/// Starts a run that says by a pipe that it has come to a place and then stays there, until there is a file `quick`.
fn stays(place: Place) -> (Bench, Child) {
    let bench = Bench::new();
    let home = bench.path("home").display().to_string();
    // Its own child is of the group too.
    let wait = format!("if [ ! -e {home}/quick ]; then\ntrap '' TERM\necho up > {home}/up\nsleep 300 & sleep 300\nfi\n");
    let at = |here: Place, text: &str| if here == place { text.to_owned() } else { String::new() };
    let hook = r#"{ "hooks": { "PreToolUse": [ { "matcher": "Write", "hooks": [{ "type": "command", "command": "sh $HOME/wait.sh", "timeout": 600 }] } ] } }"#;
    let workflow = format!(
        "version: 1\nname: stays\nagents: {{ coder: {{ system: You code., access: write, hooks: [{}] }} }}\nsteps:\n  \
         first: {{ run: \"{}\" }}\n  \
         work: {{ needs: [first], agent: coder, prompt: Work., verify: {{ run: [\"true; {}\"], attempts: 1 }} }}\n\
         outputs: {{ said: \"{{{{ steps.work.output }}}}\" }}\n",
        at(Place::Hook, "slow"),
        at(Place::Step, "sh $HOME/wait.sh") + &if place == Place::Step { String::new() } else { "true".to_owned() },
        at(Place::Check, "sh $HOME/wait.sh"),
    );
    let bash = at(Place::Command, ", { tool: Bash, input: { command: sh wait.sh } }");
    let script =
        format!("conversations: [{{ turns: [{{ calls: [{{ tool: Write, input: {{ file_path: new.txt, content: new }} }}{bash}] }}, {{ say: done }}] }}]");
    fs::write(bench.path("home/wait.sh"), &wait).unwrap();
    let bench = bench.file("wait.sh", &wait).file("slow.dat", "x").file(".gitattributes", &at(Place::Git, "*.dat filter=slow\n")).commit("slow");
    if place == Place::Git {
        bench.git(&["config", "filter.slow.smudge", &format!("sh {home}/wait.sh; cat")]);
    }
    let bench = bench.workflow("stays", &workflow).file(".spinney/hooks/slow.json", hook);
    bench.spinney(&["trust", "--yes"]).code(0);
    let up = bench.path("home/up");
    assert!(Command::new("mkfifo").arg(&up).status().unwrap().success());
    let script = bench.script(&script);
    let program = bench.program(&["run", "stays", "--unconfined", "--script", &script]);
    let (bench, mut program) = (bench, program);
    came(&up, &mut program);
    (bench, program)
}

/// Waits until somebody writes into a pipe, or the program ends before that.
#[track_caller]
fn came(up: &Path, program: &mut Child) {
    let mut pipe = File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(up).unwrap();
    let mut word = [0; 3];
    while !matches!(pipe.read(&mut word), Ok(3)) {
        if let Some(ended) = program.try_wait().unwrap() {
            let said = program.stderr.take().map(std::io::read_to_string).transpose().unwrap();
            panic!("it ended before: {ended}, {said:?}");
        }
        std::thread::yield_now();
    }
}

/// The run is resumed to its end, and everything in it is done.
#[track_caller]
fn is_taken_up(bench: &Bench, place: &str) {
    fs::write(bench.path("home/quick"), "").unwrap();
    bench.spinney(&["resume", "--unconfined"]).code(0);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "done", "{place}");
    nobody_runs(bench);
}

/// Each signal ends the run and all that it started, wherever it is, and it goes on from there.
#[track_caller]
fn ended_by_each(place: Place) {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (bench, mut program) = stays(place);
        send(&program, signal);
        assert_eq!(program.wait().unwrap().code(), Some(code), "{place:?}, {signal:?}");
        nobody_runs(&bench);
        is_taken_up(&bench, &format!("{place:?}, {signal:?}"));
    }
}

#[test]
fn each_signal_ends_a_run_whose_agent_has_a_command_run() {
    ended_by_each(Place::Command);
}

#[test]
fn each_signal_ends_a_run_in_a_hook() {
    ended_by_each(Place::Hook);
}

#[test]
fn each_signal_ends_a_run_in_git() {
    ended_by_each(Place::Git);
}

#[test]
fn each_signal_ends_a_run_in_a_check() {
    ended_by_each(Place::Check);
}

#[test]
fn each_signal_ends_a_run_in_the_command_of_a_step() {
    ended_by_each(Place::Step);
}

#[test]
fn a_signal_while_a_model_streams_leaves_the_request_to_the_next_process() {
    let stalls = Arc::new(AtomicBool::new(true));
    let told = stalls.clone();
    let (asked, is_asked) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let server = Hosted::start(move |_| {
        let delivery = if told.load(Ordering::Relaxed) { Delivery { stall_at: Some(200), ..Delivery::default() } } else { Delivery::default() };
        asked.lock().unwrap().send(()).unwrap();
        (Answer::Say(Said::text("done")), delivery)
    });
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        stalls.store(true, Ordering::Relaxed);
        let bench = Bench::new()
            .env("ANTHROPIC_BASE_URL", &server.anthropic_url())
            .env("ANTHROPIC_API_KEY", "key")
            .workflow("stays", "version: 1\nname: stays\nagents: { a: { system: You say. } }\nsteps: { work: { agent: a, prompt: Say. } }\noutputs: { said: \"{{ steps.work.output }}\" }\n");
        let mut program = bench.program(&["run", "stays"]);
        is_asked.recv().unwrap();
        send(&program, signal);
        assert_eq!(program.wait().unwrap().code(), Some(code), "{signal:?}");
        stalls.store(false, Ordering::Relaxed);
        is_taken_up(&bench, &format!("{signal:?}"));
        is_asked.recv().unwrap();
    }
}

/// Whoever takes the spans says nothing for ever; the process ends all the same.
#[test]
fn spans_that_nobody_takes_hold_no_end_up() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let bench = Bench::new()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .workflow("stays", "version: 1\nname: stays\nsteps: { wait: { run: \"echo up > $HOME/up; sleep 300\" } }\n");
    let up = bench.path("home/up");
    assert!(Command::new("mkfifo").arg(&up).status().unwrap().success());
    let mut program = bench.program(&["run", "stays", "--unconfined", "--script", &bench.script("conversations: []")]);
    came(&up, &mut program);
    send(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(143));
    let said = std::io::read_to_string(program.stderr.take().unwrap()).unwrap();
    assert!(said.contains("warning: failed to"), "{said}");
    nobody_runs(&bench);
}

/// The end of a run has begun: its branch stands. It is held up where worktrees are removed, by the repository's lock.
#[test]
fn a_signal_while_a_run_is_closed_loses_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let bench = Bench::new().workflow("slow", WORKFLOW);
        fs::create_dir_all(bench.repo().join(".git/spinney")).unwrap();
        let lock = File::create(bench.repo().join(".git/spinney/lock")).unwrap();
        lock.lock().unwrap();
        let script =
            bench.script("conversations: [{ turns: [{ calls: [{ tool: Write, input: { file_path: count.txt, content: \"once\\n\" } }] }, { say: done }] }]");
        let mut program = bench.program(&["run", "slow", "--unconfined", "--json", "--script", &script]);
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("branch_made")), "no branch");
        send(&program, signal);
        let mut err = program.stderr.take().unwrap();
        let mut word = [0; 9];
        err.read_exact(&mut word).unwrap();
        drop(lock);
        let ended = program.wait().unwrap().code();
        assert!(ended == Some(code) || ended == Some(0), "{signal:?}: {ended:?}");
        if ended != Some(0) {
            bench.spinney(&["resume", "--unconfined"]).code(0);
        }
        let records = bench.records(&bench.newest());
        invariants::check(&records, &bench.repo());
        assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "done");
        assert_eq!(bench.git(&["show", &format!("spinney/{}:count.txt", bench.newest())]), "once\n");
        nobody_runs(&bench);
    }
}

/// In a container that joined its PID namespace from outside, session and group of this program have the number 0.
#[test]
fn a_program_whose_session_is_outside_of_its_pid_namespace_runs() {
    let inside = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--"];
    if !possible("a PID namespace", &inside) {
        return;
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
    let said = bench.spinney(&["resume", "--unconfined"]).code(1);
    assert!(said.err.contains(&format!("process {} has it since 20", program.id())), "{}", said.err);
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

#[test]
fn a_daemon_that_hides_who_began_it_ends_with_the_program() {
    let daemon = |name: &str| {
        let at = format!("$HOME/{name}");
        format!(
            "/usr/bin/env -i setsid sh -c 'echo $$ > {at}.part; mv {at}.part {at}; exec sleep 120' > /dev/null 2>&1 & until test -e {at}; do sleep 0.01; done"
        )
        .replace("-i", "-i HOME=$HOME PATH=$PATH")
    };
    let hook = format!(
        r#"{{ "hooks": {{ "PreToolUse": [{{ "matcher": "Read", "hooks": [{{ "type": "command", "command": {} }}] }}] }} }}"#,
        serde_json::json!(format!("cat > /dev/null; {}", daemon("of-hook")))
    );
    let workflow = format!(
        "version: 1\nname: daemons\nagents: {{ reader: {{ system: x, hooks: [begin] }} }}\nsteps:\n  command: {{ run: {} }}\n  hook: {{ agent: reader, prompt: go }}\n",
        serde_json::json!(daemon("of-command"))
    );
    let bench = Bench::new().workflow("daemons", &workflow).file(".spinney/hooks/begin.json", &hook);
    bench.spinney(&["trust", "--yes"]).code(0);
    let script = bench.script("conversations: [{ agent: reader, turns: [{ calls: [{ tool: Read, input: { file_path: README.md } }] }, { say: done }] }]");
    let output = bench.program(&["run", "daemons", "--unconfined", "--script", &script]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["of-hook", "of-command"] {
        let pid = fs::read_to_string(bench.path("home").join(name)).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(!stat.contains("(sleep)"), "{name} still runs: {stat}");
    }
}
