//! Refs move by compare-and-swap, and only ours.
use crate::git::{Expected, GitError, RefMove, fixture::Fixture};

#[test]
fn a_ref_moves_only_from_where_it_was_expected() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.commit("a"), fixture.commit("b"));
    let repository = fixture.open();
    let name = "refs/spinney/run-1/step/result";
    let moved = |result| assert!(matches!(result, Err(GitError::RefMoved { .. })), "{result:?}");
    moved(repository.set_ref(name, &b, Expected::At(a.clone())));
    repository.set_ref(name, &a, Expected::Absent).expect("it was absent");
    moved(repository.set_ref(name, &b, Expected::Absent));
    moved(repository.set_ref(name, &a, Expected::At(b.clone())));
    repository.set_ref(name, &b, Expected::At(a.clone())).expect("it was there");
    repository.set_ref(name, &a, Expected::Any).expect("anything goes");
    moved(repository.delete_ref(name, &b));
    assert_eq!(repository.refs("refs/spinney/run-1").expect("git works"), [(name.to_owned(), a.clone())]);
    repository.delete_ref(name, &a).expect("it was there");
    assert_eq!(repository.ref_at(name).expect("git works"), None);
}

#[test]
fn many_refs_move_together_or_not_at_all() {
    let fixture = Fixture::new();
    let a = fixture.commit("a");
    let repository = fixture.open();
    let to = |name: &str, expected| RefMove { name: name.to_owned(), to: Some(a.clone()), expected };
    let moves = [to("refs/spinney/r/one", Expected::Absent), to("refs/spinney/r/two", Expected::At(a.clone()))];
    assert!(matches!(repository.move_refs(&moves), Err(GitError::RefMoved { .. })));
    assert_eq!(repository.refs("refs/spinney").expect("git works"), []);
}

#[test]
fn refs_of_others_are_out_of_reach() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.commit("a"), fixture.commit("b"));
    let repository = fixture.open();
    let branch = "refs/heads/spinney/run-1";
    for (name, expected) in [
        ("refs/heads/main", Expected::Any),
        ("HEAD", Expected::Any),
        ("refs/spinney/../heads/main", Expected::Any),
        ("refs/spinney/x\0y", Expected::Any),
        (branch, Expected::Any),
    ] {
        assert!(repository.set_ref(name, &a, expected).is_err(), "{name}");
    }
    repository.set_ref(branch, &a, Expected::Absent).expect("it is created");
    assert!(matches!(repository.set_ref(branch, &b, Expected::Absent), Err(GitError::RefMoved { .. })));
    assert!(matches!(repository.set_ref(branch, &b, Expected::At(a.clone())), Err(GitError::ForeignRef { .. })));
    assert!(matches!(repository.delete_ref(branch, &a), Err(GitError::ForeignRef { .. })));
    assert_eq!(fixture.git(&["rev-parse", "main"]), b.0);
}
