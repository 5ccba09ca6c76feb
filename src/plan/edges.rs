//! The needs of every step as edges, in an order in which each step comes after what it needs.
use super::findings::{Findings, STEP};
use crate::{
    source::{Diagnostic, Spanned, codes},
    workflow::{On, Step},
};
use petgraph::{algo::kosaraju_scc, graph::DiGraph};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
};

/// The most steps of one cycle that its message names; every edge has its label.
const MAX_NAMED: usize = 20;

/// Needs by the index of the step in the file.
pub(super) struct Edges {
    /// What each step waits for, each once.
    pub(super) needs: Vec<Vec<usize>>,
    /// How each of those must have ended.
    pub(super) on: Vec<Vec<On>>,
    /// All steps, needs before what needs them, otherwise as in the file.
    pub(super) order: Vec<usize>,
    /// Steps that wait for each other: what they need of one another is left out.
    pub(super) tangled: Vec<bool>,
    /// Every step with each of its needs, and how that must have ended.
    direct: HashMap<(usize, usize), On>,
}

impl Edges {
    /// Resolves all needs; unknown steps, needs that stand twice and cycles are reported. `around` says what to do about a
    /// step that stands around these.
    pub(super) fn new(steps: &[Step], index: &BTreeMap<&str, usize>, around: &dyn Fn(&str) -> Option<String>, findings: &mut Findings<'_>) -> Edges {
        let mut edges = Edges {
            needs: vec![Vec::new(); steps.len()],
            on: vec![Vec::new(); steps.len()],
            order: Vec::new(),
            tangled: vec![false; steps.len()],
            direct: HashMap::new(),
        };
        let mut places: Vec<Vec<&Spanned<String>>> = vec![Vec::new(); steps.len()];
        for (step, needs) in steps.iter().enumerate() {
            let mut seen = BTreeMap::new();
            for need in &needs.needs {
                let Some(&other) = index.get(need.step.as_str()) else {
                    if let Some(help) = around(&need.step) {
                        let error = findings.error(codes::UNKNOWN_STEP, need.step.span, format!("`{}` is not one of the steps here", need.step.value));
                        findings.report(error.help(help));
                        continue;
                    }
                    findings.unknown(&STEP, &need.step, steps.iter().map(|step| step.id.as_str()));
                    continue;
                };
                if let Some(first) = seen.insert(other, need.step.span) {
                    let twice = findings.error(codes::NEED_TWICE, need.step.span, format!("`{}` needs `{}` twice", needs.id.value, need.step.value));
                    findings.report(twice.label("again here").also(first, "first here"));
                    continue;
                }
                edges.direct.insert((step, other), need.on);
                edges.needs[step].push(other);
                edges.on[step].push(need.on);
                places[step].push(&need.step);
            }
        }
        edges.order = sort(&edges.needs);
        if edges.order.len() < steps.len() {
            let knots = report_cycles(steps, &edges.needs, &places, findings);
            edges.untangle(&knots);
        }
        edges
    }

    /// Takes out what the steps of a knot need of each other, so that the rest can be judged.
    fn untangle(&mut self, knots: &[Vec<usize>]) {
        for knot in knots {
            for &step in knot {
                let within: Vec<bool> = self.needs[step].iter().map(|need| knot.binary_search(need).is_ok()).collect();
                let mut inside = within.iter();
                self.needs[step].retain(|_| inside.next() != Some(&true));
                let mut inside = within.iter();
                self.on[step].retain(|_| inside.next() != Some(&true));
                self.tangled[step] = true;
            }
        }
        self.order = sort(&self.needs);
    }

    /// Returns of which steps it is not known what they wait for: those of which `is_read` is false, those that wait for each other, and
    /// whoever waits for one of these.
    pub(super) fn unread(&self, is_read: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut unread: Vec<bool> = self.tangled.iter().enumerate().map(|(step, tangled)| *tangled || !is_read(step)).collect();
        for &step in &self.order {
            unread[step] |= self.needs[step].iter().any(|&need| unread[need]);
        }
        unread
    }

    /// Returns whether a step needs another one itself, not only through others.
    pub(super) fn waits_directly(&self, step: usize, need: usize) -> bool {
        self.on_directly(step, need).is_some()
    }

    /// Returns how another one must have ended that a step needs itself.
    pub(super) fn on_directly(&self, step: usize, need: usize) -> Option<On> {
        self.direct.get(&(step, need)).copied()
    }
}

/// Sorts steps so that needs come first, otherwise as in the file; those of a cycle, and what comes after it, are left out.
fn sort(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut unmet: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut dependents = vec![Vec::new(); needs.len()];
    for (step, needs) in needs.iter().enumerate() {
        for &need in needs {
            dependents[need].push(step);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..needs.len()).filter(|&step| unmet[step] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for &dependent in &dependents[step] {
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 {
                ready.push(Reverse(dependent));
            }
        }
    }
    order
}

/// Reports a shortest cycle of every knot of steps that wait for each other, every edge labelled; returns the knots, each sorted.
fn report_cycles(steps: &[Step], needs: &[Vec<usize>], places: &[Vec<&Spanned<String>>], findings: &mut Findings<'_>) -> Vec<Vec<usize>> {
    let edges = needs.iter().enumerate().flat_map(|(step, needs)| needs.iter().map(move |&need| (need_index(step), need_index(need))));
    let mut graph: DiGraph<(), ()> = DiGraph::new();
    for _ in steps {
        graph.add_node(());
    }
    graph.extend_with_edges(edges);
    let mut knots: Vec<Vec<usize>> = kosaraju_scc(&graph).into_iter().map(|knot| knot.into_iter().map(petgraph::graph::NodeIndex::index).collect()).collect();
    for knot in &mut knots {
        knot.sort_unstable();
    }
    knots.retain(|knot| knot.len() > 1 || needs[knot[0]].contains(&knot[0]));
    knots.sort_unstable();
    for knot in &knots {
        let cycle = shortest(knot[0], needs, knot);
        let names: Vec<String> = cycle.iter().take(MAX_NAMED).map(|&(step, _)| format!("`{}`", steps[step].id.value)).collect();
        let more = if cycle.len() > MAX_NAMED { " → …" } else { "" };
        let message = match names.as_slice() {
            [one] => format!("{one} waits for itself"),
            _ => format!("steps wait for each other: {}{more} → {}", names.join(" → "), names[0]),
        };
        let mut error: Option<Diagnostic> = None;
        for &(step, need) in &cycle {
            let place = places[step][need];
            let label = format!("`{}` needs `{}`", steps[step].id.value, place.value);
            error = Some(match error {
                None => findings.error(codes::CYCLE, place.span, message.clone()).label(label),
                Some(error) => error.also(place.span, label),
            });
        }
        if let Some(error) = error {
            findings.report(error.help("take one of these needs out"));
        }
    }
    knots
}

fn need_index(step: usize) -> petgraph::graph::NodeIndex {
    petgraph::graph::NodeIndex::new(step)
}

/// Finds a shortest cycle through a step of a knot: pairs of a step and the place of its need in its own list.
fn shortest(start: usize, needs: &[Vec<usize>], knot: &[usize]) -> Vec<(usize, usize)> {
    let mut came: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(step) = open.pop_front() {
        for (place, &need) in needs[step].iter().enumerate() {
            if need == start {
                let mut cycle = vec![(step, place)];
                let mut at = step;
                while at != start {
                    let (before, place) = came[&at];
                    cycle.push((before, place));
                    at = before;
                }
                cycle.reverse();
                return cycle;
            }
            if knot.binary_search(&need).is_ok() && !came.contains_key(&need) {
                came.insert(need, (step, place));
                open.push_back(need);
            }
        }
    }
    Vec::new()
}
