//! What is amiss here before anything is run: the machine, the configuration, the providers and the models that are named.
//!
//! One function an area, each giving a list of [`Check`]s; a new area is one more. Nothing is spent: a provider is asked for
//! its list of models, never a model. Nothing is left behind.
use super::{Models, Project, Settings, SetupError};
use crate::{
    clock::Clock,
    event::because,
    git,
    http::Client,
    journal::RunDir,
    library::{Kind, RootKind},
    llm::{Endpoint, Endpoints, ModelError, ModelErrorKind, fetch_models, lists, takes_key},
    sandbox::{self, Sandbox},
    source::nearest,
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is a part of: `machine`, `configuration`, `providers`, `runs`.
    pub area: &'static str,
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It was not, and is now.
    Mended,
    /// Runs are possible; something is missing that somebody may miss.
    Warn,
    /// Runs fail by it.
    Broken,
}

impl Check {
    fn new(area: &'static str, name: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Check {
        Check { area, name: name.into(), verdict, detail: detail.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Check {
        Check { hint: Some(hint.into()), ..self }
    }
}

/// Looks at the machine: git, the walls around agents' commands, and the folders that runs write to.
pub fn machine(settings: &Settings, project: Option<&Project>) -> Vec<Check> {
    let check = |name: &str, verdict, detail: String| Check::new("machine", name, verdict, detail);
    let mut checks = vec![match git::load_version(&settings.environment) {
        Ok(version) => check("git", Verdict::Fine, version),
        Err(error) => check("git", Verdict::Broken, because(&error)).hint(error.hint().unwrap_or("see that git is on PATH")),
    }];
    let path = settings.environment.get("PATH").map(Into::into);
    let walls = Sandbox::new(sandbox::Options { path, ..sandbox::Options::default() });
    checks.push(match walls.as_ref().map(Sandbox::bubblewrap) {
        Ok(Some(program)) => check("bubblewrap", Verdict::Fine, format!("agents' commands run inside walls ({})", program.display())),
        Ok(None) => check("bubblewrap", Verdict::Warn, "not there, or it does not work here: commands that could change something are asked about".to_owned())
            .hint("install bubblewrap, write allow rules, or say `--unconfined`"),
        Err(error) => check("shell", Verdict::Broken, because(error)),
    });
    let state = project.map(|project| ("state folder", RunDir::state(project.checkout())));
    for (name, folder) in state.into_iter().chain([("cache folder", settings.cache.clone())]) {
        checks.push(match try_writing(&folder) {
            Ok(()) => check(name, Verdict::Fine, format!("{} can be written", folder.display())),
            Err(error) => {
                check(name, Verdict::Broken, format!("{} cannot be written: {error}", folder.display())).hint("see whose it is, and whether the disk is full")
            }
        });
    }
    checks
}

/// Writes a file into the nearest folder that is there, and takes it away again.
fn try_writing(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder);
    let probe = there.join(format!(".spinney-doctor-{}", std::process::id()));
    fs::write(&probe, "x")?;
    fs::remove_file(&probe)
}

/// Looks at the repository, the configuration and what is found here.
pub fn configuration(project: Result<&Project, &SetupError>) -> Vec<Check> {
    let check = |name: &str, verdict, detail: String| Check::new("configuration", name, verdict, detail);
    let project = match project {
        Ok(project) => project,
        Err(SetupError::Git(error)) => {
            let broken = check("repository", Verdict::Broken, because(error));
            return vec![broken.hint(error.hint().unwrap_or("run it inside a git repository"))];
        }
        Err(error) => return vec![check("configuration", Verdict::Broken, because(error)).hint("`spinney config` shows what is wrong, with its place")],
    };
    let mut checks = vec![
        check("repository", Verdict::Fine, project.checkout().display().to_string()),
        check("configuration", Verdict::Fine, "it reads well; `spinney config` shows what holds".to_owned()),
    ];
    checks.extend(project.warnings.iter().map(|warning| check("warning", Verdict::Warn, warning.clone())));
    let untrusted: Vec<&str> = project.hooks.untrusted().collect();
    if !untrusted.is_empty() {
        let warn = check("trust", Verdict::Warn, format!("these hooks of the repository do not run: {}", untrusted.join(", ")));
        checks.push(warn.hint("look at them with `spinney trust`"));
    }
    checks
}

/// Returns the models that are named here, each with who names it: the configuration, whoever names none, and the project's own
/// workflows, as far as they compile.
pub fn named(project: &Project, models: &Models) -> BTreeMap<String, String> {
    let mut named = BTreeMap::new();
    let others = project.endpoints().other_names();
    for found in project.library.all(Kind::Workflow).into_iter().filter(|found| found.root == RootKind::Project) {
        let Ok((plan, _)) = project.workflow(&found.name).and_then(|workflow| project.compile(&workflow, models)) else { continue };
        for choice in plan.agents.values().flat_map(|agent| &agent.model.choices).filter(|choice| !choice.contains("{{")) {
            named.insert(choice.clone(), format!("workflow `{}`", found.name));
        }
    }
    for (alias, (said, file)) in project.configuration.aliases() {
        named.extend(said.choices.iter().map(|choice| (others.own(choice), format!("alias `{alias}` of {file}"))));
    }
    let default = models.default.clone().filter(|default| default.contains('/'));
    named.extend(default.map(|default| (others.own(&default), "whoever names none".to_owned())));
    named
}

/// Looks at the providers that have a key or are named, and at the models that are named: whether they can be reached, take the
/// key, have the models, and whether the prices are known.
pub async fn providers(client: &Client, endpoints: &Endpoints, named: &BTreeMap<String, String>) -> Vec<Check> {
    let mut checks = Vec::new();
    let clock = Clock::system();
    let split = |model: &str| model.split_once('/').map(|(provider, id)| (provider.to_owned(), id.to_owned()));
    for endpoint in endpoints.all() {
        let name = endpoint.name.as_str();
        let models: Vec<(&String, &String)> =
            named.iter().filter(|(model, _)| split(model).is_some_and(|(provider, _)| endpoints.get(&provider) == Some(endpoint))).collect();
        if models.is_empty() && endpoint.key.is_none() {
            continue;
        }
        let check = |verdict, detail: String| Check::new("providers", name, verdict, detail);
        if let Some(variable) = &endpoint.missing_key {
            let whose = models.iter().map(|(model, by)| format!("{model} (by {by})")).collect::<Vec<_>>().join(", ");
            checks.push(check(Verdict::Warn, format!("no key, but it is named: {whose}")).hint(format!("set `{variable}`")));
            continue;
        }
        let listed = match listed_by(client, endpoint, &clock).await {
            Ok((is_taken, listed)) => {
                let has = format!("{} has {} models", endpoint.base_url, listed.len());
                checks.push(match is_taken {
                    None => check(Verdict::Fine, has),
                    Some(true) => check(Verdict::Fine, format!("{has}, and it takes the key")),
                    Some(false) => check(Verdict::Warn, format!("{has}, but lists them for everybody, so the key is not checked")),
                });
                listed
            }
            // Some gateways have no such list.
            Err(error) if matches!(error.kind, ModelErrorKind::UnknownModel | ModelErrorKind::Rejected) => {
                checks
                    .push(check(Verdict::Warn, format!("it is there, but gives no list of models, so neither key nor models are checked: {}", error.message)));
                BTreeSet::new()
            }
            Err(error) => {
                let broken = check(Verdict::Broken, error.message);
                checks.push(match error.hint {
                    Some(hint) => broken.hint(hint),
                    None => broken,
                });
                continue;
            }
        };
        checks.extend(models.iter().filter_map(|(model, by)| Some(of_model(endpoint, (model, &split(model)?.1), by, &listed, endpoints))));
    }
    checks
}

/// Returns the models that a provider lists, and whether it is seen to take the key, where there is one.
async fn listed_by(client: &Client, endpoint: &Endpoint, clock: &Clock) -> Result<(Option<bool>, BTreeSet<String>), ModelError> {
    let listed = fetch_models(client, endpoint, clock).await?;
    let is_taken = if endpoint.key.is_some() { Some(takes_key(client, endpoint, clock).await?) } else { None };
    Ok((is_taken, listed))
}

fn of_model(endpoint: &Endpoint, (model, id): (&str, &str), by: &str, listed: &BTreeSet<String>, endpoints: &Endpoints) -> Check {
    let check = |verdict, detail: String| Check::new("providers", model, verdict, detail);
    if !listed.is_empty() && !lists(listed, id) {
        let near = nearest(id, listed.iter().map(String::as_str)).map(|near| format!("did you mean `{}/{near}`? ", endpoint.name));
        let broken = check(Verdict::Broken, format!("named by {by}, and the provider does not have it"));
        return broken.hint(format!("{}see what it lists", near.unwrap_or_default()));
    }
    if endpoints.is_priced(model) {
        check(Verdict::Fine, format!("named by {by}; its price is known"))
    } else {
        check(Verdict::Warn, format!("named by {by}; its price is not known, so no budget in dollars can hold it"))
            .hint("say it under `prices` in `config.yaml`")
    }
}
