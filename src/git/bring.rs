//! What a worktree gets of the user's checkout besides its commit: ignored files that are copied or linked in, and the
//! commit of all that the checkout has changed.
//!
//! Nothing of the checkout is written, its index neither. What is brought is never a part of the work: it is passed over
//! when the files are captured, whatever the ignore rules say by then.
use super::{
    commit::CommitMeta,
    error::GitError,
    held, lock, path,
    refs::{Expected, ref_of},
    repository::Repository,
    scope::Scope,
    workspaces::{Workspaces, Worktree},
};
use crate::{
    event::{CommitId, RunId},
    secrets::Secrets,
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// As many files are copied or linked at the most.
const FILES_MAX: usize = 50_000;
/// The list of what was brought, beside the engine's index.
const BROUGHT: &str = "brought";

/// What is brought into a worktree: globs of files that are copied, and of files and folders that are linked.
#[derive(Debug, Clone)]
pub struct Bring {
    /// Copied.
    pub copy: Scope,
    /// Linked.
    pub link: Scope,
}

impl Workspaces {
    /// Brings ignored files of the user's checkout into a worktree; what stands there already is left as it is. Returns
    /// where the links lead, for walls that show it to read only.
    ///
    /// # Errors
    /// `LeadsOut` for a link that leads out of the checkout, or out of the worktree.
    pub fn bring(&self, worktree: &Worktree, bring: &Bring) -> Result<Vec<PathBuf>, GitError> {
        let repository = self.repository();
        let from = repository.root().canonicalize().map_err(GitError::io("find", repository.root()))?;
        let mut brought = BTreeSet::new();
        let mut targets = Vec::new();
        for name in repository.ignored(&["--directory"])?.iter().chain(&repository.named(&bring.link)?) {
            if bring.link.names(name) && !targets.iter().any(|target: &PathBuf| from.join(name).starts_with(target)) {
                let source = inside(&from, &from.join(name))?;
                place(worktree, name, |to| symlink(&source, to))?;
                brought.insert(name.clone());
                targets.push(source);
            }
        }
        if !bring.copy.patterns().is_empty() {
            for name in repository.ignored(&[])?.iter().filter(|name| bring.copy.contains(name)) {
                let source = inside(&from, &from.join(name))?;
                if source.is_file() {
                    place(worktree, name, |to| fs::copy(&source, to).map(|_| ()))?;
                    brought.insert(name.clone());
                }
            }
        }
        if brought.len() > FILES_MAX {
            return Err(GitError::Garbled { command: "ls-files --ignored".to_owned(), reason: "`copy` and `link` name too many files" });
        }
        let list = worktree.state().join(BROUGHT);
        fs::write(&list, brought.into_iter().collect::<Vec<_>>().join("\0")).map_err(GitError::io("write", list))?;
        Ok(targets)
    }
}

/// Returns what was brought into a worktree, as git lists it.
pub(super) fn brought(worktree: &Worktree) -> BTreeSet<Vec<u8>> {
    let listed = fs::read_to_string(worktree.state().join(BROUGHT)).unwrap_or_default();
    listed.split('\0').filter(|name| !name.is_empty()).map(path::unquote).collect()
}

/// Returns the real place of a file of a folder.
fn inside(folder: &Path, file: &Path) -> Result<PathBuf, GitError> {
    let real = file.canonicalize().map_err(GitError::io("find", file))?;
    if real.starts_with(folder) { Ok(real) } else { Err(GitError::LeadsOut { path: file.to_owned() }) }
}

/// Puts something at a path of a worktree where nothing stands.
fn place(worktree: &Worktree, name: &str, put: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), GitError> {
    let to = worktree.path().join(name);
    if fs::symlink_metadata(&to).is_ok() {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(worktree.path());
    fs::create_dir_all(folder).map_err(GitError::io("make", folder))?;
    let root = worktree.path().canonicalize().map_err(GitError::io("find", worktree.path()))?;
    inside(&root, folder)?;
    put(&to).map_err(GitError::io("write", to))
}

impl Repository {
    /// Returns the files of the checkout that git ignores, whole folders as one where `--directory` is asked for.
    fn ignored(&self, more: &[&str]) -> Result<Vec<String>, GitError> {
        let args = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard"];
        let output = self.in_checkout(&args.iter().chain(more).copied().collect::<Vec<_>>())?;
        if !output.is_success() {
            return Err(super::program::failed("ls-files".to_owned(), &output));
        }
        let listed = output.whole("ls-files")?;
        let names = listed.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok()).map(|name| name.trim_end_matches('/'));
        // What this program keeps there itself is none of it.
        Ok(names.filter(|name| !name.is_empty() && !name.starts_with(".spinney")).map(str::to_owned).collect())
    }

    /// Returns the patterns that are the names of ignored files or folders, also inside of an ignored folder.
    fn named(&self, scope: &Scope) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        for pattern in scope.patterns() {
            let name = pattern.trim_start_matches("./").trim_matches('/');
            let plain = !name.is_empty() && !name.contains(['*', '?', '[', '{']) && fs::symlink_metadata(self.root().join(name)).is_ok();
            if plain && self.in_checkout(&["check-ignore", "--quiet", "--", name])?.is_success() {
                found.push(name.to_owned());
            }
        }
        Ok(found)
    }

    /// Returns the commit of all that the user's checkout has: `base` with its changed and new files that are not ignored.
    /// It is made once a run, and a ref keeps it.
    ///
    /// # Errors
    /// `HoldsSecret` where one of them holds the value of a secret.
    pub fn dirty(&self, base: &CommitId, run: &RunId, secrets: &Secrets) -> Result<CommitId, GitError> {
        let name = ref_of(run, "checkout", "dirty");
        if let Some(made) = self.ref_at(&name)? {
            return Ok(made);
        }
        let own = lock::own_folder(self)?;
        let folder = tempfile::Builder::new().prefix("index-").tempdir_in(&own).map_err(GitError::io("make a folder in", own))?;
        let index = folder.path().join("index");
        self.git(["read-tree"]).arg(&base.0).index(&index).bytes()?;
        let listed = self.git(["ls-files", "-z", "--modified", "--others", "--exclude-standard"]).on(self.root(), &index).bytes()?;
        let mut paths = listed.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
        if let Some(held) = held::take(secrets, (self, base), self.root(), &mut paths)?.first() {
            return Err(held.refused());
        }
        self.git(["add", "--all"]).on(self.root(), &index).bytes()?;
        let tree = super::objects::TreeId(self.git(["write-tree"]).index(&index).text()?);
        if tree == self.tree_of(base)? {
            return Ok(base.clone());
        }
        let meta = CommitMeta { title: "What the checkout has besides".to_owned(), at: self.date_of(base)?, ..CommitMeta::default() }
            .trailer("Spinney-Run", run.0.clone());
        let commit = self.commit_tree(&tree, std::slice::from_ref(base), &meta)?;
        match self.set_ref(&name, &commit, Expected::Absent) {
            Ok(()) => Ok(commit),
            // Another step was faster; all start from one.
            Err(error) => self.ref_at(&name)?.ok_or(error),
        }
    }
}
