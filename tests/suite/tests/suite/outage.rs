//! A brick that dies and comes back.

use std::time::{Duration, Instant};

use portcullis_suite::site::Site;
use portcullis_suite::{find, tree, wait};

/// The longest a request may hang after its brick died: the brick's idle timeout, a little more.
const FAILURE_LIMIT: Duration = Duration::from_secs(20);

/// S-FAIL-1, S-FAIL-2, S-LIST-2.
#[test]
fn a_dead_brick_fails_requests_in_bounded_time_and_its_return_mends_them() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let mut site = Site::start(dir.path(), &[]);
    let before = find::through(&site, "/", find::EVERYTHING);
    site.kill_brick();

    // The content of a file is never cached, so this request needs the brick.
    let start = Instant::now();
    let cat = site.run("cat", "/a/one", &[]);
    let stderr = String::from_utf8_lossy(&cat.stderr);
    assert_eq!(cat.status.code(), Some(1), "{stderr}");
    assert!(start.elapsed() < FAILURE_LIMIT, "it took {:?}", start.elapsed());
    assert!(stderr.contains("unavailable") || stderr.contains("brick"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    // Once the loss is known, nothing is answered from what was cached before it.
    wait::until("the gateway knows", || (!site.brick_stats().connected).then_some(()));
    let ls = site.run("ls", "/", &[]);
    assert_eq!(ls.status.code(), Some(1), "{}", String::from_utf8_lossy(&ls.stderr));

    std::fs::write(dir.path().join("a/new"), "new").expect("a file");
    site.restart_brick();
    wait::until("the brick is back", || site.run("ls", "/", &[]).status.success().then_some(()));
    assert_eq!(site.stdout("cat", "/a/new", &[]), b"new", "what changed meanwhile is seen");
    let after = find::through(&site, "/", find::EVERYTHING);
    find::assert_equal(&after, &find::local(dir.path(), find::EVERYTHING));
    assert_ne!(before, after);
    let brick = site.brick_stats();
    assert!(brick.connected && brick.connects >= 2, "{brick:?}");
}

/// The restarted brick tells its old peer at once that it knows it no more. Without that, the
/// gateway would wait for its connection to time out, which takes longer than this gateway allows.
#[test]
fn a_brick_that_comes_back_at_once_is_used_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let local = std::fs::read(dir.path().join("a/one")).expect("it was made");
    let mut site = Site::start(dir.path(), &["--brick-timeout", "3s"]);
    assert_eq!(site.stdout("cat", "/a/one", &[]), local);
    site.kill_brick();
    site.restart_brick();
    let cat = site.run("cat", "/a/one", &[]);
    assert!(cat.status.success(), "{}", String::from_utf8_lossy(&cat.stderr));
}

/// Handles outlive both servers: what a client holds is good after a restart. S-ENTRY-4.
#[test]
fn a_handle_outlives_a_restart_of_its_brick() {
    use portcullis_suite::dial;
    use portcullis_transport::Role;

    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let mut site = Site::start(dir.path(), &[]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_connector, connection) = runtime
        .block_on(dial::connect(
            site.gateway.ready(),
            &site.identity(),
            Role::Client,
            Role::Gateway,
        ))
        .expect("connected");
    let root = runtime.block_on(dial::attach(&connection));
    let before = runtime.block_on(dial::lookup(&connection, root, b"a")).expect("it is there");
    site.kill_brick();
    std::fs::rename(dir.path().join("a"), dir.path().join("renamed")).expect("renamed");
    site.restart_brick();
    let after = wait::until("the brick is back", || {
        runtime.block_on(dial::lookup(&connection, root, b"renamed")).ok()
    });
    assert_eq!(before.handle, after.handle, "stable across a rename and a restart");
    let below = runtime.block_on(dial::lookup(&connection, before.handle, b"one"));
    assert!(below.is_ok(), "the old handle still leads somewhere: {below:?}");
    let gone = runtime.block_on(dial::lookup(&connection, root, b"a"));
    assert!(gone.is_err(), "the old name does not: {gone:?}");
}
