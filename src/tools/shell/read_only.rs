//! Whether a command only reads: a short list of programs, and what each of them must not be told.
//!
//! The answer is used to run calls side by side and to let an agent without write access use the shell, so every doubt
//! means no. Long options are compared as prefixes both ways, since the programs accept abbreviations.
use super::{Operator, Part, Redirect, RedirectKind, Simple, Word, parse};

/// Programs that have no option to write a file or to run a program.
const PLAIN: &[&str] = &[
    "basename",
    "cat",
    "cd",
    "cmp",
    "comm",
    "cut",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "false",
    "fgrep",
    "grep",
    "head",
    "id",
    "ls",
    "md5sum",
    "nl",
    "nproc",
    "pwd",
    "readlink",
    "realpath",
    "sha256sum",
    "sleep",
    "stat",
    "tac",
    "tail",
    "true",
    "type",
    "uname",
    "wc",
    "which",
    "whoami",
];

/// Programs that read unless they are told otherwise.
#[cfg(test)]
const TOLD: &[&str] = &["command", "date", "file", "find", "git", "printf", "rg", "sort", "tree", "uniq"];

/// Returns the names of all programs that a command may start which only reads.
#[cfg(test)]
pub(crate) fn programs() -> impl Iterator<Item = &'static str> {
    PLAIN.iter().chain(TOLD).copied()
}

/// Subcommands of git that read, as long as no option of [`GIT_REFUSED`] is given.
const GIT_READS: &[&str] = &["blame", "cat-file", "diff", "grep", "log", "ls-files", "ls-tree", "merge-base", "rev-list", "rev-parse", "show", "status"];

/// Options of git's subcommands that write a file or run a program.
const GIT_REFUSED: &[&str] = &["output", "ext-diff", "textconv", "filters", "open-files-in-pager"];

/// Options of git itself that change neither where it looks nor what it runs.
const GIT_GLOBAL: &[&str] = &["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"];

/// What makes `git branch` list instead of changing anything.
const GIT_BRANCH: &[&str] = &["--show-current", "--list", "-l", "-a", "--all", "-r", "--remotes", "-v", "-vv", "--verbose"];

/// Beginnings of `find`'s expressions that write or run.
const FIND_REFUSED: &[&str] = &["-exec", "-ok", "-delete", "-fprint", "-fls"];

/// Returns whether a shell command certainly changes nothing: every command in it is a known reader told nothing that
/// writes or runs, joined by `&&`, `||`, `;` or `|`, without substitutions, and with redirects only from files, to
/// `/dev/null` and between descriptors. What cannot be parsed is not read-only.
pub fn is_read_only(command: &str) -> bool {
    let Ok(script) = parse(command) else { return false };
    let names: Vec<Option<String>> = script.commands.iter().map(Simple::name).collect();
    let called = |name: &str| names.iter().any(|found| found.as_deref() == Some(name));
    // Git in another folder obeys that folder's configuration, which may name programs.
    let strays = called("cd") && called("git");
    !script.commands.is_empty() && !strays && script.commands.iter().all(reads)
}

impl Simple {
    /// Returns whether this one command certainly changes nothing, by the measure of [`is_read_only`].
    pub fn reads(&self) -> bool {
        reads(self)
    }
}

fn reads(command: &Simple) -> bool {
    command.ended_by != Operator::Background
        && command.assignments.iter().all(|assignment| is_locale(&assignment.name) && assignment.value.literal().is_some_and(|value| is_tame(&value)))
        && command.redirects.iter().all(redirect_reads)
        && match command.words.split_first() {
            Some((name, arguments)) => name.literal().is_some_and(|name| program_reads(&name, arguments)),
            None => !command.redirects.is_empty(),
        }
}

fn program_reads(name: &str, arguments: &[Word]) -> bool {
    match name {
        "git" => git_reads(arguments),
        "find" => arguments.iter().all(is_fixed) && !starts_any(arguments, FIND_REFUSED),
        "rg" => arguments.iter().all(is_fixed) && !has_option(arguments, &["pre", "hostname-bin", "search-zip"], "z"),
        "sort" => arguments.iter().all(is_fixed) && !has_option(arguments, &["output", "compress-program", "temporary-directory"], "oT"),
        "tree" => arguments.iter().all(is_fixed) && !has_option(arguments, &[], "oR"),
        "file" => arguments.iter().all(is_fixed) && !has_option(arguments, &["compile"], "C"),
        "uniq" => literals(arguments).is_some_and(|arguments| arguments.iter().filter(|argument| !argument.starts_with('-')).count() <= 1),
        "date" => literals(arguments).is_some_and(|arguments| date_reads(&arguments)),
        // Told `-v`, which comes first, it assigns, and evaluates what to.
        "printf" => arguments.first().and_then(Word::literal).is_some_and(|format| !format.starts_with('-')) && arguments.iter().all(is_harmless),
        "command" => literals(arguments).is_some_and(|arguments| arguments.first().is_some_and(|first| first == "-v" || first == "-V")),
        _ => PLAIN.contains(&name) && arguments.iter().all(is_harmless),
    }
}

fn git_reads(arguments: &[Word]) -> bool {
    let globals = arguments.iter().take_while(|word| word.literal().is_some_and(|text| GIT_GLOBAL.contains(&text.as_str()))).count();
    let Some((subcommand, arguments)) = arguments[globals..].split_first() else { return false };
    match subcommand.literal().as_deref() {
        Some("branch") => literals(arguments).is_some_and(|arguments| arguments.iter().all(|argument| GIT_BRANCH.contains(&argument.as_str()))),
        Some(subcommand) if GIT_READS.contains(&subcommand) => arguments.iter().all(is_fixed) && !has_option(arguments, GIT_REFUSED, "O"),
        _ => false,
    }
}

/// Returns whether every argument asks for the time instead of setting it.
fn date_reads(arguments: &[String]) -> bool {
    let takes_value = |option: &str| matches!(option, "-d" | "--date" | "-r" | "--reference");
    let mut previous = "";
    arguments.iter().all(|argument| {
        let value = takes_value(previous);
        previous = argument;
        // Short options may be joined, and `s` sets the clock.
        let sets = argument.starts_with("--s") || (argument.starts_with('-') && !argument.starts_with("--") && argument.contains('s'));
        value || argument.starts_with('+') || (argument.starts_with('-') && !sets)
    })
}

/// Returns whether one of these long options, or a cluster with one of these letters, may be among the arguments.
fn has_option(arguments: &[Word], long: &[&str], short: &str) -> bool {
    arguments.iter().filter_map(leading).any(|text| match text.strip_prefix("--") {
        Some(name) => {
            let name = name.split('=').next().unwrap_or(name);
            !name.is_empty() && long.iter().any(|refused| refused.starts_with(name) || name.starts_with(refused))
        }
        None => text.strip_prefix('-').is_some_and(|cluster| cluster.contains(|c| short.contains(c))),
    })
}

fn starts_any(arguments: &[Word], refused: &[&str]) -> bool {
    arguments.iter().filter_map(leading).any(|text| refused.iter().any(|start| text.starts_with(start)))
}

/// Returns the text up to the first part that is not plain.
fn leading(word: &Word) -> Option<String> {
    let mut text = String::new();
    for part in &word.parts {
        match part {
            Part::Bare(piece) | Part::Quoted(piece) => text.push_str(piece),
            _ => break,
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Returns whether a word is one argument that is known, or of which at least is known that it is no option.
fn is_fixed(word: &Word) -> bool {
    if word.literal().is_some() {
        return true;
    }
    let splits = word.parts.iter().any(|part| matches!(part, Part::Variable { quoted: false, .. }));
    let begins = leading(word).is_some_and(|text| !text.starts_with(['-', '*', '?', '[', '~', '{', '(', '!']));
    begins && !splits && !word.has_brace() && is_harmless(word)
}

/// Returns whether expanding a word runs and assigns nothing.
fn is_harmless(word: &Word) -> bool {
    word.parts.iter().all(|part| match part {
        Part::Bare(_) | Part::Quoted(_) => true,
        Part::Variable { name, .. } => name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || name.len() == 1,
        Part::Substitution { .. } | Part::Process(_) | Part::Arithmetic(_) => false,
    })
}

fn literals(words: &[Word]) -> Option<Vec<String>> {
    words.iter().map(Word::literal).collect()
}

fn redirect_reads(redirect: &Redirect) -> bool {
    match redirect.kind {
        RedirectKind::Duplicate => true,
        RedirectKind::HereDocument | RedirectKind::HereString => is_harmless(&redirect.target),
        RedirectKind::Write | RedirectKind::Append => redirect.target.literal().as_deref() == Some("/dev/null"),
        // Bash opens a connection for `/dev/tcp/…`.
        RedirectKind::Read => redirect.target.literal().is_some_and(|path| path == "/dev/null" || !path.starts_with("/dev/")),
        RedirectKind::ReadWrite => false,
    }
}

fn is_locale(name: &str) -> bool {
    name == "LANG" || name == "NO_COLOR" || name == "TZ" || name.starts_with("LC_")
}

fn is_tame(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_known() {
        for command in [
            "ls -la",
            "git status",
            "git --no-pager log --oneline -5 -- src",
            "git diff HEAD~1 --stat | head -20",
            "git branch -a",
            "cat a b 2>/dev/null | sort -u | uniq -c | wc -l",
            "rg -n 'fn main' src/*.rs && echo \"$HOME\"; pwd",
            "find . -name '*.rs' -type f -print",
            "cd sub && ls",
            "LC_ALL=C sort < names.txt",
            "sleep 5",
            "date +%s",
            "date -u -d yesterday",
            "echo a >&2",
            "ls &>/dev/null || true",
            "{ pwd; ls; } 2>&1",
            "if true; then ls; else pwd; fi",
            "grep -c x <<'E'\nx\nE",
            "command -v cargo",
            "printf '%05d\\n' 7",
            "printf '%s\\n' \"$HOME\" $X | wc -c",
            "echo done # not a command: rm -rf x",
            "find . \\( -name a -o -name b \\)",
        ] {
            assert!(is_read_only(command), "{command}");
        }
    }

    #[test]
    fn printf_reads_where_it_is_certainly_told_no_name() {
        for command in ["printf -v 'a[$(rm x)]' y", "printf \"-v\" a y", "printf $X y", "printf x > out", "printf"] {
            assert!(!is_read_only(command), "{command}");
        }
    }

    #[test]
    fn whatever_may_write_or_run_is_refused() {
        for command in [
            "",
            "rm x",
            "ls; rm x",
            "ls & rm x",
            "sleep 9 &",
            "ls $(rm x)",
            "ls `rm x`",
            "ls \"$(rm x)\"",
            "cat <(rm x)",
            "ls > out",
            "ls >| out",
            "ls &> out",
            "ls >& out",
            "ls 2>>out",
            "> out",
            "{ ls; } > out",
            "cat <> x",
            "cat < /dev/tcp/host/80",
            "echo $((x))",
            "echo ${PATH:=/tmp}",
            "PATH=/tmp ls",
            "X=1",
            "LC_ALL=/tmp/x ls",
            "./ls",
            "/tmp/ls",
            "l? x",
            "$CMD x",
            "{rm,-rf,x}",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -fprint x",
            "find . -\"delete\"",
            "find . $X",
            "find . *",
            "find . {-delete,}",
            "rg --pre ./x y",
            "rg --pre=./x y",
            "rg --hostname-bin x y",
            "rg $PATTERN",
            "sort -o x y",
            "sort -uo x y",
            "sort --out=x y",
            "sort --compress-prog ./x y",
            "sort {-o,x}",
            "uniq a b",
            "tree -o x",
            "file -C -m x",
            "date -s now",
            "date 01010000",
            "date -us now",
            "git",
            "git push",
            "git -c alias.x=!y status",
            "git -C .. status",
            "git log --output=x",
            "git log --outp x",
            "git diff --ext-diff",
            "git grep -O./x y",
            "git grep --open-files=./x y",
            "git cat-file --textconv x",
            "git branch new",
            "git branch -D old",
            "cd x && git status",
            "for x in a; do ls; done",
            "f() { ls; }",
            "case x in x) ls;; esac",
            "eval ls",
            "env ls",
            "xargs ls",
            "command rm",
            "sed -n 1p x",
            "ls\nrm x",
            "ls |& tee x",
            "alias ls=rm",
            "cat <<E\n$(rm x)\nE",
        ] {
            assert!(!is_read_only(command), "{command}");
        }
    }
}
