//! A volume, or a directory of it, as a file system of this machine.
//!
//! - [`options`]: what may stand after `-o`.
//! - `ops`: the kernel's requests, each carried out by the file that has its subject: `names`,
//!   `attributes`, `files`, `listings`, `xattrs`, `locks`, `space`. `volume` is what they share.
//! - `kernel`: what the kernel may keep, and telling it what is no longer true; `fence`, `under_way`:
//!   answers that were on their way meanwhile, and requests that the kernel waits for.
//! - `contents`: contents of small files that came along; `open`: a file that is open, by one or not.
//! - `memory`: what is remembered of names, attributes and listings beside the kernel; `ahead`: what
//!   is listed before the kernel asks.
//! - `inodes`: which file each nodeid stands for.
//! - `directories`, `positions`, `packing`: open directories, how their offsets map to brick cookies,
//!   and their entries as the kernel takes them; `kept`: what it may keep of their listings.
//! - `task`: how a request leaves the session's thread, and when it is given up.
//!
//! What must hold: no request waits longer than the client's deadline, where it has one; the kernel
//! is told nothing for longer than the lease lasts, and a change is acknowledged only when it has
//! forgotten it; memory is bounded by what the kernel itself holds and by named limits; a directory
//! is never shown in part without an error; nothing stays mounted after [`run`] returns.

mod ahead;
mod attr;
mod attributes;
#[cfg(test)]
mod coherence_tests;
mod contents;
mod counters;
mod directories;
mod fence;
mod files;
mod inodes;
mod kept;
mod kernel;
#[cfg(test)]
mod listing_tests;
mod listings;
mod locks;
mod memory;
mod names;
mod open;
mod ops;
pub mod options;
mod packing;
mod positions;
#[cfg(test)]
mod site;
mod space;
mod task;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod under_way;
mod volume;
#[cfg(test)]
mod writing_tests;
mod xattrs;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::limits::{MOUNT_REQUEST_LEN_BYTES_MAX, READ_LEN_BYTES_MAX};
use portcullis_core::{Attr, Entry};
use portcullis_fuse::{Config, FuseError, Invalidation, Mount, Session};
use thiserror::Error;
use tracing::info;

use self::inodes::Inode;
use self::ops::MountedVolume;
pub use self::options::MountOptions;
use self::volume::Volume;
use crate::{Client, ClientError};

/// What mount tables show after `fuse.` as the type.
const SUBTYPE: &str = "portcullis";
/// Bytes of a page, the unit of the kernel's limit.
const PAGE_LEN_BYTES: usize = 4096;

const _: () = assert!(MOUNT_REQUEST_LEN_BYTES_MAX <= READ_LEN_BYTES_MAX as usize);

/// A mount that does not come about, or cannot be taken away.
#[derive(Debug, Error)]
pub enum MountError {
    /// An option after `-o`.
    #[error("mount option {option}: {reason}; known are {known}")]
    Option {
        /// The option.
        option: String,
        /// What is wrong with it.
        reason: String,
        /// What is known.
        known: &'static str,
    },
    /// The path does not lead to a directory.
    #[error("{path} is not a directory of the volume, so it cannot be mounted")]
    NotDirectory {
        /// The path in the volume.
        path: String,
    },
    /// The gateway.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The kernel.
    #[error(transparent)]
    Fuse(#[from] FuseError),
}

/// Mounts the directory `root_path` of a volume on `mountpoint`, calls `on_ready` once it is
/// usable, and serves it until `stop` resolves or somebody unmounts it. Programs that have files
/// open when it stops get errors. The client should be one that watches: otherwise the kernel
/// keeps nothing that it is told.
///
/// # Errors
/// The directory cannot be had, or not be mounted. [`FuseError::AlreadyMounted`] says that the same
/// one is mounted there already.
pub async fn run(
    client: Client,
    root_path: &[u8],
    mountpoint: &Path,
    options: &MountOptions,
    on_ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), MountError> {
    let source = options.fsname.clone().unwrap_or_else(|| source(&client, root_path));
    let volume = volume_of(client, root_path, options).await?;
    serve(volume, source, mountpoint, options, on_ready, stop).await
}

async fn volume_of(
    client: Client,
    root_path: &[u8],
    options: &MountOptions,
) -> Result<Arc<Volume>, MountError> {
    let (root, attr) = resolve_root(&client, root_path).await?;
    let volume = Arc::new(Volume::new(client, &root.handle, &attr, options));
    // So that there is always a last answer for df; where there is none yet, it is asked again.
    let root = Inode {
        handle: root.handle,
        ino: attr.ino,
        parent_ino: attr.ino,
        is_dir: true,
        target: None,
    };
    let _ = volume.ask_space(&root).await;
    Ok(volume)
}

async fn serve(
    volume: Arc<Volume>,
    source: String,
    mountpoint: &Path,
    options: &MountOptions,
    on_ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), MountError> {
    let kernel = kernel_options(source, options);
    let forgettings = volume.client.forgettings();
    let served = MountedVolume(volume.clone());
    let mountpoint = mountpoint.to_owned();
    let config = Config {
        max_pages: (MOUNT_REQUEST_LEN_BYTES_MAX / PAGE_LEN_BYTES) as u16,
        invalidation: Invalidation::Explicit,
        locks: true,
        truncates_at_open: false,
        posix_acl: options.acl,
        ..Config::default()
    };
    let session =
        blocking(move || Session::start(Mount::new(&mountpoint, &kernel)?, served, &config))
            .await?;
    info!(mountpoint = %session.mountpoint().display(), "mounted");
    on_ready();
    tokio::select! {
        () = stop => {}
        () = volume.gone.notified() => info!("unmounted by somebody else"),
        () = give_up_idle_listings(&volume) => {}
        () = kernel::forget_as_told(volume.clone(), forgettings) => {}
    }
    blocking(move || {
        let mut session = session;
        session.unmount()
    })
    .await?;
    let memory = volume.memory.counters().unwrap_or_default();
    let answered = memory.lookup_hits + memory.negative_hits + memory.getattr_hits;
    info!("{}; {answered} names and files from memory", volume.counters);
    let (used, there) = volume.contents.counts();
    info!("{used} files opened by their content, {there} in place");
    let ahead = volume.ahead.counters();
    info!(
        "{} directories listed ahead: {} used, {} late, {} wasted, {} cancelled, {} failed",
        ahead.begun, ahead.used, ahead.late, ahead.wasted, ahead.cancelled, ahead.failed
    );
    Ok(())
}

async fn resolve_root(client: &Client, path: &[u8]) -> Result<(Entry, Attr), MountError> {
    let root = client.resolve(path).await?;
    let attr = match root.attr {
        Some(attr) => attr,
        None => client.getattr(&root.handle).await?,
    };
    if !attr.is_dir() {
        let path = String::from_utf8_lossy(path).into_owned();
        return Err(MountError::NotDirectory { path });
    }
    Ok((root, attr))
}

/// What mount tables show as the source.
fn source(client: &Client, root_path: &[u8]) -> String {
    let path = String::from_utf8_lossy(root_path);
    format!("pc://{}/{}", client.gateway(), path.trim_start_matches('/'))
}

fn kernel_options(fsname: String, options: &MountOptions) -> portcullis_fuse::MountOptions {
    portcullis_fuse::MountOptions {
        fsname,
        subtype: SUBTYPE.to_owned(),
        allow_other: options.allow_other || rustix::process::geteuid().is_root(),
        read_only: options.read_only,
        nodev: true,
        nosuid: true,
        noexec: options.noexec,
        max_read_bytes: None,
    }
}

async fn give_up_idle_listings(volume: &Volume) {
    let mut ticks = tokio::time::interval(Duration::from_millis(directories::LISTING_IDLE_MS / 2));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        volume.directories.give_up_idle();
        volume.ahead.tick();
        volume.contents.tell_opened(&volume.client);
    }
}

/// Runs what waits for the kernel off the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FuseError> + Send + 'static,
) -> Result<T, FuseError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let source = std::io::Error::other(error);
        Err(FuseError::System { action: "running a thread for the mount", source })
    })
}
