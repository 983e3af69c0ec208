//! Listings ahead of a client: used by a walk, and no more of them than last in the cache.

use std::fs;

use portcullis_core::Handle;
use portcullis_wire::stats::PrefetchStats;

use crate::harness::{Client, Stand, serve_with, until};

const DIRS: usize = 300;
const FILES: usize = 60;

/// A client that walks a tree of [`DIRS`] directories in depth, through a gateway whose cache has so many
/// bytes; what came of what was listed ahead.
async fn walk(cache_bytes: u64, rounds: usize) -> PrefetchStats {
    let tree = tempfile::tempdir().unwrap();
    for dir in 0..DIRS {
        let path = tree.path().join(format!("directory-{dir}"));
        fs::create_dir(&path).unwrap();
        (0..FILES).for_each(|file| fs::write(path.join(format!("file-{file}")), "").unwrap());
    }
    let (_brick, stand) = serve_with(tree.path(), |config| config.cache_bytes = cache_bytes);
    let client = stand.client().await;
    let root = client.root().await;
    for _ in 0..rounds {
        for dir in dirs(&client, root).await {
            assert_eq!(client.list(dir).await.len(), FILES);
        }
    }
    settled(&stand).await
}

/// In the order in which they are listed: that is the order of a walk.
async fn dirs(client: &Client, root: Handle) -> Vec<Handle> {
    let (listed, ended) = client.list_after(root, Vec::new()).await;
    assert_eq!(ended, Ok(true));
    listed.into_iter().map(|listed| listed.entry.handle).collect()
}

/// Waits until nothing is under way.
async fn settled(stand: &Stand) -> PrefetchStats {
    let mut last = None;
    until("nothing is listed ahead", async || {
        let prefetch = stand.stats().await.prefetch;
        let is_settled = last.replace(prefetch.clone()).is_some_and(|before| before == prefetch);
        is_settled.then_some(prefetch)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_uses_what_was_listed_ahead_of_it() {
    let prefetch = walk(64 << 20, 1).await;
    assert!(prefetch.used + prefetch.late > DIRS as u64 / 2, "{prefetch:?}");
    assert!(prefetch.wasted < DIRS as u64 / 10, "{prefetch:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_listed_ahead_than_lasts_in_the_cache() {
    for cache_bytes in [2 << 20, 1 << 20] {
        let prefetch = walk(cache_bytes, 3).await;
        println!("{cache_bytes} bytes: {prefetch:?}");
        assert!(prefetch.wasted <= 64 + prefetch.begun / 4, "{cache_bytes} bytes: {prefetch:?}");
    }
}
