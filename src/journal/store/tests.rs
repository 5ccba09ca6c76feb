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
    let event =
        Event::Compacted { node: NodeId::step(&StepId::from("o")), cut: 0, messages: vec![message], strategy: "\u{0}\n\u{feff}".into(), before: 0, after: 0 };
    let kept = Record { seq: 0, at: Timestamp(u64::try_from(i64::MAX).unwrap()), event };
    store.append(std::slice::from_ref(&kept), false).unwrap();
    let found = read(dir.path()).unwrap();
    assert_eq!(found, [kept]);
    assert!(matches!(&found[0].event, Event::Compacted { messages, .. } if messages[0].blocks[0].raw().as_str() == raw));
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
    assert!(matches!(defect("DELETE FROM record WHERE seq = 3"), StoreError::Lost { least: 4, found: 3, .. }));
    for change in ["body = replace(body, '\"s\"', '\"z\"')", "at = at + 1", "at = -5", "seal = seal + 1", "body = ''"] {
        let error = defect(&format!("UPDATE record SET {change} WHERE seq = 1"));
        assert!(matches!(error, StoreError::Altered { seq: 1, .. }), "{change}: {error:?}");
    }
    assert!(matches!(defect("UPDATE meta SET value = 'other' WHERE key = 'run'"), StoreError::Altered { seq: 0, .. }));
    assert!(matches!(defect("DELETE FROM meta WHERE key = 'run'"), StoreError::Corrupt { .. }));
    assert!(matches!(defect("UPDATE record SET body = CAST(x'ff' AS TEXT)"), StoreError::Corrupt { .. }));
    for format in ["'x'", "0", "-1", "''"] {
        assert!(matches!(defect(&format!("UPDATE meta SET value = {format} WHERE key = 'format'")), StoreError::Corrupt { .. }));
    }
    assert!(matches!(defect("DELETE FROM meta"), StoreError::Corrupt { .. }));
    let newer = defect("UPDATE meta SET value = 7 WHERE key = 'format'; DROP TABLE record");
    assert!(newer.to_string().ends_with("written by a newer Spinney: format 7, this one reads up to 3"), "{newer}");
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

/// A journal as the first format had it: no seals, no mark.
fn of_format_1(bodies: &[&str]) -> tempfile::TempDir {
    let (dir, store) = made();
    drop(store);
    fs::remove_file(dir.path().join(mark::FILE)).unwrap();
    meddle(dir.path(), "ALTER TABLE record DROP COLUMN seal; UPDATE meta SET value = '1' WHERE key = 'format'");
    for (seq, body) in bodies.iter().enumerate() {
        meddle(dir.path(), &format!("INSERT INTO record (seq, at, body) VALUES ({seq}, {}, '{body}')", 1000 + seq));
    }
    dir
}

#[test]
fn a_journal_of_the_first_format_is_read_and_sealed_where_it_is_gone_on_with() {
    let bodies: Vec<String> = records(0..3).iter().map(|record| serde_json::to_string(&record.event).unwrap()).collect();
    let dir = of_format_1(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(read(dir.path()).unwrap(), records(0..3));
    assert_eq!(read_from(dir.path(), 2).unwrap(), records(2..3));
    assert!(!dir.path().join(mark::FILE).exists(), "reading changes nothing");
    let (mut store, found) = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(found, records(0..3));
    store.append(&records(3..4), false).unwrap();
    drop(store);
    assert_eq!(SqliteStore::open(dir.path()).unwrap().1, records(0..4));
    meddle(dir.path(), "UPDATE record SET at = at + 1 WHERE seq = 0");
    assert!(matches!(read(dir.path()), Err(StoreError::Altered { seq: 0, .. })));
    for body in ["", "{", "{\"unheard_of\":{}}", "[]", "{\"timer_fired\":{}}"] {
        let error = read(of_format_1(&[&bodies[0], body]).path()).unwrap_err();
        assert!(matches!(error, StoreError::Unparsable { seq: 1, .. }), "{body}: {error:?}");
    }
}

#[test]
fn a_journal_of_the_second_format_has_this_one_s_number_once_it_is_gone_on_with() {
    let (dir, mut store) = made();
    store.append(&records(0..3), true).unwrap();
    drop(store);
    meddle(dir.path(), "UPDATE meta SET value = '2' WHERE key = 'format'");
    let format = || -> String {
        let connection = connect_read_only(&dir.path().join(FILE)).unwrap();
        meta(&connection, "format").unwrap().unwrap()
    };
    assert_eq!(read(dir.path()).unwrap(), records(0..3));
    assert_eq!(format(), "2", "reading changes nothing");
    let (mut store, _) = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(format(), FORMAT.to_string());
    store.append(&records(3..4), true).unwrap();
    drop(store);
    assert_eq!(SqliteStore::open(dir.path()).unwrap().1, records(0..4));
}

#[test]
fn reading_goes_on_from_any_record_and_sees_that_one_changed() {
    let (dir, mut store) = made();
    store.append(&records(0..6), true).unwrap();
    for first in 0..9 {
        assert_eq!(read_from(dir.path(), first).unwrap(), records(first.min(6)..6), "from {first}");
    }
    drop(store);
    meddle(dir.path(), "UPDATE record SET at = at + 1 WHERE seq = 3");
    assert!(matches!(read_from(dir.path(), 2), Err(StoreError::Altered { seq: 3, .. })));
    assert_eq!(read_from(dir.path(), 4).unwrap(), records(4..6));
}

#[test]
fn a_mark_that_is_gone_or_damaged_is_named_and_records_that_it_asks_for_are_missed() {
    let (dir, mut store) = made();
    store.append(&records(0..4), true).unwrap();
    store.append(&records(4..9), false).unwrap();
    drop(store);
    let at = dir.path().join(mark::FILE);
    let whole = fs::read(&at).unwrap();
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        fs::write(&at, bytes).unwrap();
        assert!(matches!(read(dir.path()), Err(StoreError::Unmarked { missing: false, .. })), "byte {place}");
        fs::write(&at, &whole[..place]).unwrap();
        assert!(matches!(SqliteStore::open(dir.path()), Err(StoreError::Unmarked { missing: false, .. })), "cut at {place}");
    }
    fs::remove_file(&at).unwrap();
    assert!(matches!(read(dir.path()), Err(StoreError::Unmarked { missing: true, .. })));
    // After another boot only what was synced is asked for: a loss of power may take the rest.
    drop(Mark { appended: 9, synced: 4, boot: "another".to_owned() }.create(dir.path()).unwrap());
    meddle(dir.path(), "DELETE FROM record WHERE seq >= 6");
    assert_eq!(read(dir.path()).unwrap(), records(0..6));
    meddle(dir.path(), "DELETE FROM record WHERE seq >= 3");
    assert!(matches!(read(dir.path()), Err(StoreError::Lost { least: 4, found: 3, .. })));
    fs::write(dir.path().join("rested"), "").unwrap();
    settle(dir.path()).unwrap();
    let (mut store, found) = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(found, records(0..3));
    assert!(store.is_after_loss() && !dir.path().join("rested").exists(), "files may be from after the records that are left");
    store.append(&records(3..5), false).unwrap();
    assert_eq!(read(dir.path()).unwrap(), records(0..5));
}

/// Whatever happens to a byte or a stretch of the file or of its log: what is read is what was written, or an error.
#[test]
fn no_damage_gives_other_records() {
    let (closed, mut store) = made();
    let written: Vec<Record> = (0..60).map(|seq| told(seq, &"many words ".repeat(usize::try_from(seq).unwrap() % 40))).collect();
    written.chunks(7).for_each(|some| store.append(some, some[0].seq % 2 == 0).unwrap());
    let open = tempfile::tempdir().unwrap();
    copy(closed.path(), open.path());
    drop(store);
    let mut random = fastrand::Rng::with_seed(3);
    let (mut same, mut refused) = (0, 0);
    for (from, file) in [(&closed, FILE), (&open, FILE), (&open, "journal.db-wal")] {
        let whole = fs::read(from.path().join(file)).unwrap();
        assert!(whole.len() > 4000, "{file}");
        for case in 0..200 {
            let (damaged, what) = damage(&whole, case, &mut random);
            let dir = tempfile::tempdir().unwrap();
            copy(from.path(), dir.path());
            fs::write(dir.path().join(file), damaged).unwrap();
            match read(dir.path()) {
                Ok(records) if records == written => same += 1,
                Ok(records) => panic!("{file}, {what}: {} records of {}", records.len(), written.len()),
                Err(error) => refused += usize::from(error.to_string().contains(FILE)),
            }
            if let Ok((mut store, records)) = SqliteStore::open(dir.path()) {
                assert_eq!(records, written, "{file}, {what}");
                let _full_or_found_broken = store.append(&[told(60, "more")], false);
            }
        }
    }
    assert_eq!(same + refused, 600);
    assert!(same > 20 && refused > 200, "{same} the same, {refused} refused");
}

fn told(seq: u64, text: &str) -> Record {
    let event = Event::Told { node: NodeId::step(&StepId::from("s")), text: text.to_owned(), by: "ann".to_owned(), letter: seq.to_string() };
    Record { seq, at: Timestamp(1000 + seq), event }
}

fn copy(from: &Path, to: &Path) {
    for name in [FILE, "journal.db-wal", mark::FILE] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

fn damage(whole: &[u8], case: usize, random: &mut fastrand::Rng) -> (Vec<u8>, String) {
    let mut bytes = whole.to_vec();
    // Every fourth in the headers, where most depends on a byte.
    let at = if case.is_multiple_of(4) { random.usize(..120) } else { random.usize(..bytes.len()) };
    let end = (at + random.usize(1..700)).min(bytes.len());
    let what = match case % 5 {
        0 => {
            bytes[at..end].fill(0);
            "a run of NUL"
        }
        1 => {
            bytes.truncate(at);
            "cut"
        }
        _ => {
            bytes[at] ^= 1 << random.u8(..8);
            "a flipped bit"
        }
    };
    (bytes, format!("{what} at {at}"))
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
