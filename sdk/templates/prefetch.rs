//! A prefetch policy to begin with: where a subdirectory is entered, the next ones of the same directory
//! are listed ahead.
//!
//! Change it to what you have in mind. `portcullis policy test` says whether it does what a policy must.

use std::collections::{HashMap, VecDeque};

use portcullis_sdk::prefetch::{Answer, DirId, Event, PrefetchPolicy};
use portcullis_sdk::{Policy, PolicyLimits, register_prefetch};

/// Subdirectories that are listed ahead of the one that was entered.
const AHEAD: usize = 8;
/// Directories whose subdirectories are remembered.
const REMEMBERED: usize = 64;

/// The policy. One instance serves one client.
#[derive(Default)]
pub struct NextOnes {
    /// The subdirectories of a directory, in the order of its listing.
    subdirs: HashMap<DirId, Vec<DirId>>,
    /// Which directory a subdirectory is of, and its number there.
    places: HashMap<DirId, (DirId, usize)>,
    /// Directories with subdirectories, oldest first.
    order: VecDeque<DirId>,
    /// To be listed, and what is done with.
    answers: VecDeque<Answer>,
}

impl NextOnes {
    fn forget_oldest(&mut self) {
        let Some(dir) = self.order.pop_front() else { return };
        for subdir in self.subdirs.remove(&dir).unwrap_or_default() {
            self.places.remove(&subdir);
            self.answers.push_back(Answer::Forget(subdir));
        }
    }
}

impl Policy for NextOnes {
    const NAME: &str = env!("CARGO_PKG_NAME");
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err(format!("{} takes no configuration", Self::NAME));
        }
        Ok(Self::default())
    }
}

impl PrefetchPolicy for NextOnes {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Subdir { dir, subdir } => {
                    if !self.subdirs.contains_key(&dir) {
                        self.order.push_back(dir);
                    }
                    let subdirs = self.subdirs.entry(dir).or_default();
                    self.places.insert(subdir, (dir, subdirs.len()));
                    subdirs.push(subdir);
                    if self.order.len() > REMEMBERED {
                        self.forget_oldest();
                    }
                }
                Event::Entered { dir, .. } => {
                    let Some(&(parent, at)) = self.places.get(&dir) else { continue };
                    let Some(subdirs) = self.subdirs.get(&parent) else { continue };
                    // What is listed already is not listed again by the host.
                    let next = subdirs.iter().skip(at + 1).take(AHEAD);
                    self.answers.extend(next.map(|&subdir| Answer::List(subdir)));
                }
                Event::Listed { .. } | Event::Lost { .. } => {}
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
        let mut lists = 0;
        for answer in self.answers.drain(..) {
            let is_list = matches!(answer, Answer::List(_));
            lists += usize::from(is_list);
            // What cannot be listed now is not wanted later.
            if !is_list || lists <= want {
                answers.push(answer);
            }
        }
    }
}

register_prefetch!(NextOnes);

#[cfg(test)]
mod tests {
    use portcullis_sdk::prefetch::Entry;
    use portcullis_sdk::testing;

    use super::*;

    #[test]
    fn the_next_ones_are_listed() {
        let mut policy = NextOnes::default();
        let dir = DirId(1);
        let subdirs = (2..40).map(|subdir| Event::Subdir { dir, subdir: DirId(subdir) });
        policy.on_events(0, &subdirs.collect::<Vec<_>>());
        policy.on_events(0, &[Event::Entered { dir: DirId(5), entry: Entry::Missed }]);
        let mut answers = Vec::new();
        policy.propose(0, 3, &mut answers);
        assert_eq!(answers, [6, 7, 8].map(|dir| Answer::List(DirId(dir))));
    }

    /// Seeded walks: the answers keep to the interface and are the same twice; and, where
    /// `portcullis policy test` runs this, the same as the component's.
    #[test]
    fn it_does_what_a_policy_must() {
        testing::prefetch::<NextOnes>(b"");
    }
}
