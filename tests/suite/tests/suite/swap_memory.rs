//! What swaps leave in memory: nothing.

use portcullis_suite::site::Site;
use portcullis_suite::{find, policy, soaking, tree};

/// Growth that is the allocator's and the cache's own.
const SLACK_BYTES: u64 = 6 << 20;

/// After some swaps the gateway takes as much memory as after many.
#[test]
fn memory_is_flat_over_swaps() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 20, 500);
    let site = Site::start(dir.path(), &["--cache-bytes", "1MiB"]);
    let swaps = if soaking() { 1_000 } else { 60 };
    let policies = ["lru", "sieve", "s3fifo"].map(policy);
    let mut early_bytes = 0;
    for number in 1..=swaps {
        let file = policies[number % 3].to_str().expect("UTF-8");
        site.policy("swap", &[file]).unwrap_or_else(|error| panic!("swap {number}: {error}"));
        if number % 20 == 10 {
            let _ = find::through(&site, "/", "%P\\0");
        }
        if number == 10 {
            early_bytes = site.stats().resident_bytes;
        }
    }
    let late_bytes = site.stats().resident_bytes;
    let most = early_bytes / 100 * 102 + SLACK_BYTES;
    assert!(late_bytes <= most, "{early_bytes} bytes after 10 swaps, {late_bytes} after {swaps}");
}
