//! What providers say in an error that no status and no code tells, and what follows from it.
//!
//! Each row names what is looked for, in lower case, and where somebody shows it said. Gateways (`LiteLLM`, `OpenRouter`) quote
//! what the provider behind them says, so a text counts whoever it comes from.

/// What is said, and who says it where.
type Row = (&'static str, &'static str);

/// The request does not fit the window.
const TOO_LONG: &[Row] = &[
    ("prompt is too long", "Anthropic, and Bedrock quoting it: aaif-goose/goose#7504"),
    ("exceed context limit", "Anthropic, of prompt and reply together: docker/docker-agent#569, anthropics/claude-code#228"),
    ("exceeds the maximum number of tokens allowed", "Gemini: google-gemini/gemini-cli#6678"),
    ("input is too long for requested model", "Bedrock: continuedev/continue#9592"),
    ("maximum context length", "OpenAI, DeepSeek, vLLM, OpenRouter: vllm-project/vllm#20409, refly-ai/refly#1177"),
    ("context window", "OpenAI Responses, llama-cpp-python: anomalyco/opencode#6071, rllm-team/rllm#55"),
    ("tokens exceed the configured limit", "OpenAI, Azure: BerriAI/litellm#15968"),
    ("exceeds the available context size", "llama.cpp: ggml-org/llama.cpp#15780"),
    ("exceeded max context length", "Ollama: dyad-sh/dyad#3498"),
    ("larger context length", "LM Studio: lmstudio-ai/lmstudio-bug-tracker#546"),
    ("maximum prompt length", "xAI: cline/cline#3120"),
    ("longer than the model's context length", "SGLang: getkimchi/kimchi#794"),
    ("exceeded model token limit", "Kimi: MoonshotAI/kimi-code#207"),
    ("context length exceeded", "gateways that put the code into words"),
    ("input or output tokens must be reduced", "OpenAI at 429, of more than a minute has room for: Aider-AI/aider#1880, openai/codex#38366"),
    ("contextwindowexceedederror", "LiteLLM: OpenHands/OpenHands#4894"),
];

/// There is no money left, or its owner allows no more of it.
const SPENT: &[Row] = &[
    ("credit balance", "Anthropic, at 400"),
    ("api usage limits", "Anthropic, at 400: anthropics/claude-code#2127, #38035"),
    ("key limit exceeded", "OpenRouter, at 403: gptme/gptme#1449"),
    ("used all available credits", "xAI, at 429 and 403: continuedev/continue#10373, Anantys-oss/koan#2412"),
    ("requires more credits", "OpenRouter: anomalyco/opencode#12219"),
    ("prepayment credits are depleted", "Gemini, at 429: dyad-sh/dyad#3626, JeffOtano/roni#125"),
    ("exceeded its monthly spending cap", "Gemini, at 429, of a project or a billing account"),
];

/// What was thought before is not taken back.
const UNBOUND: &[Row] = &[
    ("`signature` in `thinking`", "Anthropic"),
    ("bound to a different conversation", "Anthropic"),
    ("thought signature", "Gemini: google-gemini/gemini-cli#13467, anomalyco/opencode#4832"),
    ("thought_signature", "Gemini, where one is missing"),
    ("encrypted content", "OpenAI: openai/codex#8145, smallmain/vscode-unify-chat-provider#178"),
];

/// The key is none.
const UNKNOWN_KEY: &[Row] = &[("api key not valid", "Gemini, at 400: continuedev/continue#10748"), ("api key expired", "Gemini, at 400")];

fn says(rows: &[Row], message: &str) -> bool {
    rows.iter().any(|(words, _)| message.contains(words))
}

/// Returns whether a message, in lower case, says that a request is too long.
pub(super) fn is_too_long(message: &str) -> bool {
    says(TOO_LONG, message)
}

/// Returns whether it says that money is at its end.
pub(super) fn is_spent(message: &str) -> bool {
    says(SPENT, message)
}

/// Returns whether it says that what was thought is another conversation's, or broken.
pub(super) fn is_unbound(message: &str) -> bool {
    says(UNBOUND, message)
}

/// Returns whether it says that the key is wrong.
pub(super) fn is_unknown_key(message: &str) -> bool {
    says(UNKNOWN_KEY, message)
}

/// Returns how many tokens are left for a reply, where an error says how large the window is and how long the prompt.
pub(in crate::llm) fn room(message: &str) -> Option<u64> {
    let message = message.to_ascii_lowercase();
    if let Some((_, sum)) = message.split_once("exceed context limit:") {
        // `<prompt> + <reply> > <window>`
        let told = numbers(sum);
        return told.get(2)?.checked_sub(told[0]);
    }
    let (_, told) = message.split_once("maximum context length is")?;
    let window = *numbers(told).first()?;
    // `however, you requested 5060 tokens (4036 in the messages, 1024 in the completion)`; a number that is only said to be
    // the least of it is no help.
    let is_of_prompt = |part: &&str| ["in the messages", "in the functions", "in your prompt", "in the prompt", "input"].iter().any(|of| part.contains(of));
    let parts: Vec<u64> =
        told.split([',', ';', '(', ')']).flat_map(|part| part.split(" and ")).filter(is_of_prompt).filter_map(|part| numbers(part).first().copied()).collect();
    let is_exact = !parts.is_empty() && !told.contains("at least");
    is_exact.then(|| window.checked_sub(parts.iter().sum())).flatten()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_lower_case_and_says_where_it_is_from() {
        for (words, source) in [TOO_LONG, SPENT, UNBOUND, UNKNOWN_KEY].concat() {
            assert!(words.to_ascii_lowercase() == words && !source.is_empty(), "{words}");
        }
    }

    #[test]
    fn the_room_for_a_reply_is_read_where_it_is_said() {
        let anthropic = "anthropic/claude-haiku-4-5: HTTP 400: invalid_request_error: input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again";
        for (message, room) in [
            (anthropic, Some(21_041)),
            (
                "This model's maximum context length is 16384 tokens. However, you requested 22946 tokens (12946 in the messages, 10000 in the completion).",
                Some(3_438),
            ),
            (
                "This model's maximum context length is 4097 tokens, however you requested 4162 tokens (1090 in your prompt; 3072 for the completion).",
                Some(3_007),
            ),
            (
                "'max_tokens' is too large: 6048. This model's maximum context length is 6048 tokens and your request has 568 input tokens (6048 > 6048 - 568).",
                Some(5_480),
            ),
            (
                "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (20000 of text input, 832 of tool input, 22000 in the output).",
                Some(11_936),
            ),
            ("This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input).", None),
            (
                "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens.",
                None,
            ),
            ("This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.", None),
            ("prompt is too long: 227255 tokens > 200000 maximum", None),
            ("exceed context limit: many", None),
        ] {
            assert_eq!(super::room(message), room, "{message}");
        }
    }
}
