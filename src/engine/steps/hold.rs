//! What of a workspace a command cannot write inside the walls: what stands there outside its scope, or all that git keeps.
//!
//! What is held is what is there; a new file is told after the call, and refused when the work is committed. Folders that git
//! ignores stay writable: builds write there, also those that begin with this command.
use crate::{event::Failure, tasks};
use ignore::{WalkBuilder, gitignore::Gitignore};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// What a command may write of its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes<'a> {
    /// Everything.
    All,
    /// What these globs name; one that begins with a wildcard is for the commit alone to hold.
    Within(&'a [String]),
    /// What git ignores.
    Scratch,
}

/// Places of a workspace inside the walls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) read_only: Vec<PathBuf>,
    /// Below those.
    pub(super) writable: Vec<PathBuf>,
}

/// Folders in which builds write, where git ignores them.
const BUILT: &[&str] = &[
    "target",
    "node_modules",
    "dist",
    "build",
    "out",
    "bin",
    "obj",
    "coverage",
    ".venv",
    "venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".tox",
    ".gradle",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".turbo",
    ".cache",
    "_build",
    "deps",
    ".dart_tool",
];
/// Files that say that something is built in their folder, and where: such a folder is made where it is not there yet, since it
/// could not be made inside. Not those whose being there scripts ask for, such as `.venv`.
const BUILDS: &[(&str, &[&str])] = &[
    ("Cargo.toml", &["target"]),
    ("package.json", &["node_modules", "dist", "build", "out", "coverage", ".next", ".nuxt", ".svelte-kit", ".turbo", ".cache"]),
    ("pom.xml", &["target"]),
    ("build.gradle", &["build", ".gradle"]),
    ("build.gradle.kts", &["build", ".gradle"]),
    ("pyproject.toml", &["build", "dist", ".pytest_cache", ".mypy_cache", ".tox"]),
    ("setup.py", &["build", "dist", ".pytest_cache", ".mypy_cache", ".tox"]),
    ("CMakeLists.txt", &["build", "out", "_build"]),
    ("Makefile", &["build", "out", "bin", "obj", "_build"]),
    ("mix.exs", &["_build", "deps"]),
    ("pubspec.yaml", &["build", ".dart_tool"]),
];
/// How deep below what is held such folders are looked for, and how many places are held or spared.
const DEPTH: usize = 5;
const PLACES: usize = 1_000;

/// Works out what to hold of a workspace, beside the scheduler: it may have many files.
pub(super) async fn found(root: &Path, writes: Writes<'_>) -> Result<Held, Failure> {
    let globs = match writes {
        Writes::All => return Ok(Held::default()),
        Writes::Within(globs) => Some(globs.to_vec()),
        Writes::Scratch => None,
    };
    let root = root.to_owned();
    Ok(tasks::blocking(move || held(&root, globs.as_deref().map_or(Writes::Scratch, Writes::Within))).await?)
}

fn held(root: &Path, writes: Writes<'_>) -> Held {
    let kept: Vec<PathBuf> = match writes {
        Writes::All => return Held::default(),
        Writes::Scratch => Vec::new(),
        Writes::Within(globs) => globs.iter().map(|glob| root.join(folder(glob))).collect(),
    };
    if kept.iter().any(|kept| kept == root) {
        return Held::default();
    }
    let mut read_only = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in entries(root, &BTreeSet::from([dir]), 1) {
            if kept.contains(&entry) {
                continue;
            }
            if kept.iter().any(|kept| kept.starts_with(&entry)) {
                open.push(entry);
            } else {
                read_only.push(entry);
            }
        }
    }
    // Folders first: where there are too many, they are what is worth holding.
    read_only.sort_by_key(|path| !path.is_dir());
    read_only.truncate(PLACES);
    let writable = built(root, &read_only);
    Held { read_only, writable }
}

/// Returns what of a glob is a plain path.
fn folder(glob: &str) -> PathBuf {
    let parts = glob.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.take_while(|part| !part.contains(['*', '?', '[', ']', '{', '}', '\\'])).collect()
}

/// Lists the files and folders so deep below some folders that git does not ignore, in one walk, without links and what is git's own.
/// Rules of folders above count up to the root, and none beyond it.
fn entries(root: &Path, tops: &BTreeSet<PathBuf>, depth: usize) -> Vec<PathBuf> {
    let is_below = move |path: &Path, tops: &BTreeSet<PathBuf>| path.ancestors().skip(1).take(depth).any(|above| tops.contains(above));
    let above: BTreeSet<PathBuf> = tops.iter().flat_map(|top| top.ancestors()).map(Path::to_owned).collect();
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false).parents(false).ignore(false).git_global(false).git_exclude(false).require_git(false).follow_links(false);
    let aims = tops.clone();
    walk.filter_entry(move |entry| entry.file_name() != ".git" && (above.contains(entry.path()) || is_below(entry.path(), &aims)));
    let found = walk.build().flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_dir()));
    found.map(ignore::DirEntry::into_path).filter(|path| is_below(path, tops)).collect()
}

/// Returns the ignored folders in which builds write below folders that are held; those that a build would make are made.
fn built(root: &Path, held: &[PathBuf]) -> Vec<PathBuf> {
    let mut rules: BTreeMap<PathBuf, Gitignore> = BTreeMap::new();
    let mut found = Vec::new();
    let tops: BTreeSet<PathBuf> = held.iter().filter(|path| path.is_dir()).cloned().collect();
    let below = entries(root, &tops, DEPTH).into_iter().filter(|path| path.is_dir() && !tops.contains(path));
    for dir in tops.iter().cloned().chain(below) {
        let made: Vec<&str> = BUILDS.iter().filter(|(file, _)| dir.join(file).is_file()).flat_map(|(_, made)| *made).copied().collect();
        for name in BUILT {
            let path = dir.join(name);
            let is_there = path.is_dir() && !path.is_symlink();
            let is_due = is_there || (made.contains(name) && path.symlink_metadata().is_err());
            if found.len() < PLACES && is_due && is_ignored(root, &path, &mut rules) && (is_there || fs::create_dir(&path).is_ok()) {
                found.push(path);
            }
        }
    }
    found
}

/// Returns whether a folder is ignored by the rules of the folders around it, the nearest first.
fn is_ignored(root: &Path, path: &Path, rules: &mut BTreeMap<PathBuf, Gitignore>) -> bool {
    for dir in path.ancestors().skip(1).take_while(|dir| dir.starts_with(root)) {
        let rules = rules.entry(dir.to_owned()).or_insert_with(|| Gitignore::new(dir.join(".gitignore")).0);
        match rules.matched_path_or_any_parents(path, true) {
            ignore::Match::Ignore(_) => return true,
            ignore::Match::Whitelist(_) => return false,
            ignore::Match::None => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_outside_the_scope_is_held_and_what_builds_write_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for file in [".gitignore", "README.md", "docs/a.md", "app/src/main.rs", "app/Cargo.toml", "app/tests/t.rs", "web/package.json", "local/x"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, if file == ".gitignore" { "target/\n/local\n" } else { "" }).unwrap();
        }
        let below = |paths: Vec<PathBuf>| -> Vec<String> {
            let mut paths: Vec<String> = paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect();
            paths.sort();
            paths
        };
        let of = |globs: &[&str]| held(root, Writes::Within(&globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>()));
        let Held { read_only, writable } = of(&["app/src/**", "./README.md", "new/**/*.rs"]);
        assert_eq!(below(read_only), [".gitignore", "app/Cargo.toml", "app/tests", "docs", "web"]);
        assert_eq!(below(writable), [] as [&str; 0], "`app` itself is not held, and nothing makes a `target` in `web`");
        assert_eq!(of(&["docs/**", "*.md"]), Held::default(), "a wildcard is for the commit alone");
        let Held { read_only, writable } = held(root, Writes::Scratch);
        assert_eq!(below(read_only), [".gitignore", "README.md", "app", "docs", "web"]);
        assert_eq!(below(writable), ["app/target"]);
        // What stands around the workspace says nothing of what is in it.
        let inner = root.join("local/inner");
        fs::create_dir_all(inner.join("src")).unwrap();
        fs::write(root.join(".gitignore"), "*\n").unwrap();
        fs::write(inner.join(".ignore"), "src\n").unwrap();
        assert_eq!(below(held(&inner, Writes::Scratch).read_only), ["local/inner/.ignore", "local/inner/src"]);
    }
}
