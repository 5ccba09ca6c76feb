//! Whole runs made from a seed, each left alone once and then ended again and again: both come to the same end.
//!
//! Everything is the program's own but for the model, the people and the clock: a workflow is written from the seed, and
//! run in one thread on simulated time. `.ci/simulate` runs as many seeds as one likes, or one again.
mod counts;
mod end;
mod faults;
mod mind;
mod outside;
mod power;
mod scenario;
mod session;
mod world;

use counts::Counts;
use end::blanked;
use faults::Faults;
use scenario::{Kind, Scenario};
use spinney::event::{Event, Record};
use std::{
    fmt::Write as _,
    io::Write as _,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use world::{Played, play};

/// Seeds in CI: enough that everything that can go wrong does.
const SEEDS: u64 = 2_048;
/// One seed of so many is that of a large run.
const LARGE: u64 = 8;
/// Tries to find something smaller that fails in the same way.
const SHRINKS: usize = 60;

/// Runs one seed and says what is wrong, with the smallest run found that shows it.
fn check(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let scenario = Scenario::new(seed, seed.is_multiple_of(LARGE));
    let models = Faults::of_models(seed, &scenario);
    let clean = guarded(|| play(seed, &scenario, &models)).map_err(|wrong| shrunk(seed, scenario.clone(), models.clone(), wrong))?;
    let faults = models.with_lives(seed, clean.records.len());
    let faults = if scenario.is_limited() { faults.without_power_cuts() } else { faults };
    let played = compare(seed, &scenario, &faults, &clean).map_err(|wrong| shrunk(seed, scenario.clone(), faults, wrong))?;
    counts.add(&scenario, &played);
    Ok(())
}

/// Compares a run with one that was left alone.
fn compare(seed: u64, scenario: &Scenario, faults: &Faults, clean: &Played) -> Result<Played, String> {
    let played = guarded(|| play(seed, scenario, faults))?;
    match played.end.unlike(&clean.end, !faults.broken.is_empty() || scenario.is_limited(), faults.power_cuts()) {
        None => Ok(played),
        Some(unlike) => Err(format!("after {} lives, {unlike}", played.lives)),
    }
}

/// Takes a failed assertion for what is wrong.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned().or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("an assertion failed: {}", text.unwrap_or_default()))
    })
}

/// Runs seeds, as many at once as there are processors, and stops at the first that is wrong. At its end it says what there was in them.
fn run(from: u64, count: u64) -> Counts {
    let (next, is_wrong) = (AtomicU64::new(from), AtomicBool::new(false));
    let one_after_the_other = || {
        let mut counts = Counts::default();
        while !is_wrong.load(Ordering::SeqCst) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= from + count {
                break;
            }
            check(seed, &mut counts).map_err(|wrong| {
                is_wrong.store(true, Ordering::SeqCst);
                format!("seed {seed}: {wrong}\n\nhint: .ci/simulate {seed} runs it again")
            })?;
        }
        Ok::<_, String>(counts)
    };
    let mut all = Counts::default();
    std::thread::scope(|scope| {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(one_after_the_other)).collect();
        for thread in threads {
            match thread.join().unwrap() {
                Ok(counts) => all.join(&counts),
                Err(wrong) => panic!("{wrong}"),
            }
        }
    });
    std::io::stdout().write_all(all.to_string().as_bytes()).unwrap();
    all
}

/// Looks for less that is wrong, too, and describes it.
fn shrunk(seed: u64, mut scenario: Scenario, mut faults: Faults, mut wrong: String) -> String {
    let again = |scenario: &Scenario, faults: &Faults| {
        let clean = guarded(|| play(seed, scenario, &Faults { lives: Vec::new(), ..faults.clone() }))?;
        compare(seed, scenario, faults, &clean).map(drop)
    };
    let mut tries = 0;
    while tries < SHRINKS {
        let smaller = scenario.smaller().into_iter().map(|less| (less, faults.clone()));
        let candidates: Vec<(Scenario, Faults)> = smaller.chain(faults.fewer().into_iter().map(|less| (scenario.clone(), less))).collect();
        let found = candidates.into_iter().take(SHRINKS - tries).find_map(|(scenario, faults)| {
            tries += 1;
            again(&scenario, &faults).err().map(|wrong| (scenario, faults, wrong))
        });
        let Some(smaller) = found else { break };
        (scenario, faults, wrong) = smaller;
    }
    format!("{wrong}\n\n{}", described(&scenario, &faults))
}

/// Writes down what a run does, and what goes wrong.
fn described(scenario: &Scenario, faults: &Faults) -> String {
    let mut text = scenario.yaml("OUTSIDE");
    for piece in &scenario.pieces {
        match &piece.kind {
            Kind::Reader { session, .. } | Kind::Writer { session, .. } => drop(writeln!(text, "{}: {}", piece.id, scenario::acts(session))),
            Kind::Fan { items, .. } => {
                for item in items {
                    let _ = writeln!(text, "{}/{}: {}; fails {} times", piece.id, item.key, scenario::acts(&item.session), item.bad);
                }
            }
            other => drop(writeln!(text, "{}: {other:?}", piece.id)),
        }
    }
    for life in &faults.lives {
        let _ = writeln!(text, "{life:?}");
    }
    for (at, broken) in &faults.broken {
        let _ = writeln!(text, "the model at {at:?}: {broken:?}");
    }
    text
}

/// Seeds of runs in which nothing is ended by real time.
#[test]
fn a_seed_gives_the_same_log_each_time() {
    for seed in [3, 7, 16, 40] {
        let scenario = Scenario::new(seed, seed.is_multiple_of(LARGE));
        let faults = Faults::of_models(seed, &scenario).with_lives(seed, 40);
        let log = || {
            let played = play(seed, &scenario, &faults).unwrap();
            // The repository goes by a hash of where it is.
            let line = |record: &Record| {
                let mut record = record.clone();
                // A prompt says where it is, so that its hashes do too.
                if let Event::ModelReplied { prefix, .. } = &mut record.event {
                    prefix.clear();
                }
                blanked(&serde_json::to_string(&record).unwrap().replace(&played.place, "PLACE/"), "spinney/worktrees/", 16)
            };
            played.records.iter().map(line).collect::<Vec<_>>()
        };
        let (first, second) = (log(), log());
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

/// With `SPINNEY_SEEDS=FROM:COUNT` those that somebody asked for.
#[test]
fn seeds_come_to_one_end() {
    let asked = std::env::var("SPINNEY_SEEDS").ok();
    match asked.as_deref().and_then(|asked| asked.split_once(':')) {
        Some((from, count)) => drop(run(from.parse().unwrap(), count.parse().unwrap())),
        None => assert_eq!(run(0, SEEDS).missing(), [""; 0], "none of the seeds had these"),
    }
}
