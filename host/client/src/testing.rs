//! For tests: a gateway with a made-up tree, over real QUIC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::contents::packed;
use portcullis_core::entry::EntryRef;
use portcullis_core::limits::LEASE_MS;
use portcullis_core::{Attr, ChunkBuilder, Entry, FileKind, Handle, Status};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{
    Body, Identity, IdentitySet, Peer, Recaller, ReplySink, Role, Server, Service,
};
use portcullis_wire::message::{Failure, Notices};
use portcullis_wire::{Reply, Request};
use tokio::sync::{Barrier, oneshot};

use crate::{Address, Client, ClientOptions};

/// A file or directory of the tree; its handle is its index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) children: Vec<usize>,
    pub(crate) is_dir: bool,
    pub(crate) fails: Option<Status>,
    pub(crate) incomplete: bool,
}

/// What the gateway shows, and how it behaves.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// Entries in a chunk.
    pub(crate) chunk_entries: usize,
    /// Listings of these directories wait until as many are under way as the barrier says.
    pub(crate) together: Option<(usize, Barrier)>,
    /// Listings stop after their first chunk and keep silent.
    pub(crate) stops_after_a_chunk: bool,
    /// So many listings more fail for want of a brick.
    pub(crate) away: AtomicUsize,
    /// Contents that go before each chunk, by the index of their entry; files are told to be empty.
    pub(crate) contents: Vec<(usize, &'static str)>,
    /// No chunk follows them.
    pub(crate) lacks_chunk: bool,
    /// Attributes are never answered.
    pub(crate) silent: bool,
    /// Content of every file.
    pub(crate) content: Bytes,
    /// Size of every file as it is told when it is opened, where that is not the truth.
    pub(crate) announced: Option<u64>,
    pub(crate) lists: Mutex<Vec<usize>>,
    pub(crate) opens: AtomicUsize,
    /// Answers kept back.
    pub(crate) kept: Mutex<Vec<ReplySink>>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let root = Node { is_dir: true, ..Node::default() };
        Self { nodes: vec![root], chunk_entries: 100, ..Self::default() }
    }

    pub(crate) fn add(&mut self, parent: usize, is_dir: bool) -> usize {
        let index = self.nodes.len();
        self.nodes.push(Node { is_dir, ..Node::default() });
        self.nodes[parent].children.push(index);
        index
    }

    /// Depth first, as the walk must go; `n` for node n, `-n` where its listing fails.
    pub(crate) fn expected(&self) -> Vec<i64> {
        let mut steps = Vec::new();
        let mut ahead = vec![0];
        while let Some(next) = ahead.pop() {
            steps.push(next);
            if next >= 0 {
                let node = &self.nodes[next as usize];
                if node.fails.is_some() || node.incomplete {
                    ahead.push(-next);
                }
                if node.fails.is_none() {
                    ahead.extend(node.children.iter().rev().map(|&child| child as i64));
                }
            }
        }
        steps
    }

    fn entry(&self, index: usize) -> Entry {
        let kind = if self.nodes[index].is_dir { FileKind::Directory } else { FileKind::Regular };
        let mode = u32::from(kind.dtype()) << 12 | 0o644;
        let attr = Attr { ino: index as u64, mode, ..Attr::default() };
        Entry { handle: handle(index), attr: Some(attr), kind, target: None }
    }

    async fn list(&self, dir: usize, after: usize, mut reply: ReplySink) -> Result<(), PeerGone> {
        self.lists.lock().push(dir);
        let less = |away: usize| away.checked_sub(1);
        if self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return reply.fail(Status::Unavailable).await;
        }
        if let Some((parent, barrier)) = &self.together
            && self.nodes[*parent].children.contains(&dir)
        {
            barrier.wait().await;
        }
        let node = &self.nodes[dir];
        if let Some(status) = node.fails {
            return reply.fail(status).await;
        }
        let mut builder = ChunkBuilder::default();
        for (position, &child) in node.children.iter().enumerate().skip(after) {
            let entry = self.entry(child);
            let name = child.to_string();
            builder.push(&EntryRef {
                name: name.as_bytes(),
                handle: entry.handle,
                attr: entry.attr,
                kind: entry.kind,
                target: None,
                cookie: position as u64 + 1,
            });
            if builder.count() == self.chunk_entries || position + 1 == node.children.len() {
                let chunk = builder.finish(0).expect("not empty");
                for &(index, content) in &self.contents {
                    // A frame each, so that they may come in any order.
                    reply.contents(&packed::pack([(index, content)])[0]).await?;
                }
                if self.lacks_chunk {
                    break;
                }
                reply.chunk(&chunk).await?;
                if self.stops_after_a_chunk {
                    self.kept.lock().push(reply);
                    return Ok(());
                }
            }
        }
        reply.end(!node.incomplete).await
    }
}

impl Service for Tree {
    type Session = ();

    fn open_session(&self, _peer: Peer, _recaller: Recaller) -> Result<(), Failure> {
        Ok(())
    }

    fn close_session(&self, _session: &Arc<()>) {}

    async fn serve(
        &self,
        _session: &Arc<()>,
        request: Request,
        _body: Body,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        match request {
            Request::Attach { .. } => reply.reply(attached(self.entry(0), false)).await,
            Request::Getattr { .. } if self.silent => {
                self.kept.lock().push(reply);
                Ok(())
            }
            Request::Getattr { handle } => match self.entry(index(&handle)).attr {
                Some(attr) => reply.reply(Reply::Attr(attr)).await,
                None => reply.fail(Status::Io).await,
            },
            Request::Lookup { dir, name } => {
                let named = |&&child: &&usize| child.to_string().as_bytes() == name;
                match self.nodes[index(&dir)].children.iter().find(named) {
                    Some(&child) => reply.reply(Reply::Entry(self.entry(child))).await,
                    None => reply.fail(Status::NotFound).await,
                }
            }
            Request::List { dir, after, acl: _, contents: _ } => {
                let after = after.first().map_or(0, |&cookie| cookie as usize);
                self.list(index(&dir), after, reply).await
            }
            Request::Open { handle, .. } if index(&handle) < self.nodes.len() => {
                let file = self.opens.fetch_add(1, Ordering::Relaxed) as u64;
                let size_bytes = self.announced.unwrap_or(self.content.len() as u64);
                let attr = Attr { size_bytes, ..Attr::default() };
                reply.reply(Reply::Opened { file, attr }).await
            }
            Request::Read { file, offset_bytes, len_bytes }
                if file < self.opens.load(Ordering::Relaxed) as u64 =>
            {
                let start = self.content.len().min(offset_bytes as usize);
                let end = self.content.len().min(start + len_bytes as usize);
                for part in self.content[start..end].chunks(100_000) {
                    reply.data(vec![Bytes::copy_from_slice(part)]).await?;
                }
                reply.end(true).await
            }
            Request::Read { .. } => reply.fail(Status::BadFile).await,
            Request::Release { .. } | Request::ReleaseMany { .. } => reply.reply(Reply::Done).await,
            Request::Open { .. } => reply.fail(Status::Stale).await,
            _ => reply.fail(Status::NotSupported).await,
        }
    }
}

/// The answer to an attach; with a lease where the client watches.
pub(crate) fn attached(root: Entry, watch: bool) -> Reply {
    let (session, lease_ms) = if watch { (1, LEASE_MS as u32) } else { (0, 0) };
    Reply::Attached { root, session, lease_ms, life: 1, notices: Notices::None }
}

fn handle(index: usize) -> Handle {
    Handle::new(&(index as u64).to_le_bytes()).expect("short")
}

fn index(handle: &Handle) -> usize {
    u64::from_le_bytes(handle.as_bytes().try_into().expect("8 bytes")) as usize
}

/// A gateway that serves until told to stop.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    tree: Arc<Tree>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Gateway {
    /// Serves at `address`; waits for the port to be free.
    pub(crate) async fn start(set: &IdentitySet, address: SocketAddr, tree: Arc<Tree>) -> Self {
        let identity = set.identity(Role::Gateway).expect("an identity");
        let deadline = Instant::now() + Duration::from_secs(10);
        let server = loop {
            match Server::bind(address, &identity) {
                Ok(server) => break server,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::task::yield_now().await;
        };
        let address = server.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let served = tree.clone();
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            server.serve(served, Arc::new(Counters::default()), stopped).await;
        });
        Self { address, tree, stop, serving }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("it serves");
        self.serving.await.expect("it ends well");
        // They keep the socket.
        self.tree.kept.lock().clear();
    }
}

pub(crate) fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

pub(crate) fn client_identity(set: &IdentitySet) -> Identity {
    set.identity(Role::Client).expect("an identity")
}

/// A gateway with `tree` and a client of it.
pub(crate) async fn serve(tree: Tree) -> (Arc<Tree>, Gateway, IdentitySet, Client) {
    let (set, tree) = (IdentitySet::generate().expect("a set"), Arc::new(tree));
    let gateway = Gateway::start(&set, anywhere(), tree.clone()).await;
    let client = connect(&set, gateway.address, ClientOptions::default()).await;
    (tree, gateway, set, client)
}

pub(crate) async fn connect(
    set: &IdentitySet,
    gateway: SocketAddr,
    options: ClientOptions,
) -> Client {
    let address = Address::root_of(gateway);
    Client::connect(&address, client_identity(set), options).await.expect("it connects")
}
