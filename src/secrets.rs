//! Values that are never written anywhere, and the search for them in all that is.
//!
//! A run that has secrets holds one [`Secrets`]; whatever comes from a process, a file or a model passes through it
//! before it is recorded, shown, exported or told to a model, and every place of a value becomes `***NAME***`. A value is
//! found as it is and in the forms in which programs commonly print it: base64 at all three alignments and in both
//! alphabets, hexadecimal, both also where line breaks cut them, percent-encoded, escaped in JSON, XML and quotes of a shell, and each longer line of a value of several lines.
//! Whoever transforms it otherwise (turns it round, prints it letter by letter) gets it past: that is why a value reaches
//! only the processes of a step that asks for it.
//!
//! Without secrets nothing is searched. A value is never part of an error or of `Debug`.
mod forms;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use forms::{encoded_as, written_as};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    ops::Range,
    sync::Arc,
};

/// Shorter values cannot be told from other text.
pub const VALUE_BYTES_MIN: usize = 4;
/// Values that could be a part of a hash, a count or a moment must be longer.
const HEX_BYTES_MIN: usize = 8;
/// A value that is only hidden must be longer than this, with letters and digits in it or without.
const MIXED_BYTES_MIN: usize = 8;
const PLAIN_BYTES_MIN: usize = 20;

/// The secrets of a run. Cheap to clone; empty where there are none.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<Known>>);

struct Known {
    values: BTreeMap<String, String>,
    /// Those that no process is given, and that nobody asked for.
    hidden: BTreeMap<String, String>,
    plain: Forms,
    /// What programs break over lines, for texts whose breaks were taken out.
    unbroken: Forms,
    /// The longest place a value can have, in bytes, line breaks included.
    longest: usize,
}

/// What values are written as.
struct Forms {
    search: AhoCorasick,
    /// In order.
    texts: Vec<String>,
    /// What stands for each.
    marks: Vec<String>,
}

impl Forms {
    /// Takes forms with what stands for each; `None` where they are too much to search for.
    fn of(forms: BTreeMap<String, String>) -> Option<Forms> {
        let (texts, marks): (Vec<String>, Vec<String>) = forms.into_iter().unzip();
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).ok()?;
        Some(Forms { search, texts, marks })
    }

    /// Returns whether one of them begins with a text and goes on behind it.
    fn goes_on(&self, text: &[u8]) -> bool {
        let after = self.texts.partition_point(|form| form.as_bytes() <= text);
        self.texts.get(after).is_some_and(|form| form.as_bytes().starts_with(text))
    }
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
        Secrets::all(values, BTreeMap::new())
    }

    /// Adds values that no step asks for and that are to be kept from being written all the same: keys of models. Those that
    /// could not be told from other text (the word that a local server wants for a key, say) are left as they are.
    #[must_use]
    pub fn hiding(self, hidden: BTreeMap<String, String>) -> Secrets {
        let hidden: BTreeMap<String, String> = hidden.into_iter().filter(|(_, value)| is_telling(value.trim())).collect();
        if hidden.is_empty() {
            return self;
        }
        let values = self.0.as_ref().map(|known| known.values.clone()).unwrap_or_default();
        Secrets::all(values, hidden).unwrap_or(self)
    }

    fn all(values: BTreeMap<String, String>, hidden: BTreeMap<String, String>) -> Result<Secrets, SecretError> {
        if values.is_empty() && hidden.is_empty() {
            return Ok(Secrets::default());
        }
        let mut forms: BTreeMap<String, String> = BTreeMap::new();
        let mut broken: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in values.iter().chain(&hidden) {
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
            for form in encoded_as(core) {
                broken.entry(form).or_insert_with(|| format!("***{name}***"));
            }
        }
        let longest = forms.keys().map(String::len).chain(broken.keys().map(|form| with_breaks(form.len()))).max().unwrap_or_default();
        let too_long = SecretError { name: values.keys().cloned().collect::<Vec<_>>().join(", "), why: "is too long" };
        let (plain, unbroken) = (Forms::of(forms).ok_or_else(|| too_long.clone())?, Forms::of(broken).ok_or(too_long)?);
        Ok(Secrets(Some(Arc::new(Known { values, hidden, plain, unbroken, longest }))))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the values by name: only for the environment of a process that may have them.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|known| &known.values).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether a value was taken out of a text.
    pub fn marks(&self, text: &str) -> bool {
        self.0.iter().flat_map(|known| known.values.keys().chain(known.hidden.keys())).any(|name| text.contains(&format!("***{name}***")))
    }

    /// Returns the name of a secret whose value stands in some bytes.
    pub fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        self.0.as_ref()?.places(bytes).next().map(|place| place.mark.trim_matches('*'))
    }

    /// Returns the name of a secret whose value stands in what a reader gives.
    ///
    /// # Errors
    /// What the reader fails with.
    pub fn found_in_all(&self, mut reader: impl Read) -> io::Result<Option<&str>> {
        const PIECE: usize = 1 << 18;
        let Some(known) = self.0.as_ref() else { return Ok(None) };
        let mut held: Vec<u8> = Vec::new();
        loop {
            let before = held.len();
            reader.by_ref().take(PIECE as u64).read_to_end(&mut held)?;
            let found = self.found_in(&held);
            if found.is_some() || held.len() == before {
                return Ok(found);
            }
            held.drain(..held.len().saturating_sub(known.longest));
        }
    }

    /// Returns a text without any value.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(known) => known.replaced_text(text).map_or(Cow::Borrowed(text), Cow::Owned),
            None => Cow::Borrowed(text),
        }
    }

    /// Returns bytes without any value.
    pub fn bytes<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.0 {
            Some(known) => known.replaced(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned),
            None => Cow::Borrowed(bytes),
        }
    }

    /// Returns a thing with no value in any of its texts. Numbers and the order of things stay; a value that is one of
    /// the thing's own words (the name of a field, say) cannot be told from it and stays too.
    #[must_use]
    pub fn clean<T: Serialize + DeserializeOwned>(&self, thing: T) -> T {
        let Some(known) = &self.0 else { return thing };
        let Ok(text) = serde_json::to_string(&thing) else { return thing };
        if known.places(text.as_bytes()).next().is_none() {
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

/// Returns whether a value is hard enough to guess to be nothing else.
fn is_telling(value: &str) -> bool {
    let is_mixed = value.chars().any(char::is_alphabetic) && value.chars().any(|c| c.is_ascii_digit());
    value.len() >= if is_mixed { MIXED_BYTES_MIN } else { PLAIN_BYTES_MIN }
}

/// A stream on its way through the search: its end is held back where a value may begin in it, and nothing else is.
pub struct Stream {
    known: Arc<Known>,
    held: Vec<u8>,
}

impl Stream {
    /// Takes a piece and returns what can be passed on.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let settled = self.known.settled(&self.held);
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        for place in self.known.places(&self.held).take_while(|place| place.range.start < settled) {
            out.extend_from_slice(&self.held[at..place.range.start]);
            out.extend_from_slice(place.mark.as_bytes());
            at = place.range.end;
        }
        if at < settled {
            out.extend_from_slice(&self.held[at..settled]);
            at = settled;
        }
        self.held.drain(..at);
        out
    }

    /// Takes a piece of text and returns what can be passed on.
    pub fn push_text(&mut self, piece: &str) -> String {
        text_of(self.push(piece.as_bytes()))
    }

    /// Returns the rest, at the end of the stream.
    pub fn finish(self) -> Vec<u8> {
        self.known.replaced(&self.held).unwrap_or(self.held)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Stream").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

/// Where a value stands, and what is to stand there.
struct Place<'k> {
    range: Range<usize>,
    mark: &'k str,
}

impl Known {
    /// Returns all places, from left to right, none over another; of those that begin together the longest.
    fn places<'k>(&'k self, bytes: &[u8]) -> impl Iterator<Item = Place<'k>> {
        let unbroken = Unbroken::of(bytes);
        let plain = move |from: usize| {
            let found = self.plain.search.find(Input::new(bytes).range(from..))?;
            Some(Place { range: found.range(), mark: &self.plain.marks[found.pattern()] })
        };
        let broken = move |from: usize| {
            let unbroken = unbroken.as_ref()?;
            let mut at = unbroken.index(from);
            loop {
                let found = self.unbroken.search.find(Input::new(&unbroken.bytes).range(at..))?;
                let range = unbroken.position(found.start())..unbroken.position(found.end() - 1) + 1;
                if range.len() <= with_breaks(found.len()) {
                    return Some(Place { range, mark: &self.unbroken.marks[found.pattern()] });
                }
                at = found.start() + 1;
            }
        };
        let (mut of_plain, mut of_broken) = (plain(0), broken(0));
        let mut at = 0;
        std::iter::from_fn(move || {
            if of_plain.as_ref().is_some_and(|place| place.range.start < at) {
                of_plain = plain(at);
            }
            if of_broken.as_ref().is_some_and(|place| place.range.start < at) {
                of_broken = broken(at);
            }
            let order = |place: &Place<'_>| (place.range.start, usize::MAX - place.range.end);
            let broken_first = match (&of_plain, &of_broken) {
                (Some(plain), Some(broken)) => order(broken) < order(plain),
                (plain, _) => plain.is_none(),
            };
            let first = if broken_first { of_broken.take() } else { of_plain.take() }?;
            at = first.range.end;
            if broken_first {
                of_broken = broken(at);
            } else {
                of_plain = plain(at);
            }
            Some(first)
        })
    }

    /// Returns where what is still to come may change what stands there: a place that begins before it is what it is.
    fn settled(&self, bytes: &[u8]) -> usize {
        let floor = (bytes.len() + 1).saturating_sub(self.longest).min(bytes.len());
        let plain = (floor..bytes.len()).find(|at| self.plain.goes_on(&bytes[*at..])).unwrap_or(bytes.len());
        // What the last backslashes are is known once the next character is.
        let tail = &bytes[floor..bytes.len() - backslashes(&bytes[floor..])];
        let unbroken = Unbroken::of(tail);
        let text = unbroken.as_ref().map_or(tail, |unbroken| &unbroken.bytes);
        let broken = (0..text.len()).find(|at| self.unbroken.goes_on(&text[*at..]));
        let broken = broken.map(|at| floor + unbroken.as_ref().map_or(at, |unbroken| unbroken.position(at)));
        let mut settled = broken.map_or(plain, |broken| broken.min(plain));
        // Neither a character nor a break in quotes is cut.
        if bytes.get(settled).is_none_or(|byte| b"nr\\".contains(byte)) {
            settled -= backslashes(&bytes[..settled]);
        }
        settled = settled.max(floor);
        while settled > 0 && bytes.get(settled).map_or_else(|| is_cut(&bytes[..settled]), |byte| byte & 0xC0 == 0x80) {
            settled -= 1;
        }
        settled
    }

    /// Returns bytes without any value, where there is one.
    fn replaced(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut places = self.places(bytes).peekable();
        places.peek()?;
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for place in places {
            out.extend_from_slice(&bytes[at..place.range.start]);
            out.extend_from_slice(place.mark.as_bytes());
            at = place.range.end;
        }
        out.extend_from_slice(&bytes[at..]);
        Some(out)
    }

    fn replaced_text(&self, text: &str) -> Option<String> {
        let replaced = self.replaced(text.as_bytes())?;
        Some(text_of(replaced))
    }
}

/// Returns how many backslashes a text ends in.
fn backslashes(text: &[u8]) -> usize {
    text.iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// Returns whether a text ends within a character.
fn is_cut(text: &[u8]) -> bool {
    let after = text.iter().rev().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    let first = text.len().checked_sub(after + 1).map_or(0, |at| text[at]);
    first >= 0xC0 && usize::try_from(first.leading_ones()).is_ok_and(|length| length > after + 1)
}

/// Makes text of what was made of text: patterns are text, so that no character was cut.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A text without its line breaks, be they bytes or escaped in quotes.
struct Unbroken {
    bytes: Vec<u8>,
    /// For each break: where it was in `bytes`, and where what follows it stands in the text.
    breaks: Vec<(usize, usize)>,
}

impl Unbroken {
    /// Takes the breaks out; `None` where there are none.
    fn of(text: &[u8]) -> Option<Unbroken> {
        let mut unbroken = Unbroken { bytes: Vec::new(), breaks: Vec::new() };
        let mut kept = 0;
        let mut at = 0;
        while let Some(found) = text[at..].iter().position(|byte| b"\n\r\\".contains(byte)) {
            let start = at + found;
            let bare = start + text[start..].iter().take_while(|byte| **byte == b'\\').count();
            let is_break = bare == start || matches!(text.get(bare), Some(b'n' | b'r'));
            at = if bare == start || is_break { bare + 1 } else { bare };
            if is_break {
                unbroken.bytes.extend_from_slice(&text[kept..start]);
                unbroken.breaks.push((unbroken.bytes.len(), at));
                kept = at;
            }
        }
        if unbroken.breaks.is_empty() {
            return None;
        }
        unbroken.bytes.extend_from_slice(&text[kept..]);
        Some(unbroken)
    }

    /// Returns where a byte stands in the text.
    fn position(&self, index: usize) -> usize {
        match self.breaks.partition_point(|(at, _)| *at <= index).checked_sub(1) {
            Some(last) => self.breaks[last].1 + index - self.breaks[last].0,
            None => index,
        }
    }

    /// Returns the first byte that stands at a position of the text or behind it.
    fn index(&self, position: usize) -> usize {
        let after = self.breaks.partition_point(|(_, after)| *after <= position);
        let next = self.breaks.get(after).map_or(self.bytes.len(), |(at, _)| *at);
        let own = after.checked_sub(1).map_or(position, |last| self.breaks[last].0 + position - self.breaks[last].1);
        own.min(next)
    }
}

/// Returns how long a form may be with the line breaks that programs put into it: lines of at least 16 characters, each
/// ended by at most `\r\n`, escaped twice.
fn with_breaks(form: usize) -> usize {
    form + 8 * (form / 16 + 2)
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
            out.push_str(&known.replaced_text(string).map_or(Cow::Borrowed(string), Cow::Owned));
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
            "p@ss wörd/\"1$&lt;&amp;'+",
            "p@ss wörd/&quot;1$&lt;&amp;&#x27;+",
            "p@ss wörd/&quot;1$&lt;&amp;&#039;+",
            "p@ss wörd/&#34;1$&lt;&amp;&#39;+",
            "p@ss wörd\\/\\\"1$<&'+",
            "p@ss w\\u00f6rd\\/\\\"1$<&'+",
            "p@ss w\\u00f6rd/\\\"1$<&'+",
            "p@ss wörd/\\\"1$\\u003c\\u0026'+",
            "p@ss wörd/\\\"1$\\u003c\\u0026\\u0027+",
            "p@ss w\\u00F6rd/\\u00221$\\u003C\\u0026\\u0027\\u002B",
            "p@ss wörd/\"1$<&'\"'\"'+",
            "p@ss\\ wörd/\\\"1\\$\\<\\&\\'+",
            "p@ss wörd&#x2F;&quot;1$&lt;&amp;&#39;+",
            "p@ss wörd/\\\"1$\\u003C&'+",
            "p@ss wörd\\u002F\\\"1$\\u003C&'+",
            "p@ss wörd/\"1$<&\\'+",
            "p@ss wörd/\"1$<&''+",
            "p@ss wörd/\"\"1$<&'+",
        ] {
            assert_eq!(secrets.text(&format!("é{written}é")), "é***TOKEN***é", "{written}");
        }
        assert!(secrets.text(&format!("{base64}r=")).starts_with("***TOKEN***"), "{}", secrets.text(base64));
        assert_eq!(secrets.found_in("x p@ss wörd/\"1$<&'+".as_bytes()), Some("TOKEN"));
        assert_eq!(secrets.found_in(b"p@ss w"), None);
        assert!(!format!("{secrets:?}").contains("p@ss") && format!("{secrets:?}").contains("TOKEN"));
    }

    #[test]
    fn a_line_of_a_value_is_found_in_these_forms_too() {
        let secrets = secrets(&[("KEY", "-----BEGIN-----\nab/cd+ef&gh=ij\n-----END-----\n")]);
        for written in ["ab\\/cd+ef&gh=ij", "ab/cd+ef\\u0026gh\\u003dij", "ab/cd+ef&amp;gh=ij", "ab/cd+ef\\&gh=ij"] {
            assert_eq!(secrets.text(written), "***KEY***", "{written}");
        }
        let two = super::tests::secrets(&[("TWO", "it's the first\nthat's the second = \"it\"")]);
        for written in ["'it''s the first'", "$'it\\'s the first'"] {
            assert!(two.text(written).contains("***TWO***"), "{written}");
        }
        for written in
            ["that''s the second = \"it\"", "that\\'s the second = \"it\"", "that's the second = \"\"it\"\"", "that&#x27;s the second &#x3D; &quot;it&quot;"]
        {
            assert_eq!(two.text(written), "***TWO***", "{written}");
        }
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
    fn what_is_only_hidden_is_found_and_given_to_nobody() {
        let hidden = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let both = secrets(&[("TOKEN", "s3cr3t-value")]).hiding(hidden(&[("house key", "sk-hidden-123"), ("local key", "lm-studio"), ("one", "2026")]));
        let text = "sk-hidden-123 s3cr3t-value lm-studio 2026";
        assert_eq!(both.text(text), "***house key*** ***TOKEN*** lm-studio 2026", "words are no keys");
        assert_eq!(both.values().collect::<Vec<_>>(), [("TOKEN", "s3cr3t-value")]);
        let only = Secrets::default().hiding(hidden(&[("house key", "sk-hidden-123")]));
        assert!(only.values().next().is_none() && !only.is_empty() && only.found_in(b"xsk-hidden-123x") == Some("house key"));
        assert!(only.marks("a ***house key*** b") && !only.marks("***bold***") && !format!("{only:?}").contains("sk-"));
        assert!(Secrets::default().hiding(hidden(&[("local key", "none")])).is_empty());
    }

    #[test]
    fn things_keep_their_shape() {
        let secrets = secrets(&[("PIN", "12345678"), ("WORD", "a\"b\\c d")]);
        let thing = json!({"a": "x12345678y", "12345678": ["a\"b\\c d", 12_345_678], "nested": "{\"k\": \"a\\\"b\\\\c d\"}"});
        assert_eq!(secrets.clean(thing), json!({"a": "x***PIN***y", "***PIN***": ["***WORD***", 12_345_678], "nested": "{\"k\": \"***WORD***\"}"}));
        let lines = super::tests::secrets(&[("KEY", "-----BEGIN-----\nline-one-of-it\nshort\n-----END-----\n")]);
        assert_eq!(lines.text("> line-one-of-it <"), "> ***KEY*** <");
    }

    #[test]
    fn what_is_broken_over_lines_is_found_as_text_in_json_and_in_a_stream() {
        let value = "-long-enough-to-be-broken-over-two-lines-wherever-it-begins-and-then-some-more";
        let secrets = secrets(&[("V", value)]);
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
        for before in 0..80 {
            let all = format!("{}{value} behind", "x".repeat(before));
            for (encoded, width) in [(super::forms::base64(all.as_bytes(), 0, false), 76), (super::forms::base64(all.as_bytes(), 0, true), 64), (hex(&all), 60)]
            {
                for newline in ["\n", "\r\n"] {
                    let lines: Vec<&str> = encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
                    let text = lines.join(newline);
                    let cleaned = secrets.text(&text).into_owned();
                    assert!(cleaned.contains("***V***") && secrets.found_in_all(text.as_bytes()).unwrap() == Some("V"), "{before} {width}: {cleaned}");
                    assert_eq!(secrets.clean(json!({"a": [text]})), json!({"a": [cleaned]}));
                    let mut stream = secrets.stream().unwrap();
                    let mut out: Vec<u8> = text.as_bytes().chunks(7).flat_map(|piece| stream.push(piece)).collect();
                    out.extend(stream.finish());
                    assert_eq!(String::from_utf8(out).unwrap(), cleaned);
                }
            }
        }
        let free = "one\ntwo \\n three\r\n\\";
        assert_eq!(secrets.text(free), free);
        let far = format!("{}{value}", "y".repeat((1 << 18) - 20));
        assert_eq!(secrets.found_in_all(far.as_bytes()).unwrap(), Some("V"), "over two pieces");
    }

    #[test]
    fn only_what_may_begin_a_value_is_held_back() {
        let key = "sk-ant-api03-aVeryLongKeyIndeed-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789";
        let secrets = Secrets::default().hiding(BTreeMap::from([("house key".to_owned(), key.to_owned())]));
        let mut stream = secrets.stream().unwrap();
        for (piece, passed) in [
            ("Let me see.", "Let me see."),
            (" Both are wrong.\n", " Both are wrong.\n"),
            ("It is sk-", "It is "),
            ("etchy: ", "sk-etchy: "),
            (&key[..50], ""),
            (&key[50..], "***house key***"),
            ("\\", ""),
            ("n", "\\n"),
            ("é!", "é!"),
        ] {
            assert_eq!(stream.push_text(piece), passed, "{piece}");
        }
        assert_eq!((stream.push(&"é".as_bytes()[..1]), stream.push(&"é".as_bytes()[1..])), (Vec::new(), "é".as_bytes().to_vec()));
        assert_eq!(stream.finish(), b"");
    }

    proptest! {
        #[test]
        fn base64_is_found_wherever_it_begins(before in prop::collection::vec(any::<u8>(), 0..5), value in "[!-~]{8,24}", after in prop::collection::vec(any::<u8>(), 0..5)) {
            prop_assume!(!value.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let secrets = secrets(&[("V", &value)]);
            let all: Vec<u8> = [before, value.clone().into_bytes(), after].concat();
            let cleaned = secrets.text(&super::forms::base64(&all, 0, false)).into_owned();
            prop_assert!(cleaned.contains("***V***"), "{}", cleaned);
        }

        #[test]
        fn a_stream_is_cleaned_the_same_however_it_is_cut(texts in prop::collection::vec(prop_oneof![Just("s3cr3t-value".to_owned()), Just("s3cr3t-".to_owned()), Just("czNjcjN0LXZhbHVl".to_owned()), Just("czNjcjN0LX\\r\\nZhbHVl".to_owned()), "[a-z0-9-]{0,6}", "[\\\\]{0,3}[\nnré]"], 0..8), cuts in prop::collection::vec(0_usize..40, 0..6)) {
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
