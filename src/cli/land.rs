//! `spinney land`: brings a run's branch onto the branch that is checked out, and only when asked to.
//!
//! Forward where that is possible, else by a merge commit that is made beside the checkout first. Whatever is not plainly
//! safe is refused before anything is touched; the last word has git, which moves the branch and the files together and
//! overwrites nothing that it does not know. Runs land one after another, each on what there is by then. Hooks of the repository do not run (see `git::landing`).
use super::{
    args,
    context::{Context, Failed},
    report::{FoundRun, Report, line, load_run, put},
    screen::{failure_text, plural, short},
};
use crate::{
    clock::Clock,
    engine::SetupError,
    event::{CommitId, Event, Outcome},
    git::{CommitMeta, GitError, Head, Merged, Repository, Unsound, short_name},
    journal::Branch,
};

/// Paths that a message lists.
const LISTED: usize = 10;
/// Looks at a checkout that somebody else moves meanwhile.
const TRIES: usize = 8;

pub(super) fn run(args: &args::Land, context: &mut Context) -> Result<u8, Failed> {
    let FoundRun { repo, run, records, .. } = load_run(context, &args.run)?;
    let report = Report::of(&records);
    let Some(branch) = result(&report, &run.0)? else {
        let has_written = records.iter().any(|record| matches!(&record.event, Event::WorkCaptured { node, .. } if node.helper.is_none()));
        let kept = if has_written { format!(" What its steps wrote, and nothing joined, is kept under refs/spinney/{run}/.") } else { String::new() };
        put(context, &format!("The run `{run}` has no branch: there is nothing to land.{kept}\n"))?;
        return Ok(0);
    };
    let landing = repo.landing().map_err(git)?;
    let mut tries = 0;
    let (head, onto, target) = loop {
        tries += 1;
        let Some(Move { head, onto, target }) = judged(&repo, &report, &branch, &run.0)? else {
            put(context, &format!("{} has {} already.\n", checked_out(&repo)?.1, short_name(&branch.name)))?;
            return Ok(0);
        };
        match landing.forward(&head, &target) {
            Ok(()) => break (head, onto, target),
            // Somebody has committed in between: what fits is judged anew.
            Err(GitError::CheckoutMoved { .. }) if tries < TRIES => {}
            Err(error) => {
                let hint = error.hint().map_or_else(
                    // No `git merge` by hand: it would overwrite a file that is ignored and in the way here.
                    || format!("nothing was changed; move what is in the way aside, then `spinney land {run}` again"),
                    |hint| {
                        if matches!(error, GitError::HalfLanded { .. } | GitError::LandingLeft { .. }) {
                            hint.to_owned()
                        } else {
                            format!("nothing was changed; {hint}")
                        }
                    },
                );
                return Err(Failed::new(format!("move {onto} to {}: {error}", short(&target.0))).hint(hint));
            }
        }
    };
    drop(landing);
    let paths = repo.changed_paths(&head.commit, &target).map_err(git)?.len();
    let mut said = format!("{onto} moved from {} to {}, {paths} {} changed.\n", short(&head.commit.0), short(&target.0), plural(paths, "path"));
    if report.limit.is_some() {
        said.push_str("The run ended at a limit, with less done than it was asked for.\n");
    }
    if target != branch.commit {
        said.push_str("It is a merge, since both had moved: what was checked is the run's branch, not the merged tree.\n");
    }
    put(context, &said)?;
    Ok(0)
}

/// A move of the checkout that is plainly safe.
struct Move {
    head: Head,
    /// What people call the branch that is checked out.
    onto: String,
    target: CommitId,
}

/// Says where the checkout is to be moved from and to; `None` where it has what is to be landed.
fn judged(repo: &Repository, report: &Report, branch: &Branch, run: &str) -> Result<Option<Move>, Failed> {
    must_stand(repo, branch)?;
    let (head, onto) = checked_out(repo)?;
    if repo.is_ancestor(&branch.commit, &head.commit).map_err(git)? {
        return Ok(None);
    }
    must_be_clean(repo)?;
    must_be_whole(repo, report, branch)?;
    let target = target(repo, &head, branch, run)?;
    Ok(Some(Move { head, onto, target }))
}

/// Returns the branch that a run left; `None` where it changed nothing.
fn result(report: &Report, run: &str) -> Result<Option<Branch>, Failed> {
    match &report.outcome {
        Some(Outcome::Succeeded(_)) => Ok(report.branch.clone().filter(|branch| branch.made)),
        Some(Outcome::Failed(failure)) => Err(Failed::new(format!("land the run `{run}`: it failed: {}", line(&failure_text(failure), 300)))
            .hint(format!("`spinney show {run}` shows what it did"))),
        Some(Outcome::Skipped(_)) => Err(Failed::new(format!("land the run `{run}`: it was skipped"))),
        None => Err(Failed::new(format!("land the run `{run}`: it is not over")).hint(format!("`spinney resume {run}` goes on with it"))),
    }
}

/// What is landed is what the run left, and nothing that was put on its branch since.
fn must_stand(repo: &Repository, branch: &Branch) -> Result<(), Failed> {
    let name = short_name(&branch.name);
    match repo.ref_at(&branch.name).map_err(git)? {
        Some(commit) if commit == branch.commit => Ok(()),
        Some(commit) => Err(Failed::new(format!("land {name}: it moved from {} to {} since the run ended", short(&branch.commit.0), short(&commit.0)))
            .hint(format!("`git merge {name}` takes it as it is now"))),
        None if repo.has_commit(&branch.commit).map_err(git)? => Err(Failed::new(format!("land {name}: the branch is gone"))
            .hint(format!("its commit is still there: `git branch {name} {}` brings it back", branch.commit))),
        None => Err(Failed::new(format!("land {name}: the branch and its commit are gone"))),
    }
}

/// Nothing of what is landed may be missing: the checkout would stop in the middle.
fn must_be_whole(repo: &Repository, report: &Report, branch: &Branch) -> Result<(), Failed> {
    let Some(started) = &report.started else { return Ok(()) };
    let Unsound { missing, damaged } = repo.unsound_objects(&[branch.commit.clone()].into(), &started.base, false).map_err(git)?;
    let unsound: Vec<String> = missing.into_iter().chain(damaged).collect();
    if unsound.is_empty() {
        return Ok(());
    }
    Err(Failed::new(format!("land {}: these objects are not in the repository any more, or damaged: {}", short_name(&branch.name), named(&unsound)))
        .hint("`git fetch` from a clone that has them brings them back; `spinney doctor` looks at all runs"))
}

/// Returns what is checked out and what people call it.
fn checked_out(repo: &Repository) -> Result<(Head, String), Failed> {
    let head = repo.head().map_err(git)?;
    match &head.branch {
        Some(branch) => {
            let name = short_name(branch).to_owned();
            Ok((head, line(&name, 200)))
        }
        None => Err(Failed::usage("land onto the branch that is checked out: there is none, HEAD is detached").hint("`git switch BRANCH` checks one out")),
    }
}

fn must_be_clean(repo: &Repository) -> Result<(), Failed> {
    let changed = repo.tracked_changes().map_err(git)?;
    if changed.is_empty() {
        return Ok(());
    }
    Err(Failed::usage(format!("land into a checkout with changes: {}", named(&changed))).hint("commit them, or put them aside with `git stash`"))
}

/// Returns the commit to move to: the run's own, or a merge of both sides.
fn target(repo: &Repository, head: &Head, branch: &Branch, run: &str) -> Result<CommitId, Failed> {
    if repo.is_ancestor(&head.commit, &branch.commit).map_err(git)? {
        return Ok(branch.commit.clone());
    }
    let name = short_name(&branch.name);
    match repo.merge_commits(None, &head.commit, &branch.commit).map_err(git)? {
        Merged::Clean { tree } => {
            let meta = CommitMeta { title: format!("Merge branch '{name}'"), at: Clock::system().now(), ..CommitMeta::default() }.trailer("Spinney-Run", run);
            repo.commit_tree(&tree, &[head.commit.clone(), branch.commit.clone()], &meta).map_err(git)
        }
        Merged::Conflicted { files, .. } => {
            let paths: Vec<String> = files.into_iter().map(|file| file.path).collect();
            Err(Failed::new(format!("land {name}: it conflicts with what is checked out in {}", named(&paths)))
                .hint(format!("nothing was changed; by hand: `git merge {name}`, mend the files, `git add` them, `git commit`")))
        }
    }
}

fn named(paths: &[String]) -> String {
    let mut shown: Vec<String> = paths.iter().take(LISTED).map(|path| line(path, 100)).collect();
    if paths.len() > LISTED {
        shown.push(format!("and {} more", paths.len() - LISTED));
    }
    shown.join(", ")
}

fn git(error: GitError) -> Failed {
    SetupError::from(error).into()
}
