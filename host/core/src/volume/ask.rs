//! What a gateway asks a member of a volume, and what it is told. Everything that the operations on
//! several members are made of is here, and only here is said what each does; `host/brick` does it.
//!
//! For all of them holds:
//! - Each is one change at the member: done or not done, whatever happens to the member meanwhile.
//!   What it does to the file system in several steps it notes first, and puts right at its start,
//!   before it answers anybody.
//! - Each may be asked again with the same transaction, and then changes nothing more. Those that
//!   are a whole operation (`Mkdir`, `Unlink`, `Rmdir`, `Rename`, `Link`) are repeated by their
//!   number, as any mutation is ([`replay`](crate::replay)).
//! - Any may arrive late, when whoever asked is gone and others have gone on.
//! - `Prepare`, `Commit` and `Finish` are on stable storage when they are answered.
//! - A name is **held** by a transaction that has a hold of it, a [`Preparation::Leave`], or an
//!   [`Intent`](super::Intent) with it. Who would change a held name waits, and is told `InUse`
//!   after a while; the transaction itself does not wait, nor does anybody who only looks. Creates
//!   in a directory that is sealed here wait likewise. Nothing is held while one waits.
//! - Where it is on behalf of somebody (the caller in the request that carries it), it needs the
//!   permissions that the system call needs.
//! - A spread directory of which this member has no copy: [`Told::NoCopy`] from all that would make
//!   a name in it, and `NotFound` from all that take a name from it.

use serde::{Deserialize, Serialize};

use super::id::DirId;
use super::member::{MemberId, MemberSet};
use super::outcomes::Cause;
use super::record::{LinkId, Pointer, Record};
use super::transaction::{Duty, Place, Preparation, TxId};
use crate::attr::Attr;
use crate::entry::Entry;
use crate::handle::Handle;
use crate::status::Status;

/// What a member is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Makes a directory, whose home this member is since it arbitrates the name: its copy and the
    /// pointer, in one. The copy remembers `place.dir` as its parent. Owner, group, set-group-id
    /// and default ACL come out as mkdir(2) in the parent's copy would have it. Who asks watches
    /// its names, and is told of a change of them where it was not empty any more by then, or was to
    /// get a copy. Told: [`Told::Made`].
    Mkdir {
        /// The name.
        place: Place,
        /// Permission bits, with the caller's umask applied.
        mode: u32,
        /// The id, drawn by who asks: its home is this member.
        id: DirId,
    },
    /// unlink(2) of a name that this member arbitrates. A body is removed as in a volume of one. A
    /// pointer to a file is removed and leaves an intent with the duty to remove the hidden name.
    /// `IsDirectory` for a directory. Told: [`Told::Committed`], without duties for a body.
    Unlink {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The name.
        place: Place,
    },
    /// rmdir(2) where this member alone can tell: a directory that is no spread one, or one whose
    /// home this is and of which there is no other copy. Told: [`Told::Done`], or
    /// [`Told::Elsewhere`], and nothing is changed.
    Rmdir {
        /// The name.
        place: Place,
    },
    /// renameat2(2) where this member arbitrates both names and can do it alone: the record moves.
    /// A pointer to a file that is replaced leaves an intent to remove the hidden name; two names
    /// of one file are left as they are. Directories at home here get their time of last status
    /// change. [`Told::Elsewhere`], and nothing is changed, where a
    /// spread directory would get another parent, or be replaced. `CrossDevice` where a body that
    /// is a directory would get a parent that is a spread directory, or replace or be replaced by a
    /// spread directory. With `RENAME_EXCHANGE`, `InvalidArgument` where a spread directory would
    /// get another parent. Told: [`Told::Renamed`]; [`Told::Committed`] where the intent of an earlier
    /// time is there; or [`Told::Elsewhere`].
    Rename {
        /// The transaction, if it becomes one.
        tx: TxId,
        /// The name.
        from: Place,
        /// The new name.
        to: Place,
        /// As of renameat2(2): `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
        flags: u32,
    },
    /// link(2) of a file that lies on this member, to a name that this member arbitrates. Told:
    /// [`Told::Made`].
    Link {
        /// The file.
        handle: Handle,
        /// The new name.
        place: Place,
    },
    /// Holds a name that this member arbitrates, whether it is there or not, when nobody else holds
    /// it. In memory: it ends with the session of who asks, with `Commit`, `Finish`, `Abort` or
    /// `Settle` of the transaction, and after [`HOLD_MS_MAX`](crate::limits::HOLD_MS_MAX). A
    /// session that has ended holds nothing, also where the request came before. The directory must
    /// be there and not be sealed (wait). [`Purpose`] says what is checked. Told: [`Told::Record`].
    Hold {
        /// The transaction.
        tx: TxId,
        /// The name.
        place: Place,
        /// What for.
        purpose: Purpose,
    },
    /// Holds the shape of the tree, when nobody else does; of member 0 only, by who moves a
    /// directory to another parent. In memory, as [`Ask::Hold`]. It saves such moves from waiting
    /// for each other in a circle, nothing more. Told: [`Told::Done`].
    HoldTree {
        /// The transaction.
        tx: TxId,
    },
    /// Promises a part of a transaction, to be done or undone as it is told later: see
    /// [`Preparation`] for what each checks and keeps. [`Preparation::Leave`] and
    /// [`Preparation::Replace`] need the permission to take the name, and wait where another transaction
    /// holds it. [`Preparation::Link`] needs
    /// what link(2) needs of the file. [`Preparation::Seal`] waits for another transaction's;
    /// `NotEmpty` where the copy has any entry; without a copy it is fine, and none can be made
    /// until it ends; tickets for a copy are no longer good. At the home it is `Stale` where the
    /// directory is gone, and tells who else has a copy. [`Preparation::Reparent`] waits for
    /// another transaction's, and needs write permission to the directory. One that is promised
    /// already is told again. Told: [`Told::Prepared`].
    Prepare {
        /// The transaction.
        tx: TxId,
        /// The member that will know how it ended.
        coordinator: MemberId,
        /// What is promised.
        part: Preparation,
    },
    /// Commits a transaction by a change here, which leaves an intent in one with it. Told
    /// [`Told::NotHeld`], and nothing is changed, where the transaction does not hold every name of
    /// the change here, and is not committed either; or where another one has committed its cause, or
    /// taken it over, or this member was restarted since that was asked for. By which transaction a cause was committed is kept
    /// ([`outcomes`](super::outcomes)). Waits where a directory that gets a name is
    /// sealed by another transaction; [`Told::NoCopy`] where it has gone meanwhile. The holds of
    /// the transaction here end; where a member has to finish something, the intent holds the
    /// names. Told: [`Told::Committed`], with the duties of the intent; again the same where it is
    /// asked again.
    Commit {
        /// The transaction.
        tx: TxId,
        /// The change.
        change: Change,
        /// Members that have prepared something.
        prepared: MemberSet,
        /// What it carries out, for a client that may ask again.
        cause: Option<Cause>,
    },
    /// What came of an operation that was asked for before, perhaps of another gateway: of the
    /// coordinator. Where it is not committed, only `tx`, or a later one of the same gateway, commits it
    /// from now on. Told: [`Told::TakenOver`], or `InDoubt` where that is not known.
    TakeOver {
        /// The transaction that is to carry it out now.
        tx: TxId,
        /// The operation.
        cause: Cause,
    },
    /// Does what was promised, and ends the promise; lets go of what the transaction holds here.
    /// Told: [`Told::Done`], also where nothing was promised or it was done before.
    Finish {
        /// The transaction, known to be committed.
        tx: TxId,
    },
    /// Undoes what was promised, and lets go of what is held here. Told: [`Told::Aborted`]. Never
    /// ask this of a transaction that may be committed.
    Abort {
        /// The transaction, known not to be committed.
        tx: TxId,
    },
    /// How a transaction ended that this member coordinates. Where it is not committed, it lets go
    /// of what it holds: it never will be. Told: [`Told::Settled`].
    Settle {
        /// The transaction.
        tx: TxId,
    },
    /// Removes an intent, all of whose duties are done. Told: [`Told::Done`], also where there is
    /// none; or [`Told::Changed`], and the intent stays.
    Forget {
        /// The transaction.
        tx: TxId,
        /// Of an intent to refresh copies: the version that they have. Where the directory is at
        /// another by now, they are to be refreshed again. Else `None`.
        version: Option<u64>,
    },
    /// Removes a hidden name of a file, as unlink(2) removes a name (an open file is kept). Told:
    /// [`Told::Done`], also where there is none.
    RemoveBody {
        /// The hidden name.
        link: LinkId,
    },
    /// The parent of a spread directory whose home this is, when no transaction is about to change
    /// it. `Stale` where the directory is gone. Told: [`Told::Parent`].
    Parent {
        /// The directory, not the root.
        id: DirId,
    },
    /// Begins to make a copy of a directory; waits while it is sealed here. Told: [`Told::Ticket`],
    /// or [`Told::Done`] where there is a copy. Tickets are in memory; one is no longer good when
    /// the directory is sealed here, or [`Ask::SetCopy`] came.
    ExpectCopy {
        /// The directory, not the root.
        id: DirId,
    },
    /// The home notes, on disk, that a member has a copy, and tells what it is to be like. Waits
    /// while the directory is sealed; `Stale` where it is gone. Everybody else who watches names of
    /// the directory at its home has forgotten them when it is answered: so who made the directory,
    /// and watches it there alone, may take it for empty. Told: [`Told::Copy`].
    Enlist {
        /// The directory.
        id: DirId,
        /// Who is about to have a copy.
        member: MemberId,
    },
    /// Makes a copy, empty, where the ticket is good; who asks watches its names from then on.
    /// Told: [`Told::Done`], also where there is a copy; or [`Told::NoTicket`].
    MakeCopy {
        /// The directory.
        id: DirId,
        /// From [`Told::Ticket`].
        ticket: u64,
        /// What it is like.
        attr: CopyAttr,
    },
    /// Leaves an intent at the home: copies are to be refreshed ([`Duty::Refresh`]), for its
    /// attributes are about to be changed. Any request that changes mode, owner, group or an ACL of
    /// a spread directory is refused with `Busy` where no such intent for it is there: so no change
    /// can come late and stay untold. Told: [`Told::Done`].
    Mark {
        /// The transaction.
        tx: TxId,
        /// The directory.
        id: DirId,
    },
    /// What copies of a directory are to be like, from its home. `Stale` where it is gone. Told:
    /// [`Told::Copy`].
    ReadCopy {
        /// The directory.
        id: DirId,
    },
    /// Gives the copy here other attributes, where their version is later than the one it has.
    /// Tickets for a copy are no longer good. Told: [`Told::Done`], also where there is no copy.
    SetCopy {
        /// The directory.
        id: DirId,
        /// What it is like.
        attr: CopyAttr,
    },
    /// Names of a directory were changed on another member: at its home the times of last change
    /// are now. Told: [`Told::Done`], also where it is gone.
    Touch {
        /// The directory.
        id: DirId,
    },
    /// A directory has another name: at its home the time of last status change is now. Told:
    /// [`Told::Done`], also where it is gone.
    Renamed {
        /// The directory.
        id: DirId,
    },
    /// A pointer gets the owner that what it leads to has by now, where it still leads there: by the
    /// owner of a name it is judged who may take it from a directory with the sticky bit. Told:
    /// [`Told::Done`], whatever the name is.
    Own {
        /// The name.
        place: Place,
        /// What the pointer leads to.
        handle: Handle,
        /// Its owner.
        uid: u32,
    },
}

/// What a name is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// It is to be made, as by link(2): `Exists` where it is there.
    Make,
    /// It is to be made, in the place of what is there, as the new name of rename(2).
    Replace,
    /// It is to be taken away, as by rmdir(2) or the old name of rename(2): `NotFound` where it is
    /// not there.
    Take,
}

/// The change that commits a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Change {
    /// A name gets a record, in the place of what it stood for: `replaced`, else the commit is
    /// refused with `Busy`. A body that is replaced is removed as by unlink(2), an orphan where it
    /// is open. A pointer to a file that is replaced becomes a duty to remove the hidden name.
    Place {
        /// The name.
        place: Place,
        /// Where it leads. Where the file lies on this member, the hidden name of the pointer is
        /// renamed to the place: it becomes a body.
        pointer: Pointer,
        /// The owner for the pointer: see [`Record::uid`].
        uid: u32,
        /// The handle of what it replaces.
        replaced: Option<Handle>,
    },
    /// A record moves from one name to another of this member, as in rename(2).
    Move {
        /// The name.
        from: Place,
        /// The new name.
        to: Place,
        /// The handle of what it replaces.
        replaced: Option<Handle>,
    },
    /// A name leads elsewhere, and what it stood for, `replaced`, stays: a body gets the hidden name
    /// `link`. A file that lies here comes back from its hidden name. Else as [`Change::Place`].
    Swap {
        /// The name.
        place: Place,
        /// Where it leads.
        pointer: Pointer,
        /// The owner for the pointer.
        uid: u32,
        /// The handle of what it stood for.
        replaced: Handle,
        /// A hidden name for a body.
        link: LinkId,
    },
    /// A pointer to a spread directory is removed.
    Remove {
        /// The name.
        place: Place,
    },
}

/// What a copy of a directory is like: what permission checks on it need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyAttr {
    /// Permission bits, with set-group-id and sticky bit.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The value of `system.posix_acl_access`.
    #[serde(with = "serde_bytes")]
    pub acl_access: Option<Vec<u8>>,
    /// The value of `system.posix_acl_default`.
    #[serde(with = "serde_bytes")]
    pub acl_default: Option<Vec<u8>>,
    /// Counts the changes of all these, at the home.
    pub version: u64,
}

/// What a member answers. [`Told::Failed`] and [`Told::Lost`] do not travel: who asks makes them of
/// failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It is done; there is nothing to tell.
    Done,
    /// A directory was made.
    Made(Entry),
    /// What a name that is held now stands for; `None` where it is not there.
    Record(Option<Record>),
    /// A part is promised.
    Prepared {
        /// What the name stands for that leaves, or the file that is linked.
        record: Option<Record>,
        /// Of a seal at the home: the other members that have, or are about to have, a copy.
        copies: MemberSet,
    },
    /// It is committed.
    Committed {
        /// What is to be done yet; where there is nothing, there is nothing to forget either.
        duties: Vec<Duty>,
    },
    /// Names were changed as by [`Ask::Rename`].
    Renamed {
        /// What is to be done yet, as in [`Told::Committed`].
        duties: Vec<Duty>,
        /// Directories with other names now whose homes are elsewhere.
        moved: Vec<DirId>,
    },
    /// What came of an operation before.
    TakenOver {
        /// The transaction that committed it, and what it has to do yet; `None` where it is not
        /// committed.
        committed: Option<(TxId, Vec<Duty>)>,
    },
    /// Other members are needed.
    Elsewhere,
    /// The transaction does not hold the name here, and is not committed.
    NotHeld,
    /// The directory has changed meanwhile.
    Changed,
    /// How a transaction ended.
    Settled {
        /// It was committed, and is not forgotten; else it will never be.
        is_committed: bool,
    },
    /// A transaction was undone here.
    Aborted {
        /// There was something to undo.
        was_there: bool,
    },
    /// The parent of a directory.
    Parent(Handle),
    /// This member has no copy of the directory.
    NoCopy,
    /// A copy may be made with this.
    Ticket(u64),
    /// The ticket is not good, or no longer.
    NoTicket,
    /// A directory as it is at home.
    Copy {
        /// What copies are to be like.
        attr: CopyAttr,
        /// Its attributes.
        stat: Attr,
        /// The other members that have, or are about to have, a copy.
        copies: MemberSet,
    },
    /// It was refused, and nothing is changed.
    Failed(Status),
    /// There is no answer, and nobody knows whether it was done.
    Lost,
}
