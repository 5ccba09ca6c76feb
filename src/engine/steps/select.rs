//! A choice as a step: each candidate through the gates in a tree of its own, then the votes of judges on those that passed.
//!
//! Every gate and every vote is recorded before the next thing follows from it, and none is taken twice. The order in which
//! a blind judge sees the candidates follows from what the run was started with and the number of the vote alone.
use super::{
    Candidate, Task, Workplace,
    agent::fitting,
    cut, place,
    session::{Opening, brief, lend_submit, workspace},
};
use crate::{
    agent::{Agent, Trouble, blocking, note},
    event::{BlobId, CommitId, Event, Failure, FailureKind, Isolation, NodeId, Scores, SelectProgress, Success},
    plan::{AgentSpec, JudgeSpec, PlannedStep, SelectSpec},
    workflow::{Access, Tie},
};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};
use tokio::sync::Semaphore;

/// Candidates in the gates, and judges at work, at the same time.
const AT_ONCE: usize = 4;
/// Bytes of all diffs that a judge is shown, and of one.
const DIFFS_BYTES: usize = 160 * 1024;
const DIFF_BYTES: usize = 48 * 1024;
/// Bytes of what a candidate said of itself.
const SAID_BYTES: usize = 4 * 1024;
/// A word shorter than this gives nobody away.
const NAME_BYTES: usize = 3;

/// Says that there is nothing to choose from.
pub(in crate::engine) fn no_candidate() -> Failure {
    Failure::new(FailureKind::Merge, "there is no candidate: nothing it chooses from has work to show")
}

pub(super) async fn run(task: &Task, step: &PlannedStep, spec: &SelectSpec) -> Result<Success, Trouble> {
    let onto = place::start(task, Isolation::Merge).await?;
    if task.candidates.is_empty() {
        return Err(no_candidate().into());
    }
    let red = gates(task, step, spec).await?;
    let left: Vec<&Candidate> = task.candidates.iter().filter(|candidate| !red.contains_key(&candidate.source.node)).collect();
    let choice = match (left.as_slice(), &spec.judge) {
        ([], _) => return Err(none_left(task, &red)),
        ([one], _) => Choice { winner: one, why: alone(task.candidates.len()), scores: Scores::new() },
        (_, None) => {
            let (winner, how) = untie(task, spec.tie, &left).await?;
            Choice { winner, why: format!("{} candidates passed the gates and nobody judges them; {how}", left.len()), scores: Scores::new() }
        }
        (_, Some(judge)) => {
            let election = Election { task, step, spec, judge, onto: &onto, left: &left };
            election.decide().await?
        }
    };
    let source = &choice.winner.source;
    if !task.state.deeds.selected.iter().any(|done| matches!(done, SelectProgress::Chosen { .. })) {
        let losers = task.candidates.iter().filter(|other| other.source.node != source.node);
        let progress = SelectProgress::Chosen {
            winner: source.node.clone(),
            losers: losers.map(|other| (other.source.node.clone(), other.source.commit.clone())).collect(),
            kept_until: spec.keep_losers.map(|keep| task.services.clock.now().after(keep)),
        };
        record(task, progress).await?;
    }
    place::keep_result(task, &source.commit).await?;
    let output = json!({ "winner": choice.winner.key, "why": choice.why, "scores": choice.scores, "commit": source.commit });
    Ok(Success { output: output.into(), commit: Some(source.commit.clone()) })
}

/// Which, and why.
struct Choice<'a> {
    winner: &'a Candidate,
    why: String,
    scores: Scores,
}

async fn record(task: &Task, progress: SelectProgress) -> Result<(), Trouble> {
    task.record(Event::SelectAdvanced { node: task.node.clone(), progress }).await
}

fn alone(candidates: usize) -> String {
    if candidates == 1 { "it is the only candidate".to_owned() } else { format!("it is the only one of {candidates} candidates that passed the gates") }
}

/// Takes every candidate through the gates that was not before; returns what the red ones said.
async fn gates(task: &Task, step: &PlannedStep, spec: &SelectSpec) -> Result<BTreeMap<NodeId, String>, Trouble> {
    let commands = spec.gates.iter().map(|text| task.render("gates", &text.value)).collect::<Result<Vec<_>, _>>()?;
    let mut gated: BTreeMap<NodeId, Option<String>> = task.state.deeds.selected.iter().filter_map(gate_of).collect();
    if commands.is_empty() {
        return Ok(BTreeMap::new());
    }
    let env = place::environment(task, step)?;
    let slots = Semaphore::new(AT_ONCE);
    let (commands, env, slots) = (&commands, &env, &slots);
    let open = task.candidates.iter().enumerate().filter(|(_, candidate)| !gated.contains_key(&candidate.source.node));
    let judged = join_all(open.map(|(at, candidate)| async move {
        let _slot = slots.acquire().await;
        gate(task, step, (at, candidate), commands, env).await.map(|red| (candidate.source.node.clone(), red))
    }))
    .await;
    gated.extend(judged.into_iter().collect::<Result<Vec<_>, _>>()?);
    Ok(gated.into_iter().filter_map(|(node, red)| Some((node, red?))).collect())
}

/// Returns a candidate that was through the gates, and what it said where it was red.
fn gate_of(progress: &SelectProgress) -> Option<(NodeId, Option<String>)> {
    let SelectProgress::Gated { candidate, passed, tail } = progress else { return None };
    Some((candidate.clone(), (!passed).then(|| tail.clone())))
}

/// Runs the gates in a tree of a candidate's commit.
async fn gate(
    task: &Task,
    step: &PlannedStep,
    (at, candidate): (usize, &Candidate),
    commands: &[String],
    env: &BTreeMap<String, String>,
) -> Result<Option<String>, Trouble> {
    if task.cancel.is_cancelled() {
        return Err(Trouble::Interrupted);
    }
    let name = format!("gate-{at}");
    let checked = place::check_apart(task, step, (&name, &candidate.source.commit), commands, env).await?;
    let progress = SelectProgress::Gated { candidate: candidate.source.node.clone(), passed: checked.passed, tail: checked.tail.clone() };
    record(task, progress).await?;
    task.recorder.ends(task.doing(&name));
    Ok((!checked.passed).then_some(checked.tail))
}

fn none_left(task: &Task, red: &BTreeMap<NodeId, String>) -> Trouble {
    let mut message = format!("none of {} candidates passed the gates", task.candidates.len());
    let mut each = Map::new();
    for candidate in &task.candidates {
        let tail = red.get(&candidate.source.node).map(|tail| tail.trim()).unwrap_or_default();
        let _ = write!(message, "\n{}: {}", candidate.key, tail.lines().next().unwrap_or_default());
        each.insert(candidate.key.clone(), tail.into());
    }
    Failure { output: json!({ "gates": each }), ..Failure::new(FailureKind::Verify, message) }.into()
}

/// Decides between candidates with the same votes.
async fn untie<'a>(task: &Task, tie: Tie, among: &[&'a Candidate]) -> Result<(&'a Candidate, String), Trouble> {
    match tie {
        Tie::First => Ok((among[0], "the first of them was taken".to_owned())),
        Tie::Fail => {
            let keys: Vec<&str> = among.iter().map(|candidate| candidate.key.as_str()).collect();
            let failure = Failure::new(FailureKind::Merge, format!("the votes do not decide between {}", keys.join(", ")));
            Err(failure.hint("raise `votes`, or say `tie: smallest_diff` or `tie: first`").into())
        }
        Tie::SmallestDiff => {
            let mut smallest: Option<(u64, &Candidate)> = None;
            for candidate in among {
                let (repo, base, commit) = (task.services.repo.clone(), candidate.source.base.clone(), candidate.source.commit.clone());
                let lines = blocking(FailureKind::Environment, move || repo.changed_lines(&base, &commit)).await?;
                if smallest.is_none_or(|(fewest, _)| lines < fewest) {
                    smallest = Some((lines, candidate));
                }
            }
            let (lines, candidate) = smallest.ok_or_else(|| Failure::new(FailureKind::Bug, "nothing to choose from"))?;
            Ok((candidate, format!("the one with the fewest changed lines ({lines}) was taken")))
        }
    }
}

/// The votes on what passed the gates.
struct Election<'a> {
    task: &'a Task,
    step: &'a PlannedStep,
    spec: &'a SelectSpec,
    judge: &'a JudgeSpec,
    onto: &'a CommitId,
    left: &'a [&'a Candidate],
}

/// One vote.
struct Vote {
    number: u32,
    winner: NodeId,
    scores: Scores,
    why: String,
}

/// What a candidate is called before a judge.
struct Ballot<'a>(Vec<(String, &'a Candidate)>);

impl<'a> Election<'a> {
    async fn decide(&self) -> Result<Choice<'a>, Trouble> {
        let (votes, failure) = self.votes().await?;
        let mut counts: BTreeMap<&NodeId, usize> = BTreeMap::new();
        for vote in &votes {
            *counts.entry(&vote.winner).or_default() += 1;
        }
        let Some(most) = counts.values().max().copied() else {
            let failure = failure.unwrap_or_else(|| Failure::new(FailureKind::Bug, "nobody was asked"));
            return Err(Failure { message: format!("no judge gave a vote: {}", failure.message), ..failure }.into());
        };
        let first: Vec<&'a Candidate> = self.left.iter().filter(|candidate| counts.get(&candidate.source.node) == Some(&most)).copied().collect();
        let (winner, how) = match first.as_slice() {
            [one] => (*one, String::new()),
            several => {
                let (winner, how) = untie(self.task, self.spec.tie, several).await?;
                (winner, format!("; of {} with as many, {how}", several.len()))
            }
        };
        let reasons: Vec<&str> = votes.iter().filter(|vote| vote.winner == winner.source.node).map(|vote| vote.why.as_str()).collect();
        let why = format!("{most} of {} votes{how}: {}", votes.len(), reasons.join(" / "));
        Ok(Choice { winner, why, scores: mean(&votes) })
    }

    /// Returns all votes in order, and why one was not given, where that is so.
    async fn votes(&self) -> Result<(Vec<Vote>, Option<Failure>), Trouble> {
        let mut votes: Vec<Vote> = self.task.state.deeds.selected.iter().filter_map(given).collect();
        let abstained =
            |number: u32| self.task.state.deeds.selected.iter().any(|done| matches!(done, SelectProgress::Abstained { vote, .. } if *vote == number));
        let open = (1..=self.judge.votes.max(1)).filter(|number| !abstained(*number) && votes.iter().all(|vote| vote.number != *number));
        let slots = Semaphore::new(AT_ONCE);
        let slots = &slots;
        let ends = join_all(open.map(|number| async move {
            let _slot = slots.acquire().await;
            (number, self.vote(number).await)
        }))
        .await;
        let mut failure = None;
        let mut trouble = None;
        for (number, end) in ends {
            match end {
                Ok(vote) => votes.push(vote),
                Err(Trouble::Failed(why)) if why.kind != FailureKind::NoRoom => {
                    record(self.task, SelectProgress::Abstained { vote: number, reason: why.message.clone(), kind: why.kind }).await?;
                    failure = Some(why);
                }
                Err(other @ (Trouble::Failed(_) | Trouble::Parked)) => trouble = Some(other),
                Err(other @ Trouble::Interrupted) => trouble = trouble.or(Some(other)),
            }
        }
        votes.sort_by_key(|vote| vote.number);
        // The last of them, as where nobody died meanwhile.
        let earlier = || {
            self.task.state.deeds.selected.iter().rev().find_map(|done| match done {
                SelectProgress::Abstained { reason, kind, .. } => Some(Failure::new(*kind, reason.clone())),
                _ => None,
            })
        };
        let failure = failure.or_else(earlier);
        trouble.map_or(Ok((votes, failure)), Err)
    }

    /// Has one judge vote, and records it.
    async fn vote(&self, number: u32) -> Result<Vote, Trouble> {
        let task = self.task;
        let node = task.node.helper(&format!("judge-{number}"));
        let ballot = self.ballot(number);
        let agent = reader(&self.judge.agent);
        let place = Workplace {
            worktree: None,
            root: place::view(&task.services, self.onto).await?,
            cwd: None,
            base: Some(self.onto.clone()),
            scope: None,
            env: place::environment(task, self.step)?,
            coming: None,
            links: Vec::new(),
        };
        let schema = ballot.schema(&self.judge.criteria);
        let talk = node.helper.as_ref().and_then(|name| task.helpers.get(name)).map(|helper| helper.conversation.clone()).unwrap_or_default();
        let message = format!("{}{}", workspace(&task.services, &node, &place), self.told(&ballot).await?);
        let brief = brief(&task.services, &task.plan, &agent, (&message, Some(&schema)));
        let opening = Opening { node: &node, agent, place, talk: &talk, cancel: &task.cancel };
        let (mut equipment, mut session) = task.sessions().open(opening).await?;
        lend_submit(&brief, &mut equipment, &mut session);
        let mut judge = Agent::new(&equipment, session, talk);
        let ended = fitting(&mut judge, &brief).await;
        note(judge.span(), &ended);
        let vote = ballot.read(number, &ended?)?;
        let progress = SelectProgress::Voted { vote: number, winner: vote.winner.clone(), scores: vote.scores.clone(), why: vote.why.clone() };
        record(task, progress).await?;
        Ok(vote)
    }

    fn ballot(&self, number: u32) -> Ballot<'a> {
        let mut order: Vec<&'a Candidate> = self.left.to_vec();
        if !self.judge.blind {
            return Ballot(order.into_iter().map(|candidate| (candidate.key.clone(), candidate)).collect());
        }
        let seed = format!("{}\n{}", self.task.run.base, Value::Object(self.task.run.inputs.clone()));
        order.sort_by_cached_key(|candidate| rank((&seed, &self.task.node), number, &candidate.source.node));
        Ballot(order.into_iter().enumerate().map(|(at, candidate)| (letters(at), candidate)).collect())
    }

    /// Tells a judge what it has before it.
    async fn told(&self, ballot: &Ballot<'_>) -> Result<String, Trouble> {
        let mut text = format!(
            "{} candidates did the same task, each by itself, and you choose the one that is to be kept. All of them start from the commit that you stand in; none of their changes are in your files.\n",
            ballot.0.len()
        );
        if let Some(rubric) = &self.judge.rubric {
            let _ = write!(text, "\n# What to look at\n{}\n", self.task.render("rubric", &rubric.value)?.trim());
        }
        if !self.judge.criteria.is_empty() {
            let _ = write!(text, "\nScore every candidate by: {}. More is better.\n", self.judge.criteria.join("; "));
        }
        let room = (DIFFS_BYTES / ballot.0.len().max(1)).min(DIFF_BYTES);
        for (label, candidate) in &ballot.0 {
            let _ = write!(text, "\n# Candidate {label}\n{}", self.shown(candidate, room).await?);
        }
        text.push_str("\nName the candidates as `candidate X` in your reason.");
        Ok(text)
    }

    async fn shown(&self, candidate: &Candidate, room: usize) -> Result<String, Trouble> {
        let source = &candidate.source;
        let mut text = String::new();
        if !self.judge.blind {
            let _ = writeln!(text, "{}", source.title);
        }
        for gate in &self.spec.gates {
            let _ = writeln!(text, "Green: {}", self.task.render("gates", &gate.value)?);
        }
        let said = if self.judge.blind { without(&candidate.said, &candidate.names) } else { candidate.said.clone() };
        if !said.trim().is_empty() {
            let _ = writeln!(text, "It says of its work:\n{}", quoted(&cut(said.trim(), SAID_BYTES, "what it says")));
        }
        let (repo, base, commit) = (self.task.services.repo.clone(), source.base.clone(), source.commit.clone());
        let diff = blocking(FailureKind::Environment, move || repo.diff(&base, &commit, false)).await?;
        let _ = writeln!(text, "Its changes:\n```diff\n{}\n```", cut(diff.trim_end(), room, "the changes"));
        Ok(text)
    }
}

impl Ballot<'_> {
    fn schema(&self, criteria: &[String]) -> Value {
        let labels: Vec<&str> = self.0.iter().map(|(label, _)| label.as_str()).collect();
        let each: Map<String, Value> = criteria.iter().map(|criterion| (criterion.clone(), json!({"type": "number"}))).collect();
        let score = json!({"type": "object", "required": criteria, "properties": each, "additionalProperties": false});
        let scores: Map<String, Value> = labels.iter().map(|label| ((*label).to_owned(), score.clone())).collect();
        json!({
            "type": "object",
            "required": ["winner", "scores", "why"],
            "additionalProperties": false,
            "properties": {
                "winner": {"enum": labels},
                "scores": {"type": "object", "required": labels, "properties": scores, "additionalProperties": false},
                "why": {"type": "string", "minLength": 1},
            },
        })
    }

    /// Reads an answer that fits the schema.
    fn read(&self, number: u32, answer: &Value) -> Result<Vote, Failure> {
        let label = answer["winner"].as_str().unwrap_or_default();
        let winner = self.0.iter().find(|(known, _)| known == label).map(|(_, candidate)| candidate.source.node.clone());
        let winner = winner.ok_or_else(|| Failure::new(FailureKind::Schema, format!("there is no candidate `{label}`")))?;
        let mut why = answer["why"].as_str().unwrap_or_default().trim().to_owned();
        let mut scores = Scores::new();
        for (label, candidate) in &self.0 {
            why = named(&why, label, &candidate.key);
            let given = answer["scores"][label.as_str()].as_object().into_iter().flatten();
            scores.insert(candidate.key.clone(), given.filter_map(|(criterion, score)| Some((criterion.clone(), score.as_f64()?))).collect());
        }
        Ok(Vote { number, winner, scores, why })
    }
}

fn given(progress: &SelectProgress) -> Option<Vote> {
    let SelectProgress::Voted { vote, winner, scores, why } = progress else { return None };
    Some(Vote { number: *vote, winner: winner.clone(), scores: scores.clone(), why: why.clone() })
}

/// A judge reads, whatever its agent may do elsewhere.
fn reader(agent: &Arc<AgentSpec>) -> Arc<AgentSpec> {
    if agent.access == Access::Read {
        agent.clone()
    } else {
        Arc::new(AgentSpec { access: Access::Read, sandbox: agent.sandbox.to_read(), ..(**agent).clone() })
    }
}

fn mean(votes: &[Vote]) -> Scores {
    let mut sums: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    for (key, scores) in votes.iter().flat_map(|vote| &vote.scores) {
        for (criterion, score) in scores {
            let (sum, count) = sums.entry((key.clone(), criterion.clone())).or_default();
            *sum += score;
            *count += 1.0;
        }
    }
    let mut mean = Scores::new();
    for ((key, criterion), (sum, count)) in sums {
        mean.entry(key).or_default().insert(criterion, sum / count);
    }
    mean
}

/// Ranks a candidate for one vote: as good as by chance, and the same after a crash.
fn rank((seed, node): (&str, &NodeId), vote: u32, candidate: &NodeId) -> BlobId {
    BlobId::of(format!("{seed}\n{node}\n{vote}\n{candidate}").as_bytes())
}

/// Returns `A` to `Z`, then `AA` and so on.
fn letters(at: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(at % 26).unwrap_or_default());
    if at < 26 { letter.to_string() } else { format!("{}{letter}", letters(at / 26 - 1)) }
}

/// Writes a candidate's key where a reason calls it by its letter, which meant something to one judge only.
fn named(text: &str, label: &str, key: &str) -> String {
    let mut named = String::new();
    let mut rest = text;
    let called = format!("andidate {label}");
    while let Some(at) = rest.find(&called) {
        let (before, after) = rest.split_at(at);
        let after = &after[called.len()..];
        let ends = !after.starts_with(|next: char| next.is_alphanumeric() || next == '-' || next == '_');
        named.push_str(before);
        named.push_str(&if ends { format!("andidate `{key}`") } else { called.clone() });
        rest = after;
    }
    named + rest
}

/// Leaves names out of a text.
fn without(text: &str, names: &[String]) -> String {
    names.iter().filter(|name| name.len() >= NAME_BYTES).fold(text.to_owned(), |text, name| text.replace(name.as_str(), "[…]"))
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn letters_go_on_after_the_last() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letters), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }

    #[test]
    fn a_reason_names_candidates_by_their_keys() {
        assert_eq!(named("Candidate A beats candidate AB; a candidate A.", "A", "x y"), "Candidate `x y` beats candidate AB; a candidate `x y`.");
    }

    #[test]
    fn names_are_left_out_and_cuts_are_stated() {
        assert_eq!(without("I am fix/one, by ab", &["fix/one".to_owned(), "ab".to_owned()]), "I am […], by ab");
        assert_eq!(cut("ééé", 3, "it"), "é\n[… 4 more bytes of it are not shown]");
    }

    #[test]
    fn scores_are_means_over_the_votes_that_gave_some() {
        let vote = |score: f64| Vote {
            number: 1,
            winner: NodeId::step(&"a".into()),
            scores: Scores::from([("a".to_owned(), BTreeMap::from([("risk".to_owned(), score)]))]),
            why: String::new(),
        };
        assert!((mean(&[vote(1.0), vote(4.0)])["a"]["risk"] - 2.5).abs() < 1e-9);
    }

    #[test]
    fn each_vote_sees_another_order_and_always_the_same() {
        let order = |run: &str, vote: u32| {
            let node = NodeId::step(&"pick".into());
            let mut keys = ["a", "b", "c", "d"];
            keys.sort_by_cached_key(|key| rank((run, &node), vote, &NodeId::item(&"fix".into(), key)));
            keys
        };
        let orders: BTreeSet<_> = (1..=12).map(|vote| order("run-1", vote)).collect();
        assert!(orders.len() > 6, "{orders:?}");
        assert_eq!(order("run-1", 3), order("run-1", 3));
        assert!((1..=12).any(|vote| order("run-1", vote) != order("run-2", vote)));
    }
}
