//! Worktrees: made side by side, found again, removed with care; the user's repository stays as it was.
use crate::git::{
    Captured, CommitMeta, Content, GitError, Isolation, Repository, Scope, TreePolicy, Workspaces,
    fixture::{Fixture, contents, write},
};
use std::{fs, path::Path};

/// Uses all that changes a repository.
fn live(fixture: &Fixture, repository: &Repository) {
    let base = repository.head().expect("a head").commit;
    let workspaces = Workspaces::new(repository, &fixture.path("cache"), &"run-1".into()).expect("the folder is fit");
    let worktree = workspaces.make("build.auth", &base).expect("it is made");
    write(worktree.path(), "src/new.rs", "x\n");
    let checkpoint = workspaces.checkpoint(&worktree).expect("a checkpoint");
    write(worktree.path(), "src/more.rs", "x\n");
    let captured = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
    workspaces.rollback(&worktree, &checkpoint).expect("rolled back");
    repository.merge_commits(Some(&base), &base, &captured.commit.expect("something changed")).expect("git works");
    repository.tree_with(&repository.tree_of(&base).expect("a tree"), &[("x".to_owned(), None)]).expect("git works");
    workspaces.remove(&worktree, Content::Discard).expect("it is removed");
    workspaces.make("build.other", &base).expect("it is made");
}

/// Everything the user has: the checkout, and of the git folder all but objects and what is ours.
fn the_users(root: &Path, common: &Path) -> Vec<std::collections::BTreeMap<String, Vec<u8>>> {
    let ours = |name: &str| {
        name.starts_with("objects")
            || name.starts_with("spinney")
            || name.starts_with("worktrees/spinney-run-1-")
            || name == "worktrees"
            || name == "refs/spinney"
            || name.starts_with("refs/spinney/")
    };
    vec![contents(root, &|name| name == ".git"), contents(common, &ours)]
}

#[test]
fn the_users_repository_stays_as_it_was() {
    for state in ["dirty", "detached", "linked", "sparse"] {
        let fixture = Fixture::new();
        let repo = fixture.path("repo");
        let mut root = repo.clone();
        match state {
            "dirty" => {
                fixture.write("a.txt", "changed\n");
                fixture.write("untracked.txt", "u\n");
                fixture.write("staged.txt", "s\n");
                fixture.git(&["add", "staged.txt"]);
            }
            "detached" => drop(fixture.git(&["checkout", "-q", "--detach"])),
            "linked" => {
                root = fixture.path("linked");
                fixture.git(&["worktree", "add", "-q", "-b", "side", root.to_str().expect("text")]);
                write(&root, "a.txt", "changed\n");
            }
            _ => drop(fixture.git(&["sparse-checkout", "set", "--sparse-index", "src"])),
        }
        fixture.git(&["config", "core.logAllRefUpdates", "always"]);
        write(&repo, ".git/info/exclude", "*.mine\n");
        for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit", "pre-auto-gc"] {
            write(&repo, &format!(".git/hooks/{hook}"), "#!/bin/sh\ntouch \"$GIT_DIR/HOOK-RAN\"\n");
            fs::set_permissions(repo.join(format!(".git/hooks/{hook}")), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
        }
        let before = the_users(&root, &repo.join(".git"));
        let repository = Repository::open(&root, &fixture.environment()).expect("it is a repository");
        live(&fixture, &repository);
        assert!(the_users(&root, &repo.join(".git")) == before, "{state}");
        assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), if state == "linked" { 3 } else { 2 });
        assert!(fixture.path("cache/build.other/a.txt").exists(), "the user's sparse checkout is not the agents': {state}");
    }
}

#[test]
fn many_worktrees_are_made_at_once() {
    let fixture = Fixture::new();
    for number in 0..200 {
        fixture.write(&format!("many/{number}.txt"), "text\n");
    }
    let base = fixture.commit("many");
    let workspaces = fixture.workspaces();
    let start = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (workspaces, start, base, fixture) = (&workspaces, &start, &base, &fixture);
            scope.spawn(move || {
                start.wait();
                let worktree = workspaces.make(&format!("item-{number}"), base).expect("it is made");
                assert_eq!(fixture.git_in(worktree.path(), &["status", "--porcelain"]), "");
                assert_eq!(fixture.git_in(worktree.path(), &["rev-parse", "HEAD"]), base.0);
                if number % 2 == 0 {
                    workspaces.remove(&worktree, Content::Captured(base)).expect("it is removed");
                }
            });
        }
    });
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 9);
    assert_eq!(workspaces.slugs().expect("a list").len(), 8);
}

#[test]
fn a_worktree_is_found_again_with_what_was_done_in_it() {
    let fixture = Fixture::new();
    let (base, other) = (fixture.commit("a"), fixture.commit("b"));
    let workspaces = fixture.workspaces();
    let made = workspaces.make("one", &base).expect("it is made");
    write(made.path(), "work.txt", "w\n");
    assert!(matches!(workspaces.make("one", &base), Err(GitError::Occupied { .. })));
    // Its registration and its `.git` are lost.
    fs::remove_dir_all(made.admin()).expect("it was there");
    fs::remove_file(made.path().join(".git")).expect("it was there");
    let found = workspaces.open("one", &base).expect("it is found");
    assert_eq!(found.path(), made.path());
    assert_eq!(fixture.git_in(found.path(), &["rev-parse", "HEAD"]), base.0);
    assert!(found.path().join("work.txt").exists());
    // Made of something else: moved aside, not deleted.
    let remade = workspaces.open("one", &other).expect("it is made anew");
    assert!(!remade.path().join("work.txt").exists());
    assert!(contents(&fixture.path("cache/.engine"), &|_| false).keys().any(|name| name.ends_with("files/work.txt")));
    assert_eq!(workspaces.slugs().expect("a list"), ["one"]);
    // Its folder is lost.
    fs::remove_dir_all(remade.path()).expect("it was there");
    assert!(workspaces.open("one", &other).expect("it is made anew").path().join("a.txt").exists());
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 2);
}

#[test]
fn what_nothing_is_noted_of_is_moved_aside() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let spoil: [fn(&Path); 2] = [|note| fs::write(note, "").expect("a file"), |note| fs::remove_file(note).expect("it was there")];
    for (at, spoil) in spoil.into_iter().enumerate() {
        let made = workspaces.open("one", &base).expect("it is made");
        write(made.path(), &format!("work-{at}.txt"), "w\n");
        spoil(&fixture.path("cache/.engine/one/note.json"));
        let remade = if at == 0 { workspaces.fresh("one", &base) } else { workspaces.open("one", &base) }.expect("it is made anew");
        assert!(!remade.path().join(format!("work-{at}.txt")).exists());
        let aside = contents(&fixture.path("cache/.engine"), &|_| false);
        assert!(aside.keys().any(|name| name.ends_with(&format!("files/work-{at}.txt"))), "{at}");
    }
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 2);
}

#[test]
fn what_a_dead_maker_left_is_made_again() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let made = workspaces.make("one", &base).expect("it is made");
    let note = fixture.path("cache/.engine/one/note.json");
    let text = fs::read_to_string(&note).expect("a note").replace("\"ready\":true", "\"ready\":false");
    fs::write(&note, text).expect("a note");
    fs::remove_file(made.path().join("a.txt")).expect("it was there");
    assert!(workspaces.open("one", &base).expect("it is made anew").path().join("a.txt").exists());
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 2);
}

#[test]
fn nothing_uncaptured_is_removed() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    let worktree = workspaces.make("one", &base).expect("it is made");
    write(worktree.path(), "work.txt", "w\n");
    assert!(matches!(workspaces.remove(&worktree, Content::Captured(&base)), Err(GitError::NotCaptured { .. })));
    let commit =
        workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured").commit.expect("something changed");
    let error = workspaces.remove(&worktree, Content::Captured(&commit)).expect_err("no ref keeps it");
    assert!(error.to_string().contains("no ref keeps"), "{error}");
    workspaces.finish(worktree.slug(), (&workspaces.ref_name(worktree.slug(), "result"), &commit)).expect("it is finished");
    workspaces.remove(&worktree, Content::Captured(&commit)).expect("it is removed");
    assert!(!worktree.path().exists());
    assert_eq!(workspaces.slugs().expect("a list"), Vec::<String>::new());
    // Something of someone else's in its place is left alone.
    write(&fixture.path("cache"), "two/precious.txt", "p");
    assert!(matches!(workspaces.make("two", &base), Err(GitError::Occupied { .. })));
    assert!(matches!(workspaces.open("two", &base), Err(GitError::Occupied { .. })));
    assert!(fixture.path("cache/two/precious.txt").exists());
}

/// A process may die while it removes a worktree: what is left of it then is nobody's work, and is not asked for.
#[test]
fn the_rest_of_a_worktree_whose_removal_broke_off_is_removed() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    for slug in ["one", "two"] {
        let worktree = workspaces.make(slug, &base).expect("it is made");
        let away = fixture.path("away");
        fs::rename(worktree.path(), &away).expect("it was there");
        write(&fixture.path("cache"), slug, "what the removal breaks off at");
        assert!(matches!(workspaces.discard(slug), Err(GitError::Occupied { .. })));
        fs::remove_file(worktree.path()).expect("it was there");
        fs::rename(&away, worktree.path()).expect("it was there");
        fs::remove_file(worktree.path().join("a.txt")).expect("it was there");
    }
    assert!(workspaces.open("two", &base).expect("it is made anew").path().join("a.txt").exists());
    assert!(workspaces.clear().is_empty());
    assert_eq!(workspaces.slugs().expect("a list"), ["two"], "one was removed, two is in use");
    workspaces.fold();
    assert!(fixture.path("cache/two/a.txt").exists());
    workspaces.discard("two").expect("it is removed");
    workspaces.fold();
    assert!(!fixture.path("cache").exists());
}

#[test]
fn names_and_places_are_checked() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let workspaces = fixture.workspaces();
    for slug in ["", ".git", "..", "a/b", "a b", "A", "-a", "a.", "a..b", "a.lock", ".engine", "é", &"x".repeat(101)] {
        assert!(matches!(workspaces.make(slug, &base), Err(GitError::BadName { .. })), "{slug}");
    }
    for inside in ["repo/w", "repo/.git/w"] {
        assert!(matches!(Workspaces::new(&fixture.open(), &fixture.path(inside), &"r".into()), Err(GitError::InsideRepository { .. })));
    }
    assert!(workspaces.make("one", &"0".repeat(40).as_str().into()).is_err());
}

/// The lock is the operating system's: it ends with its holder, however that ends.
#[test]
fn a_lock_does_not_outlive_its_holder() {
    let fixture = Fixture::new();
    let base = fixture.commit("a");
    let lock = fixture.path("repo/.git/spinney/lock");
    let workspaces = fixture.workspaces();
    workspaces.make("one", &base).expect("it is made");
    let ready = fixture.path("ready");
    let script = format!("exec 9>'{}'; flock -x 9 && touch '{}' && exec sleep 600", lock.display(), ready.display());
    let mut holder = spawn(&script);
    while !ready.exists() {
        assert!(holder.try_wait().expect("it runs").is_none(), "`flock` is missing");
        std::thread::yield_now();
    }
    assert!(super::super::lock::Lock::attempt(&lock).expect("it opens").is_none(), "it is held");
    holder.kill().expect("it is killed");
    holder.wait().expect("it ended");
    workspaces.make("two", &base).expect("the lock is free");
}

#[expect(clippy::disallowed_methods, reason = "the test needs a holder that can be killed")]
fn spawn(script: &str) -> std::process::Child {
    std::process::Command::new("sh").args(["-c", script]).spawn().expect("a shell")
}

#[test]
fn a_worktree_of_a_bare_repository_is_a_place_to_start_from() {
    let fixture = Fixture::new();
    let bare = fixture.path("bare");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().expect("text")]);
    fixture.git_in(&bare, &["worktree", "add", "-q", "-b", "side", "../side"]);
    let repository = Repository::open(&fixture.path("side"), &fixture.environment()).expect("it is a repository");
    let head = repository.head().expect("a head");
    assert_eq!(head.branch.as_deref(), Some("refs/heads/side"));
    assert_eq!(repository.resolve("HEAD").expect("it is there"), head.commit);
    live(&fixture, &repository);
    assert_eq!(fixture.git_in(&fixture.path("side"), &["status", "--porcelain"]), "");
    assert_eq!(fixture.git_in(&fixture.path("cache/build.other"), &["status", "--porcelain"]), "");
}

/// A clone without its blobs: what a checkout needs is fetched, as the user's own git would.
#[test]
fn a_partial_clone_works() {
    let fixture = Fixture::new();
    fixture.git(&["config", "uploadpack.allowFilter", "true"]);
    fixture.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let (from, to) = (format!("file://{}", fixture.path("repo").display()), fixture.path("partial"));
    fixture.git(&["clone", "-q", "--no-checkout", "--filter=blob:none", &from, to.to_str().expect("text")]);
    let repository = Repository::open(&to, &fixture.environment()).expect("it is a repository");
    assert!(repository.objects().is_none());
    live(&fixture, &repository);
    assert!(fixture.path("cache/build.other/a.txt").exists());
}

#[test]
fn read_only_folders_are_removed_too() {
    let fixture = Fixture::new();
    write(&fixture.path("cache"), "top/cache/pkg/file", "x");
    std::os::unix::fs::symlink(fixture.path("home"), fixture.path("cache/top/link")).expect("a link");
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).expect("it is there").permissions()) & 0o777;
    let home = mode(&fixture.path("home"));
    for folder in ["top/cache/pkg", "top/cache"] {
        fs::set_permissions(fixture.path("cache").join(folder), std::os::unix::fs::PermissionsExt::from_mode(0o500)).expect("a mode");
    }
    crate::journal::open_folders(&fixture.path("cache/top")).expect("they open");
    assert_eq!(mode(&fixture.path("cache/top/cache/pkg")), 0o700);
    assert_eq!(mode(&fixture.path("home")), home, "links are not followed");
}

/// Whatever an agent does with git in a worktree of its own, the user's repository does not notice.
#[test]
fn git_in_a_private_worktree_works_and_touches_nobody() {
    for init in [&[][..], &["--object-format=sha256", "--ref-format=reftable"]] {
        let fixture = Fixture::bare_of_commits(init);
        fixture.write("a.txt", "one\n");
        fixture.write("x.up", "text\n");
        fixture.write(".gitattributes", "*.up filter=up\n");
        for (key, value) in [("filter.up.clean", "tr a-z A-Z"), ("filter.up.smudge", "tr A-Z a-z | sed 's/\"/\\\\/'")] {
            fixture.git(&["config", key, value]);
        }
        fixture.commit("base");
        fixture.write("stashed.txt", "the user's\n");
        fixture.git(&["add", "stashed.txt"]);
        fixture.git(&["stash", "-q"]);
        let base = crate::event::CommitId(fixture.git(&["rev-parse", "HEAD"]));
        let workspaces = fixture.workspaces().isolated(Isolation::Private);
        let worktree = workspaces.make("one", &base).expect("it is made");
        let root = worktree.path();
        let ours = |name: &str| {
            name.starts_with("objects") || name.starts_with("refs/spinney") || name.starts_with("reftable") || name == "spinney" || name.starts_with("spinney/")
        };
        let before = contents(&fixture.path("repo"), &|name| name.strip_prefix(".git/").is_some_and(ours));
        let refs = fixture.git(&["for-each-ref"]);
        let git = |args: &[&str]| fixture.git_in(root, args);
        assert_eq!(git(&["status", "--porcelain"]), "");
        assert_eq!(git(&["log", "--format=%s"]), "base");
        write(root, "b.txt", "b\n");
        git(&["checkout", "-q", "-B", "main"]);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "mine"]);
        write(root, "a.txt", "stashed\n");
        git(&["stash", "-q"]);
        git(&["stash", "pop", "-q"]);
        git(&["config", "core.fsmonitor", "touch /nowhere/at-all"]);
        git(&["-c", "core.fsmonitor=false", "gc", "-q", "--prune=now"]);
        let captured = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
        assert_eq!(captured.paths, ["a.txt", "b.txt"]);
        let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
        write(root, "c.txt", "c\n");
        fs::remove_dir_all(root.join(".git/objects")).expect("it was there");
        workspaces.rollback(&worktree, &point).expect("rolled back");
        assert_eq!(git(&["status", "--porcelain"]), " M a.txt\n?? b.txt");
        let again = workspaces.open("one", &base).expect("it is found");
        assert_eq!(again.path(), root);
        assert_eq!(
            fixture.git(&["for-each-ref"]).lines().filter(|line| !line.contains("refs/spinney/")).collect::<Vec<_>>(),
            refs.lines().filter(|line| !line.contains("refs/spinney/")).collect::<Vec<_>>()
        );
        assert!(contents(&fixture.path("repo"), &|name| name.strip_prefix(".git/").is_some_and(ours)) == before);
        fixture.git(&["stash", "pop", "-q"]);
        workspaces.remove(&again, Content::Discard).expect("it is removed");
        assert_eq!(workspaces.repository().refs("refs/spinney/run-1/one/base").expect("git works"), []);
        fixture.git(&["fsck", "--strict"]);
    }
}

#[test]
fn what_is_not_checked_out_is_no_deletion_and_what_is_written_there_counts() {
    let fixture = Fixture::new();
    for file in ["src/deep/b.rs", "docs/a.md", "docs/b.md", "other/c.txt"] {
        fixture.write(file, "as it was\n");
    }
    let base = fixture.commit("more");
    let workspaces = fixture.workspaces().only(Scope::compile(&["src".to_owned(), "*.txt".to_owned()]).expect("globs"));
    for (isolation, slug) in [(Isolation::Linked, "linked"), (Isolation::Private, "private")] {
        let workspaces = workspaces.clone().isolated(isolation);
        let worktree = workspaces.make(slug, &base).expect("it is made");
        let root = worktree.path();
        let there = || contents(root, &|name| name.starts_with(".git")).into_keys().filter(|name| !name.ends_with('/')).collect::<Vec<_>>();
        assert_eq!(there(), ["a.txt", "src/deep/b.rs", "src/lib.rs"]);
        assert_eq!(fixture.git_in(root, &["status", "--porcelain"]), "");
        let unchanged = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
        assert_eq!(unchanged, Captured::default());

        write(root, "src/lib.rs", "changed\n");
        write(root, "docs/a.md", "written where nothing was\n");
        fs::remove_file(root.join("a.txt")).expect("it was there");
        let point = workspaces.checkpoint(&worktree).expect("a checkpoint");
        let before = there();
        fs::remove_file(root.join("docs/a.md")).expect("it was there");
        let later = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
        assert_eq!(later.paths, ["a.txt", "docs/a.md", "src/lib.rs"], "what was written and removed again is a deletion");
        workspaces.rollback(&worktree, &point).expect("rolled back");
        assert_eq!(there(), before);

        // Found again by whoever knows nothing of it, and with an index that cannot be read.
        let worktree = fixture.workspaces().open(slug, &base).expect("it is there");
        fs::write(worktree.index(), "no index").expect("a file");
        let captured = workspaces.capture(&worktree, &base, &TreePolicy::default(), &CommitMeta::default()).expect("it is captured");
        assert_eq!(captured.paths, ["a.txt", "docs/a.md", "src/lib.rs"]);
    }
}
