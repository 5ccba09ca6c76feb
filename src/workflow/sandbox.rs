//! `sandbox` of an agent: what its commands reach besides its workspace, as it is written.
use super::{
    fields::Fields,
    keys::{Object, Shape, TEXTS, key, word},
    words::Word as _,
};
use crate::source::Spanned;

/// `sandbox:` of an agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSandbox {
    /// The network of its commands.
    pub network: Network,
    /// Folders and files that they may read.
    pub read: Vec<Spanned<String>>,
    /// Folders and files that they may write.
    pub write: Vec<Spanned<String>>,
    /// What must hold them; absent: all of it.
    pub require: Option<Require>,
    /// Whether it was to open something, and whoever wrote it is not trusted.
    pub is_shut: bool,
}

/// The network of an agent's commands.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// None but one of their own.
    #[default]
    None,
    /// These hosts, as they are written.
    Only(Vec<Spanned<String>>),
    /// The machine's.
    Full,
}

/// What must hold the commands of an agent for a run to begin; the more the later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Require {
    /// Nothing: where there are no walls they are asked about.
    #[default]
    None,
    /// At least what they write.
    Landlock,
    /// All of it.
    Full,
}

/// The words for a network.
const NETWORKS: &[&str] = &["none", "full"];

pub(super) static SANDBOX: Object = Object {
    name: "sandbox",
    what: "the sandbox of an agent",
    keys: &[
        key(
            "network",
            Shape::Either(&[Shape::List { of: &Shape::Text, min: 1 }, word(NETWORKS)]),
            "The network of its commands: none, all that the machine has, or the hosts that they may reach: `pypi.org`, `*.pypi.org`, `pypi.org:8080`.",
        ),
        key("read", TEXTS, "Folders and files that its commands and tools may read besides: absolute, or from `~/`."),
        key("write", TEXTS, "Folders and files that its commands may write besides: absolute, or from `~/`."),
        key("require", word(Require::WORDS), "What must hold its commands, or no run begins; absent: all of it."),
    ],
    others: None,
};

/// Reads the key `sandbox`.
pub(super) fn sandbox(fields: &Fields<'_>) -> Option<Spanned<AgentSandbox>> {
    let said = fields.object("sandbox", &SANDBOX)?;
    let sandbox = AgentSandbox {
        network: network(&said),
        read: said.texts("read"),
        write: said.texts("write"),
        require: said.word("require").map(|word| word.value),
        is_shut: false,
    };
    Some(Spanned::new(sandbox, said.span))
}

fn network(said: &Fields<'_>) -> Network {
    match said.one_of("network", &[("none", false), ("full", true)]) {
        Some(word) if word.value => Network::Full,
        Some(_) => Network::None,
        None => Some(said.texts("network")).filter(|hosts| !hosts.is_empty()).map_or(Network::None, Network::Only),
    }
}

impl AgentSandbox {
    /// Lists what it opens, for whoever is to trust it.
    pub fn opens(&self) -> Vec<String> {
        let network = match &self.network {
            Network::None => None,
            Network::Only(hosts) => Some(format!("of the network {}", hosts.iter().map(|host| host.value.as_str()).collect::<Vec<_>>().join(", "))),
            Network::Full => Some("the network".to_owned()),
        };
        let read = self.read.iter().map(|path| format!("{} to read", path.value));
        network.into_iter().chain(read).chain(self.write.iter().map(|path| format!("{} to write", path.value))).collect()
    }

    /// Takes out what it opens; what it demands stays.
    pub(super) fn shut(&mut self) {
        if !self.opens().is_empty() {
            *self = AgentSandbox { require: self.require, is_shut: true, ..AgentSandbox::default() };
        }
    }
}
