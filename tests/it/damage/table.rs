//! One waiting run of everything that a run keeps, damaged in one way after the other: what `doctor` says of it, what `resume`
//! does with it, and what `doctor --repair` makes of it.
use super::{change, doctor, truncate};
use crate::{fixture::Bench, invariants};
use spinney::event::{Event, RunId};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

const WORKFLOW: &str = r#"
version: 1
name: rich
agents:
  coder: { system: "You code.", access: write }
  hand: { system: "You work.", access: write, permissions: { ask: ["Bash(touch:*)"] } }
  reader: { system: "You read.", access: read, permissions: { ask: ["Bash(cat:*)"] } }
steps:
  broke: { agent: coder, prompt: "Write broke.", allow_failure: true, verify: { run: ["false"], attempts: 1 } }
  each: { needs: [broke], for_each: { items: [a, b], as: it }, agent: coder, prompt: "Write {{ it }}." }
  land: { needs: [each], merge: { from: each, mode: each, verify: ["test ! -e b.txt"], on_red: { then: eject } } }
  note: { needs: [land], run: "echo noted", output: { file: note } }
  work: { needs: [land], agent: hand, prompt: "Work." }
  look: { needs: [note], agent: reader, prompt: "Look." }
"#;
const SCRIPT: &str = r#"
conversations:
  - told: "Write (?<file>\\w+)\\."
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}.txt", content: "of ${file}\n" } }]
      - say: "${file} is there"
  - agent: hand
    turns:
      - calls: [{ tool: Write, input: { file_path: work.txt, content: "work\n" } }, { tool: Bash, input: { command: "seq 1 30000" } }]
      - calls: [{ tool: Bash, input: { command: "touch more.txt" } }]
      - say: "worked"
  - agent: reader
    turns:
      - calls: [{ tool: Read, input: { file_path: README.md } }, { tool: Bash, input: { command: "cat README.md" } }]
      - say: "looked"
"#;

/// What resume does.
enum Resumed {
    /// It waits again, and says this where there is something to be said.
    GoesOn(&'static str),
    /// It refuses, with this.
    Refuses(&'static str),
}
use Resumed::{GoesOn, Refuses};

/// One damage.
struct Row {
    name: &'static str,
    damage: fn(&Scene),
    /// What doctor says, after a word for how bad it is.
    said: [&'static str; 2],
    resumed: Resumed,
    /// Whether `--repair` leaves nothing of it.
    repaired: bool,
}

/// The run, and a copy of all there is.
pub(super) struct Scene {
    pub(super) bench: Bench,
    pub(super) run: RunId,
    copy: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new().workflow("rich", WORKFLOW);
        let (said, records) = bench.run("rich", SCRIPT, &["--unconfined"]);
        said.code(3);
        let asks = records.iter().filter(|record| matches!(record.event, Event::QuestionAsked { .. })).count();
        assert_eq!(asks, 2, "one of them is not there yet");
        Scene::of(bench)
    }

    /// Takes the newest run, and all there is, as it stands.
    pub(super) fn of(bench: Bench) -> Scene {
        let (run, copy) = (bench.newest(), tempfile::tempdir().unwrap());
        let scene = Scene { bench, run, copy };
        scene.move_all(&scene.bench.path("."), scene.copy.path());
        scene
    }

    fn move_all(&self, from: &Path, to: &Path) {
        assert!(Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap().success(), "{}", self.run);
    }

    pub(super) fn restore(&self) {
        for entry in fs::read_dir(self.bench.path(".")).unwrap().flatten() {
            let _ = fs::remove_dir_all(entry.path());
        }
        self.move_all(self.copy.path(), &self.bench.path("."));
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.bench.repo().join(".spinney/state/runs").join(&self.run.0)
    }

    fn name(&self, below: &str) -> String {
        format!("refs/spinney/{}/{below}", self.run)
    }

    fn git(&self, arguments: &[&str]) -> String {
        self.bench.git(arguments).trim().to_owned()
    }

    /// Returns the file of an object, made writable.
    fn object(&self, revision: &str) -> PathBuf {
        let id = self.git(&["rev-parse", revision]);
        let file = self.bench.repo().join(".git/objects").join(&id[..2]).join(&id[2..]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        file
    }

    /// Returns where a node works, as the records say.
    fn place(&self, step: &str) -> PathBuf {
        let of = |event: &Event| match event {
            Event::WorkspaceMade { node, path, .. } if node.to_string() == step => Some(PathBuf::from(path)),
            _ => None,
        };
        self.bench.records(&self.run).iter().rev().find_map(|record| of(&record.event)).unwrap()
    }

    /// Returns where the engine keeps what it notes of the place of a node.
    fn noted(&self, step: &str) -> PathBuf {
        let place = self.place(step);
        place.parent().unwrap().join(".engine").join(place.file_name().unwrap())
    }

    /// Returns the file of a blob that a record of this kind names.
    fn blob(&self, names: fn(&Event) -> Option<&spinney::event::BlobId>) -> PathBuf {
        let records = self.bench.records(&self.run);
        let id = &records.iter().find_map(|record| names(&record.event)).unwrap().0;
        self.dir().join("blobs").join(&id[..2]).join(&id[2..])
    }

    fn sql(&self, text: &str) {
        rusqlite::Connection::open(self.dir().join("journal.db")).unwrap().execute_batch(text).unwrap();
    }
}

/// Changes a byte in the middle of a file.
pub(super) fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

fn output(event: &Event) -> Option<&spinney::event::BlobId> {
    if let Event::ToolFinished { output, .. } = event { output.as_ref() } else { None }
}

fn artefact(event: &Event) -> Option<&spinney::event::BlobId> {
    if let Event::ArtefactKept { content, .. } = event { Some(content) } else { None }
}

fn script(event: &Event) -> Option<&spinney::event::BlobId> {
    if let Event::RunStarted(started) = event { started.script.as_ref() } else { None }
}

const NO_OBJECT: &str = "the object is not in the repository any more";
const BAD_OBJECT: &str = "the object is in the repository, and damaged";

fn refs() -> Vec<Row> {
    let gone = "it is gone, and keeps";
    let row = |name, damage, what, how| Row { name, damage, said: [what, how], resumed: GoesOn("it was put back"), repaired: true };
    vec![
        row("result gone", |s| drop(s.git(&["update-ref", "-d", &s.name("each.a/result")])), gone, "the result of `each/a`"),
        row("result moved", |s| drop(s.git(&["update-ref", &s.name("each.a/result"), "main"])), "it stands at", "the result of `each/a` is"),
        row("joined gone", |s| drop(s.git(&["update-ref", "-d", &s.name("land/joined")])), gone, "what `land` has joined"),
        row("joined moved", |s| drop(s.git(&["update-ref", &s.name("land/joined"), "main"])), "it stands at", "what `land` has joined is"),
        row("merged gone", |s| drop(s.git(&["update-ref", "-d", &s.name("land/result")])), gone, "the result of `land`"),
        row("ejected gone", |s| drop(s.git(&["update-ref", "-d", &s.name("each.b/ejected")])), gone, "the work of `each/b`, which was put aside"),
        row(
            "ejected moved",
            |s| drop(s.git(&["update-ref", &s.name("each.b/ejected"), "main"])),
            "it stands at",
            "the work of `each/b`, which was put aside is",
        ),
        row("kept files gone", |s| drop(s.git(&["update-ref", "-d", &s.name("broke.1/checkpoint")])), gone, "the files of an attempt of `broke`"),
        row(
            "kept files moved",
            |s| drop(s.git(&["update-ref", &s.name("broke.1/checkpoint"), "main"])),
            "it stands at",
            "the files of an attempt of `broke` is",
        ),
    ]
}

fn objects() -> Vec<Row> {
    let row = |name, damage, said: &'static str, whose| Row { name, damage, said: [said, whose], resumed: Refuses(said), repaired: false };
    vec![
        row("commit gone", |s| fs::remove_file(s.object(&s.name("each.a/result"))).unwrap(), NO_OBJECT, "the result of `each/a`"),
        row("tree gone", |s| fs::remove_file(s.object(&s.name("each.a/result^{tree}"))).unwrap(), NO_OBJECT, "part of its work"),
        row("file gone", |s| fs::remove_file(s.object(&s.name("each.a/result:a.txt"))).unwrap(), NO_OBJECT, "part of its work"),
        row("commit flipped", |s| flip(&s.object(&s.name("each.a/result"))), BAD_OBJECT, "the result of `each/a`"),
        row("tree flipped", |s| flip(&s.object(&s.name("each.a/result^{tree}"))), BAD_OBJECT, "part of its work"),
        row("file flipped", |s| flip(&s.object(&s.name("each.a/result:a.txt"))), BAD_OBJECT, "part of its work"),
        row("file cut", |s| truncate(&s.object(&s.name("each.a/result:a.txt"))), BAD_OBJECT, "part of its work"),
        row("file empty", |s| fs::write(s.object(&s.name("each.a/result:a.txt")), "").unwrap(), BAD_OBJECT, "part of its work"),
        // What nothing goes on from hinders nobody.
        Row {
            name: "kept file gone",
            damage: |s| fs::remove_file(s.object(&s.name("broke.1/checkpoint:broke.txt"))).unwrap(),
            said: ["warn ", NO_OBJECT],
            resumed: GoesOn(""),
            repaired: false,
        },
    ]
}

fn views() -> Vec<Row> {
    let row = |name, damage, said, resumed, repaired| Row { name, damage, said, resumed, repaired };
    vec![
        row(
            "view changed",
            |s| fs::write(s.place("look").join("README.md"), "something else\n").unwrap(),
            ["README.md", "agents read them"],
            GoesOn("they were put back"),
            true,
        ),
        row(
            "file of a view gone",
            |s| fs::remove_file(s.place("look").join("README.md")).unwrap(),
            ["README.md", "agents read them"],
            GoesOn("they were put back"),
            true,
        ),
        row(
            "file in a view",
            |s| fs::write(s.place("look").join("evil.txt"), "evil\n").unwrap(),
            ["evil.txt", "agents read them"],
            GoesOn("they were put back"),
            true,
        ),
        row(
            "note of a view empty",
            |s| fs::write(s.noted("look").join("note.json"), "").unwrap(),
            ["nothing is noted of it", "agents read it"],
            GoesOn("they were put back"),
            true,
        ),
        row("view gone", |s| fs::remove_dir_all(s.place("look")).unwrap(), ["fine ", "records, open"], GoesOn(""), true),
    ]
}

fn files() -> Vec<Row> {
    let row = |name, damage, said, resumed, repaired| Row { name, damage, said, resumed, repaired };
    vec![
        row(
            "worktree gone",
            |s| fs::remove_dir_all(s.place("work")).unwrap(),
            ["warn ", "the worktree of `work` is gone"],
            GoesOn("`work` starts its attempt over"),
            false,
        ),
        row(
            "note of a worktree empty",
            |s| fs::write(s.noted("work").join("note.json"), "").unwrap(),
            ["warn ", "nothing is noted of it"],
            GoesOn("`work` starts its attempt over: nothing is noted of its worktree any more, whose files stay at"),
            false,
        ),
        row(
            "note of a worktree flipped",
            |s| {
                let note = s.noted("work").join("note.json");
                let text = fs::read_to_string(&note).unwrap();
                let at = text.find("\"base\":\"").unwrap() + 8;
                let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
                fs::write(note, format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
            },
            ["warn ", "nothing is noted of it"],
            GoesOn("`work` starts its attempt over: nothing is noted of its worktree any more, whose files stay at"),
            false,
        ),
        row(
            "all notes gone",
            |s| fs::remove_dir_all(s.noted("work").parent().unwrap()).unwrap(),
            ["warn ", "nothing is noted of it"],
            GoesOn("`work` starts its attempt over: nothing is noted of its worktree any more, whose files stay at"),
            false,
        ),
        row("output flipped", |s| flip(&s.blob(output)), ["warn ", "its content has another hash"], GoesOn(""), false),
        row("output cut", |s| truncate(&s.blob(output)), ["warn ", "its content has another hash"], GoesOn(""), false),
        row("output gone", |s| fs::remove_file(s.blob(output)).unwrap(), ["warn ", "find blob"], GoesOn(""), false),
        row("artefact's blob flipped", |s| flip(&s.blob(artefact)), ["broken ", "its content has another hash"], GoesOn(""), true),
        row("artefact flipped", |s| flip(&s.dir().join("artifacts/note")), ["warn ", "is gone or was changed"], GoesOn(""), true),
        row("script flipped", |s| flip(&s.blob(script)), ["broken ", "its content has another hash"], Refuses("its content has another hash"), false),
        row(
            "no letter",
            |s| {
                fs::create_dir_all(s.dir().join("inbox")).unwrap();
                fs::write(s.dir().join("inbox/word-1.json"), [0; 100]).unwrap();
            },
            ["inbox/word-1.json", "no letter that can be read"],
            GoesOn(""),
            true,
        ),
        row(
            "no lease",
            |s| {
                fs::remove_file(s.dir().join("lease")).unwrap();
                fs::create_dir(s.dir().join("lease")).unwrap();
            },
            ["broken ", "lease"],
            Refuses("spinney doctor --repair"),
            true,
        ),
    ]
}

fn journal() -> Vec<Row> {
    let row = |name, damage, said: &'static str, repaired| Row { name, damage, said: ["broken ", said], resumed: Refuses(said), repaired };
    vec![
        row("record flipped", |s| change(&s.dir().join("journal.db"), b"You code.", b"You lode."), "it was changed since it was written", false),
        row("record gone", |s| s.sql("DELETE FROM record WHERE seq = 5"), "", false),
        row(
            "records swapped",
            |s| s.sql("UPDATE record SET seq = -1 WHERE seq = 5; UPDATE record SET seq = 5 WHERE seq = 6; UPDATE record SET seq = 6 WHERE seq = -1"),
            "",
            false,
        ),
        row("last record gone", |s| s.sql("DELETE FROM record WHERE seq = (SELECT max(seq) FROM record)"), "records were written, and", true),
        row("table gone", |s| s.sql("DROP TABLE record"), "", false),
        row(
            "zeros",
            |s| {
                let mut file = fs::OpenOptions::new().write(true).open(s.dir().join("journal.db")).unwrap();
                std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(4096)).unwrap();
                file.write_all(&[0; 8192]).unwrap();
            },
            "",
            false,
        ),
        row("cut", |s| truncate(&s.dir().join("journal.db")), "", false),
        row("no mark", |s| fs::remove_file(s.dir().join("mark")).unwrap(), "it is not there", true),
        row("mark cut", |s| truncate(&s.dir().join("mark")), "it is damaged", true),
        row("newer", |s| s.sql("UPDATE meta SET value = 9 WHERE key = 'format'"), "format 9", false),
    ]
}

/// Makes something else of what has a name in the run's folder.
fn replace(scene: &Scene, name: &str, kind: &str) {
    let path = scene.dir().join(name);
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    match kind {
        "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
        "link" => std::os::unix::fs::symlink(scene.bench.path("home"), &path).unwrap(),
        "file" => fs::write(&path, "something else").unwrap(),
        _ => fs::create_dir(&path).unwrap(),
    }
}

/// Neither does anybody wait for the other end of a pipe, nor is anything written to where a link leads.
#[test]
fn whatever_stands_in_the_place_of_something_is_named_and_put_aside() {
    let scene = Scene::new();
    let bench = &scene.bench;
    let folders = ["artifacts", "blobs", "caches", "inbox", "nowhere", "processes", "tokens"];
    let files = ["journal.db", "journal.db-shm", "journal.db-wal", "lease", "mark", "rested"];
    let each = folders.iter().flat_map(|name| ["pipe", "file", "link"].map(|kind| (*name, kind)));
    let each = each.chain(files.iter().flat_map(|name| ["pipe", "folder", "link"].map(|kind| (*name, kind))));
    for (at, (name, kind)) in each.enumerate() {
        // The pipes, and of the others one of a name.
        if kind != "pipe" && at % 2 == 0 {
            continue;
        }
        scene.restore();
        replace(&scene, name, kind);
        let word = match kind {
            "pipe" => "neither file nor folder",
            kind => kind,
        };
        let is_told = |text: &str| text.contains(&format!("{}/{name}", scene.run)) && text.contains(word) && text.contains("belongs there");
        let found = doctor(bench, &[]);
        assert!(found.contains("broken ") && is_told(&found), "{name} as {kind}: {found}");
        for command in ["resume", "approve", "cancel"] {
            let said = bench.spinney(&[command, &scene.run.0]);
            assert!(said.code != 0 && said.err.contains("hint: "), "{command} with {name} as {kind}: {said:?}");
        }
        assert_eq!(fs::read_dir(bench.path("home")).unwrap().count(), 0, "{name} as {kind}");
        doctor(bench, &["--repair"]);
        let after = doctor(bench, &[]);
        assert!(!is_told(&after), "{name} as {kind}: {after}");
        if !["journal.db", "blobs"].contains(&name) {
            let answered = bench.spinney(&["resume", &scene.run.0, "--unconfined", "--on-ask", "allow"]);
            assert_eq!(answered.code, 0, "{name} as {kind}: {answered:?}");
        }
    }
}

fn hold(rows: &[Row]) {
    let scene = Scene::new();
    let bench = &scene.bench;
    for Row { name, damage, said, resumed, repaired } in rows {
        scene.restore();
        damage(&scene);
        let found = doctor(bench, &[]);
        assert!(said.iter().all(|word| found.contains(word)) && found.contains(&scene.run.0), "{name}: {found}");
        let tells = bench.spinney(&["resume", &scene.run.0, "--unconfined"]);
        match resumed {
            GoesOn(word) => {
                assert!(tells.code == 3 && tells.err.contains(word), "{name}: {tells:?}");
                invariants::check(&bench.records(&scene.run), &bench.repo());
            }
            Refuses(word) => assert!(tells.code == 1 && tells.err.contains(word) && tells.err.contains("hint: "), "{name}: {tells:?}"),
        }
        scene.restore();
        damage(&scene);
        let mended = doctor(bench, &["--repair"]);
        let after = doctor(bench, &[]);
        let is_fine = after.lines().all(|line| line.starts_with("fine "));
        assert_eq!(is_fine, *repaired, "{name}: {mended}\nand then {after}");
        if *repaired {
            let answered = bench.spinney(&["resume", &scene.run.0, "--unconfined", "--on-ask", "allow"]);
            assert_eq!(answered.code, 0, "{name}: {answered:?}");
            assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{}", scene.run)]), "README.md\na.txt\nmore.txt\nwork.txt\n", "{name}");
        } else {
            assert!(after.lines().all(|line| line.starts_with("fine ") || !line.ends_with("hint: ")), "{name} says what to do: {after}");
        }
    }
}

#[test]
fn each_damage_of_refs_is_found_named_and_mended() {
    hold(&refs());
}

#[test]
fn each_damage_of_objects_is_found_and_named() {
    hold(&objects());
}

#[test]
fn each_damage_of_files_beside_the_journal_is_found_and_named() {
    hold(&files());
}

#[test]
fn each_damage_of_a_view_is_found_named_and_mended() {
    hold(&views());
}

#[test]
fn each_damage_of_a_journal_is_found_and_named() {
    hold(&journal());
}
