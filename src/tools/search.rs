//! Walking a folder for Grep and Glob: in order, by the rules of `.gitignore`, and beneath the root only.
use super::{
    ToolContext, ToolError,
    place::{self, Place, is_git_name, open_beneath, trouble},
};
use globset::{GlobBuilder, GlobMatcher};
use ignore::{WalkBuilder, types::Types};
use rustix::fs::{FileType, fstat};
use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Most entries that one search looks at.
const ENTRIES_MAX: usize = 1_000_000;

/// Where and for which files to search.
pub(super) struct Search {
    place: Place,
    globs: Vec<PathGlob>,
    types: Types,
}

/// What was found beneath a place.
pub(super) struct Found {
    /// Relative to the place's root, sorted.
    pub(super) files: Vec<PathBuf>,
    /// Whether the walk was given up at its bound.
    pub(super) is_partial: bool,
}

impl Search {
    pub(super) fn new(cx: &ToolContext, path: Option<&str>) -> Result<Search, ToolError> {
        let place = Place::find(cx, path.unwrap_or("."))?;
        Ok(Search { place, globs: Vec::new(), types: Types::empty() })
    }

    /// Keeps only files that a glob matches; several are one list, those with `!` before them leave files out.
    pub(super) fn glob(mut self, pattern: &str) -> Result<Search, ToolError> {
        self.globs.push(PathGlob::new(pattern)?);
        Ok(self)
    }

    /// Keeps only files of a type that ripgrep knows.
    pub(super) fn types(mut self, types: Types) -> Search {
        self.types = types;
        self
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Walks the place. A file that is named itself is found whatever the globs say.
    pub(super) fn run(&self, cx: &ToolContext) -> Result<Found, ToolError> {
        let opened = self.place.open().map_err(|error| trouble(&self.place, "search", &error))?;
        let place = self.place.settled(&opened);
        let kind = fstat(&opened).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(|error| trouble(&self.place, "search", &error.into()))?;
        if kind != FileType::Directory {
            return Ok(Found { files: vec![place.relative], is_partial: false });
        }
        // Rules of folders above count up to the root, and none beyond it; so the walk begins there and goes straight down. A folder that
        // is itself ignored is walked only where it was asked for.
        match self.walk(cx, &place, &place.root)? {
            (found, true) => Ok(found),
            (_, false) => self.walk(cx, &place, &place.path()).map(|(found, _)| found),
        }
    }

    /// Walks down from a folder; also returns whether the place itself was met.
    fn walk(&self, cx: &ToolContext, place: &Place, from: &Path) -> Result<(Found, bool), ToolError> {
        let target = place.path();
        let mut builder = WalkBuilder::new(from);
        builder.hidden(false).parents(false).git_global(false).git_exclude(false).require_git(false).follow_links(false).types(self.types.clone());
        builder.sort_by_file_path(Path::cmp);
        let aim = target.clone();
        builder.filter_entry(move |entry| {
            let path = entry.path();
            !is_git_name(entry.file_name()) && (path.starts_with(&aim) || aim.starts_with(path))
        });
        let mut found = Found { files: Vec::new(), is_partial: false };
        let mut was_met = false;
        for (at, entry) in builder.build().enumerate() {
            if cx.cancel.is_cancelled() {
                return Err(ToolError::Model("the search was cancelled".to_owned()));
            }
            if at >= ENTRIES_MAX {
                found.is_partial = true;
                break;
            }
            // What cannot be read (a folder without permission, one that vanished) is passed over.
            let Ok(entry) = entry else { continue };
            was_met |= entry.path() == target;
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if let (true, Ok(below)) = (is_file, entry.path().strip_prefix(&target))
                && self.keeps(below)
                && !cx.hidden.as_ref().is_some_and(|hidden| hidden(entry.path()))
            {
                found.files.push(place.relative.join(below));
            }
        }
        Ok((found, was_met))
    }

    fn keeps(&self, below: &Path) -> bool {
        let (out, into): (Vec<&PathGlob>, Vec<&PathGlob>) = self.globs.iter().partition(|glob| glob.is_negated);
        (into.is_empty() || into.iter().any(|glob| glob.matcher.is_match(below))) && !out.iter().any(|glob| glob.matcher.is_match(below))
    }

    /// Returns what opens the files that were found.
    pub(super) fn opener(&self) -> Result<Opener, ToolError> {
        let root = place::open_root(&self.place.root).map_err(|error| place::lost(&self.place.root, error))?;
        Ok(Opener { root, place: self.place.clone() })
    }
}

/// Opens files beneath a root, whatever has become of their folders since they were found.
pub(super) struct Opener {
    root: OwnedFd,
    place: Place,
}

impl Opener {
    /// Opens a regular file of at most `max` bytes; nothing where it is none any more.
    pub(super) fn open(&self, relative: &Path, max: u64) -> Option<File> {
        let opened = open_beneath(&self.root, relative).map(File::from);
        let file = opened.or_else(|_| Place { relative: relative.to_owned(), ..self.place.clone() }.open()).ok()?;
        let stat = fstat(&file).ok()?;
        let is_fit = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && u64::try_from(stat.st_size).is_ok_and(|size| size <= max);
        is_fit.then_some(file)
    }
}

/// A glob over paths beneath the searched folder. Without a slash it is about names in any folder, as in `.gitignore`.
struct PathGlob {
    matcher: GlobMatcher,
    is_negated: bool,
}

impl PathGlob {
    fn new(pattern: &str) -> Result<PathGlob, ToolError> {
        let (is_negated, plain) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        let plain = plain.trim_start_matches("./");
        let whole = match plain.strip_prefix('/') {
            Some(anchored) => anchored.to_owned(),
            None if plain.contains('/') => plain.to_owned(),
            None => format!("**/{plain}"),
        };
        let glob = GlobBuilder::new(&whole).literal_separator(true).build().map_err(|error| ToolError::Model(format!("`{pattern}` is no glob: {error}")))?;
        Ok(PathGlob { matcher: glob.compile_matcher(), is_negated })
    }
}

/// Shows a path as the agent would write it: relative to where it stands if it is below, else absolute.
pub(super) fn show(cx: &ToolContext, place: &Place, relative: &Path) -> String {
    let path = place.root.join(relative);
    path.strip_prefix(&cx.cwd).unwrap_or(&path).to_string_lossy().into_owned()
}
