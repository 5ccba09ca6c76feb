//! Checkpoints and the way back to them.
use crate::{
    event::CommitId,
    git::{
        CaptureError, CommitMeta, Content, GitError, TreePolicy,
        fixture::{Fixture, contents, write},
    },
    secrets::Secrets,
};
use std::{collections::BTreeMap, fs, os::unix::fs::symlink};

#[test]
fn a_rollback_brings_back_every_file_that_counts() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let worktree = workspaces.make("one", &base).expect("it is made");
    let root = worktree.path();
    write(root, "src/new.rs", "new\n");
    write(root, "a.txt", "changed\n");
    write(root, "target/out.o", "built\n");
    fs::create_dir(root.join("before")).expect("a folder");
    fixture.git_in(&root.join("before"), &["init", "-q"]);
    write(root, "before/x", "x\n");
    let all = || contents(root, &|name| name == ".git" || name.starts_with("target") || name.contains(".git/"));
    let before = all();
    let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
    assert_eq!(workspaces.checkpoint(&worktree).expect("a checkpoint"), point, "the same files, the same commit");

    write(root, "src/new.rs", "other\n");
    write(root, "src/deep/er/file", "untracked\n");
    write(root, "target/out.o", "built again\n");
    write(root, ".gitignore", "*.txt\n");
    write(root, "hidden.txt", "ignored by the new rules\n");
    fs::create_dir(root.join("empty")).expect("a folder");
    fs::create_dir(root.join("after")).expect("a folder");
    fixture.git_in(&root.join("after"), &["init", "-q"]);
    write(root, "after/x", "x\n");
    fs::remove_file(root.join("a.txt")).expect("it was there");
    fs::create_dir(root.join("a.txt")).expect("a folder");
    symlink("/etc", root.join("a.txt/etc")).expect("a link");
    fs::remove_dir_all(root.join("src")).expect("it was there");
    symlink(fixture.path("home"), root.join("src")).expect("a link");
    let git = |args: &[&str]| drop(fixture.try_git_in(root, args));
    git(&["add", "-A"]);
    git(&["commit", "-qm", "mine"]);
    git(&["reset", "-q", "--hard", "HEAD~0"]);
    git(&["checkout", "-q", "--orphan", "x"]);

    workspaces.rollback(&worktree, &point).expect("rolled back");
    assert_eq!(all(), before);
    assert_eq!(fs::read_to_string(root.join("target/out.o")).expect("a file"), "built again\n", "ignored files stay");
    assert!(fixture.path("home/.gitconfig").exists(), "nothing behind a link is touched");
    assert_eq!(fixture.git_in(root, &["rev-parse", "HEAD"]), base.0);
    assert_eq!(fixture.git_in(root, &["status", "--porcelain"]), " M a.txt\n?? before/\n?? src/new.rs");
    workspaces.rollback(&worktree, &point).expect("again is fine");
    assert_eq!(all(), before);
}

#[test]
fn a_rollback_works_after_the_agent_broke_its_git() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let worktree = workspaces.make("one", &base).expect("it is made");
    let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
    write(worktree.path(), "new.txt", "n\n");
    fs::remove_file(worktree.path().join(".git")).expect("it was there");
    symlink(fixture.path("repo/.git"), worktree.path().join(".git")).expect("a link");
    fs::remove_dir_all(worktree.admin()).expect("it was there");
    workspaces.rollback(&worktree, &point).expect("rolled back");
    assert!(!worktree.path().join("new.txt").exists());
    assert_eq!(fixture.git_in(worktree.path(), &["status", "--porcelain"]), "");
    assert!(fixture.path("repo/.git/HEAD").exists());
}

/// Two owners of one attempt: the one that came later has the worktree, the stale one is refused.
#[test]
fn a_stale_owner_is_fenced_off() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let stale = workspaces.make("one", &base).expect("it is made");
    workspaces.checkpoint(&stale).expect("a checkpoint");
    let owner = workspaces.open("one", &base).expect("it is found");
    write(owner.path(), "new.txt", "n\n");
    let second = workspaces.checkpoint(&owner).expect("a checkpoint");
    write(owner.path(), "new.txt", "m\n");
    assert!(matches!(workspaces.checkpoint(&stale), Err(GitError::RefMoved { .. })));
    workspaces.finish(owner.slug(), (&workspaces.ref_name("one", "result"), &second)).expect("it is finished");
    assert_eq!(workspaces.repository().refs("refs/spinney").expect("git works"), [("refs/spinney/run-1/one/result".to_owned(), second)]);
}

#[test]
fn a_link_in_the_place_of_a_worktree_leads_git_nowhere() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let worktree = workspaces.make("one", &base).expect("it is made");
    let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
    fixture.write("a.txt", "the user's own\n");
    fixture.write("untracked", "the user's own\n");
    let users = || contents(&fixture.path("repo"), &|name| name.starts_with(".git/"));
    let before = users();
    fs::rename(worktree.path(), worktree.path().with_extension("moved")).expect("it is moved");
    symlink(fixture.path("repo"), worktree.path()).expect("a link");
    let gone = |done: Result<(), GitError>| assert!(matches!(done, Err(GitError::NoFiles { .. })), "{done:?}");
    gone(workspaces.rollback(&worktree, &point));
    gone(workspaces.checkpoint(&worktree).map(drop));
    assert_eq!(users(), before);
}

/// Fails where a value stands in any object of the repository, whether something leads to it or not.
fn absent_from_all_objects(fixture: &Fixture, value: &str) {
    let objects = fixture.git(&["cat-file", "--batch-all-objects", "--batch", "--buffer"]);
    assert!(objects.contains("Checkpoint of") && !objects.contains(value), "{objects}");
}

fn secrets(value: &str) -> Secrets {
    Secrets::new(BTreeMap::from([("TOKEN".to_owned(), value.to_owned())])).expect("it can be hidden")
}

#[test]
fn what_holds_a_secret_is_in_no_object_and_comes_back_all_the_same() {
    const VALUE: &str = "s3cr3t/va+lue=97";
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces().without(&secrets(VALUE));
    let worktree = workspaces.make("one", &base).expect("it is made");
    let root = worktree.path();
    write(root, "conf/.env", "TOKEN=s3cr3t/va+lue=97\n");
    write(root, "a.txt", "one s3cr3t/va+lue=97\n");
    write(root, "s3cr3t/va+lue=97", "by its name\n");
    symlink("to/s3cr3t/va+lue=97", root.join("link")).expect("a link");
    write(root, "free.txt", "nothing\n");
    let all = || contents(root, &|name| name == ".git");
    let before = all();
    let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
    assert_eq!(fixture.git(&["ls-tree", "-r", "--name-only", &point.0]), ".gitignore\na.txt\nfree.txt\nsrc/lib.rs");

    fs::remove_dir_all(root.join("conf")).expect("it was there");
    fs::remove_file(root.join("link")).expect("it was there");
    write(root, "link/x", "a folder now");
    write(root, "a.txt", "other\n");
    write(root, "later.env", VALUE);
    workspaces.rollback(&worktree, &point).expect("rolled back");
    assert_eq!(all(), before);

    let refused = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default());
    let Err(CaptureError::Policy(violations)) = refused else { panic!("it was committed: {refused:?}") };
    let said: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert_eq!(violations.len(), 4, "{said:?}");
    assert!(said.iter().all(|line| line.contains("holds the value of the secret `TOKEN`") && !line.contains(VALUE)), "{said:?}");
    assert!(matches!(workspaces.remove(&worktree, Content::Captured(&base)), Err(GitError::NotCaptured { .. })));
    absent_from_all_objects(&fixture, VALUE);

    // Where a link that git ignores has taken a folder's place nothing is written through it.
    fs::remove_dir_all(root.join("conf")).expect("it was there");
    fs::write(fixture.path("repo/.git/info/exclude"), "conf\n").expect("a file");
    symlink(fixture.path("home"), root.join("conf")).expect("a link");
    assert!(matches!(workspaces.rollback(&worktree, &point), Err(GitError::LeadsOut { .. })));
    assert!(!fixture.path("home/.env").exists());
    workspaces.discard("one").expect("it is given up");
    assert!(contents(&fixture.path("cache"), &|_| false).values().all(|content| !String::from_utf8_lossy(content).contains(VALUE)));
}

#[test]
fn what_the_base_holds_already_is_its_authors() {
    const VALUE: &str = "s3cr3t/va+lue=97";
    let fixture = Fixture::new();
    fixture.write("known.txt", "it was s3cr3t/va+lue=97 before\n");
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces().without(&secrets(VALUE));
    let worktree = workspaces.make("one", &base).expect("it is made");
    write(worktree.path(), "known.txt", "it is s3cr3t/va+lue=97 still\n");
    let captured = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
    assert_eq!(captured.paths, ["known.txt"]);
    fixture.write("new.txt", "and s3cr3t/va+lue=97 here\n");
    let dirty = fixture.open().dirty(&base, &"run-1".into(), &secrets(VALUE));
    assert!(matches!(&dirty, Err(GitError::HoldsSecret { path, secret }) if path == "new.txt" && secret == "TOKEN"), "{dirty:?}");
}

#[test]
fn what_is_gone_of_a_commit_when_it_is_made_is_stored_again() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let worktree = workspaces.make("one", &base).expect("it is made");
    write(worktree.path(), "deep/new.txt", "new\n");
    let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
    let capture =
        || workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured").commit.expect("there is work");
    let work = capture();
    for what in ["", ":deep", ":deep/new.txt"] {
        for (commit, again) in [(&point, &(|| workspaces.checkpoint(&worktree).expect("a checkpoint")) as &dyn Fn() -> CommitId), (&work, &capture)] {
            let id = fixture.git(&["rev-parse", &format!("{commit}{what}")]);
            // As a `git gc` does that looked at the refs before the commit had one.
            fs::remove_file(fixture.path("repo/.git/objects").join(&id[..2]).join(id[2..].trim())).expect("it is an object of its own");
            assert_eq!(again(), *commit, "{what}");
            assert_eq!(fixture.git(&["cat-file", "-p", &format!("{commit}:deep/new.txt")]).trim(), "new", "{what}");
        }
    }
}
