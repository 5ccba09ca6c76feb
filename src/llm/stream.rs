//! Reads the events of one answer into a reply.
use super::{
    Decoder, Heard, ModelError, ModelErrorKind, Sink, Target,
    fault::{self, Fault},
    price,
};
use crate::{
    clock::Clock,
    http::HttpError,
    message::{Reply, Usage},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, future::ready};
use sse_stream::SseByteStream;
use std::{pin::pin, time::Duration};
use tokio::time::timeout;

/// A stream in which nothing but signs of life (pings, comments) come for this long has stalled.
const SEMANTIC_IDLE: Duration = Duration::from_mins(5);
/// How long the connection is read on after the last event, so that it can be used again.
const DRAIN: Duration = Duration::from_millis(200);

/// Whoever watches a stream.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) target: Target<'a>,
    pub(super) sink: &'a dyn Sink,
    pub(super) clock: &'a Clock,
    /// When the request began, on the clock's monotonic side.
    pub(super) began: Duration,
}

/// What a reply has used so far. Dropped before the reply is whole, however that came about, it tells of it: that much is
/// paid for all the same.
struct Meter<'a> {
    watch: Watch<'a>,
    /// Set once the model has begun.
    used: Option<Usage>,
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        let Watch { target, sink, clock, .. } = self.watch;
        if let Some(used) = self.used.take().map(Usage::bounded) {
            // Where the provider has not said how much, nobody knows what it cost.
            let usd = (used != Usage::default()).then(|| price::usd(target.endpoint, target.model, &used, clock.now())).flatten();
            sink.lost(&used, usd);
        }
    }
}

/// Reads a stream to its end. Where it breaks, the decoder decides whether the reply was whole before.
pub(super) async fn decode(body: impl Stream<Item = Result<Bytes, HttpError>>, mut decoder: Box<dyn Decoder>, watch: Watch<'_>) -> Result<Reply, Fault> {
    let body = pin!(body.scan(Vec::new(), |held, piece| ready(Some(piece.map(|piece| readable(held, piece))))));
    let mut events = pin!(SseByteStream::new(body));
    let mut last_word = watch.began;
    let mut broken = None;
    let mut meter = Meter { watch, used: None };
    let patience = SEMANTIC_IDLE.max(watch.target.endpoint.timeouts.idle);
    loop {
        let left = patience.saturating_sub(watch.clock.elapsed().saturating_sub(last_word));
        let event = match timeout(left, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => {
                broken = Some(broken_stream(error, watch.target));
                break;
            }
            Ok(None) => break,
            Err(_) => {
                let message = format!("{}: nothing but signs of life for {} s", watch.target.label(), patience.as_secs());
                broken = Some(ModelError::new(ModelErrorKind::Cut, message).into());
                break;
            }
        };
        watch.sink.alive();
        let heard = decoder.push(event.event.as_deref().unwrap_or_default(), event.data.as_deref().unwrap_or_default());
        if matches!(heard, Ok(Heard::Progress | Heard::Text(_) | Heard::Thinking(_) | Heard::End)) || decoder.used() != Usage::default() {
            meter.used = Some(decoder.used());
        }
        match heard.map_err(|error| redacted(error, watch))? {
            Heard::Ping => continue,
            Heard::Progress => {}
            Heard::Text(piece) => watch.sink.text(&piece),
            Heard::Thinking(piece) => watch.sink.thinking(&piece),
            Heard::End => {
                // A server that does not end its answer costs the connection, not the reply.
                let _ = timeout(DRAIN, events.next()).await;
                break;
            }
        }
        last_word = watch.clock.elapsed();
    }
    let reply = decoder.finish().map_err(|error| broken.unwrap_or_else(|| error.into()))?;
    meter.used = None;
    Ok(reply)
}

/// Puts the mark for what cannot be read in the place of bytes that are no text: one bad byte in a stream is a bad letter, not a lost
/// reply. A character that two pieces share is held until it is whole.
fn readable(held: &mut Vec<u8>, piece: Bytes) -> Bytes {
    if held.is_empty() && std::str::from_utf8(&piece).is_ok() {
        return piece;
    }
    let all = [std::mem::take(held), piece.to_vec()].concat();
    let mut out = Vec::with_capacity(all.len() + 3);
    let mut chunks = all.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        out.extend_from_slice(chunk.valid().as_bytes());
        let bad = chunk.invalid();
        let is_begun = std::str::from_utf8(bad).is_err_and(|error| error.error_len().is_none());
        match bad {
            [] => {}
            bad if is_begun && chunks.peek().is_none() => held.extend_from_slice(bad),
            _ => out.extend_from_slice("\u{FFFD}".as_bytes()),
        }
    }
    out.into()
}

fn redacted(error: ModelError, watch: Watch<'_>) -> Fault {
    fault::fit_to_show(error, watch.target).into()
}

fn broken_stream(error: sse_stream::Error, target: Target<'_>) -> Fault {
    match error {
        sse_stream::Error::Body(source) => match source.downcast_ref::<HttpError>() {
            Some(error) => Fault::of_transport(error, target),
            None => ModelError::new(ModelErrorKind::Cut, format!("{}: {source}", target.label())).into(),
        },
        error => ModelError::new(ModelErrorKind::Cut, format!("{}: the stream cannot be read: {error}", target.label())).into(),
    }
}

#[cfg(test)]
mod tests;
