//! What operators, filters and loops give of what they are given.
use super::Reader;
use crate::prompts::{
    Goes, TemplateError, VALUE,
    gives::{Gives, Kind, Look},
    outline::{Call, Taken},
};

/// What joins two operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Joint {
    /// `and`, `or`: gives one of the two.
    Logic,
    /// `in`.
    Entry,
    /// `==`, `!=`: of anything.
    Comparison,
    /// `<`, `>=`: of what has an order.
    Order,
    Text,
    Arithmetic,
}

impl Joint {
    /// Returns what it gives of what stands before it, which may be the end of something compound; what `and` and `or` give is one of both
    /// sides.
    pub(super) fn gives(self, left: &Gives, compound: bool) -> Gives {
        match (self, left) {
            (Joint::Logic, _) => Gives::Unknown,
            // What binds looser says what all of it gives.
            (Joint::Entry | Joint::Comparison | Joint::Order, _) => Gives::Made(Kind::Flag),
            (_, Gives::Made(Kind::Flag)) if compound => Gives::Made(Kind::Flag),
            (Joint::Text, _) | (Joint::Arithmetic, Gives::Made(Kind::Text)) => Gives::Made(Kind::Text),
            (Joint::Arithmetic, _) => Gives::Made(Kind::Number),
        }
    }

    /// Returns what becomes of what stands beside it, where that cannot be null.
    pub(super) fn goes(self) -> Option<Goes> {
        match self {
            Joint::Order => Some(Goes::Compared),
            Joint::Arithmetic => Some(Goes::Reckoned),
            Joint::Logic | Joint::Entry | Joint::Comparison | Joint::Text => None,
        }
    }
}

impl Reader<'_> {
    /// Takes what joins two operands, where something does.
    pub(super) fn joint(&mut self) -> Result<Option<Joint>, TemplateError> {
        if self.lexer.eat_word("and")? || self.lexer.eat_word("or")? {
            return Ok(Some(Joint::Logic));
        }
        if self.lexer.eat_word("not")? {
            self.lexer.expect_word("in")?;
            return Ok(Some(Joint::Entry));
        }
        if self.lexer.eat_word("in")? {
            return Ok(Some(Joint::Entry));
        }
        Ok(self.lexer.eat_operator()?.map(|operator| match operator {
            "~" => Joint::Text,
            "==" | "!=" => Joint::Comparison,
            ">=" | "<=" | ">" | "<" => Joint::Order,
            _ => Joint::Arithmetic,
        }))
    }

    /// Returns what a filter gives of what it is given, and notes the part of that which it takes.
    pub(super) fn filtered(&mut self, call: usize, given: &Gives) -> Gives {
        let Call { name, texts, arguments, .. } = &self.outline.calls[call];
        let text = |name: &str| texts.iter().find(|(known, ..)| known == name).map(|(_, text, span)| (text.clone(), span.clone()));
        let (from, part, gives) = match name.as_str() {
            "reverse" | "unique" => return given.clone(),
            "first" | "last" | "nth" => return given.entry(),
            "flatten" => return Gives::list(given.entry().entry()),
            "lines" | "split" | "keys" => return Gives::list(Gives::Made(Kind::Text)),
            "values" => return Gives::list(given.part(VALUE).unwrap_or(Gives::Unknown)),
            "pairs" => return Gives::list(Gives::Unknown),
            "length" | "wordcount" | "abs" | "int" | "float" | "round" => return Gives::Made(Kind::Number),
            "sh" | "raw" | "json" | "join" | "str" | "upper" | "lower" | "title" | "capitalize" | "trim" | "trim_start" | "trim_end" | "replace"
            | "truncate" | "truncate_tokens" | "indent" | "pluralize" | "escape" | "escape_html" | "escape_xml" | "newlines_to_br" | "safe" => {
                return Gives::Made(Kind::Text);
            }
            "sort" => (given.entry(), text("attribute"), given.clone()),
            "group_by" => (given.entry(), text("attribute"), Gives::values(Gives::list(given.entry()))),
            "get" => {
                let key = text("key");
                let gives = key.as_ref().map_or(Gives::Unknown, |(key, _)| given.part(key).unwrap_or(Gives::Unknown));
                (given.clone(), key, gives)
            }
            // `default` among them: what may be missing is there behind it.
            _ => return Gives::Unknown,
        };
        let Some((part, span)) = part else { return gives };
        let parts = if name == "get" { vec![part] } else { part.split('.').map(str::to_owned).collect() };
        let optional = arguments.iter().any(|(name, _)| name == "default");
        self.outline.taken.push(Taken { look: Look { from, parts, open: false }, span, optional });
        gives
    }
}

/// Binds the names of a loop to what it runs over: one to the entries of a list, two to the names and the values of a map.
pub(super) fn bind(names: Vec<String>, target: &Gives) -> Vec<(String, Gives)> {
    let bound = match names.len() {
        1 => vec![target.entry()],
        _ => vec![Gives::Made(Kind::Text), target.part(VALUE).unwrap_or(Gives::Unknown)],
    };
    names.into_iter().zip(bound).collect()
}
