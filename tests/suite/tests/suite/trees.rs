//! What a tree is through Portcullis, it is locally; and a second look costs the brick nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use portcullis_suite::site::Site;
use portcullis_suite::{find, tree};

/// S-ENTRY-1, S-LIST-1.
#[test]
fn find_prints_what_the_systems_find_prints() {
    for dir in tree::real() {
        let site = Site::start(&dir, &[]);
        let through = find::through(&site, "/", find::EVERYTHING);
        find::assert_equal(&through, &find::local(&dir, find::EVERYTHING));
    }
}

/// The whole of /usr, all of whose entries fit the cache, twice.
#[test]
fn a_second_find_asks_the_brick_nothing() {
    let dir = Path::new("/usr");
    let site = Site::start(dir, &["--cache-bytes", "256MiB"]);
    let first = find::through(&site, "/", find::EVERYTHING);
    let asked = site.brick_requests();
    assert!(asked > 0, "the first find asked for everything");
    let second = find::through(&site, "/", find::EVERYTHING);
    assert_eq!(site.brick_requests(), asked, "requests to the brick by a second find");
    assert_eq!(first, second);
    find::assert_equal(&second, &find::local(dir, find::EVERYTHING));
}

/// One request lists a directory, however many entries it has. S-LIST-1.
#[test]
fn a_directory_is_listed_by_one_request() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 3, 5_000);
    let site = Site::start(dir.path(), &[]);
    let through = find::through(&site, "/", find::EVERYTHING);
    find::assert_equal(&through, &find::local(dir.path(), find::EVERYTHING));
    let requests = site.brick_stats().requests;
    assert_eq!(requests.get("list"), Some(&4), "{requests:?}");
    assert_eq!(requests.get("lookup"), None, "attributes come with the listing: {requests:?}");
    assert_eq!(requests.get("getattr"), None, "those of the root come with it: {requests:?}");
}

/// GNU tar is the judge: it compares the archive with the directory, content included, and the
/// archive must hold all that find sees.
#[test]
fn a_tar_stream_holds_what_the_directory_holds() {
    for dir in tar_trees() {
        let site = Site::start(&dir, &[]);
        let archive = site.scratch("archive.tar");
        let out = std::fs::File::create(&archive).expect("a file");
        let status = site.command("tar", "/").stdout(out).status().expect("the command runs");
        assert!(status.success(), "tar: {status}");
        let mut judge = Command::new("tar");
        judge.args(["--compare", "--numeric-owner", "-C"]).arg(&dir).arg("-f").arg(&archive);
        let judge = judge.output().expect("tar(1) runs");
        let complaints = String::from_utf8_lossy(&judge.stdout);
        assert!(judge.status.success(), "{}", &complaints[..complaints.len().min(2000)]);
        find::assert_equal(&archived(&archive), &find::local(&dir, "%P\\0"));
    }
}

fn tar_trees() -> Vec<std::path::PathBuf> {
    let mut trees = tree::real();
    if !portcullis_suite::soaking() {
        trees.retain(|dir| !dir.ends_with("share"));
    }
    trees
}

/// The paths of an archive, as find's %P prints them.
fn archived(path: &Path) -> BTreeSet<Vec<u8>> {
    let file = std::fs::File::open(path).expect("the archive");
    let mut archive = tar::Archive::new(std::io::BufReader::new(file));
    let mut paths = BTreeSet::new();
    for entry in archive.entries().expect("entries") {
        let entry = entry.expect("an entry");
        let path = entry.path_bytes();
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if !path.is_empty() && path != b"." {
            paths.insert(path.to_vec());
        }
    }
    paths
}

#[test]
fn a_reader_that_stops_early_causes_no_panic() {
    let site = Site::start(Path::new("/usr/share"), &[]);
    let mut find = site.command("find", "/");
    find.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = find.spawn().expect("the command runs");
    let mut stdout = child.stdout.take().expect("a pipe");
    std::io::Read::read_exact(&mut stdout, &mut [0; 100]).expect("a first line");
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
}
