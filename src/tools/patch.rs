//! What changed between two versions of a file, in the form that hooks know: one hunk around everything that differs.
use serde_json::{Value, json};

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Most lines that a hunk shows; a longer one shows none but still says where it is.
const LINES_MAX: usize = 2_000;

/// Largest original that is handed to hooks; they can read larger files themselves.
const ORIGINAL_MAX: usize = 256 << 10;

/// Returns the original's text for a hook, where it is not too large.
pub(super) fn original(content: &[u8]) -> Option<String> {
    (content.len() <= ORIGINAL_MAX).then(|| String::from_utf8_lossy(content).into_owned())
}

/// Returns the hunk between two versions; none where they are the same.
pub(super) fn hunks(old: &[u8], new: &[u8]) -> Vec<Value> {
    if old == new {
        return Vec::new();
    }
    let (old, new) = (lines(old), lines(new));
    let same_start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same_start;
    let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let start = same_start.saturating_sub(CONTEXT);
    let after = same_end.min(CONTEXT);
    let (old_end, new_end) = (old.len() - same_end, new.len() - same_end);
    let mut shown = Vec::new();
    if (old_end - start) + (new_end - start) <= LINES_MAX {
        let mark = |mark: char, lines: &[&[u8]]| lines.iter().map(|line| format!("{mark}{}", String::from_utf8_lossy(line))).collect::<Vec<_>>();
        shown.extend(mark(' ', &old[start..same_start]));
        shown.extend(mark('-', &old[same_start..old_end]));
        shown.extend(mark('+', &new[same_start..new_end]));
        shown.extend(mark(' ', &old[old_end..old_end + after]));
    }
    vec![json!({"oldStart": start + 1, "oldLines": old_end + after - start, "newStart": start + 1, "newLines": new_end + after - start, "lines": shown})]
}

fn lines(content: &[u8]) -> Vec<&[u8]> {
    let body = content.strip_suffix(b"\n").unwrap_or(content);
    if content.is_empty() { Vec::new() } else { body.split(|byte| *byte == b'\n').collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunk_stands_around_the_change() {
        let old = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = b"1\n2\n3\n4\nfive\nand a half\n6\n7\n8\n9\n";
        let expected =
            json!({"oldStart": 2, "oldLines": 7, "newStart": 2, "newLines": 8, "lines": [" 2", " 3", " 4", "-5", "+five", "+and a half", " 6", " 7", " 8"]});
        assert_eq!(hunks(old, new), [expected]);
        assert_eq!(hunks(b"", b"a\n")[0]["lines"], json!(["+a"]));
        assert_eq!(hunks(b"a\na\n", b"a\n")[0]["lines"], json!([" a", "-a"]));
        assert!(hunks(old, old).is_empty());
    }
}
