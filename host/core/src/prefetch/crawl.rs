//! A policy that recognises the walk of a tree and goes ahead of it.
//!
//! A client that lists a directory and then the first of its subdirectories is taken to walk the
//! tree, in depth or in breadth as its next steps tell. From then on the directories that come next
//! are listed ahead, and their subdirectories as soon as these are known: the window ([`window`]) says
//! how many at once. It doubles with each that is used, comes down where they are not, and closes
//! where most are in vain, or where the client goes elsewhere. [`plan`] and [`levels`] have the
//! orders, [`walk`] the tree. A client may walk several trees at once.
//!
//! Where directories are entered in another order than listings have, as by a program that sorts
//! names, the window holds all subdirectories of most directories, and the order within it does
//! not matter.

mod levels;
mod plan;
mod walk;
mod window;

use std::collections::BTreeMap;
use std::hash::BuildHasherDefault;

use hashbrown::HashMap;

use self::plan::Number;
use self::walk::Walk;
use super::{Answer, DirId, Event, Follower, PrefetchPolicy};
use crate::limits::{PREFETCH_DIRS_MAX, PREFETCH_WALKS_MAX};

/// Entries of its client elsewhere, after which a walk has been left.
const ELSEWHERE_MAX: u64 = 32;
/// A walk that does not go on for so long is left. What it was ahead by stays in the cache.
const IDLE_MS_MAX: u64 = 30_000;

/// Where a directory is: its walk, and its number there.
type Place = (u64, Number);

/// See the module.
#[derive(Debug, Default)]
pub struct Crawl {
    /// By number, the oldest first.
    walks: BTreeMap<u64, Walk>,
    places: HashMap<DirId, Place, BuildHasherDefault<IdHasher>>,
    begun: u64,
    /// How often the client entered a directory.
    entries: u64,
    /// To be forgotten.
    done: Vec<DirId>,
    /// Walks of which nothing is wanted any more.
    cancelled: Vec<Answer>,
}

/// Ids are numbers in sequence: they spread by themselves.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Multiplied by the golden ratio, so that upper and lower bits differ.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

impl Crawl {
    /// Name by which the policy is known.
    pub const NAME: &str = "crawl";

    /// Begins a walk. Where there are too many, one goes: of which nothing is fetched ahead, if there
    /// is such a one, and among those the one that did not go on for longest.
    fn begin(&mut self, dir: DirId) -> Place {
        if self.walks.len() >= PREFETCH_WALKS_MAX {
            let least = self.walks.iter().min_by_key(|(_, walk)| {
                let is_open = walk.window.is_open();
                (is_open, walk.last_entry)
            });
            if let Some((&key, _)) = least {
                self.end(key);
            }
        }
        self.begun += 1;
        let mut walk = Walk::new();
        let place = (self.begun, walk.add(None, dir));
        self.walks.insert(self.begun, walk);
        self.places.insert(dir, place);
        place
    }

    fn end(&mut self, key: u64) {
        let Some(walk) = self.walks.remove(&key) else { return };
        for dir in walk.dirs() {
            self.places.remove(&dir);
            self.done.push(dir);
        }
    }

    /// Ends the walk that did not go on for longest, other than this one.
    fn end_another(&mut self, kept: u64) -> bool {
        let others = self.walks.iter().filter(|&(&key, _)| key != kept);
        let least = others.min_by_key(|(_, walk)| walk.last_entry).map(|(&key, _)| key);
        least.map(|key| self.end(key)).is_some()
    }

    /// Directories of a walk are done with: those in `done` from `before` on.
    fn let_go(&mut self, key: u64, before: usize) {
        for dir in &self.done[before..] {
            self.places.remove(dir);
        }
        if self.walks.get(&key).is_some_and(Walk::is_empty) {
            self.walks.remove(&key);
        }
    }

    /// Closes the windows of walks that the client has left.
    fn leave_others(&mut self, now_ms: u64) {
        for walk in self.walks.values_mut().filter(|walk| walk.window.is_open()) {
            let is_idle = now_ms.saturating_sub(walk.last_ms) > IDLE_MS_MAX;
            if is_idle || self.entries - walk.last_entry > ELSEWHERE_MAX {
                walk.window.close();
            }
        }
    }
}

impl Follower for Crawl {
    fn entered(&mut self, now_ms: u64, dir: DirId, entry: super::Entry) {
        self.entries += 1;
        let (key, number) = match self.places.get(&dir) {
            Some(&place) => place,
            None => self.begin(dir),
        };
        let before = self.done.len();
        if let Some(walk) = self.walks.get_mut(&key) {
            walk.entered(number, entry, &mut self.done);
            (walk.last_entry, walk.last_ms) = (self.entries, now_ms);
        }
        self.let_go(key, before);
        self.leave_others(now_ms);
    }

    fn subdir(&mut self, dir: DirId, subdir: DirId) {
        let Some(&(key, parent)) = self.places.get(&dir) else {
            return self.done.push(subdir);
        };
        if self.places.len() >= PREFETCH_DIRS_MAX && !self.end_another(key) {
            // Of those that come last nothing is known until they are entered.
            return self.done.push(subdir);
        }
        if let Some(walk) = self.walks.get_mut(&key) {
            let place = (key, walk.add(Some(parent), subdir));
            self.places.insert(subdir, place);
        }
    }

    fn listed(&mut self, dir: DirId) {
        let Some(&(key, number)) = self.places.get(&dir) else { return };
        let Some(walk) = self.walks.get_mut(&key) else { return };
        let before = self.done.len();
        walk.listed(number, &mut self.done);
        self.let_go(key, before);
    }

    fn lost(&mut self, dir: DirId, loss: super::Loss) {
        let Some(&(key, number)) = self.places.get(&dir) else { return };
        if let Some(walk) = self.walks.get_mut(&key) {
            walk.lost(number, loss);
        }
    }
}

impl PrefetchPolicy for Crawl {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.follow(now_ms, events);
        // Without an entry, too, time goes by.
        self.leave_others(now_ms);
        for walk in self.walks.values_mut().filter(|walk| !walk.window.is_open()) {
            walk.cancel(&mut self.cancelled);
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
        answers.append(&mut self.cancelled);
        answers.extend(self.done.drain(..).map(Answer::Forget));
        let mut open: Vec<_> =
            self.walks.values_mut().filter(|walk| walk.window.is_open()).collect();
        // The one that went on last comes first.
        open.sort_unstable_by_key(|walk| std::cmp::Reverse(walk.last_entry));
        let before = answers.len();
        for walk in open {
            let left = want - (answers.len() - before);
            walk.propose(left, answers);
        }
    }
}
