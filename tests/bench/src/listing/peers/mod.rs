//! Other systems that serve files, where they are installed. None is installed by the benchmark.

pub mod ganesha;
pub mod gluster;
pub mod mounted;
pub mod passthrough;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_suite::{need, wait};

/// How long a peer may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Why a peer that needs these programs cannot be run here, if so.
fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let lacks: Vec<_> = programs.iter().filter(|name| need::program(name).is_none()).collect();
    (!lacks.is_empty()).then(|| format!("not installed: {lacks:?}"))
}

/// Runs `command` quietly; what it says where it fails.
fn quietly(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&said).trim()))
}

/// Asks again until it works, for as long as a peer may take to start.
fn in_time(mut ask: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match ask() {
            Err(_) if start.elapsed() < START_LIMIT => wait::pause(Duration::from_millis(50)),
            answer => return answer,
        }
    }
}
