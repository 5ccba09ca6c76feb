//! Words: quotes, escapes, variables, substitutions, and the bodies of here-documents.
use super::{DEPTH_MAX, Part, Script, Simple, Unparsable, Word};

/// A place in a text, and what is owed to lines further down.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    depth: usize,
    /// Here-documents whose bodies begin after the next line break.
    pub(super) pending: Vec<HereDocument>,
    /// Bodies that were read, by the number that a redirect holds.
    pub(super) bodies: Vec<Word>,
}

/// A here-document whose body has not been reached.
pub(super) struct HereDocument {
    pub(super) body: usize,
    pub(super) delimiter: String,
    pub(super) expands: bool,
    pub(super) strips_tabs: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, depth: usize) -> Cursor<'a> {
        Cursor { text, at: 0, depth, pending: Vec::new(), bodies: Vec::new() }
    }

    pub(super) fn fail<T>(&self, why: &'static str) -> Result<T, Unparsable> {
        Err(Unparsable { at: self.at, why })
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Steps over `expected` where the text goes on with it.
    pub(super) fn eat(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    /// Runs `parse` one level deeper.
    pub(super) fn deeper<T>(&mut self, parse: impl FnOnce(&mut Cursor<'a>) -> Result<T, Unparsable>) -> Result<T, Unparsable> {
        if self.depth >= DEPTH_MAX {
            return self.fail("it nests too deeply");
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Steps over blanks and continued lines between words.
    pub(super) fn skip_blanks(&mut self) -> Result<(), Unparsable> {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.rest().starts_with("\\\n") => {
                    // Bash joins continued lines before it looks at tokens, so that `&\` and `&` make `&&`. Between blanks
                    // nothing can be joined.
                    if !self.text[..self.at].ends_with([' ', '\t', '\n']) && self.at > 0 {
                        return self.fail("a line is continued inside a word or an operator");
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads one word; the cursor stands on its first character.
    pub(super) fn word(&mut self) -> Result<Word, Unparsable> {
        let mut parts = Vec::new();
        let start = self.at;
        while let Some(next) = self.peek() {
            match next {
                '<' | '>' if self.rest()[1..].starts_with('(') => {
                    self.at += 2;
                    parts.push(Part::Process(self.nested()?));
                }
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.at += 1;
                    let Some(end) = self.rest().find('\'') else { return self.fail("a single quote is not closed") };
                    parts.push(Part::Quoted(self.rest()[..end].to_owned()));
                    self.at += end + 1;
                }
                '"' => {
                    self.at += 1;
                    self.double_quoted(&mut parts)?;
                }
                '\\' => {
                    self.at += 1;
                    match self.bump() {
                        Some('\n') => return self.fail("a line is continued inside a word"),
                        Some(escaped) => parts.push(Part::Quoted(escaped.to_string())),
                        None => return self.fail("it ends in a backslash"),
                    }
                }
                '`' => {
                    let script = self.backquoted(false)?;
                    parts.push(Part::Substitution { script, quoted: false });
                }
                '$' => self.dollar(&mut parts, Quotes::None)?,
                _ => {
                    self.at += next.len_utf8();
                    push_bare(&mut parts, next);
                }
            }
        }
        if self.text[start..self.at].contains('\n') && !self.pending.is_empty() {
            return self.fail("a word goes over a line break that a here-document waits for");
        }
        Ok(Word { parts })
    }

    /// Reads up to and over the closing quote.
    fn double_quoted(&mut self, parts: &mut Vec<Part>) -> Result<(), Unparsable> {
        let before = parts.len();
        self.expanding(parts, Some('"'))?;
        if !self.eat("\"") {
            return self.fail("a double quote is not closed");
        }
        if parts.len() == before {
            parts.push(Part::Quoted(String::new()));
        }
        Ok(())
    }

    /// Reads text in which only variables, substitutions and some escapes mean anything, up to `close` or the end.
    fn expanding(&mut self, parts: &mut Vec<Part>, close: Option<char>) -> Result<(), Unparsable> {
        while let Some(next) = self.peek() {
            match next {
                _ if Some(next) == close => break,
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') if self.text[..self.at - 1].ends_with(['$', '<', '>']) => return self.fail("a line is continued inside an expansion"),
                        Some('\n') => self.at += 1,
                        Some(escaped @ ('$' | '`' | '\\')) => self.push_escaped(parts, escaped),
                        Some('"') if close == Some('"') => self.push_escaped(parts, '"'),
                        _ => push_quoted(parts, '\\'),
                    }
                }
                '`' => {
                    let script = self.backquoted(close.is_some())?;
                    parts.push(Part::Substitution { script, quoted: true });
                }
                '$' => self.dollar(parts, if close.is_some() { Quotes::Double } else { Quotes::Document })?,
                _ => {
                    self.at += next.len_utf8();
                    push_quoted(parts, next);
                }
            }
        }
        Ok(())
    }

    fn push_escaped(&mut self, parts: &mut Vec<Part>, escaped: char) {
        self.at += 1;
        push_quoted(parts, escaped);
    }

    /// Reads what a dollar sign begins.
    fn dollar(&mut self, parts: &mut Vec<Part>, quotes: Quotes) -> Result<(), Unparsable> {
        self.at += 1;
        let in_quotes = quotes != Quotes::None;
        let part = match self.peek() {
            Some('(') if self.rest().starts_with("((") => self.arithmetic()?,
            Some('(') => {
                self.at += 1;
                Part::Substitution { script: self.nested()?, quoted: in_quotes }
            }
            Some('{') => Part::Variable { name: self.braced_variable()?, quoted: in_quotes },
            Some('[') => return self.fail("`$[` is not supported"),
            Some('\\') if self.rest().starts_with("\\\n") => return self.fail("a line is continued inside an expansion"),
            Some('\'') if quotes == Quotes::None => {
                self.at += 1;
                Part::Quoted(self.ansi_quoted()?)
            }
            Some('"') if quotes == Quotes::None => {
                self.at += 1;
                return self.double_quoted(parts);
            }
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                let length = self.rest().find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest().len());
                let name = self.rest()[..length].to_owned();
                self.at += length;
                Part::Variable { name, quoted: in_quotes }
            }
            Some(special) if special.is_ascii_digit() || "@*#?-$!".contains(special) => {
                self.at += 1;
                Part::Variable { name: special.to_string(), quoted: in_quotes }
            }
            _ => Part::Quoted("$".to_owned()),
        };
        parts.push(part);
        Ok(())
    }

    /// Reads `{…}` after a dollar sign, in the plain forms that evaluate nothing but the variable.
    fn braced_variable(&mut self) -> Result<String, Unparsable> {
        let Some(end) = self.rest().find('}') else { return self.fail("`${` is not closed") };
        let name = &self.rest()[1..end];
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_./:-+=#%*?,^".contains(c));
        let bare = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        // `${x:y}` evaluates `y`, which may hold a substitution; `${x:-y}` does not.
        let offset = name[bare..]
            .strip_prefix(':')
            .is_some_and(|after| !after.starts_with(['-', '=', '?', '+']) && after.contains(|c: char| !c.is_ascii_digit() && c != ':'));
        if name.is_empty() || !plain || offset {
            return self.fail("this form of `${…}` is not supported");
        }
        let name = name.to_owned();
        self.at += end + 1;
        Ok(name)
    }

    /// Reads `((…))` after a dollar sign where bash, too, is sure to take it for arithmetic.
    fn arithmetic(&mut self) -> Result<Part, Unparsable> {
        let inside = &self.rest()[2..];
        let mut open = 0_usize;
        for (at, c) in inside.char_indices() {
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' if inside[at..].starts_with("))") => {
                    let text = inside[..at].to_owned();
                    self.at += 2 + at + 2;
                    return Ok(Part::Arithmetic(text));
                }
                _ if c.is_ascii_alphanumeric() || " _+-*/%<>=!&|^~?:,#".contains(c) => {}
                _ => break,
            }
        }
        self.fail("this form of arithmetic is not supported")
    }

    /// Reads the rest of `$'…'`.
    fn ansi_quoted(&mut self) -> Result<String, Unparsable> {
        let mut text = String::new();
        loop {
            match self.bump() {
                Some('\'') => return Ok(text),
                Some('\\') => {
                    let escaped = self.ansi_escape()?;
                    text.push(escaped);
                }
                Some(plain) => text.push(plain),
                None => return self.fail("a `$'` quote is not closed"),
            }
        }
    }

    /// Reads an escape after its backslash.
    fn ansi_escape(&mut self) -> Result<char, Unparsable> {
        let Some(kind) = self.bump() else { return self.fail("a `$'` quote is not closed") };
        let code = match kind {
            'a' => 7,
            'b' => 8,
            'e' | 'E' => 27,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '\'' | '"' | '?' => u32::from(kind),
            'x' => self.digits(16, 2)?,
            'u' => self.digits(16, 4)?,
            'U' => self.digits(16, 8)?,
            '0'..='7' => {
                self.at -= 1;
                self.digits(8, 3)?
            }
            _ => return self.fail("this escape in `$'…'` is not supported"),
        };
        // A zero ends the string in bash; bytes above ASCII are bytes there, not characters.
        match char::from_u32(code) {
            Some(c) if code != 0 && (code < 128 || matches!(kind, 'u' | 'U')) => Ok(c),
            _ => self.fail("this escape in `$'…'` is not supported"),
        }
    }

    /// Reads one to `most` digits.
    fn digits(&mut self, radix: u32, most: usize) -> Result<u32, Unparsable> {
        let digits: String = self.rest().chars().take(most).take_while(|c| c.is_digit(radix)).collect();
        self.at += digits.len();
        u32::from_str_radix(&digits, radix).or_else(|_| self.fail("this escape in `$'…'` is not supported"))
    }

    /// Reads a backquoted command; the cursor stands on the first backquote.
    fn backquoted(&mut self, in_double_quotes: bool) -> Result<Script, Unparsable> {
        self.at += 1;
        let mut inside = String::new();
        loop {
            match self.bump() {
                None => return self.fail("a backquote is not closed"),
                Some('`') => break,
                Some('\\') => match self.bump() {
                    Some(escaped @ ('`' | '\\' | '$')) => inside.push(escaped),
                    Some('"') if in_double_quotes => inside.push('"'),
                    Some('\n') => return self.fail("a line is continued inside backquotes"),
                    Some(other) => inside.extend(['\\', other]),
                    None => return self.fail("a backquote is not closed"),
                },
                Some(plain) => inside.push(plain),
            }
        }
        if inside.contains('\n') && !self.pending.is_empty() {
            return self.fail("a word goes over a line break that a here-document waits for");
        }
        let depth = self.depth + 1;
        self.deeper(|_| Cursor::new(&inside, depth).script())
    }

    /// Reads a command up to and over its closing parenthesis; the opening one is behind the cursor.
    fn nested(&mut self) -> Result<Script, Unparsable> {
        let outer = std::mem::take(&mut self.pending);
        let start = self.at;
        let script = self.deeper(|cursor| {
            let mut commands = Vec::new();
            cursor.list(&mut commands, super::grammar::Until::Parenthesis)?;
            Ok(cursor.finish(commands))
        })?;
        if !self.pending.is_empty() || (!outer.is_empty() && self.text[start..self.at].contains('\n')) {
            return self.fail("a here-document and a substitution overlap");
        }
        self.pending = outer;
        Ok(script)
    }

    /// Gives redirects the bodies that were read for them.
    pub(super) fn finish(&mut self, mut commands: Vec<Simple>) -> Script {
        for redirect in commands.iter_mut().flat_map(|command| &mut command.redirects) {
            if let Some(body) = redirect.body.take().and_then(|body| self.bodies.get_mut(body)) {
                redirect.target = std::mem::take(body);
            }
        }
        Script { commands }
    }

    /// Reads the bodies that are due; the cursor stands after a line break.
    pub(super) fn here_documents(&mut self) -> Result<(), Unparsable> {
        for document in std::mem::take(&mut self.pending) {
            let mut text = String::new();
            loop {
                let rest = self.rest();
                if rest.is_empty() {
                    return self.fail("a here-document does not end");
                }
                let end = rest.find('\n').unwrap_or(rest.len());
                let line = if document.strips_tabs { rest[..end].trim_start_matches('\t') } else { &rest[..end] };
                self.at += (end + 1).min(rest.len());
                if line == document.delimiter {
                    break;
                }
                // Some versions end a document at such a line, inside a substitution.
                if line.starts_with(&document.delimiter) {
                    return self.fail("a line of a here-document begins like its end");
                }
                text.push_str(line);
                text.push('\n');
            }
            let parts = if document.expands { self.body_parts(&text)? } else { vec![Part::Quoted(text)] };
            self.bodies[document.body] = Word { parts };
        }
        Ok(())
    }

    fn body_parts(&mut self, text: &str) -> Result<Vec<Part>, Unparsable> {
        if text.contains("\\\n") {
            return self.fail("a line of a here-document is continued");
        }
        let depth = self.depth + 1;
        self.deeper(|_| {
            let mut parts = Vec::new();
            Cursor::new(text, depth).expanding(&mut parts, None)?;
            Ok(parts)
        })
    }
}

/// What a dollar sign stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Double,
    Document,
}

fn push_bare(parts: &mut Vec<Part>, next: char) {
    match parts.last_mut() {
        Some(Part::Bare(text)) => text.push(next),
        _ => parts.push(Part::Bare(next.to_string())),
    }
}

fn push_quoted(parts: &mut Vec<Part>, next: char) {
    match parts.last_mut() {
        Some(Part::Quoted(text)) => text.push(next),
        _ => parts.push(Part::Quoted(next.to_string())),
    }
}
