//! Eviction at work: the shipped component, one that traps, and a cache far too small.

use std::path::{Path, PathBuf};

use portcullis_core::Status;
use portcullis_gateway::PolicyChoice;

use crate::harness::{Client, serve, serve_with, until};
use crate::tree;

/// A component that `cargo xtask build` leaves in the build directory.
fn component(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let build = here.ancestors().find(|dir| dir.join("policies").is_dir());
    let path = build.unwrap_or(Path::new("target")).join("policies").join(name);
    assert!(path.is_file(), "{path:?} is missing: run `cargo xtask test`, which builds it");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_component_is_active_by_default() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let eviction = stand.stats().await.eviction;
    assert_eq!((eviction.kind.as_str(), eviction.digest.len()), ("wasm", 64), "{eviction:?}");
    assert_eq!(eviction.fallback_reason, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_traps_fails_no_request() {
    const CLIENTS: usize = 10;
    const NAMES: usize = 1_000;
    let dir = tree::flat(NAMES);
    let (_brick, stand) = serve_with(dir.path(), |config| {
        config.cache_bytes = 1 << 20;
        config.eviction = PolicyChoice::File(component("test/trap-third-batch.wasm"));
    });
    let mut lookups = Vec::new();
    for number in 0..CLIENTS {
        let client = stand.client().await;
        let root = client.root().await;
        // Half of the names do not exist, and each client asks for others.
        for at in 0..NAMES {
            let client = client.clone();
            lookups.push(tokio::spawn(async move {
                let exists = at % 2 == 0;
                let name = if exists { format!("name-{at}") } else { format!("no-{number}-{at}") };
                let found = client.lookup(root, name.as_bytes()).await;
                match found {
                    Ok(_) => exists,
                    Err(status) => !exists && status == Status::NotFound,
                }
            }));
        }
    }
    assert_eq!(lookups.len(), 10_000);
    for lookup in lookups {
        assert!(lookup.await.unwrap(), "a lookup was answered wrongly");
    }
    let client = stand.client().await;
    let root = client.root().await;
    let eviction = until("the fallback", async || {
        client.list(root).await;
        let eviction = stand.stats().await.eviction;
        (!eviction.fallback_reason.is_empty()).then_some(eviction)
    })
    .await;
    assert_eq!(eviction.kind, "native", "{eviction:?}");
    assert!(eviction.fallback_reason.contains("trap"), "{eviction:?}");
    assert_eq!(client.list(root).await.len(), NAMES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_far_too_small_still_answers_rightly() {
    const DIRS: usize = 40;
    const PER_DIR: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    for number in 0..DIRS {
        let sub = dir.path().join(format!("dir-{number}"));
        std::fs::create_dir(&sub).unwrap();
        tree::fill(&sub, PER_DIR);
    }
    let (_brick, stand) = serve_with(dir.path(), |config| config.cache_bytes = 1 << 20);
    for _ in 0..3 {
        let client = stand.client().await;
        let root = client.root().await;
        let walked = tree::walk(&client, root).await;
        assert_eq!(walked.len(), DIRS * (PER_DIR + 1));
        tree::assert_equals_local(dir.path(), &walked);
        names_come_and_go(&client, root).await;
        let stats = stand.stats().await;
        assert!(stats.cache.used_bytes <= stats.cache.capacity_bytes, "{:?}", stats.cache);
        assert!(stats.cache.evicted_proposed > 0, "{stats:?}");
        assert_eq!(stats.eviction.kind, "wasm", "{:?}", stats.eviction);
    }
}

/// Looks up names that exist and names that do not, in directories cached and evicted.
async fn names_come_and_go(client: &Client, root: portcullis_core::Handle) {
    for number in 0..40 {
        let sub = client.lookup(root, format!("dir-{number}").as_bytes()).await.unwrap();
        for at in [0, 250, 499] {
            let found = client.lookup(sub.handle, format!("name-{at}").as_bytes()).await;
            assert!(found.is_ok(), "name-{at} of dir-{number}: {found:?}");
        }
        assert_eq!(client.lookup(sub.handle, b"name-500").await, Err(Status::NotFound));
    }
}
