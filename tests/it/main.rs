//! One integration binary.
mod architecture;
