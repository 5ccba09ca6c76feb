//! One node's records, one entry for what a person takes for one thing: a turn with its calls, their results and what
//! hooks said of them.
use crate::{
    event::{CommitId, Delivery, Event, Failure, HookVerdict, Isolation, MergeProgress, NodeId, Outcome, Record, RunId, SelectProgress, Wake, Why},
    journal::Spent,
    message::{Message, Reply, StopReason, ToolCall, ToolResult, Usage},
};
use serde_json::Value;

/// What happened to a node.
#[derive(Debug)]
pub(in crate::cli) enum Entry<'a> {
    Began {
        attempt: u32,
    },
    Condition {
        holds: bool,
    },
    /// An iteration of a loop, or a call of another workflow, which has inputs.
    Round {
        round: u32,
        called: bool,
        base: &'a CommitId,
    },
    Workspace {
        base: &'a CommitId,
        isolation: Isolation,
        path: &'a str,
        command: Option<&'a str>,
    },
    Briefed {
        agent: &'a str,
        models: &'a [String],
        tools: Vec<&'a str>,
        message: &'a Message,
    },
    Turn(Turn<'a>),
    Told {
        why: Why,
        message: &'a Message,
    },
    Hook(HookSaid<'a>),
    Verified {
        passed: bool,
        tail: &'a str,
    },
    Compacted {
        before: u64,
        after: u64,
        strategy: &'a str,
    },
    /// What it had in its files was kept.
    Checkpoint {
        commit: &'a CommitId,
    },
    Captured {
        commit: &'a CommitId,
        paths: &'a [String],
    },
    /// The result of an earlier run stands for the work.
    Cached {
        run: &'a RunId,
    },
    /// Its output was kept as a file.
    Kept {
        name: &'a str,
    },
    Merged(&'a MergeProgress),
    Selected(&'a SelectProgress),
    Delivered(&'a Delivery),
    Asked {
        call: &'a str,
        question: &'a str,
        /// Whether the answer is a text.
        open: bool,
    },
    Answered {
        call: &'a str,
        allowed: bool,
        by: &'a str,
        note: Option<&'a str>,
    },
    Retry {
        failure: &'a Failure,
    },
    /// Requests were paid for that gave no reply.
    Lost(Spent),
    /// The next model of its list is asked instead.
    FellBack {
        from: &'a str,
        to: &'a str,
        failure: &'a Failure,
    },
    Parked {
        failure: &'a Failure,
    },
    Woken {
        reasons: &'a [Wake],
    },
    Rested {
        text: &'a str,
        failure: Option<&'a Failure>,
    },
    Ended(&'a Outcome),
}

/// One reply and what became of its calls.
#[derive(Debug)]
pub(in crate::cli) struct Turn<'a> {
    /// From 1, over all attempts.
    pub(in crate::cli) number: usize,
    pub(in crate::cli) model: &'a str,
    pub(in crate::cli) stop: &'a StopReason,
    pub(in crate::cli) usage: Usage,
    pub(in crate::cli) usd: Option<f64>,
    pub(in crate::cli) text: String,
    pub(in crate::cli) calls: Vec<CallShown<'a>>,
}

/// One call and its result.
#[derive(Debug)]
pub(in crate::cli) struct CallShown<'a> {
    pub(in crate::cli) id: &'a str,
    pub(in crate::cli) tool: &'a str,
    /// As the model wrote it.
    pub(in crate::cli) input: &'a Value,
    /// As hooks left it, where they changed it.
    pub(in crate::cli) rewritten: Option<&'a Value>,
    /// Whether it passed the gate.
    pub(in crate::cli) started: bool,
    pub(in crate::cli) result: Option<&'a ToolResult>,
    pub(in crate::cli) verdict: &'a str,
    pub(in crate::cli) took_ms: u64,
    pub(in crate::cli) hooks: Vec<HookSaid<'a>>,
}

/// What a hook said.
#[derive(Debug)]
pub(in crate::cli) struct HookSaid<'a> {
    pub(in crate::cli) hook: &'a str,
    pub(in crate::cli) on: &'a str,
    pub(in crate::cli) verdict: HookVerdict,
    pub(in crate::cli) reason: &'a str,
}

/// Gathers what happened to a node, in order. Results are put to their calls, so that they come in call order.
pub(in crate::cli) fn entries<'a>(records: &'a [Record], id: &NodeId) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let mut turns = 0;
    for record in records.iter().filter(|record| record.event.node() == Some(id)) {
        let entry = match &record.event {
            Event::ModelReplied { reply, .. } => {
                turns += 1;
                Entry::Turn(turn(turns, reply))
            }
            Event::ToolStarted { call, input, .. } => {
                if let Some(shown) = call_of(&mut entries, call) {
                    shown.started = true;
                    shown.rewritten = input.as_ref();
                }
                continue;
            }
            Event::ToolFinished { result, verdict, took_ms, .. } => {
                if let Some(shown) = call_of(&mut entries, &result.call) {
                    shown.result = Some(result);
                    shown.verdict = verdict;
                    shown.took_ms = *took_ms;
                }
                continue;
            }
            Event::HookRan { hook, on, call, verdict, reason, .. } => {
                let said = HookSaid { hook, on, verdict: *verdict, reason };
                match call.as_ref().and_then(|call| call_of(&mut entries, call)) {
                    Some(shown) => {
                        shown.hooks.push(said);
                        continue;
                    }
                    None => Entry::Hook(said),
                }
            }
            other => match plain(other) {
                Some(entry) => entry,
                None => continue,
            },
        };
        entries.push(entry);
    }
    entries
}

/// Returns the entry of an event that stands for itself.
fn plain(event: &Event) -> Option<Entry<'_>> {
    Some(match event {
        Event::StepStarted { attempt, .. } => Entry::Began { attempt: *attempt },
        Event::ConditionEvaluated { holds, .. } => Entry::Condition { holds: *holds },
        Event::FrameOpened { round, base, inputs, .. } => Entry::Round { round: *round, called: inputs.is_some(), base },
        Event::WorkspaceMade { base, isolation, path, command, .. } => Entry::Workspace { base, isolation: *isolation, path, command: command.as_deref() },
        Event::AgentBriefed { brief, .. } => Entry::Briefed {
            agent: &brief.agent,
            models: &brief.models,
            tools: brief.tools.iter().map(|tool| tool.name.as_str()).collect(),
            message: &brief.message,
        },
        Event::MessageAdded { message, why, .. } => Entry::Told { why: *why, message },
        Event::VerifyRan { passed, tail, .. } => Entry::Verified { passed: *passed, tail },
        Event::Compacted { before, after, strategy, .. } => Entry::Compacted { before: *before, after: *after, strategy },
        Event::WorkCaptured { commit, paths, .. } => Entry::Captured { commit, paths },
        Event::CheckpointKept { commit, .. } => Entry::Checkpoint { commit },
        Event::CacheHit { run, .. } => Entry::Cached { run },
        Event::ArtefactKept { name, .. } => Entry::Kept { name },
        Event::MergeAdvanced { progress, .. } => Entry::Merged(progress),
        Event::SelectAdvanced { progress, .. } => Entry::Selected(progress),
        Event::WorkDelivered { delivery, .. } => Entry::Delivered(delivery),
        Event::QuestionAsked { call, question, form, .. } => Entry::Asked { call, question, open: form.open },
        Event::QuestionAnswered { call, allowed, by, note, .. } => Entry::Answered { call, allowed: *allowed, by, note: note.as_deref() },
        Event::RetryScheduled { failure, .. } => Entry::Retry { failure },
        Event::AttemptsLost { usage, usd, .. } => Entry::Lost(Spent::without_reply(usage, *usd)),
        Event::FellBack { from, to, failure, .. } => Entry::FellBack { from, to, failure },
        Event::Parked { failure, .. } => Entry::Parked { failure },
        Event::OrchestratorWoken { reasons, .. } => Entry::Woken { reasons },
        Event::OrchestratorRested { text, failure, .. } => Entry::Rested { text, failure: failure.as_ref() },
        Event::StepFinished { outcome, .. } => Entry::Ended(outcome),
        // A word is shown where the agent hears it, calls are put to their turn, a timer says nothing that the attempt after it
        // does not, and the rest is not about a node.
        _ => return None,
    })
}

fn turn<'a>(number: usize, reply: &'a Reply) -> Turn<'a> {
    let call = |call: &'a ToolCall| CallShown {
        id: &call.id,
        tool: &call.name,
        input: &call.input,
        rewritten: None,
        started: false,
        result: None,
        verdict: "",
        took_ms: 0,
        hooks: Vec::new(),
    };
    Turn { number, model: &reply.model, stop: &reply.stop, usage: reply.usage, usd: reply.usd, text: reply.text(), calls: reply.calls().map(call).collect() }
}

/// Finds the newest call of this id; results follow their reply before the next one comes.
fn call_of<'e, 'a>(entries: &'e mut [Entry<'a>], id: &str) -> Option<&'e mut CallShown<'a>> {
    let turn = entries.iter_mut().rev().find_map(|entry| if let Entry::Turn(turn) = entry { Some(turn) } else { None })?;
    turn.calls.iter_mut().find(|call| call.id == id)
}
