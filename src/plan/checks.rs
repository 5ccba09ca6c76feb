//! What the parts of one step have to do with each other.
use super::{
    calls::check_with,
    findings::{Findings, SCHEMA},
    frames::At,
    items, limits, matrix,
    resolve::Resolved,
    shapes::Shapes,
};
use crate::{
    prompts,
    source::{Span, Spanned, codes},
    workflow::{Approve, Base, Budget, Output, Scope, Select, Step, Verb, WorkspaceKind, misread},
};
use globset::GlobBuilder;
use std::collections::BTreeMap;

/// The longest name of an artefact, in bytes.
const MAX_FILE_NAME: usize = 200;

/// Checks steps one by one.
pub(super) struct Checks<'a> {
    pub(super) shapes: Shapes<'a>,
    /// The artefacts that steps keep, by name.
    pub(super) files: BTreeMap<&'a str, Span>,
}

impl<'a> Checks<'a> {
    /// Checks one step.
    pub(super) fn step(&mut self, at: At, resolved: &Resolved, findings: &mut Findings<'_>) {
        let step = self.shapes.frames.step(at);
        // What a step lacks may be what of it could not be read.
        let is_read = !findings.flaws.of_step(&step.id);
        if is_read && matches!(step.verb, Verb::Agent { .. } | Verb::Run { .. }) {
            place_of(step, resolved, findings);
        }
        self.output(step, findings);
        self.file(step, findings);
        self.budget(at, step, findings);
        patterns(step, findings);
        step.cwd.iter().for_each(|cwd| folder(cwd, findings));
        items::judge(step, findings);
        if let Some(matrix) = &step.matrix {
            matrix::check(step, matrix, findings);
        }
        match &step.verb {
            Verb::Select(select) if is_read => self.candidates(at, select, findings),
            Verb::Merge(merge) if is_read => sources(step, &merge.from, findings),
            Verb::Approve(approve) if is_read => waiting(approve, findings),
            Verb::Workflow { with, .. } => {
                if let Some(plan) = self.shapes.calls.get(&at) {
                    check_with(step, with, plan, findings);
                }
            }
            Verb::Agent { .. } | Verb::Run { .. } | Verb::Merge(_) | Verb::Loop(_) | Verb::Select(_) | Verb::Approve(_) => {}
        }
    }

    fn output(&self, step: &Step, findings: &mut Findings<'_>) {
        let Some(output) = &step.output else { return };
        if let Some(name) = &output.schema {
            let known = self.shapes.workflow.schemas.iter().map(|(name, _)| name.as_str());
            if !self.shapes.schemas.contains_key(&name.value) && !known.clone().any(|schema| schema == name.value) {
                findings.unknown(&SCHEMA, name, known);
            }
            if matches!(step.verb, Verb::Run { .. }) && output.parse.is_none() && !findings.flaws.of_step(&step.id) {
                let error = findings.error(codes::NOT_OF_THIS_VERB, name.span, "a command has no output to hold against a schema");
                findings.report(error.help("add `parse: json`"));
            }
        }
        if let (Verb::Agent { .. }, Some(parse)) = (&step.verb, &output.parse) {
            let error = findings.error(codes::NOT_OF_THIS_VERB, parse.span, format!("`parse` says nothing for the agent of step `{}`", step.id.value));
            findings.report(error.help("demand an object by `output: { schema: NAME }`"));
        }
    }

    /// A budget stays within that of what is around it: the loop, or the run.
    fn budget(&self, at: At, step: &Step, findings: &mut Findings<'_>) {
        if let (Verb::Run { .. }, Some(budget)) = (&step.verb, &step.budget) {
            let Budget { usd, tokens, turns, .. } = &budget.value;
            if usd.is_some() || tokens.is_some() || turns.is_some() {
                let message = format!("step `{}` is a command: it has no tokens, turns or dollars to spend", step.id.value);
                findings.report(findings.error(codes::NOT_OF_THIS_VERB, budget.span, message).help("bound its time by `timeout`"));
            }
        }
        limits::check_asking(step.budget.as_ref(), &format!("the budget of step `{}`", step.id.value), findings);
        let around = self.shapes.frames.loops(at.frame).map(|at| self.shapes.frames.step(at)).find(|around| around.budget.is_some());
        match around {
            Some(around) => limits::check_within(step.budget.as_ref(), around.budget.as_ref(), &format!("the loop `{}`", around.id.value), findings),
            None => limits::check_within(step.budget.as_ref(), self.shapes.workflow.budget.as_ref(), "the whole run", findings),
        }
    }

    /// A choice needs two to choose between.
    fn candidates(&self, at: At, select: &Select, findings: &mut Findings<'_>) {
        let frame = &self.shapes.frames.all[at.frame];
        let Some(first) = select.from.first() else { return };
        if let Some(twice) = select.from.iter().enumerate().find(|(at, name)| select.from[..*at].contains(name)).map(|(_, name)| name) {
            findings.report(findings.error(codes::CANDIDATES, twice.span, format!("`{}` stands twice among the candidates", twice.value)));
            return;
        }
        let [_] = select.from.as_slice() else { return };
        let Some(&only) = frame.index.get(first.as_str()) else { return };
        let only = &frame.steps[only];
        let combinations = only.matrix.as_ref().map(|matrix| matrix.known().map(|known| known.len()));
        let items = only.for_each.as_ref().map(|for_each| for_each.items.value.as_array().map(Vec::len));
        let count = match (combinations, items) {
            (None, None) => Some(1),
            (Some(count), None) | (None, Some(count)) => count,
            (Some(combinations), Some(items)) => combinations.and_then(|combinations| Some(combinations * items?)),
        };
        if count.is_some_and(|count| count < 2) && !findings.flaws.of_step(&only.id) {
            let error = findings.error(codes::CANDIDATES, first.span, format!("`{}` gives one candidate, so that there is nothing to choose", first.value));
            findings.report(error.also(only.id.span, "this step").help("name several steps, or give this one a `matrix` or a `for_each`"));
        }
    }

    /// Checks the name of the artefact that a step keeps.
    fn file(&mut self, step: &'a Step, findings: &mut Findings<'_>) {
        let Some(Output { file: Some(name), .. }) = &step.output else { return };
        let literal = outside_of_templates(name);
        let bad = literal.contains(['/', '\\']) || literal.chars().any(char::is_control) || name.starts_with('.') || name.trim().is_empty();
        if bad || literal.len() > MAX_FILE_NAME {
            let error = findings.error(codes::BAD_FILE, name.span, format!("`{}` cannot be the name of an artefact", name.escape_debug()));
            findings.report(error.help("a plain name without folders, as in `report.json`"));
        } else if literal.len() == name.len() {
            match self.files.get(name.as_str()) {
                Some(first) => {
                    let error = findings.error(codes::BAD_FILE, name.span, format!("two steps keep their output as `{}`", name.value));
                    findings.report(error.label("again here").also(*first, "first here"));
                }
                None => {
                    self.files.insert(name, name.span);
                }
            }
        } else if let Some(unread) = not_told_apart(step, name) {
            let warning = findings.warning(codes::SHARED_FILE, name.span, format!("the name of the artefact does not differ by `{unread}`"));
            let help = format!("put `{{{{ {unread} }}}}` into it, or write a name without a template: each item then gets a file of its own");
            findings.report(warning.label("only the first to have it keeps its output").help(help));
        }
    }
}

/// Returns what multiplies a step and is not read by the template of its artefact's name.
fn not_told_apart(step: &Step, name: &str) -> Option<String> {
    let read = prompts::check(name).ok()?;
    let reads = |path: &[&str]| read.iter().any(|reading| reading.path.iter().zip(path).all(|(read, part)| read == part));
    let item = step.for_each.iter().map(|for_each| for_each.name.value.clone()).find(|item| !reads(&[item]));
    let axes = step.matrix.iter().flat_map(|matrix| matrix.axes.iter().map(|(axis, _)| axis));
    item.or_else(|| axes.map(|axis| &**axis).find(|axis| !reads(&["matrix", axis])).map(|axis| format!("matrix.{axis}")))
}

/// A merge takes each piece of work in once.
fn sources(step: &Step, from: &[Spanned<String>], findings: &mut Findings<'_>) {
    let mut seen = BTreeMap::new();
    for name in from {
        if let Some(first) = seen.insert(name.as_str(), name.span) {
            let twice = findings.error(codes::NEED_TWICE, name.span, format!("`{}` takes in `{}` twice", step.id.value, name.value));
            findings.report(twice.label("again here").also(first, "first here"));
        }
    }
}

/// A writer needs a worktree, and only what is written can be verified.
fn place_of(step: &Step, resolved: &Resolved, findings: &mut Findings<'_>) {
    let id = &step.id;
    let workspace = &resolved.workspace;
    let place = step.workspace.as_ref().map_or(id.span, |workspace| workspace.span);
    if resolved.writes && workspace.kind != WorkspaceKind::Worktree {
        let error = findings.error(codes::NEEDS_WORKTREE, place, format!("step `{}` writes, so that it needs a worktree of its own", id.value));
        findings.report(error.help("leave `workspace` out, or write `workspace: worktree`"));
    }
    let says = !workspace.setup.is_empty() || !workspace.copy.is_empty() || !workspace.link.is_empty() || !workspace.sparse.is_empty();
    if workspace.kind == WorkspaceKind::None && (says || workspace.base != Base::Head) {
        let error = findings.error(codes::NOT_OF_THIS_VERB, place, format!("step `{}` works nowhere, so that nothing can be prepared there", id.value));
        findings.report(error.help("give it `kind: worktree` or `kind: shared`"));
    }
    if let (Some(verify), false) = (&step.verify, resolved.writes || !resolved.sure) {
        let place = verify.run.first().map_or(id.span, |command| command.span);
        let error = findings.error(codes::VERIFY_READER, place, format!("step `{}` writes nothing that could be verified", id.value));
        findings.report(error.help("a step writes if its agent has `access: write`, or its command a `scope`"));
    }
    if let (Some(attempts), Verb::Run { .. }) = (step.verify.as_ref().and_then(|verify| verify.attempts.as_ref()), &step.verb) {
        let error = findings.error(codes::NOT_OF_THIS_VERB, attempts.span, "a command cannot mend its work: it is checked once");
        findings.report(error.help("take `attempts` out, or add `retry: { max: 2, on: [any] }`, which runs the command again"));
    }
}

/// The end of a wait means something, and a wait that has a meaning for its end has one.
fn waiting(approve: &Approve, findings: &mut Findings<'_>) {
    match (&approve.timeout, &approve.on_timeout) {
        (Some(timeout), None) => {
            let error = findings.error(codes::ON_TIMEOUT, timeout.span, "nothing says what the end of this time means");
            findings.report(error.help("add `on_timeout: reject` or `on_timeout: approve`"));
        }
        (None, Some(on_timeout)) => {
            let error = findings.error(codes::ON_TIMEOUT, on_timeout.span, "`on_timeout` says nothing without a `timeout`");
            findings.report(error.help("add `timeout: 24h`, say, or take `on_timeout` out"));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Checks the globs that are written out.
fn patterns(step: &Step, findings: &mut Findings<'_>) {
    let workspace = step.workspace.as_deref();
    let scope = step.scope.iter().flat_map(|scope| if let Scope::Globs(globs) = &scope.value { globs.as_slice() } else { &[] });
    let prepared = workspace.into_iter().flat_map(|workspace| workspace.copy.iter().chain(&workspace.link).chain(&workspace.sparse));
    let cached = step.cache.iter().flat_map(|cache| &cache.inputs);
    for glob in scope.chain(prepared).chain(cached).filter(|glob| !glob.contains("{{")) {
        check_pattern(glob, findings);
    }
}

fn check_pattern(glob: &Spanned<String>, findings: &mut Findings<'_>) {
    if let Some(misread) = misread(glob) {
        let error = findings.error(codes::BAD_GLOB, glob.span, format!("`{}` {}", glob.value, misread.wrong));
        findings.report(error.help(misread.help));
    } else if let Err(error) = GlobBuilder::new(glob).literal_separator(true).build() {
        findings.report(findings.error(codes::BAD_GLOB, glob.span, format!("`{}` is not a pattern: {}", glob.value, error.kind())));
    }
}

/// Checks where an agent or a command begins, as far as it is written out.
pub(super) fn folder(cwd: &Spanned<String>, findings: &mut Findings<'_>) {
    let leads_out = if cwd.starts_with('/') {
        "begins at the top of the machine"
    } else if climbs_out(&outside_of_templates(cwd)) {
        "leads out of a folder"
    } else {
        return;
    };
    let error = findings.error(codes::OUTSIDE, cwd.span, format!("`{}` {leads_out}, and `cwd` is a folder inside the workspace", cwd.value));
    findings.report(error.help("write it from the top of the repository, as in `web/src`"));
}

/// Returns whether a path leads out of the folder that it begins in. What a template puts in its place is a folder of some name.
fn climbs_out(path: &str) -> bool {
    let mut depth = 0_usize;
    !path.split('/').all(|part| match part {
        "" | "." => true,
        ".." => depth.checked_sub(1).map(|up| depth = up).is_some(),
        _ => {
            depth += 1;
            true
        }
    })
}

/// Returns what of a text stands outside of `{{ }}`, with a letter for what stands inside.
fn outside_of_templates(text: &str) -> String {
    let mut rest = text;
    let mut outside = String::new();
    while let Some((before, after)) = rest.split_once("{{") {
        outside.push_str(before);
        outside.push('x');
        rest = after.split_once("}}").map_or("", |(_, rest)| rest);
    }
    outside + rest
}
