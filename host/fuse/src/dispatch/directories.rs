//! Requests about open directories.

use super::arguments::Arguments;
use super::{Dispatcher, caller};
use crate::abi::{FSYNC_FDATASYNC, FsyncIn, InHeader, Opcode, ReadIn, ReleaseIn};
use crate::filesystem::Filesystem;
use crate::reply::Reply;

impl<F: Filesystem> Dispatcher<F> {
    pub(super) fn call_directory(
        &self,
        header: &InHeader,
        opcode: Opcode,
        mut args: Arguments<'_>,
    ) -> Option<()> {
        let fs = &*self.filesystem;
        let caller = caller(header);
        match opcode {
            Opcode::Opendir => fs.opendir(caller, header.nodeid, self.reply(header)),
            Opcode::Readdir | Opcode::Readdirplus => {
                let ReadIn { fh, offset, size, .. } = args.take()?;
                let size = self.read_len(size)?;
                let plus = opcode == Opcode::Readdirplus;
                let reply = Reply::new(self.token(header).sized(size as usize).wide(plus));
                fs.readdir(caller, fh, offset, reply);
            }
            Opcode::Fsyncdir => {
                let FsyncIn { fh, fsync_flags, .. } = args.take()?;
                let data_only = fsync_flags & FSYNC_FDATASYNC != 0;
                fs.fsyncdir(caller, fh, data_only, self.reply(header));
            }
            Opcode::Releasedir => fs.releasedir(args.take::<ReleaseIn>()?.fh, self.reply(header)),
            _ => return None,
        }
        Some(())
    }
}
