//! A shell command as a step, and the checks of other steps.
use super::{
    Task, Workplace, cut,
    hold::Writes,
    place::{self, Author},
};
use crate::{
    agent::Trouble,
    event::{Event, Failure, FailureKind, Success, because},
    journal::VERIFY,
    plan::{self, PlannedStep},
    sandbox::{Exit, Output, Program, Request},
    workflow::Parse,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Bytes of a command's streams that are recorded; what is parsed is the whole.
const STREAM_BYTES: usize = 64 * 1024;
/// Bytes of output that a red check shows to an agent.
const TAIL_BYTES: usize = 6 * 1024;
/// Lines of it that stand in a failure.
pub(super) const RED_LINES: usize = 12;
/// The exit code of a command that was not done in time, as `timeout` has it.
pub(in crate::engine) const TIMED_OUT: i32 = 124;
/// That of one that could not begin, as a shell has it.
pub(in crate::engine) const NOT_BEGUN: i32 = 126;
/// The longest one check may take.
const CHECK_TIME: Duration = Duration::from_mins(30);

pub(super) async fn run(task: &Task, step: &PlannedStep, command: &str) -> Result<Success, Trouble> {
    let command = task.render("run", command)?;
    let place = place::make(task, step, Some(&command)).await?;
    let writes = match (&place.scope, step.writes) {
        (_, false) => Writes::Scratch,
        (Some(scope), true) => Writes::Within(scope),
        (None, true) => Writes::All,
    };
    let output = shell(task, &command, Around { writes, ..place.around() }, step.timeout).await?;
    let text = output.stdout.text();
    let exit_code = match output.exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
        Exit::TimedOut | Exit::Cancelled => TIMED_OUT,
    };
    let mut value = json!({
        "stdout": cut(&text, STREAM_BYTES, "the output"),
        "stderr": cut(&output.stderr.text(), STREAM_BYTES, "the output"),
        "exit_code": exit_code,
        "output_tail": tail(&output, TAIL_BYTES),
    });
    // What is parsed, or kept as a file, is the whole.
    let whole = output.stdout.whole.as_deref().filter(|_| step.parse.is_some() || step.file.is_some());
    let whole = whole.map_or(text, |whole| String::from_utf8_lossy(whole).into_owned());
    let is_cancelled = task.cancel.is_cancelled();
    if step.parse.is_some() && (exit_code != 0 || is_cancelled) {
        value["output"] = said_in_failure(step, &whole);
    }
    if is_cancelled {
        // Whoever cancelled it says whether that was for want of time.
        value["exit_code"] = TIMED_OUT.into();
        let _ = task.remains.set(value);
        return Err(Trouble::Interrupted);
    }
    if output.exit == Exit::TimedOut {
        return Err(Failure { output: value, ..Failure::new(FailureKind::Timeout, "the command did not end in time") }.into());
    }
    if exit_code != 0 {
        let last = value["output_tail"].as_str().unwrap_or_default().trim().lines().last().unwrap_or_default().to_owned();
        let last = if last.is_empty() { String::new() } else { format!(": {last}") };
        let message = format!("`{}` exited with {exit_code}{last}", shown(&command));
        let failure = Failure { output: value, ..Failure::new(FailureKind::Command, message) };
        return Err(output.hint().map_or(failure.clone(), |hint| failure.hint(hint)).into());
    }
    value["output"] = match parsed(step.parse, &whole) {
        Ok(output) => output,
        Err(error) => {
            let begins = if whole.trim().is_empty() { "it is empty".to_owned() } else { format!("it begins with `{}`", shown(whole.trim_start())) };
            let message = format!("the output of `{}` is not JSON: {error}; {begins}", shown(&command));
            return Err(Failure { output: value, ..Failure::new(FailureKind::Schema, message) }.into());
        }
    };
    if let Some(schema) = &step.output_schema {
        plan::fits(schema, &value["output"]).map_err(|why| {
            let message = format!("the output of `{}` does not fit its schema: {why}", shown(&command));
            Failure { output: value.clone(), ..Failure::new(FailureKind::Schema, message) }
        })?;
    }
    let commit = match &place.worktree {
        Some(worktree) if step.writes => match place::capture(task, worktree, &place, Author::default()).await? {
            Ok(captured) => match verified(task, step, &place).await? {
                Checked { passed: true, .. } => place::record_work(task, captured).await?,
                Checked { tail, .. } => {
                    let failure = Failure::new(FailureKind::Verify, format!("its checks are not green: {}", last_lines(&tail, RED_LINES)));
                    return Err(Failure { output: value, ..failure }.into());
                }
            },
            Err(policy) => return Err(Failure::new(FailureKind::Policy, policy).into()),
        },
        Some(worktree) => {
            let dropped = place::dropped(task, worktree).await;
            if !dropped.is_empty() {
                value["dropped"] = dropped.into();
            }
            None
        }
        None => None,
    };
    Ok(Success { output: value.into(), commit })
}

fn parsed(parse: Option<Parse>, stdout: &str) -> Result<Value, serde_json::Error> {
    match parse {
        None => Ok(Value::String(stdout.trim_end_matches('\n').to_owned())),
        Some(Parse::Lines) => {
            let mut lines: Vec<&str> = stdout.lines().collect();
            while lines.last().is_some_and(|line| line.is_empty()) {
                lines.pop();
            }
            Ok(json!(lines))
        }
        Some(Parse::Json) => serde_json::from_str(stdout),
    }
}

/// Returns the output of a command that has failed: linters exit with 1 where they have found something. It is null where what was printed
/// is not what it should be.
pub(in crate::engine) fn said_in_failure(step: &PlannedStep, stdout: &str) -> Value {
    let output = parsed(step.parse, stdout).ok();
    let fits = |output: &Value| step.output_schema.as_ref().is_none_or(|schema| plan::fits(schema, output).is_ok());
    output.filter(fits).unwrap_or_default()
}

/// What surrounds a command.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// The workspace.
    pub(super) root: &'a Path,
    /// Where it stands.
    pub(super) cwd: &'a Path,
    /// What it may write there.
    pub(super) writes: Writes<'a>,
    /// What is linked into the workspace.
    pub(super) links: &'a [PathBuf],
    /// Its whole environment.
    pub(super) env: &'a BTreeMap<String, String>,
}

/// What checks said.
pub(super) struct Checked {
    pub(super) passed: bool,
    pub(super) tail: String,
}

/// Runs the checks of a step on its work.
pub(super) async fn verified(task: &Task, step: &PlannedStep, place: &Workplace) -> Result<Checked, Trouble> {
    let Some(verify) = &step.verify else { return Ok(Checked { passed: true, tail: String::new() }) };
    let commands = verify.run.iter().map(|text| task.render("verify", &text.value)).collect::<Result<Vec<_>, _>>()?;
    let checked = check(task, VERIFY, &commands, place.around()).await?;
    task.record(Event::VerifyRan { node: task.node.clone(), passed: checked.passed, tail: checked.tail.clone() }).await?;
    Ok(checked)
}

/// Runs checks one after another until one is red. Where no wall holds them, each is noted at its place until what came of it is recorded.
pub(super) async fn check(task: &Task, place: &str, commands: &[String], around: Around<'_>) -> Result<Checked, Trouble> {
    // A build says nothing for long, and has its own time.
    let _held = task.pulse.hold();
    for command in commands {
        if task.services.reaches_out {
            task.recorder.begins(task.doing(place), &format!("the check `{}`", shown(command)));
        }
        let output = shell(task, command, Around { cwd: around.root, ..around }, CHECK_TIME).await?;
        if task.cancel.is_cancelled() {
            return Err(Trouble::Interrupted);
        }
        match output.exit {
            Exit::Code(0) => {}
            Exit::Cancelled => return Err(Trouble::Interrupted),
            exit @ (Exit::Code(_) | Exit::Signal(_) | Exit::TimedOut) => {
                let hint = output.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                return Ok(Checked { passed: false, tail: format!("$ {}\n({})\n{}{hint}", shown(command), said(exit), tail(&output, TAIL_BYTES)) });
            }
        }
    }
    Ok(Checked { passed: true, tail: String::new() })
}

async fn shell(task: &Task, command: &str, around: Around<'_>, timeout: Duration) -> Result<Output, Trouble> {
    let mut env = around.env.clone();
    env.extend(crate::trace::traceparent().map(|parent| ("TRACEPARENT".to_owned(), parent)));
    let request = Request {
        program: Program::Shell(command.to_owned()),
        cwd: around.cwd.to_owned(),
        env,
        stdin: Vec::new(),
        timeout,
        output_cap: STREAM_BYTES,
        confine: task.services.confinement(around.root, Some(around.writes), around.links).await?,
    };
    task.services.sandbox.felt(&task.pulse).run(request, &task.cancel).await.map_err(|error| {
        let failure = Failure::new(FailureKind::Environment, format!("run `{}`: {}", shown(command), because(&error)));
        Trouble::Failed(match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    })
}

fn said(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
        Exit::TimedOut => "not done in time".to_owned(),
        Exit::Cancelled => "cancelled".to_owned(),
    }
}

/// Returns what a text begins with, on one line, so that it does not bury what is said about it.
fn shown(text: &str) -> String {
    const CHARS: usize = 120;
    let first = text.lines().next().unwrap_or_default();
    let cut: String = first.chars().take(CHARS).collect();
    if cut.len() < text.trim_end().len() { format!("{cut} …") } else { cut }
}

fn tail(output: &Output, bytes: usize) -> String {
    let text = format!("{}{}", output.stdout.text(), output.stderr.text());
    text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..].to_owned()
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
