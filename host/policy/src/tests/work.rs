//! Policies that do their work.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::cache::{Answer, CacheConfig, DentryCache, Filled};
use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_core::eviction::{Class, Event, EvictionPolicy, ObjectId, Removal};
use portcullis_core::{Attr, Entry, FileKind, Handle};
use sha2::{Digest, Sha256};

use super::host::TestHost;
use super::{Chance, LIMITS, built, pause, until};
use crate::compiler::Compiler;
use crate::component::EVICTION;
use crate::engine::Engine;
use crate::instance::Instance;
use crate::{EvictionDriver, LoadedPolicy, PolicyChoice, PolicyKind};

fn instance(name: &str) -> Instance {
    let engine = Engine::shared().expect("Wasm runs here");
    let bytes = fs::read(built(name)).expect("it can be read");
    let compiled = Compiler::InProcess.compile(&EVICTION, &bytes, None).expect("it compiles");
    Instance::start(engine, &compiled, LIMITS, b"", name).expect("it starts").0
}

fn start(choice: PolicyChoice, capacity_bytes: u64) -> (Arc<TestHost>, EvictionDriver) {
    let host = Arc::new(TestHost::new(capacity_bytes));
    let loaded = LoadedPolicy::load(choice, LIMITS).unwrap_or_else(|error| panic!("{error}"));
    let driver = EvictionDriver::start(host.clone(), loaded).expect("a thread");
    (host, driver)
}

/// Whatever a host may tell in whatever order: the component answers as the native policy does.
#[test]
fn the_s3fifo_component_answers_as_the_native_policy() {
    for seed in 0..20 {
        let mut chance = Chance(seed);
        let mut component = instance("s3fifo");
        let mut native = S3Fifo::new(LIMITS);
        let objects = 1 + chance.below(3_000);
        let mut proposed = Vec::new();
        for now_ms in 0..200 {
            let mut events = Vec::new();
            for _ in 0..chance.below(600) {
                let id = ObjectId::new(chance.below(objects) as u32, chance.below(3) as u32);
                events.push(match chance.below(10) {
                    0..=3 => Event::Insert {
                        id,
                        key: chance.below(2 * objects),
                        class: Class::Listed,
                        weight_bytes: chance.below(2_000) as u32,
                    },
                    4..=7 => Event::Hit { id, count: chance.below(1 << 24) as u32 },
                    8 => Event::Remove { id, reason: Removal::Evicted },
                    _ => Event::Remove { id, reason: Removal::Invalidated },
                });
            }
            for id in proposed.drain(..) {
                events.push(match chance.below(3) {
                    0 => Event::Spare { id },
                    _ => Event::Remove { id, reason: Removal::Evicted },
                });
            }
            component.on_events(now_ms, &events).expect("no fault");
            native.on_events(now_ms, &events);
            let want = chance.below(257) as usize;
            proposed = component.propose(now_ms, want).expect("no fault");
            assert_eq!(proposed, native.propose(now_ms, want), "seed {seed} at {now_ms}");
        }
    }
}

#[test]
fn the_built_in_policy_is_the_shipped_component() {
    let (_host, driver) = start(PolicyChoice::default(), LIMITS.capacity_bytes);
    let status = driver.status();
    assert_eq!((status.name.as_str(), status.kind), ("s3-fifo", PolicyKind::Wasm));
    let bytes = fs::read(built("s3fifo")).expect("it can be read");
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(status.digest, digest, "rebuild: the policies are newer than this binary");
}

#[test]
fn every_shipped_policy_evicts() {
    for name in ["s3fifo", "lru"] {
        let (host, driver) = start(PolicyChoice::File(built(name)), LIMITS.capacity_bytes);
        let mut chance = Chance(1);
        until("evictions", || {
            for _ in 0..1_000 {
                let key = chance.below(100) * chance.below(100);
                host.request(key, 500 + chance.below(1_000) as u32);
            }
            (host.counts().proposed > 20_000).then_some(())
        });
        let status = driver.status();
        assert_eq!(status.fallback_reason, "", "{name}");
        assert_eq!(status.kind, PolicyKind::Wasm, "{name}");
        assert_eq!(status.calls, status.wasm_calls, "{name}");
        assert_eq!((status.foreign, status.repeated), (0, 0), "{name}: {status:?}");
        assert!(status.accepted > 20_000, "{name}: {status:?}");
        assert!(host.used_bytes() <= LIMITS.capacity_bytes);
    }
}

#[test]
fn hits_do_not_enter_wasm() {
    const HITS: u64 = 1_000_000;
    let (host, driver) = start(PolicyChoice::File(built("s3fifo")), 1 << 30);
    for key in 0..1_000 {
        host.request(key, 1_000);
    }
    for number in 0..HITS {
        host.request(number % 1_000, 1_000);
    }
    let counts = host.counts();
    assert_eq!(counts.hits, HITS);
    let status = driver.status();
    // A call only where the host had much to tell, and a thousand objects are soon told.
    assert!(status.wasm_calls <= counts.wakes + 2, "{status:?}, {counts:?}");
    assert!(status.wasm_calls < HITS / 200, "{status:?}");
}

/// Where no shard of a cache has as much to tell as wakes the driver, a million hits make no call at all, but
/// for the look with which the driver may just have begun.
#[test]
fn hits_of_a_cache_make_no_call() {
    const NAMES: u64 = 1_024;
    let config = CacheConfig { capacity_bytes: 1 << 30, max_age_ms: u64::MAX, seed: 1 };
    let cache = Arc::new(DentryCache::<()>::new(config));
    let handle = |number: u64| Handle::new(&number.to_le_bytes()).expect("8 bytes");
    // Four names a directory, so that all shards have their share.
    let look_up = |number: u64| {
        cache.lookup(0, &handle(number / 4), (number % 4).to_string().as_bytes(), || ())
    };
    for number in 0..NAMES {
        let Answer::Lead(ticket) = look_up(number) else { panic!("nothing is known yet") };
        let attr = Some(Attr { ino: number, nlink: 1, ..Attr::default() });
        let handle = handle(1 << 60 | number);
        let entry = Entry { handle, attr, kind: FileKind::Regular, target: None };
        cache.fill(0, ticket, &Filled::Entry(entry));
    }
    let choice = PolicyChoice::File(built("s3fifo"));
    let policy = LoadedPolicy::load(choice, LIMITS).expect("it loads");
    let driver = EvictionDriver::start(cache.clone(), policy).expect("a thread");
    until("the residents", || (driver.status().events >= NAMES).then_some(()));
    let before = driver.status().wasm_calls;
    assert!(before > 0, "it was told of what is resident");
    for number in 0..1_000_000 {
        assert!(matches!(look_up(number % NAMES), Answer::Hit(_)));
    }
    let status = driver.status();
    assert!(status.wasm_calls <= before + 1, "{before} before, {status:?}");
    assert_eq!(status.fallback_reason, "");
    assert!(cache.counters().lookup_hits >= 1_000_000);
}

#[test]
fn a_driver_without_work_sleeps() {
    let (host, driver) = start(PolicyChoice::File(built("s3fifo")), 1 << 20);
    for key in 0..5_000 {
        host.request(key, 1_000);
    }
    // Nobody asks any more: it fills the reserve and is done.
    until("a full reserve", || (host.shortfall() == 0).then_some(()));
    until("sleep", || {
        let before = host.counts().drains;
        pause(Duration::from_millis(50));
        (host.counts().drains == before).then_some(())
    });
    assert_eq!(driver.status().fallback_reason, "");
}

#[test]
fn a_policy_that_comes_late_knows_every_resident() {
    let host = Arc::new(TestHost::new(1 << 20));
    for key in 0..1_000 {
        host.request(key, 1_000);
    }
    let loaded = LoadedPolicy::load(PolicyChoice::Native, LIMITS).expect("it loads");
    let driver = EvictionDriver::start(host.clone(), loaded).expect("a thread");
    until("the residents", || (driver.status().events == 1_000).then_some(()));
    until("evictions of what was there before", || {
        host.request(host.counts().misses, 1_000);
        (host.counts().proposed > 500).then_some(())
    });
    assert_eq!(host.objects(), (1 << 20) / 1_000);
    assert_eq!((driver.status().kind, driver.status().wasm_calls), (PolicyKind::Native, 0));
}

#[test]
fn a_stopped_driver_leaves_the_host_working() {
    let (host, driver) = start(PolicyChoice::File(built("lru")), 1 << 20);
    for key in 0..5_000 {
        host.request(key, 1_000);
    }
    driver.stop();
    driver.stop();
    let calls = driver.status().calls;
    for key in 5_000..10_000 {
        host.request(key, 1_000);
    }
    assert_eq!(driver.status().calls, calls);
    assert!(host.used_bytes() <= 1 << 20);
}
