//! Where steps say that they start from: a branch, tag or commit that is not there is told before anything is begun.
use super::{Project, SetupError};
use crate::{
    plan::Plan,
    prompts::{self, Scope},
    workflow::Base,
};
use serde_json::{Map, Value};

impl Project {
    /// Sees that every `base` names a commit, as far as it is known before the run.
    ///
    /// # Errors
    /// The first that names none.
    pub fn check_bases(&self, plan: &Plan, inputs: &Map<String, Value>) -> Result<(), SetupError> {
        let scope = Scope::new().with("inputs", Value::Object(inputs.clone()));
        for inner in plan.all() {
            for step in inner.steps() {
                let Base::Ref(name) = &step.workspace.base else { continue };
                // Inputs of a workflow that is called are not known yet.
                let is_known = |readings: &[prompts::Reading]| {
                    readings.iter().all(|reading| std::ptr::eq(inner, plan) && reading.path.first().is_some_and(|root| root == "inputs"))
                };
                if !prompts::check(name).is_ok_and(|readings| is_known(&readings)) {
                    continue;
                }
                let Ok(name) = prompts::render(name, &scope) else { continue };
                self.repo.resolve(&name).map_err(|source| SetupError::Base { step: step.id.clone(), name, source })?;
            }
        }
        Ok(())
    }
}
