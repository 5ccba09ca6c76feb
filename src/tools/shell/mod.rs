//! Shell commands read as data: a small parser for bash, and the judgement whether a command only reads.
//!
//! The parser flattens: groups, subshells, `if`, `while` and `for` give their simple commands in the order of the text,
//! since whoever judges a command must judge each of them wherever it stands. What it cannot read with certainty
//! (`case`, functions, `[[`, arrays, arithmetic with substitutions, expansions that evaluate) is [`Unparsable`], never
//! half read. Nothing here is ever run, and no alias, function or variable is known.
//!
//! Invariant: every command that bash would start for a text that parses is either one of [`Script::every`] or hidden
//! behind a word for which [`Word::literal`] is `None` (a variable, a glob, arithmetic), or behind a command that
//! takes code as an argument (`eval`, `bash -c`, `xargs`, `find -exec`, `env`, …), which is the caller's to know.
mod grammar;
#[cfg(test)]
mod oracle;
mod read_only;
mod words;

pub use read_only::is_read_only;
#[cfg(test)]
pub(crate) use read_only::programs as read_only_programs;

/// Longest command that is read; from the permission rules' own limit.
pub const LENGTH_MAX: usize = 10_000;

/// How deep groups and substitutions may nest.
const DEPTH_MAX: usize = 24;

/// Why a command cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the command cannot be read as plain shell at byte {at}: {why}")]
pub struct Unparsable {
    /// Offset into the text, or into the backquoted text that holds the place.
    pub at: usize,
    /// A fragment.
    pub why: &'static str,
}

/// The simple commands of a text, flattened, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// Never holds one without words, assignments and redirects.
    pub commands: Vec<Simple>,
}

/// One simple command.
///
/// A redirect of a group (`{ …; } > f`) is a command of its own without words. The head of a `for` loop is a command
/// whose words are `for`, the name, `in` and the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simple {
    /// As written, from its first to its last word or redirect; bodies of here-documents are not in it.
    pub text: String,
    /// `NAME=value` before the name.
    pub assignments: Vec<Assignment>,
    /// The name and its arguments.
    pub words: Vec<Word>,
    /// In order.
    pub redirects: Vec<Redirect>,
    /// What stands after it.
    pub ended_by: Operator,
}

/// `NAME=value` or `NAME+=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// Its new value or what is appended.
    pub value: Word,
}

/// A redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The descriptor written before it, where there is one.
    pub fd: Option<u32>,
    /// Which way.
    pub kind: RedirectKind,
    /// The file or descriptor; the text itself for here-documents and here-strings.
    pub target: Word,
    /// Which here-document's body is to become the target, while parsing.
    body: Option<usize>,
}

/// Which way a redirect goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// `<`
    Read,
    /// `>`, `>|`, `&>`, `>&file`
    Write,
    /// `>>`, `&>>`
    Append,
    /// `<>`
    ReadWrite,
    /// `>&1`, `<&0`, `2>&-`: the target is digits, `-`, or digits and `-`.
    Duplicate,
    /// `<<` and `<<-`
    HereDocument,
    /// `<<<`
    HereString,
}

/// What stands after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The end of the text or of a group.
    End,
    /// `;` or a line break.
    Sequence,
    /// `&`
    Background,
    /// `&&`
    And,
    /// `||`
    Or,
    /// `|`
    Pipe,
    /// `|&`
    PipeBoth,
}

/// A word before expansion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// In order; neighbours are joined without a blank. No parts: an empty word (`''`).
    pub parts: Vec<Part>,
}

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text without quotes, in which globs, braces and a leading tilde expand.
    Bare(String),
    /// Text in quotes or behind a backslash, standing for itself; escapes are already undone.
    Quoted(String),
    /// `$NAME`, `$1`, `$?` or `${…}`; `name` is what stands after the dollar sign or inside the braces.
    Variable {
        /// `HOME`, `1`, `?`, `x%.*`.
        name: String,
        /// Whether it stands in double quotes, so that its value is not split.
        quoted: bool,
    },
    /// `$(…)` or backquotes.
    Substitution {
        /// What it runs.
        script: Script,
        /// Whether it stands in double quotes.
        quoted: bool,
    },
    /// `<(…)` or `>(…)`.
    Process(Script),
    /// `$((…))`. May run code that its variables hold.
    Arithmetic(String),
}

/// Reads a command.
///
/// # Errors
/// `Unparsable` for what bash would refuse, for what this parser does not know, and for more than [`LENGTH_MAX`] bytes.
pub fn parse(command: &str) -> Result<Script, Unparsable> {
    if command.len() > LENGTH_MAX {
        return Err(Unparsable { at: LENGTH_MAX, why: "it is too long" });
    }
    words::Cursor::new(command, 0).script()
}

impl Script {
    /// Returns every simple command at every depth: an outer one before those inside its substitutions.
    pub fn every(&self) -> Vec<&Simple> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a Simple>) {
        for command in &self.commands {
            found.push(command);
            for word in command.every_word() {
                for script in word.scripts() {
                    script.collect(found);
                }
            }
        }
    }
}

impl Simple {
    /// Returns the command's name where it is known before it runs.
    pub fn name(&self) -> Option<String> {
        self.words.first().and_then(Word::literal)
    }

    /// Returns the words joined by single blanks, quotes undone, where all of them are literal and there is one.
    pub fn plain(&self) -> Option<String> {
        let words: Option<Vec<String>> = self.words.iter().map(Word::literal).collect();
        words.filter(|words| !words.is_empty()).map(|words| words.join(" "))
    }

    /// Returns every word: values of assignments, the name and arguments, targets of redirects.
    pub fn every_word(&self) -> impl Iterator<Item = &Word> {
        let values = self.assignments.iter().map(|assignment| &assignment.value);
        values.chain(&self.words).chain(self.redirects.iter().map(|redirect| &redirect.target))
    }
}

impl Word {
    /// Returns the text that the word stands for, where it stands for exactly one text whatever the environment and
    /// the folder hold: no variable, substitution, glob, brace list or leading tilde.
    pub fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Bare(bare) => text.push_str(bare),
                Part::Quoted(quoted) => text.push_str(quoted),
                Part::Variable { .. } | Part::Substitution { .. } | Part::Process(_) | Part::Arithmetic(_) => return None,
            }
        }
        (!self.has_glob() && !self.has_brace() && !self.has_tilde()).then_some(text)
    }

    /// Returns whether unquoted `*`, `?` or `[` stand in it.
    pub fn has_glob(&self) -> bool {
        self.bare().any(|text| text.contains(['*', '?', '[']))
    }

    /// Returns whether a brace list (`{a,b}`, `{1..3}`) may expand in it; rather too often than too rarely.
    pub fn has_brace(&self) -> bool {
        let open = self.bare().any(|text| text.contains('{'));
        open && self.bare().any(|text| text.contains(',') || text.contains(".."))
    }

    /// Returns whether an unquoted tilde stands at its start, or after `=` or `:`, where assignments expand it.
    pub fn has_tilde(&self) -> bool {
        let leading = matches!(self.parts.first(), Some(Part::Bare(text)) if text.starts_with('~'));
        leading || self.bare().any(|text| text.contains("=~") || text.contains(":~"))
    }

    /// Returns whether any part of it stands in quotes or behind a backslash.
    pub fn is_quoted(&self) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| matches!(part, Part::Quoted(_)))
    }

    /// Returns the scripts directly inside it.
    pub fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.parts.iter().filter_map(|part| match part {
            Part::Substitution { script, .. } | Part::Process(script) => Some(script),
            Part::Bare(_) | Part::Quoted(_) | Part::Variable { .. } | Part::Arithmetic(_) => None,
        })
    }

    fn bare(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| if let Part::Bare(text) = part { Some(text.as_str()) } else { None })
    }

    /// Returns the text where the word is one bare part, as reserved words must be.
    fn keyword(&self) -> Option<&str> {
        if let [Part::Bare(text)] = self.parts.as_slice() { Some(text) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every(command: &str) -> Vec<String> {
        parse(command).unwrap().every().iter().map(|simple| simple.plain().unwrap_or_else(|| format!("?{}", simple.text))).collect()
    }

    #[test]
    fn finds_each_command_wherever_it_stands() {
        for (command, expected) in [
            ("a 1 && b 2 || c; d | e |& f & g\nh", vec!["a 1", "b 2", "c", "d", "e", "f", "g", "h"]),
            ("{ a; b; } && (c; (d))", vec!["a", "b", "c", "d"]),
            ("if a; then b; elif c; then d; else e; fi; f", vec!["a", "b", "c", "d", "e", "f"]),
            ("while a; do b; done | c", vec!["a", "b", "c"]),
            ("! a && time -p b", vec!["a", "b"]),
            ("'r'm \\-rf \"x y\" $'\\x7a'", vec!["rm -rf x y z"]),
            ("a # rm\nb#c", vec!["a", "b#c"]),
            ("a \\\n  --flag", vec!["a --flag"]),
            ("x=1 y+=2 a b=3", vec!["a b=3"]),
            ("a -e {} +", vec!["a -e {} +"]),
            ("echo } if", vec!["echo } if"]),
        ] {
            assert_eq!(every(command), expected, "{command}");
        }
    }

    #[test]
    fn finds_commands_inside_words() {
        assert_eq!(every("a \"x $(b `c \\`d\\``) y\" <(e) >&2"), ["?a \"x $(b `c \\`d\\``) y\" <(e) >&2", "?b `c \\`d\\``", "?c `d`", "d", "e"]);
        assert_eq!(every("x=$(a) > \"$(b)\""), ["?x=$(a) > \"$(b)\"", "a", "b"]);
        assert_eq!(every("for f in $(a); do b \"$f\"; done"), ["?for f in $(a)", "a", "?b \"$f\""]);
        assert_eq!(every("cat <<E | b\n$(a)\nE\nc"), ["cat", "a", "b", "c"]);
        assert_eq!(every("cat <<'E'\n$(a)\nE"), ["cat"]);
        assert_eq!(every("a $( (b) )"), ["?a $( (b) )", "b"]);
    }

    #[test]
    fn words_say_what_is_known_of_them() {
        let script = parse("$X {a,b} r?m ~/x 'a*' \"\" $'\\n' a{b} -x{1..3} \"$Y\"").unwrap();
        let literals: Vec<Option<String>> = script.commands[0].words.iter().map(Word::literal).collect();
        let known = |text: &str| Some(text.to_owned());
        assert_eq!(literals, [None, None, None, None, known("a*"), known(""), known("\n"), known("a{b}"), None, None]);
    }

    #[test]
    fn redirects_and_assignments_are_kept() {
        let script = parse("A=b c 2>&1 >out >>\"log x\" &>all <<<here 3<in >&file <<-E\n\tbody\n\tE\n").unwrap();
        let command = &script.commands[0];
        assert_eq!((command.assignments[0].name.as_str(), command.assignments[0].value.literal().unwrap().as_str()), ("A", "b"));
        let found: Vec<(Option<u32>, RedirectKind, String)> =
            command.redirects.iter().map(|redirect| (redirect.fd, redirect.kind, redirect.target.literal().unwrap())).collect();
        let expected = [
            (Some(2), RedirectKind::Duplicate, "1"),
            (None, RedirectKind::Write, "out"),
            (None, RedirectKind::Append, "log x"),
            (None, RedirectKind::Write, "all"),
            (None, RedirectKind::HereString, "here"),
            (Some(3), RedirectKind::Read, "in"),
            (None, RedirectKind::Write, "file"),
            (None, RedirectKind::HereDocument, "body\n"),
        ];
        assert_eq!(found, expected.map(|(fd, kind, target)| (fd, kind, target.to_owned())));
        assert_eq!(parse("{ a; } >f").unwrap().commands[1].redirects[0].target.literal().unwrap(), "f");
        assert_eq!(parse("(a; b) &").unwrap().commands[1].ended_by, Operator::Background);
    }

    #[test]
    fn what_is_not_certain_is_not_read() {
        for command in [
            "a '",
            "a \"",
            "a `b",
            "a $(b",
            "(a",
            "{ a; ",
            "a)",
            "a; }",
            "a &&",
            "| a",
            "a ;; b",
            "; a",
            "if a; then b",
            "fi",
            "a; done",
            "case x in x) rm;; esac",
            "f() { rm; }",
            "function f { rm; }",
            "[[ -f x ]]",
            "((x=1))",
            "echo $((a[$(rm)]))",
            "echo $((rm); (rm))",
            "echo ${x@P}",
            "echo ${!x}",
            "echo ${x:-$(rm)}",
            "echo ${a[x]}",
            "echo ${x:y}",
            "x=(a b)",
            "x[1]=2 rm",
            "echo @(a|b)",
            "$[rm]",
            "a &\\\n& b",
            "r\\\nm x",
            "echo $\\\n(rm)",
            "echo \"$\\\n(rm)\"",
            "cat <<E\nx",
            "cat <<E\na\\\nE\nrm\nE",
            "x=$(cat <<E\nb\nE)\nrm\nE\n)",
            "cat <<E $(b\n)\nE\n",
            "coproc rm",
            "for ((;;)); do rm; done",
            "for x in a; { rm; }",
            "a\0b",
            "echo $'\\cx'",
            "a >",
            "a > ; b",
            "a >& $x-",
            "a <& x",
        ] {
            let parsed = parse(command);
            let harmless = command == "a >& $x-"; // a write to a file of unknown name
            assert_eq!(parsed.is_err(), !harmless, "{command}: {parsed:?}");
        }
        assert!(parse(&"(".repeat(5000)).is_err());
        assert!(parse(&format!("a{}", "$(a".repeat(2000))).is_err());
        assert!(parse(&"a ".repeat(LENGTH_MAX)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ab $(){}<>|&;'\"`\\\\\n#=~*?!\\[\\]0-9-]{0,60}") {
            if let Ok(script) = parse(&text) {
                for command in script.every() {
                    prop_assert!(!command.words.is_empty() || !command.redirects.is_empty() || !command.assignments.is_empty());
                }
            }
            is_read_only(&text);
        }
    }
}
