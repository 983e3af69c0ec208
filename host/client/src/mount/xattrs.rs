//! Extended attributes. POSIX access lists are among them, and only where the mount has them
//! (`-o acl`): then the kernel reads them to check permissions.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::Handle;
use portcullis_core::limits::{XATTR_LEN_BYTES_MAX, XATTR_NAME_LEN_MAX};
use portcullis_fuse::request::SetXattr;
use portcullis_fuse::{Caller, Errno, Reply, reply};
use portcullis_wire::message::{self, Mutation};

use super::attr::errno_of_handle;
use super::inodes::Inode;
use super::memory::Known;
use super::volume::{Volume, on_behalf};

/// The access list that new files of a directory get.
pub(super) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// The access lists, answered EOPNOTSUPP by a mount without them.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", ACL_DEFAULT];
/// Extended attributes that programs ask for with every file they list, answered EOPNOTSUPP
/// without a request. coreutils then stop asking; answered ENODATA, `ls -l` of 100,000 files takes
/// ten times as long. None of them has an effect here: file capabilities do not work on a nosuid
/// mount, and labels belong to the brick's own policy.
const UNSUPPORTED: [&[u8]; 2] = [b"security.selinux", b"security.capability"];
/// Extended attributes that only a privileged user may see.
const TRUSTED: &[u8] = b"trusted.";

impl Volume {
    pub(super) fn getxattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        name: &[u8],
        reply: Reply<reply::Xattr>,
    ) {
        if let Err(errno) = self.check_xattr(name) {
            return reply.error(errno);
        }
        if ACLS.contains(&name)
            && let Ok(inode) = self.inode(nodeid)
            && self.has_no_acl(&inode.handle)
        {
            return reply.error(Errno::NODATA);
        }
        let name = name.to_vec();
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let value = volume.client.getxattr(&inode.handle, &name).await;
            value.map_err(|error| errno_of_handle(&error))
        };
        self.ask(caller, nodeid, reply, ask, |reply, value: Vec<u8>| reply.value(&value));
    }

    pub(super) fn listxattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        reply: Reply<reply::Xattr>,
    ) {
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let names = volume.client.listxattr(&inode.handle).await;
            names.map_err(|error| errno_of_handle(&error))
        };
        let (privileged, acl) = (caller.uid == 0, self.acl);
        self.ask(caller, nodeid, reply, ask, move |reply, names: Vec<u8>| {
            reply.value(&visible(&names, privileged, acl));
        });
    }

    pub(super) fn setxattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        setxattr: SetXattr<'_>,
        reply: Reply<reply::Done>,
    ) {
        if let Err(errno) = self.check_xattr(setxattr.name) {
            return reply.error(errno);
        }
        if setxattr.value.len() > XATTR_LEN_BYTES_MAX {
            return reply.error(Errno::TOOBIG);
        }
        let (name, flags) = (setxattr.name.to_vec(), setxattr.flags);
        let value = Bytes::copy_from_slice(setxattr.value);
        let len_bytes = value.len() as u32;
        let value = Some(value).filter(|value| !value.is_empty());
        self.change_xattr(caller, nodeid, value, reply, move |inode| Mutation::Setxattr {
            handle: inode.handle,
            name,
            len_bytes,
            flags,
        });
    }

    pub(super) fn removexattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        name: &[u8],
        reply: Reply<reply::Done>,
    ) {
        if let Err(errno) = self.check_xattr(name) {
            return reply.error(errno);
        }
        let name = name.to_vec();
        self.change_xattr(caller, nodeid, None, reply, move |inode| Mutation::Removexattr {
            handle: inode.handle,
            name,
        });
    }

    fn change_xattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        value: Option<Bytes>,
        reply: Reply<reply::Done>,
        mutation: impl FnOnce(Inode) -> Mutation,
    ) {
        let by: message::Caller = on_behalf(caller);
        let ask = |volume: Arc<Volume>, inode: Inode| {
            let mutation = mutation(inode);
            async move {
                let changed = volume.client.mutate(by, mutation, value).await;
                let changed = changed.map_err(|error| errno_of_handle(&error))?;
                volume.noted(&changed.changes);
                Ok(())
            }
        };
        self.ask(caller, nodeid, reply, ask, |reply, ()| reply.done());
    }

    /// Whether it is known, without asking, that a file has no access lists.
    pub(super) fn has_no_acl(&self, file: &Handle) -> bool {
        let known = self.memory.getattr(&self.client, file);
        matches!(known, Known::This(attr) if attr.has_no_acl)
    }

    fn check_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if UNSUPPORTED.contains(&name) || !self.acl && ACLS.contains(&name) {
            return Err(Errno::OPNOTSUPP);
        }
        if name.len() > XATTR_NAME_LEN_MAX { Err(Errno::RANGE) } else { Ok(()) }
    }
}

/// Of a list of names each ended by NUL, those that getxattr answers to this caller.
fn visible(names: &[u8], privileged: bool, acl: bool) -> Vec<u8> {
    let is_visible = |name: &&[u8]| {
        let bare = name.strip_suffix(b"\0").unwrap_or(name);
        !UNSUPPORTED.contains(&bare)
            && (acl || !ACLS.contains(&bare))
            && (privileged || !bare.starts_with(TRUSTED))
    };
    names.split_inclusive(|&byte| byte == 0).filter(is_visible).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_only_what_can_be_read() {
        let names = b"user.a\0security.selinux\0trusted.b\0system.posix_acl_access\0user.c\0";
        assert_eq!(visible(names, true, false), b"user.a\0trusted.b\0user.c\0");
        assert_eq!(visible(names, false, false), b"user.a\0user.c\0");
        assert_eq!(visible(names, false, true), b"user.a\0system.posix_acl_access\0user.c\0");
        assert_eq!(visible(b"", true, true), b"");
    }
}
