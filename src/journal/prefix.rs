//! What a model was shown before each of its replies, as a running hash over every block.
//!
//! Thinking is bound to exactly what came before it, and caches are found by it: what was sent once is sent again byte for
//! byte. Each reply is recorded with the hashes of what it was asked with; the next request is held against them before it is
//! sent, by the same process or another, and the block that is not the same is named.
use crate::{
    event::{BlobId, Brief},
    message::{Message, Role, View},
};
use std::sync::Arc;

/// The hashes over a conversation so far. Messages that are the same as at the last look are not hashed again.
#[derive(Debug, Clone, Default)]
pub struct Prefix {
    head: String,
    hashed: Vec<(Arc<Message>, Vec<String>)>,
}

/// What is not as it was shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// The system text or the tools.
    #[error("the system text or the tools are not those that the model was shown")]
    Head,
    /// One block.
    #[error("messages.{message}.content.{block} ({kind}) is not what the model was shown")]
    Block {
        /// The message's number, from 0.
        message: usize,
        /// The block's number in it, from 0.
        block: usize,
        /// What kind of block stands there now.
        kind: String,
    },
    /// The end.
    #[error("the model was shown more than there is: {blocks} blocks are missing at the end")]
    Missing {
        /// How many.
        blocks: usize,
    },
}

impl Prefix {
    /// Hashes a conversation and holds it against what was recorded; returns the hashes that are new.
    ///
    /// # Errors
    /// The first thing that is not as it was.
    pub fn extend(&mut self, brief: &Brief, messages: &[Arc<Message>], recorded: &[String]) -> Result<Vec<String>, Unlike> {
        self.hash(brief, messages);
        let words = std::iter::once(&self.head).chain(self.hashed.iter().flat_map(|(_, words)| words));
        let Some(unlike) = words.clone().zip(recorded).position(|(now, then)| now != then) else {
            let all = words.clone().count();
            return if all < recorded.len() {
                Err(Unlike::Missing { blocks: recorded.len() - all })
            } else {
                Ok(words.skip(recorded.len()).cloned().collect())
            };
        };
        let Some(mut block) = unlike.checked_sub(1) else { return Err(Unlike::Head) };
        let mut message = 0;
        while block >= messages[message].blocks.len() {
            block -= messages[message].blocks.len();
            message += 1;
        }
        Err(Unlike::Block { message, block, kind: kind(messages[message].blocks[block].view()) })
    }

    fn hash(&mut self, brief: &Brief, messages: &[Arc<Message>]) {
        if self.head.is_empty() {
            let tools = brief.tools.iter().map(|tool| format!("\0{}\0{}\0{}", tool.name, tool.description, tool.input_schema));
            self.head = word(&std::iter::once(brief.system.clone()).chain(tools).collect::<String>());
        }
        let same = self.hashed.iter().zip(messages).take_while(|((hashed, _), message)| Arc::ptr_eq(hashed, message)).count();
        self.hashed.truncate(same);
        for message in &messages[same..] {
            let mut last = self.hashed.iter().rev().find_map(|(_, words)| words.last()).unwrap_or(&self.head).clone();
            let role = if message.role == Role::User { "user" } else { "assistant" };
            let mut words = Vec::with_capacity(message.blocks.len());
            for block in &message.blocks {
                last = word(&format!("{last}\0{role}\0{}", block.raw().as_str()));
                words.push(last.clone());
            }
            self.hashed.push((message.clone(), words));
        }
    }
}

/// Shortens a hash: it is to find mistakes, not forgers.
fn word(text: &str) -> String {
    BlobId::of(text.as_bytes()).0[..16].to_owned()
}

fn kind(view: &View) -> String {
    match view {
        View::Text(_) => "text".to_owned(),
        View::Thinking(_) => "thinking".to_owned(),
        View::ToolCall(call) => format!("the call {} of `{}`", call.id, call.name),
        View::ToolResult(result) => format!("the result of {}", result.call),
        View::Other(kind) => kind.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Block, Raw, ToolCall, ToolResult, ToolSpec};
    use proptest::prelude::*;
    use serde_json::json;

    fn brief() -> Brief {
        let tools = vec![ToolSpec { name: "Read".to_owned(), description: "Reads.".to_owned(), input_schema: json!({"type": "object"}) }];
        Brief {
            agent: "a".to_owned(),
            models: Vec::new(),
            system: "s".to_owned(),
            tools,
            provider_tools: Vec::new(),
            output_schema: None,
            message: Message::user("hi"),
        }
    }

    fn raw(text: &str) -> Block {
        Block::from_raw(Raw::parse(text).expect("it is JSON"))
    }

    fn talk(turns: usize) -> Vec<Arc<Message>> {
        let mut messages = vec![Arc::new(Message::user("hi"))];
        for turn in 0..turns {
            let call = ToolCall { id: format!("c{turn}"), name: "Read".to_owned(), input: json!({"n": turn}) };
            let thinking = raw(r#"{"type":"thinking","thinking":"","signature":"s"}"#);
            messages.push(Arc::new(Message { role: Role::Assistant, blocks: vec![thinking, Block::tool_call(&call)] }));
            messages.push(Arc::new(Message::results(&[ToolResult::new(&call.id, "ok", false)], Some("Go on."))));
        }
        messages
    }

    /// Puts another block of the same kind and meaning in the place of one.
    fn altered(messages: &[Arc<Message>], message: usize, block: usize) -> Vec<Arc<Message>> {
        let mut messages = messages.to_vec();
        let mut changed = (*messages[message]).clone();
        changed.blocks[block] = raw(&changed.blocks[block].raw().as_str().replacen(':', ": ", 1));
        messages[message] = Arc::new(changed);
        messages
    }

    proptest! {
        #[test]
        fn one_byte_of_any_block_is_found_and_named(turns in 1_usize..8, pick: prop::sample::Index, known: bool) {
            let messages = talk(turns);
            let mut prefix = Prefix::default();
            let recorded = prefix.extend(&brief(), &messages, &[]).expect("nothing is recorded");
            let places: Vec<(usize, usize)> = messages.iter().enumerate().flat_map(|(at, message)| (0..message.blocks.len()).map(move |block| (at, block))).collect();
            prop_assert_eq!(recorded.len(), places.len() + 1);
            let (message, block) = places[pick.index(places.len())];
            // By the process that sent it, and by one that knows only the record.
            let mut looking = if known { prefix } else { Prefix::default() };
            let found = looking.extend(&brief(), &altered(&messages, message, block), &recorded);
            prop_assert!(matches!(found, Err(Unlike::Block { message: m, block: b, .. }) if (m, b) == (message, block)), "{found:?}");
        }

        #[test]
        fn what_only_grows_is_never_held_up(turns in 1_usize..8) {
            let messages = talk(turns);
            let (mut recorded, mut live) = (Vec::new(), Prefix::default());
            for end in (1..=messages.len()).step_by(2) {
                let new = live.extend(&brief(), &messages[..end], &recorded).expect("it grew");
                let resumed = Prefix::default().extend(&brief(), &messages[..end], &recorded);
                prop_assert_eq!(resumed.as_ref(), Ok(&new));
                recorded.extend(new);
            }
        }
    }

    #[test]
    fn the_head_and_what_is_missing_are_named_too() {
        let messages = talk(2);
        let recorded = Prefix::default().extend(&brief(), &messages, &[]).expect("nothing is recorded");
        let other = Brief { system: "t".to_owned(), ..brief() };
        assert_eq!(Prefix::default().extend(&other, &messages, &recorded), Err(Unlike::Head));
        assert_eq!(Prefix::default().extend(&brief(), &messages[..4], &recorded), Err(Unlike::Missing { blocks: 2 }));
        let swapped: Vec<Arc<Message>> = [0, 3, 2, 1, 4].map(|at| messages[at].clone()).to_vec();
        let found = Prefix::default().extend(&brief(), &swapped, &recorded).expect_err("two turns changed places");
        assert_eq!(found.to_string(), "messages.1.content.1 (the call c1 of `Read`) is not what the model was shown");
    }
}
