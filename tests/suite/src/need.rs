//! What a test needs of the machine. Where it is missing the test says so and passes;
//! `cargo xtask test` counts it as skipped, and in CI fails.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether there are FUSE and root; says that `test` is skipped where not.
pub fn fuse_and_root(test: &str) -> bool {
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    or_skip(test, "FUSE and root", fuse.is_ok() && is_root())
}

/// Whether we are root; says that `test` is skipped where not.
pub fn root(test: &str) -> bool {
    or_skip(test, "root", is_root())
}

/// Whether these programs are installed (or lie in the folder of tools that `cargo xtask` fills);
/// says that `test` is skipped where one is not.
pub fn programs(test: &str, names: &[&str]) -> bool {
    names.iter().all(|name| or_skip(test, name, program(name).is_some()))
}

/// Where a program is: in the folder of tools beside the build, or on the path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name));
    let system = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).join(name));
    std::iter::once(crate::target().join("tools/bin").join(name))
        .chain(on_path)
        .chain(system)
        .find(|path| path.is_file())
}

/// Whether the users of the permission tests exist: `nobody`, and `tests` with a group of that
/// name; says that `test` is skipped where not.
pub fn users(test: &str) -> bool {
    let has = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| line.split(':').next() == Some(name))
    };
    let all = has("/etc/passwd", "tests") && has("/etc/group", "tests");
    or_skip(test, "the user and group `tests`", all && has("/etc/passwd", "nobody"))
}

/// Says that `test` is skipped for want of `what` where `has` is false, and answers `has`.
pub fn that(test: &str, what: &str, has: bool) -> bool {
    or_skip(test, what, has)
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
