//! A brick, a gateway and clients in one process, each ended as the test wants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_brick::{Brick, BrickConfig};
use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_gateway::{Gateway, GatewayConfig};
use portcullis_transport::{CallError, Connection, Connector, IdentitySet, ReplyStream, Role};
use portcullis_wire::message::Failure;
use portcullis_wire::stats::GatewayStats;
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How long anything may take that must come in the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Waits until `condition` gives something.
pub(crate) async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A brick on a runtime of its own.
pub(crate) struct RunningBrick {
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl RunningBrick {
    pub(crate) fn start(ids: &IdentitySet, export: &Path, listen: SocketAddr) -> Self {
        let identity = ids.identity(Role::Brick).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let config = BrickConfig::new(export.to_owned(), listen);
        let deadline = Instant::now() + PATIENCE;
        let guard = runtime.enter();
        let brick = loop {
            // The port of a brick that was killed may be free only a little later.
            match Brick::bind(config.clone(), &identity) {
                Ok(brick) => break brick,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::yield_now();
        };
        let address = brick.local_addr();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(brick.serve(async {
            let _ = stopped.await;
        }));
        drop(guard);
        Self { address, runtime: Some(runtime), stop: Some(stop), served: Some(served) }
    }

    /// Ends it as SIGKILL does: it tells nobody.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.served.take().unwrap().await.unwrap();
        self.kill();
    }
}

impl Drop for RunningBrick {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A gateway that serves, and who may talk to it.
pub(crate) struct Stand {
    pub(crate) ids: Arc<IdentitySet>,
    pub(crate) address: SocketAddr,
    pub(crate) admin_address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
    admin: tokio::sync::OnceCell<Connection>,
}

impl Stand {
    /// A gateway in front of `brick`.
    pub(crate) fn start(ids: impl Into<Arc<IdentitySet>>, config: GatewayConfig) -> Self {
        let ids = ids.into();
        let gateway = Gateway::bind(config, &ids.identity(Role::Gateway).unwrap()).unwrap();
        let (address, admin_address) = (gateway.local_addr(), gateway.admin_addr());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(gateway.serve(async {
            let _ = stopped.await;
        }));
        Self {
            ids,
            address,
            admin_address,
            stop: Some(stop),
            served: Some(served),
            admin: tokio::sync::OnceCell::new(),
        }
    }

    pub(crate) async fn connect(&self, role: Role) -> Connection {
        let connector = Connector::new(&self.ids.identity(role).unwrap(), self.address).unwrap();
        connector.connect(self.address, Role::Gateway).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client(self.connect(Role::Client).await)
    }

    pub(crate) async fn stats(&self) -> GatewayStats {
        let admin = self.admin.get_or_init(|| self.connect(Role::Admin)).await;
        match admin.call(&Request::Stats).await {
            Ok(Reply::Stats(stats)) => *stats,
            other => panic!("no stats: {other:?}"),
        }
    }

    /// Requests sent to the brick so far, by verb.
    pub(crate) async fn brick_requests(&self) -> BTreeMap<String, u64> {
        self.stats().await.bricks.remove(0).requests
    }

    /// Stops the gateway and waits until it is done.
    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        tokio::time::timeout(PATIENCE, self.served.take().unwrap()).await.unwrap().unwrap();
    }
}

/// A brick that exports `tree` with a gateway in front of it, all at the defaults.
pub(crate) fn serve(tree: &Path) -> (RunningBrick, Stand) {
    serve_with(tree, |_| ())
}

pub(crate) fn serve_with(
    tree: &Path,
    change: impl FnOnce(&mut GatewayConfig),
) -> (RunningBrick, Stand) {
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, tree, any_port());
    let mut config = GatewayConfig::new(brick.address);
    change(&mut config);
    (brick, Stand::start(ids, config))
}

/// A client's connection with the verbs tests use.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) Connection);

impl Client {
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Failure> {
        let answered = tokio::time::timeout(PATIENCE, self.0.call(&request)).await;
        match answered.unwrap_or_else(|_| panic!("no answer to {request:?}")) {
            Ok(reply) => Ok(reply),
            Err(CallError::Failed(failure)) => Err(failure),
            Err(other) => panic!("{request:?}: {other}"),
        }
    }

    pub(crate) async fn root(&self) -> Handle {
        match self.call(Request::Attach { watch: false, client: 0, ended: 0 }).await {
            Ok(Reply::Attached { root, session: 0, lease_ms: 0, .. }) => root.handle,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn lookup(&self, dir: Handle, name: &[u8]) -> Result<Entry, Status> {
        match self.call(Request::Lookup { dir, name: name.to_vec() }).await {
            Ok(Reply::Entry(entry)) => Ok(entry),
            Err(failure) => Err(failure.status),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn getattr(&self, handle: Handle) -> Result<Attr, Failure> {
        match self.call(Request::Getattr { handle }).await {
            Ok(Reply::Attr(attr)) => Ok(attr),
            Err(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn readlink(&self, handle: Handle) -> Vec<u8> {
        match self.call(Request::Readlink { handle }).await {
            Ok(Reply::Target(target)) => target,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn stream(&self, request: Request) -> ReplyStream {
        self.0.stream(&request).await.unwrap()
    }

    /// The entries of a directory after a position, and how the listing ended.
    pub(crate) async fn list_after(&self, dir: Handle, after: Vec<u64>) -> (Vec<Listed>, Ended) {
        let mut stream =
            self.stream(Request::List { dir, after, acl: false, contents: None }).await;
        drain_listing(&mut stream).await
    }

    /// All entries of a directory by name; the listing must be complete and repeat nothing.
    pub(crate) async fn list(&self, dir: Handle) -> BTreeMap<Vec<u8>, Entry> {
        let (listed, ended) = self.list_after(dir, Vec::new()).await;
        assert_eq!(ended, Ok(true));
        by_name(listed)
    }

    pub(crate) async fn open(&self, handle: Handle) -> Result<u64, Status> {
        self.open_as(handle, 0).await
    }

    pub(crate) async fn open_as(&self, handle: Handle, flags: u32) -> Result<u64, Status> {
        match self.call(Request::Open { handle, flags }).await {
            Ok(Reply::Opened { file, .. }) => Ok(file),
            Err(failure) => Err(failure.status),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn read(
        &self,
        file: u64,
        offset_bytes: u64,
        len: u32,
    ) -> Result<Vec<u8>, Failure> {
        let mut stream = self.stream(Request::Read { file, offset_bytes, len_bytes: len }).await;
        let mut content = Vec::new();
        loop {
            match frame(&mut stream).await {
                ReplyFrame::Data(data) => content.extend_from_slice(&data),
                ReplyFrame::End { complete: true } => return Ok(content),
                ReplyFrame::Failure(failure) => return Err(failure),
                other => panic!("{other:?} in a read"),
            }
        }
    }

    pub(crate) async fn release(&self, file: u64) {
        assert_eq!(self.call(Request::Release { file, unlock: None }).await, Ok(Reply::Done));
    }

    /// The whole content of a file, read in pieces of `piece` bytes.
    pub(crate) async fn content(&self, handle: Handle, piece: u32) -> Vec<u8> {
        let file = self.open(handle).await.unwrap();
        let mut content = Vec::new();
        loop {
            let read = self.read(file, content.len() as u64, piece).await.unwrap();
            content.extend_from_slice(&read);
            if read.len() < piece as usize {
                break;
            }
        }
        self.release(file).await;
        content
    }
}

/// One entry of a listing.
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) entry: Entry,
    pub(crate) cookie: u64,
}

/// How a listing ended: whether it was complete, or why it failed.
pub(crate) type Ended = Result<bool, Failure>;

/// The next frame, within bounds.
pub(crate) async fn frame(stream: &mut ReplyStream) -> ReplyFrame {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("a frame in time").expect("a frame")
}

pub(crate) async fn drain_listing(stream: &mut ReplyStream) -> (Vec<Listed>, Ended) {
    let mut listed = Vec::new();
    loop {
        match frame(stream).await {
            ReplyFrame::Chunk(chunk) => listed.extend(chunk.entries().map(|entry| Listed {
                name: entry.name.to_vec(),
                entry: entry.to_entry(),
                cookie: entry.cookie,
            })),
            ReplyFrame::End { complete } => return (listed, Ok(complete)),
            ReplyFrame::Failure(failure) => return (listed, Err(failure)),
            other => panic!("{other:?} in a listing"),
        }
    }
}

/// Entries by name; none may come twice.
pub(crate) fn by_name(listed: Vec<Listed>) -> BTreeMap<Vec<u8>, Entry> {
    let count = listed.len();
    let names: BTreeMap<_, _> =
        listed.into_iter().map(|listed| (listed.name, listed.entry)).collect();
    assert_eq!(names.len(), count, "a name came twice");
    names
}
