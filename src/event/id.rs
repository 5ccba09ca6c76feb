//! Names of runs, steps, nodes, commits and blobs.
use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    cmp::Ordering,
    fmt,
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

macro_rules! text_id {
    ($(#[$doc:meta] $name:ident;)*) => {$(
        #[$doc]
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.to_owned())
            }
        }
    )*};
}

text_id! {
    /// A run: `<workflow>-<six letters or digits>`; also a part of ref names and folder names.
    RunId;
    /// A step, as its author wrote it: `[a-z][a-z0-9_-]*`.
    StepId;
    /// A commit, in hexadecimal.
    CommitId;
    /// A blob in the run's store: the SHA-256 of its content, in hexadecimal.
    BlobId;
}

impl BlobId {
    /// Names a content.
    pub fn of(content: &[u8]) -> BlobId {
        BlobId(hex(&Sha256::digest(content)))
    }
}

/// A file as an agent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Relative to the workspace, or absolute elsewhere.
    pub path: String,
    /// The name that its content would have as a blob; it need not be kept.
    pub content: BlobId,
}

/// Writes bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a node stands inside of: one iteration of a loop, or one call of another workflow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The step that opened it.
    pub step: StepId,
    /// The key of that step's item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The attempt that opened it, from 1.
    pub attempt: u32,
    /// The iteration, from 1.
    pub round: u32,
}

/// A node of a run: a step, one item of its `for_each`, or a helper session inside either (a resolver in a merge, a
/// sub-agent that an agent started).
///
/// It stands in every record and every map of a run, so that a copy shares its text, and its hash is worked out once. One
/// that a fold has made also remembers the seat that it has there, by which its state is found without any search.
#[derive(Clone, Deserialize)]
#[serde(from = "NodeName")]
pub struct NodeId(Arc<Hashed>);

struct Hashed {
    name: NodeName,
    hash: u64,
    seat: usize,
}

/// The seat of a name that has none.
const NOWHERE: usize = usize::MAX;

/// What a node is called, part by part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeName {
    /// What it stands inside of, the outermost first; nothing for a step of the run's own workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Frame>,
    /// The step.
    pub step: StepId,
    /// The key of an item, free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The name of a helper session, `[a-z0-9-]+`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<String>,
}

impl From<NodeName> for NodeId {
    fn from(name: NodeName) -> NodeId {
        NodeId::seated(name, NOWHERE)
    }
}

impl Deref for NodeId {
    type Target = NodeName;

    fn deref(&self) -> &NodeName {
        &self.0.name
    }
}

impl Serialize for NodeId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl PartialEq for NodeId {
    fn eq(&self, other: &NodeId) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.name == other.0.name)
    }
}

impl Eq for NodeId {}

impl Hash for NodeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &NodeId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NodeId {
    fn cmp(&self, other: &NodeId) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.name.cmp(&other.0.name) }
    }
}

impl NodeId {
    /// Names a step itself.
    pub fn step(step: &StepId) -> NodeId {
        NodeId::inside(&[], step)
    }

    /// Names an item of a step.
    pub fn item(step: &StepId, key: &str) -> NodeId {
        NodeId::step(step).with_item(key)
    }

    /// Makes a name that remembers its seat.
    pub(crate) fn seated(name: NodeName, seat: usize) -> NodeId {
        let hash = FixedState::default().hash_one(&name);
        NodeId(Arc::new(Hashed { name, hash, seat }))
    }

    /// Returns the seat that this name, or the one it was copied from, was made for; another name's elsewhere.
    pub(crate) fn seat(&self) -> usize {
        self.0.seat
    }

    /// Returns whether one is a copy of the other.
    pub(crate) fn is_copy_of(&self, other: &NodeId) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Names a step inside of something.
    pub fn inside(within: &[Frame], step: &StepId) -> NodeId {
        NodeName { within: within.to_vec(), step: step.clone(), item: None, helper: None }.into()
    }

    /// Names another step beside this node.
    #[must_use]
    pub fn beside(&self, step: &StepId) -> NodeId {
        NodeId::inside(&self.within, step)
    }

    /// Names an item of this node's step.
    #[must_use]
    pub fn with_item(&self, key: &str) -> NodeId {
        NodeName { within: self.within.clone(), step: self.step.clone(), item: Some(key.to_owned()), helper: None }.into()
    }

    /// Returns the step of this node: itself without item and helper.
    #[must_use]
    pub fn whole(&self) -> NodeId {
        if self.item.is_none() && self.helper.is_none() { self.clone() } else { NodeId::inside(&self.within, &self.step) }
    }

    /// Returns what the nodes of one of this node's rounds stand inside of.
    pub fn frame(&self, attempt: u32, round: u32) -> Vec<Frame> {
        let own = Frame { step: self.step.clone(), item: self.item.clone(), attempt, round };
        self.within.iter().cloned().chain([own]).collect()
    }

    /// Returns the node that opened what this one stands inside of.
    pub fn opener(&self) -> Option<NodeId> {
        let (last, outer) = self.within.split_last()?;
        Some(NodeName { within: outer.to_vec(), step: last.step.clone(), item: last.item.clone(), helper: None }.into())
    }

    /// Returns whether this node stands inside of something that `owner` opened, however deep.
    pub fn is_inside(&self, owner: &NodeId) -> bool {
        let outer = owner.within.len();
        self.within.len() > outer && self.within[..outer] == owner.within[..] && self.within[outer].step == owner.step && self.within[outer].item == owner.item
    }

    /// Names a helper session of this node.
    #[must_use]
    pub fn helper(&self, name: &str) -> NodeId {
        NodeName { helper: Some(name.to_owned()), ..(**self).clone() }.into()
    }

    /// Returns this node without its helper: the node that owns the work.
    #[must_use]
    pub fn owner(&self) -> NodeId {
        if self.helper.is_none() { self.clone() } else { NodeName { helper: None, ..(**self).clone() }.into() }
    }

    /// Returns a name for folders and refs: `[a-z0-9._-]`, distinct for distinct nodes, at most 80 bytes.
    pub fn slug(&self) -> String {
        let plain = |text: &str| {
            !text.is_empty()
                && text.len() <= 24
                && !text.starts_with(['.', '-'])
                && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        let mut slug = self.step.0.chars().take(24).collect::<String>();
        if !self.within.is_empty() {
            // What it stands inside of is told apart by its hash: a path of any depth fits.
            let outer = self.within.iter().map(Frame::to_string).collect::<String>();
            slug.push_str(&format!("_{}", &BlobId::of(outer.as_bytes()).0[..10]));
        }
        if let Some(key) = &self.item {
            slug.push('.');
            if plain(key) {
                slug.push_str(key);
            } else {
                let kept: String = key.chars().filter(char::is_ascii_alphanumeric).take(12).collect::<String>().to_ascii_lowercase();
                slug.push_str(&format!("{kept}_{}", &BlobId::of(key.as_bytes()).0[..10]));
            }
        }
        if let Some(helper) = &self.helper {
            slug.push_str("..");
            if helper.len() <= 24 {
                slug.push_str(helper);
            } else {
                slug.push_str(&format!("{}_{}", helper.chars().take(12).collect::<String>(), &BlobId::of(helper.as_bytes()).0[..10]));
            }
        }
        // Git refuses `..` in ref names; a single underscore pair stands for it.
        slug.replace("..", "__")
    }
}

impl From<&StepId> for NodeId {
    fn from(step: &StepId) -> NodeId {
        NodeId::step(step)
    }
}

impl fmt::Display for Frame {
    /// Writes `step#round.` or `step/item#round.`; attempts after the first stand as `@attempt` before the round.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        if let Some(item) = &self.item {
            write!(f, "/{item}")?;
        }
        if self.attempt > 1 {
            write!(f, "@{}", self.attempt)?;
        }
        write!(f, "#{}.", self.round)
    }
}

impl fmt::Display for NodeId {
    /// Writes `step`, `step/item` or `step/item:helper`, after what it stands inside of: `loop#2.step`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.within.iter().try_for_each(|frame| write!(f, "{frame}"))?;
        write!(f, "{}", self.step)?;
        if let Some(item) = &self.item {
            write!(f, "/{item}")?;
        }
        if let Some(helper) = &self.helper {
            write!(f, ":{helper}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_fit_for_refs_and_distinct() {
        let step = StepId::from("build");
        let slugs: Vec<String> =
            ["auth", "src/a.rs", "src/A.rs", "a..b", ".git", "é", "", "con flict~^:"].iter().map(|key| NodeId::item(&step, key).slug()).collect();
        let distinct: std::collections::BTreeSet<_> = slugs.iter().collect();
        assert_eq!(distinct.len(), slugs.len(), "{slugs:?}");
        for slug in &slugs {
            assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b)), "{slug}");
            assert!(!slug.contains("..") && !slug.ends_with('.'), "{slug}");
        }
        assert_eq!(NodeId::item(&step, "auth").slug(), "build.auth");
        assert_eq!(NodeId::step(&step).helper("resolver-1").slug(), "build__resolver-1");
        let deep = |name: &str| NodeId::step(&step).helper(name).slug();
        assert_ne!(deep("agent-10-12-11-10-12-11"), deep("agent-10-12-11-10-12-12"));
        assert_ne!(deep("agent-10-12-11-10-12-11-1"), deep("agent-10-12-11-10-12-11-2"));
        let owner = NodeId::item(&StepId::from("polish"), "a b");
        let inner = |round| NodeId::inside(&owner.frame(1, round), &step);
        assert_ne!(inner(1).slug(), inner(2).slug());
        assert_eq!(inner(2).to_string(), "polish/a b#2.build");
        assert_eq!(inner(2).opener(), Some(owner.clone()));
        assert!(inner(2).is_inside(&owner) && !owner.is_inside(&owner) && !inner(1).is_inside(&NodeId::step(&step)));
    }
}
