//! Each change, made in three ways, seen in four: every answer is that of the brick's own file
//! system.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{soaking, wait};

use super::case::{CHANGES, Case, Change, Look};

/// Checks that the quiet matrix makes at least.
const CHECKS_MIN: usize = 2_000;
/// Cases that share a directory in which everybody is at work.
const BUSY_CASES: usize = 20;
/// How long a direct change may stay unseen: far more than it takes, for a machine that is busy
/// with other things.
const DIRECT_LIMIT: Duration = Duration::from_secs(2);
/// What a machine that has nothing else to do has to keep (`cargo xtask soak`).
const DIRECT_MEDIAN_LIMIT: Duration = Duration::from_millis(10);
const DIRECT_LONGEST_LIMIT: Duration = Duration::from_millis(250);

/// Where a change is made. Mount 0 looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Through another mount of the same gateway.
    Mount,
    /// Through a mount of another gateway.
    Gateway,
    /// In the exported directory itself.
    Direct,
}

impl Origin {
    const ALL: [Origin; 3] = [Origin::Mount, Origin::Gateway, Origin::Direct];

    fn root(self, share: &Share) -> &Path {
        match self {
            Origin::Mount => share.mount(1),
            Origin::Gateway => share.mount(2),
            Origin::Direct => share.export(),
        }
    }
}

/// One check to make.
struct Check {
    case: Case,
    name: &'static str,
    change: Change,
    origin: Origin,
    look: Look,
    is_cached: bool,
    turn: usize,
}

/// Every check of the matrix, `rounds` times; each has a case of its own below `root`.
fn checks(rounds: usize, dir: impl Fn(usize) -> (PathBuf, String)) -> Vec<Check> {
    let mut checks = Vec::new();
    for turn in 0..rounds {
        for &(name, change) in CHANGES {
            for origin in Origin::ALL {
                for look in Look::ALL {
                    for is_cached in [false, true] {
                        let (dir, prefix) = dir(checks.len());
                        let case = Case { dir, prefix };
                        checks.push(Check { case, name, change, origin, look, is_cached, turn });
                    }
                }
            }
        }
    }
    checks
}

/// What came of all checks.
#[derive(Default)]
struct Tally {
    checks: usize,
    /// Checks whose change could be seen in that way at all.
    telling: usize,
    stale: Vec<String>,
    /// How long after each direct change the first look was begun that saw it.
    delays: Vec<Duration>,
    /// How long each look through the mount took.
    looks: Vec<Duration>,
}

impl Tally {
    fn run(&mut self, share: &Share, check: &Check) {
        let eye = share.mount(0);
        let look = |root: &Path| check.case.look(check.look, root, check.turn);
        let before = look(share.export());
        if check.is_cached {
            for look in Look::ALL.into_iter().chain(Look::ALL) {
                check.case.look(look, eye, 0);
            }
        }
        (check.change)(&check.case, check.origin.root(share));
        let start = Instant::now();
        let mut seen = look(eye);
        self.looks.push(start.elapsed());
        let expected = look(share.export());
        self.checks += 1;
        self.telling += usize::from(before != expected);
        if check.origin == Origin::Direct {
            let mut delay = Duration::ZERO;
            while seen != expected && start.elapsed() < DIRECT_LIMIT {
                wait::pause(Duration::from_millis(1));
                delay = start.elapsed();
                seen = look(eye);
            }
            self.delays.push(delay);
        }
        if seen != expected {
            let cached = if check.is_cached { "cached" } else { "not cached" };
            self.stale.push(format!(
                "{} by {:?}, seen by {:?}, {cached}: saw\n{seen}where there is\n{expected}before it was\n{before}",
                check.name, check.origin, check.look,
            ));
        }
    }

    fn report(&mut self) {
        let [delays, looks] = [&mut self.delays, &mut self.looks].map(|times| {
            times.sort_unstable();
            [50, 99, 100].map(|percent| {
                let last = times.len().saturating_sub(1);
                times.get((times.len() * percent / 100).min(last)).copied().unwrap_or_default()
            })
        });
        println!(
            "{} checks, {} of them telling; direct changes seen after {delays:?}, one look takes \
             {looks:?} (median, 99 %, longest)",
            self.checks, self.telling,
        );
        let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
        for stale in &self.stale {
            *kinds.entry(stale.split(": saw").next().unwrap_or_default()).or_default() += 1;
        }
        let shown: String = self.stale.iter().take(5).cloned().collect();
        assert!(self.stale.is_empty(), "{} stale: {kinds:#?}\n{shown}", self.stale.len());
        if soaking() {
            assert!(delays[0] <= DIRECT_MEDIAN_LIMIT, "the median");
            assert!(delays[2] <= DIRECT_LONGEST_LIMIT, "the longest");
        }
        assert!(
            self.telling * 3 > self.checks,
            "most changes are seen in no way: {}",
            self.telling
        );
    }
}

/// S-COH-1, S-COH-2.
#[test]
fn an_acknowledged_change_is_seen_by_the_next_request() {
    let name = "an_acknowledged_change_is_seen_by_the_next_request";
    let rounds = 3;
    let checks = checks(rounds, |number| (format!("case-{number:05}").into(), String::new()));
    let dir = prepare(&checks);
    let layout =
        Layout { export: Some(dir.path().join("export")), mounts: &[0, 0, 1], ..Layout::default() };
    let Some(share) = Share::start(name, &layout) else { return };
    let mut tally = Tally::default();
    for check in &checks {
        tally.run(&share, check);
    }
    tally.report();
    assert!(tally.checks >= CHECKS_MIN, "{} checks", tally.checks);
}

/// Both mounts make, rename and remove names of their own in the very directory all the time.
/// S-COH-1.
#[test]
fn it_is_also_seen_while_all_mounts_change_the_directory() {
    let name = "it_is_also_seen_while_all_mounts_change_the_directory";
    // One directory after the other, so that none is long.
    let busy = |number: usize| PathBuf::from(format!("busy-{:03}", number / BUSY_CASES));
    let checks = checks(1, |number| (busy(number), format!("case-{number:05}-")));
    let dir = prepare(&checks);
    let layout =
        Layout { export: Some(dir.path().join("export")), mounts: &[0, 0, 1], ..Layout::default() };
    let Some(share) = Share::start(name, &layout) else { return };
    let (is_over, current) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut tally = Tally::default();
    let rounds = std::thread::scope(|scope| {
        let (is_over, current, busy) = (&is_over, &current, &busy);
        let noise: Vec<_> = (0..3)
            .map(|mount| {
                let root = share.mount(mount);
                scope.spawn(move || {
                    let dir = || root.join(busy(current.load(Ordering::Relaxed)));
                    make_noise(dir, mount, is_over)
                })
            })
            .collect();
        let end = OnDrop(is_over);
        for (number, check) in checks.iter().enumerate() {
            current.store(number, Ordering::Relaxed);
            tally.run(&share, check);
        }
        drop(end);
        let rounds = noise.into_iter().map(|thread| thread.join().expect("no operation fails"));
        rounds.collect::<Vec<_>>()
    });
    println!("rounds of noise by each mount: {rounds:?}");
    tally.report();
    assert!(rounds.iter().all(|rounds| *rounds > 10), "no noise: {rounds:?}");
}

/// Sets a flag also when a check fails, so that the threads that look at it end.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes all cases in a directory that is not exported yet.
fn prepare(checks: &[Check]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    for check in checks {
        check.case.make(&export);
    }
    dir
}

fn make_noise(dir: impl Fn() -> PathBuf, mount: usize, is_over: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        let dir = dir();
        let [one, other] = ["one", "other"].map(|name| dir.join(format!("noise-{mount}-{name}")));
        std::fs::write(&one, "noise").expect("a file");
        std::fs::rename(&one, &other).expect("renamed");
        assert!(std::fs::metadata(&one).is_err(), "the old name is gone");
        assert_eq!(std::fs::read(&other).expect("it reads"), b"noise");
        std::fs::remove_file(&other).expect("removed");
        rounds += 1;
        wait::pause(Duration::from_millis(1));
    }
    rounds
}
