//! The structure of a template, as far as it matters before it runs.
use super::{
    Goes,
    gives::{Gives, Look, Seen},
};
use std::ops::Range;

/// The structure of one template.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// Every access to a variable, inner ones before the chain that holds them.
    pub(super) chains: Vec<Chain>,
    /// Text, outputs and tags in the order of the file.
    pub(super) pieces: Vec<Piece>,
    /// `{# … #}`.
    pub(super) comments: Vec<Range<usize>>,
    /// Every `{#` that begins no comment and stands for itself.
    pub(super) signs: Vec<usize>,
    /// The expressions that loops run over.
    pub(super) loops: Vec<Range<usize>>,
    /// Filters, tests and functions used.
    pub(super) calls: Vec<Call>,
    /// Parts that filters take of what they are given.
    pub(super) taken: Vec<Taken>,
    /// What the last expression gives.
    pub(super) gives: Option<Gives>,
}

/// A filter, test or function and where its name stands.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    pub(super) name: String,
    pub(super) span: Range<usize>,
    /// The names of its arguments, and where they stand.
    pub(super) arguments: Vec<(String, Range<usize>)>,
    /// Those of them that are one literal string, with what it says and where it stands.
    pub(super) texts: Vec<(String, String, Range<usize>)>,
}

/// A part that a filter takes: `get(key='id')`, `sort(attribute='id')`.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) look: Look,
    /// Where its name stands.
    pub(super) span: Range<usize>,
    /// Whether the filter says what happens where it is not there.
    pub(super) optional: bool,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Filter,
    Test,
    Function,
}

/// A variable with the accesses that follow it: `steps.plan.output[0].title`.
#[derive(Debug)]
pub(super) struct Chain {
    /// The leading parts that are names or literal strings; empty where the chain does not begin with a variable.
    pub(super) parts: Vec<(String, Range<usize>)>,
    /// The parts after those, from the first index on: an index of a list stands as [`super::ENTRY`].
    pub(super) more: Vec<String>,
    /// Where the whole chain stands.
    pub(super) span: Range<usize>,
    /// Whether the template says what happens when it is undefined (`default`, `is defined`, `?.`).
    pub(super) optional: bool,
    /// Whether its variable is bound inside the template.
    pub(super) bound: bool,
    /// What its variable stands for, and what of it is read, up to the first part that is computed.
    pub(super) look: Look,
    /// What becomes of it as it is.
    pub(super) goes: Goes,
    /// Whether a condition around it looks at the same value, or at what that is a part of.
    pub(super) guarded: bool,
    /// Whether a condition decides whether it is read at all.
    pub(super) asked: bool,
    /// The chains of the conditions that do.
    pub(super) guards: Vec<usize>,
    /// Where its `.` and `[` stand that are not yet `?.` and `?[`.
    pub(super) links: Vec<usize>,
}

impl Chain {
    /// Makes a chain that has read nothing yet.
    pub(super) fn new(from: Gives, span: Range<usize>) -> Chain {
        Chain {
            parts: Vec::new(),
            more: Vec::new(),
            span,
            optional: false,
            bound: false,
            look: Look { from, parts: Vec::new(), open: false },
            goes: Goes::Anywhere,
            guarded: false,
            asked: false,
            guards: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Returns the value of the scope that it is about: of the scope's own names the first two parts.
    pub(super) fn about(&self) -> Option<Vec<String>> {
        if !self.bound {
            return (!self.parts.is_empty()).then(|| self.parts.iter().take(2).map(|(part, _)| part.clone()).collect());
        }
        match self.look.seen() {
            Seen::Path { path, .. } => Some(path.into_iter().take(2).collect()),
            Seen::Nothing | Seen::Never { .. } => None,
        }
    }

    /// Returns whether it looks at what stands at a path: by the name that it is bound to, or in the scope.
    pub(super) fn asks_for(&self, path: &[String]) -> bool {
        let by_name = self.bound && self.parts.first().map(|(root, _)| root) == path.first();
        by_name || self.about().is_some_and(|about| about.iter().eq(path.iter().take(2)))
    }

    /// Returns whether it looks at what another one is about: the same variable, and of the scope's own names also the same
    /// part of it.
    pub(super) fn is_about(&self, other: &Chain) -> bool {
        fn part(chain: &Chain, at: usize) -> Option<&str> {
            chain.parts.get(at).map(|(part, _)| part.as_str())
        }
        part(self, 0) == part(other, 0) && (self.bound || part(self, 1) == part(other, 1))
    }
}

/// One piece of a template.
#[derive(Debug)]
pub(super) enum Piece {
    /// Text that stands for itself.
    Literal(Range<usize>),
    /// `{{ expr }}`: the place of the expression and how it ends.
    Output { span: Range<usize>, ending: Ending },
    /// `{% … %}`.
    Tag { span: Range<usize>, kind: TagKind },
}

/// What a tag does to the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagKind {
    /// Begins a block.
    Open,
    /// Begins another branch of a block.
    Branch,
    /// Ends a block.
    Close,
    /// Begins a section whose text goes through filters.
    Filter,
    /// Nothing.
    Other,
}

/// What the value of an expression has last gone through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// It ends in `sh` or `raw` on every way.
    pub(super) closed: bool,
    /// It ends in `sh` on at least one.
    pub(super) quoted: bool,
    /// A filter after it would be about its last part alone.
    pub(super) compound: bool,
}
