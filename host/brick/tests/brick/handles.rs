//! Handles: authentic, stable, and never another file's.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use portcullis_brick::HandleChoice;
use portcullis_core::{Handle, Status};
use portcullis_transport::IdentitySet;

use crate::support::{
    TestBrick, local_attr, on_each_kind, runtime, skipped, wait_for_the_next_tick,
};

/// Files made before an inode number is expected to come again.
const REUSE_TRIES: usize = 2000;

on_each_kind! {
    async fn a_handle_with_any_byte_changed_is_refused(brick: TestBrick) {
        std::fs::write(brick.path("file"), b"").expect("written");
        let handle = brick.walk("file").await.expect("there").handle;
        let mut forged = Vec::new();
        for index in 0..handle.as_bytes().len() {
            for bit in 0..8 {
                let mut bytes = handle.as_bytes().to_vec();
                bytes[index] ^= 1 << bit;
                forged.push(bytes);
            }
            forged.push(handle.as_bytes()[..index].to_vec());
        }
        forged.push([handle.as_bytes(), b"\0"].concat());
        for bytes in &forged {
            let handle = Handle::new(bytes).expect("short");
            assert_eq!(brick.getattr(handle).await, Err(Status::BadHandle), "{handle:?}");
            assert_eq!(brick.list(handle, vec![]).await, Err(Status::BadHandle), "{handle:?}");
        }
        assert_eq!(brick.bad_handles(), 2 * forged.len() as u64);
        assert!(brick.getattr(handle).await.is_ok());
    }

    async fn a_handle_of_another_export_or_identity_is_refused(brick: TestBrick) {
        std::fs::create_dir(brick.path("inner")).expect("made");
        std::fs::write(brick.path("inner/file"), b"").expect("written");
        let outer = brick.walk("inner/file").await.expect("there").handle;
        let start = async |path: &Path, identities: Arc<IdentitySet>| {
            TestBrick::start_on(path, brick.tree.clone(), identities, brick.choice)
                .await
                .expect("it starts")
        };
        let nested = start(&brick.path("inner"), brick.identities.clone()).await;
        assert_eq!(nested.getattr(outer).await, Err(Status::BadHandle));
        let inner = nested.walk("file").await.expect("there").handle;
        assert_eq!(brick.getattr(inner).await, Err(Status::BadHandle));
        let others = Arc::new(IdentitySet::generate().expect("identities"));
        let other = start(&brick.path(""), others).await;
        assert_eq!(other.getattr(outer).await, Err(Status::BadHandle));
    }

    async fn a_handle_is_the_same_by_every_way_and_after_a_rename(brick: TestBrick) {
        std::fs::create_dir_all(brick.path("dir/sub")).expect("made");
        std::fs::write(brick.path("dir/file"), b"content").expect("written");
        std::fs::hard_link(brick.path("dir/file"), brick.path("hard")).expect("linked");
        let file = brick.walk("dir/file").await.expect("there").handle;
        let sub = brick.walk("dir/sub").await.expect("there").handle;
        assert_eq!(brick.walk("hard").await.expect("there").handle, file);
        let dir = brick.walk("dir").await.expect("there").handle;
        let listed = brick.list(dir, vec![]).await.expect("listed");
        assert!(listed.iter().any(|(name, entry, _)| name == b"file" && entry.handle == file));

        std::fs::remove_file(brick.path("hard")).expect("removed");
        std::fs::rename(brick.path("dir/file"), brick.path("dir/sub/moved")).expect("renamed");
        std::fs::rename(brick.path("dir"), brick.path("renamed")).expect("renamed");
        if brick.choice == HandleChoice::Kernel {
            assert!(brick.getattr(file).await.is_ok());
            assert!(brick.lookup(sub, "moved").await.is_ok());
        } else {
            assert_eq!(brick.getattr(file).await, Err(Status::Stale));
        }
        // Once the new names were seen, the handles work as before.
        assert_eq!(brick.walk("renamed/sub/moved").await.expect("there").handle, file);
        assert_eq!(brick.walk("renamed/sub").await.expect("there").handle, sub);
        assert_eq!(brick.getattr(file).await, Ok(local_attr(&brick.path("renamed/sub/moved"))));
        let opened = brick.open(file).await.expect("opened");
        assert_eq!(brick.read(opened, 0, 100).await, Ok(b"content".to_vec()));
    }

    async fn after_a_restart_a_handle_is_the_same(brick: TestBrick) {
        std::fs::create_dir(brick.path("dir")).expect("made");
        std::fs::write(brick.path("dir/file"), b"content").expect("written");
        let root = brick.root().await;
        let file = brick.walk("dir/file").await.expect("there").handle;
        let brick = brick.restart().await;
        assert_eq!(brick.root().await, root);
        if brick.choice == HandleChoice::Kernel {
            assert!(brick.getattr(file).await.is_ok());
        } else {
            assert_eq!(brick.getattr(file).await, Err(Status::Stale), "documented");
        }
        assert!(brick.lookup(root, "dir").await.is_ok(), "the root works at once");
        assert_eq!(brick.walk("dir/file").await.expect("there").handle, file);
        assert!(brick.getattr(file).await.is_ok());
    }

    async fn an_inode_number_used_again_does_not_bring_another_file(brick: TestBrick) {
        let path = brick.path("file");
        std::fs::write(&path, b"first").expect("written");
        let first = brick.walk("file").await.expect("there");
        let ino = first.attr.expect("known").ino;
        std::fs::remove_file(&path).expect("removed");
        wait_for_the_next_tick();
        let mut made = Vec::new();
        let mut reused = false;
        while !reused && made.len() < REUSE_TRIES {
            let other = brick.path(&format!("other{}", made.len()));
            std::fs::write(&other, b"second").expect("written");
            reused = std::fs::metadata(&other).expect("metadata").ino() == ino;
            made.push(other);
        }
        if reused {
            // Even under the old name.
            std::fs::rename(made.pop().expect("one"), &path).expect("renamed");
        } else {
            skipped("an inode number used again", "the file system did not use one again");
            std::fs::write(&path, b"second").expect("written");
        }
        assert_eq!(brick.getattr(first.handle).await, Err(Status::Stale));
        assert_eq!(brick.open(first.handle).await, Err(Status::Stale));
        let second = brick.walk("file").await.expect("there");
        assert_ne!(second.handle, first.handle);
        assert_eq!(second.attr.expect("known").ino == ino, reused);
        assert_eq!(brick.getattr(first.handle).await, Err(Status::Stale));
    }

    async fn a_directory_moved_out_of_the_export_is_out_of_reach(brick: TestBrick) {
        std::fs::create_dir_all(brick.path("dir/sub")).expect("made");
        std::fs::write(brick.path("dir/sub/file"), b"").expect("written");
        let dir = brick.walk("dir").await.expect("there").handle;
        let sub = brick.walk("dir/sub").await.expect("there").handle;
        let outside = brick.tree.path().join("outside");
        std::fs::rename(brick.path("dir"), &outside).expect("moved");
        for handle in [dir, sub] {
            assert_eq!(brick.lookup(handle, "file").await, Err(Status::Stale));
            assert_eq!(brick.list(handle, vec![]).await, Err(Status::Stale));
            assert_eq!(brick.getattr(handle).await, Err(Status::Stale));
        }
        std::fs::rename(&outside, brick.path("dir")).expect("moved back");
        assert!(brick.lookup(sub, "file").await.is_ok());
    }
}

#[test]
fn a_kernel_handle_of_ext4_takes_eighteen_bytes() {
    runtime().block_on(async {
        let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
        let fs_type = rustix::fs::statfs(brick.path("").as_path()).expect("statfs").f_type;
        if brick.choice != HandleChoice::Kernel || fs_type != 0xef53 {
            return skipped(
                "a_kernel_handle_of_ext4_takes_eighteen_bytes",
                "not root, or not ext4",
            );
        }
        assert_eq!(brick.root().await.as_bytes().len(), 18);
    });
}
