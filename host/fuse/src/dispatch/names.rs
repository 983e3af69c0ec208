//! Requests about entries of directories.

use super::arguments::Arguments;
use super::{Dispatcher, caller};
use crate::abi::{
    BatchForgetIn, ForgetIn, ForgetOne, InHeader, LinkIn, MkdirIn, MknodIn, Opcode, Rename2In,
    RenameIn,
};
use crate::filesystem::Filesystem;
use crate::request::{Mknod, Rename};

/// Bytes of the longest target of a symbolic link: the kernel gives a page and ends it by NUL.
const TARGET_LEN_BYTES_MAX: u32 = 4095;

impl<F: Filesystem> Dispatcher<F> {
    pub(super) fn call_name(
        &self,
        header: &InHeader,
        opcode: Opcode,
        mut args: Arguments<'_>,
    ) -> Option<()> {
        let fs = &*self.filesystem;
        let (caller, nodeid) = (caller(header), header.nodeid);
        match opcode {
            Opcode::Lookup => fs.lookup(caller, nodeid, args.name()?, self.reply(header)),
            Opcode::Forget => fs.forget(nodeid, args.take::<ForgetIn>()?.nlookup),
            Opcode::BatchForget => {
                let count = args.take::<BatchForgetIn>()?.count;
                fs.batch_forget((0..count).map_while(|_| {
                    let one = args.take::<ForgetOne>()?;
                    Some((one.nodeid, one.nlookup))
                }));
            }
            Opcode::Mknod => {
                let MknodIn { mode, rdev, umask, .. } = args.take()?;
                let mknod = Mknod { mode, umask, rdev };
                fs.mknod(caller, nodeid, args.name()?, mknod, self.reply(header));
            }
            Opcode::Mkdir => {
                let MkdirIn { mode, umask } = args.take()?;
                fs.mkdir(caller, nodeid, args.name()?, mode, umask, self.reply(header));
            }
            Opcode::Symlink => {
                let (name, target) = (args.name()?, args.text()?);
                fs.symlink(caller, nodeid, name, target, self.reply(header));
            }
            Opcode::Link => {
                let old = args.take::<LinkIn>()?.oldnodeid;
                fs.link(caller, old, nodeid, args.name()?, self.reply(header));
            }
            Opcode::Unlink => fs.unlink(caller, nodeid, args.name()?, self.reply(header)),
            Opcode::Rmdir => fs.rmdir(caller, nodeid, args.name()?, self.reply(header)),
            Opcode::Rename | Opcode::Rename2 => {
                let (new_parent, flags) = if opcode == Opcode::Rename2 {
                    let Rename2In { newdir, flags, .. } = args.take()?;
                    (newdir, flags)
                } else {
                    (args.take::<RenameIn>()?.newdir, 0)
                };
                let (name, new_name) = (args.name()?, args.name()?);
                let rename = Rename { parent: nodeid, name, new_parent, new_name, flags };
                fs.rename(caller, rename, self.reply(header));
            }
            Opcode::Readlink => {
                fs.readlink(caller, nodeid, self.sized(header, TARGET_LEN_BYTES_MAX));
            }
            _ => return None,
        }
        Some(())
    }
}
