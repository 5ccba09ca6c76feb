//! `run` and `resume`: prepare a run, carry it out before the user's eyes, say how it ended.
use super::{
    Context, Failed,
    args::{How, OnAsk, Resume, Run},
    outlet::{Form, Outlet},
    report::{Report, line, pick, plain},
    screen::{self, Screen},
    terminal::{self, Terminal},
};
use crate::{
    clock::Clock,
    engine::{self, Ended, EngineError, Inbox, Models, Prepared, Project, RunOptions, SetupError},
    event::{Event, Given, NodeId, Outcome, Record, RunId, because},
    git, http,
    journal::{self, Blobs, JournalError, RunDir, RunState, StoreError},
    library::{FILE_BYTES, Kind, read_text},
    llm::{Endpoints, HttpModel, Limiter, NO_KEY, OTHER, Recording, RecordingError, Replay, Script},
    plan::{AgentSpec, NamedBy, Plan, Work},
    source, telemetry, trace,
};
use serde_json::{Map, Value};
use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Requests under way at the same time at one provider with one key.
const REQUESTS_MAX: u32 = 64;
/// How long the last spans may take on their way out.
const FLUSH: Duration = Duration::from_secs(3);

/// How the process ends where a run waits for a person or a model.
const PARKED: u8 = 3;

pub(super) fn run(args: &Run, context: &mut Context) -> Result<u8, Failed> {
    let project = open(context)?;
    let models = models(&args.how, &project, context)?;
    let plan = compile(&project, &args.workflow, &models, context)?;
    let inputs = inputs(&plan, &args.inputs, true)?;
    check_models(&plan, &args.how, &project)?;
    let recording = recording(&args.how, None, context)?;
    let outlet = Outlet::default();
    let options = RunOptions { recording: recording.clone(), ..options(&args.how, &outlet, context) };
    let prepared = project.start(plan.clone(), &inputs, &models, options)?;
    let code = carry_out(prepared, (&plan, &models), (outlet, args.how.json), context);
    say_recorded(recording.as_deref(), code.as_ref().ok(), context);
    code
}

pub(super) fn resume(args: &Resume, context: &mut Context) -> Result<u8, Failed> {
    let project = open(context)?;
    let state = RunDir::state(project.checkout());
    let run = match &args.run {
        Some(run) => pick(&RunDir::list(&state).map_err(|error| Failed::of(&error))?, run)?,
        None => newest_open(&state, context)?,
    };
    let dir = RunDir::open(&state, &run).map_err(|error| Failed { code: 2, ..Failed::of(&error) }.hint("`spinney runs` lists the runs"))?;
    let records = journal::read(dir.path())?;
    let how = &args.how.after(Given::of(&records));
    let (models, name) = began(&project, &dir, &records, how, context)?;
    let plan = compile(&project, &name, &models, context)?;
    // A run that is called off asks nobody, unless its end does.
    let cancelled = Inbox::of(dir.path()).is_cancelling() || records.iter().any(|record| matches!(record.event, Event::RunCancelled { .. }));
    if models.script.is_none() && !cancelled {
        check_models(&plan, how, &project)?;
    }
    let recording = recording(how, Some(&run), context)?;
    let outlet = Outlet::default();
    let options = RunOptions { accept_changes: args.accept_changes, recording: recording.clone(), ..options(how, &outlet, context) };
    let prepared = project.resume(&run, plan.clone(), &models, options)?;
    let code = carry_out(prepared, (&plan, &models), (outlet, args.how.json), context);
    say_recorded(recording.as_deref(), code.as_ref().ok(), context);
    code
}

/// Opens the file that the run is recorded to, where there is to be one.
pub(super) fn recording(how: &How, run: Option<&RunId>, context: &Context) -> Result<Option<Arc<Recording>>, Failed> {
    let Some(path) = &how.record else { return Ok(None) };
    match Recording::open(&context.settings.directory.join(path), run) {
        Ok(recording) => Ok(Some(Arc::new(recording))),
        Err(error @ RecordingError::Exists(_)) => Err(Failed::usage(error.to_string()).hint("name another file, or remove this one")),
        Err(error) => Err(Failed::usage(because(&error))),
    }
}

/// Ends a recording with its run, and says where it is not whole.
pub(super) fn say_recorded(recording: Option<&Recording>, code: Option<&u8>, context: &mut Context) {
    let Some(recording) = recording else { return };
    if matches!(code, Some(0 | 1)) {
        recording.finish();
    }
    if let Some(error) = recording.error() {
        context.note(&format!("warning: the recording breaks off: {error}\nhint: the run was carried out all the same; do not replay what is there"));
    } else if code == Some(&PARKED) {
        context.note(
            "note: the recording is not whole yet, and `approve`, `reject` and `answer` go on without it\n\
             hint: say `--no-resume` with the answer, then `spinney resume RUN --record FILE` with the same file",
        );
    }
}

/// Returns the models of a run that has begun, and its workflow by the name that it is found by.
pub(super) fn began(project: &Project, dir: &RunDir, records: &[Record], how: &How, context: &Context) -> Result<(Models, String), Failed> {
    let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event) else {
        return Err(Failed::new("resume the run: its journal is empty"));
    };
    let script = started.script.as_ref().map(|id| Blobs::new(dir.path()).get(id)).transpose();
    let script = script
        .map_err(|error| Failed::of(&error).hint("nothing goes on without what stands for the models: put the file back from a copy, or begin a new run"))?;
    let models = match script {
        Some(text) if how.script.is_none() && how.replay.is_none() => {
            let text = String::from_utf8_lossy(&text).into_owned();
            if Replay::is_one(&text) {
                replayed("that the run began with", text, how, &project.endpoints())?
            } else {
                scripted("the script that the run began with", text, &project.endpoints())?
            }
        }
        Some(_) | None => models(how, project, context)?,
    };
    let is_here = started.file.ends_with(".yaml") && project.settings.directory.join(&started.file).is_file();
    if !is_here && project.library.find(Kind::Workflow, &started.workflow).is_none() {
        let gone = format!("find the workflow `{}`: the run began from `{}`, which is not there any more", started.workflow, line(&started.file, 200));
        return Err(Failed::usage(gone).hint("put that file back"));
    }
    Ok((models, if is_here { &started.file } else { &started.workflow }.clone()))
}

/// Returns the state of a run, where its workflow is still the one that it began with.
pub(super) fn state_of(dir: &RunDir, records: &[Record], how: &How, context: &Context) -> Result<RunState, Failed> {
    let project = Project::open(context.settings.clone())?;
    let (models, name) = began(&project, dir, records, &how.after(Given::of(records)), context)?;
    let (plan, _) = project.compile(&project.workflow(&name)?, &models)?;
    RunState::replay(Arc::new(plan), records).map_err(|error| Failed::of(&error))
}

/// Opens the repository around the user and says what somebody should look at.
pub(super) fn open(context: &mut Context) -> Result<Project, Failed> {
    let project = Project::open(context.settings.clone())?;
    for warning in &project.warnings {
        context.note(&format!("warning: {}", line(warning, 500)));
    }
    warn_of_untrusted(project.hooks.untrusted(), context);
    Ok(project)
}

fn warn_of_untrusted<'a>(hooks: impl Iterator<Item = &'a str>, context: &mut Context) {
    let untrusted: Vec<&str> = hooks.collect();
    if !untrusted.is_empty() {
        context.note(&format!(
            "warning: these hooks of the repository are not trusted and do not run: {}; an agent that they hold for does not begin\nhint: look at them with `spinney trust`",
            untrusted.join(", ")
        ));
    }
}

/// Makes the models of a run from the user's words and environment.
pub(super) fn models(how: &How, project: &Project, context: &Context) -> Result<Models, Failed> {
    if let Some(path) = &how.script {
        let path = context.settings.directory.join(path);
        let text = read_text(&path, FILE_BYTES).map_err(|error| Failed::usage(format!("read the script `{}`: {error}", path.display())))?;
        return scripted(&format!("`{}`", path.display()), text, &project.endpoints());
    }
    if let Some(path) = &how.replay {
        let path = context.settings.directory.join(path);
        let text = read_text(&path, FILE_BYTES).map_err(|error| Failed::usage(format!("read the recording `{}`: {error}", path.display())))?;
        return replayed(&format!("`{}`", path.display()), text, how, &project.endpoints());
    }
    let endpoints = project.endpoints();
    let mut default = None;
    let mut overrides = std::collections::BTreeMap::new();
    for word in &how.models {
        match word.split_once('=') {
            Some((alias, model)) => {
                overrides.insert(alias.to_owned(), model.to_owned());
            }
            None => default = Some(word.clone()),
        }
        check_model(word, &endpoints)?;
    }
    let clock = Clock::system();
    let client = http::Client::new().map_err(|error| Failed::of(&error))?;
    let model = HttpModel::new(client, endpoints.clone(), Limiter::new(clock.clone(), REQUESTS_MAX), clock);
    // Without any key the workflow is judged all the same; the missing key is said once it compiles.
    let configured = project.configuration.default_model(&project.settings.environment);
    if let (None, Some((model, from))) = (&default, &configured) {
        let known = model.split_once('/').is_some_and(|(provider, _)| endpoints.get(provider).is_some());
        if !known && !project.configuration.aliases().contains_key(model) {
            let names: Vec<&str> = endpoints.names().collect();
            return Err(
                Failed::usage(format!("use `{model}`, the model of {from}")).hint(format!("write `PROVIDER/MODEL`; the providers are {}", names.join(", ")))
            );
        }
    }
    let default = default
        .or(configured.map(|(model, _)| model))
        .or_else(|| endpoints.default_model().ok().map(str::to_owned))
        .or_else(|| Some("anthropic/claude-sonnet-5-5".to_owned()));
    Ok(Models::endpoints(Arc::new(model), &endpoints, default, overrides))
}

/// Says what is wrong with a `--model` whatever the workflow is.
fn check_model(word: &str, endpoints: &Endpoints) -> Result<(), Failed> {
    let model = word.split_once('=').map_or(word, |(_, model)| model);
    let failed = Failed::usage(format!("use `--model {word}`"));
    match model.split_once('/') {
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => {
            let names: Vec<&str> = endpoints.names().collect();
            if names.contains(&provider) {
                return Ok(());
            }
            Err(failed.hint(format!("there is no provider `{provider}`; there are {}", names.join(", "))))
        }
        _ => Err(failed.hint("write `--model PROVIDER/MODEL`, or `--model ALIAS=PROVIDER/MODEL` for one alias of the workflow")),
    }
}

/// Makes a script stand for every model; `name` is what its errors call it.
pub(super) fn scripted(name: &str, text: String, endpoints: &Endpoints) -> Result<Models, Failed> {
    let script = Script::parse(name, &text).map_err(|error| Failed::usage(error.to_string()).hint("docs/scripts.md says what stands in a script"))?;
    Ok(Models::scripted(Arc::new(script), text, endpoints))
}

/// Makes a recording stand for every model; `name` is what its errors call it.
fn replayed(name: &str, text: String, how: &How, endpoints: &Endpoints) -> Result<Models, Failed> {
    let replay =
        Replay::parse(name, &text, Clock::system()).map_err(|error| Failed::usage(error.to_string()).hint("docs/recordings.md tells of recordings"))?;
    let (overrides, default): (Vec<_>, Vec<_>) = how.models.iter().partition(|word| word.contains('='));
    let overrides = overrides.iter().filter_map(|word| word.split_once('=')).map(|(alias, model)| (alias.to_owned(), model.to_owned())).collect();
    Ok(Models::replayed(replay, text, endpoints, default.last().map(|word| (*word).clone()), overrides))
}

/// Says before anything begins that nobody could answer some agent.
pub(super) fn check_models(plan: &Plan, how: &How, project: &Project) -> Result<(), Failed> {
    if how.script.is_some() || how.replay.is_some() {
        return Ok(());
    }
    let endpoints = project.endpoints();
    let cannot = |agent: &Arc<AgentSpec>| {
        let errors: Vec<_> = agent.model.choices.iter().filter(|choice| !choice.contains("{{")).map(|choice| endpoints.require(choice).err()).collect();
        if errors.iter().all(Option::is_some) { errors.into_iter().flatten().next() } else { None }
    };
    match at_work(plan).find_map(|agent| Some((agent, cannot(agent)?))) {
        None => Ok(()),
        Some((agent, error)) => {
            let failed = Failed::usage(format!("ask a model: {}", error.message));
            Err(failed.hint(error.hint.into_iter().chain([other_model(agent)]).collect::<Vec<_>>().join("; or ")))
        }
    }
}

/// Says how another model answers an agent: `--model provider/model` alone is for whoever names none.
fn other_model(agent: &AgentSpec) -> String {
    match (&agent.model.alias, agent.model.named) {
        (Some(alias), _) => format!("name another model for `{0}` with `--model {0}=provider/model`; {NO_KEY}", alias.name),
        (None, NamedBy::Nobody) => format!("{OTHER}; {NO_KEY}"),
        (None, _) => format!("name another model where `{}` gets this one from: `--model` is for agents that name none, and for aliases", agent.name),
    }
}

/// Returns the agents that a model answers in this workflow.
fn at_work(plan: &Plan) -> impl Iterator<Item = &Arc<AgentSpec>> {
    let of_steps = plan.steps().filter_map(|step| match &step.work {
        Work::Agent { agent, .. } => Some(agent),
        Work::Merge(merge) => merge.resolver.as_ref(),
        Work::Select(select) => select.judge.as_ref().map(|judge| &judge.agent),
        Work::Run { .. } | Work::Approve(_) | Work::Workflow(_) | Work::Loop(_) => None,
    });
    let orchestrator = plan.orchestrator.as_ref().map(|spec| &spec.agent);
    of_steps.chain(orchestrator)
}

/// Compiles a workflow and says its warnings.
pub(super) fn compile(project: &Project, name: &str, models: &Models, context: &mut Context) -> Result<Arc<Plan>, Failed> {
    let workflow = project.workflow(name)?;
    let (plan, warnings) = project.compile(&workflow, models)?;
    let found: BTreeSet<&str> = project.hooks.names().collect();
    warn_of_untrusted(project.hooks_of(&plan).untrusted().filter(|name| !found.contains(name)), context);
    let shut: BTreeSet<&str> =
        plan.all().into_iter().flat_map(|plan| plan.agents.values()).filter(|agent| agent.sandbox.is_shut).map(|agent| agent.name.as_str()).collect();
    if !shut.is_empty() {
        context.note(&format!(
            "warning: what the sandboxes of these agents open is not trusted and stays shut: {}\nhint: look at it with `spinney trust`",
            shut.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    if !warnings.is_empty() {
        context.note(&source::render(&super::report::safe_diagnostics(&warnings), context.color));
    }
    Ok(Arc::new(plan))
}

/// Reads what was given as inputs. Everything that is wrong with them is told at once; where they are `all` that a run gets,
/// what is missing, too.
pub(super) fn inputs(plan: &Plan, words: &[String], all: bool) -> Result<Map<String, Value>, Failed> {
    let (mut inputs, mut seen, mut problems) = (Map::new(), BTreeSet::new(), Vec::new());
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            problems.push(format!("`{word}` has no `=`"));
            seen.insert(word.as_str());
            continue;
        };
        if !seen.insert(name) {
            problems.push(format!("the input `{name}` is given twice"));
        }
        match plan.parse_input(name, text) {
            Ok(value) => drop(inputs.insert(name.to_owned(), value)),
            Err(problem) => problems.push(problem),
        }
    }
    let lacks = |name: &str| all && !seen.contains(name);
    problems.extend(plan.misfits(&inputs, |name| inputs.contains_key(name) || lacks(name)));
    if problems.is_empty() { Ok(inputs) } else { Err(SetupError::Inputs(problems).into()) }
}

/// Says how a run is carried out here; its questions come out where the rest of it does.
pub(super) fn options(how: &How, outlet: &Outlet, context: &Context) -> RunOptions {
    let on_ask = how.on_ask.unwrap_or_default();
    RunOptions {
        asker: Arc::new(Terminal::new(on_ask, context.interactive && on_ask == OnAsk::Park, outlet.clone())),
        watcher: Arc::new(outlet.clone()),
        clock: Clock::system(),
        given: how.given(),
        accept_changes: false,
        recording: None,
    }
}

/// Returns the newest run that is open, and says which ones cannot be read and may be meant.
fn newest_open(state: &std::path::Path, context: &mut Context) -> Result<RunId, Failed> {
    let mut damaged = None;
    for run in RunDir::list(state).map_err(|error| Failed::of(&error))? {
        let dir = RunDir::open(state, &run).map_err(|error| Failed::of(&error))?;
        match journal::read(dir.path()) {
            Ok(records) if records.last().is_some_and(|last| !matches!(last.event, Event::RunFinished { .. })) => return Ok(run),
            Ok(_) | Err(StoreError::Missing { .. } | StoreError::Unbegun { .. }) => {}
            Err(error) => {
                context.note(&format!("warning: the run `{run}` is passed over: failed to {}", because(&error)));
                damaged = Some(Failed::from(error));
            }
        }
    }
    let none = damaged.and_then(|failed| failed.hint).unwrap_or_else(|| "`spinney runs` lists the runs".to_owned());
    Err(Failed::usage("resume a run: none is open").hint(none))
}

/// Carries a run out before the user's eyes and returns the exit code.
pub(super) fn carry_out(
    prepared: Prepared,
    (plan, models): (&Arc<Plan>, &Models),
    (outlet, json): (Outlet, bool),
    context: &mut Context,
) -> Result<u8, Failed> {
    let secrets = prepared.services.secrets.clone();
    let without = |text: String| secrets.text(&text).into_owned();
    let run = prepared.run.clone();
    let mut screen = Screen::new(context.color);
    prepared.journal.state().questions().for_each(|(node, question)| screen.recall(node, question));
    // What holds of an earlier run is not told as if it happened now.
    let held = prepared.journal.state().started().and_then(|started| started.origin.as_ref()).map_or(0, |origin| origin.held);
    let form = if json { (Form::Json, 0) } else { (Form::Lines(screen), held + 1) };
    let writer = outlet.open(context, form, prepared.dir.path().to_owned()).map_err(|error| Failed::new(format!("start: {error}")))?;
    let signal = Cell::new(terminal::Signal::None);
    let ended = before_eyes(prepared, (plan, models), (&outlet, json), &signal, context);
    if let Some(error) = outlet.close(writer, signal.get() != terminal::Signal::None, context) {
        context.note(&format!("warning: the output breaks off: {error}\nhint: the run ended all the same; `spinney show {run}` tells of it"));
    }
    ended.map_err(|failed| Failed { message: without(failed.message), hint: failed.hint.map(without), ..failed })
}

fn before_eyes(
    prepared: Prepared,
    (plan, models): (&Arc<Plan>, &Models),
    (outlet, json): (&Outlet, bool),
    signal: &Cell<terminal::Signal>,
    context: &Context,
) -> Result<u8, Failed> {
    let Prepared { journal, begun, services, dir, run, lease, warnings } = prepared;
    for warning in &warnings {
        outlet.note(&format!("warning: {warning}"));
    }
    let settings = telemetry::Settings::from_env(|name| context.settings.environment.get(name).cloned());
    let telemetry = telemetry::install(&settings, &services.secrets);
    if let Err(error) = &telemetry {
        outlet.note(&format!("warning: no traces: failed to {}", because(error)));
    }
    if !json {
        let models = screen::models_line(at_work(plan), models, services.lifted).map(|line| line + "\n").unwrap_or_default();
        outlet.text(format!("Run {run} of {}  (ctrl-c stops it; `spinney resume {run}` goes on)\n{models}\n", plan.name));
    }
    let span = trace::run(&run.0, &plan.name);
    if let Ok(telemetry) = &telemetry {
        telemetry.adopt(&span);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failed::new(format!("start: {error}")))?;
    let cancel = CancellationToken::new();
    let mut observe = |record: &Record| outlet.record(record);
    begun.iter().for_each(&mut observe);
    let repo = services.repo.clone();
    let ended = runtime.block_on(async {
        let run = engine::run(journal, services, cancel.clone(), &mut observe).instrument(span.clone());
        tokio::select! {
            ended = run => ended,
            () = terminal::second_signal(&cancel, signal, outlet) => Ok(Ended::Interrupted),
        }
    });
    repo.close();
    runtime.shutdown_background();
    // What a second signal left running is ended here; after a first one nothing is left.
    let reaped = crate::sandbox::reap(&dir.processes());
    note(&span, ended.as_ref().ok());
    drop(span);
    if let Ok(telemetry) = telemetry
        && let Err(error) = telemetry.flush_and_shutdown(FLUSH)
    {
        outlet.note(&format!("warning: failed to {}", because(&error)));
    }
    reaped.map_err(|error| Failed::of(&error))?;
    drop(lease);
    let ended = ended.map_err(|error| {
        let hint = match &error {
            // By `git clean -fdx`, say.
            _ if !dir.journal().is_file() => {
                Some(format!("its journal is gone, and nothing goes on without it; `git for-each-ref refs/spinney/{run}` lists what of its work is kept"))
            }
            EngineError::Close(failure) => failure.hint.clone(),
            EngineError::NoRoom(failure) => {
                let mend = failure.hint.as_deref().unwrap_or("mend that");
                Some(format!("nothing is lost: {mend}; then `spinney resume {run}` goes on"))
            }
            EngineError::Journal(JournalError::Store(store)) => store.hint().map(|hint| format!("{hint}; then `spinney resume {run}` goes on")),
            EngineError::Journal(JournalError::Illegal(_)) | EngineError::Stuck(_) => None,
        };
        Failed::of(&error).hint(hint.unwrap_or_else(|| format!("`spinney resume {run}` goes on from the last record")))
    })?;
    if !json {
        outlet.text(end(&ended, &run, &dir, plan, context.color)?);
    }
    Ok(code(&ended, signal.get()))
}

fn code(ended: &Ended, signal: terminal::Signal) -> u8 {
    match ended {
        Ended::Finished(Outcome::Succeeded(_) | Outcome::Skipped(_)) => 0,
        Ended::Finished(Outcome::Failed(_)) => 1,
        Ended::Parked(_) => PARKED,
        Ended::Interrupted => signal.code(),
    }
}

/// Notes on the run's span how it ended.
fn note(span: &tracing::Span, ended: Option<&Ended>) {
    match ended {
        Some(Ended::Finished(outcome)) => {
            trace::ended(span, outcome.word());
            if let Some(failure) = outcome.failure() {
                trace::failed(span, failure.kind.word(), failure.kind.word());
            }
        }
        Some(Ended::Parked(_)) => trace::ended(span, "parked"),
        Some(Ended::Interrupted) => trace::ended(span, "interrupted"),
        None => trace::failed(span, "engine", "engine"),
    }
}

/// Says how a run ended.
fn end(ended: &Ended, run: &RunId, dir: &RunDir, plan: &Arc<Plan>, color: bool) -> Result<String, Failed> {
    Ok(match ended {
        Ended::Finished(_) => {
            let records = journal::read(dir.path())?;
            let state = RunState::replay(plan.clone(), &records).map_err(|error| Failed::of(&error))?;
            screen::summary(&state, color) + &deeper(&state)
        }
        Ended::Parked(waits) => {
            let records = journal::read(dir.path())?;
            let report = Report::of(&records);
            let questions = report.questions();
            let is_asked = |(node, text): &&(NodeId, String)| questions.iter().any(|(id, question)| *id == node && question.text == *text);
            let asked = questions.iter().map(|(id, question)| (report.called(id, question), question.text.as_str()));
            let models = waits.iter().filter(|wait| !is_asked(wait)).map(|(node, why)| (node.to_string(), why.as_str()));
            let asked: String = asked.chain(models).map(|(name, text)| format!("  {}: {}\n", plain(&name), line(text, 300))).collect();
            let how = super::show::how_to_answer(&report, &run.0);
            let (what, more) = if report.questions().is_empty() {
                ("is parked, and nothing is lost: its model cannot be had now", String::new())
            } else {
                ("waits for a person", format!("`spinney show {run}` shows what is asked about; `spinney resume {run}` asks at a terminal.\n"))
            };
            format!("\nRun {run} {what}:\n{asked}{how}{more}")
        }
        Ended::Interrupted => format!("\nRun {run} was interrupted. Nothing is lost: `spinney resume {run}` goes on.\n"),
    })
}

/// The commands that look deeper.
fn deeper(state: &RunState) -> String {
    let Some(started) = state.started() else { return String::new() };
    let run = &started.run;
    let mut text = format!("\nLook deeper\n  spinney show {run}\n");
    if let Some(branch) = state.branch().filter(|branch| branch.made) {
        let name = git::short_name(&branch.name);
        let base = screen::short(&started.base.0);
        text.push_str(&format!("  git log --oneline {base}..{name}\n  spinney diff {run}\n  spinney land {run}\n"));
    } else if state.finished().is_some_and(|outcome| outcome.failure().is_some()) {
        text.push_str(&format!("  git for-each-ref refs/spinney/{run}   # the work of every step is kept\n"));
        text.push_str(&format!("  spinney retry {run}   # does again what did not work out, and keeps the rest\n"));
    }
    text
}
