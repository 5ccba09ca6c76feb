//! Sub-agents, as an agent sees them: who does the work it hands over, and the account that both draw on.
use super::{Agent, Purse, Trouble, lanes::Lane};
use crate::{
    event::{CommitId, Failure, FailureKind, Limit},
    journal::Spent,
    message::{Reply, ToolCall},
    plan::Limits,
    tools::ToolOutput,
};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
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

/// The account that some share, within the account around it: one session and all the sub-agents below it, or all that a step
/// has inside.
pub struct Account {
    what: String,
    hint: &'static str,
    limits: Limits,
    around: Arc<dyn Purse>,
    used: Mutex<Used>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    turns: u32,
    tokens: u64,
    usd: f64,
    /// The limit that refused a request last.
    reached: Option<Limit>,
}

impl Account {
    /// Opens an account with what was used of it already; `what` names it in an error.
    pub fn new(what: String, limits: Limits, around: Arc<dyn Purse>, spent: &Spent) -> Account {
        let used = Used { turns: spent.turns, tokens: spent.usage.total(), usd: spent.usd, reached: None };
        Account { what, hint: "raise its `max_turns` or `budget`, or hand over less", limits, around, used: Mutex::new(used) }
    }

    /// Says what to do where it is used up.
    #[must_use]
    pub fn hint(self, hint: &'static str) -> Account {
        Account { hint, ..self }
    }

    /// Returns the limit that refused a request, once one did.
    pub fn reached(&self) -> Option<Limit> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).reached
    }

    fn change(&self, change: impl FnOnce(&mut Used)) {
        change(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes a turn and tokens, where there are so many.
    fn take(&self, tokens: u64) -> Result<(), Limit> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = if used.turns >= self.limits.turns {
            Limit::Turns
        } else if used.tokens.saturating_add(tokens) > self.limits.tokens {
            Limit::Tokens
        } else if self.limits.usd.is_some_and(|most| used.usd >= most) {
            Limit::Money
        } else {
            used.turns += 1;
            used.tokens += tokens;
            return Ok(());
        };
        used.reached = Some(reached);
        Err(reached)
    }
}

impl Purse for Account {
    fn reserve(&self, tokens: u64) -> Result<(), Trouble> {
        let spent = |limit| Failure::new(FailureKind::Limit(limit), format!("{} is used up", self.what)).hint(self.hint);
        self.take(tokens).map_err(spent)?;
        self.around.reserve(tokens).inspect_err(|_| {
            self.change(|used| {
                used.turns -= 1;
                used.tokens -= tokens;
            });
        })
    }

    fn settle(&self, reserved: u64, reply: Option<&Reply>) {
        self.change(|used| {
            used.tokens -= reserved;
            match reply {
                Some(reply) => {
                    used.tokens += reply.usage.total();
                    used.usd += reply.usd.unwrap_or(0.0);
                }
                None => used.turns -= 1,
            }
        });
        self.around.settle(reserved, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{llm::script::reply, message::Usage};

    struct Endless;

    impl Purse for Endless {
        fn reserve(&self, _: u64) -> Result<(), Trouble> {
            Ok(())
        }
        fn settle(&self, _: u64, _: Option<&Reply>) {}
    }

    fn refused(reserved: Result<(), Trouble>) -> Option<Failure> {
        if let Err(Trouble::Failed(failure)) = reserved { Some(failure) } else { None }
    }

    fn limit(reserved: Result<(), Trouble>) -> Option<FailureKind> {
        refused(reserved).map(|failure| failure.kind)
    }

    #[test]
    fn sub_agents_draw_on_the_account_of_whoever_started_them() {
        let limits = |turns, tokens| Limits { turns, tokens, usd: Some(1.0), ..Limits::SESSION };
        let spent = Spent { turns: 1, ..Spent::default() };
        let chief = Arc::new(Account::new("chief".into(), limits(4, 100), Arc::new(Endless), &spent));
        let one = Account::new("one".into(), limits(9, 900), chief.clone(), &Spent::default());
        let two = Account::new("two".into(), limits(1, 900), chief.clone(), &Spent::default());
        assert!(one.reserve(60).is_ok());
        assert_eq!(limit(two.reserve(60)), Some(FailureKind::Limit(Limit::Tokens)), "what is in flight counts");
        assert!(two.reserve(40).is_ok(), "what was refused was given back");
        assert_eq!(limit(two.reserve(0)), Some(FailureKind::Limit(Limit::Turns)), "its own limits hold too");
        one.settle(60, None);
        two.settle(40, Some(&Reply { usage: Usage { input: 5, output: 5, ..Usage::default() }, usd: Some(0.4), ..reply("", &[]) }));
        assert!(one.reserve(90).is_ok());
        one.settle(90, Some(&Reply { usd: Some(0.7), ..reply("", &[]) }));
        let refused = refused(one.reserve(1)).unwrap();
        assert_eq!((refused.kind, refused.message.contains("chief")), (FailureKind::Limit(Limit::Money), true));
    }
}
