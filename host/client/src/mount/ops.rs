//! The file system that the kernel talks to: each request goes to the file that has its subject.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_fuse::request::{
    CopyFileRange, Create, Fallocate, Lock, Mknod, Open, Read, Release, Rename, Seek, SetAttr,
    SetXattr, Write,
};
use portcullis_fuse::{Caller, Filesystem, Negotiated, Notifier, Reply, reply};

use super::volume::Volume;

/// The mount as the session sees it.
pub(super) struct MountedVolume(pub(super) Arc<Volume>);

/// Hands a request on to the method of the volume that has its name.
macro_rules! hand_on {
    ($($verb:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $verb(&self, $($argument: $type),*) {
            self.0.$verb($($argument),*);
        })*
    };
}

impl Filesystem for MountedVolume {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        self.0.kernel.init(notifier, negotiated.has_inc_epoch());
    }

    fn destroy(&self) {
        self.0.gone.notify_one();
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.0.inodes.forget(nodeid, nlookup);
    }

    fn batch_forget(&self, forgets: impl Iterator<Item = (u64, u64)>) {
        let mut inodes = self.0.inodes.lock();
        forgets.for_each(|(nodeid, nlookup)| inodes.forget(nodeid, nlookup));
    }

    fn getattr(&self, caller: Caller, nodeid: u64, _: Option<u64>, reply: Reply<reply::Attr>) {
        // The handle leads to the file also where it has no name any more.
        self.0.getattr(caller, nodeid, reply);
    }

    fn opendir(&self, _caller: Caller, nodeid: u64, reply: Reply<reply::Opened>) {
        self.0.opendir(nodeid, reply);
    }

    fn fsyncdir(&self, caller: Caller, dir: u64, _data_only: bool, reply: Reply<reply::Done>) {
        self.0.fsyncdir(caller, dir, reply);
    }

    // names.rs
    hand_on! {
        lookup(caller: Caller, parent: u64, name: &[u8], reply: Reply<reply::Entry>);
        mknod(caller: Caller, parent: u64, name: &[u8], mknod: Mknod, reply: Reply<reply::Entry>);
        mkdir(
            caller: Caller, parent: u64, name: &[u8], mode: u32, umask: u32,
            reply: Reply<reply::Entry>
        );
        symlink(
            caller: Caller, parent: u64, name: &[u8], target: &[u8], reply: Reply<reply::Entry>
        );
        link(
            caller: Caller, nodeid: u64, new_parent: u64, new_name: &[u8],
            reply: Reply<reply::Entry>
        );
        unlink(caller: Caller, parent: u64, name: &[u8], reply: Reply<reply::Done>);
        rmdir(caller: Caller, parent: u64, name: &[u8], reply: Reply<reply::Done>);
        rename(caller: Caller, rename: Rename<'_>, reply: Reply<reply::Done>);
    }

    // attributes.rs, xattrs.rs, space.rs
    hand_on! {
        setattr(caller: Caller, nodeid: u64, setattr: SetAttr, reply: Reply<reply::Attr>);
        readlink(caller: Caller, nodeid: u64, reply: Reply<reply::Data>);
        getxattr(caller: Caller, nodeid: u64, name: &[u8], reply: Reply<reply::Xattr>);
        listxattr(caller: Caller, nodeid: u64, reply: Reply<reply::Xattr>);
        setxattr(caller: Caller, nodeid: u64, setxattr: SetXattr<'_>, reply: Reply<reply::Done>);
        removexattr(caller: Caller, nodeid: u64, name: &[u8], reply: Reply<reply::Done>);
        statfs(caller: Caller, nodeid: u64, reply: Reply<reply::Statfs>);
    }

    // files.rs, locks.rs
    hand_on! {
        open(caller: Caller, nodeid: u64, open: Open, reply: Reply<reply::Opened>);
        create(
            caller: Caller, parent: u64, name: &[u8], create: Create,
            reply: Reply<reply::Created>
        );
        tmpfile(caller: Caller, parent: u64, create: Create, reply: Reply<reply::Created>);
        read(caller: Caller, file: u64, read: Read, reply: Reply<reply::Data>);
        write(caller: Caller, file: u64, write: Write, data: Bytes, reply: Reply<reply::Written>);
        flush(caller: Caller, file: u64, lock_owner: u64, reply: Reply<reply::Done>);
        fsync(caller: Caller, file: u64, data_only: bool, reply: Reply<reply::Done>);
        release(file: u64, release: Release, reply: Reply<reply::Done>);
        fallocate(caller: Caller, file: u64, fallocate: Fallocate, reply: Reply<reply::Done>);
        lseek(caller: Caller, file: u64, seek: Seek, reply: Reply<reply::Position>);
        copy_file_range(caller: Caller, copy: CopyFileRange, reply: Reply<reply::Copied>);
        getlk(caller: Caller, file: u64, lock: Lock, reply: Reply<reply::LockFound>);
        setlk(caller: Caller, file: u64, lock: Lock, reply: Reply<reply::Done>);
        setlkw(caller: Caller, file: u64, lock: Lock, reply: Reply<reply::Done>);
    }

    // listings.rs
    hand_on! {
        readdir(caller: Caller, dir: u64, offset: u64, reply: Reply<reply::Directory>);
        releasedir(dir: u64, reply: Reply<reply::Done>);
    }
}
