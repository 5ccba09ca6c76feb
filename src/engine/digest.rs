//! What the orchestrator is told when it is woken: a bounded digest of what changed, envelopes and not transcripts.
use crate::{
    event::{Event, NodeId, Outcome, StepId, Wake},
    journal::{NodeState, RunState},
    message::Message,
};
use std::{collections::BTreeMap, fmt::Write as _};

/// Bytes of one item's output in a digest.
const OUTPUT_BYTES: usize = 2_000;
/// Items described one by one in a digest; the rest is counted.
const ITEMS: usize = 40;
/// Steps named one by one, in a digest and in the orchestrator's first message; the rest is counted.
pub(super) const STEPS: usize = 100;

/// Makes the event that wakes the orchestrator, from what it has not been told yet.
pub(super) fn woken(state: &RunState, node: &NodeId, idle: bool) -> Option<Event> {
    let frame = state.frame(&node.within)?;
    let mut reasons: Vec<Wake> = frame.watch.reasons().iter().map(|reason| reason.wake).collect();
    let ended = frame.open_steps == 0;
    if idle {
        reasons.push(Wake::Idle);
    }
    if ended {
        reasons.push(Wake::End);
    }
    reasons.sort_by_key(|reason| reason.words());
    reasons.dedup();
    let mut text = String::from("<digest>\n");
    for reason in frame.watch.reasons().iter().filter_map(|reason| reason.node.as_ref()).take(ITEMS) {
        describe(&mut text, state, reason);
    }
    let more = frame.watch.reasons().len().saturating_sub(ITEMS);
    if more > 0 {
        let _ = writeln!(text, "and {more} more items ended");
    }
    overview(&mut text, state, node);
    let question = if ended {
        "Everything has ended. Sum the run up for the people who started it: what was done, what was not, what they should look at."
    } else if idle {
        "Nothing else can run at the moment."
    } else if frame.watch.reasons().iter().any(|reason| reason.wake == Wake::Start) {
        "The run begins."
    } else {
        "Something has changed. Use your tools if the work needs steering; otherwise say in a sentence that it may go on."
    };
    let _ = write!(text, "</digest>\n\n{question}");
    Some(Event::OrchestratorWoken { node: node.clone(), reasons, message: Message::user(&text) })
}

fn describe(text: &mut String, state: &RunState, id: &NodeId) {
    let Some(node) = state.node(id) else { return };
    match &node.outcome {
        Some(Outcome::Succeeded(success)) => {
            let _ = writeln!(text, "- {id} succeeded{}: {}", changed(node), shorten(&plain(&success.output)));
        }
        Some(Outcome::Failed(failure)) => {
            let _ = writeln!(text, "- {id} failed: {}", shorten(&failure.message));
        }
        Some(Outcome::Skipped(_)) | None => {
            let _ = writeln!(text, "- {id} is open again");
        }
    }
}

fn changed(node: &NodeState) -> String {
    match &node.deeds.captured {
        Some((_, paths)) if !paths.is_empty() => format!(" (changed {})", shorten(&paths.join(", "))),
        Some(_) | None => String::new(),
    }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Says where the steps stand: those with items and those that failed first, the rest as far as there is room; how many more
/// there are of each kind is counted.
fn overview(text: &mut String, state: &RunState, orchestrator: &NodeId) {
    let Some(frame) = state.frame(&orchestrator.within) else { return };
    let word = |id: &StepId| state.outcome(&orchestrator.beside(id)).map_or("open", Outcome::word);
    let order = frame.plan.order();
    let (first, rest): (Vec<&StepId>, Vec<&StepId>) = order.iter().partition(|id| {
        state.fan(&orchestrator.beside(id)).is_some() || state.outcome(&orchestrator.beside(id)).is_some_and(|outcome| outcome.failure().is_some())
    });
    let mut unsaid: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, id) in first.into_iter().chain(rest).enumerate() {
        if at >= STEPS {
            *unsaid.entry(word(id)).or_default() += 1;
            continue;
        }
        let items = state.fan(&orchestrator.beside(id)).map(|fan| format!(", {} of {} items ended", fan.items.len() - fan.open, fan.items.len()));
        let _ = writeln!(text, "step {id}: {}{}", word(id), items.unwrap_or_default());
    }
    if !unsaid.is_empty() {
        let unsaid: Vec<String> = unsaid.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
        let _ = writeln!(text, "and more steps: {}", unsaid.join(", "));
    }
}

fn shorten(text: &str) -> String {
    let end = text.floor_char_boundary(OUTPUT_BYTES);
    if end < text.len() { format!("{} [… {} bytes more]", &text[..end], text.len() - end) } else { text.to_owned() }
}
