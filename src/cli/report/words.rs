//! Text for a terminal: cleaned, shortened, in columns.
//!
//! What models, repositories and commands said may hold anything. No control character and no character that turns the
//! direction of writing reaches a terminal from here.
use super::super::screen::{Tone, paint};
use crate::source::{Diagnostic, Source};
use serde::Serialize;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Returns whether a character does something to a terminal other than standing there.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Makes a text harmless on its line; spaces stay as they are.
pub(in crate::cli) fn plain(text: &str) -> String {
    text.chars().map(|c| if acts(c) { ' ' } else { c }).collect()
}

/// Keeps a text on one line of at most so many characters.
pub(in crate::cli) fn line(text: &str, chars: usize) -> String {
    // More than is shown is not looked at: a result may be long.
    let text: String = text.chars().map(|c| if acts(c) { ' ' } else { c }).take(chars.saturating_mul(4) + 400).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= chars { text } else { format!("{}…", text.chars().take(chars.saturating_sub(1)).collect::<String>().trim_end()) }
}

/// Writes an input or an output so that the part that tells most comes first: one string as it is, else name and value of
/// each field.
pub(in crate::cli) fn in_short(value: &Value, field: usize) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => line(text, field),
        other => line(&other.to_string(), field),
    };
    match value {
        Value::Object(fields) => {
            let telling = ["command", "file_path", "path", "pattern", "name", "prompt"];
            let first = telling.iter().find_map(|name| fields.get_key_value(*name));
            let rest = fields.iter().filter(|(name, _)| first.is_none_or(|(first, _)| first != *name)).map(|(name, value)| format!("{name}: {}", plain(value)));
            first.map(|(_, value)| plain(value)).into_iter().chain(rest).collect::<Vec<_>>().join("  ")
        }
        other => plain(other),
    }
}

/// Cleans a text of many lines; tabs become four spaces, spaces at the ends of lines stay.
pub(in crate::cli) fn block(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' => clean.push('\n'),
            '\t' => clean.push_str("    "),
            c if acts(c) => clean.push('\u{b7}'),
            c => clean.push(c),
        }
    }
    clean
}

/// Puts spaces before every line that is not empty, and breaks lines that are too long for a screen.
pub(in crate::cli) fn indent(text: &str, spaces: usize) -> String {
    let mut all = String::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            all.push('\n');
            continue;
        }
        let own = line.len() - line.trim_start_matches(' ').len();
        let before = " ".repeat(spaces + own.min(super::WIDTH / 2));
        for part in wrapped(line.trim_start_matches(' '), super::WIDTH - before.len()) {
            all.push_str(&format!("{before}{part}\n"));
        }
    }
    all
}

/// Breaks one line into several of at most so many characters, between words; a word that is longer stays whole, so that
/// a path can be copied.
pub(in crate::cli) fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes a duration as people say it: `0.4s`, `12s`, `2m 03s`, `1h 05m`, `3d 04h`.
pub(in crate::cli) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=9 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Writes a value as one line of JSON, with characters that act on a terminal as escapes: the same value.
///
/// # Errors
/// The serialiser's.
pub(in crate::cli) fn json_text(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(value)?;
    // Outside of strings JSON has none of these, so that each stands in a string.
    Ok(text.chars().map(|c| if acts(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }).collect())
}

/// Makes diagnostics safe to show. The source keeps its length in bytes, so that every span still fits.
pub(in crate::cli) fn safe_diagnostics(diagnostics: &[Diagnostic]) -> Vec<Diagnostic> {
    let safe = |diagnostic: &Diagnostic| {
        let mut safe = diagnostic.clone();
        safe.source = Arc::new(Source { name: line(&diagnostic.source.name, 1000), text: diagnostic.source.text.chars().map(stand_in).collect() });
        safe.message = block(&diagnostic.message);
        safe.help = diagnostic.help.as_deref().map(block);
        for label in &mut safe.labels {
            label.text = block(&label.text);
        }
        safe
    };
    diagnostics.iter().map(safe).collect()
}

/// Returns a harmless character of the same length in bytes.
fn stand_in(c: char) -> char {
    match (c, c.len_utf8()) {
        ('\n' | '\t' | '\r', _) => c,
        (c, 1) if acts(c) => ' ',
        (c, 2) if acts(c) => '\u{b7}',
        (c, _) if acts(c) => '\u{fffd}',
        (c, _) => c,
    }
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(in crate::cli) fn new(text: impl AsRef<str>, tone: Tone) -> Cell {
        Cell { text: plain(text.as_ref()), tone }
    }

    pub(in crate::cli) fn plain(text: impl AsRef<str>) -> Cell {
        Cell::new(text, Tone::Plain)
    }
}

/// Rows in columns, two spaces apart. Where a row would be too wide, one column gives way.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    rows: Vec<Vec<Cell>>,
    right: &'static [usize],
    gives_way: usize,
    /// A column of words that gives way before one of names does.
    words: Option<usize>,
}

impl Table {
    /// Makes an empty table: these columns are set to the right, that one is cut where space is short.
    pub(in crate::cli) fn new(right: &'static [usize], gives_way: usize) -> Table {
        Table { rows: Vec::new(), right, gives_way, words: None }
    }

    /// Makes a table whose column that gives way holds names: they are cut in the middle, since their ends tell them apart,
    /// and not before the words in another column are.
    pub(in crate::cli) fn of_names(right: &'static [usize], names: usize, words: usize) -> Table {
        Table { words: Some(words), ..Table::new(right, names) }
    }

    pub(in crate::cli) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the rows, each after so many spaces, at most `width` columns wide as far as giving way helps.
    pub(in crate::cli) fn render(&self, color: bool, spaces: usize, width: usize) -> String {
        const LEAST: usize = 8;
        const LEAST_WORDS: usize = 24;
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let gives_way = [self.words.map(|words| (words, LEAST_WORDS)), Some((self.gives_way, LEAST))];
        for (column, least) in gives_way.into_iter().flatten() {
            let whole = spaces + widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * 2;
            if let Some(column) = widths.get_mut(column) {
                *column = (*column).min(column.saturating_sub(whole.saturating_sub(width)).max(least));
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| self.cell(at, cell, *width, color)).collect();
            text.push_str(&" ".repeat(spaces));
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn cell(&self, at: usize, cell: &Cell, width: usize, color: bool) -> String {
        let count = cell.text.chars().count();
        let kept = width.saturating_sub(1);
        let end = if self.words.is_some() && at == self.gives_way { kept - kept / 3 } else { 0 };
        let part = |skipped: usize, taken: usize| cell.text.chars().skip(skipped).take(taken).collect::<String>();
        let shown = if count > width { format!("{}…{}", part(0, kept - end), part(count - end, end)) } else { cell.text.clone() };
        let gap = " ".repeat(width.saturating_sub(count));
        let shown = if shown.is_empty() { shown } else { paint(color, cell.tone, &shown) };
        if self.right.contains(&at) { format!("{gap}{shown}") } else { format!("{shown}{gap}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{self, Span};
    use serde_json::json;

    const HOSTILE: &str = "a\u{1b}[2J\u{9b}31mb\u{7}\u{202e}c\r\nd\u{8}\tend";

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        for text in [line(HOSTILE, 80), block(HOSTILE), json_text(&json!({HOSTILE: HOSTILE})).unwrap(), indent(&block(HOSTILE), 2)] {
            assert!(!text.chars().any(|c| c != '\n' && acts(c)), "{text:?}");
        }
        assert_eq!(block("a\r\n\tb"), "a\n    b");
        assert_eq!(line(" a\n b ", 9), "a b");
        assert_eq!(line("abcdef", 4), "abc…");
    }

    #[test]
    fn text_is_broken_between_words_and_never_lost() {
        let text = "one two three four supercalifragilistic x";
        let lines = wrapped(text, 9);
        assert_eq!(lines, ["one two", "three", "four", "supercalifragilistic", "x"]);
        assert_eq!(lines.join(" "), text);
        let long = format!("  {}", "word ".repeat(30));
        assert!(indent(&long, 2).lines().all(|line| line.starts_with("    word") && line.len() <= 100));
        assert_eq!(indent("a\n\n  b", 2), "  a\n\n    b\n");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = json!({"text": HOSTILE, "n": [1, null]});
        assert_eq!(serde_json::from_str::<Value>(&json_text(&value).unwrap()).unwrap(), value);
    }

    #[test]
    fn a_report_on_a_hostile_file_is_harmless_and_points_at_the_same_place() {
        let text = format!("x: \"{HOSTILE}\u{2066}\"\nnedes: 1\n");
        let at = text.find("nedes").unwrap();
        let source = Arc::new(Source { name: HOSTILE.to_owned(), text });
        let found =
            Diagnostic::error("E010", &source, Span { start: at, end: at + 5 }, HOSTILE).label(HOSTILE).also(Span { start: 3, end: 9 }, "here").help(HOSTILE);
        let safe = safe_diagnostics(std::slice::from_ref(&found));
        assert_eq!(safe[0].source.text.len(), found.source.text.len());
        assert_eq!(safe[0].position(), found.position());
        assert!(!source::render(&safe, false).chars().any(|c| c != '\n' && acts(c)));
    }

    #[test]
    fn durations_read_as_people_say_them() {
        let said: Vec<String> = [0, 449, 9_999, 12_000, 123_000, 3_900_000, 273_600_000].iter().map(|ms| duration(Duration::from_millis(*ms))).collect();
        assert_eq!(said, ["0.0s", "0.4s", "9.9s", "12s", "2m 03s", "1h 05m", "3d 04h"]);
    }

    #[test]
    fn columns_are_aligned_and_one_gives_way() {
        let mut table = Table::new(&[1], 0);
        table.row(vec![Cell::plain("a long name"), Cell::plain("1"), Cell::plain("x")]);
        table.row(vec![Cell::plain("é"), Cell::plain("100"), Cell::plain("")]);
        assert_eq!(table.render(false, 2, 100), "  a long name    1  x\n  é            100\n");
        assert_eq!(table.render(false, 0, 18), "a long na…    1  x\né           100\n");
        let mut toned = Table::new(&[], 0);
        toned.row(vec![Cell::new("\u{1b}x", Tone::Bad), Cell::plain("y")]);
        assert_eq!(toned.render(true, 0, 100), "\u{1b}[31m x\u{1b}[0m  y\n");
    }
}
