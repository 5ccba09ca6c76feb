//! What OpenAI Responses refuses of a stateless conversation.
use super::{Asked, hashed, is_blank, strange};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn problems(asked: &Asked) -> Vec<String> {
    let json = &asked.json;
    let known = [
        "model",
        "stream",
        "store",
        "include",
        "reasoning",
        "max_output_tokens",
        "text",
        "tools",
        "instructions",
        "prompt_cache_key",
        "input",
        "tool_choice",
        "service_tier",
    ];
    let mut problems = strange(json, &known, "body");
    if json["store"] != false {
        problems.push("store is not false".to_owned());
    }
    if json["max_output_tokens"].as_u64().is_some_and(|tokens| tokens < 16) {
        problems.push("max_output_tokens: integer below minimum value, expected a value >= 16".to_owned());
    }
    let runs_code = json["tools"].as_array().into_iter().flatten().any(|tool| tool["type"] == "code_interpreter");
    if runs_code && !json["include"].as_array().into_iter().flatten().any(|word| word == "code_interpreter_call.outputs") {
        problems.push("what code prints is not asked for, and nothing is stored".to_owned());
    }
    if !asked.headers.get("authorization").is_some_and(|value| value.starts_with("Bearer ")) {
        problems.push("there is no key".to_owned());
    }
    for tool in json["tools"].as_array().into_iter().flatten() {
        if tool["type"] == "function" && (tool["parameters"]["type"] != "object" || !tool["strict"].is_boolean()) {
            problems.push("a tool's parameters are not of an object, or it does not say how strict they are".to_owned());
        }
    }
    let items = json["input"].as_array().cloned().unwrap_or_default();
    problems.extend(pairing(&items));
    for (n, item) in items.iter().enumerate() {
        let mut problem = |what: &str| problems.push(format!("input[{n}]: {what}"));
        match (item["type"].as_str(), item["role"].as_str()) {
            (None | Some("message"), Some("user")) => {
                let parts = item["content"].as_array().cloned().unwrap_or_default();
                if parts.is_empty() || parts.iter().any(|part| part["type"] != "input_text" || is_blank(&part["text"])) {
                    problem("empty text, or another part than text");
                }
            }
            (Some("function_call"), _) if item["arguments"].is_string() && item["name"].is_string() => {}
            (Some("function_call_output"), _) if !is_blank(&item["output"]) => {}
            (Some("reasoning"), _) => {
                let content = item["encrypted_content"].as_str().unwrap_or_default();
                if content.is_empty() {
                    problem("Item 'rs' not found. Items are not persisted when `store` is set to false");
                }
                if content.starts_with("bound-") && content != sign(json, n) {
                    problem("reasoning is bound to a different conversation");
                }
                let follows = items.get(n + 1).is_some_and(|next| next["role"] != "user" && next["type"] != "function_call_output");
                if !follows {
                    problem("reasoning was provided without its required following item");
                }
            }
            (Some("message"), Some("assistant")) | (Some("web_search_call" | "code_interpreter_call"), _) => {}
            (kind, role) => problem(&format!("not an item: {kind:?} {role:?}")),
        }
    }
    problems
}

fn pairing(items: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let ids = |kind: &str| items.iter().filter(|item| item["type"] == kind).map(|item| item["call_id"].as_str().unwrap_or_default().to_owned()).collect();
    let (calls, outputs): (Vec<String>, Vec<String>) = (ids("function_call"), ids("function_call_output"));
    let (called, answered): (BTreeSet<&String>, BTreeSet<&String>) = (calls.iter().collect(), outputs.iter().collect());
    problems.extend(called.difference(&answered).map(|id| format!("No tool output found for function call {id}.")));
    problems.extend(answered.difference(&called).map(|id| format!("No tool call found for function call output with call_id {id}.")));
    if called.len() < calls.len() || answered.len() < outputs.len() || called.iter().any(|id| id.is_empty()) {
        problems.push("call_ids must be unique".to_owned());
    }
    problems
}

/// Signs what stands before the item with this number.
pub(super) fn sign(json: &Value, items: usize) -> String {
    let head = [&json["model"], &json["tools"], &json["instructions"]].map(Clone::clone);
    hashed(head.into_iter().chain(json["input"].as_array().cloned().unwrap_or_default().into_iter().take(items)))
}
