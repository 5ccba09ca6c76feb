//! `if` of a handler: one permission rule that a call must meet for the hook to be asked.
//!
//! A hook is rather run too often than too rarely: where it cannot be told whether the rule is met, it is.
use super::rules::{self, List, Permissions, Rule, RuleContext, RuleVerdict};
use serde_json::Value;
use std::path::Path;

/// A compiled `if`.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// The rule; absent where it cannot be read, which is always met.
    rule: Option<Rule>,
}

impl Condition {
    /// Reads the rule; `dir` is the folder that `/x` is relative to.
    pub(super) fn parse(text: &str, dir: &Path, warnings: &mut Vec<String>) -> Condition {
        Condition { rule: Rule::parse(text, List::Deny, dir, warnings) }
    }

    /// Returns whether a call meets the rule.
    pub(super) fn holds(&self, tool: &str, input: &Value, cx: &RuleContext<'_>) -> bool {
        let Some(rule) = &self.rule else { return true };
        if super::names::current(tool) == "Bash" {
            return rules::fires(rule, input, cx);
        }
        matches!(Permissions::denying(rule).judge(tool, input, cx), RuleVerdict::Deny { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(rule: &str, tool: &str, input: &Value) -> bool {
        let root = Path::new("/no/such/p");
        Condition::parse(rule, root, &mut Vec::new()).holds(tool, input, &RuleContext { cwd: root, root, home: None, writable: &[] })
    }

    #[test]
    fn a_hook_is_asked_where_the_rule_is_met_or_may_be() {
        let bash = |rule: &str, command: &str| holds(rule, "Bash", &json!({"command": command}));
        assert!(bash("Bash(git push *)", "X=1 git push origin"));
        assert!(bash("Bash(git push *)", "echo a && $(git push)"));
        assert!(bash("Bash(git push *)", "git $(echo status)"));
        assert!(bash("Bash(git push *)", "case x in"));
        assert!(!bash("Bash(git push *)", "git status"));
        assert!(!bash("Bash(rm *)", "echo $X"));
        assert!(!bash("Edit(*.rs)", "git status"));
        assert!(holds("Edit(*.rs)", "Write", &json!({"file_path": "/no/such/p/a/b.rs"})));
        assert!(!holds("Edit(*.rs)", "Write", &json!({"file_path": "/no/such/p/a/b.py"})));
        assert!(!holds("Bash(git push *)", "Edit", &json!({"file_path": "a"})));
        assert!(holds("(", "Edit", &json!({})));
    }
}
