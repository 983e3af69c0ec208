//! The dentry cache inside one process: time of a cached lookup at a million entries, scaling to
//! two threads, memory an entry.

use std::hint::black_box;

use portcullis_bench::{Random, alternate, resident_bytes};
use portcullis_core::cache::{Answer, CacheConfig, DentryCache};
use portcullis_core::{Attr, ChunkBuilder, EntryRef, FileKind, Handle, Timestamp};

const ENTRIES: u64 = 1_000_000;
const LOOKUPS: u64 = 1_000_000;

fn main() {
    println!("{ENTRIES} entries with 16-byte names, {LOOKUPS} lookups of random ones a thread");
    for per_dir in [1_000_000, 1_000, 10] {
        run(per_dir);
    }
}

fn run(per_dir: u64) {
    let before = resident_bytes();
    let cache = DentryCache::<()>::new(CacheConfig {
        capacity_bytes: 1 << 30,
        max_age_ms: u64::MAX,
        seed: 1,
    });
    for dir in 0..ENTRIES / per_dir {
        fill_dir(&cache, dir, per_dir);
    }
    let held_bytes = resident_bytes().saturating_sub(before);
    let charged_bytes = cache.counters().used_bytes;

    let queries = |seed: u64, mut each: Box<dyn FnMut(&Handle, &[u8]) + '_>| {
        let mut random = Random(seed);
        for _ in 0..LOOKUPS {
            let number = random.next() % ENTRIES;
            each(&dir_handle(number / per_dir), &name(number));
        }
    };
    let hit = |dir: &Handle, name: &[u8]| match cache.lookup(0, dir, name, || ()) {
        Answer::Hit(entry) => drop(black_box(entry)),
        other => panic!("every entry is cached, but: {other:?}"),
    };
    let mut floor = || queries(1, Box::new(|dir, name| drop(black_box((dir, name)))));
    let mut one = || queries(1, Box::new(hit));
    let mut two = || {
        std::thread::scope(|scope| {
            scope.spawn(|| queries(1, Box::new(hit)));
            scope.spawn(|| queries(2, Box::new(hit)));
        });
    };
    let least = alternate(&mut [&mut floor, &mut one, &mut two]);
    let ns = |index: usize| least[index].as_nanos() as f64 / LOOKUPS as f64;
    println!(
        "{per_dir:>8} a directory: {:.0} ns a lookup ({:.0} ns of it to make the query), \
         2 threads {:.2}x of 1, {:.1} B an entry resident, {:.1} B charged",
        ns(1),
        ns(0),
        2.0 * ns(1) / ns(2),
        held_bytes as f64 / ENTRIES as f64,
        charged_bytes as f64 / ENTRIES as f64,
    );
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

/// 16 bytes: the digits of a number spread over hexadecimal.
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
    }
}
