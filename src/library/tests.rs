//! The library on real folders, friendly and hostile.
use super::{builtin::BuiltIn, *};
use std::fs;

const SET: &[BuiltIn] = &[
    BuiltIn { path: "agents/helper.md", text: "---\nname: helper\n---\n" },
    BuiltIn { path: "hooks/guard.json", text: "{\"command\": \"guard.sh\"}" },
    BuiltIn { path: "hooks/guard.sh", text: "#!/bin/sh\nexit 2\n" },
    BuiltIn { path: "prompts/coder.md", text: "built-in coder" },
    BuiltIn { path: "skills/rust/SKILL.md", text: "built-in rust" },
    BuiltIn { path: "skills/rust/scripts/check.sh", text: "#!/bin/sh\n" },
    BuiltIn { path: "workflows/feature.yaml", text: "name: feature" },
];

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Home {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn places(&self) -> Places {
        let path = |below: &str| self.dir.path().join(below);
        Places { project: Some(path("project")), user_config: Some(path("home/.config/spinney")), home: Some(path("home")), cache: path("cache") }
    }

    fn library(&self) -> Library {
        discover::discover(&self.places(), SET)
    }
}

fn names(library: &Library, kind: Kind) -> Vec<String> {
    library.all(kind).iter().map(|found| found.name.clone()).collect()
}

#[test]
fn the_first_match_wins_and_says_whom_it_hides() {
    let home = Home::new();
    home.write("project/.spinney/prompts/coder.md", "project coder")
        .write("project/prompts/coder.md", "somebody's application")
        .write("home/.config/spinney/prompts/coder.md", "user coder")
        .write("home/.config/spinney/prompts/deep/er/one.md", "x")
        .write("project/.spinney/workflows/feature.yml", "name: mine")
        .write("project/.spinney/workflows/notes.txt", "x")
        .write("project/.spinney/workflows/below/no.yaml", "x");
    let library = home.library();
    let coder = library.find(Kind::Prompt, "prompts/coder.md").unwrap();
    assert_eq!((coder.text.as_str(), coder.root, coder.trusted), ("project coder", RootKind::Project, false));
    assert_eq!(coder.path, ".spinney/prompts/coder.md");
    assert_eq!(coder.shadowed, ["~/.config/spinney/prompts/coder.md", "<built-in>/prompts/coder.md"]);
    assert_eq!(names(&library, Kind::Prompt), ["prompts/coder.md", "prompts/deep/er/one.md"]);
    assert_eq!(names(&library, Kind::Workflow), ["feature"]);
    assert_eq!(library.find(Kind::Workflow, "feature").unwrap().text, "name: mine");
    assert_eq!(library.warnings(), Vec::<String>::new().as_slice());
    assert!(library.find(Kind::Prompt, "prompts/none.md").is_none());

    home.write("project/spinney.yaml", "");
    let library = home.library();
    let coder = library.find(Kind::Prompt, "prompts/coder.md").unwrap();
    assert_eq!(coder.shadowed[0], "prompts/coder.md");
}

#[test]
fn skills_and_agents_of_other_clients_are_found_in_order() {
    let home = Home::new();
    home.write("project/.claude/skills/one/SKILL.md", "claude")
        .write("project/.agents/skills/one/SKILL.md", "agents")
        .write("project/.agents/skills/group/two/SKILL.md", "nested")
        .write("project/.agents/skills/group/two/inner/SKILL.md", "part of two")
        .write("project/.agents/skills/node_modules/three/SKILL.md", "x")
        .write("home/.claude/skills/one/SKILL.md", "user")
        .write("home/.claude/skills/four/SKILL.md", "user")
        .write("project/.claude/agents/team/reviewer.md", "r")
        .write("project/.agents/agents/no.md", "n")
        .write("home/.claude/agents/reviewer.md", "u");
    let library = home.library();
    assert_eq!(names(&library, Kind::Skill), ["four", "one", "rust", "two"]);
    let one = library.find(Kind::Skill, "one").unwrap();
    assert_eq!((one.text.as_str(), one.path.as_str()), ("agents", ".agents/skills/one/SKILL.md"));
    assert_eq!(one.shadowed, [".claude/skills/one/SKILL.md", "~/.claude/skills/one/SKILL.md"]);
    assert_eq!(one.dir.as_deref(), Some(home.dir.path().join("project/.agents/skills/one").as_path()));
    assert_eq!(library.find(Kind::Skill, "two").unwrap().path, ".agents/skills/group/two/SKILL.md");
    assert!(library.find(Kind::Skill, "four").unwrap().trusted);
    assert_eq!(names(&library, Kind::Agent), ["helper", "reviewer", "team/reviewer"]);
    let rank = |name: &str| library.find(Kind::Agent, name).unwrap().rank();
    assert!(rank("team/reviewer") < rank("reviewer") && rank("reviewer") < rank("helper"));
}

#[test]
fn a_skills_hash_covers_all_its_files() {
    let home = Home::new();
    home.write("project/.spinney/skills/s/SKILL.md", "s").write("project/.spinney/skills/s/scripts/run.sh", "one");
    let hash = || home.library().find(Kind::Skill, "s").unwrap().hash().to_owned();
    let first = hash();
    assert_eq!(files(home.library().find(Kind::Skill, "s").unwrap().dir.as_deref().unwrap()), ["SKILL.md", "scripts/run.sh"]);
    assert_eq!(first, hash());
    assert_eq!(first.len(), 64);
    home.write("project/.spinney/skills/s/scripts/run.sh", "two");
    let second = hash();
    assert_ne!(first, second);
    home.write("project/.spinney/skills/s/scripts/new.sh", "");
    assert_ne!(second, hash());
}

#[test]
fn trust_in_a_hook_covers_what_it_names_and_nothing_else() {
    let home = Home::new();
    home.write("project/.spinney/hooks/guard.json", r#"{"command": "${DIR}/scripts/guard.sh"}"#)
        .write("project/.spinney/hooks/scripts/guard.sh", ". ./lib.sh")
        .write("project/.spinney/hooks/scripts/lib.sh", "one")
        .write("project/.spinney/hooks/other.json", "{}")
        .write("project/.spinney/hooks/other.sh", "x");
    let guard = || home.library().find(Kind::Hook, "guard").unwrap().clone();
    let file = home.dir.path().join("home/state/trust.json");
    let mut trust = Trust::load(&file).unwrap();
    let first = guard();
    assert!(!first.trusted && !trust.covers(&first));
    trust.add(first.hash(), "the hook `guard` of project").unwrap();
    assert!(trust.covers(&first) && Trust::load(&file).unwrap().covers(&guard()));

    home.write("project/.spinney/hooks/other.sh", "y");
    assert!(trust.covers(&guard()), "a file that it does not name is not its business");
    home.write("project/.spinney/hooks/scripts/lib.sh", "two");
    assert!(!trust.covers(&guard()), "a file named by a file that it names is");
    home.write("project/.spinney/hooks/scripts/lib.sh", "one");
    assert!(trust.covers(&guard()));
    home.write("project/.spinney/hooks/guard.json", r#"{"command": "${DIR}/scripts/guard.sh "}"#);
    assert!(!trust.covers(&guard()));
}

#[test]
fn trust_survives_others_and_refuses_to_forget() {
    let home = Home::new();
    let file = home.dir.path().join("trust.json");
    let (mut one, mut two) = (Trust::load(&file).unwrap(), Trust::load(&file).unwrap());
    one.add("aaa", "one").unwrap();
    two.add("bbb", "two").unwrap();
    let both = Trust::load(&file).unwrap();
    assert!(both.is_trusted("aaa") && both.is_trusted("bbb") && !both.is_trusted("ccc"));
    home.write("trust.json", "{");
    assert!(matches!(Trust::load(&file), Err(TrustError::Format { .. })));
    assert!(two.add("ccc", "three").is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "{");
}

#[test]
fn what_is_built_in_gets_real_paths_when_needed() {
    let home = Home::new();
    let library = home.library();
    assert!(!home.dir.path().join("cache").exists(), "looking writes nothing");
    let guard = library.find(Kind::Hook, "guard").unwrap();
    assert_eq!((guard.path.as_str(), guard.trusted, guard.dir.is_none()), ("<built-in>/hooks/guard.json", true, true));
    let cache = home.dir.path().join("cache");
    let dir = builtin::materialise(&cache, SET, guard).unwrap();
    assert_eq!(fs::read_to_string(dir.join("guard.sh")).unwrap(), "#!/bin/sh\nexit 2\n");
    let skill = builtin::materialise(&cache, SET, library.find(Kind::Skill, "rust").unwrap()).unwrap();
    assert!(skill.join("scripts/check.sh").is_file() && skill.ends_with("skills/rust"));
    // What somebody did to the cache is mended.
    fs::write(dir.join("guard.sh"), "#!/bin/sh\nexit 0\n").unwrap();
    assert_eq!(builtin::materialise(&cache, SET, guard).unwrap(), dir);
    assert_eq!(fs::read_to_string(dir.join("guard.sh")).unwrap(), "#!/bin/sh\nexit 2\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir.join("guard.sh")), mode(&dir.join("guard.json"))), (0o755, 0o644));
        fs::remove_file(dir.join("guard.sh")).unwrap();
        std::os::unix::fs::symlink("/bin/true", dir.join("guard.sh")).unwrap();
        builtin::materialise(&cache, SET, guard).unwrap();
        assert!(fs::symlink_metadata(dir.join("guard.sh")).unwrap().is_file());
    }
}

#[cfg(unix)]
#[test]
fn hostile_files_are_passed_over_with_a_word() {
    use std::os::unix::{ffi::OsStrExt as _, fs::symlink};
    let home = Home::new();
    home.write("outside/SKILL.md", "stolen")
        .write("outside/secret.md", "stolen")
        .write("project/real/good/SKILL.md", "good")
        .write("project/.spinney/prompts/bytes.md", [0xff, 0xfe])
        .write("project/.spinney/prompts/huge.md", "x".repeat(2 << 20))
        .write("project/.spinney/hooks/h.json", "{\"command\": \"big.sh\"}")
        .write("project/.spinney/hooks/big.sh", "x".repeat(17 << 20))
        .write("project/.spinney/skills/linked-main/README.md", "")
        .write("project/.claude/agents/ok.md", "ok");
    let spinney = home.dir.path().join("project/.spinney");
    symlink(home.dir.path().join("outside"), spinney.join("skills/evil")).unwrap();
    symlink(home.dir.path().join("outside/SKILL.md"), spinney.join("skills/linked-main/SKILL.md")).unwrap();
    symlink(home.dir.path().join("project/real/good"), spinney.join("skills/good")).unwrap();
    symlink(home.dir.path().join("outside/secret.md"), spinney.join("prompts/secret.md")).unwrap();
    symlink(spinney.join("prompts"), spinney.join("prompts/loop")).unwrap();
    symlink("/dev/zero", spinney.join("prompts/zero.md")).unwrap();
    symlink(home.dir.path().join("outside"), spinney.join("workflows")).unwrap();
    symlink(home.dir.path().join("outside"), home.dir.path().join("project/.agents")).unwrap();
    fs::write(spinney.join("prompts").join(std::ffi::OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    fs::create_dir(spinney.join("prompts/dir.md")).unwrap();
    let library = home.library();
    assert_eq!(names(&library, Kind::Skill), ["good", "rust"]);
    assert_eq!(names(&library, Kind::Agent), ["helper", "ok"]);
    assert_eq!(names(&library, Kind::Hook), ["guard"]);
    assert!(library.all(Kind::Prompt).iter().all(|found| found.text == "built-in coder"));
    let warned = library.warnings().join("\n");
    for word in ["evil", "linked-main", "secret.md", "zero.md", "workflows", ".agents", "bytes.md", "huge.md", "\u{fffd}.md", "`h`", "big.sh"] {
        assert!(warned.contains(word), "no warning of {word} in\n{warned}");
    }
}

#[test]
fn nothing_at_all_is_fine() {
    let library = discover::discover(&Places::default(), &[]);
    assert!(library.all(Kind::Skill).is_empty() && library.warnings().is_empty());
    let gone = Places {
        project: Some("/nowhere/at/all".into()),
        home: Some("/nowhere".into()),
        user_config: Some("/nowhere/config".into()),
        cache: "/nowhere".into(),
    };
    assert!(Library::discover(&gone).warnings().is_empty());
}

#[test]
fn every_built_in_file_is_of_a_kind_that_is_looked_for() {
    assert!(builtin::FILES.is_sorted_by_key(|file| file.path));
    for file in builtin::FILES {
        assert!(["agents/", "hooks/", "prompts/", "skills/", "workflows/"].iter().any(|folder| file.path.starts_with(folder)), "{}", file.path);
    }
}
