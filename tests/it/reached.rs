//! Servers of tools at an address: what is sent to them, and what comes of what they answer.
use crate::{
    driver::{Drive, Line},
    fixture::{Bench, outcome, results},
};
use serde_json::{Value, json};
use spinney::event::Event;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

const TOKEN: &str = "s3cr3t-for-the-server";

/// One request as it came.
#[derive(Debug, Clone)]
struct Heard {
    verb: String,
    headers: BTreeMap<String, String>,
    message: Value,
}

#[derive(Default)]
struct State {
    heard: Vec<Heard>,
    sessions: BTreeSet<String>,
}

/// A server that keeps sessions, and answers calls that read with a stream of events and others with JSON.
struct Server {
    url: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Server { url, state }
    }

    fn heard(&self) -> Vec<Heard> {
        self.state.lock().unwrap().heard.clone()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(heard) = request(&mut stream) {
        let Some((status, headers, body)) = answer(&heard, &mut state.lock().unwrap()) else {
            // Until whoever waits goes away.
            let _gone = stream.read(&mut [0]);
            return;
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        if stream.get_mut().write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<Heard> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let headers: BTreeMap<String, String> =
        lines[1..].iter().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    let verb = lines[0].split(' ').next().unwrap().to_owned();
    Some(Heard { verb, headers, message: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Status, headers and body; `None` where nothing is ever answered.
fn answer(heard: &Heard, state: &mut State) -> Option<(String, String, String)> {
    state.heard.push(heard.clone());
    let plain = |status: &str, body: &str| Some((status.to_owned(), String::new(), body.to_owned()));
    let id = &heard.message["id"];
    let json = |more: &str, result: Value| {
        Some(("200 OK".to_owned(), format!("content-type: application/json\r\n{more}"), json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()))
    };
    let session = heard.headers.get("mcp-session-id").cloned().unwrap_or_default();
    let arguments = &heard.message["params"]["arguments"];
    match heard.message["method"].as_str() {
        Some("initialize") => {
            let session = format!("session-{}", state.heard.len());
            state.sessions.insert(session.clone());
            json(&format!("mcp-session-id: {session}\r\n"), json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}))
        }
        _ if !state.sessions.contains(&session) => plain("404 Not Found", "no such session"),
        None if heard.verb == "DELETE" => {
            state.sessions.remove(&session);
            plain("200 OK", "")
        }
        Some("tools/list") => json("", json!({"tools": [{"name": "look", "annotations": {"readOnlyHint": true}}, {"name": "put"}]})),
        Some("tools/call") if heard.message["params"]["name"] == "look" => {
            let events = [
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}),
                json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"}),
                json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "row 42"}]}}),
            ];
            let body: String = events.iter().map(|event| format!(": alive\nevent: message\ndata: {event}\n\n")).collect();
            Some(("200 OK".to_owned(), "content-type: text/event-stream\r\n".to_owned(), body))
        }
        Some("tools/call") if arguments["how"] == "hang" => None,
        Some("tools/call") if arguments["how"] == "refuse" => plain("500 Oh No", &format!("not with {}", heard.headers["authorization"])),
        Some("tools/call") => {
            if arguments["how"] == "forget" {
                state.sessions.clear();
            }
            json("", json!({"content": [{"type": "text", "text": "it is put"}]}))
        }
        Some(_) | None => plain("202 Accepted", ""),
    }
}

fn bench(url: &str, agent: &str) -> Bench {
    let workflow = format!(
        "version: 1\nname: one\nsecrets: [TOKEN]\nmcp_servers:\n  far: {{ url: \"{url}\", headers: {{ Authorization: \"Bearer {{{{ secrets.TOKEN }}}}\" }}, timeout: 1s }}\nagents:\n  worker: {{ system: \"You work.\", {agent} }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\" }}\n"
    );
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("begin").workflow("one", &workflow).env("TOKEN", TOKEN);
    let shown = bench.spinney(&["trust", "--yes"]).code(0).out;
    assert!(shown.contains(&format!("reaches  server far: at {url}")) || shown.contains(&format!("server far: at {url}")), "{shown}");
    bench
}

fn drive<'b>(bench: &'b Bench, calls: Vec<(&'static str, Value)>) -> Drive<'b> {
    bench.drive(move |sent, _| match calls.get(sent.turn()) {
        Some((tool, input)) => Line::call(tool, input.clone()),
        None => Line::say("done"),
    })
}

#[test]
fn a_server_at_an_address_is_asked_in_a_session_that_is_begun_again_where_it_forgets_it() {
    let server = Server::start();
    let bench = bench(&server.url, "access: write");
    let put = |how: &str| ("mcp__far__put", json!({"how": how}));
    let (_, records) = drive(&bench, vec![("mcp__far__look", json!({})), put("forget"), put("well"), put("refuse"), put("hang"), put("well")]).run("one");
    assert_eq!(outcome(&records, "work")["succeeded"]["output"], "done", "{}", outcome(&records, "work"));
    let all = results(&records, "work");
    assert_eq!([all[0].2, all[1].2, all[2].2, all[5].2], ["row 42", "it is put", "it is put", "it is put"], "{all:?}");
    assert!(all[3].1 && all[3].2.contains("status 500: not with Bearer ***TOKEN***"), "{all:?}");
    assert!(all[4].1 && all[4].2.contains("within 1000 ms") && all[4].2.contains("may or may not have done"), "{all:?}");
    assert!(!serde_json::to_string(&records).unwrap().contains(TOKEN));

    let heard = server.heard();
    assert!(heard.iter().all(|heard| heard.headers["authorization"] == format!("Bearer {TOKEN}")), "{heard:?}");
    let of = |method: &str| heard.iter().filter(|heard| heard.message["method"] == method).collect::<Vec<_>>();
    assert_eq!(of("initialize").len(), 2, "{heard:?}");
    assert_eq!(of("notifications/initialized").len(), 2, "{heard:?}");
    assert_eq!(of("notifications/cancelled").len(), 1, "{heard:?}");
    let spoken = heard.iter().filter(|heard| heard.message["method"] != "initialize");
    assert!(spoken.clone().all(|heard| heard.headers.get("mcp-protocol-version").is_some_and(|version| version == "2025-11-25")), "{heard:?}");
    let roots = heard.iter().find(|heard| heard.message["id"] == "r").expect("its question was answered");
    assert!(roots.message["result"]["roots"][0]["uri"].as_str().is_some_and(|uri| uri.starts_with("file:///")), "{roots:?}");
    let last = heard.last().unwrap();
    assert_eq!(last.verb, "DELETE", "{heard:?}");
    assert!(server.state.lock().unwrap().sessions.is_empty());
}

#[test]
fn who_reads_has_what_reads_of_it_and_one_that_is_not_there_fails_the_step() {
    let server = Server::start();
    let records = drive(&bench(&server.url, "access: read"), Vec::new()).run("one").1;
    let briefed = records.iter().find_map(|record| if let Event::AgentBriefed { brief, .. } = &record.event { Some(brief.clone()) } else { None }).unwrap();
    let names: Vec<&str> = briefed.tools.iter().map(|tool| tool.name.as_str()).filter(|name| name.starts_with("mcp__")).collect();
    assert_eq!(names, ["mcp__far__look"]);

    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, records) = drive(&bench(&format!("http://{gone}/mcp"), "access: write"), Vec::new()).run("one");
    let said = outcome(&records, "work").to_string();
    assert!(said.contains("talk with the server `far`: reach 127.0.0.1") && said.contains("`url` is right"), "{said}");
}
