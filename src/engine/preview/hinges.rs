//! What the steps that join, choose and ask hinge on: their checks, and what is done where these do not decide.
use crate::{
    clock::millis,
    plan::Work,
    source::Spanned,
    workflow::{ConflictThen, MergeMode, OnTimeout, RedThen, Tie},
};
use serde::Serialize;

/// What a step hinges on besides its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hinges {
    /// Of a merge.
    Merge {
        /// Commands that the joined tree must pass.
        verify: Vec<String>,
        /// When they run: once for the whole `batch`, or after `each` source.
        mode: &'static str,
        /// What becomes of a source that turns them red: `fail` or `eject`.
        on_red: &'static str,
        /// What becomes of a source whose conflict nobody settles: `fail` or `eject`.
        on_conflict: &'static str,
    },
    /// Of a choice.
    Select {
        /// Commands that a candidate must pass.
        gates: Vec<String>,
        /// Votes of the judge; none without one.
        votes: u32,
        /// What decides where the votes do not: `smallest_diff`, `first` or `fail`.
        tie: &'static str,
    },
    /// Of a question to a person.
    Approve {
        /// How long an answer counts; absent where it always does.
        timeout_ms: Option<u64>,
        /// What silence means: `approve` or `reject`; absent where it means nothing.
        on_timeout: Option<&'static str>,
    },
}

impl Hinges {
    pub(super) fn of(work: &Work) -> Option<Hinges> {
        match work {
            Work::Merge(merge) => Some(Hinges::Merge {
                verify: texts(&merge.verify),
                mode: match merge.mode {
                    MergeMode::Batch => "batch",
                    MergeMode::Each => "each",
                },
                on_red: match merge.on_red {
                    RedThen::Fail => "fail",
                    RedThen::Eject => "eject",
                },
                on_conflict: match merge.then {
                    ConflictThen::Fail => "fail",
                    ConflictThen::Eject => "eject",
                },
            }),
            Work::Select(select) => Some(Hinges::Select {
                gates: texts(&select.gates),
                votes: select.judge.as_ref().map_or(0, |judge| judge.votes),
                tie: match select.tie {
                    Tie::SmallestDiff => "smallest_diff",
                    Tie::First => "first",
                    Tie::Fail => "fail",
                },
            }),
            Work::Approve(approve) => Some(Hinges::Approve {
                timeout_ms: approve.timeout.as_ref().map(|time| millis(time.value)),
                on_timeout: approve.timeout.as_ref().map(|_| if approve.on_timeout.as_deref() == Some(&OnTimeout::Approve) { "approve" } else { "reject" }),
            }),
            Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Loop(_) => None,
        }
    }
}

fn texts(commands: &[Spanned<String>]) -> Vec<String> {
    commands.iter().map(|command| command.value.clone()).collect()
}
