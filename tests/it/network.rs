//! The hosts that an agent's commands may reach: those of its list by the proxy that stands beside each command, and nothing else.
use crate::{
    fixture::{Bench, results},
    telemetry::{Collector, spinney},
    walls::{runs, walls},
};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use spinney::event::{Event, Record, Recovery};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
};

const WORKFLOW: &str = r#"
version: 1
name: reaches
defaults: { model: anthropic/claude-haiku-5-5 }
agents:
  fetcher: { system: You fetch., access: write, sandbox: { network: HOSTS } }
steps:
  one: { agent: fetcher, prompt: "Go." }
"#;

/// What a command begins with: `ask` sends a request to its proxy, line ends and all, and shows the answer.
const ASK: &str = r#"
proxy=${http_proxy##*:}
ask() { exec 3<>/dev/tcp/127.0.0.1/$proxy; printf "$1\r\n\r\n" >&3; cat <&3; exec 3>&-; }
open() { exec 3<>/dev/tcp/127.0.0.1/$proxy; printf "CONNECT $1 HTTP/1.1\r\n\r\n" >&3; read -r status <&3; read -r empty <&3; echo "$status"; }
"#;

fn bench(hosts: &[&str]) -> Bench {
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("reaches", &WORKFLOW.replace("HOSTS", &json!(hosts).to_string()));
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

/// Runs one command of the agent; returns what it was told of it, and the log.
fn told(bench: &Bench, command: &str) -> (String, bool, Vec<Record>) {
    let (said, records) = bench.run("reaches", &runs(&format!("{ASK}{command}")), &[]);
    said.code(0);
    let [(_, is_error, text)] = results(&records, "one")[..] else { panic!("{:?}", results(&records, "one")) };
    (text.replace('\r', ""), is_error, records)
}

/// A server that does this with each connection, and where it is.
fn server(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
    port
}

/// Reads the head of a request, and the body that it says it has.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let length = text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    reader.read_exact(&mut body).unwrap();
    if text.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            assert!(reader.read_until(b'\n', &mut body).unwrap() > 0);
        }
    }
    text.replace('\r', "") + str::from_utf8(&body).unwrap()
}

/// A server that answers each request with its text.
fn mirror() -> u16 {
    server(|mut stream| {
        let text = request(&stream);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    })
}

#[test]
fn a_host_of_the_list_is_reached_and_no_other() {
    if !walls("the hosts of an agent") {
        return;
    }
    let (listed, other) = (mirror(), mirror());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bench = bench(&[&format!("127.0.0.1:{listed}"), &format!("127.0.0.1:{gone}")]);
    let command = format!(
        "ask 'POST http://127.0.0.1:{listed}/x?y HTTP/1.1\\r\\nHost: other.example\\r\\nContent-Length: 2\\r\\nProxy-Authorization: z\\r\\n\\r\\nok'
         open 127.0.0.1:{listed}; printf 'GET /z HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; exec 3>&-
         ask 'GET http://127.0.0.1:{other}/ HTTP/1.1'; open 127.0.0.1:{other}; ask 'GET http://example.com/ HTTP/1.1'; open example.com:22
         ask 'GET / HTTP/1.1'; open 127.0.0.1:{gone}
         for port in {listed} {other}; do (exec 4<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && echo ESCAPE; done
         (exec 4<>/dev/tcp/1.1.1.1/53) 2>/dev/null && echo ESCAPE; getent hosts example.com && echo ESCAPE; exit 7"
    );
    let (text, is_error, records) = told(&bench, &command);
    assert!(is_error && !text.contains("ESCAPE"), "{text}");
    let reached = format!("POST /x?y HTTP/1.1\nHost: 127.0.0.1:{listed}\nContent-Length: 2\nConnection: close\n\nok");
    assert!(text.contains(&reached) && text.contains("HTTP/1.1 200 Connection established\nHTTP/1.1 200 OK") && text.contains("GET /z HTTP/1.1"), "{text}");
    let (key, status) = ("not in agents.fetcher.sandbox.network", "HTTP/1.1 403 Forbidden");
    assert_eq!((text.matches(status).count(), text.matches("HTTP/1.1 400 Bad Request").count()), (4, 1), "{text}");
    let end = text.split("[exit code 7]").nth(1).unwrap_or_default();
    let refused =
        [format!("127.0.0.1:{other}"), "example.com".to_owned(), "example.com:22".to_owned()].map(|host| format!("[the sandbox refused {host}: {key}]"));
    let mut end: Vec<&str> = end.trim().lines().collect();
    let last = end.pop().unwrap_or_default();
    assert!(last.starts_with(&format!("[the sandbox lets 127.0.0.1:{gone} through, and it was not reached: ")) && text.contains("502 Bad Gateway"), "{text}");
    assert_eq!(end, refused, "{text}");
    assert!(text.contains(&format!("\n\nthe sandbox refused example.com: {key}\n")), "{text}");
    // What was done out there nothing brings back.
    let is_unknown = |record: &Record| matches!(record.event, Event::ToolStarted { recovery: Recovery::Unknown, .. });
    assert!(records.iter().any(is_unknown));
}

#[test]
fn programs_find_the_proxy_by_their_environment() {
    if !walls("programs behind the proxy") {
        return;
    }
    let listed = mirror();
    let bench = bench(&[&format!("127.0.0.1:{listed}")]).env("HTTPS_PROXY", "http://me:word@127.0.0.1:9").env("NO_PROXY", "*");
    let mut command =
        format!("env | grep -i proxy | sort; env | grep -c word; curl -s http://127.0.0.1:{listed}/x; curl -sp http://127.0.0.1:{listed}/y | head -1");
    command.push_str("; curl -s -d @- -H 'Transfer-Encoding: chunked' http://127.0.0.1:PORT/c <<< piece; git ls-remote http://127.0.0.1:1/x 2>&1 | tail -1");
    let command = command.replace("PORT", &listed.to_string());
    let (text, ..) = told(&bench, &command);
    let proxy = text.lines().find_map(|line| line.strip_prefix("ALL_PROXY=http://127.0.0.1:")).unwrap_or_else(|| panic!("{text}"));
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"] {
        assert!(text.contains(&format!("{name}=http://127.0.0.1:{proxy}\n")), "{text}");
    }
    assert!(text.contains("NODE_USE_ENV_PROXY=1\nNO_PROXY=localhost,::1\n") && text.contains("no_proxy=localhost,::1\n0\n"), "{text}");
    assert!(
        text.contains("GET /x HTTP/1.1\n") && text.contains("GET /y HTTP/1.1\n") && text.contains("\n5\npiece\n0\n\n") && text.contains("error: 403"),
        "{text}"
    );
    assert!(text.ends_with("[the sandbox refused 127.0.0.1:1: not in agents.fetcher.sandbox.network]"), "{text}");
}

#[test]
fn a_command_ends_as_it_would_without_a_proxy() {
    if !walls("the end of a command with a proxy") {
        return;
    }
    let (sender, ended) = mpsc::channel();
    // Says when the other end of a connection is gone.
    let held = server(move |mut stream| {
        let _ = stream.write_all(b"held\n");
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    let bench = bench(&[&format!("127.0.0.1:{held}")]);
    let script = |command: &str, timeout: u64| {
        let call = json!({ "tool": "Bash", "input": { "command": format!("{ASK}{command}"), "timeout": timeout } });
        format!("conversations:\n  - turns:\n      - calls: [{call}]\n      - say: done\n")
    };
    let hold = format!("open 127.0.0.1:{held}; read -r word <&3; echo $word;");
    for (end, timeout, said) in [
        ("exit 3", 60_000, "[exit code 3]"),
        ("kill -9 $$", 60_000, "[exit code 137]"),
        ("kill -15 $$", 60_000, "[exit code 143]"),
        ("sleep 1000", 1_000, "[timed out after 1000 ms"),
        ("setsid sleep 1000 >/dev/null 2>&1 & exit 4", 60_000, "[exit code 4]"),
    ] {
        let (out, records) = bench.run("reaches", &script(&format!("{hold} {end}"), timeout), &[]);
        out.code(0);
        let [(_, true, text)] = results(&records, "one")[..] else { panic!("{end}: {:?}", results(&records, "one")) };
        assert!(text.contains("held\n") && text.contains(said), "{end}: {text}");
        ended.recv().unwrap();
    }
    // What was in the way for this: nothing is left of it.
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("environ")).ok());
    let bench_path = bench.path("repo").display().to_string();
    assert_eq!(left.filter(|environment| environment.contains(&bench_path) && environment.contains("SPINNEY_COMMAND=")).count(), 0);
}

const AT_ONCE: usize = 16;
const BYTES: usize = 10_000_000;

#[test]
fn many_connections_and_many_bytes_go_through() {
    if !walls("much through the proxy") {
        return;
    }
    let together = std::sync::Barrier::new(AT_ONCE);
    let meeting = server(move |mut stream| {
        request(&stream);
        // Nobody is answered before all are there.
        together.wait();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall here\n");
    });
    let flood = server(|mut stream| {
        let mut count = 0;
        let mut buffer = vec![0; 1 << 16];
        while count < BYTES {
            count += stream.read(&mut buffer).unwrap();
        }
        let _ = stream.write_all(&vec![b'x'; BYTES]);
    });
    let bench = bench(&[&format!("127.0.0.1:{meeting}"), &format!("127.0.0.1:{flood}")]);
    let command = format!(
        "for i in $(seq {AT_ONCE}); do ask 'GET http://127.0.0.1:{meeting}/ HTTP/1.1' | tail -n +3 & done; wait
         open 127.0.0.1:{flood}; head -c {BYTES} /dev/zero >&3; wc -c <&3"
    );
    let (text, is_error, _) = told(&bench, &command);
    assert!(!is_error && text.matches("all here").count() == AT_ONCE && text.ends_with(&format!("{BYTES}\n")), "{text}");
}

/// How a client that speaks TLS asks for a host, for `printf`.
fn hello(host: &str) -> String {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), host.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// A proxy of the machine that leads nowhere: it answers plain requests with their text, and what comes over a connection with what asked for that and the count of its bytes.
fn upstream() -> u16 {
    server(|mut stream| {
        let text = request(&stream);
        if !text.starts_with("CONNECT") {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{text}");
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let mut buffer = vec![0; 1 << 16];
        let count = stream.read(&mut buffer).unwrap_or_default();
        let _ = writeln!(stream, "{text}{count} bytes");
    })
}

#[test]
fn names_go_by_the_users_proxy_and_are_those_that_are_asked_for() {
    if !walls("names by the user's proxy") {
        return;
    }
    let proxy = upstream();
    let bench = bench(&["Registry.example", "*.cdn.example", "git.example:2222"])
        .env("HTTPS_PROXY", &format!("http://me:word@127.0.0.1:{proxy}"))
        .env("HTTP_PROXY", &format!("127.0.0.1:{proxy}"));
    let (right, wrong) = (hello("registry.example"), hello("other.example"));
    let command = format!(
        "ask 'GET http://REGISTRY.example./a HTTP/1.1'; ask 'GET http://a.b.cdn.example/ HTTP/1.1' | head -1
         ask 'GET http://cdn.example/ HTTP/1.1' | head -1; ask 'GET http://registry.example:8080/ HTTP/1.1' | head -1
         open git.example:2222; printf 'SSH' >&3; cat <&3; echo
         open registry.example:443; printf '{right}' >&3; cat <&3; echo
         open registry.example:443; printf '{wrong}' >&3; cat <&3; echo
         open a.cdn.example:443; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; echo
         open git.example:2222; printf '{wrong}' >&3; cat <&3; echo"
    );
    let (text, ..) = told(&bench, &command);
    assert!(text.contains("GET http://registry.example/a HTTP/1.1\nHost: registry.example\nConnection: close\n"), "{text}");
    let length = right.len() / 4;
    for place in ["git.example:2222", "registry.example:443"] {
        let bytes = if place.ends_with("443") { length } else { 3 };
        let said = format!("CONNECT {place} HTTP/1.1\nHost: {place}\nProxy-Authorization: Basic bWU6d29yZA==\n\n{bytes} bytes\n");
        assert!(text.contains(&said), "{said}\n{text}");
    }
    assert_eq!((text.matches("CONNECT ").count(), text.matches("403 Forbidden").count(), text.matches("HTTP/1.1 200 OK").count()), (2, 2, 2), "{text}");
    let key = "not in agents.fetcher.sandbox.network";
    let refused = [
        format!("cdn.example: {key}"),
        format!("registry.example:8080: {key}"),
        "registry.example: over that connection TLS asks for other.example".to_owned(),
        "a.cdn.example: over that connection no TLS is spoken".to_owned(),
        "git.example:2222: over that connection TLS asks for other.example".to_owned(),
    ];
    let end: Vec<&str> = text.lines().filter(|line| line.starts_with("[the sandbox")).collect();
    assert_eq!(end, refused.map(|line| format!("[the sandbox refused {line}]")), "{text}");
}

#[test]
fn a_sub_agent_reaches_what_its_chief_reaches_too() {
    if !walls("the hosts of a sub-agent") {
        return;
    }
    let (both, own, chiefs) = (mirror(), mirror(), mirror());
    let workflow = format!(
        r#"
version: 1
name: hands
defaults: {{ model: anthropic/claude-haiku-5-5 }}
agents:
  chief: {{ system: You hand over., access: write, tools: [Agent], max_depth: 2, sandbox: {{ network: ["127.0.0.1:{both}", "127.0.0.1:{chiefs}"] }} }}
  fetcher: {{ system: You fetch., access: write, sandbox: {{ network: ["127.0.0.1:{own}", "127.0.0.1:{both}"] }} }}
steps:
  one: {{ agent: chief, prompt: "Go." }}
"#
    );
    let command: String = [both, own, chiefs].map(|port| format!("ask 'GET http://127.0.0.1:{port}/ HTTP/1.1' | head -1;")).concat();
    let call = json!({ "tool": "Bash", "input": { "command": format!("{ASK}{command}") } });
    let script = format!(
        "conversations:\n  - agent: chief\n    turns:\n      - calls: [{{ tool: Agent, input: {{ subagent_type: fetcher, description: fetch, prompt: fetch }} }}]\n      - say: done\n  - agent: fetcher\n    turns:\n      - calls: [{call}]\n      - - when: \"200 OK(.|\\\\s)*403 Forbidden(.|\\\\s)*403 Forbidden\"\n          say: it reached one\n        - say: it did not\n"
    );
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("hands", &workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    let (said, records) = bench.run("hands", &script, &[]);
    said.code(0);
    assert!(results(&records, "one")[0].2.contains("it reached one"), "{:?}", results(&records, "one"));
}

#[test]
fn a_plan_and_whoever_trusts_see_the_hosts_and_nobody_untrusted_reaches_them() {
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore");
    let bench = bench.workflow("reaches", &WORKFLOW.replace("HOSTS", r#"[PyPI.org, "*.cdn.example", "127.0.0.1:8080"]"#));
    let page = || bench.spinney(&["plan", "reaches"]).code(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page().contains("no network; nothing runs without it; what it opens is not trusted and stays shut"), "{}", page());
    let listed = bench.spinney(&["trust", "--yes"]).code(0);
    assert!(listed.out.contains("of the network PyPI.org, *.cdn.example, 127.0.0.1:8080 (agent fetcher)"), "{}", listed.out);
    assert!(page().contains("of the network pypi.org, *.cdn.example, 127.0.0.1:8080; nothing runs without it"), "{}", page());
    let planned: Value = serde_json::from_str(&bench.spinney(&["plan", "reaches", "--json"]).code(0).out).unwrap();
    assert_eq!(planned["steps"][0]["agent"]["sandbox"]["network"], json!(["pypi.org", "*.cdn.example", "127.0.0.1:8080"]));
}

#[test]
fn a_list_is_a_part_of_what_a_step_is() {
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore");
    let cached = WORKFLOW.replace("HOSTS }", "HOSTS, require: none }").replace("prompt: \"Go.\"", "prompt: \"Go.\", cache: { key: [a] }");
    let hits = |hosts: &str| {
        let file = bench.repo().join(".spinney/workflows/reaches.yaml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, cached.replace("HOSTS", hosts)).unwrap();
        bench.spinney(&["trust", "--yes"]).code(0);
        let (said, records) = bench.run("reaches", &runs("true"), &[]);
        said.code(0);
        records.iter().filter(|record| matches!(record.event, Event::CacheHit { .. })).count()
    };
    assert_eq!(["[a.org]", "[A.org.]", "[a.org, b.org]", "[a.org]", "full", "none"].map(hits), [0, 1, 0, 1, 0, 0]);
}

#[test]
fn a_trace_has_what_was_asked_for_and_what_came_of_it() {
    if !walls("the trace of hosts") {
        return;
    }
    let (collector, listed) = (Collector::start(), mirror());
    let bench = bench(&[&format!("127.0.0.1:{listed}")]).env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base);
    let script = bench.script(&runs(&format!("{ASK}ask 'GET http://127.0.0.1:{listed}/SECRETPATH HTTP/1.1'; ask 'GET http://elsewhere.example/ HTTP/1.1'")));
    let output = spinney(&bench, &["run", "reaches", "--script", &script]);
    assert!(output.status.success(), "{output:?}");
    let raw: String = collector.bodies().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect();
    assert!(["spinney.network", "server.address", "allowed", "elsewhere.example", "refused"].iter().all(|word| raw.contains(word)), "{raw}");
    assert!(!raw.contains("SECRETPATH"), "{raw}");
}

/// A server of tools whose one tool asks for two hosts.
const SERVER: &str = r#"#!/bin/bash
ask() { exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf "GET http://$1/ HTTP/1.1\r\n\r\n" >&3; read -r _ status _ <&3; echo $status; }
answer() { printf '%s\n' "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}' ;;
    *'"look"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"$(ask $1) $(ask $2)\"}]}" ;;
  esac
done
"#;

#[test]
fn a_server_of_tools_reaches_what_the_commands_of_its_agent_do() {
    if !walls("the hosts of a server of tools") {
        return;
    }
    let listed = mirror();
    let workflow = WORKFLOW.replace("HOSTS", &json!([format!("127.0.0.1:{listed}")]).to_string());
    let servers = format!("mcp_servers: {{ db: {{ command: ./db.sh, args: [\"127.0.0.1:{listed}\", elsewhere.example] }} }}\nagents:");
    let bench = Bench::new().executable("db.sh", SERVER).file(".gitignore", ".spinney/\n").commit("server");
    let bench = bench.workflow("reaches", &workflow.replace("agents:", &servers));
    bench.spinney(&["trust", "--yes"]).code(0);
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: mcp__db__look, input: {} }, { tool: mcp__db__look, input: {} }]\n      - say: done\n";
    let (said, records) = bench.run("reaches", script, &[]);
    said.code(0);
    let all = results(&records, "one");
    assert!(all.len() == 2 && all.iter().all(|(_, is_error, text)| !is_error && *text == "200 403"), "{all:?}");
}

#[test]
fn checks_and_setup_of_such_an_agent_reach_nothing() {
    if !walls("checks of an agent with hosts") {
        return;
    }
    let listed = mirror();
    let held = format!("test -z \"$http_proxy\" && ! (exec 4<>/dev/tcp/127.0.0.1/{listed}) 2>/dev/null");
    let step = format!("prompt: \"Go.\", verify: {{ run: [{}] }}, workspace: {{ setup: [{}] }}", json!(held), json!(held));
    let workflow = WORKFLOW.replace("HOSTS", &json!([format!("127.0.0.1:{listed}")]).to_string()).replace("prompt: \"Go.\"", &step);
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("reaches", &workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    let (text, ..) = told(&bench, &format!("ask 'GET http://127.0.0.1:{listed}/ HTTP/1.1'; echo > made.txt"));
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
}
