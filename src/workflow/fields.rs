//! Reads typed values out of a tree that was checked against the table of keys.
//!
//! The check has already told what is wrong; so a value of another type reads as absent here, and decoding goes on to
//! find what else there is to tell.
use super::{
    keys::Object,
    words::Word,
    yaml::{Entry, Node, Yaml},
};
use crate::source::{Source, Span, Spanned};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The entries of one map, by the keys of its object.
pub(super) struct Fields<'a> {
    pub(super) source: &'a Arc<Source>,
    object: &'static Object,
    entries: &'a [Entry],
    #[cfg(test)]
    asked: std::cell::RefCell<std::collections::BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// Reads a node as this object; a node that is no map has no entries.
    pub(super) fn new(source: &'a Arc<Source>, node: &'a Node, object: &'static Object) -> Fields<'a> {
        let entries: &[Entry] = if let Yaml::Map(entries) = &node.value { entries } else { &[] };
        Fields {
            source,
            object,
            entries,
            #[cfg(test)]
            asked: std::cell::RefCell::default(),
        }
    }

    /// Returns the entry of a key, the first where it stands twice.
    pub(super) fn entry(&self, key: &'static str) -> Option<&'a Entry> {
        debug_assert!(self.object.key(key).is_some(), "`{key}` is not in the table of {}", self.object.name);
        #[cfg(test)]
        self.asked.borrow_mut().insert(key);
        self.entries.iter().find(|entry| entry.key.value == key)
    }

    /// Returns the value of a key.
    pub(super) fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Returns where a key stands, or nowhere.
    pub(super) fn key_span(&self, key: &'static str) -> Span {
        self.entry(key).map(|entry| entry.key.span).unwrap_or_default()
    }

    /// Reads a value as another object; the span is that of its key.
    pub(super) fn object(&self, key: &'static str, object: &'static Object) -> Option<Spanned<Fields<'a>>> {
        let entry = self.entry(key).filter(|entry| matches!(entry.value.value, Yaml::Map(_)))?;
        Some(Spanned::new(Fields::new(self.source, &entry.value, object), entry.key.span))
    }

    /// Reads a map of names.
    pub(super) fn map(&self, key: &'static str) -> impl Iterator<Item = (&'a Spanned<String>, &'a Node)> {
        let entries: &[Entry] = if let Some(Yaml::Map(entries)) = self.node(key).map(|node| &node.value) { entries } else { &[] };
        entries.iter().map(|entry| (&entry.key, &entry.value))
    }

    /// Reads a map of names to texts.
    pub(super) fn templates(&self, key: &'static str) -> Vec<(Spanned<String>, Spanned<String>)> {
        self.map(key).filter_map(|(name, node)| Some((name.clone(), text(self.source, node)?))).collect()
    }

    /// Reads a list of values of any kind.
    pub(super) fn list(&self, key: &'static str) -> impl Iterator<Item = &'a Node> {
        let nodes: &[Node] = if let Some(Yaml::List(nodes)) = self.node(key).map(|node| &node.value) { nodes } else { &[] };
        nodes.iter()
    }

    /// Reads a map of names to values of any kind.
    pub(super) fn values(&self, key: &'static str) -> Vec<(Spanned<String>, Spanned<Value>)> {
        self.map(key).map(|(name, node)| (name.clone(), Spanned::new(node.value.to_json(), node.span))).collect()
    }

    /// Returns the entries whose keys are names that the author chose.
    pub(super) fn others(&self) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|entry| self.object.key(&entry.key.value).is_none())
    }

    /// Reads text.
    pub(super) fn text(&self, key: &'static str) -> Option<Spanned<String>> {
        text(self.source, self.node(key)?)
    }

    /// Reads text whose place does not matter.
    pub(super) fn string(&self, key: &'static str) -> Option<String> {
        self.text(key).map(|text| text.value)
    }

    /// Reads a list of texts; one text is a list of one.
    pub(super) fn texts(&self, key: &'static str) -> Vec<Spanned<String>> {
        match self.node(key) {
            Some(Spanned { value: Yaml::List(nodes), .. }) => nodes.iter().filter_map(|node| text(self.source, node)).collect(),
            Some(node) => text(self.source, node).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Reads a flag; absent is false.
    pub(super) fn flag(&self, key: &'static str) -> bool {
        matches!(self.node(key).map(|node| &node.value), Some(Yaml::Bool(true)))
    }

    /// Reads a whole number.
    pub(super) fn whole<T: TryFrom<u64>>(&self, key: &'static str) -> Option<Spanned<T>> {
        let node = self.node(key)?;
        Some(Spanned::new(T::try_from(node.value.whole()?).ok()?, node.span))
    }

    /// Reads a number.
    pub(super) fn number(&self, key: &'static str) -> Option<Spanned<f64>> {
        let node = self.node(key)?;
        if let Yaml::Number(number) = &node.value { number.as_f64().map(|number| Spanned::new(number, node.span)) } else { None }
    }

    /// Reads a duration.
    pub(super) fn duration(&self, key: &'static str) -> Option<Spanned<Duration>> {
        let node = self.node(key)?;
        node.value.duration(self.source, node.span).map(|duration| Spanned::new(duration, node.span))
    }

    /// Reads a word of a closed set.
    pub(super) fn word<T: Word>(&self, key: &'static str) -> Option<Spanned<T>> {
        self.one_of(key, T::TABLE)
    }

    /// Reads a list of words of a closed set.
    pub(super) fn words<T: Word>(&self, key: &'static str) -> Option<Vec<Spanned<T>>> {
        self.some_of(key, T::TABLE)
    }

    /// Reads one of these words.
    pub(super) fn one_of<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<Spanned<T>> {
        word(self.node(key)?, words)
    }

    /// Reads a list of these words.
    pub(super) fn some_of<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<Vec<Spanned<T>>> {
        let Yaml::List(nodes) = &self.node(key)?.value else { return None };
        Some(nodes.iter().filter_map(|node| word(node, words)).collect())
    }

    /// Notes keys that are checked and otherwise without effect here.
    pub(super) fn only_checked(&self, keys: &[&'static str]) {
        for key in keys {
            self.entry(key);
        }
    }
}

/// In tests: every key that the check lets through is decoded by whoever reads the object.
#[cfg(test)]
impl Drop for Fields<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let asked = self.asked.borrow();
        for key in self.object.keys.iter().filter(|key| !matches!(key.shape, super::keys::Shape::Later)) {
            assert!(asked.contains(key.name), "`{}` of {} is checked but never decoded", key.name, self.object.name);
        }
    }
}

/// Reads a node as text.
pub(super) fn text(source: &Source, node: &Node) -> Option<Spanned<String>> {
    node.value.scalar(source, node.span).map(|text| Spanned::new(text, node.span))
}

fn word<T: Copy>(node: &Node, words: &[(&str, T)]) -> Option<Spanned<T>> {
    let Yaml::Text(text) = &node.value else { return None };
    words.iter().find(|(word, _)| word == text).map(|(_, value)| Spanned::new(*value, node.span))
}
