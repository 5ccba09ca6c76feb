//! Which records of a run still hold where it is to be done again in part, and what follows from those that do not. Pure.
//!
//! This is the one algorithm behind `retry`, `rerun`, `fork` and `plan RUN`; in a `resume` everything holds. A step does not
//! hold where its definition is another one now, where it reads an input that has changed, where the wish names it, where it
//! did not come to an end of its own, and where a step that it needs does not hold. Of a step with items that holds otherwise,
//! each item is judged by itself. A record holds with the step or item that it is about, however deep inside of it it was
//! made; what holds is closed upwards, so that the records that hold can follow each other as they did.
use crate::{
    clock::Timestamp,
    event::{Definitions, Event, FailureKind, Item, NodeId, Outcome, Record, RunStarted, SkipCause, StepId, Wake, Wish},
    journal::{FINALLY, ON_FAILURE, account, whose},
    plan::{ORCHESTRATOR, Plan, PlannedStep, Reads, Work},
    workflow::OnItemFailure,
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

/// What a run is to be that follows from another one.
#[derive(Clone, Copy)]
pub(super) struct Anew<'a> {
    pub(super) plan: &'a Plan,
    /// What each step is now.
    pub(super) steps: &'a Definitions,
    /// What each step was when the other run began; empty where nobody knows.
    pub(super) before: &'a Definitions,
    pub(super) inputs: &'a Map<String, Value>,
    pub(super) wish: &'a Wish,
}

/// What is kept of a run, and what is not.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The records that hold, in order, without the first one.
    pub(super) events: Vec<(Timestamp, Event)>,
    /// The steps and items that are done again, and the orchestrator where it begins anew; a step whose items hold in part
    /// is among them.
    pub(super) again: BTreeMap<NodeId, Reason>,
    /// The steps of which all is kept, in the order of the graph.
    pub(super) holds: Vec<StepId>,
}

/// Why something is done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// These parts of its definition changed.
    Changed(Vec<String>),
    /// It is new.
    New,
    /// It reads these inputs, which have changed.
    Reads(Vec<String>),
    /// It was asked for.
    Asked,
    /// It comes after a step, or an item, that is done again.
    After(NodeId),
    /// Some of its items are done again: how many, of how many.
    Items(usize, usize),
    /// It failed.
    Failed,
    /// It was left out because of what became of others, or of a budget.
    LeftOut,
    /// It had not come to an end of its own.
    Unended,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Changed(parts) => write!(f, "{} changed", parts.join(", ")),
            Reason::New => f.write_str("it is new"),
            Reason::Reads(names) if names.len() == 1 => write!(f, "reads the input {}", names[0]),
            Reason::Reads(names) => write!(f, "reads the inputs {}", names.join(", ")),
            Reason::Asked => f.write_str("asked for"),
            Reason::After(node) => write!(f, "after {node}"),
            Reason::Items(some, all) => write!(f, "{some} of {all} items"),
            Reason::Failed => f.write_str("failed"),
            Reason::LeftOut => f.write_str("was left out"),
            Reason::Unended => f.write_str("had not ended"),
        }
    }
}

/// Says what of a run's records holds. The first record is that of its beginning.
pub(super) fn holds(records: &[Record], anew: Anew<'_>) -> Held {
    let Some(past) = Past::of(records, anew.before) else { return Held::default() };
    let judge = Judge::new(&past, anew);
    let (again, partial) = judge.again();
    let until = judge.orchestrator(records, &again);
    let mut kept = Kept { past: &past, again: &again, partial: &partial, plan: anew.plan, until: until.as_ref().map_or(0, |until| *until) };
    let events = kept.events(records);
    let holds = anew.plan.order().iter().filter(|id| !again.contains_key(&NodeId::step(id))).cloned().collect();
    let mut again = again;
    if let Err(reason) = until
        && anew.plan.orchestrator.is_some()
    {
        again.insert(NodeId::step(&ORCHESTRATOR.into()), reason);
    }
    Held { events, again, holds }
}

/// Returns the steps and items of a run's own workflow that have not ended, items before their steps; no plan is needed for
/// that.
pub(super) fn unended(records: &[Record]) -> Vec<NodeId> {
    let none = Definitions::new();
    let Some(past) = Past::of(records, &none) else { return Vec::new() };
    let steps = past.forms.iter().rev().find(|form| !form.is_empty()).map_or(&past.started.steps, |form| *form);
    let with_items = |id: &StepId| {
        let step = NodeId::step(id);
        let items = past.items.get(id).into_iter().flatten().map(|item| step.with_item(&item.key));
        items.chain([step.clone()]).filter(|node| !past.ended.contains_key(node)).collect::<Vec<_>>()
    };
    steps.keys().filter(|id| id.0 != ORCHESTRATOR).flat_map(with_items).collect()
}

/// Returns the step or item of the run's own workflow that a node is, or stands inside of.
fn top(node: &NodeId) -> NodeId {
    match node.within.first() {
        Some(frame) => match &frame.item {
            Some(item) => NodeId::item(&frame.step, item),
            None => NodeId::step(&frame.step),
        },
        None => node.owner(),
    }
}

/// What became of a run, as its records tell without any plan.
struct Past<'r> {
    started: &'r RunStarted,
    /// How the steps and items of the run's own workflow ended.
    ended: HashMap<&'r NodeId, &'r Outcome>,
    items: BTreeMap<&'r StepId, Vec<&'r Item>>,
    /// What was ended from outside, or something inside of it was: it did not come to an end of its own.
    cut: HashSet<NodeId>,
    /// What was left out, or something inside of it, since a budget of its own was used up.
    left_out: HashSet<NodeId>,
    /// What the steps were, one after the other.
    forms: Vec<&'r Definitions>,
    /// Under which of those each step, or item, has been at work.
    lived: HashMap<NodeId, BTreeSet<usize>>,
    /// The names of the questions by which a person allowed more of the run's budget.
    raised: HashSet<&'r str>,
}

impl<'r> Past<'r> {
    fn of(records: &'r [Record], before: &'r Definitions) -> Option<Past<'r>> {
        let Event::RunStarted(started) = &records.first()?.event else { return None };
        let mut past = Past {
            started,
            ended: HashMap::new(),
            items: BTreeMap::new(),
            cut: HashSet::new(),
            left_out: HashSet::new(),
            forms: vec![before],
            lived: HashMap::new(),
            raised: HashSet::new(),
        };
        let mut limited = false;
        for record in records {
            if let Some(node) = record.event.node() {
                past.lived.entry(top(node)).or_default().insert(past.forms.len() - 1);
            }
            match &record.event {
                Event::RunResumed { steps, .. } if !steps.is_empty() => past.forms.push(steps),
                Event::LimitReached { .. } => limited = true,
                Event::ItemsAdded { step, items, .. } if step.within.is_empty() => past.items.entry(&step.step).or_default().extend(items),
                Event::StepStarted { node, .. } if node.within.is_empty() => {
                    past.cut.remove(node);
                    past.left_out.remove(node);
                }
                Event::RetryScheduled { node, .. } => past.revive(node),
                Event::QuestionAnswered { node, call, allowed: true, .. } if *node == account() => drop(past.raised.insert(call)),
                Event::StepFinished { node, outcome } => past.step_finished(node, outcome, limited),
                _ => {}
            }
        }
        Some(past)
    }

    fn step_finished(&mut self, node: &'r NodeId, outcome: &'r Outcome, limited: bool) {
        match outcome {
            Outcome::Skipped(SkipCause::RunEnding) => drop(self.cut.insert(top(node))),
            Outcome::Failed(failure) if failure.kind == FailureKind::Cancelled => drop(self.cut.insert(top(node))),
            Outcome::Failed(failure) if limited && matches!(failure.kind, FailureKind::Limit(_)) => drop(self.cut.insert(top(node))),
            Outcome::Skipped(SkipCause::Budget(_)) => drop(self.left_out.insert(top(node))),
            _ => {}
        }
        if node.within.is_empty() {
            self.ended.insert(node, outcome);
        }
    }

    /// An item that is tried again has not ended, nor have those that were skipped because of it.
    fn revive(&mut self, node: &NodeId) {
        if self.ended.remove(node).is_none() || node.item.is_none() {
            return;
        }
        let because = |(id, outcome): (&&'r NodeId, &&'r Outcome)| {
            (id.step == node.step && matches!(outcome, Outcome::Skipped(SkipCause::Upstream(upstream)) if upstream == node)).then_some(*id)
        };
        let skipped: Vec<&NodeId> = self.ended.iter().filter_map(because).collect();
        for id in skipped {
            self.revive(id);
        }
    }

    /// Returns the parts of a step that are other ones now than while it was at work.
    fn changed(&self, node: &NodeId, now: &Definitions) -> Option<Reason> {
        let lived = self.lived.get(node).cloned().unwrap_or_else(|| BTreeSet::from([self.forms.len() - 1]));
        let now = now.get(&node.step);
        let mut parts: BTreeSet<&str> = BTreeSet::new();
        for form in lived.into_iter().filter_map(|at| self.forms.get(at)) {
            match (form.get(&node.step), now) {
                _ if form.is_empty() => drop(parts.insert("definition")),
                (Some(then), Some(now)) => {
                    parts.extend(then.keys().chain(now.keys()).filter(|part| then.get(*part) != now.get(*part)).map(String::as_str));
                }
                (None, _) | (_, None) => return Some(Reason::New),
            }
        }
        (!parts.is_empty()).then(|| Reason::Changed(parts.into_iter().map(str::to_owned).collect()))
    }
}

/// Judges the steps of the new plan by what became of them.
struct Judge<'a> {
    past: &'a Past<'a>,
    anew: Anew<'a>,
    /// Inputs with another value.
    inputs: BTreeSet<&'a str>,
}

impl<'a> Judge<'a> {
    fn new(past: &'a Past<'a>, anew: Anew<'a>) -> Judge<'a> {
        let (then, now) = (&past.started.inputs, anew.inputs);
        let inputs = then.keys().chain(now.keys()).filter(|name| then.get(*name) != now.get(*name)).map(String::as_str).collect();
        Judge { past, anew, inputs }
    }

    /// Returns what is done again, and the steps among them whose list of items holds.
    fn again(&self) -> (BTreeMap<NodeId, Reason>, BTreeSet<StepId>) {
        let (mut again, mut partial) = (BTreeMap::new(), BTreeSet::new());
        for step in self.anew.plan.steps() {
            let node = NodeId::step(&step.id);
            let items = self.past.items.get(&step.id).filter(|_| step.is_fan());
            if let Some(reason) = self.as_defined(step, &node).or_else(|| self.needed(step, &again)) {
                again.insert(node, reason);
            } else if let Some(items) = items {
                let some = self.items(step, items);
                let own = self.own_end(&node);
                if !some.is_empty() {
                    again.insert(node, Reason::Items(some.len(), items.len()));
                    again.extend(some);
                    partial.insert(step.id.clone());
                } else if let Some(reason) = own {
                    // A step that failed although no item did has not to do with its items alone.
                    if reason != Reason::Failed {
                        partial.insert(step.id.clone());
                    }
                    again.insert(node, reason);
                }
            } else if let Some(reason) = self.own_end(&node) {
                again.insert(node, reason);
            }
        }
        (again, partial)
    }

    fn as_defined(&self, step: &PlannedStep, node: &NodeId) -> Option<Reason> {
        let of_items = || self.past.items.get(&step.id).into_iter().flatten().find_map(|item| self.past.changed(&node.with_item(&item.key), self.anew.steps));
        if let Some(reason) = self.past.changed(node, self.anew.steps).or_else(of_items) {
            return Some(reason);
        }
        let read: Vec<String> = self.inputs.iter().filter(|name| reads(step, name)).map(|name| (*name).to_owned()).collect();
        if !read.is_empty() {
            return Some(Reason::Reads(read));
        }
        (*self.anew.wish == Wish::From(node.clone())).then_some(Reason::Asked)
    }

    fn needed(&self, step: &PlannedStep, again: &BTreeMap<NodeId, Reason>) -> Option<Reason> {
        let mut needs = self.anew.plan.needs(&step.id).map(|(need, _)| NodeId::step(&need.id));
        needs.find(|need| again.contains_key(need)).map(Reason::After)
    }

    /// Says why a node is done again that nothing else asks for.
    fn own_end(&self, node: &NodeId) -> Option<Reason> {
        let Some(outcome) = self.past.ended.get(node).filter(|_| !self.past.cut.contains(node)) else { return Some(Reason::Unended) };
        match outcome {
            _ if *self.anew.wish != Wish::Failed => None,
            Outcome::Failed(_) => Some(Reason::Failed),
            Outcome::Skipped(SkipCause::Sibling(_) | SkipCause::Budget(_)) => Some(Reason::LeftOut),
            _ => self.past.left_out.contains(node).then_some(Reason::LeftOut),
        }
    }

    fn items(&self, step: &PlannedStep, items: &[&Item]) -> BTreeMap<NodeId, Reason> {
        let node = NodeId::step(&step.id);
        let mut again: BTreeMap<NodeId, Reason> = BTreeMap::new();
        for item in items {
            let id = node.with_item(&item.key);
            let asked = (*self.anew.wish == Wish::From(id.clone())).then_some(Reason::Asked);
            again.extend(asked.or_else(|| self.own_end(&id)).map(|reason| (id, reason)));
        }
        let stops = step.for_each.as_ref().is_some_and(|fan| fan.fail_fast || fan.on_item_failure == OnItemFailure::Stop)
            || step.matrix.as_ref().is_some_and(|fan| fan.fail_fast);
        if stops && !again.is_empty() {
            // A failure that holds would keep the items from beginning that are to be done again.
            for item in items {
                let id = node.with_item(&item.key);
                let reason = match self.past.ended.get(&id) {
                    Some(Outcome::Failed(_)) => Reason::Failed,
                    Some(Outcome::Skipped(SkipCause::Sibling(_))) => Reason::LeftOut,
                    _ => continue,
                };
                again.entry(id).or_insert(reason);
            }
        }
        follow(&node, items, &mut again);
        again
    }

    /// Returns up to which record the orchestrator's conversation holds: it does where all that it watches over does, and
    /// then up to where it was told that everything had ended, if that is not so any more.
    fn orchestrator(&self, records: &[Record], again: &BTreeMap<NodeId, Reason>) -> Result<u64, Reason> {
        let Some(spec) = &self.anew.plan.orchestrator else { return Err(Reason::New) };
        if let Some(reason) = self.past.changed(&spec.node, self.anew.steps) {
            return Err(reason);
        }
        if !self.inputs.is_empty() {
            return Err(Reason::Reads(self.inputs.iter().map(|name| (*name).to_owned()).collect()));
        }
        if let Some(step) = spec.supervises.iter().map(NodeId::step).find(|step| again.contains_key(step)) {
            return Err(Reason::After(step));
        }
        let mut rested = None;
        for record in records {
            match &record.event {
                Event::OrchestratorWoken { node, reasons, .. } if *node == spec.node && !again.is_empty() && reasons.contains(&Wake::End) => {
                    break;
                }
                Event::OrchestratorRested { node, failure: Some(_), .. } if *node == spec.node => return Err(Reason::Failed),
                Event::OrchestratorRested { node, .. } if *node == spec.node => rested = Some(record.seq + 1),
                _ => {}
            }
        }
        rested.ok_or(Reason::Unended)
    }
}

/// Returns whether a step, or what is in the body of a loop, reads an input of the workflow.
fn reads(step: &PlannedStep, input: &str) -> bool {
    let reads = |reads: &Reads| reads.all_inputs || reads.inputs.contains(input);
    let inside = if let Work::Loop(spec) = &step.work { reads(&spec.reads) || spec.body.steps().any(|step| self::reads(step, input)) } else { false };
    reads(&step.reads) || inside
}

/// Adds the items that need one that is done again.
fn follow(step: &NodeId, items: &[&Item], again: &mut BTreeMap<NodeId, Reason>) {
    let mut waiting: HashMap<&str, Vec<&str>> = HashMap::new();
    for item in items {
        item.needs.iter().for_each(|need| waiting.entry(need).or_default().push(&item.key));
    }
    let mut open: Vec<NodeId> = again.keys().cloned().collect();
    while let Some(id) = open.pop() {
        for key in waiting.get(id.item.as_deref().unwrap_or_default()).into_iter().flatten() {
            let dependent = step.with_item(key);
            if !again.contains_key(&dependent) {
                again.insert(dependent.clone(), Reason::After(id.clone()));
                open.push(dependent);
            }
        }
    }
}

/// Takes the records that hold.
struct Kept<'a> {
    past: &'a Past<'a>,
    again: &'a BTreeMap<NodeId, Reason>,
    partial: &'a BTreeSet<StepId>,
    plan: &'a Plan,
    /// The first record of the orchestrator's that does not hold.
    until: u64,
}

impl Kept<'_> {
    fn events(&mut self, records: &[Record]) -> Vec<(Timestamp, Event)> {
        let mut events = Vec::new();
        for record in records.iter().filter(|record| self.holds(record)) {
            match &record.event {
                // What an orchestrator added that begins anew is the step's own from now on.
                Event::ItemsAdded { step, by, .. } if step.within.is_empty() && self.until == 0 && by != step => {}
                Event::ItemsAdded { step, by, max_parallel, .. } if step.within.is_empty() && self.until == 0 => {
                    let items = self.past.items.get(&step.step).into_iter().flatten().map(|item| (*item).clone()).collect();
                    let added = Event::ItemsAdded { step: step.clone(), items, by: by.clone(), max_parallel: *max_parallel };
                    events.push((record.at, added));
                }
                event => events.push((record.at, event.clone())),
            }
        }
        events
    }

    /// Returns whether what was allowed of a budget goes on to count: the run's, or that of a step of which something is kept.
    fn holds_budget(&self, name: &str) -> bool {
        let step = StepId::from(name.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter)).next().unwrap_or_default());
        name.is_empty() || !self.again.contains_key(&NodeId::step(&step)) || self.partial.contains(&step)
    }

    fn holds(&self, record: &Record) -> bool {
        let Some(node) = record.event.node() else { return false };
        if *node == account() {
            return match &record.event {
                Event::QuestionAsked { call, .. } | Event::QuestionAnswered { call, .. } => {
                    self.past.raised.contains(call.as_str()) && self.holds_budget(whose(call))
                }
                _ => false,
            };
        }
        let top = top(node);
        if top.step.0 == ORCHESTRATOR {
            return record.seq < self.until;
        }
        if matches!(top.step.0.as_str(), ON_FAILURE | FINALLY) || self.plan.step(&top.step).is_none() {
            return false;
        }
        if !self.again.contains_key(&top.whole()) {
            return true;
        }
        let of_list = matches!(record.event, Event::ConditionEvaluated { .. } | Event::ItemsAdded { .. }) && node.within.is_empty();
        self.partial.contains(&top.step) && if top.item.is_some() { !self.again.contains_key(&top) } else { of_list }
    }
}

#[cfg(test)]
mod tests;
