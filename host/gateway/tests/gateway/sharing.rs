//! What was asked once is not asked again: caching, single flight, shared listings.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_core::Status;
use tokio::sync::Barrier;

use crate::harness::{Client, serve};
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_walk_sends_nothing_to_the_brick() {
    let dir = tree::varied();
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let first = tree::walk(&client, root).await;
    let asked = stand.brick_requests().await;
    assert_eq!(asked["list"], 5, "one request a directory: {asked:?}");
    let other = stand.client().await;
    assert_eq!(other.root().await, root);
    assert_eq!(tree::walk(&other, root).await, first);
    for (path, entry) in &first {
        assert_eq!(other.getattr(entry.handle).await.ok(), entry.attr, "{path:?}");
        if let Some(target) = &entry.target {
            assert_eq!(&other.readlink(entry.handle).await, target, "{path:?}");
        }
    }
    let a = other.lookup(root, b"a").await.unwrap();
    assert_eq!(other.lookup(a.handle, b"missing").await, Err(Status::NotFound));
    assert_eq!(other.lookup(root, b"missing").await, Err(Status::NotFound));
    assert_eq!(stand.brick_requests().await, asked);
    let cache = stand.stats().await.cache;
    assert_eq!(cache.negative_hits, 2, "told by complete listings");
    assert!(cache.list_hits >= 5 && cache.readlink_hits >= 2, "{cache:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_name_is_remembered() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    for _ in 0..3 {
        assert_eq!(client.lookup(root, b"missing").await, Err(Status::NotFound));
    }
    assert_eq!(stand.brick_requests().await["lookup"], 1);
    let stats = stand.stats().await;
    assert_eq!(stats.cache.negative_hits, 2);
    assert_eq!((stats.requests["lookup"], stats.failures["NotFound"]), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_for_one_name_send_one_request() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let clients: Vec<Client> = futures_of(10, || stand.client()).await;
    let root = clients[0].root().await;
    for (name, asked) in [(&b"name-0"[..], 1), (b"missing", 2)] {
        let barrier = Arc::new(Barrier::new(100));
        let lookups: Vec<_> = (0..100)
            .map(|number| {
                let (client, barrier) = (clients[number % 10].clone(), barrier.clone());
                tokio::spawn(async move {
                    barrier.wait().await;
                    client.lookup(root, name).await.map(|entry| entry.handle)
                })
            })
            .collect();
        let mut answers = Vec::new();
        for lookup in lookups {
            answers.push(lookup.await.unwrap());
        }
        assert_eq!(answers[0].is_ok(), name == b"name-0");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(stand.brick_requests().await["lookup"], asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_list_one_directory_send_one_request() {
    const ENTRIES: usize = 5_000;
    let dir = tree::flat(ENTRIES);
    let (_brick, stand) = serve(dir.path());
    let clients: Vec<Client> = futures_of(50, || stand.client()).await;
    let root = clients[0].root().await;
    let barrier = Arc::new(Barrier::new(clients.len()));
    let listings: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, barrier) = (client.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                client.list(root).await.into_keys().collect::<BTreeSet<_>>()
            })
        })
        .collect();
    for listing in listings {
        assert_eq!(listing.await.unwrap(), tree::flat_names(ENTRIES));
    }
    assert_eq!(stand.brick_requests().await["list"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_takes_no_answer_from_the_others() {
    let dir = tree::flat(20_000);
    let (_brick, stand) = serve(dir.path());
    let (leaver, stayer) = (stand.client().await, stand.client().await);
    let root = leaver.root().await;
    let mut leaving = leaver.stream(listing_of(root)).await;
    crate::harness::frame(&mut leaving).await;
    let staying = tokio::spawn(async move { stayer.list(root).await.len() });
    leaver.0.close("gone");
    drop(leaving);
    assert_eq!(staying.await.unwrap(), 20_000);
}

fn listing_of(dir: portcullis_core::Handle) -> portcullis_wire::Request {
    portcullis_wire::Request::List { dir, after: Vec::new(), acl: false, contents: None }
}

async fn futures_of<T>(count: usize, mut make: impl AsyncFnMut() -> T) -> Vec<T> {
    let mut made = Vec::new();
    for _ in 0..count {
        made.push(make().await);
    }
    made
}
