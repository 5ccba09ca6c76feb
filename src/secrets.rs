//! Values that are never written anywhere, and the search for them in all that is.
//!
//! A run that has secrets holds one [`Secrets`]; whatever comes from a process, a file or a model passes through it
//! before it is recorded, shown, exported or told to a model, and every place of a value becomes `***NAME***`. A value is
//! found as it is and in the forms in which programs commonly print it: base64 at all three alignments and in both
//! alphabets, percent-encoded, escaped in JSON, XML and quotes of a shell, and each longer line of a value of several lines.
//! Whoever transforms it otherwise (turns it round, prints it letter by letter) gets it past: that is why a value reaches
//! only the processes of a step that asks for it.
//!
//! Without secrets nothing is searched. A value is never part of an error or of `Debug`.
use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Shorter values cannot be told from other text.
pub const VALUE_BYTES_MIN: usize = 4;
/// Values that could be a part of a hash, a count or a moment must be longer.
const HEX_BYTES_MIN: usize = 8;
/// Lines of a value that are searched for by themselves.
const LINE_BYTES_MIN: usize = 8;
/// A piece of base64 that begins in the middle of a byte is searched for from this length.
const PIECE_BYTES_MIN: usize = 6;
/// How deep JSON may be quoted in JSON.
const QUOTED: usize = 3;

/// The secrets of a run. Cheap to clone; empty where there are none.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<Known>>);

struct Known {
    values: BTreeMap<String, String>,
    search: AhoCorasick,
    /// What stands for each pattern.
    marks: Vec<String>,
    /// The longest pattern, in bytes.
    longest: usize,
}

/// Why a value cannot be kept from being written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("keep the secret `{name}`: its value {why}")]
pub struct SecretError {
    /// The variable's name.
    pub name: String,
    /// What is wrong with its value, which is not said.
    pub why: &'static str,
}

impl Secrets {
    /// Takes values by name.
    ///
    /// # Errors
    /// `SecretError` for a value that could not be told from other text.
    pub fn new(values: BTreeMap<String, String>) -> Result<Secrets, SecretError> {
        if values.is_empty() {
            return Ok(Secrets::default());
        }
        let mut forms: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in &values {
            let wrong = |why| SecretError { name: name.clone(), why };
            let core = value.trim();
            if core.len() < VALUE_BYTES_MIN {
                return Err(wrong("is shorter than 4 bytes, and cannot be told from other text"));
            }
            if core.len() < HEX_BYTES_MIN && core.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(wrong("is a few digits, and cannot be told from a number or a part of a hash"));
            }
            for form in written_as(core) {
                forms.entry(form).or_insert_with(|| format!("***{name}***"));
            }
        }
        let longest = forms.keys().map(String::len).max().unwrap_or_default();
        let (patterns, marks): (Vec<String>, Vec<String>) = forms.into_iter().unzip();
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns);
        let search = search.map_err(|_| SecretError { name: values.keys().cloned().collect::<Vec<_>>().join(", "), why: "is too long" })?;
        Ok(Secrets(Some(Arc::new(Known { values, search, marks, longest }))))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the values by name: only for the environment of a process that may have them.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|known| &known.values).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the name of a secret whose value stands in some bytes.
    pub fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        let known = self.0.as_ref()?;
        let found = known.search.find(bytes)?;
        Some(known.marks[found.pattern()].trim_matches('*'))
    }

    /// Returns a text without any value.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(known) if known.search.is_match(text) => Cow::Owned(known.search.replace_all(text, &known.marks)),
            Some(_) | None => Cow::Borrowed(text),
        }
    }

    /// Returns bytes without any value.
    pub fn bytes<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.0 {
            Some(known) if known.search.is_match(bytes) => Cow::Owned(known.search.replace_all_bytes(bytes, &known.marks)),
            Some(_) | None => Cow::Borrowed(bytes),
        }
    }

    /// Returns a thing with no value in any of its texts. Numbers and the order of things stay; a value that is one of
    /// the thing's own words (the name of a field, say) cannot be told from it and stays too.
    #[must_use]
    pub fn clean<T: Serialize + DeserializeOwned>(&self, thing: T) -> T {
        let Some(known) = &self.0 else { return thing };
        let Ok(text) = serde_json::to_string(&thing) else { return thing };
        if !known.search.is_match(&text) {
            return thing;
        }
        let cleaned = [true, false].into_iter().find_map(|keys| serde_json::from_str(&in_strings(&text, known, keys)).ok());
        cleaned.unwrap_or(thing)
    }

    /// Returns a search through a stream that comes in pieces; `None` where there is nothing to search for.
    pub fn stream(&self) -> Option<Stream> {
        self.0.clone().map(|known| Stream { known, held: Vec::new() })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.values().map(|(name, _)| name)).finish()
    }
}

/// A stream on its way through the search: what could be the beginning of a value is held back.
pub struct Stream {
    known: Arc<Known>,
    held: Vec<u8>,
}

impl Stream {
    /// Takes a piece and returns what can be passed on.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        // A match that begins before this point cannot become another one with what is still to come.
        let settled = (self.held.len() + 1).saturating_sub(self.known.longest);
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        for found in self.known.search.find_iter(&self.held).take_while(|found| found.start() < settled) {
            out.extend_from_slice(&self.held[at..found.start()]);
            out.extend_from_slice(self.known.marks[found.pattern()].as_bytes());
            at = found.end();
        }
        if at < settled {
            out.extend_from_slice(&self.held[at..settled]);
            at = settled;
        }
        self.held.drain(..at);
        out
    }

    /// Returns the rest, at the end of the stream.
    pub fn finish(self) -> Vec<u8> {
        self.known.search.replace_all_bytes(&self.held, &self.known.marks)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Stream").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

/// Replaces in the strings of a JSON text, those before a colon only where `keys` says so.
fn in_strings(json: &str, known: &Known, keys: bool) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let end = end_of_string(body);
        let is_key = body[end..].starts_with("\":");
        out.push_str(&rest[..=start]);
        let string = &body[..end];
        if is_key && !keys {
            out.push_str(string);
        } else {
            out.push_str(&known.search.replace_all(string, &known.marks));
        }
        rest = &body[end..];
        if let Some(after) = rest.strip_prefix('"') {
            out.push('"');
            rest = after;
        }
    }
    out + rest
}

/// Returns where a JSON string ends: at its closing quote.
fn end_of_string(body: &str) -> usize {
    let mut escaped = false;
    let end = body.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    end.unwrap_or(body.len())
}

/// Returns a value in all forms that are searched for.
fn written_as(value: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN && line.len() < value.len());
    for text in std::iter::once(value).chain(lines) {
        let mut quoted = text.to_owned();
        for _ in 0..=QUOTED {
            forms.insert(quoted.clone());
            quoted = json_escaped(&quoted);
        }
    }
    for one in [
        value.replace('\'', "'\\''"),
        value.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| "\"$`\\".contains(c)).chain([c])).collect(),
        value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
    ] {
        forms.insert(one.clone());
        forms.insert(json_escaped(&one));
    }
    for plain in ["", "/", "!'()*", "/!'()*:@&=+$,;"] {
        let encoded = percent_encoded(value, plain);
        forms.insert(encoded.replace("%20", "+"));
        forms.insert(encoded);
    }
    let lower = percent_encoded(value, "");
    forms.insert(lower_hex(&lower));
    for url_safe in [false, true] {
        forms.extend((0..3).map(|shift| base64(value.as_bytes(), shift, url_safe)).filter(|form| form.len() >= PIECE_BYTES_MIN));
        forms.insert(base64(value.as_bytes(), 0, url_safe));
    }
    forms.retain(|form| form.len() >= VALUE_BYTES_MIN);
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
fn base64(bytes: &[u8], shift: usize, url_safe: bool) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn secrets(values: &[(&str, &str)]) -> Secrets {
        Secrets::new(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()).unwrap()
    }

    #[test]
    fn a_value_is_found_in_every_form_it_is_commonly_printed_in() {
        let secrets = secrets(&[("TOKEN", "p@ss wörd/\"1$<&'+")]);
        let base64 = "cEBzcyB3w7ZyZC8iMSQ8Jic";
        for written in [
            "p@ss wörd/\"1$<&'+",
            "p@ss wörd/\\\"1$<&'+",
            "p@ss wörd/\\\\\\\"1$<&'+",
            "p%40ss%20w%C3%B6rd%2F%221%24%3C%26%27%2B",
            "p%40ss%20w%c3%b6rd%2f%221%24%3c%26%27%2b",
            "p%40ss+w%C3%B6rd%2F%221%24%3C%26%27%2B",
            "p@ss wörd/\"1$<&'\\''+",
            "p@ss wörd/\\\"1\\$<&'+",
            "p@ss wörd/&quot;1$&lt;&amp;'+",
        ] {
            assert_eq!(secrets.text(&format!("é{written}é")), "é***TOKEN***é", "{written}");
        }
        assert!(secrets.text(&format!("{base64}r=")).starts_with("***TOKEN***"), "{}", secrets.text(base64));
        assert_eq!(secrets.found_in("x p@ss wörd/\"1$<&'+".as_bytes()), Some("TOKEN"));
        assert_eq!(secrets.found_in(b"p@ss w"), None);
        assert!(!format!("{secrets:?}").contains("p@ss") && format!("{secrets:?}").contains("TOKEN"));
    }

    #[test]
    fn values_that_look_like_other_text_are_refused_without_being_said() {
        for value in ["", "abc", " abc\n", "1234", "deadbee"] {
            let error = Secrets::new(BTreeMap::from([("KEY".to_owned(), value.to_owned())])).unwrap_err();
            assert!(error.to_string().contains("`KEY`") && (value.is_empty() || !error.to_string().contains(value.trim())), "{error}");
        }
        assert!(Secrets::new(BTreeMap::new()).unwrap().is_empty());
    }

    #[test]
    fn things_keep_their_shape() {
        let secrets = secrets(&[("PIN", "12345678"), ("WORD", "a\"b\\c d")]);
        let thing = json!({"a": "x12345678y", "12345678": ["a\"b\\c d", 12_345_678], "nested": "{\"k\": \"a\\\"b\\\\c d\"}"});
        assert_eq!(secrets.clean(thing), json!({"a": "x***PIN***y", "***PIN***": ["***WORD***", 12_345_678], "nested": "{\"k\": \"***WORD***\"}"}));
        let lines = super::tests::secrets(&[("KEY", "-----BEGIN-----\nline-one-of-it\nshort\n-----END-----\n")]);
        assert_eq!(lines.text("> line-one-of-it <"), "> ***KEY*** <");
    }

    proptest! {
        #[test]
        fn base64_is_found_wherever_it_begins(before in prop::collection::vec(any::<u8>(), 0..5), value in "[!-~]{8,24}", after in prop::collection::vec(any::<u8>(), 0..5)) {
            prop_assume!(!value.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let secrets = secrets(&[("V", &value)]);
            let all: Vec<u8> = [before, value.clone().into_bytes(), after].concat();
            let cleaned = secrets.text(&super::base64(&all, 0, false)).into_owned();
            prop_assert!(cleaned.contains("***V***"), "{}", cleaned);
        }

        #[test]
        fn a_stream_is_cleaned_the_same_however_it_is_cut(texts in prop::collection::vec(prop_oneof![Just("s3cr3t-value".to_owned()), Just("s3cr3t-".to_owned()), "[a-z0-9-]{0,6}"], 0..8), cuts in prop::collection::vec(0_usize..40, 0..6)) {
            let secrets = secrets(&[("V", "s3cr3t-value"), ("W", "t-value-more")]);
            let whole = texts.concat();
            let mut stream = secrets.stream().unwrap();
            let mut out = Vec::new();
            let mut rest = whole.as_bytes();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                out.extend(stream.push(piece));
                rest = after;
            }
            out.extend(stream.push(rest));
            out.extend(stream.finish());
            prop_assert_eq!(String::from_utf8(out).unwrap(), secrets.text(&whole).into_owned());
        }
    }
}
