//! The one writer: checks an event, folds it, stores it; and what workers hold to reach it.
use super::{Doing, IllegalEvent, RunState, Store, StoreError, UnderWay};
use crate::{
    clock::{Clock, Timestamp},
    event::{Event, Record},
    secrets::Secrets,
};
use tokio::sync::{mpsc, oneshot};

/// The log of one run and its fold. Append first, act after.
pub struct Journal<S> {
    store: S,
    state: RunState,
    clock: Clock,
    secrets: Secrets,
}

/// Why an event could not be appended. After `Store` the journal must not be used further: what is in memory may be
/// ahead of the disk.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The event cannot follow what was recorded before it: a bug of whoever sent it.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

impl<S: Store> Journal<S> {
    /// Joins a store with the state that its records gave.
    pub fn new(store: S, state: RunState, clock: Clock) -> Journal<S> {
        Journal { store, state, clock, secrets: Secrets::default() }
    }

    /// Takes the values of secrets out of every event from now on, whoever made it: what is stored, folded and shown
    /// holds none.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Journal<S> {
        Journal { secrets: secrets.clone(), ..self }
    }

    /// Appends events as one transaction. Nothing of them is visible to anybody until this returns.
    ///
    /// # Errors
    /// On the first illegal event nothing is stored; the state must then be thrown away.
    pub fn append(&mut self, events: Vec<Event>) -> Result<Vec<Record>, JournalError> {
        let mut records = Vec::with_capacity(events.len());
        self.append_to(&mut records, events)?;
        Ok(records)
    }

    /// Appends events likewise, and adds the records to `records`, which is empty.
    ///
    /// # Errors
    /// As `append`.
    pub fn append_to(&mut self, records: &mut Vec<Record>, events: impl IntoIterator<Item = Event>) -> Result<(), JournalError> {
        let at = self.clock.now();
        let mut synced = false;
        for event in events {
            synced |= event.needs_sync();
            let event = if self.secrets.is_empty() { event } else { self.secrets.clean(event) };
            records.push(Record { seq: self.state.next_seq(), at, event });
            records.last().map_or(Ok(()), |record| self.state.apply(record))?;
        }
        if !records.is_empty() {
            self.store.append(records, synced)?;
        }
        Ok(())
    }

    /// Begins the log of a run that follows from another one: its first event, then what holds of the other, with the times
    /// at which that was recorded. One transaction.
    ///
    /// # Errors
    /// As `append`.
    pub fn take_over(&mut self, first: Event, held: Vec<(Timestamp, Event)>) -> Result<Vec<Record>, JournalError> {
        let mut records = Vec::with_capacity(held.len() + 1);
        for (at, event) in std::iter::once((self.clock.now(), first)).chain(held) {
            let record = Record { seq: self.state.next_seq(), at, event: self.secrets.clean(event) };
            self.state.apply(&record)?;
            records.push(record);
        }
        self.store.append(&records, true)?;
        Ok(records)
    }

    /// Returns the fold of all records.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Takes it apart: the store, the state and the clock.
    pub fn into_parts(self) -> (S, RunState, Clock) {
        (self.store, self.state, self.clock)
    }
}

/// An event on its way to the journal, and how its sender learns that it is there.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub event: Event,
    /// Told once the event is acknowledged.
    pub acknowledged: oneshot::Sender<()>,
}

/// What a worker holds: `record` returns once the event would survive the death of the process.
#[derive(Debug, Clone)]
pub struct Recorder {
    reports: mpsc::Sender<Report>,
    under_way: Option<UnderWay>,
}

/// The run's loop has ended; whatever the worker does now is not part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is over")]
pub struct Closed;

impl Recorder {
    /// Makes a recorder and the end its reports arrive at; `buffer` reports may wait.
    pub fn channel(buffer: usize) -> (Recorder, mpsc::Receiver<Report>) {
        let (sender, reports) = mpsc::channel(buffer);
        (Recorder { reports: sender, under_way: None }, reports)
    }

    /// Notes from now on what is begun outside of the run.
    #[must_use]
    pub fn noting(self, under_way: UnderWay) -> Recorder {
        Recorder { under_way: Some(under_way), ..self }
    }

    /// Notes that something begins outside of the run which leaves no record before its end.
    pub fn begins(&self, doing: Doing<'_>, what: &str) {
        if let Some(under_way) = &self.under_way {
            under_way.begins(doing, what);
        }
    }

    /// Notes that what came of it is recorded, where no record of its node says so by itself.
    pub fn ends(&self, doing: Doing<'_>) {
        if let Some(under_way) = &self.under_way {
            under_way.ends(doing.node, doing.place);
        }
    }

    /// Records an event and waits for its acknowledgement.
    ///
    /// # Errors
    /// `Closed` where the run is over.
    pub async fn record(&self, event: Event) -> Result<(), Closed> {
        let (acknowledged, done) = oneshot::channel();
        let noted = self.under_way.as_ref().map(|under_way| (under_way, under_way.ended_by(&event)));
        self.reports.send(Report { event, acknowledged }).await.map_err(|_| Closed)?;
        done.await.map_err(|_| Closed)?;
        if let Some((under_way, ended)) = noted {
            under_way.take_back(&ended);
        }
        Ok(())
    }
}
