//! The shared limit over real connections: a provider with a real bucket, a prefix that is written once.
use super::Talk;
use crate::server::{Answer, Asked, Delivery, Said, Server};
use spinney::{
    clock::{Clock, Timestamp},
    http::{Client, Timeouts},
    llm::{Endpoint, Endpoints, HttpModel, Limiter, Model, Protocol, Secret, Silent, Target, provider},
    tasks::Tasks,
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

/// No test waits longer than this for what must come.
const LONG: Duration = Duration::from_secs(15);
const AGENTS: usize = 50;
const CALLS: usize = 14;
const NAME: &str = "claude-opus-5-5";

fn endpoint(server: &Server) -> Endpoint {
    Endpoint::new("anthropic", Protocol::Anthropic, &server.anthropic_url()).with_key(Secret::new("key"))
}

fn model(server: &Server, clock: Clock) -> HttpModel {
    let mut endpoints = Endpoints::default();
    endpoints.insert(endpoint(server));
    HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 64), clock)
}

/// A number below `below` that is the same for the same thing.
fn drawn(thing: impl std::hash::Hash, below: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    thing.hash(&mut hasher);
    hasher.finish() % below
}

/// A provider that bears 2000 tokens and 5 requests a second, a quarter of which somebody else uses, and counts otherwise than
/// anybody guesses.
struct Bucket {
    tokens: f64,
    requests: f64,
    at: Duration,
    clock: Clock,
    /// When each call was taken.
    taken: BTreeMap<String, Duration>,
}

const TOKENS: (f64, f64) = (120_000.0, 2_000.0);
const REQUESTS: (f64, f64) = (300.0, 5.0);

impl Bucket {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn answer(&mut self, asked: &Asked) -> (Answer, Delivery) {
        let now = self.clock.elapsed();
        let passed = now.saturating_sub(self.at).as_secs_f64() * 0.75;
        self.at = now;
        self.tokens = (self.tokens + passed * TOKENS.1).min(TOKENS.0);
        self.requests = (self.requests + passed * REQUESTS.1).min(REQUESTS.0);
        let name = asked.dialogue()[0].1.split(':').next().unwrap().to_owned();
        let cost = asked.body.len() as f64 / 3.2 * (0.7 + drawn(&name, 70) as f64 / 100.0);
        let is_taken = self.tokens >= cost && self.requests >= 1.0;
        if is_taken {
            (self.tokens, self.requests) = (self.tokens - cost, self.requests - 1.0);
        }
        let told = |(size, rate): (f64, f64), level: f64| (size.to_string(), level.floor().to_string(), format!("{}s", ((size - level) / rate).ceil()));
        let (requests, tokens) = (told(REQUESTS, self.requests), told(TOKENS, self.tokens));
        let mut headers = vec![
            ("x-ratelimit-limit-requests", requests.0),
            ("x-ratelimit-remaining-requests", requests.1),
            ("x-ratelimit-reset-requests", requests.2),
            ("x-ratelimit-limit-tokens", tokens.0),
            ("x-ratelimit-remaining-tokens", tokens.1),
            ("x-ratelimit-reset-tokens", tokens.2),
        ];
        if is_taken {
            let takes = Duration::from_millis(4_000 + drawn(("takes", &name), 12_000));
            assert_eq!(self.taken.insert(name, now), None, "it is asked once for what it has answered");
            let body = String::from_utf8(Said { prompt: Some(cost as u64 + 2_051), ..Said::text("done") }.anthropic(asked)).unwrap();
            return (Answer::Status(200, headers, body), Delivery { after: takes, ..Delivery::default() });
        }
        let missing = ((cost - self.tokens) / TOKENS.1).max((1.0 - self.requests) / REQUESTS.1);
        headers.push(("retry-after", missing.ceil().to_string()));
        (Answer::Status(429, headers, r#"{"error":{"type":"rate_limit_error"}}"#.to_owned()), Delivery::default())
    }
}

/// How agents ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// All through one model, with one limit.
    Together,
    /// Each for itself: it comes again when it is told to, a fifth later at most, as often as it takes.
    Alone,
}

/// What became of a crowd of agents.
#[derive(Debug)]
struct Crowd {
    lost: usize,
    rejected: usize,
    /// The longest wait of 99 in 100 calls, from when an agent wanted it until the provider took it.
    p99: Duration,
    over: Duration,
}

/// Has a crowd of agents work, in a time that stands still while anybody has something to do.
async fn crowd(how: How) -> Crowd {
    let clock = Clock::runtime(Timestamp(1_796_000_000_000));
    let bucket = Bucket { tokens: TOKENS.0, requests: REQUESTS.0, at: clock.elapsed(), clock: clock.clone(), taken: BTreeMap::new() };
    let bucket = Arc::new(Mutex::new(bucket));
    let answering = bucket.clone();
    let server = Server::start_with(move |asked| answering.lock().unwrap().answer(asked)).await;
    let (model, at, client) = (model(&server, clock.clone()), endpoint(&server), Client::new().unwrap());
    let mut tasks = Tasks::default();
    for agent in 0..AGENTS {
        let (model, at, client, clock) = (model.clone(), at.clone(), client.clone(), clock.clone());
        let work = async move {
            let mut wanted = Vec::new();
            for call in 0..CALLS {
                let name = format!("agent {agent} call {call}");
                // Most are small, some are large: those wait longest where nobody keeps order.
                let tokens = if drawn(("size", &name), 10) == 0 { 2_000 + drawn(&name, 3_000) } else { 100 + drawn(&name, 900) };
                let text = format!("{name}: {}", "word ".repeat(usize::try_from(tokens * 16 / 25).unwrap()));
                let talk = Talk::new(&format!("anthropic/{NAME}"), &text);
                wanted.push((name.clone(), clock.elapsed()));
                let is_done = match how {
                    How::Together => model.reply(&talk.call(), &Silent).await.is_ok(),
                    How::Alone => alone(&client, &at, &talk, (&name, &clock)).await,
                };
                if !is_done {
                    return None;
                }
                clock.sleep_until(clock.now().after(Duration::from_millis(500 + drawn(("pause", &name), 3_500)))).await;
            }
            Some(wanted)
        };
        tasks.spawn(work, |_| None);
    }
    let mut ended = Vec::new();
    // Time moves in small steps, so that what is on its way in the machine is not taken for silence.
    while !tasks.is_empty() {
        tokio::select! {
            one = tasks.next() => ended.extend(one),
            () = clock.sleep_until(clock.now().after(Duration::from_millis(20))) => {}
        }
    }
    let over = clock.elapsed();
    let taken = bucket.lock().unwrap().taken.clone();
    let mut waits: Vec<Duration> = ended.iter().flatten().flatten().map(|(name, wanted)| taken[name].saturating_sub(*wanted)).collect();
    waits.sort_unstable();
    let lost = ended.iter().filter(|wanted| wanted.is_none()).count();
    Crowd { lost, rejected: server.asked().len() - taken.len(), p99: waits[waits.len() * 99 / 100], over }
}

/// Asks until there is an answer.
async fn alone(client: &Client, at: &Endpoint, talk: &Talk, (name, clock): (&str, &Clock)) -> bool {
    let request = provider(at.protocol).request(&talk.call(), Target { endpoint: at, model: NAME }).unwrap();
    for attempt in 0.. {
        let Ok(answer) = client.post(&request, Timeouts::default()).await else { return false };
        let asked = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        let is_done = answer.status() == 200;
        let (_, broken) = answer.text(usize::MAX).await;
        if is_done {
            return broken.is_none();
        }
        let millis = asked.unwrap() * (1_000 + drawn((name, attempt), 200));
        clock.sleep_until(clock.now().after(Duration::from_millis(millis))).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn fifty_agents_at_a_real_bucket_wait_a_third_as_long_together_and_none_is_lost() {
    let (together, alone) = (crowd(How::Together).await, crowd(How::Alone).await);
    let calls = AGENTS * CALLS;
    let figures = format!("of {calls} calls, together: {together:?}; each for itself: {alone:?}");
    assert_eq!((together.lost, alone.lost), (0, 0), "{figures}");
    assert!(together.rejected * 10 < calls, "{figures}");
    assert!(together.p99 * 3 < alone.p99, "{figures}");
    assert!(together.over * 10 < alone.over * 13, "nobody's time is wasted: {figures}");
}

#[tokio::test]
async fn others_wait_for_the_first_reply_to_begin_and_not_for_its_end() {
    let server = Server::start_with(|asked| {
        let stalls = Delivery { stall_at: Some(200), ..Delivery::default() };
        (Answer::Say(Said::text("done")), if asked.number == 0 { stalls } else { Delivery::default() })
    })
    .await;
    let model = model(&server, Clock::system());
    let talk = |task: &str| Talk { system: "A rule that all agents share. ".repeat(300), ..Talk::new("anthropic/claude-opus-5-5", task) };
    let (first, second) = (talk("first"), talk("second"));
    let (first_call, second_call) = (first.call(), second.call());
    let second = tokio::time::timeout(LONG, async {
        tokio::select! {
            biased;
            _ = model.reply(&first_call, &Silent) => None,
            second = model.reply(&second_call, &Silent) => Some(second),
        }
    });
    assert_eq!(second.await.unwrap().expect("the first one's reply never ends").unwrap().text(), "done");
    assert!(String::from_utf8_lossy(&server.asked()[0].body).contains("first"));
}
