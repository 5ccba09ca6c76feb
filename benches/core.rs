//! The pure core and the journal: `cargo bench --bench core`.
//!
//! What is measured grows with the run (steps, items, records); the figures of one group are to be read beside each other.
//! `append/floor` is the least that keeps the same bytes: a write to a file, and where it is synced, `fdatasync`.
mod shapes;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use serde_json::json;
use shapes::{WIDE, beside, compile, many};
use spinney::{
    clock::Timestamp,
    engine::{Command, Live, decide, simulate},
    event::{Brief, CommitId, Event, Item, NodeId, Outcome, Record, Recovery, RunId, RunStarted, StepId, Success},
    journal::{Closed, IllegalEvent, Recorder, RunState, SqliteStore, Store as _},
    llm::script,
    message::{Message, Reply, ToolResult},
    plan::{Catalog, Plan},
    source::{Source, codes},
    workflow::{Stub, Workflow},
};
use std::{
    error::Error,
    fmt::Write as _,
    fs::File,
    hint::black_box,
    io::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

/// Records of the log that is replayed.
const LOG: usize = 100_000;
/// Agents in it.
const AGENTS: usize = 128;
/// Tasks under way at the same time, as many as in a run that says nothing.
const PLACES: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    for group in [compiling, refusing, deciding, folding, appending, scheduling] {
        group(&mut criterion)?;
    }
    criterion.final_summary();
    // What measures itself is chosen by the same words.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_meant = |name: &str| words.is_empty() || words.iter().flat_map(|word| word.split('|')).any(|word| name.contains(word));
    for (agents, synced) in [1, 8, 64].into_iter().flat_map(|agents| [(agents, false), (agents, true)]).filter(|_| is_meant("append")) {
        sharing(agents, synced)?;
    }
    if is_meant("resume") { resuming() } else { Ok(()) }
}

fn compiling(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("compile");
    group.sample_size(20);
    for size in [100_u64, 1_000, 10_000] {
        let chain = |before: &str| {
            (1..size).fold(format!("{before}s0: {{ run: \"true\" }}\n"), |mut yaml, n| {
                let _ = writeln!(yaml, "{before}s{n}: {{ needs: [s{}], run: \"echo {{{{ steps.s{}.stdout | sh }}}}\" }}", n - 1, n / 2);
                yaml
            })
        };
        let items: Vec<String> = (0..size).map(|n| n.to_string()).collect();
        let shapes = [
            ("chain", chain("  ")),
            ("body", format!("  a:\n    loop: {{ until: \"true\", max: 2 }}\n    steps:\n{}", chain("      "))),
            ("items", format!("  a: {{ for_each: {{ items: [{}], as: n }}, run: \"echo {{{{ n | sh }}}}\" }}\n", items.join(", "))),
        ];
        group.throughput(Throughput::Elements(size));
        for (shape, steps) in shapes {
            let text = format!("version: 1\nname: bench\nsteps:\n{steps}");
            let source = Arc::new(Source { name: "bench.yaml".to_owned(), text });
            let workflow = Workflow::load(&source)?;
            let catalog = Catalog::default();
            Plan::compile(&workflow, &catalog)?;
            group.bench_function(BenchmarkId::new(shape, size), |b| b.iter(|| Plan::compile(black_box(&workflow), &catalog)));
        }
    }
    group.finish();
    Ok(())
}

/// Files whose aliases would come to more than any memory holds: nine levels of nine, and a hundred thousand aliases of one
/// long text.
fn refusing(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let levels: String = (1..9).fold("  l0: &l0 [x]\n".to_owned(), |mut text, n| {
        let _ = writeln!(text, "  l{n}: &l{n} [{}]", vec![format!("*l{}", n - 1); 9].join(", "));
        text
    });
    let long = format!("  text: &text \"{}\"\n  all: [{}]\n", "x".repeat(100_000), vec!["*text"; 100_000].join(", "));
    let mut group = c.benchmark_group("refuse");
    group.sample_size(20);
    for (shape, inside) in [("levels of aliases", levels), ("many aliases of much", long)] {
        let text = format!("version: 1\nname: bomb\nschemas:\n{inside}steps: {{ a: {{ run: \"true\" }} }}\n");
        let source = Arc::new(Source { name: "bomb.yaml".to_owned(), text });
        if !Workflow::load(&source).is_err_and(|error| error.found.iter().any(|found| found.code == codes::TOO_MUCH)) {
            return Err(format!("{shape}: it is not refused for what it would come to").into());
        }
        group.bench_function(shape, |b| b.iter(|| Workflow::load(black_box(&source)).is_err()));
    }
    group.finish();
    Ok(())
}

fn deciding(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("decide");
    for size in [10, 1_000, 10_000] {
        for (shape, narrow) in [("items", None), ("items of which 4 may run", Some(4))] {
            let (plan, state, live) = fan(size, narrow)?;
            begins_one(&decide(&plan, &state, &live))?;
            group.bench_function(BenchmarkId::new(shape, size), |b| b.iter(|| black_box(decide(&plan, &state, &live))));
        }
        let (plan, state) = chain(size)?;
        begins_one(&decide(&plan, &state, &Live::default()))?;
        group.bench_function(BenchmarkId::new("steps", size), |b| b.iter(|| black_box(decide(&plan, &state, &Live::default()))));
    }
    group.finish();
    Ok(())
}

/// One has ended, so one begins.
fn begins_one(commands: &[Command]) -> Result<(), String> {
    if commands.len() == 1 { Ok(()) } else { Err(format!("one command was to come, not {commands:?}")) }
}

fn folding(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let (plan, records) = log(AGENTS, LOG)?;
    let mut group = c.benchmark_group("fold");
    group.sample_size(10);
    group.throughput(Throughput::Elements(records.len() as u64));
    RunState::replay(plan.clone(), &records)?;
    group.bench_function("replay of 100,000 records", |b| b.iter(|| RunState::replay(plan.clone(), &records)));
    group.finish();
    let mut group = c.benchmark_group("check");
    for size in [10, 1_000, 10_000] {
        let (plan, state, live) = fan(size, None)?;
        let Some(Command::Start { node, attempt }) = decide(&plan, &state, &live).pop() else { continue };
        let record = Record { seq: state.next_seq(), at: Timestamp(0), event: Event::StepStarted { node, attempt } };
        group.bench_function(BenchmarkId::new("of a start among items", size), |b| b.iter(|| state.check(black_box(record.seq), black_box(&record.event))));
    }
    group.finish();
    Ok(())
}

/// Steps that do nothing, through the real loop on a store that keeps nothing; beside it the least that runs as many tasks in
/// the order of a graph. `file` is what comes before: the reading and judging of the workflow.
fn scheduling(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("schedule");
    group.sample_size(10);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for size in [100, 1_000, 10_000] {
        let yaml = beside(size);
        let plan = compile(&yaml)?;
        group.throughput(Throughput::Elements(size as u64));
        let run = || runtime.block_on(simulate(plan.clone(), &serde_json::Map::new(), Stub::empty()));
        run()?;
        group.bench_function(BenchmarkId::new("steps", size), |b| b.iter(run));
        group.bench_function(BenchmarkId::new("floor, petgraph and JoinSet", size), |b| b.iter(|| runtime.block_on(bare(size))));
        group.bench_function(BenchmarkId::new("file", size), |b| b.iter(|| compile(&yaml)));
        let yaml = many(size);
        let items = compile(&yaml)?;
        group.bench_function(BenchmarkId::new("file with items", size), |b| b.iter(|| compile(&yaml)));
        let run = || runtime.block_on(simulate(items.clone(), &serde_json::Map::new(), Stub::empty()));
        run()?;
        group.bench_function(BenchmarkId::new("items", size), |b| b.iter(run));
    }
    group.finish();
    Ok(())
}

/// Runs as many tasks in the same order with nothing around them.
async fn bare(size: usize) -> Result<usize, tokio::task::JoinError> {
    let mut graph = petgraph::graph::DiGraph::<usize, ()>::with_capacity(size, size);
    let nodes: Vec<_> = (0..size).map(|n| graph.add_node(n)).collect();
    for n in WIDE..size {
        graph.add_edge(nodes[n - WIDE], nodes[n], ());
    }
    let mut unmet: Vec<usize> = graph.node_indices().map(|node| graph.neighbors_directed(node, petgraph::Direction::Incoming).count()).collect();
    let mut ready: std::collections::VecDeque<_> = graph.node_indices().filter(|node| unmet[node.index()] == 0).collect();
    let mut tasks = tokio::task::JoinSet::new();
    let mut done = 0;
    loop {
        while tasks.len() < PLACES
            && let Some(node) = ready.pop_front()
        {
            tasks.spawn(async move { node });
        }
        let Some(ended) = tasks.join_next().await else { return Ok(done) };
        done += 1;
        for next in graph.neighbors(ended?) {
            unmet[next.index()] -= 1;
            if unmet[next.index()] == 0 {
                ready.push_back(next);
            }
        }
    }
}

fn appending(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("append");
    for (word, synced) in [("plain", false), ("synced", true)] {
        for batch in [1, 64] {
            let dir = tempfile::tempdir()?;
            let mut store = SqliteStore::create(dir.path(), &RunId::from("bench"))?;
            let (mut next, mut kept) = (0, Ok(()));
            group.throughput(Throughput::Elements(batch));
            group.bench_function(BenchmarkId::new(word, batch), |b| {
                let mut fresh = || {
                    let records: Vec<Record> = (next..next + batch).map(told).collect();
                    next += batch;
                    records
                };
                // Numbers may have no gap, so each batch is made just before it is appended.
                let append = |records: Vec<Record>| kept = store.append(&records, synced);
                b.iter_batched(&mut fresh, append, BatchSize::PerIteration);
            });
            // After one that failed each other fails too: its number is no longer the next.
            kept?;
            let (mut file, mut kept) = (File::create(dir.path().join("floor"))?, Ok(()));
            let records: Vec<Record> = (0..batch).map(told).collect();
            group.bench_function(BenchmarkId::new(format!("floor, {word}"), batch), |b| {
                b.iter(|| kept = keep(&mut file, &records, synced));
            });
            kept?;
        }
    }
    group.finish();
    Ok(())
}

/// Agents that record one event after the other, each waiting for its acknowledgement, and one writer that appends all that wait
/// in one transaction, as the loop of a run does. Says how many there are in a second, and how long one takes.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
#[expect(clippy::cast_precision_loss, reason = "thousands are far below 2^52")]
#[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
fn sharing(agents: usize, synced: bool) -> Result<(), Box<dyn Error>> {
    const EACH: usize = 2_000;
    let dir = tempfile::tempdir()?;
    let mut store = SqliteStore::create(dir.path(), &RunId::from("bench"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (recorder, mut reports) = Recorder::channel(256);
    let total = if synced { EACH } else { EACH * 10 };
    let began = Instant::now();
    let took: Result<Vec<Vec<Duration>>, Box<dyn Error>> = runtime.block_on(async {
        let mut work = tokio::task::JoinSet::new();
        for _ in 0..agents {
            let recorder = recorder.clone();
            work.spawn(async move {
                let mut took = Vec::new();
                for n in 0..total / agents {
                    let began = Instant::now();
                    recorder.record(told(n as u64).event).await?;
                    took.push(began.elapsed());
                }
                Ok::<_, Closed>(took)
            });
        }
        drop(recorder);
        let mut next = 0;
        while let Some(first) = reports.recv().await {
            let mut batch = vec![first];
            while let Ok(report) = reports.try_recv() {
                batch.push(report);
            }
            let records: Vec<Record> = (next..).zip(&batch).map(|(seq, report)| Record { event: report.event.clone(), ..told(seq) }).collect();
            next += records.len() as u64;
            store.append(&records, synced)?;
            for report in batch {
                let _ = report.acknowledged.send(());
            }
        }
        Ok(work.join_all().await.into_iter().collect::<Result<_, _>>()?)
    });
    let mut took = took?.concat();
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e6;
    let word = if synced { "synced" } else { "plain" };
    println!("append/{word}, {agents} agents: {rate:.0} a second; p50 {:.0} µs, p95 {:.0} µs, p99 {:.0} µs", at(50), at(95), at(99));
    Ok(())
}

/// Runs of 200 agents that are taken up again: the journal is read, each record is checked against its seal and folded. Says
/// what that takes, of the processor too, which is what counts where others are at work, and how large the journal is.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
#[expect(clippy::cast_precision_loss, reason = "thousands are far below 2^52")]
#[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
fn resuming() -> Result<(), Box<dyn Error>> {
    const TIMES: usize = 5;
    for turns in [25, 50, 100, 200] {
        let (plan, records) = log(200, 200 * turns * 3)?;
        let dir = tempfile::tempdir()?;
        let mut store = SqliteStore::create(dir.path(), &RunId::from("bench"))?;
        records.chunks(64).try_for_each(|some| store.append(some, false))?;
        drop(store);
        let bytes = std::fs::metadata(dir.path().join("journal.db"))?.len();
        let count = records.len();
        drop(records);
        let mut took: Vec<[Duration; 4]> = Vec::new();
        for _ in 0..TIMES {
            let (began, began_cpu) = (Instant::now(), processor());
            let (_store, records) = SqliteStore::open(dir.path())?;
            let (read, read_cpu) = (began.elapsed(), processor().saturating_sub(began_cpu));
            let state = RunState::replay(plan.clone(), &records)?;
            took.push([began.elapsed(), processor().saturating_sub(began_cpu), read, read_cpu]);
            drop(black_box(state));
        }
        took.sort_unstable();
        let [all, all_cpu, read, read_cpu] = took[TIMES / 2].map(|time| time.as_secs_f64() * 1e8 / count as f64);
        println!(
            "resume/200 agents, {turns} turns: {count} records, {} bytes each; for 100,000 of them {all:.0} ms (processor {all_cpu:.0}), of which reading {read:.0} ms (processor {read_cpu:.0})",
            bytes / count as u64
        );
    }
    Ok(())
}

/// Returns how long this process was at work so far, by the kernel's word.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default())
}

/// Keeps records in a bare file, a line each.
fn keep(file: &mut File, records: &[Record], synced: bool) -> io::Result<()> {
    let mut lines = String::new();
    for record in records {
        let _ = writeln!(lines, "{}", serde_json::to_string(record)?);
    }
    file.write_all(lines.as_bytes())?;
    if synced { file.sync_data() } else { Ok(()) }
}

/// A record of the size that most have.
fn told(seq: u64) -> Record {
    Record { seq, at: Timestamp(seq), event: finished(&NodeId::step(&StepId::from("work")), &format!("call_{seq}_0")) }
}

/// A run of many items of which as many run as may, but for one that has just ended.
fn fan(size: usize, narrow: Option<u32>) -> Result<(Arc<Plan>, RunState, Live), Box<dyn Error>> {
    let plan = compile("version: 1\nname: fan\nsteps:\n  work:\n    for_each: { items: [1], as: n }\n    run: \"true\"\n")?;
    let step = StepId::from("work");
    let items = (0..size).map(|n| Item { key: n.to_string(), value: json!(n), matrix: serde_json::Map::new(), needs: Vec::new() }).collect();
    let mut log = Log::new(&plan)?;
    log.tell(Event::ItemsAdded { step: NodeId::step(&step), items, by: NodeId::step(&step), max_parallel: narrow })?;
    let mut live = Live::default();
    let begun = decide(&plan, &log.state, &live);
    for command in begun {
        let Command::Start { node, attempt } = command else { continue };
        live.begin(&log.state, node.clone());
        log.tell(Event::StepStarted { node, attempt })?;
    }
    let first = live.nodes().next().cloned().ok_or("none was begun")?;
    live.end(&first);
    log.tell(Event::StepFinished { node: first, outcome: Outcome::Succeeded(Success::default()) })?;
    Ok((plan, log.state, live))
}

/// A chain of steps, the first of which has ended.
fn chain(size: usize) -> Result<(Arc<Plan>, RunState), Box<dyn Error>> {
    let mut yaml = "version: 1\nname: chain\nsteps:\n  s0: { run: \"true\" }\n".to_owned();
    for n in 1..size {
        let _ = writeln!(yaml, "  s{n}: {{ needs: [s{}], run: \"true\" }}", n - 1);
    }
    let plan = compile(&yaml)?;
    let mut log = Log::new(&plan)?;
    let first = NodeId::step(&StepId::from("s0"));
    log.tell(Event::StepStarted { node: first.clone(), attempt: 1 })?;
    log.tell(Event::StepFinished { node: first, outcome: Outcome::Succeeded(Success::default()) })?;
    Ok((plan, log.state))
}

/// A legal log of agents that make one call a turn.
fn log(agents: usize, size: usize) -> Result<(Arc<Plan>, Vec<Record>), Box<dyn Error>> {
    let plan = compile("version: 1\nname: log\ndefaults: { max_parallel: 128 }\nsteps:\n  work:\n    for_each: { items: [1], as: n }\n    run: \"true\"\n")?;
    let step = StepId::from("work");
    let nodes: Vec<NodeId> = (0..agents).map(|n| NodeId::item(&step, &n.to_string())).collect();
    let items = (0..agents).map(|n| Item { key: n.to_string(), value: json!(n), matrix: serde_json::Map::new(), needs: Vec::new() }).collect();
    let mut log = Log::new(&plan)?;
    log.tell(Event::ItemsAdded { step: NodeId::step(&step), items, by: NodeId::step(&step), max_parallel: None })?;
    for node in &nodes {
        log.tell(Event::StepStarted { node: node.clone(), attempt: 1 })?;
        log.tell(Event::AgentBriefed { node: node.clone(), brief: Arc::new(brief()) })?;
    }
    let mut turn = 0;
    while log.records.len() < size {
        for node in &nodes {
            let call = format!("call_{turn}_0");
            let reply = Reply { model: "mock/mock".to_owned(), ..script::reply("I look.", &[("Bash", json!({"command": format!("ls {turn}")}))]) };
            // The script's own ids repeat, which the fold allows: they are answered before they are used again.
            let call = reply.calls().next().map_or(call, |made| made.id.clone());
            log.tell(Event::ModelReplied { node: node.clone(), reply: Box::new(reply), prefix: Vec::new() })?;
            log.tell(Event::ToolStarted { node: node.clone(), call: call.clone(), input: None, recovery: Recovery::Again })?;
            log.tell(finished(node, &call))?;
        }
        turn += 1;
    }
    Ok((plan, log.records))
}

fn finished(node: &NodeId, call: &str) -> Event {
    Event::ToolFinished {
        node: node.clone(),
        result: ToolResult::new(call, "a line of what was found\n".repeat(10), false),
        tool: "Bash".to_owned(),
        verdict: "allowed".to_owned(),
        context: Vec::new(),
        output: None,
        seen: Vec::new(),
        took_ms: 2,
    }
}

fn brief() -> Brief {
    Brief {
        agent: "worker".to_owned(),
        models: vec!["mock/mock".to_owned()],
        system: "You work.\n".repeat(40),
        tools: Vec::new(),
        provider_tools: Vec::new(),
        output_schema: None,
        message: Message::user("go"),
    }
}

/// A log being written, with its fold.
struct Log {
    state: RunState,
    records: Vec<Record>,
}

impl Log {
    fn new(plan: &Arc<Plan>) -> Result<Log, IllegalEvent> {
        let mut log = Log { state: RunState::new(plan.clone()), records: Vec::new() };
        log.tell(Event::RunStarted(Box::new(RunStarted {
            run: RunId::from("bench"),
            workflow: plan.name.clone(),
            file: plan.source.name.clone(),
            inputs: serde_json::Map::new(),
            base: CommitId::from("0"),
            head: None,
            pins: std::collections::BTreeMap::new(),
            script: None,
            replays: false,
            steps: std::collections::BTreeMap::new(),
            origin: None,
            given: spinney::event::Given::default(),
        })))?;
        Ok(log)
    }

    fn tell(&mut self, event: Event) -> Result<(), IllegalEvent> {
        let record = Record { seq: self.state.next_seq(), at: Timestamp(0), event };
        self.state.apply(&record)?;
        self.records.push(record);
        Ok(())
    }
}
