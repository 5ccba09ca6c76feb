//! Spans, as a collector receives them.
use super::*;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread::JoinHandle,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// One request as it arrived.
struct Request {
    head: String,
    body: Vec<u8>,
}

/// Takes requests until one asks for `/end`, answers each with `200` and an empty body.
#[expect(clippy::disallowed_methods, reason = "the collector is not of the program that is tested")]
fn collector() -> (String, JoinHandle<Vec<Request>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let taken = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            while let Some(request) = take(&mut stream) {
                if request.head.contains("/end") {
                    return requests;
                }
                requests.push(request);
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            }
        }
        requests
    });
    (base, taken)
}

fn take(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_ascii_lowercase().split("content-length:").nth(1).map_or(0, |rest| rest.lines().next().unwrap().trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Some(Request { head, body })
}

fn end(base: &str) {
    TcpStream::connect(base.trim_start_matches("http://")).unwrap().write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
}

/// A field of a protobuf message: a number or bytes.
#[derive(Clone, Copy, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads a protobuf message, as far as this test needs: no groups.
fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    fn fixed<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (bytes, rest) = message.split_at(length);
        *message = rest;
        bytes
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Bytes(fixed(&mut message, 8)),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                Field::Bytes(fixed(&mut message, length))
            }
            5 => Field::Bytes(fixed(&mut message, 4)),
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn children(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(found, field)| if let (true, Field::Bytes(bytes)) = (found == number, field) { Some(bytes) } else { None })
}

fn text(message: &[u8], number: u64) -> String {
    children(message, number).next().map_or(String::new(), |bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn hex(message: &[u8], number: u64) -> String {
    children(message, number).next().map_or(String::new(), crate::event::hex)
}

/// Writes attributes as `key=value`; an array as its first text.
fn attributes(message: &[u8], number: u64) -> Vec<String> {
    let value = |bytes: &[u8]| match fields(bytes)[..] {
        [(1, Field::Bytes(text))] => String::from_utf8(text.to_vec()).unwrap(),
        [(3, Field::Number(number))] => number.to_string(),
        [(5, Field::Bytes(array))] => format!("[{}]", text(children(array, 1).next().unwrap(), 1)),
        _ => panic!("another kind of value"),
    };
    let mut found: Vec<String> = children(message, number).map(|pair| format!("{}={}", text(pair, 1), value(children(pair, 2).next().unwrap()))).collect();
    found.sort();
    found
}

/// A span of `ExportTraceServiceRequest`.
#[derive(Debug)]
struct Exported {
    name: String,
    trace: String,
    id: String,
    parent: String,
    attributes: Vec<String>,
    resource: Vec<String>,
    status: String,
}

fn spans(body: &[u8]) -> Vec<Exported> {
    let mut found = Vec::new();
    for group in children(body, 1) {
        let resource = attributes(children(group, 1).next().unwrap(), 1);
        for span in children(group, 2).flat_map(|scope| children(scope, 2)) {
            found.push(Exported {
                name: text(span, 5),
                trace: hex(span, 1),
                id: hex(span, 2),
                parent: hex(span, 4),
                attributes: attributes(span, 9),
                resource: resource.clone(),
                status: children(span, 15).next().map_or(String::new(), |status| text(status, 2)),
            });
        }
    }
    found
}

/// A run as the engine would trace it, down to a hook.
fn traced_run(telemetry: &Telemetry) -> Vec<Option<String>> {
    let run = trace::run("feature-a1b2c3", "feature");
    telemetry.adopt(&run);
    let _run = run.entered();
    tracing::info!(target: "another_crate", "not of this program");
    let _foreign = tracing::info_span!(target: "hyper", "not of this program").entered();
    let step = trace::step(&"build/auth", 2);
    let _step = step.clone().entered();
    let agent = trace::agent("coder", &"build/auth");
    let _agent = agent.entered();
    let chat = trace::chat("anthropic/claude-x");
    trace::replied(&chat, "anthropic/claude-x-1", "tool_use", trace::Tokens { input: 3, output: 5, cache_read: 100, cache_write: 20 });
    let given = chat.in_scope(trace::traceparent);
    let tool = trace::tool("Bash", "toolu_1").entered();
    trace::judged(&tool, "deny");
    let hook = trace::hook("guard", "PreToolUse");
    trace::judged(&hook, "deny");
    trace::failed(&step, "verify", "the checks are red");
    trace::ended(&step, "failed");
    vec![given, trace::traceparent()]
}

#[test]
fn a_collector_receives_every_kind_of_span() {
    let (base, taken) = collector();
    let settings = Settings::from_env(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(base.clone()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("x-tenant=a%20b".to_owned()),
        "OTEL_RESOURCE_ATTRIBUTES" => Some("team=trees".to_owned()),
        "TRACEPARENT" => Some(PARENT.to_owned()),
        _ => None,
    });
    let (telemetry, subscriber) = build(&settings, &Secrets::default()).unwrap();
    assert!(telemetry.is_on());
    let given = tracing::subscriber::with_default(subscriber.unwrap(), || traced_run(&telemetry));
    telemetry.flush_and_shutdown(Duration::from_secs(30)).unwrap();
    end(&base);
    let requests = taken.join().unwrap();
    assert!(requests.iter().all(|request| request.head.starts_with("POST /v1/traces ") && request.head.contains("x-tenant: a b\r\n")));
    let mut found: Vec<Exported> = requests.iter().flat_map(|request| spans(&request.body)).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<&str> = found.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["chat claude-x", "execute_tool Bash", "invoke_agent coder", "invoke_workflow feature", "spinney.hook guard", "spinney.step build/auth"]);
    let [chat, tool, agent, run, hook, step] = &found[..] else { unreachable!() };
    let chain: Vec<&str> = [run, step, agent, chat, tool, hook].map(|span| span.parent.as_str()).to_vec();
    assert_eq!(chain, ["00f067aa0ba902b7", &run.id, &step.id, &agent.id, &agent.id, &tool.id], "who is whose child");
    assert!(found.iter().all(|span| span.trace == "4bf92f3577b34da6a3ce929d0e0e4736" && span.resource == ["service.name=spinney", "team=trees"]));
    assert_eq!(given, [Some(format!("00-{}-{}-01", chat.trace, chat.id)), Some(format!("00-{}-{}-01", tool.trace, tool.id))]);
    assert_eq!(
        chat.attributes,
        [
            "gen_ai.operation.name=chat",
            "gen_ai.provider.name=anthropic",
            "gen_ai.request.model=claude-x",
            "gen_ai.response.finish_reasons=[tool_use]",
            "gen_ai.response.model=claude-x-1",
            "gen_ai.usage.cache_read.input_tokens=100",
            "gen_ai.usage.cache_write.input_tokens=20",
            "gen_ai.usage.input_tokens=123",
            "gen_ai.usage.output_tokens=5",
        ]
    );
    assert_eq!(tool.attributes, ["gen_ai.operation.name=execute_tool", "gen_ai.tool.call.id=toolu_1", "gen_ai.tool.name=Bash", "spinney.tool.verdict=deny"]);
    assert_eq!(agent.attributes, ["gen_ai.agent.name=coder", "gen_ai.operation.name=invoke_agent", "spinney.node=build/auth"]);
    assert_eq!(run.attributes, ["gen_ai.operation.name=invoke_workflow", "gen_ai.workflow.name=feature", "spinney.run.id=feature-a1b2c3"]);
    assert_eq!(hook.attributes, ["spinney.hook.event=PreToolUse", "spinney.hook.name=guard", "spinney.hook.verdict=deny"]);
    assert_eq!(step.attributes, ["error.type=verify", "spinney.attempt=2", "spinney.node=build/auth", "spinney.outcome=failed"]);
    assert_eq!(step.status, "the checks are red");
    let listed = found.iter().flat_map(|span| &span.attributes).all(|pair| trace::ATTRIBUTES.contains(&pair.split('=').next().unwrap()));
    assert!(listed, "every attribute is in the list");
}

#[tokio::test]
async fn spans_cross_waits_and_the_end_comes_from_within_the_scheduler() {
    use tracing::Instrument as _;
    let (base, taken) = collector();
    let settings = Settings { endpoint: Some(format!("{base}/v1/traces")), service: "trees".to_owned(), ..Settings::default() };
    let (telemetry, subscriber) = build(&settings, &Secrets::default()).unwrap();
    let scope = tracing::subscriber::set_default(subscriber.unwrap());
    let wait = || async {
        tokio::task::yield_now().await;
        trace::traceparent()
    };
    let run = trace::run("r", "w");
    let (a, b) = async { tokio::join!(wait().instrument(trace::step(&"a", 1)), wait().instrument(trace::step(&"b", 1))) }.instrument(run).await;
    drop(scope);
    crate::tasks::blocking(|| telemetry.flush_and_shutdown(Duration::from_secs(30))).await.unwrap().unwrap();
    end(&base);
    let found: Vec<Exported> = taken.join().unwrap().iter().flat_map(|request| spans(&request.body)).collect();
    let id_of = |name: &str| found.iter().find(|span| span.name == name).map(|span| format!("00-{}-{}-01", span.trace, span.id));
    assert_eq!((a, b), (id_of("spinney.step a"), id_of("spinney.step b")), "each step stands in its own span");
    let run = found.iter().find(|span| span.name == "invoke_workflow w").unwrap();
    assert!(found.iter().filter(|span| span.name.starts_with("spinney.step")).all(|span| span.parent == run.id));
    assert_eq!((run.parent.as_str(), &run.resource[..]), ("", &["service.name=trees".to_owned()][..]));
}

#[test]
fn nothing_is_installed_without_an_endpoint() {
    let settings = Settings { traceparent: Some(PARENT.to_owned()), ..Settings::default() };
    let (telemetry, subscriber) = build(&settings, &Secrets::default()).unwrap();
    assert!(!telemetry.is_on() && subscriber.is_none());
    let telemetry = install(&settings, &Secrets::default()).unwrap();
    telemetry.adopt(&trace::run("r", "w"));
    telemetry.flush_and_shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_collector_that_never_answers_delays_nobody() {
    // It takes connections into its backlog and never looks at them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings { endpoint: Some(format!("http://{}/v1/traces", listener.local_addr().unwrap())), ..Settings::default() };
    let (telemetry, subscriber) = build(&settings, &Secrets::default()).unwrap();
    tracing::subscriber::with_default(subscriber.unwrap(), || traced_run(&telemetry));
    // The exporter's own time-out is ten seconds: without the bound, it would end in another error.
    let error = telemetry.flush_and_shutdown(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().ends_with("/v1/traces within 50 ms"), "{error}");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("50ms"), "{error:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let endpoint = Some("http://127.0.0.1:9/v1/traces".to_owned());
    let grpc = Settings { endpoint: endpoint.clone(), protocol: "grpc".to_owned(), ..Settings::default() };
    assert!(build(&grpc, &Secrets::default()).err().unwrap().to_string().contains("`grpc`"));
    let nonsense = Settings { endpoint: Some("no address at all".to_owned()), ..Settings::default() };
    assert!(matches!(build(&nonsense, &Secrets::default()).err().unwrap(), TelemetryError::Exporter { endpoint, .. } if endpoint == "no address at all"));
    let dead = Settings { endpoint, ..Settings::default() };
    let (telemetry, _subscriber) = build(&dead, &Secrets::default()).unwrap();
    telemetry.flush_and_shutdown(Duration::from_secs(30)).unwrap();
    let (telemetry, subscriber) = build(&dead, &Secrets::default()).unwrap();
    tracing::subscriber::with_default(subscriber.unwrap(), || traced_run(&telemetry));
    let error = telemetry.flush_and_shutdown(Duration::from_secs(30)).unwrap_err();
    assert!(matches!(&error, TelemetryError::Lost { spans: 6, .. }), "{error:?}");
}
