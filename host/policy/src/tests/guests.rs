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
    /// Has `$events` (an address) and `$count` (in words), and locals `$word`, `$at` (`i32`), `$head`
    /// (`i64`), `$float` (`f64`).
    pub(super) on_events: &'static str,
    /// Has `$want`; leaves the address of a list.
    pub(super) propose: &'static str,
    /// The interface it exports beside `control`: `eviction`; `prefetch`, of which `propose` has `$client` too;
    /// or `inlining`, of which `rules` is `propose` with what `on_events` has.
    pub(super) decides: &'static str,
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
            decides: "eviction",
            name: "text",
            wit: WIT.to_owned(),
        }
    }
}

/// Remembers each subdirectory that it is told of.
const NOTE_SUBDIRS: &str = "(block $done (loop $next
        (br_if $done (i32.ge_u (local.get $word) (local.get $count)))
        (local.set $at
            (i32.add (local.get $events) (i32.shl (local.get $word) (i32.const 3))))
        (local.set $head (i64.load (local.get $at)))
        (if (i64.eq (i64.and (local.get $head) (i64.const 255)) (i64.const 1)) (then
            (i64.store (call $row (global.get $noted)) (i64.shr_u (local.get $head) (i64.const 32)))
            (i64.store offset=8 (call $row (global.get $noted)) (i64.load offset=16 (local.get $at)))
            (global.set $noted (i32.add (global.get $noted) (i32.const 1)))))
        (local.set $word (i32.add (local.get $word) (i32.const 3)))
        (br $next)))";
/// Answers with those of the client, each once.
const LIST_NOTED: &str = "(local $row i32) (local $out i32)
    (block $done (loop $next
        (br_if $done (i32.ge_u (local.get $row) (global.get $noted)))
        (br_if $done (i32.ge_u (local.get $out) (local.get $want)))
        (if (i64.eq (i64.load (call $row (local.get $row)))
                (i64.extend_i32_u (local.get $client))) (then
            (i64.store (call $row (local.get $row)) (i64.const -1))
            (i64.store (call $answer (local.get $out)) (i64.const 0))
            (i64.store offset=8
                (call $answer (local.get $out)) (i64.load offset=8 (call $row (local.get $row))))
            (local.set $out (i32.add (local.get $out) (i32.const 1)))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (i32.store (i32.const 128) (call $answer (i32.const 0)))
    (i32.store (i32.const 132) (i32.shl (local.get $out) (i32.const 1)))
    i32.const 128";
/// Where both are kept: rows of client and directory, answers of kind and directory.
const ROWS: &str = "(global $noted (mut i32) (i32.const 0))
    (func $row (param i32) (result i32)
        (i32.add (i32.const 327680) (i32.shl (local.get 0) (i32.const 4))))
    (func $answer (param i32) (result i32)
        (i32.add (i32.const 425984) (i32.shl (local.get 0) (i32.const 4))))";

impl Guest {
    /// A prefetch policy that has each subdirectory listed that it is told of.
    pub(super) fn prefetch() -> Self {
        Self {
            decides: "prefetch",
            declarations: ROWS,
            on_events: NOTE_SUBDIRS,
            propose: LIST_NOTED,
            ..Self::default()
        }
    }

    /// The interface with one text replaced by another.
    pub(super) fn wit_with(from: &str, to: &str) -> String {
        assert!(WIT.contains(from), "{from} is no longer in the WIT");
        WIT.replace(from, to)
    }

    /// The core module.
    pub(super) fn module(&self) -> Vec<u8> {
        let Self { memory, declarations, start, describe, init, on_events, propose, .. } = self;
        let Self { decides, name, wit, .. } = self;
        let client = if *decides == "prefetch" { "(param $client i32)" } else { "" };
        let version = wit.split(['@', ';']).nth(1).expect("the package has a version");
        let decisions = match *decides {
            "inlining" => format!(
                r#"(func (export "portcullis:policy/inlining@{version}#rules")
                    (param $now i64) (param $events i32) (param $count i32) (result i32)
                    {propose})"#
            ),
            _ => format!(
                r#"(func (export "portcullis:policy/{decides}@{version}#on-events")
                    (param $now i64) (param $events i32) (param $count i32)
                    (local $word i32) (local $at i32) (local $head i64) (local $float f64)
                    (global.set $batches (i32.add (global.get $batches) (i32.const 1)))
                    {on_events})
                (func (export "portcullis:policy/{decides}@{version}#propose")
                    (param $now i64) {client} (param $want i32) (result i32)
                    {propose})"#
            ),
        };
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
                {decisions}
            )"#
        );
        wat::parse_str(text).expect("the text is WebAssembly")
    }

    /// The component.
    pub(super) fn component(&self) -> Vec<u8> {
        let mut module = self.module();
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.wit).expect("the WIT is WIT");
        let world = format!("{}-policy", self.decides);
        let world = resolve.select_world(&[package], Some(&world)).expect("our world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
            .expect("the metadata fits");
        ComponentEncoder::default()
            .module(&module)
            .and_then(|encoder| encoder.validate(true).encode())
            .expect("the module fits its world")
    }
}
