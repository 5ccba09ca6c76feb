//! The real program killed with SIGKILL at random moments of a run with real git: alone, one of its children, or all of them
//! at once. It is resumed until it is over, and then everything is as in a run that was left alone.
//!
//! Once inside walls, where a command that was cut short is undone and repeated, so that nothing may differ; and once without, as where
//! there is no `bwrap`, where its agent is told that it may have had its effect, and goes another way from there.
//!
//! `SPINNEY_KILLS` is how many moments there are, `SPINNEY_SEED` where they begin; `.ci/kill` does many.
use crate::{
    fixture::{Bench, not_tested, outcome},
    invariants,
    recovery::without_hashes,
};
use rustix::process::{Pid, Signal, kill_process};
use spinney::{
    event::{Event, Record, Recovery},
    journal::{Lease, RunDir},
    sandbox::{Options, Sandbox},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Child,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

const KILLS: u64 = 40;
/// Without walls there is less to be compared.
const KILLS_WITHOUT: u64 = 20;
/// Resumes of one run; each gets further, so that more mean that it does not.
const LIVES_MAX: usize = 12;
/// What is appended to the file outside, once each: by commands that have no walls, and by the hook before a command, which has none.
const EFFECTS: [&str; 4] = ["a", "b", "c", "tell"];
const EFFECTS_OF_HOOKS: [&str; 3] = ["hook a", "hook b", "hook c"];

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// The program; what it started is left alone.
    Program,
    /// One process that it started, or that one of these did.
    Child,
    /// The program and all that it started.
    All,
}

#[derive(Debug, PartialEq, Eq)]
struct End {
    /// What agents saw go wrong, at which node.
    seen: BTreeSet<(String, String)>,
    outcomes: BTreeMap<String, String>,
    /// The files of each commit that an outcome names, and of the branch.
    trees: BTreeMap<String, String>,
    /// The refs that keep results, and branches.
    refs: Vec<String>,
}

impl End {
    /// What is the same wherever something was cut short: what commands say of it is left out, and, where agents saw something go
    /// wrong that they see `otherwise` not, the files too: a hook that dies refuses its call.
    fn but_for_what_was_seen(&self, otherwise: &End) -> End {
        let word = |text: &String| text.split('"').nth(1).unwrap_or_default().to_owned();
        let outcomes = self.outcomes.iter().map(|(node, text)| (node.clone(), if node == "run" { text.clone() } else { word(text) })).collect();
        let trees = if self.seen == otherwise.seen { self.trees.clone() } else { BTreeMap::new() };
        End { seen: BTreeSet::new(), outcomes, trees, refs: self.refs.clone() }
    }
}

struct Play {
    bench: Bench,
    script: String,
    walls: bool,
    /// For each effect how often it was under way at a death, and so may have happened once more.
    cut: BTreeMap<&'static str, usize>,
    deaths: usize,
}

impl Play {
    fn new(walls: bool) -> Play {
        let bench = Bench::new()
            .file("shared.txt", "top\nmiddle\nbottom\n")
            // What it did is in the tree too, as often as it did it.
            .file("effect.sh", "echo \"$1\" >> \"$HOME/effects\"\necho \"$1\" >> \"$1.done\"\nsleep 0.02\necho ok > \"$1.ok\"\n")
            .commit("shared")
            .workflow("killed", include_str!("kill/workflow.yaml"))
            .file(".spinney/hooks/look.json", include_str!("kill/look.json"));
        let tmp = bench.path("tmp");
        fs::create_dir(&tmp).unwrap();
        let bench = bench.env("TMPDIR", &tmp.display().to_string());
        bench.spinney(&["trust", "--yes"]).code(0);
        let script = bench.script(include_str!("kill/script.yaml"));
        Play { bench, script, walls, cut: BTreeMap::new(), deaths: 0 }
    }

    fn program(&self, arguments: &[&str]) -> Child {
        self.bench.program(&[arguments, if self.walls { &[] } else { &["--unconfined"] }].concat())
    }

    fn begin(&self) -> Child {
        self.program(&["run", "killed", "--json", "--script", &self.script])
    }

    fn effects(&self) -> &'static [&'static str] {
        if self.walls { &EFFECTS_OF_HOOKS } else { &EFFECTS }
    }

    fn records(&self) -> Vec<Record> {
        self.bench.records(&self.bench.newest())
    }

    fn is_over(&self) -> bool {
        matches!(self.records().last().unwrap().event, Event::RunFinished { .. })
    }

    /// Reads records as the program says them, up to the `until`th, and waits a moment; returns whether it lives.
    fn watch(program: &mut Child, until: usize, random: &mut fastrand::Rng) -> bool {
        let out = program.stdout.take().unwrap();
        let mut lines = BufReader::new(out).lines();
        let there = lines.by_ref().take(until).flatten().count() == until;
        // Whatever it says from now on is read, so that it does not stand still.
        std::thread::spawn(move || lines.for_each(drop));
        // Between two records too, not only at the moment of one.
        std::thread::sleep(Duration::from_micros(random.u64(..25_000)));
        there
    }

    /// Kills and notes what was under way.
    fn kill(&mut self, program: &mut Child, victim: Victim, random: &mut fastrand::Rng) -> bool {
        let pid = i32::try_from(program.id()).unwrap();
        let below = descendants(pid);
        let victims = match victim {
            Victim::Program => vec![pid],
            Victim::Child => random.choice(&below).copied().into_iter().collect(),
            Victim::All => std::iter::once(pid).chain(below).collect(),
        };
        let killed = victims.iter().filter(|pid| kill_process(Pid::from_raw(**pid).unwrap(), Signal::KILL).is_ok()).count() > 0;
        self.deaths += usize::from(killed);
        if victim != Victim::Child {
            program.wait().unwrap();
            for effect in self.effects() {
                *self.cut.entry(effect).or_default() += usize::from(under_way(&self.records(), effect));
            }
        }
        killed
    }

    /// Resumes until the run is over.
    fn live_on(&self, seed: u64) {
        for _ in 0..LIVES_MAX {
            if self.is_over() {
                return;
            }
            let output = self.program(&["resume"]).wait_with_output().unwrap();
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.code().is_some_and(|code| code < 2), "seed {seed}: {said}");
        }
        panic!("seed {seed}: it is not over after {LIVES_MAX} lives");
    }

    fn end(&self) -> End {
        let (bench, run, records) = (&self.bench, self.bench.newest(), self.records());
        invariants::check(&records, &bench.repo());
        let plain = |text: String| text.replace(&run.0, "RUN");
        let tree = |name: &str| bench.git(&["ls-tree", "-r", name]);
        let mut end = End {
            seen: seen(&records),
            outcomes: BTreeMap::new(),
            trees: BTreeMap::from([("branch".to_owned(), tree(&format!("spinney/{run}")))]),
            refs: Vec::new(),
        };
        for record in &records {
            let Event::StepFinished { node, outcome } = &record.event else { continue };
            if let Some(commit) = outcome.success().and_then(|success| success.commit.as_ref()) {
                end.trees.insert(node.to_string(), tree(&commit.0));
            }
            end.outcomes.insert(node.to_string(), without_hashes(&plain(serde_json::to_string(outcome).unwrap())));
        }
        end.outcomes.insert("run".to_owned(), outcome(&records, "run")["succeeded"]["output"].to_string());
        let refs = bench.git(&["for-each-ref", "--format=%(refname)"]);
        end.refs = refs.lines().filter(|name| !name.ends_with("/base") && !name.ends_with("/checkpoint")).map(|name| plain(name.to_owned())).collect();
        end
    }

    /// How often each effect happened: once, or once more for every death in its middle.
    fn counted(&self, victim: Victim, seed: u64) {
        let done = fs::read_to_string(self.bench.path("home/effects")).unwrap();
        for effect in self.effects() {
            let times = done.lines().filter(|line| line == effect).count();
            // Whoever loses a child does not know what it did, and tries again.
            let more = if victim == Victim::Child { self.deaths } else { self.cut.get(*effect).copied().unwrap_or_default() };
            // A hook that loses a process of its own pipe says nothing of what it has not done.
            let least = usize::from(victim != Victim::Child || !effect.starts_with("hook "));
            assert!((least..=1 + more).contains(&times), "seed {seed}: {effect} was done {times} times, {more} deaths in its middle");
        }
    }

    /// No process, no lock, no folder or file that was only to be there for a moment.
    fn nothing_is_left(&self, seed: u64) {
        let home = format!("HOME={}\0", self.bench.path("home").display());
        let ours = |entry: &fs::DirEntry| fs::read(entry.path().join("environ")).is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(&home));
        let running: Vec<_> = fs::read_dir("/proc").unwrap().flatten().filter(ours).map(|entry| entry.file_name()).collect();
        assert!(running.is_empty(), "seed {seed}: these processes still run: {running:?}");
        let dir = RunDir::open(&RunDir::state(&self.bench.repo()), &self.bench.newest()).unwrap();
        assert!(Lease::owner(dir.path()).unwrap().is_none(), "seed {seed}: the run is locked");
        assert_eq!(fs::read_dir(dir.processes()).unwrap().count(), 0, "seed {seed}: a process is noted");
        let mut left = files(&self.bench.path("tmp"));
        let everywhere = [files(&self.bench.repo()), files(&self.bench.path("cache"))].concat();
        left.extend(everywhere.into_iter().filter(|path| is_for_a_moment(path)));
        assert!(left.is_empty(), "seed {seed}: these are left: {left:#?}");
    }
}

/// Whether this is a name that only something half made has. Half-written objects are git's own to collect.
fn is_for_a_moment(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    let in_own_folder = path.parent().is_some_and(|folder| folder.ends_with(".git/spinney"));
    name.ends_with(".lock") || name.starts_with(".tmp") || name.starts_with("git-") || (in_own_folder && name != "lock")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        }
    }
    found
}

/// Returns what agents saw go wrong: calls that failed or were refused, and red checks.
fn seen(records: &[Record]) -> BTreeSet<(String, String)> {
    let wrong = |event: &Event| match event {
        Event::ToolFinished { node, result, tool, .. } if result.is_error => Some((node.to_string(), tool.clone())),
        Event::VerifyRan { node, passed: false, tail } => Some((node.to_string(), tail.clone())),
        _ => None,
    };
    records.iter().filter_map(|record| wrong(&record.event)).collect()
}

/// Returns whether the records leave open whether an effect has happened.
fn under_way(records: &[Record], effect: &str) -> bool {
    let (of_hook, whose) = effect.split_once(' ').map_or((false, effect), |(_, item)| (true, item));
    let is_of = |event: &Event| event.node().is_some_and(|node| if whose == "tell" { node.step.0 == whose } else { node.item.as_deref() == Some(whose) });
    let mut open = false;
    for record in records.iter().filter(|record| is_of(&record.event)) {
        match &record.event {
            Event::ModelReplied { reply, .. } if of_hook => open = reply.calls().any(|call| call.name == "Bash"),
            Event::ToolStarted { .. } if of_hook => open = false,
            Event::ToolStarted { recovery, .. } => open |= matches!(recovery, Recovery::Rollback(_) | Recovery::Unknown),
            Event::ToolFinished { tool, .. } if tool == "Bash" => open = false,
            Event::StepStarted { .. } if whose == "tell" => open = true,
            Event::StepFinished { .. } => open = false,
            _ => {}
        }
    }
    open
}

/// Returns all processes that come of one.
fn descendants(of: i32) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat[stat.rfind(')')? + 2..].split(' ').nth(1)?.parse().ok()
    };
    let all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let above = found[at];
        found.extend(all.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// One run with deaths by a seed; returns whether anything was killed.
fn once(seed: u64, (records, clean): (usize, &End), walls: bool) -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    let victim = [Victim::Program, Victim::Child, Victim::All][usize::try_from(seed % 3).unwrap()];
    let mut play = Play::new(walls);
    let mut program = play.begin();
    Play::watch(&mut program, random.usize(1..records), &mut random);
    let mut killed = play.kill(&mut program, victim, &mut random);
    program.wait().unwrap();
    // Every other one dies once more while it goes on.
    if random.bool() && !play.is_over() {
        let mut program = play.program(&["resume", "--json"]);
        Play::watch(&mut program, random.usize(1..records / 2), &mut random);
        killed |= play.kill(&mut program, victim, &mut random);
        program.wait().unwrap();
    }
    play.live_on(seed);
    let end = play.end();
    // A command without walls that was cut short is answered as unknown, and its agent finds out; so does that of a lost child.
    if victim != Victim::Child && (walls || end.seen == clean.seen) {
        assert_eq!(&end, clean, "seed {seed}");
    } else {
        assert_eq!(end.but_for_what_was_seen(clean), clean.but_for_what_was_seen(&end), "seed {seed}");
    }
    play.counted(victim, seed);
    play.nothing_is_left(seed);
    killed
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, and no number")))
}

fn at_random_moments(walls: bool, kills: u64) {
    let play = Play::new(walls);
    let mut program = play.begin();
    let mut err = program.stderr.take().unwrap();
    Play::watch(&mut program, usize::MAX, &mut fastrand::Rng::with_seed(0));
    let code = program.wait().unwrap().code();
    assert_eq!(code, Some(0), "{}", std::io::read_to_string(&mut err).unwrap());
    let (records, clean) = (play.records().len(), play.end());
    assert_eq!(clean.outcomes["run"], r#"{"told":"top\nmiddle of a and b\nbottom\n"}"#);
    play.counted(Victim::All, 0);
    play.nothing_is_left(0);

    let (first, kills) = (number("SPINNEY_SEED").unwrap_or(1), number("SPINNEY_KILLS").unwrap_or(kills));
    let (next, killed) = (AtomicU64::new(first), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + kills {
                        return;
                    }
                    killed.fetch_add(usize::from(once(seed, (records, &clean), walls)), Ordering::Relaxed);
                }
            });
        }
    });
    let killed = killed.into_inner() as u64;
    assert!(killed * 3 >= kills * 2 || kills < 10, "only {killed} of {kills} were killed before they ended");
}

#[test]
fn killed_at_random_moments_inside_walls_it_ends_as_one_that_was_left_alone() {
    if Sandbox::new(Options { path: std::env::var_os("PATH"), ..Options::default() }).unwrap().bubblewrap().is_none() {
        return not_tested("kills of runs inside walls", "`bwrap` does not work here");
    }
    at_random_moments(true, KILLS);
}

#[test]
fn killed_at_random_moments_without_walls_it_ends_as_one_that_was_left_alone() {
    at_random_moments(false, KILLS_WITHOUT);
}
