//! Hooks and permission rules: what stands between a model and its tools.
//!
//! A hook is a program of the user's that is asked before a call, after it, and when an agent wants to stop. Its files,
//! its input and its answers have Claude Code's shape, so that hooks written for it work here. All hooks that a call
//! concerns run side by side, each with the whole question on its own standard input; their answers are applied in the
//! order in which they are registered, so that the decision does not depend on which was faster.
//!
//! Our own hooks are gates: one that fails, is missing, is not trusted or cannot run in this version blocks. Imported
//! ones keep the meaning they were written for, where a failure decides nothing.
//!
//! Rules are in [`rules`]. Both give their word to the gate, which asks them in this order: hooks, deny rules, ask
//! rules, then what a hook or an allow rule allows, then the agent's mode.
mod ask;
mod condition;
mod decision;
mod file;
mod lint;
mod matcher;
mod names;
mod on;
mod reply;
pub mod rules;
mod run;

pub use ask::{Answered, Ask, Ending, Notice, Session};
pub use decision::{Decision, HookReport, Verdict};
pub use file::HookFile;
pub use on::On;
pub use rules::{Permissions, RuleContext, RuleVerdict, lint as lint_rule};
pub use run::HookRunner;

use crate::{clock::millis, http, trace};
use decision::Heard;
use file::{Handler, Read};
use futures_util::future::join_all;
use run::Told;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, OnceLock},
};
use tracing::Instrument as _;

/// All hooks that were found.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Handlers of trusted files, in the order of registration.
    handlers: Vec<Handler>,
    states: BTreeMap<String, State>,
    /// Those that hold for every agent and are broken.
    shut: BTreeSet<String>,
    /// Made for the first hook that needs it.
    client: Arc<OnceLock<http::Client>>,
}

/// What became of the files of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ready,
    Broken,
    Untrusted,
}

/// One question to all hooks that it concerns.
struct Question<'a> {
    on: On,
    /// What matchers are compared with.
    subject: &'a str,
    payload: Value,
    session: &'a Session<'a>,
    call: Option<&'a Ask<'a>>,
}

impl Hooks {
    /// Reads hook files; their order is the order of registration. What is wrong with them is said in the warnings, and
    /// nothing is so wrong that the others are not loaded.
    pub fn load(files: &[HookFile]) -> (Hooks, Vec<String>) {
        let mut hooks = Hooks::default();
        let mut warnings = Vec::new();
        let mut seen = BTreeSet::new();
        for file in files {
            let read = Read::of(file);
            warnings.extend(read.warnings);
            let state = match (file.trusted, read.broken) {
                (false, _) => State::Untrusted,
                (true, true) => State::Broken,
                (true, false) => State::Ready,
            };
            if state == State::Broken && file.strict && read.always {
                hooks.shut.insert(file.name.clone());
            }
            let worst = hooks.states.entry(file.name.clone()).or_insert(state);
            *worst = state.max(*worst);
            if state == State::Ready {
                // The same handler in several settings files runs once.
                let handlers = read.handlers.into_iter().zip(read.texts);
                hooks.handlers.extend(handlers.filter(|(_, text)| file.strict || seen.insert(text.clone())).map(|(handler, _)| handler));
            }
        }
        (hooks, warnings)
    }

    /// Adds others, which come after these.
    #[must_use]
    pub fn and(mut self, others: Hooks) -> Hooks {
        self.handlers.extend(others.handlers);
        self.states.extend(others.states);
        self.shut.extend(others.shut);
        self
    }

    /// Lends the hooks what their files ask for of the user's environment: the variables that a request's headers may hold.
    #[must_use]
    pub fn lent(mut self, environment: &BTreeMap<String, String>) -> Hooks {
        self.handlers.iter_mut().for_each(|handler| handler.action.lend(environment));
        self
    }

    /// Returns the names of all hooks, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.states.keys().map(String::as_str)
    }

    /// Returns the names of the hooks that hold for every agent, sorted.
    pub fn always(&self) -> BTreeSet<&str> {
        self.handlers.iter().filter(|handler| handler.always).map(|handler| handler.hook.as_str()).collect()
    }

    /// Returns the names of the hooks that are not trusted and therefore never run, sorted.
    pub fn untrusted(&self) -> impl Iterator<Item = &str> {
        self.states.iter().filter(|(_, state)| **state == State::Untrusted).map(|(name, _)| name.as_str())
    }

    /// Returns why hooks that an agent names cannot be asked: nothing that they hold may then be done, and [`Hooks::before`] denies
    /// every call.
    pub fn unavailable(&self, names: &[String]) -> Vec<String> {
        let why = |name: &String| match self.states.get(name) {
            Some(State::Ready) => None,
            Some(State::Broken) => Some(format!("hook `{name}` cannot be read")),
            Some(State::Untrusted) => Some(format!("hook `{name}` is not trusted")),
            None => Some(format!("there is no hook `{name}`")),
        };
        self.shut.iter().filter(|name| !names.contains(name)).chain(names).filter_map(why).collect()
    }

    /// Asks before a call. `names` are the hooks that hold for this agent, besides those that hold always.
    pub async fn before(&self, names: &[String], ask: &Ask<'_>, run: &HookRunner<'_>) -> Decision {
        let unavailable = self.unavailable(names);
        if !unavailable.is_empty() {
            return Decision { verdict: Verdict::Deny { reason: unavailable.join("\n") }, ..Decision::default() };
        }
        self.ask(names, Question { on: On::PreToolUse, subject: ask.tool_name, payload: ask.before(), session: &ask.session, call: Some(ask) }, run).await
    }

    /// Asks after a call: `PostToolUseFailure` where it has an error, `PostToolUse` otherwise.
    pub async fn after(&self, names: &[String], ask: &Ask<'_>, answered: &Answered<'_>, run: &HookRunner<'_>) -> Decision {
        let (on, payload) = ask.after(answered);
        self.ask(names, Question { on, subject: ask.tool_name, payload, session: &ask.session, call: Some(ask) }, run).await
    }

    /// Returns whether a hook may have the workspace put back to what it was before a call of this tool.
    pub fn roll_back(&self, names: &[String], tool: &str) -> bool {
        let holds = |handler: &Handler| handler.always || names.contains(&handler.hook);
        self.handlers.iter().any(|handler| handler.rolls_back && handler.on != On::PreToolUse && holds(handler) && handler.matcher.matches(tool))
    }

    /// Asks when an agent wants to stop. `Deny` means that it goes on, told the reason; how often in a row is for the
    /// agent to say.
    pub async fn stop(&self, names: &[String], ending: &Ending<'_>, run: &HookRunner<'_>) -> Decision {
        let (on, payload) = ending.payload();
        let subject = ending.session.agent_type.unwrap_or_default();
        self.ask(names, Question { on, subject, payload, session: &ending.session, call: None }, run).await
    }

    /// Returns whether anybody would hear a notice to these hooks and to those that hold always.
    pub fn hears_notices(&self, names: &[String]) -> bool {
        self.handlers.iter().any(|handler| handler.on == On::Notification && (handler.always || names.contains(&handler.hook)))
    }

    /// Tells hooks something that somebody should know; they decide nothing.
    pub async fn notify(&self, names: &[String], notice: &Notice<'_>, run: &HookRunner<'_>) -> Decision {
        let question = Question { on: On::Notification, subject: notice.kind, payload: notice.payload(), session: &notice.session, call: None };
        self.ask(names, question, run).await
    }

    async fn ask(&self, names: &[String], question: Question<'_>, run: &HookRunner<'_>) -> Decision {
        let input = question.call.map_or(&Value::Null, |ask| ask.tool_input);
        let handlers: Vec<&Handler> = self.handlers.iter().filter(|handler| concerns(handler, names, &question, run)).collect();
        if handlers.is_empty() {
            return Decision::default();
        }
        let payload = question.payload.to_string();
        let (input_text, files) = question.call.map_or_else(Default::default, |ask| (ask.tool_input.to_string(), ask.files().join("\n")));
        let told = Told {
            payload: &payload,
            cwd: question.session.cwd,
            project_dir: question.session.project_dir,
            call: question.call.map(|ask| (ask.tool_name, input_text.as_str(), files.as_str())),
        };
        let heard = join_all(handlers.into_iter().map(|handler| hear(handler, told, run, &self.client))).await;
        Decision::of(question.on, input, heard)
    }
}

fn concerns(handler: &Handler, names: &[String], question: &Question<'_>, run: &HookRunner<'_>) -> bool {
    if handler.on != question.on || !(handler.always || names.contains(&handler.hook)) || !handler.matcher.matches(question.subject) {
        return false;
    }
    match (&handler.condition, question.call) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(condition), Some(ask)) => {
            let home = run.env.get("HOME").map(Path::new);
            let cx = RuleContext { cwd: question.session.cwd, root: question.session.root, home, writable: &[] };
            condition.holds(ask.tool_name, ask.tool_input, &cx)
        }
    }
}

async fn hear(handler: &Handler, told: Told<'_>, run: &HookRunner<'_>, client: &OnceLock<http::Client>) -> Heard {
    let span = trace::hook(&handler.hook, handler.on.name());
    let started = run.clock.elapsed();
    let reply = run::run(handler, told, run, client).instrument(span.clone()).await;
    trace::judged(&span, decision::said(handler.on, &reply.effect).0.word());
    let took = run.clock.elapsed().saturating_sub(started);
    Heard { hook: handler.hook.clone(), rolls_back: handler.rolls_back, reply, took_ms: millis(took) }
}

#[cfg(test)]
mod tests;
