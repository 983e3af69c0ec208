//! The brick goes and comes back.

use std::fs;
use std::time::{Duration, Instant};

use portcullis_core::Status;
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::{ReplyFrame, Request};

use crate::harness::{
    RunningBrick, Stand, any_port, drain_listing, frame, serve, serve_with, until,
};
use crate::relay::Relay;
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_brick_is_told_of_in_time_and_a_new_one_is_used() {
    const TIMEOUT_MS: u64 = 8_000;
    let dir = tree::flat(10);
    let (mut brick, stand) = serve_with(dir.path(), |config| config.brick_timeout_ms = TIMEOUT_MS);
    let client = stand.client().await;
    let root = client.root().await;
    assert_eq!(client.list(root).await.len(), 10);
    let name = client.lookup(root, b"name-3").await.unwrap();
    brick.kill();
    fs::remove_file(dir.path().join("name-4")).unwrap();
    fs::write(dir.path().join("name-3"), b"changed").unwrap();

    let begun = Instant::now();
    let failure = client.call(Request::Statfs { handle: root }).await.unwrap_err();
    assert_eq!(failure.status, Status::Unavailable);
    assert!(failure.detail.contains(&brick.address.to_string()), "{failure}");
    assert!(begun.elapsed() < Duration::from_millis(TIMEOUT_MS + 2_000), "{:?}", begun.elapsed());
    // Once the outage is known to be long, nobody waits for its end.
    until("requests fail at once", async || {
        let begun = Instant::now();
        client.call(Request::Statfs { handle: root }).await.unwrap_err();
        (begun.elapsed() < Duration::from_millis(200)).then_some(())
    })
    .await;
    let failure = client.call(Request::Statfs { handle: root }).await.unwrap_err();
    assert!(failure.detail.contains("has not been reachable for"), "{failure}");
    let stats = stand.stats().await;
    assert!(!stats.bricks[0].connected && !stats.bricks[0].last_error.is_empty(), "{stats:?}");
    assert_eq!(stats.cache.entries, 0, "what the lost connection had told is forgotten");

    let _brick = RunningBrick::start(&stand.ids, dir.path(), brick.address);
    until("the gateway is back", async || client.getattr(root).await.ok()).await;
    assert_eq!(client.list(root).await.len(), 9);
    let changed = client.lookup(root, b"name-3").await.unwrap();
    assert_eq!(changed.handle, name.handle, "a handle outlives the brick's process");
    assert_eq!(changed.attr.map(|attr| attr.size_bytes), Some(7));
    assert_eq!(client.lookup(root, b"name-4").await, Err(Status::NotFound));
    assert_eq!(stand.stats().await.bricks[0].connects, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_takes_a_moment_fails_nothing() {
    let dir = tree::flat(10);
    let (brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let address = brick.address;
    brick.stop().await;
    until("the loss is noticed", async || (!stand.stats().await.bricks[0].connected).then_some(()))
        .await;
    let asking: Vec<_> = (0..10)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                client.lookup(root, format!("name-{number}").as_bytes()).await.is_ok()
            })
        })
        .collect();
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    for asked in asking {
        assert!(asked.await.unwrap(), "it waited for the brick");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brick_that_dies_in_a_listing_leaves_no_clean_end() {
    const ENTRIES: usize = 20_000;
    let dir = tree::flat(ENTRIES);
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let relay = Relay::start(brick.address).await;
    let stand = Stand::start(ids, GatewayConfig::new(relay.address));
    let (client, other) = (stand.client().await, stand.client().await);
    let root = client.root().await;
    relay.cut_after(400_000);
    let mut stream = client
        .stream(Request::List { dir: root, after: Vec::new(), acl: false, contents: None })
        .await;
    let mut joined = other
        .stream(Request::List { dir: root, after: Vec::new(), acl: false, contents: None })
        .await;
    for stream in [&mut stream, &mut joined] {
        let (listed, ended) = drain_listing(stream).await;
        let failure = ended.unwrap_err();
        assert_eq!(failure.status, Status::Unavailable, "{failure}");
        assert!(failure.detail.contains(&relay.address.to_string()), "{failure}");
        assert!(!listed.is_empty() && listed.len() < ENTRIES, "{} entries", listed.len());
    }
    relay.mend();
    until("the gateway is back", async || client.getattr(root).await.ok()).await;
    assert_eq!(client.lookup(root, b"name-19999").await.map(|_| ()), Ok(()), "never half a truth");
    assert_eq!(client.list(root).await.len(), ENTRIES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brick_that_says_nothing_costs_a_request_its_deadline_and_no_more() {
    const TIMEOUT_MS: u64 = 500;
    let dir = tree::flat(10);
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let relay = Relay::start(brick.address).await;
    let mut config = GatewayConfig::new(relay.address);
    config.brick_timeout_ms = TIMEOUT_MS;
    let stand = Stand::start(ids, config);
    let client = stand.client().await;
    let attach = || Request::Attach { watch: false, client: 1, ended: 0 };
    let root = until("the brick is there", async || match client.call(attach()).await {
        Ok(portcullis_wire::Reply::Attached { root, .. }) => Some(root.handle),
        _ => None,
    })
    .await;
    client.lookup(root, b"name-1").await.unwrap();
    relay.cut_after(0);
    let begun = Instant::now();
    let failure = client.call(Request::Statfs { handle: root }).await.unwrap_err();
    let took = begun.elapsed();
    assert_eq!(failure.status, Status::Unavailable);
    assert!(failure.detail.contains("did not answer a statfs in 500 ms"), "{failure}");
    assert!(took >= Duration::from_millis(TIMEOUT_MS), "{took:?}");
    assert!(took < Duration::from_millis(TIMEOUT_MS + 1_500), "{took:?}");
    assert!(client.lookup(root, b"name-1").await.is_ok(), "what is cached is still answered");
    let (_, ended) = client.list_after(root, Vec::new()).await;
    assert_eq!(ended.unwrap_err().status, Status::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_stays_open_across_a_restart_of_the_brick() {
    let dir = tempfile::tempdir().unwrap();
    let content = tree::content(5, 600_000);
    fs::write(dir.path().join("kept"), &content).unwrap();
    fs::write(dir.path().join("removed"), &content).unwrap();
    let (brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let kept = client.lookup(root, b"kept").await.unwrap();
    let removed = client.lookup(root, b"removed").await.unwrap();
    let kept = client.open(kept.handle).await.unwrap();
    let removed = client.open(removed.handle).await.unwrap();
    assert_eq!(client.read(kept, 0, 1_000).await.unwrap(), content[..1_000]);
    let address = brick.address;
    brick.stop().await;
    fs::remove_file(dir.path().join("removed")).unwrap();
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    let reads: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read(kept, 1_000, 700_000).await.unwrap() })
        })
        .collect();
    for read in reads {
        assert!(read.await.unwrap() == content[1_000..]);
    }
    assert_eq!(client.read(removed, 0, 10).await.unwrap_err().status, Status::Stale);
    assert_eq!(stand.brick_requests().await["open"], 4, "opened again once, however many read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_brick_dies_fails_in_time() {
    const LEN: u32 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), tree::content(3, LEN as usize)).unwrap();
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let relay = Relay::start(brick.address).await;
    let stand = Stand::start(ids, GatewayConfig::new(relay.address));
    let client = stand.client().await;
    let root = client.root().await;
    let large = client.lookup(root, b"large").await.unwrap();
    let file = client.open(large.handle).await.unwrap();
    relay.cut_after(1_000_000);
    let begun = Instant::now();
    let mut stream = client.stream(Request::Read { file, offset_bytes: 0, len_bytes: LEN }).await;
    let failure = loop {
        match frame(&mut stream).await {
            ReplyFrame::Data(_) => {}
            ReplyFrame::Failure(failure) => break failure,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failure.status, Status::Unavailable, "{failure}");
    assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
}
