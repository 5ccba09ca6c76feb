//! What the real servers refuse, checked on every request.
mod gemini;
mod responses;

use super::{Asked, Spoken};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Returns what a request would be refused for.
pub(super) fn problems(asked: &Asked) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            problems.push(what.to_owned());
        }
    };
    let json = &asked.json;
    check(json.is_object(), "the body is not a JSON object");
    check(asked.headers.get("content-type").is_some_and(|value| value == "application/json"), "content-type is not application/json");
    if asked.spoken() != Spoken::Gemini {
        check(json["stream"] == true, "stream is not true");
        check(json["model"].as_str().is_some_and(|model| !model.is_empty()), "there is no model");
    }
    let samples = ["temperature", "top_p", "top_k", "topP", "topK"].iter().any(|word| json.get(word).or(json["generationConfig"].get(word)).is_some());
    check(!samples || !refuses(asked, Refused::Sampling), "a sampling parameter is sent");
    let forces = |choice: &Value| choice.is_object() || matches!(choice.as_str(), Some("any" | "required" | "ANY"));
    let is_forced = forces(&json["tool_choice"]) || forces(&json["toolConfig"]["functionCallingConfig"]["mode"]);
    check(!is_forced || !refuses(asked, Refused::Force), "a call is forced");
    let is_off = json["thinking"]["type"] == "disabled" || json["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 0;
    check(!is_off || !refuses(asked, Refused::NoThinking), "a model that always thinks is told not to");
    let names: Vec<&str> = tools(json).iter().filter_map(|tool| tool["name"].as_str()).collect();
    check(names.iter().collect::<BTreeSet<_>>().len() == names.len(), "two tools have the same name");
    let own = match asked.spoken() {
        Spoken::Messages => anthropic(asked),
        Spoken::Responses => responses::problems(asked),
        Spoken::Chat => chat(json),
        Spoken::Gemini => gemini::problems(asked),
    };
    problems.into_iter().chain(own).collect()
}

/// What some models refuse.
#[derive(Clone, Copy)]
enum Refused {
    Sampling,
    Force,
    NoThinking,
}

/// Returns whether the model that a request is for refuses it; those that nobody knows refuse all of it.
fn refuses(asked: &Asked, what: Refused) -> bool {
    let in_path = asked.path.split(['/', ':']).find(|part| part.starts_with("gemini")).unwrap_or_default();
    let model = asked.json["model"].as_str().unwrap_or(in_path);
    let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
    let is_older = asked.headers.get("anthropic-version").is_some_and(|version| version == "2023-06-01");
    match what {
        Refused::Sampling => !is(&["qwen", "gemini-2", "gpt-4"]) && (!is_older || !is(&["haiku-4-5", "sonnet-4-6"])),
        // With thinking no call may be forced.
        Refused::Force if asked.json["thinking"]["type"] == "adaptive" => true,
        Refused::Force => !is(&["haiku-5-5", "haiku-4-5", "opus-4-1", "claude-opus-5", "gpt-", "gemini-"]) || is(&["opus-5-5"]),
        Refused::NoThinking => !is(&["haiku-5-5", "gemini-2.5-flash"]),
    }
}

/// Returns whether a model takes back its thinking only after exactly what came before it.
fn binds(json: &Value) -> bool {
    let model = json["model"].as_str().unwrap_or_default();
    !["claude-opus-5", "claude-sonnet-5", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4"].iter().any(|name| model.contains(name))
        || model.contains("-5-5")
}

/// Returns the tools that a request declares, in whatever form.
fn tools(json: &Value) -> Vec<&Value> {
    let all = json["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .flat_map(|tool| tool["functionDeclarations"].as_array().map_or_else(|| vec![tool.get("function").unwrap_or(tool)], |of| of.iter().collect()))
        .collect()
}

/// Returns the keys of an object that are none of these.
fn strange(value: &Value, known: &[&str], place: &str) -> Vec<String> {
    let keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter(|key| !known.contains(&key.as_str())).map(|key| format!("{place}: unknown field {key}")).collect()
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn anthropic(asked: &Asked) -> Vec<String> {
    let json = &asked.json;
    let mut problems = Vec::new();
    let known = [
        "model",
        "max_tokens",
        "stream",
        "thinking",
        "output_config",
        "tools",
        "system",
        "messages",
        "tool_choice",
        "stop_sequences",
        "metadata",
        "container",
        "temperature",
        "top_k",
    ];
    problems.extend(strange(json, &known, "body"));
    if asked.headers.get("anthropic-version").is_none_or(|version| version != "2026-10-21" && version != "2023-06-01") {
        problems.push("the version header is missing or another".to_owned());
    }
    if !asked.headers.contains_key("x-api-key") && !asked.headers.contains_key("authorization") {
        problems.push("there is no key".to_owned());
    }
    if json["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        problems.push("max_tokens is missing".to_owned());
    }
    if let Some(kind) = json["thinking"]["type"].as_str().filter(|kind| !matches!(*kind, "adaptive" | "disabled")) {
        problems.push(format!("thinking.type {kind} is refused"));
    }
    for tool in json["tools"].as_array().into_iter().flatten() {
        if tool.get("type").is_none() && tool["input_schema"]["type"] != "object" {
            problems.push("a tool's schema is not of an object".to_owned());
        }
    }
    if json.to_string().matches("\"cache_control\"").count() > 4 {
        problems.push("more than four cache marks".to_owned());
    }
    problems.extend(anthropic_messages(json));
    problems.extend(binding(json));
    problems
}

fn anthropic_messages(json: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let messages = json["messages"].as_array().cloned().unwrap_or_default();
    let mut ids = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let is_user = message["role"] == "user";
        if is_user != (n % 2 == 0) {
            problems.push(format!("messages.{n}: roles do not alternate from the user on"));
        }
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        if blocks.is_empty() {
            problems.push(format!("messages.{n}: no content"));
        }
        let results: Vec<String> =
            blocks.iter().filter(|block| block["type"] == "tool_result").map(|block| block["tool_use_id"].as_str().unwrap_or_default().to_owned()).collect();
        if is_user {
            let mut wanted = std::mem::take(&mut open);
            let mut given = results.clone();
            wanted.sort();
            given.sort();
            if wanted != given {
                problems.push(format!("messages.{n}: results {given:?} for calls {wanted:?}"));
            }
            if !blocks.iter().take(results.len()).all(|block| block["type"] == "tool_result") {
                problems.push(format!("messages.{n}: results are not first"));
            }
        } else if !results.is_empty() {
            problems.push(format!("messages.{n}: the assistant gives results"));
        }
        let is_thinking = |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        if !is_user && blocks.last().is_some_and(is_thinking) {
            problems.push(format!("messages.{n}: The final block in an assistant message cannot be `thinking`"));
        }
        // A turn that goes on may hold a call of the provider's tool without its result, or where one of ours was called too.
        if !is_user && n + 1 < messages.len() && !blocks.iter().any(|block| block["type"] == "tool_use") {
            let is_answered = |id: &Value| blocks.iter().any(|block| block["tool_use_id"] == *id);
            for asked in blocks.iter().filter(|block| block["type"] == "server_tool_use" && !is_answered(&block["id"])) {
                problems.push(format!("messages.{n}: `{}` tool use with id `{}` was found without its result", asked["name"], asked["id"]));
            }
        }
        for block in &blocks {
            match block["type"].as_str() {
                Some("thinking") if is_blank(&block["signature"]) => problems.push(format!("messages.{n}: thinking without a signature")),
                Some("text") if is_blank(&block["text"]) => problems.push(format!("messages.{n}: empty text")),
                Some("tool_result") if is_blank(&block["content"]) => problems.push(format!("messages.{n}: empty result")),
                Some("thinking") if block.get("cache_control").is_some() => problems.push(format!("messages.{n}: a mark on thinking")),
                Some("tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if id.is_empty() || !ids.insert(id.clone()) {
                        problems.push(format!("messages.{n}: `tool_use` ids must be unique: {id}"));
                    }
                    if !block["input"].is_object() {
                        problems.push(format!("messages.{n}: an input is not an object"));
                    }
                    open.push(id);
                }
                Some(_) => {}
                None => problems.push(format!("messages.{n}: a block without type")),
            }
        }
    }
    if !open.is_empty() {
        problems.push(format!("calls without results: {open:?}"));
    }
    problems
}

/// Signs what thinking in the reply to a request would be bound to: everything before it, cache marks aside.
pub(super) fn signature(asked: &Asked) -> String {
    match asked.spoken() {
        Spoken::Messages | Spoken::Chat => sign(&asked.json, usize::MAX),
        Spoken::Responses => responses::sign(&asked.json, usize::MAX),
        Spoken::Gemini => gemini::sign(&asked.json, usize::MAX),
    }
}

fn sign(json: &Value, blocks: usize) -> String {
    let before: Vec<Value> = flattened(json).into_iter().take(blocks).map(|(role, block)| serde_json::json!([role, unmarked(&block)])).collect();
    hashed([&json["model"], &json["tools"], &json["system"]].map(unmarked).into_iter().chain(before))
}

fn hashed(parts: impl Iterator<Item = Value>) -> String {
    let mut hasher = DefaultHasher::new();
    parts.for_each(|part| part.to_string().hash(&mut hasher));
    format!("bound-{:016x}", hasher.finish())
}

fn flattened(json: &Value) -> Vec<(String, Value)> {
    let messages = json["messages"].as_array().cloned().unwrap_or_default();
    let with_role = |message: Value| {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        message["content"].as_array().cloned().unwrap_or_default().into_iter().map(move |block| (role.clone(), block))
    };
    messages.into_iter().flat_map(with_role).collect()
}

fn unmarked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().filter(|(key, _)| *key != "cache_control").map(|(key, value)| (key.clone(), unmarked(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(unmarked).collect()),
        other => other.clone(),
    }
}

fn binding(json: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (n, (_, block)) in flattened(json).into_iter().enumerate().filter(|_| binds(json)) {
        let signature = block["signature"].as_str().unwrap_or_default();
        if signature.starts_with("bound-") && signature != sign(json, n) {
            problems.push(format!("block {n}: Invalid `signature` in `thinking` block. The block is bound to a different conversation"));
        }
    }
    problems
}

fn chat(json: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if json["stream_options"]["include_usage"] != true {
        problems.push("usage is not asked for".to_owned());
    }
    let messages = json["messages"].as_array().cloned().unwrap_or_default();
    let mut ids = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|open| open == id) {
                Some(at) => drop(open.remove(at)),
                None => problems.push(format!("messages.{n}: a result for no call: {id}")),
            }
        } else if !open.is_empty() {
            problems.push(format!("messages.{n}: calls without results: {open:?}"));
        }
        match role {
            "system" if n > 0 => problems.push(format!("messages.{n}: system is not first")),
            "system" | "user" | "tool" if is_blank(&message["content"]) => problems.push(format!("messages.{n}: empty content")),
            "system" | "user" | "tool" => {}
            "assistant" => {
                if n > 0 && messages[n - 1]["role"] == "assistant" {
                    problems.push(format!("messages.{n}: roles do not alternate"));
                }
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                if message.get("tool_calls").is_some() && calls.is_empty() {
                    problems.push(format!("messages.{n}: empty tool_calls"));
                }
                if calls.is_empty() && is_blank(&message["content"]) {
                    problems.push(format!("messages.{n}: neither content nor calls"));
                }
                for call in calls {
                    let id = call["id"].as_str().unwrap_or_default().to_owned();
                    if id.is_empty() || !ids.insert(id.clone()) {
                        problems.push(format!("messages.{n}: ids must be unique: {id}"));
                    }
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                        problems.push(format!("messages.{n}: arguments are not a JSON object: {arguments}"));
                    }
                    open.push(id);
                }
            }
            other => problems.push(format!("messages.{n}: role {other}")),
        }
    }
    if !open.is_empty() {
        problems.push(format!("calls without results at the end: {open:?}"));
    }
    problems
}
