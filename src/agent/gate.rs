//! The one gate: every tool call of every agent, at every depth, in every mode, goes through here.
//!
//! schema -> hooks before -> schema again if rewritten -> permission rules -> the agent's mode -> scope -> (execution) ->
//! hooks after. There is no other way to run a tool. A "no" of a hook or a deny rule is final; an allow of a hook does not
//! undo an ask or deny rule.
use super::{Agent, Trouble};
use crate::{
    clock::millis,
    event::{Event, Failure, FailureKind, Form, HookVerdict},
    hooks::{self, Answered, Ask, Decision, HookRunner, RuleContext, RuleVerdict, Verdict},
    journal::{Doing, STOP},
    message::ToolCall,
    tools::{Effect, ToolOutput},
    trace,
    workflow::Access,
};
use serde_json::Value;
use std::time::Duration;

/// No hook runs longer, whatever its file says.
const HOOK_TIME_MAX: Duration = Duration::from_mins(10);
/// Bytes of a call's input that a person is shown when they are asked about it.
const SHOWN_MAX: usize = 16 << 10;

/// What the gate says of a call.
pub(super) enum Gate {
    /// It may run.
    Pass(Passed),
    /// It is answered without having run.
    Refuse {
        /// What the model is told.
        text: String,
        /// One or two words for the record.
        verdict: &'static str,
    },
}

/// A call that may run.
pub(super) struct Passed {
    /// The input as hooks left it.
    pub(super) input: Value,
    /// Whether they changed it.
    pub(super) rewritten: bool,
    /// What they want the model to know.
    pub(super) context: Vec<String>,
    /// Why it may, in a few words for the record.
    pub(super) verdict: String,
}

/// What hooks said of a result.
#[derive(Default)]
pub(super) struct After {
    /// The text that stands for the result.
    pub(super) output: Option<String>,
    /// Why the result is an error.
    pub(super) blocked: Option<String>,
    /// Whether the worktree goes back to what it was before the call.
    pub(super) rollback: bool,
    /// Why the agent ends.
    pub(super) stop: Option<String>,
    /// What the model is told besides.
    pub(super) context: Vec<String>,
}

/// What Stop hooks have against an end.
pub(super) struct Objection {
    /// What the agent is told.
    pub(super) reason: String,
    /// Who says so, and to which event.
    hooks: Vec<(String, &'static str)>,
}

impl Agent<'_> {
    /// Judges a call.
    ///
    /// # Errors
    /// `Trouble` where a hook ends the agent or nobody is there to answer.
    pub(super) async fn gate(&self, call: &ToolCall) -> Result<Gate, Trouble> {
        if let Some(gate) = self.settled(call) {
            return Ok(gate);
        }
        if let Some(gate) = self.malformed(call, &call.input) {
            return Ok(gate);
        }
        let decision = self.hooks_before(call).await?;
        let allowed_by_hook = decision.verdict == Verdict::Allow;
        let asked_by_hook = match decision.verdict {
            Verdict::Deny { reason } => return Ok(refuse(reason, "denied by a hook")),
            Verdict::Stop { reason } => return Err(Failure::new(FailureKind::Hook, format!("a hook stopped the agent: {reason}")).into()),
            Verdict::Park => {
                if let RuleVerdict::Deny { rule } = self.rule(call, decision.input.as_ref().unwrap_or(&call.input)) {
                    return Ok(forbidden(&rule));
                }
                let form = Form { input: decision.input, context: decision.context, ..Form::default() };
                return Err(self.park(&call.id, &self.shown(call, &call.input, "a hook wants this call to wait"), form).await);
            }
            Verdict::Ask { question } => Some(question),
            Verdict::Allow | Verdict::Undecided => None,
        };
        let rewritten = decision.input.is_some();
        let input = decision.input.unwrap_or_else(|| call.input.clone());
        if let Some(gate) = self.malformed(call, &input).filter(|_| rewritten) {
            return Ok(gate);
        }
        let effect = self.effect(&call.name, &input);
        let question = match self.rule(call, &input) {
            RuleVerdict::Deny { rule } => return Ok(forbidden(&rule)),
            RuleVerdict::Ask { reason } => Some(reason),
            RuleVerdict::Allow { .. } if asked_by_hook.is_none() => None,
            RuleVerdict::Allow { .. } => asked_by_hook,
            RuleVerdict::None { .. } if allowed_by_hook && !self.beyond_access(&effect) => None,
            RuleVerdict::None { .. } => match (self.by_mode(call, &effect), asked_by_hook) {
                (Mode::Deny(reason), _) => return Ok(refuse(reason, "denied by its access")),
                (Mode::Allow, asked) => asked,
                (Mode::Ask(reason), asked) => Some(asked.filter(|question| !question.is_empty()).unwrap_or(reason)),
            },
        };
        if let Some(reason) = self.out_of_scope(&effect) {
            return Ok(refuse(reason, "denied by its scope"));
        }
        match question {
            None => Ok(Gate::Pass(Passed { input, rewritten, context: decision.context, verdict: "allowed".to_owned() })),
            Some(why) => {
                let asked = self.shown(call, &input, &why);
                Err(self.park(&call.id, &asked, Form { input: rewritten.then_some(input), context: decision.context, ..Form::default() }).await)
            }
        }
    }

    /// Judges a call that a person was asked about and has answered: for the input they were shown. Hooks had their say
    /// before they were asked; what rules and the scope forbid by now stays forbidden.
    fn settled(&self, call: &ToolCall) -> Option<Gate> {
        let question = self.talk.question(&call.id)?;
        let answer = question.answer.as_ref()?;
        let note = answer.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        if !answer.allowed {
            return Some(refuse(format!("this call was refused by {}{note}. Find another way.", answer.by), "denied by a person"));
        }
        let (rewritten, input) = (question.form.input.is_some(), question.form.input.clone().unwrap_or_else(|| call.input.clone()));
        if let Some(gate) = self.malformed(call, &input) {
            return Some(gate);
        }
        if let RuleVerdict::Deny { rule } = self.rule(call, &input) {
            return Some(forbidden(&rule));
        }
        if let Some(reason) = self.out_of_scope(&self.effect(&call.name, &input)) {
            return Some(refuse(reason, "denied by its scope"));
        }
        let mut context = question.form.context.clone();
        context.extend(answer.note.as_ref().map(|note| format!("{} allowed this call and says: {note}", answer.by)));
        Some(Gate::Pass(Passed { input, rewritten, context, verdict: format!("allowed by {}", answer.by) }))
    }

    /// Refuses what no tool could run.
    fn malformed(&self, call: &ToolCall, input: &Value) -> Option<Gate> {
        let tools = &self.session.spec.tools;
        if let Some(text) = call.invalid_input() {
            let text: String = text.chars().take(500).collect();
            return Some(refuse(format!("the arguments are not valid JSON, so nothing was run: {text}"), "malformed"));
        }
        let name = self.equipment.toolbox.get(&call.name).map(|tool| tool.spec().name.clone());
        match name.filter(|name| tools.contains(name)) {
            None => Some(refuse(format!("there is no tool `{}`; there are {}", call.name, tools.join(", ")), "unknown tool")),
            Some(name) => self.equipment.toolbox.check(&name, input).err().map(|why| refuse(why, "malformed")),
        }
    }

    fn rule(&self, call: &ToolCall, input: &Value) -> RuleVerdict {
        let cx =
            RuleContext { cwd: &self.session.tools.cwd, root: &self.session.tools.root, home: self.session.home.as_deref(), writable: &self.session.writable };
        self.session.permissions.judge(&call.name, input, &cx)
    }

    /// Whether an effect is more than the agent's access ever allows.
    fn beyond_access(&self, effect: &Effect) -> bool {
        self.session.spec.access == Access::Read && matches!(effect, Effect::Writes(_) | Effect::Exclusive)
    }

    /// What the agent's access says where no rule decides: it reads freely, edits freely where it may write, and runs
    /// commands freely only inside walls.
    fn by_mode(&self, call: &ToolCall, effect: &Effect) -> Mode {
        if self.beyond_access(effect) {
            return Mode::Deny("this agent may only read, and this call could write. Use a command or tool that only reads.".to_owned());
        }
        match effect {
            Effect::Reads(_) | Effect::Writes(_) | Effect::External | Effect::Recorded | Effect::Delegated => Mode::Allow,
            Effect::Exclusive if self.session.free_shell => Mode::Allow,
            Effect::Exclusive => Mode::Ask(format!("{} may do anything on this machine", call.name)),
        }
    }

    fn out_of_scope(&self, effect: &Effect) -> Option<String> {
        let scope = self.session.tools.scope.as_ref()?;
        effect.outside(scope)
    }

    /// Leaves a question waiting, durably. One that waits already waits on.
    pub(super) async fn park(&self, name: &str, question: &str, form: Form) -> Trouble {
        if self.talk.open_questions().any(|open| open.call == name && open.text == question) {
            return Trouble::Parked;
        }
        let event = Event::QuestionAsked { node: self.session.node.clone(), call: name.to_owned(), question: question.to_owned(), form };
        match self.equipment.recorder.record(event).await {
            Ok(()) => Trouble::Parked,
            Err(closed) => closed.into(),
        }
    }

    async fn hooks_before(&self, call: &ToolCall) -> Result<Decision, Trouble> {
        let traceparent = trace::traceparent();
        let decision =
            self.equipment.hooks.before(&self.session.spec.hooks, &self.ask_hooks(call, &call.input), &self.runner(traceparent.as_deref(), &call.id)).await;
        // What a hook says that was cut short is no answer: it is asked again when the run goes on.
        self.go_on()?;
        self.report(&decision, Some(&call.id)).await?;
        Ok(decision)
    }

    /// Asks the hooks about a result.
    pub(super) async fn hooks_after(&self, call: &ToolCall, input: &Value, output: &ToolOutput, took: Duration) -> Result<After, Trouble> {
        let traceparent = trace::traceparent();
        let answered = Answered {
            tool_response: &output.response,
            error: output.is_error.then_some(output.text.as_str()),
            is_interrupt: false,
            duration_ms: millis(took),
        };
        let decision =
            self.equipment.hooks.after(&self.session.spec.hooks, &self.ask_hooks(call, input), &answered, &self.runner(traceparent.as_deref(), &call.id)).await;
        if !matches!(decision.verdict, Verdict::Undecided | Verdict::Allow) {
            self.go_on()?;
        }
        self.report(&decision, Some(&call.id)).await?;
        let mut after = After { output: decision.output.as_ref().map(plain), rollback: decision.rollback, context: decision.context, ..After::default() };
        match decision.verdict {
            Verdict::Deny { reason } => after.blocked = Some(reason),
            Verdict::Stop { reason } => after.stop = Some(reason),
            Verdict::Undecided | Verdict::Allow | Verdict::Ask { .. } | Verdict::Park => {}
        }
        Ok(after)
    }

    /// Asks the Stop hooks: what the agent is to be told where it must go on.
    pub(super) async fn stop_hooks(&self, text: &str) -> Result<Option<Objection>, Trouble> {
        let traceparent = trace::traceparent();
        let ending = hooks::Ending {
            session: self.hook_session(),
            is_sub_agent: self.session.node.helper.is_some(),
            stop_hook_active: self.talk.tally().stops > 0,
            last_assistant_message: Some(text),
        };
        let decision = self.equipment.hooks.stop(&self.session.spec.hooks, &ending, &self.runner(traceparent.as_deref(), STOP)).await;
        self.go_on()?;
        self.report(&decision, None).await?;
        match decision.verdict {
            Verdict::Deny { reason } => {
                let objects = decision.ran.iter().filter(|ran| ran.verdict == HookVerdict::Block);
                Ok(Some(Objection { reason, hooks: objects.map(|ran| (ran.hook.clone(), ran.on.name())).collect() }))
            }
            Verdict::Stop { reason } => Err(Failure::new(FailureKind::Hook, format!("a hook stopped the agent: {reason}")).into()),
            Verdict::Undecided | Verdict::Allow | Verdict::Ask { .. } | Verdict::Park => Ok(None),
        }
    }

    /// Records that an agent stops although hooks object.
    pub(super) async fn overrule(&self, objection: &Objection, why: &str) -> Result<(), Trouble> {
        for (hook, on) in &objection.hooks {
            let event = Event::HookRan {
                node: self.session.node.clone(),
                hook: hook.clone(),
                on: (*on).to_owned(),
                call: None,
                verdict: HookVerdict::Error,
                reason: format!("it still objects and is overruled, since {why}: {}", objection.reason),
            };
            self.equipment.recorder.record(event).await?;
        }
        Ok(())
    }

    /// Records what hooks said, and what went wrong with them; those that had nothing to say are not recorded.
    async fn report(&self, decision: &Decision, call: Option<&str>) -> Result<(), Trouble> {
        for ran in decision.ran.iter().filter(|ran| ran.verdict != HookVerdict::None) {
            let event = Event::HookRan {
                node: self.session.node.clone(),
                hook: ran.hook.clone(),
                on: ran.on.name().to_owned(),
                call: call.map(str::to_owned),
                verdict: ran.verdict,
                reason: ran.reason.clone(),
            };
            self.equipment.recorder.record(event).await?;
        }
        Ok(())
    }

    fn ask_hooks<'s>(&'s self, call: &'s ToolCall, input: &'s Value) -> Ask<'s> {
        Ask { session: self.hook_session(), tool_name: self.name_of(call), tool_input: input, tool_use_id: &call.id }
    }

    /// Writes a call as a person is asked about it: whole, since what they allow is the whole. Of what is too long for anybody to
    /// read the beginning and the end are left, and how much is missing comes first.
    fn shown(&self, call: &ToolCall, input: &Value, why: &str) -> String {
        let input = input.to_string();
        let input = self.equipment.secrets.text(&input);
        if input.len() <= SHOWN_MAX {
            return format!("{} {input} ({why})", call.name);
        }
        let (head, tail) = (input.floor_char_boundary(SHOWN_MAX / 2), input.ceil_char_boundary(input.len() - SHOWN_MAX / 2));
        format!("{} ({why}; {} of {} bytes are not shown here) {} […] {}", call.name, tail - head, input.len(), &input[..head], &input[tail..])
    }

    /// Returns a tool's present name: hooks are written for that, and a model may know an older one.
    pub(super) fn name_of<'s>(&'s self, call: &'s ToolCall) -> &'s str {
        self.equipment.toolbox.get(&call.name).map_or(call.name.as_str(), |tool| tool.spec().name.as_str())
    }

    fn hook_session(&self) -> hooks::Session<'_> {
        let session = &self.session;
        hooks::Session {
            session_id: &session.run,
            transcript_path: &session.transcript,
            cwd: &session.tools.cwd,
            root: &session.tools.root,
            project_dir: &session.project,
            agent_id: Some(&session.agent_id),
            agent_type: Some(&session.spec.name),
            permission_mode: if session.spec.access == Access::Write { "acceptEdits" } else { "default" },
        }
    }

    fn runner<'s>(&'s self, traceparent: Option<&'s str>, place: &'s str) -> HookRunner<'s> {
        HookRunner {
            sandbox: &self.equipment.sandbox,
            clock: &self.equipment.clock,
            cancel: &self.session.tools.cancel,
            env: &self.equipment.env,
            traceparent,
            max_timeout: HOOK_TIME_MAX,
            noted: Some((&self.equipment.recorder, Doing { node: &self.session.node, attempt: self.session.attempt, place })),
        }
    }
}

/// What the agent's access says.
enum Mode {
    Allow,
    Ask(String),
    Deny(String),
}

fn forbidden(rule: &str) -> Gate {
    refuse(format!("the permission rule `{rule}` forbids this call. Find another way."), "denied by a rule")
}

fn refuse(text: impl Into<String>, verdict: &'static str) -> Gate {
    Gate::Refuse { text: text.into(), verdict }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
