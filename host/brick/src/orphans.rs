//! Files without a name that are still open somewhere.
//!
//! A client that holds a file open may come back to it after its connection, or this brick, was
//! restarted; the file must then still be there. So a file that is held and loses its last name
//! gets another one in a hidden directory in the root of the export, and is an **orphan**: nobody
//! sees that name, and its attributes are told with one link less. When its last holder is gone it
//! is unlinked.
//!
//! Who holds a file is known while its sessions last ([`Held`]). A session that is lost, and a
//! brick that was restarted, leave its files held for [`GRACE_MS`], in which holders come back:
//! after a start that is every file which is older than the brick's process.
//!
//! What must hold: whoever removes a name decides whether the file is held, and removes it, while
//! nobody else begins to hold it or removes another of its names ([`Busy`]).

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_core::entry::is_valid_name;
use portcullis_core::{Attr, FileKind, Handle, Timestamp};
use rustix::fs::{AtFlags, CWD, Mode, RawDir, linkat, mkdirat, unlinkat};
use rustix::io::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};
use tracing::{info, warn};

use crate::export::proc_path;
use crate::handles::{Directory, FileNumber, Handles};

/// The hidden directory, in the root of the export.
pub(crate) const ORPHANS_DIR: &[u8] = b".portcullis-orphans";
/// How long a file is kept for holders whose session was lost or that an earlier life of the
/// brick knew. Far longer than anybody takes to connect again.
pub(crate) const GRACE_MS: u64 = 60_000;
/// Orphans kept at once; whatever loses its last name beyond that goes at once, as far as other
/// lives of the brick are concerned.
const ORPHANS_MAX: usize = 1024 * 1024;
/// The end of the name of an orphan that never had another name and may be given one.
const TEMPORARY: char = 't';

/// The orphans of one export, and who holds its files.
pub(crate) struct Orphans {
    handles: Arc<Handles>,
    /// Made when the first orphan is.
    dir: Mutex<Option<Arc<Directory>>>,
    table: Mutex<Table>,
    /// Notified when a file is no longer busy.
    free: Condvar,
    last_number: AtomicU64,
    grace: Duration,
    /// Files older than this may be held by those who knew an earlier life of the brick,
    born_before: Timestamp,
    /// until then.
    returning_until: Instant,
    warned: AtomicBool,
    /// The hidden directory was made, and nobody was told yet.
    made_dir: AtomicBool,
}

#[derive(Default)]
struct Table {
    files: HashMap<Handle, File>,
    orphans: usize,
    /// Files whose names are just being removed or added.
    busy: HashSet<Handle>,
}

/// A file that is held or an orphan.
#[derive(Default)]
struct File {
    holders: usize,
    /// Until when lost holders may come back.
    kept_until: Option<Instant>,
    orphan: Option<Orphan>,
}

/// The name of an orphan: `number[.file][t]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Orphan {
    number: u64,
    /// Where the handle of the file holds a number that only this brick knows: so that the next
    /// life of the brick knows it too.
    file: Option<FileNumber>,
    /// It may be given a name.
    is_temporary: bool,
}

impl Orphan {
    fn name(self) -> String {
        let file = self.file.map(|number| format!(".{number}")).unwrap_or_default();
        let end = if self.is_temporary { TEMPORARY.to_string() } else { String::new() };
        format!("{}{file}{end}", self.number)
    }

    fn parse(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        let (numbers, is_temporary) = match name.strip_suffix(TEMPORARY) {
            Some(numbers) => (numbers, true),
            None => (name, false),
        };
        let (number, file) = match numbers.split_once('.') {
            Some((number, file)) => (number, Some(file.parse().ok()?)),
            None => (numbers, None),
        };
        let orphan = Self { number: number.parse().ok()?, file, is_temporary };
        (orphan.name() == name).then_some(orphan)
    }
}

/// Keeps a file for whoever has it open.
pub(crate) struct Held {
    orphans: Arc<Orphans>,
    handle: Handle,
    lost: AtomicBool,
}

impl Held {
    /// The session of the holder was lost: it may come back within the grace time.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// The file.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Held {
    /// May block.
    fn drop(&mut self) {
        self.orphans.let_go(&self.handle, self.lost.load(Ordering::Relaxed));
    }
}

impl Orphans {
    /// The orphans of an export; those of an earlier life are kept for the grace time.
    pub(crate) fn new(handles: Arc<Handles>) -> Arc<Self> {
        Self::with_grace(handles, Duration::from_millis(GRACE_MS))
    }

    pub(crate) fn with_grace(handles: Arc<Handles>, grace: Duration) -> Arc<Self> {
        let orphans = Self {
            handles,
            dir: Mutex::new(None),
            table: Mutex::default(),
            free: Condvar::new(),
            last_number: AtomicU64::new(0),
            grace,
            born_before: now(),
            returning_until: Instant::now() + grace,
            warned: AtomicBool::new(false),
            made_dir: AtomicBool::new(false),
        };
        match orphans.adopt() {
            Ok(0) | Err(Errno::NOENT) => {}
            Ok(count) => info!(count, "files without a name wait for whoever had them open"),
            Err(error) => warn!(%error, "files without a name cannot be looked for"),
        }
        Arc::new(orphans)
    }

    /// Takes over the orphans of an earlier life.
    fn adopt(&self) -> Result<usize> {
        let export = self.handles.export();
        let fd = export.open_name(export.root(), ORPHANS_DIR)?;
        let dir = self.handles.own_directory(fd, ORPHANS_DIR)?;
        let list = export.open_for_list(dir.fd.as_fd())?;
        let mut table = self.table.lock();
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut names = RawDir::new(&list, buffer.spare_capacity_mut());
        while let Some(entry) = names.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let Some(orphan) = Orphan::parse(name).filter(|_| is_valid_name(name)) else {
                continue;
            };
            let found = self.handles.adopted_entry(&dir, name, orphan.file);
            let Ok(found) = found else { continue };
            let kept_until = Some(self.returning_until);
            table.files.insert(found.handle, File { holders: 0, kept_until, orphan: Some(orphan) });
            table.orphans += 1;
            self.last_number.fetch_max(orphan.number, Ordering::Relaxed);
        }
        let count = table.orphans;
        drop(table);
        *self.dir.lock() = Some(Arc::new(dir));
        Ok(count)
    }

    /// Holds a file from now on. Call it before the file is opened: once it answers, the file
    /// is there and stays, or was gone before.
    pub(crate) fn hold(self: &Arc<Self>, handle: &Handle) -> Held {
        let mut table = self.when_free(handle);
        table.files.entry(*handle).or_default().holders += 1;
        Held { orphans: self.clone(), handle: *handle, lost: AtomicBool::new(false) }
    }

    /// Whether the hidden directory was made since this was asked last: then the attributes of the
    /// root are others than were told.
    pub(crate) fn has_made_dir(&self) -> bool {
        self.made_dir.swap(false, Ordering::Relaxed)
    }

    /// What a file's attributes are told to be.
    pub(crate) fn told(&self, handle: &Handle, attr: Attr) -> Attr {
        let attr = self.handles.told(handle, attr);
        if self.is_orphan(handle) {
            return Attr { nlink: attr.nlink.saturating_sub(1), ..attr };
        }
        attr
    }

    /// Whether the file has no name that anybody sees.
    pub(crate) fn is_orphan(&self, handle: &Handle) -> bool {
        self.table.lock().files.get(handle).is_some_and(|file| file.orphan.is_some())
    }

    /// Does `remove`, which takes one name from `victim`, and keeps the file if it is held and
    /// this was its last name.
    pub(crate) fn removing<T>(
        &self,
        victim: &Handle,
        remove: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _busy = self.busy(victim);
        let Some((dir, orphan, kept_until)) = self.keep(victim) else {
            return self.handles.removing(victim, remove);
        };
        let removed = remove();
        if removed.is_ok() {
            self.enter(victim, orphan, kept_until);
        } else {
            self.unlink(&dir, orphan);
        }
        removed
    }

    /// Does `link`, which gives `file` a name more. An orphan that may have one is none any more
    /// afterwards; any other orphan is refused, as a file without a name is.
    pub(crate) fn linking<T>(&self, file: &Handle, link: impl FnOnce() -> Result<T>) -> Result<T> {
        let _busy = self.busy(file);
        let orphan = self.table.lock().files.get(file).and_then(|file| file.orphan);
        let Some(orphan) = orphan else { return link() };
        if !orphan.is_temporary {
            return Err(Errno::NOENT);
        }
        let linked = link()?;
        {
            let mut table = self.table.lock();
            table.orphans -= 1;
            if let Some(file) = table.files.get_mut(file) {
                file.orphan = None;
            }
        }
        self.unlink(&*self.dir()?, orphan);
        Ok(linked)
    }

    /// Makes an orphan of a file just made without any name.
    pub(crate) fn adopt_temporary(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        handle: &Handle,
        may_be_linked: bool,
    ) -> Result<Held> {
        let held = self.hold(handle);
        let dir = self.dir()?;
        let orphan = self.link(&dir, fd, handle, may_be_linked)?;
        if let Some(number) = orphan.file {
            self.handles.adopt(fd, number)?;
        }
        self.handles.moved(&dir, orphan.name().as_bytes(), handle, FileKind::Regular);
        self.enter(handle, orphan, None);
        Ok(held)
    }

    /// Unlinks what nobody holds and nobody comes back for, as of `now`. Call it now and then.
    pub(crate) fn sweep(&self, now: Instant) {
        let is_over = |file: &File| file.holders == 0 && file.kept_until.is_none_or(|at| at <= now);
        let over: Vec<Handle> = {
            let table = self.table.lock();
            table
                .files
                .iter()
                .filter(|(_, file)| is_over(file))
                .map(|(handle, _)| *handle)
                .collect()
        };
        for handle in over {
            self.remove_if(&handle, is_over);
        }
    }

    fn let_go(&self, handle: &Handle, is_lost: bool) {
        let now = Instant::now();
        {
            let mut table = self.when_free(handle);
            let Some(file) = table.files.get_mut(handle) else { return };
            file.holders = file.holders.saturating_sub(1);
            if is_lost {
                file.kept_until = Some(now + self.grace);
            }
        }
        self.remove_if(handle, |file| {
            file.holders == 0 && file.kept_until.is_none_or(|at| at <= now)
        });
    }

    /// Forgets a file of which `is_over` holds, and unlinks it where it is an orphan.
    fn remove_if(&self, handle: &Handle, is_over: impl Fn(&File) -> bool) {
        let _busy = self.busy(handle);
        let orphan = {
            let mut table = self.table.lock();
            if !table.files.get(handle).is_some_and(is_over) {
                return;
            }
            let orphan = table.files.remove(handle).and_then(|file| file.orphan);
            table.orphans -= usize::from(orphan.is_some());
            orphan
        };
        if let Some(orphan) = orphan
            && let Ok(dir) = self.dir()
        {
            let unlink = || {
                self.unlink(&dir, orphan);
                Ok(())
            };
            // What it does not unlink it has warned of.
            let _ = self.handles.removing_last(handle, unlink);
        }
    }

    /// Links a file into the hidden directory, where it is held and has one name only.
    fn keep(&self, victim: &Handle) -> Option<(Arc<Directory>, Orphan, Option<Instant>)> {
        let now = Instant::now();
        let is_returning = now < self.returning_until;
        let known = {
            let table = self.table.lock();
            if table.orphans >= ORPHANS_MAX {
                return None;
            }
            let is_held =
                |file: &&File| file.holders > 0 || file.kept_until.is_some_and(|until| until > now);
            table.files.get(victim).filter(is_held).map(|file| file.kept_until)
        };
        // Who knew an earlier life cannot know a file by a number of this one.
        let is_new = self.handles.number_of(victim).is_some();
        if known.is_none() && (!is_returning || is_new) {
            return None;
        }
        let object = self.handles.object(victim).ok()?;
        if object.stat.kind() != FileKind::Regular || object.stat.nlink() != 1 {
            return None;
        }
        let kept_until = match known {
            Some(kept_until) => kept_until,
            None if object.stat.birth() < self.born_before => Some(self.returning_until),
            None => return None,
        };
        let linked = self.dir().and_then(|dir| {
            let orphan = self.link(&dir, object.fd.as_fd(), victim, false)?;
            Ok((dir, orphan, kept_until))
        });
        linked.inspect_err(|error| self.warn_once(*error)).ok()
    }

    fn enter(&self, handle: &Handle, orphan: Orphan, kept_until: Option<Instant>) {
        if let Some(dir) = &*self.dir.lock() {
            self.handles.moved(dir, orphan.name().as_bytes(), handle, FileKind::Regular);
        }
        let mut table = self.table.lock();
        let file = table.files.entry(*handle).or_default();
        file.kept_until = file.kept_until.max(kept_until);
        file.orphan = Some(orphan);
        table.orphans += 1;
    }

    fn link(
        &self,
        dir: &Directory,
        fd: BorrowedFd<'_>,
        handle: &Handle,
        is_temporary: bool,
    ) -> Result<Orphan> {
        let file = self.handles.number_of(handle);
        loop {
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let orphan = Orphan { number, file, is_temporary };
            let name = orphan.name();
            match linkat(CWD, proc_path(fd), &dir.fd, name, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(orphan),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn unlink(&self, dir: &Directory, orphan: Orphan) {
        match unlinkat(&dir.fd, orphan.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => warn!(%error, name = orphan.name(), "an orphan cannot be unlinked"),
        }
    }

    /// The hidden directory, made now if there is none.
    fn dir(&self) -> Result<Arc<Directory>> {
        let mut known = self.dir.lock();
        if let Some(dir) = &*known
            && !self.handles.export().is_removed(dir.fd.as_fd())
        {
            return Ok(dir.clone());
        }
        let export = self.handles.export();
        match mkdirat(export.root(), ORPHANS_DIR, Mode::RWXU) {
            Ok(()) => self.made_dir.store(true, Ordering::Relaxed),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let fd: OwnedFd = export.open_name(export.root(), ORPHANS_DIR)?;
        let dir = Arc::new(self.handles.own_directory(fd, ORPHANS_DIR)?);
        *known = Some(dir.clone());
        Ok(dir)
    }

    fn warn_once(&self, error: Errno) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                %error,
                "open files that lose their last name do not outlive a restart of the brick here"
            );
        }
    }

    fn when_free(&self, handle: &Handle) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        self.free.wait_while(&mut table, |table| table.busy.contains(handle));
        table
    }

    fn busy(&self, handle: &Handle) -> Busy<'_> {
        self.when_free(handle).busy.insert(*handle);
        Busy { orphans: self, handle: *handle }
    }
}

/// No file that is there has been born later.
fn now() -> Timestamp {
    // The coarse clock, from which file systems mostly take times, may be behind some of them.
    let now = clock_gettime(ClockId::Realtime);
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
}

/// A file whose names are just being changed: nobody else changes them or begins to hold it.
struct Busy<'a> {
    orphans: &'a Orphans,
    handle: Handle,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.orphans.table.lock().busy.remove(&self.handle);
        self.orphans.free.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::HandleChoice;
    use crate::export::Export;
    use crate::testing::{each_file_system, handles_of, on_bindfs, reuse, until_reused};

    const LONG: Duration = Duration::from_secs(3600);

    /// A file made, and its handle.
    fn file(handles: &Handles, path: &Path, name: &str) -> Handle {
        std::fs::write(path.join(name), b"content").expect("written");
        let root = handles.directory(handles.root()).expect("the root");
        handles.entry(&root, name.as_bytes()).expect("there").handle
    }

    fn hidden(path: &Path) -> Vec<String> {
        let dir = path.join(".portcullis-orphans");
        let Ok(names) = std::fs::read_dir(dir) else { return Vec::new() };
        names.map(|name| name.expect("a name").file_name().into_string().expect("text")).collect()
    }

    fn unlink(path: std::path::PathBuf) -> Result<()> {
        unlinkat(CWD, path, AtFlags::empty())
    }

    #[test]
    fn a_held_file_lives_on_until_its_last_holder_is_gone() {
        each_file_system(|path, choice| {
            let handles = handles_of(path, choice);
            let orphans = Orphans::with_grace(handles.clone(), Duration::ZERO);
            let held = file(&handles, path, "held");
            let other = file(&handles, path, "other");
            let holders = [orphans.hold(&held), orphans.hold(&held)];
            for (handle, name) in [(&held, "held"), (&other, "other")] {
                orphans.removing(handle, || unlink(path.join(name))).expect("removed");
            }
            assert_eq!(hidden(path).len(), 1, "what nobody holds is gone");
            assert!(handles.object(&other).is_err());
            let object = handles.object(&held).expect("it is found by its handle");
            assert_eq!(orphans.told(&held, object.stat.attr()).nlink, 0);
            assert_eq!(orphans.linking(&held, || Ok(())), Err(Errno::NOENT));
            let [first, second] = holders;
            drop(first);
            assert_eq!(hidden(path).len(), 1);
            drop((second, object));
            assert!(hidden(path).is_empty());
            assert!(orphans.table.lock().files.is_empty());
        });
    }

    #[test]
    fn a_file_with_another_name_and_one_whose_removal_failed_are_no_orphans() {
        each_file_system(|path, choice| {
            let handles = handles_of(path, choice);
            let orphans = Orphans::with_grace(handles.clone(), Duration::ZERO);
            let handle = file(&handles, path, "a");
            std::fs::hard_link(path.join("a"), path.join("b")).expect("linked");
            let _held = orphans.hold(&handle);
            orphans.removing(&handle, || unlink(path.join("b"))).expect("removed");
            assert!(!orphans.is_orphan(&handle));
            let failed = orphans.removing(&handle, || Err::<(), _>(Errno::PERM));
            assert_eq!(failed, Err(Errno::PERM));
            assert!(!orphans.is_orphan(&handle) && hidden(path).is_empty());
            orphans.removing(&handle, || unlink(path.join("a"))).expect("removed");
            assert!(orphans.is_orphan(&handle));
        });
    }

    #[test]
    fn orphans_of_an_earlier_life_wait_for_their_holders_and_go_without() {
        each_file_system(|path, choice| {
            let handles = handles_of(path, choice);
            let orphans = Orphans::with_grace(handles.clone(), LONG);
            let [kept, gone] = ["kept", "gone"].map(|name| file(&handles, path, name));
            for (handle, name) in [(&kept, "kept"), (&gone, "gone")] {
                // As where the brick is killed: nobody lets go.
                std::mem::forget(orphans.hold(handle));
                orphans.removing(handle, || unlink(path.join(name))).expect("removed");
            }
            let numbers = hidden(path);
            drop(orphans);
            let handles = handles_of(path, choice);
            let orphans = Orphans::with_grace(handles.clone(), LONG);
            assert!(orphans.is_orphan(&kept) && orphans.is_orphan(&gone));
            let back = orphans.hold(&kept);
            handles.object(&kept).expect("its holder finds it");
            orphans.sweep(Instant::now());
            assert_eq!(hidden(path).len(), 2, "within the grace time");
            orphans.sweep(Instant::now() + LONG);
            assert_eq!(hidden(path).len(), 1);
            assert!(orphans.is_orphan(&kept) && !orphans.is_orphan(&gone));
            let third = file(&handles, path, "third");
            let third_held = orphans.hold(&third);
            orphans.removing(&third, || unlink(path.join("third"))).expect("removed");
            assert!(hidden(path).iter().filter(|name| !numbers.contains(name)).count() == 1);
            drop((back, third_held));
            // Its holder came back and left: nothing is waited for, save for the grace at start.
            orphans.sweep(Instant::now() + LONG);
            assert!(hidden(path).is_empty());
        });
    }

    #[test]
    fn a_lost_holder_may_come_back_to_a_file_removed_meanwhile() {
        each_file_system(|path, choice| {
            let handles = handles_of(path, choice);
            let orphans = Orphans::with_grace(handles.clone(), LONG);
            let handle = file(&handles, path, "file");
            let held = orphans.hold(&handle);
            held.lose();
            drop(held);
            orphans.removing(&handle, || unlink(path.join("file"))).expect("removed");
            assert!(orphans.is_orphan(&handle));
            drop(orphans.hold(&handle));
            assert!(orphans.is_orphan(&handle), "another holder may still be on its way");
            orphans.sweep(Instant::now() + LONG);
            assert!(hidden(path).is_empty());
        });
    }

    #[test]
    fn after_a_start_files_older_than_the_brick_may_be_held_and_newer_ones_not() {
        each_file_system(|path, choice| {
            let handles = handles_of(path, choice);
            let old = file(&handles, path, "old");
            let orphans = Orphans::with_grace(handles.clone(), LONG);
            crate::testing::wait_for_the_next_tick();
            let new = file(&handles, path, "new");
            for (handle, name) in [(&old, "old"), (&new, "new")] {
                orphans.removing(handle, || unlink(path.join(name))).expect("removed");
            }
            assert!(orphans.is_orphan(&old), "someone may hold it since an earlier life");
            assert!(!orphans.is_orphan(&new));
        });
    }

    #[test]
    fn a_numbered_orphan_keeps_its_handle_over_a_restart_and_loses_it_when_it_is_gone() {
        let test = "a_numbered_orphan_keeps_its_handle_over_a_restart_and_loses_it_when_it_is_gone";
        on_bindfs(test, |_, path| {
            until_reused(test, |round| {
                let handles = handles_of(path, HandleChoice::Auto);
                let [handle, other] = ["", "-other"].map(|end| {
                    let handle = file(&handles, path, &format!("{round}{end}"));
                    assert!(handles.number_of(&handle).is_some(), "it has no birth time");
                    handle
                });
                let orphans = Orphans::with_grace(handles.clone(), LONG);
                let held = orphans.hold(&handle);
                for (handle, end) in [(&handle, ""), (&other, "-other")] {
                    let unlink = || unlink(path.join(format!("{round}{end}")));
                    orphans.removing(handle, unlink).expect("removed");
                }
                assert!(orphans.is_orphan(&handle));
                assert!(!orphans.is_orphan(&other), "nobody can hold it since an earlier life");
                held.lose();
                drop((held, orphans, handles));

                let handles = handles_of(path, HandleChoice::Auto);
                let orphans = Orphans::with_grace(handles.clone(), LONG);
                assert!(orphans.is_orphan(&handle));
                let back = orphans.hold(&handle);
                let ino = handles.object(&handle).expect("its holder finds it").stat.ino();
                drop(back);
                orphans.sweep(Instant::now() + LONG);
                assert!(hidden(path).is_empty());
                let make = |name: &str| std::fs::write(path.join(name), b"").expect("written");
                let again = reuse(path, round, ino, make)?;
                let root = handles.directory(handles.root()).expect("the root");
                let next = handles.entry(&root, again.as_bytes()).expect("there").handle;
                assert_ne!(next, handle);
                Some(())
            });
        });
    }

    #[test]
    fn a_foreign_file_in_place_of_the_hidden_directory_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        let link = dir.path().join(".portcullis-orphans");
        std::os::unix::fs::symlink(elsewhere.path(), link).expect("linked");
        let export = Export::open(dir.path()).expect("it opens");
        let handles = Handles::new(export, &[1; 32], HandleChoice::Auto).expect("handles");
        let handles = Arc::new(handles);
        let orphans = Orphans::with_grace(handles.clone(), LONG);
        let handle = file(&handles, dir.path(), "file");
        let _held = orphans.hold(&handle);
        orphans.removing(&handle, || unlink(dir.path().join("file"))).expect("removed");
        assert_eq!(std::fs::read_dir(elsewhere.path()).expect("listed").count(), 0);
        assert!(!orphans.is_orphan(&handle));
    }

    #[test]
    fn names_of_orphans_are_read_as_they_are_written() {
        let files = [None, FileNumber::new(1), Some(FileNumber::MAX)];
        for (file, is_temporary) in files.into_iter().zip([false, true, false]) {
            for number in [7, u64::MAX] {
                let orphan = Orphan { number, file, is_temporary };
                assert_eq!(Orphan::parse(orphan.name().as_bytes()), Some(orphan));
            }
        }
        for other in ["", "t", "+7", "07", "7x", "-1", "7.", ".7", "7.0", "7.01", "\u{661}"] {
            assert!(Orphan::parse(other.as_bytes()).is_none(), "{other}");
        }
    }
}
