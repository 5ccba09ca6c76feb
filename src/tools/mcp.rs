//! Tools of servers: what a server offers, as an agent calls it.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput};
use crate::{
    mcp::{Answer, Launch, McpError, Offer, Server},
    message::ToolSpec,
    sandbox::Sandbox,
};
use async_trait::async_trait;
use serde_json::Value;
use std::{error::Error, sync::Arc, time::Duration};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Most times that a server is started for one session.
const STARTS_MAX: u32 = 3;

/// A server of one session, which is started again where it dies.
pub struct Host {
    sandbox: Sandbox,
    launch: Launch,
    timeout: Duration,
    cancel: CancellationToken,
    state: Mutex<State>,
}

struct State {
    server: Option<Arc<Server>>,
    starts: u32,
}

impl Host {
    /// Starts a server, each of whose calls may take so long.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub async fn start(sandbox: Sandbox, (launch, timeout): (Launch, Duration), cancel: CancellationToken) -> Result<Arc<Host>, McpError> {
        let server = Server::start(&sandbox, launch.clone(), &cancel).await?;
        let state = Mutex::new(State { server: Some(Arc::new(server)), starts: 1 });
        Ok(Arc::new(Host { sandbox, launch, timeout, cancel, state }))
    }

    /// Returns what it offers.
    pub async fn offers(&self) -> Vec<Offer> {
        self.state.lock().await.server.as_ref().map(|server| server.offers().to_vec()).unwrap_or_default()
    }

    /// Ends it. Whoever still has it waits no longer.
    pub async fn end(&self) {
        let server = self.state.lock().await.server.take();
        if let Some(server) = server.and_then(Arc::into_inner) {
            server.end().await;
        }
    }

    async fn server(&self) -> Result<Arc<Server>, McpError> {
        let mut state = self.state.lock().await;
        if let Some(server) = &state.server {
            return Ok(server.clone());
        }
        if state.starts >= STARTS_MAX {
            let tail = format!("it was started {STARTS_MAX} times and is not started again");
            return Err(McpError::Ended { server: self.launch.name.clone(), tail });
        }
        state.starts += 1;
        let server = Arc::new(Server::start(&self.sandbox, self.launch.clone(), &self.cancel).await?);
        state.server = Some(server.clone());
        Ok(server)
    }

    async fn call(&self, tool: &str, input: &Value, cancel: &CancellationToken) -> Result<Answer, McpError> {
        let server = self.server().await?;
        let answered = server.call(tool, input, self.timeout, cancel).await;
        if matches!(answered, Err(McpError::Ended { .. })) {
            let mut state = self.state.lock().await;
            // Another call may have started it again already.
            if state.server.as_ref().is_some_and(|present| Arc::ptr_eq(present, &server)) {
                state.server = None;
            }
        }
        answered
    }
}

/// One tool of a server.
pub struct Served {
    host: Arc<Host>,
    offer: Offer,
}

impl Served {
    /// Makes the tool of an offer.
    pub fn new(host: Arc<Host>, offer: Offer) -> Served {
        Served { host, offer }
    }
}

#[async_trait]
impl Tool for Served {
    fn spec(&self) -> &ToolSpec {
        &self.offer.spec
    }

    fn only_reads(&self) -> bool {
        self.offer.only_reads
    }

    /// What a server does where is not known: only what it calls reading is done beside other calls, and again after a crash.
    fn effect(&self, _input: &Value, _cx: &ToolContext) -> Effect {
        if self.offer.only_reads { Effect::Reads(vec![format!("server:{}", self.host.launch.name)]) } else { Effect::External }
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let answer = self.host.call(&self.offer.own, input, &cx.cancel).await.map_err(|error| ToolError::Model(told(&error)))?;
        Ok(ToolOutput { text: answer.text, response: answer.whole, is_error: answer.is_error, whole: None })
    }
}

fn told(error: &McpError) -> String {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    let said = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let unknown = match error {
        McpError::Ended { .. } | McpError::Away { .. } | McpError::NoAnswer { .. } | McpError::Cancelled { .. } => {
            " It may or may not have done what it was asked: check before you ask again."
        }
        McpError::Start { .. } | McpError::Refused { .. } | McpError::Odd { .. } => "",
    };
    format!("failed to {said}.{unknown}")
}
