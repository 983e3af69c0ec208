//! What unit tests of several modules need: directories on more than one file system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::HandleChoice;
use crate::export::Export;
use crate::handles::{Handles, birth_now};

/// Runs `body` in an empty directory of each file system there is (that of temporary files, and
/// tmpfs), for each kind of handles that works there.
pub(crate) fn each_file_system(body: impl Fn(&Path, HandleChoice)) {
    let shm = Path::new("/dev/shm");
    let roots = [Some(std::env::temp_dir()), shm.is_dir().then(|| shm.to_owned())];
    for root in roots.into_iter().flatten() {
        for choice in [HandleChoice::Auto, HandleChoice::Map, HandleChoice::MapByStat] {
            let dir = tempfile::tempdir_in(&root).expect("a directory");
            eprintln!("{}, {choice:?}", dir.path().display());
            body(dir.path(), choice);
        }
    }
}

/// How long a mount may take to come and go on a busy machine.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);

/// Runs `body` with a directory and what bindfs shows of it: a file system without birth times and
/// without handles that last, which uses inode numbers again at once where that below does. On
/// stderr it says that `test` is skipped where there is no bindfs.
pub(crate) fn on_bindfs(test: &str, body: impl FnOnce(&Path, &Path)) {
    let dir = tempfile::tempdir_in(std::env::temp_dir()).expect("a directory");
    let [source, mounted] = ["source", "mounted"].map(|name| dir.path().join(name));
    for path in [&source, &mounted] {
        std::fs::create_dir(path).expect("made");
    }
    let options = ["-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0"];
    let made = Command::new("bindfs").args(options).args([&source, &mounted]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {test}: bindfs mounts nothing here");
        return;
    }
    let mount = Mount(&mounted);
    body(&source, mount.0);
}

/// How often a file is removed, and others made, until one of these has its inode number.
const REUSE_ROUNDS: usize = 500;
/// How many are made each time. Others make files there too.
const REUSE_FILES: usize = 4;

/// Calls `round` with names that are new until it answers that it saw an inode number used again
/// ([`reuse`]). On stderr it says that `test` is skipped where that never happens.
pub(crate) fn until_reused(test: &str, round: impl Fn(&str) -> Option<()>) {
    let mut rounds = (0..REUSE_ROUNDS).map(|number| format!("round-{number}"));
    if rounds.all(|name| round(&name).is_none()) {
        eprintln!("skipped: {test}: no inode number is used again");
    }
}

/// Has files made whose names begin with `prefix` until one has this inode number, and answers its
/// name.
pub(crate) fn reuse(dir: &Path, prefix: &str, ino: u64, make: impl Fn(&str)) -> Option<String> {
    (0..REUSE_FILES).map(|number| format!("{prefix}-again-{number}")).find(|name| {
        make(name);
        dir.join(name).symlink_metadata().expect("just made").ino() == ino
    })
}

/// A mount point of FUSE. Dropping it unmounts it.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let start = Instant::now();
        let unmounts = |program: &str, flags: &[&str]| {
            let mut command = Command::new(program);
            let status = command.args(flags).arg(self.0).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        while !unmounts("umount", &[]) && !unmounts("fusermount", &["-u"]) {
            if start.elapsed() > MOUNT_LIMIT {
                unmounts("umount", &["-l"]);
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// The handles of an export.
pub(crate) fn handles_of(path: &Path, choice: HandleChoice) -> Arc<Handles> {
    let export = Export::open(path).expect("it opens");
    Arc::new(Handles::new(export, &[1; 32], choice).expect("handles"))
}

/// Waits until the clock that stamps files has moved on, so that what is made afterwards differs.
pub(crate) fn wait_for_the_next_tick() {
    // Some stamps are finer, and ahead of that clock.
    let start = clock_gettime(ClockId::Realtime);
    let start = Timestamp { secs: start.tv_sec, nanos: start.tv_nsec as u32 };
    while birth_now() <= start {
        std::thread::yield_now();
    }
}
