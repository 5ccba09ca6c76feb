//! A person's word as a step: what is asked, what is shown with it, what the answer means.
use super::{Task, place};
use crate::{
    agent::{Trouble, blocking},
    event::{CommitId, Deadline, Event, Failure, FailureKind, Form, Isolation, Success},
    journal::Answered,
    workflow::{Approve, OnTimeout, Show},
};
use serde_json::json;

/// Bytes of what is shown; the rest stays in the repository.
const SHOWN_BYTES: usize = 24 * 1024;

pub(super) async fn run(task: &Task, spec: &Approve) -> Result<Success, Trouble> {
    // An attempt asks once.
    let call = format!("approve-{}", task.state.attempts);
    let Some(question) = task.state.conversation.question(&call) else {
        let text = task.render("approve.message", &spec.message.value)?;
        let shown = match spec.show {
            None => None,
            Some(show) => Some(changes(task, show).await?),
        };
        let deadline = spec
            .timeout
            .as_ref()
            .map(|time| Deadline { at: task.services.clock.now().after(time.value), allows: spec.on_timeout.as_deref() == Some(&OnTimeout::Approve) });
        let form = Form { shown, deadline, ..Form::default() };
        task.record(Event::QuestionAsked { node: task.node.clone(), call, question: text.trim().to_owned(), form }).await?;
        return Err(Trouble::Parked);
    };
    let Some(Answered { allowed, by, note }) = &question.answer else { return Err(Trouble::Parked) };
    Ok(answered(*allowed, by, note.as_deref().unwrap_or_default())?)
}

/// Makes of an answer how the step ends.
///
/// # Errors
/// A no; what it says can be read all the same.
pub(crate) fn answered(allowed: bool, by: &str, note: &str) -> Result<Success, Failure> {
    let output = json!({"approved": allowed, "by": by, "note": note});
    if allowed {
        return Ok(Success { output: output.into(), commit: None });
    }
    let why = if note.is_empty() { String::new() } else { format!(": {note}") };
    Err(Failure { output, ..Failure::new(FailureKind::Refusal, format!("rejected by {by}{why}")) })
}

/// Returns what has changed since the run's base, as far as it can be shown.
async fn changes(task: &Task, show: Show) -> Result<String, Trouble> {
    let commit = place::start(task, Isolation::None).await?;
    if commit == task.run.base {
        return Ok("Nothing has changed since the run began.".to_owned());
    }
    let (repo, base, to) = (task.services.repo.clone(), task.run.base.clone(), commit.clone());
    let text = blocking(FailureKind::Environment, move || match show {
        Show::Diff => repo.diff(&base, &to, false),
        Show::Stat => repo.diffstat(&base, &to),
    })
    .await?;
    Ok(bounded(&text, &task.run.base, &commit, &task.run.run.0))
}

fn bounded(text: &str, base: &CommitId, commit: &CommitId, run: &str) -> String {
    if text.len() <= SHOWN_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(SHOWN_BYTES);
    let end = text[..end].rfind('\n').map_or(end, |line| line + 1);
    format!("{}[{} bytes more of run {run}: git diff {} {}]\n", &text[..end], text.len() - end, &base.0[..base.0.len().min(12)], commit.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_bounded_at_a_line_and_says_where_the_rest_is() {
        let (base, commit) = (CommitId::from("b"), CommitId::from("c"));
        assert_eq!(bounded("+é\n", &base, &commit, "r"), "+é\n");
        let shown = bounded(&"+é\n".repeat(10_000), &base, &commit, "r");
        assert!(shown.len() < SHOWN_BYTES + 100 && shown.ends_with("bytes more of run r: git diff b c]\n"), "{}", &shown[shown.len() - 100..]);
    }
}
