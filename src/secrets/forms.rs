//! The forms in which programs print a value.
use super::VALUE_BYTES_MIN;
use serde_json::Value;
use std::collections::BTreeSet;

/// Lines of a value that are searched for by themselves.
const LINE_BYTES_MIN: usize = 8;
/// A piece of base64 that begins in the middle of a byte is searched for from this length.
const PIECE_BYTES_MIN: usize = 6;
/// How deep JSON may be quoted in JSON.
const QUOTED: usize = 3;
/// What encoders of JSON escape besides what they must, so that HTML can hold it: nothing; the sign that opens a tag; both signs; what could
/// end a script; Go's; Gson's; .NET's.
const HTML_IN_JSON: [&str; 7] = ["", "<", "<>", "<>/", "&<>", "&<>='", "&<>'\"+`"];
/// How HTML and XML are written: the two quotes, after `&`, `<` and `>`. As text; XML's attributes; XML's words; the numbers of PHP,
/// Python, Go and templates in JavaScript.
const QUOTES_IN_MARKUP: [(&str, &str); 7] =
    [("\"", "'"), ("&quot;", "'"), ("&quot;", "&apos;"), ("&quot;", "&#039;"), ("&quot;", "&#x27;"), ("&#34;", "&#39;"), ("&quot;", "&#39;")];

/// Returns a value in all forms that are searched for.
pub(super) fn written_as(value: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN && line.len() < value.len());
    for text in std::iter::once(value).chain(lines) {
        for printed in in_shells(text).into_iter().chain(in_literals(text)).chain(in_markup(text)) {
            forms.insert(json_escaped(&printed));
            forms.insert(printed);
        }
        for json in in_json(text) {
            forms.insert(json_escaped(&json));
            forms.insert(json);
        }
        let mut quoted = text.to_owned();
        for _ in 0..=QUOTED {
            forms.insert(quoted.clone());
            quoted = json_escaped(&quoted);
        }
    }
    for plain in ["", "/", "!'()*", "/!'()*:@&=+$,;"] {
        let encoded = percent_encoded(value, plain);
        forms.insert(encoded.replace("%20", "+"));
        forms.insert(encoded);
    }
    let lower = percent_encoded(value, "");
    forms.insert(lower_hex(&lower));
    forms.extend(encoded_as(value));
    forms.retain(|form| form.len() >= VALUE_BYTES_MIN);
    forms
}

/// Returns a text as shells are given it: in single quotes, by a backslash and by double quotes (Python); in double quotes; bare
/// (`printf %q`).
fn in_shells(text: &str) -> [String; 4] {
    let escaped = |special: &'static str| text.chars().flat_map(move |c| ['\\'].into_iter().filter(move |_| special.contains(c)).chain([c])).collect();
    [text.replace('\'', "'\\''"), text.replace('\'', "'\"'\"'"), escaped("\"$`\\"), escaped(" \t\\'\"|&;()<>!{}*[?]^$`,")]
}

/// Returns a text as it stands in single quotes of SQL, in double quotes of CSV, and in single quotes of languages that have backslashes in
/// them (Python's `repr` of both quotes, `$'…'`).
fn in_literals(text: &str) -> [String; 3] {
    [text.replace('\'', "''"), text.replace('"', "\"\""), json_escaped(text).replace("\\\"", "\"").replace('\'', "\\'")]
}

fn in_markup(text: &str) -> impl Iterator<Item = String> {
    let bare = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let quoted = QUOTES_IN_MARKUP.into_iter().map(move |(double, single)| bare.replace('"', double).replace('\'', single));
    // Templates in JavaScript write what could end an attribute without quotes, too, and some the slash.
    quoted.flat_map(|quoted| {
        let more = quoted.replace('`', "&#x60;").replace('=', "&#x3D;");
        let slash = more.replace('/', "&#x2F;");
        [quoted, more, slash]
    })
}

/// Returns a text as encoders of JSON write it: some escape the slash (PHP), and what is not ASCII (PHP, Python, .NET).
fn in_json(text: &str) -> BTreeSet<String> {
    let number = |unit: u16, large: bool| if large { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
    let character = |c: char, (html, slash, ascii, large): (&str, bool, bool, bool)| match c {
        '/' if slash => "\\/".to_owned(),
        c if html.contains(c) || (ascii && !c.is_ascii()) => c.encode_utf16(&mut [0; 2]).iter().map(|unit| number(*unit, large)).collect(),
        c => json_escaped(c.encode_utf8(&mut [0; 4])),
    };
    let flags = [false, true];
    let ways = HTML_IN_JSON.into_iter().flat_map(|html| flags.map(|slash| (html, slash)));
    let ways =
        ways.flat_map(|(html, slash)| flags.map(|ascii| (html, slash, ascii))).flat_map(|(html, slash, ascii)| flags.map(|large| (html, slash, ascii, large)));
    ways.map(|way| text.chars().map(|c| character(c, way)).collect()).collect()
}

/// Returns a value in the forms that programs break over lines.
pub(super) fn encoded_as(value: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for url_safe in [false, true] {
        forms.extend((0..3).map(|shift| base64(value.as_bytes(), shift, url_safe)).filter(|form| form.len() >= PIECE_BYTES_MIN));
        forms.insert(base64(value.as_bytes(), 0, url_safe));
    }
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.insert(hex.to_ascii_uppercase());
    forms.insert(hex);
    forms
}

fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn percent_encoded(text: &str, plain: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || plain.as_bytes().contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Writes the digits after each `%` small.
fn lower_hex(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        out = format!("{out}%{}{rest}", digits.to_ascii_lowercase());
    }
    out
}

/// Returns the characters of base64 that depend on `bytes` alone, where they begin `shift` bytes after a group of three.
pub(super) fn base64(bytes: &[u8], shift: usize, url_safe: bool) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let all: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
    let sextet = |at: usize| {
        let (byte, bit) = (at * 6 / 8, at * 6 % 8);
        let pair = (u16::from(all[byte]) << 8) | u16::from(all.get(byte + 1).copied().unwrap_or_default());
        usize::from((pair >> (10 - bit)) & 63)
    };
    let letter = |at: usize| match ALPHABET[sextet(at)] {
        b'+' if url_safe => '-',
        b'/' if url_safe => '_',
        other => char::from(other),
    };
    ((shift * 8).div_ceil(6)..all.len() * 8 / 6).map(letter).collect()
}
