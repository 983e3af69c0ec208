//! bindfs(1) and mergerfs(1): file systems that pass everything on to a directory of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{missing, quietly};
use crate::listing::contest::{Contestant, Work};
use crate::listing::installation::unmount;

/// One of the two. Chilled, it is mounted anew.
#[derive(Debug)]
pub struct Passthrough {
    program: &'static str,
    options: &'static [&'static str],
    source: PathBuf,
    mountpoint: TempDir,
}

impl Passthrough {
    /// bindfs of `source`.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn bindfs(source: &Path) -> Result<Self, String> {
        Self::new("bindfs", &["--multithreaded"], source)
    }

    /// mergerfs of `source` alone.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn mergerfs(source: &Path) -> Result<Self, String> {
        Self::new("mergerfs", &["-o", "cache.attr=60,cache.entry=60"], source)
    }

    fn new(
        program: &'static str,
        options: &'static [&'static str],
        source: &Path,
    ) -> Result<Self, String> {
        if let Some(why) = missing(&[program, "umount"]) {
            return Err(why);
        }
        let mountpoint = tempfile::tempdir().map_err(|error| error.to_string())?;
        let peer = Self { program, options, source: source.to_owned(), mountpoint };
        peer.mount()?;
        Ok(peer)
    }

    /// Mounts; the program goes to the background and ends when it is unmounted.
    fn mount(&self) -> Result<(), String> {
        let mut command = Command::new(self.program);
        quietly(command.args(self.options).arg(&self.source).arg(self.mountpoint.path()))
    }
}

impl Contestant for Passthrough {
    fn name(&self) -> String {
        self.program.to_owned()
    }

    fn chill(&mut self) -> Result<(), String> {
        unmount(self.mountpoint.path());
        self.mount()
    }

    fn command(&self, work: Work<'_>) -> Command {
        work.command(self.mountpoint.path())
    }

    fn mountpoint(&self) -> Option<&Path> {
        Some(self.mountpoint.path())
    }

    fn is_peer(&self) -> bool {
        true
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        unmount(self.mountpoint.path());
    }
}
