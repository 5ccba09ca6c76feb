//! Bash: one shell command in the agent's folder, inside the walls of the step.
use super::{
    Effect, ShellPolicy, Tool, ToolContext, ToolError, ToolOutput, number, place, shell,
    text::{self, ANSWER_MAX},
    text_of,
};
use crate::{
    message::ToolSpec,
    sandbox::{Captured, Exit, Output, Program, Request, SandboxError},
    trace,
    workflow::Access,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// How much of the answer standard error may take where both streams are long.
const STDERR_SHARE: usize = 8 << 10;

/// How much of each stream the sandbox keeps at hand; more than is shown, since escape sequences go.
const CAPTURE: usize = 64 << 10;

/// How much of each stream a hook is handed.
const RESPONSE_MAX: usize = 64 << 10;

/// Commands whose exit code 1 is an answer, not a failure.
const ANSWERING: &[&str] = &["[", "cmp", "diff", "egrep", "fgrep", "grep", "rg", "test", "which"];

pub(super) struct Bash(ToolSpec);

impl Bash {
    pub(super) fn new() -> Bash {
        let description = "Runs a command in bash and answers with its output and exit code.\n\
             - Every call starts anew in your working directory: `cd`, variables and functions do not last.\n\
             - Nothing runs on after the call: processes left in the background are ended. There is no terminal and no input.\n\
             - The default timeout is 120000 ms, the longest 600000 ms; at the timeout the command is ended and what it wrote is shown.\n\
             - Long output is cut in the middle. Write it to a file, or use `head`, `tail` or `grep`, to see what you need.\n\
             - Use Read, Grep, Glob, Edit and Write instead of `cat`, `grep`, `find`, `sed` and redirects: they are checked and bounded.\n\
             - An agent that may only read can run only commands that certainly change nothing (`ls`, `git log`, `rg`, …).\n\
             - Do not commit or push unless you are asked to: your files are committed for you."
            .to_owned();
        let input_schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command"},
                "timeout": {"type": "number", "minimum": 1, "maximum": 600_000, "description": "Milliseconds until it is ended"},
                "description": {"type": "string", "description": "What it does, in a few words"}
            },
            "required": ["command"],
            "additionalProperties": false
        });
        Bash(ToolSpec { name: "Bash".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, input: &Value, _cx: &ToolContext) -> Effect {
        let reads = text_of(input, "command").is_ok_and(shell::is_read_only);
        if reads { Effect::Reads(Vec::new()) } else { Effect::Exclusive }
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let command = text_of(input, "command")?;
        if command.contains('\0') {
            return Err(ToolError::Model("the command holds a zero byte".to_owned()));
        }
        if cx.access == Access::Read && !shell::is_read_only(command) {
            return Err(ToolError::Model(
                "this agent may only read, and this command is not known to change nothing. Use plain readers (ls, cat, rg, find, git log, …) joined by `&&`, `;` or `|`, without redirects or substitutions".to_owned(),
            ));
        }
        place::require_root(&cx.root)?;
        let timeout = timeout(&cx.shell, input);
        let request = Request {
            program: Program::Shell(command.to_owned()),
            cwd: cx.cwd.clone(),
            env: environment(&cx.shell.env),
            stdin: Vec::new(),
            timeout,
            output_cap: CAPTURE,
            confine: cx.shell.confine.clone(),
        };
        let output = cx.shell.sandbox.run(request, &cx.cancel).await.map_err(trouble)?;
        Ok(answer(command, timeout, output))
    }
}

/// Returns the policy's environment with the trace that the command continues, where there is one.
fn environment(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut env = env.clone();
    env.extend(trace::traceparent().map(|parent| ("TRACEPARENT".to_owned(), parent)));
    env
}

fn timeout(policy: &ShellPolicy, input: &Value) -> Duration {
    let asked = number(input, "timeout").map(|milliseconds| Duration::from_millis(milliseconds as u64));
    asked.unwrap_or(policy.timeout).min(policy.timeout_max)
}

/// Decides who can mend it: a folder that the agent removed is the model's business, walls that cannot be had are not.
fn trouble(error: SandboxError) -> ToolError {
    match error {
        SandboxError::NoFolder(path) => {
            ToolError::Model(format!("the working directory `{}` is gone: make it again (with Write, say) and retry", path.display()))
        }
        other => ToolError::Fatal(std::io::Error::other(other)),
    }
}

fn answer(command: &str, timeout: Duration, output: Output) -> ToolOutput {
    let (shown, is_cut) = streams(&output);
    let (mut note, is_error) = verdict(command, timeout, output.exit);
    note.extend(output.hint().map(|hint| format!("\n[{hint}]")));
    note.extend(output.refused.iter().map(|refusal| format!("\n[{refusal}]")));
    let note = note.trim_start();
    let separator = if shown.is_empty() || shown.ends_with('\n') || note.is_empty() { "" } else { "\n" };
    let text = match format!("{shown}{separator}{note}") {
        nothing if nothing.trim().is_empty() => "(no output)".to_owned(),
        text => text,
    };
    let interrupted = matches!(output.exit, Exit::TimedOut | Exit::Cancelled);
    let code = if let Exit::Code(code) = output.exit { Some(code) } else { None };
    let response = json!({
        "stdout": for_hooks(&output.stdout), "stderr": for_hooks(&output.stderr), "interrupted": interrupted, "isImage": false, "exitCode": code
    });
    let whole = is_cut.then(|| [raw(output.stdout), raw(output.stderr)].concat());
    ToolOutput { text, response, is_error, whole }
}

/// Returns both streams as they are shown, and whether anything was cut.
fn streams(output: &Output) -> (String, bool) {
    let rest = "To see it, run the command again with its output in a file or through `grep`, `head` or `tail`.";
    let (stdout, stderr) = (readable(&output.stdout), readable(&output.stderr));
    let stderr_max = STDERR_SHARE.max(ANSWER_MAX.saturating_sub(stdout.len()));
    let stdout_max = ANSWER_MAX.saturating_sub(stderr.len().min(stderr_max));
    let is_cut = output.stdout.missing() + output.stderr.missing() > 0 || stdout.len() > stdout_max || stderr.len() > stderr_max;
    let (mut shown, stderr) = (text::cap(stdout, stdout_max, rest), text::cap(stderr, stderr_max, rest));
    if !shown.is_empty() && !shown.ends_with('\n') && !stderr.is_empty() {
        shown.push('\n');
    }
    (shown + &stderr, is_cut)
}

fn readable(captured: &Captured) -> String {
    let head = text::from_terminal(&captured.head);
    match captured.missing() {
        0 => head,
        missing => format!("{head}\n[{missing} bytes cut here]\n{}", text::from_terminal(&captured.tail)),
    }
}

fn for_hooks(captured: &Captured) -> String {
    text::cap(String::from_utf8_lossy(&captured.head).into_owned() + &String::from_utf8_lossy(&captured.tail), RESPONSE_MAX, "")
}

fn raw(captured: Captured) -> Vec<u8> {
    captured.whole.unwrap_or_else(|| [captured.head, b"\n[cut]\n".to_vec(), captured.tail].concat())
}

/// Says how the command ended, and whether that is a failure.
fn verdict(command: &str, timeout: Duration, exit: Exit) -> (String, bool) {
    match exit {
        Exit::Code(0) => (String::new(), false),
        Exit::Code(1) if is_an_answer(command) => ("[exit code 1]".to_owned(), false),
        Exit::Code(code) => (format!("[exit code {code}]"), true),
        Exit::Signal(signal) => (format!("[ended by signal {signal}]"), true),
        Exit::TimedOut => (format!("[timed out after {} ms: the command and everything it started were ended]", timeout.as_millis()), true),
        Exit::Cancelled => ("[cancelled: the command and everything it started were ended]".to_owned(), true),
    }
}

fn is_an_answer(command: &str) -> bool {
    let last = shell::parse(command).ok().and_then(|script| script.commands.last().and_then(shell::Simple::name));
    last.is_some_and(|name| ANSWERING.contains(&name.as_str()))
}
