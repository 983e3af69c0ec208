//! Listing a directory: `getdents64` in large buffers, then each name examined and packed.
//!
//! A scan goes in steps. Each step is a short piece of blocking work that answers a few chunks;
//! between steps it holds a descriptor and the names read ahead, but no thread. So flow control
//! stops a scan by not asking for the next step. The first step is small, so that the first
//! entries are out at once.
//!
//! What must hold: every name that is there throughout the scan is told exactly once, with the
//! cookie after which the directory goes on. A name that is gone when it is examined is left out;
//! a name that cannot be examined stays, without attributes. An end is said only when the
//! directory said so.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use portcullis_core::contents::{Listed, Packing};
use portcullis_core::entry::is_valid_name;
use portcullis_core::limits::INLINE_CHUNK_BYTES;
use portcullis_core::{Entry, FileKind, Handle, Status, Timestamp};
use portcullis_wire::message::Failure;
use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;
use tracing::warn;

use crate::contents::Contents;
use crate::error::failure;
use crate::handles::{Directory, Handles, birth_now};
use crate::name;
use crate::service::BrickCounters;
use crate::volume::asks::check_arbiter;
use crate::watcher::{self, Watcher};

/// Entries of the first step. Each further one has four times as many,
const FIRST_STEP_ENTRIES: usize = 32;
/// up to these: four chunks, about a millisecond.
const STEP_ENTRIES_MAX: usize = 512;
/// Room for the first getdents64: enough for most directories.
const FIRST_BUFFER_LEN_BYTES: usize = 32 * 1024;
/// Room for every further one.
const BUFFER_LEN_BYTES: usize = 256 * 1024;

/// A listing under way.
pub(crate) struct Scan {
    handles: Arc<Handles>,
    watcher: Option<Watcher>,
    dir: Directory,
    is_root: bool,
    list: OwnedFd,
    ahead: NamesAhead,
    buffer_len: usize,
    step_entries: usize,
    contents: Option<Contents>,
    counters: Arc<BrickCounters>,
}

/// Which contents a listing is to bring along: those of files of at most so many bytes.
pub(crate) type Wanted = Option<u32>;

/// What one step found.
pub(crate) struct Step {
    /// Entries, in order.
    pub(crate) listed: Vec<Listed>,
    /// Whether they were the last.
    pub(crate) is_last: bool,
}

impl Scan {
    /// Begins a listing of `dir`, after the entry with the cookie in `after` if there is one; `None`
    /// where this member of a volume has no names of the directory.
    pub(crate) fn begin(
        handles: Arc<Handles>,
        dir: &Handle,
        after: &[u64],
        watcher: Option<Watcher>,
        contents: Wanted,
        counters: Arc<BrickCounters>,
    ) -> Result<Option<Self>, Failure> {
        let Some(dir) = watcher::directory(watcher.as_ref(), &handles, dir)? else {
            return Ok(None);
        };
        let list = handles.export().open_for_list(dir.fd.as_fd()).map_err(failure)?;
        match *after {
            [] | [0] => {}
            [cookie] => resume_after(&list, cookie)?,
            _ => {
                let detail =
                    format!("{} cookies, where one brick has at most one position", after.len());
                return Err(Failure::new(Status::InvalidArgument, detail));
            }
        }
        let contents = watcher
            .as_ref()
            .zip(contents)
            .and_then(|(watcher, size_bytes_max)| Contents::new(size_bytes_max, watcher.notices()));
        Ok(Some(Self {
            contents,
            counters,
            is_root: dir.handle == *handles.root(),
            handles,
            watcher,
            dir,
            list,
            ahead: NamesAhead::default(),
            buffer_len: FIRST_BUFFER_LEN_BYTES,
            step_entries: FIRST_STEP_ENTRIES,
        }))
    }

    /// The next entries.
    pub(crate) fn step(&mut self) -> Result<Step, Failure> {
        let mut packing = Packing::new(self.brick());
        let mut contents_len_bytes = 0;
        let mut is_last = false;
        let since = birth_now();
        for _ in 0..self.step_entries {
            if contents_len_bytes >= INLINE_CHUNK_BYTES {
                break;
            }
            if self.ahead.is_empty() && !self.read_names()? {
                is_last = true;
                break;
            }
            let Some(raw) = self.ahead.next() else { break };
            let name = self.ahead.name(raw);
            if self.is_stray(name) {
                continue;
            }
            let Some(entry) = self.examine(name, raw, since)? else { continue };
            let content = self
                .contents
                .as_mut()
                .and_then(|contents| contents.read(&self.handles, &self.dir, name, &entry));
            contents_len_bytes += content.as_ref().map_or(0, Vec::len);
            packing.push(&entry.as_ref(name, raw.cookie), content.map(Bytes::from));
        }
        let listed = packing.finish();
        self.step_entries = (self.step_entries * 4).min(STEP_ENTRIES_MAX);
        Ok(Step { listed, is_last })
    }

    /// The number of the brick among those of its volume.
    fn brick(&self) -> u16 {
        self.handles.member().map_or(0, |member| member.number().into())
    }

    /// Whether a name lies here that another member of the volume arbitrates.
    fn is_stray(&self, name: &[u8]) -> bool {
        let is_stray = check_arbiter(&self.handles, &self.dir.handle, name).is_err();
        if is_stray && self.counters.strays.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = name.escape_ascii();
            warn!(%name, dir = ?self.dir.handle, "another program made a name where another member \
                of the volume arbitrates it: nobody is told of it. Further ones are counted only");
        }
        is_stray
    }

    /// The entry of a name, `None` where the name is gone.
    fn examine(
        &self,
        name: &[u8],
        raw: RawName,
        since: Timestamp,
    ) -> Result<Option<Entry>, Failure> {
        let quick = || match raw.kind {
            FileKind::Symlink => {
                let pointer = self.handles.pointer_by_name(&self.dir, name)?;
                Some(self.handles.pointer_entry(&pointer, |_, _| {}))
            }
            _ => self.handles.entry_by_name(&self.dir, name, since),
        };
        let entry = match &self.watcher {
            Some(watcher) => watcher.entry(&self.handles, &self.dir, name, quick),
            None => quick().map_or_else(|| self.handles.entry(&self.dir, name), Ok),
        };
        match entry {
            Ok(entry) => Ok(Some(entry)),
            Err(Errno::NOENT) => Ok(None),
            // Not this name's fault: the next one would fare no better.
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(failure(error)),
            Err(_) => {
                self.handles.unreadable_entry(&self.dir, name, raw.kind).map(Some).map_err(failure)
            }
        }
    }

    /// Reads one buffer of names; `false` at the end of the directory.
    fn read_names(&mut self) -> Result<bool, Failure> {
        let mut buffer = vec![MaybeUninit::uninit(); self.buffer_len];
        self.buffer_len = BUFFER_LEN_BYTES;
        let mut dir = RawDir::new(&self.list, &mut buffer);
        self.ahead.clear();
        // A buffer may hold nothing but names that are left out; then the next one is read.
        while self.ahead.is_empty() {
            loop {
                let entry = match dir.next() {
                    None => return Ok(!self.ahead.is_empty()),
                    Some(Ok(entry)) => entry,
                    // The directory itself was removed.
                    Some(Err(Errno::NOENT)) => return Err(Status::Stale.into()),
                    Some(Err(error)) => return Err(failure(error)),
                };
                let name = entry.file_name().to_bytes();
                if self.is_root && name::is_own(name) {
                    // The brick's own.
                } else if is_valid_name(name) {
                    self.ahead.push(name, kind(entry.file_type()), entry.next_entry_cookie());
                } else if name != b"." && name != b".." {
                    warn!(name = %name.escape_ascii(), "the file system lists an impossible name");
                }
                if dir.is_buffer_empty() {
                    break;
                }
            }
        }
        Ok(true)
    }
}

fn resume_after(list: &OwnedFd, cookie: u64) -> Result<(), Failure> {
    let nonsense = || {
        let detail =
            format!("{cookie:#x} is no position in this directory; list it from the start");
        Failure::new(Status::InvalidArgument, detail)
    };
    if i64::try_from(cookie).is_err() {
        return Err(nonsense());
    }
    match seek(list, SeekFrom::Start(cookie)) {
        Ok(_) => Ok(()),
        Err(Errno::INVAL) => Err(nonsense()),
        Err(error) => Err(failure(error)),
    }
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Unknown => FileKind::Unknown,
        known => FileKind::of_mode(known.as_raw_mode()),
    }
}

/// Names read from the directory and not yet examined.
#[derive(Default)]
struct NamesAhead {
    names: Vec<u8>,
    raw: Vec<RawName>,
    next: usize,
}

/// One of them.
#[derive(Clone, Copy)]
struct RawName {
    cookie: u64,
    /// Where in [`NamesAhead::names`] it lies.
    start: u32,
    len: u8,
    kind: FileKind,
}

impl NamesAhead {
    fn push(&mut self, name: &[u8], kind: FileKind, cookie: u64) {
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        self.raw.push(RawName { cookie, start, len: name.len() as u8, kind });
    }

    fn is_empty(&self) -> bool {
        self.next == self.raw.len()
    }

    fn next(&mut self) -> Option<RawName> {
        let raw = *self.raw.get(self.next)?;
        self.next += 1;
        Some(raw)
    }

    fn name(&self, raw: RawName) -> &[u8] {
        let start = raw.start as usize;
        &self.names[start..start + usize::from(raw.len)]
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Chunk;

    use crate::HandleChoice;
    use crate::export::Export;

    fn handles(dir: &tempfile::TempDir) -> Arc<Handles> {
        let export = Export::open(dir.path()).expect("it opens");
        Arc::new(Handles::new(export, &[1; 32], HandleChoice::Auto).expect("handles"))
    }

    fn names(step: &Step) -> Vec<Vec<u8>> {
        let chunks = step.listed.iter().map(|listed| &listed.chunk);
        chunks.flat_map(Chunk::entries).map(|entry| entry.name.to_vec()).collect()
    }

    fn begin(handles: Arc<Handles>, dir: &Handle, after: &[u64]) -> Scan {
        let scan = Scan::begin(handles, dir, after, None, None, Arc::default()).expect("it begins");
        scan.expect("it has names")
    }

    #[test]
    fn names_that_went_after_they_were_read_are_left_out_and_the_rest_told() {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 0..400 {
            std::fs::write(dir.path().join(format!("{number:03}")), b"").expect("written");
        }
        let handles = handles(&dir);
        let root = handles.root_entry().expect("a root").handle;
        let mut scan = begin(handles, &root, &[]);
        let first = scan.step().expect("a step");
        let mut seen = names(&first);
        assert_eq!(seen.len(), FIRST_STEP_ENTRIES);
        assert_eq!(scan.ahead.raw.len(), 400, "all names are read by now");
        let seen_first = seen.clone();
        for number in (0..400).step_by(2) {
            std::fs::remove_file(dir.path().join(format!("{number:03}"))).expect("removed");
        }
        loop {
            let step = scan.step().expect("a step");
            seen.extend(names(&step));
            if step.is_last {
                break;
            }
        }
        let mut wanted: Vec<Vec<u8>> =
            (0..400).map(|number| format!("{number:03}").into_bytes()).collect();
        wanted.retain(|name| name[2] % 2 == 1 || seen_first.contains(name));
        seen.sort();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_listing_resumes_exactly_after_every_entry() {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 0..5000 {
            std::fs::write(dir.path().join(format!("{number:04}")), b"").expect("written");
        }
        let handles = handles(&dir);
        let root = handles.root_entry().expect("a root").handle;
        let mut whole = Vec::new();
        let mut scan = begin(handles.clone(), &root, &[]);
        loop {
            let step = scan.step().expect("a step");
            let entries = step.listed.iter().flat_map(|listed| listed.chunk.entries());
            whole.extend(entries.map(|entry| (entry.name.to_vec(), entry.cookie)));
            if step.is_last {
                break;
            }
        }
        assert_eq!(whole.len(), 5000);
        for (index, &(_, cookie)) in whole.iter().enumerate() {
            let mut scan = begin(handles.clone(), &root, &[cookie]);
            let step = scan.step().expect("a step");
            let rest = &whole[index + 1..];
            let next = &rest[..rest.len().min(FIRST_STEP_ENTRIES)];
            let told = names(&step);
            assert!(told.iter().eq(next.iter().map(|(name, _)| name)), "after entry {index}");
            assert_eq!(step.is_last, rest.len() < FIRST_STEP_ENTRIES, "after entry {index}");
        }
    }

    #[test]
    fn a_directory_removed_under_a_scan_is_stale() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("gone")).expect("made");
        let handles = handles(&dir);
        let root = handles.root_entry().expect("a root").handle;
        let root = handles.directory(&root).expect("the root");
        let gone = handles.entry(&root, b"gone").expect("there").handle;
        let mut scan = begin(handles, &gone, &[]);
        std::fs::remove_dir(dir.path().join("gone")).expect("removed");
        assert_eq!(scan.step().err().map(|failure| failure.status), Some(Status::Stale));
    }
}
