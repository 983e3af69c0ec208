//! The mount, seen by ordinary programs.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

use portcullis_suite::mounted::{Mounted, is_mounted};
use portcullis_suite::site::Site;
use portcullis_suite::{find, need, tree};
use rustix::io::Errno;

#[test]
fn programs_see_the_same_tree() {
    if !need::fuse_and_root("programs_see_the_same_tree") {
        return;
    }
    let export = Path::new("/usr/include");
    let site = Site::start(export, &[]);
    let mounted = Mounted::start(&site, &[]);
    let local = find::local(export, find::EVERYTHING);
    for _ in 0..2 {
        find::assert_equal(&find::local(mounted.path(), find::EVERYTHING), &local);
    }
    let ls = |dir: &Path| {
        let ls = Command::new("ls").args(["-lRn", "--full-time"]).current_dir(dir).output();
        success(&ls.expect("ls(1) runs"))
    };
    assert!(ls(mounted.path()) == ls(export), "ls -lR differs");
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(export).arg(mounted.path());
    let diff = diff.output().expect("diff(1) runs");
    assert_eq!(success(&diff), "", "diff -r has something to say");
    mounted.unmount();
}

#[test]
fn a_second_listing_of_a_mount_asks_the_brick_nothing() {
    if !need::fuse_and_root("a_second_listing_of_a_mount_asks_the_brick_nothing") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 4, 2_000);
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let first = find::local(mounted.path(), find::EVERYTHING);
    // Find asks for the file system's type; that is never cached.
    let requests = || {
        let mut requests = site.brick_stats().requests;
        requests.remove("statfs");
        // The lease is renewed all the time.
        requests.remove("renew");
        requests
    };
    let asked = requests();
    assert_eq!(asked.get("list"), Some(&5), "one a directory: {asked:?}");
    let second = find::local(mounted.path(), find::EVERYTHING);
    assert_eq!(first, second);
    assert_eq!(requests(), asked, "requests to the brick by a second listing");
    mounted.unmount();
}

#[test]
fn the_file_system_is_the_exported_one_and_read_only() {
    if !need::fuse_and_root("the_file_system_is_the_exported_one_and_read_only") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let here = rustix::fs::statvfs(mounted.path()).expect("statvfs");
    let there = rustix::fs::statvfs(dir.path()).expect("statvfs");
    assert_eq!(
        (here.f_blocks * here.f_frsize, here.f_files, here.f_namemax),
        (there.f_blocks * there.f_frsize, there.f_files, there.f_namemax)
    );
    let denied = fs::write(mounted.path().join("new"), "x").expect_err("read-only");
    assert_eq!(errno(&denied), Errno::ROFS);
    let denied = fs::remove_file(mounted.path().join("top")).expect_err("read-only");
    assert_eq!(errno(&denied), Errno::ROFS);
    mounted.unmount();
}

/// S-ENTRY-3, S-READ-1.
#[test]
fn files_are_read_at_any_offset_and_names_fail_as_they_should() {
    if !need::fuse_and_root("files_are_read_at_any_offset_and_names_fail_as_they_should") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let content: Vec<u8> = (0..5u32 << 20 >> 2).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.path().join("file"), &content).expect("a file");
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let file = fs::File::open(mounted.path().join("file")).expect("it opens");
    for (offset, len) in [(0, 1), (1, 4096), (131_071, 131_074), (content.len() - 3, 3)] {
        let mut read = vec![0; len];
        file.read_exact_at(&mut read, offset as u64).expect("it reads");
        assert!(read == content[offset..offset + len], "{len} bytes at {offset}");
    }
    let mut past = [0; 10];
    assert_eq!(file.read_at(&mut past, content.len() as u64).expect("the end"), 0);
    assert_eq!(fs::read(mounted.path().join("file")).expect("it reads"), content);
    let missing = fs::metadata(mounted.path().join("nothing")).expect_err("no such name");
    assert_eq!(errno(&missing), Errno::NOENT);
    let long = fs::metadata(mounted.path().join("n".repeat(256))).expect_err("too long");
    assert_eq!(errno(&long), Errno::NAMETOOLONG);
    let not_dir = fs::metadata(mounted.path().join("file/below")).expect_err("not a directory");
    assert_eq!(errno(&not_dir), Errno::NOTDIR);
    let attr = fs::metadata(mounted.path().join("file")).expect("attributes");
    assert_eq!(attr.size(), content.len() as u64);
    drop(file);
    mounted.unmount();
}

#[test]
fn extended_attributes_are_read() {
    if !need::fuse_and_root("extended_attributes_are_read") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    rustix::fs::setxattr(&file, "user.comment", b"seen", rustix::fs::XattrFlags::empty())
        .expect("the file system has user attributes");
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let path = mounted.path().join("file");
    let mut value = [0; 64];
    let len = rustix::fs::getxattr(&path, "user.comment", &mut value).expect("the attribute");
    assert_eq!(&value[..len], b"seen");
    let missing = rustix::fs::getxattr(&path, "user.other", &mut value);
    assert_eq!(missing, Err(Errno::NODATA));
    let mut names = [0; 256];
    let len = rustix::fs::listxattr(&path, &mut names).expect("names");
    assert!(names[..len].split(|&byte| byte == 0).any(|name| name == b"user.comment"));
    mounted.unmount();
}

#[test]
fn sigterm_unmounts() {
    if !need::fuse_and_root("sigterm_unmounts") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let path = mounted.path().to_owned();
    assert_eq!(mounted.terminate().code(), Some(0));
    assert!(!is_mounted(&path));
}

/// Without `--foreground` the command ends once the mount is usable, and umount(8) ends the rest.
#[test]
fn a_mount_in_the_background_is_usable_when_the_command_ends() {
    if !need::fuse_and_root("a_mount_in_the_background_is_usable_when_the_command_ends") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let path = site.scratch("mnt");
    fs::create_dir(&path).expect("a mount point");
    let mount = site.command("mount", "/").arg(&path).args(["-o", "ro"]).output();
    success(&mount.expect("it runs"));
    let top = fs::read(path.join("top"));
    let umount = Command::new("umount").arg(&path).status().expect("umount(8) runs");
    assert_eq!(top.expect("it reads"), b"t");
    assert!(umount.success());
    portcullis_suite::wait::until("the end of the mount's process", || {
        (site.stats().connections <= 1).then_some(())
    });
}

/// While the brick is down the mount answers EIO, and does not hang. S-FAIL-2.
#[test]
fn a_dead_brick_is_an_error_and_not_a_hang() {
    if !need::fuse_and_root("a_dead_brick_is_an_error_and_not_a_hang") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let mut site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    assert_eq!(fs::read(mounted.path().join("top")).expect("it reads"), b"t");
    site.kill_brick();
    let dead = fs::read(mounted.path().join("a/one")).expect_err("the brick is dead");
    assert_eq!(errno(&dead), Errno::IO);
    site.restart_brick();
    portcullis_suite::wait::until("the brick is back", || {
        fs::read(mounted.path().join("a/one")).ok()
    });
    mounted.unmount();
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).expect("a system error")
}

fn success(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {stderr}{stdout}", output.status);
    stdout.into_owned()
}
