//! What a merge and a select step did, and what became of a sub-agent's work.
use super::{CommitId, FailureKind, NodeId};
use crate::clock::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a judge gave each candidate, by the candidate's key and then by criterion.
pub type Scores = BTreeMap<String, BTreeMap<String, f64>>;

/// What a select step did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectProgress {
    /// A candidate went through the gates in its own tree.
    Gated {
        /// The candidate.
        candidate: NodeId,
        /// Whether it passed them all.
        passed: bool,
        /// The tail of the first red one's output, or empty.
        tail: String,
    },
    /// A judge gave its vote.
    Voted {
        /// Which vote, from 1.
        vote: u32,
        /// For whom.
        winner: NodeId,
        /// What it gave each.
        scores: Scores,
        /// Its reason.
        why: String,
    },
    /// A judge's session came to no vote.
    Abstained {
        /// Which vote, from 1.
        vote: u32,
        /// Why there is none.
        reason: String,
        /// What kind of failure that was.
        #[serde(default = "of_model")]
        kind: FailureKind,
    },
    /// One was chosen.
    Chosen {
        /// Which.
        winner: NodeId,
        /// The others that had work, with its commits; their refs are kept.
        losers: Vec<(NodeId, CommitId)>,
        /// Until when at least; absent: as long as the run's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_until: Option<Timestamp>,
    },
}

/// What an earlier journal, which does not say it, is taken to mean.
fn of_model() -> FailureKind {
    FailureKind::Model
}

/// What became of a sub-agent's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It fits what the agent that asked for it had by then, and is brought into its files.
    Joined {
        /// The files before.
        before: CommitId,
        /// The files with it.
        after: CommitId,
    },
    /// It does not; nothing was changed, and a ref keeps it.
    Conflicted {
        /// Where.
        paths: Vec<String>,
    },
}

/// What a merge step did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeProgress {
    /// A source was joined.
    Joined {
        /// The source.
        from: NodeId,
        /// The joined commit.
        commit: CommitId,
        /// Paths whose conflict was settled, and by whom.
        settled: Vec<(String, String)>,
    },
    /// A source conflicts.
    Conflicted {
        /// The source.
        from: NodeId,
        /// The paths.
        paths: Vec<String>,
    },
    /// A source was put aside; its ref is kept.
    Ejected {
        /// The source.
        from: NodeId,
        /// Why.
        reason: String,
    },
    /// The joined tree was checked.
    Verified {
        /// The commit whose tree was checked.
        commit: CommitId,
        /// Whether it passed.
        passed: bool,
        /// The tail of what was red.
        tail: String,
    },
}
