//! The secrets of a run: where their values come from, and how a resumed run knows that one is another than it was.
//!
//! The values themselves are never recorded. What is recorded is a salted hash of each, slow enough that trying out the
//! likely ones is work.
use super::{Project, project::SetupError};
use crate::{
    event::{BlobId, RunStarted},
    llm::Endpoints,
    plan::Plan,
    secrets::{SecretError, Secrets},
};
use std::collections::{BTreeMap, BTreeSet};

/// How the pin of a secret begins.
const PIN: &str = "secret:";
/// How often a value is hashed for its pin.
const ROUNDS: u32 = 10_000;

/// Returns the values of all that a plan, and what it calls, says it needs, and hides with them what models are reached with.
///
/// # Errors
/// `NoSecrets` names all that are missing; `Secret` is about a value that could not be told from other text.
pub(super) fn of(plan: &Plan, environment: &BTreeMap<String, String>, endpoints: &Endpoints) -> Result<Secrets, SetupError> {
    let (mut names, mut texts) = (BTreeSet::new(), BTreeSet::new());
    gather(plan, &mut names, &mut texts);
    let given = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let missing: Vec<String> = names.iter().filter(|name| given(name).is_none()).map(|name| (*name).to_owned()).collect();
    if !missing.is_empty() {
        return Err(SetupError::NoSecrets(missing));
    }
    let secrets = Secrets::new(names.iter().filter_map(|name| Some(((*name).to_owned(), given(name)?.clone()))).collect())?;
    match texts.iter().find_map(|text| secrets.found_in(text.as_bytes())) {
        Some(name) => Err(SecretError { name: name.to_owned(), why: "stands in the workflow's own text, and cannot be told from it" }.into()),
        None => Ok(secrets.hiding(hidden(endpoints, &texts))),
    }
}

impl Project {
    /// Says whether all secrets of a plan are there.
    ///
    /// # Errors
    /// `NoSecrets` names those that are not.
    pub fn check_secrets(&self, plan: &Plan) -> Result<(), SetupError> {
        of(plan, &self.settings.environment, &self.endpoints()).map(drop)
    }
}

/// Returns what nobody is to read of how models are reached, and does not stand in the workflow for everybody to read.
fn hidden(endpoints: &Endpoints, texts: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let all = endpoints.confidential().filter(|(_, value)| !texts.iter().any(|text| text.contains(value)));
    all.map(|(name, value)| (name, value.to_owned())).collect()
}

/// Gathers the names of a plan and of what is inside it, with the texts of the files.
fn gather<'p>(plan: &'p Plan, names: &mut BTreeSet<&'p str>, texts: &mut BTreeSet<&'p str>) {
    for plan in plan.all() {
        names.extend(plan.secrets.iter().map(String::as_str));
        texts.insert(&plan.source.text);
    }
}

/// Returns those values of a run's secrets that an environment has: for whoever has a word to say to a run and need not know
/// its secrets. One that cannot be told from other text is none.
pub fn secrets_here(started: &RunStarted, environment: &BTreeMap<String, String>) -> Secrets {
    let named = started.pins.keys().filter_map(|name| name.strip_prefix(PIN));
    let given = named.filter_map(|name| Some((name.to_owned(), environment.get(name)?.clone())));
    Secrets::new(given.filter(|(name, value)| Secrets::new(BTreeMap::from([(name.clone(), value.clone())])).is_ok()).collect()).unwrap_or_default()
}

/// Returns an environment without the values of secrets, whatever name they stand under.
pub(super) fn outside(environment: BTreeMap<String, String>, secrets: &Secrets) -> BTreeMap<String, String> {
    environment.into_iter().filter(|(_, value)| secrets.found_in(value.as_bytes()).is_none()).collect()
}

/// Returns whether a pin is that of a secret.
pub(super) fn is_pin(name: &str) -> bool {
    name.starts_with(PIN)
}

/// Returns what a run is pinned to: a salted hash of each value.
pub(super) fn pins(secrets: &Secrets) -> Vec<(String, String)> {
    let pin = |(name, value): (&str, &str)| {
        let salt = format!("{:032x}", fastrand::u128(..));
        (format!("{PIN}{name}"), format!("{salt}:{}", hashed(&salt, value)))
    };
    secrets.values().map(pin).collect()
}

/// Says which values are others than those a run was pinned to.
pub(super) fn changed(pinned: &BTreeMap<String, String>, secrets: &Secrets) -> Vec<String> {
    let is_other = |(name, value): &(&str, &str)| {
        let pin = pinned.get(&format!("{PIN}{name}")).and_then(|pin| pin.split_once(':'));
        pin.is_none_or(|(salt, hash)| hashed(salt, value) != hash)
    };
    secrets.values().filter(is_other).map(|(name, _)| format!("the secret `{name}` has another value than when the run began")).collect()
}

fn hashed(salt: &str, value: &str) -> String {
    (0..ROUNDS).fold(value.to_owned(), |hash, _| BlobId::of(format!("{salt}{hash}").as_bytes()).0)
}
