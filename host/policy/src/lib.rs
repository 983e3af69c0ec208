//! Policies as WebAssembly components: loaded, limited, driven, replaced when they fail. The only
//! crate that names wasmtime.
//!
//! A policy is loaded first ([`LoadedPolicy::load`], or [`CompiledPolicy::load`] where one component is
//! loaded again and again) and then started ([`EvictionDriver::start`]):
//!
//! - [`component`] inspects the bytes (size, imports, interface version) and compiles them with
//!   the one [`engine`], whose [`ticker`] interrupts what runs too long;
//! - [`sandbox`] is a component in a store of its own: limits and log in [`guest`], one deadline a
//!   call; [`instance`] and [`prefetch_instance`] are what each kind has; [`eviction_calls`] has an
//!   adapter for each version of the interface, [`bindings`] what is generated from `wit/`;
//! - [`loaded`] is a policy ready to work, of whichever kind; [`builtin`] is the one inside this
//!   binary;
//! - [`driver`] owns the thread, [`runner`] does its work: events in, victims out, and the native
//!   policy in place of one that failed; [`status`] is what everybody else may see of it;
//! - [`prefetch_driver`] does the same for prefetch, where one component serves all clients
//!   ([`prefetch_clients`]); [`prefetch_policy`] is one that is loaded, [`prefetch_status`] what is seen.
//!
//! Authors of policies see the same: [`words`] is a component of any kind at work in words, [`inspect`] what
//! one says of itself.
//!
//! What must hold: no request waits for a policy; nothing a component does harms the host or stops
//! the driver; a store that trapped is never entered again.

mod bindings;
mod builtin;
mod component;
mod cpu;
mod driver;
mod engine;
mod error;
mod eviction_calls;
mod guest;
pub mod inspect;
mod instance;
mod loaded;
#[cfg(test)]
mod older;
mod prefetch_clients;
mod prefetch_driver;
mod prefetch_instance;
mod prefetch_policy;
mod prefetch_status;
mod runner;
mod sandbox;
mod status;
#[cfg(test)]
mod tests;
mod ticker;
mod words;

pub use driver::EvictionDriver;
pub use error::{Fault, PolicyError, Refusal};
pub use loaded::{CompiledPolicy, LoadedPolicy, PolicyChoice};
pub use prefetch_clients::PrefetchClient;
pub use prefetch_driver::PrefetchDriver;
pub use prefetch_policy::{LoadedPrefetch, PrefetchPolicyChoice};
pub use prefetch_status::PrefetchStatus;
pub use status::{EvictionStatus, PolicyKind};
pub use words::{CompiledWords, WordsPolicy};
