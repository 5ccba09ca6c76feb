//! The `spinney` program: everything is in the library.
use std::process::ExitCode;

fn main() -> ExitCode {
    spinney::cli::main()
}
