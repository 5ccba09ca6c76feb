//! What may be null, but for the order of the steps: it is not, where the one that reads it begins only once a step has succeeded, or
//! behind a condition that looks at it. That condition may stand on the step itself, on a loop around it, or on any step that it needs:
//! one that has begun has found it to hold. All of a frame is judged at once.
use super::{Reader, Sight};
use crate::{
    plan::{
        frames::At,
        reach::{Question, answers},
    },
    prompts,
    source::Diagnostic,
    workflow::On,
};
use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

/// What conditions look at: the first two parts of each path.
pub(super) type Looks = BTreeSet<Vec<String>>;

/// What keeps a value from being null. Each names who waits, the step that reads or the loop around it, and for what.
#[derive(Clone, Copy)]
pub(super) enum Unless {
    /// Nothing does.
    Never,
    /// The step has not been waited for, which is told as that.
    Unwaited(At, At),
    /// Its success is needed.
    Succeeded(At, At),
    /// It is needed in any way, by whoever is skipped with it.
    Began(At, At),
}

impl Unless {
    fn pair(self) -> Option<(At, At)> {
        match self {
            Unless::Never => None,
            Unless::Unwaited(waiter, target) | Unless::Succeeded(waiter, target) | Unless::Began(waiter, target) => Some((waiter, target)),
        }
    }
}

/// A way in which something that is read may be null, and what is told then.
pub(super) struct Doubt {
    pub(super) unless: Unless,
    pub(super) error: Diagnostic,
}

/// All doubts about one reading: the first that holds is told.
pub(super) struct Doubts {
    frame: usize,
    step: Option<usize>,
    /// The first two parts of what is read.
    about: Vec<String>,
    /// What the conditions look at that hold there.
    conditions: Vec<Rc<Looks>>,
    all: Vec<Doubt>,
}

/// Which needs lead from one step to another.
#[derive(Clone, Copy)]
enum Along {
    All,
    /// The last of them asks for success.
    Success,
    /// Whoever has it is skipped with what it needs: all but those of a merge or a choice for its sources.
    Skipped,
}

impl Reader<'_> {
    /// Notes doubts about what stands at a path.
    pub(super) fn doubt_all(&mut self, path: &[&str], conditions: &[Vec<String>], all: Vec<Doubt>, sight: Sight) {
        if all.is_empty() {
            return;
        }
        let about = path.iter().take(2).map(|part| (*part).to_owned()).collect();
        let own = Rc::new(conditions.iter().cloned().collect());
        let conditions = self.held.iter().cloned().chain([own]).collect();
        self.doubts.push(Doubts { frame: sight.frame, step: sight.step, about, conditions, all });
    }

    /// Reports what is null for all that is known.
    pub(super) fn check_doubts(&mut self) {
        let doubts: Vec<Doubts> = std::mem::take(&mut self.doubts);
        if doubts.is_empty() {
            return;
        }
        let known = self.known(&doubts);
        let open: Vec<Doubts> = doubts.into_iter().zip(known).filter(|(_, known)| !known).map(|(doubts, _)| doubts).collect();
        let holds = self.hold(&open);
        for (doubts, holds) in open.into_iter().zip(holds) {
            let first = doubts.all.into_iter().zip(holds).find(|(_, holds)| *holds);
            if let Some((doubt, _)) = first {
                self.found.report(doubt.error);
            }
        }
    }

    /// Returns which of the doubts about each reading hold by what the reader waits for.
    fn hold(&self, open: &[Doubts]) -> Vec<Vec<bool>> {
        let mut holds: Vec<Vec<bool>> = open.iter().map(|doubts| vec![true; doubts.all.len()]).collect();
        let mut by_frame: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
        for (reading, doubts) in open.iter().enumerate() {
            for (at, doubt) in doubts.all.iter().enumerate() {
                if let Some((waiter, _)) = doubt.unless.pair() {
                    by_frame.entry(waiter.frame).or_default().push((reading, at));
                }
            }
        }
        for (frame, places) in by_frame {
            let unless: Vec<Unless> = places.iter().map(|&(reading, at)| open[reading].all[at].unless).collect();
            let pairs: Vec<(usize, usize)> = unless.iter().filter_map(|unless| unless.pair()).map(|(waiter, target)| (target.step, waiter.step)).collect();
            let [waits, succeeded, skipped] = [Along::All, Along::Success, Along::Skipped].map(|along| self.before(frame, along, &pairs));
            let unread = self.unread(frame);
            for (at, &(reading, doubt)) in places.iter().enumerate() {
                // One that is not waited for is told as that, and nothing else of it.
                if !waits[at] {
                    holds[reading].fill(false);
                    continue;
                }
                let is_sure = match unless[at] {
                    Unless::Never | Unless::Unwaited(..) => false,
                    Unless::Succeeded(..) => succeeded[at],
                    Unless::Began(..) => skipped[at],
                };
                holds[reading][doubt] &= !is_sure && !unread[pairs[at].1];
            }
        }
        holds
    }

    /// Returns for pairs of steps of a frame whether the first comes before the second.
    fn before(&self, frame: usize, along: Along, pairs: &[(usize, usize)]) -> Vec<bool> {
        let edges = &self.shapes.frames.all[frame].edges;
        let (mut needs, mut order) = (edges.needs.clone(), edges.order.clone());
        let mut places: HashMap<usize, usize> = HashMap::new();
        match along {
            Along::All => {}
            Along::Skipped => needs = self.skipped_with(frame),
            // A step that needs the success of another one is a step between the two, for which a place of its own is put into the graph.
            Along::Success => {
                for (target, _) in pairs {
                    let next = needs.len() + places.len();
                    places.entry(*target).or_insert(next);
                }
                for (step, own) in needs.iter_mut().enumerate() {
                    let sure = edges.needs[step].iter().zip(&edges.on[step]).filter(|(_, on)| **on == On::Success);
                    own.extend(sure.filter_map(|(need, _)| places.get(need)));
                }
                extend(&mut needs, &mut order, places.len());
            }
        }
        let question = |&(target, at): &(usize, usize)| Question { target: places.get(&target).copied().unwrap_or(target), at: vec![at] };
        answers(&needs, &order, &pairs.iter().map(question).collect::<Vec<_>>())
    }

    /// Returns the needs of each step with which it is skipped, too.
    fn skipped_with(&self, frame: usize) -> Vec<Vec<usize>> {
        let graph = &self.shapes.frames.all[frame];
        let mut needs = graph.edges.needs.clone();
        for (own, step) in needs.iter_mut().zip(graph.steps) {
            let sources = step.sources();
            if sources.len() > 1 {
                own.retain(|&need| sources.iter().all(|source| source.value != graph.steps[need].id.value));
            }
        }
        needs
    }

    /// Returns what the condition of a step looks at.
    pub(super) fn looks_at(&mut self, at: At) -> Rc<Looks> {
        let step = self.shapes.frames.step(at);
        let looks = self.looks.entry(at).or_insert_with(|| {
            let readings = step.condition.as_ref().map(|condition| prompts::examine_condition(condition).readings);
            let paths = readings.into_iter().flatten().map(|reading| reading.path.into_iter().take(2).collect());
            Rc::new(paths.collect())
        });
        looks.clone()
    }

    /// Returns about which readings a condition has asked without which they are not reached.
    fn known(&mut self, doubts: &[Doubts]) -> Vec<bool> {
        let frames = self.shapes.frames;
        let mut known = vec![false; doubts.len()];
        let mut asked: HashMap<usize, Vec<Asked>> = HashMap::new();
        for (reading, doubts) in doubts.iter().enumerate() {
            let own = doubts.step.map(|step| At { frame: doubts.frame, step });
            for at in own.into_iter().chain(frames.loops(doubts.frame)) {
                asked.entry(at.frame).or_default().push(Asked { reading, about: Some(&doubts.about), at });
            }
            let step_of = |path: &[String]| match path {
                [steps, id, ..] if steps == "steps" => frames.find(doubts.frame, doubts.step, id).map(|(at, _)| at),
                _ => None,
            };
            let Some(target) = step_of(&doubts.about) else { continue };
            // Of a step that a condition looks at, all that it needs has begun.
            for at in doubts.conditions.iter().flat_map(|looks| looks.iter()).filter_map(|condition| step_of(condition)).filter(|at| at.frame == target.frame) {
                asked.entry(at.frame).or_default().push(Asked { reading, about: None, at });
                known[reading] |= at == target;
            }
        }
        for (frame, asked) in asked {
            let facts: Vec<&Asked<'_>> = asked.iter().filter(|asked| asked.about.is_some()).collect();
            for (asked, holds) in facts.iter().zip(self.gated(frame, &facts)) {
                known[asked.reading] |= holds;
            }
            let behind: Vec<&Asked<'_>> = asked.iter().filter(|asked| asked.about.is_none()).collect();
            let target = |asked: &Asked<'_>| doubts[asked.reading].about.get(1).and_then(|id| frames.all[frame].index.get(id.as_str()).copied());
            let pairs: Vec<(usize, usize)> = behind.iter().filter_map(|asked| Some((target(asked)?, asked.at.step))).collect();
            for (asked, holds) in behind.iter().zip(self.before(frame, Along::Skipped, &pairs)) {
                known[asked.reading] |= holds;
            }
        }
        known
    }

    /// Returns whether one of the steps that each needs has a condition that looks at the same value. What a condition looks at has a place
    /// of its own in the graph, before the step.
    fn gated(&mut self, frame: usize, facts: &[&Asked<'_>]) -> Vec<bool> {
        let graph = &self.shapes.frames.all[frame];
        let direct = self.skipped_with(frame);
        let (mut needs, mut order) = (direct.clone(), graph.edges.order.clone());
        let mut places: HashMap<&[String], usize> = HashMap::new();
        for about in facts.iter().filter_map(|asked| asked.about) {
            let next = needs.len() + places.len();
            places.entry(about).or_insert(next);
        }
        for (step, own) in needs.iter_mut().enumerate() {
            own.extend(self.looks_at(At { frame, step }).iter().filter_map(|path| places.get(path.as_slice())).copied());
        }
        extend(&mut needs, &mut order, places.len());
        let question = |asked: &&Asked<'_>| Question { target: asked.about.map_or(0, |about| places[about.as_slice()]), at: direct[asked.at.step].clone() };
        answers(&needs, &order, &facts.iter().map(question).collect::<Vec<_>>())
    }
}

/// A question about one reading, put to one frame.
struct Asked<'d> {
    reading: usize,
    /// What is to have been asked for by a step that `at` needs; where there is nothing, whether `at` comes after the step that is read.
    about: Option<&'d Vec<String>>,
    at: At,
}

/// Puts places for what is no step before all steps.
fn extend(needs: &mut Vec<Vec<usize>>, order: &mut Vec<usize>, places: usize) {
    let first = needs.len();
    needs.resize(first + places, Vec::new());
    order.splice(0..0, first..first + places);
}
