//! Policies written by hand in WebAssembly text, each wrong in one place.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const WIT: &str = include_str!("../../../../wit/0.1.0/policy.wit");

/// A policy that does nothing at all, well-formed, with room to go wrong: each field is text in
/// the place that its name says.
pub(super) struct Guest {
    /// Pages of its memory, and other declarations.
    pub(super) memory: &'static str,
    pub(super) declarations: &'static str,
    pub(super) start: &'static str,
    pub(super) describe: &'static str,
    pub(super) init: &'static str,
    /// Has `$events` (an address) and `$count` (in words).
    pub(super) on_events: &'static str,
    /// Has `$want`; leaves the address of a list.
    pub(super) propose: &'static str,
    /// What `describe` points to.
    pub(super) name: &'static str,
    /// The interface it is made for.
    pub(super) wit: String,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            memory: "(memory (export \"memory\") 8)",
            declarations: "",
            start: "",
            describe: "",
            init: "",
            on_events: "",
            propose: "i32.const 64",
            name: "text",
            wit: WIT.to_owned(),
        }
    }
}

impl Guest {
    /// The interface with one text replaced by another.
    pub(super) fn wit_with(from: &str, to: &str) -> String {
        assert!(WIT.contains(from), "{from} is no longer in the WIT");
        WIT.replace(from, to)
    }

    /// The core module.
    pub(super) fn module(&self) -> Vec<u8> {
        let Self { memory, declarations, start, describe, init, on_events, propose, name, wit } =
            self;
        let version = wit.split(['@', ';']).nth(1).expect("the package has a version");
        // Memory: 0 what `describe` returns, 32 what `init` returns (success), 64 an empty list,
        // 256 strings, 65,536 and on whatever the host passes.
        let text = format!(
            r#"(module
                (import "portcullis:policy/log@{version}" "log" (func $log (param i32 i32 i32)))
                {memory}
                {declarations}
                (global $batches (mut i32) (i32.const 0))
                (data (i32.const 0) "\00\01\00\00\04\00\00\00\08\01\00\00\05\00\00\00")
                (data (i32.const 256) "{name}")
                (data (i32.const 264) "1.0.0")
                (func $start {start})
                (start $start)
                (func $recurse (call $recurse) (call $recurse))
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                    i32.const 65536)
                (func (export "portcullis:policy/control@{version}#describe") (result i32)
                    {describe} i32.const 0)
                (func (export "portcullis:policy/control@{version}#init")
                    (param i64 i64 i32 i32 i32 i32) (result i32)
                    {init} i32.const 32)
                (func (export "portcullis:policy/eviction@{version}#on-events")
                    (param $now i64) (param $events i32) (param $count i32)
                    (global.set $batches (i32.add (global.get $batches) (i32.const 1)))
                    {on_events})
                (func (export "portcullis:policy/eviction@{version}#propose")
                    (param $now i64) (param $want i32) (result i32)
                    {propose})
            )"#
        );
        wat::parse_str(text).expect("the text is WebAssembly")
    }

    /// The component.
    pub(super) fn component(&self) -> Vec<u8> {
        let mut module = self.module();
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.wit).expect("the WIT is WIT");
        let world = resolve.select_world(&[package], Some("eviction-policy")).expect("our world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
            .expect("the metadata fits");
        ComponentEncoder::default()
            .module(&module)
            .and_then(|encoder| encoder.validate(true).encode())
            .expect("the module fits its world")
    }
}
