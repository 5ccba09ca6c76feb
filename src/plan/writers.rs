//! Who writes, and whether their work comes together: no step may start from two results that nothing has joined, and
//! none may be left over at the end.
use super::{
    edges::Edges,
    findings::Findings,
    reach::{Question, answers},
};
use crate::{
    source::{Diagnostic, codes},
    workflow::{On, Step, Verb, WorkspaceKind},
};
use std::collections::{BTreeMap, BTreeSet};

/// The most places of one finding that are labelled.
const MAX_LABELS: usize = 10;

/// What is known of the steps here.
pub(super) struct Writers<'a> {
    pub(super) steps: &'a [Step],
    pub(super) index: &'a BTreeMap<&'a str, usize>,
    pub(super) edges: &'a Edges,
    /// Whether each makes a commit.
    pub(super) writes: &'a [bool],
    /// Whether that is known of each.
    pub(super) sure: &'a [bool],
    /// Where each works.
    pub(super) workspaces: &'a [WorkspaceKind],
}

/// Work that meets at a step or at the end. Held to be sound where all but the last is an ancestor of what takes it in.
struct Meeting {
    /// The step, or the end of the run.
    at: Option<usize>,
    /// Each piece of work that must already be part of another.
    question: Question,
}

impl Writers<'_> {
    /// Checks all of it. `order` is a topological order.
    pub(super) fn check(&self, order: &[usize], findings: &mut Findings<'_>) {
        let mut position = vec![0; self.steps.len()];
        order.iter().enumerate().for_each(|(place, &step)| position[step] = place);
        let mut tips: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.steps.len()];
        let mut meetings = Vec::new();
        let mut consumed = vec![false; self.steps.len()];
        let mut told = BTreeSet::new();
        for &step in order {
            let mut arriving: BTreeSet<usize> = BTreeSet::new();
            self.edges.needs[step].iter().for_each(|&need| arriving.extend(&tips[need]));
            if let Verb::Merge(merge) = &self.steps[step].verb {
                let from: Vec<usize> = self.sources(merge, findings);
                // A source that the merge does not wait for is told as that, not as left over.
                for &source in &from {
                    consumed[source] = true;
                }
                let joined: BTreeSet<usize> = from.iter().copied().collect();
                let rest = arriving.difference(&joined);
                meetings.extend(rest.map(|&target| Meeting { at: Some(step), question: Question { target, at: from.clone() } }));
            } else if self.workspaces[step] != WorkspaceKind::None
                && let Some(last) = arriving.iter().copied().max_by_key(|&tip| position[tip])
            {
                if self.many(last) && told.insert(last) {
                    self.items_meet(Some(step), last, findings);
                }
                meetings.extend(
                    arriving.iter().filter(|&&tip| tip != last).map(|&target| Meeting { at: Some(step), question: Question { target, at: vec![last] } }),
                );
                arriving = BTreeSet::from([last]);
            }
            tips[step] = if self.writes[step] { BTreeSet::from([step]) } else { arriving };
        }
        let mut needed = consumed;
        self.edges.needs.iter().flatten().for_each(|&need| needed[need] = true);
        let left: BTreeSet<usize> = (0..self.steps.len()).filter(|&step| !needed[step]).flat_map(|step| tips[step].iter().copied()).collect();
        if let Some(last) = left.iter().copied().max_by_key(|&tip| position[tip]) {
            if self.many(last) && told.insert(last) {
                self.items_meet(None, last, findings);
            }
            meetings.extend(left.iter().filter(|&&tip| tip != last).map(|&target| Meeting { at: None, question: Question { target, at: vec![last] } }));
        }
        self.judge(order, &meetings, findings);
    }

    /// Resolves the sources of a merge; those that cannot write are reported.
    fn sources(&self, merge: &crate::workflow::Merge, findings: &mut Findings<'_>) -> Vec<usize> {
        let mut sources = Vec::new();
        for name in &merge.from {
            let Some(&source) = self.index.get(name.as_str()) else { continue };
            if self.writes[source] {
                sources.push(source);
            } else if self.sure[source] {
                let error = findings.error(codes::CANNOT_MERGE, name.span, format!("`{}` does not write, so that there is nothing of it to merge", name.value));
                findings.report(
                    error
                        .also(self.steps[source].id.span, "a step that only reads")
                        .help("a step writes if its agent has `access: write`, or its command a `scope`"),
                );
            }
        }
        sources
    }

    /// Returns whether a step leaves many commits side by side.
    fn many(&self, step: usize) -> bool {
        self.writes[step] && self.steps[step].for_each.is_some()
    }

    fn items_meet(&self, at: Option<usize>, items: usize, findings: &mut Findings<'_>) {
        let id = &self.steps[items].id;
        let error = match at {
            Some(step) => {
                let message = format!("the items of `{}` write side by side, and nothing joins their work before `{}`", id.value, self.steps[step].id.value);
                findings.error(codes::WRITERS_RACE, self.steps[step].id.span, message).label("starts from many commits").also(id.span, "many writers")
            }
            None => findings.error(codes::NEVER_JOINED, id.span, format!("nothing joins the work of the items of `{}`", id.value)).label("many writers"),
        };
        findings.report(error.help(format!("add a step `merge: {{ from: {} }}` that needs it", id.value)));
    }

    /// Asks whether what meets was joined before, and reports each place where it was not, once.
    fn judge(&self, order: &[usize], meetings: &[Meeting], findings: &mut Findings<'_>) {
        let questions: Vec<Question> = meetings.iter().map(|meeting| meeting.question.clone()).collect();
        let mut racing: BTreeMap<Option<usize>, BTreeSet<usize>> = BTreeMap::new();
        for (meeting, joined) in meetings.iter().zip(answers(&self.edges.needs, order, &questions)) {
            let question = &meeting.question;
            let apart = question.at.iter().any(|&other| self.exclusive(question.target, other));
            if !joined && !apart {
                let writers = racing.entry(meeting.at).or_default();
                writers.insert(question.target);
                writers.extend(&question.at);
            }
        }
        for (at, writers) in racing {
            findings.report(self.race(at, &writers, findings));
        }
    }

    fn race(&self, at: Option<usize>, writers: &BTreeSet<usize>, findings: &Findings<'_>) -> Diagnostic {
        let id = |step: usize| self.steps[step].id.value.as_str();
        let names: Vec<String> = writers.iter().take(MAX_LABELS).map(|&writer| format!("`{}`", id(writer))).collect();
        let all = format!("{}{}", names.join(", "), if writers.len() > MAX_LABELS { ", …" } else { "" });
        let listed: Vec<&str> = writers.iter().take(MAX_LABELS).map(|&writer| id(writer)).collect();
        let mut labels = writers.iter().take(MAX_LABELS).copied();
        let error = match at {
            Some(step) if matches!(self.steps[step].verb, Verb::Merge(_)) => {
                let message = format!("`{}` does not join all the work that meets there: {all}", id(step));
                findings.error(codes::WRITERS_RACE, self.steps[step].id.span, message).help(format!("name all of it: `from: [{}]`", listed.join(", ")))
            }
            Some(step) => {
                let message = format!("the work of {all} meets at `{}`, and nothing joins it", id(step));
                let error = findings.error(codes::WRITERS_RACE, self.steps[step].id.span, message).label("starts from all of them");
                error.help(format!("add a step `merge: {{ from: [{}] }}` and need that one, or let one of them need the other", listed.join(", ")))
            }
            None => {
                let first = labels.next().map(|step| self.steps[step].id.span).unwrap_or_default();
                let error = findings.error(codes::NEVER_JOINED, first, format!("nothing joins the work of {all} at the end")).label("writes");
                error.help(format!("add a step `merge: {{ from: [{}] }}`, or let one of them need the other", listed.join(", ")))
            }
        };
        labels.fold(error, |error, writer| error.also(self.steps[writer].id.span, "writes"))
    }

    /// Returns whether two steps never both run: one needs the success of a step whose failure the other needs.
    fn exclusive(&self, a: usize, b: usize) -> bool {
        let wanted = |step: usize, on: On| self.edges.needs[step].iter().zip(&self.edges.on[step]).filter(move |(_, how)| **how == on).map(|(need, _)| *need);
        let opposed =
            |a: usize, b: usize| wanted(a, On::Success).any(|need| !self.steps[need].allow_failure && wanted(b, On::Failure).any(|other| other == need));
        opposed(a, b) || opposed(b, a)
    }
}
