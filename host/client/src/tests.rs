//! Tests of the client against a gateway that misbehaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_transport::IdentitySet;

use crate::testing::{Gateway, Tree, anywhere, client_identity, connect, serve};
use crate::{Address, Client, ClientError, ClientOptions, ReadAhead};

fn wide(files: usize) -> Tree {
    let mut tree = Tree::new();
    for _ in 0..files {
        tree.add(0, false);
    }
    tree.chunk_entries = 10;
    tree
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_after_a_restart_where_it_was() {
    let (_tree, gateway, set, client) = serve(Tree { stops_after_a_chunk: true, ..wide(35) }).await;
    let mut listing = client.list(&client.root().handle, Vec::new()).await.expect("it starts");
    let mut names: Vec<Vec<u8>> = Vec::new();
    let chunk = listing.next().await.expect("a chunk").expect("a chunk");
    names.extend(chunk.entries().map(|entry| entry.name.to_vec()));
    let address = gateway.address;
    gateway.stop().await;
    let _again = Gateway::start(&set, address, Arc::new(wide(35))).await;
    while let Some(chunk) = listing.next().await.expect("it goes on") {
        names.extend(chunk.entries().map(|entry| entry.name.to_vec()));
    }
    assert!(listing.complete());
    let expected: Vec<Vec<u8>> = (1..=35).map(|node| node.to_string().into_bytes()).collect();
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_brings_nothing_over_a_new_connection_fails() {
    let (tree, gateway, set, client) = serve(Tree { stops_after_a_chunk: true, ..wide(35) }).await;
    let mut listing = client.list(&client.root().handle, Vec::new()).await.expect("it starts");
    listing.next().await.expect("a chunk");
    let address = gateway.address;
    gateway.stop().await;
    let again = Gateway::start(&set, address, tree).await;
    listing.next().await.expect("the second chunk");
    again.stop().await;
    let error = listing.next().await.expect_err("nobody is there");
    assert_eq!(error.status(), Status::Unavailable);
    assert!(listing.next().await.expect("it is over").is_none());
    assert!(!listing.complete());
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_come_with_the_chunk_that_has_their_entries() {
    let tree = Tree { contents: vec![(0, ""), (7, "")], ..wide(20) };
    let (_tree, _gateway, _set, client) = serve(tree).await;
    let mut listing = client.list(&client.root().handle, Vec::new()).await.expect("it starts");
    for _ in 0..2 {
        assert_eq!(listing.next().await.expect("a chunk").expect("a chunk").count(), 10);
        let indices: Vec<_> = listing.take_contents().into_iter().map(|(index, _)| index).collect();
        assert_eq!(indices, [0, 7]);
    }
    assert!(listing.next().await.expect("the end").is_none() && listing.complete());
}

/// What a hostile gateway sends as contents is no content of any file.
#[tokio::test(flavor = "multi_thread")]
async fn contents_that_belong_to_no_entry_fail_the_listing() {
    let cases = [
        (vec![(3, "longer than the file")], "has another size"),
        (vec![(10, "")], "no regular file of the chunk"),
        (vec![(5, ""), (5, "")], "after that of a later one"),
        (vec![(5, ""), (4, "")], "after that of a later one"),
    ];
    for (contents, why) in cases {
        let (_tree, _gateway, _set, client) = serve(Tree { contents, ..wide(10) }).await;
        let mut listing = client.list(&client.root().handle, Vec::new()).await.expect("it starts");
        let error = listing.next().await.expect_err("it is refused");
        assert!(error.to_string().contains(why), "{error}");
        assert!(listing.next().await.expect("it is over").is_none() && !listing.complete());
    }
    let tree = Tree { contents: vec![(0, "")], lacks_chunk: true, ..wide(10) };
    let (_tree, _gateway, _set, client) = serve(tree).await;
    let mut listing = client.list(&client.root().handle, Vec::new()).await.expect("it starts");
    let error = listing.next().await.expect_err("it is refused");
    assert!(error.to_string().contains("that no chunk follows"), "{error}");
}

/// S-FAIL-2.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_a_mount_waits_for_a_server_that_is_away_and_one_of_a_command_does_not() {
    let (tree, gateway, set, command) = serve(wide(35)).await;
    let root = command.root().handle;
    let mount =
        ClientOptions { watch: true, request_timeout_ms: 2_000, acl: false, contents: false };
    let mount = connect(&set, gateway.address, mount).await;
    let first = async |client: &Client| {
        client.list(&root, Vec::new()).await.expect("it starts").next().await
    };
    for (client, away, waits) in [(&mount, 3, true), (&mount, 1_000, false), (&command, 1, false)] {
        tree.away.store(away, Ordering::Relaxed);
        match first(client).await {
            Ok(chunk) => assert!(waits && chunk.is_some_and(|chunk| chunk.count() > 0)),
            Err(error) => assert_eq!((waits, error.status()), (false, Status::Unavailable)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_is_opened_again_after_a_restart_and_stale_when_it_is_gone() {
    let content = Bytes::from((0..5_000_u32).map(|byte| byte as u8).collect::<Vec<u8>>());
    let with_content = |files| Tree { content: content.clone(), ..wide(files) };
    let (_tree, gateway, set, client) = serve(with_content(2)).await;
    let entry = client.resolve(b"/2").await.expect("it is there");
    let file = client.open(&entry.handle).await.expect("it opens");
    assert_eq!(file.attr().size_bytes, 5_000);
    assert_eq!(file.read(10, 4_000).await.expect("it reads").concat(), content[10..4_010]);
    let address = gateway.address;
    gateway.stop().await;
    let gateway = Gateway::start(&set, address, Arc::new(with_content(2))).await;
    assert_eq!(file.read(4_990, 100).await.expect("it reads").concat(), content[4_990..]);
    assert_eq!(file.read(5_000, 100).await.expect("it reads").concat(), b"");
    gateway.stop().await;
    let _gateway = Gateway::start(&set, address, Arc::new(with_content(1))).await;
    let error = file.read(0, 1).await.expect_err("the file is gone");
    assert_eq!(error.status(), Status::Stale);
    file.release().await.expect("nothing is left to release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_ahead_in_order_to_its_end_also_where_it_grew() {
    for (len, announced) in
        [(0, 0), (1, 1), (3 << 20, 3 << 20), (6_000_123, 6_000_123), (6_000_123, 0)]
    {
        let content = Bytes::from((0..len).map(|at: u32| (at / 251) as u8).collect::<Vec<u8>>());
        let announced = Some(announced);
        let tree = Tree { content: content.clone(), announced, ..wide(1) };
        let (_tree, _gateway, _set, client) = serve(tree).await;
        let entry = client.resolve(b"/1").await.expect("it is there");
        let mut pieces = ReadAhead::new(client.open(&entry.handle).await.expect("it opens"));
        let mut read = Vec::new();
        while let Some(piece) = pieces.next().await.expect("it reads") {
            assert!(!piece.is_empty());
            read.extend_from_slice(&piece);
        }
        assert!(read == content, "{len} bytes, {announced:?} announced: {} read", read.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_keeps_silent_is_not_waited_for_beyond_the_deadline() {
    let set = IdentitySet::generate().expect("a set");
    let tree = Arc::new(Tree { silent: true, ..wide(1) });
    let gateway = Gateway::start(&set, anywhere(), tree).await;
    let client = connect(
        &set,
        gateway.address,
        ClientOptions { request_timeout_ms: 300, ..ClientOptions::default() },
    )
    .await;
    let error = client.getattr(&client.root().handle).await.expect_err("silence");
    assert_eq!(
        error.to_string(),
        format!("no answer from the gateway at {} in 300 ms", gateway.address)
    );
    assert_eq!(error.status(), Status::Unavailable);
    client.lookup(&client.root().handle, b"1").await.expect("other requests go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_gateway_that_is_down_fail_together_and_work_again_once_it_is_back() {
    let (tree, gateway, set, client) = serve(wide(1)).await;
    let address = gateway.address;
    gateway.stop().await;
    let begun = Instant::now();
    let requests: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.getattr(&client.root().handle).await })
        })
        .collect();
    for request in requests {
        let error = request.await.expect("no panic").expect_err("nobody is there");
        assert_eq!(error.status(), Status::Unavailable);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    // One attempt to connect takes five seconds; fifty in a row would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let _gateway = Gateway::start(&set, address, tree).await;
    client.getattr(&client.root().handle).await.expect("it is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_another_ca_is_told_so() {
    let (_tree, gateway, _set, _client) = serve(wide(1)).await;
    let other = IdentitySet::generate().expect("a set");
    let address = Address::root_of(gateway.address);
    let connected =
        Client::connect(&address, client_identity(&other), ClientOptions::default()).await;
    let error = connected.expect_err("not of our CA");
    assert!(matches!(error, ClientError::Connect(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_resolved_name_by_name() {
    let mut tree = Tree::new();
    let dir = tree.add(0, true);
    let file = tree.add(dir, false);
    let (_tree, _gateway, _set, client) = serve(tree).await;
    let found = client.resolve(format!("//{dir}/./{file}").as_bytes()).await.expect("it is there");
    assert_eq!(found.attr.map(|attr| attr.ino), Some(file as u64));
    assert_eq!(client.resolve(b"").await.expect("the root").handle, client.root().handle);
    let error = client.resolve(b"/1/9").await.expect_err("no such name");
    assert_eq!(error.status(), Status::NotFound);
    let error = client.resolve(b"/1/../1").await.expect_err("no way up");
    assert_eq!(error.status(), Status::InvalidArgument);
}
