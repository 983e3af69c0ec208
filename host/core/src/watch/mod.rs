//! Watches and leases: how a change reaches everyone who may have cached what it makes untrue.
//!
//! Between a tier that answers (a brick, a gateway) and one that caches its answers (a gateway, a
//! client) there is a *session*. The answering side notes what it told each session ([`watched`]).
//! A [`Change`] is told to every session that watches what it concerns, and whoever made it is
//! answered only when all of them have acknowledged ([`grantor`]), or when the lease of those that
//! did not has run out. The caching side answers from its cache only while its [`Lease`] holds,
//! which ends by its own clock before the other side declares it over.
//!
//! What must hold:
//! - A watch is registered before the answer it belongs to is read, or the answer is read again:
//!   [`Grantor::read`] and [`Grantor::attr_changed_since`] tell whether it changed in between.
//! - A change is made first, then told, then acknowledged to whoever asked for it.
//! - A lease at the caching side ends before it ends at the answering side, whatever the network
//!   does: it counts from when a renewal was sent, and [`LEASE_MS`] is shorter than
//!   [`LEASE_HELD_MS`] by more than clocks drift apart in that time.
//!
//! [`LEASE_MS`]: crate::limits::LEASE_MS
//! [`LEASE_HELD_MS`]: crate::limits::LEASE_HELD_MS

mod change;
mod grantor;
mod lease;
mod recent;
mod rounds;
mod session;
mod watched;

pub use change::{Change, Key};
pub use grantor::{Grantor, Reading, Round, SessionId};
pub use lease::Lease;
pub use session::Tell;
pub use watched::Watched;
