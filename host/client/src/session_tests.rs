//! Tests of sessions, recalls and mutations against a gateway that does as it is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::LEASE_MS;
use portcullis_core::replay::OpId;
use portcullis_core::watch::{Change, Tell};
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{Body, IdentitySet, Peer, Recaller, ReplySink, Role, Server, Service};
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation, Notices};
use portcullis_wire::{Reply, Request};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{Address, Client, ClientOptions, Forgetting};

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the gateway does about a mutation.
enum Act {
    Answer,
    Fail(Status),
    /// The connection is lost; what was asked may have been applied.
    Close,
    /// There is never an answer.
    Silence,
}

#[derive(Default)]
struct Scripted {
    acts: Mutex<VecDeque<Act>>,
    ops: Mutex<Vec<OpId>>,
    /// Of each attach the session it said had ended.
    ended: Mutex<Vec<u64>>,
    recaller: Mutex<Option<Recaller>>,
    sessions: AtomicU64,
    lease_ms: AtomicU32,
    silent: Mutex<Vec<ReplySink>>,
}

fn handle() -> Handle {
    Handle::new(b"dir").expect("short")
}

fn changed() -> Vec<Change> {
    vec![Change::Name { dir: handle(), name: b"new".to_vec() }]
}

fn mkdir() -> Mutation {
    Mutation::Mkdir { dir: handle(), name: b"new".to_vec(), mode: 0o755 }
}

impl Service for Scripted {
    type Session = Recaller;

    fn open_session(&self, _peer: Peer, recaller: Recaller) -> Result<Recaller, Failure> {
        *self.recaller.lock() = Some(recaller.clone());
        Ok(recaller)
    }

    fn close_session(&self, _session: &Arc<Recaller>) {}

    async fn serve(
        &self,
        session: &Arc<Recaller>,
        request: Request,
        _body: Body,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let lease_ms = self.lease_ms.load(Ordering::Relaxed);
        match request {
            Request::Attach { ended, .. } => {
                self.ended.lock().push(ended);
                let attr = Attr { mode: 0o040_755, ..Attr::default() };
                let kind = FileKind::Directory;
                let root = Entry { handle: handle(), attr: Some(attr), kind, target: None };
                let session = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
                let notices = Notices::None;
                reply.reply(Reply::Attached { root, session, lease_ms, life: 7, notices }).await
            }
            Request::Renew => reply.reply(Reply::Renewed { lease_ms, life: 7 }).await,
            Request::Getattr { .. } => reply.reply(Reply::Attr(Attr::default())).await,
            Request::Mutate { op, .. } => {
                self.ops.lock().push(op);
                let act = self.acts.lock().pop_front().unwrap_or(Act::Answer);
                match act {
                    Act::Answer => {
                        let result = Mutated::Done;
                        reply
                            .reply(Reply::Mutated { result, changes: changed(), dirs: Vec::new() })
                            .await
                    }
                    Act::Fail(status) => reply.fail(status).await,
                    Act::Close => {
                        session.close("as told");
                        Ok(())
                    }
                    Act::Silence => {
                        self.silent.lock().push(reply);
                        Ok(())
                    }
                }
            }
            _ => reply.fail(Status::NotSupported).await,
        }
    }
}

struct Scene {
    gateway: Arc<Scripted>,
    client: Client,
    forgettings: mpsc::Receiver<Forgetting>,
}

impl Scene {
    async fn new(acts: impl IntoIterator<Item = Act>, request_timeout_ms: u64) -> Self {
        let gateway = Arc::new(Scripted::default());
        gateway.acts.lock().extend(acts);
        gateway.lease_ms.store(LEASE_MS as u32, Ordering::Relaxed);
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
        let forgettings = client.forgettings();
        Self { gateway, client, forgettings }
    }

    async fn mkdir(&self) -> Result<Mutated, Status> {
        let made = self.client.mutate(Caller::ROOT, mkdir(), None).await;
        made.map(|changed| changed.value).map_err(|error| error.status())
    }

    async fn next_forgetting(&mut self) -> Forgetting {
        let next = timeout(DEADLINE, self.forgettings.recv()).await;
        next.expect("in time").expect("the client lives")
    }

    fn ops(&self) -> Vec<OpId> {
        self.gateway.ops.lock().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_whose_answer_is_lost_is_asked_again_by_its_number() {
    let acts = [Act::Close, Act::Close, Act::Answer];
    let mut scene = Scene::new(acts, 30_000).await;
    let client = scene.client.clone();
    let asking =
        tokio::spawn(async move { client.mutate(Caller::ROOT, mkdir(), None).await.map(drop) });
    for _ in 0..2 {
        let forgetting = scene.next_forgetting().await;
        assert_eq!(forgetting.changes(), [Change::All], "a session was lost");
        forgetting.forgotten(true);
    }
    asking.await.expect("no panic").expect("it is made");
    let ops = scene.ops();
    assert_eq!(ops.iter().map(|op| op.retry).collect::<Vec<_>>(), [false, true, true]);
    assert!(ops.iter().all(|op| (op.number, op.oldest, op.life) == (1, 1, 7)), "{ops:?}");
    scene.mkdir().await.expect("it is made");
    let next = scene.ops()[3];
    assert_eq!((next.number, next.oldest, next.retry), (2, 2, false));
    assert_eq!(next.client, scene.client.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_that_was_refused_is_asked_anew() {
    let scene = Scene::new([Act::Fail(Status::Busy), Act::Fail(Status::Exists)], 30_000).await;
    assert_eq!(scene.mkdir().await, Err(Status::Exists));
    let ops = scene.ops();
    assert_eq!((ops.len(), ops[1].number, ops[1].retry), (2, 2, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_will_never_know_is_said_to_be_unknown_and_forgotten() {
    let acts = [Act::Fail(Status::Unavailable), Act::Fail(Status::InDoubt)];
    let mut scene = Scene::new(acts, 30_000).await;
    let client = scene.client.clone();
    let asking = tokio::spawn(async move { client.mutate(Caller::ROOT, mkdir(), None).await });
    let forgetting = scene.next_forgetting().await;
    assert!(forgetting.changes().contains(&changed()[0]), "{forgetting:?}");
    forgetting.forgotten(true);
    let error = asking.await.expect("no panic").expect_err("nobody knows");
    assert_eq!(error.status(), Status::InDoubt);
    let ops = scene.ops();
    assert_eq!(
        ops.iter().map(|op| (op.number, op.retry)).collect::<Vec<_>>(),
        [(1, false), (1, true)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_that_nobody_waits_for_is_forgotten_when_it_is_answered() {
    let mut scene = Scene::new([Act::Silence], 30_000).await;
    let client = scene.client.clone();
    let asking = tokio::spawn(async move { client.mutate(Caller::ROOT, mkdir(), None).await });
    let mut kept = None;
    while kept.is_none() {
        tokio::task::yield_now().await;
        kept = scene.gateway.silent.lock().pop();
    }
    asking.abort();
    assert!(asking.await.is_err());
    let answer = Reply::Mutated { result: Mutated::Done, changes: changed(), dirs: Vec::new() };
    kept.expect("just taken").reply(answer).await.expect("it is still wanted");
    let forgetting = scene.next_forgetting().await;
    assert_eq!(forgetting.changes(), changed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_without_an_answer_fails_in_time_and_may_have_been_applied() {
    let mut scene = Scene::new([Act::Silence], 500).await;
    let client = scene.client.clone();
    let asking = tokio::spawn(async move { client.mutate(Caller::ROOT, mkdir(), None).await });
    let forgetting = scene.next_forgetting().await;
    assert!(forgetting.changes().contains(&changed()[0]), "{forgetting:?}");
    forgetting.forgotten(true);
    let error = asking.await.expect("no panic").expect_err("silence");
    assert_eq!(error.status(), Status::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_is_acknowledged_once_it_is_forgotten() {
    let mut scene = Scene::new([], 30_000).await;
    let recaller = scene.gateway.recaller.lock().clone().expect("a session");
    let tell = Tell { number: 1, changes: changed() };
    let telling = tokio::spawn(async move { recaller.tell(&tell).await.is_ok() });
    let forgetting = scene.next_forgetting().await;
    assert_eq!(forgetting.changes(), changed());
    // Other requests go on meanwhile.
    scene.client.getattr(&handle()).await.expect("an answer");
    assert!(!telling.is_finished(), "acknowledged before it was forgotten");
    forgetting.forgotten(true);
    let told = timeout(DEADLINE, telling).await.expect("in time").expect("no panic");
    assert!(told);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_said_to_have_ended_only_when_all_of_it_is_forgotten() {
    for (whole, expected) in [(true, 1), (false, 0)] {
        let mut scene = Scene::new([Act::Close], 30_000).await;
        let client = scene.client.clone();
        let asking = tokio::spawn(async move { client.mutate(Caller::ROOT, mkdir(), None).await });
        scene.next_forgetting().await.forgotten(whole);
        asking.await.expect("no panic").expect("it is made");
        assert_eq!(*scene.gateway.ended.lock(), [0, expected]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_over_has_everything_forgotten() {
    let mut scene = Scene::new([], 30_000).await;
    while scene.client.lease_left_ms() == 0 {
        tokio::task::yield_now().await;
    }
    scene.gateway.lease_ms.store(0, Ordering::Relaxed);
    let forgetting = scene.next_forgetting().await;
    assert_eq!(forgetting.changes(), [Change::All]);
    assert_eq!(scene.client.lease_left_ms(), 0);
    forgetting.forgotten(true);
    scene.client.getattr(&handle()).await.expect("requests go through");
}
