//! One step, turn by turn: what was asked for, what the gate and the hooks said, what came of it, and the last words.
use super::super::{
    report::{CallShown, Entry, HookSaid, Node, Report, Turn, WIDTH, block, duration, entries, in_short, indent, line, wrapped},
    screen::{Tone, answered, failure_text, paint, plural, short, skip_word, thousands},
};
use crate::{
    event::{CommitId, Delivery, HookVerdict, Isolation, NodeId, Outcome, Record, UNTHINKING, Wake, Why},
    journal::Spent,
    message::StopReason,
};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

/// Columns for the name of a tool or of what happened.
const NAME: usize = 10;
/// Characters of what follows it.
const SHOWN: usize = WIDTH - NAME - 8;
/// More characters than a text has that is looked at whole.
const WHOLE: usize = usize::MAX / 8;
/// Characters of one field of an input or an output.
const FIELD: usize = 160;
/// Lines of the final text; `--json` has all.
const FINAL_LINES: usize = 400;
/// Lines of what a check or a command said last.
const TAIL_LINES: usize = 6;

/// Writes everything that happened to a node.
pub(super) fn screen(records: &[Record], report: &Report, (id, node): (&NodeId, &Node), color: bool) -> String {
    let entries = entries(records, id);
    let mut screen = Screen { color, text: String::new(), place: String::new(), said: String::new(), open: BTreeSet::new(), cut: false };
    screen.head(id, node, report);
    screen.items(id, report);
    for entry in &entries {
        screen.entry(entry);
    }
    screen.last_words(&entries, node);
    if screen.cut {
        let id = shell_words::quote(&id.to_string()).into_owned();
        let _ = writeln!(screen.text, "\nTexts are cut here; `spinney show {} {} --json` has everything", line(&report.run(), 100), line(&id, 100));
    }
    screen.text
}

struct Screen {
    color: bool,
    text: String,
    /// The worktree's folder with a slash at its end, which results need not repeat.
    place: String,
    /// What the last turn said.
    said: String,
    /// Calls whose questions are answered by a text.
    open: BTreeSet<String>,
    /// Whether something is not shown whole.
    cut: bool,
}

impl Screen {
    fn head(&mut self, id: &NodeId, node: &Node, report: &Report) {
        let (word, tone) = super::state(report, id, node);
        let word = if word.is_empty() { String::new() } else { format!(": {}", paint(self.color, tone, word)) };
        let _ = writeln!(self.text, "{}{word}", paint(self.color, Tone::Name, &line(&id.to_string(), 100)));
        let mut used = Vec::new();
        if node.attempts > 0 {
            used.push(format!("{} {}", node.attempts, plural(node.attempts as usize, "attempt")));
        }
        used.extend(node.took().map(duration));
        if !node.spent.is_nothing() {
            let (turns, calls) = (node.spent.turns as usize, node.spent.calls as usize);
            used.push(format!(
                "{turns} {}, {calls} {}, {} tokens, {}",
                plural(turns, "turn"),
                plural(calls, "tool call"),
                thousands(node.spent.usage.total()),
                super::cost(report, &node.spent)
            ));
        }
        if !used.is_empty() {
            let _ = writeln!(self.text, "  {}", used.join(", "));
        }
    }

    /// Says how the items of a step and the steps inside of it stand, each of which has a screen of its own.
    fn items(&mut self, id: &NodeId, report: &Report) {
        let nodes = report.nodes();
        let items: Vec<_> =
            nodes.iter().filter(|(of, _)| of.owner() == **of && (of.is_inside(id) || (id.item.is_none() && of.item.is_some() && of.whole() == *id))).collect();
        let width = items.iter().map(|(of, _)| line(&of.to_string(), 60).chars().count()).max().unwrap_or(0);
        for (at, (of, item)) in items.into_iter().enumerate() {
            let before = if at == 0 { "\n" } else { "" };
            let (word, tone) = super::state(report, of, item);
            let name = paint(self.color, Tone::Name, &format!("{:<width$}", line(&of.to_string(), 60)));
            let _ = writeln!(self.text, "{before}  {name}  {}", paint(self.color, tone, word));
        }
    }

    fn lost(&mut self, spent: &Spent) {
        let what = format!("paid for without a reply: {} tokens, {}", thousands(spent.usage.total()), spent.dollars());
        self.tail_in("lost", &what, "", Tone::Warn);
    }

    fn woken(&mut self, reasons: &[Wake]) {
        let _ = writeln!(self.text, "\n{}", paint(self.color, Tone::Name, &line(&format!("Woken: {}", Wake::listed(reasons)), WIDTH)));
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Began { attempt } => {
                let _ = writeln!(self.text, "\n{}", paint(self.color, Tone::Name, &format!("Attempt {attempt}")));
            }
            Entry::Condition { holds } => self.say("if", if *holds { "holds" } else { "does not hold" }, Tone::Dim),
            Entry::Round { called: true, base, .. } => self.say("called", &format!("from {}", short(&base.0)), Tone::Plain),
            Entry::Round { round, base, .. } => self.say("round", &format!("{round}, from {}", short(&base.0)), Tone::Plain),
            Entry::Workspace { base, isolation, path, command } => self.workspace((base, *isolation, path), *command),
            Entry::Briefed { agent, models, tools, message } => {
                self.say("agent", &format!("{agent} on {}", models.join(", else ")), Tone::Plain);
                self.say_whole("tools", &if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }, Tone::Plain);
                self.say("asked", task(&message.text()), Tone::Plain);
            }
            Entry::Turn(turn) => self.turn(turn),
            Entry::Told { why, message } => self.say("told", &format!("{}: {}", why_word(*why), message.text()), Tone::Warn),
            Entry::Hook(hook) => self.hook(hook, 2),
            Entry::Verified { passed: true, .. } => self.say("checks", "green", Tone::Good),
            Entry::Verified { tail, .. } => self.tail("checks", "red", tail),
            Entry::Compacted { strategy: UNTHINKING, .. } => {
                self.say("goes on", "without what was thought, which the provider did not take back", Tone::Dim);
            }
            Entry::Compacted { before, after, strategy } => {
                self.say("shortened", &format!("the conversation, from about {} to {} tokens ({strategy})", thousands(*before), thousands(*after)), Tone::Dim);
            }
            Entry::Captured { commit, paths } => {
                self.say("commit", &format!("{}, {} {}: {}", short(&commit.0), paths.len(), plural(paths.len(), "path"), super::listed(paths)), Tone::Plain);
            }
            Entry::Checkpoint { commit } => self.say("kept", &format!("what it had in its files, as {}", short(&commit.0)), Tone::Plain),
            Entry::Cached { run } => self.say("cached", &format!("the result of {} stands for the work", run.0), Tone::Plain),
            Entry::Kept { name } => self.say("artefact", name, Tone::Plain),
            Entry::Merged(progress) => {
                let (word, said, tone) = super::merged(progress);
                self.say_whole(word, &said, tone);
            }
            Entry::Selected(progress) => {
                let (word, said, tone) = super::selected(progress);
                self.say_whole(word, &said, tone);
            }
            Entry::Delivered(Delivery::Joined { .. }) => self.say("delivered", "its files are with the agent that asked for them", Tone::Plain),
            Entry::Delivered(Delivery::Conflicted { paths }) => self.say("conflict", &format!("{}: a ref keeps the work", super::listed(paths)), Tone::Warn),
            Entry::Asked { call, question, open } => {
                self.open.extend(open.then(|| (*call).to_owned()));
                self.say("asks", question, Tone::Warn);
            }
            Entry::Answered { call, allowed, by, note } => {
                let word = answered(self.open.remove(*call), *allowed);
                let note = note.map(|note| format!(": {note}")).unwrap_or_default();
                self.say("answer", &format!("{word} by {by}{note}"), Tone::Plain);
            }
            Entry::Lost(spent) => self.lost(spent),
            Entry::FellBack { from, to, failure } => self.tail_in("instead", &format!("{to}, since {from} gave no answer"), &failure_text(failure), Tone::Warn),
            Entry::Parked { failure } => self.tail_in("parked", "until the run is resumed", &failure_text(failure), Tone::Warn),
            Entry::Retry { failure } => self.tail("retry", "since it failed", &failure_text(failure)),
            Entry::Woken { reasons } => self.woken(reasons),
            Entry::Rested { failure: Some(failure), .. } => self.tail("failed", "the graph alone decides from here", &failure_text(failure)),
            Entry::Rested { text, failure: None } if text.trim() == self.said.trim() => {}
            Entry::Rested { text, failure: None } => self.say("said", text, Tone::Plain),
            Entry::Ended(Outcome::Succeeded(success)) if success.output.get("output_tail").is_some_and(Value::is_string) => {
                let said = success.output["output_tail"].as_str().unwrap_or_default();
                self.tail_in("ended", &format!("succeeded{}", if said.trim().is_empty() { "" } else { ", and said last" }), said, Tone::Good);
            }
            Entry::Ended(Outcome::Succeeded(success)) => {
                // A text is what the last turn said, and stands below.
                let output = if success.output.is_null() || success.output.is_string() || success.output.get("results").is_some() {
                    String::new()
                } else {
                    format!(", output {}", in_short(&success.output, FIELD))
                };
                self.say("ended", &format!("succeeded{output}"), Tone::Good);
            }
            Entry::Ended(Outcome::Failed(failure)) => {
                self.tail("ended", "failed", &failure_text(failure));
                let said = failure.output.get("output_tail").and_then(Value::as_str).unwrap_or_default();
                if !said.trim().is_empty() {
                    self.tail_in("said last", "", said, Tone::Plain);
                }
            }
            Entry::Ended(Outcome::Skipped(cause)) => self.say("ended", &format!("skipped: {}", skip_word(cause)), Tone::Dim),
        }
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let usage = &turn.usage;
        let cached = match (usage.cache_read, usage.cache_write) {
            (0, 0) => String::new(),
            (read, 0) => format!(" ({} from the cache)", thousands(read)),
            (read, written) => format!(" ({} from the cache, {} into it)", thousands(read), thousands(written)),
        };
        let price = match turn.usd {
            None => ", price unknown".to_owned(),
            // What a script says costs nothing.
            Some(usd) if usd > 0.0 => format!(", ${usd:.4}"),
            Some(_) => String::new(),
        };
        let used = format!("{}, {} tokens in{cached}, {} out{price}, {}", stop_word(turn.stop), thousands(usage.prompt()), thousands(usage.output), turn.model);
        let _ = writeln!(
            self.text,
            "\n  {}  {}",
            paint(self.color, Tone::Name, &format!("Turn {}", turn.number)),
            paint(self.color, Tone::Dim, &line(&used, SHOWN + NAME))
        );
        if !turn.text.trim().is_empty() {
            // The last words stand whole at the end.
            let last = turn.calls.is_empty();
            let said = if last { line(&turn.text, WIDTH - 4) } else { self.clipped(&turn.text, WIDTH - 4) };
            let _ = writeln!(self.text, "    {said}");
        }
        turn.text.clone_into(&mut self.said);
        for call in &turn.calls {
            self.call(call);
        }
    }

    fn call(&mut self, call: &CallShown<'_>) {
        let name = line(call.tool, 40);
        let input = self.short(call.input);
        let _ = writeln!(self.text, "    {}  {input}", paint(self.color, Tone::Name, &format!("{name:<NAME$}")));
        for hook in &call.hooks {
            self.hook(hook, NAME + 6);
        }
        if let Some(input) = call.rewritten {
            self.under("rewritten to ", &in_short(input, FIELD), Tone::Warn);
        }
        let took = if call.took_ms >= 1000 { format!(" after {}", duration(Duration::from_millis(call.took_ms))) } else { String::new() };
        match call.result {
            None if call.started => self.under("", "begun, and its end is not recorded", Tone::Warn),
            None => self.under("", "not answered yet", Tone::Warn),
            Some(result) if !call.started => self.under(&format!("{}: ", line(call.verdict, 60)), &result.text, Tone::Bad),
            Some(result) if result.is_error => self.under(&format!("error{took}: "), &result.text, Tone::Bad),
            Some(result) => self.under(&format!("{}{took}: ", size(&result.text)), &result.text, Tone::Dim),
        }
    }

    fn hook(&mut self, hook: &HookSaid<'_>, spaces: usize) {
        let reason = if hook.reason.trim().is_empty() { String::new() } else { format!(": {}", hook.reason) };
        let said = self.clipped(&format!("hook {} said {} at {}{reason}", hook.hook, hook.verdict.word(), hook.on), WIDTH.saturating_sub(spaces));
        let tone = if matches!(hook.verdict, HookVerdict::Allow | HookVerdict::None) { Tone::Dim } else { Tone::Warn };
        let _ = writeln!(self.text, "{:spaces$}{}", "", paint(self.color, tone, &said));
    }

    /// Writes what belongs to the call above.
    fn under(&mut self, before: &str, text: &str, tone: Tone) {
        let room = SHOWN.saturating_sub(before.chars().count()).max(20);
        let text = if self.place.len() > 1 { text.replace(&self.place, "") } else { text.to_owned() };
        let text = self.clipped(&text, room);
        let _ = writeln!(self.text, "    {:NAME$}  {}", "", paint(self.color, tone, &format!("{before}{text}")));
    }

    fn say(&mut self, name: &str, text: &str, tone: Tone) {
        let text = self.clipped(text, SHOWN);
        self.say_whole(name, &text, tone);
    }

    fn workspace(&mut self, (base, isolation, path): (&CommitId, Isolation, &str), command: Option<&str>) {
        if path.is_empty() {
            self.say("base", short(&base.0), Tone::Plain);
        } else {
            self.place = format!("{path}/");
            self.say_whole("worktree", &format!("{path} ({}), from {}", isolation.words(), short(&base.0)), Tone::Plain);
        }
        if let Some(command) = command {
            self.say("command", command, Tone::Plain);
        }
    }

    /// Writes a text on one line, and notes where that leaves something out.
    fn clipped(&mut self, text: &str, most: usize) -> String {
        let shown = line(text, most);
        self.cut |= shown.chars().count() < line(text, WHOLE).chars().count();
        shown
    }

    /// Writes an input on one line, and notes where that leaves something out.
    fn short(&mut self, input: &Value) -> String {
        self.cut |= in_short(input, FIELD).chars().count() < in_short(input, WHOLE).chars().count();
        self.clipped(&in_short(input, FIELD), SHOWN)
    }

    /// Says something that is not cut, a path say.
    fn say_whole(&mut self, name: &str, text: &str, tone: Tone) {
        let _ = writeln!(self.text, "  {}  {}", paint(self.color, Tone::Dim, &format!("{name:<NAME$}")), paint(self.color, tone, &line(text, 4096)));
    }

    /// Says that something went wrong, with the last lines of what was said about it.
    fn tail(&mut self, name: &str, what: &str, text: &str) {
        self.tail_in(name, what, text, Tone::Bad);
    }

    fn tail_in(&mut self, name: &str, what: &str, text: &str, tone: Tone) {
        self.say(name, what, tone);
        let text = block(text.trim());
        let lines: Vec<&str> = text.lines().collect();
        self.cut |= lines.len() > TAIL_LINES;
        let shown: Vec<String> = lines[lines.len().saturating_sub(TAIL_LINES)..].iter().flat_map(|line| wrapped(line, SHOWN)).collect();
        if !text.is_empty() {
            self.text.push_str(&indent(&shown.join("\n"), NAME + 4));
        }
    }

    /// Writes the text of the last reply, whole as far as a screen goes.
    fn last_words(&mut self, entries: &[Entry<'_>], node: &Node) {
        let last = entries.iter().rev().find_map(|entry| if let Entry::Turn(turn) = entry { Some(turn) } else { None });
        let Some(turn) = last.filter(|turn| turn.calls.is_empty() && !turn.text.trim().is_empty()) else { return };
        let said = if node.outcome.is_some() { "Final text" } else { "Last text" };
        let text = block(turn.text.trim());
        let lines: Vec<&str> = text.lines().collect();
        let _ = write!(self.text, "\n{}\n{}", paint(self.color, Tone::Name, said), indent(&lines[..lines.len().min(FINAL_LINES)].join("\n"), 2));
        if lines.len() > FINAL_LINES {
            let _ = writeln!(self.text, "  … {} more lines; `--json` has them", lines.len() - FINAL_LINES);
        }
    }
}

/// Returns the part of a brief that says what to do, without the engine's words on the workspace.
fn task(text: &str) -> &str {
    text.split_once("</workspace>").map_or(text, |(_, task)| task)
}

/// Says how long a result is.
fn size(text: &str) -> String {
    let lines = text.lines().count();
    if lines <= 1 { "ok".to_owned() } else { format!("{lines} lines") }
}

fn stop_word(stop: &StopReason) -> String {
    match stop {
        StopReason::EndTurn => "end of turn".to_owned(),
        StopReason::ToolUse => "tool use".to_owned(),
        StopReason::MaxTokens => "cut at the output limit".to_owned(),
        StopReason::StopSequence => "stop sequence".to_owned(),
        StopReason::PauseTurn => "paused".to_owned(),
        StopReason::Refusal { category } if category.is_empty() => "refused".to_owned(),
        StopReason::Refusal { category } => format!("refused ({category})"),
        StopReason::WindowExceeded => "cut since the window is full".to_owned(),
        StopReason::Unknown(word) => format!("unknown reason `{word}`"),
    }
}

fn why_word(why: Why) -> &'static str {
    match why {
        Why::VerifyRed => "the checks are red",
        Why::SchemaMismatch => "the answer does not fit",
        Why::Continue => "go on",
        Why::StopHook => "a hook wants more",
        Why::NextTask => "next task",
        Why::Told => "a person",
    }
}
