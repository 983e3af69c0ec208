//! CPU time of the calling thread.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CPU time this thread has used.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
