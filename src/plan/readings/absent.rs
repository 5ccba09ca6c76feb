//! What may be null when it is read, where that is an error: it is taken apart, becomes a word of a command, or a loop or
//! items are made of it.
//!
//! What a step has not left is null: all but its `status` where it was skipped, an agent's output where it has failed. A
//! step that reads another one has waited for it and would have been skipped with it, so that only its failure matters; where
//! a run, or a round of a loop, is over, steps may have been skipped.
use super::{Doubt, Reader, Sight, Spot};
use crate::{
    plan::{
        frames::{At, MAIN},
        graph::OutputShape,
        schemas,
        shapes::Shape,
    },
    prompts::{self, ENTRY, Examined, Gives, Goes, Kind, Reading},
    source::{Diagnostic, Span, codes},
    workflow::{Join, Need, On, Verb},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, rc::Rc};

/// Returns the path of what one whole expression gives as it is, where it says nothing of what is to be instead.
fn bare(examined: &Examined) -> Option<Vec<&str>> {
    let Some((Gives::Path(path), _)) = &examined.gives else { return None };
    let is_judged = |reading: &Reading| reading.optional || reading.asked || reading.goes != Goes::Anywhere;
    (!examined.readings.iter().any(is_judged)).then(|| path.iter().map(String::as_str).collect())
}

/// When a value is null.
struct Absent {
    when: String,
    /// Where it is decided that a step is skipped.
    cause: Option<(Span, &'static str)>,
    /// Who waits for what, where it is null unless that has succeeded.
    waits: Option<(At, At)>,
    /// Whether that may fail and count as success.
    is_allowed: bool,
}

impl Absent {
    fn when(when: impl Into<String>) -> Absent {
        Absent { when: when.into(), cause: None, waits: None, is_allowed: false }
    }
}

impl<'a> Reader<'a> {
    /// Judges one reading.
    pub(super) fn absent(&mut self, reading: &Reading, spot: &Spot, sight: Sight) {
        let held = |held: &Vec<String>| held.first() == reading.path.first() && held.get(1) == reading.path.get(1);
        if reading.optional || reading.never.is_some() || self.held.iter().any(held) {
            return;
        }
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        if !reading.asked {
            // What stands before the part that is read is judged where it is bound to a name.
            for parts in reading.given.max(2)..path.len() {
                if let Some(absent) = self.null(&path[..parts], sight) {
                    let whole = path[..parts].join(".").replace(".[]", "[]");
                    let what = if path[parts] == ENTRY { "no entries".to_owned() } else { format!("no `{}`", path[parts]) };
                    let message = format!("`{whole}` is null {}, and null has {what}", absent.when);
                    return self.report_absent(&absent, spot, message, "say what to use instead: `| default(value=…)`, or ask before: `{% if … %}`");
                }
            }
        }
        let (said, help) = match &reading.goes {
            Goes::Word => {
                ("null cannot be a word of a command".to_owned(), "say what to use instead: `| default(value=\"\") | sh`, or ask before: `{% if … %}`")
            }
            Goes::Loop if !reading.asked => {
                ("no loop runs over null".to_owned(), "say what to use instead: `| default(value=[])`, or ask before: `{% if … %}`")
            }
            Goes::Filter(filter) if !reading.asked => {
                (format!("`{filter}` makes nothing of null"), "say what to use instead, before the filter: `| default(value=…)`, or ask: `{% if … %}`")
            }
            Goes::Anywhere | Goes::Loop | Goes::Filter(_) => return,
        };
        if let Some(absent) = self.null(&path, sight) {
            self.report_absent(&absent, spot, format!("this is null {}, and {said}", absent.when), help);
        }
    }

    /// Judges one whole expression that must not give null, where it gives what it reads.
    pub(super) fn not_null(&mut self, examined: &Examined, said: &str, spot: &Spot, sight: Sight) {
        let Some(path) = bare(examined) else { return };
        let held = |held: &Vec<String>| held.first().map(String::as_str) == path.first().copied() && held.get(1).map(String::as_str) == path.get(1).copied();
        if self.held.iter().any(held) {
            return;
        }
        if let Some(absent) = self.null(&path, sight) {
            let message = format!("this is null {}, and {said}", absent.when);
            self.report_absent(&absent, spot, message, "say what to use instead: `| default(value=…)`");
        }
    }

    /// Returns what is known of the workflow's outputs, for whoever calls it.
    pub(in crate::plan) fn outputs(&mut self) -> BTreeMap<String, OutputShape> {
        let sight = Sight { frame: MAIN, step: None, inside: false, steps: true, secrets: false };
        let mut shapes = BTreeMap::new();
        for (name, text) in &self.shapes.workflow.outputs {
            let examined = prompts::examine(text);
            let may_be_null = bare(&examined).is_some_and(|path| self.null(&path, sight).is_some());
            let (gives, _) = examined.gives.unwrap_or((Gives::Made(Kind::Text), 0..0));
            let schema = self.schema(&gives, sight).unwrap_or(Value::Bool(true));
            shapes.insert(name.value.clone(), OutputShape { schema, may_be_null });
        }
        shapes
    }

    fn schema(&mut self, gives: &Gives, sight: Sight) -> Option<Value> {
        if let Gives::Path(path) = gives {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match self.found(&path, sight) {
                Some(Shape::Schema { root, at, .. } | Shape::Built { root, at }) => return schemas::alone(root, at),
                Some(Shape::Lines) => return Some(json!({"type": "array", "items": {"type": "string"}})),
                _ => {}
            }
        }
        let word = match self.kind(gives, sight)? {
            Kind::Map => "object",
            Kind::List => "array",
            Kind::Text => "string",
            Kind::Number => "number",
            Kind::Flag => "boolean",
            Kind::Null => "null",
            Kind::TextOrNumber => return None,
        };
        Some(json!({ "type": word }))
    }

    fn report_absent(&mut self, absent: &Absent, spot: &Spot, message: String, help: &str) {
        let error = Diagnostic::error(codes::MAY_BE_NULL, &spot.source, spot.span, message).help(help);
        let in_file = spot.source == *self.found.source;
        let error = absent.cause.filter(|_| in_file).into_iter().fold(error, |error, (span, label)| error.also(span, label));
        match absent.waits {
            None => self.found.report(error),
            Some((reader, target)) => {
                self.doubts[reader.frame].push(Doubt { reader: reader.step, target: target.step, is_allowed: absent.is_allowed, error });
            }
        }
    }

    /// Returns what stands at a path, of an output what that is.
    fn found(&mut self, path: &[&str], sight: Sight) -> Option<Shape<'a>> {
        let shape = self.find(path, sight).ok()?;
        Some(if let Shape::Output(at) = shape { self.shapes.output(at) } else { shape })
    }

    /// Says when a value is null, where it is known that it can be.
    fn null(&mut self, path: &[&str], sight: Sight) -> Option<Absent> {
        match path {
            ["inputs", name] => {
                let (_, input) = self.shapes.workflow.inputs.iter().find(|(known, _)| known.value == *name)?;
                let given = input.required || input.default.as_ref().is_some_and(|default| !default.value.is_null());
                return (!given).then(|| Absent::when("where nobody gives the input"));
            }
            ["run", "failure"] => {
                let frames = self.shapes.frames;
                let always = frames.finally == Some(sight.frame) || sight.frame == MAIN;
                return always.then(|| Absent::when("in a run that has not failed"));
            }
            _ => {}
        }
        let (last, whole) = path.split_last()?;
        match self.find(whole, sight) {
            Ok(Shape::Result(at)) => return self.null_of_item(last, at, sight).map(Absent::when),
            Ok(Shape::Step(at)) => return self.null_of_step(last, at, whole.len() == 2, sight),
            Ok(Shape::Output(at)) if let Some(called) = self.shapes.calls.get(&at) => {
                let may_be_null = called.output_shapes.get(*last).is_some_and(|known| known.may_be_null);
                return may_be_null.then(|| Absent::when(format!("where a step of `{}` was skipped or has failed", called.name)));
            }
            _ => {}
        }
        match self.found(path, sight) {
            Some(Shape::Schema { root, at, .. } | Shape::Built { root, at }) if *last != ENTRY => {
                schemas::takes_null(root, at).then(|| Absent::when("where its schema allows that"))
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
        // A command that has failed leaves what it said.
        let says = matches!(step.verb, Verb::Run { .. });
        match part {
            "error" => Some("where the item has succeeded".to_owned()),
            "commit" if !self.shapes.writes[at.frame][at.step] => Some("since the step does not write".to_owned()),
            "commit" if may_fail => Some("where the item has failed".to_owned()),
            "output" if may_fail && !says => Some("where the item has failed".to_owned()),
            _ => None,
        }
    }

    /// The same of what a step leaves; `own` says whether it is read by its own name, not as a part of the loop around it.
    fn null_of_step(&mut self, part: &str, at: At, own: bool, sight: Sight) -> Option<Absent> {
        let frames = self.shapes.frames;
        let step = frames.step(at);
        let id = &step.id.value;
        let known = ["output", "commit", "stdout", "stderr", "exit_code", "output_tail"].contains(&part);
        if !known || step.for_each.is_some() || step.matrix.is_some() || self.found.flaws.of_step(&step.id) {
            return None;
        }
        // What a person has said, and what a loop has come to, is there all the same.
        let fails = part == "commit" || (part == "output" && !matches!(step.verb, Verb::Approve(_) | Verb::Loop(_)));
        let failed = || Absent::when(format!("where `{id}` has failed"));
        let waiter = if own { frames.find(sight.frame, sight.step, id)?.1 } else { None };
        if let Some(waiter) = waiter {
            let direct = frames.all[waiter.frame].edges.on_directly(waiter.step, at.step);
            return match direct {
                _ if !fails || waiter == at => None,
                Some(On::Success) if !step.allow_failure => None,
                Some(_) | None => Some(Absent { waits: Some((waiter, at)), is_allowed: step.allow_failure, ..failed() }),
            };
        }
        if own && sight.frame != at.frame {
            let or_failed = if fails { " or has failed" } else { "" };
            return Some(Absent::when(format!("where `{id}` was skipped{or_failed}")));
        }
        match self.skips(at.frame)[at.step] {
            Some(by) => {
                let by = &frames.all[at.frame].steps[by];
                let need = by.needs.iter().find(|need| need.on == On::Failure);
                let on_condition = by.condition.as_ref().map(|condition| (condition.span, "skipped where this is false"));
                let cause = on_condition.or_else(|| need.map(|need| (need.step.span, "skipped where this has not failed")));
                Some(Absent { cause, ..Absent::when(format!("where `{id}` is skipped")) })
            }
            None => (fails && step.allow_failure).then(failed),
        }
    }

    /// Returns because of which step each of a frame may be skipped in a run, or a round of a loop, that comes to its end: one that
    /// has an `if`, or that needs another one to fail.
    fn skips(&mut self, frame: usize) -> Rc<Vec<Option<usize>>> {
        let graph = &self.shapes.frames.all[frame];
        let made = self.skips.entry(frame).or_insert_with(|| {
            let mut by: Vec<Option<usize>> = vec![None; graph.steps.len()];
            for &step in graph.edges.order.iter().flatten() {
                let own = graph.steps[step].condition.is_some() || graph.edges.on[step].contains(&On::Failure);
                by[step] = if own { Some(step) } else { graph.edges.needs[step].iter().find_map(|&need| by[need]) };
            }
            Rc::new(by)
        });
        made.clone()
    }
}
