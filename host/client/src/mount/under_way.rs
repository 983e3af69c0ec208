//! Which files the kernel holds locks of while it waits for us: telling it of a change there may
//! have to wait for our own answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// How long the kernel may take to enter the names of a listing that it was given. It holds the
/// directory's lock meanwhile, and says in no other way when it is done.
const ENTERING_MS: u64 = 250;
/// How often it is looked whether it is.
const ENTERING_POLL_MS: u64 = 1;

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
    entering: Mutex<Entering>,
}

/// Listings that the kernel was given and may still be entering into its cache.
#[derive(Debug, Default)]
struct Entering {
    /// Nodeid of the directory, and since when, by number.
    listings: HashMap<u64, (u64, Instant)>,
    last: u64,
}

/// A listing may still be entered until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    under_way: Arc<UnderWay>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.under_way.entering.lock().listings.remove(&self.number);
    }
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

    /// The kernel is about to be given names of a directory. Drop it when the kernel asks for more,
    /// or closes the directory: then it has entered them.
    pub(super) fn listed(self: &Arc<Self>, nodeid: u64) -> Listed {
        let mut entering = self.entering.lock();
        entering.last += 1;
        let number = entering.last;
        entering.listings.insert(number, (nodeid, Instant::now()));
        Listed { under_way: self.clone(), number }
    }

    /// Waits until the kernel has entered the names that it was given of these directories, or of
    /// all where there are none.
    pub(super) async fn entered(&self, dirs: &[u64]) {
        let begun = Instant::now();
        let limit = Duration::from_millis(ENTERING_MS);
        let is_entering = |&(dir, since): &(u64, Instant)| {
            since <= begun && since.elapsed() < limit && (dirs.is_empty() || dirs.contains(&dir))
        };
        while self.entering.lock().listings.values().any(is_entering) {
            sleep(Duration::from_millis(ENTERING_POLL_MS)).await;
        }
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

    #[tokio::test]
    async fn a_listing_is_entered_when_it_is_dropped_or_after_a_while() {
        let under_way = Arc::new(UnderWay::default());
        let begun = Instant::now();
        under_way.entered(&[]).await;
        let listed = under_way.listed(7);
        under_way.entered(&[8]).await;
        under_way.entered(&[7]).await;
        assert!(begun.elapsed() >= Duration::from_millis(ENTERING_MS));
        drop(listed);
        let listed = under_way.listed(7);
        let waiting = under_way.clone();
        let waiting = tokio::spawn(async move { waiting.entered(&[]).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(listed);
        waiting.await.expect("it ends");
    }

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
