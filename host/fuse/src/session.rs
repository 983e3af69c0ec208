//! A session: INIT, then threads that read requests until the mount is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::{debug, error, warn};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InHeader, InitIn, InitOut, Opcode, init};
use crate::channel::Channel;
use crate::dispatch::Dispatcher;
use crate::error::FuseError;
use crate::filesystem::Filesystem;
use crate::interrupt::Interrupts;
use crate::mount::Mount;

/// How long dropping a session waits for its threads. They end at once when the mount is gone,
/// which a lazy unmount puts off while files are open.
const END_TIMEOUT_MS: u64 = 5_000;
/// Bytes of a thread's read buffer: room for a batch of 4,000 forgets. Requests that carry more
/// (writes) do not exist on a read-only mount.
const READ_BUFFER_LEN_BYTES: usize = 64 * 1024;
/// What is told as the largest write; the kernel's own minimum.
const MAX_WRITE_BYTES: u32 = 4096;
/// What every session asks the kernel for, where it is offered.
///
/// READDIRPLUS always, not as the kernel guesses (READDIRPLUS_AUTO): the programs that walk trees
/// (fts: find, du, rm, chmod; tar) read a whole directory before they look at the first entry, so
/// the guess turns to plain READDIR after one buffer, and each entry then costs a LOOKUP.
const WANTED: u64 = init::ASYNC_READ
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::INIT_EXT;

const _: () = assert!(READ_BUFFER_LEN_BYTES >= abi::MIN_READ_BUFFER_LEN);

/// Settings of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that read requests, at least 1.
    pub threads: usize,
    /// Largest request, in pages: bounds one read and one readdir. The kernel's limit is 256
    /// (1 MiB) unless raised by sysctl.
    pub max_pages: u16,
    /// Readahead in bytes. More than the kernel's 128 KiB needs root.
    pub max_readahead_bytes: u32,
    /// Requests the kernel may have under way that no program waits for (readahead).
    pub max_background: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self { threads: 2, max_pages: 256, max_readahead_bytes: 1 << 20, max_background: 64 }
    }
}

/// A running session. Dropping it unmounts.
#[derive(Debug)]
pub struct Session {
    mount: Mount,
    running: Arc<Running>,
}

impl Session {
    /// Starts to serve `mount`. When this returns, the mount is usable.
    ///
    /// # Errors
    /// The kernel speaks another protocol, or threads or descriptors are not to be had.
    pub fn start<F: Filesystem>(
        mut mount: Mount,
        filesystem: F,
        config: &Config,
    ) -> Result<Self, FuseError> {
        let first = Channel::new(mount.take_device()?);
        negotiate(&first, config)?;
        mount.raise_readahead(config.max_readahead_bytes);
        let mut channels = vec![first];
        while channels.len() < config.threads.max(1) {
            channels.push(channels[0].duplicate()?);
        }
        let interrupts = Arc::new(Interrupts::default());
        let filesystem = Arc::new(filesystem);
        let running = Arc::new(Running::default());
        // From here on an error drops the session, which unmounts and so ends the threads.
        let session = Self { mount, running };
        for channel in channels {
            let dispatcher = Dispatcher {
                channel: Arc::new(channel),
                interrupts: interrupts.clone(),
                filesystem: filesystem.clone(),
            };
            session.running.spawn(dispatcher)?;
        }
        Ok(session)
    }

    /// The directory it is mounted on.
    pub fn mountpoint(&self) -> &std::path::Path {
        self.mount.mountpoint()
    }

    /// Unmounts. Programs that still have files open get errors from now on. Does nothing where
    /// the mount is gone already.
    ///
    /// # Errors
    /// The kernel, or `fusermount3`, refuses.
    pub fn unmount(&mut self) -> Result<(), FuseError> {
        self.mount.unmount()
    }

    /// Waits until every thread has ended, at most `limit`; whether they have.
    pub fn wait(&self, limit: Duration) -> bool {
        self.running.wait(limit)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.mount.unmount() {
            warn!(%error, "cannot unmount");
            return;
        }
        if !self.running.wait(Duration::from_millis(END_TIMEOUT_MS)) {
            warn!("the mount is detached, but still in use: its threads go on until it is not");
        }
    }
}

/// How many threads still run.
#[derive(Debug, Default)]
struct Running {
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Running {
    fn spawn<F: Filesystem>(self: &Arc<Self>, dispatcher: Dispatcher<F>) -> Result<(), FuseError> {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let running = self.clone();
        std::thread::Builder::new()
            .name("fuse".to_owned())
            .spawn(move || running.run(dispatcher))
            .map(drop)
            .map_err(|source| {
                *self.threads.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                FuseError::System { action: "starting a thread of the session", source }
            })
    }

    fn run<F: Filesystem>(&self, dispatcher: Dispatcher<F>) {
        serve(&dispatcher);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        *threads -= 1;
        if *threads == 0 {
            dispatcher.filesystem.destroy();
            self.ended.notify_all();
        }
    }

    fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while *threads > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            threads =
                self.ended.wait_timeout(threads, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Reads requests until the mount is gone.
fn serve<F: Filesystem>(dispatcher: &Dispatcher<F>) {
    let mut buffer = vec![0; READ_BUFFER_LEN_BYTES];
    loop {
        match dispatcher.channel.receive(&mut buffer) {
            Ok(len) => {
                // The reply that was under way is dropped by the unwinding, and so answered.
                let call = AssertUnwindSafe(|| dispatcher.dispatch(&buffer[..len]));
                if catch_unwind(call).is_err() {
                    error!("a request panicked; it was answered with an I/O error");
                }
            }
            Err(Errno::NODEV | Errno::CONNABORTED) => {
                debug!("the mount is gone");
                return;
            }
            Err(errno) => {
                error!(%errno, "reading requests failed; the session ends");
                return;
            }
        }
    }
}

/// Answers INIT, the first request of every connection.
fn negotiate(channel: &Channel, config: &Config) -> Result<(), FuseError> {
    let mut buffer = vec![0; READ_BUFFER_LEN_BYTES];
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
        let answer = match answer_init(&ask, flags2(rest), config) {
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
        if ask.major == abi::KERNEL_VERSION {
            return Ok(());
        }
    }
}

/// The upper half of the flags, which a kernel that offers INIT_EXT sends after the older fields.
fn flags2(rest: &[u8]) -> u32 {
    u32::read_from_prefix(rest).map_or(0, |(flags2, _)| flags2)
}

fn answer_init(ask: &InitIn, flags2: u32, config: &Config) -> Result<InitOut, FuseError> {
    let version = FuseError::Version { major: ask.major, minor: ask.minor };
    if ask.major > abi::KERNEL_VERSION {
        return Ok(InitOut { major: abi::KERNEL_VERSION, ..InitOut::default() });
    }
    if ask.major < abi::KERNEL_VERSION || ask.minor < abi::KERNEL_MINOR_VERSION_MIN {
        return Err(version);
    }
    let extended = u64::from(ask.flags) & init::INIT_EXT != 0;
    let offered = u64::from(ask.flags) | if extended { u64::from(flags2) << 32 } else { 0 };
    let flags = offered & WANTED;
    debug!(minor = ask.minor, offered = %format_args!("{offered:#x}"), "the session starts");
    Ok(InitOut {
        major: abi::KERNEL_VERSION,
        minor: ask.minor.min(abi::KERNEL_MINOR_VERSION),
        max_readahead: ask.max_readahead.min(config.max_readahead_bytes),
        flags: flags as u32,
        max_background: config.max_background,
        congestion_threshold: config.max_background / 4 * 3,
        max_write: MAX_WRITE_BYTES,
        time_gran: 1,
        max_pages: config.max_pages,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(major: u32, minor: u32, flags: u64) -> InitIn {
        InitIn { major, minor, max_readahead: 131_072, flags: flags as u32 }
    }

    #[test]
    fn only_what_the_kernel_offers_is_asked_for() {
        let offer = init::ASYNC_READ | init::READDIRPLUS_AUTO | init::MAX_PAGES;
        let answer = answer_init(&ask(7, 45, offer), u32::MAX, &Config::default()).unwrap();
        assert_eq!(u64::from(answer.flags), init::ASYNC_READ | init::MAX_PAGES);
        assert_eq!(answer.flags2, 0, "flags2 without INIT_EXT is noise");
        assert_eq!(answer.minor, abi::KERNEL_MINOR_VERSION);
        assert_eq!(answer.max_readahead, 131_072);
    }

    #[test]
    fn an_older_kernel_is_refused_and_a_newer_one_told_our_version() {
        let config = Config::default();
        assert!(matches!(answer_init(&ask(7, 27, 0), 0, &config), Err(FuseError::Version { .. })));
        assert!(matches!(answer_init(&ask(6, 99, 0), 0, &config), Err(FuseError::Version { .. })));
        assert_eq!(answer_init(&ask(8, 1, 0), 0, &config).unwrap().major, 7);
        assert_eq!(answer_init(&ask(7, 31, 0), 0, &config).unwrap().minor, 31);
    }
}
