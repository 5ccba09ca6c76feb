//! What templates read, worked out once: a run makes nothing for them that they do not look at.
use super::{PlannedStep, Work};
use crate::{
    event::StepId,
    prompts::{self, Reading, TemplateError},
    workflow::{self, Base, Workspace},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What the templates of a step, the `until` of a loop or the outputs of a workflow read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// The names at the beginning of all that is read: `inputs`, `steps`, that of an item.
    pub names: BTreeSet<String>,
    /// The steps whose results are read.
    pub steps: BTreeSet<StepId>,
    /// The inputs that are read by their name.
    pub inputs: BTreeSet<String>,
    /// Whether the inputs are read as a whole.
    pub all_inputs: bool,
}

impl Reads {
    /// Returns what the templates of a step read, its condition and those of its agents among them.
    pub(super) fn of_step(step: &PlannedStep) -> Reads {
        let mut reads = Reads::default();
        if let Some(condition) = &step.condition {
            reads.add(prompts::check_condition(&condition.value));
        }
        each_text(step, &mut |text| reads.add(prompts::check(text)));
        reads
    }

    /// Returns what a condition reads.
    pub(super) fn of_condition(text: &str) -> Reads {
        let mut reads = Reads::default();
        reads.add(prompts::check_condition(text));
        reads
    }

    /// Returns what some templates read.
    pub(super) fn of_texts<'t>(texts: impl Iterator<Item = &'t str>) -> Reads {
        let mut reads = Reads::default();
        texts.for_each(|text| reads.add(prompts::check(text)));
        reads
    }

    /// What cannot be read as a template reads nothing: whoever judges the workflow has said so.
    fn add(&mut self, read: Result<Vec<Reading>, TemplateError>) {
        for reading in read.unwrap_or_default().into_iter().filter(Reading::is_own) {
            let mut path = reading.path.into_iter();
            let Some(name) = path.next() else { continue };
            if name == "steps" {
                self.steps.extend(path.next().map(StepId));
            } else if name == "inputs" {
                match path.next() {
                    Some(input) => drop(self.inputs.insert(input)),
                    None => self.all_inputs = true,
                }
            }
            self.names.insert(name);
        }
    }
}

fn each_text(step: &PlannedStep, read: &mut dyn FnMut(&str)) {
    match &step.work {
        Work::Agent { prompt, .. } => read(&prompt.value),
        Work::Run { command } => read(&command.value),
        Work::Merge(merge) => merge.verify.iter().for_each(|text| read(&text.value)),
        Work::Workflow(call) => call.with.iter().for_each(|(_, value)| each_string(&value.value, read)),
        Work::Select(select) => select.gates.iter().chain(select.judge.iter().flat_map(|judge| &judge.rubric)).for_each(|text| read(&text.value)),
        Work::Approve(approve) => read(&approve.message.value),
        // What the body reads, its own nodes read; `until` is read by the end of an iteration.
        Work::Loop(_) => {}
    }
    for agent in step.agents() {
        agent.model.choices.iter().chain(&agent.skills).for_each(|text| read(text));
        agent.cwd.iter().for_each(|text| read(&text.value));
    }
    let Workspace { setup, copy, link, sparse, base, .. } = &step.workspace;
    let base = if let Base::Ref(name) = base { Some(name) } else { None };
    let paths = setup.iter().chain(copy).chain(link).chain(sparse).chain(base);
    let cached = step.cache.iter().flat_map(|cache| cache.key.iter().chain(&cache.inputs));
    let verified = step.verify.iter().flat_map(|verify| &verify.run);
    paths.chain(cached).chain(verified).chain(&step.cwd).chain(&step.file).for_each(|text| read(&text.value));
    // That of the workspace is a part of it.
    step.env.iter().for_each(|(_, text)| read(&text.value));
    match step.scope.as_ref().map(|scope| &scope.value) {
        Some(workflow::Scope::Globs(globs)) => globs.iter().for_each(|glob| read(&glob.value)),
        Some(workflow::Scope::Template(text)) => read(text),
        None => {}
    }
    if let Some(matrix) = &step.matrix {
        matrix.axes.iter().map(|(_, axis)| axis).chain(&matrix.max_parallel).for_each(|value| each_string(&value.value, read));
        matrix.exclude.iter().for_each(|excluded| each_string(&excluded.value, read));
    }
    if let Some(for_each) = &step.for_each {
        // The entries of a literal list are no templates.
        [Some(&for_each.items), for_each.max_parallel.as_ref()].into_iter().flatten().filter_map(|value| value.value.as_str()).for_each(&mut *read);
        for_each.key.iter().chain(&for_each.needs).for_each(|text| read(&text.value));
    }
}

fn each_string(value: &Value, read: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => read(text),
        Value::Array(values) => values.iter().for_each(|value| each_string(value, read)),
        Value::Object(fields) => fields.values().for_each(|value| each_string(value, read)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
