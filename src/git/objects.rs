//! Objects: commits, trees, blobs. Read and written with libgit2 where it can open the repository, else with git.
use super::{error::GitError, lock, path, repository::Repository};
use crate::{clock::Timestamp, event::CommitId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A tree, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub String);

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an entry of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A file.
    File,
    /// A file that can be executed.
    Executable,
    /// A symbolic link; its content is the target.
    Link,
    /// A commit of another repository.
    Gitlink,
}

impl Mode {
    /// Reads git's octal form; `None` for `000000` and what is no entry of a tree with files.
    pub(super) fn read(text: &str) -> Option<Mode> {
        match text {
            "100644" | "100664" => Some(Mode::File),
            "100755" => Some(Mode::Executable),
            "120000" => Some(Mode::Link),
            "160000" => Some(Mode::Gitlink),
            _ => None,
        }
    }

    pub(super) fn octal(self) -> &'static str {
        match self {
            Mode::File => "100644",
            Mode::Executable => "100755",
            Mode::Link => "120000",
            Mode::Gitlink => "160000",
        }
    }
}

/// An entry of a tree, without its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// What it is.
    pub mode: Mode,
    /// The object, in hexadecimal; read it with `Repository::blob`.
    pub id: String,
}

/// A path that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path, as text (`"caf\351"` where it is not UTF-8).
    pub path: String,
    /// What was there.
    pub before: Option<Blob>,
    /// What is there.
    pub after: Option<Blob>,
}

/// One edit of a tree: a path, and what is to stand there; `None` removes it.
pub type Edit = (String, Option<(Mode, Vec<u8>)>);

impl Repository {
    /// Returns the tree of a commit.
    pub fn tree_of(&self, commit: &CommitId) -> Result<TreeId, GitError> {
        if let Some(objects) = self.objects() {
            return Ok(TreeId(objects.find_commit(oid(&commit.0)?)?.tree_id().to_string()));
        }
        Ok(TreeId(self.git(["rev-parse", "--verify", "--end-of-options"]).arg(format!("{commit}^{{tree}}")).text()?))
    }

    /// Returns whether the commit is in the object database.
    pub fn has_commit(&self, commit: &CommitId) -> Result<bool, GitError> {
        Ok(self.git(["cat-file", "-e"]).arg(format!("{commit}^{{commit}}")).output()?.is_success())
    }

    /// Returns a file's content in a commit; `None` where there is no file.
    pub fn read_blob(&self, commit: &CommitId, file: &str) -> Result<Option<Vec<u8>>, GitError> {
        let file = path::unquote(file);
        if let Some(objects) = self.objects() {
            let entry = objects.find_commit(oid(&commit.0)?)?.tree()?.get_path(&path::file(&file));
            return match entry {
                Ok(entry) if entry.kind() == Some(git2::ObjectType::Blob) => Ok(Some(objects.find_blob(entry.id())?.content().to_vec())),
                Ok(_) => Ok(None),
                Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        let spec = [commit.0.as_bytes(), b":", &file].concat();
        let found = self.git(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(path::os(&spec)).output()?;
        if !found.is_success() {
            return Ok(None);
        }
        let id = found.line();
        if self.git(["cat-file", "-t"]).arg(&id).text()? == "blob" { self.blob(&id).map(Some) } else { Ok(None) }
    }

    /// Returns the entry at a path of a commit; `None` where there is none, or a folder.
    pub fn blob_of(&self, commit: &CommitId, file: &str) -> Result<Option<Blob>, GitError> {
        let bytes = path::unquote(file);
        let below = path::os(&[b":(top,literal)", &bytes[..]].concat());
        let listed = self.git(["ls-tree", "-z", "--full-tree"]).arg(&commit.0).arg(below).bytes()?;
        Ok(parse_entries(&listed).ok_or_else(not_whole)?.into_iter().find(|(path, _)| *path == bytes).map(|(_, blob)| blob))
    }

    /// Returns the content of a blob.
    pub fn blob(&self, id: &str) -> Result<Vec<u8>, GitError> {
        if let Some(objects) = self.objects() {
            return Ok(objects.find_blob(oid(id)?)?.content().to_vec());
        }
        self.git(["cat-file", "blob"]).arg(id).bytes()
    }

    /// Returns how many bytes a blob has.
    pub(super) fn blob_size(&self, id: &str) -> Result<u64, GitError> {
        if let Some(objects) = self.objects() {
            return Ok(objects.odb()?.read_header(oid(id)?)?.0 as u64);
        }
        let garbled = GitError::Garbled { command: "cat-file -s".to_owned(), reason: "it is not a number" };
        self.git(["cat-file", "-s"]).arg(id).text()?.parse().map_err(|_| garbled)
    }

    /// Writes an object of a kind (`blob`, `commit`) and returns its id.
    pub(super) fn write_object(&self, kind: &str, content: &[u8]) -> Result<String, GitError> {
        if let (Some(objects), Some(kind)) = (self.objects(), git2::ObjectType::from_str(kind)) {
            return Ok(objects.odb()?.write(kind, content)?.to_string());
        }
        self.git(["hash-object", "-w", "--stdin", "-t"]).arg(kind).stdin(content.to_vec()).text()
    }

    /// Returns whether `older` is `newer` or an ancestor of it.
    pub fn is_ancestor(&self, older: &CommitId, newer: &CommitId) -> Result<bool, GitError> {
        let output = self.git(["merge-base", "--is-ancestor"]).arg(&older.0).arg(&newer.0).output()?;
        match output.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(super::program::failed("merge-base --is-ancestor".to_owned(), &output)),
        }
    }

    /// Returns when a commit was made, to the second.
    pub fn date_of(&self, commit: &CommitId) -> Result<Timestamp, GitError> {
        let garbled = || GitError::Garbled { command: "log".to_owned(), reason: "it is not a date" };
        let text = self.git(["log", "-1", "--no-show-signature", "--format=%ct", "--end-of-options"]).arg(&commit.0).text()?;
        let seconds: u64 = text.trim().parse().map_err(|_| garbled())?;
        Ok(Timestamp(seconds.saturating_mul(1000)))
    }

    /// Returns those of the commits that no other of them descends from, in their order, each once.
    pub fn independent(&self, commits: &[CommitId]) -> Result<Vec<CommitId>, GitError> {
        if commits.iter().all(|commit| commit == &commits[0]) {
            return Ok(commits.iter().take(1).cloned().collect());
        }
        let listed = self.git(["merge-base", "--independent"]).args(commits.iter().map(|commit| &commit.0)).text()?;
        let heads: BTreeSet<&str> = listed.lines().collect();
        let mut kept: Vec<CommitId> = Vec::new();
        for commit in commits {
            if heads.contains(commit.0.as_str()) && !kept.contains(commit) {
                kept.push(commit.clone());
            }
        }
        Ok(kept)
    }

    /// Returns the paths that differ between two commits, sorted; a moved file counts with both of its paths.
    pub fn changed_paths(&self, a: &CommitId, b: &CommitId) -> Result<Vec<String>, GitError> {
        let changes = self.changes(&self.tree_of(a)?, &self.tree_of(b)?)?;
        Ok(changes.into_iter().map(|change| change.path).collect())
    }

    /// Returns what differs between two trees, sorted by path.
    pub fn changes(&self, a: &TreeId, b: &TreeId) -> Result<Vec<Change>, GitError> {
        if a == b {
            return Ok(Vec::new());
        }
        let mut changes = match self.objects() {
            Some(objects) => changes_in(&objects, (a, b))?,
            None => self.changes_by_git(a, b)?,
        };
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    pub(super) fn changes_by_git(&self, a: &TreeId, b: &TreeId) -> Result<Vec<Change>, GitError> {
        let listed = self.git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"]).arg(&a.0).arg(&b.0).bytes()?;
        parse_changes(&listed).ok_or(GitError::Garbled { command: "diff-tree".to_owned(), reason: "a record is not whole" })
    }

    /// Returns the tree with some paths replaced or removed. A file replaces a folder of its name, and the other way round.
    pub fn tree_with(&self, tree: &TreeId, edits: &[Edit]) -> Result<TreeId, GitError> {
        let own = lock::own_folder(self)?;
        let folder = tempfile::Builder::new().prefix("index-").tempdir_in(&own).map_err(GitError::io("make a folder in", own))?;
        let index = folder.path().join("index");
        self.git(["read-tree"]).arg(&tree.0).index(&index).bytes()?;
        let mut lines = Vec::new();
        for (file, entry) in edits {
            let (mode, id) = match entry {
                Some((mode, content)) => (mode.octal(), self.write_object("blob", content)?),
                None => ("0", "0".repeat(tree.0.len())),
            };
            lines.extend_from_slice(format!("{mode} {id}\t").as_bytes());
            lines.extend_from_slice(&path::unquote(file));
            lines.push(0);
        }
        self.git(["update-index", "--replace", "-z", "--index-info"]).index(&index).stdin(lines).bytes()?;
        Ok(TreeId(self.git(["write-tree"]).index(&index).text()?))
    }

    /// Returns the files, links and gitlinks of a commit by path, as text, in git's order.
    pub fn files(&self, commit: &CommitId) -> Result<Vec<(String, Blob)>, GitError> {
        Ok(self.entries(&self.tree_of(commit)?)?.into_iter().map(|(file, blob)| (path::quote(&file), blob)).collect())
    }

    /// Returns the files, links and gitlinks of a tree, in git's order.
    pub(super) fn entries(&self, tree: &TreeId) -> Result<Vec<(Vec<u8>, Blob)>, GitError> {
        if let Some(objects) = self.objects() {
            return entries_in(&objects, tree);
        }
        self.entries_by_git(tree)
    }

    pub(super) fn entries_by_git(&self, tree: &TreeId) -> Result<Vec<(Vec<u8>, Blob)>, GitError> {
        let listed = self.git(["ls-tree", "-r", "-z", "--full-tree"]).arg(&tree.0).bytes()?;
        parse_entries(&listed).ok_or_else(not_whole)
    }
}

/// An entry of one folder: a folder itself, or what stands in one.
#[derive(Clone, PartialEq, Eq)]
enum Entry {
    Folder(git2::Oid),
    File(Blob),
}

/// Lists one folder of a tree, in git's order.
fn listed(objects: &git2::Repository, tree: git2::Oid) -> Result<Vec<(Vec<u8>, Entry)>, GitError> {
    let entry = |entry: git2::TreeEntry<'_>| {
        let found = match entry.kind() {
            Some(git2::ObjectType::Tree) => Entry::Folder(entry.id()),
            _ => Entry::File(Blob { mode: Mode::read(&format!("{:06o}", entry.filemode()))?, id: entry.id().to_string() }),
        };
        Some((entry.name_bytes().to_vec(), found))
    };
    objects.find_tree(tree)?.iter().map(|one| entry(one).ok_or_else(not_whole)).collect()
}

/// Compares two trees as `diff-tree -r --no-renames` does.
fn changes_in(objects: &git2::Repository, (a, b): (&TreeId, &TreeId)) -> Result<Vec<Change>, GitError> {
    let file = |entry: &Option<Entry>| if let Some(Entry::File(blob)) = entry { Some(blob.clone()) } else { None };
    let folder = |entry: &Option<Entry>| if let Some(Entry::Folder(id)) = entry { Some(*id) } else { None };
    let mut changes = Vec::new();
    let mut folders = vec![(Vec::new(), Some(oid(&a.0)?), Some(oid(&b.0)?))];
    while let Some((below, a, b)) = folders.pop() {
        let list = |id: Option<git2::Oid>| id.map_or(Ok(Vec::new()), |id| listed(objects, id));
        let mut sides: BTreeMap<Vec<u8>, (Option<Entry>, Option<Entry>)> = BTreeMap::new();
        list(a)?.into_iter().for_each(|(name, entry)| sides.entry(name).or_default().0 = Some(entry));
        list(b)?.into_iter().for_each(|(name, entry)| sides.entry(name).or_default().1 = Some(entry));
        for (name, (old, new)) in sides.into_iter().filter(|(_, (old, new))| old != new) {
            let path = [&below[..], &name].concat();
            let (before, after) = (file(&old), file(&new));
            if before.is_some() || after.is_some() {
                changes.push(Change { path: path::quote(&path), before, after });
            }
            if folder(&old).is_some() || folder(&new).is_some() {
                folders.push(([&path[..], b"/"].concat(), folder(&old), folder(&new)));
            }
        }
    }
    Ok(changes)
}

/// Lists a tree as `ls-tree -r` does.
fn entries_in(objects: &git2::Repository, tree: &TreeId) -> Result<Vec<(Vec<u8>, Blob)>, GitError> {
    let mut entries = Vec::new();
    let mut rest = vec![(Vec::new(), Entry::Folder(oid(&tree.0)?))];
    while let Some((path, entry)) = rest.pop() {
        match entry {
            Entry::File(blob) => entries.push((path, blob)),
            Entry::Folder(id) => {
                let below = if path.is_empty() { path } else { [&path[..], b"/"].concat() };
                rest.extend(listed(objects, id)?.into_iter().rev().map(|(name, entry)| ([&below[..], &name].concat(), entry)));
            }
        }
    }
    Ok(entries)
}

fn not_whole() -> GitError {
    GitError::Garbled { command: "ls-tree".to_owned(), reason: "a record is not whole" }
}

/// Reads `MODE KIND ID TAB PATH NUL`, repeated; folders are passed over.
fn parse_entries(listed: &[u8]) -> Option<Vec<(Vec<u8>, Blob)>> {
    let mut entries = Vec::new();
    for record in listed.split(|&byte| byte == 0).filter(|record| !record.is_empty()) {
        let tab = record.iter().position(|&byte| byte == b'\t')?;
        let words: Vec<&str> = std::str::from_utf8(&record[..tab]).ok()?.split(' ').collect();
        let [mode, kind, id] = words[..] else { return None };
        if kind != "tree" {
            entries.push((record[tab + 1..].to_vec(), Blob { mode: Mode::read(mode)?, id: id.to_owned() }));
        }
    }
    Some(entries)
}

/// Reads `:MODE MODE ID ID STATUS NUL PATH NUL`, repeated.
fn parse_changes(listed: &[u8]) -> Option<Vec<Change>> {
    let mut fields = listed.split(|&byte| byte == 0);
    let mut changes = Vec::new();
    loop {
        let head = fields.next()?;
        if head.is_empty() {
            return Some(changes);
        }
        let words: Vec<&str> = std::str::from_utf8(head.strip_prefix(b":")?).ok()?.split(' ').collect();
        let [before, after, old, new, _status] = words[..] else { return None };
        let entry = |mode: &str, id: &str| Mode::read(mode).map(|mode| Blob { mode, id: id.to_owned() });
        changes.push(Change { path: path::quote(fields.next()?), before: entry(before, old), after: entry(after, new) });
    }
}

fn oid(text: &str) -> Result<git2::Oid, GitError> {
    Ok(git2::Oid::from_str(text)?)
}
