//! Matchers: which tools (or other subjects of an event) a hook is asked about.
//!
//! Absent, empty or `*` means all. Text made of names and separators only is a set of exact names. Anything else is a
//! JavaScript regular expression, tested without anchors.
use super::{
    names,
    on::{On, Subject},
};
use regress::Regex;

/// A pattern longer than this is refused.
const MAX_PATTERN_BYTES: usize = 2_000;
/// A subject longer than this never meets a pattern: backtracking must stay short.
const MAX_SUBJECT_BYTES: usize = 256;

/// A compiled matcher.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    /// Everything.
    All,
    /// These names.
    Names(Vec<String>),
    /// What the pattern is found in.
    Pattern(Box<Regex>),
}

/// A matcher that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadMatcher {
    /// The regular expression does not parse.
    #[error("read matcher `{0}` as a JavaScript regular expression: {1}")]
    Pattern(String, String),
    /// It is too long.
    #[error("take a matcher of more than {MAX_PATTERN_BYTES} bytes")]
    TooLong,
}

impl Matcher {
    /// Reads a matcher as it stands in a hook file.
    pub(super) fn parse(on: On, text: Option<&str>) -> Result<Matcher, BadMatcher> {
        let Some(text) = text.filter(|text| !text.is_empty() && *text != "*") else { return Ok(Matcher::All) };
        let separators: &[char] = match on.subject() {
            Subject::Nothing => return Ok(Matcher::All),
            Subject::Plain => &['|'],
            Subject::Tool | Subject::Field => &['|', ','],
        };
        let plain = match on.subject() {
            Subject::Plain => text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_|".contains(&b)),
            Subject::Nothing | Subject::Tool | Subject::Field => text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_- ,|".contains(&b)),
        };
        if plain {
            return Ok(Matcher::Names(text.split(separators).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()));
        }
        if text.len() > MAX_PATTERN_BYTES {
            return Err(BadMatcher::TooLong);
        }
        Regex::new(text).map(|regex| Matcher::Pattern(Box::new(regex))).map_err(|error| BadMatcher::Pattern(text.to_owned(), error.to_string()))
    }

    /// Returns whether a subject is met, under any of its names.
    pub(super) fn matches(&self, subject: &str) -> bool {
        match self {
            Matcher::All => true,
            Matcher::Names(set) => names::spellings(subject).any(|name| set.iter().any(|one| one == name)),
            Matcher::Pattern(regex) => subject.len() <= MAX_SUBJECT_BYTES && names::spellings(subject).any(|name| regex.find(name).is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_known_cases_hold() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/cases/matcher.json")).unwrap();
        assert!(cases.len() > 15);
        for case in cases {
            let on = On::named(case["event"].as_str().unwrap()).unwrap();
            let found = Matcher::parse(on, case["matcher"].as_str()).map(|matcher| matcher.matches(case["value"].as_str().unwrap()));
            assert_eq!(found.ok(), case["expect"].as_bool(), "{case}");
        }
    }

    #[test]
    fn broken_patterns_are_errors_and_never_match_by_accident() {
        assert!(Matcher::parse(On::PreToolUse, Some("tools:Write AND file_paths:**/*.py")).is_err());
        assert!(Matcher::parse(On::PreToolUse, Some("(")).is_err());
        assert_eq!(Matcher::parse(On::PreToolUse, Some(&"(a)".repeat(1_000))).unwrap_err(), BadMatcher::TooLong);
        let rule = Matcher::parse(On::PreToolUse, Some("Bash(git commit:*)")).unwrap();
        assert!(!rule.matches("Bash"));
        let greedy = Matcher::parse(On::PreToolUse, Some("(a+)+$")).unwrap();
        assert!(!greedy.matches(&format!("{}b", "a".repeat(10_000))));
    }
}
