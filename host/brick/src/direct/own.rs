//! Which changes are the brick's own: those that its workers make.
//!
//! The kernel tells which thread made a change. A process may do other things beside being a brick,
//! so it is not enough to know the process. The number of a thread that has ended may be given to a
//! thread of any program, so each takes its number back before it ends; what it did and was not
//! told yet then counts as somebody else's, which costs a word too many.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::RwLock;
use rustix::thread::gettid;

static THREADS: LazyLock<RwLock<HashSet<i32>>> = LazyLock::new(RwLock::default);

thread_local! {
    static OWN: Own = Own::new();
}

/// A thread that works for a brick, until it ends.
struct Own(i32);

impl Own {
    fn new() -> Self {
        let thread = gettid().as_raw_nonzero().get();
        THREADS.write().insert(thread);
        Self(thread)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        THREADS.write().remove(&self.0);
    }
}

/// What this thread changes from now on is the brick's doing.
pub(crate) fn enter() {
    // Where the thread is ending already it changes nothing any more.
    let _ = OWN.try_with(|_| ());
}

/// Whether this thread works for a brick.
pub(super) fn is_own(thread: i32) -> bool {
    THREADS.read().contains(&thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_own_from_its_first_work_until_it_ends() {
        let thread = std::thread::spawn(|| {
            let thread = gettid().as_raw_nonzero().get();
            let before = is_own(thread);
            enter();
            enter();
            (thread, before, is_own(thread))
        });
        let (thread, before, after) = thread.join().expect("it ends");
        assert!(!before && after);
        assert!(!is_own(thread));
    }
}
