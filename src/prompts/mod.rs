//! Templates: the text of prompts, commands and outputs, with values put in.
//!
//! The language is Tera's, without its escaping for HTML and without everything that reaches beyond one text (includes,
//! inheritance, components). Two things are added. *Undefined is an error*: whoever means "if there is one" says so with
//! `default(value=…)`, `is defined` or `?.`. And *what is checked is what runs*: a reader of our own finds the variables a
//! template reads, with their places, before it runs ([`check`]), and guards exactly those in the text that Tera gets.
//!
//! Templates come from the author of a workflow, values from models. A value is never read as a template, and in a command
//! ([`examine_shell`]) no value gets in but quoted by `sh` or marked `raw` by the author.
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
pub use gives::{Gives, Kind};
pub use scope::Scope;

use crate::source::nearest;
use gives::{Look, Seen};
use outline::Outline;
use std::ops::Range;

/// The part of a path that stands for any entry of a list.
pub const ENTRY: &str = "[]";

/// The part of a path that stands for any value of a map.
pub const VALUE: &str = "*";

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
    /// What becomes of it as it is.
    pub goes: Goes,
    /// Whether a condition decides whether it is read at all.
    pub asked: bool,
    /// What the conditions around it look at: the first two parts of each path.
    pub conditions: Vec<Vec<String>>,
}

/// What becomes of a value that is read, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goes {
    /// Nobody says, or it may be null there.
    Anywhere,
    /// It becomes a word of a command, and no condition around it looks at it.
    Word,
    /// A loop runs over it.
    Loop,
    /// It goes through this filter, which takes no null.
    Filter(String),
    /// It is asked whether it is smaller, or larger, than something.
    Compared,
    /// Something is worked out with it.
    Reckoned,
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
    /// Of a value that gets into a command unquoted, whether the quotes of `sh` would hold there.
    pub sh_holds: bool,
    /// Whether it keeps a part of the template from being read.
    is_of_form: bool,
}

impl TemplateError {
    pub(crate) fn new(message: impl Into<String>, span: Range<usize>, help: Option<String>) -> TemplateError {
        TemplateError { message: message.into(), span, help, sh_holds: false, is_of_form: false }
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
    examine(text).sound()
}

/// What there is to be said of a template, whether or not it can be rendered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    /// What it reads as far as it can be read, in the order of the text.
    pub readings: Vec<Reading>,
    /// What is wrong with it, in the order of the text.
    pub errors: Vec<TemplateError>,
    /// Of one whole expression, what it gives as far as the text says it, and where it stands.
    pub gives: Option<(Gives, Range<usize>)>,
}

impl Examined {
    fn sound(self) -> Result<Vec<Reading>, TemplateError> {
        self.errors.into_iter().next().map_or(Ok(self.readings), Err)
    }
}

/// Looks at all of a template: an error in one `{{ }}` does not hide what the others read.
pub fn examine(text: &str) -> Examined {
    examined(text, engine::examine(text))
}

fn examined(text: &str, (outline, mut errors): (Outline, Vec<TemplateError>)) -> Examined {
    if errors.is_empty() {
        errors.extend(engine::compile(text, &outline).err());
    }
    let gives = engine::whole(text, &outline).map(|span| (outline.gives.clone().unwrap_or(Gives::Unknown), span));
    Examined { readings: readings(&outline), errors, gives }
}

/// Returns what a template gives that is one whole `{{ expr }}`, as far as its text says it.
pub fn gives(text: &str) -> Gives {
    let whole = |outline: outline::Outline| engine::whole(text, &outline).and(outline.gives);
    engine::outline(text).ok().and_then(whole).unwrap_or(Gives::Unknown)
}

/// What is to be said of a template that becomes a shell command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// What is to be said of it as a template.
    pub examined: Examined,
    /// Values that get in unquoted: every `{{ }}` must end in `sh` or `raw`, `sh` outside of quotes and here-documents, where
    /// its own quotes would not hold.
    pub unquoted: Vec<TemplateError>,
    /// Comments of the template's language, which would take a part of the command away: shells have comments of their own.
    pub comments: Vec<TemplateError>,
}

/// Looks at all of a template that becomes a shell command.
pub fn examine_shell(text: &str) -> Command {
    let (outline, errors) = engine::examine(text);
    let comment = |span: &Range<usize>| {
        let help = format!("begin a comment of the shell with `#`; {}", lexer::VERBATIM);
        TemplateError::new("a template's comment takes this part of the command away", span.clone(), Some(help))
    };
    let comments = outline.comments.iter().map(comment).collect();
    // Where a piece of it could not be read, nobody knows what stands inside of quotes.
    let mut unquoted = if errors.iter().all(|error| !error.is_of_form) { shell::check(text, &outline) } else { Vec::new() };
    // A filter that is not known may be one of these misspelt.
    unquoted.retain(|value| !errors.iter().any(|error| value.span.start <= error.span.start && error.span.end <= value.span.end));
    Command { examined: examined(text, (outline, errors)), unquoted, comments }
}

/// Looks at all of a condition, written as `expr` or `{{ expr }}`.
pub fn examine_condition(text: &str) -> Examined {
    let whole = engine::Condition::new(text);
    let (outline, mut errors) = engine::examine(&whole.text);
    errors = errors.into_iter().map(|error| whole.place(error)).collect();
    if errors.is_empty() {
        errors.extend(whole.require_whole(&outline).err());
    }
    if errors.is_empty() {
        errors.extend(engine::compile(&whole.text, &outline).err().map(|error| whole.place(error)));
    }
    let gives = whole.require_whole(&outline).ok().map(|span| (outline.gives.clone().unwrap_or(Gives::Unknown), span));
    let readings = readings(&outline).into_iter().map(|reading| Reading { span: whole.span(reading.span), ..reading }).collect();
    Examined { readings, errors, gives }
}

/// Checks a condition and returns what it reads.
pub fn check_condition(text: &str) -> Result<Vec<Reading>, TemplateError> {
    examine_condition(text).sound()
}

fn readings(outline: &Outline) -> Vec<Reading> {
    let chains = outline.chains.iter().filter_map(|chain| {
        let reading = if chain.bound || chain.parts.is_empty() {
            bound(&chain.look, &chain.span, chain.optional)?
        } else {
            let path = chain.parts.iter().map(|(part, _)| part).chain(&chain.more).cloned().collect();
            Reading {
                path,
                span: chain.span.clone(),
                optional: chain.optional,
                given: 0,
                never: None,
                goes: Goes::Anywhere,
                asked: false,
                conditions: Vec::new(),
            }
        };
        let guarded = chain.guarded || reading.asked;
        let goes = if chain.look.open || (guarded && chain.goes == Goes::Word) { Goes::Anywhere } else { chain.goes.clone() };
        let mut conditions: Vec<Vec<String>> = chain.guards.iter().filter_map(|&guard| outline.chains[guard].about()).collect();
        conditions.sort_unstable();
        conditions.dedup();
        Some(Reading { goes, asked: chain.asked || reading.asked, conditions, ..reading })
    });
    let taken = outline.taken.iter().filter_map(|taken| bound(&taken.look, &taken.span, taken.optional));
    let mut readings: Vec<Reading> = chains.chain(taken).collect();
    readings.sort_by_key(|reading| (reading.span.start, reading.span.end));
    readings
}

/// Makes a reading of a look into what a name is bound to; nothing where that is not known.
fn bound(look: &Look, span: &Range<usize>, optional: bool) -> Option<Reading> {
    let (path, given, asked, never) = match look.seen() {
        Seen::Nothing => return None,
        Seen::Path { path, given, is_asked } => (path, given, is_asked, None),
        Seen::Never { part, known } => (vec![part], 0, false, Some(known)),
    };
    Some(Reading { path, span: span.clone(), optional, given, never, goes: Goes::Anywhere, asked, conditions: Vec::new() })
}

#[cfg(test)]
mod tests;
