//! Exporters: takes the spans that `trace` names to an OpenTelemetry collector, over OTLP/HTTP with protobuf.
//!
//! Where no endpoint is set nothing is installed: no subscriber, no thread, no client. Where one is set, spans are handed
//! to a thread of the exporter's own with a bounded queue; a collector that is slow or dead loses spans and never holds up
//! a run, and at the end [`Telemetry::flush_and_shutdown`] waits no longer than it is told to.
//!
//! The environment comes in as values: `Settings::from_env` gets a function that reads a variable. The exporter's library
//! reads the finer `OTEL_*` variables (samplers, limits of a span, time-outs) itself, as every OpenTelemetry program does.
mod counted;
mod settings;

use crate::{secrets::Secrets, trace};
use counted::{Counted, Lost};
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkError,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider},
};
pub use settings::Settings;
use std::time::Duration;
use tracing::{Level, Span, Subscriber};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _};

/// How many ended spans may wait for the exporter; further ones are lost. A hundred agents fill it in some seconds.
const QUEUE: usize = 16_384;

/// What is installed; given back at the end of the program.
#[derive(Debug)]
pub struct Telemetry {
    exporting: Option<Exporting>,
    traceparent: Option<String>,
    tracestate: String,
}

#[derive(Debug)]
struct Exporting {
    provider: SdkTracerProvider,
    endpoint: String,
    lost: Lost,
}

/// Why spans are not exported.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Another protocol is asked for.
    #[error(
        "export traces over `{protocol}`: this build speaks `http/protobuf`\nhint: set `OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf` and the collector's HTTP port, 4318 by default"
    )]
    Protocol {
        /// The protocol.
        protocol: String,
    },
    /// The exporter could not be made.
    #[error("export traces to {endpoint}")]
    Exporter {
        /// The collector.
        endpoint: String,
        /// The exporter's error.
        source: ExporterBuildError,
    },
    /// The program has a subscriber already.
    #[error("export traces: another subscriber is installed in this process")]
    AlreadyInstalled,
    /// The collector did not take some spans.
    #[error("export {spans} spans to {endpoint}: the collector did not take them")]
    Lost {
        /// How many.
        spans: usize,
        /// The collector.
        endpoint: String,
        /// The exporter's last error.
        source: OTelSdkError,
    },
    /// The last spans did not reach the collector in time.
    #[error("export the last traces to {endpoint} within {} ms", .within.as_millis())]
    Unflushed {
        /// How long it was waited.
        within: Duration,
        /// The collector.
        endpoint: String,
        /// The exporter's error.
        source: OTelSdkError,
    },
}

/// Installs for the whole process what `settings` ask for; nothing where they name no endpoint. No span that leaves holds
/// the value of a secret.
///
/// # Errors
/// All but `Lost` and `Unflushed`; nothing is installed then.
pub fn install(settings: &Settings, secrets: &Secrets) -> Result<Telemetry, TelemetryError> {
    let (telemetry, subscriber) = build(settings, secrets)?;
    if let Some(subscriber) = subscriber {
        tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::AlreadyInstalled)?;
    }
    Ok(telemetry)
}

impl Telemetry {
    /// Returns whether spans are exported.
    pub fn is_on(&self) -> bool {
        self.exporting.is_some()
    }

    /// Makes a run's span, just opened, the child of whoever started this program under a trace.
    pub fn adopt(&self, run: &Span) {
        if let (true, Some(traceparent)) = (self.is_on(), &self.traceparent) {
            trace::adopt(run, traceparent, &self.tracestate);
        }
    }

    /// Sends what is left and ends the exporter, in no more than `within`. Blocks the thread: call it when the scheduler
    /// has ended, or through `tasks::blocking`.
    ///
    /// # Errors
    /// `TelemetryError::Lost` and `Unflushed`; the run itself is none the worse.
    pub fn flush_and_shutdown(self, within: Duration) -> Result<(), TelemetryError> {
        let Some(Exporting { provider, endpoint, lost }) = self.exporting else { return Ok(()) };
        if let Err(source) = provider.shutdown_with_timeout(within) {
            return Err(TelemetryError::Unflushed { within, endpoint, source });
        }
        match lost.take() {
            Some((spans, source)) => Err(TelemetryError::Lost { spans, endpoint, source }),
            None => Ok(()),
        }
    }
}

/// Makes the exporter and the subscriber that feeds it.
fn build(settings: &Settings, secrets: &Secrets) -> Result<(Telemetry, Option<impl Subscriber + Send + Sync + use<>>), TelemetryError> {
    let mut telemetry = Telemetry { exporting: None, traceparent: settings.traceparent.clone(), tracestate: settings.tracestate.clone() };
    let Some(endpoint) = &settings.endpoint else { return Ok((telemetry, None)) };
    if settings.protocol != "http/protobuf" {
        return Err(TelemetryError::Protocol { protocol: settings.protocol.clone() });
    }
    // The client wants one provider of cryptography for the process; whoever is first sets it, always to this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_protocol(Protocol::HttpBinary)
        .with_headers(settings.headers.clone().into_iter().collect())
        .build()
        .map_err(|source| TelemetryError::Exporter { endpoint: endpoint.clone(), source })?;
    let attributes = settings.attributes.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder_empty().with_attributes(attributes).with_service_name(settings.service.clone()).build();
    let batches = BatchConfigBuilder::default().with_max_queue_size(settings.queue.unwrap_or(QUEUE)).build();
    let lost = Lost::default();
    let processor = BatchSpanProcessor::builder(Counted::new(exporter, lost.clone(), secrets.clone())).with_batch_config(batches).build();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(trace::TARGET))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_context_activation(false);
    let filter = Targets::new().with_target(trace::TARGET, Level::INFO);
    telemetry.exporting = Some(Exporting { provider, endpoint: endpoint.clone(), lost });
    Ok((telemetry, Some(tracing_subscriber::registry().with(filter).with(layer))))
}

#[cfg(test)]
mod tests;
