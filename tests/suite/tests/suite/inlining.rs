//! Contents of small files that travel along with listings: requests that are not asked, changes that
//! are seen all the same, files that are removed while they are open, and who may read.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_suite::mounted::Mounted;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::site::Site;
use portcullis_suite::{guest, need, policy, run, wait};
use portcullis_wire::stats::GatewayStats;
use tempfile::TempDir;

const DIRS: usize = 12;
const FILES: usize = 20;
/// Too large for the fixed policy.
const LARGE_LEN_BYTES: usize = 20_000;

/// Directories with small files, an empty one and a large one each.
fn plant(root: &Path) {
    for dir in 0..DIRS {
        let dir = root.join(format!("d{dir}"));
        fs::create_dir(&dir).expect("a directory");
        for file in 0..FILES {
            let content = format!("the content of {file} in {}\n", dir.display());
            fs::write(dir.join(format!("f{file}")), content.repeat(file + 1)).expect("a file");
        }
        fs::write(dir.join("empty"), "").expect("a file");
        fs::write(dir.join("large"), "l".repeat(LARGE_LEN_BYTES)).expect("a file");
    }
}

/// Reads every file, as a search does; answers how many bytes there were.
fn search(root: &Path) -> u64 {
    let output = Command::new("grep").args(["-r", "-c", ""]).arg(root).output().expect("grep runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{stderr}");
    output.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn requests(stats: &GatewayStats, verb: &str) -> u64 {
    stats.requests.get(verb).copied().unwrap_or(0)
}

/// Requests of clients to open and to read files.
fn opens_and_reads(site: &Site) -> (u64, u64) {
    let stats = site.stats();
    (requests(&stats, "open"), requests(&stats, "read"))
}

fn mount(site: &Site, name: &str, args: &[&str]) -> Mounted {
    Mounted::at(site, &site.url("/"), name, args)
}

/// S-INLINE-1.
#[test]
fn files_whose_content_came_along_are_read_without_a_request() {
    if !need::fuse_and_root("files_whose_content_came_along_are_read_without_a_request") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    plant(dir.path());
    let all = (DIRS * (FILES + 2)) as u64;
    let asked = ["none", "fixed"].map(|inlining| {
        let site = Site::start(dir.path(), &["--inlining", inlining]);
        let mounted = mount(&site, "mnt", &[]);
        assert_eq!(search(mounted.path()), all);
        let asked = opens_and_reads(&site);
        run::success(Command::new("diff").arg("-r").arg(mounted.path()).arg(dir.path()));
        let stats = site.stats();
        println!("{inlining}: {asked:?}, {:?}", stats.inlining);
        let inlined = if inlining == "none" { 0 } else { (DIRS * FILES) as u64 };
        assert_eq!(stats.inlining.inlined, inlined);
        asked
    });
    let [(opens, reads), with] = asked;
    assert_eq!(opens, all);
    assert!(reads >= all - DIRS as u64, "all but empty ones: {reads}");
    assert_eq!(with.0, DIRS as u64, "the large ones alone");
    assert!(with.1 <= 3 * DIRS as u64, "the large ones alone: {} reads", with.1);
    // A mount that wants none is sent none.
    let site = Site::start(dir.path(), &["--inlining", "fixed"]);
    let mounted = mount(&site, "mnt", &["-o", "contents=0"]);
    assert_eq!(search(mounted.path()), all);
    assert_eq!((opens_and_reads(&site).0, site.stats().inlining.inlined), (all, 0));
}

/// A listing that the gateway has in its cache brings contents along too: those that it keeps, or from
/// the brick, by one request for each directory. S-INLINE-1.
#[test]
fn contents_come_along_with_listings_that_are_cached() {
    if !need::fuse_and_root("contents_come_along_with_listings_that_are_cached") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    plant(dir.path());
    let site = Site::start(dir.path(), &["--inlining", "none"]);
    let first = mount(&site, "first", &[]);
    search(first.path());
    let lists = |site: &Site| site.brick_stats().requests.get("list").copied().unwrap_or(0);
    assert_eq!(lists(&site), DIRS as u64 + 1);
    site.policy("swap", &["fixed", "--kind", "inlining"]).expect("there is one");
    let (opens, _) = opens_and_reads(&site);
    for (number, expected) in [("second", 2), ("third", 2)] {
        let mounted = mount(&site, number, &[]);
        search(mounted.path());
        assert_eq!(lists(&site), expected * (DIRS as u64 + 1), "{number}");
    }
    assert_eq!(opens_and_reads(&site).0, opens + 2 * DIRS as u64, "the large ones, twice");
}

/// So many directories `r0`, `r1` ... with a file `f` each, exported for three mounts of two gateways.
struct Rounds {
    // Dropped first.
    share: Share,
    _export: TempDir,
}

impl Rounds {
    fn start(test: &str, rounds: usize, content: &str) -> Option<Self> {
        let export = tempfile::tempdir().expect("a directory");
        fs::set_permissions(export.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        for round in 0..rounds {
            let dir = export.path().join(format!("r{round}"));
            fs::create_dir(&dir).expect("a directory");
            fs::write(dir.join("f"), content).expect("a file");
        }
        let layout = Layout {
            export: Some(export.path().to_owned()),
            mounts: &[0, 0, 1],
            gateway_args: &["--inlining", "fixed"],
            ..Layout::default()
        };
        Some(Self { share: Share::start(test, &layout)?, _export: export })
    }

    /// Opens the file of a round through the first mount, by the content that came along.
    fn open(&self, round: usize) -> (PathBuf, File) {
        let dir = self.share.mount(0).join(format!("r{round}"));
        assert!(fs::read_dir(&dir).expect("a listing").count() > 0);
        let path = dir.join("f");
        let opens = || if is_local() { 0 } else { opens_and_reads(self.share.site()).0 };
        let before = opens();
        let file = File::open(&path).expect("it opens");
        assert_eq!(opens(), before, "round {round}: its content is in place");
        (path, file)
    }

    /// The directory of a round for whoever changes something in it, and whether that is the brick.
    fn changer(&self, round: usize) -> (PathBuf, bool) {
        let changers = [self.share.mount(1), self.share.mount(2), self.share.export()];
        let changer = changers[round % 3];
        (changer.join(format!("r{round}")), changer == self.share.export())
    }
}

/// S-INLINE-2: through another mount, another gateway, and on the brick itself.
#[test]
fn a_change_elsewhere_is_read_next() {
    let test = "a_change_elsewhere_is_read_next";
    let Some(rounds) = Rounds::start(test, 18, "old content") else { return };
    for round in 0..18 {
        let (path, open) = rounds.open(round);
        let (dir, is_brick) = rounds.changer(round);
        if round % 2 == 0 {
            assert_eq!(fs::read(&path).expect("read"), b"old content");
        }
        // Of the same length, in place: nothing but the content tells.
        let file = File::options().write(true).open(dir.join("f")).expect("it opens");
        file.write_all_at(b"new content", 0).expect("written");
        let read = || {
            let mut bytes = [0; 11];
            open.read_exact_at(&mut bytes, 0).expect("read");
            [fs::read(&path).expect("read"), bytes.to_vec()]
        };
        let is_new = || read().iter().all(|content| content == b"new content");
        if is_brick {
            wait::until("the change on the brick", || is_new().then_some(()));
        } else {
            assert!(is_new(), "round {round}: {:?}", read());
        }
    }
}

/// S-INLINE-3.
#[test]
fn a_file_that_is_removed_or_replaced_stays_readable_where_it_is_open() {
    let test = "a_file_that_is_removed_or_replaced_stays_readable_where_it_is_open";
    let Some(rounds) = Rounds::start(test, 12, "the content") else { return };
    for round in 0..12 {
        let (path, open) = rounds.open(round);
        let (dir, is_brick) = rounds.changer(round);
        if round % 2 == 0 {
            fs::remove_file(dir.join("f")).expect("removed");
        } else {
            fs::write(dir.join("g"), "another one").expect("a file");
            fs::rename(dir.join("g"), dir.join("f")).expect("renamed");
        }
        let is_gone = || match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => round % 2 == 0,
            Ok(content) => content == b"another one",
            Err(error) => panic!("{error}"),
        };
        if is_brick {
            wait::until("the change on the brick", || is_gone().then_some(()));
        } else {
            assert!(is_gone(), "round {round}");
        }
        let mut bytes = [0; 11];
        open.read_exact_at(&mut bytes, 0).expect("it reads");
        assert_eq!(&bytes, b"the content", "round {round}");
        let attr = open.metadata().expect("attributes");
        assert_eq!((attr.len(), attr.nlink()), (11, 0), "round {round}");
    }
}

/// What is written through a mount is what it reads, whatever came along before. S-INLINE-2.
#[test]
fn a_mount_reads_what_it_has_written() {
    let test = "a_mount_reads_what_it_has_written";
    let Some(rounds) = Rounds::start(test, 20, "0123456789") else { return };
    for round in 0..20 {
        let (path, reader) = rounds.open(round);
        let writer = File::options().write(true).open(&path).expect("it opens");
        writer.write_all_at(b"abc", 3).expect("written");
        let mut bytes = [0; 10];
        reader.read_exact_at(&mut bytes, 0).expect("it reads");
        assert_eq!(&bytes, b"012abc6789");
        writer.set_len(2).expect("cut");
        assert_eq!(fs::read(&path).expect("it reads"), b"01");
        assert_eq!(reader.read_at(&mut bytes, 0).expect("it reads"), 2);
        fs::write(&path, "whole").expect("written");
        assert_eq!(fs::read(&path).expect("it reads"), b"whole");
        let other = rounds.share.mount(1).join(format!("r{round}/f"));
        assert_eq!(fs::read(other).expect("it reads"), b"whole");
    }
}

/// A lock is taken at the brick, also by a file that was opened by its content. S-INLINE-1.
#[test]
fn a_file_opened_by_its_content_is_locked_like_any_other() {
    let test = "a_file_opened_by_its_content_is_locked_like_any_other";
    let Some(rounds) = Rounds::start(test, 1, "content") else { return };
    let (_, one) = rounds.open(0);
    let other = File::open(rounds.share.mount(2).join("r0/f")).expect("it opens");
    one.lock_shared().expect("locked");
    assert!(other.try_lock().is_err(), "the first has it");
    one.unlock().expect("unlocked");
    other.try_lock().expect("it is free");
}

/// S-INLINE-4: a content in place changes nothing about who may read.
#[test]
fn who_may_not_read_a_file_is_refused_its_content() {
    let test = "who_may_not_read_a_file_is_refused_its_content";
    const ALICE: u32 = 12_001;
    let Some(rounds) = Rounds::start(test, 2, "secret") else { return };
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(rounds.share.export().join("r1/f"), closed.clone()).expect("its mode");
    let cat = |round: usize, uid: u32| {
        let dir = rounds.share.mount(0).join(format!("r{round}"));
        run::sh_as(&dir, uid, uid, &[], "cat f 2>/dev/null || echo refused")
    };
    assert_eq!(fs::read_dir(rounds.share.mount(0).join("r1")).expect("a listing").count(), 1);
    assert_eq!((cat(1, ALICE).trim(), cat(1, 0).trim()), ("refused", "secret"));
    rounds.open(0);
    assert_eq!(cat(0, ALICE).trim(), "secret");
    // Taken away while the content is in place.
    fs::set_permissions(rounds.share.mount(1).join("r0/f"), closed).expect("its mode");
    assert_eq!((cat(0, ALICE).trim(), cat(0, 0).trim()), ("refused", "secret"));
}

/// A component by its file, the commands, and a component that fails: the native policy takes its
/// place. H-2, H-30.
#[test]
fn an_inlining_component_works_is_swapped_and_falls_back() {
    if !need::fuse_and_root("an_inlining_component_works_is_swapped_and_falls_back") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    plant(dir.path());
    let component = policy("fixed").to_string_lossy().into_owned();
    let site = Site::start(dir.path(), &["--inlining", &component]);
    let inlining =
        |verb: &str, args: &[&str]| site.policy(verb, &[args, &["--kind", "inlining"]].concat());
    let status = inlining("status", &[]).expect("a status");
    assert_eq!((&status.active.name[..], &status.active.kind[..]), ("fixed", "wasm"));
    let mounted = mount(&site, "first", &[]);
    search(mounted.path());
    assert_eq!(opens_and_reads(&site).0, DIRS as u64);
    assert_eq!(site.stats().inlining.digest, status.active.digest);

    // Its configuration is a size.
    let config = site.scratch("size");
    fs::write(&config, "0").expect("a file");
    let config = config.to_string_lossy().into_owned();
    let swapped = inlining("swap", &[&component, "--config", &config]).expect("it is good");
    assert_eq!((swapped.swaps, swapped.fallback_reason.as_str()), (1, ""), "{swapped:?}");
    let (opens, _) = opens_and_reads(&site);
    search(mount(&site, "second", &[]).path());
    let now = opens_and_reads(&site).0;
    assert_eq!(now, opens + (DIRS * (FILES + 1)) as u64, "only the empty ones came along");

    let lru = policy("lru").to_string_lossy().into_owned();
    let refused = inlining("swap", &[&lru]).expect_err("it is for something else");
    assert!(refused.contains("it is not an inlining policy"), "{refused}");
    assert_eq!(inlining("status", &[]).expect("a status").active, swapped.active);
    inlining("rollback", &[]).expect("there is one");

    let traps = guest("inlining-trap").to_string_lossy().into_owned();
    inlining("swap", &[&traps]).expect("it starts well");
    let fallen = wait::until("the fallback", || {
        let status = inlining("status", &[]).expect("a status");
        (!status.fallback_reason.is_empty()).then_some(status)
    });
    assert_eq!((&fallen.active.name[..], fallen.faults), ("fixed", 1), "{fallen:?}");
    let reason = &fallen.fallback_reason;
    assert!(reason.starts_with("inlining-trap 0.1.0 (sha256 "), "{reason}");
    assert!(reason.contains("trapped in rules"), "{reason}");
    let (opens, _) = opens_and_reads(&site);
    search(mount(&site, "third", &[]).path());
    assert_eq!(opens_and_reads(&site).0, opens + DIRS as u64, "the native policy works");

    let panicked = inlining("panic", &[]).expect("it works always");
    assert!(panicked.panic && panicked.active.name == "none", "{panicked:?}");
    let (opens, _) = opens_and_reads(&site);
    search(mount(&site, "fourth", &[]).path());
    assert_eq!(opens_and_reads(&site).0, opens + (DIRS * (FILES + 2)) as u64);
}

/// What only lists is sent nothing along, and what reads everything is sent everything, once that was
/// seen.
#[test]
fn learnt_odds_tell_a_listing_from_a_search() {
    if !need::fuse_and_root("learnt_odds_tell_a_listing_from_a_search") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    plant(dir.path());
    let small = (DIRS * FILES) as u64;
    let site = Site::start(dir.path(), &["--inlining", "learnt"]);
    let again = |calls: u64| {
        wait::until("the policy", || (site.stats().inlining.calls > calls + 1).then_some(()));
    };
    let list = |name: &str| {
        let mounted = mount(&site, name, &[]);
        run::success(Command::new("ls").arg("-lR").arg(mounted.path()));
        site.stats().inlining
    };
    let listed = list("first");
    assert!(listed.delivered >= small && listed.read == 0, "{listed:?}");
    again(listed.calls);
    assert_eq!(list("second").inlined, 0);
    // Nothing is known of this client, and nobody has read anything so far.
    let reader = mount(&site, "third", &[]);
    search(reader.path());
    let read = wait::until("what was read", || {
        let stats = site.stats().inlining;
        (stats.read >= small).then_some(stats)
    });
    again(read.calls);
    let (opens, _) = opens_and_reads(&site);
    let searching = mount(&site, "fourth", &[]);
    search(searching.path());
    let (now, _) = opens_and_reads(&site);
    let stats = site.stats().inlining;
    println!("{} opens, {stats:?}", now - opens);
    assert!(stats.inlined >= read.inlined + small + DIRS as u64, "the large ones too: {stats:?}");
    assert_eq!(now, opens);
    wait::until("what was read in place", || {
        (site.stats().inlining.inlined_read >= small + DIRS as u64).then_some(())
    });
}
