//! Whether everything that commits are made of is in the object database, and whole.
use super::{error::GitError, process::Output, program, repository::Repository};
use crate::event::CommitId;
use std::collections::BTreeSet;

/// Objects that are named; more say no more.
const NAMED: usize = 20;

/// What is not as it should be of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unsound {
    /// Those that are not there, sorted.
    pub missing: BTreeSet<String>,
    /// Those that are there, and not what their names say, sorted; git stops at some of them, so that there may be more.
    pub damaged: BTreeSet<String>,
}

impl Repository {
    /// Returns what is missing or damaged of some commits, and of the trees and files that they do not share with `base`; with
    /// `all` also of the files of `base` itself. Two or three calls of git, however many commits there are.
    ///
    /// # Errors
    /// `Failed` where git says something else.
    pub fn unsound_objects(&self, commits: &BTreeSet<CommitId>, base: &CommitId, all: bool) -> Result<Unsound, GitError> {
        let asked: String = commits.iter().chain([base]).map(|commit| format!("{commit}^{{commit}}\n")).collect();
        let mut unsound = Unsound::default();
        let checked = self.git(["cat-file", "--batch-check=%(objectname)", "--buffer"]).stdin(asked.into_bytes()).output()?;
        unsound.note(&checked, "cat-file")?;
        let said = String::from_utf8_lossy(&checked.whole("cat-file")?).into_owned();
        let name = |line: &str| line.split(['^', ' ']).next().unwrap_or_default().to_owned();
        unsound.missing.extend(said.lines().filter(|line| line.ends_with(" missing")).map(name).filter(|name| !unsound.damaged.contains(name)));
        let is_there = |commit: &CommitId| !unsound.missing.contains(&commit.0) && !unsound.damaged.contains(&commit.0);
        let there: String = commits.iter().filter(|commit| is_there(commit)).map(|commit| format!("{commit}\n")).collect();
        if is_there(base) {
            let mut reaches = vec![format!("{there}^{base}\n")];
            if all {
                reaches.push(format!("{base}^{{tree}}\n"));
            }
            for reach in reaches {
                let output =
                    self.git(["rev-list", "--objects", "--verify-objects", "--missing=print", "--quiet", "--stdin"]).stdin(reach.into_bytes()).output()?;
                unsound.note(&output, "rev-list")?;
                unsound
                    .missing
                    .extend(String::from_utf8_lossy(&output.whole("rev-list")?).lines().filter_map(|line| line.strip_prefix('?')).map(str::to_owned));
            }
        }
        Ok(Unsound { missing: unsound.missing.into_iter().take(NAMED).collect(), damaged: unsound.damaged.into_iter().take(NAMED).collect() })
    }
}

impl Repository {
    /// Returns whether a commit is there with all that its files do not share with `base`; that it is what it is called is not looked at.
    pub(super) fn is_there(&self, commit: &CommitId, base: &CommitId) -> Result<bool, GitError> {
        let Some(objects) = self.objects() else {
            return Ok(self.unsound_objects(&[commit.clone()].into(), base, false)? == Unsound::default());
        };
        let tree = |commit: &CommitId| Ok::<_, git2::Error>(objects.find_commit(git2::Oid::from_str(&commit.0)?)?.tree_id());
        let found = tree(commit).and_then(|own| Ok((own, tree(base)?)));
        let (own, base) = match found {
            Ok(found) => found,
            Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let database = objects.odb()?;
        let mut open = vec![(own, Some(base))];
        while let Some((own, base)) = open.pop() {
            if Some(own) == base {
                continue;
            }
            let tree = match objects.find_tree(own) {
                Ok(tree) => tree,
                Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let base = base.and_then(|base| objects.find_tree(base).ok());
            for entry in &tree {
                let before = base.as_ref().and_then(|base| base.get_name_bytes(entry.name_bytes()).map(|before| before.id()));
                match entry.kind() {
                    Some(git2::ObjectType::Tree) => open.push((entry.id(), before)),
                    Some(git2::ObjectType::Blob) if before != Some(entry.id()) && !database.exists(entry.id()) => return Ok(false),
                    _ => {}
                }
            }
        }
        Ok(true)
    }
}

impl Unsound {
    /// Notes the objects that git complains of.
    fn note(&mut self, output: &Output, command: &str) -> Result<(), GitError> {
        let said = output.stderr.text();
        let before = self.damaged.len();
        self.damaged.extend(said.lines().flat_map(|line| line.split_whitespace().filter_map(object_in)));
        if output.is_success() || self.damaged.len() > before { Ok(()) } else { Err(program::failed(command.to_owned(), output)) }
    }
}

/// Reads an object's name, or that of its file, from a word of git's.
fn object_in(word: &str) -> Option<String> {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = match word.rsplit_once('/') {
        Some((folder, rest)) => format!("{}{rest}", folder.rsplit('/').next().unwrap_or_default()),
        None => word.to_owned(),
    };
    (matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::object_in;

    #[test]
    fn objects_are_known_by_their_names_and_their_files() {
        let id = "777029fae47458b2d345e845724fed51c447658d";
        for word in [id, &format!("'{id}'"), "objects/77/7029fae47458b2d345e845724fed51c447658d)", "/r/.git/objects/77/7029fae47458b2d345e845724fed51c447658d"]
        {
            assert_eq!(object_in(word).as_deref(), Some(id), "{word}");
        }
        for word in ["mismatch", "77/7029", "zz7029fae47458b2d345e845724fed51c447658d"] {
            assert_eq!(object_in(word), None, "{word}");
        }
    }
}
