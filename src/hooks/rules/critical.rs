//! Removals that are asked about whoever allows them.
use super::{RuleContext, expand, paths::Place, survey::Run};
use crate::tools::shell::{Part, Word};
use std::path::{Path, PathBuf};

/// Returns what of a removal is critical: the root and what lies directly in it, the home, the workspace and where the
/// agent stands with all folders above them, everything in one of those at once, and whatever a variable may lead to.
pub(super) fn removal(run: &Run, cx: &RuleContext<'_>) -> Option<String> {
    let name = run.words.first().and_then(super::survey::base_name)?;
    if !matches!(name.as_str(), "rm" | "rmdir") {
        return None;
    }
    let mut options = true;
    for word in &run.words[1..] {
        let text = word.literal();
        if options && text.as_deref() == Some("--") {
            options = false;
        } else if options && text.as_deref().is_some_and(|text| text.starts_with('-')) {
        } else if let Some(what) = target(word, cx) {
            return Some(format!("`{name}` would remove {what}"));
        }
    }
    None
}

fn target(word: &Word, cx: &RuleContext<'_>) -> Option<String> {
    if under_a_variable(word) {
        return Some("everything under a variable, which may be empty".to_owned());
    }
    expand::texts(word, cx).iter().find_map(|path| path_target(path, cx))
}

fn path_target(path: &str, cx: &RuleContext<'_>) -> Option<String> {
    // A glob at the end stands for everything in the folder before it.
    let (folder, all) = match path.rsplit_once('/') {
        Some((folder, "*" | ".*" | "**")) => (if folder.is_empty() { "/" } else { folder }, true),
        _ => (path, false),
    };
    if matches!(path, "*" | ".*" | "**") {
        return None;
    }
    let place = Place::of(Path::new(folder), cx.cwd);
    let found = [&place.link, &place.target].into_iter().find_map(|path| critical(path, all, cx))?;
    Some(if all { format!("everything in {found}") } else { found })
}

fn critical(path: &Path, all: bool, cx: &RuleContext<'_>) -> Option<String> {
    let shown = || Some(format!("`{}`", path.display()));
    let stands = |folder: &Path| folder.starts_with(path);
    if path == Path::new("/") || (!all && path.parent() == Some(Path::new("/"))) {
        return shown();
    }
    if cx.home == Some(path) || cx.home.is_some_and(stands) {
        return shown();
    }
    let here = [cx.cwd, cx.root].into_iter().any(stands);
    let is_here = path == cx.cwd || path == cx.root;
    // Emptying the workspace itself can be undone; emptying what lies above it cannot.
    let above = here && !(all && is_here);
    let spare = cx.writable.iter().map(PathBuf::as_path).any(|folder| folder.starts_with(path) && (all || folder != path));
    if above || spare { shown() } else { None }
}

/// Returns whether a word is something unknown with nothing but a slash or a glob after it.
fn under_a_variable(word: &Word) -> bool {
    let unknown = |part: &Part| match part {
        Part::Variable { name, .. } => name != "HOME" && name != "PWD",
        Part::Substitution { .. } => true,
        Part::Bare(_) | Part::Quoted(_) | Part::Process(_) | Part::Arithmetic(_) => false,
    };
    let Some(last) = word.parts.iter().rposition(unknown) else { return false };
    let tail: Option<String> =
        word.parts[last + 1..].iter().map(|part| if let Part::Bare(text) | Part::Quoted(text) = part { Some(text.as_str()) } else { None }).collect();
    tail.is_none_or(|tail| {
        tail.starts_with('/') && tail.trim_matches('/').chars().all(|c| "*.".contains(c)) || (!tail.is_empty() && tail.chars().all(|c| c == '*'))
    })
}
