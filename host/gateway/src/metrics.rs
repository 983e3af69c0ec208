//! Every metric of the gateway, declared in one table, and its Prometheus text form (0.0.4).
//!
//! Names start with `portcullis_`, carry base units, and are part of what users rely on: a name
//! keeps its meaning. Labels have few values: verbs, statuses, kinds, bricks; never paths or users.

use std::collections::BTreeMap;
use std::fmt::Write;

use portcullis_wire::stats::{BrickStats, GatewayStats};

/// How a metric moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: fn(&GatewayStats, &mut Samples<'_>),
}

/// The samples of one metric as they are written.
struct Samples<'a> {
    name: &'static str,
    out: &'a mut String,
}

const METRICS: &[Metric] = &[
    gauge("portcullis_build_info", "Always 1; its labels tell the version.", |stats, out| {
        out.labelled(&[("version", &stats.version)], 1.0);
    }),
    gauge("portcullis_uptime_seconds", "Time since the gateway started.", |stats, out| {
        out.value(stats.uptime_ms as f64 / 1e3);
    }),
    gauge("portcullis_resident_bytes", "Resident memory of the process.", |stats, out| {
        out.value(stats.resident_bytes as f64);
    }),
    counter("portcullis_requests_total", "Requests of clients, by verb.", |stats, out| {
        out.each("verb", &stats.requests);
    }),
    counter(
        "portcullis_request_failures_total",
        "Requests of clients that failed, by status; a name that does not exist is one.",
        |stats, out| out.each("status", &stats.failures),
    ),
    gauge("portcullis_connections", "Clients connected.", |stats, out| {
        out.value(stats.connections as f64);
    }),
    counter(
        "portcullis_connections_refused_total",
        "Connections refused: a foreign certificate, a wrong role, or too many.",
        |stats, out| out.value(stats.refused_connections as f64),
    ),
    counter(
        "portcullis_bad_frames_total",
        "Frames of clients that could not be read.",
        |stats, out| out.value(stats.bad_frames as f64),
    ),
    gauge("portcullis_cache_capacity_bytes", "Bytes the cache may hold.", |stats, out| {
        out.value(stats.cache.capacity_bytes as f64);
    }),
    gauge("portcullis_cache_used_bytes", "Bytes the cache holds.", |stats, out| {
        out.value(stats.cache.used_bytes as f64);
    }),
    gauge(
        "portcullis_cache_entries",
        "Entries the cache holds, negative ones included.",
        |stats, out| out.value(stats.cache.entries as f64),
    ),
    gauge(
        "portcullis_cache_directories",
        "Directories of which the cache holds something.",
        |stats, out| out.value(stats.cache.directories as f64),
    ),
    gauge("portcullis_cache_objects", "Objects that eviction chooses from.", |stats, out| {
        out.value(stats.cache.objects as f64);
    }),
    counter(
        "portcullis_cache_hits_total",
        "Requests answered from the cache, by kind; negative: no such name.",
        |stats, out| {
            let cache = &stats.cache;
            out.labelled(&[("kind", "lookup")], cache.lookup_hits as f64);
            out.labelled(&[("kind", "negative")], cache.negative_hits as f64);
            out.labelled(&[("kind", "getattr")], cache.getattr_hits as f64);
            out.labelled(&[("kind", "readlink")], cache.readlink_hits as f64);
            out.labelled(&[("kind", "list")], cache.list_hits as f64);
        },
    ),
    counter(
        "portcullis_cache_misses_total",
        "Looks into the cache that found nothing, by kind.",
        |stats, out| {
            let cache = &stats.cache;
            out.labelled(&[("kind", "lookup")], cache.lookup_misses as f64);
            out.labelled(&[("kind", "getattr")], cache.getattr_misses as f64);
            out.labelled(&[("kind", "readlink")], cache.readlink_misses as f64);
            out.labelled(&[("kind", "list")], cache.list_misses as f64);
        },
    ),
    counter(
        "portcullis_cache_fills_joined_total",
        "Misses that joined a request on its way to the brick instead of sending one.",
        |stats, out| out.value(stats.cache.fills_joined as f64),
    ),
    counter(
        "portcullis_cache_fills_late_total",
        "Replies not cached because they were older than an invalidation.",
        |stats, out| out.value(stats.cache.fills_late as f64),
    ),
    counter(
        "portcullis_cache_evictions_total",
        "Objects evicted, by who chose them: the policy, or the cache in a shortfall.",
        |stats, out| {
            out.labelled(&[("reason", "proposed")], stats.cache.evicted_proposed as f64);
            out.labelled(&[("reason", "shortfall")], stats.cache.evicted_shortfall as f64);
        },
    ),
    counter(
        "portcullis_cache_invalidations_total",
        "Objects that left the cache because they were no longer true.",
        |stats, out| out.value(stats.cache.invalidated as f64),
    ),
    gauge(
        "portcullis_eviction_policy_info",
        "Always 1; its labels tell the active eviction policy.",
        |stats, out| {
            let (name, kind) = (&stats.eviction.name, &stats.eviction.kind);
            out.labelled(
                &[("name", name), ("kind", kind), ("digest", &stats.eviction.digest)],
                1.0,
            );
        },
    ),
    gauge(
        "portcullis_eviction_fallback",
        "1 where the native policy stands in for a component that failed.",
        |stats, out| out.flag(!stats.eviction.fallback_reason.is_empty()),
    ),
    counter("portcullis_eviction_calls_total", "Calls into the eviction policy.", |stats, out| {
        out.value(stats.eviction.calls as f64);
    }),
    counter(
        "portcullis_eviction_batches_total",
        "Batches of events handed to the eviction policy.",
        |stats, out| out.value(stats.eviction.batches as f64),
    ),
    counter(
        "portcullis_eviction_events_total",
        "Events handed to the eviction policy.",
        |stats, out| out.value(stats.eviction.events as f64),
    ),
    counter(
        "portcullis_eviction_hits_dropped_total",
        "Hits not told to the eviction policy, because too many objects were touched at once.",
        |stats, out| out.value(stats.eviction.hits_dropped as f64),
    ),
    counter(
        "portcullis_eviction_proposals_total",
        "Victims proposed by the eviction policy, by what became of them.",
        |stats, out| {
            out.labelled(&[("outcome", "accepted")], stats.eviction.accepted as f64);
            out.labelled(&[("outcome", "stale")], stats.eviction.stale as f64);
            out.labelled(&[("outcome", "repeated")], stats.eviction.repeated as f64);
            out.labelled(&[("outcome", "foreign")], stats.eviction.foreign as f64);
        },
    ),
    counter(
        "portcullis_eviction_cpu_seconds_total",
        "CPU time spent in the eviction policy.",
        |stats, out| out.value(stats.eviction.cpu_ms as f64 / 1e3),
    ),
    gauge(
        "portcullis_prefetch_policy_info",
        "Always 1; its labels tell the active prefetch policy.",
        |stats, out| {
            let (name, kind) = (&stats.prefetch.name, &stats.prefetch.kind);
            out.labelled(
                &[("name", name), ("kind", kind), ("digest", &stats.prefetch.digest)],
                1.0,
            );
        },
    ),
    gauge(
        "portcullis_prefetch_fallback",
        "1 where the native policy stands in for a prefetch component that failed.",
        |stats, out| out.flag(!stats.prefetch.fallback_reason.is_empty()),
    ),
    counter(
        "portcullis_prefetch_answers_total",
        "Answers of prefetch components by what came of them.",
        |stats, out| {
            out.labelled(&[("outcome", "accepted")], stats.prefetch.accepted as f64);
            out.labelled(&[("outcome", "stale")], stats.prefetch.stale as f64);
            out.labelled(&[("outcome", "repeated")], stats.prefetch.repeated as f64);
            out.labelled(&[("outcome", "foreign")], stats.prefetch.foreign as f64);
            out.labelled(&[("outcome", "excess")], stats.prefetch.excess as f64);
        },
    ),
    counter(
        "portcullis_prefetch_cpu_seconds_total",
        "CPU time spent in prefetch components.",
        |stats, out| out.value(stats.prefetch.cpu_ms as f64 / 1e3),
    ),
    counter(
        "portcullis_prefetch_begun_total",
        "Directories listed at the brick before a client asked for them.",
        |stats, out| out.value(stats.prefetch.begun as f64),
    ),
    counter(
        "portcullis_prefetch_outcomes_total",
        "What became of those, once it is decided; late: a client waited for the rest.",
        |stats, out| {
            out.labelled(&[("outcome", "used")], stats.prefetch.used as f64);
            out.labelled(&[("outcome", "late")], stats.prefetch.late as f64);
            out.labelled(&[("outcome", "wasted")], stats.prefetch.wasted as f64);
            out.labelled(&[("outcome", "cancelled")], stats.prefetch.cancelled as f64);
            out.labelled(&[("outcome", "failed")], stats.prefetch.failed as f64);
        },
    ),
    gauge(
        "portcullis_inlining_policy_info",
        "Always 1; its labels tell the active inlining policy.",
        |stats, out| {
            let (name, kind) = (&stats.inlining.name, &stats.inlining.kind);
            out.labelled(
                &[("name", name), ("kind", kind), ("digest", &stats.inlining.digest)],
                1.0,
            );
        },
    ),
    gauge(
        "portcullis_inlining_fallback",
        "1 where the native policy stands in for an inlining component that failed.",
        |stats, out| out.flag(!stats.inlining.fallback_reason.is_empty()),
    ),
    counter(
        "portcullis_inlining_files_total",
        "Files delivered to clients that take contents along: all, read, sent with their content, and \
         of those read.",
        |stats, out| {
            out.labelled(&[("what", "delivered")], stats.inlining.delivered as f64);
            out.labelled(&[("what", "read")], stats.inlining.read as f64);
            out.labelled(&[("what", "inlined")], stats.inlining.inlined as f64);
            out.labelled(&[("what", "inlined_read")], stats.inlining.inlined_read as f64);
        },
    ),
    counter(
        "portcullis_inlining_bytes_total",
        "Bytes of content that travelled along with listings.",
        |stats, out| out.value(stats.inlining.inlined_bytes as f64),
    ),
    gauge(
        "portcullis_inlining_kept_bytes",
        "Bytes of contents kept to travel along.",
        |stats, out| out.value(stats.inlining.used_bytes as f64),
    ),
    counter(
        "portcullis_inlining_contents_total",
        "Contents by what became of them: kept, late (older than an invalidation), evicted, no longer true.",
        |stats, out| {
            out.labelled(&[("outcome", "kept")], stats.inlining.filled as f64);
            out.labelled(&[("outcome", "late")], stats.inlining.late as f64);
            out.labelled(&[("outcome", "evicted")], stats.inlining.evicted as f64);
            out.labelled(&[("outcome", "invalidated")], stats.inlining.invalidated as f64);
        },
    ),
    counter(
        "portcullis_inlining_calls_total",
        "Times that inlining policies were asked for rules.",
        |stats, out| out.value(stats.inlining.calls as f64),
    ),
    counter(
        "portcullis_inlining_cpu_seconds_total",
        "CPU time spent in inlining policies.",
        |stats, out| out.value(stats.inlining.cpu_ms as f64 / 1e3),
    ),
    gauge(
        "portcullis_watch_sessions",
        "Clients that cache and are told of changes.",
        |stats, out| out.value(stats.watch.sessions as f64),
    ),
    gauge(
        "portcullis_watch_rounds",
        "Changes that clients are told of and have not all acknowledged.",
        |stats, out| out.value(stats.watch.rounds as f64),
    ),
    counter(
        "portcullis_watch_changes_total",
        "Changes passed on, by where to: told to clients, or recalled by the brick.",
        |stats, out| {
            out.labelled(&[("direction", "told")], stats.watch.told as f64);
            out.labelled(&[("direction", "recalled")], stats.watch.recalled as f64);
        },
    ),
    gauge(
        "portcullis_brick_lease_seconds",
        "For how long answers from the cache are allowed unless the lease is renewed.",
        |stats, out| out.value(stats.watch.lease_left_ms as f64 / 1e3),
    ),
    gauge(
        "portcullis_brick_notices_info",
        "Always 1; its label tells how the brick notices changes not made through it.",
        |stats, out| out.labelled(&[("notices", stats.watch.notices.name())], 1.0),
    ),
    gauge("portcullis_brick_up", "1 while there is a connection to the brick.", |stats, out| {
        out.bricks(stats, |brick| f64::from(u8::from(brick.connected)));
    }),
    counter("portcullis_brick_connects_total", "Connections made to the brick.", |stats, out| {
        out.bricks(stats, |brick| brick.connects as f64);
    }),
    counter(
        "portcullis_brick_received_bytes_total",
        "Bytes of reply frames received from the brick.",
        |stats, out| out.bricks(stats, |brick| brick.received_bytes as f64),
    ),
    counter(
        "portcullis_brick_requests_total",
        "Requests sent to the brick, by verb.",
        |stats, out| {
            for brick in &stats.bricks {
                for (verb, count) in &brick.requests {
                    out.labelled(&[("brick", &brick.address), ("verb", verb)], *count as f64);
                }
            }
        },
    ),
];

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&GatewayStats, &mut Samples<'_>),
) -> Metric {
    Metric { name, kind: Kind::Counter, help, samples }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&GatewayStats, &mut Samples<'_>),
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, samples }
}

/// The page a scraper gets.
pub(crate) fn render(stats: &GatewayStats) -> String {
    let mut out = String::with_capacity(8 * 1024);
    for Metric { name, kind, help, samples } in METRICS {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        samples(stats, &mut Samples { name, out: &mut out });
    }
    out
}

impl Samples<'_> {
    fn value(&mut self, value: f64) {
        self.labelled(&[], value);
    }

    fn flag(&mut self, flag: bool) {
        self.value(f64::from(u8::from(flag)));
    }

    fn each(&mut self, label: &str, counts: &BTreeMap<String, u64>) {
        for (of, count) in counts {
            self.labelled(&[(label, of)], *count as f64);
        }
    }

    fn bricks(&mut self, stats: &GatewayStats, value: fn(&BrickStats) -> f64) {
        for brick in &stats.bricks {
            self.labelled(&[("brick", &brick.address)], value(brick));
        }
    }

    fn labelled(&mut self, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(self.name);
        for (number, (label, text)) in labels.iter().enumerate() {
            self.out.push(if number == 0 { '{' } else { ',' });
            self.out.push_str(label);
            self.out.push_str("=\"");
            for letter in text.chars() {
                match letter {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_and_are_declared_once() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        for metric in METRICS {
            let name = metric.name;
            assert!(name.starts_with("portcullis_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn labels_are_escaped_and_values_follow_their_names() {
        let mut stats = GatewayStats { version: "a\"b\\c\nd".into(), ..GatewayStats::default() };
        stats.requests.insert("lookup".into(), 12_345_678_901);
        stats.bricks.push(BrickStats {
            address: "h:1".into(),
            connected: true,
            ..Default::default()
        });
        let page = render(&stats);
        let lines: Vec<_> = page.lines().collect();
        for expected in [
            r#"portcullis_build_info{version="a\"b\\c\nd"} 1"#,
            r#"portcullis_requests_total{verb="lookup"} 12345678901"#,
            r#"portcullis_brick_up{brick="h:1"} 1"#,
            "portcullis_cache_entries 0",
            "# TYPE portcullis_cache_entries gauge",
        ] {
            assert!(lines.contains(&expected), "{expected} is missing from\n{page}");
        }
    }
}
