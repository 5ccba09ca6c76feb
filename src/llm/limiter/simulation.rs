//! Fifty agents at a provider with real buckets, in one thread and without waiting: the line itself against a policy where
//! each agent only looks to itself, as the providers' own clients do.
use super::{buckets::Told, *};

const AGENTS: usize = 50;
const CALLS: u32 = 20;
/// An agent that is turned away so often in a row is lost.
const LOST_AFTER: u32 = 10;

/// A provider that bears 20000 tokens and 5 requests a second, a quarter of which somebody else uses.
struct Provider {
    tokens: f64,
    requests: f64,
    at: u64,
    tells: bool,
}

const TOKENS: (f64, f64) = (1_200_000.0, 20_000.0);
const REQUESTS: (f64, f64) = (300.0, 5.0);
const OURS: f64 = 0.75;

impl Provider {
    fn new(tells: bool) -> Provider {
        Provider { tokens: TOKENS.0, requests: REQUESTS.0, at: 0, tells }
    }

    /// Takes a request, or says when to come again.
    fn ask(&mut self, now: u64, tokens: f64) -> Result<(), Duration> {
        let passed = millis(now - self.at).as_secs_f64() * OURS;
        self.at = now;
        self.tokens = (self.tokens + passed * TOKENS.1).min(TOKENS.0);
        self.requests = (self.requests + passed * REQUESTS.1).min(REQUESTS.0);
        if self.tokens >= tokens && self.requests >= 1.0 {
            self.tokens -= tokens;
            self.requests -= 1.0;
            return Ok(());
        }
        let missing = ((tokens - self.tokens) / TOKENS.1).max((1.0 - self.requests) / REQUESTS.1);
        Err(Duration::from_secs_f64(missing.ceil()))
    }

    fn limits(&self) -> Limits {
        let told = |(size, rate): (f64, f64), level: f64| Told {
            limit: Some(size),
            remaining: Some(level.floor()),
            reset: Some(Duration::from_secs_f64(((size - level) / rate).ceil())),
        };
        if self.tells { Limits { requests: told(REQUESTS, self.requests), input: told(TOKENS, self.tokens), ..Limits::default() } } else { Limits::default() }
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What is to happen to an agent.
enum Happens {
    Wants,
    Heard(Limits),
    Ends { tokens: u64 },
    Rejected { wait: Duration, limits: Limits },
}

#[derive(Debug, Default)]
struct Outcome {
    successes: u32,
    rejections: u32,
    lost: usize,
    waits: Vec<u64>,
    over: u64,
}

impl Outcome {
    fn p99(&self) -> u64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits[waits.len() * 99 / 100]
    }

    fn rejected_per_success(&self) -> f64 {
        f64::from(self.rejections) / f64::from(self.successes)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Agent {
    done: u32,
    attempts: u32,
    since: u64,
    place: Option<Place>,
    is_sent: bool,
    /// Tokens of its present request.
    tokens: u64,
}

struct World {
    provider: Provider,
    random: fastrand::Rng,
    agents: Vec<Agent>,
    events: BTreeMap<(u64, u64), (usize, Happens)>,
    number: u64,
    outcome: Outcome,
}

impl World {
    fn new(tells: bool, seed: u64) -> World {
        let mut world = World {
            provider: Provider::new(tells),
            random: fastrand::Rng::with_seed(seed),
            agents: vec![Agent::default(); AGENTS],
            events: BTreeMap::new(),
            number: 0,
            outcome: Outcome::default(),
        };
        (0..AGENTS).for_each(|agent| world.later(0, 0, agent, Happens::Wants));
        world
    }

    fn later(&mut self, now: u64, ms: u64, agent: usize, happens: Happens) {
        self.number += 1;
        self.events.insert((now + ms, self.number), (agent, happens));
    }

    /// Has an agent want its next call, or the same again.
    fn want(&mut self, now: u64, agent: usize) {
        if self.agents[agent].attempts == 0 {
            // Most are small, some are large: those wait longest where nobody keeps order.
            let tokens = if self.random.u8(..10) == 0 { self.random.u64(20_000..50_000) } else { self.random.u64(2_000..11_000) };
            self.agents[agent] = Agent { since: now, tokens, ..self.agents[agent] };
        }
    }

    /// Sends an agent's request to the provider.
    fn send(&mut self, now: u64, agent: usize) {
        let tokens = self.agents[agent].tokens;
        self.agents[agent].attempts += 1;
        self.agents[agent].is_sent = true;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        match self.provider.ask(now, tokens as f64) {
            Ok(()) => {
                let limits = self.provider.limits();
                self.outcome.waits.push(now - self.agents[agent].since);
                self.later(now, 800, agent, Happens::Heard(limits));
                let takes = self.random.u64(4_000..16_000);
                self.later(now, takes, agent, Happens::Ends { tokens });
            }
            Err(wait) => {
                let limits = self.provider.limits();
                self.outcome.rejections += 1;
                self.later(now, 100, agent, Happens::Rejected { wait, limits });
            }
        }
    }

    /// Ends a call; the agent uses its tools, then wants the next.
    fn end(&mut self, now: u64, agent: usize) {
        self.outcome.successes += 1;
        self.outcome.over = now;
        let own = &mut self.agents[agent];
        *own = Agent { done: own.done + 1, ..Agent::default() };
        if own.done < CALLS {
            let pause = self.random.u64(500..4_000);
            self.later(now, pause, agent, Happens::Wants);
        }
    }

    /// Returns whether an agent gives up.
    fn is_lost(&mut self, agent: usize) -> bool {
        let is_lost = self.agents[agent].attempts >= LOST_AFTER;
        self.outcome.lost += usize::from(is_lost);
        is_lost
    }
}

/// All agents in one line.
fn together(tells: bool, seed: u64) -> Outcome {
    let mut world = World::new(tells, seed);
    let mut line = Line::new(64);
    let mut look = None;
    while let Some(next) = world.events.first_key_value().map(|((at, _), _)| *at).into_iter().chain(look).min() {
        let now = next;
        assert!(now < 7_200_000, "it takes hours and is not done");
        while let Some(entry) = world.events.first_entry().filter(|entry| entry.key().0 <= now) {
            let (agent, happens) = entry.remove();
            let place = world.agents[agent].place;
            match (happens, place) {
                (Happens::Wants, _) => {
                    world.want(now, agent);
                    let tenths = world.random.u64(7..14);
                    let own = &mut world.agents[agent];
                    let priority = if own.done == 0 && own.attempts == 0 { Priority::New } else { Priority::Begun };
                    // Nobody knows beforehand how many tokens will be counted.
                    let ask = Ask { model: 1, tokens: own.tokens * tenths / 10, priority, prefix: None };
                    (own.place, own.is_sent) = (Some(line.join(ask, Arc::new(Notify::new()))), false);
                }
                (Happens::Heard(limits), Some(_)) => line.buckets.hear(&limits, millis(now)),
                (Happens::Ends { tokens }, Some(place)) => {
                    line.succeeded(place, tokens, (tokens, 500), millis(now));
                    line.leave(place, millis(now));
                    world.end(now, agent);
                }
                (Happens::Rejected { wait, limits }, Some(place)) => {
                    line.buckets.hear(&limits, millis(now));
                    line.rejected(place, millis(now), Some(wait));
                    line.leave(place, millis(now));
                    if !world.is_lost(agent) {
                        world.later(now, u64::try_from(wait.as_millis()).unwrap(), agent, Happens::Wants);
                    }
                }
                (_, None) => unreachable!("only who is inside hears something"),
            }
        }
        let wait = line.let_in(millis(now)).unwrap();
        look = wait.map(|wait| now + u64::try_from(wait.as_millis()).unwrap() + 1);
        for agent in 0..AGENTS {
            let own = world.agents[agent];
            if !own.is_sent && own.place.is_some_and(|place| line.inside.contains_key(&place)) {
                world.send(now, agent);
            }
        }
    }
    world.outcome
}

/// Each for itself: it comes again when it is told to, a fifth later at most, as often as it takes.
fn alone(seed: u64) -> Outcome {
    let mut world = World::new(true, seed);
    while let Some(entry) = world.events.first_entry() {
        let now = entry.key().0;
        assert!(now < 7_200_000, "it takes hours and is not done");
        let (agent, happens) = entry.remove();
        match happens {
            Happens::Wants => {
                world.want(now, agent);
                world.send(now, agent);
            }
            Happens::Heard(_) => {}
            Happens::Ends { .. } => world.end(now, agent),
            Happens::Rejected { wait, .. } => {
                let ms = wait.mul_f64(1.0 + 0.2 * world.random.f64()).as_millis();
                world.later(now, u64::try_from(ms).unwrap(), agent, Happens::Wants);
            }
        }
    }
    world.outcome
}

#[test]
fn fifty_agents_in_one_line_are_rarely_rejected_and_wait_a_third_as_long() {
    for seed in 0..5 {
        let (shared, blind, single) = (together(true, seed), together(false, seed), alone(seed));
        let figures = |name: &str, outcome: &Outcome| {
            format!(
                "{name}: {} lost, {:.3} rejected a success, p99 {} ms, over after {} ms; ",
                outcome.lost,
                outcome.rejected_per_success(),
                outcome.p99(),
                outcome.over
            )
        };
        let figures = format!("seed {seed}: ") + &figures("shared", &shared) + &figures("without headers", &blind) + &figures("alone", &single);
        assert_eq!((shared.successes, blind.successes), (1_000, 1_000), "{figures}");
        assert_eq!((shared.lost, blind.lost), (0, 0), "{figures}");
        assert!(shared.rejected_per_success() < 0.1 && blind.rejected_per_success() < 0.1, "{figures}");
        assert!(shared.p99() * 3 < single.p99(), "{figures}");
        assert!(shared.over * 10 < single.over * 12, "nobody's time is wasted: {figures}");
    }
}
