//! `mcp_servers`: servers that lend agents tools, as they are written.
use super::{
    fields::Fields,
    keys::{Name, Object, Shape, TEMPLATES, TEXTS, key},
    types::{Entries, Workflow},
    yaml::Yaml,
};
use crate::source::{Diagnostic, Found, Spanned, codes};
use std::time::Duration;

/// How long a call of a server's tool may take where nothing is said.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How long a server may take to tell its tools where nothing is said.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One of `mcp_servers`.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// How it is reached.
    pub reach: Reach,
    /// The longest that one call may take.
    pub timeout: Duration,
    /// The longest until it has told its tools.
    pub start_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// A program is started.
    Program {
        /// The program.
        command: Spanned<String>,
        /// Its arguments.
        args: Vec<Spanned<String>>,
        /// Environment variables besides those of the agent's commands: templates, which read secrets.
        env: Entries<Spanned<String>>,
    },
    /// It is at an address.
    Address {
        /// Where.
        url: Spanned<String>,
        /// What each request says besides: templates, which read secrets.
        headers: Entries<Spanned<String>>,
    },
}

impl Server {
    /// Returns its templates, which read secrets.
    pub fn given(&self) -> &Entries<Spanned<String>> {
        match &self.reach {
            Reach::Program { env: given, .. } | Reach::Address { headers: given, .. } => given,
        }
    }

    /// Says what a server does to reach it, in one line.
    pub fn line(&self) -> String {
        match &self.reach {
            Reach::Program { command, args, .. } => {
                let args: String = args.iter().map(|arg| format!(" {}", arg.value)).collect();
                format!("{}{args}", command.value)
            }
            Reach::Address { url, .. } => format!("at {}", url.value),
        }
    }
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
        key("command", Shape::Text, "The program: a name that is looked for on `PATH`, or a path from where the agent stands."),
        key("args", TEXTS, "Its arguments."),
        key("env", TEMPLATES, "Environment variables besides those of the agent's commands; `secrets.NAME` in one reads a secret."),
        key("timeout", Shape::Duration { zero: false }, "The longest that one call may take; absent: two minutes."),
        key("start_timeout", Shape::Duration { zero: false }, "The longest until it has told its tools; absent: 30 s."),
        key("url", Shape::Text, "In the place of `command`: where it is, by `http` or `https`."),
        key("headers", HEADERS, "What each request to `url` says besides; `secrets.NAME` in one reads a secret."),
    ],
    others: None,
};

/// Names of headers to templates.
const HEADERS: Shape = Shape::Map { names: Name::Free, of: &Shape::Text, min: 0 };

/// Reads the key `mcp_servers`.
pub(super) fn servers(fields: &Fields<'_>, found: &mut Found) -> Entries<Server> {
    fields.map("mcp_servers").filter_map(|(name, node)| Some((name.clone(), server(name, &Fields::new(fields.source, node, &SERVER), found)?))).collect()
}

fn server(name: &Spanned<String>, said: &Fields<'_>, found: &mut Found) -> Option<Server> {
    let program = (said.text("command"), said.texts("args"), said.templates("env"));
    let address = (said.text("url"), said.templates("headers"));
    let duration = |key, otherwise| said.duration(key).map_or(otherwise, |duration| duration.value);
    let (timeout, start_timeout) = (duration("timeout", TIMEOUT), duration("start_timeout", START_TIMEOUT));
    let keys: &[&'static str] = if said.entry("url").is_some() { &["command", "args", "env"] } else { &["headers"] };
    for key in keys {
        if let Some(entry) = said.entry(key) {
            let (is, other) =
                if *key == "headers" { ("a program", "it has `env`") } else { ("at a `url`", "it has `headers`, or `command` in the place of `url`") };
            let message = format!("a server that is {is} has no key `{key}`");
            found.report(Diagnostic::error(codes::UNKNOWN_KEY, said.source, entry.key.span, message).label("unknown key").help(other));
        }
    }
    let reach = match (program, address) {
        (_, (Some(url), headers)) => Reach::Address { url, headers },
        ((Some(command), args, env), _) => Reach::Program { command, args, env },
        ((None, ..), (None, _)) => {
            if said.entry("command").or(said.entry("url")).is_none() {
                let message = "a server of tools needs the key `command` or `url`";
                found.report(
                    Diagnostic::error(codes::MISSING_KEY, said.source, name.span, message)
                        .help("`command` is a program that is started, `url` where a server is"),
                );
            }
            return None;
        }
    };
    if let Reach::Address { url, .. } = &reach
        && !["http://", "https://"].iter().any(|scheme| url.value.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
    {
        found.report(Diagnostic::error(codes::UNKNOWN_WORD, said.source, url.span, "a server is reached by `http://` or `https://`"));
    }
    Some(Server { reach, timeout, start_timeout })
}

/// Reads what an agent says of servers.
pub(super) fn chosen(fields: &Fields<'_>, found: &mut Found) -> Option<Chosen> {
    Some(match &fields.node("mcp_servers")?.value {
        Yaml::List(_) => Chosen::Only(fields.texts("mcp_servers")),
        _ => Chosen::More(servers(fields, found)),
    })
}
