//! A stub file: what each step of a workflow is to give when a run is only simulated.
//!
//! Whether its steps are steps of the workflow is for the simulation to say. Everything may be left out: what is not said
//! of an item is said of its step, and what is not said of a step is said by `defaults`.
use super::{
    check,
    fields::Fields,
    keys::{Name, Object, Shape, key, must, word},
    yaml::{self, Node, Yaml},
};
use crate::source::{Diagnostic, Diagnostics, Source, Spanned, codes};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// A whole stub file.
#[derive(Debug, Clone)]
pub struct Stub {
    /// The file.
    pub source: Arc<Source>,
    /// For every step that says nothing else.
    pub defaults: StubbedTime,
    /// By step.
    pub steps: Vec<StubbedStep>,
}

/// A stubbed step.
#[derive(Debug, Clone)]
pub struct StubbedStep {
    /// Its id.
    pub id: Spanned<String>,
    /// What it gives.
    pub gives: StubbedNode,
    /// What single items of it give, by key.
    pub items: Vec<(Spanned<String>, StubbedNode)>,
    /// The steps inside it, where it is a loop or calls a workflow.
    pub steps: Vec<StubbedStep>,
}

/// What a step or an item gives each time it is done.
#[derive(Debug, Clone, Default)]
pub struct StubbedNode {
    /// Whatever time it is.
    pub always: StubbedTime,
    /// The first time, the second, and so on over tries and iterations; the last holds for all further ones.
    pub times: Vec<StubbedTime>,
}

/// What doing something once gives; what is absent is said elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StubbedTime {
    /// How it ends.
    pub status: Option<StubbedStatus>,
    /// Its output.
    pub output: Option<Value>,
    /// Why it fails.
    pub error: Option<String>,
    /// What a command prints.
    pub stdout: Option<String>,
    /// What a command exits with; other than 0 is a failure.
    pub exit_code: Option<i64>,
    /// Dollars.
    pub usd: Option<f64>,
    /// Tokens, in and out.
    pub tokens: Option<u64>,
    /// How long it takes.
    pub duration: Option<Duration>,
}

/// How something stubbed ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubbedStatus {
    /// Well.
    Succeeded,
    /// In failure.
    Failed,
    /// In the failure that `retry` takes for `transient`.
    Unavailable,
    /// In the failure that `retry` takes for `timeout`.
    Timeout,
}

impl StubbedTime {
    /// Says what is said here, and otherwise what `other` says.
    #[must_use]
    pub fn or(&self, other: &StubbedTime) -> StubbedTime {
        StubbedTime {
            status: self.status.or(other.status),
            output: self.output.clone().or_else(|| other.output.clone()),
            error: self.error.clone().or_else(|| other.error.clone()),
            stdout: self.stdout.clone().or_else(|| other.stdout.clone()),
            exit_code: self.exit_code.or(other.exit_code),
            usd: self.usd.or(other.usd),
            tokens: self.tokens.or(other.tokens),
            duration: self.duration.or(other.duration),
        }
    }
}

impl StubbedNode {
    /// Says what the time with this number, from 0, gives.
    pub fn time(&self, number: usize) -> StubbedTime {
        match self.times.get(number).or(self.times.last()) {
            Some(time) => time.or(&self.always),
            None => self.always.clone(),
        }
    }
}

static FILE: Object = Object {
    name: "stub",
    what: "a stub file",
    keys: &[
        key("defaults", Shape::Object(&DEFAULTS), "For every step that says nothing else."),
        key("steps", Shape::Map { names: Name::Step, of: &Shape::Object(&STEP), min: 0 }, "What each step gives."),
    ],
    others: None,
};

const STATUS: Shape = word(&["succeeded", "failed", "unavailable", "timeout"]);
const COUNT: Shape = Shape::Whole { min: 0, max: 1 << 50 };
const EXIT_CODE: Shape = Shape::Whole { min: 0, max: 255 };
const DURATION: Shape = Shape::Duration { zero: true };
const TIMES: Shape = Shape::List { of: &Shape::Object(&TIME), min: 1 };

static DEFAULTS: Object = Object {
    name: "stub_defaults",
    what: "`defaults`",
    keys: &[
        key("usd", Shape::Number, "Dollars an agent costs."),
        key("tokens", COUNT, "Tokens an agent uses."),
        key("duration", DURATION, "How long a step takes."),
    ],
    others: None,
};

static TIME: Object = Object {
    name: "stub_time",
    what: "an entry of `times`",
    keys: &[
        key("status", STATUS, "How it ends."),
        key("output", Shape::Any, "Its output."),
        key("error", Shape::Text, "Why it fails."),
        key("stdout", Shape::Text, "What a command prints."),
        key("exit_code", EXIT_CODE, "What a command exits with."),
        key("usd", Shape::Number, "Dollars."),
        key("tokens", COUNT, "Tokens, in and out."),
        key("duration", DURATION, "How long it takes."),
    ],
    others: None,
};

static STEP: Object = Object {
    name: "stub_step",
    what: "a stubbed step",
    keys: &[
        key("status", STATUS, "How it ends."),
        key("output", Shape::Any, "Its output."),
        key("error", Shape::Text, "Why it fails."),
        key("stdout", Shape::Text, "What a command prints."),
        key("exit_code", EXIT_CODE, "What a command exits with."),
        key("usd", Shape::Number, "Dollars."),
        key("tokens", COUNT, "Tokens, in and out."),
        key("duration", DURATION, "How long it takes."),
        key("times", TIMES, "What the first, second and further times give."),
        key("items", Shape::List { of: &Shape::Object(&ITEM), min: 0 }, "What single items give."),
        key("steps", Shape::Map { names: Name::Step, of: &Shape::Object(&STEP), min: 0 }, "The steps of a loop's body or of a called workflow."),
    ],
    others: None,
};

static ITEM: Object = Object {
    name: "stub_item",
    what: "a stubbed item",
    keys: &[
        must("key", Shape::Text, "The item's key."),
        key("status", STATUS, "How it ends."),
        key("output", Shape::Any, "Its output."),
        key("error", Shape::Text, "Why it fails."),
        key("stdout", Shape::Text, "What a command prints."),
        key("exit_code", EXIT_CODE, "What a command exits with."),
        key("usd", Shape::Number, "Dollars."),
        key("tokens", COUNT, "Tokens, in and out."),
        key("duration", DURATION, "How long it takes."),
        key("times", TIMES, "What the first, second and further times give."),
    ],
    others: None,
};

impl Stub {
    /// Says nothing of any step.
    pub fn empty() -> Stub {
        Stub { source: Arc::new(Source { name: "<nothing>".to_owned(), text: String::new() }), defaults: StubbedTime::default(), steps: Vec::new() }
    }

    /// Reads a stub file, or tells everything that is wrong with its form.
    ///
    /// # Errors
    /// All errors of the file, in its order.
    pub fn load(source: &Arc<Source>) -> Result<Stub, Diagnostics> {
        let root = yaml::parse(source).map_err(|error| Diagnostics(vec![*error]))?;
        if !matches!(root.value, Yaml::Map(_)) {
            let wrong = Diagnostic::error(codes::WRONG_TYPE, source, root.span, format!("a stub file is a map, but the file holds {}", root.value.kind()));
            return Err(Diagnostics(vec![wrong.help("begin with `steps:` and the id of a step below it")]));
        }
        let mut found = check::check(source, &root, &FILE);
        let file = Fields::new(source, &root, &FILE);
        let defaults = file.object("defaults", &DEFAULTS).map(|fields| cost(&fields, &mut found)).unwrap_or_default();
        let steps = steps(&file, &mut found);
        if found.is_empty() { Ok(Stub { source: source.clone(), defaults, steps }) } else { Err(check::in_order(found)) }
    }
}

fn steps(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Vec<StubbedStep> {
    fields.map("steps").map(|(id, node)| step(fields.source, id, node, found)).collect()
}

fn step(source: &Arc<Source>, id: &Spanned<String>, node: &Node, found: &mut Vec<Diagnostic>) -> StubbedStep {
    let fields = Fields::new(source, node, &STEP);
    let items = fields.list("items").filter_map(|node| {
        let item = Fields::new(source, node, &ITEM);
        let (key, gives) = (item.text("key"), stubbed(&item, found));
        Some((key?, gives))
    });
    let items = items.collect();
    StubbedStep { id: id.clone(), gives: stubbed(&fields, found), items, steps: steps(&fields, found) }
}

fn stubbed(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> StubbedNode {
    let always = time(fields, found);
    StubbedNode { always, times: fields.list("times").map(|node| time(&Fields::new(fields.source, node, &TIME), found)).collect() }
}

fn time(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> StubbedTime {
    const STATUS: [(&str, StubbedStatus); 4] = [
        ("succeeded", StubbedStatus::Succeeded),
        ("failed", StubbedStatus::Failed),
        ("unavailable", StubbedStatus::Unavailable),
        ("timeout", StubbedStatus::Timeout),
    ];
    StubbedTime {
        status: fields.word("status", &STATUS).map(|word| word.value),
        output: fields.node("output").map(|node| node.value.to_json()),
        error: fields.string("error"),
        stdout: fields.string("stdout"),
        exit_code: fields.whole::<u32>("exit_code").map(|code| code.value.into()),
        ..cost(fields, found)
    }
}

fn cost(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> StubbedTime {
    let usd = fields.number("usd");
    if let Some(below) = usd.as_ref().filter(|usd| usd.value < 0.0) {
        found.push(Diagnostic::error(codes::OUT_OF_RANGE, fields.source, below.span, "`usd` must not be below 0"));
    }
    StubbedTime {
        usd: usd.map(|usd| usd.value),
        tokens: fields.whole("tokens").map(|tokens| tokens.value),
        duration: fields.duration("duration").map(|duration| duration.value),
        ..StubbedTime::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Stub, Diagnostics> {
        Stub::load(&Arc::new(Source { name: "stub.yaml".to_owned(), text: text.to_owned() }))
    }

    #[test]
    fn what_is_nearer_is_said_and_the_rest_comes_from_around_it() {
        let text = "defaults: { duration: 1m, usd: 0.1, tokens: 10 }\nsteps:\n  a:\n    duration: 5s\n    exit_code: 0\n    times: [{ exit_code: 1 }, { status: succeeded }]\n    items: [{ key: x, status: failed, error: oh, stdout: s, output: [1] }]\n    steps: { b: { usd: 0 } }\n";
        let stub = load(text).unwrap_or_else(|errors| panic!("{errors}"));
        let [step] = stub.steps.as_slice() else { panic!("{stub:?}") };
        let times: Vec<StubbedTime> = (0..3).map(|number| step.gives.time(number).or(&stub.defaults)).collect();
        assert_eq!((times[0].exit_code, times[0].duration, times[0].usd), (Some(1), Some(Duration::from_secs(5)), Some(0.1)));
        assert_eq!((times[1].exit_code, times[1].status), (Some(0), Some(StubbedStatus::Succeeded)));
        assert_eq!(times[1], times[2]);
        assert_eq!((step.items[0].0.as_str(), step.items[0].1.time(7).status), ("x", Some(StubbedStatus::Failed)));
        assert_eq!((step.steps[0].id.as_str(), step.steps[0].gives.time(0).usd), ("b", Some(0.0)));
    }

    #[test]
    fn every_error_is_told_with_its_place() {
        let text = "defaults: { usd: -1 }\nsteps:\n  a: { stauts: failed, duration: soon, items: [{ status: maybe }] }\n";
        let errors = load(text).expect_err("it is wrong");
        let told: Vec<(&str, &str)> = errors.0.iter().map(|error| (error.code, &error.source.text[error.labels[0].span.range()])).collect();
        assert_eq!(
            told,
            [
                (codes::OUT_OF_RANGE, "-1"),
                (codes::UNKNOWN_KEY, "stauts"),
                (codes::BAD_DURATION, "soon"),
                (codes::MISSING_KEY, "{"),
                (codes::UNKNOWN_WORD, "maybe"),
            ]
        );
        assert!(load("- a\n").expect_err("it is a list").0[0].help.as_ref().is_some_and(|help| help.contains("steps:")));
    }
}
