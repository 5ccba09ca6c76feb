//! Edit: one exact text for another in a file.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput, files, flag, on_files, patch, place::Place, text, text_of, write::require_write, writes};
use crate::{message::ToolSpec, secrets::Secrets};
use async_trait::async_trait;
use memchr::memmem::{self, Finder};
use serde_json::{Value, json};
use std::iter;

/// Most occurrences that are counted before an ambiguous text is refused or replaced.
const OCCURRENCES_MAX: usize = 10_000;
/// Most line numbers that a refusal names.
const NAMED_MAX: usize = 10;
/// Lines shown around a change, and at most in all.
const AROUND: usize = 3;
const SHOWN_MAX: usize = 40;

pub(super) struct Edit(ToolSpec);

impl Edit {
    pub(super) fn new() -> Edit {
        let description = "Replaces a text in a file by another. `old_string` must stand in the file exactly as given, white space and indentation included, and exactly once; otherwise nothing is changed.\n\
             - Read the file first and copy the text from it, without the line numbers and tabs that Read puts before each line.\n\
             - If the text stands there more than once, take in more of the lines around it, or set `replace_all` to change every occurrence.\n\
             - An empty `old_string` makes a new file, or fills an empty one, with `new_string`.\n\
             - If the file changed since you read it, the call is refused and you Read it again.\n\
             - Line ends are kept as they are in the file."
            .to_owned();
        let input_schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to change"},
                "old_string": {"type": "string", "description": "The text to replace"},
                "new_string": {"type": "string", "description": "The text to put there; empty to delete"},
                "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)"}
            },
            "required": ["file_path", "old_string", "new_string"],
            "additionalProperties": false
        });
        Edit(ToolSpec { name: "Edit".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn only_reads(&self) -> bool {
        false
    }

    fn effect(&self, input: &Value, cx: &ToolContext) -> Effect {
        text_of(input, "file_path").map_or_else(|_| Effect::Writes(Vec::new()), |path| writes(cx, path))
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        require_write(cx)?;
        let path = text_of(input, "file_path")?.to_owned();
        let (old, new, all) = (text_of(input, "old_string")?.to_owned(), text_of(input, "new_string")?.to_owned(), flag(input, "replace_all"));
        on_files(cx, move |cx| {
            let place = Place::writable(cx, &path)?;
            let original = if old.is_empty() { files::read_if_there(&place)? } else { Some(files::read(&place)?) };
            cx.seen.check(&place, original.as_deref())?;
            let before = original.as_deref().unwrap_or_default();
            let change = replace(before, &Wish { old: &old, new: &new, all })
                .map_err(|why| ToolError::Model(format!("`{}` is unchanged: {why}", place.path().display())))?;
            files::write(&place, &change.content)?;
            cx.seen.note(&place.key(), &change.content);
            let response = json!({
                "filePath": place.shown(), "oldString": old, "newString": new, "originalFile": patch::original(before),
                "structuredPatch": patch::hunks(before, &change.content), "userModified": false, "replaceAll": all
            });
            Ok(ToolOutput { text: answer(&place, &change, &cx.secrets), response, is_error: false, whole: None })
        })
        .await
    }
}

/// What is to be replaced by what.
struct Wish<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// A file after its change.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    content: Vec<u8>,
    /// How many texts were replaced.
    count: usize,
    /// First and last changed line in the new content, from 1.
    lines: (usize, usize),
}

/// Replaces in bytes, so that what is no UTF-8 elsewhere in the file survives.
fn replace(content: &[u8], wish: &Wish<'_>) -> Result<Change, String> {
    if wish.old == wish.new {
        return Err("`old_string` and `new_string` are the same".to_owned());
    }
    if wish.old.is_empty() {
        if !content.is_empty() {
            return Err("`old_string` is empty and the file is not: name the text to replace, or use Write".to_owned());
        }
        return Ok(Change { content: wish.new.into(), count: 1, lines: (1, wish.new.lines().count().max(1)) });
    }
    let ends = if has_only_crlf(content) { with_crlf } else { str::to_owned };
    let (old, new) = (ends(wish.old), ends(wish.new));
    let found = occurrences(content, old.as_bytes());
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Err(not_found(content, wish.old)) };
    if found.len() > 1 && !wish.all {
        return Err(ambiguous(content, &found));
    }
    if found.windows(2).any(|pair| pair[1] - pair[0] < old.len()) {
        return Err(format!(
            "the occurrences of `old_string` overlap ({}), so that replacing all of them means nothing certain: replace a longer text once",
            at_lines(content, &found)
        ));
    }
    if found.len() >= OCCURRENCES_MAX {
        return Err("`old_string` stands in it too often: use a command such as `sed` in Bash".to_owned());
    }
    let mut changed = Vec::with_capacity(content.len());
    let mut from = 0;
    for at in &found {
        changed.extend_from_slice(&content[from..*at]);
        changed.extend_from_slice(new.as_bytes());
        from = at + old.len();
    }
    let end = changed.len();
    changed.extend_from_slice(&content[from..]);
    debug_assert!(first <= last, "occurrences are found in order");
    let lines = (line_of(&changed, *first), line_of(&changed, end.saturating_sub(usize::from(new.ends_with('\n')))));
    Ok(Change { content: changed, count: found.len(), lines })
}

/// Finds every place where a text stands, overlapping ones included, up to a bound.
fn occurrences(content: &[u8], text: &[u8]) -> Vec<usize> {
    let (finder, mut from) = (Finder::new(text), 0);
    let next = || {
        let at = from + finder.find(content.get(from..)?)?;
        from = at + 1;
        Some(at)
    };
    iter::from_fn(next).take(OCCURRENCES_MAX).collect()
}

fn ambiguous(content: &[u8], found: &[usize]) -> String {
    let more = if found.len() >= OCCURRENCES_MAX { "at least " } else { "" };
    format!(
        "`old_string` stands in it {more}{} times ({}). Take in enough of the lines around the one you mean to make it unique, or set `replace_all` to true",
        found.len(),
        at_lines(content, found)
    )
}

fn at_lines(content: &[u8], found: &[usize]) -> String {
    let lines: Vec<String> = found.iter().take(NAMED_MAX).map(|at| line_of(content, *at).to_string()).collect();
    let more = if found.len() > NAMED_MAX { ", …" } else { "" };
    format!("at lines {}{more}", lines.join(", "))
}

/// Says why a text was not found, as far as that can be told.
fn not_found(content: &[u8], old: &str) -> String {
    if has_line_numbers(old) {
        return "`old_string` begins its lines with numbers as Read shows them: leave out the numbers and the tab after each".to_owned();
    }
    // Every line begins behind a line break and ends before one, so that a text of whole lines is found by one search.
    let trimmed = |text: &str| text.split('\n').fold("\n".to_owned(), |lines, line| lines + line.trim() + "\n");
    let (wanted, lines) = (trimmed(old.trim_matches(['\r', '\n'])), trimmed(&String::from_utf8_lossy(content)));
    let near = memmem::find(lines.as_bytes(), wanted.as_bytes()).filter(|_| !wanted.trim().is_empty());
    match near {
        Some(at) => {
            format!("`old_string` stands at line {} with other white space or line ends: copy it exactly as Read shows it", line_of(lines.as_bytes(), at))
        }
        None => "`old_string` does not stand in it: Read the file and copy the text exactly".to_owned(),
    }
}

/// Returns whether every line that holds anything begins like a line of Read's answer.
fn has_line_numbers(text: &str) -> bool {
    let numbered = |line: &str| {
        let rest = line.trim_start();
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && digits.starts_with(['\t', '→'])
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    lines.peek().is_some() && lines.all(numbered)
}

fn has_only_crlf(content: &[u8]) -> bool {
    let mut breaks = content.iter().enumerate().filter(|(_, byte)| **byte == b'\n').peekable();
    breaks.peek().is_some() && breaks.all(|(at, _)| at > 0 && content[at - 1] == b'\r')
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Returns the number of the line that a byte stands in.
fn line_of(content: &[u8], at: usize) -> usize {
    content[..at.min(content.len())].split(|byte| *byte == b'\n').count()
}

fn answer(place: &Place, change: &Change, secrets: &Secrets) -> String {
    let times = if change.count == 1 { String::new() } else { format!(" in {} places", change.count) };
    let (first, last) = (change.lines.0.saturating_sub(AROUND).max(1), change.lines.1 + AROUND);
    // Half of a value would not be known for a secret, so they go before anything is cut.
    let content = secrets.bytes(&change.content);
    let lines = text::from_file(&content.split(|byte| *byte == b'\n').skip(first - 1).take((last + 1 - first).min(SHOWN_MAX)).collect::<Vec<_>>().join(&b'\n'));
    let shown: Vec<String> =
        lines.lines().enumerate().map(|(at, line)| format!("{:>6}\t{}", first + at, text::shorten(line.trim_end_matches('\u{240d}')))).collect();
    text::cap(format!("Changed `{}`{times}. It reads now:\n{}", place.path().display(), shown.join("\n")), text::ANSWER_MAX, "Read the file to see it.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit(content: &[u8], old: &str, new: &str, all: bool) -> Result<Vec<u8>, String> {
        replace(content, &Wish { old, new, all }).map(|change| change.content)
    }

    #[test]
    fn an_exact_text_that_stands_once_is_replaced() {
        assert_eq!(edit(b"a\nb\nc\n", "b\n", "", false).unwrap(), b"a\nc\n");
        assert_eq!(edit(b"\xff a \xfe", "a", "b", false).unwrap(), b"\xff b \xfe");
        assert_eq!(edit(b"", "", "new", false).unwrap(), b"new");
        assert_eq!(edit(b"x 1 x", "x", "yy", true).unwrap(), b"yy 1 yy");
        assert_eq!(replace(b"1\n2\n3\n", &Wish { old: "2\n", new: "two\nzwei\n", all: false }).unwrap().lines, (2, 3));
    }

    #[test]
    fn line_ends_are_kept() {
        assert_eq!(edit(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", false).unwrap(), b"x\r\ny\r\nc\r\n");
        assert_eq!(edit(b"a\r\nb\r\n", "b", "c\nd", false).unwrap(), b"a\r\nc\r\nd\r\n");
        // Mixed line ends: only the exact text will do.
        assert!(edit(b"a\r\nb\nc\n", "a\nb", "x", false).unwrap_err().contains("line 1"));
        assert_eq!(edit(b"a\r\nb\nc\n", "a\r\nb", "x", false).unwrap(), b"x\nc\n");
    }

    #[test]
    fn overlapping_occurrences_count() {
        let refused = edit(b"foo\nfoo\nfoo\n", "foo\nfoo\n", "x", false).unwrap_err();
        assert!(refused.contains("2 times (at lines 1, 2)"), "{refused}");
        assert!(edit(b"foo\nfoo\nfoo\n", "foo\nfoo\n", "x", true).unwrap_err().contains("overlap"));
    }

    #[test]
    fn a_search_in_a_file_that_repeats_itself_is_one_pass() {
        let (content, wanted) = ("a\n".repeat(1_000_000), "a\n".repeat(30_000) + "b");
        let refused = edit(content.as_bytes(), &wanted, "x", false).unwrap_err();
        assert!(refused.contains("does not stand"), "{refused}");
        let near = edit((content + " b\n").as_bytes(), &wanted.replace("a\n", "a \n"), "x", false).unwrap_err();
        assert!(near.contains("line 970001 with other white space"), "{near}");
    }

    #[test]
    fn refusals_say_what_to_do() {
        for (content, old, said) in [
            (&b"let x;\n"[..], "     1\tlet x;", "numbers"),
            (b"let x;\nlet y;\n", "  1→let x;\n  2→let y;", "numbers"),
            (b"\tlet x;\n", "    let x;", "line 1 with other white space"),
            (b"a", "b", "does not stand"),
            (b"a", "", "the file is not"),
            (b"a", "a", "the same"),
        ] {
            let refused = edit(content, old, "a", false).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        // A file of numbers is matched exactly and not taken for a mistake.
        assert_eq!(edit(b"1\tone\n", "1\tone", "1\teins", false).unwrap(), b"1\teins\n");
    }

    proptest! {
        #[test]
        fn a_change_is_undone_by_its_opposite(before in "[ab\n]{0,20}", after in "[ab\n]{0,20}", old in "[cd\n]{0,5}c", new in "[ef]{1,5}") {
            let content = format!("{before}{old}{after}");
            let changed = edit(content.as_bytes(), &old, &new, false).unwrap();
            let expected = format!("{before}{new}{after}");
            prop_assert_eq!(&changed, expected.as_bytes());
            prop_assert_eq!(edit(&changed, &new, &old, false).unwrap(), content.as_bytes());
        }
    }
}
