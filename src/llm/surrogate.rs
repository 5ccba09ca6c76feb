//! Repairs JSON text in which a `\u` escape is half of a surrogate pair: such text is no Unicode, and neither our parser
//! nor the provider it would be sent back to takes it.
use std::borrow::Cow;

/// Returns `json` with the escape of every lone surrogate replaced by the one of U+FFFD; other bytes are left alone.
pub(super) fn repair(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = json[at..].find('\\') {
        let escape = at + found;
        match unit(bytes, escape) {
            Some(0xD800..=0xDBFF) if matches!(unit(bytes, escape + 6), Some(0xDC00..=0xDFFF)) => at = escape + 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(&json[copied..escape]);
                out.push_str("\\ufffd");
                at = escape + 6;
                copied = at;
            }
            Some(_) => at = escape + 6,
            // The character after a backslash is one byte in valid JSON; in other text, step by whole characters.
            None => at = escape + 1 + json[escape + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// Reads the `\uXXXX` that starts at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_lone_halves_are_replaced() {
        for (given, wanted) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ude00\ud83d\ude00\uD83Dx""#, r#""\ufffd\ud83d\ude00\ufffdx""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\u0041é\n""#, r#""\u0041é\n""#),
            ("\\", "\\"),
            ("\\é\\ud8", "\\é\\ud8"),
        ] {
            assert_eq!(repair(given), wanted);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_and_valid_json_means_the_same(text in "\\PC*") {
            repair(&text);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(repair(&json), json.as_str());
        }
    }
}
