//! Which files the kernel holds locks of while it waits for us: telling it of a change there may
//! have to wait for our own answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Something with the names of a directory: the kernel holds its lock.
    Names,
    /// Content is being written: the kernel holds its pages.
    Writing,
}

/// Counts of what is under way, by nodeid.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    counts: Mutex<HashMap<(u64, Work), u32>>,
}

/// Something is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    under_way: Arc<UnderWay>,
    key: (u64, Work),
}

impl UnderWay {
    /// Something begins.
    pub(super) fn begin(self: &Arc<Self>, nodeid: u64, work: Work) -> Guard {
        *self.counts.lock().entry((nodeid, work)).or_default() += 1;
        Guard { under_way: self.clone(), key: (nodeid, work) }
    }

    /// Whether something of this sort is under way.
    pub(super) fn is(&self, nodeid: u64, work: Work) -> bool {
        self.counts.lock().contains_key(&(nodeid, work))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut counts = self.under_way.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_under_way_until_the_last_of_it_ends() {
        let under_way = Arc::new(UnderWay::default());
        let first = under_way.begin(7, Work::Names);
        let second = under_way.begin(7, Work::Names);
        assert!(under_way.is(7, Work::Names) && !under_way.is(7, Work::Writing));
        drop(first);
        assert!(under_way.is(7, Work::Names));
        drop(second);
        assert!(!under_way.is(7, Work::Names));
        assert!(under_way.counts.lock().is_empty());
    }
}
