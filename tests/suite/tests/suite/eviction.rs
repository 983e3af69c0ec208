//! The eviction policy of a gateway, live.

use std::path::Path;
use std::sync::Arc;

use portcullis_core::Handle;
use portcullis_suite::site::Site;
use portcullis_suite::{dial, find, guest, policy, tree, wait};
use portcullis_transport::{Connection, Role};
use tokio::task::JoinSet;

/// H-39.
#[test]
fn the_built_in_component_is_active_unless_another_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let built_in = Site::start(dir.path(), &[]).stats().eviction;
    assert_eq!(built_in.kind, "wasm", "{built_in:?}");
    assert_eq!(built_in.fallback_reason, "", "{built_in:?}");
    assert_eq!(built_in.digest, digest(&policy("s3fifo")), "{built_in:?}");
    let lru = policy("lru");
    let named = Site::start(dir.path(), &["--eviction", &lru.to_string_lossy()]).stats().eviction;
    assert_eq!(named.kind, "wasm", "{named:?}");
    assert_eq!(named.digest, digest(&lru), "{named:?}");
    assert_ne!(named.name, built_in.name);
}

/// What sha256sum(1) says of a file.
fn digest(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().expect("it runs");
    let printed = String::from_utf8(output.stdout).expect("hexadecimal");
    printed.split(' ').next().expect("a digest").to_owned()
}

/// S-POLICY-1.
#[test]
fn a_policy_works_when_memory_is_short() {
    for name in ["s3fifo", "lru"] {
        let dir = tempfile::tempdir().expect("a directory");
        tree::wide(dir.path(), 60, 500);
        let component = policy(name).to_string_lossy().into_owned();
        let site = Site::start(dir.path(), &["--cache-bytes", "1MiB", "--eviction", &component]);
        let local = find::local(dir.path(), find::EVERYTHING);
        find::assert_equal(&find::through(&site, "/", find::EVERYTHING), &local);
        let stats = site.stats();
        assert_eq!(stats.eviction.kind, "wasm", "{name}: {:?}", stats.eviction);
        assert!(stats.eviction.accepted > 0, "{name}: {:?}", stats.eviction);
        assert!(stats.eviction.calls > 0, "{name}: {:?}", stats.eviction);
        assert_eq!(stats.eviction.foreign, 0, "{name}: {:?}", stats.eviction);
        assert!(stats.cache.evicted_proposed > 0, "{name}: {:?}", stats.cache);
    }
}

/// Ten clients with a thousand lookups in flight each, while the component traps. S-POLICY-1, H-2, H-4.
#[test]
fn a_trap_fails_none_of_10_000_lookups_in_flight() {
    const CLIENTS: usize = 10;
    const FILES: usize = 1_000;
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), CLIENTS, FILES);
    let component = guest("trap-third-batch").to_string_lossy().into_owned();
    let site = Site::start(dir.path(), &["--cache-bytes", "1MiB", "--eviction", &component]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut lookups = JoinSet::new();
        let mut connectors = Vec::new();
        for client in 0..CLIENTS {
            let (connector, connection) =
                dial::connect(site.gateway.ready(), &site.identity(), Role::Client, Role::Gateway)
                    .await
                    .expect("connected");
            connectors.push(connector);
            let root = dial::attach(&connection).await;
            let name = format!("directory-{client:06}");
            let dir = dial::lookup(&connection, root, name.as_bytes()).await.expect("it is there");
            let connection = Arc::new(connection);
            for file in 0..FILES {
                lookups.spawn(lookup(connection.clone(), dir.handle, file));
            }
        }
        assert_eq!(lookups.len(), CLIENTS * FILES);
        while let Some(done) = lookups.join_next().await {
            done.expect("no panic").unwrap_or_else(|error| panic!("a lookup failed: {error}"));
        }
    });
    let eviction = wait::until("the fallback", || {
        let eviction = site.stats().eviction;
        (!eviction.fallback_reason.is_empty()).then_some(eviction)
    });
    assert_eq!(eviction.kind, "native", "{eviction:?}");
    assert!(eviction.fallback_reason.contains("trap"), "{eviction:?}");
    let local = find::local(dir.path(), find::EVERYTHING);
    find::assert_equal(&find::through(&site, "/", find::EVERYTHING), &local);
}

async fn lookup(
    connection: Arc<Connection>,
    dir: Handle,
    file: usize,
) -> Result<(), portcullis_transport::CallError> {
    let name = format!("file-{file:011}");
    let entry = dial::lookup(&connection, dir, name.as_bytes()).await?;
    let attr = entry.attr.expect("attributes");
    assert_eq!((attr.size_bytes, attr.nlink), (0, 1));
    Ok(())
}
