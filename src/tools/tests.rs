//! What the tools promise, tried in a folder.
use super::*;
use crate::sandbox::Options;
use serde_json::json;
use std::{fs, os::unix::fs::symlink, path::Path};

/// A workspace, and a folder beside it that holds a secret.
struct Fixture {
    folder: tempfile::TempDir,
    cx: ToolContext,
    toolbox: Toolbox,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["work", "work/.git", "skills", "outside"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        fs::write(base.join("outside/secret"), "secret").unwrap();
        fs::write(base.join("work/.git/config"), "secret").unwrap();
        let env = [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into();
        let root = base.join("work");
        let cx = ToolContext {
            hidden: None,
            cwd: root.clone(),
            root,
            access: Access::Write,
            cancel: CancellationToken::new(),
            reads: vec![base.join("skills")].into(),
            shell: Arc::new(ShellPolicy::new(Sandbox::new(Options::default()).unwrap(), Confinement::None, env)),
            scope: None,
            skills: Arc::new(NoSkills),
            seen: Arc::default(),
            secrets: Secrets::default(),
        };
        Fixture { folder, cx, toolbox: Toolbox::standard() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.cx.root.join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    async fn call(&self, tool: &str, input: Value) -> Result<ToolOutput, String> {
        self.toolbox.check(tool, &input)?;
        self.toolbox.get(tool).unwrap().call(&input, &self.cx).await.map_err(|error| error.to_string())
    }

    async fn text(&self, tool: &str, input: Value) -> String {
        match self.call(tool, input).await {
            Ok(output) => output.text,
            Err(refused) => format!("REFUSED {refused}"),
        }
    }

    fn effect(&self, tool: &str, input: &Value) -> Effect {
        self.toolbox.get(tool).unwrap().effect(input, &self.cx)
    }
}

#[tokio::test]
async fn read_numbers_lines_and_says_where_to_go_on() {
    let at = Fixture::new();
    at.put("a.txt", "one\r\ntwo\x1b[31m\n\nfour");
    let output = at.call("Read", json!({"file_path": "a.txt"})).await.unwrap();
    assert_eq!(output.text, "     1\tone\n     2\ttwo\u{241b}[31m\n     3\t\n     4\tfour\n");
    let expected = json!({"filePath": at.path("a.txt"), "content": "one\ntwo\u{241b}[31m\n\nfour", "numLines": 4, "startLine": 1, "totalLines": 4});
    assert_eq!(output.response, json!({"type": "text", "file": expected}));
    assert_eq!(
        at.text("Read", json!({"file_path": "a.txt", "offset": 2, "limit": 1})).await,
        "     2\ttwo\u{241b}[31m\n[Lines 2 to 2 of 4. Go on with offset 3.]"
    );
    assert_eq!(at.text("Read", json!({"file_path": "a.txt", "offset": 9})).await, "[The file has only 4 lines.]");
    at.put("empty", "");
    assert_eq!(at.text("Read", json!({"file_path": "empty"})).await, "[The file exists and is empty.]");
    at.put("long", "x".repeat(100_000) + &"\nline".repeat(20_000));
    let long = at.text("Read", json!({"file_path": "long"})).await;
    assert!(long.len() < text::ANSWER_MAX + 200 && long.contains("more characters in this line") && long.contains("Go on with offset"));
}

#[tokio::test]
async fn read_refuses_what_is_no_text_file() {
    let at = Fixture::new();
    at.put("image", b"\x89PNG\r\n");
    at.put("binary", b"a\0b");
    at.put("folder/x", "");
    rustix::fs::mknodat(rustix::fs::CWD, at.path("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    for (name, said) in [("image", "a PNG image"), ("binary", "a binary file"), ("folder", "Glob"), ("missing", "no such file"), ("pipe", "a pipe")] {
        let refused = at.call("Read", json!({"file_path": name})).await.unwrap_err();
        assert!(refused.contains(said), "{name}: {refused}");
    }
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_reached() {
    let at = Fixture::new();
    let outside = at.folder.path().join("outside");
    symlink(&outside, at.path("link")).unwrap();
    symlink(outside.join("secret"), at.path("file")).unwrap();
    symlink("../outside", at.path("up")).unwrap();
    symlink(".git", at.path("git")).unwrap();
    symlink("loop", at.path("loop")).unwrap();
    symlink("/proc/self/root", at.path("proc")).unwrap();
    let secret = outside.join("secret").display().to_string();
    let paths = [
        "../outside/secret",
        &secret,
        "link/secret",
        "file",
        "up/secret",
        "a/../../outside/secret",
        ".git/config",
        ".GIT/config",
        "sub/.git/hooks/x",
        "git~1/config",
        "git~2/config",
        ".git./config",
        "git/config",
        ".g\u{200c}it/config",
        "loop",
        "proc/etc/passwd",
        "/etc/passwd",
        "",
        "a\0b",
        "~/x",
    ];
    for path in paths {
        for (tool, input) in [
            ("Read", json!({"file_path": path})),
            ("Write", json!({"file_path": path, "content": "x"})),
            ("Edit", json!({"file_path": path, "old_string": "secret", "new_string": "x"})),
            ("Grep", json!({"pattern": "secret", "path": path, "output_mode": "content"})),
            ("Glob", json!({"pattern": "*", "path": path})),
        ] {
            let answer = at.text(tool, input).await;
            assert!(answer.starts_with("REFUSED") && !answer.contains(":secret"), "{tool} {path:?}: {answer}");
        }
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(at.get(".git/config"), "secret");
    assert!(at.text("Grep", json!({"pattern": "secret"})).await.starts_with("Nothing matches."));
}

#[tokio::test]
async fn links_within_the_workspace_are_read_and_not_written_through() {
    let at = Fixture::new();
    at.put("real/a.txt", "needle\n");
    symlink("real", at.path("alias")).unwrap();
    symlink(at.path("real/a.txt"), at.path("absolute")).unwrap();
    symlink("../real/../real/a.txt", at.path("real/back")).unwrap();
    for path in ["alias/a.txt", "absolute", "real/back", "alias/back"] {
        assert_eq!(at.text("Read", json!({"file_path": path})).await, "     1\tneedle\n", "{path}");
        let refused = at.text("Write", json!({"file_path": path, "content": "x"})).await;
        assert!(refused.starts_with("REFUSED") && refused.contains("symbolic link"), "{path}: {refused}");
    }
    assert_eq!(at.text("Grep", json!({"pattern": "needle", "path": "alias"})).await, "real/a.txt");
    assert_eq!(at.get("real/a.txt"), "needle\n");
}

#[tokio::test]
async fn other_folders_are_read_and_never_written() {
    let at = Fixture::new();
    let skill = at.cx.reads[0].join("guide.md");
    fs::write(&skill, "needle").unwrap();
    let folder = at.cx.reads[0].display().to_string();
    assert_eq!(at.text("Read", json!({"file_path": skill})).await, "     1\tneedle\n");
    assert_eq!(at.text("Grep", json!({"pattern": "needle", "path": folder})).await, skill.display().to_string());
    assert_eq!(at.text("Glob", json!({"pattern": format!("{folder}/*.md"), "path": folder})).await, skill.display().to_string());
    assert!(at.text("Write", json!({"file_path": skill, "content": "x"})).await.contains("can be read but not written"));
}

#[tokio::test]
async fn writing_is_atomic_keeps_the_mode_and_makes_folders() {
    use std::os::unix::fs::PermissionsExt as _;
    let at = Fixture::new();
    at.put("run.sh", "old\n");
    fs::set_permissions(at.path("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    let output = at.call("Write", json!({"file_path": at.path("run.sh"), "content": "new\n"})).await.unwrap();
    assert_eq!((output.response["type"].as_str(), output.response["originalFile"].as_str()), (Some("update"), Some("old\n")));
    assert_eq!(fs::metadata(at.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o751);
    let output = at.call("Write", json!({"file_path": "a/b/c.txt", "content": ""})).await.unwrap();
    assert_eq!((output.response["type"].as_str(), output.response["filePath"].as_str()), (Some("create"), at.path("a/b/c.txt").to_str()));
    assert!(at.text("Write", json!({"file_path": "a/b", "content": "x"})).await.starts_with("REFUSED"));
    assert!(at.text("Write", json!({"file_path": "run.sh/x", "content": "x"})).await.contains("not a folder"));
    let names: Vec<String> = fs::read_dir(&at.cx.root).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(!names.iter().any(|name| name.starts_with(files::TEMPORARY)), "{names:?}");
}

#[tokio::test]
async fn what_changed_behind_the_agents_back_is_not_overwritten() {
    let at = Fixture::new();
    at.put("a", "one\n");
    // Never read: the exact text is enough.
    at.call("Edit", json!({"file_path": "a", "old_string": "one", "new_string": "two"})).await.unwrap();
    // Its own change is known.
    at.call("Edit", json!({"file_path": "./a", "old_string": "two", "new_string": "three"})).await.unwrap();
    at.put("a", "three\nand more\n");
    for (tool, input) in
        [("Edit", json!({"file_path": "a", "old_string": "three", "new_string": "x"})), ("Write", json!({"file_path": at.path("a"), "content": "x"}))]
    {
        assert!(at.call(tool, input).await.unwrap_err().contains("has changed since"));
    }
    at.call("Read", json!({"file_path": "a"})).await.unwrap();
    let output = at.call("Edit", json!({"file_path": "a", "old_string": "three", "new_string": "four"})).await.unwrap();
    assert_eq!(at.get("a"), "four\nand more\n");
    assert!(output.text.ends_with("It reads now:\n     1\tfour\n     2\tand more"), "{}", output.text);
    let expected = json!({
        "filePath": at.path("a"), "oldString": "three", "newString": "four", "originalFile": "three\nand more\n", "userModified": false, "replaceAll": false,
        "structuredPatch": [{"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2, "lines": ["-three", "+four", " and more"]}]
    });
    assert_eq!(output.response, expected);
    // Where it is gone there is nothing to overwrite.
    fs::remove_file(at.cx.root.join("a")).unwrap();
    at.call("Write", json!({"file_path": "a", "content": "anew\n"})).await.unwrap();
    assert_eq!(at.get("a"), "anew\n");
}

#[tokio::test]
async fn one_file_has_one_key() {
    let at = Fixture::new();
    let writes = |path: &str| at.effect("Write", &json!({"file_path": path, "content": ""}));
    let absolute = at.path("a").display().to_string();
    for path in ["a", "./a", "b/../a", &absolute, &format!("{}/./x/../a", at.cx.root.display()), "../work/a"] {
        assert_eq!(writes(path), Effect::Writes(vec!["a".to_owned()]), "{path}");
        assert_eq!(at.effect("Read", &json!({"file_path": path})), Effect::Reads(vec!["a".to_owned()]));
    }
    assert_eq!(writes("../x"), Effect::Writes(Vec::new()));
    assert_eq!(at.effect("Bash", &json!({"command": "ls | head"})), Effect::Reads(Vec::new()));
    assert_eq!(at.effect("Bash", &json!({"command": "cargo test"})), Effect::Exclusive);
}

#[tokio::test]
async fn bash_shows_output_exit_code_and_where_it_was_cut() {
    let at = Fixture::new();
    let output = at.call("Bash", json!({"command": "printf 'out\\033[1m!\\n'; echo err >&2; exit 3"})).await.unwrap();
    assert_eq!((output.text.as_str(), output.is_error), ("out!\nerr\n[exit code 3]", true));
    let expected = json!({"stdout": "out\u{1b}[1m!\n", "stderr": "err\n", "interrupted": false, "isImage": false, "exitCode": 3});
    assert_eq!(output.response, expected);
    assert_eq!(at.text("Bash", json!({"command": "true"})).await, "(no output)");
    let output = at.call("Bash", json!({"command": "echo a | grep b"})).await.unwrap();
    assert_eq!((output.text.as_str(), output.is_error), ("[exit code 1]", false));

    let output = at.call("Bash", json!({"command": "seq 1 200000; seq 1 50000 >&2"})).await.unwrap();
    assert!(output.text.len() < text::ANSWER_MAX + 1000 && output.text.starts_with("1\n2\n") && output.text.ends_with("50000\n"), "{}", output.text.len());
    assert!(output.text.contains("cut here"));
    assert_eq!(output.whole.unwrap().len(), 1_288_895 + 288_894);

    let output = at.call("Bash", json!({"command": "echo begun; sleep 30", "timeout": 500})).await.unwrap();
    assert!(output.is_error && output.text.starts_with("begun\n[timed out after 500 ms"), "{}", output.text);
    assert_eq!(output.response["interrupted"], true);
}

#[tokio::test]
async fn an_agent_that_may_only_read_changes_nothing() {
    let mut at = Fixture::new();
    at.cx.access = Access::Read;
    at.put("a", "x");
    assert_eq!(at.text("Bash", json!({"command": "cat a && ls"})).await, "xa\n");
    for (tool, input) in [
        ("Bash", json!({"command": "touch b"})),
        ("Bash", json!({"command": "echo x > a"})),
        ("Write", json!({"file_path": "b", "content": ""})),
        ("Edit", json!({"file_path": "a", "old_string": "x", "new_string": "y"})),
    ] {
        assert!(at.call(tool, input).await.unwrap_err().contains("may only read"));
    }
    assert_eq!((at.get("a").as_str(), at.path("b").exists()), ("x", false));
    let writers: Vec<String> = at.toolbox.catalog().into_iter().filter(|(_, (_, only_reads))| !only_reads).map(|(name, _)| name).collect();
    assert_eq!(writers, ["Edit", "Write"]);
}

#[tokio::test]
async fn a_workspace_that_is_gone_ends_the_step() {
    let mut at = Fixture::new();
    at.cx.root = at.path("gone");
    at.cx.cwd = at.cx.root.clone();
    for (tool, input) in [("Read", json!({"file_path": "a"})), ("Bash", json!({"command": "ls"})), ("Glob", json!({"pattern": "*"}))] {
        let error = at.toolbox.get(tool).unwrap().call(&input, &at.cx).await.unwrap_err();
        assert!(matches!(error, ToolError::Fatal(_)), "{tool}: {error}");
    }
}

#[tokio::test]
async fn a_workspace_that_became_a_link_is_not_followed() {
    let at = Fixture::new();
    let outside = at.folder.path().canonicalize().unwrap().join("outside");
    fs::rename(&at.cx.root, at.cx.root.with_extension("moved")).unwrap();
    symlink(&outside, &at.cx.root).unwrap();
    for (tool, input) in [
        ("Write", json!({"file_path": "new", "content": "x"})),
        ("Read", json!({"file_path": "secret"})),
        ("Bash", json!({"command": "touch new"})),
        ("Glob", json!({"pattern": "*"})),
        ("Grep", json!({"pattern": "secret"})),
    ] {
        let error = at.toolbox.get(tool).unwrap().call(&input, &at.cx).await.unwrap_err();
        assert!(matches!(error, ToolError::Fatal(_)), "{tool}: {error}");
    }
    assert!(!outside.join("new").exists());
}

fn forest(at: &Fixture) {
    at.put(".gitignore", "/target\n*.log\n");
    at.put("src/a.rs", "fn main() {\n    one();\n}\n");
    at.put("src/deep/b.rs", "fn One() {}\n// one\n");
    at.put("src/.hidden.rs", "one\n");
    at.put("x.log", "one\n");
    at.put("target/t.rs", "one\n");
    at.put("binary", b"one\0");
    at.put("README.md", "One\n");
}

#[tokio::test]
async fn grep_finds_by_its_modes() {
    let at = Fixture::new();
    forest(&at);
    let grep = async |input: Value| at.text("Grep", input).await;
    assert_eq!(grep(json!({"pattern": "one"})).await, "src/.hidden.rs\nsrc/a.rs\nsrc/deep/b.rs");
    assert_eq!(grep(json!({"pattern": "one", "path": "target"})).await, "target/t.rs");
    assert_eq!(grep(json!({"pattern": "one", "path": "x.log", "output_mode": "content"})).await, "x.log:1:one");
    assert_eq!(grep(json!({"pattern": "one", "-i": true, "output_mode": "count", "glob": "*.rs !.*"})).await, "src/a.rs:1\nsrc/deep/b.rs:2");
    assert_eq!(
        grep(json!({"pattern": "one", "type": "rust", "path": "src/deep", "output_mode": "content", "-B": 1})).await,
        "src/deep/b.rs-1-fn One() {}\nsrc/deep/b.rs:2:// one"
    );
    assert_eq!(
        grep(json!({"pattern": "[a-z]+\\(\\)", "output_mode": "content", "-o": true, "-n": false, "path": "src/a.rs"})).await,
        "src/a.rs:main()\nsrc/a.rs:one()"
    );
    assert_eq!(
        grep(json!({"pattern": "\\{\\n\\s+one", "multiline": true, "output_mode": "content", "glob": "src/*.rs"})).await,
        "src/a.rs:1:fn main() {\nsrc/a.rs:2:    one();"
    );
    assert_eq!(
        grep(json!({"pattern": "one", "head_limit": 1, "offset": 1})).await,
        "src/a.rs\n[Entries 2 to 2 of 3. Go on with offset 2, or narrow the search.]"
    );
    assert_eq!(grep(json!({"pattern": "nowhere"})).await, "Nothing matches.");
    for (input, said) in [
        (json!({"pattern": "a\\nb"}), "multiline"),
        (json!({"pattern": "("}), "regular expression"),
        (json!({"pattern": "x", "type": "klingon"}), "`*.klingon`"),
        (json!({"pattern": "x", "glob": "a["}), "no glob"),
    ] {
        assert!(grep(input).await.contains(said));
    }
    let output = at.call("Grep", json!({"pattern": "one", "output_mode": "content", "path": "src/a.rs"})).await.unwrap();
    assert_eq!(output.response, json!({"mode": "content", "numFiles": 1, "filenames": [], "content": "src/a.rs:2:    one();", "numLines": 1}));
}

#[tokio::test]
async fn glob_finds_by_name() {
    let at = Fixture::new();
    forest(&at);
    let glob = async |input: Value| at.text("Glob", input).await;
    assert_eq!(glob(json!({"pattern": "*.rs"})).await, "src/.hidden.rs\nsrc/a.rs\nsrc/deep/b.rs");
    assert_eq!(glob(json!({"pattern": "src/*.rs"})).await, "src/.hidden.rs\nsrc/a.rs");
    assert_eq!(glob(json!({"pattern": "/*.{md,rs}"})).await, "README.md");
    assert_eq!(glob(json!({"pattern": at.path("src/**/b.rs")})).await, "src/deep/b.rs");
    assert_eq!(glob(json!({"pattern": "*", "path": "src/deep"})).await, "src/deep/b.rs");
    assert!(glob(json!({"pattern": "*.py"})).await.starts_with("No file below"));
    let output = at.call("Glob", json!({"pattern": "*.md"})).await.unwrap();
    assert_eq!((&output.response["filenames"], &output.response["truncated"]), (&json!(["README.md"]), &json!(false)));
}

#[tokio::test]
async fn ignore_rules_above_the_workspace_do_not_count() {
    let at = Fixture::new();
    fs::write(at.folder.path().join(".gitignore"), "*\n").unwrap();
    at.put("a.txt", "x");
    assert_eq!(at.text("Glob", json!({"pattern": "*"})).await, "a.txt");
}

#[tokio::test]
async fn a_workspace_may_have_any_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut at = Fixture::new();
    at.cx.root = at.path("").join(std::ffi::OsStr::from_bytes(b"w\xffrk"));
    fs::create_dir(&at.cx.root).unwrap();
    at.cx.cwd = at.cx.root.clone();
    assert!(at.text("Write", json!({"file_path": "a", "content": "x\n"})).await.starts_with("Made"));
    assert_eq!(at.text("Bash", json!({"command": "cat a"})).await, "x\n");
    assert_eq!(at.text("Edit", json!({"file_path": "a", "old_string": "x", "new_string": "y"})).await.lines().last(), Some("     1\ty"));
    assert_eq!(at.text("Read", json!({"file_path": "a"})).await, "     1\ty\n");
    assert_eq!(at.text("Glob", json!({"pattern": "*"})).await, "a");
}

#[test]
fn inputs_are_checked_and_faults_are_told() {
    let toolbox = Toolbox::standard();
    for (tool, input, said) in [
        ("Read", json!({}), "\"file_path\" is required"),
        ("Read", json!({"file_path": "a", "ofset": 1}), "there is no parameter `ofset`, did you mean `offset`?"),
        ("Read", json!({"file_path": "a", "offset": "1"}), "`offset`: value is not of type \"integer\""),
        ("Bash", json!({"command": "x", "timeout": 1e9}), "`timeout`: value is greater than"),
        ("Grep", json!({"pattern": "x", "output_mode": "lines"}), "`output_mode`"),
        ("Read", json!("a"), "is not of type \"object\""),
        ("Task", json!({"description": "x", "prompt": "y"}), "subagent_type\" is required"),
        ("Agents", json!({}), "there is no tool `Agents`; the tools are: Agent, Bash, Edit, Glob, Grep, Read, Skill, Write"),
    ] {
        let fault = toolbox.check(tool, &input).unwrap_err();
        assert!(fault.contains(said), "{fault}");
    }
    assert!(toolbox.check("Read", &json!({"file_path": "a", "limit": 5.0})).is_ok());
}

#[test]
fn what_is_declared_is_sorted_and_stable() {
    let toolbox = Toolbox::standard();
    let names: Vec<String> = ["Write", "Bash", "Read", "Nothing", "Bash"].map(str::to_owned).into();
    let declared = serde_json::to_string(&toolbox.specs(&names)).unwrap();
    assert_eq!(toolbox.specs(&names).iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["Bash", "Read", "Write"]);
    assert_eq!(declared, serde_json::to_string(&Toolbox::standard().specs(&names)).unwrap());
    assert!(toolbox.names().is_sorted() && toolbox.get("Task").is_some_and(|tool| tool.spec().name == "Agent"));
}

#[tokio::test]
async fn skills_open_by_name() {
    struct Shelf;
    impl SkillSource for Shelf {
        fn open(&self, name: &str, args: &str) -> Option<String> {
            (name == "review").then(|| format!("Review {args}."))
        }
        fn names(&self) -> Vec<String> {
            vec!["review".to_owned()]
        }
    }
    let mut at = Fixture::new();
    at.cx.skills = Arc::new(Shelf);
    assert_eq!(at.text("Skill", json!({"skill": "/review", "args": "it"})).await, "Review it.");
    assert!(at.text("Skill", json!({"skill": "reviev"})).await.contains("did you mean `review`?"));
}

#[tokio::test]
async fn many_writers_leave_whole_files() {
    let at = Fixture::new();
    let contents: Vec<String> = (0..8).map(|writer: u8| char::from(b'a' + writer).to_string().repeat(50_000)).collect();
    let writers: Vec<ToolContext> = contents.iter().map(|_| ToolContext { seen: Arc::default(), ..at.cx.clone() }).collect();
    let inputs: Vec<Value> = contents.iter().map(|content| json!({"file_path": "shared", "content": content})).collect();
    let tool = at.toolbox.get("Write").unwrap();
    let calls = inputs.iter().zip(&writers).map(|(input, cx)| tool.call(input, cx));
    for written in futures_util::future::join_all(calls).await {
        written.unwrap();
    }
    assert!(contents.contains(&at.get("shared")));
    assert!(Path::new(&at.path("shared")).exists());
}

#[test]
fn a_write_outside_the_scope_is_told_with_the_scope() {
    let scope = crate::git::Scope::compile(&["src".to_owned()]).unwrap();
    let writes = |path: &str| Effect::Writes(vec![path.to_owned()]);
    assert_eq!(writes("src/a/b.rs").outside(&scope), None);
    assert_eq!(Effect::Exclusive.outside(&scope), None);
    assert!(writes("src2/a").outside(&scope).unwrap().starts_with("`src2/a` is outside what this step may write (src)"));
}
