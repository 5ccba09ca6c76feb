//! Letters from people to a run: answers and words, each a durable file in the run's folder.
//!
//! Whoever writes one need not know whether the run lives: a process that carries it out takes letters up within a moment,
//! and the next one does where there is none. A letter that cannot be taken is answered by a refusal beside it. The answer
//! to one question has one name, so that of two that nobody has taken up yet the first counts.
use crate::{
    clock::Timestamp,
    event::{BlobId, NodeId},
    journal::{account, mend_of, sync_folder},
    secrets::Secrets,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Bytes of a letter; longer ones are neither written nor read.
const LETTER_BYTES_MAX: u64 = 256 * 1024;
/// Letters that are looked at at once.
const LETTERS_MAX: usize = 256;
/// How the names of letters end, and those of refusals.
const LETTER: &str = ".json";
const REFUSAL: &str = ".refused";
/// The name of the letter that calls a run off: one is enough.
const CANCEL: &str = "cancel";

/// What a person has to say to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// To whom.
    pub node: NodeId,
    /// Whose.
    pub by: String,
    /// When it was written.
    pub at: Timestamp,
    /// What.
    pub says: Says,
}

/// What a letter says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// An answer.
    Answer {
        /// The question's name among those of its node.
        call: String,
        /// Yes or no; yes where text was asked for.
        allowed: bool,
        /// What is said besides, or the text that was asked for.
        note: Option<String>,
    },
    /// A word for an agent.
    Word(String),
    /// The run is called off.
    Cancel,
}

/// A run's letters.
#[derive(Debug, Clone)]
pub struct Inbox {
    dir: PathBuf,
    secrets: Secrets,
}

/// Why a letter could not be written.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// Somebody was first.
    #[error("answer this question: {by} has answered it already, and the run takes that up")]
    Answered {
        /// Who.
        by: String,
    },
    /// It is too long.
    #[error("write to the run: a letter holds {LETTER_BYTES_MAX} bytes at most")]
    TooLong,
    /// A file.
    #[error("write {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl InboxError {
    /// What can be done about it, where that is plain.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            InboxError::Io { source, .. } => mend_of(source),
            InboxError::Answered { .. } | InboxError::TooLong => None,
        }
    }
}

impl Inbox {
    /// Returns the letters of the run in this folder; nothing need be there.
    pub fn of(run: &Path) -> Inbox {
        Inbox { dir: run.join("inbox"), secrets: Secrets::default() }
    }

    /// Takes the values of secrets out of letters before they are written, from now on.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Inbox {
        Inbox { secrets: secrets.clone(), ..self }
    }

    /// Makes the letter that calls a run off.
    pub fn cancel(by: &str, at: Timestamp) -> Letter {
        Letter { node: account(), by: by.to_owned(), at, says: Says::Cancel }
    }

    /// Returns whether a letter waits that calls the run off.
    pub fn is_cancelling(&self) -> bool {
        self.waits(CANCEL)
    }

    /// Takes the letter back that calls a run off; says whether one waited.
    pub fn take_cancel_back(&self) -> bool {
        self.remove(CANCEL).is_ok()
    }

    /// Writes a letter, durably and as a whole, and returns its name.
    ///
    /// # Errors
    /// `InboxError::Answered` where another answer to the same question waits to be taken up.
    pub fn post(&self, letter: &Letter) -> Result<String, InboxError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| InboxError::Io { path, source }
        };
        fs::create_dir_all(&self.dir).map_err(failed(&self.dir))?;
        let name = name(letter);
        let path = self.path(&name, LETTER);
        let text = serde_json::to_vec(&self.secrets.clean(letter.clone())).map_err(|error| failed(&path)(error.into()))?;
        if text.len() as u64 > LETTER_BYTES_MAX {
            return Err(InboxError::TooLong);
        }
        let mut file = tempfile::Builder::new().prefix(".").tempfile_in(&self.dir).map_err(failed(&self.dir))?;
        file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(failed(file.path()))?;
        match file.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                let by = self.read(&name).map_or_else(|| "somebody".to_owned(), |first| first.by);
                return Err(InboxError::Answered { by });
            }
            Err(error) => return Err(failed(&path)(error.error)),
        }
        // What was refused before under this name is not this letter.
        let _ = fs::remove_file(self.path(&name, REFUSAL));
        sync_folder(&self.dir).map_err(failed(&self.dir))?;
        Ok(name)
    }

    /// Returns the names of the letters that wait, the earliest word first; no folder means none.
    pub fn waiting(&self) -> Vec<String> {
        let mut names: Vec<String> = self.files().filter_map(|name| name.strip_suffix(LETTER).map(str::to_owned)).take(LETTERS_MAX).collect();
        names.sort();
        names
    }

    /// Returns the names of what lies there and is no letter, sorted: nothing ever takes it away.
    pub(super) fn foreign(&self) -> Vec<String> {
        let letters: BTreeSet<String> = self.files().filter(|name| name.ends_with(LETTER) || name.ends_with(REFUSAL)).collect();
        let all = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        // What begins with a dot is a letter that is being written.
        let mut names: Vec<String> = all.filter(|name| !name.starts_with('.') && !letters.contains(name)).take(LETTERS_MAX).collect();
        names.sort();
        names
    }

    /// Returns the names of the files that are whole. A folder or a link is no letter, and could not be taken away as one.
    fn files(&self) -> impl Iterator<Item = String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let plain = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        plain.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.starts_with('.'))
    }

    /// Reads a letter; nothing where it is gone or is none.
    pub fn read(&self, name: &str) -> Option<Letter> {
        let path = self.path(name, LETTER);
        let is_small = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= LETTER_BYTES_MAX);
        is_small.then(|| fs::read(&path).ok()).flatten().and_then(|text| serde_json::from_slice(&text).ok())
    }

    /// Returns whether a letter waits to be taken up.
    pub fn waits(&self, name: &str) -> bool {
        self.path(name, LETTER).exists()
    }

    /// Takes a letter away whose word is recorded.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name, LETTER))
    }

    /// Takes a letter away that counts for nothing, and leaves why.
    pub(super) fn refuse(&self, name: &str, why: &str) -> io::Result<()> {
        fs::write(self.path(name, REFUSAL), why)?;
        self.remove(name)
    }

    /// Takes the answer to a letter that was refused: why.
    pub fn refusal(&self, name: &str) -> Option<String> {
        let path = self.path(name, REFUSAL);
        let why = fs::read_to_string(&path).ok()?;
        let _ = fs::remove_file(&path);
        Some(why)
    }

    fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.dir.join(format!("{name}{ending}"))
    }
}

/// Names a letter: an answer by its question, a word by its time.
fn name(letter: &Letter) -> String {
    match &letter.says {
        Says::Answer { call, .. } => format!("answer-{}", &BlobId::of(format!("{}\0{call}", letter.node).as_bytes()).0[..24]),
        Says::Cancel => CANCEL.to_owned(),
        Says::Word(_) => format!("word-{:016}-{:08x}", letter.at.0, fastrand::u32(..)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StepId;

    fn answer(by: &str) -> Letter {
        let says = Says::Answer { call: "c".to_owned(), allowed: true, note: None };
        Letter { node: NodeId::step(&StepId::from("a")), by: by.to_owned(), at: Timestamp(1), says }
    }

    #[test]
    fn of_two_answers_to_one_question_the_first_counts() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::of(dir.path());
        assert_eq!(inbox.waiting(), Vec::<String>::new());
        let name = inbox.post(&answer("ann")).unwrap();
        assert!(matches!(inbox.post(&answer("bob")), Err(InboxError::Answered { by }) if by == "ann"));
        assert_eq!(inbox.waiting(), std::slice::from_ref(&name));
        assert_eq!(inbox.read(&name).unwrap().by, "ann");
        inbox.refuse(&name, "too late").unwrap();
        assert!(!inbox.waits(&name));
        assert_eq!((inbox.refusal(&name).as_deref(), inbox.refusal(&name)), (Some("too late"), None));
    }

    #[test]
    fn a_letter_is_written_without_the_values_of_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::new([("TOKEN".to_owned(), "s3cr3t-value".to_owned())].into()).unwrap();
        let inbox = Inbox::of(dir.path()).without(&secrets);
        let says = Says::Answer { call: "c".to_owned(), allowed: true, note: Some("it is s3cr3t-value".to_owned()) };
        for says in [says, Says::Word("use s3cr3t-value".to_owned())] {
            let name = inbox.post(&Letter { says, ..answer("ann") }).unwrap();
            let written = fs::read_to_string(inbox.path(&name, LETTER)).unwrap();
            assert!(written.contains("***TOKEN***") && !written.contains("s3cr3t"), "{written}");
        }
    }

    #[test]
    fn what_is_no_letter_is_none_and_words_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::of(dir.path());
        let word = |at: u64| Letter { at: Timestamp(at), says: Says::Word("x".to_owned()), ..answer("ann") };
        let (late, early) = (inbox.post(&word(20)).unwrap(), inbox.post(&word(3)).unwrap());
        assert_eq!(inbox.waiting(), [early, late]);
        fs::write(dir.path().join("inbox/broken.json"), "{").unwrap();
        assert!(inbox.waiting().contains(&"broken".to_owned()) && inbox.read("broken").is_none());
        fs::create_dir(dir.path().join("inbox/folder.json")).unwrap();
        fs::write(dir.path().join("inbox/notes.txt"), "x").unwrap();
        assert!(!inbox.waiting().contains(&"folder".to_owned()));
        assert_eq!(inbox.foreign(), ["folder.json", "notes.txt"]);
        assert!(matches!(inbox.post(&Letter { says: Says::Word("x".repeat(300_000)), ..answer("ann") }), Err(InboxError::TooLong)));
    }
}
