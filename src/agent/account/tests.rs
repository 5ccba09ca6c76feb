//! Accounts in accounts: what is set aside, refused, waited for and charged.
use super::*;
use crate::{clock::Timestamp, message::Usage};
use proptest::prelude::*;
use std::{collections::VecDeque, task::Poll};

const NONE: Limits = Limits { turns: u32::MAX, tokens: u64::MAX, usd: None, time: Duration::MAX, repeats: u32::MAX };

fn run(limits: Limits) -> Arc<Account> {
    Arc::new(Account::of_run(limits, &Spent::default(), Clock::fake(Timestamp(0))))
}

fn inside(around: &Arc<Account>, name: &str, limits: Limits) -> Arc<Account> {
    Arc::new(Account::within(around, (name.to_owned(), "raise it"), limits, &Spent::default()))
}

fn expect(tokens: u64, usd: f64) -> Expected {
    Expected { tokens, usd: Some(usd) }
}

fn spent(tokens: u64, usd: f64) -> Spent {
    Spent { turns: 1, usage: Usage { input: tokens, ..Usage::default() }, usd, ..Spent::default() }
}

fn refused(reserved: Result<Reservation, Trouble>) -> (Limit, String) {
    match reserved {
        Err(Trouble::Failed(Failure { kind: FailureKind::Limit(limit), message, .. })) => (limit, message),
        _ => panic!("it was not refused by a limit"),
    }
}

fn totals(account: &Account) -> (Sum, Sum) {
    let ledger = account.ledger();
    (ledger.used, ledger.held)
}

#[test]
fn a_refusal_at_any_level_leaves_nothing_set_aside_at_the_others() {
    for (narrow, limit) in [(0, Limit::Money), (1, Limit::Tokens), (2, Limit::Turns), (3, Limit::Money)] {
        let mut limits = [NONE; 4];
        limits[narrow] = match limit {
            Limit::Money => Limits { usd: Some(1.0), ..NONE },
            Limit::Tokens => Limits { tokens: 1_000, ..NONE },
            _ => Limits { turns: 1, ..NONE },
        };
        let run = run(limits[0]);
        let step = inside(&run, "the step", limits[1]);
        let agent = inside(&step, "the agent", limits[2]);
        let helper = inside(&agent, "the sub-agent", limits[3]);
        let kept = helper.reserve_now(expect(900, 0.9)).unwrap();
        let all = [&run, &step, &agent, &helper];
        let before: Vec<_> = all.iter().map(|account| totals(account)).collect();
        let (by, whose) = refused(helper.reserve_now(expect(200, 0.2)));
        assert_eq!((by, whose.starts_with(["the run's", "the step", "the agent", "the sub-agent"][narrow])), (limit, true), "{whose}");
        assert_eq!(all.iter().map(|account| totals(account)).collect::<Vec<_>>(), before);
        drop(kept);
        for account in all {
            assert_eq!(totals(account), (Sum::default(), Sum::default()), "what is dropped is given back");
        }
    }
}

#[test]
fn the_outermost_account_says_that_it_is_used_up() {
    let limits = Limits { turns: 1, ..NONE };
    let run = run(limits);
    let agent = inside(&run, "the agent", limits);
    agent.reserve_now(expect(1, 0.0)).unwrap().settle(&spent(1, 0.0), &|_| {});
    assert_eq!(refused(agent.reserve_now(expect(1, 0.0))), (Limit::Turns, "the run's budget is used up: 1 of 1 turns".to_owned()));
    assert_eq!((run.reached(), agent.reached()), (Some(Limit::Turns), None));
}

#[test]
fn a_price_that_is_not_known_sets_nothing_aside_and_what_is_charged_counts() {
    let run = run(Limits { usd: Some(0.5), ..NONE });
    let unknown = Expected { tokens: 1, usd: None };
    let (one, two) = (run.reserve_now(unknown).unwrap(), run.reserve_now(unknown).unwrap());
    one.settle(&spent(1, 0.3), &|_| {});
    two.settle(&spent(1, 0.3), &|_| {});
    let (limit, message) = refused(run.reserve_now(unknown));
    assert_eq!((limit, message.as_str()), (Limit::Money, "the run's budget is used up: $0.60 of $0.50"));
}

#[test]
fn a_person_may_allow_as_much_again() {
    let run = Arc::new(Account::of_run(Limits { tokens: 10, ..NONE }, &Spent::default(), Clock::fake(Timestamp(0))).allowed(Allowance::default(), true));
    run.reserve_now(expect(10, 0.0)).unwrap().settle(&spent(10, 0.0), &|_| {});
    assert!(matches!(run.reserve_now(expect(10, 0.0)), Err(Trouble::Parked)), "whoever wants more waits");
    assert_eq!(run.reached(), Some(Limit::Tokens));
    run.raise(1);
    assert_eq!(run.reached(), None);
    run.reserve_now(expect(10, 0.0)).unwrap().settle(&spent(10, 0.0), &|_| {});
    run.hold();
    assert_eq!(refused(run.reserve_now(expect(10, 0.0))).0, Limit::Tokens);
}

#[test]
fn a_run_is_held_to_its_time() {
    let clock = Clock::fake(Timestamp(0));
    let run = Arc::new(Account::of_run(Limits { time: Duration::from_mins(1), ..NONE }, &Spent::default(), clock.clone()));
    drop(run.reserve_now(expect(1, 0.0)).unwrap());
    clock.advance(Duration::from_secs(61));
    assert_eq!((refused(run.reserve_now(expect(1, 0.0))).0, run.time_left()), (Limit::Time, Duration::ZERO));
}

#[tokio::test]
async fn what_only_lacks_room_for_what_is_in_flight_waits_for_it() {
    let run = run(Limits { usd: Some(1.0), ..NONE });
    let (one, two) = (inside(&run, "one", NONE), inside(&run, "two", NONE));
    for (cost, is_let) in [(0.1, true), (0.95, false)] {
        let flying = one.reserve_now(expect(1, 0.8)).unwrap();
        let mut waiting = Box::pin(two.reserve(expect(1, 0.8), &|_| {}));
        assert!(matches!(futures_util::poll!(&mut waiting), Poll::Pending));
        flying.settle(&spent(1, cost), &|_| {});
        let Poll::Ready(came) = futures_util::poll!(&mut waiting) else { panic!("it still waits") };
        assert_eq!(came.is_ok(), is_let, "{cost}");
    }
}

/// Requests as a run makes them: who asks, what is expected, what is used in fact, and how many are settled meanwhile.
fn requests() -> impl Strategy<Value = Vec<(usize, u64, u64, usize)>> {
    prop::collection::vec((0_usize..6, 1_u64..2_000, 1_u64..4_000, 0_usize..3), 1..200)
}

proptest! {
    #[test]
    fn no_account_is_ever_passed_by_more_than_what_was_in_flight(
        requests in requests(),
        most in prop::collection::vec((1_u64..40_000, 1_u32..60, 0.001_f64..4.0), 4),
        unpriced in any::<bool>(),
    ) {
        let limits: Vec<Limits> = most.iter().map(|(tokens, turns, usd)| Limits { tokens: *tokens, turns: *turns, usd: Some(*usd), ..NONE }).collect();
        let run = run(limits[0]);
        let steps = [inside(&run, "a", limits[1]), inside(&run, "b", limits[2])];
        // Two agents of the first step, one with a sub-agent; one of the second; two of no step.
        let chief = inside(&steps[0], "chief", limits[3]);
        let agents = [inside(&chief, "sub", NONE), chief.clone(), inside(&steps[0], "x", NONE), inside(&steps[1], "y", NONE), inside(&run, "z", NONE), run.clone()];
        let all = [&run, &steps[0], &steps[1], &chief];
        let price = |tokens: u64| f64::from(u32::try_from(tokens).unwrap_or(u32::MAX)) * 1e-4;
        let mut flying: VecDeque<(usize, Reservation, u64, u64)> = VecDeque::new();
        let under = |agent: usize, account: usize| match account { 0 => true, 1 => agent <= 2, 2 => agent == 3, _ => agent <= 1 };
        for (agent, expected, used, settled) in requests {
            let usd = (!unpriced).then(|| price(expected));
            if let Ok(reservation) = agents[agent].reserve_now(Expected { tokens: expected, usd }) {
                flying.push_back((agent, reservation, expected, used));
            }
            for _ in 0..settled {
                if let Some((_, reservation, _, used)) = flying.pop_front() {
                    if used % 7 == 0 { drop(reservation) } else { reservation.settle(&spent(used, price(used)), &|_| {}) }
                }
            }
            for (n, account) in all.iter().enumerate() {
                let (used, held) = totals(account);
                let most = account.most(1);
                let own: Vec<_> = flying.iter().filter(|(agent, ..)| under(*agent, n)).collect();
                prop_assert_eq!(held.tokens, own.iter().map(|(_, _, expected, _)| expected).sum::<u64>());
                prop_assert_eq!(held.turns, own.len() as u64);
                prop_assert!(used.turns + held.turns <= most.turns);
                prop_assert!(!unpriced || held.micro_usd == 0);
            }
        }
        // Whatever is in flight ends: each account is passed by no more than what the last ones used beyond what was expected.
        let over: Vec<u64> = (0..4).map(|n| flying.iter().filter(|(agent, ..)| under(*agent, n)).map(|(_, _, expected, used)| used.saturating_sub(*expected)).sum()).collect();
        let before: Vec<Sum> = all.iter().map(|account| totals(account).0.plus(totals(account).1)).collect();
        for (_, reservation, _, used) in flying {
            reservation.settle(&spent(used, price(used)), &|_| {});
        }
        for (n, account) in all.iter().enumerate() {
            prop_assert!(totals(account).0.tokens <= before[n].tokens + over[n]);
            prop_assert_eq!(totals(account).1, Sum::default());
        }
    }
}

#[tokio::test]
async fn fifty_agents_pass_a_budget_by_no_more_than_what_was_in_flight() {
    // What a request is expected to cost and what it costs in fact.
    for (expected, each) in [(Some(0.05), 0.05), (Some(0.03), 0.05), (None, 0.05)] {
        let run = run(Limits { usd: Some(10.0), ..NONE });
        let agents: Vec<Arc<Account>> = (0..50).map(|n| inside(&run, &format!("agent {n}"), NONE)).collect();
        let (mut flying, mut usd, mut most_over) = (VecDeque::new(), 0.0, 0.0_f64);
        for turn in 0.. {
            while flying.len() < 50
                && let Ok(reservation) = agents[(turn + flying.len()) % 50].reserve_now(Expected { tokens: 1_000, usd: expected })
            {
                flying.push_back(reservation);
            }
            let Some(reservation) = flying.pop_front() else { break };
            reservation.settle(&spent(900, each), &|_| {});
            usd += each;
            let in_flight = f64::from(u32::try_from(flying.len() + 1).unwrap_or_default());
            most_over = most_over.max(in_flight * (each - expected.unwrap_or(0.0)));
        }
        assert!(usd > 9.9 && usd <= 10.0 + most_over + 1e-6, "{usd} where {most_over} was in flight beyond what was expected");
        assert_eq!(run.reached(), Some(Limit::Money));
    }
}

#[test]
fn a_question_asks_for_as_much_as_the_next_request_needs() {
    let account = |limits| Arc::new(Account::of_run(limits, &Spent::default(), Clock::fake(Timestamp(0))).allowed(Allowance::default(), true));
    let small = account(Limits { tokens: 500, ..NONE });
    assert!(matches!(small.reserve_now(expect(1_700, 0.0)), Err(Trouble::Parked)));
    let (asked, by) = small.question(Limit::Tokens);
    assert!(asked.ends_with("may it use 3 times as much again, 1500 more, since a request of about 1700 is next?"), "{asked}");
    small.raise(by);
    drop(small.reserve_now(expect(1_700, 0.0)).unwrap());
    let large = account(Limits { usd: Some(1.0), ..NONE });
    let _kept = large.reserve_now(expect(1, 0.9)).unwrap();
    assert!(matches!(large.reserve_now(expect(1, 0.5)), Err(Trouble::Parked)));
    let (asked, by) = large.question(Limit::Money);
    assert!(asked.ends_with("may it use as much again, $1.00 more?") && by == 1, "{asked}");
}
