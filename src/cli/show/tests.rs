//! Screens of hand-made records, hostile ones too.
use super::*;
use crate::{
    cli::report::{Entry, tests::*},
    event::{Event, Form, SkipCause, Why},
    llm::script,
    message::{Message, Reply, Usage},
};
use serde_json::json;

fn hostile() -> Vec<Event> {
    let (fix, land, item) = (node("fix"), node("land"), NodeId::item(&"fix".into(), "a\u{1b}]0;x\u{7}b"));
    vec![
        started(),
        begins(&fix, 1),
        Event::WorkspaceMade {
            node: fix.clone(),
            base: "2222222222222222".into(),
            isolation: crate::event::Isolation::Linked,
            path: "/w\u{9b}1m/fix.1".to_owned(),
            command: None,
        },
        briefed(&fix),
        replied(
            &fix,
            "I look\u{1b}[31m\nfirst.",
            &[("c1", "Read", json!({"file_path": "a\u{1b}.rs"})), ("c2", "Bash", json!({"command": "rm -rf /", "timeout": 5}))],
        ),
        passes(&fix, "c1", None),
        Event::HookRan {
            node: fix.clone(),
            hook: "guard".to_owned(),
            on: "PreToolUse".to_owned(),
            call: Some("c2".to_owned()),
            verdict: crate::event::HookVerdict::Deny,
            reason: "no\u{202e}".to_owned(),
        },
        answered(&fix, "c2", "Denied: no such\u{1b}[2J thing", true),
        answered(&fix, "c1", "one\ntwo\n/w\u{9b}1m/fix.1/three", false),
        Event::VerifyRan { node: fix.clone(), passed: false, tail: "test x\nFAILED \u{1b}[31mbad\n".to_owned() },
        Event::MessageAdded { node: fix.clone(), message: Message::user("The checks are red"), why: Why::VerifyRed },
        Event::Compacted { node: fix.clone(), cut: 1, messages: Vec::new(), strategy: "summary".to_owned(), before: 90_000, after: 9_000 },
        replied(&fix, "Done.\n\tIt works\u{8}.", &[]),
        ends(&fix, succeeded(json!("Done."), Some("3333333333333333"))),
        begins(&item, 1),
        ends(&item, failed("red\u{1b}[0m: \u{7}no")),
        begins(&land, 1),
        Event::MergeAdvanced { node: land.clone(), progress: MergeProgress::Conflicted { from: fix.clone(), paths: vec!["a\u{1b}.rs".to_owned()] } },
        Event::MergeAdvanced { node: land.clone(), progress: MergeProgress::Ejected { from: item, reason: "red\u{1b}".to_owned() } },
        Event::QuestionAsked { node: land, call: "c".to_owned(), question: "May\u{1b}I?".to_owned(), form: Form::default() },
        ends(&node("after"), Outcome::Skipped(SkipCause::Condition)),
    ]
}

#[test]
fn a_step_is_told_turn_by_turn() {
    let records = records(hostile());
    let report = Report::of(&records);
    let found = report.named("fix").unwrap();
    let text = session::screen(&records, &report, found, false);
    assert_eq!(
        text,
        "\
fix: succeeded
  1 attempt, 12s, 2 turns, 2 tool calls, 2040 tokens, $1.0000

  fix/a ]0;x b  failed

Attempt 1
  worktree    /w 1m/fix.1 (linked), from 2222222222
  agent       coder on a/b
  tools       none
  asked       Mend the parser.

  Turn 1  tool use, 1000 tokens in (900 from the cache), 20 out, $0.5000, a/b
    I look [31m first.
    Read        a .rs
                3 lines after 2.3s: one two three
    Bash        rm -rf / timeout: 5
                hook guard said deny at PreToolUse: no
                denied by a rule: Denied: no such [2J thing
  checks      red
              test x
              FAILED ·[31mbad
  told        the checks are red: The checks are red
  shortened   the conversation, from about 90k to 9000 tokens (summary)

  Turn 2  end of turn, 1000 tokens in (900 from the cache), 20 out, $0.5000, a/b
    Done. It works .
  ended       succeeded

Final text
  Done.
      It works·.
"
    );
}

#[test]
fn a_run_is_told_whole_and_nothing_of_it_acts_on_the_terminal() {
    let records = records(hostile());
    let report = Report::of(&records);
    let text = screen(&report, Standing::Parked, &|_| true, false);
    for said in [
        "Run fix-abc234: parked",
        "goal = mend [2J it",
        "1111111111 of main",
        "fix/a ]0;x b",
        "land asks\n  May·I?",
        "after was skipped: its `if` is false",
        "conflict  fix in a .rs",
        "ejected   fix/a ]0;x b: red",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let all = [
        text,
        session::screen(&records, &report, report.named("fix").unwrap(), false),
        session::screen(&records, &report, report.named("land").unwrap(), false),
    ]
    .concat();
    assert!(!all.chars().any(|c| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))), "{all:?}");
    // Colours are ours alone: no sequence of another form or place is left.
    let colored = screen(&report, Standing::Parked, &|_| true, true);
    let after: Vec<&str> = colored.split('\u{1b}').skip(1).collect();
    assert!(
        !after.is_empty()
            && after.iter().all(|rest| rest
                .strip_prefix('[')
                .and_then(|rest| rest.find(|c: char| !c.is_ascii_digit()).map(|at| rest.as_bytes()[at] == b'm'))
                .unwrap_or(false)),
        "{colored:?}"
    );
}

#[test]
fn what_is_not_there_is_named_with_the_nearest_that_is() {
    let records = records(hostile());
    let report = Report::of(&records);
    let failed = require_node(&report, "fix-abc234", "fiix").err().unwrap();
    assert_eq!((failed.code, failed.hint.as_deref()), (2, Some("did you mean `fix`?")));
    let failed = require_node(&report, "fix-abc234", "\u{1b}[2J").err().unwrap();
    assert!(!failed.message.contains('\u{1b}') && failed.hint.unwrap().contains("spinney show fix-abc234"));
}

#[test]
fn long_things_are_cut_and_say_so() {
    let fix = node("fix");
    let long = (0..500).map(|line| format!("line {line}\n")).collect::<String>();
    let records = records(vec![started(), begins(&fix, 1), briefed(&fix), replied(&fix, &long, &[]), ends(&fix, failed(&long))]);
    let report = Report::of(&records);
    let text = session::screen(&records, &report, report.named("fix").unwrap(), false);
    assert!(text.contains("line 399\n  … 100 more lines; `--json` has them\n") && text.contains("line 499\n"), "{text}");
    let text = screen(&report, Standing::Failed, &|_| true, false);
    assert!(text.contains("fix failed\n  line 0\n  … 489 lines\n  line 490\n"), "{text}");
    assert!(matches!(crate::cli::report::entries(&records, &fix)[..], [Entry::Began { .. }, Entry::Briefed { .. }, Entry::Turn(_), Entry::Ended(_)]));
}

fn with_usage(node: &NodeId, model: &str, input: u64, read: u64, written: u64) -> Event {
    let usage = Usage { input, output: 9, cache_read: read, cache_write: written, ..Usage::default() };
    Event::ModelReplied { node: node.clone(), reply: Box::new(Reply { usage, model: model.to_owned(), ..script::reply("so", &[]) }), prefix: Vec::new() }
}

#[test]
fn a_cache_is_told_request_by_request_with_why_it_was_lost() {
    let (fix, sonnet) = (node("fix"), "anthropic/claude-sonnet-5-5");
    let records = records(vec![
        started(),
        begins(&fix, 1),
        briefed(&fix),
        with_usage(&fix, sonnet, 10, 0, 12_000),
        with_usage(&fix, sonnet, 12, 12_000, 900),
        Event::Compacted { node: fix.clone(), cut: 1, messages: Vec::new(), strategy: "ledger".to_owned(), before: 90_000, after: 9_000 },
        with_usage(&fix, sonnet, 8, 2_000, 3_000),
        with_usage(&fix, "openai/gpt-6-sol", 5_100, 0, 0),
    ]);
    let report = Report::of(&records);
    let text = cache::screen(&records, &report, None, &|_| 512, false);
    assert_eq!(
        text,
        "\
fix
  prompt  read  written   new
     12k     0      12k    10  the conversation begins
     12k   12k      900    12
    5008  2000     3000     8  lost: the conversation was shortened, so it begins otherwise
    5100     0        0  5100  lost: anthropic/claude-sonnet-5-5 answered before

39 % of 35k prompt tokens were read from the cache, 15k were written into it
"
    );
    assert_eq!(cache::screen(&records, &report, Some(&node("other")), &|_| 512, false), "No model was asked.\n");
}
