//! Finding a run by its name or the beginning of it, and saying so where that fails.
use super::super::context::{Context, Failed};
use crate::{
    engine::SetupError,
    event::{Record, RunId},
    git::Repository,
    journal::{self, RunDir},
    source,
};
use std::io::{self, Write as _};

/// How many names a message lists.
const NAMED: usize = 8;

/// A run and everything recorded of it.
pub(in crate::cli) struct FoundRun {
    pub(in crate::cli) repo: Repository,
    pub(in crate::cli) dir: RunDir,
    pub(in crate::cli) run: RunId,
    pub(in crate::cli) records: Vec<Record>,
}

/// Opens the repository that the user stands in.
pub(in crate::cli) fn repository(context: &Context) -> Result<Repository, Failed> {
    Ok(Repository::open(&context.settings.directory, &context.settings.environment).map_err(SetupError::from)?)
}

/// Finds a run by its name, or by the beginning of it where only one begins so, and reads its journal.
pub(in crate::cli) fn load_run(context: &Context, given: &str) -> Result<FoundRun, Failed> {
    let repo = repository(context)?;
    let state = RunDir::state(repo.main_checkout());
    let runs = RunDir::list(&state).map_err(|error| Failed::of(&error))?;
    let run = pick(&runs, given)?;
    let dir = RunDir::open(&state, &run).map_err(|error| Failed::of(&error))?;
    let records = journal::read(dir.path())?;
    if records.is_empty() {
        return Err(Failed::new(format!("show the run `{run}`: it died before its first record")));
    }
    Ok(FoundRun { repo, dir, run, records })
}

/// Picks the run that was meant: the one of this name, or else the only one whose name begins so.
pub(in crate::cli) fn pick(runs: &[RunId], given: &str) -> Result<RunId, Failed> {
    if let Some(run) = runs.iter().find(|run| run.0 == given) {
        return Ok(run.clone());
    }
    let begins: Vec<&RunId> = runs.iter().filter(|run| !given.is_empty() && run.0.starts_with(given)).collect();
    let shown = super::line(given, 60);
    match begins[..] {
        [run] => Ok(run.clone()),
        [] => Err(Failed::usage(format!("find the run `{shown}`")).hint(match source::nearest(given, runs.iter().map(|run| run.0.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None if runs.is_empty() => "there are no runs yet; `spinney run WORKFLOW` begins one".to_owned(),
            None => "`spinney runs` lists the runs there are".to_owned(),
        })),
        _ => {
            let mut names: Vec<&str> = begins.iter().take(NAMED).map(|run| run.0.as_str()).collect();
            if begins.len() > NAMED {
                names.push("…");
            }
            Err(Failed::usage(format!("find the run `{shown}`: {} runs begin so", begins.len())).hint(format!("write more of the name: {}", names.join(", "))))
        }
    }
}

/// Writes to standard output. A reader that has read enough is no failure.
pub(in crate::cli) fn put(context: &mut Context, text: &str) -> Result<(), Failed> {
    put_bytes(context, text.as_bytes())
}

/// Writes bytes to standard output, as `put` does text.
pub(in crate::cli) fn put_bytes(context: &mut Context, bytes: &[u8]) -> Result<(), Failed> {
    match context.out.write_all(bytes).and_then(|()| context.out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_its_name_or_a_beginning_that_only_it_has() {
        let runs: Vec<RunId> = ["fix-aaaaaa", "fix-aabbbb", "feature-cccccc", "fix"].iter().map(|name| RunId::from(*name)).collect();
        assert_eq!(pick(&runs, "fix-aaaaaa").unwrap().0, "fix-aaaaaa");
        assert_eq!(pick(&runs, "fe").unwrap().0, "feature-cccccc");
        assert_eq!(pick(&runs, "fix").unwrap().0, "fix", "a whole name wins over a beginning");
        let ambiguous = pick(&runs, "fix-aa").unwrap_err();
        assert_eq!((ambiguous.code, ambiguous.message.as_str()), (2, "find the run `fix-aa`: 2 runs begin so"));
        assert_eq!(ambiguous.hint.unwrap(), "write more of the name: fix-aaaaaa, fix-aabbbb");
        assert_eq!(pick(&runs, "fix-aaaaab").unwrap_err().hint.unwrap(), "did you mean `fix-aaaaaa`?");
        assert_eq!(pick(&runs, "").unwrap_err().code, 2);
        assert!(pick(&[], "x\u{1b}[2J").unwrap_err().message.contains("`x [2J`"));
    }
}
