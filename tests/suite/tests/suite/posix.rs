//! POSIX as two programs check it that were written for that: pjdfstest, one call after another,
//! and fsx, random operations on one file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_suite::run::{self, Running};
use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{need, soaking, wait};

const PJDFSTEST_CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
"#;
/// Tests that pjdfstest has at least; fewer would mean that its output was not understood.
const PJDFSTEST_CASES_MIN: usize = 390;
/// Makes as many links as the file system allows: 65,000 on ext4, which is minutes on a mount.
const LINK_COUNT_MAX: &str = "link::link_count_max";
/// Wants the links of a directory to count its subdirectories, which POSIX leaves open: on several bricks
/// they do not (S-VOLUME-2), as on btrfs.
const DIRECTORY_LINKS: &str = "rename::updates_link_parent";

const FSX_CONFIG: &str = "
flen = 262144
[weights]
close_open = 2
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 2
sendfile = 2
copy_file_range = 3
";

/// How long a whole run of either may take on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(840);

#[test]
fn pjdfstest_passes_what_passes_on_the_directory_below() {
    passes_what_passes_below("pjdfstest_passes_what_passes_on_the_directory_below", 1, &[]);
}

/// S-VOLUME-2.
#[test]
fn pjdfstest_passes_on_several_bricks_but_for_links_of_directories() {
    let name = "pjdfstest_passes_on_several_bricks_but_for_links_of_directories";
    passes_what_passes_below(name, 2, &[DIRECTORY_LINKS]);
}

/// Everything that passes on the local file system passes on a volume of so many bricks, but for the
/// cases `other`, which fail there.
fn passes_what_passes_below(name: &str, bricks: usize, other: &[&str]) {
    if !need::programs(name, &["pjdfstest"]) || !need::users(name) {
        return;
    }
    let Some(share) = Share::start(name, &Layout { bricks, ..Layout::default() }) else { return };
    let local = share.scratch("local");
    fs::create_dir(&local).expect("a directory");
    let below = pjdfstest(&local, &share.scratch("config.toml"), &[]);
    let failed: Vec<&String> =
        below.iter().filter(|(_, result)| *result == "FAILED").map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "the local file system itself fails {failed:?}");
    assert!(below.len() >= PJDFSTEST_CASES_MIN, "only {} cases", below.len());
    let cases: Vec<&str> =
        below.keys().map(String::as_str).filter(|name| *name != LINK_COUNT_MAX).collect();
    let mounted = pjdfstest(share.mount(0), &share.scratch("config.toml"), &cases);
    let differ: Vec<String> = cases
        .iter()
        .filter(|case| (mounted.get(**case) != below.get(**case)) != other.contains(case))
        .map(|case| format!("{case}: {:?}, below {:?}", mounted.get(*case), below.get(*case)))
        .collect();
    assert!(differ.is_empty(), "{} cases differ: {differ:#?}", differ.len());
}

/// Runs pjdfstest in `dir`, all of it or the named cases, and answers how each went.
pub(super) fn pjdfstest(dir: &Path, config: &Path, cases: &[&str]) -> BTreeMap<String, String> {
    fs::write(config, PJDFSTEST_CONFIG).expect("a file");
    let mut command = Command::new(need::program("pjdfstest").expect("it is there"));
    command.arg("-c").arg(config).arg("-p").arg(dir);
    if !cases.is_empty() {
        // Names are compared before the crate's own path is taken off them.
        command.arg("-e").args(cases.iter().map(|case| format!("pjdfstest::tests::{case}")));
    }
    let output = Running::start(command.current_dir(dir)).wait(RUN_LIMIT);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut results = BTreeMap::<String, String>::new();
    for (name, result) in stdout.lines().filter_map(case) {
        let known = results.entry(name).or_insert_with(|| result.clone());
        if result == "FAILED" {
            *known = result;
        }
    }
    let failed = results.values().filter(|result| *result == "FAILED").count();
    if failed > 0 {
        eprintln!("{stdout}");
    }
    assert!(!results.is_empty(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    results
}

/// The name of a case and how it went, where `line` tells of one.
fn case(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let (name, result) = (words.next()?, words.next()?);
    let known = ["ok", "FAILED", "skipped"].contains(&result) && words.next().is_none();
    (known && name.contains("::")).then(|| (name.to_owned(), result.to_owned()))
}

#[test]
fn fsx_finds_no_mismatch() {
    let name = "fsx_finds_no_mismatch";
    if !need::programs(name, &["fsx"]) {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    for seed in [1, 42, 20_241] {
        fsx(&share, &share.mount(0).join(format!("fsx-{seed}")), seed);
    }
}

/// The name that fsx opens leads to one mount and to the other in turn, so what it reads it has
/// often written through the other one.
#[test]
fn fsx_finds_no_mismatch_on_two_mounts_in_turn() {
    let name = "fsx_finds_no_mismatch_on_two_mounts_in_turn";
    if !need::programs(name, &["fsx"]) {
        return;
    }
    let Some(share) = Share::start(name, &Layout { mounts: &[0, 1], ..Layout::default() }) else {
        return;
    };
    let turn = share.scratch("turn");
    fs::create_dir(&turn).expect("a directory");
    let path = turn.join("file");
    let point = |number: usize| {
        let next = turn.join("next");
        symlink(share.mount(number).join("fsx"), &next).expect("a link");
        fs::rename(&next, &path).expect("renamed");
    };
    point(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in [1, 0].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                wait::pause(Duration::from_millis(3));
                point(number);
            }
        });
        let end = OnDrop(&is_over);
        fsx(&share, &path, 7);
        drop(end);
    });
}

/// Sets a flag also when a test fails, so that the thread that looks at it ends.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fsx(share: &Share, path: &Path, seed: u32) {
    let config: PathBuf = share.scratch("fsx.toml");
    fs::write(&config, FSX_CONFIG).expect("a file");
    let operations = if soaking() { 50_000 } else { 5_000 };
    println!("fsx: seed {seed}, {operations} operations on {}", path.display());
    let mut command = Command::new(need::program("fsx").expect("it is there"));
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]).arg(config);
    command.arg("-P").arg(share.scratch("")).arg(path);
    let output = Running::start(&mut command).wait(RUN_LIMIT);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = stderr.lines().rev().take(40).collect();
    assert!(
        output.status.success(),
        "seed {seed}: {}\n{}\n(the last lines, backwards) {tail:#?}",
        output.status,
        run_head(&stderr),
    );
}

fn run_head(text: &str) -> String {
    text.lines().take(20).collect::<Vec<_>>().join("\n")
}

/// The tests of this file understand what pjdfstest prints.
#[test]
fn a_line_of_pjdfstest_is_understood() {
    let ok = |name: &str, result: &str| Some((name.to_owned(), result.to_owned()));
    assert_eq!(case("rename::eexist      ok"), ok("rename::eexist", "ok"));
    assert_eq!(case("rename::eexist  FAILED"), ok("rename::eexist", "FAILED"));
    assert_eq!(case("Summary: 0 failed, 15 skipped"), None);
    assert_eq!(case("\trequires features: a"), None);
    // A program that hangs is ended: the other tests depend on it.
    let start = std::time::Instant::now();
    let hung = std::panic::catch_unwind(|| {
        Running::start(Command::new("sleep").arg("1000")).wait(Duration::from_millis(200))
    });
    assert!(hung.is_err() && start.elapsed() < run::limit());
}
