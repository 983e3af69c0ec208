//! The floor as programs see it. Each test says on stdout that it is skipped where there is no
//! FUSE.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use portcullis_floor::{Floor, Options, Tree};
use portcullis_fuse::Errno;
use portcullis_fuse::abi::Opcode;

/// The mount of a tree, and the directory it is at; the mount goes first.
struct Stand {
    floor: Floor,
    dir: tempfile::TempDir,
}

impl Stand {
    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn mount(test: &str, tree: Tree, options: Options) -> Option<Stand> {
    if !has_fuse(test) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    Some(Stand { floor: Floor::mount(tree, dir.path(), options).unwrap(), dir })
}

fn has_fuse(test: &str) -> bool {
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let has = fuse.is_ok() && rustix::process::geteuid().is_root();
    if !has {
        // Written past the test harness, which keeps what a passing test prints.
        let line = format!("skipped: {test}: needs FUSE and root\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
    has
}

/// What a program prints, within a minute.
fn output(program: &str, args: &[&OsStr]) -> String {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(args);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn find(path: &Path, format: &str) -> BTreeSet<String> {
    let text = output("find", &[path.as_ref(), "-printf".as_ref(), format.as_ref()]);
    let lines: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), text.lines().count(), "nothing twice");
    lines
}

#[test]
fn find_shows_exactly_the_entries() {
    let tree = Tree::wide(3_000, 40, 7);
    let entries = tree.len();
    let Some(stand) = mount("find_shows_exactly_the_entries", tree, Options::default()) else {
        return;
    };
    let mut expected = BTreeSet::from(["d 755 42 ".to_owned()]);
    let file = |dir: &str, n: u64| format!("f 644 1 {dir}file-{n:011} {n}");
    expected.extend((0..3_000).map(|n| file("", n)));
    for dir in 0..40 {
        expected.insert(format!("d 755 2 dir-{dir:011}"));
        expected.extend((0..7).map(|n| file(&format!("dir-{dir:011}/"), n)));
    }
    assert_eq!(expected.len(), entries);
    let shown = || {
        let lines = find(stand.path(), "%y %m %n %P %s\\n");
        let without_size = |line: String| match line.strip_suffix(" 0") {
            Some(rest) if line.starts_with('d') => rest.to_owned(),
            _ => line,
        };
        lines.into_iter().map(without_size).collect::<BTreeSet<_>>()
    };
    assert_eq!(shown(), expected);
    assert_eq!(shown(), expected, "also from what the kernel has kept");
}

#[test]
fn a_listing_costs_no_request_an_entry_and_again_hardly_any() {
    let test = "a_listing_costs_no_request_an_entry_and_again_hardly_any";
    for acl in [false, true] {
        let Some(stand) = mount(test, Tree::wide(5_000, 0, 0), Options { acl }) else { return };
        let ls = || output("ls", &["-lU".as_ref(), stand.path().as_ref()]).lines().count();
        assert_eq!(ls(), 5_001, "with the total");
        let cold = stand.floor.take_requests();
        println!("acl {acl}, cold: {cold}");
        assert_eq!(cold.of(Opcode::Lookup), 0, "{cold}");
        assert_eq!(cold.of(Opcode::Readdir), 0, "{cold}");
        // 160 bytes an entry and more, in at most 1 MiB.
        assert!((1..200).contains(&cold.of(Opcode::Readdirplus)), "{cold}");
        // Where memory is short the kernel may forget something now and then, not each time.
        let mut again = (0..20).map(|_| {
            assert_eq!(ls(), 5_001);
            stand.floor.take_requests()
        });
        let at_rest = again.find(|again| {
            println!("acl {acl}, again: {again}");
            let listing = [Opcode::Readdirplus, Opcode::Lookup, Opcode::Getattr];
            // Without access lists ls asks for one once, with them the kernel knows of none.
            listing.iter().all(|opcode| again.of(*opcode) == 0) && again.answered() <= 10
        });
        assert!(at_rest.is_some(), "each listing asks anew");
    }
}

#[test]
fn extended_attributes_are_answered_as_our_mount_does() {
    let test = "extended_attributes_are_answered_as_our_mount_does";
    for (acl, access) in [(false, Errno::OPNOTSUPP), (true, Errno::NODATA)] {
        let Some(stand) = mount(test, Tree::wide(1, 0, 0), Options { acl }) else { return };
        let file = stand.path().join("file-00000000000");
        let error = |name: &str| {
            let mut value = [0_u8; 16];
            rustix::fs::getxattr(&file, name, &mut value).unwrap_err()
        };
        assert_eq!(error("security.selinux"), Errno::OPNOTSUPP);
        assert_eq!(error("user.any"), Errno::NODATA);
        assert_eq!(error("system.posix_acl_access"), access);
        assert_eq!(rustix::fs::listxattr(&file, &mut [0_u8; 16]), Ok(0));
    }
}

#[test]
fn a_tree_like_another_shows_the_same() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    std::fs::create_dir_all(at("a/b/c")).unwrap();
    std::fs::write(at("a/file"), b"0123456789").unwrap();
    std::fs::write(at("a/b/empty"), b"").unwrap();
    symlink("file", at("a/link")).unwrap();
    std::fs::File::open(at("a/file")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let tree = Tree::like(source.path()).unwrap();
    let Some(stand) = mount("a_tree_like_another_shows_the_same", tree, Options::default()) else {
        return;
    };
    let format = "%y %m %U %G %n %s %T@ %l %P\\n";
    assert_eq!(find(stand.path(), format), find(source.path(), format));
    let read = std::fs::read(stand.path().join("a/link")).unwrap();
    assert_eq!(read, [0; 10], "its content is zeros");
    assert_eq!(std::fs::metadata(stand.path().join("a")).unwrap().nlink(), 3);
}

/// The binary, mounted. Dropping it ends it, whatever state it is in.
struct Binary {
    process: Child,
    dir: tempfile::TempDir,
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Where it is mounted still.
        let _ =
            Command::new("umount").arg("-l").arg(self.dir.path()).stderr(Stdio::null()).status();
    }
}

#[test]
fn the_binary_says_when_it_is_ready_and_ends_with_its_mount() {
    let test = "the_binary_says_when_it_is_ready_and_ends_with_its_mount";
    if !has_fuse(test) {
        return;
    }
    for by_signal in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_floor"))
            .arg(dir.path())
            .args(["--files", "10", "--dirs", "2", "--per-dir", "3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut floor = Binary { process, dir };
        let mut stdout = BufReader::new(floor.process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert_eq!(find(floor.dir.path(), "%P\\n").len(), 1 + 10 + 2 * 4);
        if by_signal {
            let pid = rustix::process::Pid::from_child(&floor.process);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        } else {
            output("umount", &[floor.dir.path().as_ref()]);
        }
        assert!(end(&mut floor.process).success());
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("READDIRPLUS"), "{rest}");
        assert_eq!(floor.dir.path().read_dir().unwrap().count(), 0, "nothing is mounted any more");
    }
}

fn end(process: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
