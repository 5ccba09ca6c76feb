//! Decodes a checked file: everything but its steps.
use super::{
    check, decode_steps,
    fields::Fields,
    flaws::Flaws,
    hooks::hooks,
    keys,
    sandbox::sandbox,
    servers::{chosen, servers},
    types::{Access, Agent, Budget, Defaults, Input, InputKind, ModelAlias, OnExceed, Orchestrator, Permissions, Power, Retry, RetryOn, Text, Workflow},
    words::Word as _,
    yaml,
};
use crate::{
    event::Wake,
    message::ProviderTool,
    source::{Diagnostics, Found, Source, Span, Spanned},
};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};

impl Workflow {
    /// Reads a workflow file, or tells everything that is wrong with its form. What its names mean is for `plan` to say.
    ///
    /// # Errors
    /// All errors of the file, in its order.
    pub fn load(source: &Arc<Source>) -> Result<Workflow, Diagnostics> {
        let workflow = Workflow::read(source)?;
        match workflow.flaws.errors {
            None => Ok(workflow),
            Some(errors) => Err(errors),
        }
    }

    /// Reads what can be read of a workflow file, for `plan` to judge it: what is wrong with its form is among its flaws, and what
    /// is not read is left out or stands as a placeholder in a step that is known to be flawed.
    ///
    /// # Errors
    /// Where the file is not YAML.
    pub fn read(source: &Arc<Source>) -> Result<Workflow, Diagnostics> {
        let root = yaml::parse(source).map_err(|error| Diagnostics::from(vec![*error]))?;
        let mut found = check::check(source, &root, &keys::FILE);
        let mut workflow = workflow(&Fields::new(source, &root, &keys::FILE), &mut found);
        match check::in_order(found) {
            Ok(warnings) => workflow.warnings = warnings,
            Err(errors) => {
                let known: Vec<&'static str> = keys::FILE.keys.iter().map(|key| key.name).collect();
                workflow.flaws = Flaws::new(&root, &known, errors);
            }
        }
        Ok(workflow)
    }
}

/// Finds where values of a workflow file stand by the keys and the numbers that lead to them: the last one of each way that is
/// there. The file is read anew for it, once for all of them.
pub fn places(source: &Arc<Source>, paths: &[&[String]]) -> Vec<Option<Span>> {
    let Ok(root) = yaml::parse(source) else { return vec![None; paths.len()] };
    paths.iter().map(|path| yaml::place_at(&root, path)).collect()
}

fn workflow(file: &Fields<'_>, found: &mut Found) -> Workflow {
    file.only_checked(&["version"]);
    let source = file.source;
    Workflow {
        source: source.clone(),
        name: file.text("name").unwrap_or_default(),
        description: file.string("description"),
        inputs: file.map("inputs").map(|(name, node)| (name.clone(), input(&Fields::new(source, node, &keys::INPUT)))).collect(),
        env: file.templates("env"),
        secrets: file.texts("secrets"),
        budget: budget(file),
        models: file.map("models").map(|(name, node)| (name.clone(), model(&Fields::new(source, node, &keys::MODEL)))).collect(),
        defaults: file.object("defaults", &keys::DEFAULTS).map(|fields| defaults(&fields)).unwrap_or_default(),
        agents: file.map("agents").map(|(name, node)| (name.clone(), agent(&Fields::new(source, node, &keys::AGENT), found))).collect(),
        orchestrator: file.object("orchestrator", &keys::ORCHESTRATOR).map(|fields| Spanned::new(orchestrator(&fields), fields.span)),
        schemas: file.map("schemas").map(|(name, node)| (name.clone(), Spanned::new(node.value.to_json(), name.span))).collect(),
        hooks: hooks(file),
        permissions: permissions(file),
        servers: servers(file, found),
        skills: file.texts("skills"),
        steps: decode_steps::steps(file, "steps", found),
        outputs: file.templates("outputs"),
        on_failure: decode_steps::steps(file, "on_failure", found),
        finally: decode_steps::steps(file, "finally", found),
        trusted: true,
        warnings: Vec::new(),
        flaws: Flaws::default(),
    }
}

fn input(fields: &Fields<'_>) -> Input {
    let words = ["type", "enum", "pattern", "minimum", "maximum", "items"];
    let schema: Map<String, Value> = words.iter().filter_map(|word| Some(((*word).to_owned(), fields.node(word)?.value.to_json()))).collect();
    Input {
        required: fields.flag("required"),
        default: fields.node("default").map(|node| Spanned::new(node.value.to_json(), node.span)),
        description: fields.string("description"),
        schema: Value::Object(schema),
        kind: fields.word::<InputKind>("type").unwrap_or(Spanned::new(InputKind::String, fields.key_span("type"))),
    }
}

/// Reads the key `budget`.
pub(super) fn budget(fields: &Fields<'_>) -> Option<Spanned<Budget>> {
    let budget = fields.object("budget", &keys::BUDGET)?;
    let limits = Budget {
        usd: budget.number("usd"),
        tokens: budget.whole("tokens"),
        time: budget.duration("time"),
        turns: budget.whole("turns"),
        on_exceed: budget.word::<OnExceed>("on_exceed").map(|word| word.value).unwrap_or_default(),
    };
    Some(Spanned::new(limits, budget.span))
}

/// Reads a model alias.
pub(super) fn model(fields: &Fields<'_>) -> ModelAlias {
    ModelAlias {
        choices: fields.texts("use"),
        effort: fields.string("effort"),
        max_output_tokens: fields.whole("max_output_tokens").map(|number| number.value),
    }
}

/// Reads `defaults`.
pub(super) fn defaults(fields: &Fields<'_>) -> Defaults {
    Defaults {
        model: fields.text("model"),
        timeout: fields.duration("timeout").map(|duration| duration.value),
        idle_timeout: fields.duration("idle_timeout").map(|duration| duration.value),
        retry: retry(fields),
        workspace: decode_steps::workspace(fields),
        max_parallel: fields.whole("max_parallel"),
    }
}

/// Reads the key `retry`: twice for transient errors, after 2 s and 4 s, where it says nothing else.
pub(super) fn retry(fields: &Fields<'_>) -> Option<Retry> {
    const BACKOFF: [(&str, bool); 2] = [("constant", false), ("exponential", true)];
    let retry = fields.object("retry", &keys::RETRY)?;
    let duration = |key, otherwise| retry.duration(key).map_or(Duration::from_secs(otherwise), |duration| duration.value);
    Some(Retry {
        max: retry.whole("max").map_or(2, |max| max.value),
        on: retry.words::<RetryOn>("on").map_or_else(|| vec![RetryOn::Transient], |words| words.into_iter().map(|word| word.value).collect()),
        delay: duration("delay", 2),
        exponential: retry.one_of("backoff", &BACKOFF).is_none_or(|word| word.value),
        max_delay: duration("max_delay", 60),
    })
}

fn agent(fields: &Fields<'_>, found: &mut Found) -> Agent {
    Agent {
        base: fields.text("use"),
        system: fields.text("system").map(text_or_file),
        description: fields.string("description"),
        model: fields.text("model"),
        effort: fields.string("effort"),
        access: fields.word::<Access>("access").map(|word| word.value),
        tools: fields.node("tools").map(|_| fields.texts("tools")),
        provider_tools: fields.some_of("provider_tools", &ProviderTool::NAMED).unwrap_or_default(),
        skills: fields.texts("skills"),
        hooks: hooks(fields),
        permissions: permissions(fields),
        servers: chosen(fields, found),
        sandbox: sandbox(fields),
        budget: budget(fields),
        max_turns: fields.whole("max_turns"),
        timeout: fields.duration("timeout").map(|duration| duration.value),
        idle_timeout: fields.duration("idle_timeout").map(|duration| duration.value),
        cwd: fields.text("cwd"),
        max_depth: fields.whole("max_depth"),
        max_parallel: fields.whole("max_parallel"),
    }
}

/// Tells text from the name of a prompt file: one line that ends in `.md`, in small letters as the language has it. A line
/// with a `#` is a heading that happens to end so.
#[expect(clippy::case_sensitive_file_extension_comparisons, reason = "the rule is of the language, not of a file system")]
pub(super) fn text_or_file(text: Spanned<String>) -> Spanned<Text> {
    let line = text.value.trim_end_matches(['\n', '\r']);
    let file = line.ends_with(".md") && !line.contains(['\n', '\r', '#']) && !line.contains("{{");
    let value = if file { Text::File(line.trim().to_owned()) } else { Text::Inline(text.value) };
    Spanned::new(value, text.span)
}

/// Reads the key `permissions`.
fn permissions(fields: &Fields<'_>) -> Permissions {
    fields
        .object("permissions", &keys::PERMISSIONS)
        .map(|rules| Permissions { allow: rules.texts("allow"), ask: rules.texts("ask"), deny: rules.texts("deny") })
        .unwrap_or_default()
}

fn orchestrator(fields: &Fields<'_>) -> Orchestrator {
    let all_powers = || Power::TABLE.iter().map(|(_, power)| Spanned::new(*power, fields.key_span("agent"))).collect();
    let all_wakes = || Wake::TABLE.iter().map(|(_, wake)| Spanned::new(*wake, fields.key_span("agent"))).collect();
    Orchestrator {
        agent: fields.text("agent").unwrap_or_default(),
        may: fields.words::<Power>("may").unwrap_or_else(all_powers),
        max_added: fields.whole("max_added").map_or(10, |max| max.value),
        wake: fields.words::<Wake>("wake").unwrap_or_else(all_wakes),
    }
}
