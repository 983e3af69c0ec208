//! A session: INIT, then threads that read requests until the mount is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::{debug, error, warn};

use crate::abi::init;
use crate::buffer::{Pool, Request, buffer_len};
use crate::channel::Channel;
use crate::dispatch::Dispatcher;
use crate::error::FuseError;
use crate::filesystem::Filesystem;
use crate::interrupt::Interrupts;
use crate::mount::Mount;
use crate::negotiate::{Config, Negotiated, negotiate};
use crate::notify::Notifier;

/// How long dropping a session waits for its threads. They end at once when the mount is gone,
/// which a lazy unmount puts off while files are open.
const END_TIMEOUT_MS: u64 = 5_000;

/// A running session. Dropping it unmounts.
#[derive(Debug)]
pub struct Session {
    mount: Mount,
    running: Arc<Running>,
    negotiated: Negotiated,
    notifier: Notifier,
    malformed: Arc<AtomicU64>,
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
        let first = Arc::new(Channel::new(mount.take_device()?));
        let mut negotiated = negotiate(&first, config)?;
        if let Some(max_read_bytes) = mount.max_read_bytes() {
            negotiated.max_read_bytes = negotiated.max_read_bytes.min(max_read_bytes);
        }
        mount.raise_readahead(config.max_readahead_bytes);
        let notifier = Notifier::new(first.clone(), negotiated.has_inc_epoch());
        let mut channels = vec![first.clone()];
        while channels.len() < config.threads.max(1) {
            channels.push(Arc::new(first.duplicate()?));
        }
        filesystem.init(&negotiated, &notifier);
        let interrupts = Arc::new(Interrupts::default());
        let filesystem = Arc::new(filesystem);
        // One for each thread, whatever is held.
        let buffers_max = config.buffers_max.max(channels.len());
        let pool = Pool::new(buffer_len(negotiated.max_write_bytes as usize), buffers_max);
        // From here on an error drops the session, which unmounts and so ends the threads.
        let session = Self {
            mount,
            running: Arc::default(),
            negotiated,
            notifier,
            malformed: Arc::default(),
        };
        for channel in channels {
            let dispatcher = Dispatcher {
                channel,
                interrupts: interrupts.clone(),
                filesystem: filesystem.clone(),
                // Not `max_read_bytes`: a mount option limits reads, not listings.
                read_len_max: negotiated.max_write_bytes,
                setxattr_ext: negotiated.has(init::SETXATTR_EXT),
                malformed: session.malformed.clone(),
            };
            session.running.spawn(dispatcher, Request::new(&pool))?;
        }
        Ok(session)
    }

    /// What was agreed with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// How to tell the kernel of changes.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// How many requests of the kernel made no sense so far. Each was answered EINVAL, if at all.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
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
    fn spawn<F: Filesystem>(
        self: &Arc<Self>,
        dispatcher: Dispatcher<F>,
        request: Request,
    ) -> Result<(), FuseError> {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let running = self.clone();
        std::thread::Builder::new()
            .name("fuse".to_owned())
            .spawn(move || running.run(dispatcher, request))
            .map(drop)
            .map_err(|source| {
                *self.threads.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                FuseError::System { action: "starting a thread of the session", source }
            })
    }

    fn run<F: Filesystem>(&self, dispatcher: Dispatcher<F>, request: Request) {
        serve(&dispatcher, request);
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
fn serve<F: Filesystem>(dispatcher: &Dispatcher<F>, mut request: Request) {
    loop {
        match request.fill(|buffer| dispatcher.channel.receive(buffer)) {
            Ok(()) => {
                // The reply that was under way is dropped by the unwinding, and so answered.
                let call = AssertUnwindSafe(|| dispatcher.dispatch(&mut request));
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
