//! What is compared of two requests, and what is not.
use super::{
    RunPlace,
    likeness::{Likeness, conversation, difference, translate},
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
        ("May 3", "May 4"),
        ("src/a.rs:12:34", "src/a.rs:12:35"),
        ("1234567890", "1234567891"),
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

#[test]
fn moments_are_alike_however_they_are_spelled() {
    let here = place("r-1", "/x");
    for (then, now) in [
        ("Date:   Mon Nov 30 15:04:42 2026 +0000", "Date:   Tue Dec 1 09:00:00 2026 +0100"),
        ("Mon, 30 Nov 2026 15:04:42 GMT", "Tue, 01 Dec 2026 09:00:00 GMT"),
        ("-rw-r--r-- 1 a b 5 Nov 30 15:04 x.txt", "-rw-r--r-- 1 a b 5 Dec 31 09:15 x.txt"),
        ("2026-11-30T15:01:53+00:00", "2026-12-01T09:00:00-01:00"),
        ("2026-11-30 15:01:53.123456789 +0000", "2026-12-01 09:00:00.5 +0000"),
        ("it is 15:01:53 now", "it is 09:00:00 now"),
        ("1796000000", "1796000001"),
    ] {
        assert_eq!(like(&[then], &here).parts, like(&[now], &here).parts, "{then} / {now}");
    }
}

#[test]
fn sessions_named_after_a_commit_are_found_again() {
    assert_eq!(conversation("land:resolver-12345678-1"), conversation("land:resolver-477bffff-1"));
    assert_ne!(conversation("land:resolver-477bffff-1"), conversation("land:resolver-477bffff-2"));
    assert_eq!(conversation("build/left"), "build/left");
    let here = place("other-9z", "/x");
    let (then, now) = (like(&["in land__resolver-12345678-1"], &here), like(&["in land__resolver-477bffff-1"], &here));
    assert_eq!(then.parts, now.parts);
}
