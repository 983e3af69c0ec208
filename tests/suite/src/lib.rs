//! What the whole-process tests share: the finished binary, driven as a user would drive it.
//!
//! - [`site`]: an identity, a brick and a gateway over a directory, and commands against them.
//! - [`process`]: one server process: its `ready` line, its log, its end.
//! - [`mounted`]: a mount, and its end.
//! - [`share`]: a site with several gateways and writable mounts of one directory.
//! - [`relay`]: a network between two of them, as slow, lossy or cut as is wanted.
//! - [`run`]: other programs with a deadline; [`actor`]: a process that does what it is told.
//! - [`view`]: what a file system shows, as text that can be compared.
//! - [`backing`]: file systems of other kinds to export.
//! - [`tree`]: directories to export.
//! - [`find`]: listing a tree through Portcullis and with the system's find, and comparing.
//! - [`load`]: lookups without end.
//! - [`dial`], [`raw`]: requests without the command line, well-formed and not.
//! - [`need`]: what a test needs of the machine, and how it says that this is missing.
//!
//! What must hold: everything a test starts ends with it, also when it fails; nothing waits
//! for ever; nothing leaves loopback.

#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

pub mod actor;
pub mod backing;
pub mod dial;
pub mod find;
pub mod load;
pub mod mounted;
pub mod need;
pub mod process;
pub mod raw;
pub mod run;
pub mod share;
pub mod site;
pub mod tree;
pub mod view;
pub mod wait;

pub use portcullis_relay as relay;

use std::path::PathBuf;

/// The binary under test, `target/release/portcullis`, or what `PORTCULLIS_BIN` names.
///
/// # Panics
/// It was not built.
pub fn binary() -> PathBuf {
    let path = match std::env::var_os("PORTCULLIS_BIN") {
        Some(path) => PathBuf::from(path),
        None => target().join("release/portcullis"),
    };
    assert!(path.is_file(), "{} is missing: `cargo xtask build` makes it", path.display());
    path
}

/// A shipped policy, `target/policies/NAME.wasm`.
pub fn policy(name: &str) -> PathBuf {
    let path = target().join("policies").join(name).with_extension("wasm");
    assert!(path.is_file(), "{} is missing: `cargo xtask build` makes it", path.display());
    path
}

/// A policy that misbehaves, `target/policies/test/NAME.wasm`.
pub fn guest(name: &str) -> PathBuf {
    policy(&format!("test/{name}"))
}

/// Whether the long tests are to have their full length, and trees their full size (`cargo xtask soak`).
pub fn soaking() -> bool {
    std::env::var_os("PORTCULLIS_SOAK").is_some()
}

/// Which round of `cargo xtask soak` this is, from 0: what is chosen by a seed is another in each.
pub fn soak_round() -> u64 {
    let round = std::env::var("PORTCULLIS_SOAK_ROUND").ok();
    round.map_or(0, |round| round.parse().expect("PORTCULLIS_SOAK_ROUND is a number"))
}

/// The build directory: a test runs as `TARGET/PROFILE/deps/NAME`, a benchmark as
/// `TARGET/PROFILE/NAME`.
fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("a program knows its own path");
    let is_test = exe.parent().is_some_and(|dir| dir.ends_with("deps"));
    let target = exe.ancestors().nth(if is_test { 3 } else { 2 });
    target.expect("a program lies in a build directory").to_owned()
}
