//! Names of models, resolved: aliases of the workflow, overrides of this run, `provider/model`.
use super::{
    Alias, AliasSaid, Catalog, ModelSpec, NamedBy,
    findings::{ALIAS, Findings, PROVIDER},
    matrix::rendered,
};
use crate::{
    source::{Spanned, codes, nearest},
    workflow::{ModelAlias, Step, Workflow},
};
use std::collections::{BTreeMap, BTreeSet};

/// Checks overrides against the aliases of all workflows of a run and of the configuration.
pub(super) fn check_overrides(workflow: &Workflow, catalog: &Catalog, aliases: &BTreeSet<String>, findings: &mut Findings<'_>) {
    for (name, choice) in catalog.model_overrides.iter().filter(|(name, _)| !aliases.contains(*name) && !catalog.aliases.contains_key(*name)) {
        if workflow.flaws.within("models") {
            return;
        }
        let at = workflow.models.first().map_or(workflow.name.span, |(name, _)| name.span);
        let unknown = findings.error(codes::UNKNOWN_MODEL, at, format!("`--model {name}={choice}` names an alias that this workflow does not have"));
        let near = nearest(name, aliases.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
        findings.report(unknown.help(near.unwrap_or_else(|| "aliases stand under `models`".to_owned())));
    }
}

/// Every alias of a workflow, checked.
pub(super) struct Models<'a> {
    catalog: &'a Catalog,
    aliases: BTreeMap<&'a str, (&'a ModelAlias, AliasSaid)>,
}

impl<'a> Models<'a> {
    /// Checks all aliases.
    pub(super) fn new(workflow: &'a Workflow, catalog: &'a Catalog, findings: &mut Findings<'_>) -> Models<'a> {
        let configured = catalog.aliases.iter().map(|(name, (alias, file))| (name.as_str(), (alias, AliasSaid::Configuration(file.clone()))));
        let own = workflow.models.iter().map(|(name, alias)| (name.as_str(), (alias, AliasSaid::Workflow)));
        let models = Models { catalog, aliases: configured.chain(own).collect() };
        for (name, alias) in &workflow.models {
            match catalog.model_overrides.get(&name.value) {
                Some(choice) => models.check_choice(&Spanned::new(choice.clone(), name.span), findings),
                None => alias.choices.iter().for_each(|choice| models.check_choice(choice, findings)),
            }
        }
        models
    }

    /// Returns what each alias stands for.
    pub(super) fn aliases(&self) -> BTreeMap<String, ModelSpec> {
        self.aliases.keys().filter_map(|name| Some(((*name).to_owned(), self.alias(name)?))).collect()
    }

    fn alias(&self, name: &str) -> Option<ModelSpec> {
        let (alias, said) = self.aliases.get(name)?;
        let (choices, said) = match self.catalog.model_overrides.get(name) {
            Some(choice) => (vec![self.catalog.other_names.own(choice)], AliasSaid::Override),
            None => (alias.choices.iter().map(|choice| self.catalog.other_names.own(choice)).collect(), said.clone()),
        };
        let (effort, max_output_tokens) = (alias.effort.clone(), alias.max_output_tokens);
        Some(ModelSpec { choices, effort, max_output_tokens, named: NamedBy::default(), alias: Some(Alias { name: name.to_owned(), said }) })
    }

    /// Resolves an alias or a `provider/model`; what is wrong is reported at its place.
    pub(super) fn resolve(&self, name: &Spanned<String>, named: NamedBy, findings: &mut Findings<'_>) -> Option<ModelSpec> {
        if let Some(alias) = self.alias(name) {
            return Some(ModelSpec { named, ..alias });
        }
        if !name.value.contains('/') {
            findings.unknown(&ALIAS, name, self.aliases.keys().copied());
            return None;
        }
        self.check_choice(name, findings);
        Some(ModelSpec { choices: vec![self.catalog.other_names.own(name)], named, ..ModelSpec::default() })
    }

    /// Checks a model that a template chooses, as far as its matrix tells which there can be.
    pub(super) fn resolve_template(&self, name: &Spanned<String>, step: &Step, findings: &mut Findings<'_>) -> ModelSpec {
        for choice in rendered(name, step).unwrap_or_default() {
            // Where the whole name is a value of the matrix, it is told there.
            let mut axes = step.matrix.iter().flat_map(|matrix| &matrix.axes);
            let place = axes.find_map(|(_, values)| findings.source.find(values.span, &choice)).unwrap_or(name.span);
            self.resolve(&Spanned::new(choice, place), NamedBy::Step, findings);
        }
        ModelSpec { choices: vec![name.value.clone()], named: NamedBy::Step, ..ModelSpec::default() }
    }

    fn check_choice(&self, choice: &Spanned<String>, findings: &mut Findings<'_>) {
        match choice.value.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                if !self.catalog.providers.contains(provider) {
                    let name = Spanned::new(provider.to_owned(), choice.span);
                    findings.unknown(&PROVIDER, &name, self.catalog.providers.iter().map(String::as_str));
                }
            }
            _ => {
                let bad = findings.error(codes::UNKNOWN_MODEL, choice.span, format!("`{}` does not say whose model it is", choice.value));
                findings.report(bad.help("write `provider/model`"));
            }
        }
    }
}
