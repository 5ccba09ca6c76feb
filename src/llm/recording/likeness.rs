//! When two requests are the same.
//!
//! Two runs of the same differ by nature: in the run's name, the folders it works in, the ids of the commits it makes, temporary
//! names, the date, and the times that commands take. Each of these is compared as what it is and not as what it says; commits and
//! other made names are told apart by the order in which a conversation first speaks of them. The id of a commit may happen to be a
//! number or a word: it is an id where it stands for one. What a reply of the recording says of them is put into this run's words.
use super::RunPlace;
use aho_corasick::{AhoCorasick, MatchKind};

/// Shorter words of hexadecimal digits are no commit: git abbreviates to 7.
const ID_MIN: usize = 7;
const ID_MAX: usize = 64;
/// A session that is named after a commit, and how much of it the name holds.
const SESSION: &str = "resolver-";
const SHORT: usize = 8;
/// How `mktemp`, and Python, name a temporary file: this, and so many letters, digits and `_`.
const TEMPORARY: [(&str, usize); 2] = [("tmp.", 10), ("tmp", 8)];
const UUID: &str = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
/// Words of dates as programs spell them.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The longest piece of a text that is shown around a difference, in characters: before it, and from it on.
const BEFORE: usize = 40;
const AFTER: usize = 120;

/// A request taken to pieces, its run's own names replaced.
#[derive(Debug)]
pub(super) struct Likeness {
    parts: Vec<Vec<Piece>>,
}

/// One piece of a text, as it is spelled.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// What must be the same.
    Text(String),
    /// A measured time.
    Time(String),
    /// A moment.
    Date(String),
    /// A name that the run has made: the id of a commit, a temporary file.
    Made(String),
    /// A number or a word that may be the id of a commit.
    MayBeMade(String),
}

impl Piece {
    fn text(&self) -> &str {
        match self {
            Piece::Text(text) | Piece::Time(text) | Piece::Date(text) | Piece::Made(text) | Piece::MayBeMade(text) => text,
        }
    }
}

impl Likeness {
    pub(super) fn of<'t>(parts: impl IntoIterator<Item = &'t str>, place: &RunPlace) -> Likeness {
        let names = names(place);
        let named = |part: &str| names.iter().fold(part.to_owned(), |text, (found, word)| text.replace(found, word));
        Likeness { parts: parts.into_iter().map(|part| pieces(&named(part))).collect() }
    }
}

/// Names that the recorded run has made, each with the one that stands for it in this run.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// In the order in which they were first spoken of, in the longest spelling.
    names: Vec<(String, String)>,
    /// In every spelling.
    spelled: Vec<(String, String)>,
}

impl Pairs {
    /// Finds what stands for what in two requests, `then` and `now`.
    ///
    /// # Errors
    /// The first part that is another, counted from 0, as it is in each; absent where it has none.
    pub(super) fn of(then: &Likeness, now: &Likeness) -> Result<Pairs, (usize, [Option<String>; 2])> {
        let mut pairs = Pairs::default();
        let same = then.parts.iter().zip(&now.parts).take_while(|(then, now)| pairs.are_alike(then, now)).count();
        let rest = [then.parts.get(same), now.parts.get(same)];
        if rest == [None, None] {
            return Ok(pairs);
        }
        let (thens, nows) = pairs.names.into_iter().unzip();
        let [then, now] = rest;
        Err((same, [then.map(|part| shown(part, thens)), now.map(|part| shown(part, nows))]))
    }

    fn are_alike(&mut self, then: &[Piece], now: &[Piece]) -> bool {
        then.len() == now.len() && then.iter().zip(now).all(|(then, now)| self.is_alike(then, now))
    }

    fn is_alike(&mut self, then: &Piece, now: &Piece) -> bool {
        match (then, now) {
            (Piece::Time(_), Piece::Time(_)) | (Piece::Date(_), Piece::Date(_)) => true,
            (Piece::Made(then), Piece::Made(now) | Piece::MayBeMade(now)) | (Piece::MayBeMade(then), Piece::Made(now)) => self.stands_for(then, now),
            (Piece::MayBeMade(then), Piece::MayBeMade(now)) if self.places(then, now) != (None, None) => self.stands_for(then, now),
            (then, now) => then == now,
        }
    }

    /// Returns which of the names these two are.
    fn places(&self, then: &str, now: &str) -> (Option<usize>, Option<usize>) {
        let then = self.names.iter().position(|(name, _)| is_short_for(then, name));
        (then, self.names.iter().position(|(_, name)| is_short_for(now, name)))
    }

    fn stands_for(&mut self, then: &str, now: &str) -> bool {
        match self.places(then, now) {
            (None, None) => self.names.push((then.to_owned(), now.to_owned())),
            (Some(place), Some(same)) if place == same => {
                let (longest, other) = &mut self.names[place];
                lengthen(longest, then);
                lengthen(other, now);
            }
            _ => return false,
        }
        self.spelled.push((then.to_owned(), now.to_owned()));
        true
    }

    /// Puts what the recording says of its run, `there`, into the words of this one.
    pub(super) fn translate(&self, text: &str, there: &RunPlace, here: &RunPlace) -> String {
        let places = names(there).into_iter().zip(names(here)).map(|((from, _), (to, _))| (from, to));
        let (from, to): (Vec<String>, Vec<String>) = places.filter(|(from, to)| from != to && !from.is_empty()).unzip();
        let text = match AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&from) {
            Ok(search) if !from.is_empty() => search.replace_all(text, &to),
            _ => text.to_owned(),
        };
        pieces(&text).iter().map(|piece| self.translated(piece)).collect()
    }

    fn translated<'p>(&'p self, piece: &'p Piece) -> &'p str {
        let (Piece::Made(word) | Piece::MayBeMade(word)) = piece else { return piece.text() };
        let spelled = self.spelled.iter().find(|(then, _)| then == word).map(|(_, now)| now.as_str());
        let shorter = || self.names.iter().find(|(then, _)| then.starts_with(word)).and_then(|(_, now)| now.get(..word.len()));
        spelled.or_else(shorter).unwrap_or(word)
    }
}

fn is_short_for(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn lengthen(name: &mut String, spelled: &str) {
    if spelled.len() > name.len() {
        spelled.clone_into(name);
    }
}

/// Writes a text for people, what differs by nature as what it is. `names` are those that were spoken of before.
fn shown(part: &[Piece], mut names: Vec<String>) -> String {
    let shown = |piece: &Piece| {
        let word = piece.text();
        let place = names.iter().position(|name| is_short_for(word, name));
        match piece {
            Piece::Time(_) => "<time>".to_owned(),
            Piece::Date(_) => "<date>".to_owned(),
            Piece::Made(_) => {
                let place = place.unwrap_or(names.len());
                if place == names.len() {
                    names.push(word.to_owned());
                }
                format!("<{} {}>", if is_hexadecimal(word) { "commit" } else { "name" }, place + 1)
            }
            Piece::MayBeMade(_) => place.map_or(word.to_owned(), |place| format!("<commit {}>", place + 1)),
            Piece::Text(text) => text.clone(),
        }
    };
    part.iter().map(shown).collect()
}

/// Takes a text to pieces: together they are the text.
fn pieces(text: &str) -> Vec<Piece> {
    let (mut found, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while !rest.is_empty() {
        let (kind, length) = first(rest, &plain);
        let (piece, behind) = rest.split_at(length);
        match kind {
            None => plain.push_str(piece),
            Some(kind) => {
                if !plain.is_empty() {
                    found.push(Piece::Text(std::mem::take(&mut plain)));
                }
                found.push(kind(piece.to_owned()));
            }
        }
        rest = behind;
    }
    if !plain.is_empty() {
        found.push(Piece::Text(plain));
    }
    found
}

/// Returns what a text begins with and its length; no kind where that is nothing particular. `before` is what stands before it.
fn first(text: &str, before: &str) -> (Option<fn(String) -> Piece>, usize) {
    if text.starts_with('\\') {
        return (None, escape(text));
    }
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    if end == 0 {
        return (None, text.chars().next().map_or(0, char::len_utf8));
    }
    if let Some(length) = duration(text) {
        return (Some(Piece::Time), length);
    }
    if let Some(length) = date(text) {
        return (Some(Piece::Date), length);
    }
    if let Some(length) = shape(UUID, text).or_else(|| temporary(text).filter(|_| before.ends_with('/'))).filter(|length| !text[*length..].starts_with(is_word))
    {
        return (Some(Piece::Made), length);
    }
    let word = &text[..end];
    let is_described = before.ends_with('-') && word.strip_prefix('g').is_some_and(may_be_id);
    match word {
        _ if is_id(word) || (before.ends_with(SESSION) && is_commit(word)) => (Some(Piece::Made), end),
        _ if may_be_id(word) => (Some(Piece::MayBeMade), end),
        // As `git describe` spells one.
        _ if is_described => (None, 1),
        _ => (None, end),
    }
}

/// Returns the length of an escape of JSON at the start: it ends the word before it and is no part of the one behind it. One that
/// begins a colour of a terminal has that with it.
fn escape(text: &str) -> usize {
    let colour = text.strip_prefix("\\u001b[").and_then(|colour| colour.find(|c: char| !c.is_ascii_digit() && c != ';'));
    let end = match colour {
        Some(end) => "\\u001b[".len() + end + 1,
        None if text.starts_with("\\u") => "\\u001b".len(),
        None => 2,
    };
    (end..text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len())
}

/// Says where two texts differ.
pub(super) fn difference(then: &str, now: &str) -> String {
    let same = then.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
    let piece = |text: &str| {
        let from = same.saturating_sub(BEFORE);
        let piece: String = text.chars().skip(from).take(same - from + AFTER).collect();
        let more = text.chars().nth(same + AFTER).is_some();
        format!("{}{piece}{}", if from > 0 { "…" } else { "" }, if more { "…" } else { "" })
    };
    format!("recorded: {}\nnow:      {}", piece(then), piece(now))
}

/// What a run calls itself and its folders, the longest first, since one may stand in another.
fn names(place: &RunPlace) -> [(String, &'static str); 3] {
    [(place.worktrees.display().to_string(), "<worktrees>"), (place.checkout.display().to_string(), "<checkout>"), (place.run.0.clone(), "<run>")]
}

/// Names a conversation without the commits that a session may be named after.
pub(super) fn conversation(node: &str) -> String {
    node.split('-').map(|word| if is_commit(word) { "<commit>" } else { word }).collect::<Vec<_>>().join("-")
}

/// What a session's name holds of a commit may be digits alone.
fn is_commit(word: &str) -> bool {
    word.len() >= SHORT && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Letters and digits both, so that neither a number nor a word is taken for an id.
fn is_id(word: &str) -> bool {
    may_be_id(word) && word.bytes().any(|byte| byte.is_ascii_digit()) && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

fn may_be_id(word: &str) -> bool {
    (ID_MIN..=ID_MAX).contains(&word.len()) && is_hexadecimal(word)
}

fn is_hexadecimal(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the length of a measured time at the start: `0.03s`, `12 ms`, `3 seconds`, `2 minutes`, `1m 02.5s`.
fn duration(text: &str) -> Option<usize> {
    let minutes = digits(text)?;
    let seconds = || {
        let behind = text[minutes..].strip_prefix('m')?;
        let behind = behind.strip_prefix(' ').unwrap_or(behind);
        Some(text.len() - behind.len() + measured(behind, &["s"])?)
    };
    seconds().or_else(|| measured(text, &["s", "ms", "us", "µs", "ns", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes"]))
}

/// Returns the length of a number and one of these units at the start.
fn measured(text: &str, units: &[&str]) -> Option<usize> {
    let whole = digits(text)?;
    let part = text[whole..].strip_prefix('.').and_then(digits).map_or(0, |length| length + 1);
    let number = whole + part;
    let space = usize::from(text[number..].starts_with(' '));
    let unit = &text[number + space..];
    let length = unit.find(|c: char| !is_word(c)).unwrap_or(unit.len());
    // A commit and what it says may look like a time: a number of so many digits, and the name of a step.
    let is_commit = part == 0 && space == 1 && may_be_id(&text[..whole]) && (unit.starts_with('s') || unit[length..].starts_with('/'));
    (units.contains(&&unit[..length]) && !is_commit).then_some(number + space + length)
}

/// Returns the length of a moment at the start: a date with the time of day where there is one, a time of day with seconds, or
/// the seconds since the epoch.
fn date(text: &str) -> Option<usize> {
    let day = shape("9999-99-99", text);
    let length = match day {
        Some(day) => day + text[day..].strip_prefix(['T', ' ']).and_then(time_of_day).map_or(0, |length| length + 1),
        None => [time_of_day(text), spelled(text), epoch(text)].into_iter().flatten().next()?,
    };
    (!text[length..].starts_with(is_word)).then_some(length)
}

/// `15:04:42`, with a fraction and a zone where there are some.
fn time_of_day(text: &str) -> Option<usize> {
    let mut end = shape("99:99:99", text)?;
    end += text[end..].strip_prefix(['.', ',']).and_then(digits).map_or(0, |length| length + 1);
    let zone = &text[end..];
    let zone = ["+99:99", "-99:99", "+9999", "-9999"].iter().find_map(|wanted| shape(wanted, zone)).unwrap_or(usize::from(zone.starts_with('Z')));
    Some(end + zone)
}

/// `Mon Nov 30 15:04:42 2026 +0000`, `Mon, 30 Nov 2026 15:04:42 GMT`, `Nov 30 15:04`: at least a month and two numbers.
fn spelled(text: &str) -> Option<usize> {
    let (mut end, mut at, mut months, mut numbers) = (0, 0, 0, 0);
    loop {
        let word_end = text[at..].find(|c: char| !is_word(c) && !matches!(c, ':' | '+' | '-')).map_or(text.len(), |length| at + length);
        let word = &text[at..word_end];
        let is_number = ["9", "99", "9999", "99:99", "99:99:99", "+9999", "-9999"].iter().any(|wanted| shape(wanted, word) == Some(word.len()));
        if MONTHS.contains(&word) {
            months += 1;
        } else if is_number {
            numbers += 1;
        } else if !DAYS.contains(&word) && (end == 0 || !matches!(word, "UTC" | "GMT" | "AM" | "PM")) {
            break;
        }
        end = word_end;
        let gap = text[end..].bytes().take_while(|byte| matches!(byte, b' ' | b',')).count();
        if gap == 0 || gap > 2 {
            break;
        }
        at = end + gap;
    }
    (months == 1 && numbers >= 2).then_some(end)
}

/// Returns the length of the name of a temporary file at the start.
fn temporary(text: &str) -> Option<usize> {
    let of = |(start, letters): &(&str, usize)| {
        let length = start.len() + letters;
        let name = text.get(..length)?.strip_prefix(start)?;
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(length)
    };
    TEMPORARY.iter().find_map(of)
}

/// Seconds, milliseconds or nanoseconds since the epoch, in this century's middle.
fn epoch(text: &str) -> Option<usize> {
    let length = digits(text)?;
    (matches!(length, 10 | 13 | 19) && (text.starts_with("17") || text.starts_with("18") || text.starts_with("19"))).then_some(length)
}

/// Returns the length of a shape if a text begins with it: a 9 stands for any digit, an h for one in hexadecimal.
fn shape(shape: &str, text: &str) -> Option<usize> {
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'9' => byte.is_ascii_digit(),
        b'h' => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        wanted => byte == wanted,
    };
    (text.len() >= shape.len() && text.bytes().zip(shape.bytes()).all(fits)).then_some(shape.len())
}

fn digits(text: &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then_some(length)
}
