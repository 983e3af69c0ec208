//! Servers that die in the middle of work and come back: programs on a mount wait and go on.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use portcullis_suite::backing::Backing;
use portcullis_suite::run::{self, Running};
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{need, soaking, view, wait};

/// A share whose mount waits long enough for a server to come back on a busy machine.
fn patient(test: &str) -> Option<Share> {
    Share::start(test, &Layout { options: "timeout=120", ..Layout::default() })
}

fn fio(dir: &Path, scratch: &Path) -> Running {
    let seconds = if soaking() { 60 } else { 12 };
    let mut fio = Command::new("fio");
    fio.args(["--name=verified", "--rw=randrw", "--bs=16k", "--size=8m", "--ioengine=psync"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64", "--fsync=32"]);
    fio.args(["--time_based", "--randseed=99", "--numjobs=2"]);
    fio.arg(format!("--runtime={seconds}"));
    fio.arg("--directory").arg(dir).current_dir(scratch);
    Running::start(&mut fio)
}

/// Kills and restarts something a few times while fio verifies what it writes, and while a file
/// is open that has no name any more.
fn survives(test: &str, crash: impl Fn(&mut Share)) {
    if is_local() || !need::programs(test, &["fio"]) {
        return;
    }
    let Some(mut share) = patient(test) else { return };
    let root = share.mount(0).to_owned();
    let path = root.join("unnamed");
    let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let unnamed = open.expect("a file");
    unnamed.write_all_at(b"before the crash", 0).expect("written");
    unnamed.sync_all().expect("synced");
    fs::remove_file(&path).expect("removed");
    fs::write(root.join("kept"), "acknowledged").expect("a file");
    File::open(root.join("kept")).and_then(|file| file.sync_all()).expect("synced");
    let mut fio = fio(&root, &share.scratch(""));
    for round in 0..3 {
        wait::pause(Duration::from_secs(2));
        crash(&mut share);
        let mut bytes = [0; 16];
        unnamed.read_exact_at(&mut bytes, 0).expect("the open file is still there");
        assert_eq!(&bytes, b"before the crash");
        unnamed.write_all_at(format!("round {round}").as_bytes(), 100).expect("it can be written");
        assert_eq!(unnamed.metadata().expect("attributes").nlink(), 0);
        assert_eq!(view::content(&root.join("kept")), "acknowledged");
        assert_eq!(view::kind(&path), "error 2", "it has no name");
    }
    if fio.has_ended() {
        println!("fio ended before the last crash");
    }
    let output = fio.wait(run::limit());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "fio: {}\n{stderr}\n{stdout}", output.status);
    let mut bytes = [0; 7];
    unnamed.read_exact_at(&mut bytes, 100).expect("it reads");
    assert_eq!(&bytes, b"round 2");
    drop(unnamed);
    assert_eq!(view::names(&root, "unnamed"), "");
}

/// S-FAIL-6, S-READ-2.
#[test]
fn a_gateway_that_is_killed_and_restarted_loses_nothing() {
    survives("a_gateway_that_is_killed_and_restarted_loses_nothing", |share| {
        share.site_mut().kill_gateway();
        share.site_mut().restart_gateway();
    });
}

/// S-READ-2.
#[test]
fn a_brick_that_is_killed_and_restarted_loses_nothing() {
    survives("a_brick_that_is_killed_and_restarted_loses_nothing", |share| {
        share.site_mut().kill_brick();
        share.site_mut().restart_brick();
    });
}

/// What was written and acknowledged is on the brick, whatever happens to the tiers above it.
/// S-WRITE-1.
#[test]
fn an_acknowledged_write_survives_the_crash_of_gateway_and_mount() {
    let name = "an_acknowledged_write_survives_the_crash_of_gateway_and_mount";
    if is_local() {
        return;
    }
    let Some(mut share) = Share::one(name) else { return };
    let path = share.mount(0).join("file");
    let file = File::create(&path).expect("a file");
    let content: Vec<u8> = (0..1u32 << 20).map(|n| (n % 241) as u8).collect();
    file.write_all_at(&content, 0).expect("written");
    fs::create_dir(share.mount(0).join("dir")).expect("a directory");
    fs::rename(&path, share.mount(0).join("dir/file")).expect("renamed");
    // Killed with the file open: nothing is flushed by a close.
    let mounted = share.take_mount(0);
    let id = mounted.server().expect("it is served").id();
    let pid = rustix::process::Pid::from_raw(id as i32).expect("an id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    share.site_mut().kill_gateway();
    let below = fs::read(share.export().join("dir/file")).expect("it is there");
    assert!(below == content, "it is not what was written");
    drop(file);
    drop(mounted);
}

/// While the brick is away, what the mount answers and what it refuses is never wrong; when it is
/// back, changes made meanwhile in its directory are seen.
#[test]
fn what_changed_while_the_brick_was_away_is_seen() {
    let name = "what_changed_while_the_brick_was_away_is_seen";
    if is_local() {
        return;
    }
    let Some(mut share) = patient(name) else { return };
    let root = share.mount(0).to_owned();
    fs::write(root.join("file"), "before").expect("a file");
    fs::write(root.join("removed"), "before").expect("a file");
    let _ =
        (view::names(&root, ""), view::content(&root.join("file")), view::kind(&root.join("new")));
    share.site_mut().kill_brick();
    fs::write(share.export().join("file"), "after, and longer").expect("a file");
    fs::write(share.export().join("new"), "new").expect("a file");
    fs::remove_file(share.export().join("removed")).expect("removed");
    share.site_mut().restart_brick();
    wait::until("the change is seen", || {
        (view::content(&root.join("file")) == "after, and longer").then_some(())
    });
    assert_eq!(view::names(&root, ""), "file=file new=file");
    assert_eq!(view::kind(&root.join("removed")), "error 2");
}

/// Orphans are emptied when nobody holds them, and are no part of the tree. S-OPEN-1.
#[test]
fn nothing_is_left_of_removed_files_when_they_are_closed() {
    let name = "nothing_is_left_of_removed_files_when_they_are_closed";
    if is_local() {
        return;
    }
    let Some(share) = Share::two(name) else { return };
    let root = share.mount(0);
    let files: Vec<File> = (0..20)
        .map(|number| {
            let path = root.join(format!("file-{number}"));
            let file = File::create_new(&path).expect("a file");
            file.write_all_at(&[1; 10_000], 0).expect("written");
            fs::remove_file(&path).expect("removed");
            file
        })
        .collect();
    assert_eq!(view::names(root, ""), "", "hidden from listings");
    assert_eq!(view::names(share.mount(1), ""), "", "hidden from other mounts");
    drop(files);
    wait::until("the orphans are gone from the brick", || {
        let left = run::sh(share.export(), "find . -type f | wc -l");
        (left.trim() == "0").then_some(())
    });
}

/// The file system of the brick goes down as in a power cut: what was not synced is lost there.
/// S-WRITE-2.
#[test]
fn what_was_synced_survives_the_death_of_the_bricks_machine() {
    let name = "what_was_synced_survives_the_death_of_the_bricks_machine";
    if is_local() || !need::programs(name, &["mkfs.xfs", "xfs_io"]) || !need::fuse_and_root(name) {
        return;
    }
    let backing = Backing::xfs();
    let export = backing.path().join("export");
    fs::create_dir(&export).expect("a directory");
    run::success(Command::new("sync").arg("-f").arg(&export));
    let layout = Layout { export: Some(export.clone()), ..Layout::default() };
    let Some(mut share) = Share::start(name, &layout) else { return };
    let content: Vec<u8> = (0..300_000u32).map(|n| (n % 239) as u8).collect();
    let mut names = Vec::new();
    for number in 0..8 {
        let name = format!("f{number}");
        let file = File::create_new(share.mount(0).join(&name)).expect("a file");
        file.write_all_at(&content, 0).expect("written");
        // Only some are synced, by either call.
        match number % 4 {
            0 => file.sync_all().expect("synced"),
            1 => file.sync_data().expect("synced"),
            _ => continue,
        }
        names.push(name);
    }
    run::success(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(backing.path()));
    share.site_mut().kill_brick();
    drop(share);
    backing.mount_again();
    for name in &names {
        let after = fs::read(export.join(name)).expect("it is there");
        assert!(after == content, "{name}: {} bytes of {}", after.len(), content.len());
    }
    let left = fs::read_dir(&export).expect("it lists").count();
    println!("{left} of 8 files are left, {} were synced", names.len());
}
