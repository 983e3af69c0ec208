//! What the generated code of world `eviction-policy` is called by.

pub use bindings::export_eviction;
pub use bindings::exports::portcullis::policy::{control, eviction};

/// Generated from `wit/`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        world: "eviction-policy",
        pub_export_macro: true,
        export_macro_name: "export_eviction",
        default_bindings_module: "portcullis_sdk::component::eviction::bindings",
        runtime_path: "portcullis_sdk::component::wit_bindgen_rt",
    });
}
