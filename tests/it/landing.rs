//! Landing while others are at work in the checkout: runs that land at the same time, the user's own git, and one that died over it.
use crate::fixture::Bench;
use std::{fs, path::PathBuf, process::Command};

fn yaml(name: &str) -> String {
    format!("version: 1\nname: {name}\nsteps: {{ make: {{ run: \"mkdir -p new; echo {name} | tee new/{name}.txt > {name}.txt\", scope: [\"**\"] }} }}\n")
}

/// A repository with runs of these names that have work to land, and the runs.
fn ran(names: &[&str]) -> (Bench, Vec<String>) {
    let bench = names.iter().fold(Bench::new().file("kept.txt", "kept\n").commit("kept"), |bench, name| bench.workflow(name, &yaml(name)));
    let runs = names.iter().map(|name| {
        bench.run(name, "conversations: []", &[]).0.code(0);
        bench.newest().0
    });
    let runs = runs.collect();
    (bench, runs)
}

fn is_clean(bench: &Bench) {
    assert_eq!(bench.git(&["status", "--porcelain", "-uno"]), "");
    assert!(!bench.repo().join(".git/index.lock").exists() && !bench.repo().join(".git/index.spinney").exists());
}

#[test]
fn runs_that_land_at_the_same_time_all_land() {
    let names = ["a", "b", "c", "d"];
    let (bench, runs) = ran(&names);
    let lands: Vec<_> = runs.iter().map(|run| bench.program(&["land", run])).collect();
    for land in lands {
        let said = land.wait_with_output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    is_clean(&bench);
    for name in names {
        assert_eq!(fs::read_to_string(bench.repo().join(format!("new/{name}.txt"))).unwrap(), format!("{name}\n"));
    }
}

#[test]
fn another_git_at_work_in_the_checkout_is_waited_for_by_whoever_lands() {
    let (bench, runs) = ran(&["a"]);
    let lock = bench.repo().join(".git/index.lock");
    // As a commit has it while its message is written.
    fs::write(&lock, "").unwrap();
    let head = bench.git(&["rev-parse", "HEAD"]);
    let said = bench.spinney(&["land", &runs[0]]).code(1);
    assert!(said.err.contains("another git is at work") && said.err.contains("nothing was changed"), "{}", said.err);
    assert_eq!((bench.git(&["rev-parse", "HEAD"]), lock.exists(), bench.repo().join("a.txt").exists()), (head, true, false));
    fs::remove_file(lock).unwrap();
    bench.spinney(&["land", &runs[0]]).code(0);
    is_clean(&bench);
}

/// What a landing leaves that dies before it moves the branch, or after.
fn left(bench: &Bench, to: &str, files: &[(&str, Option<&str>)]) {
    fs::write(bench.repo().join(".git/index.lock"), format!("spinney lands {to}\n")).unwrap();
    for (name, content) in files {
        let file: PathBuf = bench.repo().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        match content {
            Some(content) => fs::write(file, content).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
    }
}

#[test]
fn a_landing_that_died_is_ended_by_the_next() {
    let (bench, runs) = ran(&["a"]);
    let to = bench.git(&["rev-parse", &format!("spinney/{}", runs[0])]).trim().to_owned();
    // In the middle of the files.
    left(&bench, &to, &[("new/a.txt", Some("a\n"))]);
    fs::copy(bench.repo().join(".git/index"), bench.repo().join(".git/index.spinney")).unwrap();
    fs::write(bench.repo().join(".git/index.spinney.lock"), "as its git leaves it, which died too").unwrap();
    bench.spinney(&["land", &runs[0]]).code(0);
    is_clean(&bench);
    assert_eq!(bench.git(&["rev-parse", "HEAD"]).trim(), to);
    // Before its index took the place of the checkout's.
    bench.git(&["reset", "-q", "--hard", "HEAD~1"]);
    fs::copy(bench.repo().join(".git/index"), bench.path("before")).unwrap();
    bench.git(&["merge", "-q", "--ff-only", &to]);
    fs::rename(bench.repo().join(".git/index"), bench.repo().join(".git/index.spinney")).unwrap();
    fs::copy(bench.path("before"), bench.repo().join(".git/index")).unwrap();
    left(&bench, &to, &[]);
    assert!(bench.spinney(&["land", &runs[0]]).code(0).out.contains("already"));
    is_clean(&bench);
}

#[test]
fn what_stands_behind_a_link_is_none_of_the_checkouts() {
    let yaml = "version: 1\nname: copy\nsteps: { make: { run: \"rm d && mkdir d && echo hi > d/x\", scope: [\"**\"] } }\n";
    let bench = Bench::new().workflow("copy", yaml);
    let shared = bench.repo().with_file_name("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("x"), "hi\n").unwrap();
    std::os::unix::fs::symlink("../shared", bench.repo().join("d")).unwrap();
    let bench = bench.commit("a link");
    bench.run("copy", "conversations: []", &[]).0.code(0);
    let run = bench.newest().0;
    let is_as_before = || bench.repo().join("d").is_symlink() && fs::read(shared.join("x")).is_ok_and(|found| found == b"hi\n");
    // Another git has locked the branch: nothing is moved.
    let lock = bench.repo().join(".git/refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    bench.spinney(&["land", &run]).code(1);
    assert!(is_as_before());
    fs::remove_file(lock).unwrap();
    // And where a landing died before its first file.
    let to = bench.git(&["rev-parse", &format!("spinney/{run}")]);
    left(&bench, to.trim(), &[]);
    bench.spinney(&["doctor", "--repair"]);
    assert!(is_as_before());
    bench.spinney(&["land", &run]).code(0);
    assert!(!bench.repo().join("d").is_symlink() && bench.repo().join("d/x").exists() && shared.join("x").exists());
    is_clean(&bench);
}

#[test]
fn a_landing_that_died_over_a_new_submodule_is_ended() {
    let bench = Bench::new();
    let from = bench.git(&["rev-parse", "HEAD"]);
    bench.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", from.trim())]);
    bench.git(&["commit", "-q", "-m", "a submodule"]);
    let to = bench.git(&["rev-parse", "HEAD"]);
    bench.git(&["reset", "-q", "--hard", from.trim()]);
    for is_empty in [true, false] {
        left(&bench, to.trim(), &[]);
        fs::create_dir_all(bench.repo().join("sub")).unwrap();
        if !is_empty {
            fs::write(bench.repo().join("sub/kept.txt"), "somebody's").unwrap();
        }
        let said = bench.spinney(&["doctor", "--repair"]);
        assert!(said.out.contains("mended"), "{}", said.out);
        is_clean(&bench);
        assert_eq!(bench.repo().join("sub").exists(), !is_empty);
    }
    assert!(bench.repo().join("sub/kept.txt").exists());
}

/// The locks of refs that a git leaves which is killed, alone or with the program, as it moves the branch.
#[test]
fn what_a_git_has_locked_that_died_over_a_landing_is_free_again_and_the_locks_of_others_stay() {
    let (bench, runs) = ran(&["a"]);
    let (from, to) = (bench.git(&["rev-parse", "HEAD"]), bench.git(&["rev-parse", &format!("spinney/{}", runs[0])]));
    let of_git = |name: &str| bench.repo().join(".git").join(name);
    let died = |branch: &str| {
        left(&bench, to.trim(), &[("new/a.txt", Some("a\n"))]);
        fs::write(of_git("index.spinney.lock"), "half").unwrap();
        fs::write(of_git("HEAD.lock"), "").unwrap();
        fs::write(of_git("ORIG_HEAD.lock"), &from).unwrap();
        fs::write(of_git("refs/heads/main.lock"), branch).unwrap();
    };
    // Somebody moves the branch elsewhere, or switches to another one.
    died(&from);
    let said = bench.spinney(&["land", &runs[0]]).code(1);
    assert!(said.err.contains("refs/heads/main.lock") && said.err.contains("hint: "), "{}", said.err);
    assert!(bench.spinney(&["doctor"]).out.contains("a process of this program has left it that died"));
    fs::write(of_git("refs/heads/main.lock"), &to).unwrap();
    fs::write(of_git("HEAD.lock"), "ref: refs/heads/other\n").unwrap();
    assert!(bench.spinney(&["land", &runs[0]]).code(1).err.contains("HEAD.lock"));
    fs::remove_file(of_git("HEAD.lock")).unwrap();
    bench.spinney(&["land", &runs[0]]).code(0);
    is_clean(&bench);
    assert_eq!(bench.git(&["rev-parse", "HEAD"]), to);
    // Once more, and `doctor --repair` ends it.
    bench.git(&["reset", "-q", "--hard", from.trim()]);
    died("");
    let said = bench.spinney(&["doctor", "--repair"]);
    assert!(said.out.contains("mended") && said.out.contains("index.lock"), "{}", said.out);
    is_clean(&bench);
    assert!(!of_git("HEAD.lock").exists() && !of_git("refs/heads/main.lock").exists() && !of_git("ORIG_HEAD.lock").exists());
    assert_eq!((bench.git(&["rev-parse", "HEAD"]), bench.repo().join("new/a.txt").exists()), (from, false));
    bench.spinney(&["land", &runs[0]]).code(0);
}

#[test]
fn a_file_that_was_touched_and_is_the_same_is_moved() {
    let yaml = "version: 1\nname: more\nsteps: { make: { run: \"echo more >> kept.txt\", scope: [\"**\"] } }\n";
    let bench = Bench::new().file("kept.txt", "kept\n").commit("kept").workflow("more", yaml);
    bench.run("more", "conversations: []", &[]).0.code(0);
    fs::remove_file(bench.repo().join("kept.txt")).unwrap();
    fs::write(bench.repo().join("kept.txt"), "kept\n").unwrap();
    fs::File::options().write(true).open(bench.repo().join("kept.txt")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    bench.spinney(&["land", &bench.newest().0]).code(0);
    is_clean(&bench);
    assert_eq!(fs::read_to_string(bench.repo().join("kept.txt")).unwrap(), "kept\nmore\n");
}

#[test]
fn what_git_does_not_know_is_never_overwritten() {
    let (bench, runs) = ran(&["a"]);
    fs::write(bench.repo().join(".git/info/exclude"), "new\na.txt\nnew.txt\n").unwrap();
    let refused = |what: &str| {
        let said = bench.spinney(&["land", &runs[0]]).code(1);
        assert!(said.err.contains(what) && said.err.contains("nothing was changed"), "{what}: {}", said.err);
        is_clean(&bench);
    };
    // A file where a folder is to come, a file, a folder with something in it, a link.
    fs::write(bench.repo().join("new"), "mine\n").unwrap();
    refused(": new");
    fs::remove_file(bench.repo().join("new")).unwrap();
    fs::create_dir_all(bench.repo().join("new/a.txt/deep")).unwrap();
    fs::write(bench.repo().join("new/a.txt/deep/mine"), "mine\n").unwrap();
    refused("new/a.txt/deep/mine");
    fs::remove_file(bench.repo().join("new/a.txt/deep/mine")).unwrap();
    std::os::unix::fs::symlink("nowhere", bench.repo().join("a.txt")).unwrap();
    refused(": a.txt");
    fs::remove_file(bench.repo().join("a.txt")).unwrap();
    fs::write(bench.repo().join(".git/MERGE_HEAD"), bench.git(&["rev-parse", "HEAD"])).unwrap();
    refused("MERGE_HEAD");
    fs::remove_file(bench.repo().join(".git/MERGE_HEAD")).unwrap();
    bench.spinney(&["land", &runs[0]]).code(0);
    is_clean(&bench);
    assert_eq!(fs::read_to_string(bench.repo().join("new/a.txt")).unwrap(), "a\n");
    // As after a merge of one's own.
    assert!(bench.git(&["reflog", "-1"]).contains("Fast-forward") && !bench.git(&["rev-parse", "ORIG_HEAD"]).is_empty());
}

#[test]
fn what_a_person_wrote_meanwhile_is_not_taken_back() {
    let (bench, runs) = ran(&["a"]);
    let to = bench.git(&["rev-parse", &format!("spinney/{}", runs[0])]).trim().to_owned();
    left(&bench, &to, &[("a.txt", Some("mine\n")), ("kept.txt", Some("mine\n"))]);
    let said = bench.spinney(&["land", &runs[0]]);
    assert!(said.code != 0 && said.err.contains("kept.txt"), "{}", said.err);
    assert_eq!(fs::read_to_string(bench.repo().join("a.txt")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(bench.repo().join("kept.txt")).unwrap(), "mine\n");
}

#[test]
fn a_commit_that_began_before_a_landing_is_refused_and_takes_nothing_back() {
    let (bench, runs) = ran(&["a"]);
    // A commit looks at its branch and at the index first, then runs the hook, then moves the branch.
    let hook = format!("#!/bin/sh\nunset GIT_INDEX_FILE GIT_DIR GIT_PREFIX\nexec {} land {}\n", env!("CARGO_BIN_EXE_spinney"), runs[0]);
    let bench = bench.executable(".git/hooks/pre-commit", &hook);
    let head = bench.git(&["rev-parse", "HEAD"]);
    let mut commit = Command::new("git");
    let said = commit.args(["commit", "--allow-empty", "-q", "-m", "mine"]).current_dir(bench.repo()).env_clear().envs(bench.environment()).output().unwrap();
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && why.contains("cannot lock ref 'HEAD'"), "{why}");
    assert_eq!(bench.git(&["rev-parse", "HEAD", "HEAD~1"]), format!("{}{head}", bench.git(&["rev-parse", &format!("spinney/{}", runs[0])])));
    assert_eq!(fs::read_to_string(bench.repo().join("a.txt")).unwrap(), "a\n");
    is_clean(&bench);
}
