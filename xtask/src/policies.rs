//! Policies as components: compiled for `wasm32-unknown-unknown`, then encoded (`sdk/encode`).
//!
//! What must hold: a file is only written where its content changed, since the binary is rebuilt after
//! the built-in policy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use portcullis_encode::encode_file;

use crate::run;

/// The policies we ship, one folder each: `target/policies/NAME.wasm`.
const SHIPPED: &str = "plugins";
/// Policies that misbehave, one folder each: `target/policies/test/NAME.wasm`.
const GUESTS: &str = "tests/suite/guests";
/// Cargo's profile for policies.
const PROFILE: &str = "policy";
const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Builds the policies we ship.
pub(crate) fn build(root: &Path) -> Result<Vec<PathBuf>> {
    build_all(
        root,
        "portcullis-plugin",
        &names(root, SHIPPED)?,
        &run::target_dir(root).join("policies"),
    )
}

/// Builds the policies that only tests use.
pub(crate) fn build_guests(root: &Path) -> Result<Vec<PathBuf>> {
    build_all(
        root,
        "portcullis-guest",
        &names(root, GUESTS)?,
        &run::target_dir(root).join("policies/test"),
    )
}

/// The crates in a folder, by the names of theirs.
fn names(root: &Path, folder: &str) -> Result<Vec<String>> {
    let folder = root.join(folder);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn build_all(root: &Path, prefix: &str, names: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut cargo =
        run::cargo(root, &["build", "--lib", "--target", WASM_TARGET, "--profile", PROFILE]);
    for name in names {
        cargo.arg("--package").arg(format!("{prefix}-{name}"));
    }
    run::run(&mut cargo)?;
    fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let compiled = run::target_dir(root).join(WASM_TARGET).join(PROFILE);
    names
        .iter()
        .map(|name| {
            let module = format!("{prefix}-{name}").replace('-', "_");
            let component = dir.join(name).with_extension("wasm");
            encode_file(&compiled.join(module).with_extension("wasm"), None, &component)
                .with_context(|| format!("{prefix}-{name} does not become a component"))?;
            Ok(component)
        })
        .collect()
}
