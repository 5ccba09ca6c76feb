//! The graph as a picture: Mermaid and DOT. What stands inside a step, the body of a loop or a called workflow, is drawn as
//! a frame around its own graph.
use super::{Plan, PlannedStep, Work};
use crate::workflow::On;
use std::{collections::HashMap, fmt::Write as _};

/// The most nodes that are drawn inside of others; what would be more stays closed.
const MAX_INNER: usize = 2_000;

/// What a node is drawn as.
struct Drawn<'a> {
    step: &'a PlannedStep,
    /// The name of the node in Mermaid: the places of the steps that it is inside of, and its own.
    name: String,
    /// The same for DOT: ids of steps.
    path: String,
    lines: Vec<String>,
    inner: Option<Graph<'a>>,
}

/// A plan with its nodes.
struct Graph<'a> {
    plan: &'a Plan,
    nodes: Vec<Drawn<'a>>,
}

/// An edge between two nodes of a graph, by their places.
type Line = (usize, usize, On);

impl Plan {
    /// Draws the graph in Mermaid's language.
    pub fn mermaid(&self) -> String {
        let mut text = "flowchart TD\n".to_owned();
        let whole = Whole::new(self);
        for (title, graph) in &whole.graphs {
            let depth = usize::from(title.is_some());
            if let Some(title) = title {
                line(&mut text, 1, format_args!("subgraph {} [\"{title}\"]", title.replace(' ', "_")));
            }
            mermaid_nodes(&mut text, graph, depth + 1);
            mermaid_edges(&mut text, graph, depth + 1);
            if title.is_some() {
                line(&mut text, 1, format_args!("end"));
            }
        }
        if let Some(orchestrator) = &self.orchestrator {
            // A frame around the steps it supervises.
            line(&mut text, 1, format_args!("subgraph orchestrator [\"{}\"]", escape_mermaid(&format!("orchestrator: {}", orchestrator.agent.name))));
            for name in whole.supervised(self) {
                line(&mut text, 2, format_args!("{}", name.name));
            }
            line(&mut text, 1, format_args!("end"));
        }
        text
    }

    /// Draws the graph in DOT, the language of Graphviz.
    pub fn dot(&self) -> String {
        let mut text = format!("digraph {} {{\n  node [shape=box];\n", quote(&self.name));
        let whole = Whole::new(self);
        for (title, graph) in &whole.graphs {
            let depth = usize::from(title.is_some());
            if let Some(title) = title {
                line(&mut text, 1, format_args!("subgraph {} {{", quote(&format!("cluster:{title}"))));
                line(&mut text, 2, format_args!("label={};", quote(title)));
            }
            dot_nodes(&mut text, graph, depth + 1);
            dot_edges(&mut text, graph, depth + 1);
            if title.is_some() {
                line(&mut text, 1, format_args!("}}"));
            }
        }
        if let Some(orchestrator) = &self.orchestrator {
            line(&mut text, 1, format_args!("subgraph cluster_orchestrator {{"));
            line(&mut text, 2, format_args!("label={};", quote(&format!("orchestrator: {}", orchestrator.agent.name))));
            line(&mut text, 2, format_args!("style=dashed;"));
            for node in whole.supervised(self) {
                line(&mut text, 2, format_args!("{};", quote(&node.path)));
            }
            line(&mut text, 1, format_args!("}}"));
        }
        text.push_str("}\n");
        text
    }
}

/// All graphs of a plan: its own, and what runs at the end, each of these with a title.
struct Whole<'a> {
    graphs: Vec<(Option<&'static str>, Graph<'a>)>,
}

impl<'a> Whole<'a> {
    fn new(plan: &'a Plan) -> Whole<'a> {
        let mut room = MAX_INNER;
        let mut graphs = vec![(None, Graph::new(plan, ("s", ""), &mut room))];
        let ends = [("on failure", "f", &plan.on_failure), ("finally", "e", &plan.finally)];
        for (title, prefix, end) in ends {
            graphs.extend(end.as_ref().map(|end| (Some(title), Graph::new(end, (prefix, &format!("{title}/")), &mut room))));
        }
        Whole { graphs }
    }

    fn supervised(&self, plan: &Plan) -> impl Iterator<Item = &Drawn<'a>> {
        let supervised: Vec<&str> = plan.orchestrator.iter().flat_map(|orchestrator| &orchestrator.supervises).map(|step| step.0.as_str()).collect();
        self.graphs.iter().take(1).flat_map(|(_, graph)| &graph.nodes).filter(move |node| supervised.contains(&node.step.id.0.as_str()))
    }
}

impl<'a> Graph<'a> {
    fn new(plan: &'a Plan, (name, path): (&str, &str), room: &mut usize) -> Graph<'a> {
        let node = |(at, step): (usize, &'a PlannedStep)| {
            let (name, path) = (format!("{name}{at}"), format!("{path}{}", step.id.0));
            let inner = step.inner().filter(|inner| inner.order().len() <= *room).map(|inner| {
                *room -= inner.order().len();
                Graph::new(inner, (&format!("{name}_"), &format!("{path}/")), room)
            });
            Drawn { step, name, path, lines: lines(step), inner }
        };
        Graph { plan, nodes: plan.steps().enumerate().map(node).collect() }
    }

    fn edges(&self) -> Vec<Line> {
        let places: HashMap<&str, usize> = self.nodes.iter().enumerate().map(|(at, node)| (node.step.id.0.as_str(), at)).collect();
        let mut edges = Vec::new();
        for (to, node) in self.nodes.iter().enumerate() {
            let mut needs: Vec<_> = self.plan.needs(&node.step.id).collect();
            needs.sort_by_key(|(from, _)| &from.id);
            edges.extend(needs.into_iter().filter_map(|(from, on)| Some((*places.get(from.id.0.as_str())?, to, on))));
        }
        edges
    }
}

fn mermaid_nodes(text: &mut String, graph: &Graph<'_>, depth: usize) {
    for node in &graph.nodes {
        let label = node.lines.iter().map(|line| escape_mermaid(line)).collect::<Vec<_>>().join("<br/>");
        if let Some(inner) = &node.inner {
            line(text, depth, format_args!("subgraph {} [\"{label}\"]", node.name));
            mermaid_nodes(text, inner, depth + 1);
            mermaid_edges(text, inner, depth + 1);
            line(text, depth, format_args!("end"));
            continue;
        }
        let (open, close) = match (&node.step.work, node.step.is_fan()) {
            (_, true) => ("[[\"", "\"]]"),
            (Work::Merge(_), false) => ("{{\"", "\"}}"),
            (Work::Select(_), false) => ("{\"", "\"}"),
            (Work::Agent { .. }, false) => ("(\"", "\")"),
            (Work::Approve(_), false) => ("[/\"", "\"/]"),
            (Work::Run { .. } | Work::Workflow(_) | Work::Loop(_), false) => ("[\"", "\"]"),
        };
        line(text, depth, format_args!("{}{open}{label}{close}", node.name));
    }
}

fn mermaid_edges(text: &mut String, graph: &Graph<'_>, depth: usize) {
    for (from, to, on) in graph.edges() {
        let label = word(on).map_or_else(String::new, |word| format!("|{word}|"));
        line(text, depth, format_args!("{} -->{label} {}", graph.nodes[from].name, graph.nodes[to].name));
    }
}

fn dot_nodes(text: &mut String, graph: &Graph<'_>, depth: usize) {
    for node in &graph.nodes {
        let (shape, more) = match (&node.step.work, node.step.is_fan()) {
            (_, true) => ("box", ", peripheries=2"),
            (Work::Merge(_), false) => ("hexagon", ""),
            (Work::Select(_), false) => ("diamond", ""),
            (Work::Agent { .. }, false) => ("box", ", style=rounded"),
            (Work::Approve(_), false) => ("parallelogram", ""),
            (Work::Run { .. } | Work::Workflow(_) | Work::Loop(_), false) => ("box", ""),
        };
        let own = format!("{} [label={}, shape={shape}{more}];", quote(&node.path), quote(&node.lines.join("\n")));
        let Some(inner) = &node.inner else {
            line(text, depth, format_args!("{own}"));
            continue;
        };
        // The step itself stands in its frame: edges of DOT lead to nodes only.
        line(text, depth, format_args!("subgraph {} {{", quote(&format!("cluster:{}", node.path))));
        line(text, depth + 1, format_args!("{own}"));
        dot_nodes(text, inner, depth + 1);
        dot_edges(text, inner, depth + 1);
        line(text, depth, format_args!("}}"));
    }
}

fn dot_edges(text: &mut String, graph: &Graph<'_>, depth: usize) {
    for (from, to, on) in graph.edges() {
        let label = word(on).map_or_else(String::new, |word| format!(" [label={}]", quote(word)));
        line(text, depth, format_args!("{} -> {}{label};", quote(&graph.nodes[from].path), quote(&graph.nodes[to].path)));
    }
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
    lines.extend(step.matrix.as_ref().map(|matrix| format!("matrix {}", matrix.axes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" × "))));
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

fn line(text: &mut String, depth: usize, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string does not fail.
    let _ = writeln!(text, "{:width$}{arguments}", "", width = depth * 2);
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
