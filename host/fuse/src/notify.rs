//! What the file system tells the kernel of its own accord: that something changed.
//!
//! A notification takes effect before its method returns: the next system call of any program asks
//! the file system again. What the kernel does not know it does not mind, so nothing has to be
//! remembered of what it was told.
//!
//! Two of them wait, in the kernel, until no operation is under way in the directory: its lock is
//! taken. Whoever answers such an operation must not wait for the notification, or neither ends.

use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{
    EXPIRE_ONLY, NAME_LEN_MAX, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, notify,
};
use crate::channel::Channel;

/// Tells the kernel of changes. Cheap to clone, usable from any thread, while the session lives and
/// after.
///
/// Every method succeeds where the kernel does not know the file, the name or (the mount being
/// gone) the mount. Its errors are those of write(2) to `/dev/fuse`, ENAMETOOLONG for a name over
/// 1,024 bytes and EINVAL for an empty one.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
    inc_epoch: bool,
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>, inc_epoch: bool) -> Self {
        Self { channel, inc_epoch }
    }

    /// Drops what the kernel holds of a file: its attributes and its access lists always, of its
    /// pages those of `len` bytes from `offset` on; all from there for `len` 0, none for an
    /// `offset` below 0. Of a symbolic link the target is its page.
    ///
    /// For attributes alone it never waits. Pages that are being read or written it waits for, so
    /// a read of the file that is under way must be answered on another thread.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> Result<(), Errno> {
        let body = NotifyInvalInodeOut { ino: nodeid, off: offset, len };
        self.send(notify::INVAL_INODE, &[body.as_bytes()])
    }

    /// Drops an entry of a directory, and the attributes of the directory. With `expire_only` the
    /// entry is looked up again before it is used, but what is mounted or open below it stays in
    /// place (Linux 6.2; older kernels drop it).
    ///
    /// Waits until no operation is under way in the directory (seconds behind a slow `mkdir` or
    /// `lookup`); never call it where such an operation waits for the caller.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn inval_entry(&self, parent: u64, name: &[u8], expire_only: bool) -> Result<(), Errno> {
        let namelen = name_len(name)?;
        let flags = if expire_only { EXPIRE_ONLY } else { 0 };
        let body = NotifyInvalEntryOut { parent, namelen, flags };
        self.send(notify::INVAL_ENTRY, &[body.as_bytes(), name, b"\0"])
    }

    /// Says that an entry was deleted which was the file `child`: like
    /// [`inval_entry`](Self::inval_entry), and who watches the file by inotify(7) is told. Does
    /// nothing where the name is another file by now.
    ///
    /// The kernel takes it for the last name. Where it is not, the number of links must be dropped,
    /// too: by [`inval_inode`](Self::inval_inode) of `child`, afterwards.
    ///
    /// Waits until no operation is under way in the directory, or on the file.
    ///
    /// # Errors
    /// See [`Notifier`]; ENOTEMPTY and EBUSY where the kernel has something below the entry.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        let body = NotifyDeleteOut { parent, child, namelen: name_len(name)?, padding: 0 };
        self.send(notify::DELETE, &[body.as_bytes(), name, b"\0"])
    }

    /// Makes the kernel look up every entry of the mount again before it uses it, without dropping
    /// any. Never waits. `false` where the kernel (before Linux 6.16) cannot, and then nothing was
    /// done.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn inc_epoch(&self) -> Result<bool, Errno> {
        if self.inc_epoch {
            self.send(notify::INC_EPOCH, &[])?;
        }
        Ok(self.inc_epoch)
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        match self.channel.send(0, code, parts) {
            // ENOENT: not known. The others: the mount is gone, and with it all that it knew.
            Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED) => Ok(()),
            other => other,
        }
    }
}

fn name_len(name: &[u8]) -> Result<u32, Errno> {
    match name.len() {
        0 => Err(Errno::INVAL),
        len if len > NAME_LEN_MAX => Err(Errno::NAMETOOLONG),
        len => Ok(len as u32),
    }
}
