//! What the standard `OTEL_*` variables ask for, as values.
use std::collections::BTreeMap;

/// Where traces go and what they are marked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The collector's address for traces, whole; `None` exports nothing.
    pub endpoint: Option<String>,
    /// `http/protobuf`; anything else is refused when it is installed.
    pub protocol: String,
    /// Headers of every request, their values percent-encoded as in the variable.
    pub headers: BTreeMap<String, String>,
    /// `service.name`.
    pub service: String,
    /// Further attributes of the resource.
    pub attributes: BTreeMap<String, String>,
    /// How many ended spans may wait; `None` for this program's own bound.
    pub queue: Option<usize>,
    /// The span that this program was started under.
    pub traceparent: Option<String>,
    /// Its vendors' state.
    pub tracestate: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            endpoint: None,
            protocol: "http/protobuf".to_owned(),
            headers: BTreeMap::new(),
            service: "spinney".to_owned(),
            attributes: BTreeMap::new(),
            queue: None,
            traceparent: None,
            tracestate: String::new(),
        }
    }
}

impl Settings {
    /// Reads the variables through `variable`; one that is empty counts as unset, as the standard asks. Without an
    /// endpoint nothing is exported: unlike the standard's default, a collector on this machine is not assumed.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let for_traces = |name: &str| set(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}")).or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{name}")));
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|exporters| !exporters.split(',').any(|exporter| exporter.trim() == "otlp"));
        let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}/v1/traces", base.trim_end_matches('/'))));
        let mut attributes = pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        for value in attributes.values_mut() {
            *value = percent_decoded(value);
        }
        let named = attributes.remove("service.name");
        let default = Settings::default();
        Settings {
            endpoint: endpoint.filter(|_| !is_off),
            protocol: for_traces("PROTOCOL").unwrap_or(default.protocol),
            headers: pairs(&for_traces("HEADERS").unwrap_or_default()),
            service: set("OTEL_SERVICE_NAME").or(named).unwrap_or(default.service),
            attributes,
            queue: set("OTEL_BSP_MAX_QUEUE_SIZE").and_then(|size| size.parse().ok()).filter(|size| *size > 0),
            traceparent: set("TRACEPARENT"),
            tracestate: set("TRACESTATE").unwrap_or_default(),
        }
    }
}

/// Reads `key=value,key=value`; what has no key is left out.
fn pairs(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

/// Decodes `%xx`; text that is no such code, or no UTF-8 once decoded, stays as it is.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = code.filter(|digits| !digits.starts_with('+')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        Settings::from_env(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        assert_eq!(read(&[]), Settings::default());
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_SERVICE_NAME", ""), ("TRACEPARENT", "")]), Settings::default());
    }

    #[test]
    fn the_endpoint_is_the_base_or_the_traces_own() {
        let endpoint = |variables: &[(&str, &str)]| read(variables).endpoint;
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        assert_eq!(endpoint(&[base]).unwrap(), "http://c:4318/v1/traces");
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c/otlp")]).unwrap(), "http://c/otlp/v1/traces");
        assert_eq!(endpoint(&[base, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x")]).unwrap(), "http://t/x");
        assert_eq!(endpoint(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(endpoint(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert!(endpoint(&[base, ("OTEL_TRACES_EXPORTER", "console, otlp")]).is_some());
    }

    #[test]
    fn names_headers_and_attributes_are_read() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", " key = v%20w ,b==, =c,d"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,team=a%2Cb%zz%,x=%ff"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ]);
        assert_eq!(settings.headers, BTreeMap::from([("key".into(), "v%20w".into()), ("b".into(), "=".into())]));
        assert_eq!(settings.service, "mine");
        assert_eq!(settings.attributes, BTreeMap::from([("team".into(), "a,b%zz%".into()), ("x".into(), "%ff".into())]));
        assert_eq!(settings.queue, None);
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "s"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")]).service, "s");
    }
}
