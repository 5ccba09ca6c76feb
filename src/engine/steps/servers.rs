//! The servers of a session: started where its agent works, before it is asked anything, and ended with it.
use super::{place::with_secrets, rendered};
use crate::{
    agent::{Equipment, Session, Trouble},
    event::{Brief, Failure, FailureKind},
    http::{Client, HttpRequest},
    mcp::{Launch, Offer, Reach},
    plan::{ServerReach, ServerSpec},
    prompts::Scope,
    sandbox::{Program, Request},
    tools::{Host, Served, ToolContext},
    workflow::Access,
};
use std::{sync::Arc, time::Duration};

/// Bytes of a server's standard error that are kept.
const OUTPUT_CAP: usize = 16 << 10;
/// No server runs longer; its session ends before.
const LONGEST: Duration = Duration::from_hours(24 * 7);

/// The servers that a session was lent.
pub(super) struct Lent(Vec<Arc<Host>>);

impl Lent {
    /// Ends them; what they hold of the workspace is free then.
    pub(super) async fn end(self) {
        for host in self.0 {
            host.end().await;
        }
    }
}

/// Starts the servers of a session and gives it their tools: those that its agent may use, and of an agent that reads those that read.
pub(super) async fn lend_servers(brief: &mut Brief, equipment: &mut Equipment, session: &mut Session) -> Result<Lent, Trouble> {
    let mut lent = Lent(Vec::new());
    let spec = session.spec.clone();
    let wanted: Vec<&String> = spec.tools.iter().filter(|tool| tool.starts_with("mcp__")).collect();
    let is_of = |server: &str, tool: &str| tool.strip_prefix("mcp__").and_then(|rest| rest.strip_prefix(server)).is_some_and(|rest| rest.starts_with("__"));
    let mut own = (*spec).clone();
    own.tools.retain(|tool| !tool.starts_with("mcp__"));
    let mut toolbox = (*equipment.toolbox).clone();
    for (name, server) in spec.servers.iter().filter(|(name, _)| wanted.iter().any(|tool| is_of(name, tool))) {
        let host = match begun(name, server, equipment, session).await {
            Ok(host) => host,
            Err(failed) => {
                lent.end().await;
                return Err(failed);
            }
        };
        let all = ServerSpec::all_of(name);
        let may = |offer: &Offer| {
            let is_wanted = wanted.iter().any(|tool| **tool == all || **tool == offer.spec.name);
            is_wanted && (offer.only_reads || spec.access == Access::Write) && !spec.rules.deny.contains(&offer.spec.name)
        };
        for offer in host.offers().await.into_iter().filter(may) {
            own.tools.push(offer.spec.name.clone());
            brief.tools.push(offer.spec.clone());
            toolbox = toolbox.with(Arc::new(Served::new(host.clone(), offer)));
        }
        lent.0.push(host);
    }
    own.tools.sort();
    brief.tools.sort_by(|a, b| a.name.cmp(&b.name));
    equipment.toolbox = Arc::new(toolbox);
    session.spec = Arc::new(own);
    Ok(lent)
}

async fn begun(name: &str, server: &ServerSpec, equipment: &Equipment, session: &Session) -> Result<Arc<Host>, Trouble> {
    if !server.trusted {
        let failure = Failure::new(FailureKind::Environment, format!("start the server `{name}`: the workflow that says what it runs is not trusted"));
        return Err(failure.hint("look at it with `spinney trust`").into());
    }
    // It may have to read them.
    if let Some(coming) = &session.coming {
        coming.clone().await?;
    }
    let tools = &session.tools;
    let launch = Launch { name: name.to_owned(), reach: reach(name, server, tools)?, root: tools.root.clone(), start_timeout: server.start_timeout };
    match Host::start(equipment.sandbox.clone(), (launch, server.timeout), tools.cancel.clone()).await {
        Ok(host) => Ok(host),
        Err(_) if tools.cancel.is_cancelled() => Err(Trouble::Interrupted),
        Err(error) => {
            let failure = Failure::of(FailureKind::Environment, &error);
            let hint = match &server.reach {
                ServerReach::Program { .. } => "run its command by hand where the agent works; `plan` shows the sandbox it runs in",
                ServerReach::Address { .. } => "see whether its `url` is right and its `headers` are what it asks for",
            };
            Err(failure.hint(hint).into())
        }
    }
}

/// Makes what a server is reached with, the values of secrets among it: nobody but the server gets them.
fn reach(name: &str, server: &ServerSpec, tools: &ToolContext) -> Result<Reach, Trouble> {
    let scope = with_secrets(&Scope::new(), &tools.secrets);
    let given = |key: &str, said: &[(String, String)]| -> Result<Vec<(String, String)>, Failure> {
        said.iter().map(|(of, text)| Ok((of.clone(), rendered(&scope, &format!("mcp_servers.{name}.{key}.{of}"), text)?))).collect()
    };
    match &server.reach {
        ServerReach::Program { command, args, env: own } => {
            let mut env = tools.shell.env.clone();
            env.insert("CLAUDE_PROJECT_DIR".to_owned(), tools.root.display().to_string());
            env.extend(given("env", own)?);
            let program = Program::Exec { program: command.as_str().into(), args: args.iter().map(Into::into).collect() };
            let (cwd, confine) = (tools.cwd.clone(), tools.shell.confine.clone());
            Ok(Reach::Process(Request { program, cwd, env, stdin: Vec::new(), timeout: LONGEST, output_cap: OUTPUT_CAP, confine }))
        }
        ServerReach::Address { url, headers } => {
            let headers = given("headers", headers)?.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
            let client = Client::new().map_err(|error| Failure::of(FailureKind::Environment, &error))?;
            Ok(Reach::Address(client, HttpRequest { url: url.clone(), headers, body: Vec::new() }))
        }
    }
}
