//! Policies as WebAssembly components: loaded, limited, driven, replaced when they fail. The only
//! crate that names wasmtime.
//!
//! A policy is compiled and loaded first ([`CompiledPolicy`], [`LoadedPolicy`]) and then started
//! ([`EvictionDriver::start`]) or swapped in ([`EvictionDriver::swap`]):
//!
//! - [`component`] inspects the bytes (size, imports, interface version), [`compiler`] has them
//!   compiled, [`codes`] keeps what came of it; the one [`engine`] runs it, and its [`ticker`]
//!   interrupts what runs too long;
//! - [`sandbox`] is a component in a store of its own: limits and log in [`guest`], one deadline a
//!   call; [`instance`] and [`prefetch_instance`] are what each kind has; [`eviction_calls`] has an
//!   adapter for each version of the interface, [`bindings`] what is generated from `wit/`;
//! - [`loaded`] is a policy ready to work, of whichever kind, [`recipe`] how to make it again;
//!   [`builtin`] is the one inside this binary; [`self_test`] tries one with made-up objects;
//! - [`driver`] owns the thread, [`runner`] does its work: events in, victims out, and which policy is
//!   the active one; [`seat`] is a policy with its books, [`trial`] one that still learns, [`rebuild`]
//!   one that failed and is tried again; [`mailbox`] has what others want; [`strikes`] counts faults
//!   and quarantines, [`evidence`] keeps what led to them; [`status`] is what everybody else may see of it;
//! - [`control`] is what an operator may do: load, swap, roll back, press the panic switch; [`saved`]
//!   keeps what came of it over a restart;
//! - [`prefetch_driver`] has the thread of prefetch, where one component serves all clients
//!   ([`prefetch_clients`]); [`prefetch_policy`] is one that is loaded, [`prefetch_status`] what is seen,
//!   [`prefetch_control`] what an operator may do;
//! - [`inlining_driver`] has the thread of inlining, which asks for rules once a second; the rest is named as
//!   that of prefetch;
//! - [`ghost`] is a cache of keys alone, for what a policy would have made of live traffic.
//!
//! Authors of policies see the same: [`words`] is a component of any kind at work in words, [`inspect`] what
//! one says of itself.
//!
//! What must hold: no request waits for a policy; nothing a component does harms the host or stops
//! the driver; a store that trapped is never entered again; a policy that is not taken leaves the
//! active one in charge.

mod bindings;
mod builtin;
mod codes;
mod compiler;
mod component;
mod control;
mod cpu;
mod driver;
mod engine;
mod error;
mod eviction_calls;
mod evidence;
mod ghost;
mod guest;
mod inlining_control;
mod inlining_driver;
mod inlining_instance;
mod inlining_policy;
mod inlining_status;
pub mod inspect;
mod instance;
mod kept;
mod loaded;
mod mailbox;
#[cfg(test)]
mod older;
mod prefetch_clients;
mod prefetch_control;
mod prefetch_driver;
mod prefetch_instance;
mod prefetch_policy;
mod prefetch_status;
mod rebuild;
mod recipe;
mod runner;
mod sandbox;
mod saved;
mod seat;
mod self_test;
mod status;
mod strikes;
#[cfg(test)]
mod tests;
mod ticker;
mod trial;
mod words;

pub use compiler::{Compiler, compile_in_this_process};
pub use control::{LoadOptions, PolicyControl, PolicySetup};
pub use driver::{DriverOptions, EvictionDriver};
pub use error::{Fault, PolicyError, Refusal};
pub use evidence::Batches;
pub use ghost::{GhostCache, Touch};
pub use inlining_control::{InliningControl, InliningStanding};
pub use inlining_policy::InliningPolicyChoice;
pub use inlining_status::InliningStatus;
pub use loaded::{CompiledPolicy, LoadedPolicy, PolicyChoice};
pub use prefetch_clients::PrefetchClient;
pub use prefetch_control::{PrefetchControl, PrefetchSetup, PrefetchStanding};
pub use prefetch_driver::PrefetchDriver;
pub use prefetch_policy::{LoadedPrefetch, PrefetchPolicyChoice};
pub use prefetch_status::PrefetchStatus;
pub use status::{EvictionStatus, PolicyIdentity, PolicyKind, PreviousPolicy};
pub use strikes::{Quarantined, Recovery};
pub use words::{CompiledWords, WordsPolicy};
