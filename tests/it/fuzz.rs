//! Files that nobody would write: whatever the bytes, they are read or refused, within bounds.
//!
//! The cases are made from a seed, so that each can be made again. `SPINNEY_FUZZ_CASES=100000` tries more of them than every
//! run does, and `SPINNEY_FUZZ_SEED` others.
use crate::fixture::Bench;
use fastrand::Rng;
use spinney::{
    plan::{Catalog, Plan},
    source::{self, Diagnostic, Source},
    workflow::Workflow,
};
use std::{fs, path::PathBuf, sync::Arc};

/// Cases of every run.
const CASES: u64 = 400;
/// Pieces that mean something to YAML, to templates or to the language.
const PIECES: [&str; 48] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "| sh",
    "&a ",
    "*a",
    "<<: *a",
    "<<: ",
    "? ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    ": ",
    "\"",
    "'",
    "#",
    "|\n",
    ">-\n",
    "!!str ",
    "!x ",
    "\t",
    "\r\n",
    "\n",
    "\n  ",
    "\0",
    "\u{feff}",
    "é",
    "🙂",
    "\u{202e}",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "~",
    "1e999",
    "0x7f",
    "steps:",
    "loop:",
    "matrix:",
    "needs: [",
    "for_each:",
    "run: ",
    "agent: ",
    "{{ steps.a.output[0].b | default(value={}) }}",
];

/// The files that cases are made of: broken ones, and sound ones.
fn corpus() -> [Vec<Vec<u8>>; 2] {
    [&["tests/diagnostics/broken"][..], &["tests/diagnostics/whole", "tests/diagnostics/loads", "workflows"]].map(|folders| {
        let folder = |folder| fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        let mut files: Vec<PathBuf> = folders.iter().flat_map(folder).map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        files.sort();
        files.iter().map(|path| fs::read(path).unwrap()).collect()
    })
}

fn at(rng: &mut Rng, length: usize) -> usize {
    rng.usize(0..=length)
}

/// Takes a part of a file, of any length, mostly short.
fn part(rng: &mut Rng, file: &[u8]) -> std::ops::Range<usize> {
    let start = at(rng, file.len());
    let longest = if rng.u8(0..8) == 0 { file.len() } else { 40 };
    start..(start + rng.usize(0..=longest)).min(file.len())
}

fn case(rng: &mut Rng, corpora: &[Vec<Vec<u8>>; 2]) -> Vec<u8> {
    if rng.u8(0..10) == 0 {
        let length = rng.usize(0..400);
        return (0..length).map(|_| rng.u8(..)).collect();
    }
    let corpus = &corpora[rng.usize(0..2)];
    let mut file = corpus[rng.usize(0..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        match rng.u8(0..7) {
            0 => drop(file.drain(part(rng, &file))),
            1 => {
                let again = file[part(rng, &file)].to_vec();
                let to = at(rng, file.len());
                file.splice(to..to, again);
            }
            2 => {
                let other = &corpus[rng.usize(0..corpus.len())];
                let (taken, given) = (part(rng, &file), part(rng, other));
                file.splice(taken, other[given].iter().copied());
            }
            3 => {
                if let Some(byte) = file.len().checked_sub(1).map(|last| rng.usize(0..=last)) {
                    file[byte] = rng.u8(..);
                }
            }
            4 => file.truncate(at(rng, file.len())),
            _ => {
                let to = at(rng, file.len());
                file.splice(to..to, PIECES[rng.usize(0..PIECES.len())].bytes());
            }
        }
    }
    file
}

/// Reads and judges a text as the program does, and returns what is found, and whether it could be read.
fn judge(text: String, catalog: &Catalog) -> (Vec<Diagnostic>, bool) {
    let source = Arc::new(Source { name: "flow.yaml".to_owned(), text });
    match Workflow::read(&source) {
        Ok(workflow) => (Plan::compile(&workflow, catalog).map_or_else(|errors| errors.found, |(_, warnings)| warnings), true),
        Err(errors) => (errors.found, false),
    }
}

#[test]
fn whatever_the_bytes_they_are_read_or_refused() {
    let number = |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (seed, cases, corpus) = (number("SPINNEY_FUZZ_SEED", 1), number("SPINNEY_FUZZ_CASES", CASES), corpus());
    let catalog =
        Catalog { default_model: Some("scripted/model".to_owned()), providers: ["scripted".to_owned(), "openai".to_owned()].into(), ..Catalog::default() };
    let mut read = 0;
    for number in 0..cases {
        let bytes = case(&mut Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number)), &corpus);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (found, is_read) = judge(text.clone(), &catalog);
        assert!(found.len() <= 200, "case {number} of seed {seed}: {} findings", found.len());
        for finding in &found {
            assert!(!finding.labels.is_empty(), "case {number} of seed {seed}: {finding}");
            let inside = |span: source::Span| finding.source.text.get(span.range()).is_some();
            assert!(finding.labels.iter().all(|label| inside(label.span)), "case {number} of seed {seed}: {finding}");
            assert!(finding.fix.as_ref().is_none_or(|edit| inside(edit.span)), "case {number} of seed {seed}: {finding}");
        }
        let drawn = source::render(&found, false);
        assert!(drawn.len() <= found.len() * 40_000, "case {number} of seed {seed}: {} bytes of {}", drawn.len(), found.len());
        let edits: Vec<&source::Edit> = found.iter().filter_map(|finding| finding.fix.as_ref()).collect();
        judge(source::apply(&text, &edits).0, &catalog);
        read += u64::from(is_read);
    }
    assert!(read * 50 > cases, "some of the cases can be read: {read} of {cases}");
}

#[test]
fn bytes_that_are_no_text_are_refused_by_name() {
    let bench = Bench::new();
    fs::write(bench.repo().join("flow.yaml"), b"version: 1\nname: \xff\xfe\n").unwrap();
    let said = bench.spinney(&["validate", "flow.yaml"]).code(2);
    assert!(said.err.contains("flow.yaml") && said.err.contains("UTF-8"), "{said:?}");
}
