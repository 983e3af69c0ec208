//! What the generated code of world `inlining-policy` is called by.

pub use bindings::export_inlining;
pub use bindings::exports::portcullis::policy::{control, inlining};

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
        world: "inlining-policy",
        pub_export_macro: true,
        export_macro_name: "export_inlining",
        default_bindings_module: "portcullis_sdk::component::inlining::bindings",
        runtime_path: "portcullis_sdk::component::wit_bindgen_rt",
    });
}
