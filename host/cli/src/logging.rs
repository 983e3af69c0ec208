//! The log: to standard error, as `RUST_LOG` says.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts the log at `level` and above, unless `RUST_LOG` says otherwise.
pub(crate) fn start(level: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Fails only where a log was started before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .try_init();
}
