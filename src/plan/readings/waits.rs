//! What is read before it has ended: judged by the order of the steps, all of a frame at once.
use super::{Reader, Spot};
use crate::{
    plan::{
        findings::Findings,
        frames::At,
        reach::{Question, answers},
    },
    source::{Diagnostic, Source, Span, codes},
};
use std::sync::Arc;

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

impl<'a> Reader<'a> {
    pub(super) fn wait(&mut self, reader: At, target: At, by: At, spot: &Spot) {
        if !self.shapes.frames.all[reader.frame].edges.waits_directly(reader.step, target.step) {
            let wait = Wait { reader: reader.step, target: target.step, by, source: spot.source.clone(), span: spot.span };
            self.waits[reader.frame].push(wait);
        }
    }

    /// Returns what was found, with what hangs on the order of the steps.
    pub(in crate::plan) fn finish(mut self) -> Findings<'a> {
        for (frame, waits) in std::mem::take(&mut self.waits).iter().enumerate() {
            self.check_waits(frame, waits);
        }
        self.check_doubts();
        self.found
    }

    /// Returns of which steps of a frame it is not known what they wait for.
    pub(super) fn unread(&self, frame: usize) -> Vec<bool> {
        let graph = &self.shapes.frames.all[frame];
        graph.edges.unread(|step| !self.found.flaws.hides_place(&graph.steps[step].id))
    }

    /// Reports what is read before it has ended.
    fn check_waits(&mut self, frame: usize, waits: &[Wait]) {
        let graph = &self.shapes.frames.all[frame];
        let order = &graph.edges.order;
        let forward = waits.iter().map(|wait| Question { target: wait.target, at: vec![wait.reader] });
        let waited = answers(&graph.edges.needs, order, &forward.collect::<Vec<_>>());
        let early: Vec<&Wait> = waits.iter().zip(waited).filter(|(_, waited)| !waited).map(|(wait, _)| wait).collect();
        let unread = self.unread(frame);
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
}
