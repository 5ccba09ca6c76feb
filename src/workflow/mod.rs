//! The workflow file as its author wrote it: loaded with spans, typed, not yet judged.
//!
//! [`Workflow::load`] reads YAML 1.2 into a tree with a span on every key and value and decodes it in one pass that
//! reports every structural error. Whether names exist, the graph has a cycle or templates read what they may is the
//! business of `plan`.
mod types;

pub use types::*;
