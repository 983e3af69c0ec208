//! Operations on several members of a volume, run against members in memory: interrupted after
//! every step, mixed at random, led by several gateways, with members that restart and sessions
//! that end.
//!
//! - [`member`], [`names`], [`parts`], [`copies`]: a member, with the exact semantics of
//!   `portcullis_core::volume::Ask`.
//! - [`tree`]: what every program would see, were the volume one file system.
//! - [`run`]: an operation under way, as a gateway leads it.
//! - [`world`]: gateways, members, requests on their way, faults; [`check`]: what must hold at the
//!   end.
//! - [`plant`]: faults of a member, to see that they are found.
//! - [`alone`]: one operation at a time; [`crashes`]: each operation, interrupted at each step;
//!   [`mixed`]: at random.

#![allow(clippy::panic, reason = "a model that meets the impossible has a bug of its own")]
#![allow(
    clippy::large_enum_variant,
    clippy::result_large_err,
    reason = "messages of a model are few and short-lived"
)]

mod alone;
mod check;
mod copies;
mod crashes;
mod member;
mod mixed;
mod names;
mod parts;
mod plant;
mod run;
mod tree;
mod world;
