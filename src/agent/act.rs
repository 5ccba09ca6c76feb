//! Doing what a reply asks for: every call gets exactly one result, those that do not touch each other at the same time.
use super::{
    Agent, Trouble, blocking,
    gate::{Gate, Passed},
    lanes::{Lane, Lanes},
};
use crate::{
    clock::millis,
    event::{BlobId, CommitId, Event, Failure, FailureKind, FileBefore, Form, Recovery, because},
    journal::{BlobError, Call, PERSON, Started},
    message::{Block, Message, Raw, Reply, ToolCall, ToolResult, View},
    tools::{self, Asks, Effect, ToolContext, ToolError, ToolOutput},
    trace,
};
use futures_util::future::join_all;
use serde_json::Value;
use std::{collections::BTreeSet, error::Error, sync::Arc};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{Instrument as _, Span};

/// Calls of one reply under way at the same time.
const AT_ONCE: usize = 64;
/// No result is longer than this, whatever its tool says, in bytes.
const RESULT_BYTES_MAX: usize = 64 * 1024;

impl Agent<'_> {
    /// Answers the open calls of the last reply.
    pub(super) async fn act(&mut self) -> Result<(), Trouble> {
        self.settle_in().await?;
        let open: Vec<Call> = self.talk.open_calls().cloned().collect();
        self.sweep(&open).await?;
        let lanes = Lanes::new(open.iter().map(|call| self.effect(&call.call.name, input_of(call))).collect());
        for (at, call) in open.iter().enumerate() {
            // Sub-agents that had not begun when the process died start from what those beside them started from.
            if let Some(Recovery::Delegated(base)) = call.started.as_ref().map(|started| &started.recovery) {
                let _ = lanes.lane(at).base().set(base.clone());
            }
        }
        let slots = Semaphore::new(AT_ONCE);
        let this = &*self;
        let (lanes, slots) = (&lanes, &slots);
        let ends = join_all(open.iter().enumerate().map(|(at, call)| async move {
            let lane = lanes.lane(at);
            let end = this.answer(lane, call, slots).await;
            lane.finish();
            end
        }))
        .await;
        let mut trouble = None;
        for end in ends {
            match end {
                Ok(events) => events.iter().for_each(|event| self.talk.apply(event)),
                Err(other) => trouble = Some(graver(trouble, other)),
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Returns what a call may touch; a call that cannot run touches nothing.
    pub(super) fn effect(&self, tool: &str, input: &Value) -> Effect {
        let toolbox = &self.equipment.toolbox;
        match toolbox.get(tool) {
            Some(tool) if toolbox.check(&tool.spec().name, input).is_ok() => tool.effect(input, &self.session.tools),
            _ => Effect::Reads(Vec::new()),
        }
    }

    async fn answer(&self, lane: Lane<'_>, call: &Call, slots: &Semaphore) -> Result<Vec<Event>, Trouble> {
        lane.wait().await;
        self.go_on()?;
        let span = trace::tool(&call.call.name, &call.call.id);
        let answered = self.pass(lane, call, slots).instrument(span.clone()).await;
        if let Ok(events) = &answered {
            note(&span, events);
        }
        answered
    }

    /// Takes a call through the gate, runs it and records its result. Who has a slot waits for no other call.
    async fn pass(&self, lane: Lane<'_>, call: &Call, slots: &Semaphore) -> Result<Vec<Event>, Trouble> {
        if call.cut {
            return self.refuse(&call.call, "This call was cut at the output limit and was not run. Make it again in smaller pieces.", "cut").await;
        }
        if let Some(started) = &call.started {
            let is_rolled_back = matches!(started.recovery, Recovery::Rollback(_));
            let effect = if is_rolled_back { Effect::Exclusive } else { self.effect(&call.call.name, input_of(call)) };
            lane.settle(&effect);
            lane.begin();
            lane.wait_as(&effect).await;
            let _slot = slot(slots, &effect).await;
            return self.recover(lane, call, started).await;
        }
        let judged = {
            let _slot = slots.acquire().await.ok();
            self.go_on()?;
            self.gate(&call.call).await?
        };
        match judged {
            Gate::Refuse { text, verdict } => self.refuse(&call.call, &text, verdict).await,
            Gate::Pass(passed) => {
                if let Some(asks) = self.equipment.toolbox.get(&call.call.name).and_then(|tool| tool.asks(&passed.input)) {
                    return self.ask_person(&call.call, asks, passed).await;
                }
                let asked = self.effect(&call.call.name, &passed.input);
                // Without walls a command may have reached beyond the worktree, and nothing brings that back.
                let reaches_out = asked == Effect::Exclusive && self.session.reaches_out;
                let undone = self.equipment.hooks.roll_back(&self.session.spec.hooks, self.name_of(&call.call));
                // What such a call did must be told from what others do beside it.
                let held = if asked == Effect::External && undone { Effect::Exclusive } else { asked.clone() };
                let before = self.prepare(lane, &held).await?;
                let _slot = slot(slots, &asked).await;
                self.go_on()?;
                let recovery = if reaches_out || asked == Effect::External { Recovery::Unknown } else { before.clone() };
                let event = Event::ToolStarted {
                    node: self.session.node.clone(),
                    call: call.call.id.clone(),
                    input: passed.rewritten.then(|| passed.input.clone()),
                    recovery,
                };
                let mut events = vec![self.put(event).await?];
                lane.begin();
                events.extend(self.execute(lane, &call.call, passed, &before).await?);
                Ok(events)
            }
        }
    }

    /// Answers a call that is a question to a person, once they have answered it.
    async fn ask_person(&self, call: &ToolCall, asks: Asks, passed: Passed) -> Result<Vec<Event>, Trouble> {
        let name = format!("{}{PERSON}", call.id);
        let Some(answer) = self.talk.question(&name).and_then(|question| question.answer.clone()) else {
            let form = Form { open: true, choices: asks.choices, ..Form::default() };
            return Err(self.park(&name, &asks.question, form).await);
        };
        let text = format!("{} answers: {}", answer.by, answer.note.unwrap_or_else(|| if answer.allowed { "yes" } else { "no" }.to_owned()));
        let event = Event::ToolFinished {
            node: self.session.node.clone(),
            result: ToolResult::new(&call.id, text, false),
            tool: call.name.clone(),
            verdict: passed.verdict,
            context: passed.context,
            output: None,
            seen: Vec::new(),
            took_ms: 0,
        };
        Ok(vec![self.put(event).await?])
    }

    async fn refuse(&self, call: &ToolCall, text: &str, verdict: &str) -> Result<Vec<Event>, Trouble> {
        let event = Event::ToolFinished {
            node: self.session.node.clone(),
            result: ToolResult::new(&call.id, text, true),
            tool: call.name.clone(),
            verdict: verdict.to_owned(),
            context: Vec::new(),
            output: None,
            seen: Vec::new(),
            took_ms: 0,
        };
        Ok(vec![self.put(event).await?])
    }

    /// Ends a call whose effect may have begun before the process died.
    async fn recover(&self, lane: Lane<'_>, call: &Call, started: &Started) -> Result<Vec<Event>, Trouble> {
        match &started.recovery {
            Recovery::Again | Recovery::Delegated(_) => {}
            Recovery::Restore(files) => self.put_back(files).await?,
            Recovery::Rollback(commit) => self.roll_back(commit).await?,
            Recovery::Unknown => {
                let text = "This call was interrupted when the program died. It may or may not have had its effect: check before you make it again.";
                return self.refuse(&call.call, text, "interrupted").await;
            }
        }
        let passed = Passed {
            input: input_of(call).clone(),
            rewritten: started.input.is_some(),
            context: Vec::new(),
            verdict: "allowed before the interruption".to_owned(),
        };
        self.execute(lane, &call.call, passed, &started.recovery).await
    }

    /// Runs a call that passed the gate, asks the hooks about its result and records it. `recovery` says what was before it.
    async fn execute(&self, lane: Lane<'_>, call: &ToolCall, passed: Passed, recovery: &Recovery) -> Result<Vec<Event>, Trouble> {
        let began = self.equipment.clock.elapsed();
        let tools = ToolContext { seen: Arc::new(self.session.tools.seen.of_call()), ..self.session.tools.clone() };
        let (mut output, before) = match recovery {
            Recovery::Delegated(base) => {
                let delivered = self.delegate(lane, call, &passed.input, base).await?;
                (delivered.output, delivered.before.map(Recovery::Rollback))
            }
            Recovery::Again | Recovery::Restore(_) | Recovery::Rollback(_) | Recovery::Unknown => (self.run_tool(call, &passed.input, &tools).await?, None),
        };
        self.tell_strays(call, &passed.input, &mut output).await;
        output = self.without_secrets(output);
        self.go_on()?;
        let took = self.equipment.clock.elapsed().saturating_sub(began);
        let mut context = passed.context;
        let after = self.hooks_after(call, &passed.input, &output, took).await?;
        context.extend(after.context);
        if let Some(text) = after.output {
            output.text = text;
            output = self.without_secrets(output);
        }
        if let Some(reason) = after.blocked {
            if after.rollback && self.undo(before.as_ref().unwrap_or(recovery)).await? {
                output.text = format!("A hook refused the result of this call, and the worktree was put back to what it was before it: {reason}");
            } else if after.rollback {
                output.text = format!("A hook refused the result of this call, and what it did could not be put back: undo it. {reason}\n\n{}", output.text);
            } else {
                output.text = format!("A hook refused the result of this call: {reason}\n\n{}", output.text);
            }
            output.is_error = true;
        }
        let context = context.iter().map(|text| tools::readable(text)).collect();
        let (text, whole) = cap(tools::readable(&output.text), output.whole);
        let output_blob = match whole {
            Some(whole) => Some(self.keep(whole).await?),
            None => None,
        };
        let event = Event::ToolFinished {
            node: self.session.node.clone(),
            result: ToolResult::new(&call.id, text, output.is_error),
            tool: call.name.clone(),
            verdict: passed.verdict,
            context,
            output: output_blob,
            seen: tools.seen.news(),
            took_ms: millis(took),
        };
        let event = self.put(event).await?;
        match after.stop {
            Some(reason) => Err(Failure::new(FailureKind::Hook, format!("a hook stopped the agent: {reason}")).into()),
            None => Ok(vec![event]),
        }
    }

    /// Tells the agent right after a command which changes in its files lie outside what it may write.
    async fn tell_strays(&self, call: &ToolCall, input: &Value, output: &mut ToolOutput) {
        const LISTED: usize = 20;
        let (Some(scope), Some(worktree)) = (&self.session.tools.scope, &self.session.worktree) else { return };
        if !matches!(self.effect(&call.name, input), Effect::Exclusive) {
            return;
        }
        let (workspaces, worktree) = (self.equipment.workspaces.clone(), worktree.clone());
        // Where it cannot be told now, the commit says why.
        let Ok(differing) = blocking(FailureKind::Environment, move || workspaces.differing(&worktree)).await else { return };
        let strays: Vec<&str> = differing.iter().map(String::as_str).filter(|path| !scope.contains(path)).take(LISTED).collect();
        if !strays.is_empty() {
            let text = format!(
                "\n\n[Outside what this step may write ({}), so that its work cannot be kept like this: {}. Put these back as they were.]",
                scope.patterns().join(", "),
                strays.join(", ")
            );
            output.text += &text;
        }
    }

    async fn run_tool(&self, call: &ToolCall, input: &Value, context: &ToolContext) -> Result<ToolOutput, Trouble> {
        let Some(tool) = self.equipment.toolbox.get(&call.name) else {
            return Ok(ToolOutput { text: format!("there is no tool `{}`", call.name), is_error: true, ..ToolOutput::default() });
        };
        match tool.call(input, context).await {
            Ok(output) => Ok(output),
            Err(ToolError::Model(text)) => Ok(ToolOutput { response: Value::String(text.clone()), text, is_error: true, ..ToolOutput::default() }),
            Err(ToolError::Fatal(error)) => {
                let message = format!("use the workspace of {}: {}", self.session.node, because(&error));
                Err(Failure::new(FailureKind::Environment, message).into())
            }
        }
    }

    /// Takes the values of secrets out of a result before hooks, the model and the record get it.
    fn without_secrets(&self, output: ToolOutput) -> ToolOutput {
        let secrets = &self.equipment.secrets;
        if secrets.is_empty() {
            return output;
        }
        ToolOutput {
            text: secrets.text(&output.text).into_owned(),
            response: secrets.clean(output.response),
            whole: output.whole.map(|whole| secrets.bytes(&whole).into_owned()),
            is_error: output.is_error,
        }
    }

    /// Waits for the calls that this one must come after, and notes what must be known to run it again.
    ///
    /// A write to a file that holds a secret counts as one that may do anything: what was there before is then kept as
    /// the worktree's checkpoint, not beside the journal.
    async fn prepare(&self, lane: Lane<'_>, effect: &Effect) -> Result<Recovery, Trouble> {
        let Effect::Writes(paths) = effect else {
            lane.settle(effect);
            lane.wait_as(effect).await;
            return self.recovery(lane, effect).await;
        };
        if self.equipment.secrets.is_empty() {
            lane.settle(effect);
        }
        lane.wait_as(effect).await;
        if let Some(files) = self.files_before(paths).await? {
            lane.settle(effect);
            return Ok(Recovery::Restore(files));
        }
        lane.settle(&Effect::Exclusive);
        lane.wait_as(&Effect::Exclusive).await;
        self.recovery(lane, &Effect::Exclusive).await
    }

    /// Keeps what stands in files; `None` where that is a secret.
    async fn files_before(&self, paths: &[String]) -> Result<Option<Vec<FileBefore>>, Trouble> {
        let (paths, root, blobs) = (paths.to_vec(), self.session.tools.root.clone(), self.equipment.blobs.clone());
        let secrets = self.equipment.secrets.clone();
        blocking(FailureKind::Environment, move || {
            let before = tools::before(&paths, &root);
            if before.iter().filter_map(|file| file.content.as_ref()).any(|content| secrets.found_in(content).is_some()) {
                return Ok(None);
            }
            let kept = before.into_iter().map(|file| {
                let content = file.content.map(|content| blobs.put(&content)).transpose()?;
                Ok::<_, BlobError>(FileBefore { path: file.path, content, executable: file.executable })
            });
            kept.collect::<Result<Vec<_>, _>>().map(Some)
        })
        .await
    }

    /// Returns what must be known to run a call again that writes no files by name.
    async fn recovery(&self, lane: Lane<'_>, effect: &Effect) -> Result<Recovery, Trouble> {
        match (effect, &self.session.delegates) {
            (Effect::Delegated, Some(delegates)) => Ok(Recovery::Delegated(lane.base().get_or_try_init(|| delegates.present()).await?.clone())),
            (Effect::Reads(_) | Effect::Recorded | Effect::Delegated, _) => Ok(Recovery::Again),
            (Effect::External, _) => Ok(Recovery::Unknown),
            (Effect::Exclusive | Effect::Writes(_), _) => match self.session.worktree.clone() {
                None => Ok(Recovery::Unknown),
                Some(worktree) => {
                    let workspaces = self.equipment.workspaces.clone();
                    blocking(FailureKind::Environment, move || workspaces.checkpoint(&worktree)).await.map(Recovery::Rollback)
                }
            },
        }
    }

    /// Puts back what a call did, and says whether nothing of it is left.
    async fn undo(&self, recovery: &Recovery) -> Result<bool, Trouble> {
        match recovery {
            Recovery::Restore(files) => self.put_back(files).await.map(|()| true),
            Recovery::Rollback(commit) => self.roll_back(commit).await.map(|()| true),
            Recovery::Again => Ok(true),
            Recovery::Delegated(_) | Recovery::Unknown => Ok(false),
        }
    }

    /// Removes what the writes of a process that died left half-made, before any call of this one writes.
    async fn sweep(&self, open: &[Call]) -> Result<(), Trouble> {
        let restores = open.iter().filter_map(|call| match &call.started.as_ref()?.recovery {
            Recovery::Restore(files) => Some(files.iter().map(|file| file.path.clone())),
            Recovery::Again | Recovery::Rollback(_) | Recovery::Delegated(_) | Recovery::Unknown => None,
        });
        let paths: BTreeSet<String> = restores.flatten().collect();
        if paths.is_empty() {
            return Ok(());
        }
        let root = self.session.tools.root.clone();
        blocking(FailureKind::Environment, move || tools::sweep(paths.iter().map(String::as_str), &root)).await
    }

    async fn put_back(&self, files: &[FileBefore]) -> Result<(), Trouble> {
        let (files, root, blobs) = (files.to_vec(), self.session.tools.root.clone(), self.equipment.blobs.clone());
        blocking(FailureKind::Environment, move || -> Result<(), Box<dyn Error + Send + Sync>> {
            let files = files.into_iter().map(|file| {
                let content = file.content.map(|id| blobs.get(&id)).transpose()?;
                Ok::<_, BlobError>(tools::Before { path: file.path, content, executable: file.executable })
            });
            Ok(tools::put_back(&files.collect::<Result<Vec<_>, _>>()?, &root)?)
        })
        .await
    }

    async fn roll_back(&self, commit: &CommitId) -> Result<(), Trouble> {
        let Some(worktree) = self.session.worktree.clone() else { return Ok(()) };
        let (workspaces, commit) = (self.equipment.workspaces.clone(), commit.clone());
        blocking(FailureKind::Environment, move || workspaces.rollback(&worktree, &commit)).await
    }

    async fn keep(&self, whole: Vec<u8>) -> Result<BlobId, Trouble> {
        let blobs = self.equipment.blobs.clone();
        blocking(FailureKind::Environment, move || blobs.put(&whole)).await
    }
}

/// Notes on a call's span how it was judged and whether its result is an error; the result's text is not exported.
fn note(span: &Span, events: &[Event]) {
    for event in events {
        if let Event::ToolFinished { verdict, result, .. } = event {
            trace::judged(span, verdict);
            if result.is_error {
                trace::failed(span, "tool_error", verdict);
            }
        }
    }
}

/// Returns a slot for a call that is run. Sub-agents wait for each other, and have bounds of their own.
async fn slot<'s>(slots: &'s Semaphore, effect: &Effect) -> Option<SemaphorePermit<'s>> {
    if *effect == Effect::Delegated { None } else { slots.acquire().await.ok() }
}

fn input_of(call: &Call) -> &Value {
    call.started.as_ref().and_then(|started| started.input.as_ref()).unwrap_or(&call.call.input)
}

/// A failure says more than a question, a question more than an interruption.
fn graver(present: Option<Trouble>, other: Trouble) -> Trouble {
    match (present, other) {
        (Some(Trouble::Failed(failure)), _) | (_, Trouble::Failed(failure)) => Trouble::Failed(failure),
        (Some(Trouble::Parked), _) | (_, Trouble::Parked) => Trouble::Parked,
        (_, Trouble::Interrupted) => Trouble::Interrupted,
    }
}

/// Holds a result to the cap of all results; what is cut is kept whole.
fn cap(text: String, whole: Option<Vec<u8>>) -> (String, Option<Vec<u8>>) {
    if text.len() <= RESULT_BYTES_MAX {
        return (text, whole);
    }
    let head = text.floor_char_boundary(RESULT_BYTES_MAX * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - RESULT_BYTES_MAX / 4);
    let cut = format!("{}\n[… {} bytes not shown …]\n{}", &text[..head], tail - head, &text[tail..]);
    (cut, Some(whole.unwrap_or_else(|| text.into_bytes())))
}

/// Gives calls whose id is empty or taken one of their own, the same on every resume.
pub(super) fn unique_ids(mut reply: Reply, messages: &[Arc<Message>], turn: u32) -> Reply {
    let calls: Vec<&str> = reply.calls().map(|call| call.id.as_str()).collect();
    let distinct: BTreeSet<&str> = calls.iter().copied().filter(|id| !id.is_empty()).collect();
    let taken = |id: &str| messages.iter().any(|message| message.calls().any(|call| call.id == id));
    if distinct.len() == calls.len() && !distinct.iter().any(|id| taken(id)) {
        return reply;
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    for (at, block) in reply.blocks.iter_mut().enumerate() {
        let View::ToolCall(call) = block.view() else { continue };
        let mut id = call.id.clone();
        if id.is_empty() || taken(&id) || used.contains(&id) {
            id = format!("call_{turn}_{at}");
            if let Ok(mut value) = serde_json::from_str::<Value>(block.raw().as_str()) {
                value["id"] = Value::String(id.clone());
                *block = Block::from_raw(Raw::of(&value));
            }
        }
        used.insert(id);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::script::reply;
    use serde_json::json;

    #[test]
    fn ids_that_are_empty_or_taken_are_minted_anew_and_the_same_each_time() {
        let earlier = Arc::new(reply("", &[("Read", json!({}))]).message().unwrap());
        let id = earlier.calls().next().unwrap().id.clone();
        let twice = Reply {
            blocks: vec![
                Block::tool_call(&ToolCall { id: id.clone(), name: "Read".into(), input: json!({}) }),
                Block::tool_call(&ToolCall { id: String::new(), name: "Read".into(), input: json!({}) }),
            ],
            ..reply("", &[])
        };
        let minted = unique_ids(twice.clone(), std::slice::from_ref(&earlier), 7);
        let ids: Vec<&str> = minted.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_7_0", "call_7_1"]);
        assert_eq!(unique_ids(twice, &[earlier], 7), minted);
    }

    #[test]
    fn a_result_beyond_the_cap_is_cut_and_says_so() {
        let (text, whole) = cap("é".repeat(RESULT_BYTES_MAX), None);
        assert!(text.len() < RESULT_BYTES_MAX + 100 && text.contains("bytes not shown"));
        assert_eq!(whole.unwrap().len(), RESULT_BYTES_MAX * 2);
    }
}
