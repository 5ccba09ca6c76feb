//! What the orchestrator has still to be told, as a fold.
use crate::{
    event::{Item, NodeId, Outcome, StepId, Wake},
    plan::OrchestratorSpec,
};
use serde_json::Value;

/// The orchestrator's side of a run's state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watch {
    reasons: Vec<Reason>,
    awake: bool,
    broken: bool,
    closed: bool,
    idle_told: bool,
    added: u32,
    granted: Vec<Granted>,
    last: Option<String>,
}

/// What the orchestrator did by the calls of its last reply.
#[derive(Debug, Clone, PartialEq)]
enum Granted {
    Added(StepId, Vec<Item>),
    Retried(NodeId),
}

/// Something the orchestrator is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Why it is woken.
    pub wake: Wake,
    /// The item that ended.
    pub node: Option<NodeId>,
}

impl Watch {
    pub(super) fn run_started(&mut self, spec: &OrchestratorSpec) {
        self.note(spec, Wake::Start, None);
    }

    pub(super) fn item_ended(&mut self, spec: &OrchestratorSpec, node: &NodeId, outcome: &Outcome) {
        match outcome {
            Outcome::Succeeded(_) => self.note(spec, Wake::ItemDone, Some(node)),
            Outcome::Failed(_) => self.note(spec, Wake::ItemFailed, Some(node)),
            Outcome::Skipped(_) => {}
        }
    }

    pub(super) fn woken(&mut self, everything_ended: bool, idle: bool) {
        self.reasons.clear();
        self.awake = true;
        self.closed |= everything_ended;
        self.idle_told |= idle;
    }

    pub(super) fn rested(&mut self, text: &str, broken: bool) {
        self.awake = false;
        self.broken |= broken;
        self.last = Some(text.to_owned());
    }

    pub(super) fn something_moved(&mut self) {
        self.idle_told = false;
    }

    pub(super) fn items_added(&mut self, step: &StepId, items: &[Item]) {
        self.added += u32::try_from(items.len()).unwrap_or(u32::MAX);
        self.granted.push(Granted::Added(step.clone(), items.to_vec()));
    }

    pub(super) fn item_retried(&mut self, node: &NodeId) {
        self.granted.push(Granted::Retried(node.clone()));
    }

    pub(super) fn replied(&mut self) {
        self.granted.clear();
    }

    fn note(&mut self, spec: &OrchestratorSpec, wake: Wake, node: Option<&NodeId>) {
        if spec.wake.contains(&wake) {
            self.reasons.push(Reason { wake, node: node.cloned() });
        }
    }

    /// Returns what it has not been told yet.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// Returns whether it was woken and has not rested since.
    pub fn is_awake(&self) -> bool {
        self.awake
    }

    /// Returns whether it failed; then it is not woken again.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether it was told that everything ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether it was told that nothing moves, and nothing has moved since.
    pub fn knows_idle(&self) -> bool {
        self.idle_told
    }

    /// Returns whether nothing it may still do can change a `for_each`.
    pub fn is_quiet(&self) -> bool {
        self.broken || (!self.awake && self.reasons.is_empty())
    }

    /// Returns the keys of the items made of these values, where it has added them since its last reply.
    pub fn has_added(&self, step: &StepId, values: &[Value]) -> Option<Vec<&str>> {
        self.granted.iter().find_map(|granted| match granted {
            Granted::Added(to, items) if to == step && items.iter().map(|item| &item.value).eq(values) => {
                Some(items.iter().map(|item| item.key.as_str()).collect())
            }
            Granted::Added(..) | Granted::Retried(_) => None,
        })
    }

    /// Returns whether it has had this item tried again since its last reply.
    pub fn has_retried(&self, node: &NodeId) -> bool {
        self.granted.iter().any(|granted| matches!(granted, Granted::Retried(retried) if retried == node))
    }

    /// Returns how many items it has added.
    pub fn added(&self) -> u32 {
        self.added
    }

    /// Returns its last words.
    pub fn last_words(&self) -> Option<&str> {
        self.last.as_deref()
    }
}
