//! The fold refuses what cannot have happened: a real log with records left out, repeated, swapped or moved is refused at
//! some record, or it is one that the invariants of all logs hold for; and it never panics.
use super::life;
use crate::invariants;
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};
use spinney::{clock::Timestamp, event::Record, journal::RunState};
use std::cell::Cell;

#[derive(Debug, Clone)]
enum Change {
    Drop(Index),
    Repeat(Index, Index),
    Swap(Index, Index),
    Move(Index, Index),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let (one, two) = (any::<Index>, any::<(Index, Index)>);
    prop_oneof![
        one().prop_map(Change::Drop),
        two().prop_map(|(from, to)| Change::Repeat(from, to)),
        two().prop_map(|(a, b)| Change::Swap(a, b)),
        two().prop_map(|(from, to)| Change::Move(from, to)),
        one().prop_map(Change::Cut),
    ]
}

/// Makes the changes and numbers the records anew, so that it is not their numbers that give them away.
fn changed(records: &[Record], changes: &[Change]) -> Vec<Record> {
    let mut records = records.to_vec();
    for change in changes {
        let at = |index: &Index| index.index(records.len().max(1)).min(records.len().saturating_sub(1));
        match change {
            _ if records.is_empty() => {}
            Change::Drop(one) => drop(records.remove(at(one))),
            Change::Repeat(from, to) => records.insert(at(to), records[at(from)].clone()),
            Change::Swap(a, b) => {
                let (a, b) = (at(a), at(b));
                records.swap(a, b);
            }
            Change::Move(from, to) => {
                let to = at(to);
                let record = records.remove(at(from));
                records.insert(to.min(records.len()), record);
            }
            Change::Cut(one) => records.truncate(at(one)),
        }
    }
    for (seq, record) in records.iter_mut().enumerate() {
        record.seq = seq as u64;
        record.at = Timestamp(seq as u64);
    }
    records
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    let (plan, records) = life::log();
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let accepted = Cell::new(0);
    TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha))
        .run(&proptest::collection::vec(change(), 1..4), |changes| {
            let records = changed(&records, &changes);
            if RunState::replay(plan.clone(), &records).is_ok() {
                accepted.set(accepted.get() + 1);
                invariants::of_log(&records);
            }
            Ok(())
        })
        .unwrap();
    // A record of one node may as well stand before one of another, and a log may be cut anywhere; most changes are none of that.
    assert!((100..1000).contains(&accepted.get()), "{} of 2000 changed logs are accepted", accepted.get());
}
