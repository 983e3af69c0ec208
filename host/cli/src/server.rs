//! What all servers do alike: say when they are ready, and stop when they are told to.

use std::io::Write;
use std::net::SocketAddr;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::error::CliError;

/// Resolves on SIGTERM or SIGINT.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From here on the signals no longer end the process by themselves.
    pub(crate) fn install() -> Result<Self, CliError> {
        let on = |kind| {
            signal(kind)
                .map_err(|source| CliError::System { what: "cannot handle signals", source })
        };
        let (terminate, interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    pub(crate) async fn requested(mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "stopping");
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
