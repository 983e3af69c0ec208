//! Creating, stating and removing files: through a mount, through bindfs(1) on the same directory,
//! and, where `PORTCULLIS_GLUSTER` names a directory of a mounted GlusterFS volume, through that.
//! Then the rate of changes with 0, 1 and 8 clients that watch the directory and do nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_bench::{print_policy, print_ratio};
use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;

/// Files of the comparison.
const FILES: usize = 10_000;
/// Files with watching clients.
const FILES_WATCHED: usize = 2_000;
const WATCHERS: [usize; 3] = [0, 1, 8];
const ROUNDS: usize = 2;

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
    if contestants.len() == 2 {
        println!("GlusterFS: not measured, PORTCULLIS_GLUSTER is not set");
    }
    watched(&site, mounted.path());
    print_policy(&site.stats());
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
