//! Spans: the only place that spells their names and attributes.
//!
//! A span is opened where the work is, by a function of this module, and exported by `telemetry` where that is installed;
//! otherwise opening one costs a load and a branch. Names follow the OpenTelemetry semantic conventions for generative AI
//! where one exists, otherwise they start with `spinney.`. Nothing that was said by or to a model is ever on a span.
//!
//! The trace goes on in other processes: [`adopt`] makes a span the child of who started this program, [`traceparent`] is
//! what a child process is given. Both have the form of W3C Trace Context, level 1.
use opentelemetry::{
    Array, Context, StringValue, Value,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use std::fmt::Display;
use tracing::{Level, Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of every span that is exported.
pub const TARGET: &str = "spinney";

/// Span of one run: `invoke_workflow` in the conventions.
pub const RUN: &str = "invoke_workflow";
/// Span of one step or item.
pub const STEP: &str = "spinney.step";
/// Span of one agent's session: `invoke_agent` in the conventions.
pub const AGENT: &str = "invoke_agent";
/// Span of one model call: `chat` in the conventions.
pub const CHAT: &str = "chat";
/// Span of one tool call: `execute_tool` in the conventions.
pub const TOOL: &str = "execute_tool";
/// Span of one hook.
pub const HOOK: &str = "spinney.hook";

/// The attributes used on these spans, sorted.
pub const ATTRIBUTES: &[&str] = &[
    "error.type",
    "gen_ai.agent.name",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.model",
    "gen_ai.tool.call.id",
    "gen_ai.tool.name",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.workflow.name",
    "server.address",
    "server.port",
    "spinney.attempt",
    "spinney.hook.event",
    "spinney.hook.name",
    "spinney.hook.verdict",
    "spinney.network.verdict",
    "spinney.node",
    "spinney.outcome",
    "spinney.run.id",
    "spinney.tool.verdict",
];

/// Opens the span of a run.
pub fn run(run: &str, workflow: &str) -> Span {
    info_span!(
        target: TARGET, RUN,
        otel.name = format!("{RUN} {workflow}"), otel.status_code = Empty, otel.status_description = Empty,
        gen_ai.operation.name = RUN, gen_ai.workflow.name = workflow,
        spinney.run.id = run, spinney.outcome = Empty, "error.type" = Empty,
    )
}

/// Opens the span of an attempt of a step or item.
pub fn step(node: &impl Display, attempt: u32) -> Span {
    info_span!(
        target: TARGET, STEP,
        otel.name = format!("{STEP} {node}"), otel.status_code = Empty, otel.status_description = Empty,
        spinney.node = %node, spinney.attempt = attempt, spinney.outcome = Empty, "error.type" = Empty,
    )
}

/// Opens the span of an agent's session.
pub fn agent(agent: &str, node: &impl Display) -> Span {
    info_span!(
        target: TARGET, AGENT,
        otel.name = format!("{AGENT} {agent}"), otel.status_code = Empty, otel.status_description = Empty,
        gen_ai.operation.name = AGENT, gen_ai.agent.name = agent,
        spinney.node = %node, spinney.outcome = Empty, "error.type" = Empty,
    )
}

/// Opens the span of one model call; `model` is `provider/model`.
pub fn chat(model: &str) -> Span {
    let (provider, name) = model.split_once('/').unwrap_or(("unknown", model));
    info_span!(
        target: TARGET, CHAT,
        otel.name = format!("{CHAT} {name}"), otel.kind = "client", otel.status_code = Empty, otel.status_description = Empty,
        gen_ai.operation.name = CHAT, gen_ai.provider.name = provider, gen_ai.request.model = name,
        gen_ai.response.model = Empty, gen_ai.usage.input_tokens = Empty, gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty, gen_ai.usage.cache_write.input_tokens = Empty, spinney.attempt = Empty, "error.type" = Empty,
    )
}

/// Opens the span of one tool call.
pub fn tool(tool: &str, call: &str) -> Span {
    info_span!(
        target: TARGET, TOOL,
        otel.name = format!("{TOOL} {tool}"), otel.status_code = Empty, otel.status_description = Empty,
        gen_ai.operation.name = TOOL, gen_ai.tool.name = tool, gen_ai.tool.call.id = call,
        spinney.tool.verdict = Empty, "error.type" = Empty,
    )
}

/// Opens the span of one hook that is asked about an event, `PreToolUse` say.
pub fn hook(hook: &str, event: &str) -> Span {
    info_span!(
        target: TARGET, HOOK,
        otel.name = format!("{HOOK} {hook}"), otel.status_code = Empty, otel.status_description = Empty,
        spinney.hook.name = hook, spinney.hook.event = event, spinney.hook.verdict = Empty, "error.type" = Empty,
    )
}

/// Tokens of one reply, as providers bill them: `input` is without what the cache read and wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Uncached input.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
}

/// Notes on a `chat` span what came back: the model that answered, its stop reason, its tokens.
pub fn replied(span: &Span, model: &str, stop: &str, tokens: Tokens) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.response.model", model.split_once('/').map_or(model, |(_, name)| name));
    // The conventions count everything that was sent as input, whatever it cost.
    span.record("gen_ai.usage.input_tokens", tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write));
    span.record("gen_ai.usage.output_tokens", tokens.output);
    span.record("gen_ai.usage.cache_read.input_tokens", tokens.cache_read);
    span.record("gen_ai.usage.cache_write.input_tokens", tokens.cache_write);
    let reasons = Array::String(vec![StringValue::from(stop.to_owned())]);
    span.set_attribute("gen_ai.response.finish_reasons", Value::Array(reasons));
}

/// Notes on a `chat` span which attempt it is, where it is not the first.
pub fn attempt(span: &Span, attempt: u32) {
    if attempt > 1 {
        span.record("spinney.attempt", attempt);
    }
}

/// Notes on a run's, step's or agent's span how it ended, in one word.
pub fn ended(span: &Span, outcome: &str) {
    span.record("spinney.outcome", outcome);
}

/// Notes on a tool's or hook's span how it was judged, in one word.
pub fn judged(span: &Span, verdict: &str) {
    // Each of the two spans has one of these; recording one that it lacks does nothing.
    span.record("spinney.tool.verdict", verdict);
    span.record("spinney.hook.verdict", verdict);
}

/// Notes as an event that a command asked for a host of the network, and in one word what came of it: `allowed`, `refused` or `unreachable`.
pub fn reached(host: &impl Display, port: u16, verdict: &str) {
    tracing::event!(
        target: TARGET, Level::INFO,
        server.address = %host, server.port = port, spinney.network.verdict = verdict, "spinney.network",
    );
}

/// Notes on any span that what it stands for failed: the kind for programs, the message for people. The message is in our
/// own words.
pub fn failed(span: &Span, kind: &str, message: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", message);
}

/// Returns the present span as a child process wants it in `TRACEPARENT`; `None` where nothing is exported.
pub fn traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// Returns a span as a child process wants it in `TRACEPARENT`; `None` where nothing is exported.
pub fn traceparent_of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8() & 1))
}

/// Makes a span that was just opened the child of a span elsewhere, named by `TRACEPARENT` and `TRACESTATE`. Returns
/// whether it is one now: text that is not in the form of the standard is left alone, as the standard asks.
pub fn adopt(span: &Span, traceparent: &str, tracestate: &str) -> bool {
    let Some((trace, parent, flags)) = parse(traceparent) else { return false };
    let state = tracestate.parse::<TraceState>().unwrap_or_default();
    let remote = SpanContext::new(trace, parent, flags, true, state);
    span.set_parent(Context::new().with_remote_span_context(remote)).is_ok()
}

/// Reads `VERSION-TRACE-PARENT-FLAGS`. Later versions may add fields at the end; this one may not.
fn parse(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let fields: Vec<&str> = text.trim().splitn(5, '-').collect();
    let [version, trace, parent, flags, rest @ ..] = fields.as_slice() else { return None };
    let is_hex = |field: &str, digits: usize| field.len() == digits && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    if !is_formed || *version == "ff" || (*version == "00" && !rest.is_empty()) {
        return None;
    }
    let (trace, parent) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(parent).ok()?);
    let sampled = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & 1);
    (trace != TraceId::INVALID && parent != SpanId::INVALID).then_some((trace, parent, sampled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_what_the_standard_allows() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, flags) = parse(good).unwrap();
        assert_eq!(format!("00-{trace}-{parent}-{:02x}", flags.to_u8()), good);
        assert!(parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-09-later").is_some());
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn without_an_exporter_nothing_happens() {
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            let span = chat("anthropic/claude");
            assert!(span.is_disabled());
            assert_eq!(span.in_scope(traceparent), None);
            assert!(!adopt(&span, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""));
            replied(&span, "anthropic/claude", "end_turn", Tokens::default());
            failed(&span, "overloaded", "the provider is overloaded");
        });
    }

    #[test]
    fn the_list_of_attributes_is_sorted() {
        assert!(ATTRIBUTES.is_sorted());
    }
}
