//! The state of a run: what a prefix of its log says. Pure.
//!
//! What may follow what stands in `legal`, what an event changes in `fold`.
//!
//! It keeps counters of unmet needs and the changed frontier (`todo`, `ready`), so that deciding what comes next looks at
//! what an event touched and not at the whole graph.
use super::{
    Conversation, Question, Queue, Spent, Watch,
    seats::{Frames, Nodes, Seat},
};
use crate::{
    clock::Timestamp,
    event::{
        CommitId, Delivery, Event, Frame, Isolation, Item, Limit, MergeProgress, NodeId, NodeName, Outcome, Record, RunStarted, SelectProgress, SkipCause,
        StepId,
    },
    plan::{Plan, PlannedStep, Trait},
    workflow::Power,
};
use foldhash::{HashMap, HashMapExt as _};
use serde_json::{Map, Value};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{Arc, LazyLock},
};

/// The reserved id of the frame that runs after a run that failed.
pub const ON_FAILURE: &str = "on_failure";
/// The reserved id of the frame that runs at the end of every run.
pub const FINALLY: &str = "finally";

/// The state of one run.
#[derive(Debug, Clone)]
pub struct RunState {
    pub(super) plan: Arc<Plan>,
    pub(super) next_seq: u64,
    pub(super) started: Option<Arc<RunStarted>>,
    pub(super) frames: Frames,
    pub(super) watched: BTreeSet<Vec<Frame>>,
    pub(super) nodes: Nodes,
    pub(super) words: BTreeMap<NodeId, Vec<Word>>,
    pub(super) fans: HashMap<NodeId, Fan>,
    pub(super) helpers: HashMap<NodeId, BTreeSet<String>>,
    pub(super) todo: BTreeMap<NodeId, Todo>,
    pub(super) ready: Queue<Place, NodeId>,
    pub(super) free: Queue<Place, NodeId>,
    pub(super) running: Queue<Place, NodeId>,
    pub(super) open: BTreeSet<NodeId>,
    pub(super) doomed: BTreeMap<NodeId, NodeId>,
    pub(super) asking: BTreeSet<NodeId>,
    pub(super) parked: BTreeMap<NodeId, String>,
    pub(super) timers: BTreeMap<NodeId, Timestamp>,
    pub(super) deadlines: BTreeMap<NodeId, Timestamp>,
    pub(super) spent: Spent,
    /// The limit of the run's budget that was reached.
    pub(super) limit: Option<Limit>,
    pub(super) cancelled: Option<String>,
    /// Whether some work has become a commit.
    pub(super) has_commits: bool,
    pub(super) branch: Option<Branch>,
    pub(super) finished: Option<Outcome>,
}

/// The graph that one frame runs: the run's own, an iteration of a loop's body, a called workflow, an ending.
#[derive(Debug, Clone)]
pub struct FrameState {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Steps that have not ended.
    pub open_steps: usize,
    /// The first step that failed and whose failure counts.
    pub failed: Option<StepId>,
    /// The orchestrator's side.
    pub watch: Watch,
    /// The commit its steps start from; the run's own have it from the run.
    pub base: Option<CommitId>,
    /// The inputs of a called workflow; a loop's body and an ending have those around them.
    pub inputs: Option<Map<String, Value>>,
    /// The seat of its first step; the others follow in the order of the plan.
    pub(super) first: Seat,
}

/// The state of one node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeState {
    /// Where it stands.
    pub phase: Phase,
    /// Attempts begun.
    pub attempts: u32,
    /// Those of them that were lost with their files.
    pub lost: u32,
    /// Iterations begun in the present attempt, of a loop; 1 for a call that has begun.
    pub round: u32,
    /// Whether the agent that its step names for failed items does the present attempt.
    pub handed_over: bool,
    /// When the present attempt began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The item, where it is one.
    pub item: Option<Arc<Item>>,
    /// What the present attempt has done so far, its conversation apart.
    pub deeds: Deeds,
    /// Its agent's conversation in the present attempt.
    pub conversation: Conversation,
    /// What all its attempts have used.
    pub spent: Spent,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Its place among all nodes.
    pub(super) place: Place,
    pub(super) unmet: u32,
    pub(super) condition: Option<bool>,
}

/// What an attempt has done besides talking; most do nothing of it.
#[derive(Debug, Clone, Default)]
pub struct Deeds(Option<Arc<Done>>);

/// What was done in an attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Done {
    /// Where the attempt works.
    pub workspace: Option<Workspace>,
    /// The commit of its work and the paths that differ, once captured.
    pub captured: Option<(CommitId, Vec<String>)>,
    /// The commit that keeps the files of its present attempt, which has no result.
    pub checkpoint: Option<CommitId>,
    /// What its merge did so far.
    pub merged: Vec<MergeProgress>,
    /// What its choice did so far.
    pub selected: Vec<SelectProgress>,
    /// What became of its work, where it is a sub-agent's session.
    pub delivered: Option<Delivery>,
}

impl Deeds {
    pub(super) fn note(&mut self) -> &mut Done {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl Deref for Deeds {
    type Target = Done;

    fn deref(&self) -> &Done {
        static NOTHING: LazyLock<Done> = LazyLock::new(Done::default);
        self.0.as_deref().unwrap_or_else(|| &*NOTHING)
    }
}

impl PartialEq for Deeds {
    fn eq(&self, other: &Deeds) -> bool {
        **self == **other
    }
}

impl NodeState {
    /// Returns how many of its attempts count against its retries.
    pub fn counted_attempts(&self) -> u32 {
        self.attempts - self.lost
    }
}

/// What a person said to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The text.
    pub text: String,
    /// The letter it came by.
    pub letter: String,
}

/// A node's place among all that the plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The frame's in the order of opening.
    pub(super) frame: u32,
    /// The step's in the plan's order.
    pub(super) step: u32,
    /// The item's in its list, from 1; 0 for the step itself.
    pub(super) item: u32,
}

impl Default for Place {
    /// The place of what the plan does not have: a helper, an ending, an orchestrator.
    fn default() -> Place {
        Place { frame: u32::MAX, step: u32::MAX, item: u32::MAX }
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Place {
    /// Returns a number by which places are in order.
    fn number(self) -> u128 {
        (u128::from(self.frame) << 64) | (u128::from(self.step) << 32) | u128::from(self.item)
    }

    pub(super) fn new(frame: usize, step: usize, item: usize) -> Place {
        let small = |number: usize| u32::try_from(number).expect("a run has fewer nodes than that");
        Place { frame: small(frame), step: small(step), item: small(item) }
    }

    /// Returns the first place behind a step and all its items.
    fn behind(self) -> Place {
        Place { step: self.step.saturating_add(1), item: 0, ..self }
    }
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// For its needs, or for a decision.
    #[default]
    Waiting,
    /// For a slot.
    Ready,
    /// Begun and not ended.
    Running,
    /// For the time of its retry.
    Retrying,
    /// Ended.
    Ended,
}

/// Where an attempt works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// The commit it started from.
    pub base: CommitId,
    /// How it is kept apart.
    pub isolation: Isolation,
    /// Where it stands.
    pub path: String,
}

/// What a node waits for that is not a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Todo {
    /// Its `if`.
    Evaluate,
    /// The items of its `for_each`.
    Expand,
    /// All its items have ended.
    Join,
    /// All steps inside it have ended: another iteration, or the end.
    Turn,
    /// It will never start.
    Skip(SkipCause),
}

/// The items of a `for_each`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fan {
    /// The items' nodes in the order of the list, added ones last.
    pub items: Vec<NodeId>,
    /// Items that have not ended.
    pub open: usize,
    /// How many may run at the same time.
    pub max_parallel: Option<u32>,
    /// How many have begun and not ended.
    pub running: u32,
    /// The item whose failure keeps others from beginning.
    pub halted_by: Option<NodeId>,
    pub(super) waiting_for: HashMap<String, Vec<String>>,
}

impl Fan {
    /// Returns the keys of the items.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| item.item.as_deref())
    }
}

/// The branch a run leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its full ref name.
    pub name: String,
    /// Where it stands.
    pub commit: CommitId,
    /// Whether it was made, or only intended so far.
    pub made: bool,
}

/// An event that cannot follow what was recorded before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} cannot follow what was recorded before it: {why} ({event})")]
pub struct IllegalEvent {
    /// Its number.
    pub seq: u64,
    /// What is wrong.
    pub why: &'static str,
    /// Which event, and of which node.
    pub event: String,
}

/// The step of the node that asks for the run itself: no step can have this name, and none sorts before it.
const ACCOUNT: &str = "(run)";

/// Returns the node that asks for the run itself.
pub(crate) fn account() -> NodeId {
    NodeId::step(&ACCOUNT.into())
}

impl RunState {
    /// The state before the first record.
    pub fn new(plan: Arc<Plan>) -> RunState {
        let mut state = RunState {
            plan: plan.clone(),
            next_seq: 0,
            started: None,
            frames: Frames::default(),
            watched: BTreeSet::new(),
            nodes: Nodes::of_plan(&plan, |at| planned_state(&plan, 0, at)),
            words: BTreeMap::new(),
            fans: HashMap::new(),
            helpers: HashMap::new(),
            todo: BTreeMap::new(),
            ready: Queue::default(),
            free: Queue::default(),
            running: Queue::default(),
            open: BTreeSet::new(),
            doomed: BTreeMap::new(),
            asking: BTreeSet::new(),
            parked: BTreeMap::new(),
            timers: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            spent: Spent::default(),
            limit: None,
            cancelled: None,
            has_commits: false,
            branch: None,
            finished: None,
        };
        state.add_frame(Vec::new(), plan, None, None);
        state
    }

    /// Folds a whole log.
    ///
    /// # Errors
    /// On the first record that cannot follow.
    pub fn replay(plan: Arc<Plan>, records: &[Record]) -> Result<RunState, IllegalEvent> {
        let mut state = RunState::new(plan);
        records.iter().try_for_each(|record| state.apply(record))?;
        Ok(state)
    }

    /// Says whether `event` may come next, changing nothing.
    ///
    /// # Errors
    /// `IllegalEvent` where it may not.
    pub fn check(&self, seq: u64, event: &Event) -> Result<(), IllegalEvent> {
        let refused = |why| Err(IllegalEvent { seq, why, event: event.to_string() });
        if seq != self.next_seq {
            return refused("its number is out of order");
        }
        if self.finished.is_some() {
            return refused("the run is over");
        }
        if matches!(event, Event::RunStarted(_)) != self.started.is_none() {
            return refused("a run starts once, with its first record");
        }
        match self.objection(event) {
            Some(why) => refused(why),
            None => Ok(()),
        }
    }

    /// Folds one record.
    ///
    /// # Errors
    /// `IllegalEvent` where it cannot follow; the state is then unchanged.
    pub fn apply(&mut self, record: &Record) -> Result<(), IllegalEvent> {
        self.check(record.seq, &record.event)?;
        self.next_seq += 1;
        self.fold(&record.event, record.at);
        Ok(())
    }

    /// Returns the plan it is a state of.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the number of the next record.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns how the run was started.
    pub fn started(&self) -> Option<&Arc<RunStarted>> {
        self.started.as_ref()
    }

    /// Returns a node's state.
    pub fn node(&self, id: &NodeId) -> Option<&NodeState> {
        self.nodes.get(id)
    }

    /// Returns all nodes, sorted.
    pub fn nodes(&self) -> BTreeMap<&NodeId, &NodeState> {
        self.nodes.iter().collect()
    }

    /// Returns all nodes, in the order in which they came to be.
    pub fn each(&self) -> impl Iterator<Item = (&NodeId, &NodeState)> {
        self.nodes.iter()
    }

    /// Returns what people have said to agents, the earliest first; a node may have words before it is there.
    pub fn words(&self) -> &BTreeMap<NodeId, Vec<Word>> {
        &self.words
    }

    /// Returns how a node ended.
    pub fn outcome(&self, id: &NodeId) -> Option<&Outcome> {
        self.nodes.get(id)?.outcome.as_ref()
    }

    /// Returns a frame; the run's own is that of no frames at all.
    pub fn frame(&self, within: &[Frame]) -> Option<&FrameState> {
        self.frames.get(within)
    }

    /// Returns the frames with an orchestrator.
    pub fn watched(&self) -> &BTreeSet<Vec<Frame>> {
        &self.watched
    }

    /// Returns what is planned of a node, whatever frame it is in.
    pub fn step(&self, node: &NodeId) -> Option<&PlannedStep> {
        match self.nodes.seat(node).and_then(|seat| self.planned(seat)) {
            Some(step) => Some(step),
            None => self.frames.get(&node.within)?.plan.step(&node.step),
        }
    }

    /// Returns what is planned of whoever has a seat.
    pub(super) fn planned(&self, seat: Seat) -> Option<&PlannedStep> {
        let place = self.nodes[seat].place;
        self.frames.at(place.frame as usize)?.plan.at(place.step as usize)
    }

    /// Returns whether the step of whoever has a seat is of this kind; nothing where none is planned.
    pub(super) fn is(&self, seat: Seat, this: Trait) -> Option<bool> {
        let place = self.nodes[seat].place;
        self.frames.at(place.frame as usize)?.plan.is(place.step as usize, this)
    }

    /// Returns whether a node takes one of the run's places while it runs.
    pub fn takes_a_place(&self, node: &NodeId) -> bool {
        match self.nodes.seat(node).and_then(|seat| self.is(seat, Trait::TakesAPlace)) {
            Some(takes) => takes,
            None => self.step(node).is_none_or(PlannedStep::takes_a_place),
        }
    }

    /// Returns the nodes of the steps that a node's step waits for.
    pub fn needs(&self, node: &NodeId) -> impl Iterator<Item = &NodeId> {
        let place = self.nodes.get(node).map(|state| state.place);
        let frame = place.and_then(|place| Some((self.frames.at(place.frame as usize)?, place.step as usize)));
        frame.into_iter().flat_map(|(frame, step)| frame.plan.needs_at(step).map(|need| self.nodes.name(frame.first + need)))
    }

    /// Returns a number that a node has for good, for as long as it is there: those of all nodes follow each other from 0.
    pub(crate) fn seat(&self, node: &NodeId) -> Option<usize> {
        self.nodes.seat(node)
    }

    /// Returns the node of an item's step, with its items.
    pub fn fan_of(&self, item: &NodeId) -> Option<(&NodeId, &Fan)> {
        let whole = self.whole(self.nodes.seat(item)?)?;
        Some((whole, self.fans.get(whole)?))
    }

    /// Returns the node of the step that whoever has a seat is of.
    pub(super) fn whole(&self, seat: Seat) -> Option<&NodeId> {
        let place = self.nodes[seat].place;
        Some(self.nodes.name(self.frames.at(place.frame as usize)?.first + place.step as usize))
    }

    /// Returns the present frame of a node whose steps have begun.
    pub fn inner(&self, node: &NodeId) -> Option<(Vec<Frame>, &FrameState)> {
        let state = self.nodes.get(node).filter(|state| state.round > 0)?;
        let within = node.frame(state.attempts, state.round);
        let frame = self.frames.get(&within)?;
        Some((within, frame))
    }

    /// Returns the items of a step.
    pub fn fan(&self, step: &NodeId) -> Option<&Fan> {
        self.fans.get(step)
    }

    /// Returns the items' nodes of a step, in order.
    pub fn items(&self, step: &NodeId) -> impl Iterator<Item = (NodeId, &NodeState)> {
        let items = self.fans.get(step).map(|fan| fan.items.as_slice()).unwrap_or_default();
        items.iter().filter_map(|id| Some((id.clone(), self.nodes.get(id)?)))
    }

    /// Returns the helper sessions of a node by name.
    pub fn helpers(&self, node: &NodeId) -> impl Iterator<Item = (&str, &NodeState)> {
        let names = self.helpers.get(node).into_iter().flatten();
        names.filter_map(move |name| Some((name.as_str(), self.nodes.get(&node.helper(name))?)))
    }

    /// Returns what waits for a decision that needs no slot.
    pub fn todo(&self) -> &BTreeMap<NodeId, Todo> {
        &self.todo
    }

    /// Returns what waits for a slot, in the order in which it is to get one, from the step behind that of `after` on.
    pub fn ready_after<'s>(&'s self, after: Option<&NodeId>) -> impl Iterator<Item = &'s NodeId> + use<'s> {
        let from = after.and_then(|node| self.nodes.get(node)).map_or(Place::new(0, 0, 0), |state| state.place.behind());
        self.ready.starting(&from)
    }

    /// Returns what may begin and takes no slot, likewise.
    pub fn free_after<'s>(&'s self, after: Option<&NodeId>) -> impl Iterator<Item = &'s NodeId> + use<'s> {
        let from = after.and_then(|node| self.nodes.get(node)).map_or(Place::new(0, 0, 0), |state| state.place.behind());
        self.free.starting(&from)
    }

    /// Returns running items that are to be stopped, each with the one whose failure is why.
    pub fn doomed(&self) -> &BTreeMap<NodeId, NodeId> {
        &self.doomed
    }

    /// Returns when nodes whose steps are under way are out of time.
    pub fn deadlines(&self) -> &BTreeMap<NodeId, Timestamp> {
        &self.deadlines
    }

    /// Returns what has begun and not ended, in the order of the plan.
    pub fn running(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.running.values()
    }

    /// Returns whether a node has begun and not ended.
    pub fn is_running(&self, id: &NodeId) -> bool {
        self.nodes.get(id).is_some_and(|state| self.running.contains(&state.place))
    }

    /// Returns the questions that wait for a person, with the nodes that ask them, sorted.
    pub fn questions(&self) -> impl Iterator<Item = (&NodeId, &Question)> {
        self.asking.iter().flat_map(|id| self.nodes.get(id).into_iter().flat_map(move |node| node.conversation.open_questions().map(move |open| (id, open))))
    }

    /// Returns whether a node, or a helper session of it, waits for a person.
    pub fn is_asking(&self, owner: &NodeId) -> bool {
        self.asking.iter().any(|id| id.owner() == *owner)
    }

    /// Returns the nodes that wait for a model that cannot be had until the run is resumed, each with why.
    pub fn parked(&self) -> &BTreeMap<NodeId, String> {
        &self.parked
    }

    /// Returns whether a node, or a helper session of it, waits for a person or for a model.
    pub fn waits(&self, owner: &NodeId) -> bool {
        self.is_asking(owner) || self.parked.keys().any(|id| id.owner() == *owner)
    }

    /// Returns what waits for a time.
    pub fn timers(&self) -> &BTreeMap<NodeId, Timestamp> {
        &self.timers
    }

    /// Returns how many steps have not ended.
    pub fn open_steps(&self) -> usize {
        self.frames.at(0).map_or(0, |frame| frame.open_steps)
    }

    /// Returns what all agents have used.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Returns whether a person is being asked whether the run may use more than its limits say.
    pub fn is_held(&self) -> bool {
        self.asks_for_more() && self.allowance("").is_asked
    }

    /// Returns whether a person is being asked whether more may be used than the budget of the run, of a step or of a call says.
    pub fn asks_for_more(&self) -> bool {
        self.asking.first().is_some_and(|node| node.step.0 == ACCOUNT)
    }

    /// Returns whether some node has ended with a commit.
    pub fn has_commits(&self) -> bool {
        self.has_commits
    }

    /// Returns the limit of the run that was reached.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Returns who called the run off.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// Returns whether a node is not to go on since the run was called off: all are that but those of `finally`.
    pub fn is_called_off(&self, within: &[Frame]) -> bool {
        self.cancelled.is_some() && within.first().is_none_or(|frame| frame.step.0 != FINALLY)
    }

    /// Returns what has begun, or waits for another try, and is to be ended since the run was called off: the outermost nodes.
    pub fn to_call_off(&self) -> Vec<NodeId> {
        let is_ending = |node: &NodeId| matches!(node.step.0.as_str(), ON_FAILURE | FINALLY);
        let begun: BTreeSet<&NodeId> =
            self.running.values().chain(&self.open).chain(self.timers.keys()).filter(|node| self.is_called_off(&node.within) && !is_ending(node)).collect();
        begun.iter().filter(|node| !begun.iter().any(|other| node.is_inside(other))).map(|node| (*node).clone()).collect()
    }

    /// Returns whether the run did less than it was asked for, since a budget that may finish was used up.
    pub fn is_partial(&self) -> bool {
        let is_left_out = |node: &NodeState| matches!(node.outcome, Some(Outcome::Skipped(SkipCause::Budget(_))));
        self.limit.is_some() || self.nodes.iter().any(|(_, node)| is_left_out(node))
    }

    /// Returns the branch the run leaves.
    pub fn branch(&self) -> Option<&Branch> {
        self.branch.as_ref()
    }

    /// Returns how the run ended.
    pub fn finished(&self) -> Option<&Outcome> {
        self.finished.as_ref()
    }

    /// Returns whether a step's items may be joined: nothing can be added to them any more.
    pub fn may_join(&self, step: &NodeId) -> bool {
        let Some(frame) = self.frames.get(&step.within) else { return true };
        let Some(spec) = frame.plan.orchestrator.as_ref().filter(|spec| spec.supervises.contains(&step.step)) else { return true };
        let may_change = |power: &Power| match power {
            Power::AddItems => self.step(step).is_some_and(|step| step.for_each.is_some()) && frame.watch.added() < spec.max_added,
            Power::Retry => self.items(step).any(|(_, item)| item.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_some())),
            Power::Stop | Power::Ask => false,
        };
        self.is_called_off(&step.within) || frame.watch.is_quiet() || !spec.may.iter().any(may_change)
    }

    /// Returns whether a node is the orchestrator of its frame.
    pub fn is_orchestrator(&self, id: &NodeId) -> bool {
        let frame = self.frames.get(&id.within);
        id.item.is_none() && id.helper.is_none() && frame.and_then(|frame| frame.plan.orchestrator.as_ref()).is_some_and(|spec| spec.node.step == id.step)
    }

    pub(super) fn watch_of(&self, id: &NodeId) -> Option<&Watch> {
        self.is_orchestrator(id).then(|| self.frames.get(&id.within).map(|frame| &frame.watch)).flatten()
    }

    /// A helper session lives while its owner runs; the orchestrator while it is awake.
    pub(super) fn is_active(&self, id: &NodeId) -> bool {
        if self.is_orchestrator(&id.owner()) { self.watch_of(&id.owner()).is_some_and(Watch::is_awake) } else { self.is_running(&id.owner()) }
    }

    /// Adds a frame with a node for each of its steps.
    pub(super) fn add_frame(&mut self, within: Vec<Frame>, plan: Arc<Plan>, base: Option<CommitId>, inputs: Option<Map<String, Value>>) {
        let order = self.frames.len();
        let first = if order == 0 { 0 } else { self.nodes.len() };
        // The run's own are there from the beginning.
        for (at, id) in plan.order().iter().enumerate().filter(|_| order > 0) {
            self.nodes.add_last(NodeName { within: within.clone(), step: id.clone(), item: None, helper: None }, planned_state(&plan, order, at));
        }
        if plan.orchestrator.is_some() {
            self.watched.insert(within.clone());
        }
        let frame = FrameState { open_steps: plan.order().len(), plan, failed: None, watch: Watch::default(), base, inputs, first };
        self.frames.add(within, frame);
    }

    /// Returns the plan of the steps inside a node.
    pub(super) fn inner_plan(&self, node: &NodeId) -> Option<Arc<Plan>> {
        super::ahead::inside(&self.frames.get(&node.within)?.plan, &node.step).cloned()
    }
}

/// Makes the state of a step that nothing has happened to.
fn planned_state(plan: &Plan, frame: usize, at: usize) -> NodeState {
    let unmet = u32::try_from(plan.needs_at(at).count()).expect("a plan has fewer steps than that");
    NodeState { place: Place::new(frame, at, 0), unmet, ..NodeState::default() }
}
