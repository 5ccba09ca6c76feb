//! Tokens: words that answer one question each, from anywhere on this machine.
//!
//! A token is known to whoever was told it. What is kept is its hash: in the run's folder, with the question that it
//! answers, and in the user's cache, with the run's folder. It is used up when an answer by it is written.
use crate::{
    event::{BlobId, NodeId, hex},
    journal::read_plain,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Bytes of chance in a token.
const BYTES: usize = 32;

/// The question that a token answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who asks.
    pub node: NodeId,
    /// The question's name among those of its node.
    pub call: String,
}

/// The tokens of one run.
#[derive(Debug, Clone)]
pub struct Tokens {
    run: PathBuf,
    cache: PathBuf,
}

impl Tokens {
    /// The tokens of the run in the folder `run`; `cache` is the user's cache folder for this program.
    pub fn new(run: &Path, cache: &Path) -> Tokens {
        Tokens { run: run.to_owned(), cache: cache.to_owned() }
    }

    /// Makes a token for a question.
    ///
    /// # Errors
    /// The system's, where chance or a file cannot be had.
    pub fn issue(&self, claim: &Claim) -> io::Result<String> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let token = hex(&bytes);
        let hash = hash(&token);
        write(&self.run.join("tokens"), &hash, &serde_json::to_vec(claim)?)?;
        write(&folder(&self.cache), &hash, self.run.canonicalize()?.to_string_lossy().as_bytes())?;
        Ok(token)
    }

    /// Finds the run's folder and the question that a token answers; nothing where there is no such token, or it is used up.
    pub fn find(cache: &Path, token: &str) -> Option<(PathBuf, Claim)> {
        let hash = hash(token);
        let run = PathBuf::from(fs::read_to_string(folder(cache).join(&hash)).ok()?);
        let claim = serde_json::from_slice(&read_plain(&run.join("tokens").join(&hash)).ok()?).ok()?;
        Some((run, claim))
    }

    /// Uses a token up. One that is used up already stays so.
    pub fn spend(&self, token: &str) {
        let hash = hash(token);
        for folder in [folder(&self.cache), self.run.join("tokens")] {
            let _ = fs::remove_file(folder.join(&hash));
        }
    }
}

fn hash(token: &str) -> String {
    BlobId::of(token.trim().as_bytes()).0
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("tokens")
}

fn write(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(file.path(), content)?;
    file.as_file().sync_all()?;
    file.persist(folder.join(name)).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StepId;

    #[test]
    fn a_token_is_found_until_it_is_spent_and_is_written_nowhere() {
        let (run, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tokens = Tokens::new(run.path(), cache.path());
        let claim = Claim { node: NodeId::step(&StepId::from("gate")), call: "c".to_owned() };
        let (one, two) = (tokens.issue(&claim).unwrap(), tokens.issue(&claim).unwrap());
        assert!(one != two && one.len() == 2 * BYTES);
        assert_eq!(Tokens::find(cache.path(), &one).unwrap().1, claim);
        assert!(Tokens::find(cache.path(), "0000").is_none());
        for folder in [run.path().join("tokens"), cache.path().join("tokens")] {
            for file in fs::read_dir(folder).unwrap().flatten() {
                assert!(!file.file_name().to_string_lossy().contains(&one) && !fs::read_to_string(file.path()).unwrap().contains(&one));
            }
        }
        tokens.spend(&one);
        assert!(Tokens::find(cache.path(), &one).is_none() && Tokens::find(cache.path(), &two).is_some());
    }
}
