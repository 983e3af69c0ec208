//! Waiting for a condition, up to a deadline. The only place of the suite that sleeps.

use std::time::{Duration, Instant};

/// How long anything may take on a slow machine with other tests beside it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Asks until there is an answer.
///
/// # Panics
/// There was none within [`LIMIT`].
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        pause(Duration::from_millis(10));
    }
}

/// The pause between two questions of a poll, or the length of a load: never a way to wait for
/// something to have happened.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
