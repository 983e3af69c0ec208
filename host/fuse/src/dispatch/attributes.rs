//! Requests about what a file is like.

use super::arguments::Arguments;
use super::{Dispatcher, caller};
use crate::abi::{
    AccessIn, GETATTR_FH, GetattrIn, GetxattrIn, InHeader, Opcode, SETXATTR_ACL_KILL_SGID,
    SetattrIn, SetxattrIn, SetxattrInExt,
};
use crate::filesystem::Filesystem;
use crate::request::{SetAttr, SetXattr};

impl<F: Filesystem> Dispatcher<F> {
    pub(super) fn call_attribute(
        &self,
        header: &InHeader,
        opcode: Opcode,
        mut args: Arguments<'_>,
    ) -> Option<()> {
        let fs = &*self.filesystem;
        let (caller, nodeid) = (caller(header), header.nodeid);
        match opcode {
            Opcode::Getattr => {
                let GetattrIn { getattr_flags, fh, .. } = args.take()?;
                let file = (getattr_flags & GETATTR_FH != 0).then_some(fh);
                fs.getattr(caller, nodeid, file, self.reply(header));
            }
            Opcode::Setattr => {
                let setattr = SetAttr::new(&args.take::<SetattrIn>()?)?;
                fs.setattr(caller, nodeid, setattr, self.reply(header));
            }
            Opcode::Getxattr => {
                let size = args.take::<GetxattrIn>()?.size;
                fs.getxattr(caller, nodeid, args.name()?, self.sized(header, size));
            }
            Opcode::Listxattr => {
                let size = args.take::<GetxattrIn>()?.size;
                fs.listxattr(caller, nodeid, self.sized(header, size));
            }
            Opcode::Setxattr => {
                let SetxattrIn { size, flags } = args.take()?;
                let ext: SetxattrInExt =
                    if self.setxattr_ext { args.take()? } else { SetxattrInExt::default() };
                let (name, value) = (args.name()?, args.bytes(size)?);
                let kill_sgid = ext.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
                let setxattr = SetXattr { name, value, flags, kill_sgid };
                fs.setxattr(caller, nodeid, setxattr, self.reply(header));
            }
            Opcode::Removexattr => {
                fs.removexattr(caller, nodeid, args.name()?, self.reply(header));
            }
            Opcode::Access => {
                let mask = args.take::<AccessIn>()?.mask;
                fs.access(caller, nodeid, mask, self.reply(header));
            }
            Opcode::Statfs => fs.statfs(caller, nodeid, self.reply(header)),
            _ => return None,
        }
        Some(())
    }
}
