//! A mounted copy of a local tree looks like that tree to ordinary programs.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use crate::memory::{MemoryTree, Quirk};
use crate::{mount, require_mount};

/// A tree with every kind of file that needs no privilege, and names that are not text.
fn local_tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::create_dir(at("empty directory")).unwrap();
    fs::write(at("a/empty"), b"").unwrap();
    fs::write(at("a/b/text"), b"some text\n").unwrap();
    fs::write(at("a/b/c/large"), (0..10_000_000u32).map(|n| (n * 7 / 8) as u8).collect::<Vec<_>>())
        .unwrap();
    fs::hard_link(at("a/b/text"), at("a/same text")).unwrap();
    symlink("b/text", at("a/link")).unwrap();
    symlink("nowhere", at("a/dangling")).unwrap();
    symlink("loop", at("a/loop")).unwrap();
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe\n \t")), b"x").unwrap();
    fs::write(at(&"n".repeat(255)), b"long name").unwrap();
    fs::set_permissions(at("a/b/text"), fs::Permissions::from_mode(0o4751)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    dir
}

fn output(program: &str, args: &[&str], dir: &Path) -> String {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<_> = lines.split('\0').collect();
    lines.sort_unstable();
    lines
}

#[test]
fn programs_see_the_tree_as_it_is_locally() {
    require_mount!("programs_see_the_tree_as_it_is_locally");
    let local = local_tree();
    let mounted = mount(MemoryTree::copy_of(local.path()));
    let everything = r"%P %y %i %m %n %U %G %s %b %T@ %C@ %l\0";
    for (program, args) in [
        ("ls", &["-lR", "-n", "--time-style=full-iso"][..]),
        ("ls", &["-lRU", "--block-size=1"]),
        ("stat", &["a/b/text", "a/link", "fifo"]),
    ] {
        let (seen, expected) =
            (output(program, args, mounted.path()), output(program, args, local.path()));
        let strip = |text: &str| -> Vec<String> {
            // The device number is the mount's own; FUSE tells no time of birth.
            let own = |line: &&str| !line.starts_with("Device:") && !line.starts_with(" Birth:");
            let mut lines: Vec<_> = text.lines().filter(own).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(strip(&seen), strip(&expected), "{program} {args:?}");
    }
    let find = |dir| output("find", &[".", "-printf", everything], dir);
    assert_eq!(sorted(&find(mounted.path())), sorted(&find(local.path())));
    let roots = [local.path().to_str().unwrap(), mounted.path().to_str().unwrap()];
    output("diff", &["-r", "--no-dereference", "--exclude=fifo", roots[0], roots[1]], local.path());
}

#[test]
fn a_file_of_ten_megabytes_reads_whole_in_pieces_of_any_size() {
    require_mount!("a_file_of_ten_megabytes_reads_whole_in_pieces_of_any_size");
    let local = local_tree();
    let mounted = mount(MemoryTree::copy_of(local.path()));
    let expected = fs::read(local.path().join("a/b/c/large")).unwrap();
    let path = mounted.path().join("a/b/c/large");
    let cat = Command::new("cat").arg(&path).output().unwrap();
    assert!(cat.stdout == expected, "cat");
    let file = fs::File::open(&path).unwrap();
    for (offset, len) in [(0, 1), (4095, 4098), (9_999_990, 100), (20_000_000, 10), (1, 3 << 20)] {
        let mut piece = vec![0; len];
        let got = rustix::io::pread(&file, &mut piece, offset).unwrap();
        let start = (offset as usize).min(expected.len());
        assert!(
            piece[..got] == expected[start..(start + len).min(expected.len())],
            "{offset} {len}"
        );
    }
}

#[test]
fn attributes_come_with_the_listing_so_walking_looks_nothing_up() {
    require_mount!("attributes_come_with_the_listing_so_walking_looks_nothing_up");
    let tree = MemoryTree::new();
    for n in 0..5000 {
        tree.file(format!("file {n}").as_bytes(), b"", Quirk::None);
    }
    tree.file(b"bare", b"abc", Quirk::NoAttributes);
    let observed = tree.observed();
    let mounted = mount(tree);
    let sizes = output("find", &[".", "-printf", r"%s\n"], mounted.path());
    assert_eq!(sizes.lines().count(), 5002);
    // Only the entry that came without attributes was looked up, and its size is not zero.
    assert_eq!(observed.lookups.load(Ordering::Relaxed), 1);
    assert!(sizes.lines().any(|size| size == "3"));
}

#[test]
fn nothing_can_be_written() {
    require_mount!("nothing_can_be_written");
    let tree = MemoryTree::new();
    tree.file(b"file", b"x", Quirk::None);
    let mounted = mount(tree);
    let erofs = Some(rustix::io::Errno::ROFS.raw_os_error());
    let path = mounted.path();
    assert_eq!(fs::write(path.join("file"), b"y").unwrap_err().raw_os_error(), erofs);
    assert_eq!(fs::write(path.join("new"), b"y").unwrap_err().raw_os_error(), erofs);
    assert_eq!(fs::remove_file(path.join("file")).unwrap_err().raw_os_error(), erofs);
}

#[test]
fn permissions_are_checked_for_each_user() {
    require_mount!("permissions_are_checked_for_each_user");
    let local = tempfile::tempdir().unwrap();
    fs::set_permissions(local.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(local.path().join("secret"), b"x").unwrap();
    fs::set_permissions(local.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let mounted = mount(MemoryTree::copy_of(local.path()));
    fs::set_permissions(mounted.dir.path().parent().unwrap(), fs::Permissions::from_mode(0o1777))
        .ok();
    // The directory mounted on is private to root, so go in as root and read as another user.
    let read = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let mut cat = Command::new("cat");
        cat.arg("secret").current_dir(mounted.path()).uid(uid).output().unwrap().status.success()
    };
    assert!(read(0));
    assert!(!read(65_534));
}

#[test]
fn df_shows_what_statfs_answers() {
    require_mount!("df_shows_what_statfs_answers");
    let mounted = mount(MemoryTree::new());
    let statvfs = rustix::fs::statvfs(mounted.path()).unwrap();
    assert_eq!((statvfs.f_blocks, statvfs.f_bfree, statvfs.f_bavail), (1000, 600, 500));
    assert_eq!((statvfs.f_frsize, statvfs.f_files, statvfs.f_namemax), (512, 1, 255));
    let df = output("df", &["--output=source,fstype", "."], mounted.path());
    let words: Vec<_> = df.split_whitespace().collect();
    assert_eq!(words[words.len() - 2..], ["memory", "fuse.portcullis"]);
}

#[test]
fn xattrs_answer_size_probes_and_small_buffers() {
    require_mount!("xattrs_answer_size_probes_and_small_buffers");
    let tree = MemoryTree::new();
    let nodeid = tree.file(b"file", b"x", Quirk::None);
    tree.xattr(nodeid, b"user.colour", b"vermilion");
    tree.xattr(nodeid, b"user.empty", b"");
    let mounted = mount(tree);
    let path = mounted.path().join("file");
    let get = |name: &str, len: usize| {
        let mut value = vec![0; len];
        rustix::fs::getxattr(&path, name, &mut value[..]).map(|got| value[..got].to_vec())
    };
    assert_eq!(rustix::fs::getxattr_query(&path, "user.colour"), Ok(9));
    assert_eq!(get("user.colour", 9), Ok(b"vermilion".to_vec()));
    assert_eq!(get("user.colour", 8), Err(rustix::io::Errno::RANGE));
    assert_eq!(get("user.empty", 8), Ok(Vec::new()));
    assert_eq!(get("user.none", 8), Err(rustix::io::Errno::NODATA));
    assert_eq!(get("security.selinux", 8), Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::listxattr_query(&path), Ok(23));
    let mut list = [0; 64];
    assert_eq!(rustix::fs::listxattr(&path, &mut list[..]), Ok(23));
    assert_eq!(rustix::fs::listxattr(&path, &mut list[..22]), Err(rustix::io::Errno::RANGE));
}
