//! The scripted model of a simulated run: what is said follows from who asks and how far the conversation is.
use super::{
    scenario::{Kind, Scenario},
    session::Session,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use spinney::{
    llm::{Model, ModelCall, ModelError, ModelErrorKind, Sink, script},
    message::{Message, Reply, Role, StopReason, ToolSpec, View},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What is left of a reply that was cut.
pub(super) const HALF: &str = "half of ";

/// What goes wrong with a request the first time it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The provider has too much to do, longer than anybody waits.
    Overloaded,
    /// The stream ended in the middle.
    Cut,
    /// Nothing comes, ever.
    Stalls,
    /// Something comes and then nothing.
    StallsInside,
    /// The provider asks to come back much later: the run ends and is resumed.
    Later,
    /// The reply is empty.
    Empty,
    /// The reply is cut at its limit.
    MaxTokens,
}

pub(super) const ALL_BROKEN: [Broken; 7] =
    [Broken::Overloaded, Broken::Cut, Broken::Stalls, Broken::StallsInside, Broken::Later, Broken::Empty, Broken::MaxTokens];

/// Whoever answers.
pub(super) struct Mind {
    scenario: Scenario,
    /// What goes wrong at which turn of which agent, once however often the process dies.
    broken: Mutex<BTreeMap<(String, usize), Broken>>,
    heard: Mutex<Heard>,
}

/// What was asked, by node, where it stands, and how many messages there are.
pub(super) type Requests = BTreeMap<(String, String, usize), Request>;

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    system: String,
    tools: Vec<ToolSpec>,
    messages: Vec<Arc<Message>>,
}

impl Request {
    pub(super) fn text(&self) -> String {
        let messages = serde_json::to_string(&self.messages).unwrap();
        format!("{}\n{}\n{messages}", self.system, serde_json::to_string(&self.tools).unwrap())
    }
}

/// What was asked.
#[derive(Debug, Default)]
pub(super) struct Heard {
    requests: Requests,
    /// What was asked again in other words.
    pub(super) problem: Option<String>,
    /// What went wrong.
    pub(super) broke: Vec<Broken>,
}

impl Heard {
    /// Returns the requests of all but the orchestrator, whose digests tell what happened meanwhile.
    pub(super) fn requests(self) -> Requests {
        self.requests.into_iter().filter(|((node, ..), _)| node != "orchestrator").collect()
    }
}

impl Mind {
    pub(super) fn new(scenario: &Scenario, broken: BTreeMap<(String, usize), Broken>) -> Mind {
        Mind { scenario: scenario.clone(), broken: Mutex::new(broken), heard: Mutex::default() }
    }

    /// Takes what was asked so far.
    pub(super) fn heard(&self) -> Heard {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a request: whoever takes a conversation up again asks in the same words.
    fn hear(&self, call: &ModelCall<'_>) {
        let first = call.messages[0].text();
        // What was shortened is told apart by what stands in its place: it may be as long as it once was.
        let is_shortened = call.messages[0].blocks.len() > 1;
        let stands = if is_shortened { first } else { first.lines().nth(1).unwrap_or_default().to_owned() };
        let request = Request { system: call.system.to_owned(), tools: call.tools.to_vec(), messages: call.messages.to_vec() };
        let key = (call.node.to_string(), stands, call.messages.len());
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let before = heard.requests.insert(key, request.clone());
        if let Some(before) = before.filter(|before| *before != request && heard.problem.is_none()) {
            heard.problem = Some(format!("{} asks again in other words\n{}\n---\n{}", call.node, before.text(), request.text()));
        }
    }

    fn breaks(&self, call: &ModelCall<'_>) -> Option<Broken> {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let breaks = broken.remove(&(call.node.to_string(), turn(call)));
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).broke.extend(breaks);
        breaks
    }

    fn answer(&self, call: &ModelCall<'_>) -> Reply {
        let turn = turn(call);
        let first = call.messages[0].text();
        let task = first.rsplit("</workspace>").next().unwrap_or_default();
        let attempt = first.lines().find_map(|line| line.rsplit('.').next()?.trim_end_matches(['`', ' ']).parse::<u32>().ok()).unwrap_or(1);
        let piece = self.scenario.pieces.iter().find(|piece| call.node.step.0 == piece.id);
        match (call.agent, piece.map(|piece| &piece.kind)) {
            ("watcher", _) => self.watch(call, turn),
            ("resolver", _) if turn.is_multiple_of(2) => {
                say(call, "", &[("Write", json!({"file_path": "shared.txt", "content": "top\nmiddle of all\nbottom\n"}))])
            }
            ("judge", _) => {
                let all = call.messages.iter().map(|message| message.text()).collect::<String>();
                let name = all.split("# Candidate ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or("w0").trim().to_owned();
                say(call, &json!({"winner": name, "scores": {}, "why": "It is the first."}).to_string(), &[])
            }
            ("hand", _) => {
                let mut words = task.split_whitespace().rev();
                let who = words.next().unwrap_or_default().trim_end_matches('.').to_owned();
                let which = words.nth(1).unwrap_or_default().to_owned();
                match turn {
                    0 => say(call, "", &[("Bash", json!({"command": format!("echo helped {which} >> {who}.effects")}))]),
                    _ => say(call, "Helped.", &[]),
                }
            }
            ("chief", Some(Kind::Chief { hands })) if turn == 0 => {
                let order = |n: usize| {
                    // All but the first write other things to the same file, so that their work does not fit together.
                    let who = if n == 0 { "hand0" } else { "hands" };
                    ("Agent", json!({"description": format!("help {n}"), "prompt": format!("Help {n} as {}{who}.", call.node.step), "subagent_type": "hand"}))
                };
                let mut calls: Vec<(&str, Value)> = (0..*hands).map(order).collect();
                calls.push(("Bash", json!({"command": format!("echo led >> {}.effects", call.node.step)})));
                say(call, "", &calls)
            }
            ("talker", Some(Kind::Talker { turns })) => talk(call, *turns),
            ("reader", Some(Kind::Reader { session, schema: true })) if turn >= session.turns.len() => {
                let misfit = turn == session.turns.len() && session.turns.len() == 1;
                say(call, if misfit { "{\"n\": 0}" } else { "{\"n\": 3}" }, &[])
            }
            (_, Some(Kind::Reader { session, .. } | Kind::Writer { session, .. })) => follow(call, session, turn, true),
            (_, Some(Kind::Fan { items, .. })) => {
                let item = items.iter().find(|item| call.node.item.as_deref() == Some(&item.key));
                let added = Session { name: format!("{}-{}", call.node.step, call.node.item.as_deref().unwrap_or_default()), ..Session::default() };
                follow(call, item.map_or(&added, |item| &item.session), turn, item.is_none_or(|item| attempt > item.bad))
            }
            (_, Some(Kind::Choice { .. })) => {
                let key = call.node.item.clone().unwrap_or_default();
                match turn {
                    0 => say(call, "", &[("Write", json!({"file_path": format!("{key}.way"), "content": format!("{key}\n")}))]),
                    _ => say(call, "Gone.", &[]),
                }
            }
            ("writer", _) if turn == 0 => say(call, "", &[("Bash", json!({"command": format!("echo did >> {}.effects", call.node.step)}))]),
            _ => say(call, "Done.", &[]),
        }
    }

    fn watch(&self, call: &ModelCall<'_>, turn: usize) -> Reply {
        let Some(piece) = self.scenario.supervised().filter(|_| turn == 0) else { return say(call, "All is well.", &[]) };
        say(call, "", &[("AddItems", json!({"step": piece.id, "items": [{"id": "late", "needs": []}]}))])
    }
}

/// Counts the replies that were whole.
fn turn(call: &ModelCall<'_>) -> usize {
    call.messages.iter().filter(|message| message.role == Role::Assistant && !message.blocks.is_empty() && message.text() != HALF).count()
}

/// Does what stands in a session, then makes its checks green and ends.
fn follow(call: &ModelCall<'_>, session: &Session, turn: usize, good: bool) -> Reply {
    let ok = || ("Write", json!({"file_path": format!("{}.ok", session.name), "content": "ok\n"}));
    let last = session.turns.len();
    if let Some(acts) = session.turns.get(turn) {
        return say(call, "", &acts.iter().map(|act| act.call(&session.name)).collect::<Vec<_>>());
    }
    let writes = call.agent == "writer" && good;
    match turn - last {
        0 if session.red_first => say(call, "Done, I think.", &[]),
        0 if writes => say(call, "", &[ok()]),
        1 if session.red_first && writes => say(call, "", &[ok()]),
        _ => say(call, &format!("{} is done.", call.node.step), &[]),
    }
}

/// Says much in many turns; how far it is, is read from what came last, since what came before may be shortened.
fn talk(call: &ModelCall<'_>, turns: usize) -> Reply {
    let marks = call.messages.iter().flat_map(|message| &message.blocks).filter_map(|block| match block.view() {
        View::ToolResult(result) => result.text.rsplit("mark-").next()?.trim().parse::<usize>().ok(),
        _ => None,
    });
    let next = marks.max().map_or(0, |mark| mark + 1);
    if next >= turns {
        return say(call, "Talked.", &[]);
    }
    say(call, "", &[("Bash", json!({"command": format!("echo talked >> {}.effects; seq 1 2500; echo mark-{next}", call.node.step)}))])
}

fn say(call: &ModelCall<'_>, text: &str, calls: &[(&str, Value)]) -> Reply {
    let bytes: usize = call.system.len() + call.messages.iter().map(|message| message.bytes()).sum::<usize>();
    let mut reply = script::reply_to(call, text, calls);
    reply.usage.input = (bytes / 4) as u64;
    reply.usage.output = 10;
    call.models.first().map_or("script/script", String::as_str).clone_into(&mut reply.model);
    reply
}

#[async_trait]
impl Model for Mind {
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        self.hear(call);
        let failed = |kind| Err(ModelError::new(kind, "it is said to fail"));
        match self.breaks(call) {
            None => Ok(self.answer(call)),
            Some(Broken::Overloaded) => failed(ModelErrorKind::Overloaded),
            Some(Broken::Cut) => {
                sink.text(HALF);
                failed(ModelErrorKind::Cut)
            }
            Some(Broken::Later) => failed(ModelErrorKind::Later),
            Some(Broken::Stalls) => std::future::pending().await,
            Some(Broken::StallsInside) => {
                sink.text(HALF);
                sink.alive();
                std::future::pending().await
            }
            Some(Broken::Empty) => Ok(say(call, "", &[])),
            Some(Broken::MaxTokens) => Ok(Reply { stop: StopReason::MaxTokens, ..say(call, HALF, &[]) }),
        }
    }

    fn window(&self, model: &str) -> u64 {
        if model.starts_with("small/") { 32_000 } else { 200_000 }
    }

    fn is_scripted(&self) -> bool {
        true
    }
}
