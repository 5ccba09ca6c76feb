//! What stands behind names that are bound: those of items and axes, and those that a template binds itself; and of what kind
//! what an expression gives is.
use super::{Reader, Sight, Spot, told};
use crate::{
    plan::{
        frames::At,
        schemas,
        shapes::{Shape, Wrong},
    },
    prompts::{self, Gives, Kind, Reading},
    source::{Spanned, codes},
};
use serde_json::Value;

impl<'a> Reader<'a> {
    /// Judges what is read of a name that the template binds itself: what it is bound to is judged where it is.
    pub(super) fn bound_reading(&mut self, reading: &Reading, spot: &Spot, sight: Sight) {
        if reading.optional {
            return;
        }
        if let (Some(known), Some(part)) = (&reading.never, reading.path.first()) {
            let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("what the template makes here has no field `{part}`"));
            self.found.report(error.suggest(part, known.iter().map(String::as_str), "fields"));
            return;
        }
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        let Err(wrong) = self.find(&path, sight) else { return };
        if wrong.part < reading.given {
            return;
        }
        let error = if let ["steps", id, rest @ ..] = path.as_slice() {
            self.step_error(id, rest, &Wrong { part: wrong.part - 2, ..wrong }, spot)
        } else {
            let part = path[wrong.part];
            let message = format!("`{}` has no field `{part}`", path[..wrong.part].join(".").replace(".[]", "[]"));
            told(spot.error(codes::UNKNOWN_OUTPUT_FIELD, message), part, &wrong, "its schema is")
        };
        self.found.report(error);
    }

    /// Returns what stands at a path of the scope, as far as it is known.
    ///
    /// # Errors
    /// The part that cannot be there.
    pub(super) fn find(&mut self, path: &[&str], sight: Sight) -> Result<Shape<'a>, Wrong<'a>> {
        let behind = |parts: usize| move |wrong: Wrong<'a>| Wrong { part: wrong.part + parts, ..wrong };
        match path {
            ["inputs", name, rest @ ..] => self.shapes.walk(self.shapes.input(name), rest).map_err(behind(2)),
            ["steps", id, rest @ ..] => {
                let target = self.shapes.frames.find(sight.frame, sight.step, id).map(|(target, _)| target);
                target.map_or(Ok(Shape::Unknown), |target| self.shapes.walk(Shape::Step(target), rest).map_err(behind(2)))
            }
            ["matrix", axis, rest @ ..] => {
                let Some(at) = self.matrix(sight) else { return Ok(Shape::Unknown) };
                let axes = self.shapes.frames.step(at).matrix.iter().flat_map(|matrix| &matrix.axes);
                let Some((_, values)) = axes.into_iter().find(|(name, _)| name.value == *axis) else { return Ok(Shape::Unknown) };
                self.entry(values, at, rest).map_err(behind(2))
            }
            [name, rest @ ..] => {
                let Some(at) = self.item(sight, name) else { return Ok(Shape::Unknown) };
                let Some(for_each) = &self.shapes.frames.step(at).for_each else { return Ok(Shape::Unknown) };
                self.entry(&for_each.items, at, rest).map_err(behind(1))
            }
            [] => Ok(Shape::Unknown),
        }
    }

    /// Returns the schema that the items of a step have, where it is known; that of items which are written out is what all of
    /// them have in common.
    pub(in crate::plan) fn item_schema(&mut self, at: At) -> Option<Value> {
        let for_each = self.shapes.frames.step(at).for_each.as_ref()?;
        if let Value::Array(values) = &for_each.items.value {
            return schemas::common(values);
        }
        match self.entry(&for_each.items, at, &[]) {
            Ok(Shape::Schema { root, at, .. }) => schemas::alone(root, at),
            _ => None,
        }
    }

    /// Looks into each entry of a list that a step takes its items or an axis from.
    pub(super) fn entry(&mut self, values: &'a Spanned<Value>, at: At, path: &[&str]) -> Result<Shape<'a>, Wrong<'a>> {
        let text = match &values.value {
            Value::String(text) => text,
            Value::Array(values) => return self.shapes.walk(Shape::OneOf(values), path),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return Ok(Shape::Unknown),
        };
        let gives = self.listed(values, text, at);
        self.look(gives.entry(), Sight { frame: at.frame, step: Some(at.step), inside: false, steps: true, secrets: false, nothing_else: false }, path)
    }

    /// Returns what the expression gives that a step takes its items or an axis from.
    fn listed(&mut self, values: &Spanned<Value>, text: &str, at: At) -> Gives {
        let is_items = self.shapes.frames.step(at).for_each.as_ref().is_some_and(|for_each| std::ptr::eq(&raw const for_each.items, values));
        let gives = match self.items.get(&at).filter(|_| is_items) {
            Some(known) => known.clone(),
            None => prompts::gives(text),
        };
        if is_items {
            self.items.insert(at, gives.clone());
        }
        gives
    }

    /// Returns whether a condition has asked about what stands at a path below an item or an axis where that was taken from a list.
    pub(super) fn is_asked(&mut self, path: &[&str], sight: Sight) -> bool {
        let (at, values, rest) = match path {
            ["matrix", axis, rest @ ..] => {
                let Some(at) = self.matrix(sight) else { return false };
                let axes = self.shapes.frames.step(at).matrix.iter().flat_map(|matrix| &matrix.axes);
                (at, axes.into_iter().find(|(name, _)| name.value == *axis).map(|(_, values)| values), rest)
            }
            [name, rest @ ..] => {
                let Some(at) = self.item(sight, name) else { return false };
                (at, self.shapes.frames.step(at).for_each.as_ref().map(|for_each| &for_each.items), rest)
            }
            [] => return false,
        };
        let Some((values, text)) = values.and_then(|values| Some((values, values.value.as_str()?))) else { return false };
        let mut gives = self.listed(values, text, at).entry();
        for part in rest {
            match gives.part(part) {
                Ok(inner) if !gives.is_asked() => gives = inner,
                _ => break,
            }
        }
        gives.is_asked()
    }

    /// Looks into what an expression gives.
    fn look(&mut self, gives: Gives, sight: Sight, path: &[&str]) -> Result<Shape<'a>, Wrong<'a>> {
        let mut gives = gives;
        let mut inside = 0;
        while gives.path().is_none() {
            let Some(name) = path.get(inside) else { return Ok(Shape::Unknown) };
            gives = gives.part(name).map_err(|known| Wrong { part: inside, whole: Shape::Unknown, known })?;
            inside += 1;
        }
        let Some(from) = gives.path() else { return Ok(Shape::Unknown) };
        let whole: Vec<&str> = from.iter().map(String::as_str).chain(path[inside..].iter().copied()).collect();
        match self.find(&whole, sight) {
            // What is wrong with the list itself is told where that stands.
            Err(wrong) if wrong.part < from.len() => Ok(Shape::Unknown),
            found => found.map_err(|wrong| Wrong { part: wrong.part - from.len() + inside, ..wrong }),
        }
    }

    /// Returns what kind of value an expression gives, where that is known.
    pub(super) fn kind(&mut self, gives: &Gives, sight: Sight) -> Option<Kind> {
        let Some(path) = gives.path() else { return gives.kind() };
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["env", _] | ["run", "id" | "branch" | "head" | "base"] => Some(Kind::Text),
            ["loop", "iteration"] => Some(Kind::Number),
            _ => self.find(&path, sight).ok().and_then(|shape| self.shapes.kind(shape)),
        }
    }

    /// Reports a value of which it is known that it gives no list, or may give null.
    pub(super) fn must_give_list(&mut self, key: &str, values: &Spanned<Value>, sight: Sight) {
        let Some(text) = values.value.as_str() else { return };
        let examined = prompts::examine(text);
        let Some((gives, part)) = &examined.gives else { return };
        match self.kind(gives, sight) {
            Some(kind) if kind != Kind::List => {
                let message = format!("`{key}` must give a list, but this gives {}", kind.words());
                self.found.report(self.found.error(codes::WRONG_TYPE, values.span, message));
            }
            _ => {
                let spot = Spot { source: self.found.source.clone(), span: self.found.source.locate(values.span, text, part.clone()) };
                self.not_null(&examined, "null is no list", &spot, sight);
            }
        }
    }

    /// Reports a value of which it is known that it gives no number. Text that a template works out may say one.
    pub(super) fn must_count(&mut self, key: &str, value: &Spanned<Value>, sight: Sight) {
        let Some(text) = value.value.as_str() else { return };
        let gives = prompts::gives(text);
        let counts = |kind: &Kind| matches!(kind, Kind::Number | Kind::TextOrNumber) || gives == Gives::Made(Kind::Text);
        if let Some(kind) = self.kind(&gives, sight).filter(|kind| !counts(kind)) {
            let message = format!("`{key}` must give a whole number, but this gives {}", kind.words());
            self.found.report(self.found.error(codes::WRONG_TYPE, value.span, message));
        }
    }
}
