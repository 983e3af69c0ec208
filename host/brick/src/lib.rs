//! The brick: exports one directory over QUIC to gateways.
//!
//! ```text
//! service ─► answers, scan, files ─► handles ─► export ─► openat2, statx, getdents64 ...
//!    │  └──► mutations ─► mutate ─► caller ─► mkdirat, renameat2, pwritev2 ...
//!    │          │           └─► orphans                    locks ─► fcntl, flock
//!    └── workers (where all of it blocks)
//! watcher ─► direct ─► fanotify, or polling
//! ```
//! - `service`: one session a gateway; `tree`: the export and all that belongs to it.
//! - `answers`: requests that change nothing; `scan`: a directory listed in steps, so that flow
//!   control stops it; `files`: the open files of a session; `descriptors`: how many those may be;
//!   `xattr`: extended attributes.
//! - `mutations`: operations applied once, and told to all who watch; `mutate`: how each is done;
//!   `caller`: as whom; `orphans`: open files that lost their name; `locks`: advisory locks.
//! - `watcher`: what a session was told is watched for it; `direct`: what other programs change.
//! - `handles`: which bytes stand for a file, and finding it by them; `name`: which names may be
//!   asked for.
//! - `export`: the root, and the only ways by which a path becomes a file.
//! - `volume`: the brick as a member of a volume of several.
//! - `workers`: bounds what blocks.
//!
//! What must hold: no request reaches a file outside the export; no handle ever leads to another
//! file than the one it was made for; no symbolic link is followed and no device or FIFO opened;
//! nothing blocks an async thread; memory is bounded for each connection, and what clients hold open
//! for all of them together; a change is answered when all who watch have forgotten what it made untrue.

mod access_lists;
mod answers;
mod attr;
mod caller;
mod contents;
mod descriptors;
mod direct;
mod error;
mod export;
mod files;
mod handles;
mod lease_note;
mod locks;
mod mutate;
mod mutations;
mod name;
mod orphans;
mod scan;
mod service;
#[cfg(test)]
mod testing;
mod tree;
mod volume;
mod watcher;
mod workers;
mod xattr;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use portcullis_transport::{Identity, Role, Server, TransportError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

pub use direct::DirectCounters;
pub use error::BrickError;
pub use handles::HandleChoice;
pub use service::BrickCounters;

use export::Export;
use handles::Handles;
use service::BrickService;
use tree::Tree;

/// What a brick exports, and where.
#[derive(Clone, Debug)]
pub struct BrickConfig {
    /// The directory to export.
    pub export: PathBuf,
    /// The address to listen on (port 0: any).
    pub listen: SocketAddr,
    /// How files get handles; [`HandleChoice::Auto`] unless there is a reason.
    pub handles: HandleChoice,
    /// Looks for changes of other programs every second, although the kernel could tell of them.
    pub polling: bool,
}

impl BrickConfig {
    /// Exports `export` on `listen`, and leaves the rest to the brick.
    pub fn new(export: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self { export: export.into(), listen, handles: HandleChoice::Auto, polling: false }
    }
}

/// A brick that listens and does not serve yet.
pub struct Brick {
    server: Server,
    address: SocketAddr,
    service: BrickService,
    counters: Arc<BrickCounters>,
    choice: HandleChoice,
}

impl Brick {
    /// Opens the export and listens; within a tokio runtime.
    ///
    /// Clears the umask of the process, because modes come with their callers' umask applied.
    /// Raises the soft limit of open files of the process to its hard limit, because clients hold
    /// files open here.
    ///
    /// # Errors
    /// [`BrickError`] says what is wrong and what to do.
    pub fn bind(config: BrickConfig, identity: &Identity) -> Result<Self, BrickError> {
        let secret = match identity.handle_key() {
            Some(secret) if identity.role == Role::Brick => secret,
            _ => return Err(BrickError::NotBrick { role: identity.role }),
        };
        let handles = Handles::new(Export::open(&config.export)?, secret, config.handles)?;
        volume::joining::find(&handles)?;
        let server = Server::bind(config.listen, identity)?;
        let address = server
            .local_addr()
            .map_err(|source| TransportError::Bind { address: config.listen, source })?;
        raise_open_file_limit();
        let choice = handles.choice();
        caller::clear_umask();
        let counters = Arc::new(BrickCounters::default());
        let tree = Tree::new(handles, counters.direct.clone(), config.polling);
        let service = BrickService::new(tree, counters.clone());
        info!(export = %config.export.display(), %address, handles = ?choice, "brick");
        Ok(Self { server, address, service, counters, choice })
    }

    /// The address it listens on, its port known.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What was chosen for this export; never [`HandleChoice::Auto`].
    pub fn handle_choice(&self) -> HandleChoice {
        self.choice
    }

    /// What it counts, also while it serves.
    pub fn counters(&self) -> Arc<BrickCounters> {
        self.counters.clone()
    }

    /// Serves until `stop` resolves, then finishes what is under way and returns.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let tree = self.service.tree.clone();
        self.server.serve(Arc::new(self.service), self.counters.connections.clone(), stop).await;
        tree.forget_leases().await;
    }
}

fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, soft = limit.current, "the limit of open files stays as it is");
    }
}
