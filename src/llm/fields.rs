//! A JSON object as its fields in order, each value in the bytes it was received in.
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::fmt;

/// The fields of one object. A key that occurs twice is kept twice until it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Takes the text of one object.
    pub(super) fn parse(json: &str) -> Result<Fields, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Returns the bytes of a field, the last of its name.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| raw.as_str())
    }

    /// Returns the names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a field that is a string.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// Sets a field to `raw`, in its place where it is there, at the end where it is not.
    pub(super) fn set(&mut self, key: &str, raw: String) {
        match self.0.iter().position(|(name, _)| name == key) {
            Some(place) => {
                let mut index = 0;
                self.0.retain(|(name, _)| {
                    index += 1;
                    name != key || index == place + 1
                });
                self.0[place].1 = raw;
            }
            None => self.0.push((key.to_owned(), raw)),
        }
    }

    /// Writes the object.
    pub(super) fn write(&self) -> String {
        let mut out = String::from("{");
        for (n, (key, raw)) in self.0.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            push_string(&mut out, key);
            out.push(':');
            out.push_str(raw);
        }
        out.push('}');
        out
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, raw)) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push((key, raw.get().to_owned()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Appends `text` as a JSON string.
pub(super) fn push_string(out: &mut String, text: &str) {
    out.push_str(&string(text));
}

/// Writes `text` as a JSON string.
pub(super) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Appends `,"key":raw`, without the comma where it is the first of its object.
pub(super) fn push_field(out: &mut String, key: &str, raw: &str) {
    out.push_str(if out.ends_with('{') { "\"" } else { ",\"" });
    out.push_str(key);
    out.push_str("\":");
    out.push_str(raw);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_order_are_kept_and_a_field_is_set_in_place() {
        let mut fields = Fields::parse(r#"{"z":1.10,"id":"a\/b","a":{"q": [1]},"id":"c"}"#).unwrap();
        assert_eq!(fields.write(), r#"{"z":1.10,"id":"a\/b","a":{"q": [1]},"id":"c"}"#);
        assert_eq!(fields.text("id").as_deref(), Some("c"));
        fields.set("id", string("\"é"));
        fields.set("new", "null".to_owned());
        assert_eq!(fields.write(), r#"{"z":1.10,"id":"\"é","a":{"q": [1]},"new":null}"#);
        assert!(Fields::parse("[1]").is_err() && Fields::parse("{").is_err());
    }
}
