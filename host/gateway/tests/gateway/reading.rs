//! What a client reads is what the local file system has.

use std::collections::BTreeSet;
use std::fs;

use portcullis_core::Status;
use portcullis_core::limits::READ_LEN_BYTES_MAX;
use portcullis_wire::Request;

use crate::harness::{serve, until};
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_listed_looked_up_and_read_as_it_is() {
    let dir = tree::varied();
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let cold = tree::walk(&client, root).await;
    tree::assert_equals_local(dir.path(), &cold);
    assert_eq!(tree::walk(&client, root).await, cold, "from the cache");

    // One name at a time, through a gateway that has listed nothing.
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let a = client.lookup(client.root().await, b"a").await.unwrap();
    let b = client.lookup(a.handle, b"b").await.unwrap();
    for _ in 0..2 {
        for (parent, path) in [(a.handle, "a/dangling"), (b.handle, "a/b/large")] {
            let name = path.rsplit('/').next().unwrap();
            let entry = client.lookup(parent, name.as_bytes()).await.unwrap();
            tree::assert_entry(&dir.path().join(path), &entry);
            assert_eq!(client.getattr(entry.handle).await.ok(), entry.attr);
        }
    }
    let link = client.lookup(a.handle, b"dangling").await.unwrap();
    assert_eq!(client.readlink(link.handle).await, b"nowhere/at/all");
    let large = client.lookup(b.handle, b"large").await.unwrap();
    assert_eq!(client.content(large.handle, 1 << 20).await, tree::content(2, 3_000_001));
    let none = client.lookup(a.handle, b"none").await.unwrap();
    assert_eq!(client.content(none.handle, 4096).await, b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_gives_the_bytes_asked_for_and_no_others() {
    let dir = tree::varied();
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let a = client.lookup(client.root().await, b"a").await.unwrap();
    let b = client.lookup(a.handle, b"b").await.unwrap();
    let large = client.lookup(b.handle, b"large").await.unwrap();
    let file = client.open(large.handle).await.unwrap();
    let all = tree::content(2, 3_000_001);
    for (offset, len) in
        [(0, 1), (4095, 8194), (262_143, 262_146), (2_999_999, 4096), (3_000_001, 5)]
    {
        let end = (offset + len).min(all.len());
        let read = client.read(file, offset as u64, len as u32).await.unwrap();
        assert_eq!(read, all[offset.min(end)..end], "{len} bytes at {offset}");
    }
    let too_long = client.read(file, 0, READ_LEN_BYTES_MAX + 1).await.unwrap_err();
    assert_eq!(too_long.status, Status::InvalidArgument, "{too_long}");
    assert_eq!(client.open(a.handle).await, Err(Status::IsDirectory));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_entry_can_have_never_reach_the_brick() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let before = stand.brick_requests().await;
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"nul\0"] {
        assert_eq!(client.lookup(root, name).await, Err(Status::InvalidArgument), "{name:?}");
    }
    assert_eq!(client.lookup(root, &[b'n'; 256]).await, Err(Status::NameTooLong));
    assert_eq!(stand.brick_requests().await, before);
    assert_eq!(client.lookup(root, &[b'n'; 255]).await, Err(Status::NotFound), "a name like any");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_after_any_entry_cached_or_not() {
    let dir = tree::flat(1_000);
    let (_brick, cached) = serve(dir.path());
    let client = cached.client().await;
    let root = client.root().await;
    let (all, ended) = client.list_after(root, Vec::new()).await;
    assert_eq!((all.len(), ended), (1_000, Ok(true)));
    let before = cached.brick_requests().await;
    // Nothing but resumed listings has been asked of this one.
    let (_brick, cold) = serve(dir.path());
    let cold_client = cold.client().await;
    let cold_root = cold_client.root().await;
    for at in [0, 1, 126, 127, 128, 500, 998, 999] {
        let expected: Vec<_> = all[at + 1..].iter().map(|listed| &listed.name).collect();
        for (client, root) in [(&client, root), (&cold_client, cold_root)] {
            let (rest, ended) = client.list_after(root, vec![all[at].cookie]).await;
            assert_eq!(ended, Ok(true));
            let names: Vec<_> = rest.iter().map(|listed| &listed.name).collect();
            assert_eq!(names, expected, "after entry {at}");
        }
    }
    assert_eq!(cached.brick_requests().await, before, "all from the cache");
    let (_, ended) = client.list_after(root, vec![1; 300]).await;
    assert_eq!(ended.unwrap_err().status, Status::InvalidArgument, "more positions than bricks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_not_one_fails_to_list() {
    let dir = tree::varied();
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let a = client.lookup(client.root().await, b"a").await.unwrap();
    let one = client.lookup(a.handle, b"one").await.unwrap();
    for _ in 0..2 {
        let (listed, ended) = client.list_after(one.handle, Vec::new()).await;
        assert_eq!(ended.unwrap_err().status, Status::NotDirectory);
        assert!(listed.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_belongs_to_its_connection_and_is_closed_with_it() {
    let dir = tree::varied();
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let other = stand.client().await;
    let a = client.lookup(client.root().await, b"a").await.unwrap();
    let one = client.lookup(a.handle, b"one").await.unwrap();
    let path = dir.path().join("a/one");
    let mut files = BTreeSet::new();
    for _ in 0..20 {
        files.insert(client.open(one.handle).await.unwrap());
    }
    assert_eq!(files.len(), 20);
    assert_eq!(tree::open_here(&path), 20, "the brick is in this process");
    let file = *files.first().unwrap();
    for request in [
        Request::Read { file, offset_bytes: 0, len_bytes: 1 },
        Request::Release { file, unlock: None },
    ] {
        assert_eq!(other.call(request).await.unwrap_err().status, Status::BadFile);
    }
    client.release(file).await;
    assert_eq!(client.read(file, 0, 1).await.unwrap_err().status, Status::BadFile);
    until("a released file is closed", async || (tree::open_here(&path) == 19).then_some(())).await;
    client.0.close("done");
    until("the files of a client that left are closed", async || {
        (tree::open_here(&path) == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_is_stale_and_its_name_is_looked_up_anew() {
    let dir = tree::flat(3);
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let listed = client.list(root).await;
    let old = listed[&b"name-1"[..]].handle;
    fs::rename(dir.path().join("name-2"), dir.path().join("name-1")).unwrap();
    assert_eq!(client.open(old).await, Err(Status::Stale));
    let entry = client.lookup(root, b"name-1").await.unwrap();
    tree::assert_entry(&dir.path().join("name-1"), &entry);
    assert!(client.open(entry.handle).await.is_ok());
    assert_eq!(client.list(root).await.len(), 2, "the old listing is known to be untrue");
}
