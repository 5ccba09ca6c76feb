//! Refs move by compare-and-swap, and only ours.
use crate::{
    event::CommitId,
    git::{
        Expected, GitError, RefMove, Repository,
        fixture::{Fixture, write},
    },
};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// Opens a repository with a git that notes what it is started with from then on; what is returned reads that.
fn watched(fixture: &Fixture) -> (Repository, impl Fn() -> String) {
    let (bin, log) = (fixture.path("bin"), fixture.path("started"));
    let mut environment = fixture.environment();
    let path = environment["PATH"].clone();
    write(&bin, "git", &format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >>'{}'\nPATH='{path}' exec git \"$@\"\n", log.display()));
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    environment.insert("PATH".to_owned(), format!("{}:{path}", bin.display()));
    let repository = Repository::open(&fixture.path("repo"), &environment).expect("it is a repository");
    assert!(fs::read_to_string(&log).expect("git was started").contains("rev-parse"));
    fs::remove_file(&log).expect("it is there");
    (repository, move || fs::read_to_string(&log).unwrap_or_default())
}

#[test]
fn a_move_that_is_plain_starts_no_git_and_leaves_no_lock() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.commit("a"), fixture.commit("b"));
    let (repository, started) = watched(&fixture);
    let name = "refs/spinney/run-1/step/result";
    repository.set_ref(name, &a, Expected::Absent).expect("it was absent");
    repository.set_ref(name, &b, Expected::At(a)).expect("it was there");
    assert_eq!(repository.refs("refs/spinney").expect("it is read"), [(name.to_owned(), b.clone())]);
    assert_eq!(fixture.git(&["rev-parse", name]), b.0);
    repository.delete_ref(name, &b).expect("it was there");
    assert_eq!(started(), "");
    let left = crate::git::fixture::contents(&fixture.path("repo/.git"), &|name| !name.contains("refs"));
    assert!(left.keys().all(|name| !name.contains("lock") && !name.contains("run-1")), "{left:?}");
}

#[test]
fn what_is_not_plain_is_left_to_git() {
    let fixture = Fixture::new();
    let a = fixture.commit("a");
    let (repository, started) = watched(&fixture);
    let of = |name: &str| format!("refs/spinney/run-1/{name}/result");
    repository.set_ref(&of("packed"), &a, Expected::Absent).expect("it was absent");
    fixture.git(&["pack-refs", "--all"]);
    assert_eq!((repository.ref_at(&of("packed")).expect("it is read"), started()), (Some(a.clone()), String::new()));
    repository.delete_ref(&of("packed"), &a).expect("it was there");
    assert_eq!(repository.refs_by_git("refs/spinney").expect("git works"), []);
    assert_eq!(started().matches("update-ref").count(), 0, "{}", started());
    fixture.git(&["update-ref", "--create-reflog", &of("logged"), &a.0]);
    repository.set_ref(&of("logged"), &a, Expected::At(a.clone())).expect("it was there");
    assert_eq!(started().matches("update-ref").count(), 1, "{}", started());
    let missing = "1".repeat(40).as_str().into();
    assert!(matches!(repository.set_ref(&of("nothing"), &missing, Expected::Absent), Err(GitError::Failed { .. })));
    fixture.git(&["config", "core.fsync", "reference"]);
    repository.set_ref(&of("synced"), &a, Expected::Absent).expect("it was absent");
    assert_eq!(started().matches("update-ref").count(), 3, "{}", started());
}

#[test]
fn a_lock_of_packed_refs_that_another_git_has_stays() {
    let fixture = Fixture::new();
    fixture.commit("a");
    let (repository, _) = watched(&fixture);
    let lock = fixture.path("repo/.git/packed-refs.lock");
    fs::write(&lock, "").expect("nobody has it");
    assert!(repository.packing().expect("it can be told").is_none());
    assert!(lock.exists(), "it is the other git's to give back");
    fs::remove_file(&lock).expect("it is there");
    let packing = repository.packing().expect("it can be told");
    assert!(packing.is_some() && lock.exists());
    drop(packing);
    assert!(!lock.exists());
}

#[test]
fn what_is_packed_is_taken_out_and_all_else_stays() {
    let fixture = Fixture::new();
    let a = fixture.commit("a");
    fixture.git(&["tag", "-a", "-m", "one", "annotated"]);
    let (repository, started) = watched(&fixture);
    let of = |name: &str| format!("refs/spinney/run-1/{name}/result");
    for name in ["one", "two", "three"] {
        repository.set_ref(&of(name), &a, Expected::Absent).expect("it was absent");
    }
    fixture.git(&["pack-refs", "--all"]);
    let b = fixture.commit("b");
    // Packed, and newer beside that.
    repository.set_ref(&of("two"), &b, Expected::At(a.clone())).expect("it was there");
    let lock = fixture.path("repo/.git/packed-refs.lock");
    // As a process of this program leaves it that is killed.
    fs::write(&lock, "spinney takes refs out of packed-refs\n").expect("it is ours");
    let gone = |name: &str, at: &CommitId| RefMove { name: of(name), to: None, expected: Expected::At(at.clone()) };
    repository.move_refs(&[gone("one", &a), gone("two", &b)]).expect("they were there");
    assert_eq!((started(), lock.exists()), (String::new(), false));
    assert_eq!(fixture.git(&["for-each-ref", "--format=%(refname)", "refs/spinney", "refs/tags"]), format!("{}\nrefs/tags/annotated", of("three")));
    assert_eq!(fixture.git(&["rev-parse", "annotated^{}", "main"]), format!("{a}\n{b}"));
    fixture.git(&["fsck", "--strict"]);
    // Somebody's lock stays, and git says so.
    fs::write(&lock, "").expect("it is free");
    write(&fixture.path("repo/.git/refs/spinney/run-1/three"), "result.lock", "");
    repository.unlock_refs(&"run-1".into()).expect("the run is ours");
    assert!(lock.exists());
    fs::write(&lock, "spinney takes refs out of packed-refs\n").expect("it is ours");
    repository.unlock_refs(&"run-1".into()).expect("the run is ours");
    assert!(!lock.exists());
}

#[test]
fn the_branch_of_a_run_goes_without_git_where_nothing_else_takes_part() {
    let fixture = Fixture::new();
    fixture.commit("a");
    let (repository, started) = watched(&fixture);
    let is_there = |run: &str| !fixture.git(&["branch", "--list", &format!("spinney/{run}")]).is_empty();
    fixture.git(&["branch", "spinney/packed"]);
    fixture.git(&["pack-refs", "--all"]);
    fixture.git(&["branch", "-q", "--no-track", "spinney/loose"]);
    fs::remove_dir_all(fixture.path("repo/.git/logs/refs/heads/spinney")).expect("git has noted where they were made");
    for run in ["packed", "loose"] {
        repository.delete_branch_of(&run.into()).expect("it is nobody's");
        assert_eq!((is_there(run), started()), (false, String::new()), "{run}");
    }
    fixture.git(&["branch", "spinney/set"]);
    fixture.git(&["config", "branch.spinney/set.description", "mine"]);
    repository.delete_branch_of(&"set".into()).expect("it is nobody's");
    assert!(!is_there("set") && !fixture.git(&["config", "--list"]).contains("spinney/set") && started().contains("branch -D"));
    fixture.git(&["switch", "-q", "-c", "spinney/used"]);
    assert!(matches!(repository.delete_branch_of(&"used".into()), Err(GitError::Failed { .. })));
    assert!(is_there("used"));
}

#[test]
fn refs_are_listed_as_git_lists_them() {
    let fixture = Fixture::new();
    fixture.git(&["tag", "-a", "-m", "one", "annotated"]);
    fixture.git(&["branch", "z/packed"]);
    fixture.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    fixture.git(&["pack-refs", "--all"]);
    let b = fixture.commit("b");
    fixture.git(&["branch", "a-b"]);
    fixture.git(&["branch", "a/b"]);
    fixture.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    fixture.git(&["symbolic-ref", "refs/heads/dangling", "refs/heads/nowhere"]);
    let repository = fixture.open();
    fs::write(fixture.path("repo/.git/refs/heads/broken"), "").expect("a file");
    repository.set_ref("refs/spinney/r/s/result", &b, Expected::Absent).expect("it was absent");
    for prefix in ["refs", "refs/heads", "refs/heads/a", "refs/heads/a/b", "refs/tags/annotated", "refs/remotes", "refs/spinney/r", "refs/none"] {
        let listed = repository.list_refs(prefix).expect("it is read");
        assert_eq!(listed.as_deref(), Some(&repository.refs_by_git(prefix).expect("git works")[..]), "{prefix}");
    }
}

#[test]
fn a_ref_moves_only_from_where_it_was_expected() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.commit("a"), fixture.commit("b"));
    let repository = fixture.open();
    let name = "refs/spinney/run-1/step/result";
    let moved = |result| assert!(matches!(result, Err(GitError::RefMoved { .. })), "{result:?}");
    moved(repository.set_ref(name, &b, Expected::At(a.clone())));
    repository.set_ref(name, &a, Expected::Absent).expect("it was absent");
    moved(repository.set_ref(name, &b, Expected::Absent));
    moved(repository.set_ref(name, &a, Expected::At(b.clone())));
    repository.set_ref(name, &b, Expected::At(a.clone())).expect("it was there");
    repository.set_ref(name, &a, Expected::Any).expect("anything goes");
    moved(repository.delete_ref(name, &b));
    assert_eq!(repository.refs("refs/spinney/run-1").expect("git works"), [(name.to_owned(), a.clone())]);
    repository.delete_ref(name, &a).expect("it was there");
    assert_eq!(repository.ref_at(name).expect("git works"), None);
}

#[test]
fn many_refs_move_together_or_not_at_all() {
    let fixture = Fixture::new();
    let a = fixture.commit("a");
    let repository = fixture.open();
    let to = |name: &str, expected| RefMove { name: name.to_owned(), to: Some(a.clone()), expected };
    let moves = [to("refs/spinney/r/one", Expected::Absent), to("refs/spinney/r/two", Expected::At(a.clone()))];
    assert!(matches!(repository.move_refs(&moves), Err(GitError::RefMoved { .. })));
    assert_eq!(repository.refs("refs/spinney").expect("git works"), []);
}

#[test]
fn refs_of_others_are_out_of_reach() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.commit("a"), fixture.commit("b"));
    let repository = fixture.open();
    let branch = "refs/heads/spinney/run-1";
    for (name, expected) in [
        ("refs/heads/main", Expected::Any),
        ("HEAD", Expected::Any),
        ("refs/spinney/../heads/main", Expected::Any),
        ("refs/spinney/x\0y", Expected::Any),
        (branch, Expected::Any),
    ] {
        assert!(repository.set_ref(name, &a, expected).is_err(), "{name}");
    }
    repository.set_ref(branch, &a, Expected::Absent).expect("it is created");
    assert!(matches!(repository.set_ref(branch, &b, Expected::Absent), Err(GitError::RefMoved { .. })));
    assert!(matches!(repository.set_ref(branch, &b, Expected::At(a.clone())), Err(GitError::ForeignRef { .. })));
    assert!(matches!(repository.delete_ref(branch, &a), Err(GitError::ForeignRef { .. })));
    assert_eq!(fixture.git(&["rev-parse", "main"]), b.0);
}
