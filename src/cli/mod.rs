//! Words into calls: arguments, environment, terminal. One file a command.
//!
//! The environment is read here and nowhere else. What a command finds out is the library's business; what it says goes
//! through [`Context`], so that a test reads it as a person would.
mod again;
mod answer;
mod args;
mod cancel;
mod clean;
mod config;
mod context;
mod demo;
mod diff;
mod doctor;
mod explain;
mod graph;
mod init;
mod land;
mod list;
mod outlet;
mod plan;
mod progress;
mod report;
mod run;
mod runs;
mod schema;
mod screen;
mod show;
mod terminal;
mod trust;
mod validate;
mod watch;

use crate::sandbox::{self, Orphans};
use args::{Cli, Command};
use clap::Parser as _;
pub use context::{Context, Failed};
use std::{ffi::OsString, process::ExitCode};

/// Runs the program with the process's own arguments, environment and terminal.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == sandbox::ENTER) {
        return sandbox::enter(arguments);
    }
    let context = Context::of_process();
    // What hides from its command's end ends with the program.
    let orphans = Orphans::take_over();
    let code = run(std::env::args_os(), context);
    drop(orphans);
    ExitCode::from(code)
}

/// Runs one command and returns its exit code: 0 success, 1 the run failed, 2 usage or an invalid workflow, 3 parked,
/// 129, 130 or 143 interrupted.
pub fn run(arguments: impl IntoIterator<Item = OsString>, mut context: Context) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return context.usage(&error),
    };
    if let Some(directory) = &cli.directory {
        context.settings.directory = context.settings.directory.join(directory);
    }
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args, &mut context),
        Command::Init(args) => init::run(&args, &mut context),
        Command::Run(args) => run::run(&args, &mut context),
        Command::Resume(args) => run::resume(&args, &mut context),
        Command::Retry(args) => again::retry(&args, &mut context),
        Command::Rerun(args) => again::rerun(&args, &mut context),
        Command::Fork(args) => again::fork(&args, &mut context),
        Command::Cancel(args) => cancel::run(&args, &mut context),
        Command::Validate(args) => validate::run(&args, &mut context),
        Command::Plan(args) => plan::run(&args, &mut context),
        Command::Config(args) => config::run(&args, &mut context),
        Command::Doctor(args) => doctor::run(&args, &mut context),
        Command::Explain(args) => explain::run(&args, &mut context),
        Command::Graph(args) => graph::run(&args, &mut context),
        Command::List(args) => list::run(&args, &mut context),
        Command::Runs(args) => runs::run(&args, &mut context),
        Command::Show(args) => show::run(&args, &mut context),
        Command::Watch(args) => watch::run(&args, &mut context),
        Command::Approve(args) => answer::approve(&args, &mut context),
        Command::Reject(args) => answer::reject(&args, &mut context),
        Command::Answer(args) => answer::answer(&args, &mut context),
        Command::Tell(args) => answer::tell(&args, &mut context),
        Command::Diff(args) => diff::run(&args, &mut context),
        Command::Land(args) => land::run(&args, &mut context),
        Command::Clean(args) => clean::run(&args, &mut context),
        Command::Trust(args) => trust::run(&args, &mut context),
        Command::Schema => schema::run(&mut context),
    };
    match done {
        Ok(code) => code,
        Err(failed) => context.failed(&failed),
    }
}
