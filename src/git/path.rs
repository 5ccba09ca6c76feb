//! Paths inside a tree: bytes to git, text to everyone else.
//!
//! Git's paths are bytes. Outside of this module they are text: a path that is UTF-8 is itself, any other is written as
//! git quotes it (`"caf\351"`), which reads back to the same bytes. A path that begins with a quotation mark is quoted too,
//! so that the two never mean the same.
use std::{ffi::OsString, path::PathBuf};

/// Writes a path as text.
pub(super) fn quote(path: &[u8]) -> String {
    use std::fmt::Write as _;
    if let Ok(text) = std::str::from_utf8(path)
        && !text.starts_with('"')
    {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for &byte in path {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Reads a path back from its text; what is not in `quote`'s form stands for itself.
pub(super) fn unquote(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.and_then(unescape).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn unescape(inner: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = tail;
        } else if let [byte @ (b'"' | b'\\'), tail @ ..] = tail {
            bytes.push(*byte);
            rest = tail;
        } else {
            let (digits, tail) = tail.split_at_checked(3)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
            rest = tail;
        }
    }
    Some(bytes)
}

/// Returns the bytes as the operating system's text.
#[cfg(unix)]
pub(super) fn os(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(bytes).to_owned()
}

/// Returns the bytes as the operating system's text; git writes UTF-8 there.
#[cfg(not(unix))]
pub(super) fn os(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Returns the bytes as a path of the operating system.
pub(super) fn file(bytes: &[u8]) -> PathBuf {
    os(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_their_text() {
        for path in [&b"src/a.rs"[..], b"caf\xe9", b"\"quoted\"", b"\"", b"a\\b\"c\xff", "é/ü".as_bytes(), b"\x01\xfe"] {
            assert_eq!(unquote(&quote(path)), path, "{}", quote(path));
        }
        assert_eq!(quote(b"caf\xe9"), "\"caf\\351\"");
        assert_eq!(quote("é".as_bytes()), "é");
    }

    proptest::proptest! {
        #[test]
        fn quoting_loses_nothing(path in proptest::collection::vec(0u8.., 0..40)) {
            proptest::prop_assert_eq!(unquote(&quote(&path)), path);
        }
    }
}
