//! What a name may be.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use portcullis_suite::find::os;
use portcullis_suite::share::Share;
use portcullis_suite::view;
use rustix::io::Errno;

/// fuse-t#114, WSL#3564: names that differ in their Unicode form only, or are no UTF-8 at all,
/// became one. S-ENTRY-2.
#[test]
fn names_are_bytes_and_stay_as_they_are() {
    let Some(share) = Share::two("names_are_bytes_and_stay_as_they_are") else { return };
    let names: [&[u8]; 9] = [
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        b"\xe9",
        b"E",
        b"e",
        b"\xff\xfe",
        b" ",
        b"new\nline",
        b"...",
    ];
    for name in names {
        fs::write(share.mount(0).join(os(name)), name).expect("a file");
    }
    for root in [share.mount(0), share.mount(1), share.export()] {
        for name in names {
            assert_eq!(fs::read(root.join(os(name))).expect("it is there"), name);
        }
        let mut listed: Vec<Vec<u8>> = fs::read_dir(root)
            .expect("it lists")
            .map(|entry| entry.expect("an entry").file_name().as_bytes().to_vec())
            .filter(|name| name != view::ORPHANS.as_bytes())
            .collect();
        let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }
    for name in names {
        let to = [name, b".moved"].concat();
        fs::rename(share.mount(1).join(os(name)), share.mount(1).join(os(&to))).expect("renamed");
        assert_eq!(view::kind(&share.mount(0).join(os(name))), "error 2");
        assert_eq!(fs::read(share.mount(0).join(os(&to))).expect("it is there"), name);
    }
}

/// curvine#1143: a name of 256 bytes was ENOENT, so a program tried to make it.
#[test]
fn a_name_of_256_bytes_is_too_long_in_every_call() {
    let Some(share) = Share::one("a_name_of_256_bytes_is_too_long_in_every_call") else { return };
    let root = share.mount(0);
    fs::write(root.join("f"), "").expect("a file");
    let long = root.join("n".repeat(256));
    let calls = [
        ("lookup", fs::symlink_metadata(&long).map(drop)),
        ("create", fs::write(&long, "")),
        ("mkdir", fs::create_dir(&long)),
        ("symlink", std::os::unix::fs::symlink("x", &long)),
        ("link", fs::hard_link(root.join("f"), &long)),
        ("rename", fs::rename(root.join("f"), &long)),
        ("rename of it", fs::rename(&long, root.join("g"))),
        ("unlink", fs::remove_file(&long)),
        ("rmdir", fs::remove_dir(&long)),
    ];
    for (call, result) in calls {
        let why = result.expect_err("too long");
        assert_eq!(Errno::from_io_error(&why), Some(Errno::NAMETOOLONG), "{call}");
    }
    let longest = root.join("n".repeat(255));
    fs::write(&longest, "fits").expect("255 bytes fit");
    assert_eq!(view::content(&longest), "fits");
}

/// gluster bz1674412: looking at `.` took a lock that was held.
#[test]
fn dot_and_dot_dot_are_like_any_name() {
    let Some(share) = Share::one("dot_and_dot_dot_are_like_any_name") else { return };
    let root = share.mount(0);
    fs::create_dir_all(root.join("a/b")).expect("directories");
    assert_eq!(view::attr(&root.join("a/b/.")), view::attr(&root.join("a/b")));
    assert_eq!(view::attr(&root.join("a/b/..")), view::attr(&root.join("a")));
    assert_eq!(view::attr(&root.join("a/b/../..")), view::attr(&root.join(".")));
    let why = fs::remove_dir(root.join("a/b/.")).expect_err("never");
    assert_eq!(Errno::from_io_error(&why), Some(Errno::INVAL));
    assert!(fs::rename(root.join("a/."), root.join("c")).is_err());
    assert_eq!(view::names(root, ""), "a=directory");
}

/// nfsserve#50, #49: a directory of 2,500 names was listed as 7,100, or its rest was lost after a
/// hard link.
#[test]
fn a_large_directory_with_links_is_listed_once() {
    let Some(share) = Share::two("a_large_directory_with_links_is_listed_once") else { return };
    let root = share.mount(0);
    fs::write(root.join("name-00000"), "").expect("a file");
    for number in 1..2_500 {
        let path = root.join(format!("name-{number:05}"));
        if number % 10 == 0 {
            fs::hard_link(root.join("name-00000"), path).expect("linked");
        } else {
            fs::write(path, "").expect("a file");
        }
    }
    for root in [share.mount(0), share.mount(1)] {
        let mut names: Vec<_> = fs::read_dir(root)
            .expect("it lists")
            .map(|e| e.expect("an entry").file_name())
            .collect();
        names.sort();
        let expected: Vec<std::ffi::OsString> =
            (0..2_500).map(|n| format!("name-{n:05}").into()).collect();
        assert!(names == expected, "{} names", names.len());
    }
}
