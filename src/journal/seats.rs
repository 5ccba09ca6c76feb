//! Where the states of nodes and frames are kept: each in a seat that it has for good, found by its name.
//!
//! What a fold does to a node it does by its seat: that is looked up once for an event, and not at all for a name that
//! remembers it.
use super::{FrameState, NodeState};
use crate::{
    event::{Frame, NodeId, NodeName},
    plan::Plan,
};
use foldhash::{HashMap, HashMapExt as _};
use std::{
    ops::{Index, IndexMut},
    sync::Arc,
};

/// A node's place among all nodes of a run.
pub(super) type Seat = usize;

/// The states of nodes by name.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    seats: Vec<(NodeId, NodeState)>,
    /// Of the run itself, whose steps sit first, in its order.
    plan: Arc<Plan>,
    /// Of all others.
    index: HashMap<NodeId, Seat>,
    /// Seats whose nodes are gone.
    left: Vec<Seat>,
}

impl Nodes {
    /// Seats the steps of a plan.
    pub(super) fn of_plan(plan: &Arc<Plan>, state: impl Fn(usize) -> NodeState) -> Nodes {
        let seats = plan.nodes().iter().cloned().zip((0..).map(state)).collect();
        Nodes { seats, plan: plan.clone(), index: HashMap::new(), left: Vec::new() }
    }

    /// Returns how many seats there are: the next node's, where none was left.
    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Returns the seat of a node.
    pub(super) fn seat(&self, id: &NodeId) -> Option<Seat> {
        let seat = id.seat();
        if self.seats.get(seat).is_some_and(|(own, _)| own.is_copy_of(id)) {
            return Some(seat);
        }
        let is_step = id.within.is_empty() && id.item.is_none() && id.helper.is_none();
        is_step.then(|| self.plan.place(&id.step)).flatten().or_else(|| self.index.get(id).copied())
    }

    /// Returns the seat of a node, which gets one where it has none.
    pub(super) fn seat_or_new(&mut self, id: &NodeId) -> Seat {
        self.seat(id).unwrap_or_else(|| self.add(id.clone(), NodeState::default()))
    }

    /// Seats a node that has no seat.
    pub(super) fn add(&mut self, id: NodeId, state: NodeState) -> Seat {
        let seat = self.left.pop().unwrap_or(self.seats.len());
        self.index.insert(id.clone(), seat);
        match self.seats.get_mut(seat) {
            Some(left) => *left = (id, state),
            None => self.seats.push((id, state)),
        }
        seat
    }

    /// Seats a node on a new seat, which its name remembers.
    pub(super) fn add_last(&mut self, name: NodeName, state: NodeState) -> Seat {
        let seat = self.seats.len();
        let id = NodeId::seated(name, seat);
        self.index.insert(id.clone(), seat);
        self.seats.push((id, state));
        seat
    }

    pub(super) fn remove(&mut self, id: &NodeId) {
        if let Some(seat) = self.index.remove(id) {
            self.seats[seat].1 = NodeState::default();
            self.left.push(seat);
        }
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<&NodeState> {
        self.seat(id).map(|seat| &self[seat])
    }

    /// Returns who sits there.
    pub(super) fn name(&self, seat: Seat) -> &NodeId {
        &self.seats[seat].0
    }

    /// Returns all nodes, in the order of their seats.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &NodeState)> {
        self.seats.iter().enumerate().filter(|(seat, (id, _))| self.seat(id) == Some(*seat)).map(|(_, (id, state))| (id, state))
    }
}

impl Index<Seat> for Nodes {
    type Output = NodeState;

    fn index(&self, seat: Seat) -> &NodeState {
        &self.seats[seat].1
    }
}

impl IndexMut<Seat> for Nodes {
    fn index_mut(&mut self, seat: Seat) -> &mut NodeState {
        &mut self.seats[seat].1
    }
}

/// The frames of a run, in the order of opening; the run's own is the first.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    all: Vec<FrameState>,
    index: HashMap<Vec<Frame>, usize>,
}

impl Frames {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn add(&mut self, within: Vec<Frame>, frame: FrameState) {
        self.index.insert(within, self.all.len());
        self.all.push(frame);
    }

    pub(super) fn contains(&self, within: &[Frame]) -> bool {
        self.place(within).is_some()
    }

    pub(super) fn get(&self, within: &[Frame]) -> Option<&FrameState> {
        self.all.get(self.place(within)?)
    }

    pub(super) fn get_mut(&mut self, within: &[Frame]) -> Option<&mut FrameState> {
        let place = self.place(within)?;
        self.all.get_mut(place)
    }

    /// Returns the frame that was opened as this one in order.
    pub(super) fn at(&self, place: usize) -> Option<&FrameState> {
        self.all.get(place)
    }

    fn place(&self, within: &[Frame]) -> Option<usize> {
        if within.is_empty() { Some(0) } else { self.index.get(within).copied() }
    }
}
