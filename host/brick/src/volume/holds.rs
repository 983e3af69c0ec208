//! Names that are held and directories that are sealed, while a change on several members goes on.
//!
//! Every operation on a name of a member enters here before it begins, and waits while that name is
//! held, or its directory sealed, by another transaction. What is held for a transaction that has
//! something on disk ([`super::transactions`]) is held until that is gone; anything else ends with
//! the session that asked for it.
//!
//! What must hold: a name is operated on by one at a time, and held by one transaction; a directory
//! is sealed only while nobody operates on its names; whoever waits holds nothing, and waits on no
//! worker, or those who are to end the wait would find none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use parking_lot::Mutex;
use portcullis_core::limits::HOLD_MS_MAX;
use portcullis_core::volume::{DirId, TxId};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long somebody waits before he is told to try again.
const WAIT_MS: u64 = 2000;
/// Names held and directories sealed at once, by all transactions.
const HOLDS_MAX: usize = 64 * 1024;

/// A name of a directory. What is no name stands for something else of a directory that is held.
pub(crate) type NameOf = (Handle, Vec<u8>);

/// The parent of a spread directory, as something that is held.
pub(crate) fn parent_of(id: &DirId) -> NameOf {
    (id.handle(), Vec::new())
}

/// The attributes of a spread directory, likewise.
pub(crate) fn attributes_of(dir: &Handle) -> NameOf {
    (*dir, b"/".to_vec())
}

/// The shape of the tree, likewise; `root` is that of the volume.
pub(crate) fn tree_of(root: &Handle) -> NameOf {
    (*root, b"//".to_vec())
}

/// A transaction, on whose parts one request works at a time.
pub(crate) fn turn_of(root: &Handle, tx: TxId) -> NameOf {
    (*root, format!("/{:032x}/{:016x}", tx.gateway, tx.number).into_bytes())
}

/// Who holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    tx: TxId,
    /// The session with which it ends, and since when; `None` for what is on disk.
    session: Option<(u64, StdInstant)>,
}

impl Holder {
    /// Who holds something for a session from now on.
    fn of(tx: TxId, session: u64) -> Self {
        Self { tx, session: Some((session, StdInstant::now())) }
    }
}

/// The holds and seals of one brick.
#[derive(Default)]
pub(crate) struct Holds {
    table: Mutex<Table>,
    /// Something was let go of.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    dirs: HashMap<Handle, Dir>,
    held: usize,
}

/// A directory of which something is held, or operated on.
#[derive(Default)]
struct Dir {
    names: HashMap<Vec<u8>, Name>,
    sealed: Option<Holder>,
}

#[derive(Default)]
struct Name {
    held: Option<Holder>,
    /// Somebody operates on it right now.
    entered: bool,
}

impl Name {
    fn is_used(&self) -> bool {
        self.entered || self.held.is_some()
    }
}

/// An operation that is under way. Others wait for its names until it is dropped.
#[must_use = "it ends when it is dropped"]
pub(crate) struct Entered {
    holds: Arc<Holds>,
    names: Vec<NameOf>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = self.holds.table.lock();
        for (dir, name) in &self.names {
            table.change(dir, |dir| {
                if let Some(name) = dir.names.get_mut(name) {
                    name.entered = false;
                }
            });
        }
        drop(table);
        self.holds.freed.notify_waiters();
    }
}

impl Table {
    /// Whether `by` may operate on a name now.
    fn is_free(&self, (dir, name): &NameOf, by: Option<TxId>) -> bool {
        let Some(dir) = self.dirs.get(dir) else { return true };
        let is_by = |holder: Option<Holder>| holder.is_none_or(|holder| Some(holder.tx) == by);
        is_by(dir.sealed)
            && dir.names.get(name).is_none_or(|name| is_by(name.held) && !name.entered)
    }

    /// Changes a directory, and forgets what nobody needs of it any more.
    fn change(&mut self, handle: &Handle, change: impl FnOnce(&mut Dir)) {
        let Some(dir) = self.dirs.get_mut(handle) else { return };
        change(dir);
        dir.names.retain(|_, name| name.is_used());
        if dir.names.is_empty() && dir.sealed.is_none() {
            self.dirs.remove(handle);
        }
    }

    /// Lets go of everything whose holder `is_over`.
    fn let_go(&mut self, is_over: impl Fn(&Holder) -> bool) {
        let mut let_go = 0;
        let mut end = |holder: &mut Option<Holder>| {
            let_go += usize::from(holder.take_if(|holder| is_over(holder)).is_some());
        };
        self.dirs.retain(|_, dir| {
            dir.names.values_mut().for_each(|name| end(&mut name.held));
            end(&mut dir.sealed);
            dir.names.retain(|_, name| name.is_used());
            !dir.names.is_empty() || dir.sealed.is_some()
        });
        self.held -= let_go;
    }

    fn hold(&mut self, (dir, name): &NameOf, holder: Holder) {
        let name = self.dirs.entry(*dir).or_default().names.entry(name.clone()).or_default();
        self.held += usize::from(name.held.replace(holder).is_none());
    }

    fn seal(&mut self, dir: &Handle, holder: Holder) {
        let dir = self.dirs.entry(*dir).or_default();
        self.held += usize::from(dir.sealed.replace(holder).is_none());
    }

    /// Whether `by` may seal a directory now.
    fn may_seal(&self, dir: &Handle, by: TxId) -> bool {
        let Some(dir) = self.dirs.get(dir) else { return true };
        match dir.sealed {
            Some(holder) => holder.tx == by,
            None => dir.names.values().all(|name| !name.entered),
        }
    }

    fn has_room(&self) -> Result<(), Failure> {
        if self.held < HOLDS_MAX {
            return Ok(());
        }
        Err(Failure::new(Status::Busy, "too many names are held for changes on several bricks"))
    }
}

/// What of a transaction is on disk, and so is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) names: Vec<NameOf>,
    pub(crate) sealed: Vec<Handle>,
}

impl Holds {
    /// Waits until no other transaction than `by` holds any of `names`, which may name one thing
    /// twice, or has sealed a directory of them; `InUse` where that takes too long.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        mut names: Vec<NameOf>,
        by: Option<TxId>,
    ) -> Result<Entered, Failure> {
        names.sort_by(|a, b| (a.0.as_bytes(), &a.1).cmp(&(b.0.as_bytes(), &b.1)));
        names.dedup();
        self.when(|table| {
            if !names.iter().all(|name| table.is_free(name, by)) {
                return None;
            }
            for (dir, name) in &names {
                let dir = table.dirs.entry(*dir).or_default();
                dir.names.entry(name.clone()).or_default().entered = true;
            }
            Some(Ok(()))
        })
        .await?;
        Ok(Entered { holds: self.clone(), names })
    }

    /// Holds a name, which `tx` operates on now, as long as the session lasts.
    pub(crate) fn hold(&self, name: &NameOf, tx: TxId, session: u64) -> Result<(), Failure> {
        let mut table = self.table.lock();
        table.has_room()?;
        table.hold(name, Holder::of(tx, session));
        Ok(())
    }

    /// Whether `tx` holds a name.
    pub(crate) fn is_held(&self, (dir, name): &NameOf, tx: TxId) -> bool {
        let table = self.table.lock();
        let name = table.dirs.get(dir).and_then(|dir| dir.names.get(name));
        name.and_then(|name| name.held).is_some_and(|holder| holder.tx == tx)
    }

    /// Seals a directory as long as the session lasts, once nobody operates on its names and no
    /// other transaction has sealed it; `InUse` where that takes too long.
    pub(crate) async fn seal(&self, dir: &Handle, tx: TxId, session: u64) -> Result<(), Failure> {
        self.when(|table| {
            if !table.may_seal(dir, tx) {
                return None;
            }
            let room = table.has_room();
            if room.is_ok() {
                let known = table.dirs.get(dir).and_then(|dir| dir.sealed);
                table.seal(dir, known.unwrap_or_else(|| Holder::of(tx, session)));
            }
            Some(room)
        })
        .await
    }

    /// Seals a directory at once, or not at all.
    pub(crate) fn try_seal(&self, dir: &Handle, tx: TxId, session: u64) -> bool {
        let mut table = self.table.lock();
        let is_free = table.dirs.get(dir).is_none_or(|dir| dir.sealed.is_none());
        if !is_free || !table.may_seal(dir, tx) || table.has_room().is_err() {
            return false;
        }
        table.seal(dir, Holder::of(tx, session));
        true
    }

    /// Unseals what a transaction has sealed but has not on disk.
    pub(crate) fn unseal_all_but(&self, tx: TxId, needed: &Needed) {
        let mut table = self.table.lock();
        let sealed: Vec<Handle> = table
            .dirs
            .iter()
            .filter(|(_, dir)| dir.sealed.is_some_and(|holder| holder.tx == tx))
            .map(|(handle, _)| *handle)
            .filter(|handle| !needed.sealed.contains(handle))
            .collect();
        for handle in &sealed {
            table.change(handle, |dir| dir.sealed = None);
        }
        table.held -= sealed.len();
        drop(table);
        self.freed.notify_waiters();
    }

    /// Whether a directory is sealed.
    pub(crate) fn is_sealed(&self, dir: &Handle) -> bool {
        self.table.lock().dirs.get(dir).is_some_and(|dir| dir.sealed.is_some())
    }

    /// Holds what a transaction has on disk, beside what it holds for its session.
    pub(crate) fn add(&self, tx: TxId, needed: &Needed) {
        let holder = Holder { tx, session: None };
        let mut table = self.table.lock();
        needed.names.iter().for_each(|name| table.hold(name, holder));
        needed.sealed.iter().for_each(|dir| table.seal(dir, holder));
    }

    /// Lets go of all that a transaction holds but what it has on disk; answers whether it held
    /// anything.
    pub(crate) fn keep(&self, tx: TxId, needed: &Needed) -> bool {
        let mut table = self.table.lock();
        let before = table.held;
        table.let_go(|holder| holder.tx == tx);
        let held_any = table.held < before;
        let holder = Holder { tx, session: None };
        needed.names.iter().for_each(|name| table.hold(name, holder));
        needed.sealed.iter().for_each(|dir| table.seal(dir, holder));
        drop(table);
        self.freed.notify_waiters();
        held_any
    }

    /// Lets go of all that a session holds: it is over.
    pub(crate) fn lose(&self, session: u64) {
        let is_of = |holder: &Holder| holder.session.is_some_and(|(of, _)| of == session);
        self.table.lock().let_go(is_of);
        self.freed.notify_waiters();
    }

    /// Lets go of what was held for a session for too long, as of `now`: whoever was to let go of it
    /// was not heard. Call it now and then.
    pub(crate) fn sweep(&self, now: StdInstant) {
        let limit = Duration::from_millis(HOLD_MS_MAX);
        let is_over = |holder: &Holder| {
            holder.session.is_some_and(|(_, since)| now.duration_since(since) >= limit)
        };
        self.table.lock().let_go(is_over);
        self.freed.notify_waiters();
    }

    /// Waits until `take` takes what it wants.
    async fn when(
        &self,
        mut take: impl FnMut(&mut Table) -> Option<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let limit = Instant::now() + Duration::from_millis(WAIT_MS);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // What is let go of from here on is not missed.
            freed.as_mut().enable();
            if let Some(taken) = take(&mut self.table.lock()) {
                return taken;
            }
            if timeout_at(limit, freed).await.is_err() {
                let detail = "another change of this name takes long; try again";
                return Err(Failure::new(Status::InUse, detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const A: TxId = TxId { gateway: 1, number: 1 };
    const B: TxId = TxId { gateway: 1, number: 2 };

    fn dir() -> Handle {
        Handle::new(b"dir").expect("short")
    }

    fn name(name: &str) -> NameOf {
        (dir(), name.into())
    }

    /// What is ready without waiting.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => Some(ready),
            Poll::Pending => None,
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().expect("a runtime")
    }

    fn is_empty(holds: &Holds) -> bool {
        let table = holds.table.lock();
        table.dirs.is_empty() && table.held == 0
    }

    #[test]
    fn a_held_name_keeps_others_out_until_it_is_let_go_of_or_its_session_is_over() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let holds = Arc::new(Holds::default());
        let ends: [fn(&Holds); 2] =
            [|holds| assert!(holds.keep(A, &Needed::default())), |holds| holds.lose(7)];
        for end in ends {
            let entered = now(holds.enter(vec![name("a"), name("a")], Some(A)));
            let entered = entered.expect("free").expect("entered");
            holds.hold(&name("a"), A, 7).expect("held");
            assert!(now(holds.enter(vec![name("a")], Some(A))).is_none(), "one at a time");
            drop(entered);
            assert!(holds.is_held(&name("a"), A) && !holds.is_held(&name("a"), B));
            assert!(now(holds.enter(vec![name("b"), name("a")], Some(B))).is_none());
            assert!(now(holds.enter(vec![name("a")], None)).is_none());
            assert!(now(holds.enter(vec![name("b")], None)).is_some(), "another name");
            assert!(now(holds.enter(vec![name("a")], Some(A))).is_some(), "the one who holds it");
            assert!(!holds.keep(B, &Needed::default()));
            holds.lose(8);
            assert!(holds.is_held(&name("a"), A), "somebody else's");
            end(&holds);
            assert!(now(holds.enter(vec![name("a")], None)).is_some());
            assert!(is_empty(&holds));
        }
    }

    #[test]
    fn what_nobody_lets_go_of_ends_after_a_while_unless_it_is_on_disk() {
        let holds = Holds::default();
        holds.hold(&name("a"), A, 7).expect("held");
        holds.hold(&name("b"), A, 7).expect("held");
        holds.add(A, &Needed { names: vec![name("b")], sealed: vec![] });
        let limit = Duration::from_millis(HOLD_MS_MAX);
        holds.sweep(StdInstant::now() + limit / 2);
        assert!(holds.is_held(&name("a"), A));
        holds.sweep(StdInstant::now() + limit);
        assert!(!holds.is_held(&name("a"), A) && holds.is_held(&name("b"), A));
    }

    #[test]
    fn what_is_on_disk_outlives_its_session() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let holds = Arc::new(Holds::default());
        holds.hold(&name("a"), A, 7).expect("held");
        holds.hold(&name("b"), A, 7).expect("held");
        holds.add(A, &Needed { names: vec![name("a")], sealed: vec![dir()] });
        holds.lose(7);
        assert!(holds.is_held(&name("a"), A) && !holds.is_held(&name("b"), A));
        assert!(now(holds.enter(vec![name("c")], Some(B))).is_none(), "sealed");
        holds.keep(A, &Needed::default());
        assert!(now(holds.enter(vec![name("c")], Some(B))).is_some());
        assert!(is_empty(&holds));
    }

    #[test]
    fn a_directory_is_sealed_while_nobody_works_in_it_and_keeps_everybody_out() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let holds = Arc::new(Holds::default());
        let entered = now(holds.enter(vec![name("a")], None)).expect("free").expect("entered");
        assert!(now(holds.seal(&dir(), A, 7)).is_none() && !holds.try_seal(&dir(), A, 7));
        drop(entered);
        assert_eq!(now(holds.seal(&dir(), A, 7)), Some(Ok(())));
        assert_eq!(now(holds.seal(&dir(), A, 7)), Some(Ok(())), "again, by the same");
        assert!(now(holds.seal(&dir(), B, 8)).is_none() && !holds.try_seal(&dir(), B, 8));
        assert!(now(holds.enter(vec![name("a")], Some(B))).is_none());
        holds.lose(7);
        assert!(now(holds.enter(vec![name("a")], Some(B))).is_some());
        assert!(is_empty(&holds));
    }

    #[test]
    fn who_waits_is_woken_and_who_waits_for_too_long_is_told() {
        runtime().block_on(async {
            let holds = Arc::new(Holds::default());
            holds.hold(&name("a"), A, 7).expect("held");
            let waiting = tokio::spawn({
                let holds = holds.clone();
                async move { holds.enter(vec![name("a")], None).await.map(drop) }
            });
            tokio::task::yield_now().await;
            holds.lose(7);
            assert_eq!(waiting.await.expect("it ends"), Ok(()));
            holds.hold(&name("a"), A, 7).expect("held");
            let late = holds.enter(vec![name("a")], None).await.map(drop);
            assert_eq!(late.map_err(|failure| failure.status), Err(Status::InUse));
        });
    }
}
