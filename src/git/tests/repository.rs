//! Finding repositories and reading them.
use crate::git::{CommitMeta, GitError, Head, Repository, TreePolicy, fixture::Fixture};
use std::fs;

#[test]
fn a_repository_is_found_from_anywhere_in_a_checkout() {
    let fixture = Fixture::new();
    let base = fixture.git(&["rev-parse", "HEAD"]);
    let linked = fixture.path("linked");
    fixture.git(&["worktree", "add", "-q", "--detach", linked.to_str().expect("text")]);
    fs::create_dir_all(linked.join("deep/er")).expect("a folder");
    let main = fixture.open();
    let inside = Repository::open(&fixture.path("repo/src"), &fixture.environment()).expect("it is a repository");
    let other = Repository::open(&linked.join("deep/er"), &fixture.environment()).expect("it is a repository");
    assert_eq!(inside.root(), fixture.path("repo"));
    assert_eq!(other.root(), linked);
    assert_eq!(other.common_dir(), fixture.path("repo/.git"));
    assert_eq!([&main.id(), &inside.id()], [&other.id(), &other.id()]);
    assert_eq!(main.head().expect("a head"), Head { commit: base.as_str().into(), branch: Some("refs/heads/main".to_owned()) });
    assert_eq!(other.head().expect("a head"), Head { commit: base.as_str().into(), branch: None });
}

#[test]
fn what_cannot_be_used_says_why() {
    let fixture = Fixture::bare_of_commits(&[]);
    let open = |name: &str| Repository::open(&fixture.path(name), &fixture.environment()).expect_err("it cannot be used");
    assert!(matches!(fixture.open().head(), Err(GitError::Unborn { .. })));
    assert!(open("home").to_string().contains("not a git repository"));
    assert!(matches!(open("nowhere"), GitError::NotFound { .. }));
    assert!(open("repo/.git").to_string().contains("inside a `.git` folder"));
    fixture.git(&["init", "-q", "--bare", "../bare"]);
    assert!(matches!(open("bare"), GitError::Bare { .. }));
    let mut environment = fixture.environment();
    environment.insert("PATH".to_owned(), fixture.path("home").display().to_string());
    assert!(matches!(Repository::open(&fixture.path("repo"), &environment), Err(GitError::Program(_))));
}

#[test]
fn revisions_files_and_differences_are_read() {
    let fixture = Fixture::new();
    let a = fixture.commit("a");
    fixture.write("a.txt", "one\n2\nthree\n");
    fixture.write("new file", "x");
    let b = fixture.commit("b");
    let repository = fixture.open();
    assert_eq!(repository.resolve("main~1").expect("it is there"), a);
    for rev in ["nothing", "--all", "HEAD:a.txt", ""] {
        assert!(matches!(repository.resolve(rev), Err(GitError::NoSuchRevision { .. })), "{rev}");
    }
    assert_eq!(repository.read_blob(&a, "a.txt").expect("git works").as_deref(), Some(&b"one\ntwo\nthree\n"[..]));
    assert_eq!(repository.read_blob(&a, "new file").expect("git works"), None);
    assert_eq!(repository.read_blob(&a, "src").expect("git works"), None, "a folder is no file");
    assert_eq!(repository.changed_paths(&a, &b).expect("git works"), ["a.txt", "new file"]);
    let patch = repository.diff(&a, &b, false).expect("git works");
    assert!(patch.contains("-two\n+2\n") && !patch.contains('\u{1b}'), "{patch}");
    assert!(repository.diff(&a, &b, true).expect("git works").contains('\u{1b}'));
    assert!(!fixture.path("repo/.git/stolen").exists());
    assert!(repository.is_ancestor(&a, &b).expect("git works") && !repository.is_ancestor(&b, &a).expect("git works"));
}

/// What libgit2 cannot open is done by git alone, with the same results.
#[test]
fn repositories_that_libgit2_does_not_know_work_too() {
    for init in [&["--object-format=sha256"][..], &["--ref-format=reftable"], &["--object-format=sha256", "--ref-format=reftable"]] {
        let fixture = Fixture::bare_of_commits(init);
        fixture.write("a.txt", "a\n");
        let base = fixture.commit("base");
        let repository = fixture.open();
        assert!(repository.objects().is_none(), "{init:?}");
        assert_eq!(repository.head().expect("a head").commit, base);
        assert_eq!(repository.read_blob(&base, "a.txt").expect("git works").as_deref(), Some(&b"a\n"[..]));
        let workspaces = fixture.workspaces();
        let worktree = workspaces.make("one", &base).expect("it is made");
        fs::write(worktree.path().join("b.txt"), "b\n").expect("a file");
        assert_eq!(fixture.git_in(worktree.path(), &["status", "--porcelain"]), "?? b.txt");
        let captured = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
        assert_eq!(captured.paths, ["b.txt"]);
        let commit = captured.commit.expect("something changed");
        assert_eq!(fixture.git(&["show", &format!("{commit}:b.txt")]), "b");
        let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
        fs::remove_dir_all(worktree.admin()).expect("it was there");
        fs::remove_file(worktree.path().join(".git")).expect("it was there");
        fs::remove_file(worktree.path().join("a.txt")).expect("it was there");
        workspaces.rollback(&worktree, &point).expect("rolled back");
        assert!(worktree.path().join("a.txt").exists());
        workspaces.finish(worktree.slug(), (&workspaces.ref_name(worktree.slug(), "result"), &commit)).expect("it is finished");
        workspaces.remove(&worktree, crate::git::Content::Captured(&commit)).expect("it is removed");
        fixture.git(&["fsck", "--strict"]);
    }
}

#[test]
fn the_callers_git_variables_do_not_get_through() {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let commit = repository
        .commit_tree(&repository.tree_of(&repository.head().expect("a head").commit).expect("a tree"), &[], &CommitMeta::default())
        .expect("a commit");
    assert_eq!(fixture.git(&["show", "-s", "--format=%an %ae %cn", &commit.0]), "Ada ada@example.org Spinney");
}

#[test]
fn trees_are_listed_and_compared_as_git_does() {
    use std::os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _};
    let fixture = Fixture::new();
    let root = fixture.path("repo");
    for name in ["was-file", "was-folder/x", "a/b/c", "a-b", "a.b", "same/deep/one", "turned", "ran", "linked"] {
        fixture.write(name, name);
    }
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "1").expect("a file");
    let before = fixture.commit("before");
    fixture.git(&["rm", "-qr", "was-file", "was-folder", "linked"]);
    fixture.write("was-file/inside/deep", "now");
    fixture.write("was-folder", "now");
    fixture.write("a/b/c", "other");
    fixture.write("a/b/d", "new");
    fixture.write("turned", "another");
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "2").expect("a file");
    fs::set_permissions(root.join("ran"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::os::unix::fs::symlink("a-b", root.join("linked")).expect("a link");
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{before},module")]);
    fixture.git(&["add", "-A", "--", ".", ":!module"]);
    fixture.git(&["commit", "-q", "-m", "after"]);
    let repository = fixture.open();
    let tree = |rev: &str| repository.resolve(rev).and_then(|commit| repository.tree_of(&commit)).expect("a tree");
    let (old, new, first) = (tree("HEAD~1"), tree("HEAD"), tree("HEAD~2"));
    for (a, b) in [(&old, &new), (&new, &old), (&first, &new), (&first, &old)] {
        let mut by_git = repository.changes_by_git(a, b).expect("git works");
        by_git.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(by_git.len() > 5, "{by_git:?}");
        assert_eq!(repository.changes(a, b).expect("it is read"), by_git);
        assert_eq!(repository.entries(b).expect("it is read"), repository.entries_by_git(b).expect("git works"));
    }
    let modes: std::collections::BTreeSet<_> = repository.entries(&new).expect("it is read").into_iter().map(|(_, blob)| format!("{:?}", blob.mode)).collect();
    assert_eq!(modes.into_iter().collect::<Vec<_>>(), ["Executable", "File", "Gitlink", "Link"]);
}
