//! Deterministic compaction: what always works, without a model.
//!
//! The first message (task and constraints) stays verbatim, everything the engine said to the agent stays verbatim, each
//! tool call becomes one line of a ledger, and the most recent whole turns are kept, the last one always: without their thinking
//! where that is bound to the prefix that goes away, as they are where it is not. The record of an earlier compaction becomes a
//! part of the new one, so that records do not pile up. It only happens where every call is answered.
use crate::{
    llm,
    message::{Block, Message, Role, ToolResult, View},
};
use std::sync::Arc;

/// Compaction starts at this share of what fits, in percent.
pub(super) const TRIGGER_PERCENT: u64 = 80;
/// What stays is at most this share of what fits, in percent.
const TARGET_PERCENT: u64 = 40;
/// The ledger holds at most this many bytes; older lines go first.
const LEDGER_BYTES: usize = 16 * 1024;
/// Words of the engine hold at most about this many bytes: the longest are cut, and where that is not enough the oldest go.
const SAID_BYTES: usize = 32 * 1024;
/// No word of the engine is cut to less, in bytes.
const SAID_BYTES_MIN: usize = 200;
/// No result of the last turn is cut to less, in bytes.
const RESULT_BYTES_MIN: usize = 2_000;

/// Returns the messages that stand for `messages` in at most about `fits` tokens; `None` where nothing can be dropped. Thinking that
/// is bound to what stood before it is left out.
pub(super) fn compact(messages: &[Arc<Message>], fits: u64, is_bound: bool) -> Option<Vec<Message>> {
    let (first, rest) = messages.split_first()?;
    let (task, record) = Record::split(&first.blocks);
    let target = usize::try_from(fits * TARGET_PERCENT / 100 * 3).unwrap_or(usize::MAX);
    let (ledger_max, said_max) = (LEDGER_BYTES.min(target / 4), SAID_BYTES.min(target / 4));
    let taken = task.iter().map(|block| block.raw().as_str().len()).sum::<usize>() + ledger_max + record.said.iter().map(String::len).sum::<usize>();
    let budget = target.saturating_sub(taken);
    let last = last_turn(rest);
    let (dropped, kept) = rest.split_at(rest.len() - tail(rest, budget).max(last));
    let kept: Vec<Message> = kept.iter().map(|message| if is_bound { without_thinking(message) } else { Message::clone(message) }).collect();
    let size = |messages: &[Message]| messages.iter().map(Message::bytes).sum::<usize>();
    let whole = size(&kept);
    let kept = if kept.len() == last { shrunk(&kept, budget.max(target / 2)) } else { kept };
    if dropped.is_empty() && size(&kept) == whole {
        return None;
    }
    let mut opening = Message { role: Role::User, blocks: task.to_vec() };
    opening.blocks.extend(record.and(dropped).blocks(ledger_max, said_max));
    let mut compacted = vec![opening];
    compacted.extend(kept.into_iter().filter(|message| !message.blocks.is_empty()));
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
        if begins_turn(message) {
            kept = rest.len() - at;
        }
    }
    kept
}

/// Returns how many messages at the end are the last turn: what the assistant said last and what it has not yet seen.
fn last_turn(rest: &[Arc<Message>]) -> usize {
    rest.iter().rposition(begins_turn).map_or(0, |at| rest.len() - at)
}

fn begins_turn(message: &Arc<Message>) -> bool {
    message.role == Role::Assistant && message.blocks.iter().any(|block| !matches!(block.view(), View::Thinking(_) | View::Other(_)))
}

/// Cuts the longest results of a turn that is larger than `room` bytes, and says so in each.
fn shrunk(turn: &[Message], room: usize) -> Vec<Message> {
    let result = |block: &Block| if let View::ToolResult(result) = block.view() { Some(result.text.len()) } else { None };
    let mut sizes: Vec<usize> = turn.iter().flat_map(|message| &message.blocks).filter_map(result).collect();
    let room = room.saturating_sub(turn.iter().map(Message::bytes).sum::<usize>().saturating_sub(sizes.iter().sum()));
    let most = share(&mut sizes, room).max(RESULT_BYTES_MIN);
    let cut = |block: &Block| match block.view() {
        View::ToolResult(result) if result.text.len() > most => Block::tool_result(&ToolResult { text: middle_out(&result.text, most), ..result.clone() }),
        _ => block.clone(),
    };
    turn.iter().map(|message| Message { role: message.role, blocks: message.blocks.iter().map(cut).collect() }).collect()
}

/// Returns to how many bytes the longest must be cut for all to fit into `room`; what short ones leave of their share is for those.
fn share(sizes: &mut [usize], mut room: usize) -> usize {
    sizes.sort_unstable();
    for (at, size) in sizes.iter().enumerate() {
        let share = room / (sizes.len() - at);
        if *size > share {
            return share;
        }
        room -= size;
    }
    usize::MAX
}

fn middle_out(text: &str, bytes: usize) -> String {
    let (head, tail) = (text.floor_char_boundary(bytes * 3 / 4), text.ceil_char_boundary(text.len() - bytes / 4));
    format!("{}\n[{} bytes were cut here to make room in the conversation]\n{}", &text[..head], tail - head, &text[tail..])
}

fn without_thinking(message: &Message) -> Message {
    let keep = |block: &&Block| match block.view() {
        View::Thinking(_) => false,
        View::Other(kind) => kind != "redacted_thinking",
        View::Text(_) | View::ToolCall(_) | View::ToolResult(_) => true,
    };
    Message { role: message.role, blocks: message.blocks.iter().filter(keep).filter_map(llm::unbound).collect() }
}

/// How the blocks of a record begin.
const RECORD: &str = "The earlier part of this conversation was shortened to make room. What follows is a record of it, not an instruction. \
                      Read files again where you need their content.";
const SAID: &str = "\n\nYou were told since (verbatim):\n";
const LEDGER: &str = "Your tool calls so far, oldest first:\n";
const WORDS: &str = "Your last words of that part:\n";

/// What is kept of messages that are dropped.
#[derive(Default)]
struct Record {
    /// What the agent was told.
    said: Vec<String>,
    /// Its calls and what came of them, a line each.
    ledger: Vec<String>,
    /// How many lines went before these.
    gone: usize,
    /// What it said last.
    words: Option<String>,
}

impl Record {
    /// Takes the record of an earlier compaction off what the first message says besides. What stands behind it was said since.
    fn split(first: &[Block]) -> (&[Block], Record) {
        let text = |block: &Block| if let View::Text(text) = block.view() { text.clone() } else { String::new() };
        let Some(at) = first.iter().skip(1).position(|block| text(block).starts_with(RECORD)) else { return (first, Record::default()) };
        let (task, blocks) = first.split_at(at + 1);
        let mut texts = blocks.iter().map(text).peekable();
        let mut record = Record::default();
        if let Some(said) = texts.next().as_deref().and_then(|text| text.strip_prefix(RECORD)?.strip_prefix(SAID)) {
            record.said.push(said.to_owned());
        }
        if let Some(ledger) = texts.next_if(|text| text.starts_with(LEDGER)) {
            let lines = ledger[LEDGER.len()..].lines();
            for line in lines {
                match line.strip_suffix(GONE).and_then(|count| count.strip_prefix('[')?.parse::<usize>().ok()) {
                    Some(count) => record.gone += count,
                    None => record.ledger.push(line.to_owned()),
                }
            }
        }
        record.words = texts.next_if(|text| text.starts_with(WORDS)).map(|text| text[WORDS.len()..].to_owned());
        record.said.extend(texts.filter(|text| !text.is_empty()));
        (task, record)
    }

    /// Adds messages that came after what it records.
    fn and(mut self, dropped: &[Arc<Message>]) -> Record {
        for message in dropped {
            for block in &message.blocks {
                match (block.view(), message.role) {
                    (View::ToolCall(call), _) => self.ledger.push(format!("- {} {}", call.name, shorten(&call.input.to_string(), 160))),
                    (View::ToolResult(result), _) if result.is_error => self.ledger.push(format!("  failed: {}", shorten(&result.text, 160))),
                    (View::ToolResult(result), _) => self.ledger.push(format!("  {}", shorten(&result.text, 80))),
                    (View::Text(text), Role::User) => self.said.push(text.clone()),
                    (View::Text(text), Role::Assistant) => self.words = Some(ending(text, 2_000)),
                    (View::Thinking(_) | View::Other(_), _) => {}
                }
            }
        }
        self
    }

    /// Writes it.
    fn blocks(&self, ledger_max: usize, said_max: usize) -> Vec<Block> {
        // What was told is joined by blank lines, and is told apart at each. The long are cut before a short one goes.
        let said = self.said.join("\n\n");
        let said: Vec<&str> = said.split("\n\n").collect();
        let most = share(&mut said.iter().map(|text| text.len() + 2).collect::<Vec<_>>(), said_max).max(SAID_BYTES_MIN);
        let said: Vec<String> = said.into_iter().map(|text| if text.len() > most { middle_out(text, most) } else { text.to_owned() }).collect();
        let said = newest(&said.iter().map(String::as_str).collect::<Vec<_>>(), said_max * 2).join("\n\n");
        let lines: Vec<&str> = self.ledger.iter().map(String::as_str).collect();
        let kept = newest(&lines, ledger_max);
        let gone = self.gone + lines.len() - kept.len();
        let told = if said.is_empty() { RECORD.to_owned() } else { format!("{RECORD}{SAID}{said}") };
        let mut blocks = vec![Block::text(&told)];
        if gone + kept.len() > 0 {
            let gone = if gone == 0 { String::new() } else { format!("[{gone}{GONE}\n") };
            blocks.push(Block::text(&format!("{LEDGER}{gone}{}", kept.join("\n"))));
        }
        blocks.extend(self.words.iter().map(|words| Block::text(&format!("{WORDS}{words}"))));
        blocks
    }
}

/// What stands behind the number of lines that a ledger has lost.
const GONE: &str = " earlier lines are not shown]";

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
    let line: String = text.chars().take(chars).map(|c| if c.is_control() { ' ' } else { c }).collect();
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
    fn records_become_one_however_often_a_conversation_is_shortened() {
        let fits = 21_000;
        let mut messages: Vec<Arc<Message>> = vec![Arc::new(Message::user("the task"))];
        let size = |messages: &[Arc<Message>]| messages.iter().map(|message| message.bytes() as u64 / 3).sum::<u64>();
        let (mut compactions, mut largest) = (0, 0);
        for at in 0..400 {
            messages.extend(turn(at, 6_000));
            if at == 3 {
                messages.extend(
                    [Message { role: Role::Assistant, blocks: vec![Block::text("so far")] }, Message::user("mind the colour\n\nand the size")].map(Arc::new),
                );
            }
            if size(&messages) * 100 > fits * TRIGGER_PERCENT {
                let last = messages.last().unwrap().clone();
                messages = compact(&messages, fits, true).unwrap().into_iter().map(Arc::new).collect();
                compactions += 1;
                largest = largest.max(size(&messages));
                assert_eq!(messages.last(), Some(&last), "what the agent has not seen stays");
            }
        }
        assert!(compactions < 150, "{compactions} times");
        assert!(largest < fits / 2, "{largest} of {fits}");
        let told = messages[0].text();
        assert!(
            told.starts_with("the task\n\n") && told.contains("mind the colour\n\nand the size") && told.contains(" earlier lines are not shown]\n"),
            "{told}"
        );
        assert_eq!([RECORD, SAID, LEDGER, GONE].map(|head| told.matches(head).count()), [1, 1, 1, 1]);
    }

    #[test]
    fn a_long_word_takes_no_short_one_with_it() {
        let mut messages = long(1, 10);
        for text in ["never touch main".to_owned(), "x".repeat(60_000), "y".repeat(60_000)] {
            messages.extend([Message { role: Role::Assistant, blocks: vec![Block::text("done")] }, Message::user(&text)].map(Arc::new));
        }
        messages.extend(turn(9, 10));
        let told = compact(&messages, 60_000, true).unwrap()[0].text();
        assert!(told.contains("never touch main") && told.contains("xxx") && told.contains("yyy"), "{}", told.len());
        assert!(told.len() < SAID_BYTES + 2_000, "{}", told.len());
    }

    #[test]
    fn results_that_do_not_fit_are_cut_and_say_so() {
        let call = |id: &str| ToolCall { id: id.to_owned(), name: "Bash".to_owned(), input: json!({}) };
        let results = [("a", 64_000), ("b", 64_000), ("c", 10)].map(|(id, bytes)| ToolResult::new(id, "x".repeat(bytes), false));
        let calls = Message { role: Role::Assistant, blocks: ["a", "b", "c"].map(|id| Block::tool_call(&call(id))).to_vec() };
        let messages = [Message::user("the task"), calls.clone(), Message::results(&results, None)].map(Arc::new);
        let compacted = compact(&messages, 21_000, true).unwrap();
        assert_eq!(compacted[1], calls);
        assert!(compacted.iter().map(Message::bytes).sum::<usize>() < 21_000 * 3 / 2, "{}", compacted.iter().map(Message::bytes).sum::<usize>());
        let texts: Vec<&str> = compacted[2]
            .blocks
            .iter()
            .filter_map(|block| if let View::ToolResult(result) = block.view() { Some(result.text.as_str()) } else { None })
            .collect();
        assert!(texts[0].contains("bytes were cut here") && texts[1].contains("bytes were cut here") && texts[2] == "x".repeat(10));
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
