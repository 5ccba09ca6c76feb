//! A stub file: what each step of a workflow is to give when a run is only simulated.
//!
//! Whether its steps are steps of the workflow, and whether what is said of them means something for their kind, is for the
//! simulation to say. Everything may be left out: what is not said of an item is said of its step, and what is not said of
//! a step is said by `defaults`. What is nearer says how a step ends as a whole: of a `times` entry that succeeds, no error
//! and no exit code said of the step around it is left.
use super::{
    check,
    fields::Fields,
    keys::{Key, Name, Object, Shape, key, must, word},
    words::Word as _,
    yaml::{self, Node, Yaml},
};
use crate::source::{Diagnostic, Diagnostics, Found, Source, Spanned, codes};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// A whole stub file.
#[derive(Debug, Clone)]
pub struct Stub {
    /// The file.
    pub source: Arc<Source>,
    /// For every step that says nothing else.
    pub defaults: StubbedTime,
    /// By step; what ends the workflow stands as steps `on_failure` and `finally`.
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
    /// The steps inside it, where it is a loop or calls a workflow; what ends that workflow stands as steps `on_failure`
    /// and `finally`.
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
    /// The keys by which it is said, and where they stand.
    pub keys: Vec<Spanned<&'static str>>,
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
        let well = self.ends_well();
        // How it ends, and what it prints, is said in one place or in the other.
        let (may_fail, may_succeed) = (well != Some(true), well != Some(false));
        let prints = self.output.is_none() && self.stdout.is_none();
        StubbedTime {
            status: self.status.or(other.status.filter(|status| if *status == StubbedStatus::Succeeded { may_succeed } else { may_fail })),
            error: self.error.clone().or_else(|| other.error.clone().filter(|_| may_fail)),
            exit_code: self.exit_code.or(other.exit_code.filter(|code| if *code == 0 { may_succeed } else { may_fail })),
            output: self.output.clone().or_else(|| other.output.clone().filter(|_| prints)),
            stdout: self.stdout.clone().or_else(|| other.stdout.clone().filter(|_| prints)),
            usd: self.usd.or(other.usd),
            tokens: self.tokens.or(other.tokens),
            duration: self.duration.or(other.duration),
            keys: self.keys.clone(),
        }
    }

    /// Returns whether nothing is said of how it ends and what it gives.
    pub fn is_silent(&self) -> bool {
        self.status.is_none() && self.output.is_none() && self.error.is_none() && self.stdout.is_none() && self.exit_code.is_none()
    }

    /// Returns whether it ends well, where that is said.
    pub fn ends_well(&self) -> Option<bool> {
        let of_status = self.status.map(|status| status == StubbedStatus::Succeeded);
        of_status.or(self.exit_code.map(|code| code == 0)).or(self.error.as_ref().map(|_| false))
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

/// The ids of the steps that hold what runs after a failure, and at the end.
const ENDINGS: [&str; 2] = ["on_failure", "finally"];

const STATUS: Key = key("status", word(StubbedStatus::WORDS), "How it ends.");
const OUTPUT: Key = key("output", Shape::Any, "Its output.");
const ERROR: Key = key("error", Shape::Text, "Why it fails.");
const STDOUT: Key = key("stdout", Shape::Text, "What a command prints.");
const EXIT_CODE: Key = key("exit_code", Shape::Whole { min: 0, max: 255 }, "What a command exits with.");
const USD: Key = key("usd", Shape::Number, "Dollars that its agent costs.");
const TOKENS: Key = key("tokens", Shape::Whole { min: 0, max: 1 << 50 }, "Tokens that its agent uses, in and out.");
const DURATION: Key = key("duration", Shape::Duration { zero: true }, "How long it takes.");
static A_TIME: Shape = Shape::Object(&TIME);
static A_STEP: Shape = Shape::Object(&STEP);

const fn times() -> Key {
    key("times", Shape::List { of: &A_TIME, min: 1 }, "What the first, second and further times give.")
}

const fn steps_of(name: &'static str, doc: &'static str) -> Key {
    key(name, Shape::Map { names: Name::Step, of: &A_STEP, min: 0 }, doc)
}

static FILE: Object = Object {
    name: "stub",
    what: "a stub file",
    keys: &[
        key("defaults", Shape::Object(&DEFAULTS), "For every step that says nothing else."),
        steps_of("steps", "What each step gives."),
        steps_of(ENDINGS[0], "The steps after a failure."),
        steps_of(ENDINGS[1], "The steps at the end."),
    ],
    others: None,
};

static DEFAULTS: Object = Object { name: "stub_defaults", what: "`defaults`", keys: &[USD, TOKENS, DURATION], others: None };

static TIME: Object =
    Object { name: "stub_time", what: "an entry of `times`", keys: &[STATUS, OUTPUT, ERROR, STDOUT, EXIT_CODE, USD, TOKENS, DURATION], others: None };

static STEP: Object = Object {
    name: "stub_step",
    what: "a stubbed step",
    keys: &[
        STATUS,
        OUTPUT,
        ERROR,
        STDOUT,
        EXIT_CODE,
        USD,
        TOKENS,
        DURATION,
        times(),
        key("items", Shape::List { of: &Shape::Object(&ITEM), min: 0 }, "What single items give."),
        steps_of("steps", "The steps of a loop's body or of a called workflow."),
        steps_of(ENDINGS[0], "The steps after a failure of the called workflow."),
        steps_of(ENDINGS[1], "The steps at the end of the called workflow."),
    ],
    others: None,
};

static ITEM: Object = Object {
    name: "stub_item",
    what: "a stubbed item",
    keys: &[must("key", Shape::Text, "The item's key."), STATUS, OUTPUT, ERROR, STDOUT, EXIT_CODE, USD, TOKENS, DURATION, times()],
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
        let root = yaml::parse(source).map_err(|error| Diagnostics::from(vec![*error]))?;
        if !matches!(root.value, Yaml::Map(_)) {
            let wrong = Diagnostic::error(codes::WRONG_TYPE, source, root.span, format!("a stub file is a map, but the file holds {}", root.value.kind()));
            return Err(vec![wrong.help("begin with `steps:` and the id of a step below it")].into());
        }
        let mut found = check::check(source, &root, &FILE);
        let file = Fields::new(source, &root, &FILE);
        let defaults = file.object("defaults", &DEFAULTS).map(|fields| cost(&fields, &mut found)).unwrap_or_default();
        let steps = steps(&file, &mut found);
        check::in_order(found).map(|_| Stub { source: source.clone(), defaults, steps })
    }
}

fn steps(fields: &Fields<'_>, found: &mut Found) -> Vec<StubbedStep> {
    let mut stubbed: Vec<StubbedStep> = fields.map("steps").map(|(id, node)| step(fields.source, id, node, found)).collect();
    for ending in ENDINGS {
        let steps: Vec<StubbedStep> = fields.map(ending).map(|(id, node)| step(fields.source, id, node, found)).collect();
        if let Some(entry) = fields.entry(ending) {
            stubbed.push(StubbedStep { id: entry.key.clone(), gives: StubbedNode::default(), items: Vec::new(), steps });
        }
    }
    stubbed
}

fn step(source: &Arc<Source>, id: &Spanned<String>, node: &Node, found: &mut Found) -> StubbedStep {
    let fields = Fields::new(source, node, &STEP);
    let items = fields.list("items").filter_map(|node| {
        let item = Fields::new(source, node, &ITEM);
        let (key, gives) = (item.text("key"), stubbed(&item, found));
        Some((key?, gives))
    });
    let items = items.collect();
    StubbedStep { id: id.clone(), gives: stubbed(&fields, found), items, steps: steps(&fields, found) }
}

fn stubbed(fields: &Fields<'_>, found: &mut Found) -> StubbedNode {
    let always = time(fields, found);
    StubbedNode { always, times: fields.list("times").map(|node| time(&Fields::new(fields.source, node, &TIME), found)).collect() }
}

fn time(fields: &Fields<'_>, found: &mut Found) -> StubbedTime {
    let cost = cost(fields, found);
    let own = ["status", "output", "error", "stdout", "exit_code"].into_iter().filter_map(|key| at(fields, key));
    let time = StubbedTime {
        keys: own.chain(cost.keys.iter().cloned()).collect(),
        status: fields.word::<StubbedStatus>("status").map(|word| word.value),
        output: fields.node("output").map(|node| node.value.to_json()),
        error: fields.string("error"),
        stdout: fields.string("stdout"),
        exit_code: fields.whole::<u32>("exit_code").map(|code| code.value.into()),
        ..cost
    };
    contradiction(fields, &time, found);
    time
}

fn at(fields: &Fields<'_>, key: &'static str) -> Option<Spanned<&'static str>> {
    fields.entry(key).map(|entry| Spanned::new(key, entry.key.span))
}

/// Tells of two keys of one place that say what cannot both be.
fn contradiction(fields: &Fields<'_>, time: &StubbedTime, found: &mut Found) {
    let well = time.ends_well();
    let pairs = [
        ("status", "exit_code", time.exit_code.is_some_and(|code| Some(code == 0) != well)),
        ("status", "error", time.error.is_some() && well == Some(true) && time.status.is_some()),
        ("exit_code", "error", time.error.is_some() && time.exit_code == Some(0)),
        ("output", "stdout", time.output.is_some() && time.stdout.is_some()),
    ];
    for (one, other, _) in pairs.into_iter().filter(|(_, _, both)| *both) {
        let (Some(one), Some(other)) = (at(fields, one), at(fields, other)) else { continue };
        let message = format!("`{}` and `{}` cannot both be", one.value, other.value);
        let wrong = Diagnostic::error(codes::STUB, fields.source, other.span, message);
        found.report(wrong.also(one.span, "says otherwise").help("take one of them out"));
    }
}

fn cost(fields: &Fields<'_>, found: &mut Found) -> StubbedTime {
    let usd = fields.number("usd");
    if let Some(below) = usd.as_ref().filter(|usd| usd.value < 0.0) {
        found.report(Diagnostic::error(codes::OUT_OF_RANGE, fields.source, below.span, "`usd` must not be below 0"));
    }
    StubbedTime {
        usd: usd.map(|usd| usd.value),
        tokens: fields.whole("tokens").map(|tokens| tokens.value),
        duration: fields.duration("duration").map(|duration| duration.value),
        keys: ["usd", "tokens", "duration"].into_iter().filter_map(|key| at(fields, key)).collect(),
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
        let text = "defaults: { duration: 1m, usd: 0.1, tokens: 10 }\nsteps:\n  a:\n    duration: 5s\n    exit_code: 0\n    times: [{ exit_code: 1 }, { status: succeeded }]\n    items: [{ key: x, status: failed, error: oh, stdout: s }]\n    steps: { b: { usd: 0 } }\n";
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
    fn how_it_ends_is_said_as_a_whole_by_what_is_nearer() {
        let text = "steps:\n  a: { exit_code: 2, error: oh, stdout: s, times: [{ status: succeeded, output: o }, { status: failed }, { exit_code: 0 }, {}] }\n";
        let stub = load(text).unwrap_or_else(|errors| panic!("{errors}"));
        let ends: Vec<_> =
            (0..4).map(|number| stub.steps[0].gives.time(number)).map(|time| (time.ends_well(), time.exit_code, time.error, time.stdout)).collect();
        let (oh, s) = (Some("oh".to_owned()), Some("s".to_owned()));
        assert_eq!(
            ends,
            [
                (Some(true), None, None, None),
                (Some(false), Some(2), oh.clone(), s.clone()),
                (Some(true), Some(0), None, s.clone()),
                (Some(false), Some(2), oh, s)
            ]
        );
    }

    #[test]
    fn what_cannot_both_be_is_told() {
        let wrong = |text: &str| {
            let errors = load(&format!("steps: {{ a: {{ {text} }} }}\n")).expect_err(text);
            errors.found.iter().map(|error| (error.code, error.source.text[error.labels[0].span.range()].to_owned())).collect::<Vec<_>>()
        };
        let at = |key: &str| vec![(codes::STUB, key.to_owned())];
        assert_eq!(wrong("status: succeeded, exit_code: 1"), at("exit_code"));
        assert_eq!(wrong("status: failed, exit_code: 0"), at("exit_code"));
        assert_eq!(wrong("status: succeeded, error: oh"), at("error"));
        assert_eq!(wrong("exit_code: 0, error: oh"), at("error"));
        assert_eq!(wrong("output: [a], stdout: a"), at("stdout"));
        assert!(load("steps: { a: { status: failed, exit_code: 3, error: oh } }\n").is_ok());
    }

    #[test]
    fn every_error_is_told_with_its_place() {
        let text = "defaults: { usd: -1 }\nsteps:\n  a: { stauts: failed, duration: soon, items: [{ status: maybe }] }\n";
        let errors = load(text).expect_err("it is wrong");
        let told: Vec<(&str, &str)> = errors.found.iter().map(|error| (error.code, &error.source.text[error.labels[0].span.range()])).collect();
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
        assert!(load("- a\n").expect_err("it is a list").found[0].help.as_ref().is_some_and(|help| help.contains("steps:")));
    }
}
