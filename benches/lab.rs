//! A repository to measure in, and processes watched from outside: their time, their memory.
//!
//! The engine is measured as users run it: the program itself, built for release, as a process of its own. The floor runs
//! as a process of its own too, so that both pay for their start and neither for the mock.
use super::floor::Mock;
use spinney::{
    clock::Clock,
    event::Event,
    journal::{self, RunDir},
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// No process that is measured may take longer.
const LONGEST: Duration = Duration::from_mins(3);
/// Files of the repository.
const FILES: usize = 40;
/// Skills of the project, beside the built-in ones.
const SKILLS: usize = 20;

/// What joins the work of agents that write.
const JOIN: &str = "  join: { needs: [work], merge: { from: work } }\n";

const WORKFLOW: &str = r#"
version: 1
name: NAME
inputs: { agents: { type: array, items: { type: integer }, required: true } }
defaults: { max_parallel: 128 }
agents: { worker: { system: "You work.", access: ACCESS, tools: [Bash], max_turns: 400 } }
steps:
  work:
    for_each: { items: "{{ inputs.agents }}", as: n, max_parallel: 128 }
    agent: worker
    prompt: "go"
"#;

/// One temporary folder with everything in it.
pub(super) struct Lab {
    dir: TempDir,
    clock: Clock,
}

/// What a process took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// When it was started.
    pub(super) began: Duration,
    /// Until its end.
    pub(super) wall: Duration,
    /// Of the processor, its children's included.
    pub(super) cpu: Duration,
    /// The most memory it held, its children's not included.
    pub(super) peak_kib: u64,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The bare loop.
    Floor,
    /// The engine, each agent in a worktree of its own.
    Writers,
    /// The engine, agents that read one view together.
    Readers,
}

impl Lab {
    /// Makes a small repository with a library of its own.
    pub(super) fn new(clock: &Clock) -> io::Result<Lab> {
        let lab = Lab { dir: tempfile::Builder::new().prefix("spinney-bench-").tempdir()?, clock: clock.clone() };
        for n in 0..FILES {
            lab.write(&format!("repo/src/file_{n}.txt"), &format!("line of file {n}\n").repeat(50))?;
        }
        lab.git(&["init", "-q", "-b", "main"])?;
        lab.git(&["add", "-A"])?;
        lab.git(&["-c", "user.name=Bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "begin"])?;
        for (name, access, join) in [("writers", "write", JOIN), ("readers", "read", "")] {
            let workflow = WORKFLOW.replace("NAME", name).replace("ACCESS", access) + join;
            lab.write(&format!("repo/.spinney/workflows/{name}.yaml"), &workflow)?;
        }
        for n in 0..SKILLS {
            let text = format!("---\nname: skill-{n}\ndescription: Does the {n}th thing when that is to be done.\n---\n{}", "Do it well.\n".repeat(60));
            lab.write(&format!("repo/.spinney/skills/skill-{n}/SKILL.md"), &text)?;
        }
        for folder in ["home", "cache", "config"] {
            fs::create_dir_all(lab.path(folder))?;
        }
        Ok(lab)
    }

    /// Runs so many agents to their end.
    ///
    /// # Errors
    /// Also where the engine did not do what the floor does: a refused call is answered fast, and would make a fine figure.
    pub(super) fn run(&self, who: Who, agents: usize, mock: &Mock) -> io::Result<Took> {
        let began = self.clock.elapsed();
        let child = self.command(who, agents, mock)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (took, said) = self.watch(child, began)?;
        let wanted = agents * mock.calls();
        if who != Who::Floor {
            self.check(wanted)?;
        } else if !said.contains(&format!("| {wanted} |")) {
            return Err(io::Error::other(format!("{wanted} calls wanted of the floor, which says: {said}")));
        }
        // What a run leaves is not to weigh on the next one.
        for folder in ["cache", "repo/.spinney/state"] {
            let _missing = fs::remove_dir_all(self.path(folder));
        }
        Ok(took)
    }

    /// Reads in the journal whether as many calls as wanted were really run, and went well.
    fn check(&self, wanted: usize) -> io::Result<()> {
        let state = RunDir::state(&self.path("repo"));
        let runs = RunDir::list(&state).map_err(io::Error::other)?;
        let run = runs.first().ok_or_else(|| io::Error::other("there is no run"))?;
        let records = journal::read(RunDir::open(&state, run).map_err(io::Error::other)?.path()).map_err(io::Error::other)?;
        let (mut started, mut ended, mut bad) = (0, 0, None);
        for record in records {
            match record.event {
                Event::ToolStarted { .. } => started += 1,
                Event::ToolFinished { result, verdict, .. } if result.is_error => bad = Some(format!("{verdict}: {}", result.text)),
                Event::ToolFinished { .. } => ended += 1,
                _ => {}
            }
        }
        match bad {
            None if (started, ended) == (wanted, wanted) => Ok(()),
            bad => Err(io::Error::other(format!("{wanted} calls wanted, {started} started, {ended} went well; {}", bad.unwrap_or_default()))),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a bench starts what it measures")]
    fn command(&self, who: Who, agents: usize, mock: &Mock) -> io::Result<Command> {
        let name = match who {
            Who::Floor => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--floor", &agents.to_string(), &mock.base()]).env_clear().envs(self.environment());
                return Ok(command);
            }
            Who::Writers => "writers",
            Who::Readers => "readers",
        };
        let numbers: Vec<usize> = (0..agents).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        // A model that this program knows: the window of another is looked up in the price table, which takes its time to be read.
        // Without walls on every machine: a tool call inside bubblewrap is another thing than the floor's.
        command.args(["run", name, "--unconfined", "--model", "anthropic/claude-sonnet-5-5", "--input", &format!("agents={numbers:?}")]);
        command.current_dir(self.path("repo")).env_clear().envs(self.environment());
        command.env("ANTHROPIC_BASE_URL", mock.base()).env("ANTHROPIC_API_KEY", "none");
        Ok(command)
    }

    fn watch(&self, mut child: Child, began: Duration) -> io::Result<(Took, String)> {
        let mut peak_kib = 0;
        let cpu = loop {
            let seen = Seen::of(child.id())?;
            peak_kib = peak_kib.max(seen.peak_kib);
            if seen.is_over {
                break seen.cpu;
            }
            if self.clock.elapsed().saturating_sub(began) > LONGEST {
                child.kill()?;
                return Err(io::Error::other("it does not end"));
            }
            pause(LOOK);
        };
        let wall = self.clock.elapsed().saturating_sub(began);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            return Err(io::Error::other(format!("{}: {said}", output.status)));
        }
        Ok((Took { began, wall, cpu, peak_kib }, String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    #[expect(clippy::disallowed_methods, reason = "a bench makes its own environment")]
    fn environment(&self) -> BTreeMap<String, String> {
        let at = |name: &str| self.path(name).display().to_string();
        [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", at("home")),
            ("XDG_CACHE_HOME", at("cache")),
            ("XDG_CONFIG_HOME", at("config")),
            ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    #[expect(clippy::disallowed_methods, reason = "a bench makes its own repository")]
    fn git(&self, arguments: &[&str]) -> io::Result<()> {
        let status = Command::new("git").args(arguments).current_dir(self.path("repo")).env_clear().envs(self.environment()).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("git {arguments:?}: {status}"))) }
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// What the kernel says of a process.
struct Seen {
    is_over: bool,
    cpu: Duration,
    peak_kib: u64,
}

impl Seen {
    /// Looks at a process that was not waited for.
    fn of(pid: u32) -> io::Result<Seen> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = stat[stat.rfind(')').map_or(0, |at| at + 1)..].split_ascii_whitespace().collect();
        // Fields 14 to 17: user and system time, its own and that of its dead children, in ticks of 10 ms.
        let ticks: u64 = fields.get(11..15).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        Ok(Seen { is_over: fields.first() == Some(&"Z"), cpu: Duration::from_millis(ticks * 10), peak_kib: peak.unwrap_or(0) })
    }
}

fn pause(time: Duration) {
    std::thread::sleep(time);
}
