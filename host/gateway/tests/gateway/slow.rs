//! A client that does not read what it asked for costs the others nothing.

use std::fs;

use portcullis_wire::{ReplyFrame, Request};

use crate::harness::{by_name, drain_listing, frame, serve, serve_with, until};
use crate::tree;

/// Far more than windows and scans hold: a listing of it that is not read comes to a halt.
const ENTRIES: usize = 24_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_listing_delays_no_other_and_loses_no_entry() {
    let dir = tree::flat(ENTRIES);
    let (_brick, stand) = serve(dir.path());
    let (slow, fast) = (stand.client().await, stand.client().await);
    let root = slow.root().await;
    let mut stalled = slow
        .stream(Request::List { dir: root, after: Vec::new(), acl: false, contents: None })
        .await;
    let ReplyFrame::Chunk(first) = frame(&mut stalled).await else { panic!("no chunk") };
    // It would wait in vain for the next chunk.
    assert_eq!(fast.list(root).await.len(), ENTRIES);
    assert_eq!(fast.list(root).await.len(), ENTRIES);
    let (mut listed, ended) = drain_listing(&mut stalled).await;
    assert_eq!(ended, Ok(true));
    listed.extend(first.entries().map(|entry| crate::harness::Listed {
        name: entry.name.to_vec(),
        entry: entry.to_entry(),
        cookie: entry.cookie,
    }));
    assert_eq!(by_name(listed).len(), ENTRIES, "each exactly once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_nobody_keeps_up_with_still_fills_the_cache() {
    let dir = tree::flat(ENTRIES);
    let (_brick, stand) = serve(dir.path());
    let (slow, fast) = (stand.client().await, stand.client().await);
    let root = slow.root().await;
    let mut stalled = slow
        .stream(Request::List { dir: root, after: Vec::new(), acl: false, contents: None })
        .await;
    frame(&mut stalled).await;
    until("the whole listing is cached", async || {
        (stand.stats().await.cache.entries >= ENTRIES as u64).then_some(())
    })
    .await;
    assert_eq!(fast.list(root).await.len(), ENTRIES);
    assert_eq!(stand.brick_requests().await["list"], 1);
    let (listed, ended) = drain_listing(&mut stalled).await;
    assert_eq!(ended, Ok(true));
    assert!(listed.len() > ENTRIES - 1_000, "all but the first chunk: {}", listed.len());
    assert_eq!(stand.brick_requests().await["list"], 1, "resumed from the cache");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_whose_client_left_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    tree::fill(&sub, ENTRIES);
    let (_brick, stand) = serve(dir.path());
    let (stayer, leaver) = (stand.client().await, stand.client().await);
    let root = leaver.root().await;
    let handle = leaver.lookup(root, b"sub").await.unwrap().handle;
    let mut left = leaver
        .stream(Request::List { dir: handle, after: Vec::new(), acl: false, contents: None })
        .await;
    frame(&mut left).await;
    leaver.0.close("gone");
    drop(left);
    // The brick is in this process, and holds the directory open while it lists it.
    until("the brick stops listing", async || (tree::open_here(&sub) == 0).then_some(())).await;
    let received_bytes = stand.stats().await.bricks[0].received_bytes;
    assert!(received_bytes < 80 * ENTRIES as u64, "{received_bytes} bytes are the whole listing");
    // The cancelled listing is neither complete nor in the way of the next one.
    assert_eq!(stayer.list(handle).await.len(), ENTRIES);
    assert_eq!(stand.brick_requests().await["list"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_reads_do_not_clog_the_connection_to_the_brick() {
    const LEN: usize = 8 << 20;
    const READS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), tree::content(7, LEN)).unwrap();
    tree::fill(dir.path(), 200);
    // Without letting go, the stalled reads would hold the connection's whole window.
    let (_brick, stand) = serve_with(dir.path(), |config| config.brick_timeout_ms = 5_000);
    let fast = stand.client().await;
    let root = fast.root().await;
    let large = fast.lookup(root, b"large").await.unwrap();
    let mut stalled = Vec::new();
    for _ in 0..READS {
        let slow = stand.client().await;
        let file = slow.open(large.handle).await.unwrap();
        let read = Request::Read { file, offset_bytes: 0, len_bytes: LEN as u32 };
        stalled.push(slow.stream(read).await);
    }
    for number in 0..200 {
        fast.lookup(root, format!("name-{number}").as_bytes()).await.unwrap();
    }
    let expected = tree::content(7, LEN);
    for mut stream in stalled {
        let mut content = Vec::new();
        loop {
            match frame(&mut stream).await {
                ReplyFrame::Data(data) => content.extend_from_slice(&data),
                ReplyFrame::End { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(content == expected, "{} bytes, not those of the file", content.len());
    }
}
