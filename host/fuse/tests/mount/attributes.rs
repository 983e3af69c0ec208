//! Attributes and extended attributes, changed.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

use crate::memory::{MemoryTree, Quirk};
use crate::{Mounted, mount_with, mount_writable, require_mount, sh};

fn mounted_with_a_file() -> (MemoryTree, Mounted) {
    let tree = MemoryTree::new();
    tree.file(b"file", b"x", Quirk::None);
    let mounted = mount_writable(&tree);
    (tree, mounted)
}

#[test]
fn mode_owner_and_group_change_apart() {
    require_mount!("mode_owner_and_group_change_apart");
    let (_, mounted) = mounted_with_a_file();
    let path = mounted.path().join("file");
    let look = || sh(&mounted, "stat -c '%a %u %g' file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(look(), "4751 0 0\n");
    std::os::unix::fs::chown(&path, Some(7), None).unwrap();
    assert_eq!(look(), "751 7 0\n");
    std::os::unix::fs::chown(&path, None, Some(8)).unwrap();
    assert_eq!(look(), "751 7 8\n");
    File::open(&path).unwrap().set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(look(), "600 7 8\n");
}

#[test]
fn times_are_set_left_or_taken_from_the_clock() {
    require_mount!("times_are_set_left_or_taken_from_the_clock");
    let (_, mounted) = mounted_with_a_file();
    let path = mounted.path().join("file");
    let set = |atime: Timespec, mtime: Timespec| {
        let times = Timestamps { last_access: atime, last_modification: mtime };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        (
            (metadata.atime(), metadata.atime_nsec()),
            (metadata.mtime(), metadata.mtime_nsec()),
            metadata.ctime(),
        )
    };
    let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let (atime, mtime, first) = set(at(-5, 7), at(1 << 33, 999_999_999));
    assert_eq!((atime, mtime), ((-5, 7), (1 << 33, 999_999_999)));
    let (atime, mtime, second) = set(at(0, UTIME_OMIT), at(0, UTIME_NOW));
    assert_eq!(atime, (-5, 7));
    assert_eq!(mtime, (second, 0), "the clock of the tree");
    assert!(second > first, "the change time moves");
    let (atime, _, third) = set(at(0, UTIME_NOW), at(3, 4));
    assert_eq!(atime, (third, 0));
}

#[test]
fn extended_attributes_hold_any_bytes_or_none() {
    require_mount!("extended_attributes_hold_any_bytes_or_none");
    let (_, mounted) = mounted_with_a_file();
    let path = mounted.path().join("file");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str| {
        let mut value = vec![0xee; 70_000];
        rustix::fs::getxattr(&path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    let large: Vec<u8> = (0..65_536u32).map(|n| (n / 3) as u8).collect();
    for value in [b"".as_slice(), b"\0", b"a\0b\0\0", b"text", &large] {
        set("user.one", value, XattrFlags::empty()).unwrap();
        assert!(get("user.one").unwrap() == value, "{} bytes", value.len());
    }
    assert_eq!(set("user.one", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.two", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.two", b"2", XattrFlags::CREATE).unwrap();
    let mut names = [0; 64];
    let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"user.one\0user.two\0");
    rustix::fs::removexattr(&path, "user.one").unwrap();
    assert_eq!(get("user.one"), Err(Errno::NODATA));
    assert_eq!(rustix::fs::removexattr(&path, "user.one"), Err(Errno::NODATA));
    assert_eq!(mounted.session.malformed(), 0);
}

/// An access list: the owner may read and write, one more user read, nobody else anything.
fn access_list(user: u32) -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    [
        2u32.to_le_bytes().to_vec(),
        entry(0x01, 6, none),
        entry(0x02, 4, user),
        entry(0x04, 0, none),
        entry(0x10, 4, none),
        entry(0x20, 0, none),
    ]
    .concat()
}

#[test]
fn access_lists_count_where_they_are_chosen() {
    require_mount!("access_lists_count_where_they_are_chosen");
    for posix_acl in [false, true] {
        let tree = MemoryTree::new();
        let nodeid = tree.file(b"file", b"x", Quirk::None);
        tree.xattr(nodeid, b"system.posix_acl_access", &access_list(65_534));
        let mounted = mount_with(&tree, |_, config| config.posix_acl = posix_acl);
        sh(&mounted, "chmod 640 file");
        let read = |user: u32| {
            let read = format!("setpriv --reuid {user} --regid {user} --clear-groups cat file");
            sh(&mounted, &format!("{read} 2>&1 || true"))
        };
        assert_eq!(read(65_534) == "x", posix_acl, "acl: {posix_acl}");
        assert_ne!(read(65_533), "x");
    }
}
