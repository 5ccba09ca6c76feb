//! What a compilation has found so far.
pub(super) use crate::source::suggestion;
use crate::{
    source::{Diagnostic, Diagnostics, Found, Source, Span, Spanned, codes},
    workflow::{Flaws, Workflow},
};
use std::sync::Arc;

/// A kind of thing that has a name.
pub(super) struct Kind {
    code: &'static str,
    what: &'static str,
    /// The keys of the file below which such things stand.
    keys: &'static [&'static str],
}

pub(super) const STEP: Kind = Kind { code: codes::UNKNOWN_STEP, what: "step", keys: &["steps", "on_failure", "finally"] };
pub(super) const WORKFLOW: Kind = Kind { code: codes::UNKNOWN_WORKFLOW, what: "workflow", keys: &[] };
pub(super) const AGENT: Kind = Kind { code: codes::UNKNOWN_AGENT, what: "agent", keys: &["agents"] };
pub(super) const AGENT_FILE: Kind = Kind { code: codes::UNKNOWN_AGENT, what: "agent file", keys: &[] };
pub(super) const SERVER: Kind = Kind { code: codes::UNKNOWN_SERVER, what: "server", keys: &["mcp_servers"] };
pub(super) const SKILL: Kind = Kind { code: codes::UNKNOWN_SKILL, what: "skill", keys: &[] };
pub(super) const HOOK: Kind = Kind { code: codes::UNKNOWN_HOOK, what: "hook", keys: &[] };
pub(super) const TOOL: Kind = Kind { code: codes::UNKNOWN_TOOL, what: "tool", keys: &[] };
pub(super) const SCHEMA: Kind = Kind { code: codes::UNKNOWN_SCHEMA, what: "schema", keys: &["schemas"] };
pub(super) const ALIAS: Kind = Kind { code: codes::UNKNOWN_MODEL, what: "model alias", keys: &["models"] };
pub(super) const PROVIDER: Kind = Kind { code: codes::UNKNOWN_MODEL, what: "provider", keys: &[] };

/// Errors and warnings about one workflow file.
pub(super) struct Findings<'a> {
    pub(super) source: &'a Arc<Source>,
    /// What of the file could not be read.
    pub(super) flaws: &'a Flaws,
    found: Found,
}

impl<'a> Findings<'a> {
    /// Begins with nothing found.
    pub(super) fn new(workflow: &'a Workflow) -> Findings<'a> {
        Findings { source: &workflow.source, flaws: &workflow.flaws, found: Found::default() }
    }

    /// Returns whether no more errors are kept.
    pub(super) fn is_full(&self) -> bool {
        self.found.is_full()
    }

    /// Returns whether one of them is an error.
    pub(super) fn has_errors(&self) -> bool {
        self.found.has_errors()
    }

    /// Keeps a finding, once.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.found.report(diagnostic);
    }

    /// Makes an error in this file; the caller adds to it and reports it.
    pub(super) fn error(&self, code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.source, span, message)
    }

    /// Makes a warning in this file.
    pub(super) fn warning(&self, code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::warning(code, self.source, span, message)
    }

    /// Keeps what another one has found.
    pub(super) fn absorb(&mut self, other: Findings<'_>) {
        self.found.absorb(other.found);
    }

    /// Keeps the errors of a file.
    pub(super) fn add(&mut self, errors: Diagnostics) {
        self.found.add(errors);
    }

    /// Returns whether it is not worth looking further: no more errors are kept.
    pub(super) fn leaves(&mut self) -> bool {
        if self.is_full() {
            self.found.leave();
        }
        self.is_full()
    }

    /// Reports a name that nothing has, with the nearest that something has.
    pub(super) fn unknown<'n>(&mut self, kind: &Kind, name: &Spanned<String>, known: impl Iterator<Item = &'n str> + Clone) {
        // What stands for something that is not there, or may be what could not be read, has been told.
        if (name.is_empty() && self.flaws.errors.is_some()) || kind.keys.iter().any(|key| self.flaws.of(key)) {
            return;
        }
        let what = kind.what;
        if name.value.contains("{{") {
            let error = self.error(kind.code, name.span, format!("the name of a {what} is not a template here"));
            self.report(error.help("name it as it is"));
            return;
        }
        let many = if what.ends_with('s') { format!("{what}es") } else { format!("{what}s") };
        let unknown = self.error(kind.code, name.span, format!("there is no {what} `{}`", name.value)).help(format!("there is no {what} at all"));
        // What is only counted needs no advice, for which all names are looked at.
        self.report(if self.is_full() { unknown } else { unknown.suggest(&name.value, known, &many) });
    }

    /// Reports those of a list of names that nothing has.
    pub(super) fn check_names<'n>(&mut self, kind: &Kind, names: &[Spanned<String>], known: &(impl Iterator<Item = &'n String> + Clone)) {
        for name in names {
            if !known.clone().any(|known| *known == name.value) {
                self.unknown(kind, name, known.clone().map(String::as_str));
            }
        }
    }

    /// Returns the warnings, or all errors where there is one; both in the order of the file.
    pub(super) fn into_warnings(self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let file = &self.source.name;
        self.found.into_warnings(|found| (found.source.name != *file, found.source.name.clone(), found.labels.first().map(|label| label.span), found.code))
    }

    /// Returns the errors, of which there must be one.
    pub(super) fn into_errors(self) -> Diagnostics {
        self.into_warnings().expect_err("an error was reported")
    }
}
