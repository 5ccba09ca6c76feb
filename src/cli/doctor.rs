//! `spinney doctor`: whether runs can work here, found out without spending anything.
use super::{
    args::{self, How},
    context::{Context, Failed},
    report::{json_text, line, put},
    run::began,
    screen::{Tone, first_line, paint},
};
use crate::{
    clock::Clock,
    engine::{
        Models, Project,
        doctor::{self, Check, Verdict},
        health,
    },
    event::{Event, Given},
    http::Client,
    journal::{self, Lease, RunDir},
    llm::{HttpModel, Limiter},
};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write as _, io, sync::Arc};

pub(super) fn run(args: &args::Doctor, context: &mut Context) -> Result<u8, Failed> {
    let opened = Project::open(context.settings.clone());
    let mut checks = doctor::machine(&context.settings, opened.as_ref().ok());
    checks.extend(doctor::configuration(opened.as_ref()));
    if let Ok(project) = &opened {
        checks.extend(providers(project)?);
        checks.extend(health::locks(&project.repo, Clock::system().now(), args.repair).map_err(|error| Failed::of(&error))?);
        checks.extend(health::runs(&project.repo, &context.settings.cache, Clock::system().now(), args.repair).map_err(|error| Failed::of(&error))?);
        checks.extend(open_runs(project, context)?);
    }
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Fine);
    let text =
        if args.json { json_text(&json!({"verdict": worst, "checks": checks})).map_err(io::Error::from)? + "\n" } else { page(&checks, worst, context.color) };
    put(context, &text)?;
    Ok(u8::from(worst == Verdict::Broken))
}

fn providers(project: &Project) -> Result<Vec<Check>, Failed> {
    let endpoints = project.endpoints();
    let client = Client::new().map_err(|error| Failed::of(&error))?;
    let clock = Clock::system();
    let model = HttpModel::new(client.clone(), endpoints.clone(), Limiter::new(clock.clone(), 1), clock);
    let default = project.configuration.default_model(&project.settings.environment).map(|(model, _)| model);
    let models = Models::endpoints(Arc::new(model), &endpoints, default, BTreeMap::new());
    let named = doctor::named(project, &models);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(doctor::providers(&client, &endpoints, &named)))
}

/// Looks at whether the runs that are not over can be gone on with: by their workflow and what it names.
fn open_runs(project: &Project, context: &Context) -> Result<Vec<Check>, Failed> {
    let state = RunDir::state(project.checkout());
    let mut checks = Vec::new();
    for run in RunDir::list(&state).map_err(|error| Failed::of(&error))? {
        let Ok(dir) = RunDir::open(&state, &run) else { continue };
        let Ok(records) = journal::read(dir.path()) else { continue };
        let is_over = records.last().is_none_or(|last| matches!(last.event, Event::RunFinished { .. }));
        if is_over || !matches!(Lease::owner(dir.path()), Ok(None)) {
            continue;
        }
        let found = began(project, &dir, &records, &How::default().after(Given::of(&records)), context).and_then(|(models, name)| {
            let (plan, _) = project.compile(&project.workflow(&name)?, &models)?;
            Ok(project.check_secrets(&plan)?)
        });
        if let Err(failed) = found {
            let why = if failed.report { first_line(&failed.message).to_owned() } else { format!("failed to {}", failed.message) };
            let mend = failed.hint.map(|hint| format!("{hint}; or ")).unwrap_or_default();
            let hint = format!("{mend}`spinney cancel {run} --as-it-stands` ends it");
            let detail = format!("it cannot be gone on with: {why}");
            checks.push(Check { area: "runs", name: run.0, verdict: Verdict::Warn, detail, hint: Some(hint) });
        }
    }
    Ok(checks)
}

fn page(checks: &[Check], worst: Verdict, color: bool) -> String {
    let mut text = String::new();
    let mut area = "";
    let width = checks.iter().map(|check| line(&check.name, 60).chars().count()).max().unwrap_or(0);
    for check in checks {
        if check.area != area {
            let before = if area.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{before}{}", paint(color, Tone::Name, check.area));
            area = check.area;
        }
        let (word, tone) = match check.verdict {
            Verdict::Fine => ("fine  ", Tone::Good),
            Verdict::Mended => ("mended", Tone::Good),
            Verdict::Warn => ("warn  ", Tone::Warn),
            Verdict::Broken => ("broken", Tone::Bad),
        };
        let name = line(&check.name, 60);
        let _ = writeln!(text, "  {}  {name:<width$}  {}", paint(color, tone, word), line(&check.detail, 400));
        if let Some(hint) = &check.hint {
            let _ = writeln!(text, "          {:<width$}  hint: {}", "", line(hint, 400));
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let end = match worst {
        Verdict::Fine | Verdict::Mended => "Everything is fine.".to_owned(),
        Verdict::Warn => format!("Runs are possible; {} to look at.", count(Verdict::Warn)),
        Verdict::Broken => format!("{} broken, {} to look at.", count(Verdict::Broken), count(Verdict::Warn)),
    };
    let _ = writeln!(text, "\n{end}");
    text
}
