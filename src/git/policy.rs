//! What may enter a commit that the engine makes of an agent's files.
//!
//! Links must stay in the tree, no commit of another repository may slip in (its files would be hidden from every
//! review), no name may be taken for `.git` by any file system, no file may be larger than the limit, and every path must
//! lie in the step's scope, and nothing may hold the value of a secret. Only what the agent changed is judged; what the base holds is the user's.
use super::{
    brought,
    objects::{Blob, Change, Mode},
    path,
    scope::{Scope, ScopeError},
};
use crate::journal::STATE;
use std::fmt;

/// The rules for one step.
#[derive(Debug, Clone)]
pub struct TreePolicy {
    /// Paths it may write; `None` for all.
    pub scope: Option<Scope>,
    /// The most bytes a file may have.
    pub largest_file: u64,
}

impl Default for TreePolicy {
    fn default() -> TreePolicy {
        TreePolicy { scope: None, largest_file: 50 * 1024 * 1024 }
    }
}

impl TreePolicy {
    /// Makes the rules of a step that may write what these globs say.
    ///
    /// # Errors
    /// The glob that cannot be read.
    pub fn within(scope: &[String]) -> Result<TreePolicy, ScopeError> {
        Ok(TreePolicy { scope: Some(Scope::compile(scope)?), ..TreePolicy::default() })
    }

    /// Returns whether the scope allows writing a path.
    pub fn allows(&self, path: &str) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.contains(path::file(&path::unquote(path))))
    }
}

/// One thing the rules forbid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A path outside the step's scope.
    OutOfScope(String),
    /// A link that leaves the tree, or might.
    LinkOut {
        /// The link.
        path: String,
        /// Where it points.
        target: String,
    },
    /// A repository inside the worktree.
    Repository(String),
    /// A submodule that was moved to another commit, or in whose folder there are files.
    Submodule(String),
    /// A name that some file system takes for `.git`.
    GitName(String),
    /// A name in the folder of runs.
    State(String),
    /// A file beyond the limit.
    TooLarge {
        /// The file.
        path: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A file that holds a secret.
    Secret {
        /// The file, without the value.
        path: String,
        /// The secret's name.
        name: String,
    },
    /// Neither a file nor a link nor a folder.
    Special(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::OutOfScope(path) => write!(f, "`{path}` is outside the step's scope"),
            Violation::LinkOut { path, target } => {
                write!(
                    f,
                    "the link `{path}` to `{target}` leaves the tree; a link must be relative, with `..` only at its beginning and not above the top folder"
                )
            }
            Violation::Repository(path) => {
                write!(f, "`{path}` is a git repository of its own, whose files a commit cannot hold; remove its `.git`, or the whole folder")
            }
            Violation::Submodule(path) => {
                write!(
                    f,
                    "`{path}` is a submodule: a commit can remove it or put something else in its place, but not move it to another commit or hold the files of its folder; empty the folder, or remove it whole"
                )
            }
            Violation::GitName(path) => write!(f, "`{path}` has a name that stands for `.git` on some file systems"),
            Violation::State(path) => write!(f, "`{path}` is in the folder in which Spinney keeps its runs; nothing there belongs into a commit"),
            Violation::TooLarge { path, bytes } => write!(f, "`{path}` has {bytes} bytes, more than a file may have; add it to `.gitignore` if it was built"),
            Violation::Secret { path, name } => {
                write!(f, "`{path}` holds the value of the secret `{name}`: take it out, or leave the file to git's ignore rules")
            }
            Violation::Special(path) => write!(f, "`{path}` is neither a file nor a link nor a folder"),
        }
    }
}

/// Judges one change of the tree by all rules but size; `link` is the target where the new entry is a link.
pub(super) fn judge(policy: &TreePolicy, change: &Change, link: Option<&[u8]>) -> Vec<Violation> {
    let path = &change.path;
    let mut found = Vec::new();
    if !policy.allows(path) {
        found.push(Violation::OutOfScope(path.clone()));
    }
    if change.before.is_none() && names_git(&path::unquote(path)) {
        found.push(Violation::GitName(path.clone()));
    }
    if change.after.is_some() && brought::is_in(STATE.as_bytes(), &path::unquote(path)) {
        found.push(Violation::State(path.clone()));
    }
    match &change.after {
        Some(Blob { mode: Mode::Gitlink, .. }) if change.before.as_ref().is_some_and(|before| before.mode == Mode::Gitlink) => {
            found.push(Violation::Submodule(path.clone()));
        }
        Some(Blob { mode: Mode::Gitlink, .. }) => found.push(Violation::Repository(path.clone())),
        Some(Blob { mode: Mode::Link, .. }) => {
            let target = link.unwrap_or_default();
            if leaves(&path::unquote(path), target) || is_control_file(path) {
                found.push(Violation::LinkOut { path: path.clone(), target: path::quote(target) });
            }
        }
        Some(_) | None => {}
    }
    found
}

/// Returns whether git itself reads this file from a checkout; as a link it could be led elsewhere.
fn is_control_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    [".gitmodules", ".gitattributes", ".gitignore", ".mailmap"].contains(&name.as_str())
}

/// Returns whether a link at `path` may lead out of the tree. The folders that hold the link are real ones, so `..` at the
/// beginning of its target climbs them; after a name `..` could climb out of wherever another link led, so there it is
/// refused altogether. By induction over links no chain of them leaves the tree.
fn leaves(path: &[u8], target: &[u8]) -> bool {
    let mut depth = path.split(|&byte| byte == b'/').count() - 1;
    if target.is_empty() || target.starts_with(b"/") || target.contains(&b'\\') || target.contains(&b':') || names_git(target) {
        return true;
    }
    let mut descended = false;
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if descended || depth == 0 => return true,
            b".." => depth -= 1,
            _ => descended = true,
        }
    }
    false
}

/// Returns whether a part of the path is `.git` to some file system: in any case, as NTFS shortens it (`git~1`), with the
/// dots, spaces and streams NTFS ignores, or with the characters HFS+ ignores.
pub fn names_git(path: &[u8]) -> bool {
    path.split(|byte| b"/\\".contains(byte)).any(|part| {
        let text = String::from_utf8_lossy(part);
        let seen: String = text.chars().filter(|c| !ignored_by_hfs(*c)).collect::<String>().to_ascii_lowercase();
        let seen = seen.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        let short = seen.strip_prefix("git~").is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
        seen == ".git" || short
    })
}

fn ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_seen_behind_every_disguise() {
        for name in [
            ".git",
            ".GIT/config",
            "a/.gIt",
            "git~1",
            "a/GIT~12/x",
            ".git.",
            ".git ",
            ".git . .",
            ".git::$INDEX_ALLOCATION",
            ".g\u{200c}it",
            "\u{feff}.git",
            "a\\.git",
        ] {
            assert!(names_git(name.as_bytes()), "{name}");
        }
        for name in [".gitignore", "git", "git~", "git~a", ".github/x", "a.git", "..git", "digit~1"] {
            assert!(!names_git(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn links_that_leave_are_seen() {
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../x"),
            ("d/a", "../../x"),
            ("d/a", "../b/../../x"),
            ("a", "b/.."),
            ("a", "b/../c"),
            ("a", ".git/config"),
            ("d/a", "../.GIT"),
            ("a", ""),
            ("a", "C:\\x"),
            ("a", "\\\\host\\x"),
        ] {
            assert!(leaves(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "./b"), ("a", "b//c"), ("d/a", ".."), ("a", ".")] {
            assert!(!leaves(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }

    #[test]
    fn a_scope_is_asked_about_the_bytes_of_a_path() {
        let policy = TreePolicy::within(&["src".to_owned(), "a\"b".to_owned()]).expect("they are globs");
        assert!(policy.allows("src/a.rs") && policy.allows("\"src/caf\\351\"") && policy.allows("a\"b"));
        assert!(!policy.allows("\"caf\\351\""));
        assert!(TreePolicy::default().allows("a"));
    }
}
