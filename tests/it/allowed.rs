//! Budgets below the run's that ask a person for more: of an agent, of a step with all its items, of a workflow that is called. Whatever
//! process asks and whatever process is answered, each is asked once for each time, and the rest of the run goes on.
use crate::{
    fixture::{Bench, outcome},
    invariants,
    people::{mkfifo, until},
};
use serde_json::json;
use spinney::event::{Event, Record};

/// Two turns of everybody who is told to look, one of everybody else.
const TURNS: &str = r#"
conversations:
  - told: "Look"
    turns:
      - calls: [{ tool: Bash, input: { command: "ls" } }]
      - say: "done"
  - told: "Start"
    turns:
      - calls:
          - { tool: Agent, input: { description: a, prompt: "Look around.", subagent_type: reader } }
          - { tool: Agent, input: { description: b, prompt: "Look about.", subagent_type: reader } }
      - say: "done"
  - turns: [{ say: "done" }]
"#;

fn bench(name: &str, rest: &str) -> Bench {
    let head = format!("version: 1\nname: {name}\ndefaults: {{ model: anthropic/claude-haiku-5-5 }}\n");
    Bench::new().workflow(name, &format!("{head}{rest}"))
}

/// What people were asked: by which node, in which words.
fn asked(records: &[Record]) -> Vec<(String, &str)> {
    let mut asked = Vec::new();
    for record in records {
        if let Event::QuestionAsked { node, question, .. } = &record.event {
            asked.push((node.to_string(), question.as_str()));
        }
    }
    asked
}

fn begun(records: &[Record]) -> Vec<String> {
    records.iter().filter_map(|record| if let Event::StepStarted { node, .. } = &record.event { Some(node.to_string()) } else { None }).collect()
}

fn checked(bench: &Bench) -> Vec<Record> {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    records
}

const AGENT: &str = r#"
agents: { reader: { system: "You read.", budget: { turns: 1, on_exceed: ask } } }
steps:
  look: { agent: reader, prompt: "Look." }
  beside: { run: "echo beside" }
  say: { agent: reader, prompt: "Say." }
"#;

#[test]
fn an_agent_asks_for_more_of_its_budget_and_the_rest_of_the_run_goes_on() {
    let bench = bench("dear", AGENT);
    let (said, records) = bench.run("dear", TURNS, &[]);
    let said = said.code(3);
    let question = "the budget of agent `reader` is used up (1 turn so far): may it use as much again, 1 more?";
    assert_eq!(asked(&records), [("look".to_owned(), question)], "{}", said.out);
    for other in ["beside", "say"] {
        assert!(outcome(&records, other)["succeeded"].is_object(), "{other}");
    }
    // Asked again by another process it is the same question.
    let run = bench.newest();
    bench.spinney(&["resume", &run.0]).code(3);
    assert_eq!(asked(&checked(&bench)).len(), 1);
    bench.spinney(&["approve", &run.0, "look"]).code(0);
    let records = checked(&bench);
    assert_eq!(outcome(&records, "look")["succeeded"]["output"], "done");
    assert_eq!(asked(&records).len(), 1);
}

/// One answer is enough, of a session, a step and a run, although no request fits into what the file says.
#[test]
fn what_is_asked_for_is_as_much_as_the_next_request_needs() {
    let budget = "budget: { tokens: 500, on_exceed: ask }";
    let step = "steps: { look: { agent: reader, prompt: \"Look.\"STEP } }";
    let plain = "agents: { reader: { system: \"You read.\" } }";
    let of_agent = format!("agents: {{ reader: {{ system: \"You read.\", {budget} }} }}\n{}", step.replace("STEP", ""));
    let of_step = format!("{plain}\n{}", step.replace("STEP", &format!(", {budget}")));
    let of_run = format!("{budget}\n{plain}\n{}", step.replace("STEP", ""));
    for workflow in [of_agent, of_step, of_run] {
        let bench = bench("dear", &workflow);
        let (said, records) = bench.run("dear", "conversations: [{ turns: [{ say: done }] }]", &[]);
        let said = said.code(3);
        let asked_for = asked(&records);
        assert!(asked_for.len() == 1 && asked_for[0].1.contains("times as much again"), "{asked_for:?} {}", said.out);
        bench.spinney(&["approve", &bench.newest().0]).code(0);
        let records = checked(&bench);
        assert_eq!((asked(&records).len(), outcome(&records, "look")["succeeded"]["output"].clone()), (1, json!("done")), "{workflow}");
    }
}

#[test]
fn an_agent_that_may_not_use_more_ends_at_its_limit() {
    for (answer, code) in [("reject", 1), ("deny", 1), ("allow", 0)] {
        let bench = bench("dear", AGENT);
        match answer {
            "reject" => {
                bench.run("dear", TURNS, &[]).0.code(3);
                bench.spinney(&["reject", &bench.newest().0]).code(code);
            }
            beforehand => drop(bench.run("dear", TURNS, &["--on-ask", beforehand]).0.code(code)),
        }
        let records = checked(&bench);
        let ended = outcome(&records, "look");
        assert_eq!((asked(&records).len(), ended["failed"]["kind"] == json!({"limit": "turns"})), (1, code == 1), "{answer}: {ended}");
        assert!(!records.iter().any(|record| matches!(record.event, Event::LimitReached { .. })), "the run's own budget is not touched");
    }
}

const ITEMS: &str = r#"
agents: { reader: { system: "You read." } }
steps:
  each:
    for_each: { items: [a, b, c, d], as: n, max_parallel: WIDTH }
    agent: reader
    prompt: "Say {{ n }}."
    budget: { turns: 2, on_exceed: ask }
  beside: { run: "echo beside" }
"#;

#[test]
fn a_step_asks_once_for_all_its_items_and_begins_none_before_the_answer() {
    let bench = bench("many", &ITEMS.replace("WIDTH", "1"));
    let (said, records) = bench.run("many", TURNS, &[]);
    let said = said.code(3);
    let question = "the budget of step `each` is used up (2 turns so far): may it use as much again, 2 more?";
    assert_eq!(asked(&records), [("(run)".to_owned(), question)], "{}", said.out);
    assert!(begun(&records).contains(&"each/c".to_owned()) && !begun(&records).contains(&"each/d".to_owned()), "{:?}", begun(&records));
    assert!(outcome(&records, "beside")["succeeded"].is_object());
    let run = bench.newest();
    assert!(!bench.spinney(&["runs"]).code(0).out.contains("interrupted"), "whoever wants more waits");
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["approve", &run.0]).code(0);
    let records = checked(&bench);
    assert_eq!(asked(&records).len(), 1, "four turns are two and two again");
    assert!(outcome(&records, "each")["succeeded"].is_object());
}

/// What else was at work when the process died is interrupted, and does not wait for the answer.
#[test]
fn a_run_that_was_killed_while_a_step_asks_is_interrupted() {
    let workflow = ITEMS.replace("WIDTH", "1").replace("echo beside", "read line < $HOME/go");
    let bench = bench("many", &workflow);
    mkfifo(&bench.path("home/go"));
    let mut many = bench.program(&["run", "many", "--unconfined", "--json", "--script", &bench.script(TURNS)]);
    until(&mut many, "question_asked");
    many.kill().unwrap();
    many.wait().unwrap();
    let run = bench.newest();
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(shown.contains("interrupted; `spinney resume") && shown.contains("the budget of step `each` is used up"), "{shown}");
}

#[test]
fn items_at_the_same_time_ask_one_question_and_a_no_fails_those_that_want_more() {
    for (answer, code, questions) in [("allow", 0, 1), ("deny", 1, 1)] {
        let bench = bench("many", &ITEMS.replace("WIDTH", "4"));
        bench.run("many", TURNS, &["--on-ask", answer]).0.code(code);
        let records = checked(&bench);
        assert_eq!(asked(&records).len(), questions, "{answer}: {:?}", asked(&records));
        let failed =
            ["a", "b", "c", "d"].iter().filter(|item| outcome(&records, &format!("each/{item}"))["failed"]["kind"] == json!({"limit": "turns"})).count();
        assert_eq!(failed, if answer == "allow" { 0 } else { 2 });
    }
}

#[test]
fn a_workflow_that_is_called_asks_for_more_of_its_own_budget() {
    let bench = bench(
        "part",
        "budget: { turns: 1, on_exceed: ask }\nagents: { reader: { system: You read. } }\nsteps: { look: { agent: reader, prompt: Look. } }\n",
    )
    .workflow(
        "whole",
        "version: 1\nname: whole\ndefaults: { model: anthropic/claude-haiku-5-5 }\nsteps: { call: { workflow: part }, beside: { run: \"echo beside\" } }\n",
    );
    let (said, records) = bench.run("whole", TURNS, &[]);
    said.code(3);
    let question = "the budget of the workflow that `call` calls is used up (1 turn so far): may it use as much again, 1 more?";
    assert_eq!(asked(&records), [("(run)".to_owned(), question)]);
    bench.spinney(&["approve", &bench.newest().0]).code(0);
    assert!(outcome(&checked(&bench), "call")["succeeded"].is_object());
}

#[test]
fn what_sub_agents_use_is_asked_for_by_whoever_started_them() {
    let bench = bench(
        "crew",
        "agents:\n  chief: { system: You lead., tools: [Agent], max_depth: 2, budget: { turns: 4, on_exceed: ask } }\n  reader: { system: You read. }\nsteps: { lead: { agent: chief, prompt: Start. } }\n",
    );
    let (said, records) = bench.run("crew", TURNS, &[]);
    said.code(3);
    assert_eq!(asked(&records).iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["lead"], "{:?}", asked(&records));
    bench.spinney(&["approve", &bench.newest().0]).code(0);
    let records = checked(&bench);
    assert!(outcome(&records, "lead")["succeeded"].is_object());
    assert_eq!(asked(&records).len(), 1);
}

#[test]
fn a_plan_says_which_budgets_ask_and_a_simulated_run_how_often() {
    let bench = bench("many", &ITEMS.replace("WIDTH", "1").replace("turns: 2", "usd: 1"));
    let page = bench.spinney(&["plan", "many"]).code(0).out;
    assert!(page.contains("a person is asked for more where it is used up"), "{page}");
    let stub = bench.script("steps: { each: { usd: 0.6 } }");
    let page = bench.spinney(&["plan", "many", "--stub", &stub]).code(0).out;
    assert!(page.contains("for as much again of its budget"), "{page}");
    let asking = Bench::new().workflow("dear", &format!("version: 1\nname: dear\ndefaults: {{ model: anthropic/claude-haiku-5-5 }}\n{AGENT}"));
    let page = asking.spinney(&["plan", "dear"]).code(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("then a person is asked for more") && page.contains("more where a person raises the budget"), "{page}");
}
