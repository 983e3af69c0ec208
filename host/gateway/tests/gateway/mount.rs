//! A client that caches, as a mount does: it attaches to be told of changes, renews its lease,
//! acknowledges what it is told, and numbers what it asks to be changed.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::LEASE_RENEW_MS;
use portcullis_core::replay::OpId;
use portcullis_core::watch::Change;
use portcullis_core::{Entry, Handle, Status};
use portcullis_transport::{CallError, Role};
use portcullis_wire::message::{
    Caller, Failure, Lock, LockKind, LockOwner, LockSort, Mutated, Mutation, SetAttr,
};
use portcullis_wire::{Reply, Request};
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{Client, PATIENCE, Stand};

/// open(2), asm-generic.
pub(crate) const O_RDWR: u32 = 2;
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_APPEND: u32 = 0o2000;

/// See the module.
pub(crate) struct Mount {
    pub(crate) client: Client,
    pub(crate) instance: u128,
    pub(crate) session: u64,
    pub(crate) root: Handle,
    pub(crate) life: u64,
    pub(crate) told: Told,
    /// The lease, as the last renewal gave it.
    pub(crate) lease_ms: Arc<AtomicU64>,
    numbers: AtomicU64,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// What a mount was told, and whether it acknowledges.
#[derive(Clone, Default)]
pub(crate) struct Told {
    changes: Arc<Mutex<Vec<Change>>>,
    deaf: Arc<AtomicBool>,
}

impl Told {
    /// All that was told since this was last asked.
    pub(crate) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock())
    }

    /// From now on it takes in nothing, and acknowledges nothing.
    pub(crate) fn become_deaf(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }
}

impl Mount {
    pub(crate) async fn new(stand: &Stand) -> Self {
        let random = || u128::from(RandomState::new().hash_one(0));
        Self::again(stand, random() << 64 | random(), 0).await
    }

    /// The mount on a new connection, on which an earlier session may be said to be over.
    pub(crate) async fn again(stand: &Stand, instance: u128, ended: u64) -> Self {
        let client = Client(stand.connect(Role::Client).await);
        let attach = Request::Attach { watch: true, client: instance, ended };
        let (root, session, lease_ms, life) = match client.call(attach).await {
            Ok(Reply::Attached { root, session, lease_ms, life, .. }) => {
                (root.handle, session, lease_ms, life)
            }
            other => panic!("{other:?}"),
        };
        let told = Told::default();
        let lease_ms = Arc::new(AtomicU64::new(u64::from(lease_ms)));
        let tasks = [
            tokio::spawn(take_recalls(client.clone(), told.clone())),
            tokio::spawn(renew(client.clone(), lease_ms.clone())),
        ];
        let tasks = tasks.map(AbortOnDropHandle::new);
        // None that its earlier connection used.
        let numbers = AtomicU64::new(if ended == 0 { 1 } else { 1_000_000 });
        Self { client, instance, session, root, life, told, lease_ms, numbers, _tasks: tasks }
    }

    /// The next operation.
    pub(crate) fn op(&self) -> OpId {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        // Nothing is said to be answered, so any may be asked again.
        OpId { client: self.instance, number, oldest: 1, life: self.life, retry: false }
    }

    pub(crate) async fn mutate(
        &self,
        mutation: Mutation,
    ) -> Result<(Mutated, Vec<Change>), Failure> {
        self.mutate_as(self.op(), mutation, b"").await
    }

    pub(crate) async fn mutate_as(
        &self,
        op: OpId,
        mutation: Mutation,
        body: &[u8],
    ) -> Result<(Mutated, Vec<Change>), Failure> {
        let request = Request::Mutate { op, caller: Caller::ROOT, mutation };
        let body = [Bytes::copy_from_slice(body)];
        let answered = tokio::time::timeout(PATIENCE, self.client.0.call_with(&request, &body));
        match answered.await.unwrap_or_else(|_| panic!("no answer to {request:?}")) {
            Ok(Reply::Mutated { result, changes, .. }) => Ok((result, changes)),
            Err(CallError::Failed(failure)) => Err(failure),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    pub(crate) async fn done(&self, mutation: Mutation) {
        let shown = format!("{mutation:?}");
        self.mutate(mutation).await.unwrap_or_else(|failure| panic!("{shown}: {failure}"));
    }

    pub(crate) async fn create(
        &self,
        dir: Handle,
        name: &[u8],
        flags: u32,
    ) -> Result<(Entry, u64), Failure> {
        let mutation = Mutation::Create { dir, name: name.to_vec(), mode: 0o644, flags };
        match self.mutate(mutation).await?.0 {
            Mutated::Created { entry, file } => Ok((entry, file)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn mkdir(&self, dir: Handle, name: &[u8]) -> Result<Entry, Failure> {
        let mutation = Mutation::Mkdir { dir, name: name.to_vec(), mode: 0o755 };
        match self.mutate(mutation).await?.0 {
            Mutated::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn write(
        &self,
        file: u64,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<u64, Failure> {
        let len_bytes = data.len() as u32;
        let mutation = Mutation::Write { file, offset_bytes, len_bytes, kill_set_id: false };
        match self.mutate_as(self.op(), mutation, data).await?.0 {
            Mutated::Written { len_bytes } => Ok(len_bytes),
            other => panic!("{other:?}"),
        }
    }

    /// Looks a name up and so watches it; what was told before is put aside.
    pub(crate) async fn watch(&self, dir: Handle, name: &[u8]) -> Entry {
        let entry = self.client.lookup(dir, name).await.unwrap();
        self.told.take();
        entry
    }

    /// A lock on the whole file.
    pub(crate) fn lock(&self, sort: LockSort, kind: LockKind) -> Lock {
        let owner = LockOwner { client: self.instance, owner: 1 };
        Lock { sort, kind, start_bytes: 0, end_bytes: i64::MAX as u64, owner, pid: 7 }
    }

    pub(crate) async fn setlk(&self, file: u64, lock: Lock) -> Result<(), Failure> {
        match self.client.call(Request::Setlk { file, lock, wait: false }).await {
            Ok(Reply::Done) => Ok(()),
            Err(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }
}

/// Sets the permission bits of a file.
pub(crate) fn chmod(handle: Handle, mode: u32) -> Mutation {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    Mutation::Setattr { handle, file: 0, set }
}

/// The status of what must fail.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Failure>) -> Status {
    result.expect_err("it is refused").status
}

async fn take_recalls(client: Client, told: Told) {
    while let Ok(recall) = client.0.next_recall().await {
        if told.deaf.load(Ordering::SeqCst) {
            // Neither acknowledged nor refused.
            std::mem::forget(recall);
            continue;
        }
        told.changes.lock().extend_from_slice(recall.changes());
        recall.acknowledge().await;
    }
}

async fn renew(client: Client, lease_ms: Arc<AtomicU64>) {
    loop {
        tokio::time::sleep(Duration::from_millis(LEASE_RENEW_MS)).await;
        let client = client.clone();
        let lease = lease_ms.clone();
        tokio::spawn(async move {
            let left_ms = match client.0.call(&Request::Renew).await {
                Ok(Reply::Renewed { lease_ms, .. }) => u64::from(lease_ms),
                _ => 0,
            };
            lease.store(left_ms, Ordering::SeqCst);
        });
    }
}
