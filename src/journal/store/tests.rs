//! The journal's file: what it keeps, and what it says of every way to be broken.
use super::*;
use crate::{
    event::{Event, NodeId, StepId},
    journal::lease::tests::{is_other_process, other_process, ready_to_be_killed},
    message::{Block, Message, Raw, Role},
};
use std::fs;

fn record(seq: u64) -> Record {
    Record { seq, at: Timestamp(1000 + seq), event: Event::TimerFired { node: NodeId::step(&StepId::from("s")) } }
}

fn records(range: std::ops::Range<u64>) -> Vec<Record> {
    range.map(record).collect()
}

fn made() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(dir.path(), &RunId::from("r")).unwrap();
    (dir, store)
}

/// Changes a journal behind the store's back.
fn meddle(dir: &Path, sql: &str) {
    Connection::open(dir.join(FILE)).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn what_was_appended_is_read_in_order_and_gone_on_with() {
    let (dir, mut store) = made();
    store.append(&records(0..2), true).unwrap();
    store.append(&[], false).unwrap();
    store.append(&[], true).unwrap();
    store.append(&records(2..3), false).unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..3), "a reader beside the writer sees all that was appended");
    drop(store);
    let (mut store, found) = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(found, records(0..3));
    store.append(&records(3..5), true).unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..5));
    drop(store);
    assert_eq!(read(dir.path()).unwrap(), records(0..5));
}

#[test]
fn blocks_keep_their_bytes() {
    let (dir, mut store) = made();
    let raw = r#"{ "type":"thinking",  "signature":"\u00e9\ud83d\ude00", "n":1.50e1 ,"a":{"b":[ ]} }"#;
    let message = Message { role: Role::Assistant, blocks: vec![Block::from_raw(Raw::parse(raw).unwrap())] };
    let event = Event::OrchestratorWoken { node: NodeId::step(&StepId::from("o")), reasons: vec!["\u{0}\n\u{feff}".into()], message };
    let kept = Record { seq: 0, at: Timestamp(u64::try_from(i64::MAX).unwrap()), event };
    store.append(std::slice::from_ref(&kept), false).unwrap();
    let found = read(dir.path()).unwrap();
    assert_eq!(found, [kept]);
    assert!(matches!(&found[0].event, Event::OrchestratorWoken { message, .. } if message.blocks[0].raw().as_str() == raw));
}

#[test]
fn an_append_is_whole_or_not_at_all() {
    let (dir, mut store) = made();
    store.append(&records(0..1), false).unwrap();
    let gap = store.append(&[record(1), record(3)], false).unwrap_err();
    assert!(matches!(gap, StoreError::Gap { expected: 2, found: 3, .. }), "{gap}");
    assert!(matches!(store.append(&[record(0)], false), Err(StoreError::Gap { expected: 1, found: 0, .. })));
    store.append(&records(1..2), false).unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..2));
    let mut memory = records(0..1);
    assert!(matches!(Store::append(&mut memory, &records(2..3), true), Err(StoreError::Gap { expected: 1, found: 2, .. })));
    Store::append(&mut memory, &records(1..2), true).unwrap();
    assert_eq!(memory, records(0..2));
}

#[test]
fn a_full_disk_takes_nothing_and_is_named_and_may_have_room_again() {
    let (dir, mut store) = made();
    store.append(&records(0..1), false).unwrap();
    store.connection.pragma_update(None, "max_page_count", 1).unwrap();
    let error = (1..2000).map(record).find_map(|record| store.append(&[record], false).err()).unwrap();
    assert!(matches!(&error, StoreError::Full { path } if *path == dir.path().join(FILE)), "{error:?}");
    let kept = read(dir.path()).unwrap().len() as u64;
    store.connection.pragma_update(None, "max_page_count", 100_000).unwrap();
    store.append(&records(kept..kept + 1), true).unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..kept + 1));
}

#[test]
fn a_read_only_journal_is_named() {
    let (_dir, mut store) = made();
    store.connection.pragma_update(None, "query_only", true).unwrap();
    assert!(matches!(store.append(&records(0..1), false), Err(StoreError::ReadOnly { .. })));
    let dir = Path::new("/proc/self");
    if dir.exists() {
        let error = SqliteStore::create(dir, &RunId::from("r")).unwrap_err();
        assert!(error.to_string().contains("/proc/self/journal.db"), "{error}");
    }
}

#[test]
fn there_is_one_journal_a_run_and_never_none() {
    let (dir, store) = made();
    drop(store);
    assert!(matches!(SqliteStore::create(dir.path(), &RunId::from("r")), Err(StoreError::Exists { .. })));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(SqliteStore::open(empty.path()), Err(StoreError::Missing { .. })));
    assert!(matches!(read(empty.path()), Err(StoreError::Missing { .. })));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "looking makes no file");
    fs::write(empty.path().join(FILE), "").unwrap();
    assert!(matches!(read(empty.path()), Err(StoreError::Unbegun { .. })));
}

#[test]
fn a_second_writer_is_refused_by_the_numbers() {
    let (dir, mut store) = made();
    let (mut second, _) = SqliteStore::open(dir.path()).unwrap();
    store.append(&records(0..1), false).unwrap();
    assert!(matches!(second.append(&records(0..1), false), Err(StoreError::Overtaken { .. })));
    assert_eq!(read(dir.path()).unwrap(), records(0..1));
}

#[test]
fn every_defect_is_told_apart_and_has_its_place() {
    let defect = |sql: &str| {
        let (dir, mut store) = made();
        store.append(&records(0..4), false).unwrap();
        drop(store);
        meddle(dir.path(), sql);
        SqliteStore::open(dir.path()).unwrap_err()
    };
    assert!(matches!(defect("DELETE FROM record WHERE seq = 2"), StoreError::Gap { expected: 2, found: 3, .. }));
    assert!(matches!(defect("DELETE FROM record WHERE seq = 0"), StoreError::Gap { expected: 0, found: 1, .. }));
    assert!(matches!(defect("UPDATE record SET seq = -1 WHERE seq = 3"), StoreError::Gap { expected: 0, found: -1, .. }));
    for body in ["", "{", "{\"unheard_of\":{}}", "[]", "{\"timer_fired\":{}}"] {
        let error = defect(&format!("UPDATE record SET body = '{body}' WHERE seq = 1"));
        assert!(matches!(error, StoreError::Unparsable { seq: 1, .. }), "{body}: {error:?}");
    }
    assert!(matches!(defect("UPDATE record SET at = -5"), StoreError::Corrupt { .. }));
    assert!(matches!(defect("UPDATE record SET body = CAST(x'ff' AS TEXT)"), StoreError::Corrupt { .. }));
    for format in ["'x'", "0", "-1", "''"] {
        assert!(matches!(defect(&format!("UPDATE meta SET value = {format} WHERE key = 'format'")), StoreError::Corrupt { .. }));
    }
    assert!(matches!(defect("DELETE FROM meta"), StoreError::Corrupt { .. }));
    let newer = defect("UPDATE meta SET value = 7 WHERE key = 'format'; DROP TABLE record");
    assert!(newer.to_string().ends_with("written by a newer Spinney: format 7, this one reads up to 1"), "{newer}");
}

#[test]
fn a_file_that_is_no_database_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), "not a database".repeat(500)).unwrap();
    assert!(matches!(read(dir.path()), Err(StoreError::Corrupt { .. })));
    assert!(matches!(SqliteStore::open(dir.path()), Err(StoreError::Corrupt { .. })));
    let (dir, mut store) = made();
    store.append(&records(0..500), false).unwrap();
    drop(store);
    let mut bytes = fs::read(dir.path().join(FILE)).unwrap();
    let at = bytes.len() / 2;
    bytes[at..].fill(0x5a);
    fs::write(dir.path().join(FILE), bytes).unwrap();
    assert!(matches!(read(dir.path()), Err(StoreError::Corrupt { .. })));
}

#[test]
fn records_survive_the_death_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = other_process("journal::store::tests::appends_until_killed", dir.path());
    assert_eq!(read(dir.path()).unwrap(), records(0..40), "read while another process writes");
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..40));
    let (mut store, found) = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(found, records(0..40));
    store.append(&records(40..41), true).unwrap();
}

#[test]
#[ignore = "the other process of the test above"]
fn appends_until_killed() {
    if is_other_process() {
        let mut store = SqliteStore::create(Path::new("."), &RunId::from("r")).unwrap();
        for seq in 0..40 {
            store.append(&records(seq..seq + 1), seq % 7 == 0).unwrap();
        }
        ready_to_be_killed();
    }
}
