//! What ends a run or its parts before their time: a limit, a timer, the word of a person, the end of the process.
use super::{Engine, EngineError};
use crate::{
    clock::{Timestamp, seconds},
    engine::{accounts, frames},
    event::{Event, Failure, FailureKind, Form, Limit, NodeId},
    journal::{RunState, Store, account, more},
    workflow::OnExceed,
};
use std::{collections::BTreeSet, time::Duration};

impl<S: Store> Engine<'_, S> {
    /// Ends what is under way of a run that was called off; what belongs to its end follows.
    pub(super) fn call_off(&mut self) -> Result<(), EngineError> {
        let state = self.journal.state();
        let Some(failure) = state.cancelled().map(frames::called_off) else { return Ok(()) };
        let to_halt = state.to_call_off();
        self.cancel_work(|state, node| state.is_orchestrator(node) && state.is_called_off(&node.within));
        for node in to_halt {
            self.halt(&node, failure.clone().into())?;
        }
        Ok(())
    }

    pub(super) fn note_limit(&mut self) -> Result<(), EngineError> {
        match self.account.reached() {
            Some(_) if self.journal.state().is_held() => {
                self.people.ask(&account(), self.journal.state());
                Ok(())
            }
            Some(limit) if self.journal.state().limit().is_none() && self.account.asks() => self.ask_for_more("", self.account.question(limit)),
            Some(limit) if self.journal.state().limit().is_none() => self.hold(limit),
            _ => Ok(()),
        }
    }

    /// Asks for more of the budget of a step or a call, where that is what a node waits for.
    pub(super) fn note_budget(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let state = self.journal.state();
        if accounts::is_held(state, node) {
            self.people.ask(&account(), state);
            return Ok(());
        }
        match self.accounts.asks(state, node) {
            Some((whose, question, by)) => self.ask_for_more(&whose, (question, by)),
            None => Ok(()),
        }
    }

    fn ask_for_more(&mut self, whose: &str, (question, by): (String, u32)) -> Result<(), EngineError> {
        let call = more(self.journal.state().allowance(whose).raises, by, whose);
        let question = Event::QuestionAsked { node: account(), call, question, form: Form::default() };
        let answer = self.people.at_once(&question);
        self.append(std::iter::once(question).chain(answer))
    }

    /// Returns whether a node waits for a person or for a model, or for what its requests are charged to be raised.
    pub(super) fn waits(&self, node: &NodeId) -> bool {
        let state = self.journal.state();
        state.waits(node) || state.is_held() || accounts::is_held(state, node)
    }

    /// Lets a limit of the run hold.
    fn hold(&mut self, limit: Limit) -> Result<(), EngineError> {
        self.account.hold();
        self.append([Event::LimitReached { limit }])
    }

    /// Does what a person said to the question whether more may be spent of a budget, and takes up who waited for that.
    pub(super) fn allowed_more(&mut self, whose: &str, raises: Option<u32>) -> Result<(), EngineError> {
        match (self.account.reached(), raises) {
            _ if !whose.is_empty() => self.accounts.allow(whose, raises),
            (_, Some(by)) => self.account.raise(by),
            (Some(limit), None) => {
                self.hold(limit)?;
                if limit == Limit::Time {
                    self.out_of_time()?;
                }
            }
            // This process has not come to the limit yet: it will, and it holds then.
            (None, None) => self.account.hold(),
        }
        let still = self.live.parked.iter().filter(|node| self.waits(node)).cloned().collect();
        self.live.parked = still;
        Ok(())
    }

    /// Ends a run whose time is over: what is under way is cancelled where it is to stop, and asks for nothing more where it
    /// is to finish.
    pub(super) fn out_of_time(&mut self) -> Result<(), EngineError> {
        self.account.expire();
        self.note_limit()?;
        if self.plan.on_exceed != OnExceed::Finish && self.journal.state().limit().is_some() {
            self.expired = true;
            self.cancel_work(|_, _| true);
        }
        Ok(())
    }

    /// Returns whether a frame is out of time and nobody has stopped it yet: that comes before all waiting.
    pub(super) fn is_late(&self) -> bool {
        let late = |(node, due): (&NodeId, &Timestamp)| *due <= self.crew.clock().now() && !self.stopped.contains_key(node);
        !self.live.stopping && !self.live.closing && self.journal.state().deadlines().iter().any(late)
    }

    pub(super) fn timers_fired(&mut self) -> Result<(), EngineError> {
        let now = self.crew.clock().now();
        let state = self.journal.state();
        let due: Vec<Event> = state.timers().iter().filter(|(_, due)| **due <= now).map(|(node, _)| Event::TimerFired { node: node.clone() }).collect();
        let late: Vec<NodeId> =
            state.deadlines().iter().filter(|(node, due)| **due <= now && !self.stopped.contains_key(*node)).map(|(node, _)| node.clone()).collect();
        self.append(due)?;
        for node in late {
            let time = self.journal.state().step(&node).map_or(Duration::ZERO, |step| step.timeout);
            self.halt(&node, Failure::new(FailureKind::Timeout, format!("it was not done after {}", seconds(time))).into())?;
        }
        Ok(())
    }

    pub(super) fn stop(&mut self) {
        self.live.stopping = true;
        self.cancel_work(|_, _| true);
    }

    /// Ends the work on some nodes early.
    pub(super) fn cancel_work(&mut self, on: impl Fn(&RunState, &NodeId) -> bool) {
        let state = self.journal.state();
        let nodes: BTreeSet<&NodeId> = self.live.nodes().filter(|node| on(state, node)).collect();
        for node in nodes {
            match self.tokens.get(node) {
                Some(token) => token.cancel(),
                None => self.crew.cancel(node),
            }
        }
    }
}
