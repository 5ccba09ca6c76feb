//! Runs one handler: its command, its environment, the JSON on its standard input, its time.
use super::{
    file::{Action, Handler},
    reply::{Ended, Reply},
};
use crate::{
    clock::Clock,
    event::because,
    http::{self, HttpRequest, Timeouts},
    journal::{Doing, Recorder},
    sandbox::{Confinement, Exit, Program, Request, Sandbox},
    trace,
};
use std::{collections::BTreeMap, path::Path, sync::OnceLock, time::Duration};
use tokio_util::sync::CancellationToken;

/// As much of a hook's output is read; more of it is cut, and cut JSON is a failure of the hook.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// A call's input larger than this is not put into the environment, where the system allows no more.
const MAX_VARIABLE_BYTES: usize = 100_000;
/// How a message begins in the variables of dead conventions.
const INPUT_VARIABLES: &[&str] = &["CLAUDE_TOOL_INPUT", "TOOL_INPUT"];

/// What running hooks needs.
#[derive(Debug, Clone, Copy)]
pub struct HookRunner<'a> {
    /// Starts the processes.
    pub sandbox: &'a Sandbox,
    /// Measures them.
    pub clock: &'a Clock,
    /// Ends them.
    pub cancel: &'a CancellationToken,
    /// The clean environment that each of them gets, `PATH` and `HOME` among it.
    pub env: &'a BTreeMap<String, String>,
    /// The trace that they continue.
    pub traceparent: Option<&'a str>,
    /// No hook runs longer, whatever its file says.
    pub max_timeout: Duration,
    /// Where it is noted that one runs, and as what.
    pub noted: Option<(&'a Recorder, Doing<'a>)>,
}

/// What a handler is told besides the JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    /// The JSON.
    pub(super) payload: &'a str,
    pub(super) cwd: &'a Path,
    pub(super) project_dir: &'a Path,
    /// The call's tool, its input as JSON and the files that it names, where it is about a call.
    pub(super) call: Option<(&'a str, &'a str, &'a str)>,
}

/// Runs a handler and reads what it says.
pub(super) async fn run(handler: &Handler, told: Told<'_>, runner: &HookRunner<'_>, client: &OnceLock<http::Client>) -> Reply {
    let manner = handler.manner;
    let failed = |why: &str| Reply::failed(handler.on, why, manner);
    let program = match &handler.action {
        Action::Unsupported(what) => return failed(&format!("{what} is not in this version")),
        Action::Http { url, headers, .. } => return post(handler, (url, headers), told, runner, client).await,
        Action::Shell(command) => Program::Shell(in_shell(command, &places(handler, told))),
        Action::Exec { program, args } => {
            let places = places(handler, told);
            Program::Exec { program: plain(program, &places).into(), args: args.iter().map(|arg| plain(arg, &places).into()).collect() }
        }
    };
    let env = environment(handler, told, runner);
    if let Some(missing) = missing_input(handler, &env, told) {
        return failed(&missing);
    }
    if let Some((recorder, doing)) = runner.noted {
        recorder.begins(doing, &format!("a hook on `{}`", handler.on.name()));
    }
    let timeout = handler.timeout.min(runner.max_timeout);
    let request = Request {
        program,
        cwd: told.cwd.to_owned(),
        env,
        stdin: format!("{}\n", told.payload).into_bytes(),
        timeout,
        output_cap: MAX_OUTPUT_BYTES,
        confine: Confinement::None,
    };
    match runner.sandbox.run(request, runner.cancel).await {
        Err(error) => failed(&format!("it did not start: failed to {}", because(&error))),
        Ok(output) => {
            let code = match output.exit {
                Exit::Code(code) => Some(code),
                Exit::Signal(_) => None,
                Exit::TimedOut => return failed(&format!("it did not end within {} s", timeout.as_secs_f64())),
                Exit::Cancelled => return failed("it was cancelled"),
            };
            let (stdout, stderr) = (output.stdout.text(), output.stderr.text());
            Reply::read(handler.on, Ended { code, stdout: &stdout, stderr: &stderr }, manner)
        }
    }
}

/// Sends the question to a server. An answer that is no JSON object, or has an error status, is a failure of the hook.
async fn post(
    handler: &Handler,
    (url, headers): (&String, &[(String, String)]),
    told: Told<'_>,
    runner: &HookRunner<'_>,
    client: &OnceLock<http::Client>,
) -> Reply {
    let failed = |why: &str| Reply::failed(handler.on, why, handler.manner);
    let client = match client.get() {
        Some(client) => client,
        None => match http::Client::new() {
            Ok(made) => client.get_or_init(|| made),
            Err(error) => return failed(&because(&error)),
        },
    };
    let mut headers = headers.to_vec();
    if headers.iter().all(|(name, _)| name != "content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    headers.extend(trace::traceparent().or_else(|| runner.traceparent.map(str::to_owned)).map(|parent| ("traceparent".to_owned(), parent)));
    let request = HttpRequest { url: url.clone(), headers, body: told.payload.as_bytes().to_vec() };
    let timeout = handler.timeout.min(runner.max_timeout);
    let answer = async {
        let response = client.post(&request, Timeouts { first_byte: timeout, idle: timeout }).await.map_err(|error| because(&error))?;
        let status = response.status();
        // As much as is read of any body.
        Ok::<_, String>((status, response.error_text().await))
    };
    let answer = tokio::select! {
        biased;
        () = runner.cancel.cancelled() => return failed("it was cancelled"),
        answer = tokio::time::timeout(timeout, answer) => answer,
    };
    match answer {
        Err(_) => failed(&format!("it did not answer within {} s", timeout.as_secs_f64())),
        Ok(Err(why)) => failed(&format!("failed to {why}")),
        Ok(Ok((200..=299, body))) if body.trim().is_empty() || body.trim_start().starts_with('{') => {
            Reply::read(handler.on, Ended { code: Some(0), stdout: &body, stderr: "" }, handler.manner)
        }
        Ok(Ok((200..=299, _))) => failed("it answered with something that is no JSON object"),
        Ok(Ok((status, _))) => failed(&format!("it answered with status {status}")),
    }
}

fn environment(handler: &Handler, told: Told<'_>, runner: &HookRunner<'_>) -> BTreeMap<String, String> {
    let mut env = runner.env.clone();
    env.retain(|name, _| !name.starts_with("OTEL_"));
    for (name, value) in places(handler, told) {
        env.insert(name.to_owned(), value);
    }
    // The hook's own span, where spans are exported.
    if let Some(traceparent) = trace::traceparent().or_else(|| runner.traceparent.map(str::to_owned)) {
        env.insert("TRACEPARENT".to_owned(), traceparent);
    }
    if let Some((tool, input, files)) = told.call {
        env.insert("CLAUDE_TOOL_NAME".to_owned(), tool.to_owned());
        if input.len() <= MAX_VARIABLE_BYTES {
            env.extend(INPUT_VARIABLES.iter().map(|name| ((*name).to_owned(), input.to_owned())));
        }
        if files.len() <= MAX_VARIABLE_BYTES && !files.contains('\0') {
            env.insert("CLAUDE_FILE_PATHS".to_owned(), files.to_owned());
        }
    }
    env
}

/// A hook that goes by a variable which could not be set must not take its absence for harmless.
fn missing_input(handler: &Handler, env: &BTreeMap<String, String>, told: Told<'_>) -> Option<String> {
    told.call?;
    let text = match &handler.action {
        Action::Shell(command) => command.clone(),
        Action::Exec { args, .. } => args.join(" "),
        Action::Http { .. } | Action::Unsupported(_) => return None,
    };
    let used = INPUT_VARIABLES.iter().chain(&["CLAUDE_FILE_PATHS"]).find(|name| text.contains(**name) && !env.contains_key(**name))?;
    Some(format!("the call is too large for `${used}`; the JSON on standard input has it whole"))
}

fn places(handler: &Handler, told: Told<'_>) -> [(&'static str, String); 2] {
    [("CLAUDE_PROJECT_DIR", told.project_dir.to_string_lossy().into_owned()), ("CLAUDE_PLUGIN_ROOT", handler.dir.to_string_lossy().into_owned())]
}

/// Puts the folders into a text that no shell reads.
fn plain(text: &str, places: &[(&str, String)]) -> String {
    places.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// Puts the folders into a shell command, quoted as the place wants it: whatever a folder is called, it stays one word.
fn in_shell(command: &str, places: &[(&str, String)]) -> String {
    #[derive(Clone, Copy, PartialEq)]
    enum Quotes {
        None,
        Single,
        Double,
    }
    let mut quotes = Quotes::None;
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some(next) = rest.chars().next() {
        let found = places.iter().find_map(|(name, value)| Some((value, rest.strip_prefix("${")?.strip_prefix(*name)?.strip_prefix('}')?)));
        if let Some((value, after)) = found {
            match quotes {
                Quotes::None => out.push_str(&shell_words::quote(value)),
                Quotes::Single => out.push_str(&value.replace('\'', "'\\''")),
                Quotes::Double => out.extend(value.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| "\"$`\\".contains(c)).chain([c]))),
            }
            rest = after;
            continue;
        }
        let mut length = next.len_utf8();
        match (next, quotes) {
            ('\\', Quotes::None | Quotes::Double) => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            ('\'', Quotes::None) => quotes = Quotes::Single,
            ('"', Quotes::None) => quotes = Quotes::Double,
            ('\'', Quotes::Single) | ('"', Quotes::Double) => quotes = Quotes::None,
            _ => {}
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stay_one_word_in_every_kind_of_quotes() {
        let places = [("CLAUDE_PLUGIN_ROOT", "/a b/$(x)'\"".to_owned())];
        for command in ["${CLAUDE_PLUGIN_ROOT}/s", "\"${CLAUDE_PLUGIN_ROOT}/s\"", "'${CLAUDE_PLUGIN_ROOT}/s'", "\\'${CLAUDE_PLUGIN_ROOT}/s\\'"] {
            let words = shell_words::split(&in_shell(command, &places)).unwrap();
            assert_eq!(words.len(), 1, "{command}");
            assert_eq!(words[0].trim_matches('\''), "/a b/$(x)'\"/s", "{command}");
        }
        assert_eq!(in_shell("echo $CLAUDE_PLUGIN_ROOT \\${CLAUDE_PLUGIN_ROOT} é\\", &places), "echo $CLAUDE_PLUGIN_ROOT \\${CLAUDE_PLUGIN_ROOT} é\\");
        assert_eq!(plain("${CLAUDE_PLUGIN_ROOT}/s", &places), "/a b/$(x)'\"/s");
    }
}
