//! Reads the structure of a template: which variables it reads and where, what each `{{ }}` ends in, where loops stand.
//!
//! It follows Tera's grammar without its precedences, which matter only to evaluation, and accepts what makes sense in one
//! self-contained text: no includes, inheritance, components or global assignments. Tera parses the same text after it,
//! so what slips through here is still refused there.
use super::{
    ENTRY, Goes, TemplateError, filters,
    gives::{Gives, Kind},
    lexer::{Lexer, Outside, Token, VERBATIM},
    outline::{Call, CallKind, Chain, Ending, Outline, Piece, TagKind},
};
use given::{Joint, bind};
use std::ops::Range;

mod asked;
mod given;

/// How deep expressions and blocks may nest; Tera's own limit.
const MAX_DEPTH: usize = 40;
/// How many variables one template may read.
const MAX_CHAINS: usize = 10_000;
/// How many expressions of one template are told that cannot be read.
const MAX_ERRORS: usize = 20;

/// What several operands end in: a filter after them is about the last alone.
const COMPOUND: Ending = Ending { closed: false, quoted: false, compound: true };

/// What is known of a parsed operand.
struct Shape {
    start: usize,
    /// The chain that the operand is, where it is nothing else.
    chain: Option<usize>,
    ending: Ending,
    gives: Gives,
}

/// What stands in `[…]`.
#[derive(PartialEq, Eq)]
enum Key {
    /// One literal string, and where it stands.
    Name(String, Range<usize>),
    /// One number.
    Index,
    /// A part of the list, which has the same entries.
    Slice,
    /// Anything else.
    Computed,
}

/// A block tag that is still open.
struct Block {
    kind: &'static str,
    start: usize,
    /// How many names were bound before it.
    names: usize,
    /// How many chains of conditions held before it.
    guards: usize,
    /// Whether it leaves the loop around it: what comes after it is not read where its conditions hold.
    leaves: bool,
}

/// Reads a template as far as it can be read, and says what is wrong with its form. An expression that cannot be read changes
/// nothing for those after it; behind a tag that cannot be, or where something is not closed, nothing is read.
pub(super) fn read(text: &str) -> (Outline, Vec<TemplateError>) {
    let mut reader =
        Reader { lexer: Lexer::new(text), outline: Outline::default(), bound: Vec::new(), looks: Vec::new(), guards: Vec::new(), blocks: Vec::new(), depth: 0 };
    let mut errors = Vec::new();
    let is_whole = reader.pieces(text, &mut errors).map_err(|error| errors.push(error)).is_ok();
    if let Some(block) = reader.blocks.last().filter(|_| is_whole) {
        errors.push(TemplateError::new(
            format!("`{{% {} %}}` is never closed", block.kind),
            block.start..block.start + 2,
            Some(format!("add `{{% end{} %}}`", block.kind)),
        ));
    }
    (reader.outline, errors.into_iter().map(|error| TemplateError { is_of_form: true, ..error }).collect())
}

/// Says how to write what may be no template at all: `{{.ID}}`, `{%s}`. Who writes templates puts a space after the sign.
fn foreign(text: &str, start: usize, error: TemplateError) -> TemplateError {
    let inside = text[start + 2..].trim_start_matches('-');
    let word = inside.trim_start();
    let at_sign = error.span.start == text.len() - word.len() && !word.starts_with(|c: char| c.is_alphanumeric() || "_}%".contains(c));
    if inside.starts_with(char::is_whitespace) && (error.help.is_some() || !at_sign) {
        return error;
    }
    let help = error.help.map_or_else(|| VERBATIM.to_owned(), |help| format!("{help}; {VERBATIM}"));
    TemplateError { help: Some(help), ..error }
}

struct Reader<'a> {
    lexer: Lexer<'a>,
    outline: Outline,
    /// Names that the template binds, and what they stand for, the innermost last.
    bound: Vec<(String, Gives)>,
    /// Names that are set to what looks at these chains.
    looks: Vec<(String, Vec<usize>)>,
    /// The chains of the conditions that hold here.
    guards: Vec<usize>,
    blocks: Vec<Block>,
    depth: usize,
}

impl Reader<'_> {
    fn pieces(&mut self, text: &str, errors: &mut Vec<TemplateError>) -> Result<(), TemplateError> {
        while let Some(token) = self.lexer.next_outside()? {
            match token {
                Outside::Literal(span) => {
                    self.outline.signs.extend(text[span.clone()].match_indices("{#").map(|(at, _)| span.start + at));
                    self.outline.pieces.push(Piece::Literal(span));
                }
                Outside::Raw(span) => self.outline.pieces.push(Piece::Literal(span)),
                Outside::Comment(span) => self.outline.comments.push(span),
                Outside::Output => {
                    let start = self.lexer.last_end;
                    let (bound, guards) = (self.bound.len(), self.guards.len());
                    let (calls, chains, taken) = (self.outline.calls.len(), self.outline.chains.len(), self.outline.taken.len());
                    if let Err(error) = self.output() {
                        // Of what was read of it nobody knows what would have come after.
                        self.outline.calls.truncate(calls);
                        self.outline.taken.truncate(taken);
                        self.outline.chains[chains..].iter_mut().for_each(|chain| (chain.optional, chain.asked) = (true, true));
                        if errors.len() >= MAX_ERRORS {
                            return Err(foreign(text, start, error));
                        }
                        errors.push(foreign(text, start, error));
                        self.bound.truncate(bound);
                        self.guards.truncate(guards);
                        self.depth = 0;
                        self.lexer.give_up();
                    }
                }
                Outside::Tag => {
                    let (start, calls) = (self.lexer.last_end, self.outline.calls.len());
                    self.tag().map_err(|error| {
                        self.outline.calls.truncate(calls);
                        foreign(text, start, error)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn output(&mut self) -> Result<(), TemplateError> {
        self.lexer.enter("}}")?;
        let shape = self.expression(true)?;
        let span = shape.start..self.lexer.last_end;
        self.outline.gives = Some(shape.gives);
        self.lexer.leave()?;
        self.outline.pieces.push(Piece::Output { span, ending: shape.ending });
        Ok(())
    }

    fn tag(&mut self) -> Result<(), TemplateError> {
        let start = self.lexer.last_end;
        self.lexer.enter("%}")?;
        let (name, span) = self.name("a tag")?;
        match name.as_str() {
            "if" => {
                self.open("if", start)?;
                self.condition()?;
            }
            "elif" => {
                self.expect_block(&["if"], &span)?;
                self.condition()?;
            }
            "else" => {
                self.expect_block(&["if", "for"], &span)?;
                self.unbind_loop();
            }
            "for" => self.for_loop(start)?,
            "set" => self.assignment(start)?,
            "filter" => {
                self.open("filter", start)?;
                self.filter()?;
                while self.lexer.eat("|")? {
                    self.filter()?;
                }
            }
            "break" | "continue" => self.blocks.iter_mut().next_back().into_iter().for_each(|block| block.leaves = block.kind == "if"),
            "endif" => self.close("if", &span)?,
            "endfor" => self.close("for", &span)?,
            "endset" => self.close("set", &span)?,
            "endfilter" => self.close("filter", &span)?,
            "include" | "extends" | "block" | "component" | "set_global" => {
                return Err(TemplateError::new(
                    format!("`{name}` is not available here"),
                    span,
                    Some("a template is one self-contained text: use `if`, `for`, `set` and filters".to_owned()),
                ));
            }
            _ => {
                let known = ["if", "elif", "else", "endif", "for", "endfor", "set", "endset", "filter", "endfilter", "raw", "break", "continue"];
                return Err(TemplateError::unknown("tag", &name, span, known));
            }
        }
        self.lexer.leave()?;
        let kind = match name.as_str() {
            "filter" => TagKind::Filter,
            "elif" | "else" => TagKind::Branch,
            "endif" | "endfor" | "endset" | "endfilter" => TagKind::Close,
            _ if self.blocks.last().is_some_and(|block| block.start == start) => TagKind::Open,
            _ => TagKind::Other,
        };
        self.outline.pieces.push(Piece::Tag { span: start..self.lexer.last_end, kind });
        Ok(())
    }

    fn for_loop(&mut self, start: usize) -> Result<(), TemplateError> {
        self.open("for", start)?;
        let names = self.loop_names()?;
        let target = self.loop_target(true)?;
        let target = self.where_asked(&target, &self.guards);
        self.bound.extend(bind(names, &target));
        self.bound.push(("loop".to_owned(), Gives::Unknown));
        Ok(())
    }

    fn assignment(&mut self, start: usize) -> Result<(), TemplateError> {
        let (name, _) = self.name("the name to set")?;
        if self.lexer.eat("=")? {
            let first = self.outline.chains.len();
            let shape = self.expression(true)?;
            // Which of several values a name has behind a condition nobody knows.
            let again = self.bound.iter().any(|(known, _)| *known == name) && self.blocks.iter().any(|block| block.kind == "if");
            let gives = if again { Gives::Unknown } else { self.where_asked(&shape.gives, &self.guards) };
            self.looks.push((name.clone(), self.looks_since(first)));
            self.bound.push((name, gives));
            return Ok(());
        }
        while self.lexer.eat("|")? {
            self.filter()?;
        }
        self.bound.push((name, Gives::Unknown));
        self.open("set", start)
    }

    fn open(&mut self, kind: &'static str, start: usize) -> Result<(), TemplateError> {
        if self.blocks.len() >= MAX_DEPTH {
            return Err(TemplateError::new("blocks nest too deep", start..self.lexer.last_end, None));
        }
        self.blocks.push(Block { kind, start, names: self.bound.len(), guards: self.guards.len(), leaves: false });
        Ok(())
    }

    fn close(&mut self, kind: &'static str, span: &Range<usize>) -> Result<(), TemplateError> {
        self.expect_block(&[kind], span)?;
        self.unbind_loop();
        if let Some(block) = self.blocks.pop().filter(|block| !block.leaves) {
            self.guards.truncate(block.guards);
        }
        Ok(())
    }

    fn expect_block(&self, kinds: &[&str], span: &Range<usize>) -> Result<(), TemplateError> {
        match self.blocks.last() {
            Some(block) if kinds.contains(&block.kind) => Ok(()),
            Some(block) => Err(TemplateError::new(
                format!("this does not belong to the open `{{% {} %}}`", block.kind),
                span.clone(),
                Some(format!("close it first with `{{% end{} %}}`", block.kind)),
            )),
            None => Err(TemplateError::new("no block is open here", span.clone(), None)),
        }
    }

    /// Names bound by a loop, or inside it, end with it.
    fn unbind_loop(&mut self) {
        if let Some(block) = self.blocks.last().filter(|block| block.kind == "for") {
            self.bound.truncate(block.names);
        }
    }

    fn loop_names(&mut self) -> Result<Vec<String>, TemplateError> {
        let mut names = vec![self.name("a loop variable")?.0];
        if self.lexer.eat(",")? {
            names.push(self.name("a loop variable")?.0);
        }
        self.lexer.expect_word("in")?;
        Ok(names)
    }

    fn loop_target(&mut self, ternary: bool) -> Result<Gives, TemplateError> {
        let shape = self.expression(ternary)?;
        self.outline.loops.push(shape.start..self.lexer.last_end);
        if let Some(chain) = shape.chain {
            self.outline.chains[chain].goes = Goes::Loop;
        }
        Ok(shape.gives)
    }

    /// Reads operands joined by operators, and after them `if … else …` where that may stand.
    fn expression(&mut self, ternary: bool) -> Result<Shape, TemplateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(TemplateError::new("the expression nests too deep", self.lexer.span(), None));
        }
        let first = self.outline.chains.len();
        let mut single = !matches!(self.lexer.token, Token::Word("not"));
        let mut shape = self.operand()?;
        // Whether the operand stands alone before `is`, which binds looser than arithmetic and comparison.
        let mut alone = true;
        // What stands before the last `and` or `or`: it decides whether what follows is looked at, and may be what all of it gives.
        let mut before: Option<Gives> = None;
        loop {
            if self.lexer.eat_word("is")? {
                self.lexer.eat_word("not")?;
                let test = self.call(CallKind::Test)?;
                let defined = matches!(self.outline.calls[test].name.as_str(), "defined" | "undefined");
                if let Some(chain) = shape.chain.filter(|_| alone && defined) {
                    self.outline.chains[chain].optional = true;
                }
                shape = Shape { start: shape.start, chain: None, ending: COMPOUND, gives: Gives::Made(Kind::Flag) };
                continue;
            }
            let Some(joint) = self.joint()? else { break };
            alone = matches!(joint, Joint::Logic | Joint::Entry);
            single = false;
            let right = self.outline.chains.len();
            let operand = self.operand()?;
            if let Some(goes) = joint.goes() {
                self.go(shape.chain.into_iter().chain(operand.chain), &goes);
            }
            let gives = if joint == Joint::Logic {
                let left = std::mem::replace(&mut shape.gives, Gives::Unknown);
                before = Some(before.map_or(left.clone(), |before| before.or(&left)));
                operand.gives
            } else {
                joint.gives(&shape.gives, shape.ending.compound)
            };
            if before.is_some() {
                self.outline.chains[right..].iter_mut().for_each(|chain| chain.asked = true);
            }
            shape = Shape { start: shape.start, chain: operand.chain, ending: COMPOUND, gives };
        }
        shape.gives = before.map_or(shape.gives.clone(), |before| before.or(&shape.gives));
        shape.chain = shape.chain.filter(|_| single);
        if ternary && self.lexer.eat_word("if")? {
            let condition = self.outline.chains.len();
            self.expression(true)?;
            let guards = self.looks_since(condition);
            (first..condition).for_each(|chain| self.guard(chain, &guards));
            shape.gives = self.where_asked(&shape.gives, &guards);
            self.guards.extend(&guards);
            self.lexer.expect_word("else")?;
            let other = self.expression(true)?;
            let otherwise = self.where_asked(&other.gives, &guards);
            self.guards.truncate(self.guards.len() - guards.len());
            let closed = shape.ending.closed && other.ending.closed;
            let ending = Ending { closed, quoted: shape.ending.quoted || other.ending.quoted, compound: true };
            shape = Shape { start: shape.start, chain: None, ending, gives: shape.gives.or(&otherwise) };
        }
        self.depth -= 1;
        Ok(shape)
    }

    /// Reads one operand with the signs before it and the subscripts and filters after it.
    fn operand(&mut self) -> Result<Shape, TemplateError> {
        if self.lexer.eat_word("not")? {
            let start = self.lexer.last_start;
            if matches!(self.lexer.token, Token::Word("not")) {
                return Err(TemplateError::new("`not` cannot follow `not`", self.lexer.span(), None));
            }
            let shape = self.operand()?;
            return Ok(Shape { start, chain: shape.chain, ending: COMPOUND, gives: Gives::Made(Kind::Flag) });
        }
        let sign = self.lexer.eat("-")?.then_some(self.lexer.last_start);
        let mut shape = self.primary()?;
        loop {
            if self.lexer.eat("|")? {
                let call = self.filter()?;
                let filter = self.outline.calls[call].name.as_str();
                let quoted = filter == "sh";
                if let Some(chain) = shape.chain.filter(|_| sign.is_none()) {
                    let chain = &mut self.outline.chains[chain];
                    chain.optional |= filter == "default";
                    if quoted && !chain.optional {
                        chain.goes = Goes::Word;
                    } else if !filters::TAKE_NULL.contains(&filter) {
                        chain.goes = Goes::Filter(filter.to_owned());
                    }
                }
                let ending = Ending { closed: quoted || filter == "raw", quoted, compound: false };
                shape = Shape { start: shape.start, chain: None, ending, gives: self.filtered(call, &shape.gives) };
            } else if self.lexer.eat("[")? {
                let mut chain = Chain::new(shape.gives, shape.start..shape.start);
                match self.subscript()? {
                    Key::Name(name, _) => chain.look.parts.push(name),
                    Key::Index => chain.look.parts.push(ENTRY.to_owned()),
                    Key::Slice => {}
                    Key::Computed => chain.look.open = true,
                }
                chain.span.end = self.lexer.last_end;
                let gives = chain.look.gives();
                shape = Shape { start: shape.start, chain: Some(self.push(chain)?), ending: Ending::default(), gives };
            } else {
                break;
            }
        }
        if let Some(start) = sign {
            shape = Shape { start, chain: None, gives: Gives::Made(Kind::Number), ..shape };
        }
        Ok(shape)
    }

    fn primary(&mut self) -> Result<Shape, TemplateError> {
        let span = self.lexer.span();
        let plain = |gives| Shape { start: span.start, chain: None, ending: Ending::default(), gives };
        match self.lexer.token.clone() {
            token @ (Token::Number | Token::Text(_) | Token::Word("true" | "True" | "false" | "False" | "none" | "None" | "null")) => {
                self.lexer.advance()?;
                Ok(plain(Gives::Literal(match token {
                    Token::Number => Kind::Number,
                    Token::Text(_) => Kind::Text,
                    Token::Word("none" | "None" | "null") => Kind::Null,
                    Token::Word(_) | Token::Sign(_) | Token::Close | Token::End => Kind::Flag,
                })))
            }
            Token::Word(word) => self.variable(word, &span),
            Token::Sign("(") => {
                self.lexer.advance()?;
                let inner = self.expression(true)?;
                self.lexer.expect(")")?;
                // `(x) | default(…)` and `(x | sh)` mean what they mean without the parentheses.
                Ok(Shape { start: span.start, ending: Ending { compound: false, ..inner.ending }, ..inner })
            }
            Token::Sign("[") => {
                self.lexer.advance()?;
                Ok(plain(self.list()?))
            }
            Token::Sign("{") => {
                self.lexer.advance()?;
                Ok(plain(self.map()?))
            }
            other => Err(TemplateError::new(format!("expected a value, found {other}"), span, None)),
        }
    }

    fn variable(&mut self, word: &str, span: &Range<usize>) -> Result<Shape, TemplateError> {
        if word.starts_with("__") {
            return Err(TemplateError::new(format!("`{word}`: names that begin with two underscores are reserved"), span.clone(), None));
        }
        self.lexer.advance()?;
        if matches!(self.lexer.token, Token::Sign("(")) {
            let call = self.called(CallKind::Function, word, span);
            self.arguments(call)?;
            let gives = if word == "range" { Gives::list(Gives::Made(Kind::Number)) } else { Gives::Unknown };
            return Ok(Shape { start: span.start, chain: None, ending: Ending::default(), gives });
        }
        let bound = self.bound.iter().rev().find(|(name, _)| name == word).map(|(_, gives)| gives.clone());
        let mut chain = Chain::new(Gives::Path(vec![word.to_owned()]), span.clone());
        chain.parts.push((word.to_owned(), span.clone()));
        if let Some(gives) = bound {
            (chain.bound, chain.look.from) = (true, gives);
        }
        // Whether all parts so far are names, and whether they are names and indices.
        let (mut literal, mut known) = (true, true);
        loop {
            let at = self.lexer.span().start;
            if self.lexer.eat(".")? {
                chain.links.push(at);
            } else if self.lexer.eat("?.")? {
                chain.optional = true;
            } else {
                if self.lexer.eat("[")? {
                    chain.links.push(at);
                } else if self.lexer.eat("?[")? {
                    chain.optional = true;
                } else {
                    break;
                }
                let key = self.subscript()?;
                literal &= matches!(key, Key::Name(..));
                known &= key != Key::Computed;
                match key {
                    Key::Name(key, span) if literal => chain.parts.push((key, span)),
                    Key::Name(key, _) if known => chain.more.push(key),
                    Key::Index if known => chain.more.push(ENTRY.to_owned()),
                    Key::Name(..) | Key::Index | Key::Slice | Key::Computed => {}
                }
                continue;
            }
            let part = self.name("a name after `.`")?;
            if literal {
                chain.parts.push(part);
            } else if known {
                chain.more.push(part.0);
            }
        }
        chain.span.end = self.lexer.last_end;
        chain.look.open = !known;
        chain.look.parts = chain.parts[1..].iter().map(|(part, _)| part).chain(&chain.more).cloned().collect();
        let gives = chain.look.gives();
        Ok(Shape { start: span.start, chain: Some(self.push(chain)?), ending: Ending::default(), gives })
    }

    /// Reads what stands in `[…]`, the bracket already read.
    fn subscript(&mut self) -> Result<Key, TemplateError> {
        let mut key = Key::Computed;
        if !matches!(self.lexer.token, Token::Sign(":")) {
            // Counted from the end, an index is one as well.
            let from_end = matches!(self.lexer.token, Token::Sign("-")).then(|| self.lexer.span().end);
            let mut first = (self.lexer.token.clone(), self.lexer.span());
            let shape = self.expression(true)?;
            if let (Some(sign), Gives::Made(Kind::Number)) = (from_end, &shape.gives)
                && self.lexer.last_start == sign
                && self.lexer.is_number(self.lexer.last_start..self.lexer.last_end)
            {
                first = (Token::Number, self.lexer.last_start..self.lexer.last_end);
            }
            if self.lexer.last_end == first.1.end && matches!(self.lexer.token, Token::Sign("]")) {
                key = match first {
                    (Token::Text(text), span) => Key::Name(text, span),
                    (Token::Number, _) => Key::Index,
                    _ => Key::Computed,
                };
            }
        }
        for _ in 0..2 {
            if self.lexer.eat(":")? {
                key = Key::Slice;
                if !matches!(self.lexer.token, Token::Sign("]" | ":")) {
                    self.expression(true)?;
                }
            }
        }
        self.lexer.expect("]")?;
        Ok(key)
    }

    fn list(&mut self) -> Result<Gives, TemplateError> {
        let (first_chain, first_taken) = (self.outline.chains.len(), self.outline.taken.len());
        let (mut entries, mut spread) = (Vec::new(), false);
        while !self.lexer.eat("]")? {
            if !entries.is_empty() {
                self.lexer.expect(",")?;
                if self.lexer.eat("]")? {
                    break;
                }
            }
            spread |= self.lexer.eat("...")?;
            let shape = self.expression(true)?;
            if entries.is_empty() && self.lexer.eat_word("for")? {
                return self.comprehension(&shape.gives, first_chain, first_taken);
            }
            entries.push(shape.gives);
        }
        Ok(if spread || entries.is_empty() { Gives::list(Gives::Unknown) } else { Gives::several(entries) })
    }

    /// Reads `for x in xs if c]`. The names it binds also bind the chains of its value, which came before it.
    fn comprehension(&mut self, value: &Gives, first_chain: usize, first_taken: usize) -> Result<Gives, TemplateError> {
        let names = self.loop_names()?;
        let inner = self.outline.chains.len();
        let target = self.loop_target(false)?;
        let target = self.where_asked(&target, &self.guards);
        // A name that is bound outside as well was taken for that one.
        let shadows = names.iter().any(|name| self.bound.iter().any(|(known, _)| known == name));
        let names = bind(names, &target);
        let bound = |gives: &Gives| if shadows { Gives::Unknown } else { gives.bind(&names) };
        for chain in &mut self.outline.chains[first_chain..inner] {
            chain.look.from = bound(&chain.look.from);
            chain.bound |= chain.parts.first().is_some_and(|(root, _)| names.iter().any(|(name, _)| name == root));
        }
        for taken in &mut self.outline.taken[first_taken..] {
            taken.look.from = bound(&taken.look.from);
        }
        let outer = self.bound.len();
        self.bound.extend(names.iter().cloned());
        let mut value = value.clone();
        if self.lexer.eat_word("if")? {
            let condition = self.outline.chains.len();
            self.expression(false)?;
            let guards = self.looks_since(condition);
            (first_chain..inner).for_each(|chain| self.guard(chain, &guards));
            value = self.where_asked(&value, &guards);
        }
        self.bound.truncate(outer);
        self.lexer.expect("]")?;
        Ok(Gives::list(if shadows { Gives::Unknown } else { value.bind(&names) }))
    }

    fn map(&mut self) -> Result<Gives, TemplateError> {
        let (mut fields, mut empty, mut open) = (Vec::new(), true, false);
        while !self.lexer.eat("}")? {
            if !empty {
                self.lexer.expect(",")?;
                if self.lexer.eat("}")? {
                    break;
                }
            }
            empty = false;
            if self.lexer.eat("...")? {
                open = true;
                self.expression(true)?;
                continue;
            }
            let name = match self.lexer.token.clone() {
                Token::Text(name) => Some(name),
                Token::Word(_) | Token::Number | Token::Sign(_) | Token::Close | Token::End => None,
            };
            self.lexer.advance()?;
            self.lexer.expect(":")?;
            let value = self.expression(true)?.gives;
            match name {
                Some(name) => fields.push((name, value)),
                None => open = true,
            }
        }
        Ok(if open { Gives::Made(Kind::Map) } else { Gives::map(fields) })
    }

    fn filter(&mut self) -> Result<usize, TemplateError> {
        self.call(CallKind::Filter)
    }

    fn call(&mut self, kind: CallKind) -> Result<usize, TemplateError> {
        let (name, span) = self.name(if kind == CallKind::Filter { "the name of a filter" } else { "the name of a test" })?;
        let call = self.called(kind, &name, &span);
        if matches!(self.lexer.token, Token::Sign("(")) {
            self.arguments(call)?;
        }
        Ok(call)
    }

    fn called(&mut self, kind: CallKind, name: &str, span: &Range<usize>) -> usize {
        self.outline.calls.push(Call { kind, name: name.to_owned(), span: span.clone(), arguments: Vec::new(), texts: Vec::new() });
        self.outline.calls.len() - 1
    }

    fn arguments(&mut self, call: usize) -> Result<(), TemplateError> {
        self.lexer.expect("(")?;
        let mut empty = true;
        while !self.lexer.eat(")")? {
            if !empty {
                self.lexer.expect(",")?;
                if self.lexer.eat(")")? {
                    break;
                }
            }
            let span = self.lexer.span();
            let name = if let Token::Word(name) = self.lexer.token { Some(name.to_owned()) } else { None };
            if name.is_some() {
                self.lexer.advance()?;
            }
            let (Some(name), true) = (name, self.lexer.eat("=")?) else {
                let Call { kind, name, .. } = &self.outline.calls[call];
                let usage = kind.known().iter().find(|known| known.name == name).map(filters::Callable::usage);
                let help = match usage {
                    Some(Some(usage)) => format!("write `{usage}`"),
                    Some(None) => format!("`{name}` takes none: leave the parentheses out"),
                    None => "write `name=value`, as in `default(value=[])`".to_owned(),
                };
                return Err(TemplateError::new("arguments have names", span, Some(help)));
            };
            let first = (self.lexer.token.clone(), self.lexer.span());
            self.expression(true)?;
            if let (Token::Text(text), place) = first
                && place.end == self.lexer.last_end
            {
                self.outline.calls[call].texts.push((name.clone(), text, place));
            }
            self.outline.calls[call].arguments.push((name, span));
            empty = false;
        }
        Ok(())
    }

    fn name(&mut self, what: &str) -> Result<(String, Range<usize>), TemplateError> {
        let span = self.lexer.span();
        match self.lexer.token.clone() {
            Token::Word(word) => {
                self.lexer.advance()?;
                Ok((word.to_owned(), span))
            }
            other => Err(TemplateError::new(format!("expected {what}, found {other}"), span, None)),
        }
    }

    fn push(&mut self, chain: Chain) -> Result<usize, TemplateError> {
        if self.outline.chains.len() >= MAX_CHAINS {
            return Err(TemplateError::new("the template reads too many variables", chain.span, None));
        }
        self.outline.chains.push(chain);
        let last = self.outline.chains.len() - 1;
        let guards = std::mem::take(&mut self.guards);
        self.guard(last, &guards);
        self.guards = guards;
        Ok(last)
    }
}
