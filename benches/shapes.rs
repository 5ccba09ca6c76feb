//! Workflows of many steps and of many items, for benches.
use spinney::{
    plan::{Catalog, Plan},
    source::{Diagnostics, Source},
    workflow::Workflow,
};
use std::{fmt::Write as _, sync::Arc};

/// Chains of steps beside each other.
pub(super) const WIDE: usize = 100;

/// Reads and judges a workflow.
///
/// # Errors
/// What is wrong with it.
pub(super) fn compile(yaml: &str) -> Result<Arc<Plan>, Diagnostics> {
    let source = Source { name: "bench.yaml".to_owned(), text: yaml.to_owned() };
    let workflow = Workflow::load(&Arc::new(source))?;
    let (plan, _warnings) = Plan::compile(&workflow, &Catalog::default())?;
    Ok(Arc::new(plan))
}

/// Chains beside each other, a hundred wide.
pub(super) fn beside(size: usize) -> String {
    let mut yaml = "version: 1\nname: beside\nsteps:\n".to_owned();
    for n in 0..size {
        let needs = if n < WIDE { String::new() } else { format!("needs: [s{}], ", n - WIDE) };
        let _ = writeln!(yaml, "  s{n}: {{ {needs}run: \"true\" }}");
    }
    yaml
}

/// One step of many items.
pub(super) fn many(size: usize) -> String {
    let list: Vec<String> = (0..size).map(|n| n.to_string()).collect();
    format!("version: 1\nname: many\nsteps:\n  work: {{ for_each: {{ items: [{}], as: n }}, run: \"true\" }}\n", list.join(", "))
}
