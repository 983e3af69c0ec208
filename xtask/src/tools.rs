//! Programs from the crates registry that the whole-process tests run, in `target/tools/bin`.

use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// Each program and the version that the tests understand. pjdfstest needs the C library of access
/// control lists (`libacl1-dev`) to be built.
const TOOLS: &[(&str, &str)] = &[("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Installs what is missing. Outside continuous integration a program that cannot be installed is
/// said, and the tests that need it are skipped.
pub(crate) fn install(root: &Path) -> Result<()> {
    let dir = run::target_dir(root).join("tools");
    // Cargo's own record of what it installed below a root.
    let installed = std::fs::read_to_string(dir.join(".crates.toml")).unwrap_or_default();
    for (name, version) in TOOLS {
        if is_installed(&installed, name, version) && dir.join("bin").join(name).is_file() {
            continue;
        }
        let mut cargo = run::cargo(root, &["install", "--locked", "--quiet", "--root"]);
        cargo.arg(&dir).arg(format!("{name}@{version}"));
        if let Err(error) = run::run(&mut cargo) {
            if run::in_ci() {
                return Err(error).with_context(|| format!("the tests need {name} {version}"));
            }
            eprintln!("{error:#}\n{name} is not there: tests that need it are skipped");
        }
    }
    Ok(())
}

fn is_installed(record: &str, name: &str, version: &str) -> bool {
    record.lines().any(|line| line.starts_with(&format!("\"{name} {version} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_tells_which_version_there_is() {
        let record = "[v1]\n\"fsx 0.3.2 (registry+https://example.org)\" = [\"fsx\"]\n";
        assert!(is_installed(record, "fsx", "0.3.2"));
        assert!(!is_installed(record, "fsx", "0.3.20"));
        assert!(!is_installed(record, "pjdfstest", "0.2.2"));
        assert!(!is_installed("", "fsx", "0.3.2"));
    }
}
