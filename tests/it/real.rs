//! Runs with real models' protocols: against a server that speaks them, is strict about what it is sent, and breaks.
mod answers;
mod drive;
mod faults;
mod feature;
mod keys;
mod mind;
mod recorded;
mod room;
mod shell;
