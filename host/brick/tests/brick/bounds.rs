//! What a peer can ask for at most, and that one which does not read disturbs nobody.

use std::time::Duration;

use portcullis_core::limits::{BRICK_STREAMS_PER_CONNECTION_MAX, BRICK_WORKERS_MAX};
use portcullis_transport::Role;
use portcullis_wire::{ReplyFrame, Request};

use crate::support::{connect, on_each_kind};

on_each_kind! {
    async fn readers_that_stall_hold_no_worker(brick: TestBrick) {
        for number in 0..3000 {
            std::fs::write(brick.path(&format!("{number:0>200}")), b"").expect("written");
        }
        let root = brick.root().await;
        let stalled = connect(&brick.identities, Role::Gateway, brick.address).await;
        let mut streams = Vec::new();
        for _ in 0..2 * BRICK_WORKERS_MAX {
            let request = Request::List { dir: root, after: vec![], acl: false, contents: None };
            streams.push(stalled.stream(&request).await.expect("a stream"));
        }
        // The connection's window is full of what nobody reads; another connection is served.
        let other = tokio::time::timeout(Duration::from_secs(20), brick.list(root, vec![]));
        assert_eq!(other.await.expect("in time").expect("listed").len(), 3000);
        // And what stalled goes on as soon as it is read.
        let mut first = streams.remove(0);
        drop(streams);
        let whole = async {
            let mut count = 0;
            loop {
                match first.next().await.expect("a frame") {
                    ReplyFrame::Chunk(chunk) => count += chunk.count(),
                    _ => return count,
                }
            }
        };
        let count = tokio::time::timeout(Duration::from_secs(20), whole).await.expect("in time");
        assert_eq!(count, 3000);
    }

    async fn more_listings_than_may_be_under_way_wait_and_are_answered(brick: TestBrick) {
        for number in 0..100 {
            std::fs::write(brick.path(&format!("file{number}")), b"").expect("written");
        }
        let root = brick.root().await;
        let request = Request::List { dir: root, after: vec![], acl: false, contents: None };
        let mut streams = Vec::new();
        for _ in 0..3 * BRICK_STREAMS_PER_CONNECTION_MAX {
            streams.push(brick.connection.stream(&request).await.expect("a stream"));
        }
        // Answered in any order, and read in the opposite one.
        for mut stream in streams.into_iter().rev() {
            let mut count = 0;
            while let ReplyFrame::Chunk(chunk) = stream.next().await.expect("a frame") {
                count += chunk.count();
            }
            assert_eq!(count, 100);
        }
    }
}
