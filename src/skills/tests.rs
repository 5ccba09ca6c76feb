//! Skills and agents as they are found in the world.
use super::*;
use crate::{
    library::{Library, Places},
    workflow::{Access, Text},
};
use std::fs;

struct Project(tempfile::TempDir);

impl Project {
    fn new(files: &[(&str, &str)]) -> Project {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("p").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Project(dir)
    }

    fn library(&self) -> Library {
        Library::discover(&Places { project: Some(self.0.path().join("p")), ..Places::default() })
    }

    fn shelf(&self) -> Shelf {
        Shelf::of(&self.library())
    }

    fn agent(text: &str) -> AgentFile {
        let project = Project::new(&[(".claude/agents/file-name.md", text)]);
        let library = project.library();
        agent(library.find(Kind::Agent, "file-name").unwrap()).unwrap()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_skill_is_read_with_all_its_keys() {
    let project = Project::new(&[(
        ".claude/skills/deploy/SKILL.md",
        "---\nname: deploy\ndescription: |\n  Ships\n  it\nwhen_to_use: when asked\nallowed-tools: Bash(git add *), Read\narguments: env version\nargument-hint: <env>\ndisable-model-invocation: yes\nuser-invocable: off\ncontext: fork\npaths: [src/**, docs/**]\nmodel: opus\n---\n\nDeploy $env.\n",
    )]);
    let shelf = project.shelf();
    let skill = shelf.get("deploy").unwrap();
    assert_eq!((skill.description.as_str(), skill.when_to_use.as_deref()), ("Ships it", Some("when asked")));
    assert_eq!(skill.allowed_tools, ["Bash(git add *)", "Read"]);
    assert_eq!(skill.arguments, ["env", "version"]);
    assert!(skill.disable_model_invocation && !skill.user_invocable && !skill.trusted);
    assert_eq!((skill.fork.as_deref(), skill.model.as_deref()), (Some("general-purpose"), Some("opus")));
    assert_eq!(skill.paths, ["src/**", "docs/**"]);
    assert_eq!(skill.render("prod 2", &Invocation::default()), "Deploy prod.\n");
    assert_eq!(shelf.warnings(), Vec::<String>::new().as_slice());
}

#[test]
fn a_malformed_skill_still_loads_and_says_so() {
    let project = Project::new(&[
        (".claude/skills/broken/SKILL.md", "---\nname: broken\ndescription: Use when: things break: badly\nallowed-tools: Read\n---\nBody"),
        (".claude/skills/bare/SKILL.md", "# Title\n\nDoes one\nthing.\n\nMore."),
        (".claude/skills/My_Skill/SKILL.md", "---\nname: other-name\ndescription: x\n---\n"),
        (".claude/skills/empty/SKILL.md", ""),
    ]);
    let shelf = project.shelf();
    assert_eq!(shelf.get("broken").unwrap().description, "Use when: things break: badly");
    assert_eq!(shelf.get("broken").unwrap().allowed_tools, ["Read"]);
    assert_eq!(shelf.get("bare").unwrap().description, "Does one thing.");
    assert_eq!(shelf.get("other-name").unwrap().name, "My_Skill");
    assert_eq!(shelf.get("empty").unwrap().description, "");
    assert!(shelf.get("none").is_none());
    let warnings = shelf.warnings().join("\n");
    for word in [
        "broken/SKILL.md: its head is not YAML",
        "bare/SKILL.md: it has no head",
        "its name is `other-name`",
        "`My_Skill` is not a name that every client takes",
    ] {
        assert!(warnings.contains(word), "{word}\n{warnings}");
    }
}

#[test]
fn the_catalogue_is_sorted_stable_and_within_its_budget() {
    let long = format!("---\nname: b\ndescription: {}\n---\n", "word ".repeat(600));
    let project = Project::new(&[
        (".claude/skills/c/SKILL.md", "---\ndescription: third\nwhen_to_use: rarely\n---\n"),
        (".claude/skills/a/SKILL.md", "---\ndescription: first\n---\n"),
        (".claude/skills/b/SKILL.md", &long),
        (".claude/skills/hidden/SKILL.md", "---\ndescription: x\ndisable-model-invocation: true\n---\n"),
    ]);
    let shelf = project.shelf();
    let listing = shelf.listing(&names(&["c", "a", "hidden", "a", "bb"]), 1000);
    assert_eq!(listing.text, "- a: first\n- c: third rarely\n");
    assert_eq!((listing.cut.len(), listing.dropped.len()), (0, 0));
    assert_eq!(listing.unknown, [("bb".to_owned(), Some("b".to_owned()))]);
    assert_eq!(listing, shelf.listing(&names(&["bb", "a", "c", "hidden"]), 1000));

    let listing = shelf.listing(&names(&["a", "b", "c"]), 10_000);
    assert_eq!(listing.cut, ["b"], "no description is longer than 1536 characters");
    for budget in (0..2000).step_by(7) {
        let listing = shelf.listing(&names(&["a", "b", "c"]), budget);
        assert!(listing.text.chars().count() <= budget, "{budget}");
        assert!(!listing.cut.is_empty() || !listing.dropped.is_empty());
    }
    let listing = shelf.listing(&names(&["a", "b", "c"]), 300);
    assert!(
        listing.text.starts_with("- a: first\n- b: word word") && listing.text.ends_with("- c: third rarely\n(descriptions shortened for want of room: 1)\n")
    );
    assert_eq!(shelf.listing(&[], 100), Listing::default());
    assert_eq!(shelf.listing(&names(&["a", "b", "c"]), 3).dropped, ["a", "b", "c"]);
}

#[test]
fn an_opened_skill_says_where_its_files_are() {
    let project = Project::new(&[(".claude/skills/a/SKILL.md", "---\ndescription: x\n---\nRun ${CLAUDE_SKILL_DIR}/go.\n")]);
    let shelf = project.shelf();
    let place = Invocation { dir: Some("/s/a".as_ref()), ..Invocation::default() };
    let text = shelf.get("a").unwrap().open("", &place, &names(&["SKILL.md", "go", "references/x.md"]));
    assert_eq!(text, "<skill_content name=\"a\">\nRun /s/a/go.\n\nFolder of this skill: /s/a\n- go\n- references/x.md\n</skill_content>");
}

#[test]
fn an_agents_tools_say_whether_it_writes() {
    let access = |head: &str| Project::agent(&format!("---\nname: x\ndescription: d\n{head}\n---\nText")).agent.access;
    assert_eq!(access("tools: Read, Grep"), Some(Access::Read));
    assert_eq!(access("tools: Read, Edit"), Some(Access::Write));
    assert_eq!(access("tools: [Read, NotebookEdit]"), Some(Access::Write));
    assert_eq!(access("tools: Bash"), Some(Access::Read));
    assert_eq!(access(""), Some(Access::Write));
    assert_eq!(access("tools: '*'"), Some(Access::Write));
    assert_eq!(access("access: read"), Some(Access::Read));
    assert_eq!(access("tools: Read\naccess: write"), Some(Access::Write));
    assert_eq!(access("disallowedTools: Write, Edit"), Some(Access::Read));
    assert_eq!(access("tools: Read, Edit\ndisallowedTools: [Edit]"), Some(Access::Read));
    assert_eq!(access("permissionMode: plan"), Some(Access::Read));
    assert_eq!(access("tools: {read: true, edit: false}"), Some(Access::Read));
    assert_eq!(access("tools: {read: true, edit: true}"), Some(Access::Write));
}

#[test]
fn an_agent_file_becomes_an_agent_of_a_workflow() {
    let file = Project::agent(
        "---\nname: reviewer\ndescription: Reviews\ntools: Read, Task, MultiEdit, Edit, Bash(git log *)\ndisallowedTools: mcp__x\nmodel: sonnet\nmaxTurns: 12\nskills: rust, review\ncolor: red\nhooks: {}\neffort: high\n---\n\nYou review.\n",
    );
    let agent = &file.agent;
    assert_eq!(file.name, "reviewer");
    assert_eq!(agent.system.as_deref(), Some(&Text::Inline("You review.".to_owned())));
    assert_eq!(agent.tools.as_ref().unwrap().iter().map(|tool| tool.as_str()).collect::<Vec<_>>(), ["Read", "Agent", "Edit", "Bash"]);
    assert_eq!(agent.model.as_deref().map(String::as_str), Some("anthropic/claude-sonnet-5-5"));
    assert_eq!(agent.max_turns.as_deref(), Some(&12));
    assert_eq!(agent.skills.iter().map(|skill| skill.as_str()).collect::<Vec<_>>(), ["rust", "review"]);
    assert_eq!(agent.permissions.deny[0].as_str(), "mcp__x");
    assert_eq!(agent.effort.as_deref(), Some("high"));
    assert_eq!(file.warnings.len(), 2, "{:?}", file.warnings);
}

#[test]
fn models_go_by_their_names_here() {
    let model = |model: &str| {
        let file = Project::agent(&format!("---\nname: x\ndescription: d\nmodel: {model}\n---\nText"));
        (file.agent.model.map(|model| model.value), file.warnings.len())
    };
    assert_eq!(model("opus"), (Some("anthropic/claude-opus-5-5".to_owned()), 0));
    assert_eq!(model("Haiku"), (Some("anthropic/claude-haiku-5-5".to_owned()), 0));
    assert_eq!(model("inherit"), (None, 0));
    assert_eq!(model("claude-sonnet-4-5"), (Some("anthropic/claude-sonnet-4-5".to_owned()), 0));
    assert_eq!(model("openai/gpt-6-sol"), (Some("openai/gpt-6-sol".to_owned()), 0));
    assert_eq!(model("fable"), (None, 1));
}

#[test]
fn the_usual_breakage_is_rescued() {
    let file = Project::agent(
        "---\nname: helper\ndescription: Use this agent when you need help. Examples:\n<example>Context: The user asks: \"x\"\nassistant: \"y\"\n</example>\ntools: Read, Write\nmodel: opus\n---\n\nYou help.",
    );
    assert_eq!((file.name.as_str(), file.agent.access), ("helper", Some(Access::Write)));
    assert_eq!(file.agent.model.as_deref().map(String::as_str), Some("anthropic/claude-opus-5-5"));
    assert!(file.agent.description.as_deref().is_some_and(|text| text.starts_with("Use this agent") && text.ends_with("</example>")));
    assert_eq!(file.warnings.len(), 1);
    let file = Project::agent("You are plain.");
    assert_eq!((file.name.as_str(), file.agent.access), ("file-name", Some(Access::Write)));
}

#[test]
fn an_agents_name_is_the_one_in_its_file() {
    let project = Project::new(&[
        (".claude/agents/b/one.md", "---\nname: same\ndescription: claude\n---\nx"),
        (".spinney/agents/z.md", "---\nname: same\ndescription: ours\n---\nx"),
        (".claude/agents/bad.md", "---\nname: -x\ndescription: d\n---\nx"),
        (".claude/agents/worse.md", "---\nname: a:b\ndescription: d\n---\nx"),
        (".claude/agents/empty.md", "---\n---\n"),
        (".claude/agents/other.md", "---\nname: other\ndescription: d\n---\nx"),
    ]);
    let (agents, warnings) = agents(&project.library());
    assert_eq!(agents.keys().collect::<Vec<_>>(), ["other", "same"]);
    let (file, found) = &agents["same"];
    assert_eq!((file.agent.description.as_deref(), found.shadowed.as_slice()), (Some("ours"), [".claude/agents/b/one.md".to_owned()].as_slice()));
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}
