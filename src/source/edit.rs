//! Changes of a source, and their making.
use super::Span;

/// A change of a source: the bytes of the span give way to the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty where something is put in.
    pub span: Span,
    /// What stands there then.
    pub text: String,
}

/// Makes changes in a text, and returns it with those that were made, in order. Of those that touch the same bytes the first counts.
pub fn apply<'e>(text: &str, edits: &[&'e Edit]) -> (String, Vec<&'e Edit>) {
    let mut edits: Vec<&'e Edit> = edits.to_vec();
    edits.sort_by_key(|edit| (edit.span, &edit.text));
    let (mut changed, mut at, mut made) = (String::with_capacity(text.len()), 0, Vec::new());
    for edit in edits {
        // Two things that are put in at one place would depend on their order, and the same one may be asked for twice.
        let again = made.last().is_some_and(|last: &&Edit| last.span.start == edit.span.start);
        let Some(between) = text.get(at..edit.span.start).filter(|_| !again && text.get(edit.span.range()).is_some()) else { continue };
        changed.push_str(between);
        changed.push_str(&edit.text);
        at = edit.span.end;
        made.push(edit);
    }
    changed.push_str(text.get(at..).unwrap_or_default());
    (changed, made)
}

/// Finds the one place inside a span where a word stands whole.
pub(super) fn find_word(text: &str, span: Span, word: &str) -> Option<Span> {
    let within = text.get(span.range()).filter(|_| !word.is_empty())?;
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let whole = |at: usize| !within[..at].ends_with(part) && !within[at + word.len()..].starts_with(part);
    let mut places = within.match_indices(word).map(|(at, _)| at).filter(|at| whole(*at));
    let at = places.next().filter(|_| places.next().is_none())?;
    Some(Span { start: span.start + at, end: span.start + at + word.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: usize, end: usize, text: &str) -> Edit {
        Edit { span: Span { start, end }, text: text.to_owned() }
    }

    #[test]
    fn changes_are_made_in_their_order_and_those_that_clash_once() {
        let edits = [edit(4, 4, "!"), edit(0, 2, "o"), edit(4, 4, "!"), edit(1, 3, "x"), edit(90, 91, "y")];
        assert_eq!(apply("abcdé", &edits.iter().collect::<Vec<_>>()), ("ocd!é".to_owned(), vec![&edits[1], &edits[0]]));
        assert_eq!(apply("é", &[&edit(1, 1, "x")]), ("é".to_owned(), Vec::new()), "inside a letter nothing is put");
    }

    #[test]
    fn a_word_is_found_where_it_stands_once_and_whole() {
        let find = |text: &str, word: &str| find_word(text, Span { start: 0, end: text.len() }, word).map(|span| span.start);
        assert_eq!(find("steps.plan.outptu", "outptu"), Some(11));
        assert_eq!(find("\"nedes\"", "nedes"), Some(1));
        assert_eq!(find("a.b.a", "a"), None);
        assert_eq!(find("build-all", "build"), None);
        assert_eq!(find("x", ""), None);
    }
}
