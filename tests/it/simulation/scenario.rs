//! A workflow made from a seed, and what everybody in it does.
use super::session::{Act, Session};
use fastrand::Rng;
use std::fmt::Write as _;

/// Letters that steps are called by.
const IDS: &str = "abcdefghijkl";
/// How long nothing may be heard of an agent.
pub(super) const IDLE: &str = "20s";

/// What happens in a run.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) pieces: Vec<Piece>,
    max_parallel: usize,
    budget: Option<(u32, &'static str)>,
    /// Whether an orchestrator watches over the first `for_each`.
    watched: bool,
    endings: bool,
}

/// One step, or a few that belong together.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) id: String,
    /// What it waits for besides the last piece that wrote.
    needs: Vec<String>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Reader { session: Session, schema: bool },
    Writer { session: Session, verify: bool, scope: bool },
    Command(Command),
    Fan { items: Vec<Item>, agent: bool, merge: Merge, max_parallel: usize, stop: bool },
    Matrix { agent: bool },
    Choice { judge: bool, items: usize },
    Approve { timeout: bool },
    Loop { rounds: u32, writes: bool },
    Called { writes: bool },
    Chief { hands: usize },
    Talker { turns: usize },
}

/// What a step with `run` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Says,
    Lines,
    Writes,
    Flaky,
    Fails { allowed: bool },
    Skipped,
    Outside,
}

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) key: String,
    needs: Vec<String>,
    pub(super) session: Session,
    /// Attempts that fail.
    pub(super) bad: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    each: bool,
    resolver: bool,
    verify: bool,
}

impl Scenario {
    /// Makes one; `large` ones have more and heavier pieces.
    pub(super) fn new(seed: u64, large: bool) -> Scenario {
        let mut random = Rng::with_seed(seed);
        // A budget is reached by whoever comes first, which is certain only where one works after the other.
        let narrow = random.u32(0..8) == 0;
        let count = if large { random.usize(4..8) } else { random.usize(1..4) };
        let mut pieces: Vec<Piece> = Vec::new();
        for id in IDS.chars().take(count) {
            let kind = Kind::new(&mut random, id, large);
            let mut needs: Vec<String> = Vec::new();
            if narrow {
                needs.extend(pieces.last().map(Piece::last));
            } else {
                needs.extend(pieces.iter().filter(|_| random.u32(0..3) == 0).map(Piece::last));
            }
            pieces.push(Piece { id: id.to_string(), needs, kind });
        }
        let exceeds = ["stop", "finish", "ask"];
        let max_parallel = if narrow { 1 } else { random.usize(1..5) };
        let budget = (narrow && random.bool()).then(|| (random.u32(1..12), exceeds[random.usize(0..3)]));
        let watched = !narrow && random.u32(0..3) == 0;
        // What is added while others work runs before a failure that stops the rest, or not: that is not the same in two runs.
        let fan = pieces.iter_mut().find_map(|piece| if let Kind::Fan { stop, .. } = &mut piece.kind { Some(stop) } else { None });
        if let Some(stop) = fan.filter(|_| watched) {
            *stop = false;
        }
        Scenario { max_parallel, budget, watched, endings: random.u32(0..4) == 0, pieces }
    }

    /// Returns it without one of its pieces.
    pub(super) fn without(&self, at: usize) -> Scenario {
        let mut less = self.clone();
        let gone = less.pieces.remove(at).last();
        less.pieces.iter_mut().for_each(|piece| piece.needs.retain(|need| *need != gone));
        less
    }

    /// Returns smaller ones that may show the same.
    pub(super) fn smaller(&self) -> Vec<Scenario> {
        let mut all: Vec<Scenario> = (0..self.pieces.len()).filter(|_| self.pieces.len() > 1).map(|at| self.without(at)).collect();
        all.extend(self.watched.then(|| Scenario { watched: false, ..self.clone() }));
        all.extend(self.endings.then(|| Scenario { endings: false, ..self.clone() }));
        all.extend(self.budget.is_some().then(|| Scenario { budget: None, ..self.clone() }));
        all
    }

    /// Returns whether the run has a budget that it may come to the end of.
    pub(super) fn is_limited(&self) -> bool {
        self.budget.is_some()
    }

    /// Returns the orchestrator's `for_each`, where there is one.
    pub(super) fn supervised(&self) -> Option<&Piece> {
        self.pieces.iter().find(|piece| self.watched && matches!(piece.kind, Kind::Fan { .. }))
    }

    /// Writes the workflow. `outside` is a file that commands add lines to.
    pub(super) fn yaml(&self, outside: &str) -> String {
        let mut yaml = format!(
            "version: 1\nname: simulated\ndefaults: {{ max_parallel: {}, idle_timeout: {IDLE}, retry: {{ max: 3, on: [transient, timeout], delay: 2s }} }}\n",
            self.max_parallel
        );
        if let Some((turns, exceed)) = self.budget {
            let _ = writeln!(yaml, "budget: {{ turns: {turns}, on_exceed: {exceed} }}");
        }
        yaml.push_str(AGENTS);
        if self.supervised().is_some() {
            yaml.push_str("orchestrator: { agent: watcher, may: [add_items, retry], max_added: 2, wake: [item_done, item_failed] }\n");
        }
        yaml.push_str("steps:\n");
        let mut trunk: Option<String> = None;
        for piece in &self.pieces {
            let mut needs: Vec<String> = piece.needs.clone();
            needs.extend(trunk.clone().filter(|trunk| piece.writes() && !needs.contains(trunk)));
            piece.write(&mut yaml, &needs, outside);
            if piece.writes() {
                trunk = Some(piece.last());
            }
        }
        if self.endings {
            let _ = writeln!(yaml, "on_failure:\n  why: {{ agent: reader, prompt: \"Why?\" }}\nfinally:\n  tidy: {{ run: \"echo tidy\" }}");
        }
        yaml
    }
}

const AGENTS: &str = r#"models:
  two: { use: [first/model, second/model] }
agents:
  reader: { system: "You read.", model: two, tools: [Read, Glob, Grep, Bash, Send] }
  writer: { system: "You write.", access: write, tools: [Read, Glob, Grep, Bash, Write, Edit, Send] }
  resolver: { system: "You settle.", access: write }
  judge: { system: "You judge." }
  chief: { system: "You lead.", access: write, tools: [Agent, Bash, Write, Read] }
  hand: { system: "You help.", access: write }
  talker: { system: "You talk.", model: small/model, access: write }
  watcher: { system: "You watch." }
schemas:
  facts: { type: object, properties: { n: { type: integer, minimum: 1 } }, required: [n] }
"#;

/// The workflow that others call.
pub(super) const CHILD: &str = r#"
version: 1
name: child
inputs:
  who: { type: string, required: true }
agents:
  reader: { system: "You read." }
steps:
  look: { agent: reader, prompt: "Look for {{ inputs.who }}." }
  tell: { needs: [look], run: "echo told {{ inputs.who | sh }}" }
outputs: { said: "{{ steps.tell.stdout }}" }
"#;

/// The same, with work of its own.
pub(super) const WRITING_CHILD: &str = r#"
version: 1
name: scribe
inputs:
  who: { type: string, required: true }
agents:
  writer: { system: "You write.", access: write }
steps:
  note: { agent: writer, prompt: "Note it." }
  tell: { needs: [note], run: "cat note.effects" }
outputs: { said: "{{ steps.tell.stdout }}" }
"#;

impl Kind {
    fn new(random: &mut Rng, id: char, large: bool) -> Kind {
        let id = id.to_string();
        match random.u32(0..if large { 20 } else { 15 }) {
            0..=2 => Kind::Reader { session: Session::reading(random, &id), schema: random.u32(0..3) == 0 },
            3..=5 => {
                let (verify, scope) = (random.u32(0..3) == 0, random.u32(0..4) == 0);
                Kind::Writer { session: Session::writing(random, &id, verify, !scope), verify, scope }
            }
            6..=8 => Kind::Command(match random.u32(0..9) {
                0 => Command::Says,
                1 => Command::Lines,
                2..=3 => Command::Writes,
                4 => Command::Flaky,
                5 => Command::Fails { allowed: true },
                6 => Command::Fails { allowed: false },
                7 => Command::Skipped,
                _ => Command::Outside,
            }),
            9 | 15 | 16 => {
                let agent = random.u32(0..3) > 0;
                let count = if large { random.usize(1..5) } else { random.usize(1..3) };
                let merge = Merge { each: random.bool(), resolver: random.bool(), verify: random.bool() };
                let stop = random.u32(0..5) == 0;
                let mut items: Vec<Item> = (0..count).map(|at| Item::new(random, &id, at)).collect();
                if merge.verify && random.bool() {
                    let which = random.usize(0..count);
                    items[which].session.turns.push(vec![Act::Redden]);
                }
                Kind::Fan { items, agent, merge, max_parallel: if stop { 1 } else { random.usize(1..4) }, stop }
            }
            10 => Kind::Matrix { agent: random.bool() },
            11 => Kind::Approve { timeout: random.u32(0..3) == 0 },
            12 => Kind::Loop { rounds: random.u32(1..4), writes: random.bool() },
            13 => Kind::Called { writes: random.bool() },
            14 | 17 => Kind::Chief { hands: random.usize(1..4) },
            18 => Kind::Choice { judge: random.bool(), items: random.usize(2..4) },
            _ => Kind::Talker { turns: random.usize(4..10) },
        }
    }
}

impl Item {
    fn new(random: &mut Rng, id: &str, at: usize) -> Item {
        let key = format!("i{at}");
        let needs = if at > 0 && random.u32(0..3) == 0 { vec![format!("i{}", random.usize(0..at))] } else { Vec::new() };
        // An attempt that was lost does not count, and has a number all the same.
        let bad = if random.u32(0..5) == 0 { [1, u32::MAX][random.usize(0..2)] } else { 0 };
        Item { session: Session::writing(random, &format!("{id}-{key}"), true, true), key, needs, bad }
    }
}

impl Piece {
    /// Returns the step that stands for it: what others wait for.
    fn last(&self) -> String {
        match &self.kind {
            Kind::Fan { agent: true, .. } | Kind::Choice { .. } => format!("{}-end", self.id),
            _ => self.id.clone(),
        }
    }

    /// Returns whether it makes a commit.
    fn writes(&self) -> bool {
        match &self.kind {
            Kind::Reader { .. } | Kind::Matrix { .. } | Kind::Approve { .. } => false,
            Kind::Writer { .. } | Kind::Choice { .. } | Kind::Chief { .. } | Kind::Talker { .. } => true,
            Kind::Command(command) => matches!(command, Command::Writes | Command::Flaky),
            Kind::Fan { agent, .. } => *agent,
            Kind::Loop { writes, .. } | Kind::Called { writes } => *writes,
        }
    }

    fn write(&self, yaml: &mut String, needs: &[String], outside: &str) {
        let id = &self.id;
        // What comes after a failure goes on in most runs, so that failures do not end everything at once.
        let needs: Vec<String> = needs.iter().map(|need| format!("{{ step: {need}, on: done }}")).collect();
        let needs = format!("needs: [{}]", needs.join(", "));
        let line = match &self.kind {
            Kind::Reader { schema, .. } => {
                let output = if *schema { ", output: { schema: facts }" } else { "" };
                format!("  {id}: {{ {needs}, agent: reader, prompt: \"Read {id}.\"{output} }}\n")
            }
            Kind::Writer { verify, scope, .. } => {
                let verify = if *verify { format!(", verify: {{ run: [\"test -s {id}.ok\"], attempts: 3 }}") } else { String::new() };
                let scope = if *scope { format!(", scope: [\"{id}.*\"]") } else { String::new() };
                format!("  {id}: {{ {needs}, agent: writer, prompt: \"Write {id}.\"{verify}{scope} }}\n")
            }
            Kind::Command(command) => command_line(id, &needs, *command, outside),
            Kind::Fan { items, agent, merge, max_parallel, stop } => fan(id, &needs, items, (*agent, *merge, *max_parallel, *stop)),
            Kind::Matrix { agent: true } => {
                format!("  {id}: {{ {needs}, matrix: {{ m: [1, 2], n: [x] }}, agent: reader, prompt: \"Look at {{{{ matrix.m }}}}.\" }}\n")
            }
            Kind::Matrix { agent: false } => {
                format!(
                    "  {id}: {{ {needs}, matrix: {{ m: [1, 2], n: [x, y] }}, workspace: none, run: \"echo {{{{ matrix.m | sh }}}}{{{{ matrix.n | sh }}}}\" }}\n"
                )
            }
            Kind::Choice { judge, items } => {
                let keys: Vec<String> = (0..*items).map(|n| format!("w{n}")).collect();
                let judge = if *judge { ", judge: { agent: judge, votes: 1 }" } else { "" };
                format!(
                    "  {id}: {{ {needs}, for_each: {{ items: [{}], as: way, join: all_done }}, agent: writer, prompt: \"Way {{{{ way }}}}.\" }}\n  {id}-end: {{ needs: [{{ step: {id}, on: done }}], select: {{ from: {id}, gates: [\"echo seen >> seen && test $(wc -l < seen) = 1\"], tie: first{judge} }} }}\n",
                    keys.join(", ")
                )
            }
            Kind::Approve { timeout } => {
                let timeout = if *timeout { ", timeout: 10d, on_timeout: approve" } else { "" };
                format!("  {id}: {{ {needs}, approve: {{ message: \"Go on at {id}?\"{timeout} }} }}\n")
            }
            Kind::Loop { rounds, writes } => {
                let body = if *writes { "agent: writer, prompt: \"Round.\"".to_owned() } else { "run: \"echo {{ loop.iteration | sh }}\"".to_owned() };
                format!(
                    "  {id}:\n    {needs}\n    loop: {{ until: \"{{{{ loop.iteration == {rounds} }}}}\", max: 3 }}\n    steps:\n      {id}r: {{ {body} }}\n      {id}t: {{ needs: [{id}r], run: \"ls *.effects 2>/dev/null | sort | xargs -r wc -l | tail -n 1\", workspace: shared }}\n"
                )
            }
            Kind::Called { writes } => {
                format!("  {id}: {{ {needs}, workflow: {}, with: {{ who: {id} }} }}\n", if *writes { "scribe" } else { "child" })
            }
            Kind::Chief { .. } => format!("  {id}: {{ {needs}, agent: chief, prompt: \"Lead {id}.\" }}\n"),
            Kind::Talker { .. } => format!("  {id}: {{ {needs}, agent: talker, prompt: \"Talk {id}.\" }}\n"),
        };
        yaml.push_str(&line.replace("needs: [], ", "").replace("    needs: []\n", ""));
    }
}

fn command_line(id: &str, needs: &str, command: Command, outside: &str) -> String {
    let rest = match command {
        Command::Says => "run: \"echo said\"".to_owned(),
        Command::Lines => "workspace: none, run: \"printf 'one\\\\ntwo\\\\n'\", output: { parse: lines }".to_owned(),
        Command::Writes => format!("workspace: worktree, run: \"echo ran >> {id}.effects\""),
        Command::Flaky => {
            format!("workspace: worktree, run: \"echo ran >> {id}.effects; case $PWD in *.1) exit 1;; esac\", retry: {{ max: 1, on: [any], delay: 5s }}")
        }
        Command::Fails { allowed } => format!("workspace: none, run: \"echo no >&2; exit 3\", allow_failure: {allowed}"),
        Command::Skipped => "if: \"{{ 1 > 2 }}\", run: \"echo never\"".to_owned(),
        Command::Outside => format!("workspace: none, run: \"echo {id} >> {outside}\""),
    };
    format!("  {id}: {{ {needs}, {rest} }}\n")
}

fn fan(id: &str, needs: &str, items: &[Item], (agent, merge, max_parallel, stop): (bool, Merge, usize, bool)) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("{{ id: {}, needs: [{}] }}", item.key, item.needs.join(", "))).collect();
    let stops = if stop { ", on_item_failure: stop" } else { "" };
    let fan = format!(
        "for_each: {{ items: [{}], as: it, key: \"{{{{ it.id }}}}\", needs: \"{{{{ it.needs }}}}\", max_parallel: {max_parallel}, join: all_done{stops} }}",
        items.join(", ")
    );
    if !agent {
        return format!("  {id}: {{ {needs}, {fan}, run: \"echo item {{{{ it.id | sh }}}}\" }}\n");
    }
    let mode = if merge.each { "each" } else { "batch" };
    let resolver = if merge.resolver { ", on_conflict: { agent: resolver, attempts: 2, then: eject }" } else { "" };
    let verify = if merge.verify { ", verify: [\"echo seen >> seen && test $(wc -l < seen) = 1\", \"! ls *.red\"], on_red: { then: eject }" } else { "" };
    format!(
        "  {id}: {{ {needs}, {fan}, agent: writer, prompt: \"Item {{{{ it.id }}}}.\", verify: {{ run: [\"test -s {id}-{{{{ it.id | sh }}}}.ok\"], attempts: 2 }}, retry: {{ max: 1, on: [any], delay: 1s }} }}\n  {id}-end: {{ needs: [{{ step: {id}, on: done }}], merge: {{ from: {id}, mode: {mode}{resolver}{verify} }} }}\n"
    )
}

/// Lists what a session does, for people.
pub(super) fn acts(session: &Session) -> String {
    let turn = |acts: &Vec<Act>| acts.iter().map(|act| format!("{act:?}")).collect::<Vec<_>>().join(" + ");
    session.turns.iter().map(turn).collect::<Vec<_>>().join("; ")
}
