//! Workflows that call each other: each is compiled once, with its own schemas, agents and models.
use super::{
    Catalog, Plan,
    compile::compile,
    findings::{Findings, WORKFLOW},
};
use crate::{
    source::{Diagnostics, Source, Spanned, codes},
    workflow::{Step, Workflow},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How deep calls may nest.
const MAX_DEPTH: usize = 32;

/// What has been compiled so far, and what is being compiled.
pub(super) struct Calls<'a> {
    pub(super) catalog: &'a Catalog,
    /// By name; nothing for one that is wrong.
    compiled: BTreeMap<String, Option<Arc<Plan>>>,
    /// Who calls whom, the outermost first.
    chain: Vec<(String, Arc<Source>)>,
    /// Every alias of a model that any of them declares.
    pub(super) aliases: BTreeSet<String>,
}

impl<'a> Calls<'a> {
    /// Begins with the workflow that is run.
    pub(super) fn new(workflow: &Workflow, catalog: &'a Catalog) -> Calls<'a> {
        Calls { catalog, compiled: BTreeMap::new(), chain: vec![(workflow.name.value.clone(), workflow.source.clone())], aliases: BTreeSet::new() }
    }

    /// Compiles the workflow of a name, or returns what came of it before. What is wrong with it is reported here.
    pub(super) fn plan(&mut self, name: &Spanned<String>, findings: &mut Findings<'_>) -> Option<Arc<Plan>> {
        let Some(file) = self.catalog.workflows.get(&name.value) else {
            findings.unknown(&WORKFLOW, name, self.catalog.workflows.keys().map(String::as_str));
            return None;
        };
        if let Some(from) = self.chain.iter().position(|(_, source)| *source == file.source) {
            let names: Vec<String> = self.chain[from..].iter().map(|(name, _)| format!("`{name}`")).chain([format!("`{}`", name.value)]).collect();
            let message = match names.as_slice() {
                [_, _] => format!("the workflow `{}` calls itself", name.value),
                _ => format!("workflows call each other without end: {}", names.join(" → ")),
            };
            let error = findings.error(codes::RECURSION, name.span, message);
            findings.report(error.label("leads back to where it came from").help("what must run again is a `loop`"));
            return None;
        }
        if self.chain.len() > MAX_DEPTH {
            findings.report(findings.error(codes::RECURSION, name.span, format!("calls nest deeper than {MAX_DEPTH} workflows")));
            return None;
        }
        if !self.compiled.contains_key(&name.value) {
            self.chain.push((name.value.clone(), file.source.clone()));
            let plan = self.compile(&file.source, file.trusted);
            self.chain.pop();
            let plan = plan.map(Arc::new).map_err(|errors| findings.add(errors)).ok();
            self.compiled.insert(name.value.clone(), plan);
        }
        let plan = self.compiled[&name.value].clone();
        if plan.is_none() {
            findings.report(findings.error(codes::BROKEN_WORKFLOW, name.span, format!("the workflow `{}` has errors of its own", name.value)));
        }
        plan
    }

    fn compile(&mut self, source: &Arc<Source>, trusted: bool) -> Result<Plan, Diagnostics> {
        let mut workflow = Workflow::read(source)?;
        workflow.defaults.lay_under(&self.catalog.defaults);
        if !trusted {
            workflow.distrust();
        }
        compile(&workflow, self).map(|(plan, _)| plan)
    }
}

/// Holds the inputs of a call against those that the workflow declares.
pub(super) fn check_with(step: &Step, with: &[(Spanned<String>, Spanned<Value>)], plan: &Plan, findings: &mut Findings<'_>) {
    let name = &plan.name;
    for (given, value) in with {
        let Some((_, input)) = plan.inputs.iter().find(|(known, _)| *known == given.value) else {
            let error = findings.error(codes::BAD_CALL, given.span, format!("the workflow `{name}` takes no input `{}`", given.value));
            let known = plan.inputs.iter().map(|(known, _)| known.as_str());
            findings.report(error.help("it takes none at all").suggest(&given.value, known, "inputs"));
            continue;
        };
        let Some(known) = literal(&value.value) else { continue };
        // A declaration that is not sound has been told where it stands.
        let Ok(validator) = jsonschema::validator_for(&input.schema) else { continue };
        if let Err(error) = validator.validate(&known) {
            findings.report(findings.error(codes::BAD_CALL, value.span, format!("this does not fit the input `{}` of `{name}`: {error}", given.value)));
        }
    }
    let missing = plan.inputs.iter().filter(|_| !findings.flaws.of_step(&step.id));
    for (missing, _) in missing.filter(|(known, input)| input.required && !with.iter().any(|(given, _)| given.value == *known)) {
        let error = findings.error(codes::BAD_CALL, step.id.span, format!("the workflow `{name}` needs the input `{missing}`"));
        findings.report(error.help(format!("add `with: {{ {missing}: … }}`")));
    }
}

/// Returns what is given where no template has a part in it.
fn literal(value: &Value) -> Option<Value> {
    fn templated(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains("{{") || text.contains("{%"),
            Value::Array(values) => values.iter().any(templated),
            Value::Object(fields) => fields.values().any(templated),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    (!templated(value)).then(|| value.clone())
}
