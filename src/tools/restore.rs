//! Files as they were before a write, and back again: the recovery of calls that write files.
use super::{
    files::{self, TEMPORARY},
    place::{Place, is_git_name},
};
use rustix::{
    fs::{AtFlags, Dir, Mode, unlinkat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path},
};

/// Most entries of a folder that are looked at for left-over temporary files.
const ENTRIES_MAX: usize = 100_000;

/// What a file was before a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// Relative to the workspace's root.
    pub path: String,
    /// Its content; nothing where there was no file.
    pub content: Option<Vec<u8>>,
    /// Whether it could be executed.
    pub executable: bool,
}

/// Why a file could not be put back. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
#[error("put back `{path}`")]
pub struct RestoreError {
    /// Relative to the workspace's root.
    pub path: String,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

/// Reads what files are before a call writes them. A path that cannot be read (a folder, a link, too large, outside) is left
/// out: the write that follows is refused for the same reason, so that there is nothing to put back.
pub fn before(paths: &[String], root: &Path) -> Vec<Before> {
    paths.iter().filter_map(|path| read(path, root).ok()).collect()
}

fn read(path: &str, root: &Path) -> io::Result<Before> {
    let place = place(path, root)?;
    let missing = || Ok(Before { path: path.to_owned(), content: None, executable: false });
    let (folder, name) = match place.open_parent(false) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(),
        Err(error) => return Err(error),
    };
    let Some(mode) = files::mode_there(&folder, &name)? else { return missing() };
    let content = files::read(&place).map_err(io::Error::other)?;
    Ok(Before { path: path.to_owned(), content: Some(content), executable: mode.contains(Mode::XUSR) })
}

/// Removes what interrupted writes left beside files. Only for when nothing writes there: a write that goes on would lose
/// its half-made file.
///
/// # Errors
/// The first folder that cannot be swept.
pub fn sweep<'a>(paths: impl IntoIterator<Item = &'a str>, root: &Path) -> Result<(), RestoreError> {
    paths.into_iter().try_for_each(|path| {
        let swept = place(path, root).and_then(|place| match place.open_parent(false) {
            Ok((folder, _)) => remove_leftovers(&folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        swept.map_err(|source| RestoreError { path: path.to_owned(), source })
    })
}

/// Puts files back to what they were. Doing it twice is the same as doing it once.
///
/// # Errors
/// The first file that cannot be put back; those before it are.
pub fn put_back(files: &[Before], root: &Path) -> Result<(), RestoreError> {
    files.iter().try_for_each(|file| restore(file, root).map_err(|source| RestoreError { path: file.path.clone(), source }))
}

fn restore(file: &Before, root: &Path) -> io::Result<()> {
    let place = place(&file.path, root)?;
    let (folder, name) = match place.open_parent(file.content.is_some()) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.content.is_none() => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(content) = &file.content else {
        return match unlinkat(&folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        };
    };
    let mode = files::mode_there(&folder, &name)?.unwrap_or(Mode::from_raw_mode(0o644));
    let execute = Mode::from_raw_mode((mode.as_raw_mode() & 0o444) >> 2);
    let mode = (mode - Mode::from_raw_mode(0o111)) | if file.executable { execute } else { Mode::empty() };
    files::replace(&folder, &name, content, Some(mode))
}

/// Removes temporary files that a killed program left in a folder.
fn remove_leftovers(folder: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(folder)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name.as_bytes().starts_with(TEMPORARY.as_bytes()) {
            unlinkat(folder, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Takes a path that a journal holds for what it must be.
fn place(path: &str, root: &Path) -> io::Result<Place> {
    let relative = Path::new(path);
    let plain = !path.is_empty() && relative.components().all(|component| matches!(component, Component::Normal(name) if !is_git_name(name)));
    if plain { Ok(Place { root: root.to_owned(), relative: relative.to_owned(), in_workspace: true }) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn what_is_put_back_leaves_the_writes_beside_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let half = folder.path().join(format!("{TEMPORARY}1"));
        fs::write(&half, "half").unwrap();
        let file = Before { path: "a".to_owned(), content: Some(b"old".to_vec()), executable: false };
        put_back(&[file], folder.path()).unwrap();
        assert!(half.exists());
    }

    #[test]
    fn files_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("run.sh"), "old").unwrap();
        fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let paths = ["run.sh", "new/file", "../out", ".git/config", "gone"].map(str::to_owned);
        let before = before(&paths, root);
        assert_eq!(
            before.iter().map(|file| (file.path.as_str(), file.content.is_some(), file.executable)).collect::<Vec<_>>(),
            [("run.sh", true, true), ("new/file", false, false), ("gone", false, false)]
        );

        fs::remove_file(root.join("run.sh")).unwrap();
        fs::create_dir(root.join("new")).unwrap();
        fs::write(root.join("new/file"), "x").unwrap();
        fs::write(root.join(format!("new/{TEMPORARY}1")), "half").unwrap();
        for _ in 0..2 {
            sweep(before.iter().map(|file| file.path.as_str()), root).unwrap();
            put_back(&before, root).unwrap();
            assert_eq!(fs::read_to_string(root.join("run.sh")).unwrap(), "old");
            assert_eq!(fs::metadata(root.join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
            assert_eq!(fs::read_dir(root.join("new")).unwrap().count(), 0);
        }
        let outside = Before { path: "../out".to_owned(), content: None, executable: false };
        assert!(put_back(&[outside], root).is_err());
    }
}
