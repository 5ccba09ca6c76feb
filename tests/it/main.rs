//! One integration binary: everything through the front door, with a scripted model and real git.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests fail by panicking, start processes and read the environment")]
mod access;
mod architecture;
mod ask;
mod commands;
mod demo;
mod diagnostics;
mod driver;
mod dropped_in;
mod first;
mod fixture;
mod gate;
mod hooked;
mod hostile;
mod invariants;
mod isolation;
mod items;
mod limits;
mod llm;
mod plan_command;
mod real;
mod recovery;
mod scenarios;
mod server;
mod shipped;
mod signals;
mod telemetry;
