//! The accounts below the run's own: those of steps with a `budget`, and of calls of workflows that have one.
//!
//! A request is charged to the account of the step that makes it and to those of everything it stands in, up to the run's; the
//! widest refuses first. A budget of a step holds over all its items, iterations and tries; that of a workflow for each
//! call of it. Time is not held here: it is a part of the step's timeout.
use crate::{
    agent::Account,
    event::{Limit, NodeId, NodeName},
    journal::{RunState, Spent},
    plan::{Limits, Work},
    workflow::{Budget, OnExceed},
};
use std::{collections::HashMap, sync::Arc};

/// Which account it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(NodeId, Of);

impl Key {
    /// Returns its name, the same in every process.
    fn name(&self) -> String {
        match self.1 {
            Of::Step => self.0.to_string(),
            Of::Called => format!("{}()", self.0),
        }
    }
}

/// Whose account it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    /// The step's.
    Step,
    /// The workflow's that the node calls.
    Called,
}

/// One budget that holds for a node.
struct Level<'p> {
    key: Key,
    budget: &'p Budget,
}

/// What is to be made of a node, where an account that holds for it is used up and is to `finish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Winding {
    /// No such account is used up.
    No,
    /// The node's own is: it ends well, with what there is.
    Own,
    /// One around it is: it is left out.
    Around(Limit),
}

/// The accounts of one process's part of a run.
pub(super) struct Accounts {
    run: Arc<Account>,
    open: HashMap<Key, Arc<Account>>,
    /// What earlier processes have spent.
    before: HashMap<Key, Spent>,
}

impl Accounts {
    /// Begins with what the run has spent already.
    pub(super) fn new(run: Arc<Account>, state: &RunState) -> Accounts {
        let mut before: HashMap<Key, Spent> = HashMap::new();
        for (id, node) in state.each().filter(|(id, node)| id.helper.is_none() && node.spent != Spent::default()) {
            for level in levels(state, id) {
                *before.entry(level.key).or_default() += node.spent;
            }
        }
        Accounts { run, open: HashMap::new(), before }
    }

    /// Returns the account that a node's requests are charged to.
    pub(super) fn of(&mut self, state: &RunState, node: &NodeId) -> Arc<Account> {
        let mut around = self.run.clone();
        for Level { key, budget } in levels(state, node) {
            let spent = self.before.get(&key).copied().unwrap_or_default();
            let what = match key.1 {
                Of::Step => format!("the budget of step `{}`", key.0),
                Of::Called => format!("the budget of the workflow that `{}` calls", key.0),
            };
            let named = (what, "raise it; with `on_exceed: finish` it ends with what there is");
            let opened =
                || Account::within(&around, named, Limits::only(budget), &spent).allowed(state.allowance(&key.name()), budget.on_exceed == OnExceed::Ask);
            around = self.open.entry(key.clone()).or_insert_with(|| Arc::new(opened())).clone();
        }
        around
    }

    /// Returns the name of the budget that has refused a node more until a person allows it, the widest, and what they are asked.
    pub(super) fn asks(&self, state: &RunState, node: &NodeId) -> Option<(String, String, u32)> {
        levels(state, node).into_iter().find_map(|level| {
            let account = self.open.get(&level.key).filter(|account| account.asks())?;
            let (question, by) = account.question(account.reached()?);
            Some((level.key.name(), question, by))
        })
    }

    /// Does what a person has said to that.
    pub(super) fn allow(&self, name: &str, raises: Option<u32>) {
        let account = self.open.iter().find(|(key, _)| key.name() == name).map(|(_, account)| account);
        // One that this process has not opened yet is opened with what was said.
        if let Some(account) = account {
            raises.map_or_else(|| account.hold(), |by| account.raise(by));
        }
    }

    /// Returns whose account that holds for a node is used up and is to finish, the widest where there are several: the node's own
    /// where it is that of its agent.
    pub(super) fn used_up(&self, state: &RunState, node: &NodeId) -> Option<NodeId> {
        let levels = || levels(state, node).into_iter().chain(called(state, node));
        if let Some(level) = levels().find(|level| self.reached(level).is_some()) {
            return Some(level.key.0);
        }
        let stops = || levels().any(|level| self.open.get(&level.key).is_some_and(|account| account.reached().is_some()));
        let agent = state.step(node).and_then(|step| step.agent(state.node(node).is_some_and(|state| state.handed_over)))?;
        (agent.on_exceed == OnExceed::Finish && state.limit().is_none() && !stops()).then(|| node.clone())
    }

    /// Returns the limit that an account refused a request by, where it is to finish then.
    fn reached(&self, level: &Level<'_>) -> Option<Limit> {
        self.open.get(&level.key)?.reached().filter(|_| level.budget.on_exceed == OnExceed::Finish)
    }

    /// Says whether an account that holds for a node is used up and is to finish.
    pub(super) fn winding(&self, state: &RunState, node: &NodeId) -> Winding {
        if self.open.is_empty() {
            return Winding::No;
        }
        let called = called(state, node).is_some_and(|level| self.reached(&level).is_some());
        let mut own = called;
        let mut around = None;
        for level in levels(state, node) {
            let Some(limit) = self.reached(&level) else { continue };
            // That of a step with items is around each of them.
            if level.key.0 == *node { own = true } else { around = around.or(Some(limit)) }
        }
        match (around, own) {
            (Some(limit), _) => Winding::Around(limit),
            (None, true) => Winding::Own,
            (None, false) => Winding::No,
        }
    }
}

/// Returns whether a person is being asked for more of a budget that holds for a node.
pub(super) fn is_held(state: &RunState, node: &NodeId) -> bool {
    state.asks_for_more() && levels(state, node).iter().any(|level| state.allowance(&level.key.name()).is_asked)
}

/// Returns the budgets below the run's own that hold for a node and that nobody may raise, each with what has been used of it.
pub(super) fn used(state: &RunState, node: &NodeId) -> Vec<(Limits, Spent)> {
    let of = |key: &Key| {
        let mut spent = Spent::default();
        for (id, other) in state.nodes().into_iter().filter(|(id, _)| id.helper.is_none()) {
            if levels(state, id).iter().any(|level| level.key == *key) {
                spent += other.spent;
            }
        }
        spent
    };
    let firm = |level: &&Level<'_>| level.budget.on_exceed != OnExceed::Ask;
    levels(state, node).iter().filter(firm).map(|level| (Limits::only(level.budget), of(&level.key))).collect()
}

/// Returns the budgets that hold for a node, from the outside in.
fn levels<'s>(state: &'s RunState, node: &NodeId) -> Vec<Level<'s>> {
    let mut found = Vec::new();
    for depth in 0..node.within.len() {
        let (outer, own) = (&node.within[..depth], &node.within[depth]);
        let opener = NodeName { within: outer.to_vec(), step: own.step.clone(), item: own.item.clone(), helper: None }.into();
        found.extend(of_step(state, &opener));
        found.extend(called(state, &opener));
    }
    found.extend(of_step(state, node));
    found
}

fn of_step<'s>(state: &'s RunState, node: &NodeId) -> Option<Level<'s>> {
    let budget = state.step(node)?.budget.as_ref()?;
    Some(Level { key: Key(node.whole(), Of::Step), budget })
}

fn called<'s>(state: &'s RunState, node: &NodeId) -> Option<Level<'s>> {
    let Work::Workflow(call) = &state.step(node)?.work else { return None };
    Some(Level { key: Key(node.owner(), Of::Called), budget: call.plan.budget.as_ref()? })
}
