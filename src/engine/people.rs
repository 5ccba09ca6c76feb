//! The people around a run: who is asked, whose letters come, what was said to whom.
//!
//! A question is an event of its node, whose worker ends there and holds no place while it waits. Asking is done beside the
//! loop: at the terminal, and where nobody is there by the hooks that carry a question to somebody. The answer comes back
//! to the loop, from whoever is first; it alone says which one counts, and takes the node up again.
use super::{
    carry,
    inbox::{Letter, Says},
    listeners::hears,
    steps::Services,
};
use crate::{
    agent::Words,
    clock::{Clock, Timestamp},
    event::{Event, NodeId, Record},
    journal::{Answered, Question, RunState},
    tasks::Tasks,
    trace,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often the letters of a run that lives are looked for.
const LOOK: Duration = Duration::from_millis(300);

/// Who answers the questions of a run at once, where somebody is there.
#[async_trait]
pub trait Asker: Send + Sync {
    /// Asks a person, or whoever stands for one; nothing where nobody is there. Dropped where somebody else was first.
    async fn ask(&self, node: &NodeId, question: &Question) -> Option<Answered>;
}

/// Something that came from people.
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// An asking ended, with an answer or with nobody there.
    Asked { node: NodeId, call: String, answer: Option<Answered>, carried: Vec<Event> },
    /// A letter waits.
    Letter(String),
    /// A question's time is over.
    TimeOver,
}

/// What a letter came to, until it is taken away.
enum Taken {
    Recorded,
    Refused(String),
}

/// The people's side of one process's part of a run.
pub(super) struct People {
    /// Absent where nobody can be asked: a simulated run has no people.
    services: Option<Arc<Services>>,
    clock: Clock,
    cancel: CancellationToken,
    look: Interval,
    /// Letters that were seen and not taken up yet.
    seen: VecDeque<String>,
    /// Letters that were taken up and cannot be taken away.
    stuck: BTreeSet<String>,
    in_hand: Option<(String, Taken)>,
    /// Questions that were asked in this process.
    asked: HashMap<(NodeId, String), CancellationToken>,
    asking: Tasks<Heard>,
}

impl People {
    pub(super) fn new(state: &RunState, services: Option<&Arc<Services>>, clock: &Clock, cancel: &CancellationToken) -> People {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Some(services) = services {
            for (node, word) in state.words().iter().flat_map(|(node, said)| said.iter().map(move |word| (node, word))) {
                services.words.add(node, &word.text);
            }
        }
        People {
            services: services.cloned(),
            clock: clock.clone(),
            cancel: cancel.clone(),
            look,
            seen: VecDeque::new(),
            stuck: BTreeSet::new(),
            in_hand: None,
            asked: HashMap::new(),
            asking: Tasks::default(),
        }
    }

    /// Returns a letter that is there now.
    pub(super) fn letter(&mut self) -> Option<Heard> {
        if self.seen.is_empty() {
            let waiting = self.services.as_ref().map(|services| services.inbox.waiting()).unwrap_or_default();
            self.seen = waiting.into_iter().filter(|name| !self.stuck.contains(name)).collect();
        }
        self.seen.pop_front().map(Heard::Letter)
    }

    /// Waits for the next that comes from people. May be dropped and called again.
    pub(super) async fn hear(&mut self, deadline: Option<Timestamp>) -> Heard {
        if let Some(name) = self.seen.pop_front() {
            return Heard::Letter(name);
        }
        let clock = self.clock.clone();
        tokio::select! {
            biased;
            Some(heard) = self.asking.next() => heard,
            () = async { match deadline { Some(at) => clock.sleep_until(at).await, None => std::future::pending().await } } => Heard::TimeOver,
            _ = self.look.tick() => self.letter().unwrap_or(Heard::Nothing),
        }
    }

    /// Returns whether somebody is being asked.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Says what follows from something that was heard; each event may follow what is recorded.
    pub(super) fn take(&mut self, heard: Heard, state: &RunState) -> Vec<Event> {
        match heard {
            Heard::Nothing => Vec::new(),
            Heard::Asked { node, call, answer, carried } => {
                let may = |event: &Event| state.check(state.next_seq(), event).is_ok();
                let answered = answer.map(|answer| answered(&node, &call, answer));
                carried.into_iter().chain(answered).filter(may).collect()
            }
            Heard::TimeOver => over(state, self.clock.now()).into_iter().collect(),
            Heard::Letter(name) => match self.services.as_ref().and_then(|services| services.inbox.read(&name)) {
                None => {
                    self.in_hand = Some((name, Taken::Refused("it cannot be read".to_owned())));
                    Vec::new()
                }
                Some(letter) => {
                    let (taken, event) = match examine(state, &name, &letter) {
                        Ok(event) => (Taken::Recorded, event),
                        Err(why) => (Taken::Refused(why), None),
                    };
                    self.in_hand = Some((name, taken));
                    event.into_iter().collect()
                }
            },
        }
    }

    /// Says what follows from something that is heard while the run is being closed: nothing, and whoever wrote is told so.
    pub(super) fn too_late(&mut self, heard: &Heard) -> Vec<Event> {
        if let Heard::Letter(name) = heard {
            self.in_hand = Some((name.clone(), Taken::Refused("the run is at its end".to_owned())));
        }
        Vec::new()
    }

    /// Takes the letter away that was taken last, once what it says is recorded.
    pub(super) fn put_away(&mut self) {
        let (Some((name, taken)), Some(services)) = (self.in_hand.take(), &self.services) else { return };
        let done = match taken {
            Taken::Recorded => services.inbox.remove(&name),
            Taken::Refused(why) => services.inbox.refuse(&name, &why),
        };
        if let Err(error) = done {
            tracing::warn!(target: trace::TARGET, "the letter {name} could not be taken away: {error}");
            self.stuck.insert(name);
        }
    }

    /// Notes a record: whom to ask, whom no longer, what was said. Returns the node whose last question was answered.
    pub(super) fn note(&mut self, record: &Record, state: &RunState) -> Option<NodeId> {
        match &record.event {
            Event::QuestionAsked { node, .. } => {
                self.ask(&node.owner(), state);
                None
            }
            Event::QuestionAnswered { node, call, .. } => {
                self.forget(|of, open| of == node && open == call);
                let owner = node.owner();
                (!state.is_asking(&owner)).then_some(owner)
            }
            Event::ToolFinished { node, .. } if !self.asked.is_empty() => {
                let open: Vec<&str> =
                    state.node(node).into_iter().flat_map(|state| state.conversation.open_questions()).map(|open| open.call.as_str()).collect();
                self.forget(|of, call| of == node && !open.contains(&call));
                None
            }
            Event::StepStarted { node, .. } | Event::StepFinished { node, .. } if !self.asked.is_empty() => {
                self.forget(|of, _| of.owner() == *node);
                None
            }
            Event::Told { node, text, .. } => {
                if let Some(services) = &self.services {
                    services.words.add(node, text);
                }
                None
            }
            _ => None,
        }
    }

    /// Asks the open questions of a node and of its helpers that were not asked in this process.
    pub(super) fn ask(&mut self, owner: &NodeId, state: &RunState) {
        let Some(services) = self.services.clone() else { return };
        for (node, question) in state.questions().filter(|(node, _)| node.owner() == *owner) {
            let key = (node.clone(), question.call.clone());
            if self.asked.contains_key(&key) {
                continue;
            }
            let cancel = self.cancel.child_token();
            self.asked.insert(key, cancel.clone());
            let Some(carry) = carry::Carry::new(state, &services, node, question, &cancel) else { continue };
            let (services, node, question) = (services.clone(), node.clone(), question.clone());
            let nobody = Heard::Asked { node: node.clone(), call: question.call.clone(), answer: None, carried: Vec::new() };
            let asking = async move {
                let answer = tokio::select! {
                    biased;
                    answer = services.asker.ask(&node, &question) => answer,
                    () = cancel.cancelled() => None,
                };
                let is_open = answer.is_none() && !question.carried && !cancel.is_cancelled();
                let carried = if is_open { carry.run().await } else { Vec::new() };
                Heard::Asked { node, call: question.call, answer, carried }
            };
            self.asking.spawn(asking, |_| nobody);
        }
    }

    /// Answers a question of the run's own where there are no people: whoever stands for them in a simulated run approves.
    pub(super) fn at_once(&self, question: &Event) -> Option<Event> {
        let Event::QuestionAsked { node, call, .. } = question else { return None };
        let yes = || answered(node, call, Answered { allowed: true, by: "nobody".to_owned(), note: None });
        self.services.is_none().then(yes)
    }

    fn forget(&mut self, gone: impl Fn(&NodeId, &str) -> bool) {
        self.asked.retain(|(node, call), cancel| {
            let gone = gone(node, call);
            if gone {
                cancel.cancel();
            }
            !gone
        });
    }
}

/// Returns when the time of the first question is over.
pub(super) fn deadline(state: &RunState) -> Option<Timestamp> {
    state.questions().filter_map(|(_, question)| question.form.deadline).map(|deadline| deadline.at).min()
}

/// Answers a question whose time is over.
pub(super) fn over(state: &RunState, now: Timestamp) -> Option<Event> {
    let late = |question: &Question| question.form.deadline.filter(|deadline| deadline.at <= now);
    let (node, question, deadline) = state.questions().find_map(|(node, question)| Some((node, question, late(question)?)))?;
    Some(answered(node, &question.call, Answered { allowed: deadline.allows, by: "timeout".to_owned(), note: None }))
}

fn answered(node: &NodeId, call: &str, answer: Answered) -> Event {
    let Answered { allowed, by, note } = answer;
    Event::QuestionAnswered { node: node.clone(), call: call.to_owned(), allowed, by, note }
}

/// Examines a letter against the state of the run: the event it is recorded by, none where it is recorded already.
///
/// # Errors
/// Why it counts for nothing, for whoever wrote it.
fn examine(state: &RunState, name: &str, letter: &Letter) -> Result<Option<Event>, String> {
    let Letter { node, by, at, says } = letter;
    match says {
        Says::Answer { call, allowed, note } => {
            let Some((_, question)) = state.questions().find(|(of, question)| *of == node && question.call == *call) else {
                return match state.node(node).and_then(|state| state.conversation.question(call)?.answer.as_ref()) {
                    // A process that died before it took the letter away has recorded it.
                    Some(first) if (first.allowed, &first.by, &first.note) == (*allowed, by, note) => Ok(None),
                    Some(first) => Err(format!("{} has answered it already", first.by)),
                    None => Err(format!("`{node}` does not wait for this answer any more")),
                };
            };
            if question.form.deadline.is_some_and(|deadline| deadline.at < *at) {
                return Err(format!("the time for an answer is over, and `{node}` goes on without one"));
            }
            Ok(Some(answered(node, call, Answered { allowed: *allowed, by: by.clone(), note: note.clone() })))
        }
        Says::Cancel => Ok(state.cancelled().is_none().then(|| Event::RunCancelled { by: by.clone() })),
        Says::Word(text) => {
            let told = Event::Told { node: node.clone(), text: text.clone(), by: by.clone(), letter: name.to_owned() };
            if state.words().get(node).is_some_and(|said| said.iter().any(|word| word.letter == name)) {
                return Ok(None);
            }
            hears(state, node).map_err(|why| why.to_string()).map(|()| Some(told))
        }
    }
}

/// The words for all agents of a run, as far as they are recorded.
#[derive(Debug, Default)]
pub struct Spoken(Mutex<HashMap<NodeId, Vec<String>>>);

impl Spoken {
    fn add(&self, node: &NodeId, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(node.clone()).or_default().push(text.to_owned());
    }
}

impl Words for Spoken {
    fn word(&self, node: &NodeId, place: usize) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node)?.get(place).cloned()
    }
}
