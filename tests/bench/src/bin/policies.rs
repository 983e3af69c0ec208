//! What it costs that the eviction policy is a component: the same S3-FIFO inside the host and as a
//! component, in turn, in one gateway, with half of the lookups missing and with none.
//! `policies [SECONDS]` a run; 10 pairs of each.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use portcullis_bench::open_loop::Names;
use portcullis_suite::site::Site;
use portcullis_suite::{dial, tree};
use portcullis_transport::Role;

const PAIRS: usize = 10;
const IN_FLIGHT: u64 = 64;
const CONNECTIONS: usize = 4;
const SECONDS: f64 = 3.0;
/// Student's t for 95 % and 9 degrees of freedom.
const T: f64 = 2.262;

fn main() {
    let given = std::env::args().nth(1);
    let seconds = given.map_or(SECONDS, |given| given.parse().expect("a number of seconds"));
    let time = Duration::from_secs_f64(seconds);
    let export = tempfile::tempdir().expect("a directory");
    tree::wide(export.path(), 100, 500);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for (what, cache) in [("half of the lookups miss", "6MiB"), ("hits only", "64MiB")] {
        let args = ["--cache-bytes", cache, "--prefetch", "none", "--max-age", "1h"];
        let site = Site::start(export.path(), &args);
        let names = runtime.block_on(connect(&site));
        runtime.block_on(names.saturate(IN_FLIGHT, time * 4));
        let before = site.stats();
        let mut ratios = Vec::new();
        for pair in 0..PAIRS {
            let rate = |policy| {
                site.policy("swap", &[policy]).unwrap_or_else(|error| panic!("{error}"));
                runtime.block_on(names.saturate(IN_FLIGHT, time))
            };
            // In turn, each first in half of the pairs.
            let (component, native) = if pair % 2 == 0 {
                let component = rate("built-in");
                (component, rate("s3-fifo"))
            } else {
                let native = rate("s3-fifo");
                (rate("built-in"), native)
            };
            ratios.push(component / native);
        }
        let after = site.stats();
        let hits = after.cache.lookup_hits - before.cache.lookup_hits;
        let misses = after.cache.lookup_misses - before.cache.lookup_misses;
        let (mean, half) = interval(&ratios);
        println!(
            "{what} ({:.0} % did): component / native {mean:.3}, 95 % interval {:.3} to {:.3}",
            100.0 * misses as f64 / (hits + misses) as f64,
            mean - half,
            mean + half
        );
    }
}

/// The mean, and half of the 95 % interval around it.
fn interval(ratios: &[f64]) -> (f64, f64) {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
    (mean, T * (squares / (count - 1.0) / count).sqrt())
}

async fn connect(site: &Site) -> Arc<Names> {
    let (mut connections, mut root) = (Vec::new(), None);
    for _ in 0..CONNECTIONS {
        let address = site.gateway.ready();
        let connected = dial::connect(address, &site.identity(), Role::Client, Role::Gateway).await;
        let (connector, connection) = connected.expect("connected");
        // The connection needs its endpoint for as long as the benchmark runs.
        std::mem::forget(connector);
        root = Some(dial::attach(&connection).await);
        connections.push(connection);
    }
    let root = root.expect("there are connections");
    let mut dirs = Vec::new();
    for number in 0..100 {
        let name = format!("directory-{number:06}");
        let found = dial::lookup(&connections[0], root, name.as_bytes()).await;
        dirs.push(found.expect("it is there").handle);
    }
    Arc::new(Names { connections, dirs, files: 500 })
}
