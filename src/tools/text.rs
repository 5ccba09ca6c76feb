//! What a model is shown: clean text, never more than a cap, every cut stated.

/// Most bytes of one answer.
pub(super) const ANSWER_MAX: usize = 24 << 10;

/// Most characters of one line of a file or a match.
pub(super) const LINE_MAX: usize = 2_000;

/// Takes out of a text, wherever it is from, what is not to be read: a terminal would act on it, or nobody would see it.
pub fn readable(text: &str) -> String {
    from_terminal(text.as_bytes())
}

/// Makes terminal output readable: escape sequences and control characters go, a line that was drawn over and over
/// (`\r`) keeps its last state, invalid bytes become U+FFFD.
pub(super) fn from_terminal(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(text.len());
    let mut line_start = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\n' => {
                clean.push('\n');
                line_start = clean.len();
            }
            '\r' if !matches!(chars.peek(), Some('\n' | '\r') | None) => clean.truncate(line_start),
            '\t' => clean.push('\t'),
            '\u{8}' if clean.len() > line_start => drop(clean.pop()),
            _ if is_control(c) => {}
            _ if is_invisible(c) => clean.push('\u{fffd}'),
            _ => clean.push(c),
        }
    }
    clean
}

/// Makes file content showable without hiding anything: control characters become their pictures (`␛`).
pub(super) fn from_file(bytes: &[u8]) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        _ if is_control(c) || is_invisible(c) => '\u{fffd}',
        _ => c,
    };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Cuts a line that is too long and says by how much.
pub(super) fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE_MAX) {
        Some((at, _)) => format!("{} [{} more characters in this line]", &line[..at], line[at..].chars().count()),
        None => line.to_owned(),
    }
}

/// Keeps the beginning and the end of a text of more than `max` bytes; `rest` says how to get what is missing.
pub(super) fn cap(text: String, max: usize, rest: &str) -> String {
    if text.len() <= max {
        return text;
    }
    let head = boundary_before(&text, max / 2);
    let tail = boundary_after(&text, text.len() - max / 2);
    let missing = &text[head..tail];
    format!("{}\n[{} bytes in {} lines cut here. {rest}]\n{}", text[..head].trim_end_matches('\n'), missing.len(), missing.lines().count(), &text[tail..])
}

/// Returns the end of the last whole line before `at`, or of the last whole character where lines are long.
fn boundary_before(text: &str, at: usize) -> usize {
    let at = text.floor_char_boundary(at);
    match text[..at].rfind('\n') {
        Some(line) if at - line < 1_000 => line + 1,
        _ => at,
    }
}

fn boundary_after(text: &str, at: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    match text[at..].find('\n') {
        Some(line) if line < 1_000 => at + line + 1,
        _ => at,
    }
}

/// Steps over what follows an escape character: a control sequence, a string that a terminal would swallow, or one letter.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            // Parameters and intermediates, then one final byte.
            while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            chars.next_if(|c| matches!(c, '@'..='~'));
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // Up to the bell or `ESC \`; a line break ends a broken one, so that it does not swallow the rest.
            while let Some(c) = chars.next_if(|c| *c != '\n') {
                if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => drop(chars.next_if(|c| *c != '\n')),
        _ => {}
    }
}

fn is_control(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// Characters that are there and are not seen: they turn text around or carry words past a reader.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_output_is_what_a_person_would_see() {
        for (raw, seen) in [
            (&b"\x1b[1;32mok\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\\n"[..], "ok link\n"),
            (b"10%\r50%\r100%\r\ndone\r\n", "100%\ndone\n"),
            (b"a\0b\x07c\xff\xfe", "abc\u{fffd}\u{fffd}"),
            (b"ab\x08c", "ac"),
            (b"\x1b]0;title never closed\nnext", "\nnext"),
            (b"\x1b(Bx\x1b", "x"),
            ("a\u{202e}b\u{9b}31mc".as_bytes(), "a\u{fffd}b31mc"),
        ] {
            assert_eq!(from_terminal(raw), seen);
        }
    }

    #[test]
    fn files_hide_nothing() {
        assert_eq!(from_file(b"a\x1b[31m\0\tb\r\n\xff"), "a\u{241b}[31m\u{2400}\tb\u{240d}\n\u{fffd}");
    }

    #[test]
    fn a_cut_keeps_whole_lines_and_says_so() {
        let text: String = (0..1000).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
        let cut = cap(text, 200, "Ask for less.");
        assert!(cut.starts_with("line 0\n") && cut.ends_with("line 999\n"));
        assert!(cut.contains(" lines cut here. Ask for less.]\n") && cut.len() < 300, "{cut}");
        assert_eq!(cap("short".to_owned(), 10, ""), "short");
    }

    proptest! {
        #[test]
        fn any_bytes_become_clean_text_within_the_cap(bytes in prop::collection::vec(any::<u8>(), 0..400), max in 20_usize..100) {
            let text = from_terminal(&bytes);
            prop_assert!(!text.chars().any(is_control));
            prop_assert!(cap(text, max, "").len() <= max + 60);
            prop_assert!(!from_file(&bytes).chars().any(is_control));
        }
    }
}
