//! Limits: what is written replaces a default, and what is nearer only narrows what is around it.
use super::{Limits, findings::Findings};
use crate::{
    source::{Span, Spanned, codes},
    workflow::Budget,
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

/// Reports what a budget allows beyond what the whole run may have, where both are written.
pub(super) fn check_within(inner: Option<&Spanned<Budget>>, run: Option<&Spanned<Budget>>, findings: &mut Findings<'_>) {
    fn larger<T: PartialOrd + Copy>(inner: Option<&Spanned<T>>, run: Option<&Spanned<T>>) -> Option<(Span, T, Span, T)> {
        let (inner, run) = (inner?, run?);
        (inner.value > run.value).then_some((inner.span, inner.value, run.span, run.value))
    }
    fn tell<T: Display>(unit: &str, (at, inner, run_at, run): (Span, T, Span, T), findings: &mut Findings<'_>) {
        let error = findings.error(codes::BUDGET, at, format!("a budget of {inner} {unit} is larger than that of the whole run"));
        findings.report(error.label("more than there is").also(run_at, format!("{run} in all")));
    }
    let (Some(inner), Some(run)) = (inner, run) else { return };
    let seconds = |duration: &Option<Spanned<Duration>>| duration.as_ref().map(|duration| Spanned::new(duration.value.as_secs_f64(), duration.span));
    if let Some(found) = larger(inner.usd.as_ref(), run.usd.as_ref()) {
        tell("dollars", found, findings);
    }
    if let Some(found) = larger(inner.tokens.as_ref(), run.tokens.as_ref()) {
        tell("tokens", found, findings);
    }
    if let Some(found) = larger(inner.turns.as_ref(), run.turns.as_ref()) {
        tell("turns", found, findings);
    }
    if let Some(found) = larger(seconds(&inner.time).as_ref(), seconds(&run.time).as_ref()) {
        tell("seconds", found, findings);
    }
}
