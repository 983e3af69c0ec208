//! From the bytes of one request to a method of the file system.
//!
//! Every length is checked before it is believed: a request that is too short for its arguments is
//! answered EINVAL, and one without a whole header is dropped, there being nobody to answer.

use std::sync::Arc;

use rustix::io::Errno;
use tracing::{debug, warn};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{
    BatchForgetIn, ForgetIn, ForgetOne, GetxattrIn, InHeader, InterruptIn, Opcode, OpenIn, ReadIn,
    ReleaseIn,
};
use crate::channel::Channel;
use crate::filesystem::{Caller, Filesystem};
use crate::interrupt::Interrupts;
use crate::reply::{Reply, Token};

/// Where the requests of one thread come from and go to.
pub(crate) struct Dispatcher<F> {
    pub(crate) channel: Arc<Channel>,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) filesystem: Arc<F>,
}

impl<F: Filesystem> Dispatcher<F> {
    /// Handles one request as it was read from the device.
    pub(crate) fn dispatch(&self, bytes: &[u8]) {
        let Ok((header, rest)) = InHeader::read_from_prefix(bytes) else {
            warn!(len = bytes.len(), "the kernel sent a request without a whole header");
            return;
        };
        let Some(opcode) = Opcode::of(header.opcode) else {
            debug!(opcode = header.opcode, "a request that is not implemented");
            return self.reply::<crate::reply::Done>(&header).error(Errno::NOSYS);
        };
        if header.len as usize != bytes.len() {
            warn!(?opcode, said = header.len, got = bytes.len(), "a request of the wrong length");
            return self.refuse(&header, opcode);
        }
        if self.call(&header, opcode, Arguments { rest }).is_none() {
            warn!(?opcode, len = bytes.len(), "a request that is too short for its arguments");
            self.refuse(&header, opcode);
        }
    }

    /// `None` where the arguments are malformed, and then nothing was answered.
    fn call(&self, header: &InHeader, opcode: Opcode, mut args: Arguments<'_>) -> Option<()> {
        let fs = &*self.filesystem;
        let nodeid = header.nodeid;
        let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
        match opcode {
            Opcode::Lookup => {
                let name = args.name()?;
                fs.lookup(caller, nodeid, name, self.reply(header));
            }
            Opcode::Forget => fs.forget(nodeid, args.take::<ForgetIn>()?.nlookup),
            Opcode::BatchForget => {
                let count = args.take::<BatchForgetIn>()?.count;
                for _ in 0..count {
                    let one = args.take::<ForgetOne>()?;
                    fs.forget(one.nodeid, one.nlookup);
                }
            }
            Opcode::Getattr => fs.getattr(caller, nodeid, self.reply(header)),
            Opcode::Readlink => {
                // The kernel gives a page and terminates the target itself.
                fs.readlink(caller, nodeid, Reply::new(self.token(header).sized(4096)));
            }
            Opcode::Open => {
                let flags = args.take::<OpenIn>()?.flags;
                fs.open(caller, nodeid, flags, self.reply(header));
            }
            Opcode::Read => {
                let read = args.take::<ReadIn>()?;
                let reply = Reply::new(self.token(header).sized(read.size as usize));
                fs.read(caller, read.fh, read.offset, read.size, reply);
            }
            Opcode::Release => fs.release(args.take::<ReleaseIn>()?.fh, self.reply(header)),
            Opcode::Opendir => fs.opendir(caller, nodeid, self.reply(header)),
            Opcode::Readdir | Opcode::Readdirplus => {
                let read = args.take::<ReadIn>()?;
                let plus = opcode == Opcode::Readdirplus;
                let reply = Reply::new(self.token(header).sized(read.size as usize).plus(plus));
                fs.readdir(caller, read.fh, read.offset, reply);
            }
            Opcode::Releasedir => fs.releasedir(args.take::<ReleaseIn>()?.fh, self.reply(header)),
            Opcode::Statfs => fs.statfs(caller, nodeid, self.reply(header)),
            Opcode::Getxattr => {
                let size = args.take::<GetxattrIn>()?.size;
                let name = args.name()?;
                let reply = Reply::new(self.token(header).sized(size as usize));
                fs.getxattr(caller, nodeid, name, reply);
            }
            Opcode::Listxattr => {
                let size = args.take::<GetxattrIn>()?.size;
                let reply = Reply::new(self.token(header).sized(size as usize));
                fs.listxattr(caller, nodeid, reply);
            }
            // Needs no answer; ENOSYS would end interrupts for good.
            Opcode::Interrupt => self.interrupts.interrupt(args.take::<InterruptIn>()?.unique),
            Opcode::Destroy => self.reply::<crate::reply::Done>(header).done(),
            // Answered before the threads start; once more is a mistake of the kernel.
            Opcode::Init => return None,
        }
        Some(())
    }

    fn refuse(&self, header: &InHeader, opcode: Opcode) {
        let unanswered = matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt);
        if !unanswered {
            self.reply::<crate::reply::Done>(header).error(Errno::INVAL);
        }
    }

    fn reply<Answer>(&self, header: &InHeader) -> Reply<Answer> {
        Reply::new(self.token(header))
    }

    fn token(&self, header: &InHeader) -> Token {
        Token::new(&self.channel, &self.interrupts, header.unique)
    }
}

/// What is left of a request's arguments.
struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }

    /// A name, ended by NUL and not empty.
    fn name(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|&byte| byte == 0).filter(|&len| len > 0)?;
        let (name, rest) = self.rest.split_at(len);
        self.rest = &rest[1..];
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::OutHeader;
    use crate::reply::{Attr, Data, Directory, Done, Entry, Opened, Statfs};

    /// Understands every request and answers none, so each costs the EIO of a dropped reply.
    struct Silent;

    impl Filesystem for Silent {
        fn lookup(&self, _: Caller, _: u64, _: &[u8], _: Reply<Entry>) {}
        fn forget(&self, _: u64, _: u64) {}
        fn getattr(&self, _: Caller, _: u64, _: Reply<Attr>) {}
        fn readlink(&self, _: Caller, _: u64, _: Reply<Data>) {}
        fn open(&self, _: Caller, _: u64, _: u32, _: Reply<Opened>) {}
        fn read(&self, _: Caller, _: u64, _: u64, _: u32, _: Reply<Data>) {}
        fn release(&self, _: u64, _: Reply<Done>) {}
        fn opendir(&self, _: Caller, _: u64, _: Reply<Opened>) {}
        fn readdir(&self, _: Caller, _: u64, _: u64, _: Reply<Directory>) {}
        fn releasedir(&self, _: u64, _: Reply<Done>) {}
        fn statfs(&self, _: Caller, _: u64, _: Reply<Statfs>) {}
    }

    struct Kernel {
        dispatcher: Dispatcher<Silent>,
        socket: UnixStream,
    }

    impl Kernel {
        fn new() -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let dispatcher = Dispatcher {
                channel: Arc::new(Channel::new(theirs.into())),
                interrupts: Arc::default(),
                filesystem: Arc::new(Silent),
            };
            Self { dispatcher, socket: ours }
        }

        /// The errno of each answer to these bytes.
        fn ask(&mut self, bytes: &[u8]) -> Vec<i32> {
            self.dispatcher.dispatch(bytes);
            let mut answers = [0; 4096];
            let len = self.socket.read(&mut answers).unwrap_or(0);
            let mut rest = &answers[..len];
            let mut errors = Vec::new();
            while let Ok((header, tail)) = OutHeader::read_from_prefix(rest) {
                errors.push(-header.error);
                rest = tail;
            }
            errors
        }
    }

    fn request(opcode: u32, arguments: &[u8]) -> Vec<u8> {
        let len = (size_of::<InHeader>() + arguments.len()) as u32;
        let header = InHeader {
            len,
            opcode,
            unique: 2,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen: 0,
            padding: 0,
        };
        [header.as_bytes(), arguments].concat()
    }

    #[test]
    fn every_request_is_answered_once_however_short_it_is() {
        let mut kernel = Kernel::new();
        for opcode in 0..60 {
            let unanswered = [2, 36, 42].contains(&opcode);
            for len in 0..64 {
                let errors = kernel.ask(&request(opcode, &vec![0; len]));
                assert_eq!(
                    errors.len(),
                    usize::from(!unanswered),
                    "{opcode} with {len}: {errors:?}"
                );
            }
        }
    }

    #[test]
    fn a_request_too_short_for_its_arguments_is_invalid() {
        let mut kernel = Kernel::new();
        let [invalid, silent] = [Errno::INVAL, Errno::IO].map(|errno| vec![errno.raw_os_error()]);
        for (opcode, whole) in [(Opcode::Open, 8), (Opcode::Read, 40), (Opcode::Release, 24)] {
            let arguments = vec![0; whole];
            assert_eq!(kernel.ask(&request(opcode as u32, &arguments[1..])), invalid, "{opcode:?}");
            assert_eq!(kernel.ask(&request(opcode as u32, &arguments)), silent, "{opcode:?}");
        }
        for name in [b"".as_slice(), b"\0", b"unterminated"] {
            assert_eq!(kernel.ask(&request(Opcode::Lookup as u32, name)), invalid, "{name:?}");
        }
        assert_eq!(kernel.ask(&request(Opcode::Lookup as u32, b"a\0")), silent);
    }

    #[test]
    fn a_wrong_length_or_an_unknown_request_is_refused() {
        let mut kernel = Kernel::new();
        let mut long = request(Opcode::Getattr as u32, &[]);
        long.push(0);
        assert_eq!(kernel.ask(&long), [Errno::INVAL.raw_os_error()]);
        assert_eq!(kernel.ask(&request(9, &[])), [Errno::NOSYS.raw_os_error()]);
        assert_eq!(kernel.ask(&request(u32::MAX, &[])), [Errno::NOSYS.raw_os_error()]);
        assert_eq!(kernel.ask(&[1; 39]), [0; 0]);
    }

    #[test]
    fn a_batch_that_announces_more_than_it_has_is_taken_as_far_as_it_goes() {
        let mut kernel = Kernel::new();
        let batch = [u32::MAX.as_bytes(), &[0; 4], &[0; 16]].concat();
        assert_eq!(kernel.ask(&request(Opcode::BatchForget as u32, &batch)), [0; 0]);
    }
}
