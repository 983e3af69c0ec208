//! bindfs(1) and mergerfs(1): file systems that pass everything on to a directory of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::mounted::{Mounting, PeerMount};
use super::{missing, quietly};

/// One of the two.
#[derive(Debug)]
pub struct Passthrough {
    program: &'static str,
    options: &'static [&'static str],
    source: PathBuf,
}

impl Passthrough {
    /// bindfs of `source`, mounted.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn bindfs(source: &Path) -> Result<PeerMount<Self>, String> {
        Self::start("bindfs", &["--multithreaded"], source)
    }

    /// mergerfs of `source` alone, mounted.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn mergerfs(source: &Path) -> Result<PeerMount<Self>, String> {
        Self::start("mergerfs", &["-o", "cache.attr=60,cache.entry=60"], source)
    }

    fn start(
        program: &'static str,
        options: &'static [&'static str],
        source: &Path,
    ) -> Result<PeerMount<Self>, String> {
        if let Some(why) = missing(&[program, "umount"]) {
            return Err(why);
        }
        let peer = PeerMount::new(Self { program, options, source: source.to_owned() })?;
        peer.mount()?;
        Ok(peer)
    }
}

impl Mounting for Passthrough {
    fn name(&self) -> String {
        self.program.to_owned()
    }

    fn mount(&self, mountpoint: &Path) -> Result<(), String> {
        let mut command = Command::new(self.program);
        quietly(command.args(self.options).arg(&self.source).arg(mountpoint))
    }
}
