//! The verbs by which somebody chooses: a judge between candidates, a person between yes and no.
use super::types::Text;
use crate::source::Spanned;
use std::time::Duration;

/// `select:`.
#[derive(Debug, Clone)]
pub struct Select {
    /// The step whose items are the candidates, or the steps that are.
    pub from: Vec<Spanned<String>>,
    /// Commands that a candidate must pass in its own tree, templates.
    pub gates: Vec<Spanned<String>>,
    /// Who chooses among those that passed.
    pub judge: Option<Judge>,
    /// What decides where the votes do not.
    pub tie: Tie,
    /// How long the refs of the others are kept; absent: as those of all work.
    pub keep_losers: Option<Duration>,
}

/// `select.judge`.
#[derive(Debug, Clone)]
pub struct Judge {
    /// The agent.
    pub agent: Spanned<String>,
    /// Sessions that each vote once.
    pub votes: u32,
    /// Whether candidates go by letters, in another order for each vote.
    pub blind: bool,
    /// What it is told to look at.
    pub rubric: Option<Spanned<Text>>,
    /// What it scores, by name.
    pub criteria: Vec<Spanned<String>>,
}

/// What decides between candidates with the same votes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tie {
    /// The fewest changed lines.
    #[default]
    SmallestDiff,
    /// The first in the order of the file or the items.
    First,
    /// The step fails.
    Fail,
}

/// `approve:`.
#[derive(Debug, Clone)]
pub struct Approve {
    /// What is asked, a template.
    pub message: Spanned<String>,
    /// What is shown besides.
    pub show: Option<Show>,
    /// How long it waits.
    pub timeout: Option<Spanned<Duration>>,
    /// What the end of that time means.
    pub on_timeout: Option<Spanned<OnTimeout>>,
}

/// What an `approve` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The changes since the run's base.
    Diff,
    /// The files that changed, with counts of lines.
    Stat,
}

/// What the end of an `approve`'s time means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// As if approved.
    Approve,
    /// As if rejected.
    Reject,
}
