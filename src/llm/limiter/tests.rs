//! The line as it is waited in, and what it does by itself: order, places, prefixes, retries.
use super::super::{ModelError, ModelErrorKind};
use super::*;
use crate::{clock::Timestamp, tasks::Tasks};

const S: fn(u64) -> Duration = Duration::from_secs;

fn key(name: &str) -> LaneKey {
    lane(name, "m")
}

fn lane(name: &str, model: &str) -> LaneKey {
    LaneKey { account: Account { provider: name.to_owned(), credential: String::new() }, model: model.to_owned() }
}

fn ask(priority: Priority) -> Ask {
    Ask { tokens: 1_000, priority, prefix: None }
}

async fn enter(limiter: &Limiter, name: &str) -> Permit {
    limiter.enter(&key(name), ask(Priority::Begun)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_place_waits_in_order_and_drops_give_places_back() {
    let limiter = Limiter::new(Clock::fake(Timestamp(0)), 1);
    let held = enter(&limiter, "a").await;
    let mut tasks = Tasks::default();
    let order = [Priority::New, Priority::Begun, Priority::New, Priority::Orchestrator, Priority::Begun];
    for (n, priority) in order.into_iter().enumerate() {
        let limiter = limiter.clone();
        let enter = async move {
            let permit = limiter.enter(&key("a"), ask(priority)).await.unwrap();
            drop(permit);
            n
        };
        tasks.spawn(enter, |_| 99);
        // Let it take its place in the line before the next one comes.
        tokio::task::yield_now().await;
    }
    // Somebody who gives up while waiting does not hold up the others.
    assert!(tokio::time::timeout(S(1), limiter.enter(&key("a"), ask(Priority::Orchestrator))).await.is_err());
    // Another key has places of its own.
    drop(enter(&limiter, "b").await);
    drop(held);
    let mut came = Vec::new();
    while let Some(n) = tasks.next().await {
        came.push(n);
    }
    assert_eq!(came, [3, 1, 4, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn after_a_rejection_everybody_waits_for_the_gate() {
    let clock = Clock::fake(Timestamp(1_000));
    let limiter = Limiter::new(clock.clone(), 4);
    let permit = enter(&limiter, "a").await;
    permit.rejected(Some(S(30)), false);
    drop(permit);
    drop(enter(&limiter, "a").await);
    assert_eq!(clock.now(), Timestamp(31_001));
    let permit = enter(&limiter, "a").await;
    permit.rejected(Some(Duration::from_micros(1_500)), false);
    drop(permit);
    drop(enter(&limiter, "a").await);
    assert_eq!(clock.now(), Timestamp(31_003), "a part of a millisecond is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_closed_lane_sends_everybody_away_until_it_opens_and_other_models_are_open() {
    let clock = Clock::fake(Timestamp(0));
    let limiter = Limiter::new(clock.clone(), 1);
    let permit = enter(&limiter, "a").await;
    let lane = key("a");
    let mut waiting = std::pin::pin!(limiter.enter(&lane, ask(Priority::Begun)));
    assert!(tokio::time::timeout(S(1), &mut waiting).await.is_err());
    let error = ModelError::new(ModelErrorKind::Overloaded, "come tomorrow");
    permit.close(&error, S(3_600));
    drop(permit);
    assert_eq!(waiting.await.unwrap_err(), Shut::Closed(error.clone()));
    assert_eq!(limiter.enter(&key("a"), ask(Priority::New)).await.unwrap_err(), Shut::Closed(error.clone()));
    drop(limiter.enter(&super::tests::lane("a", "n"), ask(Priority::New)).await.unwrap());
    clock.advance(S(3_600));
    drop(enter(&limiter, "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_closed_account_sends_everybody_away_whatever_model_is_wanted() {
    let clock = Clock::fake(Timestamp(0));
    let limiter = Limiter::new(clock.clone(), 1);
    let error = ModelError::new(ModelErrorKind::SpendLimit, "no money");
    let (permit, lane) = (enter(&limiter, "a").await, key("a"));
    let mut waiting = std::pin::pin!(limiter.enter(&lane, ask(Priority::Begun)));
    assert!(tokio::time::timeout(S(1), &mut waiting).await.is_err());
    limiter.close(&key("a").account, &error);
    drop(permit);
    clock.advance(S(1_000_000));
    assert_eq!(waiting.await.unwrap_err(), Shut::Closed(error.clone()));
    assert_eq!(limiter.enter(&super::tests::lane("a", "n"), ask(Priority::New)).await.unwrap_err(), Shut::Closed(error));
    drop(enter(&limiter, "b").await);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_used_up_for_hours_is_not_waited_for() {
    let limiter = Limiter::new(Clock::fake(Timestamp(0)), 4);
    let permit = enter(&limiter, "a").await;
    let told = buckets::Told { limit: Some(20.0), remaining: Some(0.0), reset: Some(S(6 * 3_600)) };
    permit.heard(&Limits { requests: told, ..Limits::default() });
    drop(permit);
    assert_eq!(limiter.enter(&key("a"), ask(Priority::Begun)).await.unwrap_err(), Shut::UsedUp(S(6 * 3_600 / 20)));
}

#[tokio::test(start_paused = true)]
async fn one_model_that_only_fails_does_not_hold_up_another() {
    let clock = Clock::fake(Timestamp(0));
    let limiter = Limiter::new(clock.clone(), 4);
    for _ in 0..5 {
        let permit = enter(&limiter, "a").await;
        permit.rejected(Some(S(100)), true);
        permit.failed();
    }
    let before = clock.now();
    drop(limiter.enter(&lane("a", "n"), ask(Priority::New)).await.unwrap());
    assert_eq!(clock.now(), before);
}

#[test]
fn the_first_with_a_prefix_goes_alone_until_its_reply_begins() {
    let mut line = Line::new(16);
    let now = S(0);
    let join = |line: &mut Line, prefix, priority| line.join(Ask { tokens: 0, priority, prefix }, Arc::new(Notify::new()));
    let all = [Some(1), Some(1), Some(2), Some(1), None].map(|prefix| join(&mut line, prefix, Priority::New));
    let inside = |line: &Line| all.map(|place| line.inside.contains_key(&place));
    assert_eq!(line.let_in(now), Ok(Some(WARM_UP)));
    assert_eq!(inside(&line), [true, false, true, false, true], "one of each prefix");
    // Where the first one fails, another goes first.
    line.leave(all[0], now);
    assert_eq!(inside(&line), [false, true, true, false, true]);
    line.began(all[1], now);
    assert_eq!((line.let_in(now), inside(&line)[3]), (Ok(None), true), "now they can read what it wrote");
    for place in &all[1..] {
        line.leave(*place, now);
    }
    // It is warm for a while, then the next one goes alone again; a conversation that has begun waits for nobody.
    let (near, far) = (WARM.saturating_sub(S(1)), WARM + S(1));
    let warm = [Priority::New, Priority::New].map(|priority| join(&mut line, Some(1), priority));
    assert_eq!(line.let_in(near), Ok(None));
    for place in warm {
        line.leave(place, near);
    }
    let cold = [Priority::New, Priority::New, Priority::Begun].map(|priority| join(&mut line, Some(1), priority));
    line.let_in(far).unwrap();
    assert_eq!(cold.map(|place| line.inside.contains_key(&place)), [false, false, true]);
    assert_eq!(line.let_in(far + WARM_UP), Ok(None), "nobody waits longer than that");
    assert!(cold.iter().all(|place| line.inside.contains_key(place)));
}
