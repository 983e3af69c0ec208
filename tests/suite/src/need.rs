//! What a test needs of the machine. Where it is missing the test says so and passes;
//! `cargo xtask test` counts it as skipped, and in CI fails.

use std::io::Write;

/// Whether there are FUSE and root; says that `test` is skipped where not.
pub fn fuse_and_root(test: &str) -> bool {
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    or_skip(test, "FUSE and root", fuse.is_ok() && is_root())
}

/// Whether we are root; says that `test` is skipped where not.
pub fn root(test: &str) -> bool {
    or_skip(test, "root", is_root())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn or_skip(test: &str, what: &str, has: bool) -> bool {
    if !has {
        // Written past the test harness, which keeps what a passing test prints.
        let line = format!("skipped: {test}: needs {what}\n");
        std::io::stdout().write_all(line.as_bytes()).expect("stdout is there");
    }
    has
}
