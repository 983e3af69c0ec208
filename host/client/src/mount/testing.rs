//! For tests: a gateway whose volume changes while it is mounted, over real QUIC.
//!
//! A handle is the number of a node; numbers are never used again, so a node that was removed is
//! stale for ever. Cookies grow with every entry added and stay with their entries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::{LEASE_MS, READ_FRAME_LEN_BYTES};
use portcullis_core::{Attr, ChunkBuilder, Entry, EntryRef, FileKind, Handle, Status, Timestamp};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{Body, IdentitySet, Peer, Recaller, ReplySink, Role, Server, Service};
use portcullis_wire::message::{Failure, Statfs, Verb};
use portcullis_wire::{Reply, Request};
use tokio::sync::oneshot;

use crate::testing::attached;
use crate::{Address, Client, ClientOptions};

pub(super) const ROOT: u64 = 0;
/// Entries in a chunk.
pub(super) const CHUNK_ENTRIES: usize = 50;

/// A file, directory or link.
#[derive(Clone, Default)]
struct Node {
    mode: u32,
    content: Bytes,
    entries: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Listings and lookups tell no attributes.
    bare: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Shown {
    nodes: Mutex<HashMap<u64, Node>>,
    next: Mutex<u64>,
    asked: Mutex<HashMap<Verb, usize>>,
    /// Listings end without being complete.
    pub(super) incomplete: AtomicBool,
    /// Attributes are not answered; their replies are kept.
    pub(super) silent: AtomicBool,
    kept: Mutex<Vec<(Request, ReplySink)>>,
}

impl Shown {
    pub(super) fn new() -> Arc<Self> {
        let shown = Self::default();
        let root = Node { mode: 0o040_755, ..Node::default() };
        shown.nodes.lock().insert(ROOT, root);
        Arc::new(shown)
    }

    fn add(&self, dir: u64, name: &str, node: Node) -> u64 {
        let number = {
            let mut next = self.next.lock();
            *next += 1;
            *next
        };
        let mut nodes = self.nodes.lock();
        nodes.insert(number, node);
        let dir = nodes.get_mut(&dir).expect("a directory");
        dir.entries.insert(number, (name.as_bytes().to_vec(), number));
        number
    }

    pub(super) fn add_file(&self, dir: u64, name: &str, content: impl Into<Bytes>) -> u64 {
        let content = content.into();
        self.add(dir, name, Node { mode: 0o100_644, content, ..Node::default() })
    }

    pub(super) fn add_bare_file(&self, dir: u64, name: &str, content: &'static [u8]) -> u64 {
        let content = Bytes::from_static(content);
        self.add(dir, name, Node { mode: 0o100_644, content, bare: true, ..Node::default() })
    }

    pub(super) fn add_dir(&self, dir: u64, name: &str) -> u64 {
        self.add(dir, name, Node { mode: 0o040_755, ..Node::default() })
    }

    pub(super) fn add_link(&self, dir: u64, name: &str, target: &'static str) -> u64 {
        let content = Bytes::from_static(target.as_bytes());
        self.add(dir, name, Node { mode: 0o120_777, content, ..Node::default() })
    }

    pub(super) fn remove(&self, dir: u64, name: &str) {
        let mut nodes = self.nodes.lock();
        let dir = nodes.get_mut(&dir).expect("a directory");
        let found = dir.entries.iter().find(|(_, (at, _))| at == name.as_bytes());
        let (cookie, number) = found.map(|(cookie, (_, number))| (*cookie, *number)).expect(name);
        dir.entries.remove(&cookie);
        nodes.remove(&number);
    }

    /// How often a verb was asked for.
    pub(super) fn asked(&self, verb: Verb) -> usize {
        self.asked.lock().get(&verb).copied().unwrap_or(0)
    }

    /// How many replies are kept back.
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().len()
    }

    /// Answers what was kept back, and from now on everything.
    pub(super) async fn speak(&self) {
        self.silent.store(false, Ordering::Relaxed);
        let kept = std::mem::take(&mut *self.kept.lock());
        for (request, reply) in kept {
            // A client that gave up does not matter here.
            let _ = reply.result(self.reply(&request)).await;
        }
    }

    fn entry(&self, number: u64) -> Option<Entry> {
        let nodes = self.nodes.lock();
        let node = nodes.get(&number)?;
        let attr = attr(number, node);
        let target = (attr.kind() == FileKind::Symlink).then(|| node.content.to_vec());
        let attr_told = (!node.bare).then_some(attr);
        Some(Entry { handle: handle(number), attr: attr_told, kind: attr.kind(), target })
    }

    fn reply(&self, request: &Request) -> Result<Reply, Failure> {
        let nodes = self.nodes.lock();
        let node = |handle: &Handle| {
            let number = number(handle);
            nodes.get(&number).map(|node| (number, node)).ok_or(Failure::from(Status::Stale))
        };
        Ok(match request {
            Request::Getattr { handle } => {
                let (number, node) = node(handle)?;
                Reply::Attr(attr(number, node))
            }
            Request::Readlink { handle } => Reply::Target(node(handle)?.1.content.to_vec()),
            Request::Open { handle, .. } => {
                let (number, node) = node(handle)?;
                Reply::Opened { file: number, attr: attr(number, node) }
            }
            Request::Lookup { dir, name } => {
                let (_, dir) = node(dir)?;
                let found = dir.entries.values().find(|(at, _)| at == name);
                let &(_, number) = found.ok_or(Failure::from(Status::NotFound))?;
                drop(nodes);
                Reply::Entry(self.entry(number).ok_or(Failure::from(Status::Stale))?)
            }
            Request::Attach { watch, .. } => {
                drop(nodes);
                attached(self.entry(ROOT).ok_or(Failure::from(Status::Stale))?, *watch)
            }
            Request::Renew => Reply::Renewed { lease_ms: LEASE_MS as u32, life: 1 },
            Request::Release { .. } | Request::ReleaseMany { .. } | Request::Detach => Reply::Done,
            Request::Statfs { .. } => Reply::Statfs(Statfs {
                fragment_bytes: 4096,
                block_bytes: 4096,
                blocks: 100,
                blocks_free: 60,
                blocks_available: 50,
                files: 9,
                files_free: 5,
                name_len_max: 255,
            }),
            Request::Getxattr { name, .. } if name == b"user.colour" => {
                Reply::Xattr(b"vermilion".to_vec())
            }
            Request::Getxattr { .. } => return Err(Status::NoAttribute.into()),
            Request::Listxattr { .. } => Reply::Xattr(b"user.colour\0security.selinux\0".to_vec()),
            _ => return Err(Status::NotSupported.into()),
        })
    }

    async fn list(&self, dir: u64, after: u64, mut reply: ReplySink) -> Result<(), PeerGone> {
        let Some(dir) = self.nodes.lock().get(&dir).cloned() else {
            return reply.fail(Status::Stale).await;
        };
        let mut builder = ChunkBuilder::default();
        for (&cookie, (name, number)) in dir.entries.range(after + 1..) {
            let Some(entry) = self.entry(*number) else { continue };
            let target = entry.target.as_deref();
            let (handle, attr, kind) = (entry.handle, entry.attr, entry.kind);
            assert!(builder.push(&EntryRef { name, handle, attr, kind, target, cookie }));
            if builder.count() == CHUNK_ENTRIES
                && let Some(chunk) = builder.finish(0)
            {
                reply.chunk(&chunk).await?;
            }
        }
        if let Some(chunk) = builder.finish(0) {
            reply.chunk(&chunk).await?;
        }
        reply.end(!self.incomplete.load(Ordering::Relaxed)).await
    }

    async fn read(
        &self,
        file: u64,
        offset: usize,
        len: usize,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let Some(node) = self.nodes.lock().get(&file).cloned() else {
            return reply.fail(Status::Stale).await;
        };
        let start = node.content.len().min(offset);
        let mut data = node.content.slice(start..node.content.len().min(start + len));
        while !data.is_empty() {
            reply.data(vec![data.split_to(data.len().min(READ_FRAME_LEN_BYTES))]).await?;
        }
        reply.end(true).await
    }
}

impl Service for Shown {
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
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        *self.asked.lock().entry(request.verb()).or_default() += 1;
        match request {
            Request::Getattr { .. } if self.silent.load(Ordering::Relaxed) => {
                self.kept.lock().push((request, reply));
                Ok(())
            }
            Request::List { dir, after, acl: _, contents: _ } => {
                self.list(number(&dir), after.first().copied().unwrap_or(0), reply).await
            }
            Request::Read { file, offset_bytes, len_bytes } => {
                self.read(file, offset_bytes as usize, len_bytes as usize, reply).await
            }
            request => {
                let answer = self.reply(&request);
                reply.result(answer).await
            }
        }
    }
}

fn attr(number: u64, node: &Node) -> Attr {
    let time = Timestamp { secs: 1_600_000_000 + number as i64, nanos: 5 };
    Attr {
        ino: number + 1000,
        mode: node.mode,
        nlink: 1,
        size_bytes: node.content.len() as u64,
        block_size_bytes: 4096,
        has_no_acl: false,
        mtime: time,
        ctime: time,
        atime: time,
        ..Attr::default()
    }
}

pub(super) fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("short")
}

fn number(handle: &Handle) -> u64 {
    u64::from_le_bytes(handle.as_bytes().try_into().expect("8 bytes"))
}

/// A gateway that shows a volume until it is dropped, and a client of it.
pub(super) struct Served {
    pub(super) client: Client,
    pub(super) shown: Arc<Shown>,
    /// Dropped, it stops the gateway.
    pub(super) stop: oneshot::Sender<()>,
}

pub(super) async fn serve(shown: Arc<Shown>, options: ClientOptions) -> Served {
    let set = IdentitySet::generate().expect("a set");
    let identity = set.identity(Role::Gateway).expect("an identity");
    let server = Server::bind(([127, 0, 0, 1], 0).into(), &identity).expect("a port");
    let address = Address::root_of(server.local_addr().expect("an address"));
    let (stop, stopped) = oneshot::channel::<()>();
    let (service, counters) = (shown.clone(), Arc::new(Counters::default()));
    tokio::spawn(server.serve(service, counters, async move { _ = stopped.await }));
    let identity = set.identity(Role::Client).expect("an identity");
    let client = Client::connect(&address, identity, options).await.expect("it connects");
    Served { client, shown, stop }
}
