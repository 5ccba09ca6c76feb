//! The structure of a template, as far as it matters before it runs.
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
}

/// A filter, test or function and where its name stands.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    pub(super) name: String,
    pub(super) span: Range<usize>,
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
    /// Where the whole chain stands.
    pub(super) span: Range<usize>,
    /// Whether the template says what happens when it is undefined (`default`, `is defined`, `?.`).
    pub(super) optional: bool,
    /// Whether its variable is bound inside the template.
    pub(super) bound: bool,
    /// Where its `.` and `[` stand that are not yet `?.` and `?[`.
    pub(super) links: Vec<usize>,
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
}
