//! Whether runs are as their records say, and what of that can be mended without a loss. `resume` looks at what it goes on
//! from, `show` at what can be looked at in a moment, `spinney doctor` at everything.
mod files;
mod locks;
mod run;
mod runs;
mod views;

pub use locks::locks;
pub(super) use run::{Mend, faults, lost_checkpoints, lost_worktrees};
pub use runs::{faults_of, runs};
