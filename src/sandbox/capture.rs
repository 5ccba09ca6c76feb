//! Captured output: bounded however much is written.
use std::collections::VecDeque;

/// Most bytes of one stream that are kept whole: 16 MiB.
pub const WHOLE_MAX: usize = 16 << 20;

/// What one stream carried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes; everything where it fits the cap of the request.
    pub head: Vec<u8>,
    /// The last bytes where something is missing between them and the head.
    pub tail: Vec<u8>,
    /// How many bytes were written.
    pub total: u64,
    /// Everything, where it is no more than [`WHOLE_MAX`].
    pub whole: Option<Vec<u8>>,
}

impl Captured {
    /// Returns how many bytes stand in neither head nor tail.
    pub fn missing(&self) -> u64 {
        self.total.saturating_sub((self.head.len() + self.tail.len()) as u64)
    }

    /// Returns head and tail as text, invalid bytes replaced, a cut stated on its own line.
    pub fn text(&self) -> String {
        let head = String::from_utf8_lossy(&self.head);
        match self.missing() {
            0 => head.into_owned() + &String::from_utf8_lossy(&self.tail),
            missing => format!("{head}\n[{missing} bytes cut]\n{}", String::from_utf8_lossy(&self.tail)),
        }
    }
}

/// A stream while it is being read.
#[derive(Debug)]
pub(super) struct Capture {
    cap: usize,
    whole_max: usize,
    /// Everything so far, until that is too much; then the head.
    start: Vec<u8>,
    /// The last bytes, once the whole is no longer kept.
    end: VecDeque<u8>,
    total: u64,
}

impl Capture {
    pub(super) fn new(cap: usize) -> Capture {
        Capture::with_limit(cap, WHOLE_MAX)
    }

    fn with_limit(cap: usize, whole_max: usize) -> Capture {
        Capture { cap: cap.min(whole_max), whole_max, start: Vec::new(), end: VecDeque::new(), total: 0 }
    }

    fn tail_max(&self) -> usize {
        self.cap - self.cap / 2
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let was_whole = self.total <= self.whole_max as u64;
        self.total += bytes.len() as u64;
        if self.total <= self.whole_max as u64 {
            self.start.extend_from_slice(bytes);
            return;
        }
        if was_whole {
            let kept = self.start.len().saturating_sub(self.tail_max());
            self.end.extend(&self.start[kept..]);
            // The head may have to be completed from the bytes that no longer fit the whole.
            let lacking = (self.cap / 2).saturating_sub(self.start.len()).min(bytes.len());
            self.start.extend_from_slice(&bytes[..lacking]);
            self.start.truncate(self.cap / 2);
            self.start.shrink_to_fit();
        }
        self.end.extend(&bytes[bytes.len().saturating_sub(self.tail_max())..]);
        self.end.drain(..self.end.len().saturating_sub(self.tail_max()));
    }

    pub(super) fn finish(self) -> Captured {
        let total = self.total;
        if total > self.whole_max as u64 {
            return Captured { head: self.start, tail: self.end.into(), total, whole: None };
        }
        let (head, tail) = if self.start.len() <= self.cap {
            (self.start.clone(), Vec::new())
        } else {
            (self.start[..self.cap / 2].to_vec(), self.start[self.start.len() - self.tail_max()..].to_vec())
        };
        Captured { head, tail, total, whole: Some(self.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_the_first_and_last_bytes_however_they_come(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12), cap in 0_usize..60) {
            let all: Vec<u8> = chunks.concat();
            let mut capture = Capture::with_limit(cap, 100);
            for chunk in &chunks {
                capture.push(chunk);
            }
            let captured = capture.finish();
            prop_assert_eq!(captured.total, all.len() as u64);
            prop_assert_eq!(captured.whole.as_ref(), (all.len() <= 100).then_some(&all));
            prop_assert!(all.starts_with(&captured.head) && all.ends_with(&captured.tail));
            if all.len() <= cap {
                prop_assert_eq!(&captured.head, &all);
            } else {
                prop_assert_eq!(captured.head.len() + captured.tail.len(), cap);
            }
        }
    }

    #[test]
    fn a_cut_is_stated() {
        let mut capture = Capture::with_limit(4, 100);
        capture.push(b"abcdefgh");
        assert_eq!(capture.finish().text(), "ab\n[4 bytes cut]\ngh");
    }
}
