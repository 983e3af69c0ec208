//! Creating, stating and removing files: through a mount, through bindfs(1) on the same directory,
//! and, where `PORTCULLIS_GLUSTER` names a directory of a mounted GlusterFS volume, through that;
//! and what it would be if all that a change cost beside bindfs were two bare quinn hops.
//! Then the rate of changes with 0, 1 and 8 clients that watch the directory and do nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_bench::{chain, print_policy, print_ratio};
use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;

/// Files of the comparison.
const FILES: usize = 10_000;
/// Files with watching clients.
const FILES_WATCHED: usize = 2_000;
const WATCHERS: [usize; 3] = [0, 1, 8];
const ROUNDS: usize = 2;
/// Requests over two bare hops, and bytes of an answer.
const HOPS: u32 = 5_000;
const ANSWER_LEN_BYTES: u64 = 200;
/// Changes of one file: it is created and removed.
const CHANGES_A_FILE: f64 = 2.0;

/// The least time of each part, over all rounds.
#[derive(Clone, Copy)]
struct Times {
    create: Duration,
    stat: Duration,
    remove: Duration,
}

fn main() {
    let export = tempfile::tempdir().expect("a directory");
    let site = Site::start(export.path(), &[]);
    let mounted = Mounted::at(&site, &site.url("/"), "mnt", &[]);
    let bindfs = Bindfs::start(export.path(), &site.scratch("bindfs"));
    let mut contestants = vec![
        ("mount", mounted.path().to_owned(), Times::MAX),
        ("bindfs", bindfs.path.clone(), Times::MAX),
    ];
    if let Some(gluster) = std::env::var_os("PORTCULLIS_GLUSTER") {
        contestants.push(("GlusterFS", PathBuf::from(gluster), Times::MAX));
    }
    for _ in 0..ROUNDS {
        for (name, path, least) in &mut contestants {
            *least = least.min(run(&path.join(format!("{name}-files")), FILES));
        }
    }
    println!("{FILES} files in one directory, one after the other");
    for (name, _, times) in &contestants {
        let per_file = |time: Duration| time.as_secs_f64() * 1e6 / FILES as f64;
        println!(
            "  {name}: create {:.0} us, stat {:.0} us, remove {:.0} us a file",
            per_file(times.create),
            per_file(times.stat),
            per_file(times.remove)
        );
    }
    let ours = contestants[0].2.total();
    for ((name, _, times), bar) in contestants[1..].iter().zip(["at most 2", "at most 0.33"]) {
        print_ratio(&format!("against {name}"), ours / times.total(), bar);
    }
    let hop_us = bare_hops_us();
    let bindfs_us = contestants[1].2.total() * 1e6 / FILES as f64;
    println!("two bare quinn hops there and back, three threads: {hop_us:.0} us a request");
    let floor = (bindfs_us + CHANGES_A_FILE * hop_us) / bindfs_us;
    print_ratio("bindfs and two bare hops a change, against bindfs", floor, "the floor");
    if contestants.len() == 2 {
        println!("GlusterFS: not measured, PORTCULLIS_GLUSTER is not set");
    }
    watched(&site, mounted.path());
    print_policy(&site.stats());
}

/// The least time of a request over two bare hops, one at a time, in microseconds.
fn bare_hops_us() -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connection = chain::connect_apart().await;
        let mut least = Duration::MAX;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for _ in 0..HOPS {
                assert_eq!(chain::down(&connection, ANSWER_LEN_BYTES).await, ANSWER_LEN_BYTES);
            }
            least = least.min(begun.elapsed());
        }
        least.as_secs_f64() * 1e6 / f64::from(HOPS)
    })
}

/// The rate of changes while others watch.
fn watched(site: &Site, path: &Path) {
    let dir = path.join("watched");
    fs::create_dir(&dir).expect("a directory");
    let mut watchers = Vec::new();
    let mut alone = None;
    for count in WATCHERS {
        while watchers.len() < count {
            let name = format!("watcher-{}", watchers.len());
            watchers.push(Mounted::at(site, &site.url("/"), &name, &[]));
        }
        for watcher in &watchers {
            assert_eq!(fs::read_dir(watcher.path().join("watched")).expect("listed").count(), 0);
        }
        let times = run(&dir.join("files"), FILES_WATCHED);
        let rate = 2.0 * FILES_WATCHED as f64 / (times.create + times.remove).as_secs_f64();
        let against = rate / *alone.get_or_insert(rate);
        println!("{count} watching clients: {rate:.0} changes/s, {against:.2}x of none");
    }
}

fn run(dir: &Path, files: usize) -> Times {
    fs::create_dir(dir).expect("a directory");
    let names: Vec<PathBuf> = (0..files).map(|file| dir.join(format!("file-{file:06}"))).collect();
    let each = |act: &dyn Fn(&Path)| {
        let begun = Instant::now();
        names.iter().for_each(|name| act(name));
        begun.elapsed()
    };
    let create = each(&|name| drop(fs::File::create_new(name).expect("created")));
    let stat = each(&|name| assert_eq!(fs::metadata(name).expect("there").len(), 0));
    let remove = each(&|name| fs::remove_file(name).expect("removed"));
    fs::remove_dir(dir).expect("it is empty");
    Times { create, stat, remove }
}

impl Times {
    const MAX: Self = Self { create: Duration::MAX, stat: Duration::MAX, remove: Duration::MAX };

    fn min(self, other: Self) -> Self {
        Self {
            create: self.create.min(other.create),
            stat: self.stat.min(other.stat),
            remove: self.remove.min(other.remove),
        }
    }

    fn total(self) -> f64 {
        (self.create + self.stat + self.remove).as_secs_f64()
    }
}

/// bindfs(1) on a directory, unmounted when dropped.
struct Bindfs {
    path: PathBuf,
}

impl Bindfs {
    fn start(source: &Path, path: &Path) -> Self {
        fs::create_dir_all(path).expect("a mount point");
        let status = Command::new("bindfs").arg(source).arg(path).status();
        assert!(status.expect("bindfs is installed").success(), "bindfs mounts");
        Self { path: path.to_owned() }
    }
}

impl Drop for Bindfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}
