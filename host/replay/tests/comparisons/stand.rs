//! A cache in two halves, whose requests are those of a trace.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use portcullis_core::ab::{Experiment, Plan, Reading, Report, Side, Sides, Stage};
use portcullis_core::cache::{Answer, CacheConfig, CacheHalf, DentryCache, Filled, Ticket};
use portcullis_core::eviction::native::native;
use portcullis_core::eviction::{Event, EvictionHost, EvictionPolicy, PolicyLimits};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_VICTIMS_MAX};
use portcullis_core::{Attr, Entry, FileKind, Handle};
use portcullis_replay::Trace;

/// Objects of the trace in one directory.
const DIR_OBJECTS: u64 = 32;
/// Requests between two turns of the policies, as they are under load.
pub(crate) const TURN: usize = 64;
/// Requests on their way to a brick at a time.
const IN_FLIGHT: usize = 16;
/// Requests between two readings.
const READING: usize = 500;

/// What is compared, and how.
pub(crate) struct Comparison<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) incumbent: &'a str,
    pub(crate) candidate: &'a str,
    pub(crate) entries: u64,
    pub(crate) period_requests: u64,
    pub(crate) seed: u64,
}

/// What came of it.
pub(crate) struct Ended {
    pub(crate) report: Report,
    /// Requests of the trace that each period of A/B measured.
    pub(crate) measured: Vec<Range<usize>>,
}

/// Requests on their way to a brick.
#[derive(Default)]
struct UnderWay(VecDeque<(Ticket, Entry)>);

impl UnderWay {
    /// Asks for an object of a trace; whether that cost no call to a brick.
    fn ask(&mut self, cache: &DentryCache<()>, now_ms: u64, key: u64) -> bool {
        let (dir, name) = (handle(key / DIR_OBJECTS), key.to_string());
        let answer = cache.lookup(now_ms, &dir, name.as_bytes(), || ());
        let hit = !matches!(answer, Answer::Lead(_));
        if let Answer::Lead(ticket) = answer {
            self.0.push_back((ticket, entry(1 << 60 | key)));
        }
        if self.0.len() == IN_FLIGHT
            && let Some((ticket, entry)) = self.0.pop_front()
        {
            cache.fill(now_ms, ticket, &Filled::Entry(entry));
        }
        hit
    }
}

fn empty(entries: u64, seed: u64) -> Arc<DentryCache<()>> {
    let config = CacheConfig { capacity_bytes: 0, max_age_ms: u64::MAX, seed };
    Arc::new(DentryCache::of_entries(entries, config))
}

/// The share of the requests of a trace that cost no call to a brick, with a whole cache of so many
/// entries, from 0 to 1.
pub(crate) fn hit_ratio(trace: &Trace, name: &str, entries: u64) -> f64 {
    let cache = empty(entries, 1);
    let mut driver = Driver::start(cache.clone(), name, 1);
    let (mut under_way, mut hits) = (UnderWay::default(), 0);
    for (at, &object) in trace.objects().iter().enumerate() {
        hits += u64::from(under_way.ask(&cache, at as u64, trace.key(object)));
        if at % TURN == 0 {
            driver.turn(at as u64);
        }
    }
    hits as f64 / trace.objects().len() as f64
}

/// A policy at work, its turns taken by the test.
struct Driver {
    host: Arc<dyn EvictionHost>,
    policy: Box<dyn EvictionPolicy>,
    events: Vec<Event>,
}

impl Driver {
    fn start(host: Arc<dyn EvictionHost>, name: &str, seed: u64) -> Self {
        let capacity_bytes = host.usage().1;
        let policy = native(name, PolicyLimits { capacity_bytes, seed }).expect("it has a policy");
        let mut driver = Self { host, policy, events: Vec::new() };
        driver.host.restart(&mut driver.events);
        driver.tell(0);
        driver
    }

    fn tell(&mut self, now_ms: u64) {
        for batch in self.events.chunks(POLICY_EVENTS_MAX) {
            self.policy.on_events(now_ms, batch);
        }
        self.events.clear();
    }

    fn turn(&mut self, now_ms: u64) {
        loop {
            let shortage = self.host.shortage();
            while self.host.drain(POLICY_EVENTS_MAX, &mut self.events) {
                self.tell(now_ms);
            }
            self.tell(now_ms);
            if shortage == 0 {
                return;
            }
            let victims = self.policy.propose(now_ms, shortage.min(POLICY_VICTIMS_MAX));
            let offered = self.host.offer(&victims);
            assert_eq!(offered.foreign, 0, "a policy knows of its own half only");
            if offered.accepted == 0 {
                return;
            }
        }
    }
}

fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

fn entry(number: u64) -> Entry {
    let attr = Attr { ino: number, mode: 0o100_644, nlink: 1, ..Attr::default() };
    Entry { handle: handle(number), attr: Some(attr), kind: FileKind::Regular, target: None }
}

impl Comparison<'_> {
    fn drivers(&self, cache: &Arc<DentryCache<()>>, sides: Sides) -> [Driver; 2] {
        [0, 1].map(|half| {
            let name = match sides[half] {
                Side::Incumbent => self.incumbent,
                Side::Candidate => self.candidate,
            };
            Driver::start(Arc::new(CacheHalf::new(cache.clone(), half)), name, self.seed)
        })
    }

    /// Runs it, as far as the trace goes.
    pub(crate) fn run(&self) -> Ended {
        let cache = empty(self.entries, self.seed);
        cache.set_split(true);
        let mut experiment = Experiment::new(Plan {
            period_requests: self.period_requests,
            period_ms_max: u64::MAX,
            capacity_bytes: cache.capacity_bytes(),
            candidate_first: self.seed as usize % 2,
        });
        let mut drivers = self.drivers(&cache, experiment.sides());
        let mut under_way = UnderWay::default();
        let mut measured = Vec::new();
        let mut stage_began = 0;
        for (at, &object) in self.trace.objects().iter().enumerate() {
            let now_ms = at as u64;
            under_way.ask(&cache, now_ms, self.trace.key(object));
            if at % TURN == 0 {
                drivers.iter_mut().for_each(|driver| driver.turn(now_ms));
            }
            if at % READING != 0 {
                continue;
            }
            let (stage, sides) = (experiment.stage(), experiment.sides());
            let reading = Reading { now_ms, shards: cache.tallies(), costs: Default::default() };
            if experiment.observe(&reading) {
                if matches!(stage, Stage::First | Stage::Second) {
                    measured.push(stage_began..at);
                }
                stage_began = at;
                if experiment.stage() == Stage::Done {
                    break;
                }
                if experiment.sides() != sides {
                    drivers = self.drivers(&cache, experiment.sides());
                }
            }
        }
        Ended { report: experiment.report(), measured }
    }
}
