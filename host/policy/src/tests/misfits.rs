//! What is refused before it sees an event, and in which words.

use std::fs;
use std::path::PathBuf;

use super::guests::Guest;
use super::{LIMITS, built, bytes};
use crate::{LoadedPolicy, PolicyChoice};

fn refusal(choice: PolicyChoice) -> String {
    match LoadedPolicy::load(choice, LIMITS) {
        Ok(loaded) => panic!("{} was loaded", loaded.name()),
        Err(error) => error.to_string(),
    }
}

fn refusal_of(guest: &Guest) -> String {
    refusal(bytes("guest", guest.component()))
}

#[track_caller]
fn assert_has(message: &str, part: &str) {
    assert!(message.contains(part), "{message:?} does not say {part:?}");
}

#[test]
fn a_harmless_guest_is_loaded() {
    let loaded = LoadedPolicy::load(bytes("guest", Guest::default().component()), LIMITS);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.name(), "text");
    assert_eq!(loaded.digest().len(), 64);
}

/// H-1.
#[test]
fn bytes_that_are_no_component() {
    let text = bytes("text", b"#!/bin/sh\n".repeat(100));
    assert_has(&refusal(text), "text: is not a WebAssembly component: it does not begin as");
    assert_has(&refusal(bytes("nothing", Vec::new())), "is not a WebAssembly component");
    let magic = bytes("magic", b"\0asm".to_vec());
    assert_has(&refusal(magic), "is not a WebAssembly component: unexpected end");
    let module = bytes("module", Guest::default().module());
    assert_has(&refusal(module), "is a WebAssembly module and not a component");
    let padded = [Guest::default().component(), vec![0; 17 << 20]].concat();
    assert_has(&refusal(bytes("large", padded)), "is larger than 16 MiB");
}

/// H-1.
#[test]
fn a_component_cut_anywhere_is_refused() {
    let whole = fs::read(built("s3fifo")).expect("it can be read");
    let cuts = (0..whole.len()).step_by(1 + whole.len() / 150);
    for cut in cuts.chain([8, whole.len() - 1]) {
        refusal(bytes("cut", whole[..cut].to_vec()));
    }
}

#[test]
fn files_that_are_none() {
    let missing = PathBuf::from("/nonexistent/policy.wasm");
    assert_has(&refusal(PolicyChoice::File(missing)), "/nonexistent/policy.wasm: cannot be read");
    let directory = PolicyChoice::File(std::env::temp_dir());
    assert_has(&refusal(directory), "is not a regular file");
}

/// H-14, H-19.
#[test]
fn an_import_that_is_not_given() {
    let clock = "interface clock { now: func() -> u64; }\n/// Which objects";
    let wit = Guest::wit_with("/// Which objects", clock);
    let wit = wit.replace("import log;", "import log; import clock;");
    let declarations =
        r#"(import "portcullis:policy/clock@0.1.0" "now" (func $clock (result i64)))"#;
    let guest = Guest { wit, memory: declarations, declarations: MEMORY, ..Guest::default() };
    assert_has(&refusal_of(&guest), "imports portcullis:policy/clock@0.1.0, which the host does");
    let wasi = wat::parse_str(r#"(component (import "wasi:cli/environment@0.2.0" (instance)))"#);
    let message = refusal(bytes("wasi", wasi.expect("a component")));
    assert_has(&message, "imports wasi:cli/environment@0.2.0, which the host does not give");
}

/// Imports come before memories.
const MEMORY: &str = "(memory (export \"memory\") 8)";

/// A later host of the same track may give more. What needs that is refused before it is at work, and
/// says which function it is. H-20.
#[test]
fn a_function_that_a_later_host_gives() {
    let wit = Guest::wit_with("policy@0.1.0", "policy@0.1.9");
    let wit = wit.replace("log: func(", "flush: func();\n    log: func(");
    assert!(wit.contains("flush"));
    let declarations = r#"(import "portcullis:policy/log@0.1.9" "flush" (func $flush))"#;
    let guest = Guest { wit, memory: declarations, declarations: MEMORY, ..Guest::default() };
    let message = refusal_of(&guest);
    assert_has(&message, "does not fit the policy interface");
    assert_has(&message, "flush");
}

/// H-19.
#[test]
fn another_version() {
    let newer = Guest { wit: Guest::wit_with("policy@0.1.0", "policy@0.2.0"), ..Guest::default() };
    assert_has(&refusal_of(&newer), "is made for policy interface 0.2.0, this host has 0.1.0");
    // What only adds to 0.1 fits, as long as it does not ask for what was added.
    let wit = Guest::wit_with("policy@0.1.0", "policy@0.1.7");
    let patched = Guest { wit, ..Guest::default() };
    let loaded = LoadedPolicy::load(bytes("patched", patched.component()), LIMITS);
    assert!(loaded.is_ok(), "{}", loaded.err().map(|error| error.to_string()).unwrap_or_default());
}

#[test]
fn a_component_for_another_purpose() {
    let empty = wat::parse_str("(component)").expect("a component");
    let message = refusal(bytes("empty", empty));
    assert_has(&message, "does not export portcullis:policy/control: it is not an eviction policy");
}

#[test]
fn functions_of_other_types() {
    let wit = Guest::wit_with("propose: func(now-ms: u64,", "propose: func(now-ms: s64,");
    let guest = Guest { wit, ..Guest::default() };
    assert_has(&refusal_of(&guest), "does not fit the policy interface");
}

/// H-9, H-24.
#[test]
fn a_trap_before_the_first_event() {
    let start = Guest { start: "unreachable", ..Guest::default() };
    assert_has(&refusal_of(&start), "trapped in instantiation: wasm `unreachable` instruction");
    let describe = Guest { describe: "unreachable", ..Guest::default() };
    assert_has(&refusal_of(&describe), "trapped in describe");
    let init = Guest { init: "call $recurse", ..Guest::default() };
    assert_has(&refusal_of(&init), "trapped in init: call stack exhausted");
}

/// H-6: also in the start function, which runs when it is instantiated.
#[test]
fn a_loop_before_the_first_event() {
    const ENDLESS: &str = "(loop $again (br $again))";
    let start = Guest { start: ENDLESS, ..Guest::default() };
    assert_has(&refusal_of(&start), "used more than 500 ms of CPU time in instantiation");
    let describe = Guest { describe: ENDLESS, ..Guest::default() };
    assert_has(&refusal_of(&describe), "used more than 500 ms of CPU time in describe");
    let init = Guest { init: ENDLESS, ..Guest::default() };
    assert_has(&refusal_of(&init), "used more than 500 ms of CPU time in init");
}

/// H-11, H-12: what it asks for at once is held against the limits too.
#[test]
fn more_memory_than_there_is_to_have() {
    let memory = "(memory (export \"memory\") 2000)";
    let at_once = Guest { memory, ..Guest::default() };
    let message = refusal_of(&at_once);
    assert_has(&message, "failed in instantiation");
    assert_has(&message, "denied 131072000 bytes of memory");
    let table = Guest { declarations: "(table 20000 funcref)", ..Guest::default() };
    assert_has(&refusal_of(&table), "denied a table of 20000 elements");
}

#[test]
fn features_that_are_not_offered() {
    for declarations in [
        "(memory $second 1)",
        "(memory $wide i64 1)",
        "(func (param v128) (drop (f32x4.relaxed_min (local.get 0) (local.get 0))))",
        "(func $tail (return_call $tail))",
        "(type $struct (struct))",
    ] {
        let guest = Guest { declarations, ..Guest::default() };
        assert_has(&refusal_of(&guest), "cannot be compiled");
    }
}

/// H-18.
#[test]
fn a_bad_description() {
    let utf8 = Guest { name: "\\ff\\fe\\fd\\fc", ..Guest::default() };
    assert_has(&refusal_of(&utf8), "failed in describe: invalid utf-8");
    let capitals = Guest { name: "TEXT", ..Guest::default() };
    assert_has(&refusal_of(&capitals), "its name is not 1 to 64 of [a-z0-9-]");
    let nowhere =
        Guest { describe: "(i32.store (i32.const 0) (i32.const -8))", ..Guest::default() };
    assert_has(&refusal_of(&nowhere), "failed in describe");
}

/// H-18.
#[test]
fn a_configuration_that_is_refused() {
    // `err("text")`, with the name as its words.
    let words = "(i32.store8 (i32.const 32) (i32.const 1))
        (i32.store (i32.const 36) (i32.const 256)) (i32.store (i32.const 40) (i32.const 4))";
    let guest = Guest { init: words, ..Guest::default() };
    assert_has(&refusal_of(&guest), "guest: refuses its configuration: text");
    let neither = Guest { init: "(i32.store8 (i32.const 32) (i32.const 9))", ..Guest::default() };
    assert_has(&refusal_of(&neither), "failed in init");
    let config = b"small=20%".to_vec();
    let bytes = fs::read(built("s3fifo")).expect("it can be read");
    let shipped = PolicyChoice::Bytes { name: "s3fifo".into(), bytes, config };
    assert_has(&refusal(shipped), "s3fifo: refuses its configuration: s3-fifo takes no");
}
