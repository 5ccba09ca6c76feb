//! What to do next, from the plan and the state alone. Pure: no clock, no I/O, no randomness, no template is rendered.
//!
//! It looks at the frontier that the fold keeps and at what is live, never at the whole graph; its cost is that of what
//! it commands.
use crate::{
    event::{NodeId, SkipCause, StepId},
    journal::{RunState, Todo},
    plan::{Plan, Work},
    workflow::{OnExceed, Wake},
};
use std::collections::BTreeSet;

/// What the loop is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begin an attempt.
    Start {
        /// The node.
        node: NodeId,
        /// From 1.
        attempt: u32,
    },
    /// Take up a node that was begun by a process that died.
    Continue {
        /// The node.
        node: NodeId,
    },
    /// Evaluate a step's `if`.
    Evaluate {
        /// The node.
        node: NodeId,
    },
    /// Work out the items of a `for_each`.
    Expand {
        /// The step.
        step: StepId,
    },
    /// Make one result of a step's items.
    Join {
        /// The step.
        step: StepId,
    },
    /// Record that a node will not start.
    Skip {
        /// The node.
        node: NodeId,
        /// Why.
        cause: SkipCause,
    },
    /// Tell the orchestrator what changed.
    Wake {
        /// Why, where it is not for what is noted already.
        idle: bool,
    },
    /// Everything ended: make the branch and end the run.
    Close,
}

/// What this process is doing, which no journal can know.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Nodes with a worker, the orchestrator's among them.
    pub nodes: BTreeSet<NodeId>,
    /// Nodes that wait for a person in this process.
    pub parked: BTreeSet<NodeId>,
    /// Whether the run is being closed.
    pub closing: bool,
    /// Whether nothing new may begin: the process is to end.
    pub stopping: bool,
}

/// Says what to do next.
pub fn decide(plan: &Plan, state: &RunState, live: &Live) -> Vec<Command> {
    if live.stopping || live.closing || state.finished().is_some() || state.started().is_none() {
        return Vec::new();
    }
    let mut commands = settle(state);
    start(plan, state, live, &mut commands);
    orchestrate(plan, state, live, &mut commands);
    let resting = plan.orchestrator.as_ref().is_none_or(|_| state.watch().is_broken() || (state.watch().is_closed() && !state.watch().is_awake()));
    if state.open_steps() == 0 && resting {
        commands.push(Command::Close);
    }
    commands
}

/// What needs no slot.
fn settle(state: &RunState) -> Vec<Command> {
    let command = |(node, todo): (&NodeId, &Todo)| match todo {
        Todo::Evaluate => Some(Command::Evaluate { node: node.clone() }),
        Todo::Expand => Some(Command::Expand { step: node.step.clone() }),
        Todo::Join => state.may_join(&node.step).then(|| Command::Join { step: node.step.clone() }),
        Todo::Skip(cause) => Some(Command::Skip { node: node.clone(), cause: cause.clone() }),
    };
    state.todo().iter().filter_map(command).collect()
}

/// What takes a slot. A limit queues, it never refuses.
fn start(plan: &Plan, state: &RunState, live: &Live, commands: &mut Vec<Command>) {
    let orchestrator = plan.orchestrator.as_ref().map(|spec| &spec.node);
    let busy = live.nodes.iter().filter(|node| Some(*node) != orchestrator).count();
    let mut room = plan.max_parallel.saturating_sub(busy);
    let parked = live.parked.iter().filter(|node| Some(*node) != orchestrator).count();
    if state.running().len() > busy + parked {
        for node in state.running().iter().filter(|node| !live.nodes.contains(node) && !live.parked.contains(node)).take(room) {
            commands.push(Command::Continue { node: node.clone() });
            room -= 1;
        }
    }
    // At the end of its budget a run begins no agent more, and nothing at all where it is to stop.
    let limited = state.limit().is_some();
    let stops = plan.on_exceed == OnExceed::Stop;
    let mut begun: std::collections::BTreeMap<&StepId, u32> = std::collections::BTreeMap::new();
    let mut rest = state.ready_from(0);
    while let Some(node) = rest.next() {
        let is_agent = || plan.step(&node.step).is_some_and(|step| matches!(step.work, Work::Agent { .. }));
        if limited && (stops || is_agent()) {
            commands.push(Command::Skip { node: node.clone(), cause: SkipCause::RunEnding });
            continue;
        }
        if room == 0 {
            break;
        }
        let fan = state.fan(&node.step).filter(|_| node.item.is_some());
        let begun = begun.entry(&node.step).or_default();
        if fan.is_some_and(|fan| fan.max_parallel.is_some_and(|most| fan.running + *begun >= most)) {
            // None of its other items may begin either, however many there are.
            rest = state.ready_from(state.place(node) + 1);
            continue;
        }
        *begun += 1;
        room -= 1;
        commands.push(Command::Start { node: node.clone(), attempt: state.node(node).map_or(0, |state| state.attempts) + 1 });
    }
}

fn orchestrate(plan: &Plan, state: &RunState, live: &Live, commands: &mut Vec<Command>) {
    let Some(spec) = &plan.orchestrator else { return };
    let watch = state.watch();
    if watch.is_broken() || live.nodes.contains(&spec.node) || live.parked.contains(&spec.node) {
        return;
    }
    if watch.is_awake() {
        commands.push(Command::Continue { node: spec.node.clone() });
    } else if !watch.reasons().is_empty() || (state.open_steps() == 0 && !watch.is_closed()) {
        commands.push(Command::Wake { idle: false });
    } else if commands.is_empty() && live.nodes.is_empty() && state.open_steps() > 0 && !watch.knows_idle() && spec.wake.contains(&Wake::Idle) {
        commands.push(Command::Wake { idle: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        event::{CommitId, Event, Item, Record, RunId, RunStarted},
        plan::Catalog,
        source::Source,
        workflow::Workflow,
    };
    use std::sync::Arc;

    fn state(yaml: &str, told: Vec<Event>) -> RunState {
        let source = Source { name: "w.yaml".to_owned(), text: yaml.to_owned() };
        let workflow = Workflow::load(&Arc::new(source)).unwrap();
        let (plan, _) = Plan::compile(&workflow, &Catalog::default()).unwrap();
        let began = RunStarted {
            run: RunId::from("w-1"),
            workflow: "w".to_owned(),
            file: "w.yaml".to_owned(),
            inputs: serde_json::Map::new(),
            base: CommitId::from("0"),
            head: None,
            pins: std::collections::BTreeMap::new(),
            script: None,
        };
        let events = std::iter::once(Event::RunStarted(began)).chain(told);
        let records: Vec<Record> = (0..).zip(events).map(|(seq, event)| Record { seq, at: Timestamp(0), event }).collect();
        RunState::replay(Arc::new(plan), &records).unwrap()
    }

    #[test]
    fn items_beyond_their_limit_do_not_hold_up_later_steps() {
        let yaml =
            "version: 1\nname: w\nsteps:\n  m:\n    for_each: { items: [1], as: n }\n    run: \"true\"\n  m0: { run: \"true\" }\n  z: { run: \"true\" }\n";
        let step = StepId::from("m");
        let items = (0..50).map(|n| Item { key: n.to_string(), value: n.into(), needs: Vec::new() }).collect();
        let added = Event::ItemsAdded { step: step.clone(), items, by: NodeId::step(&step), max_parallel: Some(2) };
        let state = state(yaml, vec![added]);
        let begun: Vec<String> = decide(state.plan(), &state, &Live::default())
            .iter()
            .map(|command| if let Command::Start { node, .. } = command { node.to_string() } else { format!("{command:?}") })
            .collect();
        assert_eq!(begun, ["m/0", "m/1", "m0", "z"]);
    }
}
