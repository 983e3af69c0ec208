//! Running other programs: what is run is said first, and a failure names it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().context("xtask lies in the root of the repository")?;
    Ok(root.to_owned())
}

/// Whether this is a run of continuous integration, where nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// A command of the cargo that runs us, in the root of the repository.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    // What cargo tells this program of itself. Build scripts look at it (that of ring does), and
    // would run again each time that cargo is called from here and from a shell in turn.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

/// Runs to the end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs to the end and tells how it ended.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    announce(command);
    command.status().with_context(|| format!("`{}` cannot be run", describe(command)))
}

/// Runs to the end, passing its standard output on and giving each line of it to `each`.
pub(crate) fn with_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    announce(command);
    let shown = describe(command);
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("`{shown}` cannot be run"))?;
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        let mut line = Vec::new();
        while out.read_until(b'\n', &mut line)? > 0 {
            std::io::stdout().write_all(&line)?;
            each(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    Ok(child.wait()?)
}

/// Runs quietly and answers its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = describe(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{shown}` cannot be run"))?;
    if !output.status.success() {
        bail!("`{shown}` failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` does not print UTF-8"))
}

fn announce(command: &Command) {
    eprintln!("\n$ {}", describe(command));
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
