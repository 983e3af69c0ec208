//! Trees with everything a file system can hold, listed as the local file system lists them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use portcullis_brick::{BrickError, HandleChoice};
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_wire::{Reply, Request};
use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

use crate::support::{TestBrick, local_attr, on_each_kind, skipped};

/// All entries below a directory, by path.
async fn walk_all(brick: &TestBrick, dir: Handle) -> BTreeMap<Vec<u8>, Entry> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(Vec::new(), dir)];
    while let Some((path, dir)) = dirs.pop() {
        for (name, entry, _) in brick.list(dir, vec![]).await.expect("listed") {
            let path = [&path[..], b"/", &name].concat();
            if entry.kind == FileKind::Directory {
                dirs.push((path.clone(), entry.handle));
            }
            assert_eq!(found.insert(path, entry), None);
        }
    }
    found
}

fn local_walk(root: &Path) -> BTreeMap<Vec<u8>, (Attr, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(Vec::new(), root.to_owned())];
    while let Some((path, dir)) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("listed") {
            let entry = entry.expect("an entry");
            let path = [&path[..], b"/", entry.file_name().as_bytes()].concat();
            let target = std::fs::read_link(entry.path()).ok();
            let target = target.map(|target| target.into_os_string().into_vec());
            if entry.file_type().expect("a type").is_dir() {
                dirs.push((path.clone(), entry.path()));
            }
            found.insert(path, (local_attr(&entry.path()), target));
        }
    }
    found
}

on_each_kind! {
    async fn every_kind_of_file_and_name_is_listed_as_locally(brick: TestBrick) {
        std::fs::create_dir_all(brick.path("a/b/c")).expect("made");
        std::fs::write(brick.path("a/file"), b"content").expect("written");
        std::fs::hard_link(brick.path("a/file"), brick.path("a/b/hard")).expect("linked");
        symlink("loop2", brick.path("loop1")).expect("made");
        symlink("loop1", brick.path("loop2")).expect("made");
        symlink(".", brick.path("a/self")).expect("made");
        symlink("../..", brick.path("a/b/up")).expect("made");
        symlink(OsStr::from_bytes(b"\xff\xfe"), brick.path("odd")).expect("made");
        mkfifoat(CWD, brick.path("fifo"), Mode::RWXU).expect("made");
        let _socket = UnixListener::bind(brick.path("socket")).expect("bound");
        for (name, kind) in [("char", FileType::CharacterDevice), ("block", FileType::BlockDevice)] {
            let made = mknodat(CWD, brick.path(name), kind, Mode::RWXU, makedev(250, 77_777));
            if let Err(error) = made {
                skipped("devices are listed as locally", &error.to_string());
            }
        }
        for name in [&b"\xff\xfe\x80 not utf-8"[..], b"new\nline", b"-rf *", &[b'x'; 255], b"..."] {
            std::fs::write(brick.path("a").join(OsStr::from_bytes(name)), name).expect("written");
        }
        std::fs::set_permissions(brick.path("a/b"), PermissionsExt::from_mode(0o1700)).expect("set");

        let remote = walk_all(&brick, brick.root().await).await;
        let local = local_walk(&brick.path(""));
        assert_eq!(remote.len(), local.len());
        for (path, (attr, target)) in &local {
            let entry = remote.get(path).unwrap_or_else(|| panic!("{}", path.escape_ascii()));
            let listed = (&entry.attr.expect("attributes"), &entry.target);
            assert_eq!(listed, (attr, target), "{}", path.escape_ascii());
            assert_eq!(entry.kind, attr.kind());
            assert_eq!(brick.getattr(entry.handle).await.expect("attributes").ino, attr.ino);
        }
        assert_eq!(remote[&b"/a/file"[..]].handle, remote[&b"/a/b/hard"[..]].handle);
    }

    async fn nothing_but_regular_files_is_opened(brick: TestBrick) {
        // With nobody at its other end, opening a FIFO would wait for ever.
        mkfifoat(CWD, brick.path("fifo"), Mode::RWXU).expect("made");
        let _socket = UnixListener::bind(brick.path("socket")).expect("bound");
        std::fs::create_dir(brick.path("dir")).expect("made");
        let mut wanted = vec![
            ("fifo", Status::NoDevice),
            ("socket", Status::NoDevice),
            ("dir", Status::IsDirectory),
        ];
        let device = makedev(1, 3);
        match mknodat(CWD, brick.path("null"), FileType::CharacterDevice, Mode::RWXU, device) {
            Ok(()) => wanted.push(("null", Status::NoDevice)),
            Err(error) => skipped("no device is opened", &error.to_string()),
        }
        for (name, status) in wanted {
            let entry = brick.walk(name).await.expect("there");
            assert_eq!(brick.open(entry.handle).await, Err(status), "{name}");
            // What needs no opening works.
            let handle = entry.handle;
            assert!(brick.call(Request::Listxattr { handle }).await.is_ok(), "{name}");
        }
    }

    async fn the_export_ends_at_a_mount_point(brick: TestBrick) {
        std::fs::create_dir(brick.path("mnt")).expect("made");
        std::fs::create_dir(brick.path("bind")).expect("made");
        std::fs::write(brick.path("beside"), b"").expect("written");
        let covered = brick.walk("mnt").await.expect("there").handle;
        let Some(_mounts) = Mounts::make(&brick) else { return };
        std::fs::create_dir(brick.path("mnt/inside")).expect("made");

        let root = brick.root().await;
        let listed = brick.list(root, vec![]).await.expect("listed");
        assert_eq!(listed.len(), 3);
        for name in ["mnt", "bind"] {
            let entry = brick.lookup(root, name).await.expect("there");
            let in_list = listed.iter().find(|(listed, ..)| listed == name.as_bytes());
            assert_eq!(in_list.map(|(_, entry, _)| entry), Some(&entry));
            assert_eq!(entry.attr, Some(local_attr(&brick.path(name))));
            let handle = entry.handle;
            assert_eq!(brick.getattr(handle).await, Ok(local_attr(&brick.path(name))));
            assert_eq!(brick.lookup(handle, "inside").await, Err(Status::CrossDevice));
            assert_eq!(brick.list(handle, vec![]).await, Err(Status::CrossDevice));
            assert_eq!(brick.open(handle).await, Err(Status::CrossDevice));
            let xattr = Request::Getxattr { handle, name: b"security.selinux".to_vec() };
            assert_eq!(brick.call(xattr).await, Err(Status::NotSupported));
            assert_eq!(brick.call(Request::Listxattr { handle }).await, Ok(Reply::Xattr(vec![])));
        }
        let covering = brick.lookup(root, "mnt").await.expect("there").handle;
        assert_ne!(covered, covering);
        drop(_mounts);
        assert_eq!(brick.getattr(covering).await, Err(Status::Stale));
        assert_eq!(brick.lookup(root, "mnt").await.expect("there").handle, covered);
        assert!(brick.getattr(covered).await.is_ok());
    }
}

/// A tmpfs on `mnt`, and on `bind` the directory beside the export; unmounted when dropped.
struct Mounts(Vec<PathBuf>);

impl Mounts {
    fn make(brick: &TestBrick) -> Option<Self> {
        use rustix::mount::{MountFlags, mount, mount_bind};
        let mut mounts = Self(Vec::new());
        let mnt = brick.path("mnt");
        if let Err(error) = mount("tmpfs", &mnt, "tmpfs", MountFlags::empty(), None) {
            skipped("the_export_ends_at_a_mount_point", &error.to_string());
            return None;
        }
        mounts.0.push(mnt);
        mount_bind(brick.tree.path(), brick.path("bind")).expect("mounted");
        mounts.0.push(brick.path("bind"));
        Some(mounts)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A runtime all of whose threads belong to `nobody`, without root's capabilities.
fn runtime_of_nobody() -> tokio::runtime::Runtime {
    use rustix::fs::Uid;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(|| {
            let nobody = Uid::from_raw(65534);
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("another user");
            }
        })
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn an_ordinary_user_gets_map_handles_and_sees_what_permissions_let_it_see() {
    let runtime = runtime_of_nobody();
    runtime.block_on(async {
        tokio::spawn(ordinary_user()).await.expect("it passes");
    });
}

async fn ordinary_user() {
    let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
    assert_ne!(brick.choice, HandleChoice::Kernel);
    let refused = TestBrick::start(HandleChoice::Kernel).await.err();
    assert!(matches!(refused, Some(BrickError::KernelHandles { .. })));

    std::fs::create_dir_all(brick.path("sub/open")).expect("made");
    std::fs::write(brick.path("sub/open/file"), b"content").expect("written");
    let file = brick.walk("sub/open/file").await.expect("there").handle;
    let opened = brick.open(file).await.expect("opened");
    assert_eq!(brick.read(opened, 0, 100).await, Ok(b"content".to_vec()));

    let chmod = |path: &str, mode: u32| {
        std::fs::set_permissions(brick.path(path), PermissionsExt::from_mode(mode)).expect("set");
    };
    for (dir, mode) in [("no_list", 0o300), ("no_search", 0o400), ("nothing", 0o000)] {
        std::fs::create_dir(brick.path(dir)).expect("made");
        std::fs::write(brick.path(dir).join("file"), b"").expect("written");
        std::fs::create_dir(brick.path(dir).join("dir")).expect("made");
        chmod(dir, mode);
    }
    std::fs::write(brick.path("unreadable"), b"").expect("written");
    chmod("unreadable", 0o000);

    let root = brick.root().await;
    assert_eq!(brick.list(root, vec![]).await.expect("listed").len(), 5);
    for (dir, list, lookup) in [
        ("no_list", Some(Status::AccessDenied), None),
        ("no_search", None, Some(Status::AccessDenied)),
        ("nothing", Some(Status::AccessDenied), Some(Status::AccessDenied)),
    ] {
        let handle = brick.walk(dir).await.expect("there").handle;
        assert_eq!(brick.list(handle, vec![]).await.err(), list, "{dir}");
        assert_eq!(brick.lookup(handle, "file").await.err(), lookup, "{dir}");
    }
    let unreadable = brick.walk("unreadable").await.expect("there").handle;
    assert_eq!(brick.open(unreadable).await, Err(Status::AccessDenied));

    // Names are told, attributes cannot be, and are not made up.
    let no_search = brick.walk("no_search").await.expect("there").handle;
    let listed = brick.list(no_search, vec![]).await.expect("listed");
    assert_eq!(listed.len(), 2);
    for (name, entry, _) in &listed {
        assert_eq!(entry.attr, None);
        let dtype = if name == b"dir" { FileKind::Directory } else { FileKind::Regular };
        assert_eq!(entry.kind, dtype);
        assert_eq!(brick.getattr(entry.handle).await, Err(Status::AccessDenied));
        assert_eq!(brick.open(entry.handle).await, Err(Status::AccessDenied));
    }
    chmod("no_search", 0o700);
    let handle = listed[0].1.handle;
    assert_eq!(brick.getattr(handle).await, Err(Status::Stale), "to be looked up anew");
    for dir in ["no_list", "nothing"] {
        chmod(dir, 0o700);
    }
}
