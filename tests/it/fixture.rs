//! One repository with everything hermetic around it, and the program run in it as a person would.
use serde_json::Value;
use spinney::{
    cli::{self, Context},
    engine::Settings,
    event::{Event, Record, RunId},
    journal::{self, RunDir},
    source::Source,
    workflow::{self, Workflow},
};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};
use tempfile::TempDir;

/// A repository, a home and a cache in one temporary folder.
pub(crate) struct Bench {
    dir: TempDir,
    environment: BTreeMap<String, String>,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Asserts the exit code, showing everything where it is another.
    #[track_caller]
    pub(crate) fn code(self, code: u8) -> Said {
        assert_eq!(self.code, code, "\n--- out\n{}\n--- err\n{}", self.out, self.err);
        self
    }

    /// Returns all that a person sees.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.err, self.out)
    }
}

/// Checks that an editor, which knows the language by its schema, takes a workflow that loads.
fn check_by_schema(yaml: &str) {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| jsonschema::validator_for(&workflow::json_schema()).unwrap());
    let tree: Value = serde_saphyr::from_str_with_options(yaml, serde_saphyr::options! { strict_booleans: true }).unwrap();
    if let Err(error) = schema.validate(&tree) {
        panic!("the schema refuses what loads: {error} at {}\n{yaml}", error.instance_path());
    }
}

impl Bench {
    /// A repository with one commit.
    pub(crate) fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("spinney-test-").tempdir().unwrap();
        let bench = Bench { environment: environment(&dir), dir };
        for folder in ["repo", "home", "cache", "config"] {
            fs::create_dir(bench.dir.path().join(folder)).unwrap();
        }
        bench.git(&["init", "-q", "-b", "main"]);
        bench.git(&["config", "user.name", "Tester"]);
        bench.git(&["config", "user.email", "tester@localhost"]);
        bench.file("README.md", "# A project\n").commit("begin")
    }

    /// Another with all that is in this one, in memory where there is a file system for that. Of one name there is one at a
    /// time in a thread, and it is where those before it were.
    pub(crate) fn copied(&self, name: &str) -> Bench {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let name = format!("spinney-test-{}-{name}-{thread}", std::process::id());
        // What a process of the same number has left.
        let _ = fs::remove_dir_all(place.join(&name));
        let dir = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir_in(place).unwrap();
        copy(self.dir.path(), dir.path());
        Bench { environment: environment(&dir), dir }
    }

    /// Writes a file of the repository.
    pub(crate) fn file(self, path: &str, text: &str) -> Bench {
        write(&self.repo().join(path), text);
        self
    }

    /// Makes a file of the repository executable.
    pub(crate) fn executable(self, path: &str, text: &str) -> Bench {
        use std::os::unix::fs::PermissionsExt as _;
        let this = self.file(path, text);
        fs::set_permissions(this.repo().join(path), fs::Permissions::from_mode(0o755)).unwrap();
        this
    }

    /// Commits everything.
    pub(crate) fn commit(self, message: &str) -> Bench {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
        self
    }

    /// Writes a workflow of the project; it is not committed.
    pub(crate) fn workflow(self, name: &str, yaml: &str) -> Bench {
        let source = Source { name: name.to_owned(), text: yaml.to_owned() };
        if Workflow::load(&Arc::new(source)).is_ok() {
            check_by_schema(yaml);
        }
        self.file(&format!(".spinney/workflows/{name}.yaml"), yaml)
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Bench {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Writes a script beside the repository and returns its path.
    pub(crate) fn script(&self, yaml: &str) -> String {
        let path = self.path("script.yaml");
        write(&path, yaml);
        path.display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// Starts the program itself in the repository, as a process of its own.
    pub(crate) fn program(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_spinney"))
            .args(arguments)
            .current_dir(self.repo())
            .env_clear()
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// What the program knows of the user and the machine where it runs in the repository.
    fn settings(&self) -> Settings {
        Settings { program: Some(env!("CARGO_BIN_EXE_spinney").into()), ..Context::settings(self.environment.clone(), self.repo()) }
    }

    /// Runs the program in the repository.
    pub(crate) fn spinney(&self, arguments: &[&str]) -> Said {
        let (out, err) = (Buffer::default(), Buffer::default());
        let context =
            Context { settings: self.settings(), color: false, live: false, interactive: false, out: Box::new(out.clone()), err: Box::new(err.clone()) };
        let words = std::iter::once("spinney").chain(arguments.iter().copied()).map(Into::into);
        let code = cli::run(words, context);
        Said { code, out: out.text(), err: err.text() }
    }

    /// Runs git in the repository and returns what it printed.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.repo(), &self.environment, arguments)
    }

    /// Returns the newest run.
    pub(crate) fn newest(&self) -> RunId {
        RunDir::list(&RunDir::state(&self.repo())).unwrap().into_iter().next().expect("there is a run")
    }

    /// Returns the records of a run.
    pub(crate) fn records(&self, run: &RunId) -> Vec<Record> {
        journal::read(RunDir::open(&RunDir::state(&self.repo()), run).unwrap().path()).unwrap()
    }

    /// Runs a workflow with a script and checks what holds of every log; returns what was said and the log.
    pub(crate) fn run(&self, workflow: &str, script: &str, more: &[&str]) -> (Said, Vec<Record>) {
        let script = self.script(script);
        let mut arguments = vec!["run", workflow, "--script", &script];
        arguments.extend(more);
        let said = self.spinney(&arguments);
        assert!(!RunDir::list(&RunDir::state(&self.repo())).unwrap_or_default().is_empty(), "no run was begun\n--- out\n{}\n--- err\n{}", said.out, said.err);
        let records = self.records(&self.newest());
        crate::invariants::check(&records, &self.repo());
        (said, records)
    }
}

/// Returns whether this machine lets a test make a namespace; says so where it does not, which is no pass where
/// `SPINNEY_TEST_ALL` is set.
#[track_caller]
pub(crate) fn possible(what: &str, namespace: &[&str]) -> bool {
    let made = Command::new("unshare").args(namespace).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !made {
        not_tested(what, "`unshare` may make no namespace here");
    }
    made
}

/// Says that something cannot be tested here, and fails where all must be.
#[track_caller]
pub(crate) fn not_tested(what: &str, why: &str) {
    // By the process's own standard error: what a test prints is shown only where it fails.
    let _ = writeln!(io::stderr(), "not tested: {what}: {why}");
    assert!(std::env::var_os("SPINNEY_TEST_ALL").is_none(), "not tested: {what}: {why}");
}

/// Makes an environment in which everything of the user's is in a folder.
fn environment(dir: &TempDir) -> BTreeMap<String, String> {
    let at = |name: &str| dir.path().canonicalize().unwrap().join(name).display().to_string();
    let path = std::env::var("PATH").unwrap();
    let mut environment: BTreeMap<String, String> = [
        ("PATH", path),
        ("HOME", at("home")),
        ("XDG_CACHE_HOME", at("cache")),
        ("XDG_CONFIG_HOME", at("config")),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        environment.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    environment
}

/// Copies the files below a folder into another.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.as_ref().unwrap(), to.join(entry.as_ref().unwrap().file_name()));
        if entry.file_type().unwrap().is_dir() {
            // The samples that git puts there are of no use.
            if entry.file_name() != "hooks" || !from.ends_with(".git") {
                fs::create_dir(&to).unwrap();
                copy(&entry.path(), &to);
            }
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Runs git somewhere and returns what it printed.
pub(crate) fn git(dir: &Path, environment: &BTreeMap<String, String>, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(dir).env_clear().envs(environment).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the answers to an agent's calls: tool, whether an error, text.
pub(crate) fn results<'a>(records: &'a [Record], node: &str) -> Vec<(&'a str, bool, &'a str)> {
    let of = |record: &'a Record| match &record.event {
        Event::ToolFinished { node: of, tool, result, .. } if of.to_string() == node => Some((tool.as_str(), result.is_error, result.text.as_str())),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

/// Returns how a node ended, as JSON.
pub(crate) fn outcome(records: &[Record], node: &str) -> Value {
    let of = |record: &Record| match &record.event {
        Event::StepFinished { node: of, outcome } if of.to_string() == node => Some(serde_json::to_value(outcome).unwrap()),
        Event::RunFinished { outcome } if node == "run" => Some(serde_json::to_value(outcome).unwrap()),
        _ => None,
    };
    records.iter().rev().find_map(of).unwrap_or(Value::Null)
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
