//! Finding a repository, and what is read from it once.
use super::{
    brought,
    commit::Identity,
    error::GitError,
    merge_tree::is_driver,
    path,
    process::{Git, Output},
    program,
};
use crate::event::{CommitId, hex};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The oldest git that merges trees with a given merge base, and reads attributes from a tree.
const OLDEST: (u32, u32) = (2, 41);

/// A repository with a checkout. Cheap to clone; holds no handle and no lock.
#[derive(Debug, Clone)]
pub struct Repository(Arc<Found>);

#[derive(Debug, Clone)]
struct Found {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    program: Git,
    settings: Vec<OsString>,
    user: Option<Identity>,
    object_format: String,
    content_settings: Vec<(String, String)>,
    merge_drivers: Vec<(String, String)>,
    libgit2: bool,
    reftable: bool,
}

/// What is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The commit.
    pub commit: CommitId,
    /// The branch's full ref name; `None` where HEAD is detached.
    pub branch: Option<String>,
}

impl Repository {
    /// Finds the repository from any folder of its checkout or of one of its worktrees. `environment` is the caller's;
    /// git sees the few variables of it that it needs to find its configuration and the filters it starts.
    ///
    /// # Errors
    /// `NotFound`, `Bare`, `TooOld`, `Program` or `BringsState`, each with what to do.
    pub fn open(from: &Path, environment: &BTreeMap<String, String>) -> Result<Repository, GitError> {
        let program = Git::new(program::environment(environment))?;
        let settings = program::settings();
        check_version(&program)?;
        let with_system = program.with(|environment| drop(environment.remove("GIT_CONFIG_NOSYSTEM")));
        // Whom a repository may belong to is often said for the whole system.
        let place = Place::find(from, &with_system)?;
        let config = Config::read(&place.common_dir, &with_system)?;
        let settings = [settings, config.settings()].concat();
        let found = Found {
            libgit2: config.fits_libgit2() && open_objects(&place.common_dir).is_ok(),
            reftable: config.get("extensions.refstorage").is_some_and(|format| format != "files"),
            user: config.user(),
            object_format: config.get("extensions.objectformat").unwrap_or("sha1").to_owned(),
            content_settings: config.content_settings(),
            merge_drivers: config.merge_drivers(),
            root: place.root,
            git_dir: place.git_dir,
            common_dir: place.common_dir,
            program,
            settings,
        };
        let repository = Repository(Arc::new(found));
        let checkout = repository.main_checkout();
        let git_dir = if checkout == repository.root() { &repository.0.git_dir } else { &repository.0.common_dir };
        brought::refuse(checkout, git_dir, repository.program(), repository.0.libgit2)?;
        Ok(repository)
    }

    /// Returns the top folder of the checkout it was opened from.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns the top folder of the main checkout, whatever worktree this one is; of a bare repository with worktrees, this
    /// worktree's.
    pub fn main_checkout(&self) -> &Path {
        match self.0.common_dir.parent() {
            Some(parent) if self.0.common_dir.file_name().is_some_and(|name| name == ".git") => parent,
            Some(_) | None => &self.0.root,
        }
    }

    /// Returns the folder that all worktrees of the repository share.
    pub fn common_dir(&self) -> &Path {
        &self.0.common_dir
    }

    /// Returns the git folder of the checkout it was opened from.
    pub(super) fn git_dir(&self) -> &Path {
        &self.0.git_dir
    }

    /// Returns a stable name for this repository on this machine, for cache folders: 16 hexadecimal digits.
    pub fn id(&self) -> String {
        let mut id = hex(&Sha256::digest(self.0.common_dir.as_os_str().as_encoded_bytes()));
        id.truncate(16);
        id
    }

    /// Returns the user's identity, where one is configured.
    pub fn user(&self) -> Option<&Identity> {
        self.0.user.as_ref()
    }

    /// Returns what is checked out.
    ///
    /// # Errors
    /// `Unborn` where there is no commit yet.
    pub fn head(&self) -> Result<Head, GitError> {
        let unborn = || GitError::Unborn { path: self.0.root.clone() };
        if self.0.libgit2
            && let Ok(checkout) = open_objects(&self.0.git_dir)
        {
            let head = checkout.find_reference("HEAD")?;
            let commit = head.peel_to_commit().map_err(|_| unborn())?.id();
            return Ok(Head { commit: CommitId(commit.to_string()), branch: head.symbolic_target()?.map(str::to_owned) });
        }
        let branch = self.of_checkout(&["symbolic-ref", "-q", "HEAD"])?;
        let branch = branch.is_success().then(|| branch.line());
        let commit = self.of_checkout(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        if commit.is_success() { Ok(Head { commit: CommitId(commit.line()), branch }) } else { Err(unborn()) }
    }

    /// Returns the commit that a revision names, as git reads it in the checkout it was opened from.
    ///
    /// # Errors
    /// `NoSuchRevision` where it names none.
    pub fn resolve(&self, rev: &str) -> Result<CommitId, GitError> {
        let unknown = || GitError::NoSuchRevision { rev: rev.to_owned() };
        if rev.contains('\0') {
            return Err(unknown());
        }
        let found = self.of_checkout(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{rev}^{{commit}}")])?;
        let commit = found.line();
        if found.is_success() && !commit.is_empty() { Ok(CommitId(commit)) } else { Err(unknown()) }
    }

    /// Returns the difference of two commits as a patch, for people.
    pub fn diff(&self, a: &CommitId, b: &CommitId, colour: bool) -> Result<String, GitError> {
        let colour = if colour { "--color=always" } else { "--color=never" };
        let call = self.git(["diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--submodule=short", "-M", colour, "--end-of-options"]);
        call.arg(&a.0).arg(&b.0).shown()
    }

    /// Returns the files that differ between two commits, with counts of lines, for people.
    pub fn diffstat(&self, a: &CommitId, b: &CommitId) -> Result<String, GitError> {
        let call = self.git([
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=none",
            "--submodule=short",
            "-M",
            "--color=never",
            "--stat=100",
            "--end-of-options",
        ]);
        call.arg(&a.0).arg(&b.0).shown()
    }

    /// Reads with git what belongs to the checkout it was opened from: HEAD and what is named after it.
    fn of_checkout(&self, args: &[&str]) -> Result<Output, GitError> {
        let mut git_dir = OsString::from("--git-dir=");
        git_dir.push(&self.0.git_dir);
        let args: Vec<OsString> = self.settings().iter().cloned().chain([git_dir]).chain(args.iter().map(Into::into)).collect();
        self.0.program.run(&args, self.common_dir(), &[])
    }

    /// Opens the object database, where libgit2 supports the repository. Opened anew for each use: it costs less than
    /// starting a process, and sees packs that git has written since.
    pub(super) fn objects(&self) -> Option<git2::Repository> {
        if self.0.libgit2 { open_objects(&self.0.common_dir).ok() } else { None }
    }

    pub(super) fn program(&self) -> &Git {
        &self.0.program
    }

    /// Starts no git from now on, for whoever has a copy of this: the process is about to end, and what was ended must not be
    /// begun again.
    pub fn close(&self) {
        self.program().close();
    }

    /// The same repository whose git processes are noted in a run's registry, so that none outlives the run unnoticed.
    ///
    /// # Errors
    /// Where the registry cannot be made.
    pub fn registered(&self, registry: &Path) -> Result<Repository, GitError> {
        let mut found = (*self.0).clone();
        found.program = found.program.registered(registry)?;
        Ok(Repository(Arc::new(found)))
    }

    pub(super) fn settings(&self) -> &[OsString] {
        &self.0.settings
    }

    /// Returns the hash that names objects: `sha1`, `sha256`.
    pub(super) fn object_format(&self) -> &str {
        &self.0.object_format
    }

    /// Returns what the configuration says about how files are read and written; keys in git's form, in order.
    pub(super) fn content_settings(&self) -> &[(String, String)] {
        &self.0.content_settings
    }

    /// Returns the programs that joined files when the repository was opened; keys in git's form.
    pub(super) fn merge_drivers(&self) -> &[(String, String)] {
        &self.0.merge_drivers
    }

    /// Returns whether worktrees must be registered by git itself.
    pub(super) fn uses_reftable(&self) -> bool {
        self.0.reftable
    }
}

fn open_objects(common_dir: &Path) -> Result<git2::Repository, git2::Error> {
    use git2::RepositoryOpenFlags as Flags;
    let flags = Flags::NO_SEARCH | Flags::BARE | Flags::NO_DOTGIT;
    git2::Repository::open_ext(common_dir, flags, std::iter::empty::<&Path>())
}

/// Returns the version of the git program on the `PATH` of an environment.
///
/// # Errors
/// `TooOld` or `Program`.
pub fn load_version(environment: &BTreeMap<String, String>) -> Result<String, GitError> {
    check_version(&Git::new(program::environment(environment))?)
}

fn check_version(program: &Git) -> Result<String, GitError> {
    let said = program.run(&["version".into()], Path::new("/"), &[])?.line();
    let found = said.strip_prefix("git version ").unwrap_or(&said);
    match version(found) {
        Some(version) if version >= OLDEST => Ok(found.to_owned()),
        _ => Err(GitError::TooOld { found: found.to_owned() }),
    }
}

/// Reads `2.47.3`, `2.39.2 (Apple Git-143)`, `2.45.0.windows.1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

struct Place {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
}

impl Place {
    fn find(from: &Path, program: &Git) -> Result<Place, GitError> {
        let not_found = |reason: String| GitError::NotFound { path: from.to_owned(), reason };
        let from = from.canonicalize().map_err(|error| not_found(error.to_string()))?;
        let ask = |args: &[&str]| {
            let args: Vec<OsString> = ["rev-parse", "--path-format=absolute"].iter().chain(args).map(Into::into).collect();
            program.run(&args, &from, &[])
        };
        // Without a checkout the last question fails, and what was said before it tells why.
        let output = ask(&["--is-bare-repository", "--is-inside-work-tree", "--git-dir", "--git-common-dir", "--show-toplevel"])?;
        let lines: Vec<&[u8]> = output.stdout.head.split(|&byte| byte == b'\n').collect();
        let path = from.clone();
        match lines[..] {
            [b"true", b"false", ..] => return Err(GitError::Bare { path }),
            [_, b"false", ..] => return Err(not_found("this is inside a `.git` folder, not a checkout".to_owned())),
            _ if !output.is_success() => return Err(not_found(program::complaint(&output))),
            _ => {}
        }
        let [_bare, _inside, git_dir, common_dir, root, b""] = lines[..] else {
            return Err(not_found("its path holds a line break".to_owned()));
        };
        let real = |bytes: &[u8]| {
            let path = path::file(bytes);
            path.canonicalize().map_err(GitError::io("find", path))
        };
        Ok(Place { root: real(root)?, git_dir: real(git_dir)?, common_dir: real(common_dir)? })
    }
}

/// The configuration as it was when the repository was opened: before any agent ran.
struct Config {
    own: Vec<(String, String)>,
    system: Vec<(String, String)>,
}

impl Config {
    fn read(common_dir: &Path, with_system: &Git) -> Result<Config, GitError> {
        let mut git_dir = OsString::from("--git-dir=");
        git_dir.push(common_dir);
        let args = [git_dir, "config".into(), "--list".into(), "-z".into(), "--show-scope".into()];
        let output = with_system.run(&args, common_dir, &[])?;
        let (system, own): (Vec<_>, Vec<_>) = entries(&output.whole("config --list")?).into_iter().partition(|entry| entry.scope == "system");
        let pairs = |entries: Vec<Entry>| entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        Ok(Config { own: pairs(own), system: pairs(system) })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.own.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns further settings for every call: hooks in the configuration off; and what a system-wide installation of
    /// Git LFS and the like says about the content of files, unless the user says something else.
    fn settings(&self) -> Vec<OsString> {
        let hooks = self.own.iter().filter_map(|(key, _)| {
            let name = key.strip_prefix("hook.")?.rsplit_once('.')?.0;
            Some(format!("hook.{name}.enabled=false"))
        });
        let content = self.system.iter().filter(|(key, _)| (shapes_content(key) || is_driver(key)) && self.get(key).is_none());
        let content = content.map(|(key, value)| format!("{key}={value}"));
        // Fetching what is missing is how a partial clone reads at all; nothing else may reach out.
        let reach = if self.is_partial() { "protocol.ext.allow=never" } else { "protocol.allow=never" };
        let mut all: Vec<String> = hooks.chain(content).filter(|setting| !setting.contains('\n')).collect();
        all.push(reach.to_owned());
        all.sort();
        all.dedup();
        all.into_iter().flat_map(|setting| ["-c".into(), setting.into()]).collect()
    }

    /// Returns what shapes the content of files, the system's settings first.
    fn content_settings(&self) -> Vec<(String, String)> {
        let of_disk = ["core.filemode", "core.ignorecase", "core.precomposeunicode", "core.symlinks"];
        let all = self
            .system
            .iter()
            .filter(|(key, _)| shapes_content(key))
            .chain(self.own.iter().filter(|(key, _)| shapes_content(key) || of_disk.contains(&key.as_str())));
        all.cloned().collect()
    }

    fn merge_drivers(&self) -> Vec<(String, String)> {
        self.system.iter().chain(&self.own).filter(|(key, _)| is_driver(key)).cloned().collect()
    }

    fn is_partial(&self) -> bool {
        self.own.iter().any(|(key, value)| key == "extensions.partialclone" || (key.starts_with("remote.") && key.ends_with(".promisor") && value != "false"))
    }

    fn fits_libgit2(&self) -> bool {
        let plain = |name: &str, value: &str| self.get(name).is_none_or(|found| found == value);
        !self.is_partial() && plain("extensions.objectformat", "sha1") && plain("extensions.refstorage", "files")
    }

    fn user(&self) -> Option<Identity> {
        Identity::new(self.get("author.name").or(self.get("user.name"))?, self.get("author.email").or(self.get("user.email"))?)
    }
}

fn shapes_content(key: &str) -> bool {
    key.starts_with("filter.") || ["core.attributesfile", "core.autocrlf", "core.eol", "core.excludesfile", "core.safecrlf"].contains(&key)
}

/// One setting, and which kind of file it stands in.
struct Entry {
    scope: String,
    key: String,
    value: String,
}

/// Reads `scope NUL key NEWLINE value NUL`, repeated; a key alone means true.
fn entries(listed: &[u8]) -> Vec<Entry> {
    let texts: Vec<_> = listed.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let entry = |pair: &[std::borrow::Cow<'_, str>]| {
        let (key, value) = pair[1].split_once('\n').unwrap_or((&pair[1], "true"));
        Entry { scope: pair[0].clone().into_owned(), key: key.to_owned(), value: value.to_owned() }
    };
    texts.chunks_exact(2).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn hooks_of_the_configuration_are_off_and_the_systems_filters_on() {
        let own = pairs(&[
            ("hook.lint.er.command", "x"),
            ("hook.lint.er.event", "pre-commit"),
            ("hook.bad\nname.command", "x"),
            ("core.eol", "lf"),
            ("alias.x", "!y"),
        ]);
        let system = pairs(&[("filter.lfs.clean", "git-lfs clean -- %f"), ("core.eol", "crlf"), ("core.fsmonitor", "x"), ("filter.up.smudge", "a\nb")]);
        let settings: Vec<String> = Config { own, system }.settings().into_iter().filter_map(|arg| arg.into_string().ok()).filter(|arg| arg != "-c").collect();
        assert_eq!(settings, ["filter.lfs.clean=git-lfs clean -- %f", "hook.lint.er.enabled=false", "protocol.allow=never"]);
    }

    #[test]
    fn what_libgit2_cannot_read_is_known() {
        let fits = |entries: &[(&str, &str)]| Config { own: pairs(entries), system: Vec::new() }.fits_libgit2();
        assert!(fits(&[]) && fits(&[("extensions.objectformat", "sha1"), ("remote.origin.promisor", "false")]));
        for entry in [
            ("extensions.objectformat", "sha256"),
            ("extensions.refstorage", "reftable"),
            ("extensions.partialclone", "origin"),
            ("remote.origin.promisor", "true"),
        ] {
            assert!(!fits(&[entry]), "{entry:?}");
        }
    }

    #[test]
    fn versions_are_read() {
        for (text, expected) in [
            ("2.47.3", Some((2, 47))),
            ("2.39.2 (Apple Git-143)", Some((2, 39))),
            ("2.45.0.windows.1", Some((2, 45))),
            ("3.0-rc1", Some((3, 0))),
            ("", None),
            ("new", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!((2, 41) >= OLDEST && (2, 40) < OLDEST && (3, 0) >= OLDEST);
    }
}
