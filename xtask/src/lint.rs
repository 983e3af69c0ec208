//! `cargo xtask lint`: everything that is judged without being run.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::{build, run, tidy};

/// Runs every check, so that one failure does not hide the next, and names those that failed.
pub(crate) fn lint(root: &Path) -> Result<ExitCode> {
    // `host/policy` embeds a component, also when it is only checked.
    build::components(root)?;
    let mut failed = Vec::new();
    if !tidy::report(&tidy::check(root)?) {
        failed.push("tidy");
    }
    for (name, mut command) in commands(root)? {
        if !run::status(&mut command)?.success() {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        eprintln!("\nlint: nothing to say");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("\nlint: failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn commands(root: &Path) -> Result<Vec<(&'static str, Command)>> {
    // In the profile of the tests, whose macros and build scripts are compiled in any case.
    let doc = ["doc", "--release", "--workspace", "--no-deps", "--document-private-items"];
    let mut doc = run::cargo(root, &doc);
    // Private items are documented here, so a link to one leads somewhere.
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    let clippy = ["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let mut commands = vec![
        ("rustfmt", run::cargo(root, &["fmt", "--all", "--check"])),
        ("clippy", run::cargo(root, &clippy)),
        ("rustdoc", doc),
    ];
    if !has_deny(root)? && run::in_ci() {
        // It runs once: what optimising would save there, it costs here many times over.
        run::run(&mut run::cargo(root, &["install", "--locked", "--debug", "cargo-deny"]))?;
    }
    if has_deny(root)? {
        // `advisories` is left out: it needs a database fetched from the network.
        let deny = ["deny", "check", "licenses", "bans", "sources"];
        commands.push(("cargo-deny", run::cargo(root, &deny)));
    } else {
        eprintln!("\ncargo-deny is not installed: licences, bans and sources are not checked");
        eprintln!("(`cargo install --locked cargo-deny` installs it)");
    }
    Ok(commands)
}

fn has_deny(root: &Path) -> Result<bool> {
    let mut command = run::cargo(root, &["deny", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}
