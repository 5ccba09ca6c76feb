//! The graph as a picture: Mermaid and DOT.
use super::{Plan, PlannedStep, Work};
use crate::{event::StepId, workflow::On};
use std::{collections::BTreeMap, fmt::Write as _};

/// What a node is drawn as.
struct Drawn<'a> {
    step: &'a PlannedStep,
    name: String,
    lines: Vec<String>,
}

impl Plan {
    /// Draws the graph in Mermaid's language.
    pub fn mermaid(&self) -> String {
        let nodes = self.drawn();
        let mut text = "flowchart TD\n".to_owned();
        for node in &nodes {
            let label = node.lines.iter().map(|line| escape_mermaid(line)).collect::<Vec<_>>().join("<br/>");
            let (open, close) = match (&node.step.work, node.step.is_fan()) {
                (_, true) => ("[[\"", "\"]]"),
                (Work::Merge(_) | Work::Select(_), false) => ("{{\"", "\"}}"),
                (Work::Agent { .. }, false) => ("(\"", "\")"),
                (Work::Approve(_), false) => ("[/\"", "\"/]"),
                (Work::Run { .. } | Work::Workflow(_) | Work::Loop(_), false) => ("[\"", "\"]"),
            };
            line(&mut text, format_args!("  {}{open}{label}{close}", node.name));
        }
        let names = names(&nodes);
        for (from, to, on) in self.drawn_edges() {
            let label = word(on).map_or_else(String::new, |word| format!("|{word}|"));
            line(&mut text, format_args!("  {} -->{label} {}", names[from], names[to]));
        }
        if let Some(orchestrator) = &self.orchestrator {
            // A frame around the steps it supervises.
            line(&mut text, format_args!("  subgraph orchestrator [\"{}\"]", escape_mermaid(&format!("orchestrator: {}", orchestrator.agent))));
            for step in &orchestrator.supervises {
                line(&mut text, format_args!("    {}", names[step]));
            }
            text.push_str("  end\n");
        }
        text
    }

    /// Draws the graph in DOT, the language of Graphviz.
    pub fn dot(&self) -> String {
        let nodes = self.drawn();
        let mut text = format!("digraph {} {{\n  node [shape=box];\n", quote(&self.name));
        for node in &nodes {
            let (shape, more) = match (&node.step.work, node.step.is_fan()) {
                (_, true) => ("box", ", peripheries=2"),
                (Work::Merge(_) | Work::Select(_), false) => ("hexagon", ""),
                (Work::Agent { .. }, false) => ("box", ", style=rounded"),
                (Work::Approve(_), false) => ("parallelogram", ""),
                (Work::Run { .. } | Work::Workflow(_) | Work::Loop(_), false) => ("box", ""),
            };
            line(&mut text, format_args!("  {} [label={}, shape={shape}{more}];", quote(&node.step.id.0), quote(&node.lines.join("\n"))));
        }
        for (from, to, on) in self.drawn_edges() {
            let label = word(on).map_or_else(String::new, |word| format!(" [label={}]", quote(word)));
            line(&mut text, format_args!("  {} -> {}{label};", quote(&from.0), quote(&to.0)));
        }
        if let Some(orchestrator) = &self.orchestrator {
            let label = quote(&format!("orchestrator: {}", orchestrator.agent));
            line(&mut text, format_args!("  subgraph cluster_orchestrator {{\n    label={label};\n    style=dashed;"));
            for step in &orchestrator.supervises {
                line(&mut text, format_args!("    {};", quote(&step.0)));
            }
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }

    fn drawn(&self) -> Vec<Drawn<'_>> {
        self.steps().enumerate().map(|(at, step)| Drawn { step, name: format!("s{at}"), lines: lines(step) }).collect()
    }

    fn drawn_edges(&self) -> impl Iterator<Item = (&StepId, &StepId, On)> {
        self.order().iter().flat_map(|to| {
            let mut needs: Vec<_> = self.needs(to).map(|(from, on)| (&from.id, to, on)).collect();
            needs.sort_by_key(|(from, _, _)| *from);
            needs
        })
    }
}

fn names<'a>(nodes: &'a [Drawn<'_>]) -> BTreeMap<&'a StepId, &'a str> {
    nodes.iter().map(|node| (&node.step.id, node.name.as_str())).collect()
}

/// What is written in a node: its id, what it does, what it does it for.
fn lines(step: &PlannedStep) -> Vec<String> {
    const LONGEST: usize = 40;
    let mut lines = vec![step.id.0.clone()];
    lines.push(match &step.work {
        Work::Agent { agent, .. } => format!("agent: {}", agent.name),
        Work::Run { command } => {
            let first: String = command.lines().next().unwrap_or_default().chars().take(LONGEST).collect();
            let cut = if first.len() < command.trim_end().len() { "…" } else { "" };
            format!("run: {first}{cut}")
        }
        Work::Workflow(call) => format!("workflow: {}", call.plan.name),
        Work::Select(select) => format!("select: {}", select.from.iter().map(|step| step.0.as_str()).collect::<Vec<_>>().join(", ")),
        Work::Approve(_) => "approve".to_owned(),
        Work::Loop(spec) => format!("loop, at most {}", spec.max),
        Work::Merge(merge) => format!("merge: {}", merge.from.iter().map(|step| step.0.as_str()).collect::<Vec<_>>().join(", ")),
    });
    lines.extend(step.for_each.as_ref().map(|for_each| format!("for each {}", for_each.name.value)));
    lines
}

/// What is written on an edge; a need of success goes without saying.
fn word(on: On) -> Option<&'static str> {
    match on {
        On::Success => None,
        On::Failure => Some("on failure"),
        On::Done => Some("when done"),
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string does not fail.
    let _ = text.write_fmt(arguments);
    text.push('\n');
}

fn escape_mermaid(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => escaped.push_str("#quot;"),
            '#' => escaped.push_str("#35;"),
            '&' => escaped.push_str("#amp;"),
            '<' => escaped.push_str("#lt;"),
            '>' => escaped.push_str("#gt;"),
            '`' => escaped.push_str("#96;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
