//! INIT, the first request of every connection: what the kernel and the session may use.
//!
//! The kernel offers flags; those that the session can do and the file system wants are agreed.

use rustix::io::Errno;
use tracing::debug;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    self, InHeader, InitIn, InitOut, KERNEL_MINOR_VERSION_EPOCH, Opcode, PAGE_LEN_BYTES, init,
};
use crate::channel::Channel;
use crate::error::FuseError;

/// What the kernel itself takes as the largest number of pages a request.
const PAGES_MAX: u16 = 256;
/// Bytes of the buffer that INIT is read into.
const INIT_BUFFER_LEN_BYTES: usize = 64 * 1024;
/// What every session asks the kernel for, where it is offered.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::HAS_EXPIRE_ONLY;

const _: () = assert!(INIT_BUFFER_LEN_BYTES >= abi::MIN_READ_BUFFER_LEN);

/// What a file system chooses.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that read requests, at least 1.
    pub threads: usize,
    /// Largest request, in pages: bounds one read, one readdir and one write. 256 (1 MiB) is the
    /// most.
    pub max_pages: u16,
    /// Readahead in bytes. More than the kernel's 128 KiB needs root.
    pub max_readahead_bytes: u32,
    /// Requests the kernel may have under way that no program waits for (readahead).
    pub max_background: u16,
    /// Buffers of the largest request's size that may be in use at once; each large write that is
    /// not answered holds one.
    pub buffers_max: usize,
    /// When the kernel drops cached pages.
    pub invalidation: Invalidation,
    /// The kernel keeps targets of symbolic links until it is told to drop them.
    pub cache_symlinks: bool,
    /// Locks of fcntl(2) and flock(2) are the file system's; else the kernel keeps them, for this
    /// mount alone.
    pub locks: bool,
    /// `open` truncates where it is told to. Otherwise the kernel truncates by `setattr` once the
    /// file is open, and only then notices that it is being executed (ETXTBSY).
    pub truncates_at_open: bool,
    /// The kernel checks POSIX access lists (`system.posix_acl_access`, `..._default`).
    pub posix_acl: bool,
    /// READDIRPLUS only where the kernel saw entries of the directory looked up. Rarely better: the
    /// programs that walk trees (fts: find, du, rm, chmod; tar) read a whole directory before they
    /// look at the first entry, so the guess turns to plain READDIR after one buffer, and each
    /// entry then costs a LOOKUP.
    pub readdirplus_auto: bool,
}

/// When the kernel drops cached pages of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// When attributes come with another size or mtime than before, and at each open that does not
    /// say to keep them.
    Auto,
    /// When it is told to, by a notification, and at each open that does not say to keep them.
    Explicit,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 2,
            max_pages: PAGES_MAX,
            max_readahead_bytes: 1 << 20,
            max_background: 64,
            buffers_max: 64,
            invalidation: Invalidation::Auto,
            cache_symlinks: true,
            locks: false,
            truncates_at_open: true,
            posix_acl: false,
            readdirplus_auto: false,
        }
    }
}

impl Config {
    fn wanted(&self) -> u64 {
        let mut wanted = WANTED;
        wanted |= match self.invalidation {
            Invalidation::Auto => init::AUTO_INVAL_DATA,
            Invalidation::Explicit => init::EXPLICIT_INVAL_DATA,
        };
        for (chosen, flags) in [
            (self.cache_symlinks, init::CACHE_SYMLINKS),
            (self.locks, init::POSIX_LOCKS | init::FLOCK_LOCKS),
            (self.truncates_at_open, init::ATOMIC_O_TRUNC),
            (self.posix_acl, init::POSIX_ACL),
            (self.readdirplus_auto, init::READDIRPLUS_AUTO),
        ] {
            wanted |= if chosen { flags } else { 0 };
        }
        wanted
    }

    fn pages(&self) -> u16 {
        self.max_pages.clamp(1, PAGES_MAX)
    }

    /// Bytes of the largest write.
    pub(crate) fn max_write_bytes(&self) -> u32 {
        u32::from(self.pages()) * PAGE_LEN_BYTES as u32
    }
}

/// What was agreed with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The kernel's minor version of the interface, at most
    /// [`KERNEL_MINOR_VERSION`](abi::KERNEL_MINOR_VERSION).
    pub minor: u32,
    /// The flags agreed, bits of [`init`].
    pub flags: u64,
    /// Most bytes of one write.
    pub max_write_bytes: u32,
    /// Most bytes of one read or readdir.
    pub max_read_bytes: u32,
}

impl Negotiated {
    /// Whether a flag of [`init`] is agreed.
    pub const fn has(&self, flag: u64) -> bool {
        self.flags & flag == flag
    }

    /// Whether the kernel understands [`Notifier::inc_epoch`](crate::Notifier::inc_epoch).
    pub const fn has_inc_epoch(&self) -> bool {
        self.minor >= KERNEL_MINOR_VERSION_EPOCH
    }
}

/// Answers INIT.
pub(crate) fn negotiate(channel: &Channel, config: &Config) -> Result<Negotiated, FuseError> {
    let mut buffer = vec![0; INIT_BUFFER_LEN_BYTES];
    loop {
        let len = channel
            .receive(&mut buffer)
            .map_err(|errno| FuseError::Init(format!("reading the first request: {errno}")))?;
        let (header, rest) = InHeader::read_from_prefix(&buffer[..len])
            .map_err(|_| FuseError::Init(format!("a first request of {len} bytes")))?;
        let (ask, rest) = InitIn::read_from_prefix(rest)
            .map_err(|_| FuseError::Init(format!("a first request of {len} bytes")))?;
        if Opcode::of(header.opcode) != Some(Opcode::Init) {
            return Err(FuseError::Init(format!("the first request is number {}", header.opcode)));
        }
        let (answer, negotiated) = match answer_init(&ask, flags2(rest), config) {
            Ok(answer) => answer,
            Err(error) => {
                // So that whoever waits for the mount is told, too.
                let _ = channel.send(header.unique, -Errno::PROTO.raw_os_error(), &[]);
                return Err(error);
            }
        };
        channel
            .send(header.unique, 0, &[answer.as_bytes()])
            .map_err(|errno| FuseError::Init(format!("answering the first request: {errno}")))?;
        // A kernel with a newer major version asks again with ours.
        if let Some(negotiated) = negotiated {
            return Ok(negotiated);
        }
    }
}

/// The upper half of the flags, which a kernel that offers INIT_EXT sends after the older fields.
fn flags2(rest: &[u8]) -> u32 {
    u32::read_from_prefix(rest).map_or(0, |(flags2, _)| flags2)
}

/// The answer, and what is agreed by it; `None` where the kernel asks again.
fn answer_init(
    ask: &InitIn,
    flags2: u32,
    config: &Config,
) -> Result<(InitOut, Option<Negotiated>), FuseError> {
    if ask.major > abi::KERNEL_VERSION {
        return Ok((InitOut { major: abi::KERNEL_VERSION, ..InitOut::default() }, None));
    }
    if ask.major < abi::KERNEL_VERSION || ask.minor < abi::KERNEL_MINOR_VERSION_MIN {
        return Err(FuseError::Version { major: ask.major, minor: ask.minor });
    }
    let extended = u64::from(ask.flags) & init::INIT_EXT != 0;
    let offered = u64::from(ask.flags) | if extended { u64::from(flags2) << 32 } else { 0 };
    let negotiated = Negotiated {
        minor: ask.minor.min(abi::KERNEL_MINOR_VERSION),
        flags: offered & config.wanted(),
        max_write_bytes: config.max_write_bytes(),
        max_read_bytes: config.max_write_bytes(),
    };
    debug!(
        minor = ask.minor,
        offered = %format_args!("{offered:#x}"),
        agreed = %format_args!("{:#x}", negotiated.flags),
        "the session starts"
    );
    let answer = InitOut {
        major: abi::KERNEL_VERSION,
        minor: negotiated.minor,
        max_readahead: ask.max_readahead.min(config.max_readahead_bytes),
        flags: negotiated.flags as u32,
        max_background: config.max_background,
        congestion_threshold: config.max_background / 4 * 3,
        max_write: negotiated.max_write_bytes,
        time_gran: 1,
        max_pages: config.pages(),
        flags2: (negotiated.flags >> 32) as u32,
        ..InitOut::default()
    };
    Ok((answer, Some(negotiated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(major: u32, minor: u32, flags: u64) -> InitIn {
        InitIn { major, minor, max_readahead: 131_072, flags: flags as u32 }
    }

    fn agree(minor: u32, offer: u64, config: &Config) -> Negotiated {
        let flags2 = (offer >> 32) as u32;
        answer_init(&ask(7, minor, offer), flags2, config).unwrap().1.unwrap()
    }

    #[test]
    fn only_what_the_kernel_offers_is_asked_for() {
        let offer = init::ASYNC_READ | init::READDIRPLUS_AUTO | init::MAX_PAGES;
        let config = Config::default();
        let (answer, negotiated) = answer_init(&ask(7, 46, offer), u32::MAX, &config).unwrap();
        assert_eq!(u64::from(answer.flags), init::ASYNC_READ | init::MAX_PAGES);
        assert_eq!(answer.flags2, 0, "flags2 without INIT_EXT is noise");
        assert_eq!(answer.minor, abi::KERNEL_MINOR_VERSION);
        assert_eq!(answer.max_readahead, 131_072);
        assert_eq!(answer.max_write, 1 << 20);
        assert_eq!(negotiated.unwrap().flags, init::ASYNC_READ | init::MAX_PAGES);
    }

    #[test]
    fn what_the_file_system_does_not_choose_is_not_agreed() {
        let plain = agree(45, u64::MAX, &Config::default());
        let chosen = init::POSIX_LOCKS | init::FLOCK_LOCKS | init::POSIX_ACL;
        assert_eq!(plain.flags & chosen, 0);
        assert!(plain.has(WANTED));
        assert!(plain.has(init::AUTO_INVAL_DATA) && !plain.has(init::EXPLICIT_INVAL_DATA));
        assert!(plain.has(init::HAS_EXPIRE_ONLY) && plain.has_inc_epoch());
        let config = Config {
            locks: true,
            posix_acl: true,
            invalidation: Invalidation::Explicit,
            ..Config::default()
        };
        let all = agree(43, u64::MAX, &config);
        assert!(all.has(chosen) && all.has(init::EXPLICIT_INVAL_DATA));
        assert!(!all.has(init::AUTO_INVAL_DATA) && !all.has_inc_epoch());
    }

    #[test]
    fn pages_are_held_to_what_the_kernel_can() {
        for (pages, bytes) in [(0, 4096), (1, 4096), (256, 1 << 20), (u16::MAX, 1 << 20)] {
            let config = Config { max_pages: pages, ..Config::default() };
            assert_eq!(agree(45, 0, &config).max_write_bytes, bytes);
        }
    }

    #[test]
    fn an_older_kernel_is_refused_and_a_newer_one_told_our_version() {
        let config = Config::default();
        assert!(matches!(answer_init(&ask(7, 27, 0), 0, &config), Err(FuseError::Version { .. })));
        assert!(matches!(answer_init(&ask(6, 99, 0), 0, &config), Err(FuseError::Version { .. })));
        let (answer, negotiated) = answer_init(&ask(8, 1, 0), 0, &config).unwrap();
        assert_eq!((answer.major, negotiated), (7, None));
        assert_eq!(agree(31, 0, &config).minor, 31);
    }
}
