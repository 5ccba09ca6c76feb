//! `spinney validate`: judges workflows without running them. Only the workflow is judged: whether a key is set or a
//! server answers is not its fault.
use super::{
    args::{self, Format},
    context::{Context, Failed},
    report::{json_text, line, put, safe_diagnostics},
    screen::{Tone, paint, plural},
};
use crate::{
    engine::{Models, Project},
    library::{Kind, RootKind},
    llm::{Endpoints, ModelError, ModelErrorKind, Script},
    plan::{Catalog, Plan},
    source::{self, Diagnostic, Diagnostics, Severity, Source},
    workflow::Workflow,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Stands for the model of whoever names none.
const SOME_MODEL: &str = "scripted/model";

/// What is to be said of one workflow.
struct Verdict {
    name: String,
    /// The name to run it by, where its file is not named as it names itself.
    found_as: Option<String>,
    file: String,
    /// Absent where it does not compile.
    steps: Option<usize>,
    /// Whether the file could not even be read, so that the plan was not judged.
    half: bool,
    diagnostics: Vec<Diagnostic>,
}

pub(super) fn run(args: &args::Validate, context: &mut Context) -> Result<u8, Failed> {
    let project = Project::open(context.settings.clone())?;
    let names: Vec<String> = match &args.workflow {
        Some(name) => vec![name.clone()],
        None => project.library.all(Kind::Workflow).into_iter().filter(|found| found.root == RootKind::Project).map(|found| found.name.clone()).collect(),
    };
    if names.is_empty() {
        return Err(Failed::usage("find a workflow of this repository: there is none in `.spinney/workflows/`").hint("`spinney init` writes a first one"));
    }
    let catalog = catalog(&project);
    let verdicts = names.iter().map(|name| judge(&project, &catalog, name)).collect::<Result<Vec<Verdict>, Failed>>()?;
    let text = match args.format {
        Format::Human => verdicts.iter().map(|verdict| said(verdict, context.color)).collect(),
        Format::Json => json_text(&of_json(&verdicts)).map_err(std::io::Error::from)? + "\n",
    };
    put(context, &text)?;
    Ok(if verdicts.iter().all(|verdict| verdict.steps.is_some()) { 0 } else { 2 })
}

/// Returns everything a workflow may name here, with a model for whoever names none; nobody is asked by it.
pub(super) fn catalog(project: &Project) -> Catalog {
    let environment = &project.settings.environment;
    let mut providers: Vec<String> = Endpoints::from_env(&|name| environment.get(name).cloned()).names().map(str::to_owned).collect();
    providers.push("scripted".to_owned());
    let nobody = Script::from_fn(Box::new(|_| Err(ModelError::new(ModelErrorKind::UnknownModel, "no model is asked here"))));
    project.catalog(&Models { model: Arc::new(nobody), providers, default: Some(SOME_MODEL.to_owned()), overrides: BTreeMap::new(), script: None })
}

/// Loads and compiles a workflow with all its rules, whether or not they are trusted.
pub(super) fn compile(source: Source, catalog: &Catalog) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    Plan::compile(&Workflow::load(&Arc::new(source))?, catalog)
}

fn judge(project: &Project, catalog: &Catalog, name: &str) -> Result<Verdict, Failed> {
    let (source, _) = project.workflow_source(name)?;
    let file = source.name.clone();
    let workflow = match Workflow::load(&Arc::new(source)) {
        Ok(workflow) => workflow,
        Err(Diagnostics(diagnostics)) => return Ok(Verdict { name: name.to_owned(), found_as: None, file, steps: None, half: true, diagnostics }),
    };
    Ok(match Plan::compile(&workflow, catalog) {
        Ok((plan, diagnostics)) => Verdict {
            found_as: (name != plan.name && ![".yaml", ".yml"].iter().any(|end| name.ends_with(end))).then(|| name.to_owned()),
            name: plan.name.clone(),
            file,
            steps: Some(plan.order().len()),
            half: false,
            diagnostics,
        },
        Err(Diagnostics(diagnostics)) => Verdict { name: name.to_owned(), found_as: None, file, steps: None, half: false, diagnostics },
    })
}

fn said(verdict: &Verdict, color: bool) -> String {
    let reports = source::render(&safe_diagnostics(&verdict.diagnostics), color);
    let errors = verdict.diagnostics.iter().filter(|found| found.severity == Severity::Error).count();
    let warnings = verdict.diagnostics.len() - errors;
    let mut counts = Vec::new();
    match verdict.steps {
        Some(steps) => counts.extend([paint(color, Tone::Good, "ok"), format!("{steps} {}", plural(steps, "step"))]),
        None => counts.push(paint(color, Tone::Bad, &format!("{errors} {}", plural(errors, "error")))),
    }
    if warnings > 0 {
        counts.push(format!("{warnings} {}", plural(warnings, "warning")));
    }
    let found = verdict.found_as.as_ref().map(|name| format!("; `spinney run {}` runs it: its file is named so", line(name, 200))).unwrap_or_default();
    let later = if verdict.half { "; names, the graph and templates are judged once the file can be read" } else { "" };
    format!("{reports}{}: {}{found}{later}\n", line(&verdict.name, 200), counts.join(", "))
}

fn of_json(verdicts: &[Verdict]) -> Value {
    let one = |verdict: &Verdict| {
        json!({
            "workflow": verdict.name,
            "file": verdict.file,
            "ok": verdict.steps.is_some(),
            "steps": verdict.steps,
            "diagnostics": source::to_json(&verdict.diagnostics),
        })
    };
    verdicts.iter().map(one).collect()
}

/// Says why a workflow that something else was wanted of is not usable.
pub(super) fn refused(Diagnostics(found): &Diagnostics, color: bool) -> Failed {
    Failed::report(source::render(&safe_diagnostics(found), color))
}

/// Finds and compiles one workflow for a command that only looks at it.
pub(super) fn plan_of(context: &Context, name: &str) -> Result<Plan, Failed> {
    let project = Project::open(context.settings.clone())?;
    let (source, _) = project.workflow_source(name)?;
    compile(source, &catalog(&project)).map(|(plan, _)| plan).map_err(|found| refused(&found, context.color))
}
