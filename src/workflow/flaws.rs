//! What of a file could not be read. The rest of it is judged all the same, but for what hangs on that.
use super::{
    keys::STEP,
    yaml::{Entry, Node, Yaml},
};
use crate::source::{Diagnostics, Span, Spanned, nearest};
use std::collections::{BTreeSet, HashSet};

/// The errors of a file's form, and where they leave something unknown.
#[derive(Debug, Clone, Default)]
pub struct Flaws {
    /// All of them, in the order of the file, where there are any.
    pub errors: Option<Diagnostics>,
    /// Keys of the file below which something is not read that may have had any name.
    keys: BTreeSet<String>,
    /// Entries of those maps, by key and name, of which something is not read.
    entries: BTreeSet<(String, String)>,
    /// Where the ids of such steps stand.
    steps: HashSet<Span>,
    /// Those among them of which it is not known what they wait for, or whether they write.
    placeless: HashSet<Span>,
}

/// Keys of a step that say nothing of what it waits for, when it begins and whether it writes.
const INNER: [&str; 13] = ["timeout", "idle_timeout", "retry", "budget", "cache", "env", "skills", "hooks", "model", "effort", "cwd", "prompt", "mcp_servers"];

impl Flaws {
    /// Finds what the errors leave unknown in a file with these keys.
    pub(super) fn new(root: &Node, known: &[&'static str], errors: Diagnostics) -> Flaws {
        let mut places: Vec<usize> = errors.found.iter().filter_map(|error| Some(error.labels.first()?.span.start)).collect();
        places.sort_unstable();
        let mut flaws = Flaws { errors: Some(errors), ..Flaws::default() };
        let places = Places(places);
        let Yaml::Map(entries) = &root.value else { return flaws };
        for Entry { key, value } in entries {
            if !known.contains(&key.value.as_str()) {
                flaws.keys.extend(nearest(key, known.iter().copied()).map(str::to_owned));
                continue;
            }
            if ["steps", "on_failure", "finally"].contains(&key.value.as_str()) {
                flaws.of_steps(value, &places);
            }
            let Yaml::Map(inner) = &value.value else {
                flaws.keys.extend((places.are_at(key.span) || places.are_in(value)).then(|| key.value.clone()));
                continue;
            };
            let broken = inner.iter().filter(|entry| places.are_at(entry.key.span) || places.are_in(&entry.value));
            flaws.entries.extend(broken.map(|entry| (key.value.clone(), entry.key.value.clone())));
        }
        flaws
    }

    /// Notes the steps of a map of steps in which something is not read, those of bodies by themselves.
    fn of_steps(&mut self, steps: &Node, places: &Places) {
        let Yaml::Map(steps) = &steps.value else { return };
        for Entry { key, value } in steps {
            let mut broken = places.are_at(key.span);
            let mut placeless = broken;
            if let Yaml::Map(entries) = &value.value {
                for entry in entries {
                    if entry.key.value == "steps" && matches!(entry.value.value, Yaml::Map(_)) {
                        self.of_steps(&entry.value, places);
                        broken |= places.are_at(entry.key.span);
                        placeless |= broken;
                    } else if places.are_at(entry.key.span) || places.are_in(&entry.value) {
                        broken = true;
                        placeless |= !nearest(&entry.key, STEP.keys.iter().map(|key| key.name)).is_some_and(|key| INNER.contains(&key));
                    }
                }
            } else {
                broken |= places.are_in(value);
                placeless |= broken;
            }
            self.steps.extend(broken.then_some(key.span));
            self.placeless.extend(placeless.then_some(key.span));
        }
    }

    /// Returns whether names may be missing below a key of the file.
    pub fn of(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Returns whether something of one entry below a key of the file is not read.
    pub fn of_entry(&self, key: &str, name: &str) -> bool {
        self.entries.contains(&(key.to_owned(), name.to_owned()))
    }

    /// Returns whether anything below a key of the file is not read.
    pub fn within(&self, key: &str) -> bool {
        self.of(key) || self.entries.iter().any(|(known, _)| known == key)
    }

    /// Returns whether what is not read of a step may be what it waits for, or whether it writes.
    pub fn hides_place(&self, id: &Spanned<String>) -> bool {
        self.placeless.contains(&id.span)
    }

    /// Returns whether something of the step with this id is not read.
    pub fn of_step(&self, id: &Spanned<String>) -> bool {
        self.steps.contains(&id.span)
    }
}

/// Where errors stand, sorted.
struct Places(Vec<usize>);

impl Places {
    fn are_at(&self, span: Span) -> bool {
        let first = self.0.partition_point(|place| *place < span.start);
        self.0.get(first).is_some_and(|place| *place < span.end.max(span.start + 1))
    }

    fn are_in(&self, node: &Node) -> bool {
        match &node.value {
            Yaml::Map(entries) => self.are_at(node.span) || entries.iter().any(|entry| self.are_at(entry.key.span) || self.are_in(&entry.value)),
            Yaml::List(nodes) => self.are_at(node.span) || nodes.iter().any(|node| self.are_in(node)),
            Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::Text(_) => self.are_at(node.span),
        }
    }
}
