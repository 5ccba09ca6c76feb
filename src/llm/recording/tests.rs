//! What is compared of two requests, and what is not.
use super::{
    RunPlace,
    likeness::{Likeness, Pairs, conversation, difference},
};
use crate::event::RunId;

fn place(run: &str, below: &str) -> RunPlace {
    RunPlace { run: RunId(run.to_owned()), worktrees: format!("{below}/trees/{run}").into(), checkout: format!("{below}/repo").into() }
}

fn compare((then, there): (&[&str], &RunPlace), (now, here): (&[&str], &RunPlace)) -> Result<Pairs, (usize, [Option<String>; 2])> {
    Pairs::of(&Likeness::of(then.iter().copied(), there), &Likeness::of(now.iter().copied(), here))
}

/// Returns whether two texts are the same, in the same run.
fn are_alike(then: &str, now: &str) -> bool {
    let here = place("other-9z", "/x");
    compare((&[then], &here), (&[now], &here)).is_ok()
}

#[test]
fn what_differs_by_nature_is_compared_as_what_it_is() {
    let (there, here) = (place("first-ab12cd", "/home/a"), place("first-xy98zw", "/tmp/b"));
    let then = [
        r"You stand in /home/a/trees/first-ab12cd/work\nfrom 1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c on 2026-11-30",
        r"see /home/a/repo\n1f0c1f0 begin\nab12cd9 more\nfinished in 0.03s, 12 ms",
    ];
    let now = [
        r"You stand in /tmp/b/trees/first-xy98zw/work\nfrom 99aa99aa99aa99aa99aa99aa99aa99aa99aa99aa on 2026-12-01",
        r"see /tmp/b/repo\n99aa99a begin\n77ee77e more\nfinished in 1.25s, 9 ms",
    ];
    let pairs = compare((&then, &there), (&now, &here)).expect("they are the same");
    let said = r#"{"command":"cd /home/a/trees/first-ab12cd/work && git show 1f0c1f0 ab12cd9 1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c1f0c"}"#;
    let heard = pairs.translate(said, &there, &here);
    assert_eq!(heard, r#"{"command":"cd /tmp/b/trees/first-xy98zw/work && git show 99aa99a 77ee77e 99aa99aa99aa99aa99aa99aa99aa99aa99aa99aa"}"#);
}

#[test]
fn everything_else_is_compared() {
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
        ("1234567 bytes", "7654321 bytes"),
        ("1234567 bytes of 1f0c1f0", "7654321 bytes of 2f0c1f0"),
        ("[main 1f0c1f0] a; 1f0c1f0", "[main 1234567] a; 7654321"),
        ("5m long", "6m long"),
        ("/tmp/tmp.short", "/tmp/tmp.sharp"),
        ("tmpabcd1234", "tmpabcd1235"),
        ("é1s", "è1s"),
    ] {
        assert!(!are_alike(then, now), "{then} / {now}");
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
    for (then, now) in [
        ("Date:   Mon Nov 30 15:04:42 2026 +0000", "Date:   Tue Dec 1 09:00:00 2026 +0100"),
        ("Mon, 30 Nov 2026 15:04:42 GMT", "Tue, 01 Dec 2026 09:00:00 GMT"),
        ("-rw-r--r-- 1 a b 5 Nov 30 15:04 x.txt", "-rw-r--r-- 1 a b 5 Dec 31 09:15 x.txt"),
        ("2026-11-30T15:01:53+00:00", "2026-12-01T09:00:00-01:00"),
        ("2026-11-30 15:01:53.123456789 +0000", "2026-12-01 09:00:00.5 +0000"),
        ("it is 15:01:53 now", "it is 09:00:00 now"),
        ("1796000000", "1796000001"),
        ("real\\t0m1.234s", "real\\t1m0.002s"),
        ("done in 59.9s", "done in 1m 02s"),
        ("after 2 minutes", "after 1 minute"),
    ] {
        assert!(are_alike(then, now), "{then} / {now}");
    }
}

#[test]
fn made_names_are_alike_whatever_they_look_like() {
    for (then, now) in [
        ("[x 1f0c1f0] one", "[x 1234567] one"),
        ("[main (root-commit) 1234567] one", "[main (root-commit) abcde1a] one"),
        (r"1f0c1f0 s/3\n1234567 s/2\n", r"2f0c1f0 s/3\n3f0c1f0 s/2\n"),
        (r"1234567 ms/3\n", r"3f0c1f0 ms/3\n"),
        (r"Merge: 1234567 89abcde\n", r"Merge: 2222a22 1111111\n"),
        ("index 1f0c1f0..1234567 100644", "index 7654321..2f0c1f0 100644"),
        ("commit 1234567aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, 1234567", "commit 7654321bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb, 7654321"),
        ("1234567 is 1f0c1f0, 1234567 again", "3f0c1f0 is 2f0c1f0, 3f0c1f0 again"),
        ("v1.0-3-g1234567", "v1.0-3-gabcdef1"),
        (r"\u001b[33m1234567\u001b[m one\u00e91234567", r"\u001b[33m2f0c1f0\u001b[m one\u00e92f0c1f0"),
        ("/tmp/tmp.Ab12Cd34Ef/x", "/tmp/tmp.zzzzzzzzzz/x"),
        ("/tmp/tmpab_d1234 kept", "/tmp/tmp12345678 kept"),
        ("3f2b8c1a-0d1e-4a2b-9c3d-0123456789ab", "aaaaaaaa-1111-4222-9333-444444444444"),
    ] {
        assert!(are_alike(then, now), "{then} / {now}");
    }
}

#[test]
fn a_reply_speaks_of_what_stands_for_it_in_any_spelling() {
    let here = place("r-1", "/x");
    let then = ["commit 1234567aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa in /tmp/tmp.Ab12Cd34Ef"];
    let now = ["commit 7654321bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb in /tmp/tmp.zzzzzzzzzz"];
    let pairs = compare((&then, &here), (&now, &here)).expect("they are the same");
    let said = r"show 1234567\n12345678 of 1234567aaaa in /tmp/tmp.Ab12Cd34Ef/x";
    assert_eq!(pairs.translate(said, &here, &here), r"show 7654321\n12345678 of 7654321bbbb in /tmp/tmp.zzzzzzzzzz/x");
}

#[test]
fn a_difference_names_what_is_no_difference() {
    let here = place("r-1", "/x");
    let then = ["1f0c1f0", "1f0c1f0 and 2f0c1f0 in 3s: one"];
    let now = ["1234567", "1234567 and 89abcde in 9s: two"];
    let Err((part, [Some(then), Some(now)])) = compare((&then, &here), (&now, &here)) else { panic!("they are not the same") };
    assert_eq!((part, then.as_str(), now.as_str()), (1, "<commit 1> and <commit 2> in <time>: one", "<commit 1> and <commit 2> in <time>: two"));
}

#[test]
fn sessions_named_after_a_commit_are_found_again() {
    assert_eq!(conversation("land:resolver-12345678-1"), conversation("land:resolver-477bffff-1"));
    assert_ne!(conversation("land:resolver-477bffff-1"), conversation("land:resolver-477bffff-2"));
    assert_eq!(conversation("build/left"), "build/left");
    assert!(are_alike("in land__resolver-12345678-1", "in land__resolver-477bffff-1"));
}
