//! The moments at which hooks may be asked, and what a block means at each.

/// What a hook's matcher is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The name of the tool.
    Tool,
    /// A field of the event; names are split on `|` and `,`.
    Field,
    /// A field of the event; names are split on `|` only, a comma makes a pattern.
    Plain,
    /// Nothing: the matcher is ignored.
    Nothing,
}

/// What exit code 2 or `decision: block` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocking {
    /// The call is not made.
    Call,
    /// The model is told; the call was made already.
    Feedback,
    /// The prompt is refused.
    Prompt,
    /// The agent goes on instead of stopping.
    GoOn,
    /// The conversation is not compacted.
    Compaction,
    /// Whatever was about to be done is not done.
    Refuse,
    /// Any failure at all fails the creation.
    Creation,
    /// Only the user is told.
    User,
    /// Nothing.
    Ignored,
}

macro_rules! moments {
    ($($name:ident: $subject:ident, $blocking:ident;)*) => {
        /// An event of the hook protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are the protocol's own")]
        pub enum On { $($name,)* }

        impl On {
            /// Every event, in the order of the protocol's description.
            pub const ALL: &'static [On] = &[$(On::$name,)*];

            /// Returns the name as it stands in hook files and payloads.
            pub fn name(self) -> &'static str {
                match self { $(On::$name => stringify!($name),)* }
            }

            pub(super) fn subject(self) -> Subject {
                match self { $(On::$name => Subject::$subject,)* }
            }

            pub(super) fn blocking(self) -> Blocking {
                match self { $(On::$name => Blocking::$blocking,)* }
            }
        }
    };
}

moments! {
    PreToolUse: Tool, Call;
    PermissionRequest: Tool, Ignored;
    PermissionDenied: Tool, Ignored;
    PostToolUse: Tool, Feedback;
    PostToolUseFailure: Tool, Feedback;
    PostToolBatch: Nothing, Refuse;
    UserPromptSubmit: Nothing, Prompt;
    UserPromptExpansion: Field, Prompt;
    SessionStart: Field, User;
    Setup: Field, User;
    SessionEnd: Field, User;
    SubagentStart: Field, User;
    SubagentStop: Field, GoOn;
    Stop: Nothing, GoOn;
    StopFailure: Plain, Ignored;
    TaskCreated: Nothing, Refuse;
    TaskCompleted: Nothing, Refuse;
    TeammateIdle: Nothing, GoOn;
    PreCompact: Field, Compaction;
    PostCompact: Field, User;
    WorktreeCreate: Nothing, Creation;
    WorktreeRemove: Nothing, Ignored;
    InstructionsLoaded: Field, Ignored;
    ConfigChange: Field, Refuse;
    CwdChanged: Nothing, User;
    FileChanged: Plain, User;
    DirectoryAdded: Field, Ignored;
    Notification: Field, Ignored;
    Elicitation: Field, Refuse;
    ElicitationResult: Field, Refuse;
    MessageDisplay: Nothing, Ignored;
    PreModelSwitch: Field, Refuse;
    PostModelSwitch: Field, Ignored;
    PreSkillShellCommand: Tool, Call;
}

impl On {
    /// Finds an event by its name.
    pub fn named(name: &str) -> Option<On> {
        On::ALL.iter().copied().find(|on| on.name() == name)
    }

    /// Returns whether this program asks hooks at this moment.
    pub fn is_asked(self) -> bool {
        matches!(self, On::PreToolUse | On::PostToolUse | On::PostToolUseFailure | On::Stop | On::SubagentStop | On::Notification)
    }

    /// Returns whether the event is about a tool call: only there does `if` mean something.
    pub(super) fn is_about_a_call(self) -> bool {
        matches!(self, On::PreToolUse | On::PostToolUse | On::PostToolUseFailure | On::PermissionRequest | On::PermissionDenied)
    }

    /// Returns whether `onFailure: block` means something: a hook that fails when an agent wants to stop must not keep it
    /// going for ever, and one that only carries a word can block nothing.
    pub(super) fn may_fail_closed(self) -> bool {
        !matches!(self, On::Stop | On::SubagentStop | On::TaskCompleted | On::TeammateIdle | On::Notification)
    }

    /// Returns whether plain text on stdout is context for the model.
    pub(super) fn takes_plain_text(self) -> bool {
        matches!(self, On::SessionStart | On::UserPromptSubmit | On::UserPromptExpansion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_distinct() {
        assert_eq!(On::ALL.len(), 34);
        for on in On::ALL {
            assert_eq!(On::named(on.name()), Some(*on));
        }
        assert_eq!(On::named("preToolUse"), None);
        assert_eq!(On::named("// PostToolUse"), None);
    }
}
