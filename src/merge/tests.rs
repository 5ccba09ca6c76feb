//! Merges on real repositories, with resolvers and checks that are scripted.
use super::*;
use crate::git::{Edit, Mode, fixture::Fixture};
use std::sync::{Arc, Mutex};

/// A run's repository with a file of ten lines.
struct Place {
    fixture: Fixture,
    repository: Repository,
    base: CommitId,
}

impl Place {
    fn new() -> Place {
        let fixture = Fixture::new();
        fixture.write("list", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
        let base = fixture.commit("base");
        Place { repository: fixture.open(), fixture, base }
    }

    fn commit(&self, on: &CommitId, edits: &[Edit]) -> CommitId {
        let tree = self.repository.tree_with(&self.repository.tree_of(on).expect("a tree"), edits).expect("git works");
        let meta = crate::git::CommitMeta { title: format!("work on {}", edits.len()), ..Default::default() };
        self.repository.commit_tree(&tree, std::slice::from_ref(on), &meta).expect("a commit")
    }

    /// Makes a source whose work is these edits on the base.
    fn source(&self, key: &str, edits: &[Edit]) -> Source {
        self.source_on(key, &self.base, edits)
    }

    fn source_on(&self, key: &str, base: &CommitId, edits: &[Edit]) -> Source {
        Source { node: node(key), title: format!("Do {key}"), commit: self.commit(base, edits), base: base.clone() }
    }

    fn text(&self, commit: &CommitId, path: &str) -> String {
        String::from_utf8(self.repository.read_blob(commit, path).expect("git works").expect("a file")).expect("text")
    }

    fn refs(&self) -> Vec<(String, CommitId)> {
        self.repository.refs("refs/spinney").expect("git works")
    }
}

fn node(key: &str) -> NodeId {
    NodeId::item(&"build".into(), key)
}

fn file(path: &str, content: &str) -> Edit {
    (path.to_owned(), Some((Mode::File, content.as_bytes().to_vec())))
}

fn line(number: usize, text: &str) -> Edit {
    let lines: String = (1..=10).map(|n| if n == number { format!("{text}\n") } else { format!("{n}\n") }).collect();
    file("list", &lines)
}

/// Keeps what it is told, and refuses after a number of records.
#[derive(Default)]
struct Journal {
    records: Mutex<Vec<MergeProgress>>,
    refuses_after: Option<usize>,
}

impl Journal {
    fn records(&self) -> Vec<MergeProgress> {
        self.records.lock().expect("unpoisoned").clone()
    }
}

#[async_trait]
impl Progress for Journal {
    async fn record(&self, progress: MergeProgress) -> Result<(), Failure> {
        let mut records = self.records.lock().expect("unpoisoned");
        if self.refuses_after.is_some_and(|most| records.len() >= most) {
            return Err(Failure::new(crate::event::FailureKind::Cancelled, "killed"));
        }
        records.push(progress);
        Ok(())
    }
}

/// Answers each try with the next of its edits; `None` gives up.
struct Script {
    place: Repository,
    answers: Vec<Option<(Vec<Edit>, Vec<String>)>>,
    asked: Mutex<Vec<Conflict>>,
}

impl Script {
    fn new(place: &Place, answers: Vec<Option<(Vec<Edit>, Vec<String>)>>) -> Script {
        Script { place: place.repository.clone(), answers, asked: Mutex::default() }
    }
}

#[async_trait]
impl Resolver for Script {
    async fn resolve(&self, conflict: &Conflict) -> Resolution {
        let mut asked = self.asked.lock().expect("unpoisoned");
        let answer = self.answers.get(asked.len()).cloned().flatten();
        asked.push(conflict.clone());
        let Some((edits, beyond)) = answer else { return Resolution::GaveUp { reason: "too hard".to_owned() } };
        let tree = self.place.tree_with(&self.place.tree_of(&conflict.commit).expect("a tree"), &edits).expect("git works");
        Resolution::Settled { tree, by: "resolver".to_owned(), beyond }
    }
}

/// Says in turn whether a commit passes.
struct Checks(Mutex<Vec<bool>>);

impl Checks {
    fn new(verdicts: &[bool]) -> Checks {
        Checks(Mutex::new(verdicts.iter().rev().copied().collect()))
    }
}

#[async_trait]
impl Verifier for Checks {
    async fn verify(&self, _commit: &CommitId) -> Result<Verified, Failure> {
        let passed = self.0.lock().expect("unpoisoned").pop().expect("checks ran more often than expected");
        Ok(Verified { passed, tail: if passed { String::new() } else { "red".to_owned() } })
    }
}

/// A merge with everything at its simplest.
struct Job {
    run: RunId,
    node: NodeId,
    journal: Arc<Journal>,
    options: Options,
    done: Vec<MergeProgress>,
}

impl Job {
    fn new() -> Job {
        let options =
            Options { mode: MergeMode::Batch, order: vec![MergeOrder::Needs], attempts: 2, then: ConflictThen::Eject, on_red: RedThen::Fail, flaky_retries: 0 };
        Job { run: "run-1".into(), node: NodeId::step(&"land".into()), journal: Arc::default(), options, done: Vec::new() }
    }

    fn integrate(&self, place: &Place, sources: &[Source], resolver: Option<&dyn Resolver>, verifier: Option<&dyn Verifier>) -> Result<Report, MergeError> {
        let job = Integration {
            repository: &place.repository,
            run: &self.run,
            node: &self.node,
            onto: &place.base,
            sources,
            at: Timestamp(1_800_000_000_000),
            options: self.options.clone(),
            resolver,
            verifier,
            progress: &*self.journal,
            done: &self.done,
        };
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(integrate(&job))
    }
}

#[test]
fn sources_become_a_chain_of_one_commit_each() {
    let place = Place::new();
    let sources = [place.source("a", &[line(1, "one")]), place.source("b", &[line(10, "ten"), file("new", "n\n")]), place.source("c", &[line(5, "five")])];
    let job = Job::new();
    let report = job.integrate(&place, &sources, None, Some(&Checks::new(&[true]))).expect("it lands");
    let commit = report.commit.clone().expect("a commit");
    assert_eq!(report.landed, ["a", "b", "c"].map(node));
    assert!(report.verified && report.ejected.is_empty() && report.conflicts.is_empty());
    assert_eq!(place.text(&commit, "list"), "one\n2\n3\n4\nfive\n6\n7\n8\n9\nten\n");
    let log =
        place.fixture.git(&["log", "--format=%s|%P|%an|%cn|%ct|%(trailers:key=Spinney-Source,valueonly,separator=%x2C)", &format!("{}..{commit}", place.base)]);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].starts_with("Do c|") && lines[0].ends_with("|Ada|Spinney|1800000000|build/c"), "{log}");
    assert!(lines[2].contains(&format!("|{}|", place.base)), "{log}");
    assert_eq!(place.refs(), [("refs/spinney/run-1/land/joined".to_owned(), commit.clone())]);
    assert!(matches!(
        &job.journal.records()[..],
        [MergeProgress::Joined { .. }, MergeProgress::Joined { .. }, MergeProgress::Joined { .. }, MergeProgress::Verified { passed: true, .. }]
    ));
    assert_eq!(Job::new().integrate(&place, &sources, None, None).expect("it lands").commit, Some(commit), "the same work, the same commit");
}

#[test]
fn work_on_top_of_other_work_adds_only_its_own() {
    let place = Place::new();
    let a = place.source("a", &[line(1, "one")]);
    let b = place.source_on("b", &a.commit, &[file("b", "b\n")]);
    let nothing = Source { commit: place.base.clone(), ..place.source("nothing", &[]) };
    let same = place.source("same", &[line(1, "one")]);
    let report = Job::new().integrate(&place, &[a.clone(), b.clone(), nothing, same], None, None).expect("it lands");
    assert_eq!(report.landed, ["a", "b", "nothing", "same"].map(node));
    let commit = report.commit.expect("a commit");
    assert_eq!(place.fixture.git(&["rev-list", "--count", &format!("{}..{commit}", place.base)]), "2", "what changes nothing makes no commit");
    let none = Job::new().integrate(&place, &[], None, Some(&Checks::new(&[]))).expect("nothing to do");
    assert_eq!(none, Report::default());
}

#[test]
fn a_conflict_is_settled_by_the_resolver() {
    let place = Place::new();
    let sources = [place.source("a", &[line(5, "A")]), place.source("b", &[line(5, "B"), file("kept", "k\n")])];
    let resolver = Script::new(&place, vec![Some((vec![line(5, "A and B")], vec![]))]);
    let job = Job::new();
    let report = job.integrate(&place, &sources, Some(&resolver), None).expect("it lands");
    let commit = report.commit.expect("a commit");
    assert_eq!((place.text(&commit, "list").lines().nth(4), place.text(&commit, "kept").as_str()), (Some("A and B"), "k\n"));
    assert_eq!(report.conflicts, [(node("b"), vec!["list".to_owned()], "resolver".to_owned())]);
    let asked = resolver.asked.lock().expect("unpoisoned");
    assert_eq!((asked.len(), asked[0].paths.as_slice(), asked[0].attempt), (1, &["list".to_owned()][..], 1));
    let text = place.text(&asked[0].commit, "list");
    assert!(text.contains("<<<<<<<") && text.contains("|||||||") && place.text(&asked[0].commit, "kept") == "k\n", "{text}");
    assert!(
        matches!(&job.journal.records()[1..], [MergeProgress::Conflicted { paths, .. }, MergeProgress::Joined { settled, .. }] if paths == &["list"] && settled.len() == 1)
    );
}

#[test]
fn a_bad_resolution_is_not_accepted() {
    let place = Place::new();
    let sources = [place.source("a", &[line(5, "A")]), place.source("b", &[line(5, "B")])];
    let half = "1\n<<<<<<< x\nA\n||||||| y\n5\n=======\nB\n>>>>>>> z\n";
    for (edits, beyond, why) in [
        (vec![], vec![], Some("conflict markers are left in `list`")),
        (vec![file("list", half)], vec![], Some("conflict markers are left in `list`")),
        (vec![line(5, "AB"), file("a.txt", "sneaked in\n")], vec![], Some("paths outside the conflict were changed: `a.txt`")),
        (vec![line(5, "AB"), ("src/lib.rs".to_owned(), None)], vec![], Some("paths outside the conflict were changed: `src/lib.rs`")),
        (vec![line(5, "AB"), file("a.txt", half)], vec!["a.txt"], Some("conflict markers are left in `a.txt`")),
        (vec![line(5, "AB"), file("a.txt", "needed\n")], vec!["a.txt"], None),
        (vec![("list".to_owned(), None)], vec![], None),
    ] {
        let beyond: Vec<String> = beyond.into_iter().map(str::to_owned).collect();
        let resolver = Script::new(&place, vec![Some((edits, beyond)), None]);
        let report = Job::new().integrate(&place, &sources, Some(&resolver), None).expect("it goes on");
        let asked = resolver.asked.lock().expect("unpoisoned");
        match why {
            Some(why) => {
                assert_eq!((asked.len(), asked[1].attempt, asked[1].rejected.as_deref()), (2, 2, Some(why)));
                assert_eq!(report.landed, [node("a")]);
                assert_eq!(report.ejected, [(node("b"), "it conflicts in list: too hard".to_owned())]);
            }
            None => assert_eq!((asked.len(), report.landed.len()), (1, 2)),
        }
    }
}

/// Leaves a conflict alone the first time.
struct Slow(Script);

#[async_trait]
impl Resolver for Slow {
    async fn resolve(&self, conflict: &Conflict) -> Resolution {
        if conflict.attempt == 1 { Resolution::Undone { reason: "left it".to_owned() } } else { self.0.resolve(conflict).await }
    }
}

#[test]
fn whoever_leaves_a_conflict_alone_is_asked_again() {
    let place = Place::new();
    let sources = [place.source("a", &[line(5, "A")]), place.source("b", &[line(5, "B")])];
    let resolver = Slow(Script::new(&place, vec![Some((vec![line(5, "AB")], vec![]))]));
    let report = Job::new().integrate(&place, &sources, Some(&resolver), None).expect("it goes on");
    let asked = resolver.0.asked.lock().expect("unpoisoned");
    assert_eq!((report.landed.len(), asked.len(), asked[0].rejected.as_deref()), (2, 1, Some("left it")));
}

#[test]
fn a_file_about_conflicts_may_hold_markers() {
    let place = Place::new();
    let sources = [place.source("a", &[file("doc", "<<<<<<< HEAD\nis ours\nA\n")]), place.source("b", &[file("doc", "<<<<<<< HEAD\nis ours\nB\n")])];
    let resolver = Script::new(&place, vec![Some((vec![file("doc", "<<<<<<< HEAD\nis ours\nA and B\n")], vec![]))]);
    assert_eq!(Job::new().integrate(&place, &sources, Some(&resolver), None).expect("it lands").landed.len(), 2);
}

#[test]
fn a_file_in_the_place_of_a_folder_must_get_a_name() {
    let place = Place::new();
    let sources = [place.source("a", &[file("x/inner", "folder\n")]), place.source("b", &[file("x", "file\n")])];
    let joined = |answers| {
        let resolver = Script::new(&place, answers);
        let report = Job::new().integrate(&place, &sources, Some(&resolver), None).expect("it goes on");
        let rejected = resolver.asked.lock().expect("unpoisoned").iter().filter_map(|conflict| conflict.rejected.clone()).collect::<Vec<_>>();
        let paths = resolver.asked.lock().expect("unpoisoned")[0].files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        (report, rejected, paths)
    };
    let (report, rejected, paths) = joined(vec![Some((vec![], vec![])), None]);
    assert!(rejected[0].contains("stopgap name"), "{rejected:?}");
    assert_eq!(report.landed.len(), 1);
    let stopgap = (paths[0].clone(), None);
    let (report, rejected, _) = joined(vec![Some((vec![stopgap, file("x", "file\n")], vec![]))]);
    assert_eq!((report.landed.len(), rejected), (2, vec![]));
    assert_eq!(place.text(&report.commit.expect("a commit"), "x"), "file\n");
}

#[test]
fn what_nobody_settles_is_put_aside_with_what_builds_on_it() {
    let place = Place::new();
    let b = place.source("b", &[line(5, "B")]);
    let on_b = place.source_on("on-b", &b.commit, &[file("on-b", "x\n")]);
    let sources = [place.source("a", &[line(5, "A")]), b.clone(), on_b.clone(), place.source("c", &[file("c", "c\n")])];
    let report = Job::new().integrate(&place, &sources, None, Some(&Checks::new(&[true]))).expect("it lands");
    assert_eq!(report.landed, ["a", "c"].map(node));
    assert_eq!(report.ejected[0], (node("b"), "it conflicts in list: nobody was asked to settle it".to_owned()));
    assert_eq!(report.ejected[1], (node("on-b"), "it builds on build/b, which was put aside".to_owned()));
    let kept: Vec<(String, CommitId)> = place.refs().into_iter().filter(|(name, _)| name.ends_with("/ejected")).collect();
    assert_eq!(kept, [("refs/spinney/run-1/build.b/ejected".to_owned(), b.commit), ("refs/spinney/run-1/build.on-b/ejected".to_owned(), on_b.commit)]);
    let mut strict = Job::new();
    strict.options.then = ConflictThen::Fail;
    let error = strict.integrate(&place, &sources, None, None).expect_err("it fails");
    assert_eq!(error.to_string(), "join build/b: it conflicts in list: nobody was asked to settle it");
}

#[test]
fn a_red_tree_does_not_land() {
    let place = Place::new();
    let sources = [place.source("a", &[line(1, "A")])];
    let mut job = Job::new();
    job.options.flaky_retries = 1;
    let MergeError::Red { tail, report, .. } = job.integrate(&place, &sources, None, Some(&Checks::new(&[false, false]))).expect_err("it is red") else {
        panic!("another error")
    };
    assert_eq!((tail.as_str(), report.verified, report.landed.len()), ("red", false, 1));
    assert!(job.integrate(&place, &sources, None, Some(&Checks::new(&[false, true]))).expect("flaky").verified);
    // A red verdict that was told holds after a crash.
    job.done = job.journal.records()[..2].to_vec();
    assert!(matches!(job.integrate(&place, &sources, None, Some(&Checks::new(&[]))), Err(MergeError::Red { .. })));
}

/// Killed after every record, the merge ends the same, and nothing is joined, asked or checked twice.
#[test]
fn a_merge_goes_on_from_every_record() {
    let place = Place::new();
    let sources =
        [place.source("a", &[line(5, "A")]), place.source("b", &[line(5, "B")]), place.source("c", &[line(5, "C")]), place.source("d", &[file("d", "d\n")])];
    let resolver = || Script::new(&place, vec![Some((vec![line(5, "A and B")], vec![])), None]);
    let whole = Job::new();
    let expected = whole.integrate(&place, &sources, Some(&resolver()), Some(&Checks::new(&[true]))).expect("it lands");
    let records = whole.journal.records();
    assert_eq!(records.len(), 7, "{records:?}");
    for killed_after in 0..=records.len() {
        let mut job = Job { journal: Arc::new(Journal { refuses_after: Some(killed_after), ..Journal::default() }), ..Job::new() };
        let first = job.integrate(&place, &sources, Some(&resolver()), Some(&Checks::new(&[true])));
        assert_eq!(first.is_err(), killed_after < records.len());
        job.done = job.journal.records();
        job.journal = Arc::default();
        let left: Vec<_> = resolver().answers.into_iter().skip(job.done.iter().filter(|done| ends_conflict(done)).count()).collect();
        let checks = Checks::new(if killed_after < records.len() { &[true] } else { &[] });
        let report = job.integrate(&place, &sources, Some(&Script::new(&place, left)), Some(&checks)).expect("it lands");
        assert_eq!(report, expected, "killed after {killed_after}");
        assert_eq!([job.done.clone(), job.journal.records()].concat(), records, "killed after {killed_after}");
    }
    // Commits that a machine lost are made again.
    let lost = MergeProgress::Joined { from: node("a"), commit: CommitId("1".repeat(40)), settled: vec![] };
    let job = Job { done: vec![lost], ..Job::new() };
    assert_eq!(job.integrate(&place, &sources, Some(&resolver()), Some(&Checks::new(&[true]))).expect("it lands"), expected);
}

/// Checks that are red where a file holds a line that says so.
struct NoBug<'a>(&'a Place);

#[async_trait]
impl Verifier for NoBug<'_> {
    async fn verify(&self, commit: &CommitId) -> Result<Verified, Failure> {
        let passed = !self.0.text(commit, "list").contains("bug");
        Ok(Verified { passed, tail: if passed { String::new() } else { "a bug\nmore".to_owned() } })
    }
}

#[test]
fn a_join_that_turns_the_checks_red_is_put_aside_and_the_rest_lands() {
    let place = Place::new();
    let bad = place.source("bad", &[line(1, "bug")]);
    let on_bad = place.source_on("on-bad", &bad.commit, &[file("x", "x\n")]);
    let sources = [place.source("a", &[line(10, "a")]), bad, on_bad, place.source("c", &[file("c", "c\n")])];
    let mut whole = Job::new();
    whole.options = Options { mode: MergeMode::Each, on_red: RedThen::Eject, ..whole.options };
    let expected = whole.integrate(&place, &sources, None, Some(&NoBug(&place))).expect("the rest lands");
    assert_eq!(expected.landed, ["a", "c"].map(node));
    assert!(expected.verified);
    let put_aside: Vec<(NodeId, &str)> = expected.ejected.iter().map(|(node, why)| (node.clone(), why.as_str())).collect();
    assert_eq!(put_aside, [(node("bad"), "the checks are red with it: a bug"), (node("on-bad"), "it builds on build/bad, which was put aside")]);
    let commit = expected.commit.clone().expect("a commit");
    assert_eq!(place.text(&commit, "list"), "1\n2\n3\n4\n5\n6\n7\n8\n9\na\n");
    assert!(place.refs().contains(&("refs/spinney/run-1/land/joined".to_owned(), commit)));
    let records = whole.journal.records();
    assert_eq!(
        records.iter().filter(|done| matches!(done, MergeProgress::Verified { .. })).count(),
        3,
        "each join is verified, and the last of them is the whole"
    );
    for killed_after in 0..=records.len() {
        let mut job =
            Job { journal: Arc::new(Journal { refuses_after: Some(killed_after), ..Journal::default() }), options: whole.options.clone(), ..Job::new() };
        let _ = job.integrate(&place, &sources, None, Some(&NoBug(&place)));
        job.done = job.journal.records();
        job.journal = Arc::default();
        let checks = if killed_after < records.len() { None } else { Some(Checks::new(&[])) };
        let report = match &checks {
            None => job.integrate(&place, &sources, None, Some(&NoBug(&place))),
            Some(checks) => job.integrate(&place, &sources, None, Some(checks)),
        };
        assert_eq!(report.expect("it lands"), expected, "killed after {killed_after}");
        assert_eq!([job.done.clone(), job.journal.records()].concat(), records, "killed after {killed_after}");
    }
    whole.options.on_red = RedThen::Fail;
    whole.journal = Arc::default();
    let MergeError::Red { tail, report, .. } = whole.integrate(&place, &sources, None, Some(&NoBug(&place))).expect_err("it is red") else {
        panic!("another error")
    };
    assert_eq!((tail.as_str(), report.landed), ("a bug\nmore", vec![node("a"), node("bad")]));
    let all_red = [place.source("bad", &[line(1, "bug")])];
    whole.options.on_red = RedThen::Eject;
    let report = whole.integrate(&place, &all_red, None, Some(&NoBug(&place))).expect("nothing is left");
    assert_eq!((report.commit, report.landed.len(), report.ejected.len()), (None, 0, 1));
}

#[test]
fn needs_and_conflicts_decide_who_comes_first() {
    let place = Place::new();
    let a = place.source("a", &[line(5, "A")]);
    let on_a = place.source_on("on-a", &a.commit, &[file("on-a", "x\n")]);
    // It conflicts with two others, each of which conflicts with it alone.
    let wide = place.source("wide", &[line(5, "W"), file("y", "w\n")]);
    let y = place.source("y", &[file("y", "y\n")]);
    let sources = [wide, on_a, y, a];
    let landed = |order: &[MergeOrder]| {
        let mut job = Job::new();
        job.options.order = order.to_vec();
        let report = job.integrate(&place, &sources, None, None).expect("it goes on");
        let names = |node: &NodeId| node.item.clone().unwrap_or_default();
        (report.landed.iter().map(names).collect::<Vec<_>>(), report.ejected.iter().map(|(node, _)| names(node)).collect::<Vec<_>>())
    };
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(landed(&[MergeOrder::Needs]), (owned(&["wide"]), owned(&["y", "a", "on-a"])));
    assert_eq!(landed(&[MergeOrder::Needs, MergeOrder::FewestConflicts]), (owned(&["y", "a", "on-a"]), owned(&["wide"])));
    assert_eq!(landed(&[MergeOrder::FewestConflicts]), (owned(&["on-a", "y", "a"]), owned(&["wide"])));
}

fn ends_conflict(done: &MergeProgress) -> bool {
    match done {
        MergeProgress::Joined { settled, .. } => !settled.is_empty(),
        MergeProgress::Ejected { .. } => true,
        MergeProgress::Conflicted { .. } | MergeProgress::Verified { .. } => false,
    }
}

#[test]
fn bases_are_joined_when_they_fit() {
    let place = Place::new();
    let a = place.commit(&place.base, &[line(1, "A")]);
    let on_a = place.commit(&a, &[file("list", "A\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n")]);
    let b = place.commit(&a, &[file("list", "A\n2\n3\n4\n5\n6\n7\n8\n9\nB\n")]);
    let join = |commits: &[&CommitId]| join(&place.repository, &place.base, &commits.iter().map(|commit| (*commit).clone()).collect::<Vec<_>>());
    assert_eq!(join(&[]).expect("it fits"), place.base);
    assert_eq!(join(&[&a, &a]).expect("it fits"), a);
    assert_eq!(join(&[&a, &on_a, &place.base]).expect("it fits"), on_a, "what is held already adds nothing");
    let both = join(&[&on_a, &b, &a]).expect("it fits");
    assert_eq!(place.text(&both, "list"), "A\n2\n3\n4\nfive\n6\n7\n8\n9\nB\n");
    assert_eq!(join(&[&on_a, &b]).expect("it fits"), both, "the same commits, the same answer");
    assert_eq!(join(&[&both, &on_a]).expect("it fits"), both);
    let other = place.commit(&place.base, &[line(1, "other")]);
    let error = join(&[&a, &other]).expect_err("it conflicts");
    assert!(matches!(&error, GitError::Conflict { paths, .. } if paths == &["list"]), "{error}");
}
