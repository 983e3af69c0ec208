//! Listings: every entry once, resumed after any, in the face of changes.

use std::collections::BTreeMap;

use portcullis_core::{Chunk, Status};
use portcullis_wire::{ReplyFrame, Request};

use crate::support::{local_attr, on_each_kind};

const ENTRIES: usize = 5000;

on_each_kind! {
    async fn a_listing_tells_what_lookup_tells(brick: TestBrick) {
        std::fs::create_dir(brick.path("dir")).expect("made");
        std::fs::write(brick.path("file"), b"content").expect("written");
        std::os::unix::fs::symlink("file", brick.path("link")).expect("made");
        let root = brick.root().await;
        let listed = brick.list(root, vec![]).await.expect("listed");
        assert_eq!(listed.len(), 3, "neither . nor ..");
        for (name, entry, _) in listed {
            assert_eq!(Ok(&entry), brick.lookup(root, &name).await.as_ref());
            let path = brick.path(std::str::from_utf8(&name).expect("ours"));
            assert_eq!(entry.attr, Some(local_attr(&path)));
            // The handle works without a lookup of its name.
            assert_eq!(brick.getattr(entry.handle).await, Ok(local_attr(&path)));
        }
    }

    async fn an_empty_directory_ends_and_a_file_is_no_directory(brick: TestBrick) {
        std::fs::create_dir(brick.path("empty")).expect("made");
        std::fs::write(brick.path("file"), b"").expect("written");
        let empty = brick.walk("empty").await.expect("there").handle;
        assert_eq!(brick.list(empty, vec![]).await, Ok(vec![]));
        let file = brick.walk("file").await.expect("there").handle;
        assert_eq!(brick.list(file, vec![]).await, Err(Status::NotDirectory));
    }

    async fn many_entries_come_once_each_and_resume_after_any_of_them(brick: TestBrick) {
        for number in 0..ENTRIES {
            std::fs::write(brick.path(&format!("entry-{number:06}")), b"").expect("written");
        }
        let root = brick.root().await;
        let chunks = brick.list_chunks(root, vec![]).await.expect("listed");
        assert!(chunks[0].count() <= 32, "the first entries come early");
        let whole: Vec<(Vec<u8>, u64)> = chunks
            .iter()
            .flat_map(Chunk::entries)
            .map(|entry| (entry.name.to_vec(), entry.cookie))
            .collect();
        let mut names: Vec<&[u8]> = whole.iter().map(|(name, _)| &name[..]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((whole.len(), names.len()), (ENTRIES, ENTRIES));

        // `scan.rs` tests every single position; here some, over the wire and to the end.
        for (index, &(_, cookie)) in whole.iter().enumerate().step_by(ENTRIES / 12).chain([
            (ENTRIES - 2, &whole[ENTRIES - 2]),
            (ENTRIES - 1, &whole[ENTRIES - 1]),
        ]) {
            let listed = brick.list(root, vec![cookie]).await.expect("listed");
            let listed: Vec<_> = listed.into_iter().map(|(name, _, at)| (name, at)).collect();
            assert!(listed == whole[index + 1..], "after entry {index}");
        }
        assert_eq!(brick.list(root, vec![0]).await.expect("listed").len(), ENTRIES);
    }

    async fn nonsense_positions_are_refused(brick: TestBrick) {
        std::fs::write(brick.path("file"), b"").expect("written");
        let root = brick.root().await;
        for after in [vec![u64::MAX], vec![1 << 63], vec![0, 0], vec![1; 300]] {
            let answer = brick.list(root, after.clone()).await;
            assert_eq!(answer, Err(Status::InvalidArgument), "{after:?}");
        }
    }

    async fn what_stays_is_listed_once_while_everything_else_changes(brick: TestBrick) {
        for number in 0..3000 {
            std::fs::write(brick.path(&format!("stays-{number:04}")), b"").expect("written");
            std::fs::write(brick.path(&format!("goes-{number:04}")), b"").expect("written");
        }
        let root = brick.root().await;
        let request = Request::List { dir: root, after: vec![], acl: false, contents: None };
        let mut stream = brick.connection.stream(&request).await.expect("a stream");
        let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut changed = false;
        loop {
            match stream.next().await.expect("a frame") {
                ReplyFrame::Chunk(chunk) => {
                    for entry in chunk.entries() {
                        assert!(entry.attr.is_some(), "{}", entry.name.escape_ascii());
                        *seen.entry(entry.name.to_vec()).or_default() += 1;
                    }
                }
                ReplyFrame::End { complete } => break assert!(complete),
                other => panic!("{other:?}"),
            }
            if !changed {
                changed = true;
                for number in 0..3000 {
                    std::fs::remove_file(brick.path(&format!("goes-{number:04}"))).expect("removed");
                    std::fs::write(brick.path(&format!("comes-{number:04}")), b"").expect("written");
                }
            }
        }
        assert!(seen.values().all(|&count| count == 1), "something twice");
        let stayed = seen.keys().filter(|name| name.starts_with(b"stays-")).count();
        assert_eq!(stayed, 3000);
    }
}
