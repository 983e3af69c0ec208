//! How many files clients may hold open, and what still works when they hold all of them.

use std::fs::{self, File};
use std::path::Path;

use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;
use portcullis_suite::{need, view, wait};

/// Open files that the brick's process may have, and how many of these clients may hold.
const DESCRIPTORS: u64 = 2048;
const FOR_CLIENTS: usize = 1024;
/// errno(3).
const ENFILE: i32 = 23;

/// Opens files in `dir` until that fails, and answers them with why.
fn open_all(dir: &Path, name: &str) -> (Vec<File>, Option<i32>) {
    let mut files = Vec::new();
    for number in 0..2 * FOR_CLIENTS {
        match File::create(dir.join(format!("{name}-{number}"))) {
            Ok(file) => files.push(file),
            Err(error) => return (files, error.raw_os_error()),
        }
    }
    (files, None)
}

/// S-OPEN-5.
#[test]
fn what_clients_hold_open_leaves_the_brick_room_to_work() {
    let name = "what_clients_hold_open_leaves_the_brick_room_to_work";
    if !need::fuse_and_root(name) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let site = Site::start_brick_with_files(dir.path(), DESCRIPTORS);
    let mounts = ["one", "other"].map(|name| Mounted::at(&site, &site.url("/"), name, &[]));
    let [one, other] = mounts.each_ref().map(Mounted::path);
    let (mut files, why) = open_all(one, "one");
    assert_eq!((files.len(), why), (FOR_CLIENTS, Some(ENFILE)));
    let refused = File::open(other.join("one-0")).map_err(|error| error.raw_os_error());
    assert_eq!(refused.map(drop), Err(Some(ENFILE)), "the other client shares the brick");
    // One that was refused is not made either.
    assert_eq!(fs::read_dir(other).expect("it lists").count(), FOR_CLIENTS);
    fs::create_dir(other.join("dir")).expect("a directory");
    fs::rename(other.join("one-1"), other.join("dir/moved")).expect("renamed");
    assert_eq!(view::names(&one.join("dir"), ""), "moved=file");
    fs::remove_file(other.join("one-2")).expect("removed");
    files.truncate(FOR_CLIENTS / 2);
    wait::until("there is room", || File::open(other.join("one-0")).ok());
    let (more, why) = open_all(other, "other");
    assert_eq!(why, Some(ENFILE));
    assert!(more.len() <= FOR_CLIENTS / 2, "{}", more.len());
    drop((files, more));
    wait::until("all is closed", || {
        let (files, _) = open_all(one, "again");
        (files.len() == FOR_CLIENTS).then_some(())
    });
}
