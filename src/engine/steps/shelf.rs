//! The skills an agent may open, for its Skill tool.
use crate::{
    library,
    skills::{Invocation, Shelf},
    tools::SkillSource,
};
use std::{path::PathBuf, sync::Arc};

/// The part of the shelf that one agent sees.
pub(super) struct OpenShelf {
    pub(super) shelf: Arc<Shelf>,
    pub(super) names: Vec<String>,
    pub(super) run: String,
    pub(super) project: PathBuf,
}

impl SkillSource for OpenShelf {
    fn open(&self, name: &str, args: &str) -> Option<String> {
        let skill = self.shelf.get(name).filter(|skill| self.names.contains(&skill.name))?;
        let files = skill.dir.as_deref().map(library::files).unwrap_or_default();
        let invocation =
            Invocation { session: &self.run, effort: skill.effort.as_deref().unwrap_or_default(), dir: skill.dir.as_deref(), project: Some(&self.project) };
        Some(skill.open(args, &invocation, &files))
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }
}
