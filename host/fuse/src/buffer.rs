//! The buffers that requests are read into.
//!
//! A request is read whole, so a buffer has room for the largest write. The data of a large write
//! stays where the kernel put it: the file system gets a slice that owns the buffer, and the
//! thread reads on into another one. Small requests leave the buffer with the thread.
//!
//! What must hold: buffers come back to the pool when the last slice of them is dropped; the pool
//! keeps a few, frees the rest, and hands out no more than its limit, but for what [`WAIT_MS`] says.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::abi::{InHeader, MIN_READ_BUFFER_LEN, PAGE_LEN_BYTES, WriteIn};

/// Data up to here is copied: holding a whole buffer for it would cost more.
const COPIED_LEN_BYTES_MAX: usize = 32 * 1024;
/// Buffers kept for the next request.
const IDLE_MAX: usize = 4;
/// How long a thread waits for a buffer once all are in use. Then it takes one more: of requests
/// that wait some may be waiting for the interrupt, or the end of the mount, that this thread has
/// yet to read. The kernel holds the data of each write as well, so the excess is bounded by what
/// programs have under way, and grows by a buffer a thread in this time.
const WAIT_MS: u64 = 250;

/// Bytes of a buffer for writes of this length.
pub(crate) fn buffer_len(write_len_bytes_max: usize) -> usize {
    let head = size_of::<InHeader>() + size_of::<WriteIn>();
    (head + write_len_bytes_max).next_multiple_of(PAGE_LEN_BYTES).max(MIN_READ_BUFFER_LEN)
}

/// Buffers of one session.
#[derive(Debug)]
pub(crate) struct Pool {
    buffer_len: usize,
    buffers_max: usize,
    wait: Duration,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Box<[u8]>>,
    in_use: usize,
}

impl Pool {
    pub(crate) fn new(buffer_len: usize, buffers_max: usize) -> Arc<Self> {
        Arc::new(Self {
            buffer_len,
            buffers_max,
            wait: Duration::from_millis(WAIT_MS),
            state: Mutex::default(),
            returned: Condvar::new(),
        })
    }

    fn take(self: &Arc<Self>) -> Buffer {
        let full = |state: &mut State| state.in_use >= self.buffers_max;
        let (mut state, _) = self
            .returned
            .wait_timeout_while(self.lock(), self.wait, full)
            .unwrap_or_else(PoisonError::into_inner);
        state.in_use += 1;
        let idle = state.idle.pop();
        drop(state);
        let bytes = idle.unwrap_or_else(|| vec![0; self.buffer_len].into());
        Buffer { bytes, pool: self.clone() }
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        let mut state = self.lock();
        state.in_use -= 1;
        let surplus = if state.idle.len() < IDLE_MAX {
            state.idle.push(bytes);
            None
        } else {
            Some(bytes)
        };
        drop(state);
        drop(surplus);
        self.returned.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole, so a poisoned state is, too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One buffer; dropping it gives it back.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

/// The request that a thread has read.
#[derive(Debug)]
pub(crate) struct Request {
    pool: Arc<Pool>,
    /// `None` once the file system has it.
    buffer: Option<Buffer>,
    len: usize,
}

impl Request {
    /// No request yet.
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), buffer: None, len: 0 }
    }

    /// Reads the next one; `read` fills the buffer from its start and says how far.
    pub(crate) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.len = 0;
        let buffer = self.buffer.get_or_insert_with(|| self.pool.take());
        self.len = read(&mut buffer.bytes)?;
        Ok(())
    }

    /// Its bytes; none after [`share`](Self::share) took the buffer away.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => buffer.bytes.get(..self.len).unwrap_or_default(),
            None => &[],
        }
    }

    /// A part of its bytes, for as long as anybody wants it. Without copying where that pays.
    pub(crate) fn share(&mut self, part: Range<usize>) -> Bytes {
        debug_assert!(part.end <= self.len);
        if part.len() <= COPIED_LEN_BYTES_MAX {
            return Bytes::copy_from_slice(self.bytes().get(part).unwrap_or_default());
        }
        match self.buffer.take() {
            Some(buffer) => Bytes::from_owner(buffer).slice(part),
            None => Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &Arc<Pool>, byte: u8) -> Request {
        let mut request = Request::new(pool);
        let fill = |buffer: &mut [u8]| {
            buffer.fill(byte);
            Ok::<_, ()>(buffer.len())
        };
        request.fill(fill).unwrap();
        request
    }

    #[test]
    fn a_large_part_is_not_copied_and_outlives_the_next_request() {
        let pool = Pool::new(buffer_len(1 << 20), 4);
        let mut request = filled(&pool, 1);
        let at = request.bytes()[80..].as_ptr();
        let part = request.share(80..(1 << 20));
        assert_eq!(part.as_ptr(), at);
        let fill = |buffer: &mut [u8]| {
            buffer.fill(2);
            Ok::<_, ()>(10)
        };
        request.fill(fill).unwrap();
        assert_eq!(request.bytes(), [2; 10]);
        assert!(part.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn a_small_part_leaves_the_buffer_with_the_thread() {
        let pool = Pool::new(buffer_len(1 << 20), 1);
        let mut request = filled(&pool, 1);
        let part = request.share(80..90);
        assert_eq!(part, [1; 10].as_slice());
        assert_eq!(request.bytes().len(), buffer_len(1 << 20));
        assert_eq!(pool.lock().in_use, 1);
    }

    #[test]
    fn buffers_come_back_and_only_a_few_are_kept() {
        let pool = Pool::new(buffer_len(64 * 1024), 100);
        let parts: Vec<_> = (0..20).map(|n| filled(&pool, n).share(0..40_000)).collect();
        assert_eq!(pool.lock().in_use, 20);
        for (n, part) in parts.iter().enumerate() {
            assert_eq!(part[0], n as u8);
        }
        drop(parts);
        let state = pool.lock();
        assert_eq!((state.in_use, state.idle.len()), (0, IDLE_MAX));
    }

    #[test]
    fn at_the_limit_a_thread_waits_for_a_buffer_that_comes_back() {
        for _ in 0..100 {
            let mut pool = Pool::new(buffer_len(64 * 1024), 1);
            Arc::get_mut(&mut pool).unwrap().wait = Duration::from_secs(3600);
            let part = filled(&pool, 7).share(0..40_000);
            let at = part.as_ptr() as usize;
            let waiting = std::thread::spawn({
                let pool = pool.clone();
                move || filled(&pool, 8).bytes().as_ptr() as usize
            });
            drop(part);
            assert_eq!(waiting.join().unwrap(), at, "there is one buffer only");
        }
    }

    #[test]
    fn beyond_the_limit_a_thread_goes_on_after_a_while() {
        let pool = Pool::new(buffer_len(64 * 1024), 1);
        let first = filled(&pool, 1).share(0..40_000);
        let waiting = std::time::Instant::now();
        let second = filled(&pool, 2).share(0..40_000);
        assert_eq!((first[0], second[0], pool.lock().in_use), (1, 2, 2));
        assert!(waiting.elapsed() >= Duration::from_millis(WAIT_MS));
    }

    #[test]
    fn a_buffer_has_room_for_the_largest_write_and_is_never_too_small_for_the_kernel() {
        assert!(buffer_len(1 << 20) >= (1 << 20) + 80);
        assert!(buffer_len(1) >= MIN_READ_BUFFER_LEN);
    }
}
