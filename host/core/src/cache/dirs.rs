//! The directories of one shard, by number and by handle.
//!
//! They lie in pages, so that the way from a number to its directory takes no read of memory that
//! is as large as the number of directories; and few enough to a page that one becomes empty and
//! is freed when the directories leave that came about the same time.

use super::dir::Dir;
use super::index::Index;
use super::nodes::DIRS_PER_SHARD_MAX;

const PAGE_DIRS: usize = 16;

/// The directories of one shard.
#[derive(Default)]
pub(super) struct Dirs {
    pages: Vec<Option<Box<Page>>>,
    free: Vec<u32>,
    /// One more than the highest number ever given.
    numbers: u32,
    by_handle: Index,
}

struct Page {
    dirs: [Option<Dir>; PAGE_DIRS],
    used: usize,
}

impl Dirs {
    /// The directory of a number that may be out of date.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Dir> {
        let (page, place) = split(number);
        self.pages.get(page)?.as_ref()?.dirs[place].as_ref()
    }

    /// As [`Dirs::get`], to change it.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Dir> {
        let (page, place) = split(number);
        self.pages.get_mut(page)?.as_mut()?.dirs[place].as_mut()
    }

    /// The number of the directory with this handle, whose hash is `hash`.
    #[inline]
    pub(super) fn find(&self, hash: u64, handle: &[u8]) -> Option<u32> {
        self.by_handle
            .find(hash, |number| self.get(number).is_some_and(|dir| dir.handle_bytes() == handle))
    }

    /// Takes in a directory that is not there and gives its number, `None` where there are as many
    /// as there can be. `hash_of` gives the hash of any handle.
    pub(super) fn insert(&mut self, dir: Dir, hash_of: impl Fn(&[u8]) -> u64) -> Option<u32> {
        let hash = hash_of(dir.handle_bytes());
        let number = match self.free.pop() {
            Some(number) => number,
            None if (self.numbers as usize) < DIRS_PER_SHARD_MAX => {
                self.numbers += 1;
                self.numbers - 1
            }
            None => return None,
        };
        let (page, place) = split(number);
        if page == self.pages.len() {
            self.pages.push(None);
        }
        let page = self.pages[page]
            .get_or_insert_with(|| Box::new(Page { dirs: [const { None }; PAGE_DIRS], used: 0 }));
        page.dirs[place] = Some(dir);
        page.used += 1;
        let Self { pages, by_handle, .. } = self;
        by_handle.insert(hash, number, |number| {
            let (page, place) = split(number);
            let page = pages[page].as_ref();
            page.and_then(|page| page.dirs[place].as_ref()).map_or(0, |d| hash_of(d.handle_bytes()))
        });
        Some(number)
    }

    /// Takes out a directory.
    pub(super) fn remove(&mut self, number: u32, hash_of: impl Fn(&[u8]) -> u64) {
        let Some(dir) = self.get(number) else { return };
        self.by_handle.remove(hash_of(dir.handle_bytes()), number);
        let (page, place) = split(number);
        if let Some(held) = &mut self.pages[page] {
            held.dirs[place] = None;
            held.used -= 1;
            if held.used == 0 {
                self.pages[page] = None;
            }
        }
        self.free.push(number);
    }

    /// One more than the highest number of a directory.
    pub(super) fn numbers(&self) -> u32 {
        self.numbers
    }
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / PAGE_DIRS, number as usize % PAGE_DIRS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::BuildHasher;

    use super::*;
    use crate::testing::handle;

    #[test]
    fn directories_are_found_until_they_are_removed_and_take_nothing_then() {
        let hasher = foldhash::fast::FixedState::with_seed(1);
        let hash_of = |bytes: &[u8]| hasher.hash_one(bytes);
        let mut random = fastrand::Rng::with_seed(8);
        let mut dirs = Dirs::default();
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            let name = random.u64(0..1_000);
            let bytes = name.to_le_bytes();
            let found = dirs.find(hash_of(&bytes), &bytes);
            assert_eq!(found, model.get(&name).copied(), "step {step}");
            let grows = step / 5_000 % 2 == 0;
            match found {
                Some(number) => {
                    assert_eq!(dirs.get(number).map(Dir::handle_bytes), Some(&bytes[..]));
                    if !grows || random.u8(0..4) == 0 {
                        dirs.remove(number, hash_of);
                        model.remove(&name);
                    }
                }
                None if grows => {
                    let number = dirs.insert(Dir::new(&handle(name)), hash_of).expect("room");
                    assert!(!model.values().any(|&other| other == number), "step {step}");
                    model.insert(name, number);
                }
                None => {}
            }
        }
        for number in model.into_values() {
            dirs.remove(number, hash_of);
        }
        assert!(dirs.pages.iter().all(Option::is_none), "every page is freed");
    }
}
