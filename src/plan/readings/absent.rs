//! What may be null when it is read, where that is an error: it is taken apart, becomes a word of a command, or a loop or
//! items are made of it.
//!
//! What a step has not left is null: all but its `status` where it was skipped, an agent's output where it has failed. A
//! step that reads another one has waited for it and would have been skipped with it, so that only its failure matters; where
//! a run, or a round of a loop, is over, steps may have been skipped.
use super::{
    Reader, Sight, Spot,
    doubts::{Doubt, Unless},
};
use crate::{
    plan::{
        frames::{At, MAIN},
        graph::{Null, OutputShape},
        schemas,
        shapes::Shape,
    },
    prompts::{self, ENTRY, Examined, Gives, Goes, Kind, Reading},
    source::{Diagnostic, Span, codes},
    workflow::{Input, Join, Need, On, Parse, Step, Verb},
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
    /// What keeps it from being so.
    unless: Unless,
}

impl Absent {
    fn when(when: impl Into<String>) -> Absent {
        Absent { when: when.into(), cause: None, unless: Unless::Never }
    }
}

impl<'a> Reader<'a> {
    /// Judges one reading.
    pub(super) fn absent(&mut self, reading: &Reading, spot: &Spot, sight: Sight) {
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        if reading.optional || reading.never.is_some() || self.is_held(&path) || self.is_asked(&path, sight) {
            return;
        }
        let mut doubts = Vec::new();
        if !reading.asked {
            // What stands before the part that is read is judged where it is bound to a name.
            for parts in reading.given.max(2)..path.len() {
                for absent in self.null(&path[..parts], &reading.conditions, sight) {
                    let whole = path[..parts].join(".").replace(".[]", "[]");
                    let what = if path[parts] == ENTRY { "no entries".to_owned() } else { format!("no `{}`", path[parts]) };
                    let message = format!("`{whole}` is null {}, and null has {what}", absent.when);
                    doubts.push(self.doubt(&absent, spot, message, "say what to use instead: `| default(value=…)`, or ask before: `{% if … %}`"));
                }
            }
        }
        let said = match &reading.goes {
            Goes::Word => {
                Some(("null cannot be a word of a command".to_owned(), "say what to use instead: `| default(value=\"\") | sh`, or ask before: `{% if … %}`"))
            }
            _ if reading.asked => None,
            Goes::Loop => Some(("no loop runs over null".to_owned(), "say what to use instead: `| default(value=[])`, or ask before: `{% if … %}`")),
            Goes::Filter(filter) => {
                Some((format!("`{filter}` makes nothing of null"), "say what to use instead, before the filter: `| default(value=…)`, or ask: `{% if … %}`"))
            }
            Goes::Compared => Some((
                "null is neither smaller nor larger than anything".to_owned(),
                "say what to use instead: `| default(value=0)`, or ask before: `x != none and x > 0`",
            )),
            Goes::Reckoned => Some(("nothing is worked out with null".to_owned(), "say what to use instead: `| default(value=0)`")),
            Goes::Anywhere => None,
        };
        if let Some((said, help)) = said {
            for absent in self.null(&path, &reading.conditions, sight) {
                let message = format!("this is null {}, and {said}", absent.when);
                doubts.push(self.doubt(&absent, spot, message, help));
            }
        }
        self.doubt_all(&path, &reading.conditions, doubts, sight);
    }

    /// Judges one whole expression that must not give null, where it gives what it reads.
    pub(super) fn not_null(&mut self, examined: &Examined, said: &str, spot: &Spot, sight: Sight) {
        let Some(path) = bare(examined).filter(|path| !self.is_held(path)) else { return };
        let mut doubts = Vec::new();
        for absent in self.null(&path, &[], sight) {
            let message = format!("this is null {}, and {said}", absent.when);
            doubts.push(self.doubt(&absent, spot, message, "say what to use instead: `| default(value=…)`"));
        }
        self.doubt_all(&path, &[], doubts, sight);
    }

    /// Returns whether a condition that holds where templates are read looks at what stands at a path.
    fn is_held(&self, path: &[&str]) -> bool {
        let about: Vec<String> = path.iter().take(2).map(|part| (*part).to_owned()).collect();
        self.held.iter().any(|held| held.contains(&about))
    }

    /// Returns what is known of the workflow's outputs, for whoever calls it.
    pub(in crate::plan) fn outputs(&mut self) -> BTreeMap<String, OutputShape> {
        let sight = Sight { frame: MAIN, step: None, inside: false, steps: true, secrets: false, nothing_else: false };
        let mut shapes = BTreeMap::new();
        for (name, text) in &self.shapes.workflow.outputs {
            let examined = prompts::examine(text);
            let null = bare(&examined).and_then(|path| {
                let first = self.null(&path, &[], sight).into_iter().next()?;
                Some(if let ["inputs", name] = path[..] { Null::Input(name.to_owned()) } else { Null::When(first.when) })
            });
            let (gives, _) = examined.gives.unwrap_or((Gives::Made(Kind::Text), 0..0));
            let schema = self.schema(&gives, sight).unwrap_or(Value::Bool(true));
            shapes.insert(name.value.clone(), OutputShape { schema, null });
        }
        shapes
    }

    fn schema(&mut self, gives: &Gives, sight: Sight) -> Option<Value> {
        if let Some(path) = gives.path() {
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

    fn doubt(&self, absent: &Absent, spot: &Spot, message: String, help: &str) -> Doubt {
        let error = Diagnostic::error(codes::MAY_BE_NULL, &spot.source, spot.span, message).help(help);
        let in_file = spot.source == *self.found.source;
        let error = absent.cause.filter(|_| in_file).into_iter().fold(error, |error, (span, label)| error.also(span, label));
        Doubt { unless: absent.unless, error }
    }

    /// Returns what stands at a path, of an output what that is.
    fn found(&mut self, path: &[&str], sight: Sight) -> Option<Shape<'a>> {
        let shape = self.find(path, sight).ok()?;
        Some(if let Shape::Output(at) = shape { self.shapes.output(at) } else { shape })
    }

    /// Says when a value is null, where it is known that it can be; `conditions` are what those around it in its template look at.
    fn null(&mut self, path: &[&str], conditions: &[Vec<String>], sight: Sight) -> Vec<Absent> {
        let frames = self.shapes.frames;
        match path {
            ["inputs", name] => {
                let input = self.shapes.workflow.inputs.iter().find(|(known, _)| known.value == *name);
                let given = |(_, input): &(_, Input)| input.required || input.default.as_ref().is_some_and(|default| !default.value.is_null());
                return input.filter(|input| !given(input)).map(|_| Absent::when("where nobody gives the input")).into_iter().collect();
            }
            ["run", "failure"] => {
                let always = frames.finally == Some(sight.frame) || sight.frame == MAIN;
                return always.then(|| Absent::when("in a run that has not failed")).into_iter().collect();
            }
            _ => {}
        }
        let Some((last, whole)) = path.split_last() else { return Vec::new() };
        match self.find(whole, sight) {
            Ok(Shape::Result(at)) => return self.null_of_item(last, at, sight).map(Absent::when).into_iter().collect(),
            Ok(Shape::Step(at)) if whole.len() == 2 => return self.null_of_step(last, at, conditions, sight),
            Ok(Shape::Step(at)) => return self.null_at_the_end(last, at).into_iter().collect(),
            Ok(Shape::Output(at)) if let Some(called) = self.shapes.calls.get(&at) => {
                let gives = |name: &str| matches!(&frames.step(at).verb, Verb::Workflow { with, .. } if with.iter().any(|(given, _)| given.value == name));
                let null = called.output_shapes.get(*last).and_then(|known| known.null.as_ref());
                let when = null.and_then(|null| match null {
                    Null::Input(name) => (!gives(name)).then(|| format!("where nobody gives the input `{name}` of `{}`", called.name)),
                    Null::When(when) => Some(format!("{when}, in `{}`", called.name)),
                });
                return when.map(Absent::when).into_iter().collect();
            }
            _ => {}
        }
        match self.found(path, sight) {
            Some(Shape::Schema { root, at, .. } | Shape::Built { root, at }) if *last != ENTRY && schemas::takes_null(root, at) => {
                vec![Absent::when("where its schema allows that")]
            }
            _ => Vec::new(),
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
            "commit" => Some("where the item has changed nothing".to_owned()),
            "output" if may_fail && !says => Some("where the item has failed".to_owned()),
            _ => None,
        }
    }

    /// The same of what a step leaves, read by its own name.
    fn null_of_step(&mut self, part: &str, at: At, conditions: &[Vec<String>], sight: Sight) -> Vec<Absent> {
        let frames = self.shapes.frames;
        let step = frames.step(at);
        let id = &step.id.value;
        if !self.may_lack(part, at) {
            return Vec::new();
        }
        let fails = lost_by_failure(part, step);
        let unwritten = (part == "commit").then(|| self.unwritten(at)).flatten();
        let mut absent = match frames.find(sight.frame, sight.step, id) {
            None => return Vec::new(),
            Some((_, Some(waiter))) if waiter == at => return Vec::new(),
            Some((_, Some(waiter))) => {
                let graph = &frames.all[waiter.frame];
                let direct = graph.edges.on_directly(waiter.step, at.step);
                let joins = graph.steps[waiter.step].sources().iter().any(|source| source.value == *id);
                let mut absent = Vec::new();
                // A merge goes on without what was skipped, and so does what needs that.
                if (direct.is_none() || joins) && self.skips(at.frame)[at.step].is_some() {
                    absent.push(Absent { unless: Unless::Began(waiter, at), ..self.skipped(at) });
                }
                if fails && (direct != Some(On::Success) || step.allow_failure) {
                    let unless = if step.allow_failure { Unless::Unwaited(waiter, at) } else { Unless::Succeeded(waiter, at) };
                    absent.push(Absent { unless, ..failed(id) });
                }
                absent
            }
            Some((_, None)) if sight.frame != at.frame && !self.has_not_failed(conditions) => {
                // A step that needs nothing begins in any case.
                let begins = step.needs.is_empty() && step.condition.is_none();
                match (begins, fails) {
                    (true, false) => Vec::new(),
                    (true, true) => vec![failed(id)],
                    (false, _) => {
                        let or_failed = if fails { " or has failed" } else { "" };
                        vec![Absent::when(format!("where `{id}` was skipped{or_failed}"))]
                    }
                }
            }
            Some((_, None)) => self.null_at_the_end(part, at).into_iter().collect(),
        };
        absent.extend(unwritten);
        absent
    }

    /// The same of what a step leaves where all of a run, or of a round, has ended well.
    fn null_at_the_end(&mut self, part: &str, at: At) -> Option<Absent> {
        let step = self.shapes.frames.step(at);
        if !self.may_lack(part, at) {
            return None;
        }
        if self.skips(at.frame)[at.step].is_some() {
            return Some(self.skipped(at));
        }
        let failed = (lost_by_failure(part, step) && step.allow_failure).then(|| failed(&step.id.value));
        failed.or_else(|| (part == "commit").then(|| self.unwritten(at)).flatten())
    }

    /// Returns whether a part of what a step leaves may be null at all.
    fn may_lack(&self, part: &str, at: At) -> bool {
        let step = self.shapes.frames.step(at);
        let known = ["output", "commit", "stdout", "stderr", "exit_code", "output_tail"].contains(&part);
        known && step.for_each.is_none() && step.matrix.is_none() && !self.found.flaws.of_step(&step.id)
    }

    /// Says when a step that has succeeded leaves no commit; a choice always does.
    fn unwritten(&self, at: At) -> Option<Absent> {
        let step = self.shapes.frames.step(at);
        match step.verb {
            Verb::Select(_) => None,
            _ if !self.shapes.writes[at.frame][at.step] => Some(Absent::when(format!("since `{}` does not write", step.id.value))),
            _ => Some(Absent::when(format!("where `{}` has changed nothing", step.id.value))),
        }
    }

    /// Says that a step is skipped, and because of what.
    fn skipped(&mut self, at: At) -> Absent {
        let frames = self.shapes.frames;
        let by = self.skips(at.frame)[at.step].map(|by| &frames.all[at.frame].steps[by]);
        let cause = by.and_then(|by| {
            let need = by.needs.iter().find(|need| need.on == On::Failure);
            let on_condition = by.condition.as_ref().map(|condition| (condition.span, "skipped where this is false"));
            on_condition.or_else(|| need.map(|need| (need.step.span, "skipped where this has not failed")))
        });
        Absent { cause, ..Absent::when(format!("where `{}` is skipped", frames.step(at).id.value)) }
    }

    /// Returns whether a condition asks how the run has ended.
    fn has_not_failed(&self, conditions: &[Vec<String>]) -> bool {
        let held = self.held.iter().flat_map(|held| held.iter());
        conditions.iter().chain(held).any(|condition| matches!(condition.as_slice(), [run, failure] if run == "run" && failure == "failure"))
    }

    /// Returns because of which step each of a frame may be skipped in a run, or a round of a loop, that comes to its end: one that
    /// has an `if`, or that needs another one to fail. What joins the work of several is, where all of them are.
    fn skips(&mut self, frame: usize) -> Rc<Vec<Option<usize>>> {
        let graph = &self.shapes.frames.all[frame];
        let made = self.skips.entry(frame).or_insert_with(|| {
            let mut by: Vec<Option<usize>> = vec![None; graph.steps.len()];
            for &step in &graph.edges.order {
                let written = &graph.steps[step];
                let own = written.condition.is_some() || graph.edges.on[step].contains(&On::Failure);
                let sources: Vec<usize> = written.sources().iter().filter_map(|source| graph.index.get(source.as_str()).copied()).collect();
                let of_sources = || if sources.iter().all(|&source| by[source].is_some()) { sources.first().and_then(|&source| by[source]) } else { None };
                let of_needs = || graph.edges.needs[step].iter().filter(|need| !sources.contains(need)).find_map(|&need| by[need]);
                by[step] = if own { Some(step) } else { of_needs().or_else(of_sources) };
            }
            Rc::new(by)
        });
        made.clone()
    }
}

fn failed(id: &str) -> Absent {
    Absent::when(format!("where `{id}` has failed"))
}

/// Returns whether a step that has failed leaves a part not behind: what a person has said, and what a loop has come to, is there all
/// the same, and what a command has said. Whatever that is, it has lines.
fn lost_by_failure(part: &str, step: &Step) -> bool {
    let output = step.output.as_ref();
    let has_lines = output.is_some_and(|output| output.schema.is_none() && output.parse.as_deref() == Some(&Parse::Lines));
    part == "commit" || (part == "output" && !has_lines && !matches!(step.verb, Verb::Approve(_) | Verb::Loop(_)))
}
