//! The model behind an HTTP endpoint: limiter, attempts, retries.
//!
//! A failed attempt is made again from the start, with the same bytes, and nothing of it is used: no tool runs before the
//! reply is whole. Waits are at least what the provider asks for; where it asks for more than the ceiling, or for money,
//! that is told at once and not waited for, by this call and by all that share its limit.
use super::{
    Endpoint, Endpoints, Limiter, Model, ModelCall, ModelError, ModelErrorKind, Protocol, Sink, Target, capability,
    fault::{Fault, RetryHints},
    limiter::{Ask, LaneKey, Limits, Permit, Priority, Shut},
    price, provider, span,
    stream::{Watch, decode},
};
use crate::{
    clock::{Clock, millis},
    http::{Client, HttpRequest},
    message::{Reply, Role, Usage},
    plan::ORCHESTRATOR,
    tasks, trace,
};
use async_trait::async_trait;
use std::{
    hash::{DefaultHasher, Hasher as _},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::OnceCell, time::timeout};
use tracing::Instrument as _;

/// How often one who waits for a place shows that it is alive.
const BEAT: Duration = Duration::from_secs(1);
/// System text and tools of fewer bytes are not worth waiting for: providers cache from about 1000 tokens on.
const PREFIX_BYTES: usize = 4096;

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts at one model, the first included.
    pub max_attempts: u32,
    /// The first wait of the ladder, doubled each time.
    pub first_wait: Duration,
    /// The longest wait of the ladder.
    pub longest_wait: Duration,
    /// The longest wait that a provider may ask for.
    pub ceiling: Duration,
    /// Makes the random part of the waits.
    pub seed: u64,
}

impl Default for Retries {
    /// 10 attempts, 0.5 s doubling to 8 s, 120 s at most.
    fn default() -> Retries {
        Retries { max_attempts: 10, first_wait: Duration::from_millis(500), longest_wait: Duration::from_secs(8), ceiling: Duration::from_mins(2), seed: 0 }
    }
}

impl Retries {
    /// Returns the wait after a failed attempt, which counts from 1: the ladder less up to a quarter, or what the provider
    /// asks for plus up to a tenth, whichever is longer; `None` where another attempt makes no sense.
    fn wait(&self, fault: &Fault, attempt: u32, salt: u64) -> Option<Duration> {
        if !fault.retry || attempt >= self.max_attempts || fault.wait.is_some_and(|wait| wait > self.ceiling) {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(self.seed ^ salt);
        let rung = self.first_wait.saturating_mul(2_u32.saturating_pow(attempt - 1)).min(self.longest_wait);
        let ladder = rung.mul_f64(1.0 - 0.25 * random.f64());
        let asked = fault.wait.unwrap_or_default().mul_f64(1.0 + 0.1 * random.f64());
        // Whole milliseconds, upwards: a clock that cuts the rest off would come too early.
        u64::try_from(ladder.max(asked).as_micros().div_ceil(1_000)).ok().map(Duration::from_millis)
    }
}

/// Models behind HTTP endpoints.
#[derive(Debug, Clone)]
pub struct HttpModel {
    client: Client,
    endpoints: Endpoints,
    limiter: Limiter,
    retries: Retries,
    clock: Clock,
    prices: Arc<OnceCell<()>>,
}

impl HttpModel {
    /// Makes the model. All agents of a process should share one, or one `limiter`.
    pub fn new(client: Client, endpoints: Endpoints, limiter: Limiter, clock: Clock) -> HttpModel {
        HttpModel { client, endpoints, limiter, retries: Retries::default(), clock, prices: Arc::default() }
    }

    /// Sets when to try again.
    #[must_use]
    pub fn with_retries(self, retries: Retries) -> HttpModel {
        HttpModel { retries, ..self }
    }

    /// Asks one model, as often as makes sense.
    async fn ask(&self, call: &ModelCall<'_>, target: Target<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let request = provider(target.endpoint.protocol).request(call, target)?;
        for attempt in 1..=self.retries.max_attempts.max(1) {
            let permit = self.enter(target, wanted(call, target, &request, attempt), sink).await?;
            let span = trace::chat(&target.label());
            trace::attempt(&span, attempt);
            let result = self.attempt(call, target, &request, (&permit, sink)).instrument(span.clone()).await;
            span::end(&span, result.as_ref().map_err(|fault| &fault.error));
            let fault = match result {
                Ok(reply) => {
                    permit.succeeded((counted(target.endpoint, &reply.usage), reply.usage.output));
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let wait = self.retries.wait(&fault, attempt, salt(call, attempt)).filter(|_| fault.wait.is_some() || permit.may_retry());
            self.note(&permit, &fault, wait);
            let Some(wait) = wait else {
                let asked = fault.wait;
                let error = self.last_word(fault, attempt);
                if error.kind.parks() {
                    permit.close(&error, asked.filter(|_| error.kind == ModelErrorKind::Later));
                }
                return Err(error);
            };
            drop(permit);
            sink.retrying(&fault.error, millis(wait));
            self.clock.sleep_until(self.clock.now().after(wait)).await;
        }
        // The last attempt has no wait, so the loop has returned.
        Err(ModelError::new(ModelErrorKind::Rejected, format!("{}: no attempt was made", target.label())))
    }

    /// Waits for a place, showing that it is alive.
    async fn enter(&self, target: Target<'_>, ask: Ask, sink: &dyn Sink) -> Result<Permit, ModelError> {
        let lane = lane(target.endpoint);
        let mut entered = std::pin::pin!(self.limiter.enter(&lane, ask));
        loop {
            match timeout(BEAT, &mut entered).await {
                Ok(Ok(permit)) => return Ok(permit),
                Ok(Err(Shut::Closed(error))) => return Err(error),
                Ok(Err(Shut::Outage(lasts))) => {
                    let message = format!("{}: every request has failed for {} s", target.label(), lasts.as_secs());
                    return Err(ModelError::new(ModelErrorKind::Overloaded, message).hint("resume the run once the provider answers again"));
                }
                Err(_) => sink.alive(),
            }
        }
    }

    /// Tells the limiter of a failed attempt.
    fn note(&self, permit: &Permit, fault: &Fault, wait: Option<Duration>) {
        if fault.congested {
            // Everybody waits as long as was asked, within reason: whoever comes later must not be held up for hours.
            permit.rejected(fault.wait.or(wait).map(|wait| wait.min(self.retries.ceiling)));
        }
        if fault.is_down {
            permit.failed();
        }
    }

    fn last_word(&self, fault: Fault, attempt: u32) -> ModelError {
        let ModelError { kind, message, hint } = fault.error;
        match fault.wait.filter(|wait| fault.retry && *wait > self.retries.ceiling) {
            Some(wait) => {
                let due = self.clock.now().after(wait);
                let message = format!("{message} (it asks to wait {} s, until {due})", wait.as_secs());
                ModelError { kind: ModelErrorKind::Later, message, hint: hint.or_else(|| Some(format!("resume the run after {due}"))) }
            }
            None if attempt > 1 => ModelError { kind, message: format!("{message} (after {attempt} attempts)"), hint },
            None => ModelError { kind, message, hint },
        }
    }

    /// Reads the price table once, beside the first reply and off the scheduler's thread.
    async fn read_prices(&self) {
        self.prices
            .get_or_init(|| async {
                // A panic in it is met again, and told, by whoever asks for a price.
                let _ = tasks::blocking(price::warm).await;
            })
            .await;
    }

    async fn attempt(&self, call: &ModelCall<'_>, target: Target<'_>, request: &HttpRequest, (permit, sink): (&Permit, &dyn Sink)) -> Result<Reply, Fault> {
        let began = self.clock.elapsed();
        let response = self.client.post(request, target.endpoint.timeouts).await.map_err(|error| Fault::of_transport(&error, target))?;
        permit.heard(&Limits::read(&|name| response.header(name), self.clock.now()));
        let status = response.status();
        if !(200..300).contains(&status) {
            let hints = RetryHints::of(&response, self.clock.now());
            return Err(Fault::of_answer(status, &hints, &response.error_text().await, target));
        }
        permit.began();
        let watch = Watch { target, sink, clock: &self.clock, began };
        let decoder = provider(target.endpoint.protocol).decoder(call, target);
        let (reply, ()) = tokio::join!(decode(response.into_stream(), decoder, watch), self.read_prices());
        let mut reply = reply?;
        reply.usage = reply.usage.bounded();
        reply.usd = price::usd(target.endpoint, target.model, &reply.usage, self.clock.now());
        Ok(reply)
    }
}

#[async_trait]
impl Model for HttpModel {
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let Some(model) = call.models.first() else {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, "no model is named"));
        };
        let (endpoint, model) = self.endpoints.require(model)?;
        self.ask(call, Target { endpoint, model }, sink).await
    }

    fn price(&self, model: &str, usage: &Usage) -> Option<f64> {
        let (endpoint, model) = self.endpoints.require(model).ok()?;
        price::usd_at_once(endpoint, model, usage, self.clock.now())
    }

    fn window(&self, model: &str) -> u64 {
        let (name, id) = model.split_once('/').unwrap_or(("", model));
        let endpoint = self.endpoints.get(name);
        let said = endpoint.and_then(|endpoint| endpoint.said_window(id));
        // Nobody waits for the table: before the first reply hardly anything has been said.
        let priced = || endpoint.filter(|_| !capability::is_known(id) && self.prices.initialized()).and_then(|endpoint| price::window(endpoint, id));
        said.or_else(priced).unwrap_or_else(|| capability::capabilities(id).window)
    }
}

fn is_begun(call: &ModelCall<'_>) -> bool {
    call.messages.iter().any(|message| message.role == Role::Assistant)
}

/// Says what a request is expected to take of the shared limit.
fn wanted(call: &ModelCall<'_>, target: Target<'_>, request: &HttpRequest, attempt: u32) -> Ask {
    let is_begun = is_begun(call);
    let fresh = || call.messages.iter().rev().take_while(|message| message.role != Role::Assistant).map(|message| message.bytes()).sum();
    let bytes = if is_begun && !counts_cached(target.endpoint) { fresh() } else { request.body.len() };
    let priority = match () {
        () if call.node.helper.is_none() && call.node.step.0 == ORCHESTRATOR => Priority::Orchestrator,
        () if is_begun || attempt > 1 => Priority::Begun,
        () => Priority::New,
    };
    let shared = call.system.len() + call.tools.iter().map(|tool| tool.name.len() + tool.description.len()).sum::<usize>();
    let prefix = || hash_of(&(target.model, call.system, call.tools.iter().map(|tool| (&tool.name, &tool.description)).collect::<Vec<_>>()));
    Ask {
        model: hash_of(&target.model),
        // About 3.2 bytes a token; what is counted in fact corrects it.
        tokens: bytes as u64 * 10 / 32,
        priority,
        prefix: (shared >= PREFIX_BYTES).then(prefix),
    }
}

/// Returns whether tokens that are read from the cache count against the limit; Anthropic's do not.
fn counts_cached(endpoint: &Endpoint) -> bool {
    endpoint.protocol != Protocol::Anthropic
}

/// Returns the input tokens that count against the limit.
fn counted(endpoint: &Endpoint, usage: &Usage) -> u64 {
    if counts_cached(endpoint) { usage.prompt() } else { usage.input + usage.cache_write }
}

fn hash_of(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn lane(endpoint: &Endpoint) -> LaneKey {
    let credential = endpoint.key.as_ref().map_or_else(|| endpoint.base_url.clone(), super::Secret::fingerprint);
    LaneKey { provider: endpoint.name.clone(), credential }
}

/// Makes waits of different callers differ, and those of the same call agree from run to run.
fn salt(call: &ModelCall<'_>, attempt: u32) -> u64 {
    hash_of(&(call.node, call.agent, call.messages.len(), attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(retry: bool, wait: Option<u64>) -> Fault {
        Fault { error: ModelError::new(ModelErrorKind::Overloaded, "x"), retry, wait: wait.map(Duration::from_millis), congested: true, is_down: false }
    }

    #[test]
    fn waits_climb_the_ladder_and_are_never_shorter_than_asked() {
        let retries = Retries::default();
        for salt in 0..200 {
            let wait = |attempt, asked| retries.wait(&fault(true, asked), attempt, salt).unwrap().as_millis();
            assert!((375..=500).contains(&wait(1, None)));
            assert!((750..=1_000).contains(&wait(2, None)));
            assert!((6_000..=8_000).contains(&wait(9, None)));
            assert!((30_000..=33_000).contains(&wait(1, Some(30_000))));
            assert!(wait(6, Some(1)) >= 6_000, "the ladder holds where less is asked for");
        }
        let waits: std::collections::BTreeSet<_> = (0..50).map(|salt| retries.wait(&fault(true, Some(30_000)), 1, salt)).collect();
        assert!(waits.len() > 40, "callers do not come back together");
    }

    #[test]
    fn some_failures_are_not_waited_for() {
        let retries = Retries::default();
        assert_eq!(retries.wait(&fault(false, None), 1, 0), None);
        assert_eq!(retries.wait(&fault(true, None), retries.max_attempts, 0), None);
        assert_eq!(retries.wait(&fault(true, Some(3_600_000)), 1, 0), None);
        assert!(retries.wait(&fault(true, Some(120_000)), 1, 0).is_some());
    }
}
