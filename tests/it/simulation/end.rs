//! What a run has come to: what must not depend on how often it died.
use super::{
    mind::{HALF, Heard, Request, Requests},
    outside::{SEND, SENT},
    world::counted,
};
use crate::{
    fixture::Bench,
    recovery::{plainly, without_hashes},
};
use serde_json::Value;
use spinney::event::{Event, NodeId, Record, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// The end of a run.
#[derive(Debug, PartialEq)]
pub(super) struct End {
    outcomes: BTreeMap<String, Value>,
    /// The files of every commit that an outcome names, and of the branch, with the hash of each content.
    trees: BTreeMap<String, BTreeMap<String, String>>,
    refs: BTreeSet<String>,
    /// How often each node's agent had a reply, and an answer of a tool that was an error or was none.
    replies: BTreeMap<String, usize>,
    answers: BTreeMap<(String, String, bool), usize>,
    checks: BTreeSet<(String, bool)>,
    /// How often each effect outside of the run was had, and how often at most.
    outside: BTreeMap<String, usize>,
    requests: Requests,
    /// What stands for where it was and for its name.
    place: String,
    run: RunId,
    repeatable: BTreeMap<String, usize>,
    /// How many calls of each node have an outcome that is unknown.
    unknown: BTreeMap<String, usize>,
    /// How many attempts of each node came to nothing.
    retried: BTreeMap<String, usize>,
    /// The nodes that were told as much as a command had printed until it was ended.
    flooded: BTreeSet<String>,
}

impl End {
    pub(super) fn of(bench: &Bench, run: &RunId, records: &[Record], (outside, heard): (&str, Heard)) -> End {
        let place = bench.path("").display().to_string();
        let plain = |text: &str| plain(text, run, &place);
        // A resolver's name tells of the commit that it is called for, and commits have times.
        let name = |node: &NodeId| plain(&node.to_string());
        let repo = git2::Repository::open(bench.repo()).unwrap();
        let tree = |name: &str| files(&repo, name);
        let mut end = End {
            outcomes: BTreeMap::new(),
            trees: BTreeMap::new(),
            refs: repo.references().unwrap().names().map(|name| plain(name.unwrap())).collect(),
            replies: BTreeMap::new(),
            answers: BTreeMap::new(),
            checks: BTreeSet::new(),
            outside: counted(outside),
            requests: heard.requests(),
            place: place.clone(),
            run: run.clone(),
            repeatable: BTreeMap::new(),
            unknown: BTreeMap::new(),
            retried: BTreeMap::new(),
            flooded: BTreeSet::new(),
        };
        if let Some(files) = tree(&format!("refs/heads/spinney/{run}")) {
            end.trees.insert("the branch".to_owned(), files);
        }
        let mut running: BTreeSet<String> = BTreeSet::new();
        for record in records {
            match &record.event {
                Event::StepStarted { node, .. } => drop(running.insert(node.to_string())),
                Event::RunResumed { .. } => {
                    // What was under way when a process died may be done once more.
                    for node in &running {
                        *end.repeatable.entry(node.clone()).or_default() += 1;
                    }
                }
                Event::StepFinished { node, outcome } => {
                    running.remove(&node.to_string());
                    if let Some(commit) = outcome.success().and_then(|success| success.commit.as_ref()) {
                        end.trees.insert(node.to_string(), tree(&commit.0).unwrap_or_default());
                    }
                    end.outcomes.insert(node.to_string(), plainly(outcome, &plain));
                }
                Event::RunFinished { outcome } => drop(end.outcomes.insert("run".to_owned(), plainly(outcome, &plain))),
                Event::RetryScheduled { node, .. } => *end.retried.entry(node.to_string()).or_default() += 1,
                Event::ModelReplied { node, .. } => *end.replies.entry(name(node)).or_default() += 1,
                Event::ToolFinished { node, tool, result, verdict, .. } => {
                    if result.text.starts_with('y') && result.text.contains("[timed out") {
                        end.flooded.insert(node.to_string());
                    }
                    if verdict == "interrupted" {
                        *end.unknown.entry(node.to_string()).or_default() += 1;
                    }
                    *end.answers.entry((name(node), tool.clone(), result.is_error)).or_default() += 1;
                }
                Event::VerifyRan { node, passed, .. } => end.checks.extend([(name(node), *passed)]),
                _ => {}
            }
        }
        end
    }

    /// Says where this end is another than that of a run that was left alone.
    ///
    /// Where the power failed `cuts` times, attempts that were under way begin anew, so that there may be more of them.
    pub(super) fn unlike(&self, clean: &End, attempts_may_differ: bool, cuts: usize) -> Option<String> {
        let attempts_may_differ = attempts_may_differ || cuts > 0;
        for (node, outcome) in &self.outcomes {
            if Some(outcome) != clean.outcomes.get(node) {
                return Some(differ(&format!("the end of `{node}`"), &clean.outcomes.get(node), &Some(outcome)));
            }
        }
        if self.outcomes.len() != clean.outcomes.len() {
            let missing: Vec<&String> = clean.outcomes.keys().filter(|node| !self.outcomes.contains_key(*node)).collect();
            return Some(format!("these have no end: {missing:?}"));
        }
        if self.trees != clean.trees {
            return Some(differ("the files", &clean.trees, &self.trees));
        }
        if let Some(unlike) = self.unlike_outside(clean, cuts) {
            return Some(unlike);
        }
        for (at, request) in &self.requests {
            let may_differ = attempts_may_differ || self.unknown.contains_key(&at.0) || self.flooded.contains(&at.0) || clean.flooded.contains(&at.0);
            let Some(there) = clean.requests.get(at).filter(|there| !may_differ && *there != request) else { continue };
            // Commits have times.
            let timeless = |end: &End, request: &Request| blanked(&plain(&request.text(), &end.run, &end.place), "The date is ", "2026-11-30".len());
            let (here, there) = (timeless(self, request), timeless(clean, there));
            if here != there {
                return Some(differ(&format!("the request of {at:?}"), &there, &here));
            }
        }
        // An attempt that a model's failure ended may not be recorded where the process died as well.
        if attempts_may_differ {
            return None;
        }
        [
            (self.refs != clean.refs).then(|| differ("the refs", &clean.refs, &self.refs)),
            (self.replies != clean.replies).then(|| differ("the replies", &clean.replies, &self.replies)),
            self.unlike_answers(clean),
            (self.checks != clean.checks).then(|| differ("the checks", &clean.checks, &self.checks)),
        ]
        .into_iter()
        .flatten()
        .next()
    }
}

impl End {
    /// Says which effect outside of the run was had too rarely or too often.
    fn unlike_outside(&self, clean: &End, cuts: usize) -> Option<String> {
        let effects = |end: &End, name: &str| end.outside.get(name).copied().unwrap_or_default();
        for name in self.outside.keys().chain(clean.outside.keys()) {
            let (had, wanted) = (effects(self, name), effects(clean, name));
            let sender = name.strip_prefix(SENT);
            // An item is called by another name.
            let of_sender = |counts: &BTreeMap<String, usize>| {
                counts.iter().find(|(node, _)| Some(node.replace('/', "-").as_str()) == sender).map_or(0, |(_, count)| *count)
            };
            let (less, again) = (of_sender(&self.unknown), of_sender(&self.retried));
            // What reaches beyond the run is done once an attempt, or said to be unknown.
            let more = if sender.is_some() { again * wanted } else { self.repeatable.get(name).copied().unwrap_or_default() + cuts };
            // An attempt that was ended by a model's failure may have gone on where the process died in it.
            let least = if sender.is_some() { wanted / (1 + of_sender(&clean.retried)) } else { wanted };
            if had + less < least || had > wanted + more {
                return Some(format!("the effect of `{name}` was had {had} times, not {wanted} (and at most {more} times more, {less} less)"));
            }
        }
        None
    }

    /// Says where an answer of a tool is another; one that is unknown is an error.
    fn unlike_answers(&self, clean: &End) -> Option<String> {
        let sure = |end: &End| -> BTreeMap<(String, String, bool), usize> {
            end.answers
                .iter()
                .filter(|((node, tool, _), _)| tool != SEND || !self.unknown.contains_key(node))
                .map(|(key, count)| (key.clone(), *count))
                .collect()
        };
        let (here, there) = (sure(self), sure(clean));
        (here != there).then(|| differ("the answers of tools", &there, &here))
    }
}

/// Takes from a text what is another in each run.
fn plain(text: &str, run: &RunId, place: &str) -> String {
    // What a reply began with that was cut is part of the whole, but where it was lost with its process and not cut again.
    without_hashes(&text.replace(&run.0, "RUN").replace(place, "PLACE/").replace(HALF, ""))
}

/// Leaves so many bytes out behind each place of some words.
pub(super) fn blanked(text: &str, words: &str, bytes: usize) -> String {
    text.split(words)
        .enumerate()
        .map(|(at, part)| if at == 0 { part.to_owned() } else { format!("{words}…{}", part.get(bytes..).unwrap_or_default()) })
        .collect()
}

fn differ(what: &str, clean: &dyn std::fmt::Debug, here: &dyn std::fmt::Debug) -> String {
    format!("{what}: left alone {clean:#?}\nhere {here:#?}")
}

/// Lists the files of a commit with their content's hash.
fn files(repo: &git2::Repository, name: &str) -> Option<BTreeMap<String, String>> {
    let tree = repo.revparse_single(name).ok()?.peel_to_tree().ok()?;
    let mut files = BTreeMap::new();
    tree.walk(git2::TreeWalkMode::PreOrder, |folder, entry| {
        files.insert(format!("{folder}{}", entry.name().unwrap_or_default()), entry.id().to_string());
        git2::TreeWalkResult::Ok
    })
    .ok()?;
    Some(files)
}
