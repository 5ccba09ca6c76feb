//! What a run's records alone say about it: shared by `runs`, `show`, `diff` and `land`.
//!
//! Unlike the journal's own fold this one needs no plan, so that what a run did can be read although its workflow has been
//! changed or deleted since. It judges nothing: records that the engine would refuse are shown as they stand.
mod lookup;
mod session;
mod words;

use super::screen::Tone;
use crate::{
    clock::Timestamp,
    event::{CommitId, Event, Failure, Limit, MergeProgress, NodeId, Outcome, Record, RunStarted, SelectProgress, StepId},
    journal::{self, Branch, Conversation, LeaseError, Question, Spent, Workspace},
    message::Reply,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) use lookup::{FoundRun, load_run, pick, put, put_bytes, repository};
pub(super) use session::{CallShown, Entry, HookSaid, Turn, entries};
pub(super) use words::{Cell, Table, block, duration, indent, json_text, line, plain, safe_diagnostics, wrapped};

/// Columns of a screen, whatever the terminal's: what is tested is what is seen.
pub(super) const WIDTH: usize = 100;

/// One run as its records tell it.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) started: Option<RunStarted>,
    pub(super) began: Timestamp,
    pub(super) last: Timestamp,
    pub(super) resumed: usize,
    pub(super) spent: Spent,
    pub(super) limit: Option<Limit>,
    pub(super) branch: Option<Branch>,
    pub(super) outcome: Option<Outcome>,
    pub(super) orchestrator: Option<NodeId>,
    pub(super) last_words: Option<String>,
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
    pub(super) retry: Option<Failure>,
    pub(super) outcome: Option<Outcome>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Succeeded,
    /// It succeeded with less than it was asked for, since a limit was reached.
    Partial,
    Failed,
    Skipped,
    /// A living process has it, where it says who it is by this id.
    Running(Option<u32>),
    /// It waits for a person.
    Parked,
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
            Standing::Skipped => "skipped",
            Standing::Running(_) => "running",
            Standing::Parked => "parked",
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
            Standing::Partial | Standing::Parked | Standing::Interrupted => Tone::Warn,
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
        report
    }

    /// Returns how the run stands, given who has it now.
    pub(super) fn standing(&self, owner: Option<&LeaseError>) -> Standing {
        match (&self.outcome, owner) {
            (Some(Outcome::Succeeded(_)), _) if self.limit.is_some() => Standing::Partial,
            (Some(Outcome::Succeeded(_)), _) => Standing::Succeeded,
            (Some(Outcome::Failed(_)), _) => Standing::Failed,
            (Some(Outcome::Skipped(_)), _) => Standing::Skipped,
            (None, Some(LeaseError::Held { pid, .. })) => Standing::Running(Some(*pid)),
            (None, Some(LeaseError::HeldByUnknown { .. } | LeaseError::Io { .. })) => Standing::Running(None),
            (None, None) if self.nodes.values().any(Node::is_asking) => Standing::Parked,
            (None, None) => Standing::Interrupted,
        }
    }

    /// Returns the node that people write like this.
    pub(super) fn named(&self, name: &str) -> Option<(&NodeId, &Node)> {
        self.nodes.iter().find(|(id, _)| id.to_string() == name)
    }

    /// Returns all nodes: the steps in the order in which they were first spoken of, each followed by its helpers and its
    /// items, the orchestrator last.
    pub(super) fn nodes(&self) -> Vec<(&NodeId, &Node)> {
        let places: BTreeMap<&StepId, usize> = self.order.iter().enumerate().rev().map(|(at, id)| (&id.step, at)).collect();
        let owners: BTreeMap<NodeId, usize> = self.order.iter().enumerate().rev().map(|(at, id)| (id.owner(), at)).collect();
        let mut sorted: Vec<(usize, &NodeId)> = self.order.iter().enumerate().collect();
        sorted.sort_by_key(|(at, id)| {
            let watches = self.orchestrator.as_ref().is_some_and(|orchestrator| orchestrator.step == id.step);
            (watches, places.get(&id.step), id.item.is_some(), owners.get(&id.owner()), id.helper.is_some(), *at)
        });
        sorted.into_iter().filter_map(|(_, id)| Some((id, self.nodes.get(id)?))).collect()
    }

    /// Returns the questions that wait for a person, in the order of the nodes.
    pub(super) fn questions(&self) -> Vec<(&NodeId, &Question)> {
        self.nodes().into_iter().flat_map(|(id, node)| node.questions().map(move |question| (id, question))).filter(|_| self.outcome.is_none()).collect()
    }

    /// Returns how many steps have ended, and how many are spoken of. The orchestrator is no step.
    pub(super) fn steps(&self) -> (usize, usize) {
        let account = journal::account().step;
        let steps: BTreeSet<&StepId> = self
            .order
            .iter()
            .map(|id| &id.step)
            .filter(|step| **step != account)
            .filter(|step| self.orchestrator.as_ref().is_none_or(|orchestrator| orchestrator.step != **step))
            .collect();
        let ended = steps.iter().filter(|step| self.nodes.get(&NodeId::step(step)).is_some_and(|node| node.outcome.is_some())).count();
        (ended, steps.len())
    }

    /// Returns what so much cost, for a column: `-` where nothing was paid, `?` where no price is known, `>` where some
    /// are not. What a script said costs nothing.
    pub(super) fn price(&self, spent: &Spent) -> String {
        let scripted = self.started.as_ref().is_some_and(|started| started.script.is_some());
        if scripted || spent.turns == 0 {
            return "-".to_owned();
        }
        match (spent.unpriced, spent.usd > 0.0) {
            (false, _) => format!("${:.4}", spent.usd),
            (true, true) => format!(">${:.4}", spent.usd),
            (true, false) => "?".to_owned(),
        }
    }

    /// Returns whether some item of the step failed, which then says more than the step's own failure.
    pub(super) fn has_failed_item(&self, id: &NodeId) -> bool {
        let failed = |(other, node): (&NodeId, &Node)| {
            other.step == id.step && other.item.is_some() && node.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_some())
        };
        id.item.is_none() && self.nodes.iter().any(failed)
    }

    /// Returns the run's name, as the records give it.
    pub(super) fn run(&self) -> String {
        self.started.as_ref().map(|started| started.run.to_string()).unwrap_or_default()
    }

    fn fold(&mut self, record: &Record) {
        match &record.event {
            Event::RunStarted(started) => self.started = Some(started.clone()),
            Event::RunResumed { .. } => self.resumed += 1,
            Event::ItemsAdded { step, items, .. } => {
                self.touch(step, record.at).began.get_or_insert(record.at);
                for item in items {
                    self.touch(&step.with_item(&item.key), record.at);
                }
            }
            Event::LimitReached { limit } => self.limit = Some(*limit),
            Event::BranchIntended { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: false }),
            Event::BranchMade { name, commit } => self.branch = Some(Branch { name: name.clone(), commit: commit.clone(), made: true }),
            Event::RunFinished { outcome } => self.outcome = Some(outcome.clone()),
            Event::OrchestratorWoken { node, .. } => {
                self.orchestrator = Some(node.clone());
                self.touch(node, record.at).fold(record);
            }
            Event::OrchestratorRested { node, text, failure } => {
                if failure.is_none() && !text.trim().is_empty() {
                    self.last_words = Some(text.clone());
                }
                self.touch(node, record.at).fold(record);
            }
            Event::ModelReplied { node, reply } => {
                self.spent += spent_by(reply);
                self.touch(node, record.at).fold(record);
            }
            Event::ToolFinished { node, .. } => {
                self.spent.calls += 1;
                self.touch(node, record.at).fold(record);
            }
            Event::ConditionEvaluated { node, .. }
            | Event::FrameOpened { node, .. }
            | Event::StepStarted { node, .. }
            | Event::WorkspaceMade { node, .. }
            | Event::AgentBriefed { node, .. }
            | Event::MessageAdded { node, .. }
            | Event::ToolStarted { node, .. }
            | Event::HookRan { node, .. }
            | Event::Compacted { node, .. }
            | Event::VerifyRan { node, .. }
            | Event::WorkCaptured { node, .. }
            | Event::CacheHit { node, .. }
            | Event::ArtefactKept { node, .. }
            | Event::MergeAdvanced { node, .. }
            | Event::SelectAdvanced { node, .. }
            | Event::WorkDelivered { node, .. }
            | Event::QuestionAsked { node, .. }
            | Event::QuestionAnswered { node, .. }
            | Event::Told { node, .. }
            | Event::RetryScheduled { node, .. }
            | Event::TimerFired { node }
            | Event::StepFinished { node, .. } => self.touch(node, record.at).fold(record),
        }
    }

    fn touch(&mut self, id: &NodeId, at: Timestamp) -> &mut Node {
        if !self.nodes.contains_key(id) {
            self.order.push(id.clone());
        }
        let node = self.nodes.entry(id.clone()).or_default();
        node.last = at;
        node
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

    fn is_asking(&self) -> bool {
        self.questions().next().is_some()
    }

    /// Returns the commit of its work.
    pub(super) fn commit(&self) -> Option<&CommitId> {
        let of_outcome = self.outcome.as_ref().and_then(Outcome::success).and_then(|success| success.commit.as_ref());
        of_outcome.or(self.captured.as_ref().map(|(commit, _)| commit))
    }

    fn fold(&mut self, record: &Record) {
        let begins = !matches!(record.event, Event::ConditionEvaluated { .. } | Event::StepFinished { .. });
        if begins && self.began.is_none() {
            self.began = Some(record.at);
        }
        match &record.event {
            Event::StepStarted { attempt, .. } => {
                let (attempts, began, last, spent) = (*attempt, self.began, self.last, self.spent);
                *self = Node { attempts, began, last, spent, words: self.words, ..Node::default() };
            }
            Event::WorkspaceMade { base, isolation, path, .. } => {
                self.workspace = Some(Workspace { base: base.clone(), isolation: isolation.clone(), path: path.clone() });
            }
            Event::ModelReplied { reply, .. } => self.spent += spent_by(reply),
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
                self.outcome = None;
            }
            Event::StepFinished { outcome, .. } => {
                self.outcome = Some(outcome.clone());
                self.retry = None;
            }
            Event::TimerFired { .. }
            | Event::WorkDelivered { .. }
            | Event::ConditionEvaluated { .. }
            | Event::FrameOpened { .. }
            | Event::MessageAdded { .. }
            | Event::ToolStarted { .. }
            | Event::HookRan { .. }
            | Event::Compacted { .. }
            | Event::VerifyRan { .. }
            | Event::CacheHit { .. }
            | Event::ArtefactKept { .. }
            | Event::OrchestratorWoken { .. }
            | Event::OrchestratorRested { .. }
            | Event::RunStarted(_)
            | Event::RunResumed { .. }
            | Event::ItemsAdded { .. }
            | Event::LimitReached { .. }
            | Event::BranchIntended { .. }
            | Event::BranchMade { .. }
            | Event::RunFinished { .. } => {}
        }
    }
}

fn spent_by(reply: &Reply) -> Spent {
    Spent { turns: 1, calls: 0, usage: reply.usage, usd: reply.usd.unwrap_or(0.0), unpriced: reply.usd.is_none() }
}

#[cfg(test)]
pub(super) mod tests;
