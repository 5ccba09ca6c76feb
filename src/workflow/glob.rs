//! What no glob of files may be, wherever it stands and wherever it comes from.

/// Why a glob cannot mean what its author wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misread {
    /// What is wrong; fits after the glob in quotes.
    pub wrong: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

/// Returns what is wrong with a glob that can be read and yet says nothing, or something else than it seems to.
///
/// `/`, `/*` and `/**` are what is left of `{{ dir }}/**` where the folder is empty: taken for all files they would open
/// the whole repository by accident.
pub fn misread(glob: &str) -> Option<Misread> {
    const ALL: &str = "write `**` for all files, `docs/**` for those of a folder";
    let misread = |wrong, help| Some(Misread { wrong, help });
    if glob.trim().is_empty() {
        return misread("is empty and names no file", ALL);
    }
    if glob.split('/').any(|part| part == "..") {
        return misread("leads out of the repository", "patterns are relative to its top folder");
    }
    if glob.starts_with('!') {
        return misread("takes nothing out: a `!` means nothing here", "name what is wanted; a name that begins so is written `\\!name`");
    }
    if glob.starts_with('/') && glob.split('/').all(|part| part.chars().all(|c| c == '*')) {
        return misread("names no folder after its `/`", ALL);
    }
    None
}
