//! Requests from a kernel that is a socket.

use std::convert::Infallible;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use bytes::Bytes;
use zerocopy::IntoBytes;

use super::*;
use crate::abi::{
    CopyFileRangeIn, FileLock, LkIn, LseekIn, OutHeader, ReadIn, Rename2In, SetattrIn, SetxattrIn,
    SetxattrInExt, WRITE_KILL_SUIDGID, WRITE_LOCKOWNER, WriteIn, fattr,
};
use crate::buffer::{Pool, buffer_len};
use crate::reply::{
    Attr, Copied, Data, Directory, Entry, LockFound, Opened, Position, Statfs, Written,
};
use crate::request::{
    CopyFileRange, Lock, LockKind, LockRange, Open, Read, Release, Rename, Seek, SetAttr, SetTime,
    SetXattr, Write,
};

/// Understands every request and answers none, so each costs the EIO of a dropped reply. Of some it
/// remembers what it understood.
#[derive(Default)]
struct Silent {
    understood: Mutex<Vec<String>>,
    written: Mutex<Vec<Bytes>>,
}

impl Silent {
    fn understand(&self, what: impl std::fmt::Debug) {
        self.understood.lock().unwrap().push(format!("{what:?}"));
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _: Caller, _: u64, _: &[u8], _: Reply<Entry>) {}
    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.understand((nodeid, nlookup));
    }
    fn getattr(&self, _: Caller, _: u64, _: Option<u64>, _: Reply<Attr>) {}
    fn readlink(&self, _: Caller, _: u64, _: Reply<Data>) {}
    fn open(&self, _: Caller, _: u64, _: Open, _: Reply<Opened>) {}
    fn read(&self, _: Caller, _: u64, _: Read, _: Reply<Data>) {}
    fn release(&self, _: u64, _: Release, _: Reply<Done>) {}
    fn opendir(&self, _: Caller, _: u64, _: Reply<Opened>) {}
    fn readdir(&self, _: Caller, _: u64, _: u64, _: Reply<Directory>) {}
    fn releasedir(&self, _: u64, _: Reply<Done>) {}
    fn statfs(&self, _: Caller, _: u64, _: Reply<Statfs>) {}
    fn symlink(&self, _: Caller, _: u64, name: &[u8], target: &[u8], _: Reply<Entry>) {
        self.understand((Bytes::copy_from_slice(name), Bytes::copy_from_slice(target)));
    }
    fn rename(&self, _: Caller, rename: Rename<'_>, _: Reply<Done>) {
        self.understand(rename);
    }
    fn setattr(&self, _: Caller, _: u64, setattr: SetAttr, _: Reply<Attr>) {
        self.understand(setattr);
    }
    fn setxattr(&self, _: Caller, _: u64, setxattr: SetXattr<'_>, _: Reply<Done>) {
        self.understand(setxattr);
    }
    fn write(&self, _: Caller, file: u64, write: Write, data: Bytes, reply: Reply<Written>) {
        self.understand((file, write));
        self.written.lock().unwrap().push(data);
        // More than there was.
        reply.written(u32::MAX);
    }
    fn getlk(&self, _: Caller, _: u64, _: Lock, _: Reply<LockFound>) {}
    fn setlk(&self, _: Caller, _: u64, lock: Lock, _: Reply<Done>) {
        self.understand(lock);
    }
    fn setlkw(&self, _: Caller, _: u64, _: Lock, _: Reply<Done>) {}
    fn lseek(&self, _: Caller, _: u64, seek: Seek, reply: Reply<Position>) {
        self.understand(seek);
        reply.position(7);
    }
    fn copy_file_range(&self, _: Caller, copy: CopyFileRange, reply: Reply<Copied>) {
        self.understand(copy.len_bytes);
        reply.copied(copy.len_bytes);
    }
}

struct Kernel {
    dispatcher: Dispatcher<Silent>,
    request: Request,
    socket: UnixStream,
}

impl Kernel {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let dispatcher = Dispatcher {
            channel: Arc::new(Channel::new(theirs.into())),
            interrupts: Arc::default(),
            filesystem: Arc::new(Silent::default()),
            setxattr_ext: true,
            read_len_max: 1 << 20,
            malformed: Arc::default(),
        };
        let request = Request::new(&Pool::new(buffer_len(1 << 20), 8));
        Self { dispatcher, request, socket: ours }
    }

    /// The errno of each answer to these bytes.
    fn ask(&mut self, bytes: &[u8]) -> Vec<i32> {
        self.answers(bytes).iter().map(|(errno, _)| *errno).collect()
    }

    /// The errno and the body of each answer to these bytes.
    fn answers(&mut self, bytes: &[u8]) -> Vec<(i32, Vec<u8>)> {
        let fill = |buffer: &mut [u8]| {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        };
        self.request.fill(fill).unwrap();
        self.dispatcher.dispatch(&mut self.request);
        let mut answers = [0; 4096];
        let len = self.socket.read(&mut answers).unwrap_or(0);
        let mut rest = &answers[..len];
        let mut seen = Vec::new();
        while let Ok((header, tail)) = OutHeader::read_from_prefix(rest) {
            let (body, tail) = tail.split_at(header.len as usize - size_of::<OutHeader>());
            seen.push((-header.error, body.to_vec()));
            rest = tail;
        }
        seen
    }

    fn malformed(&self) -> u64 {
        self.dispatcher.malformed.load(Ordering::Relaxed)
    }

    fn understood(&self) -> Vec<String> {
        std::mem::take(&mut *self.dispatcher.filesystem.understood.lock().unwrap())
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

fn invalid() -> Vec<i32> {
    vec![Errno::INVAL.raw_os_error()]
}

/// What a request that was understood costs.
fn silent() -> Vec<i32> {
    vec![Errno::IO.raw_os_error()]
}

#[test]
fn every_request_is_answered_once_however_short_it_is() {
    let mut kernel = Kernel::new();
    for opcode in 0..60 {
        let unanswered = [2, 36, 42].contains(&opcode);
        for len in 0..128 {
            let errors = kernel.ask(&request(opcode, &vec![0; len]));
            assert_eq!(errors.len(), usize::from(!unanswered), "{opcode} with {len}: {errors:?}");
        }
    }
}

#[test]
fn every_request_is_answered_once_whatever_its_bytes() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kernel = Kernel::new();
    for _ in 0..50_000 {
        let opcode = random.u32(0..60);
        let arguments: Vec<u8> = (0..random.usize(0..150))
            // Many zeros, so that names end and numbers are small.
            .map(|_| if random.bool() { 0 } else { random.u8(..) })
            .collect();
        let answers = kernel.ask(&request(opcode, &arguments)).len();
        let answered = Opcode::of(opcode).is_none_or(Opcode::is_answered);
        assert_eq!(answers, usize::from(answered), "{opcode} {arguments:?}");
        kernel.understood();
        kernel.dispatcher.filesystem.written.lock().unwrap().clear();
    }
}

#[test]
fn a_request_too_short_for_its_arguments_is_invalid_and_counted() {
    let mut kernel = Kernel::new();
    for (count, (opcode, whole)) in [
        (Opcode::Getattr, 16),
        (Opcode::Setattr, 88),
        (Opcode::Open, 8),
        (Opcode::Read, 40),
        (Opcode::Write, 40),
        (Opcode::Release, 24),
        (Opcode::Getlk, 48),
        (Opcode::Setlk, 48),
        (Opcode::Setlkw, 48),
        (Opcode::Readdir, 40),
        (Opcode::Releasedir, 24),
    ]
    .into_iter()
    .enumerate()
    {
        let arguments = vec![0; whole];
        assert_eq!(kernel.ask(&request(opcode as u32, &arguments[1..])), invalid(), "{opcode:?}");
        assert_eq!(kernel.malformed(), count as u64 + 1);
        assert_eq!(kernel.ask(&request(opcode as u32, &arguments)), silent(), "{opcode:?}");
        assert_eq!(kernel.malformed(), count as u64 + 1);
    }
}

#[test]
fn names_are_whole_and_as_many_as_there_should_be() {
    let mut kernel = Kernel::new();
    for name in [b"".as_slice(), b"\0", b"unterminated"] {
        assert_eq!(kernel.ask(&request(Opcode::Lookup as u32, name)), invalid(), "{name:?}");
    }
    assert_eq!(kernel.ask(&request(Opcode::Lookup as u32, b"a\0")), silent());
    for names in [b"a\0".as_slice(), b"a\0\0", b"\0b\0", b"a\0b"] {
        let newdir = 5u64;
        let arguments = [newdir.as_bytes(), names].concat();
        assert_eq!(kernel.ask(&request(Opcode::Rename as u32, &arguments)), invalid(), "{names:?}");
    }
    let head = Rename2In { newdir: 5, flags: 2, padding: 0 };
    let arguments = [head.as_bytes(), b"old\0new\0"].concat();
    assert_eq!(kernel.ask(&request(Opcode::Rename2 as u32, &arguments)), silent());
    let rename = Rename { parent: 1, name: b"old", new_parent: 5, new_name: b"new", flags: 2 };
    assert_eq!(kernel.understood(), [format!("{rename:?}")]);
    assert_eq!(kernel.ask(&request(Opcode::Symlink as u32, b"name\0target\0")), silent());
    assert_eq!(kernel.understood(), [r#"(b"name", b"target")"#]);
}

#[test]
fn a_write_has_the_data_it_announces_and_no_answer_says_more() {
    let mut kernel = Kernel::new();
    let head = |size| WriteIn {
        fh: 3,
        offset: 9,
        size,
        write_flags: WRITE_LOCKOWNER | WRITE_KILL_SUIDGID,
        lock_owner: 4,
        flags: 1,
        padding: 0,
    };
    for size in [0, 4, 6, u32::MAX] {
        let arguments = [head(size).as_bytes(), b"12345"].concat();
        assert_eq!(kernel.ask(&request(Opcode::Write as u32, &arguments)), invalid(), "{size}");
    }
    let large = vec![7; 1 << 20];
    for data in [b"12345".as_slice(), &large] {
        let arguments = [head(data.len() as u32).as_bytes(), data].concat();
        assert_eq!(kernel.ask(&request(Opcode::Write as u32, &arguments)), silent());
        let write = Write {
            offset: 9,
            flags: 1,
            lock_owner: Some(4),
            from_cache: false,
            kill_suidgid: true,
        };
        assert_eq!(kernel.understood(), [format!("{:?}", (3, write))]);
        let written = kernel.dispatcher.filesystem.written.lock().unwrap().pop().unwrap();
        assert!(written == data);
    }
}

#[test]
fn a_setattr_means_the_fields_it_names_and_no_time_that_is_none() {
    let mut kernel = Kernel::new();
    let mut raw = SetattrIn::read_from_bytes(&[0; 88]).unwrap();
    (raw.mode, raw.size, raw.atime, raw.atimensec) = (0o100_600, 5, u64::MAX, 999_999_999);
    raw.valid = fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::SIZE;
    assert_eq!(kernel.ask(&request(Opcode::Setattr as u32, raw.as_bytes())), silent());
    let expected = SetAttr {
        size: Some(5),
        atime: Some(SetTime::At { secs: -1, nanos: 999_999_999 }),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    assert_eq!(kernel.understood(), [format!("{expected:?}")]);
    raw.atimensec = 1_000_000_000;
    assert_eq!(kernel.ask(&request(Opcode::Setattr as u32, raw.as_bytes())), invalid());
    raw.valid = fattr::SIZE;
    assert_eq!(kernel.ask(&request(Opcode::Setattr as u32, raw.as_bytes())), silent());
}

#[test]
fn a_value_is_as_long_as_announced_and_may_have_zeros() {
    let mut kernel = Kernel::new();
    let arguments = |size, ext: &[u8], rest: &[u8]| {
        [SetxattrIn { size, flags: 1 }.as_bytes(), ext, rest].concat()
    };
    let ext = SetxattrInExt { setxattr_flags: 1, padding: 0 };
    let rest = b"user.a\0v\0v";
    let ask = arguments(3, ext.as_bytes(), rest);
    assert_eq!(kernel.ask(&request(Opcode::Setxattr as u32, &ask)), silent());
    let understood = |kill_sgid| {
        format!("{:?}", SetXattr { name: b"user.a", value: b"v\0v", flags: 1, kill_sgid })
    };
    assert_eq!(kernel.understood(), [understood(true)]);
    let ask = arguments(4, ext.as_bytes(), rest);
    assert_eq!(kernel.ask(&request(Opcode::Setxattr as u32, &ask)), invalid());
    // Without the extension the name comes earlier.
    kernel.dispatcher.setxattr_ext = false;
    let ask = arguments(3, b"", rest);
    assert_eq!(kernel.ask(&request(Opcode::Setxattr as u32, &ask)), silent());
    assert_eq!(kernel.understood(), [understood(false)]);
}

#[test]
fn a_lock_has_a_kind_and_a_range() {
    let mut kernel = Kernel::new();
    let mut ask = |start, end, kind, lk_flags| {
        let lk = FileLock { start, end, kind, pid: 8 };
        let raw = LkIn { fh: 3, owner: u64::MAX, lk, lk_flags, padding: 0 };
        (kernel.ask(&request(Opcode::Setlk as u32, raw.as_bytes())), kernel.understood())
    };
    let to_end = i64::MAX as u64;
    for (start, end, kind) in [(0, 1, 3), (2, 1, 0), (0, to_end + 1, 1), (0, u64::MAX, 2)] {
        assert_eq!(ask(start, end, kind, 0).0, invalid(), "{start} {end} {kind}");
    }
    for (kind, lk_flags) in [(LockKind::Read, 0), (LockKind::Write, 1), (LockKind::Unlock, 2)] {
        let range = LockRange { start: 5, end: to_end, kind, pid: 8 };
        let lock = Lock { owner: u64::MAX, range, flock: lk_flags == 1 };
        let (answer, understood) = ask(5, to_end, kind as u32, lk_flags);
        assert_eq!((answer, understood), (silent(), vec![format!("{lock:?}")]));
    }
}

#[test]
fn more_bytes_than_there_can_be_are_invalid() {
    let mut kernel = Kernel::new();
    for opcode in [Opcode::Read, Opcode::Readdir, Opcode::Readdirplus] {
        let mut raw = ReadIn::read_from_bytes(&[0; 40]).unwrap();
        raw.size = 1 << 20;
        assert_eq!(kernel.ask(&request(opcode as u32, raw.as_bytes())), silent());
        raw.size += 1;
        assert_eq!(kernel.ask(&request(opcode as u32, raw.as_bytes())), invalid());
    }
    let end = i64::MAX as u64;
    let mut write = WriteIn::read_from_bytes(&[0; 40]).unwrap();
    (write.offset, write.size) = (end - 1, 1);
    let mut ask = |write: &WriteIn| {
        kernel.ask(&request(Opcode::Write as u32, &[write.as_bytes(), b"x"].concat()))
    };
    assert_eq!(ask(&write), silent());
    write.offset = end;
    assert_eq!(ask(&write), invalid());
    write.offset = u64::MAX;
    assert_eq!(ask(&write), invalid());
    let mut setattr = SetattrIn::read_from_bytes(&[0; 88]).unwrap();
    (setattr.valid, setattr.size) = (fattr::SIZE, end + 1);
    assert_eq!(kernel.ask(&request(Opcode::Setattr as u32, setattr.as_bytes())), invalid());
}

#[test]
fn only_data_and_holes_are_sought() {
    let mut kernel = Kernel::new();
    let mut ask = |whence| {
        let raw = LseekIn { fh: 3, offset: 9, whence, padding: 0 };
        (kernel.answers(&request(Opcode::Lseek as u32, raw.as_bytes())), kernel.understood())
    };
    for (whence, seek) in [(3, Seek::Data(9)), (4, Seek::Hole(9))] {
        let answer = (0, 7u64.as_bytes().to_vec());
        assert_eq!(ask(whence), (vec![answer], vec![format!("{seek:?}")]));
    }
    for whence in [0, 1, 2, 5, u32::MAX] {
        assert_eq!(ask(whence).0, [(Errno::INVAL.raw_os_error(), Vec::new())], "{whence}");
    }
}

#[test]
fn a_copy_is_no_longer_than_its_answer_can_say() {
    let mut kernel = Kernel::new();
    let mut raw = CopyFileRangeIn::read_from_bytes(&[0; 56]).unwrap();
    raw.len = 1 << 40;
    let answers = kernel.answers(&request(Opcode::CopyFileRange as u32, raw.as_bytes()));
    assert_eq!(answers, [(0, [0xffff_f000u32.as_bytes(), &[0; 4]].concat())]);
    let answers = kernel.answers(&request(Opcode::CopyFileRange64 as u32, raw.as_bytes()));
    assert_eq!(answers, [(0, (1u64 << 40).as_bytes().to_vec())]);
}

#[test]
fn a_wrong_length_or_an_unknown_request_is_refused() {
    let mut kernel = Kernel::new();
    let mut long = request(Opcode::Statfs as u32, &[]);
    long.push(0);
    assert_eq!(kernel.ask(&long), invalid());
    assert_eq!(kernel.malformed(), 1);
    for unknown in [37, 40, 52, u32::MAX] {
        assert_eq!(kernel.ask(&request(unknown, &[])), [Errno::NOSYS.raw_os_error()]);
    }
    assert_eq!(kernel.malformed(), 1, "unknown is not malformed");
    assert_eq!(kernel.ask(&[1; 39]), [0; 0]);
    assert_eq!(kernel.malformed(), 2);
}

#[test]
fn a_batch_that_announces_more_than_it_has_is_taken_as_far_as_it_goes() {
    let mut kernel = Kernel::new();
    let batch = [u32::MAX.as_bytes(), &[0; 4], 5u64.as_bytes(), 2u64.as_bytes(), &[1; 15]].concat();
    assert_eq!(kernel.ask(&request(Opcode::BatchForget as u32, &batch)), [0; 0]);
    assert_eq!(kernel.understood(), ["(5, 2)"]);
}
