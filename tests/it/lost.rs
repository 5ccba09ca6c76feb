//! What is lost while nobody looks: a process, a journal, a run's folder, an object. It is missed, told of, and nothing is done
//! twice in silence.
use crate::{
    fixture::{Bench, outcome, results},
    invariants,
    recovery::life::{Death, carry},
};
use serde_json::{Value, json};
use spinney::event::{Event, Record, Recovery, RunId};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Command,
};

const ONE: &str = r#"
version: 1
name: one
agents: { coder: { system: "You code.", access: write } }
steps:
  one: { agent: coder, prompt: "Do it." }
"#;

/// Answers of an agent that makes these calls, one a turn.
fn script(calls: &[(&str, Value)]) -> String {
    let calls = calls.iter().map(|(tool, input)| format!("      - calls: [{{ tool: {tool}, input: {input} }}]\n")).collect::<String>();
    format!("conversations:\n  - turns:\n{calls}      - say: Done.\n")
}

fn bash(command: &str) -> (&'static str, Value) {
    ("Bash", json!({ "command": command }))
}

fn write(content: &str) -> (&'static str, Value) {
    ("Write", json!({"file_path": "n.txt", "content": content}))
}

/// Begins a run whose process dies when what follows a record has happened, and nothing after that is recorded. Its commands count
/// as those inside of walls where it is `contained`.
fn dies_after(bench: &Bench, (workflow, script, contained): (&str, &str, bool), after: impl Fn(&Event) -> bool) -> RunId {
    let whole = bench.copied("whole");
    let driven = whole.drive_script(script);
    let (_, records) = if contained { driven.contained() } else { driven }.run(workflow);
    let at = records.iter().position(|record| after(&record.event)).expect("there is such a record") + 1;
    let driven = bench.drive_script(script);
    let prepared = if contained { driven.contained() } else { driven }.begun(workflow);
    let left = at - prepared.begun.len();
    let (run, ended) = carry(prepared, (left, Death::BeforeTheNext));
    assert!(ended.is_err(), "it died: {ended:?}");
    run
}

fn is_bash(event: &Event) -> bool {
    matches!(event, Event::ToolStarted { recovery: Recovery::Unknown | Recovery::Rollback(_), .. })
}

fn resumed(bench: &Bench, run: &RunId) -> Vec<Record> {
    bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
    let records = bench.records(run);
    invariants::check(&records, &bench.repo());
    records
}

#[test]
fn what_a_command_without_walls_did_is_told_as_unknown_and_not_done_again() {
    let bench = Bench::new().file("send.sh", "echo sent >> \"$HOME/outside\"\n").commit("send").workflow("one", ONE);
    let run = dies_after(&bench, ("one", &script(&[bash("sh send.sh")]), false), is_bash);
    let records = resumed(&bench, &run);
    assert_eq!(fs::read_to_string(bench.path("home/outside")).unwrap(), "sent\n");
    let [(_, true, said)] = results(&records, "one")[..] else { panic!("{:?}", results(&records, "one")) };
    assert!(said.contains("may or may not have had its effect"), "{said}");
    assert!(records.iter().any(|record| is_bash(&record.event) && record.event.needs_sync()), "what follows it is seen outside of the run");
}

#[test]
fn what_a_command_did_in_its_worktree_alone_is_done_again_from_where_it_began() {
    let bench = Bench::new().workflow("one", ONE);
    let run = dies_after(&bench, ("one", &script(&[bash("mkfifo pipe; echo did >> n.txt")]), true), is_bash);
    let records = resumed(&bench, &run);
    assert!(!results(&records, "one")[0].1, "{:?}", results(&records, "one"));
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:n.txt")]), "did\n");
}

#[test]
fn a_step_s_command_without_walls_that_was_cut_short_is_a_retry_that_says_so() {
    let yaml = "version: 1\nname: send\nsteps: { send: { run: \"echo sent >> $HOME/outside\" }, after: { needs: [send], run: \"true\" } }\n";
    let bench = Bench::new().workflow("send", yaml);
    let run = dies_after(&bench, ("send", "conversations: []", false), |event| matches!(event, Event::WorkspaceMade { .. }));
    let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
    assert!(said.err.contains("may be done twice") || said.out.contains("may be done twice"), "{said:?}");
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    let attempts = records.iter().filter(|record| matches!(&record.event, Event::StepStarted { node, .. } if node.to_string() == "send")).count();
    assert_eq!(attempts, 2);
    assert!(bench.spinney(&["show", &run.0, "send"]).code(0).out.contains("2 attempts"));
    // Nothing of the first one stands in the way.
    assert!(bench.spinney(&["clean", "--older-than", "0s"]).code(0).out.contains("it left no work"));
}

/// Counts the lines of a file in the home.
fn lines(bench: &Bench, name: &str) -> usize {
    fs::read_to_string(bench.path("home").join(name)).unwrap_or_default().lines().count()
}

#[test]
fn checks_without_walls_that_are_done_twice_are_told() {
    let yaml = ONE.replace(
        "prompt: \"Do it.\"",
        "prompt: \"Do it.\", workspace: { setup: [\"echo setup >> $HOME/setup\"] }, verify: { run: [\"echo verify >> $HOME/verify\"] }",
    );
    let is_made: fn(&Event) -> bool = |event| matches!(event, Event::WorkspaceMade { .. });
    let is_said: fn(&Event) -> bool = |event| matches!(event, Event::ModelReplied { reply, .. } if reply.calls().count() == 0);
    let is_green: fn(&Event) -> bool = |event| matches!(event, Event::VerifyRan { .. });
    for (after, name) in [(is_made, "setup"), (is_said, "verify"), (is_green, "verify")] {
        for contained in [false, true] {
            let bench = Bench::new().workflow("one", &yaml);
            let run = dies_after(&bench, ("one", &script(&[write("one\n")]), contained), after);
            let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
            invariants::check(&bench.records(&run), &bench.repo());
            // In `contained` ones nothing of it was to be seen.
            let told = format!("`one`: the check `echo {name} >> $HOME/{name}` was begun before its process ended, and is done again");
            assert_eq!(said.err.contains(&told), !contained, "{name}: {said:?}");
            let shown = bench.spinney(&["show", &run.0]).code(0).out;
            assert_eq!(shown.contains("Begun before a process ended, and done again"), !contained, "{shown}");
            assert_eq!(lines(&bench, name), 2, "{name}");
            let notes = fs::read_dir(bench.repo().join(".spinney/state/runs").join(&run.0).join("processes")).into_iter().flatten().count();
            assert_eq!(notes, 0, "nothing of it stays");
        }
    }
}

#[test]
fn hooks_that_are_done_twice_are_told() {
    let yaml = ONE.replace("access: write", "access: write, hooks: [h]");
    let hook = |on: &str| format!("\"{on}\": [{{ \"hooks\": [{{ \"type\": \"command\", \"command\": \"echo {on} >> $HOME/{on}\" }}] }}]");
    let hooks = format!("{{ \"hooks\": {{ {}, {}, {} }} }}", hook("PreToolUse"), hook("PostToolUse"), hook("Stop"));
    let is_asked: fn(&Event) -> bool = |event| matches!(event, Event::ModelReplied { reply, .. } if reply.calls().count() > 0);
    let is_begun: fn(&Event) -> bool = |event| matches!(event, Event::ToolStarted { .. });
    let is_said: fn(&Event) -> bool = |event| matches!(event, Event::ModelReplied { reply, .. } if reply.calls().count() == 0);
    for (after, on) in [(is_asked, "PreToolUse"), (is_begun, "PostToolUse"), (is_said, "Stop")] {
        let bench = Bench::new().workflow("one", &yaml).file(".spinney/hooks/h.json", &hooks);
        bench.spinney(&["trust", "--yes"]).code(0);
        let run = dies_after(&bench, ("one", &script(&[write("one\n")]), true), after);
        let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
        let told = format!("`one`: a hook on `{on}` was begun before its process ended, and is done again");
        assert!(said.err.contains(&told), "{on}: {said:?}");
        assert!(bench.spinney(&["show", &run.0]).code(0).out.contains(&format!("a hook on `{on}`")));
        assert!(lines(&bench, on) >= 2, "{on}");
        invariants::check(&bench.records(&run), &bench.repo());
    }
}

#[test]
fn what_an_agent_has_read_is_known_after_a_death() {
    let calls = [write("one\n"), bash("echo line >> n.txt"), bash("true"), write("two\n")];
    let bench = Bench::new().workflow("one", ONE);
    let (_, records) = bench.run("one", &script(&calls), &["--unconfined"]);
    let whole = results(&records, "one").into_iter().map(|(tool, wrong, _)| (tool.to_owned(), wrong)).collect::<Vec<_>>();
    assert!(whole[3].1, "it has changed since: {:?}", results(&records, "one"));
    for died_in in [0, 2, 3] {
        let at = std::cell::Cell::new(0);
        let nth = |event: &Event| {
            let is_call = matches!(event, Event::ToolStarted { .. });
            at.set(at.get() + usize::from(is_call));
            is_call && at.get() == died_in + 1
        };
        let bench = Bench::new().workflow("one", ONE);
        let run = dies_after(&bench, ("one", &script(&calls), true), nth);
        let records = resumed(&bench, &run);
        let again: Vec<_> = results(&records, "one").into_iter().map(|(tool, wrong, _)| (tool.to_owned(), wrong)).collect();
        assert_eq!(again, whole, "died in call {died_in}: {:?}", results(&records, "one"));
        assert_eq!(bench.git(&["show", &format!("spinney/{run}:n.txt")]), "one\nline\n");
    }
}

const ASKS: &str = r#"
version: 1
name: asks
agents: { coder: { system: "You code.", access: write } }
steps:
  one: { agent: coder, prompt: "Do it." }
  ask: { needs: [one], approve: { message: "Go on?" } }
"#;

#[test]
fn a_name_that_is_no_text_holds_nothing_up() {
    let bench = Bench::new().workflow("asks", ASKS);
    let name = OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(bench.repo().join(name), "one\n").unwrap();
    let bench = bench.file("append.sh", "for file in caf*; do echo two >> \"$file\"; done\n").commit("not UTF-8");
    bench.git(&["update-ref", "refs/heads/side", "HEAD"]);
    bench.run("asks", &script(&[bash("sh append.sh")]), &[]).0.code(3);
    let run = bench.newest().0;
    bench.spinney(&["approve", &run, "--no-resume"]).code(0);
    bench.spinney(&["resume", &run]).code(0);
    assert!(bench.spinney(&["diff", &run]).code(0).out.contains("caf\\351.txt"), "{}", bench.spinney(&["diff", &run]).out);
    let said = bench.spinney(&["doctor"]).code(0).out;
    assert!(!said.contains("broken"), "{said}");
    bench.spinney(&["land", &run]).code(0);
    assert_eq!((fs::read_to_string(bench.repo().join(name)).unwrap().as_str(), bench.git(&["status", "--porcelain", "-uno"]).as_str()), ("one\ntwo\n", ""));
    assert!(bench.spinney(&["clean", "--older-than", "0s"]).code(0).out.contains("its work has landed"));
}

/// Returns what `doctor` says of runs: verdict, what was found and what to do, by run.
fn doctor(bench: &Bench, more: &[&str]) -> BTreeMap<String, String> {
    let said = bench.spinney(&[&["doctor", "--json"], more].concat());
    let json: Value = serde_json::from_str(&said.out).unwrap();
    let word = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let runs = json["checks"].as_array().unwrap().iter().filter(|check| check["area"] == "runs");
    runs.map(|check| (word(check, "name"), format!("{} {} {}", word(check, "verdict"), word(check, "detail"), word(check, "hint")))).collect()
}

#[test]
fn a_journal_that_is_gone_is_no_run_that_never_began() {
    let emptied = |journal: &Path| fs::write(journal, "").unwrap();
    let removed = |journal: &Path| fs::remove_file(journal).unwrap();
    let replaced = |journal: &Path| {
        fs::remove_file(journal).unwrap();
        rusqlite::Connection::open(journal).unwrap().execute_batch("CREATE TABLE other (n INTEGER)").unwrap();
    };
    let piped = |journal: &Path| {
        fs::remove_file(journal).unwrap();
        assert!(Command::new("mkfifo").arg(journal).status().unwrap().success());
    };
    let none = "and 0 are there";
    let cases = [(&emptied as &dyn Fn(&Path), none), (&removed, none), (&replaced, none), (&piped, "it is no file")];
    for (damage, found) in cases {
        let bench = Bench::new().workflow("asks", ASKS);
        bench.run("asks", &script(&[write("one\n")]), &[]).0.code(3);
        let run = bench.newest().0;
        let dir = bench.repo().join(".spinney/state/runs").join(&run);
        for log in ["journal.db-wal", "journal.db-shm"] {
            let _ = fs::remove_file(dir.join(log));
        }
        damage(&dir.join("journal.db"));
        // A pipe is put aside, and then there is nothing.
        for (more, why) in [(&[][..], found), (&["--repair"], none)] {
            let said = doctor(&bench, more).remove(&run).unwrap();
            assert!(said.starts_with("broken ") && said.contains(why) && said.contains("commits of it are kept"), "{said}");
        }
        let said = bench.spinney(&["resume", &run]).code(1);
        assert!(said.err.contains(none), "{}", said.err);
        assert!(!bench.spinney(&["show", &run]).err.is_empty());
        bench.spinney(&["runs"]).code(0);
    }
}

#[test]
fn what_is_left_of_a_run_whose_folder_was_removed_is_told_and_goes_by_name() {
    let bench = Bench::new().workflow("asks", ASKS).workflow("one", ONE);
    bench.run("asks", &script(&[write("one\n")]), &[]).0.code(3);
    let open = bench.newest().0;
    bench.run("one", &script(&[write("two\n")]), &[]).0.code(0);
    let landed = bench.newest().0;
    bench.spinney(&["land", &landed]).code(0);
    fs::remove_dir_all(bench.repo().join(".spinney/state")).unwrap();
    let said = doctor(&bench, &[]);
    for run in [&open, &landed] {
        assert!(said[run].starts_with("warn ") && said[run].contains(&format!("spinney clean --drop {run}")), "{said:?}");
    }
    let said = bench.spinney(&["clean", "--older-than", "0s"]).code(0).out;
    assert!(said.contains("its folder is gone, and its work has landed") && said.contains("is on no branch but the run's own"), "{said}");
    assert_eq!(doctor(&bench, &[]).keys().collect::<Vec<_>>(), [&open]);
    bench.spinney(&["clean", "--drop", &open]).code(0);
    assert!(doctor(&bench, &[]).is_empty());
    assert_eq!(bench.git(&["for-each-ref", "refs/spinney"]), "");
}

#[test]
fn a_run_whose_folder_is_removed_under_it_makes_no_branch() {
    let yaml = "version: 1\nname: held\nsteps:\n  one: { run: \"echo one > one.txt\", scope: [one.txt] }\n  hold: { needs: [one], run: \"cat $HOME/gate\" }\n";
    let bench = Bench::new().workflow("held", yaml);
    let gate = bench.path("home/gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut program = bench.program(&["run", "held", "--json", "--unconfined"]);
    // Opening it waits for the command.
    let mut opened = fs::OpenOptions::new().write(true).open(&gate).unwrap();
    fs::remove_dir_all(bench.repo().join(".spinney/state")).unwrap();
    opened.write_all(b"go\n").unwrap();
    drop(opened);
    BufReader::new(program.stdout.take().unwrap()).lines().for_each(drop);
    assert_eq!(program.wait().unwrap().code(), Some(1));
    assert_eq!(bench.git(&["for-each-ref", "refs/heads/spinney"]), "");
}

#[test]
fn a_checkpoint_that_is_gone_costs_its_attempt_and_not_its_run() {
    let calls = [bash("echo did >> n.txt"), bash("echo did >> n.txt")];
    let is_second = {
        let seen = std::cell::Cell::new(0);
        move |event: &Event| {
            seen.set(seen.get() + usize::from(is_bash(event)));
            is_bash(event) && seen.get() == 2
        }
    };
    let bench = Bench::new().workflow("one", ONE);
    let run = dies_after(&bench, ("one", &script(&calls), true), is_second);
    let name = format!("refs/spinney/{run}/one.1/checkpoint");
    let tree = bench.git(&["rev-parse", &format!("{name}^{{tree}}")]);
    fs::remove_file(bench.repo().join(".git/objects").join(&tree[..2]).join(tree[2..].trim())).unwrap();
    let said = doctor(&bench, &[]).remove(&run.0).unwrap();
    assert!(said.starts_with("broken ") && said.contains(&name) && said.contains("starts that attempt over"), "{said}");
    let said = doctor(&bench, &["--repair"]).remove(&run.0).unwrap();
    assert!(said.starts_with("mended "), "{said}");
    assert_eq!(bench.git(&["for-each-ref", &name]), "");
    bench.git(&["gc", "-q", "--prune=now"]);
    let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
    assert!(said.err.contains("starts its attempt over"), "{said:?}");
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:n.txt")]), "did\ndid\n");
    assert!(outcome(&bench.records(&run), "run")["succeeded"].is_object());
}

#[test]
fn files_that_go_from_a_worktree_while_nobody_is_at_work_in_it_are_put_back() {
    let bench = Bench::new().file("kept.txt", "kept\n").file("sub/deep.txt", "deep\n").commit("kept").workflow("one", ONE);
    let is_read: fn(&Event) -> bool = |event| matches!(event, Event::ToolFinished { tool, .. } if tool == "Read");
    let calls = [write("one\n"), ("Read", json!({"file_path": "kept.txt"})), ("Read", json!({"file_path": "n.txt"}))];
    let run = dies_after(&bench, ("one", &script(&calls), true), is_read);
    let place = |record: &Record| if let Event::WorkspaceMade { path, .. } = &record.event { Some(path.clone()) } else { None };
    let place = bench.records(&run).iter().find_map(place).unwrap();
    fs::write(Path::new(&place).join("kept.txt"), "").unwrap();
    fs::remove_dir_all(Path::new(&place).join("sub")).unwrap();
    let said = doctor(&bench, &[]).remove(&run.0).unwrap();
    assert!(said.starts_with("broken ") && said.contains("2 files that `one` had are gone or empty, among them `kept.txt`"), "{said}");
    let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
    assert!(said.err.contains("among them `kept.txt`, and it has not done that; they were put back"), "{said:?}");
    invariants::check(&bench.records(&run), &bench.repo());
    let changed = bench.git(&["diff", "--name-status", "HEAD", &format!("spinney/{run}")]);
    assert_eq!(changed, "A\tn.txt\n");
}

#[test]
fn a_sub_agent_s_worktree_that_is_gone_costs_the_attempt_of_its_owner_and_is_told() {
    let yaml = "version: 1\nname: led\nagents:\n  lead: { system: \"You lead.\", access: write, tools: [Agent] }\n  hand: { system: \"You work.\", access: write }\nsteps: { one: { agent: lead, prompt: \"Lead.\" } }\n";
    let script = concat!(
        "conversations:\n  - agent: lead\n    turns:\n      - calls: [{ tool: Agent, input: { description: sub, prompt: \"Go.\", subagent_type: hand } }]\n      - say: Led.\n",
        "  - agent: hand\n    turns:\n      - calls: [{ tool: Write, input: { file_path: sub.txt, content: \"sub\\n\" } }]\n      - calls: [{ tool: Read, input: { file_path: sub.txt } }]\n      - say: Done.\n"
    );
    let removed: fn(&Path) = |place| fs::remove_dir_all(place).unwrap();
    let unknown: fn(&Path) = |place| fs::write(place.parent().unwrap().join(".engine").join(place.file_name().unwrap()).join("note.json"), "").unwrap();
    let is_written: fn(&Event) -> bool = |event| matches!(event, Event::ToolFinished { node, .. } if node.helper.is_some());
    let is_over: fn(&Event) -> bool = |event| matches!(event, Event::ModelReplied { node, reply, .. } if node.helper.is_some() && reply.calls().count() == 0);
    for (after, damage) in [(is_written, removed), (is_written, unknown), (is_over, removed), (is_over, unknown)] {
        let bench = Bench::new().workflow("led", yaml);
        let run = dies_after(&bench, ("led", script, true), after);
        let place = |record: &Record| match &record.event {
            Event::WorkspaceMade { node, path, .. } if node.helper.is_some() => Some(path.clone()),
            _ => None,
        };
        let place = bench.records(&run).iter().find_map(place).unwrap();
        damage(Path::new(&place));
        let said = doctor(&bench, &[]).remove(&run.0).unwrap();
        assert!(
            said.starts_with("warn ") && said.contains("the worktree of `one:agent-1-1` is gone") && said.contains("starts the attempt of `one`"),
            "{said}"
        );
        let said = bench.spinney(&["resume", &run.0, "--unconfined"]).code(0);
        assert!(said.err.contains("`one` starts its attempt over: its sub-agent `one:agent-1-1` was at work: "), "{said:?}");
        assert_eq!(bench.git(&["show", &format!("spinney/{run}:sub.txt")]), "sub\n");
        invariants::check(&bench.records(&run), &bench.repo());
        assert!(!bench.spinney(&["show", &run.0]).code(0).out.contains(&place), "it lists no worktree that is not there");
    }
}

#[test]
fn a_command_that_ends_whoever_carries_it_out_is_not_begun_for_ever() {
    let yaml = "version: 1\nname: deadly\nsteps: { deadly: { run: \"echo begun >> $HOME/begun; kill -9 $PPID; sleep 30\" } }\n";
    let bench = Bench::new().workflow("deadly", yaml);
    let lives = |arguments: &[&str]| bench.program(arguments).wait_with_output().unwrap();
    assert_eq!(lives(&["run", "deadly", "--unconfined"]).status.code(), None, "it was killed");
    let mut deaths = 1;
    let last = loop {
        let output = lives(&["resume", "--unconfined"]);
        if output.status.code().is_some() {
            break output;
        }
        deaths += 1;
        assert!(deaths < 20, "it dies for ever");
    };
    let said = String::from_utf8_lossy(&last.stderr).into_owned();
    assert_eq!((last.status.code(), deaths), (Some(1), 6), "{said}");
    assert!(said.contains("`deadly` has failed: ") && said.contains("that is the end of 6 attempts by now"), "{said}");
    assert_eq!(fs::read_to_string(bench.path("home/begun")).unwrap().lines().count(), 6);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "deadly")["failed"]["kind"], "isolation", "{:?}", outcome(&records, "deadly"));
}
