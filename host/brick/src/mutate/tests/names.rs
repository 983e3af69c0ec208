//! Making, linking, renaming and removing names.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use portcullis_core::watch::Change;
use portcullis_core::{FileKind, Status};
use portcullis_wire::message::{Caller, SetAttr};
use rustix::fs::{OFlags, RenameFlags, makedev};

use super::{Tree, USER, assert_told, attr, in_a_while, name, status, user};
use crate::caller::changes_identity;
use crate::mutate::{Changes, Place};
use crate::testing::each_file_system;

#[test]
fn what_is_made_is_the_callers_and_has_the_mode_asked_for() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let open = std::fs::Permissions::from_mode(0o2777);
        std::fs::set_permissions(path, open).expect("changed");
        std::os::unix::fs::chown(path, None, Some(1001)).unwrap_or_default();
        let (mutator, user) = (&tree.mutator, user());
        let changes = &mut Changes::default();
        let flags = OFlags::RDWR.bits();
        let (entry, file) =
            mutator.create(&user, tree.at("file"), flags, 0o4640, changes).expect("created");
        assert_eq!(entry.handle, tree.handle("file"));
        assert_told(std::mem::take(changes), &[name(tree.root, "file"), attr(tree.root)]);
        let dir = mutator.mkdir(&user, tree.at("dir"), 0o751, changes).expect("made");
        assert_eq!(dir.kind, FileKind::Directory);
        let link = mutator.symlink(&user, tree.at("link"), b"not/there", changes).expect("made");
        assert_eq!(link.target.as_deref(), Some(&b"not/there"[..]));
        let fifo = libc::S_IFIFO | 0o604;
        mutator.mknod(&user, tree.at("fifo"), fifo, 0, changes).expect("made");
        mutator.mknod(&user, tree.at("socket"), libc::S_IFSOCK | 0o600, 0, changes).expect("made");
        mutator.mknod(&user, tree.at("plain"), libc::S_IFREG | 0o600, 0, changes).expect("made");
        let metadata = |name: &str| std::fs::symlink_metadata(tree.path(name)).expect("there");
        for (name, mode) in [("file", 0o4640), ("dir", 0o2751), ("fifo", 0o604), ("plain", 0o600)] {
            assert_eq!(metadata(name).mode() & 0o7777, mode, "{name}");
        }
        assert!(metadata("fifo").file_type().is_fifo());
        assert!(metadata("socket").file_type().is_socket());
        if changes_identity() {
            for name in ["file", "dir", "link", "fifo", "socket", "plain"] {
                let metadata = metadata(name);
                assert_eq!((metadata.uid(), metadata.gid()), (USER, 1001), "{name}");
            }
            let device = libc::S_IFCHR | 0o600;
            let made = mutator.mknod(&user, tree.at("null"), device, makedev(1, 3), changes);
            assert_eq!(status(made), Err(Status::NotPermitted), "only root makes devices");
            let made =
                mutator.mknod(&Caller::ROOT, tree.at("null"), device, makedev(1, 3), changes);
            assert_eq!(made.expect("made").attr.expect("attributes").rdev, makedev(1, 3));
        }
        drop(file);
    });
}

#[test]
fn create_opens_what_is_there_unless_it_must_not_be() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let known = tree.write("known", "content");
        std::fs::create_dir(tree.path("dir")).expect("made");
        std::os::unix::fs::symlink("known", tree.path("link")).expect("made");
        let create = |name: &str, flags: OFlags, changes: &mut Changes| {
            let caller = Caller::ROOT;
            tree.mutator.create(&caller, tree.at(name), flags.bits(), 0o600, changes)
        };
        let mut changes = Changes::default();
        let (entry, opened) = create("known", OFlags::RDONLY, &mut changes).expect("opened");
        assert_eq!((entry.handle, opened.attr.size_bytes), (known, 7));
        assert_told(changes, &[]);
        let mut changes = Changes::default();
        let exclusive = OFlags::RDWR | OFlags::EXCL;
        assert_eq!(status(create("known", exclusive, &mut changes)), Err(Status::Exists));
        assert_eq!(status(create("dir", OFlags::RDWR, &mut changes)), Err(Status::IsDirectory));
        assert_eq!(status(create("link", OFlags::RDWR, &mut changes)), Err(Status::Loop));
        assert_told(changes, &[]);
        let mut changes = Changes::default();
        let truncating = OFlags::WRONLY | OFlags::TRUNC;
        let (_, opened) = create("known", truncating, &mut changes).expect("opened");
        assert_eq!(opened.attr.size_bytes, 0);
        assert_told(changes, &[attr(known)]);
        if changes_identity() {
            // Its kernel did not know that the file was there, so nobody has checked.
            let [open, closed] = [0o777, 0o600].map(std::fs::Permissions::from_mode);
            std::fs::set_permissions(path, open).expect("changed");
            std::fs::set_permissions(tree.path("known"), closed).expect("changed");
            let opened = tree.mutator.create(
                &user(),
                tree.at("known"),
                OFlags::RDWR.bits(),
                0o600,
                &mut Changes::default(),
            );
            assert_eq!(status(opened), Err(Status::AccessDenied));
        }
    });
}

#[test]
fn unlink_link_and_rename_tell_all_whose_attributes_changed() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let (mutator, root) = (&tree.mutator, tree.root);
        let caller = Caller::ROOT;
        let [a, b] = ["a", "b"].map(|name| tree.write(name, name));
        std::fs::create_dir(tree.path("dir")).expect("made");
        let dir = tree.handle("dir");
        let in_dir = |name: &'static str| Place { dir: &dir, name: name.as_bytes() };

        let mut changes = Changes::default();
        let entry = mutator.link(&caller, &a, in_dir("a2"), &mut changes).expect("linked");
        assert_eq!((entry.handle, entry.attr.expect("attributes").nlink), (a, 2));
        assert_told(changes, &[name(dir, "a2"), attr(dir), attr(a)]);

        let mut changes = Changes::default();
        mutator.unlink(&caller, tree.at("a"), &mut changes).expect("removed");
        assert_told(changes, &[name(root, "a"), attr(root), attr(a)]);

        let mut changes = Changes::default();
        mutator.rename(&caller, in_dir("a2"), tree.at("b"), 0, &mut changes).expect("renamed");
        let told = [name(dir, "a2"), name(root, "b"), attr(dir), attr(root), attr(a), attr(b)];
        assert_told(changes, &told);
        assert_eq!(std::fs::read(tree.path("b")).expect("read"), b"a");
        assert!(mutator.handles.object(&a).is_ok(), "its new place is known at once");
        assert!(mutator.handles.object(&b).is_ok(), "who was just told of it can still open it");
        mutator.sweep(in_a_while());
        assert!(mutator.handles.object(&b).is_err(), "it is gone");

        let c = tree.write("c", "c");
        let mut changes = Changes::default();
        let exchange = RenameFlags::EXCHANGE.bits();
        mutator
            .rename(&caller, tree.at("b"), in_dir("no"), exchange, &mut changes)
            .expect_err("there is nothing to exchange it with");
        mutator
            .rename(&caller, tree.at("b"), tree.at("c"), exchange, &mut changes)
            .expect("exchanged");
        assert_told(changes, &[name(root, "b"), name(root, "c"), attr(root), attr(a), attr(c)]);
        assert!(mutator.handles.object(&a).is_ok() && mutator.handles.object(&c).is_ok());

        let mut changes = Changes::default();
        let keep = RenameFlags::NOREPLACE.bits();
        let refused = mutator.rename(&caller, tree.at("b"), tree.at("c"), keep, &mut changes);
        assert_eq!(status(refused), Err(Status::Exists));
        let whiteout = RenameFlags::WHITEOUT.bits();
        let refused = mutator.rename(&caller, tree.at("b"), tree.at("x"), whiteout, &mut changes);
        assert_eq!(status(refused), Err(Status::InvalidArgument));
        assert_told(changes, &[]);

        let mut changes = Changes::default();
        let refused = mutator.rmdir(&caller, tree.at("b"), &mut changes);
        assert_eq!(status(refused), Err(Status::NotDirectory));
        mutator.rmdir(&caller, tree.at("dir"), &mut changes).expect("removed");
        let names = Change::Names { dir };
        assert_told(changes, &[name(root, "dir"), attr(root), attr(dir), names]);
        let made = mutator.mkdir(&caller, in_dir("x"), 0o700, &mut Changes::default());
        assert_eq!(status(made), Err(Status::Stale), "in a directory that was removed");
    });
}

#[test]
fn a_directory_that_moves_keeps_its_children_reachable() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        std::fs::create_dir(tree.path("from")).expect("made");
        std::fs::create_dir(tree.path("empty")).expect("made");
        let (from, empty) = (tree.handle("from"), tree.handle("empty"));
        let at = Place { dir: &from, name: b"child" };
        let (caller, changes) = (Caller::ROOT, &mut Changes::default());
        let child = tree.mutator.mkdir(&caller, at, 0o700, changes).expect("made").handle;
        let mut changes = Changes::default();
        tree.mutator
            .rename(&caller, tree.at("from"), tree.at("empty"), 0, &mut changes)
            .expect("renamed over an empty one");
        let root = tree.root;
        let told = [
            name(root, "from"),
            name(root, "empty"),
            attr(root),
            attr(from),
            attr(empty),
            Change::Names { dir: empty },
        ];
        assert_told(changes, &told);
        assert!(tree.mutator.handles.object(&child).is_ok());
        let at = Place { dir: &child, name: b"self" };
        let moved = tree.mutator.rename(&caller, tree.at("empty"), at, 0, &mut Changes::default());
        assert_eq!(status(moved), Err(Status::InvalidArgument), "into itself");
    });
}

#[test]
fn sticky_directories_keep_files_of_others() {
    if !changes_identity() {
        return;
    }
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let sticky = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(path, sticky).expect("changed");
        let file = tree.write("roots", "");
        let held = tree.mutator.open(&file, 0).expect("opened");
        let mut changes = Changes::default();
        let refused = tree.mutator.unlink(&user(), tree.at("roots"), &mut changes);
        assert_eq!(status(refused), Err(Status::NotPermitted));
        assert_told(changes, &[attr(file)]);
        let metadata = std::fs::metadata(tree.path("roots")).expect("there");
        assert_eq!(metadata.nlink(), 1, "nothing is left of the attempt");
        drop(held);
    });
}

#[test]
fn open_files_outlive_their_names_and_a_temporary_one_may_get_one() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let (mutator, caller) = (&tree.mutator, Caller::ROOT);
        let [over, gone] = ["over", "gone"].map(|name| tree.write(name, name));
        tree.write("new", "new");
        let open = [over, gone].map(|handle| mutator.open(&handle, 0).expect("opened"));
        let changes = &mut Changes::default();
        mutator.rename(&caller, tree.at("new"), tree.at("over"), 0, changes).expect("renamed");
        mutator.unlink(&caller, tree.at("gone"), changes).expect("removed");
        for handle in [over, gone] {
            let again = mutator.open(&handle, 0).expect("opened by its handle");
            assert_eq!(again.attr.nlink, 0);
            let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
            let attr = mutator.setattr(&caller, &handle, None, &set, changes).expect("set");
            assert_eq!((attr.mode & 0o7777, attr.nlink), (0o640, 0));
            let linked = mutator.link(&caller, &handle, tree.at("again"), changes);
            assert_eq!(status(linked), Err(Status::NotFound));
        }
        assert_eq!(tree.names(), ["over"]);
        drop(open);
        mutator.sweep(in_a_while());
        assert!(mutator.handles.object(&over).is_err() && mutator.handles.object(&gone).is_err());

        let exclusive = (OFlags::RDWR | OFlags::EXCL).bits();
        let never = mutator.tmpfile(&caller, &tree.root, exclusive, 0o600);
        let tmpfile = mutator.tmpfile(&caller, &tree.root, OFlags::RDWR.bits(), 0o600);
        let (Ok((never, _never_open)), Ok((entry, tmpfile))) = (never, tmpfile) else {
            eprintln!("skipped: O_TMPFILE: the file system has none");
            return;
        };
        assert_eq!(entry.attr.expect("attributes").nlink, 0);
        let linked = mutator.link(&caller, &never.handle, tree.at("never"), changes);
        assert_eq!(status(linked), Err(Status::NotFound));
        let mut changes = Changes::default();
        let linked = mutator.link(&caller, &entry.handle, tree.at("named"), &mut changes);
        let linked = linked.expect("linked");
        assert_eq!((linked.handle, linked.attr.expect("attributes").nlink), (entry.handle, 1));
        drop(tmpfile);
        assert_eq!(tree.names(), ["named", "over"]);
        assert!(mutator.handles.object(&entry.handle).is_ok());
    });
}

#[test]
fn the_hidden_directory_cannot_be_reached_by_its_name() {
    each_file_system(|path, choice| {
        let tree = Tree::new(path, choice);
        let (mutator, caller) = (&tree.mutator, Caller::ROOT);
        let changes = &mut Changes::default();
        let file = tree.write("file", "");
        let held = mutator.open(&file, 0).expect("opened");
        mutator.unlink(&caller, tree.at("file"), changes).expect("removed");
        tree.write("other", "");
        let hidden = tree.at(".portcullis-orphans");
        let other = tree.at("other");
        let refused = Err(Status::NotPermitted);
        assert_eq!(status(mutator.mkdir(&caller, hidden, 0o700, changes)), refused);
        assert_eq!(status(mutator.create(&caller, hidden, 0, 0o600, changes)), refused);
        assert_eq!(status(mutator.symlink(&caller, hidden, b"x", changes)), refused);
        assert_eq!(status(mutator.rename(&caller, other, hidden, 0, changes)), refused);
        let absent = Err(Status::NotFound);
        assert_eq!(status(mutator.rename(&caller, hidden, other, 0, changes)), absent);
        assert_eq!(status(mutator.rmdir(&caller, hidden, changes)), absent);
        assert_eq!(status(mutator.unlink(&caller, hidden, changes)), absent);
        std::fs::create_dir(tree.path("dir")).expect("made");
        let dir = tree.handle("dir");
        let elsewhere = Place { dir: &dir, name: hidden.name };
        mutator.mkdir(&caller, elsewhere, 0o700, changes).expect("elsewhere it is a name");
        drop(held);
    });
}
