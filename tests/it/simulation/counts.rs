//! What took part in the runs of many seeds, and what went wrong in them.
use super::{
    faults::{DEATHS, Death},
    mind::ALL_BROKEN,
    power::{TEARS, Tear},
    scenario::{Kind, Scenario},
    world::{Happened, Played},
};
use spinney::event::{Delivery, Event, MergeProgress, Outcome, Record};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// One line of the table: how often something was, and in how many seeds.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    times: usize,
    seeds: usize,
}

/// The table.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    seeds: usize,
    records: usize,
    lives: usize,
    lines: BTreeMap<String, Count>,
}

/// What the table tells of, whether or not it was there.
fn all() -> Vec<String> {
    let mut all: Vec<String> = DEATHS.iter().map(|death| death_name(*death)).collect();
    all.extend(ALL_BROKEN.iter().map(|broken| format!("model: {broken:?}")));
    all.extend(TEARS.iter().map(|tear| tear_name(*tear)));
    let rest = [
        "power: records lost",
        "power: files of worktrees spoiled",
        "power: attempts begun anew",
        "another process refused",
        "clock set forward",
        "clock set back",
        "tool: hangs",
        "tool: killed",
        "tool: prints without end",
        "tool: outcome unknown",
        "ran inside of walls",
        "step: agent reads",
        "step: agent writes",
        "step: run",
        "step: matrix",
        "step: for_each",
        "step: merge",
        "step: select",
        "step: approve",
        "step: loop",
        "step: workflow",
        "step failed",
        "step skipped",
        "orchestrator woken",
        "orchestrator added items",
        "on_failure, finally",
        "sub-agent",
        "sub-agent's work does not fit",
        "merge settled a conflict",
        "merge put work aside",
        "merge found its tree red",
        "checks red",
        "attempt tried again",
        "another model asked",
        "waited for a model",
        "question answered",
        "conversation shortened",
        "budget at its end",
        "resumed",
    ];
    all.extend(rest.map(str::to_owned));
    all
}

impl Counts {
    /// Adds one seed: what it was to do, and the run in which things went wrong.
    pub(super) fn add(&mut self, scenario: &Scenario, played: &Played) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut saw = |name: &str, times: usize| *seen.entry(name.to_owned()).or_default() += times;
        for record in &played.records {
            for name in names(scenario, record) {
                saw(name, 1);
            }
        }
        for happened in &played.happened {
            match happened {
                Happened::Died(death) => saw(&death_name(*death), 1),
                Happened::Torn { tear, lost, spoiled } => {
                    saw(&tear_name(*tear), 1);
                    saw("power: records lost", *lost);
                    saw("power: files of worktrees spoiled", *spoiled);
                }
                Happened::Refused => saw("another process refused", 1),
                Happened::ClockSet(by) => saw(if *by < 0 { "clock set back" } else { "clock set forward" }, 1),
                Happened::Broke(broken) => saw(&format!("model: {broken:?}"), 1),
                Happened::Walled => saw("ran inside of walls", 1),
            }
        }
        seen.retain(|_, times| *times > 0);
        self.seeds += 1;
        self.records += played.records.len();
        self.lives += played.lives;
        for (name, times) in seen {
            let line = self.lines.entry(name).or_default();
            line.times += times;
            line.seeds += 1;
        }
    }

    /// Names what was never there.
    pub(super) fn missing(&self) -> Vec<String> {
        all().into_iter().filter(|name| !self.lines.contains_key(name)).collect()
    }

    /// Adds those of other seeds.
    pub(super) fn join(&mut self, other: &Counts) {
        self.seeds += other.seeds;
        self.records += other.records;
        self.lives += other.lives;
        for (name, count) in &other.lines {
            let line = self.lines.entry(name.clone()).or_default();
            line.times += count.times;
            line.seeds += count.seeds;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { seeds, records, lives, .. } = self;
        writeln!(f, "{seeds} seeds, each a run left alone and one in which things went wrong; the latter took {lives} processes and made {records} records.")?;
        writeln!(f, "{:<36}{:>9}{:>9}", "in these there was", "times", "seeds")?;
        let mut rows = String::new();
        for name in all() {
            let Count { times, seeds } = self.lines.get(&name).copied().unwrap_or_default();
            let _ = writeln!(rows, "  {name:<34}{times:>9}{seeds:>9}");
        }
        f.write_str(&rows)
    }
}

fn death_name(death: Death) -> String {
    let name = match death {
        Death::BeforeTheNext => "died before the next record",
        Death::Untold => "died with a record untold",
        Death::Full => "disk full",
        Death::Failing => "disk failing",
        Death::Dropped => "dropped where it stood",
        Death::Power => "power failed",
        Death::Asked => "asked to end",
    };
    format!("death: {name}")
}

fn tear_name(tear: Tear) -> String {
    let name = match tear {
        Tear::Nothing => "whole",
        Tear::All => "all lost",
        Tear::Frames => "frames lost",
        Tear::HalfAFrame => "half a frame",
        Tear::Hole => "a hole",
    };
    format!("power: end of the log {name}")
}

/// Names what a record tells of.
fn names(scenario: &Scenario, record: &Record) -> Vec<&'static str> {
    match &record.event {
        Event::StepStarted { node, .. } if node.within.is_empty() => {
            let kind = scenario.pieces.iter().find(|piece| piece.id == node.step.0).map(|piece| &piece.kind);
            kind.map(verb).into_iter().collect()
        }
        Event::FrameOpened { node, .. } => scenario.pieces.iter().find(|piece| piece.id == node.step.0).map(|piece| verb(&piece.kind)).into_iter().collect(),
        Event::StepStarted { node, .. } if matches!(node.within[0].step.0.as_str(), "on_failure" | "finally") => vec!["on_failure, finally"],
        Event::ItemsAdded { step, by, .. } if step != by => vec!["orchestrator added items"],
        Event::OrchestratorWoken { .. } => vec!["orchestrator woken"],
        Event::AgentBriefed { node, .. } if node.helper.as_deref().is_some_and(|name| name.starts_with("agent-")) => vec!["sub-agent"],
        Event::WorkDelivered { delivery: Delivery::Conflicted { .. }, .. } => vec!["sub-agent's work does not fit"],
        Event::MergeAdvanced { progress, .. } => match progress {
            MergeProgress::Joined { settled, .. } if !settled.is_empty() => vec!["step: merge", "merge settled a conflict"],
            MergeProgress::Ejected { .. } => vec!["step: merge", "merge put work aside"],
            MergeProgress::Verified { passed: false, .. } => vec!["step: merge", "merge found its tree red"],
            MergeProgress::Joined { .. } | MergeProgress::Conflicted { .. } | MergeProgress::Verified { .. } => vec!["step: merge"],
        },
        Event::SelectAdvanced { .. } => vec!["step: select"],
        Event::VerifyRan { passed: false, .. } => vec!["checks red"],
        Event::RetryScheduled { lost: true, .. } => vec!["power: attempts begun anew"],
        Event::RetryScheduled { .. } => vec!["attempt tried again"],
        Event::FellBack { .. } => vec!["another model asked"],
        Event::Parked { .. } => vec!["waited for a model"],
        Event::QuestionAnswered { .. } => vec!["question answered"],
        Event::Compacted { .. } => vec!["conversation shortened"],
        Event::LimitReached { .. } => vec!["budget at its end"],
        Event::RunResumed { .. } => vec!["resumed"],
        Event::StepFinished { outcome: Outcome::Failed(_), .. } => vec!["step failed"],
        Event::StepFinished { outcome: Outcome::Skipped(_), .. } => vec!["step skipped"],
        Event::ToolFinished { verdict, .. } if verdict == "interrupted" => vec!["tool: outcome unknown"],
        Event::ToolFinished { tool, result, .. } if tool == "Bash" && result.text.contains("[timed out") => {
            vec![if result.text.contains("bytes cut") || result.text.starts_with("y\ny\n") { "tool: prints without end" } else { "tool: hangs" }]
        }
        Event::ToolFinished { tool, result, .. } if tool == "Bash" && result.text.contains("[ended by signal") => vec!["tool: killed"],
        _ => Vec::new(),
    }
}

fn verb(kind: &Kind) -> &'static str {
    match kind {
        Kind::Reader { .. } => "step: agent reads",
        Kind::Writer { .. } | Kind::Chief { .. } | Kind::Talker { .. } => "step: agent writes",
        Kind::Command(_) => "step: run",
        Kind::Fan { .. } | Kind::Choice { .. } => "step: for_each",
        Kind::Matrix { .. } => "step: matrix",
        Kind::Approve { .. } => "step: approve",
        Kind::Loop { .. } => "step: loop",
        Kind::Called { .. } => "step: workflow",
    }
}
