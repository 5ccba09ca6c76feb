//! What an agent does in its session, turn by turn.
use super::outside::SEND;
use fastrand::Rng;
use serde_json::{Value, json};

/// The calls of each turn; after them it says that it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) turns: Vec<Vec<Act>>,
    /// The name of the files it writes.
    pub(super) name: String,
    /// Whether its checks are red at first.
    pub(super) red_first: bool,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    ReadMissing,
    Glob,
    Grep,
    Cat,
    Unknown,
    Malformed,
    Write(u32),
    Edit,
    /// Changes the line that others change too.
    Clash,
    /// Adds a line to a file: done twice it shows.
    Append,
    /// Does nothing that shows: how far it comes before it is ended depends on how busy the machine is.
    Hang,
    Crash,
    /// Prints without end.
    Flood,
    /// Prints much, and ends.
    Long,
    /// Reaches beyond the run: is never done twice.
    Send,
    /// Leaves what a merge's checks find red.
    Redden,
}

impl Session {
    pub(super) fn reading(random: &mut Rng, name: &str) -> Session {
        let acts = [Act::Read, Act::ReadMissing, Act::Glob, Act::Grep, Act::Cat, Act::Unknown, Act::Malformed, Act::Send];
        Session::of(random, &acts, name.to_owned())
    }

    pub(super) fn writing(random: &mut Rng, name: &str, verified: bool, anywhere: bool) -> Session {
        let mut acts = vec![Act::Read, Act::Cat, Act::Write(random.u32(0..9)), Act::Edit, Act::Append, Act::Append, Act::Long, Act::Send];
        acts.extend(anywhere.then_some(Act::Clash));
        // These take real time.
        if random.u32(0..5) == 0 {
            acts.extend([Act::Hang, Act::Crash, Act::Flood]);
        }
        Session { red_first: verified && random.u32(0..3) == 0, ..Session::of(random, &acts, name.to_owned()) }
    }

    fn of(random: &mut Rng, acts: &[Act], name: String) -> Session {
        let turn = |random: &mut Rng| (0..random.usize(1..4)).map(|_| acts[random.usize(0..acts.len())].clone()).collect();
        let turns = (0..random.usize(0..4)).map(|_| turn(random)).collect();
        Session { turns, name, red_first: false }
    }
}

impl Act {
    /// Returns the call.
    pub(super) fn call(&self, name: &str) -> (&'static str, Value) {
        let bash = |command: String| ("Bash", json!({"command": command}));
        match self {
            Act::Read => ("Read", json!({"file_path": "README.md"})),
            Act::ReadMissing => ("Read", json!({"file_path": "missing.md"})),
            Act::Glob => ("Glob", json!({"pattern": "*"})),
            Act::Grep => ("Grep", json!({"pattern": "middle"})),
            Act::Cat => bash("cat shared.txt".to_owned()),
            Act::Unknown => ("Nothing", json!({})),
            Act::Malformed => ("Read", json!({"path": 7})),
            Act::Write(content) => ("Write", json!({"file_path": format!("{name}.txt"), "content": format!("{content}\n")})),
            Act::Edit => ("Edit", json!({"file_path": "README.md", "old_string": "project", "new_string": format!("project of {name}")})),
            Act::Clash => bash(format!("sed -i 's/^middle.*/middle {name}/' shared.txt")),
            Act::Append => bash(format!("echo did >> {name}.effects")),
            Act::Hang => ("Bash", json!({"command": "sleep 100", "timeout": 40})),
            Act::Crash => bash(format!("echo crashed >> {name}.effects; kill -9 $$")),
            Act::Flood => ("Bash", json!({"command": "yes", "timeout": 80})),
            Act::Send => (SEND, json!({"from": name})),
            Act::Redden => bash(format!("echo red > {name}.red")),
            Act::Long => bash(format!("echo long >> {name}.effects; seq 1 9000")),
        }
    }
}
