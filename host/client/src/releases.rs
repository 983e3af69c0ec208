//! Files that were closed and hold no lock: the gateway is told of several at once, for nobody waits
//! for it. A program that makes or reads many small files would else have a third of its requests be
//! these.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::RELEASES_MAX;
use portcullis_wire::Request;
use tokio::runtime;
use tracing::debug;

use crate::link::Link;
use crate::open_file::Id;

/// How long a file that was closed waits for others. Until then a brick that removes its last name
/// keeps it as a file that is open.
const RELEASE_DELAY_MS: u64 = 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    waiting: Mutex<Vec<Id>>,
}

impl Releases {
    /// Has the gateway told of a file, soon.
    pub(crate) fn add(link: &Arc<Link>, runtime: &runtime::Handle, id: Id) {
        let is_first = {
            let mut waiting = link.releases.waiting.lock();
            waiting.push(id);
            waiting.len() == 1
        };
        if is_first {
            let link = link.clone();
            runtime.spawn(async move {
                tokio::time::sleep(Duration::from_millis(RELEASE_DELAY_MS)).await;
                send(&link).await;
            });
        }
    }
}

impl Link {
    /// Has the gateway told now: names are about to be removed, and a brick that has to keep a file
    /// that is open has more to do.
    pub(crate) fn flush_releases(self: &Arc<Self>) {
        if !self.releases.waiting.lock().is_empty() {
            let link = self.clone();
            tokio::spawn(async move { send(&link).await });
        }
    }
}

async fn send(link: &Link) {
    let waiting = std::mem::take(&mut *link.releases.waiting.lock());
    // The files of a lost connection are closed already.
    let Some(session) = link.current() else { return };
    let files: Vec<u64> =
        waiting.iter().filter(|id| id.epoch == session.epoch).map(|id| id.file).collect();
    for files in files.chunks(RELEASES_MAX) {
        let request = Request::ReleaseMany { files: files.to_vec() };
        let released =
            async { session.connection.call(&request).await.map_err(|error| link.explain(error)) };
        if let Err(error) = link.within(released).await {
            debug!(%error, "files could not be closed; they are once the connection ends");
        }
    }
}
