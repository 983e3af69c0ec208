//! Traces replayed: what a policy would have made of requests that were recorded.
//!
//! [`formats`] reads a [`Trace`] from bytes, [`replay()`] plays it to a [`Policy`] in a cache of some
//! [`Capacity`] and counts an [`Outcome`]:
//!
//! - [`exact`]: the policy is asked for one victim at a time and knows of every use by then, as in the
//!   papers;
//! - [`batched`]: it is called now and then, as the live path does: uses are folded, victims are
//!   chosen ahead and spared where they were used since.
//!
//! [`opt`] is the bound that no policy can beat, since it knows what comes. [`row`] folds the outcomes
//! of several seeds, [`table`] and [`plot`] show rows, [`timeline`] a
//! comparison on live traffic.
//!
//! Nothing here does I/O, reads a clock or draws a random number: the same trace, policy, capacity
//! and seed give the same outcome, to the byte. What must hold: an object is resident or not in one
//! place only, [`residents`]; everything told to a policy is what the live path could have told it.

pub mod batched;
pub mod capacity;
pub mod error;
pub mod exact;
pub mod formats;
pub mod opt;
pub mod outcome;
pub mod plot;
pub mod policy;
pub mod replay;
mod residents;
pub mod row;
pub mod table;
pub mod timeline;
pub mod trace;

pub use capacity::Capacity;
pub use error::ReplayError;
pub use outcome::{Counts, Outcome};
pub use policy::Policy;
pub use replay::{Pace, Setup, replay};
pub use row::Row;

pub use trace::{Live, Trace};
