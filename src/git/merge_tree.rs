//! Merging in the object database: no checkout, no index, nothing of the user's is touched.
//!
//! Git's own merge decides, since it alone knows merge drivers, renormalisation and moved folders. Which files they are for
//! is read from the `.gitattributes` of what is there already, as in a merge by hand. A driver is a program, and only those
//! run that the user's or the repository's configuration had when the repository was opened: what an agent writes into
//! `.gitattributes` can choose among them, and a driver that turned up since counts as one that fails, which is a conflict.
//! They stand in this program's own folder, so that a relative path names no program of the tree.
use super::{
    error::GitError,
    lock,
    objects::{Blob, Mode, TreeId},
    path, program,
    repository::Repository,
};
use crate::event::CommitId;
use std::collections::{BTreeMap, BTreeSet};

/// What a merge gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// Everything fits.
    Clean {
        /// The joined tree.
        tree: TreeId,
    },
    /// Some paths do not.
    Conflicted {
        /// The joined tree, with conflict markers in files that have text on both sides.
        tree: TreeId,
        /// The paths in conflict, sorted; never empty.
        files: Vec<ConflictFile>,
        /// These paths and those that git names beside them, such as a file's old name; sorted.
        paths: Vec<String>,
        /// What git says about them, one line each.
        messages: Vec<String>,
    },
}

/// A path in conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictFile {
    /// The path in the joined tree. A file that stands where the other side has a folder has a new name there.
    pub path: String,
    /// Git's word: `contents`, `modify/delete`, `rename/delete`, `file/directory`, `binary`, ...
    pub kind: String,
    /// What both come from.
    pub base: Option<Blob>,
    /// What is there already.
    pub ours: Option<Blob>,
    /// What is to be joined.
    pub theirs: Option<Blob>,
}

impl Repository {
    /// Merges `theirs` into `ours`. `base` is what `theirs` was made from; `None` has git find it in the history.
    pub fn merge_commits(&self, base: Option<&CommitId>, ours: &CommitId, theirs: &CommitId) -> Result<Merged, GitError> {
        let mut call = self.git(["merge-tree", "--write-tree", "-z", "--messages", "--allow-unrelated-histories"]);
        call = call.within(lock::own_folder(self)?).variable("GIT_ATTR_SOURCE", &ours.0).settings(self.late_drivers()?);
        if let Some(base) = base {
            call = call.arg(format!("--merge-base={base}"));
        }
        let output = call.arg(&ours.0).arg(&theirs.0).output()?;
        let clean = match output.code {
            0 => true,
            1 => false,
            _ => return Err(program::failed_in(&[self.common_dir().to_owned()], "merge-tree".to_owned(), &output)),
        };
        parse(&output.whole("merge-tree")?, clean).ok_or(GitError::Garbled { command: "merge-tree".to_owned(), reason: "a record is not whole" })
    }

    /// Returns settings by which merge drivers fail that were not there, or were others, when the repository was opened.
    fn late_drivers(&self) -> Result<Vec<String>, GitError> {
        let output = self.git(["config", "--list", "-z", "--includes"]).output()?;
        if !output.is_success() {
            return Err(program::failed("config --list".to_owned(), &output));
        }
        let listed = output.whole("config --list")?;
        let late = listed.split(|&byte| byte == 0).map(String::from_utf8_lossy).filter_map(|entry| {
            let (name, value) = entry.split_once('\n').unwrap_or((&entry, ""));
            (is_driver(name) && !self.merge_drivers().iter().any(|(known, was)| known == name && was == value)).then(|| name.to_owned())
        });
        let late: Vec<String> = late.collect();
        match late.iter().find(|name| name.contains('=')) {
            Some(_) => Err(GitError::Garbled { command: "config --list".to_owned(), reason: "the name of a merge driver that is new holds a `=`" }),
            None => Ok(late.into_iter().map(|name| format!("{name}=false")).collect()),
        }
    }
}

/// Returns whether a setting is the program of a merge driver.
pub(super) fn is_driver(key: &str) -> bool {
    key.starts_with("merge.") && key.ends_with(".driver")
}

/// Reads `TREE NUL (MODE ID STAGE TAB PATH NUL)* NUL (COUNT NUL PATH*COUNT KIND NUL MESSAGE NUL)*`.
fn parse(said: &[u8], clean: bool) -> Option<Merged> {
    let mut fields = said.split(|&byte| byte == 0);
    let tree = TreeId(text(fields.next()?)?.trim_end().to_owned());
    if clean {
        return Some(Merged::Clean { tree });
    }
    let mut files: BTreeMap<Vec<u8>, ConflictFile> = BTreeMap::new();
    loop {
        let record = fields.next()?;
        if record.is_empty() {
            break;
        }
        let tab = record.iter().position(|&byte| byte == b'\t')?;
        let words: Vec<&str> = std::str::from_utf8(&record[..tab]).ok()?.split(' ').collect();
        let [mode, id, stage] = words[..] else { return None };
        let name = &record[tab + 1..];
        let blank = || ConflictFile { path: path::quote(name), kind: "contents".to_owned(), base: None, ours: None, theirs: None };
        let file = files.entry(name.to_vec()).or_insert_with(blank);
        let side = match stage {
            "1" => &mut file.base,
            "2" => &mut file.ours,
            "3" => &mut file.theirs,
            _ => return None,
        };
        *side = Some(Blob { mode: Mode::read(mode)?, id: id.to_owned() });
    }
    let mut named: BTreeSet<String> = files.keys().map(|name| path::quote(name)).collect();
    let mut messages = Vec::new();
    while let Some(count) = fields.next().filter(|count| !count.is_empty()) {
        let count: usize = text(count)?.parse().ok()?;
        let paths: Vec<&[u8]> = fields.by_ref().take(count).collect();
        let (kind, message) = (text(fields.next()?)?, String::from_utf8_lossy(fields.next()?));
        if let Some(kind) = kind.strip_prefix("CONFLICT (").and_then(|rest| rest.strip_suffix(')')) {
            for path in paths {
                named.insert(path::quote(path));
                // Git says `contents` of a binary file too, after it has said `binary`: the first special word holds.
                if let Some(file) = files.get_mut(path).filter(|file| file.kind == "contents") {
                    kind.clone_into(&mut file.kind);
                }
            }
            messages.push(message.trim_end().to_owned());
        }
    }
    let files: Vec<ConflictFile> = files.into_values().collect();
    (!files.is_empty()).then_some(Merged::Conflicted { tree, files, paths: named.into_iter().collect(), messages })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_answers_are_refused() {
        for said in [
            &b""[..],
            b"tree\0",
            b"tree\x00100644 id\tpath\0\0",
            b"tree\x00100644 id 4\tp\0\0",
            b"tree\0\0",
            b"tree\0no tab\0\0",
            b"tree\x00100644 id 1\tp\0\x009\0",
        ] {
            assert_eq!(parse(said, false), None, "{}", String::from_utf8_lossy(said));
        }
        assert_eq!(parse(b"tree\0", true), Some(Merged::Clean { tree: TreeId("tree".into()) }));
    }
}
