//! Whoever cannot be told stops answering before anybody stops waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use portcullis_core::Status;
use portcullis_core::limits::LEASE_MS;
use portcullis_core::watch::Change;
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::{Reply, Request};

use crate::coherence::two_gateways;
use crate::harness::{PATIENCE, RunningBrick, Stand, any_port, serve, until};
use crate::mount::{Mount, chmod};
use crate::relay::Relay;
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_acknowledge_is_waited_for_until_its_lease_is_over() {
    let dir = tree::flat(2);
    let (_brick, stand) = serve(dir.path());
    let (maker, deaf) = (Mount::new(&stand).await, Mount::new(&stand).await);
    let handle = deaf.watch(deaf.root, b"name-0").await.handle;
    deaf.told.become_deaf();
    // It goes on to renew, which must not keep the one who changes something waiting.
    maker.done(chmod(handle, 0o600)).await;
    let closed = tokio::time::timeout(PATIENCE, deaf.client.0.closed()).await;
    assert!(closed.expect("its session is over").contains("lease"));
    assert!(deaf.told.take().is_empty());
    let begun = Instant::now();
    maker.done(chmod(handle, 0o640)).await;
    assert_eq!(stand.stats().await.watch.sessions, 1, "after {:?}", begun.elapsed());
    assert_eq!(maker.client.getattr(handle).await.unwrap().mode & 0o777, 0o640);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_gateway_that_does_not_acknowledge_is_not_waited_for_either() {
    let dir = tree::flat(2);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (maker, deaf, reader) =
        (Mount::new(&near).await, Mount::new(&far).await, Mount::new(&far).await);
    let handle = deaf.watch(deaf.root, b"name-0").await.handle;
    reader.watch(reader.root, b"name-0").await;
    deaf.told.become_deaf();
    maker.done(chmod(handle, 0o600)).await;
    assert_eq!(reader.client.getattr(handle).await.unwrap().mode & 0o777, 0o600);
    let closed = tokio::time::timeout(PATIENCE, deaf.client.0.closed()).await;
    assert!(closed.expect("its session is over").contains("lease"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_answer_is_late_is_not_hidden_by_the_cache() {
    let dir = tree::flat(2);
    let ids = Arc::new(IdentitySet::generate().unwrap());
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let config = GatewayConfig::new(brick.address);
    let hasty = GatewayConfig { brick_timeout_ms: 1_000, ..config.clone() };
    let (near, far) = (Stand::start(ids.clone(), hasty), Stand::start(ids, config));
    let (maker, reader, deaf) =
        (Mount::new(&near).await, Mount::new(&near).await, Mount::new(&far).await);
    let handle = deaf.watch(deaf.root, b"name-0").await.handle;
    reader.watch(reader.root, b"name-0").await;
    deaf.told.become_deaf();
    // The brick waits for the deaf one, and the gateway not that long for the brick.
    let failure = maker.mutate(chmod(handle, 0o600)).await.unwrap_err();
    assert_eq!(failure.status, Status::Unavailable, "{failure}");
    assert!(reader.told.take().contains(&Change::Attr { handle }));
    assert_eq!(reader.client.getattr(handle).await.unwrap().mode & 0o777, 0o600);
}

/// Brick, a gateway behind a relay, and one without.
pub(crate) async fn behind_a_relay(
    export: &std::path::Path,
    brick_timeout_ms: u64,
) -> (RunningBrick, Relay, [Stand; 2]) {
    let ids = Arc::new(IdentitySet::generate().unwrap());
    let brick = RunningBrick::start(&ids, export, any_port());
    let relay = Relay::start(brick.address).await;
    let stand = |address| {
        let config = GatewayConfig { brick_timeout_ms, ..GatewayConfig::new(address) };
        Stand::start(ids.clone(), config)
    };
    let stands = [stand(relay.address), stand(brick.address)];
    (brick, relay, stands)
}

/// The gateway behind the relay must answer nothing from its cache that was changed meanwhile.
async fn assert_cut_off_is_not_stale(cut: impl FnOnce(&Relay)) {
    let dir = tree::flat(2);
    let (_brick, relay, [cut_off, direct]) = behind_a_relay(dir.path(), 10_000).await;
    let (reader, maker) = (Mount::new(&cut_off).await, Mount::new(&direct).await);
    let entry = reader.watch(reader.root, b"name-0").await;
    maker.watch(maker.root, b"name-0").await;
    let handle = entry.handle;
    assert_eq!(reader.client.getattr(handle).await.ok(), entry.attr);
    cut(&relay);
    maker.done(chmod(handle, 0o600)).await;
    // It fails, or waits until the relay is mended: whatever it answers is true.
    let asked = {
        let client = reader.client.clone();
        tokio::spawn(async move { client.getattr(handle).await })
    };
    until("its clients have no lease", async || {
        (reader.lease_ms.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await;
    relay.mend();
    match asked.await.unwrap() {
        Ok(attr) => assert_eq!(attr.mode & 0o777, 0o600),
        Err(failure) => assert_eq!(failure.status, Status::Unavailable, "{failure}"),
    }
    let attr = until("it is back", async || reader.client.getattr(handle).await.ok()).await;
    assert_eq!(attr.mode & 0o777, 0o600);
    until("its clients have a lease", async || {
        (reader.lease_ms.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_answers_nothing_stale() {
    assert_cut_off_is_not_stale(|relay| relay.cut_after(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_hears_nothing_from_the_brick_answers_nothing_stale() {
    assert_cut_off_is_not_stale(Relay::drop_answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_with_the_brick_makes_clients_forget_everything() {
    let dir = tree::flat(2);
    let (brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    mount.watch(mount.root, b"name-0").await;
    assert!(mount.lease_ms.load(Ordering::SeqCst) <= LEASE_MS);
    let address = brick.address;
    brick.stop().await;
    until("the client is told", async || mount.told.take().contains(&Change::All).then_some(()))
        .await;
    assert_eq!(stand.stats().await.watch.lease_left_ms, 0, "without a brick there is no lease");
    let _brick = RunningBrick::start(&stand.ids, dir.path(), address);
    until("there is a lease again", async || {
        (stand.stats().await.watch.lease_left_ms > 0).then_some(())
    })
    .await;
    until("the client renews, too", async || match mount.client.call(Request::Renew).await {
        Ok(Reply::Renewed { lease_ms, .. }) => (lease_ms > 0).then_some(()),
        other => panic!("{other:?}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_ended_by_its_own_client_only() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    let sessions = async || stand.stats().await.watch.sessions;
    let _stranger = Mount::again(&stand, mount.instance + 1, mount.session).await;
    assert_eq!(sessions().await, 2, "it names a session that is not its own");
    assert!(mount.client.call(Request::Renew).await.is_ok());
    let _again = Mount::again(&stand, mount.instance, mount.session).await;
    assert_eq!(sessions().await, 2, "one ended, one began");
    let over = mount.client.call(Request::Renew).await.unwrap_err();
    assert_eq!(over.status, Status::Unavailable, "{over}");
    let unwatched = stand.client().await;
    unwatched.root().await;
    let none = unwatched.call(Request::Renew).await.unwrap_err();
    assert_eq!(none.status, Status::InvalidArgument, "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn space_is_told_while_the_brick_is_away() {
    let dir = tree::flat(1);
    let (mut brick, stand) = serve(dir.path());
    let client = stand.client().await;
    let root = client.root().await;
    let told = client.call(Request::Statfs { handle: root }).await.unwrap();
    brick.kill();
    until("the loss is noticed", async || (!stand.stats().await.bricks[0].connected).then_some(()))
        .await;
    assert_eq!(client.call(Request::Statfs { handle: root }).await, Ok(told));
}
