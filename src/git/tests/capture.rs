//! What the engine commits of an agent's files, and what it refuses.
use crate::{
    clock::Timestamp,
    event::{CommitId, NodeId},
    git::{
        CaptureError, CommitMeta, Content, TreePolicy, Violation, Workspaces, Worktree,
        fixture::{Fixture, write},
    },
};
use std::{fs, os::unix::fs::symlink, path::Path};

struct Place {
    fixture: Fixture,
    workspaces: Workspaces,
    worktree: Worktree,
    base: CommitId,
}

impl Place {
    fn new() -> Place {
        Place::of(Fixture::new())
    }

    fn of(fixture: Fixture) -> Place {
        let base = fixture.commit("start");
        let workspaces = fixture.workspaces();
        let worktree = workspaces.make("one", &base).expect("it is made");
        Place { fixture, workspaces, worktree, base }
    }

    fn path(&self) -> &Path {
        self.worktree.path()
    }

    fn write(&self, file: &str, content: &str) {
        write(self.path(), file, content);
    }

    fn capture(&self) -> (CommitId, Vec<String>) {
        let captured = self.workspaces.capture(&self.worktree, &self.base, &TreePolicy::default(), &meta()).expect("it is captured");
        (captured.commit.expect("something changed"), captured.paths)
    }

    fn refused(&self, policy: &TreePolicy) -> Vec<Violation> {
        match self.workspaces.capture(&self.worktree, &self.base, policy, &meta()) {
            Err(CaptureError::Policy(violations)) => violations,
            other => panic!("it was not refused: {other:?}"),
        }
    }

    fn files_of(&self, commit: &CommitId) -> Vec<String> {
        self.fixture.git(&["ls-tree", "-r", "--name-only", &commit.0]).lines().map(str::to_owned).collect()
    }
}

fn meta() -> CommitMeta {
    CommitMeta::of_work(&"run-1".into(), &NodeId::item(&"build".into(), "auth"), "Add a login", Timestamp(1_800_000_000_000)).by(1, Some("coder"), Some("p/m"))
}

#[test]
fn work_becomes_one_commit_with_its_provenance() {
    let place = Place::new();
    place.write("src/new.rs", "new\n");
    place.write("a.txt", "changed\n");
    fs::remove_file(place.path().join("src/lib.rs")).expect("it was there");
    fs::set_permissions(place.path().join(".gitignore"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    place.write("target/out.o", "built");
    place.write("x.log", "ignored");
    let (commit, paths) = place.capture();
    assert_eq!(paths, [".gitignore", "a.txt", "src/lib.rs", "src/new.rs"]);
    assert_eq!(place.files_of(&commit), [".gitignore", "a.txt", "src/new.rs"]);
    let shown = place.fixture.git(&["show", "-s", "--format=%an|%cn <%ce>|%at %ct|%P|%s|%(trailers:only,unfold)", &commit.0]);
    assert_eq!(
        shown,
        format!(
            "Ada|Spinney <spinney@localhost>|1800000000 1800000000|{}|Add a login|Spinney-Run: run-1\nSpinney-Step: build\nSpinney-Item: auth\nSpinney-Attempt: 1\nSpinney-Agent: coder\nSpinney-Model: p/m",
            place.base
        )
    );
    assert_eq!(place.capture().0, commit, "the same work is the same commit");
    let again = place.workspaces.make("two", &place.base).expect("it is made");
    fs::remove_dir_all(again.path().join("src")).expect("it was there");
    write(again.path(), "src/new.rs", "new\n");
    write(again.path(), "a.txt", "changed\n");
    fs::set_permissions(again.path().join(".gitignore"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let other = place.workspaces.capture(&again, &place.base, &TreePolicy::default(), &meta()).expect("it is captured");
    assert_eq!(other.commit, Some(commit), "in another worktree too");
    place.fixture.git(&["fsck", "--strict"]);
}

#[test]
fn nothing_changed_is_no_commit() {
    let place = Place::new();
    fs::create_dir(place.path().join("empty")).expect("a folder");
    place.write("x.log", "ignored");
    fs::write(place.path().join("a.txt"), "one\ntwo\nthree\n").expect("the same content");
    let captured = place.workspaces.capture(&place.worktree, &place.base, &TreePolicy::default(), &meta()).expect("it is captured");
    assert_eq!((captured.commit, captured.paths), (None, vec![]));
}

#[test]
fn what_the_agent_did_with_git_does_not_count() {
    let place = Place::new();
    place.write("kept.txt", "kept\n");
    let git = |args: &[&str]| drop(place.fixture.try_git_in(place.path(), args));
    git(&["add", "kept.txt"]);
    git(&["commit", "-qm", "mine"]);
    git(&["rm", "-q", "--cached", "a.txt"]);
    git(&["update-index", "--assume-unchanged", "src/lib.rs"]);
    git(&["update-index", "--skip-worktree", "src/lib.rs"]);
    place.write("src/lib.rs", "hidden?\n");
    git(&["checkout", "-q", "--orphan", "elsewhere"]);
    fs::remove_file(place.path().join(".git")).expect("it was there");
    write(place.path(), ".git/config", "[core]\nfsmonitor = touch /nowhere\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["kept.txt", "src/lib.rs"]);
    assert_eq!(place.files_of(&commit), [".gitignore", "a.txt", "kept.txt", "src/lib.rs"]);
    assert_eq!(place.fixture.git(&["show", &format!("{commit}:src/lib.rs")]), "hidden?");
}

#[test]
fn a_broken_index_decides_nothing() {
    let place = Place::new();
    place.write("new.txt", "n\n");
    let (commit, _) = place.capture();
    fs::write(place.worktree.index(), "rubbish").expect("a file");
    assert_eq!(place.capture().0, commit);
    fs::remove_file(place.worktree.index()).expect("it was there");
    write(place.worktree.state(), "index.lock", "left by a dead process");
    assert_eq!(place.capture().0, commit);
}

#[test]
fn a_tracked_file_that_is_ignored_too_is_kept() {
    let fixture = Fixture::new();
    fixture.write("kept.log", "1\n");
    fixture.git(&["add", "-f", "kept.log"]);
    let place = Place::of(fixture);
    fs::remove_file(place.path().join("kept.log")).expect("it was there");
    assert_eq!(place.capture().1, ["kept.log"]);
    place.write("kept.log", "2\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["kept.log"]);
    assert_eq!(place.fixture.git(&["show", &format!("{commit}:kept.log")]), "2");
}

#[test]
fn files_and_folders_may_change_places() {
    let place = Place::new();
    fs::remove_file(place.path().join("a.txt")).expect("it was there");
    place.write("a.txt/inner", "now a folder\n");
    fs::remove_dir_all(place.path().join("src")).expect("it was there");
    place.write("src", "now a file\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["a.txt", "a.txt/inner", "src", "src/lib.rs"]);
    assert_eq!(place.files_of(&commit), [".gitignore", "a.txt/inner", "src"]);
}

#[test]
fn names_that_are_not_text_are_kept() {
    let place = Place::new();
    let name = std::ffi::OsStr::new("new\nline");
    fs::write(place.path().join(name), "n").expect("a file");
    let bytes: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"caf\xe9");
    fs::write(place.path().join(bytes), "c").expect("a file");
    fs::write(place.path().join("\"quoted\""), "q").expect("a file");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["\"\\\"quoted\\\"\"", "\"caf\\351\"", "new\nline"]);
    let repository = place.fixture.open();
    assert_eq!(repository.read_blob(&commit, "\"caf\\351\"").expect("git works").as_deref(), Some(&b"c"[..]));
    let edited = repository.tree_with(&repository.tree_of(&commit).expect("a tree"), &[("\"caf\\351\"".to_owned(), None)]).expect("git works");
    assert_eq!(repository.changes(&repository.tree_of(&commit).expect("a tree"), &edited).expect("git works").len(), 1);
}

#[test]
fn links_out_of_the_tree_are_refused() {
    let place = Place::new();
    for (link, target) in [("etc", "/etc/passwd"), ("up", "../x"), ("src/up", "../../x"), ("git", ".git/config"), (".gitattributes", "a.txt")] {
        symlink(target, place.path().join(link)).expect("a link");
    }
    symlink("../a.txt", place.path().join("src/fine")).expect("a link");
    let refused: Vec<String> = place.refused(&TreePolicy::default()).iter().map(ToString::to_string).collect();
    assert_eq!(refused.len(), 5, "{refused:?}");
    assert!(refused.iter().all(|line| line.contains("leaves the tree") && !line.contains("fine")), "{refused:?}");
}

/// A folder that has become a link out of the tree is one link, and nothing behind it is read.
#[test]
fn a_folder_that_became_a_link_is_not_followed() {
    let place = Place::new();
    write(&place.fixture.path("home"), "lib.rs", "secret\n");
    fs::remove_dir_all(place.path().join("src")).expect("it was there");
    symlink(place.fixture.path("home"), place.path().join("src")).expect("a link");
    let refused = place.refused(&TreePolicy::default());
    assert!(matches!(&refused[..], [Violation::LinkOut { path, .. }] if path == "src"), "{refused:?}");
    fs::remove_file(place.path().join("src")).expect("it was there");
    symlink("target", place.path().join("src")).expect("a link");
    place.write("target/lib.rs", "ignored\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["src", "src/lib.rs"]);
    assert_eq!(place.files_of(&commit), [".gitignore", "a.txt", "src"]);
}

#[test]
fn repositories_inside_are_refused_and_never_entered() {
    let place = Place::new();
    let nested = place.path().join("vendor/lib");
    fs::create_dir_all(&nested).expect("a folder");
    place.fixture.git_in(&nested, &["init", "-q"]);
    write(&nested, "work.txt", "hidden\n");
    place.fixture.git_in(&nested, &["add", "-A"]);
    place.fixture.git_in(&nested, &["commit", "-qm", "hidden"]);
    let marker = place.fixture.path("started");
    place.fixture.git_in(&nested, &["config", "core.fsmonitor", &format!("touch {}", marker.display())]);
    assert_eq!(place.refused(&TreePolicy::default()), [Violation::Repository("vendor/lib".to_owned())]);
    // In the place of a tracked file it is refused too, and a tracked folder stays what it was.
    fs::remove_dir_all(place.path().join("vendor")).expect("it was there");
    fs::remove_file(place.path().join("a.txt")).expect("it was there");
    fs::create_dir(place.path().join("a.txt")).expect("a folder");
    place.fixture.git_in(&place.path().join("a.txt"), &["init", "-q"]);
    place.fixture.git_in(&place.path().join("a.txt"), &["commit", "-q", "--allow-empty", "-m", "x"]);
    assert!(place.refused(&TreePolicy::default()).contains(&Violation::Repository("a.txt".to_owned())));
    fs::remove_dir_all(place.path().join("a.txt")).expect("it was there");
    place.fixture.git_in(&place.path().join("src"), &["init", "-q"]);
    place.write("src/lib.rs", "changed\n");
    place.write("src/new.rs", "new\n");
    assert_eq!(place.capture().1, ["a.txt", "src/lib.rs", "src/new.rs"]);
    assert!(!marker.exists());
}

/// A place whose base has a submodule `sub`, and the repository that it is of.
fn with_submodule() -> (Place, String) {
    let fixture = Fixture::new();
    let other = fixture.path("other").to_str().expect("text").to_owned();
    fixture.git(&["init", "-q", &other]);
    fixture.git_in(other.as_ref(), &["commit", "-q", "--allow-empty", "-m", "other"]);
    fixture.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &other, "sub"]);
    (Place::of(fixture), other)
}

#[test]
fn submodules_stay_as_they_are() {
    let (place, other) = with_submodule();
    place.write("new.txt", "n\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["new.txt"]);
    assert!(place.fixture.git(&["ls-tree", &commit.0, "sub"]).starts_with("160000 commit"));
    place.write("sub/hidden.txt", "work nobody would see\n");
    let refused = place.refused(&TreePolicy::default());
    assert_eq!(refused, [Violation::Submodule("sub".to_owned())]);
    assert!(refused[0].to_string().contains("is a submodule") && !refused[0].to_string().contains("`.git`"), "{}", refused[0]);
    fs::remove_dir_all(place.path().join("sub")).expect("it was there");
    place.fixture.git(&["clone", "-q", &other, place.path().join("sub").to_str().expect("text")]);
    assert_eq!(place.capture().1, ["new.txt"], "checked out at its own commit");
    let marker = place.fixture.path("started");
    place.fixture.git_in(&place.path().join("sub"), &["config", "core.fsmonitor", &format!("touch {}", marker.display())]);
    place.fixture.git_in(&place.path().join("sub"), &["-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "moved"]);
    assert_eq!(place.refused(&TreePolicy::default()), [Violation::Submodule("sub".to_owned())]);
    assert!(!marker.exists(), "git was run inside the submodule");
}

#[test]
fn a_submodule_is_removed_and_replaced_as_any_other_path() {
    let (place, _) = with_submodule();
    // The agent's own wish that its changes be passed over counts for nothing.
    place.write(".gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ../other\n\tignore = all\n");
    fs::remove_dir(place.path().join("sub")).expect("it was there");
    let (commit, paths) = place.capture();
    assert_eq!(paths, [".gitmodules", "sub"]);
    assert_eq!(place.fixture.git(&["ls-tree", &commit.0, "sub"]), "");
    assert!(place.workspaces.repository().diff(&place.base, &commit, false).expect("git works").contains("deleted file mode 160000"));
    let within = TreePolicy::within(&["src".to_owned(), ".gitmodules".to_owned()]).expect("globs");
    assert_eq!(place.refused(&within), [Violation::OutOfScope("sub".to_owned())]);
    place.write("sub", "a file now\n");
    let (commit, paths) = place.capture();
    assert_eq!(paths, [".gitmodules", "sub"]);
    assert_eq!(place.fixture.git(&["show", &format!("{commit}:sub")]), "a file now");
    assert!(place.workspaces.remove(&place.worktree, Content::Captured(&place.base)).is_err(), "what was not captured is seen");
}

/// Not every submodule is in `.gitmodules`.
#[test]
fn a_submodule_without_a_name_hides_no_files() {
    let fixture = Fixture::new();
    let base = fixture.commit("start");
    fs::create_dir(fixture.path("repo/lib")).expect("a folder");
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{base},lib")]);
    let place = Place::of(fixture);
    place.write("lib/hidden.txt", "work nobody would see\n");
    assert_eq!(place.refused(&TreePolicy::default()), [Violation::Submodule("lib".to_owned())]);
    fs::remove_dir_all(place.path().join("lib")).expect("it was there");
    assert_eq!(place.capture().1, ["lib"]);
}

#[test]
fn names_sizes_kinds_and_scope_are_judged_before_anything_is_stored() {
    let place = Place::new();
    place.write(".GIT/config", "x");
    place.write("sub/git~1", "x");
    place.write("big.bin", &"b".repeat(2000));
    rustix::fs::mknodat(rustix::fs::CWD, place.path().join("src/lib.rs2"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    fs::remove_file(place.path().join("src/lib.rs")).expect("it was there");
    rustix::fs::mknodat(rustix::fs::CWD, place.path().join("src/lib.rs"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    let objects = || place.fixture.git(&["count-objects"]);
    let before = objects();
    let refused = place.refused(&TreePolicy { largest_file: 1000, scope: None });
    assert!(refused.contains(&Violation::GitName(".GIT/config".to_owned())), "{refused:?}");
    assert!(refused.contains(&Violation::GitName("sub/git~1".to_owned())), "{refused:?}");
    assert!(refused.contains(&Violation::TooLarge { path: "big.bin".to_owned(), bytes: 2000 }), "{refused:?}");
    assert!(refused.contains(&Violation::Special("src/lib.rs".to_owned())), "{refused:?}");
    assert_eq!(objects(), before);
}

#[test]
fn a_scope_holds_for_every_kind_of_change() {
    let place = Place::new();
    place.write("src/new.rs", "n\n");
    place.write("b.txt", "b\n");
    fs::remove_file(place.path().join("a.txt")).expect("it was there");
    let policy = TreePolicy::within(&["src/**".to_owned()]).expect("a glob");
    assert_eq!(place.refused(&policy), [Violation::OutOfScope("a.txt".to_owned()), Violation::OutOfScope("b.txt".to_owned())]);
    let policy = TreePolicy::within(&["src/**".to_owned(), "?.txt".to_owned()]).expect("globs");
    assert!(place.workspaces.capture(&place.worktree, &place.base, &policy, &meta()).is_ok());
}

/// Line endings and filters are the user's, hooks nobody's.
#[test]
fn the_users_filters_and_line_endings_work() {
    let fixture = Fixture::new();
    fixture.git(&["config", "filter.up.clean", "tr a-z A-Z"]);
    fixture.git(&["config", "filter.up.smudge", "tr A-Z a-z"]);
    fixture.write(".gitattributes", "*.up filter=up\n*.crlf text eol=crlf\n");
    fixture.write("x.up", "text\n");
    fixture.write("x.crlf", "a\r\n");
    let place = Place::of(fixture);
    assert_eq!(fs::read_to_string(place.path().join("x.up")).expect("a file"), "text\n");
    assert_eq!(fs::read_to_string(place.path().join("x.crlf")).expect("a file"), "a\r\n");
    place.write("y.up", "more\n");
    place.write("y.crlf", "b\r\n");
    place.write("big.up", &"b".repeat(3000));
    let (commit, paths) = place.capture();
    assert_eq!(paths, ["big.up", "y.crlf", "y.up"]);
    assert_eq!(place.fixture.git(&["cat-file", "-p", &format!("{commit}:y.up")]), "MORE");
    assert_eq!(place.fixture.open().read_blob(&commit, "y.crlf").expect("git works").as_deref(), Some(&b"b\n"[..]));
    let policy = TreePolicy { largest_file: 1000, scope: None };
    assert_eq!(place.refused(&policy), [Violation::TooLarge { path: "big.up".to_owned(), bytes: 3000 }], "the filter left it large");
}

/// A change that keeps a file's size and date is seen.
#[test]
fn a_change_that_hides_its_traces_is_seen() {
    let place = Place::new();
    let file = place.path().join("a.txt");
    let before = fs::metadata(&file).expect("it is there").modified().expect("a date");
    place.write("a.txt", "ONE\ntwo\nthree\n");
    fs::File::options().write(true).open(&file).expect("it opens").set_modified(before).expect("a date");
    assert_eq!(place.capture().1, ["a.txt"]);
}
