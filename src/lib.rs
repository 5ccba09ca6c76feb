//! Spinney runs declarative workflows of coding agents on one git repository.
//!
//! This page is the architecture: what hangs on what, and the words everything is said in.
//!
//! # Three ideas
//!
//! 1. **A run is its journal.** [`event::Event`] is one closed enum in the past tense; it is journalled, shown, exported and
//!    replayed. An event is acknowledged before its effect is visible. [`journal::RunState`] is a fold over events that
//!    refuses illegal ones: live run, resume, screens and tests all go through the same `apply`.
//! 2. **Decisions are pure.** [`engine::decide`] knows no clock, no I/O, no randomness and renders no template. The agent
//!    loop is the same idea one level down: [`journal::Talk::next`] says from the transcript alone what comes next.
//! 3. **One gate.** Every tool call of every agent goes through one dispatcher, in `agent`: schema, hooks before, schema again
//!    if they rewrote it, permission rules, access, scope, execution, hooks after, recording. There is no other way to run
//!    a tool.
//!
//! # Floors
//!
//! A module uses only modules on lower floors; `tests/it/architecture.rs` parses the sources and holds it.
//!
//! | floor | module | owns | never |
//! |--:|---|---|---|
//! | 0 | [`message`] | blocks, messages, tool calls and results, usage | I/O, locks |
//! | 0 | [`source`] | files with spans, diagnostics | |
//! | 0 | [`clock`], [`tasks`], [`trace`] | the only `now()`; the only spawner; the only place with span names | |
//! | 0 | [`secrets`] | values that are never written, and the search for them | |
//! | 1 | [`event`] | ids, events, outcomes | I/O, locks |
//! | 2 | [`workflow`] | the YAML as written | judging the graph |
//! | 2 | [`prompts`] | templates | reading files |
//! | 2 | [`library`] | where workflows, prompts, hooks, skills and agents are found; trust | what is inside the files |
//! | 3 | [`plan`] | the frozen graph; the only judge of a workflow | |
//! | 4 | [`journal`] | the log, its fold, the one writer, blobs, leases | deciding |
//! | 4 | [`sandbox`] | the only place that starts processes | |
//! | 4 | [`http`] | the only HTTP client (the span exporter has its own) | |
//! | 5 | [`git`] | the repository, worktrees, the engine's commits | policy |
//! | 5 | [`llm`] | one model call: wire formats, retries, the shared limiter, the scripted model | |
//! | 5 | [`mcp`] | conversations with servers of tools | which tools an agent has |
//! | 5 | [`skills`] | SKILL.md and agent files as data | running anything |
//! | 6 | [`tools`] | one file a tool; path confinement | |
//! | 6 | [`merge`] | joining the work of many into one commit | the user's checkout |
//! | 7 | [`hooks`] | hooks and permission rules | |
//! | 8 | [`agent`] | one conversation: the loop, the gate, limits, compaction | knowing the graph |
//! | 9 | [`engine`] | the run: its loop, `decide`, one file a kind of step; the only writer of the journal | |
//! | 10 | [`telemetry`] | exporters | |
//! | 11 | [`cli`] | arguments, environment, terminal | logic a library user would miss |
//!
//! # How one run flows
//!
//! ```text
//!  feature.yaml -load-> Workflow -compile(Catalog)-> Plan          engine::Project builds Services once
//!                                      |
//!  journal -replay-> RunState ---------+
//!                                      v
//!        .------------- engine::run: one loop, one writer ----------------------.
//!        | decide(plan, state, live) -> [Command]                        (pure)  |
//!        | Start -> append StepStarted -> spawn a worker through Tasks           |
//!        | select!: worker's event | worker's end | petition | signal | timer    |
//!        | append(events): check -> fold -> store -> acknowledge ----------------+--> the screen, `--json`
//!        '------------^----------------------------------------------------------'
//!                     | recorder.record(event).await           (returns when acknowledged)
//!    steps::agent: worktree -> agent: ask -> record -> gate -> tool -> record -> ... -> end of turn -> checks -> commit
//!    steps::merge: merge::integrate(sources, resolver, verifier) -> a commit whose tree passed -> ref
//! ```
//!
//! # Words
//!
//! One word for one thing. A *workflow* is the file, a *plan* its compiled form, a *run* one execution. A *step* is a node of
//! the plan; an *item* one of a `for_each`; a *node* either, or a *helper* session inside one; an *attempt* one try at a node. An
//! *agent* holds a *conversation* of *messages* made of *blocks*; a *turn* is one *reply* of the *model*. A *call* is answered by
//! one *result*. A *worktree* is an agent's own copy of the repository's files; a *view* is one that is only read; a
//! *workspace* either. Work is *captured* as a commit, *joined* with others, *ejected* when nobody settles its *conflict*,
//! and *lands* on a branch. *Cancel* is asked for, *abort* follows from a sibling's failure. *Acknowledged* means: survives the
//! death of the process; *synced*: on the disk.
pub mod agent;
pub mod cli;
pub mod clock;
pub mod engine;
pub mod event;
pub mod git;
pub mod hooks;
pub mod http;
pub mod journal;
pub mod library;
pub mod llm;
pub mod mcp;
pub mod merge;
pub mod message;
pub mod plan;
pub mod prompts;
pub mod sandbox;
pub mod secrets;
pub mod skills;
pub mod source;
pub mod tasks;
pub mod telemetry;
pub mod tools;
pub mod trace;
pub mod workflow;
