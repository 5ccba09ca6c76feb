//! Deterministic compaction: what always works, without a model.
//!
//! The first message (task and constraints) stays verbatim, everything the engine said to the agent stays verbatim, each
//! tool call becomes one line of a ledger, and the most recent whole turns are kept: without their thinking where that is bound
//! to the prefix that goes away, as they are where it is not. It only happens where every call is answered.
use crate::{
    llm,
    message::{Block, Message, Role, View},
};
use std::{fmt::Write as _, sync::Arc};

/// Compaction starts at this share of what fits, in percent.
pub(super) const TRIGGER_PERCENT: u64 = 80;
/// What stays is at most this share of what fits, in percent.
const TARGET_PERCENT: u64 = 40;
/// The ledger holds at most this many bytes; older lines go first.
const LEDGER_BYTES: usize = 16 * 1024;
/// Words of the engine beyond this many bytes are kept from the newest on.
const SAID_BYTES: usize = 32 * 1024;

/// Returns the messages that stand for `messages` in at most about `fits` tokens; `None` where nothing can be dropped. Thinking that
/// is bound to what stood before it is left out.
pub(super) fn compact(messages: &[Arc<Message>], fits: u64, is_bound: bool) -> Option<Vec<Message>> {
    let (first, rest) = messages.split_first()?;
    let budget = usize::try_from(fits * TARGET_PERCENT / 100 * 3).unwrap_or(usize::MAX).saturating_sub(first.bytes() + LEDGER_BYTES);
    let kept = tail(rest, budget);
    let (dropped, kept) = rest.split_at(rest.len() - kept);
    if dropped.is_empty() {
        return None;
    }
    let mut opening = Message { role: Role::User, blocks: first.blocks.clone() };
    opening.blocks.push(Block::text(&summary(dropped)));
    let mut compacted = vec![opening];
    let stays = |message: &Arc<Message>| if is_bound { without_thinking(message) } else { Message::clone(message) };
    compacted.extend(kept.iter().map(stays).filter(|message| !message.blocks.is_empty()));
    Some(compacted)
}

/// Returns the messages without what was thought in them and without what signs it, for a provider that takes it for another
/// conversation's; `None` where there is none.
pub(super) fn unthinking(messages: &[Arc<Message>]) -> Option<Vec<Message>> {
    let bare: Vec<Message> = messages.iter().map(|message| without_thinking(message)).collect();
    // A signature may stand on a call or on text too, which stay, as what they mean.
    if bare.iter().zip(messages).all(|(bare, message)| bare.blocks == message.blocks) {
        return None;
    }
    let mut joined: Vec<Message> = Vec::new();
    for message in bare.into_iter().filter(|message| !message.blocks.is_empty()) {
        match joined.last_mut() {
            Some(last) if last.role == message.role => last.blocks.extend(message.blocks),
            _ => joined.push(message),
        }
    }
    Some(joined)
}

/// Returns how many messages at the end fit into `budget` bytes, beginning with the assistant's.
fn tail(rest: &[Arc<Message>], budget: usize) -> usize {
    let (mut bytes, mut kept) = (0, 0);
    for (at, message) in rest.iter().enumerate().rev() {
        bytes += message.bytes();
        if bytes > budget {
            break;
        }
        if message.role == Role::Assistant && message.blocks.iter().any(|block| !matches!(block.view(), View::Thinking(_) | View::Other(_))) {
            kept = rest.len() - at;
        }
    }
    kept
}

fn without_thinking(message: &Message) -> Message {
    let keep = |block: &&Block| match block.view() {
        View::Thinking(_) => false,
        View::Other(kind) => kind != "redacted_thinking",
        View::Text(_) | View::ToolCall(_) | View::ToolResult(_) => true,
    };
    Message { role: message.role, blocks: message.blocks.iter().filter(keep).filter_map(llm::unbound).collect() }
}

fn summary(dropped: &[Arc<Message>]) -> String {
    let mut ledger: Vec<String> = Vec::new();
    let mut said: Vec<&str> = Vec::new();
    let mut words = None;
    for message in dropped {
        for block in &message.blocks {
            match (block.view(), message.role) {
                (View::ToolCall(call), _) => ledger.push(format!("- {} {}", call.name, shorten(&call.input.to_string(), 160))),
                (View::ToolResult(result), _) => {
                    let line = if result.is_error { format!("  failed: {}", shorten(&result.text, 160)) } else { format!("  {}", shorten(&result.text, 80)) };
                    ledger.push(line);
                }
                (View::Text(text), Role::User) => said.push(text),
                (View::Text(text), Role::Assistant) => words = Some(text.as_str()),
                (View::Thinking(_) | View::Other(_), _) => {}
            }
        }
    }
    let mut text = String::from("The earlier part of this conversation was shortened to make room. What follows is a record of it, not an instruction.\n");
    let said = newest(&said, SAID_BYTES);
    if !said.is_empty() {
        let _ = write!(text, "\nYou were told since (verbatim):\n{}\n", said.join("\n\n"));
    }
    let lines: Vec<&str> = ledger.iter().map(String::as_str).collect();
    let kept = newest(&lines, LEDGER_BYTES);
    let _ = write!(text, "\nYour tool calls so far, oldest first ({} lines not shown):\n{}\n", lines.len() - kept.len(), kept.join("\n"));
    if let Some(words) = words {
        let _ = write!(text, "\nYour last words of that part:\n{}\n", ending(words, 2_000));
    }
    text.push_str("\nRead files again where you need their content.");
    text
}

/// Returns the newest of `lines` that together hold at most `bytes`.
fn newest<'a>(lines: &[&'a str], bytes: usize) -> Vec<&'a str> {
    let mut room = bytes;
    let mut kept: Vec<&str> = lines
        .iter()
        .rev()
        .take_while(|line| {
            let fits = line.len() < room;
            room = room.saturating_sub(line.len() + 1);
            fits
        })
        .copied()
        .collect();
    kept.reverse();
    kept
}

/// Returns the end of a text as it is: what was cut is gone on with from there.
fn ending(text: &str, chars: usize) -> String {
    match text.char_indices().rev().nth(chars) {
        Some((at, first)) => format!("… {}", &text[at + first.len_utf8()..]),
        None => text.to_owned(),
    }
}

fn shorten(text: &str, chars: usize) -> String {
    let line: String = text.chars().take(chars).map(|c| if c == '\n' { ' ' } else { c }).collect();
    if text.chars().count() > chars { format!("{line} …") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};
    use serde_json::json;

    fn turn(at: usize, bytes: usize) -> [Arc<Message>; 2] {
        let call = ToolCall { id: format!("c{at}"), name: "Read".to_owned(), input: json!({"file_path": format!("f{at}.rs")}) };
        let thinking: Block = serde_json::from_value(json!({"type": "thinking", "thinking": "", "signature": "s"})).unwrap();
        let assistant = Message { role: Role::Assistant, blocks: vec![thinking, Block::tool_call(&call)] };
        [Arc::new(assistant), Arc::new(Message::results(&[ToolResult::new(&call.id, "x".repeat(bytes), false)], None))]
    }

    fn long(turns: usize, bytes: usize) -> Vec<Arc<Message>> {
        std::iter::once(Arc::new(Message::user("the task"))).chain((0..turns).flat_map(|at| turn(at, bytes))).collect()
    }

    #[test]
    fn what_stays_is_smaller_paired_alternating_and_free_of_thinking() {
        let messages = long(60, 2_000);
        let compacted = compact(&messages, 30_000, true).unwrap();
        assert_eq!(compacted[0].blocks[0], messages[0].blocks[0]);
        for pair in compacted.windows(2) {
            assert_ne!(pair[0].role, pair[1].role);
        }
        for (at, message) in compacted.iter().enumerate() {
            for call in message.calls() {
                let answers: Vec<&ToolResult> =
                    compacted[at + 1].blocks.iter().filter_map(|block| if let View::ToolResult(result) = block.view() { Some(result) } else { None }).collect();
                assert!(answers.iter().any(|answer| answer.call == call.id));
            }
            assert!(!message.blocks.iter().any(|block| matches!(block.view(), View::Thinking(_))));
        }
        let size = |messages: &[Message]| messages.iter().map(Message::bytes).sum::<usize>();
        assert!(size(&compacted) < 60 * 2_000 / 2, "{}", size(&compacted));
        assert!(compacted[0].text().contains("- Read {\"file_path\":\"f0.rs\"}"));
        assert_eq!(compacted.last().unwrap().role, Role::User);
    }

    #[test]
    fn only_what_was_thought_is_left_out_and_roles_go_on_alternating() {
        let mut messages = long(2, 10);
        let thought: Block = serde_json::from_value(json!({"type": "thinking", "thinking": "", "signature": "s"})).unwrap();
        messages.extend([Message { role: Role::Assistant, blocks: vec![thought] }, Message::user("go on")].map(Arc::new));
        let bare = unthinking(&messages).unwrap();
        assert_eq!(bare.iter().map(|message| message.blocks.len()).collect::<Vec<_>>(), [1, 1, 1, 1, 2]);
        assert!(bare.windows(2).all(|pair| pair[0].role != pair[1].role));
        assert_eq!(unthinking(&bare.into_iter().map(Arc::new).collect::<Vec<_>>()), None);
    }

    #[test]
    fn nothing_is_dropped_where_there_is_nothing_to_drop() {
        assert_eq!(compact(&long(0, 0), 1_000, true), None);
        assert_eq!(compact(&long(1, 10), 100_000, true), None);
    }
}
