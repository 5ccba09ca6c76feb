//! The order in which things happened when they were recorded, and how far a replay of it is.
//!
//! Requests that are held against a budget, replies, and what they are charged come in the order in which they came then: who is
//! refused at a budget, and what a reply finds done, hang on it. It is kept by waiting. What an earlier process of the run has done
//! is told by its journal and not waited for, nor what was lost with a process of the recorded run. Where a run is another than the
//! recorded one some things never come: whoever waits for them waits once for each conversation.
use super::likeness::conversation;
use crate::{
    clock::Clock,
    event::{Event, NodeId, Record},
    llm::{Booking, Ordinal},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// How long something waits while nothing moves: longer than any work between two requests may reasonably take on a machine that is
/// busy, since whoever is late is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(15);

/// One thing that happened.
#[derive(Debug)]
pub(super) struct Entry {
    /// The node.
    pub(super) node: String,
    /// Which of its requests it is about; absent in old recordings.
    pub(super) ordinal: Option<Ordinal>,
    pub(super) what: What,
    /// Which of the recorded run's processes it happened in, from 1.
    pub(super) life: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A request was answered.
    Exchanged,
    /// It was stopped before.
    Stopped,
    Booked(Booking),
}

/// How far one of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// It has come, and waits for its turn.
    Due,
    Done,
    /// It is not waited for.
    PassedOver,
}

/// Why nobody has heard the end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unheard {
    /// Whoever made it was stopped, by a time-out say, and the run went on.
    Stopped,
    /// The recording ends there, or its process died.
    Lost,
}

#[derive(Debug)]
pub(super) struct Order {
    entries: Vec<Entry>,
    /// The conversations, by entry.
    askers: Vec<String>,
    /// Whether the run was over at the end of them.
    is_whole: bool,
    progress: Mutex<Progress>,
    moved: Notify,
    clock: Clock,
}

#[derive(Debug)]
struct Progress {
    states: Vec<State>,
    /// Conversations that did not come while others waited.
    late: BTreeSet<String>,
}

impl Order {
    /// `is_whole` says that the run was over at the end of them.
    pub(super) fn new(entries: Vec<Entry>, is_whole: bool, clock: Clock) -> Order {
        let askers: Vec<String> = entries.iter().map(|entry| conversation(&entry.node)).collect();
        let progress = Mutex::new(Progress { states: lost(&entries), late: BTreeSet::new() });
        let order = Order { entries, askers, is_whole, progress, moved: Notify::new(), clock };
        // Nobody does a stop, nor charges what was lost with its process.
        let is_nobodys = |at: &usize| {
            let Entry { ordinal, what, .. } = &order.entries[*at];
            let unheard = || ordinal.and_then(|ordinal| order.unheard(&order.askers[*at], ordinal));
            *what == What::Stopped || *what == What::Booked(Booking::Settled) && unheard() == Some(Unheard::Lost)
        };
        let nobodys: Vec<usize> = (0..order.entries.len()).filter(is_nobodys).collect();
        for at in nobodys {
            order.progress().states[at] = State::PassedOver;
        }
        order
    }

    /// Takes note of what earlier processes, so many of them, have done of it, by their journal. Returns the entries of replies that
    /// have not come for good, and whose lost attempts were charged all the same.
    pub(super) fn take_up(&self, records: &[Record], lives: u32) -> Vec<usize> {
        let mut talks: HashMap<&NodeId, Stand> = HashMap::new();
        let mut progress = self.progress();
        for record in records {
            match &record.event {
                Event::StepStarted { node, .. } => talks.retain(|talk, _| talk.owner() != *node),
                event => {
                    let Some(node) = event.node() else { continue };
                    let stand = talks.entry(node).or_default();
                    if event.settles() {
                        self.pass(&mut progress.states, &conversation(&node.to_string()), stand.settled);
                        *stand = Stand { settled: stand.settled + 1, is_charged: false };
                    }
                    stand.is_charged |= matches!(event, Event::AttemptsLost { capped: false, .. });
                }
            }
        }
        // A request that was refused in an earlier process is asked again.
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.life <= lives) {
            if progress.states[at] == State::Open && entry.what == What::Booked(Booking::Refused) {
                progress.states[at] = State::PassedOver;
            }
        }
        let charged = talks.iter().filter(|(_, stand)| stand.is_charged);
        let entry = |(node, stand): (&&NodeId, &Stand)| self.open(&progress.states, &conversation(&node.to_string()), stand.settled, What::Exchanged);
        charged.filter_map(entry).collect()
    }

    /// Passes over all that belongs to the first request of a conversation that has this place in it and is not over.
    fn pass(&self, states: &mut [State], asker: &str, settled: u32) {
        let is_it = |at: usize| self.askers[at] == asker && self.entries[at].ordinal.is_some_and(|ordinal| ordinal.settled == settled);
        let Some(first) = (0..states.len()).find(|at| states[*at] == State::Open && is_it(*at)) else { return };
        let ordinal = self.entries[first].ordinal;
        for at in (first..states.len()).filter(|at| self.askers[*at] == asker && self.entries[*at].ordinal == ordinal) {
            states[at] = State::PassedOver;
        }
    }

    fn open(&self, states: &[State], asker: &str, settled: u32, what: What) -> Option<usize> {
        (0..states.len()).find(|at| {
            let is_it = self.askers[*at] == asker && self.entries[*at].what == what;
            is_it && states[*at] == State::Open && self.entries[*at].ordinal.is_some_and(|ordinal| ordinal.settled == settled)
        })
    }

    /// Returns the exchanges of a conversation, each with how far it is.
    pub(super) fn exchanges(&self, asker: &str) -> Vec<(usize, State)> {
        let progress = self.progress();
        let own = (0..self.entries.len()).filter(|at| self.askers[*at] == asker && self.entries[*at].what == What::Exchanged);
        own.map(|at| (at, progress.states[at])).collect()
    }

    /// Takes an entry for what has come now. What came before it in the same conversation was done before, or never comes.
    pub(super) fn claim(&self, at: usize) {
        let mut progress = self.progress();
        for earlier in (0..at).filter(|earlier| self.askers[*earlier] == self.askers[at]) {
            if progress.states[earlier] == State::Open {
                progress.states[earlier] = State::PassedOver;
            }
        }
        progress.states[at] = State::Due;
        progress.late.remove(&self.askers[at]);
    }

    /// Says that a conversation is not the recorded one any more.
    pub(super) fn give_up(&self, asker: &str) {
        self.progress().late.insert(asker.to_owned());
        self.moved.notify_waiters();
    }

    /// Says what became of a request that was made then and of which nobody has heard the end, where it is one.
    pub(super) fn unheard(&self, asker: &str, ordinal: Ordinal) -> Option<Unheard> {
        let is_it = |at: &usize| self.askers[*at] == asker && self.entries[*at].ordinal == Some(ordinal);
        let last = |what: What| (0..self.entries.len()).rev().filter(is_it).find(|at| self.entries[*at].what == what);
        let settled = What::Booked(Booking::Settled);
        last(What::Booked(Booking::Admitted)).filter(|_| last(What::Exchanged).is_none())?;
        let goes_on = |at: usize| self.is_whole || self.entries[at..].iter().any(|later| later.what != settled && later.what != What::Stopped);
        let stopped = last(settled).max(last(What::Stopped));
        Some(if stopped.is_some_and(goes_on) { Unheard::Stopped } else { Unheard::Lost })
    }

    /// Waits until everything is done.
    pub(super) async fn end(&self) {
        self.turn_of(self.entries.len()).await;
    }

    /// Waits until all that came before an entry is done, as it was when it was recorded.
    pub(super) async fn turn_of(&self, at: usize) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.is_next(at) {
                return;
            }
            tokio::select! {
                () = moved => {}
                () = self.clock.sleep_until(self.clock.now().after(PATIENCE)) => {
                    let mut progress = self.progress();
                    // What is next is late too, whatever it waits for besides its turn.
                    let is_done = |at: &usize| matches!(progress.states[*at], State::Done | State::PassedOver);
                    let next = (0..at).find(|at| !is_done(at));
                    let late = (0..at).filter(|at| progress.states[*at] == State::Open).chain(next).map(|at| self.askers[at].clone());
                    let late: Vec<String> = late.collect();
                    progress.late.extend(late);
                    drop(progress);
                    self.moved.notify_waiters();
                }
            }
        }
    }

    fn is_next(&self, at: usize) -> bool {
        let progress = self.progress();
        progress.states[..at].iter().zip(&self.askers).all(|(state, asker)| match state {
            State::Done | State::PassedOver => true,
            State::Open | State::Due => progress.late.contains(asker),
        })
    }

    /// Says that an entry is done.
    pub(super) fn done(&self, at: usize) {
        self.progress().states[at] = State::Done;
        self.moved.notify_waiters();
    }

    /// Waits until it is a request's turn to be held against the accounts, or to be charged. One that the recording has nothing of was
    /// still waiting for others then when it was stopped, and comes after all that it has.
    pub(super) async fn turn(&self, node: &NodeId, ordinal: Ordinal, is_settled: bool) {
        let is_told = || self.entries.iter().any(|entry| matches!(entry.what, What::Booked(_)));
        match self.booking(node, ordinal, is_settled, &[State::Open]) {
            Some(at) => {
                self.claim(at);
                self.turn_of(at).await;
            }
            None if !is_settled && is_told() => self.end().await,
            None => {}
        }
    }

    /// Takes note that this was done with it.
    pub(super) fn booked(&self, node: &NodeId, ordinal: Ordinal, how: Booking) {
        let Some(at) = self.booking(node, ordinal, how == Booking::Settled, &[State::Due, State::Open]) else { return };
        let mut progress = self.progress();
        if how == Booking::Admitted {
            // Where it was refused first then, it is not asked again now.
            let same = |later: &usize| self.askers[*later] == self.askers[at] && self.entries[*later].ordinal == Some(ordinal);
            let again = (at..self.entries.len()).filter(same).take_while(|later| !matches!(self.entries[*later].what, What::Exchanged | What::Stopped));
            for later in again.filter(|later| self.entries[*later].what != What::Booked(Booking::Settled)) {
                progress.states[later] = State::PassedOver;
            }
        }
        drop(progress);
        self.done(at);
    }

    fn booking(&self, node: &NodeId, ordinal: Ordinal, is_settled: bool, states: &[State]) -> Option<usize> {
        let asker = conversation(&node.to_string());
        let progress = self.progress();
        (0..self.entries.len()).find(|at| {
            let is_it = matches!(self.entries[*at].what, What::Booked(how) if (how == Booking::Settled) == is_settled);
            is_it && self.askers[*at] == asker && self.entries[*at].ordinal == Some(ordinal) && states.contains(&progress.states[*at])
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a conversation of the journal stands.
#[derive(Debug, Clone, Copy, Default)]
struct Stand {
    settled: u32,
    is_charged: bool,
}

/// How far entries are before any request: what was asked again with the same ordinal, or was refused a budget by a later process, was
/// lost with its own.
fn lost(entries: &[Entry]) -> Vec<State> {
    let mut states = vec![State::Open; entries.len()];
    let mut begun: HashMap<(&str, u32, u32), Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let Some(ordinal) = entry.ordinal else { continue };
        let own = begun.entry((&entry.node, ordinal.attempt, ordinal.settled)).or_default();
        let is_refused = entry.what == What::Booked(Booking::Refused);
        let again = own.iter().map(|earlier| &entries[*earlier]).any(|earlier| match entry.what {
            What::Booked(Booking::Settled) | What::Stopped => false,
            What::Booked(Booking::Refused) => earlier.life < entry.life,
            What::Exchanged | What::Booked(_) => earlier.what == entry.what,
        });
        if again {
            own.drain(..).for_each(|earlier| states[earlier] = State::PassedOver);
        }
        if !is_refused {
            own.push(at);
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Timestamp, event::StepId};
    use State::{Open, PassedOver};
    use futures_util::FutureExt as _;

    fn entry(node: &str, settled: u32, what: What) -> Entry {
        Entry { node: node.to_owned(), ordinal: Some(Ordinal { attempt: 1, settled }), what, life: 1 }
    }

    fn order(entries: Vec<Entry>) -> (Order, Clock) {
        let clock = Clock::runtime(Timestamp(0));
        (Order::new(entries, false, clock.clone()), clock)
    }

    fn is_next(order: &Order, at: usize) -> bool {
        order.turn_of(at).now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_came_later_waits_as_long_as_something_moves_and_once_for_what_never_comes() {
        let all = [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1), ("b", 1), ("a", 2)].map(|(node, settled)| entry(node, settled, What::Exchanged));
        let (order, clock) = order(all.into());
        let began = clock.now();
        for at in [0, 1] {
            assert!(is_next(&order, at) && !is_next(&order, 2), "{at}");
            clock.sleep_until(clock.now().after(PATIENCE / 2)).await;
            order.done(at);
        }
        // `c` never comes: it is waited for once, whatever else it has.
        order.turn_of(3).await;
        order.done(3);
        assert!((PATIENCE * 2..PATIENCE * 2 + PATIENCE / 10).contains(&clock.now().since(began)));
        assert!(is_next(&order, 5));
        order.done(5);
        // Once it is there it is waited for again.
        order.claim(4);
        assert!(!is_next(&order, 6));
        order.done(4);
        assert!(is_next(&order, 6));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_booked_is_booked_in_the_order_of_then_and_what_nobody_booked_comes_last() {
        let (admitted, refused, settled) = (What::Booked(Booking::Admitted), What::Booked(Booking::Refused), What::Booked(Booking::Settled));
        let node = |name: &str| NodeId::step(&StepId::from(name));
        let all = vec![entry("a", 0, admitted), entry("a", 0, What::Exchanged), entry("a", 0, settled), entry("b", 0, refused), entry("b", 0, admitted)];
        let (order, _) = order(all);
        let ordinal = Ordinal { attempt: 1, settled: 0 };
        let (a, b, c) = (node("a"), node("b"), node("c"));
        assert!(order.turn(&b, ordinal, false).now_or_never().is_none());
        order.turn(&a, ordinal, false).await;
        order.booked(&a, ordinal, Booking::Admitted);
        order.claim(1);
        order.done(1);
        order.turn(&a, ordinal, true).await;
        order.booked(&a, ordinal, Booking::Settled);
        // It was refused first, and is now: it comes again for the second.
        order.booked(&b, ordinal, Booking::Refused);
        assert!(order.turn(&c, ordinal, false).now_or_never().is_none());
        order.turn(&b, ordinal, false).await;
        order.booked(&b, ordinal, Booking::Admitted);
        order.turn(&c, ordinal, false).await;
    }

    #[test]
    fn a_request_that_was_stopped_is_told_from_one_whose_end_is_not_recorded() {
        let [admitted, settled] = [Booking::Admitted, Booking::Settled].map(What::Booked);
        let all = [
            ("a", admitted),
            ("a", settled),
            ("b", admitted),
            ("b", What::Exchanged),
            ("b", settled),
            ("c", admitted),
            ("d", admitted),
            ("f", admitted),
            ("f", What::Stopped),
            ("d", settled),
        ];
        let entries = || all.map(|(node, what)| entry(node, 0, what)).into();
        let (order, clock) = order(entries());
        let unheard = |asker: &str| order.unheard(asker, Ordinal { attempt: 1, settled: 0 });
        assert_eq!(["a", "b", "c", "d"].map(unheard), [Some(Unheard::Stopped), None, Some(Unheard::Lost), Some(Unheard::Lost)]);
        assert_eq!(unheard("e"), None);
        let whole = Order::new(entries(), true, clock);
        let last = |asker: &str| whole.unheard(asker, Ordinal { attempt: 1, settled: 0 });
        assert_eq!((unheard("f"), last("f")), (Some(Unheard::Lost), Some(Unheard::Stopped)));
        assert_eq!(["c", "d"].map(last), [Some(Unheard::Lost), Some(Unheard::Stopped)], "the run went on to its end without it");
    }

    #[test]
    fn what_was_lost_with_a_process_is_passed_over() {
        let (admitted, refused) = (What::Booked(Booking::Admitted), What::Booked(Booking::Refused));
        let all = [
            entry("a", 0, admitted),
            entry("a", 0, What::Exchanged),
            entry("b", 0, refused),
            entry("a", 0, admitted),
            entry("a", 0, What::Exchanged),
            entry("b", 0, refused),
            entry("a", 1, admitted),
        ];
        assert_eq!(lost(&all), [PassedOver, PassedOver, Open, Open, Open, Open, Open]);
        let later = |entry: Entry| Entry { life: 2, ..entry };
        let all = [entry("a", 0, admitted), later(entry("b", 0, admitted)), later(entry("a", 0, refused)), later(entry("b", 0, refused))];
        assert_eq!(lost(&all), [PassedOver, Open, Open, Open], "it was under way when its process died, and refused by the next");
    }
}
