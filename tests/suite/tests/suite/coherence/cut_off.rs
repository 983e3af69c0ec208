//! A mount that the network has left behind: it answers nothing that is not so any more, and the
//! others wait for it no longer than its lease lasts.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_suite::relay::Relay;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::wait;

/// How long a change may wait for a client that is gone: the 5 s of its lease, a second for the
/// renewal before, and much for a busy machine.
const LEASE_LIMIT: Duration = Duration::from_secs(30);
/// How long the cut-off mount is watched after the change.
const WATCHED: Duration = Duration::from_secs(8);

/// One answer of the cut-off mount.
struct Seen {
    asked: Instant,
    mode: Option<u32>,
    content: Option<Vec<u8>>,
    old_name: Option<bool>,
    new_name: Option<bool>,
}

fn look(dir: &Path, asked: Instant) -> Seen {
    let exists = |name: &str| match fs::symlink_metadata(dir.join(name)) {
        Ok(_) => Some(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    };
    Seen {
        asked,
        mode: fs::symlink_metadata(dir.join("file")).ok().map(|attr| attr.mode() & 0o777),
        content: fs::read(dir.join("file")).ok(),
        old_name: exists("old"),
        new_name: exists("new"),
    }
}

fn make(dir: &Path) {
    fs::create_dir(dir).expect("a directory");
    for name in ["file", "old"] {
        fs::write(dir.join(name), "before").expect("a file");
    }
    fs::set_permissions(dir.join("file"), Permissions::from_mode(0o644)).expect("its mode");
}

fn change(dir: &Path) {
    fs::set_permissions(dir.join("file"), Permissions::from_mode(0o600)).expect("chmod");
    fs::write(dir.join("file"), "after").expect("a file");
    fs::rename(dir.join("old"), dir.join("new")).expect("renamed");
}

/// Cuts the network of one mount by `cut`, changes files through another one, and watches what
/// the first one says.
fn cut_off(test: &str, cut: impl Fn(&Relay)) {
    if is_local() {
        return;
    }
    let Some(mut share) = Share::start(test, &Layout { mounts: &[0], ..Layout::default() }) else {
        return;
    };
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let far = share.add_mount(&address, "");
    make(&share.mount(0).join("d"));
    let (near, far): (PathBuf, PathBuf) = (share.mount(0).join("d"), share.mount(far).join("d"));
    for _ in 0..3 {
        let seen = look(&far, Instant::now());
        assert_eq!(
            (seen.mode, seen.old_name, seen.new_name),
            (Some(0o644), Some(true), Some(false))
        );
        assert_eq!(seen.content.as_deref(), Some(&b"before"[..]));
        assert_eq!(fs::read_dir(&far).expect("it lists").count(), 2);
    }
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (far, is_over) = (far.clone(), is_over.clone());
        move || {
            let mut all = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                all.push(look(&far, Instant::now()));
                wait::pause(Duration::from_millis(5));
            }
            all
        }
    });
    cut(&relay);
    let start = Instant::now();
    change(&near);
    let took = start.elapsed();
    let acknowledged = Instant::now();
    assert!(took < LEASE_LIMIT, "the change waited {took:?} for a client that was gone");
    wait::pause(WATCHED);
    let dropped = relay.dropped();
    relay.cut(false);
    wait::until("the mount sees the change once it is connected again", || {
        let seen = look(&far, Instant::now());
        (seen.mode == Some(0o600) && seen.new_name == Some(true)).then_some(())
    });
    is_over.store(true, Ordering::Relaxed);
    let all = watcher.join().expect("it only looks");
    assert!(dropped > 0, "nothing was cut");
    println!("the change took {took:?}; {} looks, {dropped} datagrams dropped", all.len());
    let later = all.iter().filter(|seen| seen.asked > acknowledged);
    for seen in later {
        let after = seen.asked - acknowledged;
        assert_ne!(seen.mode, Some(0o644), "a stale mode {after:?} after the change");
        assert_ne!(seen.content.as_deref(), Some(&b"before"[..]), "stale content after {after:?}");
        assert_ne!(seen.old_name, Some(true), "a name that is gone, after {after:?}");
        assert_ne!(seen.new_name, Some(false), "no new name after {after:?}");
    }
    let seen = look(&far, Instant::now());
    assert_eq!(seen.content.as_deref(), Some(&b"after"[..]));
}

/// S-COH-3.
#[test]
fn a_mount_that_is_cut_off_answers_nothing_stale() {
    cut_off("a_mount_that_is_cut_off_answers_nothing_stale", |relay| relay.cut(true));
}

/// S-COH-3.
#[test]
fn a_mount_that_cannot_send_answers_nothing_stale() {
    cut_off("a_mount_that_cannot_send_answers_nothing_stale", |relay| relay.cut_up(true));
}

/// S-COH-3.
#[test]
fn a_mount_that_cannot_receive_answers_nothing_stale() {
    cut_off("a_mount_that_cannot_receive_answers_nothing_stale", |relay| relay.cut_down(true));
}

/// The same a tier up: a gateway that its brick cannot reach. S-COH-3.
#[test]
fn a_gateway_that_is_cut_off_answers_nothing_stale() {
    let name = "a_gateway_that_is_cut_off_answers_nothing_stale";
    if is_local() {
        return;
    }
    let Some(mut share) = Share::start(name, &Layout { mounts: &[0], ..Layout::default() }) else {
        return;
    };
    let relay = Relay::start(share.site().brick_address());
    let number = share.site_mut().add_gateway_before(&relay.address(), &[]);
    let address = share.site().gateway_number(number).ready().to_owned();
    let far = share.add_mount(&address, "timeout=2");
    make(&share.mount(0).join("d"));
    let (near, far) = (share.mount(0).join("d"), share.mount(far).join("d"));
    assert_eq!(look(&far, Instant::now()).mode, Some(0o644));
    relay.cut(true);
    let start = Instant::now();
    change(&near);
    assert!(start.elapsed() < LEASE_LIMIT, "the change waited {:?}", start.elapsed());
    let seen = look(&far, Instant::now());
    assert_ne!(seen.mode, Some(0o644), "a stale mode");
    assert_ne!(seen.content.as_deref(), Some(&b"before"[..]), "stale content");
    assert_ne!(seen.old_name, Some(true), "a name that is gone");
    assert_ne!(seen.new_name, Some(false), "no new name");
    relay.cut(false);
    wait::until("the gateway is connected again", || {
        (look(&far, Instant::now()).content.as_deref() == Some(b"after")).then_some(())
    });
}
