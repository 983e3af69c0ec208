//! Statahead: of a directory whose subdirectories are entered one after the other, the next ones are
//! listed ahead.
//!
//! The client of Lustre does this for the attributes of a directory's entries (statahead,
//! `lustre/llite/statahead.c`); here it is for listings of subdirectories. A **run** is a directory
//! with its subdirectories in the order of its listing. It begins where the client enters the first of
//! them, and goes on as long as [`controller`] says. Unlike [`Crawl`](super::Crawl) it looks at one
//! directory at a time: nothing is known of the order in which a tree is walked, so no more is ahead
//! than the rest of the directories that are being gone through.
//!
//! What must hold: what is remembered is bounded, the run that was used least lately goes first; at
//! most [`PREFETCH_WALKS_MAX`] runs are gone ahead of at once; what is ahead and was passed by is given
//! up.

mod controller;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::controller::Controller;
use super::{Answer, DirId, Entry, Event, Follower, Loss, PrefetchPolicy};
use crate::limits::{PREFETCH_DIRS_MAX, PREFETCH_WALKS_MAX};

/// A run that does not go on for so long is given up.
const IDLE_MS_MAX: u64 = 30_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Statahead {
    dirs: BTreeMap<DirId, Dir>,
    runs: BTreeMap<DirId, Run>,
    /// Runs by their latest use, which are numbered.
    by_use: BTreeMap<u64, DirId>,
    uses: u64,
    /// Runs that are gone ahead of, the latest last.
    active: VecDeque<DirId>,
    answers: Vec<Answer>,
}

/// A subdirectory of a run.
#[derive(Debug)]
struct Dir {
    run: DirId,
    /// Its number in that run.
    at: usize,
    is_entered: bool,
    /// It has no run, and will not have one by a listing: that is over.
    is_listed: bool,
}

#[derive(Debug, Default)]
struct Run {
    subdirs: Vec<DirId>,
    /// Those that are not entered yet.
    left: usize,
    /// No more subdirectories will come.
    is_listed: bool,
    /// The client has entered the directory itself.
    is_entered: bool,
    /// The numbers of those that are ahead.
    ahead: BTreeSet<usize>,
    /// The next one to be listed ahead.
    next: usize,
    /// While it is gone ahead of.
    controller: Option<Controller>,
    /// It was wrong, or is over.
    is_given_up: bool,
    latest_use: u64,
    last_ms: u64,
}

impl Statahead {
    /// Name by which the policy is known.
    pub const NAME: &str = "statahead";

    /// Directories that are remembered.
    pub fn known(&self) -> usize {
        self.dirs.len() + self.runs.len()
    }

    /// The client came to number `at` of a run.
    fn gone_on(&mut self, now_ms: u64, run: DirId, at: usize, was_entered: bool, entry: Entry) {
        self.touch(run);
        let Some(it) = self.runs.get_mut(&run) else { return };
        it.last_ms = now_ms;
        it.left -= usize::from(!was_entered);
        let was_ahead = it.ahead.remove(&at);
        match &mut it.controller {
            None if at == 0 && !it.is_given_up => {
                it.controller = Some(Controller::new());
                it.next = 1;
                self.activate(run);
                return;
            }
            None => return,
            Some(controller) if was_ahead && matches!(entry, Entry::Used | Entry::Late) => {
                controller.hit();
            }
            Some(controller) => controller.miss(),
        }
        // What was passed by is in vain.
        let later = it.ahead.split_off(&at);
        for passed in std::mem::replace(&mut it.ahead, later) {
            self.answers.push(Answer::Cancel(it.subdirs[passed]));
            it.controller.iter_mut().for_each(Controller::miss);
        }
        it.next = it.next.max(at + 1);
        if it.controller.as_ref().is_some_and(Controller::is_wrong) {
            self.give_up(run);
        }
    }

    fn activate(&mut self, run: DirId) {
        self.active.push_back(run);
        if self.active.len() > PREFETCH_WALKS_MAX
            && let Some(&oldest) = self.active.front()
        {
            self.give_up(oldest);
        }
    }

    /// Goes ahead of a run no more.
    fn give_up(&mut self, run: DirId) {
        self.active.retain(|&other| other != run);
        if let Some(run) = self.runs.get_mut(&run) {
            (run.controller, run.is_given_up) = (None, true);
            for at in std::mem::take(&mut run.ahead) {
                self.answers.push(Answer::Cancel(run.subdirs[at]));
            }
        }
    }

    /// The run of a directory, which begins with nothing known of it.
    fn open(&mut self, dir: DirId) -> &mut Run {
        let Self { dirs, runs, by_use, uses, .. } = self;
        runs.entry(dir).or_insert_with(|| {
            *uses += 1;
            by_use.insert(*uses, dir);
            let is_listed = dirs.get(&dir).is_some_and(|dir| dir.is_listed);
            Run { is_listed, latest_use: *uses, ..Run::default() }
        })
    }

    fn touch(&mut self, run: DirId) {
        if let Some(it) = self.runs.get_mut(&run) {
            self.by_use.remove(&it.latest_use);
            self.uses += 1;
            it.latest_use = self.uses;
            self.by_use.insert(self.uses, run);
        }
    }

    /// Lets a run go that has nothing left.
    fn close_if_done(&mut self, run: DirId) {
        let is_done = |run: &Run| run.is_listed && run.is_entered && run.left == 0;
        if self.runs.get(&run).is_some_and(is_done) {
            self.close(run);
        }
    }

    /// Forgets a run and its subdirectories, but for those that have a run of their own. The directory
    /// itself stays where it is one of a run.
    fn close(&mut self, dir: DirId) {
        self.give_up(dir);
        let Some(run) = self.runs.remove(&dir) else { return };
        self.by_use.remove(&run.latest_use);
        for subdir in run.subdirs {
            self.dirs.remove(&subdir);
            if !self.runs.contains_key(&subdir) {
                self.answers.push(Answer::Forget(subdir));
            }
        }
        if !self.dirs.contains_key(&dir) {
            self.answers.push(Answer::Forget(dir));
        }
    }

    /// Makes room for one more; `kept` is in use, and `false` where it fills all by itself.
    fn make_room(&mut self, kept: DirId) -> bool {
        while self.known() >= PREFETCH_DIRS_MAX {
            match self.by_use.values().copied().find(|&run| run != kept) {
                Some(run) => self.close(run),
                None => return false,
            }
        }
        true
    }
}

impl Follower for Statahead {
    fn entered(&mut self, now_ms: u64, dir: DirId, entry: Entry) {
        let place = self.dirs.get_mut(&dir).map(|known| {
            let before = std::mem::replace(&mut known.is_entered, true);
            (known.run, known.at, before)
        });
        if let Some((run, at, was_entered)) = place {
            self.gone_on(now_ms, run, at, was_entered, entry);
        }
        self.open(dir).is_entered = true;
        self.touch(dir);
        self.make_room(dir);
        self.close_if_done(dir);
        if let Some((run, ..)) = place {
            self.close_if_done(run);
        }
    }

    fn subdir(&mut self, dir: DirId, subdir: DirId) {
        if self.dirs.contains_key(&subdir) || self.runs.contains_key(&subdir) {
            return;
        }
        if !self.make_room(dir) {
            // Of those that come last nothing is known until they are entered.
            return self.answers.push(Answer::Forget(subdir));
        }
        let run = self.open(dir);
        run.subdirs.push(subdir);
        run.left += 1;
        let at = run.subdirs.len() - 1;
        self.dirs.insert(subdir, Dir { run: dir, at, is_entered: false, is_listed: false });
    }

    fn listed(&mut self, dir: DirId) {
        if let Some(run) = self.runs.get_mut(&dir) {
            run.is_listed = true;
            self.close_if_done(dir);
        } else if let Some(dir) = self.dirs.get_mut(&dir) {
            dir.is_listed = true;
        }
    }

    fn lost(&mut self, dir: DirId, loss: Loss) {
        let Some(known) = self.dirs.get(&dir) else { return };
        let (run, at) = (known.run, known.at);
        let Some(it) = self.runs.get_mut(&run) else { return };
        if it.ahead.remove(&at)
            && loss != Loss::Known
            && let Some(controller) = &mut it.controller
        {
            controller.miss();
            if controller.is_wrong() {
                self.give_up(run);
            }
        }
    }
}

impl PrefetchPolicy for Statahead {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.follow(now_ms, events);
        let is_idle = |run: &&DirId| {
            self.runs.get(run).is_none_or(|run| now_ms.saturating_sub(run.last_ms) > IDLE_MS_MAX)
        };
        for run in self.active.iter().filter(is_idle).copied().collect::<Vec<_>>() {
            self.give_up(run);
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
        answers.append(&mut self.answers);
        let mut left = want;
        for run in self.active.iter().rev() {
            let Some(run) = self.runs.get_mut(run) else { continue };
            let Some(controller) = &run.controller else { continue };
            while left > 0
                && run.ahead.len() < controller.window_dirs()
                && let Some(&subdir) = run.subdirs.get(run.next)
            {
                let at = run.next;
                run.next += 1;
                if self.dirs.get(&subdir).is_some_and(|dir| !dir.is_entered) {
                    run.ahead.insert(at);
                    answers.push(Answer::List(subdir));
                    left -= 1;
                }
            }
        }
    }
}
