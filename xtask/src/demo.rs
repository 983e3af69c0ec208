//! `cargo xtask demo`: all set-up, then `portcullis demo`.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{build, run};

/// Builds and runs the demo; its exit code is ours.
pub(crate) fn demo(root: &Path, args: &[String]) -> Result<ExitCode> {
    build::build(root)?;
    let binary = run::target_dir(root).join("release/portcullis");
    let status = run::status(Command::new(binary).arg("demo").args(args))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
