//! From the bytes of one request to a method of the file system.
//!
//! - `arguments`: takes structs and names off a request's bytes.
//! - `names`, `attributes`, `files`, `directories`: the requests, by what they are about.
//!
//! Every length is checked before it is believed: a request that is too short for its arguments, or
//! whose arguments make no sense, is counted and answered EINVAL; one without a whole header is
//! counted and dropped, there being nobody to answer.

mod arguments;
mod attributes;
mod directories;
mod files;
mod names;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use tracing::{debug, warn};
use zerocopy::FromBytes;

use self::arguments::Arguments;
use crate::abi::{InHeader, InterruptIn, Opcode};
use crate::buffer::Request;
use crate::caller::Caller;
use crate::channel::Channel;
use crate::filesystem::Filesystem;
use crate::interrupt::Interrupts;
use crate::reply::{Done, Reply, Token};

/// Where the requests of one thread come from and go to.
pub(crate) struct Dispatcher<F> {
    pub(crate) channel: Arc<Channel>,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) filesystem: Arc<F>,
    /// SETXATTR carries its flags ([`SETXATTR_EXT`](crate::abi::init::SETXATTR_EXT)).
    pub(crate) setxattr_ext: bool,
    /// Most bytes that READ and READDIR may ask for.
    pub(crate) read_len_max: u32,
    /// Requests that could not be understood.
    pub(crate) malformed: Arc<AtomicU64>,
}

impl<F: Filesystem> Dispatcher<F> {
    /// Handles one request as it was read from the device.
    pub(crate) fn dispatch(&self, request: &mut Request) {
        let bytes = request.bytes();
        let Ok((header, rest)) = InHeader::read_from_prefix(bytes) else {
            warn!(len = bytes.len(), "the kernel sent a request without a whole header");
            self.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(opcode) = Opcode::of(header.opcode) else {
            debug!(opcode = header.opcode, "a request that is not implemented");
            return self.reply::<Done>(&header).error(Errno::NOSYS);
        };
        let len = bytes.len();
        if header.len as usize != len {
            warn!(?opcode, said = header.len, got = len, "a request of the wrong length");
            return self.refuse(&header, opcode);
        }
        let called = match opcode {
            Opcode::Write => self.write(&header, request),
            _ => self.call(&header, opcode, Arguments::new(rest)),
        };
        if called.is_none() {
            warn!(?opcode, len, "a request whose arguments are too short, or make no sense");
            self.refuse(&header, opcode);
        }
    }

    /// `None` where the arguments are malformed, and then nothing was answered.
    fn call(&self, header: &InHeader, opcode: Opcode, mut args: Arguments<'_>) -> Option<()> {
        match opcode {
            Opcode::Lookup
            | Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Symlink
            | Opcode::Link
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Readlink => self.call_name(header, opcode, args),
            Opcode::Getattr
            | Opcode::Setattr
            | Opcode::Getxattr
            | Opcode::Listxattr
            | Opcode::Setxattr
            | Opcode::Removexattr
            | Opcode::Access
            | Opcode::Statfs => self.call_attribute(header, opcode, args),
            Opcode::Opendir
            | Opcode::Readdir
            | Opcode::Readdirplus
            | Opcode::Fsyncdir
            | Opcode::Releasedir => self.call_directory(header, opcode, args),
            // Needs no answer; ENOSYS would end interrupts for good.
            Opcode::Interrupt => {
                self.interrupts.interrupt(args.take::<InterruptIn>()?.unique);
                Some(())
            }
            Opcode::Destroy => {
                self.reply::<Done>(header).done();
                Some(())
            }
            Opcode::Syncfs => {
                self.filesystem.syncfs(caller(header), header.nodeid, self.reply(header));
                Some(())
            }
            // Answered before the threads start; once more is a mistake of the kernel.
            Opcode::Init => None,
            _ => self.call_file(header, opcode, args),
        }
    }

    fn refuse(&self, header: &InHeader, opcode: Opcode) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
        if opcode.is_answered() {
            self.reply::<Done>(header).error(Errno::INVAL);
        }
    }

    fn reply<Answer>(&self, header: &InHeader) -> Reply<Answer> {
        Reply::new(self.token(header))
    }

    /// A reply that may carry so many bytes.
    fn sized<Answer>(&self, header: &InHeader, len_max: u32) -> Reply<Answer> {
        Reply::new(self.token(header).sized(len_max as usize))
    }

    /// `None` for more bytes than may be asked for: nobody should allocate them.
    fn read_len(&self, size: u32) -> Option<u32> {
        (size <= self.read_len_max).then_some(size)
    }

    fn token(&self, header: &InHeader) -> Token {
        Token::new(&self.channel, &self.interrupts, header.unique)
    }
}

fn caller(header: &InHeader) -> Caller {
    Caller { uid: header.uid, gid: header.gid, pid: header.pid, unique: header.unique }
}
