//! Lookups without end, many in flight, until the test has seen enough.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use portcullis_core::Handle;
use portcullis_transport::{Connection, Role};
use tokio::task::JoinSet;

use crate::dial;

/// Lookups in flight.
const IN_FLIGHT: u64 = 16;

/// Lookups of the names of [`tree::wide`](crate::tree::wide). Dropping it ends them.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// Begins with the tree of `dirs` directories of `files` files each that the gateway at `address`
    /// serves. The names follow from the numbers of the lookups, so that each run asks the same.
    pub fn start(address: &str, identity: PathBuf, dirs: u64, files: u64) -> Self {
        let shared = Arc::<Shared>::default();
        let (theirs, address) = (shared.clone(), address.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(run(&theirs, &address, identity, dirs, files));
        });
        Self { shared, thread: Some(thread) }
    }

    /// Lookups answered.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Ends it and answers how many were answered, and how many failed.
    pub fn end(mut self) -> (u64, u64) {
        self.stop();
        (self.done(), self.shared.failed.load(Ordering::Relaxed))
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(shared: &Arc<Shared>, address: &str, identity: PathBuf, dirs: u64, files: u64) {
    let connected = dial::connect(address, &identity, Role::Client, Role::Gateway).await;
    let (_connector, connection) = connected.expect("connected");
    let root = dial::attach(&connection).await;
    let mut handles = Vec::new();
    for number in 0..dirs {
        let name = format!("directory-{number:06}");
        let dir = dial::lookup(&connection, root, name.as_bytes()).await.expect("it is there");
        handles.push(dir.handle);
    }
    let (connection, handles) = (Arc::new(connection), Arc::new(handles));
    let mut lanes = JoinSet::new();
    for lane in 0..IN_FLIGHT {
        lanes.spawn(ask(shared.clone(), connection.clone(), handles.clone(), files, lane));
    }
    while lanes.join_next().await.is_some() {}
}

async fn ask(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    dirs: Arc<Vec<Handle>>,
    files: u64,
    lane: u64,
) {
    let mut number = lane;
    while !shared.stop.load(Ordering::Relaxed) {
        // Few names often, many now and then.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (dir, file) =
            (mixed % dirs.len() as u64, (mixed >> 20) % files * (mixed >> 40) % files);
        let name = format!("file-{file:011}");
        let dir = dirs[dir as usize];
        match dial::lookup(&connection, dir, name.as_bytes()).await {
            Ok(_) => shared.done.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                eprintln!("a lookup failed: {error}");
                shared.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        number += IN_FLIGHT;
    }
}
