//! Examples: one idea each, short, run as documentation tests.
//!
//! # A policy, driven by hand
//!
//! The driver in `host/policy` does no more than this: it tells a policy what happened, in batches,
//! and asks for victims when memory is short.
//!
//! ```
//! use portcullis_core::eviction::s3fifo::S3Fifo;
//! use portcullis_core::eviction::{Class, Event, EvictionPolicy, ObjectId, PolicyLimits};
//!
//! let mut policy = S3Fifo::new(PolicyLimits { capacity_bytes: 1_000, seed: 1 });
//! let object = |slot| ObjectId::new(slot, 1);
//! let inserts: Vec<Event> = (0..10)
//!     .map(|slot| Event::Insert {
//!         id: object(slot),
//!         key: u64::from(slot),
//!         class: Class::Asked,
//!         weight_bytes: 100,
//!     })
//!     .collect();
//! policy.on_events(0, &inserts);
//! policy.on_events(1, &[Event::Hit { id: object(0), count: 2 }]);
//! // The oldest was hit twice and moves to the main queue; the next one was not, and leaves.
//! assert_eq!(policy.propose(2, 1), [object(1)]);
//! ```
