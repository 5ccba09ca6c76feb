//! All runs of a repository, each by itself: a damaged one hides no other.
use super::run::{Fault, Mend, all_faults, faults};
use crate::{
    clock::Timestamp,
    engine::{
        clean::{CleanError, orphans},
        doctor::{Check, Verdict},
    },
    event::{Event, Record, RunId, because},
    git::Repository,
    journal::{self, Lease, RunDir, RunDirError, StoreError, misplaced},
};
use std::path::Path;

/// Looks at every run, and mends what can be mended where `repair` says so.
///
/// # Errors
/// Where the folder of the runs cannot be read.
pub fn runs(repo: &Repository, cache: &Path, now: Timestamp, repair: bool) -> Result<Vec<Check>, CleanError> {
    let state = RunDir::state(repo.main_checkout());
    let mut checks = Vec::new();
    for run in RunDir::list(&state)? {
        let dir = RunDir::open(&state, &run)?;
        checks.extend(one(repo, &run, dir.path(), (now, repair)));
    }
    for run in orphans(repo, cache)? {
        let kept = repo.refs(&format!("refs/spinney/{run}"))?.len();
        let detail = format!("its folder in {} is gone, by `git clean -fdx` say; {kept} commits of it are kept, or worktrees", state.display());
        let hint = format!("`git for-each-ref refs/spinney/{run}` lists them; `spinney clean` removes what has landed, `spinney clean --drop {run}` the rest");
        checks.push(said(&run, Fault::broken("runs", detail).lightly().hint(hint), None));
    }
    Ok(checks)
}

/// Returns what is wrong with the refs, commits and letters of a run, in words; nothing where git cannot tell.
pub fn faults_of(repo: &Repository, run: &RunId, dir: &Path, records: &[Record]) -> Vec<Check> {
    faults(repo, run, (dir, records), false).unwrap_or_default().into_iter().map(|fault| said(run, fault, None)).collect()
}

fn one(repo: &Repository, run: &RunId, dir: &Path, (now, repair): (Timestamp, bool)) -> Vec<Check> {
    let good = |detail: String| vec![Check { area: "runs", name: run.0.clone(), verdict: Verdict::Fine, detail, hint: None }];
    let owner = Lease::owner(dir);
    if let Ok(Some(held)) = &owner {
        return good(format!("it is carried out now: {}", held.holder()));
    }
    let mut checks: Vec<Check> = misplaced(dir)
        .into_iter()
        .filter_map(|error| {
            let RunDirError::Misplaced { path, found, wanted } = error else { return None };
            let fault = Fault::broken(path.display().to_string(), format!("it is {found}, and {wanted} belongs there")).mended_by(Mend::Aside(path));
            Some(treat(repo, run, dir, (fault, repair)))
        })
        .collect();
    if let Err(error) = owner
        && checks.is_empty()
    {
        checks.push(said(run, Fault::broken("lease", because(&error)).hint(error.hint().unwrap_or("see that this user may read it")), None));
    }
    // Nobody may take it up while something of it is put in its place.
    let owned = if repair { Lease::take(dir, std::process::id(), now).ok() } else { None };
    let repair = owned.is_some();
    let has_journal = std::fs::symlink_metadata(dir.join("journal.db")).is_ok_and(|found| found.is_file());
    let records = match journal::read(dir) {
        Err(error @ (StoreError::Lost { found: 1.., .. } | StoreError::Unmarked { .. })) => {
            checks.push(treat(repo, run, dir, (Fault::broken("journal.db", because(&error)).mended_by(Mend::Journal), repair)));
            journal::read(dir)
        }
        read => read,
    };
    let (faults, what) = match records {
        Ok(records) => (all_faults(repo, run, dir, &records), format!("{} records, {}", records.len(), how_it_stands(&records))),
        Err(StoreError::Missing { .. } | StoreError::Unbegun { .. }) if keeps(repo, run) == 0 => {
            (Ok(Vec::new()), "it died before its first record; nothing was done by it".to_owned())
        }
        // Until that is in its place nothing more can be said; of a journal that is none, nothing more ever can.
        Err(_) if !checks.is_empty() && !repair && has_journal => (Ok(Vec::new()), String::new()),
        Err(error) => {
            let hint = format!("nothing can be gone on with; {} commits of it are kept: `git for-each-ref refs/spinney/{run}`", keeps(repo, run));
            (Ok(vec![Fault::broken("journal.db", because(&error)).hint(hint)]), String::new())
        }
    };
    match faults {
        Ok(faults) => checks.extend(faults.into_iter().map(|fault| treat(repo, run, dir, (fault, repair)))),
        Err(error) => checks.push(said(run, Fault::broken("git", because(&error)), None)),
    }
    drop(owned);
    if checks.is_empty() { good(what) } else { checks }
}

/// Returns how many commits are kept of a run.
fn keeps(repo: &Repository, run: &RunId) -> usize {
    repo.refs(&format!("refs/spinney/{run}")).map_or(0, |refs| refs.len())
}

fn how_it_stands(records: &[Record]) -> &'static str {
    if matches!(records.last().map(|last| &last.event), Some(Event::RunFinished { .. })) { "over" } else { "open" }
}

/// Mends a fault where that is wanted and can be done.
fn treat(repo: &Repository, run: &RunId, dir: &Path, (fault, repair): (Fault, bool)) -> Check {
    let done = fault.mend.as_ref().filter(|_| repair).map(|mend| mend.apply(repo, dir).map_err(|error| because(&error)));
    said(run, fault, done)
}

fn said(run: &RunId, fault: Fault, done: Option<Result<(), String>>) -> Check {
    let Fault { name, detail, verdict, hint, mend: _ } = fault;
    let detail = format!("{name}: {detail}");
    let (verdict, detail, hint) = match done {
        None => (verdict, detail, hint),
        Some(Ok(())) => (Verdict::Mended, detail, None),
        Some(Err(why)) => (Verdict::Broken, format!("{detail}; it could not be mended: failed to {why}"), None),
    };
    Check { area: "runs", name: run.0.clone(), verdict, detail, hint }
}
