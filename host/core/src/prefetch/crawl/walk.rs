//! One walk: the directories that are known of its tree, which of them were entered, and which are
//! wanted ahead.
//!
//! What is wanted are the next directories in the order of the walk, as many as the window says, and
//! no more than that for one step that fits the order. After one that does not, nothing more is
//! wanted.
//!
//! A client that enters a directory before the listing of the last one is over does several things at
//! once, as another prefetch engine does. Its steps come in about the order of the walk: what it left
//! out is still to come, and comes first.
//!
//! What must hold: a directory leaves the walk once it was entered, its listing is over and its
//! subtree is done, so what is kept is what is still to come and the way there.

use std::cmp::Ordering;

use super::levels::Levels;
use super::plan::{Number, Plan};
use super::window::Window;
use crate::limits::PREFETCH_WINDOW_DIRS_MAX;
use crate::prefetch::{Answer, DirId, Entry, Loss};

/// How sure the order can get: so many steps the other way turn it.
const BREADTH_MAX: i8 = 4;
/// How long a client is taken to do several things at once after it did, in steps: so many for each
/// time, and at most.
const PARALLEL_STEPS: u32 = 16;
const PARALLEL_STEPS_MAX: u32 = 128;
/// Places of the plan that are looked at in one look ahead.
const LOOK_MAX: usize = 4 * PREFETCH_WINDOW_DIRS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Neither entered nor wanted.
    Known,
    /// To be listed, or listed, ahead.
    Wanted,
    /// Wanted, but something was entered that comes after it.
    Passed,
    /// Wanted once; not again.
    Lost,
    Entered,
}

#[derive(Debug)]
struct Node {
    dir: DirId,
    parent: Option<Number>,
    /// How far below the first.
    level: u32,
    /// Which subdirectory of its parent.
    rank: u32,
    state: State,
    /// Its listing is over.
    listed: bool,
    /// Subdirectories that there were.
    subdirs: u32,
    /// Of those, in the walk.
    left: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Walk {
    nodes: Vec<Option<Node>>,
    free: Vec<Number>,
    plan: Plan,
    levels: Levels,
    pub(super) window: Window,
    /// Wanted or passed.
    ahead: usize,
    /// How many more may be wanted until the next step.
    credit: usize,
    /// Above 0 where the client does several things at once.
    parallel: u32,
    /// Above 0 where it goes in breadth.
    breadth: i8,
    /// Entered last.
    last: Option<Number>,
    /// When that was, counted in all entries of the client.
    pub(super) last_entry: u64,
    pub(super) last_ms: u64,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            plan: Plan::new(),
            levels: Levels::default(),
            window: Window::default(),
            ahead: 0,
            credit: 0,
            parallel: 0,
            breadth: 0,
            last: None,
            last_entry: 0,
            last_ms: 0,
        }
    }

    /// Adds a directory; `parent` is `None` for the one that the walk begins with.
    pub(super) fn add(&mut self, parent: Option<Number>, dir: DirId) -> Number {
        let number = self.free.pop().unwrap_or(self.nodes.len() as Number);
        if number as usize == self.nodes.len() {
            self.nodes.push(None);
        }
        let (mut level, mut rank) = (0, 0);
        if let Some(above) = parent.and_then(|parent| self.node_mut(parent)) {
            (level, rank) = (above.level + 1, above.subdirs);
            above.subdirs += 1;
            above.left += 1;
        }
        let (state, listed) = (State::Known, false);
        let node = Node { dir, parent, level, rank, state, listed, subdirs: 0, left: 0 };
        self.nodes[number as usize] = Some(node);
        self.plan.add(parent, number);
        let Self { nodes, levels, .. } = self;
        levels.add(level, number, |other| compare(nodes, other, number));
        number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == self.free.len()
    }

    /// The client entered a directory. Those that are done with then are added to `done`.
    pub(super) fn entered(&mut self, number: Number, entry: Entry, done: &mut Vec<DirId>) {
        let Some(state) = self.state(number) else { return };
        if state == State::Entered {
            return;
        }
        self.note_parallel();
        match (state, entry) {
            (State::Wanted | State::Passed, Entry::Used | Entry::Late) => {
                self.window.right(state == State::Passed);
                if self.parallel == 0 {
                    self.pass(number);
                }
                self.credit = self.window.len_dirs();
            }
            (State::Wanted, Entry::Missed) => self.window.wrong(1),
            (State::Known, Entry::Missed) => self.missed(number),
            _ => {}
        }
        self.note_order(number);
        self.set_state(number, State::Entered);
        self.plan.enter(number);
        if let Some(level) = self.node(number).map(|node| node.level) {
            let Self { nodes, levels, .. } = self;
            levels.remove(level, number, |other| compare(nodes, other, number));
        }
        self.last = Some(number);
        self.leave(number, done);
    }

    /// The listing of a directory is over. Those that are done with then are added to `done`.
    pub(super) fn listed(&mut self, number: Number, done: &mut Vec<DirId>) {
        if let Some(node) = self.node_mut(number) {
            node.listed = true;
        }
        self.leave(number, done);
    }

    /// Nothing came of a directory that was wanted.
    pub(super) fn lost(&mut self, number: Number, loss: Loss) {
        if matches!(self.state(number), Some(State::Wanted | State::Passed)) {
            self.set_state(number, State::Lost);
            if matches!(loss, Loss::Invalidated | Loss::Dropped) {
                self.window.wrong(1);
            }
        }
    }

    /// Chooses the directories to be listed next, at most `want`.
    pub(super) fn propose(&mut self, want: usize, answers: &mut Vec<Answer>) {
        let want = want.min(self.credit);
        if want == 0 {
            return;
        }
        let len_dirs = self.window.len_dirs();
        let mut next = Vec::new();
        self.look_ahead(
            |number, state| {
                if state == State::Known {
                    next.push(number);
                }
                next.len() < want
            },
            len_dirs,
        );
        self.credit -= next.len();
        for number in next {
            self.set_state(number, State::Wanted);
            answers.extend(self.node(number).map(|node| Answer::List(node.dir)));
        }
    }

    /// Wants nothing any more, until the window opens again.
    pub(super) fn cancel(&mut self, answers: &mut Vec<Answer>) {
        if self.ahead == 0 {
            return;
        }
        for number in 0..self.nodes.len() as Number {
            if matches!(self.state(number), Some(State::Wanted | State::Passed)) {
                self.set_state(number, State::Known);
                answers.extend(self.node(number).map(|node| Answer::Cancel(node.dir)));
            }
        }
    }

    /// Every directory of it.
    pub(super) fn dirs(&self) -> impl Iterator<Item = DirId> + '_ {
        self.nodes.iter().flatten().map(|node| node.dir)
    }

    /// Something was entered that was not wanted. Of a client that does several things at once it is
    /// in order where it is one of the next.
    fn missed(&mut self, number: Number) {
        let near = match self.parallel {
            0 => 1,
            _ => PREFETCH_WINDOW_DIRS_MAX,
        };
        let (mut known, mut in_order) = (0, false);
        self.look_ahead(
            |other, state| {
                known += usize::from(state == State::Known);
                in_order = other == number;
                !in_order && known < near
            },
            usize::MAX,
        );
        if !self.window.is_open() {
            // The first directory of a walk is where anybody may begin.
            if self.node(number).is_some_and(|node| node.parent.is_some()) {
                self.window.prove(in_order);
                self.credit = self.window.len_dirs();
            }
        } else if in_order {
            // It was only not far enough ahead.
            self.window.grow();
            self.credit = self.window.len_dirs();
        } else {
            self.window.wrong(1);
            self.credit = 0;
        }
    }

    /// Those that are wanted, and come before one that was entered, are passed.
    fn pass(&mut self, entered: Number) {
        let (mut passed, mut is_found) = (Vec::new(), false);
        self.look_ahead(
            |number, state| {
                is_found = number == entered;
                if state == State::Wanted && !is_found {
                    passed.push(number);
                }
                !is_found
            },
            PREFETCH_WINDOW_DIRS_MAX,
        );
        if is_found && !passed.is_empty() {
            self.window.wrong(passed.len() as u32);
            passed.into_iter().for_each(|number| self.set_state(number, State::Passed));
        }
    }

    /// Looks at the next `dirs_max` directories that were not entered, in the order of the walk, for
    /// as long as `look` answers `true`.
    fn look_ahead(&self, mut look: impl FnMut(Number, State) -> bool, dirs_max: usize) {
        let is_open = |&(_, state): &(Number, State)| state != State::Entered;
        let with_state = |number| self.state(number).map(|state| (number, state));
        let mut looked = 0;
        let mut each = |(number, state)| {
            looked += usize::from(state != State::Passed);
            look(number, state) && looked < dirs_max
        };
        // Whether it looked at all of them does not matter.
        _ = if self.breadth > 0 {
            self.levels.ahead().take(LOOK_MAX).filter_map(with_state).filter(is_open).all(&mut each)
        } else {
            let from_start = self.parallel > 0;
            self.plan
                .ahead(from_start, LOOK_MAX)
                .filter_map(with_state)
                .filter(is_open)
                .all(&mut each)
        };
    }

    /// Takes note of whether the client enters a directory before it is done with the last one.
    fn note_parallel(&mut self) {
        let last = self.last.and_then(|last| self.node(last));
        self.parallel = match last {
            Some(last) if !last.listed => (self.parallel + PARALLEL_STEPS).min(PARALLEL_STEPS_MAX),
            _ => self.parallel.saturating_sub(1),
        };
    }

    /// Takes note of which way the walk goes: from a directory with subdirectories into one of them,
    /// or to one beside it.
    fn note_order(&mut self, number: Number) {
        let Some(last) = self.last else { return };
        let (Some(from), Some(to)) = (self.node(last), self.node(number)) else { return };
        if from.left == 0 {
            return;
        }
        if to.parent == Some(last) {
            self.breadth = (self.breadth - 1).max(-BREADTH_MAX);
        } else if to.parent == from.parent {
            self.breadth = (self.breadth + 1).min(BREADTH_MAX);
        }
    }

    /// Takes a directory out whose subtree is done, and those above it of which that becomes true.
    fn leave(&mut self, number: Number, done: &mut Vec<DirId>) {
        let mut next = Some(number);
        while let Some(number) = next {
            let Some(node) = self.node(number) else { return };
            if node.state != State::Entered || !node.listed || node.left > 0 {
                return;
            }
            next = node.parent;
            done.push(node.dir);
            self.plan.remove(number);
            self.nodes[number as usize] = None;
            self.free.push(number);
            if self.last == Some(number) {
                self.last = None;
            }
            if let Some(parent) = next.and_then(|parent| self.node_mut(parent)) {
                parent.left -= 1;
            }
        }
    }

    fn set_state(&mut self, number: Number, state: State) {
        let Some(node) = self.nodes.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let is_ahead = |state| usize::from(matches!(state, State::Wanted | State::Passed));
        self.ahead = self.ahead + is_ahead(state) - is_ahead(node.state);
        node.state = state;
    }

    fn state(&self, number: Number) -> Option<State> {
        self.node(number).map(|node| node.state)
    }

    fn node(&self, number: Number) -> Option<&Node> {
        self.nodes.get(number as usize)?.as_ref()
    }

    fn node_mut(&mut self, number: Number) -> Option<&mut Node> {
        self.nodes.get_mut(number as usize)?.as_mut()
    }
}

/// The order of two directories of one level: that of those above them which have the same parent.
fn compare(nodes: &[Option<Node>], one: Number, other: Number) -> Ordering {
    let node = |number: Number| nodes.get(number as usize).and_then(Option::as_ref);
    let (mut at, mut other_at) = (one, other);
    loop {
        let (Some(here), Some(there)) = (node(at), node(other_at)) else {
            return Ordering::Equal;
        };
        match (here.parent, there.parent) {
            (Some(above), Some(other_above)) if above != other_above => {
                (at, other_at) = (above, other_above);
            }
            _ => return here.rank.cmp(&there.rank),
        }
    }
}
