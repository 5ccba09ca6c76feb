//! The step graphs of one workflow file: that of its `steps`, the bodies of its loops, and what runs at the end of a run.
//!
//! A body reads what stands around its loop; what runs at the end reads what stands in `steps`. So each frame knows what is
//! around it, and a name is looked up from the inside out.
use super::{
    edges::Edges,
    findings::{Findings, STEP},
};
use crate::{
    source::{Spanned, codes},
    workflow::{Step, Verb, Workflow},
};
use std::collections::BTreeMap;

/// The step id that the orchestrator's node has.
pub const ORCHESTRATOR: &str = "orchestrator";
/// Beside the steps of the last iteration, what a loop's output holds.
pub(super) const ITERATIONS: &str = "iterations";
/// Ids that no step may have.
const RESERVED: [(&str, &str); 3] =
    [(ORCHESTRATOR, "the id of the orchestrator's own node"), ("on_failure", "a graph of its own"), ("finally", "a graph of its own")];

/// A step by its frame and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct At {
    pub(super) frame: usize,
    pub(super) step: usize,
}

/// What a frame stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// Nothing: these are the steps of the workflow.
    Nothing,
    /// A loop.
    Loop(At),
    /// The end of the run, when every step of the workflow that begins has ended.
    End,
}

/// One graph of steps.
pub(super) struct Frame<'a> {
    pub(super) steps: &'a [Step],
    pub(super) index: BTreeMap<&'a str, usize>,
    pub(super) edges: Edges,
    pub(super) around: Around,
}

/// All graphs of a file; a body comes after what it stands in.
pub(super) struct Frames<'a> {
    pub(super) all: Vec<Frame<'a>>,
    bodies: BTreeMap<At, usize>,
    pub(super) on_failure: Option<usize>,
    pub(super) finally: Option<usize>,
}

/// The frame of the workflow's `steps`.
pub(super) const MAIN: usize = 0;

impl<'a> Frames<'a> {
    /// Finds all of them, and reports needs of unknown steps, cycles and ids that are taken.
    pub(super) fn new(workflow: &'a Workflow, findings: &mut Findings<'_>) -> Frames<'a> {
        let mut frames = Frames { all: Vec::new(), bodies: BTreeMap::new(), on_failure: None, finally: None };
        frames.add(&workflow.steps, Around::Nothing, findings);
        let end =
            |steps: &'a [Step], frames: &mut Frames<'a>, findings: &mut Findings<'_>| (!steps.is_empty()).then(|| frames.add(steps, Around::End, findings));
        frames.on_failure = end(&workflow.on_failure, &mut frames, findings);
        frames.finally = end(&workflow.finally, &mut frames, findings);
        frames
    }

    fn add(&mut self, steps: &'a [Step], around: Around, findings: &mut Findings<'_>) -> usize {
        let index: BTreeMap<&str, usize> = steps.iter().enumerate().map(|(at, step)| (step.id.as_str(), at)).collect();
        let edges = Edges::new(steps, &index, &|need| self.need_around(around, need), findings);
        for step in steps {
            check_id(&step.id, around, findings);
        }
        let frame = self.all.len();
        self.all.push(Frame { steps, index, edges, around });
        for (at, step) in steps.iter().enumerate() {
            if let Verb::Loop(spec) = &step.verb {
                let at = At { frame, step: at };
                let body = self.add(&spec.steps, Around::Loop(at), findings);
                self.bodies.insert(at, body);
            }
        }
        frame
    }

    /// Returns a step as it is written.
    pub(super) fn step(&self, at: At) -> &'a Step {
        &self.all[at.frame].steps[at.step]
    }

    /// Returns the frame of a loop's body.
    pub(super) fn body(&self, at: At) -> Option<usize> {
        self.bodies.get(&at).copied()
    }

    /// Returns every step, frame by frame.
    pub(super) fn steps(&self) -> impl Iterator<Item = (At, &'a Step)> {
        self.all.iter().enumerate().flat_map(|(frame, graph)| graph.steps.iter().enumerate().map(move |(step, written)| (At { frame, step }, written)))
    }

    /// Returns the step of this id that is nearest from the inside out, and who must have waited for it there: the reader
    /// itself or a loop around it; nobody where all have ended.
    pub(super) fn find(&self, frame: usize, reader: Option<usize>, id: &str) -> Option<(At, Option<At>)> {
        let (mut frame, mut reader) = (frame, reader);
        loop {
            if let Some(&step) = self.all[frame].index.get(id) {
                return Some((At { frame, step }, reader.map(|step| At { frame, step })));
            }
            (frame, reader) = match self.all[frame].around {
                Around::Loop(at) => (at.frame, Some(at.step)),
                Around::End => (MAIN, None),
                Around::Nothing => return None,
            };
        }
    }

    /// Returns the ids that can be read in a frame, from the inside out.
    pub(super) fn visible(&self, frame: usize) -> Vec<&'a str> {
        let mut ids = Vec::new();
        let mut frame = Some(frame);
        while let Some(at) = frame {
            ids.extend(self.all[at].index.keys().copied());
            frame = match self.all[at].around {
                Around::Loop(at) => Some(at.frame),
                Around::End => Some(MAIN),
                Around::Nothing => None,
            };
        }
        ids
    }

    /// Returns the loops around a frame, from the inside out.
    pub(super) fn loops(&self, frame: usize) -> impl Iterator<Item = At> {
        let around = |frame: usize| if let Around::Loop(at) = self.all[frame].around { Some(at) } else { None };
        std::iter::successors(around(frame), move |at| around(at.frame))
    }

    /// Says what to do about a need of a step that stands outside.
    fn need_around(&self, around: Around, need: &str) -> Option<String> {
        match around {
            Around::Nothing => None,
            Around::End => self.all[MAIN].index.contains_key(need).then(|| format!("`{need}` has ended by then: it can be read as it is")),
            Around::Loop(at) => {
                let (_, waiter) = self.find(at.frame, Some(at.step), need)?;
                let waiter = waiter.map(|at| self.step(at).id.as_str());
                Some(match waiter {
                    Some(waiter) if waiter != need => format!("`{need}` stands around the loop: let `{waiter}` need it"),
                    Some(_) => format!("this step is a part of `{need}`"),
                    None => format!("`{need}` has ended by then: it can be read as it is"),
                })
            }
        }
    }
}

fn check_id(id: &Spanned<String>, around: Around, findings: &mut Findings<'_>) {
    let taken = RESERVED.into_iter().find(|(taken, _)| *taken == id.value).map(|(_, what)| what);
    let taken = taken.or_else(|| (id.value == ITERATIONS && matches!(around, Around::Loop(_))).then_some("what a loop's output counts"));
    if let Some(what) = taken {
        let error = findings.error(codes::RESERVED, id.span, format!("`{}` is {what}", id.value));
        findings.report(error.help("give the step another id"));
    }
}

/// Reports a step that nothing has, with what there is here.
pub(super) fn unknown_step(name: &Spanned<String>, frame: &Frame<'_>, findings: &mut Findings<'_>) {
    findings.unknown(&STEP, name, frame.steps.iter().map(|step| step.id.as_str()));
}
