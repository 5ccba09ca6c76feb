//! The models that a provider says it has, asked for without asking any of them: it costs nothing.
use super::{
    Endpoint, ModelError, ModelErrorKind, Protocol, Target,
    fault::{Fault, RetryHints},
    provider::headers,
};
use crate::{
    clock::Clock,
    http::{Client, HttpRequest, Timeouts},
};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// More pages than any provider has.
const PAGES: usize = 20;
/// What is read of a page at most, in bytes: gateways list hundreds of models, each with much about it.
const PAGE_CAP: usize = 8 * 1024 * 1024;
/// Whoever asks waits for the answer.
const PATIENCE: Timeouts = Timeouts { first_byte: Duration::from_secs(20), idle: Duration::from_secs(20) };

/// Asks for the ids of a provider's models. That they come shows that the provider is there; whether it takes the key,
/// [`takes_key`] finds out.
///
/// # Errors
/// As a request to a model, but at once: nothing is tried again. `UnknownModel` where the provider has no such list.
pub async fn fetch_models(client: &Client, endpoint: &Endpoint, clock: &Clock) -> Result<BTreeSet<String>, ModelError> {
    let target = Target { endpoint, model: "models" };
    let mut names = BTreeSet::new();
    let mut next = String::new();
    for _ in 0..PAGES {
        let text = get(client, target, &format!("{}{next}", url(endpoint)), clock).await?;
        let page: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(list) = page["data"].as_array().or_else(|| page["models"].as_array()) else {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("{}: what it answers is no list of models", target.label())));
        };
        let name = |model: &Value| model["id"].as_str().or_else(|| model["name"].as_str()).map(|name| name.trim_start_matches("models/").to_owned());
        names.extend(list.iter().filter_map(name));
        match behind(&page) {
            Some(more) => next = more,
            None => break,
        }
    }
    Ok(names)
}

/// Returns whether a provider that has listed its models is seen to take the key. Who lists them for everybody (`OpenRouter`, many
/// gateways) looks at no key for that: then that one's word on the key itself is asked for.
///
/// # Errors
/// As `fetch_models`, where that word is that it is none.
pub async fn takes_key(client: &Client, endpoint: &Endpoint, clock: &Clock) -> Result<bool, ModelError> {
    let is_of_key = |name: &str| ["authorization", "x-api-key", "x-goog-api-key"].iter().any(|key| name.eq_ignore_ascii_case(key));
    let headers = endpoint.headers.iter().filter(|(name, _)| !is_of_key(name)).cloned().collect();
    let keyless = Endpoint { key: None, headers, ..endpoint.clone() };
    if let Err(error) = get(client, Target { endpoint: &keyless, model: "models" }, &url(&keyless), clock).await {
        return Ok(error.kind == ModelErrorKind::Unauthorized);
    }
    match get(client, Target { endpoint, model: "key" }, &format!("{}/key", endpoint.base_url), clock).await {
        Ok(text) => Ok(serde_json::from_str::<Value>(&text).is_ok_and(|told| told["data"].is_object())),
        Err(error) if error.kind == ModelErrorKind::Unauthorized => Err(error),
        Err(_) => Ok(false),
    }
}

/// Gets what stands at an address of the provider's.
async fn get(client: &Client, target: Target<'_>, url: &str, clock: &Clock) -> Result<String, ModelError> {
    let request = HttpRequest { url: url.to_owned(), headers: asked_with(target.endpoint), body: Vec::new() };
    let response = client.get(&request, PATIENCE).await.map_err(|error| Fault::of_transport(&error, target).error)?;
    let status = response.status();
    if !(200..300).contains(&status) {
        let hints = RetryHints::of(&response, clock.now());
        return Err(Fault::of_answer(status, &hints, &response.error_text().await, target).error);
    }
    match response.text(PAGE_CAP).await {
        (_, Some(error)) => Err(Fault::of_transport(&error, target).error),
        (text, None) => Ok(text),
    }
}

/// Returns whether a model is among those listed: by its own name, or by one that only adds a date or a tag.
pub fn lists(listed: &BTreeSet<String>, model: &str) -> bool {
    // `20261001` or `2026-10-01`.
    let is_date = |text: &str| text.chars().filter(char::is_ascii_digit).count() == 8 && matches!(text.len(), 8 | 10);
    let same = |name: &String| {
        let rest = name.strip_prefix(model).and_then(|rest| rest.strip_prefix(['-', '@', ':']));
        name == model || rest.is_some_and(|rest| rest == "latest" || is_date(rest))
    };
    listed.iter().any(same)
}

fn url(endpoint: &Endpoint) -> String {
    let base = &endpoint.base_url;
    match endpoint.protocol {
        Protocol::Anthropic => format!("{}/v1/models?limit=1000", base.strip_suffix("/v1").unwrap_or(base)),
        Protocol::OpenAiResponses | Protocol::OpenAiChat => format!("{base}/models"),
        Protocol::Gemini => format!("{base}/models?pageSize=1000"),
    }
}

fn asked_with(endpoint: &Endpoint) -> Vec<(String, String)> {
    let mut headers = match endpoint.protocol {
        Protocol::Anthropic => headers(endpoint, &[("anthropic-version", super::anthropic::VERSION)], "x-api-key"),
        Protocol::OpenAiResponses | Protocol::OpenAiChat => headers(endpoint, &[], "authorization"),
        Protocol::Gemini => headers(endpoint, &[], "x-goog-api-key"),
    };
    headers.retain(|(name, _)| name != "content-type" && name != "accept");
    headers
}

/// Returns what the address of the next page ends with.
fn behind(page: &Value) -> Option<String> {
    if page["has_more"] == true {
        return page["last_id"].as_str().map(|id| format!("&after_id={}", escaped(id)));
    }
    page["nextPageToken"].as_str().filter(|token| !token.is_empty()).map(|token| format!("&pageToken={}", escaped(token)))
}

/// Writes a text as a part of an address (RFC 3986, 2.3: all but the unreserved characters are escaped).
fn escaped(text: &str) -> String {
    let one = |byte: u8| if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_page_is_named_whatever_its_letters() {
        let page = |page: &str| behind(&serde_json::from_str(page).unwrap());
        assert_eq!(page(r#"{"nextPageToken": "a+b/c==&x"}"#).unwrap(), "&pageToken=a%2Bb%2Fc%3D%3D%26x");
        assert_eq!(page(r#"{"has_more": true, "last_id": "m-1"}"#).unwrap(), "&after_id=m-1");
        assert_eq!(page(r#"{"has_more": false, "last_id": "m-1", "nextPageToken": ""}"#), None);
    }

    #[test]
    fn a_model_is_found_under_a_dated_or_tagged_name() {
        let listed: BTreeSet<String> = ["claude-opus-5-5-20261001", "qwen3:latest", "gpt-6", "gpt-4o-2024-08-06"].map(str::to_owned).into();
        for (model, found) in [("claude-opus-5-5", true), ("claude-opus-5", false), ("qwen3", true), ("gpt-6", true), ("gpt-4o", true), ("gpt", false)] {
            assert_eq!(lists(&listed, model), found, "{model}");
        }
    }
}
