//! Tests of two mounts of one brick: what one changes the other sees with its next request. They
//! need FUSE and root.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use super::site::{MountedSite, Site};
use super::tests::can_mount;

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(60);

struct Two {
    site: Site,
    one: MountedSite,
    two: MountedSite,
}

impl Two {
    async fn new() -> Self {
        let site = Site::new().await;
        let (one, two) = (site.mount().await, site.mount().await);
        Self { site, one, two }
    }

    /// Runs with the paths of both.
    async fn on(&self, work: impl FnOnce(PathBuf, PathBuf) + Send + 'static) {
        let two = self.two.path().to_owned();
        self.one.on(move |one| work(one, two)).await;
    }

    async fn end(self) {
        self.one.unmount().await;
        self.two.unmount().await;
        drop(self.site);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("text")
    };
    let mut names: Vec<_> = fs::read_dir(dir).expect("a listing").map(entry).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_mount_changes_the_other_sees_at_once() {
    if !can_mount("what_one_mount_changes_the_other_sees_at_once") {
        return;
    }
    let both = Two::new().await;
    both.on(|one, two| {
        for round in 0..100 {
            let [file, moved] = [format!("f{round}"), format!("m{round}")];
            // An absent name, cached as such.
            assert!(fs::metadata(two.join(&file)).is_err());
            fs::write(one.join(&file), "one").expect("it is written");
            assert_eq!(fs::metadata(two.join(&file)).expect("stat").len(), 3, "created");
            assert_eq!(fs::read(two.join(&file)).expect("read"), b"one");
            let open = fs::File::open(two.join(&file)).expect("it opens");
            fs::write(one.join(&file), "longer").expect("it is written");
            assert_eq!(open.metadata().expect("fstat").len(), 6, "written");
            let mut content = [0; 6];
            open.read_exact_at(&mut content, 0).expect("read");
            assert_eq!(&content, b"longer");
            fs::set_permissions(one.join(&file), fs::Permissions::from_mode(0o600)).expect("chmod");
            assert_eq!(fs::metadata(two.join(&file)).expect("stat").mode() & 0o777, 0o600);
            let before = fs::metadata(two.join(&file)).expect("stat").ino();
            fs::rename(one.join(&file), one.join(&moved)).expect("it moves");
            assert!(fs::metadata(two.join(&file)).is_err(), "renamed away");
            assert_eq!(fs::metadata(two.join(&moved)).expect("stat").ino(), before);
            assert_eq!(names(&two), std::slice::from_ref(&moved));
            fs::hard_link(one.join(&moved), one.join(&file)).expect("a link");
            assert_eq!(fs::metadata(two.join(&moved)).expect("stat").nlink(), 2, "linked");
            fs::remove_file(one.join(&moved)).expect("it is removed");
            assert!(fs::metadata(two.join(&moved)).is_err(), "removed");
            assert_eq!(fs::metadata(two.join(&file)).expect("stat").nlink(), 1);
            fs::remove_file(one.join(&file)).expect("it is removed");
            assert_eq!(names(&two), [""; 0]);
        }
    })
    .await;
    both.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_cached_stay_true_while_both_change_the_directory() {
    if !can_mount("names_that_are_cached_stay_true_while_both_change_the_directory") {
        return;
    }
    let both = Two::new().await;
    both.on(|one, two| {
        let stop = Arc::new(AtomicBool::new(false));
        let churn = {
            let (stop, two) = (stop.clone(), two.clone());
            std::thread::spawn(move || {
                let mut made = 0;
                while !stop.load(Ordering::Relaxed) {
                    let [busy, other] = ["busy", "other"].map(|name| two.join(name));
                    fs::write(&busy, "x").expect("it is written");
                    fs::rename(&busy, &other).expect("it moves");
                    fs::remove_file(&other).expect("it is removed");
                    made += 1;
                }
                made
            })
        };
        let began = Instant::now();
        for round in 0..100 {
            let name = format!("f{round}");
            assert!(fs::metadata(two.join(&name)).is_err());
            fs::write(one.join(&name), "x").expect("it is written");
            assert!(fs::metadata(two.join(&name)).is_ok(), "created in round {round}");
            fs::remove_file(one.join(&name)).expect("it is removed");
            assert!(fs::metadata(two.join(&name)).is_err(), "removed in round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        let made = churn.join().expect("no panic");
        assert!(made > 0);
        // Waiting for a lease each time would take minutes.
        assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
        assert_eq!(names(&one), names(&two));
    })
    .await;
    both.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_one_page_do_not_wait_for_each_other() {
    if !can_mount("two_writers_of_one_page_do_not_wait_for_each_other") {
        return;
    }
    let both = Two::new().await;
    both.on(|one, two| {
        fs::write(one.join("file"), [0; 4096]).expect("it is written");
        let began = Instant::now();
        let writers: Vec<_> = [one.clone(), two.clone()]
            .into_iter()
            .enumerate()
            .map(|(at, path)| {
                std::thread::spawn(move || {
                    let file = OpenOptions::new().read(true).write(true).open(path.join("file"));
                    let file = file.expect("it opens");
                    for round in 0..100u8 {
                        file.write_all_at(&[round; 8], 8 * at as u64).expect("it is written");
                        let mut read = [0; 8];
                        file.read_exact_at(&mut read, 8 * at as u64).expect("it is read");
                        assert_eq!(read, [round; 8]);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
        for path in [one, two] {
            let content = fs::read(path.join("file")).expect("it is read");
            assert_eq!(content[..16], [99; 16]);
        }
    })
    .await;
    both.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_exclude_between_mounts_and_their_sorts_do_not() {
    if !can_mount("locks_exclude_between_mounts_and_their_sorts_do_not") {
        return;
    }
    let both = Two::new().await;
    both.on(|one, two| {
        fs::write(one.join("file"), "x").expect("it is written");
        let open = |path: &Path| {
            OpenOptions::new().read(true).write(true).open(path.join("file")).expect("it opens")
        };
        let (mine, theirs) = (open(&one), open(&two));
        flock(&mine, FlockOperation::NonBlockingLockExclusive).expect("it is free");
        let taken = flock(&theirs, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Err(Errno::WOULDBLOCK));
        // Another process of the same machine would be no other owner to fcntl(2), so one mount
        // is as good as another machine.
        fcntl_lock(&theirs, FlockOperation::NonBlockingLockExclusive).expect("another sort");
        let taken = fcntl_lock(&mine, FlockOperation::NonBlockingLockShared);
        assert_eq!(taken, Err(Errno::AGAIN));
        fcntl_lock(&theirs, FlockOperation::NonBlockingUnlock).expect("it is given back");
        fcntl_lock(&mine, FlockOperation::NonBlockingLockShared).expect("it is free");
        let waiting = std::thread::spawn(move || {
            flock(&theirs, FlockOperation::LockExclusive).map(|()| theirs)
        });
        drop(mine);
        let theirs = waiting.join().expect("no panic").expect("it is granted");
        fcntl_lock(&theirs, FlockOperation::NonBlockingLockExclusive).expect("closing ends it");
    })
    .await;
    both.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_made_on_the_brick_itself_are_seen() {
    if !can_mount("changes_made_on_the_brick_itself_are_seen") {
        return;
    }
    let site = Site::new().await;
    let mounted = site.mount().await;
    let export = site.export().to_owned();
    mounted
        .on(move |path| {
            let wait_for = |what: &str, seen: &dyn Fn() -> bool| {
                let until = Instant::now() + DEADLINE;
                while !seen() {
                    assert!(Instant::now() < until, "not seen: {what}");
                    std::thread::yield_now();
                }
            };
            // Another program: the brick takes those of this process for its own.
            let run = |script: &str| {
                let status = Command::new("sh").args(["-c", script]).current_dir(&export).status();
                assert!(status.expect("sh").success());
            };
            assert!(fs::metadata(path.join("file")).is_err());
            run("printf one > file");
            wait_for("created", &|| fs::metadata(path.join("file")).is_ok());
            wait_for("content", &|| fs::read(path.join("file")).is_ok_and(|read| read == b"one"));
            run("printf other > file");
            wait_for("written", &|| fs::read(path.join("file")).is_ok_and(|read| read == b"other"));
            run("rm file");
            wait_for("removed", &|| fs::metadata(path.join("file")).is_err());
        })
        .await;
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_brick_is_survived_by_open_files_and_locks() {
    if !can_mount("a_restart_of_the_brick_is_survived_by_open_files_and_locks") {
        return;
    }
    let mut both = Two::new().await;
    let path = both.one.path().join("file");
    let file = both
        .one
        .on(move |_| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
            let file = file.expect("it opens");
            file.write_all_at(b"before", 0).expect("it is written");
            flock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
            file
        })
        .await;
    both.site.stop().await;
    both.site.start().await;
    both.on(move |one, two| {
        file.write_all_at(b"after", 6).expect("it is written");
        assert_eq!(fs::read(two.join("file")).expect("read"), b"beforeafter");
        let theirs = fs::File::open(two.join("file")).expect("it opens");
        let taken = flock(&theirs, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Err(Errno::WOULDBLOCK), "the lock was taken again");
        drop(file);
        flock(&theirs, FlockOperation::LockExclusive).expect("it is given back");
        assert_eq!(fs::read(one.join("file")).expect("read"), b"beforeafter");
    })
    .await;
    both.end().await;
}
