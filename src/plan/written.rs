//! Hooks that stand in a workflow file: each gets a name, by which agents, pins and records know it as they know those of files.
use super::{catalog::Catalog, findings::Findings, frames::Frames};
use crate::{
    source::{Span, Spanned, codes},
    workflow::{Hooks, Workflow},
};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Hooks that stand in a workflow file.
#[derive(Debug, Clone)]
pub struct WrittenHooks {
    /// The workflow and the place in it: `feature/agents.coder.hooks`.
    pub name: String,
    /// Events to groups of handlers.
    pub events: Value,
    /// Whether they may run.
    pub trusted: bool,
}

/// All that stand in one file.
pub(super) struct Written {
    pub(super) all: Vec<WrittenHooks>,
    names: HashMap<Span, String>,
}

impl Written {
    /// Gathers and names them, and tells what of them will not do what it says.
    pub(super) fn of(workflow: &Workflow, frames: &Frames<'_>, catalog: &Catalog, findings: &mut Findings<'_>) -> Written {
        let agents = workflow.agents.iter().map(|(name, agent)| (format!("agents.{}.", name.value), &agent.hooks));
        let steps = frames.steps().map(|(_, step)| (format!("steps.{}.", step.id.value), &step.hooks));
        let (mut written, mut taken) = (Written { all: Vec::new(), names: HashMap::new() }, HashSet::new());
        for (owner, hooks) in std::iter::once((String::new(), &workflow.hooks)).chain(agents).chain(steps) {
            for events in &hooks.written {
                let plain = format!("{}/{owner}hooks", workflow.name.value);
                let numbered = (2..).map(|number| format!("{plain}.{number}"));
                // Steps of different bodies may be named alike.
                let name = std::iter::once(plain.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
                taken.insert(name.clone());
                written.add(name, events, workflow, (catalog, findings));
            }
        }
        written
    }

    fn add(&mut self, name: String, events: &Spanned<Value>, workflow: &Workflow, (catalog, findings): (&Catalog, &mut Findings<'_>)) {
        for odd in (catalog.hook_lint.0)(&events.value) {
            findings.report(findings.warning(codes::ODD_HOOK, events.span, odd));
        }
        self.names.insert(events.span, name.clone());
        self.all.push(WrittenHooks { name, events: events.value.clone(), trusted: workflow.trusted });
    }

    /// Returns what hooks are known by: those that are named, then those that are written out.
    pub(super) fn names(&self, hooks: &Hooks) -> Vec<String> {
        let named = hooks.named.iter().map(|name| name.value.clone());
        named.chain(hooks.written.iter().filter_map(|written| self.names.get(&written.span).cloned())).collect()
    }
}
