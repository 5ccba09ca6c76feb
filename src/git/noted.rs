//! What the engine notes of a worktree, out of the agent's reach, and what follows from that where it is not as it was.
//!
//! A note that was changed, or is another worktree's, is none: of what it spoke of nothing is known then, and nobody goes on in it.
use super::{error::GitError, refs::ref_of, repository::Repository};
use crate::event::{BlobId, CommitId, RunId};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The engine's note of a worktree. It stands in a file of two lines: the note, and a hash of it and of the worktree's name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    pub(super) base: CommitId,
    pub(super) admin: PathBuf,
    /// Whether it was handed out; before that nobody worked in it.
    pub(super) ready: bool,
    /// Whether it is being removed: what is left of it then is nobody's work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leaving: bool,
    /// Globs of the files that were checked out, where that is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only: Option<Vec<String>>,
    /// What stands in the lists beside it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lists: BTreeMap<String, BlobId>,
}

impl Note {
    /// Writes it with the seal of the worktree of a name.
    pub(super) fn sealed(&self, slug: &str) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        Ok(format!("{text}\n{}\n", seal(slug, &text)))
    }
}

/// Returns whether nobody can go on in the worktree of a commit that stood at a path: it is gone, or nothing is noted of what is there,
/// or something else, or what is noted beside that is another than it was.
pub fn is_lost(path: &Path, base: &CommitId) -> bool {
    let state = || Some(path.parent()?.join(".engine").join(path.file_name()?));
    let is_another = |state: PathBuf| match noted(&state) {
        Ok(note) => {
            note.is_none_or(|note| note.base != *base || !note.ready || note.lists.iter().any(|(name, content)| is_changed(&state.join(name), content)))
        }
        // It may be read later.
        Err(_) => false,
    };
    !path.is_dir() || state().is_none_or(is_another)
}

/// Returns whether the worktree of a run that stood at a path was removed by the run itself, or that was begun.
///
/// # Errors
/// Where git or the note cannot be read.
pub fn is_given_up(repository: &Repository, run: &RunId, path: &Path) -> Result<bool, GitError> {
    let (Some(folder), Some(slug)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let is_leaving = noted(&folder.join(".engine").join(slug))?.is_some_and(|note| note.leaving);
    Ok(is_leaving || repository.ref_at(&ref_of(run, &slug.to_string_lossy(), "base"))?.is_none())
}

fn is_changed(list: &Path, content: &BlobId) -> bool {
    match fs::read(list) {
        Ok(found) => BlobId::of(&found) != *content,
        Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory),
    }
}

/// Reads what is noted of the worktree whose things are in a folder; `None` where nothing is, or nothing that can be understood.
///
/// # Errors
/// Where the note is there and cannot be read now.
pub(super) fn noted(state: &Path) -> Result<Option<Note>, GitError> {
    let file = state.join("note.json");
    let text = match fs::read(&file) {
        Ok(text) => String::from_utf8(text).unwrap_or_default(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory) => return Ok(None),
        Err(error) => return Err(GitError::io("read", file)(error)),
    };
    let slug = state.file_name().unwrap_or_default().to_string_lossy();
    let is_sealed = |text: &str, end: &str| end.strip_suffix('\n').is_some_and(|end| end == seal(&slug, text));
    match text.split_once('\n') {
        Some((text, end)) if is_sealed(text, end) => Ok(serde_json::from_str(text).ok()),
        Some(_) => Ok(None),
        // Earlier ones ended with nothing.
        None => Ok(serde_json::from_str(&text).ok()),
    }
}

/// Returns what a note ends with, so that one that was changed is none, and one of another worktree neither.
fn seal(slug: &str, text: &str) -> String {
    BlobId::of(format!("{slug}\0{text}").as_bytes()).0
}
