//! What a command runs in: the user's settings and where words go.
use crate::{
    engine::{Settings, SetupError},
    event::because,
    git::GitError,
    journal::{JournalError, StoreError, mend_of},
};
use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, IsTerminal as _, Write},
    path::PathBuf,
};

/// What a command runs in.
pub struct Context {
    /// What is known of the user and the machine.
    pub settings: Settings,
    /// Whether colours are wanted on standard output.
    pub color: bool,
    /// Whether results go to a terminal on which lines can be wiped off.
    pub live: bool,
    /// Whether somebody is at the terminal and can be asked.
    pub interactive: bool,
    /// Where results go.
    pub out: Box<dyn Write + Send>,
    /// Where words about them go.
    pub err: Box<dyn Write + Send>,
}

/// Why a command failed, and the exit code that says so.
#[derive(Debug)]
pub struct Failed {
    /// The exit code.
    pub code: u8,
    /// A sentence fragment that fits after "error: failed to ", or a whole report.
    pub message: String,
    /// Whether the message is a rendered report and stands for itself.
    pub report: bool,
    /// What to do, where that is known.
    pub hint: Option<String>,
}

impl Failed {
    /// A mistake of whoever called: exit code 2.
    pub fn usage(message: impl Into<String>) -> Failed {
        Failed { code: 2, message: message.into(), report: false, hint: None }
    }

    /// A workflow that is wrong, as a rendered report: exit code 2.
    pub fn report(text: impl Into<String>) -> Failed {
        Failed { report: true, ..Failed::usage(text) }
    }

    /// A failure of what was tried: exit code 1.
    pub fn new(message: impl Into<String>) -> Failed {
        Failed { code: 1, message: message.into(), report: false, hint: None }
    }

    /// A failure of what was tried, with all its causes.
    pub fn of(error: &dyn Error) -> Failed {
        Failed::new(because(error))
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failed {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what to do, where something is known.
    pub(super) fn hinted(self, hint: Option<&'static str>) -> Failed {
        Failed { hint: hint.map(str::to_owned).or(self.hint), ..self }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::of(&error).hinted(error.hint())
    }
}

impl From<SetupError> for Failed {
    fn from(error: SetupError) -> Failed {
        match &error {
            SetupError::Base { name, .. } => {
                Failed::usage(error.to_string()).hint(format!("`workspace.base` is `head`, `dirty`, or a branch, tag or commit: is `{name}` fetched?"))
            }
            SetupError::NoWorkflow { hint, .. } => Failed::usage(error.to_string()).hint(hint.clone()),
            // The machine's, and nothing that was asked for wrongly.
            SetupError::Git(git @ (GitError::Io { .. } | GitError::Killed { .. } | GitError::CheckoutBusy { .. })) => Failed::of(&error).hinted(git.hint()),
            SetupError::Git(git) => match git.hint() {
                Some(hint) => Failed::usage(error.to_string()).hint(hint),
                None => Failed::of(&error),
            },
            SetupError::Diagnostics(diagnostics) => super::validate::refused(diagnostics, false),
            SetupError::Inputs(_) => {
                Failed::usage(error.to_string()).hint("inputs are given as `--input name=value`; `spinney list` shows what a workflow takes")
            }
            SetupError::Store(store) | SetupError::Journal(JournalError::Store(store)) => Failed::of(store).hinted(store.hint()),
            SetupError::Damaged { .. } => Failed::of(&error).hint("`spinney doctor` says what can be done"),
            SetupError::Lease(lease) => Failed::of(lease).hinted(lease.hint()),
            SetupError::RunDir(dir) => Failed::of(dir).hinted(dir.hint()),
            SetupError::Changed { .. } => {
                Failed::usage(error.to_string()).hint("resume with `--accept-changes` to go on with what is there now, or start a new run")
            }
            SetupError::Over { run, how } => {
                let again = if *how == "failed" {
                    format!("`spinney retry {run}` does again what did not work out, and keeps the rest")
                } else {
                    format!("`spinney rerun {run}` does again what has changed since")
                };
                Failed::usage(error.to_string()).hint(format!("`spinney show {run}` shows what it did; {again}"))
            }
            SetupError::BranchTaken => {
                Failed::usage(error.to_string()).hint("git cannot keep `spinney/RUN` beside it; rename it: `git branch -m spinney NEW-NAME`")
            }
            SetupError::NoSecrets(_) => Failed::usage(error.to_string()).hint("a workflow's `secrets` are read from environment variables of the same names"),
            SetupError::Reset(reset) => match reset.hint() {
                Some(hint) => Failed::usage(error.to_string()).hint(hint),
                None => Failed::usage(error.to_string()),
            },
            SetupError::Walls { hint, .. } => Failed::usage(error.to_string()).hint(*hint),
            SetupError::Secret(_) => Failed::usage(error.to_string()),
            SetupError::File { source, .. } => Failed::usage(error.to_string()).hinted(mend_of(source)),
            SetupError::Illegal(_) => Failed::of(&error).hint(
                "the workflow has other steps than the run was begun with, which `--accept-changes` cannot take: put their names back, or start a new run",
            ),
            SetupError::Recording(_) | SetupError::Journal(_) | SetupError::Blob(_) | SetupError::Sandbox(_) | SetupError::Trust(_) | SetupError::Empty(_) => {
                Failed::of(&error)
            }
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::new(format!("write the output: {error}"))
    }
}

impl Context {
    /// The process's own: its environment, its working directory, its terminal.
    #[expect(clippy::disallowed_methods, reason = "`cli` is the one place that reads the environment")]
    pub fn of_process() -> Context {
        let environment: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let live = io::stdout().is_terminal() && environment.get("TERM").is_none_or(|term| term != "dumb");
        let color = live && !environment.contains_key("NO_COLOR");
        let interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
        let settings = Settings { program: std::env::current_exe().ok(), ..Context::settings(environment, directory) };
        Context { settings, color, live, interactive, out: Box::new(io::stdout()), err: Box::new(io::stderr()) }
    }

    /// Works out the user's folders from an environment, as the XDG base directories say. Which file this program is it does not know.
    pub fn settings(environment: BTreeMap<String, String>, directory: PathBuf) -> Settings {
        let folder = |name: &str| environment.get(name).filter(|path| !path.is_empty()).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let config = folder("XDG_CONFIG_HOME").or_else(|| below_home(".config")).map(|folder| folder.join("spinney"));
        let cache = folder("XDG_CACHE_HOME").or_else(|| below_home(".cache")).unwrap_or_else(std::env::temp_dir).join("spinney");
        Settings { directory, environment, config, cache, home, program: None, contained: false }
    }

    /// Says what is wrong with the arguments, or shows help; returns the exit code.
    pub(super) fn usage(&mut self, error: &clap::Error) -> u8 {
        let text = error.render().to_string();
        let written = if error.use_stderr() { self.err.write_all(text.as_bytes()) } else { self.out.write_all(text.as_bytes()) };
        if written.is_err() { 1 } else { u8::try_from(error.exit_code()).unwrap_or(2) }
    }

    /// Says something beside the output. Where standard error is gone there is nobody left to tell.
    pub(super) fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }

    /// Says why a command failed; returns the exit code.
    pub(super) fn failed(&mut self, failed: &Failed) -> u8 {
        let hint = failed.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        let cleaned = if failed.report { failed.message.clone() } else { super::report::block(&failed.message) };
        let message = cleaned.trim_end();
        let said = if failed.report { format!("{message}\n{hint}") } else { format!("error: failed to {}\n{hint}", message.replace('\n', "\n  ")) };
        // Where standard error is gone there is nobody left to tell.
        let _ = self.err.write_all(said.as_bytes());
        failed.code
    }
}
