//! All clients: which session is of which client, and what they have open.
//!
//! A client whose connection is lost may come back, so its files stay open and its locks held for a
//! while ([`CLIENT_GONE_MS`]), and for as long as it is here on a later connection: what it opens
//! again there takes the place of what it had open. When the gateway has a new session with a brick, all that is open there is opened
//! again, so that files without a name live on and locks are not somebody else's.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::Handle;
use portcullis_core::watch::SessionId;
use tokio::task::JoinSet;
use tracing::debug;

use crate::brick_link::BrickLink;
use crate::open_file::AtBrick;
use crate::session::Session;
use crate::volume::Volume;

/// How long the files of a client stay open whose connection is lost.
pub(crate) const CLIENT_GONE_MS: u64 = 20_000;
/// Files that are opened again at once on a new session with the brick.
const REOPENS_AT_ONCE: usize = 32;

/// See the module.
#[derive(Default)]
pub(crate) struct Clients {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The client of each session.
    clients: HashMap<SessionId, u128>,
    /// Connections, those of clients that may come back among them.
    connections: HashMap<u64, Weak<Session>>,
    connected: u64,
}

impl Clients {
    /// The number of a new connection.
    pub(crate) fn number(&self) -> u64 {
        let mut table = self.table.lock();
        table.connected += 1;
        table.connected
    }

    /// A connection attaches, or begins to have files open. It is known until nothing is under way
    /// on it any more.
    pub(crate) fn enter(&self, session: &Arc<Session>) {
        let mut table = self.table.lock();
        if !table.connections.contains_key(&session.number) {
            table.connections.retain(|_, session| session.strong_count() > 0);
            table.connections.insert(session.number, Arc::downgrade(session));
        }
    }

    /// A client attaches anew: what its earlier connections asked to be changed and is not sent yet
    /// is not sent any more, for the client asks it again here. Answers whether there are any.
    pub(crate) fn supersede(&self, session: &Session) -> bool {
        let earlier = self.earlier(session);
        earlier.iter().for_each(|other| other.supersede());
        !earlier.is_empty()
    }

    /// Earlier connections of the same client.
    pub(crate) fn earlier(&self, session: &Session) -> Vec<Arc<Session>> {
        let is_earlier = |other: &Arc<Session>| other.number < session.number;
        self.others(session).into_iter().filter(is_earlier).collect()
    }

    /// Whether the client of a connection that is gone is here on a later one.
    fn is_back(&self, session: &Session) -> bool {
        let others = self.others(session);
        others.iter().any(|other| other.number > session.number && !other.is_gone())
    }

    /// Other connections of the same client.
    fn others(&self, session: &Session) -> Vec<Arc<Session>> {
        let Some(client) = session.client() else { return Vec::new() };
        let is_its =
            |other: &Arc<Session>| other.number != session.number && other.client() == Some(client);
        self.all().into_iter().filter(is_its).collect()
    }

    /// Whether a client has this very file of the brick open.
    pub(crate) async fn is_open(&self, handle: Handle, at_brick: AtBrick) -> bool {
        let sessions = self.all();
        let open = sessions.iter().flat_map(|session| session.open_files());
        for open in open.filter(|open| open.handle == handle).collect::<Vec<_>>() {
            if open.last_at_brick().await == at_brick {
                return true;
            }
        }
        false
    }

    fn all(&self) -> Vec<Arc<Session>> {
        self.table.lock().connections.values().filter_map(Weak::upgrade).collect()
    }
}

impl Volume {
    /// Notes whose session it is.
    pub(crate) fn attached(&self, id: SessionId, client: u128) {
        let mut table = self.clients.table.lock();
        // Leases run out without a word.
        table.clients.retain(|&id, _| self.watching.grantor().is_open(id));
        table.clients.insert(id, client);
    }

    /// Ends a session of this client, which caches nothing any more that it was told through it.
    pub(crate) fn end_session(&self, id: SessionId, client: u128) {
        let known = {
            let mut table = self.clients.table.lock();
            let is_its = table.clients.get(&id) == Some(&client);
            if is_its {
                table.clients.remove(&id);
            }
            is_its
        };
        if known {
            self.watching.end(id);
        }
    }

    /// Opens everything again that clients have open at a brick: on a new session with it.
    pub(crate) async fn reopen_files(self: Arc<Self>, brick: Arc<BrickLink>) {
        let sessions = self.clients.all();
        let mut files: Vec<_> = sessions.iter().flat_map(|session| session.open_files()).collect();
        files.retain(|file| self.bricks.of(&file.handle).number == brick.number);
        files.sort_by_key(|file| file.held.lock().is_empty());
        let mut reopening = JoinSet::new();
        for file in files {
            if reopening.len() >= REOPENS_AT_ONCE {
                reopening.join_next().await;
            }
            let volume = self.clone();
            reopening.spawn(async move {
                if let Err(failure) = file.at_brick(&volume, 0, volume.bricks.deadline()).await {
                    debug!(handle = ?file.handle, %failure, "a file could not be opened again");
                }
            });
        }
        while reopening.join_next().await.is_some() {}
    }
}

/// Closes what a client had open, after a while in which it may come back.
pub(crate) fn close_later(session: Arc<Session>) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(CLIENT_GONE_MS)).await;
            // With nothing open there is nothing to come back to.
            if !session.volume.clients.is_back(&session) || session.open_files().is_empty() {
                return session.close_files().await;
            }
        }
    });
}
