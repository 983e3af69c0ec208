//! The hit path alone, in one process: a real cache, a real driver, and lookups that are all answered from
//! memory. What they cost is counted in instructions by callgrind, where valgrind is installed.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::Arc;

use portcullis_core::cache::{
    Answer, CacheConfig, DentryCache, Filled, Listener, TapConfig, TapNames,
};
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::{Attr, Entry, FileKind, Handle};
use portcullis_policy::{EvictionDriver, LoadedPolicy, PolicyChoice};

/// So few names in each shard that none of them has enough to tell for the driver to be woken.
const DIRS: u64 = 256;
const DIR_NAMES: u64 = 16;
/// Of one count. No object is hit so often that its hits are no longer counted.
pub const LOOKUPS: u64 = 500_000;
const CAPACITY_BYTES: u64 = 64 << 20;
/// Lookups between two looks at what a listener was told.
const TAKE: u64 = 10_000;

/// A cache that has all that is asked for.
pub struct Hits {
    cache: Arc<DentryCache<()>>,
    driver: EvictionDriver,
}

impl Hits {
    /// With this policy at work, which has been told of everything.
    pub fn start(choice: PolicyChoice) -> Self {
        let config = CacheConfig { capacity_bytes: CAPACITY_BYTES, max_age_ms: u64::MAX, seed: 1 };
        let cache = Arc::new(DentryCache::new(config));
        for number in 0..DIRS * DIR_NAMES {
            let (dir, name) = place(number);
            match cache.lookup(0, &dir, &name, || ()) {
                Answer::Lead(ticket) => cache.fill(0, ticket, &Filled::Entry(entry(number))),
                other => panic!("nothing is known yet: {other:?}"),
            };
        }
        let limits = PolicyLimits { capacity_bytes: CAPACITY_BYTES, seed: 1 };
        let policy = LoadedPolicy::load(choice, limits).unwrap_or_else(|error| panic!("{error}"));
        let driver = EvictionDriver::start(cache.clone(), policy).expect("a thread");
        while driver.status().events < DIRS * DIR_NAMES {
            std::thread::yield_now();
        }
        Self { cache, driver }
    }

    /// Calls into the policy so far, and those of them that entered Wasm.
    pub fn calls(&self) -> [u64; 2] {
        let status = self.driver.status();
        assert_eq!(status.fallback_reason, "", "{status:?}");
        [status.calls, status.wasm_calls]
    }

    /// Somebody who listens to the tap as a recording does.
    pub fn listen(&self) -> Listener<()> {
        let names = TapNames::Hashed;
        let config = TapConfig { names, hash_key: (1, 2), sample: 1, queue_len_bytes: 16 << 20 };
        self.cache.listen(0, config).expect("nobody listens yet")
    }

    /// All [`LOOKUPS`], each of which is a hit; what a listener was told is thrown away.
    pub fn look_up_all(&self, listener: Option<&Listener<()>>) {
        let mut bytes = Vec::new();
        for first in (0..LOOKUPS).step_by(TAKE as usize) {
            look_up_some(&self.cache, first);
            if let Some(listener) = listener {
                listener.take(&mut bytes);
                bytes.clear();
            }
        }
    }
}

/// What is counted.
#[inline(never)]
fn look_up_some(cache: &DentryCache<()>, first: u64) {
    for number in first..first + TAKE {
        let (dir, name) = place(number % (DIRS * DIR_NAMES));
        match cache.lookup(0, &dir, &name, || ()) {
            Answer::Hit(entry) => drop(black_box(entry)),
            other => panic!("it is known: {other:?}"),
        }
    }
}

/// Instructions of each lookup, counted by callgrind in a process of this program that is told `what` to
/// count; `None` where there is no valgrind.
pub fn instructions(what: &[&str]) -> Option<f64> {
    let this = std::env::current_exe().expect("this program");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*look_up_some*"]);
    valgrind.arg(format!("--callgrind-out-file={}", file.path().display()));
    valgrind.arg(this).args(what).stdout(Stdio::null());
    let output = valgrind.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counted = fs::read_to_string(file.path()).expect("callgrind writes it");
    let total = counted.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse::<u64>().ok()).expect("a total");
    assert!(total > LOOKUPS, "{total} instructions: the function that is counted was not found");
    Some(total as f64 / LOOKUPS as f64)
}

fn place(number: u64) -> (Handle, Vec<u8>) {
    (handle(number / DIR_NAMES), format!("file-{:011}", number % DIR_NAMES).into_bytes())
}

fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

fn entry(number: u64) -> Entry {
    let attr = Attr { ino: number, mode: 0o100_644, nlink: 1, ..Attr::default() };
    let handle = handle(1 << 60 | number);
    Entry { handle, attr: Some(attr), kind: FileKind::Regular, target: None }
}
