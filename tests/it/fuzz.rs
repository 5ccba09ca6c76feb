//! Files that nobody would write: whatever the bytes, they are read or refused, within bounds.
//!
//! The cases are made from seeds, so that each can be made again: bytes of any kind, files whose bytes were changed, and files
//! of the corpus of diagnostics whose lines, words and values were. `SPINNEY_FUZZ_CASES=100000` tries more of them for each seed
//! than every run does, and `SPINNEY_FUZZ_SEED=N` those of another one. What is made of each is held to bounds, so that none
//! costs more than its size.
use crate::fixture::Bench;
use fastrand::Rng;
use spinney::{
    plan::{Catalog, Plan, WorkflowFile},
    source::{self, Diagnostic, Source},
    workflow::Workflow,
};
use std::{fs, path::PathBuf, sync::Arc};

/// Cases of every run, for each seed.
const CASES: u64 = 80;
/// The seeds of every run.
const SEEDS: [u64; 5] = [1, 2, 3, 5, 8];
/// Values that stand where another one is expected.
const VALUES: [&str; 22] = [
    "null",
    "~",
    "[]",
    "{}",
    "true",
    "-1",
    "1.5",
    "18446744073709551616",
    "\"\"",
    "x",
    "[a, a]",
    "{ a: b }",
    "\"{{ inputs.x }}\"",
    "\"{{ steps.a.output.b.c }}\"",
    "\"{{ [x for x in steps.a.results if x.ok] }}\"",
    "\"{{ steps.a.output | first | length }}\"",
    "\"{% for k, v in steps.a.output %}{{ v.x | sh }}{% endfor %}\"",
    "\"{{ a[-1].b | upcase }} {{ c. }}\"",
    "{ $ref: \"#/schemas/a\" }",
    "{ type: objct, properties: { a: 1 } }",
    "../../x",
    "é🙂",
];
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
    let sound: &[&str] = &["tests/diagnostics/whole", "tests/diagnostics/loads", "tests/diagnostics/called", "workflows"];
    [&["tests/diagnostics/broken"][..], sound].map(|folders| {
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

/// Changes a file of the corpus as people do: its lines, its words, and what stands behind a key.
fn mutated(rng: &mut Rng, corpora: &[Vec<Vec<u8>>; 2]) -> Vec<u8> {
    let pick = |rng: &mut Rng| {
        let corpus = &corpora[rng.usize(0..2)];
        String::from_utf8_lossy(&corpus[rng.usize(0..corpus.len())]).into_owned()
    };
    let mut lines: Vec<String> = pick(rng).lines().map(str::to_owned).collect();
    let others: Vec<String> = pick(rng).lines().map(str::to_owned).collect();
    for _ in 0..rng.usize(1..5) {
        if lines.is_empty() || others.is_empty() {
            break;
        }
        let (at, to, other) = (rng.usize(0..lines.len()), rng.usize(0..lines.len()), &others[rng.usize(0..others.len())]);
        match rng.u8(0..8) {
            0 => lines.swap(at, to),
            1 => lines.insert(to, lines[at].clone()),
            2 => drop(lines.remove(at)),
            3 => lines.insert(at, other.clone()),
            4 => lines[at] = format!("{}{}", " ".repeat(rng.usize(0..6)), lines[at].trim_start()),
            5 | 6 => {
                let value = VALUES[rng.usize(0..VALUES.len())];
                let places: Vec<usize> = lines[at].match_indices(": ").map(|(place, _)| place + 2).collect();
                if let Some(place) = places.get(rng.usize(0..places.len().max(1))) {
                    let end = lines[at][*place..].find([',', '}']).map_or(lines[at].len(), |end| place + end);
                    lines[at].replace_range(*place..end, value);
                }
            }
            _ => {
                let word = |line: &str, rng: &mut Rng| {
                    let words: Vec<String> =
                        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).map(str::to_owned).collect();
                    words.get(rng.usize(0..words.len().max(1))).cloned()
                };
                if let (Some(old), Some(new)) = (word(&lines[at], rng), word(other, rng)) {
                    lines[at] = lines[at].replacen(&old, &new, 1);
                }
            }
        }
    }
    (lines.join("\n") + "\n").into_bytes()
}

/// Reads and judges a text as the program does, and returns what is found, and whether it could be read.
fn judge(text: String, catalog: &Catalog) -> (Vec<Diagnostic>, bool) {
    let source = Arc::new(Source { name: "flow.yaml".to_owned(), text });
    match Workflow::read(&source) {
        Ok(workflow) => (Plan::compile(&workflow, catalog).map_or_else(|errors| errors.found, |(_, warnings)| warnings), true),
        Err(errors) => (errors.found, false),
    }
}

/// Holds a case to what may be said of it: within its text, and no more than its size allows. Returns whether it could be read.
fn hold(case: &str, bytes: &[u8], catalog: &Catalog) -> bool {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (found, is_read) = judge(text.clone(), catalog);
    assert!(found.len() <= 200, "{case}: {} findings", found.len());
    for finding in &found {
        assert!(!finding.labels.is_empty(), "{case}: {finding}");
        let inside = |span: source::Span| finding.source.text.get(span.range()).is_some();
        assert!(finding.labels.iter().all(|label| inside(label.span)), "{case}: {finding}");
        assert!(finding.fix.as_ref().is_none_or(|edit| inside(edit.span)), "{case}: {finding}");
        // What is said of a file does not grow faster than the file.
        let said: usize =
            finding.message.len() + finding.help.as_ref().map_or(0, String::len) + finding.labels.iter().map(|label| label.text.len()).sum::<usize>();
        assert!(said <= 4_000 + 2 * text.len() && finding.labels.len() <= 2 + text.len(), "{case}: {said} bytes, {} places", finding.labels.len());
    }
    let drawn = source::render(&found, false);
    assert!(drawn.len() <= found.len() * 40_000, "{case}: {} bytes of {}", drawn.len(), found.len());
    assert!(source::to_json(&found).to_string().len() <= 2 + found.len() * (6_000 + 300 * text.len()), "{case}");
    let edits: Vec<&source::Edit> = found.iter().filter_map(|finding| finding.fix.as_ref()).collect();
    let mended = source::apply(&text, &edits).0;
    assert!(mended.len() <= text.len() + 64 * edits.len() * (1 + edits.iter().map(|edit| edit.text.len()).max().unwrap_or(0)), "{case}");
    judge(mended, catalog);
    is_read
}

#[test]
fn whatever_the_bytes_they_are_read_or_refused() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (cases, corpus) = (number("SPINNEY_FUZZ_CASES").unwrap_or(CASES), corpus());
    let seeds = number("SPINNEY_FUZZ_SEED").map_or_else(|| SEEDS.to_vec(), |seed| vec![seed]);
    let gives = include_str!("../diagnostics/called/gives.yaml");
    let called = WorkflowFile { source: Arc::new(Source { name: "workflows/gives.yaml".to_owned(), text: gives.to_owned() }), trusted: true };
    let catalog = Catalog {
        default_model: Some("scripted/model".to_owned()),
        providers: ["scripted".to_owned(), "openai".to_owned()].into(),
        workflows: [("gives".to_owned(), called)].into(),
        ..Catalog::default()
    };
    let (mut read, mut changed) = (0, 0);
    for &seed in &seeds {
        for number in 0..cases {
            let case_of = |more: u64| Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number).wrapping_add(more << 40));
            read += u64::from(hold(&format!("case {number} of seed {seed}"), &case(&mut case_of(0), &corpus), &catalog));
            changed += u64::from(hold(&format!("changed file {number} of seed {seed}"), &mutated(&mut case_of(1), &corpus), &catalog));
        }
    }
    let all = cases * seeds.len() as u64;
    assert!(read * 50 > all, "some of the cases can be read: {read} of {all}");
    assert!(changed * 6 > all, "many of the changed files can be read: {changed} of {all}");
}

#[test]
fn bytes_that_are_no_text_are_refused_by_name() {
    let bench = Bench::new();
    fs::write(bench.repo().join("flow.yaml"), b"version: 1\nname: \xff\xfe\n").unwrap();
    let said = bench.spinney(&["validate", "flow.yaml"]).code(2);
    assert!(said.out.contains("E004") && said.out.contains("flow.yaml:2:7") && said.out.contains("not UTF-8"), "{said:?}");
}
