//! Tests of listings that are answered from memory, the mount's and the kernel's: they save
//! requests, and are never older than the last change. They need FUSE and root.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Dir, RawDir};

use super::MountOptions;
use super::site::{MountedSite, Site};
use super::tests::can_mount;

/// How often something is tried that depends on being done within a second or two.
const TRIES: usize = 50;

fn fill(dir: &Path, files: usize) {
    for n in 0..files {
        fs::write(dir.join(format!("f{n}")), "x").expect("it is written");
    }
}

fn read(dir: &mut Dir) -> BTreeSet<String> {
    let name = |entry: Result<rustix::fs::DirEntry, _>| {
        entry.expect("an entry").file_name().to_str().expect("text").to_owned()
    };
    dir.map(name).filter(|name| name != "." && name != "..").collect()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let dir = fs::File::open(dir).expect("it opens");
    read(&mut Dir::read_from(dir).expect("a listing"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_asked_for_once_and_then_answers_for_all_names() {
    if !can_mount("a_listing_is_asked_for_once_and_then_answers_for_all_names") {
        return;
    }
    let site = Site::new().await;
    fill(site.export(), 300);
    // The kernel asks each time.
    let options = MountOptions { attr_ttl_ms: 0, ..MountOptions::default() };
    let mounted = site.mount_with(options).await;
    let work = |path: PathBuf| {
        for _ in 0..3 {
            assert_eq!(names(&path).len(), 300);
        }
        for n in 0..300 {
            assert_eq!(fs::metadata(path.join(format!("f{n}"))).expect("stat").len(), 1);
            assert!(fs::metadata(path.join(format!("absent{n}"))).is_err());
        }
    };
    mounted.on(work).await;
    let counters = &mounted.volume.counters;
    assert_eq!((counters.asked.get(), counters.remembered.get()), (1, 2));
    assert!(counters.lookups.get() >= 600, "{counters}");
    let memory = mounted.volume.memory.counters().expect("there is a cache");
    // The root has no listing that it is in.
    assert_eq!((memory.lookup_misses, memory.getattr_misses), (0, 1), "{memory:?}");
    mounted.unmount().await;
}

/// Lists twice; whether the second time the kernel asked for no name.
async fn is_kept(mounted: &MountedSite) -> bool {
    let counters = &mounted.volume.counters;
    mounted.on(|path| names(&path)).await;
    let asked = (counters.readdirs.get(), counters.lookups.get());
    mounted.on(|path| names(&path)).await;
    (counters.readdirs.get(), counters.lookups.get()) == asked
}

/// S-LIST-5
#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_keeps_a_listing_until_something_changes() {
    if !can_mount("the_kernel_keeps_a_listing_until_something_changes") {
        return;
    }
    let site = Site::new().await;
    fill(site.export(), 300);
    let (one, two) = (site.mount().await, site.mount().await);
    let mut open = {
        let dir = fs::File::open(one.path()).expect("it opens");
        Dir::read_from(dir).expect("a listing")
    };
    let (here, there) = (one.path().to_owned(), two.path().to_owned());
    let changes =
        [(&there, "a", true), (&here, "b", true), (&there, "a", false), (&here, "b", false)];
    for (by, name, is_made) in changes {
        let mut kept = false;
        for _ in 0..TRIES {
            kept = kept || is_kept(&one).await;
        }
        assert!(kept, "before {name} is made: {is_made}; {}", one.volume.counters);
        let path = by.join(name);
        let change = move |_| {
            if is_made {
                fs::write(path, "").expect("it is written");
            } else {
                fs::remove_file(path).expect("it is removed");
            }
        };
        one.on(change).await;
        assert_eq!(one.on(|path| names(&path)).await.contains(name), is_made);
        open = one
            .on(move |_| {
                open.rewind();
                assert_eq!(read(&mut open).contains(name), is_made, "rewound");
                open
            })
            .await;
    }
    drop(open);
    one.unmount().await;
    two.unmount().await;
}

/// What is acknowledged: names up to `made` were made, those up to `removed` removed again.
#[derive(Default)]
struct Acknowledged {
    made: AtomicU64,
    removed: AtomicU64,
    is_over: AtomicBool,
}

impl Acknowledged {
    fn check(&self, list: impl FnOnce() -> BTreeSet<String>) {
        let load = |number: &AtomicU64| number.load(Ordering::SeqCst);
        let (made, removed) = (load(&self.made), load(&self.removed));
        let names = list();
        // One more may be on its way.
        let maybe_removed = load(&self.removed) + 1;
        for n in 1..=removed {
            assert!(!names.contains(&format!("n{n}")), "n{n} was removed before");
        }
        for n in maybe_removed + 1..=made {
            assert!(names.contains(&format!("n{n}")), "n{n} was made before");
        }
    }
}

/// S-LIST-5
#[tokio::test(flavor = "multi_thread")]
async fn no_listing_is_older_than_the_last_change() {
    if !can_mount("no_listing_is_older_than_the_last_change") {
        return;
    }
    let site = Site::new().await;
    fill(site.export(), 200);
    let (one, two) = (site.mount().await, site.mount().await);
    let (here, there) = (one.path().to_owned(), two.path().to_owned());
    let work = move |_| {
        let acknowledged = Arc::new(Acknowledged::default());
        let reader = |rewinds: bool| {
            let (acknowledged, here) = (acknowledged.clone(), here.clone());
            std::thread::spawn(move || {
                let dir = fs::File::open(&here).expect("it opens");
                let mut open = Dir::read_from(dir).expect("a listing");
                while !acknowledged.is_over.load(Ordering::Relaxed) {
                    acknowledged.check(|| {
                        open.rewind();
                        if rewinds { read(&mut open) } else { names(&here) }
                    });
                }
            })
        };
        let readers = [true, false, true].map(reader);
        for n in 1..=300u64 {
            let by = if n % 3 == 0 { &here } else { &there };
            fs::write(by.join(format!("n{n}")), "").expect("it is written");
            acknowledged.made.store(n, Ordering::SeqCst);
            if n > 10 {
                fs::remove_file(by.join(format!("n{}", n - 10))).expect("it is removed");
                acknowledged.removed.store(n - 10, Ordering::SeqCst);
            }
        }
        acknowledged.is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    };
    one.on(work).await;
    one.unmount().await;
    two.unmount().await;
}

/// S-LIST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_the_kernels_copy_goes_on_where_it_was_after_a_change() {
    if !can_mount("a_reader_of_the_kernels_copy_goes_on_where_it_was_after_a_change") {
        return;
    }
    let site = Site::new().await;
    fill(site.export(), 1000);
    let (one, two) = (site.mount().await, site.mount().await);
    let there = two.path().to_owned();
    let work = move |path: PathBuf| {
        names(&path);
        let dir = fs::File::open(&path).expect("it opens");
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(dir.as_fd(), &mut buffer);
        let mut seen = Vec::new();
        while let Some(entry) = entries.next() {
            let name = entry.expect("an entry").file_name().to_str().expect("text").to_owned();
            seen.push(name);
            if seen.len() == 300 {
                // Of those that it has had, so that counting does not lead to the same place.
                for name in &seen[50..60] {
                    fs::remove_file(there.join(name)).expect("it is removed");
                }
                fs::write(there.join("new"), "").expect("it is written");
            }
        }
        seen.retain(|name| name.starts_with('f'));
        let unique: BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), unique.len()), (1000, 1000), "each exactly once");
    };
    one.on(work).await;
    one.unmount().await;
    two.unmount().await;
}
