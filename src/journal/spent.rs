//! What is used of models: calls, tokens, dollars. A price that is not known is never counted as nothing.
use crate::message::{Reply, Usage};

/// What a conversation has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Model calls.
    pub turns: u32,
    /// Tool calls answered.
    pub calls: u32,
    /// Tokens.
    pub usage: Usage,
    /// Dollars of the replies whose price is known.
    pub usd: f64,
    /// Whether some reply's price is unknown.
    pub unpriced: bool,
}

impl Spent {
    /// Returns what one reply used: a turn, its tokens, its dollars.
    pub fn of(reply: &Reply) -> Spent {
        let used = Spent::without_reply(&reply.usage, reply.usd);
        Spent { turns: 1, unpriced: used.unpriced || reply.usd_is_part, ..used }
    }

    /// Returns what an attempt used that gave none.
    pub fn without_reply(usage: &Usage, usd: Option<f64>) -> Spent {
        Spent { usage: *usage, usd: usd.unwrap_or(0.0), unpriced: usd.is_none(), ..Spent::default() }
    }

    /// Returns whether nothing was used.
    pub fn is_nothing(&self) -> bool {
        *self == Spent::default()
    }

    /// Returns the dollars that are known to have been spent; nothing where no price is known of what was used.
    pub fn known_usd(&self) -> Option<f64> {
        if self.unpriced && self.usd <= 0.0 { None } else { Some(self.usd) }
    }

    /// Says what it cost, as a part of a sentence.
    pub fn dollars(&self) -> String {
        match (self.known_usd(), self.unpriced) {
            (None, _) => "an unknown sum".to_owned(),
            (Some(usd), true) => format!("more than ${usd:.2}, since not every price is known"),
            (Some(usd), false) if self.usage.estimated => format!("about ${usd:.2}, since not every reply was counted"),
            (Some(usd), false) => format!("${usd:.2}"),
        }
    }

    /// Returns what was used beyond `earlier`, an earlier state of the same account.
    #[must_use]
    pub fn since(&self, earlier: &Spent) -> Spent {
        Spent {
            turns: self.turns - earlier.turns,
            calls: self.calls - earlier.calls,
            usage: Usage {
                input: self.usage.input - earlier.usage.input,
                output: self.usage.output - earlier.usage.output,
                cache_read: self.usage.cache_read - earlier.usage.cache_read,
                cache_write: self.usage.cache_write - earlier.usage.cache_write,
                searches: self.usage.searches - earlier.usage.searches,
                estimated: self.usage.estimated,
            },
            usd: self.usd - earlier.usd,
            unpriced: self.unpriced,
        }
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.turns += other.turns;
        self.calls += other.calls;
        self.usage += other.usage;
        self.usd += other.usd;
        self.unpriced |= other.unpriced;
    }
}
