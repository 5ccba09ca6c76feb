//! Refs moved by this process itself, by git's own protocol for files: what is to be moved is locked by `NAME.lock`, compared, and
//! then renamed into place or removed.
//!
//! Only what is plain is done here; for everything else (names that are locked by somebody, symbolic or logged, and
//! whatever is not as it was expected) nothing is touched, and git is asked, which waits, or says in its own words what is wrong.
//! A name that is not packed is deleted without a lock of `packed-refs`. Somebody may pack it meanwhile, so that it is looked for
//! again afterwards.
use super::{
    error::GitError,
    packed::Packing,
    program::lock_of,
    refs::{BRANCHES, Expected, OURS, RefMove},
    repository::Repository,
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use tempfile::TempPath;

/// A move whose ref is locked.
struct Held<'a> {
    asked: &'a RefMove,
    file: PathBuf,
    lock: TempPath,
}

impl Repository {
    /// Moves refs, all or none, where that is plain; returns whether it was.
    ///
    /// # Errors
    /// `Io` where a ref that is locked cannot be written.
    pub(super) fn move_loose(&self, moves: &[RefMove]) -> Result<bool, GitError> {
        let Some(objects) = self.objects().filter(|objects| !self.program().is_closed() && writes_as_usual(objects)) else { return Ok(false) };
        // Each is dropped, and its lock with it, where another is not plain.
        let mut held = Vec::new();
        // Deleting what is not there is done already.
        for asked in moves.iter().filter(|asked| asked.to.is_some() || asked.expected != Expected::Absent) {
            if !self.is_plain(&objects, asked) {
                return Ok(false);
            }
            let Ok(one) = self.hold(asked) else { return Ok(false) };
            held.push(one);
        }
        if !held.iter().all(|one| stands_as_expected(&objects, one.asked)) {
            return Ok(false);
        }
        let (written, deleted): (Vec<Held<'_>>, Vec<Held<'_>>) = held.into_iter().partition(|one| one.asked.to.is_some());
        let mut packing = None;
        if deleted.iter().any(|one| self.may_be_packed(&one.asked.name)) {
            packing = self.packing()?;
            if packing.is_none() {
                return Ok(false);
            }
        }
        for Held { file, lock, .. } in written {
            lock.persist(&file).map_err(|error| GitError::io("write", &file)(error.error))?;
        }
        // First there: what is packed would come to light again.
        if let Some(packing) = &packing {
            packing.take_out(&deleted.iter().map(|one| one.asked.name.as_str()).collect())?;
        }
        for one in deleted {
            self.delete(one, packing.as_ref())?;
        }
        Ok(true)
    }

    /// Returns whether a move is one that nothing but the ref itself takes part in.
    fn is_plain(&self, objects: &git2::Repository, asked: &RefMove) -> bool {
        let is_there = |id: &str| git2::Oid::from_str(id).and_then(|id| Ok(objects.odb()?.exists(id))).unwrap_or(false);
        (asked.name.starts_with(OURS) || (asked.to.is_none() && asked.name.starts_with(BRANCHES)))
            && git2::Reference::is_valid_name(&asked.name)
            && asked.to.as_ref().is_none_or(|to| is_there(&to.0))
            && !self.common_dir().join(&asked.name).is_dir()
            && fs::symlink_metadata(self.common_dir().join("logs").join(&asked.name)).is_err()
    }

    /// Locks a ref, and writes beside it what it is to be.
    fn hold<'a>(&self, asked: &'a RefMove) -> io::Result<Held<'a>> {
        let file = self.common_dir().join(&asked.name);
        fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        let mut open = File::create_new(lock_of(&file))?;
        let held = Held { asked, lock: TempPath::try_from_path(lock_of(&file))?, file };
        if let Some(to) = &asked.to {
            writeln!(open, "{to}")?;
        }
        Ok(held)
    }

    /// Removes a ref that is locked, and the folders that hold nothing any more.
    fn delete(&self, Held { asked, file, lock }: Held<'_>, packing: Option<&Packing<'_>>) -> Result<(), GitError> {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::io("remove", file)(error)),
            Ok(()) | Err(_) => {}
        }
        lock.close().map_err(GitError::io("unlock", &file))?;
        if packing.is_none() && self.may_be_packed(&asked.name) {
            match self.packing()? {
                Some(packing) => packing.take_out(&[asked.name.as_str()].into())?,
                // It waits for whoever packs.
                None => drop(self.git(["update-ref", "--no-deref", "-z", "--stdin"]).stdin(format!("delete {}\0\0", asked.name).into_bytes()).bytes()?),
            }
        }
        let tops = ["refs/heads", OURS].map(|top| self.common_dir().join(top));
        // The first that holds something ends this.
        let _ = file.ancestors().skip(1).take_while(|folder| tops.iter().any(|top| folder.starts_with(top) && *folder != top)).try_for_each(fs::remove_dir);
        Ok(())
    }

    /// Lists refs at or below a name; `None` where git has to.
    pub(super) fn list_refs(&self, prefix: &str) -> Result<Option<Vec<(String, crate::event::CommitId)>>, GitError> {
        let Some(objects) = self.objects().filter(|_| !prefix.contains(['*', '?', '[', '\\'])) else { return Ok(None) };
        let mut found = BTreeSet::new();
        let mut take = |reference: &git2::Reference<'_>| {
            // One that leads nowhere is none.
            if let Some(at) = reference.resolve().ok().and_then(|there| there.target()) {
                found.insert((String::from_utf8_lossy(reference.name_bytes()).into_owned(), at.to_string().as_str().into()));
            }
        };
        for reference in objects.references_glob(&format!("{prefix}/*"))? {
            take(&reference?);
        }
        match objects.find_reference(prefix) {
            Ok(reference) => take(&reference),
            Err(error) if matches!(error.code(), git2::ErrorCode::NotFound | git2::ErrorCode::InvalidSpec) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Some(found.into_iter().collect()))
    }
}

/// Returns whether nobody wants refs synced.
fn writes_as_usual(objects: &git2::Repository) -> bool {
    objects.config().is_ok_and(|config| config.get_entry("core.fsync").is_err())
}

fn stands_as_expected(objects: &git2::Repository, asked: &RefMove) -> bool {
    let at = match objects.find_reference(&asked.name) {
        Ok(found) if found.kind() == Some(git2::ReferenceType::Direct) => found.target().map(|id| id.to_string()),
        Err(error) if error.code() == git2::ErrorCode::NotFound => None,
        Ok(_) | Err(_) => return false,
    };
    match &asked.expected {
        Expected::Any => true,
        Expected::Absent => at.is_none(),
        Expected::At(commit) => at.as_deref() == Some(&commit.0),
    }
}
