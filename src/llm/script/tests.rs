//! Scripts are read, matched and substituted as their files say.
use super::*;
use crate::{
    event::{NodeId, StepId},
    llm::{Ordinal, Silent},
    message::ToolResult,
};
use serde_json::json;

const SCRIPT: &str = r#"
window: 9000
conversations:
  - agent: coder
    told: "(?s)fix.*(?<file>src/\\w+\\.rs)"
    turns:
      - calls: [{tool: Read, input: {file_path: "${file}", lines: [1, "${file}:2"]}}]
        say: "reading ${file} in ${HOME}"
      - - when: "denied: (?<why>\\w+)"
          say: "no luck with ${file}: ${why}"
          stop: refusal
        - when: "never"
          say: x
        - calls: [{tool: Bash}, {tool: Bash, input: {command: "cat ${file}"}}]
      - say: '{"tasks": []}'
        stop: max_tokens
  - agent: /^review/
    turns:
      - say: fine
  - agent: stuck
    turns:
      - - {when: "nothing like it", say: x}
"#;

struct Asked {
    node: NodeId,
    messages: Vec<Arc<Message>>,
}

impl Asked {
    fn new(first: &str) -> Asked {
        Asked { node: NodeId::step(&StepId::from("s")), messages: vec![Arc::new(Message::user(first))] }
    }

    async fn ask(&self, script: &Script, agent: &str) -> Result<Reply, ModelError> {
        let models = ["anthropic/claude-x".to_owned()];
        let call = ModelCall {
            node: &self.node,
            ordinal: Ordinal::default(),
            agent,
            models: &models,
            effort: None,
            max_output_tokens: None,
            is_longest: false,
            prompt_tokens: 0,
            system: "system",
            tools: &[],
            provider_tools: &[],
            output_schema: None,
            must_answer: false,
            is_paused: false,
            container: None,
            messages: &self.messages,
        };
        script.reply(&call, &Silent).await
    }

    fn answer(&mut self, reply: &Reply, text: &str) {
        self.messages.push(Arc::new(reply.message().unwrap()));
        let results: Vec<ToolResult> = reply.calls().map(|call| ToolResult::new(&call.id, text, true)).collect();
        self.messages.push(Arc::new(if results.is_empty() { Message::user(text) } else { Message::results(&results, None) }));
    }
}

#[tokio::test]
async fn a_conversation_is_found_by_agent_and_told_and_repeats_what_it_was_shown() {
    let script = Script::parse("s.yaml", SCRIPT).unwrap();
    let mut asked = Asked::new("please fix\nsrc/lib.rs now");
    let first = asked.ask(&script, "coder").await.unwrap();
    assert_eq!(first.text(), "reading src/lib.rs in ${HOME}");
    assert_eq!(first.stop, StopReason::ToolUse);
    assert_eq!(first.model, "anthropic/claude-x");
    let calls: Vec<&ToolCall> = first.calls().collect();
    assert_eq!((calls[0].id.as_str(), &calls[0].input), ("call_0_0", &json!({"file_path": "src/lib.rs", "lines": [1, "src/lib.rs:2"]})));
    assert!(first.usage.input > 0 && first.usage.output > 0 && first.usd == Some(0.0));
    assert_eq!(asked.ask(&script, "coder").await.unwrap(), first, "it is stateless");

    asked.answer(&first, "denied: scope");
    let denied = asked.ask(&script, "coder").await.unwrap();
    assert_eq!((denied.text().as_str(), &denied.stop), ("no luck with src/lib.rs: scope", &StopReason::Refusal { category: String::new() }));

    *asked.messages.last_mut().unwrap() = Arc::new(Message::results(&[ToolResult::new("call_0_0", "fn main", false)], None));
    let second = asked.ask(&script, "coder").await.unwrap();
    let calls: Vec<(&str, &Value)> = second.calls().map(|call| (call.id.as_str(), &call.input)).collect();
    assert_eq!(calls, [("call_1_0", &json!({})), ("call_1_1", &json!({"command": "cat src/lib.rs"}))]);

    asked.answer(&second, "ok");
    let third = asked.ask(&script, "coder").await.unwrap();
    assert_eq!((third.text().as_str(), &third.stop), (r#"{"tasks": []}"#, &StopReason::MaxTokens));
    asked.answer(&third, "and now?");
    let error = asked.ask(&script, "coder").await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Script);
    assert!(error.message.contains("`coder`, turn 4") && error.message.contains("and now?"), "{error}");
}

#[tokio::test]
async fn a_pattern_may_begin_where_the_task_does() {
    let script =
        Script::parse("s.yaml", "conversations: [{ told: \"^plan$\", turns: [{ say: planned }] }, { told: \"^Skills\", turns: [{ say: listed }] }]").unwrap();
    let message = |task: &str| format!("Skills:\n- one\n\n<workspace>\nYou stand in /w\n</workspace>\n\n{task}");
    assert_eq!(Asked::new(&message("plan")).ask(&script, "x").await.unwrap().text(), "planned");
    assert_eq!(Asked::new(&message("plan more")).ask(&script, "x").await.unwrap().text(), "listed");
}

#[tokio::test]
async fn what_the_script_does_not_know_is_an_error() {
    let script = Script::parse("s.yaml", SCRIPT).unwrap();
    assert_eq!(Asked::new("x").ask(&script, "reviewer").await.unwrap().text(), "fine");
    for (agent, first) in [("coder", "fix it"), ("coder2", "fix src/lib.rs"), ("stuck", "hm")] {
        let error = Asked::new(first).ask(&script, agent).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Script, "{agent}");
    }
    assert_eq!((script.window("a/b"), script.is_scripted()), (9000, true));
}

#[tokio::test]
async fn a_function_may_stand_for_a_model() {
    let script = Script::from_fn(Box::new(|call| Ok(reply_to(call, "hi", &[("Read", json!({"file_path": "a"}))]))));
    let mut asked = Asked::new("x");
    let first = asked.ask(&script, "any").await.unwrap();
    asked.answer(&first, "ok");
    let second = asked.ask(&script, "any").await.unwrap();
    assert_eq!(first.calls().chain(second.calls()).map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_0_0", "call_1_0"]);
}

/// As in workflows and stubs: YAML 1.2.
#[test]
fn yes_and_no_are_text() {
    let script = "conversations: [{ turns: [{ calls: [{ tool: Write, input: { content: yes, flag: true, file_path: on, no: off } }] }] }]";
    let (conversations, _) = super::load::parse("s", script).unwrap();
    let input = &conversations[0].turns[0].0[0].calls[0].input;
    assert_eq!(input, &serde_json::json!({"content": "yes", "flag": true, "file_path": "on", "no": "off"}));
}

#[test]
fn a_script_that_is_wrong_says_where() {
    for (yaml, wanted) in [
        ("conversations:\n  - agent: a\n    turns:\n      - {sya: x}\n", "sya"),
        ("conversations:\n  - told: '('\n    turns: []\n", "regular expression"),
        ("conversations:\n  - agent: /(/\n    turns: []\n", "regular expression"),
        ("conversations:\n  - turns:\n      - text\n", "a list of alternatives"),
        ("conversation: []\n", "conversation"),
        ("conversations: [", ""),
    ] {
        let error = Script::parse("demo.yaml", yaml).unwrap_err().to_string();
        assert!(error.contains("demo.yaml") && error.contains(wanted), "{error}");
    }
    assert!(matches!(Script::parse("big", &" ".repeat(MAX_SCRIPT_BYTES + 1)), Err(LoadScriptError::TooLarge { .. })));
}

#[test]
fn filling_in_leaves_other_text_alone() {
    let groups: Groups = [("a".to_owned(), "${b}".to_owned()), ("b".to_owned(), String::new())].into();
    for (template, wanted) in [("${a}|${b}|${c}", "${b}||${c}"), ("${", "${"), ("$${a}${", "$${b}${"), ("é${a", "é${a"), ("${x${b}}", "${x}")] {
        assert_eq!(pattern::fill(template, &groups), wanted);
    }
}
