//! What templates find at the end of a path, as far as it is known before the run: the type of every step's results.
//!
//! A shape is walked part by part and made only when asked for, so that a step of a loop with thousands of steps is found
//! without writing down what the loop gives.
use super::{
    Plan,
    frames::{At, Frames, ITERATIONS},
    schemas::{self, Part},
};
use crate::{
    prompts::{ENTRY, VALUE},
    source::{Span, Spanned},
    workflow::{Parse, Verb, Workflow},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

/// What a merge, a choice and a question give, as schemas.
static MERGE_OUTPUT: LazyLock<Value> = LazyLock::new(|| {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({"type": "object", "properties": {
        "commit": {"type": ["string", "null"]},
        "landed": texts,
        "ejected": {"type": "array", "items": {"type": "object", "properties": {"from": {"type": "string"}, "reason": {"type": "string"}}}},
        "conflicts": {"type": "array", "items": {"type": "object", "properties": {"from": {"type": "string"}, "paths": texts, "by": {"type": "string"}}}},
        "report": {"type": "string"},
    }})
});
static SELECT_OUTPUT: LazyLock<Value> = LazyLock::new(|| {
    json!({"type": "object", "properties": {
        "winner": {"type": "string"}, "why": {"type": "string"}, "scores": {"type": "object"}, "commit": {"type": "string"},
    }})
});
static APPROVE_OUTPUT: LazyLock<Value> =
    LazyLock::new(|| json!({"type": "object", "properties": {"approved": {"type": "boolean"}, "by": {"type": "string"}, "note": {"type": "string"}}}));
static ITEM_OK: LazyLock<Value> = LazyLock::new(|| json!({"type": "boolean"}));
const ITEM_RESULT: [&str; 6] = ["key", "ok", "status", "output", "commit", "error"];

/// What stands at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    /// Nobody knows.
    Unknown,
    /// All that is left of a step.
    Step(At),
    /// Its output.
    Output(At),
    /// The results of its items.
    Results(At),
    /// The result of one item.
    Result(At),
    /// What a schema describes.
    Schema { root: &'a Value, at: &'a Value, name: &'a str, span: Span },
    /// What a step of its kind always gives, or what the workflow gives that it calls, by the schema of that.
    Built { root: &'a Value, at: &'a Value },
    /// One of these values.
    OneOf(&'a [Value]),
    /// Lines of text.
    Lines,
    /// Text or a number.
    Plain,
}

/// Where a walk came to its end too early.
pub(super) struct Wrong<'a> {
    /// Which part of the path cannot be there.
    pub(super) part: usize,
    /// In what it was looked for.
    pub(super) whole: Shape<'a>,
    /// What there is instead.
    pub(super) known: Vec<String>,
}

/// What shapes are made from.
#[derive(Clone, Copy)]
pub(super) struct Shapes<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) frames: &'a Frames<'a>,
    pub(super) schemas: &'a BTreeMap<String, Arc<Value>>,
    /// Whether each step makes a commit, frame by frame.
    pub(super) writes: &'a [Vec<bool>],
    /// The compiled workflows that steps call.
    pub(super) calls: &'a HashMap<At, Arc<Plan>>,
}

impl<'a> Shapes<'a> {
    /// Follows a path; `Unknown` as soon as nothing more is known.
    pub(super) fn walk(&self, start: Shape<'a>, path: &[&str]) -> Result<Shape<'a>, Wrong<'a>> {
        let mut at = start;
        for (part, name) in path.iter().enumerate() {
            at = self.part(at, name).map_err(|known| Wrong { part, whole: at, known })?;
        }
        Ok(at)
    }

    /// Returns what an input holds.
    pub(super) fn input(&self, name: &str) -> Shape<'a> {
        let input = self.workflow.inputs.iter().find(|(known, _)| known.value == name && !self.workflow.flaws.of_entry("inputs", name));
        input.map_or(Shape::Unknown, |(name, input)| Shape::Schema { root: &input.schema, at: &input.schema, name: &name.value, span: name.span })
    }

    fn part(&self, whole: Shape<'a>, name: &str) -> Result<Shape<'a>, Vec<String>> {
        let listed = |known: &[&str]| Err(known.iter().map(|name| (*name).to_owned()).collect());
        match whole {
            // What an index finds in text or in a map is not judged.
            Shape::Step(_) | Shape::Plain if name == ENTRY => Ok(Shape::Unknown),
            Shape::Step(_) | Shape::Result(_) | Shape::Results(_) | Shape::OneOf(_) | Shape::Lines | Shape::Plain if name == VALUE => Ok(Shape::Unknown),
            Shape::Step(at) if self.workflow.flaws.of_step(&self.frames.step(at).id) => Ok(Shape::Unknown),
            Shape::Step(at) => {
                let known = self.of_step(at);
                match name {
                    _ if !known.contains(&name) => listed(&known),
                    "output" => Ok(Shape::Output(at)),
                    "results" => Ok(Shape::Results(at)),
                    _ => Ok(Shape::Plain),
                }
            }
            Shape::Results(at) if name == ENTRY => Ok(Shape::Result(at)),
            Shape::Result(_) if !ITEM_RESULT.contains(&name) => listed(&ITEM_RESULT),
            Shape::Result(at) if name == "output" && !matches!(self.frames.step(at).verb, Verb::Run { .. }) => Ok(Shape::Output(at)),
            Shape::Result(_) if name == "ok" => Ok(Shape::Built { root: &ITEM_OK, at: &ITEM_OK }),
            Shape::Result(_) if name != "output" => Ok(Shape::Plain),
            Shape::Result(_) | Shape::Unknown => Ok(Shape::Unknown),
            Shape::Output(at) => self.of_output(at, name),
            Shape::Schema { root, at, name: named, span } => match schemas::part(root, at, name) {
                Part::Known(at) => Ok(Shape::Schema { root, at, name: named, span }),
                Part::Possible => Ok(Shape::Unknown),
                Part::Never(known) => Err(known),
            },
            Shape::Built { root, at } => match schemas::part(root, at, name) {
                Part::Known(at) => Ok(Shape::Built { root, at }),
                Part::Possible => Ok(Shape::Unknown),
                // An index of what is no list is not judged.
                Part::Never(_) if name == ENTRY => Ok(Shape::Unknown),
                Part::Never(known) => Err(known),
            },
            Shape::OneOf(values) => one_of(values, name),
            Shape::Lines if name == ENTRY => Ok(Shape::Plain),
            Shape::Results(_) | Shape::Lines | Shape::Plain => listed(&[]),
        }
    }

    /// Returns what is left of a step, by name.
    fn of_step(&self, at: At) -> Vec<&'static str> {
        let step = self.frames.step(at);
        let mut known = vec!["status"];
        if step.for_each.is_some() || step.matrix.is_some() {
            known.push("results");
            return known;
        }
        let parses = step.output.as_ref().is_some_and(|output| output.parse.is_some());
        match &step.verb {
            Verb::Run { .. } => {
                known.extend(["stdout", "stderr", "exit_code", "output_tail"]);
                known.extend(parses.then_some("output"));
            }
            Verb::Agent { .. } | Verb::Merge(_) | Verb::Workflow { .. } | Verb::Select(_) | Verb::Approve(_) | Verb::Loop(_) => known.push("output"),
        }
        known.extend(self.writes[at.frame][at.step].then_some("commit"));
        known
    }

    /// Looks a part up in what a step gives.
    fn of_output(&self, at: At, name: &str) -> Result<Shape<'a>, Vec<String>> {
        if (name == ENTRY || name == VALUE) && matches!(self.output(at), Shape::Output(_)) {
            return Ok(Shape::Unknown);
        }
        let step = self.frames.step(at);
        match self.output(at) {
            Shape::Output(_) => match &step.verb {
                Verb::Workflow { .. } => match self.calls.get(&at) {
                    Some(plan) => match plan.output_shapes.get(name) {
                        Some(known) => Ok(Shape::Built { root: &known.schema, at: &known.schema }),
                        None => Err(plan.outputs.iter().map(|(known, _)| known.clone()).collect()),
                    },
                    None => Ok(Shape::Unknown),
                },
                Verb::Loop(_) => {
                    let Some(frame) = self.frames.body(at) else { return Ok(Shape::Unknown) };
                    match self.frames.all[frame].index.get(name) {
                        Some(&step) => Ok(Shape::Step(At { frame, step })),
                        None if name == ITERATIONS => Ok(Shape::Plain),
                        None => Err([ITERATIONS].into_iter().chain(self.frames.all[frame].index.keys().copied()).map(str::to_owned).collect()),
                    }
                }
                Verb::Agent { .. } | Verb::Run { .. } | Verb::Merge(_) | Verb::Select(_) | Verb::Approve(_) => Ok(Shape::Unknown),
            },
            shape => self.part(shape, name),
        }
    }

    /// Returns what a step gives, where that is known without its parts being looked up in steps or plans.
    pub(super) fn output(&self, at: At) -> Shape<'a> {
        let step = self.frames.step(at);
        let output = step.output.as_ref();
        if let Some(Spanned { value: name, span }) = output.and_then(|output| output.schema.as_ref()) {
            return self.schemas.get(name).map_or(Shape::Unknown, |root| Shape::Schema { root, at: root, name, span: *span });
        }
        match (&step.verb, output.and_then(|output| output.parse.as_deref().copied())) {
            (Verb::Agent { .. }, _) => Shape::Plain,
            (Verb::Run { .. }, Some(Parse::Lines)) => Shape::Lines,
            (Verb::Run { .. }, _) => Shape::Unknown,
            (Verb::Merge(_), _) => Shape::Built { root: &MERGE_OUTPUT, at: &MERGE_OUTPUT },
            (Verb::Select(_), _) => Shape::Built { root: &SELECT_OUTPUT, at: &SELECT_OUTPUT },
            (Verb::Approve(_), _) => Shape::Built { root: &APPROVE_OUTPUT, at: &APPROVE_OUTPUT },
            (Verb::Workflow { .. } | Verb::Loop(_), _) => Shape::Output(at),
        }
    }
}

/// Looks a part up in values of which one stands there: a field that some of them have may be there.
fn one_of<'a>(values: &'a [Value], name: &str) -> Result<Shape<'a>, Vec<String>> {
    if name == ENTRY || values.iter().any(|value| value.get(name).is_some()) {
        return Ok(Shape::Unknown);
    }
    let mut known: Vec<String> = values.iter().filter_map(Value::as_object).flat_map(|fields| fields.keys().cloned()).collect();
    known.sort_unstable();
    known.dedup();
    Err(known)
}
