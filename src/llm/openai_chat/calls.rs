//! Tool calls from the fragments of a Chat Completions stream, which servers cut and label in many ways.
//!
//! A fragment may name its call by `index`, by `id`, by both, or by neither; an index may stand for several calls, an id
//! may be empty or used twice. The rules, in order: an id that differs begins a call; an id that is known goes to its call;
//! without an id the index tells; without either the last call goes on.
use super::super::{fields::string, neutral, provider::Ids, surrogate::repair};
use crate::message::Block;
use serde_json::value::RawValue;

/// More calls than any reply has.
const MAX_CALLS: usize = 512;

/// One fragment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// One call as far as it has come.
#[derive(Debug, Clone, Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Partial {
    fn is_complete(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }
}

/// The calls of one reply.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls(Vec<Partial>);

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether every call's arguments have come to their end.
    pub(super) fn are_complete(&self) -> bool {
        self.0.iter().all(|call| call.arguments.trim().is_empty() || objects(&call.arguments).is_some())
    }

    /// Takes the fragments of one chunk. Where none of several has an index, their places are their indices.
    pub(super) fn take(&mut self, mut fragments: Vec<Fragment>) -> Result<(), &'static str> {
        if fragments.len() > 1 && fragments.iter().all(|fragment| fragment.index.is_none()) {
            for (place, fragment) in fragments.iter_mut().enumerate() {
                fragment.index = u64::try_from(place).ok();
            }
        }
        for fragment in fragments {
            let place = self.place(&fragment);
            if place == self.0.len() {
                if self.0.len() >= MAX_CALLS {
                    return Err("the reply has too many tool calls");
                }
                self.0.push(Partial { index: fragment.index, ..Partial::default() });
            }
            let call = &mut self.0[place];
            call.index = call.index.or(fragment.index);
            if call.id.is_empty() {
                call.id = fragment.id;
            }
            name(&mut call.name, &fragment.name);
            call.arguments.push_str(&fragment.arguments);
        }
        Ok(())
    }

    /// Finds the call that a fragment belongs to; the number of calls where it begins one.
    fn place(&self, fragment: &Fragment) -> usize {
        let new = self.0.len();
        let at_index = |call: &Partial| fragment.index.is_some() && call.index == fragment.index;
        let found = if fragment.id.is_empty() {
            let named = self.0.iter().rposition(at_index);
            // An index that was never seen begins a call; no index at all goes on with the last one.
            if fragment.index.is_some() { named } else { new.checked_sub(1) }
        } else {
            let same_id = |call: &Partial| call.id == fragment.id && (fragment.index.is_none() || call.index.is_none() || call.index == fragment.index);
            let nameless = |call: &Partial| call.id.is_empty() && (fragment.index.is_none() || at_index(call));
            self.0.iter().rposition(same_id).or_else(|| self.0.iter().rposition(nameless))
        };
        let Some(place) = found else { return new };
        let call = &self.0[place];
        let is_named_again = !fragment.name.is_empty() && !call.name.is_empty();
        // A name after finished arguments is the next call, where nothing else tells it from this one.
        let begins_anew = is_named_again && call.is_complete() && (fragment.name != call.name || !fragment.arguments.trim().is_empty());
        let changes_name = is_named_again && !call.arguments.is_empty() && fragment.name != call.name;
        if begins_anew || changes_name { new } else { place }
    }

    /// Writes the calls as blocks, arguments that run into each other as calls of their own.
    pub(super) fn blocks(self, ids: &mut Ids) -> Result<Vec<Block>, &'static str> {
        let mut blocks = Vec::new();
        for call in self.0 {
            if call.name.is_empty() {
                return Err("a tool call has no name");
            }
            let given = repair(call.arguments.trim()).into_owned();
            let texts = match objects(&given) {
                Some(texts) if !texts.is_empty() => texts,
                Some(_) => vec![String::new()],
                None => vec![given],
            };
            for (n, text) in texts.iter().enumerate() {
                if blocks.len() >= MAX_CALLS {
                    return Err("the reply has too many tool calls");
                }
                let id = ids.claim(if n == 0 { &call.id } else { "" });
                blocks.push(block(&id, &call.name, text));
            }
        }
        Ok(blocks)
    }
}

/// A name is said once, again in every fragment, or in pieces before the arguments.
fn name(known: &mut String, said: &str) {
    if said.starts_with(known.as_str()) {
        said.clone_into(known);
    } else {
        known.push_str(said);
    }
}

/// Splits arguments into the JSON objects that they are; `None` where they are anything else. `null` counts as nothing.
fn objects(arguments: &str) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    for value in serde_json::Deserializer::from_str(arguments).into_iter::<Box<RawValue>>() {
        let raw = value.ok()?;
        match raw.get() {
            "null" => {}
            text if text.starts_with('{') => texts.push(text.to_owned()),
            _ => return None,
        }
        if texts.len() > MAX_CALLS {
            return None;
        }
    }
    Some(texts)
}

/// Writes one call: in the neutral form, and beside it the argument text as the model wrote it, where that is of use:
/// servers choke on broken arguments in history, so what is sent back of those is the repaired form.
fn block(id: &str, name: &str, arguments: &str) -> Block {
    let (input, is_object) = neutral::input(arguments);
    let written = string(if arguments.is_empty() { "{}" } else { arguments });
    neutral::call(id, name, &input, is_object.then_some(("arguments", written.as_str())))
}
