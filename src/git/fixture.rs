//! Repositories for tests: real, temporary, and deaf to the configuration of whoever runs them.
use super::{Repository, Workspaces};
use crate::event::CommitId;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A repository with one commit.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    /// Makes a repository with `a.txt`, `src/lib.rs`, an executable and a `.gitignore`.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture::bare_of_commits(&[]);
        fixture.write("a.txt", "one\ntwo\nthree\n");
        fixture.write("src/lib.rs", "pub fn f() {}\n");
        fixture.write(".gitignore", "target/\n*.log\n");
        fixture.commit("base");
        fixture
    }

    /// Makes a repository without a commit.
    pub(crate) fn bare_of_commits(init: &[&str]) -> Fixture {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["home", "repo", "cache"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        fs::write(folder.path().join("home/.gitconfig"), "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n").expect("a file");
        let fixture = Fixture { folder };
        fixture.git(&[&["init", "-q"], init].concat());
        fixture
    }

    /// The caller's environment as `cli` would hand it down, with things in it that must not get through.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let home = self.path("home").to_string_lossy().into_owned();
        let path = option_env!("PATH").unwrap_or("/usr/bin:/bin");
        let entries = [("HOME", home.as_str()), ("PATH", path), ("GIT_DIR", "/nowhere"), ("GIT_INDEX_FILE", "/nowhere"), ("GIT_AUTHOR_NAME", "Mallory")];
        entries.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("it exists").join(name)
    }

    /// Runs git as the user would, in the checkout.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.path("repo"), args)
    }

    /// Runs git as an agent or a user would, in some folder.
    pub(crate) fn git_in(&self, folder: &Path, args: &[&str]) -> String {
        let output = self.try_git_in(folder, args);
        assert!(output.is_success(), "git {args:?}: {}", output.stderr.text());
        output.stdout.text().trim_end().to_owned()
    }

    pub(super) fn try_git_in(&self, folder: &Path, args: &[&str]) -> super::process::Output {
        let home = self.path("home").to_string_lossy().into_owned();
        let environment = [("HOME", home.as_str()), ("PATH", option_env!("PATH").unwrap_or("/usr/bin:/bin")), ("GIT_CONFIG_NOSYSTEM", "1")];
        let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let args: Vec<_> = args.iter().map(Into::into).collect();
        super::process::Git::new(environment).and_then(|git| git.run(&args, folder, &[])).expect("git starts")
    }

    pub(crate) fn write(&self, file: &str, content: &str) {
        write(&self.path("repo"), file, content);
    }

    /// Commits everything in the checkout, as the user.
    pub(crate) fn commit(&self, message: &str) -> CommitId {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        CommitId(self.git(&["rev-parse", "HEAD"]))
    }

    pub(crate) fn open(&self) -> Repository {
        Repository::open(&self.path("repo"), &self.environment()).expect("it is a repository")
    }

    pub(crate) fn workspaces(&self) -> Workspaces {
        Workspaces::new(&self.open(), &self.path("cache"), &"run-1".into()).expect("the folder is fit")
    }
}

/// Writes a file and the folders above it.
pub(crate) fn write(root: &Path, file: &str, content: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("it has one")).expect("folders");
    fs::write(path, content).expect("a file");
}

/// Returns all files below a folder with their bytes, but those that `skip` names.
pub(crate) fn contents(root: &Path, skip: &dyn Fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            if skip(&name) {
                continue;
            }
            let kind = fs::symlink_metadata(&path).expect("it is there");
            if kind.is_dir() {
                found.insert(format!("{name}/"), Vec::new());
                folders.push(path);
            } else if kind.is_symlink() {
                found.insert(name, fs::read_link(&path).expect("a link").as_os_str().as_encoded_bytes().to_vec());
            } else {
                found.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    found
}
