//! A git folder of a worktree's own, which shares nothing with the user's but the objects, and those only to read. It
//! knows the user's branches and tags by their names, so that `git diff main...HEAD` means what it does elsewhere; they
//! stand where they stood when its maker first looked.
//!
//! Whatever an agent does with git in such a worktree (commits, branches, a stash, configuration, hooks) stays in its `.git` and
//! touches neither the user's repository nor another agent. The engine never uses this folder: it works with the
//! repository's own and with an index of its own.
use super::{error::GitError, register, repository::Repository};
use crate::event::CommitId;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Writes the user's branches and tags, with those of remotes, as git packs them.
pub(super) fn names(repository: &Repository) -> Result<String, GitError> {
    let mut text = String::new();
    for prefix in ["refs/heads", "refs/remotes", "refs/tags"] {
        repository.refs(prefix)?.iter().for_each(|(name, at)| text.push_str(&format!("{at} {name}\n")));
    }
    Ok(text)
}

/// Gives the folder `files` a git folder of its own at a commit, in the place of whatever has that name, with these
/// [`names`]. It is filled in `state`, which is on the same file system, and renamed into place.
pub(super) fn make(repository: &Repository, (files, state): (&Path, &Path), commit: &CommitId, names: &str) -> Result<PathBuf, GitError> {
    let made = tempfile::Builder::new().prefix("git-").tempdir_in(state).map_err(GitError::io("make a folder in", state))?;
    let at = |name: &str| made.path().join(name);
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"] {
        fs::create_dir_all(at(folder)).map_err(GitError::io("make", at(folder)))?;
    }
    let content = [
        ("HEAD", format!("{commit}\n").into_bytes()),
        ("config", config(repository).into_bytes()),
        ("packed-refs", names.as_bytes().to_vec()),
        ("objects/info/alternates", alternates(repository)),
    ];
    for (name, content) in content {
        fs::write(at(name), content).map_err(GitError::io("write", at(name)))?;
    }
    // Without them git would miss the parents of a shallow clone's oldest commits, and show what the user has excluded.
    for name in ["shallow", "info/exclude", "info/attributes"] {
        let of_user = repository.common_dir().join(name);
        if of_user.is_file() {
            fs::copy(&of_user, at(name)).map_err(GitError::io("copy", of_user))?;
        }
    }
    let place = files.join(".git");
    register::clear(&place)?;
    fs::rename(made.path(), &place).map_err(GitError::io("write", &place))?;
    let _moved = made.keep();
    Ok(place)
}

/// Returns whether the folder is there with what git needs to work in it.
pub(super) fn is_whole(repository: &Repository, place: &Path) -> bool {
    let real = fs::symlink_metadata(place).is_ok_and(|found| found.is_dir());
    real && place.join("HEAD").is_file()
        && place.join("config").is_file()
        && fs::read(place.join("objects/info/alternates")).is_ok_and(|found| found == alternates(repository))
}

fn alternates(repository: &Repository) -> Vec<u8> {
    [repository.common_dir().join("objects").as_os_str().as_encoded_bytes(), b"\n"].concat()
}

/// Writes a configuration that reads files as the user's does, and has nothing else of it.
fn config(repository: &Repository) -> String {
    let format = repository.object_format();
    let version = u8::from(format != "sha1");
    let mut text = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = false\n\tlogallrefupdates = true\n[gc]\n\tauto = 0\n");
    if format != "sha1" {
        let _ = writeln!(text, "[extensions]\n\tobjectformat = {}", quoted(format));
    }
    for (key, value) in repository.content_settings() {
        let Some((section, name)) = key.rsplit_once('.') else { continue };
        let section = section.split_once('.').map_or_else(|| section.to_owned(), |(section, part)| format!("{section} {}", quoted(part)));
        let _ = writeln!(text, "[{section}]\n\t{name} = {}", quoted(value));
    }
    text
}

/// Writes a value so that git reads back the same.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            _ => text.push(c),
        }
    }
    text.push('"');
    text
}
