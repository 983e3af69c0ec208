//! Lines for the host's log.

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is broken.
    Error,
    /// Something is not as it should be.
    Warn,
    /// Worth knowing.
    Info,
    /// For the author.
    Debug,
}

/// Writes a line into the host's log, under the policy's name. The host cuts long lines and drops
/// those that come too fast. Outside of a component the line goes to stderr.
#[cfg(not(target_arch = "wasm32"))]
pub fn log(level: Level, message: &str) {
    eprintln!("{level:?}: {message}");
}

/// Writes a line into the host's log, under the policy's name. The host cuts long lines and drops
/// those that come too fast.
#[cfg(target_arch = "wasm32")]
pub fn log(level: Level, message: &str) {
    use portcullis_world_eviction::log;

    let level = match level {
        Level::Error => log::Level::Error,
        Level::Warn => log::Level::Warn,
        Level::Info => log::Level::Info,
        Level::Debug => log::Level::Debug,
    };
    log::log(level, message);
}
