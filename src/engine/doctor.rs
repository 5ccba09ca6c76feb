//! What is amiss here: one thing that was looked at, and how it is.
use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is a part of: `runs`.
    pub area: &'static str,
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It was not, and is now.
    Mended,
    /// Runs are possible; something is missing that somebody may miss.
    Warn,
    /// Runs fail by it.
    Broken,
}
