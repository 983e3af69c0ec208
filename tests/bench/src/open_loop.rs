//! Lookups at a fixed rate, whether the answers come or not: what a client waits for is counted from
//! when it would have asked, so that a pause delays all that was due in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use portcullis_core::Handle;
use portcullis_transport::Connection;
use portcullis_wire::{Reply, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How often what is due is sent.
const TICK: Duration = Duration::from_micros(500);

/// See [`Names::sustained`].
const IN_TIME: Duration = Duration::from_millis(5);

/// What is looked up: the names `file-00000000000` and on of some directories.
pub struct Names {
    /// Over these connections, in turn.
    pub connections: Vec<Connection>,
    /// In these directories.
    pub dirs: Vec<Handle>,
    /// So many in each.
    pub files: u64,
}

/// What came of some lookups.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How long each took, from when it was due, in ascending order.
    pub latencies: Vec<Duration>,
    /// Lookups that failed.
    pub failed: u64,
}

impl Outcome {
    fn add(&mut self, (latency, is_answered): (Duration, bool)) {
        self.latencies.push(latency);
        self.failed += u64::from(!is_answered);
    }

    /// The latency that so many of a thousand lookups stayed within.
    pub fn per_mille(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() as f64 * share / 1_000.0) as usize;
        self.latencies.get(at.min(last)).copied().unwrap_or_default()
    }
}

impl Names {
    /// Looks up the name of this number; the same number is the same name. Most are of a few.
    pub async fn lookup(&self, number: u64) -> bool {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let dir = self.dirs[(mixed >> 33) as usize % self.dirs.len()];
        let low = (mixed >> 13) % self.files;
        // Half of them are of a quarter of the names.
        let file = if mixed & 0x100 == 0 { low } else { low / 4 };
        let name = format!("file-{file:011}").into_bytes();
        let connection = &self.connections[number as usize % self.connections.len()];
        let answer = connection.call(&Request::Lookup { dir, name }).await;
        matches!(answer, Ok(Reply::Entry(_)))
    }

    /// Lookups a second with so many in flight.
    pub async fn saturate(self: &Arc<Self>, in_flight: u64, time: Duration) -> f64 {
        let (begun, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut lanes = JoinSet::new();
        for lane in 0..in_flight {
            let (names, done) = (self.clone(), done.clone());
            lanes.spawn(async move {
                let mut number = lane;
                while begun.elapsed() < time {
                    names.lookup(number).await;
                    done.fetch_add(1, Ordering::Relaxed);
                    number += in_flight;
                }
            });
        }
        while lanes.join_next().await.is_some() {}
        done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
    }

    /// Lookups a second, at a fixed rate, that are answered in time: the highest rate, in steps of a
    /// tenth below `most`, at which half of the answers come within [`IN_TIME`] of when they were due.
    pub async fn sustained(self: &Arc<Self>, most: f64, time: Duration) -> f64 {
        let mut rate = most;
        while rate > most / 10.0 {
            let stop = AtomicBool::new(false);
            let (outcome, ()) = tokio::join!(self.at_rate(rate, &stop), async {
                sleep(time).await;
                stop.store(true, Ordering::Relaxed);
            });
            if outcome.per_mille(500.0) < IN_TIME {
                return rate;
            }
            rate -= most / 10.0;
        }
        rate
    }

    /// Looks up `rate` names a second until `stop`.
    pub async fn at_rate(self: &Arc<Self>, rate: f64, stop: &AtomicBool) -> Outcome {
        let (begun, mut outcome) = (Instant::now(), Outcome::default());
        let (mut sent, mut lookups) = (0_u64, JoinSet::new());
        while !stop.load(Ordering::Relaxed) {
            let due = (begun.elapsed().as_secs_f64() * rate) as u64;
            while sent < due {
                let due_at = begun + Duration::from_secs_f64(sent as f64 / rate);
                let (names, number) = (self.clone(), sent);
                lookups.spawn(async move {
                    let is_answered = names.lookup(number).await;
                    (due_at.elapsed(), is_answered)
                });
                sent += 1;
            }
            while let Some(lookup) = lookups.try_join_next() {
                outcome.add(lookup.expect("no lookup panics"));
            }
            sleep(TICK).await;
        }
        while let Some(lookup) = lookups.join_next().await {
            outcome.add(lookup.expect("no lookup panics"));
        }
        outcome.latencies.sort_unstable();
        outcome
    }
}
