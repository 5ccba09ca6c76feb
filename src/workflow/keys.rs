//! The keys of the language, as data: what may stand where, and of which shape.
//!
//! One table serves the check of a file, its decoding and the JSON Schema that editors use, so that the three cannot
//! disagree.
use super::{
    choices::{OnTimeout, Show, Tie},
    hooks::HOOKS,
    sandbox::SANDBOX,
    servers::{CHOSEN, SERVERS},
    types::{Access, ConflictThen, InputKind, Join, MergeMode, MergeOrder, On, OnExceed, Parse, Power, RetryOn, WorkspaceKind},
    words::Word as _,
};
use crate::event::Wake;
use std::fmt;

/// A map with a closed set of keys.
pub(super) struct Object {
    /// Its name in the JSON Schema.
    pub(super) name: &'static str,
    /// What it is, with its article, for messages.
    pub(super) what: &'static str,
    pub(super) keys: &'static [Key],
    /// What stands under other keys, where those are names that the author chooses.
    pub(super) others: Option<Others>,
}

/// Keys that are names of the author's choice; at least one of them is there.
pub(super) struct Others {
    /// The least there must be, for messages.
    pub(super) what: &'static str,
    pub(super) names: Name,
    pub(super) of: Shape,
}

/// One key of an object.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
    pub(super) doc: &'static str,
    /// What happens instead, where this version reads the key and does something simpler.
    pub(super) instead: Option<&'static str>,
}

/// What a value must look like.
pub(super) enum Shape {
    /// Anything.
    Any,
    /// A JSON Schema: a map, or `true` or `false`.
    Schema,
    /// Text; numbers and `true` or `false` count as they are written.
    Text,
    /// One whole expression in braces.
    Expression,
    /// `true` or `false`.
    Flag,
    /// A whole number in these bounds.
    Whole { min: u64, max: u64 },
    /// A number above 0.
    Amount,
    /// Any number.
    Number,
    /// A duration, above 0 unless said otherwise.
    Duration { zero: bool },
    /// One of a closed set of words; of those `instead` this version does something simpler, and says what.
    Word { words: &'static [&'static str], instead: &'static [(&'static str, &'static str)] },
    /// A name of its own.
    Name(Name),
    /// A list with at least `min` entries.
    List { of: &'static Shape, min: usize },
    /// Names to values, at least `min` of them.
    Map { names: Name, of: &'static Shape, min: usize },
    /// A map with a closed set of keys.
    Object(&'static Object),
    /// The first of these that takes this kind of YAML value.
    Either(&'static [Shape]),
    /// The version of the language.
    Version,
    /// Part of the language but not of this version.
    Later,
}

/// The letters that a name may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Of a workflow: it becomes a part of branch names.
    Workflow,
    /// Of a step.
    Step,
    /// Of an input, an output, an environment variable or an item: it is read in expressions.
    Variable,
    /// Of an agent, a model alias or a schema.
    Free,
    /// Of a model at its provider.
    Model,
}

/// The longest name, in bytes.
pub(super) const MAX_NAME: usize = 64;

impl Name {
    /// Returns the regular expression that it must match.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            Name::Workflow => "^[a-z][a-z0-9-]*$",
            Name::Step => "^[a-z][a-z0-9_-]*$",
            Name::Variable => "^[A-Za-z_][A-Za-z0-9_]*$",
            Name::Free => "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
            Name::Model => "^[A-Za-z0-9_][A-Za-z0-9_.:/@-]*$",
        }
    }

    /// Returns whether a name is of this kind.
    pub(super) fn fits(self, name: &str) -> bool {
        let first = |b: u8| match self {
            Name::Workflow | Name::Step => b.is_ascii_lowercase(),
            Name::Variable => b.is_ascii_alphabetic() || b == b'_',
            Name::Free | Name::Model => b.is_ascii_alphanumeric() || b == b'_',
        };
        let rest = |b: u8| match self {
            Name::Workflow => b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-',
            Name::Step => b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b),
            Name::Variable => b.is_ascii_alphanumeric() || b == b'_',
            Name::Free => b.is_ascii_alphanumeric() || b"_.-".contains(&b),
            Name::Model => b.is_ascii_alphanumeric() || b"_.:/@-".contains(&b),
        };
        let bytes = name.as_bytes();
        bytes.len() <= MAX_NAME && bytes.first().is_some_and(|&b| first(b)) && bytes.iter().all(|&b| rest(b))
    }
}

impl fmt::Display for Shape {
    /// Writes what is expected, with its article, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Any => f.write_str("a value"),
            Shape::Schema => f.write_str("a JSON Schema"),
            Shape::Text => f.write_str("text"),
            Shape::Expression => f.write_str("an expression in `{{ }}`"),
            Shape::Flag => f.write_str("`true` or `false`"),
            Shape::Whole { .. } => f.write_str("a whole number"),
            Shape::Amount | Shape::Number => f.write_str("a number"),
            Shape::Duration { .. } => f.write_str("a duration"),
            Shape::Word { words, .. } => write!(f, "one of {}", super::check::quoted(words.iter().copied())),
            Shape::Name(_) => f.write_str("a name"),
            Shape::List { .. } => f.write_str("a list"),
            Shape::Map { .. } | Shape::Object(_) => f.write_str("a map"),
            Shape::Either(shapes) => {
                for (at, shape) in shapes.iter().filter(|shape| !matches!(shape, Shape::Later)).enumerate() {
                    write!(f, "{}{shape}", if at > 0 { " or " } else { "" })?;
                }
                Ok(())
            }
            Shape::Version => f.write_str("the number 1"),
            Shape::Later => f.write_str("nothing"),
        }
    }
}

impl Object {
    /// Returns a key by name.
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

pub(super) const fn key(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key { name, shape, required: false, doc, instead: None }
}

pub(super) const fn must(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key { name, shape, required: true, doc, instead: None }
}

/// A key of which this version does something simpler.
pub(super) const fn simpler(name: &'static str, shape: Shape, doc: &'static str, instead: &'static str) -> Key {
    Key { name, shape, required: false, doc, instead: Some(instead) }
}

const fn later(name: &'static str) -> Key {
    Key { name, shape: Shape::Later, required: false, doc: "", instead: None }
}

/// One of these words.
pub(super) const fn word(words: &'static [&'static str]) -> Shape {
    Shape::Word { words, instead: &[] }
}

/// Steps by their ids.
const fn steps(min: usize) -> Shape {
    Shape::Map { names: Name::Step, of: &A_STEP, min }
}

/// A list of texts.
pub(super) const TEXTS: Shape = Shape::List { of: &Shape::Text, min: 0 };
/// One text, or a list of at least one.
const TEXT_OR_TEXTS: Shape = Shape::Either(&[Shape::List { of: &Shape::Text, min: 1 }, Shape::Text]);
/// A count of at least 1.
const COUNT: Shape = Shape::Whole { min: 1, max: 1_000_000 };
const TIMEOUT: Shape = Shape::Duration { zero: false };
pub(super) const TEMPLATES: Shape = Shape::Map { names: Name::Variable, of: &Shape::Text, min: 0 };
/// A place of its own, as steps hold steps.
static A_STEP: Shape = Shape::Object(&STEP);
const WORKSPACES: Shape = Shape::Either(&[Shape::Object(&WORKSPACE), word(WorkspaceKind::WORDS)]);
const COUNT_OR_TEXT: Shape = Shape::Either(&[COUNT, Shape::Text]);
const JOIN: Shape = word(Join::WORDS);
const ORDER: Shape = word(MergeOrder::WORDS);
/// The values of one axis, or an expression that gives them.
const AXIS: Shape = Shape::Either(&[Shape::List { of: &Shape::Any, min: 1 }, Shape::Expression]);

pub(super) static FILE: Object = Object {
    name: "workflow",
    what: "a workflow",
    keys: &[
        must("version", Shape::Version, "The version of the language: 1."),
        must("name", Shape::Name(Name::Workflow), "The workflow's name."),
        key("description", Shape::Text, "What it does, for people."),
        key("inputs", Shape::Map { names: Name::Variable, of: &Shape::Object(&INPUT), min: 0 }, "What a run takes."),
        key("env", TEMPLATES, "Environment variables of every command and shell tool; templates."),
        key(
            "secrets",
            Shape::List { of: &Shape::Name(Name::Variable), min: 0 },
            "Environment variables the run needs, whose values are never written anywhere; `secrets.NAME` in an `env` reads one.",
        ),
        key("budget", Shape::Object(&BUDGET), "Limits of the whole run."),
        key("models", Shape::Map { names: Name::Free, of: &Shape::Object(&MODEL), min: 0 }, "Aliases for models."),
        key("defaults", Shape::Object(&DEFAULTS), "What steps and agents inherit."),
        key("agents", Shape::Map { names: Name::Free, of: &Shape::Object(&AGENT), min: 0 }, "The agents of this workflow."),
        key("orchestrator", Shape::Object(&ORCHESTRATOR), "The agent that watches over the run."),
        key("schemas", Shape::Map { names: Name::Free, of: &Shape::Schema, min: 0 }, "JSON Schemas by name."),
        key("hooks", HOOKS, "Hooks that hold for the whole workflow: by name, or written out."),
        key("permissions", Shape::Object(&PERMISSIONS), "Permission rules for every agent."),
        key("mcp_servers", SERVERS, "Servers that lend tools to the agents, by name."),
        key("skills", TEXTS, "Skills that every agent sees, by name."),
        must("steps", steps(1), "The steps."),
        key("outputs", TEMPLATES, "The workflow's result; templates."),
        key("on_failure", steps(0), "Steps that run after a run that failed."),
        key("finally", steps(0), "Steps that run at the end of every run."),
    ],
    others: None,
};

pub(super) static INPUT: Object = Object {
    name: "input",
    what: "an input",
    keys: &[
        must("type", word(InputKind::WORDS), "Its type."),
        key("required", Shape::Flag, "Whether it must be given."),
        key("default", Shape::Any, "What it is when it is not given."),
        key("description", Shape::Text, "What it is, for people."),
        key("enum", Shape::List { of: &Shape::Any, min: 1 }, "The values it may have."),
        key("pattern", Shape::Text, "A regular expression it must match."),
        key("minimum", Shape::Number, "Its smallest value."),
        key("maximum", Shape::Number, "Its largest value."),
        key("items", Shape::Schema, "A JSON Schema for the entries of a list."),
    ],
    others: None,
};

pub(super) static BUDGET: Object = Object {
    name: "budget",
    what: "a budget",
    keys: &[
        key("usd", Shape::Amount, "Dollars."),
        key("tokens", Shape::Whole { min: 1, max: 1 << 50 }, "Tokens, in and out."),
        key("time", TIMEOUT, "Wall time."),
        key("turns", COUNT, "Model calls."),
        key("on_exceed", word(OnExceed::WORDS), "What happens at the limit."),
    ],
    others: None,
};

pub(super) static MODEL: Object = Object {
    name: "model",
    what: "a model alias",
    keys: &[
        must("use", TEXT_OR_TEXTS, "`provider/model`, in order of preference."),
        key("effort", Shape::Text, "Thinking effort, in the provider's word."),
        key("max_output_tokens", Shape::Whole { min: 1, max: 10_000_000 }, "Cap on one reply."),
    ],
    others: None,
};

pub(super) static DEFAULTS: Object = Object {
    name: "defaults",
    what: "`defaults`",
    keys: &[
        key("model", Shape::Text, "An alias or `provider/model`."),
        key("timeout", TIMEOUT, "For every step."),
        key("idle_timeout", TIMEOUT, "For every agent and command: the longest time without a sign of life."),
        key("retry", Shape::Object(&RETRY), "For every step."),
        key("workspace", WORKSPACES, "For every step that works in one."),
        key("max_parallel", COUNT, "Agents and commands at work at the same time."),
    ],
    others: None,
};

pub(super) static RETRY: Object = Object {
    name: "retry",
    what: "a retry",
    keys: &[
        key("max", Shape::Whole { min: 0, max: 100 }, "Tries after the first."),
        key("on", Shape::List { of: &word(RetryOn::WORDS), min: 1 }, "For which failures."),
        key("backoff", word(&["constant", "exponential"]), "Whether the delay doubles each time."),
        key("delay", Shape::Duration { zero: true }, "Before the first retry."),
        key("max_delay", Shape::Duration { zero: true }, "The longest delay."),
    ],
    others: None,
};

pub(super) static AGENT: Object = Object {
    name: "agent",
    what: "an agent",
    keys: &[
        key("use", Shape::Text, "An agent file by name; everything not said here comes from it."),
        key("system", Shape::Text, "The system text, or a prompt file that holds it."),
        key("description", Shape::Text, "What it is for."),
        key("model", Shape::Text, "An alias or `provider/model`."),
        key("effort", Shape::Text, "Thinking effort, in the provider's word."),
        key("access", word(Access::WORDS), "What it may do in its workspace."),
        key("tools", TEXTS, "Tools by name; absent means all that `access` allows."),
        key(
            "provider_tools",
            Shape::List { of: &word(&["code_execution", "web_search"]), min: 0 },
            "Tools that run at the provider; one that a rule forbids or asks about is not declared.",
        ),
        key("permissions", Shape::Object(&PERMISSIONS), "Permission rules."),
        key("skills", TEXTS, "Skills by name."),
        key("hooks", HOOKS, "Hooks: by name, or written out."),
        key("mcp_servers", CHOSEN, "Servers besides the file's, by name; or the names of the only ones that it has."),
        key("cwd", Shape::Text, "A folder inside the workspace where it starts: a template."),
        key("sandbox", Shape::Object(&SANDBOX), "What its commands reach besides its workspace, and what must hold them."),
        key("max_turns", COUNT, "Model calls in one session."),
        key("budget", Shape::Object(&BUDGET), "Limits of one session."),
        key("timeout", TIMEOUT, "Wall time of one session."),
        key("idle_timeout", TIMEOUT, "The longest time without a sign of life."),
        key("max_depth", Shape::Whole { min: 1, max: 10 }, "How deep its sub-agents may start sub-agents; absent: not at all."),
        key("max_parallel", COUNT, "Its sub-agents at work at the same time."),
    ],
    others: None,
};

pub(super) static PERMISSIONS: Object = Object {
    name: "permissions",
    what: "a set of permission rules",
    keys: &[key("allow", TEXTS, "Allowed without asking."), key("ask", TEXTS, "Asked about, even where an allow rule matches."), key("deny", TEXTS, "Never.")],
    others: None,
};

pub(super) static ORCHESTRATOR: Object = Object {
    name: "orchestrator",
    what: "an orchestrator",
    keys: &[
        must("agent", Shape::Text, "The agent's name."),
        key("may", Shape::List { of: &word(Power::WORDS), min: 0 }, "Its powers; absent means all."),
        key("max_added", Shape::Whole { min: 0, max: 10_000 }, "How many items it may add in all."),
        key("wake", Shape::List { of: &word(Wake::WORDS), min: 0 }, "When it is woken; absent means at each of them."),
    ],
    others: None,
};

pub(super) static STEP: Object = Object {
    name: "step",
    what: "a step",
    keys: &[
        key("agent", Shape::Text, "One agent session: the agent's name."),
        key("prompt", Shape::Text, "What the agent is told: a template, or a prompt file that holds one."),
        key("run", Shape::Text, "A shell command: a template."),
        key("merge", Shape::Object(&MERGE), "Joins the work of many."),
        key("select", Shape::Object(&SELECT), "Keeps exactly one of several candidates."),
        key("workflow", Shape::Text, "Another workflow as a child of this run, by name."),
        key("with", Shape::Map { names: Name::Variable, of: &Shape::Any, min: 0 }, "The inputs of the called workflow; templates."),
        key("approve", Shape::Object(&APPROVE), "Waits for a person."),
        key("loop", Shape::Object(&LOOP), "Repeats the steps below `steps` until a condition over the last iteration holds."),
        key("steps", steps(1), "The body of a `loop`."),
        key(
            "needs",
            Shape::Either(&[Shape::List { of: &Shape::Either(&[Shape::Object(&NEED), Shape::Text]), min: 0 }, Shape::Object(&NEED), Shape::Text]),
            "What it waits for.",
        ),
        key("if", Shape::Text, "An expression that gives true or false."),
        key("for_each", Shape::Object(&FOR_EACH), "One node per item."),
        key("matrix", Shape::Object(&MATRIX), "One node per combination."),
        key("workspace", WORKSPACES, "Where it works."),
        key("cwd", Shape::Text, "A folder inside the workspace: a template."),
        key("scope", Shape::Either(&[Shape::List { of: &Shape::Text, min: 1 }, Shape::Text]), "Globs it may write."),
        key("verify", Shape::Object(&VERIFY), "Checks that its work must pass."),
        key("output", Shape::Object(&OUTPUT), "What its output must look like."),
        key("budget", Shape::Object(&BUDGET), "Limits of the step."),
        key("timeout", TIMEOUT, "A timeout is a failure."),
        key("idle_timeout", TIMEOUT, "The longest time without a sign of life."),
        key("retry", Shape::Object(&RETRY), "For transient errors."),
        key("cache", Shape::Object(&CACHE), "When a recorded result stands for the work."),
        key("allow_failure", Shape::Flag, "Whether its failure is data that counts as success."),
        key("env", TEMPLATES, "Environment variables; templates."),
        key("skills", TEXTS, "Skills by name, besides the agent's."),
        key("hooks", HOOKS, "Hooks besides the agent's: by name, or written out."),
        later("mcp_servers"),
        key("model", Shape::Text, "Overrides the agent's model."),
        key("effort", Shape::Text, "Overrides the agent's effort."),
    ],
    others: None,
};

pub(super) static NEED: Object = Object {
    name: "need",
    what: "a need",
    keys: &[must("step", Shape::Text, "The step."), key("on", word(On::WORDS), "How it must have ended.")],
    others: None,
};

pub(super) static FOR_EACH: Object = Object {
    name: "for_each",
    what: "a `for_each`",
    keys: &[
        must("items", Shape::Either(&[Shape::List { of: &Shape::Any, min: 0 }, Shape::Text]), "An expression that gives a list, or a list."),
        key("as", Shape::Name(Name::Variable), "The item's name in templates; absent: `item`."),
        key("key", Shape::Text, "The item's key: a template."),
        key("needs", Shape::Text, "An expression that gives the keys of items it waits for."),
        key("max_parallel", COUNT_OR_TEXT, "Items at work at the same time."),
        key("fail_fast", Shape::Flag, "Whether the first failure stops the rest."),
        key("join", JOIN, "What the step needs of its items."),
        key(
            "on_item_failure",
            Shape::Either(&[Shape::Object(&ON_ITEM_FAILURE), word(&["stop", "continue"])]),
            "What the failure of one item means for the rest; absent: nothing.",
        ),
    ],
    others: None,
};

pub(super) static ON_ITEM_FAILURE: Object = Object {
    name: "on_item_failure",
    what: "an `on_item_failure`",
    keys: &[must("retry_with", Shape::Text, "The agent that tries a failed item once more.")],
    others: None,
};

pub(super) static MATRIX: Object = Object {
    name: "matrix",
    what: "a matrix",
    keys: &[
        key(
            "exclude",
            Shape::List { of: &Shape::Map { names: Name::Variable, of: &Shape::Any, min: 0 }, min: 0 },
            "Combinations that are left out: axes to values.",
        ),
        key("max_parallel", COUNT_OR_TEXT, "Combinations at work at the same time."),
        key("fail_fast", Shape::Flag, "Whether the first failure stops the rest."),
        key("join", JOIN, "What the step needs of its combinations."),
    ],
    others: Some(Others { what: "one axis", names: Name::Variable, of: AXIS }),
};

pub(super) static CACHE: Object = Object {
    name: "cache",
    what: "a `cache`",
    keys: &[
        key("key", TEXT_OR_TEXTS, "Templates that make the key, besides prompt, model, agent and skills."),
        key("inputs", TEXT_OR_TEXTS, "Globs of files whose content makes the key; templates."),
    ],
    others: None,
};

pub(super) static WORKSPACE: Object = Object {
    name: "workspace",
    what: "a workspace",
    keys: &[
        key("kind", word(WorkspaceKind::WORDS), "Which kind."),
        key(
            "isolation",
            Shape::Word { words: &["auto", "linked", "overlay"], instead: &[("overlay", "the workspace is a linked worktree")] },
            "How it is kept apart.",
        ),
        key("base", Shape::Text, "What it starts from: `head`, `dirty` (with what the checkout has besides), or a branch, tag or commit."),
        key("setup", TEXTS, "Commands that prepare it; templates."),
        key("copy", TEXTS, "Globs of ignored files of the checkout that are copied in."),
        key("link", TEXTS, "Globs of ignored files and folders of the checkout that are linked in."),
        key("sparse", TEXTS, "Globs of the only files that are checked out."),
        key("env", TEMPLATES, "Environment variables of what runs in it; templates."),
    ],
    others: None,
};

pub(super) static VERIFY: Object = Object {
    name: "verify",
    what: "a `verify`",
    keys: &[
        must("run", TEXT_OR_TEXTS, "Commands that must all exit 0; templates."),
        key("attempts", Shape::Whole { min: 1, max: 100 }, "How often the work is tried, the first time included."),
    ],
    others: None,
};

pub(super) static OUTPUT: Object = Object {
    name: "output",
    what: "an `output`",
    keys: &[
        key("schema", Shape::Text, "A schema of the workflow, by name."),
        key("parse", word(Parse::WORDS), "How a command's output is read."),
        key("file", Shape::Text, "The file among the run's artefacts that keeps it: a template."),
    ],
    others: None,
};

pub(super) static MERGE: Object = Object {
    name: "merge",
    what: "a merge",
    keys: &[
        must("from", TEXT_OR_TEXTS, "The steps whose work is joined."),
        key("mode", word(MergeMode::WORDS), "Whether the checks run once for all, or after each piece of work."),
        simpler("batch_size", COUNT, "Pieces of work in one batch.", "all sources are one batch"),
        key("order", Shape::Either(&[Shape::List { of: &ORDER, min: 1 }, ORDER]), "What decides which piece of work is joined first."),
        key("verify", TEXT_OR_TEXTS, "Checks of the joined tree; templates."),
        key("flaky_retries", Shape::Whole { min: 0, max: 10 }, "Runs of a red check beyond the first."),
        key("on_conflict", Shape::Object(&ON_CONFLICT), "What happens at a conflict."),
        key("on_red", Shape::Object(&ON_RED), "What happens where the checks are red."),
    ],
    others: None,
};

pub(super) static ON_RED: Object = Object {
    name: "on_red",
    what: "an `on_red`",
    keys: &[
        simpler("blame", word(&["bisect"]), "How the culprit is found.", "with `mode: each` it is what was joined last, and a red batch fails the step"),
        key(
            "then",
            Shape::Word { words: &["eject", "fail", "return_to_author"], instead: &[("return_to_author", "the work is ejected")] },
            "What happens to the work that is to blame; absent: the step fails.",
        ),
        simpler("attempts", Shape::Whole { min: 1, max: 20 }, "How often work goes back to its author.", "no work goes back to its author"),
    ],
    others: None,
};

pub(super) static SELECT: Object = Object {
    name: "select",
    what: "a `select`",
    keys: &[
        must("from", TEXT_OR_TEXTS, "The step whose items are the candidates, or the steps that are."),
        key("gates", TEXT_OR_TEXTS, "Commands that a candidate must pass in its own tree; templates."),
        key("judge", Shape::Object(&JUDGE), "Who chooses among those that passed."),
        key("tie", word(Tie::WORDS), "What decides where the votes do not; absent: the smallest diff."),
        key("keep_losers", TIMEOUT, "How long the refs of the others are kept."),
    ],
    others: None,
};

pub(super) static JUDGE: Object = Object {
    name: "judge",
    what: "a judge",
    keys: &[
        must("agent", Shape::Text, "The agent's name."),
        key("votes", Shape::Whole { min: 1, max: 25 }, "Sessions that each vote once; absent: 1."),
        key("blind", Shape::Flag, "Whether candidates go by letters, in another order for each vote."),
        key("rubric", Shape::Text, "What it is told to look at: a template, or a prompt file that holds one."),
        key("criteria", TEXTS, "What it scores, by name."),
    ],
    others: None,
};

pub(super) static APPROVE: Object = Object {
    name: "approve",
    what: "an `approve`",
    keys: &[
        must("message", Shape::Text, "What is asked: a template."),
        key("show", word(Show::WORDS), "What is shown besides."),
        key("timeout", TIMEOUT, "How long it waits."),
        key("on_timeout", word(OnTimeout::WORDS), "What the end of that time means."),
    ],
    others: None,
};

pub(super) static LOOP: Object = Object {
    name: "loop",
    what: "a loop",
    keys: &[
        must("until", Shape::Text, "An expression over the last iteration that gives true or false."),
        must("max", Shape::Whole { min: 1, max: 10_000 }, "The most iterations; a loop that has not come to its end by then has failed."),
    ],
    others: None,
};

pub(super) static ON_CONFLICT: Object = Object {
    name: "on_conflict",
    what: "an `on_conflict`",
    keys: &[
        simpler("drivers", TEXTS, "Merge drivers that are tried first.", "conflicts go to the agent at once"),
        key("agent", Shape::Text, "The agent that settles it."),
        key("attempts", Shape::Whole { min: 1, max: 20 }, "Its tries at one conflict."),
        key("then", word(ConflictThen::WORDS), "What happens to work whose conflict nobody settles."),
    ],
    others: None,
};
