//! Tests with real mounts. They need FUSE and root, and say so where those are missing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use portcullis_fuse::Errno;
use portcullis_wire::message::Verb;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::testing::{ROOT, Served, Shown, serve};
use super::{MountError, MountOptions, run};
use crate::ClientOptions;

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(20);

struct Mounted {
    dir: TempDir,
    shown: Arc<Shown>,
    gateway: Option<oneshot::Sender<()>>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), MountError>>,
}

impl Mounted {
    async fn with(shown: Arc<Shown>, options: MountOptions, client: ClientOptions) -> Self {
        let client = ClientOptions { watch: true, ..client };
        let Served { client, shown, stop: gateway } = serve(shown, client).await;
        let dir = tempfile::tempdir().expect("a directory");
        let mountpoint = dir.path().to_owned();
        let (ready, readied) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stop = async { _ = stopped.await };
            let ready = || ready.send(()).expect("somebody waits");
            run(client, b"/", &mountpoint, &options, ready, stop).await
        });
        readied.await.expect("it is mounted");
        Self { dir, shown, gateway: Some(gateway), stop, serving }
    }

    async fn new(shown: Arc<Shown>) -> Self {
        Self::with(shown, MountOptions::default(), ClientOptions::default()).await
    }

    /// Runs what waits for the mount on a thread of its own.
    async fn on<T: Send + 'static>(&self, work: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
        let path = self.dir.path().to_owned();
        tokio::task::spawn_blocking(move || work(path)).await.expect("it does not panic")
    }

    async fn unmount(self) {
        let path = self.dir.path().to_owned();
        drop(self.stop);
        self.serving.await.expect("it ends").expect("it ends well");
        assert!(!is_mounted(&path));
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// Whether the test `name` can run here; says so where it cannot.
pub(super) fn can_mount(name: &str) -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let can = rustix::process::geteuid().is_root() && device.is_ok();
    if !can {
        // Written past the test harness, which keeps what a passing test prints.
        let line = format!("skipped: {name}: needs FUSE and root\n");
        std::io::stdout().write_all(line.as_bytes()).expect("stdout is there");
    }
    can
}

fn output(program: &str, args: &[&str], dir: &Path) -> String {
    let output = Command::new(program).args(args).current_dir(dir).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_see_the_volume() {
    if !can_mount("programs_see_the_volume") {
        return;
    }
    let shown = Shown::new();
    let large: Vec<u8> = (0..10_000_000u32).map(|n| (n / 3) as u8).collect();
    let sub = shown.add_dir(ROOT, "sub");
    for n in 0..3000 {
        shown.add_file(sub, &format!("file {n}"), "x");
    }
    shown.add_file(ROOT, "large", large.clone());
    shown.add_link(ROOT, "link", "sub/file 7");
    shown.add_bare_file(ROOT, "bare", b"four");
    let mounted = Mounted::new(shown).await;
    mounted
        .on(move |path| {
            let found = output("find", &[".", "-printf", r"%y %s %P\n"], &path);
            assert_eq!(found.lines().count(), 3005);
            assert!(found.contains("f 4 bare\n") && found.contains("l 10 link\n"), "{found}");
            assert!(fs::read(path.join("large")).expect("read") == large);
            assert_eq!(fs::read(path.join("link")).expect("read"), b"x");
            assert_eq!(output("ls", &["-1"], &path), "bare\nlarge\nlink\nsub\n");
            let metadata = fs::metadata(path.join("sub/file 2999")).expect("stat");
            assert_eq!(
                (metadata.mode(), metadata.size(), metadata.mtime_nsec()),
                (0o100_644, 1, 5)
            );
        })
        .await;
    // Attributes come with the listing: only the entry without them was looked up, and `link`,
    // followed by its path, needed no readlink.
    assert!(mounted.shown.asked(Verb::Lookup) <= 2, "{}", mounted.shown.asked(Verb::Lookup));
    assert_eq!(mounted.shown.asked(Verb::Readlink), 0);
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_replaced_under_its_name_opens_as_the_new_one() {
    if !can_mount("a_file_replaced_under_its_name_opens_as_the_new_one") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "old");
    let options = MountOptions { attr_ttl_ms: 600_000, ..MountOptions::default() };
    let mounted = Mounted::with(shown, options, ClientOptions::default()).await;
    let read = |path: PathBuf| fs::read(path.join("file")).expect("read");
    assert_eq!(mounted.on(read).await, b"old");
    mounted.shown.remove(ROOT, "file");
    mounted.shown.add_file(ROOT, "file", "replaced");
    // The name is still cached as the old file, which answers ESTALE; the kernel looks anew.
    assert_eq!(mounted.on(read).await, b"replaced");
    mounted.shown.remove(ROOT, "file");
    let missing = mounted.on(|path| errno(fs::read(path.join("file")))).await;
    assert_eq!(missing, Some(Errno::NOENT.raw_os_error()));
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_does_not_wait_for_the_gateway() {
    if !can_mount("a_killed_program_does_not_wait_for_the_gateway") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let options = MountOptions { attr_ttl_ms: 0, ..MountOptions::default() };
    let mounted = Mounted::with(shown, options, ClientOptions::default()).await;
    mounted.shown.silent.store(true, Ordering::Relaxed);
    for nth in 0..3 {
        let path = mounted.dir.path().join("file");
        let mut stat = Command::new("stat").arg(path).spawn().expect("stat");
        until("the request is under way", || mounted.shown.kept() > nth).await;
        stat.kill().expect("kill");
        let killed = Instant::now();
        until("it has ended", || stat.try_wait().expect("wait").is_some()).await;
        assert!(killed.elapsed() < DEADLINE / 4, "{:?}", killed.elapsed());
    }
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_does_not_kill_does_not_disturb() {
    if !can_mount("a_signal_that_does_not_kill_does_not_disturb") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let options = MountOptions { attr_ttl_ms: 0, ..MountOptions::default() };
    let mounted = Mounted::with(shown, options, ClientOptions::default()).await;
    mounted.shown.silent.store(true, Ordering::Relaxed);
    let file = mounted.dir.path().join("file");
    // A shell that handles SIGUSR1 looks at the file itself, without another process.
    let script = "trap : USR1; if [ -e \"$0\" ]; then exit 7; else exit 8; fi";
    let mut shell = Command::new("sh").args(["-c", script]).arg(file).spawn().expect("sh");
    until("the request is under way", || mounted.shown.kept() > 0).await;
    let process = rustix::process::Pid::from_child(&shell);
    rustix::process::kill_process(process, rustix::process::Signal::USR1).expect("kill");
    // The kernel hands out an interrupt before any request that comes later.
    for _ in 0..50 {
        mounted.on(|path| rustix::fs::statvfs(path).expect("space")).await;
    }
    mounted.shown.speak().await;
    until("it has ended", || shell.try_wait().expect("wait").is_some()).await;
    assert_eq!(shell.wait().expect("wait").code(), Some(7));
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_gateway_requests_fail_in_time_and_the_mount_goes_away() {
    if !can_mount("without_its_gateway_requests_fail_in_time_and_the_mount_goes_away") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let options = MountOptions { attr_ttl_ms: 0, ..MountOptions::default() };
    let client = ClientOptions { request_timeout_ms: 2_000, ..ClientOptions::default() };
    let mut mounted = Mounted::with(shown, options, client).await;
    assert_eq!(mounted.on(|path| fs::read(path.join("file")).expect("read")).await, b"x");
    drop(mounted.gateway.take());
    let began = Instant::now();
    let eio = Some(Errno::IO.raw_os_error());
    let failed = mounted.on(|path| errno(fs::metadata(path.join("file")))).await;
    assert_eq!(failed, eio);
    let failed = mounted
        .on(|path| errno(fs::read_dir(path).and_then(|dir| dir.collect::<Result<Vec<_>, _>>())))
        .await;
    assert_eq!(failed, eio);
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_by_somebody_else_ends_the_run() {
    if !can_mount("an_unmount_by_somebody_else_ends_the_run") {
        return;
    }
    let mounted = Mounted::new(Shown::new()).await;
    let status =
        mounted.on(|path| Command::new("umount").arg(path).status().expect("umount")).await;
    assert!(status.success());
    let ended = tokio::time::timeout(DEADLINE, mounted.serving).await.expect("in time");
    ended.expect("it ends").expect("it ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_while_files_are_open_does_not_wait() {
    if !can_mount("stopping_while_files_are_open_does_not_wait") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let mounted = Mounted::new(shown).await;
    let open = mounted.on(|path| fs::File::open(path.join("file")).expect("open")).await;
    let began = Instant::now();
    mounted.unmount().await;
    assert!(began.elapsed() < DEADLINE / 4, "{:?}", began.elapsed());
    drop(open);
}

#[tokio::test(flavor = "multi_thread")]
async fn xattrs_and_space_are_asked_for_where_that_makes_sense() {
    if !can_mount("xattrs_and_space_are_asked_for_where_that_makes_sense") {
        return;
    }
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let mounted = Mounted::new(shown).await;
    mounted
        .on(|path| {
            let file = path.join("file");
            let get = |name: &str| {
                let mut value = [0; 20];
                let got = rustix::fs::getxattr(&file, name, &mut value[..])?;
                Ok(value[..got].to_vec())
            };
            assert_eq!(get("user.colour"), Ok(b"vermilion".to_vec()));
            assert_eq!(get("user.other"), Err(Errno::NODATA));
            assert_eq!(rustix::fs::getxattr_query(&file, "user.colour"), Ok(9));
            for name in ["security.selinux", "system.posix_acl_access"] {
                assert_eq!(get(name), Err(Errno::OPNOTSUPP), "{name}");
            }
            let mut names = [0; 64];
            let len = rustix::fs::listxattr(&file, &mut names[..]).expect("a list");
            assert_eq!(&names[..len], b"user.colour\0");
            let space = rustix::fs::statvfs(&path).expect("space");
            assert_eq!((space.f_blocks, space.f_bavail, space.f_files), (100, 50, 9));
        })
        .await;
    assert_eq!(mounted.shown.asked(Verb::Getxattr), 3);
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_cannot_be_mounted() {
    let shown = Shown::new();
    shown.add_file(ROOT, "file", "x");
    let served = serve(shown, ClientOptions::default()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let options = MountOptions::default();
    let never = std::future::pending();
    let failed = run(served.client, b"/file", dir.path(), &options, || {}, never).await;
    assert!(
        matches!(&failed, Err(MountError::NotDirectory { path }) if path == "/file"),
        "{failed:?}"
    );
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
