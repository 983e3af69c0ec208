//! Memory is bounded by what was asked for, whatever the tree.

use portcullis_suite::site::Site;
use portcullis_suite::{find, tree};

/// Resident memory of a gateway with a cache of 4 MiB, whatever it walks.
const RESIDENT_BYTES_MAX: u64 = 100 << 20;

/// S-MEM-1.
#[test]
fn a_cache_of_4_mib_walks_200_000_entries_in_100_mib() {
    let dir = tempfile::tempdir().expect("a directory");
    // Some directories that the cache can hold, and one that it cannot.
    tree::wide(dir.path(), 100, 1_000);
    let large = dir.path().join("large");
    std::fs::create_dir(&large).expect("a directory");
    tree::wide(&large, 1, 100_000);
    let site = Site::start(dir.path(), &["--cache-bytes", "4MiB"]);
    site.gateway.forget_peak();
    let local = find::local(dir.path(), find::EVERYTHING);
    assert!(local.len() > 200_000);
    for _ in 0..2 {
        find::assert_equal(&find::through(&site, "/", find::EVERYTHING), &local);
        let stats = site.stats();
        let cache = &stats.cache;
        assert_eq!(cache.capacity_bytes, 4 << 20);
        assert!(cache.used_bytes <= cache.capacity_bytes, "{cache:?}");
        assert!(cache.evicted_proposed + cache.evicted_shortfall > 0, "{cache:?}");
        assert_eq!(stats.eviction.fallback_reason, "", "the component keeps up");
    }
    let peak = site.gateway.resident_peak_bytes();
    assert!(peak < RESIDENT_BYTES_MAX, "{} MiB were resident", peak >> 20);
}

/// What is told of the cache adds up.
#[test]
fn the_cache_counts_what_it_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let entries = tree::small(dir.path()) as u64;
    // What is listed ahead of the first walk may be a hit in it.
    let site = Site::start(dir.path(), &["--prefetch", "none"]);
    let _ = find::through(&site, "/", "%P\\0");
    let cache = site.stats().cache;
    assert_eq!(cache.entries, entries - 1, "all but the root: {cache:?}");
    assert_eq!(cache.directories, 4, "{cache:?}");
    assert!(cache.used_bytes > 0 && cache.used_bytes < 64 << 10, "{cache:?}");
    assert_eq!(cache.list_misses, 4, "{cache:?}");
    let _ = find::through(&site, "/", "%P\\0");
    assert_eq!(site.stats().cache.list_hits, 4);
}

/// Reading a file of any size costs the gateway no more than its windows. S-READ-1.
#[test]
fn a_large_file_passes_through_without_being_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let content: Vec<u8> = (0..96u32 << 20 >> 2).flat_map(u32::to_le_bytes).collect();
    std::fs::write(dir.path().join("large"), &content).expect("a file");
    let site = Site::start(dir.path(), &[]);
    site.gateway.forget_peak();
    let read = site.stdout("cat", "/large", &[]);
    assert!(read == content, "{} of {} bytes, or other ones", read.len(), content.len());
    let peak = site.gateway.resident_peak_bytes();
    assert!(peak < RESIDENT_BYTES_MAX, "{} MiB were resident", peak >> 20);
}
