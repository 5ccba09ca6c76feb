//! The program at a real terminal: the question on its screen, answered by key, and ctrl-c.
use crate::{
    fixture::{Bench, outcome},
    invariants,
    server::{Answer, Delivery, Hosted, Said},
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    process::{Child, Command},
};

const GATE: &str = "version: 1\nname: gate\nsteps: { gate: { approve: { message: \"Go on?\" } } }\noutputs: { by: \"{{ steps.gate.output.by }}\" }\n";

/// A program whose terminal is held by the test.
struct Seat {
    program: Child,
    keys: File,
    seen: String,
}

impl Seat {
    /// Starts the program with a terminal of its own, which sends it a signal at ctrl-c.
    fn take(bench: &Bench, arguments: &[&str]) -> Seat {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
        let program = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_spinney")])
            .args(arguments)
            .current_dir(bench.repo())
            .env_clear()
            .envs(bench.environment())
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal)
            .spawn()
            .unwrap();
        Seat { program, keys: File::from(master), seen: String::new() }
    }

    /// Reads the screen until this stands on it.
    #[track_caller]
    fn until(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(text) {
            // Where the program has gone, reading its terminal is an error.
            let count = self.keys.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "it ended before `{text}`: {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn ended(mut self, code: i32) -> String {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.keys.read(&mut bytes) {
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        assert_eq!(self.program.wait().unwrap().code(), Some(code), "{}", self.seen);
        self.seen
    }
}

#[test]
fn a_question_on_the_screen_is_answered_by_key() {
    let bench = Bench::new().workflow("gate", GATE);
    let script = bench.script("conversations: []");
    for (keys, code) in [("y\n", 0), ("\n", 1)] {
        let mut seat = Seat::take(&bench, &["run", "gate", "--script", &script]);
        seat.until("gate asks: Go on?\r\nAllow it? [y/N] ");
        seat.press(keys);
        let seen = seat.ended(code);
        let records = bench.records(&bench.newest());
        invariants::check(&records, &bench.repo());
        let outcome = outcome(&records, "gate");
        if code == 0 {
            assert!(seen.contains("allowed by the terminal"), "{seen}");
            assert_eq!(outcome["succeeded"]["output"]["by"], "the terminal", "{outcome}");
        } else {
            assert_eq!(outcome["failed"]["output"]["approved"], false, "{outcome}");
        }
    }
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_and_what_is_neither_yes_nor_no_is_asked_again() {
    let first = "steps:\n  first: { run: 'read line < \"$HOME/go\"' }\n  gate: { needs: [first], approve: { message: \"Go on?\" } }\n";
    let bench = Bench::new().workflow("gate", &GATE.replace("steps: { gate: { approve: { message: \"Go on?\" } } }\n", first));
    let go = bench.path("home/go");
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let mut seat = Seat::take(&bench, &["run", "gate", "--unconfined", "--script", &bench.script("conversations: []")]);
    seat.until("started");
    seat.press("yes\n");
    // The terminal has it: it has shown it.
    seat.until("yes\r\n");
    std::fs::write(go, "\n").unwrap();
    seat.until("Allow it? [y/N] ");
    seat.press("perhaps\n");
    seat.until("it asks for yes or no: ");
    seat.press("No\n");
    seat.ended(1);
    assert_eq!(outcome(&bench.records(&bench.newest()), "gate")["failed"]["output"]["approved"], false);
}

#[test]
fn ctrl_c_at_a_question_leaves_it_open_for_the_next_process() {
    let bench = Bench::new().workflow("gate", GATE);
    let mut seat = Seat::take(&bench, &["run", "gate", "--script", &bench.script("conversations: []")]);
    seat.until("[y/N] ");
    seat.press("\u{3}");
    let seen = seat.ended(130);
    let run = bench.newest();
    assert!(seen.contains("stopping after what is under way") && seen.contains(&format!("Run {run} was interrupted")), "{seen}");
    let mut seat = Seat::take(&bench, &["resume", &run.0]);
    seat.until("gate asks: Go on?");
    seat.press("y\n");
    seat.ended(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert!(outcome(&records, "run")["succeeded"].is_object());
}

#[test]
fn a_dumb_terminal_gets_no_colours() {
    for (term, colours) in [("xterm", true), ("dumb", false)] {
        let bench = Bench::new().workflow("gate", GATE).env("TERM", term);
        let seat = Seat::take(&bench, &["run", "gate", "--on-ask", "allow"]);
        assert_eq!(seat.ended(0).contains("\u{1b}["), colours, "{term}");
    }
}

#[test]
fn a_terminal_that_goes_away_with_a_question_on_it_leaves_it_open() {
    let bench = Bench::new().workflow("gate", GATE);
    let mut seat = Seat::take(&bench, &["run", "gate", "--script", &bench.script("conversations: []")]);
    seat.until("[y/N] ");
    let Seat { mut program, keys, .. } = seat;
    drop(keys);
    assert_eq!(program.wait().unwrap().code(), Some(129));
    let run = bench.newest();
    let mut seat = Seat::take(&bench, &["resume", &run.0]);
    seat.until("gate asks: Go on?");
    seat.press("y\n");
    seat.ended(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert!(outcome(&records, "run")["succeeded"].is_object());
}

const ONE: &str = "version: 1\nname: one\nagents: { reader: { system: \"You read.\", model: anthropic/claude-opus-5-5 } }\nsteps: { work: { agent: reader, prompt: \"Read.\" } }\n";

/// A server that first has too much to do, then stops in the middle of a thought, and answers at last.
fn slow() -> (Hosted, Bench) {
    // It stops at once behind the key: only what may begin a value is held back.
    let thought = Said { thinking: Some("I\u{1b}[2J see tok3n-5ecret".to_owned()), ..Said::text("done") };
    let server = Hosted::start(move |asked| match asked.number {
        0 => (Answer::wait(529, "overloaded_error", "2"), Delivery::default()),
        1 => {
            let bytes = thought.anthropic(asked);
            let at = bytes.windows(9).position(|word| word == b"signature").unwrap();
            let at = at + bytes[at + 9..].windows(9).position(|word| word == b"signature").unwrap();
            (Answer::Stream(bytes), Delivery { stall_at: Some(at), ..Delivery::default() })
        }
        _ => (Answer::Say(thought.clone()), Delivery::default()),
    });
    let bench = Bench::new().env("ANTHROPIC_BASE_URL", &server.anthropic_url()).env("ANTHROPIC_API_KEY", "tok3n-5ecret").workflow("one", ONE);
    (server, bench)
}

/// Returns what stands on a screen after all that was written to it.
fn screen(written: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut at = 0;
    let mut rest = written.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' if rest.peek() != Some(&'\n') => lines[at].push('\r'),
            '\r' => {}
            '\n' => {
                at += 1;
                lines.truncate(at);
                lines.push(String::new());
            }
            '\u{1b}' => {
                let code: String = std::iter::from_fn(|| rest.next_if(|c| !c.is_ascii_alphabetic())).collect();
                match (rest.next(), code.trim_start_matches('[').parse::<usize>()) {
                    (Some('A'), Ok(up)) => at -= up,
                    (Some('J'), _) => {
                        lines.truncate(at);
                        lines.push(String::new());
                    }
                    _ => {}
                }
            }
            c => lines[at].push(c),
        }
    }
    lines
}

#[test]
fn a_terminal_shows_who_waits_for_a_model_and_what_it_thinks_and_keeps_nothing_of_it() {
    let (_server, bench) = slow();
    let mut seat = Seat::take(&bench, &["run", "one"]);
    seat.until("overloaded: asks again in ");
    seat.until("(attempt 2 of 10)");
    seat.until("thinking: I [2J see ***anthropic key***");
    assert!(!seat.seen.contains("tok3n"), "{}", seat.seen);
    seat.press("\u{3}");
    let seen = seat.ended(130);
    let stays = screen(&seen).join("\n");
    assert!(stays.contains("work") && stays.contains("was interrupted") && !stays.contains("thinking"), "{stays}");
    let stays = screen(&Seat::take(&bench, &["resume"]).ended(0)).join("\n");
    assert!(stays.contains("succeeded") && !stays.contains("thinking") && !stays.contains("asks"), "{stays}");
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    let told: Vec<String> =
        records.iter().map(|record| serde_json::to_string(record).unwrap()).filter(|line| line.contains("see ***anthropic key***")).collect();
    assert_eq!(told.len(), 1, "what was thought stands in its reply alone: {told:#?}");
}

#[test]
fn a_file_gets_nothing_of_what_is_under_way() {
    for json in [&["run", "one"][..], &["run", "one", "--json"]] {
        let server = Hosted::start(|asked| match asked.number {
            0 => (Answer::wait(529, "overloaded_error", "1"), Delivery::default()),
            _ => (Answer::Say(Said::text("done")), Delivery::default()),
        });
        let bench = Bench::new().env("ANTHROPIC_BASE_URL", &server.anthropic_url()).env("ANTHROPIC_API_KEY", "k").workflow("one", ONE);
        let said = bench.spinney(json).code(0);
        assert!(!said.out.contains("asks again") && !said.out.contains('\u{1b}') && said.err.is_empty(), "{said:?}");
    }
}
