//! Swaps of the eviction policy under load: what a client notices of them, how long each takes, and
//! what they leave in memory. `swaps [NUMBER]`; 1,000 where none is given.
//!
//! Three pairs of runs at half of the rate at which the gateway answers in time, each with a third of
//! the swaps, one after the other without a pause, and then as long without any.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_bench::open_loop::{Names, Outcome};
use portcullis_bench::print_policy;
use portcullis_suite::site::Site;
use portcullis_suite::{dial, policy, tree};
use portcullis_transport::{Connection, Role};
use portcullis_wire::message::{PolicyCommand, PolicyKind, PolicySource};
use portcullis_wire::stats::GatewayStats;
use portcullis_wire::{Reply, Request};

const DIRS: usize = 260;
const FILES: usize = 500;
/// So much that about 100,000 of the names are resident, and each new one costs another its place.
const CACHE: &str = "32MiB";
const CONNECTIONS: usize = 4;
const IN_FLIGHT: u64 = 64;
const PAIRS: usize = 3;
const SWAPS: usize = 1_000;
/// After which swap memory is looked at first.
const EARLY: usize = 10;

fn main() {
    let swaps = std::env::args().nth(1).map_or(SWAPS, |given| given.parse().expect("a number"));
    let export = tempfile::tempdir().expect("a directory");
    tree::wide(export.path(), DIRS, FILES);
    let state = tempfile::tempdir().expect("a directory");
    let dir = state.path().join("state").to_string_lossy().into_owned();
    let site = Site::start(
        export.path(),
        &["--cache-bytes", CACHE, "--prefetch", "none", "--max-age", "1h", "--state", &dir],
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run(&site, swaps));
    print_policy(&site.stats());
}

async fn run(site: &Site, swaps: usize) {
    let mut connectors = Vec::new();
    let mut connect = async |role| {
        let address = site.gateway.ready();
        let connected = dial::connect(address, &site.identity(), role, Role::Gateway).await;
        let (connector, connection) = connected.expect("connected");
        connectors.push(connector);
        connection
    };
    let admin = connect(Role::Admin).await;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(Role::Client).await);
    }
    let mut root = None;
    for connection in &connections {
        root = Some(dial::attach(connection).await);
    }
    let root = root.expect("there are connections");
    let mut dirs = Vec::new();
    for number in 0..DIRS {
        let name = format!("directory-{number:06}");
        let found = dial::lookup(&connections[0], root, name.as_bytes()).await;
        dirs.push(found.expect("it is there").handle);
    }
    let names = Arc::new(Names { connections, dirs, files: FILES as u64 });
    // Fills the cache, too.
    names.saturate(IN_FLIGHT, Duration::from_secs(15)).await;
    let most = names.saturate(IN_FLIGHT, Duration::from_secs(5)).await;
    let sustained = names.sustained(most, Duration::from_secs(4)).await;
    let rate = sustained / 2.0;
    let stats = stats(&admin).await;
    println!(
        "{most:.0} lookups a second with {IN_FLIGHT} in flight, {sustained:.0} at a fixed rate, \
         {rate:.0} from here on; {} entries resident, {} objects, {} of {} bytes",
        stats.cache.entries,
        stats.cache.objects,
        stats.cache.used_bytes,
        stats.cache.capacity_bytes
    );
    let mut swapper = Swapper::new(admin);
    let mut extra = Vec::new();
    for pair in 0..PAIRS {
        let (stop, begun) = (AtomicBool::new(false), Instant::now());
        let swapping = async {
            for _ in 0..swaps.div_ceil(PAIRS) {
                swapper.swap().await;
            }
            stop.store(true, Ordering::Relaxed);
        };
        let (with, ()) = tokio::join!(names.at_rate(rate, &stop), swapping);
        let time = begun.elapsed();
        let stop = AtomicBool::new(false);
        let waiting = async {
            tokio::time::sleep(time).await;
            stop.store(true, Ordering::Relaxed);
        };
        let (without, ()) = tokio::join!(names.at_rate(rate, &stop), waiting);
        println!("pair {}: {:.0} s each", pair + 1, time.as_secs_f64());
        print_outcome("with swaps", &with);
        print_outcome("without", &without);
        let (with, without) = (with.per_mille(999.0), without.per_mille(999.0));
        extra.push((with.as_secs_f64() / without.as_secs_f64(), with.saturating_sub(without)));
    }
    extra.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, difference) = extra[PAIRS / 2];
    println!("p99.9, median of {PAIRS} pairs: {ratio:.2}x, {difference:?} more (1.25x or 1 ms)");
    swapper.report();
}

fn print_outcome(what: &str, outcome: &Outcome) {
    println!(
        "  {what}: {} lookups, {} failed, p50 {:?}, p99 {:?}, p99.9 {:?}",
        outcome.latencies.len(),
        outcome.failed,
        outcome.per_mille(500.0),
        outcome.per_mille(990.0),
        outcome.per_mille(999.0)
    );
}

async fn stats(admin: &Connection) -> GatewayStats {
    match admin.call(&Request::Stats).await {
        Ok(Reply::Stats(stats)) => *stats,
        other => panic!("stats: {other:?}"),
    }
}

/// Swaps shipped policies in turn, and keeps what it saw.
struct Swapper {
    admin: Connection,
    components: Vec<Bytes>,
    times: Vec<Duration>,
    shortfall: u64,
    early_bytes: u64,
    late_bytes: u64,
}

impl Swapper {
    fn new(admin: Connection) -> Self {
        let read = |name| Bytes::from(std::fs::read(policy(name)).expect("it was built"));
        let components = ["lru", "sieve", "s3fifo"].map(read).to_vec();
        Self { admin, components, times: Vec::new(), shortfall: 0, early_bytes: 0, late_bytes: 0 }
    }

    async fn swap(&mut self) {
        let component = self.components[self.times.len() % self.components.len()].clone();
        let source = PolicySource::Component {
            name: "bench".to_owned(),
            len_bytes: component.len() as u32,
            config_len_bytes: Some(0),
        };
        let command = PolicyCommand::Swap { source, force: false };
        let request = Request::Policy { kind: PolicyKind::Eviction, command };
        let begun = Instant::now();
        let active = match self.admin.call_with(&request, &[component]).await {
            Ok(Reply::Policy(status)) => status.active,
            other => panic!("a swap failed: {other:?}"),
        };
        self.times.push(begun.elapsed());
        let stats = stats(&self.admin).await;
        assert_eq!(stats.eviction.digest, active.digest, "the status does not name what is active");
        if self.times.len() == EARLY {
            self.early_bytes = stats.resident_bytes;
        }
        (self.late_bytes, self.shortfall) = (stats.resident_bytes, stats.cache.evicted_shortfall);
    }

    fn report(&mut self) {
        self.times.sort_unstable();
        let [median, most] = [self.times.len() / 2, self.times.len() - 1].map(|at| self.times[at]);
        println!("{} swaps: in effect within {median:?}, at most {most:?} (1 s)", self.times.len());
        println!(
            "resident memory: {} bytes after swap {EARLY}, {} after the last: {:+.2} % (2 %)",
            self.early_bytes,
            self.late_bytes,
            100.0 * (self.late_bytes as f64 / self.early_bytes as f64 - 1.0)
        );
        println!("victims that the cache chose itself since the start: {}", self.shortfall);
    }
}
