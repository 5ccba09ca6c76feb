//! An exporter that keeps count of what was lost: the library's batches swallow their errors, and a person who set up a
//! collector wants to hear that it took nothing. The values of secrets are taken out of what leaves.
use crate::secrets::Secrets;
use opentelemetry::{Array, KeyValue, Value, trace::Status};
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
    secrets: Secrets,
}

impl<E> Counted<E> {
    /// Counts for `exporter`.
    pub(super) fn new(exporter: E, lost: Lost, secrets: Secrets) -> Counted<E> {
        Counted { exporter, lost, secrets }
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        if !self.secrets.is_empty() {
            for span in &mut batch {
                clean(span, &self.secrets);
            }
        }
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

fn clean(span: &mut SpanData, secrets: &Secrets) {
    span.name = secrets.text(&span.name).into_owned().into();
    if let Status::Error { description } = &mut span.status {
        *description = secrets.text(description).into_owned().into();
    }
    span.attributes.iter_mut().for_each(|attribute| clean_value(attribute, secrets));
    for event in &mut span.events.events {
        event.name = secrets.text(&event.name).into_owned().into();
        event.attributes.iter_mut().for_each(|attribute| clean_value(attribute, secrets));
    }
}

fn clean_value(attribute: &mut KeyValue, secrets: &Secrets) {
    match &mut attribute.value {
        Value::String(text) => *text = secrets.text(text.as_str()).into_owned().into(),
        Value::Array(Array::String(texts)) => texts.iter_mut().for_each(|text| *text = secrets.text(text.as_str()).into_owned().into()),
        _ => {}
    }
}
