//! Whether a resolution may be joined.
use super::Conflict;
use crate::git::{Blob, Change, GitError, Mode, Repository, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Checks a resolution: nothing outside the conflict has changed but what the resolver names, no conflict marker is left,
/// and no file still has the name that git gave it to keep it out of a folder's way.
///
/// Returns why it is not accepted, in words for whoever tries next.
pub(super) fn rejection(repository: &Repository, conflict: &Conflict, tree: &TreeId, beyond: &[String]) -> Result<Option<String>, GitError> {
    let start = repository.tree_of(&conflict.commit)?;
    let changes: BTreeMap<String, Change> = repository.changes(&start, tree)?.into_iter().map(|change| (change.path.clone(), change)).collect();
    let allowed: BTreeSet<&str> = conflict.paths.iter().chain(beyond).map(String::as_str).collect();
    let outside: Vec<&str> = changes.keys().map(String::as_str).filter(|path| !allowed.contains(path) && !is_parted(conflict, path)).collect();
    if !outside.is_empty() {
        return Ok(Some(format!("paths outside the conflict were changed: {}", listed(&outside))));
    }
    let left = conflict.files.iter().map(|file| file.path.as_str());
    let left: Vec<&str> = left.filter(|path| parted_name(conflict, path).is_some() && changes.get(*path).is_none_or(|change| change.after.is_some())).collect();
    if !left.is_empty() {
        return Ok(Some(format!("these files have only a stopgap name and belong elsewhere: {}", listed(&left))));
    }
    let mut marked = Vec::new();
    let edited = changes.values().filter_map(|change| Some((change.path.as_str(), change.after.as_ref()?)));
    let untouched = conflict.files.iter().filter(|file| !changes.contains_key(&file.path));
    let mut kept = Vec::new();
    for file in untouched {
        kept.extend(repository.blob_of(&conflict.commit, &file.path)?.map(|blob| (file.path.as_str(), blob)));
    }
    for (path, blob) in edited.chain(kept.iter().map(|(path, blob)| (*path, blob))) {
        if matches!(blob.mode, Mode::File | Mode::Executable) && has_new_markers(repository, conflict, path, blob)? {
            marked.push(path);
        }
    }
    marked.sort_unstable();
    Ok((!marked.is_empty()).then(|| format!("conflict markers are left in {}", listed(&marked))))
}

fn listed(paths: &[&str]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("`{path}`")).collect();
    if paths.len() > SHOWN { format!("{} and {} more", shown.join(", "), paths.len() - SHOWN) } else { shown.join(", ") }
}

/// Returns the name a file had before git moved it out of a folder's way: `x` of `x~COMMIT`.
fn parted_name<'a>(conflict: &Conflict, path: &'a str) -> Option<&'a str> {
    let (name, label) = path.rsplit_once('~')?;
    (label.starts_with(&conflict.ours.0) || label.starts_with(&conflict.source.commit.0)).then_some(name)
}

/// Returns whether a path is the proper name of a file that git moved out of the way, or inside it.
fn is_parted(conflict: &Conflict, path: &str) -> bool {
    let names = conflict.files.iter().filter_map(|file| parted_name(conflict, &file.path));
    names.into_iter().any(|name| path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))
}

/// Returns whether a file holds marker lines that none of the sides had: a text about conflicts may have its own.
fn has_new_markers(repository: &Repository, conflict: &Conflict, path: &str, blob: &Blob) -> Result<bool, GitError> {
    let content = repository.blob(&blob.id)?;
    let found: BTreeSet<&[u8]> = markers(&content).collect();
    if found.is_empty() {
        return Ok(false);
    }
    let sides = conflict.files.iter().filter(|file| file.path == path).flat_map(|file| [&file.base, &file.ours, &file.theirs]).flatten();
    let mut known = BTreeSet::new();
    for side in sides.filter(|side| side.mode != Mode::Gitlink) {
        let content = repository.blob(&side.id)?;
        known.extend(markers(&content).map(<[u8]>::to_vec));
    }
    Ok(found.into_iter().any(|marker| !known.contains(marker)))
}

/// Returns the lines that begin as conflict markers do. The line of equals signs is left out: it underlines titles.
fn markers(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| {
        let Some(&first) = line.first().filter(|first| b"<|>".contains(first)) else { return false };
        let run = line.iter().take_while(|&&byte| byte == first).count();
        run >= 7 && line.get(run).is_none_or(|&next| next == b' ')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_told_from_text() {
        for line in ["<<<<<<< ours", ">>>>>>> theirs", "||||||| base", "<<<<<<<", "<<<<<<<<< nine", "a\r\n>>>>>>> x\r\nb"] {
            assert_eq!(markers(line.as_bytes()).count(), 1, "{line}");
        }
        for line in ["=======", "<<<<<< six", " <<<<<<< indented", "<<<<<<<x", "| table |", "", ">>> a"] {
            assert_eq!(markers(line.as_bytes()).count(), 0, "{line}");
        }
    }
}
