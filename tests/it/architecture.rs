//! The architecture, held by a machine: every file of `src/` is parsed, and what breaks the order of the floors, or the
//! measures that keep files readable, is named with its place and with what to do instead.
mod scan;

use petgraph::{algo::tarjan_scc, graph::DiGraph};
use scan::{Scan, scan};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The modules of the crate by floor, the lowest first. A module may use only modules on lower floors.
const FLOORS: &[&[&str]] = &[
    &["clock", "message", "secrets", "source", "tasks", "trace"],
    &["event"],
    &["library", "prompts", "workflow"],
    &["plan"],
    &["http", "journal", "sandbox"],
    &["git", "llm", "mcp", "skills"],
    &["merge", "tools"],
    &["hooks"],
    &["agent"],
    &["engine"],
    &["telemetry"],
    &["cli"],
];
/// Lines of a file, those of tests left out.
const FILE_LINES: usize = 700;
/// Lines of a function, from its name to its end.
const FUNCTION_LINES: usize = 100;
/// Names that say nothing of what is in a module, so that anything comes to be in it.
const EMPTY_NAMES: &[&str] = &["common", "errors", "helper", "helpers", "manager", "managers", "misc", "shared", "util", "utils"];
/// Names that say something inside a module, and nothing at the top.
const EMPTY_NAMES_AT_TOP: &[&str] = &["config", "error", "types"];

/// Finds all that is wrong with the sources: paths below `src/` and their texts.
fn violations(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut scans = BTreeMap::new();
    for (path, text) in sources {
        match scan(text, &module_of(path)) {
            Ok(scan) => {
                scans.insert(path.as_str(), scan);
            }
            Err(error) => wrong.push(format!("src/{path}: does not parse: {error}")),
        }
    }
    let modules: BTreeSet<String> = scans.keys().filter_map(|path| module_of(path).into_iter().next()).filter(|module| module != "main").collect();
    for (path, scan) in &scans {
        measures(path, scan, &mut wrong);
    }
    let tests: Vec<Vec<String>> =
        scans.iter().flat_map(|(path, scan)| scan.test_files.iter().map(|name| [module_of(path), vec![name.clone()]].concat())).collect();
    let mut edges = BTreeSet::new();
    for (path, scan) in &scans {
        let module = module_of(path);
        if !tests.iter().any(|test| module.starts_with(test)) {
            lengths(path, scan, &mut wrong);
            order(path, scan, &modules, &mut wrong, &mut edges);
        }
    }
    cycles(&edges, &mut wrong);
    wrong
}

/// Returns a file's module path from the crate's root.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// What holds of every file, tests included.
fn measures(path: &str, scan: &Scan, wrong: &mut Vec<String>) {
    if !scan.has_doc {
        wrong.push(format!("src/{path}:1: no module doc: begin with `//!` and say what the file is for and what it never does"));
    }
    for line in &scan.unsafe_lines {
        wrong.push(format!("src/{path}:{line}: `unsafe`: use a crate that has a safe interface to it"));
    }
    let module = module_of(path);
    let own = module.last().filter(|_| path != "main.rs").map(|name| (name.clone(), 1, module.len()));
    let inside = scan.modules.iter().map(|(name, line)| (name.clone(), *line, module.len() + 1));
    for (name, line, depth) in own.into_iter().chain(inside) {
        let is_empty = EMPTY_NAMES.contains(&name.as_str()) || (depth == 1 && EMPTY_NAMES_AT_TOP.contains(&name.as_str()));
        if is_empty {
            wrong.push(format!("src/{path}:{line}: a module called `{name}`: name it by the one idea it holds, or move its parts to what uses them"));
        }
    }
}

fn lengths(path: &str, scan: &Scan, wrong: &mut Vec<String>) {
    if scan.lines > FILE_LINES {
        wrong.push(format!("src/{path}: {} lines without tests, {FILE_LINES} are allowed: split it by concept", scan.lines));
    }
    for (name, line, lines) in scan.functions.iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES) {
        wrong.push(format!("src/{path}:{line}: `{name}` has {lines} lines, {FUNCTION_LINES} are allowed: take its cases out into functions of their own"));
    }
}

/// Checks what a file uses against the floors, and notes the edges.
fn order(path: &str, scan: &Scan, modules: &BTreeSet<String>, wrong: &mut Vec<String>, edges: &mut BTreeSet<(String, String)>) {
    let Some(from) = module_of(path).into_iter().next().filter(|module| module != "main") else { return };
    let Some(mine) = floor_of(&from) else {
        wrong.push(format!("src/{path}: `{from}` has no floor: give it one in `FLOORS` of tests/it/architecture.rs and in the table of src/lib.rs"));
        return;
    };
    for named in &scan.named {
        let Some(to) = named.path.first() else {
            wrong.push(format!("src/{path}:{}: `*` of the crate's root takes every module at once: name the ones that are used", named.line));
            continue;
        };
        if *to == from || !modules.contains(to) {
            continue;
        }
        edges.insert((from.clone(), to.clone()));
        if let Some(theirs) = floor_of(to).filter(|theirs| *theirs >= mine) {
            let remedy = if theirs == mine {
                "modules of one floor know nothing of each other: let a module above use both, or move the shared words to a lower floor".to_owned()
            } else {
                format!("declare a trait in `{from}` and implement it in `{to}`, or move what both need to a lower floor")
            };
            wrong.push(format!("src/{path}:{}: `{from}` (floor {mine}) uses `{to}` (floor {theirs}): {remedy}", named.line));
        }
    }
}

fn cycles(edges: &BTreeSet<(String, String)>, wrong: &mut Vec<String>) {
    let modules: Vec<&String> = edges.iter().flat_map(|(from, to)| [from, to]).collect::<BTreeSet<_>>().into_iter().collect();
    let mut graph = DiGraph::<&str, ()>::new();
    let nodes: BTreeMap<&String, _> = modules.into_iter().map(|module| (module, graph.add_node(module))).collect();
    graph.extend_with_edges(edges.iter().map(|(from, to)| (nodes[from], nodes[to])));
    for component in tarjan_scc(&graph).into_iter().filter(|component| component.len() > 1) {
        let mut cycle: Vec<&str> = component.into_iter().map(|node| graph[node]).collect();
        cycle.sort_unstable();
        wrong.push(format!("these modules use each other in a circle: {}", cycle.join(", ")));
    }
}

fn read(folder: &Path, below: &str, sources: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("src is a folder") {
        let entry = entry.expect("src can be read");
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{name}/"), sources);
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            sources.insert(name, fs::read_to_string(entry.path()).expect("a source is text"));
        }
    }
}

#[test]
fn the_sources_keep_the_architecture() {
    let mut sources = BTreeMap::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    assert!(sources.len() > 20, "the sources were found");
    let wrong = violations(&sources);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The modules with their floors: as this test has them, and as the page of the architecture shows them.
#[test]
fn every_module_has_one_floor_and_is_on_the_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let held: Vec<(usize, &str)> = FLOORS.iter().enumerate().flat_map(|(floor, modules)| modules.iter().map(move |module| (floor, *module))).collect();
    let mut shown: Vec<(usize, &str)> = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let Some((floor, rest)) = row.split_once(" | ") else { continue };
        let (Ok(floor), Some((modules, _))) = (floor.parse(), rest.split_once(" | ")) else { continue };
        shown.extend(modules.split(", ").map(|module| (floor, module.trim_matches(['[', ']', '`']))));
    }
    shown.sort_unstable();
    assert_eq!(shown, held);
    let mut modules: Vec<&str> = held.iter().map(|(_, module)| *module).collect();
    modules.sort_unstable();
    let declared: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(declared, modules);
}

/// What a file that only maps one form to another has no use for.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "crate::clock",
    "Clock",
    "Client",
    "std::fs",
    "std::env",
    "std::net",
    "Mutex",
    "Atomic",
    "RefCell",
    "fastrand",
    "static mut",
];

#[test]
fn a_wire_format_is_a_pure_mapping() {
    let mut sources = BTreeMap::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/llm"), "", &mut sources);
    let formats = ["anthropic/", "gemini/", "openai_chat/", "openai_responses/", "provider.rs", "neutral.rs", "schema.rs", "fields.rs", "counts.rs"];
    let files: Vec<_> = sources.iter().filter(|(path, _)| formats.iter().any(|format| path.starts_with(format))).collect();
    assert!(files.len() >= 13, "{:?}", sources.keys());
    for (path, text) in files {
        for word in IMPURE {
            assert!(!text.contains(word), "src/llm/{path} says `{word}`: a wire format knows no I/O and no time; what does stands in `http_model`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modules that a file at `path` names, with lines.
    fn named(path: &str, text: &str) -> Vec<(String, usize)> {
        let found = scan(text, &module_of(path)).unwrap().named;
        found.into_iter().map(|named| (named.path.join("::") + if named.glob { "::*" } else { "" }, named.line)).collect()
    }

    fn names(path: &str, text: &str) -> Vec<String> {
        named(path, text).into_iter().map(|(name, _)| name).collect()
    }

    fn tree(files: &[(&str, &str)]) -> Vec<String> {
        // One line of doc on the first line, so that numbers in the tests count from it.
        violations(&files.iter().map(|(path, text)| ((*path).to_owned(), format!("//! Holds a snippet. {text}"))).collect())
    }

    #[test]
    fn uses_are_seen_in_every_form() {
        assert_eq!(names("tools/bash.rs", "use crate::{event::{Event, id::*}, plan, sandbox as s};"), ["event::Event", "event::id::*", "plan", "sandbox"]);
        assert_eq!(
            names("tools/bash.rs", "use super::Tool; use self::inner::X; use super::super::engine::run;"),
            ["engine::run", "tools::Tool", "tools::bash::inner::X"]
        );
        assert_eq!(names("tools/mod.rs", "pub use super::hooks::Hook; use std::fs; use ::serde::Serialize; use serde::de;"), ["hooks::Hook"]);
        assert_eq!(names("a.rs", "mod b { use super::super::c::D; use super::E; mod f { use super::super::super::g; } }"), ["a::E", "c::D", "g"]);
        assert_eq!(names("a.rs", "fn f() { use crate::b::c; }"), ["b::c"]);
        assert_eq!(names("a.rs", "use crate::*;"), ["::*"]);
        assert_eq!(names("a.rs", "use super::*;"), ["::*"]);
        assert_eq!(names("a/b.rs", "use super::*;"), ["a::*"]);
    }

    #[test]
    fn names_for_the_root_do_not_hide_what_they_lead_to() {
        assert_eq!(names("a.rs", "fn f() { root::b::c() } use crate as root;"), ["b::c"]);
        assert_eq!(names("a/b.rs", "use super::super as up; type T = up::c::D;"), ["c::D"]);
        assert_eq!(names("a.rs", "use crate::{self as r}; fn f() { vec![r::b::c()] }"), ["b::c"]);
        assert_eq!(names("a.rs", "extern crate self as me; use me::b::C;"), ["b::C"]);
    }

    #[test]
    fn paths_are_seen_in_code() {
        let text = "
            struct S<T: crate::a::Bound>(Vec<Option<crate::b::Inner>>, [u8; crate::c::N]);
            impl crate::d::Trait<crate::e::Arg> for S<()> where (): crate::f::Where {}
            fn g(x: &dyn crate::g::Object) -> impl crate::h::Returned { match x { crate::i::Pattern { .. } => <crate::j::Q as crate::k::As>::m(), _ => super::l::f::<crate::m::Turbofish>() } }
            pub(in crate::x) fn h() {}";
        let found: BTreeSet<String> = names("x/y.rs", text).into_iter().map(|name| name.split("::").next().unwrap().to_owned()).collect();
        assert_eq!(found.into_iter().collect::<String>(), "abcdefghijkmx");
        assert!(names("x/y.rs", text).contains(&"x::l::f".to_owned()));
        assert_eq!(names("x.rs", "fn f(self: Self) { self.g(); Self::h(); other::i() }"), Vec::<String>::new());
    }

    #[test]
    fn tokens_of_macros_and_texts_of_attributes_are_seen() {
        let text = r#"
            macro_rules! m { ($x:expr) => { $crate::a::f($x, super::b::g) }; }
            fn f() { println!("{} crate::not", crate::c::D); m!(x => { use crate::{e::{F, G}, h}; }); }
            #[serde(with = "crate::i::json")] struct S;
            #[cfg_attr(unix, doc = "no", derive(crate::j::Derive))] struct T;
            #[doc = "crate::not"] struct U;"#;
        assert_eq!(names("x.rs", text), ["a::f", "b::g", "c::D", "e::F", "e::G", "h", "i::json", "j::Derive"]);
    }

    #[test]
    fn tests_may_use_what_they_like() {
        let text = "
            #[cfg(test)] mod tests { use crate::a; }
            #[cfg(all(unix, test))] use crate::b;
            #[cfg(test)] fn f() { crate::c::d() }
            #[test] fn g() { crate::d::e() }
            #[tokio::test] async fn h() { crate::d::e() }
            impl S { #[cfg(test)] fn i() { crate::e::f() } }
            #[cfg(any(test, unix))] use crate::seen::a;
            #[cfg(not(test))] use crate::seen::b;
            fn j() { #[cfg(test)] let _ = crate::f::g(); }";
        assert_eq!(names("x.rs", text), ["seen::a", "seen::b"]);
        let upward = ("plan/mod.rs", "\n#[cfg(test)]\nmod tests;\nmod other;");
        assert_eq!(
            tree(&[upward, ("plan/tests.rs", "use crate::cli::x;"), ("plan/tests/deep.rs", "use crate::cli::x;"), ("cli.rs", "")]),
            Vec::<String>::new()
        );
        assert_eq!(tree(&[upward, ("plan/other.rs", "\nuse crate::cli::x;"), ("cli.rs", "")]).len(), 1);
    }

    #[test]
    fn the_order_of_the_floors_is_kept() {
        assert_eq!(
            tree(&[("event.rs", "\nuse crate::clock::Timestamp;"), ("clock.rs", ""), ("lib.rs", "\npub mod clock; pub use clock::x;")]),
            Vec::<String>::new()
        );
        assert_eq!(
            tree(&[("tools/bash.rs", "\n\nuse crate::{agent::run, macro_of_ours};"), ("agent/mod.rs", "")]),
            [
                "src/tools/bash.rs:3: `tools` (floor 6) uses `agent` (floor 8): declare a trait in `tools` and implement it in `agent`, or move what both need to a lower floor"
            ]
        );
        let sideways = tree(&[("tools/mod.rs", "\nfn f() { crate::merge::g() }"), ("merge.rs", "")]);
        assert!(sideways[0].starts_with("src/tools/mod.rs:2: `tools` (floor 6) uses `merge` (floor 6): modules of one floor"), "{sideways:?}");
        let circle = tree(&[("tools.rs", "\nuse crate::git::g;"), ("git.rs", "\nuse crate::tools::t;")]);
        assert_eq!(circle.last().unwrap(), "these modules use each other in a circle: git, tools");
        assert!(tree(&[("stray.rs", "")])[0].starts_with("src/stray.rs: `stray` has no floor"));
        assert!(tree(&[("git.rs", "\nuse crate::*;")])[0].starts_with("src/git.rs:2: `*` of the crate's root"));
    }

    #[test]
    fn files_and_functions_keep_their_measures() {
        let long = format!("\nfn f() {{{}\n}}", "\n    g();".repeat(99));
        assert_eq!(tree(&[("git.rs", &long)]), ["src/git.rs:2: `f` has 101 lines, 100 are allowed: take its cases out into functions of their own"]);
        let fits = format!("\nimpl S {{ fn f() {{{}\n}} }}", "\n    g();".repeat(98));
        assert_eq!(tree(&[("git.rs", &fits)]), Vec::<String>::new());
        let tests = format!("{}\n#[cfg(test)]\nmod tests {{{}\n}}", "\n// line".repeat(699), "\n// line".repeat(900));
        assert_eq!(tree(&[("git.rs", &tests)]), Vec::<String>::new());
        assert_eq!(tree(&[("git.rs", &"\n// line".repeat(700))]).len(), 1);
        for text in ["/// Of the item, not the file.\nfn f() {}", "//! x", "fn main() {}", "// No doc at all."] {
            assert!(violations(&BTreeMap::from([("git.rs".to_owned(), text.to_owned())]))[0].starts_with("src/git.rs:1: no module doc"), "{text}");
        }
        assert!(tree(&[("git.rs", "\nfn f( {")])[0].starts_with("src/git.rs: does not parse"));
    }

    #[test]
    fn nothing_is_unsafe_and_no_name_is_empty() {
        let text = "\nunsafe fn f() {}\nfn g() { unsafe { f() } }\nunsafe impl Send for S {}\n#[allow(unsafe_code)]\nunsafe trait T {}\n#[cfg(test)] mod tests {}\nunsafe extern \"C\" {}";
        let lines: Vec<String> = tree(&[("git.rs", text)]).iter().map(|found| found.split(": ").next().unwrap().to_owned()).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 8].map(|line| format!("src/git.rs:{line}")));
        assert_eq!(tree(&[("git/util.rs", ""), ("workflow/types.rs", ""), ("git.rs", "\nmod helpers { mod config {} }")]).len(), 2);
        assert!(tree(&[("types.rs", "")])[0].contains("a module called `types`"));
    }
}
