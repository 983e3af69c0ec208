//! Changes that other programs make in the exported directory.
//!
//! They are made by other processes here: what the brick's own process does it knows already.

use std::process::Command;
use std::time::Duration;

use portcullis_core::watch::Change;
use portcullis_core::{Entry, Handle, Status};
use portcullis_wire::message::Notices;
use portcullis_wire::{Reply, Request};

use crate::mutations::Client;
use crate::support::{TestBrick, attach, on_each_kind, status_of};

const LONG: Duration = Duration::from_secs(60);

/// Runs a shell command in the export.
fn sh(brick: &TestBrick, command: &str) {
    let status = Command::new("sh").args(["-c", command]).current_dir(brick.path("")).status();
    assert!(status.expect("it runs").success(), "{command}");
}

async fn lookup(client: &Client, dir: Handle, name: &str) -> Result<Entry, Status> {
    let request = Request::Lookup { dir, name: name.into() };
    match status_of(client.connection.call(&request).await)? {
        Reply::Entry(entry) => Ok(entry),
        other => panic!("{other:?}"),
    }
}

/// Waits until the client was told so; acknowledges whatever it is told.
async fn until_told(client: &Client, wanted: &[Change]) {
    let told = async {
        let mut missing = wanted.to_vec();
        while !missing.is_empty() {
            let recall = client.connection.next_recall().await.expect("it is told");
            let told = recall.changes().to_vec();
            missing.retain(|change| {
                let names = |dir| Change::Names { dir };
                let by_names =
                    matches!(change, Change::Name { dir, .. } if told.contains(&names(*dir)));
                !told.contains(change) && !told.contains(&Change::All) && !by_names
            });
            recall.acknowledge().await;
        }
    };
    if tokio::time::timeout(LONG, told).await.is_err() {
        panic!("not told of all of {wanted:?}");
    }
}

fn name(dir: Handle, name: &str) -> Change {
    Change::Name { dir, name: name.as_bytes().to_vec() }
}

on_each_kind! {
    async fn changes_of_other_programs_are_told(brick: TestBrick) {
        sh(&brick, "mkdir dir dir/sub; echo x > dir/file; echo y > other; ln dir/file link");
        let root = brick.root().await;
        let client = Client::new(&brick, 1, true).await.renewing();
        let dir = lookup(&client, root, "dir").await.expect("there").handle;
        let watch = async |name: &str| lookup(&client, dir, name).await.map(|e| e.handle);
        let attr = |handle| Change::Attr { handle };

        assert_eq!(watch("new").await, Err(Status::NotFound));
        sh(&brick, "echo z > dir/new");
        until_told(&client, &[name(dir, "new"), attr(dir)]).await;

        let new = watch("new").await.expect("there");
        sh(&brick, "echo z >> dir/new");
        until_told(&client, &[attr(new)]).await;
        watch("new").await.expect("there");
        sh(&brick, "chmod 600 dir/new");
        until_told(&client, &[attr(new)]).await;

        watch("new").await.expect("there");
        assert_eq!(lookup(&client, root, "moved").await, Err(Status::NotFound));
        sh(&brick, "mv dir/new moved");
        until_told(&client, &[name(dir, "new"), name(root, "moved"), attr(new)]).await;

        let moved = lookup(&client, root, "moved").await.expect("there").handle;
        assert_eq!(moved, new);
        sh(&brick, "mv other moved");
        until_told(&client, &[name(root, "moved")]).await;

        // By a name in another directory.
        let file = watch("file").await.expect("there");
        sh(&brick, "echo more >> link");
        until_told(&client, &[attr(file)]).await;

        // What a directory's own attributes follow.
        let sub = watch("sub").await.expect("there");
        sh(&brick, "mkdir dir/sub/deep");
        until_told(&client, &[attr(sub)]).await;
        watch("sub").await.expect("there");
        sh(&brick, "rmdir dir/sub/deep; rmdir dir/sub");
        until_told(&client, &[name(dir, "sub"), attr(sub)]).await;
    }

    async fn whoever_knows_a_file_by_its_handle_only_is_told(brick: TestBrick) {
        sh(&brick, "mkdir dir; echo x > dir/file");
        let root = brick.root().await;
        let known = brick.walk("dir/file").await.expect("there").handle;
        let client = Client::new(&brick, 1, true).await.renewing();
        let getattr = Request::Getattr { handle: known };
        client.connection.call(&getattr).await.expect("there");
        sh(&brick, "echo y >> dir/file");
        until_told(&client, &[Change::Attr { handle: known }]).await;
        // The content, too, by whoever reads it.
        let open = Request::Open { handle: known, flags: 0 };
        let Ok(Reply::Opened { file, .. }) = client.connection.call(&open).await else {
            panic!("not opened");
        };
        sh(&brick, "echo z >> dir/file");
        until_told(&client, &[Change::Attr { handle: known }]).await;
        let read = Request::Read { file, offset_bytes: 0, len_bytes: 100 };
        let mut stream = client.connection.stream(&read).await.expect("a stream");
        stream.next().await.expect("a frame");
        sh(&brick, "echo 0 >> dir/file");
        until_told(&client, &[Change::Attr { handle: known }]).await;
        let _ = root;
    }

    async fn every_entry_of_a_listing_is_watched(brick: TestBrick) {
        sh(&brick, "mkdir dir; cd dir; for n in $(seq 300); do echo $n > f$n; done; mkdir d1 d2");
        let dir = brick.walk("dir").await.expect("there").handle;
        let client = Client::new(&brick, 1, true).await.renewing();
        let mut stream = client
            .connection
            .stream(&Request::List { dir, after: vec![], acl: false, contents: None })
            .await
            .expect("a stream");
        while let Ok(portcullis_wire::ReplyFrame::Chunk(_)) = stream.next().await {}
        let handle = async |name: &str| brick.lookup(dir, name).await.expect("there").handle;
        let [first, last, sub] = [handle("f1").await, handle("f300").await, handle("d2").await];
        sh(&brick, "truncate -s 1 dir/f1; chmod 600 dir/f300; touch dir/d2/x; rm dir/f7");
        let told = [
            Change::Attr { handle: first },
            Change::Attr { handle: last },
            Change::Attr { handle: sub },
            name(dir, "f7"),
        ];
        until_told(&client, &told).await;
    }

    async fn how_changes_are_noticed_is_told(brick: TestBrick) {
        let attached = brick.call(attach(true)).await;
        let Ok(Reply::Attached { notices, lease_ms, session, .. }) = attached else {
            panic!("{attached:?}");
        };
        assert!(lease_ms > 0 && session > 0);
        assert_eq!(notices, brick.counters.direct.notices());
        if brick.choice == portcullis_brick::HandleChoice::MapByStat {
            assert_eq!(notices, Notices::Polling);
        }
        let renewed = brick.call(Request::Renew).await;
        assert!(matches!(renewed, Ok(Reply::Renewed { lease_ms: 1.., .. })), "{renewed:?}");
    }
}
