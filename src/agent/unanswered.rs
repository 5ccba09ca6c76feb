//! What follows where a model gave no answer: a shorter request, another model, waiting for another time, or failing.
//!
//! Another model of the list is only asked while none has said anything: what one has thought is bound to it. That it is
//! asked is recorded before, so that whoever takes the conversation up asks the same one. Where none is left and one of them
//! may be had another time, the agent waits for that, unless its step has its own way to try again.
use super::{Agent, Trouble, compact};
use crate::{
    event::{Event, Failure, FailureKind, UNTHINKING},
    llm::{Class, ModelError, ModelErrorKind},
};

impl Agent<'_> {
    /// Says what follows from an error of the model's; where it is nothing, the conversation goes on.
    pub(super) async fn no_reply(&mut self, error: ModelError) -> Result<(), Trouble> {
        self.go_on()?;
        if error.kind.class() == Class::Repair && !self.is_repaired {
            self.is_repaired = true;
            if let Some(messages) = compact::unthinking(self.talk.messages()).filter(|_| error.kind == ModelErrorKind::Unbound) {
                // It is only what was thought that is not taken back: all that was said and done stays.
                let (event, _) = self.shortened(&messages, UNTHINKING);
                return self.record(event).await;
            }
            match self.compact(self.talk.estimated_prompt() * 3 / 4).await {
                // Where nothing can be left out, the provider's word says more.
                Err(Trouble::Failed(_)) => {}
                done => return done,
            }
        }
        let kind = match error.kind {
            ModelErrorKind::TooLong => FailureKind::ContextExhausted,
            kind if kind.class() == Class::Wait || kind.parks() => FailureKind::Unavailable,
            _ => FailureKind::Model,
        };
        let failure = Failure { hint: error.hint, ..Failure::new(kind, error.message) };
        // Where money is at its end, it is for all models of the same account.
        if self.fall_back(&failure, error.kind == ModelErrorKind::SpendLimit).await? {
            return Ok(());
        }
        let failure = self.with_those_before(failure);
        let waits = error.kind.parks() || (failure.kind == FailureKind::Unavailable && !self.session.is_retried);
        if !waits {
            return Err(failure.into());
        }
        self.record(Event::Parked { node: self.session.node.clone(), failure }).await?;
        Err(Trouble::Parked)
    }

    /// Goes on with the next model of the list.
    ///
    /// # Errors
    /// The failure, where there is none.
    pub(super) async fn go_without(&mut self, failure: Failure) -> Result<(), Trouble> {
        if self.fall_back(&failure, false).await? { Ok(()) } else { Err(self.with_those_before(failure).into()) }
    }

    async fn fall_back(&mut self, failure: &Failure, to_another_provider: bool) -> Result<bool, Trouble> {
        let Some(brief) = self.talk.brief().filter(|_| self.talk.is_fresh()) else { return Ok(false) };
        let mut rest = brief.models.iter().skip(self.talk.choice());
        let Some(from) = rest.next() else { return Ok(false) };
        let provider = |model: &str| model.split_once('/').map(|(provider, _)| provider.to_owned());
        let Some(to) = rest.find(|to| !to_another_provider || provider(to) != provider(from)) else { return Ok(false) };
        let event = Event::FellBack { node: self.session.node.clone(), from: from.clone(), to: to.clone(), failure: failure.clone() };
        self.record(event).await.map(|()| true)
    }

    /// Tells of a failure together with those of the models before it. It may pass by itself where one of them may.
    fn with_those_before(&self, failure: Failure) -> Failure {
        let all = || self.talk.fallen().iter().chain([&failure]);
        let passes = all().find(|failure| failure.kind == FailureKind::Unavailable);
        let kind = passes.unwrap_or(&failure).kind;
        let mut messages: Vec<&str> = all().map(|failure| failure.message.as_str()).collect();
        messages.dedup();
        let message = messages.join("; ");
        let hint = all().find_map(|failure| failure.hint.clone());
        Failure { kind, message, hint, ..failure }
    }
}
