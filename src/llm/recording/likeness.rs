//! When two requests are the same.
//!
//! Two runs of the same differ by nature: in the run's name, the folders it works in, the ids of the commits it makes, the date, and
//! the times that commands take. Each of these is compared as what it is and not as what it says; commits are
//! told apart by the order in which a conversation first names them. What a reply of the recording says of them is put into this run's
//! words.
use super::RunPlace;
use aho_corasick::{AhoCorasick, MatchKind};

/// Shorter words of hexadecimal digits are no commit: git abbreviates to 7.
const ID_MIN: usize = 7;
const ID_MAX: usize = 64;
/// A session that is named after a commit, and how much of it the name holds.
const SESSION: &str = "resolver-";
const SHORT: usize = 8;
/// Words of dates as programs spell them.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The longest piece of a text that is shown around a difference, in characters: before it, and from it on.
const BEFORE: usize = 40;
const AFTER: usize = 120;

/// A request without what differs by nature, and what stood in its place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Likeness {
    pub(super) parts: Vec<String>,
    /// The ids of commits as they were spelled, in order.
    spelled: Vec<String>,
    /// The different ones, in order.
    ids: Vec<String>,
}

impl Likeness {
    pub(super) fn of<'t>(parts: impl IntoIterator<Item = &'t str>, place: &RunPlace) -> Likeness {
        let mut likeness = Likeness::default();
        for part in parts {
            let mut text = part.to_owned();
            for (found, word) in names(place) {
                text = text.replace(&found, word);
            }
            let text = likeness.scan(&text);
            likeness.parts.push(text);
        }
        likeness
    }

    /// Replaces ids, dates and times.
    fn scan(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first == '\\' {
                // In JSON an escape ends the word before it and is no part of the one behind it.
                let end = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            if end == 0 {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            } else if let Some(length) = duration(rest) {
                out.push_str("<time>");
                rest = &rest[length..];
            } else if let Some(length) = date(rest) {
                out.push_str("<date>");
                rest = &rest[length..];
            } else {
                let (word, after) = rest.split_at(end);
                if is_id(word) || (out.ends_with(SESSION) && is_commit(word)) {
                    out.push_str(&self.id(word));
                } else {
                    out.push_str(word);
                }
                rest = after;
            }
        }
        out
    }

    fn id(&mut self, word: &str) -> String {
        self.spelled.push(word.to_owned());
        let known = self.ids.iter().position(|id| id.starts_with(word) || word.starts_with(id.as_str()));
        let number = known.unwrap_or_else(|| {
            self.ids.push(word.to_owned());
            self.ids.len() - 1
        });
        format!("<commit {}>", number + 1)
    }
}

/// Puts what the recording says of its run into the words of this one.
pub(super) fn translate(text: &str, (then, there): (&Likeness, &RunPlace), (now, here): (&Likeness, &RunPlace)) -> String {
    let places = names(there).into_iter().zip(names(here)).map(|((from, _), (to, _))| (from, to));
    let ids = then.spelled.iter().cloned().zip(now.spelled.iter().cloned());
    let (from, to): (Vec<String>, Vec<String>) = places.chain(ids).filter(|(from, to)| from != to && !from.is_empty()).unzip();
    match AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&from) {
        Ok(search) if !from.is_empty() => search.replace_all(text, &to),
        _ => text.to_owned(),
    }
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
    (ID_MIN..=ID_MAX).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Returns the length of a measured time at the start: `0.03s`, `12 ms`, `3 seconds`.
fn duration(text: &str) -> Option<usize> {
    let whole = digits(text)?;
    let part = text[whole..].strip_prefix('.').and_then(digits).map_or(0, |length| length + 1);
    let number = whole + part;
    let space = usize::from(text[number..].starts_with(' '));
    let unit = &text[number + space..];
    let length = unit.find(|c: char| !is_word(c)).unwrap_or(unit.len());
    matches!(&unit[..length], "s" | "ms" | "us" | "µs" | "ns" | "sec" | "secs" | "second" | "seconds").then_some(number + space + length)
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

/// Seconds, milliseconds or nanoseconds since the epoch, in this century's middle.
fn epoch(text: &str) -> Option<usize> {
    let length = digits(text)?;
    (matches!(length, 10 | 13 | 19) && (text.starts_with("17") || text.starts_with("18") || text.starts_with("19"))).then_some(length)
}

/// Returns the length of a shape, where a 9 stands for any digit, if a text begins with it.
fn shape(shape: &str, text: &str) -> Option<usize> {
    let fits = |(byte, wanted): (u8, u8)| if wanted == b'9' { byte.is_ascii_digit() } else { byte == wanted };
    (text.len() >= shape.len() && text.bytes().zip(shape.bytes()).all(fits)).then_some(shape.len())
}

fn digits(text: &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then_some(length)
}
