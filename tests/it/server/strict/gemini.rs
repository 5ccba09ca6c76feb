//! What Gemini refuses of a conversation.
use super::{Asked, hashed, is_blank, strange, tools};
use serde_json::Value;

pub(super) fn problems(asked: &Asked) -> Vec<String> {
    let json = &asked.json;
    let mut problems = strange(json, &["generationConfig", "tools", "toolConfig", "systemInstruction", "contents"], "body");
    let config = ["maxOutputTokens", "thinkingConfig", "responseMimeType", "responseJsonSchema", "temperature", "topK", "seed"];
    problems.extend(strange(&json["generationConfig"], &config, "generationConfig"));
    if !asked.headers.contains_key("x-goog-api-key") && !asked.headers.contains_key("authorization") {
        problems.push("there is no key".to_owned());
    }
    if !asked.path.ends_with(":streamGenerateContent?alt=sse") {
        problems.push(format!("no stream of events is asked for: {}", asked.path));
    }
    if tools(json).iter().any(|tool| tool.get("name").is_some() && tool["parametersJsonSchema"]["type"] != "object") {
        problems.push("a tool's parameters are not of an object".to_owned());
    }
    let level = json["generationConfig"]["thinkingConfig"]["thinkingLevel"].as_str();
    if level.is_some_and(|level| !["MINIMAL", "LOW", "MEDIUM", "HIGH"].contains(&level)) {
        problems.push(format!("Invalid value at 'generation_config.thinking_config.thinking_level': {level:?}"));
    }
    let schemas = tools(json).into_iter().map(|tool| &tool["parametersJsonSchema"]).chain([&json["generationConfig"]["responseJsonSchema"]]);
    problems.extend(schemas.flat_map(|schema| refused_words(schema).into_iter().map(|word| format!("Unknown name \"{word}\" in a schema"))));
    let contents = json["contents"].as_array().cloned().unwrap_or_default();
    for (n, content) in contents.iter().enumerate() {
        let mut problem = |what: &str| problems.push(format!("contents[{n}]: {what}"));
        let is_user = content["role"] == "user";
        if is_user != (n % 2 == 0) {
            problem("roles do not alternate from the user on");
        }
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        if parts.is_empty() {
            problem("no parts");
        }
        let calls = contents.get(n.wrapping_sub(1)).filter(|_| is_user).map_or_else(Vec::new, |before| named(before, "functionCall"));
        let responses = named(content, "functionResponse");
        if is_user && calls != responses {
            problem(&format!("responses {responses:?} for calls {calls:?}"));
        }
        for part in &parts {
            let kinds = ["text", "functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"];
            let signature = part["thoughtSignature"].as_str().unwrap_or_default();
            if kinds.iter().filter(|kind| part.get(**kind).is_some()).count() != 1 {
                problem("a part that is not one thing");
            }
            if part.get("text").is_some_and(is_blank) && signature.is_empty() {
                problem("empty text");
            }
            if part.get("functionCall").is_some_and(|call| !call["args"].is_object()) {
                problem("arguments are not an object");
            }
            if signature.starts_with("bound-") && signature != sign(json, n) {
                problem("Corrupted thought signature.");
            }
        }
        let first_call = parts.iter().find(|part| part.get("functionCall").is_some());
        if first_call.is_some_and(|call| call.get("thoughtSignature").is_none()) {
            problem("Function call is missing a thought_signature");
        }
    }
    problems
}

/// Returns the words of a schema that are refused.
fn refused_words(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (word, value) in schema.as_object().into_iter().flatten() {
        match (word.as_str(), value) {
            ("const" | "default" | "allOf" | "not" | "if" | "$schema" | "pattern" | "uniqueItems", _) => found.push(word.clone()),
            ("properties" | "$defs", Value::Object(schemas)) => found.extend(schemas.values().flat_map(refused_words)),
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => found.extend(schemas.iter().flat_map(refused_words)),
            ("items" | "additionalProperties", schema) => found.extend(refused_words(schema)),
            _ => {}
        }
    }
    found
}

/// Returns the names and ids of the calls or responses in a content.
fn named(content: &Value, kind: &str) -> Vec<(String, Value)> {
    let parts = content["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part.get(kind)).map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), one["id"].clone())).collect()
}

/// Signs what stands before the content with this number.
pub(super) fn sign(json: &Value, contents: usize) -> String {
    let head = [&json["tools"], &json["systemInstruction"]].map(Clone::clone);
    hashed(head.into_iter().chain(json["contents"].as_array().cloned().unwrap_or_default().into_iter().take(contents)))
}
