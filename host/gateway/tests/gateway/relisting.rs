//! A directory that was listed once is listed from memory, whatever changes in it one by one.

use std::collections::BTreeMap;
use std::fs;

use portcullis_core::position::advance;
use portcullis_wire::message::Mutation;
use portcullis_wire::{ReplyFrame, Request};

use crate::coherence::two_gateways;
use crate::harness::{Stand, by_name, drain_listing, frame, serve};
use crate::mount::{Mount, O_RDWR, chmod};
use crate::tree;

const ENTRIES: usize = 1_000;

/// Listings and single attributes that the brick was asked for.
async fn asked(stand: &Stand) -> (u64, u64) {
    let requests = stand.brick_requests().await;
    let of = |verb: &str| requests.get(verb).copied().unwrap_or(0);
    (of("list"), of("getattr"))
}

async fn assert_is_listed(mount: &Mount, path: &std::path::Path) {
    let listed = mount.client.list(mount.root).await;
    // Where the brick keeps removed files that are open, it is hidden.
    let is_shown = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let local = fs::read_dir(path).unwrap().map(Result::unwrap).filter(is_shown).count();
    assert_eq!(listed.len(), local);
    for (name, entry) in &listed {
        tree::assert_entry(&path.join(String::from_utf8(name.clone()).unwrap()), entry);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_changes_needs_no_new_listing() {
    let dir = tree::flat(ENTRIES);
    let (_brick, stand) = serve(dir.path());
    let mount = Mount::new(&stand).await;
    assert_is_listed(&mount, dir.path()).await;
    let (lists, _) = asked(&stand).await;
    for round in 0..20 {
        mount.create(mount.root, format!("new-{round}").as_bytes(), O_RDWR).await.unwrap();
        let name = format!("name-{}", round * 40).into_bytes();
        mount.done(Mutation::Unlink { dir: mount.root, name }).await;
        let name = format!("name-{}", round * 40 + 1);
        let handle = mount.watch(mount.root, name.as_bytes()).await.handle;
        mount.done(chmod(handle, 0o600 + round)).await;
        assert_is_listed(&mount, dir.path()).await;
    }
    assert_eq!(asked(&stand).await.0, lists, "not one more for 60 changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_that_others_changed_are_asked_for_one_by_one() {
    let dir = tree::flat(ENTRIES);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (reader, writer) = (Mount::new(&near).await, Mount::new(&far).await);
    assert_is_listed(&reader, dir.path()).await;
    let before = asked(&near).await;
    for number in [3, 500, 999] {
        let name = format!("name-{number}");
        let handle = writer.watch(writer.root, name.as_bytes()).await.handle;
        writer.done(chmod(handle, 0o604)).await;
    }
    assert_is_listed(&reader, dir.path()).await;
    assert_is_listed(&reader, dir.path()).await;
    assert_eq!(asked(&near).await, (before.0, before.1 + 3));
}

/// S-LIST-1: names that this gateway learnt come first, and not again from the brick.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_began_with_new_names_goes_on_at_the_brick_without_them() {
    let dir = tree::flat(ENTRIES);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (reader, writer) = (Mount::new(&near).await, Mount::new(&far).await);
    for chunks in 0..5 {
        reader.client.list(reader.root).await;
        for new in 0..2 {
            let name = format!("new-{chunks}-{new}");
            reader.create(reader.root, name.as_bytes(), O_RDWR).await.unwrap();
        }
        let throughout = fs::read_dir(dir.path()).unwrap().count();
        let (lists, _) = asked(&near).await;
        let request =
            Request::List { dir: reader.root, after: Vec::new(), acl: false, contents: None };
        let mut stream = reader.client.stream(request).await;
        let (mut position, mut got) = (Vec::new(), BTreeMap::new());
        for _ in 0..chunks {
            let ReplyFrame::Chunk(chunk) = frame(&mut stream).await else { panic!("no chunk") };
            advance(&mut position, &chunk, chunk.count() - 1);
            got.extend(chunk.entries().map(|entry| (entry.name.to_vec(), entry.to_entry())));
        }
        drop(stream);
        // Somebody else makes a file: the names are no longer known whole.
        let made = format!("other-{chunks}");
        writer.create(writer.root, made.as_bytes(), O_RDWR).await.unwrap();
        let mut stream = reader
            .client
            .stream(Request::List { dir: reader.root, after: position, acl: false, contents: None })
            .await;
        let (rest, ended) = drain_listing(&mut stream).await;
        assert_eq!(ended, Ok(true));
        for (name, entry) in by_name(rest) {
            let known = String::from_utf8_lossy(&name).into_owned();
            assert!(got.insert(name, entry).is_none(), "{known} came twice after {chunks}");
        }
        let new = usize::from(got.contains_key(made.as_bytes()));
        assert_eq!(got.len(), throughout + new, "after {chunks}");
        assert_eq!(asked(&near).await.0, lists + 1, "the brick was asked to go on");
    }
}
