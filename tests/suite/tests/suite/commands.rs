//! The command line, without a mount.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use portcullis_suite::site::{self, Site};
use portcullis_suite::{binary, find, tree};
use serde_json::Value;

#[test]
fn ls_stat_and_cat_show_what_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let ls = String::from_utf8(site.stdout("ls", "/", &[])).expect("UTF-8");
    for name in ["a", "c", "link", "top"] {
        assert!(ls.lines().any(|line| line.contains(name)), "{name} is not in {ls}");
    }
    assert_eq!(site.stdout("cat", "/a/b/two", &[]), b"22\n");
    assert_eq!(site.stdout("cat", "/c/empty", &[]), b"");
    let stat: Value =
        serde_json::from_slice(&site.stdout("stat", "/a/b/two", &["--json"])).expect("JSON");
    assert!(stat.to_string().contains('3'), "{stat}");
}

#[test]
fn find_prints_json_lines_without_a_format() {
    let dir = tempfile::tempdir().expect("a directory");
    let entries = tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let printed = String::from_utf8(site.stdout("find", "/", &["--json"])).expect("UTF-8");
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), entries, "{printed}");
}

#[test]
fn find_begins_at_any_directory_and_at_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    for path in ["/a", "/a/b", "/top"] {
        let through = find::through(&site, path, find::EVERYTHING);
        find::assert_equal(&through, &find::local(&dir.path().join(&path[1..]), find::EVERYTHING));
    }
}

/// S-LIST-3.
#[test]
fn what_does_not_work_says_so_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    for (verb, path, words) in [
        ("cat", "/nothing", &["/nothing", "no such file"][..]),
        ("cat", "/a", &["/a", "is a directory"]),
        ("stat", "/top/below", &["not a directory"]),
        ("find", "/nothing", &["/nothing", "no such file"]),
        ("tar", "/nothing", &["/nothing", "no such file"]),
    ] {
        let output = site.run(verb, path, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb} {path}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{verb} {path}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{verb} {path}: {word:?} is not in {stderr:?}");
        }
    }
}

#[test]
fn a_url_that_makes_no_sense_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = dir.path().join("id");
    site::identity(&id);
    for url in [
        "http://127.0.0.1:1/",
        "pc://",
        "pc://127.0.0.1/",
        "/tmp",
        "pc://127.0.0.1:x/",
        "pc://127.0.0.1:1/a/../../etc",
    ] {
        let output = Command::new(binary()).args(["ls", url, "--identity"]).arg(&id).output();
        let output = output.expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url}: {stderr}");
        assert!(stderr.contains("pc://"), "{url}: it says what a URL looks like: {stderr}");
    }
}

#[test]
fn a_gateway_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = dir.path().join("id");
    site::identity(&id);
    // Bound, but nobody answers.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = silent.local_addr().expect("its address").to_string();
    let url = format!("pc://{address}/");
    let output = Command::new(binary()).args(["ls", &url, "--identity"]).arg(&id).output();
    let output = output.expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&address) && stderr.lines().count() == 1, "{stderr}");
}

/// S-ENTRY-2.
#[test]
fn names_are_bytes_on_the_command_line_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = find::os(b"not \xff UTF-8");
    std::fs::write(dir.path().join(name), "content").expect("a file");
    let site = Site::start(dir.path(), &[]);
    let mut url = std::ffi::OsString::from(site.url("/"));
    url.push(name);
    let output = Command::new(binary())
        .arg("cat")
        .arg(&url)
        .arg("--identity")
        .arg(site.identity())
        .output()
        .expect("it runs");
    assert_eq!(output.stdout, b"content", "{}", String::from_utf8_lossy(&output.stderr));
    let found = site.stdout("find", "/", &["-printf", "%P\\0"]);
    assert!(found.split(|&byte| byte == 0).any(|path| path == name.as_bytes()));
}
