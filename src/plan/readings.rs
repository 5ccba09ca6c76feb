//! Every template of a workflow: whether it parses, and whether what it reads is there when it is read.
use super::{
    findings::Findings,
    frames::{Around, At, MAIN, unknown_step},
    shapes::{Shape, Shapes},
};
use crate::{
    prompts::{self, Command, Examined, Gives, Kind, Reading, TemplateError},
    source::{Diagnostic, Source, Span, Spanned, codes},
    workflow::{Base, Entries, Scope, Step, Verb},
};
use doubts::{Doubts, Looks};
use serde_json::Value;
use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
    ops::Range,
    rc::Rc,
    sync::Arc,
};
use waits::Wait;
use wrong::told;

mod absent;
mod bound;
mod doubts;
mod waits;
mod wrong;

/// Names that are always in scope, so that no item may take them.
const RESERVED: [&str; 7] = ["inputs", "env", "steps", "run", "matrix", "loop", "secrets"];
/// What `run.…` holds.
const RUN: [&str; 5] = ["id", "branch", "head", "base", "failure"];
/// What `loop.…` holds.
const LOOP: [&str; 1] = ["iteration"];

/// Reads templates, and keeps what it finds.
pub(super) struct Reader<'a> {
    shapes: Shapes<'a>,
    found: Findings<'a>,
    /// Reads to be judged by the order of the steps, frame by frame.
    waits: Vec<Vec<Wait>>,
    /// What the items of a step are taken from, as far as it has been asked for.
    items: HashMap<At, Gives>,
    /// What conditions look at that hold where templates are read: of a step, and of the loops around it.
    held: Vec<Rc<Looks>>,
    /// What the condition of a step looks at, as far as it has been asked for.
    looks: HashMap<At, Rc<Looks>>,
    /// What may be null, unless the order of the steps says otherwise.
    doubts: Vec<Doubts>,
    /// Because of which step each of a frame may be skipped, as far as it has been asked for.
    skips: HashMap<usize, Rc<Vec<Option<usize>>>>,
    /// Names of the workflow's environment whose value holds a secret.
    secret: BTreeSet<&'a str>,
}

/// The text of a step that was looked up, and the file it comes from where it has one of its own.
#[derive(Clone, Copy, Default)]
pub(super) struct Prompt<'p> {
    pub(super) text: Option<&'p str>,
    pub(super) file: Option<&'p Arc<Source>>,
}

/// Where a template stands: in a scalar of the workflow file, or in a file of its own.
#[derive(Clone, Copy)]
enum Place<'a> {
    Scalar(Span),
    File(&'a Arc<Source>),
}

/// How a template is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Text,
    Shell,
    /// One whole expression.
    Value,
    Condition,
}

/// What a template may read.
#[derive(Clone, Copy)]
struct Sight {
    frame: usize,
    /// The step it belongs to, or whose end has come.
    step: Option<usize>,
    /// Whether it belongs to one item of the step.
    inside: bool,
    /// Whether steps and the environment are there; not for the workflow's own `env`.
    steps: bool,
    /// Whether it is a value of the environment, where secrets may go.
    secrets: bool,
    /// Whether there is nothing else: what a server is given.
    nothing_else: bool,
}

impl<'a> Reader<'a> {
    /// Makes a reader that has found nothing yet.
    pub(super) fn new(shapes: Shapes<'a>) -> Reader<'a> {
        let secret = secret_names(&shapes.workflow.env);
        let waits = shapes.frames.all.iter().map(|_| Vec::new()).collect();
        let found = Findings::new(shapes.workflow);
        Reader { shapes, found, waits, items: HashMap::new(), held: Vec::new(), looks: HashMap::new(), doubts: Vec::new(), skips: HashMap::new(), secret }
    }

    /// Checks the templates that belong to no step.
    pub(super) fn file(&mut self) {
        let workflow = self.shapes.workflow;
        let bare = Sight { frame: MAIN, step: None, inside: false, steps: false, secrets: false, nothing_else: false };
        for (_, text) in &workflow.env {
            self.template(text, Use::Text, Sight { secrets: true, ..bare });
        }
        for (_, text) in workflow.written_servers().flat_map(|(_, _, server)| server.given()) {
            self.template(text, Use::Text, Sight { secrets: true, nothing_else: true, ..bare });
        }
        for (_, agent) in &workflow.agents {
            agent.cwd.iter().for_each(|cwd| self.template(cwd, Use::Text, bare));
        }
        for (_, text) in &workflow.outputs {
            self.template(text, Use::Text, Sight { steps: true, ..bare });
        }
    }

    /// Checks the templates of a step; `prompt` is what its agent or its judge is told.
    pub(super) fn step(&mut self, at: At, prompt: Prompt<'_>) {
        let step = self.shapes.frames.step(at);
        let outside = Sight { frame: at.frame, step: Some(at.step), inside: false, steps: true, secrets: false, nothing_else: false };
        let inside = Sight { inside: true, ..outside };
        self.held = self.shapes.frames.loops(at.frame).map(|at| self.looks_at(at)).collect();
        if let Some(condition) = &step.condition {
            self.template(condition, Use::Condition, outside);
        }
        let own = self.looks_at(at);
        self.held.push(own);
        self.for_each(step, outside, inside);
        if let Some(matrix) = &step.matrix {
            for (axis, values) in &matrix.axes {
                self.values(values, outside);
                self.must_give_list(&format!("matrix.{}", axis.value), values, outside);
            }
            matrix.max_parallel.iter().for_each(|max| self.most(max, outside));
            matrix.exclude.iter().for_each(|excluded| self.texts(&excluded.value, excluded.span, outside));
        }
        self.verb(at, prompt, inside);
        self.surroundings(step, inside);
    }

    fn verb(&mut self, at: At, prompt: Prompt<'_>, inside: Sight) {
        let step = self.shapes.frames.step(at);
        let told = |reader: &mut Self, span: Span| {
            if let Some(text) = prompt.text {
                reader.read(text, prompt.file.map_or(Place::Scalar(span), Place::File), Use::Text, inside);
            }
        };
        match &step.verb {
            Verb::Agent { prompt: written, .. } => {
                told(self, written.span);
                step.model.iter().chain(&step.skills).for_each(|name| self.template(name, Use::Text, inside));
            }
            Verb::Run { command } => self.template(command, Use::Shell, inside),
            Verb::Merge(merge) => {
                merge.verify.iter().for_each(|command| self.template(command, Use::Shell, inside));
                self.sources(at, &merge.from);
            }
            Verb::Select(select) => {
                select.gates.iter().for_each(|command| self.template(command, Use::Shell, inside));
                self.sources(at, &select.from);
                if let Some(rubric) = select.judge.as_ref().and_then(|judge| judge.rubric.as_ref()) {
                    told(self, rubric.span);
                }
            }
            Verb::Approve(approve) => self.template(&approve.message, Use::Text, inside),
            Verb::Workflow { with, .. } => with.iter().for_each(|(_, value)| self.texts(&value.value, value.span, inside)),
            Verb::Loop(spec) => {
                if let Some(body) = self.shapes.frames.body(at) {
                    self.template(&spec.until, Use::Condition, Sight { frame: body, step: None, ..inside });
                }
            }
        }
    }

    /// Checks what stands beside the verb and belongs to one item.
    fn surroundings(&mut self, step: &Step, inside: Sight) {
        let workspace = step.workspace.as_deref();
        let commands = step.verify.iter().flat_map(|verify| &verify.run).chain(workspace.iter().flat_map(|workspace| &workspace.setup));
        commands.for_each(|command| self.template(command, Use::Shell, inside));
        let globs = workspace.iter().flat_map(|workspace| workspace.copy.iter().chain(&workspace.link).chain(&workspace.sparse));
        let base = workspace.iter().filter_map(|workspace| if let Base::Ref(name) = &workspace.base { Some(name) } else { None });
        let cache = step.cache.iter().flat_map(|cache| cache.key.iter().chain(&cache.inputs));
        let file = step.output.iter().filter_map(|output| output.file.as_ref());
        globs.chain(base).chain(cache).chain(file).chain(&step.cwd).for_each(|text| self.template(text, Use::Text, inside));
        let env = step.env.iter().chain(workspace.iter().flat_map(|workspace| &workspace.env));
        env.for_each(|(_, value)| self.template(value, Use::Text, Sight { secrets: true, ..inside }));
        match &step.scope {
            Some(Spanned { value: Scope::Globs(globs), .. }) => globs.iter().for_each(|glob| self.template(glob, Use::Text, inside)),
            Some(Spanned { value: Scope::Template(text), span }) => self.read(text, Place::Scalar(*span), Use::Value, inside),
            None => {}
        }
    }

    fn for_each(&mut self, step: &Step, outside: Sight, inside: Sight) {
        let Some(for_each) = &step.for_each else { return };
        if RESERVED.contains(&for_each.name.as_str()) {
            let error = self.found.error(codes::RESERVED, for_each.name.span, format!("`{}` is a name of the language", for_each.name.value));
            self.found.report(error.help("give the item another name by `as`"));
        }
        self.values(&for_each.items, outside);
        self.must_give_list("for_each.items", &for_each.items, outside);
        for_each.max_parallel.iter().for_each(|max| self.most(max, outside));
        if let Some(key) = &for_each.key {
            self.template(key, Use::Text, inside);
        }
        if let Some(needs) = &for_each.needs {
            self.template(needs, Use::Value, inside);
        }
    }

    /// Checks how many may be at work at the same time.
    fn most(&mut self, max: &Spanned<Value>, sight: Sight) {
        self.values(max, sight);
        self.must_count("max_parallel", max, sight);
    }

    /// Checks a literal, or the expression that gives one.
    fn values(&mut self, values: &Spanned<Value>, sight: Sight) {
        match &values.value {
            // What is neither a list nor an expression has been told where it must be one of these.
            Value::String(text) if !text.contains("{{") && self.is_flawed(sight) => {}
            Value::String(text) => self.read(text, Place::Scalar(values.span), Use::Value, sight),
            Value::Array(items) if items.iter().any(|item| item.as_str().is_some_and(|text| text.contains("{{"))) => {
                let error = self.found.error(codes::NOT_AN_EXPRESSION, values.span, "the entries of a list of items are not templates");
                self.found.report(error.help("write the whole list as one expression: `\"{{ [a, b] }}\"`"));
            }
            _ => {}
        }
    }

    /// Checks every text in a value.
    fn texts(&mut self, value: &Value, span: Span, sight: Sight) {
        match value {
            Value::String(text) => self.read(text, Place::Scalar(span), Use::Text, sight),
            Value::Array(values) => values.iter().for_each(|value| self.texts(value, span, sight)),
            Value::Object(fields) => fields.values().for_each(|value| self.texts(value, span, sight)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A merge or a choice waits for what it takes in.
    fn sources(&mut self, at: At, from: &[Spanned<String>]) {
        let frame = &self.shapes.frames.all[at.frame];
        for name in from {
            match frame.index.get(name.as_str()) {
                Some(&step) => self.wait(at, At { frame: at.frame, step }, at, &Spot { source: self.found.source.clone(), span: name.span }),
                None => unknown_step(name, frame, &mut self.found),
            }
        }
    }

    fn template(&mut self, text: &Spanned<String>, used: Use, sight: Sight) {
        self.read(text, Place::Scalar(text.span), used, sight);
    }

    fn read(&mut self, text: &str, place: Place<'_>, used: Use, sight: Sight) {
        let file = self.found.source.clone();
        let locator = OnceCell::new();
        let locate = |part: Range<usize>| match place {
            Place::Scalar(span) => (file.clone(), locator.get_or_init(|| file.locator(span, text)).locate(&part)),
            Place::File(source) => (source.clone(), Span { start: part.start, end: part.end }),
        };
        let (examined, errors) = examine(text, used);
        if let (Use::Condition, Some((gives, part)), true) = (used, &examined.gives, errors.is_empty())
            && let Some(kind) = self.kind(gives, sight).filter(|kind| *kind != Kind::Flag)
        {
            let (source, span) = locate(part.clone());
            let message = format!("a condition must give true or false, this gives {}", kind.words());
            let error = Diagnostic::error(codes::NOT_AN_EXPRESSION, &source, span, message);
            self.found.report(error.help("compare it: `x == 0`, `x != \"\"`, `x | length > 0`, `x is defined`"));
        } else if let (Use::Condition, Some((_, part)), true) = (used, &examined.gives, errors.is_empty()) {
            let (source, span) = locate(part.clone());
            self.not_null(&examined, "null is neither true nor false", &Spot { source, span }, sight);
        }
        for reading in examined.readings {
            let (source, span) = locate(reading.span.clone());
            let spot = Spot { source, span };
            self.reading(&reading, &spot, sight);
            if sight.secrets && !stands_alone(text, &reading.span) {
                self.changed_secret(&reading, &spot);
            }
        }
        for (code, error) in errors {
            if self.found.leaves() {
                break;
            }
            let (source, span) = locate(error.span.clone());
            let told = Diagnostic::error(code, &source, span, error.message);
            let told = error.help.into_iter().fold(told, Diagnostic::help);
            let exact = source.text.get(span.range()) == text.get(error.span.clone());
            let quoted = code == codes::UNQUOTED && exact && error.sh_holds && is_path(&text[error.span.clone()]);
            self.found.report(if quoted { told.fix(Span { start: span.end, end: span.end }, " | sh") } else { told });
        }
    }

    fn reading(&mut self, reading: &Reading, spot: &Spot, sight: Sight) {
        if self.found.leaves() {
            return;
        }
        self.absent(reading, spot, sight);
        if !reading.is_own() {
            return self.bound_reading(reading, spot, sight);
        }
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [name, ..] if sight.nothing_else && *name != "secrets" => {
                let error = spot.error(codes::UNKNOWN_NAME, format!("a server is given nothing that `{name}` says: the same server serves every step"));
                self.found.report(error.help("only `secrets.NAME` is read here"));
            }
            ["inputs", name, rest @ ..] => self.input_reading(name, rest, reading.optional, spot),
            ["run", name, ..] if !RUN.contains(name) => self.found.report(spot.unknown_part("`run`", name, RUN.into_iter())),
            ["inputs" | "run", ..] | [] => {}
            ["secrets", name, ..] => self.secret_reading(name, spot, sight),
            ["env", name, ..] if sight.steps => self.env_reading(name, reading.optional, spot, sight),
            ["env", ..] if sight.steps => {}
            ["steps", id, rest @ ..] if sight.steps => self.step_reading(id, rest, reading.optional, &Reads { spot, sight }),
            ["steps"] if sight.steps => {
                let error = spot.error(codes::UNKNOWN_FIELD, "`steps` as a whole cannot be read".to_owned());
                self.found.report(error.help("name the step: `steps.ID.output`"));
            }
            ["loop", rest @ ..] if self.in_loop(sight) => {
                if let Some(name) = rest.first().filter(|name| !LOOP.contains(name)) {
                    self.found.report(spot.unknown_part("`loop`", name, LOOP.into_iter()));
                }
            }
            ["matrix", rest @ ..] if self.matrix(sight).is_some() => self.matrix_reading(rest, reading.optional, &Reads { spot, sight }),
            [name, ..] => match self.item(sight, name) {
                Some(_) => {
                    if let (Err(wrong), false) = (self.find(&path, sight), reading.optional) {
                        let part = path[wrong.part];
                        let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("the items have no field `{part}`"));
                        self.found.report(told(error, part, &wrong, "their schema is a part of"));
                    }
                }
                None => self.unknown_name(name, spot, sight),
            },
        }
    }

    /// Returns whether something of the step, or of a loop around it, could not be read.
    fn is_flawed(&self, sight: Sight) -> bool {
        let own = sight.step.map(|step| At { frame: sight.frame, step });
        let mut around = own.into_iter().chain(self.shapes.frames.loops(sight.frame));
        around.any(|at| self.found.flaws.of_step(&self.shapes.frames.step(at).id))
    }

    fn unknown_name(&mut self, name: &str, spot: &Spot, sight: Sight) {
        // It may be what an item or an axis is called of which that could not be read.
        if self.is_flawed(sight) {
            return;
        }
        let mut known: Vec<&str> = if sight.steps { vec!["inputs", "env", "steps", "run"] } else { vec!["inputs", "run"] };
        known.extend(self.in_loop(sight).then_some("loop"));
        known.extend(self.matrix(sight).map(|_| "matrix"));
        known.extend(self.carriers(sight).filter_map(|at| Some(self.shapes.frames.step(at).for_each.as_ref()?.name.as_str())));
        let error = spot.error(codes::UNKNOWN_NAME, format!("nothing here is called `{name}`"));
        self.found.report(match name {
            _ if self.shapes.workflow.inputs.iter().any(|(input, _)| input.value == *name) => error.meant(name, &format!("inputs.{name}")),
            _ if sight.steps && self.shapes.frames.find(sight.frame, sight.step, name).is_some() => error.meant(name, &format!("steps.{name}")),
            "loop" => error.help("only the steps of a `loop` have an iteration"),
            "matrix" => error.help("only what belongs to one combination of a `matrix` has its values"),
            _ => error.suggest(name, known.into_iter(), "names"),
        });
    }

    fn input_reading(&mut self, name: &str, rest: &[&str], optional: bool, spot: &Spot) {
        let known = self.shapes.workflow.inputs.iter().map(|(name, _)| name.as_str());
        if !known.clone().any(|input| input == name) {
            if self.found.flaws.of("inputs") {
                return;
            }
            let error = spot.error(codes::UNKNOWN_INPUT, format!("there is no input `{name}`")).help("declare it under `inputs`");
            self.found.report(error.suggest(name, known, "inputs"));
        } else if let Err(wrong) = self.shapes.walk(self.shapes.input(name), rest)
            && !optional
        {
            let error = spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("the input `{name}` has no field `{}`", rest[wrong.part]));
            self.found.report(told(error, rest[wrong.part], &wrong, "declared as"));
        }
    }

    fn env_reading(&mut self, name: &str, optional: bool, spot: &Spot, sight: Sight) {
        let own = sight.step.map(|step| &self.shapes.frames.all[sight.frame].steps[step].env);
        let known: BTreeSet<&str> = own.into_iter().chain([&self.shapes.workflow.env]).flatten().map(|(name, _)| name.as_str()).collect();
        let is_read = !self.found.flaws.within("env") && !self.is_flawed(sight);
        if !known.contains(name) && !optional && is_read {
            self.found.report(spot.unknown_part("`env`", name, known.iter().copied()));
        }
        if !sight.secrets && (self.secret.contains(name) || own.is_some_and(|own| secret_names(own).contains(name))) {
            let error = spot.error(codes::SECRET, format!("`env.{name}` holds a secret, and its value would be seen here"));
            self.found.report(error.help(format!("a command reads it from its environment: `\"${name}\"`")));
        }
    }

    /// Says of a secret that an expression takes apart or writes otherwise that nobody would know it again.
    fn changed_secret(&mut self, reading: &Reading, spot: &Spot) {
        let path: Vec<&str> = reading.path.iter().map(String::as_str).collect();
        let ["secrets" | "env", name] = path[..] else { return };
        if path[0] == "secrets" || self.secret.contains(name) {
            let read = path.join(".");
            let error = spot.error(codes::SECRET, format!("what this makes of `{read}` would be seen wherever it appears: only the value as it is is known"));
            self.found.report(error.help(format!("write `{{{{ {read} }}}}`, with any text around it, and let the command make of it what it needs")));
        }
    }

    fn secret_reading(&mut self, name: &str, spot: &Spot, sight: Sight) {
        let known = self.shapes.workflow.secrets.iter().map(|name| name.as_str());
        if !known.clone().any(|secret| secret == name) && !self.found.flaws.of("secrets") {
            let error = spot.error(codes::SECRET, format!("there is no secret `{name}`"));
            self.found.report(match crate::source::nearest(name, known) {
                Some(near) => error.meant(name, near),
                None => error.help(format!("declare it: `secrets: [{name}]`")),
            });
        }
        if !sight.secrets {
            let error = spot.error(codes::SECRET, format!("the value of `secrets.{name}` would be seen here"));
            self.found.report(error.help(format!("give it to the processes of a step by `env: {{ {name}: \"{{{{ secrets.{name} }}}}\" }}`")));
        }
    }

    /// Returns the steps whose items or combinations a template belongs to, from the inside out.
    fn carriers(&self, sight: Sight) -> impl Iterator<Item = At> {
        let own = sight.step.filter(|_| sight.inside).map(|step| At { frame: sight.frame, step });
        own.into_iter().chain(self.shapes.frames.loops(sight.frame))
    }

    /// Returns the step that has an item of this name.
    fn item(&self, sight: Sight, name: &str) -> Option<At> {
        self.carriers(sight).find(|&at| self.shapes.frames.step(at).for_each.as_ref().is_some_and(|for_each| for_each.name.value == name))
    }

    /// Returns the nearest step that has a matrix.
    fn matrix(&self, sight: Sight) -> Option<At> {
        self.carriers(sight).find(|&at| self.shapes.frames.step(at).matrix.is_some())
    }

    fn in_loop(&self, sight: Sight) -> bool {
        matches!(self.shapes.frames.all[sight.frame].around, Around::Loop(_))
    }

    fn matrix_reading(&mut self, path: &[&str], optional: bool, reads: &Reads<'_>) {
        let (Some(at), Some((axis, rest))) = (self.matrix(reads.sight), path.split_first()) else { return };
        let axes = self.shapes.frames.step(at).matrix.as_ref().map(|matrix| &matrix.axes);
        let Some((_, values)) = axes.and_then(|axes| axes.iter().find(|(name, _)| name.value == *axis)) else {
            let known: Vec<&str> = axes.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            self.found.report(reads.spot.unknown_part("`matrix`", axis, known.into_iter()));
            return;
        };
        if let Err(wrong) = self.entry(values, at, rest)
            && !optional
        {
            let error = reads.spot.error(codes::UNKNOWN_OUTPUT_FIELD, format!("the values of `matrix.{axis}` have no field `{}`", rest[wrong.part]));
            self.found.report(told(error, rest[wrong.part], &wrong, "their schema is a part of"));
        }
    }

    fn step_reading(&mut self, id: &str, path: &[&str], optional: bool, reads: &Reads<'_>) {
        let Sight { frame, step, .. } = reads.sight;
        let frames = self.shapes.frames;
        let Some((target, waiter)) = frames.find(frame, step, id) else {
            if ["steps", "on_failure", "finally"].iter().any(|key| self.found.flaws.of(key)) {
                return;
            }
            let error = reads.spot.error(codes::READ_UNKNOWN_STEP, format!("there is no step `{id}`"));
            self.found.report(error.suggest(id, frames.visible(frame).into_iter(), "steps"));
            return;
        };
        if let Some(waiter) = waiter {
            if waiter == target {
                let (message, help) = if Some(target.step) == step && target.frame == frame {
                    (format!("`{id}` reads its own end"), "a step has no output before it has ended")
                } else {
                    (format!("`{id}` has not ended where its own steps run"), "its steps read each other: `steps.ID` of the same `steps`")
                };
                self.found.report(reads.spot.error(codes::NOT_WAITED_FOR, message).help(help));
                return;
            }
            let by = step.map_or(waiter, |step| At { frame, step });
            self.wait(waiter, target, by, reads.spot);
        }
        if let Err(wrong) = self.shapes.walk(Shape::Step(target), path)
            && (!optional || matches!(wrong.whole, Shape::Step(_)))
        {
            self.found.report(self.step_error(id, path, &wrong, reads.spot));
        }
    }
}

/// Returns the names whose templates read a secret.
fn secret_names(env: &Entries<Spanned<String>>) -> BTreeSet<&str> {
    let reads = |text: &str| prompts::check(text).unwrap_or_default().iter().any(|reading| reading.path.first().is_some_and(|root| root == "secrets"));
    env.iter().filter(|(_, text)| text.contains("secrets") && reads(text)).map(|(name, _)| name.as_str()).collect()
}

/// The place of one reading.
struct Spot {
    source: Arc<Source>,
    span: Span,
}

struct Reads<'a> {
    spot: &'a Spot,
    sight: Sight,
}

impl Spot {
    fn error(&self, code: &'static str, message: String) -> Diagnostic {
        Diagnostic::error(code, &self.source, self.span, message)
    }

    fn unknown_part<'n>(&self, whole: &str, part: &str, known: impl Iterator<Item = &'n str> + Clone) -> Diagnostic {
        self.error(codes::UNKNOWN_FIELD, format!("{whole} has no `{part}`")).suggest(part, known, "parts")
    }
}

/// Returns whether an expression reads one value and does nothing with it.
fn is_path(expression: &str) -> bool {
    expression.trim().chars().all(|c| c.is_alphanumeric() || "_.-".contains(c))
}

/// Looks at one template as it is used: what is to be said of all of it, and what is wrong, each with its code.
fn examine(text: &str, used: Use) -> (Examined, Vec<(&'static str, TemplateError)>) {
    let told = |code: &'static str, errors: Vec<TemplateError>| errors.into_iter().map(move |error| (code, error));
    let parted = |mut examined: Examined| {
        let errors = told(codes::TEMPLATE, std::mem::take(&mut examined.errors)).collect::<Vec<_>>();
        (examined, errors)
    };
    match used {
        Use::Text => parted(prompts::examine(text)),
        Use::Condition => parted(prompts::examine_condition(text)),
        Use::Shell => {
            let Command { examined, unquoted, comments } = prompts::examine_shell(text);
            let (examined, mut errors) = parted(examined);
            errors.extend(told(codes::UNQUOTED, unquoted).chain(told(codes::TEMPLATE, comments)));
            (examined, errors)
        }
        Use::Value => {
            let (examined, mut errors) = parted(prompts::examine(text));
            if errors.is_empty() && examined.gives.is_none() {
                let help = "write `\"{{ expression }}\"` and nothing around it: then its value keeps its type".to_owned();
                errors.push((codes::NOT_AN_EXPRESSION, TemplateError::new("this must be one whole expression", 0..text.len(), Some(help))));
            }
            (examined, errors)
        }
    }
}

/// Returns whether what stands at a place of a template is a whole expression.
fn stands_alone(text: &str, place: &Range<usize>) -> bool {
    let (before, after) = (text[..place.start].trim_end(), text[place.end..].trim_start());
    (before.ends_with("{{") || before.ends_with("{{-")) && (after.starts_with("}}") || after.starts_with("-}}"))
}
