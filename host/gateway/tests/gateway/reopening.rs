//! Open files live on: without a name, over a restart of the brick, over a lost connection.

use std::fs;

use portcullis_core::Status;
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::message::{LockKind, LockSort, Mutation};
use portcullis_wire::{Reply, Request};

use crate::harness::{RunningBrick, Stand, any_port, serve, until};
use crate::mount::{Mount, O_APPEND, O_RDWR, refused};
use crate::relay::Relay;
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_a_name_outlives_a_restart_of_the_brick() {
    let dir = tree::flat(1);
    let (brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let root = mount.root;
    let (entry, file) = mount.create(root, b"gone", O_RDWR).await.unwrap();
    mount.write(file, 0, b"still here").await.unwrap();
    mount.done(Mutation::Unlink { dir: root, name: b"gone".to_vec() }).await;
    let old = mount.watch(root, b"name-0").await;
    let old_file = mount.client.open_as(old.handle, O_RDWR).await.unwrap();
    mount.write(old_file, 0, b"replaced").await.unwrap();
    let (_, new_file) = mount.create(root, b"new", O_RDWR).await.unwrap();
    mount.client.release(new_file).await;
    mount
        .done(Mutation::Rename {
            dir: root,
            name: b"new".to_vec(),
            new_dir: root,
            new_name: b"name-0".to_vec(),
            flags: 0,
        })
        .await;
    let address = brick.address;
    brick.stop().await;
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    until("both are opened again, though nobody asks for them", async || {
        (stand.brick_requests().await["open"] >= 3).then_some(())
    })
    .await;
    assert_eq!(mount.client.read(file, 0, 100).await.unwrap(), b"still here");
    assert_eq!(mount.client.read(old_file, 0, 100).await.unwrap(), b"replaced");
    assert_eq!(mount.write(file, 10, b", written").await.unwrap(), 9);
    assert_eq!(mount.client.getattr(entry.handle).await.unwrap().nlink, 0);
    let tmpfile = mount.client.read(file, 0, 100).await.unwrap();
    assert_eq!(tmpfile, b"still here, written");
    assert_eq!(fs::read(dir.path().join("name-0")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_keeps_its_flags_when_it_is_opened_again() {
    let dir = tree::flat(1);
    let (brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let (_, file) = mount.create(mount.root, b"log", O_RDWR | O_APPEND).await.unwrap();
    mount.write(file, 0, b"one ").await.unwrap();
    let address = brick.address;
    brick.stop().await;
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    mount.write(file, 0, b"two").await.unwrap();
    assert_eq!(fs::read(dir.path().join("log")).unwrap(), b"one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_finds_a_file_without_a_name() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let (entry, file) = mount.create(mount.root, b"gone", O_RDWR).await.unwrap();
    mount.write(file, 0, b"still here").await.unwrap();
    mount.done(Mutation::Unlink { dir: mount.root, name: b"gone".to_vec() }).await;
    mount.client.0.close("lost");
    until("the gateway knows", async || {
        // The admin's own is the other one.
        (stand.stats().await.connections == 1).then_some(())
    })
    .await;
    let back = Mount::again(&stand, mount.instance, mount.session).await;
    let again = back.client.open_as(entry.handle, O_RDWR).await.unwrap();
    assert_eq!(back.client.read(again, 0, 100).await.unwrap(), b"still here");
    back.client.release(again).await;
    let gone = Request::Release { file, unlock: None };
    assert!(back.client.call(gone).await.is_err(), "an id of the lost connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_opens_again_takes_the_place_of_what_it_had_open() {
    let dir = tree::flat(1);
    let path = dir.path().join("name-0");
    let (_brick, stand) = serve(dir.path());
    let (mut mount, other) = (Mount::new(&stand).await, Mount::new(&stand).await);
    let handle = mount.watch(mount.root, b"name-0").await.handle;
    let theirs = other.client.open_as(handle, O_RDWR).await.unwrap();
    let mut file = mount.client.open_as(handle, O_RDWR).await.unwrap();
    mount.setlk(file, mount.lock(LockSort::Flock, LockKind::Write)).await.unwrap();
    // A lock has a descriptor of its own at the brick, which is in this process.
    let open = tree::open_here(&path);
    for _ in 0..3 {
        let back = Mount::again(&stand, mount.instance, mount.session).await;
        mount.client.0.close("lost");
        file = back.client.open_as(handle, O_RDWR).await.unwrap();
        mount = back;
        until("the earlier one is closed", async || (tree::open_here(&path) == open).then_some(()))
            .await;
        let wanted = other.lock(LockSort::Flock, LockKind::Read);
        assert_eq!(refused(other.setlk(theirs, wanted).await), Status::Busy, "it holds its lock");
    }
    let unlock = Some(mount.lock(LockSort::Flock, LockKind::Unlock).owner);
    let release = Request::Release { file, unlock };
    assert_eq!(mount.client.call(release).await, Ok(Reply::Done));
    other.setlk(theirs, other.lock(LockSort::Flock, LockKind::Write)).await.unwrap();
}

/// Its client does not learn of it, and never closes it. S-OPEN-3.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_opened_when_its_connection_is_lost_does_not_stay_open() {
    let dir = tree::flat(1);
    let path = dir.path().join("name-0");
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let relay = Relay::start(brick.address).await;
    let stand = Stand::start(ids, GatewayConfig::new(relay.address));
    let mount = Mount::new(&stand).await;
    let handle = mount.watch(mount.root, b"name-0").await.handle;
    relay.drop_answers();
    let connection = mount.client.0.clone();
    let open = Request::Open { handle, flags: O_RDWR };
    let opening = tokio::spawn(async move { connection.call(&open).await });
    until("the brick has it open", async || (tree::open_here(&path) > 0).then_some(())).await;
    mount.client.0.close("lost");
    assert!(opening.await.unwrap().is_err());
    until("the gateway knows", async || (stand.stats().await.connections == 1).then_some(())).await;
    relay.mend();
    let _back = Mount::again(&stand, mount.instance, mount.session).await;
    until("it is closed", async || (tree::open_here(&path) == 0).then_some(())).await;
}
