//! Every template of a workflow: whether it parses, and whether what it reads is there when it is read.
use super::{
    edges::Edges,
    findings::{Findings, STEP},
    reach::{Question, answers},
    schemas::{ENTRY, Field, field},
};
use crate::{
    prompts::{self, Reading, TemplateError},
    source::{Diagnostic, Source, Span, Spanned, codes},
    workflow::{Parse, Scope, Step, Verb, Workflow},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

/// Names that are always in scope, so that no item may take them.
const RESERVED: [&str; 6] = ["inputs", "env", "steps", "run", "matrix", "loop"];
/// What `run.…` holds.
const RUN: [&str; 5] = ["id", "branch", "head", "base", "failure"];
/// What a merge's `output.…` holds.
const MERGE_OUTPUT: [&str; 5] = ["commit", "landed", "ejected", "conflicts", "report"];

/// What the templates of a workflow are judged by.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) index: &'a BTreeMap<&'a str, usize>,
    pub(super) edges: &'a Edges,
    pub(super) schemas: &'a BTreeMap<String, Arc<Value>>,
    /// Whether each step makes a commit.
    pub(super) writes: &'a [bool],
}

/// Reads templates, and keeps what it finds.
pub(super) struct Reader<'a> {
    known: Known<'a>,
    found: Findings<'a>,
    waits: Vec<Wait>,
}

/// A step that reads another one without needing it directly.
struct Wait {
    reader: usize,
    target: usize,
    source: Arc<Source>,
    span: Span,
}

/// Where a template stands: in a scalar of the workflow file, or in a file of its own.
#[derive(Clone, Copy)]
enum Place<'a> {
    Scalar(Span),
    File(&'a Arc<Source>),
}

/// How a template is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Text,
    Shell,
    /// One whole expression.
    Value,
    Condition,
}

/// What a template may read.
#[derive(Clone, Copy)]
struct Sight<'a> {
    /// The step it belongs to.
    step: Option<usize>,
    /// The item's name, where there is an item.
    item: Option<&'a str>,
    /// Whether steps and the environment are there; not for the workflow's own `env`.
    steps: bool,
}

impl<'a> Reader<'a> {
    /// Makes a reader that has found nothing yet.
    pub(super) fn new(known: Known<'a>) -> Reader<'a> {
        Reader { known, found: Findings::new(&known.workflow.source), waits: Vec::new() }
    }

    /// Checks the templates that belong to no step.
    pub(super) fn file(&mut self) {
        for (_, text) in &self.known.workflow.env {
            self.template(text, Use::Text, Sight { step: None, item: None, steps: false });
        }
        for (_, text) in &self.known.workflow.outputs {
            self.template(text, Use::Text, Sight { step: None, item: None, steps: true });
        }
    }

    /// Checks the templates of a step; `prompt` is its text and the file it comes from.
    pub(super) fn step(&mut self, at: usize, prompt: Option<(&str, Option<&Arc<Source>>)>) {
        let step = &self.known.workflow.steps[at];
        let outside = Sight { step: Some(at), item: None, steps: true };
        let inside = Sight { item: step.for_each.as_ref().map(|for_each| for_each.name.as_str()), ..outside };
        if let Some(condition) = &step.condition {
            self.template(condition, Use::Condition, outside);
        }
        self.for_each(step, outside, inside);
        match &step.verb {
            Verb::Agent { prompt: written, .. } => {
                if let Some((text, file)) = prompt {
                    self.read(text, file.map_or(Place::Scalar(written.span), Place::File), Use::Text, inside);
                }
            }
            Verb::Run { command } => self.template(command, Use::Shell, inside),
            Verb::Select(_) | Verb::Workflow { .. } | Verb::Loop(_) | Verb::Approve(_) => {}
            Verb::Merge(merge) => {
                merge.verify.iter().for_each(|command| self.template(command, Use::Shell, inside));
                self.merge_sources(at, merge);
            }
        }
        let commands = step.verify.iter().flat_map(|verify| &verify.run).chain(step.workspace.iter().flat_map(|workspace| &workspace.setup));
        commands.for_each(|command| self.template(command, Use::Shell, inside));
        step.cwd.iter().chain(step.env.iter().map(|(_, value)| value)).for_each(|text| self.template(text, Use::Text, inside));
        match &step.scope {
            Some(Spanned { value: Scope::Globs(globs), .. }) => globs.iter().for_each(|glob| self.template(glob, Use::Text, inside)),
            Some(Spanned { value: Scope::Template(text), span }) => self.read(text, Place::Scalar(*span), Use::Value, inside),
            None => {}
        }
    }

    fn for_each(&mut self, step: &Step, outside: Sight<'_>, inside: Sight<'_>) {
        let Some(for_each) = &step.for_each else { return };
        if RESERVED.contains(&for_each.name.as_str()) {
            let error = self.found.error(codes::RESERVED, for_each.name.span, format!("`{}` is a name of the language", for_each.name.value));
            self.found.report(error.help("give the item another name by `as`"));
        }
        match &for_each.items.value {
            Value::String(text) => self.read(text, Place::Scalar(for_each.items.span), Use::Value, outside),
            Value::Array(items) if items.iter().any(|item| item.as_str().is_some_and(|text| text.contains("{{"))) => {
                let error = self.found.error(codes::NOT_AN_EXPRESSION, for_each.items.span, "the entries of a list of items are not templates");
                self.found.report(error.help("write the whole list as one expression: `\"{{ [a, b] }}\"`"));
            }
            _ => {}
        }
        if let Some(Spanned { value: Value::String(text), span }) = &for_each.max_parallel {
            self.read(text, Place::Scalar(*span), Use::Value, outside);
        }
        if let Some(key) = &for_each.key {
            self.template(key, Use::Text, inside);
        }
        if let Some(needs) = &for_each.needs {
            self.template(needs, Use::Value, inside);
        }
    }

    /// A merge waits for what it joins.
    fn merge_sources(&mut self, at: usize, merge: &crate::workflow::Merge) {
        for name in &merge.from {
            match self.known.index.get(name.as_str()) {
                Some(&target) => self.wait(at, target, self.found.source.clone(), name.span),
                None => self.found.unknown(&STEP, name, self.known.workflow.steps.iter().map(|step| step.id.as_str())),
            }
        }
    }

    fn template(&mut self, text: &Spanned<String>, used: Use, sight: Sight<'_>) {
        self.read(text, Place::Scalar(text.span), used, sight);
    }

    fn read(&mut self, text: &str, place: Place<'_>, used: Use, sight: Sight<'_>) {
        let file = self.found.source.clone();
        let locate = |part: Range<usize>| match place {
            Place::Scalar(span) => (file.clone(), file.locate(span, text, part)),
            Place::File(source) => (source.clone(), Span { start: part.start, end: part.end }),
        };
        match check(text, used) {
            Ok(readings) => {
                for reading in readings {
                    let (source, span) = locate(reading.span.clone());
                    self.reading(&reading, &Spot { source, span }, sight);
                }
            }
            Err((code, error)) => {
                let (source, span) = locate(error.span.clone());
                let told = Diagnostic::error(code, &source, span, error.message);
                let told = error.help.into_iter().fold(told, Diagnostic::help);
                let exact = source.text.get(span.range()) == text.get(error.span.clone());
                let quoted = code == codes::UNQUOTED && exact && quotable(text, &error.span);
                self.found.report(if quoted { told.fix(Span { start: span.end, end: span.end }, " | sh") } else { told });
            }
        }
    }

    fn reading(&mut self, reading: &Reading, spot: &Spot, sight: Sight<'_>) {
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["inputs", name, ..] => {
                let known = self.known.workflow.inputs.iter().map(|(name, _)| name.as_str());
                if !known.clone().any(|input| input == *name) {
                    let error = spot.error(codes::UNKNOWN_INPUT, format!("there is no input `{name}`")).help("declare it under `inputs`");
                    self.found.report(error.suggest(name, known, "inputs"));
                }
            }
            ["run", name, ..] if !RUN.contains(name) => {
                self.found.report(spot.unknown_part("`run`", name, RUN.into_iter()));
            }
            ["inputs" | "run" | "secrets", ..] | [] => {}
            ["env", name, ..] if sight.steps => {
                let own = sight.step.map(|step| &self.known.workflow.steps[step].env);
                let known: BTreeSet<&str> = own.into_iter().chain([&self.known.workflow.env]).flatten().map(|(name, _)| name.as_str()).collect();
                if !known.contains(name) && !reading.optional {
                    self.found.report(spot.unknown_part("`env`", name, known.iter().copied()));
                }
            }
            ["env", ..] if sight.steps => {}
            ["steps", id, rest @ ..] if sight.steps => self.step_reading(id, rest, reading.optional, &Reads { spot, sight }),
            ["steps"] if sight.steps => {
                if sight.step.is_some() {
                    let error = spot.error(codes::UNKNOWN_FIELD, "`steps` as a whole cannot be read: not all of them have ended here".to_owned());
                    self.found.report(error.help("name the step: `steps.ID.output`"));
                }
            }
            [name, rest @ ..] if sight.item == Some(name) => {
                if let Some(error) = sight.step.filter(|_| !reading.optional).and_then(|step| self.item_error(step, rest, spot)) {
                    self.found.report(error);
                }
            }
            [name, ..] => {
                let mut known: Vec<&str> = if sight.steps { vec!["inputs", "env", "steps", "run"] } else { vec!["inputs", "run"] };
                known.extend(sight.item);
                let error = spot.error(codes::UNKNOWN_NAME, format!("nothing here is called `{name}`"));
                self.found.report(if self.known.workflow.inputs.iter().any(|(input, _)| input.value == **name) {
                    error.meant(name, &format!("inputs.{name}"))
                } else if sight.steps && self.known.index.contains_key(name) {
                    error.meant(name, &format!("steps.{name}"))
                } else {
                    error.suggest(name, known.into_iter(), "names")
                });
            }
        }
    }

    fn step_reading(&mut self, id: &str, path: &[&str], optional: bool, reads: &Reads<'_>) {
        let Some(&target) = self.known.index.get(id) else {
            let error = reads.spot.error(codes::READ_UNKNOWN_STEP, format!("there is no step `{id}`"));
            self.found.report(error.suggest(id, self.known.index.keys().copied(), "steps"));
            return;
        };
        if let Some(reader) = reads.sight.step {
            if reader == target {
                let error = reads.spot.error(codes::NOT_WAITED_FOR, format!("`{id}` reads its own end"));
                self.found.report(error.help("a step has no output before it has ended"));
                return;
            }
            self.wait(reader, target, reads.spot.source.clone(), reads.spot.span);
        }
        if let Some(error) = self.field_error(target, path, optional, reads.spot) {
            self.found.report(error);
        }
    }

    /// Says why a path cannot be in what a step leaves behind.
    fn field_error(&self, target: usize, path: &[&str], optional: bool, spot: &Spot) -> Option<Diagnostic> {
        let step = &self.known.workflow.steps[target];
        let id = &step.id.value;
        let schema = step.output.as_ref().and_then(|output| output.schema.as_ref());
        let parse = step.output.as_ref().and_then(|output| output.parse);
        let (first, rest) = path.split_first()?;
        let fields: &[&str] = match (&step.for_each, &step.verb) {
            (Some(_), _) => &["status", "results"],
            (None, Verb::Agent { .. }) if self.known.writes[target] => &["status", "output", "commit"],
            (None, Verb::Agent { .. }) => &["status", "output"],
            (None, Verb::Run { .. }) => match (parse, self.known.writes[target]) {
                (Some(_), true) => &["status", "stdout", "stderr", "exit_code", "output_tail", "output", "commit"],
                (Some(_), false) => &["status", "stdout", "stderr", "exit_code", "output_tail", "output"],
                (None, true) => &["status", "stdout", "stderr", "exit_code", "output_tail", "commit"],
                (None, false) => &["status", "stdout", "stderr", "exit_code", "output_tail"],
            },
            (None, Verb::Merge(_) | Verb::Select(_) | Verb::Workflow { .. } | Verb::Loop(_)) => &["status", "output", "commit"],
            (None, Verb::Approve(_)) => &["status", "output"],
        };
        if !fields.contains(first) {
            let error = spot.unknown_part(&format!("step `{id}`"), first, fields.iter().copied());
            return Some(match (*first, &step.for_each, &step.verb) {
                ("output" | "commit", Some(_), _) => error.help(format!("a `for_each` has many: read `steps.{id}.results`")),
                ("output", None, Verb::Run { .. }) => error.help("say how its output is read, `output: { parse: lines }` or `json`, or read `stdout`"),
                _ => error,
            });
        }
        if *first != "output" || rest.is_empty() || optional {
            return None;
        }
        let whole = format!("the output of step `{id}`");
        match (&step.verb, schema) {
            (_, Some(name)) => {
                let schema = self.known.schemas.get(&name.value)?;
                let path: Vec<String> = rest.iter().map(|part| (*part).to_owned()).collect();
                let Field::Unknown { part, known } = field(schema, &path) else { return None };
                let at = if part == 0 { whole } else { format!("{whole}, at `{}`,", path[..part].join(".")) };
                let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("{at} has no field `{}`", path[part]));
                let error = error.also(name.span, format!("its schema is `{}`", name.value));
                Some(error.suggest(&path[part], known.iter().map(String::as_str), "fields"))
            }
            (Verb::Merge(_), None) if !MERGE_OUTPUT.contains(&rest[0]) => Some(spot.unknown_part(&whole, rest[0], MERGE_OUTPUT.into_iter())),
            (Verb::Agent { .. }, None) => {
                Some(spot.error(codes::UNKNOWN_FIELD, format!("{whole} is text, and has no fields")).help("give that step `output: { schema: NAME }`"))
            }
            (Verb::Run { .. }, None) if parse == Some(Parse::Lines) => {
                Some(spot.error(codes::UNKNOWN_FIELD, format!("{whole} is a list of lines, and has no fields")))
            }
            (Verb::Merge(_) | Verb::Run { .. } | Verb::Select(_) | Verb::Workflow { .. } | Verb::Loop(_) | Verb::Approve(_), None) => None,
        }
    }

    /// Says why a path cannot be in the items of a step, where these are one whole part of an output that has a schema.
    fn item_error(&self, step: usize, path: &[&str], spot: &Spot) -> Option<Diagnostic> {
        let Value::String(items) = &self.known.workflow.steps[step].for_each.as_ref()?.items.value else { return None };
        let inner = items.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
        let readings = prompts::check(items).ok()?;
        let [whole] = readings.as_slice() else { return None };
        let parts: Vec<&str> = whole.path.iter().map(String::as_str).collect();
        let ["steps", id, "output", list @ ..] = parts.as_slice() else { return None };
        let output = self.known.workflow.steps[*self.known.index.get(id)?].output.as_ref()?;
        let name = output.schema.as_ref()?;
        if items.get(whole.span.clone()) != Some(inner) || path.is_empty() {
            return None;
        }
        let prefix = list.len() + 1;
        let path: Vec<String> = list.iter().chain([&ENTRY]).chain(path).map(|part| (*part).to_owned()).collect();
        let Field::Unknown { part, known } = field(self.known.schemas.get(&name.value)?, &path) else { return None };
        let part = part.checked_sub(prefix).map(|_| &path[part])?;
        let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("the items have no field `{part}`"));
        let error = error.also(name.span, format!("their schema is a part of `{}`", name.value));
        Some(error.suggest(part, known.iter().map(String::as_str), "fields"))
    }

    fn wait(&mut self, reader: usize, target: usize, source: Arc<Source>, span: Span) {
        if !self.known.edges.needs[reader].contains(&target) {
            self.waits.push(Wait { reader, target, source, span });
        }
    }

    /// Returns what was found, with what is read before it has ended where there is an order to judge that by.
    pub(super) fn finish(mut self, order: Option<&[usize]>) -> Findings<'a> {
        if let Some(order) = order {
            self.check_waits(order);
        }
        self.found
    }

    /// Reports what is read before it has ended. `order` is a topological order.
    fn check_waits(&mut self, order: &[usize]) {
        let forward = self.waits.iter().map(|wait| Question { target: wait.target, at: vec![wait.reader] });
        let backward = self.waits.iter().map(|wait| Question { target: wait.reader, at: vec![wait.target] });
        let answers = answers(&self.known.edges.needs, order, &forward.chain(backward).collect::<Vec<_>>());
        let (waited, waits_for_reader) = answers.split_at(self.waits.len());
        for ((wait, waited), backward) in self.waits.iter().zip(waited).zip(waits_for_reader) {
            if *waited {
                continue;
            }
            let steps = &self.known.workflow.steps;
            let (reader, target) = (&steps[wait.reader], &steps[wait.target].id.value);
            let message = format!("`{}` reads `{target}`, which it does not wait for", reader.id.value);
            let error = Diagnostic::error(codes::NOT_WAITED_FOR, &wait.source, wait.span, message);
            let needs: Vec<&str> = reader.needs.iter().map(|need| need.step.as_str()).chain([target.as_str()]).collect();
            let error = match (needs.len(), *backward) {
                (_, true) => error.help(format!("`{target}` itself waits for `{}`: turn one of them round", reader.id.value)),
                (1, false) => error.help(format!("add `needs: [{target}]` to `{}`", reader.id.value)),
                (_, false) => error.help(format!("add `{target}` to the `needs` of `{}`: `[{}]`", reader.id.value, needs.join(", "))),
            };
            let in_file = wait.source == *self.found.source;
            let error = if in_file && !backward { Diagnostic { fix: Some(reader.need(&wait.source, target)), ..error } } else { error };
            self.found.report(if in_file { error.also(reader.id.span, "this step") } else { error });
        }
    }
}

/// The place of one reading.
struct Spot {
    source: Arc<Source>,
    span: Span,
}

struct Reads<'a> {
    spot: &'a Spot,
    sight: Sight<'a>,
}

impl Spot {
    fn error(&self, code: &'static str, message: String) -> Diagnostic {
        Diagnostic::error(code, &self.source, self.span, message)
    }

    fn unknown_part<'n>(&self, whole: &str, part: &str, known: impl Iterator<Item = &'n str> + Clone) -> Diagnostic {
        self.error(codes::UNKNOWN_FIELD, format!("{whole} has no `{part}`")).suggest(part, known, "parts")
    }
}

/// Returns whether a part of a command reads one value, and `| sh` after it is all that is wanted there.
fn quotable(text: &str, part: &Range<usize>) -> bool {
    let path = text[part.clone()].trim().chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
    let quoted = format!("{} | sh{}", &text[..part.end], &text[part.end..]);
    path && prompts::check_shell(&quoted).err().is_none_or(|next| next.span.start > part.end)
}

/// Checks one template as it is used.
fn check(text: &str, used: Use) -> Result<Vec<Reading>, (&'static str, TemplateError)> {
    let parsed = |result: Result<Vec<Reading>, TemplateError>| result.map_err(|error| (codes::TEMPLATE, error));
    match used {
        Use::Text => parsed(prompts::check(text)),
        Use::Shell => {
            parsed(prompts::check(text))?;
            prompts::check_shell(text).map_err(|error| (codes::UNQUOTED, error))
        }
        Use::Condition => parsed(prompts::check_condition(text)),
        Use::Value => {
            let readings = parsed(prompts::check(text))?;
            let whole = text.trim().starts_with("{{") && prompts::check_condition(text).is_ok();
            let error = || TemplateError {
                message: "this must be one whole expression".to_owned(),
                span: 0..text.len(),
                help: Some("write `\"{{ expression }}\"` and nothing around it: then its value keeps its type".to_owned()),
            };
            if whole { Ok(readings) } else { Err((codes::NOT_AN_EXPRESSION, error())) }
        }
    }
}
