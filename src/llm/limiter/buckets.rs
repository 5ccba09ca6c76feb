//! What is left of a provider's limits, as far as its headers say. Values in, values out: time is handed in.
//!
//! A bucket holds so many requests or tokens and is filled again evenly. What is taken is taken at once, before the provider
//! hears of it, so that many who ask at the same time do not all count on the same rest.
use crate::{clock::Timestamp, llm::moment};
use std::time::Duration;

/// The time that a limit counts for where the provider does not say when it is as it was.
const WINDOW: Duration = Duration::from_mins(1);
/// What a limit is taken to be given back of in a second at least, where the provider says neither how much it is nor when it is as
/// it was: after two seconds one may try.
const PROBES_PER_SECOND: f64 = 0.5;
/// Times shorter than this are rounded too much for a rate: they only say that it is not slower than with a second more.
const LONG_ENOUGH: f64 = 5.0;
/// How much the newest reply counts in what replies are like.
const NEWEST: f64 = 0.2;
/// Output tokens of a reply before any is known.
const FIRST_OUTPUT: f64 = 500.0;

/// What the headers of one answer say of one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::llm) struct Told {
    pub(in crate::llm) limit: Option<f64>,
    pub(in crate::llm) remaining: Option<f64>,
    pub(in crate::llm) reset: Option<Duration>,
}

/// What the headers of one answer say of all limits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::llm) struct Limits {
    pub(in crate::llm) requests: Told,
    pub(in crate::llm) input: Told,
    pub(in crate::llm) output: Told,
    /// Input and output together.
    pub(in crate::llm) tokens: Told,
}

impl Limits {
    /// Reads the headers in every spelling that is known: Anthropic's (each kind by itself, moments), OpenAI's and its
    /// kin's (`x-ratelimit-remaining-tokens`, spans), and the plain ones (`x-ratelimit-remaining`, `ratelimit-remaining`).
    pub(in crate::llm) fn read<'a>(header: &dyn Fn(&str) -> Option<&'a str>, now: Timestamp) -> Limits {
        let number = |name: &str| header(name).and_then(|text| text.trim().parse::<f64>().ok()).filter(|number| number.is_finite() && *number >= 0.0);
        let told = |name: &dyn Fn(&str) -> String| Told {
            limit: number(&name("limit")),
            remaining: number(&name("remaining")),
            reset: header(&name("reset")).and_then(|text| moment::until(text, now)),
        };
        let anthropic = |kind: &str| told(&|field| format!("anthropic-ratelimit-{kind}-{field}"));
        let openai = |kind: &str| told(&|field| format!("x-ratelimit-{field}-{kind}"));
        let plain = [told(&|field| format!("x-ratelimit-{field}")), told(&|field| format!("ratelimit-{field}"))];
        let input = anthropic("input-tokens");
        // The sum is only told as the tightest of the others; where those are told themselves it says nothing more.
        let sum = if input.remaining.is_some() { Told::default() } else { anthropic("tokens") };
        let first = |all: &[Told]| all.iter().copied().find(|told| told.remaining.is_some()).unwrap_or_default();
        Limits {
            requests: first(&[anthropic("requests"), openai("requests"), plain[0], plain[1]]),
            input,
            output: anthropic("output-tokens"),
            tokens: first(&[sum, openai("tokens")]),
        }
    }

    /// Returns how long it is until the limit that is used up is as it was.
    pub(in crate::llm) fn used_up(&self) -> Option<Duration> {
        let all = [self.requests, self.input, self.output, self.tokens];
        all.iter().filter(|told| told.remaining == Some(0.0)).filter_map(|told| told.reset).max()
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    size: f64,
    level: f64,
    per_second: f64,
    at: Duration,
}

impl Bucket {
    fn fill(&mut self, now: Duration) {
        self.level = (self.level + self.per_second * now.saturating_sub(self.at).as_secs_f64()).min(self.size);
        self.at = self.at.max(now);
    }

    /// Returns how long it takes until there is as much; more than it ever holds counts as all it holds.
    fn wait(&self, need: f64) -> Duration {
        let missing = need.min(self.size) - self.level;
        if missing <= 0.0 { Duration::ZERO } else { Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(WINDOW) }
    }
}

/// Takes in what was told of one limit.
fn hear(bucket: &mut Option<Bucket>, told: Told, now: Duration) {
    let Some(remaining) = told.remaining else { return };
    let size = told.limit.or(bucket.map(|bucket| bucket.size)).unwrap_or(remaining).max(remaining).max(1.0);
    let used = size - remaining;
    let guess = || (size / WINDOW.as_secs_f64()).max(PROBES_PER_SECOND);
    let known = bucket.filter(|bucket| bucket.size.total_cmp(&size).is_eq()).map_or_else(guess, |bucket| bucket.per_second);
    let per_second = match told.reset.map(|reset| reset.as_secs_f64()) {
        Some(reset) if reset >= LONG_ENOUGH && used > 0.0 => used / reset,
        Some(reset) => known.max(used / (reset + 1.0)),
        None => known,
    };
    let level = match bucket {
        Some(bucket) => {
            bucket.fill(now);
            bucket.level.min(remaining)
        }
        None => remaining,
    };
    *bucket = Some(Bucket { size, level, per_second, at: now });
}

/// What a request takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Need {
    input: f64,
    output: f64,
}

/// The buckets of one lane; those that were never told of do not hold anybody up.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    requests: Option<Bucket>,
    input: Option<Bucket>,
    output: Option<Bucket>,
    tokens: Option<Bucket>,
    /// What the provider counts of the input tokens that were expected.
    share: f64,
    /// Output tokens of a reply.
    usual_output: f64,
}

impl Buckets {
    pub(super) fn new() -> Buckets {
        Buckets { requests: None, input: None, output: None, tokens: None, share: 1.0, usual_output: FIRST_OUTPUT }
    }

    /// Takes in what an answer said. It never adds to what is left: others are under way that it does not know of.
    pub(super) fn hear(&mut self, limits: &Limits, now: Duration) {
        hear(&mut self.requests, limits.requests, now);
        hear(&mut self.input, limits.input, now);
        hear(&mut self.output, limits.output, now);
        hear(&mut self.tokens, limits.tokens, now);
    }

    /// Returns what a request of so many expected input tokens takes.
    pub(super) fn need(&self, tokens: u64) -> Need {
        Need { input: float(tokens) * self.share, output: self.usual_output }
    }

    fn each(&mut self, need: Need) -> [(&mut Option<Bucket>, f64); 4] {
        [(&mut self.requests, 1.0), (&mut self.input, need.input), (&mut self.output, need.output), (&mut self.tokens, need.input + need.output)]
    }

    /// Returns how long a request has to wait for what it needs.
    pub(super) fn wait(&mut self, need: Need, now: Duration) -> Duration {
        let wait = |(bucket, need): (&mut Option<Bucket>, f64)| {
            bucket.as_mut().map_or(Duration::ZERO, |bucket| {
                bucket.fill(now);
                bucket.wait(need)
            })
        };
        self.each(need).into_iter().map(wait).max().unwrap_or_default()
    }

    /// Takes what a request needs, or says how long it has to wait for that.
    pub(super) fn take(&mut self, need: Need, now: Duration) -> Result<(), Duration> {
        let wait = self.wait(need, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        for (bucket, need) in self.each(need) {
            if let Some(bucket) = bucket {
                bucket.level -= need;
            }
        }
        Ok(())
    }

    /// Gives back what a request took and the provider did not count.
    pub(super) fn give_back(&mut self, need: Need, with_request: bool) {
        let [requests, rest @ ..] = self.each(need);
        let all = rest.into_iter().chain(with_request.then_some(requests));
        for (bucket, need) in all {
            if let Some(bucket) = bucket {
                bucket.level = (bucket.level + need).min(bucket.size);
            }
        }
    }

    /// Settles a request that had its reply: `expected` tokens, of which so many were counted, and so many of output.
    pub(super) fn settle(&mut self, need: Need, expected: u64, (input, output): (u64, u64)) {
        let (expected, input, output) = (float(expected), float(input), float(output));
        self.give_back(Need { input: need.input - input, output: need.output - output }, false);
        if expected > 0.0 {
            self.share += NEWEST * ((input / expected).clamp(0.01, 4.0) - self.share);
        }
        self.usual_output += NEWEST * (output - self.usual_output);
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn float(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn read(headers: &[(&'static str, &'static str)]) -> Limits {
        let now = moment::rfc3339("2026-11-30T10:00:00Z").unwrap();
        Limits::read(&|name| headers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value), now)
    }

    fn told(limit: f64, remaining: f64, reset: Duration) -> Told {
        Told { limit: Some(limit), remaining: Some(remaining), reset: Some(reset) }
    }

    #[test]
    fn limits_are_read_in_every_spelling() {
        let anthropic = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T10:00:02Z"),
            ("anthropic-ratelimit-input-tokens-limit", "30000"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T10:00:30Z"),
            ("anthropic-ratelimit-output-tokens-limit", "8000"),
            ("anthropic-ratelimit-output-tokens-remaining", "8000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-30T10:00:00Z"),
            ("anthropic-ratelimit-tokens-limit", "38000"),
            ("anthropic-ratelimit-tokens-remaining", "8000"),
        ]);
        assert_eq!(anthropic.requests, told(50.0, 49.0, S(2)));
        assert_eq!((anthropic.input, anthropic.output), (told(30_000.0, 0.0, S(30)), told(8_000.0, 8_000.0, S(0))));
        assert_eq!((anthropic.tokens, anthropic.used_up()), (Told::default(), Some(S(30))));
        let sum = read(&[("anthropic-ratelimit-tokens-limit", "38000"), ("anthropic-ratelimit-tokens-remaining", "8000")]);
        assert_eq!(sum.tokens.remaining, Some(8_000.0));
        let openai = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        assert_eq!((openai.requests, openai.tokens), (told(60.0, 59.0, S(1)), told(150_000.0, 149_984.0, S(360))));
        let openrouter = read(&[("x-ratelimit-limit", "20"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796032830000")]);
        assert_eq!((openrouter.requests, openrouter.used_up()), (told(20.0, 0.0, S(30)), Some(S(30))));
        let plain = read(&[("ratelimit-limit", "100"), ("ratelimit-remaining", "7"), ("ratelimit-reset", "12")]);
        assert_eq!(plain.requests, told(100.0, 7.0, S(12)));
        assert_eq!(read(&[("x-ratelimit-remaining-requests", "many"), ("ratelimit-remaining", "-1")]), Limits::default());
    }

    #[test]
    fn what_is_taken_is_gone_until_it_is_filled_again() {
        let mut buckets = Buckets::new();
        assert_eq!(buckets.take(buckets.need(1_000_000_000), S(0)), Ok(()), "nothing is known");
        buckets.hear(&Limits { input: told(60_000.0, 30_000.0, S(30)), ..Limits::default() }, S(0));
        let need = buckets.need(20_000);
        assert_eq!(buckets.take(need, S(0)), Ok(()));
        assert_eq!(buckets.take(need, S(0)), Err(S(10)), "1000 a second");
        // Later answers that know less of what is under way give nothing back.
        buckets.hear(&Limits { input: told(60_000.0, 30_000.0, S(30)), ..Limits::default() }, S(0));
        assert_eq!(buckets.take(need, S(5)), Err(S(5)));
        assert_eq!(buckets.take(need, S(10)), Ok(()));
        // One that needs more than there ever is goes once it is full.
        assert_eq!(buckets.take(buckets.need(1_000_000), S(11)), Err(S(59)));
        assert_eq!(buckets.take(buckets.need(1_000_000), S(70)), Ok(()));
    }

    #[test]
    fn a_rest_of_nothing_without_a_time_is_tried_again_shortly() {
        let bare = Told { remaining: Some(0.0), ..Told::default() };
        for limits in [Limits { requests: bare, ..Limits::default() }, Limits { tokens: bare, ..Limits::default() }] {
            let mut buckets = Buckets::new();
            buckets.hear(&limits, S(0));
            let need = buckets.need(20_000);
            assert_eq!(buckets.take(need, S(0)), Err(S(2)));
            assert_eq!(buckets.take(need, S(2)), Ok(()));
        }
    }

    #[test]
    fn what_was_not_counted_is_given_back_and_learnt_from() {
        let mut buckets = Buckets::new();
        buckets.hear(&Limits { input: told(60_000.0, 60_000.0, S(0)), ..Limits::default() }, S(0));
        for _ in 0..40 {
            let need = buckets.need(50_000);
            assert_eq!(buckets.take(need, S(0)), Ok(()));
            // The rest was read from the cache, which does not count.
            buckets.settle(need, 50_000, (1_000, 100));
        }
        assert!(buckets.need(50_000).input < 2_000.0, "{:?}", buckets.need(50_000));
    }
}
