//! Servers as shell scripts: real processes, real pipes.
use super::*;
use crate::{
    clock::Clock,
    sandbox::{Confinement, Options, Program},
};
use std::{fs, path::Path};

const LONG: Duration = Duration::from_mins(1);

/// A server that answers by method; `more` are cases of its own, with the request's number in `$id`.
fn script(more: &str) -> String {
    format!(
        r#"say() {{ printf '%s\n' "$1"; }}
answer() {{ say "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}}"; }}
while read -r line; do
  printf '%s\n' "$line" >> heard
  id=${{line#*\"id\":}}; id=${{id%%,*}}
  case $line in
{more}
    *'"initialize"'*) answer '{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}}}}' ;;
    *'"cursor":"2"'*) answer '{{"tools":[{{"name":"add","inputSchema":{{"type":"object"}}}}]}}' ;;
    *'"tools/list"'*) answer '{{"tools":[{{"name":"look","annotations":{{"readOnlyHint":true}}}}],"nextCursor":"2"}}' ;;
    *'"arguments":{{"ask":true}}'*) say '{{"jsonrpc":"2.0","id":"r","method":"roots/list"}}'; read -r roots; printf '%s\n' "$roots" >> heard; answer '{{"content":[]}}' ;;
    *'"arguments":{{"die":true}}'*) echo "out of cheese" >&2; exit 7 ;;
    *'"arguments":{{"hang":true}}'*) ;;
    *'"arguments":{{"wrong":true}}'*) say "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{{\"code\":-32602,\"message\":\"no such tool\"}}}}" ;;
    *'"tools/call"'*) answer '{{"content":[{{"type":"text","text":"42"}}]}}' ;;
  esac
done"#
    )
}

fn launch(folder: &Path, script: String) -> Launch {
    let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("SPINNEY", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = Request {
        program: Program::Shell(script),
        cwd: folder.to_owned(),
        env: env.into(),
        stdin: Vec::new(),
        timeout: LONG,
        output_cap: 4096,
        confine: Confinement::None,
    };
    Launch { name: "db".to_owned(), reach: Reach::Process(request), root: folder.to_owned(), start_timeout: LONG }
}

async fn started(folder: &Path, more: &str) -> Result<Server, McpError> {
    let sandbox = Sandbox::new(Options::default()).unwrap();
    Server::start(&sandbox, launch(folder, script(more)), &CancellationToken::new()).await
}

async fn called(server: &Server, input: Value, limit: Duration) -> Result<Answer, McpError> {
    server.call("add", &input, limit, &CancellationToken::new()).await
}

fn heard(folder: &Path) -> String {
    fs::read_to_string(folder.join("heard")).unwrap_or_default()
}

/// Looks at what a server has heard until it holds something; the server is another process.
async fn hears(folder: &Path, text: &str) -> bool {
    let clock = Clock::system();
    let late = clock.now().after(LONG);
    while !heard(folder).contains(text) && clock.now() < late {
        tokio::task::yield_now().await;
    }
    heard(folder).contains(text)
}

#[tokio::test]
async fn a_server_tells_its_tools_page_by_page_and_does_calls() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "").await.unwrap();
    let offers: Vec<(&str, &str, bool)> = server.offers().iter().map(|offer| (offer.spec.name.as_str(), offer.own.as_str(), offer.only_reads)).collect();
    assert_eq!(offers, [("mcp__db__add", "add", false), ("mcp__db__look", "look", true)]);
    let answer = called(&server, json!({"a": 1}), LONG).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.is_error), ("42", false));
    let refused = called(&server, json!({"wrong": true}), LONG).await.unwrap_err();
    assert_eq!(refused.to_string(), "have `tools/call` done by the server `db`: no such tool (-32602)");
    let asked = called(&server, json!({"ask": true}), LONG).await.unwrap();
    assert_eq!(asked.text, "");
    assert!(heard(folder.path()).contains(&format!("file://{}", folder.path().display())));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_taken_back_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "").await.unwrap();
    let late = called(&server, json!({"hang": true}), Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(late, McpError::NoAnswer { .. }), "{late}");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let stopped = server.call("add", &json!({"hang": true}), LONG, &cancel).await.unwrap_err();
    assert!(matches!(stopped, McpError::Cancelled { .. }), "{stopped}");
    assert_eq!(called(&server, json!({}), LONG).await.unwrap().text, "42");
    let taken_back = heard(folder.path()).matches("notifications/cancelled").count();
    assert_eq!(taken_back, 2, "{}", heard(folder.path()));
}

#[tokio::test]
async fn whoever_waits_for_a_server_that_dies_is_told_its_last_words_and_so_is_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "").await.unwrap();
    let (hung, died) = tokio::join!(called(&server, json!({"hang": true}), LONG), called(&server, json!({"die": true}), LONG));
    for error in [hung.unwrap_err(), died.unwrap_err(), called(&server, json!({}), LONG).await.unwrap_err()] {
        assert_eq!(error.to_string(), "talk with the server `db`: it has ended: out of cheese");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let old = started(folder.path(), r#"    *'"initialize"'*) answer '{"protocolVersion":"1999-01-01"}' ;;"#).await.unwrap_err();
    assert!(old.to_string().starts_with("understand the server `db`: it speaks the version `1999-01-01`"), "{old}");
    let broken = started(folder.path(), r#"    *'"initialize"'*) echo "no configuration" >&2; exit 1 ;;"#).await.unwrap_err();
    assert!(broken.to_string().ends_with("it has ended: no configuration"), "{broken}");
    let endless = started(folder.path(), r#"    *'"tools/list"'*) answer '{"tools":[],"nextCursor":"again"}' ;;"#).await.unwrap_err();
    assert!(endless.to_string().ends_with("more than 100 pages"), "{endless}");
    let sandbox = Sandbox::new(Options::default()).unwrap();
    let mut missing = launch(folder.path(), String::new());
    let Reach::Process(request) = &mut missing.reach else { panic!("it is a process") };
    request.program = Program::Exec { program: "no-such-server".into(), args: Vec::new() };
    let missing = Server::start(&sandbox, missing, &CancellationToken::new()).await.unwrap_err();
    assert!(missing.to_string().ends_with("find the program `no-such-server`"), "{missing}");
}

#[tokio::test]
async fn a_server_ends_when_it_is_dropped_and_with_all_that_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let more = r#"    *'"initialize"'*) (trap "echo ended >> heard" TERM; echo set >> heard; while :; do sleep 0.05; done) & until grep -q set heard; do :; done; answer '{"protocolVersion":"2025-11-25","capabilities":{}}' ;;"#;
    let server = started(folder.path(), more).await.unwrap();
    assert!(server.offers().is_empty());
    drop(server);
    assert!(hears(folder.path(), "ended").await);
}
