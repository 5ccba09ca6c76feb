//! Commands: lists, groups, loops, simple commands and their redirects, flattened as they are read.
use super::{
    Assignment, Operator, Part, Redirect, RedirectKind, Script, Simple, Unparsable, Word,
    words::{Cursor, HereDocument},
};

/// What ends a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of the text.
    End,
    /// `)`
    Parenthesis,
    /// One of these words in the place of a command.
    Keyword(&'static [&'static str]),
}

/// Reserved words that begin what this parser does not know, or that stand where they may not.
const UNSUPPORTED: &[&str] = &["case", "esac", "select", "function", "coproc", "[[", "]]", "then", "elif", "else", "fi", "do", "done", "in", "}"];

impl Cursor<'_> {
    /// Reads the whole text.
    pub(super) fn script(mut self) -> Result<Script, Unparsable> {
        if self.text.contains('\0') {
            return self.fail("it holds a zero byte");
        }
        let mut commands = Vec::new();
        self.list(&mut commands, Until::End)?;
        if !self.pending.is_empty() {
            return self.fail("a here-document does not end");
        }
        Ok(self.finish(commands))
    }

    /// Reads commands and operators up to and over what ends them; returns the keyword that did, or an empty text.
    pub(super) fn list(&mut self, out: &mut Vec<Simple>, until: Until) -> Result<&'static str, Unparsable> {
        let mut must_follow = false;
        loop {
            self.skip_lines()?;
            if let Some(end) = self.list_end(until)? {
                return if must_follow { self.fail("a command is missing after an operator") } else { Ok(end) };
            }
            let first = out.len();
            self.command(out)?;
            self.skip_blanks()?;
            self.skip_comment();
            let operator = self.operator(until)?;
            if let Some(last) = out[first..].last_mut() {
                // The last command of a group is ended by what ends the group.
                if operator != Operator::End {
                    last.ended_by = operator;
                }
            }
            must_follow = matches!(operator, Operator::And | Operator::Or | Operator::Pipe | Operator::PipeBoth);
        }
    }

    fn list_end(&mut self, until: Until) -> Result<Option<&'static str>, Unparsable> {
        match (self.peek(), until) {
            (None, Until::End) => Ok(Some("")),
            (None, _) => self.fail("a group is not closed"),
            (Some(')'), Until::Parenthesis) => {
                self.at += 1;
                Ok(Some(""))
            }
            (Some(_), Until::Keyword(words)) => {
                let ahead = self.bare_word_ahead();
                let found = words.iter().copied().find(|word| *word == ahead);
                self.at += found.map_or(0, str::len);
                Ok(found)
            }
            (Some(_), Until::End | Until::Parenthesis) => Ok(None),
        }
    }

    /// Reads the operator after a command. Closing words and parentheses stay.
    fn operator(&mut self, until: Until) -> Result<Operator, Unparsable> {
        let found = [("&&", Operator::And), ("||", Operator::Or), ("|&", Operator::PipeBoth), ("|", Operator::Pipe), ("&", Operator::Background)];
        for (text, operator) in found {
            if self.eat(text) {
                return Ok(operator);
            }
        }
        match self.peek() {
            None => Ok(Operator::End),
            Some(')') if until == Until::Parenthesis => Ok(Operator::End),
            Some('\n') => Ok(Operator::Sequence),
            Some(';') if !self.rest().starts_with(";;") && !self.rest().starts_with(";&") => {
                self.at += 1;
                Ok(Operator::Sequence)
            }
            Some(_) => self.fail("an operator is missing between two commands"),
        }
    }

    /// Steps over blanks, line breaks and comments.
    fn skip_lines(&mut self) -> Result<(), Unparsable> {
        loop {
            self.skip_blanks()?;
            self.skip_comment();
            if !self.eat("\n") {
                return Ok(());
            }
            self.here_documents()?;
        }
    }

    /// Steps over a comment; the cursor stands where a word may begin.
    fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Returns the characters up to the next blank, operator or parenthesis.
    fn bare_word_ahead(&self) -> &str {
        let rest = self.rest();
        &rest[..rest.find([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')']).unwrap_or(rest.len())]
    }

    /// Reads one command of any kind.
    fn command(&mut self, out: &mut Vec<Simple>) -> Result<(), Unparsable> {
        if self.rest().starts_with("((") {
            return self.fail("`((` is not supported");
        }
        if self.eat("(") {
            self.deeper(|cursor| cursor.list(out, Until::Parenthesis))?;
            return self.group_redirects(out);
        }
        let keyword = self.bare_word_ahead().to_owned();
        match keyword.as_str() {
            "!" | "time" => {
                self.at += keyword.len();
                self.skip_blanks()?;
                if keyword == "time" && self.bare_word_ahead() == "-p" {
                    self.at += 2;
                    self.skip_blanks()?;
                }
                self.deeper(|cursor| cursor.command(out))
            }
            "{" | "if" | "while" | "until" | "for" => {
                self.at += keyword.len();
                self.deeper(|cursor| cursor.compound(&keyword, out))?;
                self.group_redirects(out)
            }
            word if UNSUPPORTED.contains(&word) => self.fail("this reserved word is not supported here"),
            _ => self.simple(out),
        }
    }

    fn compound(&mut self, keyword: &str, out: &mut Vec<Simple>) -> Result<(), Unparsable> {
        match keyword {
            "{" => self.list(out, Until::Keyword(&["}"])).map(drop),
            "if" => loop {
                self.list(out, Until::Keyword(&["then"]))?;
                let end = self.list(out, Until::Keyword(&["elif", "else", "fi"]))?;
                if end == "else" {
                    return self.list(out, Until::Keyword(&["fi"])).map(drop);
                }
                if end == "fi" {
                    return Ok(());
                }
            },
            "for" => {
                self.loop_head(out)?;
                self.list(out, Until::Keyword(&["done"])).map(drop)
            }
            _ => {
                self.list(out, Until::Keyword(&["do"]))?;
                self.list(out, Until::Keyword(&["done"])).map(drop)
            }
        }
    }

    /// Reads `NAME [in WORD…]; do` after `for` and gives it as a command.
    fn loop_head(&mut self, out: &mut Vec<Simple>) -> Result<(), Unparsable> {
        let start = self.at - "for".len();
        let mut words = vec![Word { parts: vec![Part::Bare("for".to_owned())] }];
        loop {
            self.skip_blanks()?;
            match self.peek() {
                None | Some('\n' | ';' | '#') => break,
                Some('&' | '|' | '(' | ')' | '<' | '>') => return self.fail("this form of `for` is not supported"),
                Some(_) => words.push(self.word()?),
            }
        }
        let text = self.text[start..self.at].trim_end().to_owned();
        let well_formed = words.get(1).and_then(Word::keyword).is_some_and(is_name) && words.get(2).is_none_or(|word| word.keyword() == Some("in"));
        self.eat(";");
        self.skip_lines()?;
        if !well_formed || self.bare_word_ahead() != "do" {
            return self.fail("this form of `for` is not supported");
        }
        self.at += "do".len();
        out.push(Simple { text, assignments: Vec::new(), words, redirects: Vec::new(), ended_by: Operator::Sequence });
        Ok(())
    }

    /// Reads the redirects of a group and gives them as a command without words.
    fn group_redirects(&mut self, out: &mut Vec<Simple>) -> Result<(), Unparsable> {
        let (start, mut end) = (self.at, self.at);
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks()?;
            let digits = self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let after = &self.rest()[digits..];
            if !(after.starts_with(['<', '>']) || (digits == 0 && after.starts_with("&>"))) {
                break;
            }
            let fd = self.rest()[..digits].parse().ok();
            self.at += digits;
            redirects.push(self.redirect(fd)?);
            end = self.at;
        }
        if !redirects.is_empty() {
            let text = self.text[start..end].trim().to_owned();
            out.push(Simple { text, assignments: Vec::new(), words: Vec::new(), redirects, ended_by: Operator::End });
        }
        Ok(())
    }

    fn simple(&mut self, out: &mut Vec<Simple>) -> Result<(), Unparsable> {
        let (start, mut end) = (self.at, self.at);
        let mut command = Simple { text: String::new(), assignments: Vec::new(), words: Vec::new(), redirects: Vec::new(), ended_by: Operator::End };
        loop {
            self.skip_blanks()?;
            match self.peek() {
                None | Some('\n' | ';' | '|' | ')' | '#') => break,
                Some('&') if !self.rest().starts_with("&>") => break,
                Some('(') => return self.fail("a function or a pattern list is not supported"),
                Some('&') => command.redirects.push(self.redirect(None)?),
                Some('<' | '>') if !self.rest()[1..].starts_with('(') => command.redirects.push(self.redirect(None)?),
                Some(_) => {
                    let word = self.word()?;
                    match word.keyword().and_then(|text| text.parse().ok()) {
                        Some(fd) if self.rest().starts_with(['<', '>']) => command.redirects.push(self.redirect(Some(fd))?),
                        _ if command.words.is_empty() => match assignment(word) {
                            Ok(assignment) => command.assignments.push(assignment),
                            Err(word) if is_element(&word) => return self.fail("assigning to an array is not supported"),
                            Err(word) => command.words.push(word),
                        },
                        _ => command.words.push(word),
                    }
                }
            }
            end = self.at;
        }
        if end == start {
            return self.fail("a command is missing");
        }
        out.push(Simple { text: self.text[start..end].to_owned(), ..command });
        Ok(())
    }

    /// Reads a redirect; the cursor stands on its operator.
    fn redirect(&mut self, fd: Option<u32>) -> Result<Redirect, Unparsable> {
        use RedirectKind::{Append, Duplicate, HereDocument, HereString, Read, ReadWrite, Write};
        const OPERATORS: &[(&str, RedirectKind)] = &[
            ("&>>", Append),
            ("&>", Write),
            ("<<<", HereString),
            ("<<-", HereDocument),
            ("<<", HereDocument),
            ("<&", Duplicate),
            ("<>", ReadWrite),
            ("<", Read),
            (">>", Append),
            (">&", Duplicate),
            (">|", Write),
            (">", Write),
        ];
        let Some((operator, kind)) = OPERATORS.iter().copied().find(|(operator, _)| self.rest().starts_with(operator)) else {
            return self.fail("a redirect is not understood");
        };
        self.at += operator.len();
        self.skip_blanks()?;
        let before = self.at;
        let target = self.word()?;
        if self.at == before {
            return self.fail("a redirect has no target");
        }
        if kind == HereDocument {
            return self.here_document(fd, &target, operator == "<<-");
        }
        let kind = match kind {
            Duplicate if !is_descriptor(&target) && operator == ">&" => Write,
            Duplicate if !is_descriptor(&target) => return self.fail("a descriptor is not a number"),
            other => other,
        };
        Ok(Redirect { fd, kind, target, body: None })
    }

    fn here_document(&mut self, fd: Option<u32>, delimiter: &Word, strips_tabs: bool) -> Result<Redirect, Unparsable> {
        let mut text = String::new();
        for part in &delimiter.parts {
            match part {
                Part::Bare(piece) | Part::Quoted(piece) => text.push_str(piece),
                _ => return self.fail("the end of a here-document is not plain text"),
            }
        }
        if text.is_empty() || text.contains('\n') {
            return self.fail("the end of a here-document is not plain text");
        }
        let body = self.bodies.len();
        self.bodies.push(Word::default());
        self.pending.push(HereDocument { body, delimiter: text, expands: !delimiter.is_quoted(), strips_tabs });
        Ok(Redirect { fd, kind: RedirectKind::HereDocument, target: Word::default(), body: Some(body) })
    }
}

/// Splits `NAME=value`; gives anything else back.
fn assignment(mut word: Word) -> Result<Assignment, Word> {
    let Some(Part::Bare(first)) = word.parts.first_mut() else { return Err(word) };
    let Some((name, value)) = first.split_once('=') else { return Err(word) };
    let name = name.strip_suffix('+').unwrap_or(name);
    if !is_name(name) {
        return Err(word);
    }
    let (name, value) = (name.to_owned(), value.to_owned());
    if value.is_empty() {
        word.parts.remove(0);
    } else {
        *first = value;
    }
    Ok(Assignment { name, value: word })
}

/// Returns whether bash may take a word for an assignment to an element of an array.
fn is_element(word: &Word) -> bool {
    let starts = matches!(word.parts.first(), Some(Part::Bare(text)) if text.split_once('[').is_some_and(|(name, _)| is_name(name)));
    starts && word.parts.iter().any(|part| matches!(part, Part::Bare(text) if text.contains('=')))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_descriptor(word: &Word) -> bool {
    word.keyword().is_some_and(|text| {
        let digits = text.strip_suffix('-').unwrap_or(text);
        digits.chars().all(|c| c.is_ascii_digit())
    })
}
