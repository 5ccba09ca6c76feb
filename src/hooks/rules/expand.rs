//! The files that a word of a command may name: tilde, `$HOME`, `$PWD`, brace lists and globs put in.
use super::RuleContext;
use crate::tools::shell::{Part, Word};
use globset::GlobBuilder;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// As many texts are made of one brace list.
const MAX_TEXTS: usize = 64;
/// As many entries of folders are looked at for one glob.
const MAX_ENTRIES: usize = 10_000;

/// Returns the texts that a word becomes, globs kept; none where a part of it is only known when it runs.
pub(super) fn texts(word: &Word, cx: &RuleContext<'_>) -> Vec<String> {
    let Some(text) = text(word, cx) else { return Vec::new() };
    if !word.has_brace() {
        return vec![text];
    }
    let mut done = Vec::new();
    let mut open = vec![text];
    while let Some(text) = open.pop() {
        match alternatives(&text) {
            Some(texts) if done.len() + open.len() + texts.len() <= MAX_TEXTS => open.extend(texts),
            _ => done.push(text),
        }
    }
    done.sort();
    done.dedup();
    done
}

/// Returns the words that a word may be, with what a script assigns to its variables put in; those that are not known stay.
pub(super) fn with_values(word: &Word, assigned: &BTreeMap<String, Option<Vec<Word>>>) -> Vec<Word> {
    let mut words = vec![Word { parts: Vec::new() }];
    for part in &word.parts {
        let values = match part {
            Part::Variable { name, .. } => {
                assigned.get(name).and_then(Option::as_ref).filter(|values| !values.is_empty() && words.len() * values.len() <= MAX_TEXTS)
            }
            _ => None,
        };
        words = match values {
            Some(values) => {
                words.iter().flat_map(|word| values.iter().map(|value| Word { parts: [word.parts.clone(), value.parts.clone()].concat() })).collect()
            }
            None => words.into_iter().map(|word| Word { parts: [word.parts, vec![part.clone()]].concat() }).collect(),
        };
    }
    words
}

/// Returns the one text that a word becomes, globs kept.
pub(super) fn only_text(word: &Word, cx: &RuleContext<'_>) -> Option<String> {
    text(word, cx).filter(|_| !word.has_brace())
}

fn text(word: &Word, cx: &RuleContext<'_>) -> Option<String> {
    let mut path = String::new();
    for (at, part) in word.parts.iter().enumerate() {
        match part {
            Part::Bare(text) if at == 0 && (text == "~" || text.starts_with("~/")) => {
                path.push_str(&cx.home?.to_string_lossy());
                path.push_str(&text[1..]);
            }
            Part::Bare(text) if at == 0 && (text == "~+" || text.starts_with("~+/")) => {
                path.push_str(&cx.cwd.to_string_lossy());
                path.push_str(&text[2..]);
            }
            Part::Bare(text) if at == 0 && text.starts_with('~') => return None,
            Part::Bare(text) | Part::Quoted(text) => path.push_str(text),
            Part::Variable { name, .. } if name == "HOME" => path.push_str(&cx.home?.to_string_lossy()),
            Part::Variable { name, .. } if name == "PWD" => path.push_str(&cx.cwd.to_string_lossy()),
            Part::Variable { .. } | Part::Substitution { .. } | Part::Process(_) | Part::Arithmetic(_) => return None,
        }
    }
    Some(path)
}

/// Puts the pieces of the innermost first brace list in its place.
fn alternatives(text: &str) -> Option<Vec<String>> {
    let close = text.match_indices('}').map(|(at, _)| at).find(|close| text[..*close].rfind('{').is_some_and(|open| text[open..*close].contains(',')))?;
    let open = text[..close].rfind('{')?;
    Some(text[open + 1..close].split(',').map(|piece| format!("{}{piece}{}", &text[..open], &text[close + 1..])).collect())
}

/// Returns the files that a path with globs stands for, seen from a folder; the path itself where it has none. Names that
/// begin with a dot are met only by globs that do.
pub(super) fn files(path: &str, from: &Path) -> Vec<PathBuf> {
    let is_glob = |text: &str| text.contains(['*', '?', '[']);
    if !is_glob(path) {
        return vec![from.join(path)];
    }
    let mut found = vec![if path.starts_with('/') { PathBuf::from("/") } else { from.to_owned() }];
    let mut looked_at = 0;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if !is_glob(name) {
            found = found.into_iter().map(|folder| folder.join(name)).collect();
            continue;
        }
        let Ok(glob) = GlobBuilder::new(name).literal_separator(true).build().map(|glob| glob.compile_matcher()) else { return Vec::new() };
        let mut next = Vec::new();
        for folder in found {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                looked_at += 1;
                if looked_at > MAX_ENTRIES {
                    return next;
                }
                let entry_name = entry.file_name();
                let hidden = entry_name.to_string_lossy().starts_with('.');
                if (!hidden || name.starts_with('.')) && glob.is_match(&entry_name) {
                    next.push(entry.path());
                }
            }
        }
        found = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::shell::parse;

    #[test]
    fn brace_lists_become_all_their_texts() {
        let cx = RuleContext { cwd: Path::new("/p"), root: Path::new("/p"), home: Some(Path::new("/h")), writable: &[] };
        let made = |word: &str| texts(&parse(word).unwrap().commands[0].words[0], &cx);
        assert_eq!(made("{a,b{c,d}}x"), ["ax", "bcx", "bdx"]);
        assert_eq!(made("~/{.ssh,x}"), ["/h/.ssh", "/h/x"]);
        assert_eq!(made("\"$PWD\"/a"), ["/p/a"]);
        assert_eq!(made("$X/a"), [""; 0]);
        assert_eq!(made("{1..3}"), ["{1..3}"]);
        assert!(made(&"{a,b}".repeat(20)).len() <= MAX_TEXTS);
    }

    #[test]
    fn globs_are_looked_up_as_the_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for name in [".env", "a.rs", "sub/key"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found =
            |path: &str| files(path, dir.path()).iter().map(|path| path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(found(".e*"), [".env"]);
        assert_eq!(found("?env"), [""; 0]);
        assert_eq!(found("s[u]b/k*"), ["sub/key"]);
        assert_eq!(found("gone/*"), [""; 0]);
        assert_eq!(found("plain"), ["plain"]);
    }
}
