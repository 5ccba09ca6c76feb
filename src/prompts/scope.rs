//! The values that a template may read.
use super::{TemplateError, listed, outline::Chain};
use crate::source::nearest;
use serde_json::{Map, Value};
use tera::value::Key;

/// The help where a value may well be missing.
const OPTIONAL: &str = "if it may be missing, say what to use instead: `| default(value=…)`";

/// Values by name. Cheap to clone and to extend: what is in it is shared.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub(super) context: tera::Context,
    names: Vec<String>,
}

impl Scope {
    /// Makes an empty scope.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Adds a value; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Scope {
        self.insert(name, &value.into());
        self
    }

    /// Adds a value; one of the same name is replaced.
    pub fn insert(&mut self, name: impl Into<String>, value: &Value) {
        let name = name.into();
        self.context.insert(name.clone(), value);
        if let Err(at) = self.names.binary_search(&name) {
            self.names.insert(at, name);
        }
    }

    /// Returns a value.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        serde_json::to_value(self.context.get(name)?).ok()
    }

    /// Says which part of a chain is undefined, as far as that can be seen without evaluating.
    pub(super) fn explain(&self, text: &str, chain: &Chain) -> TemplateError {
        let whole = &text[chain.span.clone()];
        let Some(((root, span), rest)) = chain.parts.split_first().filter(|_| !chain.bound) else {
            return TemplateError::new(format!("`{whole}` is not defined"), chain.span.clone(), Some(OPTIONAL.to_owned()));
        };
        let Some(mut value) = self.context.get(root) else {
            let names = || self.names.iter().map(String::as_str);
            let help = nearest(root, names()).map(|near| format!("did you mean `{near}`?")).or_else(|| listed(names()));
            return TemplateError::new(format!("`{root}` is not defined"), span.clone(), help);
        };
        let mut seen = root.clone();
        for (part, span) in rest {
            let Some(map) = value.as_map() else {
                return TemplateError::new(format!("`{seen}` is {}, it has no `{part}`", kind(value)), span.clone(), None);
            };
            let Some(next) = map.get(&Key::Str(part)) else {
                let keys = || map.keys().filter_map(Key::as_str);
                let help = nearest(part, keys()).map(|near| format!("did you mean `{near}`?")).or_else(|| listed(keys())).or_else(|| Some(OPTIONAL.to_owned()));
                return TemplateError::new(format!("`{seen}.{part}` is not defined"), span.clone(), help);
            };
            seen = format!("{seen}.{part}");
            value = next;
        }
        TemplateError::new(format!("`{whole}` is not defined"), chain.span.clone(), Some(OPTIONAL.to_owned()))
    }
}

impl From<Map<String, Value>> for Scope {
    fn from(values: Map<String, Value>) -> Scope {
        let mut scope = Scope::new();
        for (name, value) in &values {
            scope.insert(name, value);
        }
        scope
    }
}

/// Names the kind of a value as people call it.
fn kind(value: &tera::Value) -> &'static str {
    if value.is_none() {
        "null"
    } else if value.is_string() {
        "text"
    } else if value.is_array() {
        "a list"
    } else if value.is_bool() {
        "true or false"
    } else {
        "a number"
    }
}
