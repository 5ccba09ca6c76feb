//! The model behind an HTTP endpoint: limiter, attempts, retries.
//!
//! A failed attempt is made again from the start, with the same bytes, and nothing of it is used: no tool runs before the
//! reply is whole. Waits are at least what the provider asks for; where it asks for more than the ceiling, or for money,
//! that is told at once and not waited for, by this call and by all that share its limit. One that is only told to slow down
//! has not failed as long as others get through: it is slowed down, and asked again until it has its turn.
use super::{
    Endpoint, Endpoints, Limiter, Model, ModelCall, ModelError, ModelErrorKind, Protocol, Retry, Sink, Target, capability, counts,
    fault::{self, Crowded, Fault, RetryHints},
    limiter::{self, Account, Ask, LaneKey, Limits, Permit, Priority, Shut},
    price, provider, span,
    stream::{Watch, decode},
};
use crate::{
    clock::{Clock, millis},
    http::{Client, HttpRequest},
    message::{Reply, Role, StopReason, Usage},
    plan::ORCHESTRATOR,
    tasks, trace,
};
use async_trait::async_trait;
use dashmap::DashSet;
use std::{
    hash::{DefaultHasher, Hasher as _},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::OnceCell, time::timeout};
use tracing::Instrument as _;

/// How often one who waits for a place shows that it is alive, and says what it waits for.
const BEAT: Duration = Duration::from_secs(1);

/// How often a model is asked that stumbles over the form of its reply: each time is paid for.
const STUMBLES: u32 = 3;

/// How many times as many attempts may be made by one that is only told to slow down.
const TURNS: u32 = 20;

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
        Retries { max_attempts: 10, first_wait: Duration::from_millis(500), longest_wait: Duration::from_secs(8), ceiling: limiter::PATIENCE, seed: 0 }
    }
}

impl Retries {
    /// Returns the wait after the failed attempts so far, from 1: the ladder less up to a quarter, or what the provider asks for
    /// plus up to a tenth, whichever is longer.
    ///
    /// # Errors
    /// Why another attempt makes no sense.
    fn wait(&self, fault: &Fault, tries: &Tries, salt: u64) -> Result<Duration, Ended> {
        if !fault.retry || fault.wait.is_some_and(|wait| wait > self.ceiling) {
            return Err(Ended::Told);
        }
        let most = if fault.error.kind == ModelErrorKind::Garbled { STUMBLES.min(self.max_attempts) } else { self.max_attempts };
        if tries.failed >= most || tries.made >= self.max_attempts.saturating_mul(TURNS) {
            return Err(Ended::Tried);
        }
        let mut random = fastrand::Rng::with_seed(self.seed ^ salt);
        let rung = self.first_wait.saturating_mul(2_u32.saturating_pow(tries.failed.saturating_sub(1))).min(self.longest_wait);
        let ladder = rung.mul_f64(1.0 - 0.25 * random.f64());
        let asked = fault.wait.unwrap_or_default().mul_f64(1.0 + 0.1 * random.f64());
        // Whole milliseconds, upwards: a clock that cuts the rest off would come too early.
        Ok(Duration::from_millis(u64::try_from(ladder.max(asked).as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)))
    }
}

/// The attempts at one reply.
#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    /// All.
    made: u32,
    /// Those that count as failed.
    failed: u32,
    /// How many good answers others had had at the last of them.
    seen: u64,
}

impl Tries {
    /// Counts one that failed. Whoever is only told to slow down, while others get through, has not failed yet.
    fn count(&mut self, fault: &Fault, successes: u64) {
        let is_in_turn = fault.crowded.is_some() && successes > self.seen;
        self.failed += u32::from(!is_in_turn);
        self.seen = successes;
    }
}

/// What ended the attempts at a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The provider's word.
    Told,
    /// There were as many as there may be.
    Tried,
    /// All who ask together had too many failures.
    Spent,
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
    /// Models and schemas for which the provider's format was refused.
    formless: Arc<DashSet<u64>>,
    /// Where code ran once and does no more: providers and containers.
    expired: Arc<DashSet<u64>>,
}

impl HttpModel {
    /// Makes the model. All agents of a process should share one, or one `limiter`.
    pub fn new(client: Client, endpoints: Endpoints, limiter: Limiter, clock: Clock) -> HttpModel {
        let retries = Retries::default();
        HttpModel { client, endpoints, limiter, retries, clock, prices: Arc::default(), formless: Arc::default(), expired: Arc::default() }
    }

    /// Sets when to try again.
    #[must_use]
    pub fn with_retries(self, retries: Retries) -> HttpModel {
        HttpModel { retries, ..self }
    }

    /// Asks one model for an answer that fits, by the provider's format for it unless that refused this one before.
    async fn fitting(&self, call: &ModelCall<'_>, target: Target<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let Some(schema) = call.output_schema else { return self.whole(call, target, sink).await };
        let key = hash_of(&(target.label(), schema.to_string()));
        if !self.formless.contains(&key) {
            match self.whole(call, target, sink).await {
                Err(error) if is_about_format(&error, call, target) => drop(self.formless.insert(key)),
                done => return done,
            }
        }
        // By the tool that takes the answer, as where there is no format at all.
        self.whole(call, Target { endpoint: &target.endpoint.without_format(target.model), ..target }, sink).await
    }

    /// Asks one model for a reply whose calls are whole.
    ///
    /// # Errors
    /// `Capped` where a cap of the user's cut one and the model makes longer replies: whoever asked has to have room for one.
    async fn whole(&self, call: &ModelCall<'_>, target: Target<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let reply = self.fitted(call, target, sink).await?;
        let longer = ModelCall { is_longest: true, ..call.clone() };
        let cap = |call| provider::longest(call, &target.capabilities(), target);
        if reply.stop != StopReason::MaxTokens || !reply.is_cut_in_call() || cap(&longer) <= cap(call) {
            return Ok(reply);
        }
        sink.lost(&reply.usage, reply.usd);
        Err(ModelError::new(ModelErrorKind::Capped, format!("{}: a call was cut at the cap on the reply", target.label())))
    }

    /// Asks one model for a reply that fits into the window: once more, for a shorter one, where the provider says how much room the
    /// prompt leaves.
    async fn fitted(&self, call: &ModelCall<'_>, target: Target<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let error = match self.ask(call, target, sink).await {
            Err(error) if error.kind == ModelErrorKind::TooLong => error,
            done => return done,
        };
        let room = fault::room(&error.message).and_then(|room| u32::try_from(room).ok()).filter(|room| *room >= provider::SHORTEST_REPLY);
        match room.filter(|room| provider::longest(call, &target.capabilities(), target).is_none_or(|asked| *room < asked)) {
            Some(room) => self.ask(&ModelCall { max_output_tokens: Some(room), is_longest: false, ..call.clone() }, target, sink).await,
            None => Err(error),
        }
    }

    /// Asks one model, as often as makes sense.
    async fn ask(&self, call: &ModelCall<'_>, target: Target<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let request = provider(target.endpoint.protocol).request(call, target)?;
        let mut tries = Tries::default();
        loop {
            tries.made += 1;
            let permit = self.enter(target, wanted(call, target, &request, tries.made), sink).await?;
            sink.asking();
            tries.seen = if tries.made == 1 { permit.successes() } else { tries.seen };
            let span = trace::chat(&target.label());
            trace::attempt(&span, tries.made);
            let result = self.attempt(call, target, &request, (&permit, sink)).instrument(span.clone()).await;
            span::end(&span, result.as_ref().map_err(|fault| &fault.error));
            let fault = match result {
                Ok(reply) => {
                    permit.succeeded((counted(target.endpoint, &reply.usage), reply.usage.output));
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            tries.count(&fault, permit.successes());
            let wait = self.wait(&fault, &tries, &permit, salt(call, tries.made));
            self.note(&permit, &fault);
            match wait {
                Ok(wait) => {
                    drop(permit);
                    let (attempt, of) = (tries.failed + 1, self.retries.max_attempts);
                    sink.retrying(&Retry { why: &fault.error, wait_ms: millis(wait), attempt, of });
                    self.clock.sleep_until(self.clock.now().after(wait)).await;
                }
                Err(ended) => {
                    let asked = fault.wait;
                    let error = self.last_word(fault, &tries, ended);
                    match (error.kind, asked) {
                        (ModelErrorKind::SpendLimit, _) => self.limiter.close(&account(target.endpoint), &error),
                        (ModelErrorKind::Later, Some(asked)) => permit.close(&error, asked),
                        _ => {}
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Returns how long to wait for another attempt. Being told to slow down, or when to come again, is no failure that others
    /// have to make up for.
    fn wait(&self, fault: &Fault, tries: &Tries, permit: &Permit, salt: u64) -> Result<Duration, Ended> {
        let wait = self.retries.wait(fault, tries, salt)?;
        if fault.crowded.is_some() || fault.wait.is_some() {
            return Ok(wait);
        }
        permit.retry_in().map(|budget| wait.max(budget)).ok_or(Ended::Spent)
    }

    /// Waits for a place, showing that it is alive.
    async fn enter(&self, target: Target<'_>, ask: Ask, sink: &dyn Sink) -> Result<Permit, ModelError> {
        let lane = LaneKey { account: account(target.endpoint), model: target.model.to_owned() };
        let mut entered = std::pin::pin!(self.limiter.enter(&lane, ask));
        loop {
            match timeout(BEAT, &mut entered).await {
                Ok(Ok(permit)) => return Ok(permit),
                Ok(Err(Shut::Closed(error))) => return Err(error),
                Ok(Err(Shut::Outage(lasts))) => {
                    let message = format!("{}: every request has failed for {} s", target.label(), lasts.as_secs());
                    return Err(ModelError::new(ModelErrorKind::Overloaded, message).hint("resume the run once the provider answers again"));
                }
                Ok(Err(Shut::UsedUp(wait))) => return Err(self.later(&format!("{}: its limit is used up", target.label()), None, wait)),
                Err(_) => {
                    sink.alive();
                    sink.waiting(&format!("{} ({})", self.limiter.held_by(&lane), target.label()));
                }
            }
        }
    }

    /// Tells the limiter of a failed attempt.
    fn note(&self, permit: &Permit, fault: &Fault) {
        if let Some(crowded) = fault.crowded {
            // Everybody waits as long as was asked, within reason: whoever comes later must not be held up for hours.
            permit.rejected(fault.wait.map(|wait| wait.min(self.retries.ceiling)), crowded == Crowded::Ours);
        }
        if fault.is_down {
            permit.failed();
        }
    }

    /// Says what ended the attempts.
    fn last_word(&self, fault: Fault, tries: &Tries, ended: Ended) -> ModelError {
        let ModelError { kind, message, hint } = fault.error;
        let message = match (ended, fault.wait.filter(|_| fault.retry)) {
            (Ended::Told, Some(wait)) => return self.later(&message, hint, wait),
            (Ended::Told, None) if tries.made > 1 => format!("{message} (at attempt {})", tries.made),
            (Ended::Told, None) => message,
            (Ended::Tried, _) => format!("{message} (given up after {} attempts)", tries.made),
            (Ended::Spent, _) => format!("{message} (given up at attempt {}: too many requests to it have failed to make more of them again)", tries.made),
        };
        ModelError { kind, message, hint }
    }

    /// Says when to come again.
    fn later(&self, message: &str, hint: Option<String>, wait: Duration) -> ModelError {
        let due = self.clock.now().after(wait);
        let message = format!("{message} (it asks to wait {} s, until {due})", wait.as_secs());
        ModelError { kind: ModelErrorKind::Later, message, hint: hint.or_else(|| Some(format!("resume the run after {due}"))) }
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
        let response = Fault::of_no_stream(response, target).await?;
        permit.began();
        let watch = Watch { target, sink, clock: &self.clock, began };
        let decoder = provider(target.endpoint.protocol).decoder(call, target);
        let (reply, ()) = tokio::join!(decode(response.into_stream(), decoder, watch), self.read_prices());
        let mut reply = reply?;
        reply.usage = reply.usage.bounded();
        reply.usd_is_part = price::is_part(target.endpoint, target.model, &reply);
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
        let target = Target { endpoint, model };
        let Some(container) = call.container else { return self.fitting(call, target, sink).await };
        let key = hash_of(&(&endpoint.name, container));
        if !self.expired.contains(&key) {
            match self.fitting(call, target, sink).await {
                Err(error) if is_about_container(&error) => drop(self.expired.insert(key)),
                done => return done,
            }
        }
        // In a new one, without what was left in the other.
        self.fitting(&ModelCall { container: None, ..call.clone() }, target, sink).await
    }

    fn price(&self, model: &str, usage: &Usage) -> Option<f64> {
        let (endpoint, model) = self.endpoints.require(model).ok()?;
        price::usd_at_once(endpoint, model, usage, self.clock.now())
    }

    fn is_bound(&self, model: &str) -> bool {
        self.endpoints.capabilities(model).prefix_bound
    }

    fn window(&self, model: &str) -> u64 {
        let (name, id) = model.split_once('/').unwrap_or(("", model));
        let endpoint = self.endpoints.get(name);
        let said = endpoint.and_then(|endpoint| endpoint.said_window(id));
        // Nobody waits for the table: before the first reply hardly anything has been said.
        let priced = || endpoint.filter(|_| !capability::is_known(id) && self.prices.initialized()).and_then(|endpoint| price::window(endpoint, id));
        let known = self.endpoints.capabilities(model);
        // Where a long prompt costs more, all of it, a conversation is shortened before it is one.
        let cheap = |window: u64| known.price_step.map_or(window, |step| step.min(window));
        said.unwrap_or_else(|| cheap(priced().unwrap_or(known.window)))
    }
}

/// Returns whether a provider refused a request for the schema of the answer.
fn is_about_format(error: &ModelError, call: &ModelCall<'_>, target: Target<'_>) -> bool {
    let message = error.message.to_ascii_lowercase();
    let words = ["schema", "response_format", "output_config", "text.format", "grammar", "structured output"];
    let is_said = error.kind == ModelErrorKind::Rejected && words.iter().any(|word| message.contains(word));
    is_said && provider::declared(call, &target.capabilities()).format.is_some()
}

/// Returns whether a provider says that where it ran code before is not there any more.
fn is_about_container(error: &ModelError) -> bool {
    let is_refused = matches!(error.kind, ModelErrorKind::Rejected | ModelErrorKind::UnknownModel);
    is_refused && error.message.to_ascii_lowercase().contains("container")
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
        // About 3.2 bytes a token; what is counted in fact corrects it.
        tokens: bytes as u64 * 10 / 32,
        priority,
        prefix: (counts::tokens(shared) >= target.capabilities().cache_minimum.into()).then(prefix),
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

fn account(endpoint: &Endpoint) -> Account {
    let credential = endpoint.key.as_ref().map_or_else(|| endpoint.base_url.clone(), super::Secret::fingerprint);
    Account { provider: endpoint.name.clone(), credential }
}

/// Makes waits of different callers differ, and those of the same call agree from run to run.
fn salt(call: &ModelCall<'_>, attempt: u32) -> u64 {
    hash_of(&(call.node, call.agent, call.messages.len(), attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(retry: bool, wait: Option<u64>) -> Fault {
        let error = ModelError::new(ModelErrorKind::Overloaded, "x");
        Fault { error, retry, wait: wait.map(Duration::from_millis), crowded: Some(Crowded::Ours), is_down: false }
    }

    fn failed(failed: u32) -> Tries {
        Tries { made: failed, failed, seen: 0 }
    }

    #[test]
    fn waits_climb_the_ladder_and_are_never_shorter_than_asked() {
        let retries = Retries::default();
        for salt in 0..200 {
            let wait = |attempt, asked| retries.wait(&fault(true, asked), &failed(attempt), salt).unwrap().as_millis();
            assert!((375..=500).contains(&wait(1, None)));
            assert!((750..=1_000).contains(&wait(2, None)));
            assert!((6_000..=8_000).contains(&wait(9, None)));
            assert!((30_000..=33_000).contains(&wait(1, Some(30_000))));
            assert!(wait(6, Some(1)) >= 6_000, "the ladder holds where less is asked for");
        }
        let waits: std::collections::BTreeSet<_> = (0..50).map(|salt| retries.wait(&fault(true, Some(30_000)), &failed(1), salt).unwrap()).collect();
        assert!(waits.len() > 40, "callers do not come back together");
    }

    #[test]
    fn some_failures_are_not_waited_for() {
        let retries = Retries::default();
        assert_eq!(retries.wait(&fault(false, None), &failed(1), 0), Err(Ended::Told));
        assert_eq!(retries.wait(&fault(true, None), &failed(retries.max_attempts), 0), Err(Ended::Tried));
        assert_eq!(retries.wait(&fault(true, Some(3_600_000)), &failed(1), 0), Err(Ended::Told));
        assert!(retries.wait(&fault(true, Some(120_000)), &failed(1), 0).is_ok());
    }

    #[test]
    fn whoever_only_waits_for_a_turn_is_not_given_up() {
        let retries = Retries::default();
        let (slow, broken) = (fault(true, None), Fault { crowded: None, ..fault(true, None) });
        let counted = |fault: &Fault, is_moving: bool| {
            let mut tries = Tries::default();
            for n in 1_u32.. {
                tries.made = n;
                tries.count(fault, if is_moving { n.into() } else { 0 });
                if retries.wait(fault, &tries, 0) == Err(Ended::Tried) {
                    return n;
                }
            }
            0
        };
        assert_eq!([counted(&slow, false), counted(&broken, true)], [10, 10]);
        assert_eq!(counted(&slow, true), 200, "but not for ever");
    }
}
