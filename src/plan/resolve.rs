//! What each step works with: its agent and text, the plan it calls, where it works, and whether that makes a commit.
use super::{
    AgentSpec, Plan,
    agents::{Agents, text},
    calls::Calls,
    findings::Findings,
    frames::{At, Frames},
};
use crate::{
    source::{Source, Spanned, codes},
    workflow::{Access, Base, OnItemFailure, Step, Text, Verb, Workflow, Workspace, WorkspaceKind},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A step's work with what other checks must know of it.
#[derive(Default)]
pub(super) struct Resolved {
    /// The agent of an agent's step, with the step's overrides.
    pub(super) agent: Option<Arc<AgentSpec>>,
    /// The agent that settles a merge's conflicts, or judges a choice.
    pub(super) helper: Option<Arc<AgentSpec>>,
    /// The agent that tries a failed item once more.
    pub(super) retry_with: Option<Arc<AgentSpec>>,
    /// The prompt, or the rubric of a judge.
    pub(super) prompt: Option<String>,
    /// The file that this text stands in, where that is one of its own.
    pub(super) file: Option<Arc<Source>>,
    /// Where it works.
    pub(super) workspace: Workspace,
    /// Whether it makes a commit.
    pub(super) writes: bool,
    /// Whether that is known: all that it names was found.
    pub(super) sure: bool,
    /// Whether it starts from one commit, in which the work of all that it needs has come together.
    pub(super) starts: bool,
}

/// Resolves the steps of a workflow, those of bodies before what they stand in.
pub(super) struct Resolver<'a, 'c, 'k> {
    pub(super) workflow: &'a Workflow,
    pub(super) frames: &'a Frames<'a>,
    pub(super) agents: &'c mut Agents<'a>,
    pub(super) calls: &'c mut Calls<'k>,
    /// What is called by whom.
    pub(super) called: HashMap<At, Arc<Plan>>,
    pub(super) files: BTreeMap<String, Arc<Source>>,
    /// What of `defaults.workspace` steps have taken up: all of it, and how trees are prepared that are only checked.
    taken: (bool, bool),
}

impl<'a, 'c, 'k> Resolver<'a, 'c, 'k> {
    pub(super) fn new(workflow: &'a Workflow, frames: &'a Frames<'a>, agents: &'c mut Agents<'a>, calls: &'c mut Calls<'k>) -> Resolver<'a, 'c, 'k> {
        Resolver { workflow, frames, agents, calls, called: HashMap::new(), files: BTreeMap::new(), taken: (false, false) }
    }

    /// Resolves all steps, frame by frame.
    pub(super) fn all(&mut self, findings: &mut Findings<'_>) -> Vec<Vec<Resolved>> {
        let mut all: Vec<Vec<Resolved>> = self.frames.all.iter().map(|_| Vec::new()).collect();
        for frame in (0..all.len()).rev() {
            let steps = self.frames.all[frame].steps.iter().enumerate();
            all[frame] = steps.map(|(step, written)| self.step(At { frame, step }, written, &all, findings)).collect();
        }
        self.unused_default(findings);
        all
    }

    /// Warns of what `defaults.workspace` says to nobody. What a configuration file says is for other workflows, too.
    fn unused_default(&self, findings: &mut Findings<'_>) {
        let Some(default) = &self.workflow.defaults.workspace else { return };
        let Workspace { base, setup, copy, link, sparse, env, .. } = &default.value;
        let for_work = [("base", *base == Base::Head), ("sparse", sparse.is_empty())];
        let for_checks = [("setup", setup.is_empty()), ("copy", copy.is_empty()), ("link", link.is_empty()), ("env", env.is_empty())];
        let unsaid = match self.taken {
            (true, _) => return,
            (false, true) => for_work.to_vec(),
            (false, false) => for_work.into_iter().chain(for_checks).collect(),
        };
        let keys: Vec<String> = unsaid.into_iter().filter(|(_, is_unsaid)| !is_unsaid).map(|(key, _)| format!("`{key}`")).collect();
        if keys.is_empty() || self.calls.catalog.defaults.workspace.as_ref() == Some(default) {
            return;
        }
        let (kind, whose) = if default.kind == WorkspaceKind::Worktree { ("worktree", "writes") } else { ("shared", "only reads") };
        let message = format!("no step takes {} of `defaults.workspace` up", keys.join(" and "));
        let warning = findings.warning(codes::UNUSED_DEFAULT, default.span, message);
        findings.report(warning.help(format!("`{kind}` is for a step that {whose} and has no `workspace` of its own; say it at the step that is meant")));
    }

    fn step(&mut self, at: At, step: &Step, inner: &[Vec<Resolved>], findings: &mut Findings<'_>) -> Resolved {
        let resolved = match &step.verb {
            Verb::Agent { agent, prompt } => self.agent(agent, prompt, step, findings),
            Verb::Run { .. } => {
                let workspace = self.workspace(step, if step.scope.is_some() { WorkspaceKind::Worktree } else { WorkspaceKind::Shared });
                let writes = step.scope.is_some() || workspace.kind == WorkspaceKind::Worktree;
                Resolved { starts: workspace.kind != WorkspaceKind::None, workspace, writes, sure: true, ..Resolved::default() }
            }
            Verb::Merge(merge) => {
                let helper = merge.resolver.as_ref().and_then(|name| self.settler(name, step, findings));
                Resolved { helper, workspace: self.checked(step), writes: true, sure: true, ..Resolved::default() }
            }
            Verb::Select(select) => {
                let helper = select.judge.as_ref().and_then(|judge| self.agents.at_work(&judge.agent, Some(step), findings));
                let (prompt, file) = select.judge.as_ref().and_then(|judge| self.told(judge.rubric.as_ref()?, findings)).unzip();
                Resolved { helper, prompt, file: file.flatten(), workspace: self.checked(step), writes: true, sure: true, ..Resolved::default() }
            }
            Verb::Approve(_) => Resolved { starts: true, sure: true, ..Resolved::default() },
            Verb::Workflow { workflow, .. } => {
                let plan = self.calls.plan(workflow, findings);
                let sure = plan.is_some();
                let writes = plan.as_ref().is_some_and(|plan| plan.steps().any(|step| step.writes));
                self.called.extend(plan.map(|plan| (at, plan)));
                Resolved { starts: true, writes, sure, ..Resolved::default() }
            }
            Verb::Loop(_) => {
                let body = self.frames.body(at).map(|frame| inner[frame].as_slice()).unwrap_or_default();
                let (writes, sure) = (body.iter().any(|step| step.writes), body.iter().all(|step| step.sure));
                Resolved { starts: true, writes, sure, ..Resolved::default() }
            }
        };
        let resolved = Resolved { sure: resolved.sure && !findings.flaws.of_step(&step.id), ..resolved };
        Resolved { retry_with: self.stand_in(step, &resolved, findings), workspace: none_unless_used(step, resolved.workspace), ..resolved }
    }

    fn agent(&mut self, name: &Spanned<String>, prompt: &Spanned<Text>, step: &Step, findings: &mut Findings<'_>) -> Resolved {
        let agent = self.agents.for_step(name, step, findings);
        let (prompt, file) = self.told(prompt, findings).unzip();
        let access = agent.as_ref().map(|agent| agent.access);
        let workspace = self.workspace(step, if access == Some(Access::Write) { WorkspaceKind::Worktree } else { WorkspaceKind::Shared });
        // An agent that is not known is taken for what its workspace says, so that one error does not become two.
        let access = access.filter(|_| !findings.flaws.of_entry("agents", name));
        let writes = access.map_or(workspace.kind == WorkspaceKind::Worktree, |access| access == Access::Write);
        let sure = agent.is_some() && !findings.flaws.of_entry("agents", name);
        Resolved { agent, prompt, file: file.flatten(), starts: workspace.kind != WorkspaceKind::None, workspace, writes, sure, ..Resolved::default() }
    }

    /// Looks a text up, with the file of its own that it may stand in.
    fn told(&mut self, written: &Spanned<Text>, findings: &mut Findings<'_>) -> Option<(String, Option<Arc<Source>>)> {
        let (text, path) = text(written, self.calls.catalog, findings)?;
        let file = path.map(|path| self.files.entry(path.clone()).or_insert_with(|| Arc::new(Source { name: path, text: text.clone() })).clone());
        Some((text, file))
    }

    /// Returns a step's workspace: what it says itself, or what `defaults` say for those of the kind that it has anyway.
    fn workspace(&mut self, step: &Step, usual: WorkspaceKind) -> Workspace {
        let writes = |kind: WorkspaceKind| kind == WorkspaceKind::Worktree;
        match (step.workspace.as_deref(), self.workflow.defaults.workspace.as_deref()) {
            (Some(own), _) => own.clone(),
            (None, Some(default)) if writes(default.kind) == writes(usual) => {
                self.taken.0 = true;
                default.clone()
            }
            (None, _) => Workspace { kind: usual, ..Workspace::default() },
        }
    }

    /// Returns how the trees are prepared in which the checks of a joined or chosen work run.
    fn checked(&mut self, step: &Step) -> Workspace {
        let default = self.workflow.defaults.workspace.as_deref().filter(|default| default.kind == WorkspaceKind::Worktree);
        self.taken.1 |= step.workspace.is_none() && default.is_some();
        let said = step.workspace.as_deref().or(default).cloned().unwrap_or_default();
        Workspace { setup: said.setup, copy: said.copy, link: said.link, env: said.env, ..Workspace::default() }
    }

    /// Finds the agent that settles a merge's conflicts; it must be able to write.
    fn settler(&mut self, name: &Spanned<String>, step: &Step, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let agent = self.agents.at_work(name, Some(step), findings)?;
        if agent.access != Access::Write && !findings.flaws.of_entry("agents", name) {
            let error = findings.error(codes::NEEDS_WORKTREE, name.span, format!("`{}` settles conflicts, so that it must write", name.value));
            findings.report(error.help("give it `access: write`"));
        }
        Some(agent)
    }

    /// Finds the agent that tries a failed item once more; it must be able to write where the first one is.
    fn stand_in(&mut self, step: &Step, resolved: &Resolved, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let OnItemFailure::RetryWith(name) = &step.for_each.as_ref()?.on_item_failure else { return None };
        if !matches!(step.verb, Verb::Agent { .. }) {
            let error =
                findings.error(codes::NOT_OF_THIS_VERB, name.span, format!("the items of `{}` have no agent that another could stand in for", step.id.value));
            findings.report(error.help("`retry` tries a failed step again"));
            return None;
        }
        let agent = self.agents.stand_in(name, step, findings)?;
        if resolved.sure && !findings.flaws.of_entry("agents", name) && resolved.writes != (agent.access == Access::Write) {
            let (does, help) = if resolved.writes { ("write", "give it `access: write`") } else { ("only read", "name an agent with `access: read`") };
            let error =
                findings.error(codes::NEEDS_WORKTREE, name.span, format!("`{}` stands in for an agent that can {does}, so that it must, too", name.value));
            findings.report(error.help(help));
        }
        Some(agent)
    }
}

/// What is neither an agent nor a command works nowhere.
fn none_unless_used(step: &Step, workspace: Workspace) -> Workspace {
    match &step.verb {
        Verb::Agent { .. } | Verb::Run { .. } => workspace,
        Verb::Merge(_) | Verb::Workflow { .. } | Verb::Select(_) | Verb::Approve(_) | Verb::Loop(_) => Workspace { kind: WorkspaceKind::None, ..workspace },
    }
}
