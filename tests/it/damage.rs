//! What happens to a run's files beside the program: each damage is found, named, and mended where that is safe.
use crate::{fixture::Bench, invariants};
use spinney::journal;
use std::{fs, path::Path};

/// A run of the first format of journals that waits for an answer, as the program of that time left it, with its commits.
const FORMAT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-1");

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Changes every occurrence of some bytes in a file.
fn change(file: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_journal_of_the_first_format_is_shown_and_gone_on_with() {
    let bench = Bench::new();
    bench.git(&["fetch", "-q", &format!("{FORMAT_1}/work.bundle"), "refs/spinney/*:refs/spinney/*"]);
    bench.git(&["reset", "-q", "--hard", "refs/spinney/old-74py29/first.1/base"]);
    let bench = bench.workflow("old", &fs::read_to_string(format!("{FORMAT_1}/workflow.yaml")).unwrap());
    let dir = bench.repo().join(".spinney/state/runs/old-74py29");
    copy(Path::new(FORMAT_1), &dir);
    assert!(bench.spinney(&["runs"]).code(0).out.contains("parked, asks 1"), "{}", bench.spinney(&["runs"]).out);
    assert!(bench.spinney(&["show", "old"]).code(0).out.contains("Go on?"));
    let before = journal::read(&dir).unwrap();
    assert_eq!(before.len(), 12);
    bench.spinney(&["approve", "old", "--by", "ann", "--no-resume"]).code(0);
    bench.spinney(&["resume", "old", "--accept-changes"]).code(0);
    let records = journal::read(&dir).unwrap();
    assert_eq!(records[..12], before);
    invariants::check(&records, &bench.repo());
    assert_eq!(bench.git(&["show", "spinney/old-74py29:second.txt"]), "of second.txt\n");
    // From now on a changed byte is seen.
    change(&dir.join("journal.db"), b"You code.", b"You lode.");
    assert!(bench.spinney(&["show", "old"]).code(1).err.contains("it was changed since it was written"));
}
