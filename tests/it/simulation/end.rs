//! What a run has come to: what must not depend on how often it died.
use super::{mind::Heard, world::counted};
use crate::{
    fixture::Bench,
    recovery::{plainly, without_hashes},
};
use serde_json::Value;
use spinney::event::{Event, Record, RunId};
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
    /// What was asked of the model, by node, where it stands, and the number of messages.
    requests: BTreeMap<(String, String, usize), String>,
    repeatable: BTreeMap<String, usize>,
}

impl End {
    pub(super) fn of(bench: &Bench, run: &RunId, records: &[Record], (outside, heard): (&str, Heard)) -> End {
        let plain = |text: &str| without_hashes(&text.replace(&run.0, "RUN").replace(&bench.path("").display().to_string(), "PLACE/"));
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
            requests: heard
                .requests()
                .into_iter()
                .map(|((node, stands, length), text)| ((node, plain(&stands), length), blanked(&plain(&text), "The date is ", "2026-11-30".len())))
                .collect(),
            repeatable: BTreeMap::new(),
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
                Event::ModelReplied { node, .. } => *end.replies.entry(node.to_string()).or_default() += 1,
                Event::ToolFinished { node, tool, result, .. } => {
                    *end.answers.entry((node.to_string(), tool.clone(), result.is_error)).or_default() += 1;
                }
                Event::VerifyRan { node, passed, .. } => end.checks.extend([(node.to_string(), *passed)]),
                _ => {}
            }
        }
        end
    }

    /// Says where this end is another than that of a run that was left alone.
    ///
    /// Where the power failed `cuts` times, files of agents at work may be ahead of the journal, and what they did may be done
    /// once more: then only how every node ended is compared, and what is to be seen from outside of the run.
    pub(super) fn unlike(&self, clean: &End, attempts_may_differ: bool, cuts: usize) -> Option<String> {
        if cuts > 0 {
            let ends = |end: &End| -> BTreeMap<String, Option<String>> {
                end.outcomes.iter().map(|(node, outcome)| (node.clone(), outcome.as_object().and_then(|of| of.keys().next().cloned()))).collect()
            };
            let (here, there) = (ends(self), ends(clean));
            return (here != there).then(|| differ("the ends", &there, &here)).or_else(|| self.unlike_outside(clean, cuts));
        }
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
        if let Some(unlike) = self.unlike_outside(clean, 0) {
            return Some(unlike);
        }
        for (at, request) in &self.requests {
            if let Some(there) = clean.requests.get(at).filter(|there| !attempts_may_differ && *there != request) {
                return Some(differ(&format!("the request of {at:?}"), there, request));
            }
        }
        // An attempt that a model's failure ended may not be recorded where the process died as well.
        if attempts_may_differ {
            return None;
        }
        [
            (self.refs != clean.refs).then(|| differ("the refs", &clean.refs, &self.refs)),
            (self.replies != clean.replies).then(|| differ("the replies", &clean.replies, &self.replies)),
            (self.answers != clean.answers).then(|| differ("the answers of tools", &clean.answers, &self.answers)),
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
            let more = self.repeatable.get(name).copied().unwrap_or_default() + cuts;
            if had < wanted || had > wanted + more {
                return Some(format!("the effect of `{name}` was had {had} times, not {wanted} (and at most {more} times more)"));
            }
        }
        None
    }
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
