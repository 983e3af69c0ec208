//! The policy inside this binary: S3-FIFO, as a component like any other.

/// Its name where it is loaded.
pub(crate) const NAME: &str = "the built-in policy";

// `COMPONENT: Option<&[u8]>`, `None` in a binary that was built without the policies.
include!(concat!(env!("OUT_DIR"), "/builtin.rs"));
