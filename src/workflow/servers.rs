//! `mcp_servers`: programs that lend agents tools, as they are written.
use super::{
    fields::Fields,
    keys::{Key, Name, Object, Shape, TEXTS, key, must},
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
    /// The longest that one call may take.
    pub timeout: Duration,
    /// The longest until it has told its tools.
    pub start_timeout: Duration,
}

pub(super) const SERVERS: Shape = Shape::Map { names: Name::Step, of: &Shape::Object(&SERVER), min: 0 };

static SERVER: Object = Object {
    name: "server",
    what: "a server of tools",
    keys: &[
        must("command", Shape::Text, "The program: a name that is looked for on `PATH`, or a path from where the agent stands."),
        key("args", TEXTS, "Its arguments."),
        key("timeout", Shape::Duration { zero: false }, "The longest that one call may take; absent: two minutes."),
        key("start_timeout", Shape::Duration { zero: false }, "The longest until it has told its tools; absent: 30 s."),
        later("env"),
        later("url"),
        later("headers"),
    ],
    others: None,
};

const fn later(name: &'static str) -> Key {
    Key { name, shape: Shape::Later, required: false, doc: "", instead: None }
}

/// Reads the key `mcp_servers`.
pub(super) fn servers(fields: &Fields<'_>) -> Vec<(Spanned<String>, Server)> {
    let one = |(name, node)| {
        let said = Fields::new(fields.source, node, &SERVER);
        let (command, args) = (said.text("command"), said.texts("args"));
        let duration = |key, otherwise| said.duration(key).map_or(otherwise, |duration| duration.value);
        let (timeout, start_timeout) = (duration("timeout", TIMEOUT), duration("start_timeout", START_TIMEOUT));
        Some((Spanned::clone(name), Server { command: command?, args, timeout, start_timeout }))
    };
    fields.map("mcp_servers").filter_map(one).collect()
}
