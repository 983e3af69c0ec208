//! What the author of a Portcullis policy depends on.
//!
//! A policy is a type that implements [`Policy`] (who it is and how it is made) and the trait of its kind
//! (how it decides), and one line makes a component of it; the WIT interface behind that
//! (`wit/README.md`) never shows.
//!
//! | kind | trait | the line |
//! |---|---|---|
//! | what leaves the cache | [`EvictionPolicy`] | [`register_eviction!`] |
//! | which directories are listed ahead | [`PrefetchPolicy`](prefetch::PrefetchPolicy) | [`register_prefetch!`] |
//! | what content travels along | [`InliningPolicy`](inlining::InliningPolicy) | [`register_inlining!`] |
//!
//! `portcullis policy new NAME --kind KIND` makes a project with a whole policy of any of them. This is an
//! eviction policy:
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
//! [`testing::eviction`] (and its like for the other kinds) plays seeded events to a policy and holds its
//! answers against the rules of the interface; `portcullis policy test` does the same with the component, and
//! compares the two.
//!
//! The manifest says `crate-type = ["cdylib", "rlib"]`: the first becomes the component, the second is what
//! tests link. `portcullis policy build` does the rest: it compiles for `wasm32-unknown-unknown` and encodes
//! the result as a component that imports nothing but the host's log.
//!
//! In a component a panic is a trap, and the host goes on with its own policy; the message and the place
//! of the panic are in the host's log.

mod log;
mod native;
mod register;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
#[doc(hidden)]
pub mod words;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod component;

pub use log::{Level, log};
pub use portcullis_core::eviction::{
    Class, Event, EvictionPolicy, ObjectId, PolicyLimits, Removal,
};

/// What a prefetch policy sees and answers: see [`PrefetchPolicy`](prefetch::PrefetchPolicy).
pub mod prefetch {
    pub use portcullis_core::prefetch::{
        Answer, Crawl, DirId, Entry, Event, Loss, Nothing, PrefetchPolicy, Statahead,
    };
}

/// What an inlining policy sees and answers: see [`InliningPolicy`](inlining::InliningPolicy).
pub mod inlining {
    pub use portcullis_core::inlining::{
        ClassId, Counts, Fixed, InliningPolicy, Learnt, Rule, Stat,
    };
}

/// Who a policy is, and how it is made. The rest is said by the trait of its kind.
pub trait Policy: Sized + Send + 'static {
    /// Name, of `[a-z0-9-]`, at most 64 bytes.
    const NAME: &str;
    /// Version, printable ASCII, at most 64 bytes.
    const VERSION: &str;

    /// Makes the policy, before its first event; a prefetch policy for each client. `config` is what
    /// the operator wrote; by convention an empty one asks for defaults.
    ///
    /// # Errors
    /// What is wrong with the configuration; the policy is then not used.
    fn new(limits: PolicyLimits, config: &[u8]) -> Result<Self, String>;
}
