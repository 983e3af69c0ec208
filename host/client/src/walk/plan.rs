//! The directories a walk has yet to enter, in the order in which it will enter them.
//!
//! A doubly linked list of two places a directory: where it is entered and where its subtree
//! ends. The subdirectories found in a listing go in just before the end of their parent's
//! subtree, so the list is in depth-first order whatever order listings arrive in, and the first
//! directories of the list are the next ones needed. Finding, adding and taking are O(1).

use portcullis_core::Handle;

/// A directory of the plan. Ids are used again after [`Plan::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirId(u32);

/// Directories to come, each with a `T` of the walk's own.
#[derive(Debug)]
pub(super) struct Plan<T> {
    /// Place `p` is followed by `next[p]` and preceded by `prev[p]`; place 0 is both ends.
    next: Vec<u32>,
    prev: Vec<u32>,
    dirs: Vec<Option<(Handle, T)>>,
    free: Vec<u32>,
}

const ENDS: u32 = 0;

impl<T> Plan<T> {
    pub(super) fn new() -> Self {
        Self { next: vec![ENDS], prev: vec![ENDS], dirs: Vec::new(), free: Vec::new() }
    }

    /// Adds a directory: the last one so far in the subtree of `parent`, or the only one of all.
    pub(super) fn add(&mut self, parent: Option<DirId>, handle: Handle, of_walk: T) -> DirId {
        let dir = match self.free.pop() {
            Some(dir) => DirId(dir),
            None => {
                self.dirs.push(None);
                self.next.extend([ENDS; 2]);
                self.prev.extend([ENDS; 2]);
                DirId(self.dirs.len() as u32 - 1)
            }
        };
        self.dirs[dir.0 as usize] = Some((handle, of_walk));
        let before = parent.map_or(ENDS, DirId::end);
        self.link_before(before, dir.start());
        self.link_before(before, dir.end());
        dir
    }

    /// Takes the first directory off the list, to be entered; its subtree stays ahead. `None`
    /// where the subtree of the one entered last ends first.
    pub(super) fn enter(&mut self) -> Option<DirId> {
        let dir = self.at_start(self.next[ENDS as usize])?;
        self.unlink(dir.start());
        Some(dir)
    }

    /// Forgets a directory that was entered and whose subtree is done.
    pub(super) fn leave(&mut self, dir: DirId) -> Option<T> {
        debug_assert_eq!(self.next[ENDS as usize], dir.end(), "its subtree is not done");
        self.unlink(dir.end());
        self.forget(dir)
    }

    /// Forgets the directories between the front of the list and the end of `dir`, which are the
    /// rest of its subtree when it was entered last.
    pub(super) fn drop_rest(&mut self, dir: DirId) {
        while self.next[ENDS as usize] != dir.end() {
            let place = self.next[ENDS as usize];
            debug_assert_ne!(place, ENDS, "a directory that is not ahead");
            self.unlink(place);
            if let Some(dropped) = Self::owner(place).filter(|dropped| place == dropped.end()) {
                self.forget(dropped);
            }
        }
    }

    /// The directories to be entered, next one first; looks at `places_max` places.
    pub(super) fn ahead(&self, places_max: usize) -> impl Iterator<Item = DirId> + '_ {
        let following = |&place: &u32| Some(self.next[place as usize]).filter(|&at| at != ENDS);
        std::iter::successors(following(&ENDS), following)
            .take(places_max)
            .filter_map(|place| self.at_start(place))
    }

    pub(super) fn handle(&self, dir: DirId) -> Option<&Handle> {
        Some(&self.dirs.get(dir.0 as usize)?.as_ref()?.0)
    }

    pub(super) fn get_mut(&mut self, dir: DirId) -> Option<&mut T> {
        Some(&mut self.dirs.get_mut(dir.0 as usize)?.as_mut()?.1)
    }

    pub(super) fn get(&self, dir: DirId) -> Option<&T> {
        Some(&self.dirs.get(dir.0 as usize)?.as_ref()?.1)
    }

    fn forget(&mut self, dir: DirId) -> Option<T> {
        self.free.push(dir.0);
        self.dirs[dir.0 as usize].take().map(|(_, of_walk)| of_walk)
    }

    fn owner(place: u32) -> Option<DirId> {
        (place != ENDS).then(|| DirId((place - 1) / 2))
    }

    fn at_start(&self, place: u32) -> Option<DirId> {
        Self::owner(place).filter(|dir| place == dir.start())
    }

    fn link_before(&mut self, before: u32, place: u32) {
        let after = self.prev[before as usize];
        self.next[after as usize] = place;
        self.prev[place as usize] = after;
        self.next[place as usize] = before;
        self.prev[before as usize] = place;
    }

    fn unlink(&mut self, place: u32) {
        let (before, after) = (self.prev[place as usize], self.next[place as usize]);
        self.next[before as usize] = after;
        self.prev[after as usize] = before;
    }
}

impl DirId {
    fn start(self) -> u32 {
        1 + 2 * self.0
    }

    fn end(self) -> u32 {
        2 + 2 * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(plan: &mut Plan<u8>, parent: Option<DirId>, tag: u8) -> DirId {
        plan.add(parent, Handle::new(&[tag]).expect("short"), tag)
    }

    fn ahead(plan: &Plan<u8>) -> Vec<u8> {
        plan.ahead(100).filter_map(|dir| plan.get(dir).copied()).collect()
    }

    #[test]
    fn directories_lie_depth_first_whatever_order_they_are_found_in() {
        let mut plan = Plan::new();
        let root = add(&mut plan, None, 0);
        assert_eq!(plan.enter(), Some(root));
        let (a, b) = (add(&mut plan, Some(root), 1), add(&mut plan, Some(root), 2));
        // The listings of b and of the root go on before that of a arrives.
        add(&mut plan, Some(b), 21);
        add(&mut plan, Some(root), 3);
        let inner = add(&mut plan, Some(a), 11);
        add(&mut plan, Some(a), 12);
        add(&mut plan, Some(inner), 111);
        assert_eq!(ahead(&plan), [1, 11, 111, 12, 2, 21, 3]);
    }

    #[test]
    fn entering_and_leaving_follow_the_list_and_ids_are_used_again() {
        let mut plan = Plan::new();
        let root = add(&mut plan, None, 0);
        assert_eq!(plan.enter(), Some(root));
        let a = add(&mut plan, Some(root), 1);
        assert_eq!(plan.enter(), Some(a));
        assert_eq!(plan.enter(), None, "a has no subdirectory, and the root's end is behind it");
        assert_eq!(plan.leave(a), Some(1));
        let b = add(&mut plan, Some(root), 2);
        assert_eq!(b, a);
        assert_eq!(plan.enter(), Some(b));
        assert_eq!((plan.leave(b), plan.leave(root)), (Some(2), Some(0)));
        assert_eq!(ahead(&plan), []);
    }

    #[test]
    fn dropping_the_rest_spares_what_lies_outside() {
        let mut plan = Plan::new();
        let root = add(&mut plan, None, 0);
        plan.enter();
        let a = add(&mut plan, Some(root), 1);
        add(&mut plan, Some(root), 2);
        plan.enter();
        let inner = add(&mut plan, Some(a), 11);
        add(&mut plan, Some(inner), 111);
        add(&mut plan, Some(a), 12);
        plan.drop_rest(a);
        assert_eq!(ahead(&plan), [2]);
        assert_eq!(plan.leave(a), Some(1));
    }
}
