//! What makes a step what it is, part by part, so that a change of it is found and can be named.
//!
//! Everything counts that says what is done, with what and by whom: prompts, commands, agents with their system text, models,
//! tools, rules, skills and hooks, schemas, checks, edges. What only says how long, how often or how much a step may work
//! (`timeout`, `retry`, `budget`, turns, `max_parallel`, `attempts`, `max` of a loop) does not: whoever gives a step more
//! time has not asked for something else. Nor does `cache`, which says where a result may come from.
use super::steps;
use crate::{
    event::{BlobId, Definitions, StepId},
    plan::{AgentSpec, ORCHESTRATOR, Plan, PlannedStep, SandboxSpec, Work},
    source::Spanned,
    workflow::{Approve, Base, Cache, ForEach, Matrix, Retry, Scope, Verify, Workspace},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Digits of a part's hash.
const DIGITS: usize = 16;

/// What a plan resolved is content that the plan itself does not hold: hashes by `kind:name`, and the hooks that hold everywhere.
#[derive(Clone, Copy)]
pub(super) struct Resolved<'a> {
    pub(super) pins: &'a BTreeMap<String, String>,
    pub(super) always: &'a BTreeSet<&'a str>,
}

/// Returns what each step of a plan is, and its orchestrator under that reserved name.
pub(super) fn definitions(plan: &Plan, resolved: Resolved<'_>) -> Definitions {
    let definer = Definer { plan, resolved };
    let steps = plan.steps().map(|step| (step.id.clone(), hashed(definer.step(step))));
    steps.chain(definer.orchestrator().map(|parts| (StepId::from(ORCHESTRATOR), hashed(parts)))).collect()
}

fn hashed(parts: Map<String, Value>) -> BTreeMap<String, String> {
    let hash = |value: &Value| BlobId::of(value.to_string().as_bytes()).0[..DIGITS].to_owned();
    parts.into_iter().filter(|(_, value)| !value.is_null()).map(|(part, value)| (part, hash(&value))).collect()
}

struct Definer<'a> {
    plan: &'a Plan,
    resolved: Resolved<'a>,
}

impl Definer<'_> {
    /// Every field of a step is named here, so that whoever adds one says whether it counts.
    fn step(&self, step: &PlannedStep) -> Map<String, Value> {
        let PlannedStep { id: _, span: _, work, condition, for_each, matrix, retry_with, cache, workspace, cwd, scope, reads: _, .. } = step;
        let PlannedStep {
            writes, verify, output_schema, parse, item_schema: _, file, budget: _, timeout: _, idle_timeout: _, retry, allow_failure, env, ..
        } = step;
        let (None | Some(Cache { key: _, inputs: _ })) = cache;
        let (None | Some(Retry { .. })) = retry;
        let mut parts = self.work(work);
        let mut add = |part: &str, value: Value| drop(parts.insert(part.to_owned(), value));
        let needs: Vec<Value> = self.plan.needs(&step.id).map(|(step, on)| json!([step.id, format!("{on:?}")])).collect();
        add("needs", if needs.is_empty() { Value::Null } else { Value::Array(needs) });
        add("if", one(condition.as_ref()));
        add("for_each", for_each.as_ref().map_or(Value::Null, items));
        add("matrix", matrix.as_ref().map_or(Value::Null, combinations));
        add("retry_with", retry_with.as_ref().map_or(Value::Null, |agent| Value::Object(self.agent(agent))));
        add("workspace", place(workspace));
        add("cwd", one(cwd.as_ref()));
        let globs = scope.as_ref().map(|scope| match &scope.value {
            Scope::Globs(globs) => all(globs),
            Scope::Template(text) => json!(text),
        });
        add("scope", if globs.is_none() && !writes { Value::Null } else { json!([globs, writes]) });
        add("verify", verify.as_ref().map_or(Value::Null, |Verify { run, attempts: _ }| all(run)));
        let output = json!([output_schema, parse.map(|parse| format!("{parse:?}")), one(file.as_ref())]);
        add("output", if output_schema.is_none() && parse.is_none() && file.is_none() { Value::Null } else { output });
        add("allow_failure", if *allow_failure { json!(true) } else { Value::Null });
        add("env", if env.is_empty() { Value::Null } else { named(env) });
        parts
    }

    fn work(&self, work: &Work) -> Map<String, Value> {
        let parts = match work {
            Work::Agent { agent, prompt } => {
                let mut parts = self.agent(agent);
                parts.insert("prompt".to_owned(), json!(prompt.value));
                return parts;
            }
            Work::Run { command } => json!({"run": command.value}),
            Work::Merge(merge) => json!({
                "merge": [merge.from, format!("{:?}", merge.mode), format!("{:?}", merge.order), format!("{:?}", merge.then), format!("{:?}", merge.on_red)],
                "checks": all(&merge.verify),
                "agent": merge.resolver.as_ref().map(|agent| self.agent(agent)),
            }),
            Work::Select(select) => json!({
                "select": [select.from, format!("{:?}", select.tie)],
                "gates": all(&select.gates),
                "judge": select.judge.as_ref().map(|judge| json!([judge.votes, judge.blind, one(judge.rubric.as_ref()), judge.criteria])),
                "agent": select.judge.as_ref().map(|judge| self.agent(&judge.agent)),
            }),
            Work::Approve(Approve { message, show, timeout: _, on_timeout }) => {
                json!({"approve": message.value, "show": show.map(|show| format!("{show:?}")), "on_timeout": on_timeout.as_deref().map(|then| format!("{then:?}"))})
            }
            Work::Workflow(call) => {
                json!({"workflow": [self.whole(&call.plan), inputs(&call.plan)], "with": call.with.iter().map(|(name, value)| json!([name, value.value])).collect::<Value>()})
            }
            Work::Loop(spec) => json!({"steps": self.whole(&spec.body), "until": spec.until.value}),
        };
        if let Value::Object(parts) = parts { parts } else { Map::new() }
    }

    /// All that is inside of a step, what it is given aside.
    fn whole(&self, plan: &Plan) -> Value {
        let endings = [&plan.on_failure, &plan.finally].map(|ending| ending.as_ref().map(|plan| definitions(plan, self.resolved)));
        let outputs = plan.outputs.iter().map(|(name, text)| json!([name, text.value]));
        json!([definitions(plan, self.resolved), endings, outputs.collect::<Value>()])
    }

    fn orchestrator(&self) -> Option<Map<String, Value>> {
        let spec = self.plan.orchestrator.as_ref()?;
        let mut parts = self.agent(self.plan.agents.get(&spec.agent.name)?);
        parts.insert("orchestrator".to_owned(), json!([format!("{:?}", spec.may), format!("{:?}", spec.wake), spec.supervises]));
        // It is told of all steps when it begins.
        let steps: Vec<Value> = self.plan.steps().map(|step| json!([step.id, step.is_fan()])).collect();
        parts.insert("steps".to_owned(), json!([self.plan.name, self.plan.description, steps]));
        Some(parts)
    }

    /// What an agent is, with whoever it may start.
    fn agent(&self, agent: &AgentSpec) -> Map<String, Value> {
        let mut parts = self.alone(agent);
        if steps::may_delegate(agent) {
            let others = self.plan.agents.values().map(|other| json!([other.name, other.description, self.alone(other)]));
            parts.insert("agents".to_owned(), others.collect());
        }
        parts
    }

    fn alone(&self, agent: &AgentSpec) -> Map<String, Value> {
        let pinned = |kind: &str, names: &mut dyn Iterator<Item = &str>| -> Value {
            let named: Vec<Value> = names.map(|name| json!([name, self.resolved.pins.get(&format!("{kind}:{name}"))])).collect();
            if named.is_empty() { Value::Null } else { Value::Array(named) }
        };
        let AgentSpec { name, system, description: _, model, access, tools, provider_tools, servers, skills, hooks, rules, sandbox, .. } = agent;
        let AgentSpec { limits: _, on_exceed: _, idle_timeout: _, cwd, max_depth, max_parallel: _, .. } = agent;
        // What a template may choose is all of its kind.
        let chosen_skills = self.resolved.pins.keys().filter_map(|pin| pin.strip_prefix("skill:")).filter(|_| skills.iter().any(|name| is_template(name)));
        let chosen_models = model
            .choices
            .iter()
            .any(|name| is_template(name))
            .then(|| self.plan.models.iter().map(|(name, model)| json!([name, model.choices, model.effort])).collect::<Vec<_>>());
        let parts = json!({
            "agent": [name, format!("{access:?}"), one(cwd.as_ref()), max_depth],
            "system": system,
            "model": [model.choices, model.effort, chosen_models],
            "tools": [tools, provider_tools],
            "servers": if servers.is_empty() { Value::Null } else { servers.iter().map(|(name, server)| server.made_of(name)).collect() },
            "sandbox": if *sandbox == SandboxSpec::default() { Value::Null } else { json!([sandbox.network.made_of(), sandbox.read, sandbox.write]) },
            "rules": [rules.allow, rules.ask, rules.deny],
            "skills": pinned("skill", &mut skills.iter().map(String::as_str).filter(|name| !is_template(name)).chain(chosen_skills)),
            "hooks": pinned("hook", &mut hooks.iter().map(String::as_str).chain(self.resolved.always.iter().copied())),
        });
        if let Value::Object(parts) = parts { parts } else { Map::new() }
    }
}

/// What a workflow is called with. The body of a loop has the inputs of what it stands in, and those that it reads stand in its texts.
fn inputs(plan: &Plan) -> Value {
    plan.inputs.iter().map(|(name, input)| json!([name, input.required, input.default.as_ref().map(|value| &value.value), input.schema])).collect()
}

fn one(text: Option<&Spanned<String>>) -> Value {
    text.map_or(Value::Null, |text| json!(text.value))
}

fn is_template(name: &str) -> bool {
    name.contains("{{")
}

fn all(texts: &[Spanned<String>]) -> Value {
    texts.iter().map(|text| json!(text.value)).collect()
}

fn named(texts: &[(String, Spanned<String>)]) -> Value {
    texts.iter().map(|(name, text)| json!([name, text.value])).collect()
}

fn items(written: &ForEach) -> Value {
    let ForEach { items, name, key, needs, max_parallel: _, fail_fast, join, on_item_failure } = written;
    let failure = match on_item_failure {
        crate::workflow::OnItemFailure::RetryWith(agent) => agent.value.clone(),
        other => format!("{other:?}"),
    };
    json!([items.value, name.value, one(key.as_ref()), one(needs.as_ref()), fail_fast, format!("{join:?}"), failure])
}

fn combinations(written: &Matrix) -> Value {
    let Matrix { axes, exclude, max_parallel: _, fail_fast, join } = written;
    let axes: Vec<Value> = axes.iter().map(|(name, values)| json!([name.value, values.value])).collect();
    let excluded: Vec<&Value> = exclude.iter().map(|excluded| &excluded.value).collect();
    json!([axes, excluded, fail_fast, format!("{join:?}")])
}

fn place(workspace: &Workspace) -> Value {
    let Workspace { kind, base, setup, copy, link, sparse, env } = workspace;
    let base = match base {
        Base::Ref(name) => name.value.clone(),
        Base::Head | Base::Dirty => format!("{base:?}"),
    };
    let env: Vec<Value> = env.iter().map(|(name, text)| json!([name.value, text.value])).collect();
    json!([format!("{kind:?}"), base, all(setup), all(copy), all(link), all(sparse), env])
}
