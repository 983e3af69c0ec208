//! The floor that mounts are measured against: a mount by our own FUSE session that serves a
//! made-up tree from memory. What it takes, the kernel takes; a mount cannot be faster than this.
//!
//! - [`tree`]: the tree: so many files and directories, or the same as a directory that there is.
//! - [`requests`]: how many requests of each kind the kernel sent.
//! - `serve`: the file system. It answers at once and from memory, lets the kernel keep whatever it
//!   is told, listings too, and answers extended attributes as our mount does.
//!
//! What must hold: every entry of a listing comes with its attributes, so that the kernel asks for
//! nothing it was told; nothing stays mounted after the [`Floor`] is dropped.

pub mod requests;
mod serve;
pub mod tree;

use std::path::Path;
use std::sync::Arc;

use portcullis_fuse::{Config, FuseError, Invalidation, Mount, MountOptions, Session};
use tokio::sync::Notify;

use self::requests::Counts;
pub use self::requests::Requests;
use self::serve::Served;
pub use self::tree::Tree;

/// What mount tables show as the source, and after `fuse.` as the type.
const NAME: &str = "floor";

/// How to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// POSIX access lists are negotiated, as `-o acl` does; no file has one.
    pub acl: bool,
}

/// A mounted tree. Dropping it unmounts.
#[derive(Debug)]
pub struct Floor {
    session: Session,
    counts: Arc<Counts>,
    gone: Arc<Notify>,
}

impl Floor {
    /// Mounts a tree, read-only.
    ///
    /// # Errors
    /// The kernel refuses; it needs root, or `fusermount3`.
    pub fn mount(tree: Tree, mountpoint: &Path, options: Options) -> Result<Self, FuseError> {
        let mount = MountOptions {
            fsname: NAME.to_owned(),
            subtype: NAME.to_owned(),
            allow_other: rustix::process::geteuid().is_root(),
            read_only: true,
            nodev: true,
            nosuid: true,
            noexec: false,
            max_read_bytes: None,
        };
        // As the mount of a volume negotiates.
        let config = Config {
            invalidation: Invalidation::Explicit,
            locks: true,
            truncates_at_open: false,
            posix_acl: options.acl,
            ..Config::default()
        };
        let (counts, gone) = (Arc::<Counts>::default(), Arc::<Notify>::default());
        let served = Served::new(tree, options.acl, &counts, &gone);
        let session = Session::start(Mount::new(mountpoint, &mount)?, served, &config)?;
        Ok(Self { session, counts, gone })
    }

    /// The requests since it was mounted, or since [`take_requests`](Self::take_requests).
    pub fn requests(&self) -> Requests {
        self.counts.read()
    }

    /// The requests so far; counting begins anew.
    pub fn take_requests(&self) -> Requests {
        self.counts.take()
    }

    /// Waits until somebody has unmounted it.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Unmounts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unmount(mut self) -> Result<(), FuseError> {
        self.session.unmount()
    }
}
