//! Deadlines: each call has one of its own, and a thread that nothing else holds up keeps the time.

use portcullis_core::limits::POLICY_CALL_CPU_MS_MAX;

use super::guests::Guest;
use super::{LIMITS, until};
use crate::compiler::Compiler;
use crate::component::EVICTION;
use crate::cpu::thread_cpu_ns;
use crate::engine::Engine;
use crate::error::Fault;
use crate::instance::Instance;

fn start(guest: &Guest) -> Instance {
    let engine = Engine::shared().expect("Wasm runs here");
    let compiled =
        Compiler::InProcess.compile(&EVICTION, &guest.component(), None).expect("it compiles");
    Instance::start(engine, &compiled, LIMITS, b"", "guest").expect("it starts").0
}

/// H-7: what earlier calls took does not count, and a call after many has a deadline all the same.
#[test]
fn each_call_has_a_deadline_of_its_own() {
    const CALLS: i32 = 20;
    // Some tens of milliseconds a call; from a certain call on, without an end.
    let on_events = format!(
        "(local.set $word (i32.const 30000000))
        (loop $again
            (local.set $word (i32.sub (local.get $word) (i32.const 1)))
            (br_if $again (i32.or
                (i32.gt_s (global.get $batches) (i32.const {CALLS}))
                (i32.ne (local.get $word) (i32.const 0)))))"
    );
    let on_events: &'static str = on_events.leak();
    let mut instance = start(&Guest { on_events, ..Guest::default() });
    let began_ns = thread_cpu_ns();
    for call in 0..CALLS {
        instance.on_events(0, &[]).unwrap_or_else(|fault| panic!("call {call}: {fault}"));
    }
    let used_ms = (thread_cpu_ns() - began_ns) / 1_000_000;
    println!("{CALLS} calls took {used_ms} ms together, each may take {POLICY_CALL_CPU_MS_MAX}");
    let fault = instance.on_events(0, &[]).expect_err("this one has no end");
    assert!(matches!(fault, Fault::Overrun { call: "on-events" }), "{fault}");
}

/// H-10: all processors are busy, and the caller's own thread is inside the policy.
#[test]
fn the_time_is_kept_by_a_thread_of_its_own() {
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut instance =
            start(&Guest { on_events: "(loop $again (br $again))", ..Guest::default() });
        let fault = instance.on_events(0, &[]);
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(fault, Err(Fault::Overrun { .. })));
    });
    let names = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads are listed");
        let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().filter(|name| name.trim() == "policy-ticker").count()
    };
    // One for the process, however many policies there are.
    until("the thread", || (names() == 1).then_some(()));
}

/// H-3: what trapped is not entered again; the one that is made anew knows nothing of it.
#[test]
fn a_store_that_trapped_is_never_entered_again() {
    let on_events = "(if (i32.eq (global.get $batches) (i32.const 2)) (then unreachable))";
    let guest = Guest { on_events, ..Guest::default() };
    let mut first = start(&guest);
    first.on_events(0, &[]).expect("the first batch");
    let fault = first.on_events(0, &[]).expect_err("the second batch");
    assert!(matches!(fault, Fault::Trap { .. }), "{fault}");
    // Would it be entered, this were the third batch, which does not trap.
    let again = first.on_events(0, &[]).expect_err("it is not entered");
    assert!(again.to_string().contains("trapped in on-events: cannot enter"), "{again}");
    let mut second = start(&guest);
    second.on_events(0, &[]).expect("its own first batch");
    drop(first);
    second.on_events(0, &[]).expect_err("its own second batch");
}
