//! Tests of listings ahead of the kernel, over a real brick: they are used, given up, forgotten, and no more
//! than lasts in memory.

use std::fs;

use portcullis_core::prefetch::PrefetchCounters;

use super::*;
use crate::mount::site::Site;

/// More than a chunk has, so that a listing takes a while.
const FILES: usize = 40;

/// What a mount lists with, without a kernel.
struct Walker {
    site: Site,
    client: Client,
    memory: Arc<Memory>,
    ahead: Ahead,
    root: Handle,
    dirs: Vec<Handle>,
}

impl Walker {
    /// Over a root with so many directories, each with [`FILES`] files.
    async fn new(dirs: usize, cache_bytes: u64) -> Self {
        let site = Site::new().await;
        for dir in 0..dirs {
            let path = site.export().join(format!("d{dir}"));
            fs::create_dir(&path).expect("made");
            for file in 0..FILES {
                fs::write(path.join(format!("a file of some length {file}")), "").expect("written");
            }
        }
        let client = site.client().await;
        let (memory, fence) = (Arc::new(Memory::new(cache_bytes)), Arc::new(Fence::new()));
        let contents = Arc::new(Contents::new(0));
        let asked = Asked { client: &client, memory: &memory, contents: &contents, fence: &fence };
        let ahead = Ahead::new(PrefetchChoice::Crawl, cache_bytes, asked);
        let root = client.root().handle;
        let mut walker = Self { site, client, memory, ahead, root, dirs: Vec::new() };
        walker.dirs = walker.list(root).await;
        walker
    }

    /// Lists a directory as the mount does; answers its subdirectories. All of it is there.
    async fn list(&self, dir: Handle) -> Vec<Handle> {
        let mut chunks = Vec::new();
        match self.ahead.enter(&dir, || self.memory.list(&self.client, &dir)) {
            Found::Known(known) => chunks.extend(known.into_iter().map(|listed| listed.chunk)),
            Found::OnItsWay(mut reader, _) => loop {
                match reader.next().await {
                    Some(Ok(chunk)) => chunks.push(chunk),
                    Some(Err(is_complete)) => {
                        assert!(is_complete);
                        break;
                    }
                    None => panic!("nobody gave it up"),
                }
            },
            Found::Unknown => {
                let mut listing = self.client.list(&dir, Vec::new()).await.expect("it lists");
                while let Some(chunk) = listing.next().await.expect("a chunk") {
                    self.ahead.told(&dir, &chunk);
                    chunks.push(chunk.detached());
                }
                self.ahead.ended(&dir);
            }
        }
        let count: usize = chunks.iter().map(Chunk::count).sum();
        assert!(dir == self.root || count == FILES, "{count} entries");
        let dirs = chunks.iter().flat_map(|chunk| {
            let is_dir = |index: &usize| chunk.kind(*index) == portcullis_core::FileKind::Directory;
            (0..chunk.count()).filter(is_dir).map(|index| chunk.entry(index).handle)
        });
        dirs.collect()
    }

    /// Waits until nothing is listed ahead any more.
    async fn settle(&self) {
        let inner = self.ahead.0.as_ref().expect("it lists ahead");
        while !inner.state.lock().under_way.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    fn counters(&self) -> PrefetchCounters {
        self.ahead.counters()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_finds_directories_listed_or_on_their_way() {
    let walker = Walker::new(30, 64 << 20).await;
    for &dir in &walker.dirs {
        walker.list(dir).await;
    }
    let PrefetchCounters { used, late, wasted, .. } = walker.counters();
    assert!(used + late >= 25, "{:?}", walker.counters());
    assert_eq!(wasted, 0);
    // In memory all of them are, and nobody is asked.
    walker.settle().await;
    let known = |dir: &&Handle| walker.memory.list(&walker.client, dir).is_some();
    assert!(walker.dirs.iter().filter(known).count() >= 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_before_it_is_entered_is_listed_anew() {
    let walker = Walker::new(12, 64 << 20).await;
    walker.list(walker.dirs[0]).await;
    walker.list(walker.dirs[1]).await;
    walker.settle().await;
    let dir = walker.dirs[5];
    assert!(walker.memory.list(&walker.client, &dir).is_some(), "{:?}", walker.counters());
    let changes = [Change::Name { dir, name: b"new".to_vec() }, Change::Names { dir }];
    walker.memory.forget(&changes);
    walker.ahead.forgotten(&changes);
    assert_eq!(walker.counters().wasted, 1);
    walker.list(dir).await;
    assert_eq!(walker.counters().wasted, 1, "counted once");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_gives_up_what_is_on_its_way() {
    let walker = Walker::new(40, 64 << 20).await;
    walker.list(walker.dirs[0]).await;
    walker.list(walker.dirs[1]).await;
    let Walker { ahead, site, .. } = walker;
    let inner = ahead.0.clone().expect("it lists ahead");
    drop(ahead);
    assert!(inner.state.lock().under_way.is_empty());
    drop(site);
}

/// A memory that holds few directories, walked over and over: what does not last is not fetched on and on.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_listed_ahead_than_lasts_in_memory() {
    let walker = Walker::new(60, 96 << 10).await;
    for _ in 0..6 {
        walker.list(walker.root).await;
        for &dir in &walker.dirs {
            walker.list(dir).await;
            walker.settle().await;
        }
    }
    let PrefetchCounters { begun, wasted, .. } = walker.counters();
    println!("{:?}", walker.counters());
    assert!(wasted <= 16 + begun / 4, "{wasted} of {begun} wasted");
}
