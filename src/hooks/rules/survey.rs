//! Everything that a command would start, as far as it can be known without running it.
//!
//! A survey is what forbidding goes by: it looks through quotes, groups, substitutions, wrappers (`env`, `xargs`, `find
//! -exec`, …) and code given as text (`bash -c`, `eval`, here-documents of shells), and it says so where something stays
//! unknown. It rather names a command too many: after a wrapper every word may be where the wrapped command begins.
//! What other interpreters and programs start (`python -c`, `make`, a script file) is out of its sight.
use super::{pattern::Glyph, wrappers};
use crate::tools::shell::{self, Part, Redirect, RedirectKind, Script, Simple, Word};
use std::collections::{BTreeMap, BTreeSet};

/// How deep code may stand in code.
const MAX_NESTING: usize = 6;
/// As many words after a wrapper are looked at.
const MAX_WORDS: usize = 256;
/// As many characters of commands are looked at in all, those of a wrapped one again for each place where it may begin.
const MAX_LOOKED_AT: usize = 400_000;

/// Variables whose value a shell runs, or that make it run something.
const RUN_BY_SHELLS: &[&str] = &["BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS4", "SHELLOPTS"];
/// Beginnings of names of variables whose value programs hand to a shell.
const RUN_BY_PROGRAMS: &[&str] = &[
    "BROWSER",
    "EDITOR",
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "SUDO_EDITOR",
    "VISUAL",
];
/// Builtins that evaluate arithmetic in their arguments, and with it substitutions in the index of an array. `printf`,
/// `test` and `[` do so with `-v`.
const EVALUATORS: &[&str] = &["declare", "export", "getopts", "let", "local", "mapfile", "read", "readarray", "readonly", "typeset", "unset", "wait"];

/// A command that may be started.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Its name and arguments.
    pub(super) words: Vec<Word>,
    /// The texts it goes by: as it stands, and by the last part of its path.
    pub(super) texts: Vec<Vec<Glyph>>,
}

/// What a command would start.
#[derive(Debug, Clone, Default)]
pub(super) struct Survey {
    pub(super) runs: Vec<Run>,
    /// Every file that is read or written by redirects, and every simple command as written.
    pub(super) redirects: Vec<Redirect>,
    pub(super) sources: Vec<String>,
    /// What is assigned to variables anywhere in it; nothing where that is not known.
    pub(super) assigned: BTreeMap<String, Option<Vec<Word>>>,
    /// Why more may be started than is listed.
    pub(super) doubts: BTreeSet<String>,
    /// How many characters were looked at.
    looked_at: usize,
}

impl Survey {
    /// Looks at a script.
    pub(super) fn of(script: &Script) -> Survey {
        let mut survey = Survey::default();
        survey.script(script, 0);
        survey
    }

    fn doubt(&mut self, why: impl Into<String>) {
        self.doubts.insert(why.into());
    }

    fn script(&mut self, script: &Script, depth: usize) {
        let every = script.every();
        let words = || every.iter().flat_map(|simple| simple.every_word());
        let has_arithmetic = words().flat_map(|word| &word.parts).any(|part| matches!(part, Part::Arithmetic(_)));
        if (has_arithmetic || every.iter().any(|simple| evaluates(simple))) && words().any(hides_code) {
            self.doubt("arithmetic may run a substitution that stands in quotes");
        }
        for simple in every {
            self.sources.push(simple.text.clone());
            self.redirects.extend(simple.redirects.iter().cloned());
            self.assigns(simple);
            for assignment in &simple.assignments {
                self.assignment(&assignment.name, assignment.value.literal(), depth);
            }
            for (name, value) in
                simple.words.iter().filter_map(Word::literal).filter_map(|text| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            {
                self.assignment(&name, Some(value), depth);
            }
            self.command(&simple.words, &simple.redirects, depth);
        }
    }

    /// Notes what variables may hold.
    fn assigns(&mut self, simple: &Simple) {
        let mut note = |name: &str, values: Option<&[Word]>| match (self.assigned.entry(name.to_owned()).or_insert(Some(Vec::new())), values) {
            (Some(known), Some(values)) => known.extend(values.iter().cloned()),
            (known, _) => *known = None,
        };
        for assignment in &simple.assignments {
            // What is appended to is not looked at.
            let is_whole = !simple.text.contains("+=");
            note(&assignment.name, is_whole.then_some(std::slice::from_ref(&assignment.value)));
        }
        let names: Vec<Option<String>> = simple.words.iter().map(Word::literal).collect();
        match names.first().and_then(Option::as_deref) {
            Some("for") if names.get(2).and_then(Option::as_deref) == Some("in") => {
                if let Some(Some(name)) = names.get(1) {
                    note(name, Some(&simple.words[3..]));
                }
            }
            // Whatever else a builtin may assign to.
            _ if evaluates(simple) || matches!(names.first(), Some(Some(name)) if matches!(name.as_str(), "for" | "select" | "printf")) => {
                for text in names.iter().skip(1).flatten() {
                    note(text.split('=').next().unwrap_or(text), None);
                }
            }
            _ => {}
        }
    }

    /// Some variables hold code.
    fn assignment(&mut self, name: &str, value: Option<String>, depth: usize) {
        if RUN_BY_SHELLS.contains(&name) {
            self.doubt(format!("shells run what `{name}` says"));
        } else if RUN_BY_PROGRAMS.iter().any(|start| name.starts_with(start)) {
            match value {
                // A command of git's configuration begins with `!`.
                Some(value) => self.nested(value.trim_start().trim_start_matches('!'), depth),
                None => self.doubt(format!("programs run what `{name}` says")),
            }
        }
    }

    /// Looks at one command, and after a wrapper at every place where the wrapped one may begin.
    fn command(&mut self, words: &[Word], redirects: &[Redirect], depth: usize) {
        let mut words = words.to_vec();
        let mut wrapped = false;
        // `usize::MAX` stands for a place that is not known.
        let mut expected = BTreeSet::from([0]);
        let mut at = 0;
        while at < words.len() && (at == 0 || wrapped) {
            if at >= MAX_WORDS || self.looked_at >= MAX_LOOKED_AT {
                return self.doubt("it is too long to be looked through");
            }
            let name = base_name(&words[at]);
            let is_certain = expected.contains(&at);
            // An argument that is not known is no command unless it stands where one is expected.
            if name.is_none() && !is_certain && !expected.contains(&usize::MAX) {
                at += 1;
                continue;
            }
            let texts = texts(&words[at..]);
            self.looked_at += texts.iter().map(Vec::len).sum::<usize>();
            self.runs.push(Run { words: words[at..].to_vec(), texts });
            if let Some(name) = name {
                if wrappers::wraps(&name, &words[at..]) {
                    // What stands in the words of an outer wrapper was looked at with it.
                    if !wrapped {
                        self.texts_of_wrapper(&words[at + 1..], depth);
                    }
                    self.ways_of_wrapper(&name, &words[at + 1..]);
                    wrappers::fill(&name, &mut words, at);
                    wrapped = true;
                    if is_certain {
                        let places = wrappers::commands_at(&name, &words[at..]).unwrap_or_else(|| vec![usize::MAX]);
                        expected.extend(places.into_iter().map(|place| place.saturating_add(at)));
                    }
                }
                self.code(&name, &words[at..], redirects, depth);
            }
            at += 1;
        }
    }

    /// Looks at code that a command is given as text.
    fn code(&mut self, name: &str, words: &[Word], redirects: &[Redirect], depth: usize) {
        let arguments = &words[1..];
        match name {
            "eval" => match literals(operands(arguments)) {
                Some(texts) => self.nested(&texts.join(" "), depth),
                None => self.doubt("`eval` runs text that is not known"),
            },
            "source" | "." if operands(arguments).first().is_none_or(|file| file.literal().is_none_or(|file| is_stream(&file))) => {
                self.stdin(name, redirects, depth);
            }
            "alias" => {
                for text in literals(arguments).unwrap_or_default() {
                    if let Some((_, value)) = text.split_once('=') {
                        self.nested(value, depth);
                    }
                }
                if literals(arguments).is_none() {
                    self.doubt("`alias` gives a name to text that is not known");
                }
            }
            "trap" => match arguments.iter().find(|word| word.literal().is_none_or(|text| !text.starts_with('-'))).map(Word::literal) {
                Some(Some(text)) => self.nested(&text, depth),
                Some(None) => self.doubt("`trap` runs text that is not known"),
                None => {}
            },
            "hash" | "enable" if arguments.iter().any(|word| word.literal().is_none_or(|text| text.starts_with('-'))) => {
                self.doubt(format!("`{name}` changes what a name means"));
            }
            "git" => self.git(arguments, depth),
            _ if wrappers::is_shell(name) => self.shell(name, arguments, redirects, depth),
            _ => {}
        }
    }

    /// Git runs what its configuration says: for this call by `-c`, for later ones by `config`.
    fn git(&mut self, arguments: &[Word], depth: usize) {
        let literal = |at: usize| arguments.get(at).map(Word::literal);
        for at in 0..arguments.len() {
            match literal(at).flatten().as_deref() {
                Some("-c") => match literal(at + 1) {
                    Some(Some(setting)) => {
                        let (key, value) = setting.split_once('=').unwrap_or((&setting, ""));
                        self.setting(key, value, depth);
                    }
                    _ => self.doubt("`git -c` sets what is not known"),
                },
                Some(text) if text.starts_with("--config-env") => self.doubt("`git --config-env` sets what is not known"),
                Some("config") => {
                    let said: Vec<Option<String>> = arguments[at + 1..].iter().map(Word::literal).collect();
                    for pair in said.windows(2) {
                        match pair {
                            [Some(key), Some(value)] => self.setting(key, value, depth),
                            [Some(key), None] if is_run_by_git(key) => self.doubt("`git config` sets what is not known"),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn setting(&mut self, key: &str, value: &str, depth: usize) {
        if let Some(command) = value.trim_start().strip_prefix('!') {
            self.nested(command, depth);
        } else if key.to_ascii_lowercase().starts_with("alias.") {
            self.nested(&format!("git {value}"), depth);
        } else if is_run_by_git(key) {
            if matches!(key.to_ascii_lowercase().as_str(), "core.hookspath" | "init.templatedir") {
                self.doubt(format!("git runs what it finds at `{key}`"));
            }
            self.nested(value, depth);
        }
    }

    /// A shell runs the text after `-c`, the file it is given, or what it reads.
    fn shell(&mut self, name: &str, arguments: &[Word], redirects: &[Redirect], depth: usize) {
        let (mut reads, mut takes_text, mut at) = (false, false, 0);
        while let Some(text) = arguments.get(at).map(|word| word.literal().unwrap_or_else(|| "?".to_owned())) {
            if text == "-" || text == "--" {
                at += 1;
                break;
            }
            if !text.starts_with(['-', '+']) {
                break;
            }
            if !text.starts_with("--") {
                takes_text |= text.starts_with('-') && text.contains('c');
                reads |= text.contains('s');
            }
            takes_text |= text.starts_with("--com");
            if text == "--version" || text == "--help" {
                return;
            }
            // The value of these stands in the next word, wherever the letter stands in its cluster.
            let of_letters = if text.starts_with("--") { 0 } else { text.matches(['o', 'O']).count() };
            at += 1 + of_letters + usize::from(matches!(text.as_str(), "--rcfile" | "--init-file"));
        }
        if arguments.iter().flat_map(|word| &word.parts).any(|part| matches!(part, Part::Process(_))) {
            self.doubt(format!("`{name}` may run what it reads, which is not known"));
        }
        match (arguments.get(at), takes_text) {
            (Some(word), true) => match word.literal() {
                Some(text) => self.nested(&text, depth),
                None => self.doubt(format!("`{name} -c` runs text that is not known")),
            },
            (None, true) => self.doubt(format!("`{name} -c` runs text that is not known")),
            (Some(word), false) if !reads && word.literal().is_some_and(|file| !is_stream(&file) && file != "-") => {}
            (_, false) => self.stdin(name, redirects, depth),
        }
        if takes_text && reads {
            self.stdin(name, redirects, depth);
        }
    }

    /// A shell runs what it reads: here-documents and here-strings are known, everything else is not.
    fn stdin(&mut self, name: &str, redirects: &[Redirect], depth: usize) {
        let mut known = false;
        for redirect in redirects {
            if matches!(redirect.kind, RedirectKind::HereDocument | RedirectKind::HereString)
                && let Some(text) = document(&redirect.target)
            {
                known = redirect.fd.is_none_or(|fd| fd == 0);
                self.nested(&text, depth);
            }
        }
        let others = redirects
            .iter()
            .any(|redirect| matches!(redirect.kind, RedirectKind::Read | RedirectKind::ReadWrite | RedirectKind::Duplicate) && redirect.fd.unwrap_or(0) == 0);
        if !known || others {
            self.doubt(format!("`{name}` runs what it reads, which is not known"));
        }
    }

    /// Wrappers may take a whole command line as one word (`watch`, `flock -c`, `parallel`).
    fn texts_of_wrapper(&mut self, arguments: &[Word], depth: usize) {
        for text in arguments.iter().filter_map(Word::literal) {
            if text == ";" || !text.contains(|c: char| c.is_whitespace() || ";|&$`<>(".contains(c)) {
                continue;
            }
            self.nested(&text, depth);
            // `git -c alias.NAME=!COMMAND`
            if let Some((_, command)) = text.split_once("=!") {
                self.nested(command, depth);
            }
            if let Some(option) = text.strip_prefix('-') {
                let value = text.split_once('=').map(|(_, value)| value).or_else(|| option.get(1..));
                self.nested(value.unwrap_or_default(), depth);
            }
        }
    }

    /// Some wrappers put together what they run.
    fn ways_of_wrapper(&mut self, name: &str, arguments: &[Word]) {
        let splits = |text: &String| text.starts_with("--s") || (text.starts_with('-') && !text.starts_with("--") && text.contains('S'));
        if name == "env" && arguments.iter().filter_map(Word::literal).any(|text| splits(&text)) {
            self.doubt("`env -S` splits text in ways of its own");
        }
        // Without arguments it runs the lines that it reads.
        if name == "parallel" {
            self.doubt("`parallel` runs text that it puts together");
        }
    }

    fn nested(&mut self, text: &str, depth: usize) {
        if depth >= MAX_NESTING || self.looked_at >= MAX_LOOKED_AT {
            return self.doubt("code stands too deep in code");
        }
        match shell::parse(text) {
            Ok(script) => self.script(&script, depth + 1),
            Err(error) => self.doubt(error.to_string()),
        }
    }
}

/// Returns whether git runs what a setting holds.
fn is_run_by_git(key: &str) -> bool {
    const WHOLE: &[&str] = &[
        "core.alternaterefscommand",
        "core.askpass",
        "core.editor",
        "core.fsmonitor",
        "core.gitproxy",
        "core.hookspath",
        "core.pager",
        "core.sshcommand",
        "credential.helper",
        "gpg.program",
        "init.templatedir",
        "interactive.difffilter",
        "sequence.editor",
        "uploadpack.packobjectshook",
    ];
    const LAST: &[&str] = &["clean", "cmd", "command", "driver", "external", "helper", "process", "program", "receivepack", "smudge", "textconv", "uploadpack"];
    let key = key.to_ascii_lowercase();
    WHOLE.contains(&key.as_str()) || key.starts_with("pager.") || key.rsplit_once('.').is_some_and(|(_, last)| LAST.contains(&last))
}

/// Returns the last part of a command's path, where it is known.
pub(super) fn base_name(word: &Word) -> Option<String> {
    if let Some(name) = word.literal() {
        return Some(name.rsplit('/').next().unwrap_or(&name).to_owned());
    }
    let glyphs = word_glyphs(word);
    let slash = glyphs.iter().rposition(|glyph| *glyph == Glyph::Char('/'))?;
    glyphs[slash + 1..].iter().map(|glyph| if let Glyph::Char(c) = glyph { Some(*c) } else { None }).collect()
}

/// Returns the texts by which a command goes.
fn texts(words: &[Word]) -> Vec<Vec<Glyph>> {
    let mut texts = vec![glyphs(words)];
    if let Some(name) = base_name(&words[0]) {
        let arguments = if words.len() > 1 { [vec![Glyph::Char(' ')], glyphs(&words[1..])].concat() } else { Vec::new() };
        let by_name = name.chars().map(Glyph::Char).chain(arguments).collect();
        if !texts.contains(&by_name) {
            texts.push(by_name);
        }
    }
    texts
}

/// Writes words as text, joined by single blanks, with holes for what is not known.
pub(super) fn glyphs(words: &[Word]) -> Vec<Glyph> {
    let mut text = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(Glyph::Char(' '));
        }
        text.extend(word_glyphs(word));
    }
    text
}

fn word_glyphs(word: &Word) -> Vec<Glyph> {
    if let Some(text) = word.literal() {
        return text.chars().map(Glyph::Char).collect();
    }
    if word.has_glob() || word.has_brace() {
        return vec![Glyph::Words];
    }
    let hole = |quoted: bool| vec![if quoted { Glyph::Word } else { Glyph::Words }];
    let part = |(at, part): (usize, &Part)| match part {
        Part::Bare(text) if at == 0 && text.starts_with('~') => {
            let rest = text.find('/').map_or("", |slash| &text[slash..]);
            std::iter::once(Glyph::Word).chain(rest.chars().map(Glyph::Char)).collect()
        }
        Part::Bare(text) | Part::Quoted(text) => text.chars().map(Glyph::Char).collect(),
        // `"$@"` and its like become several words in quotes, too.
        Part::Variable { name, quoted } => hole(*quoted && !name.contains('@')),
        Part::Substitution { quoted, .. } => hole(*quoted),
        Part::Process(_) | Part::Arithmetic(_) => hole(true),
    };
    word.parts.iter().enumerate().flat_map(part).collect()
}

fn literals(words: &[Word]) -> Option<Vec<String>> {
    words.iter().map(Word::literal).collect()
}

/// Returns the text of a here-document or here-string, in which globs and braces do not expand.
fn document(word: &Word) -> Option<String> {
    word.parts.iter().map(|part| if let Part::Bare(text) | Part::Quoted(text) = part { Some(text.as_str()) } else { None }).collect()
}

fn is_stream(file: &str) -> bool {
    file.starts_with("/dev/") || file.starts_with("/proc/")
}

fn hides_code(word: &Word) -> bool {
    word.parts.iter().any(|part| matches!(part, Part::Quoted(text) if text.contains('`') || text.contains("$(")))
}

fn evaluates(simple: &Simple) -> bool {
    let names = || simple.words.iter().filter_map(Word::literal);
    names().any(|name| EVALUATORS.contains(&name.as_str()))
        || (names().any(|name| matches!(name.as_str(), "printf" | "test" | "[")) && names().any(|text| text == "-v"))
}

/// Returns the arguments after a `--` at their beginning.
fn operands(arguments: &[Word]) -> &[Word] {
    if arguments.first().and_then(Word::literal).as_deref() == Some("--") { &arguments[1..] } else { arguments }
}

/// Returns a simple command as text for messages, cut to a length that is fit for one.
pub(super) fn shown(simple: &Simple) -> String {
    const MAX: usize = 200;
    match simple.text.char_indices().nth(MAX) {
        None => simple.text.clone(),
        Some((at, _)) => format!("{}…", &simple.text[..at]),
    }
}
