//! Directories that are listed before they are asked for: walks over slow lines, clients that turn
//! away, budgets, and changes to what nobody has looked at yet.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_suite::mounted::Mounted;
use portcullis_suite::relay::{Conditions, Relay};
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::site::Site;
use portcullis_suite::{binary, find, guest, need, policy, tree, wait};
use portcullis_wire::stats::GatewayStats;

/// A mount, a gateway and a brick, with a relay on each hop.
struct Line {
    // Dropped in this order: what is mounted goes before what serves it.
    mounted: Option<Mounted>,
    address: String,
    hops: [Relay; 2],
    site: Site,
}

impl Line {
    /// Mounts at once; the relays get their delay then.
    fn start(export: &Path, gateway_args: &[&str], mount_args: &[&str], delay_us: u64) -> Self {
        let mut site = Site::start(export, &[]);
        let to_brick = Relay::start(site.brick_address());
        let number = site.add_gateway_before(&to_brick.address(), gateway_args);
        let address = site.gateway_number(number).ready().to_owned();
        let to_gateway = Relay::start(&address);
        let url = format!("pc://{}/", to_gateway.address());
        let mounted = Some(Mounted::at(&site, &url, "mnt", mount_args));
        let hops = [to_gateway, to_brick];
        hops.iter().for_each(|hop| hop.set_both(Conditions::delayed(delay_us)));
        Self { mounted, address, hops, site }
    }

    fn path(&self) -> PathBuf {
        self.mounted.as_ref().expect("it is mounted").path().to_owned()
    }

    /// What the gateway tells of itself, not by the relay.
    fn stats(&self) -> GatewayStats {
        let mut stats = Command::new(binary());
        stats.arg("stats").arg(format!("pc://{}/", self.address)).arg("--json");
        let output = stats.arg("--identity").arg(self.site.identity()).output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("stats are JSON")
    }

    /// Listings that the gateway asked the brick for.
    fn lists(&self) -> u64 {
        self.stats().bricks[0].requests.get("list").copied().unwrap_or(0)
    }

    /// Unmounts without delays, and answers what the mount has logged.
    fn unmount(mut self) -> String {
        self.hops.iter().for_each(|hop| hop.set_both(Conditions::default()));
        self.mounted.take().expect("it is mounted").unmount();
        fs::read_to_string(self.site.scratch("mnt.log")).expect("its log")
    }
}

/// Three levels of directories, so many in each, with a few files in all of them. Answers how many
/// directories there are.
fn even(root: &Path, each: usize) -> usize {
    let mut level = vec![root.to_owned()];
    let mut dirs = 1;
    for _ in 0..3 {
        let mut next = Vec::new();
        for dir in level {
            for number in 0..each {
                let path = dir.join(format!("d{number}"));
                fs::create_dir(&path).expect("a directory");
                next.push(path);
            }
        }
        dirs += next.len();
        level = next;
    }
    let mut all = vec![root.to_owned()];
    while let Some(dir) = all.pop() {
        (0..3).for_each(|n| fs::write(dir.join(format!("f{n}")), "x").expect("a file"));
        let subdirs =
            fs::read_dir(&dir).expect("a listing").map(|entry| entry.expect("one").path());
        all.extend(subdirs.filter(|path| path.is_dir()));
    }
    dirs
}

/// The decided ones among the directories that were listed ahead.
fn decided(stats: &GatewayStats) -> u64 {
    let prefetch = &stats.prefetch;
    prefetch.used + prefetch.late + prefetch.wasted + prefetch.cancelled + prefetch.failed
}

/// Without listing ahead this takes a round trip for each directory at the very least.
#[test]
fn a_walk_over_slow_lines_takes_few_round_trips() {
    if !need::fuse_and_root("a_walk_over_slow_lines_takes_few_round_trips") {
        return;
    }
    const DELAY_MS: u64 = 20;
    let dir = tempfile::tempdir().expect("a directory");
    let dirs = even(dir.path(), 6) as u64;
    let line = Line::start(dir.path(), &[], &[], DELAY_MS * 1000);
    let start = Instant::now();
    let found = find::local(&line.path(), find::EVERYTHING);
    let took = start.elapsed();
    find::assert_equal(&found, &find::local(dir.path(), find::EVERYTHING));
    // There and back on both hops.
    let trips = took.as_millis() as u64 / (4 * DELAY_MS);
    println!("{dirs} directories in {took:?}: {trips} round trips");
    assert!(trips < dirs / 4, "{trips} round trips for {dirs} directories");
    let stats = line.stats();
    let prefetch = &stats.prefetch;
    assert_eq!(line.lists(), dirs, "each is asked for once: {prefetch:?}");
    assert!(prefetch.used + prefetch.late > dirs / 2, "{prefetch:?}");
    assert!(prefetch.wasted + prefetch.cancelled + prefetch.failed < dirs / 10, "{prefetch:?}");
    let log = line.unmount();
    assert!(log.contains("directories listed ahead: "), "{log}");
}

/// A component of the gateway goes ahead of a walk over a slow line to the brick as the native policy
/// does, which is the same code: the answers come a moment later, and no step waits for them.
#[test]
fn a_component_goes_ahead_of_a_walk_too() {
    if !need::fuse_and_root("a_component_goes_ahead_of_a_walk_too") {
        return;
    }
    const DELAY_MS: u64 = 10;
    let dir = tempfile::tempdir().expect("a directory");
    let dirs = even(dir.path(), 6) as u64;
    let crawl = policy("crawl");
    for prefetch in ["crawl", &*crawl.to_string_lossy()] {
        let line = Line::start(dir.path(), &["--prefetch", prefetch], &["--prefetch", "none"], 0);
        let [_, to_brick] = &line.hops;
        to_brick.set_both(Conditions::delayed(DELAY_MS * 1000));
        let start = Instant::now();
        let found = find::local(&line.path(), find::EVERYTHING);
        let took = start.elapsed();
        find::assert_equal(&found, &find::local(dir.path(), find::EVERYTHING));
        let trips = took.as_millis() as u64 / (2 * DELAY_MS);
        let stats = line.stats().prefetch;
        println!("{dirs} directories in {took:?}: {trips} round trips; {stats:?}");
        assert!(trips < dirs / 3, "{prefetch}: {trips} round trips for {dirs} directories");
        assert_eq!(line.lists(), dirs, "each is asked for once: {stats:?}");
        assert!(stats.used + stats.late > dirs / 2, "{stats:?}");
        assert!(stats.wasted + stats.cancelled + stats.failed < dirs / 10, "{stats:?}");
        assert_eq!((stats.name.as_str(), stats.fallback_reason.as_str()), ("crawl", ""));
        let is_native = prefetch == "crawl";
        assert_eq!(stats.kind, if is_native { "native" } else { "wasm" });
        assert_eq!(stats.calls == 0, is_native, "{stats:?}");
        assert_eq!(stats.digest.is_empty(), is_native, "{stats:?}");
        assert_eq!((stats.foreign, stats.stale, stats.excess), (0, 0, 0), "{stats:?}");
        line.unmount();
    }
}

/// H-2, H-30 for prefetch: a component that traps in the middle of a walk. Listings go on, the walk
/// sees everything, and the eviction policy has nothing to do with it.
#[test]
fn a_component_that_traps_in_a_walk_costs_nothing_else() {
    if !need::fuse_and_root("a_component_that_traps_in_a_walk_costs_nothing_else") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let dirs = even(dir.path(), 6);
    let traps = guest("prefetch-trap").to_string_lossy().into_owned();
    let line = Line::start(dir.path(), &["--prefetch", &traps], &["--prefetch", "none"], 1_000);
    let expected = find::local(dir.path(), find::EVERYTHING);
    for _ in 0..2 {
        find::assert_equal(&find::local(&line.path(), find::EVERYTHING), &expected);
    }
    let stats = line.stats();
    let prefetch = &stats.prefetch;
    // After half a second it is tried again: either of them is at work, and the status says so.
    let is_native = (prefetch.kind.as_str(), prefetch.name.as_str()) == ("native", "crawl");
    assert_eq!(is_native, !prefetch.fallback_reason.is_empty(), "{prefetch:?}");
    let log = line.site.gateway_number(1).log();
    let reason = "prefetch policy replaced by the native one: prefetch-trap 0.1.0 (sha256 ";
    let said = log.lines().find(|said| said.contains(reason)).expect("it is said in the log");
    assert!(said.contains("trapped in on-events"), "{said}");
    assert!(prefetch.used + prefetch.late > dirs as u64 / 4, "{prefetch:?}");
    let eviction = &stats.eviction;
    assert_eq!((eviction.kind.as_str(), eviction.fallback_reason.as_str()), ("wasm", ""));
    line.unmount();
}

#[test]
fn with_none_nothing_is_listed_ahead() {
    if !need::fuse_and_root("with_none_nothing_is_listed_ahead") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let dirs = even(dir.path(), 3) as u64;
    let none = ["--prefetch", "none"];
    let line = Line::start(dir.path(), &none, &none, 2_000);
    let start = Instant::now();
    find::local(&line.path(), find::EVERYTHING);
    let trips = start.elapsed().as_millis() as u64 / 8;
    assert!(trips >= dirs, "{trips} round trips for {dirs} directories");
    let prefetch = line.stats().prefetch;
    assert_eq!((prefetch.name.as_str(), prefetch.begun), ("none", 0));
    assert!(line.unmount().contains(" 0 directories listed ahead"));
}

/// S-MEM-2. A client that ends in the middle of a walk.
#[test]
fn a_client_that_leaves_takes_its_listings_ahead_with_it() {
    if !need::fuse_and_root("a_client_that_leaves_takes_its_listings_ahead_with_it") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    even(dir.path(), 9);
    let mut line = Line::start(dir.path(), &[], &[], 0);
    let [_, to_brick] = &line.hops;
    to_brick.set_both(Conditions::delayed(500_000));
    let mut walk = Command::new("find").arg(line.path()).spawn().expect("find(1) runs");
    wait::until("a walk under way", || (line.stats().prefetch.begun > 40).then_some(()));
    let mounted = line.mounted.take().expect("it is mounted");
    assert!(mounted.terminate().success(), "the end of the mount");
    let stats = wait::until("nothing left ahead", || {
        let stats = line.stats();
        (decided(&stats) == stats.prefetch.begun).then_some(stats)
    });
    assert!(stats.prefetch.cancelled > 0, "{:?}", stats.prefetch);
    let lists = line.lists();
    wait::pause(Duration::from_millis(500));
    assert_eq!(line.lists(), lists, "nothing goes on");
    walk.wait().expect("our own child");
}

/// S-MEM-2.
#[test]
fn what_is_ahead_of_a_client_stays_within_its_budget() {
    if !need::fuse_and_root("what_is_ahead_of_a_client_stays_within_its_budget") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 600, 100);
    // So much that the window would take 256 directories, and the gateway may hold five of them.
    let args = ["--cache-bytes", "1MiB"];
    let line = Line::start(dir.path(), &args, &["--prefetch", "none"], 0);
    let [_, to_brick] = &line.hops;
    to_brick.set_both(Conditions::delayed(30_000));
    let mut walk = Command::new("find");
    walk.arg(line.path()).args(["-name", "nothing"]);
    let mut walk = walk.spawn().expect("find(1) runs");
    let mut most = 0;
    while walk.try_wait().expect("our own child").is_none() {
        let stats = line.stats();
        most = most.max(stats.prefetch.begun - decided(&stats));
    }
    let prefetch = line.stats().prefetch;
    println!("at most {most} directories ahead: {prefetch:?}");
    // What does not last until it is used is not fetched on and on.
    assert!(prefetch.wasted <= 64 + prefetch.begun / 4, "{prefetch:?}");
    // 64 that may be under way, and what is there and not used.
    assert!(most > 0 && most <= 64 + 16, "{most} directories ahead");
    line.unmount();
}

/// S-LIST-7.
#[test]
fn what_changes_in_a_directory_listed_ahead_is_seen_when_it_is_entered() {
    const TEST: &str = "what_changes_in_a_directory_listed_ahead_is_seen_when_it_is_entered";
    let layout = Layout { mounts: &[0, 0, 1], ..Layout::default() };
    let Some(share) = Share::start(TEST, &layout) else { return };
    if is_local() {
        return;
    }
    const DIRS: usize = 40;
    tree::wide(share.export(), DIRS, 5);
    let [walker, near, far] = [share.mount(0), share.mount(1), share.mount(2)];
    // In the order in which they are listed.
    let dirs: Vec<_> = fs::read_dir(walker).expect("a listing").map(name).collect();
    assert_eq!(dirs.len(), DIRS);
    for dir in &dirs[..8] {
        assert_eq!(names(&walker.join(dir)).len(), 5);
    }
    let lists = || share.site().brick_stats().requests.get("list").copied().unwrap_or(0);
    wait::until("all are listed ahead", || (lists() > DIRS as u64).then_some(()));
    for (number, other) in [(20, near), (21, far), (22, share.export())] {
        let dir = other.join(&dirs[number]);
        fs::write(dir.join("new"), "new").expect("a file");
        fs::remove_file(dir.join("file-00000000001")).expect("it was there");
        fs::write(dir.join("file-00000000002"), "longer").expect("it is there");
    }
    fs::remove_dir_all(near.join(&dirs[23])).expect("it is there");
    fs::rename(far.join(&dirs[24]), far.join("renamed")).expect("it is there");
    if share.site().stats().watch.notices.name() != "fanotify" {
        // What is done directly on the brick is seen later then.
        return;
    }
    for number in [20, 21, 22] {
        let dir = walker.join(&dirs[number]);
        // Of what was done directly on the brick, notice comes within moments.
        let seen = wait::until("the new file", || {
            let seen = names(&dir);
            (number != 22 || seen.contains("new")).then_some(seen)
        });
        assert!(seen.contains("new") && seen.len() == 5, "{number}: {seen:?}");
        assert!(!seen.contains("file-00000000001"), "{number}: {seen:?}");
        let changed = fs::metadata(dir.join("file-00000000002")).expect("it is there");
        assert_eq!(changed.len(), 6, "{number}");
    }
    for gone in [23, 24] {
        let error = fs::read_dir(walker.join(&dirs[gone])).expect_err("it is gone");
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{gone}");
    }
    assert_eq!(names(&walker.join("renamed")).len(), 5);
}

/// S-LIST-7, while listings are on their way: whoever was told that a file is there, and then
/// enters its directory, finds it.
#[test]
fn a_walk_never_misses_what_was_made_before_it_came() {
    const TEST: &str = "a_walk_never_misses_what_was_made_before_it_came";
    if !need::fuse_and_root(TEST) {
        return;
    }
    const DIRS: usize = 60;
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), DIRS, 3);
    let line = Line::start(dir.path(), &[], &[], 3_000);
    let (walker, number) = (line.path(), 1);
    let url = format!("pc://{}/", line.site.gateway_number(number).ready());
    let writer = Mounted::at(&line.site, &url, "other", &[]);
    let dirs: Vec<_> = fs::read_dir(&walker).expect("a listing").map(name).collect();
    for (number, dir) in dirs.iter().enumerate() {
        // Where the walk is about to come, and where it will be a while from now.
        for ahead in [number, (number + 7).min(DIRS - 1)] {
            let file = writer.path().join(&dirs[ahead]).join(format!("new-{number}"));
            fs::write(file, "x").expect("a file");
        }
        let seen = names(&walker.join(dir));
        let mut expected = BTreeSet::from([format!("new-{number}")]);
        expected.extend(number.checked_sub(7).map(|before| format!("new-{before}")));
        assert!(seen.is_superset(&expected), "{dir}: {seen:?} lacks some of {expected:?}");
    }
    drop(writer);
    line.unmount();
}

fn name(entry: std::io::Result<fs::DirEntry>) -> String {
    entry.expect("an entry").file_name().into_string().expect("text")
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).expect("a listing").map(name).collect()
}
