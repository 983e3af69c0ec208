//! A heap of residents by rank, lowest first, in which each resident knows its place, so that its
//! rank can change.
//!
//! What must hold: no child ranks below its parent; the state of the node at place `n` says `n`.

use super::State;
use crate::eviction::nodes::Nodes;

/// By what residents are ordered.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Rank {
    pub(super) priority: f64,
    /// Number of its latest use: no two ranks are equal.
    pub(super) used: u64,
}

/// Children of a place: more of them lie in one cache line than with two.
const CHILDREN: usize = 4;

#[derive(Clone, Copy)]
struct Entry {
    rank: Rank,
    index: u32,
}

/// The heap.
#[derive(Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    /// Takes in a node that is not in the heap.
    pub(super) fn push(&mut self, nodes: &mut Nodes<State>, index: u32, rank: Rank) {
        self.entries.push(Entry { rank, index });
        self.rise(nodes, self.entries.len() - 1);
    }

    /// Takes out the lowest.
    pub(super) fn pop(&mut self, nodes: &mut Nodes<State>) -> Option<(u32, Rank)> {
        let Entry { rank, index } = *self.entries.first()?;
        self.remove(nodes, 0);
        Some((index, rank))
    }

    /// Takes out the node at place `at`.
    pub(super) fn remove(&mut self, nodes: &mut Nodes<State>, at: u32) {
        let at = at as usize;
        let gone = self.entries.swap_remove(at);
        nodes.at_mut(gone.index).state.at = None;
        if at < self.entries.len() {
            self.settle(nodes, at);
        }
    }

    /// Gives the node at place `at` another rank.
    pub(super) fn change(&mut self, nodes: &mut Nodes<State>, at: u32, rank: Rank) {
        let at = at as usize;
        self.entries[at].rank = rank;
        self.settle(nodes, at);
    }

    /// Brings the entry at `at`, which may be out of order, to where it belongs.
    fn settle(&mut self, nodes: &mut Nodes<State>, at: usize) {
        let at = self.rise(nodes, at);
        self.sink(nodes, at);
    }

    fn rise(&mut self, nodes: &mut Nodes<State>, mut at: usize) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.entries[parent].rank <= entry.rank {
                break;
            }
            self.put(nodes, at, self.entries[parent]);
            at = parent;
        }
        self.put(nodes, at, entry);
        at
    }

    fn sink(&mut self, nodes: &mut Nodes<State>, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = CHILDREN * at + 1;
            let mut lowest = (at, entry.rank);
            for child in first..self.entries.len().min(first + CHILDREN) {
                if self.entries[child].rank < lowest.1 {
                    lowest = (child, self.entries[child].rank);
                }
            }
            if lowest.0 == at {
                break;
            }
            self.put(nodes, at, self.entries[lowest.0]);
            at = lowest.0;
        }
        self.put(nodes, at, entry);
    }

    fn put(&mut self, nodes: &mut Nodes<State>, at: usize, entry: Entry) {
        self.entries[at] = entry;
        nodes.at_mut(entry.index).state.at = Some(at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::ObjectId;

    /// Against a sorted list, under random pushes, changes, removals and pops.
    #[test]
    fn answers_as_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut heap, mut nodes) = (Heap::default(), Nodes::<State>::default());
        let mut list: Vec<(u64, u64, u32)> = Vec::new();
        for step in 0..20_000 {
            let rank = Rank { priority: random.u64(0..50) as f64, used: step };
            let key = (rank.priority as u64, step);
            match random.u8(0..5) {
                0 | 1 => {
                    let id = ObjectId::new(step as u32, 1);
                    let index = nodes.add(id, 1, State::default()).expect("there is room");
                    heap.push(&mut nodes, index, rank);
                    list.push((key.0, key.1, index));
                }
                2 if !list.is_empty() => {
                    let chosen = random.usize(0..list.len());
                    let index = list[chosen].2;
                    let at = nodes.at(index).state.at.expect("it is in the heap");
                    heap.change(&mut nodes, at, rank);
                    list[chosen] = (key.0, key.1, index);
                }
                3 if !list.is_empty() => {
                    let (_, _, index) = list.swap_remove(random.usize(0..list.len()));
                    let at = nodes.at(index).state.at.expect("it is in the heap");
                    heap.remove(&mut nodes, at);
                    nodes.remove(index);
                }
                _ => {
                    list.sort_unstable();
                    let expected = (!list.is_empty()).then(|| list.remove(0).2);
                    let popped = heap.pop(&mut nodes).map(|(index, _)| index);
                    assert_eq!(popped, expected);
                    if let Some(index) = popped {
                        nodes.remove(index);
                    }
                }
            }
        }
    }
}
