//! Listings, and what happens to a directory while it is listed.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use portcullis_suite::share::Share;
use portcullis_suite::{run, soaking, view};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::meanwhile;

/// Entries of a directory that is listed while it changes: several times what one reply to the
/// kernel holds.
const FILES: usize = 3_000;
/// The name of each directory of a deep tree: 200 of them are longer than a path may be.
const LEVEL: &str = "one-level-further-down";

fn fill(dir: &Path, files: usize) {
    fs::create_dir_all(dir).expect("a directory");
    for number in 0..files {
        fs::write(dir.join(format!("stays-{number:05}")), "").expect("a file");
    }
}

fn open_dir(path: &Path) -> Dir {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(openat(CWD, path, flags, Mode::empty()).expect("it opens")).expect("a directory")
}

/// Reads up to `limit` names, `.` and `..` left out, and counts how often each came.
fn read(dir: &mut Dir, limit: usize, seen: &mut BTreeMap<String, usize>) {
    for entry in dir.take(limit) {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            *seen.entry(name).or_default() += 1;
        }
    }
}

/// Every file of [`fill`] came once, and nothing came twice.
fn assert_each_once(seen: &BTreeMap<String, usize>, files: usize) {
    let twice: Vec<_> = seen.iter().filter(|&(_, &count)| count > 1).collect();
    assert!(twice.is_empty(), "more than once: {twice:?}");
    let staying = seen.keys().filter(|name| name.starts_with("stays-")).count();
    assert_eq!(staying, files, "of the files that stay");
}

/// A directory that was renamed while it was being listed lost the rest of its names: no project's
/// own tests had it. S-LIST-1.
#[test]
fn a_directory_that_is_renamed_while_it_is_open_is_read_on() {
    let name = "a_directory_that_is_renamed_while_it_is_open_is_read_on";
    let Some(share) = Share::three(name) else { return };
    for mover in 0..3 {
        let (dir, moved) = (format!("d{mover}"), format!("moved{mover}"));
        fill(&share.mount(0).join(&dir), FILES);
        let mut opened: Vec<Dir> =
            (0..3).map(|mount| open_dir(&share.mount(mount).join(&dir))).collect();
        let mut seen = vec![BTreeMap::new(); 3];
        for (dir, seen) in opened.iter_mut().zip(&mut seen) {
            read(dir, 200, seen);
        }
        let root = share.mount(mover);
        fs::rename(root.join(&dir), root.join(&moved)).expect("renamed");
        // Another one of its name has nothing to do with it.
        fill(&root.join(&dir), 10);
        fs::write(root.join(&dir).join("of-another"), "").expect("a file");
        for (dir, seen) in opened.iter_mut().zip(&mut seen) {
            read(dir, usize::MAX, seen);
            assert_each_once(seen, FILES);
            assert!(!seen.contains_key("of-another"), "a name of another directory");
        }
        assert_eq!(view::kind(&share.mount(0).join(&moved).join("stays-00000")), "file");
    }
}

/// unfs3#2, gluster#4029: a listing went on for ever while files were made, or lost what was there
/// before. S-LIST-1.
#[test]
fn a_listing_ends_while_files_are_made_all_the_time() {
    let name = "a_listing_ends_while_files_are_made_all_the_time";
    let Some(share) = Share::three(name) else { return };
    fill(&share.mount(0).join("d"), FILES);
    meanwhile(
        |round| {
            let name = format!("d/made-{round:06}");
            fs::write(share.mount(1).join(name), "").expect("a file");
        },
        || {
            for _ in 0..4 {
                for mount in [0, 2] {
                    let mut seen = BTreeMap::new();
                    read(&mut open_dir(&share.mount(mount).join("d")), usize::MAX, &mut seen);
                    assert_each_once(&seen, FILES);
                }
            }
        },
    );
}

/// gluster: a directory that was removed and made again still showed the names of the old one.
/// S-LIST-5.
#[test]
fn a_directory_that_is_replaced_by_another_of_its_name_shows_the_new_one() {
    let name = "a_directory_that_is_replaced_by_another_of_its_name_shows_the_new_one";
    let Some(share) = Share::three(name) else { return };
    fill(&share.mount(0).join("d"), 50);
    for round in 0..20_usize {
        let root = share.mount(round % 3);
        let next = root.join("next");
        fs::create_dir(&next).expect("a directory");
        fs::write(next.join(format!("of-round-{round}")), "").expect("a file");
        if round % 2 == 0 {
            fs::remove_dir_all(root.join("d")).expect("removed");
        } else {
            fs::rename(root.join("d"), root.join("old")).expect("moved away");
        }
        fs::rename(next, root.join("d")).expect("renamed");
        for mount in 0..3 {
            let shown = view::names(&share.mount(mount).join("d"), "");
            assert_eq!(shown, format!("of-round-{round}=file"), "mount {mount}");
        }
        if round % 2 == 1 {
            fs::remove_dir_all(root.join("old")).expect("removed");
        }
    }
}

/// A file that is removed after its name was told and before it is looked at: some answered EIO or
/// ESTALE, and `ls -l` told zeros. S-ENTRY-3.
#[test]
fn a_file_that_vanishes_after_its_name_was_told_is_absent_and_nothing_else() {
    let name = "a_file_that_vanishes_after_its_name_was_told_is_absent_and_nothing_else";
    let Some(share) = Share::three(name) else { return };
    fill(&share.mount(0).join("d"), 100);
    meanwhile(
        |round| {
            let path = share.mount(1).join(format!("d/comes-{}", round % 7));
            fs::write(&path, "content").expect("a file");
            fs::remove_file(&path).expect("removed");
        },
        || {
            for _ in 0..60 {
                for mount in [0, 2] {
                    look_at_all(&share.mount(mount).join("d"));
                }
            }
        },
    );
}

fn look_at_all(dir: &Path) {
    let mut staying = 0;
    for entry in fs::read_dir(dir).expect("it lists") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        match entry.metadata() {
            Ok(attr) => assert!(attr.is_file() && attr.len() <= 7, "{name:?}: {attr:?}"),
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::NOENT), "{name:?}"),
        }
        staying += usize::from(name.to_string_lossy().starts_with("stays-"));
    }
    assert_eq!(staying, 100, "of the files that stay");
}

/// A tree far deeper than a path can say: names were put together to paths, or the stack was not
/// bounded (gluster#2169). S-ENTRY-2.
#[test]
fn a_tree_deeper_than_any_path_is_made_walked_and_removed() {
    let name = "a_tree_deeper_than_any_path_is_made_walked_and_removed";
    let levels = if soaking() { 10_000 } else { 400 };
    let Some(share) = Share::two(name) else { return };
    let mut dir = top(share.mount(0));
    for _ in 0..levels {
        mkdirat(&dir, LEVEL, Mode::RWXU).expect("a directory");
        dir = below(&dir).expect("it opens");
    }
    drop(openat(&dir, "bottom", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).expect("a file"));
    let mut dir = top(share.mount(1));
    for level in 0..levels {
        dir = below(&dir).unwrap_or_else(|error| panic!("level {level}: {error}"));
    }
    assert!(openat(&dir, "bottom", OFlags::RDONLY, Mode::empty()).is_ok(), "it is at the bottom");
    drop(dir);
    let kinds = run::success(Command::new("find").arg(share.mount(1)).args(["-printf", "%y\\n"]));
    assert_eq!(kinds.lines().filter(|kind| *kind == "d").count(), levels + 1, "directories");
    assert_eq!(kinds.lines().filter(|kind| *kind == "f").count(), 1, "files");
    run::success(Command::new("rm").arg("-rf").arg(share.mount(0).join(LEVEL)));
    assert_eq!(view::names(share.mount(1), ""), "");
}

fn top(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it opens")
}

fn below(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(dir, LEVEL, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// mergerfs#468: `rm -rf` of 111,000 directories and 300,000 files ended with ENOENT and had to be
/// run again. S-LIST-1.
#[test]
fn a_large_tree_is_removed_in_one_pass() {
    let Some(share) = Share::two("a_large_tree_is_removed_in_one_pass") else { return };
    let width = if soaking() { 100 } else { 12 };
    // Made beneath, which is quicker, and before anybody has looked.
    let root = share.export().join("tree");
    for outer in 0..width {
        for inner in 0..width * 10 {
            let dir = root.join(format!("{outer:03}/{inner:04}"));
            fs::create_dir_all(&dir).expect("directories");
            for file in 0..3 {
                fs::write(dir.join(format!("file-{file}")), "").expect("a file");
            }
        }
    }
    run::success(Command::new("rm").arg("-rf").arg(share.mount(0).join("tree")));
    assert_eq!(view::names(share.mount(0), ""), "");
    assert_eq!(view::kind(&share.export().join("tree")), "error 2");
}

/// gluster: a directory that is removed while it is listed ended in an endless loop, or in EIO.
/// S-ENTRY-3.
#[test]
fn a_directory_that_is_removed_while_it_is_open_ends() {
    let Some(share) = Share::two("a_directory_that_is_removed_while_it_is_open_ends") else {
        return;
    };
    let dir = share.mount(0).join("d");
    fill(&dir, FILES);
    let mut opened = open_dir(&share.mount(1).join("d"));
    let mut seen = BTreeMap::new();
    read(&mut opened, 100, &mut seen);
    fs::remove_dir_all(&dir).expect("removed");
    for entry in opened.by_ref().take(2 * FILES) {
        let Ok(entry) = entry else { break };
        let name = entry.file_name().to_string_lossy().into_owned();
        let before = seen.insert(name.clone(), 1);
        assert!(name.starts_with('.') || before.is_none(), "{name} came twice");
    }
    assert_eq!(view::kind(&dir), "error 2");
    let gone = unlinkat(CWD, share.mount(1).join("d"), AtFlags::REMOVEDIR);
    assert_eq!(gone, Err(Errno::NOENT));
}
