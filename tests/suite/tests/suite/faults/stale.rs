//! Answers that were true once, and names that are said not to be.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use portcullis_suite::relay::Relay;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{run, tree, view, wait};

use super::meanwhile;

fn count(dir: &Path) -> usize {
    let entries: Result<Vec<_>, _> = fs::read_dir(dir).expect("it lists").collect();
    entries.expect("an entry").len()
}

/// hf-mount#149: once a directory was "complete", a name made elsewhere was ENOENT for ever.
#[test]
fn a_complete_listing_does_not_deny_a_new_name() {
    let Some(share) = Share::three("a_complete_listing_does_not_deny_a_new_name") else { return };
    let one = share.mount(0);
    fs::write(one.join("first"), "1").expect("a file");
    assert_eq!(count(one), 1);
    for (number, maker) in [1, 2].into_iter().enumerate() {
        let name = format!("new-{number}");
        assert_eq!(view::kind(&one.join(&name)), "error 2");
        fs::write(share.mount(maker).join(&name), "2").expect("a file");
        assert_eq!(view::content(&one.join(&name)), "2");
        assert_eq!(count(one), number + 2);
    }
    assert_eq!(view::kind(&one.join("direct")), "error 2");
    fs::write(share.export().join("direct"), "3").expect("a file");
    wait::until("a name that was made on the brick", || {
        (view::content(&one.join("direct")) == "3").then_some(())
    });
    assert_eq!(count(one), 4);
}

/// gcsfuse#4383: a slow prefetch put a file back into the cache that had been deleted meanwhile.
#[test]
fn a_listing_on_its_way_does_not_bring_removed_files_back() {
    let name = "a_listing_on_its_way_does_not_bring_removed_files_back";
    let Some(share) = Share::three(name) else { return };
    let dir = share.mount(1).join("d");
    fs::create_dir(&dir).expect("a directory");
    for number in 0..600 {
        File::create(dir.join(format!("file-{number:04}"))).expect("a file");
    }
    let watched = share.mount(0).join("d");
    meanwhile(
        |_| drop(view::names(&watched, "")),
        || {
            for number in 0..600 {
                let name = format!("file-{number:04}");
                fs::remove_file(dir.join(&name)).expect("removed");
                assert_eq!(view::kind(&watched.join(&name)), "error 2", "{name} came back");
            }
        },
    );
    assert_eq!(view::names(&watched, ""), "");
    assert_eq!(view::names(&share.mount(2).join("d"), ""), "");
}

/// gcsfuse#4540: a lookup said ENOENT while the listing still had the name.
#[test]
fn lookup_and_listing_agree_on_what_is_gone() {
    let Some(share) = Share::one("lookup_and_listing_agree_on_what_is_gone") else { return };
    let one = share.mount(0);
    for name in ["a", "b", "c"] {
        fs::write(one.join(name), name).expect("a file");
    }
    assert_eq!(view::names(one, ""), "a=file b=file c=file");
    fs::remove_file(share.export().join("b")).expect("removed on the brick");
    wait::until("the lookup says so", || (view::kind(&one.join("b")) == "error 2").then_some(()));
    assert_eq!(view::names(one, ""), "a=file c=file", "the listing says so too");
}

/// gcsfuse#2792, juicefs#6681: the kernel's own cache of a listing was never told, for hours.
#[test]
fn a_listing_that_the_kernel_keeps_is_dropped_on_a_change() {
    let name = "a_listing_that_the_kernel_keeps_is_dropped_on_a_change";
    let Some(share) = Share::two(name) else { return };
    for round in 0..40_usize {
        // Listed twice: the second time it may come from the kernel.
        assert_eq!((count(share.mount(0)), count(share.mount(0))), (round, round));
        File::create(share.mount(1).join(format!("f{round}"))).expect("a file");
        assert_eq!(count(share.mount(0)), round + 1);
    }
}

/// mountpoint-s3#831: a file that a program polls for never appeared, as its absence was cached.
#[test]
fn a_polled_name_appears() {
    let Some(share) = Share::three("a_polled_name_appears") else { return };
    let polled = share.mount(0).join("flag");
    for maker in [1, 2] {
        for _ in 0..20 {
            assert!(!polled.exists());
        }
        fs::write(share.mount(maker).join("flag"), "").expect("a file");
        assert!(polled.exists(), "made by mount {maker}");
        fs::remove_file(share.mount(maker).join("flag")).expect("removed");
        assert!(!polled.exists(), "removed by mount {maker}");
    }
}

/// cvmfs#3036: readlink told the old target after the link was replaced.
#[test]
fn a_replaced_link_has_its_new_target() {
    let Some(share) = Share::three("a_replaced_link_has_its_new_target") else { return };
    let link = share.mount(0).join("link");
    std::os::unix::fs::symlink("target-0", &link).expect("a link");
    for round in 1..30_usize {
        assert_eq!(
            fs::read_link(&link).expect("a link"),
            Path::new(&format!("target-{}", round - 1))
        );
        let other = share.mount(1 + round % 2);
        std::os::unix::fs::symlink(format!("target-{round}"), other.join("next")).expect("a link");
        fs::rename(other.join("next"), other.join("link")).expect("renamed");
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new(&format!("target-{round}")));
    }
}

/// seaweedfs#8173: what changed while the stream of changes was broken was never told.
#[test]
fn a_gap_in_the_connection_is_made_good() {
    let name = "a_gap_in_the_connection_is_made_good";
    if is_local() {
        return;
    }
    let Some(mut share) = Share::one(name) else { return };
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let far = share.add_mount(&address, "timeout=120");
    let (near, far) = (share.mount(0), share.mount(far));
    for name in ["a", "b"] {
        fs::write(near.join(name), "before").expect("a file");
    }
    assert_eq!(view::names(far, ""), "a=file b=file");
    assert_eq!(view::content(&far.join("a")), "before");
    relay.cut(true);
    fs::write(near.join("a"), "after the gap").expect("a file");
    fs::rename(near.join("b"), near.join("c")).expect("renamed");
    relay.cut(false);
    // Each is the first of its kind after the gap.
    assert_eq!(view::content(&far.join("a")), "after the gap");
    assert_eq!(view::kind(&far.join("b")), "error 2");
    assert_eq!(view::names(far, ""), "a=file c=file");
}

/// gluster#1472: ls in a loop during creates and renames told of names that were gone, and a
/// directory that was rewound told the old list.
#[test]
fn a_new_and_a_rewound_listing_tell_what_was_done() {
    let name = "a_new_and_a_rewound_listing_tell_what_was_done";
    let Some(share) = Share::two(name) else { return };
    let dir = rustix::fs::open(
        share.mount(0),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    );
    let mut rewound = rustix::fs::Dir::new(dir.expect("it opens")).expect("a directory");
    for round in 0..40_usize {
        File::create(share.mount(1).join(format!("f{round}"))).expect("a file");
        if round > 0 {
            let from = share.mount(1).join(format!("f{}", round - 1));
            fs::rename(from, share.mount(1).join(format!("g{}", round - 1))).expect("renamed");
        }
        rewound.rewind();
        let mut names: Vec<String> = rewound
            .by_ref()
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        let mut expected: Vec<String> = (0..round).map(|n| format!("g{n}")).collect();
        expected.insert(0, format!("f{round}"));
        expected.sort();
        assert_eq!(names, expected, "rewound, round {round}");
        assert_eq!(count(share.mount(0)), round + 1, "opened anew");
    }
}

/// gluster#841: ls -lR beside creates and removals of large files failed with ESTALE.
#[test]
fn a_walk_beside_creates_and_removals_meets_no_stale_handle() {
    let name = "a_walk_beside_creates_and_removals_meets_no_stale_handle";
    let Some(share) = Share::two(name) else { return };
    let dir = share.mount(0).join("d");
    fs::create_dir(&dir).expect("a directory");
    let walked = share.mount(1);
    meanwhile(
        |round| {
            let path = dir.join(format!("large-{}", round % 5));
            fs::write(&path, vec![1; 1 << 20]).expect("a file");
            fs::remove_file(&path).expect("removed");
        },
        || {
            for _ in 0..60 {
                let mut ls = std::process::Command::new("ls");
                let output = run::output(ls.arg("-lR").current_dir(walked));
                let said = String::from_utf8_lossy(&output.stderr);
                // A name that goes away between its listing and its stat is no error of ours.
                let strange = said.lines().filter(|line| !line.contains("No such file"));
                assert_eq!(strange.collect::<Vec<_>>(), [""; 0]);
            }
        },
    );
}

/// gluster#3920, #2574: a file could not be opened by name until its directory had been listed.
#[test]
fn a_name_is_found_without_a_listing() {
    let name = "a_name_is_found_without_a_listing";
    let export = tempfile::tempdir().expect("a directory");
    let root = export.path().join("export");
    fs::create_dir(&root).expect("a directory");
    tree::wide(&root, 3, 50);
    let layout = Layout { export: Some(root), mounts: &[0, 1], ..Layout::default() };
    let Some(share) = Share::start(name, &layout) else { return };
    for mount in [0, 1] {
        let path = share.mount(mount).join("directory-000002/file-00000000049");
        assert_eq!(view::kind(&path), "file");
        assert_eq!(view::content(&path), "");
    }
}

/// gluster#1261: a false ENOENT made a program write a new file over an old one. S-LIST-3.
#[test]
fn a_file_that_is_there_is_never_said_to_be_absent() {
    let name = "a_file_that_is_there_is_never_said_to_be_absent";
    let Some(share) = Share::three(name) else { return };
    let dir = share.mount(1).join("d");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("precious"), "old").expect("a file");
    let looked = share.mount(0).join("d");
    meanwhile(
        |round| {
            let path = dir.join(format!("other-{}", round % 3));
            fs::write(&path, "x").expect("a file");
            fs::remove_file(&path).expect("removed");
        },
        || {
            for _ in 0..1_000 {
                assert_eq!(view::kind(&looked.join("precious")), "file");
                let created = File::create_new(looked.join("precious")).expect_err("it exists");
                assert_eq!(created.kind(), std::io::ErrorKind::AlreadyExists);
            }
        },
    );
    assert_eq!(view::content(&looked.join("precious")), "old");
}

/// gluster bz1390050: a lookup that was late put the content back that had been overwritten.
#[test]
fn a_late_answer_does_not_bring_old_content_back() {
    let name = "a_late_answer_does_not_bring_old_content_back";
    let Some(share) = Share::three(name) else { return };
    let (path, written) = (share.mount(0).join("f"), share.mount(1).join("f"));
    fs::write(&written, "0000").expect("a file");
    meanwhile(
        |_| {
            let _ = (view::content(&share.mount(2).join("f")), view::attr(&path));
        },
        || {
            for round in 1..300 {
                let text = format!("{round:04}");
                std::os::unix::fs::FileExt::write_all_at(
                    &fs::OpenOptions::new().write(true).open(&written).expect("it opens"),
                    text.as_bytes(),
                    0,
                )
                .expect("written");
                assert_eq!(view::content(&path), text);
                assert_eq!(view::content(&share.mount(2).join("f")), text);
            }
        },
    );
}

/// gluster#4161: with negative entries cached, writing to a file that had just been made failed.
#[test]
fn a_name_that_was_denied_can_be_made_and_written_at_once() {
    let name = "a_name_that_was_denied_can_be_made_and_written_at_once";
    let Some(share) = Share::three(name) else { return };
    for round in 0..60_usize {
        let name = format!("f{round}");
        let (maker, other) = (share.mount(round % 3), share.mount((round + 1) % 3));
        assert_eq!(view::kind(&maker.join(&name)), "error 2");
        assert_eq!(view::kind(&other.join(&name)), "error 2");
        fs::write(maker.join(&name), "one").expect("a file");
        fs::write(other.join(&name), "two and more").expect("the other one writes it too");
        assert_eq!(view::content(&maker.join(&name)), "two and more");
    }
}

/// juicefs#6681: a directory whose mtime never changed was taken for unchanged.
#[test]
fn a_directory_changes_its_mtime_with_its_names() {
    let Some(share) = Share::two("a_directory_changes_its_mtime_with_its_names") else { return };
    let dir = share.mount(0).join("d");
    fs::create_dir(&dir).expect("a directory");
    let mtime = |dir: &Path| {
        let attr = fs::metadata(dir).expect("attributes");
        (attr.mtime(), attr.mtime_nsec())
    };
    let other = share.mount(1).join("d");
    let mut last = mtime(&dir);
    for step in ["create", "rename", "remove"] {
        // Longer than the kernel's clock ticks.
        wait::pause(std::time::Duration::from_millis(20));
        match step {
            "create" => fs::write(other.join("a"), "").expect("a file"),
            "rename" => fs::rename(other.join("a"), other.join("b")).expect("renamed"),
            _ => fs::remove_file(other.join("b")).expect("removed"),
        }
        let now = mtime(&dir);
        assert!(now > last, "{step}: {now:?} after {last:?}");
        assert_eq!(now, mtime(&share.export().join("d")));
        last = now;
    }
}
