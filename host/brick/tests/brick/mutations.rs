//! Changing files through the brick: what comes of it, once, and who is told.

use std::time::Duration;

use bytes::Bytes;
use portcullis_core::replay::OpId;
use portcullis_core::watch::Change;
use portcullis_core::{Handle, Status};
use portcullis_transport::{Connection, Role};
use portcullis_wire::message::{Caller, Mutated, Mutation, SetAttr};
use portcullis_wire::{Reply, Request};

use crate::support::{TestBrick, attach, connect, on_each_kind, status_of};

const LONG: Duration = Duration::from_secs(60);

/// What a client sends: its operations, numbered.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    id: u128,
    next: u64,
    life: u64,
}

impl Client {
    pub(crate) async fn new(brick: &TestBrick, id: u128, watch: bool) -> Self {
        let connection = connect(&brick.identities, Role::Gateway, brick.address).await;
        let life = attached(&connection, watch).await;
        Self { connection, id, next: 1, life }
    }

    /// The same client on another connection, maybe to the same brick after a restart.
    pub(crate) async fn reconnect(&mut self, brick: &TestBrick) {
        self.connection = connect(&brick.identities, Role::Gateway, brick.address).await;
        attached(&self.connection, false).await;
    }

    /// Renews the lease for as long as the connection is there.
    pub(crate) fn renewing(self) -> Self {
        let connection = self.connection.clone();
        tokio::spawn(async move {
            while connection.call(&Request::Renew).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        self
    }

    fn op(&mut self) -> OpId {
        let number = self.next;
        self.next += 1;
        OpId { client: self.id, number, oldest: 1, life: self.life, retry: false }
    }

    pub(crate) async fn ask(
        &self,
        op: OpId,
        mutation: &Mutation,
        body: &'static [u8],
    ) -> Result<(Mutated, Vec<Change>), Status> {
        let request = Request::Mutate { op, caller: Caller::ROOT, mutation: mutation.clone() };
        let body = [Bytes::from_static(body)];
        match status_of(self.connection.call_with(&request, &body).await)? {
            Reply::Mutated { result, changes, .. } => Ok((result, changes)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn mutate(
        &mut self,
        mutation: Mutation,
        body: &'static [u8],
    ) -> Result<Mutated, Status> {
        let op = self.op();
        self.ask(op, &mutation, body).await.map(|(result, _)| result)
    }

    /// Makes and opens a file; answers its handle and its id.
    pub(crate) async fn create(&mut self, dir: Handle, name: &str) -> (Handle, u64) {
        match self.mutate(create(dir, name, 2), b"").await {
            Ok(Mutated::Created { entry, file }) => (entry.handle, file),
            other => panic!("{other:?}"),
        }
    }
}

async fn attached(connection: &Connection, watch: bool) -> u64 {
    match connection.call(&attach(watch)).await {
        Ok(Reply::Attached { life, .. }) => life,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn create(dir: Handle, name: &str, flags: u32) -> Mutation {
    Mutation::Create { dir, name: name.into(), mode: 0o640, flags }
}

pub(crate) fn unlink(dir: Handle, name: &str) -> Mutation {
    Mutation::Unlink { dir, name: name.into() }
}

fn write(file: u64, offset_bytes: u64, len: usize) -> Mutation {
    Mutation::Write { file, offset_bytes, len_bytes: len as u32, kill_set_id: false }
}

on_each_kind! {
    async fn a_file_is_made_written_read_renamed_and_removed(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let (handle, file) = client.create(root, "file").await;
        assert_eq!(brick.lookup(root, "file").await.expect("there").handle, handle);
        let written = client.mutate(write(file, 2, 5), b"hello").await;
        assert_eq!(written, Ok(Mutated::Written { len_bytes: 5 }));
        assert_eq!(std::fs::read(brick.path("file")).expect("read"), b"\0\0hello");
        let set = SetAttr { mode: Some(0o600), size_bytes: Some(4), ..SetAttr::default() };
        let set = client.mutate(Mutation::Setattr { handle, file, set }, b"").await;
        let Ok(Mutated::Attr(attr)) = set else { panic!("{set:?}") };
        assert_eq!((attr.size_bytes, attr.mode & 0o7777), (4, 0o600));
        let [name, new_name] = ["file", "other"].map(Vec::from);
        let rename = Mutation::Rename { dir: root, name, new_dir: root, new_name, flags: 0 };
        assert_eq!(client.mutate(rename, b"").await, Ok(Mutated::Done));
        assert_eq!(brick.getattr(handle).await.expect("found by its handle").size_bytes, 4);
        let name = b"user.x".to_vec();
        let set = Mutation::Setxattr { handle, name: name.clone(), len_bytes: 3, flags: 0 };
        assert_eq!(client.mutate(set, b"a\0b").await, Ok(Mutated::Done));
        let value = brick.call(Request::Getxattr { handle, name }).await;
        assert_eq!(value, Ok(Reply::Xattr(b"a\0b".to_vec())));
        assert_eq!(client.mutate(unlink(root, "other"), b"").await, Ok(Mutated::Done));
        assert_eq!(brick.getattr(handle).await.expect("it is open").nlink, 0);
        assert!(brick.list(root, vec![]).await.expect("listed").is_empty());
        let hidden = brick.lookup(root, ".portcullis-orphans").await;
        assert_eq!(hidden.map(|entry| entry.kind), Err(Status::NotFound));
        let released = client.connection.call(&Request::Release { file, unlock: None }).await;
        assert_eq!(released.expect("released"), Reply::Done);
        // It is kept for a moment yet, for those who were just told of it.
        while brick.getattr(handle).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(brick.getattr(handle).await.map(|attr| attr.nlink), Err(Status::Stale));
    }

    async fn an_open_file_is_found_by_its_handle_whoever_removed_its_name(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let (handle, file) = client.create(root, "file").await;
        std::fs::remove_file(brick.path("file")).expect("removed");
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let set = client.mutate(Mutation::Setattr { handle, file: 0, set }, b"").await;
        let Ok(Mutated::Attr(attr)) = set else { panic!("{set:?}") };
        assert_eq!((attr.mode & 0o7777, attr.nlink), (0o600, 0));
        let release = Request::Release { file, unlock: None };
        client.connection.call(&release).await.expect("released");
        assert_eq!(brick.getattr(handle).await.map(|attr| attr.nlink), Err(Status::Stale));
    }

    async fn an_append_goes_to_the_end_and_is_not_repeated(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let append = 2 | 0o2000;
        let made = client.mutate(create(root, "log", append), b"").await;
        let Ok(Mutated::Created { file, .. }) = made else { panic!("{made:?}") };
        for _ in 0..3 {
            client.mutate(write(file, 0, 2), b"ab").await.expect("written");
        }
        let op = client.op();
        for retry in [false, true, true] {
            let op = OpId { retry, ..op };
            client.ask(op, &write(file, 0, 2), b"cd").await.expect("written");
        }
        assert_eq!(std::fs::read(brick.path("log")).expect("read"), b"abababcd");
    }

    async fn what_is_asked_again_is_applied_once(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let exclusive = create(root, "file", 2 | 0o200);
        let op = client.op();
        let (first, changes) = client.ask(op, &exclusive, b"").await.expect("made");
        let Mutated::Created { entry, .. } = &first else { panic!("{first:?}") };
        let handle = entry.handle;
        client.reconnect(&brick).await;
        let again = client.ask(OpId { retry: true, ..op }, &exclusive, b"").await;
        let (again, again_changes) = again.expect("it was made");
        let Mutated::Created { entry, file } = again else { panic!("{again:?}") };
        assert_eq!((entry.handle, again_changes), (handle, changes));
        client.mutate(write(file, 0, 1), b"x").await.expect("it is open on this connection");
        let op = client.op();
        client.ask(op, &unlink(root, "file"), b"").await.expect("removed");
        let again = client.ask(OpId { retry: true, ..op }, &unlink(root, "file"), b"").await;
        assert_eq!(again.expect("it was removed").0, Mutated::Done);
        let new = client.mutate(unlink(root, "file"), b"").await;
        assert_eq!(new, Err(Status::NotFound), "another operation");
    }

    async fn a_restarted_brick_says_where_it_does_not_know(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let op = client.op();
        client.ask(op, &create(root, "file", 2), b"").await.expect("made");
        client.connection.close("restart");
        let brick = brick.restart().await;
        let root = brick.root().await;
        client.reconnect(&brick).await;
        let op = OpId { retry: true, ..client.op() };
        let unknown = client.ask(op, &unlink(root, "file"), b"").await;
        assert_eq!(unknown.map(|done| done.0), Err(Status::InDoubt));
        assert!(brick.path("file").exists());
        let op = OpId { retry: true, ..client.op() };
        let harmless = client.ask(op, &create(root, "file", 2), b"").await.map(drop);
        assert_eq!(harmless, Ok(()));
    }

    async fn an_open_file_without_a_name_outlives_the_brick(brick: TestBrick) {
        let root = brick.root().await;
        let mut client = Client::new(&brick, 1, false).await;
        let (handle, file) = client.create(root, "file").await;
        client.mutate(write(file, 0, 7), b"content").await.expect("written");
        client.mutate(unlink(root, "file"), b"").await.expect("removed");
        // As where a connection is lost, or a gateway dies.
        client.connection.close("lost");
        let brick = brick.restart().await;
        let file = brick.open(handle).await.expect("it is found");
        assert_eq!(brick.read(file, 0, 100).await.expect("read"), b"content");
        assert_eq!(brick.getattr(handle).await.expect("there").nlink, 0);
    }

    async fn a_change_is_acknowledged_by_all_who_watch_before_its_answer(brick: TestBrick) {
        let root = brick.root().await;
        std::fs::write(brick.path("file"), b"").expect("written");
        let watcher = Client::new(&brick, 2, true).await;
        let lookup = |name: &str| Request::Lookup { dir: root, name: name.into() };
        let found = watcher.connection.call(&lookup("file")).await.expect("there");
        let Reply::Entry(entry) = found else { panic!("{found:?}") };
        let absent = status_of(watcher.connection.call(&lookup("absent")).await);
        assert_eq!(absent, Err(Status::NotFound));
        let mut client = Client::new(&brick, 1, true).await;
        let mutations = [
            (create(root, "absent", 2), Change::Name { dir: root, name: b"absent".to_vec() }),
            (
                Mutation::Setattr {
                    handle: entry.handle,
                    file: 0,
                    set: SetAttr { mode: Some(0o600), ..SetAttr::default() },
                },
                Change::Attr { handle: entry.handle },
            ),
        ];
        for (mutation, change) in mutations {
            let op = client.op();
            let asked = client.ask(op, &mutation, b"");
            tokio::pin!(asked);
            let recall = tokio::select! {
                answer = &mut asked => panic!("answered before: {answer:?}"),
                recall = watcher.connection.next_recall() => recall.expect("it is told"),
            };
            assert!(recall.changes().contains(&change), "{:?}", recall.changes());
            recall.acknowledge().await;
            let answer = tokio::time::timeout(LONG, asked).await.expect("in time");
            let (_, changes) = answer.expect("done");
            assert!(changes.contains(&change), "{changes:?}");
        }
        // Whoever made a change is not told of it: it has the answer.
        let nobody = client.mutate(unlink(root, "file"), b"");
        tokio::pin!(nobody);
        let told = tokio::select! {
            recall = client_recall(&watcher) => recall,
            answer = &mut nobody => panic!("answered before: {answer:?}"),
        };
        told.acknowledge().await;
        assert_eq!(tokio::time::timeout(LONG, nobody).await.expect("in time"), Ok(Mutated::Done));
    }

    async fn a_session_that_ends_or_is_silent_is_not_waited_for(brick: TestBrick) {
        let root = brick.root().await;
        std::fs::write(brick.path("file"), b"").expect("written");
        let mut client = Client::new(&brick, 1, false).await;
        let lookup = Request::Lookup { dir: root, name: b"file".to_vec() };
        let ended = Client::new(&brick, 2, true).await;
        ended.connection.call(&lookup).await.expect("there");
        assert_eq!(ended.connection.call(&Request::Detach).await.expect("ended"), Reply::Done);
        let silent = Client::new(&brick, 3, true).await;
        silent.connection.call(&lookup).await.expect("there");
        // It is told, does not acknowledge, and its lease ends.
        let removed = tokio::time::timeout(LONG, client.mutate(unlink(root, "file"), b"")).await;
        assert_eq!(removed.expect("in time"), Ok(Mutated::Done));
        tokio::time::timeout(LONG, silent.connection.closed()).await.expect("it is closed");
        assert!(!ended.connection.is_closed());
    }
}

on_each_kind! {
    async fn an_earlier_session_is_ended_by_its_own_client_only(brick: TestBrick) {
        let session = async |client: u128, ended: u64| {
            let connection = connect(&brick.identities, Role::Gateway, brick.address).await;
            let attach = Request::Attach { watch: true, client, ended };
            match connection.call(&attach).await {
                Ok(Reply::Attached { session, .. }) => (connection, session),
                other => panic!("{other:?}"),
            }
        };
        let (first, ended) = session(1, 0).await;
        let _other = session(2, ended).await;
        assert!(first.call(&Request::Renew).await.is_ok(), "it goes on");
        let _again = session(1, ended).await;
        assert_eq!(status_of(first.call(&Request::Renew).await), Err(Status::Unavailable));
    }
}

async fn client_recall(client: &Client) -> portcullis_transport::Recall {
    client.connection.next_recall().await.expect("it is told")
}
