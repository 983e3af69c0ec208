//! The directories of a walk in the order in which it will enter them, in depth.
//!
//! A doubly linked list of two places a directory: where it is entered, and where its subtree ends.
//! Subdirectories go in just before the end of their parent's subtree, so the list is in order
//! whatever order listings come in. It is looked at from where the walk is, and what was left out on
//! the way there comes last. Everything is O(1), but for a look along the list.

/// Number of a directory within its walk; used again after [`Plan::remove`].
pub(super) type Number = u32;

const ENDS: u32 = 0;

/// See the module.
#[derive(Debug)]
pub(super) struct Plan {
    /// Place `p` is followed by `next[p]` and preceded by `prev[p]`; place 0 is both ends, and a
    /// place that is not in the list is its own neighbour.
    next: Vec<u32>,
    prev: Vec<u32>,
    /// Where the walk is.
    cursor: u32,
}

fn start(number: Number) -> u32 {
    2 * number + 1
}

fn end(number: Number) -> u32 {
    2 * number + 2
}

impl Plan {
    pub(super) fn new() -> Self {
        Self { next: vec![ENDS], prev: vec![ENDS], cursor: ENDS }
    }

    /// Adds a directory: the last one so far in the subtree of `parent`.
    pub(super) fn add(&mut self, parent: Option<Number>, number: Number) {
        while (self.next.len() as u32) <= end(number) {
            self.prev.push(self.next.len() as u32);
            self.next.push(self.next.len() as u32);
        }
        let before = parent.map_or(ENDS, end);
        self.link_before(before, start(number));
        self.link_before(before, end(number));
    }

    /// The walk is there now.
    pub(super) fn enter(&mut self, number: Number) {
        self.cursor = start(number);
    }

    /// It is gone, and has no subtree.
    pub(super) fn remove(&mut self, number: Number) {
        self.unlink(start(number));
        self.unlink(end(number));
    }

    /// All directories, from where the walk is or from the first; looks at `places_max` places at
    /// most, of which each directory has two.
    pub(super) fn ahead(
        &self,
        from_start: bool,
        places_max: usize,
    ) -> impl Iterator<Item = Number> + '_ {
        let begin = if from_start { ENDS } else { self.cursor };
        let along = |place: &u32| Some(self.next[*place as usize]);
        let is_round = move |place: &u32| *place != begin;
        let rest = std::iter::successors(along(&begin), along).take_while(is_round);
        rest.take(places_max).filter(|place| place % 2 == 1).map(|place| place / 2)
    }

    fn link_before(&mut self, at: u32, place: u32) {
        let before = self.prev[at as usize];
        (self.prev[place as usize], self.next[place as usize]) = (before, at);
        (self.next[before as usize], self.prev[at as usize]) = (place, place);
    }

    fn unlink(&mut self, place: u32) {
        let (before, after) = (self.prev[place as usize], self.next[place as usize]);
        if self.cursor == place {
            // What comes next is still what comes next.
            self.cursor = before;
        }
        (self.next[before as usize], self.prev[after as usize]) = (after, before);
        (self.prev[place as usize], self.next[place as usize]) = (place, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_in_any_order_give_the_same_order() {
        let mut plan = Plan::new();
        let ahead = |plan: &Plan| plan.ahead(false, 100).collect::<Vec<_>>();
        plan.add(None, 0);
        (1..4).for_each(|child| plan.add(Some(0), child));
        plan.enter(0);
        // Children of 2 before those of 1.
        plan.add(Some(2), 4);
        plan.add(Some(1), 5);
        plan.add(Some(1), 6);
        assert_eq!(ahead(&plan), [1, 5, 6, 2, 4, 3]);
        plan.enter(6);
        assert_eq!(ahead(&plan), [2, 4, 3, 0, 1, 5], "and round");
        assert_eq!(plan.ahead(true, 100).collect::<Vec<_>>(), [0, 1, 5, 6, 2, 4, 3]);
        plan.remove(6);
        assert_eq!(ahead(&plan), [2, 4, 3, 0, 1, 5]);
        // A number that is used again.
        plan.add(Some(4), 6);
        assert_eq!(ahead(&plan), [2, 4, 6, 3, 0, 1, 5]);
        assert_eq!(plan.ahead(false, 5).count(), 3, "places, not directories");
    }
}
