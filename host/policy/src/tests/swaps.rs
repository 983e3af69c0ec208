//! Policies that change places while a host is busy.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use portcullis_core::eviction::lru::Lru;
use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId};

use super::guests::Guest;
use super::host::TestHost;
use super::{Chance, LIMITS, built, bytes, until};
use crate::loaded::Policy;
use crate::recipe::Recipe;
use crate::{
    Batches, EvictionDriver, LoadOptions, LoadedPolicy, PolicyChoice, PolicyControl, PolicyError,
    PolicyIdentity, PolicyKind, PolicySetup, Recovery,
};

pub(super) const PLAIN: LoadOptions = LoadOptions { force: false, keep_config: false };
const FORCED: LoadOptions = LoadOptions { force: true, keep_config: false };

/// A host that is kept busy until this is dropped, and what may be done to it.
pub(super) struct Busy {
    host: Arc<TestHost>,
    driver: Arc<EvictionDriver>,
    pub(super) control: PolicyControl,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn start(choice: PolicyChoice, recovery: Recovery) -> Self {
        Self::set_up(PolicySetup { recovery, ..PolicySetup::new(choice, LIMITS) })
    }

    pub(super) fn set_up(setup: PolicySetup) -> Self {
        let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
        let control = PolicyControl::start(host.clone(), setup);
        let control = control.unwrap_or_else(|error| panic!("{error}"));
        let driver = control.driver().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (busy, until) = (host.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut chance = Chance(3);
            while !until.load(Ordering::Relaxed) {
                for _ in 0..200 {
                    let key = chance.below(60) * chance.below(60);
                    busy.request(key, 500 + chance.below(1_000) as u32);
                }
                // So that a driver on the same processor gets its turn.
                std::thread::yield_now();
            }
        });
        Self { host, driver, control, stop, thread: Some(thread) }
    }

    fn name(&self) -> String {
        self.control.status().name
    }

    fn shipped(&self, name: &str) -> Result<PolicyIdentity, PolicyError> {
        self.control.swap(PolicyChoice::File(built(name)), PLAIN)
    }

    /// Waits until the active policy proposed victims that left.
    pub(super) fn works(&self) {
        let (before, accepted) = (self.host.counts().proposed, self.driver.status().accepted);
        until("evictions", || {
            let evicted = self.host.counts().proposed > before + 300;
            (evicted && self.driver.status().accepted > accepted).then_some(())
        });
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn message<T>(result: Result<T, PolicyError>) -> String {
    result.err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn policies_change_places_under_load() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    for round in 0..12 {
        let name = ["lru", "sieve", "s3fifo"][round % 3];
        let swapped = busy.shipped(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let status = busy.control.status();
        assert_eq!((&status.name, &status.digest), (&swapped.name, &swapped.digest));
        assert_eq!((status.kind, status.swaps), (PolicyKind::Wasm, round as u64 + 1));
        assert_eq!((status.fallback_reason.as_str(), status.faults), ("", 0), "{status:?}");
        let previous = status.previous.expect("there was one");
        assert_ne!(previous.identity.digest, status.digest);
        assert!(previous.warm_ms > 0, "it is kept at work");
        busy.works();
    }
    let status = busy.driver.status();
    assert_eq!((status.foreign, status.last_refusal.as_str()), (0, ""), "{status:?}");
    assert!(busy.host.used_bytes() <= LIMITS.capacity_bytes);
}

/// LRU that notes whatever a policy must never be told.
struct Strict {
    lru: Lru,
    resident: HashSet<ObjectId>,
    proposed: HashSet<ObjectId>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Strict {
    fn load(wrong: &Arc<Mutex<Vec<String>>>) -> LoadedPolicy {
        let policy = Box::new(Self {
            lru: Lru::default(),
            resident: HashSet::new(),
            proposed: HashSet::new(),
            wrong: wrong.clone(),
        });
        let identity = PolicyIdentity::native("strict");
        let (policy, recipe) = (Policy::Native(policy), Recipe::STAND_IN);
        LoadedPolicy { policy, identity, recipe, limits: LIMITS }
    }
}

impl EvictionPolicy for Strict {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        for event in events {
            let right = match event {
                Event::Insert { id, .. } => self.resident.insert(*id),
                Event::Hit { id, .. } => self.resident.contains(id),
                Event::Remove { id, .. } => {
                    self.proposed.remove(id);
                    self.resident.remove(id)
                }
                Event::Spare { id } => self.proposed.remove(id),
            };
            if !right {
                self.wrong.lock().push(format!("{event:?}"));
            }
        }
        self.lru.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Vec<ObjectId> {
        let victims = self.lru.propose(now_ms, want);
        self.proposed.extend(&victims);
        victims
    }
}

/// Each is told every coming and going once and in order, and of no proposal but its own.
#[test]
fn a_policy_that_comes_late_is_told_what_every_policy_is_told() {
    let wrong = Arc::default();
    let busy = Busy::start(PolicyChoice::Native, Recovery::default());
    busy.driver.swap(Strict::load(&wrong)).unwrap_or_else(|error| panic!("{error}"));
    for round in 0..30 {
        busy.works();
        match round % 3 {
            // A second one beside the first, which stays at work.
            0 => busy.driver.swap(Strict::load(&wrong)).unwrap_or_else(|error| panic!("{error}")),
            1 => drop(busy.driver.rollback().unwrap_or_else(|error| panic!("{error}"))),
            _ => drop(busy.shipped("lru").unwrap_or_else(|error| panic!("{error}"))),
        }
        assert_eq!(*wrong.lock(), [""; 0], "round {round}");
    }
}

/// H-21, H-30.
#[test]
fn what_fails_while_it_learns_leaves_the_active_policy_in_charge() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    let guest = Guest { on_events: MADE_UP_ONLY, propose: PROPOSES, ..Guest::default() };
    busy.works();
    let failed = message(busy.control.swap(bytes("guest", guest.component()), PLAIN));
    assert!(failed.contains("guest: trapped in on-events"), "{failed}");
    let status = busy.control.status();
    assert_eq!((status.name.as_str(), status.kind), ("s3-fifo", PolicyKind::Wasm));
    assert_eq!((status.last_refusal, status.faults, status.swaps), (failed, 1, 0));
    busy.works();
}

/// Traps with batches of other lengths than those of the test with made-up objects: 683 events, 1 event.
const MADE_UP_ONLY: &str = "(if (i32.and (i32.ne (local.get $count) (i32.const 2049))
    (i32.ne (local.get $count) (i32.const 3))) (then unreachable))";
/// Proposes one object of the first batch, another one after each batch.
const PROPOSES: &str = "(i32.store (i32.const 128) (i32.add (i32.const 65536)
    (i32.mul (global.get $batches) (i32.const 72))))
    (i32.store (i32.const 132) (i32.const 1)) i32.const 128";

#[test]
fn what_proposes_nothing_is_not_taken() {
    let busy = Busy::start(PolicyChoice::Native, Recovery::default());
    let guest = bytes("guest", Guest::default().component());
    for refused in [busy.control.load(guest.clone(), PLAIN), busy.control.swap(guest, PLAIN)] {
        let refused = message(refused);
        assert!(refused.contains("fails the test with made-up objects"), "{refused}");
        assert_eq!(busy.control.status().last_refusal, refused);
    }
    assert_eq!(busy.name(), "s3-fifo");
    let text = message(busy.control.swap(bytes("text", b"#!/bin/sh".to_vec()), PLAIN));
    assert!(text.contains("is not a WebAssembly component"), "{text}");
    let unknown = message(busy.control.swap(PolicyChoice::Named("best".into()), PLAIN));
    assert!(unknown.contains("best: is no native policy: there are lru"), "{unknown}");
}

#[test]
fn a_load_changes_nothing() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    let before = busy.control.status();
    let loaded = busy.control.load(PolicyChoice::File(built("lru")), PLAIN).expect("it is good");
    assert_eq!((loaded.name.as_str(), loaded.digest.len()), ("lru", 64));
    let after = busy.control.status();
    assert_eq!((after.name, after.digest, after.swaps), (before.name, before.digest, 0));
    assert_eq!(after.previous, None);
}

#[test]
fn a_rollback_brings_back_the_one_before_and_again_the_one_after() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    let none = message(busy.control.rollback());
    assert!(none.contains("no policy was active before"), "{none}");
    busy.shipped("lru").expect("it is good");
    busy.works();
    for name in ["s3-fifo", "lru", "s3-fifo"] {
        busy.control.rollback().expect("there is one");
        assert_eq!(busy.name(), name);
        busy.works();
    }
    assert_eq!(busy.control.status().faults, 0);
}

#[test]
fn the_panic_switch_lets_no_component_work_until_one_is_swapped_in() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    busy.shipped("lru").expect("it is good");
    busy.control.panic().expect("the driver works");
    let status = busy.control.status();
    assert!(status.is_panic && status.kind == PolicyKind::Native, "{status:?}");
    assert_eq!(status.fallback_reason, "the panic switch is on");
    busy.works();
    let after = busy.control.status();
    assert_eq!(after.wasm_calls, status.wasm_calls, "Wasm is not entered again");
    let refused = message(busy.control.rollback());
    assert!(refused.contains("the panic switch is on"), "{refused}");
    busy.shipped("sieve").expect("it is good");
    let status = busy.control.status();
    assert!(!status.is_panic && status.fallback_reason.is_empty(), "{status:?}");
    assert_eq!(status.name, "sieve");
    busy.works();
    // The one that worked when the switch was pressed is the one before.
    busy.control.rollback().expect("there is one");
    assert_eq!(busy.name(), "lru");
}

/// H-29, H-36.
#[test]
fn one_that_fails_is_tried_again_and_after_three_faults_never() {
    let recovery = Recovery { strikes_max: 3, rebuild_ms: 20 };
    let busy = Busy::start(PolicyChoice::File(built("test/trap-third-batch")), recovery);
    let status = until("the quarantine", || {
        let status = busy.control.status();
        // Whatever is active, the status says why it is not the component.
        assert_eq!(status.kind == PolicyKind::Native, !status.fallback_reason.is_empty());
        // The digest is in quarantine a moment before the native policy has learnt what is resident.
        let is_over = !status.quarantined.is_empty() && status.kind == PolicyKind::Native;
        is_over.then_some(status)
    });
    assert_eq!(status.faults, 3, "{status:?}");
    let quarantined = &status.quarantined[0];
    assert!(quarantined.reason.contains("trapped in on-events"), "{status:?}");
    assert!(status.fallback_reason.contains(&quarantined.digest), "{status:?}");
    busy.works();
    assert_eq!(busy.control.status().wasm_calls, status.wasm_calls, "Wasm is not entered again");

    let choice = || PolicyChoice::File(built("test/trap-third-batch"));
    for refused in [busy.control.load(choice(), PLAIN), busy.control.swap(choice(), PLAIN)] {
        let refused = message(refused);
        assert!(refused.contains("is quarantined until"), "{refused}");
        assert!(refused.contains("trapped in on-events"), "{refused}");
    }
    // Forced, it may fail once more.
    busy.control.load(choice(), FORCED).expect("its first two batches are good");
    assert_eq!(busy.control.status().quarantined, []);
    busy.shipped("lru").expect("another one is not concerned");
    busy.works();
}

#[test]
fn a_fault_now_and_then_is_forgiven() {
    let recovery = Recovery { strikes_max: usize::MAX, rebuild_ms: 1 };
    let busy = Busy::start(PolicyChoice::File(built("test/trap-third-batch")), recovery);
    // An instance is gone after its fault, so each further one is that of a fresh instance. Whether
    // it was the active one by then or still learnt is a matter of how much happened meanwhile.
    until("a fresh instance after each of some faults", || {
        (busy.control.status().faults >= 5).then_some(())
    });
    assert_eq!(busy.control.status().quarantined, []);
    let choice = PolicyChoice::File(built("test/trap-third-batch"));
    busy.control.load(choice, PLAIN).expect("it is not refused");
}

#[test]
fn a_stopped_driver_says_so() {
    let busy = Busy::start(PolicyChoice::File(built("s3fifo")), Recovery::default());
    busy.driver.stop();
    let stopped = message(busy.shipped("lru"));
    assert!(stopped.contains("stopping"), "{stopped}");
    assert!(matches!(busy.control.panic(), Err(PolicyError::Stopped)));
}

fn state_dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A second start with the same directory finds what was active, configuration and all. H-34.
#[test]
fn what_was_swapped_in_is_active_after_a_restart() {
    let state = state_dir();
    let setup = PolicySetup {
        state: Some(state.path().to_owned()),
        ..PolicySetup::new(PolicyChoice::File(built("s3fifo")), LIMITS)
    };
    let busy = Busy::set_up(setup.clone());
    assert_eq!(busy.name(), "s3-fifo");
    let lru = busy.shipped("lru").expect("it is good");
    drop(busy);
    let busy = Busy::set_up(setup.clone());
    let status = busy.control.status();
    assert_eq!((status.name, status.digest), (lru.name, lru.digest));
    busy.shipped("sieve").expect("it is good");
    busy.control.rollback().expect("there is one");
    drop(busy);
    assert_eq!(Busy::set_up(setup.clone()).name(), "lru");

    let busy = Busy::set_up(setup.clone());
    busy.control.panic().expect("the driver works");
    drop(busy);
    let busy = Busy::set_up(setup.clone());
    assert!(busy.control.status().is_panic, "the switch stays on");
    busy.control.swap(PolicyChoice::Named("sieve".into()), PLAIN).expect("there is one");
    drop(busy);
    let status = Busy::set_up(setup.clone()).control.status();
    assert_eq!((status.name.as_str(), status.is_panic), ("sieve", false));
    let left = std::fs::read_dir(state.path().join("policies")).expect("it is there").count();
    assert!(left <= 5, "{left} files: what is not needed is removed");
}

/// H-26, H-27: it begins with the policy that it was set up with.
#[test]
fn what_is_kept_and_damaged_is_passed_over_and_said() {
    let state = state_dir();
    let setup = PolicySetup {
        state: Some(state.path().to_owned()),
        ..PolicySetup::new(PolicyChoice::BuiltIn, LIMITS)
    };
    let busy = Busy::set_up(setup.clone());
    let lru = busy.shipped("lru").expect("it is good");
    drop(busy);
    let kept = state.path().join("policies").join(format!("{}.wasm", lru.digest));
    std::fs::write(&kept, b"something else").expect("it can be written");
    let busy = Busy::set_up(setup.clone());
    let status = busy.control.status();
    assert_eq!((status.name.as_str(), status.kind), ("s3-fifo", PolicyKind::Wasm));
    assert!(status.last_refusal.contains(".wasm is damaged"), "{status:?}");
    drop(busy);
    std::fs::write(state.path().join("policies/active"), b"\xff\xfe").expect("it can be");
    let status = Busy::set_up(setup.clone()).control.status();
    assert!(status.last_refusal.contains("active is not text"), "{status:?}");
    // Others could have put anything there.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(state.path().join("compiled"), open).expect("it is ours");
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let refused = message(PolicyControl::start(host, setup));
    assert!(refused.contains("compiled: must be a directory of this user's own"), "{refused}");
}

/// What is kept of a fault does the same again to a fresh instance, and nothing to a good one.
#[test]
fn what_is_kept_of_a_fault_can_be_played_again() {
    let state = state_dir();
    let choice = PolicyChoice::File(built("test/trap-third-batch"));
    let busy = Busy::set_up(PolicySetup {
        recovery: Recovery { strikes_max: 1, rebuild_ms: 0 },
        state: Some(state.path().to_owned()),
        ..PolicySetup::new(choice.clone(), LIMITS)
    });
    let file = state.path().join("faults/1.batches");
    let batches = until("the file", || Batches::read(&file).ok());
    assert!(batches.is_whole && batches.fault.contains("trapped in on-events"), "{batches:?}");
    assert!(batches.policy.starts_with("trap-third-batch"), "{}", batches.policy);
    let mut again = LoadedPolicy::load(choice, LIMITS).expect("it loads");
    let (_, fault) = batches.play(&mut again).expect_err("it fails again");
    assert_eq!(fault.to_string(), batches.fault);
    let mut good = LoadedPolicy::load(PolicyChoice::BuiltIn, LIMITS).expect("it loads");
    let calls = batches.play(&mut good).unwrap_or_else(|(call, fault)| panic!("{call}: {fault}"));
    assert!(calls >= 3);
    drop(busy);
    std::fs::write(&file, b"something else\n\n").expect("it can be written");
    let refused = Batches::read(&file).expect_err("it is none");
    assert!(refused.to_string().contains("no file of batches"), "{refused}");
}
