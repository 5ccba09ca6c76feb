//! What people read while a run goes on and after it: one calm line an event that matters, then the outcome.
use super::report::{block, indent, line, plain};
use crate::{
    engine::{Models, left_over, unmade_outputs},
    event::{
        Delivery, Event, Failure, FailureKind, HookVerdict, Limit, MergeProgress, NodeId, Outcome, Record, RunId, SelectProgress, SkipCause, Success,
        UNTHINKING, Wake,
    },
    git::{ref_of, short_name},
    journal::{FINALLY, NodeState, ON_FAILURE, Question, RunState, Spent},
    plan::{AgentSpec, Work},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

/// Columns for the name of a node.
pub(super) const NAME_WIDTH: usize = 24;
/// Pieces of work that stand on no branch and are named.
const MAX_LEFT: usize = 20;
/// Characters of an output on one line.
const OUTPUT_CHARS: usize = 600;

/// Turns records into lines; keeps only what it needs to say a record in one.
#[derive(Debug, Default)]
pub(super) struct Screen {
    color: bool,
    agents: BTreeMap<NodeId, (u32, u32, u64)>,
    /// Questions whose answer is a text, by who asks and the call.
    open: BTreeSet<(NodeId, String)>,
    /// The last record that holds of another run, and which that is.
    held: Option<(u64, RunId)>,
}

impl Screen {
    pub(super) fn new(color: bool) -> Screen {
        Screen { color, ..Screen::default() }
    }

    /// Takes note of a question that was asked before.
    pub(super) fn recall(&mut self, node: &NodeId, question: &Question) {
        if question.form.open {
            self.open.insert((node.clone(), question.call.clone()));
        }
    }

    /// Returns the line for a record, where it deserves one.
    pub(super) fn line(&mut self, record: &Record) -> Option<String> {
        if let Event::RunStarted(started) = &record.event {
            self.held = started.origin.as_ref().filter(|origin| origin.held > 0).map(|origin| (origin.held, origin.run.clone()));
        }
        let told = self.say(&record.event).map(|(name, text, tone)| row(self.color, &narrow(&name), (&plain(&text), tone)));
        let Some((_, run)) = self.held.take_if(|(last, _)| *last == record.seq) else { return told };
        let until = row(self.color, "run", (&plain(&format!("until here it is what holds of {run}")), Tone::Dim));
        Some(told.map_or(until.clone(), |told| format!("{told}\n{until}")))
    }

    fn say(&mut self, event: &Event) -> Option<(String, String, Tone)> {
        let of = |node: &NodeId, text: String, tone| Some((node.to_string(), text, tone));
        match event {
            Event::RunResumed { .. } => Some(("run".to_owned(), "resumed".to_owned(), Tone::Plain)),
            Event::ItemsAdded { step, items, by, .. } => {
                let by = if by == step { String::new() } else { " by the orchestrator".to_owned() };
                let keys = listed(&items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>());
                let keys = if keys.is_empty() { keys } else { format!(": {}", line(&keys, 100)) };
                Some((step.to_string(), format!("{} {}{by}{keys}", items.len(), plural(items.len(), "item")), Tone::Plain))
            }
            Event::FrameOpened { node, inputs: Some(_), .. } => of(node, "called".to_owned(), Tone::Dim),
            Event::FrameOpened { node, .. } if [ON_FAILURE, FINALLY].contains(&node.step.0.as_str()) => of(node, "begins".to_owned(), Tone::Dim),
            Event::FrameOpened { node, round, .. } => of(node, format!("round {round}"), Tone::Dim),
            Event::StepStarted { node, attempt } => of(node, began(*attempt), Tone::Dim),
            Event::ModelReplied { node, reply, .. } => {
                let entry = self.agents.entry(node.clone()).or_default();
                (entry.0, entry.2) = (entry.0 + 1, entry.2 + reply.usage.total());
                None
            }
            Event::AttemptsLost { node, usage, .. } => {
                self.agents.entry(node.clone()).or_default().2 += usage.total();
                None
            }
            Event::ToolFinished { node, result, tool, verdict, .. } => {
                self.agents.entry(node.clone()).or_default().1 += 1;
                let denied = result.is_error && (verdict.starts_with("denied") || matches!(verdict.as_str(), "malformed" | "unknown tool"));
                denied.then(|| (node.to_string(), format!("{tool} {verdict}: {}", line(&result.text, 110)), Tone::Warn))
            }
            Event::Compacted { node, strategy, before, after, .. } => of(node, shortened(strategy, *before, *after), Tone::Dim),
            Event::VerifyRan { node, passed, tail } => {
                let text = if *passed { "checks green".to_owned() } else { format!("checks red: {}", line(&red_line(tail), 110)) };
                of(node, text, if *passed { Tone::Plain } else { Tone::Warn })
            }
            Event::CacheHit { node, run, .. } => of(node, format!("the result of {} stands for the work", plain(&run.0)), Tone::Dim),
            Event::ArtefactKept { node, name, .. } => of(node, format!("kept as artefact {}", plain(name)), Tone::Dim),
            Event::MergeAdvanced { node, progress } => Some(merge(node, progress)),
            Event::SelectAdvanced { node, progress } => select(node, progress),
            Event::WorkDelivered { node, delivery: Delivery::Conflicted { paths } } => {
                of(node, format!("does not fit the work of {}: {}", node.owner(), line(&paths.join(", "), 110)), Tone::Warn)
            }
            Event::QuestionAsked { node, call, question, form } => {
                if form.open {
                    self.open.insert((node.clone(), call.clone()));
                }
                of(node, format!("asks: {question}"), Tone::Warn)
            }
            Event::QuestionAnswered { node, call, allowed, by, note, .. } => {
                let note = note.as_ref().map(|note| format!(": {}", line(note, 110))).unwrap_or_default();
                let word = answered(self.open.remove(&(node.clone(), call.clone())), *allowed);
                of(node, format!("{word} by {by}{note}"), Tone::Plain)
            }
            Event::Told { node, text, by, .. } => of(node, format!("told by {by}: {}", line(text, 110)), Tone::Plain),
            Event::FellBack { node, to, failure, .. } => of(node, format!("asks {} instead: {}", plain(to), line(&failure.message, 110)), Tone::Warn),
            Event::Parked { node, failure } => of(node, format!("waits for its model: {}", line(&failure.message, 200)), Tone::Warn),
            Event::RetryScheduled { node, failure, .. } => of(node, format!("will be tried again: {}", line(&failure.message, 110)), Tone::Warn),
            Event::OrchestratorWoken { node, reasons, .. } => of(node, format!("woken: {}", Wake::listed(reasons)), Tone::Dim),
            Event::OrchestratorRested { node, failure: Some(failure), .. } => {
                of(node, format!("failed, the graph alone decides: {}", failure.message), Tone::Bad)
            }
            Event::OrchestratorRested { node, text, .. } => of(node, line(first_line(text), 110), Tone::Plain),
            Event::RunCancelled { by } => Some(("run".to_owned(), format!("cancelled by {by}"), Tone::Warn)),
            Event::LimitReached { limit } => Some(("run".to_owned(), format!("the run's limit of {} is reached", limit_word(*limit)), Tone::Bad)),
            Event::StepFinished { node, outcome } => Some(self.finished(node, outcome)),
            Event::BranchMade { name, .. } => Some(("branch".to_owned(), short_name(name).to_owned(), Tone::Good)),
            Event::HookRan { node, hook, verdict: HookVerdict::Error, reason, .. } => {
                of(node, format!("hook {hook} failed: {}", line(reason, 110)), Tone::Warn)
            }
            Event::RunStarted(_)
            | Event::HookRan { .. }
            | Event::ConditionEvaluated { .. }
            | Event::WorkspaceMade { .. }
            | Event::AgentBriefed { .. }
            | Event::MessageAdded { .. }
            | Event::ToolStarted { .. }
            | Event::WorkCaptured { .. }
            | Event::CheckpointKept { .. }
            | Event::WorkDelivered { .. }
            | Event::TimerFired { .. }
            | Event::BranchIntended { .. }
            | Event::RunFinished { .. } => None,
        }
    }

    fn finished(&self, node: &NodeId, outcome: &Outcome) -> (String, String, Tone) {
        let used = self
            .agents
            .get(node)
            .map(|(turns, calls, tokens)| {
                format!("  ({turns} {}, {calls} {}, {} tokens)", plural(*turns as usize, "turn"), plural(*calls as usize, "tool call"), thousands(*tokens))
            })
            .unwrap_or_default();
        let (text, tone) = match outcome {
            Outcome::Succeeded(success) if success.output.get("dropped").is_some_and(Value::is_array) => {
                let dropped = success.output["dropped"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
                let told = format!("done; its changes are not kept: {}. With a `scope` they are", line(&dropped.join(", "), 200));
                (told, Tone::Warn)
            }
            Outcome::Succeeded(_) => (format!("done{used}"), Tone::Good),
            Outcome::Failed(failure) => (format!("failed: {}{used}", line(&failure.message, 200)), Tone::Bad),
            Outcome::Skipped(cause) => (format!("skipped: {}", skip_word(cause)), Tone::Dim),
        };
        (node.to_string(), text, tone)
    }
}

fn began(attempt: u32) -> String {
    if attempt == 1 { "started".to_owned() } else { format!("started, attempt {attempt}") }
}

fn select(node: &NodeId, progress: &SelectProgress) -> Option<(String, String, Tone)> {
    let (text, tone) = match progress {
        SelectProgress::Gated { passed: true, .. } => return None,
        SelectProgress::Gated { candidate, tail, .. } => (format!("{candidate} is out: {}", line(&red_line(tail), 110)), Tone::Warn),
        SelectProgress::Voted { vote, winner, .. } => (format!("vote {vote} for {winner}"), Tone::Plain),
        SelectProgress::Abstained { vote, reason, .. } => (format!("vote {vote} was not given: {}", line(reason, 110)), Tone::Warn),
        SelectProgress::Chosen { winner, .. } => (format!("chose {winner}"), Tone::Plain),
    };
    Some((node.to_string(), text, tone))
}

fn merge(node: &NodeId, progress: &MergeProgress) -> (String, String, Tone) {
    let (text, tone) = match progress {
        MergeProgress::Joined { from, settled, .. } if settled.is_empty() => (format!("joined {from}"), Tone::Plain),
        MergeProgress::Joined { from, settled, .. } => {
            let settled: Vec<String> = settled.iter().map(|(path, by)| format!("{path} settled by {by}")).collect();
            (format!("joined {from}: {}", settled.join(", ")), Tone::Plain)
        }
        MergeProgress::Conflicted { from, paths } => (format!("conflict with {from} in {}", paths.join(", ")), Tone::Warn),
        MergeProgress::Ejected { from, reason } => (format!("put {from} aside: {}", line(reason, 110)), Tone::Bad),
        MergeProgress::Verified { passed: true, .. } => ("the joined tree is green".to_owned(), Tone::Plain),
        MergeProgress::Verified { tail, .. } => (format!("the joined tree is red: {}", line(&red_line(tail), 110)), Tone::Bad),
    };
    (node.to_string(), text, tone)
}

/// What a run says when it is over, from its journal's fold.
pub(super) fn summary(state: &RunState, color: bool) -> String {
    let mut text = String::new();
    let plan = state.plan();
    let outcome = state.finished();
    let (word, tone) = match outcome {
        Some(Outcome::Succeeded(_)) if state.is_partial() => ("succeeded, in part: a limit was reached", Tone::Good),
        Some(Outcome::Succeeded(_)) => ("succeeded", Tone::Good),
        Some(Outcome::Failed(failure)) if failure.kind == FailureKind::Cancelled => ("cancelled", Tone::Warn),
        Some(Outcome::Failed(_)) => ("failed", Tone::Bad),
        Some(Outcome::Skipped(_)) => ("skipped", Tone::Dim),
        None => ("not over", Tone::Warn),
    };
    let run = state.started().map(|started| started.run.to_string()).unwrap_or_default();
    let _ = writeln!(text, "\nRun {run}: {}", paint(color, tone, word));
    if let Some(failure) = outcome.and_then(Outcome::failure) {
        let _ = writeln!(text, "  {}", block(&failure_text(failure)).replace('\n', "\n  ").replace("\n    hint: ", "\n  hint: "));
    }
    endings(&mut text, state, outcome.and_then(Outcome::failure));
    agents(&mut text, state);
    for step in plan.steps().filter(|step| matches!(step.work, Work::Merge(_))) {
        if let Some(node) = state.node(&NodeId::step(&step.id)) {
            merge_report(&mut text, &step.id.0, node);
        }
    }
    if let Some(words) = state.frame(&[]).and_then(|frame| frame.watch.last_words()).filter(|words| !words.trim().is_empty()) {
        let _ = writeln!(text, "\nThe orchestrator's summary\n  {}", block(words.trim()).replace('\n', "\n  "));
    }
    let output = outcome.and_then(|outcome| outcome.success().map(|success| &*success.output).or(outcome.failure().map(|failure| &failure.output)));
    outputs(&mut text, output);
    if outcome.is_some_and(|outcome| outcome.success().is_some()) {
        for (name, why) in unmade_outputs(state) {
            let _ = writeln!(text, "  {}", paint(color, Tone::Warn, &line(&format!("`{name}` could not be made: {why}"), OUTPUT_CHARS)));
        }
    }
    let left = if outcome.is_some_and(|outcome| outcome.success().is_some()) { left_over(state) } else { Vec::new() };
    if let Some(branch) = state.branch().filter(|branch| branch.made) {
        let name = short_name(&branch.name);
        let _ = writeln!(text, "\nThe result stands on branch {}", paint(color, Tone::Good, name));
    } else if outcome.is_some_and(|outcome| outcome.success().is_some()) && left.is_empty() {
        let _ = writeln!(text, "\nNothing differs from the commit the run started from, so there is no branch.");
    }
    left_behind(&mut text, state, &left, color);
    text
}

/// Names the work that stands on no branch, with the refs that keep it.
fn left_behind(text: &mut String, state: &RunState, left: &[NodeId], color: bool) {
    let (Some(run), false) = (state.started().map(|started| &started.run), left.is_empty()) else { return };
    let _ = writeln!(text, "\n{}", paint(color, Tone::Warn, "Work that stands on no branch, since what was to join it did not:"));
    for node in left.iter().take(MAX_LEFT) {
        let _ = writeln!(text, "  {:<NAME_WIDTH$} {}", node.to_string(), ref_of(run, &node.slug(), "result"));
    }
    if left.len() > MAX_LEFT {
        let _ = writeln!(text, "  … and {} more", left.len() - MAX_LEFT);
    }
}

/// Says what the agents of `on_failure` explain, and why an ending failed where the run's own failure does not say it.
fn endings(text: &mut String, state: &RunState, said: Option<&Failure>) {
    for id in [ON_FAILURE, FINALLY] {
        let Some((within, frame)) = state.inner(&NodeId::step(&id.into())) else { continue };
        for step in frame.plan.steps() {
            let node = NodeId::inside(&within, &step.id);
            match state.outcome(&node) {
                Some(Outcome::Succeeded(Success { output, .. })) if id == ON_FAILURE => {
                    if let Some(words) = output.as_str().filter(|words| !words.trim().is_empty()) {
                        let _ = write!(text, "\n{node} says\n{}", indent(block(words).trim(), 2));
                    }
                }
                Some(Outcome::Failed(failure)) if said.is_none_or(|said| !said.message.ends_with(&failure.message)) => {
                    let _ = write!(text, "\n{node} failed\n{}", indent(&block(&failure_text(failure)), 2));
                }
                _ => {}
            }
        }
    }
}

fn agents(text: &mut String, state: &RunState) {
    let nodes = state.nodes();
    // What sub-agents and helpers use is charged to the node they work for, and they have rows of their own.
    let helpers: Vec<_> = nodes.iter().filter(|(id, _)| id.helper.is_some()).collect();
    let own = |id: &NodeId, node: &NodeState| {
        let below = helpers.iter().filter(|(helper, _)| id.helper.is_none() && helper.owner() == *id);
        below.fold(node.spent, |spent, (_, helper)| spent.since(&helper.spent))
    };
    let all = nodes.iter().map(|(id, node)| (*id, *node, own(id, node)));
    let rows: Vec<(&NodeId, &NodeState, Spent)> = all.filter(|(_, node, spent)| node.conversation.brief().is_some() || !spent.is_nothing()).collect();
    if rows.is_empty() {
        return;
    }
    let scripted = state.started().is_some_and(|started| started.is_scripted());
    let width = rows.iter().map(|(id, ..)| narrow(&id.to_string()).chars().count()).max().unwrap_or(0).max(8);
    let _ = writeln!(text, "\nAgents{:w$}  agent         turns  tool calls    tokens  cost", "", w = width.saturating_sub(4));
    for (id, node, spent) in rows {
        let agent = node.conversation.brief().map(|brief| brief.agent.clone()).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {:width$}  {agent:<12}  {:>5}  {:>10}  {:>8}  {}",
            narrow(&id.to_string()),
            spent.turns,
            spent.calls,
            thousands(spent.usage.total()),
            price(&spent, scripted)
        );
    }
    let all = state.spent();
    let _ =
        writeln!(text, "  {:width$}  {:<12}  {:>5}  {:>10}  {:>8}  {}", "in all", "", all.turns, all.calls, thousands(all.usage.total()), price(all, scripted));
}

/// Shows what the run results in: texts as they stand, everything else as JSON on one line.
fn outputs(text: &mut String, output: Option<&Value>) {
    let Some(Value::Object(fields)) = output else { return };
    if !fields.is_empty() {
        text.push_str("\nOutputs\n");
    }
    for (name, value) in fields {
        let _ = match value {
            Value::String(said) if said.contains('\n') => writeln!(text, "  {name}:\n{}", indent(&block(said.trim_end()), 4).trim_end_matches('\n')),
            Value::String(said) => writeln!(text, "  {name}: {}", line(said, OUTPUT_CHARS)),
            value => writeln!(text, "  {name}: {}", line(&value.to_string(), OUTPUT_CHARS)),
        };
    }
}

fn merge_report(text: &mut String, step: &str, node: &NodeState) {
    if node.deeds.merged.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nMerge {step}");
    for progress in &node.deeds.merged {
        let line = match progress {
            MergeProgress::Joined { from, commit, settled } => {
                let settled: Vec<String> = settled.iter().map(|(path, by)| format!("{path} settled by {by}")).collect();
                let how = if settled.is_empty() { "cleanly".to_owned() } else { settled.join(", ") };
                format!("joined   {from} as {}, {how}", short(&commit.0))
            }
            MergeProgress::Conflicted { from, paths } => format!("conflict {from} in {}", paths.join(", ")),
            MergeProgress::Ejected { from, reason } => format!("ejected  {from}: {reason}"),
            MergeProgress::Verified { commit, passed, .. } => format!("{} {}", if *passed { "green   " } else { "red     " }, short(&commit.0)),
        };
        let _ = writeln!(text, "  {}", plain(&line));
    }
}

/// Says who answers the agents of a run; `None` where it has none.
/// `lifted` says that their commands run without walls, and without asking, only since nobody but a script answers.
pub(super) fn models_line<'a>(agents: impl Iterator<Item = &'a Arc<AgentSpec>>, models: &Models, lifted: bool) -> Option<String> {
    let walls =
        if lifted { "\nThere is no sandbox here (bubblewrap is not installed, or does not work): commands run without one, and nothing is asked." } else { "" };
    let mut names: Vec<String> = agents.map(|agent| agent.model.choices.join(" or ")).collect();
    if names.is_empty() {
        return None;
    }
    if models.replay.is_some() {
        return Some("Every reply is replayed from a recording: nothing is sent anywhere, and the costs are those of then.".to_owned() + walls);
    }
    if models.model.is_scripted() {
        return Some(
            "The model is scripted: every reply comes from a file, nothing is sent anywhere. Git, worktrees, tools, hooks and checks are real.".to_owned()
                + walls,
        );
    }
    names.sort_unstable();
    names.dedup();
    Some(format!("{}: {}", if names.len() == 1 { "Model" } else { "Models" }, names.join(", ")))
}

/// Writes a failure as people read it.
pub(super) fn failure_text(failure: &Failure) -> String {
    let hint = failure.hint.as_ref().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
    let status = if let FailureKind::Limit(limit) = failure.kind { format!("limit of {} reached: ", limit_word(limit)) } else { String::new() };
    format!("{status}{}{hint}", failure.message)
}

fn limit_word(limit: Limit) -> &'static str {
    match limit {
        Limit::Turns => "turns",
        Limit::Tokens => "tokens",
        Limit::Money => "money",
        Limit::Time => "time",
        Limit::Repeats => "repeated calls",
    }
}

pub(super) fn skip_word(cause: &SkipCause) -> String {
    match cause {
        SkipCause::Condition => "its `if` is false".to_owned(),
        SkipCause::Upstream(node) => format!("because of how {node} ended"),
        SkipCause::Stopped => "stopped".to_owned(),
        SkipCause::Sibling(node) => format!("because {node} failed"),
        SkipCause::RunEnding => "the run was ending".to_owned(),
        SkipCause::Budget(node) => format!("the budget of {node} was used up"),
    }
}

/// Writes what so much cost: `-` where nothing was paid, `?` where no price is known, `>` where some are not. What a script
/// said costs nothing, and what a recording says cost what it did then.
pub(super) fn price(spent: &Spent, scripted: bool) -> String {
    match (spent.unpriced, spent.usd > 0.0) {
        (_, is_paid) if spent.is_nothing() || (scripted && !is_paid) => "-".to_owned(),
        (false, _) => format!("${:.4}", spent.usd),
        (true, true) => format!(">${:.4}", spent.usd),
        (true, false) => "?".to_owned(),
    }
}

/// How a piece of text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Name,
    Dim,
    Good,
    Warn,
    Bad,
}

pub(super) fn paint(color: bool, tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Name => "1",
        Tone::Dim => "2",
        Tone::Good => "32",
        Tone::Warn => "33",
        Tone::Bad => "31",
    };
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

pub(super) fn thousands(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=9_999_999 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// Returns the word for an answer; `open` says whether it is a text.
pub(super) fn answered(open: bool, allowed: bool) -> &'static str {
    match (open, allowed) {
        (true, _) => "answered",
        (false, true) => "allowed",
        (false, false) => "refused",
    }
}

/// Writes keys on one line, in quotes where one of them holds what stands between them.
pub(super) fn listed(keys: &[&str]) -> String {
    if keys.iter().any(|key| key.contains([',', ';'])) { keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ") } else { keys.join(", ") }
}

/// Says what was left out of a conversation.
fn shortened(strategy: &str, before: u64, after: u64) -> String {
    match strategy {
        UNTHINKING => "goes on without what was thought, which is not taken back".to_owned(),
        _ => format!("conversation shortened, about {before} to {after} tokens"),
    }
}

pub(super) fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

pub(super) fn short(commit: &str) -> &str {
    &commit[..commit.len().min(10)]
}

pub(super) fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// Returns what a red check said last, or the command and its exit code where it said nothing.
fn red_line(tail: &str) -> String {
    let lines: Vec<&str> = tail.trim().lines().collect();
    match lines.as_slice() {
        [command, code] => format!("{command} {code}"),
        [.., last] => (*last).to_owned(),
        [] => String::new(),
    }
}

/// Writes what is said of a node, whose name is narrow, on a line.
pub(super) fn row(color: bool, name: &str, (text, tone): (&str, Tone)) -> String {
    format!("  {}  {}", paint(color, Tone::Name, &format!("{name:<NAME_WIDTH$}")), paint(color, tone, text))
}

/// Cleans a node's name and keeps its end where it is long: keys may hold anything.
pub(super) fn narrow(name: &str) -> String {
    let name = plain(name);
    if name.chars().count() > NAME_WIDTH { format!("…{}", tail(&name, NAME_WIDTH - 1)) } else { name }
}

fn tail(text: &str, chars: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    all[all.len().saturating_sub(chars)..].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn nothing_that_a_run_says_acts_on_the_terminal() {
        let node = NodeId::item(&"work".into(), "a\u{1b}[2J\u{202e}b");
        let asked = Event::QuestionAsked {
            node: node.clone(),
            call: "c".to_owned(),
            question: "really?\r\u{7}\u{2066}".to_owned(),
            form: crate::event::Form::default(),
        };
        for event in [Event::StepStarted { node, attempt: 1 }, asked] {
            let line = Screen::new(false).line(&Record { seq: 0, at: Timestamp(0), event }).unwrap();
            assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}')), "{line:?}");
        }
    }
}
