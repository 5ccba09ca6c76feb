//! Looks through the roots.
use super::{
    Found, Kind, Library, Places, RootKind, Unread,
    builtin::{self, BuiltIn},
    digest,
    walk::Walk,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// How deep prompts, skills and agents may lie below their folder.
const MAX_DEPTH: usize = 4;

/// One root.
struct Root {
    kind: RootKind,
    dir: PathBuf,
    /// What stands for `dir` when its files are shown.
    shown: String,
    boundary: PathBuf,
    holds: &'static [Kind],
}

const ALL: &[Kind] = &[Kind::Workflow, Kind::Prompt, Kind::Hook, Kind::Skill, Kind::Agent];

/// Looks into all roots; `set` is the built-in one.
pub(super) fn discover(places: &Places, set: &[BuiltIn]) -> Library {
    let mut library = Library { cache: places.cache.clone(), ..Library::default() };
    let roots = roots(places);
    for (rank, root) in roots.iter().enumerate() {
        Scan { library: &mut library, root, rank, walk: Walk::new(root.boundary.clone()) }.run();
    }
    for found in builtin::found(set, roots.len()) {
        library.add(found);
    }
    library
}

/// Lists the roots that exist, in order of precedence, each once.
fn roots(places: &Places) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    if let Some(project) = &places.project {
        let boundary = real(project);
        let mut add = |below: &str, holds| {
            let shown = if below.is_empty() { String::new() } else { format!("{below}/") };
            roots.push(Root { kind: RootKind::Project, dir: project.join(below), shown, boundary: boundary.clone(), holds });
        };
        add(".spinney", ALL);
        if project.join("spinney.yaml").is_file() {
            add("", ALL);
        }
        add(".agents", &[Kind::Skill]);
        add(".claude", &[Kind::Skill, Kind::Agent]);
    }
    let home = places.home.as_deref().map(real);
    if let Some(config) = &places.user_config {
        let own = real(config);
        let boundary = home.clone().filter(|home| own.starts_with(home)).unwrap_or(own);
        roots.push(Root { kind: RootKind::User, dir: config.clone(), shown: shown(config, places.home.as_deref()), boundary, holds: ALL });
    }
    if let (Some(dir), Some(boundary)) = (&places.home, home) {
        for (below, holds) in [(".agents", &[Kind::Skill][..]), (".claude", &[Kind::Skill, Kind::Agent])] {
            roots.push(Root { kind: RootKind::User, dir: dir.join(below), shown: format!("~/{below}/"), boundary: boundary.clone(), holds });
        }
    }
    // A project that is the home folder itself: its `.claude` is not listed twice.
    let mut seen = Vec::new();
    roots.retain(|root| match fs::canonicalize(&root.dir) {
        Ok(real) if !seen.contains(&real) => {
            seen.push(real);
            true
        }
        Ok(_) | Err(_) => false,
    });
    roots
}

/// Resolves links, as far as the path exists.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Writes a folder as people do, with `~` for their home.
fn shown(dir: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| dir.strip_prefix(home).ok()) {
        Some(below) => format!("~/{}/", below.display()),
        None => format!("{}/", dir.display()),
    }
}

/// A look through one root.
struct Scan<'a> {
    library: &'a mut Library,
    root: &'a Root,
    rank: usize,
    walk: Walk,
}

impl Scan<'_> {
    fn run(mut self) {
        if self.walk.stays_inside(&self.root.dir) {
            for kind in self.root.holds {
                let dir = self.root.dir.join(folder(*kind));
                if fs::symlink_metadata(&dir).is_err() || !self.walk.stays_inside(&dir) {
                    continue;
                }
                match kind {
                    Kind::Workflow | Kind::Prompt | Kind::Agent => self.texts(*kind, &dir),
                    Kind::Hook => self.hooks(&dir),
                    Kind::Skill => self.skills(&dir),
                }
            }
        }
        self.library.warnings.append(&mut self.walk.warnings);
    }

    fn texts(&mut self, kind: Kind, dir: &Path) {
        let depth = if kind == Kind::Workflow { 0 } else { MAX_DEPTH };
        for (below, path) in self.walk.files(dir, depth) {
            let Some(name) = name(kind, &below) else { continue };
            if let Some(text) = self.walk.text(&path) {
                self.add(Place { kind, name, below, dir: path.parent().unwrap_or(dir).to_path_buf(), covers: Vec::new() }, text, OnceLock::new());
            } else {
                self.unread(kind, name, &below, path);
            }
        }
    }

    fn hooks(&mut self, dir: &Path) {
        let beside = self.walk.files(dir, MAX_DEPTH);
        for (below, path) in &beside {
            let Some(name) = name(Kind::Hook, below) else { continue };
            let Some(text) = self.walk.text(path) else {
                self.unread(Kind::Hook, name, below, path.clone());
                continue;
            };
            match digest::hook(below, &text, &beside) {
                Ok(digest::Covered { hash, files }) => {
                    self.add(Place { kind: Kind::Hook, name, below: below.clone(), dir: dir.to_path_buf(), covers: files }, text, OnceLock::from(hash));
                }
                Err(error) => {
                    self.walk.warnings.push(format!("the hook `{name}` is passed over: {error}"));
                    self.unread(Kind::Hook, name, below, path.clone());
                }
            }
        }
    }

    fn skills(&mut self, dir: &Path) {
        let mut folders = vec![(String::new(), dir.to_path_buf(), MAX_DEPTH)];
        while let Some((prefix, dir, depth)) = folders.pop() {
            // From the last to the first, so that the first is popped first.
            for entry in self.walk.entries(&dir).into_iter().rev().filter(|entry| entry.is_dir) {
                let main = entry.path.join("SKILL.md");
                let below = format!("{prefix}{}", entry.name);
                let Ok(metadata) = fs::symlink_metadata(&main) else {
                    if depth > 1 {
                        folders.push((format!("{below}/"), entry.path, depth - 1));
                    }
                    continue;
                };
                let inside = !metadata.is_symlink() || self.walk.stays_inside(&main);
                let text = if inside { self.walk.text(&main) } else { None };
                let below = format!("{below}/SKILL.md");
                if let Some(text) = text {
                    self.add(Place { kind: Kind::Skill, name: entry.name, below, dir: entry.path, covers: Vec::new() }, text, OnceLock::new());
                } else {
                    self.unread(Kind::Skill, entry.name, &below, main);
                }
            }
        }
    }

    fn unread(&mut self, kind: Kind, name: String, below: &str, file: PathBuf) {
        if self.library.find(kind, &name).is_none() {
            let path = format!("{}{}/{below}", self.root.shown, folder(kind));
            self.library.unread.push(Unread { kind, name, path, root: self.root.kind, file });
        }
    }

    fn add(&mut self, place: Place, text: String, hash: OnceLock<String>) {
        self.library.add(Found {
            kind: place.kind,
            name: place.name,
            path: format!("{}{}/{}", self.root.shown, folder(place.kind), place.below),
            root: self.root.kind,
            trusted: self.root.kind != RootKind::Project,
            text,
            dir: Some(place.dir),
            shadowed: Vec::new(),
            covers: place.covers,
            rank: self.rank,
            hash,
            boundary: self.root.boundary.clone(),
        });
    }
}

/// What a file is and where.
struct Place {
    kind: Kind,
    name: String,
    /// The path below the kind's folder.
    below: String,
    dir: PathBuf,
    /// What its hash covers, where that is more than itself and not all.
    covers: Vec<String>,
}

/// The folder of a kind below a root.
pub(super) fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Workflow => "workflows",
        Kind::Prompt => "prompts",
        Kind::Hook => "hooks",
        Kind::Skill => "skills",
        Kind::Agent => "agents",
    }
}

/// Names what a file below its kind's folder holds; `None` where it is not of the kind.
pub(super) fn name(kind: Kind, below: &str) -> Option<String> {
    let flat = |ending: &str| below.strip_suffix(ending).filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned);
    match kind {
        Kind::Workflow => flat(".yaml").or_else(|| flat(".yml")),
        Kind::Prompt => below.strip_suffix(".md").map(|_| format!("prompts/{below}")),
        Kind::Hook => flat(".json"),
        Kind::Skill => below.strip_suffix("/SKILL.md").map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()),
        Kind::Agent => below.strip_suffix(".md").filter(|name| !name.is_empty()).map(str::to_owned),
    }
}
