//! The command line.
use crate::event::Given;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs declarative workflows of coding agents on one git repository.
#[derive(Debug, Parser)]
#[command(name = "spinney", version, about, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Start with `spinney demo`: it needs no key and no network.\nExit codes: 0 success, 1 the run failed, 2 usage or an invalid workflow, 3 waits for a person, 129/130/143 interrupted by a signal."
)]
pub(super) struct Cli {
    /// Work as if started in this folder
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a whole workflow on a small repository of its own, with a scripted model
    Demo(Demo),
    /// Write a first workflow into this repository
    Init(Init),
    /// Run a workflow
    Run(Run),
    /// Go on with a run that was interrupted, killed or parked
    Resume(Resume),
    /// Do again what failed in a run, and what follows from it, in a new run that keeps the rest
    Retry(Retry),
    /// Do again what has changed since a run, or everything from a step on, in a new run that keeps the rest
    Rerun(Rerun),
    /// Begin a new run that keeps what does not depend on a step or on inputs that have another value now
    Fork(Fork),
    /// End a run: what is under way is stopped, `finally` runs, and it counts as cancelled
    Cancel(Cancel),
    /// Check workflow files without running them
    Validate(Validate),
    /// Show what a run would do and the most that it could cost, or what would be done again of one that has been
    Plan(Plan),
    /// Show the configuration that holds here, and where each value came from
    Config(Config),
    /// Check machine, configuration, keys, models and runs, without spending anything
    Doctor(Doctor),
    /// Say what a code of a finding means, with an example put right
    Explain(Explain),
    /// Draw a workflow's graph
    Graph(Graph),
    /// List the workflows, agents, skills and hooks found here, and what hides what
    List(List),
    /// List the runs of this repository
    Runs(Runs),
    /// Show what a run did: its steps, or one step turn by turn
    Show(Show),
    /// Watch a run that is carried out elsewhere; ctrl-c stops watching, not the run
    Watch(Watch),
    /// Say yes to what a run asks
    Approve(Approve),
    /// Say no to what a run asks
    Reject(Approve),
    /// Answer what a run asks, by its name or by a token
    Answer(Answer),
    /// Say something to an agent; it hears it at its next turn
    Tell(Tell),
    /// Show what a run changed
    Diff(Diff),
    /// Bring a run's result onto the branch that is checked out
    Land(Land),
    /// Remove what is left of runs that are over and whose work has landed, or who left none
    Clean(Clean),
    /// Look at the hooks and allow rules of this repository, and trust them
    Trust(Trust),
    /// Print the JSON Schema of workflow files
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Make the repository in this folder, which must not exist or be empty, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Print each event as one line of JSON instead of the screen
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The workflow's name
    #[arg(default_value = "first")]
    pub(super) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spinney run feature --input goal=\"Add a --json flag\"")]
pub(super) struct Run {
    /// A workflow by name (`spinney list`), or a path ending in .yaml
    pub(super) workflow: String,
    /// An input of the workflow; again for each
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(super) inputs: Vec<String>,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The run, or as much of its name as no other begins with; absent: the newest that is not over
    pub(super) run: Option<String>,
    /// Go on although the workflow, a prompt, a skill or a hook has changed since
    #[arg(long)]
    pub(super) accept_changes: bool,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spinney retry feature-k3m9x2\n`spinney plan RUN --retry` shows beforehand what would be done again. The run itself stays as it was."
)]
pub(super) struct Retry {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples: spinney rerun feature-k3m9x2 --from build/parser\n          spinney rerun feature-k3m9x2   # what has changed in the files since\n`spinney plan RUN --from STEP` shows beforehand what would be done again. The run itself stays as it was."
)]
pub(super) struct Rerun {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// The step, or the item as step/key, from which on everything is done again
    #[arg(long, value_name = "STEP[/ITEM]")]
    pub(super) from: Option<String>,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spinney fork feature-k3m9x2@build --input goal=\"Add a --yaml flag\"\n`spinney plan RUN --from STEP --input NAME=VALUE` shows beforehand what would be done again. The run itself stays as it was."
)]
pub(super) struct Fork {
    /// The run, or as much of its name as no other begins with, and the step from which on everything is done again
    #[arg(value_name = "RUN[@STEP]")]
    pub(super) run: String,
    /// An input that has another value now; again for each
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(super) inputs: Vec<String>,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples: spinney cancel feature-k3m9x2\n          spinney cancel feature-k3m9x2 --as-it-stands   # its workflow is gone\n`spinney retry RUN` does again later what was stopped."
)]
pub(super) struct Cancel {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// Whose word it is; absent: the user's
    #[arg(long, value_name = "NAME")]
    pub(super) by: Option<String>,
    /// End a run that nobody carries out without its workflow, its secrets and its `finally`
    #[arg(long)]
    pub(super) as_it_stands: bool,
    #[command(flatten)]
    pub(super) how: How,
}

/// How a run is carried out.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct How {
    /// A model for whoever names none, or for one alias of the workflow
    #[arg(short, long = "model", value_name = "[ALIAS=]PROVIDER/MODEL")]
    pub(super) models: Vec<String>,
    /// A script that stands for every model (see docs/scripts.md)
    #[arg(long, value_name = "FILE")]
    pub(super) script: Option<PathBuf>,
    /// Write every request and reply to a file, without secrets, to run the workflow again from it
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Answer from a recording instead of a model; a request that is not in it is an error (see docs/recordings.md)
    #[arg(long, value_name = "FILE", conflicts_with = "script")]
    pub(super) replay: Option<PathBuf>,
    /// What happens when a rule or a hook asks and nobody is at the terminal
    #[arg(long, value_enum, value_name = "ANSWER")]
    pub(super) on_ask: Option<OnAsk>,
    /// Let agents' commands run without bubblewrap and without asking; `--unconfined=false` takes that back
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true)]
    pub(super) unconfined: Option<bool>,
    /// Look up no result of an earlier run (`cache`): everything is done anew. What comes of it is kept for later runs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true)]
    pub(super) no_cache: Option<bool>,
    /// Print each event as one line of JSON instead of the screen
    #[arg(long)]
    pub(super) json: bool,
}

impl How {
    /// Returns what is to be done with a run that has been: as it was said then, but for what is said now.
    pub(super) fn after(&self, given: Given) -> How {
        let alias = |word: &str| word.split_once('=').map(|(alias, _)| alias.to_owned());
        let said: Vec<Option<String>> = self.models.iter().map(|word| alias(word)).collect();
        let before = given.models.into_iter().filter(|word| !said.contains(&alias(word)));
        How {
            models: before.chain(self.models.iter().cloned()).collect(),
            on_ask: self.on_ask.or_else(|| given.on_ask.and_then(|word| OnAsk::from_str(&word, true).ok())),
            unconfined: self.unconfined.or(Some(given.unconfined)),
            no_cache: self.no_cache.or(Some(given.no_cache)),
            ..self.clone()
        }
    }

    /// Returns what of it is recorded.
    pub(super) fn given(&self) -> Given {
        Given {
            models: self.models.clone(),
            unconfined: self.unconfined == Some(true),
            no_cache: self.no_cache == Some(true),
            on_ask: self.on_ask.and_then(|answer| answer.to_possible_value()).map(|word| word.get_name().to_owned()),
        }
    }
}

/// What happens to a question that nobody is there to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OnAsk {
    /// The step waits; exit code 3
    #[default]
    Park,
    /// No
    Deny,
    /// Yes
    Allow,
}

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// Print the records as one line of JSON each
    #[arg(long)]
    pub(super) json: bool,
    /// Begin at this record
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(super) from: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spinney approve feature-k3m9x2 --note \"looks right\"")]
pub(super) struct Approve {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// The step that asks, or STEP#N where it asks more than one thing; absent: the only one that asks
    pub(super) step: Option<String>,
    /// What you have to say besides
    #[arg(long, value_name = "TEXT")]
    pub(super) note: Option<String>,
    #[command(flatten)]
    pub(super) then: Then,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples: spinney answer feature-k3m9x2 orchestrator \"split it\"\n          spinney answer --token TOKEN yes")]
pub(super) struct Answer {
    /// The run, the step that asks unless only one does, and yes, no or a text
    #[arg(value_name = "RUN [STEP] ANSWER", num_args = 1..=3, required = true)]
    pub(super) words: Vec<String>,
    /// A token that a hook was given, in place of run and step
    #[arg(long, value_name = "TOKEN")]
    pub(super) token: Option<String>,
    /// What you have to say besides
    #[arg(long, value_name = "TEXT")]
    pub(super) note: Option<String>,
    #[command(flatten)]
    pub(super) then: Then,
}

#[derive(Debug, Args)]
pub(super) struct Tell {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// The agent's step, or an item as step/key
    pub(super) step: String,
    /// What it is to hear
    pub(super) text: String,
    #[command(flatten)]
    pub(super) then: Then,
}

/// Whose word it is, and what happens where no process has the run.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Then {
    /// Whose word it is; absent: the user's
    #[arg(long, value_name = "NAME")]
    pub(super) by: Option<String>,
    /// Only write it down: do not go on with a run that nobody carries out
    #[arg(long)]
    pub(super) no_resume: bool,
    /// Go on although the workflow, a prompt, a skill or a hook has changed since
    #[arg(long)]
    pub(super) accept_changes: bool,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub(super) struct Validate {
    /// Workflows by name, or paths ending in .yaml; absent: all workflows of this repository
    pub(super) workflows: Vec<String>,
    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
    /// Mend in the files what can be mended mechanically: what was probably meant, needs, quotes
    #[arg(long)]
    pub(super) fix: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spinney explain E012")]
pub(super) struct Explain {
    /// A code, such as E012; absent: all codes
    pub(super) code: Option<String>,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Human,
    /// For programs
    Json,
    /// For code hosts and editors: SARIF 2.1.0
    Sarif,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples: spinney plan feature --input goal=\"Add a --json flag\" --stub stub.yaml\n          spinney plan feature-k3m9x2 --from build   # what `rerun` would keep"
)]
pub(super) struct Plan {
    /// A workflow by name, or a path ending in .yaml; or a run that has been, to see what would be done again
    #[arg(value_name = "WORKFLOW|RUN")]
    pub(super) workflow: String,
    /// An input of the workflow; again for each
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(super) inputs: Vec<String>,
    /// A model for whoever names none, or for one alias of the workflow
    #[arg(short, long = "model", value_name = "[ALIAS=]PROVIDER/MODEL")]
    pub(super) models: Vec<String>,
    /// Simulate the whole run: each step gives what this file says, or something of the right shape (see docs/plan.md)
    #[arg(long, value_name = "FILE")]
    pub(super) stub: Option<PathBuf>,
    /// Of a run: as if everything were done again from this step, or item as step/key, on
    #[arg(long, value_name = "STEP[/ITEM]", conflicts_with_all = ["stub", "full", "retry"])]
    pub(super) from: Option<String>,
    /// Of a run: as if what did not work out were done again
    #[arg(long, conflicts_with_all = ["stub", "full"])]
    pub(super) retry: bool,
    /// Write the steps of loops and called workflows out wherever they run, not only once
    #[arg(long, conflicts_with = "stub")]
    pub(super) full: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Config {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Mend what of runs can be mended without a loss
    #[arg(long)]
    pub(super) repair: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Graph {
    /// A workflow by name, or a path ending in .yaml
    pub(super) workflow: String,
    /// The notation
    #[arg(long, value_enum, default_value_t = Notation::Mermaid)]
    pub(super) format: Notation,
}

/// The notation of a drawn graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Notation {
    /// Mermaid, as Markdown pages show it
    #[default]
    Mermaid,
    /// Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Runs {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// A step, an item as step/key, or a helper session as step/key:name
    pub(super) step: Option<String>,
    /// List the files that the run kept of its outputs, and where they are
    #[arg(long, conflicts_with = "json")]
    pub(super) artifacts: bool,
    /// Tell what each request read from the provider's prompt cache, wrote into it, and why what was there was lost
    #[arg(long, conflicts_with_all = ["json", "artifacts"])]
    pub(super) cache: bool,
    /// Print the records as one line of JSON each
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
    /// A step or an item as step/key; absent: the whole result
    pub(super) step: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Land {
    /// The run, or as much of its name as no other begins with
    pub(super) run: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples: spinney clean --dry-run\n          spinney clean --older-than 0d\n          spinney clean --drop feature-k3m9x2   # with work that is on no branch but its own"
)]
pub(super) struct Clean {
    /// Only runs that have been over for so long, such as 12h or 30d
    #[arg(long, value_name = "TIME", default_value = "14d")]
    pub(super) older_than: String,
    /// Also where a worktree holds files that git ignores and no setup has made
    #[arg(long)]
    pub(super) ignored: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Remove this run alone, however young it is, with work that is nowhere else; again for each
    #[arg(long, value_name = "RUN")]
    pub(super) drop: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Trust {
    /// Trust everything that is shown without asking
    #[arg(long)]
    pub(super) yes: bool,
}
