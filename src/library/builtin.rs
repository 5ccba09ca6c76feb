//! The library that ships inside the program.
use super::{
    Found, Kind, RootKind, digest,
    discover::{folder, name},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// One file of the built-in set: its path as in the repository, and its content. A file that begins with `#!` is executable.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuiltIn {
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

/// Makes the table: one line a file.
macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(BuiltIn { path: $path, text: include_str!(concat!("../../", $path)) }),*] };
}

/// Every built-in file, sorted by path.
pub(super) const FILES: &[BuiltIn] = files![
    "hooks/check-syntax.json",
    "hooks/check-syntax.sh",
    "hooks/json-field.awk",
    "hooks/protect-files.json",
    "hooks/protect-files.sh",
    "prompts/coder.md",
    "prompts/editor.md",
    "prompts/fixer.md",
    "prompts/judge.md",
    "prompts/migrator.md",
    "prompts/planner.md",
    "prompts/resolver.md",
    "prompts/reviewer.md",
    "prompts/rubric.md",
    "prompts/skeptic.md",
    "prompts/tester.md",
    "skills/merge-conflicts/SKILL.md",
    "skills/review-api/SKILL.md",
    "skills/review-correctness/SKILL.md",
    "skills/review-security/SKILL.md",
    "skills/review-tests/SKILL.md",
    "skills/rust-tests/SKILL.md",
    "workflows/demo.yaml",
    "workflows/feature.yaml",
    "workflows/migrate.yaml",
    "workflows/review.yaml",
    "workflows/tournament.yaml",
];

/// A built-in file that cannot be written where a real path is needed.
#[derive(Debug, thiserror::Error)]
#[error("write the built-in `{path}`")]
pub struct MaterialiseError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Lists what the set holds.
pub(super) fn found(set: &[BuiltIn], rank: usize) -> Vec<Found> {
    let kinds = [Kind::Workflow, Kind::Prompt, Kind::Hook, Kind::Skill, Kind::Agent];
    let mut all = Vec::new();
    for file in set {
        let Some((kind, below)) = kinds.iter().find_map(|kind| Some((*kind, file.path.strip_prefix(folder(*kind))?.strip_prefix('/')?))) else { continue };
        let Some(name) = name(kind, below) else { continue };
        let hash = match kind {
            Kind::Workflow | Kind::Prompt | Kind::Agent => digest::text(file.text),
            Kind::Hook => digest::contents(below_folder(set, "hooks/")),
            Kind::Skill => digest::contents(below_folder(set, file.path.trim_end_matches("SKILL.md"))),
        };
        all.push(Found {
            kind,
            name,
            path: format!("<built-in>/{}", file.path),
            root: RootKind::BuiltIn,
            trusted: true,
            text: file.text.to_owned(),
            dir: None,
            shadowed: Vec::new(),
            covers: Vec::new(),
            rank,
            hash: OnceLock::from(hash),
            boundary: PathBuf::new(),
        });
    }
    all
}

fn below_folder<'a>(set: &'a [BuiltIn], folder: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    set.iter().filter_map(move |file| Some((file.path.strip_prefix(folder)?, file.text.as_bytes())))
}

/// Writes the set below `cache/builtin/HASH/`, where HASH is that of the whole set, and returns the folder of `found` in it.
/// What is there already is compared and mended: others may write to a cache.
pub(super) fn materialise(cache: &Path, set: &[BuiltIn], found: &Found) -> Result<PathBuf, MaterialiseError> {
    let hash = digest::contents(set.iter().map(|file| (file.path, file.text.as_bytes())));
    let top = cache.join("builtin").join(&hash[..16]);
    for file in set {
        let path = top.join(file.path);
        write(&path, file.text).map_err(|source| MaterialiseError { path, source })?;
    }
    let main = top.join(found.path.strip_prefix("<built-in>/").unwrap_or(&found.path));
    Ok(main.parent().unwrap_or(&top).to_path_buf())
}

/// Writes one file, whole or not at all, unless it is there already as it must be.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let executable = text.starts_with("#!");
    if is_as_it_must_be(path, text, executable) {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let file = tempfile::NamedTempFile::new_in(dir)?;
    fs::write(file.path(), text)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 }))?;
    }
    file.persist(path)?;
    Ok(())
}

fn is_as_it_must_be(path: &Path, text: &str, executable: bool) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    #[cfg(unix)]
    let fit = {
        use std::os::unix::fs::PermissionsExt as _;
        (metadata.permissions().mode() & 0o111 != 0) == executable
    };
    #[cfg(not(unix))]
    let fit = true;
    fit && metadata.is_file() && metadata.len() == text.len() as u64 && fs::read(path).is_ok_and(|content| content == text.as_bytes())
}
