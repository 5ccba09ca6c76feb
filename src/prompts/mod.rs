//! Templates: the text of prompts, commands and outputs, with values put in.
//!
//! The language is Tera's, without its escaping for HTML and without everything that reaches beyond one text (includes,
//! inheritance, components). Two things are added. *Undefined is an error*: whoever means "if there is one" says so with
//! `default(value=…)`, `is defined` or `?.`. And *what is checked is what runs*: a reader of our own finds the variables a
//! template reads, with their places, before it runs ([`check`]), and guards exactly those in the text that Tera gets.
//!
//! Templates come from the author of a workflow, values from models. A value is never read as a template, and in a command
//! ([`check_shell`]) no value gets in but quoted by `sh` or marked `raw` by the author.
mod engine;
mod filters;
mod fit;
mod gives;
mod lexer;
mod outline;
mod reader;
mod rewrite;
mod scope;
mod shell;

pub use engine::{condition, evaluate, evaluate_all, is_plain, render};
pub use fit::{Fitted, Whole, fit};
pub use gives::Gives;
pub use scope::Scope;

use crate::source::nearest;
use gives::{Look, Seen};
use outline::Outline;
use std::ops::Range;

/// The part of a path that stands for any entry of a list.
pub const ENTRY: &str = "[]";

/// The longest template that is read, in bytes.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// The longest text that a template may give, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// One variable that a template reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Its dotted path, up to the first part that is computed: `steps`, `plan`, `output`, `tasks`. The index of a list is
    /// [`ENTRY`], whatever its number.
    pub path: Vec<String>,
    /// Where it stands in the template, in bytes.
    pub span: Range<usize>,
    /// Whether the template says what happens when it is undefined.
    pub optional: bool,
    /// How many of its first parts are not written there: the template binds a name to them, and reads them where it does so.
    pub given: usize,
    /// Of a map that the template makes and that does not hold this: what it holds. The path is then the part alone.
    pub never: Option<Vec<String>>,
    /// Whether it becomes a word of a command as it is, and no condition around it looks at it: null would be an error there.
    pub word: bool,
}

impl Reading {
    /// Returns whether the template itself reads it from the scope.
    pub fn is_own(&self) -> bool {
        self.given == 0 && self.never.is_none()
    }
}

/// A template that cannot be read or rendered, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
    /// Where in the template, in bytes; always on character boundaries.
    pub span: Range<usize>,
    /// What to do, where that is known.
    pub help: Option<String>,
}

impl TemplateError {
    fn new(message: impl Into<String>, span: Range<usize>, help: Option<String>) -> TemplateError {
        TemplateError { message: message.into(), span, help }
    }

    /// Names a word that nothing is known by, and the one that was probably meant.
    fn unknown<'a>(what: &str, word: &str, span: Range<usize>, known: impl IntoIterator<Item = &'a str> + Clone) -> TemplateError {
        let help = match nearest(word, known.clone()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None => listed(known),
        };
        TemplateError::new(format!("unknown {what} `{word}`"), span, help)
    }
}

/// Names what is known, if it is few enough to read.
fn listed<'a>(known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut known: Vec<&str> = known.into_iter().take(64).collect();
    known.sort_unstable();
    (!known.is_empty() && known.len() < 16).then(|| format!("known here: {}", known.join(", ")))
}

/// Checks a template and returns what it reads, in the order of the text.
pub fn check(text: &str) -> Result<Vec<Reading>, TemplateError> {
    let outline = engine::outline(text)?;
    engine::compile(text, &outline)?;
    Ok(readings(&outline))
}

/// Returns what a template gives that is one whole `{{ expr }}`, as far as its text says it.
pub fn gives(text: &str) -> Gives {
    let whole = |outline: outline::Outline| engine::whole(text, &outline).and(outline.gives);
    engine::outline(text).ok().and_then(whole).unwrap_or(Gives::Unknown)
}

/// What is to be said of a template that becomes a shell command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What it reads, in the order of the text.
    pub readings: Vec<Reading>,
    /// Values that get in unquoted: every `{{ }}` must end in `sh` or `raw`, `sh` outside of quotes and here-documents, where
    /// its own quotes would not hold.
    pub unquoted: Vec<TemplateError>,
    /// Comments of the template's language, which would take a part of the command away: shells have comments of their own.
    pub comments: Vec<TemplateError>,
}

/// Checks a template that becomes a shell command.
///
/// # Errors
/// As [`check`].
pub fn check_shell(text: &str) -> Result<Command, TemplateError> {
    let outline = engine::outline(text)?;
    engine::compile(text, &outline)?;
    let comment = |span: &Range<usize>| {
        let help = format!("begin a comment of the shell with `#`; {}", lexer::VERBATIM);
        TemplateError::new("a template's comment takes this part of the command away", span.clone(), Some(help))
    };
    Ok(Command { readings: readings(&outline), unquoted: shell::check(text, &outline), comments: outline.comments.iter().map(comment).collect() })
}

/// Checks a condition, written as `expr` or `{{ expr }}`.
pub fn check_condition(text: &str) -> Result<Vec<Reading>, TemplateError> {
    let whole = engine::Condition::new(text);
    let outline = engine::outline(&whole.text).map_err(|error| whole.place(error))?;
    whole.require_whole(&outline)?;
    engine::compile(&whole.text, &outline).map_err(|error| whole.place(error))?;
    Ok(readings(&outline).into_iter().map(|reading| Reading { span: whole.span(reading.span), ..reading }).collect())
}

fn readings(outline: &Outline) -> Vec<Reading> {
    let chains = outline.chains.iter().filter_map(|chain| {
        let reading = if chain.bound || chain.parts.is_empty() {
            bound(&chain.look, &chain.span, chain.optional)?
        } else {
            let path = chain.parts.iter().map(|(part, _)| part).chain(&chain.more).cloned().collect();
            Reading { path, span: chain.span.clone(), optional: chain.optional, given: 0, never: None, word: false }
        };
        Some(Reading { word: chain.word && !chain.guarded && !chain.look.open, ..reading })
    });
    let taken = outline.taken.iter().filter_map(|taken| bound(&taken.look, &taken.span, taken.optional));
    let mut readings: Vec<Reading> = chains.chain(taken).collect();
    readings.sort_by_key(|reading| (reading.span.start, reading.span.end));
    readings
}

/// Makes a reading of a look into what a name is bound to; nothing where that is not known.
fn bound(look: &Look, span: &Range<usize>, optional: bool) -> Option<Reading> {
    let (path, given, never) = match look.seen() {
        Seen::Nothing => return None,
        Seen::Path { path, given } => (path, given, None),
        Seen::Never { part, known } => (vec![part], 0, Some(known)),
    };
    Some(Reading { path, span: span.clone(), optional, given, never, word: false })
}

#[cfg(test)]
mod tests;
