//! What a real model's shell may do: asked for, allowed, unconfined, or inside walls.
use super::mind::{Wire, bench, call, done, heard};
use crate::{
    fixture::{Bench, not_tested, outcome, results},
    server::{Answer, Asked, Delivery, Hosted},
};
use serde_json::json;
use spinney::event::Event;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

fn workflow(rules: &str) -> String {
    format!(
        "version: 1\nname: one\n{rules}agents:\n  coder: {{ system: \"You code.\", access: write }}\nsteps:\n  work: {{ agent: coder, prompt: \"Do it.\" }}\n"
    )
}

/// A model that gives one command, then says what came of it.
fn gives(command: impl Into<String>) -> Hosted {
    let command = command.into();
    Hosted::start(move |asked: &Asked| match asked.turn() {
        0 => (Answer::Say(call(asked, "Bash", json!({"command": command}))), Delivery::default()),
        _ => (Answer::Say(done(&format!("It said: {}", heard(asked).last))), Delivery::default()),
    })
}

/// Takes bubblewrap out of reach: a folder with everything else that is on the path.
fn without_bubblewrap(bench: Bench) -> Bench {
    let folder = bench.path("bin");
    fs::create_dir(&folder).unwrap();
    for place in std::env::split_paths(&bench.environment()["PATH"]) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "bwrap") {
            // What stands earlier on the path wins.
            let _ = symlink(entry.path(), folder.join(entry.file_name()));
        }
    }
    bench.env("PATH", &folder.display().to_string())
}

const WRITES: &str = "echo made > made.txt";

#[test]
fn a_command_that_may_write_is_asked_for_and_waits() {
    let server = gives(WRITES);
    let bench = without_bubblewrap(bench(Wire::Messages, &server)).workflow("one", &workflow(""));
    let said = bench.spinney(&["run", "one"]).code(3);
    assert!(said.out.contains("waits for a person") && said.out.contains(WRITES), "{}", said.out);
    let run = bench.newest();
    let records = bench.records(&run);
    assert!(matches!(&records.last().unwrap().event, Event::QuestionAsked { question, .. } if question.contains(WRITES)));
    assert_eq!(results(&records, "work"), []);
    // The answer is given later, by whoever resumes.
    bench.spinney(&["resume", &run.0, "--on-ask", "allow"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:made.txt")]), "made\n");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn a_refusal_is_told_to_the_model() {
    let server = gives(WRITES);
    let bench = without_bubblewrap(bench(Wire::Chat, &server)).workflow("one", &workflow(""));
    bench.spinney(&["run", "one", "--model", "openai/any", "--on-ask", "deny"]).code(0);
    let records = bench.records(&bench.newest());
    let [(_, true, text)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(text.contains("--on-ask deny"), "{text}");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn commands_that_only_read_run_unasked() {
    let server = gives("ls && git status --short && cat README.md | head -3");
    let bench = without_bubblewrap(bench(Wire::Messages, &server)).workflow("one", &workflow(""));
    bench.spinney(&["run", "one"]).code(0);
    let records = bench.records(&bench.newest());
    let [(_, false, text)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(text.contains("# A project"), "{text}");
}

#[test]
fn an_allow_rule_counts_once_the_workflow_is_trusted() {
    let server = gives(WRITES);
    let rules = "permissions: { allow: [\"Bash(echo *)\", \"Write(made.txt)\", \"Edit(made.txt)\"] }\n";
    let bench = without_bubblewrap(bench(Wire::Messages, &server)).workflow("one", &workflow(rules));
    bench.spinney(&["run", "one"]).code(3);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench.spinney(&["run", "one"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{}:made.txt", bench.newest())]), "made\n");
}

#[test]
fn unconfined_is_free() {
    let server = gives(WRITES);
    let bench = without_bubblewrap(bench(Wire::Messages, &server)).workflow("one", &workflow(""));
    bench.spinney(&["run", "one", "--unconfined"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{}:made.txt", bench.newest())]), "made\n");
}

/// Returns whether bubblewrap works here; says so where it does not.
fn has_bubblewrap() -> bool {
    let works = Command::new("bwrap")
        .args(["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !works {
        not_tested("walls around commands", "bubblewrap is not here, or does not work here");
    }
    works
}

/// Where the toolchain is, for a home that is not the user's.
fn with_toolchain(mut bench: Bench) -> Bench {
    let home = std::env::var("HOME").map(PathBuf::from).unwrap_or_default();
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        if !bench.environment().contains_key(name) && home.join(folder).is_dir() {
            bench = bench.env(name, &home.join(folder).display().to_string());
        }
    }
    bench
}

#[test]
fn inside_walls_there_is_no_network_no_home_and_nothing_to_write_but_the_worktree() {
    if !has_bubblewrap() {
        return;
    }
    let probe = "echo made > made.txt; \
        cat \"$HOME/secret\" && echo SAW HOME; \
        (exec 3<>/dev/tcp/127.0.0.1/$(cat port)) && echo SAW NETWORK; \
        echo bad > \"$(cat repo)/evil.txt\"; \
        cat \"$(cat repo)/.git/config\" && echo SAW CONFIG; cat \"$(cat repo)/README.md\" && echo SAW CHECKOUT; \
        echo bad > \"$(cat outside)/evil.txt\"; \
        echo bad > /usr/evil.txt && echo SAW USR; \
        ls /proc | grep -c '^[0-9]'; git log --oneline; true";
    let server = gives("bash probe.sh");
    let port = server.anthropic_url().rsplit(':').next().unwrap().to_owned();
    let bench = bench(Wire::Messages, &server);
    let (repo, outside) = (bench.repo().display().to_string(), bench.path("cache").display().to_string());
    let bench = bench.file("port", &port).file("repo", &repo).file("outside", &outside).file("probe.sh", probe).commit("places").workflow("one", &workflow(""));
    bench.git(&["config", "remote.origin.url", "https://me:SECRETWORD@localhost/x.git"]);
    fs::write(bench.path("home").join("secret"), "SECRETWORD").unwrap();
    bench.spinney(&["run", "one"]).code(0);
    let records = bench.records(&bench.newest());
    let [(_, _, text)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(!text.contains("SAW ") && !text.contains("SECRETWORD"), "{text}");
    assert!(text.contains("places") && text.contains("begin"), "git works inside: {text}");
    assert_eq!(bench.git(&["show", &format!("spinney/{}:made.txt", bench.newest())]), "made\n");
    for place in [repo, outside, "/usr".to_owned()] {
        assert!(!Path::new(&place).join("evil.txt").exists(), "{place}");
    }
}

#[test]
fn cargo_works_inside_walls() {
    if !has_bubblewrap() {
        return;
    }
    let server = gives("cargo test --offline -q 2>&1 && echo GREEN");
    let bench = with_toolchain(bench(Wire::Messages, &server))
        .file("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[profile.test]\ndebug = false\n")
        .file("src/lib.rs", "//! Small.\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn it_holds() {\n        assert_eq!(1 + 1, 2);\n    }\n}\n")
        .file(".gitignore", "target\nCargo.lock\n")
        .commit("a crate")
        .workflow("one", &workflow(""));
    bench.spinney(&["run", "one"]).code(0);
    let records = bench.records(&bench.newest());
    let [(_, false, text)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(text.contains("1 passed") && text.contains("GREEN"), "{text}");
}

/// What an agent's command, a step's command and a check may do does not hang on who answers for the model.
#[test]
fn a_script_stands_inside_the_same_walls_as_a_model() {
    if !has_bubblewrap() {
        return;
    }
    let yaml = "version: 1\nname: w\nagents: { coder: { system: C., access: write } }\nsteps:\n  work: { agent: coder, prompt: Do it., verify: { run: [\"! cat $HOME/secret\"] } }\n  look: { run: \"! cat $HOME/secret\" }\n";
    let script =
        "conversations:\n  - turns:\n      - calls: [{ tool: Bash, input: { command: \"cat $HOME/secret; echo made > made.txt\" } }]\n      - say: done\n";
    let bench = Bench::new().workflow("w", yaml);
    fs::write(bench.path("home/secret"), "SECRETWORD").unwrap();
    let (said, records) = bench.run("w", script, &[]);
    let said = said.code(0);
    assert!(!said.out.contains("no sandbox"), "{}", said.out);
    let [(_, _, text)] = results(&records, "work")[..] else { panic!("{:?}", results(&records, "work")) };
    assert!(text.contains("No such file") && !format!("{records:?}").contains("SECRETWORD"), "{text}");
    // Where there are none to be had nothing is asked, and the run says so.
    let bench = without_bubblewrap(bench).workflow("w", &yaml.replace("! cat", "cat"));
    let said = bench.run("w", script, &[]).0.code(0);
    assert!(said.out.contains("There is no sandbox here") && said.out.contains("nothing is asked"), "{}", said.out);
}

/// Tools that somebody put into the home work as those of the system do; what else is there is shown by a word of the user.
#[test]
fn toolchains_of_the_home_are_there_and_what_is_not_is_told() {
    if !has_bubblewrap() {
        return;
    }
    let bench = Bench::new();
    let home = |path: &str| bench.path("home").join(path);
    for folder in ["sdk/v2/bin", "sdk/v2/lib", ".local/bin", "venv/bin", "aside/bin", "go/pkg/mod"] {
        fs::create_dir_all(home(folder)).unwrap();
    }
    let program = |path: &str, text: &str| {
        fs::write(home(path), text).unwrap();
        fs::set_permissions(home(path), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    fs::write(home("sdk/v2/lib/word"), "of two\n").unwrap();
    program("sdk/v2/bin/tool", &format!("#!/bin/sh\ncat {}\n", home("sdk/v2/lib/word").display()));
    symlink(home("sdk/v2/bin/tool"), home(".local/bin/tool")).unwrap();
    program("venv/bin/inner", "#!/bin/sh\necho inner\n");
    program("aside/bin/other", "#!/bin/sh\necho other\n");
    symlink(home("aside/bin/other"), home("venv/other")).unwrap();
    fs::write(home("private"), "mine\n").unwrap();
    let (path, venv, aside) = (home(".local/bin").display().to_string(), home("venv").display().to_string(), home("aside/bin/other").display().to_string());
    let path = format!("{path}:{}", bench.environment()["PATH"]);
    let yaml = |command: &str| format!("version: 1\nname: w\nsteps:\n  look: {{ run: '{command}' }}\n");
    let bench = bench.env("PATH", &path).env("VIRTUAL_ENV", &venv).workflow("w", &yaml("tool; $VIRTUAL_ENV/bin/inner; cat ~/private; ls ~/go/pkg"));
    let (said, records) = bench.run("w", "conversations: []", &[]);
    said.code(0);
    let stdout = outcome(&records, "look")["succeeded"]["output"]["stdout"].clone();
    assert_eq!(stdout, "of two\ninner\nmod\n");
    let bench = bench.workflow("w", &yaml(&aside));
    let said = bench.run("w", "conversations: []", &[]).0.code(1);
    let folder = aside.strip_suffix("/bin/other").unwrap();
    assert!(said.out.contains(&format!("sandbox: {{ read: [{folder}] }}")), "{}", said.out);
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), "sandbox: { read: [~/aside] }\n").unwrap();
    bench.run("w", "conversations: []", &[]).0.code(0);
    assert!(bench.spinney(&["config"]).code(0).out.contains("sandbox.read"));
    // A repository may not open a door into the home of whoever runs it.
    let bench = bench.file(".spinney/config.yaml", "sandbox: { read: [/] }\n");
    let said = bench.spinney(&["run", "w", "--script", &bench.script("conversations: []")]).code(2);
    assert!(said.err.contains("a project may not say what commands may read"), "{}", said.err);
}
