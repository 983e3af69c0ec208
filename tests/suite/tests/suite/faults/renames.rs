//! Names that move, and files with several.

use std::fs;
use std::os::unix::fs::MetadataExt;

use portcullis_suite::share::Share;
use portcullis_suite::{run, tree, view};

use super::meanwhile;

/// nbs#7151, libfuse#637: while one host replaces a file over and over, another one that polls it
/// was told ENOENT for seconds. S-ATOMIC-1.
#[test]
fn a_file_that_is_replaced_is_there_at_every_moment() {
    let name = "a_file_that_is_replaced_is_there_at_every_moment";
    let Some(share) = Share::three(name) else { return };
    fs::write(share.mount(0).join("f"), "0").expect("a file");
    meanwhile(
        |round| {
            fs::write(share.mount(1).join("next"), round.to_string()).expect("a file");
            fs::rename(share.mount(1).join("next"), share.mount(1).join("f")).expect("renamed");
        },
        || {
            for _ in 0..600 {
                for mount in [0, 2] {
                    let content = view::content(&share.mount(mount).join("f"));
                    assert!(content.parse::<u64>().is_ok(), "mount {mount} saw {content:?}");
                    assert_eq!(view::kind(&share.mount(mount).join("f")), "file");
                }
            }
        },
    );
}

/// gcsfuse#4204, matchlock#81: what lay below a renamed directory was asked for by its old path.
#[test]
fn what_lies_below_a_renamed_directory_is_found_there() {
    let name = "what_lies_below_a_renamed_directory_is_found_there";
    let Some(share) = Share::three(name) else { return };
    let one = share.mount(0);
    fs::create_dir_all(one.join("a/b/c")).expect("directories");
    fs::write(one.join("a/b/c/f"), "content").expect("a file");
    for mover in [0, 1, 2] {
        let root = share.mount(mover);
        let before = view::tree(&one.join("a"));
        fs::rename(root.join("a"), root.join("z")).expect("renamed");
        assert_eq!(view::content(&one.join("z/b/c/f")), "content");
        assert_eq!(view::kind(&one.join("a/b/c/f")), "error 2");
        fs::create_dir_all(root.join("a/b/c")).expect("directories of the old names");
        fs::write(root.join("a/b/c/f"), "another").expect("a file");
        assert_eq!(view::content(&one.join("a/b/c/f")), "another");
        assert_eq!(view::content(&one.join("z/b/c/f")), "content");
        view::assert_same_tree("renamed", &view::tree(&one.join("z")), &before);
        fs::remove_dir_all(root.join("a")).expect("removed");
        fs::rename(root.join("z"), root.join("a")).expect("renamed back");
    }
}

/// seaweedfs#2068: a directory was renamed, and its new name was ENOENT.
#[test]
fn the_new_name_of_a_directory_is_there_at_once() {
    let Some(share) = Share::three("the_new_name_of_a_directory_is_there_at_once") else { return };
    fs::create_dir(share.mount(0).join("d0")).expect("a directory");
    for round in 0..30_usize {
        let (old, new) = (format!("d{round}"), format!("d{}", round + 1));
        for mount in 0..3 {
            assert_eq!(view::kind(&share.mount(mount).join(&new)), "error 2");
        }
        let mover = share.mount(round % 3);
        fs::rename(mover.join(&old), mover.join(&new)).expect("renamed");
        for mount in 0..3 {
            assert_eq!(view::kind(&share.mount(mount).join(&new)), "directory", "mount {mount}");
            assert_eq!(view::kind(&share.mount(mount).join(&old)), "error 2", "mount {mount}");
        }
    }
}

/// gluster#962: after a rename both names resolved.
#[test]
fn after_a_rename_one_name_is_left() {
    let Some(share) = Share::three("after_a_rename_one_name_is_left") else { return };
    for name in ["src", "dst"] {
        fs::write(share.mount(0).join(name), name).expect("a file");
    }
    for mount in 0..3 {
        assert_eq!(view::content(&share.mount(mount).join("dst")), "dst");
    }
    fs::rename(share.mount(1).join("src"), share.mount(1).join("dst")).expect("renamed");
    for mount in 0..3 {
        let root = share.mount(mount);
        assert_eq!(view::names(root, ""), "dst=file", "mount {mount}");
        assert_eq!(view::kind(&root.join("src")), "error 2", "mount {mount}");
        assert_eq!(view::content(&root.join("dst")), "src", "mount {mount}");
    }
}

/// gluster#3436, #2726: after many renames a listing showed a name twice.
#[test]
fn no_name_is_listed_twice_after_many_renames() {
    let Some(share) = Share::two("no_name_is_listed_twice_after_many_renames") else { return };
    let dir = share.mount(0).join("d");
    fs::create_dir(&dir).expect("a directory");
    for number in 0..200 {
        fs::write(dir.join(format!("{number}")), "").expect("a file");
    }
    for round in 0..400_usize {
        let (from, to) = (round % 200, (round * 7 + 3) % 200);
        let root = share.mount(round % 2).join("d");
        if from != to && root.join(from.to_string()).exists() {
            fs::rename(root.join(from.to_string()), root.join(to.to_string())).expect("renamed");
        }
        if round % 40 == 39 {
            for mount in [0, 1] {
                let names: Vec<_> = fs::read_dir(share.mount(mount).join("d"))
                    .expect("it lists")
                    .map(|entry| entry.expect("an entry").file_name())
                    .collect();
                let unique: std::collections::BTreeSet<_> = names.iter().collect();
                assert_eq!(unique.len(), names.len(), "a name twice");
                let below = fs::read_dir(share.export().join("d")).expect("it lists").count();
                assert_eq!(names.len(), below, "round {round}");
            }
        }
    }
}

/// seaweedfs#9062: one link was removed, and the link count of the others stayed as it was.
#[test]
fn links_of_one_file_tell_the_same_count() {
    let Some(share) = Share::three("links_of_one_file_tell_the_same_count") else { return };
    let one = share.mount(0);
    fs::create_dir(one.join("d")).expect("a directory");
    fs::write(one.join("a"), "content").expect("a file");
    let links = |mount: usize, name: &str| {
        fs::symlink_metadata(share.mount(mount).join(name)).expect("attributes").nlink()
    };
    for maker in 0..3 {
        fs::hard_link(share.mount(maker).join("a"), share.mount(maker).join("d/b"))
            .expect("linked");
        for mount in 0..3 {
            assert_eq!((links(mount, "a"), links(mount, "d/b")), (2, 2), "{maker} {mount}");
        }
        fs::remove_file(share.mount((maker + 1) % 3).join("d/b")).expect("removed");
        for mount in 0..3 {
            assert_eq!(links(mount, "a"), 1, "linked by {maker}, seen by {mount}");
        }
    }
}

/// curvine#1550: the first link of a file was removed and its name made anew; writes to the new
/// file went to the old one.
#[test]
fn a_new_file_of_an_old_name_is_a_new_file() {
    let Some(share) = Share::three("a_new_file_of_an_old_name_is_a_new_file") else { return };
    fs::write(share.mount(0).join("first"), "old").expect("a file");
    fs::hard_link(share.mount(0).join("first"), share.mount(0).join("second")).expect("linked");
    for mount in 0..3 {
        assert_eq!(view::content(&share.mount(mount).join("first")), "old");
    }
    fs::remove_file(share.mount(1).join("first")).expect("removed");
    fs::write(share.mount(1).join("first"), "new").expect("a new file");
    fs::write(share.mount(2).join("first"), "newer").expect("written");
    for mount in 0..3 {
        assert_eq!(view::content(&share.mount(mount).join("second")), "old", "mount {mount}");
        assert_eq!(view::content(&share.mount(mount).join("first")), "newer", "mount {mount}");
    }
    let inode = |name: &str| fs::metadata(share.mount(0).join(name)).expect("attributes").ino();
    assert_ne!(inode("first"), inode("second"));
}

/// mergerfs#468: rm -rf of a large tree stopped half-way with ENOENT.
#[test]
fn one_removal_removes_a_whole_tree() {
    let Some(share) = Share::two("one_removal_removes_a_whole_tree") else { return };
    let dir = share.export().join("tree");
    fs::create_dir(&dir).expect("a directory");
    tree::wide(&dir, 150, 12);
    fs::create_dir_all(dir.join("a/b/c/d/e/f/g/h")).expect("directories");
    portcullis_suite::wait::until("it is seen", || {
        (fs::read_dir(share.mount(1).join("tree")).ok()?.count() == 151).then_some(())
    });
    run::sh(share.mount(0), "rm -r tree");
    for root in [share.mount(0), share.mount(1), share.export()] {
        assert_eq!(view::kind(&root.join("tree")), "error 2");
    }
}

/// The kernel knew a directory at its old place, and could not rename it from the new one: ESTALE.
/// S-COH-7.
#[test]
fn a_directory_that_another_mount_moved_can_be_moved_on() {
    let name = "a_directory_that_another_mount_moved_can_be_moved_on";
    let Some(share) = Share::three(name) else { return };
    for mover in [1, 2] {
        let (one, other) = (share.mount(0), share.mount(mover));
        for round in 0..10 {
            let at = |name: &str| format!("{mover}-{round}-{name}");
            for dir in [at("a"), at("b"), format!("{}/e", at("b"))] {
                fs::create_dir(one.join(dir)).expect("a directory");
            }
            fs::write(one.join(at("b")).join("e/f"), "content").expect("a file");
            assert_eq!(view::content(&one.join(at("b")).join("e/f")), "content");
            let moved = fs::rename(other.join(at("b")).join("e"), other.join(at("a")).join("d"));
            moved.expect("renamed");
            let on = fs::rename(one.join(at("a")).join("d"), one.join(at("b")).join("x"));
            assert!(on.is_ok(), "round {round}, after mount {mover}: {on:?}");
            assert_eq!(view::content(&other.join(at("b")).join("x/f")), "content");
        }
    }
}
