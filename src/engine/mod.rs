//! One run: a loop that owns the journal. `decide` says what to do, workers do it, the loop records what they report.
//!
//! There is one writer and one thread: reports of many workers are appended in one transaction, then acknowledged, shown
//! and folded into the next decision. A worker's event is checked like any other; nothing happens twice because the same
//! loop runs a fresh and a resumed run.
mod accounts;
mod added;
mod ask_person;
mod bases;
mod caches;
mod carry;
mod clean;
mod close;
mod configuration;
mod crew;
mod decide;
mod definition;
mod digest;
pub mod doctor;
mod fan;
mod frames;
mod give_up;
pub mod health;
mod inbox;
mod kept;
mod listeners;
mod lost;
mod origin;
mod people;
mod powers;
mod prepare;
mod preview;
mod project;
mod reset;
mod run;
mod scope;
mod secrets;
mod simulate;
mod steps;
mod stub;
mod tips;
mod token;
mod toolchains;
mod walls;

pub use clean::{CleanError, Cleaning, Fate, clean, orphans};
pub use configuration::{Configuration, MODEL_VARIABLE, Setting, Untrusted};
pub use decide::{Command, Live, decide};
pub use frames::unmade_outputs;
pub use give_up::{Files, GiveUpError, give_up};
pub use inbox::{Inbox, InboxError, Letter, Says};
pub use listeners::{Unheard, listeners, who_can_be_told};
pub use origin::{Again, Moved, Reset, ResetError, Whence};
pub use people::{Asker, Spoken};
pub use prepare::{Prepared, RunOptions};
pub use preview::{
    AROUND, AgentPreview, BodyPreview, CachePreview, ChoicePreview, Cost, GraphPreview, Hinges, ItemsPreview, LimitsShown, OrchestratorPreview, Preview,
    SandboxPreview, StepPreview,
};
pub(crate) use project::SCRIPTED;
pub use project::{Models, Project, Settings, SetupError};
pub use reset::Reason;
pub use run::{Ended, EngineError, run};
pub use secrets::secrets_here;
pub use simulate::{Leg, SimulateError, Simulated, simulate};
pub use steps::Services;
pub(crate) use steps::checkpoint_ref;
pub use stub::{AGENT_TAKES, OTHER_TAKES};
pub use tips::left_over;
pub use token::{Claim, Tokens};
