//! Whole calls against the test server: conversations, faults, retries, the shared limit, fallbacks.
use super::Talk;
use crate::server::{Answer, Delivery, Said, Server, Spoken};
use serde_json::json;
use spinney::{
    clock::{Clock, Timestamp},
    http::{Client, Timeouts},
    llm::{Endpoint, Endpoints, HttpModel, Limiter, Model, ModelError, ModelErrorKind, Protocol, Retries, Retry, Secret, Silent, Sink},
    message::{Reply, StopReason, ToolSpec},
    tasks::Tasks,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A model whose every provider is `server`, and whose waits take no time: its clock is moved by them.
fn model(server: &Server) -> (HttpModel, Clock) {
    model_with(server, Timeouts::default())
}

fn model_with(server: &Server, timeouts: Timeouts) -> (HttpModel, Clock) {
    let (anthropic, openai) = (server.anthropic_url(), server.openai_url());
    let endpoints = Endpoints::from_env(&|name| match name {
        "ANTHROPIC_API_KEY" | "OPENAI_API_KEY" => Some("sk-secret".to_owned()),
        "ANTHROPIC_BASE_URL" => Some(anthropic.clone()),
        "OPENAI_BASE_URL" => Some(openai.clone()),
        _ => None,
    });
    let mut patient = Endpoints::default();
    for name in ["anthropic", "openai"] {
        let mut endpoint = endpoints.get(name).unwrap().clone();
        endpoint.timeouts = timeouts;
        patient.insert(endpoint);
    }
    let clock = Clock::fake(Timestamp(1_796_000_000_000));
    (HttpModel::new(Client::new().unwrap(), patient, Limiter::new(clock.clone(), 16), clock.clone()), clock)
}

async fn ask(model: &HttpModel, talk: &Talk) -> Result<Reply, ModelError> {
    model.reply(&talk.call(), &Silent).await
}

/// What a sink was told.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>, Mutex<Vec<String>>);

impl Sink for Heard {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().push(delta.to_owned());
    }
    fn thinking(&self, delta: &str) {
        self.1.lock().unwrap().push(delta.to_owned());
    }
    fn retrying(&self, retry: &Retry<'_>) {
        self.0.lock().unwrap().push(format!("{:?} {} attempt {} of {}", retry.why.kind, retry.wait_ms, retry.attempt, retry.of));
    }
}

#[tokio::test]
async fn conversations_are_accepted_by_a_strict_server() {
    let server = Server::start(|asked| match asked.turn() {
        0 => {
            let calls = vec![("c1".to_owned(), "Read".to_owned(), json!({"file_path": "é.rs"})), ("c1".to_owned(), "Grep".to_owned(), json!({}))];
            Answer::Say(Said { thinking: Some("hm".to_owned()), text: "looking".to_owned(), calls, ..Said::default() })
        }
        1 => Answer::Say(Said { thinking: Some("so".to_owned()), ..Said::call("c1", "Read", json!({})) }),
        _ => Answer::Say(Said::text("done")),
    })
    .await;
    let at = |name: &str, protocol, url: String| Endpoint::new(name, protocol, &url).with_key(Secret::new("sk-secret"));
    let mut endpoints = Endpoints::default();
    endpoints.insert(at("anthropic", Protocol::Anthropic, server.anthropic_url()));
    let older = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    endpoints.insert(Endpoint { headers: older, bearer: true, ..at("older", Protocol::Anthropic, server.anthropic_url()) });
    endpoints.insert(at("responses", Protocol::OpenAiResponses, server.openai_url()));
    endpoints.insert(at("openai", Protocol::OpenAiChat, server.openai_url()));
    endpoints.insert(at("gemini", Protocol::Gemini, server.openai_url()));
    let clock = Clock::fake(Timestamp(1_796_000_000_000));
    let model = HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 16), clock);
    for name in ["anthropic/claude-opus-5-5", "older/claude-haiku-4-5", "responses/gpt-6-sol", "openai/any/model", "gemini/gemini-3.7-flash"] {
        let mut talk = Talk::new(name, "begin");
        talk.effort = Some("high".to_owned());
        talk.schema = Some(json!({"type": "object", "properties": {}}));
        talk.tools = vec![ToolSpec { name: "Read".to_owned(), description: "Reads.".to_owned(), input_schema: json!({"type": "object"}) }];
        let heard = Heard::default();
        for _ in 0..2 {
            let reply = model.reply(&talk.call(), &heard).await.unwrap();
            assert_eq!((reply.model.as_str(), &reply.stop), (name, &StopReason::ToolUse));
            talk.answer(&reply, "result");
        }
        let reply = ask(&model, &talk).await.unwrap();
        assert_eq!((reply.text().as_str(), &reply.stop), ("done", &StopReason::EndTurn));
        assert_eq!(heard.1.into_inner().unwrap().concat(), "hmso", "{name}: thinking is shown as it comes");
        let is_priced = name.starts_with("anthropic") || name.starts_with("gemini");
        assert_eq!(reply.usd.is_some(), is_priced, "{name}: a price that is not known is none");
    }
    assert_eq!(server.problems(), Vec::<String>::new());
    for asked in server.asked() {
        let wanted = match (asked.spoken(), asked.headers.get("anthropic-version").map(String::as_str)) {
            (Spoken::Messages, Some("2026-10-21")) => ("x-api-key", "sk-secret"),
            (Spoken::Gemini, _) => ("x-goog-api-key", "sk-secret"),
            _ => ("authorization", "Bearer sk-secret"),
        };
        let sent = ["x-api-key", "x-goog-api-key", "authorization"].map(|name| asked.headers.get(name).map(|value| (name, value.as_str())));
        assert_eq!(sent.iter().flatten().collect::<Vec<_>>(), [&wanted]);
    }
}

#[tokio::test]
async fn the_server_is_strict() {
    let server = Server::start(|_| Answer::Say(Said::text("x"))).await;
    let (model, _) = model(&server);
    for name in ["anthropic/claude-opus-5-5", "openai/m"] {
        let mut talk = Talk::new(name, "begin");
        let reply = spinney::llm::script::reply("", &[("Read", json!({}))]);
        talk.messages.extend(reply.message().map(Arc::new));
        talk.messages.push(Arc::new(spinney::message::Message::user("no result")));
        let error = ask(&model, &talk).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Rejected, "{error}");
    }
    assert_eq!(server.asked().len(), 2, "what is malformed is not sent again");
}

#[tokio::test]
async fn a_failed_attempt_is_made_again_and_nothing_of_it_is_used() {
    let body = Said::text("a rather long text, in pieces").anthropic(&asked());
    let cut = |at: usize, is_clean| Delivery { cut_at: Some(at), is_clean, ..Delivery::default() };
    let middle = body.len() / 2;
    let faults = [
        (Answer::error(529, "overloaded_error"), Delivery::default()),
        (Answer::error(500, "api_error"), Delivery::default()),
        (Answer::Say(Said::text("partial, broken")), cut(middle, false)),
        (Answer::Say(Said::text("partial, ended")), cut(middle, true)),
        (Answer::Say(Said::text("")), cut(0, true)),
        (
            Answer::Stream(b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n".to_vec()),
            Delivery::default(),
        ),
        (Answer::Stream(b"<html>proxy</html>".to_vec()), Delivery::default()),
    ];
    let wanted = faults.len();
    let server = Server::start_with(move |asked| {
        let well = (Answer::Say(Said::text("whole")), Delivery { chunk: Some(1), ..Delivery::default() });
        faults.get(asked.number).cloned().unwrap_or(well)
    })
    .await;
    let (model, clock) = model(&server);
    let before = clock.now();
    let heard = Heard::default();
    let reply = model.reply(&Talk::new("anthropic/claude-opus-5-5", "x").call(), &heard).await.unwrap();
    assert_eq!(reply.text(), "whole");
    let asked = server.asked();
    assert_eq!(asked.len(), wanted + 1);
    assert!(asked.windows(2).all(|pair| pair[0].body == pair[1].body), "every attempt is the same bytes");
    let heard = heard.0.into_inner().unwrap();
    let retries: Vec<&String> = heard.iter().filter(|line| line.starts_with("Overloaded") || line.starts_with("Cut")).collect();
    assert_eq!(retries.len(), wanted, "{heard:?}");
    // The ladder: half a second doubled to eight, less a quarter at most.
    assert!(clock.now().since(before) >= Duration::from_secs_f64(0.75 * (0.5 + 1.0 + 2.0 + 4.0 + 8.0 + 8.0 + 8.0)));
}

/// A request to write streams for.
fn asked() -> crate::server::Asked {
    crate::server::Asked {
        number: 0,
        path: "/v1/messages".to_owned(),
        headers: std::collections::BTreeMap::new(),
        body: Vec::new(),
        json: json!({}),
        problems: Vec::new(),
    }
}

#[tokio::test]
async fn silence_is_noticed_from_the_start_of_the_request() {
    let server = Server::start_with(|asked| match asked.number {
        0 => (Answer::Say(Said::text("never sent")), Delivery { is_mute: true, ..Delivery::default() }),
        1 => (Answer::Say(Said::text("head only")), Delivery { stall_at: Some(0), ..Delivery::default() }),
        2 => (Answer::Say(Said::text("some bytes")), Delivery { stall_at: Some(400), ..Delivery::default() }),
        _ => (Answer::Say(Said::text("whole")), Delivery::default()),
    })
    .await;
    // Long enough for a busy machine, short enough to wait for.
    let (model, _) = model_with(&server, Timeouts { first_byte: Duration::from_millis(1_500), idle: Duration::from_millis(1_500) });
    let heard = Heard::default();
    let reply = model.reply(&Talk::new("openai/m", "x").call(), &heard).await.unwrap();
    assert_eq!(reply.text(), "whole");
    let heard = heard.0.into_inner().unwrap();
    let kinds: Vec<&str> =
        heard.iter().filter_map(|line| line.split_once(' ')).map(|(kind, _)| kind).filter(|kind| matches!(*kind, "Unreachable" | "Cut")).collect();
    assert_eq!(kinds, ["Unreachable", "Unreachable", "Cut"]);
}

#[tokio::test]
async fn a_connection_that_never_stands_is_noticed() {
    // Nobody accepts, and what may wait is full: whoever comes next hears nothing at all.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    // As many as the system lets wait, and those who have begun to knock.
    for _ in 0..8 {
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await {
            waiting.push(stream);
        }
    }
    assert!(waiting.len() < 8, "the system lets everybody wait");
    let mut endpoints = Endpoints::default();
    endpoints.insert(Endpoint::new("anthropic", Protocol::Anthropic, &format!("http://{address}")));
    let clock = Clock::fake(Timestamp(1_796_000_000_000));
    let client = Client::with_connect_timeout(Duration::from_millis(300)).unwrap();
    let model = HttpModel::new(client, endpoints, Limiter::new(clock.clone(), 16), clock).with_retries(Retries { max_attempts: 2, ..Retries::default() });
    // Only the first byte has two minutes: that the test ends is what it shows.
    let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable, "{error}");
    assert!(error.message.contains("after 2 attempts"), "{error}");
}

#[tokio::test]
async fn a_reply_that_is_whole_needs_no_end_mark() {
    let whole = Said::text("whole").anthropic(&asked());
    let text = String::from_utf8(whole.clone()).unwrap();
    let known = text.find("event: message_stop").unwrap() + 30;
    let server = Server::start_with(move |_| (Answer::Stream(whole.clone()), Delivery { cut_at: Some(known), ..Delivery::default() })).await;
    let (model, _) = model(&server);
    assert_eq!(ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap().text(), "whole");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn waits_are_as_long_as_the_server_asks() {
    for (retry_after, at_least) in [("30", 30), ("Mon, 30 Nov 2026 10:00:45 GMT", 45), ("1", 0)] {
        let answer = Answer::wait(429, "rate_limit_error", retry_after);
        let server = Server::start(move |asked| if asked.number == 0 { answer.clone() } else { Answer::Say(Said::text("ok")) }).await;
        let (model, clock) = model(&server);
        // The fake clock stands at 2026-11-30T00:53:20Z or so; set it to the date's minute.
        clock.advance(Timestamp(1_796_032_800_000).since(clock.now()));
        let before = clock.now();
        ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap();
        let waited = clock.now().since(before);
        assert!(waited >= Duration::from_secs(at_least) && waited < Duration::from_secs(at_least + 6), "{retry_after}: {waited:?}");
    }
}

#[tokio::test]
async fn what_waiting_does_not_mend_is_told_at_once() {
    let spend = r#"{"error":{"type":"rate_limit_error","message":"spent","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    for (answer, kind, word) in [
        (Answer::wait(429, "rate_limit_error", "3600"), ModelErrorKind::Later, "3600 s"),
        (Answer::Status(429, Vec::new(), spend.to_owned()), ModelErrorKind::SpendLimit, "spent"),
        (Answer::Status(529, vec![("x-should-retry", "false".to_owned())], "{}".to_owned()), ModelErrorKind::Overloaded, "529"),
        (Answer::Status(401, Vec::new(), r#"{"error":{"message":"bad key sk-secret"}}"#.to_owned()), ModelErrorKind::Unauthorized, "bad key ***"),
        (Answer::error(404, "not_found_error"), ModelErrorKind::UnknownModel, "404"),
        (Answer::Status(307, vec![("location", "http://127.0.0.1:9/".to_owned())], String::new()), ModelErrorKind::Rejected, "307"),
        (Answer::error(413, "request_too_large"), ModelErrorKind::TooLong, "413"),
    ] {
        let server = Server::start(move |_| answer.clone()).await;
        let (model, _) = model(&server);
        let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(word) && error.message.contains("anthropic/claude-opus-5-5"), "{error}");
        assert!(!format!("{error:?}").contains("sk-secret"), "{error:?}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_error_says_how_many() {
    let server = Server::start(|_| Answer::error(529, "overloaded_error")).await;
    let (model, _) = model(&server);
    let model = model.with_retries(Retries { max_attempts: 3, ..Retries::default() });
    let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
    assert!(error.message.contains("after 3 attempts"), "{error}");
    assert_eq!(server.asked().len(), 3);
}

/// Has 30 agents ask ten times each, and returns why some had not every answer.
async fn thirty(model: &HttpModel) -> Vec<String> {
    let mut tasks = Tasks::default();
    for agent in 0..30 {
        let model = model.clone();
        let work = async move {
            let mut talk = Talk::new("anthropic/claude-opus-5-5", &format!("task {agent}"));
            for _ in 0..10 {
                match ask(&model, &talk).await {
                    Ok(reply) => talk.answer(&reply, "go on"),
                    Err(error) => return Some(error.to_string()),
                }
            }
            None
        };
        tasks.spawn(work, |_| Some("it panicked".to_owned()));
    }
    let mut lost = Vec::new();
    while let Some(error) = tasks.next().await {
        lost.extend(error);
    }
    lost
}

#[tokio::test]
async fn nobody_is_lost_where_every_request_fails_once_however_it_does() {
    let cut = Delivery { cut_at: Some(40), ..Delivery::default() };
    for (fault, delivery) in [
        (Answer::error(429, "rate_limit_error"), Delivery::default()),
        (Answer::wait(429, "rate_limit_error", "1"), Delivery::default()),
        (Answer::error(529, "overloaded_error"), Delivery::default()),
        (Answer::Say(Said::text("broken")), cut),
    ] {
        let name = format!("{fault:?}");
        let met = Mutex::new(std::collections::HashSet::new());
        let server = Server::start_with(move |asked| {
            let is_first = met.lock().unwrap().insert(asked.body.clone());
            if is_first { (fault.clone(), delivery) } else { (Answer::Say(Said::text("ok")), Delivery::default()) }
        })
        .await;
        let (model, _) = model(&server);
        assert_eq!(thirty(&model).await, Vec::<String>::new(), "{name}: 300 failures in all");
        assert_eq!(server.asked().len(), 600, "{name}");
    }
}

#[tokio::test]
async fn a_provider_that_only_fails_is_not_asked_over_and_over() {
    let server = Server::start_with(|_| (Answer::Say(Said::text("never whole")), Delivery { cut_at: Some(40), ..Delivery::default() })).await;
    let (model, clock) = model(&server);
    let before = clock.now();
    assert_eq!(thirty(&model).await.len(), 30);
    let (asked, seconds) = (server.asked().len(), clock.now().since(before).as_secs());
    assert!(asked <= 30 + 50 + usize::try_from(seconds).unwrap() / 2 + 1, "{asked} requests in {seconds} s");
}

#[tokio::test]
async fn one_model_that_has_too_much_to_do_does_not_hold_up_another_of_the_same_key() {
    let server =
        Server::start(|asked| if asked.json["model"] == "claude-opus-5-5" { Answer::error(529, "overloaded_error") } else { Answer::Say(Said::text("ok")) })
            .await;
    let (model, clock) = model(&server);
    let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
    assert!(error.message.contains("HTTP 529") && error.message.contains("given up after 10 attempts"), "{error}");
    let before = clock.now();
    ask(&model, &Talk::new("anthropic/claude-sonnet-5-5", "x")).await.unwrap();
    assert_eq!(clock.now(), before, "it goes at once");
}

#[tokio::test]
async fn a_limit_of_money_closes_all_that_the_key_is_for() {
    let server = Server::start(|_| Answer::Status(429, Vec::new(), r#"{"error":{"type":"insufficient_quota","message":"spent"}}"#.to_owned())).await;
    let (model, _) = model(&server);
    for name in ["anthropic/claude-opus-5-5", "anthropic/claude-sonnet-5-5"] {
        assert_eq!(ask(&model, &Talk::new(name, "x")).await.unwrap_err().kind, ModelErrorKind::SpendLimit);
    }
    assert_eq!(server.asked().len(), 1, "the other is not asked");
}

#[tokio::test]
async fn a_limit_that_a_good_answer_says_is_used_up_for_hours_parks() {
    let daily = |asked: &crate::server::Asked| {
        let headers = vec![("x-ratelimit-limit", "20".to_owned()), ("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", "21600".to_owned())];
        Answer::Status(200, headers, String::from_utf8(Said::text("ok").anthropic(asked)).unwrap())
    };
    let server = Server::start(daily).await;
    let (model, clock) = model(&server);
    ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap();
    let before = clock.now();
    let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
    assert_eq!((error.kind, clock.now()), (ModelErrorKind::Later, before), "{error}");
    assert!(error.message.contains("used up") && error.hint.is_some_and(|hint| hint.contains("resume")), "{}", error.message);
    // Without a word on when, it is tried again shortly.
    let bare = |asked: &crate::server::Asked| {
        Answer::Status(200, vec![("x-ratelimit-remaining-requests", "0".to_owned())], String::from_utf8(Said::text("ok").anthropic(asked)).unwrap())
    };
    let server = Server::start(bare).await;
    let (model, clock) = self::model(&server);
    for _ in 0..3 {
        let before = clock.now();
        ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap();
        assert!(clock.now().since(before) < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let server = Server::start(|_| Answer::Say(Said::text("x"))).await;
    let (model, _) = model(&server);
    drop(server);
    let model = model.with_retries(Retries { max_attempts: 2, ..Retries::default() });
    let error = ask(&model, &Talk::new("anthropic/claude-opus-5-5", "x")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn many_agents_share_one_limit() {
    let server = Server::start(|asked| if asked.number % 7 == 3 { Answer::wait(429, "rate_limit_error", "2") } else { Answer::Say(Said::text("ok")) }).await;
    let (model, clock) = model(&server);
    let before = clock.now();
    let mut tasks = Tasks::default();
    for n in 0..50 {
        let model = model.clone();
        tasks.spawn(async move { ask(&model, &Talk::new("anthropic/claude-opus-5-5", &format!("task {n}"))).await.is_ok() }, |_| false);
    }
    let mut done = 0;
    while let Some(is_ok) = tasks.next().await {
        assert!(is_ok);
        done += 1;
    }
    assert_eq!(done, 50, "nobody is lost");
    assert!(server.most_at_once() <= 16, "{}", server.most_at_once());
    assert!(clock.now().since(before) >= Duration::from_secs(2));
    assert_eq!(server.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn a_model_is_as_large_as_it_is_known_to_be() {
    let server = Server::start(|_| Answer::Say(Said::text("x"))).await;
    let (model, _) = model(&server);
    assert_eq!(model.window("anthropic/claude-opus-5-5"), 1_000_000);
    assert_eq!(model.window("anthropic/claude-haiku-5-5"), 100_000, "beyond it every token costs five times as much");
    assert_eq!(model.window("openai/gpt-3.5-turbo"), 128_000, "nobody waits for the table of the others");
    ask(&model, &Talk::new("openai/gpt-3.5-turbo", "x")).await.unwrap();
    assert_eq!(model.window("openai/gpt-3.5-turbo"), 16_385, "it was read beside the first reply");
    assert_eq!(model.window("openai/who"), 128_000);
    assert_eq!(model.window("x"), 128_000);
}
