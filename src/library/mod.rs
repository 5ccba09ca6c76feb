//! The library: where workflows, prompts, hooks, skills and agents are found, which one counts, and whom it is trusted from.
//!
//! [`Library::discover`] looks into a fixed list of folders, never through the whole repository. The first match wins and
//! remembers whom it hides. What is inside a file is not this module's business: a found file is its text, its place and
//! the hash of its content.
//!
//! Order of the roots: the project's `.spinney/`, the project itself if it holds a `spinney.yaml`, its `.agents/` and
//! `.claude/`, the user's configuration folder, the user's `.agents/` and `.claude/`, the set built into the program.
//! Files of a project are somebody else's until a person has said otherwise: see [`Trust`].
mod builtin;
mod digest;
mod discover;
mod trust;
mod walk;

pub use builtin::MaterialiseError;
pub use trust::{Trust, TrustError};
pub use walk::{FILE_BYTES, NotText, read_text};

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Where the library looks.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The main checkout's top folder, if there is a project.
    pub project: Option<PathBuf>,
    /// The user's configuration folder for this program.
    pub user_config: Option<PathBuf>,
    /// The user's home folder, for `.claude/` and `.agents/`.
    pub home: Option<PathBuf>,
    /// The cache folder, where built-in files are written when a real path is needed.
    pub cache: PathBuf,
}

/// What can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `workflows/NAME.yaml`
    Workflow,
    /// `prompts/….md`; its name is that path.
    Prompt,
    /// `hooks/NAME.json`
    Hook,
    /// `skills/NAME/SKILL.md`, also in folders below `skills/`.
    Skill,
    /// `agents/….md`; its name is the path below `agents/` without the ending. What agents go by stands in the file.
    Agent,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Workflow => "workflow",
            Kind::Prompt => "prompt",
            Kind::Hook => "hook",
            Kind::Skill => "skill",
            Kind::Agent => "agent",
        })
    }
}

/// Whose root it is; in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootKind {
    /// The repository's.
    Project,
    /// The user's.
    User,
    /// The program's.
    BuiltIn,
}

/// One thing that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// Its main file, as people would write it: from the project's folder, from `~`, or `<built-in>/…`.
    pub path: String,
    /// Whose it is.
    pub root: RootKind,
    /// Whether it is trusted by its place: the user's own files and the built-in ones are, a project's are not.
    pub trusted: bool,
    /// The text of its main file.
    pub text: String,
    /// The folder that holds it, or that it is; `None` for what is built in (see [`Library::materialise`]).
    pub dir: Option<PathBuf>,
    /// The paths of those of the same name that it hides, nearest first.
    pub shadowed: Vec<String>,
    /// Of a hook: the files below its folder that its hash covers, sorted; what a person looks at before trusting it.
    pub covers: Vec<String>,
    /// The place among the roots, to compare things of different names.
    rank: usize,
    hash: OnceLock<String>,
    /// What links in a skill's folder may lead to.
    boundary: PathBuf,
}

impl Found {
    /// Returns the SHA-256 of its content in hexadecimal: of the file; for a hook also of every file of its folder that it
    /// names, directly or through another; for a skill of all the files in its folder (read when first asked for).
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| match (self.kind, &self.dir) {
            (Kind::Skill, Some(dir)) => digest::folder(dir, &self.boundary),
            // Of hooks, and of built-in skills, it is known from the start.
            (Kind::Workflow | Kind::Prompt | Kind::Hook | Kind::Skill | Kind::Agent, _) => digest::text(&self.text),
        })
    }

    /// Returns its rank: what has a lower one comes first where names clash that only the files themselves tell.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

/// Everything that was found.
#[derive(Debug, Clone, Default)]
pub struct Library {
    found: BTreeMap<(Kind, String), Found>,
    warnings: Vec<String>,
    unread: Vec<Unread>,
    cache: PathBuf,
}

/// A file that is in its place and cannot be read, of any kind.
#[derive(Debug, Clone)]
pub struct Unread {
    /// What it would be.
    pub kind: Kind,
    /// What it would be called.
    pub name: String,
    /// As people would write its path.
    pub path: String,
    /// Whose it is.
    pub root: RootKind,
    /// Where it is.
    pub file: PathBuf,
}

impl Library {
    /// Looks into all roots. What cannot be read becomes a warning.
    pub fn discover(places: &Places) -> Library {
        discover::discover(places, builtin::FILES)
    }

    /// Returns the one that counts.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&Found> {
        self.found.get(&(kind, name.to_owned()))
    }

    /// Returns all of a kind, sorted by name.
    pub fn all(&self, kind: Kind) -> Vec<&Found> {
        let from = Bound::Included((kind, String::new()));
        self.found.range((from, Bound::Unbounded)).take_while(|((found, _), _)| *found == kind).map(|(_, found)| found).collect()
    }

    /// Returns the files that are in their places and cannot be read.
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Returns what was passed over, and why.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the real folder of a hook or a skill; what is built in is first written below the cache folder.
    pub fn materialise(&self, found: &Found) -> Result<PathBuf, MaterialiseError> {
        match &found.dir {
            Some(dir) => Ok(dir.clone()),
            None => builtin::materialise(&self.cache, builtin::FILES, found),
        }
    }

    /// Adds what was found, or notes that it is hidden. What is nearer and cannot be read hides it as well: nobody is to get another file than
    /// the one that is there.
    fn add(&mut self, found: Found) {
        if self.unread.iter().any(|unread| unread.kind == found.kind && unread.name == found.name) {
            return;
        }
        match self.found.entry((found.kind, found.name.clone())) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(found);
            }
            std::collections::btree_map::Entry::Occupied(mut first) => first.get_mut().shadowed.push(found.path),
        }
    }
}

/// Lists the files below a folder of the library (a skill's, materialised or not), sorted, links out of it left out.
pub fn files(dir: &Path) -> Vec<String> {
    let boundary = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    walk::Walk::new(boundary).files(dir, digest::MAX_DEPTH).into_iter().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests;
