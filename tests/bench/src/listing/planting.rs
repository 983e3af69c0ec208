//! The wide tree on a volume of several bricks: made by a client of its gateway that has many requests
//! under way. Through a mount the kernel would make one name of a directory after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use portcullis_client::Client;
use portcullis_core::Handle;
use portcullis_wire::message::{Caller, Mutated, Mutation};
use tokio::task::JoinSet;

use super::data::{DIRS, FILES, dir_name, file_name};
use super::installation::Installation;
use super::options::Sizes;

/// Requests under way at once.
const UNDER_WAY: usize = 64;
/// A regular file.
const S_IFREG: u32 = 0o100_000;

/// The same as [`super::data::wide`] makes, in the root of the volume.
pub fn wide(running: &Installation, sizes: &Sizes) {
    let began = Instant::now();
    with_client(running, async |client| {
        let root = client.root().handle;
        let files = mkdir(&client, root, FILES.to_owned()).await;
        make(&client, sizes.files, move |number| mknod(files, file_name(number))).await;
        let dirs = mkdir(&client, root, DIRS.to_owned()).await;
        make(&client, sizes.dirs, move |number| mkdir_in(dirs, dir_name(number))).await;
    });
    let entries = sizes.files + sizes.dirs;
    eprintln!("  {entries} entries were made in {:.0} s", began.elapsed().as_secs_f64());
}

/// A directory of `files` files in the root of the volume.
pub fn dir_of_files(running: &Installation, name: &str, files: usize) {
    with_client(running, async |client| {
        let dir = mkdir(&client, client.root().handle, name.to_owned()).await;
        make(&client, files, move |number| mknod(dir, file_name(number))).await;
    });
}

fn with_client(running: &Installation, plant: impl AsyncFnOnce(Client)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = running.client().await;
        plant(client.clone()).await;
        client.close().await;
    });
}

/// Asks for `count` mutations, many at once.
async fn make(
    client: &Client,
    count: usize,
    mutation: impl Fn(usize) -> Mutation + Send + Sync + 'static,
) {
    let (next, mutation) = (Arc::new(AtomicUsize::new(0)), Arc::new(mutation));
    let mut makers = JoinSet::new();
    for _ in 0..UNDER_WAY {
        let (client, next, mutation) = (client.clone(), next.clone(), mutation.clone());
        makers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let made = client.mutate(Caller::ROOT, mutation(number), None).await;
                made.expect("it is made");
            }
        });
    }
    // A maker that failed has ended the benchmark.
    makers.join_all().await;
}

async fn mkdir(client: &Client, dir: Handle, name: String) -> Handle {
    let made = client.mutate(Caller::ROOT, mkdir_in(dir, name), None).await;
    match made.expect("a directory is made").value {
        Mutated::Entry(entry) => entry.handle,
        other => unreachable!("a mkdir is answered with an entry, not {other:?}"),
    }
}

fn mkdir_in(dir: Handle, name: String) -> Mutation {
    Mutation::Mkdir { dir, name: name.into_bytes(), mode: 0o755 }
}

fn mknod(dir: Handle, name: String) -> Mutation {
    Mutation::Mknod { dir, name: name.into_bytes(), mode: S_IFREG | 0o644, rdev: 0 }
}
