//! Hashes of content: what a person trusts and what a run pins.
use super::walk::{self, Walk};
use crate::event::hex;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The longest file whose content is hashed; of a longer one of a skill its size counts.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// How much of a folder is hashed by content, in bytes.
const MAX_FOLDER_BYTES: u64 = 256 << 20;
/// How deep a folder is read.
pub(super) const MAX_DEPTH: usize = 6;

/// Hashes one text.
pub(super) fn text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Hashes named contents; no two different sets give the same hash.
pub(super) fn contents<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut all = Sha256::new();
    for (name, content) in files {
        add(&mut all, name, content);
    }
    hex(&all.finalize())
}

fn add(all: &mut Sha256, name: &str, content: &[u8]) {
    all.update((name.len() as u64).to_be_bytes());
    all.update(name);
    all.update(Sha256::digest(content));
}

/// Hashes all files below a folder by path and content.
pub(super) fn folder(dir: &Path, boundary: &Path) -> String {
    let mut walk = Walk::new(boundary.to_path_buf());
    let mut all = Sha256::new();
    let mut left = MAX_FOLDER_BYTES;
    for (name, path) in walk.files(dir, MAX_DEPTH) {
        match walk::bytes(&path, MAX_FILE_BYTES.min(left)) {
            Ok(content) => {
                left = left.saturating_sub(content.len() as u64);
                add(&mut all, &name, &content);
            }
            Err(_) => add(&mut all, &name, format!("unread {}", path.metadata().map_or(0, |metadata| metadata.len())).as_bytes()),
        }
    }
    hex(&all.finalize())
}

/// A hash and the names of the files it is of.
pub(super) struct Covered {
    pub(super) hash: String,
    pub(super) files: Vec<String>,
}

/// Hashes a hook: its own file, and those of the files beside it that it names, directly or through one that it names.
///
/// # Errors
/// The name of a file that it names and that cannot be read: such a hook cannot be trusted.
pub(super) fn hook(name: &str, text: &str, beside: &[(String, PathBuf)]) -> Result<Covered, String> {
    let mut covered: BTreeMap<&str, Vec<u8>> = BTreeMap::from([(name, text.as_bytes().to_vec())]);
    let mut unread: Vec<&str> = vec![name];
    // Each round covers at least one more file.
    while let Some(naming) = unread.pop() {
        let content = String::from_utf8_lossy(&covered[naming]).into_owned();
        for (path, real) in beside {
            let file = path.rsplit('/').next().unwrap_or(path);
            if covered.contains_key(path.as_str()) || !content.contains(file) {
                continue;
            }
            covered.insert(path, walk::bytes(real, MAX_FILE_BYTES).map_err(|error| format!("`{path}`, which it names, cannot be read: {error}"))?);
            unread.push(path);
        }
    }
    let hash = contents(covered.iter().map(|(name, content)| (*name, content.as_slice())));
    Ok(Covered { hash, files: covered.keys().map(|name| (*name).to_owned()).collect() })
}
