//! What a hostile repository, model or environment must not bring about.
use crate::fixture::Bench;
use spinney::cli::{self, Context};
use std::io::{self, Write};

const LIST: &str = r#"version: 1
name: listed
steps:
  list: { run: "printf '%s' '[\"a\\u001b[31m\\nb\\u202e\"]'", output: { parse: json } }
  each: { needs: [list], for_each: { items: "{{ steps.list.output }}", as: it, key: "{{ it }}" }, run: "exit 3" }
"#;

const ONE: &str = r#"version: 1
name: one
agents: { coder: { access: write, system: "s" } }
steps: { work: { agent: coder, prompt: "go" } }
"#;

const WRITES: &str = r#"conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Write, input: { file_path: new, content: "x\n" } }]
      - say: done
"#;

#[test]
fn a_key_cannot_act_on_the_terminal() {
    let bench = Bench::new().workflow("listed", LIST);
    let (said, _) = bench.run("listed", "conversations: []", &[]);
    let said = said.code(1);
    let acts = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!said.out.chars().any(acts) && !said.err.chars().any(acts), "{said:?}");
    assert!(said.out.lines().all(|line| !line.starts_with('b')), "a key breaks no line: {}", said.out);
}

#[test]
fn a_branch_named_as_the_folder_of_results_is_seen_before_anything_is_spent() {
    let bench = Bench::new().workflow("one", ONE);
    bench.git(&["branch", "spinney"]);
    let script = bench.script(WRITES);
    let said = bench.spinney(&["run", "one", "--script", &script]).code(2);
    assert!(said.err.contains("a branch named `spinney`") && said.err.contains("hint: git cannot keep"), "{}", said.err);
    assert!(bench.spinney(&["runs"]).code(0).out.contains("no runs"));
}

#[test]
fn a_result_that_cannot_become_a_branch_says_what_to_do() {
    let bench = Bench::new().workflow("one", ONE);
    let command = format!("git -C {} branch spinney; echo x > new", bench.repo().display());
    let script =
        bench.script(&WRITES.replace("tool: Write, input: { file_path: new, content: \"x\\n\" }", &format!("tool: Bash, input: {{ command: \"{command}\" }}")));
    let said = bench.spinney(&["run", "one", "--script", &script, "--unconfined", "--on-ask", "allow"]).code(1);
    assert!(said.err.contains("hint: the result is kept under refs/spinney"), "{}", said.err);
    bench.git(&["branch", "-D", "spinney"]);
    bench.spinney(&["resume"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{}:new", bench.newest())]), "x\n");
}

#[test]
fn an_output_that_cannot_be_written_does_not_end_the_run() {
    for (kind, told) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
        for json in [false, true] {
            let bench = Bench::new().workflow("one", ONE);
            let script = bench.script(WRITES);
            let words = ["spinney", "run", "one", "--script", &script, "--json"].into_iter().take(if json { 6 } else { 5 });
            let err = tempfile::NamedTempFile::new().unwrap();
            let settings = Context::settings(bench.environment().clone(), bench.repo());
            let context =
                Context { settings, color: false, live: false, interactive: false, out: Box::new(Broken(kind)), err: Box::new(err.reopen().unwrap()) };
            assert_eq!(cli::run(words.map(Into::into), context), 0);
            let err = std::fs::read_to_string(err.path()).unwrap();
            assert_eq!(err.contains("warning: the output breaks off"), told, "{err}");
            assert_eq!(bench.git(&["show", &format!("spinney/{}:new", bench.newest())]), "x\n");
        }
    }
}

/// An output behind which nobody reads.
struct Broken(io::ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(self.0.into())
    }
}

/// A workflow whose one result is kept, and one that waits for a person before it writes outside.
const KEPT: &str = "version: 1\nname: kept\nsteps:\n  check: { run: 'echo HONEST', cache: { key: k } }\n  tell: { needs: [check], run: 'echo told {{ steps.check.stdout | sh }}' }\noutputs: { told: '{{ steps.tell.stdout }}' }\n";
const WAITS: &str = "version: 1\nname: waits\nsteps:\n  ask: { approve: { message: 'Go on?' } }\n  last: { needs: [ask], run: 'touch \"$HOME/outside\"' }\n";

#[test]
fn runs_and_results_that_a_repository_brings_are_nobodys() {
    let theirs = Bench::new().workflow("kept", KEPT).workflow("waits", WAITS);
    theirs.spinney(&["run", "kept", "--unconfined"]).code(0);
    theirs.spinney(&["run", "waits", "--unconfined"]).code(3);
    let waiting = theirs.newest().0;
    theirs.git(&["add", "-f", ".spinney"]);
    theirs.git(&["commit", "-q", "-m", "bring"]);
    let ours = Bench::new();
    ours.git(&["pull", "-q", "--no-rebase", "--allow-unrelated-histories", "--no-edit", &theirs.repo().display().to_string()]);
    for words in [&["run", "kept"][..], &["plan", "kept"], &["resume", &waiting], &["approve", &waiting], &["runs"], &["doctor"], &["clean"]] {
        let said = ours.spinney(words);
        let (code, all) = (said.code, format!("{}{}", said.out, said.err));
        assert_ne!(code, 0, "{words:?}: {all}");
        assert!(all.contains("the repository itself brings `.spinney/state/") && all.contains("`git rm -r"), "{words:?}: {all}");
    }
    assert!(!ours.path("home/outside").exists());
    // Nothing of it is there once it is removed, and what this checkout has done itself is believed.
    ours.git(&["rm", "-r", "-q", "-f", ".spinney/state"]);
    assert!(ours.spinney(&["runs"]).code(0).out.contains("no runs"));
    assert!(ours.spinney(&["run", "kept", "--unconfined"]).code(0).out.contains("told HONEST"));
    // Whoever committed them by mistake keeps them.
    theirs.git(&["rm", "-r", "-q", "--cached", ".spinney/state"]);
    assert!(theirs.spinney(&["runs"]).code(0).out.contains(&waiting));
}

#[test]
fn an_agent_cannot_commit_a_run() {
    let bench = Bench::new().workflow("one", ONE);
    let script = format!("{}      - say: done\n", WRITES.replace("file_path: new", "file_path: .Spinney/state/cache/k"));
    let (said, records) = bench.run("one", &script, &["--on-ask", "allow"]);
    assert_ne!(said.code, 0);
    let why = crate::fixture::outcome(&records, "work").to_string();
    assert!(why.contains("in which Spinney keeps its runs"), "{why}");
}
