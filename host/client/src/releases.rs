//! Files that were closed: telling the gateway, of several at once where they hold no lock, for nobody
//! waits for it. A program that makes or reads many small files would else have a third of its
//! requests be these.
//!
//! What must hold: whatever was closed is closed at the gateway in the end. What a watching client
//! had open on a connection that was lost the gateway keeps open for it, until it is opened again on
//! a later one, which takes its place. So a file that was closed meanwhile is opened again, and then
//! closed; that is tried until it is done or the client ends, whatever is away meanwhile, and an
//! answer is waited for as long as its connection lasts, for else nobody would close what it opens.
//! A client that stays away for long loses all that it had open anyway.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::RELEASES_MAX;
use portcullis_core::{Handle, Status};
use portcullis_wire::{Reply, Request};
use tokio::runtime;
use tracing::debug;

use crate::error::ClientError;
use crate::link::Link;
use crate::open_file::Id;
use crate::session::Session;

/// How long a file that was closed waits for others. Until then a brick that removes its last name
/// keeps it as a file that is open.
const RELEASE_DELAY_MS: u64 = 10;

/// A file that was closed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) id: Id,
    pub(crate) handle: Handle,
    pub(crate) flags: u32,
}

/// Files that hold no lock and wait to be closed at the gateway.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    waiting: Mutex<Vec<Closed>>,
}

impl Closed {
    /// Its id on the connection of `session`, where it is opened again if need be; `None` where the
    /// gateway has closed it already.
    pub(crate) async fn id_on(
        &mut self,
        link: &Link,
        session: &Session,
    ) -> Result<Option<u64>, ClientError> {
        if self.id.epoch == session.epoch {
            return Ok(Some(self.id.file));
        }
        if !link.watches() {
            return Ok(None);
        }
        let request = Request::Open { handle: self.handle, flags: self.flags };
        match link.call_on(session, &request).await {
            Ok(Reply::Opened { file, .. }) => {
                self.id = Id { file, epoch: session.epoch };
                Ok(Some(file))
            }
            Err(error) if is_passing(&error) => Err(error),
            // Gone, or not to be opened any more.
            _ => Ok(None),
        }
    }
}

impl Releases {
    /// Has the gateway told of a file, soon.
    pub(crate) fn add(link: &Arc<Link>, runtime: &runtime::Handle, closed: Closed) {
        let is_first = {
            let mut waiting = link.releases.waiting.lock();
            waiting.push(closed);
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
    /// What an attempt to close files came to; `None` where it is to be made once more, since a
    /// session was lost or a server is away, and the client wants to be connected.
    pub(crate) async fn outcome_of_closing(
        &self,
        closed: Result<(), ClientError>,
    ) -> Option<Result<(), ClientError>> {
        match closed {
            Err(error) if is_passing(&error) && self.persists() => {
                self.pause().await;
                None
            }
            // With it they were closed.
            Err(ClientError::Lost { .. }) if !self.watches() => Some(Ok(())),
            closed => Some(closed),
        }
    }

    /// Has the gateway told now: names are about to be removed, and a brick that has to keep a file
    /// that is open has more to do.
    pub(crate) fn flush_releases(self: &Arc<Self>) {
        if !self.releases.waiting.lock().is_empty() {
            let link = self.clone();
            tokio::spawn(async move { send(&link).await });
        }
    }
}

/// Whether what failed may work later.
fn is_passing(error: &ClientError) -> bool {
    error.status() == Status::Unavailable
}

async fn send(link: &Link) {
    let mut waiting = std::mem::take(&mut *link.releases.waiting.lock());
    loop {
        let sent = match link.session_for_closing().await {
            Ok(Some(session)) => send_on(link, &session, &mut waiting).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match link.outcome_of_closing(sent).await {
            None => {}
            Some(Ok(())) => return,
            Some(Err(error)) => {
                debug!(%error, "files could not be closed; they are when the client is gone");
                return;
            }
        }
    }
}

async fn send_on(
    link: &Link,
    session: &Session,
    waiting: &mut Vec<Closed>,
) -> Result<(), ClientError> {
    while !waiting.is_empty() {
        let first = waiting.len().saturating_sub(RELEASES_MAX);
        let mut files = Vec::with_capacity(waiting.len() - first);
        for closed in &mut waiting[first..] {
            files.extend(closed.id_on(link, session).await?);
        }
        link.call_on(session, &Request::ReleaseMany { files }).await?;
        waiting.truncate(first);
    }
    Ok(())
}
