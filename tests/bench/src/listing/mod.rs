//! The listing benchmark: what listing directories and walking trees costs through Portcullis,
//! beside the local file system, a FUSE floor, and other systems that serve files.
//!
//! - [`options`]: the command line, and how large everything is.
//! - [`data`]: the trees that are listed, made in a temporary directory. [`planting`]: the same on a
//!   volume of several bricks, by requests to its gateway.
//! - [`contest`]: who does the work, alternating rounds and their minimum, counting requests.
//! - [`installation`]: bricks, a gateway and a mount. [`contestants`]: those that are ours, and the
//!   floors. [`peers`]: GlusterFS, NFS-Ganesha, bindfs and mergerfs, where they are installed.
//! - [`fuse_requests`]: how many requests the kernel sends to a mount.
//! - [`rows`]: one module a group of measurements.
//! - [`row`]: a row of the table. [`report`]: the table and the JSON. [`machine`]: where it was
//!   measured.
//!
//! What must hold: contestants of a row are measured in the same run, in turn, on the same names and
//! sizes, and everyone's listing is counted once: a short one is no result. Nothing is installed;
//! what is missing is left out by name. What was started ends with the benchmark.

pub mod contest;
pub mod contestants;
pub mod data;
pub mod fuse_requests;
pub mod installation;
pub mod machine;
pub mod options;
pub mod peers;
pub mod planting;
pub mod report;
pub mod row;
pub mod rows;
