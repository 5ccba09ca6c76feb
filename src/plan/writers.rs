//! Who writes, and whether their work comes together: no step may start from two results that nothing has joined, and
//! none may be left over at the end.
use super::{
    findings::Findings,
    frames::Frame,
    reach::{Question, answers},
};
use crate::{
    source::{Diagnostic, Spanned, codes},
    workflow::{On, Verb},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// The most places of one finding that are labelled.
const MAX_LABELS: usize = 10;

/// What is known of the steps of one frame.
pub(super) struct Writers<'a> {
    pub(super) frame: &'a Frame<'a>,
    /// Whether each makes a commit.
    pub(super) writes: &'a [bool],
    /// Whether that is known of each.
    pub(super) sure: &'a [bool],
    /// Whether each starts from one commit, in which the work of all it needs must have come together.
    pub(super) starts: &'a [bool],
}

/// Work that meets at a step or at the end. Held to be sound where all but the last is an ancestor of what takes it in.
struct Meeting {
    /// The step, or the end of the frame.
    at: Option<usize>,
    /// Each piece of work that must already be part of another.
    question: Question,
}

/// The work that has come to a step and is not yet part of other work. Steps that only pass it on share it.
type Tips = Rc<BTreeSet<usize>>;

impl Writers<'_> {
    /// Checks all of it.
    pub(super) fn check(&self, findings: &mut Findings<'_>) {
        // Who writes, and what waits for what, may be just what could not be read.
        let hidden: Vec<bool> = self.frame.steps.iter().map(|step| findings.flaws.hides_place(&step.id)).collect();
        let unread = self.frame.edges.unread(|step| !hidden[step]);
        let order = &self.frame.edges.order;
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &step)| position[step] = place);
        let mut tips: Vec<Tips> = vec![Tips::default(); order.len()];
        let mut meetings = Vec::new();
        let mut needed = vec![false; order.len()];
        let mut told = BTreeSet::new();
        for &step in order {
            let mut arriving = self.arriving(step, &tips);
            let from = self.frame.steps[step].sources();
            if !from.is_empty() {
                let sources: Vec<usize> = self.sources(from, findings);
                // A source that is not waited for is told as that, not as left over.
                for &source in &sources {
                    needed[source] = true;
                }
                let joined: BTreeSet<usize> = sources.iter().copied().collect();
                let chooses = matches!(self.frame.steps[step].verb, Verb::Select(_));
                for &target in arriving.difference(&joined) {
                    let parts: Vec<Vec<usize>> = if chooses { sources.iter().map(|&source| vec![source]).collect() } else { vec![sources.clone()] };
                    meetings.extend(parts.into_iter().map(|at| Meeting { at: Some(step), question: Question { target, at } }));
                }
            } else if self.starts[step]
                && !unread[step]
                && let Some(last) = arriving.iter().copied().max_by_key(|&tip| position[tip])
            {
                if self.many(last) && told.insert(last) {
                    self.items_meet(Some(step), last, findings);
                }
                let others = arriving.iter().filter(|&&tip| tip != last);
                meetings.extend(others.map(|&target| Meeting { at: Some(step), question: Question { target, at: vec![last] } }));
                arriving = Tips::new(BTreeSet::from([last]));
            }
            tips[step] = if self.writes[step] { Tips::new(BTreeSet::from([step])) } else { arriving };
        }
        meetings.retain(|meeting: &Meeting| meeting.at.is_none_or(|step| !unread[step]));
        self.frame.edges.needs.iter().flatten().for_each(|&need| needed[need] = true);
        // What could not be read may be what joins the rest.
        let is_left = |step: usize| !needed[step] && !unread[step] && !hidden.contains(&true);
        let left: BTreeSet<usize> = (0..order.len()).filter(|&step| is_left(step)).flat_map(|step| tips[step].iter().copied()).collect();
        if let Some(last) = left.iter().copied().max_by_key(|&tip| position[tip]) {
            if self.many(last) && told.insert(last) {
                self.items_meet(None, last, findings);
            }
            meetings.extend(left.iter().filter(|&&tip| tip != last).map(|&target| Meeting { at: None, question: Question { target, at: vec![last] } }));
        }
        self.judge(order, &meetings, findings);
    }

    /// Returns the work of all that a step needs.
    fn arriving(&self, step: usize, tips: &[Tips]) -> Tips {
        let mut needs = self.frame.edges.needs[step].iter().map(|&need| &tips[need]);
        let Some(first) = needs.next() else { return Tips::default() };
        let mut arriving = first.clone();
        for more in needs {
            if !Rc::ptr_eq(&arriving, more) && !more.is_subset(&arriving) {
                Rc::make_mut(&mut arriving).extend(more.iter().copied());
            }
        }
        arriving
    }

    /// Resolves what a merge or a choice takes in; what cannot write is reported.
    fn sources(&self, from: &[Spanned<String>], findings: &mut Findings<'_>) -> Vec<usize> {
        let mut sources = Vec::new();
        for name in from {
            let Some(&source) = self.frame.index.get(name.as_str()) else { continue };
            if self.writes[source] {
                sources.push(source);
            } else if self.sure[source] {
                let error = findings.error(codes::CANNOT_MERGE, name.span, format!("`{}` does not write, so that there is nothing of it to merge", name.value));
                findings.report(
                    error
                        .also(self.frame.steps[source].id.span, "a step that only reads")
                        .help("a step writes if its agent has `access: write`, or its command a `scope`"),
                );
            }
        }
        sources
    }

    /// Returns whether a step leaves many commits side by side.
    fn many(&self, step: usize) -> bool {
        self.writes[step] && (self.frame.steps[step].for_each.is_some() || self.frame.steps[step].matrix.is_some())
    }

    fn items_meet(&self, at: Option<usize>, items: usize, findings: &mut Findings<'_>) {
        let id = &self.frame.steps[items].id;
        let error = match at {
            Some(step) => {
                let message =
                    format!("the items of `{}` write side by side, and nothing joins their work before `{}`", id.value, self.frame.steps[step].id.value);
                findings.error(codes::WRITERS_RACE, self.frame.steps[step].id.span, message).label("starts from many commits").also(id.span, "many writers")
            }
            None => findings.error(codes::NEVER_JOINED, id.span, format!("nothing joins the work of the items of `{}`", id.value)).label("many writers"),
        };
        findings.report(error.help(format!("add a step `merge: {{ from: {} }}` that needs it", id.value)));
    }

    /// Asks whether what meets was joined before, and reports each place where it was not, once.
    fn judge(&self, order: &[usize], meetings: &[Meeting], findings: &mut Findings<'_>) {
        let questions: Vec<Question> = meetings.iter().map(|meeting| meeting.question.clone()).collect();
        let mut racing: BTreeMap<Option<usize>, BTreeSet<usize>> = BTreeMap::new();
        for (meeting, joined) in meetings.iter().zip(answers(&self.frame.edges.needs, order, &questions)) {
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
        let id = |step: usize| self.frame.steps[step].id.value.as_str();
        let names: Vec<String> = writers.iter().take(MAX_LABELS).map(|&writer| format!("`{}`", id(writer))).collect();
        let all = format!("{}{}", names.join(", "), if writers.len() > MAX_LABELS { ", …" } else { "" });
        let listed: Vec<&str> = writers.iter().take(MAX_LABELS).map(|&writer| id(writer)).collect();
        let mut labels = writers.iter().take(MAX_LABELS).copied();
        let error = match at {
            Some(step) if matches!(self.frame.steps[step].verb, Verb::Merge(_)) => {
                let message = format!("`{}` does not join all the work that meets there: {all}", id(step));
                findings.error(codes::WRITERS_RACE, self.frame.steps[step].id.span, message).help(format!("name all of it: `from: [{}]`", listed.join(", ")))
            }
            Some(step) if matches!(self.frame.steps[step].verb, Verb::Select(_)) => {
                let message = format!("`{}` would leave work behind that is not part of every candidate: {all}", id(step));
                let error = findings.error(codes::WRITERS_RACE, self.frame.steps[step].id.span, message);
                error.help("let every candidate need it, or merge it after the choice")
            }
            Some(step) => {
                let message = format!("the work of {all} meets at `{}`, and nothing joins it", id(step));
                let error = findings.error(codes::WRITERS_RACE, self.frame.steps[step].id.span, message).label("starts from all of them");
                error.help(format!("add a step `merge: {{ from: [{}] }}` and need that one, or let one of them need the other", listed.join(", ")))
            }
            None => {
                let first = labels.next().map(|step| self.frame.steps[step].id.span).unwrap_or_default();
                let error = findings.error(codes::NEVER_JOINED, first, format!("nothing joins the work of {all} at the end")).label("writes");
                error.help(format!("add a step `merge: {{ from: [{}] }}`, or let one of them need the other", listed.join(", ")))
            }
        };
        labels.fold(error, |error, writer| error.also(self.frame.steps[writer].id.span, "writes"))
    }

    /// Returns whether two steps never both run: one needs the success of a step whose failure the other needs.
    fn exclusive(&self, a: usize, b: usize) -> bool {
        let wanted = |step: usize, on: On| {
            self.frame.edges.needs[step].iter().zip(&self.frame.edges.on[step]).filter(move |(_, how)| **how == on).map(|(need, _)| *need)
        };
        let opposed =
            |a: usize, b: usize| wanted(a, On::Success).any(|need| !self.frame.steps[need].allow_failure && wanted(b, On::Failure).any(|other| other == need));
        opposed(a, b) || opposed(b, a)
    }
}
