//! `portcullis policy test`: whether a policy does what a policy must.
//!
//! The component is put through the drills of the SDK (`sdk/src/testing`), in the sandbox that it will
//! have in a gateway ([`subject`]); [`checks`] says what is judged. Of a project, the author's own tests run
//! too, and compare what the policy does natively with what the component did.

mod checks;
mod subject;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use portcullis_policy::CompiledWords;
use portcullis_sdk::testing::{TRANSCRIPTS, write_transcripts};
use serde::Serialize;

use self::checks::{Check, Checked};
use super::build;
use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;

/// Test a policy
///
/// Plays seeded events to it and holds its answers against the interface: that it proposes what it may,
/// does the same for the same events, bears what it does not know and keeps its memory within bounds. Of
/// a project, its own tests run too, and compare it natively with the component.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A component, or a project that `policy new` made, which is built
    #[arg(default_value = ".")]
    path: PathBuf,
    /// A file with the policy's configuration [default: an empty one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object a line for each check
    #[arg(long)]
    json: bool,
    /// Fetch nothing from a network
    #[arg(long)]
    offline: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    policy: &'a str,
    kind: &'a str,
    digest: &'a str,
    check: &'a str,
    passed: bool,
    detail: &'a str,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let is_project = arguments.path.is_dir();
    let component = if is_project {
        build::build(&arguments.path, None, arguments.offline)?
    } else {
        arguments.path.clone()
    };
    let config = match &arguments.config {
        Some(path) => read(path)?,
        None => Vec::new(),
    };
    let compiled = CompiledWords::open(&component)?;
    let Checked { name, mut checks, transcripts } = checks::run(&compiled, &config)?;
    if is_project && arguments.config.is_none() {
        let pairs = transcripts.iter().map(|(seed, transcript)| (*seed, transcript));
        let text = write_transcripts(pairs);
        checks.push(own_tests(&arguments.path, arguments.offline, &text)?);
    }
    let mut output = Output::stdout()?;
    for check in &checks {
        let Check { title, failure, detail } = check;
        let detail = failure.as_deref().unwrap_or(detail);
        if arguments.json {
            let (kind, digest, passed) = (compiled.kind(), compiled.digest(), failure.is_none());
            let policy = &name;
            let line = Line { policy, kind, digest, check: title, passed, detail };
            push_line(output.buffer(), &line);
        } else {
            let word = if failure.is_none() { "ok" } else { "FAILED" };
            output.write(format!("{word:<7}{title}: {detail}\n").as_bytes())?;
        }
    }
    output.flush()?;
    match checks.iter().filter(|check| check.failure.is_some()).count() {
        0 => Ok(()),
        failed => Err(CliError::Said(format!(
            "{}: {failed} of {} checks failed",
            component.display(),
            checks.len()
        ))),
    }
}

/// The tests of the project, natively; those that drill the policy compare it with the component's
/// transcripts.
fn own_tests(dir: &Path, offline: bool, transcripts: &str) -> Result<Check, CliError> {
    let system = |source| CliError::System { what: "a temporary file", source };
    let mut file = tempfile::NamedTempFile::new().map_err(system)?;
    file.write_all(transcripts.as_bytes()).map_err(system)?;
    let mut cargo = build::cargo(dir, offline)?;
    cargo.args(["test", "--quiet"]).env(TRANSCRIPTS, file.path()).stdin(Stdio::null());
    let output = cargo.output();
    let output =
        output.map_err(|source| CliError::System { what: "cargo cannot be run", source })?;
    let failure = (!output.status.success()).then(|| {
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        let line =
            told.lines().find(|line| line.contains("not the same") || line.contains("error"));
        // All of it is shown, since only the author can tell what matters.
        let _ = std::io::stderr().write_all(told.as_bytes());
        line.unwrap_or("see above").trim().to_owned()
    });
    let detail = "pass, with the same answers natively as the component's".to_owned();
    Ok(Check { title: "the project's own tests", failure, detail })
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|source| CliError::Local { path: path.to_owned(), source })
}
