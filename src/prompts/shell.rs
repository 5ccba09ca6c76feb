//! Checks that no value gets into a shell command unquoted by accident.
//!
//! `sh` makes one word with quotes of its own. Inside other quotes those quotes end theirs, and in a here-document they are
//! plain text, so there `sh` protects nothing; a value gets into such a place through an environment variable.
use super::{
    TemplateError,
    outline::{Outline, Piece, TagKind},
};
use std::ops::Range;

/// How deep quotes and substitutions may nest.
const MAX_NESTING: usize = 64;

/// Returns what is wrong with the outputs of a command's template, up to where it cannot be read on.
pub(super) fn check(text: &str, outline: &Outline) -> Vec<TemplateError> {
    let mut found = Vec::new();
    let mut shell = Shell::default();
    let mut blocks: Vec<(Vec<Inside>, usize)> = Vec::new();
    for piece in &outline.pieces {
        match piece {
            Piece::Literal(span) => shell.read(&text[span.clone()]),
            Piece::Output { span, ending } if !ending.closed => {
                let help = format!(
                    "write `{{{{ {} | sh }}}}` to pass it as one word, or `| raw` to splice it in as shell code",
                    as_operand(&text[span.clone()], ending.compound)
                );
                let error = TemplateError::new("a value in a command must end in `| sh` or `| raw`", span.clone(), Some(help));
                found.push(TemplateError { sh_holds: shell.require_open(span).is_ok(), ..error });
                shell.word();
            }
            Piece::Output { span, ending } => {
                if ending.quoted {
                    found.extend(shell.require_open(span).err());
                }
                shell.word();
            }
            Piece::Tag { span, kind: TagKind::Filter } => {
                let help = Some("apply the filter to the value, before `sh`".to_owned());
                found.push(TemplateError::new("a filter section in a command could undo the quotes of `sh`", span.clone(), help));
            }
            Piece::Tag { span, kind: kind @ (TagKind::Open | TagKind::Branch | TagKind::Close) } => {
                // Every way through a block leaves the quotes as they were, so that reading on in one line is right.
                match (*kind, blocks.last()) {
                    (TagKind::Open, _) => blocks.push(shell.place()),
                    (_, Some(before)) if *before != shell.place() => {
                        let help = Some("close in a block the quotes that are opened in it, and no others".to_owned());
                        found.push(TemplateError::new("the quotes of the command depend on which branch is taken", span.clone(), help));
                        return found;
                    }
                    (TagKind::Close, _) => drop(blocks.pop()),
                    _ => {}
                }
            }
            Piece::Tag { kind: TagKind::Other, .. } => {}
        }
    }
    found
}

/// Writes an expression so that a filter after it is about all of it: one that stands there already is about the last part.
fn as_operand(expression: &str, is_compound: bool) -> String {
    if !is_compound {
        return expression.to_owned();
    }
    let whole = |filter: &str| expression.strip_suffix(filter).and_then(|rest| rest.trim_end().strip_suffix('|'));
    format!("({})", whole("sh").or_else(|| whole("raw")).unwrap_or(expression).trim_end())
}

/// What a shell is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// `'…'`
    Single,
    /// `"…"`
    Double,
    /// `` `…` ``
    Backtick,
    /// `$(…)` or a parenthesis inside it: words again.
    Words,
    /// `((…))` and `$((…))`, where quotes are none.
    Arithmetic,
    /// `$'…'`, which some shells know and others do not.
    Ansi,
    /// `#…` up to the end of the line.
    Comment,
}

/// A here-document.
#[derive(Debug)]
struct Document {
    /// The line that ends it.
    end: String,
    /// Whether tabs before that line count for nothing.
    tabs: bool,
    /// Whether a backslash at the end of a line joins the next to it.
    joins: bool,
}

/// As much of a shell's state as says whether quotes would hold here.
#[derive(Debug, Default)]
struct Shell {
    inside: Vec<Inside>,
    /// The character before, to tell a comment from `a#b`; none at the start of a line.
    before: Option<char>,
    escaped: bool,
    /// Whether shells do not agree on where quotes have ended.
    unclear: bool,
    /// Here-documents announced on this line.
    announced: Vec<Document>,
    /// The here-documents that are being read.
    documents: Vec<Document>,
    /// The line of a here-document so far.
    line: String,
}

impl Shell {
    /// Returns what must be the same before and after a block: open quotes, and here-documents to come or being read.
    fn place(&self) -> (Vec<Inside>, usize) {
        (self.inside.clone(), self.documents.len() + self.announced.len())
    }

    fn require_open(&self, span: &Range<usize>) -> Result<(), TemplateError> {
        let place = match self.inside.last() {
            _ if !self.documents.is_empty() => "inside a here-document",
            _ if self.escaped => "after a backslash",
            _ if self.unclear => "here: shells read what stands before it differently",
            Some(Inside::Single | Inside::Ansi) => "inside single quotes",
            Some(Inside::Double) => "inside double quotes",
            Some(Inside::Backtick) => "inside backticks",
            Some(Inside::Arithmetic) => "inside arithmetic",
            Some(Inside::Comment) => "inside a comment",
            Some(Inside::Words) | None if self.before == Some('$') => "after `$`",
            Some(Inside::Words) | None => return Ok(()),
        };
        let help = match self.inside.last() {
            _ if !self.documents.is_empty() || self.unclear => "put the value into `env` and write `\"$NAME\"`",
            Some(Inside::Backtick) => "write `$(…)` instead of backticks",
            Some(Inside::Arithmetic) => "put the value into `env`, check that it is a number, and write `$NAME`",
            Some(Inside::Single | Inside::Double) => "`sh` quotes by itself: end the quotes before it and open them again after it",
            Some(Inside::Words | Inside::Ansi | Inside::Comment) | None => "let it stand where a word of the command would stand",
        };
        Err(TemplateError::new(format!("`| sh` does not protect {place}"), span.clone(), Some(help.to_owned())))
    }

    /// Takes note of a value: it is part of a word.
    fn word(&mut self) {
        self.before = Some('x');
        self.escaped = false;
        if !self.documents.is_empty() {
            self.line.push('x');
        }
    }

    fn read(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let length = if self.documents.is_empty() { self.step(c, rest) } else { self.document(c) };
            rest = &rest[length..];
        }
    }

    /// Reads one character of a here-document.
    fn document(&mut self, c: char) -> usize {
        if c != '\n' {
            self.line.push(c);
            return c.len_utf8();
        }
        let Some(document) = self.documents.first() else { return 1 };
        if document.joins && self.line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1 {
            self.line.pop();
            return 1;
        }
        let line = if document.tabs { self.line.trim_start_matches('\t') } else { &self.line };
        if line == document.end {
            self.documents.remove(0);
        }
        self.line.clear();
        1
    }

    /// Reads one character of a command, or a here-document's announcement as a whole.
    fn step(&mut self, c: char, rest: &str) -> usize {
        let before = self.before.replace(c);
        if std::mem::take(&mut self.escaped) {
            self.before = Some('x');
            return c.len_utf8();
        }
        let inside = self.inside.last().copied();
        match (inside, c) {
            (Some(Inside::Single | Inside::Ansi), '\'') | (Some(Inside::Double), '"') | (Some(Inside::Backtick), '`') | (Some(Inside::Words), ')') => {
                self.inside.pop();
            }
            (Some(Inside::Arithmetic), ')') if rest.starts_with("))") => {
                self.inside.pop();
                return 2;
            }
            (Some(Inside::Comment), '\n') => {
                self.inside.pop();
                return self.step(c, rest);
            }
            (Some(Inside::Ansi), '\\') => self.unclear = true,
            (Some(Inside::Single | Inside::Ansi | Inside::Comment), _) => {}
            (_, '\\') => self.escaped = true,
            (_, '`') => self.enter(Inside::Backtick),
            (Some(Inside::Double | Inside::Arithmetic), '(') if before != Some('$') => {}
            (_, '(') if rest.starts_with("((") => {
                self.enter(Inside::Arithmetic);
                return 2;
            }
            (_, '(') => self.enter(Inside::Words),
            (Some(Inside::Double | Inside::Arithmetic), _) => {}
            (_, '\'') => self.enter(if before == Some('$') { Inside::Ansi } else { Inside::Single }),
            (_, '"') => self.enter(Inside::Double),
            // After `$(…)` a `#` goes on with the word, after `(…)` it begins a comment.
            (_, '#') if before == Some(')') => self.unclear = true,
            (_, '#') if before.is_none_or(|before| before.is_whitespace() || ";&|(<>".contains(before)) => self.enter(Inside::Comment),
            (_, '<') if before != Some('<') => return self.announcement(rest),
            (_, '\n') => {
                self.documents.append(&mut self.announced);
                self.before = None;
            }
            _ => {}
        }
        c.len_utf8()
    }

    fn enter(&mut self, inside: Inside) {
        if self.inside.len() < MAX_NESTING {
            self.inside.push(inside);
        }
    }

    /// Reads `<<WORD` or `<<-WORD`; anything else that begins with `<` is one character.
    fn announcement(&mut self, rest: &str) -> usize {
        let Some(after) = rest.strip_prefix("<<").filter(|after| !after.starts_with('<')) else {
            // `<<<` is a word of input, not a document: its three signs are read at once.
            return if rest.starts_with("<<<") { 3 } else { 1 };
        };
        let (tabs, after) = after.strip_prefix('-').map_or((false, after), |after| (true, after));
        let after = after.trim_start_matches([' ', '\t']);
        let length = after.find(|c: char| c.is_whitespace() || ";&|<>()".contains(c)).unwrap_or(after.len());
        let word = &after[..length];
        let end = ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(word);
        // Any other spelling of the end is legal and rare: better to say that we do not know than to guess.
        self.unclear |= end.is_empty() || !end.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        self.announced.push(Document { end: end.to_owned(), tabs, joins: end.len() == word.len() });
        self.before = Some('x');
        rest.len() - after.len() + length
    }
}
