//! Fifty agents at a provider with real buckets, in one thread and without waiting: the line itself against a policy where
//! each agent only looks to itself, as the providers' own clients do.
use super::{buckets::Told, *};
use std::ops::Range;

/// An agent that is turned away so often in a row, while nobody gets through, is lost.
const LOST_AFTER: u32 = 10;

/// Who asks, and what the provider bears and says.
#[derive(Debug, Clone, Copy)]
struct Scene {
    agents: usize,
    calls: u32,
    /// Size and rate a second.
    tokens: (f64, f64),
    requests: (f64, f64),
    /// The part of it that is not used by somebody else.
    ours: f64,
    /// How long a reply takes, from and to, in milliseconds.
    takes: (u64, u64),
    /// How long an agent's tools take.
    pauses: (u64, u64),
    /// Whether its headers say what is left.
    tells: bool,
    /// Whether it says when to come again.
    asks: bool,
}

/// Fifty agents at a provider that bears 20000 tokens and 5 requests a second, a quarter of which somebody else uses.
const LARGE: Scene = Scene {
    agents: 50,
    calls: 20,
    tokens: (1_200_000.0, 20_000.0),
    requests: (300.0, 5.0),
    ours: 0.75,
    takes: (4_000, 16_000),
    pauses: (500, 4_000),
    tells: true,
    asks: true,
};

/// Thirty agents at a server that bears two requests a second and answers at once.
const QUICK: Scene =
    Scene { agents: 30, calls: 10, tokens: (1e9, 1e9), requests: (2.0, 2.0), ours: 1.0, takes: (40, 60), pauses: (5, 50), tells: false, asks: false };

struct Provider {
    scene: Scene,
    tokens: f64,
    requests: f64,
    at: u64,
}

impl Provider {
    fn new(scene: Scene) -> Provider {
        Provider { scene, tokens: scene.tokens.0, requests: scene.requests.0, at: 0 }
    }

    /// Takes a request, or says when to come again.
    fn ask(&mut self, now: u64, tokens: f64) -> Result<(), Duration> {
        let passed = millis(now - self.at).as_secs_f64() * self.scene.ours;
        self.at = now;
        self.tokens = (self.tokens + passed * self.scene.tokens.1).min(self.scene.tokens.0);
        self.requests = (self.requests + passed * self.scene.requests.1).min(self.scene.requests.0);
        if self.tokens >= tokens && self.requests >= 1.0 {
            self.tokens -= tokens;
            self.requests -= 1.0;
            return Ok(());
        }
        let missing = ((tokens - self.tokens) / self.scene.tokens.1).max((1.0 - self.requests) / self.scene.requests.1);
        Err(Duration::from_secs_f64(missing.ceil()))
    }

    fn limits(&self) -> Limits {
        let told = |(size, rate): (f64, f64), level: f64| Told {
            limit: Some(size),
            remaining: Some(level.floor()),
            reset: Some(Duration::from_secs_f64(((size - level) / rate).ceil())),
        };
        if self.scene.tells {
            Limits { requests: told(self.scene.requests, self.requests), input: told(self.scene.tokens, self.tokens), ..Limits::default() }
        } else {
            Limits::default()
        }
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn within(range: (u64, u64)) -> Range<u64> {
    range.0..range.1
}

/// What is to happen to an agent.
enum Happens {
    Wants,
    Heard(Limits),
    Ends { tokens: u64 },
    Rejected { wait: Option<Duration>, limits: Limits },
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

    fn figures(&self, name: &str) -> String {
        format!("{name}: {} lost, {:.3} rejected a success, p99 {} ms, over after {} ms; ", self.lost, self.rejected_per_success(), self.p99(), self.over)
    }

    fn rejected_per_success(&self) -> f64 {
        f64::from(self.rejections) / f64::from(self.successes)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Agent {
    done: u32,
    attempts: u32,
    /// How many good answers there had been when it was turned away last.
    seen: u32,
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
    fn new(scene: Scene, seed: u64) -> World {
        let mut world = World {
            provider: Provider::new(scene),
            random: fastrand::Rng::with_seed(seed),
            agents: vec![Agent::default(); scene.agents],
            events: BTreeMap::new(),
            number: 0,
            outcome: Outcome::default(),
        };
        (0..scene.agents).for_each(|agent| world.later(0, 0, agent, Happens::Wants));
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
                let takes = self.random.u64(within(self.provider.scene.takes));
                self.later(now, takes / 5, agent, Happens::Heard(limits));
                self.later(now, takes, agent, Happens::Ends { tokens });
            }
            Err(wait) => {
                let limits = self.provider.limits();
                self.outcome.rejections += 1;
                let wait = Some(wait).filter(|_| self.provider.scene.asks);
                self.later(now, self.provider.scene.takes.0.min(100), agent, Happens::Rejected { wait, limits });
            }
        }
    }

    /// Ends a call; the agent uses its tools, then wants the next.
    fn end(&mut self, now: u64, agent: usize) {
        self.outcome.successes += 1;
        self.outcome.over = now;
        let own = &mut self.agents[agent];
        *own = Agent { done: own.done + 1, ..Agent::default() };
        if own.done < self.provider.scene.calls {
            let pause = self.random.u64(within(self.provider.scene.pauses));
            self.later(now, pause, agent, Happens::Wants);
        }
    }

    /// Returns whether an agent gives up: others getting through is a reason not to.
    fn is_lost(&mut self, agent: usize) -> bool {
        let own = &mut self.agents[agent];
        if std::mem::replace(&mut own.seen, self.outcome.successes) < self.outcome.successes {
            own.attempts = own.attempts.min(1);
        }
        let is_lost = own.attempts >= LOST_AFTER;
        self.outcome.lost += usize::from(is_lost);
        is_lost
    }
}

/// All agents in one line.
fn together(scene: Scene, seed: u64) -> Outcome {
    let mut world = World::new(scene, seed);
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
                    let ask = Ask { tokens: own.tokens * tenths / 10, priority, prefix: None };
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
                    line.rejected(place, millis(now), (wait.unwrap_or(PAUSE), true));
                    line.leave(place, millis(now));
                    if !world.is_lost(agent) {
                        let ladder = 500_u64 << world.agents[agent].attempts.clamp(1, 5);
                        let wait = wait.map_or(ladder / 2, |wait| u64::try_from(wait.as_millis()).unwrap());
                        world.later(now, wait, agent, Happens::Wants);
                    }
                }
                (_, None) => unreachable!("only who is inside hears something"),
            }
        }
        let wait = line.let_in(millis(now)).unwrap();
        look = wait.map(|wait| now + u64::try_from(wait.as_millis()).unwrap() + 1);
        for agent in 0..scene.agents {
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
    let mut world = World::new(LARGE, seed);
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
                let ms = wait.unwrap().mul_f64(1.0 + 0.2 * world.random.f64()).as_millis();
                world.later(now, u64::try_from(ms).unwrap(), agent, Happens::Wants);
            }
        }
    }
    world.outcome
}

#[test]
fn fifty_agents_in_one_line_are_rarely_rejected_and_wait_a_third_as_long() {
    for seed in 0..5 {
        let (shared, single) = (together(LARGE, seed), alone(seed));
        let asked = together(Scene { tells: false, ..LARGE }, seed);
        let blind = together(Scene { tells: false, asks: false, ..LARGE }, seed);
        let all = [("shared", &shared), ("only told when to come again", &asked), ("told nothing", &blind), ("alone", &single)];
        let figures = all.map(|(name, outcome)| outcome.figures(name)).join("");
        for outcome in [&shared, &asked, &blind] {
            assert_eq!((outcome.successes, outcome.lost), (1_000, 0), "seed {seed}: {figures}");
            assert!(outcome.rejected_per_success() < 0.1, "seed {seed}: {figures}");
        }
        assert!(shared.p99() * 3 < single.p99(), "seed {seed}: {figures}");
        assert!(shared.over * 10 < single.over * 12, "nobody's time is wasted: seed {seed}: {figures}");
    }
}

#[test]
fn thirty_agents_find_the_pace_of_a_server_that_says_nothing_of_it() {
    for seed in 0..5 {
        for (rate, asks) in [(2.0, false), (2.0, true), (0.6, false), (10.0, false), (10.0, true)] {
            let scene = Scene { requests: (2.0_f64.max(rate / 2.0), rate), asks, ..QUICK };
            let outcome = together(scene, seed);
            let figures = outcome.figures(&format!("seed {seed}, {rate} a second, told when to come again: {asks}"));
            assert_eq!((outcome.successes, outcome.lost), (300, 0), "{figures}");
            assert!(outcome.rejected_per_success() < 0.1, "{figures}");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let over = outcome.over as f64 / 1_000.0;
            assert!(over < 1.5 * 300.0 / rate, "{figures}");
        }
    }
}
