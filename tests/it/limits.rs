//! Limits: each ends an agent or a run with its own status, never as success, never past it.
use crate::{
    driver::{Line, Sent},
    fixture::{Bench, outcome, results},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Outcome, Record},
    llm::{ModelCall, script::reply_to},
    message::{Reply, StopReason, Usage},
};

fn one(agent: &str, step: &str, more: &str) -> Bench {
    Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow(
        "one",
        &format!("version: 1\nname: one\n{more}\nagents:\n  worker: {{ system: \"You work.\", access: write{agent} }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\"{step} }}\n"),
    )
}

/// Calls a tool for ever, each time with another input.
fn for_ever(sent: &Sent, _: &ModelCall<'_>) -> Line {
    Line::call("Bash", json!({"command": format!("echo {}", sent.messages.len())}))
}

fn turns(records: &[Record], node: &str) -> usize {
    records.iter().filter(|record| matches!(&record.event, Event::ModelReplied { node: of, .. } if of.to_string() == node)).count()
}

/// Asserts that a node and with it the run failed by a limit, on the screen too.
fn failed_by(bench: &Bench, records: &[Record], node: &str, limit: &str) -> Value {
    let kind = json!({"limit": limit});
    for node in [node, "run"] {
        assert_eq!(outcome(records, node)["failed"]["kind"], kind, "{node}: {}", outcome(records, node));
    }
    let message = outcome(records, node)["failed"]["message"].as_str().unwrap().to_owned();
    let shown = bench.spinney(&["show", &bench.newest().0]).code(0);
    assert!(shown.out.contains(&message[..message.len().min(40)]), "{message}\n{}", shown.out);
    assert_eq!(bench.git(&["branch", "--list", "spinney/*"]), "");
    outcome(records, node)
}

#[test]
fn a_model_that_calls_tools_for_ever_ends_at_its_turns() {
    let bench = one(", max_turns: 4", "", "");
    let (_, records) = bench.drive(for_ever).run("one");
    failed_by(&bench, &records, "work", "turns");
    assert_eq!((turns(&records, "work"), results(&records, "work").len()), (4, 4));
}

#[test]
fn a_model_that_calls_tools_for_ever_ends_without_any_limit_written() {
    let bench = one("", "", "");
    let (_, records) = bench.drive(|sent, _| Line::call("Glob", json!({"pattern": format!("*{}", sent.messages.len())}))).run("one");
    failed_by(&bench, &records, "work", "turns");
    assert_eq!(turns(&records, "work"), 100);
}

#[test]
fn the_same_call_again_and_again_ends_an_agent() {
    let bench = one("", "", "");
    let (_, records) = bench.drive(|_, _| Line::call("Bash", json!({"command": "echo same"}))).run("one");
    failed_by(&bench, &records, "work", "repeats");
    assert_eq!(turns(&records, "work"), 5);
}

fn costing(call: &ModelCall<'_>, sent: &Sent, usage: Usage, usd: Option<f64>) -> Line {
    let reply = reply_to(call, "", &[("Bash", json!({"command": format!("echo {}", sent.messages.len())}))]);
    Line::Whole(Box::new(Reply { usage, usd, ..reply }))
}

#[test]
fn tokens_end_an_agent_before_the_request_that_would_pass_them() {
    let bench = one(", budget: { tokens: 50000 }", "", "");
    let usage = Usage { input: 9_000, output: 2_000, ..Usage::default() };
    let (_, records) = bench.drive(move |sent, call| costing(call, sent, usage, None)).run("one");
    failed_by(&bench, &records, "work", "tokens");
    let used: u64 = records.iter().map(|record| if let Event::ModelReplied { reply, .. } = &record.event { reply.usage.total() } else { 0 }).sum();
    assert!(used <= 50_000, "{used}");
    assert_eq!(turns(&records, "work"), 4, "a fifth request of about 9,000 tokens would pass 50,000 with its answer");
}

#[test]
fn money_ends_an_agent_and_no_request_follows() {
    let bench = one(", budget: { usd: 1, tokens: 100000000 }", "", "");
    let usage = Usage { input: 10, output: 10, ..Usage::default() };
    let (_, records) = bench.drive(move |sent, call| costing(call, sent, usage, Some(0.4))).run("one");
    failed_by(&bench, &records, "work", "money");
    assert_eq!(turns(&records, "work"), 3, "after 1.20 of 1.00 dollars nothing more is asked");
}

#[test]
fn time_ends_an_agent_between_requests() {
    let clock = spinney::clock::Clock::fake(spinney::clock::Timestamp(1_000));
    let bench = one(", timeout: 10m", ", timeout: 1h", "");
    let hand = clock.clone();
    let drive = bench.drive(move |sent, call| {
        hand.advance(std::time::Duration::from_mins(4));
        for_ever(sent, call)
    });
    let (_, records) = drive.clock(clock).run("one");
    failed_by(&bench, &records, "work", "time");
    assert_eq!(turns(&records, "work"), 3);
}

#[test]
fn time_ends_an_agent_in_the_middle_of_a_call() {
    let bench = one(", timeout: 1s", ", timeout: 1h", "");
    // It would take ten minutes; that the test ends at all is what it shows.
    let (_, records) = bench.drive(|_, _| Line::call("Bash", json!({"command": "tail -f /dev/null", "timeout": 600_000}))).run("one");
    failed_by(&bench, &records, "work", "time");
}

#[test]
fn a_steps_timeout_is_a_failure_of_its_own_kind_and_leaves_no_process() {
    let bench = one("", ", timeout: 1s", "");
    let command = "echo $$ > pid; tail -f /dev/null";
    let (_, records) = bench.drive(move |_, _| Line::call("Bash", json!({"command": command, "timeout": 600_000}))).run("one");
    assert_eq!(outcome(&records, "work")["failed"]["kind"], "timeout");
    assert_eq!(outcome(&records, "run")["failed"]["kind"], "timeout");
    let place = records.iter().find_map(|record| if let Event::WorkspaceMade { path, .. } = &record.event { Some(path.clone()) } else { None });
    let pid = std::fs::read_to_string(std::path::Path::new(&place.unwrap()).join("pid")).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} outlived the run");
}

const MANY: &str = "version: 1\nname: many\nBUDGET\nagents: { worker: { system: \"You work.\", access: write } }
steps:
  work:
    for_each: { items: [\"a\", \"b\", \"c\", \"d\"], as: it, max_parallel: 1, join: JOIN }
    agent: worker
    prompt: \"Build {{ it }}.\"
  join: { needs: [{ step: work, on: done }], merge: { from: [work] } }
";

fn many(budget: &str, join: &str) -> Bench {
    Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("many", &MANY.replace("BUDGET", budget).replace("JOIN", join))
}

/// Two turns an item: a file of its own, then the end.
fn item(sent: &Sent, call: &ModelCall<'_>) -> Line {
    let key = sent.node.rsplit('/').next().unwrap();
    let reply = match sent.turn() {
        0 => reply_to(call, "", &[("Write", json!({"file_path": format!("{key}.txt"), "content": "x\n"}))]),
        _ => reply_to(call, "done", &[]),
    };
    Line::Whole(Box::new(Reply { usage: Usage { input: 900, output: 100, ..Usage::default() }, usd: Some(0.5), ..reply }))
}

#[test]
fn a_run_stops_at_its_budget_even_where_every_failure_is_allowed() {
    for (budget, limit) in [("budget: { turns: 3 }", "turns"), ("budget: { usd: 1.2, tokens: 10000000 }", "money"), ("budget: { tokens: 4000 }", "tokens")] {
        for join in ["all", "all_done"] {
            let bench = many(budget, join);
            let (ended, records) = bench.drive(item).run("many");
            assert!(matches!(&ended, Ended::Finished(Outcome::Failed(_))), "{budget} {join}: {ended:?}");
            assert_eq!(outcome(&records, "run")["failed"]["kind"], json!({"limit": limit}), "{budget} {join}");
            let reached = records.iter().filter(|record| matches!(record.event, Event::LimitReached { .. })).count();
            assert_eq!(reached, 1);
            let asked: usize = ["work/a", "work/b", "work/c", "work/d"].iter().map(|node| turns(&records, node)).sum();
            assert!(asked <= 3, "{budget} {join}: {asked} turns");
            let shown = bench.spinney(&["show", &bench.newest().0]).code(0);
            assert!(shown.out.contains("failed"), "{}", shown.out);
        }
    }
}

#[test]
fn a_run_that_may_finish_ends_well_with_what_there_is_and_says_so() {
    let bench = many("budget: { turns: 3, on_exceed: finish }", "all");
    let (ended, records) = bench.drive(item).run("many");
    assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{ended:?}");
    assert_eq!(outcome(&records, "work/a")["succeeded"]["output"], "done");
    for node in ["work/b", "work/c", "work/d"] {
        assert_eq!(outcome(&records, node)["skipped"], "run_ending", "{node}");
    }
    let run = bench.newest();
    assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]), "a.txt\n");
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains("in part"));
}

#[test]
fn a_finish_ends_well_where_items_need_each_other() {
    let yaml = MANY.replace("BUDGET", "budget: { turns: 3, on_exceed: finish }").replace("JOIN", "all").replace(
        "items: [\"a\", \"b\", \"c\", \"d\"], as: it,",
        "items: [{ id: a, needs: [] }, { id: b, needs: [a] }, { id: c, needs: [b] }, { id: d, needs: [c] }], as: it, key: \"{{ it.id }}\", needs: \"{{ it.needs }}\",",
    );
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("many", &yaml.replace("{{ it }}", "{{ it.id }}"));
    let (ended, records) = bench.drive(item).run("many");
    assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{ended:?}");
    assert_eq!(outcome(&records, "work/b")["skipped"], "run_ending");
    assert!(outcome(&records, "work/d")["skipped"]["upstream"].is_object(), "{}", outcome(&records, "work/d"));
}

/// A call of `many` with a budget of its own, and an agent behind it that spends too.
fn called(budget: &str, step: &str) -> Bench {
    let outer = "version: 1\nname: outer\nagents: { worker: { system: \"You work.\" } }\nsteps:
  call: { workflow: many, allow_failure: true STEP }
  after: { needs: [call], agent: worker, prompt: \"Go on.\" }
";
    many(budget, "all").workflow("outer", &outer.replace(" STEP", step))
}

fn reached(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record.event, Event::LimitReached { .. })).count()
}

fn asked(records: &[Record]) -> usize {
    let inside = |record: &&Record| matches!(&record.event, Event::ModelReplied { node, .. } if node.to_string().starts_with("call"));
    records.iter().filter(inside).count()
}

fn named(records: &[Record], part: &str) -> Vec<Value> {
    let ends = |record: &Record| match &record.event {
        Event::StepFinished { node, outcome } if node.to_string().contains(part) => Some(json!(outcome)),
        _ => None,
    };
    records.iter().filter_map(ends).collect()
}

#[test]
fn the_budget_of_a_called_workflow_holds_for_the_call_and_for_nothing_else() {
    for (budget, step, limit) in [
        ("budget: { turns: 3 }", "", "turns"),
        ("budget: { usd: 1.2, tokens: 10000000 }", "", "money"),
        ("", ", budget: { turns: 3 }", "turns"),
        ("budget: { turns: 90 }", ", budget: { turns: 3 }", "turns"),
    ] {
        let bench = called(budget, step);
        let (ended, records) = bench.drive(item).run("outer");
        assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{budget}{step}: {ended:?}");
        assert_eq!(outcome(&records, "call")["failed"]["kind"], json!({"limit": limit}), "{budget}{step}");
        let message = outcome(&records, "call")["failed"]["message"].to_string();
        assert!(message.contains("the budget of") && message.contains("`call`"), "{message}");
        assert_eq!((asked(&records), reached(&records)), (3, 0), "{budget}{step}");
        assert!(outcome(&records, "after")["succeeded"].is_object(), "what the run has is not touched");
    }
}

#[test]
fn a_called_workflow_that_may_finish_ends_well_with_what_there_is() {
    for (budget, step) in [("budget: { turns: 3, on_exceed: finish }", ""), ("", ", budget: { turns: 3, on_exceed: finish }")] {
        let bench = called(budget, step);
        let (ended, records) = bench.drive(item).run("outer");
        assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{budget}{step}: {ended:?}");
        assert!(outcome(&records, "call")["succeeded"].is_object(), "{}", outcome(&records, "call"));
        let skipped = named(&records, "work/").iter().filter(|end| end["skipped"]["budget"]["step"] == "call").count();
        assert_eq!((skipped, asked(&records), reached(&records)), (3, 3, 0), "{budget}{step}");
        let branch = format!("spinney/{}", bench.newest());
        assert_eq!(bench.git(&["diff", "--name-only", "main", &branch]), "a.txt\n");
    }
}

#[test]
fn an_agent_whose_budget_may_finish_is_left_out_and_the_run_ends_in_part() {
    let finish = ", budget: { LIMIT, on_exceed: finish }";
    let usage = Usage { input: 9_000, output: 1_000, ..Usage::default() };
    let of_step = |limit: &str| one("", &finish.replace("LIMIT", limit), "");
    let of_agent = |limit: &str| one(&finish.replace("LIMIT", limit), "", "");
    let benches = ["turns: 2", "tokens: 25000", "usd: 0.8"].into_iter().flat_map(|limit| [(limit, of_step(limit)), (limit, of_agent(limit))]);
    for (limit, bench) in benches {
        let (ended, records) = bench.drive(move |sent, call| costing(call, sent, usage, Some(0.4))).run("one");
        assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{limit}: {ended:?}");
        assert_eq!(outcome(&records, "work")["skipped"]["budget"]["step"], "work", "{limit}: {}", outcome(&records, "work"));
        assert_eq!((turns(&records, "work"), reached(&records)), (2, 0), "{limit}");
        let shown = bench.spinney(&["show", &bench.newest().0]).code(0).out;
        assert!(shown.contains("in part") && shown.contains("the budget of work was used up"), "{shown}");
    }
    // A limit around it that stops is none of its own.
    let bench = one(&finish.replace("LIMIT", "turns: 5"), ", budget: { turns: 2 }", "");
    let (_, records) = bench.drive(for_ever).run("one");
    assert_eq!(outcome(&records, "work")["failed"]["kind"]["limit"], "turns", "{}", outcome(&records, "work"));
    // The same of the run's own budget, where one agent has it all.
    let bench = one("", "", "budget: { turns: 2, on_exceed: finish }");
    let (ended, records) = bench.drive(for_ever).run("one");
    assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "{ended:?}");
    assert_eq!((&outcome(&records, "work")["skipped"], reached(&records)), (&"run_ending".into(), 1));
}

#[test]
fn items_left_out_name_the_budget_of_their_step_and_the_run_says_that_it_is_in_part() {
    let step = "    budget: { turns: 3, on_exceed: finish }\n    agent: worker";
    let yaml = MANY.replace("BUDGET", "").replace("JOIN", "all").replace("    agent: worker", step);
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("many", &yaml);
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: Bash, input: { command: \"echo a > $RANDOM.txt\" } }]\n      - say: done\n";
    let (said, records) = bench.run("many", script, &[]);
    let said = said.code(0).out;
    assert!(said.contains("succeeded, in part: a limit was reached") && said.contains("the budget of work was used up"), "{said}");
    for node in ["work/b", "work/c", "work/d"] {
        assert_eq!(outcome(&records, node)["skipped"]["budget"]["step"], "work", "{node}");
    }
    assert!(bench.spinney(&["runs"]).code(0).out.contains("in part"));
}

#[test]
fn all_attempts_count_in_the_table_of_agents() {
    let yaml = "version: 1\nname: tries\nagents: { weak: { system: \"You try.\", max_turns: 2 }, strong: { system: \"You do.\" } }
steps:
  work: { for_each: { items: [a], as: it, on_item_failure: { retry_with: strong } }, agent: weak, prompt: \"Build {{ it }}.\" }
";
    let look = "calls: [{ tool: Bash, input: { command: \"echo LOOK\" } }]";
    let looks = format!("{{ {} }}, {{ {} }}", look.replace("LOOK", "one"), look.replace("LOOK", "two"));
    let script = format!("conversations:\n  - {{ agent: weak, turns: [{looks}] }}\n  - {{ agent: strong, turns: [{{ say: done }}] }}\n");
    let (said, _) = Bench::new().workflow("tries", yaml).run("tries", &script, &[]);
    let out = said.code(0).out;
    let row = |name: &str| -> Vec<String> {
        let line = out.lines().find(|line| line.trim_start().starts_with(name) && line.ends_with('-')).unwrap_or_else(|| panic!("{name}: {out}"));
        line.split_whitespace().rev().take(4).map(str::to_owned).collect()
    };
    assert_eq!(row("work/a"), row("in all"), "{out}");
    assert_eq!(row("work/a")[3], "3", "{out}");
}

/// The work is done by then and paid for.
#[test]
fn an_output_that_cannot_be_made_is_null_and_the_run_has_its_branch() {
    let yaml = "version: 1\nname: blank\nsteps:\n  work: { run: \"echo x > a.txt; echo '{}'\", scope: [\"*.txt\"], output: { parse: json } }\noutputs: { name: \"{{ steps.work.output.name }}\", all: \"{{ steps.work.output }}\" }\n";
    let bench = Bench::new().workflow("blank", yaml);
    let (said, records) = bench.run("blank", "conversations: []", &[]);
    let said = said.code(0);
    assert!(said.out.contains("`name` could not be made: `steps.work.output.name` is not defined"), "{}", said.out);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], serde_json::json!({"name": null, "all": {}}));
    assert_ne!(bench.git(&["branch", "--list", "spinney/*"]), "");
}

const SKIPPED: &str = "version: 1
name: skipped
inputs: { go: { type: boolean, default: false } }
agents: { r: { system: R. } }
schemas: { o: { type: object, required: [ok], properties: { ok: { type: boolean } } } }
steps:
  ask: { if: \"{{ inputs.go }}\", agent: r, prompt: Ask., output: { schema: o } }
  done: { needs: [ask], run: echo done }
  fails: { run: \"echo half; exit 3\", allow_failure: true }
  never: { run: \"true\", cwd: gone, allow_failure: true }
  after: { needs: [never, fails], run: \"echo {{ steps.fails.stdout | sh }}/{{ steps.never.stdout | sh }}/{{ steps.never.status | sh }}\" }
outputs:
  agent: \"{{ steps.ask.output }}\"
  command: \"{{ steps.done.stdout }}\"
  code: \"{{ steps.never.exit_code }}\"
  part: \"{{ steps.ask.output.ok | default(value='none') }}\"
  text: \"said: {{ steps.done.stdout }}.\"
  after: \"{{ steps.after.stdout }}\"
";

/// One rule for agents and commands: what a step has not left is null.
#[test]
fn what_a_step_has_not_left_is_null() {
    let bench = Bench::new().workflow("skipped", SKIPPED);
    let (said, records) = bench.run("skipped", "conversations: []", &[]);
    said.code(0);
    let output = outcome(&records, "run")["succeeded"]["output"].clone();
    let after = "half\n//failed\n";
    assert_eq!(output, serde_json::json!({"agent": null, "command": null, "code": 126, "part": "none", "text": "said: .", "after": after}));
}

const ENDS: &str = "version: 1
name: ends
budget: { turns: 1, on_exceed: finish }
agents: { r: { system: R. } }
steps:
  a: { agent: r, prompt: First. }
  b: { needs: [a], agent: r, prompt: Second. }
  c: { needs: [b], run: echo c }
outputs: { a: \"{{ steps.a.output }}\", b: \"{{ steps.c.stdout }}\" }
";

#[test]
fn a_run_that_ends_in_part_has_the_outputs_that_there_are() {
    let (said, records) = Bench::new().workflow("ends", ENDS).run("ends", "conversations: [{ turns: [{ say: here }] }]", &[]);
    said.code(0);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], serde_json::json!({"a": "here", "b": null}));
}

const ROUNDS: &str = "version: 1\nname: rounds\nagents: { worker: { system: \"You work.\", access: write } }
steps:
  again:
    loop: { until: \"{{ false }}\", max: 9 }
    budget: { turns: 3EXCEED }
    allow_failure: true
    steps:
      work: { agent: worker, prompt: \"Do it.\" }
      gate: { needs: [work], approve: { message: \"Once more?\" } }
";

#[test]
fn the_budget_of_a_loop_holds_over_its_iterations_and_over_processes() {
    for (exceed, word) in [("", "failed"), (", on_exceed: finish", "succeeded")] {
        let bench = Bench::new().workflow("rounds", &ROUNDS.replace("EXCEED", exceed));
        let write = "{ tool: Write, input: { file_path: a.txt, content: x } }";
        let script = format!("conversations: [{{ told: \"Do it\", turns: [{{ calls: [{write}] }}, {{ say: done }}] }}]");
        bench.run("rounds", &script, &[]).0.code(3);
        let run = bench.newest();
        bench.spinney(&["approve", &run.0]).code(0);
        let records = bench.records(&run);
        let replies = records.iter().filter(|record| matches!(record.event, Event::ModelReplied { .. })).count();
        assert_eq!(replies, 3, "two in the first process, one in the second");
        let ended = outcome(&records, "again");
        assert!(ended[word].is_object(), "{ended}");
        assert_eq!(reached(&records), 0);
    }
}

#[test]
fn the_budget_of_a_step_with_items_holds_over_all_of_them() {
    let yaml = MANY.replace("BUDGET", "").replace("JOIN", "all").replace("    agent: worker", "    budget: { turns: 3 }\n    agent: worker");
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("many", &yaml);
    let (ended, records) = bench.drive(item).run("many");
    assert!(matches!(&ended, Ended::Finished(Outcome::Failed(_))), "{ended:?}");
    assert_eq!(outcome(&records, "work/b")["failed"]["kind"], json!({"limit": "turns"}));
    let asked: usize = ["work/a", "work/b", "work/c", "work/d"].iter().map(|node| turns(&records, node)).sum();
    assert_eq!(asked, 3);
}

#[test]
fn a_finish_exits_with_0_and_a_stop_with_1() {
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: Bash, input: { command: \"echo a > $RANDOM.txt\" } }]\n      - say: done\n";
    for (exceed, code, words) in [("stop", 1, "failed"), ("finish", 0, "in part: a limit was reached")] {
        let bench = many(&format!("budget: {{ turns: 3, on_exceed: {exceed} }}"), "all");
        let (said, records) = bench.run("many", script, &[]);
        let said = said.code(code);
        assert!(said.out.contains(words), "{}", said.out);
        assert!(said.out.contains("the run's limit of turns is reached"), "{}", said.out);
        assert!(!outcome(&records, "run")[if code == 0 { "succeeded" } else { "failed" }].is_null());
    }
}

#[test]
fn the_runs_time_ends_it_in_the_middle_of_a_command() {
    let workflow = "version: 1\nname: slow\nbudget: { time: 1s }\nsteps:\n  wait: { run: \"tail -f /dev/null\" }\n  next: { needs: [wait], run: \"true\" }\n";
    let bench = Bench::new().workflow("slow", workflow);
    let (said, records) = bench.run("slow", "conversations: []", &[]);
    said.code(1);
    assert_eq!(outcome(&records, "run")["failed"]["kind"], json!({"limit": "time"}), "{}", outcome(&records, "run"));
}

fn stops(stop: &str, text: &str, call: bool) -> (Bench, Vec<Record>, usize) {
    let bench = one(", max_turns: 20", "", "");
    let (stop, text) = (stop.to_owned(), text.to_owned());
    let drive = bench.drive(move |_, asked| {
        let calls: &[(&str, Value)] = if call { &[("Bash", json!({"command": "echo x >> ran.txt"}))] } else { &[] };
        let reason = match stop.as_str() {
            "max_tokens" => StopReason::MaxTokens,
            "refusal" => StopReason::Refusal { category: "cyber".to_owned() },
            "window" => StopReason::WindowExceeded,
            "pause" => StopReason::PauseTurn,
            other => StopReason::Unknown(other.to_owned()),
        };
        Line::Whole(Box::new(Reply { stop: reason, ..reply_to(asked, &text, calls) }))
    });
    let (_, records) = drive.run("one");
    let asked = drive.sent().len();
    (bench, records, asked)
}

#[test]
fn a_reply_that_is_cut_again_and_again_fails_as_truncated() {
    let (_, records, asked) = stops("max_tokens", "and then", false);
    assert_eq!(outcome(&records, "work")["failed"]["kind"], "truncated");
    assert_eq!(asked, 4);
}

#[test]
fn a_call_that_was_cut_is_never_run() {
    let bench = one("", "", "");
    let drive = bench.drive(|sent, call| match sent.turn() {
        0 => {
            let calls = [("Bash", json!({"command": "echo whole > whole.txt"})), ("Bash", json!({"command": "echo cut > cut.txt"}))];
            Line::Whole(Box::new(Reply { stop: StopReason::MaxTokens, ..reply_to(call, "", &calls) }))
        }
        _ => Line::say("done"),
    });
    let (_, records) = drive.run("one");
    let all = results(&records, "work");
    assert!(!all[0].1 && all[1].1 && all[1].2.contains("was cut"), "{all:?}");
    let run = bench.newest();
    assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]), "whole.txt\n");
}

#[test]
fn refusals_and_unknown_reasons_end_each_as_what_they_are_and_run_nothing_more() {
    for (stop, kind) in [("refusal", "refused"), ("moon", "unknown_stop")] {
        let (bench, records, asked) = stops(stop, "hm", false);
        assert_eq!(outcome(&records, "work")["failed"]["kind"], kind);
        assert_eq!(asked, 1);
        let shown = bench.spinney(&["show", &bench.newest().0]).code(0);
        assert!(shown.out.contains(if stop == "moon" { "moon" } else { "declined (cyber)" }), "{}", shown.out);
    }
}

#[test]
fn a_refusal_or_unknown_reason_beside_a_call_is_no_success() {
    for (stop, kind) in [("refusal", "refused"), ("moon", "unknown_stop")] {
        let (_, records, asked) = stops(stop, "hm", true);
        assert_eq!(outcome(&records, "work")["failed"]["kind"], kind, "{asked} requests");
        assert!(results(&records, "work").iter().all(|(_, is_error, _)| *is_error), "{stop}: {:?}", results(&records, "work"));
    }
}

#[test]
fn a_window_that_stays_full_fails_as_exhausted() {
    let (_, records, _) = stops("window", "and then", false);
    assert_eq!(outcome(&records, "work")["failed"]["kind"], "context_exhausted");
}

#[test]
fn a_pause_is_continued_and_one_for_ever_ends_at_the_turns() {
    let (_, records, asked) = stops("pause", "searching", false);
    assert_eq!(outcome(&records, "work")["failed"]["kind"], json!({"limit": "turns"}));
    assert_eq!(asked, 20);
    let bench = one("", "", "");
    let drive = bench.drive(|sent, call| {
        let stop = if sent.messages.len() == 1 { StopReason::PauseTurn } else { StopReason::EndTurn };
        Line::Whole(Box::new(Reply { stop, ..reply_to(call, "found it", &[]) }))
    });
    let (_, records) = drive.run("one");
    assert_eq!(drive.sent().len(), 2);
    assert_eq!(drive.sent()[1].messages.len(), 2, "what was paused is sent back and nothing is said to it");
    assert!(outcome(&records, "work")["succeeded"].is_object());
}

#[test]
fn nothing_said_again_and_again_is_no_success() {
    let bench = one("", "", "");
    let drive = bench.drive(|_, call| Line::Whole(Box::new(reply_to(call, " ", &[]))));
    let (_, records) = drive.run("one");
    assert_eq!(outcome(&records, "work")["failed"]["kind"], "truncated");
    assert_eq!(drive.sent().len(), 2);
}
