//! The frozen graph of one run, and the only judge of a workflow.
//!
//! [`Plan::compile`] checks a typed workflow against what is known here (the [`Catalog`]) and freezes it: from then on
//! nothing is decided twice or re-read. All errors of a file are reported in one pass, each with its place.
mod catalog;
mod graph;
mod node;

pub use catalog::{AgentFile, Catalog};
pub use graph::{Edge, Plan};
pub use node::{AgentSpec, Limits, MergeSpec, ModelSpec, OrchestratorSpec, PlannedStep, Rules, Work};
