//! Why an attempt failed, and whether and when another makes sense.
//!
//! Stop, wait or repair ([`Class`]): an answer that waiting does not mend ends the call at once. The provider's own word
//! (`x-should-retry`, `retry-after`) goes before ours.
mod words;

use super::{Class, ModelError, ModelErrorKind, Target, limiter::Limits, moment};
use crate::{
    clock::Timestamp,
    event::because,
    http::{HttpError, HttpResponse},
};
use serde_json::Value;
use std::time::Duration;
pub(super) use words::room;

/// What is shown of a provider's message at most, in characters.
const MESSAGE_CAP: usize = 400;
/// Waits beyond this are taken for nonsense; a limit by the month is none.
const SANE_WAIT: Duration = Duration::from_hours(24 * 366);

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is told if it was the last.
    pub(super) error: ModelError,
    /// Whether another attempt makes sense.
    pub(super) retry: bool,
    /// How long the provider asks to wait.
    pub(super) wait: Option<Duration>,
    /// Set where there is too much to do, so that it is to be asked less.
    pub(super) crowded: Option<Crowded>,
    /// Whether it is the provider or the way to it that fails, so that it fails others too.
    pub(super) is_down: bool,
}

/// Who asks too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowded {
    /// We do (429).
    Ours,
    /// Everybody together does (503, 529, and what a stream ends with).
    Theirs,
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Fault {
        let is_down = matches!(error.kind, ModelErrorKind::Overloaded | ModelErrorKind::Unreachable);
        let crowded = (error.kind == ModelErrorKind::Overloaded).then_some(Crowded::Theirs);
        let retry = error.kind.class() == Class::Wait || error.kind == ModelErrorKind::Garbled;
        Fault { retry, wait: None, crowded, is_down, error }
    }
}

impl Fault {
    /// Judges a request that got no whole answer.
    pub(super) fn of_transport(error: &HttpError, target: Target<'_>) -> Fault {
        let kind = match error {
            HttpError::Unreachable { .. } | HttpError::NoAnswer { .. } => ModelErrorKind::Unreachable,
            HttpError::Broken { .. } | HttpError::Idle { .. } | HttpError::TooLarge { .. } => ModelErrorKind::Cut,
            HttpError::Setup(_) | HttpError::NoCertificates { .. } | HttpError::Invalid { .. } => ModelErrorKind::Rejected,
        };
        let error = ModelError::new(kind, target.endpoint.redact(&format!("{}: failed to {}", target.label(), because(error))));
        match kind {
            ModelErrorKind::Unreachable => error.hint(format!("see that `{}` can be reached from here", target.endpoint.base_url)).into(),
            _ => error.into(),
        }
    }

    /// Judges a good answer that holds something other than a stream of events, by what it says it is and how it begins; `None` where
    /// it may be one.
    pub(super) async fn of_no_stream(response: HttpResponse, target: Target<'_>) -> Result<HttpResponse, Fault> {
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let is_packed = response.header("content-encoding").is_some_and(|encoding| !encoding.trim().is_empty() && encoding != "identity");
        let begin: &[u8] = response.begins().trim_ascii_start();
        let rejected = |what: &str, hint: &str| {
            let message = format!("{}: HTTP {} {what}", target.label(), response.status());
            Fault::from(ModelError::new(ModelErrorKind::Rejected, message).hint(hint))
        };
        match begin {
            [0x1f, 0x8b, ..] => Err(rejected("with a compressed body, which was not asked for", "have the server or the gateway send it as it is")),
            _ if is_packed => Err(rejected("with a compressed body, which was not asked for", "have the server or the gateway send it as it is")),
            [b'<', ..] if kind.contains("html") => {
                let url = &target.endpoint.base_url;
                Err(rejected(
                    "with a web page in place of a stream",
                    &format!("see that `{url}` is the address of the API, and that nothing on the way answers for it"),
                ))
            }
            [b'{' | b'[', ..] => {
                let status = response.status();
                let body = response.error_text().await;
                Err(Fault::of_whole(status, &body, target))
            }
            _ => Ok(response),
        }
    }

    /// Judges a body that is one JSON value in place of a stream.
    fn of_whole(status: u16, body: &str, target: Target<'_>) -> Fault {
        let label = target.label();
        let value: Value = serde_json::from_str(body).unwrap_or_default();
        let value = value.get(0).unwrap_or(&value);
        let is_error = value.get("error").is_some_and(|error| !error.is_null()) || value["type"] == "error";
        let is_reply = ["choices", "content", "output", "candidates"].iter().any(|name| value.get(name).is_some());
        let error = match (is_error, is_reply) {
            (true, _) => Told::parse(body).into_error_of(&format!("{label}: HTTP {status} with an error")),
            (false, true) => ModelError::new(ModelErrorKind::Rejected, format!("{label}: HTTP {status} with a reply in one piece, and a stream was asked for"))
                .hint("have the server or the gateway stream its replies"),
            (false, false) => {
                ModelError::new(ModelErrorKind::Cut, format!("{label}: HTTP {status} with something other than a stream{}", Told::parse(body).shown()))
            }
        };
        fit_to_show(error, target).into()
    }

    /// Judges an answer with an error status.
    pub(super) fn of_answer(status: u16, hints: &RetryHints, body: &str, target: Target<'_>) -> Fault {
        let told = Told::parse(body);
        let kind = kind(status, &told);
        let message = format!("{}: HTTP {status}{}", target.label(), told.shown());
        let error = match (kind, status) {
            (ModelErrorKind::Unauthorized, _) => {
                ModelError::new(kind, message).hint(format!("check the key of provider `{}` and what it may use", target.endpoint.name))
            }
            (ModelErrorKind::UnknownModel, _) => ModelError::new(kind, message).hint("check the model's name and the provider's base URL"),
            (ModelErrorKind::SpendLimit, _) => ModelError::new(kind, message).hint("raise the limit or add credit at the provider, then resume the run"),
            (ModelErrorKind::Rejected, 300..400) => ModelError::new(kind, message).hint("redirects are not followed; write the final address as base URL"),
            _ => ModelError::new(kind, message),
        };
        let error = fit_to_show(error, target);
        let retry = if kind == ModelErrorKind::SpendLimit { false } else { hints.should_retry.unwrap_or(kind.class() == Class::Wait) };
        let wait = hints.wait.or(told.wait).or(hints.used_up.filter(|_| status == 429)).filter(sane);
        let crowded = match status {
            429 => Some(Crowded::Ours),
            503 | 529 => Some(Crowded::Theirs),
            _ => None,
        };
        Fault { retry, wait, crowded, is_down: kind == ModelErrorKind::Overloaded && status >= 500, error }
    }
}

/// What the headers of an error say about trying again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RetryHints {
    should_retry: Option<bool>,
    wait: Option<Duration>,
    /// When the limit that is used up is as it was.
    used_up: Option<Duration>,
}

/// Takes what is confidential out of an error's message, and then cuts it: half a key would not be known for one.
pub(super) fn fit_to_show(error: ModelError, target: Target<'_>) -> ModelError {
    let mut message = target.endpoint.redact(&error.message);
    if let Some((at, _)) = message.char_indices().nth(MESSAGE_CAP) {
        message.truncate(at);
        message.push('…');
    }
    ModelError { message, ..error }
}

impl RetryHints {
    pub(super) fn of(response: &HttpResponse, now: Timestamp) -> RetryHints {
        RetryHints::read(&|name| response.header(name), now)
    }

    fn read<'a>(header: &dyn Fn(&str) -> Option<&'a str>, now: Timestamp) -> RetryHints {
        let should_retry = match header("x-should-retry").map(str::trim) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        let millis = header("retry-after-ms").and_then(|text| moment::seconds(text, 0.001));
        let dated = |text: &str| moment::seconds(text, 1.0).or_else(|| moment::http_date(text).map(|due| due.since(now)));
        let wait = millis.or_else(|| header("retry-after").and_then(dated));
        RetryHints { should_retry, wait: wait.filter(sane), used_up: Limits::read(header, now).used_up() }
    }
}

fn sane(wait: &Duration) -> bool {
    !wait.is_zero() && *wait <= SANE_WAIT
}

/// What an error body or an error event says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Its `type`s and `code`s, in lower case.
    words: Vec<String>,
    message: String,
    /// How long it asks to wait (Google's `RetryInfo`).
    wait: Option<Duration>,
}

impl Told {
    /// Reads what a body says: `{"error": {…}}`, `{"error": "…"}`, or any other text.
    pub(super) fn parse(body: &str) -> Told {
        let Ok(value) = serde_json::from_str::<Value>(&super::surrogate::repair(body)) else {
            return Told { message: body.to_owned(), ..Told::default() };
        };
        // Some servers wrap the object in a list.
        let value = value.get(0).unwrap_or(&value);
        Told::of(value.get("error").unwrap_or(value))
    }

    /// Reads an error object.
    pub(super) fn of(error: &Value) -> Told {
        let word = |value: Option<&Value>| match value {
            Some(Value::String(text)) => Some(text.to_ascii_lowercase()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let codes = [error.get("type"), error.get("code"), error.get("status"), error.pointer("/details/error_code"), error.pointer("/metadata/error_type")];
        let message = error.get("message").or_else(|| error.get("detail")).and_then(Value::as_str).or_else(|| error.as_str());
        let details = || error.get("details").and_then(Value::as_array).into_iter().flatten();
        let wait = details().filter_map(|detail| detail.get("retryDelay")?.as_str()).find_map(moment::span);
        let reasons = details().map(|detail| detail.get("reason"));
        Told { words: codes.into_iter().chain(reasons).filter_map(word).collect(), message: message.map_or_else(|| error.to_string(), str::to_owned), wait }
    }

    fn has(&self, words: &[&str]) -> bool {
        self.words.iter().any(|word| words.contains(&word.as_str()))
    }

    /// Returns `: type: message`, in one line.
    fn shown(&self) -> String {
        let line: String = self.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        match (self.words.first(), line.is_empty()) {
            (Some(word), false) => format!(": {word}: {line}"),
            (Some(word), true) => format!(": {word}"),
            (None, false) => format!(": {line}"),
            (None, true) => String::new(),
        }
    }

    /// Makes the error of an error event inside a stream.
    pub(super) fn into_error(self, label: &str) -> ModelError {
        self.into_error_of(&format!("{label}: the stream ended with an error"))
    }

    fn into_error_of(self, what: &str) -> ModelError {
        // No status came with it. One that says what is wrong with the request would have been 400; what the words do not tell is
        // a fault of the server's, as a broken stream is.
        let told = || self.words.iter().filter_map(|word| word.parse().ok()).find(|status| (400..600).contains(status));
        let status = told().unwrap_or(if self.words.iter().any(|word| is_of_request(word)) { 400 } else { 500 });
        ModelError::new(kind(status, &self), format!("{what}{}", self.shown()))
    }
}

/// Classes an error by its words, which say more, then by its status.
fn kind(status: u16, told: &Told) -> ModelErrorKind {
    let message = told.message.to_ascii_lowercase();
    let spend = [
        "billing_error",
        "insufficient_quota",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "spend_limit_reached",
        "billing_hard_limit_reached",
    ];
    let too_long = ["context_length_exceeded", "exceed_context_size_error", "request_too_large", "model_context_window_exceeded"];
    let is_refused = (400..500).contains(&status);
    if told.has(&spend) || told.words.iter().any(|word| word.ends_with("_spend_limit_reached")) || (is_refused && words::is_spent(&message)) {
        return ModelErrorKind::SpendLimit;
    }
    if told.has(&too_long) || (matches!(status, 400 | 422 | 429 | 500) && words::is_too_long(&message)) {
        return ModelErrorKind::TooLong;
    }
    if told.has(&["invalid_encrypted_content"]) || (is_refused && words::is_unbound(&message)) {
        return ModelErrorKind::Unbound;
    }
    if told.has(&["overloaded_error", "rate_limit_error", "rate_limit_exceeded", "api_error", "timeout_error", "server_error", "internal_server_error"]) {
        return ModelErrorKind::Overloaded;
    }
    let of_key = ["authentication_error", "permission_error", "invalid_api_key", "api_key_invalid"];
    if told.has(&of_key) || (is_refused && words::is_unknown_key(&message)) {
        return ModelErrorKind::Unauthorized;
    }
    if told.has(&["not_found_error", "model_not_found"]) {
        return ModelErrorKind::UnknownModel;
    }
    if told.has(&["invalid_request_error"]) && status == 500 {
        return ModelErrorKind::Rejected;
    }
    match status {
        401 | 403 => ModelErrorKind::Unauthorized,
        402 => ModelErrorKind::SpendLimit,
        404 => ModelErrorKind::UnknownModel,
        413 => ModelErrorKind::TooLong,
        408 | 409 | 425 | 429 | 500.. => ModelErrorKind::Overloaded,
        _ => ModelErrorKind::Rejected,
    }
}

/// Returns whether a code says that the request, as it is, is not taken: the same one never will be (OpenAI's `invalid_prompt`,
/// `invalid_image_url`, `image_too_large`, `unsupported_image_media_type`, `cyber_policy_violation`; Anthropic's `invalid_request_error`).
fn is_of_request(word: &str) -> bool {
    ["invalid_", "image_", "unsupported_", "empty_image"].iter().any(|begin| word.starts_with(begin)) || word.contains("policy")
}

#[cfg(test)]
mod tests {
    use super::super::{Endpoint, Protocol, Secret};
    use super::*;
    use ModelErrorKind::{Overloaded, Rejected, SpendLimit, TooLong, Unauthorized, Unbound, UnknownModel};

    fn hints(headers: &[(&str, &'static str)], now: Timestamp) -> RetryHints {
        let headers: Vec<(String, &'static str)> = headers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        RetryHints::read(&|name| headers.iter().find(|(other, _)| other == name).map(|(_, value)| *value), now)
    }

    #[test]
    fn waits_are_read_in_every_form() {
        let now = moment::http_date("Mon, 30 Nov 2026 10:00:00 GMT").unwrap();
        let wait = |headers: &[(&str, &'static str)]| hints(headers, now).wait;
        assert_eq!(wait(&[("retry-after", "30")]), Some(Duration::from_secs(30)));
        assert_eq!(wait(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "30")]), Some(Duration::from_millis(250)));
        assert_eq!(wait(&[("retry-after", "Mon, 30 Nov 2026 10:00:45 GMT")]), Some(Duration::from_secs(45)));
        assert_eq!(wait(&[("retry-after", "2592000")]), Some(Duration::from_hours(24 * 30)));
        for nonsense in ["-1", "NaN", "inf", "1e300", "0", "soon", "Mon, 30 Nov 2026 09:00:00 GMT", "Mon, 99 Nov 2026 10:00:45 GMT", "Mon, 30 Nov 2026", ""] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }

    #[test]
    fn without_a_time_to_wait_the_limits_and_the_body_say_one() {
        let endpoint = Endpoint::new("google", Protocol::OpenAiChat, "http://x");
        let target = Target { endpoint: &endpoint, model: "m" };
        let used_up = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m30s")];
        let wait = |status, headers: &[(&str, &'static str)], body: &str| Fault::of_answer(status, &hints(headers, Timestamp(0)), body, target).wait;
        assert_eq!(wait(429, &used_up, "{}"), Some(Duration::from_secs(90)));
        assert_eq!(wait(503, &used_up, "{}"), None, "that is not why");
        let body = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"@type":"a"},{"retryDelay":"34.5s"}]}}"#;
        assert_eq!(wait(429, &used_up, body), Some(Duration::from_millis(34_500)));
        assert_eq!(wait(429, &[("retry-after", "7")], body), Some(Duration::from_secs(7)));
    }

    #[test]
    fn answers_are_classed() {
        let endpoint = Endpoint::new("anthropic", Protocol::Anthropic, "https://api.anthropic.com").with_key(Secret::new("sk-1"));
        let target = Target { endpoint: &endpoint, model: "m" };
        for (status, body, wanted) in [
            (429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#, Overloaded),
            (429, r#"{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#, SpendLimit),
            (429, r#"{"error":{"message":"quota","type":"insufficient_quota","code":"insufficient_quota"}}"#, SpendLimit),
            (400, r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#, SpendLimit),
            (403, r#"{"error":{"message":"Key limit exceeded (monthly limit). Manage it using https://openrouter.ai/settings/keys","code":403}}"#, SpendLimit),
            (
                429,
                r#"{"code":"Some resource has been exhausted","error":"Your team 1 has either used all available credits or reached its monthly spending limit."}"#,
                SpendLimit,
            ),
            (402, "", SpendLimit),
            (529, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded),
            (503, "<html>busy</html>", Overloaded),
            (408, "", Overloaded),
            (401, r#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#, Unauthorized),
            (403, "{}", Unauthorized),
            (404, r#"{"error":{"message":"model 'x' not found"}}"#, UnknownModel),
            (413, r#"{"error":{"type":"request_too_large"}}"#, TooLong),
            (
                429,
                r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 30000, Requested 36278. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                TooLong,
            ),
            (400, r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 1 > 0"}}"#, TooLong),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, TooLong),
            (400, r#"{"error":{"code":400,"message":"the request exceeds the available context size"}}"#, TooLong),
            (400, r#"{"message":"Input is too long for requested model."}"#, TooLong),
            (
                400,
                r#"{"object":"error","message":"The input (1492905 tokens) is longer than the model's context length (1048576 tokens).","code":400}"#,
                TooLong,
            ),
            (400, r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"}}"#, TooLong),
            (400, r#"{"error":"prompt too long; exceeded max context length by 540451 tokens (ref: 00ad71bb)"}"#, TooLong),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
                TooLong,
            ),
            (400, r#"{"code":"invalid-argument","error":"This model's maximum prompt length is 131072 but the request contains 136973 tokens."}"#, TooLong),
            (400, r#"{"error":{"message":"litellm.ContextWindowExceededError: told so","type":null,"param":null,"code":"400"}}"#, TooLong),
            (400, r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens."}}"#, TooLong),
            (400, r#"{"error":{"type":"invalid_request_error","message":"bad"}}"#, Rejected),
            (400, r#"{"error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#, Unbound),
            (429, r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x"}}"#, Overloaded),
            (429, r#"{"error":{"type":"rate_limit_error","details":{"error_code":"ramp_limit_exceeded"}}}"#, Overloaded),
            (402, r#"{"error":{"message":"Insufficient Balance","code":"invalid_request_error"}}"#, SpendLimit),
            (301, "", Rejected),
        ] {
            let fault = Fault::of_answer(status, &RetryHints::default(), body, target);
            assert_eq!(fault.error.kind, wanted, "{status} {body}");
            assert_eq!(fault.retry, wanted == Overloaded, "{status} {body}");
            assert!(fault.error.message.starts_with("anthropic/m: HTTP "), "{}", fault.error.message);
        }
    }

    #[test]
    fn the_providers_word_on_retrying_wins_except_on_spending() {
        let endpoint = Endpoint::new("a", Protocol::Anthropic, "http://x");
        let target = Target { endpoint: &endpoint, model: "m" };
        let retry = |status, word, body: &str| Fault::of_answer(status, &hints(&[("x-should-retry", word)], Timestamp(0)), body, target).retry;
        assert!(!retry(529, "false", "{}"));
        assert!(retry(400, "true", "{}"));
        assert!(!retry(429, "true", r#"{"error":{"type":"insufficient_quota"}}"#));
    }

    #[test]
    fn hostile_bodies_are_cut_and_keys_are_not_repeated() {
        let endpoint = Endpoint::new("a", Protocol::Anthropic, "http://x").with_key(Secret::new("sk-secret"));
        let target = Target { endpoint: &endpoint, model: "m" };
        let body = format!("{{\"error\":{{\"message\":\"key sk-secret\\n\\u001b[31m{}\"}}}}", "x".repeat(100_000));
        let message = Fault::of_answer(400, &RetryHints::default(), &body, target).error.message;
        assert!(message.contains("key ***") && !message.contains("sk-secret") && message.len() < 600, "{message}");
        assert!(!message.contains('\u{1b}') && !message.contains('\n'));
        for before in MESSAGE_CAP - 60..MESSAGE_CAP + 10 {
            let body = format!("{{\"error\":{{\"message\":\"{}sk-secret\"}}}}", "x".repeat(before));
            let message = Fault::of_answer(400, &RetryHints::default(), &body, target).error.message;
            assert!(!message.contains("sk-"), "half a key: {message}");
        }
    }

    #[test]
    fn errors_inside_a_stream_are_classed_by_their_words() {
        let kind = |body: &str| Told::parse(body).into_error("a/m").kind;
        assert_eq!(kind(r#"{"error":{"type":"overloaded_error","message":"x"}}"#), ModelErrorKind::Overloaded);
        assert_eq!(kind(r#"{"error":{"type":"invalid_request_error","message":"x"}}"#), ModelErrorKind::Rejected);
        assert_eq!(kind(r#"{"error":{"code":402,"message":"x"}}"#), ModelErrorKind::SpendLimit);
        for code in ["invalid_prompt", "invalid_base64_image", "image_too_large", "unsupported_image_media_type", "cyber_policy_violation"] {
            assert_eq!(kind(&format!(r#"{{"error":{{"code":"{code}","message":"x"}}}}"#)), ModelErrorKind::Rejected, "{code}");
        }
        assert_eq!(kind(r#"{"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"x"}}"#), ModelErrorKind::TooLong);
        assert_eq!(kind(r#"{"error":{"code":"invalid_encrypted_content","message":"x"}}"#), ModelErrorKind::Unbound);
        assert_eq!(kind(r#"{"error":{"code":"server_error","message":"x"}}"#), ModelErrorKind::Overloaded);
        assert_eq!(kind(r#"{"error":"something"}"#), ModelErrorKind::Overloaded);
    }
}
