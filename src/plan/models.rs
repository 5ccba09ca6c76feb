//! Names of models, resolved: aliases of the workflow, overrides of this run, `provider/model`.
use super::{
    Alias, AliasSaid, Catalog, ModelSpec, NamedBy,
    findings::{ALIAS, Findings, PROVIDER},
};
use crate::{
    source::{Spanned, codes, nearest},
    workflow::{ModelAlias, Workflow},
};
use std::collections::BTreeMap;

/// Every alias of a workflow, checked.
pub(super) struct Models<'a> {
    catalog: &'a Catalog,
    aliases: BTreeMap<&'a str, (&'a ModelAlias, AliasSaid)>,
}

impl<'a> Models<'a> {
    /// Checks all aliases, and the overrides against them.
    pub(super) fn new(workflow: &'a Workflow, catalog: &'a Catalog, findings: &mut Findings<'_>) -> Models<'a> {
        let configured = catalog.aliases.iter().map(|(name, (alias, file))| (name.as_str(), (alias, AliasSaid::Configuration(file.clone()))));
        let own = workflow.models.iter().map(|(name, alias)| (name.as_str(), (alias, AliasSaid::Workflow)));
        let models = Models { catalog, aliases: configured.chain(own).collect() };
        for (name, alias) in &workflow.models {
            if !catalog.model_overrides.contains_key(&name.value) {
                alias.choices.iter().for_each(|choice| models.check_choice(choice, findings));
            }
        }
        for (name, choice) in &catalog.model_overrides {
            let at = workflow.models.first().map_or(workflow.name.span, |(name, _)| name.span);
            if models.aliases.contains_key(name.as_str()) {
                models.check_choice(&Spanned::new(choice.clone(), at), findings);
            } else {
                let unknown = findings.error(codes::UNKNOWN_MODEL, at, format!("`--model {name}={choice}` names an alias that this workflow does not have"));
                let help = nearest(name, models.aliases.keys().copied())
                    .map_or_else(|| "aliases stand under `models`".to_owned(), |near| format!("did you mean `{near}`?"));
                findings.report(unknown.help(help));
            }
        }
        models
    }

    /// Resolves an alias or a `provider/model`; what is wrong is reported at its place.
    pub(super) fn resolve(&self, name: &Spanned<String>, named: NamedBy, findings: &mut Findings<'_>) -> Option<ModelSpec> {
        if let Some((alias, said)) = self.aliases.get(name.as_str()) {
            let (choices, said) = match self.catalog.model_overrides.get(&name.value) {
                Some(choice) => (vec![choice.clone()], AliasSaid::Override),
                None => (alias.choices.iter().map(|choice| choice.value.clone()).collect(), said.clone()),
            };
            let (effort, max_output_tokens) = (alias.effort.clone(), alias.max_output_tokens);
            return Some(ModelSpec { choices, effort, max_output_tokens, named, alias: Some(Alias { name: name.value.clone(), said }) });
        }
        if name.value.contains("{{") {
            let message = "a template as `model` is part of the language but not of this version";
            findings.report(findings.error(codes::LATER, name.span, message));
            return None;
        }
        if !name.value.contains('/') {
            findings.unknown(&ALIAS, name, self.aliases.keys().copied());
            return None;
        }
        self.check_choice(name, findings);
        Some(ModelSpec { choices: vec![name.value.clone()], named, ..ModelSpec::default() })
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
