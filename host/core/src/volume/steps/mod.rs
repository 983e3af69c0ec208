//! Operations on several members, step by step: questions out, answers in.
//!
//! Each operation is written down in the order in which it happens, as an `async fn` that asks
//! [`Members`] and goes on with what it is told; the compiler makes the state machine of it.
//! Nothing of it waits for anything but answers: [`Steps`] hands out a batch of questions, takes
//! their answers and runs to the next batch. The gateway and the simulation in the tests drive the
//! same code.
//!
//! - [`mkdir`], [`unlink`], [`rmdir`], [`link`], [`rename`], [`exchange`]: one file an operation.
//! - [`copy`]: a member gets a copy of a directory. [`seal`]: all copies of one are closed.
//! - [`transaction`]: prepare, commit, abort; [`completion`]: what is done after a commit.
//! - [`redo`]: what somebody left unfinished is brought to its end.
//!
//! What must hold:
//! - After each answer whoever leads the operation may be gone for good: what is on the members
//!   then is put right by [`redo`].
//! - An operation ends well only when what it did cannot be lost any more and everybody sees it.
//! - An operation that ends with a failure has changed nothing, unless the failure is `InDoubt`.
//! - One that is asked for again is not done again: what came of it the coordinator knows
//!   ([`outcomes`](super::outcomes)).

mod completion;
mod copy;
mod exchange;
mod link;
mod mkdir;
mod redo;
mod rename;
mod rmdir;
mod seal;
mod transaction;
mod unlink;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::ask::{Ask, Told};
use super::id::DirId;
use super::member::MemberId;
use super::outcomes::Cause;
use super::record::LinkId;
use super::transaction::{Duty, Place, TxId, Unfinished};
use crate::entry::Entry;
use crate::handle::Handle;
use crate::status::Status;

/// An operation on several members. Random numbers in it are fresh: no two operations share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// mkdir(2). Gives the entry.
    Mkdir {
        /// The name.
        place: Place,
        /// Permission bits, with the caller's umask applied.
        mode: u32,
        /// At home on the arbiter of the name.
        id: DirId,
    },
    /// unlink(2).
    Unlink {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The name.
        place: Place,
    },
    /// rmdir(2).
    Rmdir {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The name.
        place: Place,
    },
    /// link(2). Gives an entry where one member did it; else ask for the attributes.
    Link {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The file.
        handle: Handle,
        /// The new name.
        place: Place,
        /// A hidden name, random.
        link: LinkId,
    },
    /// renameat2(2) with no flag, `RENAME_NOREPLACE` or, where no directory gets another parent,
    /// `RENAME_EXCHANGE`.
    Rename {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The name.
        from: Place,
        /// The new name.
        to: Place,
        /// As of renameat2(2).
        flags: u32,
        /// A hidden name, random.
        link: LinkId,
    },
    /// A member is to have a copy of a directory, as [`Told::NoCopy`] demands.
    EnsureCopy {
        /// The directory.
        id: DirId,
        /// The member.
        member: MemberId,
    },
    /// Duties of a transaction that is committed, as after [`Ask::Mark`] and the change that it
    /// announces.
    Complete {
        /// The transaction.
        tx: TxId,
        /// The member that committed it.
        coordinator: MemberId,
        /// What is to be done.
        duties: Vec<Duty>,
    },
    /// What somebody left unfinished on a member. Ends with `Unavailable` where something is still
    /// unfinished afterwards: ask again when the members needed are back.
    Redo {
        /// The member.
        member: MemberId,
        /// What it listed.
        unfinished: Vec<Unfinished>,
    },
}

/// Who asked for an operation, where he may ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The operation as its client names it.
    pub cause: Cause,
    /// It was asked for before, of another gateway or without an answer.
    pub is_again: bool,
}

/// A question and whom it goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The member.
    pub member: MemberId,
    /// What it is asked.
    pub ask: Ask,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask all of these, at once, and hand in the answers in the same order.
    Ask(Vec<Call>),
    /// The operation is over.
    End(End),
}

/// How an operation ended.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    /// The entry, of operations that give one; or why it failed. `Busy`: the members forgot what
    /// they held for it, nothing is changed, try again with other numbers.
    pub result: Result<Option<Box<Entry>>, Status>,
    /// Ask these once the answer is on its way, whatever comes of them: they tidy up.
    pub after: Vec<Call>,
}

/// An operation under way.
pub struct Steps {
    operation: Pin<Box<dyn Future<Output = End> + Send>>,
    mailbox: Arc<Mutex<Mailbox>>,
}

/// What the operation asks, and what it is told.
#[derive(Default)]
struct Mailbox {
    asked: Vec<Call>,
    told: Option<Vec<Told>>,
}

/// The members, as an operation sees them.
pub(super) struct Members {
    mailbox: Arc<Mutex<Mailbox>>,
    /// Who asked for the operation.
    asked: Option<Asked>,
}

impl Steps {
    /// An operation, and its first step.
    pub fn begin(operation: Operation) -> (Self, Next) {
        Self::begin_asked(operation, None)
    }

    /// An operation that somebody asked for, and its first step.
    pub fn begin_asked(operation: Operation, asked: Option<Asked>) -> (Self, Next) {
        let mailbox = Arc::default();
        let members = Members { mailbox: Arc::clone(&mailbox), asked };
        let mut steps = Self { operation: Box::pin(operation.run(members)), mailbox };
        let next = steps.run();
        (steps, next)
    }

    /// The answers to the last batch of questions, in its order. Not to be called after the end.
    pub fn told(&mut self, told: Vec<Told>) -> Next {
        self.mailbox.lock().told = Some(told);
        self.run()
    }

    fn run(&mut self) -> Next {
        let mut context = Context::from_waker(Waker::noop());
        match self.operation.as_mut().poll(&mut context) {
            Poll::Ready(end) => Next::End(end),
            Poll::Pending => Next::Ask(std::mem::take(&mut self.mailbox.lock().asked)),
        }
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Members {
    /// Asks all of these; their answers, in the same order.
    async fn ask_all(&self, calls: Vec<Call>) -> Vec<Told> {
        let count = calls.len();
        if count == 0 {
            return Vec::new();
        }
        self.mailbox.lock().asked = calls;
        let mut told = std::future::poll_fn(|_| match self.mailbox.lock().told.take() {
            Some(told) => Poll::Ready(told),
            None => Poll::Pending,
        })
        .await;
        // Whoever drives this may have fewer answers than there were questions.
        told.resize(count, Told::Lost);
        told
    }

    async fn ask(&self, member: MemberId, ask: Ask) -> Told {
        self.ask_all(vec![Call { member, ask }]).await.pop().unwrap_or(Told::Lost)
    }
}

impl Operation {
    /// The member that commits it, if it becomes a transaction.
    pub fn coordinator(&self) -> Option<MemberId> {
        match self {
            Operation::Rmdir { place, .. } | Operation::Link { place, .. } => Some(place.arbiter()),
            Operation::Rename { to, .. } => Some(to.arbiter()),
            _ => None,
        }
    }

    async fn run(self, members: Members) -> End {
        let members = &members;
        match self {
            Operation::Mkdir { place, mode, id } => mkdir::mkdir(members, place, mode, id).await,
            Operation::Unlink { tx, place } => unlink::unlink(members, tx, place).await,
            Operation::Rmdir { tx, place } => rmdir::rmdir(members, tx, place).await,
            Operation::Link { tx, handle, place, link } => {
                link::link(members, tx, handle, place, link).await
            }
            Operation::Rename { tx, from, to, flags, link } => {
                rename::rename(members, tx, rename::Names { from, to }, flags, link).await
            }
            Operation::EnsureCopy { id, member } => {
                copy::ensure_copy(members, id, member).await.map(|()| None).into()
            }
            Operation::Complete { tx, coordinator, duties } => {
                let completed =
                    completion::complete(members, tx, coordinator, duties, vec![]).await;
                completed.into_end()
            }
            Operation::Redo { member, unfinished } => {
                redo::redo(members, member, unfinished).await.map(|()| None).into()
            }
        }
    }
}

impl From<Result<Option<Box<Entry>>, Status>> for End {
    fn from(result: Result<Option<Box<Entry>>, Status>) -> Self {
        Self { result, after: Vec::new() }
    }
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Err(status).into()
    }
}

impl Told {
    /// The failure in an answer; of one that does not belong to its question too.
    fn failure(&self) -> Status {
        match self {
            Told::Failed(status) => *status,
            Told::NoCopy => Status::NotFound,
            Told::Lost => Status::Unavailable,
            _ => Status::BadFrame,
        }
    }

    /// The failure in an answer to a question that is an operation by itself: without an answer it
    /// may have been done.
    fn failure_of_all(&self) -> Status {
        match self {
            Told::Lost => Status::InDoubt,
            other => other.failure(),
        }
    }
}

/// That names of a directory were changed on a member, for its home to know.
fn touch(place: &Place) -> Option<Call> {
    let id = DirId::of_handle(&place.dir)?;
    let is_elsewhere = place.arbiter() != id.home();
    is_elsewhere.then_some(Call { member: id.home(), ask: Ask::Touch { id } })
}
