//! How many requests the kernel sends to a FUSE mount, by its tracepoint `fuse:fuse_request_send`
//! (Linux 6.12 and later), in a trace buffer of our own. Those that nobody waits for (FORGET,
//! BATCH_FORGET, INTERRUPT) do not count.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the kernel takes orders for tracing.
const TRACING: &str = "/sys/kernel/tracing";
/// Below it, and below an instance of our own.
const EVENT: &str = "events/fuse/fuse_request_send";
/// FUSE_FORGET, FUSE_INTERRUPT, FUSE_BATCH_FORGET.
const UNANSWERED: [u32; 3] = [2, 36, 42];

/// Numbers the instances of this process.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// Counts the requests of one mount. Dropping it removes its trace buffer.
#[derive(Debug)]
pub struct FuseRequests {
    dir: PathBuf,
}

impl FuseRequests {
    /// Whether this kernel can tell, and lets us ask.
    pub fn are_told() -> bool {
        Path::new(TRACING).join(EVENT).is_dir() && rustix::process::geteuid().is_root()
    }

    /// A counter for what is mounted at `mountpoint`; `None` where the kernel cannot tell.
    pub fn of(mountpoint: &Path) -> Option<Self> {
        if !Self::are_told() {
            return None;
        }
        // The kernel calls a connection by the device number of its file system.
        let connection = rustix::fs::minor(rustix::fs::stat(mountpoint).ok()?.st_dev);
        let number = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let name = format!("portcullis-bench-{}-{number}", std::process::id());
        let dir = Path::new(TRACING).join("instances").join(name);
        fs::create_dir(&dir).ok()?;
        let counter = Self { dir };
        let mut filter = format!("connection == {connection}");
        UNANSWERED.iter().for_each(|opcode| filter += &format!(" && opcode != {opcode}"));
        counter.write(&format!("{EVENT}/filter"), &filter);
        Some(counter)
    }

    /// Begins to count, from 0.
    pub fn begin(&mut self) {
        self.write("trace", "");
        self.write(&format!("{EVENT}/enable"), "1");
    }

    /// Stops, and answers how many there were.
    pub fn end(&mut self) -> u64 {
        self.write(&format!("{EVENT}/enable"), "0");
        let cpus = fs::read_dir(self.dir.join("per_cpu")).expect("every buffer has it");
        let stats = cpus.map(|cpu| fs::read_to_string(cpu.expect("an entry").path().join("stats")));
        stats.map(|stats| recorded(&stats.expect("the kernel tells"))).sum()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.dir.join(file), text).expect("the kernel takes it");
    }
}

impl Drop for FuseRequests {
    fn drop(&mut self) {
        // It is empty for rmdir(2), whatever is seen in it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// What a CPU recorded: what is in its buffer, and what later events have overwritten.
fn recorded(stats: &str) -> u64 {
    let field = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    field("entries:") + field("overrun:") + field("dropped events:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overwritten_in_the_buffer_counts_too() {
        let stats = "entries: 7\noverrun: 100\ncommit overrun: 9\nbytes: 364\n\
                     oldest event ts: 1.5\nnow ts: 2.5\ndropped events: 1\nread events: 3\n";
        assert_eq!(recorded(stats), 108);
    }
}
