//! Every operation on real directories, compared with what the local file system makes of it.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::Timestamp;
use portcullis_core::watch::Change;
use portcullis_wire::message::{Caller, SetAttr, SetTime};
use rustix::fs::{OFlags, RenameFlags, makedev};

use super::*;
use crate::caller::{changes_identity, clear_umask};
use crate::testing::{each_file_system, handles_of};

const USER: u32 = 4321;
const GROUP: u32 = 8765;

fn user() -> Caller {
    Caller::new(USER, GROUP, vec![1001])
}

/// An export, and short ways to change it.
struct Tree {
    path: PathBuf,
    mutator: Mutator,
    root: Handle,
}

impl Tree {
    fn new(path: &Path, choice: crate::HandleChoice) -> Self {
        clear_umask();
        let handles = handles_of(path, choice);
        let root = *handles.root();
        let orphans = Orphans::with_grace(handles.clone(), Duration::ZERO);
        Self { path: path.to_owned(), mutator: Mutator::new(handles, orphans), root }
    }

    fn at<'a>(&'a self, name: &'a str) -> Place<'a> {
        Place { dir: &self.root, name: name.as_bytes() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write(&self, name: &str, content: &str) -> Handle {
        std::fs::write(self.path(name), content).expect("written");
        self.handle(name)
    }

    fn handle(&self, name: &str) -> Handle {
        let root = self.mutator.handles.directory(&self.root).expect("the root");
        self.mutator.handles.entry(&root, name.as_bytes()).expect("there").handle
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.path).expect("listed");
        let text = |name: std::io::Result<std::fs::DirEntry>| {
            name.expect("a name").file_name().into_string().expect("text")
        };
        let mut names: Vec<String> = names.map(text).collect();
        names.retain(|name| name != ".portcullis-orphans");
        names.sort();
        names
    }
}

fn status<T>(result: Result<T, Failure>) -> Result<(), Status> {
    result.map(drop).map_err(|failure| failure.status)
}

fn attr(handle: Handle) -> Change {
    Change::Attr { handle }
}

fn name(dir: Handle, name: &str) -> Change {
    Change::Name { dir, name: name.as_bytes().to_vec() }
}

/// Whether exactly these changes were told.
#[track_caller]
fn assert_told(changes: Changes, wanted: &[Change]) {
    let told = changes.into_vec();
    let all = wanted.iter().all(|change| told.contains(change));
    assert!(all && told.len() == wanted.len(), "told {told:?}, wanted {wanted:?}");
}

/// When nothing is kept any more that was removed just now.
fn in_a_while() -> std::time::Instant {
    std::time::Instant::now() + std::time::Duration::from_secs(60)
}

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
    let trees = dirs.each_ref().map(|dir| Tree::new(dir.path(), crate::HandleChoice::Auto));
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
