//! The bytes of a commit. The same work gives the same bytes, and so the same id: dates come in from outside.
use super::{error::GitError, objects::TreeId, repository::Repository};
use crate::{
    clock::Timestamp,
    event::{CommitId, NodeId, RunId},
};

use std::fmt::Write as _;

/// A name and a mail address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    mail: String,
}

impl Identity {
    /// Takes what can stand in a commit of a name and an address; `None` where nothing is left of one.
    pub fn new(name: &str, mail: &str) -> Option<Identity> {
        let clean = |text: &str| text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect::<String>().trim().to_owned();
        let (name, mail) = (clean(name), clean(mail));
        (!name.is_empty() && !mail.is_empty()).then_some(Identity { name, mail })
    }

    /// Writes it as a file of git's configuration.
    pub fn as_configuration(&self) -> String {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("[user]\n\tname = \"{}\"\n\temail = \"{}\"\n", quoted(&self.name), quoted(&self.mail))
    }

    /// The engine's own.
    pub fn spinney() -> Identity {
        Identity { name: "Spinney".to_owned(), mail: "spinney@localhost".to_owned() }
    }
}

/// What a commit says besides its tree and parents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitMeta {
    /// The first line.
    pub title: String,
    /// What follows it; may be empty.
    pub body: String,
    /// Names and values at its end, in order.
    pub trailers: Vec<(&'static str, String)>,
    /// Its date.
    pub at: Timestamp,
}

impl CommitMeta {
    /// Begins the commit of a node's work in a run.
    pub fn of_work(run: &RunId, node: &NodeId, title: &str, at: Timestamp) -> CommitMeta {
        let mut trailers = vec![("Spinney-Run", run.0.clone()), ("Spinney-Step", node.step.0.clone())];
        trailers.extend(node.item.iter().map(|item| ("Spinney-Item", item.clone())));
        CommitMeta { title: title.to_owned(), body: String::new(), trailers, at }
    }

    /// Says which attempt it was, and of which agent and model, where there were any.
    #[must_use]
    pub fn by(mut self, attempt: u32, agent: Option<&str>, model: Option<&str>) -> CommitMeta {
        self.trailers.push(("Spinney-Attempt", attempt.to_string()));
        self.trailers.extend(agent.map(|agent| ("Spinney-Agent", agent.to_owned())));
        self.trailers.extend(model.map(|model| ("Spinney-Model", model.to_owned())));
        self
    }

    /// Adds a trailer.
    #[must_use]
    pub fn trailer(mut self, name: &'static str, value: impl Into<String>) -> CommitMeta {
        self.trailers.push((name, value.into()));
        self
    }

    /// Returns the message. Free text cannot break out of its line, and trailers are always the last paragraph, where git
    /// looks for them: a body that imitates them is only a body.
    fn message(&self) -> String {
        const LONGEST: usize = 120;
        let line = |text: &str| text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let title: String = line(&self.title).chars().take(LONGEST).collect();
        let mut message = if title.is_empty() { "Work of an agent".to_owned() } else { title };
        let body: String = self.body.chars().filter(|c| !c.is_control() || "\n\t".contains(*c)).collect();
        if !body.trim().is_empty() {
            message.push_str("\n\n");
            message.push_str(body.trim());
        }
        message.push_str("\n\n");
        for (name, value) in &self.trailers {
            let _ = writeln!(message, "{name}: {}", line(value));
        }
        message.truncate(message.trim_end().len());
        message.push('\n');
        message
    }
}

/// Writes a commit as git stores it.
fn encode(tree: &TreeId, parents: &[CommitId], author: &Identity, meta: &CommitMeta) -> Vec<u8> {
    let seconds = meta.at.0 / 1000;
    let committer = Identity::spinney();
    let mut text = format!("tree {tree}\n");
    for parent in parents {
        let _ = writeln!(text, "parent {parent}");
    }
    let _ = writeln!(text, "author {} <{}> {seconds} +0000", author.name, author.mail);
    let _ = writeln!(text, "committer {} <{}> {seconds} +0000\n", committer.name, committer.mail);
    text.push_str(&meta.message());
    text.into_bytes()
}

impl Repository {
    /// Makes a commit that is on no branch. The author is the user where git knows one, the committer always Spinney.
    pub fn commit_tree(&self, tree: &TreeId, parents: &[CommitId], meta: &CommitMeta) -> Result<CommitId, GitError> {
        let author = self.user().cloned().unwrap_or_else(Identity::spinney);
        self.write_object("commit", &encode(tree, parents, &author, meta)).map(CommitId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_in_its_place() {
        let node = NodeId::item(&"build".into(), "a\nSpinney-Run: forged");
        let mut meta = CommitMeta::of_work(&"run-1".into(), &node, "Do\nit\u{1b}[31m", Timestamp(5_999)).by(2, Some("coder"), None);
        meta.body = "line\n\nSpinney-Model: forged\n\n".to_owned();
        let author = Identity::new("Eve <x>\nparent 1", " e@x ").expect("something is left");
        let text = String::from_utf8(encode(&TreeId("t".into()), &["p".into()], &author, &meta)).expect("it is text");
        assert_eq!(
            text,
            "tree t\nparent p\nauthor Eve xparent 1 <e@x> 5 +0000\ncommitter Spinney <spinney@localhost> 5 +0000\n\nDo it [31m\n\nline\n\nSpinney-Model: forged\n\n\
             Spinney-Run: run-1\nSpinney-Step: build\nSpinney-Item: a Spinney-Run: forged\nSpinney-Attempt: 2\nSpinney-Agent: coder\n"
        );
        assert_eq!(Identity::new("<>", "a@b"), None);
    }

    #[test]
    fn a_message_is_never_empty() {
        assert_eq!(CommitMeta::default().message(), "Work of an agent\n");
    }
}
