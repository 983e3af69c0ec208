//! Trees to export, and the local truth about them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use portcullis_core::{Entry, Handle, Timestamp};

use crate::harness::Client;

/// Content that differs at every offset, from a seed.
pub(crate) fn content(seed: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes as u64)
        .map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A small tree with one of everything that a test can make without privileges.
pub(crate) fn varied() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/none"), b"").unwrap();
    fs::write(root.join("a/one"), b"1").unwrap();
    fs::write(root.join("a/b/middling"), content(1, 300_000)).unwrap();
    fs::write(root.join("a/b/large"), content(2, 3_000_001)).unwrap();
    fs::hard_link(root.join("a/one"), root.join("a/b/one-more")).unwrap();
    symlink("../a/one", root.join("empty-link")).unwrap();
    symlink("nowhere/at/all", root.join("a/dangling")).unwrap();
    let odd = std::ffi::OsString::from_vec(b"not utf-8 \xff\xfe \n".to_vec());
    fs::write(root.join(odd), b"odd").unwrap();
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
    dir
}

/// A directory of `count` empty files, `name-0` and so on.
pub(crate) fn flat(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), count);
    dir
}

/// So many directories, `d0` and so on, as [`flat`] each.
pub(crate) fn spread(dirs: usize, count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..dirs {
        let sub = dir.path().join(format!("d{number}"));
        fs::create_dir(&sub).unwrap();
        fill(&sub, count);
    }
    dir
}

pub(crate) fn fill(dir: &Path, count: usize) {
    for number in 0..count {
        fs::write(dir.join(format!("name-{number}")), b"").unwrap();
    }
}

/// What `flat` made, as names.
pub(crate) fn flat_names(count: usize) -> std::collections::BTreeSet<Vec<u8>> {
    (0..count).map(|number| format!("name-{number}").into_bytes()).collect()
}

/// Descriptors of this process that are open on a file.
pub(crate) fn open_here(path: &Path) -> usize {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let wanted = identity(path);
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|fd| fd.as_ref().is_ok_and(|fd| identity(&fd.path()) == wanted)).count()
}

/// Everything below a directory by path, as the client sees it.
pub(crate) async fn walk(client: &Client, root: Handle) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    let mut left = vec![(Vec::new(), root)];
    while let Some((path, dir)) = left.pop() {
        for (name, entry) in client.list(dir).await {
            let path = [path.as_slice(), b"/", name.as_slice()].concat();
            if entry.attr.is_some_and(|attr| attr.is_dir()) {
                left.push((path.clone(), entry.handle));
            }
            all.insert(path, entry);
        }
    }
    all
}

/// Compares everything below `root` with the local file system: names, attributes, targets.
pub(crate) fn assert_equals_local(root: &Path, walked: &BTreeMap<Vec<u8>, Entry>) {
    let mut count = 0;
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for local in fs::read_dir(dir).unwrap() {
            let path = local.unwrap().path();
            let key = path.as_os_str().as_bytes()[root.as_os_str().len()..].to_vec();
            let entry = walked.get(&key).unwrap_or_else(|| panic!("{path:?} was not listed"));
            assert_entry(&path, entry);
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path);
            }
            count += 1;
        }
    }
    assert_eq!(count, walked.len(), "something was listed that does not exist");
}

/// Compares one entry with the local file.
pub(crate) fn assert_entry(path: &Path, entry: &Entry) {
    let local = path.symlink_metadata().unwrap();
    let attr = entry.attr.unwrap_or_else(|| panic!("{path:?} has no attributes"));
    let time = |secs, nanos| Timestamp { secs, nanos: nanos as u32 };
    assert_eq!(
        (attr.ino, attr.size_bytes, attr.mode, attr.nlink, attr.uid, attr.gid, attr.blocks),
        (
            local.ino(),
            local.size(),
            local.mode(),
            local.nlink() as u32,
            local.uid(),
            local.gid(),
            local.blocks()
        ),
        "{path:?}"
    );
    assert_eq!(attr.mtime, time(local.mtime(), local.mtime_nsec()), "{path:?}");
    assert_eq!(attr.ctime, time(local.ctime(), local.ctime_nsec()), "{path:?}");
    let target = local.is_symlink().then(|| fs::read_link(path).unwrap().into_os_string());
    assert_eq!(entry.target, target.map(OsStringExt::into_vec), "{path:?}");
}
