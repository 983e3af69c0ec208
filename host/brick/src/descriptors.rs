//! How many descriptors are held for clients: open files, and locks.
//!
//! A gateway holds the files of all its clients over one connection, so there is no limit for each
//! connection, but one for the brick: what its process may have open, less a part that is kept for
//! the work on requests. So names are still looked up, listed and removed when clients hold all
//! files open that may be held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_core::limits::{BRICK_DESCRIPTORS_KEPT, BRICK_DESCRIPTORS_MAX};
use rustix::process::{Resource, getrlimit};

/// Descriptors that may be held, and how many are.
#[derive(Debug)]
pub(crate) struct Descriptors {
    max: usize,
    taken: AtomicUsize,
}

/// One that is held, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Descriptors>);

impl Descriptors {
    /// As many as this process may hold.
    pub(crate) fn of_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::up_to(for_clients(usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// At most `max`.
    pub(crate) fn up_to(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: AtomicUsize::new(0) })
    }

    /// How many may be held.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// How many are held.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes one; `None` where all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Taken> {
        let next = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Taken(self.clone()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many of all descriptors of a process may be held for clients.
fn for_clients(limit: usize) -> usize {
    let kept = BRICK_DESCRIPTORS_KEPT.max(limit / 8).min(limit / 2);
    (limit - kept).min(BRICK_DESCRIPTORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_whatever_the_limit() {
        for (limit, expected) in [(0, 0), (1, 1), (1024, 512), (4096, 3072), (65_536, 57_344)] {
            assert_eq!(for_clients(limit), expected, "of {limit}");
        }
        assert_eq!(for_clients(usize::MAX), BRICK_DESCRIPTORS_MAX);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let descriptors = Descriptors::up_to(2);
        let taken = [descriptors.take(), descriptors.take()];
        assert!(taken.iter().all(Option::is_some) && descriptors.take().is_none());
        drop(taken);
        assert!(descriptors.take().is_some());
    }
}
