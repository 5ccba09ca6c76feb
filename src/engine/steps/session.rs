//! Sessions of agents, for whatever kind of step: what they are equipped with, and the sub-agents that they may start.
//!
//! A sub-agent is a helper session of the same node. It works in a worktree of its own, made of the files of the agent that
//! asked for it as they are at that moment, through the same gate: the hooks of that agent come before its own, and what
//! is denied to that agent is denied to it. What it changed the engine commits, and joins with the files of whoever asked.
use super::{Services, Task, Unkept, Whose, Workplace, cut, place, servers::lend_servers, services};
use crate::{
    agent::{Account, Agent, Delegates, Delivered, Done, Equipment, Order, Session, Trouble, blocking, note},
    clock::{Pulse, Timestamp},
    event::{Brief, CommitId, Delivery, Event, Failure, FailureKind, NodeId, RunStarted, Why},
    git::{CaptureError, Captured, CommitMeta, Content, Joined, TreePolicy, Worktree, is_lost},
    hooks::Permissions,
    journal::{Conversation, Ending, Next, NodeState, Recorder, Spent},
    message::{Message, ProviderTool, SUBMIT},
    plan::{AgentSpec, Plan},
    skills::Shelf,
    source::nearest,
    tools::{Submit, ToolOutput, agent::NAME},
    workflow::Access,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Bytes of a sub-agent's last words that the one who asked is told.
const ANSWER_BYTES: usize = 16 * 1024;
/// Paths that an answer lists.
const PATHS_LISTED: usize = 40;
/// Tries at work that cannot be committed.
const TRIES: u32 = 2;
/// Characters of a description in a list of agents.
const DESCRIPTION: usize = 200;

/// What all sessions of one node are made of.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) services: Arc<Services>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) recorder: Recorder,
    /// The account around those of the sessions.
    pub(crate) account: Arc<Account>,
    pub(crate) run: Arc<RunStarted>,
    /// The owner's attempt, and when it began.
    pub(crate) attempt: u32,
    pub(crate) began: Timestamp,
    /// The helper sessions that a process before this one has begun.
    pub(crate) helpers: Arc<BTreeMap<String, NodeState>>,
    /// The owner's signs of life, to which all of them add.
    pub(crate) pulse: Pulse,
    /// Whether the step tries again where no model can be had.
    pub(crate) is_retried: bool,
}

/// One session to be made.
pub(crate) struct Opening<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) agent: Arc<AgentSpec>,
    pub(crate) place: Workplace,
    /// What was said in it so far.
    pub(crate) talk: &'a Conversation,
    pub(crate) cancel: &'a CancellationToken,
}

impl Task {
    /// Returns what the sessions of this task are made of.
    pub(super) fn sessions(&self) -> Sessions {
        Sessions {
            services: self.services.clone(),
            plan: self.plan.clone(),
            recorder: self.recorder.clone(),
            account: self.account.clone(),
            run: self.run.clone(),
            attempt: self.state.attempts,
            began: self.state.began.unwrap_or_default(),
            helpers: self.helpers.clone(),
            pulse: self.pulse.clone(),
            is_retried: self.plan.step(&self.node.step).is_some_and(|step| step.retries_outages(self.state.handed_over)),
        }
    }
}

impl Sessions {
    /// Makes a session, with sub-agents where its agent may start some.
    pub(crate) async fn open(&self, opening: Opening<'_>) -> Result<(Equipment, Session), Failure> {
        let Opening { node, agent, place, talk, cancel } = opening;
        let allowance = talk.allowance("");
        let whose = Whose { node, run: &self.run, cancel, pulse: &self.pulse };
        let mut session = self.services.session(whose, agent.clone(), place.clone()).await?;
        (session.attempt, session.is_retried) = (self.attempt, self.is_retried);
        if !may_delegate(&agent) {
            let named = (format!("the budget of agent `{}`", agent.name), "raise the agent's `max_turns` or `budget`, or split its task");
            let account = Account::within(&self.account, named, agent.limits, talk.spent()).allowed(allowance, agent.asks());
            return Ok((self.services.equipment(&self.recorder, Arc::new(account), &self.pulse), session));
        }
        let mut all = *talk.spent();
        let below = |name: &str| node.helper.as_deref().is_none_or(|own| name.strip_prefix(own).is_some_and(|rest| rest.starts_with('-')));
        for (_, helper) in self.helpers.iter().filter(|(name, _)| below(name)) {
            all += *helper.conversation.spent();
        }
        let named = (format!("the budget that {node} shares with its sub-agents"), "raise its `max_turns` or `budget`, or hand over less");
        let account = Arc::new(Account::within(&self.account, named, agent.limits, &all).allowed(allowance, agent.asks()));
        let slots = Semaphore::new(agent.max_parallel.max(1) as usize);
        let sessions = Sessions { account: account.clone(), ..self.clone() };
        session.delegates = Some(Arc::new(SubAgents { sessions, node: node.clone(), agent, place, slots, opened: Mutex::default() }));
        Ok((self.services.equipment(&self.recorder, account, &self.pulse), session))
    }
}

/// Makes an agent's system text, with the agents it may start.
pub(super) fn system(shelf: &Shelf, plan: &Plan, agent: &AgentSpec, schema: Option<&Value>) -> String {
    let mut text = services::system(shelf, agent, schema);
    if may_delegate(agent) {
        text.push_str("\n\n# Sub-agents\nThe `Agent` tool hands a task to one of these:\n");
        for (name, other) in plan.agents.iter() {
            let description: String = other.description.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(DESCRIPTION).collect();
            let does = if other.access == Access::Write && agent.access == Access::Write { "reads and writes" } else { "only reads" };
            let _ = writeln!(text, "- {name} ({does}){}{description}", if description.is_empty() { "" } else { ": " });
        }
    }
    text
}

/// Returns the tools that run at the provider and are declared there. They pass no gate: a rule that would have forbidden one, or
/// asked, means that it is not declared.
pub(crate) fn declared(agent: &AgentSpec) -> Vec<ProviderTool> {
    let (rules, _) = Permissions::compile(&agent.rules, Path::new("/"));
    agent.provider_tools.iter().filter(|tool| !rules.restricts(tool.word()) && !rules.restricts(tool.claude())).copied().collect()
}

/// Freezes what an agent's session is begun with: its first message, and the schema of its answer where it has one.
pub(crate) fn brief(services: &Services, plan: &Plan, agent: &AgentSpec, (message, schema): (&str, Option<&Value>)) -> Brief {
    Brief {
        agent: agent.name.clone(),
        models: agent.model.choices.clone(),
        system: system(&services.shelf, plan, agent, schema),
        tools: services.toolbox.specs(&agent.tools),
        provider_tools: declared(agent),
        output_schema: schema.cloned(),
        message: Message::user(message),
    }
}

/// Gives a session the tool that takes its answer, where that must fit a schema; providers without a format for it declare it.
pub(super) fn lend_submit(brief: &Brief, equipment: &mut Equipment, session: &mut Session) {
    if brief.output_schema.is_some() {
        equipment.toolbox = Arc::new((*equipment.toolbox).clone().with(Arc::new(Submit::new())));
        let mut spec = (*session.spec).clone();
        spec.tools.push(SUBMIT.to_owned());
        session.spec = Arc::new(spec);
    }
}

pub(crate) fn may_delegate(agent: &AgentSpec) -> bool {
    agent.max_depth > 0 && agent.tools.iter().any(|tool| tool == NAME)
}

/// Begins the first message of an agent: where it stands and what it may do there.
pub(super) fn workspace(services: &Services, node: &NodeId, place: &Workplace) -> String {
    let mut text = format!(
        "<workspace>\nYou stand in {}\nYour work is {node}\nIt starts from commit {}\n",
        place.cwd().display(),
        place.base.as_ref().map_or("none", |base| base.0.as_str())
    );
    if let Some(scope) = &place.scope {
        let _ = writeln!(text, "You may write only: {}", scope.join(", "));
    }
    let _ = write!(text, "The date is {}\n</workspace>\n\n", &services.clock.now().to_string()[..10]);
    text
}

/// The sub-agents of one session.
struct SubAgents {
    sessions: Sessions,
    /// The session's node, its agent and where it works.
    node: NodeId,
    agent: Arc<AgentSpec>,
    place: Workplace,
    slots: Semaphore,
    /// The worktrees of sub-agents that have done their work, until it is delivered.
    opened: Mutex<BTreeMap<String, Arc<Worktree>>>,
}

#[async_trait]
impl Delegates for SubAgents {
    async fn present(&self) -> Result<CommitId, Trouble> {
        match (&self.place.worktree, &self.place.base) {
            (Some(worktree), _) => {
                let (workspaces, worktree) = (self.services().workspaces.clone(), worktree.clone());
                blocking(FailureKind::Environment, move || workspaces.checkpoint(&worktree)).await
            }
            (None, Some(base)) => Ok(base.clone()),
            (None, None) => Ok(self.sessions.run.base.clone()),
        }
    }

    async fn work(&self, order: Order<'_>) -> Result<Done, Trouble> {
        let agent = match self.agent_for(order.input) {
            Ok(agent) => agent,
            Err(why) => return Ok(Done { output: refused(why), work: None }),
        };
        let slot = tokio::select! {
            biased;
            () = order.cancel.cancelled() => None,
            slot = self.slots.acquire() => slot.ok(),
        };
        if slot.is_none() {
            return Err(Trouble::Interrupted);
        }
        let node = self.helper(order.name);
        match self.run(&node, &agent, order).await {
            Ok(done) => Ok(done),
            Err(Trouble::Failed(failure)) if failure.kind != FailureKind::NoRoom => {
                Ok(Done { output: self.failed(&node, order.base, &failure).await, work: None })
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn deliver(&self, order: Order<'_>, done: Done) -> Result<Delivered, Trouble> {
        let node = self.helper(order.name);
        let Done { mut output, work } = done;
        let mut before = None;
        if let (Some((commit, paths)), Some(mine)) = (&work, &self.place.worktree) {
            match self.bring(&node, mine, (order.base, commit)).await? {
                Delivery::Joined { before: was, after } => {
                    let (workspaces, mine) = (self.services().workspaces.clone(), mine.clone());
                    blocking(FailureKind::Environment, move || workspaces.rollback(&mine, &after)).await?;
                    let _ = write!(output.text, "\n\n[Its changes are in your files: {}]", listed(paths));
                    before = Some(was);
                }
                Delivery::Conflicted { paths } => {
                    let _ = write!(
                        output.text,
                        "\n\n[Its changes do not fit what you have by now, in {}. Nothing of yours was changed; its work is kept as {}, commit {commit}]",
                        listed(&paths),
                        self.result_ref(&node)
                    );
                    output.is_error = true;
                }
            }
        }
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(order.name);
        match (opened, &work) {
            (Some(worktree), Some((commit, _))) => self.clear(&worktree, Some(commit.clone())).await,
            (Some(worktree), None) => self.clear(&worktree, None).await,
            (None, _) => {}
        }
        Ok(Delivered { output, before })
    }
}

impl SubAgents {
    fn services(&self) -> &Services {
        &self.sessions.services
    }

    fn helper(&self, name: &str) -> NodeId {
        let name = self.node.helper.as_ref().map_or_else(|| format!("agent-{name}"), |own| format!("{own}-{name}"));
        self.node.helper(&name)
    }

    fn known(&self, node: &NodeId) -> Option<&NodeState> {
        self.sessions.helpers.get(node.helper.as_deref()?)
    }

    fn slug(&self, node: &NodeId) -> String {
        place::slug(node, self.sessions.attempt)
    }

    fn result_ref(&self, node: &NodeId) -> String {
        self.services().workspaces.ref_name(&self.slug(node), "result")
    }

    /// Makes the agent that does a task: it may do what it may by itself, and nothing that is denied to the one who asks.
    fn agent_for(&self, input: &Value) -> Result<Arc<AgentSpec>, String> {
        let chief = &self.agent;
        let name = input["subagent_type"].as_str().unwrap_or_default();
        let known = &self.sessions.plan.agents;
        let found = if name == chief.name { Some(chief) } else { known.get(name) };
        let Some(found) = found else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            let hint = nearest(name, names.iter().copied()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            return Err(format!("there is no agent `{name}`; {hint}There are: {}", names.join(", ")));
        };
        let mut own = (**found).clone();
        own.max_depth = own.max_depth.min(chief.max_depth - 1);
        join(&mut own.rules.deny, &chief.rules.deny);
        join(&mut own.rules.ask, &chief.rules.ask);
        own.sandbox = own.sandbox.within(&chief.sandbox);
        let mut hooks = chief.hooks.clone();
        join(&mut hooks, &own.hooks);
        own.hooks = hooks;
        if chief.access == Access::Read {
            own.access = Access::Read;
            own.rules.allow.retain(|rule| chief.rules.allow.contains(rule));
        }
        let toolbox = &self.services().toolbox;
        let may = |tool: &String| match tool.as_str() {
            NAME => own.max_depth > 0,
            "Bash" => true,
            _ => own.access == Access::Write || tool.starts_with("mcp__") || toolbox.get(tool).is_some_and(|tool| tool.only_reads()),
        };
        own.tools = own.tools.iter().filter(|tool| may(tool) && !own.rules.deny.contains(tool)).cloned().collect();
        Ok(Arc::new(own))
    }

    /// Has the task done, and its work committed.
    async fn run(&self, node: &NodeId, agent: &Arc<AgentSpec>, order: Order<'_>) -> Result<Done, Trouble> {
        let known = self.known(node);
        let captured = known.and_then(|known| known.deeds.captured.clone());
        if let (Some((commit, _)), Some(known)) = (&captured, known) {
            // Its conversation was over when its work was committed.
            self.keep(node, commit).await?;
            let words = if let Next::End(Ending::Done { text }) = known.conversation.next() { text } else { String::new() };
            self.note_worktree(node, order).await?;
            return Ok(Done { output: answer(node, &words, known.conversation.spent()), work: captured });
        }
        let at_work = known.is_some_and(|known| known.conversation.brief().is_some() && !matches!(known.conversation.next(), Next::End(_)));
        let path = self.services().workspaces.path(&self.slug(node));
        if at_work && is_lost(&path, order.base) {
            let why = place::lost_worktree(&self.services().repo, (self.services().workspaces.run(), &self.slug(node)), &path)
                .map_err(|error| Failure::of(FailureKind::Environment, &error))?;
            return Err(Failure::new(FailureKind::Isolation, why).into());
        }
        let is_new = known.is_none_or(|known| known.deeds.workspace.is_none());
        let worktree = place::open(self.services(), (&self.slug(node), order.base), is_new).await?;
        if is_new {
            let event = Event::WorkspaceMade {
                node: node.clone(),
                base: order.base.clone(),
                isolation: self.services().workspaces.isolation().into(),
                path: worktree.path().display().to_string(),
                command: None,
            };
            self.sessions.recorder.record(event).await?;
        }
        let place = self.workplace(&worktree, agent, order.base);
        let talk = known.map(|known| known.conversation.clone()).unwrap_or_default();
        let message = format!("{}{}", workspace(self.services(), node, &place), order.input["prompt"].as_str().unwrap_or_default());
        let mut brief = brief(self.services(), &self.sessions.plan, agent, (&message, None));
        let opening = Opening { node, agent: agent.clone(), place: place.clone(), talk: &talk, cancel: order.cancel };
        let (mut equipment, mut session) = self.sessions.open(opening).await?;
        let lent = lend_servers(&mut brief, &mut equipment, &mut session).await?;
        let mut worker = Agent::new(&equipment, session, talk);
        let ended = self.converse(&brief, &mut worker, &place, order).await;
        lent.end().await;
        note(worker.span(), &ended);
        let (text, work) = ended?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(order.name.to_owned(), worktree);
        Ok(Done { output: answer(node, &text, worker.talk().spent()), work })
    }

    /// Finds the worktree again that a process left after the work in it was committed, so that it can be removed.
    async fn note_worktree(&self, node: &NodeId, order: Order<'_>) -> Result<(), Trouble> {
        let (workspaces, slug, base) = (self.services().workspaces.clone(), self.slug(node), order.base.clone());
        let found = blocking(FailureKind::Environment, move || {
            // Opening it would make one where there is none.
            if workspaces.slugs()?.contains(&slug) { workspaces.open(&slug, &base).map(Some) } else { Ok(None) }
        });
        if let Some(worktree) = found.await? {
            self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(order.name.to_owned(), Arc::new(worktree));
        }
        Ok(())
    }

    fn workplace(&self, worktree: &Arc<Worktree>, agent: &AgentSpec, base: &CommitId) -> Workplace {
        let root = worktree.path().to_owned();
        let cwd = self.place.cwd().strip_prefix(&self.place.root).ok().map(|below| root.join(below)).filter(|cwd| cwd.is_dir());
        Workplace {
            worktree: (agent.access == Access::Write).then(|| worktree.clone()),
            root,
            cwd,
            base: Some(base.clone()),
            scope: self.place.scope.clone(),
            env: self.place.env.clone(),
            coming: None,
            links: Vec::new(),
        }
    }

    async fn converse(
        &self,
        brief: &Brief,
        worker: &mut Agent<'_>,
        place: &Workplace,
        order: Order<'_>,
    ) -> Result<(String, Option<(CommitId, Vec<String>)>), Trouble> {
        loop {
            let text = worker.run(brief).await?;
            let Some(worktree) = &place.worktree else { return Ok((text, None)) };
            let node = worker.session().node.clone();
            let model = worker.talk().model().map(str::to_owned);
            match self.capture(&node, worktree, place, (brief, model.as_deref(), order)).await? {
                Ok(Captured { commit: None, .. }) => return Ok((text, None)),
                Ok(Captured { commit: Some(commit), paths }) => {
                    self.sessions.recorder.record(Event::WorkCaptured { node: node.clone(), commit: commit.clone(), paths: paths.clone() }).await?;
                    self.keep(&node, &commit).await?;
                    return Ok((text, Some((commit, paths))));
                }
                Err(policy) if worker.talk().tally().reds + 1 >= TRIES => return Err(Failure::new(FailureKind::Policy, policy).into()),
                Err(policy) => worker.tell(&format!("Your work cannot be committed as it is: {policy}\nMend that."), Why::VerifyRed).await?,
            }
        }
    }

    async fn capture(
        &self,
        node: &NodeId,
        worktree: &Arc<Worktree>,
        place: &Workplace,
        (brief, model, order): (&Brief, Option<&str>, Order<'_>),
    ) -> Result<Result<Captured, String>, Trouble> {
        let policy = match &place.scope {
            None => TreePolicy::default(),
            Some(globs) => TreePolicy::within(globs).map_err(|error| Failure::of(FailureKind::Template, &error))?,
        };
        let title = order.input["description"].as_str().unwrap_or_default();
        let meta = CommitMeta::of_work(&self.sessions.run.run, node, title, self.sessions.began).by(self.sessions.attempt, Some(&brief.agent), model);
        let (workspaces, worktree) = (self.services().workspaces.clone(), worktree.clone());
        blocking(FailureKind::Environment, move || match workspaces.capture(&worktree, worktree.base(), &policy, &meta) {
            Ok(captured) => Ok(Ok(captured)),
            Err(policy @ CaptureError::Policy(_)) => Ok(Err(policy.to_string())),
            Err(CaptureError::Git(error)) => Err(error),
        })
        .await
    }

    /// Says what becomes of a sub-agent's work, recorded before any file is touched.
    async fn bring(&self, node: &NodeId, mine: &Arc<Worktree>, (base, commit): (&CommitId, &CommitId)) -> Result<Delivery, Trouble> {
        if let Some(delivery) = self.known(node).and_then(|known| known.deeds.delivered.clone()) {
            return Ok(delivery);
        }
        let (workspaces, mine, base, commit) = (self.services().workspaces.clone(), mine.clone(), base.clone(), commit.clone());
        let delivery = match blocking(FailureKind::Environment, move || workspaces.join(&mine, &base, &commit)).await? {
            Joined::Clean { before, after } => Delivery::Joined { before, after },
            Joined::Conflicted { paths } => Delivery::Conflicted { paths },
        };
        self.sessions.recorder.record(Event::WorkDelivered { node: node.clone(), delivery: delivery.clone() }).await?;
        Ok(delivery)
    }

    async fn keep(&self, node: &NodeId, commit: &CommitId) -> Result<(), Trouble> {
        let (workspaces, slug, name, commit) = (self.services().workspaces.clone(), self.slug(node), self.result_ref(node), commit.clone());
        blocking(FailureKind::Environment, move || workspaces.finish(&slug, (&name, &commit))).await
    }

    /// Removes a sub-agent's worktree: where it has work, only once all of that is in its commit.
    async fn clear(&self, worktree: &Arc<Worktree>, commit: Option<CommitId>) {
        let (workspaces, worktree) = (self.services().workspaces.clone(), worktree.clone());
        let removed = blocking(FailureKind::Environment, move || workspaces.remove(&worktree, commit.as_ref().map_or(Content::Discard, Content::Captured)));
        if let Err(Trouble::Failed(failure)) = removed.await {
            tracing::warn!(target: crate::trace::TARGET, "the worktree of a sub-agent stays: {}", failure.message);
        }
    }

    /// Says why a sub-agent gave no answer. What it has in its files is kept as a checkpoint, and its worktree stays.
    async fn failed(&self, node: &NodeId, base: &CommitId, failure: &Failure) -> ToolOutput {
        let name = self.services().workspaces.ref_name(&self.slug(node), "checkpoint");
        let known = self.known(node).and_then(|known| known.deeds.checkpoint.clone());
        let unkept = Unkept { node: node.clone(), attempt: self.sessions.attempt, base: base.clone(), known, captured: None };
        let kept = unkept.keep(self.services(), &self.sessions.recorder);
        let kept = match kept.await {
            Ok(true) => format!("\n[Nothing of yours was changed. Its files are kept as {name}]"),
            Ok(false) => String::new(),
            Err(_) => "\n[Nothing of yours was changed. Its files stay in its worktree]".to_owned(),
        };
        refused(format!("the sub-agent {node} failed: {}{kept}", failure.message))
    }
}

/// Makes the answer of a sub-agent: its last words, cut where they are long.
fn answer(node: &NodeId, words: &str, spent: &Spent) -> ToolOutput {
    let words = words.trim();
    let text = cut(words, ANSWER_BYTES, "the answer");
    let response = json!({
        "status": "completed",
        "agentId": node.to_string(),
        "content": [{"type": "text", "text": text}],
        "totalToolUseCount": spent.calls,
        "totalTokens": spent.usage.total(),
        "usage": {
            "input_tokens": spent.usage.input,
            "output_tokens": spent.usage.output,
            "cache_read_input_tokens": spent.usage.cache_read,
            "cache_creation_input_tokens": spent.usage.cache_write,
        },
    });
    ToolOutput { text, response, is_error: false, whole: (words.len() > ANSWER_BYTES).then(|| words.as_bytes().to_vec()) }
}

fn join(into: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !into.contains(one) {
            into.push(one.clone());
        }
    }
}

fn refused(text: String) -> ToolOutput {
    ToolOutput { response: Value::String(text.clone()), text, is_error: true, whole: None }
}

fn listed(paths: &[String]) -> String {
    let mut shown: Vec<&str> = paths.iter().take(PATHS_LISTED).map(String::as_str).collect();
    let more = format!("and {} more", paths.len().saturating_sub(PATHS_LISTED));
    if paths.len() > PATHS_LISTED {
        shown.push(&more);
    }
    shown.join(", ")
}
