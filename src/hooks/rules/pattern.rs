//! Wildcard patterns over texts that are only partly known.
//!
//! A command holds words whose value is settled only when it runs. Such a word is a hole in the text: a pattern may meet
//! the text for certain ([`Meet::Yes`]: whatever the hole holds), perhaps ([`Meet::Maybe`]: for some value of it), or never.

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glyph {
    /// This character.
    Char(char),
    /// Unknown text that stays within one word.
    Word,
    /// Unknown text that may become several words.
    Words,
}

/// Whether a pattern meets a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meet {
    No,
    Maybe,
    Yes,
}

/// A pattern: characters that stand for themselves, and `*` for any text, blanks included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The pattern meets a text where one of these does.
    forms: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Char(char),
    Any,
}

impl Pattern {
    /// Reads a pattern in which only `*` is special.
    pub(super) fn plain(text: &str) -> Pattern {
        Pattern { forms: vec![pieces(text)] }
    }

    /// Reads a pattern for commands: a trailing ` *` or `:*` means the end of the text, or a blank and anything.
    pub(super) fn command(text: &str) -> Pattern {
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        match text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")) {
            Some(stem) => {
                let stem = pieces(stem.trim_end());
                let longer = stem.iter().copied().chain([Piece::Char(' '), Piece::Any]).collect();
                Pattern { forms: vec![stem, longer] }
            }
            None => Pattern::plain(&text),
        }
    }

    /// Returns whether it has no `*`.
    pub(super) fn is_exact(&self) -> bool {
        !self.forms.iter().flatten().any(|piece| *piece == Piece::Any)
    }

    /// Returns whether it asks for more than the first word.
    pub(super) fn is_longer_than_a_name(&self) -> bool {
        self.forms.first().is_some_and(|form| form.contains(&Piece::Char(' ')))
    }

    /// Compares it with a text that is partly known.
    pub(super) fn meets(&self, text: &[Glyph]) -> Meet {
        if self.forms.iter().any(|form| unify(form, text, false)) {
            return Meet::Yes;
        }
        let has_holes = text.iter().any(|glyph| !matches!(glyph, Glyph::Char(_)));
        if has_holes && self.forms.iter().any(|form| unify(form, text, true)) { Meet::Maybe } else { Meet::No }
    }

    /// Compares it with a text that is wholly known.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.meets(&text.chars().map(Glyph::Char).collect::<Vec<_>>()) == Meet::Yes
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = text.chars().map(|c| if c == '*' { Piece::Any } else { Piece::Char(c) }).collect();
    pieces.dedup_by(|a, b| (*a, *b) == (Piece::Any, Piece::Any));
    pieces
}

/// Walks pattern and text side by side, row by row of the pattern, keeping which places of the text are reached.
///
/// With `open` holes a hole may stand for whatever the pattern wants; otherwise only `*` steps over it. Time is the
/// product of both lengths, and linear where the beginnings differ.
fn unify(pattern: &[Piece], text: &[Glyph], open: bool) -> bool {
    let hole = |at: usize| open && at < text.len() && !matches!(text[at], Glyph::Char(_));
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut from = 0;
    for piece in pattern {
        let mut next = vec![false; 0];
        next.resize(text.len() + 1, false);
        let (mut first, mut alive) = (usize::MAX, false);
        let mut mark = |at: usize, next: &mut Vec<bool>| {
            next[at] = true;
            first = first.min(at);
            alive = true;
        };
        for at in from..=text.len() {
            if !reached[at] {
                continue;
            }
            if hole(at) {
                reached[at + 1] = true;
            }
            match (piece, text.get(at)) {
                (Piece::Any, here) => {
                    mark(at, &mut next);
                    if here.is_some() {
                        reached[at + 1] = true;
                    }
                }
                (Piece::Char(wanted), Some(Glyph::Char(found))) if wanted == found => mark(at + 1, &mut next),
                (Piece::Char(wanted), Some(Glyph::Word)) if open && !wanted.is_whitespace() => mark(at, &mut next),
                (Piece::Char(_), Some(Glyph::Words)) if open => mark(at, &mut next),
                (Piece::Char(_), _) => {}
            }
        }
        if !alive {
            return false;
        }
        reached = next;
        from = first;
    }
    let mut at = text.len();
    while at > 0 && !reached[at] && hole(at - 1) {
        at -= 1;
    }
    reached[at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn glyphs(text: &str) -> Vec<Glyph> {
        text.chars()
            .map(|c| match c {
                '1' => Glyph::Word,
                '2' => Glyph::Words,
                c => Glyph::Char(c),
            })
            .collect()
    }

    fn meet(pattern: &str, text: &str) -> Meet {
        Pattern::command(pattern).meets(&glyphs(text))
    }

    #[test]
    fn trailing_stars_stop_at_words() {
        for (pattern, text, expected) in [
            ("rm *", "rm", true),
            ("rm:*", "rm x", true),
            ("rm *", "rmdir", false),
            ("rm*", "rmdir", true),
            ("git * main", "git push  origin main", true),
            ("git:* push", "git x push", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::command(pattern).matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn holes_are_certain_only_under_a_star() {
        assert_eq!(meet("rm *", "rm 1"), Meet::Yes);
        assert_eq!(meet("rm *", "1 x"), Meet::Maybe);
        assert_eq!(meet("rm *", "2"), Meet::Maybe);
        assert_eq!(meet("git push *", "git 1"), Meet::Maybe);
        assert_eq!(meet("git push *", "git commit -m 1"), Meet::No);
        assert_eq!(meet("git push origin", "git 1"), Meet::No, "one word is not two");
        assert_eq!(meet("git push origin", "git 2"), Meet::Maybe);
        assert_eq!(meet("rm *", "1/foo x"), Meet::No);
        assert_eq!(meet("rm", "r1"), Meet::Maybe);
        assert_eq!(meet("rm", "1"), Meet::Maybe);
    }

    #[test]
    fn long_texts_are_met_in_good_time() {
        let text: Vec<Glyph> = "a".repeat(10_000).chars().map(Glyph::Char).collect();
        assert_eq!(Pattern::plain("*a*a*a*a*a*a*a*a*b").meets(&text), Meet::No);
    }

    proptest! {
        #[test]
        fn agrees_with_a_regular_expression(pattern in "[ab *]{0,8}", text in "[ab ]{0,10}") {
            let regex = pattern.split('*').map(str::to_owned).collect::<Vec<_>>().join(".*");
            let regex = regress::Regex::new(&format!("^(?:{regex})$")).unwrap();
            prop_assert_eq!(Pattern::plain(&pattern).matches(&text), regex.find(&text).is_some());
        }
    }
}
