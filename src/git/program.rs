//! The git program with the settings every call of the engine has.
//!
//! A tension is settled here. Git obeys the configuration of the repository, and configuration can start programs. Filters
//! (Git LFS, say) and line endings must work as the user set them up, so the repository's and the user's own configuration
//! are read; whatever else in them could start something or write beside the purpose is switched off on each command line,
//! which wins over every file. Agents must not be able to write that configuration: that is the sandbox's part.
//! No `GIT_*` variable of the caller gets through, and no command discovers a repository from its folder: an agent could
//! have put one there.
use super::{
    error::GitError,
    process::{INDEX, Output},
    repository::Repository,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Variables of the caller that git and the filters it starts may see.
const PASSED_ON: &[&str] = &[
    "ALL_PROXY",
    "APPDATA",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LOGNAME",
    "NO_PROXY",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "TMPDIR",
    "USER",
    "USERPROFILE",
    "XDG_CONFIG_HOME",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Variables of every call.
const FIXED_VARIABLES: &[(&str, &str)] = &[
    ("GIT_ADVICE", "0"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_EDITOR", "true"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
];

/// Settings of every call. Hooks need three of them: git 2.54 brought hooks that stand in the configuration and that
/// `core.hooksPath` does not govern; they are switched off by event here and by name when the repository is opened.
const FIXED_SETTINGS: &[&str] = &[
    "core.checkStat=default",
    "core.filesRefLockTimeout=10000",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.logAllRefUpdates=false",
    "core.packedRefsTimeout=10000",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=true",
    "core.sparseCheckout=false",
    "core.splitIndex=false",
    "core.trustctime=true",
    "core.untrackedCache=false",
    "gc.auto=0",
    "hook.post-checkout.enabled=false",
    "hook.post-index-change.enabled=false",
    "hook.reference-transaction.enabled=false",
    "index.sparse=false",
    "maintenance.auto=false",
    "merge.conflictStyle=zdiff3",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
];

/// Returns the environment of every call, made from the caller's.
pub(super) fn environment(of_caller: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let passed = PASSED_ON.iter().filter_map(|&name| Some((name.to_owned(), of_caller.get(name)?.clone())));
    let fixed = FIXED_VARIABLES.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    passed.chain(fixed).collect()
}

/// Returns the settings of every call as arguments.
pub(super) fn settings() -> Vec<OsString> {
    FIXED_SETTINGS.iter().flat_map(|setting| ["-c".into(), setting.into()]).collect()
}

/// One call of git on a repository.
pub(super) struct Call<'a> {
    repository: &'a Repository,
    name: String,
    before: Vec<OsString>,
    args: Vec<OsString>,
    cwd: PathBuf,
    /// Whether it works on an agent's files, which stand in `cwd`.
    on_files: bool,
    variables: Vec<(&'static str, String)>,
    stdin: Vec<u8>,
    /// Files that git locks with, which only calls of this run make.
    locks: Vec<PathBuf>,
}

impl Repository {
    /// Begins a call of git.
    pub(super) fn git<const N: usize>(&self, args: [&str; N]) -> Call<'_> {
        Call {
            repository: self,
            name: args.iter().take(2).copied().collect::<Vec<_>>().join(" "),
            before: Vec::new(),
            args: args.iter().map(Into::into).collect(),
            cwd: self.common_dir().to_owned(),
            on_files: false,
            variables: Vec::new(),
            stdin: Vec::new(),
            locks: Vec::new(),
        }
    }
}

impl Call<'_> {
    /// Adds an argument.
    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub(super) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Has git run in this folder.
    pub(super) fn within(mut self, folder: PathBuf) -> Self {
        self.cwd = folder;
        self
    }

    /// Sets a variable of git's environment.
    pub(super) fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Adds settings, `NAME=VALUE` each.
    pub(super) fn settings(mut self, settings: Vec<String>) -> Self {
        self.before.extend(settings.into_iter().flat_map(|setting| ["-c".into(), setting.into()]));
        self
    }

    /// Has git use this index, without a worktree.
    pub(super) fn index(mut self, index: &Path) -> Self {
        self.variables.push((INDEX, index.to_string_lossy().into_owned()));
        self
    }

    /// Says what git locks with, and nobody else does.
    pub(super) fn locking(mut self, lock: PathBuf) -> Self {
        self.locks.push(lock);
        self
    }

    /// Has git work on these files with this index, whatever the `.git` in them says. They must stand in a real folder: an
    /// agent may have put a link in its place, and git would take in, overwrite and remove files elsewhere.
    pub(super) fn on(mut self, files: &Path, index: &Path) -> Self {
        let mut work_tree = OsString::from("--work-tree=");
        work_tree.push(files);
        self.before.extend(["-c".into(), "core.bare=false".into(), work_tree]);
        files.clone_into(&mut self.cwd);
        self.on_files = true;
        self.index(index)
    }

    /// Gives git something to read.
    pub(super) fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = bytes;
        self
    }

    /// Runs git and returns what it said, whatever its exit code.
    pub(super) fn output(self) -> Result<Output, GitError> {
        if self.on_files && !std::fs::symlink_metadata(&self.cwd).is_ok_and(|found| found.is_dir()) {
            return Err(GitError::NoFiles { path: self.cwd });
        }
        let mut git_dir = OsString::from("--git-dir=");
        git_dir.push(self.repository.common_dir());
        let mut args = self.repository.settings().to_vec();
        args.extend(self.before);
        args.push(git_dir);
        args.extend(self.args);
        let variables = self.variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        let git = self.repository.program().with(|environment| environment.extend(variables));
        git.run_freeing(&self.locks, &args, &self.cwd, &self.stdin)
    }

    /// Runs git and returns its standard output; any exit code but 0 is an error.
    pub(super) fn bytes(self) -> Result<Vec<u8>, GitError> {
        let (command, output) = self.done()?;
        output.whole(&command)
    }

    /// Runs git; any exit code but 0 is an error, and one for want of room says so, which git itself often does not.
    fn done(self) -> Result<(String, Output), GitError> {
        let (command, places) = (self.name.clone(), [self.cwd.clone(), self.repository.common_dir().to_owned()]);
        let output = self.output()?;
        if output.is_success() { Ok((command, output)) } else { Err(failed_in(&places, command, &output)) }
    }

    /// Runs git and returns its standard output for people: what is too long has a gap in its middle that says so.
    pub(super) fn shown(self) -> Result<String, GitError> {
        Ok(self.done()?.1.stdout.text())
    }

    /// Runs git and returns its standard output as text, without the newline at its end. Names in it that are not UTF-8 are only
    /// like what they were: whoever needs them asks for `bytes`.
    pub(super) fn text(self) -> Result<String, GitError> {
        let bytes = self.bytes()?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }
}

/// Returns the file that git locks another with.
pub(super) fn lock_of(file: &Path) -> PathBuf {
    let mut lock = file.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Makes the error of a call that failed.
pub(super) fn failed(command: String, output: &Output) -> GitError {
    let said = complaint(output);
    let reason = if said.is_empty() { format!("exit code {}", output.code) } else { said };
    GitError::Failed { command, reason }
}

/// Makes the error of a call that failed and wrote to the file systems of these folders.
pub(super) fn failed_in(places: &[PathBuf], command: String, output: &Output) -> GitError {
    match (failed(command, output), places.iter().find(|place| is_full(place))) {
        (GitError::Failed { command, reason }, Some(place)) => GitError::NoRoom { command, place: place.clone(), reason },
        (failed, _) => failed,
    }
}

/// Returns whether so little is left of the file system of a folder that git may have failed for want of it.
fn is_full(folder: &Path) -> bool {
    const LEFT_BYTES: u64 = 1 << 20;
    rustix::fs::statvfs(folder).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < LEFT_BYTES || (found.f_files > 0 && found.f_favail == 0))
}

/// Returns the end of what git complained of, on one line.
pub(super) fn complaint(output: &Output) -> String {
    const KEPT: usize = 2000;
    let text = output.stderr.text();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let joined = lines.join("; ");
    let skipped = joined.chars().count().saturating_sub(KEPT);
    joined.chars().skip(skipped).collect()
}
