//! The last changes, so that an answer which was read while something changed is noticed.
//!
//! A reader takes the number of changes so far, reads, registers its watches, and then asks whether
//! what it read has changed since. Whoever changes something enters it here before looking who
//! watches it. So a reader whose watch came too late to be told finds the change here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::change::Key;
use crate::limits::RECENT_CHANGES_MAX;

/// Changes by number, the last ones by key.
#[derive(Debug, Default)]
pub(super) struct Recent {
    count: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// Number and key of a change, oldest first; without a key it concerned everything.
    changes: VecDeque<(u64, Option<Key>)>,
    /// Changes up to this number are no longer known one by one.
    forgotten: u64,
}

impl Recent {
    /// How many changes there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Enters a change; call it after it was made and before those who watch it are looked for.
    pub(super) fn enter(&self, key: Option<Key>) {
        let mut last = self.last.lock();
        let number = self.count.load(Ordering::SeqCst) + 1;
        last.changes.push_back((number, key));
        if last.changes.len() > RECENT_CHANGES_MAX
            && let Some((oldest, _)) = last.changes.pop_front()
        {
            last.forgotten = oldest;
        }
        // Under the lock, so that whoever sees the number finds the change.
        self.count.store(number, Ordering::SeqCst);
    }

    /// Whether what `key` stands for may have changed after `count` changes.
    pub(super) fn changed_since(&self, count: u64, key: Key) -> bool {
        if self.count() == count {
            return false;
        }
        let last = self.last.lock();
        if count < last.forgotten {
            return true;
        }
        let newest_first = last.changes.iter().rev();
        newest_first
            .take_while(|(number, _)| *number > count)
            .any(|(_, changed)| changed.is_none_or(|changed| changed == key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_after_the_count_has_changed() {
        let recent = Recent::default();
        recent.enter(Some(Key(1)));
        let count = recent.count();
        assert!(!recent.changed_since(count, Key(1)));
        recent.enter(Some(Key(2)));
        assert!(recent.changed_since(count, Key(2)));
        assert!(!recent.changed_since(count, Key(1)));
        recent.enter(None);
        assert!(recent.changed_since(count, Key(1)), "everything changed");
    }

    #[test]
    fn what_is_forgotten_counts_as_changed() {
        let recent = Recent::default();
        let count = recent.count();
        for number in 0..=RECENT_CHANGES_MAX as u64 {
            recent.enter(Some(Key(number)));
        }
        assert!(recent.changed_since(count, Key(u64::MAX)));
        assert!(!recent.changed_since(count + 1, Key(u64::MAX)));
    }
}
