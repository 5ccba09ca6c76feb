//! A merge as a step: sources joined in the object database, conflicts settled by an agent, the joined tree checked.
use super::{
    Task, Workplace, place,
    session::{self, Opening},
};
use crate::{
    agent::{Agent, Trouble, blocking, note, stopping},
    event::{CommitId, Event, Failure, FailureKind, Isolation, MergeProgress, NodeId, Success},
    git::{CommitMeta, TreePolicy, Worktree},
    journal::{Conversation, MERGE},
    merge::{self, Conflict, Integration, MergeError, Options, Progress, Resolution, Resolver, Verified, Verifier},
    plan::{AgentSpec, MergeSpec, PlannedStep},
    tasks, tools,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Bytes of one conflicted file that a resolver is shown at once; it can read the rest.
const SHOWN_BYTES: usize = 12 * 1024;

pub(super) async fn run(task: &Task, step: &PlannedStep, spec: &MergeSpec) -> Result<Success, Trouble> {
    let onto = place::start(task, Isolation::Merge).await?;
    let verify = spec.verify.iter().map(|text| task.render("verify", &text.value)).collect::<Result<Vec<_>, _>>()?;
    let env = place::environment(task, step)?;
    let held = OnceLock::new();
    let resolver = spec.resolver.as_ref().map(|agent| AgentResolver { task, agent, env: env.clone(), held: &held, settled: Mutex::default() });
    let verifier = (!verify.is_empty()).then_some(Checks { task, step, commands: verify, env });
    let told = Told { task, held: &held };
    let job = Integration {
        repository: &task.services.repo,
        run: &task.run.run,
        node: &task.node,
        onto: &onto,
        sources: &task.sources,
        at: task.state.began.unwrap_or_default(),
        options: Options {
            mode: spec.mode,
            order: spec.order.clone(),
            attempts: spec.resolver_attempts.max(1),
            then: spec.then,
            on_red: spec.on_red,
            flaky_retries: spec.flaky_retries,
        },
        resolver: resolver.as_ref().map(|resolver| resolver as &dyn Resolver),
        verifier: verifier.as_ref().map(|verifier| verifier as &dyn Verifier),
        progress: &told,
        done: &task.state.deeds.merged,
    };
    let joined = merge::integrate(&job).await;
    if task.cancel.is_cancelled() {
        return Err(Trouble::Interrupted);
    }
    if let Some(trouble) = held.get().cloned() {
        return Err(trouble);
    }
    match joined {
        Ok(report) => {
            if let Some(commit) = &report.commit {
                place::keep_result(task, commit).await?;
            }
            clear_away(task, resolver.map(|resolver| resolver.settled.into_inner().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()).await;
            Ok(Success { output: report.output().into(), commit: report.commit })
        }
        Err(MergeError::Failed(failure)) => Err((*failure).into()),
        Err(MergeError::Red { commit, tail, report }) => {
            let message = format!(
                "the joined tree {} is red, so nothing was landed: {}",
                &commit.0[..commit.0.len().min(10)],
                tail.trim().lines().last().unwrap_or_default()
            );
            Err(Failure { output: report.output(), ..Failure::new(FailureKind::Verify, message) }
                .hint("the joined commit and all sources keep their refs under refs/spinney")
                .into())
        }
        Err(error @ (MergeError::Unsettled { .. } | MergeError::Git(_) | MergeError::Panicked(_))) => {
            Err(stopping(Failure::of(FailureKind::Merge, &error)).into())
        }
    }
}

/// Removes the worktrees of the sessions that settled conflicts: those of this process, and those of one that died.
async fn clear_away(task: &Task, mut sessions: BTreeSet<String>) {
    sessions.extend(task.helpers.keys().cloned());
    let slugs: BTreeSet<String> = sessions.iter().map(|helper| task.node.helper(helper).slug()).collect();
    place::discard_named(&task.services, slugs).await;
}

/// Records the progress of a merge. A resolver that was interrupted or waits for a person has not given up: nothing that
/// would follow from that is recorded.
struct Told<'a> {
    task: &'a Task,
    /// What holds it up, once something does.
    held: &'a OnceLock<Trouble>,
}

#[async_trait]
impl Progress for Told<'_> {
    async fn record(&self, progress: MergeProgress) -> Result<(), Failure> {
        if self.task.cancel.is_cancelled() || self.held.get().is_some() {
            return Err(Failure::new(FailureKind::Cancelled, "the merge was interrupted"));
        }
        let event = Event::MergeAdvanced { node: self.task.node.clone(), progress };
        self.task.recorder.record(event).await.map_err(|_| Failure::new(FailureKind::Cancelled, "the run is over"))
    }
}

/// Checks of a joined commit, in a worktree made for them.
struct Checks<'a> {
    task: &'a Task,
    step: &'a PlannedStep,
    commands: Vec<String>,
    env: BTreeMap<String, String>,
}

#[async_trait]
impl Verifier for Checks<'_> {
    async fn verify(&self, commit: &CommitId) -> Result<Verified, Failure> {
        let checked = place::check_apart(self.task, self.step, (MERGE, commit), &self.commands, &self.env).await.map_err(failure)?;
        Ok(Verified { passed: checked.passed, tail: checked.tail })
    }
}

fn failure(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Failed(failure) => failure,
        Trouble::Parked => Failure::new(FailureKind::Refusal, "it waits for a person"),
        Trouble::Interrupted => Failure::new(FailureKind::Cancelled, "it was interrupted"),
    }
}

/// An agent that settles conflicts, a session for each.
struct AgentResolver<'a> {
    task: &'a Task,
    agent: &'a Arc<AgentSpec>,
    env: BTreeMap<String, String>,
    /// What holds it up, once something does.
    held: &'a OnceLock<Trouble>,
    settled: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Resolver for AgentResolver<'_> {
    async fn resolve(&self, conflict: &Conflict) -> Resolution {
        match self.settle(conflict).await {
            Ok(resolution) => resolution,
            Err(trouble) => {
                if trouble.holds_up() {
                    // Who was first.
                    let _ = self.held.set(trouble.clone());
                }
                let failure = failure(trouble);
                // A session of its own has its turns and its time anew.
                if matches!(failure.kind, FailureKind::Limit(_)) {
                    return Resolution::Undone { reason: failure.message };
                }
                Resolution::GaveUp { reason: failure.message }
            }
        }
    }
}

impl AgentResolver<'_> {
    async fn settle(&self, conflict: &Conflict) -> Result<Resolution, Trouble> {
        let task = self.task;
        let helper = helper_name(conflict);
        let node = task.node.helper(&helper);
        let talk = task.helpers.get(&helper).map(|helper| helper.conversation.clone()).unwrap_or_default();
        let worktree = place::open(&task.services, (&node.slug(), &conflict.commit), talk.brief().is_none()).await?;
        let place = Workplace {
            worktree: Some(worktree.clone()),
            root: worktree.path().to_owned(),
            cwd: None,
            base: Some(conflict.commit.clone()),
            scope: Some(conflict.paths.iter().map(|path| globset::escape(path)).collect()),
            env: self.env.clone(),
            coming: None,
            links: Vec::new(),
        };
        let text = self.converse(&node, &place, talk, conflict).await?;
        let commit = self.capture(&node, &worktree, &place).await?;
        let Some(commit) = commit else { return Ok(Resolution::Undone { reason: format!("the resolver changed nothing: {text}") }) };
        let repo = task.services.repo.clone();
        let tree = blocking(FailureKind::Environment, move || repo.tree_of(&commit)).await?;
        // It stays until the settlement is recorded: a session taken up again after a crash has nothing more to do than
        // to hand over its files.
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).insert(helper);
        Ok(Resolution::Settled { tree, by: self.agent.name.clone(), beyond: Vec::new() })
    }

    async fn converse(&self, node: &NodeId, place: &Workplace, talk: Conversation, conflict: &Conflict) -> Result<String, Trouble> {
        let task = self.task;
        let opening = Opening { node, agent: self.agent.clone(), place: place.clone(), talk: &talk, cancel: &task.cancel };
        let (equipment, session) = task.sessions().open(opening).await?;
        let root = place.root.clone();
        let told = conflict.clone();
        let message = tasks::blocking(move || brief(&told, &root)).await.map_err(Failure::from)?;
        let brief = session::brief(&task.services, &task.plan, self.agent, (&message, None));
        let mut resolver = Agent::new(&equipment, session, talk);
        let ended = resolver.run(&brief).await;
        note(resolver.span(), &ended);
        ended
    }

    async fn capture(&self, node: &NodeId, worktree: &Arc<Worktree>, place: &Workplace) -> Result<Option<CommitId>, Trouble> {
        let policy = TreePolicy::within(place.scope.as_deref().unwrap_or_default()).map_err(|error| Failure::of(FailureKind::Merge, &error))?;
        let meta = CommitMeta::of_work(&self.task.run.run, node, "Settle a conflict", self.task.state.began.unwrap_or_default());
        let (workspaces, worktree) = (self.task.services.workspaces.clone(), worktree.clone());
        blocking(FailureKind::Merge, move || workspaces.capture(&worktree, worktree.base(), &policy, &meta).map(|captured| captured.commit)).await
    }
}

/// Names the session that settles a conflict: the same for the same conflict and attempt, after a crash too.
fn helper_name(conflict: &Conflict) -> String {
    format!("resolver-{}-{}", &conflict.commit.0[..conflict.commit.0.len().min(8)], conflict.attempt)
}

/// Tells a resolver what it has before it: both intents, each conflicted region verbatim.
fn brief(conflict: &Conflict, root: &std::path::Path) -> String {
    let mut text = format!(
        "<workspace>\nYou stand in {}\nYou may write only: {}\n</workspace>\n\nTwo pieces of work change the same places, and you settle how they stand together. \"ours\" is what was joined so far; \"theirs\" is: {}\n\nFiles in conflict:\n",
        root.display(),
        conflict.paths.join(", "),
        conflict.source.title,
    );
    for file in &conflict.files {
        let _ = writeln!(text, "- {} ({})", file.path, file.kind);
    }
    for message in conflict.messages.iter().take(20) {
        let _ = writeln!(text, "  {message}");
    }
    // What stands there may be a link to anything: only files of the tree are read.
    let paths: Vec<String> = conflict.files.iter().map(|file| file.path.clone()).collect();
    for file in tools::before(&paths, root) {
        if let Some(regions) = file.content.and_then(|content| regions(&String::from_utf8_lossy(&content))) {
            let _ = write!(text, "\nIn {}:\n{regions}\n", file.path);
        }
    }
    if let Some(why) = &conflict.rejected {
        let _ = write!(text, "\nYour last resolution was not accepted: {why}\n");
    }
    text.push_str(
        "\nKeep the intent of both sides. Edit the files so that no conflict marker (<<<<<<<, |||||||, =======, >>>>>>>) is left, then end your turn.",
    );
    text
}

/// Returns the conflicted regions of a file with their markers, each with its line number.
fn regions(content: &str) -> Option<String> {
    let mut text = String::new();
    let mut inside = false;
    for (at, line) in content.lines().enumerate() {
        if line.starts_with("<<<<<<<") {
            inside = true;
            let _ = writeln!(text, "(from line {})", at + 1);
        }
        if inside {
            text.push_str(line);
            text.push('\n');
        }
        if line.starts_with(">>>>>>>") {
            inside = false;
        }
        if text.len() > SHOWN_BYTES {
            text.push_str("(cut: read the file for the rest)\n");
            break;
        }
    }
    (!text.is_empty()).then_some(text)
}
