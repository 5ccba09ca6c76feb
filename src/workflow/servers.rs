//! `mcp_servers`: programs that lend agents tools, as they are written.
use super::{
    fields::Fields,
    keys::{Key, Name, Object, Shape, TEMPLATES, TEXTS, key, must},
    types::{Entries, Workflow},
    yaml::Yaml,
};
use crate::source::Spanned;
use std::time::Duration;

/// How long a call of a server's tool may take where nothing is said.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How long a server may take to tell its tools where nothing is said.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One of `mcp_servers`.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// The program.
    pub command: Spanned<String>,
    /// Its arguments.
    pub args: Vec<Spanned<String>>,
    /// Environment variables besides those of the agent's commands: templates, which read secrets.
    pub env: Entries<Spanned<String>>,
    /// The longest that one call may take.
    pub timeout: Duration,
    /// The longest until it has told its tools.
    pub start_timeout: Duration,
}

/// What an agent says of servers.
#[derive(Debug, Clone, PartialEq)]
pub enum Chosen {
    /// It has those of these names and no others.
    Only(Vec<Spanned<String>>),
    /// It has these besides those of the file; one of a name that both have hides the file's.
    More(Entries<Server>),
}

impl Workflow {
    /// Returns the servers that stand in it, each with the agent whose it is where it is one's own.
    pub fn written_servers(&self) -> impl Iterator<Item = (Option<&str>, &Spanned<String>, &Server)> {
        let own = self.agents.iter().filter_map(|(agent, said)| match &said.servers {
            Some(Chosen::More(servers)) => Some((agent.as_str(), servers)),
            Some(Chosen::Only(_)) | None => None,
        });
        let own = own.flat_map(|(agent, servers)| servers.iter().map(move |(name, server)| (Some(agent), name, server)));
        self.servers.iter().map(|(name, server)| (None, name, server)).chain(own)
    }
}

pub(super) const SERVERS: Shape = Shape::Map { names: Name::Step, of: &Shape::Object(&SERVER), min: 0 };
/// What stands on an agent.
pub(super) const CHOSEN: Shape = Shape::Either(&[TEXTS, SERVERS]);

static SERVER: Object = Object {
    name: "server",
    what: "a server of tools",
    keys: &[
        must("command", Shape::Text, "The program: a name that is looked for on `PATH`, or a path from where the agent stands."),
        key("args", TEXTS, "Its arguments."),
        key("env", TEMPLATES, "Environment variables besides those of the agent's commands; `secrets.NAME` in one reads a secret."),
        key("timeout", Shape::Duration { zero: false }, "The longest that one call may take; absent: two minutes."),
        key("start_timeout", Shape::Duration { zero: false }, "The longest until it has told its tools; absent: 30 s."),
        later("url"),
        later("headers"),
    ],
    others: None,
};

const fn later(name: &'static str) -> Key {
    Key { name, shape: Shape::Later, required: false, doc: "", instead: None }
}

/// Reads the key `mcp_servers`.
pub(super) fn servers(fields: &Fields<'_>) -> Entries<Server> {
    let one = |(name, node)| {
        let said = Fields::new(fields.source, node, &SERVER);
        let (command, args, env) = (said.text("command"), said.texts("args"), said.templates("env"));
        let duration = |key, otherwise| said.duration(key).map_or(otherwise, |duration| duration.value);
        let (timeout, start_timeout) = (duration("timeout", TIMEOUT), duration("start_timeout", START_TIMEOUT));
        Some((Spanned::clone(name), Server { command: command?, args, env, timeout, start_timeout }))
    };
    fields.map("mcp_servers").filter_map(one).collect()
}

/// Reads what an agent says of servers.
pub(super) fn chosen(fields: &Fields<'_>) -> Option<Chosen> {
    Some(match &fields.node("mcp_servers")?.value {
        Yaml::List(_) => Chosen::Only(fields.texts("mcp_servers")),
        _ => Chosen::More(servers(fields)),
    })
}
