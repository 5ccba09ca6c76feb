//! The most that something could cost: sessions times the limit of each, at the dearest price.
use super::known::Known;
use crate::{
    clock::Clock,
    engine::steps,
    llm,
    message::Usage,
    plan::{AgentSpec, PlannedStep, Work},
};
use serde::Serialize;

/// The most that something could cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Dollars; absent where a price or the number of items is not known.
    pub usd: Option<f64>,
    /// Tokens; absent where the number of items is not known.
    pub tokens: Option<u64>,
    /// Whether a price is not known.
    pub unpriced: bool,
    /// Whether the number of items is only known in the run.
    pub open: bool,
}

impl Cost {
    pub(super) const NOTHING: Cost = Cost { usd: Some(0.0), tokens: Some(0), unpriced: false, open: false };

    #[must_use]
    pub(super) fn and(self, other: Cost) -> Cost {
        Cost {
            usd: self.usd.zip(other.usd).map(|(a, b)| a + b),
            tokens: self.tokens.zip(other.tokens).map(|(a, b)| a.saturating_add(b)),
            unpriced: self.unpriced || other.unpriced,
            open: self.open || other.open,
        }
    }

    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a bound need not be exact beyond 2^52")]
    pub(super) fn times(self, count: u64) -> Cost {
        Cost { usd: self.usd.map(|usd| usd * count as f64), tokens: self.tokens.map(|tokens| tokens.saturating_mul(count)), ..self }
    }

    /// What is never known to end costs what bounds it, or nobody can say.
    #[must_use]
    pub(super) fn for_items(self, count: Option<u64>) -> Cost {
        match count {
            Some(count) => self.times(count),
            None if self == Cost::NOTHING => self,
            None => Cost { usd: None, tokens: None, open: true, ..self },
        }
    }

    /// No more than a limit around it allows. A limit in dollars holds only what has a price.
    #[must_use]
    pub(super) fn within(self, usd: Option<f64>, tokens: Option<u64>) -> Cost {
        let usd = if self.unpriced { self.usd } else { self.usd.into_iter().chain(usd).reduce(f64::min) };
        Cost { usd, tokens: self.tokens.into_iter().chain(tokens).min(), ..self }
    }
}

impl Known<'_> {
    /// What the sessions of a step's agents cost at most over all its items and tries, besides the steps inside it.
    /// `choices` are the models of its items with how many of those there are, where a template chooses them.
    pub(super) fn sessions(&mut self, step: &PlannedStep, choices: &[(&[String], u64)], items: Option<u64>) -> Cost {
        let again = step.retry_with.as_ref().map_or(Cost::NOTHING, |agent| self.session(agent, &agent.model.choices)).for_items(items);
        let Some((agent, sessions)) = step.sessions() else { return again };
        let each = u64::from(sessions).saturating_mul(tries(step));
        let own = match step.work {
            // How many conflicts there are is only known in the run.
            Work::Merge(_) => self.session(agent, &agent.model.choices).for_items(None),
            _ if !choices.is_empty() => {
                choices.iter().fold(Cost::NOTHING, |sum, (models, count)| sum.and(self.session(agent, models).times(each.saturating_mul(*count))))
            }
            _ => self.session(agent, &agent.model.choices).times(each).for_items(items),
        };
        own.and(again)
    }

    /// What one session costs at most: its limit of tokens at the dearest price, or its limit of dollars.
    #[expect(clippy::cast_precision_loss, reason = "a bound need not be exact beyond 2^52")]
    pub(super) fn session(&mut self, agent: &AgentSpec, models: &[String]) -> Cost {
        let prices: Option<Vec<f64>> = models.iter().map(|choice| self.dearest(choice)).collect();
        let priced = prices.map(|prices| prices.into_iter().fold(0.0, f64::max) * agent.limits.tokens as f64);
        let endpoint = |choice: &String| self.endpoints.get(choice.split_once('/')?.0);
        let beyond = |endpoint| steps::declared(agent).into_iter().any(|tool| llm::costs_beyond_tokens(endpoint, tool));
        let unpriced = priced.is_none() || models.iter().filter_map(endpoint).any(beyond);
        let usd = priced.map(|usd| agent.limits.usd.map_or(usd, |limit| limit.min(usd)));
        Cost { usd, tokens: Some(agent.limits.tokens), unpriced, open: false }
    }

    /// Returns the dollars that one token of a model costs at most.
    fn dearest(&mut self, choice: &str) -> Option<f64> {
        const MANY: u64 = 1_000_000;
        if let Some(price) = self.prices.get(choice) {
            return *price;
        }
        let kinds = [Usage { input: MANY, ..Usage::default() }, Usage { output: MANY, ..Usage::default() }, Usage { cache_write: MANY, ..Usage::default() }];
        let now = Clock::system().now();
        let found = choice.split_once('/').and_then(|(provider, model)| Some((self.endpoints.get(provider)?, model)));
        let price = found.and_then(|(endpoint, model)| {
            let prices: Option<Vec<f64>> = kinds.iter().map(|usage| llm::usd(endpoint, model, usage, now)).collect();
            Some(prices?.into_iter().fold(0.0, f64::max) / 1e6)
        });
        self.prices.insert(choice.to_owned(), price);
        price
    }
}

/// Returns how often one item is tried at most.
pub(super) fn tries(step: &PlannedStep) -> u64 {
    // A person who said no is not asked again.
    let retry = step.retry.as_ref().filter(|_| !matches!(step.work, Work::Approve(_)));
    retry.map_or(1, |retry| u64::from(retry.max).saturating_add(1))
}
