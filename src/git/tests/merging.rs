//! Merges in the object database.
use crate::{
    event::CommitId,
    git::{CommitMeta, ConflictFile, Edit, Merged, Mode, Repository, fixture::Fixture},
};

fn file(path: &str, content: &str) -> Edit {
    (path.to_owned(), Some((Mode::File, content.as_bytes().to_vec())))
}

fn gone(path: &str) -> Edit {
    (path.to_owned(), None)
}

/// Commits edits on a commit.
fn commit(repository: &Repository, on: &CommitId, edits: &[Edit]) -> CommitId {
    let tree = repository.tree_with(&repository.tree_of(on).expect("a tree"), edits).expect("git works");
    repository.commit_tree(&tree, std::slice::from_ref(on), &CommitMeta::default()).expect("a commit")
}

fn conflicts(base: &[Edit], ours: &[Edit], theirs: &[Edit]) -> (Repository, Fixture, Vec<ConflictFile>, crate::git::TreeId) {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let base = commit(&repository, &repository.head().expect("a head").commit, base);
    let (ours, theirs) = (commit(&repository, &base, ours), commit(&repository, &base, theirs));
    match repository.merge_commits(Some(&base), &ours, &theirs).expect("git works") {
        Merged::Conflicted { tree, files, messages, .. } => {
            assert!(!messages.is_empty());
            (repository, fixture, files, tree)
        }
        Merged::Clean { .. } => panic!("it is clean"),
    }
}

fn kinds(files: &[ConflictFile]) -> Vec<(&str, &str, [bool; 3])> {
    files.iter().map(|file| (file.path.as_str(), file.kind.as_str(), [file.base.is_some(), file.ours.is_some(), file.theirs.is_some()])).collect()
}

#[test]
fn what_fits_is_joined() {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let base = repository.head().expect("a head").commit;
    let ours = commit(&repository, &base, &[file("a.txt", "ONE\ntwo\nthree\n"), file("b", "b")]);
    let theirs = commit(&repository, &base, &[file("a.txt", "one\ntwo\nTHREE\n"), ("run".to_owned(), Some((Mode::Executable, b"#!".to_vec())))]);
    for given in [Some(&base), None] {
        let Merged::Clean { tree } = repository.merge_commits(given, &ours, &theirs).expect("git works") else { panic!("it conflicts") };
        let joined = repository.commit_tree(&tree, &[], &CommitMeta::default()).expect("a commit");
        assert_eq!(repository.read_blob(&joined, "a.txt").expect("git works").as_deref(), Some(&b"ONE\ntwo\nTHREE\n"[..]));
        assert!(fixture.git(&["ls-tree", &joined.0, "run"]).starts_with("100755"));
    }
    assert!(repository.merge_commits(None, &ours, &"0".repeat(40).as_str().into()).is_err());
}

#[test]
fn conflicts_are_named_with_all_three_sides() {
    let (repository, _fixture, files, tree) = conflicts(&[], &[file("a.txt", "one\nOURS\nthree\n")], &[file("a.txt", "one\nTHEIRS\nthree\n")]);
    assert_eq!(kinds(&files), [("a.txt", "contents", [true, true, true])]);
    let blob = |side: &Option<crate::git::Blob>| repository.blob(&side.as_ref().expect("a side").id).expect("git works");
    assert_eq!((blob(&files[0].ours), blob(&files[0].theirs)), (b"one\nOURS\nthree\n".to_vec(), b"one\nTHEIRS\nthree\n".to_vec()));
    let joined = repository.commit_tree(&tree, &[], &CommitMeta::default()).expect("a commit");
    let text = String::from_utf8(repository.read_blob(&joined, "a.txt").expect("git works").expect("a file")).expect("text");
    assert!(text.contains("<<<<<<< ") && text.contains("||||||| ") && text.contains(">>>>>>> "), "{text}");

    let long = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let (_, _f, files, _) = conflicts(&[file("old", long)], &[gone("old"), file("new", long)], &[gone("old")]);
    assert_eq!(kinds(&files), [("new", "rename/delete", [true, true, false])]);

    let (_, _f, files, _) = conflicts(&[file("old", long)], &[gone("old")], &[file("old", "1\n2\n3\n4\n5\n6\n7\nX\n")]);
    assert_eq!(kinds(&files), [("old", "modify/delete", [true, false, true])]);

    let (_, _f, files, _) = conflicts(&[file("bin", "\0a")], &[file("bin", "\0b")], &[file("bin", "\0c")]);
    assert_eq!(kinds(&files), [("bin", "binary", [true, true, true])]);

    let (_, _f, files, _) = conflicts(&[], &[file("x", "file\n")], &[file("x/y", "folder\n")]);
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].kind.as_str(), files[0].path.starts_with("x~")), ("file/directory", true));

    let link = ("l".to_owned(), Some((Mode::Link, b"a.txt".to_vec())));
    let (_, _f, files, _) = conflicts(&[], &[link], &[file("l", "text\n")]);
    assert!(files.iter().any(|file| file.kind == "distinct modes"), "{files:?}");

    let (_, _f, files, _) = conflicts(&[], &[file("\"caf\\351\"", "a\n")], &[file("\"caf\\351\"", "b\n")]);
    assert_eq!(kinds(&files), [("\"caf\\351\"", "contents", [false, true, true])]);
}

#[test]
fn a_mode_is_joined_with_a_change() {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let base = repository.head().expect("a head").commit;
    let ours = commit(&repository, &base, &[("a.txt".to_owned(), Some((Mode::Executable, b"one\ntwo\nthree\n".to_vec())))]);
    let theirs = commit(&repository, &base, &[file("a.txt", "one\ntwo\n3\n")]);
    let Merged::Clean { tree } = repository.merge_commits(Some(&base), &ours, &theirs).expect("git works") else { panic!("it conflicts") };
    let changes = repository.changes(&repository.tree_of(&theirs).expect("a tree"), &tree).expect("git works");
    assert!(matches!(&changes[..], [change] if change.after.as_ref().is_some_and(|after| after.mode == Mode::Executable)), "{changes:?}");
}

#[test]
fn files_and_folders_replace_each_other_in_edits() {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let base = repository.head().expect("a head").commit;
    let edited = commit(&repository, &base, &[file("src", "a file\n"), gone("src/lib.rs"), file("a.txt/x", "x\n"), gone("nothing")]);
    assert_eq!(fixture.git(&["ls-tree", "-r", "--name-only", &edited.0]), ".gitignore\na.txt/x\nsrc");
}

/// As in a merge by hand: of the whole tree, and of what is there already.
#[test]
fn attributes_say_how_files_are_joined() {
    let fixture = Fixture::new();
    fixture.git(&["config", "merge.theirs.driver", "cp %B %A"]);
    fixture.git(&["config", "merge.renormalize", "true"]);
    fixture.write(".gitattributes", "CHANGES merge=union\n*.gen merge=theirs\n*.dos text eol=crlf\n");
    fixture.write("sub/.gitattributes", "LOG merge=union\n");
    for path in ["CHANGES", "sub/LOG", "x.gen", "x.dos"] {
        fixture.write(path, "one\ntwo\n");
    }
    let base = fixture.commit("attributes");
    let repository = fixture.open();
    let side = |word: &str| {
        let added = |path: &str| file(path, &format!("one\ntwo\n{word}\n"));
        commit(&repository, &base, &[added("CHANGES"), added("sub/LOG"), file("x.gen", &format!("{word}\n"))])
    };
    let (ours, theirs) = (side("ours"), commit(&repository, &side("theirs"), &[file("x.dos", "one\r\ntwo\r\nthree\r\n")]));
    let ours = commit(&repository, &ours, &[file("x.dos", "zero\none\ntwo\n")]);
    let joined = |ours: &CommitId| match repository.merge_commits(Some(&base), ours, &theirs).expect("git works") {
        Merged::Clean { tree } => repository.commit_tree(&tree, &[], &CommitMeta::default()).expect("a commit"),
        Merged::Conflicted { files, .. } => panic!("it conflicts: {files:?}"),
    };
    let joined_commit = joined(&ours);
    let text = |path: &str| String::from_utf8(repository.read_blob(&joined_commit, path).expect("git works").expect("a file")).expect("text");
    assert_eq!((text("CHANGES"), text("sub/LOG")), ("one\ntwo\nours\ntheirs\n".to_owned(), "one\ntwo\nours\ntheirs\n".to_owned()));
    assert_eq!((text("x.gen"), text("x.dos")), ("theirs\n".to_owned(), "zero\none\ntwo\nthree\n".to_owned()));
}

/// What an agent may have written starts nothing: neither a driver that came after the repository was opened, nor one of the tree.
#[test]
fn only_drivers_that_were_there_before_run() {
    let fixture = Fixture::new();
    let marker = fixture.path("ran");
    fixture.git(&["config", "merge.changed.driver", "true"]);
    fixture.git(&["config", "merge.tree.driver", "./driver.sh"]);
    fixture.write("driver.sh", &format!("#!/bin/sh\ntouch {}\n", marker.display()));
    fixture.git(&["add", "-A"]);
    fixture.git(&["update-index", "--chmod=+x", "driver.sh"]);
    fixture.write(".gitattributes", "a merge=late\nb merge=changed\nc merge=tree\n");
    for path in ["a", "b", "c"] {
        fixture.write(path, "base\n");
    }
    let base = fixture.commit("attributes");
    let repository = fixture.open();
    for name in ["late", "changed"] {
        fixture.git(&["config", &format!("merge.{name}.driver"), &format!("touch {}; true", marker.display())]);
    }
    let side = |word: &str| commit(&repository, &base, &["a", "b", "c"].map(|path| file(path, word)));
    let Merged::Conflicted { files, .. } = repository.merge_commits(Some(&base), &side("ours\n"), &side("theirs\n")).expect("git works") else {
        panic!("it is clean")
    };
    assert_eq!(kinds(&files).iter().map(|(path, ..)| *path).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(!marker.exists(), "a program of an agent's choice ran");
}
