//! Where a part of a scalar's value stands in the file.
use super::{Source, Span};
use std::ops::Range;

impl Source {
    /// Returns where bytes `part` of `value` stand, given the span of the whole scalar that has this value.
    ///
    /// Plain, quoted, literal and folded scalars differ from their value in white space only (indentation, folded
    /// lines) and, where quoted, in escapes; so both are walked side by side over everything else. Where that does not
    /// come out the answer is the whole scalar.
    pub fn locate(&self, scalar: Span, value: &str, part: Range<usize>) -> Span {
        self.locator(scalar, value).locate(&part)
    }

    /// Returns what finds many parts of one scalar, which is walked once for all of them.
    pub fn locator(&self, scalar: Span, value: &str) -> Locator {
        let raw = self.text.get(scalar.range()).unwrap_or_default();
        let quoted = |quote: char| raw.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        let plain = || align(raw, value, Style::Bare).map(|letters| (scalar.start, letters));
        let inside = |quote, style| quoted(quote).and_then(|inner| align(inner, value, style)).map(|letters| (scalar.start + 1, letters));
        Locator { scalar, found: plain().or_else(|| inside('\'', Style::Single)).or_else(|| inside('"', Style::Double)) }
    }
}

/// Where the letters of a scalar's value stand.
pub struct Locator {
    scalar: Span,
    /// Where the text begins that was walked, and each letter: its place in the value and where it stands in that text.
    found: Option<(usize, Vec<(usize, Range<usize>)>)>,
}

impl Locator {
    /// Returns where bytes of the value stand.
    pub fn locate(&self, part: &Range<usize>) -> Span {
        let Some((start, letters)) = &self.found else { return self.scalar };
        let place = |at: usize| letters.partition_point(|(letter, _)| *letter < at);
        let (first, end) = (place(part.start), place(part.end.max(part.start)));
        let range = match letters.get(first..end) {
            Some([first, .., last]) => first.1.start..last.1.end,
            Some([only]) => only.1.clone(),
            // A part without letters, the end of the text say, stands after what comes before it.
            _ => {
                let before = first.checked_sub(1).map_or(0, |before| letters[before].1.end);
                before..before
            }
        };
        Span { start: start + range.start, end: start + range.end }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Bare,
    Single,
    Double,
}

/// Walks `raw` and `value` side by side and returns where each letter of the value stands in `raw`.
fn align(raw: &str, value: &str, style: Style) -> Option<Vec<(usize, Range<usize>)>> {
    let mut letters = Letters { raw, at: 0, style };
    let mut found = Vec::new();
    for (at, letter) in value.char_indices().filter(|(_, letter)| !letter.is_whitespace()) {
        let (other, place) = letters.next()?;
        if other != letter {
            return None;
        }
        found.push((at, place));
    }
    if letters.next().is_some() { None } else { Some(found) }
}

/// The letters of a scalar as written, without white space, each with its place.
struct Letters<'a> {
    raw: &'a str,
    at: usize,
    style: Style,
}

impl Iterator for Letters<'_> {
    type Item = (char, Range<usize>);

    fn next(&mut self) -> Option<(char, Range<usize>)> {
        loop {
            let start = self.at;
            let rest = self.raw.get(start..)?;
            let letter = rest.chars().next()?;
            self.at += letter.len_utf8();
            let second = rest[letter.len_utf8()..].chars().next();
            match (self.style, letter, second) {
                (Style::Single, '\'', Some('\'')) => self.at += 1,
                (Style::Double, '\\', Some('\n' | '\r')) => {
                    self.at += 1;
                    continue;
                }
                (Style::Double, '\\', Some(_)) => {
                    let (letter, length) = escaped(&rest[1..])?;
                    self.at += length;
                    if letter.is_whitespace() {
                        continue;
                    }
                    return Some((letter, start..self.at));
                }
                _ => {}
            }
            if !letter.is_whitespace() {
                return Some((letter, start..self.at));
            }
        }
    }
}

/// Reads what stands behind a backslash in a double-quoted scalar: the letter it means, and its length in bytes.
fn escaped(text: &str) -> Option<(char, usize)> {
    let kind = text.chars().next()?;
    let digits = |count: usize| u32::from_str_radix(text.get(1..=count)?, 16).ok();
    let of = |count: usize| Some((char::from_u32(digits(count)?)?, 1 + count));
    let letter = match kind {
        'x' => return of(2),
        'U' => return of(8),
        // Two of these make one letter where the first is the high half of it.
        'u' => match digits(4)? {
            high @ 0xD800..=0xDBFF => {
                let low = text.get(5..)?.strip_prefix("\\u").and_then(|low| u32::from_str_radix(low.get(..4)?, 16).ok())?;
                let low = low.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                return Some((char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + low)?, 11));
            }
            _ => return of(4),
        },
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        other => other,
    };
    Some((letter, kind.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(text: &str, scalar: &str, value: &str, part: &str) -> String {
        let start = text.find(scalar).expect("the scalar is in the text");
        let at = value.find(part).expect("the part is in the value");
        let source = Source { name: String::new(), text: text.to_owned() };
        let span = source.locate(Span { start, end: start + scalar.len() }, value, at..at + part.len());
        text[span.range()].to_owned()
    }

    #[test]
    fn parts_are_found_in_every_style() {
        assert_eq!(located("a: x {{ y }}", "x {{ y }}", "x {{ y }}", "{{ y }}"), "{{ y }}");
        assert_eq!(located("a: 'it''s {{ y }}'", "'it''s {{ y }}'", "it's {{ y }}", "{{ y }}"), "{{ y }}");
        assert_eq!(located("a: \"é\\n\\\"{{ y }}\"", "\"é\\n\\\"{{ y }}\"", "é\n\"{{ y }}", "{{ y }}"), "{{ y }}");
        assert_eq!(located("a: |\r\n  one\r\n  {{ y }}\r\n", "one\r\n  {{ y }}\r\n", "one\n{{ y }}\n", "{{ y }}"), "{{ y }}");
        assert_eq!(located("a: >\n  one\n  {{ y }}\n\n  z", "one\n  {{ y }}\n\n  z", "one {{ y }}\nz", "y"), "y");
        assert_eq!(located("a: '\"q\" {{ y }}'", "'\"q\" {{ y }}'", "\"q\" {{ y }}", "y"), "y");
    }

    #[test]
    fn parts_are_found_behind_every_escape() {
        let escapes = [
            ("\\u0041", "A"),
            ("\\x41", "A"),
            ("\\U0001F642", "🙂"),
            ("\\uD83D\\uDE42", "🙂"),
            ("\\u0020", " "),
            ("\\_", "\u{a0}"),
            ("\\L", "\u{2028}"),
            ("\\e", "\u{1b}"),
            ("\\0", "\0"),
            ("\\/", "/"),
        ];
        for (raw, value) in escapes {
            let scalar = format!("\"{raw}{{{{ y{raw} }}}}\"");
            assert_eq!(located(&format!("a: {scalar}"), &scalar, &format!("{value}{{{{ y{value} }}}}"), "y"), "y", "{raw}");
        }
    }

    #[test]
    fn a_part_without_letters_stands_after_what_comes_before_it() {
        let source = Source { name: String::new(), text: "a: \"1 +\"".to_owned() };
        assert_eq!(source.locate(Span { start: 3, end: 8 }, "1 +", 3..3), Span { start: 7, end: 7 });
    }

    #[test]
    fn what_cannot_be_walked_is_the_whole_scalar() {
        assert_eq!(located("a: \"\\u00 {{ y }}\"", "\"\\u00 {{ y }}\"", "A {{ y }}", "y"), "\"\\u00 {{ y }}\"");
        let source = Source { name: String::new(), text: "é".to_owned() };
        assert_eq!(source.locate(Span { start: 1, end: 9 }, "x", 0..1), Span { start: 1, end: 9 });
    }
}
