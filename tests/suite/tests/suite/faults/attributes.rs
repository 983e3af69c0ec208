//! Sizes, times and modes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{run, view};
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

const STRANGER: u32 = 12_003;

/// gcsfuse#4943, restic#3667, fuse3#57: a symbolic link had size 0, and with the kernel's cache of
/// links its target was empty.
#[test]
fn a_link_is_as_long_as_its_target() {
    let Some(share) = Share::two("a_link_is_as_long_as_its_target") else { return };
    for (number, len) in [1, 60, 255, 4_000].into_iter().enumerate() {
        let (name, target) = (format!("l{number}"), "t/".repeat(len).split_at(len).0.to_owned());
        std::os::unix::fs::symlink(&target, share.mount(0).join(&name)).expect("a link");
        for mount in [0, 1, 0] {
            let path = share.mount(mount).join(&name);
            let attr = fs::symlink_metadata(&path).expect("attributes");
            assert_eq!(attr.size(), len as u64);
            assert_eq!(fs::read_link(&path).expect("a target"), Path::new(&target));
        }
    }
}

/// stargz-snapshotter#1386: a hole was sought at the end of the file for ever, and blocks were
/// not counted in units of 512 bytes.
#[test]
fn holes_end_and_blocks_are_of_512_bytes() {
    let Some(share) = Share::one("holes_end_and_blocks_are_of_512_bytes") else { return };
    let path = share.mount(0).join("f");
    let file = File::create_new(&path).expect("a file");
    file.write_all_at(&vec![1; 1 << 20], 4 << 20).expect("written");
    file.set_len(9 << 20).expect("its size");
    file.sync_all().expect("synced");
    let end = rustix::fs::seek(&file, SeekFrom::Hole(9 << 20));
    assert_eq!(end, Err(Errno::NXIO), "there is no hole at the end");
    let data = rustix::fs::seek(&file, SeekFrom::Data(8 << 20));
    assert_eq!(data, Err(Errno::NXIO));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(4 << 20));
    let blocks = fs::metadata(&path).expect("attributes").blocks();
    let below = fs::metadata(share.export().join("f")).expect("attributes").blocks();
    assert_eq!(blocks, below);
    assert!((2_048..4_096).contains(&blocks), "{blocks}");
    run::sh(share.mount(0), "cp --sparse=always f g; cmp f g");
}

/// slash2#79: a directory was closed to others, and for a while they still got through.
#[test]
fn a_closed_directory_is_closed_at_once() {
    let Some(share) = Share::three("a_closed_directory_is_closed_at_once") else { return };
    let dir = share.mount(0).join("d");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("f"), "content").expect("a file");
    let may = |mount: usize| {
        let root = share.mount(mount);
        let mut cat = run::shell_as(root, STRANGER, STRANGER, &[], "cat d/f && ls d");
        run::output(&mut cat).status.success()
    };
    for closer in 0..3 {
        let set = |mode: u32| {
            let path = share.mount(closer).join("d");
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
        };
        set(0o755);
        assert!(may(0) && may(1) && may(2));
        set(0o700);
        assert!(!may(0) && !may(1) && !may(2), "closed by mount {closer}");
    }
}

/// trino#11756: what one user had listed was shown to another who may not list it.
#[test]
fn what_one_user_listed_is_not_shown_to_another() {
    let Some(share) = Share::one("what_one_user_listed_is_not_shown_to_another") else { return };
    let root = share.mount(0);
    run::sh(root, "mkdir d; chown 12003 d; chmod 700 d; echo secret > d/f; chmod 644 d/f");
    run::sh_as(root, STRANGER, STRANGER, &[], "ls d; cat d/f");
    run::sh(root, "ls -l d; cat d/f");
    for script in ["ls d", "cat d/f", "stat d/f", "test -e d/f"] {
        let mut other = run::shell_as(root, 12_004, 12_004, &[], script);
        assert!(!run::output(&mut other).status.success(), "{script}");
    }
}

/// gluster#1229, 338a3b5597: attributes that had not come yet were told as zeros: the first ls
/// after a mount showed `----------` of 1970.
#[test]
fn the_first_listing_after_a_mount_has_all_attributes() {
    let name = "the_first_listing_after_a_mount_has_all_attributes";
    let dir = tempfile::tempdir().expect("a directory");
    let export = dir.path().join("export");
    fs::create_dir(&export).expect("a directory");
    for number in 0..300 {
        fs::write(export.join(format!("f{number}")), "x".repeat(number)).expect("a file");
        fs::create_dir(export.join(format!("d{number}"))).expect("a directory");
    }
    let ls = |dir: &Path| {
        let mut ls = std::process::Command::new("ls");
        run::success(ls.args(["-lanU", "--full-time"]).current_dir(dir))
    };
    let sorted = |text: String| {
        let own = |line: &&str| !line.ends_with('.') && !line.starts_with("total");
        let mut lines: Vec<String> = text.lines().filter(own).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let layout = Layout { export: Some(export.clone()), mounts: &[0, 1], ..Layout::default() };
    let Some(share) = Share::start(name, &layout) else { return };
    for mount in [0, 1] {
        assert_eq!(sorted(ls(share.mount(mount))), sorted(ls(&export)));
    }
    fs::remove_dir_all(share.mount(0).join("d7")).expect("what is listed can be removed");
}

/// gluster bz1390050: a directory was opened, a file in it written, and the listing told the old
/// size.
#[test]
fn a_size_that_changed_during_a_listing_is_the_new_one() {
    let name = "a_size_that_changed_during_a_listing_is_the_new_one";
    let Some(share) = Share::two(name) else { return };
    let root = share.mount(0);
    for number in 0..500 {
        fs::write(root.join(format!("f{number}")), "").expect("a file");
    }
    let mut entries = fs::read_dir(root).expect("it lists");
    let first = entries.next().expect("an entry").expect("an entry");
    for number in 0..500 {
        let path = share.mount(1).join(format!("f{number}"));
        fs::write(path, "twelve bytes").expect("written");
    }
    for entry in entries.map(|entry| entry.expect("an entry")).chain([first]) {
        assert_eq!(entry.metadata().expect("attributes").len(), 12, "{:?}", entry.file_name());
    }
}

/// gluster#933: a link was made in another directory through one client, and another one saw
/// that directory's old mtime for ten minutes.
#[test]
fn a_link_changes_the_directory_it_is_made_in() {
    let Some(share) = Share::three("a_link_changes_the_directory_it_is_made_in") else { return };
    for dir in ["dir1", "dir2"] {
        fs::create_dir(share.mount(0).join(dir)).expect("a directory");
    }
    fs::write(share.mount(0).join("dir1/t"), "").expect("a file");
    let seen = |mount: usize| {
        let attr = view::attr(&share.mount(mount).join("dir2"));
        let listed = view::names(&share.mount(mount).join("dir2"), "");
        (attr, listed)
    };
    let before: Vec<_> = (0..3).map(seen).collect();
    portcullis_suite::wait::pause(std::time::Duration::from_millis(20));
    let one = share.mount(0);
    fs::hard_link(one.join("dir1/t"), one.join("dir2/t")).expect("linked");
    for (mount, before) in before.iter().enumerate() {
        let (attr, listed) = seen(mount);
        assert_ne!(attr, before.0, "mount {mount}: mtime and ctime");
        assert_eq!(listed, "t=file", "mount {mount}");
        assert_eq!(attr, view::attr(&share.export().join("dir2")), "mount {mount}");
    }
}

/// gluster bz1524252: what fallocate, punching and zeroing changed stayed in the cache, and a
/// program that puts the mtime back (rsync) hid it for ever.
#[test]
fn content_that_changed_under_an_old_mtime_is_seen() {
    let name = "content_that_changed_under_an_old_mtime_is_seen";
    let Some(share) = Share::three(name) else { return };
    let (one, other) = (share.mount(0).join("f"), share.mount(1).join("f"));
    let third = share.mount(2).join("f");
    fs::write(&one, "0123456789").expect("a file");
    let put_back = "touch -d @1000 f";
    run::sh(share.mount(1), put_back);
    type Change = fn(&File);
    let changes: [(&str, Change); 4] = [
        ("punched", |file| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, 0, 3).expect("punched");
        }),
        ("zeroed", |file| {
            rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 3, 3).expect("zeroed");
        }),
        ("written", |file| file.write_all_at(b"new", 5).expect("written")),
        ("copied", |file| {
            let (mut from, mut to) = (5, 0);
            let ranges = (Some(&mut from), Some(&mut to));
            rustix::fs::copy_file_range(file.as_fd(), ranges.0, file.as_fd(), ranges.1, 3)
                .expect("copied");
        }),
    ];
    for (what, change) in changes {
        let _ = (view::content(&one), view::content(&third));
        let file = OpenOptions::new().read(true).write(true).open(&other).expect("it opens");
        change(&file);
        run::sh(share.mount(1), put_back);
        let expected = view::content(&share.export().join("f"));
        assert_eq!(view::content(&one), expected, "{what}");
        assert_eq!(view::content(&third), expected, "{what}, by another gateway");
    }
}

/// gluster#4723: a file of 108 KiB was read as empty through one mount.
#[test]
fn content_is_as_long_as_stat_says() {
    let Some(share) = Share::three("content_is_as_long_as_stat_says") else { return };
    for (number, len) in [0, 1, 4_095, 65_536, 110_592, 3_000_000].into_iter().enumerate() {
        let name = format!("f{number}");
        let writer = share.mount(number % 3);
        for mount in 0..3 {
            assert_eq!(view::kind(&share.mount(mount).join(&name)), "error 2");
        }
        fs::write(writer.join(&name), vec![7; len]).expect("written");
        for mount in 0..3 {
            let path = share.mount(mount).join(&name);
            assert_eq!(fs::metadata(&path).expect("attributes").len(), len as u64);
            let read = fs::read(&path).expect("it reads");
            assert!(read.len() == len && read.iter().all(|byte| *byte == 7), "mount {mount}");
        }
    }
}

/// gluster#987: tar said "file changed as we read it": a listing told another ctime than stat.
/// gluster#4071: the mtime of a directory was another one at each request.
#[test]
fn a_listing_and_a_stat_tell_the_same_times() {
    let Some(share) = Share::two("a_listing_and_a_stat_tell_the_same_times") else { return };
    for number in 0..200 {
        fs::write(share.mount(0).join(format!("f{number}")), "x").expect("a file");
    }
    fs::create_dir(share.mount(0).join("d")).expect("a directory");
    for root in [share.mount(0), share.mount(1)] {
        // ls asks for a listing with attributes, stat for each by itself.
        let listed = run::sh(root, "ls -lU --full-time --time=ctime | sort");
        let again = run::sh(root, "ls -lU --full-time --time=ctime | sort");
        assert_eq!(listed, again);
        let stat = run::sh(root, "stat -c '%n %z %y' . d f*");
        assert_eq!(stat, run::sh(root, "stat -c '%n %z %y' . d f*"));
        assert_eq!(stat, run::sh(share.export(), "stat -c '%n %z %y' . d f*"));
    }
    run::sh(share.mount(1), "tar cf /dev/null .");
}

/// gluster bz1726205, bz1476324: extended attributes that are empty or hold zeros were cached
/// wrongly.
#[test]
fn empty_attributes_and_zeros_are_the_same_when_asked_again() {
    let name = "empty_attributes_and_zeros_are_the_same_when_asked_again";
    let Some(share) = Share::three(name) else { return };
    let path = share.mount(0).join("f");
    fs::write(&path, "").expect("a file");
    for value in [&b""[..], b"\0", b"a\0b", b"", b"\0\0\0\0"] {
        rustix::fs::setxattr(&path, "user.x", value, XattrFlags::empty()).expect("set");
        for mount in [0, 1, 2, 0, 1, 2] {
            let told = view::xattr(&share.mount(mount).join("f"), "user.x");
            assert_eq!(told, value.escape_ascii().to_string(), "mount {mount}");
        }
    }
    rustix::fs::removexattr(&path, "user.x").expect("removed");
    for mount in 0..3 {
        let told = view::xattr(&share.mount(mount).join("f"), "user.x");
        assert_eq!(told, view::errno(Errno::NODATA), "mount {mount}");
    }
}
