//! The dentry cache inside one process: time of a cached lookup at a million entries, scaling to
//! two threads, memory an entry. Each shape of tree runs in a process of its own, so that its
//! resident memory is its own.
//!
//! Names are looked up in the order of a walk, and at random. A random lookup cannot be faster
//! than the memory it touches, so it is also counted in reads of memory of that size that depend on
//! one another. Rounds are short and many, so that some of them fall into quiet moments of a shared
//! machine.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::cell::Cell;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use portcullis_bench::{alternate, print_ratio, resident_bytes};
use portcullis_core::cache::{Answer, CacheConfig, DentryCache};
use portcullis_core::{Attr, ChunkBuilder, EntryRef, FileKind, Handle, Timestamp};

const ENTRIES: u64 = 1_000_000;
/// In one round.
const LOOKUPS: u64 = 200_000;
/// How often all rounds are run.
const REPEATS: usize = 5;

fn main() {
    if let Some(per_dir) = std::env::args().nth(1).and_then(|word| word.parse().ok()) {
        return run(per_dir);
    }
    println!("cache: {ENTRIES} entries with 16-byte names; no policy is called: a hit enters none");
    for per_dir in ["1000", "1000000", "10"] {
        let this = std::env::current_exe().expect("this program");
        let status = Command::new(this).arg(per_dir).status().expect("it starts");
        assert!(status.success(), "{per_dir} entries a directory: {status}");
    }
}

fn run(per_dir: u64) {
    let before_bytes = resident_bytes();
    let config = CacheConfig { capacity_bytes: 1 << 30, max_age_ms: u64::MAX, seed: 1 };
    let cache = DentryCache::<()>::new(config);
    (0..ENTRIES / per_dir).for_each(|dir| fill_dir(&cache, dir, per_dir));
    let held_bytes = resident_bytes().saturating_sub(before_bytes);
    println!("{per_dir} entries a directory:");
    let each = |bytes: u64| bytes as f64 / ENTRIES as f64;
    let counted = each(cache.counters().used_bytes);
    println!(
        "  {:.1} B an entry resident (at most 160), counted as {counted:.1}",
        each(held_bytes)
    );

    let walked = Cell::new(0);
    let mut walk = || {
        walk(per_dir, walked.get(), &mut |dir, name| hit(&cache, dir, name));
        walked.set((walked.get() + LOOKUPS) % ENTRIES);
    };
    let mut random = || random(per_dir, 1, &mut |dir, name| hit(&cache, dir, name));
    let mut floor = || {
        random_floor(per_dir);
    };
    let mut two = || {
        std::thread::scope(|scope| {
            for seed in [1, 2] {
                let cache = &cache;
                scope.spawn(move || {
                    self::random(per_dir, seed, &mut |dir, name| hit(cache, dir, name));
                });
            }
        });
    };
    let cycle = random_cycle();
    let at = Cell::new(0);
    let mut read = || at.set(black_box(follow(&cycle, at.get())));
    let mut least = [Duration::MAX; 5];
    for _ in 0..REPEATS {
        let now = alternate(&mut [&mut walk, &mut random, &mut two, &mut floor, &mut read]);
        least.iter_mut().zip(now).for_each(|(least, now)| *least = now.min(*least));
    }
    let ns = |index: usize| least[index].as_nanos() as f64 / LOOKUPS as f64;
    println!("  {:.0} ns a lookup in the order of a walk (at most 250)", ns(0));
    println!("  {:.0} ns a lookup at random, {:.0} ns of it to make the question", ns(1), ns(3));
    let reads = (ns(1) - ns(3)) / ns(4);
    println!("  that is {reads:.1} dependent reads of random memory, {:.0} ns each", ns(4));
    print_ratio("  two threads against one", 2.0 * ns(1) / ns(2), "at least 1.7");
}

fn walk(per_dir: u64, first: u64, each: &mut dyn FnMut(&Handle, &[u8])) {
    for number in first..first + LOOKUPS {
        each(&dir_handle(number / per_dir), &name(number));
    }
}

fn random(per_dir: u64, seed: u64, each: &mut dyn FnMut(&Handle, &[u8])) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..LOOKUPS {
        let number = random.u64(0..ENTRIES);
        each(&dir_handle(number / per_dir), &name(number));
    }
}

fn random_floor(per_dir: u64) {
    random(per_dir, 1, &mut |dir, name| {
        black_box((dir, name));
    });
}

fn hit(cache: &DentryCache<()>, dir: &Handle, name: &[u8]) {
    match cache.lookup(0, dir, name, || ()) {
        Answer::Hit(entry) => drop(black_box(entry)),
        other => panic!("every entry is cached, but: {other:?}"),
    }
}

/// A random cycle through as much memory as the entries take: in each line, which line is next.
fn random_cycle() -> Vec<[u32; 16]> {
    const LINES: usize = 160_000_000 / 64;
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let mut next = vec![[0_u32; 16]; LINES];
    for pair in order.windows(2) {
        next[pair[0] as usize][0] = pair[1];
    }
    next[order[LINES - 1] as usize][0] = order[0];
    next
}

/// As many reads as there are lookups in a round; answers where they end.
fn follow(next: &[[u32; 16]], at: u32) -> u32 {
    (0..LOOKUPS).fold(at, |at, _| next[at as usize][0])
}

fn fill_dir(cache: &DentryCache<()>, dir: u64, per_dir: u64) {
    let mut ticket = cache.begin_listing(&dir_handle(dir));
    let mut builder = ChunkBuilder::default();
    for number in dir * per_dir..(dir + 1) * per_dir {
        let name = name(number);
        let entry = EntryRef {
            name: &name,
            handle: file_handle(number),
            attr: Some(attr(number)),
            kind: FileKind::Regular,
            target: None,
            cookie: number + 1,
        };
        if !builder.push(&entry) {
            cache.fill_chunk(0, &mut ticket, &builder.finish(0).expect("a full chunk"));
            assert!(builder.push(&entry));
        }
    }
    if let Some(chunk) = builder.finish(0) {
        cache.fill_chunk(0, &mut ticket, &chunk);
    }
    cache.finish_listing(0, ticket, true);
}

/// 16 bytes: the number, mixed, in hexadecimal.
fn name(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::array::from_fn(|digit| b"0123456789abcdef"[(mixed >> (digit * 4)) as usize & 15])
}

/// As long as a handle on ext4.
fn file_handle(number: u64) -> Handle {
    let mut bytes = [7; 18];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Handle::new(&bytes).expect("18 bytes")
}

fn dir_handle(number: u64) -> Handle {
    file_handle(number | 1 << 40)
}

fn attr(number: u64) -> Attr {
    let time = Timestamp { secs: 1_700_000_000 + number as i64, nanos: 5 };
    Attr {
        ino: number,
        size_bytes: number,
        blocks: 8,
        atime: time,
        mtime: time,
        ctime: time,
        mode: 0o100_644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        block_size_bytes: 4096,
        has_no_acl: false,
    }
}

const _: () = assert!(ENTRIES.is_multiple_of(LOOKUPS));
