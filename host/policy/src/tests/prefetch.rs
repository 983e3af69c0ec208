//! Prefetch components at work, good and bad, for engines of made-up clients.

use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::POLICY_PREFETCH_ANSWERS_MAX;
use portcullis_core::prefetch::{
    Answer, Answered, Budget, Event, Order, PrefetchChoice, PrefetchCounters, PrefetchHost,
    PrefetchPolicy, Prefetcher,
};
use portcullis_core::{ChunkBuilder, EntryRef, FileKind, Handle};

use super::guests::Guest;
use super::{LIMITS, bytes, until};
use crate::{
    Compiler, LoadOptions, LoadedPolicy, LoadedPrefetch, PolicyKind, PrefetchClient,
    PrefetchControl, PrefetchDriver, PrefetchPolicyChoice, PrefetchSetup, PrefetchStatus, Recovery,
};

const BUDGET: Budget = Budget { requests: 8, bytes: 1 << 20, entries: 1 << 16 };

/// The engine of a client: each listing ahead is over at once.
pub(super) struct Engine {
    state: Mutex<State>,
}

struct State {
    prefetcher: Prefetcher,
    native: Option<Box<dyn PrefetchPolicy>>,
    listed: Vec<u64>,
    restarts: u32,
    /// [`PrefetchHost::drain`] answers with nothing, once.
    is_anew: bool,
}

impl Engine {
    fn new() -> Arc<Self> {
        let state = State {
            prefetcher: Prefetcher::new(BUDGET, 1),
            native: None,
            listed: Vec::new(),
            restarts: 0,
            is_anew: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The client lists directory `dir` with these subdirectories.
    pub(super) fn enter(
        &self,
        client: &PrefetchClient,
        dir: u64,
        subdirs: impl IntoIterator<Item = u64>,
    ) {
        let mut state = self.state.lock();
        state.prefetcher.entered(&handle(dir), false);
        let mut builder = ChunkBuilder::default();
        for subdir in subdirs {
            assert!(builder.push(&EntryRef {
                name: format!("{subdir}").as_bytes(),
                handle: handle(subdir),
                attr: None,
                kind: FileKind::Directory,
                target: None,
                cookie: subdir,
            }));
        }
        if let Some(chunk) = builder.finish(0) {
            state.prefetcher.told(&handle(dir), &chunk);
        }
        state.prefetcher.ended(&handle(dir));
        state.ask();
        drop(state);
        client.ring();
    }

    fn listed(&self) -> Vec<u64> {
        self.state.lock().listed.clone()
    }

    fn counters(&self) -> PrefetchCounters {
        self.state.lock().prefetcher.counters()
    }

    /// How often it began anew.
    pub(super) fn restarts(&self) -> u32 {
        self.state.lock().restarts
    }

    pub(super) fn is_native(&self) -> bool {
        self.state.lock().native.is_some()
    }
}

impl State {
    fn ask(&mut self) {
        if let Some(policy) = &mut self.native {
            let orders = self.prefetcher.take(&mut **policy, 0);
            self.obey(orders);
        }
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            if let Order::List(dir) = order {
                let number = u64::from_le_bytes(dir.as_bytes().try_into().expect("8 bytes"));
                self.listed.push(number);
                self.prefetcher.ended_ahead(&dir, Ok(()));
            }
        }
    }
}

impl PrefetchHost for Engine {
    fn drain(&self, events: &mut Vec<Event>) -> Option<usize> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_anew) {
            state.prefetcher.restart();
            return None;
        }
        Some(state.prefetcher.drain(events))
    }

    fn answer(self: Arc<Self>, want: usize, answers: &[Answer]) -> Answered {
        let mut state = self.state.lock();
        let (orders, answered) = state.prefetcher.answer(want, answers);
        state.obey(orders);
        answered
    }

    fn restart(self: Arc<Self>, native: Option<PrefetchChoice>) {
        let mut state = self.state.lock();
        state.native = native.map(PrefetchChoice::policy);
        state.restarts += 1;
        state.prefetcher.restart();
    }
}

fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

fn load(guest: &Guest) -> LoadedPrefetch {
    let name = "guest".to_owned();
    let choice = PrefetchPolicyChoice::Bytes { name, bytes: guest.component(), config: Vec::new() };
    LoadedPrefetch::load(choice, LIMITS, &Compiler::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// One that fails is not tried again.
const ONCE: Recovery = Recovery { strikes_max: 1, rebuild_ms: 0 };

fn start(guest: &Guest) -> PrefetchDriver {
    PrefetchDriver::start_with(load(guest), ONCE).expect("a thread")
}

pub(super) fn join(driver: &PrefetchDriver) -> (Arc<Engine>, PrefetchClient) {
    let engine = Engine::new();
    let host: Arc<dyn PrefetchHost> = engine.clone();
    let client = driver.join(&host);
    (engine, client)
}

#[test]
fn a_component_chooses_for_each_client() {
    let driver = start(&Guest::prefetch());
    let (first, first_client) = join(&driver);
    let (second, second_client) = join(&driver);
    first.enter(&first_client, 1, 2..8);
    // Ids of directories are those of each client, and begin alike.
    second.enter(&second_client, 101, 102..105);
    until("both", || (first.listed().len() + second.listed().len() == 9).then_some(()));
    assert_eq!(first.listed(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(second.listed(), [102, 103, 104]);
    second.enter(&second_client, 102, []);
    // 8 of the first; 5 of the second, 3 that its listings ahead are over, and this one.
    until("it is told", || (driver.status().events == 17).then_some(()));
    assert_eq!((first.counters().used, second.counters().begun), (0, 3));
    let status = driver.status();
    assert_eq!((status.name.as_str(), status.kind), ("text", PolicyKind::Wasm));
    assert_eq!((status.accepted, status.fallback_reason.as_str()), (9, ""));
    assert_eq!((status.foreign, status.stale, status.overflows), (0, 0, 0), "{status:?}");
    assert_eq!(status.digest.len(), 64);
}

/// H-17 for prefetch: what is over the budget is dropped, and told to be lost.
#[test]
fn more_than_is_wanted_is_dropped_and_counted() {
    let ten: Vec<u64> = (2..12).flat_map(|dir| [0, dir]).collect();
    let driver = start(&answering(&ten));
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, 101..120);
    let status = until("the answer", || Some(driver.status()).filter(|status| status.excess > 0));
    assert_eq!((status.accepted, status.excess), (BUDGET.requests as u64, 2), "{status:?}");
    assert_eq!(engine.listed(), [101, 102, 103, 104, 105, 106, 107, 108]);
    assert_eq!(status.fallback_reason, "");
}

#[test]
fn no_more_is_wanted_than_the_budget_has() {
    let driver = start(&Guest::prefetch());
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, 2..50);
    // Eight at a time: what is over at once makes room, but only for the next question.
    until("the first", || (!engine.listed().is_empty()).then_some(()));
    assert!(engine.listed().len() <= BUDGET.requests);
    until("all of them", || {
        client.ring();
        (engine.listed().len() == 48).then_some(())
    });
    assert_eq!(driver.status().fallback_reason, "");
}

/// Two clients under a policy until it is replaced; then both go on with the native one.
#[track_caller]
fn fallback_of(guest: &Guest) -> PrefetchStatus {
    let driver = start(guest);
    let (engine, client) = join(&driver);
    let (other, other_client) = join(&driver);
    let mut dir = 0;
    let status = until("the fallback", || {
        dir += 100;
        engine.enter(&client, dir, dir + 1..dir + 4);
        other.enter(&other_client, dir, []);
        Some(driver.status()).filter(|status| !status.fallback_reason.is_empty())
    });
    assert_eq!((status.kind, status.name.as_str()), (PolicyKind::Native, "crawl"));
    until("both engines", || (engine.is_native() && other.is_native()).then_some(()));
    for (engine, client) in [(&engine, &client), (&other, &other_client)] {
        // A walk that the native policy recognises.
        let before = engine.listed().len();
        engine.enter(client, 1_000_000, 1_000_001..1_000_020);
        engine.enter(client, 1_000_001, []);
        assert!(engine.listed().len() > before, "nothing is listed ahead any more");
    }
    let (late, _late_client) = join(&driver);
    assert!(late.is_native(), "who comes later has it too");
    let after = driver.status();
    assert_eq!(after.calls, status.calls, "Wasm is not entered again");
    assert_eq!(after.fallback_reason, status.fallback_reason);
    after
}

#[track_caller]
fn assert_falls_back(guest: &Guest, reason: &str) -> PrefetchStatus {
    let status = fallback_of(guest);
    assert!(status.fallback_reason.contains(reason), "{}", status.fallback_reason);
    status
}

/// An answer of these words.
fn answer(words: &[u64]) -> String {
    let stores = words.iter().enumerate().map(|(at, word)| {
        format!("(i64.store (i32.const {}) (i64.const {}))", 425_984 + 8 * at, *word as i64)
    });
    let stores: String = stores.collect();
    format!(
        "{stores} (i32.store (i32.const 128) (i32.const 425984))
        (i32.store (i32.const 132) (i32.const {})) i32.const 128",
        words.len()
    )
}

fn answering(words: &[u64]) -> Guest {
    Guest { propose: answer(words).leak(), ..Guest::prefetch() }
}

/// H-2, H-5, H-9, H-11 for prefetch.
#[test]
fn a_component_that_fails_leaves_the_native_policy() {
    let on_events = "unreachable";
    let status =
        assert_falls_back(&Guest { on_events, ..Guest::prefetch() }, ") trapped in on-events");
    assert!(status.fallback_reason.starts_with("text 1.0.0 (sha256 "), "{status:?}");
    let propose = "unreachable";
    assert_falls_back(&Guest { propose, ..Guest::prefetch() }, "trapped in propose");
    let on_events = "call $recurse";
    let reason = "trapped in on-events: call stack exhausted";
    assert_falls_back(&Guest { on_events, ..Guest::prefetch() }, reason);
    let on_events = "(loop $again (br_if $again
        (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    assert_falls_back(&Guest { on_events, ..Guest::prefetch() }, "bytes of memory");
    for (on_events, propose) in [
        ("(loop $again (br $again))", "i32.const 64"),
        ("", "(loop $again (br $again)) unreachable"),
    ] {
        let guest = Guest { on_events, propose, ..Guest::prefetch() };
        assert_falls_back(&guest, "used more than 500 ms of CPU time in ");
    }
}

/// H-15, H-17, H-18 for prefetch.
#[test]
fn answers_that_make_no_sense() {
    assert_falls_back(&answering(&[0, u64::MAX]), "proposed 1 ids that never existed");
    assert_falls_back(&answering(&[2, 0]), "proposed 1 ids that never existed");
    assert_falls_back(&answering(&[0, 1, 0]), "3 words are no whole number of answers");
    assert_falls_back(&answering(&[3, 1]), "[3, 1] is no answer");
    let many = (POLICY_PREFETCH_ANSWERS_MAX + 1) * 2;
    let propose = format!(
        "(i32.store (i32.const 128) (i32.const 327680))
        (i32.store (i32.const 132) (i32.const {many})) i32.const 128"
    );
    let guest = Guest { propose: propose.leak(), ..Guest::prefetch() };
    assert_falls_back(&guest, "proposed 2049 where 2048 were asked for");
}

/// H-15 for prefetch: what was entered already, and what was forgotten.
#[test]
fn stale_and_repeated_ids_are_dropped_and_counted() {
    // The first directory was entered, whenever it is asked.
    let driver = start(&answering(&[0, 1]));
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, []);
    let repeated =
        until("the answer", || Some(driver.status()).filter(|status| status.repeated > 0));
    assert_eq!((repeated.stale, repeated.foreign), (0, 0), "{repeated:?}");
    // It forgets the first directory, again and again.
    let driver = start(&answering(&[2, 1]));
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, []);
    let stale = until("two answers", || {
        client.ring();
        Some(driver.status()).filter(|status| status.stale > 0)
    });
    assert_eq!((stale.repeated, stale.foreign), (0, 0), "{stale:?}");
    assert_eq!(stale.fallback_reason, "");
    assert!(engine.listed().is_empty());
}

/// H-4 for prefetch: clients list while the policy that serves them is in an endless loop.
#[test]
fn clients_go_on_while_a_policy_loops() {
    let driver = start(&Guest { on_events: "(loop $again (br $again))", ..Guest::prefetch() });
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, 2..5);
    let in_loop = || {
        let status = driver.status();
        status.calls == 1 && status.fallback_reason.is_empty()
    };
    until("the loop", || in_loop().then_some(()));
    let mut during = 0;
    let mut dir = 10;
    loop {
        dir += 10;
        engine.enter(&client, dir, dir + 1..dir + 4);
        let (_late, _late_client) = join(&driver);
        if !in_loop() {
            break;
        }
        during += 1;
    }
    assert!(during > 0, "the loop ended before it was looked at");
}

#[test]
fn a_client_that_leaves_is_told_once() {
    // It traps where somebody leaves, and that was known before.
    let on_events = "(if (i64.eq (i64.and (i64.load (local.get $events)) (i64.const 255))
        (i64.const 4)) (then unreachable))";
    let driver = start(&Guest { on_events, ..Guest::prefetch() });
    let (_silent, silent_client) = join(&driver);
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, []);
    until("it is told", || (driver.status().events == 2).then_some(()));
    // Of whom nothing was ever told.
    drop(silent_client);
    engine.enter(&client, 2, []);
    until("it is told", || (driver.status().events == 4).then_some(()));
    assert_eq!(driver.status().fallback_reason, "");
    drop(client);
    until("the end of the one that was known", || {
        driver.status().fallback_reason.contains("trapped in on-events").then_some(())
    });
}

#[test]
fn a_client_with_too_much_to_tell_begins_anew() {
    let driver = start(&Guest::prefetch());
    let (engine, client) = join(&driver);
    engine.enter(&client, 1, 2..4);
    until("both", || (engine.listed() == [2, 3]).then_some(()));
    let events = driver.status().events;
    engine.state.lock().is_anew = true;
    engine.enter(&client, 10, 11..13);
    // What was told meanwhile is void, and it is told that the client it knew has left.
    until("the overflow", || (driver.status().overflows == 1).then_some(()));
    until("its leaving", || (driver.status().events == events + 1).then_some(()));
    engine.enter(&client, 20, 21..23);
    until("more", || (engine.listed() == [2, 3, 21, 22]).then_some(()));
    assert_eq!(driver.status().fallback_reason, "");
}

#[test]
fn policies_are_exchanged_between_two_batches() {
    let native =
        LoadedPrefetch::load(PrefetchPolicyChoice::default(), LIMITS, &Compiler::default())
            .expect("crawl");
    let driver = PrefetchDriver::start(native).expect("a thread");
    let (engine, client) = join(&driver);
    assert!(engine.is_native());
    driver.swap(load(&Guest::prefetch())).expect("swapped");
    assert!(!engine.is_native(), "it is told before the swap is over");
    assert_eq!(driver.status().kind, PolicyKind::Wasm);
    engine.enter(&client, 1, 2..4);
    until("its choice", || (engine.listed() == [2, 3]).then_some(()));
    let none = PrefetchPolicyChoice::Native(PrefetchChoice::Nothing);
    driver
        .swap(LoadedPrefetch::load(none, LIMITS, &Compiler::default()).expect("none"))
        .expect("swapped");
    let status = driver.status();
    assert_eq!((status.name.as_str(), status.kind), ("none", PolicyKind::Native));
    assert_eq!(status.digest, "");
    let (calls, counters) = (status.calls, engine.counters());
    assert_eq!((counters.begun, counters.wasted), (2, 2));
    engine.enter(&client, 10, 11..14);
    engine.enter(&client, 11, []);
    assert_eq!((driver.status().calls, engine.listed().len()), (calls, 2));
    driver.stop();
    let again = LoadedPrefetch::load(PrefetchPolicyChoice::default(), LIMITS, &Compiler::default())
        .expect("crawl");
    let stopped = driver.swap(again).expect_err("it is stopped");
    assert!(stopped.to_string().contains("stopping"), "{stopped}");
}

/// H-21, H-30, H-34 for prefetch.
#[test]
fn what_an_operator_may_do() {
    let setup = PrefetchSetup::new(PrefetchPolicyChoice::default(), LIMITS);
    let control = PrefetchControl::start(setup);
    let control = control.unwrap_or_else(|error| panic!("{error}"));
    let (engine, _client) = join(control.driver());
    assert!(engine.is_native());
    let plain = LoadOptions::default();
    let named = |config: &[u8]| PrefetchPolicyChoice::Bytes {
        name: "guest".to_owned(),
        bytes: Guest::prefetch().component(),
        config: config.to_vec(),
    };
    control.rollback().expect_err("there is nothing before");
    control.load(named(b"a"), plain).expect("it is good");
    assert!(engine.is_native(), "a load changes nothing");
    let swapped = control.swap(named(b"a"), plain).expect("it is good");
    assert!(!engine.is_native());
    let standing = control.standing();
    assert_eq!(standing.status.config_digest, swapped.config_digest);
    assert_eq!((standing.swaps, standing.is_panic), (1, false));
    assert_eq!(standing.previous.expect("there was one").name, "crawl");
    let text = PrefetchPolicyChoice::Bytes {
        name: "text".to_owned(),
        bytes: b"#!/bin/sh".to_vec(),
        config: Vec::new(),
    };
    let refused = control.swap(text, plain).expect_err("it is no component").to_string();
    assert_eq!(control.standing().last_refusal, refused);
    assert_eq!(control.standing().status.digest, swapped.digest);
    let keep = LoadOptions { keep_config: true, ..plain };
    let kept = control.swap(named(b""), keep).expect("it is good");
    assert_eq!(kept.config_digest, swapped.config_digest);
    assert_eq!(control.swap(named(b""), plain).expect("it is good").config_digest, "");
    control.rollback().expect("there is one before");
    assert_eq!(control.standing().status.config_digest, swapped.config_digest);

    control.panic().expect("it works always");
    assert!(engine.is_native());
    let standing = control.standing();
    assert!(standing.is_panic, "{standing:?}");
    assert_eq!(standing.status.fallback_reason, "the panic switch is on");
    control.rollback().expect_err("the switch stays");
    let none = PrefetchPolicyChoice::Native(PrefetchChoice::Nothing);
    control.swap(none, plain).expect("there is one");
    let standing = control.standing();
    assert_eq!((standing.status.name.as_str(), standing.is_panic), ("none", false));
    assert_eq!(standing.status.fallback_reason, "");
}

/// H-19 for prefetch: of each kind, only its own.
#[test]
fn a_policy_of_another_kind_is_refused() {
    let (name, config) = ("guest".to_owned(), Vec::new());
    let bytes_of_eviction = Guest::default().component();
    let choice = PrefetchPolicyChoice::Bytes { name, bytes: bytes_of_eviction, config };
    let message = LoadedPrefetch::load(choice, LIMITS, &Compiler::default())
        .err()
        .map(|error| error.to_string());
    let message = message.unwrap_or_default();
    let expected = "guest: does not export portcullis:policy/prefetch: it is not a prefetch policy";
    assert_eq!(message, expected);
    let limits = PolicyLimits { capacity_bytes: 1 << 20, seed: 1 };
    let prefetch = bytes("guest", Guest::prefetch().component());
    let message = LoadedPolicy::load(prefetch, limits).err().map(|error| error.to_string());
    let message = message.unwrap_or_default();
    assert!(message.contains("policy/eviction: it is not an eviction policy"), "{message}");
}

/// H-6, H-24 for prefetch.
#[test]
fn what_fails_before_its_first_event_is_refused() {
    for (guest, reason) in [
        (Guest { start: "unreachable", ..Guest::prefetch() }, "trapped in instantiation"),
        (Guest { describe: "unreachable", ..Guest::prefetch() }, "trapped in describe"),
        (
            Guest { init: "(loop $again (br $again))", ..Guest::prefetch() },
            "used more than 500 ms of CPU time in init",
        ),
        (Guest { name: "NAME", ..Guest::prefetch() }, "its name is not 1 to 64 of [a-z0-9-]"),
    ] {
        let (name, bytes, config) = ("guest".to_owned(), guest.component(), Vec::new());
        let choice = PrefetchPolicyChoice::Bytes { name, bytes, config };
        let message = LoadedPrefetch::load(choice, LIMITS, &Compiler::default())
            .err()
            .map(|error| error.to_string());
        let message = message.unwrap_or_default();
        assert!(message.contains(reason), "{message:?} does not say {reason:?}");
    }
}
