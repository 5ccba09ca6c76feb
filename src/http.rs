//! Spinney
