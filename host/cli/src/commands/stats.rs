//! `portcullis stats`: what a gateway tells of itself.

use portcullis_client::Address;
use portcullis_wire::stats::{
    BrickStats, CacheStats, EvictionStats, GatewayStats, InliningStats, PrefetchStats, WatchStats,
};

use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;
use crate::session::{Connect, address_parser};
use crate::units::show_bytes;

/// Show what a gateway tells of itself; needs the admin identity
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The gateway: pc://HOST:PORT/
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let stats = arguments.connect.stats(&arguments.address).await?;
    let mut output = Output::stdout()?;
    if arguments.json {
        push_line(output.buffer(), &stats);
    } else {
        output.write(table(&stats).as_bytes())?;
    }
    output.flush()
}

/// The figures, one a line.
fn table(stats: &GatewayStats) -> String {
    let mut rows = vec![
        ("gateway", format!("portcullis {}, up {} s", stats.version, stats.uptime_ms / 1000)),
        ("memory", show_bytes(stats.resident_bytes)),
        ("connections", stats.connections.to_string()),
        ("bad frames", stats.bad_frames.to_string()),
        ("requests", counts(&stats.requests)),
        ("failures", counts(&stats.failures)),
    ];
    rows.extend(cache_rows(&stats.cache));
    rows.extend(eviction_rows(&stats.eviction));
    rows.extend(prefetch_rows(&stats.prefetch));
    rows.extend(inlining_rows(&stats.inlining));
    rows.extend(watch_rows(&stats.watch));
    rows.extend(stats.bricks.iter().flat_map(brick_rows));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn cache_rows(cache: &CacheStats) -> Vec<(&'static str, String)> {
    let hits = |hits: u64, misses: u64| match hits + misses {
        0 => "none asked".to_owned(),
        all => format!("{hits} of {all} ({:.1} %)", 100.0 * hits as f64 / all as f64),
    };
    vec![
        (
            "cache",
            format!("{} of {}", show_bytes(cache.used_bytes), show_bytes(cache.capacity_bytes)),
        ),
        ("  entries", format!("{} in {} directories", cache.entries, cache.directories)),
        ("  lookups", hits(cache.lookup_hits + cache.negative_hits, cache.lookup_misses)),
        ("  attributes", hits(cache.getattr_hits, cache.getattr_misses)),
        ("  link targets", hits(cache.readlink_hits, cache.readlink_misses)),
        ("  listings", hits(cache.list_hits, cache.list_misses)),
        ("  fills", format!("{} joined, {} late", cache.fills_joined, cache.fills_late)),
        (
            "  left",
            format!(
                "{} proposed, {} in a shortfall, {} no longer true",
                cache.evicted_proposed, cache.evicted_shortfall, cache.invalidated
            ),
        ),
    ]
}

fn eviction_rows(eviction: &EvictionStats) -> Vec<(&'static str, String)> {
    let digest = match eviction.digest.get(..12) {
        Some(start) => format!(", sha256 {start}"),
        None => String::new(),
    };
    let mut rows = vec![("eviction", format!("{} ({}{digest})", eviction.name, eviction.kind))];
    if !eviction.fallback_reason.is_empty() {
        rows.push(("  fallback", eviction.fallback_reason.clone()));
    }
    rows.push((
        "  policy",
        format!(
            "{} calls, {} events, {} ms of CPU",
            eviction.calls, eviction.events, eviction.cpu_ms
        ),
    ));
    rows.push((
        "  victims",
        format!(
            "{} accepted, {} stale, {} repeated, {} foreign",
            eviction.accepted, eviction.stale, eviction.repeated, eviction.foreign
        ),
    ));
    rows
}

fn inlining_rows(inlining: &InliningStats) -> Vec<(&'static str, String)> {
    let InliningStats { name, kind, inlined, delivered, inlined_bytes, .. } = inlining;
    let mut rows = vec![(
        "inlining",
        format!("{name} ({kind}), {inlined} of {delivered} small files sent with their content"),
    )];
    if !inlining.digest.is_empty() {
        rows.push(("  sha256", inlining.digest.clone()));
    }
    if !inlining.fallback_reason.is_empty() {
        rows.push(("  fallback of", inlining.fallback_reason.clone()));
    }
    if *delivered > 0 {
        let InliningStats { read, inlined_read, contents, used_bytes, .. } = inlining;
        rows.push((
            "  read",
            format!("{read} of all, {inlined_read} of those sent along ({inlined_bytes} bytes)"),
        ));
        rows.push(("  kept", format!("{contents} contents, {used_bytes} bytes")));
    }
    rows
}

fn prefetch_rows(prefetch: &PrefetchStats) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        (
            "prefetch",
            format!("{} ({}), {} directories begun", prefetch.name, prefetch.kind, prefetch.begun),
        ),
        (
            "  of those",
            format!(
                "{} used, {} late, {} wasted, {} cancelled, {} failed",
                prefetch.used, prefetch.late, prefetch.wasted, prefetch.cancelled, prefetch.failed
            ),
        ),
    ];
    if !prefetch.digest.is_empty() {
        rows.push(("  sha256", prefetch.digest.clone()));
    }
    if !prefetch.fallback_reason.is_empty() {
        rows.push(("  fallback of", prefetch.fallback_reason.clone()));
    }
    if prefetch.calls > 0 {
        rows.push((
            "  component",
            format!(
                "{} calls, {} events in {} batches, {} ms CPU",
                prefetch.calls, prefetch.events, prefetch.batches, prefetch.cpu_ms
            ),
        ));
        rows.push((
            "  answers",
            format!(
                "{} accepted, {} stale, {} repeated, {} foreign, {} too many",
                prefetch.accepted,
                prefetch.stale,
                prefetch.repeated,
                prefetch.foreign,
                prefetch.excess
            ),
        ));
    }
    rows
}

fn watch_rows(watch: &WatchStats) -> Vec<(&'static str, String)> {
    vec![
        ("watch", format!("{} clients, {} rounds under way", watch.sessions, watch.rounds)),
        ("  changes", format!("{} told, {} recalled by the brick", watch.told, watch.recalled)),
        ("  lease", format!("{} ms left at the brick", watch.lease_left_ms)),
        ("  notices", format!("{} on the brick", watch.notices.name())),
    ]
}

fn brick_rows(brick: &BrickStats) -> Vec<(&'static str, String)> {
    let state = if brick.connected { "connected" } else { "not connected" };
    let mut rows = vec![
        ("brick", format!("{}, {state}, {} connections made", brick.address, brick.connects)),
        ("  requests", counts(&brick.requests)),
        ("  received", show_bytes(brick.received_bytes)),
    ];
    if !brick.last_error.is_empty() {
        rows.push(("  last error", brick.last_error.clone()));
    }
    rows
}

fn counts(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let counted: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if counted.is_empty() { "none".into() } else { counted.join(", ") }
}
