//! What is asked again is applied once.

use std::fs;

use portcullis_core::Status;
use portcullis_core::replay::OpId;
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::message::{Mutated, Mutation};

use crate::harness::{RunningBrick, Stand, any_port, serve, until};
use crate::mount::{Mount, O_EXCL, O_RDWR, refused};
use crate::relay::Relay;
use crate::tree;

/// A brick, and a gateway behind a relay that waits long for it.
async fn behind_a_relay(export: &std::path::Path) -> (RunningBrick, Relay, Stand) {
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, export, any_port());
    let relay = Relay::start(brick.address).await;
    let config = GatewayConfig { brick_timeout_ms: 25_000, ..GatewayConfig::new(relay.address) };
    (brick, relay, Stand::start(ids, config))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_answer_was_lost_is_not_applied_by_the_next_life_of_the_brick() {
    let dir = tree::flat(1);
    let (mut brick, relay, stand) = behind_a_relay(dir.path()).await;
    let mount = Mount::new(&stand).await;
    let root = mount.root;
    relay.drop_answers();
    let made = tokio::spawn(async move { mount.mkdir(root, b"dir").await });
    until("the brick applied it", async || dir.path().join("dir").is_dir().then_some(())).await;
    brick.kill();
    let _brick = RunningBrick::start(&stand.ids, dir.path(), brick.address);
    relay.mend();
    let failure = made.await.unwrap().unwrap_err();
    assert_eq!(failure.status, Status::InDoubt, "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_answer_was_lost_on_the_way_to_the_gateway_is_applied_once() {
    let dir = tree::flat(1);
    let (_brick, relay, stand) = behind_a_relay(dir.path()).await;
    let mount = Mount::new(&stand).await;
    relay.drop_answers();
    let root = mount.root;
    let made = tokio::spawn(async move { (mount.mkdir(root, b"dir").await, mount) });
    until("the brick applied it", async || dir.path().join("dir").is_dir().then_some(())).await;
    until("the gateway gives the session up", async || {
        (!stand.stats().await.bricks[0].connected).then_some(())
    })
    .await;
    relay.mend();
    let (made, mount) = made.await.unwrap();
    let entry = made.expect("made, not found to exist");
    tree::assert_entry(&dir.path().join("dir"), &entry);
    assert_eq!(stand.stats().await.bricks[0].connects, 2);
    assert_eq!(refused(mount.mkdir(root, b"dir").await), Status::Exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_a_client_repeats_is_applied_once_and_told_as_it_is_now() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let (root, op) = (mount.root, mount.op());
    let flags = O_RDWR | O_EXCL;
    let create = Mutation::Create { dir: root, name: b"new".to_vec(), mode: 0o600, flags };
    let first = mount.mutate_as(op, create.clone(), b"").await.unwrap().0;
    fs::write(dir.path().join("new"), b"written since").unwrap();
    let again = Mount::again(&stand, mount.instance, mount.session).await;
    mount.client.0.close("lost");
    let repeated = again.mutate_as(OpId { retry: true, ..op }, create, b"").await.unwrap().0;
    let (Mutated::Created { entry: first, .. }, Mutated::Created { entry, file }) =
        (first, repeated)
    else {
        panic!("not created");
    };
    assert_eq!(entry.handle, first.handle);
    tree::assert_entry(&dir.path().join("new"), &entry);
    assert_eq!(again.client.read(file, 0, 100).await.unwrap(), b"written since");
    assert_eq!(again.write(file, 0, b"W").await.unwrap(), 1);
    assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"Written since");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_another_life_of_the_brick_nobody_knows_and_that_is_said() {
    let dir = tree::flat(1);
    let (brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let (root, op, address) = (mount.root, mount.op(), brick.address);
    let mkdir = Mutation::Mkdir { dir: root, name: b"dir".to_vec(), mode: 0o700 };
    mount.mutate_as(op, mkdir.clone(), b"").await.unwrap();
    brick.stop().await;
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    let retry = OpId { retry: true, ..op };
    let failure = mount.mutate_as(retry, mkdir, b"").await.unwrap_err();
    assert_eq!(failure.status, Status::InDoubt, "{failure}");
    // Sent for the first time it is as good as ever, though the client knows the earlier life only.
    assert!(mount.mkdir(root, b"other").await.is_ok());
}
