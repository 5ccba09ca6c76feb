//! An agent's session as a step: worktree, conversation, schema, checks, the engine's commit.
use super::{
    Task, Workplace, artefact,
    command::{Checked, RED_LINES, last_lines, verified},
    place::{self, Author},
    rendered,
    servers::lend_servers,
    session::{self, Opening, lend_submit, workspace},
};
use crate::{
    agent::{self, Agent, Trouble},
    event::{Brief, Failure, FailureKind, Success, Why},
    message::Message,
    plan::{self, AgentSpec, Plan, PlannedStep},
    prompts,
    workflow::Verify,
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// Answers that do not fit their schema before the step fails.
const MISFITS_MAX: u32 = 3;

pub(super) async fn run(task: &Task, step: &PlannedStep, spec: &Arc<AgentSpec>, prompt: &str) -> Result<Success, Trouble> {
    let spec = chosen(&task.plan, &task.scope, spec)?;
    let place = place::make(task, step, None).await?;
    let mut brief = brief(task, step, &spec, prompt, &place).await?;
    let (mut equipment, mut session) =
        task.sessions().open(Opening { node: &task.node, agent: spec, place: place.clone(), talk: &task.state.conversation, cancel: &task.cancel }).await?;
    lend_submit(&brief, &mut equipment, &mut session);
    let lent = lend_servers(&mut brief, &mut equipment, &mut session).await?;
    let mut worker = Agent::new(&equipment, session, task.state.conversation.clone());
    let ended = converse(task, step, &place, &brief, &mut worker).await;
    lent.end().await;
    agent::note(worker.span(), &ended);
    ended
}

async fn converse(task: &Task, step: &PlannedStep, place: &Workplace, brief: &Brief, worker: &mut Agent<'_>) -> Result<Success, Trouble> {
    loop {
        let output = fitting(worker, brief).await?;
        let Some(worktree) = place.worktree.as_ref().filter(|_| step.writes) else {
            return Ok(Success { output: output.into(), commit: None });
        };
        if let Some((commit, _)) = &task.state.deeds.captured {
            place::keep_result(task, commit).await?;
            return Ok(Success { output: output.into(), commit: Some(commit.clone()) });
        }
        let (kind, what, why, red) = match place::capture(task, worktree, place, Author { brief: Some(brief), model: worker.talk().model() }).await? {
            Ok(captured) => match verified(task, step, place).await? {
                Checked { passed: true, .. } => {
                    let commit = place::record_work(task, captured).await?;
                    return Ok(Success { output: output.into(), commit });
                }
                Checked { tail, .. } => {
                    let red = format!("The checks of this step are red. Mend the cause; do not weaken the checks.\n\n{tail}");
                    (FailureKind::Verify, "its checks are not green", tail, red)
                }
            },
            Err(policy) => {
                let red = format!("Your work cannot be committed as it is: {policy}\nMend that.");
                (FailureKind::Policy, "its work cannot be committed", policy, red)
            }
        };
        let attempts = step.verify.as_ref().map_or(2, Verify::attempts);
        if worker.talk().tally().reds + 1 >= attempts {
            return Err(Failure::new(kind, format!("{what} after {}: {}", tries(attempts), last_lines(&why, RED_LINES))).into());
        }
        worker.tell(&red, Why::VerifyRed).await?;
    }
}

/// Runs until the answer fits the schema of the brief; one that does not is asked for again.
pub(super) async fn fitting(worker: &mut Agent<'_>, brief: &Brief) -> Result<Value, Trouble> {
    loop {
        let text = worker.run(brief).await?;
        match answer(brief.output_schema.as_ref(), &text) {
            Ok(output) => return Ok(output),
            Err(why) if worker.talk().tally().misfits < MISFITS_MAX => {
                let again = format!("Your answer does not fit its schema: {why}\nAnswer again with one JSON object that fits, and nothing else.");
                worker.tell(&again, Why::SchemaMismatch).await?;
            }
            Err(why) => {
                return Err(Failure::new(FailureKind::Schema, format!("the answer does not fit its schema after {} tries: {why}", MISFITS_MAX + 1)).into());
            }
        }
    }
}

/// Returns an agent with the models and skills that its step chose by templates.
pub(super) fn chosen(plan: &Plan, scope: &prompts::Scope, agent: &Arc<AgentSpec>) -> Result<Arc<AgentSpec>, Failure> {
    if !agent.model.choices.iter().chain(&agent.skills).any(|name| name.contains("{{")) {
        return Ok(agent.clone());
    }
    let mut own = (**agent).clone();
    let choices = own.model.choices.iter().map(|choice| rendered(scope, "model", choice)).collect::<Result<Vec<_>, _>>()?;
    own.model.choices = choices.iter().flat_map(|name| plan.model(name).choices).collect();
    let skills = own.skills.iter().map(|skill| rendered(scope, "skills", skill)).collect::<Result<BTreeSet<_>, _>>()?;
    own.skills = skills.into_iter().collect();
    Ok(Arc::new(own))
}

/// Freezes what the agent is told. Everything that differs between items stands in the first message, so that tools and
/// system text are the same bytes for all of them.
async fn brief(task: &Task, step: &PlannedStep, agent: &AgentSpec, prompt: &str, place: &Workplace) -> Result<Brief, Trouble> {
    let begun = session::brief(&task.services, &task.plan, agent, ("", step.output_schema.as_deref()));
    let fixed = begun.system.len() + begun.tools.iter().map(|tool| tool.description.len() + tool.input_schema.to_string().len()).sum::<usize>();
    let prompt = artefact::fitted(task, agent, prompt, fixed).await?;
    Ok(Brief { message: Message::user(&format!("{}{prompt}", workspace(&task.services, &task.node, place))), ..begun })
}

/// Reads a final answer: text as it is, or the object its schema demands.
pub(super) fn answer(schema: Option<&Value>, text: &str) -> Result<Value, String> {
    let Some(schema) = schema else { return Ok(Value::String(text.to_owned())) };
    let value = find_json(text).ok_or("it holds no JSON object")?;
    plan::fits(schema, &value).map(|()| value)
}

/// Finds the JSON value in an answer: the whole of it, the last fenced block, or from the first brace to the last.
fn find_json(text: &str) -> Option<Value> {
    let text = text.trim();
    let fenced = text.rsplit("```").nth(1).map(|block| block.trim_start_matches("json").trim());
    let braces = text.find(['{', '[']).zip(text.rfind(['}', ']'])).and_then(|(start, end)| text.get(start..=end));
    [Some(text), fenced, braces].into_iter().flatten().find_map(|candidate| serde_json::from_str(candidate).ok())
}

fn tries(attempts: u32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_found_and_judged() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        assert_eq!(answer(None, " hi "), Ok(json!(" hi ")));
        assert_eq!(answer(Some(&schema), "{\"n\": 1}"), Ok(json!({"n": 1})));
        assert_eq!(answer(Some(&schema), "Here it is:\n```json\n{\"n\": 2}\n```\nDone."), Ok(json!({"n": 2})));
        assert_eq!(answer(Some(&schema), "The plan {\"n\": 3}."), Ok(json!({"n": 3})));
        assert!(answer(Some(&schema), "{\"n\": \"x\"}").unwrap_err().contains("/n"));
        assert!(answer(Some(&schema), "no").is_err());
    }
}
