//! Cuts a template into text, outputs, tags and comments, and their insides into tokens, by Tera's lexical rules.
use super::TemplateError;
use std::{fmt, ops::Range};

/// What stands outside expressions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// Text that stands for itself.
    Literal(Range<usize>),
    /// The inside of `{% raw %}`.
    Raw(Range<usize>),
    /// `{# … #}`.
    Comment(Range<usize>),
    /// `{{`: an expression follows.
    Output,
    /// `{%`: a tag follows.
    Tag,
}

/// One token of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// A string, unescaped.
    Text(String),
    /// A number; its value is Tera's business.
    Number,
    /// An operator or a bracket.
    Sign(&'static str),
    /// `}}` or `%}`.
    Close,
    /// Nothing is left.
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Text(_) => f.write_str("a string"),
            Token::Number => f.write_str("a number"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
            Token::Close => f.write_str("the end of the expression"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// How text gets into a template that only looks like a part of it.
pub(super) const VERBATIM: &str = "what only looks like a template goes between `{% raw %}` and `{% endraw %}`";

/// Longer signs before their prefixes.
const SIGNS: [&str; 28] =
    ["...", "//", "**", "==", "!=", ">=", "<=", "?.", "?[", "+", "-", "*", "/", "%", ".", ",", ":", "~", "|", "=", ">", "<", "(", ")", "[", "]", "{", "}"];
const OPERATORS: [&str; 14] = ["+", "-", "*", "/", "//", "**", "%", "==", "!=", ">=", "<=", ">", "<", "~"];

/// A position in a template, and inside `{{ }}` and `{% %}` the token that stands there.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// `}}` or `%}`.
    close: &'static str,
    opened: usize,
    /// The token not yet taken.
    pub(super) token: Token<'a>,
    start: usize,
    /// Where the token taken last begins.
    pub(super) last_start: usize,
    /// Where the token taken last ends.
    pub(super) last_end: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, close: "", opened: 0, token: Token::End, start: 0, last_start: 0, last_end: 0 }
    }

    /// Returns where the token not yet taken stands.
    pub(super) fn span(&self) -> Range<usize> {
        self.start..self.at
    }

    /// Returns whether a number stands there, and nothing else.
    pub(super) fn is_number(&self, span: Range<usize>) -> bool {
        self.text[span].bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Takes text up to the next marker, or the marker itself with the `-` that may follow it.
    pub(super) fn next_outside(&mut self) -> Result<Option<Outside>, TemplateError> {
        let rest = &self.text[self.at..];
        let start = self.at;
        self.opened = start;
        self.last_end = start;
        let next = marker(self.text, start).unwrap_or(self.text.len());
        if next > start || rest.is_empty() {
            self.at = next;
            return Ok((next > start).then_some(Outside::Literal(start..next)));
        }
        if let Some(comment) = rest.strip_prefix("{#") {
            let Some(end) = comment.find("#}") else {
                let help = format!("add `#}}`; {VERBATIM}");
                return Err(TemplateError::new("this comment is never closed", start..start + 2, Some(help)));
            };
            self.at = start + end + 4;
            return Ok(Some(Outside::Comment(start..self.at)));
        }
        self.at += 2;
        if self.text[self.at..].starts_with('-') {
            self.at += 1;
        }
        if rest.starts_with("{{") {
            return Ok(Some(Outside::Output));
        }
        match bare_tag(&self.text[self.at..], "raw") {
            Some(length) => self.raw(start, self.at + length).map(Some),
            None => Ok(Some(Outside::Tag)),
        }
    }

    /// Takes everything up to `{% endraw %}`.
    fn raw(&mut self, start: usize, body: usize) -> Result<Outside, TemplateError> {
        let mut from = body;
        while let Some(found) = self.text[from..].find("{%") {
            let inside = from + found + 2;
            let after = inside + usize::from(self.text[inside..].starts_with('-'));
            if let Some(length) = bare_tag(&self.text[after..], "endraw") {
                self.at = after + length;
                return Ok(Outside::Raw(body..from + found));
            }
            from = inside;
        }
        Err(TemplateError::new("`{% raw %}` is never closed", start..body, Some("add `{% endraw %}`".to_owned())))
    }

    /// Begins the inside of `{{ }}` or `{% %}`.
    pub(super) fn enter(&mut self, close: &'static str) -> Result<(), TemplateError> {
        self.close = close;
        self.advance()
    }

    /// Ends it: nothing but the closing sign may be left.
    pub(super) fn leave(&mut self) -> Result<(), TemplateError> {
        match &self.token {
            Token::Close => {
                self.last_end = self.at;
                Ok(())
            }
            Token::End => Err(TemplateError::new(
                format!("expected `{}`, found the end of the text", self.close),
                self.opened..self.opened + 2,
                Some(format!("close it with `{}`", self.close)),
            )),
            other => Err(TemplateError::new(format!("expected an operator or `{}`, found {other}", self.close), self.span(), None)),
        }
    }

    /// Takes the present token and reads the next.
    pub(super) fn advance(&mut self) -> Result<(), TemplateError> {
        if !matches!(self.token, Token::Close) {
            (self.last_start, self.last_end) = (self.start, self.at);
        }
        self.at += self.text[self.at..].find(|c: char| !c.is_ascii_whitespace()).unwrap_or(self.text.len() - self.at);
        self.start = self.at;
        let rest = &self.text[self.at..];
        let closes = rest.starts_with(self.close) || rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(self.close));
        self.token = match rest.bytes().next() {
            None => Token::End,
            Some(_) if closes => {
                self.at += rest.find(self.close).unwrap_or_default() + 2;
                Token::Close
            }
            Some(b'"' | b'\'' | b'`') => self.string()?,
            Some(b'0'..=b'9') => {
                self.at += rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
                Token::Number
            }
            Some(first) if first == b'_' || first.is_ascii_alphabetic() => {
                let length = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                self.at += length;
                Token::Word(&rest[..length])
            }
            Some(_) => {
                let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                    let wrong = rest.chars().next().unwrap_or_default();
                    return Err(TemplateError::new(format!("`{wrong}` is not part of an expression"), self.at..self.at + wrong.len_utf8(), None));
                };
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok(())
    }

    fn string(&mut self) -> Result<Token<'a>, TemplateError> {
        let start = self.at;
        let mut chars = self.text[start..].char_indices();
        let quote = chars.next().map_or('"', |(_, quote)| quote);
        let mut value = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.at = start + at + 1;
                    return Ok(Token::Text(value));
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\'' | '/' | '\\'))) => value.push(c),
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, other)) => {
                        let span = start + at..start + at + 1 + other.len_utf8();
                        return Err(TemplateError::new(
                            format!("`\\{other}` is not an escape"),
                            span,
                            Some("the escapes are `\\n \\t \\r \\\\ \\\" \\' \\/`".to_owned()),
                        ));
                    }
                    None => break,
                },
                _ => value.push(c),
            }
        }
        Err(TemplateError::new("this string is never closed", start..start + 1, Some(format!("add `{quote}`"))))
    }

    /// Takes the sign if it stands here.
    pub(super) fn eat(&mut self, sign: &str) -> Result<bool, TemplateError> {
        let here = matches!(self.token, Token::Sign(found) if found == sign);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    /// Takes the word if it stands here.
    pub(super) fn eat_word(&mut self, word: &str) -> Result<bool, TemplateError> {
        let here = matches!(self.token, Token::Word(found) if found == word);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    /// Takes an operator between two operands if one stands here.
    pub(super) fn eat_operator(&mut self) -> Result<Option<&'static str>, TemplateError> {
        let Token::Sign(sign) = self.token else { return Ok(None) };
        let here = OPERATORS.contains(&sign).then_some(sign);
        if here.is_some() {
            self.advance()?;
        }
        Ok(here)
    }

    /// Goes on behind the end of an expression that cannot be read; nothing is left where it has none.
    pub(super) fn give_up(&mut self) {
        let from = self.opened + 2;
        self.at = self.text[from..].find(self.close).map_or(self.text.len(), |end| from + end + self.close.len());
        self.token = Token::End;
    }

    /// Takes the sign, which must stand here.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), TemplateError> {
        if self.eat(sign)? { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    /// Takes the word, which must stand here.
    pub(super) fn expect_word(&mut self, word: &str) -> Result<(), TemplateError> {
        if self.eat_word(word)? { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn unexpected(&self, wanted: &str) -> TemplateError {
        TemplateError::new(format!("expected `{wanted}`, found {}", self.token), self.span(), None)
    }
}

/// Returns where the next `{{`, `{%` or `{#` stands. After a `$` a `{#` is none: shells write `${#name}` for a length.
fn marker(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    (from..bytes.len().saturating_sub(1)).find(|&at| {
        bytes[at] == b'{'
            && match bytes[at + 1] {
                b'{' | b'%' => true,
                b'#' => at == 0 || bytes[at - 1] != b'$',
                _ => false,
            }
    })
}

/// Returns the length of `NAME %}` at the start of `text`, spaces and `-` included.
fn bare_tag(text: &str, name: &str) -> Option<usize> {
    let rest = text.trim_ascii_start().strip_prefix(name)?.trim_ascii_start();
    let rest = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}")?;
    Some(text.len() - rest.len())
}
