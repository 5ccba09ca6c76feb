//! The running hash over a run's records: one changed byte, a record put elsewhere, or one of another run, and no seal from
//! there on fits. It guards against accidents and not against people: whoever can write the file can seal it anew.
use sha2::{Digest as _, Sha256};

/// The hash of all records until one, of which the next is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal(u64);

impl Seal {
    /// Returns the seal before the first record of a run.
    pub(super) fn of_run(run: &str) -> Seal {
        Seal(cut(Sha256::new().chain_update("spinney\0").chain_update(run)))
    }

    /// Returns the seal of the next record.
    pub(super) fn over(self, seq: i64, at: i64, body: &str) -> Seal {
        let hash = Sha256::new().chain_update(self.0.to_be_bytes()).chain_update(seq.to_be_bytes()).chain_update(at.to_be_bytes());
        Seal(cut(hash.chain_update(body)))
    }

    /// Returns the number it is stored as.
    pub(super) fn stored(self) -> i64 {
        self.0.cast_signed()
    }

    /// Reads it back.
    pub(super) fn from_stored(number: i64) -> Seal {
        Seal(number.cast_unsigned())
    }
}

fn cut(hash: Sha256) -> u64 {
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
