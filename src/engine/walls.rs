//! What the sandboxes of agents open of the walls, and whether all that is here which they demand.
use super::{SetupError, steps::may_delegate};
use crate::{
    plan::{AgentSpec, NetworkSpec, Objection, Plan, PlannedStep, SandboxSpec, objection},
    sandbox::{Allowed, Confinement, Network},
    workflow::Require,
};
use std::path::{Path, PathBuf};

/// What a run finds here.
pub(super) struct Here<'a> {
    /// The user's home.
    pub(super) home: Option<&'a Path>,
    /// Folders that no command is shown but as its workspace: the checkout, the repository, what the program keeps.
    pub(super) closed: Vec<PathBuf>,
}

/// Says why a run of a plan cannot begin here, where some agent in it has a sandbox that cannot be.
///
/// # Errors
/// `Walls` for the first such agent.
pub(super) fn check(plan: &Plan, here: &Here<'_>, has_walls: impl FnOnce() -> Option<&'static str>) -> Result<(), SetupError> {
    let agents = sandboxed(plan);
    let demanding = agents.iter().find(|agent| agent.sandbox.require != Require::None);
    if let Some((agent, why)) = demanding.and_then(|agent| Some((agent, has_walls()?))) {
        let hint = "install bubblewrap, leave `--unconfined` out, or let the agent say `sandbox: { require: none }`: then it is asked for what it runs";
        return Err(SetupError::Walls { agent: agent.name.clone(), why: format!("demands walls, and {why}"), hint });
    }
    for agent in agents {
        let SandboxSpec { read, write, .. } = &agent.sandbox;
        for (path, writes) in read.iter().map(|path| (path, false)).chain(write.iter().map(|path| (path, true))) {
            if let Some(Objection { wrong, help }) = here.objection(path, writes) {
                return Err(SetupError::Walls { agent: agent.name.clone(), why: format!("opens `{path}`, which {wrong}"), hint: help });
            }
        }
    }
    Ok(())
}

impl Here<'_> {
    /// Says why a path is not opened where it leads to. One to read that is not there opens nothing.
    fn objection(&self, path: &str, writes: bool) -> Option<Objection> {
        let Some(place) = placed(path, self.home) else { return Some(Objection { wrong: "is of a home that nobody has", help: "set `HOME`" }) };
        let Ok(real) = place.canonicalize() else {
            return writes.then_some(Objection { wrong: "is not there", help: "make it, or take it out of `write`" });
        };
        let is_closed = |closed: &Path| real.starts_with(closed) || closed.starts_with(&real);
        if self.closed.iter().any(|closed| is_closed(&closed.canonicalize().unwrap_or_else(|_| closed.clone()))) {
            return Some(Objection {
                wrong: "is of the repository or of this program",
                help: "agents have the repository in their workspace; name another folder",
            });
        }
        let home = self.home.and_then(|home| home.canonicalize().ok());
        let below = home.and_then(|home| Some(Path::new("~").join(real.strip_prefix(home).ok()?)));
        objection(&below.unwrap_or(real).to_string_lossy(), writes)
    }
}

/// Opens to the commands of an agent what its sandbox says; without walls there is nothing to open.
pub(super) fn opened(confine: Confinement, agent: &AgentSpec, home: Option<&Path>) -> Confinement {
    let Confinement::Bubblewrap(mut walls) = confine else { return confine };
    let sandbox = &agent.sandbox;
    walls.network = match &sandbox.network {
        NetworkSpec::None => Network::None,
        NetworkSpec::Only(hosts) => Network::Only(Allowed { hosts: hosts.clone(), key: format!("agents.{}.sandbox.network", agent.name) }),
        NetworkSpec::Full => Network::Full,
    };
    walls.readable.extend(places(&sandbox.read, home));
    walls.writable.extend(places(&sandbox.write, home));
    Confinement::Bubblewrap(walls)
}

/// Returns the places that paths name.
pub(super) fn places<'a>(paths: &'a [String], home: Option<&'a Path>) -> impl Iterator<Item = PathBuf> + 'a {
    paths.iter().filter_map(move |path| placed(path, home))
}

/// Returns the place that a path names, where `~/` stands for a home.
pub(super) fn placed(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(below) => home.map(|home| home.join(below)),
        None => Some(PathBuf::from(path)),
    }
}

/// Returns all agents that may come to work in a run and whose sandbox says something.
fn sandboxed(plan: &Plan) -> Vec<&AgentSpec> {
    plan.all().into_iter().flat_map(sandboxed_of).collect()
}

fn sandboxed_of(plan: &Plan) -> Vec<&AgentSpec> {
    let nothing = SandboxSpec::default();
    let at_work = || plan.steps().flat_map(PlannedStep::agents).chain(plan.orchestrator.as_ref().map(|spec| &spec.agent));
    let delegates = at_work().any(|agent| may_delegate(agent));
    at_work().chain(plan.agents.values().filter(|_| delegates)).map(|agent| &**agent).filter(|agent| agent.sandbox != nothing).collect()
}
