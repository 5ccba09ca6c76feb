//! Says why a path leads nowhere, and what was probably meant.
use super::{Reader, Spot};
use crate::{
    plan::shapes::{Shape, Wrong},
    source::{Diagnostic, codes},
    workflow::Verb,
};

impl Reader<'_> {
    /// Says why a path cannot be in what a step leaves behind.
    pub(super) fn step_error(&self, id: &str, path: &[&str], wrong: &Wrong<'_>, spot: &Spot) -> Diagnostic {
        let part = path[wrong.part];
        let output = match path[..wrong.part] {
            [] | ["output"] => format!("the output of step `{id}`"),
            ["output", ref inner @ ..] => format!("the output of step `{id}`, at `{}`,", inner.join(".").replace(".[]", "[]")),
            ref other => format!("step `{id}`, at `{}`,", other.join(".").replace(".[]", "[]")),
        };
        match wrong.whole {
            Shape::Step(at) => {
                let step = self.shapes.frames.step(at);
                let inner = if wrong.part == 0 { format!("step `{id}`") } else { format!("step `{}`", step.id.value) };
                let error = spot.unknown_part(&inner, part, wrong.known.iter().map(String::as_str));
                match (part, &step.verb) {
                    ("output" | "commit", _) if step.for_each.is_some() => error.help(format!("a `for_each` has many: read `steps.{id}.results`")),
                    ("output" | "commit", _) if step.matrix.is_some() => error.help(format!("a `matrix` has many: read `steps.{id}.results`")),
                    (_, Verb::Workflow { .. }) if self.shapes.calls.get(&at).is_some_and(|plan| plan.output_shapes.contains_key(part)) => {
                        error.meant(part, &format!("output.{part}"))
                    }
                    ("output", Verb::Run { .. }) => error.help("say how its output is read, `output: { parse: lines }` or `json`, or read `stdout`"),
                    _ => error,
                }
            }
            Shape::Schema { .. } => {
                let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("{output} has no field `{part}`"));
                told(error, part, wrong, "its schema is")
            }
            Shape::Output(at) => match (&self.shapes.frames.step(at).verb, self.shapes.output(at)) {
                (Verb::Agent { .. }, Shape::Plain) => {
                    spot.error(codes::UNKNOWN_FIELD, format!("{output} is text, and has no fields")).help("give that step `output: { schema: NAME }`")
                }
                (_, Shape::Lines) => spot.error(codes::UNKNOWN_FIELD, format!("{output} is a list of lines, and has no fields")),
                (_, Shape::Schema { name, span, .. }) => {
                    let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("{output} has no field `{part}`"));
                    let error = error.also(span, format!("its schema is `{name}`"));
                    error.suggest(part, wrong.known.iter().map(String::as_str), "fields")
                }
                _ => spot.unknown_part(&output, part, wrong.known.iter().map(String::as_str)),
            },
            Shape::Results(_) => {
                let error = spot.error(codes::UNKNOWN_FIELD, format!("the results of step `{id}` are a list, and have no fields"));
                error.help(format!("go through them: `{{% for r in steps.{id}.results %}}`"))
            }
            Shape::Result(_) => spot.unknown_part(&format!("an entry of the results of step `{id}`"), part, wrong.known.iter().map(String::as_str)),
            Shape::Lines | Shape::Plain | Shape::Built { .. } | Shape::OneOf(_) | Shape::Unknown => {
                spot.unknown_part(&output, part, wrong.known.iter().map(String::as_str))
            }
        }
    }
}

/// Adds where a schema is named, and what was probably meant.
pub(super) fn told(error: Diagnostic, part: &str, wrong: &Wrong<'_>, label: &str) -> Diagnostic {
    let error = match wrong.whole {
        Shape::Schema { name, span, .. } => error.also(span, format!("{label} `{name}`")),
        _ => error,
    };
    error.suggest(part, wrong.known.iter().map(String::as_str), "fields")
}
