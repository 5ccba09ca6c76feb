//! A state folder that is full or cannot be written: a clear error, nothing half done, and the run goes on once there is room.
use crate::{
    fixture::{Bench, Said, outcome, possible},
    invariants,
};
use spinney::{event::Event, journal::RunDir};
use std::{fs, process::Command};

const WORKFLOW: &str = r#"
version: 1
name: long
steps:
  count: { run: "seq 1 20000", output: { file: count.txt } }
  fill: { needs: [count], run: "[ -e \"$HOME/filled\" ] || { touch \"$HOME/filled\"; cat /dev/zero >> BALLAST 2>/dev/null; true; }" }
  more: { needs: [fill], run: "seq 1 20000", output: { file: more.txt } }
outputs: { lines: "{{ steps.more.stdout | length }}" }
"#;

/// A repository with a run whose second step fills the state folder, once.
fn bench() -> Bench {
    let bench = Bench::new();
    let ballast = bench.repo().join(".spinney/state/ballast").display().to_string();
    bench.workflow("long", &WORKFLOW.replace("BALLAST", &ballast))
}

const INSIDE: [&str; 4] = ["--user", "--map-root-user", "--mount", "--"];

/// Runs a shell script in a mount namespace of its own, where `$STATE` is the state folder and `spinney` the program.
fn inside(bench: &Bench, script: &str) -> Said {
    let state = bench.repo().join(".spinney/state");
    fs::create_dir_all(&state).unwrap();
    let program = format!("spinney() {{ '{}' \"$@\"; }}\nset -u\n{script}", env!("CARGO_BIN_EXE_spinney"));
    let output = Command::new("unshare")
        .args(INSIDE)
        .args(["sh", "-c", &program])
        .current_dir(bench.repo())
        .env_clear()
        .envs(bench.environment())
        .env("STATE", &state)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: u8::try_from(output.status.code().unwrap_or(255)).unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Keeps what the mounted folder holds, since it goes with the namespace.
const SAVE: &str = "rm -f \"$STATE/ballast\"; cp -a \"$STATE/.\" \"$HOME/saved\"";

fn taken_back(bench: &Bench) {
    let state = bench.repo().join(".spinney/state");
    fs::remove_dir_all(&state).unwrap();
    let saved = Command::new("cp").args(["-a"]).arg(bench.path("home/saved")).arg(&state).status().unwrap();
    assert!(saved.success());
}

#[test]
fn a_disk_that_fills_up_stops_the_run_and_it_goes_on_once_there_is_room() {
    if !possible("a full disk", &INSIDE) {
        return;
    }
    let bench = bench();
    let said = inside(
        &bench,
        &format!(
            "mount -t tmpfs -o size=3m state \"$STATE\"\n\
             spinney run long --unconfined; echo \"first $?\"\n\
             spinney resume --unconfined; echo \"full $?\"\n\
             spinney runs; rm \"$STATE/ballast\"\n\
             spinney resume --unconfined; echo \"room $?\"\n{SAVE}"
        ),
    );
    assert!(said.out.contains("first 1\n") && said.out.contains("full 1\n") && said.out.contains("room 0\n"), "{said:?}");
    let full = |line: &&str| line.starts_with("error: failed to") && (line.contains("the disk is full") || line.contains("No space left"));
    assert_eq!(said.err.lines().filter(full).count(), 2, "{said:?}");
    assert!(said.err.contains("make room on that file system"), "{said:?}");
    taken_back(&bench);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert!(outcome(&records, "run")["succeeded"].is_object(), "{:?}", records.last());
    assert!(!bench.spinney(&["doctor"]).code(0).out.contains("broken"));
}

#[test]
fn a_run_that_has_no_room_to_begin_leaves_nothing() {
    if !possible("a full disk", &INSIDE) {
        return;
    }
    let bench = bench();
    let said = inside(
        &bench,
        "mount -t tmpfs -o size=3m state \"$STATE\"\n\
         cat /dev/zero > \"$STATE/ballast\" 2>/dev/null\n\
         spinney run long --unconfined; echo \"full $?\"\n\
         find \"$STATE/runs\" -mindepth 1\n\
         rm \"$STATE/ballast\"; spinney runs; touch \"$HOME/filled\"; spinney run long --unconfined; echo \"room $?\"",
    );
    assert!(said.out.contains("full 1\nThere are no runs yet") && said.out.contains("room 0\n"), "{said:?}");
    assert!(said.err.contains("error: failed to") && said.err.contains("hint: "), "{said:?}");
    assert_eq!(bench.git(&["for-each-ref", "--format=%(refname)", "refs/spinney"]).lines().filter(|name| name.ends_with("/base")).count(), 0);
}

#[test]
fn a_state_folder_that_is_read_only_is_looked_at_and_not_written() {
    if !possible("a read-only file system", &INSIDE) {
        return;
    }
    let bench = Bench::new().workflow("asks", "version: 1\nname: asks\nsteps: { ask: { approve: { message: \"Go on?\" } } }\n");
    bench.spinney(&["run", "asks", "--script", &bench.script("conversations: []")]).code(3);
    let run = bench.newest().0;
    let said = inside(
        &bench,
        &format!(
            "mount --bind \"$STATE\" \"$STATE\" && mount -o remount,bind,ro \"$STATE\"\n\
             spinney run asks; echo \"run $?\"\n\
             spinney resume {run}; echo \"resume $?\"\n\
             spinney approve {run}; echo \"approve $?\"\n\
             spinney runs; echo \"runs $?\"\n\
             spinney show {run}; echo \"show $?\"\n\
             spinney doctor; echo \"doctor $?\""
        ),
    );
    for line in ["run 1\n", "resume 1\n", "approve 1\n", "runs 0\n", "show 0\n", "doctor 1\n"] {
        assert!(said.out.contains(line), "{line}{said:?}");
    }
    assert!(said.out.contains("parked, asks 1") && said.out.contains("Go on?"), "{said:?}");
    let errors: Vec<&str> = said.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 3 && errors.iter().all(|line| line.contains(".spinney/state")), "{said:?}");
    assert!(said.err.matches("hint: see that this user may write there").count() >= 2, "{said:?}");
    bench.spinney(&["approve", &run]).code(0);
}

/// Each of them makes worktrees, refs, blobs and a branch of one repository while the other does.
#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let workflow = |name: &str| {
        format!(
            "version: 1\nname: {name}\nagents: {{ coder: {{ system: You code., access: write }} }}\nsteps:\n  \
             meet: {{ run: \"touch $HOME/{name}; until [ -e $HOME/one ] && [ -e $HOME/two ]; do sleep 0.01; done\" }}\n  \
             build: {{ needs: [meet], for_each: {{ items: [a, b, c, d], as: it }}, agent: coder, prompt: \"Write {{{{ it }}}}.txt.\" }}\n  \
             land: {{ needs: [build], merge: {{ from: build }} }}\n"
        )
    };
    let bench = Bench::new().workflow("one", &workflow("one")).workflow("two", &workflow("two"));
    let script = bench.script(
        "conversations: [{ told: \"Write (?<it>.)\", turns: [{ calls: [{ tool: Write, input: { file_path: \"${it}.txt\", content: \"${it}\" } }] }, { say: done }] }]",
    );
    let programs = ["one", "two"].map(|name| bench.program(&["run", name, "--unconfined", "--script", &script]));
    for program in programs {
        let output = program.wait_with_output().unwrap();
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    let runs = RunDir::list(&RunDir::state(&bench.repo())).unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        invariants::check(&bench.records(&run), &bench.repo());
        assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{run}")]), "README.md\na.txt\nb.txt\nc.txt\nd.txt\n");
        assert!(!bench.spinney(&["doctor"]).out.contains("broken"));
    }
}

/// Worktrees stand in the cache, and git has words of its own for what it cannot write there.
#[test]
fn a_cache_that_is_full_stops_the_run_and_it_goes_on_once_there_is_room() {
    if !possible("a full disk", &INSIDE) {
        return;
    }
    let files: String = (0..40).map(|n| format!("a line of a file, number {n}\n")).collect();
    let bench = (0..60).fold(Bench::new(), |bench, n| bench.file(&format!("src/file-{n}.txt"), &files)).commit("files");
    let bench = bench.workflow(
        "long",
        "version: 1\nname: long\nsteps:\n  one: { run: \"for n in 1 2 3 4 5 6 7 8; do seq 1 1500 > out-$n.txt; done\", scope: [\"*.txt\"] }\n  two: { needs: [one], run: \"echo more >> out-1.txt\", scope: [\"*.txt\"] }\n",
    );
    let sizes = ["300k", "400k", "500k", "600k", "700k", "900k"];
    let said = inside(
        &bench,
        &format!(
            "for size in {}; do\n\
               mount -t tmpfs -o size=$size cache \"$XDG_CACHE_HOME\"\n\
               spinney run long --unconfined > \"$HOME/said\" 2> \"$HOME/wrong\"; code=$?\n\
               [ $code = 0 ] || grep -q 'make room' \"$HOME/wrong\" || {{ echo \"$size: no word of room\"; cat \"$HOME/said\" \"$HOME/wrong\"; }}\n\
               mount -o remount,size=30m \"$XDG_CACHE_HOME\"\n\
               [ $code = 0 ] || echo full\n\
               [ $code = 0 ] || spinney resume --unconfined > \"$HOME/said\" 2>&1 || {{ echo \"$size: it does not go on\"; cat \"$HOME/said\"; }}\n\
               umount \"$XDG_CACHE_HOME\"\n\
             done",
            sizes.join(" ")
        ),
    );
    assert!(said.out.lines().all(|line| line == "full") && said.out.contains("full"), "{said:?}");
}

#[test]
fn a_landing_without_room_is_taken_back_once_there_is_some() {
    if !possible("a full disk", &INSIDE) {
        return;
    }
    let bench = Bench::new();
    let yaml = "version: 1\nname: big\nsteps:\n  gen: { run: \"head -c 300000 /dev/urandom > big.bin; echo b > a; echo c > zz\", scope: [\"**\"] }\n";
    fs::write(bench.path("home/big.yaml"), yaml).unwrap();
    let said = inside(
        &bench,
        "mkdir \"$HOME/small\"; mount -t tmpfs -o size=3m small \"$HOME/small\"; mkdir \"$HOME/small/r\"; cd \"$HOME/small/r\"\n\
         git init -q -b main .; git config user.name t; git config user.email t@localhost; echo .spinney > .gitignore; echo a > a; git add -A; git commit -q -m i\n\
         mkdir -p .spinney/workflows; cp \"$HOME/big.yaml\" .spinney/workflows/\n\
         spinney run big --unconfined; echo \"run $?\"; run=$(ls .spinney/state/runs)\n\
         cat /dev/zero > ../ballast 2>/dev/null; truncate -s -150000 ../ballast\n\
         spinney land $run; echo \"full $?\"\n\
         rm ../ballast; spinney land $run; echo \"room $?\"\n\
         git status --short; git log --format=%s | wc -l; ls .git/*.lock .git/index.spinney*; cat a",
    );
    assert!(said.out.contains("run 0\n") && said.out.contains("full 1\n"), "{said:?}");
    assert!(said.err.contains("move main to") && !said.err.contains("failed to land into a checkout with changes"), "{said:?}");
    assert!(said.out.contains("room 0\n2\nb\n"), "{said:?}");
}

#[test]
fn a_disk_that_takes_no_more_writes_stops_the_run_and_fails_nobody() {
    if !possible("a read-only file system", &INSIDE) {
        return;
    }
    let yaml = "version: 1\nname: late\nsteps:\n  ask: { approve: { message: \"Go on?\" } }\n  make: { needs: [ask], run: \"echo made > made.txt\", scope: [made.txt] }\n";
    let bench = Bench::new().workflow("late", yaml);
    bench.spinney(&["run", "late", "--script", &bench.script("conversations: []")]).code(3);
    let run = bench.newest().0;
    bench.spinney(&["approve", &run, "--no-resume"]).code(0);
    let cache = bench.path("cache").display().to_string();
    let script = format!("mount --bind {cache} {cache} && mount -o remount,bind,ro {cache}\nspinney resume {run} --unconfined; echo \"resume $?\"");
    let said = inside(&bench, &script);
    assert!(said.out.contains("resume 1\n") && said.err.contains("Read-only file system"), "{said:?}");
    assert!(!bench.records(&bench.newest()).iter().any(|record| record.event.node().is_some_and(|node| node.step.0 == "make" && is_end(&record.event))));
    bench.spinney(&["resume", &run, "--unconfined"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:made.txt")]), "made\n");
}

#[test]
fn a_run_that_cannot_make_its_worktrees_leaves_nothing_and_a_resume_says_what_to_do() {
    if !possible("a read-only file system", &INSIDE) {
        return;
    }
    let yaml = "version: 1\nname: late\nsteps:\n  ask: { approve: { message: \"Go on?\" } }\n  make: { needs: [ask], run: \"echo made > made.txt\", scope: [made.txt] }\n";
    let bench = Bench::new().workflow("late", yaml);
    let cache = bench.path("cache").display().to_string();
    let read_only = format!("mount --bind {cache} {cache} && mount -o remount,bind,ro {cache}\n");
    let said = inside(&bench, &format!("{read_only}spinney run late --unconfined; echo \"run $?\"; spinney runs"));
    assert!(said.out.contains("run 1\nThere are no runs yet"), "{said:?}");
    assert!(said.err.contains("Read-only file system") && said.err.contains("hint: see that this user may write there"), "{said:?}");
    assert_eq!(bench.git(&["for-each-ref", "refs/spinney"]), "");
    bench.spinney(&["run", "late", "--script", &bench.script("conversations: []")]).code(3);
    let run = bench.newest().0;
    bench.spinney(&["approve", &run, "--no-resume"]).code(0);
    fs::remove_dir_all(bench.path("cache/spinney/worktrees")).unwrap();
    let said = inside(&bench, &format!("{read_only}spinney resume {run} --unconfined; echo \"resume $?\""));
    assert!(said.out.contains("resume 1\n") && said.err.contains(&run), "{said:?}");
    assert!(said.err.contains("Read-only file system") && said.err.contains("hint: see that this user may write there"), "{said:?}");
    bench.spinney(&["resume", &run, "--unconfined"]).code(0);
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::StepFinished { .. })
}
