//! A block trace as lookups of names through a real gateway, beside its replays, the exact one and one with
//! batches: how far the live path is from what they promise, for each policy and capacity.
//!
//! `truth TRACE [--entries 1000,4000,8000] [--policy lru ...] [--components DIR]`; a policy is the component
//! DIR/NAME.wasm. Requests go in the order of the trace, 16 at once;
//! nothing is prefetched. The names exist, empty files, so that what is cached are entries.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use portcullis_brick::{Brick, BrickConfig};
use portcullis_core::Handle;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::native::native;
use portcullis_core::prefetch::PrefetchChoice;
use portcullis_gateway::{Gateway, GatewayConfig, PolicyChoice, PrefetchPolicyChoice};
use portcullis_replay::{Capacity, Pace, Setup, Trace, formats, replay};
use portcullis_transport::{Connection, Connector, IdentitySet, Role};
use portcullis_wire::stats::GatewayStats;
use portcullis_wire::{Reply, Request};
use tokio::sync::Semaphore;

/// Requests under way at once.
const IN_FLIGHT: usize = 16;
/// Files in one directory.
const DIR_FILES: u64 = 256;
/// By how much live and replayed may differ from this capacity on, in points.
const BAR_POINTS: f64 = 0.5;
const BAR_ENTRIES: u64 = 8_000;
/// How often the policy is called in the replay with batches.
const BATCHED: Pace = Pace::Batched { requests: 64, dropped_per_million: 0 };

#[derive(Debug, Parser)]
struct Arguments {
    trace: PathBuf,
    #[arg(long, value_delimiter = ',', default_value = "1000,2000,4000,8000,16000")]
    entries: Vec<u64>,
    #[arg(
        long = "policy",
        value_delimiter = ',',
        default_value = "lru,sieve,s3-fifo,w-tinylfu,gdsf"
    )]
    policies: Vec<String>,
    /// Where the components are
    #[arg(long, default_value = "target/policies")]
    components: PathBuf,
}

fn main() {
    let arguments = Arguments::parse();
    let name = arguments.trace.display().to_string();
    let content = std::fs::read(&arguments.trace).expect("a trace");
    let trace = Arc::new(formats::read(&name, &content).expect("a trace"));
    println!("{name}: {} requests for {} objects", trace.objects().len(), trace.distinct());
    let tree = tempfile::tempdir().expect("a directory");
    plant(tree.path(), trace.distinct() as u64);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("hit ratios in percent; of the replays, how far the live path is from them in points");
    println!(
        "{:>10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7}",
        "policy", "entries", "live", "exact", "", "batched", ""
    );
    for policy in &arguments.policies {
        for &entries in &arguments.entries {
            let [exact, batched] =
                [Pace::Exact, BATCHED].map(|pace| 100.0 * replayed(&trace, policy, entries, pace));
            let file = arguments.components.join(format!("{}.wasm", policy.replace("s3-", "s3")));
            let live = runtime.block_on(live(&trace, tree.path(), &file, entries));
            let live = 100.0 * live;
            let [from_exact, from_batched] = [live - exact, live - batched];
            let is_near = |points: f64| points.abs() <= BAR_POINTS;
            let bar = match (is_near(from_exact), is_near(from_batched)) {
                _ if entries < BAR_ENTRIES => "",
                (true, true) => "  within 0.5 of both",
                (true, false) => "  within 0.5 of the exact one",
                (false, true) => "  NOT WITHIN 0.5 of the exact one, of the other it is",
                (false, false) => "  NOT WITHIN 0.5",
            };
            println!(
                "{policy:>10} {entries:>8} {live:>7.2} {exact:>7.2} {from_exact:>+7.2} {batched:>8.2} \
                 {from_batched:>+7.2}{bar}"
            );
        }
    }
}

/// An empty file for each object.
fn plant(root: &Path, objects: u64) {
    for dir in 0..objects.div_ceil(DIR_FILES) {
        let path = root.join(dir.to_string());
        std::fs::create_dir(&path).expect("a directory");
        for file in 0..DIR_FILES {
            std::fs::write(path.join(file.to_string()), b"").expect("a file");
        }
    }
}

/// The hit ratio of a replay.
fn replayed(trace: &Trace, policy: &str, entries: u64, pace: Pace) -> f64 {
    let capacity = Capacity::Entries(entries);
    let limits = PolicyLimits { capacity_bytes: capacity.capacity_bytes(), seed: 1 };
    let setup = Setup { capacity, pace, seed: 1, intervals: 1 };
    let policy = native(policy, limits).unwrap_or_else(|| panic!("no native policy {policy}"));
    let Ok(outcome) = replay(trace, setup, policy);
    outcome.total.hit_ratio()
}

/// The share of the requests that cost a real gateway no call to its brick.
async fn live(trace: &Arc<Trace>, tree: &Path, component: &Path, entries: u64) -> f64 {
    let set = IdentitySet::generate().expect("identities");
    let any = ([127, 0, 0, 1], 0).into();
    let brick = Brick::bind(BrickConfig::new(tree, any), &set.identity(Role::Brick).expect("one"));
    let brick = brick.expect("a brick");
    let config = GatewayConfig {
        cache_entries: Some(entries),
        max_age_ms: u64::MAX,
        prefetch: PrefetchPolicyChoice::Native(PrefetchChoice::Nothing),
        eviction: PolicyChoice::File(component.to_owned()),
        ..GatewayConfig::new(brick.local_addr())
    };
    let bricks = tokio::spawn(brick.serve(std::future::pending()));
    let gateway = Gateway::bind(config, &set.identity(Role::Gateway).expect("one"));
    let gateway = gateway.unwrap_or_else(|error| panic!("{}: {error}", component.display()));
    let address = gateway.local_addr();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(gateway.serve(async {
        // An error is the end as well.
        let _ = stopped.await;
    }));
    let client = connect(&set, address, Role::Client).await;
    let admin = connect(&set, address, Role::Admin).await;
    let dirs = dirs(&client, trace.distinct() as u64).await;
    let before = stats(&admin).await;
    ask_all(&client, trace, &dirs).await;
    let after = stats(&admin).await;
    assert!(after.eviction.fallback_reason.is_empty(), "{:?}", after.eviction);
    let hits = after.cache.lookup_hits - before.cache.lookup_hits;
    let unknown = after.cache.lookup_misses - before.cache.lookup_misses;
    let joined = after.cache.fills_joined - before.cache.fills_joined;
    assert_eq!(hits + unknown, trace.objects().len() as u64, "each request is one lookup");
    drop(stop);
    serving.await.expect("it serves to the end");
    bricks.abort();
    // What waits for an answer on its way costs no call to a brick, as in a replay.
    (hits + joined) as f64 / (hits + unknown) as f64
}

/// Asks for the objects of a trace in their order.
async fn ask_all(client: &Connection, trace: &Arc<Trace>, dirs: &HashMap<u64, Handle>) {
    let turns = Arc::new(Semaphore::new(IN_FLIGHT));
    for &object in trace.objects() {
        let turn = turns.clone().acquire_owned().await.expect("never closed");
        let dir = dirs[&(u64::from(object) / DIR_FILES)];
        let name = (u64::from(object) % DIR_FILES).to_string().into_bytes();
        // Sent before the next one is: in the order of the trace.
        let sent = client.stream(&Request::Lookup { dir, name }).await;
        let mut answer = sent.expect("the gateway is there");
        tokio::spawn(async move {
            answer.next().await.expect("an answer");
            drop(turn);
        });
    }
    drop(turns.acquire_many(IN_FLIGHT as u32).await.expect("never closed"));
}

async fn dirs(client: &Connection, objects: u64) -> HashMap<u64, Handle> {
    let attach = Request::Attach { watch: false, client: 1, ended: 0 };
    let root = match client.call(&attach).await {
        Ok(Reply::Attached { root, .. }) => root.handle,
        other => panic!("attach: {other:?}"),
    };
    let mut dirs = HashMap::new();
    for dir in 0..objects.div_ceil(DIR_FILES) {
        let request = Request::Lookup { dir: root, name: dir.to_string().into_bytes() };
        match client.call(&request).await {
            Ok(Reply::Entry(entry)) => dirs.insert(dir, entry.handle),
            other => panic!("{dir}: {other:?}"),
        };
    }
    dirs
}

async fn connect(set: &IdentitySet, gateway: std::net::SocketAddr, role: Role) -> Connection {
    let identity = set.identity(role).expect("an identity");
    let connector = Connector::new(&identity, gateway).expect("a connector");
    connector.connect(gateway, Role::Gateway).await.expect("a connection")
}

async fn stats(admin: &Connection) -> GatewayStats {
    match admin.call(&Request::Stats).await {
        Ok(Reply::Stats(stats)) => *stats,
        other => panic!("stats: {other:?}"),
    }
}
