//! How far long work is, on standard error, where somebody watches.

use std::io::{IsTerminal, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::show_bytes;

/// How often the line is drawn anew.
const REDRAW: Duration = Duration::from_millis(100);
/// How many entries pass between two looks at the clock.
const LOOK_EVERY: u64 = 256;

/// A line that tells of entries and bytes; nothing where nobody watches.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    verb: &'static str,
    entries: u64,
    bytes: u64,
    begun: Instant,
    drawn: Instant,
}

impl Progress {
    /// Shows itself when standard error is a terminal, and standard output, which would mix with
    /// it, is not.
    pub(crate) fn beside_output(verb: &'static str) -> Self {
        Self::new(verb, stderr().is_terminal() && !stdout().is_terminal())
    }

    /// Shows itself when standard error is a terminal.
    pub(crate) fn alone(verb: &'static str) -> Self {
        Self::new(verb, stderr().is_terminal())
    }

    fn new(verb: &'static str, watched: bool) -> Self {
        let bar = watched.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // A template of ours that is wrong leaves the one that is built in.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Self { bar, verb, entries: 0, bytes: 0, begun: now, drawn: now }
    }

    /// One entry more, with `bytes` of content.
    pub(crate) fn entry(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
        if self.bar.is_some() && (self.entries.is_multiple_of(LOOK_EVERY) || bytes > 0) {
            self.draw();
        }
    }

    /// More content of the same entry.
    pub(crate) fn content(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bar.is_some() {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let Some(bar) = &self.bar else { return };
        if self.drawn.elapsed() < REDRAW {
            return;
        }
        self.drawn = Instant::now();
        let rate = self.entries as f64 / self.begun.elapsed().as_secs_f64();
        let mut message = format!("{}: {} entries, {rate:.0}/s", self.verb, self.entries);
        if self.bytes > 0 {
            message.push_str(&format!(", {}", show_bytes(self.bytes)));
        }
        bar.set_message(message);
        bar.tick();
    }

    /// Takes the line away, so that something else can be said.
    pub(crate) fn suspend(&self, say: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
