//! Changes as one client asks for them: bodies, limits, open files.

use std::fs;

use portcullis_core::Status;
use portcullis_core::limits::WRITE_LEN_BYTES_MAX;
use portcullis_wire::message::{Mutated, Mutation, SetAttr};
use portcullis_wire::{Reply, Request};

use crate::harness::serve;
use crate::mount::{Mount, O_APPEND, O_RDWR, refused};
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_what_is_read() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let content = tree::content(5, 5 * WRITE_LEN_BYTES_MAX as usize + 4_321);
    let (entry, file) = mount.create(mount.root, b"large", O_RDWR).await.unwrap();
    let pieces = content.chunks(WRITE_LEN_BYTES_MAX as usize);
    let offsets = (0..).map(|number: u64| number * u64::from(WRITE_LEN_BYTES_MAX));
    let writes = offsets.zip(pieces).map(async |(offset, piece)| {
        assert_eq!(mount.write(file, offset, piece).await.unwrap(), piece.len() as u64);
    });
    for write in writes.collect::<Vec<_>>() {
        write.await;
    }
    assert!(fs::read(dir.path().join("large")).unwrap() == content);
    assert_eq!(mount.client.content(entry.handle, 1 << 20).await, content);
    let fsync = Request::Fsync { file, data_only: false };
    assert_eq!(mount.client.call(fsync).await, Ok(Reply::Done));
    let fsyncdir = Request::Fsyncdir { dir: mount.root };
    assert_eq!(mount.client.call(fsyncdir).await, Ok(Reply::Done));
    let hole = Request::Lseek { file, offset_bytes: 0, hole: true };
    let offset_bytes = content.len() as u64;
    assert_eq!(mount.client.call(hole).await, Ok(Reply::Offset { offset_bytes }));
    let set = SetAttr { size_bytes: Some(10), ..SetAttr::default() };
    let truncate = Mutation::Setattr { handle: entry.handle, file, set };
    match mount.mutate(truncate).await.unwrap().0 {
        Mutated::Attr(attr) => assert_eq!(attr.size_bytes, 10),
        other => panic!("{other:?}"),
    }
    let (_, to_file) = mount.create(mount.root, b"copy", O_RDWR).await.unwrap();
    let copy = Mutation::CopyFileRange {
        file,
        offset_bytes: 2,
        to_file,
        to_offset_bytes: 0,
        len_bytes: 100,
    };
    assert_eq!(mount.mutate(copy).await.unwrap().0, Mutated::Written { len_bytes: 8 });
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), content[2..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_set_by_name_keep_their_zeros() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let handle = mount.watch(mount.root, b"name-0").await.handle;
    for value in [&b""[..], b"a\0b", &[b'x'; 2_000]] {
        let len_bytes = value.len() as u32;
        let name = b"user.comment".to_vec();
        let set = Mutation::Setxattr { handle, name: name.clone(), len_bytes, flags: 0 };
        match mount.mutate_as(mount.op(), set, value).await {
            Ok((Mutated::Done, _)) => {}
            Err(failure) if failure.status == Status::NotSupported => {
                return println!("skipped: attributes_set_by_name_keep_their_zeros: {failure}");
            }
            other => panic!("{other:?}"),
        }
        let got = mount.client.call(Request::Getxattr { handle, name }).await;
        assert_eq!(got, Ok(Reply::Xattr(value.to_vec())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_before_it_reaches_the_brick() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let root = mount.root;
    let before = stand.brick_requests().await;
    for name in [&b""[..], b".", b"..", b"a/b", b"nul\0"] {
        assert_eq!(refused(mount.mkdir(root, name).await), Status::InvalidArgument, "{name:?}");
    }
    assert_eq!(refused(mount.mkdir(root, &[b'n'; 256]).await), Status::NameTooLong);
    let link = Mutation::Symlink { dir: root, name: b"l".to_vec(), target: vec![b't'; 4_096] };
    assert_eq!(refused(mount.mutate(link).await), Status::NameTooLong);
    let too_much = vec![0; WRITE_LEN_BYTES_MAX as usize + 1];
    assert_eq!(refused(mount.write(77, 0, &too_much).await), Status::InvalidArgument);
    assert_eq!(refused(mount.write(77, 0, b"x").await), Status::BadFile);
    for request in [
        Request::Fsync { file: 77, data_only: true },
        Request::Release { file: 77, unlock: None },
        Request::Lseek { file: 77, offset_bytes: 0, hole: false },
    ] {
        assert_eq!(refused(mount.client.call(request).await), Status::BadFile);
    }
    assert_eq!(stand.brick_requests().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_append_lose_nothing_to_each_other() {
    let dir = tree::flat(1);
    let (_brick, [near, far]) = crate::coherence::two_gateways(dir.path());
    let mounts = [Mount::new(&near).await, Mount::new(&far).await];
    let mut writing = Vec::new();
    for (number, mount) in mounts.into_iter().enumerate() {
        let handle = mount.watch(mount.root, b"name-0").await.handle;
        let file = mount.client.open_as(handle, O_RDWR | O_APPEND).await.unwrap();
        writing.push(tokio::spawn(async move {
            for round in 0..50 {
                let line = format!("{number}-{round:03}\n");
                assert_eq!(mount.write(file, 0, line.as_bytes()).await.unwrap(), 6);
            }
        }));
    }
    for written in writing {
        written.await.unwrap();
    }
    let content = fs::read_to_string(dir.path().join("name-0")).unwrap();
    let lines: std::collections::BTreeSet<_> = content.lines().collect();
    assert_eq!((lines.len(), content.len()), (100, 600), "{content}");
}
