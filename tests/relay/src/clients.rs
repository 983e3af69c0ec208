//! Which socket a datagram leaves by, and where to. Every client has a socket of its own toward the
//! server, which so tells them apart.
//!
//! The thread of the way up gives out the sockets; that of the way down listens at them. Of more
//! clients than there may be, the one that was silent longest is forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pump::Lane;
use crate::socket::Socket;

/// Clients at a time.
pub(crate) const CLIENTS_MAX: usize = 256;

/// What a pump asks.
pub(crate) trait Routes {
    /// The sockets to listen at. Changes only with a wake of the lane.
    fn sources(&mut self) -> &[Arc<Socket>];

    /// Where a datagram goes that came from `peer` at the source of this index: the socket it
    /// leaves by, and the address. `None`: it is nobody's.
    fn route(&mut self, source: usize, peer: SocketAddr) -> Option<(Arc<Socket>, SocketAddr)>;
}

/// The routes of both ways.
pub(crate) struct Both {
    pub(crate) up: Up,
    pub(crate) down: Down,
}

/// The routes between clients at `front` and `server`.
pub(crate) fn routes(front: &Arc<Socket>, server: SocketAddr, down: &Arc<Lane>) -> Both {
    let published: Arc<Mutex<Published>> = Arc::default();
    let up = Up {
        front: [front.clone()],
        server,
        clients: HashMap::new(),
        turn: 0,
        published: published.clone(),
        down: down.clone(),
    };
    let front = front.clone();
    let down =
        Down { front, server, published, version: 0, sources: Vec::new(), clients: Vec::new() };
    Both { up, down }
}

/// The clients there are, as the way up tells that down.
#[derive(Debug, Default)]
struct Published {
    version: u64,
    clients: Vec<(SocketAddr, Arc<Socket>)>,
}

/// From clients to the server.
pub(crate) struct Up {
    front: [Arc<Socket>; 1],
    server: SocketAddr,
    clients: HashMap<SocketAddr, Client>,
    turn: u64,
    published: Arc<Mutex<Published>>,
    down: Arc<Lane>,
}

struct Client {
    socket: Arc<Socket>,
    /// When it was last heard, in turns.
    heard: u64,
}

impl Routes for Up {
    fn sources(&mut self) -> &[Arc<Socket>] {
        &self.front
    }

    fn route(&mut self, _: usize, peer: SocketAddr) -> Option<(Arc<Socket>, SocketAddr)> {
        self.turn += 1;
        if !self.clients.contains_key(&peer) {
            self.add(peer);
        }
        let client = self.clients.get_mut(&peer)?;
        client.heard = self.turn;
        Some((client.socket.clone(), self.server))
    }
}

impl Up {
    fn add(&mut self, peer: SocketAddr) {
        if self.clients.len() == CLIENTS_MAX {
            let silent = self.clients.iter().min_by_key(|(_, client)| client.heard);
            if let Some(silent) = silent.map(|(peer, _)| *peer) {
                self.clients.remove(&silent);
            }
        }
        let socket = Arc::new(Socket::bind_like(self.server));
        self.clients.insert(peer, Client { socket, heard: self.turn });
        let clients = self.clients.iter().map(|(peer, client)| (*peer, client.socket.clone()));
        let mut published = self.published.lock();
        published.version += 1;
        published.clients = clients.collect();
        drop(published);
        self.down.wake.wake();
    }
}

/// From the server to clients.
pub(crate) struct Down {
    front: Arc<Socket>,
    server: SocketAddr,
    published: Arc<Mutex<Published>>,
    /// Of what was taken over.
    version: u64,
    sources: Vec<Arc<Socket>>,
    /// Whose each source is.
    clients: Vec<SocketAddr>,
}

impl Routes for Down {
    fn sources(&mut self) -> &[Arc<Socket>] {
        let published = self.published.lock();
        if published.version != self.version {
            self.version = published.version;
            (self.clients, self.sources) = published.clients.iter().cloned().unzip();
        }
        &self.sources
    }

    fn route(&mut self, source: usize, peer: SocketAddr) -> Option<(Arc<Socket>, SocketAddr)> {
        if peer != self.server {
            return None;
        }
        Some((self.front.clone(), *self.clients.get(source)?))
    }
}
