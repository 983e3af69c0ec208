//! Eviction policies as WebAssembly components: loaded, limited, driven, replaced when they fail.
//! The only crate that names wasmtime.
//!
//! A policy is loaded first ([`LoadedPolicy::load`], or [`CompiledPolicy::load`] where one component is
//! loaded again and again) and then started ([`EvictionDriver::start`]):
//!
//! - [`component`] inspects the bytes (size, imports, interface version) and compiles them with
//!   the one [`engine`], whose [`ticker`] interrupts what runs too long;
//! - [`instance`] is a component at work: one store, limits and log in [`guest`], one deadline a
//!   call; [`bindings`] is what the generated code needs of `wit/`;
//! - [`loaded`] is a policy ready to work, of whichever kind; [`builtin`] is the one inside this
//!   binary;
//! - [`driver`] owns the thread, [`runner`] does its work: events in, victims out, and the native
//!   policy in place of one that failed; [`status`] is what everybody else may see of it;
//! - [`ghost`] is a cache of keys alone, for what a policy would have made of live traffic.
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
mod ghost;
mod guest;
mod instance;
mod loaded;
mod runner;
mod status;
#[cfg(test)]
mod tests;
mod ticker;

pub use driver::EvictionDriver;
pub use error::{Fault, PolicyError, Refusal};
pub use ghost::{GhostCache, Touch};
pub use loaded::{CompiledPolicy, LoadedPolicy, PolicyChoice};
pub use status::{EvictionStatus, PolicyKind};
