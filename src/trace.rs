//! The names of spans and attributes: the only place that spells them.
//!
//! Spans are opened where the work is, with `tracing`, under the target [`TARGET`]; `telemetry` exports them. Names follow
//! the OpenTelemetry semantic conventions for generative AI where one exists, otherwise they start with `spinney.`.
//! The macros of `tracing` want literal names: the constants are what exporters and tests compare with.

/// The target of every span that is exported.
pub const TARGET: &str = "spinney";

/// Span of one run.
pub const RUN: &str = "spinney.run";
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
    "gen_ai.agent.name",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.tool.call.id",
    "gen_ai.tool.name",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "spinney.attempt",
    "spinney.hook.event",
    "spinney.hook.name",
    "spinney.hook.verdict",
    "spinney.is_error",
    "spinney.node",
    "spinney.outcome",
    "spinney.run.id",
    "spinney.workflow",
];
