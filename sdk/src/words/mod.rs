//! Between the words of the interface and the types of a policy: what a component runs, and what tests
//! run natively, so that the two cannot differ.
//!
//! What must hold: words that nobody knows are skipped, a list whose length is no multiple of its
//! stride loses its rest, and no answer is longer than the host allows: what is left over comes first
//! the next time.

mod eviction;
mod inlining;
mod prefetch;

pub use eviction::EvictionWords;
pub use inlining::InliningWords;
pub use prefetch::PrefetchWords;
