//! The order of a walk, what it asks for ahead, and what it does where a directory fails.

use std::time::Duration;

use super::*;
use crate::testing::{Tree, serve};

/// Far more than any of these walks takes; only a walk that is stuck gets there.
const STUCK: Duration = Duration::from_secs(60);

/// Bytes of chunks that the walk holds.
fn held_bytes(walk: &Walk) -> usize {
    let queued = walk.plan.ahead(usize::MAX).chain(walk.frames.iter().map(|frame| frame.dir));
    let queued = queued.filter_map(|dir| walk.plan.get(dir)).flat_map(|dir| &dir.chunks);
    let current = walk.frames.iter().filter_map(|frame| frame.current.as_ref());
    queued.chain(current).map(|held| held.chunk.bytes().len()).sum()
}

/// The nodes told, `-n` for a failure of node n, and the most bytes held; checks paths and depths
/// on the way.
async fn steps(client: &Client, limits: WalkLimits) -> (Vec<i64>, usize) {
    let mut walk = Walk::new(client.clone(), client.root().clone(), b"pc://gate/", limits);
    let (mut steps, mut held_bytes_peak) = (Vec::new(), 0);
    let node_of = |path: &[u8]| -> i64 {
        let last = path.rsplit(|&byte| byte == b'/').next().expect("at least one part");
        std::str::from_utf8(last).expect("digits").parse().unwrap_or(0)
    };
    while let Some(step) = walk.next().await {
        match step {
            Step::Failed { path, .. } => steps.push(-node_of(path)),
            Step::Visit(visit) => {
                assert!(visit.path.starts_with(b"pc://gate/"));
                let names = visit.relative().split(|&byte| byte == b'/');
                let depth = names.filter(|name| !name.is_empty()).count();
                assert_eq!(visit.depth, depth, "{}", String::from_utf8_lossy(visit.path));
                let ino = visit.entry.attr.expect("attributes").ino as i64;
                assert_eq!(node_of(visit.path), ino);
                steps.push(ino);
            }
        }
        held_bytes_peak = held_bytes_peak.max(held_bytes(&walk));
    }
    (steps, held_bytes_peak)
}

async fn walked(client: &Client, limits: WalkLimits) -> Vec<i64> {
    tokio::time::timeout(STUCK, steps(client, limits)).await.expect("the walk is stuck").0
}

/// A tree without pattern: `len` nodes, two of five directories, parents chosen by a fixed sequence.
fn tangled(len: usize) -> Tree {
    let mut tree = Tree::new();
    let (mut dirs, mut seed) = (vec![0], 12_345_u64);
    for _ in 1..len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let parent = dirs[(seed >> 33) as usize % dirs.len()];
        let is_dir = (seed >> 20).is_multiple_of(5) || (seed >> 20) % 5 == 1;
        let node = tree.add(parent, is_dir);
        if is_dir {
            dirs.push(node);
        }
    }
    tree.chunk_entries = 3;
    tree
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_depth_first_and_each_directory_is_listed_once() {
    let (tree, _gateway, _set, client) = serve(tangled(3_000)).await;
    assert_eq!(walked(&client, WalkLimits::default()).await, tree.expected());
    let mut lists = tree.lists.lock().clone();
    let asked = lists.len();
    lists.sort_unstable();
    lists.dedup();
    assert_eq!(lists.len(), asked, "a directory was listed twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_room_for_almost_nothing_each_entry_still_comes_once_and_in_order() {
    let (tree, _gateway, _set, client) = serve(tangled(3_000)).await;
    let limits = WalkLimits { listings_max: 8, ahead_max: 16, held_bytes_max: 6_000 };
    assert_eq!(walked(&client, limits).await, tree.expected());
    assert!(tree.lists.lock().len() > 1_300, "nothing was given up: the test shows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_directories_inside_one_another_do_not_add_up() {
    let mut tree = Tree::new();
    let mut parent = 0;
    for _ in 0..40 {
        let inner = tree.add(parent, true);
        for _ in 0..400 {
            tree.add(parent, false);
        }
        parent = inner;
    }
    tree.chunk_entries = 50;
    let (tree, _gateway, _set, client) = serve(tree).await;
    // Room for four directories' shares, of three chunks each; forty are open inside one another.
    let limits = WalkLimits { held_bytes_max: 80_000, ..WalkLimits::default() };
    let walked = tokio::time::timeout(STUCK, steps(&client, limits)).await;
    let (steps, held_bytes_peak) = walked.expect("the walk is stuck");
    assert_eq!(steps, tree.expected());
    // A few chunks of 5 KB may be handed over without room.
    assert!(held_bytes_peak < 80_000 + 30_000, "{held_bytes_peak}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_directories_is_walked_without_recursion() {
    let mut tree = Tree::new();
    let mut parent = 0;
    for _ in 0..5_000 {
        parent = tree.add(parent, true);
    }
    let (tree, _gateway, _set, client) = serve(tree).await;
    assert_eq!(walked(&client, WalkLimits::default()).await, tree.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_fails_is_told_in_its_place_and_the_walk_goes_on() {
    let mut tree = tangled(300);
    let dirs: Vec<usize> = (1..300).filter(|&node| tree.nodes[node].is_dir).collect();
    tree.nodes[dirs[3]].fails = Some(Status::AccessDenied);
    tree.nodes[dirs[dirs.len() / 2]].incomplete = true;
    let (tree, _gateway, _set, client) = serve(tree).await;
    let expected = tree.expected();
    assert_eq!(expected.iter().filter(|&&step| step < 0).count(), 2);
    assert_eq!(walked(&client, WalkLimits::default()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_listed_side_by_side() {
    let mut tree = Tree::new();
    for _ in 0..32 {
        let dir = tree.add(0, true);
        tree.add(dir, false);
    }
    // None of the 32 answers before all 32 are asked for: one at a time would wait for ever.
    tree.together = Some((0, tokio::sync::Barrier::new(32)));
    let (tree, _gateway, _set, client) = serve(tree).await;
    assert_eq!(walked(&client, WalkLimits::default()).await, tree.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_no_directory_is_the_whole_walk() {
    let mut tree = Tree::new();
    tree.add(0, false);
    let (_tree, _gateway, _set, client) = serve(tree).await;
    let file = client.resolve(b"/1").await.expect("it is there");
    let mut walk = Walk::new(client.clone(), file, b"pc://gate/1", WalkLimits::default());
    let first = walk.next().await.expect("the start");
    assert!(matches!(first, Step::Visit(visit) if visit.relative().is_empty()));
    assert!(walk.next().await.is_none());
}
