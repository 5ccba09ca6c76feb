//! Locks of git that stay: those of processes of this program that died, and those of others that are older than any command takes.
use super::run::Fault;
use crate::{
    clock::Timestamp,
    engine::doctor::{Check, Verdict},
    event::because,
    git::{GitError, Repository},
};
use std::time::Duration;

/// How long a lock is nobody's affair.
const USUAL: Duration = Duration::from_mins(1);

/// Looks at the locks of a repository, and ends what this program has left where `repair` says so.
///
/// # Errors
/// Where it cannot be told whether somebody lands.
pub fn locks(repo: &Repository, now: Timestamp, repair: bool) -> Result<Vec<Check>, GitError> {
    let found = repo.locks()?;
    let ended = (repair && found.iter().any(|lock| lock.is_ours)).then(|| repo.end_what_was_left());
    let faults = found.into_iter().filter_map(|lock| {
        let name = lock.path.display().to_string();
        if lock.is_ours {
            let fault = Fault::broken(name, "a process of this program has left it that died, and no other git gets on while it is there");
            return Some(fault.hint("`spinney doctor --repair` ends what it had begun"));
        }
        let fault = Fault::broken(name, format!("it is there since {}: another git is at work, or has died", lock.since)).lightly();
        (now.since(lock.since) > USUAL && lock.path.exists()).then(|| fault.hint("where no git runs there any more, remove it"))
    });
    let said = |fault: Fault| {
        let check =
            Check { area: "runs", name: "git".to_owned(), verdict: fault.verdict, detail: format!("{}: {}", fault.name, fault.detail), hint: fault.hint };
        match (&ended, check.verdict) {
            (Some(Ok(())), Verdict::Broken) => Check { verdict: Verdict::Mended, hint: None, ..check },
            (Some(Err(error)), Verdict::Broken) => {
                let hint = error.hint().map(str::to_owned);
                Check { detail: format!("{}; it could not be mended: failed to {}", check.detail, because(error)), hint, ..check }
            }
            _ => check,
        }
    };
    Ok(faults.map(said).collect())
}
