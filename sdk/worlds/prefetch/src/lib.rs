//! World `prefetch-policy`, generated from `wit/`. A crate of its own, since the macros that export a world
//! bear the names of its interfaces, and worlds share one. Outside of a component it is empty.

#![cfg(target_arch = "wasm32")]

pub use bindings::export_policy;
pub use bindings::exports::portcullis::policy::{control, prefetch};
pub use bindings::portcullis::policy::log;

/// Generated.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit/0.1.0",
        world: "prefetch-policy",
        pub_export_macro: true,
        export_macro_name: "export_policy",
    });
}
