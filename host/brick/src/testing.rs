//! What unit tests of several modules need: directories on more than one file system.

use std::path::Path;
use std::sync::Arc;

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
