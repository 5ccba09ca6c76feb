//! Agents, resolved: what the workflow says, on top of what an agent file says, within what the run allows.
use super::{
    AgentSpec, Catalog, Limits, ModelSpec, NamedBy, RuleFlaws, Rules, SandboxSpec, ServerReach, ServerSpec,
    findings::{AGENT, AGENT_FILE, Findings, HOOK, SERVER, SKILL, TOOL, suggestion},
    limits::{check_asking, check_within},
    matrix::rendered,
    models::Models,
    written::Written,
};
use crate::{
    message::ProviderTool,
    source::{Diagnostic, Span, Spanned, codes},
    workflow::{Access, Agent, Budget, Chosen, Entries, OnExceed, Permissions, Power, Reach, Server, Step, Text, Workflow},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Starts sub-agents: never among an agent's tools unless it is named.
const DELEGATE: &str = "Agent";
/// Runs shell commands: a reader keeps it, for commands that only read.
const SHELL: &str = "Bash";

/// All agents that the workflow may name.
pub(super) struct Agents<'a> {
    workflow: &'a Workflow,
    catalog: &'a Catalog,
    models: Models<'a>,
    run_limits: Limits,
    written: &'a Written,
    resolved: BTreeMap<String, Option<Arc<AgentSpec>>>,
    used: BTreeSet<String>,
    /// Limits in dollars, each with a model whose price is not known, that have been told.
    unpriced: BTreeSet<(Span, String)>,
    /// Agents at work that may start any other, where each is named, and the budget of that step.
    starters: Vec<(String, Spanned<String>, Option<Spanned<Budget>>)>,
    default_model: Option<ModelSpec>,
}

impl<'a> Agents<'a> {
    /// Resolves every agent of the workflow; those of files when they are first named.
    pub(super) fn new(workflow: &'a Workflow, catalog: &'a Catalog, (run_limits, written): (Limits, &'a Written), findings: &mut Findings<'_>) -> Agents<'a> {
        let models = Models::new(workflow, catalog, findings);
        let default_model = match (&workflow.defaults.model, &catalog.default_model) {
            (Some(name), _) => models.resolve(name, NamedBy::Defaults, findings),
            (None, Some(name)) => models.resolve(&Spanned::new(name.clone(), workflow.name.span), NamedBy::Nobody, findings),
            (None, None) => None,
        };
        findings.check_names(&SKILL, &workflow.skills, &catalog.skills.keys());
        findings.check_names(&HOOK, &workflow.hooks.named, &catalog.hooks.iter());
        let mut agents = Agents {
            workflow,
            catalog,
            models,
            run_limits,
            written,
            resolved: BTreeMap::new(),
            used: BTreeSet::new(),
            unpriced: BTreeSet::new(),
            starters: Vec::new(),
            default_model,
        };
        agents.check_rules(&workflow.permissions, findings);
        for (name, _) in &workflow.agents {
            agents.resolve(name, findings);
        }
        agents
    }

    /// Returns an agent that the orchestrator, a merge or a choice puts to work, within the budget of that step.
    pub(super) fn at_work(&mut self, name: &Spanned<String>, step: Option<&Step>, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let agent = self.named(name, findings)?;
        if !self.require_model(&agent, name, findings) {
            return None;
        }
        let budget = step.and_then(|step| step.budget.as_ref());
        self.check_prices(&agent, name, step, findings);
        let limits = agent.limits.narrowed(budget.map(|budget| &budget.value));
        Some(if limits == agent.limits { agent } else { Arc::new(AgentSpec { limits, ..(*agent).clone() }) })
    }

    /// Returns the agent that watches over a run: it only reads, whatever it may do at a step, and has its powers besides.
    pub(super) fn watcher(&mut self, name: &Spanned<String>, may: &[Power], findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let mut agent = (*self.at_work(name, None, findings)?).clone();
        (agent.access, agent.sandbox) = (Access::Read, agent.sandbox.to_read());
        agent.tools.retain(|tool| !writes(self.catalog, tool) && !tool.starts_with("mcp__"));
        agent.tools = sorted(agent.tools.into_iter().chain(may.iter().map(|power| power.tool().to_owned())));
        Some(Arc::new(agent))
    }

    /// Returns the agent of a step with the step's own overrides.
    pub(super) fn for_step(&mut self, name: &Spanned<String>, step: &Step, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        self.check_names_of(step, findings);
        let chosen = step.model.as_ref().map(|model| {
            let template = model.contains("{{").then(|| self.models.resolve_template(model, step, findings));
            template.or_else(|| self.models.resolve(model, NamedBy::Step, findings))
        });
        let agent = self.named(name, findings)?;
        let model = match chosen {
            Some(model) => Some(model?),
            None if self.require_model(&agent, name, findings) => None,
            None => return None,
        };
        Some(self.overridden(&agent, model, (name, step), findings))
    }

    /// Returns the agent that tries a failed item once more: with what the step says besides the model.
    pub(super) fn stand_in(&mut self, name: &Spanned<String>, step: &Step, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let agent = self.named(name, findings)?;
        if !self.require_model(&agent, name, findings) {
            return None;
        }
        Some(self.overridden(&agent, None, (name, step), findings))
    }

    fn overridden(
        &mut self,
        agent: &Arc<AgentSpec>,
        model: Option<ModelSpec>,
        (name, step): (&Spanned<String>, &Step),
        findings: &mut Findings<'_>,
    ) -> Arc<AgentSpec> {
        let nothing = step.effort.is_none() && step.skills.is_empty() && step.hooks.is_empty() && step.budget.is_none() && step.idle_timeout.is_none();
        if model.is_none() && nothing {
            self.check_prices(agent, name, Some(step), findings);
            return agent.clone();
        }
        let mut own = (**agent).clone();
        if let Some(model) = model {
            own.model = ModelSpec { effort: own.effort.clone().or(model.effort), ..model };
        }
        if step.effort.is_some() {
            own.model.effort.clone_from(&step.effort);
        }
        own.skills = sorted(own.skills.into_iter().chain(values(&step.skills)));
        own.hooks = in_order(own.hooks.into_iter().chain(self.written.names(&step.hooks)));
        own.limits = own.limits.narrowed(step.budget.as_deref());
        own.idle_timeout = step.idle_timeout.unwrap_or(own.idle_timeout);
        self.check_prices(&own, name, Some(step), findings);
        Arc::new(own)
    }

    /// Checks the skills and hooks that a step names; a template of a skill as far as its matrix tells what it gives.
    fn check_names_of(&self, step: &Step, findings: &mut Findings<'_>) {
        let (templates, plain): (Vec<_>, Vec<_>) = step.skills.iter().cloned().partition(|skill| skill.contains("{{"));
        let given = templates.iter().flat_map(|skill| rendered(skill, step).unwrap_or_default().into_iter().map(|name| Spanned::new(name, skill.span)));
        let names: Vec<Spanned<String>> = plain.into_iter().chain(given).collect();
        findings.check_names(&SKILL, &names, &self.catalog.skills.keys());
        findings.check_names(&HOOK, &step.hooks.named, &self.catalog.hooks.iter());
    }

    /// Reports a limit in dollars that cannot be held, since nobody knows what a model costs and no tokens are limited. Whom the
    /// agent may start is looked at when all agents are known.
    fn check_prices(&mut self, agent: &AgentSpec, name: &Spanned<String>, step: Option<&Step>, findings: &mut Findings<'_>) {
        // The limit that is missing may be what could not be read.
        if step.is_some_and(|step| findings.flaws.of_step(&step.id)) {
            return;
        }
        let step = step.and_then(|step| step.budget.as_ref());
        if agent.tools.iter().any(|tool| tool == DELEGATE) {
            self.starters.push((agent.name.clone(), name.clone(), step.cloned()));
        }
        let budgets: Vec<&Spanned<Budget>> = self.budget_of(&agent.name).into_iter().chain(step).chain(&self.workflow.budget).collect();
        self.check_price(agent, &budgets, (name.span, format!("`{}` may use that model", agent.name)), findings);
    }

    /// The same for all that those agents may start who may start any.
    fn check_started(&mut self, findings: &mut Findings<'_>) {
        for (starter, name, step) in std::mem::take(&mut self.starters) {
            for agent in self.resolved.values().flatten().cloned().collect::<Vec<_>>() {
                let around = self.budget_of(&starter).into_iter().chain(&step).chain(&self.workflow.budget);
                let budgets: Vec<&Spanned<Budget>> = self.budget_of(&agent.name).into_iter().chain(around).collect();
                let why = format!("`{starter}` has the tool `{DELEGATE}`, and may start `{}`, which may use that model", agent.name);
                self.check_price(&agent, &budgets, (name.span, why), findings);
            }
        }
    }

    /// Returns what the workflow says an agent may use.
    fn budget_of(&self, agent: &str) -> Option<&'a Spanned<Budget>> {
        self.workflow.agents.iter().find(|(known, _)| known.value == agent).and_then(|(_, own)| own.budget.as_ref())
    }

    /// `budgets` are all that hold for a session, the narrowest first.
    fn check_price(&mut self, agent: &AgentSpec, budgets: &[&Spanned<Budget>], (at, why): (Span, String), findings: &mut Findings<'_>) {
        let Some(usd) = budgets.iter().find_map(|budget| budget.usd.as_ref()) else { return };
        let flaws = &self.workflow.flaws;
        if flaws.within("budget") || flaws.of_entry("agents", &agent.name) {
            return;
        }
        if budgets.iter().any(|budget| budget.tokens.is_some()) {
            return;
        }
        for model in agent.model.choices.iter().filter(|model| !model.contains("{{")) {
            if (self.catalog.prices.0)(model) || !self.unpriced.insert((usd.span, model.clone())) {
                continue;
            }
            let error = findings.error(codes::NO_PRICE, usd.span, format!("nobody knows what `{model}` costs, so that a limit in dollars does not hold it"));
            findings.report(error.label("cannot be held").also(at, why.clone()).help("limit `tokens` as well"));
        }
    }

    /// Ends the compilation of agents: every agent that has a model, and warnings for those that nothing uses.
    pub(super) fn finish(mut self, findings: &mut Findings<'_>) -> BTreeMap<String, Arc<AgentSpec>> {
        let files: Vec<&String> = self.catalog.agents.keys().collect();
        for name in files {
            if !self.resolved.contains_key(name) {
                // Nothing names it, so that what is wrong with it is nobody's concern here.
                let mut unheard = Findings::new(self.workflow);
                self.resolve(&Spanned::new(name.clone(), Span::default()), &mut unheard);
            }
        }
        self.check_started(findings);
        let delegates = self.used.iter().filter_map(|name| self.resolved.get(name)?.as_ref()).any(|agent| agent.tools.iter().any(|tool| tool == DELEGATE));
        for (name, _) in self.workflow.agents.iter().filter(|(name, _)| !delegates && !self.used.contains(&name.value)) {
            let unused = findings.warning(codes::UNUSED_AGENT, name.span, format!("nothing uses the agent `{}`", name.value));
            findings.report(unused);
        }
        self.resolved.into_iter().filter_map(|(name, agent)| agent.filter(|agent| !agent.model.choices.is_empty()).map(|agent| (name, agent))).collect()
    }

    /// Returns what each alias of a model stands for.
    pub(super) fn aliases(&self) -> BTreeMap<String, ModelSpec> {
        self.models.aliases()
    }

    fn named(&mut self, name: &Spanned<String>, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        let known = self.workflow.agents.iter().any(|(known, _)| known.value == name.value) || self.catalog.agents.contains_key(&name.value);
        if !known {
            let known: BTreeSet<&str> =
                self.workflow.agents.iter().map(|(name, _)| name.as_str()).chain(self.catalog.agents.keys().map(String::as_str)).collect();
            findings.unknown(&AGENT, name, known.iter().copied());
            return None;
        }
        if !self.used.contains(&name.value) {
            self.used.insert(name.value.clone());
        }
        self.resolve(name, findings)
    }

    fn require_model(&self, agent: &AgentSpec, name: &Spanned<String>, findings: &mut Findings<'_>) -> bool {
        let flaws = &self.workflow.flaws;
        let is_unread = flaws.within("defaults") || flaws.within("models") || flaws.of_entry("agents", &agent.name);
        if agent.model.choices.is_empty() && !is_unread && !self.model_failed(&agent.name) {
            let place = self.workflow.agents.iter().find(|(known, _)| known.value == agent.name).map_or(name.span, |(known, _)| known.span);
            let error = findings.error(codes::NO_MODEL, place, format!("the agent `{}` has no model", agent.name));
            findings.report(error.help("give it `model: provider/model`, or all of them by `defaults: { model: … }`"));
        }
        !agent.model.choices.is_empty()
    }

    /// Returns whether a model is named for an agent and has been found to be wrong.
    fn model_failed(&self, name: &str) -> bool {
        let own = self.workflow.agents.iter().find(|(known, _)| known.value == name).and_then(|(_, agent)| agent.model.as_ref());
        own.or(self.workflow.defaults.model.as_ref()).is_some() || self.catalog.default_model.is_some()
    }

    fn resolve(&mut self, name: &Spanned<String>, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
        if let Some(resolved) = self.resolved.get(&name.value) {
            return resolved.clone();
        }
        let own = self.workflow.agents.iter().find(|(known, _)| known.value == name.value).map(|(_, agent)| agent);
        let base = match own.and_then(|own| own.base.as_ref()) {
            Some(file) => self.file(file, findings),
            None if own.is_none() => self.catalog.agents.get(&name.value).map(|file| (&file.agent, name.span)),
            None => None,
        };
        let agent = self.build(name, own, base, findings).map(Arc::new);
        self.resolved.insert(name.value.clone(), agent.clone());
        agent
    }

    /// Finds the agent file that `use` names: by its name, or as a path that ends in it.
    fn file(&self, file: &Spanned<String>, findings: &mut Findings<'_>) -> Option<(&'a Agent, Span)> {
        let name = file.value.rsplit('/').next().unwrap_or(&file.value);
        let name = name.strip_suffix(".md").unwrap_or(name);
        let found = self.catalog.agents.get(name).map(|found| (&found.agent, file.span));
        if found.is_none() {
            findings.unknown(&AGENT_FILE, file, self.catalog.agents.keys().map(String::as_str));
        }
        found
    }

    fn build(&self, name: &Spanned<String>, own: Option<&Agent>, base: Option<(&Agent, Span)>, findings: &mut Findings<'_>) -> Option<AgentSpec> {
        let nothing = Agent::default();
        let (file, file_at) = base.unwrap_or((&nothing, name.span));
        let own = own.unwrap_or(&nothing);
        findings.check_names(&SKILL, &own.skills, &self.catalog.skills.keys());
        findings.check_names(&HOOK, &own.hooks.named, &self.catalog.hooks.iter());
        self.check_rules(&own.permissions, findings);
        check_within(own.budget.as_ref(), self.workflow.budget.as_ref(), "the whole run", findings);
        check_asking(own.budget.as_ref(), &format!("the budget of agent `{}`", name.value), findings);
        let system = own.system.as_ref().or(file.system.as_ref()).map_or_else(|| Some(String::new()), |system| Some(text(system, self.catalog, findings)?.0));
        let known_skill = |skill: &String| self.catalog.skills.contains_key(skill);
        let known_hook = |hook: &String| self.catalog.hooks.contains(hook);
        for (what, missing) in [("skill", missing(&file.skills, known_skill)), ("hook", missing(&file.hooks.named, known_hook))] {
            if !missing.is_empty() {
                let message = format!("the agent file of `{}` names a {what} that is not known here: {}", name.value, missing.join(", "));
                findings.report(findings.warning(codes::IGNORED, file_at, message));
            }
        }
        let hooks = |hooks| self.written.names(hooks).into_iter();
        let rules = self.rules(&own.permissions, &file.permissions);
        for tool in &own.provider_tools {
            let names = |rule: &&String| *rule == tool.word() || *rule == tool.claude();
            if let Some(rule) = rules.deny.iter().chain(&rules.ask).find(names) {
                let message =
                    format!("`{}` runs at the provider, where nobody can ask or refuse: the rule `{rule}` means that it is not declared", tool.word());
                findings.report(findings.warning(codes::TOOL_REMOVED, tool.span, message).help("take the tool or the rule out"));
            }
        }
        let access = own.access.or(file.access).unwrap_or_default();
        let limits = self.limits(own, file);
        let model = self.model(own, file, file_at, findings);
        self.check_provider_tools(own, &model, findings);
        let named = sorted(values(&self.workflow.skills).chain(values(&file.skills).filter(known_skill)).chain(values(&own.skills)));
        // As in Claude Code: who names no skill may open any that is offered.
        let skills = if named.is_empty() { self.catalog.offered_skills.iter().cloned().collect() } else { named };
        let servers = self.servers(own, findings);
        let spec = AgentSpec {
            name: name.value.clone(),
            system: String::new(),
            description: own.description.clone().or_else(|| file.description.clone()).unwrap_or_default(),
            model,
            effort: effort(own, file),
            access,
            tools: Tools { own, file, file_at, access, deny: &rules.deny, catalog: self.catalog, servers: &servers }.select(findings),
            provider_tools: own.provider_tools.iter().map(|tool| tool.value).collect::<BTreeSet<_>>().into_iter().collect(),
            servers,
            skills,
            hooks: in_order(hooks(&self.workflow.hooks).chain(values(&file.hooks.named).filter(known_hook)).chain(hooks(&own.hooks))),
            rules,
            sandbox: SandboxSpec::judged(own.sandbox.as_ref(), access, findings),
            limits,
            on_exceed: own.budget.as_ref().or(file.budget.as_ref()).map(|budget| budget.on_exceed).unwrap_or_default(),
            idle_timeout: own.idle_timeout.or(file.idle_timeout).or(self.workflow.defaults.idle_timeout).unwrap_or(AgentSpec::IDLE_TIMEOUT),
            cwd: own.cwd.clone().or_else(|| file.cwd.clone()),
            max_depth: own.max_depth.as_deref().or(file.max_depth.as_deref()).copied().unwrap_or(AgentSpec::MAX_DEPTH),
            max_parallel: own.max_parallel.as_deref().or(file.max_parallel.as_deref()).copied().unwrap_or(AgentSpec::MAX_PARALLEL),
        };
        Some(AgentSpec { system: system?, ..spec })
    }

    /// Judges rules as they are written: one that was to protect something and does not is an error.
    fn check_rules(&self, permissions: &Permissions, findings: &mut Findings<'_>) {
        let Permissions { allow, ask, deny } = permissions;
        for (list, rules) in [("allow", allow), ("ask", ask), ("deny", deny)] {
            for rule in rules {
                let RuleFlaws { odd, is_ignored, unknown_tool } = (self.catalog.rule_lint.0)(rule, list);
                let is_known = |tool: &String| {
                    let is_power = [Power::AddItems, Power::Retry, Power::Stop, Power::Ask].iter().any(|power| power.tool() == tool);
                    is_power || self.catalog.tools.contains_key(tool) || ProviderTool::NAMED.iter().any(|(word, known)| word == tool || known.claude() == tool)
                };
                if let Some(tool) = unknown_tool.filter(|tool| !is_known(tool)) {
                    findings.unknown(&TOOL, &Spanned::new(tool, rule.span), self.catalog.tools.keys().map(String::as_str));
                    continue;
                }
                for odd in odd {
                    let protects = is_ignored && list != "allow";
                    findings.report(if protects { findings.error(codes::NO_RULE, rule.span, odd) } else { findings.warning(codes::ODD_RULE, rule.span, odd) });
                }
            }
        }
    }

    /// Returns the servers of an agent: the file's, as far as it does not say otherwise, and its own.
    fn servers(&self, own: &Agent, findings: &mut Findings<'_>) -> BTreeMap<String, ServerSpec> {
        let of = |(name, server): &(Spanned<String>, Server)| (name.value.clone(), self.server(server));
        let mut all: BTreeMap<String, ServerSpec> = self.workflow.servers.iter().map(of).collect();
        match &own.servers {
            Some(Chosen::Only(names)) => {
                findings.check_names(&SERVER, names, &all.keys());
                all.retain(|name, _| names.iter().any(|only| only.value == *name));
            }
            Some(Chosen::More(servers)) => all.extend(servers.iter().map(of)),
            None => {}
        }
        all
    }

    fn server(&self, server: &Server) -> ServerSpec {
        let given = |said: &Entries<Spanned<String>>| said.iter().map(|(name, text)| (name.value.clone(), text.value.clone())).collect();
        ServerSpec {
            reach: match &server.reach {
                Reach::Program { command, args, env } => ServerReach::Program { command: command.value.clone(), args: values(args).collect(), env: given(env) },
                Reach::Address { url, headers } => ServerReach::Address { url: url.value.clone(), headers: given(headers) },
            },
            timeout: server.timeout,
            start_timeout: server.start_timeout,
            trusted: self.workflow.trusted,
        }
    }

    /// Joins rules: the workflow's first, then the file's, then the agent's own.
    fn rules(&self, own: &Permissions, file: &Permissions) -> Rules {
        let all = [&self.workflow.permissions, file, own];
        let join = |pick: fn(&Permissions) -> &Vec<Spanned<String>>| in_order(all.iter().flat_map(|permissions| values(pick(permissions))));
        Rules { allow: join(|p| &p.allow), ask: join(|p| &p.ask), deny: join(|p| &p.deny) }
    }

    /// Lays the agent's own limits over those of its file; `max_turns` and a budget's `turns` both hold, as do the times.
    fn limits(&self, own: &Agent, file: &Agent) -> Limits {
        fn both<T: Ord + Copy>(a: Option<T>, b: Option<T>, otherwise: T) -> T {
            a.into_iter().chain(b).min().unwrap_or(otherwise)
        }
        let layer = |limits: Limits, agent: &Agent| {
            let budget = agent.budget.as_deref();
            let turns = budget.and_then(|budget| budget.turns.as_deref().copied());
            let time = budget.and_then(|budget| budget.time.as_deref().copied());
            Limits {
                turns: both(agent.max_turns.as_deref().copied(), turns, limits.turns),
                time: both(agent.timeout, time, limits.time),
                ..limits.replaced(budget)
            }
        };
        let limits = layer(layer(Limits::SESSION, file), own);
        // Where a person may raise the run's limits, they are held by the run's own account alone.
        let may_rise = self.workflow.budget.as_ref().is_some_and(|budget| budget.on_exceed == OnExceed::Ask);
        if may_rise { limits } else { limits.within(&self.run_limits) }
    }

    /// Each of an agent's models has to run the tools that are declared to it: another one must not be found out when it takes over.
    fn check_provider_tools(&self, own: &Agent, model: &ModelSpec, findings: &mut Findings<'_>) {
        let Some(tool) = own.provider_tools.first() else { return };
        let has_none = |choice: &&String| choice.split_once('/').is_some_and(|(provider, _)| self.catalog.without_tools.contains(provider));
        for choice in model.choices.iter().filter(has_none) {
            let message = format!("`{choice}` is asked by a protocol that has no `{}`", tool.value.word());
            findings.report(findings.error(codes::NOT_RUN_THERE, tool.span, message).help("take the tool out, or give the agent models of another provider"));
        }
    }

    fn model(&self, own: &Agent, file: &Agent, file_at: Span, findings: &mut Findings<'_>) -> ModelSpec {
        let named = match (&own.model, &file.model) {
            (Some(model), _) => self.models.resolve(model, NamedBy::Agent, findings),
            (None, Some(model)) => self.models.resolve(&Spanned::new(model.value.clone(), file_at), NamedBy::AgentFile, findings),
            (None, None) => self.default_model.clone(),
        };
        let model = named.unwrap_or_default();
        ModelSpec { effort: effort(own, file).or(model.effort), ..model }
    }
}

fn effort(own: &Agent, file: &Agent) -> Option<String> {
    own.effort.clone().or_else(|| file.effort.clone())
}

/// Chooses the tools of one agent.
struct Tools<'a> {
    own: &'a Agent,
    file: &'a Agent,
    file_at: Span,
    access: Access,
    deny: &'a [String],
    catalog: &'a Catalog,
    servers: &'a BTreeMap<String, ServerSpec>,
}

impl Tools<'_> {
    /// Returns their names, sorted: those named, or all; less those that `access` or a bare deny rule forbids.
    fn select(&self, findings: &mut Findings<'_>) -> Vec<String> {
        let known = || self.catalog.tools.keys().map(String::as_str);
        let served: Vec<String> = self.servers.keys().map(|server| ServerSpec::all_of(server)).collect();
        let mut chosen: BTreeSet<&str> = BTreeSet::new();
        if let Some(tools) = &self.own.tools {
            for tool in tools {
                match self.catalog.tools.get_key_value(&tool.value) {
                    Some((name, _)) if self.forbidden_by_access(name) => {
                        let warning = findings.warning(codes::TOOL_REMOVED, tool.span, format!("`{name}` writes, and this agent's access is `read`"));
                        findings.report(warning.help("give it `access: write`, or take the tool out"));
                    }
                    Some((name, _)) => {
                        chosen.insert(name);
                    }
                    None if self.is_served(&tool.value) => drop(chosen.insert(&tool.value)),
                    None => findings.unknown(&TOOL, tool, known().chain(served.iter().map(String::as_str))),
                }
            }
        } else if let Some(tools) = &self.file.tools {
            let (there, missing): (Vec<&str>, Vec<&str>) =
                tools.iter().map(|tool| tool.as_str()).partition(|tool| self.catalog.tools.contains_key(*tool) || self.is_served(tool));
            if !missing.is_empty() {
                let message = format!("the agent file names tools that are not known here: {}", missing.join(", "));
                let ignored: Diagnostic = findings.warning(codes::IGNORED, self.file_at, message);
                findings.report(suggestion(missing[0], known(), "tools").into_iter().fold(ignored, Diagnostic::help));
            }
            chosen.extend(there);
        } else {
            chosen.extend(known().filter(|tool| *tool != DELEGATE).chain(served.iter().map(String::as_str)));
        }
        let allowed = chosen.into_iter().filter(|tool| !self.forbidden_by_access(tool) && !self.deny.iter().any(|rule| rule == tool));
        allowed.map(str::to_owned).collect()
    }

    /// Whether a name is that of a server's tools, all or one; which it has is known when it runs.
    fn is_served(&self, tool: &str) -> bool {
        let of = |server: &str| tool.strip_prefix("mcp__")?.strip_prefix(server)?.strip_prefix("__").filter(|own| !own.is_empty());
        self.servers.keys().any(|server| of(server).is_some())
    }

    fn forbidden_by_access(&self, tool: &str) -> bool {
        self.access == Access::Read && writes(self.catalog, tool)
    }
}

/// Returns whether a tool is none for agents that only read.
fn writes(catalog: &Catalog, tool: &str) -> bool {
    let reads = catalog.tools.get(tool).is_some_and(|(_, reads)| *reads);
    // Of those of servers it is known when they have told them.
    !reads && tool != SHELL && tool != DELEGATE && !tool.starts_with("mcp__")
}

/// Looks a text up: as it stands in the file, or in the prompt file it names, with that file's name.
pub(super) fn text(text: &Spanned<Text>, catalog: &Catalog, findings: &mut Findings<'_>) -> Option<(String, Option<String>)> {
    match &text.value {
        Text::Inline(text) => Some((text.clone(), None)),
        Text::File(path) => {
            let found = catalog.prompts.get(path).map(|text| (text.clone(), Some(path.clone())));
            if found.is_none() {
                let error = findings.error(codes::NO_FILE, text.span, format!("there is no prompt file `{path}`"));
                let near = crate::source::nearest(path, catalog.prompts.keys().map(String::as_str)).map(|near| format!("did you mean `{near}`? "));
                let as_text = "one line that ends in `.md` names a file; to write it as text, put it in a block: `|` and the text indented below";
                findings.report(error.help(format!("{}{as_text}", near.unwrap_or_default())));
            }
            found
        }
    }
}

fn missing(names: &[Spanned<String>], known: impl Fn(&String) -> bool) -> Vec<&str> {
    names.iter().filter(|name| !known(&name.value)).map(|name| name.as_str()).collect()
}

fn values(names: &[Spanned<String>]) -> impl Iterator<Item = String> {
    names.iter().map(|name| name.value.clone())
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    for name in names {
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}
