//! What stands behind names that are bound: those of items and axes, and those that a template binds itself. And what of it may
//! be null where that is an error.
use super::{Reader, Sight, Spot, told};
use crate::{
    plan::{
        frames::{At, MAIN},
        schemas,
        shapes::{Shape, Wrong},
    },
    prompts::{self, ENTRY, Gives, Reading},
    source::{Spanned, codes},
    workflow::{Join, Need, On},
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

    /// Returns the schema that the items of a step have, where it is known.
    pub(in crate::plan) fn item_schema(&mut self, at: At) -> Option<Value> {
        let for_each = self.shapes.frames.step(at).for_each.as_ref()?;
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
        let is_items = self.shapes.frames.step(at).for_each.as_ref().is_some_and(|for_each| std::ptr::eq(&raw const for_each.items, values));
        let gives = match self.items.get(&at).filter(|_| is_items) {
            Some(known) => known.clone(),
            None => prompts::gives(text),
        };
        if is_items {
            self.items.insert(at, gives.clone());
        }
        self.look(gives.entry(), Sight { frame: at.frame, step: Some(at.step), inside: false, steps: true, secrets: false }, path)
    }

    /// Looks into what an expression gives.
    fn look(&mut self, gives: Gives, sight: Sight, path: &[&str]) -> Result<Shape<'a>, Wrong<'a>> {
        let mut gives = gives;
        let mut inside = 0;
        while !matches!(gives, Gives::Path(_)) {
            let Some(name) = path.get(inside) else { return Ok(Shape::Unknown) };
            gives = gives.part(name).map_err(|known| Wrong { part: inside, whole: Shape::Unknown, known })?;
            inside += 1;
        }
        let Gives::Path(from) = gives else { return Ok(Shape::Unknown) };
        let whole: Vec<&str> = from.iter().map(String::as_str).chain(path[inside..].iter().copied()).collect();
        match self.find(&whole, sight) {
            // What is wrong with the list itself is told where that stands.
            Err(wrong) if wrong.part < from.len() => Ok(Shape::Unknown),
            found => found.map_err(|wrong| Wrong { part: wrong.part - from.len() + inside, ..wrong }),
        }
    }

    /// Reports a word of a command that may be null, which is an error there.
    pub(super) fn word(&mut self, reading: &Reading, spot: &Spot, sight: Sight) {
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        let held = |held: &Vec<String>| held.first() == reading.path.first() && held.get(1) == reading.path.get(1);
        if reading.never.is_some() || self.held.iter().any(held) {
            return;
        }
        if let Some(when) = self.null(&path, sight) {
            let error = spot.error(codes::MAY_BE_NULL, format!("this is null {when}, and null cannot be a word of a command"));
            self.found.report(error.help("say what to use instead: `| default(value=\"\") | sh`, or ask before: `{% if … %}`"));
        }
    }

    /// Says when a value is null, where it is known that it can be.
    fn null(&mut self, path: &[&str], sight: Sight) -> Option<String> {
        match path {
            ["inputs", name] => {
                let (_, input) = self.shapes.workflow.inputs.iter().find(|(known, _)| known.value == *name)?;
                let given = input.required || input.default.as_ref().is_some_and(|default| !default.value.is_null());
                return (!given).then(|| "where nobody gives the input".to_owned());
            }
            ["run", "failure"] => {
                let frames = self.shapes.frames;
                let always = frames.finally == Some(sight.frame) || sight.frame == MAIN;
                return always.then(|| "in a run that has not failed".to_owned());
            }
            _ => {}
        }
        let (last, whole) = path.split_last()?;
        if let Ok(Shape::Result(at)) = self.find(whole, sight) {
            return self.null_of_item(last, at, sight);
        }
        match self.find(path, sight) {
            Ok(Shape::Schema { root, at, .. } | Shape::Built { root, at }) if *last != ENTRY => {
                schemas::takes_null(root, at).then(|| "where its schema allows that".to_owned())
            }
            _ => None,
        }
    }

    /// The same of a part of an item's result.
    fn null_of_item(&self, part: &str, at: At, sight: Sight) -> Option<String> {
        let step = self.shapes.frames.step(at);
        let joins = [step.for_each.as_ref().map(|for_each| for_each.join), step.matrix.as_ref().map(|matrix| matrix.join)];
        let reader = sight.step.map(|step| &self.shapes.frames.all[sight.frame].steps[step]);
        let whatever = |need: &Need| need.step.value == step.id.value && need.on != On::Success;
        let may_fail = joins.contains(&Some(Join::AllDone)) || step.allow_failure || reader.is_some_and(|reader| reader.needs.iter().any(whatever));
        match part {
            "error" => Some("where the item has succeeded".to_owned()),
            "commit" if !self.shapes.writes[at.frame][at.step] => Some("since the step does not write".to_owned()),
            "commit" | "output" if may_fail => Some("where the item has failed".to_owned()),
            _ => None,
        }
    }
}
