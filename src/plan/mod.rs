//! The frozen graph of one run, and the only judge of a workflow.
//!
//! [`Plan::compile`] checks a typed workflow against what is known here (the [`Catalog`]) and freezes it: from then on
//! nothing is decided twice or re-read. All errors of a file are reported in one pass, each with its place.
mod agents;
mod calls;
mod catalog;
mod checks;
mod compile;
mod destinations;
mod draw;
mod edges;
mod findings;
mod frames;
mod graph;
mod inputs;
pub mod items;
mod kinds;
mod limits;
mod matrix;
mod models;
mod node;
mod reach;
mod readings;
mod reads;
mod resolve;
mod sandboxes;
mod schemas;
mod shapes;
mod unsound;
mod writers;
mod written;

pub use catalog::{AgentFile, Catalog, HookLint, OtherNames, Prices, RuleFlaws, RuleLint, WorkflowFile};
pub use compile::MAX_PARALLEL;
pub use destinations::{Destination, Host, NetworkSpec, NoDestination};
pub use frames::ORCHESTRATOR;
pub(crate) use graph::Trait;
pub use graph::{Edge, Plan};
pub use matrix::{Combination, MAX_COMBINATIONS, MatrixError, combinations};
pub use node::{
    AgentSpec, Alias, AliasSaid, CallSpec, JudgeSpec, Limits, LoopSpec, MergeSpec, ModelSpec, NamedBy, OrchestratorSpec, PlannedStep, Rules, SelectSpec,
    ServerReach, ServerSpec, Work,
};
pub use reads::Reads;
pub(crate) use sandboxes::KEYS;
pub use sandboxes::{Objection, SandboxSpec, objection};
pub use schemas::fits;
pub use written::WrittenHooks;

#[cfg(test)]
mod tests;
