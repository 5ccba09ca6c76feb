//! `spinney plan`: a run before it is begun. With `--stub` the whole of it is simulated.
//!
//! Nothing is begun, asked or written by either.
mod simulated;

use super::{
    again,
    args::{How, Plan as Args},
    context::{Context, Failed},
    report::{json_text, line, pick, put, repository, wrapped},
    run::{compile, inputs, models, open},
    screen::{Tone, listed, paint, plural, short, thousands},
};
use crate::engine::{
    AROUND, AgentPreview, BodyPreview, CachePreview, Cost, GraphPreview, Hinges, ItemsPreview, LimitsShown, Preview, SandboxPreview, SetupError, StepPreview,
};
use crate::{event::RunId, journal::RunDir, workflow::Power};
use serde_json::Value;
use std::{collections::HashMap, fmt::Write as _, io, time::Duration};

/// Columns of this screen.
const WIDTH: usize = 80;
/// Columns of the words before what is said.
const LABEL: usize = 11;

pub(super) fn run(args: &Args, context: &mut Context) -> Result<u8, Failed> {
    if let Some(run) = of_run(args, context)? {
        return again::plan(args, &run, context);
    }
    let project = open(context)?;
    let models = models(&How { models: args.models.clone(), ..How::default() }, &project, context)?;
    let plan = compile(&project, &args.workflow, &models, context)?;
    let inputs = inputs(&plan, &args.inputs, false)?;
    if let Some(stub) = &args.stub {
        return simulated::run(&plan, &inputs, stub, args.json, context);
    }
    let named = project.configuration.default_model(&project.settings.environment);
    let from = match named {
        _ if args.models.iter().any(|word| !word.contains('=')) => "`--model`".to_owned(),
        Some((_, from)) => from,
        None if project.endpoints().default_model().is_ok() => "the key that is set".to_owned(),
        None => "nobody: no key is set, and this stands for the one that will be".to_owned(),
    };
    if let Ok(inputs) = plan.check_inputs(&inputs) {
        project.check_bases(&plan, &inputs)?;
    }
    let preview = project.preview(&plan, &inputs, &project.endpoints(), &from).map_err(SetupError::Inputs)?;
    let text =
        if args.json { json_text(&preview).map_err(io::Error::from)? + "\n" } else { Page::new(context.color, args.full, &preview.bodies).preview(&preview) };
    put(context, &text)?;
    Ok(0)
}

/// Returns the run that is meant, where it is one and no workflow.
fn of_run(args: &Args, context: &Context) -> Result<Option<RunId>, Failed> {
    let checkout = repository(context)?.main_checkout().to_owned();
    let runs = RunDir::list(&RunDir::state(&checkout)).map_err(|error| Failed::of(&error))?;
    let is_run = args.from.is_some() || args.retry || runs.iter().any(|run| run.0 == args.workflow);
    if is_run { pick(&runs, &args.workflow).map(Some) } else { Ok(None) }
}

/// A page being written.
struct Page<'a> {
    text: String,
    color: bool,
    /// Whether the steps of a body are written out wherever they run.
    full: bool,
    bodies: &'a [BodyPreview],
    /// The step under which each body was written out.
    written: HashMap<usize, String>,
}

impl<'a> Page<'a> {
    fn new(color: bool, full: bool, bodies: &'a [BodyPreview]) -> Page<'a> {
        Page { text: String::new(), color, full, bodies, written: HashMap::new() }
    }

    /// Writes one fact: a word, and what is said under it, broken between words.
    fn fact(&mut self, depth: usize, label: &str, said: &str) {
        if said.is_empty() {
            return;
        }
        let before = " ".repeat(depth * 2 + 4);
        let width = WIDTH.saturating_sub(before.len() + LABEL).max(20);
        for (at, part) in wrapped(&line(said, 2_000), width).iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let _ = writeln!(self.text, "{before}{}{part}", paint(self.color, Tone::Dim, &format!("{label:<LABEL$}")));
        }
    }

    fn preview(mut self, preview: &Preview) -> String {
        let _ = writeln!(self.text, "{}  {}", paint(self.color, Tone::Name, &preview.workflow), paint(self.color, Tone::Dim, &line(&preview.file, 200)));
        for part in wrapped(&line(&preview.description, 400), WIDTH - 2) {
            let _ = writeln!(self.text, "  {part}");
        }
        let base = preview.base.as_deref().map_or("a repository without a commit", short);
        self.fact(0, "starts at", &preview.head.as_ref().map_or_else(|| base.to_owned(), |head| format!("{} of {}", base, crate::git::short_name(head))));
        let inputs: Vec<String> =
            preview.inputs.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| format!("{name} = {}", line(&value.to_string(), 200))).collect();
        self.fact(0, "inputs", &inputs.join(", "));
        if !preview.missing.is_empty() {
            self.fact(0, "missing", &format!("{}; what depends on it is not known", preview.missing.join(", ")));
        }
        self.fact(0, "budget", &format!("{}; at its limit: {}", limits(&preview.limits), preview.on_exceed));
        self.fact(0, "at once", &format!("{} at most", preview.max_parallel));
        self.graph(0, "", &preview.graph);
        let more = if preview.is_raisable() { "; more where a person raises the budget" } else { "" };
        let _ = writeln!(self.text, "\nAll of it costs at most {}{more}", cost(&preview.at_most));
        self.text
    }

    /// `path` names the step around it.
    fn graph(&mut self, depth: usize, path: &str, graph: &GraphPreview) {
        let before = " ".repeat(depth * 2);
        self.steps(depth, path, &graph.steps);
        if let Some(orchestrator) = &graph.orchestrator {
            let _ = writeln!(self.text, "\n{before}  {}  watches over the items", paint(self.color, Tone::Name, "orchestrator"));
            self.fact(depth, "may", &orchestrator.may.join(", "));
            if orchestrator.may.iter().any(|power| power == Power::AddItems.word()) {
                self.fact(depth, "adds", &format!("{} items at most", orchestrator.max_added));
            }
            self.fact(depth, "wakes at", &orchestrator.wake.iter().map(|wake| wake.words()).chain(["end"]).collect::<Vec<_>>().join(", "));
            self.agent(depth, &orchestrator.agent);
        }
        for (title, steps) in [("After a failure", &graph.on_failure), ("Always at the end", &graph.finally)] {
            if !steps.is_empty() {
                let _ = writeln!(self.text, "\n{before}{title}");
                self.steps(depth, path, steps);
            }
        }
    }

    fn steps(&mut self, depth: usize, path: &str, steps: &[StepPreview]) {
        for step in steps {
            self.step(depth, step);
            if let Some(place) = step.body {
                self.body(depth, &format!("{path}{}", step.id), step, place);
            }
        }
    }

    /// Writes the steps inside another one, or where they stand already.
    fn body(&mut self, depth: usize, path: &str, step: &StepPreview, place: usize) {
        let Some(body) = self.bodies.get(place) else { return };
        if let Some(first) = self.written.get(&place).filter(|_| !self.full) {
            let said = format!("as those of {first}");
            return self.fact(depth, "steps", &said);
        }
        self.written.insert(place, path.to_owned());
        match body.runs {
            None => self.fact(depth, "in all", "how often is known in the run"),
            runs if runs == step.times => {}
            Some(runs) => self.fact(depth, "in all", &format!("{runs} times at most")),
        }
        self.graph(depth + 1, &format!("{path}/"), &body.graph);
    }

    fn step(&mut self, depth: usize, step: &StepPreview) {
        let before = " ".repeat(depth * 2 + 2);
        let does = match (&step.agent, step.verb.as_str()) {
            (Some(agent), "agent") => format!("agent {}", agent.name),
            _ => step.verb.clone(),
        };
        let _ = writeln!(self.text, "\n{before}{}  {does}", paint(self.color, Tone::Name, &line(&step.id, 64)));
        let need = |need: &Value| {
            let on = need["on"].as_str().filter(|on| *on != "success").map(|on| format!(" ({on})")).unwrap_or_default();
            format!("{}{on}", need["step"].as_str().unwrap_or_default())
        };
        self.fact(depth, "after", &step.needs.iter().map(need).collect::<Vec<_>>().join(", "));
        self.fact(depth, "if", step.condition.as_deref().unwrap_or_default());
        if let Some(text) = &step.text {
            let label = match step.verb.as_str() {
                "run" => "command",
                "approve" => "asks",
                "loop" => "until",
                _ => "calls",
            };
            self.fact(depth, label, &line(text, 200));
        }
        self.fact(depth, "among", &step.from.join(", "));
        if let Some(items) = &step.items {
            self.fact(depth, if items.by == "matrix" { "matrix" } else { "for each" }, &items_said(items));
        }
        self.place(depth, step);
        if let Some(agent) = &step.agent {
            if step.verb != "agent" {
                let what = if step.verb == "merge" { "settles conflicts" } else { "judges" };
                self.fact(depth, "agent", &format!("{} {what}, {} at most", agent.name, sessions(agent.sessions)));
            }
            self.agent(depth, agent);
        }
        if let Some(verify) = &step.verify {
            let commands: Vec<&str> = verify["run"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let tries = verify["attempts"].as_u64().filter(|tries| *tries > 1).map(|tries| format!("; {tries} tries")).unwrap_or_default();
            self.fact(depth, "checks", &format!("{}{tries}", commands.join("; ")));
        }
        if let Some(hinges) = &step.hinges {
            self.hinges(depth, hinges);
        }
        self.ends(depth, step);
    }

    /// Writes what a merge, a choice or a question hinges on.
    fn hinges(&mut self, depth: usize, hinges: &Hinges) {
        let does = |then: &str| if then == "fail" { "the step fails" } else { "it is put aside" };
        match hinges {
            Hinges::Merge { verify, mode, on_red, on_conflict } => {
                let when = if *mode == "each" { "after each source" } else { "once, on all that is joined" };
                if !verify.is_empty() {
                    self.fact(depth, "checks", &format!("{}; {when}", verify.join("; ")));
                    let red = if *mode == "each" { format!("by a source: {}", does(on_red)) } else { "the step fails".to_owned() };
                    self.fact(depth, "red", &red);
                }
                self.fact(depth, "conflict", &format!("that nobody settles: {}", does(on_conflict)));
            }
            Hinges::Select { gates, votes, tie } => {
                self.fact(depth, "gates", &gates.join("; "));
                let tie = match *tie {
                    "first" => "the first of them",
                    "fail" => "none, the step fails",
                    _ => "the one that changes the fewest lines",
                };
                let votes = if *votes == 0 { "no judge".to_owned() } else { format!("{votes} {}", plural(*votes as usize, "vote")) };
                self.fact(depth, "chosen by", &format!("{votes}; at a tie {tie}"));
            }
            Hinges::Approve { timeout_ms: Some(ms), on_timeout } => {
                let then = if *on_timeout == Some("approve") { "approved" } else { "rejected" };
                self.fact(depth, "waits", &format!("{}, then it counts as {then}", said(Duration::from_millis(*ms))));
            }
            Hinges::Approve { timeout_ms: None, .. } => self.fact(depth, "waits", "until somebody answers"),
        }
    }

    fn place(&mut self, depth: usize, step: &StepPreview) {
        let base: Vec<String> = step.base.iter().map(|base| base_said(base)).collect();
        let base = base.join(" and ");
        let folder = step.cwd.as_ref().map(|cwd| format!("{cwd} in ")).unwrap_or_default();
        match step.workspace.as_str() {
            "worktree" => {
                let scope = step.scope.as_ref().map(|scope| format!("; may write {}", scope.join(", "))).unwrap_or_default();
                self.fact(depth, "works in", &format!("{folder}a worktree of {base}{scope}"));
            }
            "view" => self.fact(depth, "works in", &format!("{folder}a view of {base}, to read")),
            _ => {}
        }
    }

    fn agent(&mut self, depth: usize, agent: &AgentPreview) {
        let effort = agent.effort.as_ref().map(|effort| format!(", effort {effort}")).unwrap_or_default();
        if agent.choices.is_empty() {
            let open = if agent.models.iter().any(|model| model.contains("{{")) { ", known in the run" } else { "" };
            self.fact(depth, "model", &format!("{}{effort}{open}", agent.models.join(", else ")));
            self.fact(depth, "", &format!("(named by {})", agent.models_from));
        }
        for choice in &agent.choices {
            let of = if choice.keys.is_empty() { String::new() } else { format!(", for {} of the items", choice.keys.len()) };
            self.fact(depth, "model", &format!("{}{effort}{of}", choice.models.join(", else ")));
            self.fact(depth, "", &format!("(named by {})", choice.from));
        }
        self.fact(depth, "tools", &agent.tools.join(", "));
        let rules: Vec<String> = ["allow", "ask", "deny"]
            .iter()
            .filter_map(|word| {
                let rules: Vec<&str> = agent.rules[word].as_array()?.iter().filter_map(Value::as_str).collect();
                (!rules.is_empty()).then(|| format!("{word} {}", rules.join(", ")))
            })
            .collect();
        self.fact(depth, "rules", &rules.join("; "));
        self.fact(depth, "sandbox", &agent.sandbox.as_ref().map(sandbox_said).unwrap_or_default());
        self.fact(depth, "skills", &agent.skills.join(", "));
        let hook = |hook: &String| if agent.untrusted_hooks.contains(hook) { format!("{hook} (not trusted)") } else { hook.clone() };
        self.fact(depth, "hooks", &agent.hooks.iter().map(hook).collect::<Vec<_>>().join(", "));
        let asks = if agent.asks { "; then a person is asked for more" } else { "" };
        self.fact(depth, "a session", &format!("{}{asks}", limits(&agent.limits)));
    }

    fn ends(&mut self, depth: usize, step: &StepPreview) {
        if step.tries > 1 {
            self.fact(depth, "tries", &format!("{}, for failures of the kind {}", step.tries, step.retry_on.join(" or ")));
        }
        if let Some(agent) = &step.retry_with {
            self.fact(depth, "", &format!("a failed item once more by {agent}"));
        }
        if let Some(budget) = &step.budget {
            self.fact(depth, "set aside", &limits(budget));
        }
        if step.asks {
            self.fact(depth, "budget", "a person is asked for more where it is used up");
        }
        if let Some(cache) = &step.cache {
            self.fact(depth, "cache", &cache_said(cache));
        }
        if step.allow_failure {
            self.fact(depth, "failure", "counts as success");
        }
        if !matches!(step.verb.as_str(), "approve" | "loop" | "workflow") {
            self.fact(depth, "time", &format!("{} a try", said(Duration::from_millis(step.timeout_ms))));
        }
        if let Some(iterations) = step.iterations {
            self.fact(depth, "iterations", &format!("{iterations} at most"));
        }
        if step.at_most != (Cost { usd: Some(0.0), tokens: Some(0), unpriced: false, open: false }) {
            self.fact(depth, "at most", &cost(&step.at_most));
        }
    }
}

fn base_said(base: &str) -> String {
    match (base, base.strip_prefix("steps.")) {
        (_, Some(step)) => format!("what {step} left"),
        ("head", _) => "where the run starts".to_owned(),
        (AROUND, _) => "what the steps around it left".to_owned(),
        ("dirty", _) => "where the run starts, with what is not committed".to_owned(),
        (name, _) => name.to_owned(),
    }
}

fn sandbox_said(sandbox: &SandboxPreview) -> String {
    let list = |what: &str, paths: &[String]| (!paths.is_empty()).then(|| format!("{what} {}", paths.join(", ")));
    let network = match &sandbox.network {
        Value::Array(hosts) => format!("of the network {}", hosts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")),
        word if word == "full" => "the network".to_owned(),
        _ => "no network".to_owned(),
    };
    let demands = (sandbox.require != "none").then(|| "nothing runs without it".to_owned());
    let untrusted = sandbox.untrusted.then(|| "what it opens is not trusted and stays shut".to_owned());
    let parts = [Some(network), list("reads", &sandbox.read), list("writes", &sandbox.write), demands, untrusted];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn cache_said(cache: &CachePreview) -> String {
    let runs = cache.runs.join(", ");
    match cache.standing.as_str() {
        "hit" => format!("hit: {}, by {runs}", cache.why),
        "part" => format!("hit for {} of the items: {}, by {runs}", cache.hits, cache.why),
        "miss" => format!("miss: {}", cache.why),
        _ => format!("looked up in the run: {}", cache.why),
    }
}

fn items_said(items: &ItemsPreview) -> String {
    let most =
        items.max_parallel.as_ref().map(|most| format!(", {} at once", most.as_str().map_or_else(|| most.to_string(), str::to_owned))).unwrap_or_default();
    match (items.count, &items.expression) {
        (Some(count), None) => {
            let more = if count > items.keys.len() { format!(" and {} more", count - items.keys.len()) } else { String::new() };
            let keys = listed(&items.keys.iter().map(String::as_str).collect::<Vec<_>>());
            if keys.is_empty() { format!("{count}{most}") } else { format!("{count}{most}: {keys}{more}") }
        }
        (Some(count), Some(expression)) => format!("{count}{most}: {expression}"),
        (None, expression) if items.wrong.is_some() => {
            let why = items.wrong.as_deref().unwrap_or_default();
            format!("of {}{most}; the step will fail: {why}", expression.as_deref().unwrap_or("items"))
        }
        (None, expression) => format!("of {}{most}; how many is known in the run", expression.as_deref().unwrap_or("items")),
    }
}

fn sessions(count: u64) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

fn limits(limits: &LimitsShown) -> String {
    let parts = [
        limits.usd.map(|usd| format!("${usd:.2}")),
        limits.tokens.map(|tokens| format!("{} tokens", thousands(tokens))),
        limits.turns.map(|turns| format!("{turns} turns")),
        limits.time_ms.map(|ms| said(Duration::from_millis(ms))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn cost(cost: &Cost) -> String {
    let usd = match (cost.usd, cost.unpriced) {
        (Some(usd), false) => format!("${usd:.2}"),
        (Some(usd), true) => format!("${usd:.2} and what has no price"),
        (None, true) => "unknown dollars, for want of a price".to_owned(),
        (None, false) => "bounded by the run's budget alone".to_owned(),
    };
    match cost.tokens {
        Some(tokens) => format!("{usd}, {} tokens", thousands(tokens)),
        None if cost.unpriced => format!("{usd}; tokens bounded by the run's budget alone"),
        None => usd,
    }
}

/// Writes a limit of time: `0.5s`, `90s`, `30m`, `2h`, `1h 30m`.
fn said(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        return format!("{}s", duration.as_secs_f64());
    }
    match (seconds / 3_600, seconds % 3_600 / 60, seconds % 60) {
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, 0, 0) => format!("{h}h"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}
