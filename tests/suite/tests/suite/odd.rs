//! Odd trees list as the local file system lists them.

use std::os::unix::process::CommandExt;
use std::process::Command;

use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;
use portcullis_suite::{find, need, tree};

/// S-ENTRY-1, S-ENTRY-2.
#[test]
fn an_odd_tree_is_found_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::odd(dir.path());
    let site = Site::start(dir.path(), &[]);
    if rustix::process::geteuid().is_root() {
        let local = find::local(dir.path(), find::EVERYTHING);
        find::assert_equal(&find::through(&site, "/", find::EVERYTHING), &local);
        find::assert_equal(&find::through(&site, "/", find::EVERYTHING), &local);
    }
}

#[test]
fn an_odd_tree_is_archived_as_it_is() {
    if !need::root("an_odd_tree_is_archived_as_it_is") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::odd(dir.path());
    // An archive holds no sockets and only what is read; a hole of 5 GiB would be too much.
    std::fs::remove_file(dir.path().join("special/socket")).expect("it was there");
    std::fs::remove_file(dir.path().join("sparse")).expect("it was there");
    let site = Site::start(dir.path(), &[]);
    let archive = site.scratch("archive.tar");
    let out = std::fs::File::create(&archive).expect("a file");
    let tar = site.command("tar", "/").stdout(out).output().expect("it runs");
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    let copy = tempfile::tempdir().expect("a directory");
    let mut extract = Command::new("tar");
    extract.args(["--numeric-owner", "-xpf"]).arg(&archive).arg("-C").arg(copy.path());
    // It warns of old times and of a keyword it does not know, and extracts all the same.
    let extract = extract.output().expect("tar(1) runs");
    assert!(extract.status.success(), "{}", String::from_utf8_lossy(&extract.stderr));
    // All but times below a second (an archive need not have them) and inodes.
    let format = "%y %s %m %U %G %P %l %n\\0";
    find::assert_equal(&find::local(copy.path(), format), &find::local(dir.path(), format));
}

#[test]
fn an_odd_tree_is_mounted_as_it_is() {
    if !need::fuse_and_root("an_odd_tree_is_mounted_as_it_is") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::odd(dir.path());
    let site = Site::start(dir.path(), &[]);
    let mounted = Mounted::start(&site, &[]);
    let local = find::local(dir.path(), find::EVERYTHING);
    find::assert_equal(&find::local(mounted.path(), find::EVERYTHING), &local);
    mounted.unmount();
}

/// A brick that is not root cannot read everything: what it cannot read is an error for that
/// directory, and all else is listed. S-ACCESS-1, S-ENTRY-5, S-LIST-4.
#[test]
fn an_unreadable_directory_is_an_error_of_its_own() {
    if !need::root("an_unreadable_directory_is_an_error_of_its_own") {
        return;
    }
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().expect("a directory");
    tree::odd(dir.path());
    let site = Site::start_brick_as(dir.path(), NOBODY);
    let through = site.run("find", "/", &["-printf", "%y %m %P %l\\0"]);
    let local = Command::new("find")
        .arg(dir.path())
        .args(["-printf", "%y %m %P %l\\0"])
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("find(1) runs");
    assert_eq!(local.status.code(), Some(1), "find(1) complains");
    find::assert_equal(&find::items(&through.stdout), &find::items(&local.stdout));
    let stderr = String::from_utf8_lossy(&through.stderr);
    assert_eq!(through.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("unreadable") && stderr.contains("ermission denied"), "{stderr}");
}

/// What is mounted inside the export is another file system, and not exported. S-ENTRY-6.
#[test]
fn the_export_ends_at_a_mount_point() {
    if !need::root("the_export_ends_at_a_mount_point") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let inside = dir.path().join("a/b");
    let tmpfs = Tmpfs::mount(&inside);
    std::fs::write(inside.join("secret"), "secret").expect("a file");
    let site = Site::start(dir.path(), &[]);
    let found = find::items(&site.run("find", "/", &["-printf", "%P\\0"]).stdout);
    assert!(found.contains(&b"a/b"[..]), "the mount point itself is listed");
    assert!(!found.iter().any(|path| path.starts_with(b"a/b/")), "what is below is not");
    let cat = site.run("cat", "/a/b/secret", &[]);
    assert_eq!(cat.status.code(), Some(1));
    assert_eq!(cat.stdout, b"");
    drop(tmpfs);
}

/// A tmpfs, unmounted when dropped.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: &std::path::Path) -> Self {
        let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(path).status();
        assert!(mount.expect("mount(8) runs").success());
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
