//! Money and tokens over real connections: budgets that many agents share, attempts that gave no reply, prices.
use crate::{
    fixture::{Bench, outcome},
    invariants,
    server::{Answer, Asked, Delivery, Hosted, Said},
};
use serde_json::{Value, json};
use spinney::event::{Event, Record};
use std::fs;

/// Requests that are in flight at the same time at least.
const TOGETHER: usize = 4;
const MODEL: &str = "anthropic/claude-opus-5-5";
const ONE: &str = "version: 1\nname: one\nagents: { reader: { system: \"You read.\", model: anthropic/claude-opus-5-5 } }\nsteps:\n  work: { agent: reader, prompt: \"Do it.\" }\n";

/// A bench whose one provider is the server, and whose models cost what is said.
fn bench(server: &Hosted, prices: &str) -> Bench {
    let bench = Bench::new().env("ANTHROPIC_BASE_URL", &server.anthropic_url()).env("ANTHROPIC_API_KEY", "sk-1");
    fs::create_dir_all(bench.path("config/spinney")).unwrap();
    fs::write(bench.path("config/spinney/config.yaml"), prices).unwrap();
    bench
}

fn checked(bench: &Bench) -> Vec<Record> {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    records
}

/// Returns the dollars and tokens of all replies.
fn used(records: &[Record]) -> (f64, u64) {
    let of = |record: &Record| if let Event::ModelReplied { reply, .. } = &record.event { Some((reply.usd.unwrap(), reply.usage.total())) } else { None };
    records.iter().filter_map(of).fold((0.0, 0), |sum, (usd, tokens)| (sum.0 + usd, sum.1 + tokens))
}

fn fifty(budget: &str) -> String {
    let items = (0..50).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "version: 1\nname: fifty\nbudget: {{ {budget} }}\ndefaults: {{ max_parallel: 50 }}\nagents: {{ reader: {{ system: \"You read.\", model: {MODEL} }} }}\nsteps:\n  each: {{ for_each: {{ items: [{items}], as: it, max_parallel: 50, join: all_done }}, agent: reader, prompt: \"Look at {{{{ it }}}}.\" }}\n"
    )
}

/// Reads for ever, another file each time; each prompt is said to have so many tokens. The first ones are answered together.
fn reads(asked: &Asked, prompt: u64) -> (Answer, Delivery) {
    let call = Said::call(&format!("c{}", asked.turn()), "Read", json!({"file_path": format!("{}.txt", asked.turn())}));
    (Answer::Say(Said { prompt: Some(prompt), ..call }), Delivery { meet: if asked.number < TOGETHER { TOGETHER } else { 0 }, ..Delivery::default() })
}

#[test]
fn fifty_agents_pass_a_budget_by_no_more_than_what_was_in_flight() {
    // Every token costs the same. What is expected of a reply is a thousand tokens at least, of which it takes 57.
    let flat = "prices: { anthropic/claude-opus-5-5: { input: 10, output: 10 } }\n";
    // As much as is expected at most; and far more than is expected of a first request.
    for (prompt, is_expected) in [(2_500, true), (20_000, false)] {
        let each = (prompt + 57, f64::from(u32::try_from(prompt + 57).unwrap()) * 1e-5);
        for (budget, most_usd, most_tokens, limit) in [
            (format!("usd: {:.2}, tokens: 1000000000", each.1 * 80.0), each.1 * 80.0, u64::MAX, "money"),
            (format!("tokens: {}, usd: 1000000", each.0 * 80), f64::MAX, each.0 * 80, "tokens"),
        ] {
            let server = Hosted::start(move |asked| reads(asked, prompt));
            let bench = bench(&server, flat).workflow("fifty", &fifty(&budget));
            bench.spinney(&["run", "fifty"]).code(1);
            let records = checked(&bench);
            assert_eq!(outcome(&records, "run")["failed"]["kind"], json!({"limit": limit}), "{budget}");
            let (usd, tokens) = used(&records);
            let in_flight = if is_expected { 0 } else { 50 };
            let over_usd = each.1 * f64::from(u32::try_from(in_flight).unwrap());
            assert!(usd <= most_usd + over_usd + 0.01, "${usd} of ${most_usd} with {in_flight} in flight");
            assert!(tokens <= most_tokens.saturating_add(in_flight * each.0), "{tokens} of {most_tokens} with {in_flight} in flight");
            // What is set aside is near what is used: the budget is of use almost to its end.
            assert!(server.asked().len() >= 75, "{budget}: {} requests", server.asked().len());
            assert_eq!((server.most_at_once() >= TOGETHER, server.problems()), (true, Vec::new()));
        }
    }
}

#[test]
fn a_small_budget_is_of_use_with_a_model_whose_replies_may_be_long() {
    // At $20 for a million tokens a reply of the model's whole 128,000 tokens would cost $2.56.
    let server = Hosted::start(|asked| match asked.turn() {
        turn @ 0..3 => (
            Answer::Say(Said { prompt: Some(2_500), ..Said::call(&format!("c{turn}"), "Read", json!({"file_path": format!("{turn}.txt")})) }),
            Delivery::default(),
        ),
        _ => (Answer::Say(Said::text("done")), Delivery::default()),
    });
    let bench = bench(&server, "").workflow("one", &ONE.replace("prompt:", "budget: { usd: 0.10 }, prompt:"));
    bench.spinney(&["run", "one"]).code(0);
    assert_eq!(server.asked().len(), 4);
    assert!(used(&checked(&bench)).0 < 0.10);
}

/// A call that a cap has cut is asked for again beyond the cap: that is a request of its own, for which there must be room.
#[test]
fn the_second_request_for_a_cut_call_is_held_to_the_budget_too() {
    let flat = "prices: { anthropic/claude-opus-5-5: { input: 10, output: 10 } }\n";
    let models = "models: { short: { use: anthropic/claude-opus-5-5, max_output_tokens: 100 } }\nagents:";
    for (budget, requests, end) in [("0.03", 1, "failed"), ("5", 2, "succeeded")] {
        let server = Hosted::start(|asked| {
            let is_capped = asked.json["max_tokens"] == 100;
            let read = Said { prompt: Some(2_500), ..Said::call("c", "Read", json!({"file_path": "README.md"})) };
            (Answer::Say(if is_capped { Said { stop: Some("max_tokens".to_owned()), ..read } } else { Said::text("done") }), Delivery::default())
        });
        let one = ONE.replace("agents:", models).replace("model: anthropic/claude-opus-5-5 }", "model: short }");
        let bench = bench(&server, flat).workflow("one", &one.replace("prompt:", &format!("budget: {{ usd: {budget} }}, prompt:")));
        bench.spinney(&["run", "one"]);
        let records = checked(&bench);
        assert_eq!((server.asked().len(), outcome(&records, "work")[end].is_null()), (requests, false), "{budget}");
        assert_eq!(lost(&records).len(), 1, "what was cut is paid for");
    }
}

fn shown(bench: &Bench) -> String {
    bench.spinney(&["show", &bench.newest().0]).code(0).out
}

/// Returns what attempts have used that gave no reply: tokens, and hundred-thousandths of a dollar.
fn lost(records: &[Record]) -> Vec<(u64, Option<f64>)> {
    let of = |record: &Record| match &record.event {
        Event::AttemptsLost { usage, usd, .. } => Some((usage.total(), usd.map(|usd| (usd * 1e5).round()))),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

#[test]
fn what_a_broken_stream_has_used_is_paid_for() {
    let whole = Said::text("a text that comes in pieces").anthropic(&asked());
    let middle = whole.len() / 2;
    let flat = "prices: { anthropic/claude-opus-5-5: { input: 10, output: 10 } }\n";
    let server = Hosted::start(move |asked| {
        let cut = Delivery { cut_at: Some(middle), ..Delivery::default() };
        (Answer::Say(Said::text("a text that comes in pieces")), if asked.number < 2 { cut } else { Delivery::default() })
    });
    let bench = bench(&server, flat).workflow("one", ONE);
    bench.spinney(&["run", "one"]).code(0);
    let records = checked(&bench);
    // Twice what the stream began with: 12 new tokens, 2048 read from the cache, 3 written to it, one said.
    assert_eq!(lost(&records), [(2 * 2_064, Some(2.0 * 2_064.0))]);
    let (usd, tokens) = used(&records);
    assert_eq!(tokens, 2_063 + 57);
    let told = shown(&bench);
    assert!(told.contains(&format!("${:.2}", usd + 0.04128)), "{told}");
    assert!(bench.spinney(&["show", &bench.newest().0, "work"]).code(0).out.contains("paid for without a reply: 4128 tokens, $0.04"));
}

#[test]
fn what_broken_streams_have_used_counts_where_no_reply_ever_comes() {
    let flat = "prices: { anthropic/claude-opus-5-5: { input: 1000, output: 1000 } }\n";
    let server = Hosted::start(|asked| match asked.turn() {
        0 if asked.number < 2 => (Answer::Say(Said::text("a text that comes in pieces")), Delivery { cut_at: Some(900), ..Delivery::default() }),
        _ => (Answer::error(401, "authentication_error"), Delivery::default()),
    });
    let bench = bench(&server, flat).workflow("one", ONE);
    bench.spinney(&["run", "one"]).code(1);
    let records = checked(&bench);
    assert_eq!(lost(&records), [(2 * 2_064, Some(2.0 * 206_400.0))]);
    assert!(shown(&bench).contains("$4.1280"), "{}", shown(&bench));
}

#[test]
fn what_a_stream_has_used_that_was_given_up_is_paid_for() {
    let server = Hosted::start(|_| (Answer::Say(Said::text("a text that comes in pieces")), Delivery { stall_at: Some(900), ..Delivery::default() }));
    let bench = bench(&server, "").workflow("one", &ONE.replace("prompt:", "timeout: 2s, prompt:"));
    bench.spinney(&["run", "one"]).code(1);
    let records = checked(&bench);
    assert_eq!(outcome(&records, "work")["failed"]["kind"], "timeout");
    let [(2_064, Some(usd))] = lost(&records)[..] else { panic!("{:?}", lost(&records)) };
    assert!(usd > 0.0);
}

#[test]
fn a_price_that_is_not_known_is_never_shown_as_zero() {
    let server = Hosted::start(|_| (Answer::Say(Said::text("done")), Delivery::default()));
    let yaml = ONE.replace("claude-opus-5-5", "claude-nobody-9");
    let unknown = bench(&server, "").workflow("one", &yaml);
    let said = unknown.spinney(&["run", "one"]).code(0);
    let told = shown(&unknown);
    let of_step = unknown.spinney(&["show", &unknown.newest().0, "work"]).code(0).out;
    let plan = unknown.spinney(&["plan", "one"]).code(0).out;
    for (where_, text) in [("run", &said.out), ("show", &told), ("show step", &of_step), ("plan", &plan)] {
        assert!((text.contains("unknown") || text.contains('?')) && !text.contains("$0"), "{where_}: {text}");
    }
    let planned: Value = serde_json::from_str(&unknown.spinney(&["plan", "one", "--json"]).code(0).out).unwrap();
    assert_eq!((&planned["steps"][0]["at_most"]["usd"], &planned["steps"][0]["at_most"]["unpriced"]), (&Value::Null, &json!(true)));
    for record in checked(&unknown) {
        let Event::ModelReplied { reply, .. } = &record.event else { continue };
        assert!(!serde_json::to_string(reply).unwrap().contains("usd"));
    }
    // A budget in dollars holds nothing that has no price: it is refused before anything is asked.
    let refused = bench(&server, "").workflow("one", &yaml.replace("name: one", "name: one\nbudget: { usd: 1 }"));
    assert!(refused.spinney(&["run", "one"]).code(2).err.contains("claude-nobody-9"));
    // What the user says of it makes it known, cached tokens and long prompts included: 3 + 12 new, 2048 cached, 57 out.
    let prices = "prices: { anthropic/claude-nobody-9: { input: 1, output: 1000, cache_read: 100, cache_write: 2, above: { tokens: 2062, input: 10, output: 2000, cache_read: 200, cache_write: 2 } } }\n";
    let known = bench(&server, prices).workflow("one", &yaml.replace("name: one", "name: one\nbudget: { usd: 5 }"));
    known.spinney(&["run", "one"]).code(0);
    let wanted = (12.0 * 10.0 + 3.0 * 2.0 + 2_048.0 * 200.0 + 57.0 * 2_000.0) / 1e6;
    assert!((used(&checked(&known)).0 - wanted).abs() < 1e-9, "{} and not {wanted}", used(&checked(&known)).0);
    assert!(shown(&known).contains("$0.52"), "{}", shown(&known));
}

/// A request to write streams for.
fn asked() -> Asked {
    Asked { number: 0, path: "/v1/messages".to_owned(), headers: std::collections::BTreeMap::new(), body: Vec::new(), json: json!({}), problems: Vec::new() }
}

#[test]
fn what_code_costs_that_ran_at_the_provider_is_never_taken_for_nothing() {
    let event = |data: Value| format!("data: {data}\n\n");
    let server = Hosted::start(move |_| {
        let blocks = [
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "ls"}}),
            json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}}),
            json!({"type": "text", "text": "done"}),
        ];
        let mut stream = String::new();
        for (index, block) in blocks.iter().enumerate() {
            stream += &event(json!({"type": "content_block_start", "index": index, "content_block": block}));
            stream += &event(json!({"type": "content_block_stop", "index": index}));
        }
        stream += &event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 11_990, "output_tokens": 10}}));
        stream += &event(json!({"type": "message_stop"}));
        (Answer::Stream(stream.into_bytes()), Delivery::default())
    });
    let runs = ONE.replace("system: \"You read.\"", "system: \"You read.\", provider_tools: [code_execution]");
    let bench = bench(&server, "prices: { anthropic/claude-opus-5-5: { input: 10, output: 10 } }\n").workflow("one", &runs);
    let said = bench.spinney(&["run", "one"]).code(0);
    let records = checked(&bench);
    assert!(
        records.iter().any(
            |record| matches!(&record.event, Event::ModelReplied { reply, .. } if reply.usd_is_part && reply.usd.is_some_and(|usd| (usd - 0.12).abs() < 1e-9))
        ),
        "{records:#?}"
    );
    assert!(shown(&bench).contains(">$0.12"), "{}", shown(&bench));
    let of_step = bench.spinney(&["show", &bench.newest().0, "work"]).code(0).out;
    for text in [&of_step, &said.out] {
        assert!(text.contains(">$0.12") || text.contains("more than $0.12"), "{text}");
    }
    let plan = bench.spinney(&["plan", "one"]).code(0).out;
    assert!(plan.contains("and what has no price"), "{plan}");
    let without = bench.workflow(
        "one",
        &ONE.replace("system: \"You read.\"", "system: \"You read.\", provider_tools: [code_execution], permissions: { deny: [code_execution] }"),
    );
    assert!(!without.spinney(&["plan", "one"]).code(0).out.contains("no price"), "what is not declared costs nothing");
}
