//! How one attempt at a model, scripted or not, is written into its span.
use super::ModelError;
use crate::{
    message::Reply,
    trace::{self, Tokens},
};
use tracing::Span;

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
