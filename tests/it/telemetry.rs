//! What a collector sees of a whole run, and that none of it is ever in the way. The program is the real binary: what it
//! installs is installed for a whole process.
use crate::{
    fixture::{Bench, results},
    invariants,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    thread::JoinHandle,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const WORKFLOW: &str = r#"
version: 1
name: traced
agents:
  coder: { system: "You code.", access: write, hooks: [look] }
steps:
  work:
    agent: coder
    prompt: "Do it."
    verify: { run: ["test -s bash.txt"] }
  check: { needs: [work], run: "echo $TRACEPARENT" }
"#;

const SCRIPT: &str = r#"
conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Bash, input: { command: "echo $TRACEPARENT | tee bash.txt" } }, { tool: Read, input: { file_path: SECRETNAME.md } }]
      - calls: [{ tool: Write, input: { file_path: denied.txt, content: "SECRETWORD" } }]
      - say: "SECRETWORD done"
"#;

/// Says which span it was asked under, and denies one call.
const HOOK: &str = r#"{"hooks": {
  "PreToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "echo before $TRACEPARENT >&2; exit 2"}]}],
  "PostToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "echo after $TRACEPARENT >&2; exit 2"}]}]
}}"#;

/// One span as it was exported.
#[derive(Debug, Clone)]
struct Span {
    name: String,
    id: String,
    trace: String,
    parent: String,
    attributes: BTreeMap<String, String>,
    status: String,
}

/// A collector for traces, until it is asked for what it has.
pub(crate) struct Collector {
    pub(crate) base: String,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let mut bodies = Vec::new();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                while let Some((head, body)) = request(&mut stream) {
                    if head.starts_with("GET /end") {
                        return bodies;
                    }
                    assert!(head.starts_with("POST /v1/traces "), "{head}");
                    bodies.push(body);
                    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
            }
            bodies
        });
        Collector { base, thread }
    }

    pub(crate) fn bodies(self) -> Vec<Vec<u8>> {
        TcpStream::connect(self.base.trim_start_matches("http://")).unwrap().write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
        self.thread.join().unwrap()
    }
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_ascii_lowercase().split("content-length:").nth(1).map_or(0, |rest| rest.lines().next().unwrap().trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Some((head, body))
}

/// Reads a protobuf message into field numbers and bytes; numbers are given as their text.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = message.split_first().unwrap();
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut message).to_string().into_bytes()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (bytes, rest) = message.split_at(length);
        message = rest;
        found.push((key >> 3, bytes.to_vec()));
    }
    found
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(message).into_iter().filter(|(found, _)| *found == number).map(|(_, bytes)| bytes).collect()
}

fn text(message: &[u8], number: u64) -> String {
    all(message, number).first().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

fn hex(message: &[u8], number: u64) -> String {
    all(message, number).first().map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect()).unwrap_or_default()
}

fn spans(bodies: &[Vec<u8>]) -> Vec<Span> {
    let scopes = bodies.iter().flat_map(|body| all(body, 1)).flat_map(|group| all(&group, 2));
    let attribute = |pair: &Vec<u8>| {
        let value = all(pair, 2)
            .first()
            .and_then(|value| fields(value).into_iter().next())
            .map(|(kind, bytes)| if kind == 5 { text(&all(&bytes, 1)[0], 1).into_bytes() } else { bytes });
        (text(pair, 1), String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
    };
    scopes
        .flat_map(|scope| all(&scope, 2))
        .map(|span| Span {
            name: text(&span, 5),
            id: hex(&span, 2),
            trace: hex(&span, 1),
            parent: hex(&span, 4),
            attributes: all(&span, 9).iter().map(attribute).collect(),
            status: all(&span, 15).first().map(|status| text(status, 3)).unwrap_or_default(),
        })
        .collect()
}

/// Runs the binary in the repository.
pub(crate) fn spinney(bench: &Bench, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spinney")).args(arguments).current_dir(bench.repo()).env_clear().envs(bench.environment()).output().unwrap()
}

fn traced() -> Bench {
    let bench = Bench::new().file("SECRETNAME.md", "SECRETWORD\n").commit("more").workflow("traced", WORKFLOW).file(".spinney/hooks/look.json", HOOK);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_collector_gets_the_whole_run_and_children_know_their_span() {
    let collector = Collector::start();
    let bench = traced().env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base).env("TRACEPARENT", PARENT);
    let script = bench.script(SCRIPT);
    let output = spinney(&bench, &["run", "traced", "--script", &script]);
    succeeded(&output);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("warning: failed"), "{}", String::from_utf8_lossy(&output.stderr));
    let bodies = collector.bodies();
    let found = spans(&bodies);
    let named = |name: &str| -> Vec<&Span> { found.iter().filter(|span| span.name == name).collect() };
    let one = |name: &str| match named(name)[..] {
        [span] => span,
        ref other => panic!("{name}: {other:?}\n{:?}", found.iter().map(|span| &span.name).collect::<Vec<_>>()),
    };
    let (run, work, check, agent) = (one("invoke_workflow traced"), one("spinney.step work"), one("spinney.step check"), one("invoke_agent coder"));
    let (bash, read, write) = (one("execute_tool Bash"), one("execute_tool Read"), one("execute_tool Write"));
    let chats = named("chat model");
    let hooks = named("spinney.hook look");
    assert_eq!((chats.len(), hooks.len()), (3, 2), "{:?}", found.iter().map(|span| &span.name).collect::<Vec<_>>());
    assert_eq!(found.len(), 12, "nothing else: {:?}", found.iter().map(|span| &span.name).collect::<Vec<_>>());
    // Who is whose child.
    assert!(found.iter().all(|span| span.trace == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(run.parent, "00f067aa0ba902b7");
    assert_eq!([&work.parent, &check.parent], [&run.id, &run.id]);
    assert_eq!(agent.parent, work.id);
    assert!(chats.iter().chain(&[bash, read, write]).all(|span| span.parent == agent.id));
    let hook = |event: &str| *hooks.iter().find(|span| span.attributes["spinney.hook.event"] == event).unwrap();
    assert_eq!([&hook("PreToolUse").parent, &hook("PostToolUse").parent], [&write.id, &bash.id]);
    // What they say.
    let says = |span: &Span, pairs: &[(&str, &str)]| {
        for (key, value) in pairs {
            assert_eq!(span.attributes.get(*key).map(String::as_str), Some(*value), "{key} of {span:?}");
        }
    };
    says(
        run,
        &[
            ("gen_ai.operation.name", "invoke_workflow"),
            ("gen_ai.workflow.name", "traced"),
            ("spinney.run.id", &bench.newest().0),
            ("spinney.outcome", "succeeded"),
        ],
    );
    says(work, &[("spinney.node", "work"), ("spinney.attempt", "1"), ("spinney.outcome", "succeeded")]);
    says(agent, &[("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "coder"), ("spinney.node", "work"), ("spinney.outcome", "succeeded")]);
    let reasons: Vec<&str> = chats.iter().map(|chat| chat.attributes["gen_ai.response.finish_reasons"].as_str()).collect();
    assert_eq!(reasons, ["tool_use", "tool_use", "end_turn"]);
    for chat in chats {
        says(
            chat,
            &[("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "scripted"), ("gen_ai.request.model", "model"), ("gen_ai.response.model", "model")],
        );
        assert!(chat.attributes["gen_ai.usage.input_tokens"] != "0" && chat.attributes["gen_ai.usage.output_tokens"] != "0");
    }
    says(
        bash,
        &[("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "Bash"), ("gen_ai.tool.call.id", "call_0_0"), ("spinney.tool.verdict", "allowed")],
    );
    says(write, &[("spinney.tool.verdict", "denied by a hook")]);
    says(hook("PreToolUse"), &[("spinney.hook.name", "look"), ("spinney.hook.verdict", "deny")]);
    assert_eq!([&write.status, &read.status, &run.status], ["2", "", ""], "what failed is marked as an error");
    // Children were told.
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    let shown = results(&records, "work");
    let under = |span: &Span| format!("00-{}-{}-01", span.trace, span.id);
    assert!(shown[0].2.contains(&under(bash)) || shown[1].2.contains(&under(bash)), "{shown:?} {}", under(bash));
    let told = |words: &str| shown.iter().find_map(|(_, _, text)| text.split(words).nth(1)).map(|rest| rest[..55].to_owned()).unwrap();
    assert_eq!([told("before "), told("after ")], [under(hook("PreToolUse")), under(hook("PostToolUse"))], "each hook stands in its own span");
    let outcome = crate::fixture::outcome(&records, "check");
    assert_eq!(outcome["succeeded"]["output"]["output"], under(check), "{outcome}");
    // Nothing that was said is on a span.
    let raw: String = bodies.iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect();
    assert!(!raw.contains("SECRET"), "{raw}");
}

#[test]
fn without_an_endpoint_children_are_told_nothing() {
    let bench = traced();
    let script = bench.script(SCRIPT.replace("| tee bash.txt", "x > bash.txt; cat bash.txt").as_str());
    succeeded(&spinney(&bench, &["run", "traced", "--script", &script]));
    let records = bench.records(&bench.newest());
    let bash = results(&records, "work").into_iter().find(|(tool, _, _)| *tool == "Bash").unwrap();
    assert!(bash.2.ends_with("\nx") || bash.2.trim_end().ends_with('x'), "{bash:?}");
    assert!(!results(&records, "work").iter().any(|(_, _, text)| text.contains("00-")), "{:?}", results(&records, "work"));
}

#[test]
fn a_failed_run_is_marked_as_one_all_the_way_up() {
    let collector = Collector::start();
    let bench = traced().env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base);
    let script = bench.script("conversations:\n  - agent: coder\n    turns:\n      - say: \"done\"\n      - say: \"done\"\n      - say: \"done\"\n");
    let output = spinney(&bench, &["run", "traced", "--script", &script]);
    assert_eq!(output.status.code(), Some(1));
    let found = spans(&collector.bodies());
    for name in ["invoke_workflow traced", "spinney.step work", "invoke_agent coder"] {
        let span = found.iter().find(|span| span.name == name).unwrap();
        assert_eq!((span.attributes["spinney.outcome"].as_str(), span.status.as_str()), ("failed", "2"), "{span:?}");
        assert_eq!(span.attributes["error.type"], "verify", "{span:?}");
    }
}

#[test]
fn a_dead_collector_neither_fails_a_run_nor_holds_it_up() {
    // One takes connections and never looks at them, the other is not there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), gone] {
        let bench = traced().env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"));
        let script = bench.script(SCRIPT);
        let output = spinney(&bench, &["run", "traced", "--script", &script]);
        succeeded(&output);
        // Without its own bound it would be the exporter's time-out of ten seconds that is told.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("within 3000 ms") || said.contains("the collector did not take them"), "{said}");
    }
}

#[test]
fn json_prints_every_event_as_it_is_in_the_journal() {
    let bench = traced();
    let script = bench.script(SCRIPT);
    let output = spinney(&bench, &["run", "traced", "--script", &script, "--json"]);
    succeeded(&output);
    let printed = String::from_utf8(output.stdout).unwrap();
    let kept: Vec<String> = bench.records(&bench.newest()).iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), kept);
    assert!(printed.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["event"].is_object()));
}
