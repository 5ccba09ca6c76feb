//! A queue in the order of its keys, for keys most of which come in that order and leave from the front.
use std::{cmp::Ordering, collections::VecDeque};

/// Values by key, sorted. What comes last or leaves first costs nothing but that; all else moves what is between.
#[derive(Debug, Clone)]
pub(crate) struct Queue<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for Queue<K, V> {
    fn default() -> Queue<K, V> {
        Queue(VecDeque::new())
    }
}

impl<K: Ord, V> Queue<K, V> {
    /// Adds a value; one of the same key is replaced.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.0.back().is_none_or(|(last, _)| *last < key) {
            return self.0.push_back((key, value));
        }
        match self.place(&key) {
            Ok(at) => self.0[at] = (key, value),
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.place(key).ok()?;
        self.0.remove(at).map(|(_, value)| value)
    }

    /// Takes the first out.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        self.0.pop_front()
    }

    /// Returns the first key.
    pub(crate) fn first(&self) -> Option<&K> {
        self.0.front().map(|(key, _)| key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter()
    }

    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Returns the values from a key on.
    pub(crate) fn starting<'q>(&'q self, key: &K) -> impl Iterator<Item = &'q V> + use<'q, K, V> {
        let (Ok(at) | Err(at)) = self.place(key);
        self.0.range(at..).map(|(_, value)| value)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|(_, value)| keep(value));
    }

    /// Returns where a key stands, or would.
    fn place(&self, key: &K) -> Result<usize, usize> {
        match self.0.front().map(|(first, _)| key.cmp(first)) {
            Some(Ordering::Equal) => Ok(0),
            Some(Ordering::Less) | None => Err(0),
            Some(Ordering::Greater) => self.0.binary_search_by(|(other, _)| other.cmp(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_order_whatever_the_order_of_coming() {
        let mut queue = Queue::default();
        for key in [5, 1, 9, 7, 3, 9] {
            queue.insert(key, key * 10);
        }
        assert_eq!(queue.values().copied().collect::<Vec<_>>(), [10, 30, 50, 70, 90]);
        assert_eq!(queue.starting(&4).copied().collect::<Vec<_>>(), [50, 70, 90]);
        assert_eq!((queue.remove(&7), queue.remove(&8), queue.contains(&7), queue.first()), (Some(70), None, false, Some(&1)));
        queue.retain(|value| *value != 30);
        assert_eq!((queue.pop_first(), queue.pop_first(), queue.pop_first(), queue.pop_first()), (Some((1, 10)), Some((5, 50)), Some((9, 90)), None));
        assert!(queue.is_empty());
    }
}
