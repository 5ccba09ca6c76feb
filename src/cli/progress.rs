//! What is under way in a run, in a line for each agent at work: from its records, and from what is only said between those.
//! On a terminal these lines stand below all others and are wiped off when something is to stay.
use super::{
    report::{in_short, line, plain},
    screen::{NAME_WIDTH, Tone, narrow, row},
};
use crate::{
    agent::Note,
    clock::Clock,
    event::{Event, NodeId},
};
use rustix::termios::tcgetwinsize;
use std::{collections::BTreeMap, io, time::Duration};

/// How often the lines are drawn at most.
const PACE: Duration = Duration::from_millis(250);
/// How often what counts down is drawn.
const TICK: Duration = Duration::from_secs(1);
/// How many agents have a line at most.
const ROWS: usize = 8;
/// Characters that are kept of the input of a call.
const INPUT: usize = 200;
/// Where no more columns than these are left for what is done, nothing is shown.
const LEAST: usize = 16;

/// The agents at work, and what each is doing.
#[derive(Debug, Default)]
pub(super) struct Progress {
    agents: BTreeMap<NodeId, At>,
}

#[derive(Debug)]
struct At {
    doing: Doing,
    /// The calls of the last reply that have no result yet, in short.
    calls: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Doing {
    /// It waits for its model, or hears it; with the moment of the note.
    Asking(Note, Duration),
    /// Its calls run.
    Calling,
    /// A person is asked.
    Parked,
    /// Its turn is over, and its work is looked at.
    Judged,
}

impl Default for At {
    fn default() -> At {
        At { doing: Doing::Asking(Note::Asking, Duration::ZERO), calls: BTreeMap::new() }
    }
}

impl Progress {
    /// Takes note of what happened.
    pub(super) fn record(&mut self, event: &Event) {
        match event {
            Event::AgentBriefed { node, .. } | Event::MessageAdded { node, .. } | Event::FellBack { node, .. } | Event::Compacted { node, .. } => {
                self.agents.entry(node.clone()).or_default().asks();
            }
            Event::ModelReplied { node, reply, .. } => {
                let calls: BTreeMap<String, String> =
                    reply.calls().map(|call| (call.id.clone(), format!("{}  {}", call.name, in_short(&call.input, INPUT)))).collect();
                let doing = if calls.is_empty() { Doing::Judged } else { Doing::Calling };
                // The turn of a helper ends with it, or another begins.
                if calls.is_empty() && node.helper.is_some() {
                    self.agents.remove(node);
                } else {
                    self.agents.insert(node.clone(), At { doing, calls });
                }
            }
            Event::ToolFinished { node, result, .. } => {
                let at = self.agents.entry(node.clone()).or_default();
                at.calls.remove(&result.call);
                at.goes_on();
            }
            Event::QuestionAsked { node, .. } => {
                if let Some(at) = self.agents.get_mut(node) {
                    at.doing = Doing::Parked;
                }
            }
            Event::QuestionAnswered { node, .. } => {
                if let Some(at) = self.agents.get_mut(node) {
                    at.goes_on();
                }
            }
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } | Event::Parked { node, .. } => {
                self.agents.retain(|agent, _| agent.owner() != *node && agent != node);
            }
            Event::OrchestratorRested { node, .. } | Event::WorkDelivered { node, .. } => drop(self.agents.remove(node)),
            Event::RunStarted(_) | Event::RunResumed { .. } | Event::RunFinished { .. } => self.agents.clear(),
            Event::ConditionEvaluated { .. }
            | Event::FrameOpened { .. }
            | Event::ItemsAdded { .. }
            | Event::StepStarted { .. }
            | Event::WorkspaceMade { .. }
            | Event::AttemptsLost { .. }
            | Event::ToolStarted { .. }
            | Event::HookRan { .. }
            | Event::VerifyRan { .. }
            | Event::WorkCaptured { .. }
            | Event::CheckpointKept { .. }
            | Event::CacheHit { .. }
            | Event::ArtefactKept { .. }
            | Event::MergeAdvanced { .. }
            | Event::SelectAdvanced { .. }
            | Event::Told { .. }
            | Event::TimerFired { .. }
            | Event::OrchestratorWoken { .. }
            | Event::RunCancelled { .. }
            | Event::LimitReached { .. }
            | Event::BranchIntended { .. }
            | Event::BranchMade { .. } => {}
        }
    }

    /// Takes note of what is not recorded.
    fn note(&mut self, now: Duration, node: &NodeId, note: &Note) {
        let doing = &mut self.agents.entry(node.clone()).or_default().doing;
        let next = if let Doing::Asking(before, _) = doing { before.join(note.clone()) } else { Some(note.clone()) };
        if let Some(next) = next {
            *doing = Doing::Asking(next, now);
        }
    }

    /// Returns whether the lines change with time alone.
    fn counts_down(&self) -> bool {
        self.agents.values().any(|at| matches!(at.doing, Doing::Asking(Note::Retrying { .. }, _)))
    }

    /// Returns a line for each agent, as far as there is room.
    fn lines(&self, now: Duration, (width, rows): (usize, usize), color: bool) -> Vec<String> {
        let most = ROWS.min(rows / 2).max(1);
        let left = if self.agents.len() > most { self.agents.len() + 1 - most } else { 0 };
        let line = |(node, at): (&NodeId, &At)| {
            let name = narrow(&node.to_string());
            let taken = name.chars().map(columns).sum::<usize>() - name.chars().count() + NAME_WIDTH + 5;
            let room = width.checked_sub(taken).filter(|room| *room > LEAST)?;
            Some(row(color, &name, (&at.text(now, room), Tone::Dim)))
        };
        let shown = self.agents.iter().take(self.agents.len() - left).filter_map(line);
        shown.chain((left > 0).then(|| format!("  … and {left} more"))).collect()
    }
}

impl At {
    fn asks(&mut self) {
        self.doing = At::default().doing;
    }

    fn goes_on(&mut self) {
        if self.calls.is_empty() {
            self.asks();
        } else {
            self.doing = Doing::Calling;
        }
    }

    fn text(&self, now: Duration, room: usize) -> String {
        let text = match &self.doing {
            Doing::Asking(Note::Asking, _) => "asks its model".to_owned(),
            Doing::Asking(Note::Thought(said), _) => return last_words("thinking: ", said, room),
            Doing::Asking(Note::Said(said), _) => return last_words("saying: ", said, room),
            Doing::Asking(Note::Waiting { why }, _) => format!("waits: {why}"),
            Doing::Asking(Note::Retrying { kind, why, wait, attempt, of }, at) => {
                let left = (*at + *wait).saturating_sub(now);
                let (kind, left) = (kind.word().replace('_', " "), left.as_secs() + u64::from(left.subsec_nanos() > 0));
                format!("{kind}: asks again in {left}s (attempt {attempt} of {of}): {why}")
            }
            Doing::Calling => {
                let others = self.calls.len().saturating_sub(1);
                let others = if others == 0 { String::new() } else { format!("(+{others}) ") };
                format!("{others}{}", self.calls.values().next().map(String::as_str).unwrap_or_default())
            }
            Doing::Parked => "waits for a person".to_owned(),
            Doing::Judged => "its work is looked at".to_owned(),
        };
        fit(line(&text, room).chars(), room)
    }
}

/// Returns the columns that a character takes, at most.
fn columns(c: char) -> usize {
    if c < '\u{1100}' || matches!(c, '\u{2010}'..='\u{2027}') { 1 } else { 2 }
}

/// Keeps of a text what fits.
fn fit(text: impl Iterator<Item = char>, room: usize) -> String {
    let mut left = room;
    text.take_while(|c| {
        let fits = columns(*c) <= left;
        left -= columns(*c).min(left);
        fits
    })
    .collect()
}

/// Writes the end of what is said, from a word on.
fn last_words(before: &str, said: &str, room: usize) -> String {
    let said = plain(said).split_whitespace().collect::<Vec<_>>().join(" ");
    let backwards = fit(said.chars().rev(), room.saturating_sub(before.len() + 2));
    let end: String = backwards.chars().rev().collect();
    let is_whole = end.len() == said.len();
    let end = if is_whole { &end } else { end.split_once(' ').map_or(end.as_str(), |(_, words)| words) };
    format!("{before}{}{end}", if is_whole { "" } else { "… " })
}

/// The lines at the bottom of a terminal.
pub(super) struct Bottom {
    progress: Progress,
    clock: Clock,
    color: bool,
    /// What stands there.
    shown: Vec<String>,
    drawn: Duration,
    is_stale: bool,
    /// Whether a person is typing there.
    is_asked: bool,
}

impl Bottom {
    pub(super) fn new(color: bool) -> Bottom {
        Bottom { progress: Progress::default(), clock: Clock::system(), color, shown: Vec::new(), drawn: Duration::ZERO, is_stale: false, is_asked: false }
    }

    /// Takes note of what happened.
    pub(super) fn record(&mut self, event: &Event) {
        self.progress.record(event);
        self.is_stale = true;
    }

    /// Takes note of what is not recorded.
    pub(super) fn note(&mut self, node: &NodeId, note: &Note) {
        self.progress.note(self.clock.elapsed(), node, note);
        self.is_stale = true;
    }

    /// Takes note of whether a person is typing: then nothing is drawn.
    pub(super) fn asks(&mut self, is_asked: bool) {
        self.is_asked = is_asked;
        self.is_stale = true;
    }

    /// Returns how long it is until something is to be drawn.
    pub(super) fn due(&self) -> Option<Duration> {
        let after = |pace| (self.drawn + pace).saturating_sub(self.clock.elapsed());
        match (self.is_stale, self.shown.is_empty()) {
            _ if self.is_asked => None,
            (true, true) => Some(Duration::ZERO),
            (true, false) => Some(after(PACE)),
            (false, false) if self.progress.counts_down() => Some(after(TICK)),
            (false, _) => None,
        }
    }

    /// Returns what wipes off what stands there.
    pub(super) fn wiped(&mut self) -> String {
        let shown = std::mem::take(&mut self.shown);
        self.is_stale |= !shown.is_empty();
        match shown.len() {
            0 => String::new(),
            1 => "\r\u{1b}[J".to_owned(),
            lines => format!("\r\u{1b}[{}A\u{1b}[J", lines - 1),
        }
    }

    /// Returns what draws the lines anew; nothing where they stand there.
    pub(super) fn redrawn(&mut self) -> String {
        self.drawn = self.clock.elapsed();
        self.is_stale = false;
        let lines = self.progress.lines(self.drawn, size(), self.color);
        if lines == self.shown {
            return String::new();
        }
        let text = self.wiped() + &lines.join("\n");
        (self.shown, self.is_stale) = (lines, false);
        text
    }
}

/// Returns columns and rows of the terminal; those of the first ones where it does not say.
fn size() -> (usize, usize) {
    let said = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    said.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::tests::{answered, briefed, ends, node, replied, started, succeeded};
    use crate::llm::ModelErrorKind;
    use serde_json::{Value, json};

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn lines(progress: &Progress, now: u64) -> Vec<String> {
        progress.lines(S(now), (72, 40), false).iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn said(text: &str) -> Note {
        Note::Said(text.to_owned())
    }

    #[test]
    fn an_agent_has_a_line_from_its_brief_to_its_end_that_says_what_it_does() {
        let (mut progress, work) = (Progress::default(), node("work"));
        progress.record(&started());
        assert!(lines(&progress, 0).is_empty());
        progress.record(&briefed(&work));
        assert_eq!(lines(&progress, 0), ["work asks its model"]);
        progress.note(S(1), &work, &Note::Thought("I \u{1b}[2Jwonder\n".to_owned()));
        progress.note(S(1), &work, &Note::Thought("why".to_owned()));
        assert_eq!(lines(&progress, 1), ["work thinking: I [2Jwonder why"]);
        progress.note(S(2), &work, &said("So"));
        assert_eq!(lines(&progress, 2), ["work saying: So"]);
        let calls = [("a", "Bash", json!({"command": "cargo test"})), ("b", "Read", json!({"file_path": "x"}))];
        progress.record(&replied(&work, "so", &calls));
        assert_eq!(lines(&progress, 3), ["work (+1) Bash cargo test"]);
        progress.record(&answered(&work, "a", "ok", false));
        assert_eq!(lines(&progress, 3), ["work Read x"]);
        progress.record(&answered(&work, "b", "ok", false));
        assert_eq!(lines(&progress, 3), ["work asks its model"]);
        progress.record(&replied(&work, "done", &[]));
        assert_eq!(lines(&progress, 3), ["work its work is looked at"]);
        progress.record(&ends(&work, succeeded(Value::Null, None)));
        assert!(lines(&progress, 3).is_empty());
    }

    #[test]
    fn who_waits_for_a_model_says_why_and_how_long() {
        let (mut progress, work) = (Progress::default(), node("work"));
        progress.note(S(0), &work, &Note::Waiting { why: "its limit is used up for 3 seconds (a/m)".to_owned() });
        assert_eq!(lines(&progress, 0), ["work waits: its limit is used up for 3 seconds…"]);
        assert!(!progress.counts_down());
        progress.note(S(10), &work, &Note::Retrying { kind: ModelErrorKind::Overloaded, why: "a/m: HTTP 529".to_owned(), wait: S(8), attempt: 3, of: 10 });
        assert!(progress.counts_down());
        assert_eq!(lines(&progress, 11), ["work overloaded: asks again in 7s (attempt 3 of…"]);
        assert_eq!(lines(&progress, 30), ["work overloaded: asks again in 0s (attempt 3 of…"]);
    }

    #[test]
    fn whatever_is_said_a_line_fits_and_shows_its_end() {
        let (mut progress, work) = (Progress::default(), node("work"));
        progress.note(S(0), &work, &said(&"word ".repeat(10_000)));
        progress.note(S(0), &work, &said("the end"));
        let line = lines(&progress, 0).remove(0);
        assert!(line.starts_with("work saying: … word") && line.ends_with("word the end"), "{line}");
        progress.note(S(0), &NodeId::item(&"w".into(), &"\u{4e2d}".repeat(100)), &said(&"\u{4e2d}".repeat(1_000)));
        for width in [0, 20, 60, 72, 200] {
            let lines = progress.lines(S(0), (width, 40), false);
            assert!(lines.iter().all(|line| line.chars().map(columns).sum::<usize>() < width.max(1)), "{width}: {lines:?}");
            assert_eq!(lines.len(), if width > 60 { 2 } else { lines.len() });
        }
    }

    #[test]
    fn no_more_agents_have_a_line_than_there_is_room_for() {
        let mut progress = Progress::default();
        (0..20).for_each(|n| progress.record(&briefed(&node(&format!("n{n:02}")))));
        for (rows, shown) in [(100, ROWS), (8, 4), (1, 1)] {
            let lines = progress.lines(S(0), (80, rows), false);
            assert_eq!(lines.len(), shown);
            assert_eq!(lines.last().unwrap(), &format!("  … and {} more", 21 - shown));
        }
    }

    #[test]
    fn what_stands_there_is_wiped_off_line_by_line_and_drawn_only_where_it_differs() {
        let mut bottom = Bottom::new(false);
        assert_eq!((bottom.due(), bottom.wiped()), (None, String::new()));
        bottom.record(&briefed(&node("a")));
        bottom.record(&briefed(&node("b")));
        assert_eq!(bottom.due(), Some(Duration::ZERO));
        assert_eq!(bottom.redrawn().lines().count(), 2);
        assert_eq!(bottom.due(), None);
        bottom.note(&node("b"), &Note::Asking);
        assert!(bottom.due().is_some());
        assert_eq!(bottom.redrawn(), "", "it stands there");
        bottom.record(&ends(&node("b"), succeeded(Value::Null, None)));
        assert!(bottom.redrawn().starts_with("\r\u{1b}[1A\u{1b}[J  a "));
        bottom.asks(true);
        assert_eq!((bottom.wiped().as_str(), bottom.due()), ("\r\u{1b}[J", None), "somebody types there");
        bottom.asks(false);
        assert_eq!(bottom.due(), Some(Duration::ZERO));
    }
}
