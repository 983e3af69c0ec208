//! Real programs on a mount, doing what people have them do.

use std::fs;
use std::path::Path;
use std::process::Command;

use portcullis_suite::run::{self, Running};
use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{need, soaking, view};

/// Files of the repository that git works on.
const REPOSITORY_FILES: usize = 5_000;
/// What stress-ng does here, one after the other.
const STRESSORS: &[&str] = &[
    "dentry", "dir", "filename", "getdent", "link", "rename", "symlink", "utime", "chmod", "flock",
    "lockf",
];

/// `count` small files in directories of a hundred.
fn small_files(root: &Path, count: usize) {
    for number in 0..count {
        let dir = root.join(format!("dir-{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&dir).expect("a directory");
        }
        let content = format!("file {number}\n").repeat(number % 40);
        fs::write(dir.join(format!("file-{number:05}.txt")), content).expect("a file");
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@localhost"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@localhost"),
    ] {
        git.env(name, value);
    }
    run::success(git.args(["-c", "gc.auto=0"]).args(args).current_dir(dir))
}

#[test]
fn git_clones_commits_collects_and_checks() {
    let name = "git_clones_commits_collects_and_checks";
    if !need::programs(name, &["git"]) {
        return;
    }
    let Some(share) = Share::two(name) else { return };
    let source = share.scratch("source");
    fs::create_dir(&source).expect("a directory");
    small_files(&source, REPOSITORY_FILES);
    git(&source, &["init", "-q", "-b", "main"]);
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-q", "-m", "all"]);
    let url = format!("file://{}", source.display());
    git(share.mount(0), &["clone", "-q", &url, "clone"]);
    let (clone, other) = (share.mount(0).join("clone"), share.mount(1).join("clone"));
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    assert_eq!(git(&other, &["status", "--porcelain"]), "", "the other mount sees the same");
    fs::write(clone.join("dir-007/file-00700.txt"), "changed\n").expect("a file");
    fs::remove_file(clone.join("dir-008/file-00800.txt")).expect("it was there");
    fs::rename(clone.join("dir-009"), clone.join("dir-moved")).expect("renamed");
    let status = git(&other, &["status", "--porcelain"]);
    assert!(status.contains(" M dir-007/file-00700.txt"), "{status}");
    assert!(status.contains(" D dir-008/file-00800.txt"), "{status}");
    git(&other, &["add", "-A"]);
    git(&other, &["commit", "-q", "-m", "more"]);
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    git(&clone, &["gc", "-q", "--prune=now"]);
    git(&other, &["fsck", "--full", "--strict"]);
    assert_eq!(git(&other, &["rev-list", "--count", "HEAD"]), "2\n");
    assert_eq!(git(&other, &["ls-files"]).lines().count(), REPOSITORY_FILES - 1);
}

#[test]
fn cargo_builds_a_crate() {
    let Some(share) = Share::one("cargo_builds_a_crate") else { return };
    let dir = share.mount(0).join("tiny");
    fs::create_dir_all(dir.join("src")).expect("a directory");
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(dir.join("Cargo.toml"), manifest).expect("a file");
    fs::write(dir.join("src/lib.rs"), "pub fn word() -> &'static str { \"built\" }\n")
        .expect("a file");
    fs::write(dir.join("src/main.rs"), "fn main() { println!(\"{}\", tiny::word()); }\n")
        .expect("a file");
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(args).current_dir(&dir).env("CARGO_TARGET_DIR", dir.join("target"));
        cargo.env_remove("RUSTFLAGS").env("CARGO_TERM_COLOR", "never");
        run::success(&mut cargo)
    };
    cargo(&["build", "--offline", "--quiet"]);
    let built = run::success(&mut Command::new(dir.join("target/debug/tiny")));
    assert_eq!(built, "built\n");
    fs::write(dir.join("src/lib.rs"), "pub fn word() -> &'static str { \"again\" }\n")
        .expect("a file");
    assert_eq!(cargo(&["run", "--offline", "--quiet"]), "again\n");
}

/// Inserts rows one transaction each, waiting for the locks of others.
const INSERTS: &str = r#"
import sqlite3, sys
path, who, count, mode = sys.argv[1:]
db = sqlite3.connect(path, timeout=120, isolation_level=None)
db.execute(f"pragma journal_mode={mode}")
for number in range(int(count)):
    db.execute("begin immediate")
    db.execute("insert into rows values (?, ?)", (who, number))
    seen = db.execute("select count(*) from rows where who = ?", (who,)).fetchone()[0]
    assert seen == number + 1, (who, seen, number)
    db.execute("update total set n = n + 1")
    db.execute("commit")
db.close()
"#;

/// Makes the tables, lets one process for each path insert at the same time, and checks all of it
/// through the last path.
fn sqlite(paths: &[&Path], mode: &str, count: usize) {
    let first = paths.first().expect("a path");
    let python = |script: &str, args: &[&str]| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).args(args);
        python
    };
    let at = |path: &Path| path.display().to_string();
    let tables = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma journal_mode=' + sys.argv[2])
db.execute('create table rows (who text, number integer, unique (who, number))')
db.execute('create table total (n integer)')
db.execute('insert into total values (0)')";
    run::success(&mut python(tables, &[&at(first), mode]));
    let writers: Vec<Running> = paths
        .iter()
        .enumerate()
        .map(|(who, path)| {
            let (who, count) = (who.to_string(), count.to_string());
            Running::start(&mut python(INSERTS, &[&at(path), &who, &count, mode]))
        })
        .collect();
    for writer in writers {
        let output = writer.wait(run::limit());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}: {}: {stderr}", output.status);
    }
    let check = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
print(db.execute('pragma integrity_check').fetchone()[0])
print(db.execute('select count(*) from rows').fetchone()[0], db.execute('select n from total').fetchone()[0])";
    let last = paths.last().expect("a path");
    let all = count * paths.len();
    let printed = run::success(&mut python(check, &[&at(last)]));
    assert_eq!(printed, format!("ok\n{all} {all}\n"), "{mode}");
}

#[test]
fn sqlite_writes_through_two_mounts_in_rollback_mode() {
    let name = "sqlite_writes_through_two_mounts_in_rollback_mode";
    let Some(share) = Share::start(name, &Layout { mounts: &[0, 1], ..Layout::default() }) else {
        return;
    };
    let count = if soaking() { 500 } else { 60 };
    for mode in ["delete", "truncate", "persist"] {
        let name = format!("{mode}.db");
        let (one, other) = (share.mount(0).join(&name), share.mount(1).join(&name));
        sqlite(&[&one, &other], mode, count);
    }
}

#[test]
fn sqlite_writes_from_two_processes_of_one_mount_in_wal_mode() {
    let Some(share) = Share::one("sqlite_writes_from_two_processes_of_one_mount_in_wal_mode")
    else {
        return;
    };
    let path = share.mount(0).join("wal.db");
    sqlite(&[&path, &path], "wal", if soaking() { 1_000 } else { 100 });
}

#[test]
fn rsync_copies_there_and_back() {
    let name = "rsync_copies_there_and_back";
    if !need::programs(name, &["rsync"]) {
        return;
    }
    let Some(share) = Share::two(name) else { return };
    let source = share.scratch("source");
    fs::create_dir(&source).expect("a directory");
    portcullis_suite::tree::odd(&source);
    // Sockets are made anew by rsync and have no content; a hole of 5 GiB is read in full.
    fs::remove_file(source.join("sparse")).expect("it was made");
    small_files(&source.join("more"), 1_000);
    let rsync = |from: &Path, to: &Path| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-aHX", "--checksum", "--itemize-changes", "--stats"]);
        rsync.arg(from.join("")).arg(to.join(""));
        run::success(&mut rsync)
    };
    let back = share.scratch("back");
    rsync(&source, &share.mount(0).join("copy"));
    rsync(&share.mount(1).join("copy"), &back);
    let again = rsync(&source, &share.mount(1).join("copy"));
    assert!(again.contains("Number of regular files transferred: 0"), "{again}");
    view::assert_same_tree("there and back", &view::tree(&back), &view::tree(&source));
}

#[test]
fn an_archive_is_unpacked_and_all_of_it_removed() {
    let name = "an_archive_is_unpacked_and_all_of_it_removed";
    let Some(share) = Share::two(name) else { return };
    let count = if soaking() { 50_000 } else { 5_000 };
    let source = share.scratch("source");
    small_files(&source, count);
    let archive = share.scratch("archive.tar");
    let archive = archive.display();
    run::sh(&source, &format!("tar cf {archive} ."));
    let here = share.mount(0).join("tree");
    fs::create_dir(&here).expect("a directory");
    run::sh(&here, &format!("tar xf {archive}"));
    run::sh(&here, &format!("tar df {archive}"));
    let there = share.mount(1).join("tree");
    let counted = run::sh(&there, "find . -type f | wc -l");
    assert_eq!(counted.trim(), count.to_string());
    run::sh(share.mount(1), "rm -r tree");
    assert_eq!(view::names(share.mount(0), ""), "", "nothing is left");
    assert_eq!(view::names(share.export(), "tree"), "", "nothing is left on the brick");
}

#[test]
fn stress_ng_verifies_what_it_does() {
    let name = "stress_ng_verifies_what_it_does";
    if !need::programs(name, &["stress-ng"]) {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    let seconds = if soaking() { 20 } else { 2 };
    for stressor in STRESSORS {
        let mut command = Command::new("stress-ng");
        command.args([format!("--{stressor}"), "1".to_owned()]);
        command.args(["--timeout", &format!("{seconds}s"), "--verify", "--temp-path"]);
        command.arg(share.mount(0)).current_dir(share.scratch(""));
        let output = run::output(&mut command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        // 3: not implemented here; a stressor that did not run has verified nothing.
        assert_eq!(output.status.code(), Some(0), "{stressor}: {stderr}{stdout}");
        assert!(!stderr.contains("fail:"), "{stressor}: {stderr}");
    }
}

/// S-WRITE-3.
#[test]
fn fio_verifies_what_it_writes() {
    let name = "fio_verifies_what_it_writes";
    if !need::programs(name, &["fio"]) {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    let size = if soaking() { "512m" } else { "24m" };
    for (job, args) in [
        ("sequential", ["--rw=write", "--bs=1m", "--ioengine=psync"]),
        ("random", ["--rw=randwrite", "--bs=4k", "--ioengine=psync"]),
        ("mapped", ["--rw=randwrite", "--bs=16k", "--ioengine=mmap"]),
        ("mixed", ["--rw=randrw", "--bsrange=512-64k", "--ioengine=psync"]),
    ] {
        let mut fio = Command::new("fio");
        fio.arg(format!("--name={job}")).args(args).arg(format!("--size={size}"));
        fio.args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--numjobs=2"]);
        fio.args(["--randseed=4711", "--bs_unaligned=1", "--fallocate=none", "--end_fsync=1"]);
        fio.arg("--directory").arg(share.mount(0)).current_dir(share.scratch(""));
        run::success(&mut fio);
    }
}
