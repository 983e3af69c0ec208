//! A peer that is mounted on this machine. Chilled, it is mounted anew.

use std::fmt::Debug;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::listing::contest::{Contestant, Work};
use crate::listing::installation::unmount;

/// How a peer is mounted.
pub trait Mounting: Debug {
    /// As the table calls it.
    fn name(&self) -> String;

    /// Mounts at `mountpoint` and returns once that works; what serves it goes to the background and
    /// ends when it is unmounted.
    ///
    /// # Errors
    /// Why it does not work.
    fn mount(&self, mountpoint: &Path) -> Result<(), String>;
}

/// A mount of a peer, or the place for one. Dropping it unmounts.
#[derive(Debug)]
pub struct PeerMount<M: Mounting> {
    mounting: M,
    mountpoint: TempDir,
}

impl<M: Mounting> PeerMount<M> {
    /// A place for it, where nothing is mounted yet.
    ///
    /// # Errors
    /// No temporary directory is to be had.
    pub fn new(mounting: M) -> Result<Self, String> {
        let mountpoint = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { mounting, mountpoint })
    }

    /// Mounts it.
    ///
    /// # Errors
    /// Why it does not work.
    pub fn mount(&self) -> Result<(), String> {
        self.mounting.mount(self.path())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }
}

impl<M: Mounting> Contestant for PeerMount<M> {
    fn name(&self) -> String {
        self.mounting.name()
    }

    fn chill(&mut self) -> Result<(), String> {
        unmount(self.path());
        self.mount()
    }

    fn command(&self, work: Work<'_>) -> Command {
        work.command(self.path())
    }

    fn mountpoint(&self) -> Option<&Path> {
        Some(self.path())
    }

    fn is_peer(&self) -> bool {
        true
    }
}

impl<M: Mounting> Drop for PeerMount<M> {
    fn drop(&mut self) {
        unmount(self.path());
    }
}
