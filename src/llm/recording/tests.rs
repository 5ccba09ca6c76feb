//! What is compared of two requests, and what is not.
use super::{
    RunPlace,
    likeness::{Likeness, difference, translate},
};
use crate::event::RunId;

fn place(run: &str, below: &str) -> RunPlace {
    RunPlace { run: RunId(run.to_owned()), worktrees: format!("{below}/trees/{run}").into(), checkout: format!("{below}/repo").into() }
}

fn like(texts: &[&str], place: &RunPlace) -> Likeness {
    Likeness::of(texts.iter().copied(), place)
}

#[test]
fn what_differs_by_nature_is_compared_as_what_it_is() {
    let (there, here) = (place("first-ab12cd", "/home/a"), place("first-xy98zw", "/tmp/b"));
    let then = like(
        &[
            r"You stand in /home/a/trees/first-ab12cd/work\nfrom 1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c on 2026-11-30",
            r"see /home/a/repo\n1f0c1f0 begin\nab12cd9 more\nfinished in 0.03s, 12 ms",
        ],
        &there,
    );
    let now = like(
        &[
            r"You stand in /tmp/b/trees/first-xy98zw/work\nfrom 99aa99aa99aa99aa99aa99aa99aa99aa99aa99aa on 2026-12-01",
            r"see /tmp/b/repo\n99aa99a begin\n77ee77e more\nfinished in 1.25s, 9 ms",
        ],
        &here,
    );
    assert_eq!(then.parts, now.parts);
    assert_eq!(then.parts[1], r"see <checkout>\n<commit 1> begin\n<commit 2> more\nfinished in <time>, <time>");
    let said = r#"{"command":"cd /home/a/trees/first-ab12cd/work && git show 1f0c1f0 ab12cd9 1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c"}"#;
    let heard = translate(said, (&then, &there), (&now, &here));
    assert_eq!(heard, r#"{"command":"cd /tmp/b/trees/first-xy98zw/work && git show 99aa99a 77ee77e 99aa99aa99aa99aa99aa99aa99aa99aa99aa99aa"}"#);
}

#[test]
fn everything_else_is_compared() {
    let here = place("r-1", "/x");
    for (then, now) in [
        ("deadbeef is a word", "facecafe is a word"),
        ("12345678", "12345679"),
        ("3 files", "4 files"),
        ("v1.2.3s4", "v1.2.4s4"),
        ("1f0c1f0 and 1f0c1f0", "1f0c1f0 and 2f0c1f0"),
        ("2026-11-300", "2026-11-301"),
        ("a\\tb", "a\\nb"),
        ("é1s", "è1s"),
    ] {
        assert_ne!(like(&[then], &here).parts, like(&[now], &here).parts, "{then} / {now}");
    }
}

#[test]
fn a_difference_is_shown_where_it_is() {
    let then = format!("{}one{}", "x".repeat(100), "y".repeat(300));
    let now = format!("{}two{}", "x".repeat(100), "y".repeat(300));
    let said = difference(&then, &now);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.lines().all(|line| line.contains("…xxxx") && line.ends_with('…')) && said.contains("one") && said.contains("two"), "{said}");
    assert_eq!(difference("", "é"), "recorded: \nnow:      é");
}
