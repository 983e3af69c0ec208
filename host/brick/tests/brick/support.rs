//! A brick on a temporary tree with a connection to it, and short ways to ask it.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use portcullis_brick::{Brick, BrickConfig, BrickCounters, BrickError, HandleChoice};
use portcullis_core::{Attr, Chunk, Entry, EntryRef, Handle, Status};
use portcullis_transport::{CallError, Connection, Connector, IdentitySet, Role};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs an async test once for each kind of handles, as `NAME::kernel`, `NAME::map`, ...
macro_rules! on_each_kind {
    ($(async fn $name:ident($brick:ident: TestBrick) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "not every body uses all of it")]
            use super::*;
            use crate::support::{TestBrick, run};

            async fn body($brick: TestBrick) $body

            #[test]
            fn kernel() {
                let name = concat!(stringify!($name), "::kernel");
                run(name, portcullis_brick::HandleChoice::Kernel, body);
            }

            #[test]
            fn map() {
                run(concat!(stringify!($name), "::map"), portcullis_brick::HandleChoice::Map, body);
            }

            #[test]
            fn map_by_stat() {
                let name = concat!(stringify!($name), "::map_by_stat");
                run(name, portcullis_brick::HandleChoice::MapByStat, body);
            }
        }
    )*};
}
pub(crate) use on_each_kind;

/// Says that a test did not run, past the capture of the test harness.
pub(crate) fn skipped(name: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

pub(crate) fn run<F: Future<Output = ()>>(
    name: &str,
    choice: HandleChoice,
    body: impl FnOnce(TestBrick) -> F,
) {
    runtime().block_on(async {
        match TestBrick::start(choice).await {
            Ok(brick) => body(brick).await,
            Err(BrickError::KernelHandles { reason, .. }) => skipped(name, &reason),
            Err(error) => panic!("{error}"),
        }
    });
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A brick that serves a temporary directory, and a gateway's connection to it.
pub(crate) struct TestBrick {
    pub(crate) tree: Arc<TempDir>,
    pub(crate) identities: Arc<IdentitySet>,
    pub(crate) address: SocketAddr,
    pub(crate) choice: HandleChoice,
    pub(crate) counters: Arc<BrickCounters>,
    pub(crate) connection: Connection,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl TestBrick {
    pub(crate) async fn start(choice: HandleChoice) -> Result<Self, BrickError> {
        let tree = Arc::new(tempfile::tempdir().expect("a directory"));
        std::fs::create_dir(tree.path().join("export")).expect("a directory");
        let identities = Arc::new(IdentitySet::generate().expect("identities"));
        let export = tree.path().join("export");
        Self::start_on(&export, tree, identities, choice).await
    }

    pub(crate) async fn start_on(
        export: &Path,
        tree: Arc<TempDir>,
        identities: Arc<IdentitySet>,
        choice: HandleChoice,
    ) -> Result<Self, BrickError> {
        let identity = identities.identity(Role::Brick).expect("a brick's identity");
        let mut config = BrickConfig::new(export, "127.0.0.1:0".parse().expect("an address"));
        config.handles = choice;
        let brick = Brick::bind(config, &identity)?;
        let choice = brick.handle_choice();
        let (address, counters) = (brick.local_addr(), brick.counters());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(brick.serve(async {
            let _ = stopped.await;
        }));
        let connection = connect(&identities, Role::Gateway, address).await;
        Ok(Self { tree, identities, address, choice, counters, connection, stop, serving })
    }

    /// Another brick on the same export, with the same identity, after this one has stopped.
    pub(crate) async fn restart(self) -> Self {
        let Self { tree, identities, choice, connection, stop, serving, .. } = self;
        connection.close("restart");
        let _ = stop.send(());
        serving.await.expect("it ends");
        let export = tree.path().join("export");
        Self::start_on(&export, tree, identities, choice).await.expect("it starts again")
    }

    /// The path of a file in the export.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.tree.path().join("export").join(relative)
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Status> {
        status_of(self.connection.call(&request).await)
    }

    pub(crate) async fn root(&self) -> Handle {
        match self.call(attach(false)).await {
            Ok(Reply::Attached { root, .. }) => root.handle,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn lookup(
        &self,
        dir: Handle,
        name: impl AsRef<[u8]>,
    ) -> Result<Entry, Status> {
        match self.call(Request::Lookup { dir, name: name.as_ref().to_vec() }).await? {
            Reply::Entry(entry) => Ok(without_atime(entry)),
            other => panic!("{other:?}"),
        }
    }

    /// The entry at a path of ordinary names.
    pub(crate) async fn walk(&self, path: &str) -> Result<Entry, Status> {
        let mut at = Err(Status::NotFound);
        let mut dir = self.root().await;
        for name in path.split('/') {
            let entry = self.lookup(dir, name).await?;
            dir = entry.handle;
            at = Ok(entry);
        }
        at
    }

    pub(crate) async fn getattr(&self, handle: Handle) -> Result<Attr, Status> {
        match self.call(Request::Getattr { handle }).await? {
            Reply::Attr(attr) => Ok(Attr { atime: Default::default(), ..attr }),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn open(&self, handle: Handle) -> Result<u64, Status> {
        match self.call(Request::Open { handle, flags: 0 }).await? {
            Reply::Opened { file, .. } => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn read(
        &self,
        file: u64,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Vec<u8>, Status> {
        let request = Request::Read { file, offset_bytes, len_bytes };
        let mut stream = self.connection.stream(&request).await.expect("a stream");
        let mut data = Vec::new();
        loop {
            match stream.next().await.expect("a frame") {
                ReplyFrame::Data(piece) => data.extend_from_slice(&piece),
                ReplyFrame::End { complete: true } => return Ok(data),
                ReplyFrame::Failure(failure) => return Err(failure.status),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn list_chunks(
        &self,
        dir: Handle,
        after: Vec<u64>,
    ) -> Result<Vec<Chunk>, Status> {
        let request = Request::List { dir, after, acl: false, contents: None };
        let mut stream = self.connection.stream(&request).await.expect("a stream");
        let mut chunks = Vec::new();
        loop {
            match stream.next().await.expect("a frame") {
                ReplyFrame::Chunk(chunk) => chunks.push(chunk),
                ReplyFrame::End { complete: true } => return Ok(chunks),
                ReplyFrame::Failure(failure) => return Err(failure.status),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Names, entries and cookies of a directory, in order.
    pub(crate) async fn list(
        &self,
        dir: Handle,
        after: Vec<u64>,
    ) -> Result<Vec<(Vec<u8>, Entry, u64)>, Status> {
        let chunks = self.list_chunks(dir, after).await?;
        let entries = chunks.iter().flat_map(Chunk::entries);
        let told = |entry: EntryRef<'_>| {
            (entry.name.to_vec(), without_atime(entry.to_entry()), entry.cookie)
        };
        Ok(entries.map(told).collect())
    }

    pub(crate) fn bad_handles(&self) -> u64 {
        self.counters.bad_handles.load(Ordering::Relaxed)
    }
}

/// The first request of a connection.
pub(crate) fn attach(watch: bool) -> Request {
    Request::Attach { watch, client: 7, ended: 0 }
}

pub(crate) async fn connect(
    identities: &IdentitySet,
    role: Role,
    address: SocketAddr,
) -> Connection {
    let identity = identities.identity(role).expect("an identity");
    let connector = Connector::new(&identity, address).expect("a connector");
    connector.connect(address, Role::Brick).await.expect("a connection")
}

pub(crate) fn status_of<T>(result: Result<T, CallError>) -> Result<T, Status> {
    result.map_err(|error| match error {
        CallError::Failed(failure) => failure.status,
        other => panic!("{other}"),
    })
}

/// Looking at a link or a directory changes when it was last looked at, so the time of last access
/// is left out of all comparisons.
pub(crate) fn without_atime(mut entry: Entry) -> Entry {
    entry.attr = entry.attr.map(|attr| Attr { atime: Default::default(), ..attr });
    entry
}

/// What the local file system tells, in the brick's terms.
pub(crate) fn local_attr(path: &Path) -> Attr {
    use portcullis_core::Timestamp;
    use std::os::unix::fs::MetadataExt;
    let m = std::fs::symlink_metadata(path).expect("metadata");
    let time = |secs: i64, nanos: i64| Timestamp { secs, nanos: nanos as u32 };
    Attr {
        ino: m.ino(),
        size_bytes: m.size(),
        blocks: m.blocks(),
        atime: Default::default(),
        mtime: time(m.mtime(), m.mtime_nsec()),
        ctime: time(m.ctime(), m.ctime_nsec()),
        mode: m.mode(),
        nlink: m.nlink() as u32,
        uid: m.uid(),
        gid: m.gid(),
        rdev: m.rdev(),
        block_size_bytes: m.blksize() as u32,
        has_no_acl: false,
    }
}

/// Waits until the clock that stamps files has moved on, so that what is made afterwards differs.
pub(crate) fn wait_for_the_next_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let time = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec, time.tv_nsec)
    };
    // Some stamps are finer, and ahead of the coarse clock.
    let start = time(ClockId::Realtime);
    while time(ClockId::RealtimeCoarse) <= start {
        std::thread::yield_now();
    }
}
