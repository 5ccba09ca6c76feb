//! A model that answers from a recording, and says where a request is another one.
use super::{
    Answer, Exchange, Head, Line, Lost, OLDEST, Part, RecordingError, RunPlace, VERSION,
    likeness::{Likeness, Pairs, conversation, difference},
    order::{Entry, Order, State, Unheard, What},
    parts,
};
use crate::{
    clock::Clock,
    event::{NodeId, Record},
    llm::{Booking, Model, ModelCall, ModelError, ModelErrorKind, Ordinal, Sink, span},
    message::{Reply, Usage},
    secrets::Secrets,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::{Mutex, OnceLock, PoisonError},
};

/// The window of a model that the recording says nothing of, in tokens.
const WINDOW: u64 = 200_000;

/// A recording as a model. Nothing is sent anywhere.
pub struct Replay {
    name: String,
    head: Head,
    texts: HashMap<String, String>,
    windows: BTreeMap<String, (u64, bool)>,
    /// By their places in the order of all that happened.
    exchanges: BTreeMap<usize, Exchange>,
    /// What requests had used that were stopped, by their conversations.
    stopped: HashMap<(String, Ordinal), Vec<Lost>>,
    order: Order,
    prices: Mutex<Vec<Priced>>,
    here: OnceLock<Here>,
}

/// Where the run takes place that asks now.
struct Here {
    place: RunPlace,
    secrets: Secrets,
    /// The exchanges whose lost attempts were charged by an earlier process.
    charged: BTreeSet<usize>,
}

/// What a request was expected to use, and the dollars that this was said to cost each time that it was asked for.
#[derive(Debug)]
struct Priced {
    model: String,
    usage: Usage,
    usd: VecDeque<Option<f64>>,
}

impl Priced {
    fn is(&self, model: &str, usage: &Usage) -> bool {
        self.model == model && self.usage == *usage
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("name", &self.name).field("exchanges", &self.exchanges.len()).finish_non_exhaustive()
    }
}

impl Replay {
    /// Returns whether a text is meant as a recording.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("{\"recording\":")
    }

    /// Reads a recording; `name` is what its errors call it.
    ///
    /// # Errors
    /// `Read` with the place of what is wrong.
    pub fn parse(name: &str, text: &str, clock: Clock) -> Result<Replay, RecordingError> {
        let wrong = |line, why: String| RecordingError::Read { name: name.to_owned(), line, why };
        // A run that was killed leaves a last line that is cut short.
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let mut lines = whole.lines().enumerate();
        let (_, first) = lines.next().ok_or_else(|| wrong(1, "it is empty".to_owned()))?;
        let head: Head = serde_json::from_str(first).map_err(|error| wrong(1, format!("it does not begin as a recording does ({error})")))?;
        if !head.is_readable() {
            return Err(wrong(1, format!("its format is {}, this program reads {OLDEST} to {VERSION}", head.recording)));
        }
        let (mut texts, mut windows, mut prices) = (HashMap::new(), BTreeMap::new(), Vec::<Priced>::new());
        let (mut exchanges, mut entries, mut life) = (BTreeMap::new(), Vec::new(), 1);
        let (mut stopped, mut is_whole) = (HashMap::new(), false);
        for (at, line) in lines {
            match serde_json::from_str(line).map_err(|error| wrong(at + 1, error.to_string()))? {
                Line::Text { name, text } => {
                    texts.insert(name, text);
                }
                Line::Window { model, tokens, bound } => {
                    windows.insert(model, (tokens, bound));
                }
                Line::Price { model, usage, usd } => match prices.iter_mut().find(|known| known.is(&model, &usage)) {
                    Some(known) => known.usd.push_back(usd),
                    None => prices.push(Priced { model, usage, usd: VecDeque::from([usd]) }),
                },
                Line::Exchange(exchange) => {
                    if let Some(part) = exchange.parts.iter().find(|part| !texts.contains_key(part.name())) {
                        return Err(wrong(at + 1, format!("the text `{}` is missing", part.name())));
                    }
                    entries.push(Entry { node: exchange.node.clone(), ordinal: exchange.ordinal, what: What::Exchanged, life });
                    exchanges.insert(entries.len() - 1, *exchange);
                }
                Line::Booked { node, ordinal, how } => entries.push(Entry { node, ordinal: Some(ordinal), what: What::Booked(how), life }),
                Line::Stopped { node, ordinal, lost } => {
                    stopped.insert((conversation(&node), ordinal), lost);
                    entries.push(Entry { node, ordinal: Some(ordinal), what: What::Stopped, life });
                }
                Line::Resumed {} => (life, is_whole) = (life + 1, false),
                Line::Finished {} => is_whole = true,
            }
        }
        let (order, prices) = (Order::new(entries, is_whole, clock), Mutex::new(prices));
        Ok(Replay { name: name.to_owned(), head, texts, windows, exchanges, stopped, order, prices, here: OnceLock::new() })
    }

    /// Returns what the recording says of itself.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the names of the providers whose models answered.
    pub fn providers(&self) -> BTreeSet<String> {
        let models = self.exchanges.values().flat_map(|exchange| &exchange.models);
        models.filter_map(|model| Some(model.split_once('/')?.0.to_owned())).collect()
    }

    /// Says where the run takes place that asks now, what its journal holds already, and how many processes it had before; before the
    /// first request.
    pub fn begin(&self, place: RunPlace, secrets: &Secrets, (records, lives): (&[Record], u32)) {
        let charged = self.order.take_up(records, lives).into_iter().collect();
        // A second time would be another run in the same process, which this is not for.
        let _again = self.here.set(Here { place, secrets: secrets.clone(), charged });
    }

    async fn answer(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let here = self.here.get();
        let place = here.map_or(&self.head.place, |here| &here.place);
        let clean = |text: String| here.map_or(text.clone(), |here| here.secrets.text(&text).into_owned());
        let asked: Vec<(Part, String)> = parts(call).into_iter().map(|(part, text)| (part, clean(text))).collect();
        let now = Likeness::of(asked.iter().map(|(_, text)| text.as_str()), place);
        let asker = conversation(&call.node.to_string());
        let found = match self.order.unheard(&asker, call.ordinal) {
            Some(Unheard::Stopped) => {
                self.stopped.get(&(asker, call.ordinal)).into_iter().flatten().for_each(|lost| lost.tell(sink));
                // Whoever stopped it then does so now, and it never hears of this: what was answered after it is not its answer.
                return std::future::pending().await;
            }
            Some(Unheard::Lost) => {
                // What others have heard comes first.
                self.order.end().await;
                Err(self.error(&format!("it ends before this request of `{}` was answered", call.node)))
            }
            None => self.find(call, &asker, &asked, &now),
        };
        let (at, pairs) = found.inspect_err(|_| self.order.give_up(&asker))?;
        self.order.turn_of(at).await;
        self.order.done(at);
        let exchange = &self.exchanges[&at];
        if here.is_none_or(|here| !here.charged.contains(&at)) {
            exchange.lost.iter().for_each(|lost| lost.tell(sink));
        }
        match &exchange.answer {
            Answer::Failed { kind, message, hint } => Err(ModelError { kind: *kind, message: message.clone(), hint: hint.clone() }),
            Answer::Reply(reply) => {
                let text = serde_json::to_string(reply).unwrap_or_default();
                let text = pairs.translate(&text, &self.head.place, place);
                let reply: Reply = serde_json::from_str(&text).map_err(|error| self.error(&format!("a reply cannot be read: {error}")))?;
                Ok(Reply { usage: reply.usage.bounded(), ..reply })
            }
        }
    }

    /// Finds the exchange that a request is, and takes it: the one with its ordinal or else, where attempts were lost then or
    /// now, the first that is the same.
    fn find(&self, call: &ModelCall<'_>, asker: &str, asked: &[(Part, String)], now: &Likeness) -> Result<(usize, Pairs), ModelError> {
        let own = self.order.exchanges(asker);
        let is_due = |(at, state): (usize, State)| self.exchanges[&at].ordinal == Some(call.ordinal) && state == State::Open;
        let (due, others): (Vec<_>, Vec<_>) = own.iter().copied().partition(|entry| is_due(*entry));
        let mut nearest: Option<(usize, String)> = None;
        for (at, state) in due.into_iter().chain(others) {
            if matches!(state, State::Due | State::Done) {
                continue;
            }
            let then = self.likeness(&self.exchanges[&at]);
            match same(call, &self.exchanges[&at], asked, (&then, now)) {
                Ok(pairs) => {
                    self.order.claim(at);
                    return Ok((at, pairs));
                }
                Err((same, what)) if nearest.as_ref().is_none_or(|(best, _)| same > *best) => nearest = Some((same, what)),
                Err(_) => {}
            }
        }
        let node = call.node;
        Err(match nearest {
            Some((_, what)) => self.error(&format!("a request of `{node}` is not the recorded one\n{what}")),
            None => self.error(&format!("it holds {} requests of `{node}`, and this is another", own.len())),
        })
    }

    fn likeness(&self, exchange: &Exchange) -> Likeness {
        Likeness::of(exchange.parts.iter().map(|part| self.texts.get(part.name()).map_or("", String::as_str)), &self.head.place)
    }

    fn error(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Script, format!("the recording {}: {what}", self.name))
            .hint("a recording answers only what was asked when it was made; record the run anew with `--record`")
    }
}

/// Compares a request with a recorded one, and says what stands for what.
///
/// # Errors
/// How many parts are the same, and in what it is another.
fn same(call: &ModelCall<'_>, exchange: &Exchange, asked: &[(Part, String)], (then, now): (&Likeness, &Likeness)) -> Result<Pairs, (usize, String)> {
    let terms = |what: &str, then: String, now: String| if then == now { Ok(()) } else { Err((0, format!("{what}\nrecorded: {then}\nnow:      {now}"))) };
    let word = |word: Option<&str>| word.unwrap_or("none").to_owned();
    let tokens = |tokens: Option<u32>| tokens.map_or("none".to_owned(), |tokens| tokens.to_string());
    terms("the models", exchange.models.join(", "), call.models.join(", "))?;
    terms("the effort", word(exchange.effort.as_deref()), word(call.effort))?;
    terms("the longest reply", tokens(exchange.max_output_tokens), tokens(call.max_output_tokens))?;
    Pairs::of(then, now).map_err(|(same, texts)| {
        let part = asked.get(same).map(|(part, _)| part).or_else(|| exchange.parts.get(same));
        let is_like_it = |(other, _): &&(Part, String)| part.is_some_and(|part| std::mem::discriminant(other) == std::mem::discriminant(part));
        let number = asked.iter().take(same).filter(is_like_it).count() + 1;
        let [then, now] = texts.map(|text| text.unwrap_or_else(|| "(nothing)".to_owned()));
        (same, format!("{} {number}\n{}", part.map_or("part", Part::word), difference(&then, &now)))
    })
}

#[async_trait]
impl Model for Replay {
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        span::whole(call.models.first().map_or("recording", String::as_str), sink, self.answer(call, sink)).await
    }

    fn window(&self, model: &str) -> u64 {
        self.windows.get(model).map_or(WINDOW, |(tokens, _)| *tokens)
    }

    /// Two requests that are the same are expected to use the same, but for what differs by nature: that is in proportion.
    fn price(&self, model: &str, usage: &Usage) -> Option<f64> {
        let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = prices.iter_mut().find(|known| known.is(model, usage)) {
            return if known.usd.len() > 1 { known.usd.pop_front() } else { known.usd.front().copied() }.flatten();
        }
        let total = usage.total();
        let near = prices.iter().filter(|known| known.model == model).min_by_key(|known| known.usage.total().abs_diff(total))?;
        let usd = near.usd.iter().flatten().last()?;
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let share = total as f64 / near.usage.total().max(1) as f64;
        Some(usd * share)
    }

    fn is_bound(&self, model: &str) -> bool {
        self.windows.get(model).is_none_or(|(_, bound)| *bound)
    }

    async fn turn(&self, node: &NodeId, ordinal: Ordinal, is_settled: bool) {
        self.order.turn(node, ordinal, is_settled).await;
    }

    fn booked(&self, node: &NodeId, ordinal: Ordinal, how: Booking) {
        self.order.booked(node, ordinal, how);
    }
}
