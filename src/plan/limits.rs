//! Limits: what is written replaces a default, and what is nearer only narrows what is around it.
use super::{Limits, findings::Findings};
use crate::{
    source::{Span, Spanned, codes},
    workflow::{Budget, OnExceed},
};
use std::{fmt::Display, time::Duration};

impl Limits {
    /// Replaces what a budget names.
    #[must_use]
    pub(super) fn replaced(self, budget: Option<&Budget>) -> Limits {
        let Some(budget) = budget else { return self };
        Limits {
            turns: budget.turns.as_deref().copied().unwrap_or(self.turns),
            tokens: budget.tokens.as_deref().copied().unwrap_or(self.tokens),
            usd: budget.usd.as_deref().copied().or(self.usd),
            time: budget.time.as_deref().copied().unwrap_or(self.time),
            repeats: self.repeats,
        }
    }

    /// Returns what a budget names, and no limit for what it does not.
    pub fn only(budget: &Budget) -> Limits {
        Limits { turns: u32::MAX, tokens: u64::MAX, usd: None, time: Duration::MAX, repeats: u32::MAX }.replaced(Some(budget))
    }

    /// Narrows the limits of a session to the budget of its step. One that a person may raise is held by its own account alone.
    #[must_use]
    pub(super) fn narrowed(self, budget: Option<&Budget>) -> Limits {
        let budget = budget.filter(|budget| budget.on_exceed != OnExceed::Ask);
        self.replaced(budget).within(&self)
    }

    /// Takes the smaller of each.
    #[must_use]
    pub(super) fn within(self, outer: &Limits) -> Limits {
        let usd = match (self.usd, outer.usd) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        };
        Limits {
            turns: self.turns.min(outer.turns),
            tokens: self.tokens.min(outer.tokens),
            usd,
            time: self.time.min(outer.time),
            repeats: self.repeats.min(outer.repeats),
        }
    }
}

/// Warns of time in a budget within that of the run that is to ask at its limit.
pub(super) fn check_asking(budget: Option<&Spanned<Budget>>, whose: &str, findings: &mut Findings<'_>) {
    let Some(budget) = budget.filter(|budget| budget.on_exceed == OnExceed::Ask) else { return };
    if let Some(time) = &budget.time {
        let warning = findings.warning(codes::SIMPLER, time.span, format!("{whose} asks nobody for more time: at the end of it, it stops"));
        findings.report(warning.help("a person is asked for more turns, tokens and dollars; for more time only where it is that of the run itself"));
    }
}

/// Reports what a budget allows beyond what that around it does, where both are written; `whole` names the one around.
pub(super) fn check_within(inner: Option<&Spanned<Budget>>, outer: Option<&Spanned<Budget>>, whole: &str, findings: &mut Findings<'_>) {
    fn larger<T: PartialOrd + Copy + Display>(inner: Option<&Spanned<T>>, outer: Option<&Spanned<T>>) -> Option<[(Span, String); 2]> {
        let (inner, outer) = (inner?, outer?);
        (inner.value > outer.value).then(|| [(inner.span, inner.value.to_string()), (outer.span, outer.value.to_string())])
    }
    let (Some(inner), Some(outer)) = (inner, outer) else { return };
    let seconds = |duration: &Option<Spanned<Duration>>| duration.as_ref().map(|duration| Spanned::new(duration.value.as_secs_f64(), duration.span));
    let found = [
        ("dollars", larger(inner.usd.as_ref(), outer.usd.as_ref())),
        ("tokens", larger(inner.tokens.as_ref(), outer.tokens.as_ref())),
        ("turns", larger(inner.turns.as_ref(), outer.turns.as_ref())),
        ("seconds", larger(seconds(&inner.time).as_ref(), seconds(&outer.time).as_ref())),
    ];
    for (unit, larger) in found {
        let Some([(at, inner), (outer_at, outer)]) = larger else { continue };
        let error = findings.error(codes::BUDGET, at, format!("a budget of {inner} {unit} is larger than that of {whole}"));
        findings.report(error.label("more than there is").also(outer_at, format!("{outer} in all")));
    }
}
