//! What a merge came to.
use crate::event::{CommitId, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What was joined and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The joined commit; `None` where nothing was joined.
    pub commit: Option<CommitId>,
    /// The sources it holds, in their order.
    pub landed: Vec<NodeId>,
    /// The sources put aside, each with the reason.
    pub ejected: Vec<(NodeId, String)>,
    /// The conflicts that were settled: source, paths, who settled them.
    pub conflicts: Vec<(NodeId, Vec<String>, String)>,
    /// Whether checks ran on the commit and passed.
    pub verified: bool,
}

impl Report {
    /// Returns the output of a merge step as templates see it: `commit`, `landed`, `ejected`, `conflicts`, `report`.
    pub fn output(&self) -> Value {
        let landed: Vec<String> = self.landed.iter().map(ToString::to_string).collect();
        let ejected: Vec<Value> = self.ejected.iter().map(|(from, reason)| json!({ "from": from.to_string(), "reason": reason })).collect();
        let conflicts: Vec<Value> = self.conflicts.iter().map(|(from, paths, by)| json!({ "from": from.to_string(), "paths": paths, "by": by })).collect();
        json!({ "commit": self.commit, "landed": landed, "ejected": ejected, "conflicts": conflicts, "report": self.text() })
    }

    /// Returns it in words, one fact a line.
    pub fn text(&self) -> String {
        let mut lines = vec![match &self.commit {
            Some(commit) => format!("{} joined as {commit}{}", count(self.landed.len()), if self.verified { ", verified" } else { "" }),
            None => "nothing was joined".to_owned(),
        }];
        lines.extend(self.landed.iter().map(|node| format!("joined {node}")));
        lines.extend(self.conflicts.iter().map(|(from, paths, by)| format!("conflict of {from} in {} settled by {by}", paths.join(", "))));
        lines.extend(self.ejected.iter().map(|(from, reason)| format!("put aside {from}: {reason}")));
        lines.join("\n")
    }
}

fn count(sources: usize) -> String {
    if sources == 1 { "1 source".to_owned() } else { format!("{sources} sources") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_data_and_words() {
        let node = |key: &str| NodeId::item(&"build".into(), key);
        let report = Report {
            commit: Some("c0".into()),
            landed: vec![node("a")],
            ejected: vec![(node("b"), "it conflicts".to_owned())],
            conflicts: vec![(node("a"), vec!["x".to_owned()], "resolver".to_owned())],
            verified: true,
        };
        assert_eq!(
            report.output(),
            json!({
                "commit": "c0",
                "landed": ["build/a"],
                "ejected": [{ "from": "build/b", "reason": "it conflicts" }],
                "conflicts": [{ "from": "build/a", "paths": ["x"], "by": "resolver" }],
                "report": "1 source joined as c0, verified\njoined build/a\nconflict of build/a in x settled by resolver\nput aside build/b: it conflicts",
            })
        );
        assert_eq!(Report::default().text(), "nothing was joined");
    }
}
