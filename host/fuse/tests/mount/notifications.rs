//! What the kernel holds is seen anew once it is told.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::inotify;
use rustix::io::Errno;

use crate::memory::{HELD_NAME, MemoryTree, Quirk};
use crate::{Mounted, mount_writable, require_mount, wait_until};

/// A mount whose kernel keeps all it is given for a minute.
fn cached() -> (MemoryTree, Mounted, u64) {
    let tree = MemoryTree::new().with_everything_cached();
    let nodeid = tree.file(b"file", b"old content", Quirk::None);
    let mounted = mount_writable(&tree);
    (tree, mounted, nodeid)
}

fn read(file: &File, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn pages_and_attributes_are_seen_anew_after_inval_inode() {
    require_mount!("pages_and_attributes_are_seen_anew_after_inval_inode");
    let (tree, mounted, nodeid) = cached();
    let path = mounted.path().join("file");
    let file = File::open(&path).unwrap();
    assert_eq!(read(&file, 100), b"old content");
    // Reading changed the time of access, so the kernel asks once more.
    assert_eq!(fs::metadata(&path).unwrap().len(), 11);
    tree.overwrite(nodeid, b"NEW");
    assert_eq!(fs::metadata(&path).unwrap().len(), 11, "attributes are the kernel's");
    assert_eq!(read(&file, 100), b"old content", "and so are pages");
    // Attributes alone: a range that starts nowhere.
    mounted.session.notifier().inval_inode(nodeid, -1, 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3);
    assert_eq!(read(&file, 100), b"old", "the page as far as the file goes");
    mounted.session.notifier().inval_inode(nodeid, 0, 0).unwrap();
    assert_eq!(read(&file, 100), b"NEW");
    assert_eq!(fs::read(&path).unwrap(), b"NEW");
}

#[test]
fn a_part_of_the_pages_is_dropped_and_the_rest_stays() {
    require_mount!("a_part_of_the_pages_is_dropped_and_the_rest_stays");
    let (tree, mounted, _) = cached();
    let nodeid = tree.file(b"pages", &[1; 3 * 4096], Quirk::None);
    let file = File::open(mounted.path().join("pages")).unwrap();
    assert!(read(&file, 3 * 4096) == [1; 3 * 4096]);
    tree.overwrite(nodeid, &[2; 3 * 4096]);
    mounted.session.notifier().inval_inode(nodeid, 4096, 4096).unwrap();
    let seen = read(&file, 3 * 4096);
    assert_eq!((seen[0], seen[4096], seen[8192]), (1, 2, 1));
}

#[test]
fn entries_are_looked_up_anew_after_inval_entry() {
    require_mount!("entries_are_looked_up_anew_after_inval_entry");
    for expire_only in [false, true] {
        let (tree, mounted, _) = cached();
        let (path, absent) = (mounted.path().join("file"), mounted.path().join("absent"));
        let old = fs::metadata(&path).unwrap().ino();
        fs::metadata(&absent).unwrap_err();
        tree.file(b"file", b"another", Quirk::None);
        tree.file(b"absent", b"there", Quirk::None);
        assert_eq!(fs::metadata(&path).unwrap().ino(), old, "the entry is the kernel's");
        fs::metadata(&absent).unwrap_err();
        let notifier = mounted.session.notifier();
        notifier.inval_entry(1, b"file", expire_only).unwrap();
        notifier.inval_entry(1, b"absent", expire_only).unwrap();
        assert_ne!(fs::metadata(&path).unwrap().ino(), old, "expire_only: {expire_only}");
        assert_eq!(fs::read(&path).unwrap(), b"another");
        assert_eq!(fs::read(&absent).unwrap(), b"there");
    }
}

#[test]
fn a_deleted_entry_is_gone_and_one_that_is_another_file_stays() {
    require_mount!("a_deleted_entry_is_gone_and_one_that_is_another_file_stays");
    let (tree, mounted, nodeid) = cached();
    let path = mounted.path().join("file");
    fs::metadata(&path).unwrap();
    tree.remove(b"file");
    fs::metadata(&path).unwrap();
    let notifier = mounted.session.notifier();
    notifier.delete(1, nodeid, b"file").unwrap();
    let gone = fs::metadata(&path).unwrap_err().raw_os_error();
    assert_eq!(gone, Some(Errno::NOENT.raw_os_error()));
    notifier.delete(1, nodeid, b"file").unwrap();
}

#[test]
fn what_the_kernel_does_not_know_it_does_not_mind() {
    require_mount!("what_the_kernel_does_not_know_it_does_not_mind");
    let (_, mounted, _) = cached();
    let notifier = mounted.session.notifier().clone();
    notifier.inval_inode(4711, 0, 0).unwrap();
    notifier.inval_entry(1, b"never seen", false).unwrap();
    notifier.inval_entry(4711, b"file", true).unwrap();
    notifier.delete(1, 4711, b"never seen").unwrap();
    assert_eq!(notifier.inval_entry(1, b"", false), Err(Errno::INVAL));
    assert_eq!(notifier.inval_entry(1, &[b'n'; 1025], false), Err(Errno::NAMETOOLONG));
    drop(mounted);
    notifier.inval_inode(1, 0, 0).unwrap();
    notifier.inval_entry(1, b"file", false).unwrap();
    notifier.inc_epoch().unwrap();
}

#[test]
fn every_entry_is_looked_up_anew_in_a_new_epoch() {
    require_mount!("every_entry_is_looked_up_anew_in_a_new_epoch");
    let (tree, mounted, _) = cached();
    if !mounted.session.negotiated().has_inc_epoch() {
        assert_eq!(mounted.session.notifier().inc_epoch(), Ok(false));
        return;
    }
    let (path, absent) = (mounted.path().join("file"), mounted.path().join("absent"));
    let old = fs::metadata(&path).unwrap().ino();
    fs::metadata(&absent).unwrap_err();
    tree.file(b"file", b"another", Quirk::None);
    tree.file(b"absent", b"there", Quirk::None);
    assert_eq!(mounted.session.notifier().inc_epoch(), Ok(true));
    assert_ne!(fs::metadata(&path).unwrap().ino(), old);
    assert_eq!(fs::read(&absent).unwrap(), b"there");
}

#[test]
fn an_epoch_does_not_wait_for_a_directory_that_an_operation_is_under_way_in() {
    require_mount!("an_epoch_does_not_wait_for_a_directory_that_an_operation_is_under_way_in");
    let (tree, mounted, nodeid) = cached();
    fs::metadata(mounted.path().join("file")).unwrap();
    let (slow, notifier) = (mounted.path().to_owned(), mounted.session.notifier().clone());
    let name = std::str::from_utf8(HELD_NAME).unwrap().to_owned();
    let making = std::thread::spawn(move || fs::create_dir(slow.join(name)));
    wait_until("it is being made", || tree.held() == 1);
    // These return while the directory's lock is held, or this test never ends.
    notifier.inc_epoch().unwrap();
    notifier.inval_inode(nodeid, 0, 0).unwrap();
    notifier.inval_inode(1, 0, 0).unwrap();
    let late = std::thread::spawn(move || notifier.inval_entry(1, b"file", false));
    assert_eq!(tree.held(), 1);
    tree.release_held();
    late.join().unwrap().unwrap();
    let refused = making.join().unwrap().unwrap_err().raw_os_error();
    assert_eq!(refused, Some(Errno::OPNOTSUPP.raw_os_error()));
}

#[test]
fn who_watches_a_file_is_told_that_it_was_deleted() {
    require_mount!("who_watches_a_file_is_told_that_it_was_deleted");
    let (tree, mounted, nodeid) = cached();
    let watcher = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let path = mounted.path().join("file");
    inotify::add_watch(&watcher, &path, inotify::WatchFlags::DELETE_SELF).unwrap();
    tree.remove(b"file");
    mounted.session.notifier().delete(1, nodeid, b"file").unwrap();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
    let event = inotify::Reader::new(&watcher, &mut buffer).next().unwrap().events();
    assert!(event.contains(inotify::ReadFlags::DELETE_SELF), "{event:?}");
}
