//! Tokens by which requests are answered.
//!
//! A request comes with a [`Reply`], which can be moved to any thread or task and is used up by
//! answering. Dropped unanswered, it answers EIO, so no caller of the file system waits for ever.
//! Its type says which answer the request takes.
//!
//! An answer may come too late: the mount is gone. Then the kernel did not take what the answer
//! gives (a lookup reference, an open file), and [`Delivery::Lost`] tells the file system to take
//! it back.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tracing::{debug, warn};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{
    AttrOut, CopyFileRangeOut, EntryOut, FileLock, GetxattrOut, LseekOut, OpenOut, StatfsOut,
    WriteOut,
};
use crate::channel::Channel;
use crate::directory::DirectoryBuffer;
use crate::interrupt::Interrupts;
use crate::request::{LockKind, LockRange};

/// Answer of LOOKUP, MKNOD, MKDIR, SYMLINK and LINK: an entry.
#[derive(Debug)]
pub enum Entry {}
/// Answer of CREATE and TMPFILE: an entry, and a number for the open file.
#[derive(Debug)]
pub enum Created {}
/// Answer of GETATTR and SETATTR: attributes.
#[derive(Debug)]
pub enum Attr {}
/// Answer of READLINK and READ: bytes.
#[derive(Debug)]
pub enum Data {}
/// Answer of OPEN and OPENDIR: a number for the open file.
#[derive(Debug)]
pub enum Opened {}
/// Answer of WRITE: how many bytes.
#[derive(Debug)]
pub enum Written {}
/// Answer of COPY_FILE_RANGE: how many bytes.
#[derive(Debug)]
pub enum Copied {}
/// Answer of LSEEK: an offset.
#[derive(Debug)]
pub enum Position {}
/// Answer of GETLK: the lock in the way, if any.
#[derive(Debug)]
pub enum LockFound {}
/// Answer of READDIR and READDIRPLUS: packed entries.
#[derive(Debug)]
pub enum Directory {}
/// Answer of STATFS.
#[derive(Debug)]
pub enum Statfs {}
/// Answer of GETXATTR and LISTXATTR: a value, or its size.
#[derive(Debug)]
pub enum Xattr {}
/// Answer of a request that says only that it is done.
#[derive(Debug)]
pub enum Done {}

/// Whether the kernel took an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It did, and with it every reference or open file that the answer gives.
    Taken,
    /// It did not; what the answer gives belongs to the file system again.
    Lost,
}

/// The duty to answer one request.
pub struct Reply<Answer> {
    token: Token,
    answer: PhantomData<fn(Answer)>,
}

impl<Answer> std::fmt::Debug for Reply<Answer> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("unique", &self.token.unique).finish_non_exhaustive()
    }
}

impl<Answer> Reply<Answer> {
    pub(crate) fn new(token: Token) -> Self {
        Self { token, answer: PhantomData }
    }

    /// Answers that the request failed.
    pub fn error(mut self, errno: Errno) {
        self.token.send(-errno.raw_os_error(), &[]);
    }

    /// Calls `hook`, on some thread of the session, when a signal interrupts the caller while the
    /// request is under way; at once if it was interrupted already, never once it is answered.
    ///
    /// An interrupt is a hint: the request still has to be answered, with EINTR if it gave up. The
    /// kernel tells of the first signal only, and also of those that do not kill.
    pub fn on_interrupt(&mut self, hook: impl FnOnce() + Send + 'static) {
        self.token.hooked = true;
        self.token.interrupts.register(self.token.unique, Box::new(hook));
    }

    fn send_struct(mut self, body: &(impl IntoBytes + Immutable)) -> Delivery {
        self.token.send(0, &[body.as_bytes()])
    }
}

impl Reply<Entry> {
    /// Answers with an entry; its nodeid has one more reference, which the kernel gives back by
    /// `forget`.
    #[must_use = "a lost entry's reference must be taken back"]
    pub fn entry(self, entry: &EntryOut) -> Delivery {
        self.send_struct(entry)
    }

    /// Answers a lookup that there is no such entry, which the kernel may believe for a while.
    /// Unlike ENOENT, which it asks again each time.
    pub fn no_entry(self, valid: Duration) {
        self.send_struct(&EntryOut {
            entry_valid: valid.as_secs(),
            entry_valid_nsec: valid.subsec_nanos(),
            ..EntryOut::default()
        });
    }
}

impl Reply<Created> {
    /// Answers with an entry, as [`Reply::entry`] does, and the number of the open file, as
    /// [`Reply::opened`] does.
    #[must_use = "a lost entry's reference must be taken back, and its open file closed"]
    pub fn created(mut self, entry: &EntryOut, file: u64, open_flags: u32) -> Delivery {
        let opened = OpenOut { fh: file, open_flags, padding: 0 };
        self.token.send(0, &[entry.as_bytes(), opened.as_bytes()])
    }
}

impl Reply<Attr> {
    /// Answers with attributes.
    pub fn attr(self, attr: &AttrOut) {
        self.send_struct(attr);
    }
}

impl Reply<Data> {
    /// Answers with bytes, in parts that follow one another. More than the kernel asked for is a
    /// mistake and answered EIO; fewer mean the end of the file.
    pub fn data(mut self, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.token.len_max {
            warn!(len, asked = self.token.len_max, "an answer longer than the kernel asked for");
            return self.error(Errno::IO);
        }
        self.token.send(0, parts);
    }
}

impl Reply<Opened> {
    /// Answers with the number by which later requests name the open file, until `release`.
    #[must_use = "a lost open file must be closed"]
    pub fn opened(self, file: u64, open_flags: u32) -> Delivery {
        self.send_struct(&OpenOut { fh: file, open_flags, padding: 0 })
    }
}

impl Reply<Written> {
    /// Answers how many bytes were written, at most as many as there were. Fewer end the
    /// program's write early.
    pub fn written(self, len_bytes: u32) {
        if len_bytes as usize > self.token.len_max {
            warn!(len_bytes, asked = self.token.len_max, "more written than there was");
            return self.error(Errno::IO);
        }
        self.send_struct(&WriteOut { size: len_bytes, padding: 0 });
    }
}

impl Reply<Copied> {
    /// Answers how many bytes were copied, at most as many as were asked for; 0 at the end of the
    /// file that is read.
    pub fn copied(self, len_bytes: u64) {
        if self.token.wide {
            self.send_struct(&CopyFileRangeOut { bytes_copied: len_bytes });
        } else if let Ok(size) = u32::try_from(len_bytes) {
            self.send_struct(&WriteOut { size, padding: 0 });
        } else {
            warn!(len_bytes, "more copied than the kernel asked for");
            self.error(Errno::IO);
        }
    }
}

impl Reply<Position> {
    /// Answers with an offset in bytes.
    pub fn position(self, offset: u64) {
        self.send_struct(&LseekOut { offset });
    }
}

impl Reply<LockFound> {
    /// Answers with the lock in the way; `None` where there is none.
    pub fn lock(self, found: Option<LockRange>) {
        let unlocked = FileLock { start: 0, end: 0, kind: LockKind::Unlock as u32, pid: 0 };
        self.send_struct(&found.map_or(unlocked, LockRange::to_kernel));
    }
}

impl Reply<Directory> {
    /// An empty buffer of the size and kind the kernel asked for.
    pub fn buffer(&self) -> DirectoryBuffer {
        DirectoryBuffer::new(self.token.len_max, self.token.wide)
    }

    /// Answers with packed entries; an empty buffer says that the directory has no more.
    #[must_use = "a lost buffer's references must be taken back: DirectoryBuffer::nodeids"]
    pub fn directory(mut self, buffer: &DirectoryBuffer) -> Delivery {
        self.token.send(0, &[buffer.bytes()])
    }
}

impl Reply<Statfs> {
    /// Answers with space and inodes.
    pub fn statfs(self, statfs: &StatfsOut) {
        self.send_struct(statfs);
    }
}

impl Reply<Xattr> {
    /// Answers with a value or a list of names: its size where the caller asked for that, ERANGE
    /// where it does not fit the caller's buffer.
    pub fn value(mut self, value: &[u8]) {
        if self.token.len_max == 0 {
            self.send_struct(&GetxattrOut { size: value.len() as u32, padding: 0 });
        } else if value.len() > self.token.len_max {
            self.error(Errno::RANGE);
        } else {
            self.token.send(0, &[value]);
        }
    }
}

impl Reply<Done> {
    /// Answers that it is done.
    pub fn done(mut self) {
        self.token.send(0, &[]);
    }
}

/// What every reply has: where it goes, and whether it went.
pub(crate) struct Token {
    channel: Arc<Channel>,
    interrupts: Arc<Interrupts>,
    unique: u64,
    /// Bytes the kernel has room for, of answers whose length varies.
    len_max: usize,
    /// The newer of two requests that differ in the form of their answer: READDIRPLUS rather than
    /// READDIR, COPY_FILE_RANGE_64 rather than COPY_FILE_RANGE.
    wide: bool,
    hooked: bool,
    answered: bool,
}

impl Token {
    pub(crate) fn new(channel: &Arc<Channel>, interrupts: &Arc<Interrupts>, unique: u64) -> Self {
        Self {
            channel: channel.clone(),
            interrupts: interrupts.clone(),
            unique,
            len_max: 0,
            wide: false,
            hooked: false,
            answered: false,
        }
    }

    pub(crate) fn sized(mut self, len_max: usize) -> Self {
        self.len_max = len_max;
        self
    }

    pub(crate) fn wide(mut self, wide: bool) -> Self {
        self.wide = wide;
        self
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) -> Delivery {
        self.answered = true;
        if self.hooked {
            self.interrupts.forget(self.unique);
        }
        match self.channel.send(self.unique, error, parts) {
            Ok(()) => Delivery::Taken,
            Err(errno @ (Errno::NOENT | Errno::NODEV | Errno::CONNABORTED)) => {
                debug!(unique = self.unique, %errno, "the kernel does not wait for this any more");
                Delivery::Lost
            }
            Err(errno) => {
                // The kernel has ended the request with an error of its own.
                warn!(unique = self.unique, %errno, "the kernel refused an answer");
                Delivery::Lost
            }
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.answered {
            debug!(unique = self.unique, "a request was dropped unanswered");
            self.send(-Errno::IO.raw_os_error(), &[]);
        }
    }
}
