//! What a run's records alone say about it: shared by `runs`, `show`, `diff` and `land`.
//!
//! Unlike the journal's own fold this one needs no plan, so that what a run did can be read although its workflow has been
//! changed or deleted since. It judges nothing: records that the engine would refuse are shown as they stand.
mod lookup;
mod session;
mod words;

use super::screen::{Tone, price};
use crate::{
    clock::Timestamp,
    engine::{Inbox, Letter, Says},
    event::{
        CommitId, Event, Failure, FailureKind, Given, Limit, MergeProgress, NodeId, Origin, Outcome, Record, Repeated, RunStarted, SelectProgress, SkipCause,
        StepId, Success, Wish,
    },
    journal::{self, Branch, Conversation, FINALLY, LeaseError, ON_FAILURE, Question, RunDir, Spent, Workspace},
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) use lookup::{FoundRun, load_run, pick, put, put_bytes, repository};
pub(super) use session::{CallShown, Entry, HookSaid, Turn, entries};
pub(super) use words::{Cell, Table, block, duration, in_short, indent, json_text, line, plain, safe_diagnostics, wrapped};

/// Columns of a screen, whatever the terminal's: what is tested is what is seen.
pub(super) const WIDTH: usize = 100;

/// One run as its records tell it.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) started: Option<RunStarted>,
    pub(super) began: Timestamp,
    pub(super) last: Timestamp,
    pub(super) resumed: usize,
    /// What was said last of how it is carried out.
    pub(super) given: Given,
    pub(super) spent: Spent,
    pub(super) limit: Option<Limit>,
    pub(super) branch: Option<Branch>,
    pub(super) outcome: Option<Outcome>,
    pub(super) orchestrator: Option<NodeId>,
    pub(super) last_words: Option<String>,
    /// What of that was used by the run that it follows from.
    pub(super) held: Spent,
    /// The orchestrators, those of called workflows too.
    watchers: BTreeSet<NodeId>,
    /// What people have said and nobody has taken up.
    pub(super) letters: Vec<Letter>,
    /// The commits that keep the files of attempts without a result: node, attempt and commit, the last of each.
    pub(super) kept: BTreeMap<(NodeId, u32), CommitId>,
    /// What was under way when a process ended, and was done again.
    pub(super) again: Vec<Repeated>,
    nodes: BTreeMap<NodeId, Node>,
    /// In the order in which they are first spoken of.
    order: Vec<NodeId>,
}

/// One node as its records tell it; what belongs to an attempt is the last attempt's.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) attempts: u32,
    pub(super) began: Option<Timestamp>,
    pub(super) last: Timestamp,
    pub(super) spent: Spent,
    pub(super) workspace: Option<Workspace>,
    pub(super) captured: Option<(CommitId, Vec<String>)>,
    pub(super) merged: Vec<MergeProgress>,
    /// Nothing but the questions of it are kept.
    pub(super) asks: Conversation,
    pub(super) words: usize,
    /// Whether an agent works there.
    pub(super) is_agent: bool,
    pub(super) selected: Vec<SelectProgress>,
    /// Whether all that is told of it is of the run that this one follows from.
    pub(super) is_held: bool,
    pub(super) retry: Option<Failure>,
    /// Why it waits for its model, until the run is resumed.
    pub(super) parked: Option<Failure>,
    pub(super) outcome: Option<Outcome>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Succeeded,
    /// It succeeded with less than it was asked for, since a limit was reached.
    Partial,
    Failed,
    /// Somebody called it off.
    Cancelled,
    Skipped,
    /// A living process has it, where it says who it is by this id.
    Running(Option<u32>),
    /// It waits for a person, or for a model.
    Parked,
    /// What it waited for has been answered, and nobody has taken that up.
    Answered,
    /// Nobody works on it.
    Interrupted,
}

impl Standing {
    /// Returns the one word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Standing::Succeeded => "succeeded",
            Standing::Partial => "succeeded in part",
            Standing::Failed => "failed",
            Standing::Cancelled => "cancelled",
            Standing::Skipped => "skipped",
            Standing::Running(_) => "running",
            Standing::Parked => "parked",
            Standing::Answered => "answered",
            Standing::Interrupted => "interrupted",
        }
    }

    /// Returns how the word is meant.
    pub(super) fn tone(self) -> Tone {
        match self {
            Standing::Succeeded => Tone::Good,
            Standing::Failed => Tone::Bad,
            Standing::Skipped => Tone::Dim,
            Standing::Running(_) => Tone::Plain,
            Standing::Cancelled | Standing::Partial | Standing::Parked | Standing::Answered | Standing::Interrupted => Tone::Warn,
        }
    }
}

impl Report {
    /// Folds records, whatever they are.
    pub(super) fn of(records: &[Record]) -> Report {
        let mut report = Report { began: records.first().map(|record| record.at).unwrap_or_default(), ..Report::default() };
        for record in records {
            report.last = record.at;
            report.fold(record);
        }
        report.end_endings();
        report
    }

    /// Adds the letters that nobody has taken up yet.
    pub(super) fn with_letters(mut self, dir: &RunDir) -> Report {
        let inbox = Inbox::of(dir.path());
        self.letters = inbox.waiting().iter().filter_map(|name| inbox.read(name)).collect();
        self
    }

    /// Returns who has called the run off by a letter that nobody has taken up yet.
    pub(super) fn called_off_by(&self) -> Option<&str> {
        self.letters.iter().find(|letter| letter.says == Says::Cancel && self.outcome.is_none()).map(|letter| letter.by.as_str())
    }

    /// Returns who has answered a question by a letter that nobody has taken up yet.
    pub(super) fn answered_by(&self, id: &NodeId, question: &Question) -> Option<&str> {
        let answers = |letter: &&Letter| letter.node == *id && matches!(&letter.says, Says::Answer { call, .. } if *call == question.call);
        self.letters.iter().find(answers).map(|letter| letter.by.as_str())
    }

    /// Returns the question that a letter answers.
    pub(super) fn asked(&self, letter: &Letter) -> Option<&Question> {
        let Says::Answer { call, .. } = &letter.says else { return None };
        self.nodes.get(&letter.node)?.questions().find(|question| question.call == *call)
    }

    /// Returns how the run stands, given who has it now.
    pub(super) fn standing(&self, owner: Option<&LeaseError>) -> Standing {
        match (&self.outcome, owner) {
            (Some(Outcome::Succeeded(_)), _) if self.limit.is_some() || self.nodes.values().any(Node::is_left_out) => Standing::Partial,
            (Some(Outcome::Succeeded(_)), _) => Standing::Succeeded,
            (Some(Outcome::Failed(failure)), _) if failure.kind == FailureKind::Cancelled => Standing::Cancelled,
            (Some(Outcome::Failed(_)), _) => Standing::Failed,
            (Some(Outcome::Skipped(_)), _) => Standing::Skipped,
            (None, Some(LeaseError::Held { pid, .. })) => Standing::Running(Some(*pid)),
            (None, Some(LeaseError::HeldByUnknown { .. } | LeaseError::Io { .. })) => Standing::Running(None),
            (None, None) if self.nodes.iter().any(|(id, node)| self.is_at_work(id, node)) => Standing::Interrupted,
            (None, None) if !self.questions().is_empty() || self.nodes.values().any(|node| node.parked.is_some()) => Standing::Parked,
            (None, None) if self.nodes.values().any(Node::is_asking) => Standing::Answered,
            (None, None) => Standing::Interrupted,
        }
    }

    /// Returns whether something was being done at a node when the last record was made: it had begun, and neither waited for
    /// a person or a model itself nor for what is inside of it. While more of a budget is asked for, who wants some waits.
    fn is_at_work(&self, id: &NodeId, node: &Node) -> bool {
        let waits = |node: &Node| node.is_asking() || node.parked.is_some();
        let stands_in = |other: &NodeId| other.is_inside(id) || (other.owner() == *id && other.helper.is_some());
        node.attempts > 0
            && node.outcome.is_none()
            && !waits(node)
            && !self.wants_more(id)
            && !self.nodes.iter().any(|(other, node)| stands_in(other) && (other.helper.is_none() || waits(node)))
    }

    /// Returns whether a person is being asked for more of a budget that holds for a node.
    fn wants_more(&self, id: &NodeId) -> bool {
        let name = id.to_string();
        let holds = |whose: &str| {
            let rest = name.strip_prefix(whose.strip_suffix("()").unwrap_or(whose));
            whose.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '@', ':']))
        };
        self.nodes.get(&journal::account()).is_some_and(|asking| asking.questions().any(|open| holds(journal::whose(&open.call))))
    }

    /// Returns the node that people write like this.
    pub(super) fn named(&self, name: &str) -> Option<(&NodeId, &Node)> {
        self.nodes.iter().find(|(id, _)| id.to_string() == name)
    }

    /// Returns all nodes as a tree: the steps in the order in which they were first spoken of, each followed by its helpers,
    /// its items and what ran inside of it; the orchestrator last.
    pub(super) fn nodes(&self) -> Vec<(&NodeId, &Node)> {
        let mut below: BTreeMap<Option<NodeId>, Vec<&NodeId>> = BTreeMap::new();
        for id in &self.order {
            below.entry(self.owner_of(id)).or_default().push(id);
        }
        for ids in below.values_mut() {
            ids.sort_by_key(|id| (self.orchestrator.as_ref().is_some_and(|watcher| watcher.step == id.step && id.within.is_empty()), id.helper.is_none()));
        }
        let mut open: Vec<&NodeId> = below.remove(&None).unwrap_or_default().into_iter().rev().collect();
        let mut nodes = Vec::with_capacity(self.order.len());
        while let Some(id) = open.pop() {
            open.extend(below.remove(&Some(id.clone())).unwrap_or_default().into_iter().rev());
            nodes.extend(self.nodes.get(id).map(|node| (id, node)));
        }
        nodes
    }

    /// Returns how many nodes stand around one.
    pub(super) fn depth(&self, id: &NodeId) -> usize {
        std::iter::successors(self.owner_of(id), |id| self.owner_of(id)).count()
    }

    /// Returns the node that another belongs to, of those that are spoken of.
    fn owner_of(&self, id: &NodeId) -> Option<NodeId> {
        let above = |id: &NodeId| match (&id.helper, &id.item) {
            (Some(_), _) => Some(id.owner()),
            (None, Some(_)) => Some(id.whole()),
            (None, None) => id.opener(),
        };
        std::iter::successors(above(id), above).find(|id| self.nodes.contains_key(id))
    }

    /// Returns the questions that wait for a person, in the order of the nodes.
    pub(super) fn questions(&self) -> Vec<(&NodeId, &Question)> {
        let all = self.nodes().into_iter().flat_map(|(id, node)| node.questions().map(move |question| (id, question)));
        all.filter(|(id, question)| self.outcome.is_none() && self.answered_by(id, question).is_none()).collect()
    }

    /// Returns the questions that letters answer which nobody has taken up yet.
    pub(super) fn answered(&self) -> Vec<(&NodeId, &Question)> {
        let all = self.nodes().into_iter().flat_map(|(id, node)| node.questions().map(move |question| (id, question)));
        all.filter(|(id, question)| self.answered_by(id, question).is_some()).collect()
    }

    /// Returns what people call a question by: its node, with its number where the node asks more than one thing.
    pub(super) fn called(&self, id: &NodeId, question: &Question) -> String {
        let asks_more = self.nodes.get(id).is_some_and(|node| node.questions().count() > 1);
        if asks_more { format!("{id}#{}", question.number) } else { id.to_string() }
    }

    /// Returns the steps all of whose items have ended and that stay open for what the orchestrator of their workflow may
    /// still do, which waits for an answer.
    pub(super) fn held_open(&self) -> Vec<&NodeId> {
        let asks = |step: &NodeId| self.questions().iter().any(|(id, _)| id.owner() == *step);
        let watchers: Vec<&NodeId> = self.watchers.iter().filter(|watcher| asks(watcher)).collect();
        let is_held = |id: &NodeId, node: &Node| {
            let mut items = self.nodes.iter().filter(|(item, _)| item.item.is_some() && item.helper.is_none() && item.whole() == *id).peekable();
            let watched = || watchers.iter().any(|watcher| watcher.within == id.within);
            id.item.is_none() && node.outcome.is_none() && watched() && items.peek().is_some() && items.all(|(_, item)| item.outcome.is_some())
        };
        self.nodes().into_iter().filter(|(id, node)| is_held(id, node)).map(|(id, _)| id).collect()
    }

    /// Returns how many of the workflow's own steps have ended, and how many are spoken of. The orchestrator, the endings and
    /// what runs inside of steps are none.
    pub(super) fn steps(&self) -> (usize, usize) {
        let is_own = |id: &StepId| *id != journal::account().step && ![ON_FAILURE, FINALLY].contains(&id.0.as_str());
        let is_watcher = |id: &StepId| self.orchestrator.as_ref().is_some_and(|orchestrator| orchestrator.step == *id);
        let own = self.order.iter().filter(|id| id.within.is_empty()).map(|id| &id.step).filter(|id| is_own(id) && !is_watcher(id));
        let steps: BTreeSet<&StepId> = own.collect();
        let ended = steps.iter().filter(|step| self.nodes.get(&NodeId::step(step)).is_some_and(|node| node.outcome.is_some())).count();
        (ended, steps.len())
    }

    /// Returns what so much cost, for a column: `-` where nothing was paid, `?` where no price is known, `>` where some
    /// are not. What a script said costs nothing.
    pub(super) fn price(&self, spent: &Spent) -> String {
        price(spent, self.started.as_ref().is_some_and(RunStarted::is_scripted))
    }

    /// Returns whether what failed inside of a node says all that its own failure says.
    pub(super) fn is_said_below(&self, id: &NodeId, failure: &Failure) -> bool {
        let says = |(other, node): (&NodeId, &Node)| {
            let Some(inner) = node.outcome.as_ref().and_then(Outcome::failure) else { return false };
            (id.item.is_none() && other.item.is_some() && other.whole() == *id) || (other.is_inside(id) && failure.message.ends_with(&inner.message))
        };
        self.nodes.iter().any(says)
    }

    /// Returns the run's name, as the records give it.
    pub(super) fn run(&self) -> String {
        self.started.as_ref().map(|started| started.run.to_string()).unwrap_or_default()
    }

    /// Returns the run that this one follows from, and how many of its records hold.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.started.as_ref().and_then(|started| started.origin.as_ref())
    }

    fn fold(&mut self, record: &Record) {
        let is_held = self.origin().is_some_and(|origin| (1..=origin.held).contains(&record.seq));
        if let Some(node) = record.event.node() {
            let own = self.touch(node, record);
            if own.is_held && !is_held {
                own.began = None;
            }
            own.is_held = is_held;
            own.fold(record);
            if node.item.is_some() && !is_held {
                self.item_at_work(&node.whole(), record.at);
            }
        }
        match &record.event {
            Event::RunStarted(started) => {
                self.given = started.given.clone();
                self.started = Some((**started).clone());
            }
            Event::RunResumed { given, again, .. } => {
                self.again.extend_from_slice(again);
                self.given = given.clone().unwrap_or_else(|| std::mem::take(&mut self.given));
                self.resumed += 1;
                self.nodes.values_mut().for_each(|node| node.parked = None);
            }
            Event::ItemsAdded { step, items, .. } => {
                for item in items {
                    self.touch(&step.with_item(&item.key), record);
                }
            }
            Event::CheckpointKept { node, commit } => {
                let attempt = self.nodes.get(&node.owner()).map_or(1, |owner| owner.attempts);
                self.kept.insert((node.clone(), attempt), commit.clone());
            }
            Event::WorkCaptured { node, .. } => {
                let attempt = self.nodes.get(&node.owner()).map_or(1, |owner| owner.attempts);
                self.kept.remove(&(node.clone(), attempt));
            }
            Event::LimitReached { limit } => self.limit = Some(*limit),
            Event::BranchIntended { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: false }),
            Event::BranchMade { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: true }),
            Event::RunFinished { outcome } => self.outcome = Some(outcome.clone()),
            Event::OrchestratorWoken { node, .. } => {
                self.watchers.insert(node.clone());
                if node.within.is_empty() {
                    self.orchestrator = Some(node.clone());
                }
            }
            Event::OrchestratorRested { node, text, failure: None } if node.within.is_empty() && !text.trim().is_empty() => {
                self.last_words = Some(text.clone());
            }
            Event::ModelReplied { reply, .. } => self.spent += Spent::of(reply),
            Event::AttemptsLost { usage, usd, .. } => self.spent += Spent::without_reply(usage, *usd),
            Event::ToolFinished { .. } => self.spent.calls += 1,
            // The rest is about one node alone.
            _ => {}
        }
        if is_held {
            self.held = self.spent;
        }
    }

    /// A step of which some items hold has been at work here since the first of the others was.
    fn item_at_work(&mut self, step: &NodeId, at: Timestamp) {
        if let Some(step) = self.nodes.get_mut(step).filter(|step| step.is_held) {
            (step.is_held, step.began, step.last) = (false, Some(at), at);
        }
    }

    fn touch(&mut self, id: &NodeId, record: &Record) -> &mut Node {
        if !self.nodes.contains_key(id) {
            self.order.push(id.clone());
        }
        let node = self.nodes.entry(id.clone()).or_default();
        if !is_said(record) {
            node.last = record.at;
        }
        node
    }

    /// An ending of a workflow has no end of its own: it is how its steps ended.
    fn end_endings(&mut self) {
        let is_ending = |id: &&NodeId| id.item.is_none() && [ON_FAILURE, FINALLY].contains(&id.step.0.as_str());
        for id in self.order.iter().filter(is_ending).cloned().collect::<Vec<_>>() {
            let ends = |(inner, node): (&NodeId, &Node)| {
                (inner.opener().as_ref() == Some(&id) && inner.item.is_none() && inner.helper.is_none()).then_some(node.outcome.clone())
            };
            let steps: Vec<Option<Outcome>> = self.nodes.iter().filter_map(ends).collect();
            let failed = steps.iter().flatten().find(|outcome| outcome.failure().is_some()).cloned();
            let done = (steps.iter().all(Option::is_some) && self.outcome.is_some()).then(|| Outcome::Succeeded(Success::default()));
            if let Some(node) = self.nodes.get_mut(&id) {
                node.outcome = failed.or(done);
            }
        }
    }
}

impl Node {
    /// Returns how long it took, from its first attempt to its end or to the last that is known of it.
    pub(super) fn took(&self) -> Option<std::time::Duration> {
        self.began.map(|began| self.last.since(began))
    }

    /// Returns the questions that it waits with.
    pub(super) fn questions(&self) -> impl Iterator<Item = &Question> {
        self.asks.open_questions().filter(|_| self.outcome.is_none())
    }

    /// Returns whether it was left out when a budget that may finish was used up.
    fn is_left_out(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Skipped(SkipCause::Budget(_))))
    }

    fn is_asking(&self) -> bool {
        self.questions().next().is_some()
    }

    /// Returns the commit of its work.
    pub(super) fn commit(&self) -> Option<&CommitId> {
        let of_outcome = self.outcome.as_ref().and_then(Outcome::success).and_then(|success| success.commit.as_ref());
        of_outcome.or(self.captured.as_ref().map(|(commit, _)| commit))
    }

    fn fold(&mut self, record: &Record) {
        let begins = !matches!(record.event, Event::ConditionEvaluated { .. } | Event::StepFinished { .. }) && !is_said(record);
        if begins && self.began.is_none() {
            self.began = Some(record.at);
        }
        match &record.event {
            Event::StepStarted { attempt, .. } => {
                let (attempts, began, last, spent) = (*attempt, self.began, self.last, self.spent);
                *self = Node { attempts, began, last, spent, words: self.words, is_held: self.is_held, ..Node::default() };
            }
            Event::WorkspaceMade { base, isolation, path, .. } => {
                self.workspace = Some(Workspace { base: base.clone(), isolation: *isolation, path: path.clone() });
            }
            Event::ModelReplied { reply, .. } => {
                self.spent += Spent::of(reply);
                self.parked = None;
            }
            Event::AttemptsLost { usage, usd, .. } => self.spent += Spent::without_reply(usage, *usd),
            Event::Parked { failure, .. } => self.parked = Some(failure.clone()),
            Event::ToolFinished { .. } => {
                self.spent.calls += 1;
                self.asks.apply(&record.event);
            }
            Event::WorkCaptured { commit, paths, .. } => self.captured = Some((commit.clone(), paths.clone())),
            Event::MergeAdvanced { progress, .. } => self.merged.push(progress.clone()),
            Event::QuestionAsked { .. } | Event::QuestionAnswered { .. } => self.asks.apply(&record.event),
            Event::Told { .. } => self.words += 1,
            Event::AgentBriefed { .. } => self.is_agent = true,
            Event::SelectAdvanced { progress, .. } => self.selected.push(progress.clone()),
            Event::RetryScheduled { failure, .. } => {
                self.retry = Some(failure.clone());
                (self.outcome, self.parked) = (None, None);
            }
            Event::StepFinished { outcome, .. } => {
                self.outcome = Some(outcome.clone());
                (self.retry, self.parked) = (None, None);
            }
            // The rest says nothing that is kept of a node.
            _ => {}
        }
    }
}

/// Returns whether a record is only what somebody said to a node: the node did nothing.
fn is_said(record: &Record) -> bool {
    matches!(record.event, Event::Told { .. })
}

/// Says which run another one follows from, and what was to be done again.
pub(super) fn wished(origin: &Origin) -> String {
    let run = line(&origin.run.0, 100);
    match &origin.wish {
        Wish::Failed => format!("retry of {run}"),
        Wish::Changed => format!("after {run}"),
        Wish::From(node) => format!("after {run} from {}", line(&node.to_string(), 60)),
    }
}

#[cfg(test)]
pub(super) mod tests;
