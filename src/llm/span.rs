//! How one attempt at a model, scripted or not, is written into its span.
use super::{ModelError, Sink};
use crate::{
    message::Reply,
    trace::{self, Tokens},
};
use std::future::Future;
use tracing::{Instrument as _, Span};

/// Gives a reply that comes in one piece: in a span of its own, its text shown at once.
pub(super) async fn whole(model: &str, sink: &dyn Sink, answer: impl Future<Output = Result<Reply, ModelError>> + Send) -> Result<Reply, ModelError> {
    let span = trace::chat(model);
    let result = answer.instrument(span.clone()).await;
    end(&span, result.as_ref());
    let reply = result?;
    let text = reply.text();
    if !text.is_empty() {
        sink.text(&text);
    }
    Ok(reply)
}

/// Writes into the span how its attempt ended.
pub(super) fn end(span: &Span, result: Result<&Reply, &ModelError>) {
    match result {
        Ok(reply) => {
            let usage = reply.usage;
            let tokens = Tokens { input: usage.input, output: usage.output, cache_read: usage.cache_read, cache_write: usage.cache_write };
            trace::replied(span, &reply.model, reply.stop.word(), tokens);
        }
        // What a provider says of a request may quote it: only the class is exported.
        Err(error) => trace::failed(span, error.kind.word(), error.kind.word()),
    }
}
