//! What the gateway tells of itself, gathered where somebody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_core::Status;
use portcullis_policy::EvictionDriver;
use portcullis_transport::serve::Counters;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::stats::{CacheStats, EvictionStats, GatewayStats};

use crate::volume::Volume;

/// Counts requests and sees all that is counted elsewhere.
pub(crate) struct Observer {
    volume: Arc<Volume>,
    driver: Arc<EvictionDriver>,
    pub(crate) connections: Arc<Counters>,
    requests: [AtomicU64; Verb::ALL.len()],
    failures: [AtomicU64; Status::ALL.len()],
}

impl Observer {
    pub(crate) fn new(volume: Arc<Volume>, driver: Arc<EvictionDriver>) -> Self {
        Self {
            volume,
            driver,
            connections: Arc::default(),
            requests: [const { AtomicU64::new(0) }; Verb::ALL.len()],
            failures: [const { AtomicU64::new(0) }; Status::ALL.len()],
        }
    }

    pub(crate) fn count_request(&self, verb: Verb) {
        self.requests[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failure(&self, status: Status) {
        self.failures[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether requests that miss the cache can be answered, and why not.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        self.volume.bricks.first().ready()
    }

    /// Everything at this moment.
    pub(crate) fn stats(&self) -> GatewayStats {
        let cache = self.volume.cache.counters();
        let requests = Verb::ALL.iter().zip(&self.requests);
        let failures = Status::ALL.iter().zip(&self.failures);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GatewayStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: self.volume.now_ms(),
            resident_bytes: resident_bytes(),
            cache: CacheStats {
                capacity_bytes: cache.capacity_bytes,
                used_bytes: cache.used_bytes,
                entries: cache.entries,
                directories: cache.directories,
                objects: cache.objects,
                lookup_hits: cache.lookup_hits,
                negative_hits: cache.negative_hits,
                lookup_misses: cache.lookup_misses,
                getattr_hits: cache.getattr_hits,
                getattr_misses: cache.getattr_misses,
                readlink_hits: cache.readlink_hits,
                readlink_misses: cache.readlink_misses,
                list_hits: cache.list_hits,
                list_misses: cache.list_misses,
                fills_joined: cache.fills_joined,
                fills_late: cache.fills_late,
                evicted_proposed: cache.evicted_proposed,
                evicted_shortfall: cache.evicted_shortfall,
                invalidated: cache.invalidated,
            },
            eviction: self.eviction(cache.hits_dropped),
            prefetch: self.volume.ahead.stats(),
            inlining: self.volume.inlining.stats(),
            bricks: self.volume.bricks.all().iter().map(|brick| brick.stats()).collect(),
            watch: self.volume.watch_stats(),
            requests: requests
                .map(|(verb, count)| (verb.name().to_owned(), load(count)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            failures: failures
                .map(|(status, count)| (format!("{status:?}"), load(count)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            connections: self.connections.connections.load(Ordering::Relaxed) as u64,
            refused_connections: load(&self.connections.refused),
            bad_frames: load(&self.connections.bad_frames),
        }
    }

    fn eviction(&self, hits_dropped: u64) -> EvictionStats {
        let status = self.driver.status();
        EvictionStats {
            name: status.name,
            version: status.version,
            kind: status.kind.as_str().to_owned(),
            digest: status.digest,
            fallback_reason: status.fallback_reason,
            calls: status.calls,
            events: status.events,
            batches: status.batches,
            accepted: status.accepted,
            stale: status.stale,
            repeated: status.repeated,
            foreign: status.foreign,
            hits_dropped,
            cpu_ms: status.cpu_ms,
        }
    }
}

/// Resident memory of this process, 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn resident_memory_counts_what_was_touched() {
        let before = super::resident_bytes();
        let touched = vec![1u8; 64 << 20];
        let after = super::resident_bytes();
        assert!(std::hint::black_box(&touched).iter().all(|&byte| byte == 1));
        assert!(before > 1 << 20, "{before}");
        assert!(after >= before + (48 << 20), "{before} became {after}");
    }
}
