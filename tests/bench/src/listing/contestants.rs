//! Those that are ours, by mount and by command, and the floors: the local file system, and a FUSE
//! mount that serves the same names from memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_floor::{Floor, Tree};
use portcullis_wire::stats::EvictionStats;
use tempfile::TempDir;

use super::contest::{Contestant, Work};
use super::installation::{Installation, Setup};

/// The directory itself.
#[derive(Debug)]
pub struct Local<'a> {
    /// Where.
    pub root: &'a Path,
}

impl Contestant for Local<'_> {
    fn name(&self) -> String {
        "local".into()
    }

    // Its page cache stays warm, as that of the bricks does.
    fn chill(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn command(&self, work: Work<'_>) -> Command {
        work.command(self.root)
    }
}

/// Portcullis. Chilled, its gateway and mount are new.
#[derive(Debug)]
pub struct Ours {
    setup: Setup,
    running: Option<Installation>,
}

impl Ours {
    /// Does its work by a mount where `setup` has one, and else by `portcullis find`.
    pub fn new(setup: Setup) -> Self {
        Self { setup, running: None }
    }

    fn running(&self) -> &Installation {
        self.running.as_ref().expect("it was chilled once")
    }
}

impl Contestant for Ours {
    fn name(&self) -> String {
        let bricks = self.setup.exports.len();
        let way = if self.setup.mount.is_some() { "mount" } else { "portcullis find" };
        format!("{way}, {bricks} brick{}", if bricks == 1 { "" } else { "s" })
    }

    fn chill(&mut self) -> Result<(), String> {
        self.running = None;
        self.running = Some(self.setup.start());
        Ok(())
    }

    fn command(&self, work: Work<'_>) -> Command {
        let running = self.running();
        if self.setup.mount.is_some() {
            return work.command(running.mountpoint());
        }
        let mut command = running.command("find", &format!("/{}", work.dir()));
        command.args(["-printf", "%s\\n"]);
        command
    }

    fn mountpoint(&self) -> Option<&Path> {
        let running = self.running.as_ref().filter(|_| self.setup.mount.is_some());
        running.map(Installation::mountpoint)
    }

    fn brick_requests(&self) -> Option<u64> {
        Some(self.running().brick_requests())
    }

    fn policy(&self) -> Option<EvictionStats> {
        Some(self.running().stats().eviction)
    }
}

/// The FUSE floor. Chilled, it is mounted anew.
#[derive(Debug)]
pub struct FuseFloor {
    like: PathBuf,
    acl: bool,
    floor: Option<Floor>,
    mountpoint: TempDir,
}

impl FuseFloor {
    /// Serves what is in `like`.
    pub fn new(like: &Path, acl: bool) -> Self {
        let mountpoint = tempfile::tempdir().expect("a mount point");
        Self { like: like.to_owned(), acl, floor: None, mountpoint }
    }
}

impl Contestant for FuseFloor {
    fn name(&self) -> String {
        if self.acl { "FUSE floor with acl".into() } else { "FUSE floor".into() }
    }

    fn chill(&mut self) -> Result<(), String> {
        // Dropping unmounts.
        self.floor = None;
        let tree = Tree::like(&self.like).map_err(|error| error.to_string())?;
        let options = portcullis_floor::Options { acl: self.acl };
        let floor = Floor::mount(tree, self.mountpoint.path(), options);
        self.floor = Some(floor.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn command(&self, work: Work<'_>) -> Command {
        work.command(self.mountpoint.path())
    }

    fn mountpoint(&self) -> Option<&Path> {
        self.floor.is_some().then(|| self.mountpoint.path())
    }
}
