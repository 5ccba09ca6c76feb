//! Sub-agents, as an agent sees them: who does the work it hands over.
use super::{Agent, Trouble, lanes::Lane};
use crate::{event::CommitId, message::ToolCall, tools::ToolOutput};
use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// One task for a sub-agent.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// What tells it from the agent's other sub-agents: the turn and the place of the call in it, the same after a crash.
    pub name: &'a str,
    /// The call's input, which fits the tool's schema.
    pub input: &'a Value,
    /// The commit it starts from.
    pub base: &'a CommitId,
    /// Ends with the agent that gave it.
    pub cancel: &'a CancellationToken,
}

/// What a sub-agent has done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Done {
    /// Its answer, or why there is none.
    pub output: ToolOutput,
    /// The commit of its work and the paths that differ, where it changed something.
    pub work: Option<(CommitId, Vec<String>)>,
}

/// What became of what a sub-agent has done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delivered {
    /// What the agent that asked for it is told.
    pub output: ToolOutput,
    /// What its files were before, where they were changed.
    pub before: Option<CommitId>,
}

/// Who does the work that an agent hands over.
#[async_trait]
pub trait Delegates: Send + Sync {
    /// Returns a commit of the agent's files as they are now.
    ///
    /// # Errors
    /// Where they cannot be read.
    async fn present(&self) -> Result<CommitId, Trouble>;

    /// Has a task done, to its end or from where it stood when the process died.
    ///
    /// # Errors
    /// Where the sub-agent waits for a person or was interrupted. That it failed is an answer.
    async fn work(&self, order: Order<'_>) -> Result<Done, Trouble>;

    /// Brings what was done into the agent's files, as a whole or not at all. Only one at a time.
    ///
    /// # Errors
    /// Where the files cannot be used.
    async fn deliver(&self, order: Order<'_>, done: Done) -> Result<Delivered, Trouble>;
}

impl Agent<'_> {
    /// Carries out a call of the `Agent` tool. Sub-agents of one reply work at the same time; what they did is brought in one
    /// after the other, in the order of the calls, and only once all of them have begun from the same files.
    pub(super) async fn delegate(&self, lane: Lane<'_>, call: &ToolCall, input: &Value, base: &CommitId) -> Result<Delivered, Trouble> {
        let Some(delegates) = &self.session.delegates else {
            let text = "no sub-agents can be started here".to_owned();
            return Ok(Delivered { output: ToolOutput { response: Value::String(text.clone()), text, is_error: true, ..ToolOutput::default() }, before: None });
        };
        let made = self.talk.messages().last().into_iter().flat_map(|message| message.calls());
        let place = made.take_while(|made| made.id != call.id).count() + 1;
        let name = format!("{}-{place}", self.talk.spent().turns);
        let order = Order { name: &name, input, base, cancel: &self.session.tools.cancel };
        let done = delegates.work(order).await?;
        lane.turn().await;
        self.go_on()?;
        delegates.deliver(order, done).await
    }
}
