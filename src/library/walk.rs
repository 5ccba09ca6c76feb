//! Reads folders and files of a root within bounds: sorted, no link out of the root, nothing that is not a plain file.
use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    string::FromUtf8Error,
};

/// The longest file that is read as text, in bytes.
pub(super) const MAX_TEXT_BYTES: u64 = 1 << 20;
/// The longest file that is read because somebody names it, in bytes.
pub const FILE_BYTES: u64 = 1 << 30;
/// How many names of one folder are looked at.
const MAX_ENTRIES: usize = 5_000;
/// How many folders one walk enters.
const MAX_FOLDERS: usize = 2_000;
/// Folders that hold other people's files.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// One name in a folder, links already followed.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
}

/// A reader of one root.
#[derive(Debug)]
pub(super) struct Walk {
    /// The folder that links may not leave, without links itself.
    boundary: PathBuf,
    folders: usize,
    pub(super) warnings: Vec<String>,
}

impl Walk {
    pub(super) fn new(boundary: PathBuf) -> Walk {
        Walk { boundary, folders: 0, warnings: Vec::new() }
    }

    /// Returns whether a path leads to something inside the boundary.
    pub(super) fn stays_inside(&mut self, path: &Path) -> bool {
        match fs::canonicalize(path) {
            Ok(real) if real.starts_with(&self.boundary) => return true,
            Ok(_) => self.warn(path, "is passed over: it is a link out of its root"),
            Err(error) => self.warn(path, &format!("is passed over: {error}")),
        }
        false
    }

    /// Returns the entries of a folder, sorted by name; none where it cannot be read.
    pub(super) fn entries(&mut self, dir: &Path) -> Vec<Entry> {
        self.folders += 1;
        if self.folders > MAX_FOLDERS {
            if self.folders == MAX_FOLDERS + 1 {
                self.warn(dir, "is passed over, and so are others: there are too many folders");
            }
            return Vec::new();
        }
        let read = match fs::read_dir(dir) {
            Ok(read) => read,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.warn(dir, &format!("cannot be read: {error}"));
                }
                return Vec::new();
            }
        };
        let mut entries = Vec::new();
        for entry in read {
            if entries.len() >= MAX_ENTRIES {
                self.warn(dir, "holds too many files; some are passed over");
                break;
            }
            match entry {
                Ok(entry) => entries.extend(self.entry(&entry)),
                Err(error) => self.warn(dir, &format!("cannot be read: {error}")),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    fn entry(&mut self, entry: &fs::DirEntry) -> Option<Entry> {
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            self.warn(&path, "is passed over: its name is not UTF-8");
            return None;
        };
        let kind = entry.file_type().ok()?;
        let kind = if kind.is_symlink() {
            if !self.stays_inside(&path) {
                return None;
            }
            fs::metadata(&path).ok()?.file_type()
        } else {
            kind
        };
        let skipped = kind.is_dir() && SKIPPED.contains(&name.as_str());
        ((kind.is_file() || kind.is_dir()) && !skipped).then_some(Entry { name, path, is_dir: kind.is_dir() })
    }

    /// Returns the files below a folder with their paths from it, folders before what follows them, down to `depth`.
    pub(super) fn files(&mut self, dir: &Path, depth: usize) -> Vec<(String, PathBuf)> {
        let mut files = Vec::new();
        let mut folders = vec![(String::new(), dir.to_path_buf(), depth)];
        while let Some((prefix, dir, depth)) = folders.pop() {
            for entry in self.entries(&dir) {
                let name = format!("{prefix}{}", entry.name);
                if !entry.is_dir {
                    files.push((name, entry.path));
                } else if depth > 0 {
                    folders.push((format!("{name}/"), entry.path, depth - 1));
                }
            }
        }
        files.sort();
        files
    }

    /// Reads a text file.
    pub(super) fn text(&mut self, path: &Path) -> Option<String> {
        read_text(path, MAX_TEXT_BYTES).map_err(|error| self.warn(path, &format!("cannot be read: {error}"))).ok()
    }

    fn warn(&mut self, path: &Path, what: &str) {
        self.warnings.push(format!("`{}` {what}", path.display()));
    }
}

/// Reads a plain file of text, of at most `max` bytes, wherever it is: what somebody names on the command line, say. Devices
/// and pipes, which need not end, are refused.
///
/// # Errors
/// Where it is something else, longer, or not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, max)?).map_err(|error| io::Error::other(NotText::of(&error)))
}

/// A file that holds bytes which are no letters.
#[derive(Debug, thiserror::Error)]
#[error("it is not UTF-8")]
pub struct NotText {
    /// Its text, with a sign in the place of what is none.
    pub text: String,
    /// Where the first such sign stands in that.
    pub at: usize,
    /// Whether it begins as UTF-16 does.
    pub is_utf16: bool,
}

impl NotText {
    fn of(error: &FromUtf8Error) -> NotText {
        let bytes = error.as_bytes();
        NotText {
            text: String::from_utf8_lossy(bytes).into_owned(),
            at: error.utf8_error().valid_up_to(),
            is_utf16: bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]),
        }
    }
}

/// Reads a plain file of at most `max` bytes.
pub(super) fn bytes(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe would wait for its other end.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(io::Error::other(format!("it is longer than {max} bytes")));
    }
    Ok(content)
}
