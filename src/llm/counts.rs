//! Counts of tokens as servers report them: read field by field, whatever form a number has, and estimated where they are absent.
//!
//! What a reply used is never taken for nothing: budgets hang on it. A count that is missing, null or no number is estimated from
//! the texts, at 3.2 bytes a token as elsewhere, and the usage says that it is.
use super::ModelCall;
use crate::message::{Block, Usage};
use serde_json::Value;

/// What a request is expected to be counted for, where nobody counts it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guess {
    prompt: u64,
}

impl Guess {
    pub(super) fn of(call: &ModelCall<'_>) -> Guess {
        let tools: usize = call.tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()).sum();
        let messages: usize = call.messages.iter().map(|message| message.bytes()).sum();
        Guess { prompt: tokens(call.system.len() + tools + messages) }
    }
}

/// What a server reported so far; cumulative, the last word on each holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The whole prompt, where cached tokens are a part of it; otherwise what was not cached.
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) cache_read: Option<u64>,
    pub(super) cache_write: Option<u64>,
    pub(super) searches: Option<u64>,
}

impl Counts {
    /// Takes over what `new` says.
    pub(super) fn overwrite(&mut self, new: Counts) {
        self.input = new.input.or(self.input);
        self.output = new.output.or(self.output);
        self.cache_read = new.cache_read.or(self.cache_read);
        self.cache_write = new.cache_write.or(self.cache_write);
        self.searches = new.searches.or(self.searches);
    }

    /// Returns the same for a server whose input is the whole prompt: without what was read from the cache and written to it.
    #[must_use]
    pub(super) fn without_cached(self) -> Counts {
        let read = self.cache_read.map(|read| read.min(self.input.unwrap_or(read)));
        let rest = self.input.map(|prompt| prompt - read.unwrap_or(0).min(prompt));
        let write = self.cache_write.map(|write| write.min(rest.unwrap_or(write)));
        Counts { input: rest.map(|rest| rest - write.unwrap_or(0).min(rest)), cache_read: read, cache_write: write, ..self }
    }

    /// Returns what was reported, of a reply that may not be whole yet: nothing where nothing was.
    pub(super) fn told(self) -> Usage {
        let said = |count: Option<u64>| count.unwrap_or(0);
        Usage {
            input: said(self.input),
            output: said(self.output),
            cache_read: said(self.cache_read),
            cache_write: said(self.cache_write),
            searches: said(self.searches),
            estimated: false,
        }
    }

    /// Returns what was used for a reply of these blocks. No prompt has no tokens, and no reply that says something.
    pub(super) fn usage(self, guess: Guess, blocks: &[Block]) -> Usage {
        let (read, write) = (self.cache_read.unwrap_or(0), self.cache_write.unwrap_or(0));
        let input = self.input.filter(|input| input.saturating_add(read).saturating_add(write) > 0);
        let said = tokens(blocks.iter().map(|block| block.raw().as_str().len()).sum());
        let output = self.output.filter(|output| *output > 0 || said == 0);
        Usage {
            input: input.unwrap_or_else(|| guess.prompt.saturating_sub(read.saturating_add(write))),
            output: output.unwrap_or(said),
            cache_read: read,
            cache_write: write,
            searches: self.searches.unwrap_or(0),
            estimated: input.is_none() || output.is_none(),
        }
    }
}

/// Reads a count at a place in what a server reports: a number, also with a point or in quotes. `None` for anything else.
pub(super) fn read(usage: &Value, pointer: &str) -> Option<u64> {
    let number = match usage.pointer(pointer)? {
        Value::Number(number) => return number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    whole(number)
}

fn whole(number: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, and counts are bounded later")]
    (number.is_finite() && number >= 0.0).then(|| number.ceil() as u64)
}

/// Estimates the tokens of a text.
pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes as u64 * 10).div_ceil(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_count_is_read_in_every_form_and_nothing_else_is_one() {
        let usage = json!({"n": 7, "f": 7.0, "g": 6.2, "s": " 7 ", "null": null, "minus": -7, "word": "many", "list": [7], "deep": {"n": 7}});
        for name in ["/n", "/f", "/g", "/s", "/deep/n"] {
            assert_eq!(read(&usage, name), Some(7), "{name}");
        }
        for name in ["/null", "/minus", "/word", "/list", "/deep", "/nowhere", "/null/n"] {
            assert_eq!(read(&usage, name), None, "{name}");
        }
    }

    #[test]
    fn what_was_not_counted_is_estimated_and_never_nothing() {
        let guess = Guess { prompt: 1_000 };
        let said = [Block::text(&"x".repeat(294))];
        let all = Counts { input: Some(5), output: Some(6), ..Counts::default() };
        assert_eq!(all.usage(guess, &said), Usage { input: 5, output: 6, ..Usage::default() });
        let nothing = Usage { input: 1_000, output: 100, estimated: true, ..Usage::default() };
        assert_eq!(Counts::default().usage(guess, &said), nothing);
        assert_eq!(Counts { input: Some(0), output: Some(0), ..Counts::default() }.usage(guess, &said), nothing);
        let cached = Counts { cache_read: Some(900), output: Some(6), ..Counts::default() };
        assert_eq!(cached.usage(guess, &said), Usage { input: 100, output: 6, cache_read: 900, estimated: true, ..Usage::default() });
        let silent = Counts { input: Some(5), output: Some(0), ..Counts::default() };
        assert!(!silent.usage(guess, &[]).estimated, "a reply may say nothing");
    }

    #[test]
    fn cached_tokens_are_taken_out_of_the_prompt_they_are_a_part_of() {
        let counts = |input, cache_read, cache_write| Counts { input, cache_read, cache_write, ..Counts::default() }.without_cached();
        let taken = |counts: Counts| (counts.input, counts.cache_read, counts.cache_write);
        assert_eq!(taken(counts(Some(100), Some(60), Some(30))), (Some(10), Some(60), Some(30)));
        assert_eq!(taken(counts(Some(100), Some(160), Some(30))), (Some(0), Some(100), Some(0)));
        assert_eq!(taken(counts(None, Some(160), None)), (None, Some(160), None));
    }
}
