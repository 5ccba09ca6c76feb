//! Tool names that changed: hooks and rules written for an old name hold for the new one.

/// Old name and present name.
const ALIASES: &[(&str, &str)] = &[
    ("Brief", "SendUserMessage"),
    ("KillBash", "TaskStop"),
    ("KillShell", "TaskStop"),
    ("ListMcpResources", "ListMcpResourcesTool"),
    ("ListPeers", "ListAgents"),
    ("ProposeGoal", "SetGoal"),
    ("ReadMcpResource", "ReadMcpResourceTool"),
    ("ReadMcpResourceDir", "ReadMcpResourceDirTool"),
    ("Task", "Agent"),
];

/// The tools that hooks and rules in the wild are written for, present and former names, sorted.
pub(super) const KNOWN: &[&str] = &[
    "Agent",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "Brief",
    "Edit",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillBash",
    "KillShell",
    "LS",
    "ListAgents",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "ListPeers",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "ProposeGoal",
    "Read",
    "ReadMcpResource",
    "ReadMcpResourceDir",
    "ReadMcpResourceDirTool",
    "ReadMcpResourceTool",
    "SendMessage",
    "SendUserMessage",
    "SetGoal",
    "Skill",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];

/// Returns the present name of a tool.
pub(super) fn current(name: &str) -> &str {
    ALIASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// Returns every name a tool goes by, the given one first.
pub(super) fn spellings(name: &str) -> impl Iterator<Item = &str> {
    std::iter::once(name).chain(ALIASES.iter().filter(move |(_, new)| *new == name).map(|(old, _)| *old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_lead_to_new_ones_and_back() {
        assert_eq!(current("Task"), "Agent");
        assert_eq!(current("Bash"), "Bash");
        assert_eq!(spellings("TaskStop").collect::<Vec<_>>(), ["TaskStop", "KillBash", "KillShell"]);
        assert!(KNOWN.is_sorted());
        assert!(ALIASES.iter().all(|(old, new)| KNOWN.contains(old) && KNOWN.contains(new)));
    }
}
