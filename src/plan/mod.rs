//! The frozen graph of one run, and the only judge of a workflow.
//!
//! [`Plan::compile`] checks a typed workflow against what is known here (the [`Catalog`]) and freezes it: from then on
//! nothing is decided twice or re-read. All errors of a file are reported in one pass, each with its place.
mod agents;
mod catalog;
mod compile;
mod draw;
mod edges;
mod findings;
mod graph;
mod inputs;
mod limits;
mod models;
mod node;
mod reach;
mod readings;
mod schemas;
mod writers;

pub use catalog::{AgentFile, Catalog};
pub use graph::{Edge, Plan};
pub use node::{
    AgentSpec, Alias, AliasSaid, CallSpec, JudgeSpec, Limits, LoopSpec, MergeSpec, ModelSpec, NamedBy, OrchestratorSpec, PlannedStep, Rules, SelectSpec, Work,
};

#[cfg(test)]
mod tests;
