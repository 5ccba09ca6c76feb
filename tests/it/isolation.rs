//! A run touches nothing of the user's: every file, the index, every ref, configuration, hooks and logs are the same bytes
//! before and after, however the run ends and whatever its agents do in their own copies.
use crate::{
    driver::Line,
    fixture::{Bench, git, not_tested, outcome, results},
};
use serde_json::json;
use spinney::{
    engine::Ended,
    event::Event,
    journal::RunDir,
    sandbox::{self, Sandbox},
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

const WORKFLOW: &str = r#"
version: 1
name: touch
agents: { worker: { system: "You work.", access: write } }
steps:
  one: { agent: worker, prompt: "One." }
  two: { agent: worker, prompt: "Two.", VERIFY }
  cmd: { run: "echo x > made-by-command.txt; git add -A; git commit -qm x; git checkout -q -b byrun; git stash list", scope: ["**"] }
  land: { needs: [one, two, cmd], merge: { from: [one, two, cmd] } }
"#;

/// What an agent does that takes the repository for its own.
const MISDEEDS: &str = "echo x > by-agent-NODE.txt; echo y >> tracked.txt
git add -A; git -c user.name=a -c user.email=a@b commit -qm 'by the agent'
echo z >> tracked.txt; git -c user.name=a -c user.email=a@b stash; git stash pop
git branch sneaky; git branch -D main; git branch -f main HEAD~1; git checkout -q -b other; git tag evil
git update-ref refs/heads/main HEAD; git symbolic-ref HEAD refs/heads/sneaky; git config user.name Mallory
git config --global user.email mallory@localhost; git config core.hooksPath /tmp; git config alias.st '!echo hacked'
mkdir -p $(git rev-parse --git-path hooks); echo 'echo hacked' > $(git rev-parse --git-path hooks)/pre-commit
echo '*.txt' >> $(git rev-parse --git-path info/exclude)
git remote add origin https://127.0.0.1:1/x; git worktree prune; git reflog expire --expire=now --all; git gc -q --prune=now
git reset -q --hard; git clean -fdxq; true";

/// Every file below a folder: mode, and content or where a link leads.
fn files(folder: &Path, skip: &dyn Fn(&Path) -> bool) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap().flatten() {
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let below = path.strip_prefix(folder).unwrap().to_owned();
            if skip(&below) {
                continue;
            }
            if metadata.is_dir() {
                all.insert(below, (metadata.mode(), Vec::new()));
                folders.push(path);
            } else if metadata.is_symlink() {
                all.insert(below, (metadata.mode(), fs::read_link(&path).unwrap().to_string_lossy().into_owned().into_bytes()));
            } else {
                all.insert(below, (metadata.mode(), fs::read(&path).unwrap()));
            }
        }
    }
    all
}

/// Everything of the user's: the whole checkout and git folder, but for what a run owns.
fn state(bench: &Bench, extra: &[PathBuf]) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let owned = |path: &Path| {
        let git = path.strip_prefix(".git").ok();
        path.starts_with(".spinney/state")
            || git.is_some_and(|path| {
                path.starts_with("objects")
                    || path.starts_with("refs/spinney")
                    || path.starts_with("refs/heads/spinney")
                    || path.starts_with("logs/refs/spinney")
                    || path.starts_with("logs/refs/heads/spinney")
                    || path.starts_with("spinney")
            })
    };
    let mut all = files(&bench.repo(), &owned);
    for folder in extra {
        all.extend(files(folder, &|_| false).into_iter().map(|(path, content)| (folder.join(path), content)));
    }
    all
}

#[track_caller]
fn same(before: &BTreeMap<PathBuf, (u32, Vec<u8>)>, after: &BTreeMap<PathBuf, (u32, Vec<u8>)>, what: &str) {
    let gone: Vec<&PathBuf> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    let new: Vec<&PathBuf> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    let changed: Vec<String> = before
        .iter()
        .filter_map(|(path, was)| Some((path, was, after.get(path).filter(|is| *is != was)?)))
        .map(|(path, was, is)| {
            format!("{}: {:o} {:?} -> {:o} {:?}", path.display(), was.0, String::from_utf8_lossy(&was.1), is.0, String::from_utf8_lossy(&is.1))
        })
        .collect();
    assert!(gone.is_empty() && new.is_empty() && changed.is_empty(), "{what}\ngone {gone:?}\nnew {new:?}\nchanged {changed:#?}");
}

/// A repository in the middle of somebody's work: staged, unstaged, untracked and ignored files, a stash, other branches,
/// hooks, an exclude file, an unusual configuration.
fn busy(verify: &str) -> Bench {
    let bench = Bench::new()
        .file("tracked.txt", "tracked\n")
        .file("staged.txt", "staged\n")
        .file(".gitignore", "*.log\ntarget/\n")
        .executable("run.sh", "#!/bin/sh\n")
        .commit("second")
        .workflow("touch", &WORKFLOW.replace("VERIFY", verify));
    bench.git(&["branch", "feature"]);
    bench.git(&["tag", "v1"]);
    let bench = bench.file("tracked.txt", "stashed\n");
    bench.git(&["stash"]);
    let bench = bench.file("tracked.txt", "changed\n").file("staged.txt", "now staged\n");
    bench.git(&["add", "staged.txt"]);
    bench.git(&["config", "core.autocrlf", "input"]);
    let bench = bench
        .file("staged.txt", "staged, then changed again\n")
        .file("untracked.txt", "untracked\n")
        .file("deep/untracked.txt", "untracked\n")
        .file("app.log", "ignored\n")
        .file("target/out", "ignored\n")
        .executable(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n")
        .executable(".git/hooks/post-checkout", "#!/bin/sh\necho x > hook-ran\n")
        .executable(".git/hooks/reference-transaction", "#!/bin/sh\nexit 0\n")
        .file(".git/info/exclude", "# mine\n*.mine\n");
    std::os::unix::fs::symlink("tracked.txt", bench.repo().join("link")).unwrap();
    // The folder of a run's records is there from the first run on; the user's own listing is what must not change.
    bench
}

fn misdeeds(bench: &Bench) -> impl Fn(&crate::driver::Sent, &spinney::llm::ModelCall<'_>) -> Line + Send + Sync + use<> {
    let _ = bench;
    |sent, _| match sent.turn() {
        0 => Line::call("Bash", json!({"command": MISDEEDS.replace("NODE", &sent.node)})),
        1 => Line::Say(
            String::new(),
            vec![
                ("Write".to_owned(), json!({"file_path": format!("by-agent-{}.txt", sent.node), "content": "x\n"})),
                ("Bash".to_owned(), json!({"command": "git status; git log --oneline --all; git branch"})),
            ],
        ),
        _ => Line::say("done"),
    }
}

#[test]
fn a_run_that_succeeds_changes_nothing_of_the_users() {
    let bench = busy("");
    fs::create_dir_all(bench.repo().join(".spinney/state")).unwrap();
    let before = state(&bench, &[bench.path("home"), bench.path("config")]);
    let drive = bench.drive(misdeeds(&bench));
    let (ended, records) = drive.run("touch");
    assert!(outcome(&records, "run")["succeeded"].is_object(), "{ended:?}");
    assert_eq!(results(&records, "one").len(), 3);
    same(&before, &without_git_config(state(&bench, &[bench.path("home"), bench.path("config")]), &before), "after a success");
    // What the agents really left in their files is there, and only that.
    let run = bench.newest();
    let diff = bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]);
    assert_eq!(diff, "by-agent-one.txt\nby-agent-two.txt\nmade-by-command.txt\ntracked.txt\n");
    let branches = bench.git(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags", "refs/stash"]);
    assert_eq!(branches, format!("refs/heads/feature\nrefs/heads/main\nrefs/heads/spinney/{run}\nrefs/stash\nrefs/tags/v1\n"));
}

/// The home of an unconfined agent is the user's, and what it does there on purpose is its own: `git config --global`.
fn without_git_config(mut after: BTreeMap<PathBuf, (u32, Vec<u8>)>, before: &BTreeMap<PathBuf, (u32, Vec<u8>)>) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    after.retain(|path, _| before.contains_key(path) || !path.ends_with(".gitconfig"));
    after
}

#[test]
fn a_run_that_fails_changes_nothing_of_the_users() {
    let bench = busy("verify: { run: [\"false\"], attempts: 1 }");
    fs::create_dir_all(bench.repo().join(".spinney/state")).unwrap();
    let before = state(&bench, &[]);
    let (_, records) = bench.drive(misdeeds(&bench)).run("touch");
    assert!(outcome(&records, "run")["failed"].is_object());
    same(&before, &state(&bench, &[]), "after a failure");
}

#[test]
fn a_run_that_is_interrupted_and_resumed_changes_nothing_of_the_users() {
    for stop in ["workspace", "started", "captured", "branch"] {
        let bench = busy("");
        fs::create_dir_all(bench.repo().join(".spinney/state")).unwrap();
        let before = state(&bench, &[]);
        let drive = bench.drive(misdeeds(&bench));
        let (ended, _) = drive.run_until("touch", |record| match &record.event {
            Event::WorkspaceMade { .. } => stop == "workspace",
            Event::ToolStarted { .. } => stop == "started",
            Event::WorkCaptured { .. } => stop == "captured",
            Event::BranchIntended { .. } => stop == "branch",
            _ => false,
        });
        assert!(ended == Ended::Interrupted || stop == "branch", "{stop}: {ended:?}");
        same(&before, &state(&bench, &[]), stop);
        if ended == Ended::Interrupted {
            let (_, records) = drive.resume("touch");
            assert!(outcome(&records, "run")["succeeded"].is_object(), "{stop}");
            same(&before, &state(&bench, &[]), stop);
        }
    }
}

#[test]
fn a_detached_head_stays_where_it_is() {
    let bench = busy("");
    bench.git(&["stash"]);
    bench.git(&["checkout", "-q", "--detach", "main~1"]);
    fs::create_dir_all(bench.repo().join(".spinney/state")).unwrap();
    let before = state(&bench, &[]);
    let (_, records) = bench.drive(misdeeds(&bench)).run("touch");
    assert!(outcome(&records, "run")["succeeded"].is_object(), "{}", outcome(&records, "run"));
    same(&before, &state(&bench, &[]), "detached");
    let Event::RunStarted(started) = &records[0].event else { panic!() };
    assert_eq!((started.head.clone(), started.base.0.clone()), (None, bench.git(&["rev-parse", "main~1"]).trim().to_owned()));
}

#[test]
fn a_linked_worktree_and_its_main_checkout_both_stay_as_they_are() {
    let bench = busy("");
    let linked = bench.path("linked");
    bench.git(&["worktree", "add", "-q", "-b", "side", &linked.display().to_string()]);
    fs::write(linked.join("tracked.txt"), "changed in the linked one\n").unwrap();
    fs::write(linked.join("untracked.txt"), "x\n").unwrap();
    git(&linked, bench.environment(), &["add", "untracked.txt"]);
    fs::create_dir_all(bench.repo().join(".spinney/state")).unwrap();
    let before = state(&bench, std::slice::from_ref(&linked));
    let script = bench.script("conversations:\n  - turns:\n      - calls: [{ tool: Bash, input: { command: \"echo x > $RANDOM$RANDOM.new; git commit -qam x; git checkout -q -b foo; git stash\" } }]\n      - say: done\n");
    let said = bench.spinney(&["-C", &linked.display().to_string(), "run", "touch", "--script", &script]).code(0);
    assert!(said.out.contains("succeeded"), "{}", said.out);
    same(&before, &state(&bench, &[linked]), "linked");
}

#[test]
fn a_run_says_what_it_starts_from_and_never_takes_what_is_not_committed() {
    let bench = busy("");
    let drive =
        bench.drive(|sent, _| if sent.turn() == 0 { Line::call("Bash", json!({"command": "cat tracked.txt staged.txt; ls"})) } else { Line::say("done") });
    let (_, records) = drive.run("touch");
    let text = results(&records, "one")[0].2;
    assert!(text.starts_with("tracked\nstaged\n") && !text.contains("untracked") && !text.contains("app.log"), "{text}");
}

/// A wrapper of the compiler that is configured outside is not there inside the walls.
#[test]
fn cargo_builds_inside_although_a_wrapper_is_configured() {
    let sandbox = Sandbox::new(sandbox::Options { path: std::env::var_os("PATH"), ..sandbox::Options::default() }).unwrap();
    if sandbox.bubblewrap().is_none() {
        return not_tested("a wrapper of the compiler", "bubblewrap does not work here");
    }
    let bench = Bench::new()
        .file(".cargo/config.toml", "[build]\nrustc-wrapper = \"/no/such/wrapper\"\n")
        .file("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
        .file("Cargo.lock", "# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\nversion = 3\n\n[[package]]\nname = \"small\"\nversion = \"0.1.0\"\n")
        .file("src/lib.rs", "")
        .file(".gitignore", "/target\n")
        .commit("begin")
        .workflow("build", "version: 1\nname: build\nsteps:\n  build: { run: \"cargo check --offline --quiet\" }\n");
    let (said, records) = bench.run("build", "conversations: []", &[]);
    said.code(0);
    assert_eq!(outcome(&records, "build")["succeeded"]["output"]["dropped"], serde_json::Value::Null);
}

#[test]
fn the_caches_of_tools_are_the_runs_own_shared_by_its_commands_and_gone_with_it() {
    let sandbox = Sandbox::new(sandbox::Options { path: std::env::var_os("PATH"), ..sandbox::Options::default() }).unwrap();
    if sandbox.bubblewrap().is_none() {
        return not_tested("caches in the sandbox", "bubblewrap does not work here");
    }
    let all = "\"$GOCACHE\" \"$PIP_CACHE_DIR\" \"$UV_CACHE_DIR\" \"$XDG_CACHE_HOME\" \"$npm_config_cache\" \"$CARGO_HOME/registry/src/io\"";
    let workflow = format!(
        "version: 1\nname: caches\nsteps:\n  one: {{ run: 'for cache in {all}; do echo kept > \"$cache/one\" || exit 1; done; cat \"$CARGO_HOME/registry/src/io/a-1/lib.rs\"' }}\n  \
         two: {{ needs: [one], run: 'for cache in {all}; do cat \"$cache/one\" || exit 1; done; ! echo x > \"$CARGO_HOME/registry/src/io/a-1/lib.rs\"; \
         if command -v npm > /dev/null; then test \"$(npm config get cache)\" = \"$npm_config_cache\"; fi' }}\n"
    );
    let bench = Bench::new().workflow("caches", &workflow);
    let cargo = bench.path("home/.cargo");
    fs::create_dir_all(cargo.join("registry/src/io/a-1")).unwrap();
    fs::write(cargo.join("registry/src/io/a-1/lib.rs"), "unpacked\n").unwrap();
    let bench = bench.env("CARGO_HOME", &cargo.display().to_string()).env("GOCACHE", "/nowhere");
    let before = files(&bench.path("home"), &|_| false);
    let (said, records) = bench.run("caches", "conversations: []", &[]);
    said.code(0);
    assert_eq!(outcome(&records, "one")["succeeded"]["output"]["output"], "unpacked");
    assert_eq!(outcome(&records, "two")["succeeded"]["output"]["output"], ["kept"; 6].join("\n"));
    assert_eq!(files(&bench.path("home"), &|_| false), before, "nothing of the user's has changed");
    assert!(!RunDir::open(&RunDir::state(&bench.repo()), &bench.newest()).unwrap().path().join("caches").exists());
}
