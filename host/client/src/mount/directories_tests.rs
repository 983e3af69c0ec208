//! Tests of open directories: exactly once, whatever is read, sought, removed or added between.

use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_core::prefetch::PrefetchChoice;
use portcullis_wire::message::Verb;

use super::*;
use crate::ClientOptions;
use crate::mount::ahead::Asked;
use crate::mount::kept::Kept;
use crate::mount::testing::{CHUNK_ENTRIES, ROOT, Served, Shown, handle, serve};

const COUNT: usize = 1000;

/// Takes a number of entries at most.
struct Few {
    room: usize,
    taken: Vec<(String, u64)>,
}

impl Sink for Few {
    fn dot(&mut self, offset: u64, dot: Dot) -> bool {
        let has_room = self.taken.len() < self.room;
        if has_room {
            let name = if dot == Dot::Here { "." } else { ".." };
            self.taken.push((name.to_owned(), offset));
        }
        has_room
    }

    fn run(&mut self, run: &Run<'_>) -> usize {
        let entries = (run.index..run.chunk.count()).take(self.room - self.taken.len());
        let name = |index| String::from_utf8(run.chunk.name(index).to_vec()).expect("text");
        let offset = |index: usize| run.offset + (index - run.index) as u64;
        let before = self.taken.len();
        self.taken.extend(entries.map(|index| (name(index), offset(index))));
        self.taken.len() - before
    }

    fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

struct Opened {
    served: Served,
    directory: Directory,
}

impl Opened {
    async fn new(entries: usize) -> Self {
        let shown = Shown::new();
        for n in 0..entries {
            shown.add_file(ROOT, &format!("f{n}"), "");
        }
        let served = serve(shown, ClientOptions::default()).await;
        Self { served, directory: Self::directory() }
    }

    fn directory() -> Directory {
        let inode =
            Inode { handle: handle(ROOT), ino: 1000, parent_ino: 1000, is_dir: true, target: None };
        Directory::new(inode, 1, Kept::default().opened(1, None))
    }

    async fn read(&self, offset: u64, room: usize) -> Result<Vec<(String, u64)>, Errno> {
        let mut sink = Few { room, taken: Vec::new() };
        let (fence, memory) = (Fence::new(), Memory::new(0));
        let (client, counters) = (&self.served.client, Counters::default());
        let (memory, fence) = (Arc::new(memory), Arc::new(fence));
        let contents = Arc::new(Contents::new(0));
        let asked = Asked { client, memory: &memory, contents: &contents, fence: &fence };
        let ahead = &Ahead::new(PrefetchChoice::Nothing, 0, asked);
        let (memory, contents, fence, counters) = (&*memory, &*contents, &*fence, &counters);
        let origin = Origin { client, memory, contents, fence, counters, ahead };
        self.directory.read(origin, offset, &mut sink).await?;
        Ok(sink.taken)
    }

    /// Everything from `offset` on, in pieces.
    async fn rest(&self, mut offset: u64, room: usize) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        loop {
            let piece = self.read(offset, room).await.expect("a piece");
            let Some((_, last)) = piece.last() else { return all };
            offset = *last;
            all.extend(piece);
        }
    }

    fn lists(&self) -> usize {
        self.served.shown.asked(Verb::List)
    }
}

fn names(entries: &[(String, u64)]) -> Vec<&str> {
    entries.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_any_size_make_the_whole_with_one_listing() {
    for room in [1, 2, 3, 7, CHUNK_ENTRIES, 2000] {
        let opened = Opened::new(COUNT).await;
        let all = opened.rest(0, room).await;
        let mut expected = vec![".".to_owned(), "..".to_owned()];
        expected.extend((0..COUNT).map(|n| format!("f{n}")));
        assert_eq!(names(&all), expected, "room for {room}");
        assert_eq!(opened.lists(), 1, "room for {room}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_offset_ever_given_resumes_after_its_entry() {
    let opened = Opened::new(COUNT).await;
    let all = opened.rest(0, 64).await;
    for index in (0..all.len()).rev().step_by(37).chain([0, 1, 2, 3, COUNT + 1]) {
        let next = opened.read(all[index].1, 3).await.expect("a piece");
        let expected: Vec<_> = all[index + 1..].iter().take(3).cloned().collect();
        assert_eq!(next, expected, "after entry {index}, with the same offsets");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_step_back_asks_nothing_again() {
    let opened = Opened::new(COUNT).await;
    let all = opened.rest(0, 200).await;
    opened.rest(all[COUNT - CHUNK_ENTRIES].1, 200).await;
    assert_eq!(opened.lists(), 1);
}

/// S-LIST-6
#[tokio::test(flavor = "multi_thread")]
async fn removals_between_seeks_lose_and_repeat_nothing() {
    let opened = Opened::new(COUNT).await;
    let all = opened.rest(0, 64).await;
    // What lies just before, at and just after the places sought goes away.
    for n in [99, 100, 101, 300, 301] {
        opened.served.shown.remove(ROOT, &format!("f{n}"));
    }
    opened.served.shown.add_file(ROOT, "new", "");
    let gone = |name: &str| ["f99", "f100", "f101", "f300", "f301"].contains(&name);
    // Both offsets are from before; the second lies beyond what differs from then.
    for index in [102, 303, 500, 102] {
        let rest = opened.rest(all[index].1, 50).await;
        let mut expected: Vec<_> =
            names(&all[index + 1..]).into_iter().filter(|name| !gone(name)).collect();
        expected.push("new");
        assert_eq!(names(&rest), expected, "after entry {index}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewind_sees_what_changed() {
    let opened = Opened::new(10).await;
    assert_eq!(opened.rest(0, 64).await.len(), 12);
    opened.served.shown.remove(ROOT, "f3");
    opened.served.shown.add_file(ROOT, "new", "");
    let all = opened.rest(0, 64).await;
    assert!(!names(&all).contains(&"f3") && names(&all).contains(&"new"));
    assert_eq!(opened.lists(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_of_another_opening_counts() {
    let opened = Opened::new(COUNT).await;
    let all = opened.rest(0, 64).await;
    let again = Opened { directory: Opened::directory(), ..opened };
    assert_eq!(again.read(all[700].1, 2).await.expect("a piece"), all[701..703]);
    assert_eq!(again.read(u64::MAX / 2, 2).await.expect("the end"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_listing_shows_all_it_has_and_then_fails() {
    let opened = Opened::new(120).await;
    opened.served.shown.incomplete.store(true, Ordering::Relaxed);
    let all = opened.read(0, 1000).await.expect("what there is");
    assert_eq!(all.len(), 122);
    let end = all[121].1;
    assert_eq!(opened.read(end, 1000).await, Err(Errno::IO));
    assert_eq!(opened.read(end, 1000).await, Err(Errno::IO));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_gone_is_stale() {
    let opened = Opened::new(0).await;
    let inode = Inode { handle: handle(77), ino: 1, parent_ino: 1, is_dir: true, target: None };
    let gone =
        Opened { directory: Directory::new(inode, 1, Kept::default().opened(1, None)), ..opened };
    // The dots are the kernel's in any case.
    assert_eq!(gone.read(0, 1000).await.map(|dots| dots.len()), Ok(2));
    assert_eq!(gone.read(2, 1000).await, Err(Errno::STALE));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_listing_is_given_up_and_goes_on_where_it_was() {
    let opened = Opened::new(COUNT).await;
    let mut all = opened.read(0, 300).await.expect("a piece");
    opened.directory.give_up_idle(Instant::now());
    assert!(opened.directory.stream.lock().await.listing.is_some(), "it is not idle yet");
    opened.directory.give_up_idle(Instant::now() + Duration::from_millis(LISTING_IDLE_MS));
    assert!(opened.directory.stream.lock().await.listing.is_none());
    let offset = all.last().expect("entries").1;
    all.extend(opened.rest(offset, 300).await);
    assert_eq!(all.len(), COUNT + 2);
    let mut unique = names(&all);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), COUNT + 2);
    assert_eq!(opened.lists(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_one_opening_take_turns() {
    let opened = Opened::new(COUNT).await;
    let (a, b) = tokio::join!(opened.rest(0, 13), opened.rest(0, 64));
    assert_eq!(names(&a), names(&b));
    assert_eq!(a.len(), COUNT + 2);
}
