//! Content: written, extended, shortened, copied, mapped.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::Ordering;

use portcullis_fuse::abi::init;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::memory::{MemoryTree, Quirk};
use crate::{mount_with, mount_writable, require_mount, sh, wait_until};

/// Bytes that differ from page to page and within one.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 4096) as u8).collect()
}

#[test]
fn what_is_written_is_read_back_and_arrives_whole() {
    require_mount!("what_is_written_is_read_back_and_arrives_whole");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("file");
    let content = pattern(5_000_001);
    fs::write(&path, &content).unwrap();
    assert!(tree.content(b"file") == content, "as the tree has it");
    assert!(fs::read(&path).unwrap() == content, "as the mount shows it");
    assert_eq!(fs::metadata(&path).unwrap().len(), 5_000_001);
    assert_eq!(tree.observed().largest_write_bytes.load(Ordering::Relaxed), 1 << 20);
    assert_eq!(mounted.session.malformed(), 0);
}

#[test]
fn many_writers_at_once_do_not_mix() {
    require_mount!("many_writers_at_once_do_not_mix");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            let path = mounted.path().join(format!("file {n}"));
            scope.spawn(move || {
                let file = File::create(path).unwrap();
                for round in 0..4 {
                    file.write_all_at(&vec![n * 16 + round; 3 << 20], 0).unwrap();
                }
            });
        }
    });
    for n in 0..8u8 {
        let content = tree.content(format!("file {n}").as_bytes());
        assert!(content == vec![n * 16 + 3; 3 << 20], "file {n}");
    }
}

#[test]
fn direct_writes_go_to_the_tree_as_they_are() {
    require_mount!("direct_writes_go_to_the_tree_as_they_are");
    let tree = MemoryTree::new();
    tree.file(b"direct", b"", Quirk::Direct);
    let mounted = mount_writable(&tree);
    let file = OpenOptions::new().write(true).open(mounted.path().join("direct")).unwrap();
    assert_eq!(file.write_at(b"abc", 5).unwrap(), 3);
    assert_eq!(tree.content(b"direct"), b"\0\0\0\0\0abc");
    file.write_all_at(&pattern(2_000_000), 0).unwrap();
    assert!(tree.content(b"direct") == pattern(2_000_000));
}

#[test]
fn writes_that_are_not_answered_do_not_keep_others_waiting() {
    require_mount!("writes_that_are_not_answered_do_not_keep_others_waiting");
    const WRITERS: u8 = 6;
    let tree = MemoryTree::new();
    let nodeid = tree.file(b"slow", b"", Quirk::HoldsWrites);
    // More writes than there are buffers.
    let mounted = mount_with(&tree, |_, config| config.buffers_max = 2);
    let path = mounted.path().join("slow");
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        let piece = |n: u8| (vec![n; 1 << 20], u64::from(n) << 20);
        // All but the first lie before the end, so the kernel lets them go side by side.
        let file = open();
        file.set_len(u64::from(WRITERS) << 20).unwrap();
        for n in 0..WRITERS {
            let file = open();
            scope.spawn(move || {
                let (bytes, offset) = piece(n);
                file.write_all_at(&bytes, offset).unwrap();
            });
        }
        wait_until("all are under way", || tree.held_writes() == usize::from(WRITERS));
        fs::write(mounted.path().join("other"), b"x").unwrap();
        tree.release_writes(nodeid);
    });
    let content = tree.content(b"slow");
    assert!((0..WRITERS).all(|n| content[usize::from(n) << 20..][..1 << 20] == vec![n; 1 << 20]));
}

#[test]
fn reads_are_no_larger_than_the_mount_says() {
    require_mount!("reads_are_no_larger_than_the_mount_says");
    let tree = MemoryTree::new();
    tree.file(b"file", &pattern(1_000_000), Quirk::None);
    let mounted = mount_with(&tree, |options, _| options.max_read_bytes = Some(16384));
    assert_eq!(mounted.session.negotiated().max_read_bytes, 16384);
    assert!(fs::read(mounted.path().join("file")).unwrap() == pattern(1_000_000));
    assert_eq!(tree.observed().largest_read_bytes.load(Ordering::Relaxed), 16384);
}

#[test]
fn appends_come_after_one_another() {
    require_mount!("appends_come_after_one_another");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("log");
    let append = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let (mut one, mut other) = (append(), append());
    for line in ["a\n", "b\n", "c\n"] {
        one.write_all(line.as_bytes()).unwrap();
        other.write_all(line.to_uppercase().as_bytes()).unwrap();
    }
    assert_eq!(tree.content(b"log"), b"a\nA\nb\nB\nc\nC\n");
}

#[test]
fn truncation_comes_with_the_open_or_by_size_and_zeros_fill_what_grows() {
    require_mount!("truncation_comes_with_the_open_or_by_size_and_zeros_fill_what_grows");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    assert!(mounted.session.negotiated().has(init::ATOMIC_O_TRUNC));
    let path = mounted.path().join("file");
    fs::write(&path, b"123456").unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(3).unwrap();
    assert_eq!(tree.content(b"file"), b"123");
    file.set_len(5).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"123\0\0");
    File::create(&path).unwrap();
    assert_eq!(tree.content(b"file"), b"");
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn only_one_of_two_makes_a_file_that_must_be_new() {
    require_mount!("only_one_of_two_makes_a_file_that_must_be_new");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("new");
    let make = || OpenOptions::new().write(true).create_new(true).open(&path);
    make().unwrap();
    assert_eq!(make().unwrap_err().raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    // Made behind the kernel's back, after it saw that the name was free.
    fs::metadata(mounted.path().join("other")).unwrap_err();
    tree.file(b"other", b"x", Quirk::None);
    let late = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(mounted.path().join("other"))
        .unwrap_err();
    assert_eq!(late.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
}

#[test]
fn the_umask_of_the_caller_is_applied_and_is_nobody_elses() {
    require_mount!("the_umask_of_the_caller_is_applied_and_is_nobody_elses");
    let mounted = mount_writable(&MemoryTree::new());
    let script =
        "umask 027; touch a; mkdir b; mkfifo c; umask 0; touch d; mkdir e; stat -c %a a b c d e";
    assert_eq!(sh(&mounted, script), "640\n750\n640\n666\n777\n");
    let umask = sh(&mounted, "umask");
    let umask = u32::from_str_radix(umask.trim(), 8).unwrap();
    let mut options = OpenOptions::new();
    options.mode(0o7777).create(true).write(true);
    let file = options.open(mounted.path().join("f")).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o7777 & !umask);
}

#[test]
fn writing_clears_the_set_user_id_bit() {
    require_mount!("writing_clears_the_set_user_id_bit");
    let mounted = mount_writable(&MemoryTree::new());
    fs::set_permissions(mounted.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    sh(&mounted, "touch a b c; chmod 6777 a b c");
    // Root keeps what it may set; others do not.
    sh(&mounted, "echo x >> a");
    let other = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    sh(&mounted, &format!("{other} sh -c 'echo x >> b'; {other} sh -c ': > c'"));
    assert_eq!(sh(&mounted, "stat -c %a a b c"), "6777\n777\n777\n");
    sh(&mounted, "chown 1:1 a");
    assert_eq!(sh(&mounted, "stat -c '%a %u %g' a"), "777 1 1\n");
}

#[test]
fn space_is_allocated_and_holes_are_punched_and_found() {
    require_mount!("space_is_allocated_and_holes_are_punched_and_found");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("file");
    fs::write(&path, vec![1; 16384]).unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 4096).unwrap();
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut content).unwrap();
    assert!(content == [vec![1; 4096], vec![0; 4096], vec![1; 8192], vec![0; 3616]].concat());
    let refused = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(4096)), Ok(8192));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(9000)), Ok(9000));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(16384)), Err(Errno::NXIO));
    assert_eq!(seek(rustix::fs::SeekFrom::End(-1)), Ok(19999));
}

#[test]
fn a_range_is_copied_from_file_to_file() {
    require_mount!("a_range_is_copied_from_file_to_file");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    fs::write(mounted.path().join("from"), pattern(100_000)).unwrap();
    fs::write(mounted.path().join("to"), [9; 10]).unwrap();
    let from = File::open(mounted.path().join("from")).unwrap();
    let to = OpenOptions::new().write(true).open(mounted.path().join("to")).unwrap();
    let (mut at, mut into) = (50_000, 5);
    let copied =
        rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 1 << 40).unwrap();
    assert_eq!((copied, at, into), (50_000, 100_000, 50_005));
    let expected = [&[9; 5], &pattern(100_000)[50_000..]].concat();
    assert!(tree.content(b"to") == expected);
    assert!(fs::read(mounted.path().join("to")).unwrap() == expected);
}

#[test]
fn a_file_without_a_name_gets_one_later() {
    require_mount!("a_file_without_a_name_gets_one_later");
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed =
        || File::from(rustix::fs::openat(CWD, mounted.path(), flags, Mode::RUSR).unwrap());
    let mut file = unnamed();
    file.write_all(b"content").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()));
    let named = mounted.path().join("named");
    rustix::fs::linkat(CWD, by_number, CWD, &named, AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(&named).unwrap(), b"content");
    assert_eq!(fs::metadata(&named).unwrap().nlink(), 1);
    drop(unnamed());
}

#[test]
fn an_unlinked_file_lives_on_while_it_is_open() {
    require_mount!("an_unlinked_file_lives_on_while_it_is_open");
    let tree = MemoryTree::new();
    let observed = tree.observed();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"after").unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!((content.as_str(), file.metadata().unwrap().nlink()), ("after", 0));
    drop(file);
    wait_until("it is closed", || observed.open.load(Ordering::Relaxed) == 0);
}

#[test]
fn what_is_stored_in_a_mapping_arrives() {
    require_mount!("what_is_stored_in_a_mapping_arrives");
    const LEN: usize = 3 * 4096;
    let tree = MemoryTree::new();
    let mounted = mount_writable(&tree);
    let path = mounted.path().join("file");
    fs::write(&path, pattern(LEN)).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (protection, fd) =
        (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&file));
    // SAFETY: a fresh mapping of LEN bytes of an open file, at an address the kernel chooses.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, libc::MAP_SHARED, fd, 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the mapping is LEN bytes long, readable and writable, and nothing else refers to it
    // until it is unmapped below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), LEN) };
    assert!(bytes == pattern(LEN));
    bytes[5000..5005].copy_from_slice(b"store");
    // SAFETY: the range is that of the mapping.
    assert_eq!(unsafe { libc::msync(map, LEN, libc::MS_SYNC) }, 0);
    let mut expected = pattern(LEN);
    expected[5000..5005].copy_from_slice(b"store");
    assert!(tree.content(b"file") == expected);
    // SAFETY: the range is that of the mapping, and `bytes` is not used any more.
    assert_eq!(unsafe { libc::munmap(map, LEN) }, 0);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn an_ioctl_that_is_not_known_says_so() {
    require_mount!("an_ioctl_that_is_not_known_says_so");
    let tree = MemoryTree::new();
    tree.file(b"file", b"", Quirk::None);
    let mounted = mount_writable(&tree);
    let file = File::open(mounted.path().join("file")).unwrap();
    let mut size = [0u16; 4];
    // SAFETY: TIOCGWINSZ writes a struct of four u16 through its pointer.
    let asked = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::TIOCGWINSZ, size.as_mut_ptr())
    };
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((asked, errno), (-1, Some(Errno::NOTTY.raw_os_error())));
}
