//! Changes told over real connections, and leases that end.

use std::time::{Duration, Instant};

use portcullis_core::limits::LEASE_HELD_MS;
use portcullis_core::watch::Change;
use portcullis_transport::Connection;
use portcullis_wire::{Reply, Request};

use crate::site::{Site, handle};

async fn watch(connection: &Connection, number: u64) {
    let reply = connection.call(&Request::Getattr { handle: handle(number) }).await;
    assert_eq!(reply.expect("it is watched"), Reply::Done);
}

fn attr(number: u64) -> Change {
    Change::Attr { handle: handle(number) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_returns_when_every_watcher_has_acknowledged() {
    let site = Site::start();
    let (a, b) = (site.connect().await, site.connect().await);
    watch(&a, 1).await;
    watch(&b, 1).await;
    let watching = site.keeper.watching.clone();
    let mut change = tokio::spawn(async move { watching.change(None, &[attr(1)]).await });
    let (told_a, told_b) = (a.next_recall().await, b.next_recall().await);
    let (told_a, told_b) = (told_a.expect("a is told"), told_b.expect("b is told"));
    assert_eq!((told_a.changes(), told_b.changes()), (&[attr(1)][..], &[attr(1)][..]));
    told_a.acknowledge().await;
    // A renewal of `a` is answered, so its acknowledgement has arrived; `b` is still waited for.
    assert!(matches!(a.call(&Request::Renew).await, Ok(Reply::Renewed { .. })));
    assert!(!change.is_finished());
    told_b.acknowledge().await;
    (&mut change).await.expect("it returns");
    site.keeper.watching.change(None, &[attr(1), attr(2)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_answer_is_waited_for_until_its_lease_is_over() {
    let site = Site::start();
    let connection = site.connect().await;
    watch(&connection, 1).await;
    let begun = Instant::now();
    site.keeper.watching.change(None, &[attr(1)]).await;
    let waited = begun.elapsed();
    // The lease began before, with the connection.
    assert!(waited > Duration::from_millis(LEASE_HELD_MS / 2), "{waited:?}");
    assert!(connection.closed().await.contains("the lease is over"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_is_waited_for_unless_it_said_so() {
    let site = Site::start();
    let (leaving, lost) = (site.connect().await, site.connect().await);
    watch(&leaving, 1).await;
    assert_eq!(leaving.call(&Request::Detach).await.expect("it may go"), Reply::Done);
    leaving.close("done");
    assert!(site.keeper.watching.begin_change(None, &[attr(1)]).is_none());
    watch(&lost, 2).await;
    lost.close("lost");
    while *site.keeper.closed.lock() < 2 {
        tokio::task::yield_now().await;
    }
    let over = site.keeper.watching.begin_change(None, &[attr(2)]);
    over.expect("it may still answer from its cache").await.expect("its lease ends");
}
