//! `spinney diff`: what a run, or one of its steps, changed, as a patch.
use super::{
    args,
    context::{Context, Failed},
    report::{FoundRun, Report, block, load_run, put, put_bytes},
    screen::{Tone, paint, plural},
    show,
};
use crate::{
    engine::{SetupError, checkpoint_ref},
    event::{CommitId, Isolation, Outcome, RunId},
    git::Repository,
};
use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
};

pub(super) fn run(args: &args::Diff, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { repo, run, records, .. } = load_run(context, &args.run)?;
    let report = Report::of(&records);
    let Some((base, commit)) = (match &args.step {
        Some(step) => of_step(&repo, &report, &run, step, context)?,
        None => of_run(&report, &run.0)?,
    }) else {
        writeln!(context.err, "Nothing differs from what it started from.")?;
        return Ok(0);
    };
    for needed in [&base, &commit] {
        if !repo.has_commit(needed).map_err(SetupError::from)? {
            return Err(Failed::new(format!("show what changed: the commit {needed} is not in this repository any more")));
        }
    }
    // A patch that goes to a file or a pipe keeps its bytes, so that it applies; one that is shown is made safe to show.
    if context.color || io::stdout().is_terminal() {
        let patch = repo.diff(&base, &commit, false).map_err(SetupError::from)?;
        put(context, &toned(&block(&patch), context.color))?;
    } else {
        let patch = repo.patch(&base, &commit).map_err(SetupError::from)?;
        put_bytes(context, &patch)?;
    }
    Ok(0)
}

/// Returns base and result of a whole run; `None` where nothing differs.
fn of_run(report: &Report, run: &str) -> Result<Option<(CommitId, CommitId)>, Failed> {
    let base = base(report, run)?;
    if let Some(branch) = &report.branch {
        return Ok(Some((base, branch.commit.clone())));
    }
    if let Some(Outcome::Succeeded(_)) = &report.outcome {
        return Ok(None);
    }
    let made: Vec<String> =
        report.nodes().into_iter().filter(|(_, node)| node.commit().is_some()).map(|(id, _)| super::report::line(&id.to_string(), 60)).take(8).collect();
    let failed = Failed::new(format!("show what the run `{run}` changed: it has no result"));
    Err(match made.len() {
        0 => failed.hint(format!("`spinney show {run}` shows what it did")),
        count => failed.hint(format!("name the {} whose work is kept: {}", plural(count, "step"), made.join(", "))),
    })
}

/// Returns base and commit of a node's work, or what its last checkpoint has where no commit was made of that; `None` where it
/// ended well and nothing differs.
fn of_step(repo: &Repository, report: &Report, run: &RunId, step: &str, context: &mut Context) -> Result<Option<(CommitId, CommitId)>, Failed> {
    let (id, node) = show::require_node(report, &run.0, step)?;
    let base = match &node.workspace {
        Some(workspace) => workspace.base.clone(),
        None => base(report, &run.0)?,
    };
    if let Some(commit) = node.commit() {
        return Ok(Some((base, commit.clone())));
    }
    if matches!(node.outcome, Some(Outcome::Succeeded(_))) {
        return Ok(None);
    }
    let of = |attempt: u32| Ok::<_, Failed>(repo.ref_at(&checkpoint_ref(run, id, attempt)).map_err(SetupError::from)?.map(|commit| (attempt, commit)));
    // An attempt that has changed nothing yet has none; the work of those before it is kept too.
    for attempt in (1..=node.attempts).rev() {
        if let Some((attempt, commit)) = of(attempt)? {
            context
                .note(&format!("note: no commit was made of its work; this is what attempt {attempt} had, as `{}` keeps it", checkpoint_ref(run, id, attempt)));
            return Ok(Some((base, commit)));
        }
    }
    let failed =
        Failed::new(format!("show what `{}` changed: no commit was made of its work, and there is no checkpoint of it", super::report::line(step, 60)));
    let worktree = node.workspace.as_ref().filter(|workspace| workspace.isolation != Isolation::View && Path::new(&workspace.path).is_dir());
    Err(failed.hint(worktree.map_or_else(
        || format!("`spinney show {run} {}` shows what it did", super::report::line(step, 60)),
        |workspace| format!("its worktree is still there: {}", super::report::line(&workspace.path, 400)),
    )))
}

fn base(report: &Report, run: &str) -> Result<CommitId, Failed> {
    report
        .started
        .as_ref()
        .map(|started| started.base.clone())
        .ok_or_else(|| Failed::new(format!("show what the run `{run}` changed: its journal does not say what it started from")))
}

/// Colours a patch. It is done here and not by git, whose colours cannot be told from those that a file brings along.
fn toned(patch: &str, color: bool) -> String {
    let mut in_hunk = false;
    let mut text = String::with_capacity(patch.len());
    for line in patch.lines() {
        let tone = match line.as_bytes() {
            _ if line.starts_with("diff --git ") => {
                in_hunk = false;
                Tone::Name
            }
            _ if line.starts_with("@@ ") => {
                in_hunk = true;
                Tone::Dim
            }
            [b'+', ..] if in_hunk => Tone::Good,
            [b'-', ..] if in_hunk => Tone::Bad,
            _ if in_hunk => Tone::Plain,
            _ => Tone::Name,
        };
        text.push_str(&paint(color, tone, line));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_patch_are_told_apart_by_where_they_stand() {
        let patch = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n";
        let toned = toned(patch, true);
        let tones: Vec<&str> = toned.lines().map(|line| line.split('m').next().unwrap()).collect();
        assert_eq!(tones, ["\u{1b}[1", "\u{1b}[1", "\u{1b}[1", "\u{1b}[1", "\u{1b}[2", "\u{1b}[31", "\u{1b}[32", " sa"]);
        assert_eq!(super::toned(patch, false), patch);
    }
}
