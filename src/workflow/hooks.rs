//! Hooks in a workflow file: by name, and written out in place as they stand in a hook file.
use super::{
    fields::{Fields, text},
    keys::{Key, Name, Object, Shape, key, must, word},
    types::{Step, Verb, Workflow},
    yaml::Yaml,
};
use crate::source::Spanned;
use serde_json::Value;

/// `hooks:`.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// By name.
    pub named: Vec<Spanned<String>>,
    /// Written out: events to groups of handlers, as in a hook file.
    pub written: Vec<Spanned<Value>>,
}

impl Hooks {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.written.is_empty()
    }
}

impl Workflow {
    /// Returns the hooks that stand in it, wherever they do.
    pub fn written_hooks(&self) -> impl Iterator<Item = &Spanned<Value>> {
        fn of_steps<'a>(steps: &'a [Step], found: &mut Vec<&'a Hooks>) {
            for step in steps {
                found.push(&step.hooks);
                if let Verb::Loop(body) = &step.verb {
                    of_steps(&body.steps, found);
                }
            }
        }
        let mut found: Vec<&Hooks> = std::iter::once(&self.hooks).chain(self.agents.iter().map(|(_, agent)| &agent.hooks)).collect();
        for steps in [&self.steps, &self.on_failure, &self.finally] {
            of_steps(steps, &mut found);
        }
        found.into_iter().flat_map(|hooks| &hooks.written)
    }
}

/// Reads the key `hooks`: names, hooks written out, or a list of both.
pub(super) fn hooks(fields: &Fields<'_>) -> Hooks {
    let Some(node) = fields.node("hooks") else { return Hooks::default() };
    let nodes = if let Yaml::List(nodes) = &node.value { nodes.as_slice() } else { std::slice::from_ref(node) };
    let mut hooks = Hooks::default();
    for node in nodes {
        match &node.value {
            Yaml::Map(_) => hooks.written.push(Spanned::new(node.value.to_json(), node.span)),
            _ => hooks.named.extend(text(fields.source, node)),
        }
    }
    hooks
}

/// The value of `hooks`.
pub(super) const HOOKS: Shape = Shape::Either(&[Shape::List { of: &Shape::Either(&[Shape::Object(&EVENTS), Shape::Text]), min: 0 }, Shape::Object(&EVENTS)]);

static A_GROUP: Shape = Shape::Object(&GROUP);

const fn event(name: &'static str, doc: &'static str) -> Key {
    key(name, Shape::List { of: &A_GROUP, min: 0 }, doc)
}

const fn never(name: &'static str) -> Key {
    Key { name, shape: Shape::Later, required: false, doc: "", instead: None }
}

static EVENTS: Object = Object {
    name: "hooks",
    what: "a set of hooks",
    keys: &[
        event("PreToolUse", "Before a call: it may be refused, asked about or rewritten."),
        event("PostToolUse", "After a call."),
        event("PostToolUseFailure", "After a call that failed."),
        event("Stop", "When an agent wants to end."),
        event("SubagentStop", "When a sub-agent wants to end."),
        event("Notification", "When a person is asked something."),
        never("PermissionRequest"),
        never("PermissionDenied"),
        never("PostToolBatch"),
        never("UserPromptSubmit"),
        never("UserPromptExpansion"),
        never("SessionStart"),
        never("Setup"),
        never("SessionEnd"),
        never("SubagentStart"),
        never("StopFailure"),
        never("TaskCreated"),
        never("TaskCompleted"),
        never("TeammateIdle"),
        never("PreCompact"),
        never("PostCompact"),
        never("WorktreeCreate"),
        never("WorktreeRemove"),
        never("InstructionsLoaded"),
        never("ConfigChange"),
        never("CwdChanged"),
        never("FileChanged"),
        never("DirectoryAdded"),
        never("Elicitation"),
        never("ElicitationResult"),
        never("MessageDisplay"),
        never("PreModelSwitch"),
        never("PostModelSwitch"),
        never("PreSkillShellCommand"),
    ],
    others: None,
};

static GROUP: Object = Object {
    name: "hook_group",
    what: "a group of hooks",
    keys: &[
        key("matcher", Shape::Text, "The tools it is for: a name, names with `|` between them, or a regular expression; absent: all."),
        must("hooks", Shape::List { of: &Shape::Object(&HANDLER), min: 1 }, "What is asked, side by side."),
        key("description", Shape::Text, "For people."),
    ],
    others: None,
};

static HANDLER: Object = Object {
    name: "hook",
    what: "a hook",
    keys: &[
        must("type", word(&["command", "http"]), "What it is."),
        key("command", Shape::Text, "The shell command, or with `args` the program."),
        key("args", Shape::List { of: &Shape::Text, min: 0 }, "The program's arguments: no shell reads them."),
        key("shell", word(&["bash"]), "The shell."),
        key("url", Shape::Text, "Where the question is sent."),
        key("headers", Shape::Map { names: Name::Free, of: &Shape::Text, min: 0 }, "Headers of the request; `$NAME` is a variable."),
        key("allowedEnvVars", Shape::List { of: &Shape::Name(Name::Variable), min: 0 }, "The variables that headers may hold."),
        key("if", Shape::Text, "A permission rule that the call must match."),
        key("timeout", Shape::Amount, "Seconds."),
        key("onFailure", word(&["block", "continue"]), "What it means that the hook itself fails; absent: `block`."),
        key("onBlock", word(&["keep", "rollback"]), "Whether a block after a call takes back what the call did."),
        key("async", Shape::Flag, "Whether its answer decides nothing."),
        key("asyncRewake", Shape::Flag, "As `async`."),
        key("once", Shape::Flag, "Without effect here."),
        key("statusMessage", Shape::Text, "For screens."),
    ],
    others: None,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::On;

    #[test]
    fn every_event_of_the_protocol_is_in_the_table_and_those_that_happen_take_hooks() {
        for on in On::ALL {
            let known = EVENTS.key(on.name()).unwrap_or_else(|| panic!("`{}` is missing", on.name()));
            assert_eq!(!matches!(known.shape, Shape::Later), on.is_asked(), "{}", on.name());
        }
        assert_eq!(EVENTS.keys.len(), On::ALL.len());
    }
}
