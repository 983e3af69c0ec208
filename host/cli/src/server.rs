//! What all servers do alike: say when they are ready, and stop when they are told to.

use std::io::Write;
use std::net::SocketAddr;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::error::CliError;

/// Resolves on SIGTERM, SIGINT or SIGHUP (a terminal that closes).
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Stop {
    /// From here on the signals no longer end the process by themselves.
    pub(crate) fn install() -> Result<Self, CliError> {
        give_back_freed_memory();
        let on = |kind| {
            signal(kind)
                .map_err(|source| CliError::System { what: "cannot handle signals", source })
        };
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn requested(mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        };
        info!(signal = name, "stopping");
    }
}

/// Bytes of freed memory at the end of the heap that glibc may keep.
const TRIM_THRESHOLD_BYTES: libc::c_int = 128 * 1024;

/// Keeps glibc from raising its trim threshold by itself: it does so when large buffers are freed,
/// and then a server's resident memory stays at the highest burst it ever had (60 clients killed
/// while they read left 218 MB instead of 31 MB).
fn give_back_freed_memory() {
    // SAFETY: mallopt(3) takes two integers and changes a setting of the allocator; it touches no
    // memory of ours, and glibc takes its own lock for it.
    let set = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES) };
    if set == 0 {
        tracing::debug!("the allocator keeps its own trim threshold");
    }
}

/// Prints the line that others wait for: `ready ADDRESS`.
pub(crate) fn print_ready(address: SocketAddr) -> Result<(), CliError> {
    print_line(&format!("ready {address}"))
}

/// Prints a line at once.
pub(crate) fn print_line(line: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(CliError::Output)
}

/// The address that `HOST:PORT` names.
pub(crate) async fn resolve(address: &str) -> Result<SocketAddr, CliError> {
    let unresolved = |reason: String| CliError::Said(format!("{address}: {reason}"));
    if !address.contains(':') {
        return Err(unresolved("an address has the form HOST:PORT".into()));
    }
    tokio::net::lookup_host(address)
        .await
        .map_err(|error| unresolved(error.to_string()))?
        .next()
        .ok_or_else(|| unresolved("the host has no address".into()))
}
