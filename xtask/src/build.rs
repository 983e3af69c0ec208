//! `cargo xtask build`: the shipped policies first, because the binary carries one inside.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{policies, run};

const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Leaves `target/release/portcullis` and `target/policies/*.wasm`.
pub(crate) fn build(root: &Path) -> Result<()> {
    components(root)?;
    run::run(&mut run::cargo(root, &["build", "--release", "-p", "portcullis"]))?;
    eprintln!("\n{}", run::target_dir(root).join("release/portcullis").display());
    Ok(())
}

/// Builds the shipped policies. Whatever compiles `host/policy` calls this before.
pub(crate) fn components(root: &Path) -> Result<()> {
    install_wasm_target(root)?;
    for component in policies::build(root)? {
        eprintln!("{}", component.display());
    }
    Ok(())
}

/// Builds the shipped policies and those that only tests use.
pub(crate) fn all_components(root: &Path) -> Result<()> {
    components(root)?;
    for component in policies::build_guests(root)? {
        eprintln!("{}", component.display());
    }
    Ok(())
}

fn install_wasm_target(root: &Path) -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let print = ["--print", "target-libdir", "--target", WASM_TARGET];
    let libdir = run::output(Command::new(rustc).current_dir(root).args(print))?;
    if Path::new(libdir.trim()).is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    run::run(rustup.current_dir(root).args(["target", "add", WASM_TARGET]))
        .with_context(|| format!("policies need the compiler's target {WASM_TARGET}"))
}
