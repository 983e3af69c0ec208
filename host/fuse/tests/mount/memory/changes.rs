//! How the tree changes.

use portcullis_fuse::request::{Fallocate, Rename, Seek, SetAttr, SetTime};
use portcullis_fuse::{Caller, Errno};
use rustix::fs::{FallocateFlags, RenameFlags};

use super::{Content, Entries, Quirk, State, place};

/// Bytes that are data or a hole together.
const BLOCK_LEN_BYTES: usize = 4096;

/// A node to be made.
pub(super) struct Made {
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) rdev: u32,
    pub(super) bytes: Vec<u8>,
}

impl State {
    pub(super) fn index(&self, file: u64) -> usize {
        self.files.get(&file).expect("the kernel names open files only").index
    }

    pub(super) fn make(
        &mut self,
        caller: Caller,
        parent: usize,
        name: &[u8],
        made: Made,
    ) -> Result<usize, Errno> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if self.entries(parent).get(name).is_some() {
            return Err(Errno::EXIST);
        }
        let index = self.make_unnamed(caller, made);
        self.entries(parent).set(name, index);
        self.touch(parent);
        Ok(index)
    }

    pub(super) fn make_unnamed(&mut self, caller: Caller, made: Made) -> usize {
        let content = match made.mode & 0o170_000 {
            0o040_000 => Content::Directory(Entries::default()),
            _ => Content::Bytes(made.bytes),
        };
        let index = self.add_node(made.mode & !made.umask, content, Quirk::None);
        let attr = &mut self.nodes[index].attr;
        (attr.uid, attr.gid, attr.rdev) = (caller.uid, caller.gid, made.rdev);
        index
    }

    pub(super) fn unlink(
        &mut self,
        parent: usize,
        name: &[u8],
        directory: bool,
    ) -> Result<(), Errno> {
        let index = self.entries(parent).get(name).ok_or(Errno::NOENT)?;
        match &self.nodes[index].content {
            Content::Directory(_) if !directory => return Err(Errno::ISDIR),
            Content::Directory(entries) if !entries.positions.is_empty() => {
                return Err(Errno::NOTEMPTY);
            }
            Content::Bytes(_) if directory => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.entries(parent).remove(name);
        let nlink = &mut self.nodes[index].attr.nlink;
        *nlink = if directory { 0 } else { *nlink - 1 };
        self.touch(parent);
        Ok(())
    }

    pub(super) fn rename(&mut self, rename: &Rename<'_>) -> Result<(), Errno> {
        let (from, to) = (place(rename.parent), place(rename.new_parent));
        let flags = RenameFlags::from_bits_retain(rename.flags);
        let moved = self.entries(from).get(rename.name).ok_or(Errno::NOENT)?;
        let there = self.entries(to).get(rename.new_name);
        if flags == RenameFlags::EXCHANGE {
            let there = there.ok_or(Errno::NOENT)?;
            self.entries(from).set(rename.name, there);
        } else if flags == RenameFlags::NOREPLACE && there.is_some() {
            return Err(Errno::EXIST);
        } else if flags.is_empty() || flags == RenameFlags::NOREPLACE {
            self.entries(from).remove(rename.name);
            if let Some(there) = there {
                self.nodes[there].attr.nlink -= 1;
            }
        } else {
            return Err(Errno::INVAL);
        }
        self.entries(to).set(rename.new_name, moved);
        self.touch(from);
        self.touch(to);
        Ok(())
    }

    pub(super) fn setattr(&mut self, index: usize, setattr: &SetAttr) {
        let now = self.now();
        if let Some(size) = setattr.size {
            self.bytes(index).resize(size as usize, 0);
            self.touch(index);
        }
        let attr = &mut self.nodes[index].attr;
        if let Some(mode) = setattr.mode {
            attr.mode = attr.mode & 0o170_000 | mode & 0o7777;
        }
        if setattr.uid.is_some() || setattr.gid.is_some() || setattr.kill_suidgid {
            attr.mode &= !0o6000;
        }
        attr.uid = setattr.uid.unwrap_or(attr.uid);
        attr.gid = setattr.gid.unwrap_or(attr.gid);
        let time = |time: SetTime| match time {
            SetTime::Now => (now, 0),
            SetTime::At { secs, nanos } => (secs as u64, nanos),
        };
        if let Some(atime) = setattr.atime {
            (attr.atime, attr.atimensec) = time(atime);
        }
        if let Some(mtime) = setattr.mtime {
            (attr.mtime, attr.mtimensec) = time(mtime);
        }
        attr.ctime = now;
    }

    pub(super) fn write(&mut self, index: usize, offset: usize, data: &[u8]) {
        let bytes = self.bytes(index);
        let end = offset + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        self.touch(index);
    }

    /// Clears set-user-id and set-group-id, and tells the kernel, which does not ask for the mode
    /// again of its own accord.
    pub(super) fn kill_suidgid(&mut self, index: usize) {
        self.nodes[index].attr.mode &= !0o6000;
        if let Some(notifier) = &self.notifier {
            notifier.inval_inode(index as u64 + 1, -1, 0).unwrap();
        }
    }

    pub(super) fn fallocate(&mut self, index: usize, fallocate: &Fallocate) -> Result<(), Errno> {
        let Fallocate { mode, offset, len_bytes } = *fallocate;
        let mode = FallocateFlags::from_bits_retain(mode);
        let (start, end) = (offset as usize, (offset + len_bytes) as usize);
        let bytes = self.bytes(index);
        if mode.is_empty() && bytes.len() < end {
            bytes.resize(end, 0);
        } else if mode == FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE {
            let end = end.min(bytes.len());
            bytes[start.min(end)..end].fill(0);
        } else if !mode.is_empty() && mode != FallocateFlags::KEEP_SIZE {
            return Err(Errno::OPNOTSUPP);
        }
        self.touch(index);
        Ok(())
    }

    pub(super) fn seek(&mut self, index: usize, seek: Seek) -> Result<u64, Errno> {
        let (from, data) = match seek {
            Seek::Data(from) => (from as usize, true),
            Seek::Hole(from) => (from as usize, false),
        };
        let bytes = self.bytes(index);
        if from >= bytes.len() {
            return Err(Errno::NXIO);
        }
        let mut blocks = bytes.chunks(BLOCK_LEN_BYTES).enumerate().skip(from / BLOCK_LEN_BYTES);
        let found = blocks.find(|(_, block)| block.iter().any(|&byte| byte != 0) == data);
        match found {
            Some((nth, _)) => Ok((nth * BLOCK_LEN_BYTES).max(from) as u64),
            None if data => Err(Errno::NXIO),
            None => Ok(bytes.len() as u64),
        }
    }
}
