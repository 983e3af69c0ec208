//! Every request, asked rightly and wrongly.

use std::os::unix::fs::symlink;
use std::time::Duration;

use portcullis_brick::{Brick, BrickConfig, BrickError};
use portcullis_core::limits::{READ_FRAME_LEN_BYTES, READ_LEN_BYTES_MAX};
use portcullis_core::{FileKind, Handle, Status};
use portcullis_transport::{IdentitySet, Role};
use portcullis_wire::{Reply, Request};

use crate::support::{
    attach, connect, local_attr, on_each_kind, runtime, skipped, status_of, without_atime,
};

on_each_kind! {
    async fn attach_lookup_and_getattr_tell_what_the_file_system_tells(brick: TestBrick) {
        std::fs::create_dir(brick.path("dir")).expect("made");
        std::fs::write(brick.path("dir/file"), b"content").expect("written");
        symlink("dir/file", brick.path("link")).expect("made");
        let Ok(Reply::Attached { root, .. }) = brick.call(attach(false)).await else {
            panic!("no root")
        };
        let root = without_atime(root);
        assert_eq!(root.kind, FileKind::Directory);
        assert_eq!(root.attr, Some(local_attr(&brick.path(""))));
        for path in ["dir", "dir/file", "link"] {
            let entry = brick.walk(path).await.expect("there");
            assert_eq!(entry.attr, Some(local_attr(&brick.path(path))), "{path}");
            assert_eq!(entry.kind, entry.attr.expect("known").kind());
            assert_eq!(brick.getattr(entry.handle).await, Ok(local_attr(&brick.path(path))));
        }
        assert_eq!(brick.walk("link").await.expect("there").target, Some(b"dir/file".to_vec()));
        assert_eq!(brick.walk("dir").await.expect("there").target, None);
    }

    async fn lookup_says_what_is_wrong_with_a_name(brick: TestBrick) {
        std::fs::write(brick.path("file"), b"").expect("written");
        let root = brick.root().await;
        let longest = [b'n'; 255];
        for (name, status) in [
            (&b"absent"[..], Status::NotFound),
            (&longest[..], Status::NotFound),
            (&[b'n'; 256][..], Status::NameTooLong),
            (b"", Status::InvalidArgument),
            (b".", Status::InvalidArgument),
            (b"..", Status::InvalidArgument),
            (b"a/b", Status::InvalidArgument),
            (b"/", Status::InvalidArgument),
            (b"/etc", Status::InvalidArgument),
            (b"../export", Status::InvalidArgument),
            (b"nul\0", Status::InvalidArgument),
        ] {
            assert_eq!(brick.lookup(root, name).await, Err(status), "{:?}", name.escape_ascii());
        }
        let file = brick.walk("file").await.expect("there").handle;
        assert_eq!(brick.lookup(file, "x").await, Err(Status::NotDirectory));
    }

    async fn no_symbolic_link_is_followed(brick: TestBrick) {
        let outside = brick.tree.path().join("outside");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("secret"), b"secret").expect("written");
        symlink(&outside, brick.path("out")).expect("made");
        symlink("../outside/secret", brick.path("file")).expect("made");
        symlink("/proc/self/root", brick.path("magic")).expect("made");
        for name in ["out", "file", "magic"] {
            let link = brick.walk(name).await.expect("the link itself");
            assert_eq!(link.kind, FileKind::Symlink);
            let handle = link.handle;
            assert_eq!(brick.lookup(handle, "secret").await, Err(Status::NotDirectory));
            assert_eq!(brick.list(handle, vec![]).await, Err(Status::NotDirectory));
            assert_eq!(brick.open(handle).await, Err(Status::Loop));
            assert_eq!(brick.getattr(handle).await, Ok(local_attr(&brick.path(name))));
        }
        // A directory on the way that has become a link.
        std::fs::create_dir_all(brick.path("dir/sub")).expect("made");
        std::fs::write(brick.path("dir/sub/secret"), b"").expect("written");
        let sub = brick.walk("dir/sub").await.expect("there").handle;
        std::fs::remove_dir_all(brick.path("dir")).expect("removed");
        std::fs::create_dir(outside.join("sub")).expect("made");
        std::fs::write(outside.join("sub/secret"), b"secret").expect("written");
        symlink(&outside, brick.path("dir")).expect("made");
        assert_eq!(brick.lookup(sub, "secret").await, Err(Status::Stale));
        assert_eq!(brick.walk("dir/sub").await, Err(Status::NotDirectory));
    }

    async fn readlink_tells_targets_of_links_only(brick: TestBrick) {
        let target = "t/".repeat(2000);
        symlink(&target, brick.path("long")).expect("made");
        std::fs::write(brick.path("file"), b"").expect("written");
        let long = brick.walk("long").await.expect("there");
        let answer = brick.call(Request::Readlink { handle: long.handle }).await;
        assert_eq!(answer, Ok(Reply::Target(target.clone().into_bytes())));
        assert_eq!(long.target, Some(target.into_bytes()));
        let file = brick.walk("file").await.expect("there").handle;
        let answer = brick.call(Request::Readlink { handle: file }).await;
        assert_eq!(answer, Err(Status::InvalidArgument));
    }

    async fn a_read_brings_exactly_what_was_asked_for(brick: TestBrick) {
        let content: Vec<u8> = (0..3 * READ_FRAME_LEN_BYTES + 17).map(|i| (i / 7) as u8).collect();
        std::fs::write(brick.path("file"), &content).expect("written");
        std::fs::write(brick.path("empty"), b"").expect("written");
        let file = brick.open(brick.walk("file").await.expect("there").handle).await.expect("opened");
        let empty = brick.open(brick.walk("empty").await.expect("there").handle).await.expect("opened");
        assert_ne!(file, empty);
        let frame = READ_FRAME_LEN_BYTES;
        for (offset, len) in [
            (0, 0),
            (0, 1),
            (5, 100),
            (0, frame),
            (1, frame),
            (frame - 1, 2),
            (0, content.len()),
            (0, content.len() + 1),
            (0, READ_LEN_BYTES_MAX as usize),
            (content.len() - 1, 10),
            (content.len(), 10),
            (content.len() + 10, 10),
        ] {
            let end = (offset + len).min(content.len());
            let wanted = content.get(offset..end).unwrap_or_default();
            let read = brick.read(file, offset as u64, len as u32).await.expect("read");
            assert!(read == wanted, "{} bytes for {len} at {offset}", read.len());
        }
        assert_eq!(brick.read(empty, 0, 4096).await, Ok(vec![]));
        assert_eq!(brick.read(file, i64::MAX as u64, 4096).await, Ok(vec![]));
        for (offset, len) in [(0, READ_LEN_BYTES_MAX + 1), (1 << 63, 1), (u64::MAX, 1)] {
            assert_eq!(brick.read(file, offset, len).await, Err(Status::InvalidArgument));
        }
    }

    async fn release_closes_and_ids_belong_to_their_connection(brick: TestBrick) {
        std::fs::write(brick.path("file"), b"content").expect("written");
        let handle = brick.walk("file").await.expect("there").handle;
        let file = brick.open(handle).await.expect("opened");
        // Once open it can be read, whatever becomes of its name.
        std::fs::remove_file(brick.path("file")).expect("removed");
        assert_eq!(brick.read(file, 0, 100).await, Ok(b"content".to_vec()));
        let other = connect(&brick.identities, Role::Gateway, brick.address).await;
        let release = Request::Release { file, unlock: None };
        assert_eq!(status_of(other.call(&release).await), Err(Status::BadFile));
        assert_eq!(brick.call(release.clone()).await, Ok(Reply::Done));
        assert_eq!(brick.call(release).await, Err(Status::BadFile));
        assert_eq!(brick.read(file, 0, 100).await, Err(Status::BadFile));
        assert_eq!(brick.read(0, 0, 100).await, Err(Status::BadFile));
    }

    async fn statfs_tells_the_space_of_the_file_system(brick: TestBrick) {
        let handle = brick.root().await;
        let Ok(Reply::Statfs(space)) = brick.call(Request::Statfs { handle }).await else {
            panic!("no answer")
        };
        let local = rustix::fs::statvfs(brick.path("").as_path()).expect("statvfs");
        assert_eq!((space.blocks, space.fragment_bytes), (local.f_blocks, local.f_frsize));
        assert_eq!((space.files, space.name_len_max), (local.f_files, local.f_namemax));
    }

    async fn xattrs_of_every_kind_of_file(brick: TestBrick) {
        use rustix::fs::XattrFlags;
        std::fs::create_dir(brick.path("dir")).expect("made");
        std::fs::write(brick.path("file"), b"").expect("written");
        symlink("nowhere", brick.path("link")).expect("made");
        let long = vec![0xa5; 3000];
        let set = |path: &str, name: &str, value: &[u8]| {
            rustix::fs::lsetxattr(brick.path(path).as_path(), name, value, XattrFlags::empty())
        };
        if let Err(error) = set("file", "user.nul", b"a\0b") {
            return skipped("xattrs_of_every_kind_of_file", &error.to_string());
        }
        set("file", "user.empty", b"").expect("set");
        set("file", "user.long", &long).expect("set");
        set("dir", "user.dir", b"d").expect("set");
        let get = async |path: &str, name: &[u8]| {
            let handle = brick.walk(path).await.expect("there").handle;
            brick.call(Request::Getxattr { handle, name: name.to_vec() }).await
        };
        assert_eq!(get("file", b"user.nul").await, Ok(Reply::Xattr(b"a\0b".to_vec())));
        assert_eq!(get("file", b"user.empty").await, Ok(Reply::Xattr(vec![])));
        assert_eq!(get("file", b"user.long").await, Ok(Reply::Xattr(long)));
        assert_eq!(get("dir", b"user.dir").await, Ok(Reply::Xattr(b"d".to_vec())));
        assert_eq!(get("file", b"user.absent").await, Err(Status::NoAttribute));
        assert_eq!(get("file", b"").await, Err(Status::InvalidArgument));
        assert_eq!(get("file", b"user.a\0b").await, Err(Status::InvalidArgument));
        assert_eq!(get("file", &[b'n'; 256]).await, Err(Status::Range));
        let list = async |path: &str| {
            let handle = brick.walk(path).await.expect("there").handle;
            match brick.call(Request::Listxattr { handle }).await {
                Ok(Reply::Xattr(names)) => {
                    let names = names.split(|&byte| byte == 0).map(<[u8]>::to_vec);
                    let mut names: Vec<_> = names.filter(|name| name.starts_with(b"user.")).collect();
                    names.sort();
                    names
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(list("file").await, [&b"user.empty"[..], b"user.long", b"user.nul"]);
        assert_eq!(list("dir").await, [b"user.dir"]);
        assert!(list("link").await.is_empty());
        // The link itself may have attributes of a privileged namespace.
        if set("link", "trusted.of_link", b"yes").is_ok() {
            let value = get("link", b"trusted.of_link").await;
            assert_eq!(value, Ok(Reply::Xattr(b"yes".to_vec())));
        }
    }

    async fn a_file_that_is_gone_is_stale_and_a_name_that_is_gone_is_not_found(brick: TestBrick) {
        std::fs::create_dir(brick.path("dir")).expect("made");
        for path in ["file", "dir/inner"] {
            std::fs::write(brick.path(path), b"").expect("written");
        }
        let dir = brick.walk("dir").await.expect("there").handle;
        let file = brick.walk("file").await.expect("there").handle;
        let inner = brick.walk("dir/inner").await.expect("there").handle;
        std::fs::remove_file(brick.path("file")).expect("removed");
        std::fs::remove_dir_all(brick.path("dir")).expect("removed");
        for handle in [file, dir, inner] {
            assert_eq!(brick.getattr(handle).await, Err(Status::Stale));
            assert_eq!(brick.lookup(handle, "x").await, Err(Status::Stale));
            assert_eq!(brick.list(handle, vec![]).await, Err(Status::Stale));
            assert_eq!(brick.open(handle).await, Err(Status::Stale));
            for request in [
                Request::Readlink { handle },
                Request::Statfs { handle },
                Request::Listxattr { handle },
                Request::Getxattr { handle, name: b"user.x".to_vec() },
            ] {
                assert_eq!(brick.call(request).await, Err(Status::Stale));
            }
        }
        assert_eq!(brick.walk("file").await, Err(Status::NotFound));
    }

    async fn an_export_that_was_removed_is_a_clear_failure(brick: TestBrick) {
        let root = brick.root().await;
        std::fs::remove_dir_all(brick.path("")).expect("removed");
        let failed = brick.connection.call(&attach(false)).await.expect_err("it fails");
        assert!(failed.to_string().contains("was removed"), "{failed}");
        assert_eq!(brick.lookup(root, "x").await, Err(Status::Stale));
        assert_eq!(brick.list(root, vec![]).await, Err(Status::Stale));
    }

    async fn a_thousand_requests_at_once_are_all_answered(brick: TestBrick) {
        for number in 0..100 {
            std::fs::write(brick.path(&format!("file{number}")), number.to_string()).expect("written");
        }
        let root = brick.root().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..1000 {
            let connection = brick.connection.clone();
            tasks.spawn(async move {
                let name = format!("file{}", number % 150).into_bytes();
                match status_of(connection.call(&Request::Lookup { dir: root, name }).await) {
                    Ok(Reply::Entry(entry)) => {
                        let handle = entry.handle;
                        let attr = status_of(connection.call(&Request::Getattr { handle }).await);
                        assert_eq!(attr, Ok(Reply::Attr(entry.attr.expect("known"))));
                        true
                    }
                    Err(Status::NotFound) => false,
                    other => panic!("{other:?}"),
                }
            });
        }
        let found = tasks.join_all().await.into_iter().filter(|&found| found).count();
        assert_eq!(found, (0..1000).filter(|number| number % 150 < 100).count());
    }
}

#[test]
fn only_gateways_are_admitted_and_others_are_told() {
    use crate::support::TestBrick;
    runtime().block_on(async {
        let brick = TestBrick::start(Default::default()).await.expect("it starts");
        for role in [Role::Client, Role::Admin, Role::Brick] {
            let connection = connect(&brick.identities, role, brick.address).await;
            let closed = tokio::time::timeout(Duration::from_secs(20), connection.closed());
            let reason = closed.await.expect("it is refused in time");
            assert!(reason.contains("not allowed for this role"), "{reason}");
            assert!(reason.contains(role.name()) && reason.contains("gateway"), "{reason}");
        }
        assert!(brick.call(attach(false)).await.is_ok(), "the gateway is not disturbed");
        assert_eq!(brick.call(Request::Stats).await, Err(Status::NotSupported));
        let nothing = Handle::new(&[]).expect("short");
        assert_eq!(brick.getattr(nothing).await, Err(Status::BadHandle));
    });
}

#[test]
fn a_brick_that_cannot_start_says_why() {
    let _runtime = runtime();
    let _entered = _runtime.enter();
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("file"), b"").expect("written");
    let identities = IdentitySet::generate().expect("identities");
    let identity = identities.identity(Role::Brick).expect("an identity");
    let any = "127.0.0.1:0".parse().expect("an address");
    let bind = |path: &str, listen, identity| {
        Brick::bind(BrickConfig::new(dir.path().join(path), listen), identity).err()
    };
    let missing = bind("absent", any, &identity).expect("an error");
    assert!(matches!(missing, BrickError::Missing { .. }), "{missing}");
    assert!(missing.to_string().contains("absent"), "{missing}");
    let file = bind("file", any, &identity).expect("an error");
    assert!(matches!(file, BrickError::NotDirectory { .. }), "{file}");
    let gateway = identities.identity(Role::Gateway).expect("an identity");
    let role = bind("", any, &gateway).expect("an error");
    assert!(matches!(role, BrickError::NotBrick { role: Role::Gateway }), "{role}");
    let first = Brick::bind(BrickConfig::new(dir.path(), any), &identity).expect("it listens");
    let taken = bind("", first.local_addr(), &identity).expect("an error");
    assert!(taken.to_string().contains("cannot listen"), "{taken}");
}
