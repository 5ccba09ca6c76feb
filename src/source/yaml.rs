//! YAML as every file of ours is read: version 1.2, in which `yes`, `no`, `on` and `off` are text.
//!
//! Workflows and configuration are read with the places of all values, by `workflow`; what needs none is read here.
use serde::de::DeserializeOwned;

/// Reads YAML.
///
/// # Errors
/// The parser's own: on its first line it names the place.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}
