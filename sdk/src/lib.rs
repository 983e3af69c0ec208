//! What the author of a Portcullis policy depends on.
//!
//! An eviction policy is a type that implements [`EvictionPolicy`] (how it decides) and
//! [`Policy`] (who it is and how it is made). [`register_eviction!`] makes a component of it; the
//! WIT interface behind it (`wit/README.md`) never shows.
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use portcullis_sdk::{
//!     Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction,
//! };
//!
//! /// First in, first out.
//! struct Fifo(VecDeque<ObjectId>);
//!
//! impl Policy for Fifo {
//!     const NAME: &str = "fifo";
//!     const VERSION: &str = env!("CARGO_PKG_VERSION");
//!
//!     fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
//!         if config.is_empty() { Ok(Self(VecDeque::new())) } else { Err("takes no config".into()) }
//!     }
//! }
//!
//! impl EvictionPolicy for Fifo {
//!     fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
//!         for event in events {
//!             match *event {
//!                 // A spared object was proposed, so it is no longer in the queue.
//!                 Event::Insert { id, .. } | Event::Spare { id } => self.0.push_back(id),
//!                 Event::Remove { id, .. } => self.0.retain(|&other| other != id),
//!                 Event::Hit { .. } => {}
//!             }
//!         }
//!     }
//!
//!     fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
//!         self.0.drain(..want.min(self.0.len())).collect()
//!     }
//! }
//!
//! register_eviction!(Fifo);
//!
//! // A policy is ordinary Rust: test it natively.
//! # use portcullis_sdk::Class;
//! # fn main() {
//! let limits = PolicyLimits { capacity_bytes: 1 << 20, seed: 1 };
//! let mut fifo = Fifo::new(limits, b"").expect("an empty config is fine");
//! let insert = |slot| Event::Insert {
//!     id: ObjectId::new(slot, 0),
//!     key: slot.into(),
//!     class: Class::Asked,
//!     weight_bytes: 100,
//! };
//! fifo.on_events(0, &[insert(1), insert(2)]);
//! assert_eq!(fifo.propose(0, 8), [ObjectId::new(1, 0), ObjectId::new(2, 0)]);
//! # }
//! ```
//!
//! The manifest says `crate-type = ["cdylib", "rlib"]`: the first becomes the component, the
//! second is what tests link. `cargo xtask build` does the rest: it compiles for
//! `wasm32-unknown-unknown` and encodes the result as a component that imports nothing but the
//! host's log.
//!
//! In a component a panic is a trap, and the host goes on with its own policy; the message and
//! the place of the panic are in the host's log.

pub use portcullis_core::eviction::{
    Class, Event, EvictionPolicy, ObjectId, PolicyLimits, Removal,
};

mod log;
mod native;

// The generated code names the SDK as a policy does.
#[cfg(target_arch = "wasm32")]
extern crate self as portcullis_sdk;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod component;

pub use log::{Level, log};

/// Who a policy is, and how it is made.
pub trait Policy: EvictionPolicy + Sized + 'static {
    /// Name, of `[a-z0-9-]`, at most 64 bytes.
    const NAME: &str;
    /// Version, printable ASCII, at most 64 bytes.
    const VERSION: &str;

    /// Makes the policy, before its first event. `config` is what the operator wrote; by
    /// convention an empty one asks for defaults.
    ///
    /// # Errors
    /// What is wrong with the configuration; the policy is then not used.
    fn new(limits: PolicyLimits, config: &[u8]) -> Result<Self, String>;
}

/// Makes an eviction policy of a type that implements [`Policy`]: the exports of the component.
/// Once in a crate. Outside of a component it only checks the type.
#[macro_export]
macro_rules! register_eviction {
    ($policy:ty) => {
        const _: () = {
            const fn is_policy<P: $crate::Policy>() {}
            is_policy::<$policy>();
        };
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            static POLICY: $crate::component::Slot<$policy> = $crate::component::Slot::new();

            struct Component;

            impl $crate::component::control::Guest for Component {
                fn describe() -> $crate::component::control::Info {
                    POLICY.describe()
                }

                fn init(
                    limits: $crate::component::control::Limits,
                    config: Vec<u8>,
                ) -> Result<(), String> {
                    POLICY.init(limits, &config)
                }
            }

            impl $crate::component::eviction::Guest for Component {
                fn on_events(now_ms: u64, events: Vec<u64>) {
                    POLICY.on_events(now_ms, &events);
                }

                fn propose(now_ms: u64, want: u32) -> Vec<u64> {
                    POLICY.propose(now_ms, want)
                }
            }

            $crate::component::export_eviction!(
                Component with_types_in $crate::component::bindings
            );
        };
    };
}
