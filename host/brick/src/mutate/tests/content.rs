//! What is written, allocated and copied.

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_wire::message::Caller;
use rustix::fs::OFlags;

use super::{Tree, assert_told, attr, status, user};
use crate::HandleChoice;
use crate::caller::changes_identity;
use crate::mutate::{Changes, Content, allocate, copy_file_range, fsync, lseek, write};
use crate::testing::each_file_system;

#[test]
fn writes_go_where_they_are_asked_to_and_clear_set_id_bits() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let file = tree.write("file", "0123456789");
        let opened = tree.mutator.open(&file, OFlags::RDWR.bits()).expect("opened");
        let content = Content { fd: opened.fd.as_fd(), handle: &file };
        let put = |offset: Option<u64>, pieces: &[&'static [u8]], kill: Option<&Caller>| {
            let pieces: Vec<Bytes> =
                pieces.iter().map(|&piece| Bytes::from_static(piece)).collect();
            let mut changes = Changes::default();
            let written = write(content, offset, &pieces, kill, &mut changes).expect("written");
            assert_told(changes, &[attr(file)]);
            written
        };
        let read = || std::fs::read(tree.path("file")).expect("read");
        assert_eq!(put(Some(2), &[b"ab", b"", b"c"], None), 3);
        assert_eq!(read(), b"01abc56789");
        assert_eq!(put(None, &[b"en", b"d"], None), 3);
        assert_eq!(read(), b"01abc56789end");
        assert_eq!(put(Some(15), &[b"!"], None), 1);
        assert_eq!(read(), b"01abc56789end\0\0!");
        let many = vec![&b"x"[..]; 3000];
        assert_eq!(put(Some(0), &many, None), 3000);
        assert_eq!(read(), [b'x'; 3000]);
        if changes_identity() {
            for caller in [user(), Caller::ROOT] {
                let mode = std::fs::Permissions::from_mode(0o6755);
                std::fs::set_permissions(tree.path("file"), mode).expect("changed");
                put(Some(0), &[b"y"], None);
                let mode = || std::fs::metadata(tree.path("file")).expect("there").mode() & 0o7777;
                assert_eq!(mode(), 0o6755, "not asked for");
                put(Some(0), &[b"y"], Some(&caller));
                assert_eq!(mode(), 0o755);
            }
        }
        let beyond = write(
            content,
            Some(u64::MAX),
            &[Bytes::from_static(b"z")],
            None,
            &mut Changes::default(),
        );
        assert_eq!(status(beyond), Err(Status::TooBig));
    });
}

#[test]
fn appends_of_many_do_not_overwrite_each_other() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let file = tree.write("file", "");
        std::thread::scope(|threads| {
            for letter in [&b"a"[..], b"b", b"c", b"d"] {
                let (tree, file) = (&tree, &file);
                threads.spawn(move || {
                    let opened = tree.mutator.open(file, OFlags::WRONLY.bits()).expect("opened");
                    let content = Content { fd: opened.fd.as_fd(), handle: file };
                    let data = [Bytes::from_static(letter), Bytes::from_static(letter)];
                    for _ in 0..500 {
                        write(content, None, &data, None, &mut Changes::default())
                            .expect("written");
                    }
                });
            }
        });
        let content = std::fs::read(tree.path("file")).expect("read");
        assert_eq!(content.len(), 4000);
        assert!(content.chunks(2).all(|pair| pair[0] == pair[1]), "each is in one piece");
    });
}

#[test]
fn space_is_allocated_holes_are_found_and_ranges_copied() {
    each_file_system(|path, choice| {
        const BLOCK: u64 = 64 * 1024;
        let tree = Tree::new(path, choice);
        let [file, other] = ["file", "other"].map(|name| tree.write(name, ""));
        let opened = [&file, &other].map(|handle| tree.mutator.open(handle, 2).expect("opened"));
        let at = Content { fd: opened[0].fd.as_fd(), handle: &file };
        let to = Content { fd: opened[1].fd.as_fd(), handle: &other };
        let data: Vec<u8> = (0..4 * BLOCK).map(|at| (at % 251) as u8).collect();
        let changes = &mut Changes::default();
        write(at, Some(0), &[data.clone().into()], None, changes).expect("written");
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        allocate(at, punch as u32, BLOCK, BLOCK, None, changes).expect("punched");
        assert_eq!(lseek(at.fd, 0, true).expect("a hole"), BLOCK);
        assert_eq!(lseek(at.fd, BLOCK, false).expect("data"), 2 * BLOCK);
        assert_eq!(lseek(at.fd, 5 * BLOCK, false).map_err(|f| f.status), Err(Status::NoDevice));
        allocate(at, 0, 0, 5 * BLOCK, None, changes).expect("allocated");
        let len = std::fs::metadata(tree.path("file")).expect("there").len();
        assert_eq!(len, 5 * BLOCK);
        let absurd = allocate(at, 0, 0, 0, None, changes);
        assert_eq!(status(absurd), Err(Status::InvalidArgument));

        let mut changes = Changes::default();
        let copied =
            copy_file_range((at, 100), (to, 7), BLOCK, None, &mut changes).expect("copied");
        assert_eq!(copied, BLOCK);
        assert_told(changes, &[attr(other)]);
        let copy = std::fs::read(tree.path("other")).expect("read");
        let mut wanted = data.clone();
        wanted[BLOCK as usize..2 * BLOCK as usize].fill(0);
        assert_eq!(copy[7..], wanted[100..100 + BLOCK as usize]);
        let changes = &mut Changes::default();
        let short = copy_file_range((at, 5 * BLOCK - 10), (to, 0), BLOCK, None, changes);
        assert_eq!(short.expect("copied"), 10, "to the end of the source");
        let overlapping = copy_file_range((at, 0), (at, 10), 100, None, changes);
        assert_eq!(status(overlapping), Err(Status::InvalidArgument));
        fsync(at.fd, false).expect("synced");
        fsync(at.fd, true).expect("synced");
        tree.mutator.fsyncdir(&tree.root).expect("synced");
    });
}

#[test]
fn a_copy_between_file_systems_moves_the_bytes() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let dirs = [tempfile::tempdir().expect("made"), tempfile::tempdir_in(shm).expect("made")];
    let trees = dirs.each_ref().map(|dir| Tree::new(dir.path(), HandleChoice::Auto));
    let data: Vec<u8> = (0..900_000u32).map(|at| (at % 241) as u8).collect();
    std::fs::write(trees[0].path("from"), &data).expect("written");
    let (from, to) = (trees[0].handle("from"), trees[1].write("to", ""));
    let opened = [
        trees[0].mutator.open(&from, 0).expect("opened"),
        trees[1].mutator.open(&to, 2).expect("opened"),
    ];
    let source = Content { fd: opened[0].fd.as_fd(), handle: &from };
    let target = Content { fd: opened[1].fd.as_fd(), handle: &to };
    let changes = &mut Changes::default();
    let copied = copy_file_range((source, 5), (target, 3), 2_000_000, None, changes);
    assert_eq!(copied.expect("copied"), data.len() as u64 - 5);
    let copy = std::fs::read(trees[1].path("to")).expect("read");
    assert_eq!(copy[3..], data[5..]);
}
