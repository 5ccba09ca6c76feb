//! The engine against the floor, in one run: `cargo bench --bench turns` prints the table of `docs/performance.md`.
//!
//! Both talk to the same mock on this machine and do the same work; what counts is the ratio. Runs of the two are
//! interleaved, so that both meet the same load of the machine.
mod floor;
mod lab;
mod prefix;

use floor::{Asks, FloorError, Mock};
use futures_util::future::try_join_all;
use lab::{Lab, Took, Who};
use spinney::{clock::Clock, llm::Protocol};
use std::{error::Error, time::Duration};

/// Runs of each quick measure, and of each slow one.
const QUICK: usize = 20;
const SLOW: usize = 5;
/// Turns of a conversation whose turns are measured, and of one that grows.
const TURNS: usize = 60;
const LONG: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, agents, base] = arguments.as_slice()
        && word == "--floor"
    {
        let made = run_floor(agents.parse()?, base)?;
        // Read by whoever started it.
        row([&made.to_string()]);
        return Ok(());
    }
    let clock = Clock::system();
    let lab = Lab::new(&clock)?;
    let wanted = |name: &str| {
        let names: Vec<&String> = arguments.iter().skip(1).filter(|argument| !argument.starts_with('-')).collect();
        names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str()))
    };
    row(["measure", "floor p50", "p95", "engine p50", "p95", "ratio of p50"]);
    row(["---", "--:", "--:", "--:", "--:", "--:"]);
    if wanted("start") {
        start(&lab, &clock)?;
    }
    if wanted("turn") {
        turn(&lab, &clock)?;
    }
    if wanted("sleep") {
        sleeps(&lab, &clock)?;
    }
    if wanted("loop") {
        growth(&lab, &clock)?;
    }
    for agents in [8, 32, 128] {
        if wanted(&format!("agents-{agents}")) {
            many(&lab, &clock, agents)?;
        }
    }
    if wanted("prefix") {
        prefixes()?;
    }
    Ok(())
}

/// The least that consecutive requests of a conversation of 200 turns share of their prefixes.
fn prefixes() -> Result<(), Box<dyn Error>> {
    row(["least shared prefix", "without marks", "as sent"]);
    for (protocol, model) in [
        (Protocol::Anthropic, "claude-sonnet-5-5"),
        (Protocol::OpenAiResponses, "gpt-6-sol"),
        (Protocol::OpenAiChat, "qwen3"),
        (Protocol::Gemini, "gemini-3.7-flash"),
    ] {
        let shares = prefix::shares(&prefix::own(protocol)?, model, 200, |_| 2)?;
        let least = |of: fn(&prefix::Share) -> f64| format!("{:.3} %", 100.0 * shares.iter().map(of).fold(1.0, f64::min));
        row([&format!("{protocol:?}"), &least(|share| share.prompt), &least(|share| share.sent)]);
    }
    Ok(())
}

/// The floor as a process: so many conversations on one thread.
fn run_floor(agents: usize, base: &str) -> Result<usize, FloorError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = floor::client()?;
        try_join_all((0..agents).map(|_| floor::converse(&client, base))).await.map(|made| made.iter().sum())
    })
}

/// From the start of the process to its first whole request.
fn start(lab: &Lab, clock: &Clock) -> Result<(), Box<dyn Error>> {
    let mock = Mock::start(Asks::turns(0), clock)?;
    for (name, who) in [("start to first request, reader", Who::Readers), ("start to first request, writer", Who::Writers)] {
        let once = |who| -> Result<Duration, Box<dyn Error>> {
            let took = lab.run(who, 1, &mock)?;
            Ok(mock.take_heard().first.ok_or("nothing was asked")?.saturating_sub(took.began))
        };
        let (floor, engine) = both(QUICK, || once(Who::Floor), || once(who))?;
        compare(name, &floor, &engine);
    }
    Ok(())
}

/// From the last byte of a reply to the next request, a shell command in between.
fn turn(lab: &Lab, clock: &Clock) -> Result<(), Box<dyn Error>> {
    let mock = Mock::start(Asks::turns(TURNS), clock)?;
    let once = |who| -> Result<(Vec<Duration>, Took), Box<dyn Error>> {
        let took = lab.run(who, 1, &mock)?;
        let gaps = mock.take_heard().gaps;
        if gaps.len() == TURNS { Ok((gaps, took)) } else { Err(format!("{TURNS} turns wanted, {} seen", gaps.len()).into()) }
    };
    let (floor, engine) = both(QUICK, || once(Who::Floor), || once(Who::Writers))?;
    let gaps = |runs: &[(Vec<Duration>, Took)]| runs.iter().flat_map(|(gaps, _)| gaps.clone()).collect::<Vec<_>>();
    compare("turn", &gaps(&floor), &gaps(&engine));
    // Each pair met nearly the same load: their spread says what the ratio above is worth.
    let ratio = |(floor, engine): (&(Vec<Duration>, Took), &(Vec<Duration>, Took))| {
        u64::try_from(percentile(&engine.0, 50).as_micros() * 100 / percentile(&floor.0, 50).as_micros().max(1)).unwrap_or(u64::MAX)
    };
    let ratios: Vec<u64> = floor.iter().zip(&engine).map(ratio).collect();
    let shown = |part| format!("{:.2}", Duration::from_millis(percentile(&ratios, part) * 10).as_secs_f64());
    row(["turn: ratios of pairs, p5, p50, p95", "", "", &shown(5), &shown(95), &shown(50)]);
    Ok(())
}

/// Eight commands of one second in one reply.
fn sleeps(lab: &Lab, clock: &Clock) -> Result<(), Box<dyn Error>> {
    let mock = Mock::start(Asks { turns: 2, calls: 8, command: "sleep 1" }, clock)?;
    let once = |who| -> Result<[Duration; 2], Box<dyn Error>> {
        lab.run(who, 1, &mock)?;
        mock.take_heard().gaps.try_into().map_err(|gaps| format!("two gaps wanted: {gaps:?}").into())
    };
    let (floor, engine) = both(SLOW, || once(Who::Floor), || once(Who::Readers))?;
    let nth = |runs: &[[Duration; 2]], n: usize| runs.iter().map(|gaps| gaps[n]).collect::<Vec<_>>();
    // What happens once a process beside the first reply shows in the first and in no other.
    for (name, n) in [("8 x `sleep 1` in the first reply", 0), ("8 x `sleep 1` in a later reply", 1)] {
        compare(name, &nth(&floor, n), &nth(&engine, n));
    }
    Ok(())
}

/// The same in a conversation that grows to two hundred turns of 2 KB results: what a turn costs must not grow with it. A turn of
/// a writer may have changed files and keeps them; one of a reader only reads.
fn growth(lab: &Lab, clock: &Clock) -> Result<(), Box<dyn Error>> {
    let mock = Mock::start(Asks { turns: LONG, calls: 1, command: "printf '%02048d' TURN" }, clock)?;
    let once = |who| -> Result<Vec<Duration>, Box<dyn Error>> {
        lab.run(who, 1, &mock)?;
        let gaps = mock.take_heard().gaps;
        if gaps.len() == LONG { Ok(gaps) } else { Err(format!("{LONG} turns wanted, {} seen", gaps.len()).into()) }
    };
    let around = |runs: &[Vec<Duration>], turns: std::ops::Range<usize>| runs.iter().flat_map(|gaps| gaps[turns.clone()].to_vec()).collect::<Vec<_>>();
    let (early, late) = (5..15, LONG - 10..LONG);
    let ratio = |runs: &[Vec<Duration>], part| {
        let of = |turns| percentile(&around(runs, turns), part).as_secs_f64();
        format!("{:.2}", of(late.clone()) / of(early.clone()).max(1e-9))
    };
    for (name, who) in [("writer", Who::Writers), ("reader", Who::Readers)] {
        let (floor, engine) = both(SLOW, || once(Who::Floor), || once(who))?;
        compare(&format!("loop, {name}: around turn 10"), &around(&floor, early.clone()), &around(&engine, early.clone()));
        compare(&format!("loop, {name}: around turn 200"), &around(&floor, late.clone()), &around(&engine, late.clone()));
        let ratios = [ratio(&floor, 50), ratio(&floor, 95), ratio(&engine, 50), ratio(&engine, 95)];
        row([&format!("loop, {name}: turn 200 to turn 10"), &ratios[0], &ratios[1], &ratios[2], &ratios[3], ""]);
    }
    Ok(())
}

/// Many agents of ten turns in one process.
fn many(lab: &Lab, clock: &Clock, agents: usize) -> Result<(), Box<dyn Error>> {
    let mock = Mock::start(Asks::turns(10), clock)?;
    let once = |who| -> Result<Took, Box<dyn Error>> { Ok(lab.run(who, agents, &mock)?) };
    for (kind, who) in [("a worktree each", Who::Writers), ("one view", Who::Readers)] {
        let (floor, engine) = both(SLOW, || once(Who::Floor), || once(who))?;
        let walls = |runs: &[Took]| runs.iter().map(|took| took.wall).collect::<Vec<_>>();
        let cpus = |runs: &[Took]| runs.iter().map(|took| took.cpu).collect::<Vec<_>>();
        compare(&format!("{agents} agents x 10 turns, {kind}: wall"), &walls(&floor), &walls(&engine));
        compare(&format!("{agents} agents x 10 turns, {kind}: processor"), &cpus(&floor), &cpus(&engine));
        let peak = |runs: &[Took], part| percentile(&runs.iter().map(|took| took.peak_kib).collect::<Vec<_>>(), part);
        let megabytes = |kib: u64| format!("{:.0} MB", kibibytes(kib));
        row([
            &format!("{agents} agents x 10 turns, {kind}: peak memory"),
            &megabytes(peak(&floor, 50)),
            &megabytes(peak(&floor, 95)),
            &megabytes(peak(&engine, 50)),
            &megabytes(peak(&engine, 95)),
            &format!("{:.1}", kibibytes(peak(&engine, 50)) / kibibytes(peak(&floor, 50))),
        ]);
    }
    Ok(())
}

/// Takes both in turn, after one run of each that does not count.
fn both<T>(
    runs: usize,
    floor: impl Fn() -> Result<T, Box<dyn Error>>,
    engine: impl Fn() -> Result<T, Box<dyn Error>>,
) -> Result<(Vec<T>, Vec<T>), Box<dyn Error>> {
    floor()?;
    engine()?;
    let (mut of_floor, mut of_engine) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        of_floor.push(floor()?);
        of_engine.push(engine()?);
    }
    Ok((of_floor, of_engine))
}

fn compare(name: &str, floor: &[Duration], engine: &[Duration]) {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let (floor_mid, engine_mid) = (percentile(floor, 50), percentile(engine, 50));
    row([
        name,
        &ms(floor_mid),
        &ms(percentile(floor, 95)),
        &ms(engine_mid),
        &ms(percentile(engine, 95)),
        &format!("{:.1}", engine_mid.as_secs_f64() / floor_mid.as_secs_f64().max(1e-9)),
    ]);
}

fn percentile<T: Copy + Ord + Default>(values: &[T], part: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 KiB")]
fn kibibytes(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn row<const N: usize>(cells: [&str; N]) {
    println!("| {} |", cells.join(" | "));
}
