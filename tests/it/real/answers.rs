//! How replies end, and answers that must fit a schema, over every protocol.
use super::{
    drive::{Drive, carry_on},
    mind::{Wire, bench, call, done, heard},
};
use crate::{
    fixture::{Bench, outcome},
    invariants,
    server::{Answer, Asked, Delivery, Hosted, Said},
};
use serde_json::{Value, json};
use spinney::event::{Event, Record};

const WIRES: [(Wire, &str); 4] = [
    (Wire::Messages, "anthropic/claude-sonnet-5-5"),
    (Wire::Responses, "openai/gpt-6-sol"),
    (Wire::Chat, "openai/any"),
    (Wire::Gemini, "gemini/gemini-3.7-flash"),
];

const ONE: &str = "version: 1\nname: one\nagents:\n  reader: { system: \"You read.\" }\nsteps:\n  work: { agent: reader, prompt: \"Do it.\" }\n";

const COUNTED: &str = r#"
version: 1
name: one
agents:
  reader: { system: "You read." }
schemas:
  count: { type: object, properties: { n: { type: integer, minimum: 1 } }, required: [n] }
steps:
  work: { agent: reader, prompt: "Count.", output: { schema: count } }
"#;

fn run(bench: &Bench, model: &str, code: u8) -> Vec<Record> {
    bench.spinney(&["run", "one", "--model", model]).code(code);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    records
}

#[test]
fn every_end_of_a_reply_has_its_own_status_on_every_provider() {
    let said = |stop: &str, text: &str| Said { stop: Some(stop.to_owned()), ..Said::text(text) };
    // What is said, again and again; how often it is asked; the status.
    let ends = [
        (said("end_turn", "done"), 1, "succeeded"),
        (said("max_tokens", "half a"), 4, "truncated"),
        (said("end_turn", ""), 2, "truncated"),
        (said("refusal", "no"), 1, "refused"),
        (said("novelty", "what"), 1, "unknown_stop"),
    ];
    let on_messages = [(said("stop_sequence", "done"), 1, "succeeded"), (said("model_context_window_exceeded", "half a"), 1, "context_exhausted")];
    for (wire, model) in WIRES {
        let own = on_messages.iter().filter(|_| wire == Wire::Messages);
        for (reply, times, status) in ends.iter().chain(own) {
            let says = reply.clone();
            let server = Hosted::start(move |_| (Answer::Say(says.clone()), Delivery::default()));
            let bench = bench(wire, &server).workflow("one", ONE);
            let records = run(&bench, model, u8::from(*status != "succeeded"));
            let outcome = outcome(&records, "work");
            let found = outcome["failed"]["kind"].as_str().map_or_else(|| outcome.as_object().unwrap().keys().next().unwrap().clone(), str::to_owned);
            assert_eq!((found.as_str(), server.asked().len()), (*status, *times), "{wire:?} {:?} {outcome}", reply.stop);
            assert_eq!(server.problems(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_call_that_was_cut_is_answered_and_never_run() {
    for (wire, model) in WIRES {
        let server = Hosted::start(|asked| match asked.turn() {
            0 => (Answer::Say(Said { stop: Some("max_tokens".to_owned()), ..call(asked, "Read", json!({"file_path": "README.md"})) }), Delivery::default()),
            _ => (Answer::Say(done(&heard(asked).last)), Delivery::default()),
        });
        let bench = bench(wire, &server).workflow("one", ONE);
        let records = run(&bench, model, 0);
        assert!(!records.iter().any(|record| matches!(record.event, Event::ToolStarted { .. })), "{wire:?}");
        assert!(outcome(&records, "work")["succeeded"]["output"].as_str().unwrap().contains("was cut at the output limit"), "{wire:?}");
    }
}

/// Returns the cap on the reply that a request has.
fn cap(asked: &Asked) -> Option<u64> {
    let of = |name: &str| asked.json.get(name).or(asked.json["generationConfig"].get(name)).and_then(Value::as_u64);
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"].into_iter().find_map(of)
}

/// Returns a model of which it is known how long its replies may be.
fn listed(wire: Wire, model: &'static str) -> &'static str {
    if wire == Wire::Chat { "openai/gpt-6-sol" } else { model }
}

/// A workflow whose model may say little at once; what it made of its task is its output.
fn short(model: &str) -> String {
    let models = format!("models: {{ short: {{ use: {model}, max_output_tokens: 100 }} }}\n");
    format!(
        "{}outputs: {{ said: \"{{{{ steps.work.output }}}}\" }}\n",
        ONE.replace("agents:", &format!("{models}agents:")).replace("\"You read.\"", "\"You read.\", model: short")
    )
}

#[test]
fn a_call_that_the_cap_cut_is_asked_for_again_whole_with_as_long_a_reply_as_the_model_makes() {
    for (wire, model) in WIRES.map(|(wire, model)| (wire, listed(wire, model))) {
        let server = Hosted::start(|asked| {
            let stop = cap(asked).filter(|cap| *cap == 100).map(|_| "max_tokens".to_owned());
            let said = if asked.turn() == 0 { Said { stop, ..call(asked, "Read", json!({"file_path": "README.md"})) } } else { done("read") };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(wire, &server).workflow("one", &short(model));
        let records = run(&bench, model, 0);
        let caps: Vec<u64> = server.asked().iter().filter_map(cap).collect();
        assert!(caps.len() == 3 && caps[1] > 8_000 && [caps[0], caps[2]] == [100, 100], "{wire:?}: {caps:?}");
        let bodies: Vec<usize> = server.asked().iter().map(|asked| asked.dialogue().len()).collect();
        assert_eq!(bodies[0], bodies[1], "{wire:?}: what was cut is not a part of the conversation");
        let finished: Vec<bool> =
            records.iter().filter_map(|record| if let Event::ToolFinished { result, .. } = &record.event { Some(result.is_error) } else { None }).collect();
        assert_eq!(finished, [false], "{wire:?}: it is run once, whole");
        assert!(records.iter().any(|record| matches!(record.event, Event::AttemptsLost { .. })), "{wire:?}: what was cut is paid for");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

/// How long the replies of a model may be that nobody lists is a guess, which its server may refuse.
#[test]
fn the_cap_stays_where_nobody_says_how_long_the_replies_of_a_model_may_be() {
    let model = "anthropic/nobody-6";
    let server = Hosted::start(|asked| {
        let stop = (asked.turn() == 0).then(|| "max_tokens".to_owned());
        let said = if asked.turn() == 0 { Said { stop, ..call(asked, "Read", json!({"file_path": "README.md"})) } } else { done("read") };
        (Answer::Say(said), Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("one", &short(model));
    let records = run(&bench, model, 0);
    assert_eq!(server.asked().iter().filter_map(cap).collect::<Vec<u64>>(), [100, 100]);
    assert!(!records.iter().any(|record| matches!(record.event, Event::ToolStarted { .. })));
}

#[test]
fn a_reply_that_was_cut_and_went_on_is_one_text_and_its_rest_may_be_as_long_as_the_model_makes_it() {
    for (wire, model) in WIRES.map(|(wire, model)| (wire, listed(wire, model))) {
        let server = Hosted::start(|asked| {
            let said = match asked.turn() {
                0 => Said { stop: Some("max_tokens".to_owned()), ..done("It is in the mid") },
                _ => done("dle of a word."),
            };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(wire, &server).workflow("one", &short(model));
        let records = run(&bench, model, 0);
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], "It is in the middle of a word.", "{wire:?}");
        let caps: Vec<u64> = server.asked().iter().filter_map(cap).collect();
        assert!(caps.len() == 2 && caps[0] == 100 && caps[1] > 8_000, "{wire:?}: {caps:?}");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

/// Of an answer that was cut comes the rest, or, from a server that makes it by a format, the whole anew.
#[test]
fn an_answer_in_parts_is_held_to_its_schema_whole() {
    for rest in ["7}", "{\"n\": 17}"] {
        let server = Hosted::start(move |asked| {
            let said = match asked.turn() {
                0 => Said { stop: Some("max_tokens".to_owned()), ..done("{\"n\": 1") },
                _ => done(rest),
            };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(Wire::Messages, &server).workflow("one", COUNTED);
        let records = run(&bench, "anthropic/claude-sonnet-5-5", 0);
        assert_eq!((&outcome(&records, "work")["succeeded"]["output"], server.asked().len()), (&json!({"n": 17}), 2), "{rest}");
    }
}

/// Cut in the middle of a word, then paused, then done; killed after any of its records.
#[test]
fn a_reply_in_parts_is_the_same_one_when_the_program_dies_between_them() {
    let server = Hosted::start(|asked| {
        let paused = |text: &str| Said { stop: Some("pause_turn".to_owned()), ..Said::text(text) };
        let said = match asked.json["messages"].as_array().unwrap().as_slice() {
            [_] => Said { stop: Some("max_tokens".to_owned()), ..Said::text("One wo") },
            [_, _, _] => paused("rd."),
            _ => Said::text("Another."),
        };
        (Answer::Say(said), Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("one", &short("anthropic/claude-opus-5-5"));
    let drive = Drive::new(&bench, "one");
    let mut sent: Vec<String> = Vec::new();
    for records in 1_usize.. {
        let before = server.asked().len();
        carry_on(drive.start(json!({})), records);
        let is_over = bench.records(&bench.newest()).iter().any(|record| matches!(record.event, Event::RunFinished { .. }));
        if !is_over {
            carry_on(drive.resume(&bench.newest()), usize::MAX).unwrap();
        }
        let all = bench.records(&bench.newest());
        invariants::check(&all, &bench.repo());
        assert_eq!(outcome(&all, "work")["succeeded"]["output"], "One word.\n\nAnother.", "killed after record {records}");
        let asked = server.asked().split_off(before);
        let last = asked.last().unwrap();
        let messages = last.json["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["role"], "assistant", "what was paused is gone on with, and nothing is said to it");
        // The first message says where the worktree of the run is; nothing is thought, which would be bound to that.
        sent.push(format!("{:?} {:?}", cap(last), &messages[1..]));
        if is_over {
            break;
        }
    }
    sent.dedup();
    assert_eq!(sent.len(), 1, "the last request is the same, whenever it died");
    assert_eq!(server.problems(), Vec::<String>::new());
}

/// A word that waits is said only once a paused reply is whole: nothing may stand between its parts.
#[test]
fn a_word_for_an_agent_waits_for_the_rest_of_a_paused_reply() {
    let server = Hosted::start(|asked| {
        let last = asked.json["messages"].as_array().unwrap().last().unwrap().to_string();
        let stop = (!last.contains("be kind") && last.contains("\"user\"")).then(|| "pause_turn".to_owned());
        (Answer::Say(Said { stop, ..Said::text("Part.") }), Delivery::default())
    });
    let bench = bench(Wire::Messages, &server).workflow("one", &short("anthropic/claude-opus-5-5"));
    let drive = Drive::new(&bench, "one");
    let is_paused = |bench: &Bench| bench.records(&bench.newest()).iter().any(|record| matches!(record.event, Event::ModelReplied { .. }));
    for records in 1_usize.. {
        carry_on(drive.start(json!({})), records);
        if is_paused(&bench) {
            break;
        }
    }
    let run = bench.newest();
    let before = server.asked().len();
    bench.spinney(&["tell", &run.0, "work", "be kind", "--no-resume"]).code(0);
    carry_on(drive.resume(&run), usize::MAX).unwrap();
    let roles: Vec<String> =
        server.asked()[before..].iter().map(|asked| asked.json["messages"].as_array().unwrap().last().unwrap()["role"].to_string()).collect();
    assert_eq!(roles, ["\"assistant\"", "\"user\""]);
    assert_eq!(server.problems(), Vec::<String>::new());
}

/// Who declines in the middle of a reply that was paused is followed by another one, who begins where he began.
#[test]
fn another_model_begins_anew_where_a_paused_reply_is_declined() {
    let server = Hosted::start(|asked| {
        let stop = match (asked.json["model"].as_str(), asked.turn()) {
            (Some("claude-haiku-4-5"), _) => None,
            (_, 0) => Some("pause_turn"),
            _ => Some("refusal"),
        };
        (Answer::Say(Said { stop: stop.map(str::to_owned), ..Said::text("Part.") }), Delivery::default())
    });
    let flow = ONE.replace("agents:", "models: { two: { use: [anthropic/claude-opus-5-5, anthropic/claude-haiku-4-5] } }\nagents:");
    let bench = bench(Wire::Messages, &server).workflow("one", &flow.replace("\"You read.\"", "\"You read.\", model: two"));
    bench.spinney(&["run", "one"]).code(0);
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    assert_eq!((&outcome(&records, "work")["succeeded"]["output"], server.asked().len()), (&json!("Part."), 3));
    assert_eq!(server.problems(), Vec::<String>::new());
}

/// Returns whether a request declares the tool that takes an answer, and whether it has a format for it.
fn held_by(asked: &Asked) -> (bool, bool) {
    let body = String::from_utf8_lossy(&asked.body);
    (body.contains(r#""name":"StructuredOutput""#), ["\"format\":{", "\"response_format\":{", "responseJsonSchema"].iter().any(|word| body.contains(word)))
}

#[test]
fn an_answer_is_held_to_its_schema_by_the_providers_format_or_else_by_a_tool() {
    let without = [(Wire::Chat, "openai/any"), (Wire::Gemini, "gemini/gemini-2.5-pro"), (Wire::Messages, "anthropic/claude-opus-4-1")];
    let with = WIRES.into_iter().filter(|(wire, _)| *wire != Wire::Chat);
    for (wire, model, has_format) in with.map(|(wire, model)| (wire, model, true)).chain(without.map(|(wire, model)| (wire, model, false))) {
        let server = Hosted::start(|asked| {
            let say = |asked: &Asked, answer: Value| if held_by(asked).0 { call(asked, "StructuredOutput", answer) } else { done(&answer.to_string()) };
            let said = match (asked.turn(), heard(asked).last.contains("does not fit its schema")) {
                (0, _) => say(asked, json!({"n": "many"})),
                (1, true) => say(asked, json!({"n": 0})),
                (_, true) => say(asked, json!({"n": 7})),
                (_, false) => done("nobody said what was wrong"),
            };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(wire, &server).workflow("one", COUNTED);
        let records = run(&bench, model, 0);
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], json!({"n": 7}), "{model}");
        assert_eq!(server.problems(), Vec::<String>::new());
        assert_eq!(server.asked().iter().map(held_by).collect::<Vec<_>>(), [(!has_format, has_format); 3], "{model}: nothing is asked after the answer");
        let forced: Vec<bool> = server.asked().iter().map(|asked| asked.json.get("tool_choice").or(asked.json.get("toolConfig")).is_some()).collect();
        // Only the tool can be forced, only where the model takes that, and not before it gave an answer that did not fit.
        let takes_force = !has_format && model != "openai/any";
        assert_eq!(forced, [false, takes_force, takes_force], "{model}");
    }
}

#[test]
fn an_answer_that_never_fits_is_asked_for_three_more_times() {
    for (wire, model) in WIRES {
        let server = Hosted::start(|asked| {
            let said = if held_by(asked).0 { call(asked, "StructuredOutput", json!({"n": 0})) } else { done("{\"n\": 0}") };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(wire, &server).workflow("one", COUNTED);
        let records = run(&bench, model, 1);
        assert_eq!(outcome(&records, "work")["failed"]["kind"], "schema", "{model}");
        assert_eq!(server.asked().len(), 4, "{model}");
    }
}

const SEARCHING: &str = r#"
version: 1
name: one
agents:
  reader: { system: "You search.", provider_tools: [web_search, code_execution], permissions: { RULES } }
steps:
  work: { agent: reader, prompt: "Find it." }
"#;

fn searching(rules: &str) -> String {
    SEARCHING.replace("RULES", rules)
}

const SEARCH: &str = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query": "q"}}"#;
const FOUND: &str = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https:\/\/example.com","encrypted_content":"RW4\/=="}],"n":1.10}"#;

/// The events of one block, with a piece of its input where it comes in pieces.
fn block(index: u32, block: &str, piece: Option<&str>) -> String {
    let start = format!("data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{block}}}\n\n");
    let delta = piece.map(|piece| {
        let delta = json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}});
        format!("data: {delta}\n\n")
    });
    format!("{start}{}data: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n", delta.unwrap_or_default())
}

/// A reply that the provider paused, after a search of its own.
fn paused() -> Answer {
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn","container":{"id":"container_1","expires_at":"2026-12-30T00:00:00Z"}},"usage":{"input_tokens":10,"output_tokens":9,"server_tool_use":{"web_search_requests":1}}}"#;
    let stream = format!("{}{}data: {end}\n\ndata: {{\"type\":\"message_stop\"}}\n\n", block(0, SEARCH, None), block(1, FOUND, None));
    Answer::Stream(stream.into_bytes())
}

#[test]
fn a_provider_tool_is_declared_its_blocks_kept_its_pause_continued_and_its_cost_counted() {
    let server = Hosted::start(|asked| (if asked.turn() == 0 { paused() } else { Answer::Say(done("It is there.")) }, Delivery::default()));
    let bench = bench(Wire::Messages, &server).workflow("one", &searching(""));
    let records = run(&bench, "anthropic/claude-sonnet-5-5", 0);
    assert_eq!(server.problems(), Vec::<String>::new());
    let bodies: Vec<String> = server.asked().iter().map(|asked| String::from_utf8(asked.body.clone()).unwrap()).collect();
    assert!(bodies[0].contains(r#""tools":[{"type":"code_execution_20250825","name":"code_execution"},{"type":"web_search_20250305","name":"web_search"},"#));
    assert!(
        bodies[1].ends_with(&format!(r#"{{"role":"assistant","content":[{SEARCH},{FOUND}]}}],"max_tokens":128000,"container":"container_1"}}"#)),
        "as it came, and no word after it: {}",
        bodies[1]
    );
    assert!(!bodies[0].contains("container_1"));
    let costs: Vec<f64> = records.iter().filter_map(|record| if let Event::ModelReplied { reply, .. } = &record.event { reply.usd } else { None }).collect();
    // 10 tokens in, 9 out, and one search at a cent.
    assert!((costs[0] - 0.010_11).abs() < 1e-9, "{costs:?}");
}

/// Where a reply is cut while it asks a tool at the provider, nothing ran there: it is gone on with as after a text that was cut.
#[test]
fn a_reply_that_was_cut_in_a_call_of_the_providers_tool_goes_on() {
    let asks = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{}}"#;
    for piece in [r#"{"code": "import pandas\nfor i in ra"#, r#"{"code": "1"}"#, ""] {
        let first = format!(
            "{}{}data: {}\n\ndata: {{\"type\":\"message_stop\"}}\n\n",
            block(0, r#"{"type":"text","text":"It is in the mid"}"#, None),
            block(1, asks, Some(piece)),
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":10,"output_tokens":9}}"#
        );
        let server = Hosted::start(move |asked| {
            let answer = if asked.turn() == 0 { Answer::Stream(first.clone().into_bytes()) } else { Answer::Say(done("dle.")) };
            (answer, Delivery::default())
        });
        let bench = bench(Wire::Messages, &server).workflow("one", &searching(""));
        let records = run(&bench, "anthropic/claude-sonnet-5-5", 0);
        assert_eq!((server.asked().len(), server.problems()), (2, Vec::<String>::new()), "{piece}");
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], "It is in the middle.", "{piece}");
        assert_eq!(server.asked()[1].json["messages"][1]["content"], json!([{"type": "text", "text": "It is in the mid"}]), "{piece}");
    }
}

/// A model that only says what it is about has said something, but given no answer.
#[test]
fn what_a_model_says_on_its_way_alone_is_no_answer_and_not_nothing() {
    let server = Hosted::start(|asked| {
        let item = json!({"id": format!("msg_{}", asked.number), "type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I think aloud."}]});
        let events = [
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 9, "output_tokens": 3}}}),
        ];
        (Answer::Stream(events.map(|event| format!("data: {event}\n\n")).concat().into_bytes()), Delivery::default())
    });
    let bench = bench(Wire::Responses, &server).workflow("one", ONE);
    let records = run(&bench, "openai/gpt-6-sol", 1);
    let told = outcome(&records, "work")["failed"]["message"].as_str().unwrap().to_owned();
    assert_eq!((server.asked().len(), told.as_str()), (2, "the model gave no answer, and again when it was asked to go on"));
    let second = String::from_utf8(server.asked()[1].body.clone()).unwrap();
    assert!(second.contains("I think aloud.") && second.contains("Your reply held no answer."), "{second}");
    assert_eq!(server.problems(), Vec::<String>::new());
}

/// What a model stumbles over is asked for three times, each of them paid, and then fails: waiting does not mend it.
#[test]
fn a_reply_whose_form_is_broken_is_asked_for_a_few_times() {
    let stop = |word: &str| Said { stop: Some(word.to_owned()), ..done("I call") };
    for (stumbles, requests, end) in [(2, 3, "succeeded"), (9, 3, "failed")] {
        let server = Hosted::start(move |asked| {
            let said = if asked.number < stumbles { stop("MALFORMED_FUNCTION_CALL") } else { done("Done.") };
            (Answer::Say(said), Delivery::default())
        });
        let bench = bench(Wire::Gemini, &server).workflow("one", ONE);
        let records = run(&bench, "gemini/gemini-3.7-flash", u8::from(end == "failed"));
        assert_eq!((server.asked().len(), outcome(&records, "work")[end].is_null()), (requests, false), "{stumbles}");
        let lost: u64 = records.iter().map(|record| if let Event::AttemptsLost { usage, .. } = &record.event { usage.total() } else { 0 }).sum();
        assert_eq!(lost, 25 * stumbles.min(3) as u64, "what came of none is paid for");
    }
}

#[test]
fn a_provider_tool_that_a_rule_is_about_is_not_declared() {
    let declared = |rules: &str| {
        let server = Hosted::start(|_| (Answer::Say(done("Done.")), Delivery::default()));
        let bench = bench(Wire::Messages, &server).workflow("one", &searching(rules));
        run(&bench, "anthropic/claude-sonnet-5-5", 0);
        let body = String::from_utf8(server.asked()[0].body.clone()).unwrap();
        ["web_search", "code_execution"].map(|tool| body.contains(&format!(r#""name":"{tool}""#)))
    };
    assert_eq!(declared(""), [true, true]);
    assert_eq!(declared("deny: [WebSearch]"), [false, true]);
    assert_eq!(declared("ask: [web_search], deny: [code_execution]"), [false, false]);
    assert_eq!(declared("deny: [\"Web*\"]"), [false, true]);
    let bench = Bench::new().workflow("one", &searching("deny: [WebSearch]"));
    let said = bench.spinney(&["validate", "one"]).code(0);
    assert!((said.out + &said.err).contains("runs at the provider"), "it is said beforehand");
}

#[test]
fn provider_tools_are_declared_in_each_protocols_words_or_refused() {
    for (wire, model, words) in [
        (Wire::Responses, "openai/gpt-6-sol", r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"web_search"},"#),
        (Wire::Gemini, "gemini/gemini-3.7-flash", r#""tools":[{"codeExecution":{}},{"googleSearch":{}},{"functionDeclarations":"#),
    ] {
        let server = Hosted::start(|_| (Answer::Say(done("Done.")), Delivery::default()));
        let bench = bench(wire, &server).workflow("one", &searching(""));
        run(&bench, model, 0);
        let asked = server.asked();
        assert!(String::from_utf8_lossy(&asked[0].body).contains(words), "{}", asked[0].json);
        let include = r#""include":["reasoning.encrypted_content","code_interpreter_call.outputs"],"#;
        assert_eq!(String::from_utf8_lossy(&asked[0].body).contains(include), wire == Wire::Responses, "{}", asked[0].json);
        assert_eq!(server.problems(), Vec::<String>::new());
    }
    let server = Hosted::start(|_| (Answer::Say(done("Done.")), Delivery::default()));
    let bench = bench(Wire::Chat, &server).workflow("one", &searching(""));
    let said = bench.spinney(&["run", "one", "--model", "openai/any"]).code(2);
    assert!(said.err.contains("E086") && said.err.contains("has no `web_search`") && server.asked().is_empty(), "{}", said.err);
}

#[test]
fn a_schema_that_the_provider_refuses_goes_by_the_tool() {
    let refused = r#"{"error":{"type":"invalid_request_error","message":"output_config.format.schema: the compiled grammar is too large"}}"#;
    for (wire, model) in WIRES.into_iter().filter(|(wire, _)| *wire != Wire::Chat) {
        let server = Hosted::start(move |asked| {
            let answer = match (held_by(asked), asked.turn()) {
                ((_, true), _) => Answer::Status(400, Vec::new(), refused.to_owned()),
                (_, 0) => Answer::Say(call(asked, "Read", json!({"file_path": "README.md"}))),
                (_, _) => Answer::Say(call(asked, "StructuredOutput", json!({"n": 7}))),
            };
            (answer, Delivery::default())
        });
        let bench = bench(wire, &server).workflow("one", COUNTED);
        let records = run(&bench, model, 0);
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], json!({"n": 7}), "{model}");
        assert_eq!(server.asked().iter().map(held_by).collect::<Vec<_>>(), [(false, true), (true, false), (true, false)], "{model}: it is refused once");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

#[test]
fn an_answer_that_is_no_object_is_asked_for_as_text_and_checked_here() {
    let yaml = COUNTED.replace(
        "count: { type: object, properties: { n: { type: integer, minimum: 1 } }, required: [n] }",
        "count: { type: array, items: { type: integer } }",
    );
    for (wire, model) in WIRES {
        let server = Hosted::start(|_| (Answer::Say(done("[1, 2]")), Delivery::default()));
        let bench = bench(wire, &server).workflow("one", &yaml);
        let records = run(&bench, model, 0);
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], json!([1, 2]), "{model}");
        assert_eq!(server.asked().iter().map(held_by).collect::<Vec<_>>(), [(false, false)], "{model}");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}
