//! The files of a worktree as a tree.
//!
//! Only the files count. Whatever was done with git inside (commits, an index, configuration, another branch) is not looked
//! at: this runs with the repository's own git folder and the engine's own index, never with the worktree's `.git`. Git is
//! never run inside a repository that an agent made, and no `git add` is used, for it would look into those.
use super::{
    error::GitError,
    held::{self, Held},
    objects::TreeId,
    path, program,
    repository::Repository,
    sparse::Ground,
    workspaces::{Workspaces, Worktree},
};
use crate::event::CommitId;
use std::{collections::BTreeSet, fs, path::Path};
use tempfile::{NamedTempFile, TempPath};

/// A worktree's files.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The tree of all files that are tracked in `onto`, or neither tracked nor ignored.
    pub(super) tree: TreeId,
    /// Repositories inside the worktree, and folders of submodules with files in them, which no tree can hold; sorted, without
    /// a slash at their end.
    pub(super) nested: Vec<Vec<u8>>,
    /// Files that hold a secret: the tree has of them what `onto` has.
    pub(super) held: Vec<Held>,
}

/// What differs from the commit a snapshot is compared with, before anything is written to the object database.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Files that are new or may differ, sorted.
    pub(super) present: Vec<Vec<u8>>,
    /// Files that are gone, sorted.
    pub(super) gone: Vec<Vec<u8>>,
    /// Repositories inside, and folders of submodules that are not checked out and hold files; sorted.
    pub(super) nested: Vec<Vec<u8>>,
    /// Files that hold a secret and are in none of the others, sorted.
    pub(super) held: Vec<Held>,
}

impl Touched {
    /// Returns all of it as git would show it, sorted.
    pub(super) fn paths(&self) -> Vec<String> {
        let all = self.present.iter().chain(&self.gone).chain(&self.nested).map(|path| path::quote(path));
        let all: BTreeSet<String> = all.chain(self.held.iter().map(|held| held.shown.clone())).collect();
        all.into_iter().collect()
    }
}

/// A snapshot being taken, with an index of its own.
pub(super) struct Taking<'a> {
    repository: &'a Repository,
    worktree: &'a Worktree,
    onto: CommitId,
    index: TempPath,
    /// What it will hold that `onto` does not.
    pub(super) touched: Touched,
}

impl Workspaces {
    /// Takes the snapshot of a worktree, as it differs from `onto`.
    pub(super) fn snapshot(&self, worktree: &Worktree, onto: &CommitId) -> Result<Snapshot, GitError> {
        Taking::begin(self, worktree, onto)?.finish()
    }
}

impl<'a> Taking<'a> {
    /// Finds out what differs.
    pub(super) fn begin(workspaces: &'a Workspaces, worktree: &'a Worktree, onto: &CommitId) -> Result<Taking<'a>, GitError> {
        let mut taking = Taking::open(workspaces, worktree, onto)?;
        taking.find_tracked()?;
        taking.find_beside(workspaces)?;
        Ok(taking)
    }

    /// Makes the index, with which nothing is found out yet. It is the engine's last one, brought to `onto`: it saves reading files
    /// that did not change, and decides nothing.
    pub(super) fn open(workspaces: &'a Workspaces, worktree: &'a Worktree, onto: &CommitId) -> Result<Taking<'a>, GitError> {
        let repository = workspaces.repository();
        let folder = worktree.state();
        let index = NamedTempFile::new_in(folder).map_err(GitError::io("make a file in", folder))?.into_temp_path();
        let bring = |args: [&str; 3]| repository.git(args).arg(&onto.0).on(worktree.path(), &index).bytes();
        let usable = copy_index(&worktree.index(), &index).is_ok() && bring(["read-tree", "-i", "-m"]).is_ok();
        if !usable {
            fs::remove_file(&index).map_err(GitError::io("remove", index.to_path_buf()))?;
            bring(["read-tree", "-i", "--reset"])?;
        }
        if let Some(only) = worktree.only() {
            let ground = Ground { repository, files: worktree.path(), index: &index };
            // A new index knows nothing of what was left out.
            if usable { ground.take_in()? } else { ground.leave_out(only)? }
        }
        Ok(Taking { repository, worktree, onto: onto.clone(), index, touched: Touched::default() })
    }

    /// Finds what is not as in `onto` of the files that it has, and reads those that may be for that: whoever goes on to `finish`
    /// need not.
    pub(super) fn find_changed(&mut self) -> Result<(), GitError> {
        // What is not up to date afterwards differs; git says so by its exit code.
        let call = self.repository.git(["update-index", "-q", "--ignore-submodules", "--refresh"]).on(self.worktree.path(), &self.index);
        call.output()?;
        self.find_tracked()
    }

    /// Finds what stands beside the files of `onto`, and what of all that holds a secret; after what it has itself.
    pub(super) fn find_beside(&mut self, workspaces: &Workspaces) -> Result<(), GitError> {
        self.find_untracked()?;
        self.find_hidden(&workspaces.submodules(&self.onto)?);
        let touched = &mut self.touched;
        touched.present.sort();
        touched.gone.sort();
        touched.nested.sort();
        touched.nested.dedup();
        touched.held = held::take(workspaces.secrets(), (self.repository, &self.onto), self.worktree.path(), &mut touched.present)?;
        match touched.nested.iter().find_map(|path| held::named(workspaces.secrets(), path)) {
            Some(nested) => Err(nested.refused()),
            None => Ok(()),
        }
    }

    /// Writes what differs to the object database and returns the whole tree.
    pub(super) fn finish(self) -> Result<Snapshot, GitError> {
        let Taking { repository, worktree, onto, index, touched } = self;
        let update = |args: [&str; 4], input: Vec<u8>| repository.git(args).on(worktree.path(), &index).stdin(input).bytes();
        // Removed by name and not by looking: a folder above may have become a link.
        if !touched.gone.is_empty() {
            let zero = "0".repeat(worktree.base().0.len());
            let lines = touched.gone.iter().flat_map(|path| [format!("0 {zero}\t").as_bytes(), path, b"\0"].concat()).collect();
            update(["update-index", "-z", "--replace", "--index-info"], lines)?;
        }
        if !touched.present.is_empty() {
            let call = repository.git(["update-index", "-z", "--add", "--replace", "--remove", "--stdin"]);
            call.on(worktree.path(), &index).stdin(terminated(&touched.present)).bytes()?;
        }
        let is_same = touched.gone.is_empty() && touched.present.is_empty();
        let tree = if is_same { repository.tree_of(&onto)? } else { TreeId(repository.git(["write-tree"]).on(worktree.path(), &index).text()?) };
        index.persist(worktree.index()).map_err(|error| GitError::io("write", worktree.index())(error.error))?;
        Ok(Snapshot { tree, nested: touched.nested, held: touched.held })
    }

    /// Writes files as `onto` has them; `paths` each end with a zero byte.
    pub(super) fn write_out(&self, paths: Vec<u8>) -> Result<(), GitError> {
        let call = self.repository.git(["checkout-index", "-f", "-q", "-z", "--stdin"]).on(self.worktree.path(), &self.index);
        call.stdin(paths).bytes().map(drop)
    }

    /// Returns which of some paths a filter of the user's works on, such as Git LFS.
    pub(super) fn filtered(&self, paths: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, GitError> {
        let call = self.repository.git(["check-attr", "-z", "--stdin", "filter"]).on(self.worktree.path(), &self.index);
        let listed = call.stdin(terminated(paths)).bytes()?;
        let fields: Vec<&[u8]> = listed.split(|&byte| byte == 0).collect();
        let set = fields.chunks_exact(3).filter(|record| !matches!(record[2], b"unspecified" | b"unset"));
        Ok(set.map(|record| record[0].to_vec()).collect())
    }

    fn find_tracked(&mut self) -> Result<(), GitError> {
        // Of submodules: whether they are gone or something else now. Git starts nothing in them for that.
        let call = self.repository.git(["diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=dirty"]);
        let listed = call.on(self.worktree.path(), &self.index).bytes()?;
        let fields: Vec<&[u8]> = listed.split(|&byte| byte == 0).collect();
        for record in fields.chunks_exact(2) {
            let path = record[1].to_vec();
            let is_folder = || fs::symlink_metadata(self.worktree.path().join(path::file(&path))).is_ok_and(|found| found.is_dir());
            if record[0].ends_with(b" D") {
                self.touched.gone.push(path);
            } else if record[0].starts_with(b":160000 ") && is_folder() {
                // A submodule that is still one: `find_hidden` looks at it.
            } else if is_folder() {
                // A folder where a file was is a type change to git only if it is a repository.
                self.touched.nested.push(path.clone());
                self.touched.gone.push(path);
            } else {
                self.touched.present.push(path);
            }
        }
        Ok(())
    }

    fn find_untracked(&mut self) -> Result<(), GitError> {
        let call = self.repository.git(["ls-files", "-z", "--others", "--exclude-standard"]).on(self.worktree.path(), &self.index);
        let output = call.output()?;
        // Git only warns of a folder it cannot read, and would leave out the work in it.
        if !output.is_success() || program::complaint(&output).contains("could not open directory") {
            return Err(program::failed_in(&[self.worktree.path().to_owned()], "ls-files".to_owned(), &output));
        }
        let brought = super::bring::brought(self.worktree);
        for path in output.whole("ls-files")?.split(|&byte| byte == 0).filter(|path| !path.is_empty() && !brought.contains(*path)) {
            match path.strip_suffix(b"/") {
                Some(nested) => self.touched.nested.push(nested.to_vec()),
                None => self.touched.present.push(path.to_vec()),
            }
        }
        Ok(())
    }

    /// Finds what git passes over in submodules: files in the folder of one that is not checked out, and a checkout of another
    /// commit than the recorded one. Other changes inside a checked out submodule are not seen; git would have to run in it.
    fn find_hidden(&mut self, submodules: &[Vec<u8>]) {
        for path in submodules {
            let folder = self.worktree.path().join(path::file(path));
            let real = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
            if real && is_checkout(&folder) {
                self.touched.present.push(path.clone());
            } else if real && fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
                self.touched.nested.push(path.clone());
            }
        }
    }
}

/// Copies an index with its date, from which git knows which files may have changed in the tick in which it was written.
pub(super) fn copy_index(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

fn is_checkout(folder: &Path) -> bool {
    let git = folder.join(".git");
    fs::symlink_metadata(&git).is_ok_and(|found| found.is_file()) || git.join("HEAD").is_file()
}

pub(super) fn terminated(paths: &[Vec<u8>]) -> Vec<u8> {
    paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect()
}
