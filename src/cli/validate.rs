//! `spinney validate`: judges workflows without running them. Only the workflow is judged: whether a key is set or a
//! server answers is not its fault.
use super::{
    args::{self, Format},
    context::{Context, Failed},
    report::{json_text, line, put, safe_diagnostics},
    screen::{Tone, paint, plural},
};
use crate::{
    engine::{Models, Project, SCRIPTED, SetupError},
    library::{Kind, NotText, RootKind},
    llm::{ModelError, ModelErrorKind, Script},
    plan::{Catalog, Plan, Prices},
    source::{self, Diagnostic, Diagnostics, Edit, Severity, Source, Span, codes},
    workflow::Workflow,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Stands for the model of whoever names none.
const SOME_MODEL: &str = "scripted/model";

/// How often a file is mended and judged anew: an error may hide another one.
const MOST_ROUNDS: usize = 10;

/// What is to be said of one workflow.
struct Verdict {
    name: String,
    /// The name to run it by, where its file is not named as it names itself.
    found_as: Option<String>,
    source: Arc<Source>,
    /// Absent where it does not compile.
    steps: Option<usize>,
    /// Whether the file could not even be read, so that the plan was not judged.
    half: bool,
    /// The changes that were made in its file.
    fixed: Vec<String>,
    diagnostics: Vec<Diagnostic>,
    /// How many more errors there are, and whether there may be still more.
    more: usize,
    is_left: bool,
}

impl Verdict {
    fn of(name: &str, source: &Arc<Source>) -> Verdict {
        Verdict {
            name: name.to_owned(),
            found_as: None,
            source: source.clone(),
            steps: None,
            half: false,
            fixed: Vec::new(),
            diagnostics: Vec::new(),
            more: 0,
            is_left: false,
        }
    }

    fn wrong(self, errors: Diagnostics) -> Verdict {
        Verdict { diagnostics: errors.found, more: errors.more, is_left: errors.is_left, ..self }
    }
}

pub(super) fn run(args: &args::Validate, context: &mut Context) -> Result<u8, Failed> {
    let project = Project::open(context.settings.clone())?;
    let mut names = args.workflows.clone();
    if names.is_empty() {
        let unread = project.library.unread().iter().filter(|unread| unread.kind == Kind::Workflow && unread.root == RootKind::Project);
        let found = project.library.all(Kind::Workflow).into_iter().filter(|found| found.root == RootKind::Project);
        names.extend(found.map(|found| found.name.clone()).chain(unread.map(|unread| unread.name.clone())));
        names.sort_unstable();
        names.dedup();
    }
    if names.is_empty() {
        return Err(Failed::usage("find a workflow of this repository: there is none in `.spinney/workflows/`").hint("`spinney init` writes a first one"));
    }
    let catalog = catalog(&project);
    let mut verdicts = Vec::with_capacity(names.len());
    for name in &names {
        verdicts.push(match project.workflow_source(name) {
            Ok((source, _)) => {
                let verdict = judge(&catalog, name, source);
                if args.fix { fix(&project, &catalog, name, verdict)? } else { verdict }
            }
            Err(error) => unread(name, error)?,
        });
    }
    let text = match args.format {
        Format::Human => verdicts.iter().map(|verdict| said(verdict, context.color)).collect::<String>() + &more(&verdicts),
        Format::Json => json_text(&of_json(&verdicts)).map_err(std::io::Error::from)? + "\n",
        Format::Sarif => {
            let found: Vec<Diagnostic> = verdicts.iter().flat_map(|verdict| verdict.diagnostics.iter().cloned()).collect();
            json_text(&source::to_sarif(&found)).map_err(std::io::Error::from)? + "\n"
        }
    };
    put(context, &text)?;
    Ok(if verdicts.iter().all(|verdict| verdict.steps.is_some()) { 0 } else { 2 })
}

/// Makes the changes that findings carry, and judges what is then there; what one change uncovers is mended, too.
fn fix(project: &Project, catalog: &Catalog, name: &str, mut verdict: Verdict) -> Result<Verdict, Failed> {
    let mut made = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let source = &verdict.source;
        let edits: Vec<&Edit> = verdict.diagnostics.iter().filter(|found| found.source == *source).filter_map(|found| found.fix.as_ref()).collect();
        // What was YAML stays YAML, whatever was thought of a place in it.
        let (mut text, mut more) = source::apply(&source.text, &edits);
        if !is_yaml(source, &text) {
            (text, more) = source::apply(&source.text, &harmless(source, &edits));
        }
        if more.is_empty() || text == source.text {
            break;
        }
        let next = judge(catalog, name, Source { name: source.name.clone(), text });
        made.extend(more.into_iter().map(|edit| change(source, edit)));
        verdict = next;
    }
    if !made.is_empty() {
        let path = path(project, name).ok_or_else(|| Failed::usage(format!("mend `{}`: it is built in", line(name, 200))))?;
        write(&path, &verdict.source.text).map_err(|error| Failed::new(format!("write `{}`: {error}", line(&path.display().to_string(), 200))))?;
    }
    Ok(Verdict { fixed: made, ..verdict })
}

/// Returns those changes after which, one made after the other, the file still is YAML.
fn harmless<'e>(source: &Source, edits: &[&'e Edit]) -> Vec<&'e Edit> {
    let mut kept = Vec::new();
    for edit in edits {
        kept.push(*edit);
        if !is_yaml(source, &source::apply(&source.text, &kept).0) {
            kept.pop();
        }
    }
    kept
}

fn is_yaml(source: &Source, text: &str) -> bool {
    let changed = Arc::new(Source { name: source.name.clone(), text: text.to_owned() });
    Workflow::load(&changed).err().is_none_or(|errors| errors.found.iter().all(|found| found.code != codes::SYNTAX))
}

/// Says what a change changes, and where that stood.
fn change(source: &Source, edit: &Edit) -> String {
    let (number, _) = source.position(edit.span.start);
    let (old, new) = (line(&source.text[edit.span.range()], 60), line(&edit.text, 60));
    let what = match (old.is_empty(), new.is_empty()) {
        (true, _) => format!("`{new}` is put in"),
        (false, true) => format!("`{old}` is taken out"),
        (false, false) => format!("`{old}` is now `{new}`"),
    };
    format!("{}:{number}: {what}", line(&source.name, 200))
}

/// Returns the real place of a workflow's file; what is built in has none.
fn path(project: &Project, name: &str) -> Option<PathBuf> {
    let path = match project.library.find(Kind::Workflow, name) {
        _ if is_path(name) => project.settings.directory.join(name),
        Some(found) => found.dir.as_ref()?.join(Path::new(&found.path).file_name()?),
        None => return None,
    };
    fs::canonicalize(path).ok()
}

fn is_path(name: &str) -> bool {
    [".yaml", ".yml"].iter().any(|end| name.ends_with(end))
}

/// Puts a text in the place of a file in one go, with the file's own permissions.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Returns everything a workflow may name here, with a model for whoever names none; nobody is asked by it.
pub(super) fn catalog(project: &Project) -> Catalog {
    let endpoints = project.endpoints();
    let mut providers: Vec<String> = endpoints.names().map(str::to_owned).collect();
    providers.push(SCRIPTED.to_owned());
    let nobody = Script::from_fn(Box::new(|_| Err(ModelError::new(ModelErrorKind::UnknownModel, "no model is asked here"))));
    let prices = Prices(Arc::new(move |model| endpoints.is_priced(model)));
    project.catalog(&Models {
        model: Arc::new(nobody),
        providers,
        default: Some(SOME_MODEL.to_owned()),
        overrides: BTreeMap::new(),
        prices,
        script: None,
        replay: None,
    })
}

/// Loads and compiles a workflow with all its rules, whether or not they are trusted.
pub(super) fn compile(source: Source, catalog: &Catalog) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    Plan::compile(&Workflow::read(&Arc::new(source))?, catalog)
}

/// Says of a file that it cannot be read, or that there is none, as of any other that is wrong.
///
/// # Errors
/// What has nothing to do with the file.
fn unread(name: &str, error: SetupError) -> Result<Verdict, Failed> {
    let empty = |name: &str| Arc::new(Source { name: name.to_owned(), text: String::new() });
    let (found, half) = match error {
        SetupError::NoWorkflow { name, hint } => {
            let message = format!("there is no workflow `{name}`");
            (Diagnostic::error(codes::UNKNOWN_WORKFLOW, &empty(&name), Span::default(), message).help(hint), false)
        }
        SetupError::File { path, source } => match source.get_ref().and_then(|inner| inner.downcast_ref::<NotText>()) {
            Some(NotText { text, at, is_utf16 }) => {
                let file = Arc::new(Source { name: path, text: text.clone() });
                let span = Span { start: *at, end: at + text[*at..].chars().next().map_or(0, char::len_utf8) };
                let said = if *is_utf16 { "the file is UTF-16, and not UTF-8" } else { "the file is not UTF-8" };
                (Diagnostic::error(codes::UNREADABLE, &file, span, said).label("no letter").help("save it as UTF-8"), true)
            }
            None => (Diagnostic::error(codes::UNREADABLE, &empty(&path), Span::default(), format!("the file cannot be read: {source}")), true),
        },
        other => return Err(other.into()),
    };
    Ok(Verdict { half, ..Verdict::of(name, &found.source.clone()).wrong(Diagnostics::from(vec![found])) })
}

fn judge(catalog: &Catalog, name: &str, source: Source) -> Verdict {
    let source = Arc::new(source);
    let verdict = Verdict::of(name, &source);
    let workflow = match Workflow::read(&source) {
        Ok(workflow) => workflow,
        Err(errors) => return Verdict { half: true, ..verdict.wrong(errors) },
    };
    match Plan::compile(&workflow, catalog) {
        Ok((plan, diagnostics)) => Verdict {
            found_as: (name != plan.name && !is_path(name)).then(|| name.to_owned()),
            name: plan.name.clone(),
            steps: Some(plan.order().len()),
            diagnostics,
            ..verdict
        },
        Err(errors) => verdict.wrong(errors),
    }
}

fn said(verdict: &Verdict, color: bool) -> String {
    let reports = source::render(&safe_diagnostics(&verdict.diagnostics), color);
    let errors = verdict.diagnostics.iter().filter(|found| found.severity == Severity::Error).count();
    let warnings = verdict.diagnostics.len() - errors;
    let mut counts = Vec::new();
    match verdict.steps {
        Some(steps) => counts.extend([paint(color, Tone::Good, "ok"), format!("{steps} {}", plural(steps, "step"))]),
        None => counts.push(paint(color, Tone::Bad, &count(errors, verdict.more, verdict.is_left))),
    }
    if warnings > 0 {
        counts.push(format!("{warnings} {}", plural(warnings, "warning")));
    }
    let fixed = verdict.fixed.len();
    if fixed > 0 {
        counts.push(format!("{fixed} {} made", plural(fixed, "change")));
    }
    let changes: String = verdict.fixed.iter().map(|change| format!("  {change}\n")).collect();
    let found = verdict.found_as.as_ref().map(|name| format!("; `spinney run {}` runs it: its file is named so", line(name, 200))).unwrap_or_default();
    let later = if verdict.half { "; names, the graph and templates are judged once the file can be read" } else { "" };
    format!("{reports}{}: {}{found}{later}\n{changes}", line(&verdict.name, 200), counts.join(", "))
}

/// Says where more is said of what was found.
fn more(verdicts: &[Verdict]) -> String {
    let found: BTreeSet<&str> = verdicts.iter().flat_map(|verdict| &verdict.diagnostics).map(|found| found.code).collect();
    let Some(first) = found.first() else { return String::new() };
    let fixable = verdicts.iter().flat_map(|verdict| &verdict.diagnostics).any(|found| found.fix.is_some());
    let fix = if fixable { "; `spinney validate --fix` mends what a machine can" } else { "" };
    format!("`spinney explain {first}` says more, of each code{fix}\n")
}

fn of_json(verdicts: &[Verdict]) -> Value {
    let one = |verdict: &Verdict| {
        json!({
            "workflow": verdict.name,
            "file": verdict.source.name,
            "ok": verdict.steps.is_some(),
            "steps": verdict.steps,
            "fixed": verdict.fixed.len(),
            "changes": verdict.fixed,
            "diagnostics": source::to_json(&verdict.diagnostics),
            "more": verdict.more,
        })
    };
    verdicts.iter().map(one).collect()
}

/// Says why a workflow that something else was wanted of is not usable.
pub(super) fn refused(errors: &Diagnostics, color: bool) -> Failed {
    let more = match (errors.more, errors.is_left) {
        (0, false) => String::new(),
        (more, is_left) => format!("\n{}\n", count(errors.found.len(), more, is_left)),
    };
    Failed::report(source::render(&safe_diagnostics(&errors.found), color) + &more)
}

/// Says how many errors there are, and how many of them are shown.
fn count(shown: usize, more: usize, is_left: bool) -> String {
    let all = shown + more;
    let least = if is_left { "at least " } else { "" };
    let part = if more > 0 || is_left { format!(", of which {shown} are shown") } else { String::new() };
    format!("{least}{all} {}{part}", plural(all, "error"))
}

/// Finds and compiles one workflow for a command that only looks at it.
pub(super) fn plan_of(context: &Context, name: &str) -> Result<Plan, Failed> {
    let project = Project::open(context.settings.clone())?;
    let (source, _) = project.workflow_source(name)?;
    compile(source, &catalog(&project)).map(|(plan, _)| plan).map_err(|found| refused(&found, context.color))
}
