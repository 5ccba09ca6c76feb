//! The workflow file as its author wrote it: loaded with spans, typed, not yet judged.
//!
//! [`Workflow::load`] reads YAML 1.2 into a tree with a span on every key and value (`yaml`), checks it against one
//! table of all keys (`keys`, `check`), and decodes it (`file`, `decode_steps`, `verbs`), all in one pass that reports every
//! structural error. Whether names exist, the graph has a cycle or templates read what they may is the business of
//! `plan`.
mod check;
mod choices;
mod configuration;
mod decode_steps;
mod duration;
mod fields;
mod file;
mod flaws;
mod glob;
mod hooks;
mod keys;
mod mend;
mod sandbox;
mod schema;
mod servers;
mod stub;
mod types;
mod verbs;
mod words;
mod yaml;

pub use choices::*;
pub use configuration::{Configuration, Price, Provider, Rates, SandboxKeys};
pub use duration::parse_duration;
pub use file::places;
pub use flaws::Flaws;
pub use glob::{Misread, misread};
pub use hooks::Hooks;
pub use sandbox::{AgentSandbox, Network, Require};
pub use schema::json_schema;
pub use servers::{Chosen, Reach, Server};
pub use stub::{Stub, StubbedNode, StubbedStatus, StubbedStep, StubbedTime};
pub use types::*;

#[cfg(test)]
mod tests;
