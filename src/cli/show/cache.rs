//! `spinney show --cache`: what each request read from the provider's prompt cache, what it wrote into it, and why what was
//! there was not read.
//!
//! Requests are a pure function of the records, so the records say what a request shared with the one before it: all of
//! it, unless the conversation was shortened or goes on with another model.
use super::super::{
    report::{Cell, Report, Table, WIDTH, duration, line},
    screen::{Tone, plural, thousands},
};
use crate::{
    clock::Timestamp,
    event::{Event, NodeId, Record},
    message::Usage,
};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// How long what was written into a cache is kept at least, from the last request that used it: Anthropic Messages and OpenAI.
const KEPT: Duration = Duration::from_mins(5);
/// Providers count in steps, so that a little less than everything is everything.
const WHOLE_PERCENT: u64 = 90;

/// What became of the cache at one request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// The first of its conversation; what it read was written by another.
    First,
    /// It read what the one before had left.
    Read,
    /// No request of this conversation has read or written any yet.
    Unused,
    /// The prompt has fewer tokens than the model caches.
    Short(u32),
    /// It was lost.
    Lost(Loss),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Loss {
    Model(String),
    Shortened,
    Expired(Duration),
    Provider,
}

/// A conversation up to its last reply.
struct Before {
    model: String,
    usage: Usage,
    at: Timestamp,
    is_shortened: bool,
    ever: bool,
}

/// Writes what became of the cache, request by request, for one node or for all.
/// `minimum` says how many tokens a prompt has at least that its model caches.
pub(super) fn screen(records: &[Record], report: &Report, of: Option<&NodeId>, minimum: &dyn Fn(&str) -> u32, color: bool) -> String {
    let mut conversations: BTreeMap<&NodeId, Before> = BTreeMap::new();
    let mut asked: BTreeMap<&NodeId, Timestamp> = BTreeMap::new();
    let mut tables: BTreeMap<&NodeId, Table> = BTreeMap::new();
    let mut all = Usage::default();
    for record in records {
        let Some(node) = record.event.node().filter(|node| of.is_none_or(|of| of == *node)) else { continue };
        match &record.event {
            Event::AgentBriefed { .. } => {
                conversations.remove(node);
            }
            Event::Compacted { .. } => {
                if let Some(before) = conversations.get_mut(node) {
                    before.is_shortened = true;
                }
            }
            Event::ModelReplied { reply, .. } => {
                let before = conversations.get(node);
                let sent = asked.get(node).copied().unwrap_or(record.at);
                let fate = fate(before, (&reply.model, minimum(&reply.model)), reply.usage, sent);
                let table = tables.entry(node).or_insert_with(head);
                table.row(row(&fate, reply.usage));
                all += reply.usage;
                let ever = before.is_some_and(|before| before.ever) || reply.usage.cache_read + reply.usage.cache_write > 0;
                conversations.insert(node, Before { model: reply.model.clone(), usage: reply.usage, at: sent, is_shortened: false, ever });
            }
            // It is noted with the reply that follows it.
            Event::AttemptsLost { .. } => continue,
            _ => {}
        }
        // A request is sent when the last thing before it was recorded.
        asked.insert(node, record.at);
    }
    let mut text = String::new();
    for (node, _) in report.nodes() {
        let Some(table) = tables.get(node) else { continue };
        let before = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{before}{}", line(&node.to_string(), 100));
        text.push_str(&table.render(color, 2, WIDTH));
    }
    if text.is_empty() {
        return "No model was asked.\n".to_owned();
    }
    let share = (all.cache_read * 100).checked_div(all.prompt()).unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{share} % of {} prompt tokens were read from the cache, {} were written into it",
        thousands(all.prompt()),
        thousands(all.cache_write)
    );
    text
}

fn head() -> Table {
    let mut table = Table::new(&[0, 1, 2, 3], 4);
    table.row(["prompt", "read", "written", "new", ""].map(|word| Cell::new(word, Tone::Dim)).into());
    table
}

fn row(fate: &Fate, usage: Usage) -> Vec<Cell> {
    let (words, tone) = words(fate);
    let count = |tokens: u64| Cell::plain(thousands(tokens));
    vec![count(usage.prompt()), count(usage.cache_read), count(usage.cache_write), count(usage.input), Cell::new(words, tone)]
}

fn words(fate: &Fate) -> (String, Tone) {
    match fate {
        Fate::First => ("the conversation begins".to_owned(), Tone::Dim),
        Fate::Read => (String::new(), Tone::Plain),
        Fate::Unused => ("the provider reports no cache".to_owned(), Tone::Dim),
        Fate::Short(minimum) => (format!("shorter than the {minimum} {} that this model caches", plural(*minimum as usize, "token")), Tone::Dim),
        Fate::Lost(loss) => {
            let why = match loss {
                Loss::Model(model) => format!("{model} answered before"),
                Loss::Shortened => "the conversation was shortened, so it begins otherwise".to_owned(),
                Loss::Expired(pause) => format!("the request before was {} ago, and it is kept for 5 minutes", duration(*pause)),
                Loss::Provider => "by the provider: the request begins as the one before".to_owned(),
            };
            (format!("lost: {why}"), Tone::Warn)
        }
    }
}

/// Says what became of the cache at a request that was sent then.
fn fate(before: Option<&Before>, (model, minimum): (&str, u32), usage: Usage, sent: Timestamp) -> Fate {
    if usage.cache_read + usage.cache_write == 0 && usage.prompt() < u64::from(minimum) {
        return Fate::Short(minimum);
    }
    let Some(before) = before else { return Fate::First };
    let left = before.usage.cache_read + before.usage.cache_write;
    if usage.cache_read * 100 >= left * WHOLE_PERCENT && usage.cache_read > 0 {
        return Fate::Read;
    }
    if !before.ever && usage.cache_read + usage.cache_write == 0 {
        Fate::Unused
    } else if left == 0 {
        // The one before was too short, or its provider wrote nothing: nothing was there to be lost.
        Fate::Read
    } else if before.is_shortened {
        Fate::Lost(Loss::Shortened)
    } else if before.model != model {
        Fate::Lost(Loss::Model(before.model.clone()))
    } else if sent.since(before.at) > KEPT {
        Fate::Lost(Loss::Expired(sent.since(before.at)))
    } else {
        Fate::Lost(Loss::Provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, read: u64, written: u64) -> Usage {
        Usage { input, output: 5, cache_read: read, cache_write: written, ..Usage::default() }
    }

    fn before(usage: Usage) -> Before {
        let ever = usage.cache_read + usage.cache_write > 0;
        Before { model: "anthropic/claude-sonnet-5-5".to_owned(), usage, at: Timestamp(1_000), is_shortened: false, ever }
    }

    fn then(before: Option<&Before>, usage: Usage, after_s: u64) -> Fate {
        fate(before, ("anthropic/claude-sonnet-5-5", 512), usage, Timestamp(1_000 + after_s * 1_000))
    }

    #[test]
    fn a_cache_that_holds_is_read() {
        let first = usage(10, 0, 4_000);
        assert_eq!(then(None, first, 0), Fate::First);
        assert_eq!(then(Some(&before(first)), usage(10, 4_000, 300), 60), Fate::Read);
        assert_eq!(then(Some(&before(first)), usage(10, 3_900, 300), 60), Fate::Read, "a provider counts in steps");
        let nothing = Before { is_shortened: true, ..before(usage(4_000, 0, 0)) };
        assert_eq!(then(Some(&nothing), usage(10, 0, 4_000), 60), Fate::Read, "nothing was there to be lost");
        assert_eq!(then(Some(&nothing), usage(4_000, 0, 0), 60), Fate::Unused);
    }

    #[test]
    fn every_loss_has_its_reason() {
        let left = before(usage(10, 1_000, 3_000));
        let anew = usage(10, 0, 4_500);
        assert_eq!(then(Some(&left), anew, 60), Fate::Lost(Loss::Provider));
        assert_eq!(then(Some(&left), usage(10, 1_000, 3_500), 60), Fate::Lost(Loss::Provider), "most of it");
        assert_eq!(then(Some(&left), anew, 301), Fate::Lost(Loss::Expired(Duration::from_secs(301))));
        assert_eq!(then(Some(&Before { is_shortened: true, ..before(usage(10, 1_000, 3_000)) }), anew, 60), Fate::Lost(Loss::Shortened));
        let other = Before { model: "openai/gpt-6-sol".to_owned(), ..before(usage(10, 1_000, 3_000)) };
        assert_eq!(then(Some(&other), anew, 60), Fate::Lost(Loss::Model("openai/gpt-6-sol".to_owned())));
    }

    #[test]
    fn prompts_that_are_not_cached_are_said_so() {
        assert_eq!(then(None, usage(511, 0, 0), 0), Fate::Short(512));
        assert_eq!(then(None, usage(512, 0, 0), 0), Fate::First);
        assert_eq!(then(Some(&before(usage(9_000, 0, 0))), usage(9_500, 0, 0), 60), Fate::Unused);
    }
}
