//! Attributes and extended attributes.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use portcullis_core::{FileKind, Status, Timestamp};
use portcullis_wire::message::{Caller, SetAttr, SetTime};
use rustix::fs::OFlags;

use super::{GROUP, Tree, USER, assert_told, attr, status};
use crate::caller::changes_identity;
use crate::mutate::Changes;
use crate::testing::each_file_system;

#[test]
fn setattr_sets_each_attribute_and_leaves_the_others() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let file = tree.write("file", "content");
        let caller = Caller::ROOT;
        let set = |set: SetAttr| {
            let mut changes = Changes::default();
            let set = tree.mutator.setattr(&caller, &file, None, &set, &mut changes);
            assert_told(changes, &[attr(file)]);
            set.expect("set")
        };
        let none = SetAttr::default();
        let time = Timestamp { secs: 1_000_000_000, nanos: 123_456_789 };
        let told = set(SetAttr { mtime: Some(SetTime::At(time)), ..none });
        assert_eq!(told.mtime, time);
        let old = Timestamp { secs: -5, nanos: 7 };
        let told = set(SetAttr { atime: Some(SetTime::At(old)), ..none });
        assert_eq!((told.atime, told.mtime), (old, time));
        let told = set(SetAttr { mtime: Some(SetTime::Now), ..none });
        assert_eq!(told.atime, old);
        assert!(told.mtime > time);
        let told = set(SetAttr { size_bytes: Some(3), ..none });
        assert_eq!((told.size_bytes, told.mode & 0o777), (3, 0o666));
        let told = set(SetAttr { mode: Some(0o6711), ..none });
        assert_eq!(told.mode & 0o7777, 0o6711);
        if changes_identity() {
            let told = set(SetAttr { gid: Some(GROUP), ..none });
            assert_eq!((told.uid, told.gid, told.mode & 0o7777), (0, GROUP, 0o711));
            let both = SetAttr { uid: Some(USER), mode: Some(0o4700), ..none };
            let told = set(both);
            assert_eq!((told.uid, told.gid, told.mode & 0o7777), (USER, GROUP, 0o4700));
            let told = set(SetAttr { size_bytes: Some(1), kill_set_id: true, ..none });
            assert_eq!(told.mode & 0o7777, 0o700, "whoever asked");
            let other = Caller::new(1, 1, vec![]);
            let mode = SetAttr { mode: Some(0o777), ..none };
            let refused = tree.mutator.setattr(&other, &file, None, &mode, &mut Changes::default());
            assert_eq!(status(refused), Err(Status::NotPermitted));
        }
        let absurd = SetAttr { uid: Some(u32::MAX), ..none };
        let refused = tree.mutator.setattr(&caller, &file, None, &absurd, &mut Changes::default());
        assert_eq!(status(refused), Err(Status::InvalidArgument));
    });
}

/// S-ATOMIC-3.
#[test]
fn what_is_refused_leaves_the_size_as_it_was() {
    if !changes_identity() {
        return;
    }
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let file = tree.write("file", "content");
        let opened = tree.mutator.open(&file, OFlags::RDWR.bits()).expect("opened");
        let other = Caller::new(USER, GROUP, vec![]);
        let time = SetTime::At(Timestamp { secs: 1, nanos: 0 });
        let size = SetAttr { size_bytes: Some(3), ..SetAttr::default() };
        for fd in [None, Some(opened.fd.as_fd())] {
            for refused in [
                SetAttr { uid: Some(USER), ..size },
                SetAttr { gid: Some(GROUP), ..size },
                SetAttr { mode: Some(0o777), ..size },
                SetAttr { mtime: Some(time), ..size },
            ] {
                let set =
                    tree.mutator.setattr(&other, &file, fd, &refused, &mut Changes::default());
                assert_eq!(status(set), Err(Status::NotPermitted), "{refused:?}");
                assert_eq!(std::fs::read(tree.path("file")).expect("read"), b"content");
            }
            let all = SetAttr {
                uid: Some(USER),
                gid: Some(GROUP),
                mode: Some(0o6711),
                size_bytes: Some(8),
                mtime: Some(time),
                kill_set_id: true,
                ..SetAttr::default()
            };
            let mut changes = Changes::default();
            let told = tree.mutator.setattr(&Caller::ROOT, &file, fd, &all, &mut changes);
            let told = told.expect("set");
            assert_told(changes, &[attr(file)]);
            assert_eq!((told.uid, told.gid, told.mode & 0o7777), (USER, GROUP, 0o6711));
            assert_eq!((told.size_bytes, told.mtime.secs), (8, 1));
            std::os::unix::fs::chown(tree.path("file"), Some(0), Some(0)).expect("changed");
            tree.write("file", "content");
        }
    });
}

#[test]
fn a_link_itself_is_changed_and_never_what_it_leads_to() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        tree.write("file", "content");
        std::os::unix::fs::symlink("file", tree.path("link")).expect("made");
        let link = tree.handle("link");
        let before = std::fs::metadata(tree.path("file")).expect("there");
        let (caller, changes) = (Caller::ROOT, &mut Changes::default());
        let time = Timestamp { secs: 77, nanos: 0 };
        let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
        let told = tree.mutator.setattr(&caller, &link, None, &set, changes).expect("set");
        assert_eq!(told.mtime, time);
        let set = SetAttr { gid: Some(GROUP), ..SetAttr::default() };
        if changes_identity() {
            let told = tree.mutator.setattr(&caller, &link, None, &set, changes).expect("set");
            assert_eq!(told.gid, GROUP);
        }
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let refused = tree.mutator.setattr(&caller, &link, None, &set, changes);
        assert_eq!(status(refused), Err(Status::NotSupported));
        let set = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
        let refused = tree.mutator.setattr(&caller, &link, None, &set, changes);
        assert_eq!(status(refused), Err(Status::InvalidArgument));
        let linked = tree.mutator.link(&caller, &link, tree.at("link2"), changes).expect("linked");
        assert_eq!((linked.handle, linked.kind), (link, FileKind::Symlink));
        let after = std::fs::metadata(tree.path("file")).expect("there");
        assert_eq!(before.mtime_nsec(), after.mtime_nsec());
        assert_eq!((after.gid(), after.mode()), (before.gid(), before.mode()));
    });
}

#[test]
fn extended_attributes_hold_any_bytes() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let file = tree.write("file", "");
        let (mutator, caller) = (&tree.mutator, Caller::ROOT);
        let value = |name: &[u8]| {
            let object = mutator.handles.object(&file).expect("there");
            crate::xattr::getxattr(object.fd.as_fd(), name).map_err(|failure| failure.status)
        };
        let set = |name: &[u8], value: &[u8], flags: u32| {
            let mut changes = Changes::default();
            let set = mutator.setxattr(&caller, &file, name, value, flags, &mut changes);
            assert_told(changes, &[attr(file)]);
            status(set)
        };
        if set(b"user.empty", b"", 0) == Err(Status::NotSupported) {
            eprintln!("skipped: xattrs: the file system has none");
            return;
        }
        assert_eq!(value(b"user.empty"), Ok(vec![]));
        assert_eq!(set(b"user.zeros", b"a\0b\0", 0), Ok(()));
        assert_eq!(value(b"user.zeros"), Ok(b"a\0b\0".to_vec()));
        let (create, replace) = (1, 2);
        assert_eq!(set(b"user.zeros", b"", create), Err(Status::Exists));
        assert_eq!(set(b"user.none", b"", replace), Err(Status::NoAttribute));
        assert_eq!(set(b"user.zeros", b"c", replace), Ok(()));
        let mut changes = Changes::default();
        mutator.removexattr(&caller, &file, b"user.zeros", &mut changes).expect("removed");
        assert_told(changes, &[attr(file)]);
        assert_eq!(value(b"user.zeros"), Err(Status::NoAttribute));
        let again = mutator.removexattr(&caller, &file, b"user.zeros", &mut Changes::default());
        assert_eq!(status(again), Err(Status::NoAttribute));
    });
}
