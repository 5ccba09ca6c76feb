//! What workflows and runs of them hold of memory: `cargo bench --bench memory`.
//!
//! A bench of its own: here every allocation is counted, which takes time.
mod shapes;

use peak_alloc::PeakAlloc;
use shapes::{beside, compile, many};
use spinney::{engine::simulate, workflow::Stub};
use std::error::Error;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Says what a plan holds, and how much more a simulated run of it held at most, in all and for each step or item.
#[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let shapes: [(&str, fn(usize) -> String); 2] = [("steps", beside), ("items", many)];
    for (what, yaml) in shapes {
        for size in [100, 1_000, 10_000] {
            let empty = HEAP.current_usage();
            let plan = compile(&yaml(size))?;
            let planned = HEAP.current_usage();
            HEAP.reset_peak_usage();
            runtime.block_on(simulate(plan.clone(), &serde_json::Map::new(), Stub::empty()))?;
            let (plan, run) = (planned.saturating_sub(empty), HEAP.peak_usage().saturating_sub(planned));
            println!("memory/{what}/{size}: plan {plan} bytes, {} each; run {run} bytes, {} each", plan / size, run / size);
        }
    }
    Ok(())
}
