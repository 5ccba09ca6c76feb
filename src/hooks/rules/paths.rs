//! Rules about paths: gitignore patterns with an anchor, links followed, and paths that no rule may approve.
use super::{RuleContext, pattern::Meet, rule::List};
use ignore::{
    WalkBuilder,
    gitignore::{Gitignore, GitignoreBuilder},
};
use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

/// As many links to nowhere are followed, one from another.
const MAX_DANGLING: usize = 16;

/// As many files and folders are looked at below one folder.
const MAX_BELOW: usize = 10_000;

/// What a program looks at that goes through a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// All of it.
    Everything,
    /// What git does not ignore.
    Unignored,
    /// What is neither ignored nor hidden.
    Plain,
}

/// A pattern and where it is anchored.
#[derive(Debug, Clone)]
pub(in crate::hooks) struct PathRule {
    base: Base,
    glob: Gitignore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    /// `//x`: the root of the file system.
    Root,
    /// `~/x`: the user's home.
    Home,
    /// `/x`: the folder of the file that holds the rule; in a worktree, the same place there.
    Anchor(PathBuf),
    /// `x`, `./x`: where the agent stands.
    Here,
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read path pattern `{pattern}`: {why}")]
pub(super) struct BadPath {
    pattern: String,
    why: String,
}

/// A path as it was written and as it really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Absolute, without `.` and `..`.
    pub(super) link: PathBuf,
    /// The same with every link followed, as far as it exists.
    pub(super) target: PathBuf,
}

impl Place {
    /// Finds a path that is absolute or relative to `from`.
    pub(super) fn of(path: &Path, from: &Path) -> Place {
        let path = from.join(path);
        Place { link: tidied(&path), target: followed(&path) }
    }

    /// Returns whether it lies in a folder, by name and in truth.
    pub(super) fn is_inside(&self, folder: &Path) -> bool {
        self.link.starts_with(folder) && self.target.starts_with(followed(folder)) || self.target.starts_with(folder) && self.link.starts_with(followed(folder))
    }

    fn both(&self) -> [&Path; 2] {
        [&self.link, &self.target]
    }
}

impl PathRule {
    /// Reads what stands in the parentheses of a rule.
    pub(super) fn parse(text: &str, list: List, anchor: &Path) -> Result<PathRule, BadPath> {
        let (base, pattern) = match text {
            "~" => (Base::Home, "/**".to_owned()),
            _ if text.starts_with("//") => (Base::Root, text[1..].to_owned()),
            _ if text.starts_with("~/") => (Base::Home, text[1..].to_owned()),
            _ if text.starts_with('/') => (Base::Anchor(anchor.to_owned()), text.to_owned()),
            _ => (Base::Here, here(text, list)),
        };
        let bad = |why: String| BadPath { pattern: text.to_owned(), why };
        let mut builder = GitignoreBuilder::new("");
        builder.add_line(None, &pattern).map_err(|error| bad(error.to_string()))?;
        let glob = builder.build().map_err(|error| bad(error.to_string()))?;
        if glob.is_empty() {
            return Err(bad("it names nothing".to_owned()));
        }
        Ok(PathRule { base, glob })
    }

    /// Returns whether the rule forbids or asks about a place: by name or in truth, from anywhere it may be anchored.
    pub(super) fn touches(&self, place: &Place, cx: &RuleContext<'_>) -> bool {
        let mut bases = self.bases(cx);
        if self.base == Base::Here {
            bases.push(cx.root.to_owned());
        }
        bases.iter().flat_map(|base| [base.clone(), followed(base)]).any(|base| place.both().iter().any(|path| self.meets(path, &base)))
    }

    /// Returns whether the rule forbids or asks about a file below a folder that is there. What is hidden or ignored counts where a
    /// program looks at it.
    pub(super) fn within(&self, folder: &Path, looks: Looks, cx: &RuleContext<'_>) -> Meet {
        let mut bases = self.bases(cx);
        if self.base == Base::Here {
            bases.push(cx.root.to_owned());
        }
        let bases: Vec<PathBuf> = bases.iter().flat_map(|base| [base.clone(), followed(base)]).collect();
        let mut walk = WalkBuilder::new(folder);
        walk.standard_filters(false).follow_links(false).filter_entry(|entry| entry.file_name() != ".git");
        match looks {
            Looks::Everything => {}
            Looks::Unignored => drop(walk.git_ignore(true).git_exclude(true).git_global(true).parents(true)),
            Looks::Plain => drop(walk.standard_filters(true)),
        }
        for (count, entry) in walk.build().flatten().enumerate() {
            if count >= MAX_BELOW {
                return Meet::Maybe;
            }
            if bases.iter().any(|base| self.meets(entry.path(), base)) {
                return Meet::Yes;
            }
        }
        Meet::No
    }

    /// Returns whether the rule allows a place: by name and in truth.
    pub(super) fn permits(&self, place: &Place, cx: &RuleContext<'_>) -> bool {
        let bases: Vec<PathBuf> = self.bases(cx).iter().flat_map(|base| [base.clone(), followed(base)]).collect();
        place.both().iter().all(|path| bases.iter().any(|base| self.meets(path, base)))
    }

    fn bases(&self, cx: &RuleContext<'_>) -> Vec<PathBuf> {
        match &self.base {
            Base::Root => vec![PathBuf::from("/")],
            Base::Home => cx.home.map(Path::to_owned).into_iter().collect(),
            Base::Anchor(anchor) => vec![anchor.clone(), cx.root.to_owned()],
            Base::Here => vec![cx.cwd.to_owned()],
        }
    }

    fn meets(&self, path: &Path, base: &Path) -> bool {
        let Ok(inside) = path.strip_prefix(base) else { return false };
        // The pattern matcher refuses paths with a root; `inside` has none, and an empty one names the base itself.
        !inside.as_os_str().is_empty() && self.glob.matched_path_or_any_parents(inside, path.is_dir()).is_ignore()
    }
}

/// Anchors a pattern that is relative to where the agent stands. In gitignore a pattern with a slash inside holds only at
/// its anchor, which is what allowing wants; `folder/**` forbids such a folder at every depth.
fn here(text: &str, list: List) -> String {
    let text = text.strip_prefix("./").map_or_else(
        || text.to_owned(),
        |rest| {
            let rest = rest.trim_start_matches('/');
            if list == List::Allow { format!("/{rest}") } else { rest.to_owned() }
        },
    );
    if text.starts_with(['#', '!']) {
        return format!("\\{text}");
    }
    match text.strip_suffix("/**") {
        Some(folder) if list != List::Allow && !folder.is_empty() && !folder.contains('/') => format!("**/{folder}/**"),
        _ => text,
    }
}

/// Takes `.` and `..` out of an absolute path by its text alone.
fn tidied(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}

/// Follows every link of an absolute path as far as it exists; the rest is added as it is.
pub(super) fn followed(path: &Path) -> PathBuf {
    followed_within(path, MAX_DANGLING)
}

fn followed_within(path: &Path, budget: usize) -> PathBuf {
    let mut rest: Vec<&OsStr> = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return tidied(&rest.iter().rev().fold(real, |path, name| path.join(name)));
        }
        // A link to nowhere: what would be made is what it points to.
        if budget > 0
            && let (Ok(next), Some(parent)) = (existing.read_link(), existing.parent())
        {
            let made = rest.iter().rev().fold(parent.join(next), |path, name| path.join(name));
            return followed_within(&made, budget - 1);
        }
        match (existing.parent(), existing.components().next_back()) {
            (Some(parent), Some(last)) => {
                rest.push(last.as_os_str());
                existing = parent;
            }
            _ => return tidied(path),
        }
    }
}

/// Folders that hold what runs or configures tools.
const FOLDERS: &[&str] = &[".cargo", ".claude", ".devcontainer", ".git", ".config/git", ".husky", ".idea", ".mvn", ".spinney", ".vscode", ".yarn"];
/// Files that do.
const FILES: &[&str] = &[
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".bazelrc",
    ".claude.json",
    ".cshrc",
    ".envrc",
    ".gitconfig",
    ".gitmodules",
    ".kshrc",
    ".login",
    ".mcp.json",
    ".npmrc",
    ".profile",
    ".tcshrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "bunfig.toml",
];
/// Beginnings of names of files that do.
const BEGINNINGS: &[&str] = &[".pnp", ".yarnrc"];

/// Returns whether writing at a place may change what runs later, which no allow rule approves beforehand.
///
/// Only the part below the workspace is looked at, since workspaces may lie in folders of such names themselves.
pub(super) fn is_protected(place: &Place, cx: &RuleContext<'_>) -> bool {
    place.both().iter().any(|path| {
        let roots = std::iter::once(cx.root).chain(cx.writable.iter().map(PathBuf::as_path));
        let inside = roots.flat_map(|root| [root.to_owned(), followed(root)]).find_map(|root| path.strip_prefix(&root).ok());
        holds_protected(inside.unwrap_or(path))
    })
}

fn holds_protected(path: &Path) -> bool {
    let names: Vec<String> = path
        .components()
        .filter_map(|component| if let Component::Normal(name) = component { Some(name.to_string_lossy().to_lowercase()) } else { None })
        .collect();
    let mut names = names.as_slice();
    // Worktrees that other tools keep in their folder are ordinary checkouts.
    while let Some(at) = names.windows(2).position(|pair| pair == [".claude", "worktrees"]) {
        if is_in_folder(&names[..at]) || names.len() < at + 4 {
            break;
        }
        names = &names[at + 3..];
    }
    let file = names.last().map(String::as_str).unwrap_or_default();
    is_in_folder(names) || FILES.contains(&file) || BEGINNINGS.iter().any(|start| file.starts_with(start))
}

fn is_in_folder(names: &[String]) -> bool {
    FOLDERS.iter().any(|folder| {
        let folder: Vec<&str> = folder.split('/').collect();
        names.windows(folder.len()).any(|window| window.iter().map(String::as_str).eq(folder.iter().copied()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cx(root: &Path) -> RuleContext<'_> {
        RuleContext { cwd: root, root, home: Some(Path::new("/home/u")), writable: &[] }
    }

    fn touches(rule: &str, path: &str) -> bool {
        let root = Path::new("/no/such/p");
        PathRule::parse(rule, List::Deny, root).unwrap().touches(&Place::of(Path::new(path), root), &cx(root))
    }

    fn permits(rule: &str, path: &str) -> bool {
        let root = Path::new("/no/such/p");
        PathRule::parse(rule, List::Allow, root).unwrap().permits(&Place::of(Path::new(path), root), &cx(root))
    }

    #[test]
    fn anchors_are_those_of_the_syntax() {
        assert!(touches("//etc/**", "/etc/x/y"));
        assert!(!touches("//etc/**", "/no/such/p/etc/x"));
        assert!(touches("~/.ssh/**", "/home/u/.ssh/id"));
        assert!(touches("/src/**", "/no/such/p/src/a"));
        assert!(!touches("/src/**", "/no/such/p/b/src/a"));
        assert!(touches(".env", "deep/down/.env"));
        assert!(touches(".env", "x/../.env"));
        assert!(!touches(".env", "../q/.env"));
        assert!(touches("secrets/", "secrets/a"));
        assert!(touches("#x", "#x") && touches("!x", "!x"));
        assert!(permits("*.rs", "a/b.rs") && !permits("./*.rs", "a/b.rs") && permits("./*.rs", "b.rs"));
        assert!(permits("src/**", "src/a") && !permits("src/**", "b/src/a") && !permits("src/**", "src/../a"));
        assert!(PathRule::parse("", List::Deny, Path::new("/p")).is_err());
        assert!(PathRule::parse("a{", List::Deny, Path::new("/p")).is_err());
    }

    #[test]
    fn forbidding_holds_at_the_root_when_the_agent_stands_deeper() {
        let (root, cwd) = (Path::new("/no/such/p"), Path::new("/no/such/p/sub"));
        let cx = RuleContext { cwd, root, home: None, writable: &[] };
        let rule = PathRule::parse(".env", List::Deny, root).unwrap();
        assert!(rule.touches(&Place::of(Path::new("../.env"), cwd), &cx));
        assert!(!PathRule::parse("*.rs", List::Allow, root).unwrap().permits(&Place::of(Path::new("../a.rs"), cwd), &cx));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_both_ways() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::create_dir_all(root.join("secret")).unwrap();
        std::fs::write(root.join("secret/key"), "k").unwrap();
        symlink("../secret/key", root.join("src/innocent")).unwrap();
        symlink("secret", root.join("folder")).unwrap();
        symlink("secret/new", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let cx = cx(&root);
        let deny = PathRule::parse("secret/**", List::Deny, &root).unwrap();
        for path in ["secret/key", "src/innocent", "folder/key", "folder/new", "dangling", "src/../folder/key"] {
            assert!(deny.touches(&Place::of(Path::new(path), &root), &cx), "{path}");
        }
        assert!(!deny.touches(&Place::of(Path::new("loop"), &root), &cx));
        let allow = PathRule::parse("src/**", List::Allow, &root).unwrap();
        assert!(allow.permits(&Place::of(Path::new("src/new"), &root), &cx));
        assert!(!allow.permits(&Place::of(Path::new("src/innocent"), &root), &cx));
        let aliased = root.join("alias");
        symlink(".", &aliased).unwrap();
        assert!(allow.permits(&Place::of(Path::new("src/new"), &aliased), &RuleContext { cwd: &aliased, ..cx }));
    }

    #[test]
    fn protected_paths_are_known_below_the_workspace_only() {
        let root = Path::new("/no/.claude/such/.git/p");
        let protected = |path: &str| is_protected(&Place::of(Path::new(path), root), &cx(root));
        for path in [".git/config", ".GIT/hooks/x", "a/.git", ".vscode/tasks.json", ".config/git/ignore", "x/.bashrc", ".yarnrc.yml", ".pnp.cjs", ".gitmodules"]
        {
            assert!(protected(path), "{path}");
        }
        for path in [".claude/worktrees/a/.git/config", ".claude/worktrees", ".claude/worktrees/a", ".claude/x/.claude/worktrees/a/b", "../../x/.git/y"] {
            assert!(protected(path), "{path}");
        }
        for path in ["a.rs", ".config/x", ".gitignore", "gitconfig", ".claude/worktrees/a/x.rs", "src/profile"] {
            assert!(!protected(path), "{path}");
        }
    }
}
