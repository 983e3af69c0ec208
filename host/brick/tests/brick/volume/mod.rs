//! A brick as a member of a volume: everything that it is asked, alone, as its own gateway.

mod copies;
mod membership;
mod names;
mod outcomes;
mod promises;
mod support;
