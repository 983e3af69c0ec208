//! The directories of a walk that were not entered, level by level: the order of a walk in breadth.
//!
//! Within a level they are in the order of their parents, and below one parent in the order of its
//! listing. Who compares two directories is who knows the tree.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use super::plan::Number;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Levels(BTreeMap<u32, VecDeque<Number>>);

impl Levels {
    /// Adds a directory; `compare` tells where others of its level stand to it.
    pub(super) fn add(&mut self, level: u32, number: Number, compare: impl Fn(Number) -> Ordering) {
        let numbers = self.0.entry(level).or_default();
        // Mostly it is the last one.
        if numbers.back().is_none_or(|&last| compare(last) == Ordering::Less) {
            return numbers.push_back(number);
        }
        let at = numbers.partition_point(|&other| compare(other) == Ordering::Less);
        numbers.insert(at, number);
    }

    /// Takes a directory out.
    pub(super) fn remove(
        &mut self,
        level: u32,
        number: Number,
        compare: impl Fn(Number) -> Ordering,
    ) {
        let Some(numbers) = self.0.get_mut(&level) else { return };
        let at = numbers.partition_point(|&other| compare(other) == Ordering::Less);
        if numbers.get(at) == Some(&number) {
            numbers.remove(at);
        }
        if numbers.is_empty() {
            self.0.remove(&level);
        }
    }

    /// All of them.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Number> + '_ {
        self.0.values().flatten().copied()
    }
}
