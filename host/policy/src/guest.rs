//! What the host keeps for one component beside its memory: limits, deadline, log.

use std::time::{Duration, Instant};

use portcullis_core::limits::{
    POLICY_CALL_CPU_MS_MAX, POLICY_INSTANCES_MAX, POLICY_LOGS_PER_SECOND_MAX, POLICY_MEMORY_BYTES,
    POLICY_MESSAGE_LEN_MAX, POLICY_TABLE_ELEMENTS_MAX, POLICY_TABLES_MAX,
};
use wasmtime::{ResourceLimiter, UpdateDeadline};

use crate::bindings::log;
use crate::cpu::thread_cpu_ns;

/// The data of a store.
pub(crate) struct Guest {
    memory_bytes_max: usize,
    /// What its memory grew to last.
    pub(crate) memory_bytes: usize,
    /// The last thing it wanted and did not get.
    pub(crate) denied: Option<String>,
    /// CPU time of this thread at the first epoch of the call. Short calls see none, and are spared
    /// a system call.
    pub(crate) first_epoch_ns: Option<u64>,
    pub(crate) log: Log,
}

impl Guest {
    /// For a policy that serves a cache of `capacity_bytes` and logs as `name`.
    pub(crate) fn new(capacity_bytes: u64, name: String) -> Self {
        let memory_bytes_max = POLICY_MEMORY_BYTES.max(capacity_bytes / 2);
        Self {
            memory_bytes_max: usize::try_from(memory_bytes_max).unwrap_or(usize::MAX),
            memory_bytes: 0,
            denied: None,
            first_epoch_ns: None,
            log: Log::new(name),
        }
    }

    /// What happens when a call reaches an epoch: it goes on while it has CPU time left. The epoch
    /// is wall-clock time, and a thread that was merely descheduled did nothing wrong.
    pub(crate) fn at_epoch(&mut self) -> wasmtime::Result<UpdateDeadline> {
        let now_ns = thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(*self.first_epoch_ns.get_or_insert(now_ns));
        if used_ns >= POLICY_CALL_CPU_MS_MAX * 1_000_000 {
            return Err(Overran.into());
        }
        Ok(UpdateDeadline::Continue(1))
    }
}

/// The call used up its CPU time.
#[derive(Debug, thiserror::Error)]
#[error("out of CPU time")]
pub(crate) struct Overran;

impl ResourceLimiter for Guest {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory_bytes_max;
        if granted {
            self.memory_bytes = desired;
        } else {
            self.denied = Some(format!("{desired} bytes of memory"));
        }
        Ok(granted)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let granted = desired <= POLICY_TABLE_ELEMENTS_MAX;
        if !granted {
            self.denied = Some(format!("a table of {desired} elements"));
        }
        Ok(granted)
    }

    fn instances(&self) -> usize {
        POLICY_INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        POLICY_TABLES_MAX
    }

    fn memories(&self) -> usize {
        1
    }
}

/// The host's log as a policy may use it: short lines, few of them.
pub(crate) struct Log {
    pub(crate) name: String,
    second: Instant,
    lines: u32,
    dropped: u64,
}

impl Log {
    fn new(name: String) -> Self {
        Self { name, second: Instant::now(), lines: 0, dropped: 0 }
    }

    /// Whether another line may be written.
    fn admit(&mut self, now: Instant) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            if self.dropped > 0 {
                tracing::warn!(policy = self.name, lines = self.dropped, "log lines dropped");
            }
            (self.second, self.lines, self.dropped) = (now, 0, 0);
        }
        self.lines += 1;
        if self.lines > POLICY_LOGS_PER_SECOND_MAX {
            self.dropped += 1;
            return false;
        }
        true
    }
}

impl log::Host for Guest {
    fn log(&mut self, level: log::Level, message: String) {
        if !self.log.admit(Instant::now()) {
            return;
        }
        let (policy, message) = (&self.log.name, readable(&message));
        match level {
            log::Level::Error => tracing::error!(policy, "{message}"),
            log::Level::Warn => tracing::warn!(policy, "{message}"),
            log::Level::Info => tracing::info!(policy, "{message}"),
            log::Level::Debug => tracing::debug!(policy, "{message}"),
        }
    }
}

/// A guest's words, cut and without control characters, which could forge lines of a log.
pub(crate) fn readable(message: &str) -> String {
    let mut readable = String::new();
    for char in message.chars() {
        if readable.len() + char.len_utf8() > POLICY_MESSAGE_LEN_MAX {
            readable.push('…');
            break;
        }
        readable.push(if char.is_control() { ' ' } else { char });
    }
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-8.
    #[test]
    fn words_are_cut_at_a_character_and_keep_to_one_line() {
        assert_eq!(readable("a\nb\u{1b}[31mc"), "a b [31mc");
        let long = "ä".repeat(POLICY_MESSAGE_LEN_MAX);
        let cut = readable(&long);
        assert!(cut.len() <= POLICY_MESSAGE_LEN_MAX + '…'.len_utf8());
        assert!(cut.ends_with("ä…"));
    }

    /// H-8.
    #[test]
    fn a_second_has_so_many_lines() {
        let mut log = Log::new("talkative".into());
        let start = log.second;
        let admitted = (0..100).filter(|_| log.admit(start)).count();
        assert_eq!(admitted, POLICY_LOGS_PER_SECOND_MAX as usize);
        assert_eq!(log.dropped, 100 - u64::from(POLICY_LOGS_PER_SECOND_MAX));
        assert!(log.admit(start + Duration::from_secs(1)));
    }

    #[test]
    fn memory_follows_the_cache() {
        let small = Guest::new(1 << 20, String::new());
        assert_eq!(small.memory_bytes_max, 64 << 20);
        let large = Guest::new(4 << 30, String::new());
        assert_eq!(large.memory_bytes_max, 2 << 30);
    }
}
