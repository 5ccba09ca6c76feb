//! Puts arguments and places into the body of a skill.
//!
//! `$ARGUMENTS` is the text as it was typed; `$ARGUMENTS[N]` and `$N` count from 0 and part it as a shell does; `$name` is
//! one that the skill declares. Bodies are full of dollar signs that mean nothing of the kind, in prose and in scripts, so
//! indexed and named ones count only where the skill was called with arguments or declares some.
use std::path::Path;

/// What stands where the output of a command would.
const DISABLED: &str = "[shell command execution disabled by policy]";

/// Where and for whom a skill is called.
#[derive(Debug, Clone, Copy, Default)]
pub struct Invocation<'a> {
    /// The session, for `${CLAUDE_SESSION_ID}`.
    pub session: &'a str,
    /// The effort, for `${CLAUDE_EFFORT}`.
    pub effort: &'a str,
    /// The skill's real folder, for `${CLAUDE_SKILL_DIR}`.
    pub dir: Option<&'a Path>,
    /// The project's folder, for `${CLAUDE_PROJECT_DIR}`.
    pub project: Option<&'a Path>,
}

pub(super) fn render(body: &str, names: &[String], args: &str, invocation: &Invocation<'_>) -> String {
    let body = without_commands(body);
    let words = shell_words::split(args).unwrap_or_else(|_| args.split_whitespace().map(str::to_owned).collect());
    let active = !args.is_empty() || !names.is_empty();
    let mut substitution = Substitution { names, args, words, active, invocation, used: false };
    let mut text = substitution.run(&body);
    if !args.is_empty() && !substitution.used {
        text.push_str("\n\nARGUMENTS: ");
        text.push_str(args);
    }
    text
}

struct Substitution<'a> {
    names: &'a [String],
    args: &'a str,
    words: Vec<String>,
    /// Whether indexed and named placeholders count.
    active: bool,
    invocation: &'a Invocation<'a>,
    /// Whether any argument was put in.
    used: bool,
}

impl Substitution<'_> {
    fn run(&mut self, body: &str) -> String {
        let mut text = String::with_capacity(body.len());
        let mut rest = body;
        while let Some(at) = rest.find('$') {
            let (before, here) = rest.split_at(at);
            text.push_str(before);
            let escaped = before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
            let (length, value) = if let Some((length, value)) = self.argument(here) {
                if escaped {
                    text.pop();
                }
                self.used |= value.is_some() && !escaped;
                (length, value)
            } else {
                self.place(here).map_or((1, None), |(length, value)| (length, Some(value)))
            };
            match value.filter(|_| !escaped) {
                Some(value) => text.push_str(&value),
                None => text.push_str(&here[..length]),
            }
            rest = &here[length..];
        }
        text.push_str(rest);
        text
    }

    /// Reads a placeholder of an argument: its length, and its value unless there is no such argument.
    fn argument(&self, here: &str) -> Option<(usize, Option<String>)> {
        if let Some(after) = here.strip_prefix("$ARGUMENTS") {
            let indexed = after.strip_prefix('[').and_then(|inside| inside.split_once(']')).filter(|(index, _)| is_index(index));
            return match indexed {
                Some((index, _)) if self.active => Some(("$ARGUMENTS[]".len() + index.len(), self.word(index))),
                Some(_) => None,
                None => Some(("$ARGUMENTS".len(), Some(self.args.to_owned()))),
            };
        }
        if !self.active {
            return None;
        }
        let digits = here[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(here.len() - 1);
        if digits > 0 {
            return Some((1 + digits, self.word(&here[1..=digits])));
        }
        let continues = |c: char| c.is_alphanumeric() || c == '_';
        let named = self.names.iter().enumerate().filter(|(_, name)| !name.is_empty());
        let fits = named.filter(|(_, name)| here[1..].strip_prefix(name.as_str()).is_some_and(|after| !after.starts_with(continues)));
        let (at, name) = fits.max_by_key(|(_, name)| name.len())?;
        Some((1 + name.len(), Some(self.words.get(at).cloned().unwrap_or_default())))
    }

    fn word(&self, index: &str) -> Option<String> {
        self.words.get(index.parse::<usize>().ok()?).cloned()
    }

    /// Reads a placeholder of a place or a setting.
    fn place(&self, here: &str) -> Option<(usize, String)> {
        let (name, _) = here.strip_prefix("${")?.split_once('}')?;
        let shown = |path: &Path| path.display().to_string();
        let value = match name {
            "CLAUDE_SESSION_ID" => self.invocation.session.to_owned(),
            "CLAUDE_EFFORT" => self.invocation.effort.to_owned(),
            "CLAUDE_SKILL_DIR" => shown(self.invocation.dir?),
            "CLAUDE_PROJECT_DIR" => shown(self.invocation.project?),
            _ => return None,
        };
        Some((name.len() + "${}".len(), value))
    }
}

fn is_index(text: &str) -> bool {
    !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Puts the fixed text in the place of commands: blocks fenced by ```` ```! ```` and `` !`cmd` `` at the beginning of a line
/// or after white space.
fn without_commands(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let mut lines = body.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```!") {
            let end = lines.by_ref().find(|line| line.trim() == "```");
            text.push_str(DISABLED);
            if end.is_some_and(|line| line.ends_with('\n')) {
                text.push('\n');
            }
            continue;
        }
        inline(line, &mut text);
    }
    text
}

fn inline(line: &str, text: &mut String) {
    let mut rest = line;
    while let Some(at) = rest.find("!`") {
        let (before, here) = rest.split_at(at);
        text.push_str(before);
        let opens = text.chars().next_back().is_none_or(char::is_whitespace);
        rest = if let Some(length) = here[2..].find('`').filter(|length| opens && *length > 0) {
            text.push_str(DISABLED);
            &here[length + 3..]
        } else {
            text.push_str("!`");
            &here[2..]
        };
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(body: &str, names: &[&str], args: &str) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let place = Invocation { session: "s1", effort: "high", dir: Some(Path::new("/skills/x")), project: Some(Path::new("/project")) };
        render(body, &names, args, &place)
    }

    #[test]
    fn the_cases_with_known_answers_hold() {
        #[derive(serde::Deserialize)]
        struct Case {
            body: String,
            args: String,
            arguments: Vec<String>,
            expect: String,
        }
        let cases: Vec<Case> = serde_json::from_str(include_str!("../../tests/cases/skill_subst.json")).unwrap();
        assert!(cases.len() >= 7);
        for case in cases {
            assert_eq!(render(&case.body, &case.arguments, &case.args, &Invocation::default()), case.expect, "{}", case.body);
        }
    }

    #[test]
    fn named_arguments_are_put_in() {
        assert_eq!(with("$issue by $who, $issues $whom", &["issue", "who"], "12 'A B'"), "12 by A B, $issues $whom");
        assert_eq!(with("[$issue]", &["issue"], ""), "[]");
        assert_eq!(with("$issue-number $issue", &["issue", "issue-number"], "a b"), "b a");
        assert_eq!(with(r"\$issue \\$issue \\\$issue", &["issue"], "1"), r"$issue \\1 \\$issue");
        assert_eq!(with("$ARGUMENTS[1]$ARGUMENTS[0]$ARGUMENTS[7]$ARGUMENTS[x]", &[], "a b"), "ba$ARGUMENTS[7]a b[x]");
    }

    #[test]
    fn dollars_that_mean_nothing_stay_without_arguments() {
        let body = r#"awk "{print \$1}" costs $1.00 $0 $ARGUMENTS[0] $HOME ${X} $"#;
        assert_eq!(with(body, &[], ""), body);
        assert_eq!(with("a $ARGUMENTS.", &[], ""), "a .");
    }

    #[test]
    fn arguments_that_nothing_asks_for_are_appended() {
        assert_eq!(with("Do it", &[], "now $0 $ARGUMENTS"), "Do it\n\nARGUMENTS: now $0 $ARGUMENTS");
        assert_eq!(with("Do $5", &[], "a"), "Do $5\n\nARGUMENTS: a");
        assert_eq!(with("Do $0", &[], "'unbalanced quote"), "Do 'unbalanced");
    }

    #[test]
    fn what_is_put_in_is_not_read_again() {
        assert_eq!(with("$0 $1", &[], "'$1' '${CLAUDE_SESSION_ID}'"), "$1 ${CLAUDE_SESSION_ID}");
        assert_eq!(with("$ARGUMENTS", &[], "!`id` $0"), "!`id` $0");
    }

    #[test]
    fn places_are_put_in() {
        assert_eq!(with("${CLAUDE_SKILL_DIR}/run ${CLAUDE_PROJECT_DIR} ${CLAUDE_SESSION_ID} ${CLAUDE_EFFORT}", &[], ""), "/skills/x/run /project s1 high");
        assert_eq!(with(r"\${CLAUDE_EFFORT} ${CLAUDE_OTHER} ${CLAUDE_EFFORT", &[], ""), r"\${CLAUDE_EFFORT} ${CLAUDE_OTHER} ${CLAUDE_EFFORT");
        assert_eq!(render("${CLAUDE_SKILL_DIR}", &[], "", &Invocation::default()), "${CLAUDE_SKILL_DIR}");
    }

    #[test]
    fn commands_are_never_run() {
        assert_eq!(with("!`git diff` and !`id`\nx!`id` `!` !``\n", &[], ""), format!("{DISABLED} and {DISABLED}\nx!`id` `!` !``\n"));
        assert_eq!(with("a\n```!\nrm -rf /\n```\nb\n```sh\nx\n```\n", &[], ""), format!("a\n{DISABLED}\nb\n```sh\nx\n```\n"));
        assert_eq!(with("a\n```!\nrm", &[], ""), format!("a\n{DISABLED}"));
    }
}
