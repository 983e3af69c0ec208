//! One directory, exported, and mounted several times to be written to: a brick, one or two
//! gateways, and mounts before each. Or a volume of several bricks in its place.
//!
//! With `PORTCULLIS_SUITE_LOCAL` in the environment a share has no servers: its mounts are bind
//! mounts of the directory. A test that fails then is wrong itself, since what it asks for is
//! more than the kernel's own file systems do. Tests about the servers pass without a word.
//!
//! What must hold: a test that hangs in a system call fails instead. A share that lives longer
//! than its limit has its mounts' processes killed, and every call in them returns.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::mounted::Mounted;
use crate::site::Site;
use crate::{need, run, wait};

/// How long a share may live: three programs that take as long as they may.
fn limit() -> Duration {
    run::limit() * 3
}

/// What a share is made of.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// The directory to export; one of its own where `None`.
    pub export: Option<PathBuf>,
    /// How many bricks the volume has, each with a directory of its own.
    pub bricks: usize,
    /// For each mount the number of its gateway, from 0.
    pub mounts: &'a [usize],
    /// What follows `-o` in each mount; may be empty.
    pub options: &'a str,
    /// Arguments of each gateway.
    pub gateway_args: &'a [&'a str],
}

impl Default for Layout<'_> {
    fn default() -> Self {
        Self { export: None, bricks: 1, mounts: &[0], options: "", gateway_args: &[] }
    }
}

/// A running share.
#[derive(Debug)]
pub struct Share {
    // Dropped in this order: what is mounted goes before what serves it.
    watchdog: Watchdog,
    mounts: Vec<Option<Mounted>>,
    site: Option<Site>,
    export: PathBuf,
    scratch: TempDir,
}

impl Share {
    /// One mount. `None` where the machine cannot mount; then `test` is told to be skipped.
    pub fn one(test: &str) -> Option<Self> {
        Self::start(test, &Layout::default())
    }

    /// Two mounts before one gateway.
    pub fn two(test: &str) -> Option<Self> {
        Self::start(test, &Layout { mounts: &[0, 0], ..Layout::default() })
    }

    /// Three mounts: 0 and 1 before one gateway, 2 before another.
    pub fn three(test: &str) -> Option<Self> {
        Self::start(test, &Layout { mounts: &[0, 0, 1], ..Layout::default() })
    }

    /// A share as `layout` says.
    pub fn start(test: &str, layout: &Layout<'_>) -> Option<Self> {
        if !need::fuse_and_root(test) {
            return None;
        }
        let scratch = tempfile::tempdir().expect("a temporary directory");
        open_to_all(scratch.path());
        let export = layout.export.clone().unwrap_or_else(|| scratch.path().join("export"));
        if !export.exists() {
            std::fs::create_dir(&export).expect("a directory to export");
            open_to_all(&export);
        }
        let start = || {
            let mut exports = vec![export.clone()];
            for number in 1..layout.bricks {
                exports.push(scratch.path().join(format!("export-{number}")));
                std::fs::create_dir(&exports[number]).expect("a directory to export");
                open_to_all(&exports[number]);
            }
            Site::start_volume(&exports, layout.gateway_args)
        };
        let mut site = (!is_local()).then(start);
        let mut mounts = Vec::new();
        for (number, &gateway) in layout.mounts.iter().enumerate() {
            let name = format!("mnt-{number}");
            let Some(site) = &mut site else {
                mounts.push(Some(Mounted::bind(&export, &scratch.path().join(&name))));
                continue;
            };
            open_to_all(&site.scratch("."));
            while site.more_gateways.len() < gateway {
                site.add_gateway(layout.gateway_args);
            }
            let url = format!("pc://{}/", site.gateway_number(gateway).ready());
            mounts.push(Some(mount(site, &url, &name, layout.options)));
        }
        let watchdog = Watchdog::start(&mounts);
        Some(Self { watchdog, mounts, site, export, scratch })
    }

    /// Mounts the volume once more, through the gateway at `address`, and answers the mount's
    /// number.
    pub fn add_mount(&mut self, address: &str, options: &str) -> usize {
        let name = format!("mnt-{}", self.mounts.len());
        let url = format!("pc://{address}/");
        let mounted = mount(self.site(), &url, &name, options);
        self.mounts.push(Some(mounted));
        self.watchdog.watch(&self.mounts);
        self.mounts.len() - 1
    }

    /// The mount point with this number.
    pub fn mount(&self, number: usize) -> &Path {
        self.mounted(number).path()
    }

    /// The mount with this number.
    pub fn mounted(&self, number: usize) -> &Mounted {
        self.mounts[number].as_ref().expect("it is mounted")
    }

    /// The mount with this number, out of the share's hands.
    pub fn take_mount(&mut self, number: usize) -> Mounted {
        let mounted = self.mounts[number].take().expect("it is mounted");
        self.watchdog.watch(&self.mounts);
        mounted
    }

    /// All mount points.
    pub fn paths(&self) -> Vec<&Path> {
        self.mounts.iter().flatten().map(Mounted::path).collect()
    }

    /// The directory that is exported.
    pub fn export(&self) -> &Path {
        &self.export
    }

    /// A path for a file of the test's own, outside the export and on the same file system as
    /// temporary files are.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The servers.
    pub fn site(&self) -> &Site {
        self.site.as_ref().expect("the test asks for servers: it looks at is_local first")
    }

    /// The servers, to kill and restart them.
    pub fn site_mut(&mut self) -> &mut Site {
        self.site.as_mut().expect("the test asks for servers: it looks at is_local first")
    }
}

/// Whether shares have no servers, to test the tests.
pub fn is_local() -> bool {
    std::env::var_os("PORTCULLIS_SUITE_LOCAL").is_some()
}

fn mount(site: &Site, url: &str, name: &str, options: &str) -> Mounted {
    let args: &[&str] = if options.is_empty() { &[] } else { &["-o", options] };
    Mounted::at(site, url, name, args)
}

/// Other users have to get through to a mount in a temporary directory.
fn open_to_all(dir: &Path) {
    std::fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("it is ours");
}

/// Kills the processes of mounts when a test takes too long.
#[derive(Debug)]
struct Watchdog {
    is_over: Arc<AtomicBool>,
    servers: Arc<Mutex<Vec<Pid>>>,
}

impl Watchdog {
    fn start(mounts: &[Option<Mounted>]) -> Self {
        let watchdog = Self { is_over: Arc::default(), servers: Arc::default() };
        watchdog.watch(mounts);
        let (is_over, servers) = (watchdog.is_over.clone(), watchdog.servers.clone());
        std::thread::spawn(move || {
            let (start, limit) = (Instant::now(), limit());
            while start.elapsed() < limit {
                wait::pause(Duration::from_millis(500));
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
            for &pid in servers.lock().expect("nobody panics with it").iter() {
                eprintln!("a share lives longer than {limit:?}: its mount {pid:?} is killed");
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        watchdog
    }

    fn watch(&self, mounts: &[Option<Mounted>]) {
        let ids = mounts.iter().flatten().filter_map(|mounted| mounted.server());
        let ids = ids.filter_map(|server| Pid::from_raw(server.id() as i32)).collect();
        *self.servers.lock().expect("nobody panics with it") = ids;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
