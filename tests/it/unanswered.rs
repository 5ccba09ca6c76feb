//! Where a model gives no answer: another model, another time, a shorter request; through the program, over real connections.
use crate::{
    fixture::{Bench, Said as Told, outcome},
    invariants,
    server::{Answer, Asked, Delivery, Hosted, Said},
};
use serde_json::json;
use spinney::event::{Event, Record};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

const ITEMS: &str = "version: 1\nname: w\nagents: { reader: { system: \"You read.\", model: MODEL } }\nsteps:\n  each: { for_each: { items: [a, b, c, d, e, f, g, h], as: it, max_parallel: 2 }, agent: reader, prompt: \"{{ it }}\" }\n  said: { run: \"echo hello\" }\n";
const ONE: &str = "version: 1\nname: w\nmodels: { strong: { use: [anthropic/claude-opus-5-5, openai/other] } }\nagents: { reader: { system: \"You read.\", model: strong } }\nsteps:\n  read: { agent: reader, prompt: \"go\" }\n";

fn bench(server: &Hosted, workflow: &str) -> Bench {
    Bench::new()
        .env("ANTHROPIC_BASE_URL", &server.anthropic_url())
        .env("ANTHROPIC_API_KEY", "sk-1")
        .env("OPENAI_BASE_URL", &server.openai_url())
        .env("OPENAI_API_KEY", "sk-2")
        .workflow("w", &workflow.replace("MODEL", "anthropic/claude-opus-5-5"))
}

fn server(respond: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Hosted {
    Hosted::start(move |asked| (respond(asked), Delivery::default()))
}

fn checked(bench: &Bench) -> Vec<Record> {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    records
}

fn resume(bench: &Bench) -> Told {
    bench.spinney(&["resume", &bench.newest().0])
}

fn read(turn: usize) -> Answer {
    Answer::Say(Said::call(&format!("c{turn}"), "Read", json!({"file_path": "README.md"})))
}

#[test]
fn a_spend_limit_or_a_long_wait_parks_the_run_and_resume_finishes_it() {
    let spent = || {
        Answer::Status(
            429,
            Vec::new(),
            r#"{"error":{"type":"rate_limit_error","message":"spent","details":{"error_code":"enforced_spend_limit_reached"}}}"#.to_owned(),
        )
    };
    for (answer, word) in [(spent(), "spent"), (Answer::wait(429, "rate_limit_error", "7200"), "it asks to wait 7200 s")] {
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = is_open.clone();
        // Both that run at once have had one turn each when it comes.
        let server = server(move |asked| match (opened.load(Ordering::SeqCst), asked.turn()) {
            (_, 0) => read(0),
            (true, _) => Answer::Say(Said::text("done")),
            (false, _) => answer.clone(),
        });
        let bench = bench(&server, ITEMS);
        let said = bench.spinney(&["run", "w"]).code(3);
        for words in ["is parked, and nothing is lost", word, "spinney resume w-"] {
            assert!(said.out.contains(words), "{words}: {}", said.out);
        }
        let asked = server.asked().len();
        assert!(asked <= 4, "who shares the limit is not let to ask: {asked}");
        let records = checked(&bench);
        assert!(outcome(&records, "each/a").is_null() && outcome(&records, "each").is_null(), "nothing has failed");
        assert_eq!(outcome(&records, "said")["succeeded"]["output"]["exit_code"], 0, "what asks no model goes on");
        let begun = records.iter().filter(|record| matches!(&record.event, Event::StepStarted { node, .. } if node.item.is_some())).count();
        assert_eq!(begun, 2, "no other agent is begun");
        let shown = bench.spinney(&["show", &bench.newest().0]).code(0).out;
        assert!(shown.contains("parked") && shown.contains("waits for its model") && shown.contains(word), "{shown}");
        // As long as it is so, it is parked again.
        resume(&bench).code(3);
        is_open.store(true, Ordering::SeqCst);
        resume(&bench).code(0);
        let records = checked(&bench);
        let each = &outcome(&records, "each")["succeeded"]["output"];
        assert_eq!((each["results"].as_array().map(Vec::len), &each["failed"]), (Some(8), &json!(0)));
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

#[test]
fn another_name_of_a_provider_is_no_other_provider_where_money_is_at_its_end() {
    let spent = || Answer::Status(402, Vec::new(), r#"{"error":{"code":402,"message":"no money","status":"RESOURCE_EXHAUSTED"}}"#.to_owned());
    for (model, step) in [
        ("{ use: [gemini/gemini-3.7-flash, google/gemini-3.6-pro] }", "model: strong"),
        ("{ use: [google/gemini-3.7-flash, gemini/gemini-3.6-pro] }", "model: strong"),
        ("{ use: [gemini/gemini-3.7-flash] }", "matrix: { m: [google/gemini-3.7-flash] }, model: \"{{ matrix.m }}\""),
    ] {
        let gemini = server(move |_| spent());
        let workflow = format!(
            "version: 1\nname: w\nmodels: {{ strong: {model} }}\nagents: {{ reader: {{ system: \"You read.\", model: gemini/gemini-3.7-flash }} }}\nsteps:\n  read: {{ agent: reader, prompt: \"go\", {step} }}\n"
        );
        let bench = bench(&gemini, &workflow).env("GEMINI_BASE_URL", &gemini.openai_url()).env("GEMINI_API_KEY", "sk-3");
        bench.spinney(&["run", "w"]).code(3);
        assert_eq!(gemini.asked().len(), 1, "{model}");
        let records = serde_json::to_string(&checked(&bench)).unwrap();
        assert!(records.contains("\"models\":[\"gemini/gemini-3.7-flash\"") && !records.contains("\"models\":[\"google/"), "{model}");
    }
}

/// An answer that says itself that the same request makes no sense now, so that nobody waits for another.
fn down() -> Answer {
    Answer::Status(503, vec![("x-should-retry", "false".to_owned())], r#"{"error":{"type":"overloaded_error","message":"we are down"}}"#.to_owned())
}

#[test]
fn a_provider_that_is_down_parks_the_run_where_no_other_is_left_and_resume_finishes_it() {
    let missing = || Answer::error(404, "not_found_error");
    for (second, words) in [(down(), "openai/other: HTTP 503"), (missing(), "openai/other: HTTP 404")] {
        let is_up = Arc::new(AtomicBool::new(false));
        let came_up = is_up.clone();
        let server = server(move |asked| match (came_up.load(Ordering::SeqCst), asked.path.ends_with("/messages")) {
            (true, true) => Answer::Say(Said::text("done")),
            (false, true) => down(),
            (_, false) => second.clone(),
        });
        let bench = bench(&server, ONE);
        let said = bench.spinney(&["run", "w"]).code(3);
        for words in ["is parked, and nothing is lost", "claude-opus-5-5: HTTP 503", "we are down", words, "spinney resume w-"] {
            assert!(said.out.contains(words), "{words}: {}", said.out);
        }
        assert!(outcome(&checked(&bench), "read").is_null(), "nothing has failed");
        resume(&bench).code(3);
        is_up.store(true, Ordering::SeqCst);
        resume(&bench).code(0);
        assert_eq!(outcome(&checked(&bench), "read")["succeeded"]["output"], "done", "the first one is asked again");
    }
}

#[test]
fn a_step_with_its_own_retry_fails_by_it() {
    let workflow = ONE.replace("[anthropic/claude-opus-5-5, openai/other]", "anthropic/claude-opus-5-5");
    let server = server(|_| down());
    let bench = bench(&server, &workflow.replace("prompt: \"go\"", "prompt: \"go\", retry: { max: 1, on: [transient], delay: 1ms }"));
    bench.spinney(&["run", "w"]).code(1);
    assert_eq!((server.asked().len(), &outcome(&checked(&bench), "read")["failed"]["kind"]), (2, &json!("unavailable")));
}

/// Runs one agent whose first model answers like this at its first turn.
fn falls_back(first: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Bench, Vec<Record>, Hosted) {
    let server = server(move |asked| match (asked.path.ends_with("/messages"), asked.turn()) {
        (true, _) => first(asked),
        (false, 0) => read(0),
        (false, _) => Answer::Say(Said::text("from the other")),
    });
    let bench = bench(&server, ONE);
    bench.spinney(&["run", "w"]).code(0);
    let records = checked(&bench);
    (bench, records, server)
}

#[test]
fn another_model_is_asked_where_the_first_declines_or_cannot_be_had() {
    let refusal = || Answer::Say(Said { stop: Some("refusal".to_owned()), text: "No.".to_owned(), ..Said::default() });
    let answers =
        [refusal(), Answer::error(404, "not_found_error"), Answer::wait(429, "rate_limit_error", "7200"), Answer::error(401, "authentication_error"), down()];
    for answer in answers {
        let (bench, records, server) = falls_back(move |_| answer.clone());
        let fell: Vec<(&str, &str)> = records
            .iter()
            .filter_map(|record| if let Event::FellBack { from, to, .. } = &record.event { Some((from.as_str(), to.as_str())) } else { None })
            .collect();
        assert_eq!(fell, [("anthropic/claude-opus-5-5", "openai/other")]);
        assert_eq!(server.asked().iter().filter(|asked| asked.path.ends_with("/messages")).count(), 1, "the first one is asked once");
        assert!(server.asked().iter().skip(1).all(|asked| !String::from_utf8_lossy(&asked.body).contains("No.")), "nothing of it is handed on");
        let shown = bench.spinney(&["show", &bench.newest().0, "read"]).code(0).out;
        assert!(shown.contains("openai/other, since anthropic/claude-opus-5-5 gave no answer"), "{shown}");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

#[test]
fn once_a_model_has_answered_no_other_takes_over() {
    let server = server(|asked| match asked.turn() {
        0 => Answer::Say(Said { thinking: Some("hm".to_owned()), ..Said::call("c0", "Read", json!({"file_path": "README.md"})) }),
        _ => Answer::Say(Said { stop: Some("refusal".to_owned()), ..Said::default() }),
    });
    let bench = bench(&server, ONE);
    bench.spinney(&["run", "w"]).code(1);
    let records = checked(&bench);
    let failed = &outcome(&records, "read")["failed"];
    assert_eq!((&failed["kind"], failed["hint"].as_str().unwrap().contains("where none has replied yet")), (&json!("refused"), true), "{failed}");
    assert!(server.asked().iter().all(|asked| asked.path.ends_with("/messages")));
}

#[test]
fn the_failures_of_all_models_are_told_together() {
    let server =
        server(|asked| if asked.path.ends_with("/messages") { Answer::error(404, "not_found_error") } else { Answer::error(401, "authentication_error") });
    let bench = bench(&server, ONE);
    bench.spinney(&["run", "w"]).code(1);
    let outcome = outcome(&checked(&bench), "read");
    let message = outcome["failed"]["message"].as_str().unwrap();
    assert!(message.contains("claude-opus-5-5: HTTP 404") && message.contains("openai/other: HTTP 401"), "{message}");
}

#[test]
fn what_does_not_fit_is_shortened_once_and_asked_again() {
    let too_long = r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#;
    // Thinking that is bound to what went away is left out; that of a model which does not bind it stays.
    for (name, thinks) in [("claude-opus-5-5", false), ("claude-opus-5", true)] {
        shortened(name, thinks, too_long);
    }
}

fn shortened(name: &str, thinks: bool, too_long: &'static str) {
    let server = server(move |asked| {
        let whole = String::from_utf8_lossy(&asked.body).into_owned();
        let is_shortened = whole.contains("was shortened to make room");
        match asked.turn() {
            turn @ 0..12 if !is_shortened => Answer::Say(Said {
                thinking: Some("I wonder about it".to_owned()),
                prompt: Some(whole.len() as u64 / 3),
                ..Said::call(&format!("c{turn}"), "Read", json!({"file_path": format!("{turn}.txt")}))
            }),
            turn if is_shortened => Answer::Say(Said::text(&format!("kept: {}, thinking: {}", turn > 0, whole.contains("I wonder about it")))),
            _ => Answer::Status(400, Vec::new(), too_long.to_owned()),
        }
    });
    let mut bench = bench(&server, &ONE.replace("claude-opus-5-5", name));
    for n in 0..12 {
        bench = bench.file(&format!("{n}.txt"), &"a line\n".repeat(900));
    }
    let bench = bench.commit("files");
    bench.spinney(&["run", "w"]).code(0);
    let records = checked(&bench);
    assert_eq!(records.iter().filter(|record| matches!(record.event, Event::Compacted { .. })).count(), 1);
    assert_eq!(outcome(&records, "read")["succeeded"]["output"], format!("kept: true, thinking: {thinks}"), "{name}");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn a_reply_that_fills_the_window_is_gone_on_with_once_earlier_parts_are_dropped() {
    let server = server(|asked| {
        let is_shortened = String::from_utf8_lossy(&asked.body).contains("was shortened to make room");
        match asked.turn() {
            _ if is_shortened => Answer::Say(Said::text("done")),
            turn @ 0..6 => Answer::Say(Said { prompt: Some(9_000), ..Said::call(&format!("c{turn}"), "Read", json!({"file_path": format!("{turn}.txt")})) }),
            _ => Answer::Say(Said { stop: Some("model_context_window_exceeded".to_owned()), prompt: Some(9_000), ..Said::text("half a") }),
        }
    });
    let mut bench = bench(&server, ONE);
    for n in 0..6 {
        bench = bench.file(&format!("{n}.txt"), &format!("{n} {}\n", "long ".repeat(1_000)));
    }
    let bench = bench.commit("files");
    bench.spinney(&["run", "w"]).code(0);
    let records = checked(&bench);
    assert_eq!(records.iter().filter(|record| matches!(record.event, Event::Compacted { .. })).count(), 1);
    assert_eq!(outcome(&records, "read")["succeeded"]["output"], "half adone", "both parts are the answer");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn a_call_that_fills_the_window_is_answered_and_made_again_with_more_room() {
    let server = server(|asked| {
        let read = |n: usize| Said::call(&format!("c{n}"), "Read", json!({"file_path": format!("{n}.txt")}));
        let full = Some("model_context_window_exceeded".to_owned());
        Answer::Say(match (asked.turn(), String::from_utf8_lossy(&asked.body).contains("was shortened to make room")) {
            (turn @ 0..5, false) => Said { prompt: Some(9_000), ..read(turn) },
            (_, false) => Said { stop: full, prompt: Some(9_000), text: "Now".to_owned(), ..read(5) },
            (_, true) => Said::text("done"),
        })
    });
    let mut bench = bench(&server, ONE);
    for n in 0..6 {
        bench = bench.file(&format!("{n}.txt"), &format!("{n} {}\n", "long ".repeat(1_000)));
    }
    let bench = bench.commit("files");
    bench.spinney(&["run", "w"]).code(0);
    let records = checked(&bench);
    assert_eq!(records.iter().filter(|record| matches!(record.event, Event::Compacted { .. })).count(), 1);
    let started = records.iter().filter(|record| matches!(record.event, Event::ToolStarted { .. } | Event::ToolFinished { .. })).count();
    let run = records.iter().filter(|record| matches!(&record.event, Event::ToolFinished { result, .. } if !result.is_error)).count();
    assert!(run == 5 && started >= 6, "the one that was cut is not run: {run} of {started}");
    assert_eq!(server.asked().len(), 7, "there is room at the first request after it");
    assert_eq!(outcome(&records, "read")["succeeded"]["output"], "done");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn thinking_that_is_taken_for_anothers_is_left_out_and_all_that_was_said_stays() {
    let unbound = r#"{"error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation"}}"#;
    for turns in [1, 6] {
        let server = server(move |asked| {
            let whole = String::from_utf8_lossy(&asked.body).into_owned();
            match asked.turn() {
                turn if turn < turns => Answer::Say(Said {
                    thinking: Some("I wonder about it".to_owned()),
                    ..Said::call(&format!("c{turn}"), "Read", json!({"file_path": "README.md", "offset": turn + 1}))
                }),
                _ if whole.contains("I wonder about it") => Answer::Status(400, Vec::new(), unbound.to_owned()),
                _ => Answer::Say(Said::text("done")),
            }
        });
        let bench = bench(&server, ONE);
        let told = bench.spinney(&["run", "w"]).code(0).out;
        assert!(told.contains("goes on without what was thought") && !told.contains("shortened"), "{told}");
        let told = bench.spinney(&["show", &bench.newest().0, "read"]).code(0).out;
        assert!(told.contains("without what was thought, which the provider did not take back") && !told.contains("shortened"), "{told}");
        let records = checked(&bench);
        let shortened: Vec<&str> =
            records.iter().filter_map(|record| if let Event::Compacted { strategy, .. } = &record.event { Some(strategy.as_str()) } else { None }).collect();
        assert_eq!(shortened, ["without thinking"]);
        let asked = server.asked();
        assert_eq!(asked.len(), turns + 2);
        assert_eq!(asked[turns + 1].dialogue().len(), asked[turns].dialogue().len(), "nothing else is left out");
        assert_eq!(server.problems(), Vec::<String>::new());
    }
}

#[test]
fn another_model_is_told_nothing_of_replies_that_it_did_not_give() {
    let server = server(|asked| {
        let is_first = asked.path.ends_with("/messages");
        Answer::Say(match (is_first, asked.dialogue().len(), asked.json.to_string().contains("held no answer")) {
            (true | false, 1, false) => Said::default(),
            (true, ..) => Said { stop: Some("refusal".to_owned()), ..Said::default() },
            (false, ..) => Said::text("from the other"),
        })
    });
    let bench = bench(&server, ONE);
    bench.spinney(&["run", "w"]).code(0);
    checked(&bench);
    let asked: Vec<(bool, usize)> =
        server.asked().iter().map(|asked| (asked.path.ends_with("/messages"), asked.json.to_string().matches("held no answer").count())).collect();
    assert_eq!(asked, [(true, 0), (true, 1), (false, 0), (false, 1)], "each is told of its own");
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[test]
fn where_money_is_at_its_end_no_other_model_of_the_account_is_asked() {
    let same = ONE.replace("use: [anthropic/claude-opus-5-5, openai/other]", "use: [anthropic/claude-opus-5-5, anthropic/claude-sonnet-5-5, LAST]");
    let respond = |asked: &Asked| {
        if asked.path.ends_with("/messages") {
            Answer::Status(429, Vec::new(), r#"{"error":{"type":"insufficient_quota","message":"spent"}}"#.to_owned())
        } else {
            Answer::Say(Said::text("from the other"))
        }
    };
    let server = self::server(respond);
    let bench = self::bench(&server, &same.replace("LAST", "openai/other"));
    bench.spinney(&["run", "w"]).code(0);
    let fell: Vec<String> =
        checked(&bench).iter().filter_map(|record| if let Event::FellBack { to, .. } = &record.event { Some(to.clone()) } else { None }).collect();
    assert_eq!((fell, server.asked().len()), (vec!["openai/other".to_owned()], 2));
    let server = self::server(respond);
    let bench = self::bench(&server, &same.replace(", LAST", ""));
    let said = bench.spinney(&["run", "w"]).code(3);
    assert!(said.out.contains("insufficient_quota: spent") && !said.out.contains("spent; "), "it is said once: {}", said.out);
    assert_eq!(server.asked().len(), 1);
    checked(&bench);
}

#[test]
fn a_fallback_of_the_same_provider_is_asked_at_once() {
    let same = ONE.replace("openai/other", "anthropic/claude-sonnet-5-5");
    let server =
        server(|asked| if asked.json["model"] == "claude-opus-5-5" { Answer::wait(429, "rate_limit_error", "7200") } else { Answer::Say(Said::text("done")) });
    let bench = bench(&server, &same);
    bench.spinney(&["run", "w"]).code(0);
    checked(&bench);
    assert_eq!(server.asked().len(), 2);
}

/// An error as a provider writes it that has nothing to do with waiting.
fn told(status: u16, body: &str) -> Answer {
    Answer::Status(status, Vec::new(), body.to_owned())
}

/// Has OpenAI asked in its own protocol, where that is wanted.
fn responses(bench: Bench, is_wanted: bool) -> Bench {
    if is_wanted {
        std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
        std::fs::write(bench.path("config/spinney/config.yaml"), "providers: { openai: { protocol: openai_responses } }\n").unwrap();
    }
    bench
}

/// Runs one agent that reads nine times and is then told this once; returns what follows in the journal, by name, and the last request.
fn told_once(model: &str, answer: Answer) -> (Vec<String>, Asked) {
    const TURNS: usize = 9;
    let is_told = AtomicBool::new(false);
    let server = server(move |asked| match asked.turn() {
        _ if is_told.load(Ordering::SeqCst) => Answer::Say(Said::text("done")),
        turn if turn < TURNS => {
            let thinking = Some("hm".to_owned());
            // As a real one counts: by a part of what was counted little is dropped.
            let prompt = Some(asked.body.len() as u64 / 3);
            Answer::Say(Said {
                thinking,
                prompt,
                ..Said::call(&format!("c{turn}"), "Read", json!({"file_path": "long.txt", "offset": turn * 100 + 1, "limit": 100}))
            })
        }
        _ => {
            is_told.store(true, Ordering::SeqCst);
            answer.clone()
        }
    });
    let page: String = (0..1_000).map(|line| format!("line {line} of a page that somebody has to read from beginning to end\n")).collect();
    let bench = responses(
        bench(&server, "version: 1\nname: w\nagents: { reader: { system: \"You read.\" } }\nsteps:\n  read: { agent: reader, prompt: \"go\" }\n"),
        model == "openai/gpt-6-sol",
    )
    .env("GEMINI_BASE_URL", &server.openai_url())
    .env("GEMINI_API_KEY", "sk-3")
    .file("long.txt", &page)
    .commit("a page");
    bench.spinney(&["run", "w", "--model", model]).code(0);
    let records = checked(&bench);
    assert_eq!(outcome(&records, "read")["succeeded"]["output"], "done", "{model}");
    assert_eq!(server.problems(), Vec::<String>::new(), "{model}");
    let compacted = |record: &Record| if let Event::Compacted { strategy, .. } = &record.event { Some(strategy.clone()) } else { None };
    (records.iter().filter_map(compacted).collect(), server.asked().pop().unwrap())
}

#[test]
fn a_conversation_that_a_provider_says_is_too_long_is_shortened_and_goes_on() {
    for (model, status, body) in [
        (
            "anthropic/claude-opus-5-5",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 227255 tokens > 200000 maximum"}}"#,
        ),
        // It leaves no room worth asking for.
        (
            "anthropic/claude-opus-5-5",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and try again"}}"#,
        ),
        ("anthropic/claude-opus-5-5", 400, r#"{"message":"Input is too long for requested model."}"#),
        (
            "gemini/gemini-3.7-flash",
            400,
            r#"{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
        ),
        (
            "openai/gpt-6-sol",
            400,
            r#"{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model. Please adjust your input and try again.","param":"input"}}"#,
        ),
        (
            "openai/other",
            400,
            r#"{"object":"error","message":"This model's maximum context length is 16384 tokens. However, you requested 16946 tokens (16346 in the messages, 600 in the completion).","type":"BadRequestError","code":400}"#,
        ),
        (
            "openai/other",
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
        ),
        ("openai/other", 400, r#"{"error":"prompt too long; exceeded max context length by 540451 tokens (ref: 00ad71bb)"}"#),
        (
            "openai/other",
            400,
            r#"{"error":{"message":"litellm.BadRequestError: litellm.ContextWindowExceededError: told so","type":null,"param":null,"code":"400"}}"#,
        ),
    ] {
        let (how, _) = told_once(model, told(status, body));
        assert_eq!(how, ["ledger"], "{model}: {body}");
    }
}

#[test]
fn thinking_that_a_provider_does_not_take_back_is_left_out_with_what_signs_it() {
    for (model, body, signed) in [
        (
            "anthropic/claude-opus-5-5",
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation"}}"#,
            "\"signature\"",
        ),
        (
            "openai/gpt-6-sol",
            r#"{"error":{"message":"The encrypted content gAAA...DQ== could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#,
            "encrypted_content\":",
        ),
        ("gemini/gemini-3.7-flash", r#"{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}"#, "bound-"),
    ] {
        let (how, last) = told_once(model, told(400, body));
        assert_eq!(how, ["without thinking"], "{model}");
        let last = String::from_utf8(last.body).unwrap();
        assert!(!last.contains(signed) && last.matches("line 100 of").count() == 1, "{model}: all that was said and done stays: {last}");
    }
}

#[test]
fn a_spend_limit_at_400_or_403_parks_the_run_and_no_other_model_of_the_provider_is_asked() {
    let workflow = ONE.replace("openai/other]", "anthropic/claude-haiku-5-5]");
    for answer in [
        told(
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}"#,
        ),
        told(403, r#"{"error":{"message":"Key limit exceeded (monthly limit). Manage it using https://openrouter.ai/settings/keys","code":403}}"#),
    ] {
        let server = server(move |_| answer.clone());
        let bench = bench(&server, &workflow);
        let said = bench.spinney(&["run", "w"]).code(3);
        assert!(said.out.contains("is parked, and nothing is lost"), "{}", said.out);
        assert_eq!(server.asked().len(), 1, "who shares the key is not let to ask");
    }
}

#[test]
fn what_a_stream_says_is_wrong_with_the_request_is_not_asked_again() {
    let failed =
        r#"{"type":"response.failed","response":{"id":"r","object":"response","status":"failed","output":[],"error":{"code":"CODE","message":"told so"}}}"#;
    for code in ["invalid_prompt", "invalid_base64_image", "image_too_large"] {
        let stream = format!("event: response.failed\ndata: {}\n\n", failed.replace("CODE", code));
        let server = server(move |_| Answer::Stream(stream.clone().into_bytes()));
        let bench = responses(bench(&server, &ONE.replace("[anthropic/claude-opus-5-5, openai/other]", "openai/gpt-6-sol")), true);
        bench.spinney(&["run", "w"]).code(1);
        let outcome = outcome(&checked(&bench), "read");
        assert!(outcome["failed"]["kind"] == "model" && outcome["failed"]["message"].as_str().unwrap().contains(code), "{outcome}");
        assert_eq!(server.asked().len(), 1, "{code}");
    }
}

/// Returns the caps on the reply that were asked for.
fn caps(server: &Hosted) -> Vec<u64> {
    server.asked().iter().map(|asked| asked.json["max_tokens"].as_u64().unwrap()).collect()
}

#[test]
fn no_longer_reply_is_asked_for_than_the_prompt_leaves_room_for() {
    let server = server(|asked| match asked.turn() {
        0 => Answer::Say(Said { prompt: Some(140_000), ..Said::call("c0", "Read", json!({"file_path": "README.md"})) }),
        _ => Answer::Say(Said::text("done")),
    });
    let bench = bench(&server, &ONE.replace("claude-opus-5-5", "claude-haiku-4-5"));
    bench.spinney(&["run", "w"]).code(0);
    let caps = caps(&server);
    assert_eq!(caps[0], 64_000, "all that the model makes");
    assert!(caps[1] > 50_000 && 140_000 + caps[1] < 195_000, "{caps:?}");
}

#[test]
fn a_reply_that_does_not_fit_beside_the_prompt_is_asked_for_once_more_as_short_as_the_provider_says() {
    for (room, second) in [("174000 + 64000 > 200000", 26_000), ("178959 + 64000 > 200000", 21_041)] {
        let server = server(move |asked| {
            if asked.json["max_tokens"] == 64_000 {
                let message = format!("input length and `max_tokens` exceed context limit: {room}, decrease input length or `max_tokens` and try again");
                return told(400, &json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).to_string());
            }
            Answer::Say(Said::text("done"))
        });
        let bench = bench(&server, &ONE.replace("claude-opus-5-5", "claude-haiku-4-5"));
        bench.spinney(&["run", "w"]).code(0);
        assert_eq!(caps(&server), [64_000, second]);
        let messages: Vec<String> = server.asked().iter().map(|asked| asked.json["messages"].to_string()).collect();
        assert_eq!(messages[0], messages[1], "nothing is dropped for it");
        assert!(!checked(&bench).iter().any(|record| matches!(record.event, Event::Compacted { .. })));
    }
}
