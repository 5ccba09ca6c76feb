//! Carrying a question to somebody who is not at the terminal: hooks of the event `Notification` get it as JSON, with a
//! token that answers it from anywhere on this machine.
use super::{steps::Services, token::Claim};
use crate::{
    event::{Event, HookVerdict, NodeId, RunStarted, because},
    hooks::{HookRunner, Notice, Session},
    journal::{CARRIES, Question, RunState},
    plan::Work,
    trace,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// No hook that carries a question runs longer.
const TIME_MAX: Duration = Duration::from_mins(1);

/// A question on its way out.
pub(super) struct Carry {
    services: Arc<Services>,
    run: Arc<RunStarted>,
    node: NodeId,
    question: Question,
    hooks: Vec<String>,
    cancel: CancellationToken,
}

impl Carry {
    /// Nothing comes of it for a run that never started.
    pub(super) fn new(state: &RunState, services: &Arc<Services>, node: &NodeId, question: &Question, cancel: &CancellationToken) -> Option<Carry> {
        let run = state.started()?.clone();
        let mut hooks = state.plan().hooks.clone();
        if let Some(Work::Agent { agent, .. }) = state.step(node).map(|step| &step.work) {
            hooks.extend(agent.hooks.iter().cloned());
        }
        Some(Carry { services: services.clone(), run, node: node.clone(), question: question.clone(), hooks, cancel: cancel.clone() })
    }

    /// Asks the hooks; returns the records of those that ran. Without hooks there is no token either.
    pub(super) async fn run(self) -> Vec<Event> {
        let services = &self.services;
        if !services.hooks.hears_notices(&self.hooks) {
            return Vec::new();
        }
        let claim = Claim { node: self.node.clone(), call: self.question.call.clone() };
        let token = match services.tokens.issue(&claim) {
            Ok(token) => token,
            Err(error) => return vec![self.ran("(token)", HookVerdict::Error, &format!("make a token: {}", because(&error)))],
        };
        let form = &self.question.form;
        let (run, node) = (self.run.run.0.clone(), self.node.to_string());
        let more = json!({
            "run": run,
            "workflow": self.run.workflow,
            "step": node,
            "question": self.question.text,
            "choices": form.choices,
            "shown": form.shown,
            "answer_before": form.deadline.map(|deadline| deadline.at.to_string()),
            "token": token,
            "answer_with": format!("spinney answer --token {token} {}", if form.open { "TEXT" } else { "yes" }),
        });
        let notice = Notice {
            session: Session {
                session_id: &run,
                transcript_path: &services.dir.journal(),
                cwd: &services.project,
                root: &services.project,
                project_dir: &services.project,
                agent_id: Some(&node),
                agent_type: None,
                permission_mode: "default",
            },
            message: &format!("{node} of run {run} waits for a person: {}", self.question.text),
            title: "Spinney waits for a person",
            kind: if form.open { "question" } else { "permission_prompt" },
            more,
        };
        let traceparent = trace::traceparent();
        let runner = HookRunner {
            sandbox: &services.sandbox,
            clock: &services.clock,
            cancel: &self.cancel,
            env: &services.env,
            traceparent: traceparent.as_deref(),
            max_timeout: TIME_MAX,
            noted: None,
        };
        let decision = services.hooks.notify(&self.hooks, &notice, &runner).await;
        // A hook that failed may have carried it all the same: an answer with its token is one.
        let verdict = |verdict| if verdict == HookVerdict::Error { verdict } else { HookVerdict::Told };
        decision.ran.iter().map(|ran| self.ran(&ran.hook, verdict(ran.verdict), &ran.reason)).collect()
    }

    fn ran(&self, hook: &str, verdict: HookVerdict, reason: &str) -> Event {
        Event::HookRan {
            node: self.node.clone(),
            hook: hook.to_owned(),
            on: CARRIES.to_owned(),
            call: Some(self.question.call.clone()),
            verdict,
            reason: reason.to_owned(),
        }
    }
}
