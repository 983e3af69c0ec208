//! Names: made, linked, moved, removed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::memory::{MemoryTree, Quirk};
use crate::{mount_writable, require_mount, sh};

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<Errno> {
    result.unwrap_err().raw_os_error().map(Errno::from_raw_os_error)
}

#[test]
fn directories_are_made_and_removed_when_empty() {
    require_mount!("directories_are_made_and_removed_when_empty");
    let mounted = mount_writable(&MemoryTree::new());
    let at = |name: &str| mounted.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    assert_eq!(errno(fs::create_dir(at("a"))), Some(Errno::EXIST));
    assert_eq!(errno(fs::remove_dir(at("a"))), Some(Errno::NOTEMPTY));
    fs::remove_dir(at("a/b")).unwrap();
    fs::remove_dir(at("a")).unwrap();
    assert_eq!(errno(fs::metadata(at("a"))), Some(Errno::NOENT));
}

#[test]
fn links_are_one_file_and_symbolic_links_are_kept_as_written() {
    require_mount!("links_are_one_file_and_symbolic_links_are_kept_as_written");
    let tree = MemoryTree::new();
    tree.file(b"file", b"x", Quirk::None);
    let mounted = mount_writable(&tree);
    let at = |name: &str| mounted.path().join(name);
    fs::hard_link(at("file"), at("same")).unwrap();
    let (file, same) = (fs::metadata(at("file")).unwrap(), fs::metadata(at("same")).unwrap());
    assert_eq!((file.ino(), file.nlink()), (same.ino(), 2));
    fs::remove_file(at("file")).unwrap();
    assert_eq!(fs::read(at("same")).unwrap(), b"x");
    assert_eq!(errno(fs::hard_link(at("same"), at("same"))), Some(Errno::EXIST));
    for target in ["same".to_owned(), "../no where/\n".to_owned(), "t".repeat(4095)] {
        symlink(&target, at("link")).unwrap();
        assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some(target.as_str()));
        fs::remove_file(at("link")).unwrap();
    }
}

#[test]
fn nodes_of_every_type_are_made() {
    require_mount!("nodes_of_every_type_are_made");
    let mounted = mount_writable(&MemoryTree::new());
    let at = |name: &str| mounted.path().join(name);
    let make = |name: &str, kind, dev| {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_bits_retain(0o600), dev).unwrap();
        fs::symlink_metadata(at(name)).unwrap()
    };
    assert!(make("fifo", FileType::Fifo, 0).file_type().is_fifo());
    assert!(make("socket", FileType::Socket, 0).file_type().is_socket());
    assert!(make("file", FileType::RegularFile, 0).is_file());
    let dev = rustix::fs::makedev(253, 0x12345);
    let block = make("block", FileType::BlockDevice, dev);
    assert!(block.file_type().is_block_device());
    assert_eq!(block.rdev(), dev);
    let null = make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    assert!(null.file_type().is_char_device());
    assert_eq!(sh(&mounted, "echo gone > null; cat null"), "");
}

#[test]
fn renaming_replaces_refuses_or_exchanges_as_asked() {
    require_mount!("renaming_replaces_refuses_or_exchanges_as_asked");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let at = |name: &str| mounted.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("a"), b"a").unwrap();
    fs::write(at("dir/b"), b"b").unwrap();
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!(rename("a", "dir/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "dir/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read("a"), read("dir/b")), ("b".to_owned(), "a".to_owned()));
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("a", "dir/b", RenameFlags::empty()).unwrap();
    assert_eq!(read("dir/b"), "b");
    assert_eq!(errno(fs::metadata(at("a"))), Some(Errno::NOENT));
    rename("dir/b", "c", RenameFlags::NOREPLACE).unwrap();
    assert_eq!(read("c"), "b");
    assert_eq!(rename("c", "d", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rustix::fs::unlinkat(CWD, at("dir"), AtFlags::REMOVEDIR).unwrap();
}

#[test]
fn a_program_that_makes_and_removes_a_tree_is_content() {
    require_mount!("a_program_that_makes_and_removes_a_tree_is_content");
    let tree = MemoryTree::new();
    let observed = tree.observed();
    let mounted = mount_writable(&tree);
    let script = "mkdir -p t/a/b; for i in $(seq 200); do echo $i > t/a/b/$i; done; \
        cp -a t u; diff -r t u; mv t/a/b t/c; find t u | wc -l; \
        tar cf x.tar u; rm -rf u; tar xf x.tar; diff -r u/a/b t/c; rm -rf t u x.tar; ls -A";
    assert_eq!(sh(&mounted, script), "406\n");
    // What is removed is forgotten.
    crate::wait_until("all is forgotten", || observed.references.lock().unwrap().is_empty());
}

#[test]
fn supplementary_groups_of_the_caller_are_known() {
    require_mount!("supplementary_groups_of_the_caller_are_known");
    let tree = MemoryTree::new();
    let observed = tree.observed();
    let mounted = mount_writable(&tree);
    sh(&mounted, "chmod 777 .; setpriv --reuid 65534 --regid 1 --groups 5,70000 mkdir a; mkdir b");
    let makers = observed.makers.lock().unwrap();
    let (caller, groups) = &makers[0];
    assert_eq!((caller.uid, caller.gid), (65534, 1));
    assert_eq!(groups, &[5, 70000]);
    assert_eq!(makers[1].0.uid, 0);
    assert_ne!(makers[0].0.unique, makers[1].0.unique);
}
