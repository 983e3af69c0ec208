//! Whatever becomes of a connection while a file is opened, opened again or closed: in the end
//! the gateway has nothing open that is not open here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portcullis_core::limits::LEASE_MS;
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{Body, IdentitySet, Peer, Recaller, ReplySink, Role, Server, Service};
use portcullis_wire::message::{Failure, Notices};
use portcullis_wire::{Reply, Request};

use crate::{Address, Client, ClientOptions, OpenFile};

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the gateway does about an open.
enum Act {
    Answer,
    Fail(Status),
    /// The file is opened, and the connection lost before that is told.
    Lose,
    /// The file is opened; that is told when the test says so.
    Hold,
}

/// A gateway that keeps book of what is open, on which connection.
#[derive(Default)]
struct Ledger {
    acts: Mutex<VecDeque<Act>>,
    /// Connection and id.
    open: Mutex<Vec<(u64, u64)>>,
    last: AtomicU64,
    held: Mutex<Vec<(ReplySink, Reply)>>,
    connections: Mutex<Vec<Recaller>>,
}

fn handle() -> Handle {
    Handle::new(b"file").expect("short")
}

impl Ledger {
    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A file opened on a later connection takes the place of one on an earlier one.
    fn opened(&self, connection: u64) -> Reply {
        let mut open = self.open.lock();
        if let Some(earlier) = open.iter().position(|(other, _)| *other < connection) {
            open.remove(earlier);
        }
        let file = self.number();
        open.push((connection, file));
        Reply::Opened { file, attr: Attr::default() }
    }

    fn lose_connection(&self) {
        self.connections.lock().last().expect("there is one").close("as told");
    }
}

impl Service for Ledger {
    type Session = (u64, Recaller);

    fn open_session(&self, _peer: Peer, recaller: Recaller) -> Result<(u64, Recaller), Failure> {
        self.connections.lock().push(recaller.clone());
        Ok((self.number(), recaller))
    }

    fn close_session(&self, _session: &Arc<(u64, Recaller)>) {}

    async fn serve(
        &self,
        session: &Arc<(u64, Recaller)>,
        request: Request,
        _body: Body,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let (connection, lease_ms) = (session.0, LEASE_MS as u32);
        match request {
            Request::Attach { .. } => {
                let attr = Some(Attr::default());
                let kind = FileKind::Directory;
                let root = Entry { handle: handle(), attr, kind, target: None };
                let (session, notices) = (connection, Notices::None);
                reply.reply(Reply::Attached { root, session, lease_ms, life: 1, notices }).await
            }
            Request::Renew => reply.reply(Reply::Renewed { lease_ms, life: 1 }).await,
            Request::Open { .. } => {
                let act = self.acts.lock().pop_front().unwrap_or(Act::Answer);
                match act {
                    Act::Answer => reply.reply(self.opened(connection)).await,
                    Act::Fail(status) => reply.fail(status).await,
                    Act::Lose => {
                        self.opened(connection);
                        session.1.close("as told");
                        Ok(())
                    }
                    Act::Hold => {
                        let opened = self.opened(connection);
                        self.held.lock().push((reply, opened));
                        Ok(())
                    }
                }
            }
            Request::Read { file, .. } if self.open.lock().contains(&(connection, file)) => {
                reply.end(true).await
            }
            Request::Read { .. } => reply.fail(Status::BadFile).await,
            Request::ReleaseMany { files } => {
                self.open.lock().retain(|(at, file)| *at != connection || !files.contains(file));
                reply.reply(Reply::Done).await
            }
            _ => reply.fail(Status::NotSupported).await,
        }
    }
}

struct Scene {
    gateway: Arc<Ledger>,
    client: Client,
}

impl Scene {
    async fn new(request_timeout_ms: u64) -> Self {
        let gateway = Arc::new(Ledger::default());
        let set = IdentitySet::generate().expect("a set");
        let identity = set.identity(Role::Gateway).expect("an identity");
        let server = Server::bind(([127, 0, 0, 1], 0).into(), &identity).expect("a port");
        let address = Address::root_of(server.local_addr().expect("an address"));
        let (served, counters) = (gateway.clone(), Arc::new(Counters::default()));
        tokio::spawn(server.serve(served, counters, std::future::pending()));
        let identity = set.identity(Role::Client).expect("an identity");
        let options =
            ClientOptions { request_timeout_ms, watch: true, acl: false, contents: false };
        let client = Client::connect(&address, identity, options).await.expect("it connects");
        Self { gateway, client }
    }

    fn act(&self, acts: impl IntoIterator<Item = Act>) {
        self.gateway.acts.lock().extend(acts);
    }

    async fn open(&self) -> OpenFile {
        self.client.open(&handle()).await.expect("it opens")
    }

    /// Waits until `is` of what the gateway has open and has not told.
    async fn until(&self, what: &str, is: impl Fn(usize, usize) -> bool) {
        let start = Instant::now();
        loop {
            let (open, held) = (self.gateway.open.lock().len(), self.gateway.held.lock().len());
            if is(open, held) {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "{open} open, {held} held; not {what}");
            tokio::task::yield_now().await;
        }
    }

    /// Tells what was held, and waits until all is told and closed.
    async fn tell_held(&self) {
        let held = std::mem::take(&mut *self.gateway.held.lock());
        for (sink, reply) in held {
            // Whoever no longer waits has lost it.
            let _ = sink.reply(reply).await;
        }
    }

    async fn until_all_is_closed(&self) {
        self.until("all is closed", |open, held| open + held == 0).await;
        assert!(self.gateway.acts.lock().is_empty(), "not everything was tried");
    }
}

/// S-OPEN-3.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_closed_while_connections_are_lost_is_closed_in_the_end() {
    let scene = Scene::new(30_000).await;
    let files = [scene.open().await, scene.open().await, scene.open().await];
    let away = || Act::Fail(Status::Unavailable);
    // The second file of the first attempt, the first of the second, the third of the third.
    scene.act([Act::Answer, Act::Lose, away(), Act::Answer, Act::Answer, away(), Act::Lose]);
    scene.gateway.lose_connection();
    drop(files);
    scene.until_all_is_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_given_up_while_its_file_is_opened_again_leaves_nothing_open() {
    let scene = Scene::new(30_000).await;
    let file = Arc::new(scene.open().await);
    scene.act([Act::Hold]);
    scene.gateway.lose_connection();
    let reader = file.clone();
    let reading = tokio::spawn(async move { reader.read(0, 1).await });
    scene.until("it is opened again", |_, held| held == 1).await;
    reading.abort();
    assert!(reading.await.is_err());
    drop(file);
    scene.tell_held().await;
    scene.until_all_is_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_that_is_given_up_leaves_nothing_open() {
    let scene = Scene::new(30_000).await;
    for loses in [false, true] {
        scene.act([Act::Hold]);
        let client = scene.client.clone();
        let opening = tokio::spawn(async move { client.open(&handle()).await });
        scene.until("it is opened", |_, held| held == 1).await;
        opening.abort();
        assert!(opening.await.is_err());
        if loses {
            scene.gateway.lose_connection();
        }
        scene.tell_held().await;
        scene.until_all_is_closed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_that_is_told_too_late_leaves_nothing_open() {
    let scene = Scene::new(300).await;
    scene.act([Act::Hold]);
    let opened = scene.client.open(&handle()).await;
    assert_eq!(opened.expect_err("silence").status(), Status::Unavailable);
    scene.tell_held().await;
    scene.until_all_is_closed().await;
}
