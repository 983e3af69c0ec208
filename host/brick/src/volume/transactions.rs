//! What a member has of changes on several members that are not through: on disk, and in memory.
//!
//! ```text
//! .portcullis-volume/prepared/TX     what was promised            Prepared
//!                   /intents/TX.new  what is just being committed Noted
//!                   /intents/TX      what is committed            Noted
//! ```
//! A commit is noted first, with how to tell whether it was done; then it is done; then the note
//! becomes the intent. A brick that finds a note at its start looks, before it answers anybody.
//!
//! What must hold: what was answered is on stable storage; memory and disk tell the same.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use portcullis_core::limits::UNFINISHED_TOLD_MAX;
use portcullis_core::volume::{
    Cause, DirId, Duty, Intent, MemberId, Preparation, Prepared, TxId, Unfinished,
};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::{Errno, Result, read, write};
use tracing::{error, info};

use super::holds::{Needed, parent_of};
use super::member::{make_dir, open_dir};
use super::noted::{Check, Noted};

/// What ends the name of a note of a commit that is not known to be done.
const NEW: &str = ".new";
/// More than any file here has: a name, handles, duties for each member.
const LEN_BYTES_MAX: usize = 16 * 1024;

/// The transactions of one member.
pub(crate) struct Transactions {
    prepared: OwnedFd,
    intents: OwnedFd,
    table: Mutex<HashMap<TxId, State>>,
}

/// What there is of one.
#[derive(Default)]
struct State {
    prepared: Option<Prepared>,
    intent: Option<Intent>,
    /// Whether the session that led it last is over; `None` where that was in an earlier life.
    led_by: Option<Arc<AtomicBool>>,
}

impl State {
    fn needed(&self) -> Needed {
        let mut needed = Needed::default();
        for part in self.prepared.iter().flat_map(|prepared| &prepared.parts) {
            match part {
                Preparation::Leave { place, .. } | Preparation::Replace { place, .. } => {
                    needed.names.push((place.dir, place.name.clone()));
                }
                Preparation::Seal { id } => needed.sealed.push(id.handle()),
                Preparation::Reparent { id, .. } => needed.names.push(parent_of(id)),
                Preparation::Link { .. } => {}
            }
        }
        let held = self.intent.iter().flat_map(|intent| &intent.held);
        needed.names.extend(held.map(|place| (place.dir, place.name.clone())));
        needed
    }

    fn unfinished(&self, tx: TxId) -> Vec<Unfinished> {
        let prepared = self.prepared.as_ref();
        let prepared =
            prepared.map(|prepared| Unfinished::Prepared { tx, coordinator: prepared.coordinator });
        let committed = self.intent.as_ref();
        let committed =
            committed.map(|intent| Unfinished::Committed { tx, duties: intent.duties.clone() });
        prepared.into_iter().chain(committed).collect()
    }

    fn is_orphan(&self) -> bool {
        self.led_by.as_ref().is_none_or(|is_over| is_over.load(Ordering::Relaxed))
    }
}

impl Transactions {
    /// Those in the hidden directory `dir`; none is known before [`Transactions::recover`].
    pub(super) fn open(dir: BorrowedFd<'_>) -> Result<Self> {
        let [prepared, intents] = [&b"prepared"[..], b"intents"].map(|name| {
            make_dir(dir, name)?;
            open_dir(dir, name)
        });
        Ok(Self { prepared: prepared?, intents: intents?, table: Mutex::default() })
    }

    /// Takes over what an earlier life of the brick left. `is_done` tells whether a commit that was
    /// noted was done.
    pub(super) fn recover(&self, is_done: impl Fn(&Check) -> bool) -> Result<()> {
        for (name, bytes) in load(self.prepared.as_fd())? {
            match Prepared::of_bytes(&bytes).filter(|prepared| name_of(prepared.tx) == name) {
                Some(prepared) => {
                    let tx = prepared.tx;
                    self.table.lock().entry(tx).or_default().prepared = Some(prepared);
                }
                None => error!(
                    name,
                    "a promise that cannot be read; a later version made it, or it is damaged"
                ),
            }
        }
        for (name, bytes) in load(self.intents.as_fd())? {
            let (of, is_new) = name.strip_suffix(NEW).map_or((&name[..], false), |of| (of, true));
            let Some(noted) =
                Noted::of_bytes(&bytes).filter(|noted| name_of(noted.intent.tx) == of)
            else {
                error!(
                    name,
                    "an intent that cannot be read; a later version made it, or it is damaged"
                );
                continue;
            };
            let Noted { check, intent } = noted;
            if is_new && !is_done(&check) {
                unlinkat(&self.intents, &name, AtFlags::empty())?;
                continue;
            }
            if is_new && intent.duties.is_empty() {
                unlinkat(&self.intents, &name, AtFlags::empty())?;
            } else if is_new {
                renameat(&self.intents, &name, &self.intents, of)?;
                sync_dir(self.intents.as_fd())?;
            }
            if !intent.duties.is_empty() {
                let tx = intent.tx;
                self.table.lock().entry(tx).or_default().intent = Some(intent);
            }
        }
        let count = self.table.lock().len();
        if count > 0 {
            info!(count, "changes on several bricks wait to be led to their end by a gateway");
        }
        Ok(())
    }

    /// What is held for each transaction that is on disk.
    pub(super) fn all_needed(&self) -> Vec<(TxId, Needed)> {
        self.table.lock().iter().map(|(tx, state)| (*tx, state.needed())).collect()
    }

    /// What is held for a transaction, by what of it is on disk.
    pub(super) fn needed(&self, tx: TxId) -> Needed {
        self.table.lock().get(&tx).map(State::needed).unwrap_or_default()
    }

    /// What is not through: what nobody leads any more, and what somebody does.
    pub(crate) fn unfinished(&self) -> (Vec<Unfinished>, Vec<Unfinished>) {
        let table = self.table.lock();
        let of = |is_orphan: bool| {
            table
                .iter()
                .filter(|(_, state)| state.is_orphan() == is_orphan)
                .flat_map(|(tx, state)| state.unfinished(*tx))
                .take(UNFINISHED_TOLD_MAX / 2)
                .collect()
        };
        (of(true), of(false))
    }

    /// What was promised for a transaction.
    pub(super) fn prepared(&self, tx: TxId) -> Option<Prepared> {
        self.table.lock().get(&tx)?.prepared.clone()
    }

    /// The intent of a transaction that is committed.
    pub(super) fn intent(&self, tx: TxId) -> Option<Intent> {
        self.table.lock().get(&tx)?.intent.clone()
    }

    /// What the transactions carried out whose intents are on disk.
    pub(super) fn causes(&self) -> Vec<(TxId, Cause)> {
        let cause = |(tx, state): (&TxId, &State)| Some((*tx, state.intent.as_ref()?.cause?));
        self.table.lock().iter().filter_map(cause).collect()
    }

    /// Whether somebody has promised to tell the copies of a directory that it changes.
    pub(super) fn refreshes(&self, id: &DirId) -> bool {
        let is_of = |duty: &Duty| matches!(duty, Duty::Refresh { id: of } if of == id);
        let table = self.table.lock();
        table.values().any(|state| {
            state.intent.as_ref().is_some_and(|intent| intent.duties.iter().any(is_of))
        })
    }

    /// Promises a part, unless it is promised.
    pub(super) fn prepare(
        &self,
        tx: TxId,
        coordinator: MemberId,
        part: &Preparation,
        led_by: &Arc<AtomicBool>,
    ) -> Result<()> {
        let known = self.prepared(tx);
        let mut prepared = known.unwrap_or_else(|| Prepared { tx, coordinator, parts: Vec::new() });
        if !prepared.parts.contains(part) {
            prepared.parts.push(part.clone());
            store(self.prepared.as_fd(), &name_of(tx), &prepared.to_bytes())?;
        }
        let mut table = self.table.lock();
        let state = table.entry(tx).or_default();
        state.prepared = Some(prepared);
        state.led_by = Some(led_by.clone());
        Ok(())
    }

    /// What was promised is done or undone.
    pub(super) fn end_prepared(&self, tx: TxId) -> Result<()> {
        remove(self.prepared.as_fd(), &name_of(tx))?;
        self.change(tx, |state| state.prepared = None);
        Ok(())
    }

    /// Commits by `change`, of which `noted.check` tells whether it was done, and which is on stable
    /// storage when it is done.
    pub(super) fn commit(
        &self,
        noted: Noted,
        led_by: &Arc<AtomicBool>,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<Intent> {
        let tx = noted.intent.tx;
        let name = name_of(tx);
        let new = format!("{name}{NEW}");
        store(self.intents.as_fd(), &new, &noted.to_bytes())?;
        if let Err(error) = change() {
            remove(self.intents.as_fd(), &new)?;
            return Err(error);
        }
        let Noted { intent, .. } = noted;
        if intent.duties.is_empty() {
            remove(self.intents.as_fd(), &new)?;
            return Ok(intent);
        }
        renameat(&self.intents, &new, &self.intents, &name)?;
        sync_dir(self.intents.as_fd())?;
        self.enter(intent.clone(), led_by);
        Ok(intent)
    }

    /// Leaves an intent that goes with no change.
    pub(super) fn mark(&self, intent: Intent, led_by: &Arc<AtomicBool>) -> Result<()> {
        let noted = Noted { check: Check::Done, intent };
        store(self.intents.as_fd(), &name_of(noted.intent.tx), &noted.to_bytes())?;
        self.enter(noted.intent, led_by);
        Ok(())
    }

    /// All that a transaction wanted is done.
    pub(super) fn forget(&self, tx: TxId) -> Result<()> {
        remove(self.intents.as_fd(), &name_of(tx))?;
        self.change(tx, |state| state.intent = None);
        Ok(())
    }

    /// Somebody leads a transaction to its end.
    pub(super) fn led(&self, tx: TxId, led_by: &Arc<AtomicBool>) {
        if let Some(state) = self.table.lock().get_mut(&tx) {
            state.led_by = Some(led_by.clone());
        }
    }

    fn enter(&self, intent: Intent, led_by: &Arc<AtomicBool>) {
        let mut table = self.table.lock();
        let state = table.entry(intent.tx).or_default();
        state.intent = Some(intent);
        state.led_by = Some(led_by.clone());
    }

    fn change(&self, tx: TxId, change: impl FnOnce(&mut State)) {
        let mut table = self.table.lock();
        if let Some(state) = table.get_mut(&tx) {
            change(state);
            if state.prepared.is_none() && state.intent.is_none() {
                table.remove(&tx);
            }
        }
    }
}

fn name_of(tx: TxId) -> String {
    format!("{:032x}-{:016x}", tx.gateway, tx.number)
}

/// Writes a file whole, or not at all.
fn store(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<()> {
    let written = format!("{name}~");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = openat(dir, &written, flags, Mode::RUSR | Mode::WUSR)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = write(&file, rest)?;
        rest = &rest[len..];
    }
    fsync(&file)?;
    renameat(dir, &written, dir, name)?;
    sync_dir(dir)
}

fn remove(dir: BorrowedFd<'_>, name: &str) -> Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Waits until the names of a directory are on stable storage.
pub(super) fn sync_dir(dir: BorrowedFd<'_>) -> Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fsync(openat(dir, c".", flags, Mode::empty())?) {
        // Some file systems have nothing to write back.
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Names and contents of all files of a directory; what was just being written goes.
fn load(dir: BorrowedFd<'_>) -> Result<Vec<(String, Vec<u8>)>> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = openat(dir, c".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&list)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    let mut files = Vec::new();
    for name in names {
        if name.ends_with('~') {
            unlinkat(dir, &name, AtFlags::empty())?;
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(dir, &name, flags, Mode::empty())?;
        let mut bytes = vec![0; LEN_BYTES_MAX];
        let len = read(&file, &mut bytes)?;
        bytes.truncate(len);
        files.push((name, bytes));
    }
    Ok(files)
}
