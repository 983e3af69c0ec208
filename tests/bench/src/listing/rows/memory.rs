//! Memory of a gateway: an entry that it keeps, and a directory larger than its cache.

use std::fs;

use super::Bench;
use crate::listing::contest::time;
use crate::listing::data;
use crate::listing::installation::Installation;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row};

/// A cache that holds the large directory.
const AMPLE: &str = "1GiB";
/// An entry that is kept takes so much at most.
const ENTRY_BYTES_MAX: f64 = 160.0;
/// A cache that does not hold the huge directory; scaled down with it.
const TIGHT_BYTES: usize = 64 << 20;
/// Entries of the huge directory that this cache is meant for.
const TIGHT_ENTRIES: usize = 2_000_000;
/// With it a gateway takes so much at most.
const RESIDENT_BYTES_MAX: f64 = 160.0 * 1_048_576.0;

/// What an entry takes that is kept.
pub fn of_an_entry(bench: &Bench, report: &mut Report) {
    let large = bench.sizes.large;
    let tree = bench.flat(&[large]);

    let mut least = f64::MAX;
    let mut note = String::new();
    for _ in 0..bench.sizes.rounds {
        let running = start(bench, &tree, AMPLE);
        let before_bytes = resident_bytes(&running);
        list(&running, large);
        let more = resident_bytes(&running) as f64 - before_bytes as f64;
        let stats = running.stats();
        if more / (large as f64) < least {
            least = more / large as f64;
            let own = stats.cache.used_bytes as f64 / stats.cache.entries as f64;
            note = format!("{} entries, {own:.1} B each by its own account", stats.cache.entries);
        }
    }
    report.row(Row {
        work: format!("memory of a cached entry, {large} entries"),
        ours: Measure::Bytes(least),
        against: None,
        bar: Some(ENTRY_BYTES_MAX),
        note,
    });
}

/// What a gateway takes that lists a directory which its cache does not hold.
pub fn of_a_small_cache(bench: &Bench, report: &mut Report) {
    let huge = bench.sizes.huge;
    let tree = bench.flat(&[huge]);
    let cache_bytes = (TIGHT_BYTES / TIGHT_ENTRIES.div_ceil(huge)).to_string();
    let running = start(bench, &tree, &cache_bytes);
    let before = running.brick_requests();
    list(&running, huge);
    list(&running, huge);
    let asked = running.brick_requests() - before;
    report.note_policy(&running.stats().eviction);
    report.row(Row {
        work: format!("gateway with --cache-bytes {cache_bytes}, {huge} entries listed twice"),
        ours: Measure::Bytes(running.gateway().resident_peak_bytes() as f64),
        against: None,
        bar: Some(RESIDENT_BYTES_MAX),
        note: format!("peak resident; {asked} to bricks"),
    });
}

fn start(bench: &Bench, tree: &std::path::Path, cache_bytes: &str) -> Installation {
    let mut setup = bench.setup(tree);
    setup.gateway_args.extend(["--cache-bytes".into(), cache_bytes.into()]);
    setup.start()
}

fn list(running: &Installation, entries: usize) {
    let listed = time(&mut running.command("find", &format!("/{}", data::flat_name(entries))));
    listed.expect("it is listed");
}

fn resident_bytes(running: &Installation) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", running.gateway().id()));
    let status = status.expect("the gateway lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("a number of kB") * 1024
}
