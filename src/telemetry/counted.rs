//! An exporter that keeps count of what was lost: the library's batches swallow their errors, and a person who set up a
//! collector wants to hear that it took nothing.
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What an exporter could not deliver; shared with it, since the exporter belongs to its own thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost(Arc<Mutex<Option<(usize, OTelSdkError)>>>);

impl Lost {
    /// Takes the count of lost spans and the last error; `None` where nothing was lost.
    pub(super) fn take(&self) -> Option<(usize, OTelSdkError)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, spans: usize, error: OTelSdkError) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lost.take().map_or(0, |(spans, _)| spans);
        *lost = Some((before + spans, error));
    }
}

/// An exporter and the count of what it lost.
#[derive(Debug)]
pub(super) struct Counted<E> {
    exporter: E,
    lost: Lost,
}

impl<E> Counted<E> {
    /// Counts for `exporter`.
    pub(super) fn new(exporter: E, lost: Lost) -> Counted<E> {
        Counted { exporter, lost }
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        // The error ends here: its one reader is whoever ends the exporter.
        self.exporter.export(batch).await.or_else(|error| {
            self.lost.add(spans, error);
            Ok(())
        })
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
