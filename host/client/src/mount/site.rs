//! For tests: a real brick over a directory of this machine, and mounts of it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_brick::{Brick, BrickConfig};
use portcullis_transport::{IdentitySet, Role};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::volume::Volume;
use super::{MountError, MountOptions, serve, volume_of};
use crate::{Address, Client, ClientOptions};

/// A brick that runs until it is stopped.
struct Running {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// A brick and its export.
pub(super) struct Site {
    set: IdentitySet,
    export: TempDir,
    address: SocketAddr,
    running: Option<Running>,
}

/// A mount of it, gone when it is dropped.
pub(super) struct MountedSite {
    dir: TempDir,
    pub(super) client: Client,
    pub(super) volume: Arc<Volume>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), MountError>>,
}

impl Site {
    pub(super) async fn new() -> Self {
        let set = IdentitySet::generate().expect("a set");
        let export = tempfile::tempdir().expect("a directory");
        let mut site = Self { set, export, address: ([127, 0, 0, 1], 0).into(), running: None };
        site.start().await;
        site
    }

    /// The directory below.
    pub(super) fn export(&self) -> &Path {
        self.export.path()
    }

    /// Starts the brick, at the address that it had.
    pub(super) async fn start(&mut self) {
        let identity = self.set.identity(Role::Brick).expect("an identity");
        let config = BrickConfig::new(self.export.path(), self.address);
        let mut tries = 0;
        let brick = loop {
            match Brick::bind(config.clone(), &identity) {
                Ok(brick) => break brick,
                Err(error) => assert!(tries < 500, "{error}"),
            }
            tries += 1;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        self.address = brick.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(brick.serve(async move { _ = stopped.await }));
        self.running = Some(Running { stop, serving });
    }

    /// Stops the brick.
    pub(super) async fn stop(&mut self) {
        if let Some(Running { stop, serving }) = self.running.take() {
            drop(stop);
            serving.await.expect("it ends");
        }
    }

    /// A client that watches.
    pub(super) async fn client(&self) -> Client {
        let options = ClientOptions { watch: true, ..ClientOptions::default() };
        let address = Address::root_of(self.address);
        let identity = self.set.identity(Role::Gateway).expect("an identity");
        Client::connect_to(Role::Brick, &address, identity, options).await.expect("it connects")
    }

    pub(super) async fn mount(&self) -> MountedSite {
        self.mount_with(MountOptions::default()).await
    }

    pub(super) async fn mount_with(&self, options: MountOptions) -> MountedSite {
        let client = self.client().await;
        let dir = tempfile::tempdir().expect("a directory");
        let volume = volume_of(client.clone(), b"/", &options).await.expect("a directory");
        let (mounted, mountpoint) = (volume.clone(), dir.path().to_owned());
        let (ready, readied) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stop = async { _ = stopped.await };
            let ready = || ready.send(()).expect("somebody waits");
            serve(mounted, "test".to_owned(), &mountpoint, &options, ready, stop).await
        });
        readied.await.expect("it is mounted");
        MountedSite { dir, client, volume, stop, serving }
    }
}

impl MountedSite {
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs what waits for the mount on a thread of its own.
    pub(super) async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(PathBuf) -> T + Send + 'static,
    ) -> T {
        let path = self.dir.path().to_owned();
        tokio::task::spawn_blocking(move || work(path)).await.expect("it does not panic")
    }

    pub(super) async fn unmount(self) {
        let path = self.dir.path().to_owned();
        drop(self.stop);
        self.serving.await.expect("it ends").expect("it ends well");
        self.client.close().await;
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        assert!(!table.lines().any(|line| line.split(' ').nth(4) == path.to_str()));
    }
}
