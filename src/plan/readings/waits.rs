//! What is read before it has ended, and what is read of a step that need not have succeeded by then: judged by the order of the
//! steps, all of a frame at once.
use super::{Reader, Spot};
use crate::{
    plan::{
        findings::Findings,
        frames::At,
        reach::{Question, answers},
    },
    source::{Diagnostic, Source, Span, codes},
    workflow::On,
};
use std::{collections::HashMap, sync::Arc};

/// A step that reads another one without needing it directly.
pub(super) struct Wait {
    /// Who must wait: the step that reads, or the loop around it.
    reader: usize,
    target: usize,
    /// The step that reads.
    by: At,
    source: Arc<Source>,
    span: Span,
}

/// A read of what is there only where a step has succeeded.
pub(super) struct Doubt {
    /// Who waits: the step that reads, or the loop around it.
    pub(super) reader: usize,
    pub(super) target: usize,
    /// Whether that may fail and count as success.
    pub(super) is_allowed: bool,
    pub(super) error: Diagnostic,
}

impl<'a> Reader<'a> {
    pub(super) fn wait(&mut self, reader: At, target: At, by: At, spot: &Spot) {
        if !self.shapes.frames.all[reader.frame].edges.waits_directly(reader.step, target.step) {
            let wait = Wait { reader: reader.step, target: target.step, by, source: spot.source.clone(), span: spot.span };
            self.waits[reader.frame].push(wait);
        }
    }

    /// Returns what was found, with what is read before it has ended where there is an order to judge that by.
    pub(in crate::plan) fn finish(mut self) -> Findings<'a> {
        for (frame, waits) in std::mem::take(&mut self.waits).iter().enumerate() {
            self.check_waits(frame, waits);
        }
        for (frame, doubts) in std::mem::take(&mut self.doubts).into_iter().enumerate() {
            self.check_doubts(frame, doubts);
        }
        self.found
    }

    /// Returns of which steps of a frame it is not known what they wait for: something of them, or of what they wait for, could
    /// not be read.
    fn unread(&self, frame: usize, order: &[usize]) -> Vec<bool> {
        let graph = &self.shapes.frames.all[frame];
        let mut unread: Vec<bool> = graph.steps.iter().map(|step| self.found.flaws.of_step(&step.id)).collect();
        for &step in order {
            unread[step] |= graph.edges.needs[step].iter().any(|&need| unread[need]);
        }
        unread
    }

    /// Reports what is read before it has ended.
    fn check_waits(&mut self, frame: usize, waits: &[Wait]) {
        let graph = &self.shapes.frames.all[frame];
        let Some(order) = &graph.edges.order else { return };
        let forward = waits.iter().map(|wait| Question { target: wait.target, at: vec![wait.reader] });
        let waited = answers(&graph.edges.needs, order, &forward.collect::<Vec<_>>());
        let early: Vec<&Wait> = waits.iter().zip(waited).filter(|(_, waited)| !waited).map(|(wait, _)| wait).collect();
        let unread = self.unread(frame, order);
        let early: Vec<&Wait> = early.into_iter().filter(|wait| !unread[wait.reader]).collect();
        let backward: Vec<Question> = early.iter().map(|wait| Question { target: wait.reader, at: vec![wait.target] }).collect();
        for (wait, backward) in early.iter().zip(answers(&graph.edges.needs, order, &backward)) {
            if self.found.leaves() {
                return;
            }
            let (reader, target) = (&graph.steps[wait.reader], &graph.steps[wait.target].id.value);
            let by = self.shapes.frames.step(wait.by);
            let id = &reader.id.value;
            let own = wait.by == At { frame, step: wait.reader };
            let message = if own {
                format!("`{id}` reads `{target}`, which it does not wait for")
            } else {
                format!("`{}` reads `{target}`, for which the loop `{id}` does not wait", by.id.value)
            };
            let error = Diagnostic::error(codes::NOT_WAITED_FOR, &wait.source, wait.span, message);
            let needs: Vec<&str> = reader.needs.iter().map(|need| need.step.as_str()).chain([target.as_str()]).collect();
            let error = match (needs.len(), backward) {
                (_, true) => error.help(format!("`{target}` itself waits for `{id}`: turn one of them round")),
                (1, false) => error.help(format!("add `needs: [{target}]` to `{id}`")),
                (_, false) => error.help(format!("add `{target}` to the `needs` of `{id}`: `[{}]`", needs.join(", "))),
            };
            let label = if own { "this step" } else { "this loop" };
            let in_file = wait.source == *self.found.source;
            let error = if in_file && !backward { Diagnostic { fix: reader.need(&wait.source, target), ..error } } else { error };
            self.found.report(if in_file { error.also(reader.id.span, label) } else { error });
        }
    }

    /// Reports what is null unless a step has succeeded, where that need not be so for whoever reads it. A step that needs the
    /// success of another one is a step between the two, for which a place of its own is put into the graph.
    fn check_doubts(&mut self, frame: usize, doubts: Vec<Doubt>) {
        let edges = &self.shapes.frames.all[frame].edges;
        let Some(order) = edges.order.as_ref().filter(|_| !doubts.is_empty()) else { return };
        let unread = self.unread(frame, order);
        let mut places: HashMap<usize, usize> = HashMap::new();
        for doubt in &doubts {
            let next = edges.needs.len() + places.len();
            places.entry(doubt.target).or_insert(next);
        }
        let mut needs = edges.needs.clone();
        for (step, own) in needs.iter_mut().enumerate() {
            let sure = edges.needs[step].iter().zip(&edges.on[step]).filter(|(_, on)| **on == On::Success);
            own.extend(sure.filter_map(|(need, _)| places.get(need)));
        }
        needs.resize(edges.needs.len() + places.len(), Vec::new());
        let order: Vec<usize> = (edges.needs.len()..needs.len()).chain(order.iter().copied()).collect();
        let waits = doubts.iter().map(|doubt| Question { target: doubt.target, at: vec![doubt.reader] });
        let sure = doubts.iter().map(|doubt| Question { target: places[&doubt.target], at: vec![doubt.reader] });
        let asked = answers(&needs, &order, &waits.chain(sure).collect::<Vec<_>>());
        let (waits, sure) = asked.split_at(doubts.len());
        for ((doubt, waits), is_sure) in doubts.into_iter().zip(waits).zip(sure) {
            // One that is not waited for is told as that.
            let is_sure = !waits || (*is_sure && !doubt.is_allowed);
            if !is_sure && !unread[doubt.reader] {
                self.found.report(doubt.error);
            }
        }
    }
}
