//! The parser against bash itself: whatever bash runs, the parser has named or refused to read.
use super::{is_read_only, parse};
use crate::sandbox::{Confinement, Options, Program, Request, Sandbox};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

/// What scripts are made of. `p`, `q` and `r` are programs that leave a mark; the rest is what may hide or join them.
const PIECES: &[&str] = &[
    "p",
    "q",
    "r",
    "p",
    "q",
    "r",
    " ",
    " ",
    " ",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "|&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "`",
    "\"",
    "'",
    "\\",
    "\\\n",
    "#",
    "<(",
    ">(",
    ">x ",
    "<<E\n",
    "\nE\n",
    "<<'E'\n",
    "<<-E\n",
    "\tE\n",
    "E",
    "<<<",
    "2>&1",
    "&>x ",
    "$((",
    "))",
    "${v}",
    "${v:-",
    "}",
    "$v",
    "v=",
    "v=p ",
    "if ",
    "then ",
    "else ",
    "fi ",
    "; fi",
    "for i in ",
    "; do ",
    "; done",
    "! ",
    "time ",
    "$'",
    "\\x70",
    "$\"",
    "{p,q}",
    "*",
    "?",
    "~",
    "[",
    "]",
    "=",
    "case p in p) ",
    ";; esac",
    "function f ",
    "f() ",
    "eval ",
    "true ",
    "!",
    "$",
    "-",
    "2",
    ">",
    "<",
];

/// Scripts that were thought up to hide a command.
const TRAPS: &[&str] = &[
    "p \"$(q)\" '$(r)'",
    "p `q \\`r\\``",
    "cat <<E\n$(p)\nE\nq",
    "cat <<'E'\n$(p)\nE\nq",
    "cat <<E; p\nE\nq",
    "p <<E1 <<E2\n$(q)\nE1\n$(r)\nE2\n",
    "p \"a\\\"$(q)\\\"b\"",
    "p $'a\\'$(q)' r",
    "p \"'$(q)'\"",
    "p '\"' $(q) '\"'",
    "p #$(q)\nr",
    "p a#b$(q)",
    "p $((1+2)) $(q)",
    "p $( (q) ) $((1)) $( ( (r) ) )",
    "{ p; } && ( q ); ! r",
    "if p; then q; fi; r",
    "for i in a b; do p $(q); done",
    "p >x$(q) 2>&1 <<<$(r)",
    "v=$(p) q",
    "p | q |& r",
    "time -p p; time q",
    "p \\\n q \\\n && r",
    "p \"\\\n\" q",
    "p <<-E\n\t$(q)\n\tE\nr",
    "p <(q) >(r)",
    "p\\;q;r",
    "\\p; 'q'; \"r\"",
    "p }; q",
    "p $v; ${v}q",
    "p&>x q",
    "p 2>x&q",
    "p 'a\nb' <<E\n$(q)\nE\n",
];

struct Bash {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
}

impl Bash {
    fn new() -> Bash {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for name in ["p", "q", "r"] {
            let file = folder.path().join("bin").join(name);
            fs::write(&file, format!("#!/bin/sh\n: > {}/ran-$$-{name}\n", folder.path().display())).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Bash { folder, sandbox: Sandbox::new(Options::default()).unwrap() }
    }

    /// Runs a script and returns which of the programs ran.
    fn run(&self, script: &str) -> BTreeSet<String> {
        let work = self.folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let request = Request {
            program: Program::Shell(script.to_owned()),
            cwd: work.clone(),
            env: BTreeMap::from([("PATH".to_owned(), self.folder.path().join("bin").display().to_string())]),
            stdin: Vec::new(),
            timeout: Duration::from_secs(5),
            output_cap: 1024,
            confine: Confinement::None,
        };
        self.sandbox.run_blocking(&request).unwrap();
        fs::remove_dir_all(&work).unwrap();
        marks(self.folder.path())
    }
}

fn marks(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ran: Vec<_> = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("ran-")).collect();
    for path in &ran {
        fs::remove_file(path).unwrap();
    }
    ran.iter().map(|path| path.to_string_lossy().rsplit('-').next().unwrap().to_owned()).collect()
}

/// Compares one script; returns whether the parser read it.
fn compare(bash: &Bash, text: &str) -> bool {
    let Ok(script) = parse(text) else { return false };
    let every = script.every();
    // A name that is not known before it runs may be anything; so may the argument of `eval`.
    let is_open = every.iter().any(|command| !command.words.is_empty() && command.name().is_none_or(|name| ["eval", "time"].contains(&name.as_str())));
    if is_open {
        return false;
    }
    let named: BTreeSet<String> = every.iter().filter_map(|command| command.name()).collect();
    let ran = bash.run(text);
    assert!(ran.is_subset(&named), "{text:?}\nbash ran {ran:?}, the parser named {named:?}");
    assert!(!is_read_only(text) || ran.is_empty(), "{text:?} was taken for read-only and ran {ran:?}");
    true
}

#[test]
fn traps_hide_nothing() {
    let bash = Bash::new();
    let read = TRAPS.iter().filter(|text| compare(&bash, text)).count();
    assert!(read > TRAPS.len() / 2, "only {read} traps were read");
}

#[test]
fn random_scripts_hide_nothing() {
    let bash = Bash::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut read = 0;
    for _ in 0..3_000 {
        let pieces = random.usize(2..14);
        let text: String = (0..pieces).map(|_| PIECES[random.usize(..PIECES.len())]).collect();
        read += usize::from(compare(&bash, &text));
    }
    assert!(read > 100, "only {read} scripts were read");
}
