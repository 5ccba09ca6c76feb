//! Commands that start other commands, and where in their words those begin.
use crate::tools::shell::{Part, Word};

/// A command whose words hold another command.
struct Wrapper {
    name: &'static str,
    /// Letters of options that take the next word as their value.
    valued: &'static str,
    /// Words of its own before the command.
    own: usize,
    /// Whether `NAME=value` may stand before the command.
    assigns: bool,
}

const fn wrapper(name: &'static str, valued: &'static str, own: usize, assigns: bool) -> Wrapper {
    Wrapper { name, valued, own, assigns }
}

/// Sorted by name.
const WRAPPERS: &[Wrapper] = &[
    wrapper("builtin", "", 0, false),
    wrapper("busybox", "", 0, false),
    wrapper("catchsegv", "", 0, false),
    wrapper("chroot", "", 1, false),
    wrapper("chrt", "TPD", 1, false),
    wrapper("command", "", 0, false),
    wrapper("compgen", "ACFGPSWXo", 0, false),
    wrapper("complete", "ACFGPSWXo", 0, false),
    wrapper("coproc", "", 0, false),
    wrapper("dbus-run-session", "", 0, false),
    wrapper("doas", "Cu", 0, true),
    wrapper("env", "CSu", 0, true),
    wrapper("exec", "a", 0, false),
    wrapper("fc", "e", 0, false),
    wrapper("flock", "Ew", 1, false),
    wrapper("i386", "", 0, false),
    wrapper("ionice", "Pcnpu", 0, false),
    wrapper("jobs", "", 0, false),
    wrapper("linux32", "", 0, false),
    wrapper("linux64", "", 0, false),
    wrapper("ltrace", "Aaeloprsu", 0, false),
    wrapper("mapfile", "COcdnsu", 0, false),
    wrapper("nice", "n", 0, false),
    wrapper("noglob", "", 0, false),
    wrapper("nohup", "", 0, false),
    wrapper("nsenter", "GSTt", 0, false),
    wrapper("parallel", "CIPSaj", 0, false),
    wrapper("perf", "", 1, false),
    wrapper("prlimit", "p", 0, false),
    wrapper("readarray", "COcdnsu", 0, false),
    wrapper("run-parts", "", 0, false),
    wrapper("runuser", "Ggsu", 0, false),
    wrapper("script", "EIOTBcmo", 0, false),
    wrapper("setarch", "", 1, false),
    wrapper("setpriv", "", 0, false),
    wrapper("setsid", "", 0, false),
    wrapper("ssh", "BbcDEeFIiJLlmOopQRSWw", 1, false),
    wrapper("start-stop-daemon", "", 0, false),
    wrapper("stdbuf", "eio", 0, false),
    wrapper("strace", "EIOPSUXabeopsu", 0, false),
    wrapper("su", "Ccgsw", 0, false),
    wrapper("sudo", "CDRTUghprtu", 0, true),
    wrapper("systemd-run", "EHMptu", 0, false),
    wrapper("taskset", "", 1, false),
    wrapper("time", "fo", 0, false),
    wrapper("timeout", "ks", 1, false),
    wrapper("toybox", "", 0, false),
    wrapper("uname26", "", 0, false),
    wrapper("unbuffer", "", 0, false),
    wrapper("unshare", "GRSw", 0, false),
    wrapper("watch", "dnq", 0, false),
    wrapper("x86_64", "", 0, false),
    wrapper("xargs", "EILPadns", 0, false),
    wrapper("xvfb-run", "efnpsw", 0, false),
];

/// Wrappers that an allow rule looks through.
const TRANSPARENT: &[&str] = &["builtin", "command", "nice", "noglob", "nohup", "stdbuf", "time", "timeout", "xargs"];
/// Wrappers that no allow rule with a `*` covers.
const OPAQUE: &[&str] = &["builtin", "command", "flock", "ionice", "nice", "noglob", "nohup", "setsid", "stdbuf", "time", "timeout", "watch", "xargs"];
const SHELLS: &[&str] = &["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "yash", "zsh"];

/// Returns whether a program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Returns whether a command may start another one that stands in its words.
pub(super) fn wraps(name: &str, words: &[Word]) -> bool {
    let has = |wanted: &dyn Fn(&str) -> bool| words.iter().skip(1).any(|word| word.literal().is_none_or(|text| wanted(&text)));
    match name {
        "find" => has(&|text| text.starts_with("-exec") || text.starts_with("-ok")),
        "git" => {
            words.iter().skip(1).filter_map(Word::literal).any(|text| {
                ["bisect", "filter-branch", "foreach", "--exec", "-x"].contains(&text.as_str()) || text.starts_with("--exec=") || text.contains("=!")
            })
        }
        _ => find(name).is_some() || is_prefix(name) || name.starts_with("ld-linux") || name.starts_with("ld.so"),
    }
}

/// Words before a command that are no command: `{fd}` of a redirect, and the `--` of `time` and `eval`.
fn is_prefix(name: &str) -> bool {
    name == "--" || (name.starts_with('{') && name.ends_with('}'))
}

/// Returns the places of the words where wrapped commands begin, where that can be told.
pub(super) fn commands_at(name: &str, words: &[Word]) -> Option<Vec<usize>> {
    if name != "find" {
        return command_at(name, words).map(|at| vec![at]);
    }
    // Unquoted unknown text may hold an `-exec` of its own.
    let splits = |part: &Part| matches!(part, Part::Variable { quoted: false, .. } | Part::Substitution { quoted: false, .. });
    if words.iter().any(|word| word.parts.iter().any(splits) || word.has_glob() || word.has_brace()) {
        return None;
    }
    let begins = |word: &Word| word.literal().is_some_and(|text| text.starts_with("-exec") || text.starts_with("-ok"));
    Some(words.iter().enumerate().filter(|(_, word)| begins(word)).map(|(at, _)| at + 1).collect())
}

fn command_at(name: &str, words: &[Word]) -> Option<usize> {
    if is_prefix(name) {
        return Some(1);
    }
    let wrapper = find(name)?;
    let mut own = wrapper.own;
    let mut at = 1;
    let mut options = true;
    while let Some(word) = words.get(at) {
        let Some(text) = word.literal() else { return (own == 0).then_some(at) };
        match text.strip_prefix('-').filter(|rest| options && !rest.is_empty()) {
            Some("-") => options = false,
            Some(rest) => at += option_length(wrapper, rest)?,
            None if wrapper.assigns && text.contains('=') => {}
            None if own > 0 => {
                own -= 1;
                options = false;
            }
            None => return Some(at),
        }
        at += 1;
    }
    Some(words.len())
}

/// Returns how many words an option takes besides its own, `rest` being the option without its first dash.
fn option_length(wrapper: &Wrapper, rest: &str) -> Option<usize> {
    if let Some(long) = rest.strip_prefix('-') {
        // The value of a long option may stand in the next word: that is not known here.
        return (long.contains('=') || FLAGS.contains(&long)).then_some(0);
    }
    // The value of the last letter of a cluster is the next word; that of an earlier one is the rest of the cluster.
    let first = rest.find(|c| wrapper.valued.contains(c));
    Some(usize::from(first.is_some_and(|at| at + 1 == rest.len())))
}

/// Long options of wrappers that take no value.
const FLAGS: &[&str] =
    &["foreground", "preserve-status", "verbose", "null", "no-run-if-empty", "ignore-environment", "wait", "fork", "portability", "append", "quiet"];

/// Makes holes of what a wrapper at a place puts into the words of its command: file names for `{}` and, at the end, what
/// `xargs` reads.
pub(super) fn fill(name: &str, words: &mut Vec<Word>, at: usize) {
    if !matches!(name, "find" | "parallel" | "xargs") {
        return;
    }
    let hole = |quoted| Word { parts: vec![Part::Variable { name: "INPUT".to_owned(), quoted }] };
    let mut marks = vec!["{}".to_owned()];
    let literals: Vec<String> = words[at + 1..].iter().map(|word| word.literal().unwrap_or_default()).collect();
    for (option, next) in literals.iter().zip(literals.iter().skip(1)).filter(|_| name != "find") {
        let attached = ["-I", "-i", "-J", "--replace="].iter().find_map(|start| option.strip_prefix(start));
        marks.extend(attached.map(|mark| if mark.is_empty() { next.clone() } else { mark.to_owned() }));
    }
    marks.retain(|mark| !mark.is_empty());
    for (word, text) in words[at + 1..].iter_mut().zip(&literals) {
        if marks.iter().any(|mark| text.contains(mark.as_str())) && !text.starts_with("-I") && !text.starts_with("--replace") {
            *word = hole(true);
        }
    }
    if name != "find" {
        words.push(hole(false));
    }
}

/// Takes away the wrappers that an allow rule looks through; gives nothing where an option of one is not understood.
pub(super) fn unwrapped(mut words: &[Word]) -> Option<&[Word]> {
    for _ in 0..8 {
        let Some(name) = words.first().and_then(Word::literal).filter(|name| TRANSPARENT.contains(&name.as_str())) else { return Some(words) };
        let plain = |at: usize| words.get(at).is_some_and(|word| word.literal().is_some_and(|text| !text.starts_with('-')));
        let at = match name.as_str() {
            // With options these two do something else.
            "xargs" | "command" if !plain(1) => return None,
            "timeout" => command_at(&name, words).filter(|at| words.get(at - 1).and_then(Word::literal).is_some_and(|text| is_duration(&text)))?,
            _ => command_at(&name, words)?,
        };
        if !plain(at) {
            return None;
        }
        words = &words[at..];
    }
    None
}

fn is_duration(text: &str) -> bool {
    let number = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Returns whether only a rule without `*` may allow a command.
pub(super) fn is_opaque(name: &str, arguments: &[Word]) -> bool {
    let hides = |word: &Word| word.literal().is_none_or(|text| ["-delete", "-exec", "-fls", "-fprint", "-ok"].iter().any(|start| text.starts_with(start)));
    OPAQUE.contains(&name) || (name == "find" && arguments.iter().any(|word| hides(word) && !word.has_glob()))
}

fn find(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.binary_search_by(|wrapper| wrapper.name.cmp(name)).ok().map(|at| &WRAPPERS[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::shell::parse;

    fn words(command: &str) -> Vec<Word> {
        parse(command).unwrap().commands[0].words.clone()
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(WRAPPERS.is_sorted_by_key(|wrapper| wrapper.name));
    }

    #[test]
    fn wrapped_commands_are_found_behind_options() {
        for (command, expected) in [
            ("timeout 5 rm x", Some(2)),
            ("timeout -k 1 -s KILL 5 rm x", Some(6)),
            ("timeout --signal KILL 5 rm", None),
            ("timeout --foreground 5 rm", Some(3)),
            ("env -u A B=1 rm", Some(4)),
            ("nice -n 5 rm", Some(3)),
            ("nice -5 rm", Some(2)),
            ("stdbuf -oL rm", Some(2)),
            ("xargs -I {} cp {} d", Some(3)),
            ("xargs -n1 foo", Some(2)),
            ("flock /tmp/l rm", Some(2)),
            ("sudo -- rm", Some(2)),
            ("nohup $X y", Some(1)),
        ] {
            let words = words(command);
            assert_eq!(command_at(&words[0].literal().unwrap(), &words), expected, "{command}");
        }
    }

    #[test]
    fn allowing_looks_through_few_wrappers_and_only_plain_ones() {
        let stripped = |command: &str| unwrapped(&words(command)).map(|words| words[0].literal().unwrap_or_default());
        assert_eq!(stripped("timeout 30 nice -n 5 npm test").as_deref(), Some("npm"));
        assert_eq!(stripped("npm test").as_deref(), Some("npm"));
        assert_eq!(stripped("env npm").as_deref(), Some("env"));
        for command in ["xargs -n1 foo", "command -v foo", "timeout $X foo", "timeout 5 -x", "nohup $X", "timeout x5 foo", "nohup"] {
            assert_eq!(stripped(command), None, "{command}");
        }
    }
}
