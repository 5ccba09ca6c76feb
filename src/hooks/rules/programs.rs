//! Which files a program reads and writes, by what its words say.
use super::paths::Looks;
use crate::tools::shell::Word;

/// Programs that show what is in the files that their arguments name, sorted.
const READERS: &[&str] = &[
    ".",
    "ack",
    "ag",
    "awk",
    "b2sum",
    "base32",
    "base64",
    "bat",
    "batcat",
    "bunzip2",
    "bzcat",
    "bzip2",
    "cat",
    "cksum",
    "cmp",
    "colordiff",
    "column",
    "comm",
    "cp",
    "csplit",
    "curl",
    "cut",
    "dd",
    "diff",
    "diff3",
    "ed",
    "egrep",
    "emacs",
    "ex",
    "expand",
    "fgrep",
    "file",
    "fmt",
    "fold",
    "gawk",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "hexyl",
    "iconv",
    "install",
    "join",
    "jq",
    "less",
    "ln",
    "look",
    "lz4",
    "mawk",
    "md5sum",
    "more",
    "mv",
    "nano",
    "nawk",
    "nl",
    "node",
    "od",
    "openssl",
    "paste",
    "perl",
    "php",
    "pr",
    "python",
    "python3",
    "rev",
    "rg",
    "rsync",
    "ruby",
    "scp",
    "sdiff",
    "sed",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "shuf",
    "sort",
    "source",
    "split",
    "strings",
    "sum",
    "tac",
    "tail",
    "tar",
    "tee",
    "tsort",
    "unexpand",
    "uniq",
    "unzip",
    "vi",
    "view",
    "vim",
    "vimdiff",
    "wc",
    "xxd",
    "xz",
    "xzcat",
    "yq",
    "zcat",
    "zgrep",
    "zip",
    "zstd",
    "zstdcat",
];
/// Programs whose arguments are files that they write or remove, sorted.
const WRITERS: &[&str] =
    &["chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "patch", "rm", "rmdir", "rsync", "sed", "shred", "tee", "touch", "truncate", "unlink"];
/// Of those, the programs that write to their last argument only.
const INTO_THE_LAST: &[&str] = &["cp", "install", "ln", "rsync"];
/// Programs whose first argument is no file but what they look for or do, unless an option says it, sorted.
const TOLD_FIRST: &[&str] = &["ack", "ag", "awk", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "nawk", "perl", "rg", "sed", "yq", "zgrep"];
/// Programs some of whose options are followed by a number or a mark, which is no file.
const COUNTED: &[(&str, &str)] = &[("cut", "bcdf"), ("fold", "w"), ("head", "cn"), ("split", "abln"), ("tail", "cn")];
/// Subcommands of git that show what is in files, sorted.
const GIT_SHOWS: &[&str] = &["annotate", "archive", "blame", "cat-file", "diff", "difftool", "format-patch", "grep", "log", "show", "whatchanged"];
/// Subcommands of git that change the files that they name, sorted.
const GIT_CHANGES: &[&str] = &["apply", "checkout", "clean", "mv", "restore", "rm"];

/// What a command does with files.
#[derive(Debug, Default)]
pub(super) struct Uses<'a> {
    /// Words that may name files that it shows.
    pub(super) reads: Vec<&'a Word>,
    /// Words that may name files that it changes.
    pub(super) writes: Vec<&'a Word>,
    /// The folders that it goes through, where it does; none named is the one where it stands.
    pub(super) through: Option<(Looks, Vec<&'a Word>)>,
}

/// Returns what a program does with files; `texts` gives what a word may be, where that is known.
pub(super) fn uses<'a>(name: &str, arguments: &'a [Word], texts: impl Fn(&Word) -> Option<Vec<String>>) -> Uses<'a> {
    if name == "git" {
        return git(arguments, texts);
    }
    let mut uses = Uses { reads: Vec::new(), writes: if writes(name) { written(name, arguments).iter().collect() } else { Vec::new() }, through: None };
    let shows = READERS.binary_search(&name).is_ok();
    if !shows && !writes(name) {
        return uses;
    }
    let options: Vec<String> = arguments.iter().filter_map(Word::literal).filter(|text| text.starts_with('-')).collect();
    let mut reads: Vec<&Word> = arguments.iter().collect();
    let is_known = |word: &&&Word| texts(word).is_some();
    // What they look for may be anything without naming a file.
    let is_option = |word: &Word| word.literal().is_some_and(|text| text.starts_with('-'));
    let has_own = options
        .iter()
        .any(|option| is_short(option, "ef") || option.starts_with("--regexp") || option.starts_with("--file") || option.starts_with("--expression"));
    if TOLD_FIRST.binary_search(&name).is_ok()
        && !has_own
        && let Some(at) = reads.iter().position(|word| !is_option(word))
        && !is_known(&&reads[at])
    {
        reads.remove(at);
    }
    if let Some((_, letters)) = COUNTED.iter().find(|(counted, _)| *counted == name) {
        let valued = |word: &Word| word.literal().is_some_and(|text| text.len() == 2 && text.starts_with('-') && letters.contains(&text[1..]));
        let skipped: Vec<usize> = (1..reads.len()).filter(|at| valued(reads[at - 1]) && !is_known(&&reads[*at])).collect();
        let mut at = 0;
        reads.retain(|_| {
            at += 1;
            !skipped.contains(&(at - 1))
        });
    }
    uses.through = looks(name, &options).map(|looks| {
        let first = TOLD_FIRST.binary_search(&name).is_ok() && !has_own;
        (looks, arguments.iter().filter(|word| !is_option(word)).skip(usize::from(first)).collect())
    });
    // Without this option it writes nothing.
    if name == "sed" {
        uses.writes = if changes_in_place(&options) { reads.clone() } else { Vec::new() };
    }
    uses.reads = reads;
    uses
}

/// Returns whether `sed` changes the files that it reads.
fn changes_in_place(options: &[String]) -> bool {
    options.iter().any(|option| is_short(option, "i") || option.starts_with("--in"))
}

/// Returns what a program looks at that goes through folders, where it does.
fn looks(name: &str, options: &[String]) -> Option<Looks> {
    let has = |letters: &str, long: &[&str]| options.iter().any(|option| is_short(option, letters) || long.iter().any(|name| option.starts_with(name)));
    match name {
        "rg" | "ag" | "ack" if has("u.", &["--hidden", "--no-ignore", "--unrestricted"]) => Some(Looks::Everything),
        "rg" | "ag" | "ack" => Some(Looks::Plain),
        "tar" | "rsync" => Some(Looks::Everything),
        "egrep" | "fgrep" | "grep" | "zgrep" if has("rRd", &["--rec", "--der", "--dir"]) => Some(Looks::Everything),
        "diff" | "scp" | "zip" if has("rR", &["--rec"]) => Some(Looks::Everything),
        "cp" if has("arR", &["--rec", "--arc"]) => Some(Looks::Everything),
        _ => None,
    }
}

/// Git names files after its options, and behind the revision that holds them.
fn git(arguments: &[Word], texts: impl Fn(&Word) -> Option<Vec<String>>) -> Uses<'_> {
    let mut at = 0;
    while let Some(text) = arguments.get(at).and_then(Word::literal).filter(|text| text.starts_with('-')) {
        at += 1 + usize::from(matches!(text.as_str(), "-c" | "-C" | "--git-dir" | "--work-tree" | "--namespace"));
    }
    let Some(subcommand) = arguments.get(at).and_then(Word::literal) else { return Uses::default() };
    let arguments = &arguments[at + 1..];
    let mut uses = Uses::default();
    let is_option = |word: &Word| word.literal().is_some_and(|text| text.starts_with('-'));
    // What is not known is mostly a revision; behind `--` it is a file.
    let files = arguments.iter().position(|word| word.literal().as_deref() == Some("--")).unwrap_or(arguments.len());
    let named = || arguments.iter().enumerate().filter(|(at, word)| *at > files || (!is_option(word) && texts(word).is_some())).map(|(_, word)| word);
    if GIT_SHOWS.binary_search(&subcommand.as_str()).is_ok() {
        uses.reads = named().collect();
        if subcommand == "grep" {
            uses.through = Some((Looks::Unignored, arguments.iter().skip(files + 1).collect()));
        }
    } else if GIT_CHANGES.binary_search(&subcommand.as_str()).is_ok() {
        uses.writes = named().collect();
    }
    uses
}

/// Returns whether an option is a cluster with one of these letters.
fn is_short(option: &str, letters: &str) -> bool {
    option.strip_prefix('-').is_some_and(|cluster| !cluster.starts_with('-') && cluster.contains(|c| letters.contains(c)))
}

/// Returns whether a program writes or removes the files that its arguments name.
pub(super) fn writes(name: &str) -> bool {
    WRITERS.binary_search(&name).is_ok()
}

/// Returns the arguments that a program writes to.
pub(super) fn written<'a>(name: &str, arguments: &'a [Word]) -> &'a [Word] {
    let into_folder = arguments.iter().any(|word| word.literal().is_some_and(|text| text.starts_with("-t") || text.starts_with("--target")));
    if INTO_THE_LAST.contains(&name) && !into_folder { &arguments[arguments.len().saturating_sub(1)..] } else { arguments }
}

/// Returns the files that an argument may name: itself, and what stands after `=`, `@`, the revision of git or an option's letter.
pub(super) fn named_files(text: &str) -> Vec<String> {
    let mut files: Vec<String> = ['=', '@', ':'].iter().filter_map(|mark| text.split_once(*mark)).map(|(_, value)| value.to_owned()).collect();
    match text.strip_prefix('-') {
        Some(option) => files.extend(option.get(1..).filter(|rest| !rest.is_empty()).map(str::to_owned)),
        None => files.push(text.to_owned()),
    }
    files.retain(|file| !file.is_empty());
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::shell;

    /// Programs that run without a question and show nothing of what is in a file, sorted.
    const SHOW_NOTHING: &[&str] = &[
        "basename", "cd", "command", "date", "dirname", "du", "echo", "false", "find", "git", "id", "ls", "nproc", "printf", "pwd", "readlink", "realpath",
        "sleep", "stat", "tree", "true", "type", "uname", "which", "whoami",
    ];

    #[test]
    fn every_program_that_only_reads_is_known_to_show_files_or_not_to() {
        assert!(READERS.is_sorted() && WRITERS.is_sorted() && TOLD_FIRST.is_sorted() && GIT_SHOWS.is_sorted() && GIT_CHANGES.is_sorted());
        for name in shell::read_only_programs() {
            assert!(READERS.contains(&name) != SHOW_NOTHING.contains(&name), "{name}");
        }
        assert!(TOLD_FIRST.iter().all(|name| READERS.contains(name)));
    }
}
