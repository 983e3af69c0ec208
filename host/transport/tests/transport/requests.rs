//! Requests with bodies: whole, cut anyhow, refused, given up.

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::replay::OpId;
use portcullis_transport::CallError;
use portcullis_wire::message::{Caller, Mutated, Mutation};
use portcullis_wire::{Reply, Request};

use crate::site::{Site, handle, pattern};

fn write(offset_bytes: u64, len_bytes: usize) -> Request {
    let len_bytes = len_bytes as u32;
    let mutation = Mutation::Write { file: 1, offset_bytes, len_bytes, kill_set_id: false };
    let op = OpId { client: 1, number: 1, oldest: 1, life: 1, retry: false };
    Request::Mutate { op, caller: Caller::ROOT, mutation }
}

fn written(reply: Result<Reply, CallError>) -> u64 {
    match reply {
        Ok(Reply::Mutated { result: Mutated::Written { len_bytes }, .. }) => len_bytes,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_arrives_as_it_was_however_it_is_cut() {
    let site = Site::start();
    let connection = site.connect().await;
    let whole = pattern(1 << 20);
    for piece_len in [1 << 20, 300_000, 4096, 999] {
        let pieces: Vec<Bytes> = whole.chunks(piece_len).map(Bytes::copy_from_slice).collect();
        let reply = connection.call_with(&write(0, whole.len()), &pieces).await;
        assert_eq!(written(reply), whole.len() as u64);
        let received = site.keeper.bodies.lock().pop().expect("a body");
        assert!(received == whole, "cut by {piece_len}");
    }
    let reply = connection.call_with(&write(0, 0), &[]).await;
    assert_eq!(written(reply), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_short_or_too_long_fails_its_request_and_nothing_else() {
    let site = Site::start();
    let connection = site.connect().await;
    for (said, sent) in [(100, 50), (100, 101), (0, 1)] {
        let error = connection.call_with(&write(0, said), &[pattern(sent)]).await;
        let Err(CallError::Failed(failure)) = error else { panic!("{said}, {sent}: {error:?}") };
        assert_eq!(failure.status, Status::BadFrame, "{said}, {sent}: {failure}");
    }
    assert!(site.keeper.bodies.lock().is_empty());
    assert_eq!(written(connection.call_with(&write(0, 3), &[pattern(3)]).await), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_though_the_body_is_not_read() {
    let site = Site::start();
    let connection = site.connect().await;
    for _ in 0..20 {
        let error = connection.call_with(&write(1, 1 << 20), &[pattern(1 << 20)]).await;
        let Err(CallError::Failed(failure)) = error else { panic!("{error:?}") };
        assert_eq!(failure.status, Status::NoSpace);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_is_noticed_by_its_server() {
    let site = Site::start();
    let connection = site.connect().await;
    let request = Request::Fsyncdir { dir: handle(1) };
    let mut answer = connection.stream(&request).await.expect("it is sent");
    let getattr = Request::Getattr { handle: handle(1) };
    tokio::select! {
        biased;
        frame = answer.next() => panic!("{frame:?}"),
        reply = connection.call(&getattr) => {
            reply.expect("others are served meanwhile");
        }
    }
    drop(answer);
    while *site.keeper.closed.lock() < 100 {
        tokio::task::yield_now().await;
    }
    connection.close("done");
    while *site.keeper.closed.lock() < 101 {
        tokio::task::yield_now().await;
    }
}
