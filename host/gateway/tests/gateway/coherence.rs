//! What one client changes, every other client knows before the change is answered: on the same
//! gateway and on another one.

use std::fs;
use std::sync::Arc;

use portcullis_core::limits::LEASE_MS;
use portcullis_core::watch::Change;
use portcullis_core::{Handle, Status};
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::message::Mutation;

use crate::harness::{RunningBrick, Stand, any_port, serve, until};
use crate::mount::{Mount, O_EXCL, O_RDWR, chmod};
use crate::tree;

/// One brick with two gateways in front of it.
pub(crate) fn two_gateways(export: &std::path::Path) -> (RunningBrick, [Stand; 2]) {
    let ids = Arc::new(IdentitySet::generate().unwrap());
    let brick = RunningBrick::start(&ids, export, any_port());
    let stand = |ids: Arc<IdentitySet>| Stand::start(ids, GatewayConfig::new(brick.address));
    let stands = [stand(ids.clone()), stand(ids)];
    (brick, stands)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_told_to_all_who_watch_before_it_is_answered_and_not_to_who_made_it() {
    let dir = tree::flat(3);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (maker, same, other) =
        (Mount::new(&near).await, Mount::new(&near).await, Mount::new(&far).await);
    let root = maker.root;
    let handle = maker.watch(root, b"name-1").await.handle;
    for mount in [&same, &other] {
        assert_eq!(mount.watch(root, b"name-1").await.handle, handle);
    }
    let bystander = Mount::new(&near).await;
    bystander.watch(root, b"name-2").await;
    maker.done(chmod(handle, 0o600)).await;
    let attr = Change::Attr { handle };
    for mount in [&same, &other] {
        assert!(mount.told.take().contains(&attr), "told before the change was answered");
        assert_eq!(mount.client.getattr(handle).await.unwrap().mode & 0o7777, 0o600);
    }
    assert!(maker.told.take().is_empty(), "who made it learns of it from its answer");
    assert!(bystander.told.take().is_empty(), "it watches another file");

    maker.done(Mutation::Unlink { dir: root, name: b"name-1".to_vec() }).await;
    let name = Change::Name { dir: root, name: b"name-1".to_vec() };
    for mount in [&same, &other, &bystander] {
        assert!(mount.told.take().contains(&name), "all watch the names of the root");
        assert_eq!(mount.client.lookup(root, b"name-1").await, Err(Status::NotFound));
    }
}

/// Asks everything about the root through a gateway that has cached it, and compares.
async fn assert_root_is_true(mount: &Mount, path: &std::path::Path, what: &str) {
    let listed = mount.client.list(mount.root).await;
    let local: std::collections::BTreeSet<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
        .filter(|name| name != b".portcullis-orphans")
        .collect();
    assert_eq!(listed.keys().cloned().collect::<std::collections::BTreeSet<_>>(), local, "{what}");
    for name in &local {
        let at = path.join(String::from_utf8(name.clone()).unwrap());
        let entry = mount.client.lookup(mount.root, name).await.unwrap();
        tree::assert_entry(&at, &entry);
        let attr = mount.client.getattr(entry.handle).await.unwrap();
        assert_eq!(Some(attr), entry.attr, "{what}: {at:?}");
    }
    for missing in ["gone", "new", "moved", "dir", "link", "node"] {
        let found = mount.client.lookup(mount.root, missing.as_bytes()).await;
        assert_eq!(found.is_ok(), path.join(missing).symlink_metadata().is_ok(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_change_is_seen_at_once_through_the_same_gateway_and_another() {
    let dir = tree::flat(4);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (maker, same, other) =
        (Mount::new(&near).await, Mount::new(&near).await, Mount::new(&far).await);
    let root = maker.root;
    let file = maker.watch(root, b"name-0").await.handle;
    let name = |name: &str| name.as_bytes().to_vec();
    let changes: Vec<Mutation> = vec![
        Mutation::Create { dir: root, name: name("new"), mode: 0o640, flags: O_RDWR | O_EXCL },
        Mutation::Mkdir { dir: root, name: name("dir"), mode: 0o700 },
        Mutation::Mknod { dir: root, name: name("node"), mode: 0o010_600, rdev: 0 },
        Mutation::Symlink { dir: root, name: name("link"), target: name("new") },
        chmod(file, 0o751),
        Mutation::Link { handle: file, dir: root, name: name("more") },
        rename(root, "name-1", "moved"),
        rename(root, "name-2", "moved"),
        Mutation::Rename {
            dir: root,
            name: name("moved"),
            new_dir: root,
            new_name: name("dir"),
            flags: 2,
        },
        Mutation::Unlink { dir: root, name: name("more") },
        Mutation::Rmdir { dir: root, name: name("moved") },
    ];
    for mutation in changes {
        let what = format!("{mutation:?}");
        for mount in [&same, &other] {
            assert_root_is_true(mount, dir.path(), "before").await;
        }
        maker.done(mutation).await;
        for mount in [&same, &other, &maker] {
            assert_root_is_true(mount, dir.path(), &what).await;
        }
    }
    let open = maker.client.open_as(file, O_RDWR).await.unwrap();
    for (at, data) in [(0, &b"written"[..]), (3, b"over it")] {
        assert_eq!(maker.write(open, at, data).await.unwrap(), 7);
        for mount in [&same, &other] {
            assert_root_is_true(mount, dir.path(), "a write").await;
        }
    }
}

fn rename(dir: Handle, name: &str, new_name: &str) -> Mutation {
    let (name, new_name) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
    Mutation::Rename { dir, name, new_dir: dir, new_name, flags: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_makes_itself_is_answered_from_the_cache() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let made = mount.mkdir(mount.root, b"dir").await.unwrap().handle;
    let (file, _) = mount.create(made, b"a", O_RDWR).await.unwrap();
    let before = lookups(&stand).await;
    assert_eq!(mount.client.lookup(made, b"a").await.unwrap().handle, file.handle);
    assert_eq!(mount.client.lookup(made, b"b").await, Err(Status::NotFound), "it was made empty");
    assert_eq!(mount.client.list(made).await.len(), 1);
    mount.done(Mutation::Unlink { dir: made, name: b"a".to_vec() }).await;
    assert_eq!(mount.client.lookup(made, b"a").await, Err(Status::NotFound));
    assert_eq!(lookups(&stand).await, before);
}

async fn lookups(stand: &Stand) -> u64 {
    let requests = stand.brick_requests().await;
    requests.get("lookup").copied().unwrap_or(0)
}

/// A directory that one client just made is filled by a client of another gateway: who made it must
/// not take it for empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_made_is_watched_like_any_other() {
    let dir = tree::flat(1);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (maker, other) = (Mount::new(&near).await, Mount::new(&far).await);
    for round in 0..20 {
        let name = format!("dir-{round}").into_bytes();
        let made = maker.mkdir(maker.root, &name).await.unwrap().handle;
        assert_eq!(other.client.lookup(other.root, &name).await.unwrap().handle, made);
        other.create(made, b"theirs", O_RDWR).await.unwrap();
        assert!(maker.client.lookup(made, b"theirs").await.is_ok(), "round {round}");
        assert_eq!(maker.client.list(made).await.len(), 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_true_while_others_change_what_it_lists() {
    const ENTRIES: usize = 3_000;
    let dir = tree::flat(ENTRIES);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (reader, writer) = (Mount::new(&near).await, Mount::new(&far).await);
    let root = reader.root;
    let changing = tokio::spawn(async move {
        for round in 0..200u32 {
            let name = format!("name-{}", round * 7 % ENTRIES as u32);
            let handle = writer.client.lookup(root, name.as_bytes()).await.unwrap().handle;
            writer.done(chmod(handle, 0o600 + round % 8)).await;
        }
        writer
    });
    let mut last = reader.client.list(root).await;
    while !changing.is_finished() {
        last = reader.client.list(root).await;
        assert_eq!(last.len(), ENTRIES);
    }
    let _writer = changing.await.unwrap();
    assert_eq!(last.len(), ENTRIES);
    // What was listed before the last change may be older; what is listed now is not.
    for (name, entry) in reader.client.list(root).await {
        let path = dir.path().join(String::from_utf8(name).unwrap());
        tree::assert_entry(&path, &entry);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_what_they_are_told_are_counted() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let (maker, other) = (Mount::new(&stand).await, Mount::new(&stand).await);
    let handle = other.watch(other.root, b"name-0").await.handle;
    maker.done(chmod(handle, 0o600)).await;
    let watch = stand.stats().await.watch;
    assert_eq!((watch.sessions, watch.rounds), (2, 0), "{watch:?}");
    assert!(watch.told > 0 && watch.lease_left_ms <= LEASE_MS, "{watch:?}");
    let detached = other.client.call(portcullis_wire::Request::Detach).await;
    assert_eq!(detached, Ok(portcullis_wire::Reply::Done));
    until("a client that detached is gone", async || {
        (stand.stats().await.watch.sessions == 1).then_some(())
    })
    .await;
    maker.done(chmod(handle, 0o640)).await;
    assert_eq!(stand.stats().await.watch.told, watch.told, "nobody is left to tell");
}
